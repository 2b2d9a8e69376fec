// SPDX-License-Identifier: Apache-2.0
//! The judge: a record of its own of what was handed over for sending, held against
//! what comes out. It knows what the protocol promises (spec/protocol.md, "Messages")
//! and nothing of how it keeps that.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tautline_medium::Nanos;

/// Bytes of a message that carry its number; shorter ones are told apart by their bytes alone.
const NUMBER_BYTES: usize = 4;
/// Packets tell ages in tenths of milliseconds, rounded down.
const AGE_STEP: Duration = Duration::from_micros(100);

/// What was promised for a topic's messages.
#[derive(Debug, Clone)]
pub struct Terms {
    /// Age past which none is handed over.
    pub lifespan: Option<Duration>,
    /// So many newer ones of its source, once handed over, keep an older one out.
    pub keep_last: u32,
}

/// A message that was accepted for sending.
#[derive(Debug, Clone)]
pub struct Sent {
    /// The topic, numbered over all stations.
    pub topic: usize,
    /// The publisher.
    pub source: u32,
    /// Marked as encoded.
    pub encoded: bool,
    /// Its length in bytes.
    pub len: usize,
    /// When.
    pub at: Nanos,
    /// Whose message in whose session.
    pub era: Era,
}

/// One end of a session.
#[derive(Debug, Clone, Copy, Default)]
pub struct Era {
    /// Which life of the node, counted from 1.
    pub life: u32,
    /// When that began.
    pub life_began: Nanos,
    /// The session, by a number of its own over all nodes and lives.
    pub session: u32,
    /// When it began at this end.
    pub session_began: Nanos,
}

/// A message that was handed over to a subscriber.
#[derive(Debug, Clone)]
pub struct Delivery<'a> {
    /// The topic on whose channel it came.
    pub topic: usize,
    /// The publisher it is said to be of.
    pub source: u32,
    /// Marked as encoded.
    pub encoded: bool,
    /// Its bytes.
    pub payload: &'a [u8],
    /// How old it is said to be.
    pub age: Duration,
    /// When it was handed over.
    pub at: Nanos,
    /// How long the datagram that completed it was on its way.
    pub transit: Nanos,
    /// Whether the subscriber wants the topic at this time.
    pub wanted: bool,
    /// The subscriber's end of the session.
    pub era: Era,
}

/// The record.
#[derive(Debug, Default)]
pub struct Oracle {
    terms: Vec<Terms>,
    sent: Vec<Sent>,
    /// Numbers that were handed over.
    arrived: BTreeSet<u32>,
    /// The same, by topic and source.
    arrived_of: BTreeMap<(usize, u32), BTreeSet<u32>>,
    /// Messages too short for their number: how many were sent less how many came.
    tiny: BTreeMap<(usize, Vec<u8>), i64>,
    deliveries: Vec<u64>,
    /// The publisher's life and session that a session of a subscriber's is with.
    with: BTreeMap<u32, (u32, u32)>,
    /// The latest life of the publisher of which a topic's messages came.
    newest_life: BTreeMap<usize, u32>,
    digest: Digest,
}

impl Oracle {
    /// An empty record of topics of such terms.
    pub fn new(terms: Vec<Terms>) -> Self {
        let deliveries = vec![0; terms.len()];
        Self { terms, deliveries, ..Self::default() }
    }

    /// The bytes of the next message, if it is of such length.
    pub fn next_payload(&self, len: usize) -> Vec<u8> {
        payload(self.sent.len() as u32, len)
    }

    /// A message of [`Oracle::next_payload`] was accepted; returns its number.
    pub fn accepted(&mut self, sent: Sent) -> u32 {
        let number = self.sent.len() as u32;
        if sent.len < NUMBER_BYTES {
            let key = (sent.topic, payload(number, sent.len));
            *self.tiny.entry(key).or_default() += 1;
        }
        self.sent.push(sent);
        number
    }

    /// Whether a message has been handed over; unknown (`None`) of those without their number.
    pub fn has_arrived(&self, number: u32) -> Option<bool> {
        let numbered = self.sent.get(number as usize)?.len >= NUMBER_BYTES;
        numbered.then(|| self.arrived.contains(&number))
    }

    /// Messages handed over of a topic.
    pub fn deliveries(&self, topic: usize) -> u64 {
        self.deliveries[topic]
    }

    /// Messages accepted, of all topics.
    pub fn total_accepted(&self) -> u64 {
        self.sent.len() as u64
    }

    /// Messages handed over, of all topics.
    pub fn total_delivered(&self) -> u64 {
        self.deliveries.iter().sum()
    }

    /// A number that two runs have in common if, as far as can be told, the same was
    /// handed over at the same times.
    pub fn digest(&self) -> u64 {
        self.digest.0
    }

    /// Enters a message that was handed over, or says what is wrong with that.
    pub fn delivered(&mut self, delivery: &Delivery<'_>) -> Result<(), String> {
        self.deliveries[delivery.topic] += 1;
        self.digest.add_delivery(delivery);
        self.judge(delivery).map_err(|wrong| {
            format!("topic /{} at {:.6} s: {wrong}", delivery.topic, delivery.at as f64 / 1e9)
        })
    }

    fn judge(&mut self, delivery: &Delivery<'_>) -> Result<(), String> {
        let len = delivery.payload.len();
        if !delivery.wanted {
            return Err(format!("a message of {len} bytes came although it is not wanted"));
        }
        let Some(number) = delivery.payload.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
        else {
            return self.judge_tiny(delivery);
        };
        let Some(sent) = self.sent.get(number as usize).cloned() else {
            return Err(format!("message {number} of {len} bytes was never sent"));
        };
        judge_content(number, &sent, delivery)?;
        self.judge_lives(number, &sent, delivery)?;
        self.judge_age(number, &sent, delivery)?;
        if !self.arrived.insert(number) {
            return Err(format!("message {number} came twice"));
        }
        self.judge_order(number, &sent)
    }

    fn judge_tiny(&mut self, delivery: &Delivery<'_>) -> Result<(), String> {
        let bytes = delivery.payload.to_vec();
        let left = self.tiny.entry((delivery.topic, bytes)).or_default();
        *left -= 1;
        let more = *left < 0;
        if more {
            return Err(format!("{:?} came more often than it was sent", delivery.payload));
        }
        Ok(())
    }

    /// A session is between one life of the one and one of the other: both began before it
    /// did, and no message leads back to an earlier one.
    fn judge_lives(
        &mut self,
        number: u32,
        sent: &Sent,
        delivery: &Delivery<'_>,
    ) -> Result<(), String> {
        let (from, to) = (sent.era, delivery.era);
        if from.session_began < to.life_began {
            return Err(format!(
                "message {number} was for an earlier life of the subscriber: {from:?}, {to:?}"
            ));
        }
        let between = (from.life, from.session);
        let with = *self.with.entry(to.session).or_insert(between);
        let newest = self.newest_life.entry(delivery.topic).or_default();
        if to.session_began < from.life_began || with != between || from.life < *newest {
            return Err(format!(
                "message {number} is of another life or session of the publisher than is talked to, {with:?}: {from:?}, {to:?}"
            ));
        }
        *newest = from.life;
        Ok(())
    }

    /// The age in the last packet was within the lifespan when that was built; what it
    /// took on its way comes on top, as far as the receiver's estimate falls short.
    fn judge_age(&self, number: u32, sent: &Sent, delivery: &Delivery<'_>) -> Result<(), String> {
        let Some(lifespan) = self.terms[sent.topic].lifespan else { return Ok(()) };
        let true_age = Duration::from_nanos(delivery.at.saturating_sub(sent.at));
        let transit = Duration::from_nanos(delivery.transit);
        if delivery.age > lifespan {
            return Err(format!(
                "message {number} is said to be {:?} of {lifespan:?} old",
                delivery.age
            ));
        }
        if true_age > lifespan + transit + AGE_STEP {
            return Err(format!(
                "message {number} is {true_age:?} of {lifespan:?} old, {transit:?} of that on its last way"
            ));
        }
        Ok(())
    }

    /// Numbers are drawn in the order of acceptance and each newer message that was handed
    /// over has one of its own: after `keep_last` of them this one is late.
    fn judge_order(&mut self, number: u32, sent: &Sent) -> Result<(), String> {
        let arrived = self.arrived_of.entry((sent.topic, sent.source)).or_default();
        let newer = arrived.range(number..).count();
        arrived.insert(number);
        let keep_last = self.terms[sent.topic].keep_last.max(1);
        if newer >= keep_last as usize {
            return Err(format!(
                "message {number} came after {newer} newer ones of its source; keep_last is {keep_last}"
            ));
        }
        Ok(())
    }
}

fn judge_content(number: u32, sent: &Sent, delivery: &Delivery<'_>) -> Result<(), String> {
    let found = (delivery.topic, delivery.source, delivery.encoded);
    let expected = (sent.topic, sent.source, sent.encoded);
    if found != expected {
        return Err(format!(
            "message {number} came as (topic, source, encoded) {found:?} and was sent as {expected:?}"
        ));
    }
    if delivery.payload != payload(number, sent.len) {
        return Err(format!("bytes of message {number} differ"));
    }
    Ok(())
}

/// Bytes that name themselves and cannot be mistaken for a shifted copy.
fn payload(number: u32, len: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(u64::from(number) << 32 | len as u64);
    let mut bytes = vec![0; len];
    random.fill(&mut bytes);
    if let Some(first) = bytes.first_chunk_mut::<NUMBER_BYTES>() {
        *first = number.to_le_bytes();
    }
    bytes
}

/// FNV-1a of 64 bits (Fowler, Noll, Vo): the same on every machine and in every release.
#[derive(Debug)]
struct Digest(u64);

impl Default for Digest {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Digest {
    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    fn add_delivery(&mut self, delivery: &Delivery<'_>) {
        let Delivery { topic, source, payload, at, transit, age, .. } = delivery;
        for number in [*topic as u64, u64::from(*source), *at, *transit, age.as_nanos() as u64] {
            self.add(&number.to_le_bytes());
        }
        self.add(payload);
    }
}
