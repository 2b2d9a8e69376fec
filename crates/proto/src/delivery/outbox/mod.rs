// SPDX-License-Identifier: Apache-2.0
//! The messages for one peer, and their send order.
//!
//! The order is by priority (control messages first), then by due time, then by arrival. Fair
//! queuing between peers is in [`crate::path::radio`]. A message of higher priority overtakes at the
//! next packet, because a packet is cut from a message only when it is sent.

mod copies;
mod frame;
mod frames;
mod loss;
mod message;
mod order;
mod outcome;
mod parity;
mod queues;
mod relayed;
mod store;

pub(crate) use frame::{Carrier, FrameKind, Scope, Urgency};
pub(crate) use loss::LossCertainty;
pub use message::Message;
use order::CONTROL_RANK;
pub(crate) use order::SendOrder;
use queues::{OutChannel, Queues};
use relayed::Backlog;
pub(crate) use relayed::{Flow, RelayOrigin, RelayedPacket};
use store::Outgoing;

use crate::config::Config;
use crate::delivery::fec::sender::Blocks;
use crate::delivery::repair_backoff::RepairBackoff;
use crate::delivery::repair_budget::RepairBudget;
use crate::delivery::traffic::Traffic;
use crate::delivery::{MessageId, Piece};
use crate::error::SendError;
use crate::limits;
use crate::stats::{DropReason, Forwarded, OutStats};
use crate::time::{Duration, Instant};

/// Maximum number of publishers on one channel. Further publishers share the last source number.
pub(crate) const MAX_SOURCES: u32 = limits::SOURCES_PER_CHANNEL;
/// Messages for one peer.
#[derive(Debug)]
pub(crate) struct Outbox {
    pub(crate) queues: Queues,
    blocks: Blocks,
    /// Limit of the bytes of all messages, as given with the last accepted message.
    queue_bytes: usize,
    /// Largest message that the peer accepts, if the peer has stated it.
    peer_max_message: usize,
    /// Pieces whose blocks cannot be recovered, because parity was dropped.
    unrecoverable_pieces: Vec<Piece>,
    pub(crate) repairs: RepairBudget,
    pub(crate) control_repairs: RepairBackoff,
    /// Counters of relayed packets of others.
    pub(crate) forwarded: Forwarded,
}

impl Outbox {
    pub(crate) fn new(repair_percent: u32) -> Self {
        let mut outbox = Self {
            queues: Queues { next_id: 1, ..Queues::default() },
            blocks: Blocks::default(),
            queue_bytes: 0,
            peer_max_message: usize::MAX,
            unrecoverable_pieces: Vec::new(),
            repairs: RepairBudget::new(repair_percent),
            control_repairs: RepairBackoff::default(),
            forwarded: Forwarded::default(),
        };
        outbox.queues.add_internal(Traffic::Control, CONTROL_RANK);
        outbox
    }

    /// Starts a new session: messages are dropped and numbers begin again; channels and counters
    /// remain.
    pub(crate) fn restart(&mut self, repair_percent: u32) {
        let mut fresh = Self::new(repair_percent);
        fresh.queues.next_id = self.queues.next_id;
        let kept = |it: &Traffic| matches!(it, Traffic::Topic(_) | Traffic::Relayed(_));
        let open: Vec<_> = self.queues.channels.keys().copied().filter(kept).collect();
        for traffic in open {
            self.drop_channel_messages(traffic, DropReason::PeerGone);
            let Some(mut kept) = self.queues.channels.remove(&traffic) else { continue };
            kept.wanted = matches!(traffic, Traffic::Relayed(_));
            kept.sources.clear();
            fresh.queues.channels.insert(traffic, kept);
        }
        fresh.queues.store.backlog = Backlog::restarted_from(&mut self.queues.store.backlog);
        fresh.forwarded = self.forwarded;
        *self = fresh;
    }

    /// Whether messages wait, and all of them wait for repair budget.
    pub(crate) fn waits_for_budget(&self) -> bool {
        self.queues.waiting_messages() > 0 && self.next_in_order(Scope::All).is_none()
    }

    /// Closes all channels, including those of control messages and relayed packets, and drops their
    /// messages. Returns the last counters of the topics' channels.
    pub(crate) fn close(&mut self) -> Vec<(u64, OutStats)> {
        let topics: Vec<u64> = self.queues.channels().collect();
        let closed = topics.into_iter().filter_map(|it| Some((it, self.close_channel(it)?)));
        let closed = closed.collect();
        for traffic in self.queues.channels.keys().copied().collect::<Vec<_>>() {
            self.drop_channel_messages(traffic, DropReason::PeerGone);
        }
        self.queues.channels.clear();
        closed
    }

    /// Sets whether the peer is subscribed to a channel, and drops the channel's messages when the
    /// subscription ends. Returns whether the subscription changed.
    pub(crate) fn set_wanted(&mut self, channel: u64, wanted: bool) -> bool {
        let topic = Traffic::Topic(channel);
        let Some(open) = self.queues.channels.get_mut(&topic) else { return false };
        let changed = std::mem::replace(&mut open.wanted, wanted) != wanted;
        if changed && !wanted {
            self.drop_parity(channel, DropReason::Refused);
            self.drop_channel_messages(topic, DropReason::Refused);
        }
        changed
    }

    /// Closes the channel of a topic; returns its last counters.
    pub(crate) fn close_channel(&mut self, channel: u64) -> Option<OutStats> {
        self.drop_parity(channel, DropReason::PeerGone);
        self.queues.channels.remove(&Traffic::Parity(channel));
        self.drop_channel_messages(Traffic::Topic(channel), DropReason::PeerGone);
        self.queues.channels.remove(&Traffic::Topic(channel)).map(|c| c.stats)
    }

    /// Sets the largest message that the peer takes in this session, and drops larger ones.
    pub(crate) fn set_peer_max_message(&mut self, most: usize) {
        self.peer_max_message = most;
        let is_larger =
            |it: &Outgoing| matches!(it.traffic, Traffic::Topic(_)) && it.payload.len() > most;
        for id in self.queues.store.ids(is_larger) {
            self.drop_message(id, DropReason::TooLarge);
        }
    }

    fn drop_channel_messages(&mut self, traffic: Traffic, reason: DropReason) {
        for id in self.queues.store.ids(|message| message.traffic == traffic) {
            self.drop_message(id, reason);
        }
    }

    pub(crate) fn next_expiry(&self) -> Option<Instant> {
        let expiry = self.queues.store.next_expiry().map(|(at, _)| at);
        expiry.into_iter().chain(self.blocks.next_end()).min()
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
        let (found, allowed) =
            (message.payload.len(), config.max_message.min(self.peer_max_message));
        if found > allowed {
            return Err(SendError::TooLarge { found, allowed });
        }
        let topic = Traffic::Topic(channel);
        let open = self.queues.channels.get_mut(&topic).filter(|c| c.wanted);
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
        if open.config.thin && self.queues.is_being_sent(topic, source) {
            self.queues.count_drop(topic, DropReason::Thinned);
            return Ok(());
        }
        let expires = lifespan.map(|l| message.published + l);
        self.queues.insert(topic, message, expires, None);
        for id in self.queues.surplus(topic, source) {
            self.drop_message(id, DropReason::Superseded);
        }
        self.enforce_bytes(config.queue_bytes);
        if let Some(rate_bps) = rate_bps {
            self.enforce_time(config.queue_time, rate_bps);
        }
        Ok(())
    }

    pub(crate) fn enforce_bytes(&mut self, queue_bytes: usize) {
        self.queue_bytes = queue_bytes;
        while self.queues.store.held_bytes() > queue_bytes
            || self.queues.store.len() > limits::MESSAGES
        {
            let Some((id, _)) = self.queues.store.eviction_order().next() else { return };
            self.drop_message(id, DropReason::Overflow);
        }
    }

    /// Drops messages that are not begun until the remaining ones drain in time. Messages of a priority are
    /// dropped while too many bytes wait at that priority and above. The newest message of each source
    /// remains, so that a slow link still carries something of each topic.
    fn enforce_time(&mut self, queue_time: Duration, rate_bps: u64) {
        let bound = u128::from(rate_bps) * queue_time.as_millis() / 8000;
        let bound = u64::try_from(bound).unwrap_or(u64::MAX);
        while let Some(rank) = self.queues.store.first_rank_over(bound) {
            let Some(id) = self.queues.first_evictable_unsent(rank) else { return };
            self.drop_message(id, DropReason::Overflow);
        }
    }

    /// Drops messages that expired before they were sent completely, and messages suspected lost
    /// whose grace period has passed. Also makes copies due, and ends blocks whose time has passed.
    pub(crate) fn expire(&mut self, now: Instant) {
        self.end_blocks(now);
        while let Some((_, id)) = self.queues.store.next_expiry().filter(|(at, _)| *at <= now) {
            if self.queues.change(id, |message| message.release_redundant_copy(now)) == Some(true) {
                continue;
            }
            match self.queues.store.get(id) {
                Some(message) if message.is_suspected() => self.drop_message(id, DropReason::Lost),
                Some(message) if message.is_queued() => self.drop_message(id, DropReason::Expired),
                _ => drop(self.queues.store.change(id, |message| message.is_checked = true)),
            }
        }
    }

    fn drop_message(&mut self, id: MessageId, reason: DropReason) {
        if self.queues.store.get(id).is_some_and(Outgoing::is_forwarded) {
            self.forwarded.dropped.add(reason);
        }
        self.unrecoverable_pieces.extend(self.blocks.on_parity_dropped(id));
        if let Some(channel) = self.remove_message(id) {
            channel.stats.dropped.add(reason);
        }
    }

    /// Removes a message; returns its channel, so that the caller counts the outcome.
    fn remove_message(&mut self, id: MessageId) -> Option<&mut OutChannel> {
        let message = self.queues.store.remove(id)?;
        if message.first_sent != Instant::NEVER {
            self.repairs.end_message(message.extent());
        }
        let channel = self.queues.channels.get_mut(&message.traffic)?;
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
}

/// Relayed packets.
impl Outbox {
    /// Queues a relayed packet.
    pub(crate) fn enqueue_relayed(&mut self, packet: RelayedPacket) {
        let RelayedPacket { priority, payload, published, expires, origin, is_forwarded_again } =
            packet;
        let traffic = Traffic::Relayed(priority);
        if !self.queues.channels.contains_key(&traffic) {
            self.queues.add_internal(traffic, priority.into());
        }
        if let Some(open) = self.queues.channels.get_mut(&traffic) {
            open.stats.accepted += 1;
            open.stats.bytes += payload.len() as u64;
        }
        let (payload, encoded, lifespan) = (payload.into(), false, None);
        let message = Message { payload, published, source: 0, encoded, lifespan };
        self.queues.insert(traffic, message, expires, Some((origin, is_forwarded_again)));
    }

    /// Drops queued relayed packets of the origins that `which` selects, for example when no link
    /// leads to the next hop.
    pub(crate) fn drop_relayed(&mut self, which: impl Fn(RelayOrigin) -> bool) {
        for id in self.queues.store.ids(|message| message.origin.is_some_and(&which)) {
            self.drop_message(id, DropReason::PeerGone);
        }
    }
}
