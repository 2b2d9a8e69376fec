// SPDX-License-Identifier: Apache-2.0
//! Messages arriving from one peer: put together, each handed over once.

use crate::delivery::fragment::{Inserted, Partial};
use crate::delivery::outbox::{CONTROL, MAX_SOURCES, RELAY};
use crate::limits;
use crate::replay_window::ReplayWindow;
use crate::stats::{DropReason, InStats};
use crate::time::{Duration, Instant};
use crate::wire::control::{MAX_DEFINITION, OfferedTopic};
use crate::wire::frame::Data;
use bytes::Bytes;
use std::collections::{BTreeMap, HashMap};

/// An incomplete message of which nothing came for so long is given up.
pub(crate) const PARTIAL_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest of the session's own messages.
const MAX_CONTROL: usize = MAX_DEFINITION + 64;

/// A message handed to the application.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received {
    /// The bytes.
    pub payload: Bytes,
    /// Which publisher of the channel it came from.
    pub source: u32,
    /// The sender's application encoded (compressed) the payload.
    pub encoded: bool,
    /// Time since publication: residence at the sender, the link and the wait for its last piece.
    pub age: Duration,
}

/// How long a packet was on its way.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Transit {
    /// Half a round trip, within what the clocks say: decides whether a message is too old.
    pub(crate) assumed: Duration,
    /// By the clocks of both ends, for statistics.
    pub(crate) measured: Option<Duration>,
}

/// What a data frame brought about.
#[derive(Debug)]
pub(crate) enum Taken {
    Nothing,
    Message(Received),
    /// The session's own messages, in order.
    Control(Vec<Bytes>),
    UnknownChannel,
    TooLarge(usize),
    Bound,
}

/// A channel from a peer.
#[derive(Debug)]
pub(crate) struct InChannel {
    pub(crate) topic: OfferedTopic,
    pub(crate) wanted: bool,
    sources: BTreeMap<u32, Box<ReplayWindow>>,
    pub(crate) stats: InStats,
}

impl InChannel {
    /// Of packets for others.
    fn carried() -> Self {
        let topic = OfferedTopic::nameless(0);
        Self { topic, wanted: true, sources: BTreeMap::new(), stats: InStats::default() }
    }
}

type Key = (u64, u32, u64);

#[derive(Debug)]
struct Waiting {
    partial: Partial,
    /// When it was published, in our time.
    published: Instant,
    touched: Instant,
}

/// Messages from one peer.
#[derive(Debug)]
pub(crate) struct Inbox {
    pub(crate) channels: BTreeMap<u64, InChannel>,
    /// Publishers remembered, over all channels.
    sources: usize,
    partials: HashMap<Key, Waiting>,
    partial_bytes: usize,
    max_message: usize,
    max_bytes: usize,
    next_control: u64,
    held_control: BTreeMap<u64, Bytes>,
    /// Of `held_control` and of its incomplete messages among `partials`.
    control_bytes: usize,
}

impl Inbox {
    pub(crate) fn new(max_message: usize, max_bytes: usize) -> Self {
        Self {
            channels: BTreeMap::new(),
            sources: 0,
            partials: HashMap::new(),
            partial_bytes: 0,
            max_message,
            max_bytes,
            next_control: 1,
            held_control: BTreeMap::new(),
            control_bytes: 0,
        }
    }

    /// Enters or changes a channel; `true` if it is new or another topic or type than before.
    pub(crate) fn set_offer(&mut self, channel: u64, topic: OfferedTopic) -> bool {
        if let Some(known) = self.channels.get_mut(&channel) {
            return std::mem::replace(&mut known.topic, topic.clone()) != topic;
        }
        let stats = InStats::default();
        let entry = InChannel { topic, wanted: false, sources: BTreeMap::new(), stats };
        self.channels.insert(channel, entry);
        true
    }

    pub(crate) fn withdraw(&mut self, channel: u64) -> bool {
        self.give_up(DropReason::PeerGone, |key, _| key.0 == channel);
        let gone = self.channels.remove(&channel);
        self.sources -= gone.as_ref().map_or(0, |channel| channel.sources.len());
        gone.is_some()
    }

    /// Whether there is room for the session's own messages in a packet. If not,
    /// it must not be acknowledged: the sender would never send them again, and
    /// everything after waits for them. `more`: the peer may have more of them handled now.
    pub(crate) fn admits<'a>(
        &self,
        frames: impl Iterator<Item = (&'a Data, usize)>,
        more: bool,
    ) -> bool {
        let mut bytes = self.control_bytes;
        for (data, len) in frames.filter(|(data, _)| data.channel == CONTROL) {
            let total = data.fragment.map_or(len, |f| f.total as usize);
            let ahead = data.number.saturating_sub(self.next_control);
            let is_new = data.number >= self.next_control;
            if is_new && !more {
                return false;
            }
            if total > MAX_CONTROL || data.source != 0 || ahead >= limits::CONTROL_MESSAGES_HELD {
                return false;
            }
            let known = data.number < self.next_control
                || self.held_control.contains_key(&data.number)
                || self.partials.contains_key(&(CONTROL, 0, data.number));
            bytes += if known { 0 } else { total };
            // What everything waits for is taken in any case.
            if !known && ahead > 0 && bytes > limits::CONTROL_BYTES_HELD {
                return false;
            }
        }
        true
    }

    /// Takes a packet for others, or a piece of one.
    pub(crate) fn take_relayed(
        &mut self,
        now: Instant,
        transit: Transit,
        data: &Data,
        bytes: &[u8],
    ) -> Taken {
        if data.fragment.map_or(bytes.len(), |f| f.total as usize) > limits::RELAYED_PACKET_BYTES {
            return Taken::Bound;
        }
        let channel = RELAY + data.channel;
        self.channels.entry(channel).or_insert_with(InChannel::carried);
        self.take(now, transit, &Data { channel, ..*data }, bytes)
    }

    /// Takes a data frame.
    pub(crate) fn take(
        &mut self,
        now: Instant,
        transit: Transit,
        data: &Data,
        bytes: &[u8],
    ) -> Taken {
        if data.channel == CONTROL {
            return self.take_control(now, data, bytes);
        }
        let Some(channel) = self.channels.get_mut(&data.channel) else {
            return Taken::UnknownChannel;
        };
        if !channel.sources.contains_key(&data.source) {
            if data.source >= MAX_SOURCES || self.sources >= limits::SOURCES {
                return Taken::Bound;
            }
            self.sources += 1;
        }
        let seen = channel.sources.entry(data.source).or_default();
        if seen.contains(data.number) {
            channel.stats.duplicate_pieces += 1;
            return Taken::Nothing;
        }
        let total = data.fragment.map_or(bytes.len(), |f| f.total as usize);
        let age = data.age + transit.assumed;
        let keep_last = u64::from(channel.topic.keep_last);
        let refused = if !channel.wanted {
            Some(DropReason::Refused)
        } else if total > self.max_message {
            Some(DropReason::TooLarge)
        } else if channel.topic.lifespan.is_some_and(|lifespan| age > lifespan) {
            Some(DropReason::Expired)
        } else if data.number.saturating_add(keep_last) <= seen.highest() {
            Some(DropReason::Late)
        } else {
            None
        };
        if let Some(reason) = refused {
            seen.insert(data.number);
            channel.stats.dropped.add(reason);
            self.forget((data.channel, data.source, data.number));
            let too_large = reason == DropReason::TooLarge;
            return if too_large { Taken::TooLarge(total) } else { Taken::Nothing };
        }
        match self.assemble(now, age, data, bytes) {
            Ok(Some((payload, age))) => self.deliver(data, payload, age, transit),
            Ok(None) => Taken::Nothing,
            Err(()) => Taken::Bound,
        }
    }

    fn deliver(&mut self, data: &Data, payload: Bytes, age: Duration, transit: Transit) -> Taken {
        let Some(channel) = self.channels.get_mut(&data.channel) else {
            return Taken::UnknownChannel;
        };
        channel.sources.entry(data.source).or_default().insert(data.number);
        channel.stats.delivered += 1;
        channel.stats.bytes += payload.len() as u64;
        let measured = transit.measured.unwrap_or(transit.assumed);
        channel.stats.delay.add(age.saturating_sub(transit.assumed) + measured);
        let keep_last = u64::from(channel.topic.keep_last);
        let stream = (data.channel, data.source);
        let too_old = data.number.saturating_sub(keep_last);
        self.give_up(DropReason::Late, |key, _| (key.0, key.1) == stream && key.2 <= too_old);
        Taken::Message(Received { payload, source: data.source, encoded: data.encoded, age })
    }

    /// Adds a piece; returns the message and its age if it is whole now.
    fn assemble(
        &mut self,
        now: Instant,
        age: Duration,
        data: &Data,
        bytes: &[u8],
    ) -> Result<Option<(Bytes, Duration)>, ()> {
        let key = (data.channel, data.source, data.number);
        let Some(fragment) = data.fragment else {
            // Pieces that came before were taken for lost, and all was sent again.
            self.forget(key);
            return Ok(Some((Bytes::copy_from_slice(bytes), age)));
        };
        let published = now.before(age);
        if !self.partials.contains_key(&key) {
            self.make_room(key.0, fragment.total as usize)?;
            *self.bytes_of(key.0) += fragment.total as usize;
            let partial = Partial::new(fragment.total);
            self.partials.insert(key, Waiting { partial, published, touched: now });
        }
        let Some(waiting) = self.partials.get_mut(&key) else { return Err(()) };
        waiting.touched = now;
        // Repairs know their age as well as first pieces; the smallest estimate has waited least.
        waiting.published = waiting.published.max(published);
        match waiting.partial.insert(fragment.total, fragment.offset, bytes) {
            Inserted::Partly => Ok(None),
            Inserted::Refused => Err(()),
            Inserted::Known => {
                if let Some(channel) = self.channels.get_mut(&data.channel) {
                    channel.stats.duplicate_pieces += 1;
                }
                Ok(None)
            }
            Inserted::Whole => Ok(self.forget(key).map(|waiting| {
                let age = now.since(waiting.published);
                (waiting.partial.into_buffer().into(), age)
            })),
        }
    }

    fn forget(&mut self, key: Key) -> Option<Waiting> {
        let waiting = self.partials.remove(&key)?;
        *self.bytes_of(key.0) -= waiting.partial.total() as usize;
        Some(waiting)
    }

    fn bytes_of(&mut self, channel: u64) -> &mut usize {
        if channel == CONTROL { &mut self.control_bytes } else { &mut self.partial_bytes }
    }

    /// Gives up the incomplete messages that were silent longest until `bytes` more fit.
    /// The session's own are bounded by [`Self::admits`].
    fn make_room(&mut self, channel: u64, bytes: usize) -> Result<(), ()> {
        if channel == CONTROL {
            return Ok(());
        }
        if bytes > self.max_bytes {
            return Err(());
        }
        let mut count = self.partials.keys().filter(|key| key.0 != CONTROL).count();
        while self.partial_bytes + bytes > self.max_bytes || count >= limits::PARTIAL_MESSAGES {
            let given_up = self.partials.iter().filter(|(key, _)| key.0 != CONTROL);
            let oldest = given_up.min_by_key(|(key, w)| (w.touched, **key));
            let oldest = *oldest.ok_or(())?.0;
            self.give_up(DropReason::Incomplete, |key, _| *key == oldest);
            count -= 1;
        }
        Ok(())
    }

    fn give_up(&mut self, reason: DropReason, which: impl Fn(&Key, &Waiting) -> bool) {
        // What arrived of the session's own messages was acknowledged and comes but once.
        let data = self.partials.iter().filter(|(key, _)| key.0 != CONTROL);
        let ended: Vec<Key> = data.filter(|(k, w)| which(k, w)).map(|(k, _)| *k).collect();
        for key in ended {
            self.forget(key);
            let Some(channel) = self.channels.get_mut(&key.0) else { continue };
            channel.stats.dropped.add(reason);
            channel.sources.entry(key.1).or_default().insert(key.2);
        }
    }

    /// Gives up what is past its lifespan and, while the peer is up, what has stopped coming:
    /// what an outage interrupted goes on after it, since the sender has acknowledgements for a part.
    pub(crate) fn expire(&mut self, now: Instant, peer_up: bool) {
        let lifespans: HashMap<u64, Duration> = self
            .channels
            .iter()
            .filter_map(|(number, channel)| Some((*number, channel.topic.lifespan?)))
            .collect();
        self.give_up(DropReason::Expired, |key, waiting| {
            lifespans.get(&key.0).is_some_and(|l| now.since(waiting.published) > *l)
        });
        if peer_up {
            self.give_up(DropReason::Incomplete, |_, waiting| {
                now.since(waiting.touched) >= PARTIAL_TIMEOUT
            });
        }
    }

    /// The peer is back: what it was in the middle of has its whole time again.
    pub(crate) fn resume(&mut self, now: Instant) {
        for waiting in self.partials.values_mut() {
            waiting.touched = now;
        }
    }

    pub(crate) fn has_partials(&self) -> bool {
        !self.partials.is_empty()
    }

    fn take_control(&mut self, now: Instant, data: &Data, bytes: &[u8]) -> Taken {
        if data.number < self.next_control || self.held_control.contains_key(&data.number) {
            return Taken::Nothing;
        }
        match self.assemble(now, data.age, data, bytes) {
            Ok(Some((payload, _))) => {
                self.control_bytes += payload.len();
                self.held_control.insert(data.number, payload);
            }
            Ok(None) => return Taken::Nothing,
            Err(()) => return Taken::Bound,
        }
        let mut in_order = Vec::new();
        while let Some(payload) = self.held_control.remove(&self.next_control) {
            self.next_control += 1;
            self.control_bytes -= payload.len();
            in_order.push(payload);
        }
        Taken::Control(in_order)
    }
}
