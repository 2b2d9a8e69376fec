// SPDX-License-Identifier: Apache-2.0
//! Messages over a link by size and rate: round trips and losses, over each system and under each
//! load.

pub mod loss;
pub mod roundtrip;
mod session;

use super::Context;
use super::condition::{BackgroundLoad, stress_word};
use anyhow::Result;
use serde::Serialize;
use session::{Cell, SYSTEMS, Samples, Sent, Session, System, Traffic};
use std::collections::HashMap;
use std::time::Duration;
use tautline_lab::rig::output::name_in_reports;
use tautline_lab::rig::stats::percentile;
use tautline_lab::setup::world::Link;

/// Rate of the token bucket, similar to 802.11n at 5 GHz on a Raspberry Pi.
const WIRE_BPS: u64 = 50_000_000;
/// Scenario of the radio.
const RADIO: &str = "realtime-study";
/// Rate of iperf3, as in the paper.
const TRAFFIC_MBPS: u32 = 30;
/// Minimum fraction of iperf3's rate that the link must carry.
const TRAFFIC_SHARE: f64 = 0.9;
/// Maximum lateness of a cell's last message, as a fraction of the cell's time; otherwise its rate
/// was not reached.
const BEHIND_SHARE: f64 = 0.1;
/// Messages below this size are measured for half the time.
const LARGE_BYTES: u32 = 10_000;
/// Expected time to start programs, for the progress display only.
const START: Duration = Duration::from_secs(8);
/// Expected time between cells, for the progress display only.
const BETWEEN: Duration = Duration::from_millis(900);

/// A link of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Over {
    /// The kernel's token bucket.
    Wire,
    /// The modelled radio.
    Radio,
}

impl Over {
    fn link(self) -> Link {
        match self {
            Self::Wire => Link::wire(WIRE_BPS),
            Self::Radio => Link::Radio(RADIO),
        }
    }

    fn name(self) -> String {
        name_in_reports(self)
    }
}

/// The measurements of a part.
struct Plan {
    part: &'static str,
    links: Vec<Over>,
    /// Combinations of stress and traffic to run.
    loads: Vec<Load>,
    cells: Vec<Cell>,
    /// Whether the receiver replies to each message.
    reply: bool,
    systems: Vec<System>,
    time: Duration,
}

/// Other load of machine and link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Load {
    stressed: bool,
    traffic: bool,
}

/// One cell under one condition; all rounds together.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    pub system: System,
    pub link: Over,
    pub stressed: bool,
    /// Whether iperf3 sent over the same link.
    pub traffic: bool,
    #[serde(flatten)]
    pub cell: Cell,
    pub sent: usize,
    /// Actual rate of the sender, by round.
    pub sent_hz: Vec<f64>,
    /// Distinct messages that the receiver received.
    pub arrived: usize,
    pub lost_percent: Option<f64>,
    /// Median time from sender to receiver, on the clock of this machine.
    pub delay_p50_ms: Option<f64>,
    /// 99th percentile of this time.
    pub delay_p99_ms: Option<f64>,
    /// Replies that the sender received.
    pub replied: usize,
    /// Median round trip, on the sender's clock.
    pub p50_ms: Option<f64>,
    /// 99th percentile of the round trips.
    pub p99_ms: Option<f64>,
    /// Longest round trip.
    pub max_ms: Option<f64>,
    /// Rounds in which the middleware blocked the sender, which reduced its rate.
    pub blocked: usize,
    /// Reasons why rounds are void.
    pub void: Vec<String>,
    #[serde(skip)]
    delays_ms: Vec<f64>,
    #[serde(skip)]
    round_trips_ms: Vec<f64>,
}

impl Row {
    fn new(system: System, link: Over, load: Load, cell: Cell) -> Self {
        Self {
            system,
            link,
            stressed: load.stressed,
            traffic: load.traffic,
            cell,
            sent: 0,
            sent_hz: Vec::new(),
            delay_p50_ms: None,
            delay_p99_ms: None,
            delays_ms: Vec::new(),
            arrived: 0,
            lost_percent: None,
            replied: 0,
            p50_ms: None,
            p99_ms: None,
            max_ms: None,
            blocked: 0,
            void: Vec::new(),
            round_trips_ms: Vec::new(),
        }
    }

    /// Adds the samples of the cell `number`.
    fn add(&mut self, number: u64, samples: &Samples) {
        let ms = |from: u64, to: u64| to.saturating_sub(from) as f64 / 1e6;
        let of_cell = samples.sent.iter().filter(|[cell, ..]| *cell == number);
        let mut sent_at = HashMap::new();
        for &[_, sequence, sent, replied] in of_cell {
            sent_at.insert(sequence, sent);
            if replied > 0 {
                self.round_trips_ms.push(ms(sent, replied));
            }
        }
        self.sent += sent_at.len();
        let (first, last) = (sent_at.values().min(), sent_at.values().max());
        if let (Some(first), Some(last)) = (first, last)
            && first < last
        {
            self.sent_hz.push(1000.0 * (sent_at.len() - 1) as f64 / ms(*first, *last));
        }
        for &[_, sequence, received] in samples.received.iter().filter(|it| it[0] == number) {
            // Duplicates count once.
            if let Some(sent) = sent_at.remove(&sequence) {
                self.arrived += 1;
                self.delays_ms.push(ms(sent, received));
            }
        }
    }

    /// Computes the figures of the report from the samples.
    fn summarize(&mut self) {
        let lost = self.sent.saturating_sub(self.arrived);
        self.lost_percent = (self.sent > 0).then(|| 100.0 * lost as f64 / self.sent as f64);
        self.replied = self.round_trips_ms.len();
        let delay = |share| (self.arrived > 0).then(|| percentile(self.delays_ms.clone(), share));
        (self.delay_p50_ms, self.delay_p99_ms) = (delay(0.5), delay(0.99));
        let of = |share| percentile(self.round_trips_ms.clone(), share);
        if self.replied > 0 {
            (self.p50_ms, self.p99_ms, self.max_ms) =
                (Some(of(0.5)), Some(of(0.99)), Some(of(1.0)));
        }
    }
}

impl Plan {
    /// Returns the counted time of a cell, shorter for small messages, which differ little.
    fn time_of(&self, cell: Cell) -> Duration {
        if cell.bytes < LARGE_BYTES { self.time / 2 } else { self.time }
    }

    fn stages(&self, rounds: u64) -> Vec<(String, Duration)> {
        let cells: Duration = self.cells.iter().map(|cell| self.time_of(*cell) + BETWEEN).sum();
        let mut stages = Vec::new();
        for &link in (0..rounds).flat_map(|_| &self.links) {
            for &system in &self.systems {
                let loads = self.loads_on(link).len() as u32;
                let time = START + (cells + Duration::from_secs(2)) * loads;
                stages.push((format!("{}: {}, {}", self.part, link.name(), system.name()), time));
            }
        }
        stages
    }

    /// Returns the loads of a link. If the part also measures the radio, the wire runs without stress only.
    fn loads_on(&self, link: Over) -> Vec<Load> {
        let only_idle = link == Over::Wire && self.links.contains(&Over::Radio);
        self.loads.iter().copied().filter(|load| !only_idle || !load.stressed).collect()
    }

    fn measure(&self, context: &Context<'_>) -> Result<Vec<Row>> {
        let mut rows = Vec::new();
        for &link in &self.links {
            for &system in &self.systems {
                for load in self.loads_on(link) {
                    rows.extend(self.cells.iter().map(|cell| Row::new(system, link, load, *cell)));
                }
            }
        }
        for round in 1..=rounds(context) {
            for &link in &self.links {
                for &system in &self.systems {
                    context.progress.enter_next();
                    let mine = |row: &&mut Row| row.link == link && row.system == system;
                    let mut mine: Vec<&mut Row> = rows.iter_mut().filter(mine).collect();
                    self.session(&mut mine, round, context)?;
                }
            }
        }
        rows.iter_mut().for_each(Row::summarize);
        Ok(rows)
    }

    /// Measures all rows of one link and system. The rows are in the order of the loads.
    fn session(&self, rows: &mut [&mut Row], round: u64, context: &Context<'_>) -> Result<()> {
        let Some(first) = rows.first() else { return Ok(()) };
        let link = first.link;
        let name = format!("{}-{}-{}-{round}", self.part, first.link.name(), first.system.word());
        let at = (context.raw.as_path(), name.as_str());
        let mut session =
            Session::start(first.system, first.link.link(), self.reply, &context.tautline, at)?;
        let mut void: HashMap<usize, String> = HashMap::new();
        for (index, load) in self.loads_on(link).into_iter().enumerate() {
            let start = index * self.cells.len();
            let rows = &mut rows[start..start + self.cells.len()];
            let reasons = self.run_under_load(load, rows, start + 1, &mut session, context)?;
            void.extend(reasons);
        }
        let samples = session.end()?;
        for (number, row) in (1..).zip(rows.iter_mut()) {
            match void.remove(&number) {
                Some(reason) => row.void.push(reason),
                None => row.add(number as u64, &samples),
            }
        }
        Ok(())
    }

    /// Runs all cells under a load; `first` is the number of the first cell. Returns the number of each
    /// void cell with the reason.
    fn run_under_load(
        &self,
        load: Load,
        rows: &mut [&mut Row],
        first: usize,
        session: &mut Session,
        context: &Context<'_>,
    ) -> Result<Vec<(usize, String)>> {
        let surroundings = BackgroundLoad::begin(load.stressed, &context.raw)?;
        let traffic = load
            .traffic
            .then(|| Traffic::start(&session.pair, TRAFFIC_MBPS, &context.raw))
            .transpose()?;
        session.pair.count_from_now();
        let mut void = Vec::new();
        for (number, row) in (first..).zip(rows.iter_mut()) {
            let time = self.time_of(row.cell);
            match judge(session.run(number, row.cell, time)?, time) {
                Pace::Kept => {}
                Pace::Blocked => row.blocked += 1,
                Pace::Void(reason) => void.push((number, reason)),
            }
        }
        let of_all = match self.judge_all(traffic, surroundings, session)? {
            Some(reason) => reason,
            None => return Ok(void),
        };
        Ok((first..first + rows.len()).map(|number| (number, of_all.clone())).collect())
    }

    /// Returns why all cells under a load are void; `None` if the load was produced in time.
    fn judge_all(
        &self,
        traffic: Option<Traffic>,
        surroundings: BackgroundLoad,
        session: &mut Session,
    ) -> Result<Option<String>> {
        let bytes = |cell: &Cell| u64::from(cell.bytes) * cell.count(self.time_of(*cell));
        let own = self.cells.iter().map(bytes).sum();
        let mbps = traffic.map(|traffic| traffic.end(&session.pair, own)).transpose()?;
        let end = surroundings.end()?;
        let late = session.pair.punctuality()?.filter(|it| it.frames > 0 && !it.counts);
        let wanted = TRAFFIC_SHARE * f64::from(TRAFFIC_MBPS);
        let slow = mbps.filter(|mbps| *mbps < wanted);
        let slow = slow.map(|mbps| format!("iperf3 sent {mbps:.1} Mbps, wanted {TRAFFIC_MBPS}"));
        Ok(end.void.or(slow).or(late.map(|it| format!("the radio's emulator was late: {it}"))))
    }
}

/// Returns the number of measurements of each cell, by default one.
fn rounds(context: &Context<'_>) -> u64 {
    context.runs.unwrap_or(1)
}

/// Returns the systems; quick runs omit the one that differs least.
fn systems(context: &Context<'_>) -> Vec<System> {
    let wanted = |it: &System| !context.quick || *it != System::TautlineFifo;
    SYSTEMS.into_iter().filter(wanted).collect()
}

/// Whether a sender kept its rate.
#[derive(Debug, PartialEq)]
enum Pace {
    Kept,
    /// The middleware blocked the sender in publish.
    Blocked,
    /// The machine was too slow.
    Void(String),
}

/// Judges the sender's report on a cell that was to last for `time`.
fn judge(sent: Sent, time: Duration) -> Pace {
    if sent.behind < time.mul_f64(BEHIND_SHARE) {
        return Pace::Kept;
    }
    // If the time in publish exceeds the delay, it explains the whole delay.
    if sent.in_publish >= sent.behind {
        return Pace::Blocked;
    }
    Pace::Void(format!(
        "the sender was {:.1} s behind its schedule, of which publish explains {:.1} s",
        sent.behind.as_secs_f64(),
        sent.in_publish.as_secs_f64()
    ))
}

/// Describes the load of a row, for tables.
fn load_words(row: &Row) -> String {
    let traffic = if row.traffic { ", 30 Mbps iperf3" } else { "" };
    format!("{}{traffic}", stress_word(row.stressed))
}

/// Describes whether rounds of a row are void or were blocked; empty if neither.
fn exceptions(row: &Row) -> String {
    match (row.sent, row.void.len(), row.blocked) {
        (0, 1.., _) => "VOID".into(),
        (_, 1.., _) => "some rounds void".into(),
        (_, 0, 1..) => "publish blocked".into(),
        (_, 0, 0) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row() -> Row {
        let load = Load { stressed: false, traffic: false };
        Row::new(System::Rospy, Over::Wire, load, Cell { bytes: 10, rate_hz: 100 })
    }

    #[test]
    fn a_missing_message_is_lost_once() {
        let mut row = row();
        let samples = Samples {
            sent: vec![[1, 0, 10, 2_000_010], [1, 1, 20, 0], [2, 0, 30, 0]],
            received: vec![[1, 0, 12], [1, 0, 13], [2, 0, 40]],
        };
        row.add(1, &samples);
        row.summarize();
        assert_eq!((row.sent, row.arrived, row.replied), (2, 1, 1));
        assert_eq!((row.lost_percent, row.max_ms), (Some(50.0), Some(2.0)));
    }

    #[test]
    fn a_late_sender_is_blocked_or_void() {
        let time = Duration::from_secs(10);
        let sent = |behind, in_publish| Sent {
            behind: Duration::from_secs(behind),
            in_publish: Duration::from_secs(in_publish),
        };
        assert_eq!(judge(sent(0, 9), time), Pace::Kept);
        assert_eq!(judge(sent(5, 9), time), Pace::Blocked);
        assert!(matches!(judge(sent(5, 1), time), Pace::Void(_)));
    }

    #[test]
    fn a_row_without_messages_has_no_loss() {
        let mut row = row();
        row.void.push("late".into());
        row.summarize();
        assert_eq!((row.lost_percent, exceptions(&row)), (None, "VOID".to_owned()));
    }
}
