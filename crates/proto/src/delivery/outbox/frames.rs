// SPDX-License-Identifier: Apache-2.0
//! Selects the next message of the send order, and cuts frames from it.

use super::Outbox;
use super::copies::Copies;
use super::frame::{Carrier, FrameKind, FrameToSend, ReadyMessage, Scope};
use super::order::SendOrder;
use super::queues::SendingTime;
use super::store::Outgoing;
use crate::delivery::Piece;
use crate::delivery::fec::sender::PARITY_OVERHEAD;
use crate::delivery::traffic::Traffic;
use crate::stats::DropReason;
use crate::time::Instant;
use crate::wire::frame::{Data, Fragment};
use std::ops::Range;

/// Smallest fragment, unless it is the rest of a message.
const MIN_PIECE: usize = 64;
/// Maximum number of messages examined to find a message that may be sent now.
const MAX_SCAN: usize = 64;
/// Maximum number of messages examined to assign the next one to one of several links.
const MAX_ASSIGNED: usize = 1024;

impl Outbox {
    /// The first message that may be sent now.
    pub(crate) fn next_in_order(&self, scope: Scope) -> Option<SendOrder> {
        self.first_ready(scope).map(|(order, _)| order)
    }

    fn first_ready(&self, scope: Scope) -> Option<(SendOrder, &Outgoing)> {
        let in_scope = |it: &Outgoing| scope == Scope::All || it.origin.is_none();
        let mut ready = self.queues.store.ready().filter(|(_, it)| in_scope(it)).take(MAX_SCAN);
        ready.find(|(_, it)| self.may_repair(it) || it.unsent_bytes() > 0)
    }

    /// Messages that may be sent now, in send order.
    pub(crate) fn ready_messages(&self) -> impl Iterator<Item = ReadyMessage<'_>> {
        let ready = self.queues.store.ready().take(MAX_ASSIGNED);
        ready.filter_map(|(order, message)| {
            let repairs = self.may_repair(message);
            let link_use = &self.queues.channels[&message.traffic].config.links;
            let ready = ReadyMessage { order, message, link_use, repairs };
            (repairs || message.unsent_bytes() > 0).then_some(ready)
        })
    }

    /// Drops expired messages, and messages at the head of the order that cannot arrive in time. Also adds
    /// the repair budget for the time since the last call.
    pub(crate) fn discard_late(&mut self, now: Instant, scope: Scope) {
        self.expire(now);
        self.repairs.replenish(now);
        self.control_repairs.update(now);
        while let Some((order, message)) = self.first_ready(scope)
            && self.queues.cannot_arrive_in_time(now, message)
        {
            self.drop_message(order.id, DropReason::Expired);
        }
    }

    /// Whether a part of the message is lost, and the budget allows its repair.
    fn may_repair(&self, message: &Outgoing) -> bool {
        // All channels depend on control messages: the budget does not limit their repairs.
        message.repairs.first().is_some()
            && match message.traffic {
                _ if message.redundant_copy_is_due => true,
                Traffic::Control => self.control_repairs.is_allowed(),
                _ => self.repairs.has_credit(),
            }
    }

    /// The next range of a message that a link is to send, and whether it is a repair: a lost range
    /// if the budget allows, otherwise one that was not sent yet.
    fn next_range(&self, message: &Outgoing, link: u8) -> Option<(Range<u32>, bool)> {
        if let Some(range) = message.repairs.first().filter(|_| self.may_repair(message)) {
            return Some((range, true));
        }
        let rest = message.unsent_on(link);
        (!rest.is_empty()).then_some((rest, false))
    }

    /// Makes the repair of this piece free of charge.
    pub(crate) fn refund(&mut self, piece: &Piece) {
        match self.queues.store.get(piece.message).map(|message| message.traffic) {
            Some(Traffic::Control) => self.control_repairs.reset(),
            Some(_) => self.repairs.refund(piece.len()),
            None => {}
        }
    }

    /// Cuts the next frame of a message for a link, of at most `room` bytes. With `max_whole_bytes`, returns
    /// only a frame that completes its range within that number of bytes: such a frame can share a packet
    /// without delaying it.
    pub(crate) fn next_frame(
        &mut self,
        now: Instant,
        carrier: Carrier,
        order: SendOrder,
        room: usize,
        max_whole_bytes: Option<usize>,
    ) -> Option<FrameToSend> {
        let message = self.queues.store.get(order.id)?;
        let (range, repair) = self.next_range(message, carrier.link)?;
        let number = message.number.unwrap_or_else(|| self.queues.upcoming_number(message));
        let kind = FrameKind::of_traffic(message.traffic);
        let channel = message.traffic.channel();
        let protected = self.queues.is_protected(carrier, message, repair);
        // Symbols in one packet are lost together.
        if max_whole_bytes.is_some() && (protected || kind == FrameKind::Parity) {
            return None;
        }
        let room = if protected { room.saturating_sub(PARITY_OVERHEAD) } else { room };
        let mut data = Data {
            channel,
            number,
            source: message.source,
            encoded: message.encoded,
            age: now.since(message.published),
            fragment: None,
            place: protected.then(|| self.blocks.next_place(now, channel)),
        };
        let len = message.payload.len();
        let end = if range == (0..message.extent()) && data.overhead(len) + len <= room {
            range.end
        } else {
            data.fragment = Some(Fragment { total: len as u32, offset: range.start });
            let available = room.checked_sub(data.overhead(room))?;
            let wanted = (range.end - range.start) as usize;
            if available < wanted.min(MIN_PIECE) || len == 0 {
                return None;
            }
            range.start + wanted.min(available) as u32
        };
        let bytes = message.payload.slice(range.start as usize..(end as usize).min(len));
        let exceeds = |limit| data.overhead(bytes.len()) + bytes.len() > limit;
        if max_whole_bytes.is_some_and(|limit| end != range.end || exceeds(limit)) {
            return None;
        }
        let piece = Piece { message: order.id, range: range.start..end };
        let redundant = repair && message.redundant_copy_is_due || kind == FrameKind::Parity;
        let is_urgent = !repair && self.queues.ends_small_urgent_message(carrier, message, end);
        let urgent_bytes = if is_urgent { message.extent() } else { 0 };
        self.record_frame(now, carrier, &piece, repair);
        if protected {
            self.join_block(now, &data, &bytes, &piece);
        } else if kind == FrameKind::Parity && end == range.end {
            self.on_parity_sent(piece.message);
        }
        if is_urgent {
            self.queues.schedule_redundant_copies(now, carrier, order.id);
        }
        self.discard_late(now, carrier.scope);
        Some(FrameToSend { data, bytes, piece, repair, redundant, urgent_bytes, kind })
    }

    fn record_frame(&mut self, now: Instant, carrier: Carrier, piece: &Piece, repair: bool) {
        let Some(message) = self.queues.store.get(piece.message) else { return };
        // Repairs of control messages leave no debt: the debt would stop other repairs for a
        // minute.
        match repair {
            true if message.traffic == Traffic::Control || message.redundant_copy_is_due => {}
            true => self.repairs.on_repair(piece.len()),
            false if matches!(message.traffic, Traffic::Parity(_)) => {}
            false => self.repairs.on_first_transmission(now, piece.len()),
        }
        let (traffic, source, extent) = (message.traffic, message.source, message.extent());
        let begins = message.first_sent == Instant::NEVER;
        let first_sent = if begins { now } else { message.first_sent };
        if begins {
            self.repairs.begin_message(extent);
        }
        if message.number.is_none() {
            self.queues.assign_numbers_up_to(traffic, source, piece.message);
        }
        let counted = match traffic {
            Traffic::Parity(topic) => Traffic::Topic(topic),
            other => other,
        };
        if let Some(open) = self.queues.channels.get_mut(&counted) {
            open.stats.link_bytes[usize::from(carrier.link)] += u64::from(piece.len());
        }
        let open = self.queues.channels.get_mut(&traffic);
        if let Some(queue) = open.and_then(|open| open.sources.get_mut(&source)) {
            let duration = now.since(first_sent);
            if !repair && piece.range.end == extent && !duration.is_zero() {
                queue.last_sent = Some(SendingTime { duration, bytes: piece.range.end });
            }
        }
        self.queues.change(piece.message, |message| {
            message.first_sent = first_sent;
            if begins && carrier.copies > 1 {
                message.copies = Some(Box::new(Copies::new(carrier.copies)));
            }
            match &mut message.copies {
                _ if repair => {
                    message.repairs.remove(&piece.range);
                    if !message.redundant_copy_is_due {
                        message.futile_repairs.on_repair(now);
                    }
                }
                Some(copies) => copies.on_sent(carrier.link, piece.range.end),
                None => message.next = piece.range.end,
            }
            message.redundant_copy_is_due &= message.repairs.first().is_some();
        });
    }
}
