// SPDX-License-Identifier: Apache-2.0
// Begun: fits the formulas of the study and runs experiment 9 in virtual time; not yet part of the build.
//! Experiment 9 of the thesis, which it proposed and did not run: more and more hosts on one radio
//! channel, half of them with senders and half with echoers, every sender to every echoer. Here in
//! virtual time, with Tautline's protocol and with plain UDP.

use super::data::{CARRIED, Row, Span};
use crate::rig::parallel;
use crate::rig::progress::Progress;
use crate::rig::stats::{Arrival, Samples, middle, percentile};
use crate::scenario::{self, Over, Scenario};
use crate::sim::{self, Sight};
use anyhow::Result;
use serde::Serialize;
use std::fmt::Write;
use std::time::Duration;
use tautline_medium::{NetworkId, StationId};

/// Bytes of a PR2's laser scan.
pub const SCAN_BYTES: u64 = 4227;
/// Rate of the 802.11 channel's frames, Mbps.
pub const CHANNEL_MBPS: u64 = 54;
/// Time before the counted interval, in which rates are found.
const WARM_UP_S: u64 = 3;
const SECOND: u64 = 1_000_000_000;
/// Share of its time above which a processor is the limit.
const PROCESSOR_FULL: f64 = 95.0;
/// Simulated seconds that take a second, for the first progress line.
const SPEED: f64 = 20.0;

/// A load.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Load {
    /// Transport.
    pub system: Over,
    /// Hosts, half of them with senders.
    pub hosts: usize,
    /// Nodes on each host.
    pub nodes: usize,
    /// Messages per second of each pair.
    pub frequency_hz: u64,
    /// Bytes of a message.
    pub bytes: u64,
    /// Time of a host's processor for each message received or published, microseconds.
    pub message_us: u64,
}

impl Load {
    /// Returns the pairs of a sender and an echoer: each has `hosts / 2 * nodes` nodes.
    pub fn pairs(&self) -> usize {
        (self.hosts / 2 * self.nodes).pow(2)
    }

    /// Returns the messages per second asked of all pairs.
    pub fn offered_per_s(&self) -> f64 {
        self.pairs() as f64 * self.frequency_hz as f64
    }

    fn scenario(&self, seconds: u64, seed: u64) -> Result<Scenario> {
        let mut draw = fastrand::Rng::with_seed(seed);
        let period_us = 1_000_000 / self.frequency_hz;
        let (mut stations, mut flows) = (String::new(), String::new());
        for host in 1..=self.hosts / 2 {
            let _ = writeln!(stations, "  sender{host}: {{ networks: [air] }}");
            let _ = writeln!(stations, "  echoer{host}: {{ networks: [air] }}");
        }
        let nodes = || (1..=self.hosts / 2).flat_map(|host| (1..=self.nodes).map(move |n| (host, n)));
        for (sender, from) in nodes() {
            for (echoer, to) in nodes() {
                let _ = writeln!(
                    flows,
                    "  - {{ name: s{sender}-{from}-e{echoer}-{to}, from: sender{sender}, to: echoer{echoer}, \
                     size: {}, every: {period_us}us, over: {}, echo: true, start: {}us }}",
                    self.bytes,
                    self.system.name(),
                    draw.u64(..period_us)
                );
            }
        }
        let text = format!(
            "about: Every sender to every echoer\nsource: Scaling, experiment 9\nduration: {seconds}s\n\
             networks:\n  air: {{ wifi: {{ phy: ofdm, rate: {CHANNEL_MBPS}Mbps }} }}\n\
             stations:\n{stations}flows:\n{flows}"
        );
        let made = scenario::made("experiment-9", &text)?;
        Ok(Scenario { message_cost: self.message_us * 1000, ..made })
    }

    fn words(&self) -> String {
        let Self { system, hosts, nodes, frequency_hz, bytes, message_us } = self;
        let system = system.name();
        format!("{system}, {hosts} hosts of {nodes} nodes, {frequency_hz} Hz, {bytes} B, {message_us} us")
    }
}

/// What limits a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// The load is carried.
    None,
    /// The busiest processor has no time left.
    Processor,
    /// The channel: what is offered needs more airtime than is left after contention.
    Airtime,
}

impl Limit {
    /// Names the limit.
    pub fn words(self) -> &'static str {
        match self {
            Self::None => "–",
            Self::Processor => "processor",
            Self::Airtime => "airtime",
        }
    }
}

/// A load with what it gave.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Outcome {
    /// The load.
    #[serde(flatten)]
    pub load: Load,
    /// Pairs of a sender and an echoer.
    pub pairs: usize,
    /// Messages per second asked of all pairs.
    pub offered_per_s: f64,
    /// Messages per second published.
    pub published_per_s: f64,
    /// Echoes per second that returned.
    pub echoed_per_s: f64,
    /// Echoes that returned, percent of the messages asked.
    pub echoed_percent: f64,
    /// Round trips in milliseconds; `None` if nothing returned.
    pub rtt_ms: Option<Rtt>,
    /// Time in which the channel was busy, percent.
    pub airtime_percent: f64,
    /// Work of the busiest processor, percent of its time.
    pub processor_percent: f64,
    /// What limited the load.
    pub limit: Limit,
}

/// Round trips in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Rtt {
    /// Mean.
    pub mean: f64,
    /// Median.
    pub median: f64,
    /// 95th percentile (nearest rank).
    pub p95: f64,
}

impl Outcome {
    /// Whether the load is carried.
    pub fn holds(&self) -> bool {
        self.echoed_percent >= 100.0 * CARRIED
    }

    /// Returns the row to which a formula can be fitted.
    pub fn row(&self, seconds: u64) -> Option<Row> {
        Some(Row {
            pairs: self.pairs,
            hosts: self.load.hosts,
            frequency_hz: self.load.frequency_hz as f64,
            message_bytes: self.load.bytes as usize,
            published_per_s: self.published_per_s,
            echoed_per_s: self.echoed_per_s,
            rtt_ms: self.rtt_ms?.mean,
            span: Span::Seconds((seconds - WARM_UP_S) as f64),
        })
    }
}

/// The loads of a run and its length.
pub struct Sweep {
    /// The loads.
    pub loads: Vec<Load>,
    /// Duration of each run in virtual time, seconds, the warm-up included.
    pub seconds: u64,
}

impl Sweep {
    /// Returns the sweep of `study`; `message_us` is the time of a processor in half of the runs.
    pub fn new(quick: bool, message_us: u64) -> Self {
        let (hosts, nodes, frequencies, sizes, seconds): (&[_], &[_], &[_], &[_], _) = match quick {
            true => (&[2, 4, 6, 8], &[1, 2], &[1, 10, 50], &[SCAN_BYTES], 8),
            false => (&[2, 4, 6, 8], &[1, 2, 4], &[1, 5, 10, 20, 50, 100], &[256, SCAN_BYTES], 13),
        };
        let mut costs = vec![0, message_us];
        costs.dedup();
        let mut loads = Vec::new();
        for &message_us in &costs {
            for &bytes in sizes {
                for &nodes in nodes {
                    for &frequency_hz in frequencies {
                        for &hosts in hosts {
                            for system in [Over::Tautline, Over::Udp] {
                                loads.push(Load {
                                    system,
                                    hosts,
                                    nodes,
                                    frequency_hz,
                                    bytes,
                                    message_us,
                                });
                            }
                        }
                    }
                }
            }
        }
        Self { loads, seconds }
    }

    /// Runs all loads; `seed` decides the phases of the senders and all that is random on the air.
    pub fn run(&self, seed: u64) -> Result<Vec<Outcome>> {
        let expected = Duration::from_secs_f64(self.seconds as f64 / SPEED);
        let stages = self.loads.iter().map(|load| (load.words(), expected)).collect();
        let progress = Progress::new(stages);
        let outcomes =
            parallel::run(&progress, self.loads.clone(), |load| outcome(load, self.seconds, seed));
        progress.finish();
        outcomes
    }
}

/// Busy times at one moment, nanoseconds.
#[derive(Debug, Clone, Default)]
struct Busy {
    channel: u64,
    processors: Vec<u64>,
}

impl Busy {
    fn of(sight: &Sight<'_>, hosts: usize) -> Self {
        let processors = (0..hosts).map(|host| sight.processor(StationId(host)));
        Self { channel: sight.busy(NetworkId(0)), processors: processors.collect() }
    }

    /// Returns the channel's and the busiest processor's busy time since `before`.
    fn since(&self, before: &Self) -> [u64; 2] {
        let worked = self.processors.iter().zip(&before.processors).map(|(now, then)| now - then);
        [self.channel - before.channel, worked.max().unwrap_or(0)]
    }
}

fn outcome(load: Load, seconds: u64, seed: u64) -> Result<Outcome> {
    let scenario = load.scenario(seconds, seed)?;
    let mut readings = Vec::new();
    let flows = sim::watch(&scenario, seed, SECOND, |sight| {
        if [WARM_UP_S * SECOND, seconds * SECOND].contains(&sight.at_ns) {
            readings.push(Busy::of(&sight, load.hosts));
        }
    })?;
    let busy = match &readings[..] {
        [before, after] => after.since(before),
        _ => [0, 0],
    };
    Ok(figures(load, seconds, &flows, busy))
}

fn figures(load: Load, seconds: u64, flows: &[(String, Samples)], busy: [u64; 2]) -> Outcome {
    let counted = WARM_UP_S * SECOND..seconds * SECOND;
    let time = (seconds - WARM_UP_S) as f64;
    let published: usize = flows.iter().map(|(_, it)| it.published(counted.clone())).sum();
    let arrivals = flows.iter().flat_map(|(_, samples)| &samples.arrivals);
    let arrivals = arrivals.filter(|it| counted.contains(&it.sent_ns));
    let delays: Vec<f64> = arrivals.map(Arrival::delay_ms).collect();
    let [airtime_percent, processor_percent] =
        busy.map(|ns| 100.0 * ns as f64 / (counted.end - counted.start) as f64);
    let echoed_per_s = delays.len() as f64 / time;
    let echoed_percent = 100.0 * echoed_per_s / load.offered_per_s();
    let limit = match echoed_percent >= 100.0 * CARRIED {
        true => Limit::None,
        false if processor_percent >= PROCESSOR_FULL => Limit::Processor,
        false => Limit::Airtime,
    };
    Outcome {
        load,
        pairs: load.pairs(),
        offered_per_s: load.offered_per_s(),
        published_per_s: published as f64 / time,
        echoed_per_s,
        echoed_percent,
        rtt_ms: rtt(delays),
        airtime_percent,
        processor_percent,
        limit,
    }
}

fn rtt(delays: Vec<f64>) -> Option<Rtt> {
    (!delays.is_empty()).then(|| Rtt {
        mean: delays.iter().sum::<f64>() / delays.len() as f64,
        median: middle(&delays),
        p95: percentile(delays, 0.95),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOAD: Load = Load {
        system: Over::Tautline,
        hosts: 4,
        nodes: 1,
        frequency_hz: 10,
        bytes: 1000,
        message_us: 0,
    };

    #[test]
    fn every_sender_node_has_every_echoer_node() {
        let load = Load { hosts: 6, nodes: 2, ..LOAD };
        let scenario = load.scenario(5, 1).unwrap();
        assert_eq!((load.pairs(), scenario.flows.len(), scenario.stations.len()), (36, 36, 6));
        assert!(scenario.flows.iter().all(|flow| flow.echo && flow.bytes == 1000));
    }

    #[test]
    fn a_light_load_returns_by_both_transports_and_the_same_seed_gives_the_same_figures() {
        for system in [Over::Tautline, Over::Udp] {
            let run = || outcome(Load { system, ..LOAD }, 5, 3).unwrap();
            let found = run();
            assert!(found.holds() && found.limit == Limit::None, "{found:?}");
            let rtt = found.rtt_ms.unwrap();
            assert!(rtt.median <= rtt.p95 && rtt.mean < 10.0, "{found:?}");
            assert_eq!(rtt, run().rtt_ms.unwrap());
        }
    }

    #[test]
    fn the_processor_adds_its_time_to_each_round_trip_and_limits_a_load_beyond_it() {
        let free = outcome(LOAD, 5, 3).unwrap();
        // A round trip has four messages: published, received, published, received.
        let slow = outcome(Load { message_us: 2000, ..LOAD }, 5, 3).unwrap();
        let [free_ms, slow_ms] = [free, slow].map(|it| it.rtt_ms.unwrap().median);
        assert!((5.5..12.0).contains(&(slow_ms - free_ms)), "{free_ms} {slow_ms}");
        // Two echoers times two messages of 20 ms at 10 Hz are 160 % of two hosts' processors.
        let full = outcome(Load { message_us: 40_000, ..LOAD }, 5, 3).unwrap();
        assert_eq!(full.limit, Limit::Processor, "{full:?}");
    }
}
