// SPDX-License-Identifier: Apache-2.0
//! The load of a fleet on a channel.

use super::contention::{Contention, Stations, Timing};
use super::traffic::{Channel, Stream};
use std::collections::BTreeMap;
use tautline_proto::Class;

/// Fraction of a saturated channel's capacity that rate control uses.
const USABLE_FRACTION: f64 = 0.95;

/// What packets need of a channel: packets, seconds of airtime and IP bytes, each per second.
#[derive(Debug, Clone, Copy, Default)]
struct Demand {
    packets: f64,
    airtime: f64,
    bytes: f64,
}

impl Demand {
    fn add(&mut self, timing: &Timing, stream: &Stream) {
        let class = stream.class();
        for (count, bytes) in stream.packets.sizes() {
            let packets = count as f64 / stream.period;
            self.packets += packets;
            self.airtime += packets * timing.airtime(class, bytes);
            self.bytes += packets * f64::from(bytes);
        }
    }
}

fn by_station(timing: &Timing, streams: &[Stream]) -> BTreeMap<usize, Demand> {
    let mut demands: BTreeMap<usize, Demand> = BTreeMap::new();
    for stream in streams {
        demands.entry(stream.station).or_default().add(timing, stream);
    }
    demands
}

/// See [`super::Assessment::load`].
pub(super) fn load(channel: &Channel, timing: &Timing, streams: &[Stream]) -> f64 {
    let demands = by_station(timing, streams);
    let airtime = match channel {
        Channel::Wifi(_) => shared_airtime(timing, &demands),
        Channel::Pipe(pipe) if pipe.half_duplex => demands.values().map(|it| it.airtime).sum(),
        Channel::Pipe(_) => demands.values().map(|it| it.airtime).fold(0.0, f64::max),
    };
    airtime / USABLE_FRACTION
}

/// Airtime of all stations on one channel, with backoff and collisions.
fn shared_airtime(timing: &Timing, demands: &BTreeMap<usize, Demand>) -> f64 {
    let total = |of: fn(&Demand) -> f64| demands.values().map(of).sum::<f64>();
    let airtime = total(|it| it.airtime);
    // The number of stations with equal shares that contend like these. The class is that of large
    // messages.
    let count = airtime.powi(2) / total(|it| it.airtime.powi(2));
    let class = Class::BestEffort as usize;
    let mut stations = Stations::default();
    stations[class] = count.max(1.0);
    let contention = Contention::new(timing, stations);
    let bytes = (total(|it| it.bytes) / total(|it| it.packets)) as u32;
    airtime + total(|it| it.packets) * contention.access_overhead(timing, class, bytes)
}
