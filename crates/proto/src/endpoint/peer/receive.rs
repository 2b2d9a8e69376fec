// SPDX-License-Identifier: Apache-2.0
//! Packets of a peer: decryption, the link to which each packet belongs, and its acknowledgement.

use crate::address::Place;
use crate::ecn::Ecn;
use crate::endpoint::arrival::Origin;
use crate::endpoint::context::Context;
use crate::endpoint::peer::Peer;
use crate::endpoint::peer::frames::PacketContext;
use crate::endpoint::timer::Timer;
use crate::ids::LinkId;
use crate::recovery::received::{AckTrigger, ReceivedPackets};
use crate::session::{KeyOrigin, KeyStatus};
use crate::stats::RefusedPacket;
use crate::time::Instant;
use crate::wire::WireError;
use crate::wire::cursor::Reader;
use crate::wire::frame::Frame;
use crate::wire::packet::{SessionHeader, full_number};

/// A session packet that decrypted.
#[derive(Debug, Clone, Copy)]
struct OpenedPacket<'a> {
    header: &'a SessionHeader,
    number: u64,
    /// The expected packet number of the link.
    expected: u64,
    datagram_len: usize,
    /// The sender's clock.
    clock: Option<u32>,
}

impl Peer {
    /// Takes a packet of the peer and decrypts it in place. Returns the packet and its frames, which the
    /// caller has to handle.
    pub(crate) fn receive<'a>(
        &mut self,
        cx: &mut Context,
        now: Instant,
        origin: Origin,
        header: &'a SessionHeader,
        datagram: &'a mut [u8],
    ) -> Result<(PacketContext, Vec<Frame<'a>>), RefusedPacket> {
        let Origin { radio, from, local, arrived, relayed_age, ecn, .. } = origin;
        let (packet, body) = self.decrypt(cx, now, header, datagram)?;
        let status = self.session.confirm(header.session);
        if let KeyStatus::Confirmed { new_epoch, to } = status {
            self.start_keys(cx, now, new_epoch);
            // The peer received our response. It therefore receives packets at the address to which
            // the response went.
            let link = self.links.link_towards(radio, from).filter(|_| from == to);
            if let Some(link) = link {
                self.move_link(cx, now, link, origin.return_path());
            }
        }
        let frames = parse_frames(body).map_err(|_| RefusedPacket::Malformed)?;
        if matches!(from, Place::Relay { .. }) && frames.iter().any(is_for_neighbours) {
            return Err(RefusedPacket::Malformed);
        }
        self.admit(cx, now, &frames)?;
        let link = self.find_packet_link(cx, now, origin, &packet)?;
        self.record_received(cx, (now, arrived, ecn), link, &packet, &frames);
        if self.links[link].remote == Some(from) {
            if packet.number >= packet.expected {
                self.links[link].local_address.on_packet(now, from, local);
            }
            self.mark_received(cx, now, link, packet.datagram_len);
        }
        let clock = packet.clock;
        let rtt = self.links[link].sent_packets.rtt().smoothed().unwrap_or_default();
        let transit = self.transit(now, clock, rtt, relayed_age);
        Ok((PacketContext { now, link, origin, clock, transit, may_relay: false }, frames))
    }

    /// Decrypts a packet of the peer, in place; returns it and its frames.
    fn decrypt<'a>(
        &mut self,
        cx: &mut Context,
        now: Instant,
        header: &'a SessionHeader,
        datagram: &'a mut [u8],
    ) -> Result<(OpenedPacket<'a>, &'a [u8]), RefusedPacket> {
        let (keys, key_origin) =
            self.session.find_keys(now, header.session).ok_or(RefusedPacket::UnknownSession)?;
        let is_in_use = key_origin == KeyOrigin::InUse;
        let received = self.received_packets.get(&header.link);
        let received = received.filter(|_| is_in_use || self.session.is_current(keys));
        let expected = received.map_or(1, ReceivedPackets::next_number);
        let number = full_number(header.number, expected);
        if received.is_some_and(|received| !received.is_new(number)) {
            if let Some(via) = received.and_then(|received| received.via) {
                self.links[via].stats.duplicate_packets += 1;
            }
            return Err(RefusedPacket::Duplicate);
        }
        let datagram_len = datagram.len();
        let opened = keys.sealer.open(header.link, number, datagram);
        let body: &[u8] = opened.ok_or(RefusedPacket::Unauthentic)?;
        // From here on, the packet counts as one of the peer, whatever its content. A relayed
        // packet counts as one of the relay.
        cx.authenticated_peer.get_or_insert(self.id);
        let epoch = keys.epoch;
        if !is_in_use && !self.session.may_use_epoch(now, epoch) {
            return Err(RefusedPacket::Flood);
        }
        let (clock, body) = match header.relayed {
            true => (None, body),
            false => body.split_first_chunk().map_or((None, body), |(it, rest)| (Some(*it), rest)),
        };
        let clock = clock.map(u32::from_le_bytes);
        Ok((OpenedPacket { header, number, expected, datagram_len, clock }, body))
    }

    /// Checks that there is capacity for the frames' data.
    fn admit(&self, cx: &Context, now: Instant, frames: &[Frame<'_>]) -> Result<(), RefusedPacket> {
        let data = frames.iter().filter_map(|frame| match frame {
            Frame::Data(data, bytes) | Frame::Parity(data, bytes) => Some((data, bytes.len())),
            _ => None,
        });
        let mut data = data.peekable();
        let has_room = data.peek().is_none() || cx.events.has_room(Some(self.id));
        let has_token = self.channels.control_limit.has_token_at(now);
        let admits = has_room && self.channels.inbox.admits(data, has_token);
        if admits { Ok(()) } else { Err(RefusedPacket::Bound) }
    }

    /// The link to which a packet belongs. If no link leads to the address of the packet, and the
    /// packet has the highest number so far, the peer seems to have moved.
    fn find_packet_link(
        &mut self,
        cx: &mut Context,
        now: Instant,
        origin: Origin,
        packet: &OpenedPacket<'_>,
    ) -> Result<LinkId, RefusedPacket> {
        let Origin { radio, from, .. } = origin;
        if let Some(link) = self.links.link_leading_to(radio, from) {
            return Ok(link);
        }
        // Only the configuration determines which relays lead to a peer.
        if matches!(from, Place::Relay { .. }) {
            return Err(RefusedPacket::UnknownSession);
        }
        let their_link = packet.header.link;
        let received = &self.received_packets;
        let last = received.get(&their_link).and_then(|received| received.via);
        // Two links of the peer belong to the same link of ours only while one of them is
        // attributed wrongly.
        let mut others = received.iter().filter(|(number, _)| **number != their_link);
        let last = last.filter(|_| others.all(|(_, other)| other.via != last));
        let link = last.or_else(|| self.links.link_towards(radio, from));
        let link = link.ok_or(RefusedPacket::UnknownSession)?;
        if packet.number >= packet.expected {
            self.challenge(cx, now, link, origin.return_path());
        }
        Ok(link)
    }

    /// Records the packet number, the clock and the ECN field of a packet, and plans an acknowledgement. The
    /// packet arrived before `now`.
    fn record_received(
        &mut self,
        cx: &mut Context,
        (now, arrived, ecn): (Instant, Instant, Ecn),
        link: LinkId,
        packet: &OpenedPacket<'_>,
        frames: &[Frame<'_>],
    ) {
        let &OpenedPacket { header, number, datagram_len, clock, .. } = packet;
        let received =
            self.received_packets.entry(header.link).or_insert_with(ReceivedPackets::new);
        let gap = number != received.next_number();
        let trigger = AckTrigger { ack_soon: header.ack_soon, gap };
        let overtaken = number < received.next_number();
        received.insert(arrived, number, ecn);
        if let Some(clock) = clock {
            self.clock.on_packet(arrived, clock);
            received.on_clock(arrived, clock, overtaken);
        }
        received.via = Some(link);
        let carries =
            |f: &Frame<'_>| matches!(f, Frame::Data(..) | Frame::Parity(..) | Frame::Relay(..));
        let is_message = frames.iter().any(carries);
        if is_message {
            self.links[link].last_message = Some(now);
        }
        if is_message || frames.iter().any(|f| matches!(f, Frame::Ping)) {
            if header.relayed {
                received.plan_relayed_ack(now);
            } else if frames.iter().any(|f| matches!(f, Frame::Relay(..))) {
                received.plan_hop_ack(now, trigger);
            } else {
                let ip_bytes = datagram_len + self.links[link].config.header_bytes;
                received.plan_ack(now, ip_bytes, trigger);
            }
            cx.timers.set(Timer::Ack(self.id, header.link), received.ack_due());
        }
    }
}

/// Whether a frame is for neighbours only. Relayed packets must not have such frames. Otherwise
/// packets could be nested without end.
fn is_for_neighbours(frame: &Frame<'_>) -> bool {
    matches!(frame, Frame::Relay(..) | Frame::Held(_))
}

fn parse_frames(bytes: &[u8]) -> Result<Vec<Frame<'_>>, WireError> {
    let mut reader = Reader::new(bytes);
    let mut frames = Vec::with_capacity(4);
    while !reader.is_empty() {
        frames.push(Frame::parse(&mut reader)?);
    }
    Ok(frames)
}
