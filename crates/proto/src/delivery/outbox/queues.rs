// SPDX-License-Identifier: Apache-2.0
//! The channels to one peer, and the queues of their messages.

use super::frame::{Carrier, Urgency};
use super::loss::FutileRepairs;
use super::message::Message;
use super::order::SendOrder;
use super::relayed::{BacklogSize, Flow, RelayOrigin};
use super::store::{MessageStore, Outgoing, RedundantCopies};
use crate::config::ChannelConfig;
use crate::delivery::fragment::RangeSet;
use crate::delivery::traffic::Traffic;
use crate::delivery::{MessageId, Piece};
use crate::ids::PeerId;
use crate::path::policy::{LinkUse, URGENT};
use crate::path::redundancy::Redundancy;
use crate::stats::{DropReason, OutStats};
use crate::time::{Duration, Instant};
use crate::wire::control::OfferedTopic;
use bytes::Bytes;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// A message without a lifespan is due this long after its publication.
const DEFAULT_DUE: Duration = Duration::from_secs(1);
/// Largest message of which copies are sent on a lossy link. A laser scan fits, an image does not.
const MAX_REDUNDANT_BYTES: u32 = 4096;
/// A message is assumed to take up to this many times the sending time of the previous message.
const LATE_SEND_FACTOR: f64 = 1.5;
/// A message is assumed to be on the path for at most its lifespan divided by this number.
const TRANSIT_DIVISOR: u32 = 8;

/// The time from the first to the last packet of a message, and its bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct SendingTime {
    pub(super) duration: Duration,
    pub(super) bytes: u32,
}

#[derive(Debug, Default)]
pub(super) struct SourceQueue {
    /// The last message that took more than one packet.
    pub(super) last_sent: Option<SendingTime>,
    pub(super) last_number: u64,
    pub(super) newest_delivered: u64,
    /// Messages without a number yet, oldest first, since ids grow.
    pub(super) unsent: BTreeSet<MessageId>,
    pub(super) begun: BTreeMap<u64, MessageId>,
}

#[derive(Debug)]
pub(super) struct OutChannel {
    pub(super) config: ChannelConfig,
    pub(super) rank: u16,
    pub(super) wanted: bool,
    pub(super) sources: BTreeMap<u32, SourceQueue>,
    pub(super) stats: OutStats,
}

#[derive(Debug, Default)]
pub(crate) struct Queues {
    pub(super) channels: BTreeMap<Traffic, OutChannel>,
    pub(super) store: MessageStore,
    pub(super) next_id: u64,
}

/// Channels.
impl Queues {
    /// Adds a channel without a topic.
    pub(super) fn add_internal(&mut self, traffic: Traffic, rank: u16) {
        let topic = OfferedTopic::nameless(u8::try_from(rank).unwrap_or(u8::MAX));
        // All channels need control messages, so these may use a spent link. Packets for other
        // nodes have no topic that could permit it.
        let links = LinkUse { over_budget: traffic == Traffic::Control, ..LinkUse::default() };
        let (definition, repair, thin, fec) = ("".into(), true, false, None);
        let config = ChannelConfig { topic, definition, repair, thin, links, fec };
        let control = OutChannel {
            config,
            rank,
            wanted: true,
            sources: BTreeMap::new(),
            stats: OutStats::default(),
        };
        self.channels.insert(traffic, control);
    }

    /// Opens the channel of a topic, or changes the configuration of an open one.
    pub(crate) fn set_channel(&mut self, channel: u64, config: ChannelConfig) {
        self.configure(Traffic::Topic(channel), config);
    }

    pub(super) fn configure(&mut self, traffic: Traffic, config: ChannelConfig) {
        let rank = u16::from(config.topic.priority);
        match self.channels.get_mut(&traffic) {
            Some(open) => {
                open.config = config;
                self.set_rank(traffic, rank);
            }
            None => {
                let open = OutChannel {
                    config,
                    rank,
                    wanted: false,
                    sources: BTreeMap::new(),
                    stats: OutStats::default(),
                };
                self.channels.insert(traffic, open);
            }
        }
    }

    pub(super) fn set_rank(&mut self, traffic: Traffic, rank: u16) {
        let Some(open) = self.channels.get_mut(&traffic) else { return };
        if std::mem::replace(&mut open.rank, rank) == rank {
            return;
        }
        for id in self.store.ids(|message| message.traffic == traffic) {
            self.store.change(id, |message| message.order.rank = Reverse(rank));
        }
    }

    pub(crate) fn config(&self, channel: u64) -> Option<&ChannelConfig> {
        self.channels.get(&Traffic::Topic(channel)).map(|c| &c.config)
    }

    pub(crate) fn stats(&self, channel: u64) -> Option<&OutStats> {
        self.channels.get(&Traffic::Topic(channel)).map(|c| &c.stats)
    }

    pub(crate) fn is_wanted(&self, channel: u64) -> bool {
        self.channels.get(&Traffic::Topic(channel)).is_some_and(|c| c.wanted)
    }

    /// The channels of topics.
    pub(crate) fn channels(&self) -> impl Iterator<Item = u64> + '_ {
        self.channels.keys().filter_map(|traffic| match traffic {
            Traffic::Topic(channel) => Some(*channel),
            Traffic::Control | Traffic::Parity(_) | Traffic::Relayed(_) => None,
        })
    }

    /// Source and payload of a channel's messages that are queued, or sent with unknown outcome.
    pub(crate) fn pending(&self, channel: u64) -> impl Iterator<Item = (u32, &Bytes)> {
        let open = self.channels.get(&Traffic::Topic(channel));
        let sources = open.into_iter().flat_map(|open| open.sources.iter());
        sources.flat_map(|(source, queue)| {
            let ids = queue.begun.values().chain(&queue.unsent);
            let messages = ids.filter_map(|id| self.store.get(*id));
            messages.map(|message| (*source, &message.payload))
        })
    }
}

/// Messages.
impl Queues {
    /// Accepts a control message.
    pub(crate) fn accept_control(&mut self, now: Instant, payload: Vec<u8>) {
        let (payload, encoded, lifespan) = (payload.into(), false, None);
        let message = Message { payload, published: now, source: 0, encoded, lifespan };
        self.insert(Traffic::Control, message, None, None);
    }

    pub(super) fn insert(
        &mut self,
        traffic: Traffic,
        message: Message,
        expires: Option<Instant>,
        origin: Option<(RelayOrigin, bool)>,
    ) {
        let Some(open) = self.channels.get_mut(&traffic) else { return };
        let id = MessageId(self.next_id);
        self.next_id += 1;
        let due = expires.unwrap_or(message.published + DEFAULT_DUE);
        let order = SendOrder { rank: Reverse(open.rank), due, id };
        open.sources.entry(message.source).or_default().unsent.insert(id);
        if traffic == Traffic::Control {
            open.stats.accepted += 1;
        }
        open.stats.queued += 1;
        let (origin, is_forwarded_again) = origin.unzip();
        self.store.insert(Outgoing {
            origin,
            is_forwarded_again: is_forwarded_again.unwrap_or(false),
            traffic,
            source: message.source,
            number: None,
            payload: message.payload,
            encoded: message.encoded,
            published: message.published,
            first_sent: Instant::NEVER,
            lifespan_end: expires,
            expires,
            is_checked: false,
            order,
            next: 0,
            copies: None,
            repairs: RangeSet::default(),
            futile_repairs: FutileRepairs::default(),
            acked: RangeSet::default(),
            suspected: RangeSet::default(),
            redundant_copies: None,
            redundant_copy_is_due: false,
        });
    }

    /// Changes a message, and the counters of its channel accordingly.
    pub(super) fn change<T>(
        &mut self,
        id: MessageId,
        change: impl FnOnce(&mut Outgoing) -> T,
    ) -> Option<T> {
        let (result, traffic, before, after) = self.store.change(id, |message| {
            let before = message.is_queued();
            let result = change(message);
            (result, message.traffic, before, message.is_queued())
        })?;
        let stats = self.channels.get_mut(&traffic).map(|open| &mut open.stats);
        match (stats, before, after) {
            (Some(stats), false, true) => {
                (stats.queued, stats.sent) = (stats.queued + 1, stats.sent - 1);
            }
            (Some(stats), true, false) => {
                (stats.queued, stats.sent) = (stats.queued - 1, stats.sent + 1);
            }
            _ => {}
        }
        Some(result)
    }

    /// Whether a message of a source is partly sent. A source begins its messages one after another, so that
    /// only its newest begun message can be partly sent.
    pub(super) fn is_being_sent(&self, traffic: Traffic, source: u32) -> bool {
        let queue = self.channels.get(&traffic).and_then(|open| open.sources.get(&source));
        let newest = queue.and_then(|queue| queue.begun.last_key_value());
        let newest = newest.and_then(|(_, id)| self.store.get(*id));
        newest.is_some_and(|message| message.unsent_bytes() > 0)
    }

    pub(super) fn count_drop(&mut self, traffic: Traffic, reason: DropReason) {
        if let Some(open) = self.channels.get_mut(&traffic) {
            open.stats.dropped.add(reason);
        }
    }

    /// The oldest messages of a source: those that are not begun and exceed `keep_last`.
    pub(super) fn surplus(&self, traffic: Traffic, source: u32) -> Vec<MessageId> {
        let Some(open) = self.channels.get(&traffic) else { return Vec::new() };
        let keep = open.config.topic.keep_last.max(1) as usize;
        let Some(queue) = open.sources.get(&source) else { return Vec::new() };
        let surplus = queue.unsent.len().saturating_sub(keep);
        queue.unsent.iter().take(surplus).copied().collect()
    }

    /// The messages that `number`, now delivered, makes late: those `keep_last` or more before it, or
    /// all before it if the receiver delivers only newer ones.
    pub(super) fn late_messages(
        &mut self,
        traffic: Traffic,
        source: u32,
        number: u64,
    ) -> Vec<MessageId> {
        let Some(open) = self.channels.get_mut(&traffic) else { return Vec::new() };
        let keep = open.config.topic.late_after();
        let Some(queue) = open.sources.get_mut(&source) else { return Vec::new() };
        queue.newest_delivered = queue.newest_delivered.max(number);
        let late_from = queue.newest_delivered.saturating_sub(keep);
        queue.begun.range(..=late_from).map(|(_, id)| *id).collect()
    }

    /// The first message to evict among those of `rank` and below that are not begun and are not
    /// the newest of their source.
    pub(super) fn first_evictable_unsent(&self, rank: u16) -> Option<MessageId> {
        let order = self.store.eviction_order();
        let mut order = order.take_while(|(_, message)| message.order.rank.0 <= rank);
        let found = order.find(|(id, message)| {
            let queue = &self.channels[&message.traffic].sources[&message.source];
            message.number.is_none() && queue.unsent.last() != Some(id)
        });
        found.map(|(id, _)| id)
    }

    pub(crate) fn waiting_bytes(&self) -> u64 {
        self.store.waiting_bytes()
    }

    pub(crate) fn waiting_messages(&self) -> usize {
        self.store.queued()
    }

    /// Messages of topics that are queued, or sent with unknown outcome.
    pub(crate) fn unsettled(&self) -> u64 {
        let topics = self.channels.iter().filter(|(it, _)| matches!(it, Traffic::Topic(_)));
        topics.map(|(_, open)| open.stats.queued + open.stats.sent).sum()
    }

    /// Control messages that are not acknowledged.
    pub(crate) fn control_backlog(&self) -> u64 {
        let control = self.channels.get(&Traffic::Control);
        control.map_or(0, |open| open.stats.queued + open.stats.sent)
    }
}

/// Order of sending.
impl Queues {
    /// The urgency of a packet that begins with this message.
    pub(crate) fn urgency(&self, order: SendOrder) -> Urgency {
        let message = self.store.get(order.id);
        let expires = message.and_then(|message| message.lifespan_end);
        Urgency { priority: order.priority(), expires }
    }

    /// Whether a message that is not begun would expire before it arrives, while a newer message of its
    /// source is queued. On a link that is too slow for its load, every message would otherwise begin shortly
    /// before it expires, and none would arrive. The newest message is tried in any case: the estimate comes
    /// from the sending time of the previous message, and may be wrong.
    pub(super) fn cannot_arrive_in_time(&self, now: Instant, message: &Outgoing) -> bool {
        let (None, Some(end)) = (message.number, message.lifespan_end) else { return false };
        let queue = &self.channels[&message.traffic].sources[&message.source];
        let has_newer = queue.unsent.last() != Some(&message.order.id);
        let Some(previous) = queue.last_sent.filter(|_| has_newer) else { return false };
        let relative = f64::from(message.extent()) / f64::from(previous.bytes);
        let margin = end.since(message.published) / TRANSIT_DIVISOR;
        now + previous.duration.mul_f64(relative * LATE_SEND_FACTOR) + margin > end
    }

    /// The number that a message gets if it begins now. Numbers follow the order of publication,
    /// even if an earlier message still waits for its link.
    pub(super) fn upcoming_number(&self, message: &Outgoing) -> u64 {
        let queue = &self.channels[&message.traffic].sources[&message.source];
        queue.last_number + 1 + queue.unsent.range(..message.order.id).count() as u64
    }

    /// Assigns numbers to the messages of a source up to this one.
    pub(super) fn assign_numbers_up_to(&mut self, traffic: Traffic, source: u32, last: MessageId) {
        let open = self.channels.get_mut(&traffic);
        let Some(queue) = open.and_then(|open| open.sources.get_mut(&source)) else { return };
        while let Some(id) = queue.unsent.first().copied().filter(|id| *id <= last) {
            queue.unsent.pop_first();
            queue.last_number += 1;
            let number = queue.last_number;
            queue.begun.insert(number, id);
            self.store.change(id, |message| message.number = Some(number));
        }
    }

    /// Whether a piece, sent for the first time, ends an urgent message that is small enough for copies.
    pub(super) fn ends_small_urgent_message(
        &self,
        carrier: Carrier,
        message: &Outgoing,
        end: u32,
    ) -> bool {
        let is_urgent = message.traffic != Traffic::Control && message.order.priority() >= URGENT;
        let is_one_copy = message.copies.is_none() && carrier.copies == 1;
        let is_small = message.extent() <= MAX_REDUNDANT_BYTES && end == message.extent();
        let config = &self.channels[&message.traffic].config;
        let is_repaired = config.repair && config.fec.is_none();
        is_urgent && is_one_copy && is_small && is_repaired && message.origin.is_none()
    }

    /// Whether a frame of the message joins a block. Copies on several links replace parity, and a
    /// repair is sent only after the fate of its block is decided.
    pub(super) fn is_protected(&self, carrier: Carrier, message: &Outgoing, repair: bool) -> bool {
        let is_copied = message.copies.is_some() || carrier.copies > 1;
        let has_fec = || self.channels[&message.traffic].config.fec.is_some();
        message.traffic != Traffic::Control && !repair && !is_copied && has_fec()
    }

    pub(super) fn schedule_redundant_copies(
        &mut self,
        now: Instant,
        carrier: Carrier,
        id: MessageId,
    ) {
        let Some(Redundancy { copies, interval }) = carrier.redundancy else { return };
        self.change(id, |message| {
            message.redundant_copies =
                Some(RedundantCopies { next_at: now + interval, interval, left: copies });
        });
    }

    /// Ends the copies of messages on a link that is down.
    pub(crate) fn abandon_copies(&mut self, link: u8) {
        for id in self.store.ids(|message| message.copies.is_some()) {
            self.change(id, |message| {
                let left = message.copies.as_mut().and_then(|copies| copies.abandon(link));
                if let Some(next) = left {
                    (message.copies, message.next) = (None, next);
                }
            });
        }
    }

    /// Clears the suspicion of a piece that was acknowledged.
    pub(super) fn clear_suspicion(&mut self, piece: &Piece) {
        self.change(piece.message, |message| {
            if !message.is_suspected() {
                return;
            }
            message.suspected.remove(&piece.range);
            if !message.is_suspected() {
                (message.expires, message.is_checked) = (message.lifespan_end, false);
            }
        });
    }
}

/// Relayed packets: those of others, and our own to nodes behind a relay.
impl Queues {
    /// Counters of all relayed packets, our own included.
    pub(crate) fn relayed_stats(&self) -> OutStats {
        let mut sum = OutStats::default();
        for (_, channel) in self.channels.range(Traffic::Relayed(0)..) {
            sum.add(&channel.stats);
        }
        sum
    }

    /// Backlog of one origin, in bytes.
    pub(crate) fn relayed_backlog(&self, origin: RelayOrigin) -> u64 {
        self.store.backlog.sums.get(&origin).map_or(0, |sum| sum.bytes)
    }

    /// Memory of all relayed packets from one neighbour, with the overhead of each packet.
    pub(crate) fn memory_of_packets_from(&self, hop: PeerId) -> u64 {
        let first = RelayOrigin::Forwarded(hop, Flow::FIRST);
        let from = self.store.backlog.sums.range(first..).map_while(|(origin, sum)| match origin {
            RelayOrigin::Forwarded(from, _) if *from == hop => Some(sum.memory_bytes()),
            _ => None,
        });
        from.fold(0, u64::saturating_add)
    }

    /// Memory of all messages that are queued, or sent with unknown outcome, with the overhead of each
    /// message.
    pub(crate) fn memory_of_messages(&self) -> u64 {
        let (bytes, packets) = (self.store.held_bytes() as u64, self.store.len() as u64);
        BacklogSize { bytes, packets }.memory_bytes()
    }

    /// Whether relayed packets are queued.
    pub(crate) fn has_relayed(&self) -> bool {
        self.store.ready().any(|(_, message)| message.origin.is_some())
    }

    /// The next origin whose backlog has changed.
    pub(crate) fn pop_backlog_change(&mut self) -> Option<RelayOrigin> {
        self.store.backlog.changes.pop_first()
    }
}
