// SPDX-License-Identifier: Apache-2.0
//! One running probe program and its commands (`ros/dds/probe.py`).

use super::stage::{Side, Stage};
use super::system::Client;
use anyhow::{Context, Result};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tautline_lab::rig::processes::Process;
use tautline_lab::rig::stats::Samples;
use tautline_lab::setup::ros::{START_PATIENCE, WRITE_PATIENCE, utf8};

/// Time by which publishing may exceed its planned end before the probe stops it.
pub const PUBLISH_LIMIT: Duration = Duration::from_secs(8);
/// Time without an arrival after which missing messages count as lost.
pub const IDLE_PATIENCE: Duration = Duration::from_secs(3);
/// Maximum wait for a slowly arriving batch.
const ARRIVAL_LIMIT: Duration = Duration::from_secs(60);
/// Maximum wait for the first message.
const FIRST_PATIENCE: Duration = Duration::from_secs(30);

/// Quality of service that a probe requests. Clients other than DDS use the applicable fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Quality {
    /// Whether lost packets are repaired.
    pub reliable: bool,
    /// Whether messages are kept for late joiners (ROS 1: latched).
    pub transient_local: bool,
    /// Messages in the history; 0 keeps all.
    pub depth: u32,
    /// Maximum promised time between two messages, ms; 0 for none.
    pub deadline_ms: u32,
}

impl Quality {
    /// ROS 2's default profile.
    pub const DEFAULT: Self =
        Self { reliable: true, transient_local: false, depth: 10, deadline_ms: 0 };

    /// Every message is kept until it is delivered.
    pub const ALL: Self = Self { depth: 0, ..Self::DEFAULT };

    fn options(self, client: Client) -> Vec<String> {
        let mut options = vec![format!("--depth={}", self.depth)];
        if self.transient_local {
            options.push("--transient-local".into());
        }
        if client != Client::Roscpp && !self.reliable {
            options.push("--best-effort".into());
        }
        if client != Client::Roscpp && self.deadline_ms > 0 {
            options.push(format!("--deadline-ms={}", self.deadline_ms));
        }
        options
    }
}

/// The role of a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Publish,
    Subscribe,
    /// Both, in one process.
    Both,
}

impl Role {
    fn name(self) -> &'static str {
        match self {
            Self::Publish => "publish",
            Self::Subscribe => "subscribe",
            Self::Both => "both",
        }
    }

    fn side(self) -> Side {
        if self == Self::Subscribe { Side::To } else { Side::From }
    }
}

/// Settings for starting a probe.
#[derive(Debug, Clone, Copy)]
pub struct Start {
    /// The role.
    pub role: Role,
    /// The quality of service.
    pub quality: Quality,
    /// Whether the probe publishes uncounted messages until its first command.
    pub warm: bool,
    /// Whether the probe measures the parts of the delay.
    pub timed: bool,
}

impl Start {
    /// Returns the usual settings: uncounted messages first, and no parts of the delay.
    pub fn for_role(role: Role, quality: Quality) -> Self {
        Self { role, quality, warm: true, timed: false }
    }
}

/// Messages published in sequence.
#[derive(Debug, Clone, Copy)]
pub struct Batch {
    /// Number of the first message.
    pub first: u64,
    /// Bytes of the array in each message.
    pub bytes: usize,
    /// Number of messages.
    pub count: u64,
    /// Time between messages; zero is as fast as possible.
    pub period: Duration,
}

/// Difference between the first numbers of batches, as in `probe.py`.
pub const BATCH: u64 = 1_000_000;

/// A subscriber's report on a batch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Received {
    /// Distinct messages.
    pub messages: u64,
    /// Missed deadlines that the middleware counted.
    pub deadlines: u64,
}

/// A running probe.
pub struct Probe {
    process: Process,
    prefix: PathBuf,
}

impl Probe {
    /// Starts a probe on its side of a stage; `name` is unique there.
    pub fn start(stage: &Stage, start: Start, name: &str) -> Result<Self> {
        let side = start.role.side();
        let [from, to] = stage.system.clients();
        let client = if side == Side::From { from } else { to };
        let prefix = stage.folder.join(name);
        let mut command = stage.command(client, side, name)?;
        command.arg(start.role.name()).arg(utf8(&prefix)?).args(start.quality.options(client));
        if client == Client::Zenoh {
            command.args(stage.zenoh_options(side));
        }
        if start.warm {
            command.arg("--warm");
        }
        if start.timed {
            command.arg("--timed");
        }
        let process = Process::start_talking(name, command, &stage.folder)?;
        Ok(Self { process, prefix })
    }

    /// Waits until the program has created its publisher or subscriber; returns the time that it reports.
    pub fn await_ready(&mut self) -> Result<u64> {
        let said = self.process.await_line("ready", START_PATIENCE)?;
        said.parse().with_context(|| format!("'ready {said}' has no time"))
    }

    /// Waits until the first uncounted message has arrived.
    pub fn await_first(&mut self) -> Result<()> {
        self.process.await_line("first", FIRST_PATIENCE).map(drop)
    }

    /// Tells the publisher to publish a batch from `start_ns` on, a time of CLOCK_MONOTONIC.
    pub fn publish(&mut self, batch: &Batch, start_ns: u64) -> Result<()> {
        let Batch { first, bytes, count, period } = *batch;
        let limit = PUBLISH_LIMIT.as_secs_f64();
        let period_us = period.as_micros();
        self.process
            .send_line(&format!("batch {first} {bytes} {count} {period_us} {start_ns} {limit}"))
    }

    /// Waits until publishing ends; returns the number of published messages, or `None` if it does
    /// not end.
    pub fn await_published(&mut self, batch: &Batch) -> Option<u64> {
        let count = u32::try_from(batch.count).unwrap_or(u32::MAX);
        let patience = batch.period * count + PUBLISH_LIMIT * 2;
        self.process.await_line("batch-done", patience).ok()?.parse().ok()
    }

    /// Makes a subscriber wait for a batch.
    pub fn expect(&mut self, batch: &Batch) -> Result<()> {
        let (first, count, idle) = (batch.first, batch.count, IDLE_PATIENCE.as_secs_f64());
        self.process.send_line(&format!("await {first} {count} {idle}"))
    }

    /// Returns the answer to [`Self::expect`], or `None` if the program does not answer.
    pub fn received(&mut self) -> Option<Received> {
        let said = self.process.await_line("received", ARRIVAL_LIMIT).ok()?;
        let mut words = said.split_whitespace().map(str::parse);
        let (Some(Ok(messages)), Some(Ok(deadlines))) = (words.next(), words.next()) else {
            return None;
        };
        Some(Received { messages, deadlines })
    }

    /// Makes the program write its samples.
    pub fn write(&mut self) -> Result<()> {
        self.process.send_line("write")?;
        self.process.await_line("written", WRITE_PATIENCE).map(drop)
    }

    /// Returns a file that [`Self::write`] wrote: `sent`, `received`, ...
    pub fn file(&self, kind: &str) -> PathBuf {
        let mut name = self.prefix.clone().into_os_string();
        name.push(format!(".{kind}.csv"));
        name.into()
    }

    /// Returns the process id.
    pub fn id(&self) -> u32 {
        self.process.id()
    }
}

/// One message of a batch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Message {
    /// Number within the batch.
    pub index: u64,
    /// Time of publishing.
    pub sent_ns: u64,
    /// Time of its first callback; `None` if it did not arrive.
    pub received_ns: Option<u64>,
}

impl Message {
    /// Returns the delay in milliseconds.
    pub fn delay_ms(&self) -> Option<f64> {
        self.received_ns.map(|at| at.saturating_sub(self.sent_ns) as f64 / 1e6)
    }
}

/// Reads the messages of one batch from the files of a publisher and a subscriber.
pub fn messages(sent: &Path, received: &Path, batch: &Batch) -> Result<Vec<Message>> {
    let text = std::fs::read_to_string(sent)
        .with_context(|| format!("no samples in {}", sent.display()))?;
    let within = batch.first..batch.first + BATCH;
    let mut messages = Vec::new();
    for line in text.lines().skip(1) {
        let wrong = || format!("{}: '{line}' is not two numbers", sent.display());
        let (sequence, sent_ns) = line.split_once(',').with_context(wrong)?;
        let (sequence, sent_ns): (u64, u64) =
            (sequence.parse().with_context(wrong)?, sent_ns.parse().with_context(wrong)?);
        if within.contains(&sequence) {
            let index = sequence - batch.first;
            messages.push(Message { index, sent_ns, received_ns: None });
        }
    }
    for arrival in Samples::read(sent, received)?.arrivals {
        let index = arrival.sequence.wrapping_sub(batch.first);
        let message = messages.get_mut(usize::try_from(index)?).filter(|it| it.index == index);
        if let Some(message) = message.filter(|it| it.received_ns.is_none()) {
            message.received_ns = Some(arrival.received_ns);
        }
    }
    Ok(messages)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_another_batch_and_duplicates_are_ignored() {
        let folder = tempfile::tempdir().unwrap();
        let [sent, received] = ["sent", "received"].map(|it| folder.path().join(it));
        std::fs::write(&sent, "sequence,sent_ns\n5,1\n1000000,10\n1000001,20\n").unwrap();
        let arrivals = "sequence,sent_ns,received_ns\n5,1,2\n1000001,20,27\n1000001,20,40\n";
        std::fs::write(&received, arrivals).unwrap();
        let batch = Batch { first: BATCH, bytes: 256, count: 2, period: Duration::ZERO };
        let found = messages(&sent, &received, &batch).unwrap();
        let wanted = [
            Message { index: 0, sent_ns: 10, received_ns: None },
            Message { index: 1, sent_ns: 20, received_ns: Some(27) },
        ];
        assert_eq!(found, wanted);
    }
}
