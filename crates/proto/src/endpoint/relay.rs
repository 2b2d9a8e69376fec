// SPDX-License-Identifier: Apache-2.0
//! Relaying: two nodes that cannot hear each other have a session whose packets a third node, or a
//! chain of nodes, forwards.
//!
//! Relayed packets are encrypted end to end. Each hop has a session of its own. In this session, a
//! relayed packet is a message: it is queued by priority, expires and is repaired. A link through a
//! relay has a radio of its own, whose budget limits the bytes in flight through the relay. The
//! relay reports its backlog, so that packets queue at the sender, where urgent packets can
//! overtake the others.

use crate::address::Place;
use crate::class::Class;
use crate::config::Rights;
use crate::delivery::inbox::Received;
use crate::delivery::outbox::{Flow, RelayOrigin, RelayedPacket};
use crate::endpoint::events::Notice;
use crate::endpoint::network::{Network, RelayBoundPacket};
use crate::endpoint::teams::Teams;
use crate::endpoint::timer::Timer;
use crate::ids::{LinkId, PeerId};
use crate::limits;
use crate::path::link::Link;
use crate::stats::RefusedPacket;
use crate::time::{Duration, Instant};
use crate::wire::cursor::Reader;
use crate::wire::relay::{Held, RelayHeader, ShortName};
use std::collections::BTreeMap;

/// Maximum number of relays on a route. The limit ends a routing loop.
const MAX_ROUTE_HOPS: u8 = 8;
/// Lifespan of packets without messages: an older one carries no information about the path.
const REPORT_LIFE: Duration = Duration::from_secs(1);
/// A larger reported backlog is not credible. The limit prevents overflow of sums.
const MAX_REPORTED_BACKLOG: u64 = u32::MAX as u64;
/// Least time between two searches for idle routes of one neighbour. Each search examines the queues of all
/// peers.
const ROUTE_SWEEP_PERIOD: Duration = Duration::from_secs(1);

/// The route of relayed packets from one neighbour, and their backlog beyond this node.
#[derive(Debug, Clone, Copy)]
struct RelayRoute {
    /// The next hop. Only its reports count.
    next: PeerId,
    /// Bytes in flight beyond the next hop, as the next hop reports.
    downstream_bytes: u64,
}

/// The routes of packets that this node forwards, and its own packets to relays.
#[derive(Debug, Default)]
pub(crate) struct Relay {
    routes: BTreeMap<(PeerId, Flow), RelayRoute>,
    /// A packet was handed to a relay since the last poll.
    is_pending: bool,
}

/// What happens to a relayed packet.
pub(crate) enum ForwardOutcome<'a> {
    /// The packet is for this node, and comes from this place.
    Local(Place, &'a [u8]),
    Forwarded,
}

/// Sending.
impl Relay {
    /// Whether a packet was handed to a relay since the last call.
    pub(crate) fn take_pending(&mut self) -> bool {
        std::mem::take(&mut self.is_pending)
    }

    /// Hands a packet of this node to the relay that leads to the packet's final receiver.
    pub(crate) fn hand_over(&mut self, net: &mut Network, now: Instant, packet: RelayBoundPacket) {
        let RelayBoundPacket { link, hop, end, datagram, urgency } = packet;
        let (priority, expires) = match urgency {
            Some(urgency) => (urgency.priority, urgency.expires),
            None => (u8::MAX, Some(now + REPORT_LIFE)),
        };
        let header = RelayHeader {
            hops: MAX_ROUTE_HOPS,
            life: expires.map(|at| at.since(now)),
            from: None,
            to: Some(end),
        };
        let payload = header.with_header(&datagram);
        net.peers[link].relay_window.add(priority, payload.len());
        let origin = RelayOrigin::Own(link);
        let is_forwarded_again = true;
        let packet = RelayedPacket {
            priority,
            payload,
            published: now,
            expires,
            origin,
            is_forwarded_again,
        };
        enqueue(net, now, hop, packet);
        self.is_pending = true;
    }
}

/// Backlogs.
impl Relay {
    /// Passes changes of relay backlogs to links and to reports for neighbours.
    pub(crate) fn process_backlog_changes(&self, net: &mut Network, now: Instant) {
        for id in net.peers.ids() {
            while let Some(origin) = net.peers[id].channels.outbox.queues.pop_backlog_change() {
                match origin {
                    RelayOrigin::Own(id) => update_window(net, now, id),
                    RelayOrigin::Forwarded(hop, flow) => self.plan_report(net, now, hop, flow),
                }
            }
        }
    }

    fn plan_report(&self, net: &mut Network, now: Instant, hop: PeerId, flow: Flow) {
        let Some(RelayRoute { downstream_bytes, .. }) = self.routes.get(&(hop, flow)).copied()
        else {
            return;
        };
        let bytes =
            backlog(net, RelayOrigin::Forwarded(hop, flow)).saturating_add(downstream_bytes);
        let reports = &mut net.peers[hop].backlog_reports;
        reports.set_backlog(now, flow, bytes);
        net.cx.timers.set(Timer::BacklogReport(hop), reports.next_due());
    }

    /// Applies a backlog report of a neighbour.
    pub(crate) fn handle_report(
        &mut self,
        net: &mut Network,
        now: Instant,
        hop: PeerId,
        held: &Held,
    ) {
        // Members of a team relay nothing.
        if net.peers[hop].team.is_some() {
            return;
        }
        let bytes = held.bytes.min(MAX_REPORTED_BACKLOG);
        if let Some(from) = held.from {
            let flow = Flow { from, to: held.to };
            let route = self.routes.iter_mut().filter(|((_, it), _)| *it == flow);
            let route = route.filter(|(_, route)| route.next == hop);
            let reported: Vec<_> = route
                .map(|((from, _), route)| {
                    route.downstream_bytes = bytes;
                    *from
                })
                .collect();
            for from in reported {
                self.plan_report(net, now, from, flow);
            }
            return;
        }
        let place = Place::Relay { hop, end: held.to };
        let Some(id) = net.peers.find_link(|link| link.remote == Some(place)) else {
            return;
        };
        net.peers[id].remote_backlog = bytes as usize;
        update_window(net, now, id);
    }
}

/// Routes.
impl Relay {
    /// Records that packets of a flow come from `hop` and go to `next`.
    fn record_route(
        &mut self,
        net: &mut Network,
        now: Instant,
        (hop, next): (PeerId, PeerId),
        flow: Flow,
    ) {
        let known = self.routes.get_mut(&(hop, flow));
        if let Some(route) = known {
            if std::mem::replace(&mut route.next, next) != next {
                route.downstream_bytes = 0;
            }
            return;
        }
        let is_due = |at: Instant| now.since(at) >= ROUTE_SWEEP_PERIOD;
        let may_sweep = net.peers[hop].routes_swept_at.is_none_or(is_due);
        if self.routes_from(hop) >= limits::RELAYED_FLOWS && may_sweep {
            net.peers[hop].routes_swept_at = Some(now);
            let idle = self.routes.iter().filter(|(key, _)| key.0 == hop);
            let idle = idle.filter(|(_, route)| route.downstream_bytes == 0).map(|(key, _)| *key);
            for key in idle.collect::<Vec<_>>() {
                if backlog(net, RelayOrigin::Forwarded(key.0, key.1)) == 0 {
                    self.routes.remove(&key);
                }
            }
        }
        if self.routes_from(hop) < limits::RELAYED_FLOWS {
            self.routes.insert((hop, flow), RelayRoute { next, downstream_bytes: 0 });
        }
    }

    fn routes_from(&self, hop: PeerId) -> usize {
        self.routes.keys().filter(|(from, _)| *from == hop).count()
    }

    /// Drops the relayed packets to and from a neighbour to which no link leads any more.
    pub(crate) fn forget_routes(&mut self, net: &mut Network, now: Instant, gone: PeerId) {
        self.routes.retain(|(hop, _), _| *hop != gone);
        net.peers[gone].backlog_reports.clear();
        net.cx.timers.set(Timer::BacklogReport(gone), None);
        net.peers[gone].channels.outbox.drop_relayed(|_| true);
        let is_gone = |it| matches!(it, RelayOrigin::Forwarded(hop, _) if hop == gone);
        net.peers.iter_mut().for_each(|peer| peer.channels.outbox.drop_relayed(is_gone));
        let beyond = self.routes.iter_mut().filter(|(_, route)| route.next == gone);
        let changed = beyond.map(|(key, route)| {
            route.downstream_bytes = 0;
            *key
        });
        for (hop, flow) in changed.collect::<Vec<_>>() {
            self.plan_report(net, now, hop, flow);
        }
    }
}

/// Forwarding.
impl Relay {
    /// Handles a complete relayed packet from `hop`: forwards it, unless it is for this node.
    pub(crate) fn forward<'a>(
        &mut self,
        net: &mut Network,
        teams: &Teams,
        now: Instant,
        (hop, priority): (PeerId, u8),
        message: &'a Received,
    ) -> Result<ForwardOutcome<'a>, RefusedPacket> {
        let mut reader = Reader::new(&message.payload);
        let header = RelayHeader::parse(&mut reader).map_err(|_| RefusedPacket::Malformed)?;
        let packet = reader.remaining();
        if header.life.is_some_and(|life| message.age > life) {
            return Err(RefusedPacket::TooOld);
        }
        let from = header.from.unwrap_or(net.peers[hop].short_name);
        let Some(to) = header.to.filter(|to| *to != net.cx.short_name) else {
            return Ok(ForwardOutcome::Local(Place::Relay { hop, end: from }, packet));
        };
        let Some(rights) = relay_rights(net, hop, from) else {
            net.cx.emit_notice(Notice::NotRelayed { name: net.peers[hop].name.clone() });
            return Err(RefusedPacket::NotRelayed);
        };
        // For the sender, members of other teams do not exist: it learns nothing about them.
        let Some(peer) = net.peers.find_by_short_name(net.peers[hop].team, to) else {
            net.cx.emit_notice(Notice::UnknownEnd { name: net.peers[hop].name.clone() });
            return Err(RefusedPacket::NoRoute);
        };
        let next = next_hop(net, peer, hop)?;
        let Some(hops) = header.hops.checked_sub(1) else {
            net.cx.emit_notice(Notice::RelayLoop { name: net.peers[hop].name.clone() });
            return Err(RefusedPacket::RelayLoop);
        };
        let is_last = net.peers[next].short_name == to;
        let to_name = (!is_last).then_some(to);
        let next_header = RelayHeader { hops, life: header.life, from: Some(from), to: to_name };
        let payload = next_header.with_header(packet);
        let published = now.before(message.age);
        let expires = header.life.map(|life| published + life);
        let priority = priority.min(rights.max_priority);
        let flow = Flow { from, to };
        if net.peers[next].channels.outbox.queues.memory_of_packets_from(hop)
            >= limits::RELAYED_BYTES
        {
            return Err(RefusedPacket::Bound);
        }
        if !teams.has_room(&net.peers, next, payload.len()) {
            return Err(RefusedPacket::TeamFull);
        }
        self.record_route(net, now, (hop, next), flow);
        let origin = RelayOrigin::Forwarded(hop, flow);
        let is_forwarded_again = !is_last;
        let packet =
            RelayedPacket { priority, payload, published, expires, origin, is_forwarded_again };
        enqueue(net, now, next, packet);
        Ok(ForwardOutcome::Forwarded)
    }
}

/// Queues a packet for the neighbour `hop`.
fn enqueue(net: &mut Network, now: Instant, hop: PeerId, packet: RelayedPacket) {
    let channels = &mut net.peers[hop].channels;
    channels.outbox.enqueue_relayed(packet);
    channels.outbox.enforce_bytes(net.cx.config.queue_bytes);
    channels.arm_expiry(&mut net.cx, now);
}

fn backlog(net: &Network, origin: RelayOrigin) -> u64 {
    let backlogs = net.peers.iter().map(|peer| peer.channels.outbox.queues.relayed_backlog(origin));
    backlogs.fold(0, u64::saturating_add)
}

/// Updates the bytes in flight on a link through a relay.
fn update_window(net: &mut Network, now: Instant, id: LinkId) {
    let own = backlog(net, RelayOrigin::Own(id)) as usize;
    let Some(link) = net.peers.link_mut(id).filter(|link| !link.removed) else { return };
    let bytes = own.saturating_add(link.remote_backlog);
    link.relay_window.shrink_to(bytes);
    net.handle_in_flight(now, id, Class::BestEffort, bytes);
}

/// Whether a peer may send RELAY frames: by its rights, or because the configuration names it as
/// a relay (`via`).
pub(crate) fn may_relay(net: &Network, hop: PeerId) -> bool {
    net.peers[hop].rights.relayed || net.peers.links().any(|link| link.via == Some(hop))
}

/// Returns the rights of relayed packets that the neighbour `hop` sends and whose header names the
/// origin `from`. If `from` is a peer, its rights apply only if it is `hop` itself, or if the
/// configuration names `hop` as its relay. If `from` is no peer, the rights of `hop` apply.
fn relay_rights(net: &Network, hop: PeerId, from: ShortName) -> Option<Rights> {
    let team = net.peers[hop].team;
    let owner = match net.peers.find_by_short_name(team, from) {
        // Members of a team do not relay: a packet that names an origin outside the team has no
        // rights.
        None if team.is_some() => return None,
        Some(sender) if sender != hop => {
            let mut links = net.peers[sender].links.iter();
            links.any(|link| link.via == Some(hop)).then_some(sender)?
        }
        _ => hop,
    };
    Some(net.peers[owner].rights).filter(|rights| rights.relayed)
}

/// Returns the next hop of packets to a peer, never the neighbour that sent them: in the order of
/// the configuration, the first hop that is heard; otherwise the first hop whose link is up.
fn next_hop(net: &mut Network, peer: PeerId, prev_hop: PeerId) -> Result<PeerId, RefusedPacket> {
    let Network { peers, cx, .. } = net;
    let hop = |link: &Link| link.via.unwrap_or(peer);
    let hops: Vec<_> = peers[peer].links.iter().map(hop).filter(|hop| *hop != prev_hop).collect();
    if hops.is_empty() {
        cx.emit_notice(Notice::RelayLoop { name: peers[prev_hop].name.clone() });
    }
    let is_up = |hop: &&PeerId| peers[**hop].links.direct().any(|link| link.up);
    let heard = hops.iter().find(|hop| peers.is_heard(**hop));
    heard.or_else(|| hops.iter().find(is_up)).copied().ok_or(RefusedPacket::NoRoute)
}
