// SPDX-License-Identifier: Apache-2.0
//! Reassembly of messages from one peer. Each message is delivered once.

use crate::delivery::fec::receiver::{Blocks, RecoveredFrame};
use crate::delivery::fragment::{InsertOutcome, ReassemblyBuffer};
use crate::delivery::ordering::{CompleteMessage, ReorderQueue, Stream};
use crate::delivery::outbox::MAX_SOURCES;
use crate::delivery::traffic::Traffic;
use crate::limits;
use crate::replay_window::ReplayWindow;
use crate::stats::{DropReason, InStats, RefusedPacket};
use crate::time::{Duration, Instant};
use crate::wire::control::{DeliveryOrder, MAX_DEFINITION, OfferedTopic};
use crate::wire::cursor::Reader;
use crate::wire::frame::Data;
use crate::wire::parity::Parity;
use bytes::Bytes;
use std::collections::{BTreeMap, HashMap};

/// Interval at which incomplete messages are checked.
pub(crate) const PARTIAL_CHECK: Duration = Duration::from_secs(1);
/// An incomplete message is dropped after this many missed checks. A message misses a check if, since the
/// previous check, a newer message of its source got a fragment and the message itself did not. The sender
/// sends the messages of a source in turn, so it has given up the older message. Time alone shows nothing,
/// since more urgent messages or an outage may delay a message.
const MISSED_CHECKS: u8 = 10;
/// Longest header of a parity symbol: a varint and two bytes.
const MAX_PARITY_HEADER: usize = 12;
/// Longest control message.
const MAX_CONTROL: usize = MAX_DEFINITION + 64;

/// A message delivered to the application.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received {
    /// The payload.
    pub payload: Bytes,
    /// The publisher within the channel.
    pub source: u32,
    /// The sender's application encoded (compressed) the payload.
    pub encoded: bool,
    /// Time since publication: at the sender, on the path, waiting for the last fragment, and
    /// waiting for earlier messages.
    pub age: Duration,
}

/// The time of a packet on the path.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Transit {
    /// Half a round trip, within the bounds of the clocks: decides whether a message has expired.
    pub(crate) assumed: Duration,
    /// The same time by the clocks of both ends, for statistics.
    pub(crate) measured: Option<Duration>,
}

/// The effect of a DATA or RELAY frame.
#[derive(Debug)]
pub(crate) enum FrameEffect {
    Nothing,
    Message(Received),
    /// Control messages that are next in order.
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
    pub(super) sources: BTreeMap<u32, Box<ReplayWindow>>,
    pub(crate) stats: InStats,
}

impl InChannel {
    /// A channel of relayed packets.
    fn relayed() -> Self {
        let topic = OfferedTopic::nameless(0);
        Self { topic, wanted: true, sources: BTreeMap::new(), stats: InStats::default() }
    }

    /// The longest time that a complete message of this age waits for earlier ones; `None` if it does not
    /// wait. Half of the remaining life is left to the application.
    fn max_wait(&self, age: Duration) -> Option<Duration> {
        let DeliveryOrder::Sent { wait } = self.topic.order else { return None };
        let life = self.topic.lifespan.map(|lifespan| lifespan.saturating_sub(age));
        Some(life.map_or(wait, |life| wait.min(life / 2)))
    }

    pub(super) fn count_delivered(&mut self, bytes: usize, delay: Duration) {
        self.stats.delivered += 1;
        self.stats.bytes += bytes as u64;
        self.stats.delay.add(delay);
    }
}

/// Traffic, source and number of a message.
pub(super) type Key = (Traffic, u32, u64);

#[derive(Debug)]
pub(super) struct IncompleteMessage {
    partial: ReassemblyBuffer,
    /// Time of publication by our clock.
    published: Instant,
    last_fragment: Instant,
    /// Checks that the message has missed; see [`MISSED_CHECKS`].
    missed_checks: u8,
}

/// Messages from one peer.
#[derive(Debug)]
pub(crate) struct Inbox {
    /// The channels of topics and of relayed packets.
    pub(super) channels: BTreeMap<Traffic, InChannel>,
    /// Number of sources remembered, over all channels.
    sources: usize,
    partials: BTreeMap<Key, IncompleteMessage>,
    blocks: Blocks,
    pub(super) partial_bytes: usize,
    /// Complete messages that wait for earlier ones.
    pub(super) reorder_queue: ReorderQueue,
    max_message: usize,
    pub(super) max_bytes: usize,
    next_control: u64,
    held_control: BTreeMap<u64, Bytes>,
    /// Bytes of `held_control` and of incomplete control messages in `partials`.
    control_bytes: usize,
}

impl Inbox {
    pub(crate) fn new(max_message: usize, max_bytes: usize) -> Self {
        Self {
            channels: BTreeMap::new(),
            sources: 0,
            partials: BTreeMap::new(),
            blocks: Blocks::default(),
            partial_bytes: 0,
            reorder_queue: ReorderQueue::default(),
            max_message,
            max_bytes,
            next_control: 1,
            held_control: BTreeMap::new(),
            control_bytes: 0,
        }
    }

    /// The channel of a topic.
    pub(crate) fn channel(&self, channel: u64) -> Option<&InChannel> {
        self.channels.get(&Traffic::Topic(channel))
    }

    pub(crate) fn channel_mut(&mut self, channel: u64) -> Option<&mut InChannel> {
        self.channels.get_mut(&Traffic::Topic(channel))
    }

    /// The number of channels, those of relayed packets included.
    pub(crate) fn open_channels(&self) -> usize {
        self.channels.len()
    }

    /// The channels of topics, with their numbers.
    pub(crate) fn topics(&self) -> impl Iterator<Item = (u64, &InChannel)> + '_ {
        self.channels.iter().filter_map(|(traffic, open)| match traffic {
            Traffic::Topic(channel) => Some((*channel, open)),
            Traffic::Control | Traffic::Parity(_) | Traffic::Relayed(_) => None,
        })
    }

    /// Adds or changes the channel of a topic; `true` if it is new or its topic changed.
    pub(crate) fn set_offer(&mut self, channel: u64, topic: OfferedTopic) -> bool {
        if let Some(known) = self.channel_mut(channel) {
            let before = std::mem::replace(&mut known.topic, topic.clone());
            if before.order != topic.order {
                self.change_order(channel);
            }
            return before != topic;
        }
        let stats = InStats::default();
        let entry = InChannel { topic, wanted: false, sources: BTreeMap::new(), stats };
        self.channels.insert(Traffic::Topic(channel), entry);
        true
    }

    /// Closes a channel. Call [`Self::release_waiting`] first.
    pub(crate) fn withdraw(&mut self, channel: u64) -> bool {
        self.drop_partials(DropReason::PeerGone, |key, _| is_of_topic(key.0, channel));
        self.blocks.forget(channel);
        let gone = self.channels.remove(&Traffic::Topic(channel));
        self.sources -= gone.as_ref().map_or(0, |channel| channel.sources.len());
        gone.is_some()
    }

    /// Whether there is capacity for the control messages of a packet. Otherwise the packet must
    /// not be acknowledged: the sender would never repair these messages, and all later ones wait
    /// for them. `has_token`: the rate limit of the peer's control messages is not reached.
    pub(crate) fn admits<'a>(
        &self,
        frames: impl Iterator<Item = (&'a Data, usize)>,
        has_token: bool,
    ) -> bool {
        let mut bytes = self.control_bytes;
        for (data, len) in
            frames.filter(|(data, _)| Traffic::of_data(data.channel) == Traffic::Control)
        {
            let total = data.fragment.map_or(len, |f| f.total as usize);
            let ahead = data.number.saturating_sub(self.next_control);
            let is_new = data.number >= self.next_control;
            if is_new && !has_token {
                return false;
            }
            if total > MAX_CONTROL || data.source != 0 || ahead >= limits::CONTROL_MESSAGES_HELD {
                return false;
            }
            let known = data.number < self.next_control
                || self.held_control.contains_key(&data.number)
                || self.partials.contains_key(&(Traffic::Control, 0, data.number));
            bytes += if known { 0 } else { total };
            // The next expected message is accepted in any case.
            if !known && ahead > 0 && bytes > limits::CONTROL_BYTES_HELD {
                return false;
            }
        }
        true
    }

    /// Handles a RELAY frame.
    pub(crate) fn handle_relayed(
        &mut self,
        now: Instant,
        transit: Transit,
        data: &Data,
        bytes: &[u8],
    ) -> FrameEffect {
        if data.fragment.map_or(bytes.len(), |f| f.total as usize) > limits::RELAYED_PACKET_BYTES {
            return FrameEffect::Bound;
        }
        // The parser allows no greater priority.
        let Ok(priority) = u8::try_from(data.channel) else { return FrameEffect::UnknownChannel };
        let traffic = Traffic::Relayed(priority);
        self.channels.entry(traffic).or_insert_with(InChannel::relayed);
        self.handle_message_frame(now, transit, traffic, data, bytes)
    }

    /// Adds a DATA frame to its block; returns the frames that can now be recovered.
    pub(crate) fn add_to_fec_block(
        &mut self,
        now: Instant,
        transit: Transit,
        data: &Data,
        bytes: &[u8],
    ) -> Vec<RecoveredFrame> {
        let Some(place) = data.place.filter(|_| self.wants(data.channel)) else {
            return Vec::new();
        };
        self.blocks.add_frame(now, transit.assumed, (data, bytes), place)
    }

    /// Handles a PARITY frame; returns the frames that can now be recovered.
    pub(crate) fn handle_parity(
        &mut self,
        now: Instant,
        transit: Transit,
        data: &Data,
        bytes: &[u8],
    ) -> Result<Vec<RecoveredFrame>, RefusedPacket> {
        let total = data.fragment.map_or(bytes.len(), |it| it.total as usize);
        if self.channel(data.channel).is_none() {
            return Err(RefusedPacket::UnknownChannel);
        }
        if total > limits::SYMBOL_BYTES + MAX_PARITY_HEADER {
            return Err(RefusedPacket::Bound);
        }
        if !self.wants(data.channel) {
            // The parity may stand for a message of which no frame arrives.
            if let Some(channel) = self.channel_mut(data.channel) {
                channel.stats.dropped.add(DropReason::Refused);
            }
            return Ok(Vec::new());
        }
        let age = data.age + transit.assumed;
        let assembled = self.assemble(now, age, Traffic::Parity(data.channel), data, bytes);
        let Some((payload, age)) = assembled.map_err(|()| RefusedPacket::Bound)? else {
            return Ok(Vec::new());
        };
        let parity = Parity::parse(&mut Reader::new(&payload));
        let parity = parity.map_err(|_| RefusedPacket::Malformed)?;
        Ok(self.blocks.add_parity(now, age, data.channel, parity))
    }

    /// Handles a frame that was recovered.
    pub(crate) fn handle_recovered(
        &mut self,
        now: Instant,
        channel: u64,
        recovered: &RecoveredFrame,
    ) -> Result<FrameEffect, RefusedPacket> {
        let (data, bytes) = recovered.frame(channel).ok_or(RefusedPacket::Malformed)?;
        if let Some(channel) = self.channel_mut(channel) {
            channel.stats.recovered_pieces += 1;
        }
        Ok(self.handle_data(now, Transit::default(), &data, bytes))
    }

    fn wants(&self, channel: u64) -> bool {
        self.channel(channel).is_some_and(|channel| channel.wanted)
    }

    /// Handles a DATA frame.
    pub(crate) fn handle_data(
        &mut self,
        now: Instant,
        transit: Transit,
        data: &Data,
        bytes: &[u8],
    ) -> FrameEffect {
        match Traffic::of_data(data.channel) {
            Traffic::Control => self.handle_control(now, data, bytes),
            traffic => self.handle_message_frame(now, transit, traffic, data, bytes),
        }
    }

    /// Handles a frame of a topic, or of relayed packets.
    fn handle_message_frame(
        &mut self,
        now: Instant,
        transit: Transit,
        traffic: Traffic,
        data: &Data,
        bytes: &[u8],
    ) -> FrameEffect {
        let Some(channel) = self.channels.get_mut(&traffic) else {
            return FrameEffect::UnknownChannel;
        };
        if !channel.sources.contains_key(&data.source) {
            if data.source >= MAX_SOURCES || self.sources >= limits::SOURCES {
                return FrameEffect::Bound;
            }
            self.sources += 1;
        }
        let seen = channel.sources.entry(data.source).or_default();
        if seen.contains(data.number) {
            channel.stats.duplicate_pieces += 1;
            return FrameEffect::Nothing;
        }
        let total = data.fragment.map_or(bytes.len(), |f| f.total as usize);
        let age = data.age + transit.assumed;
        let late_after = channel.topic.late_after();
        let refused = if !channel.wanted {
            Some(DropReason::Refused)
        } else if total > self.max_message {
            Some(DropReason::TooLarge)
        } else if channel.topic.lifespan.is_some_and(|lifespan| age > lifespan) {
            Some(DropReason::Expired)
        } else if data.number.saturating_add(late_after) <= seen.highest()
            || self.reorder_queue.is_passed((traffic, data.source), data.number)
        {
            Some(DropReason::Late)
        } else {
            None
        };
        if let Some(reason) = refused {
            seen.insert(data.number);
            channel.stats.dropped.add(reason);
            self.forget((traffic, data.source, data.number));
            self.advance((traffic, data.source));
            let too_large = reason == DropReason::TooLarge;
            return if too_large { FrameEffect::TooLarge(total) } else { FrameEffect::Nothing };
        }
        match self.assemble(now, age, traffic, data, bytes) {
            Ok(Some((payload, age))) => self.deliver(now, traffic, data, payload, age, transit),
            Ok(None) => FrameEffect::Nothing,
            Err(()) => FrameEffect::Bound,
        }
    }

    fn deliver(
        &mut self,
        now: Instant,
        traffic: Traffic,
        data: &Data,
        payload: Bytes,
        age: Duration,
        transit: Transit,
    ) -> FrameEffect {
        let Some(channel) = self.channels.get_mut(&traffic) else {
            return FrameEffect::UnknownChannel;
        };
        channel.sources.entry(data.source).or_default().insert(data.number);
        let measured = transit.measured.unwrap_or(transit.assumed);
        let delay = age.saturating_sub(transit.assumed) + measured;
        let stream = (traffic, data.source);
        let wait = channel.max_wait(age);
        if wait.is_none() {
            channel.count_delivered(payload.len(), delay);
        }
        let too_old = data.number.saturating_sub(channel.topic.late_after());
        self.drop_partials(DropReason::Late, |key, _| (key.0, key.1) == stream && key.2 <= too_old);
        let message = Received { payload, source: data.source, encoded: data.encoded, age };
        let Some(wait) = wait else { return FrameEffect::Message(message) };
        let complete = CompleteMessage { message, delay, since: now };
        self.wait_for_turn(stream, data.number, now + wait, complete);
        FrameEffect::Nothing
    }

    /// Adds a fragment; returns the message and its age if it is complete.
    fn assemble(
        &mut self,
        now: Instant,
        age: Duration,
        traffic: Traffic,
        data: &Data,
        bytes: &[u8],
    ) -> Result<Option<(Bytes, Duration)>, ()> {
        let key = (traffic, data.source, data.number);
        let Some(fragment) = data.fragment else {
            // The whole message may arrive after fragments of it that the sender declared lost.
            self.forget(key);
            return Ok(Some((Bytes::copy_from_slice(bytes), age)));
        };
        let published = now.before(age);
        if !self.partials.contains_key(&key) {
            self.make_room(key.0, fragment.total as usize)?;
            *self.partial_bytes_mut(key.0) += fragment.total as usize;
            let partial = ReassemblyBuffer::new(fragment.total);
            let incomplete =
                IncompleteMessage { partial, published, last_fragment: now, missed_checks: 0 };
            self.partials.insert(key, incomplete);
        }
        let Some(incomplete) = self.partials.get_mut(&key) else { return Err(()) };
        (incomplete.last_fragment, incomplete.missed_checks) = (now, 0);
        // Every fragment carries the age of the message. The fragment with the smallest age was
        // queued for the shortest time.
        incomplete.published = incomplete.published.max(published);
        match incomplete.partial.insert(fragment.total, fragment.offset, bytes) {
            InsertOutcome::Incomplete => Ok(None),
            InsertOutcome::Refused => Err(()),
            InsertOutcome::Duplicate => {
                if let Some(channel) = self.channels.get_mut(&traffic) {
                    channel.stats.duplicate_pieces += 1;
                }
                Ok(None)
            }
            InsertOutcome::Complete => Ok(self.forget(key).map(|incomplete| {
                let age = now.since(incomplete.published);
                (incomplete.partial.into_buffer().into(), age)
            })),
        }
    }

    fn forget(&mut self, key: Key) -> Option<IncompleteMessage> {
        let incomplete = self.partials.remove(&key)?;
        *self.partial_bytes_mut(key.0) -= incomplete.partial.total() as usize;
        Some(incomplete)
    }

    fn partial_bytes_mut(&mut self, traffic: Traffic) -> &mut usize {
        if traffic == Traffic::Control { &mut self.control_bytes } else { &mut self.partial_bytes }
    }

    /// Drops incomplete messages until `bytes` more fit: first those that are not the newest of their source,
    /// and among them the message that has gone without a fragment for longest. A large message that is held
    /// up thus outlives a stream whose losses are not repaired. [`Self::admits`] limits control messages.
    fn make_room(&mut self, traffic: Traffic, bytes: usize) -> Result<(), ()> {
        if traffic == Traffic::Control {
            return Ok(());
        }
        if bytes > self.max_bytes {
            return Err(());
        }
        self.limit_waiting(bytes);
        let mut count = self.partials.keys().filter(|key| key.0 != Traffic::Control).count();
        while self.partial_bytes + bytes > self.max_bytes || count >= limits::PARTIAL_MESSAGES {
            let streams = self.partials.keys().rev().scan(None, |newer, &(traffic, source, _)| {
                Some(newer.replace((traffic, source)) != Some((traffic, source)))
            });
            let data = self
                .partials
                .iter()
                .rev()
                .zip(streams)
                .filter(|((key, _), _)| key.0 != Traffic::Control);
            let oldest =
                data.min_by_key(|((key, it), is_newest)| (*is_newest, it.last_fragment, **key));
            let oldest = *oldest.ok_or(())?.0.0;
            self.drop_partials(DropReason::Incomplete, |key, _| *key == oldest);
            count -= 1;
        }
        Ok(())
    }

    pub(super) fn drop_partials(
        &mut self,
        reason: DropReason,
        which: impl Fn(&Key, &IncompleteMessage) -> bool,
    ) {
        // Fragments of control messages were acknowledged and do not arrive again.
        let data = self.partials.iter().filter(|(key, _)| key.0 != Traffic::Control);
        let ended: Vec<Key> = data.filter(|(k, w)| which(k, w)).map(|(k, _)| *k).collect();
        for key in ended {
            self.forget(key);
            let Some(channel) = self.channels.get_mut(&key.0) else { continue };
            channel.stats.dropped.add(reason);
            channel.sources.entry(key.1).or_default().insert(key.2);
            self.advance((key.0, key.1));
        }
    }

    /// Drops expired messages, and messages that their sender has given up. Call this once in each
    /// [`PARTIAL_CHECK`].
    pub(crate) fn expire(&mut self, now: Instant) {
        let lifespans: HashMap<Traffic, Duration> = self
            .channels
            .iter()
            .filter_map(|(traffic, channel)| Some((*traffic, channel.topic.lifespan?)))
            .collect();
        self.drop_partials(DropReason::Expired, |key, incomplete| {
            lifespans.get(&key.0).is_some_and(|l| now.since(incomplete.published) > *l)
        });
        let mut newest: Option<(Stream, Instant)> = None;
        for (&(traffic, source, _), incomplete) in self.partials.iter_mut().rev() {
            let stream = (traffic, source);
            match newest.filter(|(it, _)| *it == stream) {
                Some((_, last)) if last > incomplete.last_fragment => {
                    let is_active = now.since(last) < PARTIAL_CHECK;
                    incomplete.missed_checks += u8::from(is_active);
                }
                _ => newest = Some((stream, incomplete.last_fragment)),
            }
        }
        self.drop_partials(DropReason::Incomplete, |_, it| it.missed_checks >= MISSED_CHECKS);
    }

    /// Drops the messages of a channel to which the application is no longer subscribed. Incomplete
    /// messages are dropped first, since complete messages may wait for them.
    pub(crate) fn drop_unwanted(&mut self, channel: u64) {
        self.drop_partials(DropReason::Refused, |key, _| is_of_topic(key.0, channel));
        self.drop_waiting(channel);
    }

    pub(crate) fn has_partials(&self) -> bool {
        !self.partials.is_empty()
    }

    fn handle_control(&mut self, now: Instant, data: &Data, bytes: &[u8]) -> FrameEffect {
        if data.number < self.next_control || self.held_control.contains_key(&data.number) {
            return FrameEffect::Nothing;
        }
        match self.assemble(now, data.age, Traffic::Control, data, bytes) {
            Ok(Some((payload, _))) => {
                self.control_bytes += payload.len();
                self.held_control.insert(data.number, payload);
            }
            Ok(None) => return FrameEffect::Nothing,
            Err(()) => return FrameEffect::Bound,
        }
        let mut in_order = Vec::new();
        while let Some(payload) = self.held_control.remove(&self.next_control) {
            self.next_control += 1;
            self.control_bytes -= payload.len();
            in_order.push(payload);
        }
        FrameEffect::Control(in_order)
    }
}

/// Whether `traffic` is the messages of the topic on `channel`, or their parity.
fn is_of_topic(traffic: Traffic, channel: u64) -> bool {
    [Traffic::Topic(channel), Traffic::Parity(channel)].contains(&traffic)
}

#[cfg(test)]
mod tests;
