// SPDX-License-Identifier: Apache-2.0
//! The messages for one peer, and their send order.
//!
//! The order is by priority (control messages first), then by due time, then by arrival. Fair
//! queuing between peers is in [`crate::path::radio`]. A message of higher priority overtakes at the
//! next packet, because a packet is cut from a message only when it is sent.

mod copies;
mod frames;
mod outcome;
mod parity;
mod relayed;
mod store;

pub(crate) use frames::{Carrier, FrameKind, Scope, Urgency};
use outcome::FutileRepairs;
pub(crate) use outcome::LossCertainty;
use relayed::Backlog;
pub(crate) use relayed::{Flow, RelayOrigin, RelayedPacket};
use store::{MessageStore, Outgoing};

use crate::config::{ChannelConfig, Config};
use crate::delivery::fec::sender::Blocks;
use crate::delivery::fragment::RangeSet;
use crate::delivery::repair_backoff::RepairBackoff;
use crate::delivery::repair_budget::RepairBudget;
use crate::delivery::traffic::Traffic;
use crate::delivery::{MessageId, Piece};
use crate::error::SendError;
use crate::limits;
use crate::path::policy::LinkUse;
use crate::stats::{DropReason, Forwarded, OutStats};
use crate::time::{Duration, Instant};
use crate::wire::control::OfferedTopic;
use bytes::Bytes;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Rank of control messages, above all priorities.
const CONTROL_RANK: u16 = 256;
/// Priority of control messages through relays: handshakes and heartbeats precede definitions.
const RELAYED_CONTROL: u8 = 254;
/// Limit of publishers on one channel; further ones share the last number.
pub(crate) const MAX_SOURCES: u32 = limits::SOURCES_PER_CHANNEL;
/// A message without a lifespan is due this long after its publication.
const DEFAULT_DUE: Duration = Duration::from_secs(1);

/// A message to send.
#[derive(Debug, Clone)]
pub struct Message {
    /// The payload.
    pub payload: Bytes,
    /// When it was published, at most `now`.
    pub published: Instant,
    /// The publisher within the channel.
    pub source: u32,
    /// The application encoded (compressed) the payload.
    pub encoded: bool,
    /// Age past which the message is worthless, if that is less than the lifespan of its channel.
    pub lifespan: Option<Duration>,
}

/// The position of a message in the send order; smaller is earlier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SendOrder {
    pub(crate) rank: Reverse<u16>,
    due: Instant,
    id: MessageId,
}

impl SendOrder {
    /// The priority of the message; control messages have one above nearly all.
    pub(crate) fn priority(&self) -> u8 {
        u8::try_from(self.rank.0).unwrap_or(RELAYED_CONTROL)
    }

    /// Whether it is a control message.
    pub(crate) fn is_control(&self) -> bool {
        self.rank.0 == CONTROL_RANK
    }
}

/// The time from the first to the last packet of a message, and its bytes.
#[derive(Debug, Clone, Copy)]
struct SendingTime {
    duration: Duration,
    bytes: u32,
}

#[derive(Debug, Default)]
struct SourceQueue {
    /// The last message that took more than one packet.
    last_sent: Option<SendingTime>,
    last_number: u64,
    newest_delivered: u64,
    /// Oldest first: ids grow.
    unsent: BTreeSet<MessageId>,
    begun: BTreeMap<u64, MessageId>,
}

#[derive(Debug)]
struct OutChannel {
    config: ChannelConfig,
    rank: u16,
    wanted: bool,
    sources: BTreeMap<u32, SourceQueue>,
    stats: OutStats,
}

/// Messages for one peer.
#[derive(Debug)]
pub(crate) struct Outbox {
    channels: BTreeMap<Traffic, OutChannel>,
    store: MessageStore,
    next_id: u64,
    blocks: Blocks,
    /// Limit of the bytes of all messages, as of the last one accepted.
    queue_bytes: usize,
    /// Pieces whose blocks cannot be recovered, because parity was dropped.
    unrecovered: Vec<Piece>,
    repairs: RepairBudget,
    pub(crate) control_repairs: RepairBackoff,
    forwarded: Forwarded,
}

impl Outbox {
    pub(crate) fn new(repair_percent: u32) -> Self {
        let mut outbox = Self {
            channels: BTreeMap::new(),
            store: MessageStore::default(),
            next_id: 1,
            blocks: Blocks::default(),
            queue_bytes: 0,
            unrecovered: Vec::new(),
            repairs: RepairBudget::new(repair_percent),
            control_repairs: RepairBackoff::default(),
            forwarded: Forwarded::default(),
        };
        outbox.add_internal(Traffic::Control, CONTROL_RANK);
        outbox
    }

    /// Starts a new session: messages are dropped and numbers begin again; channels and counters
    /// remain.
    pub(crate) fn restart(&mut self, repair_percent: u32) {
        let mut fresh = Self::new(repair_percent);
        fresh.next_id = self.next_id;
        let kept = |it: &Traffic| matches!(it, Traffic::Topic(_) | Traffic::Relayed(_));
        let open: Vec<_> = self.channels.keys().copied().filter(kept).collect();
        for traffic in open {
            self.drop_channel_messages(traffic, DropReason::PeerGone);
            let Some(mut kept) = self.channels.remove(&traffic) else { continue };
            kept.wanted = matches!(traffic, Traffic::Relayed(_));
            kept.sources.clear();
            fresh.channels.insert(traffic, kept);
        }
        fresh.store.backlog = Backlog::after(&mut self.store.backlog);
        fresh.forwarded = self.forwarded;
        *self = fresh;
    }

    /// Whether messages wait for repair budget, and no other.
    pub(crate) fn waits_for_budget(&self) -> bool {
        self.waiting_messages() > 0 && self.next_in_order(Scope::All).is_none()
    }

    /// Sets the rate of the link that is left to repairs alone; `None` while there is other data.
    pub(crate) fn set_idle_rate(&mut self, now: Instant, idle_bps: Option<u64>) {
        self.repairs.set_idle(now, idle_bps);
    }

    /// Changes the repair budget.
    pub(crate) fn set_repair_percent(&mut self, percent: u32) {
        self.repairs.set_percent(percent);
    }

    /// Closes all channels, including those of control messages and relayed packets, and drops their
    /// messages. Returns the last counters of the topics' channels.
    pub(crate) fn close(&mut self) -> Vec<(u64, OutStats)> {
        let topics: Vec<u64> = self.channels().collect();
        let closed = topics.into_iter().filter_map(|it| Some((it, self.close_channel(it)?)));
        let closed = closed.collect();
        for traffic in self.channels.keys().copied().collect::<Vec<_>>() {
            self.drop_channel_messages(traffic, DropReason::PeerGone);
        }
        self.channels.clear();
        closed
    }

    /// Adds a channel without a topic.
    fn add_internal(&mut self, traffic: Traffic, rank: u16) {
        let topic = OfferedTopic::nameless(u8::try_from(rank).unwrap_or(u8::MAX));
        // Channels need control messages. Packets for other nodes have no topic that could permit
        // them.
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

    fn configure(&mut self, traffic: Traffic, config: ChannelConfig) {
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

    fn set_rank(&mut self, traffic: Traffic, rank: u16) {
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

    /// Sets the peer's subscription to a channel, and drops its messages when that ends. Returns
    /// whether it changed.
    pub(crate) fn set_wanted(&mut self, channel: u64, wanted: bool) -> bool {
        let topic = Traffic::Topic(channel);
        let Some(open) = self.channels.get_mut(&topic) else { return false };
        let changed = std::mem::replace(&mut open.wanted, wanted) != wanted;
        if changed && !wanted {
            self.drop_parity(channel, DropReason::Refused);
            self.drop_channel_messages(topic, DropReason::Refused);
        }
        changed
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

    /// Source and payload of the messages of a channel that are queued, or sent with unknown outcome.
    pub(crate) fn pending(&self, channel: u64) -> impl Iterator<Item = (u32, &Bytes)> {
        let open = self.channels.get(&Traffic::Topic(channel));
        let sources = open.into_iter().flat_map(|open| open.sources.iter());
        sources.flat_map(|(source, queue)| {
            let ids = queue.begun.values().chain(&queue.unsent);
            let messages = ids.filter_map(|id| self.store.get(*id));
            messages.map(|message| (*source, &message.payload))
        })
    }

    /// Closes the channel of a topic; returns its last counters.
    pub(crate) fn close_channel(&mut self, channel: u64) -> Option<OutStats> {
        self.drop_parity(channel, DropReason::PeerGone);
        self.channels.remove(&Traffic::Parity(channel));
        self.drop_channel_messages(Traffic::Topic(channel), DropReason::PeerGone);
        self.channels.remove(&Traffic::Topic(channel)).map(|c| c.stats)
    }

    fn drop_channel_messages(&mut self, traffic: Traffic, reason: DropReason) {
        for id in self.store.ids(|message| message.traffic == traffic) {
            self.drop_message(id, reason);
        }
    }

    pub(crate) fn waiting_bytes(&self) -> u64 {
        self.store.waiting_bytes()
    }

    /// Control messages that are not acknowledged.
    pub(crate) fn control_backlog(&self) -> u64 {
        let control = self.channels.get(&Traffic::Control);
        control.map_or(0, |open| open.stats.queued + open.stats.sent)
    }

    pub(crate) fn waiting_messages(&self) -> usize {
        self.store.queued()
    }

    pub(crate) fn next_expiry(&self) -> Option<Instant> {
        let expiry = self.store.next_expiry().map(|(at, _)| at);
        expiry.into_iter().chain(self.blocks.next_end()).min()
    }

    /// Accepts a control message.
    pub(crate) fn accept_control(&mut self, now: Instant, payload: Vec<u8>) {
        let (payload, encoded, lifespan) = (payload.into(), false, None);
        let message = Message { payload, published: now, source: 0, encoded, lifespan };
        self.insert(Traffic::Control, message, None, None);
    }

    /// Accepts a message, and drops others where a limit is exceeded.
    pub(crate) fn accept(
        &mut self,
        now: Instant,
        config: &Config,
        rate_bps: Option<u64>,
        channel: u64,
        mut message: Message,
    ) -> Result<(), SendError> {
        if message.payload.len() > config.max_message {
            let found = message.payload.len();
            return Err(SendError::TooLarge { found, allowed: config.max_message });
        }
        let topic = Traffic::Topic(channel);
        let open = self.channels.get_mut(&topic).filter(|c| c.wanted);
        let open = open.ok_or(SendError::NotWanted)?;
        message.source = message.source.min(MAX_SOURCES - 1);
        open.stats.accepted += 1;
        open.stats.bytes += message.payload.len() as u64;
        let lifespan = message.lifespan.into_iter().chain(open.config.topic.lifespan).min();
        if lifespan.is_some_and(|l| now.since(message.published) > l) {
            open.stats.dropped.add(DropReason::Expired);
            return Ok(());
        }
        let source = message.source;
        if open.config.thin && self.is_being_sent(topic, source) {
            self.count_drop(topic, DropReason::Thinned);
            return Ok(());
        }
        let expires = lifespan.map(|l| message.published + l);
        self.insert(topic, message, expires, None);
        self.keep_last(topic, source);
        self.enforce_bytes(config.queue_bytes);
        if let Some(rate_bps) = rate_bps {
            self.enforce_time(config.queue_time, rate_bps);
        }
        Ok(())
    }

    fn count_drop(&mut self, traffic: Traffic, reason: DropReason) {
        if let Some(open) = self.channels.get_mut(&traffic) {
            open.stats.dropped.add(reason);
        }
    }

    /// Whether a message of a source is partly sent. A source begins its messages one after another,
    /// so that only the newest begun one can be.
    fn is_being_sent(&self, traffic: Traffic, source: u32) -> bool {
        let queue = self.channels.get(&traffic).and_then(|open| open.sources.get(&source));
        let newest = queue.and_then(|queue| queue.begun.last_key_value());
        let newest = newest.and_then(|(_, id)| self.store.get(*id));
        newest.is_some_and(|message| message.unsent_bytes() > 0)
    }

    fn insert(
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
            futile: FutileRepairs::default(),
            acked: RangeSet::default(),
            suspected: RangeSet::default(),
            spares: None,
            spare_is_due: false,
        });
    }

    fn keep_last(&mut self, traffic: Traffic, source: u32) {
        let Some(open) = self.channels.get(&traffic) else { return };
        let keep = open.config.topic.keep_last.max(1) as usize;
        let Some(queue) = open.sources.get(&source) else { return };
        let surplus = queue.unsent.len().saturating_sub(keep);
        let oldest: Vec<_> = queue.unsent.iter().take(surplus).copied().collect();
        for id in oldest {
            self.drop_message(id, DropReason::Superseded);
        }
    }

    pub(crate) fn enforce_bytes(&mut self, queue_bytes: usize) {
        self.queue_bytes = queue_bytes;
        while self.store.held_bytes() > queue_bytes || self.store.len() > limits::MESSAGES {
            let Some((id, _)) = self.store.eviction_order().next() else { return };
            self.drop_message(id, DropReason::Overflow);
        }
    }

    /// Drops messages that are not begun until the rest drains in time: those that wait for too many
    /// bytes of their priority and above. The newest message of each source remains, so that a slow
    /// link still carries some of each topic.
    fn enforce_time(&mut self, queue_time: Duration, rate_bps: u64) {
        let bound = u128::from(rate_bps) * queue_time.as_millis() / 8000;
        let bound = u64::try_from(bound).unwrap_or(u64::MAX);
        while let Some(rank) = self.store.rank_behind(bound) {
            let Some(id) = self.first_not_begun(rank) else { return };
            self.drop_message(id, DropReason::Overflow);
        }
    }

    /// The first message to evict of a rank and below that is not begun, and not the newest one of
    /// its source.
    fn first_not_begun(&self, rank: u16) -> Option<MessageId> {
        let order = self.store.eviction_order();
        let mut order = order.take_while(|(_, message)| message.order.rank.0 <= rank);
        let found = order.find(|(id, message)| {
            let queue = &self.channels[&message.traffic].sources[&message.source];
            message.number.is_none() && queue.unsent.last() != Some(id)
        });
        found.map(|(id, _)| id)
    }

    /// Drops messages that expired before they were sent completely, and messages suspected lost
    /// whose grace has passed. Makes copies due, and ends blocks.
    pub(crate) fn expire(&mut self, now: Instant) {
        self.end_blocks(now);
        while let Some((_, id)) = self.store.next_expiry().filter(|(at, _)| *at <= now) {
            if self.change(id, |message| message.release_spare(now)) == Some(true) {
                continue;
            }
            match self.store.get(id) {
                Some(message) if message.is_suspected() => self.drop_message(id, DropReason::Lost),
                Some(message) if message.is_queued() => self.drop_message(id, DropReason::Expired),
                _ => drop(self.store.change(id, |message| message.is_checked = true)),
            }
        }
    }

    fn drop_message(&mut self, id: MessageId, reason: DropReason) {
        if self.store.get(id).is_some_and(Outgoing::is_of_others) {
            self.forwarded.dropped.add(reason);
        }
        self.unrecovered.extend(self.blocks.dropped(id));
        if let Some(channel) = self.take(id) {
            channel.stats.dropped.add(reason);
        }
    }

    /// Removes a message; returns its channel, so that the caller counts the outcome.
    fn take(&mut self, id: MessageId) -> Option<&mut OutChannel> {
        let message = self.store.remove(id)?;
        if message.first_sent != Instant::NEVER {
            self.repairs.end(message.extent());
        }
        let channel = self.channels.get_mut(&message.traffic)?;
        if message.is_queued() {
            channel.stats.queued -= 1;
        } else {
            channel.stats.sent -= 1;
        }
        if let Some(queue) = channel.sources.get_mut(&message.source) {
            match message.number {
                Some(number) => drop(queue.begun.remove(&number)),
                None => drop(queue.unsent.remove(&id)),
            }
        }
        Some(channel)
    }

    /// Changes a message, and the counters of its channel accordingly.
    fn change<T>(&mut self, id: MessageId, change: impl FnOnce(&mut Outgoing) -> T) -> Option<T> {
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
}
