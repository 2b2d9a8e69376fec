// SPDX-License-Identifier: Apache-2.0
//! The fate of sent pieces: acknowledged, suspected lost, lost.

use super::Outbox;
use super::loss::{FutileRepairs, LossCertainty};
use crate::delivery::Piece;
use crate::delivery::fec::sender::AckEffects;
use crate::delivery::traffic::Traffic;
use crate::stats::DropReason;
use crate::time::{Duration, Instant};

/// A relayed packet is repaired for at most this time after it was first sent. By then its origin misses the
/// acknowledgement and sends the content again.
const MAX_RELAYED_REPAIR_TIME: Duration = Duration::from_secs(10);
/// A message without repair counts as lost this long after its last suspected loss. There is no
/// hurry: the acknowledgement may only be late.
const LOST_GRACE: Duration = Duration::from_millis(500);
/// The grace period of a channel with parity: its links have long delays.
const LOST_GRACE_WITH_PARITY: Duration = Duration::from_secs(3);

impl Outbox {
    /// Handles the acknowledgement of a piece. Other pieces that the peer can recover count as
    /// acknowledged with it.
    pub(crate) fn on_acked(&mut self, now: Instant, piece: &Piece) {
        let AckEffects { recovered, lost } = self.blocks.on_acked(piece);
        self.on_piece_acked(piece);
        recovered.iter().for_each(|piece| self.on_piece_acked(piece));
        for piece in &lost {
            self.on_piece_lost(now, piece, LossCertainty::Certain);
        }
    }

    fn on_piece_acked(&mut self, piece: &Piece) {
        self.queues.change(piece.message, |message| {
            message.repairs.remove(&piece.range);
            // Our own fragments stay below the limit of ranges. If they exceeded the limit, a
            // repair would fill the gap.
            if message.acked.insert(piece.range.clone()).is_some_and(|new| new > 0) {
                message.futile_repairs = FutileRepairs::default();
            }
        });
        let Some(message) = self.queues.store.get(piece.message) else { return };
        if message.traffic == Traffic::Control {
            self.control_repairs.reset();
        }
        if message.acked.contains(&(0..message.extent())) {
            let (traffic, source, number) = (message.traffic, message.source, message.number);
            self.forwarded.packets += u64::from(message.is_forwarded());
            if let Some(open) = self.remove_message(piece.message) {
                open.stats.delivered += 1;
            }
            self.supersede(traffic, source, number.unwrap_or(0));
        } else {
            self.queues.clear_suspicion(piece);
        }
    }

    /// Drops the messages that `number`, now delivered, makes late.
    fn supersede(&mut self, traffic: Traffic, source: u32, number: u64) {
        for id in self.queues.late_messages(traffic, source, number) {
            let message = self.queues.store.get(id);
            let is_lost = message.is_some_and(|message| message.is_suspected());
            let reason = if is_lost { DropReason::Lost } else { DropReason::Superseded };
            self.drop_message(id, reason);
        }
    }

    /// Handles the loss of a piece. Repairs it if that is still useful and parity cannot replace
    /// it. Returns whether anything is repaired.
    pub(crate) fn on_lost(
        &mut self,
        now: Instant,
        piece: &Piece,
        certainty: LossCertainty,
    ) -> bool {
        let lost = self.blocks.on_lost(piece);
        let repaired = lost.iter().filter(|it| self.on_piece_lost(now, it, certainty));
        // `any` would stop at the first piece.
        repaired.count() > 0
    }

    pub(super) fn on_piece_lost(
        &mut self,
        now: Instant,
        piece: &Piece,
        certainty: LossCertainty,
    ) -> bool {
        let Some(message) = self.queues.store.get(piece.message) else { return false };
        let Some(channel) = self.queues.channels.get(&message.traffic) else { return false };
        if message.traffic != Traffic::Control {
            let is_relayed = message.origin.is_some();
            let end = if message.expires.is_some_and(|at| at <= now) {
                Some(DropReason::Expired)
            } else if message.futile_repairs.is_limit_reached()
                || is_relayed && now.since(message.first_sent) > MAX_RELAYED_REPAIR_TIME
            {
                Some(DropReason::Lost)
            } else {
                None
            };
            if let Some(reason) = end {
                self.drop_message(piece.message, reason);
                return false;
            }
            if !channel.config.repair {
                let (certainty, grace) = match channel.config.fec {
                    Some(_) => (LossCertainty::Overdue, LOST_GRACE_WITH_PARITY),
                    None => (certainty, LOST_GRACE),
                };
                self.suspect(now, piece, certainty, grace);
                return false;
            }
        }
        self.queue_repair(piece)
    }

    /// Marks a piece for repair; returns whether it is repaired.
    fn queue_repair(&mut self, piece: &Piece) -> bool {
        let inserted =
            self.queues.change(piece.message, |message| message.repair(piece.range.clone()));
        if inserted == Some(false) {
            self.drop_message(piece.message, DropReason::Lost);
        }
        inserted.unwrap_or(false)
    }

    /// Handles a piece that the kernel did not send. The piece is sent again without charge to the
    /// repair budget, also on a channel without repair, unless parity replaces it.
    pub(crate) fn on_unsent(&mut self, piece: &Piece) {
        for piece in &self.blocks.on_lost(piece) {
            if self.queue_repair(piece) {
                self.refund(piece);
            }
        }
    }

    /// Marks a piece that is not repaired as suspected lost. If the loss is certain, a message that
    /// is not sent completely is dropped. If the acknowledgement is only overdue, sending continues.
    fn suspect(&mut self, now: Instant, piece: &Piece, certainty: LossCertainty, grace: Duration) {
        let id = piece.message;
        let kept = self.queues.change(id, |message| {
            let is_useful = !(message.is_queued() && certainty == LossCertainty::Certain);
            let kept = is_useful && message.suspected.insert(piece.range.clone()).is_some();
            let end = message.lifespan_end.filter(|_| message.is_queued());
            let grace_end = now + grace;
            let at = end.map_or(grace_end, |end| end.min(grace_end));
            (message.expires, message.is_checked) = (Some(at), false);
            kept
        });
        if kept == Some(false) {
            self.drop_message(id, DropReason::Lost);
        }
    }
}
