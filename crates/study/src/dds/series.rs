// SPDX-License-Identifier: Apache-2.0
//! Several systems that publish the same batches in turns: each system has its own slot within each
//! period, so that all run under the same machine load.

use super::breakdown::Parts;
use super::outcome::Outcome;
use super::probe::{BATCH, Batch, Message, Probe, Quality, Received, Role, Start, messages};
use super::stage::{Place, Stage};
use super::system::System;
use anyhow::Result;
use serde::Serialize;
use std::time::Duration;
use tautline_lab::rig::clock::monotonic_ns;

/// Time from the command to the first message.
const COUNTDOWN: Duration = Duration::from_millis(200);
/// Uncounted messages at the start of each batch.
pub const WARM_UP: u64 = 3;
/// Period of all series: 10 Hz as in the paper.
pub const PERIOD: Duration = Duration::from_millis(100);
/// Size from which fewer systems share a period, because a message takes longer than a small slot.
const LARGE: usize = 500_000;
/// Number of systems that share a period for large messages.
const LARGE_SHARE: usize = 2;
/// Size above which a link of 100 Mbit/s cannot carry ten messages per second.
const OVERLOAD_BYTES: usize = 1_200_000;
/// Number of messages above this size.
const OVERLOAD_COUNT: u64 = 20;

/// Maximum number of starts of a variant's programs, one after each halt.
const MAX_STARTS: usize = 3;
/// Number of starts after which no message arrived, until a variant counts as wrongly configured.
const MAX_FAILED_STARTS: usize = 2;

/// Delays of the messages that arrived, milliseconds.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Quantiles {
    pub median: f64,
    pub lower_quartile: f64,
    pub upper_quartile: f64,
    pub p99: f64,
    pub max: f64,
}

impl Quantiles {
    /// Returns the nearest-rank quantiles; `None` without delays.
    pub fn new(mut delays: Vec<f64>) -> Option<Self> {
        delays.sort_by(f64::total_cmp);
        let max = *delays.last()?;
        let at = |share: f64| {
            let rank = (share * delays.len() as f64).ceil() as usize;
            delays[rank.clamp(1, delays.len()) - 1]
        };
        Some(Self {
            median: at(0.5),
            lower_quartile: at(0.25),
            upper_quartile: at(0.75),
            p99: at(0.99),
            max,
        })
    }
}

/// The result of one system with one message size.
#[derive(Debug, Clone, Serialize)]
pub struct Cell {
    pub system: System,
    pub place: Place,
    /// Name of the quality of service; `default` outside the part on QoS.
    pub quality: String,
    pub bytes: usize,
    /// Messages to publish, without the warm-up.
    pub planned: u64,
    /// Messages that arrived.
    pub received: u64,
    /// Messages that took longer than [`super::outcome::DEADLINE_MS`].
    pub late: u64,
    /// Missed deadlines that the subscriber's middleware counted, warm-up included; `None` if no
    /// deadline was set.
    pub deadline_events: Option<u64>,
    pub delay_ms: Option<Quantiles>,
    /// Parts of the delay, in the part that measures them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parts: Option<Parts>,
    pub outcome: Outcome,
    /// Starts of the programs after which no message arrived.
    pub failed_starts: usize,
    /// The reason for a halt or for an outcome that is a configuration error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A system with one quality of service at one place.
#[derive(Debug, Clone)]
pub struct Variant {
    pub system: System,
    pub place: Place,
    /// Name of the quality in tables.
    pub name: String,
    pub quality: Quality,
    /// Whether the probes measure the parts of the delay.
    pub timed: bool,
}

impl Variant {
    /// Returns a system with the default quality.
    pub fn new(system: System, place: Place) -> Self {
        Self { system, place, name: "default".into(), quality: Quality::DEFAULT, timed: false }
    }

    fn label(&self) -> String {
        format!("{}-{}-{}", self.place.name(), self.system.name(), self.name.replace(' ', "-"))
    }

    /// Returns the cell of a case that the system does not have.
    pub fn unsupported(&self, bytes: usize) -> Cell {
        Cell { outcome: Outcome::Unsupported, ..self.cell(bytes, 0) }
    }

    fn cell(&self, bytes: usize, planned: u64) -> Cell {
        Cell {
            system: self.system,
            place: self.place,
            quality: self.name.clone(),
            bytes,
            planned,
            received: 0,
            late: 0,
            deadline_events: None,
            delay_ms: None,
            parts: None,
            outcome: Outcome::ConfigurationError,
            failed_starts: 0,
            error: None,
        }
    }
}

/// A variant with its running probes.
struct Runner {
    variant: Variant,
    stage: Stage,
    probes: Option<Probes>,
    starts: usize,
    failed_starts: usize,
    error: Option<String>,
}

struct Probes {
    publisher: Probe,
    /// `None` in one process.
    subscriber: Option<Probe>,
    /// Whether the first message has arrived.
    connected: bool,
}

impl Probes {
    fn start(stage: &Stage, variant: &Variant, number: usize) -> Result<Self> {
        let start = |role| Start { timed: variant.timed, ..Start::for_role(role, variant.quality) };
        if stage.place == Place::InProcess {
            let publisher = Probe::start(stage, start(Role::Both), &format!("both-{number}"))?;
            return Ok(Self { publisher, subscriber: None, connected: false });
        }
        let subscriber =
            Probe::start(stage, start(Role::Subscribe), &format!("subscriber-{number}"))?;
        let publisher = Probe::start(stage, start(Role::Publish), &format!("publisher-{number}"))?;
        Ok(Self { publisher, subscriber: Some(subscriber), connected: false })
    }

    fn await_first(&mut self) -> Result<()> {
        if self.connected {
            return Ok(());
        }
        self.publisher.await_ready()?;
        if let Some(subscriber) = &mut self.subscriber {
            subscriber.await_ready()?;
        }
        self.receiver().await_first()?;
        self.connected = true;
        Ok(())
    }

    fn receiver(&mut self) -> &mut Probe {
        self.subscriber.as_mut().unwrap_or(&mut self.publisher)
    }

    fn write(&mut self) -> Result<()> {
        self.publisher.write()?;
        self.subscriber.as_mut().map_or(Ok(()), Probe::write)
    }

    /// Returns the parts of the delay of messages from [`Self::finish`].
    fn parts(&mut self, messages: &[Message], first: u64) -> Result<Option<Parts>> {
        let sent = self.publisher.file("sent-parts");
        let received = self.receiver().file("received-parts");
        if messages.is_empty() {
            return Ok(None);
        }
        Parts::from_messages(messages, &sent, &received, first)
    }

    /// Ends a batch; the number of published messages is `None` after a halt.
    fn finish(&mut self, batch: &Batch) -> Result<(Option<u64>, Received, Vec<Message>)> {
        let Some(sent) = self.publisher.await_published(batch) else {
            return Ok((None, Received::default(), Vec::new()));
        };
        let expected = Batch { count: sent, ..*batch };
        self.receiver().expect(&expected)?;
        let Some(received) = self.receiver().received() else {
            return Ok((None, Received::default(), Vec::new()));
        };
        self.write()?;
        let sent_file = self.publisher.file("sent");
        let received_file = self.receiver().file("received");
        Ok((Some(sent), received, messages(&sent_file, &received_file, batch)?))
    }
}

impl Runner {
    fn ensure_started(&mut self) {
        if self.probes.is_none() && self.error.is_none() && self.starts < MAX_STARTS {
            self.starts += 1;
            match Probes::start(&self.stage, &self.variant, self.starts) {
                Ok(probes) => self.probes = Some(probes),
                Err(error) => self.fail(&error),
            }
        }
    }

    fn await_first(&mut self) {
        if let Some(probes) = &mut self.probes
            && let Err(error) = probes.await_first()
        {
            self.fail_to_start(&error);
        }
    }

    /// Records a start after which no message arrived. After the last such start, all further cells of the
    /// variant have the error.
    fn fail_to_start(&mut self, error: &anyhow::Error) {
        self.failed_starts += 1;
        self.stage.write_statuses(self.failed_starts);
        self.fail(error);
        if self.failed_starts < MAX_FAILED_STARTS {
            self.error = None;
        }
    }

    fn fail(&mut self, error: &anyhow::Error) {
        eprintln!("tautline-lab: {}: {error:#}", self.variant.label());
        self.error = Some(format!("{error:#}"));
        self.probes = None;
    }

    fn begin(&mut self, batch: &Batch, start_ns: u64) {
        if let Some(probes) = &mut self.probes
            && let Err(error) = probes.publisher.publish(batch, start_ns)
        {
            self.fail(&error);
        }
    }

    fn finish(&mut self, batch: &Batch) -> Cell {
        let planned = batch.count - WARM_UP;
        let mut cell = self.variant.cell(batch.bytes, planned);
        cell.failed_starts = self.failed_starts;
        let Some(probes) = &mut self.probes else {
            cell.error = self.error.clone();
            if cell.error.is_none() {
                cell.outcome = Outcome::Halt;
                cell.error = Some(format!("not tried after {MAX_STARTS} halts"));
            }
            return cell;
        };
        let (sent, received, messages) = match probes.finish(batch) {
            Ok(found) => found,
            Err(error) => {
                cell.error = Some(format!("{error:#}"));
                (None, Received::default(), Vec::new())
            }
        };
        let counted: Vec<Message> = messages.into_iter().filter(|it| it.index >= WARM_UP).collect();
        if self.variant.timed {
            match probes.parts(&counted, batch.first) {
                Ok(parts) => cell.parts = parts,
                Err(error) => cell.error = Some(format!("{error:#}")),
            }
        }
        let delays: Vec<f64> = counted.iter().filter_map(Message::delay_ms).collect();
        cell.received = delays.len() as u64;
        let is_late = |delay: &&f64| **delay > super::outcome::DEADLINE_MS;
        cell.late = delays.iter().filter(is_late).count() as u64;
        if self.variant.quality.deadline_ms > 0 {
            cell.deadline_events = Some(received.deadlines);
        }
        cell.outcome = Outcome::new(planned, sent.map(|it| it.saturating_sub(WARM_UP)), &delays);
        cell.delay_ms = Quantiles::new(delays);
        if cell.outcome == Outcome::Halt || cell.received == 0 {
            // End the programs, so that queued messages do not disturb the next size.
            self.probes = None;
        }
        cell
    }
}

/// Variants that run together.
pub struct Group {
    runners: Vec<Runner>,
}

impl Group {
    /// Starts everything. A variant that fails is reported in its cells, and does not stop others.
    pub fn start(variants: &[Variant], context: &super::Context, part: &str) -> Result<Self> {
        let mut runners = Vec::new();
        for variant in variants {
            let folder = context.folder(part).join(variant.label());
            let number = context.next_number();
            let stage =
                Stage::new(variant.system, variant.place, number, &context.daemons, folder)?;
            let variant = variant.clone();
            runners.push(Runner {
                variant,
                stage,
                probes: None,
                starts: 0,
                failed_starts: 0,
                error: None,
            });
        }
        for runner in &mut runners {
            if let Err(error) = runner.stage.await_ready() {
                runner.fail(&error);
            }
        }
        Ok(Self { runners })
    }

    /// Publishes a batch of `count` messages of each size over all variants; returns their cells.
    pub fn run(&mut self, sizes: &[usize], count: u64) -> Vec<Cell> {
        let mut cells = Vec::new();
        for (number, &bytes) in sizes.iter().enumerate() {
            self.start_probes();
            let first = number as u64 * BATCH;
            // Rotate the order, so that no variant always follows the same variant.
            self.runners.rotate_left(1);
            let together = if bytes < LARGE { self.runners.len() } else { LARGE_SHARE };
            for runners in self.runners.chunks_mut(together) {
                cells.extend(in_turns(runners, first, bytes, count));
            }
        }
        cells
    }

    fn start_probes(&mut self) {
        for _ in 0..MAX_FAILED_STARTS {
            self.runners.iter_mut().for_each(Runner::ensure_started);
            self.runners.iter_mut().for_each(Runner::await_first);
        }
    }

    /// Ends the daemons; probes and masters end with the group.
    pub fn end(self) -> Result<()> {
        for runner in self.runners {
            drop(runner.probes);
            runner.stage.end()?;
        }
        Ok(())
    }
}

/// Publishes a batch over each runner, each in its slot of the period.
fn in_turns(runners: &mut [Runner], first: u64, bytes: usize, count: u64) -> Vec<Cell> {
    let slot = PERIOD.as_nanos() as u64 / runners.len() as u64;
    let start_ns = monotonic_ns() + COUNTDOWN.as_nanos() as u64;
    let batch = |runner: &Runner| Batch {
        first,
        bytes,
        count: WARM_UP + messages_of(runner.variant.place, bytes, count),
        period: PERIOD,
    };
    for (runner, turn) in runners.iter_mut().zip(0..) {
        let batch = batch(runner);
        runner.begin(&batch, start_ns + turn * slot);
    }
    runners
        .iter_mut()
        .map(|runner| {
            let batch = batch(runner);
            runner.finish(&batch)
        })
        .collect()
}

fn messages_of(place: Place, bytes: usize, count: u64) -> u64 {
    if place == Place::Wire && bytes > OVERLOAD_BYTES { count.min(OVERLOAD_COUNT) } else { count }
}

/// Returns the expected duration of [`Group::run`].
pub fn duration(variants: usize, sizes: &[usize], count: u64) -> Duration {
    let rounds = |bytes: &usize| if *bytes < LARGE { 1 } else { variants.div_ceil(LARGE_SHARE) };
    let rounds: usize = sizes.iter().map(rounds).sum();
    let batch = PERIOD * u32::try_from(count + WARM_UP).unwrap_or(u32::MAX) + COUNTDOWN;
    Duration::from_secs(6) + batch * u32::try_from(rounds).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_measured_values() {
        let quantiles = Quantiles::new((1..=100).rev().map(f64::from).collect()).unwrap();
        let found = [quantiles.lower_quartile, quantiles.median, quantiles.upper_quartile];
        assert_eq!(found, [25.0, 50.0, 75.0]);
        assert_eq!((quantiles.p99, quantiles.max), (99.0, 100.0));
        assert!(Quantiles::new(Vec::new()).is_none());
    }

    #[test]
    fn an_overloaded_wire_gets_fewer_messages() {
        assert_eq!(messages_of(Place::Wire, 4_000_000, 100), OVERLOAD_COUNT);
        assert_eq!(messages_of(Place::Local, 4_000_000, 100), 100);
    }
}
