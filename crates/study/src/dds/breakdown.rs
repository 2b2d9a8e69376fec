// SPDX-License-Identifier: Apache-2.0
//! The parts of a message's delay: serialization, middleware, deserialization, and the remainder.
//!
//! The probes record the durations of serialization and deserialization, and when the client
//! library received the message. The middleware's part is the time between the end of serialization
//! and this reception: with Tautline it includes both gateways, both daemons and the path between
//! them. The remainder is the time from the reception to the callback, without deserialization.
//! With rclpy, the probe publishes and receives bytes: it serializes and deserializes itself, by the
//! library's functions.

use super::probe::Message;
use super::series::{Cell, Group, Variant, duration};
use super::stage::Place;
use super::system::System;
use super::{Context, Part, Step, step};
use anyhow::{Context as _, Result};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;
use tautline_lab::rig::stats::median;

/// Systems whose probes can measure the parts: the Python client libraries with a serialization.
const SYSTEMS: [System; 6] = [
    System::Rospy,
    System::RclpyShm,
    System::RclpyUdp,
    System::Cyclone,
    System::Tautline11,
    System::Tautline22,
];
const SIZES: [usize; 4] = [256, 64_000, 1_000_000, 4_000_000];
const QUICK_SIZES: [usize; 2] = [1000, 1_000_000];
const MESSAGES: u64 = 100;
const QUICK_MESSAGES: u64 = 8;

/// Medians of the parts of the delay, ms.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Parts {
    pub serialize_ms: f64,
    pub middleware_ms: f64,
    pub deserialize_ms: f64,
    pub rest_ms: f64,
}

impl Parts {
    /// Returns the medians over messages; `None` if no message has all parts. `sent` and `received` are the
    /// probes' files, and `first` is the number of the batch's first message.
    pub fn from_messages(
        messages: &[Message],
        sent: &Path,
        received: &Path,
        first: u64,
    ) -> Result<Option<Self>> {
        let (sent, received) = (rows(sent)?, rows(received)?);
        let parts = |message: &Message| {
            let number = first + message.index;
            let ([serialize, _], [arrived, deserialize]) =
                (sent.get(&number)?, received.get(&number)?);
            Some(split(message, *serialize, *arrived, *deserialize, message.received_ns?))
        };
        let of: Vec<[f64; 4]> = messages.iter().filter_map(parts).collect();
        let at = |part: usize| median(of.iter().map(|it| it[part]));
        let all = (at(0), at(1), at(2), at(3));
        let (Some(serialize_ms), Some(middleware_ms), Some(deserialize_ms), Some(rest_ms)) = all
        else {
            return Ok(None);
        };
        Ok(Some(Self { serialize_ms, middleware_ms, deserialize_ms, rest_ms }))
    }
}

/// Splits the delay of one message into its four parts in milliseconds: serialization, middleware,
/// deserialization and the remainder.
fn split(
    message: &Message,
    serialize_ns: u64,
    arrived_ns: u64,
    deserialize_ns: u64,
    received_ns: u64,
) -> [f64; 4] {
    let [serialize, deserialize] = [serialize_ns, deserialize_ns].map(|it| it as f64 / 1e6);
    let until_arrived = (arrived_ns as f64 - message.sent_ns as f64) / 1e6;
    let after = (received_ns as f64 - arrived_ns as f64) / 1e6;
    [serialize, until_arrived - serialize, deserialize, after - deserialize]
}

/// Reads rows of a message number and two numbers.
fn rows(file: &Path) -> Result<BTreeMap<u64, [u64; 2]>> {
    let text = std::fs::read_to_string(file)
        .with_context(|| format!("no samples in {}", file.display()))?;
    let row = |line: &str| {
        let mut numbers = line.split(',').map(str::parse::<u64>);
        match (numbers.next(), numbers.next(), numbers.next()) {
            (Some(Ok(number)), Some(Ok(one)), Some(Ok(other))) => Ok((number, [one, other])),
            _ => anyhow::bail!("{}: '{line}' is not three whole numbers", file.display()),
        }
    };
    text.lines().skip(1).map(row).collect()
}

fn variants(context: &Context) -> Vec<Variant> {
    let here = SYSTEMS.into_iter().filter(|it| context.systems.contains(it));
    here.map(|it| Variant { timed: true, ..Variant::new(it, Place::Local) }).collect()
}

fn plan(context: &Context) -> (&'static [usize], u64) {
    if context.quick { (&QUICK_SIZES, QUICK_MESSAGES) } else { (&SIZES, MESSAGES) }
}

/// Returns the steps of [`run`].
pub fn steps(context: &Context) -> Vec<Step> {
    let (sizes, count) = plan(context);
    let time = duration(variants(context).len(), sizes, count);
    vec![(step(Part::Breakdown, "where the time goes"), time)]
}

/// Measures all sizes; the systems run together.
pub fn run(context: &Context) -> Result<Vec<Cell>> {
    context.progress.enter_next();
    let (sizes, count) = plan(context);
    let mut group = Group::start(&variants(context), context, "breakdown")?;
    let mut cells = group.run(sizes, count);
    group.end()?;
    cells.sort_by_key(|it| (it.system, it.bytes));
    Ok(cells)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_add_up_to_the_delay() {
        let received_ns = Some(10_000_000);
        let message = Message { index: 0, sent_ns: 1_000_000, received_ns };
        let parts = split(&message, 2_000_000, 6_000_000, 3_000_000, 10_000_000);
        assert_eq!(parts, [2.0, 3.0, 3.0, 1.0]);
        assert_eq!(Some(parts.iter().sum()), message.delay_ms());
    }
}
