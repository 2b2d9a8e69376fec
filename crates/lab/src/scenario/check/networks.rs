// SPDX-License-Identifier: Apache-2.0
//! Checks of networks, and conversion to the medium's types.

use super::super::file::{self, File, Loss, PathLoss, Pipe, Wifi, default};
use super::super::reader::{At, Place};
use super::super::value::{Or, Rate, value_or};
use super::super::{MAX_NETWORKS, Network, NetworkKind};
use super::{Check, Problems, capacity as recording};
use std::path::Path;
use tautline_medium::{
    self as medium, Aqm, PipeConfig, RateControl, Reordering, StationId, Trace, WifiConfig,
};

impl Check {
    /// Records only the names: stations need them, and an access point needs the stations.
    pub(super) fn names_of_networks(&mut self, file: &File) {
        let At { place, value } = &file.networks;
        self.problems.limit_count(MAX_NETWORKS, value.0.len(), "networks", place);
        if value.0.is_empty() {
            self.problems.push(place.other("nothing", "at least one network"));
        }
        let names = value.0.iter().map(|(name, _)| name.0.clone());
        // A placeholder that `networks` replaces.
        let none = || NetworkKind::Pipe(PipeConfig::default());
        self.done.networks = names.map(|name| Network { name, kind: none() }).collect();
    }

    pub(super) fn networks(&mut self, file: &File, folder: &Path) {
        for (number, (_, network)) in file.networks.value.0.iter().enumerate() {
            let kind = match &network.value {
                file::Network::Wifi(wifi) => self.wifi(number, wifi, file).map(NetworkKind::Wifi),
                file::Network::Pipe(pipe) => {
                    pipe_config(&mut self.problems, &network.place.below("pipe"), pipe, folder)
                        .map(NetworkKind::Pipe)
                }
            };
            if let Some(kind) = kind {
                self.done.networks[number].kind = kind;
            }
        }
    }

    fn wifi(&mut self, number: usize, wifi: &Wifi, file: &File) -> Option<WifiConfig> {
        let phy = wifi.phy.into();
        let rate = rate(&mut self.problems, phy, &wifi.rate);
        let loss = loss(&mut self.problems, wifi.loss.as_ref());
        let access_point = self.access_point(number, wifi);
        if wifi.path_loss.is_some() {
            self.check_positions(number, file);
        }
        Some(WifiConfig {
            phy,
            access: wifi.access.into(),
            rate: rate?,
            retries: value_or(wifi.retries.clone(), default::RETRIES).0 as u32,
            loss: loss?,
            trial: wifi.loss_per.into(),
            power_dbm: value_or(wifi.power, default::POWER).0,
            noise_dbm: value_or(wifi.noise, default::NOISE).0,
            carrier_sense_dbm: value_or(wifi.carrier_sense, default::CARRIER_SENSE).0,
            path_loss: wifi.path_loss.as_ref().map(path_loss),
            access_point: access_point?,
        })
    }

    /// Returns the access point, if any; `None` if it is invalid.
    fn access_point(&mut self, number: usize, wifi: &Wifi) -> Option<Option<StationId>> {
        let Some(At { place, value }) = &wifi.access_point else { return Some(None) };
        let station = self.station(&value.0, place)?;
        if !self.done.stations[station].networks.contains(&number) {
            return self.problems.refuse(place.problem(format!(
                "a station with '{}' among its networks",
                self.done.networks[number].name
            )));
        }
        Some(Some(StationId(station)))
    }
}

fn rate(
    problems: &mut Problems,
    phy: medium::Phy,
    rate: &At<Or<file::Adaptive, Rate>>,
) -> Option<RateControl> {
    match &rate.value {
        Or::Word(_) => Some(RateControl::Adaptive),
        Or::Value(Rate(bps)) => phy_rate(problems, phy, *bps, &rate.place).map(RateControl::Fixed),
    }
}

/// Returns `bps` if the phy has that rate.
pub(super) fn phy_rate(
    problems: &mut Problems,
    phy: medium::Phy,
    bps: u64,
    place: &Place,
) -> Option<u64> {
    if phy.rate_index(bps).is_some() {
        return Some(bps);
    }
    let name = match phy {
        medium::Phy::Ofdm => "ofdm",
        medium::Phy::Dsss => "dsss",
    };
    let all: Vec<String> =
        phy.rates().iter().map(|rate| format!("{}Mbps", rate.bps as f64 / 1e6)).collect();
    problems.refuse(place.problem(format!("a rate of {name}: {}", all.join(", "))))
}

fn pipe_config(
    problems: &mut Problems,
    at: &Place,
    pipe: &Pipe,
    folder: &Path,
) -> Option<PipeConfig> {
    let (rate_bps, trace) = capacity(problems, at, pipe, folder)?;
    let reordering = pipe
        .reorder
        .as_ref()
        .map(|reorder| Reordering { probability: reorder.share.0, delay: reorder.by.0 });
    Some(PipeConfig {
        rate_bps,
        trace,
        reordering: reordering.unwrap_or_default(),
        duplicates: pipe.duplicate.as_ref().map_or(0.0, |share| share.0),
        overhead_bytes: value_or(pipe.overhead.clone(), default::OVERHEAD).0,
        burst_bytes: value_or(pipe.burst.clone(), default::BURST).0,
        delay: value_or(pipe.delay.clone(), default::DELAY).0,
        jitter: value_or(pipe.jitter.clone(), default::DELAY).0,
        loss: loss(problems, pipe.loss.as_ref())?,
        queue_bytes: value_or(pipe.queue.clone(), default::PIPE_QUEUE).0,
        aqm: aqm(problems, pipe)?,
        half_duplex: pipe.duplex == file::Duplex::Half,
    })
}

fn aqm(problems: &mut Problems, pipe: &Pipe) -> Option<Aqm> {
    match (pipe.aqm, &pipe.mark) {
        (file::Aqm::None, None) => Some(Aqm::None),
        (file::Aqm::Codel, None) => Some(Aqm::Codel),
        (file::Aqm::None, Some(mark)) => Some(Aqm::Step(mark.value.0)),
        (file::Aqm::Codel, Some(mark)) => {
            problems.refuse(mark.place.other("an aqm and a mark", "one of aqm and mark"))
        }
    }
}

/// Returns the rate of a pipe; with a trace, the mean rate of the trace, and the trace.
fn capacity(
    problems: &mut Problems,
    at: &Place,
    pipe: &Pipe,
    folder: &Path,
) -> Option<(u64, Option<Trace>)> {
    match (&pipe.rate, &pipe.trace) {
        (Some(rate), None) => Some((rate.value.0, None)),
        (None, Some(file)) => {
            let found = problems.named_file(file, folder, recording::read)?;
            Some((found.mean_bps(), Some(found)))
        }
        (None, None) => problems.refuse(at.other("neither of them", "one of rate and trace")),
        (Some(_), Some(trace)) => {
            problems.refuse(trace.place.other("a rate and a trace", "one of rate and trace"))
        }
    }
}

fn loss(problems: &mut Problems, loss: Option<&Loss>) -> Option<medium::Loss> {
    Some(match loss {
        None | Some(Loss::Share(0.0)) => medium::Loss::None,
        Some(Loss::Share(probability)) => medium::Loss::Uniform { probability: *probability },
        Some(Loss::Bursts(bursts)) => {
            if bursts.leave.value.0 <= 0.0 {
                // The bad state would never end.
                return problems.refuse(bursts.leave.place.problem("more than 0%, at most 100%"));
            }
            medium::Loss::GilbertElliott { enter: bursts.enter.0, leave: bursts.leave.value.0 }
        }
    })
}

fn path_loss(raw: &PathLoss) -> medium::PathLoss {
    medium::PathLoss {
        at_1m_db: value_or(raw.at_1m, default::AT_1M).0,
        exponent: raw.exponent.0,
        shadowing_db: value_or(raw.shadowing, default::SHADOWING).0,
    }
}
