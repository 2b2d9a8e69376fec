// SPDX-License-Identifier: Apache-2.0
//! Relaying: two nodes that cannot hear each other have a session whose packets a third node, or a
//! chain of nodes, forwards.
//!
//! These packets are encrypted end to end. Each hop has a session of its own, in which a relayed
//! packet is a message: it is queued by priority, expires and is repaired. A link through a relay
//! has a radio of its own, whose budget limits the bytes in flight through the relay. The relay
//! reports its backlog, so that the queue stays at the sender, where urgent packets overtake.

use crate::address::Place;
use crate::class::Class;
use crate::config::{LinkConfig, MIN_DATAGRAM, RadioConfig, Rate};
use crate::delivery::inbox::Received;
use crate::delivery::outbox::{Flow, RelayOrigin, RelayedPacket, Urgency};
use crate::ecn::Ecn;
use crate::endpoint::arrival::Origin;
use crate::endpoint::events::Notice;
use crate::endpoint::transmit::ReportKind;
use crate::endpoint::{Endpoint, Timer, Transmit};
use crate::error::SetupError;
use crate::ids::{LinkId, PeerId, RadioId};
use crate::limits;
use crate::path::link::Link;
use crate::path::relay_window::WINDOW;
use crate::stats::{Forwarded, OutStats, RefusedPacket};
use crate::time::{Duration, Instant};
use crate::wire::cursor::Reader;
use crate::wire::relay::{Held, RelayHeader, ShortName};
use std::collections::BTreeMap;

/// Most relays on a route, which ends a routing loop.
const HOPS: u8 = 8;
/// Bytes that a hop adds to a relayed packet: 29 of its own packet; type, length, priority, number,
/// flags and age of the frame, 14 with a fragment; and 8 of [`RelayHeader`].
const HOP_BYTES: usize = 64;
/// Lifespan of packets without messages: an older one carries no information about the path.
const REPORT_LIFE: Duration = Duration::from_secs(1);
/// Delay of a report of a larger backlog, unless another packet can carry it earlier.
const BACKLOG_REPORT_DELAY: Duration = Duration::from_millis(10);
/// Times after which a report is repeated, in case it was lost.
const BACKLOG_REPORT_REPEATS: [Duration; 2] =
    [Duration::from_millis(30), Duration::from_millis(150)];

/// A larger reported backlog is not credible. The limit prevents overflow of sums.
const MAX_REPORTED_BACKLOG: u64 = u32::MAX as u64;
/// Least time between two searches for idle routes of one neighbour, each of which looks into the
/// queues of all peers.
const ROUTE_SWEEP_PERIOD: Duration = Duration::from_secs(1);

/// The rights of a peer beyond its own topics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rights {
    /// Its packets to other nodes are forwarded.
    pub relayed: bool,
    /// The highest priority of these packets.
    pub max_priority: u8,
}

impl Default for Rights {
    fn default() -> Self {
        Self { relayed: false, max_priority: u8::MAX }
    }
}

/// The route of relayed packets from one neighbour, and their backlog beyond this node.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RelayRoute {
    /// The next hop. Only its reports count.
    next: PeerId,
    /// Bytes in flight beyond the next hop, as it reports.
    beyond: u64,
}

/// The state of backlog reports to a neighbour about one flow.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct BacklogReport {
    bytes: u64,
    /// Bytes in the last report, and how often it was sent.
    reported_bytes: u64,
    times: usize,
    /// When the next report is due.
    due: Option<Instant>,
}

impl BacklogReport {
    /// Whether the neighbour has no report of the present backlog.
    fn is_news(&self) -> bool {
        self.times == 0 || self.bytes != self.reported_bytes
    }

    fn change(&mut self, now: Instant, bytes: u64) {
        let pending = self.due.filter(|_| self.is_news());
        self.bytes = bytes;
        self.due = if self.is_news() {
            // The sender knows of a larger backlog; it waits for a smaller one.
            let due = if bytes < self.reported_bytes { now } else { now + BACKLOG_REPORT_DELAY };
            Some(pending.map_or(due, |before| before.min(due)))
        } else {
            self.repeat_at(now)
        };
    }

    fn on_reported(&mut self, now: Instant) {
        self.times = if self.is_news() { 1 } else { self.times + 1 };
        self.reported_bytes = self.bytes;
        self.due = self.repeat_at(now);
    }

    fn repeat_at(&self, now: Instant) -> Option<Instant> {
        let wait = BACKLOG_REPORT_REPEATS.get(self.times.checked_sub(1)?)?;
        Some(now + *wait)
    }
}

/// Setup.
impl Endpoint {
    /// Adds a link to a peer through another peer.
    pub fn add_relayed_link(
        &mut self,
        now: Instant,
        peer: PeerId,
        via: PeerId,
    ) -> Result<LinkId, SetupError> {
        // The packets that carry its packets are marked instead.
        let (rate, marking) = (Rate::BackPressure, None);
        let default = RadioConfig::default();
        let config = RadioConfig { rate, in_flight_bytes: WINDOW, marking, ..default };
        let radio = self.take_vacant_radio(config);
        self.radios[radio].make_relayed(WINDOW);
        let config = LinkConfig {
            remote: None,
            datagram_bytes: MIN_DATAGRAM,
            header_bytes: 0,
            metered: false,
        };
        let id = self.add_link(now, peer, radio, config)?;
        let end = self.peers[peer].short_name;
        let link = &mut self.links[id];
        link.via = Some(via);
        link.controller = None;
        link.sent_packets = link.sent_packets.successor(true);
        link.remote = Some(Place::Relay { hop: via, end });
        Ok(id)
    }

    /// Sets the rights of a peer.
    pub fn set_rights(&mut self, peer: PeerId, rights: Rights) {
        self.peers[peer].rights = rights;
    }

    /// Counters of relayed packets to a neighbour, of others and of this node.
    pub fn relayed(&self, peer: PeerId) -> OutStats {
        self.peers[peer].outbox.relayed_stats()
    }

    /// Counters of relayed packets of others to a neighbour.
    pub fn forwarded(&self, peer: PeerId) -> Forwarded {
        self.peers[peer].outbox.forwarded()
    }

    /// The links to a peer without a relay.
    pub(crate) fn direct_links(&self, peer: PeerId) -> impl Iterator<Item = &Link> {
        let links = self.peers[peer].links.iter().map(|id| &self.links[*id]);
        links.filter(|link| link.via.is_none())
    }

    /// Largest datagram of a link; through a relay, one that fits a packet to the relay.
    pub(crate) fn datagram_bytes(&self, id: LinkId) -> usize {
        let link = &self.links[id];
        let Some(hop) = link.via else { return link.sent_packets.mtu.datagram_bytes() };
        let direct = self.direct_links(hop).map(|link| link.sent_packets.mtu.datagram_bytes());
        direct.min().unwrap_or(MIN_DATAGRAM).saturating_sub(HOP_BYTES).max(MIN_DATAGRAM)
    }
}

/// Sending.
impl Endpoint {
    /// Hands a packet of this node to the relay that leads to `end`.
    pub(crate) fn hand_to_relay(
        &mut self,
        now: Instant,
        id: LinkId,
        (hop, end): (PeerId, ShortName),
        datagram: Vec<u8>,
        urgency: Option<Urgency>,
    ) {
        let (priority, expires) = match urgency {
            Some(urgency) => (urgency.priority, urgency.expires),
            None => (u8::MAX, Some(now + REPORT_LIFE)),
        };
        let header = RelayHeader {
            hops: HOPS,
            life: expires.map(|at| at.since(now)),
            from: None,
            to: Some(end),
        };
        let payload = header.before(&datagram);
        self.links[id].relay_window.add(priority, payload.len());
        let origin = RelayOrigin::Own(id);
        let is_forwarded_again = true;
        let packet = RelayedPacket {
            priority,
            payload,
            published: now,
            expires,
            origin,
            is_forwarded_again,
        };
        self.enqueue_relayed(now, hop, packet);
        self.relay_pending = true;
    }

    /// Queues a packet for the neighbour `hop`.
    fn enqueue_relayed(&mut self, now: Instant, hop: PeerId, packet: RelayedPacket) {
        let queue_bytes = self.config.queue_bytes;
        let outbox = &mut self.peers[hop].outbox;
        outbox.enqueue_relayed(packet);
        outbox.enforce_bytes(queue_bytes);
        self.arm_expiry(now, hop);
    }

    /// Passes changes of relay backlogs to links and to reports for neighbours.
    pub(crate) fn process_backlog_changes(&mut self, now: Instant) {
        for id in self.peers.ids() {
            while let Some(origin) = self.peers[id].outbox.pop_backlog_change() {
                match origin {
                    RelayOrigin::Own(id) => self.update_relay_window(now, id),
                    RelayOrigin::For(hop, flow) => self.plan_backlog_report(now, hop, flow),
                }
            }
        }
    }

    fn backlog(&self, origin: RelayOrigin) -> u64 {
        let backlogs = self.peers.iter().map(|peer| peer.outbox.held(origin));
        backlogs.fold(0, u64::saturating_add)
    }

    /// Updates the bytes in flight on a link through a relay.
    fn update_relay_window(&mut self, now: Instant, id: LinkId) {
        let own = self.backlog(RelayOrigin::Own(id)) as usize;
        let link = &self.links[id];
        if link.removed {
            return;
        }
        let bytes = own.saturating_add(link.remote_backlog);
        self.links[id].relay_window.shrink_to(bytes);
        self.handle_in_flight(now, id, Class::BestEffort, bytes);
    }

    fn plan_backlog_report(&mut self, now: Instant, hop: PeerId, flow: Flow) {
        let Some(RelayRoute { beyond, .. }) = self.routes.get(&(hop, flow)).copied() else {
            return;
        };
        let bytes = self.backlog(RelayOrigin::For(hop, flow)).saturating_add(beyond);
        let reports = &mut self.peers[hop].backlog_reports;
        let report = reports.entry(flow).or_default();
        if bytes != report.bytes || report.times == 0 {
            report.change(now, bytes);
        }
        let first = reports.values().filter_map(|report| report.due).min();
        self.timers.set(Timer::Held(hop), first);
    }

    /// A packet with backlog reports to a neighbour, if one is due.
    pub(crate) fn poll_backlog_report(&mut self, now: Instant) -> Option<Transmit> {
        for id in self.peers.ids() {
            let due = |report: &BacklogReport| report.due.is_some_and(|at| at <= now);
            if !self.peers[id].backlog_reports.values().any(due) {
                continue;
            }
            let links = &self.peers[id].links;
            let open = |link: &Link| link.via.is_none() && link.is_heard();
            let up = links.iter().find(|id| open(&self.links[**id])).copied();
            match up {
                Some(link) if self.may_report(link) => {
                    return self.report(now, link, ReportKind::Reports);
                }
                Some(_) => {}
                None => self.peers[id].backlog_reports.clear(),
            }
        }
        None
    }

    /// The backlog reports for a packet to a neighbour.
    pub(crate) fn due_backlog_reports(&mut self, now: Instant, hop: PeerId) -> Vec<Held> {
        let neighbour = self.peers[hop].short_name;
        let reports = &mut self.peers[hop].backlog_reports;
        let mut all = Vec::new();
        // A new report goes with the acknowledgement of the packets that caused it.
        let includes = |it: &BacklogReport| it.due.is_some_and(|at| at <= now || it.is_news());
        for (flow, report) in reports.iter_mut().filter(|(_, it)| includes(it)) {
            let from = Some(flow.from).filter(|from| *from != neighbour);
            all.push(Held { to: flow.to, bytes: report.bytes, from });
            report.on_reported(now);
        }
        reports.retain(|_, report| report.due.is_some() || report.bytes > 0);
        let next = reports.values().filter_map(|report| report.due).min();
        self.timers.set(Timer::Held(hop), next);
        all
    }

    /// Records that packets of a flow come from `hop` and go to `next`.
    fn record_route(&mut self, now: Instant, hop: PeerId, next: PeerId, flow: Flow) {
        let known = self.routes.get_mut(&(hop, flow));
        if let Some(route) = known {
            if std::mem::replace(&mut route.next, next) != next {
                route.beyond = 0;
            }
            return;
        }
        let of_hop = |routes: &BTreeMap<(PeerId, Flow), RelayRoute>| {
            routes.keys().filter(|(from, _)| *from == hop).count()
        };
        let is_due = |at: Instant| now.since(at) >= ROUTE_SWEEP_PERIOD;
        let may_sweep = self.peers[hop].routes_swept_at.is_none_or(is_due);
        if of_hop(&self.routes) >= limits::RELAYED_FLOWS && may_sweep {
            self.peers[hop].routes_swept_at = Some(now);
            let idle = self.routes.iter().filter(|(key, _)| key.0 == hop);
            let idle = idle.filter(|(_, route)| route.beyond == 0).map(|(key, _)| *key);
            for key in idle.collect::<Vec<_>>() {
                if self.backlog(RelayOrigin::For(key.0, key.1)) == 0 {
                    self.routes.remove(&key);
                }
            }
        }
        if of_hop(&self.routes) < limits::RELAYED_FLOWS {
            self.routes.insert((hop, flow), RelayRoute { next, beyond: 0 });
        }
    }

    /// Drops the relayed packets to and from a neighbour to which no link leads any more.
    pub(crate) fn forget_routes(&mut self, now: Instant, gone: PeerId) {
        self.routes.retain(|(hop, _), _| *hop != gone);
        self.peers[gone].backlog_reports.clear();
        self.timers.set(Timer::Held(gone), None);
        self.peers[gone].outbox.drop_relayed(|_| true);
        for state in self.peers.iter_mut() {
            state.outbox.drop_relayed(|it| matches!(it, RelayOrigin::For(hop, _) if hop == gone));
        }
        let beyond = self.routes.iter_mut().filter(|(_, route)| route.next == gone);
        let changed = beyond.map(|(key, route)| {
            route.beyond = 0;
            *key
        });
        for (hop, flow) in changed.collect::<Vec<_>>() {
            self.plan_backlog_report(now, hop, flow);
        }
    }
}

/// Receiving.
impl Endpoint {
    /// Applies a backlog report of a neighbour.
    pub(crate) fn handle_backlog_report(&mut self, now: Instant, hop: PeerId, held: &Held) {
        // Members of a team relay nothing.
        if self.peers[hop].team.is_some() {
            return;
        }
        let bytes = held.bytes.min(MAX_REPORTED_BACKLOG);
        if let Some(from) = held.from {
            let flow = Flow { from, to: held.to };
            let route = self.routes.iter_mut().filter(|((_, it), _)| *it == flow);
            let route = route.filter(|(_, route)| route.next == hop);
            let reported: Vec<_> = route
                .map(|((from, _), route)| {
                    route.beyond = bytes;
                    *from
                })
                .collect();
            for from in reported {
                self.plan_backlog_report(now, from, flow);
            }
            return;
        }
        let place = Place::Relay { hop, end: held.to };
        let Some(id) = self.links.position(|link| link.remote == Some(place)) else {
            return;
        };
        self.links[id].remote_backlog = bytes as usize;
        self.update_relay_window(now, id);
    }

    /// Handles a complete relayed packet from `hop`: receives or forwards it.
    pub(crate) fn handle_relay(
        &mut self,
        now: Instant,
        radio: RadioId,
        hop: PeerId,
        priority: u8,
        message: &Received,
    ) -> Result<(), RefusedPacket> {
        let mut reader = Reader::new(&message.payload);
        let header = RelayHeader::parse(&mut reader).map_err(|_| RefusedPacket::Malformed)?;
        let packet = reader.remaining();
        if header.life.is_some_and(|life| message.age > life) {
            return Err(RefusedPacket::TooOld);
        }
        let from = header.from.unwrap_or(self.peers[hop].short_name);
        let Some(to) = header.to.filter(|to| *to != self.short_name) else {
            let from = Place::Relay { hop, end: from };
            let (ecn, relayed_age) = (Ecn::NotCapable, Some(message.age));
            let origin = Origin { radio, from, local: None, arrived: now, ecn, relayed_age };
            self.receive(now, origin, packet);
            return Ok(());
        };
        let Some(rights) = self.relay_rights(hop, from) else {
            self.notice(Notice::NotRelayed { name: self.peers[hop].name.clone() });
            return Err(RefusedPacket::NotRelayed);
        };
        // Members of other teams do not exist for the sender, which learns nothing about them.
        let Some(&peer) = self.by_short_name.get(&(self.peers[hop].team, to)) else {
            self.notice(Notice::UnknownEnd { name: self.peers[hop].name.clone() });
            return Err(RefusedPacket::NoRoute);
        };
        let next = self.next_hop(peer, hop)?;
        let Some(hops) = header.hops.checked_sub(1) else {
            self.notice(Notice::RelayLoop { name: self.peers[hop].name.clone() });
            return Err(RefusedPacket::RelayLoop);
        };
        let is_last = self.peers[next].short_name == to;
        let to_name = (!is_last).then_some(to);
        let onward = RelayHeader { hops, life: header.life, from: Some(from), to: to_name };
        let payload = onward.before(packet);
        let published = now.before(message.age);
        let expires = header.life.map(|life| published + life);
        let priority = priority.min(rights.max_priority);
        let flow = Flow { from, to };
        if self.peers[next].outbox.held_from(hop) >= limits::RELAYED_BYTES {
            return Err(RefusedPacket::Bound);
        }
        if !self.team_has_room(next, payload.len()) {
            return Err(RefusedPacket::TeamFull);
        }
        self.record_route(now, hop, next, flow);
        let origin = RelayOrigin::For(hop, flow);
        let packet = RelayedPacket {
            priority,
            payload,
            published,
            expires,
            origin,
            is_forwarded_again: !is_last,
        };
        self.enqueue_relayed(now, next, packet);
        Ok(())
    }

    /// Whether a peer may send RELAY frames: by its rights, or because the configuration names it as
    /// a relay (`via`).
    pub(crate) fn may_relay(&self, hop: PeerId) -> bool {
        let named = || self.links.iter().any(|link| link.via == Some(hop));
        self.peers[hop].rights.relayed || named()
    }

    /// The rights of relayed packets that `hop` sends and that claim to be from `from`. The rights
    /// of a peer `from` apply only if it is the neighbour itself, or if the configuration names the
    /// neighbour as its relay. For a node that is no peer, the neighbour's rights apply.
    fn relay_rights(&self, hop: PeerId, from: ShortName) -> Option<Rights> {
        let owner = match self.by_short_name.get(&(self.peers[hop].team, from)) {
            // Members of a team relay nothing: a packet is from the member itself.
            None if self.peers[hop].team.is_some() => return None,
            Some(&sender) if sender != hop => {
                let links = self.peers[sender].links.iter();
                let mut vias = links.map(|id| self.links[*id].via);
                vias.any(|via| via == Some(hop)).then_some(sender)?
            }
            _ => hop,
        };
        Some(self.peers[owner].rights).filter(|rights| rights.relayed)
    }

    /// The next hop of packets to a peer, never the neighbour that sent them: the first, in the
    /// order of the configuration, that is heard; otherwise the first whose link is up.
    fn next_hop(&mut self, peer: PeerId, came_from: PeerId) -> Result<PeerId, RefusedPacket> {
        let links = self.peers[peer].links.iter().map(|id| &self.links[*id]);
        let hops: Vec<_> =
            links.map(|link| link.via.unwrap_or(peer)).filter(|hop| *hop != came_from).collect();
        if hops.is_empty() {
            self.notice(Notice::RelayLoop { name: self.peers[came_from].name.clone() });
        }
        let is_up = |hop: &&PeerId| self.direct_links(**hop).any(|link| link.up);
        let heard = hops.iter().find(|hop| self.is_heard(**hop));
        heard.or_else(|| hops.iter().find(is_up)).copied().ok_or(RefusedPacket::NoRoute)
    }
}
