// SPDX-License-Identifier: Apache-2.0
//! Checks of stations: expansion, networks and positions.

use super::super::file::{self, File, default};
use super::super::reader::{At, Place};
use super::super::value::{FromText, Name, Point, value_or};
use super::super::{MAX_STATIONS, MAX_WAYPOINTS, Station};
use super::{Check, trace};
use std::f64::consts::TAU;
use std::path::Path;
use tautline_medium::{Motion, Nanos};

impl Check {
    pub(super) fn stations(&mut self, file: &File, folder: &Path) {
        let At { place, value } = &file.stations;
        for (name, station) in &value.0 {
            self.station_and_copies(name, station, folder);
            if !self.problems.limit_count(MAX_STATIONS, self.done.stations.len(), "stations", place)
            {
                return;
            }
        }
        if self.done.stations.len() < 2 && self.problems.0.is_empty() {
            self.problems.push(place.other("fewer than two stations", "at least two"));
        }
    }

    fn station_and_copies(&mut self, name: &Name, raw: &At<file::Station>, folder: &Path) {
        let count = raw.value.count.as_ref().map(|count| count.value.0 as usize);
        let networks = self.networks_of(raw);
        let motions = self.motions(raw, count.unwrap_or(1), folder);
        let (Some(networks), Some(motions)) = (networks, motions) else {
            self.stand_in(name, count);
            return;
        };
        for (number, motion) in motions.into_iter().enumerate() {
            let name = numbered_name(name, count, number);
            self.unused_name(&name, &raw.place);
            self.done.stations.push(Station {
                name,
                networks: networks.clone(),
                motion,
                queue_packets: value_or(raw.value.queue.clone(), default::STATION_QUEUE).0 as usize,
            });
        }
    }

    /// Adds a placeholder, so that an invalid station is not also reported as unknown or missing.
    fn stand_in(&mut self, name: &Name, count: Option<usize>) {
        let motion = Motion { waypoints: Vec::new() };
        self.done.stations.push(Station {
            name: numbered_name(name, count, 0),
            networks: Vec::new(),
            motion,
            queue_packets: 0,
        });
    }

    fn unused_name(&mut self, name: &str, place: &Place) {
        if self.done.stations.iter().any(|station| station.name == name) {
            let found = format!("a second station '{name}'");
            self.problems.push(place.other(found, "each name once, names from 'count' included"));
        }
        if let Err(allowed) = Name::from_text(name) {
            self.problems.push(place.other(format!("the name '{name}'"), allowed));
        }
    }

    fn networks_of(&mut self, raw: &At<file::Station>) -> Option<Vec<usize>> {
        let mut networks = Vec::new();
        for At { place, value } in &raw.value.networks.0 {
            let network = self.network(&value.0, place)?;
            if networks.contains(&network) {
                return self.problems.refuse(place.problem("each network once"));
            }
            networks.push(network);
        }
        if networks.is_empty() {
            return self
                .problems
                .refuse(raw.place.below("networks").problem("at least one network"));
        }
        Some(networks)
    }

    /// Returns the motion of each of `count` stations; `None` if the keys are invalid.
    fn motions(
        &mut self,
        raw: &At<file::Station>,
        count: usize,
        folder: &Path,
    ) -> Option<Vec<Motion>> {
        let station = &raw.value;
        self.at_most_one_place(station)?;
        if let Some(around) = &station.around {
            return self.circle(station, around, count);
        }
        if let Some(radius) = &station.radius {
            return self
                .problems
                .refuse(radius.place.problem("nothing, unless 'around' gives the centre"));
        }
        let waypoints = match (&station.at, &station.moves, &station.trace) {
            (Some(at), _, _) => vec![(0, at.value.0)],
            (_, Some(moves), _) => self.moves(moves)?,
            (_, _, Some(file)) => self.problems.named_file(file, folder, trace::read)?,
            _ => vec![(0, [0.0; 3])],
        };
        Some(vec![Motion { waypoints }; count])
    }

    fn at_most_one_place(&mut self, station: &file::Station) -> Option<()> {
        let places = [
            station.at.as_ref().map(|at| &at.place),
            station.around.as_ref().map(|around| &around.place),
            station.moves.as_ref().map(|moves| &moves.place),
            station.trace.as_ref().map(|trace| &trace.place),
        ];
        match places.into_iter().flatten().nth(1) {
            None => Some(()),
            Some(second) => {
                let allowed = "one of at, around, moves and trace";
                self.problems.refuse(second.other("a second key for its position", allowed))
            }
        }
    }

    fn circle(
        &mut self,
        station: &file::Station,
        around: &At<Point>,
        count: usize,
    ) -> Option<Vec<Motion>> {
        let Some(radius) = &station.radius else {
            return self
                .problems
                .refuse(around.place.other("no 'radius'", "'around' with 'radius', in metres"));
        };
        if station.count.is_none() {
            let allowed = "'around' with 'count'; 'at' for one station";
            return self.problems.refuse(around.place.other("no 'count'", allowed));
        }
        let [x, y, z] = around.value.0;
        let place = |number: usize| {
            let angle = TAU * number as f64 / count as f64;
            let radius = radius.value.0;
            Motion { waypoints: vec![(0, [x + radius * angle.cos(), y + radius * angle.sin(), z])] }
        };
        Some((0..count).map(place).collect())
    }

    fn moves(
        &mut self,
        moves: &At<super::super::value::List<file::Waypoint>>,
    ) -> Option<Vec<(Nanos, [f64; 3])>> {
        let list = &moves.value.0;
        if list.is_empty() {
            return self.problems.refuse(moves.place.problem("at least one waypoint"));
        }
        if !self.problems.limit_count(MAX_WAYPOINTS, list.len(), "waypoints", &moves.place) {
            return None;
        }
        for pair in list.windows(2) {
            let (before, after) = (&pair[0].value.at, &pair[1].value.at);
            if after.value.0 <= before.value.0 {
                let allowed =
                    format!("a time after the waypoint before it, {}", before.place.found);
                return self.problems.refuse(after.place.problem(allowed));
            }
        }
        Some(list.iter().map(|waypoint| (waypoint.value.at.value.0, waypoint.value.to.0)).collect())
    }

    /// Records a problem for each station on the network `number` without a position.
    pub(super) fn check_positions(&mut self, number: usize, file: &File) {
        let network = &self.done.networks[number].name;
        for (_, At { place, value }) in &file.stations.value.0 {
            let is_on_it = value.networks.0.iter().any(|name| &name.value.0 == network);
            let is_somewhere = value.at.is_some()
                || value.around.is_some()
                || value.moves.is_some()
                || value.trace.is_some();
            if is_on_it && !is_somewhere {
                let allowed = format!(
                    "a position (at, around, moves or trace), since '{network}' has path_loss"
                );
                self.problems.push(place.below("at").problem(allowed));
            }
        }
    }
}

fn numbered_name(name: &Name, count: Option<usize>, number: usize) -> String {
    if count.is_some() { format!("{}{}", name.0, number + 1) } else { name.0.clone() }
}
