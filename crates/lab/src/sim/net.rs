// SPDX-License-Identifier: Apache-2.0
//! Stations with IP and protocol endpoints on a medium, in virtual time.
//!
//! Neighbour resolution is absent: stations know each other's link addresses. This favours the
//! first packet after an outage, which a real kernel may hold back for up to a second. `air`
//! includes neighbour resolution, because it uses the real kernel.

mod judge;
mod packet;

pub use packet::{Body, HostEvent, Packet, Parcel, Piece, RepeatedFrame};

use super::attacker::Attacker;
use super::gate::{Departure, Gate, Passage};
use super::tcp::{Part, Segment};
use crate::rig::staging::{DATAGRAM_BYTES, address};
use packet::Charge;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::rc::Rc;
use tautline_medium::{Frame, Medium, Motion, Nanos, NetworkId, Output, StationId};
use tautline_proto::wire::VERSION;
use tautline_proto::{
    Arrival, Class, Ecn, Endpoint, Instant, LinkConfig, LinkId, PeerId, RadioConfig, RadioId,
    Transmit,
};

/// Bytes of the IPv4 and UDP headers.
pub const HEADER_BYTES: usize = 28;
/// UDP port of every node, before a network changes it.
pub const PORT: u16 = 18470;
/// First bytes of a handshake initiation: magic, version and kind 0 (spec/protocol.md).
pub const INITIATION: [u8; 2] = [b'T', VERSION << 4];
/// DSCP and ECN field of packets without either.
const UNMARKED: (u8, Ecn) = (0, Ecn::NotCapable);
/// Maximum number of hops; a routing loop would otherwise keep a packet forever.
const MAX_HOPS: u8 = 64;
/// Maximum number of queued datagrams to the hostile station.
const MAX_CAPTURED: usize = 64;

#[derive(Debug)]
struct Interface {
    network: NetworkId,
    radio: tautline_medium::RadioId,
    address: Ipv4Addr,
    /// UDP port at which the node is reached through this interface.
    port: u16,
}

struct Host {
    interfaces: Vec<Interface>,
    /// Next hop by destination, for destinations that are not neighbours.
    routes: BTreeMap<Ipv4Addr, Ipv4Addr>,
    node: Option<Node>,
    /// Restart counter of the node: packets of an earlier start are not charged to a later start.
    life: u32,
}

struct Node {
    endpoint: Endpoint,
    in_flight: BTreeMap<(LinkId, Class), usize>,
    armed: Option<Nanos>,
}

/// The simulated network, see the module.
pub struct Net {
    now: Nanos,
    /// The radio medium.
    pub medium: Medium<Parcel>,
    hosts: Vec<Host>,
    owners: BTreeMap<Ipv4Addr, (StationId, tautline_medium::RadioId)>,
    by_radio: Vec<(StationId, usize)>,
    timers: BinaryHeap<Reverse<(Nanos, usize)>>,
    happened: VecDeque<HostEvent>,
    /// Disturbances of datagrams between medium and endpoint, if any.
    pub gate: Option<Gate>,
    /// An attacker that hears all datagrams, if any.
    pub attacker: Option<Attacker>,
    /// Addresses that more than one host has had: a packet to them may be for another host.
    reused_addresses: BTreeSet<Ipv4Addr>,
    /// Whether datagrams may contain relayed ones of nodes that have ended since.
    pub relays: bool,
    /// A wrong reaction of an endpoint to a datagram, in words.
    pub misjudged: Option<String>,
    /// Handshake initiations that endpoints have sent.
    pub initiations: u64,
    /// The frames that were transmitted more than once, if they are to be kept.
    pub repeated: Option<Vec<RepeatedFrame>>,
    /// Longest time of a datagram from endpoint to endpoint; 0 without a [`Gate`].
    pub worst_transit: Nanos,
    /// A station without a node. Its own packets are sent with [`Net::inject`].
    pub hostile: Option<StationId>,
    /// The newest datagrams that reached `hostile`, with their senders.
    pub captured: VecDeque<(StationId, Vec<u8>)>,
    /// Datagrams that the gate delays, by time and order: the host, its interface, the packet.
    held: BTreeMap<(Nanos, u64), (StationId, usize, Parcel)>,
    held_order: u64,
}

/// Converts the medium's time to the protocol's.
pub fn instant(now: Nanos) -> Instant {
    Instant(now)
}

impl Net {
    /// Creates a network without hosts; `medium` already has its networks.
    pub fn new(medium: Medium<Parcel>) -> Self {
        Self {
            now: 0,
            medium,
            hosts: Vec::new(),
            owners: BTreeMap::new(),
            by_radio: Vec::new(),
            timers: BinaryHeap::new(),
            happened: VecDeque::new(),
            gate: None,
            attacker: None,
            reused_addresses: BTreeSet::new(),
            relays: false,
            misjudged: None,
            initiations: 0,
            repeated: None,
            worst_transit: 0,
            hostile: None,
            captured: VecDeque::new(),
            held: BTreeMap::new(),
            held_order: 0,
        }
    }

    /// Returns the current time.
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// Adds a host with a radio on each of `networks`.
    pub fn add_host(
        &mut self,
        motion: Motion,
        networks: &[NetworkId],
        queue_packets: usize,
    ) -> StationId {
        let id = self.medium.add_station(motion);
        let mut interfaces = Vec::new();
        for &network in networks {
            let radio = self.medium.add_radio(id, network, queue_packets);
            let address = address(network.0, id.0);
            self.owners.insert(address, (id, radio));
            self.by_radio.push((id, interfaces.len()));
            interfaces.push(Interface { network, radio, address, port: PORT });
        }
        let routes = BTreeMap::new();
        self.hosts.push(Host { interfaces, routes, node: None, life: 0 });
        id
    }

    /// Routes packets of `host` to `destination` via `next`; both are addresses of other hosts.
    pub fn add_route(&mut self, host: StationId, destination: Ipv4Addr, next: Ipv4Addr) {
        self.hosts[host.0].routes.insert(destination, next);
    }

    /// Returns the address of a host's node on a network.
    pub fn address(&self, host: StationId, network: NetworkId) -> Option<SocketAddrV4> {
        let found = self.hosts[host.0].interfaces.iter().find(|i| i.network == network)?;
        Some(SocketAddrV4::new(found.address, found.port))
    }

    /// Whether a host has this address now.
    pub fn is_taken(&self, address: Ipv4Addr) -> bool {
        self.owners.contains_key(&address)
    }

    /// Changes the address of a host on a network; routes follow. The node is not informed.
    pub fn readdress(&mut self, host: StationId, network: NetworkId, to: SocketAddrV4) {
        let found = self.hosts[host.0].interfaces.iter_mut().find(|i| i.network == network);
        let Some(interface) = found else { return };
        interface.port = to.port();
        let (old, new) = (std::mem::replace(&mut interface.address, *to.ip()), *to.ip());
        let radio = interface.radio;
        if old == new {
            return;
        }
        self.owners.remove(&old);
        self.owners.insert(new, (host, radio));
        for host in &mut self.hosts {
            let routes = std::mem::take(&mut host.routes).into_iter();
            let follow = |address| if address == old { new } else { address };
            host.routes = routes.map(|(to, next)| (follow(to), follow(next))).collect();
        }
    }

    /// Marks an address that another host had before: packets for that host may still arrive.
    pub fn mark_reused_address(&mut self, address: Ipv4Addr) {
        self.reused_addresses.insert(address);
    }

    /// Returns the interface by which packets for `destination` leave a host, and the receiving
    /// radio.
    fn next_hop(
        &self,
        host: StationId,
        destination: Ipv4Addr,
    ) -> Option<(usize, tautline_medium::RadioId)> {
        let host = &self.hosts[host.0];
        let next = host.routes.get(&destination).unwrap_or(&destination);
        let (_, receiver) = *self.owners.get(next)?;
        let (_, network) = self.medium.radio(receiver);
        let interface = host.interfaces.iter().position(|i| i.network == network)?;
        Some((interface, receiver))
    }

    /// Starts (or restarts) a host's Tautline node, without peers or links.
    pub fn start_node(
        &mut self,
        host: StationId,
        mut endpoint: Endpoint,
        radio: impl Fn(NetworkId) -> RadioConfig,
    ) {
        for interface in &self.hosts[host.0].interfaces {
            endpoint.add_radio(radio(interface.network));
        }
        let state = &mut self.hosts[host.0];
        state.life += 1;
        state.node = Some(Node { endpoint, in_flight: BTreeMap::new(), armed: None });
    }

    /// Adds a link of a host's node to a peer's address, through the interface that routes select.
    pub fn add_link(&mut self, host: StationId, peer: PeerId, remote: Ipv4Addr) -> Option<LinkId> {
        let (interface, _) = self.next_hop(host, remote)?;
        let network = self.hosts[host.0].interfaces[interface].network;
        self.add_link_on(network, host, peer, Some(SocketAddrV4::new(remote, PORT)))
    }

    /// Adds a link of a host's node to a peer on a network. A link without an address waits for a
    /// handshake initiation.
    pub fn add_link_on(
        &mut self,
        network: NetworkId,
        host: StationId,
        peer: PeerId,
        remote: Option<SocketAddrV4>,
    ) -> Option<LinkId> {
        let interfaces = &self.hosts[host.0].interfaces;
        let interface = interfaces.iter().position(|i| i.network == network)?;
        let now = instant(self.now);
        let config = LinkConfig {
            remote: remote.map(SocketAddr::V4),
            datagram_bytes: DATAGRAM_BYTES,
            header_bytes: HEADER_BYTES,
            metered: false,
        };
        let endpoint = self.endpoint(host)?;
        let link = endpoint.peer_mut(peer).add_link(now, RadioId(interface as u32), config).ok();
        self.drain(host);
        link
    }

    /// Returns a host's endpoint. [`Net::drain`] takes its outputs.
    pub fn endpoint(&mut self, host: StationId) -> Option<&mut Endpoint> {
        self.hosts[host.0].node.as_mut().map(|node| &mut node.endpoint)
    }

    /// Returns a host's endpoint for reading.
    pub fn view(&self, host: StationId) -> Option<&Endpoint> {
        self.hosts[host.0].node.as_ref().map(|node| &node.endpoint)
    }

    /// Runs until an occurrence that applications see, or until `end`.
    pub fn run(&mut self, end: Nanos) -> Option<HostEvent> {
        loop {
            if let Some(happened) = self.happened.pop_front() {
                return Some(happened);
            }
            let timer = self.timers.peek().map(|Reverse((at, _))| *at);
            let medium = self.medium.poll_timeout();
            let held = self.held.first_key_value().map(|((at, _), _)| *at);
            let due = timer.into_iter().chain(medium).chain(held).min();
            let Some(next) = due.filter(|at| *at <= end) else {
                self.now = self.now.max(end);
                return None;
            };
            self.now = self.now.max(next);
            if medium.is_some_and(|at| at <= self.now) {
                self.medium.handle_timeout(self.now);
                self.take_outputs();
            } else if held.is_some_and(|at| at <= self.now) {
                self.release_held();
            } else if let Some(Reverse((at, host))) = self.timers.pop() {
                self.on_timer(at, StationId(host));
            }
        }
    }

    fn on_timer(&mut self, at: Nanos, host: StationId) {
        let now = instant(self.now);
        let Some(node) = &mut self.hosts[host.0].node else { return };
        if node.armed == Some(at) {
            node.armed = None;
            node.endpoint.handle_timeout(now);
            self.drain(host);
        }
    }

    fn take_outputs(&mut self) {
        while let Some(output) = self.medium.poll_output() {
            match output {
                Output::Sent { at, radio, attempts, payload: parcel, .. } => {
                    if attempts > 1
                        && let Some(repeated) = &mut self.repeated
                    {
                        repeated.push(RepeatedFrame {
                            at,
                            station: self.by_radio[radio.0].0,
                            attempts,
                        });
                    }
                    self.uncharge(&parcel);
                    if let Some(Charge::Link { host, .. }) = parcel.charged {
                        self.drain(host);
                    }
                }
                Output::Delivered { to, payload: parcel, marked, .. } => {
                    let (host, interface) = self.by_radio[to.0];
                    let marked = parcel.marked || marked;
                    self.receive(host, interface, Parcel { marked, ..parcel });
                }
            }
        }
    }

    fn uncharge(&mut self, parcel: &Parcel) {
        match parcel.charged {
            None => {}
            Some(Charge::Flow(flow)) => {
                self.happened.push_back(HostEvent::Left(flow, parcel.packet.ip_bytes));
            }
            Some(Charge::Link { host, link, class, life }) if life == self.hosts[host.0].life => {
                let left = parcel.packet.ip_bytes as usize;
                self.change_in_flight(host, (link, class), |bytes| bytes.saturating_sub(left));
            }
            Some(Charge::Link { .. }) => {}
        }
    }

    fn drop_parcel(&mut self, parcel: &Parcel) {
        match parcel.charged {
            Some(Charge::Flow(flow)) => {
                self.happened.push_back(HostEvent::Dropped(flow, parcel.packet.ip_bytes));
            }
            _ => self.uncharge(parcel),
        }
    }

    fn change_in_flight(
        &mut self,
        host: StationId,
        (link, class): (LinkId, Class),
        change: impl FnOnce(usize) -> usize,
    ) {
        let now = instant(self.now);
        let Some(node) = &mut self.hosts[host.0].node else { return };
        let bytes = node.in_flight.entry((link, class)).or_default();
        *bytes = change(*bytes);
        node.endpoint.link_mut(link).handle_in_flight(now, class, *bytes);
    }

    fn receive(&mut self, host: StationId, interface: usize, parcel: Parcel) {
        let to = parcel.packet.to;
        let mine = self.hosts[host.0].interfaces.iter().find(|i| i.address == *to.ip());
        let Some(mine) = mine else {
            let forwarded = Parcel { charged: None, hops: parcel.hops + 1, ..parcel };
            self.put_on_radio(host, forwarded);
            return;
        };
        if mine.port != to.port() {
            return;
        }
        match &parcel.packet.body {
            Body::Piece(piece) => self.happened.push_back(HostEvent::Piece(host, *piece)),
            Body::Segment(segment) => self.happened.push_back(HostEvent::Segment(*segment)),
            Body::Tautline(_) => self.pass_gate(host, interface, parcel),
        }
    }

    /// Passes a datagram to the host's endpoint, as often and as late as the gate decides.
    fn pass_gate(&mut self, host: StationId, interface: usize, parcel: Parcel) {
        let network = self.hosts[host.0].interfaces[interface].network;
        let passage = Passage { network, from: parcel.packet.sender, to: host };
        let Some(gate) = &mut self.gate else {
            return self.hand_over(host, interface, &parcel.packet, parcel.marked);
        };
        for delay in gate.delays(self.now, &passage) {
            self.held_order += 1;
            let key = (self.now + delay, self.held_order);
            self.held.insert(key, (host, interface, parcel.clone()));
        }
    }

    fn release_held(&mut self) {
        if let Some((_, (host, interface, parcel))) = self.held.pop_first() {
            self.note_transit(host, &parcel.packet);
            let before = self.count_attack_drops(host);
            self.hand_over(host, interface, &parcel.packet, parcel.marked);
            self.check_genuine(host, before, &parcel.packet);
        }
    }

    /// Notes the time of a datagram from endpoint to endpoint; an attacker may have kept it meanwhile.
    fn note_transit(&mut self, host: StationId, packet: &Packet) {
        let transit = self.now - packet.emitted;
        self.worst_transit = self.worst_transit.max(transit);
        self.happened.push_back(HostEvent::Datagram(host, transit));
    }

    fn hand_over(&mut self, host: StationId, interface: usize, packet: &Packet, marked: bool) {
        let Body::Tautline(datagram) = &packet.body else { return };
        let from = SocketAddr::V4(packet.from);
        let now = instant(self.now);
        if self.hostile == Some(host) {
            if self.captured.len() == MAX_CAPTURED {
                self.captured.pop_front();
            }
            self.captured.push_back((packet.sender, datagram.clone()));
        }
        let Some(node) = &mut self.hosts[host.0].node else { return };
        let ecn = if marked { Ecn::Marked } else { packet.ecn };
        let (radio, arrival) = (RadioId(interface as u32), Arrival { ecn, ..Arrival::default() });
        node.endpoint.handle_received_packet(now, arrival, radio, from, datagram);
        self.drain(host);
    }

    /// Passes a packet to the radio of its route. A packet without a route or with a full queue is
    /// dropped, together with its charge.
    fn put_on_radio(&mut self, host: StationId, parcel: Parcel) {
        let hop = self.next_hop(host, *parcel.packet.to.ip()).filter(|_| parcel.hops < MAX_HOPS);
        let Some((interface, receiver)) = hop else { return self.drop_parcel(&parcel) };
        let radio = self.hosts[host.0].interfaces[interface].radio;
        let Packet { ip_bytes: bytes, dscp, ecn, .. } = *parcel.packet;
        let ecn_capable = ecn != Ecn::NotCapable;
        let frame = Frame { to: Some(receiver), bytes, dscp, ecn_capable, payload: parcel };
        if let Err(full) = self.medium.send(self.now, radio, frame) {
            self.drop_parcel(&full.0.payload);
        }
    }

    /// Takes the packets and events of a host's endpoint, and sets its timer. Call it after any use
    /// of [`Net::endpoint`] that changes the endpoint.
    pub fn drain(&mut self, host: StationId) {
        loop {
            let now = instant(self.now);
            let Some(node) = &mut self.hosts[host.0].node else { return };
            let Some(transmit) = node.endpoint.poll_transmit(now) else { break };
            self.transmit(host, transmit);
        }
        let Some(node) = &mut self.hosts[host.0].node else { return };
        while let Some(event) = node.endpoint.poll_event() {
            self.happened.push_back(HostEvent::Event(host, event));
        }
        let due = node.endpoint.poll_timeout().map(|Instant(at)| at.max(self.now));
        if let Some(at) = due.filter(|at| *at != Nanos::MAX && node.armed != Some(*at)) {
            self.timers.push(Reverse((at, host.0)));
        }
        node.armed = due;
    }

    fn transmit(&mut self, host: StationId, transmit: Transmit) {
        let Transmit { link, remote, datagram, priority, class, dscp, ecn, .. } = transmit;
        let SocketAddr::V4(to) = remote else { return };
        let ip_bytes = datagram.len() + HEADER_BYTES;
        if priority.is_some() {
            self.show_gate(host, link, class, ip_bytes);
        }
        if let Some(link) = link {
            self.change_in_flight(host, (link, class), |bytes| bytes + ip_bytes);
        }
        self.initiations += u64::from(datagram.starts_with(&INITIATION));
        let life = self.hosts[host.0].life;
        let charged = link.map(|link| Charge::Link { host, link, class, life });
        let body = Body::Tautline(datagram);
        self.emit(host, to, ip_bytes as u32, (dscp, ecn), body, charged);
    }

    /// Shows the gate each packet with messages, and the bytes that the kernel holds before it.
    fn show_gate(&mut self, host: StationId, link: Option<LinkId>, class: Class, ip_bytes: usize) {
        let Some(gate) = &mut self.gate else { return };
        let (Some(link), Some(node)) = (link, &self.hosts[host.0].node) else { return };
        let Some(radio) = node.endpoint.link(link).map(|view| view.radio) else { return };
        let counted = node.in_flight.iter().filter(|((link, _), _)| {
            let view = node.endpoint.link(*link);
            view.is_some_and(|view| view.radio == radio && view.up && !view.stalled)
        });
        let ahead = counted.clone().any(|((_, it), bytes)| *it >= class && *bytes > 0);
        let in_flight = if ahead { counted.map(|(_, bytes)| bytes).sum() } else { 0 };
        let limit = node.endpoint.radio(radio).in_flight_limit_bytes;
        gate.check_departure(&Departure { host, in_flight, limit, ip_bytes });
    }

    /// Sends a datagram of the hostile station.
    pub fn inject(&mut self, host: StationId, to: SocketAddrV4, datagram: Vec<u8>) {
        let ip_bytes = (datagram.len() + HEADER_BYTES) as u32;
        self.emit(host, to, ip_bytes, UNMARKED, Body::Tautline(datagram), None);
    }

    /// Sends a part of a plain UDP message to an address. It is charged to the flow, which gets
    /// [`HostEvent::Left`], unless it is an echo.
    pub fn send_piece(
        &mut self,
        host: StationId,
        to: Ipv4Addr,
        payload_bytes: u32,
        dscp: u8,
        piece: Piece,
    ) {
        let charged = (!piece.returning).then_some(Charge::Flow(piece.flow));
        let ip_bytes = payload_bytes + HEADER_BYTES as u32;
        let to = SocketAddrV4::new(to, PORT);
        self.emit(host, to, ip_bytes, (dscp, Ecn::NotCapable), Body::Piece(piece), charged);
    }

    /// Sends a TCP packet to an address. Data is charged to its connection, which gets
    /// [`HostEvent::Left`] or [`HostEvent::Dropped`].
    pub fn send_segment(&mut self, host: StationId, to: Ipv4Addr, segment: Segment) {
        let is_data = matches!(segment.part, Part::Data { .. });
        let charged = is_data.then_some(Charge::Flow(segment.connection));
        let (to, bytes) = (SocketAddrV4::new(to, PORT), segment.part.ip_bytes());
        self.emit(host, to, bytes, UNMARKED, Body::Segment(segment), charged);
    }

    fn emit(
        &mut self,
        host: StationId,
        to: SocketAddrV4,
        ip_bytes: u32,
        (dscp, ecn): (u8, Ecn),
        body: Body,
        charged: Option<Charge>,
    ) {
        let nowhere = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);
        let from = self.next_hop(host, *to.ip()).map_or(nowhere, |(interface, _)| {
            let interface = &self.hosts[host.0].interfaces[interface];
            SocketAddrV4::new(interface.address, interface.port)
        });
        let (sender, life, emitted) = (host, self.hosts[host.0].life, self.now);
        let packet = Rc::new(Packet { sender, life, from, to, ip_bytes, dscp, ecn, emitted, body });
        let receiver = self.owners.get(to.ip()).map(|(receiver, _)| *receiver);
        if let (Some(attacker), Some(receiver)) = (&mut self.attacker, receiver) {
            attacker.record(receiver, &packet);
        }
        self.put_on_radio(host, Parcel { packet, hops: 0, marked: false, charged });
    }
}
