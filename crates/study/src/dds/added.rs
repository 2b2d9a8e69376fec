// SPDX-License-Identifier: Apache-2.0
//! The delay that one gateway adds to a local hop, measured in the same run.
//!
//! A local hop is a publisher and a subscriber that communicate directly on one computer: roscpp to
//! roscpp, or Cyclone DDS to Cyclone DDS. In *read*, the gateway replaces the subscriber, and the
//! delay ends when the gateway passes the message to the daemon. In *written*, the gateway replaces the
//! publisher, and the delay begins when the daemon passes the message to the gateway. The three hops run
//! in turns, message by message. The added delay is the difference of the medians, without encryption,
//! link and second daemon; the latency part measures the whole path.

use super::probe::{Batch, Probe, Quality, Role, Start, messages};
use super::series::{Quantiles, WARM_UP};
use super::stage::{Place, Stage};
use super::system::System;
use super::{Context, Part, Step, step};
use anyhow::{Context as _, Result};
use serde::Serialize;
use std::path::PathBuf;
use std::time::Duration;
use tautline_lab::rig::clock::monotonic_ns;
use tautline_lab::rig::processes::Process;
use tautline_lab::rig::stats::middle;
use tautline_lab::rig::verdict::{Bound, Verdict};
use tautline_lab::setup::load::FIRST_PATIENCE;
use tautline_lab::setup::ros::{START_PATIENCE, WRITE_PATIENCE, utf8};

/// Target for the added delay at 1 KB, milliseconds.
const ADDED_MS: Bound = Bound::AtMost(0.3);
/// Target for the added delay at 1 MB, percent of the direct hop.
const ADDED_PERCENT: Bound = Bound::AtMost(15.0);
const SMALL: usize = 1000;
const LARGE: usize = 1_000_000;
/// Bytes before the data of a message: in ROS 1, and in ROS 2 with the encapsulation header.
const HEADS: [usize; 2] = [12, 16];
const PERIOD: Duration = Duration::from_millis(50);
const COUNTDOWN: Duration = Duration::from_millis(300);
const MESSAGES: u64 = 100;
const QUICK_MESSAGES: u64 = 30;
const ROUNDS: usize = 5;
const QUICK_ROUNDS: usize = 1;

/// A hop of the comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Hop {
    /// Without the gateway.
    Direct,
    /// The gateway is the subscriber.
    Read,
    /// The gateway is the publisher.
    Written,
}

const HOPS: [Hop; 3] = [Hop::Direct, Hop::Read, Hop::Written];

/// The delays of the three hops for one size.
#[derive(Debug, Serialize)]
pub struct Row {
    /// Version of ROS: 1 or 2.
    pub ros: u8,
    pub bytes: usize,
    /// Delays of each round: direct, read, written.
    pub rounds: Vec<[Quantiles; 3]>,
}

impl Row {
    /// Returns the median over the rounds of a hop's difference from the direct hop, ms. `hop` is an index
    /// into [`HOPS`].
    pub fn added_ms(&self, hop: usize) -> f64 {
        middle(&self.rounds.iter().map(|it| it[hop].median - it[0].median).collect::<Vec<_>>())
    }

    /// Like [`Self::added_ms`], percent of the direct hop.
    pub fn added_percent(&self, hop: usize) -> f64 {
        let percent = |it: &[Quantiles; 3]| 100.0 * (it[hop].median / it[0].median - 1.0);
        middle(&self.rounds.iter().map(percent).collect::<Vec<_>>())
    }

    fn verdicts(&self) -> [Verdict; 2] {
        [(1, "read"), (2, "written")].map(|(hop, side)| {
            let what = format!("gateway to ROS {}, {} bytes {side}, added", self.ros, self.bytes);
            match self.bytes {
                SMALL => ADDED_MS.judge(what, Some(self.added_ms(hop)), "ms"),
                _ => ADDED_PERCENT.judge(what, Some(self.added_percent(hop)), "%"),
            }
        })
    }
}

/// Returns the verdicts on all rows.
pub fn verdicts(rows: &[Row]) -> Vec<Verdict> {
    rows.iter().flat_map(Row::verdicts).collect()
}

/// One end of a hop.
enum End {
    Probe(Probe),
    /// The process of `tautline-study dds-end`, and the file of its samples.
    Own(Process, PathBuf),
}

impl End {
    fn start(stage: &Stage, hop: Hop, role: Role, ros: u8, bytes: usize) -> Result<Self> {
        let is_gateway =
            matches!((hop, role), (Hop::Read, Role::Subscribe) | (Hop::Written, Role::Publish));
        let publishes = role == Role::Publish;
        let name = format!("{}-{bytes}", if publishes { "publisher" } else { "subscriber" });
        if ros == 1 && !is_gateway {
            let start = Start::for_role(role, Quality::DEFAULT);
            return Probe::start(stage, start, &name).map(Self::Probe);
        }
        let file = stage.folder.join(format!("{name}.csv"));
        let mut command = stage.own_command()?;
        let role = if publishes { "publish" } else { "subscribe" };
        command.args(["dds-end", role, if is_gateway { "gateway" } else { "bare" }]);
        command.arg(utf8(&file)?);
        command.arg(format!("--bytes={}", bytes + HEADS[usize::from(ros == 2)]));
        command.arg(format!("--period-us={}", PERIOD.as_micros()));
        if ros == 1 {
            command.arg(format!("--master={}", stage.master_uri()));
        }
        Ok(Self::Own(Process::start_talking(&name, command, &stage.folder)?, file))
    }

    fn await_ready(&mut self) -> Result<()> {
        match self {
            Self::Probe(probe) => probe.await_ready().map(drop),
            Self::Own(process, _) => process.await_line("ready", START_PATIENCE).map(drop),
        }
    }

    fn await_first(&mut self) -> Result<()> {
        match self {
            Self::Probe(probe) => probe.await_first(),
            Self::Own(process, _) => process.await_line("first", FIRST_PATIENCE).map(drop),
        }
    }

    fn publish(&mut self, batch: &Batch, start_ns: u64) -> Result<()> {
        match self {
            Self::Probe(probe) => probe.publish(batch, start_ns),
            Self::Own(process, _) => {
                process.send_line(&format!("start {start_ns} {}", batch.count))
            }
        }
    }

    fn await_published(&mut self, batch: &Batch) -> Result<()> {
        match self {
            Self::Probe(probe) => {
                probe.await_published(batch).context("publishing did not end").map(drop)
            }
            Self::Own(process, _) => {
                let planned = PERIOD * u32::try_from(batch.count)?;
                process.await_line("done", COUNTDOWN + planned + START_PATIENCE).map(drop)
            }
        }
    }

    /// Makes the publisher write its samples; returns their file.
    fn sent(&mut self) -> Result<PathBuf> {
        match self {
            Self::Probe(probe) => {
                probe.write()?;
                Ok(probe.file("sent"))
            }
            Self::Own(process, file) => {
                process.send_line("write")?;
                process.await_line("written", WRITE_PATIENCE)?;
                Ok(file.clone())
            }
        }
    }

    /// Waits for the messages of a batch; returns the file of the subscriber's samples.
    fn received(&mut self, batch: &Batch) -> Result<PathBuf> {
        match self {
            Self::Probe(probe) => {
                probe.expect(batch)?;
                probe.received().context("the subscriber does not answer")?;
                probe.write()?;
                Ok(probe.file("received"))
            }
            Self::Own(process, file) => {
                process.send_line(&format!("expect {} 3", batch.count))?;
                process.await_line("done", WRITE_PATIENCE)?;
                process.await_line("written", WRITE_PATIENCE)?;
                Ok(file.clone())
            }
        }
    }
}

/// A hop with its running ends.
struct Running {
    stage: Stage,
    subscriber: End,
    publisher: End,
}

fn messages_of(context: &Context) -> u64 {
    if context.quick { QUICK_MESSAGES } else { MESSAGES }
}

fn rounds(context: &Context) -> usize {
    if context.quick { QUICK_ROUNDS } else { ROUNDS }
}

fn kinds(context: &Context) -> Vec<(u8, System)> {
    let all = [(1, System::Roscpp), (2, System::Cyclone)];
    all.into_iter().filter(|(_, system)| context.systems.contains(system)).collect()
}

/// Returns the steps of [`run`].
pub fn steps(context: &Context) -> Vec<Step> {
    let one = PERIOD * u32::try_from(messages_of(context)).unwrap_or(0) + Duration::from_secs(3);
    let runs = u32::try_from(rounds(context) * 2).unwrap_or(0);
    let title = |ros: u8| format!("gateway to ROS {ros} and a direct hop");
    kinds(context).iter().map(|(ros, _)| (step(Part::Added, &title(*ros)), one * runs)).collect()
}

/// Measures the hops for both ROS and sizes.
pub fn run(context: &Context) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (ros, system) in kinds(context) {
        context.progress.enter_next();
        let mut of_ros = [SMALL, LARGE].map(|bytes| Row { ros, bytes, rounds: Vec::new() });
        for round in 1..=rounds(context) {
            for row in &mut of_ros {
                let delays = measure(context, system, row, round)
                    .with_context(|| format!("ROS {ros}, {} bytes, round {round}", row.bytes))?;
                row.rounds.push(delays);
            }
        }
        rows.extend(of_ros);
    }
    Ok(rows)
}

/// Runs the three hops in turns.
fn measure(context: &Context, system: System, row: &Row, round: usize) -> Result<[Quantiles; 3]> {
    let mut hops = Vec::new();
    for hop in HOPS {
        let folder = context.folder("added").join(format!("ros{}-{round}-{hop:?}", row.ros));
        let stage =
            Stage::new(system, Place::Local, context.next_number(), &context.daemons, folder)?;
        let end = |role| End::start(&stage, hop, role, row.ros, row.bytes);
        let (subscriber, publisher) = (end(Role::Subscribe)?, end(Role::Publish)?);
        hops.push(Running { stage, subscriber, publisher });
    }
    for hop in &mut hops {
        let at = || format!("in {}", hop.stage.folder.display());
        hop.subscriber.await_ready().with_context(at)?;
        hop.publisher.await_ready().with_context(at)?;
        hop.subscriber.await_first().with_context(at)?;
    }
    let count = messages_of(context) + WARM_UP;
    let batch = Batch { first: 0, bytes: row.bytes, count, period: PERIOD };
    let start_ns = monotonic_ns() + COUNTDOWN.as_nanos() as u64;
    let slot = PERIOD.as_nanos() as u64 / hops.len() as u64;
    for (hop, turn) in hops.iter_mut().zip(0..) {
        hop.publisher.publish(&batch, start_ns + turn * slot)?;
    }
    let mut delays = Vec::new();
    for hop in &mut hops {
        hop.publisher.await_published(&batch)?;
        let received = hop.subscriber.received(&batch)?;
        let found = messages(&hop.publisher.sent()?, &received, &batch)?;
        let counted = found.iter().filter(|it| it.index >= WARM_UP);
        let of_hop = counted.filter_map(super::probe::Message::delay_ms).collect();
        delays.push(Quantiles::new(of_hop).context("no message arrived")?);
    }
    delays.try_into().ok().context("three hops")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(medians: [f64; 3]) -> [Quantiles; 3] {
        medians.map(|median| Quantiles {
            median,
            lower_quartile: median,
            upper_quartile: median,
            p99: median,
            max: median,
        })
    }

    #[test]
    fn differences_are_computed_within_a_round() {
        let rounds = vec![round([1.0, 1.1, 1.3]), round([2.0, 2.2, 2.2]), round([4.0, 4.0, 8.0])];
        let row = Row { ros: 1, bytes: LARGE, rounds };
        assert!((row.added_percent(1) - 10.0).abs() < 1e-9);
        assert!((row.added_ms(2) - 0.3).abs() < 1e-9);
        assert_eq!(row.verdicts().map(|it| it.reached), [true, false]);
    }
}
