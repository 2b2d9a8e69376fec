// SPDX-License-Identifier: Apache-2.0
//! What happens to sent packets: acknowledgements, losses, stalls, and datagrams that the kernel refuses.

use crate::delivery::outbox::LossCertainty;
use crate::endpoint::context::{Context, Request};
use crate::endpoint::events::Notice;
use crate::endpoint::peer::Peer;
use crate::endpoint::timer::Timer;
use crate::ids::LinkId;
use crate::path::links::{Links, NumberedLink};
use crate::path::mtu::BlackHole;
use crate::recovery::sent::Outcome;
use crate::stats::RefusedPacket;
use crate::time::Instant;
use crate::wire::frame::Ack;
use crate::wire::packet::{Packet, full_number};

impl Peer {
    /// Applies an acknowledgement. `clock` is the clock in the packet that carried it.
    pub(super) fn handle_ack(
        &mut self,
        cx: &mut Context,
        now: Instant,
        clock: Option<u32>,
        ack: &Ack,
    ) {
        let id = match self.links.by_number(ack.link) {
            NumberedLink::Open(id) => id,
            // It acknowledges packets that were in flight when the link was removed.
            NumberedLink::Removed => return,
            NumberedLink::Unknown => return cx.refused.add(RefusedPacket::Malformed),
        };
        let link = &mut self.links[id];
        match link.sent_packets.acknowledge(now, ack) {
            Ok(outcome) => {
                link.measure_delay(now, clock, ack, &outcome);
                link.count_losses(&outcome, false);
                link.report_to_controller(now, clock, ack, &outcome);
                self.apply_outcome(cx, now, id, outcome);
                self.links.follow_path_mtu(cx, id, &self.name);
                cx.push_request(Request::AvailableRate(id));
            }
            Err(()) => cx.refused.add(RefusedPacket::Malformed),
        }
    }

    pub(crate) fn on_loss_timer(&mut self, cx: &mut Context, now: Instant, id: LinkId) {
        let outcome = self.links[id].sent_packets.on_timer(now);
        self.links[id].count_losses(&outcome, true);
        self.apply_outcome(cx, now, id, outcome);
    }

    fn apply_outcome(&mut self, cx: &mut Context, now: Instant, id: LinkId, outcome: Outcome) {
        let link = &mut self.links[id];
        link.stats.acked_packets += outcome.acked_packets;
        link.stats.lost_packets += outcome.lost_packets;
        link.stats.spurious_losses += outcome.spurious_losses;
        link.stats.marked_packets += outcome.marked_packets;
        let silent = link.sent_packets.is_silent();
        let was_silent = link.silent;
        let fell_silent = silent && !was_silent;
        link.silent = silent;
        // Send a PING immediately, since the peer may be away.
        let is_overdue = outcome.overdue && outcome.lost_packets > 0;
        link.ping_now |= link.up && (fell_silent || is_overdue && link.may_ping_again(now));
        let outbox = &mut self.channels.outbox;
        for piece in &outcome.acked {
            outbox.on_acked(now, piece);
        }
        let certainty =
            if outcome.overdue { LossCertainty::Overdue } else { LossCertainty::Certain };
        for piece in &outcome.lost {
            let _ = outbox.on_lost(now, piece, certainty);
        }
        if fell_silent {
            self.mark_all_lost(cx, now, id);
            self.links[id].sent_packets.test_ecn();
            // The peer may have restarted without our keys.
            cx.timers.set(Timer::Reconnect(id), Some(now));
            self.links.wake_metered_links(cx, now);
            self.rendezvous.on_link_lost(cx, now, &mut self.links, id);
        } else if was_silent && !silent {
            self.rendezvous.on_link_heard(now, &mut self.links, id);
        }
        self.links.arm(cx, id);
        self.channels.arm_expiry(cx, now);
    }

    /// Marks a link as stalled, because the driver has sent nothing for too long. The link's
    /// messages go to other links.
    pub(crate) fn mark_stalled(&mut self, cx: &mut Context, now: Instant, id: LinkId) {
        self.links[id].stalled = true;
        if self.links.has_alternative(id) {
            self.mark_all_lost(cx, now, id);
        }
    }

    /// Declares all outstanding packets of a link lost. Their repair is not charged to the repair
    /// budget, since congestion did not cause the loss.
    pub(crate) fn mark_all_lost(&mut self, cx: &mut Context, now: Instant, id: LinkId) {
        let link = &mut self.links[id];
        let outcome = link.mark_all_lost();
        link.stats.lost_packets += outcome.lost_packets;
        let number = link.number;
        let outbox = &mut self.channels.outbox;
        for piece in &outcome.lost {
            if outbox.on_lost(now, piece, LossCertainty::Certain) {
                outbox.refund(piece);
            }
        }
        outbox.queues.abandon_copies(number);
        self.links.arm(cx, id);
        self.channels.arm_expiry(cx, now);
    }

    /// Handles a datagram that the kernel refused on a link because it is too large for the interface. Its
    /// messages are sent again in smaller packets.
    pub(crate) fn handle_refused(
        &mut self,
        cx: &mut Context,
        now: Instant,
        id: LinkId,
        datagram: &[u8],
    ) {
        let Ok(Packet::Session(header, _)) = Packet::parse(datagram) else { return };
        let link = &mut self.links[id];
        let ip_bytes = datagram.len() + link.config.header_bytes;
        let number = full_number(header.number, link.sent_packets.next_number());
        for piece in &link.sent_packets.on_refused(now, number, ip_bytes) {
            self.channels.outbox.on_unsent(piece);
        }
        self.links.arm(cx, id);
        self.channels.arm_expiry(cx, now);
    }
}

impl Links {
    /// Reports a black hole that probes confirmed, and plans the next search.
    fn follow_path_mtu(&mut self, cx: &mut Context, id: LinkId, name: &str) {
        let link = &mut self[id];
        let found = link.sent_packets.mtu.take_black_hole();
        if link.sent_packets.mtu.probe().is_none() {
            cx.timers.set(Timer::Probe(id), link.sent_packets.mtu.next_search());
        }
        if let Some((BlackHole { lost, passes }, to)) = found.zip(link.remote) {
            cx.emit_notice(Notice::BlackHole { name: name.to_owned(), to, lost, passes });
        }
    }
}
