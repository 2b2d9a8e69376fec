// SPDX-License-Identifier: Apache-2.0
//! Links and loads drawn from a seed.

use crate::validate::far::{self, PAYLOAD_SHARE};
use fastrand::Rng;
use serde::Serialize;
use std::fmt::Write;

/// Seconds of a run.
pub const SECONDS: u64 = 20;
/// Bytes of a full packet.
const PACKET: u64 = 1500;
/// IP, UDP and our own headers of a packet.
const HEADER_BYTES: u64 = 75;

/// What a link does beyond carrying packets at a rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Nothing.
    Plain,
    /// The link drops what exceeds its rate and its bucket; its queue is short.
    Policer,
    /// The link loses single packets.
    Loss,
    /// The link loses packets in bursts.
    Bursts,
    /// The link delays packets by up to 50 ms, in order.
    Jitter,
    /// The link delays some packets, which others overtake.
    Reordering,
    /// The link delivers some packets twice.
    Duplicates,
    /// The rate falls to a fraction and returns.
    Steps,
    /// The rate wanders.
    Walk,
    /// Paths: a first hop of another rate, with its own queue.
    TwoHops,
    /// Half duplex, with bulk in both directions.
    BothWays,
    /// 0.2 to 0.5 Mbps.
    VerySlow,
    /// 100 to 300 Mbps.
    Fast,
    /// A delay of 150 to 600 ms.
    LongDelay,
}

const KINDS: [Kind; 9] = [
    Kind::Plain,
    Kind::Policer,
    Kind::Loss,
    Kind::Bursts,
    Kind::Jitter,
    Kind::Reordering,
    Kind::Duplicates,
    Kind::Steps,
    Kind::Walk,
];

/// Which links are drawn.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Family {
    /// One link with a property of its own: policers, losses, jitter, changing rates.
    #[default]
    Links,
    /// Two hops, bulk in both directions, very slow and fast links, long delays.
    Paths,
}

const PATH_KINDS: [Kind; 5] =
    [Kind::TwoHops, Kind::BothWays, Kind::VerySlow, Kind::Fast, Kind::LongDelay];

/// A link and its load.
#[derive(Debug, Clone, Serialize)]
pub struct Link {
    pub seed: u64,
    pub kind: Kind,
    /// The rate, or its mean if it changes.
    pub mbps: f64,
    /// The keys of its pipe.
    pub pipe: String,
    /// The keys of the pipe of the first hop.
    first_hop: String,
    /// The rates in Mbps, each from a time in milliseconds.
    rates: Vec<(u64, f64)>,
    /// Bulk offered, as a fraction of the rate.
    pub load: f64,
    pub bulk_bytes: u64,
    /// Fraction of the packets that the link loses whatever is sent.
    pub loss: f64,
}

/// Draws a number whose logarithm is uniform.
fn log_uniform(random: &mut Rng, least: f64, most: f64) -> f64 {
    (least.ln() + random.f64() * (most / least).ln()).exp()
}

/// Bytes of a message of bulk: a tenth of a second of the link.
fn bulk_bytes(mbps: f64) -> u64 {
    ((mbps * 1e6 / 8.0 * 0.1) as u64).clamp(4000, 65_536)
}

impl Link {
    /// Draws the link of a seed. Successive seeds have successive kinds.
    pub fn draw(family: Family, seed: u64) -> Self {
        match family {
            Family::Links => Self::draw_link(seed),
            Family::Paths => Self::draw_path(seed),
        }
    }

    fn draw_path(seed: u64) -> Self {
        let mut random = Rng::with_seed(seed);
        let kind = PATH_KINDS[(seed % PATH_KINDS.len() as u64) as usize];
        let [least, most] = match kind {
            Kind::VerySlow => [0.2, 0.5],
            Kind::Fast => [100.0, 300.0],
            _ => [0.5, 100.0],
        };
        let mbps = log_uniform(&mut random, least, most);
        let delay_us = match kind {
            Kind::LongDelay => log_uniform(&mut random, 150_000.0, 600_000.0),
            _ => log_uniform(&mut random, 300.0, 150_000.0),
        };
        let first_mbps = mbps * log_uniform(&mut random, 0.5, 4.0);
        let mut hop = |mbps: f64, delay_us: f64| {
            let queue_s = log_uniform(&mut random, 0.02, 1.0);
            let queue = (queue_s * mbps * 1e6 / 8.0).max(5.0 * PACKET as f64) as u64;
            format!(
                "rate: {}bps, queue: {queue}, delay: {}us",
                (mbps * 1e6) as u64,
                delay_us as u64
            )
        };
        let mut pipe = hop(mbps, delay_us);
        let (mut first_hop, mut narrowest) = (far::FAST.to_owned(), mbps);
        match kind {
            Kind::TwoHops => {
                first_hop = hop(first_mbps, 300.0);
                narrowest = mbps.min(first_mbps);
            }
            Kind::BothWays => pipe += ", duplex: half",
            _ => {}
        }
        let load = if random.bool() { 1.2 } else { 0.2 + 0.6 * random.f64() };
        Self {
            seed,
            kind,
            mbps: narrowest,
            pipe,
            first_hop,
            rates: vec![(0, narrowest)],
            load,
            bulk_bytes: bulk_bytes(narrowest),
            loss: 0.0,
        }
    }

    fn draw_link(seed: u64) -> Self {
        let mut random = Rng::with_seed(seed);
        let kind = KINDS[(seed % KINDS.len() as u64) as usize];
        let mbps = match kind {
            Kind::Policer => log_uniform(&mut random, 1.0, 100.0),
            _ => log_uniform(&mut random, 0.5, 100.0),
        };
        let delay_us = log_uniform(&mut random, 300.0, 150_000.0) as u64;
        let queue_s = log_uniform(&mut random, 0.02, 1.0);
        let mut queue = (queue_s * mbps * 1e6 / 8.0).max(5.0 * PACKET as f64) as u64;
        let mut extra = String::new();
        let mut loss = 0.0;
        match kind {
            Kind::Policer => {
                queue = PACKET * random.u64(2..=7);
                let _ = write!(extra, ", burst: {}", log_uniform(&mut random, 8e3, 1e5) as u64);
            }
            Kind::Loss => {
                loss = log_uniform(&mut random, 0.005, 0.2);
                let _ = write!(extra, ", loss: {loss:.4}");
            }
            Kind::Bursts => {
                loss = log_uniform(&mut random, 0.005, 0.2);
                let leave = 1.0 / random.f64().mul_add(8.0, 2.0);
                let enter = leave * loss / (1.0 - loss);
                let _ = write!(extra, ", loss: {{ enter: {enter:.5}, leave: {leave:.4} }}");
            }
            Kind::Jitter => {
                let _ = write!(extra, ", jitter: {}us", log_uniform(&mut random, 1e3, 5e4) as u64);
            }
            Kind::Reordering => {
                let share = log_uniform(&mut random, 0.001, 0.2);
                let by = log_uniform(&mut random, 1e3, 5e4) as u64;
                let _ = write!(extra, ", reorder: {{ share: {share:.4}, by: {by}us }}");
            }
            Kind::Duplicates => {
                let share = log_uniform(&mut random, 0.001, 0.2);
                let _ = write!(extra, ", duplicate: {share:.4}");
            }
            // The other kinds have changing rates, or no property of their own.
            _ => {}
        }
        if kind != Kind::Policer && random.f64() < 0.2 {
            extra += ", duplex: half";
        }
        let pipe =
            format!("rate: {}bps, queue: {queue}, delay: {delay_us}us{extra}", (mbps * 1e6) as u64);
        let rates = rates(&mut random, kind, mbps);
        let mean = rates.iter().map(|(_, mbps)| mbps).sum::<f64>() / rates.len() as f64;
        // Half of the links have more bulk than they can carry.
        let load = if random.bool() { 1.2 } else { 0.2 + 0.6 * random.f64() };
        let (bulk_bytes, first_hop) = (bulk_bytes(mbps), far::FAST.to_owned());
        Self { seed, kind, mbps: mean, pipe, first_hop, rates, load, bulk_bytes, loss }
    }

    /// Bytes of bulk that the link can carry from a time in milliseconds on, alongside the laser, or
    /// that are offered if those are fewer.
    pub fn fitting_bytes(&self, from_ms: u64) -> f64 {
        // On a very slow link, the headers of small messages matter.
        let headers = if self.kind == Kind::VerySlow { HEADER_BYTES } else { 0 };
        let laser_mbps = (self.laser_bytes() + headers) as f64 * 8.0 * 50.0 / 1e6;
        let ends = self.rates[1..].iter().map(|(at_ms, _)| *at_ms).chain([SECONDS * 1000]);
        let spans = self.rates.iter().zip(ends).map(|((begin, mbps), end)| {
            let carried = mbps * PAYLOAD_SHARE * (1.0 - self.loss) - laser_mbps;
            let seconds = end.saturating_sub(from_ms.max(*begin)) as f64 / 1e3;
            seconds * carried.min(self.load * self.mbps).max(0.0) * 1e6 / 8.0
        });
        spans.sum()
    }

    /// Bytes of a laser's message: less on a slow link, which it must not fill.
    fn laser_bytes(&self) -> u64 {
        let least = self.rates.iter().map(|(_, mbps)| *mbps).fold(f64::INFINITY, f64::min);
        if least < 1.2 { far::LASER_BYTES / 8 } else { far::LASER_BYTES }
    }

    /// Returns the scenario with this load, under a controller.
    pub fn scenario(&self, controller: &str) -> String {
        let Self { pipe, load, bulk_bytes, mbps, .. } = self;
        let ways: &[_] = match self.kind {
            Kind::BothWays => &[("bulk", "robot", "base"), ("back", "base", "robot")],
            _ => &[("bulk", "robot", "base")],
        };
        let every_us = (*bulk_bytes as f64 * 8.0 * ways.len() as f64 / (mbps * load)) as u64;
        let laser_bytes = self.laser_bytes();
        let rate = match controller {
            "fixed" => format!("{}bps", (mbps * 1e6) as u64),
            other => other.to_owned(),
        };
        let events = self.rates[1..].iter().map(|(at_ms, mbps)| {
            let bps = (mbps * 1e6) as u64;
            format!("  - {{ at: {at_ms}ms, rate: {{ network: slow, to: {bps}bps }} }}\n")
        });
        let events: String = events.collect();
        let events = if events.is_empty() { events } else { format!("events:\n{events}") };
        let mut flows = format!(
            "  - {{ name: laser, from: robot, to: base, size: {laser_bytes}, every: 20ms, priority: 200, keep_last: 100 }}\n"
        );
        for (name, from, to) in ways {
            let _ = writeln!(
                flows,
                "  - {{ name: {name}, from: {from}, to: {to}, size: {bulk_bytes}, every: {every_us}us, priority: 20, keep_last: 10, start: 5ms }}"
            );
        }
        far::hops(SECONDS, [&self.first_hop, pipe], &flows)
            + &format!("{events}tautline: {{ rate: {rate} }}\n")
    }
}

/// Returns the rates of a link.
fn rates(random: &mut Rng, kind: Kind, mbps: f64) -> Vec<(u64, f64)> {
    let every_ms = match kind {
        Kind::Steps => random.u64(3000..8000),
        Kind::Walk => random.u64(100..1000),
        _ => return vec![(0, mbps)],
    };
    let low = mbps / log_uniform(random, 3.0, 20.0).min(mbps / 0.3).max(1.5);
    let (mut rates, mut now) = (vec![(0, mbps)], mbps);
    for at_ms in (every_ms..SECONDS * 1000).step_by(every_ms as usize) {
        now = match kind {
            Kind::Steps if rates.len() % 2 == 1 => low,
            Kind::Steps => mbps,
            _ => (now * ((random.f64() - 0.5) * 0.8).exp()).clamp(mbps / 4.0, mbps * 2.0),
        };
        rates.push((at_ms, now));
    }
    rates
}
