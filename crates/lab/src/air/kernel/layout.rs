// SPDX-License-Identifier: Apache-2.0
//! Stations and their radios, as commands for `ip`.

use super::encapsulation::{EVERYWHERE, UDP_PORT, identifier, source};
use crate::rig::staging::{Route, address, routes};
use crate::scenario::{MAX_STATIONS, Scenario};
use anyhow::{Result, ensure};

/// The namespace that all frames pass.
pub const AIR: &str = "tautline-air";
/// Maximum IP packet size of every radio, bytes.
pub const MTU: u32 = 1500;
/// Prefix length of a network's subnet.
const PREFIX: u8 = 16;
/// A MAC has one byte for the number of a station.
const _: () = assert!(MAX_STATIONS <= 256);

/// Returns the MAC of a radio, 02:00:00:00:NN:SS for network and station.
pub fn mac(network: usize, station: usize) -> [u8; 6] {
    [2, 0, 0, 0, network as u8, station as u8]
}

/// Returns the name of a station's interface on its `index`th network.
pub fn interface(index: usize) -> String {
    format!("wlan{index}")
}

/// Returns an error if a station's name cannot be the name of a namespace: `ip` would read a leading
/// '-' as an option.
pub fn check_names(scenario: &Scenario) -> Result<()> {
    for station in &scenario.stations {
        let name = &station.name;
        let usable = name != AIR && !name.starts_with('-');
        ensure!(usable, "station '{name}': a name does not begin with '-', and is not {AIR}");
    }
    Ok(())
}

/// Returns the lines for `ip` in the namespace [`AIR`]. Each radio's device is created from the air,
/// where its packets meet those of other radios, and placed in its station. TCP passes one segment at a
/// time to the device: the queue would split a packet of 40 segments, and their simultaneous arrival
/// delays the emulator.
pub fn air_links(scenario: &Scenario) -> String {
    let mut lines = "link set lo up\n".to_owned();
    let mut radio = 0;
    for (number, station) in scenario.stations.iter().enumerate() {
        for (index, &network) in station.networks.iter().enumerate() {
            let (identifier, source) = (identifier(radio), source(radio));
            lines += &format!(
                "link add {} netns {} address {} mtu {MTU} gso_max_segs 1 \
                 type vxlan id {identifier} local {source} remote {EVERYWHERE} dstport {UDP_PORT} nolearning\n",
                interface(index),
                station.name,
                mac(network, number).map(|byte| format!("{byte:02x}")).join(":")
            );
            radio += 1;
        }
    }
    lines
}

/// Returns lines for `ip` in a station: its interfaces, then its routes.
pub fn station_links(scenario: &Scenario, station: usize) -> String {
    let mut lines = "link set lo up\n".to_owned();
    for (index, &network) in scenario.stations[station].networks.iter().enumerate() {
        let (interface, address) = (interface(index), address(network, station));
        lines += &format!(
            "link set {interface} up\n\
             addr add {address}/{PREFIX} broadcast + dev {interface}\n"
        );
    }
    for Route { to, via, .. } in routes(scenario).iter().filter(|route| route.from == station) {
        lines += &format!("route add {to}/32 via {via}\n");
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario;

    fn stations(names: [&str; 2]) -> Scenario {
        let [one, other] = names;
        let text = format!(
            "about: x\nduration: 1s\n\
             networks:\n  a: {{ pipe: {{ rate: 1Mbps }} }}\n  b: {{ pipe: {{ rate: 1Mbps }} }}\n\
             stations:\n  {one}: {{ networks: [b] }}\n  {other}: {{ networks: [a, b] }}\n"
        );
        scenario::parse_made("layout", &text).unwrap()
    }

    #[test]
    fn a_radio_has_its_network_and_station_in_its_addresses() {
        let scenario = stations(["robot", "base"]);
        let links = air_links(&scenario);
        assert!(links.contains(
            "link add wlan1 netns base address 02:00:00:00:01:01 mtu 1500 gso_max_segs 1 type vxlan id 3 local 127.1.0.3 "
        ));
        let base = station_links(&scenario, 1);
        assert!(base.contains("addr add 10.72.0.2/16 broadcast + dev wlan1\n"), "{base}");
    }

    #[test]
    fn a_station_that_cannot_be_a_namespace_is_refused_by_name() {
        check_names(&stations(["robot", "base"])).unwrap();
        for name in ["-n", AIR] {
            let refused = check_names(&stations(["robot", name])).unwrap_err().to_string();
            assert!(refused.contains(&format!("station '{name}'")), "{refused}");
        }
    }
}
