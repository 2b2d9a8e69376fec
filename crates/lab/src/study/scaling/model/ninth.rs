// SPDX-License-Identifier: Apache-2.0
//! Experiment 9 of the thesis, which it proposed and did not run: 2 to 8 hosts on one radio channel,
//! half of them with senders and half with echoers, and every echoer answers every sender. Here in
//! virtual time, up to the limit of each team.

use super::super::limit::{
    ACCEPTABLE_MS, CARRIED_PERCENT, CHANNEL_BUSY, PROCESS_BUSY, PRODUCED_PERCENT, grow,
};
use super::super::load::SCAN_BYTES;
use super::data::{self, Span};
use crate::rig::parallel;
use crate::rig::progress::Progress;
use crate::rig::stats::{middle, percentile};
use crate::sim::team::{self, Costs, Outcome, Plan, Transport, Trip};
use anyhow::Result;
use serde::Serialize;
use std::time::Duration;

/// Rate of the 802.11 channel's frames. With it, one pair of plain ROS 1 carries about as many scans as
/// over the thesis's radio.
pub const CHANNEL_BPS: u64 = 54_000_000;
const TRANSPORTS: [Transport; 3] = [Transport::Tcp, Transport::TcpNodelay, Transport::Tautline];
const HOSTS: [usize; 4] = [2, 4, 6, 8];
const SECOND: u64 = 1_000_000_000;
/// Messages of each sender that a run counts at least, and the limits of its counted time.
const MESSAGES: f64 = 10.0;
const COUNTED_S: [f64; 2] = [6.0, 40.0];
/// Time before the counted time in which the senders publish; see [`team`].
const WARM_UP_S: f64 = 2.0;
/// Frequencies of a decade: the preferred numbers R20 of ISO 3.
const R20: [f64; 20] = [
    1.0, 1.12, 1.25, 1.4, 1.6, 1.8, 2.0, 2.24, 2.5, 2.8, 3.15, 3.55, 4.0, 4.5, 5.0, 5.6, 6.3, 7.1,
    8.0, 9.0,
];
/// Lowest and highest frequency, as numbers of steps from 1 Hz: 0.1 Hz and 1 kHz.
const RUNGS: [i32; 2] = [-20, 60];
/// Steps of a climb to the limit, which then is found between two of them.
const STRIDE: i32 = 8;
/// Echoes per second of all pairs at which a climb begins.
const FIRST_PER_S: f64 = 60.0;
/// Expected time of a climb, for the first progress line.
const CLIMB: Duration = Duration::from_secs(4);

/// The computers of a team.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Computers {
    /// Programs take no time: only the radio limits.
    Ideal,
    /// Raspberry Pi 3B with rospy, whose costs are those of the thesis.
    Thesis,
}

impl Computers {
    /// Returns the name in tables.
    pub fn words(self) -> &'static str {
        match self {
            Self::Ideal => "take no time",
            Self::Thesis => "Raspberry Pi 3B",
        }
    }
}

/// A team with a transport.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Team {
    /// What carries the messages.
    pub transport: Transport,
    /// The computers.
    pub computers: Computers,
    /// Hosts.
    pub hosts: usize,
    /// Nodes on each host.
    pub nodes: usize,
}

/// A limit that a run has reached, found from what was measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "kind", content = "of")]
pub enum Limit {
    /// The radio channel.
    Airtime,
    /// The processor of a program, named.
    Process(String),
    /// A queue, while neither the channel nor a processor is busy.
    Queue,
}

/// Round trips in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct RoundTrips {
    /// Mean.
    pub mean: f64,
    /// Median.
    pub median: f64,
    /// 95th percentile.
    pub p95: f64,
    /// Medians of the first and of the last quarter of the counted time.
    pub quarters: [f64; 2],
}

/// A run of a team.
#[derive(Debug, Clone, Serialize)]
pub struct Point {
    /// The team.
    #[serde(flatten)]
    pub team: Team,
    /// Seed of the run.
    pub seed: u64,
    /// Pairs of a sender and an echoer.
    pub pairs: usize,
    /// Messages per second asked of each sender.
    pub frequency_hz: f64,
    /// Counted time, seconds.
    pub counted_s: f64,
    /// Messages that the senders published, percent of those asked.
    pub published_percent: f64,
    /// Echoes that returned until five seconds after the last message, percent.
    pub echoed_percent: f64,
    /// Echoes per second that returned in the counted time.
    pub echoed_per_s: f64,
    /// Round trips; `None` if nothing returned.
    pub rtt_ms: Option<RoundTrips>,
    /// Time in which a frame was on the air, percent.
    pub busy_percent: f64,
    /// Time in which some radio had a frame to send, percent.
    pub wanted_percent: f64,
    /// Attempts to send a frame that failed, percent.
    pub failed_percent: f64,
    /// The busiest program and its processor time, percent.
    pub busiest: Option<(String, f64)>,
    /// Messages that had not been sent at the end of the counted time.
    pub queued: u64,
    /// Messages that full queues dropped.
    pub dropped: u64,
    /// Limits that were reached; none if the load was held.
    pub limits: Vec<Limit>,
}

impl Point {
    /// Whether the load was held: carried without a growing queue, with round trips that the thesis
    /// accepted.
    pub fn is_held(&self) -> bool {
        self.limits.is_empty()
    }

    /// Returns the row to which a formula can be fitted; `None` if nothing returned.
    pub fn row(&self) -> Option<data::Row> {
        let offered_per_s = self.pairs as f64 * self.frequency_hz;
        Some(data::Row {
            pairs: self.pairs,
            hosts: self.team.hosts,
            frequency_hz: self.frequency_hz,
            message_bytes: SCAN_BYTES,
            published_per_s: offered_per_s * self.published_percent / 100.0,
            echoed_per_s: self.echoed_per_s,
            rtt_ms: self.rtt_ms?.mean,
            span: Span::Seconds { warm_up: WARM_UP_S, counted: self.counted_s },
        })
    }
}

/// Costs of messages on the thesis's computers.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Prices {
    /// Time of rospy to receive or publish a small message on a Raspberry Pi 3B, milliseconds.
    pub small_ms: f64,
    /// As `small_ms`, for a scan.
    pub scan_ms: f64,
    /// Time of a daemon for a message and its echo as a share of that of a rospy echoer, measured on
    /// the machine of the study's runs.
    pub daemon_share: f64,
}

/// Receptions and publications of a node for a message and its echo.
const OF_NODE: f64 = 2.0;
/// Those of a daemon: from and to ROS, and two packets.
const OF_DAEMON: f64 = 4.0;

impl Prices {
    fn costs(&self, computers: Computers) -> Costs {
        let ns = |ms: f64| (ms * 1e6) as u64;
        match computers {
            Computers::Ideal => Costs::default(),
            Computers::Thesis => Costs {
                node_ns: ns(self.small_ms),
                contents_ns: ns(self.scan_ms - self.small_ms),
                daemon_ns: ns(self.daemon_share * self.small_ms * OF_NODE / OF_DAEMON),
            },
        }
    }
}

/// Climbs with all teams to their limits, once with each seed. `quick`: with fewer teams.
pub fn climb_all(quick: bool, prices: &Prices, seeds: &[u64]) -> Result<Vec<Point>> {
    let nodes: &[usize] = if quick { &[1, 2] } else { &[1, 2, 4] };
    let mut climbs = Vec::new();
    for seed in seeds {
        for computers in [Computers::Ideal, Computers::Thesis] {
            for nodes in nodes {
                let team = |hosts| {
                    TRANSPORTS.map(|transport| Team { transport, computers, hosts, nodes: *nodes })
                };
                climbs.extend(HOSTS.into_iter().flat_map(team).map(|team| (team, *seed)));
            }
        }
    }
    let words = |(team, seed): &(Team, u64)| {
        let Team { transport, computers, hosts, nodes } = team;
        format!("experiment 9: {transport:?}, {computers:?}, {hosts} hosts of {nodes}, seed {seed}")
    };
    let progress = Progress::new(climbs.iter().map(|climb| (words(climb), CLIMB)).collect());
    let found = parallel::run(&progress, climbs, |(team, seed)| climb(team, prices, seed));
    progress.finish();
    Ok(found?.into_iter().flatten().collect())
}

fn frequency(rung: i32) -> f64 {
    R20[rung.rem_euclid(20) as usize] * 10_f64.powi(rung.div_euclid(20))
}

/// Finds a team's limit: returns the runs on the way to it, in order.
fn climb(team: Team, prices: &Prices, seed: u64) -> Result<Vec<Point>> {
    let pairs = (team.hosts / 2 * team.nodes).pow(2) as f64;
    let first = (RUNGS[0]..RUNGS[1]).rfind(|rung| frequency(*rung) * pairs <= FIRST_PER_S);
    let mut points = Vec::new();
    search(first.unwrap_or(RUNGS[0]), |rung| {
        let point = measure(team, frequency(rung), prices, seed)?;
        points.push(point.clone());
        Ok(point.is_held())
    })?;
    Ok(points)
}

/// Calls `holds` for rungs up to a limit, from `first` on: in strides until a rung does not hold, then
/// between that and the last one that did.
fn search(first: i32, mut holds: impl FnMut(i32) -> Result<bool>) -> Result<()> {
    let [lowest, highest] = RUNGS;
    let (mut good, mut bad) = (first, None);
    while !holds(good)? {
        if good == lowest {
            return Ok(());
        }
        bad = Some(good);
        good = (good - STRIDE).max(lowest);
    }
    while bad.is_none() && good < highest {
        let next = (good + STRIDE).min(highest);
        if holds(next)? {
            good = next;
        } else {
            bad = Some(next);
        }
    }
    let mut bad = bad.unwrap_or(good);
    while bad - good > 1 {
        let middle = (good + bad) / 2;
        if holds(middle)? { good = middle } else { bad = middle }
    }
    Ok(())
}

fn measure(team: Team, frequency_hz: f64, prices: &Prices, seed: u64) -> Result<Point> {
    let counted_s = (MESSAGES / frequency_hz).clamp(COUNTED_S[0], COUNTED_S[1]);
    let plan = Plan {
        transport: team.transport,
        hosts: team.hosts,
        nodes: team.nodes,
        frequency_hz,
        bytes: SCAN_BYTES,
        channel_bps: CHANNEL_BPS,
        costs: prices.costs(team.computers),
        counted: (counted_s * SECOND as f64) as u64,
    };
    Ok(point(team, &plan, seed, &team::run(&plan, seed)?))
}

fn point(team: Team, plan: &Plan, seed: u64, outcome: &Outcome) -> Point {
    let counted_s = plan.counted as f64 / SECOND as f64;
    let trips: Vec<&Trip> = counted(outcome).collect();
    let echoes = trips.iter().filter(|it| it.received_ns.is_some()).count();
    let published = trips.len() as f64 / plan.senders() as f64;
    let asked = plan.senders() as f64 * plan.frequency_hz * counted_s;
    let span = plan.counted_span();
    let returned = outcome.trips.iter().flatten().filter_map(|it| it.received_ns);
    let busiest = outcome.processors.iter().max_by(|one, other| one.1.total_cmp(&other.1));
    let mut point = Point {
        team,
        seed,
        pairs: plan.pairs(),
        frequency_hz: plan.frequency_hz,
        counted_s,
        published_percent: 100.0 * published / asked,
        echoed_percent: 100.0 * echoes as f64 / trips.len().max(1) as f64,
        echoed_per_s: returned.filter(|at| span.contains(at)).count() as f64 / counted_s,
        rtt_ms: round_trips(&trips, plan),
        busy_percent: outcome.busy_percent,
        wanted_percent: outcome.wanted_percent,
        failed_percent: outcome.failed_percent,
        busiest: busiest.cloned(),
        queued: outcome.queued,
        dropped: outcome.dropped,
        limits: Vec::new(),
    };
    point.limits = limits(&point);
    point
}

/// Returns the trips of messages that were due in the counted time.
fn counted(outcome: &Outcome) -> impl Iterator<Item = &Trip> {
    let senders = outcome.trips.iter().zip(&outcome.first_counted);
    senders.flat_map(|(trips, first)| trips.iter().filter(move |it| it.sequence >= *first))
}

fn round_trips(trips: &[&Trip], plan: &Plan) -> Option<RoundTrips> {
    let span = plan.counted_span();
    let quarter = plan.counted / 4;
    let ms = |it: &&&Trip| Some((it.received_ns? - it.sent_ns) as f64 / 1e6);
    let of = |from: u64, to: u64| -> Vec<f64> {
        let sent = trips.iter().filter(|it| (from..to).contains(&it.sent_ns));
        sent.filter_map(|it| ms(&it)).collect()
    };
    let all: Vec<f64> = trips.iter().filter_map(|it| ms(&it)).collect();
    let quarters = [of(0, span.start + quarter), of(span.end - quarter, u64::MAX)];
    (!all.is_empty()).then(|| RoundTrips {
        mean: all.iter().sum::<f64>() / all.len() as f64,
        median: middle(&all),
        p95: percentile(all, 0.95),
        quarters: quarters.map(|values| middle(&values)),
    })
}

/// Returns the limits that a run has reached; none if its load was held, by the bounds of the runs with real
/// programs.
fn limits(point: &Point) -> Vec<Limit> {
    let is_good = |it: RoundTrips| {
        // Where the warm-up has filled a queue already, its growth alone can be too slow to be seen.
        it.mean <= ACCEPTABLE_MS && !grow(it.quarters)
    };
    if point.published_percent >= PRODUCED_PERCENT
        && point.echoed_percent >= CARRIED_PERCENT
        && point.rtt_ms.is_some_and(is_good)
    {
        return Vec::new();
    }
    let mut limits = Vec::new();
    if point.wanted_percent >= CHANNEL_BUSY {
        limits.push(Limit::Airtime);
    }
    let busiest = point.busiest.iter().filter(|(_, percent)| *percent >= PROCESS_BUSY);
    limits.extend(busiest.map(|(name, _)| Limit::Process(name.clone())));
    if limits.is_empty() {
        limits.push(Limit::Queue);
    }
    limits
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEAM: Team =
        Team { transport: Transport::Tcp, computers: Computers::Thesis, hosts: 2, nodes: 1 };
    const PRICES: Prices = Prices { small_ms: 0.3, scan_ms: 0.9, daemon_share: 1.0 };

    #[test]
    fn a_climb_ends_between_the_last_rung_that_holds_and_the_first_that_does_not() {
        for limit in RUNGS[0]..=RUNGS[1] {
            for first in [RUNGS[0], -3, 7, 42] {
                let mut tried = Vec::new();
                let holds = |rung| {
                    tried.push(rung);
                    Ok(rung <= limit)
                };
                search(first, holds).unwrap();
                assert!(tried.contains(&limit), "{limit} from {first}: {tried:?}");
                let is_highest = limit == RUNGS[1];
                assert!(tried.contains(&(limit + 1)) || is_highest, "{limit}: {tried:?}");
            }
        }
    }

    #[test]
    fn frequencies_are_preferred_numbers() {
        let some = [RUNGS[0], -1, 0, 1, 20, RUNGS[1]].map(frequency);
        assert_eq!(some, [0.1, 0.9, 1.0, 1.12, 10.0, 1000.0]);
    }

    #[test]
    fn one_pair_is_limited_by_the_radio_and_with_slow_programs_by_a_processor() {
        let limits = |hz, prices: &Prices| measure(TEAM, hz, prices, 1).unwrap().limits;
        assert_eq!(limits(20.0, &PRICES), []);
        assert_eq!(limits(600.0, &PRICES)[0], Limit::Airtime);
        let slow = Prices { scan_ms: 9.0, ..PRICES };
        assert!(matches!(limits(100.0, &slow)[..], [Limit::Process(_)]));
    }
}
