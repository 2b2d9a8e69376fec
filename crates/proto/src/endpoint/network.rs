// SPDX-License-Identifier: Apache-2.0
//! All peers, and the radios that their links share: what no peer can decide alone.

use crate::address::Place;
use crate::arena::Arena;
use crate::class::{Class, InFlight};
use crate::config::MIN_DATAGRAM;
use crate::delivery::outbox::Urgency;
use crate::ecn::Ecn;
use crate::endpoint::context::{Context, Request};
use crate::endpoint::events::Event;
use crate::endpoint::peer::packet::{ReportKind, SealedPacket};
use crate::endpoint::peers::Peers;
use crate::ids::{LinkId, PeerId, RadioId};
use crate::path::link::Link;
use crate::path::radio::Radio;
use crate::time::Instant;
use crate::wire::relay::ShortName;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

/// Upper bound of the bytes that a hop adds to a relayed packet: 29 of the hop's own packet; 14 of a frame
/// with a fragment (type, length, priority, number, flags, age, size of the message, offset); and 8 of
/// [`crate::wire::relay::RelayHeader`].
const HOP_OVERHEAD_BYTES: usize = 64;
/// Maximum number of packets without messages in the kernel for one radio: one on the air, and the next.
const MAX_REPORTS: usize = 2;

/// A datagram to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transmit {
    /// The radio that sends it.
    pub radio: RadioId,
    /// The link; `None` for a reply to an address to which no link leads.
    pub link: Option<LinkId>,
    /// The address to which the datagram goes.
    pub remote: SocketAddr,
    /// The local address from which the datagram leaves: firewalls on the path pass answers only from that
    /// address. `None` leaves the choice to the caller.
    pub local: Option<IpAddr>,
    /// The payload of the datagram.
    pub datagram: Vec<u8>,
    /// Highest priority of its messages; `None` for a datagram without messages, to which the
    /// radio's budget does not apply.
    pub priority: Option<u8>,
    /// The class; in-flight bytes are reported by class.
    pub class: Class,
    /// DSCP of the IP packet, 0 to 63.
    pub dscp: u8,
    /// ECN field of the IP packet.
    pub ecn: Ecn,
}

impl Transmit {
    /// A datagram to an address to which no link leads. It has the class of unmarked packets.
    pub(crate) fn unlinked(
        radio: RadioId,
        (local, remote): (Option<IpAddr>, SocketAddr),
        datagram: Vec<u8>,
    ) -> Self {
        let (class, ecn) = (Class::BestEffort, Ecn::NotCapable);
        let (link, priority) = (None, None);
        Self { radio, link, remote, local, datagram, priority, class, dscp: 0, ecn }
    }
}

/// A packet of this node for a relay.
pub(crate) struct RelayBoundPacket {
    pub(crate) link: LinkId,
    pub(crate) hop: PeerId,
    pub(crate) end: ShortName,
    pub(crate) datagram: Vec<u8>,
    pub(crate) urgency: Option<Urgency>,
}

/// A packet that was accounted for, and its destination.
pub(crate) enum AccountedPacket {
    Datagram(Transmit),
    ToRelay(RelayBoundPacket),
}

pub(crate) struct Network {
    pub(crate) cx: Context,
    pub(crate) peers: Peers,
    pub(crate) radios: Arena<RadioId, Radio>,
    /// Unused radios of removed links through relays.
    pub(crate) vacant_radios: BTreeSet<RadioId>,
    /// Number of the present round of [forecasts](crate::path::select::Forecasts).
    pub(crate) forecast_round: u64,
}

impl std::fmt::Debug for Network {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Network").finish_non_exhaustive()
    }
}

/// Radios.
impl Network {
    pub(crate) fn new(cx: Context) -> Self {
        Self {
            cx,
            peers: Peers::new(),
            radios: Arena::new(),
            vacant_radios: BTreeSet::new(),
            forecast_round: 0,
        }
    }

    /// Bytes in the kernel that count against a radio's budget.
    pub(crate) fn in_flight(&self, radio: RadioId) -> InFlight {
        let mut sum = InFlight::default();
        let on_radio = self.peers.links().filter(|link| link.radio == radio);
        on_radio.for_each(|link| sum.add(&link.counted_in_flight()));
        sum
    }

    /// The class of a packet whose messages have at most this priority; `None` without messages.
    pub(crate) fn class(&self, id: LinkId, priority: Option<u8>) -> Class {
        self.radios[self.peers[id].radio].class(priority)
    }

    /// Sets the controller of a link, as its radio is configured.
    pub(crate) fn set_controller(&mut self, id: LinkId) {
        let link = &mut self.peers[id];
        let controller = self.radios[link.radio].link_controller();
        link.controller = controller.filter(|_| link.via.is_none());
    }

    /// Changes the radio of a link, and thereby its path.
    pub(crate) fn set_link_radio(&mut self, id: LinkId, radio: RadioId) {
        let link = &mut self.peers[id];
        if std::mem::replace(&mut link.radio, radio) != radio {
            link.local_address.forget();
            link.sent_packets.mtu.restart();
            self.set_controller(id);
        }
    }

    /// Whether links of the radio cost money. Packets of a direct path would not have their limits.
    pub(crate) fn is_metered(&self, radio: RadioId) -> bool {
        let mut links = self.peers.links().filter(|it| it.radio == radio && !it.removed);
        links.any(|it| it.config.metered && it.config.remote.is_some())
    }

    /// Whether a direct path to the peer must not leave by a radio.
    pub(crate) fn must_avoid_radio(&self, peer: PeerId, radio: RadioId) -> bool {
        self.peers[peer].rendezvous.is_enabled() && self.is_metered(radio)
    }

    /// Invalidates all forecasts, because the state of a radio or of a link has changed.
    pub(crate) fn forget_forecasts(&mut self) {
        self.forecast_round += 1;
    }

    /// Reports the IP bytes of a link and class that are in the kernel.
    pub(crate) fn handle_in_flight(
        &mut self,
        now: Instant,
        id: LinkId,
        class: Class,
        bytes: usize,
    ) {
        let Some(link) = self.peers.link_mut(id) else { return };
        let drained = link.in_flight.of_class(class).saturating_sub(bytes);
        link.on_in_flight(now, class, bytes);
        if drained > 0 && link.up {
            self.radios[link.radio].pacer.on_drained(now, drained);
        }
        let peer = link.peer;
        self.peers[peer].links.arm(&mut self.cx, id);
    }
}

/// Rates.
impl Network {
    /// The rate at which a link can send now, in bits per second of IP packets, and the signal that
    /// last held back one of its packets.
    pub(crate) fn available_rate(&self, now: Instant, id: LinkId) -> (Option<u64>, &'static str) {
        let link = &self.peers[id];
        let radio = &self.radios[link.radio];
        let of_radio = [radio.config.rate.fixed_bps(), radio.available_bps(now)];
        match &link.controller {
            Some(controller) if link.headroom.limited_by_path => {
                (controller.rate_bps(), controller.signal())
            }
            controller => {
                let of_link = controller.as_ref().and_then(|it| it.rate_bps());
                (of_radio.into_iter().chain([of_link]).flatten().min(), radio.pacer.signal())
            }
        }
    }

    /// Reports the available rate of a link, if it has changed enough.
    pub(crate) fn report_available_rate(&mut self, now: Instant, id: LinkId) {
        let (available_bps, _) = self.available_rate(now, id);
        let link = &mut self.peers[id];
        if link.up && link.headroom.should_report(now, available_bps) {
            let peer = link.peer;
            self.cx.emit(peer, Event::LinkRate { link: id, available_bps });
        }
    }

    /// Sets the rate of a peer's links that is left for repairs while the repairs wait for their budget.
    pub(crate) fn set_idle_rate(&mut self, now: Instant, peer: PeerId) {
        if self.peers[peer].channels.outbox.waits_for_budget() {
            let idle_bps = self.fair_share_bps(peer);
            self.peers[peer].channels.outbox.repairs.set_idle(now, idle_bps);
        }
    }

    /// The sum of the measured rates of the peer's radios, each divided by its number of peers with
    /// queued messages.
    pub(crate) fn fair_share_bps(&self, peer: PeerId) -> Option<u64> {
        let links = self.peers[peer].links.iter().filter(|link| link.carries_data());
        let mut radios: Vec<RadioId> = links.map(|link| link.radio).collect();
        radios.sort_unstable();
        radios.dedup();
        // Radios that share the messages are rarely busy for long enough to be measured.
        let shares = radios.len() > 1;
        let mut sum = None;
        for id in radios {
            let busy =
                self.peers.iter().filter(|peer| peer.channels.outbox.queues.waiting_bytes() > 0);
            let sharing = busy.filter(|peer| peer.links.iter().any(|it| it.radio == id)).count();
            let radio = &self.radios[id];
            let served = radio.pacer.service_bps(self.cx.clock_now).filter(|_| shares);
            let share = radio.measured_bps().or(served)? / sharing.max(1) as u64;
            sum = Some(sum.unwrap_or(0u64).saturating_add(share));
        }
        sum
    }
}

/// Packets.
impl Network {
    /// Largest datagram of a link. Through a relay, the datagram must fit into a packet to the
    /// relay.
    pub(crate) fn datagram_bytes(&self, id: LinkId) -> usize {
        let link = &self.peers[id];
        let Some(hop) = link.via else { return link.sent_packets.mtu.datagram_bytes() };
        let links = self.peers[hop].links.direct();
        let direct = links.map(|link| link.sent_packets.mtu.datagram_bytes());
        direct.min().unwrap_or(MIN_DATAGRAM).saturating_sub(HOP_OVERHEAD_BYTES).max(MIN_DATAGRAM)
    }

    /// Whether another packet without messages may go to the kernel. While the radio's queue is
    /// blocked, reports are held back: a later report is more recent, and covers the earlier ones.
    pub(crate) fn may_report(&self, id: LinkId) -> bool {
        let link = &self.peers[id];
        if self.peers[link.peer].goodbye_now || link.via.is_some() {
            return true;
        }
        let is_pending =
            |it: &&Link| it.radio == link.radio && it.has_pending_report() && !it.stalled;
        !link.has_pending_report() && self.peers.links().filter(is_pending).count() < MAX_REPORTS
    }

    /// Makes a packet without messages. If it carries a goodbye, it ends the session.
    pub(crate) fn report(
        &mut self,
        now: Instant,
        id: LinkId,
        kind: ReportKind,
    ) -> Option<AccountedPacket> {
        let peer = self.peers[id].peer;
        let leaves = self.peers[peer].goodbye_now;
        let sent = self.report_packet(now, id, kind);
        if leaves && !self.peers[peer].goodbye_now {
            self.cx.push_request(Request::EndSession { peer, said_goodbye: false });
        }
        sent
    }

    /// Makes a packet without messages that does not end the session.
    pub(crate) fn report_packet(
        &mut self,
        now: Instant,
        id: LinkId,
        kind: ReportKind,
    ) -> Option<AccountedPacket> {
        let limits = (self.datagram_bytes(id), self.class(id, None));
        let peer = self.peers[id].peer;
        let packet = self.peers[peer].report_packet(&mut self.cx, now, id, kind, limits)?;
        self.record_sealed(now, id, packet, None)
    }

    /// Accounts for a packet of a session.
    pub(crate) fn record_sealed(
        &mut self,
        now: Instant,
        id: LinkId,
        SealedPacket { datagram, ecn }: SealedPacket,
        urgency: Option<Urgency>,
    ) -> Option<AccountedPacket> {
        self.forget_forecasts();
        self.record_sent(now, id, datagram, urgency, ecn)
    }

    /// Accounts for a datagram on a link. `urgency` is `None` for a packet without messages, to which
    /// the radio's budget does not apply.
    pub(crate) fn record_sent(
        &mut self,
        now: Instant,
        id: LinkId,
        datagram: Vec<u8>,
        urgency: Option<Urgency>,
        ecn: Ecn,
    ) -> Option<AccountedPacket> {
        let place = self.peers[id].remote?;
        let radio = self.peers[id].radio;
        let in_flight = self.in_flight(radio).total();
        let priority = urgency.map(|it| it.priority);
        let class = self.class(id, priority);
        let link = &mut self.peers[id];
        let ip_bytes = datagram.len() + link.config.header_bytes;
        link.on_sent(now, class, ip_bytes);
        match priority {
            Some(priority) => link.on_messages_sent(now, priority),
            None => link.on_report_sent(class),
        }
        let (peer, local) = (link.peer, link.local_address.address(link.remote));
        self.radios[radio].on_sent(now, ip_bytes, in_flight);
        self.peers[peer].links.arm(&mut self.cx, id);
        Some(match place {
            Place::Udp(remote) => {
                let (link, dscp) = (Some(id), self.radios[radio].dscp(class));
                AccountedPacket::Datagram(Transmit {
                    radio,
                    link,
                    remote,
                    local,
                    datagram,
                    priority,
                    class,
                    dscp,
                    ecn,
                })
            }
            Place::Relay { hop, end } => {
                AccountedPacket::ToRelay(RelayBoundPacket { link: id, hop, end, datagram, urgency })
            }
        })
    }
}
