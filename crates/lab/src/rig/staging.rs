// SPDX-License-Identifier: Apache-2.0
//! The parts of a scenario that virtual time and real time share: networks, positions of stations,
//! and events.

use crate::scenario::{Happening, Scenario};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use tautline_medium::{Interference, Medium, Motion, Nanos, NetworkId, Outage};

/// UDP payload of a full IPv4 packet of 1500 bytes.
pub const DATAGRAM_BYTES: usize = 1472;

/// A change of the medium.
#[derive(Debug, Clone)]
pub enum Change {
    /// An outage begins (true) or ends (false).
    Outage(Outage, bool),
    /// A new rate of a network, in bits per second.
    Rate(NetworkId, u64),
    /// Noise on a network.
    Interference(NetworkId, Interference),
}

impl Change {
    /// Applies the change to the medium.
    pub fn apply<P: Clone>(self, now: Nanos, medium: &mut Medium<P>) {
        match self {
            Self::Outage(outage, out) => medium.outage(outage, out),
            Self::Rate(network, bps) => medium.set_rate(now, network, bps),
            Self::Interference(network, what) => medium.interfere(now, network, what),
        }
    }
}

/// Returns the address of a station on a network, both by their numbers in the scenario.
pub fn address(network: usize, station: usize) -> Ipv4Addr {
    let number = station + 1;
    Ipv4Addr::new(10, 71 + network as u8, (number >> 8) as u8, number as u8)
}

/// A station's route to an address that is on no common network or must not be reached directly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Route {
    /// The station.
    pub from: usize,
    /// Destination address.
    pub to: Ipv4Addr,
    /// Address of the neighbour that forwards the packets.
    pub via: Ipv4Addr,
}

/// Returns the routes of a scenario's chains, in both directions: from each station to all stations
/// that are at least two hops away.
pub fn routes(scenario: &Scenario) -> Vec<Route> {
    let reversed = |chain: &Vec<usize>| chain.iter().rev().copied().collect();
    let both: Vec<Vec<usize>> =
        scenario.routes.iter().flat_map(|chain| [chain.clone(), reversed(chain)]).collect();
    let mut routes = Vec::new();
    for chain in &both {
        for (place, pair) in chain.windows(2).enumerate() {
            let [from, next] = [pair[0], pair[1]];
            let Some(network) = scenario.common_network(from, next) else { continue };
            let via = address(network, next);
            for &far in chain.iter().skip(place + 2) {
                let theirs = scenario.stations[far].networks.iter();
                routes.extend(theirs.map(|network| Route {
                    from,
                    to: address(*network, far),
                    via,
                }));
            }
        }
    }
    // Chains may share a section; a check has ensured that their routes agree there.
    routes.sort();
    routes.dedup();
    routes
}

/// Returns the address by which a station reaches another: the end of its route, or the address on
/// a common network.
pub fn reached_by(scenario: &Scenario, from: usize, to: usize) -> Option<Ipv4Addr> {
    let path = scenario.path(from, to)?;
    let last_hop = *path.get(path.len().checked_sub(2)?)?;
    Some(address(scenario.common_network(last_hop, to)?, to))
}

/// One path between two stations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link {
    /// Addresses of the first and of the second station.
    pub ends: [Ipv4Addr; 2],
    /// The network by which the first station sends, as an index into its networks; `None` leaves
    /// the choice to its routes.
    pub by: Option<usize>,
    /// The network of the link; `None` if it follows routes.
    pub network: Option<usize>,
}

/// Returns the links of Tautline between two stations: one if a route connects them, otherwise one
/// for each common network.
pub fn links(scenario: &Scenario, a: usize, b: usize) -> Vec<Link> {
    if scenario.path(a, b).is_some_and(|path| path.len() > 2) {
        let ends = reached_by(scenario, b, a).zip(reached_by(scenario, a, b));
        let link = |(a, b)| Link { ends: [a, b], by: None, network: None };
        return ends.map(link).into_iter().collect();
    }
    let here = scenario.stations[a].networks.iter().enumerate();
    let shared = here.filter(|(_, network)| scenario.stations[b].networks.contains(network));
    let link = |(index, network): (usize, &usize)| Link {
        ends: [a, b].map(|station| address(*network, station)),
        by: Some(index),
        network: Some(*network),
    };
    shared.map(link).collect()
}

/// Adds a scenario's networks to a medium, in the scenario's order.
pub fn add_networks<P: Clone>(scenario: &Scenario, medium: &mut Medium<P>) {
    for network in &scenario.networks {
        medium.add_network(network.kind.clone());
    }
}

/// Returns the motion delayed by `offset`.
pub fn later(motion: &Motion, offset: Nanos) -> Motion {
    let waypoints = motion.waypoints.iter().map(|(at, place)| (at + offset, *place));
    Motion { waypoints: waypoints.collect() }
}

/// Returns all changes of a scenario that begins at `offset`, in order of time.
pub fn changes(scenario: &Scenario, offset: Nanos) -> Vec<(Nanos, Change)> {
    let mut changes = Vec::new();
    for event in &scenario.events {
        let at = event.at + offset;
        match event.happening.clone() {
            Happening::Outage { outage, until } => {
                changes.push((at, Change::Outage(outage, true)));
                changes.push((until + offset, Change::Outage(outage, false)));
            }
            Happening::Interference { network, interference: mut what } => {
                (what.from, what.until) = (what.from + offset, what.until + offset);
                changes.push((at, Change::Interference(NetworkId(network), what)));
            }
            Happening::Rate { network, bps } => {
                changes.push((at, Change::Rate(NetworkId(network), bps)));
            }
        }
    }
    changes.sort_by_key(|(at, _)| *at);
    without_inner_outages(changes)
}

/// Merges equal outages that overlap: the merged outage begins with the first and ends with the last of
/// them.
fn without_inner_outages(mut changes: Vec<(Nanos, Change)>) -> Vec<(Nanos, Change)> {
    let mut open: BTreeMap<Outage, u32> = BTreeMap::new();
    changes.retain(|(_, change)| {
        let Change::Outage(outage, begins) = change else { return true };
        let count = open.entry(*outage).or_default();
        *count = if *begins { *count + 1 } else { count.saturating_sub(1) };
        *count == u32::from(*begins)
    });
    changes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_of_overlapping_chains_are_unique() {
        let text = "about: x\nduration: 1s\nnetworks: { air: { wifi: { rate: 6Mbps } } }\n\
                    stations:\n  a: { networks: [air] }\n  b: { networks: [air] }\n  \
                    c: { networks: [air] }\n  d: { networks: [air] }\n\
                    routes:\n  - [a, b, c]\n  - [a, b, c, d]\n";
        let scenario = crate::scenario::parse("x", text, std::path::Path::new(".")).unwrap();
        let routes = routes(&scenario);
        let a_to_c = routes.iter().filter(|r| r.from == 0 && r.to == address(0, 2)).count();
        assert_eq!((a_to_c, routes.len()), (1, 6), "{routes:?}");
        assert_eq!(reached_by(&scenario, 0, 3), Some(address(0, 3)));
    }
}
