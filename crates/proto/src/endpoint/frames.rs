// SPDX-License-Identifier: Apache-2.0
//! The effect of each frame of a session packet.

use crate::delivery::fec::receiver::Recovered;
use crate::delivery::inbox::{Taken, Transit};
use crate::endpoint::arrival::Origin;
use crate::endpoint::events::{Event, Notice};
use crate::endpoint::{Endpoint, Timer};
use crate::ids::{ChannelId, LinkId, PeerId};
use crate::limits;
use crate::stats::RefusedPacket;
use crate::time::Instant;
use crate::wire::control::Control;
use crate::wire::frame::{Data, Frame};
use std::collections::BTreeSet;

/// PARITY frames of one packet that are read.
const MAX_PARITIES: usize = 4;

/// The packet in which frames arrived.
pub(crate) struct FromPeer {
    pub(crate) now: Instant,
    pub(crate) peer: PeerId,
    pub(crate) link: LinkId,
    pub(crate) origin: Origin,
    /// The sender's clock.
    pub(crate) clock: Option<u32>,
    pub(crate) transit: Transit,
}

/// What one packet has cost so far.
#[derive(Default)]
struct Spent {
    acked_links: BTreeSet<u8>,
    parities: usize,
    backlogs: usize,
    refuses_relay: bool,
}

impl Endpoint {
    pub(crate) fn handle_frames(
        &mut self,
        packet: &FromPeer,
        frames: &[Frame<'_>],
    ) -> Result<(), RefusedPacket> {
        let (now, peer) = (packet.now, packet.peer);
        let mut spent = Spent::default();
        for frame in frames {
            if let Frame::Goodbye = frame {
                self.peers[peer].said_goodbye = true;
                self.end_session(now, peer);
                self.peers[peer].said_goodbye = false;
                return Ok(());
            }
            if let Err(reason) = self.handle_frame(packet, &mut spent, frame) {
                self.refused.add(reason);
            }
        }
        // One notice for the whole packet, since a notice costs more than the rest.
        if spent.refuses_relay {
            self.notice(Notice::NotRelayed { name: self.peers[peer].name.clone() });
            return Err(RefusedPacket::NotRelayed);
        }
        Ok(())
    }

    fn handle_frame(
        &mut self,
        packet: &FromPeer,
        spent: &mut Spent,
        frame: &Frame<'_>,
    ) -> Result<(), RefusedPacket> {
        let &FromPeer { now, peer, link, origin, clock, .. } = packet;
        match frame {
            Frame::Data(data, bytes) => self.handle_data(packet, data, bytes),
            // Each may cost the decoding of a block; a sender puts them into separate packets.
            Frame::Parity(..) if spent.parities == MAX_PARITIES => {
                return Err(RefusedPacket::Malformed);
            }
            Frame::Parity(data, bytes) => {
                spent.parities += 1;
                self.handle_parity(packet, data, bytes);
            }
            Frame::Relay(..) if !self.may_relay(peer) => spent.refuses_relay = true,
            Frame::Relay(data, bytes) => self.handle_relayed(packet, data, bytes),
            // Each costs a pass over the sent-packet table; one suffices for a link.
            Frame::Ack(ack) if !spent.acked_links.insert(ack.link) => {
                return Err(RefusedPacket::Malformed);
            }
            Frame::Ack(ack) => self.handle_ack(now, peer, clock, ack),
            // Each may cost a pass over links or routes.
            Frame::Held(..) if spent.backlogs == limits::RELAYED_FLOWS => {
                return Err(RefusedPacket::Malformed);
            }
            Frame::Held(held) => {
                spent.backlogs += 1;
                self.handle_backlog_report(now, peer, held);
            }
            Frame::Challenge(token) => self.echo(now, link, origin.return_path(), *token),
            Frame::Echo(token) => self.handle_echo(now, peer, origin.radio, origin.from, *token),
            Frame::Clock(report) => {
                if let (wall, Some(clock)) = (self.wall(now), clock) {
                    self.peers[peer].clock.on_report(now, clock, report, wall);
                }
            }
            Frame::Observe(own) => self.handle_observe(link, origin.from, *own),
            Frame::Observed(observed) => self.handle_observed(now, link, *observed),
            Frame::Candidates(candidates) => self.handle_candidates(now, peer, candidates),
            // An acknowledgement answers it.
            Frame::Ping => {}
            Frame::Goodbye | Frame::Unknown(_) => {}
        }
        Ok(())
    }

    fn handle_data(&mut self, packet: &FromPeer, data: &Data, bytes: &[u8]) {
        let &FromPeer { now, peer, transit, .. } = packet;
        let taken = self.peers[peer].inbox.take(now, transit, data, bytes);
        self.handle_taken(now, peer, ChannelId(data.channel), taken);
        let recovered = self.peers[peer].inbox.protect(now, transit, data, bytes);
        self.handle_recovered(now, peer, data.channel, &recovered);
        self.after_fragment(now, peer);
    }

    fn handle_parity(&mut self, packet: &FromPeer, data: &Data, bytes: &[u8]) {
        let &FromPeer { now, peer, transit, .. } = packet;
        match self.peers[peer].inbox.take_parity(now, transit, data, bytes) {
            Ok(recovered) => self.handle_recovered(now, peer, data.channel, &recovered),
            Err(reason) => self.refused.add(reason),
        }
        self.after_fragment(now, peer);
    }

    fn handle_relayed(&mut self, packet: &FromPeer, data: &Data, bytes: &[u8]) {
        let &FromPeer { now, peer, transit, origin, .. } = packet;
        let taken = self.peers[peer].inbox.take_relayed(now, transit, data, bytes);
        if let Taken::Message(message) = &taken {
            let (radio, priority) = (origin.radio, data.channel as u8);
            if let Err(reason) = self.handle_relay(now, radio, peer, priority, message) {
                self.refused.add(reason);
                self.count_team_refusal(peer, reason);
            }
        } else {
            self.handle_taken(now, peer, ChannelId(data.channel), taken);
        }
        self.after_fragment(now, peer);
    }

    fn after_fragment(&mut self, now: Instant, peer: PeerId) {
        self.arm_partials(now, peer);
        self.deliver_ready(now, peer);
    }

    fn handle_recovered(
        &mut self,
        now: Instant,
        peer: PeerId,
        channel: u64,
        recovered: &[Recovered],
    ) {
        for frame in recovered {
            match self.peers[peer].inbox.take_recovered(now, channel, frame) {
                Ok(taken) => self.handle_taken(now, peer, ChannelId(channel), taken),
                Err(reason) => self.refused.add(reason),
            }
        }
    }

    fn handle_taken(&mut self, now: Instant, peer: PeerId, channel: ChannelId, taken: Taken) {
        match taken {
            Taken::Nothing => {}
            Taken::Message(message) => {
                self.emit(Event::Message { peer, channel, message });
            }
            Taken::Control(messages) => {
                for bytes in messages {
                    // Messages that were held for a missing one, or that share a packet, may
                    // exceed the tokens.
                    self.peers[peer].control.charge(now);
                    match Control::parse(&bytes) {
                        Ok(control) => self.handle_control(now, peer, control),
                        Err(_) => self.refused.add(RefusedPacket::Malformed),
                    }
                }
            }
            Taken::UnknownChannel => self.refused.add(RefusedPacket::UnknownChannel),
            Taken::Bound => self.refused.add(RefusedPacket::Bound),
            Taken::TooLarge(found) => self.report_too_large(now, peer, channel, found),
        }
    }

    /// Delivers the messages that wait for no earlier one any more.
    pub(crate) fn deliver_ready(&mut self, now: Instant, peer: PeerId) {
        while let Some((channel, message)) = self.peers[peer].inbox.next_ready(now) {
            self.emit(Event::Message { peer, channel: ChannelId(channel), message });
        }
        self.timers.set(Timer::Order(peer), self.peers[peer].inbox.next_end_of_wait());
    }
}
