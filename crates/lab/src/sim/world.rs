// SPDX-License-Identifier: Apache-2.0
//! A run in virtual time: hosts, their flows and control loops, and scheduled changes.

use super::control_loop::ControlLoop;
use super::flows::{FlowPlan, Flows};
use super::net::{HostEvent, Net, instant};
use crate::rig::staging::Change;
use anyhow::Context;
use fastrand::Rng;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use tautline_medium::{Nanos, StationId};
use tautline_proto::{Config, Endpoint, Event, PeerId, RadioConfig, Rate, Rights, SecretKey};

/// Maximum delay of a publisher's timer, drawn uniformly. Without it all stations would publish in
/// the same nanosecond and collide; real stations do not.
const MOST_LATE: Nanos = 200_000;

/// Pause of a writer whose packets were dropped.
const WRITER_PAUSE: Nanos = 1_000_000;

enum Due {
    Publish(usize),
    Refill(usize),
    Timer(usize),
    Sample(usize),
    Change(Change),
}

/// The world, see the module.
pub struct World {
    /// Hosts and medium.
    pub net: Net,
    /// Flows of the hosts.
    pub flows: Flows,
    /// Control loops.
    pub loops: Vec<ControlLoop>,
    /// Scheduled work by time, then in the order of scheduling.
    due: BTreeMap<(Nanos, u64), Due>,
    order: u64,
    /// Time at which a flow's writer resumes after drops.
    refills: BTreeMap<usize, Nanos>,
    random: Rng,
    radio: RadioConfig,
    /// Fixed rates of the radios by network, which replace the rate in `radio`; empty if there are
    /// none.
    pub network_rates: Vec<u64>,
    /// Peer number of the second host at the first, for hosts with links between them.
    peers: BTreeMap<(StationId, StationId), PeerId>,
}

impl World {
    /// Creates a world without load. `radio` configures every interface of Tautline nodes.
    pub fn new(net: Net, seed: u64, radio: RadioConfig) -> Self {
        Self {
            net,
            flows: Flows::default(),
            loops: Vec::new(),
            due: BTreeMap::new(),
            order: 0,
            refills: BTreeMap::new(),
            random: Rng::with_seed(seed),
            radio,
            network_rates: Vec::new(),
            peers: BTreeMap::new(),
        }
    }

    /// Starts a Tautline node on a host.
    pub fn start_node(&mut self, host: StationId, config: Config) -> anyhow::Result<()> {
        let mut random = self.random.fork();
        let endpoint = Endpoint::new(config, Box::new(move || random.u64(..)))?;
        let radio = &self.radio;
        let rates = &self.network_rates;
        self.net.start_node(host, endpoint, |network| {
            let rate = rates.get(network.0).map_or(radio.rate, |bps| Rate::Fixed(*bps));
            RadioConfig { rate, ..radio.clone() }
        });
        Ok(())
    }

    /// Makes two nodes peers, with a link for each pair of addresses: that of `a`, then that of
    /// `b`.
    pub fn join(
        &mut self,
        a: (StationId, &str),
        b: (StationId, &str),
        links: &[[Ipv4Addr; 2]],
    ) -> anyhow::Result<()> {
        self.meet(a.0, b, links.iter().map(|[_, there]| *there))?;
        self.meet(b.0, a, links.iter().map(|[here, _]| *here))
    }

    fn meet(
        &mut self,
        host: StationId,
        other: (StationId, &str),
        addresses: impl Iterator<Item = Ipv4Addr>,
    ) -> anyhow::Result<()> {
        let peer = self.know(host, other)?;
        for address in addresses {
            self.net.add_link(host, peer, address);
        }
        Ok(())
    }

    /// Makes `other` a peer of a node, through the neighbour `via`, which is a peer already.
    pub fn meet_through(
        &mut self,
        host: StationId,
        other: (StationId, &str),
        via: StationId,
    ) -> anyhow::Result<()> {
        let peer = self.know(host, other)?;
        let via = self.peers.get(&(host, via)).copied();
        let via = via.with_context(|| format!("host {} has no such neighbour", host.0))?;
        let now = instant(self.net.now());
        self.endpoint(host)?.peer_mut(peer).add_relayed_link(now, via)?;
        self.net.drain(host);
        Ok(())
    }

    /// Lets a node relay for all its peers.
    pub fn allow_relaying(&mut self, host: StationId) -> anyhow::Result<()> {
        let endpoint = self.endpoint(host)?;
        let peers: Vec<PeerId> = endpoint.peers().collect();
        for peer in peers {
            endpoint.peer_mut(peer).set_rights(Rights { relayed: true, max_priority: u8::MAX });
        }
        Ok(())
    }

    fn know(
        &mut self,
        host: StationId,
        (other, name): (StationId, &str),
    ) -> anyhow::Result<PeerId> {
        let peer = self.endpoint(host)?.add_peer(name, SecretKey::insecure(name).public())?;
        self.peers.insert((host, other), peer);
        Ok(peer)
    }

    fn endpoint(&mut self, host: StationId) -> anyhow::Result<&mut Endpoint> {
        self.net.endpoint(host).with_context(|| format!("host {} has no node", host.0))
    }

    /// Adds a flow and returns its number. The ends of a flow over Tautline must be
    /// [joined](World::join).
    pub fn add_flow(&mut self, plan: FlowPlan) -> usize {
        let ends = [(plan.from, plan.to), (plan.to, plan.from)];
        let peers = ends.map(|ends| self.peers.get(&ends).copied());
        let number = self.flows.all.len();
        self.flows.add(&mut self.net, plan, peers[0].zip(peers[1]).map(|(a, b)| [a, b]));
        self.plan_publication(number);
        number
    }

    /// Adds a control loop; its flows must exist.
    pub fn add_loop(&mut self, control_loop: ControlLoop) {
        let (number, start) = (self.loops.len(), control_loop.start());
        self.loops.push(control_loop);
        self.plan(start, Due::Sample(number));
    }

    /// Schedules a change of the medium.
    pub fn change_at(&mut self, at: Nanos, change: Change) {
        self.plan(at, Due::Change(change));
    }

    fn plan(&mut self, at: Nanos, due: Due) {
        self.order += 1;
        self.due.insert((at, self.order), due);
    }

    fn plan_publication(&mut self, flow: usize) {
        if let Some(at) = self.flows.all[flow].next_due() {
            let late = self.random.u64(0..=MOST_LATE);
            self.plan(at + late, Due::Publish(flow));
        }
    }

    /// Runs until `end`.
    pub fn run(&mut self, end: Nanos) {
        loop {
            let next = self.due.first_key_value().map(|((at, _), _)| *at).filter(|at| *at <= end);
            while let Some(happened) = self.net.run(next.unwrap_or(end)) {
                self.react(happened);
            }
            let Some((_, due)) = next.and_then(|_| self.due.pop_first()) else { return };
            self.carry_out(due);
        }
    }

    fn carry_out(&mut self, due: Due) {
        match due {
            Due::Publish(flow) => {
                self.flows.publish(&mut self.net, flow);
                self.pump(flow);
                self.plan_publication(flow);
            }
            Due::Timer(flow) => {
                self.flows.plain_ros_timer(&mut self.net, flow);
                self.pump(flow);
            }
            Due::Refill(flow) => self.flows.fill_socket(&mut self.net, flow),
            Due::Sample(number) => {
                if let Some(next) = self.loops[number].sample(&mut self.net, &mut self.flows) {
                    self.plan(next, Due::Sample(number));
                }
            }
            Due::Change(change) => {
                let now = self.net.now();
                change.apply(now, &mut self.net.medium);
            }
        }
    }

    /// Sends what a connection of plain ROS has to send.
    fn pump(&mut self, flow: usize) {
        if let Some(at) = self.flows.pump_plain_ros(&mut self.net, flow) {
            self.plan(at, Due::Timer(flow));
        }
    }

    fn react(&mut self, happened: HostEvent) {
        match happened {
            HostEvent::Left(flow, _) | HostEvent::Dropped(flow, _)
                if self.flows.segment_left(flow) =>
            {
                // Packets that a full queue drops are sent again by timers and acknowledgements.
                if matches!(happened, HostEvent::Left(..)) {
                    self.pump(flow);
                }
            }
            HostEvent::Segment(segment) => {
                let flow = self.flows.segment(&mut self.net, segment);
                self.pump(flow);
            }
            HostEvent::Left(flow, ip_bytes) => {
                self.flows.on_transmitted(&mut self.net, flow, ip_bytes)
            }
            HostEvent::Dropped(flow, ip_bytes) => {
                self.flows.on_dropped(flow, ip_bytes);
                let at = self.net.now() + WRITER_PAUSE;
                if self.refills.insert(flow, at).is_none_or(|before| before < self.net.now()) {
                    self.plan(at, Due::Refill(flow));
                }
            }
            HostEvent::Piece(host, piece) => {
                let complete = self.flows.piece(&mut self.net, host, piece);
                self.on_message(complete);
            }
            HostEvent::Event(host, event) => self.react_to_event(host, event),
            HostEvent::Datagram(..) => {}
        }
    }

    fn react_to_event(&mut self, host: StationId, event: Event) {
        match event {
            Event::Offered { peer, channel, topic, .. } => {
                self.flows.on_offered(&mut self.net, host, peer, channel, &topic);
            }
            Event::Message { peer, channel, message } => {
                let arrived = self.flows.message(&mut self.net, host, (peer, channel), &message);
                self.on_message(arrived);
            }
            _ => {}
        }
    }

    fn on_message(&mut self, message: Option<(usize, u64)>) {
        let Some(message) = message else { return };
        for control_loop in &mut self.loops {
            control_loop.on_arrival(&mut self.net, &mut self.flows, message);
        }
    }
}
