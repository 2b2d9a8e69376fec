// SPDX-License-Identifier: Apache-2.0
//! Selects the next message of the send order, and cuts frames from it.

use super::copies::Copies;
use super::store::{Outgoing, Spares};
use super::{Outbox, SendOrder, SendingTime};
use crate::delivery::fec::sender::PARITY_OVERHEAD;
use crate::delivery::traffic::Traffic;
use crate::delivery::{MessageId, Piece};
use crate::path::policy::{LinkUse, URGENT};
use crate::path::redundancy::Redundancy;
use crate::stats::DropReason;
use crate::time::Instant;
use crate::wire::frame::{Data, Fragment};
use bytes::Bytes;
use std::ops::Range;

/// Smallest fragment, unless it is the rest of a message.
const MIN_PIECE: usize = 64;
/// Maximum number of messages examined to find one that may be sent now.
const MAX_SCAN: usize = 64;
/// Maximum number of messages examined to assign the next one to one of several links.
const MAX_ASSIGNED: usize = 1024;
/// Largest message of which copies are sent on a lossy link: a laser's scan, not an image.
const MAX_SPARE_BYTES: u32 = 4096;
/// Allowance for the sending time of a message, relative to that of the previous one.
const LATE_SEND_FACTOR: f64 = 1.5;
/// A message is on the path for at most one part in this many of its lifespan.
const TRANSIT_DIVISOR: u32 = 8;

/// Messages that a link can carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// All, on a link to the neighbour itself.
    All,
    /// All but relayed packets, on a link through a relay: packets within packets could be nested
    /// without end.
    Unrelayed,
}

/// Urgency of a packet with messages: that of its first message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Urgency {
    pub(crate) priority: u8,
    /// End of the lifespan.
    pub(crate) expires: Option<Instant>,
}

/// The link that carries a frame.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Carrier {
    pub(crate) link: u8,
    pub(crate) scope: Scope,
    /// The number of links that carry a message which begins now.
    pub(crate) copies: u8,
    /// Copies of an urgent message, on this link or another.
    pub(crate) redundancy: Option<Redundancy>,
}

/// A message that may be sent now.
pub(crate) struct ReadyMessage<'a> {
    pub(crate) order: SendOrder,
    pub(crate) link_use: &'a LinkUse,
    message: &'a Outgoing,
    repairs: bool,
}

impl ReadyMessage<'_> {
    /// Bytes that a link may send: of a repair, or of its copy.
    pub(crate) fn bytes_on(&self, link: u8) -> usize {
        let range = match self.message.repairs.first().filter(|_| self.repairs) {
            Some(range) => range,
            None => self.message.unsent_on(link),
        };
        range.len()
    }

    /// Whether it is a relayed packet, which no relay carries.
    pub(crate) fn is_relayed(&self) -> bool {
        self.message.origin.is_some()
    }

    /// Bytes still to be sent.
    pub(crate) fn rest(&self) -> usize {
        self.message.waiting_bytes() as usize
    }

    /// Whether each link sends a copy of its own.
    pub(crate) fn is_copied(&self) -> bool {
        !self.repairs
            && (self.message.copies.is_some() || self.message.first_sent == Instant::NEVER)
    }

    /// A number from 0 to 1 that stays the same for the message.
    pub(crate) fn draw(&self) -> f64 {
        // Fibonacci hashing (Knuth, volume 3, section 6.4) spreads consecutive ids evenly.
        let hash = self.order.id.0.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (hash >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// A frame to be sent.
#[derive(Debug)]
pub(crate) struct FrameToSend {
    pub(crate) data: Data,
    pub(crate) bytes: Bytes,
    pub(crate) piece: Piece,
    pub(crate) repair: bool,
    /// A copy or parity that is sent before a loss is known.
    pub(crate) redundant: bool,
    /// Bytes of the small urgent message that it ends, of which copies follow on a lossy link, or 0.
    pub(crate) urgent_bytes: u32,
    pub(crate) kind: FrameKind,
}

/// The type of a frame with a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FrameKind {
    Data,
    /// A relayed packet or a fragment of one.
    Relay,
    Parity,
}

impl FrameKind {
    fn of_traffic(traffic: Traffic) -> Self {
        match traffic {
            Traffic::Control | Traffic::Topic(_) => Self::Data,
            Traffic::Parity(_) => Self::Parity,
            Traffic::Relayed(_) => Self::Relay,
        }
    }
}

impl FrameToSend {
    pub(crate) fn is_control_repair(&self) -> bool {
        let is_control = Traffic::of_data(self.data.channel) == Traffic::Control;
        self.repair && self.kind == FrameKind::Data && is_control
    }
}

impl Outbox {
    /// The urgency of a packet that begins with this message.
    pub(crate) fn urgency(&self, order: SendOrder) -> Urgency {
        let message = self.store.get(order.id);
        let expires = message.and_then(|message| message.lifespan_end);
        Urgency { priority: order.priority(), expires }
    }

    /// The first message that may be sent now.
    pub(crate) fn next_in_order(&self, scope: Scope) -> Option<SendOrder> {
        self.first_ready(scope).map(|(order, _)| order)
    }

    fn first_ready(&self, scope: Scope) -> Option<(SendOrder, &Outgoing)> {
        let in_scope = |it: &Outgoing| scope == Scope::All || it.origin.is_none();
        let mut ready = self.store.ready().filter(|(_, it)| in_scope(it)).take(MAX_SCAN);
        ready.find(|(_, it)| self.may_repair(it) || it.unsent_bytes() > 0)
    }

    /// Messages that may be sent now, in send order.
    pub(crate) fn ready_messages(&self) -> impl Iterator<Item = ReadyMessage<'_>> {
        let ready = self.store.ready().take(MAX_ASSIGNED);
        ready.filter_map(|(order, message)| {
            let repairs = self.may_repair(message);
            let link_use = &self.channels[&message.traffic].config.links;
            let ready = ReadyMessage { order, message, link_use, repairs };
            (repairs || message.unsent_bytes() > 0).then_some(ready)
        })
    }

    /// Drops expired messages, and messages at the head of the order that cannot arrive in time. Adds
    /// the repair budget of the time since the last call.
    pub(crate) fn discard_late(&mut self, now: Instant, scope: Scope) {
        self.expire(now);
        self.repairs.trickle(now);
        self.control_repairs.update(now);
        while let Some((order, message)) = self.first_ready(scope)
            && self.cannot_arrive_in_time(now, message)
        {
            self.drop_message(order.id, DropReason::Expired);
        }
    }

    /// Whether a message that is not begun would expire before it arrives, while a newer one of its
    /// source is queued. On a link that is too slow for its load, all messages would otherwise be
    /// begun shortly before they expire, and none would arrive. The newest one is tried in any case,
    /// since the estimate, from the sending time of the previous message, may be wrong.
    fn cannot_arrive_in_time(&self, now: Instant, message: &Outgoing) -> bool {
        let (None, Some(end)) = (message.number, message.lifespan_end) else { return false };
        let queue = &self.channels[&message.traffic].sources[&message.source];
        let has_newer = queue.unsent.last() != Some(&message.order.id);
        let Some(previous) = queue.last_sent.filter(|_| has_newer) else { return false };
        let relative = f64::from(message.extent()) / f64::from(previous.bytes);
        let margin = end.since(message.published) / TRANSIT_DIVISOR;
        now + previous.duration.mul_f64(relative * LATE_SEND_FACTOR) + margin > end
    }

    /// Whether a part of the message is lost, and the budget allows its repair.
    fn may_repair(&self, message: &Outgoing) -> bool {
        // All channels depend on control messages: the budget does not limit their repairs.
        message.repairs.first().is_some()
            && match message.traffic {
                _ if message.spare_is_due => true,
                Traffic::Control => self.control_repairs.is_allowed(),
                _ => self.repairs.is_left(),
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
        match self.store.get(piece.message).map(|message| message.traffic) {
            Some(Traffic::Control) => self.control_repairs.reset(),
            Some(_) => self.repairs.refund(piece.len()),
            None => {}
        }
    }

    /// Cuts the next frame of a message for a link, of at most `room` bytes. With `whole_within`, only
    /// a frame that completes its range within this number of bytes, which shares a packet without
    /// delaying it.
    pub(crate) fn next_frame(
        &mut self,
        now: Instant,
        carrier: Carrier,
        order: SendOrder,
        room: usize,
        whole_within: Option<usize>,
    ) -> Option<FrameToSend> {
        let message = self.store.get(order.id)?;
        let (range, repair) = self.next_range(message, carrier.link)?;
        let number = message.number.unwrap_or_else(|| self.upcoming_number(message));
        let kind = FrameKind::of_traffic(message.traffic);
        let channel = message.traffic.channel();
        let protected = self.is_protected(carrier, message, repair);
        // Symbols in one packet are lost together.
        if whole_within.is_some() && (protected || kind == FrameKind::Parity) {
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
        if whole_within.is_some_and(|limit| end != range.end || exceeds(limit)) {
            return None;
        }
        let piece = Piece { message: order.id, range: range.start..end };
        let redundant = repair && message.spare_is_due || kind == FrameKind::Parity;
        let is_urgent = !repair && self.ends_small_urgent(carrier, message, end);
        let urgent_bytes = if is_urgent { message.extent() } else { 0 };
        self.mark_framed(now, carrier, &piece, repair);
        if protected {
            self.join_block(now, &data, &bytes, &piece);
        } else if kind == FrameKind::Parity && end == range.end {
            self.on_parity_sent(piece.message);
        }
        if is_urgent {
            self.schedule_spares(now, carrier, order.id);
        }
        self.discard_late(now, carrier.scope);
        Some(FrameToSend { data, bytes, piece, repair, redundant, urgent_bytes, kind })
    }

    /// The number of a message that begins now. Numbers follow the order of publication, also where
    /// an earlier message still waits for its link.
    fn upcoming_number(&self, message: &Outgoing) -> u64 {
        let queue = &self.channels[&message.traffic].sources[&message.source];
        queue.last_number + 1 + queue.unsent.range(..message.order.id).count() as u64
    }

    /// Assigns numbers to the messages of a source up to this one.
    fn number_until(&mut self, traffic: Traffic, source: u32, last: MessageId) {
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

    fn mark_framed(&mut self, now: Instant, carrier: Carrier, piece: &Piece, repair: bool) {
        let Some(message) = self.store.get(piece.message) else { return };
        // Repairs of control messages leave no debt, which would stop other repairs for a minute.
        match repair {
            true if message.traffic == Traffic::Control || message.spare_is_due => {}
            true => self.repairs.on_repair(piece.len()),
            false if matches!(message.traffic, Traffic::Parity(_)) => {}
            false => self.repairs.on_first(now, piece.len()),
        }
        let (traffic, source, extent) = (message.traffic, message.source, message.extent());
        let begins = message.first_sent == Instant::NEVER;
        let first_sent = if begins { now } else { message.first_sent };
        if begins {
            self.repairs.begin(extent);
        }
        if message.number.is_none() {
            self.number_until(traffic, source, piece.message);
        }
        let counted = match traffic {
            Traffic::Parity(topic) => Traffic::Topic(topic),
            other => other,
        };
        if let Some(open) = self.channels.get_mut(&counted) {
            open.stats.link_bytes[usize::from(carrier.link)] += u64::from(piece.len());
        }
        let open = self.channels.get_mut(&traffic);
        if let Some(queue) = open.and_then(|open| open.sources.get_mut(&source)) {
            let duration = now.since(first_sent);
            if !repair && piece.range.end == extent && !duration.is_zero() {
                queue.last_sent = Some(SendingTime { duration, bytes: piece.range.end });
            }
        }
        self.change(piece.message, |message| {
            message.first_sent = first_sent;
            if begins && carrier.copies > 1 {
                message.copies = Some(Box::new(Copies::new(carrier.copies)));
            }
            match &mut message.copies {
                _ if repair => {
                    message.repairs.remove(&piece.range);
                    if !message.spare_is_due {
                        message.futile.on_repair(now);
                    }
                }
                Some(copies) => copies.on_sent(carrier.link, piece.range.end),
                None => message.next = piece.range.end,
            }
            message.spare_is_due &= message.repairs.first().is_some();
        });
    }

    fn schedule_spares(&mut self, now: Instant, carrier: Carrier, id: MessageId) {
        let Some(Redundancy { copies, interval }) = carrier.redundancy else { return };
        self.change(id, |message| {
            message.spares = Some(Spares { next_at: now + interval, interval, left: copies });
        });
    }

    /// Whether a piece, sent for the first time, ends an urgent message that is small enough for copies.
    fn ends_small_urgent(&self, carrier: Carrier, message: &Outgoing, end: u32) -> bool {
        let is_urgent = message.traffic != Traffic::Control && message.order.priority() >= URGENT;
        let is_one_copy = message.copies.is_none() && carrier.copies == 1;
        let is_small = message.extent() <= MAX_SPARE_BYTES && end == message.extent();
        let config = &self.channels[&message.traffic].config;
        let is_repaired = config.repair && config.fec.is_none();
        is_urgent && is_one_copy && is_small && is_repaired && message.origin.is_none()
    }
}
