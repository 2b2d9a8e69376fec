// SPDX-License-Identifier: Apache-2.0
//! Packets for others, and others for us: two nodes that cannot hear each other
//! have a session all the same, whose packets a third (or a chain) passes on.
//!
//! What passes between the two is sealed for them alone; each hop is a session of
//! its own, in which such a packet is a message like others: it waits by priority,
//! expires, is repaired. A link through a relay is a link with a radio of its own,
//! whose budget is what may wait on the way: the relay tells what it holds, so that
//! the queue stays where the newest still wins, with the sender.

use crate::address::Place;
use crate::class::Class;
use crate::config::{LinkConfig, MIN_DATAGRAM, RadioConfig, Rate};
use crate::delivery::inbox::Received;
use crate::delivery::outbox::{Flow, RelayOrigin, RelayedPacket, Urgency};
use crate::endpoint::events::Notice;
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

/// Relays that a packet passes at most; a route in a circle ends there.
const HOPS: u8 = 8;
/// What a hop puts around a packet that it carries: 29 of its own packet, type, length, priority,
/// number, flags and age of the frame, 14 with a piece's place, and 8 of [`RelayHeader`].
const HOP_BYTES: usize = 64;
/// An acknowledgement, a heartbeat or a call that is older says nothing of the way.
const REPORT_LIFE: Duration = Duration::from_secs(1);
/// That more waits than before is told after so long, with an acknowledgement if there is one.
const BACKLOG_REPORT_DELAY: Duration = Duration::from_millis(10);
/// What is told of what waits is told again after so long, should it be lost.
const BACKLOG_REPORT_REPEATS: [Duration; 2] =
    [Duration::from_millis(30), Duration::from_millis(150)];

/// A neighbour that reports more has made it up; sums of so much cannot overflow.
const MAX_REPORTED_BACKLOG: u64 = u32::MAX as u64;

/// What a peer may do here beyond its own topics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rights {
    /// Its packets for others are passed on.
    pub relayed: bool,
    /// At this priority at most.
    pub max_priority: u8,
}

impl Default for Rights {
    fn default() -> Self {
        Self { relayed: false, max_priority: u8::MAX }
    }
}

/// What is known of packets of others beside those that wait here.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RelayRoute {
    /// The neighbour that they go to. Only its reports count.
    next: PeerId,
    /// Bytes that wait farther on, as that neighbour reports.
    beyond: u64,
}

/// What a neighbour is told of what is on the way from here.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct BacklogReport {
    bytes: u64,
    /// What it was told last, and how often.
    backlog_reports: u64,
    times: usize,
    /// When it is to be told.
    due: Option<Instant>,
}

impl BacklogReport {
    /// What was told to an earlier entry is not known any more.
    fn is_news(&self) -> bool {
        self.times == 0 || self.bytes != self.backlog_reports
    }

    fn change(&mut self, now: Instant, bytes: u64) {
        let pending = self.due.filter(|_| self.is_news());
        self.bytes = bytes;
        self.due = if self.is_news() {
            // That more waits, its sender knows; that there is room, it waits for.
            let due = if bytes < self.backlog_reports { now } else { now + BACKLOG_REPORT_DELAY };
            Some(pending.map_or(due, |before| before.min(due)))
        } else {
            self.again_at(now)
        };
    }

    fn on_reported(&mut self, now: Instant) {
        self.times = if self.is_news() { 1 } else { self.times + 1 };
        self.backlog_reports = self.bytes;
        self.due = self.again_at(now);
    }

    /// Should it be lost.
    fn again_at(&self, now: Instant) -> Option<Instant> {
        let wait = BACKLOG_REPORT_REPEATS.get(self.times.checked_sub(1)?)?;
        Some(now + *wait)
    }
}

/// Setting up.
impl Endpoint {
    /// Adds a link to a peer through another peer.
    pub fn add_relayed_link(
        &mut self,
        now: Instant,
        peer: PeerId,
        via: PeerId,
    ) -> Result<LinkId, SetupError> {
        // What carries its packets marks them.
        let (rate, marking) = (Rate::BackPressure, None);
        let config = RadioConfig { rate, in_flight_bytes: WINDOW, marking };
        let radio = self.take_vacant_radio(config);
        self.radios[radio].make_relayed(WINDOW);
        let config = LinkConfig { remote: None, datagram_bytes: MIN_DATAGRAM, header_bytes: 0 };
        let id = self.add_link(now, peer, radio, config)?;
        let end = self.peers[peer].short_name;
        let link = &mut self.links[id];
        link.via = Some(via);
        link.controller = None;
        link.sent_packets = link.sent_packets.successor(true);
        link.remote = Some(Place::Relay { hop: via, end });
        Ok(id)
    }

    /// Says what a peer may do here.
    pub fn set_rights(&mut self, peer: PeerId, rights: Rights) {
        self.peers[peer].rights = rights;
    }

    /// Packets carried by way of a peer, of others and our own to nodes beyond it: how many, and
    /// what became of them.
    pub fn relayed(&self, peer: PeerId) -> OutStats {
        self.peers[peer].outbox.relayed_stats()
    }

    /// Packets of others alone that were passed on to a peer.
    pub fn forwarded(&self, peer: PeerId) -> Forwarded {
        self.peers[peer].outbox.forwarded()
    }

    /// The links of a peer that lead there without a relay.
    pub(crate) fn direct_links(&self, peer: PeerId) -> impl Iterator<Item = &Link> {
        let links = self.peers[peer].links.iter().map(|id| &self.links[*id]);
        links.filter(|link| link.via.is_none())
    }

    /// Largest datagram of a link now: through a relay, what the way there has room for.
    pub(crate) fn datagram_bytes(&self, id: LinkId) -> usize {
        let link = &self.links[id];
        let Some(hop) = link.via else { return link.config.datagram_bytes };
        let direct = self.direct_links(hop).map(|link| link.config.datagram_bytes);
        direct.min().unwrap_or(MIN_DATAGRAM).saturating_sub(HOP_BYTES).max(MIN_DATAGRAM)
    }
}

/// Out.
impl Endpoint {
    /// Hands a packet of ours to the relay that leads to `end`.
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
        let parcel = RelayedPacket {
            priority,
            payload,
            published: now,
            expires,
            origin,
            is_forwarded_again,
        };
        self.enqueue_relayed(now, hop, parcel);
        self.handed = true;
    }

    /// Queues a packet for the neighbour `hop`.
    fn enqueue_relayed(&mut self, now: Instant, hop: PeerId, parcel: RelayedPacket) {
        let queue_bytes = self.config.queue_bytes;
        let outbox = &mut self.peers[hop].outbox;
        outbox.enqueue_relayed(parcel);
        outbox.enforce_bytes(queue_bytes);
        self.arm_expiry(now, hop);
    }

    /// Tells links and neighbours of what waits on the way, where that has changed.
    pub(crate) fn note_backlogs(&mut self, now: Instant) {
        for id in self.peers.ids() {
            while let Some(origin) = self.peers[id].outbox.pop_backlog_change() {
                match origin {
                    RelayOrigin::Own(id) => self.update_relay_window(now, id),
                    RelayOrigin::For(hop, flow) => self.plan_backlog_report(now, hop, flow),
                }
            }
        }
    }

    fn held(&self, origin: RelayOrigin) -> u64 {
        let held = self.peers.iter().map(|peer| peer.outbox.held(origin));
        held.fold(0, u64::saturating_add)
    }

    /// What is on the way by a link of ours.
    fn update_relay_window(&mut self, now: Instant, id: LinkId) {
        let own = self.held(RelayOrigin::Own(id)) as usize;
        let link = &self.links[id];
        if link.gone {
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
        let bytes = self.held(RelayOrigin::For(hop, flow)).saturating_add(beyond);
        let backlog_reports = &mut self.peers[hop].backlog_reports;
        let entry = backlog_reports.entry(flow).or_default();
        if bytes != entry.bytes || entry.times == 0 {
            entry.change(now, bytes);
        }
        let first = backlog_reports.values().filter_map(|entry| entry.due).min();
        self.timers.set(Timer::Held(hop), first);
    }

    /// A packet that tells a neighbour what waits here, if one is due.
    pub(crate) fn poll_backlog_report(&mut self, now: Instant) -> Option<Transmit> {
        for id in self.peers.ids() {
            let due =
                |backlog_reports: &BacklogReport| backlog_reports.due.is_some_and(|at| at <= now);
            if !self.peers[id].backlog_reports.values().any(due) {
                continue;
            }
            let links = &self.peers[id].links;
            let open = |link: &Link| link.via.is_none() && link.is_heard();
            let up = links.iter().find(|id| open(&self.links[**id])).copied();
            match up {
                Some(link) if self.may_report(link) => return self.report(now, link, false),
                Some(_) => {}
                None => self.peers[id].backlog_reports.clear(),
            }
        }
        None
    }

    /// What is on the way from here of what came by a neighbour, told on any packet to it.
    pub(crate) fn due_backlog_reports(&mut self, now: Instant, hop: PeerId) -> Vec<Held> {
        let neighbour = self.peers[hop].short_name;
        let backlog_reports = &mut self.peers[hop].backlog_reports;
        let mut all = Vec::new();
        // What is new goes with the acknowledgement of what made it so.
        let tell = |it: &BacklogReport| it.due.is_some_and(|at| at <= now || it.is_news());
        for (flow, entry) in backlog_reports.iter_mut().filter(|(_, it)| tell(it)) {
            let from = Some(flow.from).filter(|from| *from != neighbour);
            all.push(Held { to: flow.to, bytes: entry.bytes, from });
            entry.on_reported(now);
        }
        backlog_reports.retain(|_, entry| entry.due.is_some() || entry.bytes > 0);
        let next = backlog_reports.values().filter_map(|entry| entry.due).min();
        self.timers.set(Timer::Held(hop), next);
        all
    }

    /// Packets of others come by `hop` and go to `next`.
    fn note_route(&mut self, hop: PeerId, next: PeerId, flow: Flow) {
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
        if of_hop(&self.routes) >= limits::RELAYED_FLOWS {
            let idle = self.routes.iter().filter(|(key, _)| key.0 == hop);
            let idle = idle.filter(|(_, route)| route.beyond == 0).map(|(key, _)| *key);
            for key in idle.collect::<Vec<_>>() {
                if self.held(RelayOrigin::For(key.0, key.1)) == 0 {
                    self.routes.remove(&key);
                }
            }
        }
        if of_hop(&self.routes) < limits::RELAYED_FLOWS {
            self.routes.insert((hop, flow), RelayRoute { next, beyond: 0 });
        }
    }

    /// A peer is not reached any more, but perhaps through others: nothing passes by it.
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

/// In.
impl Endpoint {
    /// A neighbour tells what is on the way from there.
    pub(crate) fn handle_backlog_report(&mut self, now: Instant, hop: PeerId, held: &Held) {
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

    /// Takes a packet for us or for others that has come whole from `hop`.
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
            let place = Place::Relay { hop, end: from };
            self.receive(now, radio, place, Some(message.age), packet);
            return Ok(());
        };
        let Some(rights) = self.relay_rights(hop, from) else {
            self.notice(Notice::NotRelayed { name: self.peers[hop].name.clone() });
            return Err(RefusedPacket::NotRelayed);
        };
        let Some(&peer) = self.by_short_name.get(&to) else {
            self.notice(Notice::UnknownEnd { name: self.peers[hop].name.clone() });
            return Err(RefusedPacket::NoRoute);
        };
        let next = self.next_hop(peer, hop)?;
        let Some(hops) = header.hops.checked_sub(1) else {
            self.notice(Notice::RelayLoop { name: self.peers[hop].name.clone() });
            return Err(RefusedPacket::RelayLoop);
        };
        let last = self.peers[next].short_name == to;
        let to_told = (!last).then_some(to);
        let onward = RelayHeader { hops, life: header.life, from: Some(from), to: to_told };
        let payload = onward.before(packet);
        let published = now.before(message.age);
        let expires = header.life.map(|life| published + life);
        let priority = priority.min(rights.max_priority);
        let flow = Flow { from, to };
        if self.peers[next].outbox.held_from(hop) >= limits::RELAYED_BYTES {
            return Err(RefusedPacket::Bound);
        }
        self.note_route(hop, next, flow);
        let origin = RelayOrigin::For(hop, flow);
        let parcel = RelayedPacket {
            priority,
            payload,
            published,
            expires,
            origin,
            is_forwarded_again: !last,
        };
        self.enqueue_relayed(now, next, parcel);
        Ok(())
    }

    /// Whether a peer sends packets for others, or others' for us, with any right: by its own, or
    /// because a `via` of the file names it.
    pub(crate) fn may_relay(&self, hop: PeerId) -> bool {
        let named = || self.links.iter().any(|link| link.via == Some(hop));
        self.peers[hop].rights.relayed || named()
    }

    /// The rights of packets for others that `hop` sends and that claim to be from `from`: anyone
    /// can claim that. A peer's own count where it is the neighbour itself, or where the file
    /// names the neighbour as its `via`; of a node that is no peer, the neighbour's.
    fn relay_rights(&self, hop: PeerId, from: ShortName) -> Option<Rights> {
        let owner = match self.by_short_name.get(&from) {
            Some(&sender) if sender != hop => {
                let links = self.peers[sender].links.iter();
                let mut vias = links.map(|id| self.links[*id].via);
                vias.any(|via| via == Some(hop)).then_some(sender)?
            }
            _ => hop,
        };
        Some(self.peers[owner].rights).filter(|rights| rights.relayed)
    }

    /// The neighbour that packets for a peer go to, never where they came from: the first way of
    /// the file that is open, else one where nothing has been heard for a moment.
    fn next_hop(&mut self, peer: PeerId, came_from: PeerId) -> Result<PeerId, RefusedPacket> {
        let ways = self.peers[peer].links.iter().map(|id| &self.links[*id]);
        let onward: Vec<_> =
            ways.map(|link| link.via.unwrap_or(peer)).filter(|hop| *hop != came_from).collect();
        if onward.is_empty() {
            self.notice(Notice::RelayLoop { name: self.peers[came_from].name.clone() });
        }
        let is_up = |hop: &&PeerId| self.direct_links(**hop).any(|link| link.up);
        let open = onward.iter().find(|hop| self.is_heard(**hop));
        open.or_else(|| onward.iter().find(is_up)).copied().ok_or(RefusedPacket::NoRoute)
    }
}
