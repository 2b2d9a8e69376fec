// SPDX-License-Identifier: Apache-2.0
//! Checks of routes.

use super::super::file::File;
use super::super::reader::{At, Place};
use super::super::value::{List, Reference};
use super::super::{MAX_ROUTES, Station};
use super::Check;
use std::collections::HashMap;

/// Next station, by pair of sender and receiver.
type NextHops = HashMap<(usize, usize), usize>;

/// Returns the first network on which both stations have a radio.
pub fn common_network(stations: &[Station], one: usize, other: usize) -> Option<usize> {
    shared_networks(stations, one, other).next()
}

/// Returns all networks on which both stations have a radio, in the order of the first station.
pub fn common_networks(stations: &[Station], one: usize, other: usize) -> Vec<usize> {
    shared_networks(stations, one, other).collect()
}

fn shared_networks(
    stations: &[Station],
    one: usize,
    other: usize,
) -> impl Iterator<Item = usize> + '_ {
    let of = |station: usize| stations.get(station).map_or(&[][..], |it| &it.networks);
    let (here, there) = (of(one), of(other));
    here.iter().copied().filter(move |network| there.contains(network))
}

/// Returns the stations from `from` to `to`, both included.
pub fn path(
    routes: &[Vec<usize>],
    stations: &[Station],
    from: usize,
    to: usize,
) -> Option<Vec<usize>> {
    let part = |route: &Vec<usize>| {
        let place = |station| route.iter().position(|&s| s == station);
        match (place(from)?, place(to)?) {
            (first, last) if first < last => Some(route[first..=last].to_vec()),
            (last, first) => Some(route[first..=last].iter().rev().copied().collect()),
        }
    };
    let direct = || common_network(stations, from, to).map(|_| vec![from, to]);
    routes.iter().find_map(part).or_else(direct)
}

impl Check {
    pub(super) fn routes(&mut self, file: &File) {
        if let Some(beyond) = file.routes.0.get(MAX_ROUTES) {
            self.problems.limit_count(MAX_ROUTES, file.routes.0.len(), "routes", &beyond.place);
            return;
        }
        let mut next_hops = NextHops::new();
        for route in &file.routes.0 {
            if let Some(chain) = self.chain(route) {
                self.agrees(&chain, &mut next_hops, &route.place);
                self.done.routes.push(chain);
            }
            if self.problems.are_enough() {
                return;
            }
        }
    }

    /// Records a problem if relaying is configured without routes.
    pub(super) fn relay(&mut self, file: &File) {
        let relay = file.tautline.as_ref().and_then(|settings| settings.relay.as_ref());
        if let Some(relay) = relay.filter(|relay| relay.value.0 && file.routes.0.is_empty()) {
            let allowed = "false, or 'routes' along which nodes relay packets";
            self.problems.push(relay.place.problem(allowed));
        }
    }

    fn chain(&mut self, route: &At<List<Reference>>) -> Option<Vec<usize>> {
        let mut chain: Vec<usize> = Vec::new();
        for At { place, value } in &route.value.0 {
            let station = self.station(&value.0, place)?;
            if chain.contains(&station) {
                return self.problems.refuse(place.problem("each station of a route once"));
            }
            let is_reachable =
                |&last: &usize| common_network(&self.done.stations, last, station).is_some();
            if let Some(last) = chain.last().filter(|last| !is_reachable(last)) {
                let last = &self.done.stations[*last].name;
                let allowed = format!("a station that shares a network with '{last}'");
                return self.problems.refuse(place.problem(allowed));
            }
            chain.push(station);
        }
        if chain.len() < 3 {
            let found = format!("{} of them", chain.len());
            return self
                .problems
                .refuse(route.place.other(found, "a chain of at least three stations"));
        }
        Some(chain)
    }

    /// Records a problem if an earlier route has another path between the same two stations.
    fn agrees(&mut self, chain: &[usize], next_hops: &mut NextHops, place: &Place) {
        let back: Vec<usize> = chain.iter().rev().copied().collect();
        let differs =
            first_difference(chain, next_hops).or_else(|| first_difference(&back, next_hops));
        if let Some(stations) = differs {
            let [from, to, next, other] = stations.map(|s| self.done.stations[s].name.as_str());
            let found = format!(
                "a path from '{from}' to '{to}' via '{next}', where an earlier route goes via '{other}'"
            );
            self.problems.push(place.other(found, "one path between two stations"));
        }
    }

    /// Returns `Some` if there is a path; otherwise records a problem.
    pub(super) fn has_path(&mut self, from: usize, to: usize, place: &Place) -> Option<()> {
        let way = path(&self.done.routes, &self.done.stations, from, to);
        if way.is_none() {
            let name = |station: usize| &self.done.stations[station].name;
            let found = format!("no path from '{}' to '{}'", name(from), name(to));
            let allowed = "two stations with a common network, or both on one of the routes";
            self.problems.push(place.other(found, allowed));
        }
        way.map(|_| ())
    }
}

/// Adds the next hops of `way`. Returns the first pair of stations with another next hop already,
/// together with both next hops.
fn first_difference(way: &[usize], next_hops: &mut NextHops) -> Option<[usize; 4]> {
    for (first, hop) in way.windows(2).enumerate() {
        let (from, next) = (hop[0], hop[1]);
        for &to in &way[first + 1..] {
            let other = *next_hops.entry((from, to)).or_insert(next);
            if other != next {
                return Some([from, to, next, other]);
            }
        }
    }
    None
}
