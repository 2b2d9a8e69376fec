// SPDX-License-Identifier: Apache-2.0
//! The oracle: an independent record of accepted messages, compared with the deliveries. It knows
//! the guarantees of the protocol (spec/protocol.md, "Messages") and nothing of its implementation.

use anyhow::{Result, anyhow, bail};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tautline_medium::Nanos;

/// Bytes of a message that hold its number; shorter messages are identified only by their bytes.
const NUMBER_BYTES: usize = 4;
/// Resolution of ages in packets: tenths of milliseconds, rounded down.
const AGE_STEP: Duration = Duration::from_micros(100);

/// Guarantees for a topic's messages.
#[derive(Debug, Clone)]
pub struct Terms {
    /// Age past which no message is delivered.
    pub lifespan: Option<Duration>,
    /// Number of newer delivered messages of its source after which an older one is not delivered.
    pub keep_last: u32,
    /// Whether no message may be delivered after a newer one of its source.
    pub in_order: bool,
}

/// A message that was accepted for sending.
#[derive(Debug, Clone)]
pub struct Sent {
    /// Topic, numbered over all stations.
    pub topic: usize,
    /// Publisher.
    pub source: u32,
    /// Whether it is marked as encoded.
    pub encoded: bool,
    /// Length in bytes.
    pub len: usize,
    /// Time of acceptance.
    pub at: Nanos,
    /// The publisher's end of the session.
    pub era: Era,
}

/// One end of a session.
#[derive(Debug, Clone, Copy, Default)]
pub struct Era {
    /// Restart counter of the node, from 1.
    pub life: u32,
    /// Time of that start.
    pub life_began: Nanos,
    /// Number of the session, unique over all nodes and restarts.
    pub session: u32,
    /// Time at which the session began at this end.
    pub session_began: Nanos,
}

/// A message delivered to a subscriber.
#[derive(Debug, Clone)]
pub struct Delivery<'a> {
    /// Topic of the channel on which it arrived.
    pub topic: usize,
    /// Publisher according to the packet.
    pub source: u32,
    /// Whether it is marked as encoded.
    pub encoded: bool,
    /// Payload.
    pub payload: &'a [u8],
    /// Age according to the packet.
    pub age: Duration,
    /// Time of delivery.
    pub at: Nanos,
    /// Transit time of the datagram that completed it.
    pub transit: Nanos,
    /// Whether the subscriber is subscribed at this time.
    pub wanted: bool,
    /// The subscriber's end of the session.
    pub era: Era,
}

/// The record of messages.
#[derive(Debug, Default)]
pub struct Oracle {
    terms: Vec<Terms>,
    sent: Vec<Sent>,
    /// Numbers of delivered messages.
    arrived: BTreeSet<u32>,
    /// Numbers of delivered messages, by topic and source.
    arrived_of: BTreeMap<(usize, u32), BTreeSet<u32>>,
    /// Messages too short for a number: number sent minus number delivered.
    tiny: BTreeMap<(usize, Vec<u8>), i64>,
    deliveries: Vec<u64>,
    /// The publisher's restart counter and session, by the subscriber's session.
    with: BTreeMap<u32, (u32, u32)>,
    /// The latest restart counter of the publisher of delivered messages, by topic.
    newest_life: BTreeMap<usize, u32>,
    digest: Digest,
}

impl Oracle {
    /// Creates an empty record of topics with these guarantees.
    pub fn new(terms: Vec<Terms>) -> Self {
        let deliveries = vec![0; terms.len()];
        Self { terms, deliveries, ..Self::default() }
    }

    /// Returns the bytes of the next message, for this length.
    pub fn next_payload(&self, len: usize) -> Vec<u8> {
        payload(self.sent.len() as u32, len)
    }

    /// Records an accepted message of [`Oracle::next_payload`]; returns its number.
    pub fn record_accepted(&mut self, sent: Sent) -> u32 {
        let number = self.sent.len() as u32;
        if sent.len < NUMBER_BYTES {
            let key = (sent.topic, payload(number, sent.len));
            *self.tiny.entry(key).or_default() += 1;
        }
        self.sent.push(sent);
        number
    }

    /// Whether a message was delivered; `None` for messages without a number.
    pub fn has_arrived(&self, number: u32) -> Option<bool> {
        let numbered = self.sent.get(number as usize)?.len >= NUMBER_BYTES;
        numbered.then(|| self.arrived.contains(&number))
    }

    /// Returns the number of deliveries of a topic.
    pub fn deliveries(&self, topic: usize) -> u64 {
        self.deliveries[topic]
    }

    /// Returns the number of accepted messages of all topics.
    pub fn total_accepted(&self) -> u64 {
        self.sent.len() as u64
    }

    /// Returns the number of deliveries of all topics.
    pub fn total_delivered(&self) -> u64 {
        self.deliveries.iter().sum()
    }

    /// Returns a hash of all deliveries and their times; equal runs have equal hashes.
    pub fn digest(&self) -> u64 {
        self.digest.0
    }

    /// Records a delivery; returns an error if it violates a guarantee.
    pub fn record_delivery(&mut self, delivery: &Delivery<'_>) -> Result<()> {
        self.deliveries[delivery.topic] += 1;
        self.digest.add_delivery(delivery);
        self.judge(delivery).map_err(|wrong| {
            anyhow!("topic /{} at {:.6} s: {wrong}", delivery.topic, delivery.at as f64 / 1e9)
        })
    }

    fn judge(&mut self, delivery: &Delivery<'_>) -> Result<()> {
        let len = delivery.payload.len();
        if !delivery.wanted {
            bail!("a message of {len} bytes arrived without a subscription");
        }
        let Some(number) = delivery.payload.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
        else {
            return self.judge_tiny(delivery);
        };
        let Some(sent) = self.sent.get(number as usize).cloned() else {
            bail!("message {number} of {len} bytes was never sent");
        };
        judge_content(number, &sent, delivery)?;
        self.judge_lives(number, &sent, delivery)?;
        self.judge_age(number, &sent, delivery)?;
        if !self.arrived.insert(number) {
            bail!("message {number} came twice");
        }
        self.judge_order(number, &sent)
    }

    fn judge_tiny(&mut self, delivery: &Delivery<'_>) -> Result<()> {
        let bytes = delivery.payload.to_vec();
        let left = self.tiny.entry((delivery.topic, bytes)).or_default();
        *left -= 1;
        let more = *left < 0;
        if more {
            bail!("{:?} arrived more often than it was sent", delivery.payload);
        }
        Ok(())
    }

    /// A session connects one start of each of two nodes. Both starts precede the session, and no
    /// later message belongs to an earlier start.
    fn judge_lives(&mut self, number: u32, sent: &Sent, delivery: &Delivery<'_>) -> Result<()> {
        let (from, to) = (sent.era, delivery.era);
        if from.session_began < to.life_began {
            bail!("message {number} was for an earlier start of the subscriber: {from:?}, {to:?}");
        }
        let between = (from.life, from.session);
        let with = *self.with.entry(to.session).or_insert(between);
        let newest = self.newest_life.entry(delivery.topic).or_default();
        if to.session_began < from.life_began || with != between || from.life < *newest {
            bail!(
                "message {number} is of a start or session of the publisher other than {with:?}: {from:?}, {to:?}"
            );
        }
        *newest = from.life;
        Ok(())
    }

    /// The age was within the lifespan when the last packet was built. The packet's transit time
    /// adds to it, as far as the receiver's estimate is too low.
    fn judge_age(&self, number: u32, sent: &Sent, delivery: &Delivery<'_>) -> Result<()> {
        let Some(lifespan) = self.terms[sent.topic].lifespan else { return Ok(()) };
        let true_age = Duration::from_nanos(delivery.at.saturating_sub(sent.at));
        let transit = Duration::from_nanos(delivery.transit);
        if delivery.age > lifespan {
            bail!(
                "message {number} has a reported age of {:?}, lifespan {lifespan:?}",
                delivery.age
            );
        }
        if true_age > lifespan + transit + AGE_STEP {
            bail!(
                "message {number} has an age of {true_age:?}, lifespan {lifespan:?}, {transit:?} of it on the last hop"
            );
        }
        Ok(())
    }

    /// Checks that not too many newer messages of the source were delivered before this one: `keep_last`,
    /// or one if the topic is in order. Numbers are in the order of acceptance.
    fn judge_order(&mut self, number: u32, sent: &Sent) -> Result<()> {
        let arrived = self.arrived_of.entry((sent.topic, sent.source)).or_default();
        let newer = arrived.range(number..).count();
        arrived.insert(number);
        let Terms { keep_last, in_order, .. } = self.terms[sent.topic];
        if in_order && newer > 0 {
            bail!("message {number} of a topic in order arrived after {newer} newer ones");
        }
        if newer >= keep_last.max(1) as usize {
            bail!(
                "message {number} arrived after {newer} newer ones of its source; keep_last is {keep_last}"
            );
        }
        Ok(())
    }
}

fn judge_content(number: u32, sent: &Sent, delivery: &Delivery<'_>) -> Result<()> {
    let found = (delivery.topic, delivery.source, delivery.encoded);
    let expected = (sent.topic, sent.source, sent.encoded);
    if found != expected {
        bail!(
            "message {number} arrived as (topic, source, encoded) {found:?}, but was sent as {expected:?}"
        );
    }
    if delivery.payload != payload(number, sent.len) {
        bail!("bytes of message {number} differ");
    }
    Ok(())
}

/// Returns bytes that identify the message and differ from any shifted copy.
fn payload(number: u32, len: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(u64::from(number) << 32 | len as u64);
    let mut bytes = vec![0; len];
    random.fill(&mut bytes);
    if let Some(first) = bytes.first_chunk_mut::<NUMBER_BYTES>() {
        *first = number.to_le_bytes();
    }
    bytes
}

/// FNV-1a of 64 bits (Fowler, Noll, Vo): equal on every machine and in every release.
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
