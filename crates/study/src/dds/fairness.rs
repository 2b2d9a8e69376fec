// SPDX-License-Identifier: Apache-2.0
//! Whether five subscribers of one publisher get a message at the same time.

use super::hop::{Failure, Hop, Kind, connected};
use super::probe::{Batch, Message, Quality, messages};
use super::series::WARM_UP;
use super::stage::Place;
use super::system::System;
use super::{Context, Part, Step, step};
use anyhow::{Context as _, Result};
use serde::Serialize;
use std::time::Duration;
use tautline_lab::rig::clock::monotonic_ns;
use tautline_lab::rig::stats::median;

/// Subscribers, as in the paper.
pub const SUBSCRIBERS: usize = 5;
/// Bytes of a message. At this size, the paper's fifth subscriber needed twice the time of the first.
const BYTES: usize = 1_000_000;
const MESSAGES: u64 = 50;
const QUICK_MESSAGES: u64 = 8;
/// Systems that share a period; each has six programs.
const TOGETHER: usize = 4;
/// Period of each system, longer than elsewhere: a message to five subscribers takes longer than to one.
const PERIOD: Duration = Duration::from_millis(600);
const COUNTDOWN: Duration = Duration::from_millis(300);
const SYSTEMS: [System; 8] = [
    System::Rospy,
    System::Roscpp,
    System::RclpyUdp,
    System::Tautline11,
    System::RclpyShm,
    System::Cyclone,
    System::Zenoh,
    System::Tautline22,
];

/// The five subscribers of one system.
#[derive(Debug, Serialize)]
pub struct Row {
    pub system: System,
    pub bytes: usize,
    /// Median delay of each subscriber over its messages, ms, ascending.
    pub medians_ms: Vec<f64>,
    /// Messages that did not arrive, over all subscribers.
    pub lost: u64,
}

fn count(context: &Context) -> u64 {
    WARM_UP + if context.quick { QUICK_MESSAGES } else { MESSAGES }
}

fn groups(context: &Context) -> Vec<Vec<System>> {
    let here: Vec<System> = SYSTEMS.into_iter().filter(|it| context.systems.contains(it)).collect();
    let groups = here.chunks(TOGETHER).map(<[System]>::to_vec);
    groups.take(if context.quick { 1 } else { usize::MAX }).collect()
}

/// Returns the steps of [`run`].
pub fn steps(context: &Context) -> Vec<Step> {
    let messages = PERIOD * u32::try_from(count(context)).unwrap_or(0);
    let time = messages + Duration::from_secs(15);
    groups(context).iter().map(|_| (step(Part::Fairness, "five subscribers"), time)).collect()
}

/// Publishes to five subscribers over each system.
pub fn run(context: &Context, failures: &mut Vec<Failure>) -> Result<Vec<Row>> {
    let quality = Quality::DEFAULT;
    let kind = Kind { part: "fairness", place: Place::Local, quality, subscribers: SUBSCRIBERS };
    let batch = Batch { first: 0, bytes: BYTES, count: count(context), period: PERIOD };
    let mut rows = Vec::new();
    for systems in groups(context) {
        context.progress.enter_next();
        let mut hops = connected(context, &kind, &systems, failures);
        let start_ns = monotonic_ns() + COUNTDOWN.as_nanos() as u64;
        let slot = PERIOD.as_nanos() as u64 / hops.len().max(1) as u64;
        for (hop, turn) in hops.iter_mut().zip(0..) {
            hop.publisher()?.publish(&batch, start_ns + turn * slot)?;
        }
        for mut hop in hops {
            match finish(&mut hop, &batch) {
                Ok(row) => rows.push(row),
                Err(error) => failures.push(kind.failure(hop.system, &error)),
            }
            hop.end()?;
        }
    }
    rows.sort_by_key(|it| it.system);
    Ok(rows)
}

fn finish(hop: &mut Hop, batch: &Batch) -> Result<Row> {
    let system = hop.system;
    let publisher = hop.publisher()?;
    publisher.await_published(batch).context("publishing did not end")?;
    publisher.write()?;
    let sent = publisher.file("sent");
    let (mut medians_ms, mut lost) = (Vec::new(), 0);
    for subscriber in &mut hop.subscribers {
        subscriber.expect(batch)?;
        subscriber.received().context("a subscriber does not answer")?;
        subscriber.write()?;
        let found = messages(&sent, &subscriber.file("received"), batch)?;
        let counted = || found.iter().filter(|it| it.index >= WARM_UP);
        lost += counted().filter(|it| it.received_ns.is_none()).count() as u64;
        medians_ms.extend(median(counted().filter_map(Message::delay_ms)));
    }
    medians_ms.sort_by(f64::total_cmp);
    Ok(Row { system, bytes: batch.bytes, medians_ms, lost })
}
