// SPDX-License-Identifier: Apache-2.0
//! Checks of flows, with their patterns expanded, and of control loops.

use super::super::file::{self, File, default};
use super::super::reader::{At, Place, one_of};
use super::super::value::{List, Or, Reference, value_or};
use super::super::{ControlLoop, Flow, MAX_CONTROL_LOOPS, MAX_FLOWS, Over, Pace};
use super::Check;
use std::collections::HashSet;
use tautline::config::yaml::quoted_text;
use tautline_proto::LinkPolicy;

/// One end of a flow.
enum End {
    /// Name of a station.
    One(usize),
    /// Stations that match a pattern.
    Each(Vec<usize>),
}

impl Check {
    pub(super) fn flows(&mut self, file: &File) {
        let mut names = HashSet::new();
        for flow in &file.flows.0 {
            for (name, from, to) in self.expand_flow(&flow.value) {
                if self.has_path(from, to, &flow.value.to.place).is_none() {
                    break;
                }
                if !names.insert(name.clone()) {
                    let found = format!("a second flow {}", quoted_text(&name));
                    self.problems.push(flow.value.name.place.other(found, "each name once"));
                    break;
                }
                let Some([only_links, avoid_links]) = self.links(&flow.value, from, to) else {
                    break;
                };
                let flow = one_flow(&flow.value, name, from, to);
                self.done.flows.push(Flow { only_links, avoid_links, ..flow });
            }
            self.check_transport_keys(&flow.value);
            if let Some(start) = &flow.value.start {
                self.problems.before_the_end(start.value.0, &start.place, &file.duration);
            }
            let fits =
                self.problems.limit_count(MAX_FLOWS, self.done.flows.len(), "flows", &flow.place);
            if !fits || self.problems.are_enough() {
                return;
            }
        }
    }

    /// Records a problem for each key that the flow's transport does not support.
    fn check_transport_keys(&mut self, flow: &file::Flow) {
        let (over, every) = (word(flow.over.as_ref()), &flow.every.place);
        let saturates = matches!(flow.every.value, Or::Word(_));
        if saturates && over == Over::Tautline {
            let allowed = "a time between two messages, or over: udp or tcp";
            self.problems.push(every.other("saturate", allowed));
        }
        if over != Over::Tcp {
            let only_tcp = |it: &At<_>| it.place.problem("nothing, or over: tcp in the same flow");
            self.problems.extend(flow.congestion.as_ref().map(only_tcp));
            return;
        }
        if !saturates {
            self.problems.push(every.problem("'saturate': TCP always has more to send"));
        }
        let echo = flow.echo.as_ref().filter(|echo| echo.value.0);
        self.problems.extend(echo.map(|it| it.place.problem("false, or over: tautline or udp")));
        let real = |it: &At<_>| {
            it.place.problem(
                "tautline or udp in virtual time: TCP is the kernel's own (tautline-lab air)",
            )
        };
        self.done.real_time_only.extend(flow.over.as_ref().map(real));
    }

    /// Returns the networks of `only_links` and `avoid_links`.
    fn links(&mut self, flow: &file::Flow, from: usize, to: usize) -> Option<[Vec<usize>; 2]> {
        let [only, avoid] = [&flow.only_links, &flow.avoid_links]
            .map(|names| self.named_links(names, (from, to), word(flow.over.as_ref())));
        Some([only?, avoid?])
    }

    fn named_links(
        &mut self,
        List(names): &List<Reference>,
        (from, to): (usize, usize),
        over: Over,
    ) -> Option<Vec<usize>> {
        let Some(first) = names.first() else { return Some(Vec::new()) };
        if over != Over::Tautline {
            return self
                .problems
                .refuse(first.place.problem("nothing, or over: tautline in the same flow"));
        }
        if super::path(&self.done.routes, &self.done.stations, from, to)?.len() > 2 {
            let allowed = "nothing: one link follows the route between the stations";
            return self.problems.refuse(first.place.problem(allowed));
        }
        let shared = super::common_networks(&self.done.stations, from, to);
        let found = names.iter().map(|name| self.link(name, &shared, (from, to)));
        found.collect::<Vec<_>>().into_iter().collect()
    }

    /// Returns the network of that name if the two stations share it.
    fn link(
        &mut self,
        At { place, value: Reference(name) }: &At<Reference>,
        shared: &[usize],
        (from, to): (usize, usize),
    ) -> Option<usize> {
        let network = |index: &usize| self.done.networks[*index].name.as_str();
        let known = shared.iter().copied().find(|index| network(index) == name);
        if known.is_some() {
            return known;
        }
        let station = |number: usize| quoted_text(&self.done.stations[number].name);
        let networks = one_of(shared.iter().map(network), name);
        let allowed =
            format!("networks that {} and {} share: {networks}", station(from), station(to));
        self.problems
            .refuse(place.other(format!("the unknown link {}", quoted_text(name)), allowed))
    }

    /// Returns name, sender and receiver of each flow that `flow` expands to.
    fn expand_flow(&mut self, flow: &file::Flow) -> Vec<(String, usize, usize)> {
        let (Some(from), Some(to)) = (self.flow_end(&flow.from), self.flow_end(&flow.to)) else {
            return Vec::new();
        };
        let name =
            |station: usize| format!("{}-{}", flow.name.value.0, self.done.stations[station].name);
        match (from, to) {
            (End::One(from), End::One(to)) if from == to => {
                self.problems.push(flow.to.place.problem("another station than the sender"));
                Vec::new()
            }
            (End::One(from), End::One(to)) => vec![(flow.name.value.0.clone(), from, to)],
            (End::Each(from), End::One(to)) => {
                from.into_iter().filter(|&f| f != to).map(|f| (name(f), f, to)).collect()
            }
            (End::One(from), End::Each(to)) => {
                to.into_iter().filter(|&t| t != from).map(|t| (name(t), from, t)).collect()
            }
            (End::Each(from), End::Each(to)) => {
                let pairs: Vec<_> = from.iter().zip(&to).map(|(&f, &t)| (name(f), f, t)).collect();
                if from.len() != to.len() || pairs.iter().any(|(_, f, t)| f == t) {
                    self.unpaired(flow, from.len(), to.len());
                    return Vec::new();
                }
                pairs
            }
        }
    }

    fn unpaired(&mut self, flow: &file::Flow, from: usize, to: usize) {
        let found = format!("patterns that match {from} and {to} stations");
        let allowed = "as many other stations as 'from' matches, to make pairs; or one station";
        self.problems.push(flow.to.place.other(found, allowed));
    }

    fn flow_end(&mut self, name: &At<Reference>) -> Option<End> {
        let At { place, value: Reference(name) } = name;
        if !name.contains('*') {
            return self.station(name, place).map(End::One);
        }
        let stations = self.done.stations.iter().enumerate();
        let matching: Vec<usize> =
            stations.filter(|(_, s)| matches(name, &s.name)).map(|(number, _)| number).collect();
        if matching.is_empty() {
            let names = self.done.stations.iter().map(|station| station.name.as_str());
            let found = format!("the pattern {}, which matches no station", quoted_text(name));
            return self.problems.refuse(place.other(found, one_of(names, name)));
        }
        Some(End::Each(matching))
    }

    pub(super) fn control_loops(&mut self, file: &File) {
        let loops = &file.control_loops.0;
        if let Some(beyond) = loops.get(MAX_CONTROL_LOOPS) {
            self.problems.limit_count(
                MAX_CONTROL_LOOPS,
                loops.len(),
                "control loops",
                &beyond.place,
            );
            return;
        }
        for At { value, .. } in loops {
            let ends = self.ends_of_loop(value);
            let converted = ends.map(|(plant, controller)| ControlLoop {
                plant,
                controller,
                period: value.period.0,
                over: word(value.over.as_ref()),
                priority: value_or(value.priority.clone(), default::PRIORITY).0 as u8,
                model: value.plant_model,
            });
            self.done.control_loops.extend(converted);
        }
    }

    fn ends_of_loop(&mut self, raw: &file::ControlLoop) -> Option<(usize, usize)> {
        let plant = self.station(&raw.plant.value.0, &raw.plant.place);
        let place: &Place = &raw.controller.place;
        let (plant, controller) = (plant?, self.station(&raw.controller.value.0, place)?);
        if plant == controller {
            return self.problems.refuse(place.problem("another station than the plant's"));
        }
        self.has_path(plant, controller, place)?;
        let tcp = raw.over.as_ref().filter(|over| over.value == Over::Tcp);
        self.problems.extend(tcp.map(|over| over.place.problem("tautline or udp")));
        Some((plant, controller))
    }
}

/// Returns a word of the file, or its default.
fn word<T: Copy + Default>(written: Option<&At<T>>) -> T {
    written.map_or_else(T::default, |written| written.value)
}

fn one_flow(raw: &file::Flow, name: String, from: usize, to: usize) -> Flow {
    let priority = value_or(raw.priority.clone(), default::PRIORITY).0 as u8;
    let copies = value_or(raw.copies.clone(), default::COPIES).0 as u8;
    Flow {
        name,
        from,
        to,
        bytes: raw.size.0,
        pace: match &raw.every.value {
            Or::Word(_) => Pace::Saturate,
            Or::Value(time) => Pace::Every(time.0),
        },
        over: word(raw.over.as_ref()),
        priority,
        links: raw
            .links
            .map_or_else(|| LinkPolicy::of_priority(priority), |word| word.policy(copies)),
        only_links: Vec::new(),
        avoid_links: Vec::new(),
        repair: value_or(raw.repair.clone(), default::REPAIR).0,
        fec: raw.fec.as_ref().map(|percent| percent.0 as u8),
        order: raw.order.map(file::OrderWord::order).unwrap_or_default(),
        keep_last: raw.keep_last.as_ref().map(|count| count.0 as u32),
        lifespan: raw.lifespan.as_ref().map(|time| time.0),
        congestion: word(raw.congestion.as_ref()),
        dscp: value_or(raw.dscp.clone(), default::DSCP).0 as u8,
        count: raw.count.as_ref().map(|count| count.0),
        start: raw.start.as_ref().map_or(0, |start| start.value.0),
        echo: raw.echo.as_ref().is_some_and(|echo| echo.value.0),
    }
}

/// Whether `name` matches `pattern`, in which `*` is any run of characters.
fn matches(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn a_star_matches_any_characters() {
        for (pattern, name) in [
            ("worker*", "worker12"),
            ("*", "base"),
            ("*e", "base"),
            ("r*b*t", "robot"),
            ("w*", "w"),
        ] {
            assert!(matches(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in
            [("worker*", "robot"), ("*x", "base"), ("r*b*t*x", "robot"), ("ab*ba", "aba")]
        {
            assert!(!matches(pattern, name), "{pattern} {name}");
        }
    }
}
