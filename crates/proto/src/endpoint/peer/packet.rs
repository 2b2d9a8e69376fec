// SPDX-License-Identifier: Apache-2.0
//! Packets to a peer: header, acknowledgements and other reports, seal, and entry in the sent-packet
//! table. Frames with messages are added by [`crate::endpoint::schedule`].

use crate::class::Class;
use crate::crypto::seal::PacketBuilder;
use crate::delivery::Piece;
use crate::delivery::outbox::LossCertainty;
use crate::ecn::Ecn;
use crate::endpoint::context::Context;
use crate::endpoint::peer::Peer;
use crate::endpoint::timer::Timer;
use crate::ids::LinkId;
use crate::recovery::received::{ACK_RANGES, ReceivedPackets};
use crate::recovery::sent::AckRequest;
use crate::time::Instant;
use crate::wire::frame::{
    ClockReport, put_goodbye, put_held, put_observe, put_observed, put_padded_ping, put_ping,
};
use crate::wire::packet::SessionHeader;

/// Maximum size of an ACK frame in bytes: type and length, link, largest number, delay, two queueing delays,
/// two ECN counts, and for each range two varints of two bytes (the numbers lie within a window of 1024).
const MAX_ACK_BYTES: usize = 2 + 1 + 10 + 5 + 5 + 5 + 10 + 10 + ACK_RANGES * 4;
/// Maximum size of a relay backlog report in bytes.
const MAX_BACKLOG_REPORT_BYTES: usize = 2 + 3 + 10 + 3;
/// Bytes of an OBSERVE or OBSERVED frame.
const ADDRESS_FRAME_BYTES: usize = 2 + 18;

/// The purpose of a packet without messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReportKind {
    /// A PING, with pending acknowledgements.
    Ping,
    /// Acknowledgements, backlog reports and a goodbye. These are not ack-eliciting.
    Reports,
}

/// A packet that is ready to be sent.
pub(crate) struct SealedPacket {
    pub(crate) datagram: Vec<u8>,
    pub(crate) ecn: Ecn,
}

impl Peer {
    /// Starts a packet with header and clock.
    fn start_header(
        &mut self,
        cx: &mut Context,
        now: Instant,
        id: LinkId,
        capacity: usize,
    ) -> Option<PacketBuilder> {
        let link = &self.links[id];
        let keys = self.session.keys()?;
        let number = link.sent_packets.next_number();
        let header = SessionHeader {
            ack_soon: false,
            relayed: link.via.is_some(),
            link: link.number,
            session: keys.remote,
            number: number as u32,
        };
        let buffer = cx.spare_datagrams.take(capacity);
        let mut packet = PacketBuilder::new(keys.sealer.clone(), &header, number, buffer);
        if link.via.is_none() {
            packet.plaintext().extend_from_slice(&now.wire_micros().to_le_bytes());
        }
        Some(packet)
    }

    /// Starts a packet of at most `capacity` bytes with header, clock, and pending acknowledgements to this
    /// peer, except acknowledgements that go by another link that is up. `ack_only`: the packet carries no data.
    pub(crate) fn start_packet(
        &mut self,
        cx: &mut Context,
        now: Instant,
        id: LinkId,
        capacity: usize,
        ack_only: bool,
    ) -> Option<PacketBuilder> {
        let mut packet = self.start_header(cx, now, id, capacity)?;
        if self.links[id].via.is_none() {
            for held in self.backlog_reports.take_due(now, self.short_name) {
                if packet.sealed_len() + MAX_BACKLOG_REPORT_BYTES <= capacity {
                    put_held(&held, packet.plaintext());
                }
            }
            cx.timers.set(Timer::BacklogReport(self.id), self.backlog_reports.next_due());
        }
        if packet.sealed_len() + 2 * ADDRESS_FRAME_BYTES <= capacity {
            let ends = &mut self.links[id].address_discovery;
            let (question, answer) = (ends.take_question(now), ends.take_answer());
            question.into_iter().for_each(|it| put_observe(it, packet.plaintext()));
            answer.into_iter().for_each(|it| put_observed(it, packet.plaintext()));
        }
        let links = &self.links;
        let takes = |received: &ReceivedPackets| {
            let via = received.via.filter(|via| links[*via].up);
            let is_by_link = |via| links.report_link_of(cx.clock_now, via) == id;
            received.ack_due().is_some() && via.is_none_or(is_by_link)
        };
        let received = self.received_packets.iter();
        let due: Vec<u8> =
            received.filter(|(_, it)| takes(it)).map(|(number, _)| *number).collect();
        for number in due {
            if packet.sealed_len() + MAX_ACK_BYTES > capacity {
                break;
            }
            let received = self.received_packets.get_mut(&number);
            if let Some(ack) = received.and_then(|it| it.take_ack(now, number, ack_only)) {
                ack.emit(packet.plaintext());
                cx.timers.set(Timer::Ack(self.id, number), None);
            }
        }
        Some(packet)
    }

    /// Seals a packet and records it as sent.
    pub(crate) fn finish_packet(
        &mut self,
        now: Instant,
        id: LinkId,
        packet: PacketBuilder,
        pieces: Vec<Piece>,
        (request, class): (AckRequest, Class),
    ) -> Option<SealedPacket> {
        let datagram = packet.seal()?;
        let link = &mut self.links[id];
        let ip_bytes = datagram.len() + link.config.header_bytes;
        let ecn = link.sent_packets.next_ecn(request);
        let evicted = link.sent_packets.record(now, class, pieces, request, ip_bytes, ecn);
        for piece in &evicted {
            let _ = self.channels.outbox.on_lost(now, piece, LossCertainty::Certain);
        }
        Some(SealedPacket { datagram, ecn })
    }

    /// A packet without messages.
    pub(crate) fn report_packet(
        &mut self,
        cx: &mut Context,
        now: Instant,
        id: LinkId,
        kind: ReportKind,
        (capacity, class): (usize, Class),
    ) -> Option<SealedPacket> {
        let ping = kind == ReportKind::Ping;
        let mut packet = self.start_packet(cx, now, id, capacity, !ping)?;
        if ping {
            put_ping(packet.plaintext());
            let least = self.clock.least_difference();
            ClockReport { least, wall: cx.wall_clock_us(now) }.emit(packet.plaintext());
            SessionHeader::mark_ack_soon(packet.plaintext());
            self.links[id].last_ack_eliciting = now;
        }
        if std::mem::take(&mut self.goodbye_now) {
            put_goodbye(packet.plaintext());
        }
        let request = if ping { AckRequest::Soon } else { AckRequest::None };
        self.finish_packet(now, id, packet, Vec::new(), (request, class))
    }

    /// A packet with one frame that is not ack-eliciting.
    pub(crate) fn single_frame_packet(
        &mut self,
        cx: &mut Context,
        now: Instant,
        id: LinkId,
        capacity: usize,
        put_frame: impl FnOnce(&mut Vec<u8>),
    ) -> Option<Vec<u8>> {
        let mut packet = self.start_header(cx, now, id, capacity)?;
        put_frame(packet.plaintext());
        let datagram = packet.seal()?;
        let (request, ecn) = (AckRequest::None, Ecn::NotCapable);
        self.links[id].sent_packets.record(now, Class::BestEffort, Vec::new(), request, 0, ecn);
        Some(datagram)
    }

    /// A probe of the MTU of a link's path.
    pub(crate) fn probe_packet(
        &mut self,
        cx: &mut Context,
        now: Instant,
        id: LinkId,
        ip_bytes: usize,
        class: Class,
    ) -> Option<Vec<u8>> {
        let datagram_bytes = ip_bytes.saturating_sub(self.links[id].config.header_bytes);
        let capacity = self.links[id].sent_packets.mtu.datagram_bytes();
        let mut packet = self.start_header(cx, now, id, capacity)?;
        let room = datagram_bytes.saturating_sub(packet.sealed_len());
        put_padded_ping(room, packet.plaintext());
        SessionHeader::mark_ack_soon(packet.plaintext());
        let datagram = packet.seal()?;
        let overdue = self.links[id].sent_packets.record_probe(now, class, ip_bytes);
        cx.timers.set(Timer::Probe(id), Some(overdue));
        Some(datagram)
    }
}
