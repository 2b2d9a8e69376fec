// SPDX-License-Identifier: Apache-2.0
//! Judgement of endpoints' reactions to genuine datagrams and to datagrams of an attacker.

use super::{Body, HostEvent, Net, Packet};
use crate::sim::attacker::{Attack, Attacker};
use std::net::SocketAddrV4;
use tautline_medium::StationId;
use tautline_proto::stats::RefusedPacket;
use tautline_proto::{Endpoint, Event, Place};

/// Reasons for which no node refuses another honest node's packet.
const NEVER: [RefusedPacket; 5] = [
    RefusedPacket::Malformed,
    RefusedPacket::Version,
    RefusedPacket::Unauthentic,
    RefusedPacket::UnknownKey,
    RefusedPacket::WrongKey,
];
impl Net {
    /// Counts the packets that a host's node refused for reasons that only an attacker causes.
    pub(super) fn count_attack_drops(&self, host: StationId) -> u64 {
        let refused = self.view(host).map(Endpoint::refused_packets);
        refused.map_or(0, |refused| NEVER.iter().map(|reason| refused.get(*reason)).sum())
    }

    /// Checks that a node has not refused another node's datagram as an attacker's, unless the sender has
    /// restarted since, an address is reused, or the datagram contains a relayed one.
    pub(super) fn check_genuine(&mut self, host: StationId, before: u64, packet: &Packet) {
        let Packet { from, to, sender, life, body, .. } = packet;
        let Body::Tautline(datagram) = body else { return };
        let honest = self.hostile != Some(*sender);
        let of_now = *life == self.hosts[sender.0].life && !self.relays && honest;
        let never_reused = [from, to].iter().all(|it| !self.reused_addresses.contains(it.ip()));
        if of_now
            && never_reused
            && self.count_attack_drops(host) > before
            && !self.is_misled(*sender, *to, host)
        {
            let refused =
                self.view(host).map(|node| node.refused_packets().iter().collect::<Vec<_>>());
            self.misjudged.get_or_insert(format!(
                "station {} refused {} bytes {:02x?}... that station {} sent; so far {refused:?}",
                host.0,
                datagram.len(),
                &datagram[..2],
                sender.0
            ));
        }
    }

    /// Whether a link of `sender` to another peer leads to the address of `host`: an attacker that
    /// overhears a link can put itself on its path (docs/explanation/threat-model.md).
    fn is_misled(&self, sender: StationId, to: SocketAddrV4, host: StationId) -> bool {
        let (Some(node), Some(host)) = (self.view(sender), self.view(host)) else { return false };
        let mut links = node.links().filter_map(|link| node.link(link));
        let leads = |remote: Option<Place>| remote == Some(Place::Udp(to.into()));
        self.attacker.is_some()
            && links.any(|link| leads(link.remote) && node.peer(link.peer).name != host.name())
    }

    /// Makes the attacker send to one of the hosts; returns false if it has heard nothing yet.
    pub fn attack(&mut self) -> bool {
        let Some(attack) = self.attacker.as_mut().and_then(Attacker::draw) else { return false };
        let Attack { host, packet, changed } = attack;
        if self.hostile == Some(host) {
            return true;
        }
        let interfaces = &self.hosts[host.0].interfaces;
        let interface = interfaces.iter().position(|i| i.address == *packet.to.ip());
        self.note_transit(host, &packet);
        let total = |net: &Self| net.view(host).map_or(0, |node| node.refused_packets().total());
        let (refused, happened) = (total(self), self.happened.len());
        self.hand_over(host, interface.unwrap_or(0), &packet, false);
        let mut caused = self.happened.range(happened..);
        let delivers = caused.any(|it| matches!(it, HostEvent::Event(_, Event::Message { .. })));
        if changed && (delivers || total(self) == refused) {
            self.misjudged.get_or_insert(format!(
                "station {} took a datagram with a changed bit: {:?}",
                host.0, packet.body
            ));
        }
        true
    }
}
