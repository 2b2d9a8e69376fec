// SPDX-License-Identifier: Apache-2.0
//! The MTU of each link's path: probes, and packets that the kernel refuses. The search itself is in
//! [`crate::path::mtu`].

use crate::ecn::Ecn;
use crate::endpoint::events::Notice;
use crate::endpoint::{Endpoint, Timer, Transmit};
use crate::ids::LinkId;
use crate::path::mtu::BlackHole;
use crate::time::Instant;
use crate::wire::frame::put_padded_ping;
use crate::wire::packet::{Packet, SessionHeader, full_number};

impl Endpoint {
    /// A probe of the MTU of a path, after all that is more urgent. A link on which nothing else would
    /// be sent has none: it is spared, or about to be silent.
    pub(crate) fn poll_probe(&mut self, now: Instant) -> Option<Transmit> {
        for id in self.links.ids() {
            let link = &self.links[id];
            let is_quiet = link.via.is_some() || link.is_suspect() || link.is_spent();
            if !link.carries_data() || is_quiet || !self.may_report(id) {
                continue;
            }
            let peer = link.peer;
            if let Some(ip_bytes) = self.links[id].sent_packets.mtu.due_probe(now)
                && !self.is_spared(now, id)
                && self.peers[peer].mtu_probes.take(now)
            {
                return self.probe(now, id, ip_bytes);
            }
        }
        None
    }

    fn probe(&mut self, now: Instant, id: LinkId, ip_bytes: usize) -> Option<Transmit> {
        let datagram_bytes = ip_bytes.saturating_sub(self.links[id].config.header_bytes);
        let mut packet = self.start_header(now, id)?;
        let room = datagram_bytes.saturating_sub(packet.sealed_len());
        put_padded_ping(room, packet.plaintext());
        SessionHeader::mark_ack_soon(packet.plaintext());
        let datagram = packet.seal()?;
        let class = self.class(id, None);
        let overdue = self.links[id].sent_packets.record_probe(now, class, ip_bytes);
        self.timers.set(Timer::Probe(id), Some(overdue));
        self.sent(now, id, datagram, None, Ecn::NotCapable)
    }

    /// A probe is not acknowledged: the acknowledgement of a PING shows whether it was lost. Or a search
    /// is to begin again, which polling for packets does.
    pub(crate) fn on_probe_timer(&mut self, id: LinkId) {
        let link = &mut self.links[id];
        link.ping_now |= link.up && link.sent_packets.mtu.probe().is_some();
    }

    /// The kernel refused a datagram of [`Endpoint::poll_transmit`] on `link`, because its interface
    /// sends none of this size (EMSGSIZE). Its messages are sent again in smaller packets.
    pub fn handle_refused(&mut self, now: Instant, link: LinkId, datagram: &[u8]) {
        let Ok(Packet::Session(header, _)) = Packet::parse(datagram) else { return };
        let state = &mut self.links[link];
        let ip_bytes = datagram.len() + state.config.header_bytes;
        let number = full_number(header.number, state.sent_packets.next_number());
        let pieces = state.sent_packets.refuse(now, number, ip_bytes);
        let peer = state.peer;
        for piece in &pieces {
            self.peers[peer].outbox.unsent(piece);
        }
        self.arm_link(link);
        self.arm_expiry(now, peer);
    }

    /// Reports a black hole that probes confirmed, and plans the next search.
    pub(crate) fn follow_path_mtu(&mut self, id: LinkId) {
        let link = &mut self.links[id];
        let found = link.sent_packets.mtu.take_black_hole();
        let (peer, remote) = (link.peer, link.remote);
        if link.sent_packets.mtu.probe().is_none() {
            self.timers.set(Timer::Probe(id), link.sent_packets.mtu.next_search());
        }
        if let Some((BlackHole { lost, passes }, to)) = found.zip(remote) {
            let name = self.peers[peer].name.clone();
            self.notice(Notice::BlackHole { name, to, lost, passes });
        }
    }
}
