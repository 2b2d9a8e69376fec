// SPDX-License-Identifier: Apache-2.0
//! A node with three peers, one of which is hostile. A script determines the events, and after each
//! step the other two peers must be unharmed. Shared with a fuzz target.

use super::liar::{Draw, Liar, LiarConfig};
use crate::net::{DATAGRAM, MS, Net, Pipe, address, channel, topic};
use std::net::SocketAddr;
use tautline_proto::wire::control::Control;
use tautline_proto::{
    ChannelConfig, ChannelId, Config, Duration, Endpoint, Event, LinkConfig, MAX_CHANNELS, PeerId,
    RadioId, Rights, SecretKey,
};

const LIAR: &str = "liar";
/// The node under attack.
const NODE: usize = 0;
/// An honest peer of the node.
const BASE: usize = 1;
/// Another honest peer, which also reaches [`BASE`] through the node.
const ARM: usize = 2;
/// The ids by which the node knows its honest peers.
const HONEST: [PeerId; 2] = [PeerId(0), PeerId(1)];
/// The id by which the node knows its hostile peer.
const HOSTILE: PeerId = PeerId(2);
/// Small limits for all nodes, so that missing limits are detected.
const QUEUE_BYTES: usize = 200_000;
/// Limit of control messages to one peer, in bytes.
const MAX_OWN_BYTES: u64 = 8 * MAX_CHANNELS as u64 * 1100;
/// Maximum number of steps of one script.
const MAX_STEPS: usize = 200;
/// Maximum delay of an honest message, whatever the hostile peer did before.
const MAX_HONEST_DELAY: Duration = Duration::from_secs(20);

/// The team; see the module's documentation.
pub struct Team {
    net: Net,
    liar: Liar,
    address: SocketAddr,
    /// The channel from the node to the hostile peer.
    to_liar: Option<ChannelId>,
    /// The channels between honest nodes: the sender, its id of the receiver, and the channel.
    honest: [(usize, PeerId, ChannelId); 4],
    /// Number of honest messages so far.
    sent: u32,
}

/// Adds the hostile peer, which is not in the net, to the node.
fn add_liar(net: &mut Net, address: SocketAddr) -> Liar {
    let secret = SecretKey::insecure(LIAR);
    let now = net.now;
    let mut team: Vec<_> = net.nodes.iter().map(|it| it.endpoint.key().short_name()).collect();
    team.push(secret.public().short_name());
    let endpoint = &mut net.nodes[NODE].endpoint;
    let peer = endpoint.add_peer(LIAR, secret.public()).expect("a free name");
    assert_eq!(peer, HOSTILE);
    let link = LinkConfig {
        remote: Some(address),
        datagram_bytes: DATAGRAM,
        header_bytes: 28,
        metered: false,
    };
    endpoint.peer_mut(peer).add_link(now, RadioId(0), link).expect("a valid link");
    Liar::new(LiarConfig { name: LIAR.into(), node: endpoint.key(), team })
}

fn config() -> Config {
    Config {
        max_message: 100_000,
        queue_bytes: QUEUE_BYTES,
        reassembly_bytes: QUEUE_BYTES,
        ..Config::new("node", SecretKey::insecure("node"))
    }
}

/// Draws choices from bytes, and zeros after their end.
pub fn choices<'a>(mut bytes: &'a [u8]) -> impl FnMut(u64) -> u64 + 'a {
    move |limit| {
        let width = if limit <= 256 { 1 } else { 4 };
        let taken = bytes.len().min(width);
        let (part, rest) = bytes.split_at(taken);
        bytes = rest;
        let value = part.iter().fold(0, |value, byte| value << 8 | u64::from(*byte));
        value % limit.max(1)
    }
}

impl Team {
    /// Creates a team in which all have sessions and honest messages flow.
    pub fn new(relayed: bool) -> Self {
        let mut net = Net::new(1);
        for name in ["node", "base", "arm"] {
            net.add(name, config(), Pipe::with_rate(50_000_000));
        }
        net.join(NODE, BASE);
        net.join(NODE, ARM);
        net.add_peer_through(BASE, ARM, &[PeerId(0)]);
        net.add_peer_through(ARM, BASE, &[PeerId(0)]);
        let address = address(net.nodes.len());
        let liar = add_liar(&mut net, address);
        let endpoint = &mut net.nodes[NODE].endpoint;
        for peer in HONEST {
            endpoint.peer_mut(peer).set_rights(Rights { relayed: true, ..Rights::default() });
        }
        endpoint.peer_mut(HOSTILE).set_rights(Rights { relayed, ..Rights::default() });
        net.run(Duration::from_secs(2));
        let mut open = |node, peer| {
            let opened = net.open(node, peer, channel(topic("/honest", 100)));
            (node, peer, opened)
        };
        let honest = [
            open(NODE, HONEST[0]),
            open(BASE, PeerId(0)),
            open(BASE, PeerId(1)),
            open(ARM, PeerId(1)),
        ];
        let mut team = Self { net, liar, address, to_liar: None, honest, sent: 0 };
        team.meet();
        team.forget();
        team
    }

    fn meet(&mut self) {
        for _ in 0..3 {
            if let Some(call) = self.liar.due_initiation(self.net.now) {
                self.net.inject(NODE, self.address, &call);
            }
            self.advance(MS);
        }
        assert!(self.liar.has_keys() && self.node().peer(HOSTILE).up, "the liar has met the node");
    }

    fn node(&self) -> &Endpoint {
        &self.net.nodes[NODE].endpoint
    }

    /// Runs a script. Panics if anything is wrong.
    pub fn play(&mut self, draw: &mut Draw<'_>, memory: &mut dyn FnMut()) {
        for _ in 0..MAX_STEPS {
            if draw(64) == 0 {
                break;
            }
            self.step(draw);
            self.check();
            memory();
        }
        self.check_honest_peers();
    }

    fn step(&mut self, draw: &mut Draw<'_>) {
        let now = self.net.now;
        match draw(16) {
            0 => self.advance([MS, 50 * MS, 300 * MS, 3000 * MS, 12_000 * MS][draw(5) as usize]),
            1 => self.change_offer(draw),
            2 => {
                let (wanted, number) = (draw(2) == 0, 1 + draw(6));
                self.net.nodes[NODE].endpoint.peer_mut(HOSTILE).want(
                    now,
                    ChannelId(number),
                    wanted,
                );
            }
            3 => {
                if let Some(to_liar) = self.to_liar {
                    let bytes = vec![1; [0, 100, 5000, 90_000][draw(4) as usize]];
                    // There may be no subscription.
                    let _ = self.net.try_send(NODE, HOSTILE, to_liar, bytes);
                }
            }
            4 => {
                let (node, peer, channel) = self.honest[draw(4) as usize];
                let _ = self.net.try_send(node, peer, channel, vec![2; draw(3000) as usize]);
            }
            // The hostile peer's own address, a new one, or that of another node.
            5 => self.address = [address(3), address(9), address(BASE)][draw(3) as usize],
            _ => {
                for datagram in self.liar.act(now, draw) {
                    self.net.now = self.net.now + Duration::from_micros(20);
                    self.net.inject(NODE, self.address, &datagram);
                }
                self.handle_datagram();
            }
        }
    }

    fn change_offer(&mut self, draw: &mut Draw<'_>) {
        let now = self.net.now;
        let definition = "d".repeat([0, 100, 50_000][draw(3) as usize]).into();
        let config = ChannelConfig { definition, ..channel(topic("/to_liar", draw(256) as u8)) };
        let endpoint = &mut self.net.nodes[NODE].endpoint;
        match (self.to_liar, draw(2)) {
            (Some(channel), 0) => {
                endpoint.peer_mut(HOSTILE).withdraw(now, channel);
                self.to_liar = None;
            }
            (Some(channel), _) => {
                let _ = endpoint.peer_mut(HOSTILE).change_offer(now, channel, config);
            }
            (None, _) => self.to_liar = endpoint.peer_mut(HOSTILE).offer(now, config).ok(),
        }
    }

    /// Lets time pass. The hostile peer receives its packets, and initiates when its keys are old.
    fn advance(&mut self, span: Duration) {
        self.net.run(span);
        self.handle_datagram();
    }

    fn handle_datagram(&mut self) {
        for transmit in std::mem::take(&mut self.net.nodes[NODE].sent) {
            if transmit.remote != self.address && transmit.remote != address(3) {
                self.liar.remember_datagram(&transmit.datagram);
            } else if self.liar.handle_datagram(&transmit.datagram)
                && let Some(packet) = self.liar.packet(self.net.now, &[])
            {
                self.net.inject(NODE, self.address, &packet);
            }
        }
        for node in [BASE, ARM] {
            for transmit in std::mem::take(&mut self.net.nodes[node].sent) {
                self.liar.remember_datagram(&transmit.datagram);
            }
        }
    }

    /// Checks the invariants after every step.
    fn check(&mut self) {
        for (node, state) in self.net.nodes.iter().enumerate() {
            for peer in state.endpoint.peers() {
                let view = state.endpoint.peer(peer);
                let most = QUEUE_BYTES as u64 + view.queued_messages as u64 + MAX_OWN_BYTES;
                assert!(view.queued_bytes <= most, "{} bytes wait", view.queued_bytes);
                assert!(state.endpoint.peer(peer).channels_in().count() <= MAX_CHANNELS);
                assert!(state.endpoint.peer(peer).relayed().adds_up(), "relayed at {node}");
            }
            for event in &state.events {
                let honest = |peer: &PeerId| node != NODE || *peer != HOSTILE;
                let harmed = match event {
                    Event::PeerDown { peer, .. } | Event::PeerUp { peer, new_session: true } => {
                        honest(peer)
                    }
                    _ => false,
                };
                assert!(!harmed, "at node {node}: {event:?}");
            }
        }
        for (node, peer, channel) in self.honest {
            let state = self.net.nodes[node].endpoint.peer(peer).channel_out(channel);
            let (_, wanted, stats) = state.expect("an honest channel");
            assert!(wanted && stats.adds_up(), "{stats:?}");
        }
        if let Some(to_liar) = self.to_liar {
            let (_, _, stats) = self.node().peer(HOSTILE).channel_out(to_liar).expect("an offer");
            assert!(stats.adds_up(), "{stats:?}");
        }
        self.forget();
    }

    /// The hostile peer subscribes to a large flow of the highest priority, and acknowledges
    /// nothing. Returns the longest delay of an honest message of low priority.
    pub fn max_delay_with_mute_peer(&mut self) -> Duration {
        let now = self.net.now;
        let endpoint = &mut self.net.nodes[NODE].endpoint;
        let config = channel(topic("/to_liar", 255));
        let to_liar = endpoint.peer_mut(HOSTILE).offer(now, config).expect("a valid offer");
        let (base, (_, peer, honest)) = (BASE, self.honest[0]);
        let mut longest = Duration::ZERO;
        for round in 0..60 {
            let wants = Control::Want { channel: to_liar.0, wanted: true };
            if let Some(packet) = self.liar.control_packet(self.net.now, &wants) {
                self.net.inject(NODE, self.address, &packet);
            }
            // The queue is full at times.
            let _ = self.net.try_send(NODE, HOSTILE, to_liar, vec![1; 20_000]);
            let (payload, began) = (crate::net::payload(round, 100), self.net.now);
            self.net.send(NODE, peer, honest, payload.clone());
            self.net.run_until_done(MS, 2000 * MS, |net| {
                net.nodes[base].received.iter().any(|it| it.3.payload[..] == payload)
            });
            longest = longest.max(self.net.now.since(began));
            self.advance(30 * MS);
        }
        longest
    }

    fn forget(&mut self) {
        for state in &mut self.net.nodes {
            state.events.clear();
            state.received.clear();
        }
    }

    /// Checks that the honest peers still reach each other.
    fn check_honest_peers(&mut self) {
        let ours: Vec<_> = (0..self.honest.len()).map(|_| self.next_payload()).collect();
        for ((node, peer, channel), payload) in self.honest.into_iter().zip(&ours) {
            self.net.send(node, peer, channel, payload.clone());
        }
        let mut missing = ours;
        let limit = self.net.now + MAX_HONEST_DELAY;
        while !missing.is_empty() {
            assert!(self.net.now < limit, "honest messages did not arrive: {}", self.state());
            self.advance(50 * MS);
            let arrived = self.net.nodes.iter().flat_map(|state| &state.received);
            let arrived: Vec<_> = arrived.map(|(_, _, _, it)| it.payload.to_vec()).collect();
            missing.retain(|payload| !arrived.contains(payload));
            self.check();
        }
    }

    /// State of the honest channels, for debugging.
    fn state(&self) -> String {
        let all = self.honest.iter().map(|(node, peer, channel)| {
            let endpoint = &self.net.nodes[*node].endpoint;
            let links = endpoint.links().filter_map(|link| endpoint.link(link));
            let links: Vec<_> = links.filter(|link| link.peer == *peer).collect();
            let stats = endpoint.peer(*peer).channel_out(*channel).map(|(_, _, stats)| *stats);
            format!("\nfrom {node} to its {peer:?}: {stats:?}, {links:?}")
        });
        all.collect()
    }

    fn next_payload(&mut self) -> Vec<u8> {
        self.sent += 1;
        crate::net::payload(self.sent, 700)
    }
}
