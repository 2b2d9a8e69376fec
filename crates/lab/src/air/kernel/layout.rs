// SPDX-License-Identifier: Apache-2.0
//! Stations and their radios, as commands for `ip`.

use super::encapsulation::{EVERYWHERE, UDP_PORT, identifier, source};
use anyhow::{Result, ensure};
use std::collections::HashSet;
use std::net::Ipv4Addr;

/// The namespace that all frames pass.
pub const AIR: &str = "tautline-air";
/// Maximum number of stations: MACs are `02:00:00:00:NN:SS`.
pub const MAX_STATIONS: usize = 256;
/// Maximum number of radios: their number has two bytes of an address.
pub const MAX_RADIOS: usize = 4096;
/// Maximum length of an interface's name.
const MAX_INTERFACE_BYTES: usize = 15;
/// Maximum length of a namespace's name, which is also a file name.
const MAX_NAME_BYTES: usize = 64;

/// Plan of a station.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StationPlan {
    /// Name of the station and of its namespace: letters, digits, `-`, `_`.
    pub name: String,
    /// Radios, at most one on each network.
    pub radios: Vec<RadioPlan>,
}

/// Plan of a station's radio.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RadioPlan {
    /// Network of the radio; radios of one network reach each other.
    pub network: u8,
    /// Interface name for programs in the station: `wlan0`.
    pub interface: String,
    /// IP address of the radio.
    pub address: Ipv4Addr,
    /// Prefix length of the subnet, 0-32.
    pub prefix: u8,
    /// Maximum IP packet size, bytes.
    pub mtu: u32,
}

/// Returns the MAC of a radio, 02:00:00:00:NN:SS.
pub fn mac(network: u8, station: usize) -> [u8; 6] {
    [2, 0, 0, 0, network, station as u8]
}

/// Returns an error if a plan is invalid.
pub fn check(stations: &[StationPlan]) -> Result<()> {
    ensure!(
        stations.len() <= MAX_STATIONS,
        "{} stations; at most {MAX_STATIONS} are allowed",
        stations.len()
    );
    let radios: usize = stations.iter().map(|station| station.radios.len()).sum();
    ensure!(radios <= MAX_RADIOS, "{radios} radios; at most {MAX_RADIOS} are allowed");
    let mut names = HashSet::new();
    for station in stations {
        let name = &station.name;
        ensure!(
            is_name(name, MAX_NAME_BYTES) && name != AIR,
            "station '{name}': a name is 1-{MAX_NAME_BYTES} letters, digits, '-' and '_', and not {AIR}"
        );
        ensure!(names.insert(name), "two stations are called '{name}'");
        check_radios(station)?;
    }
    Ok(())
}

fn check_radios(station: &StationPlan) -> Result<()> {
    let (name, mut networks, mut interfaces) = (&station.name, HashSet::new(), HashSet::new());
    for radio in &station.radios {
        let interface = &radio.interface;
        ensure!(
            is_name(interface, MAX_INTERFACE_BYTES),
            "station '{name}': interface '{interface}' is not 1-{MAX_INTERFACE_BYTES} letters, digits, '-' and '_'"
        );
        ensure!(
            networks.insert(radio.network) && interfaces.insert(interface),
            "station '{name}' has two radios called '{interface}' or on its network"
        );
        ensure!(interface != "lo", "station '{name}': the interface name 'lo' is taken");
    }
    Ok(())
}

fn is_name(name: &str, max_bytes: usize) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    // `ip` would read a leading '-' as an option.
    (1..=max_bytes).contains(&name.len()) && name.bytes().all(allowed) && !name.starts_with('-')
}

/// Returns lines for `ip` in the air. Each radio's device is created from the air, where its
/// packets meet those of other radios, and placed in its station. TCP passes one segment at a time
/// to the device: the queue would split a packet of 40 segments, and their simultaneous arrival
/// delays the emulator.
pub fn air_links(stations: &[StationPlan]) -> String {
    let mut lines = "link set lo up\n".to_owned();
    for (number, place) in places(stations).iter().enumerate() {
        let RadioPlan { interface, mtu, .. } = place.radio;
        let (identifier, source) = (identifier(number), source(number));
        lines += &format!(
            "link add {interface} netns {} address {} mtu {mtu} gso_max_segs 1 \
             type vxlan id {identifier} local {source} remote {EVERYWHERE} dstport {UDP_PORT} nolearning\n",
            stations[place.station].name,
            text(place.mac())
        );
    }
    lines
}

/// Returns lines for `ip` in a station.
pub fn station_links(station: &StationPlan) -> String {
    let mut lines = "link set lo up\n".to_owned();
    for RadioPlan { interface, address, prefix, .. } in &station.radios {
        lines += &format!(
            "link set {interface} up\n\
             addr add {address}/{prefix} broadcast + dev {interface}\n"
        );
    }
    lines
}

/// A radio and its station.
struct Place<'a> {
    station: usize,
    radio: &'a RadioPlan,
}

impl Place<'_> {
    fn mac(&self) -> [u8; 6] {
        mac(self.radio.network, self.station)
    }
}

/// Returns all radios in the order of their numbers.
fn places(stations: &[StationPlan]) -> Vec<Place<'_>> {
    let of_station = |(station, plan)| {
        let plan: &StationPlan = plan;
        plan.radios.iter().map(move |radio| Place { station, radio })
    };
    stations.iter().enumerate().flat_map(of_station).collect()
}

fn text(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn station(name: &str, radios: &[(u8, &str)]) -> StationPlan {
        let radio = |&(network, interface): &(u8, &str)| RadioPlan {
            network,
            interface: interface.into(),
            address: Ipv4Addr::new(10, 72, network, 1),
            prefix: 24,
            mtu: 1500,
        };
        StationPlan { name: name.into(), radios: radios.iter().map(radio).collect() }
    }

    #[test]
    fn names_say_network_and_station() {
        assert_eq!(text(mac(3, 255)), "02:00:00:00:03:ff");
        let stations = [station("a", &[(3, "wlan0")]), station("b", &[(2, "w2"), (3, "w3")])];
        let links = air_links(&stations);
        assert!(links.contains(
            "link add w3 netns b address 02:00:00:00:03:01 mtu 1500 gso_max_segs 1 type vxlan id 3 local 127.1.0.3 "
        ));
    }

    #[test]
    fn what_cannot_be_made_is_refused_by_name() {
        let robot = || station("robot", &[(0, "wlan0")]);
        check(&[robot(), station("base", &[(0, "wlan0"), (1, "wlan1")])]).unwrap();
        let refused = [
            (vec![robot(), robot()], "two stations are called 'robot'"),
            (vec![station("a/b", &[])], "station 'a/b'"),
            (vec![station("-n", &[])], "station '-n'"),
            (vec![station(AIR, &[])], "and not tautline-air"),
            (vec![station("robot", &[(0, "w"), (0, "x")])], "'x' or on its network"),
            (vec![station("robot", &[(0, "lo")])], "'lo' is taken"),
            (vec![station("robot", &[(0, "sixteen-letters-")])], "'sixteen-letters-' is not"),
            (vec![robot(); 257], "257 stations"),
        ];
        for (plan, expected) in refused {
            let error = check(&plan).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
