// SPDX-License-Identifier: Apache-2.0
//! Bytes per second that arrive when messages are published as fast as the system accepts them.
//!
//! The rate is measured between the first and last arrival. One system runs at a time; rounds
//! repeat all systems in turns. The history keeps all messages, so publishing blocks at a system's
//! limit.

use super::hop::{Failure, Hop, Kind, connected};
use super::probe::{BATCH, Batch, Quality, messages};
use super::stage::Place;
use super::system::System;
use super::{Context, Part, Step, step};
use anyhow::{Context as _, Result};
use serde::Serialize;
use std::time::Duration;
use tautline_lab::rig::clock::monotonic_ns;

/// Bytes of a message, the number of messages in a full run, and the number in a quick run.
const SIZES: [(usize, u64, u64); 2] = [(1000, 3000, 1000), (1_000_000, 30, 10)];
const ROUNDS: usize = 3;
const PLACES: [Place; 2] = [Place::Local, Place::Wire];
/// Number of systems whose programs run at the same time; they publish one after another.
const TOGETHER: usize = 5;
const COUNTDOWN: Duration = Duration::from_millis(100);

/// The rates of one system with one size.
#[derive(Debug, Serialize)]
pub struct Row {
    pub system: System,
    pub place: Place,
    pub bytes: usize,
    /// 10^6 bytes per second of each round.
    pub megabytes_per_s: Vec<f64>,
    /// Messages of all rounds.
    pub published: u64,
    /// Of these, messages that arrived.
    pub received: u64,
}

fn groups(context: &Context) -> Vec<(Place, Vec<System>)> {
    let places = if context.quick { &PLACES[1..] } else { &PLACES[..] };
    let of = |place: &Place| {
        let fits = |it: &System| *place == Place::Local || it.is_networked();
        let here: Vec<System> = context.few_in_quick().into_iter().filter(fits).collect();
        here.chunks(TOGETHER).map(|it| (*place, it.to_vec())).collect::<Vec<_>>()
    };
    places.iter().flat_map(of).collect()
}

fn rounds(context: &Context) -> usize {
    if context.quick { 1 } else { ROUNDS }
}

/// Returns the steps of [`run`].
pub fn steps(context: &Context) -> Vec<Step> {
    let of = |(place, systems): (Place, Vec<System>)| {
        let batches = u32::try_from(systems.len() * rounds(context)).unwrap_or(0);
        let each = Duration::from_secs(if context.quick { 2 } else { 6 });
        let title = format!("throughput, {}", place.title());
        (step(Part::Throughput, &title), Duration::from_secs(8) + each * batches)
    };
    groups(context).into_iter().map(of).collect()
}

/// Measures all systems at all places.
pub fn run(context: &Context, failures: &mut Vec<Failure>) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (place, systems) in groups(context) {
        context.progress.enter_next();
        let kind = Kind { part: "throughput", place, quality: Quality::ALL, subscribers: 1 };
        let mut hops = connected(context, &kind, &systems, failures);
        let mut of_group: Vec<Row> = hops.iter().flat_map(|it| empty(it.system, place)).collect();
        for round in 0..rounds(context) {
            for hop in &mut hops {
                if let Err(error) = one_round(context, hop, round, &mut of_group) {
                    failures.push(kind.failure(hop.system, &error));
                }
            }
        }
        hops.iter().for_each(|it| it.stage.write_statuses(0));
        hops.into_iter().try_for_each(Hop::end)?;
        rows.extend(of_group);
    }
    rows.sort_by_key(|it| (it.place, it.system, it.bytes));
    Ok(rows)
}

fn empty(system: System, place: Place) -> [Row; 2] {
    let row = |(bytes, ..): (usize, u64, u64)| {
        let megabytes_per_s = Vec::new();
        Row { system, place, bytes, megabytes_per_s, published: 0, received: 0 }
    };
    SIZES.map(row)
}

fn one_round(context: &Context, hop: &mut Hop, round: usize, rows: &mut [Row]) -> Result<()> {
    for (at, (bytes, full, quick)) in SIZES.into_iter().enumerate() {
        let count = if context.quick { quick } else { full };
        let first = (round * SIZES.len() + at) as u64 * BATCH;
        let batch = Batch { first, bytes, count, period: Duration::ZERO };
        let (published, arrivals) =
            flood(hop, &batch).with_context(|| format!("{bytes} bytes, round {}", round + 1))?;
        let row = rows.iter_mut().find(|it| it.system == hop.system && it.bytes == bytes);
        let row = row.context("no row")?;
        row.published += published;
        row.received += arrivals.len() as u64;
        row.megabytes_per_s.extend(rate(&arrivals, bytes));
    }
    Ok(())
}

/// Publishes a batch as fast as possible; returns the number of published messages, and the times of
/// the arrivals in nanoseconds.
fn flood(hop: &mut Hop, batch: &Batch) -> Result<(u64, Vec<u64>)> {
    let publisher = hop.publisher()?;
    publisher.publish(batch, monotonic_ns() + COUNTDOWN.as_nanos() as u64)?;
    let published = publisher.await_published(batch).context("publishing did not end")?;
    publisher.write()?;
    let sent = publisher.file("sent");
    let subscriber = hop.subscribers.first_mut().context("no subscriber")?;
    subscriber.expect(&Batch { count: published, ..*batch })?;
    subscriber.received().context("the subscriber does not answer")?;
    subscriber.write()?;
    let found = messages(&sent, &subscriber.file("received"), batch)?;
    Ok((published, found.iter().filter_map(|it| it.received_ns).collect()))
}

/// Returns 10^6 bytes per second between the first and the last of the arrivals.
fn rate(arrivals: &[u64], bytes: usize) -> Option<f64> {
    let (first, last) = (arrivals.iter().min()?, arrivals.iter().max()?);
    let after_first = (arrivals.len() - 1) as f64 * bytes as f64;
    (last > first).then(|| after_first * 1e3 / (last - first) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_message_starts_the_interval_and_is_not_counted() {
        // Two messages of 1 MB after the first, in one second.
        assert_eq!(rate(&[5, 1_000_000_005, 500_000_000], 1_000_000), Some(2.0));
        assert_eq!(rate(&[5], 1000), None);
        assert_eq!(rate(&[], 1000), None);
    }
}
