// SPDX-License-Identifier: Apache-2.0
//! The effect of each frame of a session packet.

use crate::delivery::inbox::Transit;
use crate::endpoint::arrival::Origin;
use crate::endpoint::context::{Context, Request};
use crate::endpoint::peer::Peer;
use crate::ids::LinkId;
use crate::limits;
use crate::stats::RefusedPacket;
use crate::time::Instant;
use crate::wire::frame::Frame;
use std::collections::BTreeSet;

/// Maximum number of PARITY frames that are handled in one packet.
const MAX_PARITIES: usize = 4;

/// The packet in which frames arrived.
pub(crate) struct PacketContext {
    pub(crate) now: Instant,
    pub(crate) link: LinkId,
    pub(crate) origin: Origin,
    /// The sender's clock.
    pub(crate) clock: Option<u32>,
    pub(crate) transit: Transit,
    /// Whether the peer may send RELAY frames.
    pub(crate) may_relay: bool,
}

/// What one packet has cost so far.
#[derive(Default)]
pub(crate) struct PacketCost {
    acked_links: BTreeSet<u8>,
    parities: usize,
    backlogs: usize,
    /// Whether the packet has a RELAY frame although the peer may not send RELAY frames.
    pub(crate) has_forbidden_relay: bool,
}

impl Peer {
    /// Handles a frame.
    pub(crate) fn handle_frame(
        &mut self,
        cx: &mut Context,
        packet: &PacketContext,
        cost: &mut PacketCost,
        frame: &Frame<'_>,
    ) -> Result<(), RefusedPacket> {
        let &PacketContext { now, link, origin, clock, transit, .. } = packet;
        let time = (now, transit);
        match frame {
            Frame::Data(data, bytes) => {
                self.channels.handle_data(cx, &self.name, time, data, bytes);
            }
            // Each PARITY frame may cost the decoding of a block. An honest sender puts them into
            // separate packets.
            Frame::Parity(..) if cost.parities == MAX_PARITIES => {
                return Err(RefusedPacket::Malformed);
            }
            Frame::Parity(data, bytes) => {
                cost.parities += 1;
                self.channels.handle_parity(cx, &self.name, time, data, bytes);
            }
            Frame::Relay(..) if !packet.may_relay => cost.has_forbidden_relay = true,
            Frame::Relay(data, bytes) => {
                let packet = self.channels.handle_relayed(cx, &self.name, time, data, bytes);
                if let Some(packet) = packet {
                    let (radio, priority) = (origin.radio, data.channel as u8);
                    cx.push_request(Request::Relay { hop: self.id, radio, priority, packet });
                }
            }
            // Each ACK costs a pass over the sent-packet table. One for each link suffices.
            Frame::Ack(ack) if !cost.acked_links.insert(ack.link) => {
                return Err(RefusedPacket::Malformed);
            }
            Frame::Ack(ack) => self.handle_ack(cx, now, clock, ack),
            // Each HELD may cost a pass over links or routes.
            Frame::Held(..) if cost.backlogs == limits::RELAYED_FLOWS => {
                return Err(RefusedPacket::Malformed);
            }
            Frame::Held(held) => {
                cost.backlogs += 1;
                cx.push_request(Request::Backlog { hop: self.id, held: *held });
            }
            Frame::Challenge(token) => self.echo(cx, now, link, origin.return_path(), *token),
            Frame::Echo(token) => self.handle_echo(cx, now, origin.return_path(), *token),
            Frame::Clock(report) => {
                if let (wall, Some(clock)) = (cx.wall_clock_us(now), clock) {
                    self.clock.on_report(now, clock, report, wall);
                }
            }
            Frame::Observe(own) => self.links[link].on_observe(origin.from, *own),
            Frame::Observed(observed) => {
                if self.links[link].address_discovery.on_answer(*observed) {
                    cx.push_request(Request::SeekDirectPaths(self.id));
                }
            }
            Frame::Candidates(candidates) => {
                let candidates = candidates.clone();
                cx.push_request(Request::Candidates { peer: self.id, candidates });
            }
            Frame::Goodbye => {
                cx.push_request(Request::EndSession { peer: self.id, said_goodbye: true })
            }
            // The acknowledgement of the packet answers the PING.
            Frame::Ping => {}
            Frame::Unknown(_) => {}
        }
        Ok(())
    }
}
