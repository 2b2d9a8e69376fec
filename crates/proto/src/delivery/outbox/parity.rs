// SPDX-License-Identifier: Apache-2.0
//! Parity of a topic's frames. It is queued in the form of messages.

use super::Outbox;
use super::loss::LossCertainty;
use super::message::Message;
use crate::config::ChannelConfig;
use crate::delivery::fec::sender::{CompleteBlock, JoiningFrame};
use crate::delivery::traffic::Traffic;
use crate::delivery::{MessageId, Piece};
use crate::path::policy::{LinkPolicy, LinkUse};
use crate::stats::DropReason;
use crate::time::{Duration, Instant};
use crate::wire::control::OfferedTopic;
use crate::wire::frame::Data;

/// Lifespan of the parity of messages without a lifespan. Repairs that are never acknowledged also
/// continue for at least this time.
const DEFAULT_LIFESPAN: Duration = Duration::from_secs(10);

impl Outbox {
    /// Adds a frame to the block of its channel, and queues the parity if the block is complete.
    pub(super) fn join_block(&mut self, now: Instant, data: &Data, payload: &[u8], piece: &Piece) {
        let Some(message) = self.queues.store.get(piece.message) else { return };
        let rest = message.extent() - piece.range.start;
        let lifespan = message.lifespan_end.map(|end| end.since(message.published));
        let frame = JoiningFrame { data, payload, piece, rest, lifespan };
        let complete = self.blocks.join(now, message.traffic.channel(), &frame);
        complete.into_iter().for_each(|block| self.queue_parity(&block));
    }

    /// Completes the blocks whose time has passed. Repairs the pieces that cannot be recovered because their
    /// parity was dropped.
    pub(super) fn end_blocks(&mut self, now: Instant) {
        while let Some(block) = self.blocks.end_due_block(now) {
            self.queue_parity(&block);
        }
        for piece in std::mem::take(&mut self.unrecoverable_pieces) {
            self.on_piece_lost(now, &piece, LossCertainty::Certain);
        }
    }

    fn queue_parity(&mut self, block: &CompleteBlock) {
        let Some(open) = self.queues.channels.get(&Traffic::Topic(block.channel)) else { return };
        let Some(percent) = open.config.fec else {
            self.unrecoverable_pieces.extend(self.blocks.abandon(block.channel));
            return;
        };
        let expires = block.began + block.lifespan.unwrap_or(DEFAULT_LIFESPAN);
        let parity = self.open_parity(block.channel, &open.config.clone());
        let first = self.queues.next_id;
        let payloads = block.parity(percent);
        let bytes = payloads.first().map_or(0, Vec::len) as u32;
        for payload in payloads {
            // Parity must not displace messages.
            if self.queues.store.held_bytes() + payload.len() > self.queue_bytes {
                break;
            }
            let (payload, published) = (payload.into(), block.began);
            let (source, encoded, lifespan) = (0, false, None);
            let message = Message { payload, published, source, encoded, lifespan };
            self.queues.insert(parity, message, Some(expires), None);
        }
        let messages = (first..self.queues.next_id).map(MessageId).collect();
        self.blocks.on_parity_queued(block, messages, bytes);
    }

    /// Forgets a parity message that was sent, since parity is not repaired. The fate of the parity
    /// still counts for its block.
    pub(super) fn on_parity_sent(&mut self, id: MessageId) {
        if let Some(open) = self.remove_message(id) {
            open.stats.delivered += 1;
        }
    }

    /// Opens the parity of a channel with this configuration.
    fn open_parity(&mut self, channel: u64, protected: &ChannelConfig) -> Traffic {
        let topic = OfferedTopic {
            keep_last: u32::MAX,
            ..OfferedTopic::nameless(protected.topic.priority)
        };
        let policy = match protected.links.policy {
            LinkPolicy::Duplicate(_) => LinkPolicy::Best,
            other => other,
        };
        let links = LinkUse { policy, ..protected.links };
        let (definition, repair, thin, fec) = ("".into(), false, false, None);
        let config = ChannelConfig { topic, definition, repair, thin, links, fec };
        let parity = Traffic::Parity(channel);
        self.queues.configure(parity, config);
        if let Some(open) = self.queues.channels.get_mut(&parity) {
            open.wanted = true;
        }
        parity
    }

    /// Drops the parity of a channel that is closed or no longer wanted.
    pub(super) fn drop_parity(&mut self, channel: u64, reason: DropReason) {
        let _ = self.blocks.abandon(channel);
        self.drop_channel_messages(Traffic::Parity(channel), reason);
    }
}
