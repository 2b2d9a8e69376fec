// SPDX-License-Identifier: Apache-2.0
//! First messages that are lost when a publisher publishes immediately after its start.
//!
//! The subscriber is up first, as in the paper. The publisher publishes at 10 Hz as soon as its
//! client library returns from advertising. Each start has a new publisher, new masters and new
//! daemons.

use super::hop::{Failure, Hop, Kind, subscribed};
use super::probe::{Batch, Quality, messages};
use super::series::PERIOD;
use super::stage::Place;
use super::system::System;
use super::{Context, Part, Step, step};
use anyhow::{Context as _, Result};
use serde::Serialize;
use std::time::Duration;
use tautline_lab::rig::clock::monotonic_ns;

const MESSAGES: u64 = 20;
const QUICK_MESSAGES: u64 = 10;
const BYTES: usize = 256;
/// Number of starts of each system.
const STARTS: usize = 3;
/// Number of systems that run at the same time.
const TOGETHER: usize = 5;
/// Time between the subscribers' start and the publisher's, in which remote daemons learn of the
/// subscribers.
const HEAD_START: Duration = Duration::from_secs(2);

/// The messages that late subscribers receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Durability {
    /// None.
    Volatile,
    /// All messages; in ROS 1 the last one (latched).
    TransientLocal,
}

const DURABILITIES: [Durability; 2] = [Durability::Volatile, Durability::TransientLocal];

impl Durability {
    fn quality(self) -> Quality {
        let transient_local = self == Self::TransientLocal;
        Quality { transient_local, depth: 100, ..Quality::DEFAULT }
    }

    /// Returns the name in tables.
    pub fn title(self) -> &'static str {
        match self {
            Self::Volatile => "volatile",
            Self::TransientLocal => "transient local (ROS 1: latched)",
        }
    }
}

/// The results of all starts of one system.
#[derive(Debug, Serialize)]
pub struct Row {
    pub system: System,
    pub durability: Durability,
    /// Published messages of each start.
    pub published: u64,
    /// Number of first messages that were lost, for each start.
    pub lost: Vec<u64>,
    /// Time from the first publication to the first callback, ms. Starts without a callback are omitted.
    pub until_first_ms: Vec<f64>,
}

fn starts(context: &Context) -> usize {
    if context.quick { 1 } else { STARTS }
}

fn count(context: &Context) -> u64 {
    if context.quick { QUICK_MESSAGES } else { MESSAGES }
}

/// Returns the steps of [`run`].
pub fn steps(context: &Context) -> Vec<Step> {
    let groups =
        context.few_in_quick().len().div_ceil(TOGETHER) * starts(context) * DURABILITIES.len();
    let time = Duration::from_secs(if context.quick { 13 } else { 16 });
    vec![(step(Part::First, "first messages"), time * u32::try_from(groups).unwrap_or(0))]
}

/// Starts each system several times.
pub fn run(context: &Context, failures: &mut Vec<Failure>) -> Result<Vec<Row>> {
    context.progress.enter_next();
    let mut rows: Vec<Row> = Vec::new();
    for number in 0..starts(context) {
        for durability in DURABILITIES {
            for systems in context.few_in_quick().chunks(TOGETHER) {
                start_together(context, systems, durability, number, &mut rows, failures)?;
            }
        }
    }
    rows.sort_by_key(|it| (it.system, it.durability));
    Ok(rows)
}

fn start_together(
    context: &Context,
    systems: &[System],
    durability: Durability,
    number: usize,
    rows: &mut Vec<Row>,
    failures: &mut Vec<Failure>,
) -> Result<()> {
    let quality = durability.quality();
    let kind = Kind { part: "first", place: Place::Local, quality, subscribers: 1 };
    let run = format!("{}-{number}", durability.title().split(' ').next().unwrap_or_default());
    let mut hops = subscribed(context, &kind, systems, &run, failures);
    std::thread::sleep(HEAD_START);
    let batch = Batch { first: 0, bytes: BYTES, count: count(context), period: PERIOD };
    for hop in &mut hops {
        if let Err(error) = publish_at_once(hop, &kind, &batch) {
            failures.push(kind.failure(hop.system, &error));
        }
    }
    for mut hop in hops {
        match finish(&mut hop, &batch) {
            Ok((lost, until_ms)) => {
                let row = row_of(rows, hop.system, durability, batch.count);
                row.lost.push(lost);
                row.until_first_ms.extend(until_ms);
            }
            Err(error) => failures.push(kind.failure(hop.system, &error)),
        }
        hop.end()?;
    }
    Ok(())
}

fn publish_at_once(hop: &mut Hop, kind: &Kind, batch: &Batch) -> Result<()> {
    hop.advertise(kind, false)?;
    let publisher = hop.publisher()?;
    publisher.await_ready()?;
    publisher.publish(batch, monotonic_ns())
}

/// Returns the number of lost first messages, and the time until the first arrival.
fn finish(hop: &mut Hop, batch: &Batch) -> Result<(u64, Option<f64>)> {
    let publisher = hop.publisher()?;
    publisher.await_published(batch).context("publishing did not end")?;
    publisher.write()?;
    let sent = publisher.file("sent");
    let subscriber = hop.subscribers.first_mut().context("no subscriber")?;
    subscriber.expect(batch)?;
    subscriber.received().context("the subscriber does not answer")?;
    subscriber.write()?;
    let found = messages(&sent, &subscriber.file("received"), batch)?;
    let begin_ns = found.first().context("nothing was published")?.sent_ns;
    let lost = found.iter().take_while(|it| it.received_ns.is_none()).count() as u64;
    let first_ns = found.iter().filter_map(|it| it.received_ns).min();
    Ok((lost, first_ns.map(|at| at.saturating_sub(begin_ns) as f64 / 1e6)))
}

fn row_of(rows: &mut Vec<Row>, system: System, durability: Durability, published: u64) -> &mut Row {
    let at = rows.iter().position(|it| it.system == system && it.durability == durability);
    let at = at.unwrap_or_else(|| {
        let (lost, until_first_ms) = (Vec::new(), Vec::new());
        rows.push(Row { system, durability, published, lost, until_first_ms });
        rows.len() - 1
    });
    &mut rows[at]
}
