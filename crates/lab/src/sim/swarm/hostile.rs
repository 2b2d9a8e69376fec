// SPDX-License-Identifier: Apache-2.0
//! An additional station, in a share of the runs. It holds a key that all its neighbours accept,
//! and attacks them during the fault phase. All guarantees to the other stations still hold. It has
//! its own random generator, so that it does not change the other draws of a seed.

use super::super::flows;
use super::super::net::instant;
use super::plan::{MS, Plan, chance, pick};
use super::world::World;
use anyhow::{Result, bail};
use fastrand::Rng;
use std::collections::BTreeMap;
use tautline_medium::{Motion, NetworkId, StationId};
use tautline_proto::{
    ChannelConfig, ChannelId, Event, LinkId, MAX_CHANNELS, Message, OfferedTopic, PeerId, Rights,
    SecretKey,
};
use tautline_testkit::attacker::liar::{Liar, LiarConfig};

/// Share of the runs with a hostile station.
const SHARE: f64 = 1.0 / 3.0;
/// Separates its draws from the other draws of a seed.
const SALT: u64 = 0x6c69_6172;
const NAME: &str = "liar";
/// Queue limit of its radio, packets.
const QUEUE_PACKETS: usize = 50;
/// Maximum number of actions between two steps of the fault phase.
const MAX_ACTS: usize = 2;
/// Maximum size of nodes' messages to the hostile station.
const MAX_MESSAGE: usize = 5000;
/// Time after its last action in which its queue drains, on the slowest network.
const QUIET_AFTER: u64 = 10_000 * MS;
/// Maximum bytes of control messages of a session to one peer: this many messages, each definition
/// at most once, the rest short.
const MAX_OWN_BYTES: u64 = 8 * MAX_CHANNELS as u64 * 1100;

/// The hostile station, see the module.
#[derive(Debug)]
pub struct Hostile {
    random: Rng,
    station: StationId,
    network: NetworkId,
    /// Whether its neighbours relay for the hostile station.
    pub relayed: bool,
    /// The attack state for each neighbour.
    liars: BTreeMap<usize, Liar>,
    /// The peer number at each neighbour, and the channel advertised to it.
    known_as: BTreeMap<usize, (PeerId, ChannelId)>,
    /// Datagrams sent so far.
    pub lies: u64,
}

impl Hostile {
    /// Draws whether a seed has a hostile station, and its position.
    pub fn draw(seed: u64, plan: &Plan) -> Option<(Self, Motion)> {
        let mut random = Rng::with_seed(seed ^ SALT);
        if !chance(&mut random, SHARE) {
            return None;
        }
        let beside = &plan.stations[random.usize(..plan.stations.len())];
        let network = pick(&mut random, &beside.networks);
        let [x, y, z] = beside.motion.place(0);
        let relayed = random.bool();
        let hostile = Self {
            random,
            station: StationId(plan.stations.len()),
            network: NetworkId(network),
            relayed,
            liars: BTreeMap::new(),
            known_as: BTreeMap::new(),
            lies: 0,
        };
        Some((hostile, Motion::at([x + 1.0, y + 1.0, z])))
    }

    /// Returns the network of its radio, and the queue limit.
    pub fn radio(&self) -> (NetworkId, usize) {
        (self.network, QUEUE_PACKETS)
    }

    fn is_hostile(&self, station: usize, peer: PeerId) -> bool {
        self.known_as.get(&station).is_some_and(|(known, _)| *known == peer)
    }
}

fn topic() -> ChannelConfig {
    let topic = OfferedTopic { priority: 255, ..flows::topic("/to_the_liar", "swarm/Lie", "00") };
    ChannelConfig {
        topic,
        definition: "x".repeat(5000).into(),
        repair: true,
        fec: None,
        thin: false,
        links: tautline_proto::LinkUse::default(),
    }
}

impl World {
    /// Makes the hostile station a peer of a node that has just started, if they share a network.
    pub fn meet_hostile(&mut self, station: usize) -> Result<()> {
        let Some(hostile) = &self.hostile else { return Ok(()) };
        let (network, relayed) = (hostile.network, hostile.relayed);
        if !self.plan.stations[station].networks.contains(&network.0) {
            return Ok(());
        }
        let remote = self.net.address(hostile.station, network);
        let secret = SecretKey::insecure(NAME);
        let stations = self.plan.stations.iter().map(|it| it.config.key.public().short_name());
        let team = stations.chain([secret.public().short_name()]).collect();
        let node = self.plan.stations[station].config.key.public();
        let now = instant(self.net.now());
        let endpoint = self.endpoint(station);
        let known = endpoint.add_peer(NAME, secret.public())?;
        endpoint.peer_mut(known).set_rights(Rights { relayed, ..Rights::default() });
        let offered = endpoint.peer_mut(known).offer(now, topic())?;
        self.net.add_link_on(network, StationId(station), known, remote);
        if let Some(hostile) = &mut self.hostile {
            hostile.known_as.insert(station, (known, offered));
            let cast = LiarConfig { name: NAME.into(), node, team };
            hostile.liars.entry(station).or_insert_with(|| Liar::new(cast));
        }
        Ok(())
    }

    /// Whether an event concerns the hostile station, about which nothing is guaranteed.
    pub fn is_of_hostile(&mut self, station: usize, event: &Event) -> bool {
        let Some(hostile) = &self.hostile else { return false };
        let of_link = |link: &LinkId| self.view(station).link(*link).map(|view| view.peer);
        let peer = match event {
            Event::PeerUp { peer, .. }
            | Event::PeerDown { peer, .. }
            | Event::PeerLeft { peer }
            | Event::Offered { peer, .. }
            | Event::Withdrawn { peer, .. }
            | Event::Wanted { peer, .. }
            | Event::Refused { peer, .. }
            | Event::Message { peer, .. } => Some(*peer),
            Event::LinkUp { link }
            | Event::LinkDown { link }
            | Event::LinkRate { link, .. }
            | Event::LinkMoved { link, .. }
            | Event::Candidates { link, .. } => of_link(link),
            Event::Notice(_) => return false,
        };
        let Some(peer) = peer.filter(|peer| hostile.is_hostile(station, *peer)) else {
            return false;
        };
        if let Event::Offered { channel, .. } = event {
            let now = instant(self.net.now());
            self.endpoint(station).peer_mut(peer).want(now, *channel, true);
            self.net.drain(StationId(station));
        }
        true
    }

    /// Passes received datagrams to the hostile station and lets it act; nodes also send to it.
    pub fn lie(&mut self) -> Result<()> {
        let Some(mut hostile) = self.hostile.take() else { return Ok(()) };
        let now = instant(self.net.now());
        let mut out = Vec::new();
        for (sender, datagram) in std::mem::take(&mut self.net.captured) {
            let Some(liar) = hostile.liars.get_mut(&sender.0) else { continue };
            if liar.handle_datagram(&datagram) {
                out.extend(liar.packet(now, &[]).map(|packet| (sender.0, packet)));
            }
        }
        let neighbours: Vec<usize> = hostile.liars.keys().copied().collect();
        for _ in 0..hostile.random.usize(..=MAX_ACTS) {
            let Some(&victim) = hostile.random.choice(&neighbours) else { break };
            let random = &mut hostile.random;
            let draw = &mut |limit: u64| random.u64(..limit.max(1));
            if let Some(liar) = hostile.liars.get_mut(&victim) {
                out.extend(liar.act(now, draw).into_iter().map(|datagram| (victim, datagram)));
            }
        }
        hostile.lies += out.len() as u64;
        for (victim, datagram) in out {
            let to = self.net.address(StationId(victim), hostile.network);
            to.into_iter().for_each(|to| self.net.inject(hostile.station, to, datagram.clone()));
        }
        if let Some(&victim) = hostile.random.choice(&neighbours)
            && let Some((peer, channel)) = hostile.known_as.get(&victim).copied()
        {
            let payload = vec![1; hostile.random.usize(..MAX_MESSAGE)].into();
            let message =
                Message { payload, published: now, source: 0, encoded: false, lifespan: None };
            // There may be no subscription, or no queue space.
            let _ = self.endpoint(victim).peer_mut(peer).send(now, channel, message);
            self.net.drain(StationId(victim));
        }
        self.hostile = Some(hostile);
        self.check_hostile()
    }

    /// Ends its attack and waits until its last packets have arrived.
    pub fn end_lies(&mut self) -> Result<()> {
        if self.hostile.is_none() { Ok(()) } else { self.run(QUIET_AFTER) }
    }

    /// Checks the limits on state that nodes hold for the hostile station.
    fn check_hostile(&self) -> Result<()> {
        let Some(hostile) = &self.hostile else { return Ok(()) };
        for (&station, &(peer, channel)) in &hostile.known_as {
            let view = self.view(station);
            let state = view.peer(peer);
            let allowed = self.plan.stations[station].config.queue_bytes as u64
                + state.queued_messages as u64
                + MAX_OWN_BYTES;
            if state.queued_bytes > allowed {
                let found = state.queued_bytes;
                bail!("{found} bytes are queued at station {station} for the hostile station");
            }
            let channels = view.peer(peer).channels_in().count();
            if channels > MAX_CHANNELS {
                bail!("station {station} has {channels} channels of the hostile station");
            }
            let carried = view.peer(peer).relayed();
            let sent = view.peer(peer).channel_out(channel).map(|(_, _, stats)| *stats);
            if let Some(stats) =
                [Some(carried), sent].into_iter().flatten().find(|it| !it.adds_up())
            {
                bail!("station {station} counts {stats:?} for the hostile station");
            }
        }
        Ok(())
    }
}
