// SPDX-License-Identifier: Apache-2.0
//! Checks of events.

use super::super::file::{self, File, Outage};
use super::super::reader::{At, one_of};
use super::super::value::Reference;
use super::super::{Event, Happening, MAX_EVENTS, NetworkKind};
use super::Check;
use super::networks::phy_rate;
use tautline_medium::{self as medium, Nanos, NetworkId, RateControl, StationId};

const ONE_HAPPENING: &str = "exactly one of outage, interference and rate";

impl Check {
    pub(super) fn events(&mut self, file: &File) {
        if let Some(beyond) = file.events.0.get(MAX_EVENTS) {
            self.problems.limit_count(MAX_EVENTS, file.events.0.len(), "events", &beyond.place);
            return;
        }
        for event in &file.events.0 {
            let at = &event.value.at;
            self.problems.before_the_end(at.value.0, &at.place, &file.duration);
            let event = self.happening(event).map(|happening| Event { at: at.value.0, happening });
            self.done.events.extend(event);
        }
        self.done.events.sort_by_key(|event| event.at);
    }

    fn happening(&mut self, event: &At<file::Event>) -> Option<Happening> {
        let At { place, value } = event;
        if let Some(network) = value.network.as_ref().filter(|_| value.outage.is_none()) {
            return self
                .problems
                .refuse(network.place.problem("nothing, or an outage in the same event"));
        }
        match (&value.outage, &value.interference, &value.rate) {
            (Some(outage), None, None) => {
                let until = self.end_of_event(event)?;
                let outage = self.outage(outage, value.network.as_ref())?;
                Some(Happening::Outage { outage, until })
            }
            (None, Some(interference), None) => {
                let until = self.end_of_event(event)?;
                self.interference(interference, value.at.value.0, until)
            }
            (None, None, Some(rate)) => {
                if let Some(lasts) = &value.lasts {
                    return self
                        .problems
                        .refuse(lasts.place.problem("nothing: a new rate lasts to the end"));
                }
                self.new_rate(rate)
            }
            (None, None, None) => self.problems.refuse(place.other("none of them", ONE_HAPPENING)),
            _ => self.problems.refuse(place.other("more than one of them", ONE_HAPPENING)),
        }
    }

    fn end_of_event(&mut self, event: &At<file::Event>) -> Option<Nanos> {
        let Some(lasts) = &event.value.lasts else {
            let problem = event.place.below("for").problem("a duration, such as 5s");
            return self.problems.refuse(problem);
        };
        Some(event.value.at.value.0 + lasts.value.0)
    }

    fn outage(
        &mut self,
        outage: &At<Outage>,
        network: Option<&At<Reference>>,
    ) -> Option<medium::Outage> {
        let (outage, networks) = self.outage_between(outage)?;
        let Some(At { place, value: Reference(name) }) = network else { return Some(outage) };
        let names = networks.iter().map(|it| self.done.networks[*it].name.as_str());
        match names.clone().position(|known| known == name) {
            Some(index) => Some(outage.on(NetworkId(networks[index]))),
            None => {
                let allowed = format!("a network of the outage: {}", one_of(names, name));
                self.problems.refuse(place.problem(allowed))
            }
        }
    }

    /// Returns the outage on all networks, and the networks that it concerns.
    fn outage_between(&mut self, outage: &At<Outage>) -> Option<(medium::Outage, Vec<usize>)> {
        let At { place, value } = outage;
        match value {
            Outage::Station(name) => {
                let station = self.station(name, place)?;
                let networks = self.done.stations[station].networks.clone();
                Some((medium::Outage::at(StationId(station)), networks))
            }
            Outage::Pair([one, other]) => {
                let pair = [self.station(one, place)?, self.station(other, place)?];
                let networks = super::common_networks(&self.done.stations, pair[0], pair[1]);
                if networks.is_empty() || one == other {
                    return self
                        .problems
                        .refuse(place.problem("two stations that share a network"));
                }
                let [a, b] = pair.map(StationId);
                Some((medium::Outage::between(a, b).ordered(), networks))
            }
        }
    }

    fn interference(
        &mut self,
        raw: &file::Interference,
        from: Nanos,
        until: Nanos,
    ) -> Option<Happening> {
        let network = self.network(&raw.network.value.0, &raw.network.place)?;
        if !matches!(self.done.networks[network].kind, NetworkKind::Wifi(_)) {
            self.problems
                .push(raw.network.place.problem("a wifi network; a pipe has no interference"));
            return None;
        }
        let interference = medium::Interference {
            burst: raw.burst.0,
            mean_pause: raw.pause.0,
            place: raw.at.0,
            from,
            until,
        };
        Some(Happening::Interference { network, interference })
    }

    fn new_rate(&mut self, raw: &file::NewRate) -> Option<Happening> {
        let network = self.network(&raw.network.value.0, &raw.network.place)?;
        let bps = raw.to.value.0;
        let allowed = match &self.done.networks[network].kind {
            NetworkKind::Pipe(pipe) if pipe.trace.is_some() => Some("a network without a trace"),
            NetworkKind::Wifi(wifi) if wifi.rate == RateControl::Adaptive => {
                Some("a pipe, or a wifi network with a fixed rate")
            }
            NetworkKind::Wifi(wifi) => {
                phy_rate(&mut self.problems, wifi.phy, bps, &raw.to.place)?;
                None
            }
            _ => None,
        };
        if let Some(allowed) = allowed {
            return self.problems.refuse(raw.network.place.problem(allowed));
        }
        Some(Happening::Rate { network, bps })
    }
}
