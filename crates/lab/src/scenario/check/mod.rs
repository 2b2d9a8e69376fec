// SPDX-License-Identifier: Apache-2.0
//! Conversion of the file as written to a valid scenario.

mod capacity;
mod events;
mod networks;
mod routes;
mod stations;
mod trace;
mod traffic;

pub use capacity::opportunities;

pub use routes::{common_network, common_networks, path};

use super::file::{File, default};
use super::reader::{At, Place, one_of};
use super::value::{Reference, Whole, value_or};
use super::{Network, Scenario, Station, Tautline};
use std::path::Path;
use tautline::config::yaml::quoted_text;
use tautline::config::{MAX_PROBLEMS, Problem};
use tautline_medium::Nanos;

/// Returns the scenario that `file` describes; the error contains all problems, at least one.
pub fn scenario(name: &str, file: &File, folder: &Path) -> Result<Scenario, Vec<Problem>> {
    let mut check = Check::default();
    check.names_of_networks(file);
    check.stations(file, folder);
    // Later checks refer to stations and networks; missing ones would cause misleading errors.
    check.problems.none_or_all()?;
    check.networks(file, folder);
    check.routes(file);
    check.relay(file);
    check.problems.none_or_all()?;
    check.flows(file);
    check.control_loops(file);
    check.events(file);
    check.problems.none_or_all()?;
    Ok(Scenario {
        name: name.into(),
        about: file.about.0.clone(),
        source: file.source.as_ref().map(|line| line.0.clone()),
        duration: file.duration.value.0,
        tautline: tautline(file),
        ..check.done
    })
}

fn tautline(file: &File) -> Tautline {
    let settings = file.tautline.as_ref();
    let in_flight: Whole<1, 64> =
        value_or(settings.and_then(|t| t.in_flight.clone()), default::IN_FLIGHT);
    Tautline {
        fixed_at_network_rate: false,
        tuning: tautline_proto::rate::Tuning::default(),
        in_flight: in_flight.0 as u32,
        rate: value_or(settings.and_then(|t| t.rate.clone()), default::PACING).0,
        dscp: settings.and_then(|t| t.dscp.as_ref()).is_none_or(|dscp| dscp.value.0),
        relay: settings.and_then(|t| t.relay.as_ref()).is_some_and(|relay| relay.value.0),
    }
}

/// The valid part of the scenario so far, and the problems.
#[derive(Default)]
struct Check {
    done: Scenario,
    problems: Problems,
}

impl Check {
    fn station(&mut self, name: &str, place: &Place) -> Option<usize> {
        let names = self.done.stations.iter().map(|station: &Station| station.name.as_str());
        let found = index(names, "station", name, place);
        found.map_err(|problem| self.problems.push(problem)).ok()
    }

    fn network(&mut self, name: &str, place: &Place) -> Option<usize> {
        let names = self.done.networks.iter().map(|network: &Network| network.name.as_str());
        let found = index(names, "network", name, place);
        found.map_err(|problem| self.problems.push(problem)).ok()
    }
}

/// The problems found so far.
#[derive(Default)]
struct Problems(Vec<Problem>);

impl Extend<Problem> for Problems {
    fn extend<I: IntoIterator<Item = Problem>>(&mut self, problems: I) {
        self.0.extend(problems);
    }
}

impl Problems {
    fn push(&mut self, problem: Problem) {
        self.0.push(problem);
    }

    /// Returns the problems found so far, if there are any.
    fn none_or_all(&mut self) -> Result<(), Vec<Problem>> {
        match std::mem::take(&mut self.0) {
            none if none.is_empty() => Ok(()),
            problems => Err(problems),
        }
    }

    /// Records a problem; returns `None` in place of a value.
    fn refuse<T>(&mut self, problem: Problem) -> Option<T> {
        self.push(problem);
        None
    }

    /// Reads a file that the scenario names; records a problem if that fails.
    fn named_file<T>(
        &mut self,
        file: &At<Reference>,
        folder: &Path,
        read: impl FnOnce(&Path) -> Result<T, trace::Wrong>,
    ) -> Option<T> {
        let found = read(&folder.join(&file.value.0));
        found.map_err(|wrong| self.push(file.place.other(wrong.found, wrong.allowed))).ok()
    }

    /// Whether the limit of shown problems is reached.
    fn are_enough(&self) -> bool {
        self.0.len() >= MAX_PROBLEMS
    }

    /// Records a problem if `count` exceeds `limit`.
    fn limit_count(&mut self, limit: usize, count: usize, what: &str, place: &Place) -> bool {
        if count > limit {
            let found = format!("more than {limit} {what}");
            self.push(place.other(found, format!("at most {limit}")));
        }
        count <= limit
    }

    /// Records a problem if `time` is not before the scenario's end.
    fn before_the_end(&mut self, time: Nanos, place: &Place, end: &At<super::value::Span>) {
        if time >= end.value.0 {
            let allowed = format!("a time before the end, which is at {}", end.place.found);
            self.push(place.problem(allowed));
        }
    }
}

fn index<'n>(
    names: impl Iterator<Item = &'n str> + Clone,
    what: &str,
    name: &str,
    place: &Place,
) -> Result<usize, Problem> {
    names.clone().position(|known| known == name).ok_or_else(|| {
        let found = format!("the unknown {what} {}", quoted_text(name));
        place.other(found, one_of(names, name))
    })
}
