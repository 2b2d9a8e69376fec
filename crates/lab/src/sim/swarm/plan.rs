// SPDX-License-Identifier: Apache-2.0
//! The draw of one seed: networks, stations, peers and traffic.

use super::super::flows::topic;
use super::super::gate::Mishaps;
use crate::scenario::NetworkKind;
use fastrand::Rng;
use std::time::Duration;
use tautline_medium::{
    Access, Loss, Motion, Nanos, PathLoss, Phy, PipeConfig, RateControl, StationId, Trial,
    WifiConfig,
};
use tautline_proto::rate::CONTROLS;
use tautline_proto::{
    ChannelConfig, Config, DeliveryOrder, LinkPolicy, LinkSet, LinkUse, Marking, OfferedTopic,
    RadioConfig, Rate, SecretKey,
};

/// One millisecond.
pub const MS: Nanos = 1_000_000;
/// IP bytes of a full packet.
const PACKET_BYTES: usize = 1500;
/// Maximum number of pairs with traffic; limits the duration of a run.
const MAX_PAIRS: usize = 5;
/// Share of runs that last minutes.
const LONG_SHARE: f64 = 0.03;
/// Maximum number of pairs with traffic in a run that lasts minutes.
const MAX_LONG_PAIRS: usize = 1;
/// Path loss at one metre of 2.4 GHz, and an exponent as outdoors with obstacles. With 15 dBm,
/// stations 60 m apart receive 12 Mbps; at 120 m they do not sense each other.
const PATH_LOSS: PathLoss = PathLoss { at_1m_db: 40.0, exponent: 3.0, shadowing_db: 0.0 };
/// A distance beyond every range.
const FAR_M: f64 = 2000.0;

/// A network and its loss in the fault phase.
#[derive(Debug, Clone)]
pub struct NetworkPlan {
    /// The network without faults.
    pub kind: NetworkKind,
    /// Additional loss in the fault phase.
    pub loss: Loss,
}

/// A station with its node.
#[derive(Debug, Clone)]
pub struct StationPlan {
    /// Networks of its radios.
    pub networks: Vec<usize>,
    /// Position over time.
    pub motion: Motion,
    /// Queue limit of each radio, packets.
    pub queue_packets: usize,
    /// Configuration of its node.
    pub config: Config,
    /// Configuration of each of its radios.
    pub radio: RadioConfig,
    /// Disturbances of datagrams to the station.
    pub mishaps: Mishaps,
}

/// A row of stations, each of which forwards for the others.
#[derive(Debug, Clone)]
pub struct Chain {
    /// Stations in order.
    pub stations: Vec<usize>,
    /// Network of each hop.
    pub hops: Vec<usize>,
}

/// A topic from one station to another.
#[derive(Debug, Clone)]
pub struct TopicPlan {
    /// Publisher.
    pub from: usize,
    /// Subscriber.
    pub to: usize,
    /// Configuration of the channel.
    pub config: ChannelConfig,
    /// Maximum message size in bytes.
    pub max_len: usize,
}

/// A station's end of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkEnd {
    /// The station.
    pub station: usize,
    /// The network.
    pub network: usize,
    /// The station at the other end.
    pub partner: usize,
}

/// The draw of one seed.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    /// Name of the topology, for people.
    pub shape: &'static str,
    /// One to three networks.
    pub networks: Vec<NetworkPlan>,
    /// Two to six stations.
    pub stations: Vec<StationPlan>,
    /// Paths between stations that are not neighbours.
    pub chains: Vec<Chain>,
    /// Whether stations of a chain relay with Tautline; otherwise they forward IP.
    pub relays: bool,
    /// Pairs of peers; with relays all pairs, because relays must know the paths.
    pub pairs: Vec<[usize; 2]>,
    /// Topics of the pairs with traffic, in both directions.
    pub topics: Vec<TopicPlan>,
    /// Time from which all stations are at their initial positions.
    pub rests_from: Nanos,
    /// Stations and networks on which the address changes, at one end of a link only: if both
    /// addresses change at the same time, neither end can learn the other's.
    pub movers: Vec<(usize, usize)>,
    /// Link ends that have no address of the partner and wait for its handshake initiation.
    pub waiting_ends: Vec<LinkEnd>,
    /// Whether an attacker repeats datagrams.
    pub attacked: bool,
    /// Whether the run is long enough for key renewal.
    pub long: bool,
}

/// Draws one of `choices`.
pub fn pick<T: Copy>(random: &mut Rng, choices: &[T]) -> T {
    choices[random.usize(..choices.len())]
}

/// Draws true with this probability.
pub fn chance(random: &mut Rng, probability: f64) -> bool {
    random.f64() < probability
}

impl Plan {
    /// Draws a plan.
    pub fn draw(random: &mut Rng) -> Self {
        let mut plan = match random.u32(..12) {
            0..4 => one_shared_network(random),
            4..7 => chain_on_air(random),
            7..9 => chain_of_networks(random),
            9 => two_relays(random),
            10 => around_access_point(random),
            _ => hidden(random),
        };
        random.shuffle(&mut plan.pairs);
        plan.long = chance(random, LONG_SHARE);
        let mut talking = plan.pairs.clone();
        talking.truncate(if plan.long { MAX_LONG_PAIRS } else { MAX_PAIRS });
        if !plan.relays {
            plan.pairs = talking.clone();
        }
        for [a, b] in talking {
            for (from, to) in [(a, b), (b, a)] {
                for _ in 0..=random.usize(..2) {
                    let topic = draw_topic(random, plan.topics.len(), from, to);
                    plan.topics.push(topic);
                }
            }
        }
        if chance(random, 0.2) {
            plan.add_walk(random);
        }
        plan.draw_movers(random);
        plan.draw_waiting_ends(random);
        plan
    }

    fn draw_movers(&mut self, random: &mut Rng) {
        let links: Vec<_> = self.links().collect();
        for (station, plan) in self.stations.iter().enumerate() {
            for &network in &plan.networks {
                let end = (station, network);
                let beside = links.iter().filter(|ends| ends.contains(&end)).flatten();
                let mut others = beside.filter(|it| **it != end);
                let alone = !others.any(|other| self.movers.contains(other));
                if alone && chance(random, 0.4) {
                    self.movers.push(end);
                }
            }
        }
    }

    /// Draws the link ends that wait for a handshake initiation: at most one end of each link, and not
    /// the end whose address changes, since its partner would not know the new address.
    fn draw_waiting_ends(&mut self, random: &mut Rng) {
        for [a, b] in self.links().collect::<Vec<_>>() {
            let moves = |end| self.movers.contains(&end);
            let (station, partner) = match (moves(a), moves(b)) {
                (true, _) => (b, a),
                (_, true) => (a, b),
                _ if random.bool() => (a, b),
                _ => (b, a),
            };
            if chance(random, 0.3) {
                let ((station, network), (partner, _)) = (station, partner);
                self.waiting_ends.push(LinkEnd { station, network, partner });
            }
        }
    }

    /// Returns the ends (station and network) of each link of all pairs that has addresses.
    pub fn links(&self) -> impl Iterator<Item = [(usize, usize); 2]> + '_ {
        self.pairs.iter().flat_map(move |&[a, b]| {
            let direct = self.shared_networks(a, b).into_iter().map(move |n| [(a, n), (b, n)]);
            let routes = self.routes(a, b).into_iter().filter(|_| !self.relays);
            direct.chain(routes.map(move |route| {
                let Chain { hops, .. } = route;
                [(a, hops[0]), (b, hops[hops.len() - 1])]
            }))
        })
    }

    fn drawn(shape: &'static str, random: &mut Rng, networks: Vec<NetworkKind>) -> Self {
        let networks = networks.into_iter().map(|kind| {
            let loss = draw_loss(random, &kind);
            NetworkPlan { kind, loss }
        });
        Self {
            shape,
            networks: networks.collect(),
            attacked: chance(random, 0.6),
            ..Self::default()
        }
    }

    fn add_station(&mut self, random: &mut Rng, networks: Vec<usize>, place: [f64; 3]) {
        let name = format!("station{}", self.stations.len());
        let fixed = [Rate::Fixed(500_000), Rate::Fixed(4_000_000)];
        let per_link = CONTROLS.iter().map(Rate::PerLink);
        let rates: Vec<Rate> = [Rate::AUTO].into_iter().chain(per_link).chain(fixed).collect();
        self.stations.push(StationPlan {
            networks,
            motion: Motion::at(place),
            queue_packets: pick(random, &[20, 100, 1000]),
            config: draw_config(random, name),
            radio: RadioConfig {
                rate: pick(random, &rates),
                in_flight_bytes: PACKET_BYTES * pick(random, &[1, 2, 3, 4]),
                marking: chance(random, 0.8).then(Marking::default),
                ..RadioConfig::default()
            },
            mishaps: Mishaps {
                loss: pick(random, &[0.0, 0.0, 0.02, 0.2]),
                duplicate: pick(random, &[0.0, 0.05, 0.2]),
                reorder: pick(random, &[0.0, 0.1, 0.3]),
                reorder_by: MS * pick(random, &[1, 5, 20, 200]),
            },
        });
    }

    /// Makes one station move out of range (if the network has path loss) and return.
    fn add_walk(&mut self, random: &mut Rng) {
        let station = random.usize(..self.stations.len());
        let motion = &mut self.stations[station].motion;
        let home = motion.place(0);
        let away = [home[0], home[1] + FAR_M, home[2]];
        let leaves = MS * random.u64(2000..6000);
        let back = leaves + MS * random.u64(1000..10_000);
        let waypoints = vec![(leaves, home), ((leaves + back) / 2, away), (back, home)];
        *motion = Motion { waypoints };
        self.rests_from = back;
    }

    /// Returns the paths from one station to another along chains, unless they are neighbours.
    pub fn routes(&self, from: usize, to: usize) -> Vec<Chain> {
        self.chains.iter().filter_map(|chain| chain.route(from, to)).collect()
    }

    /// Returns the networks by which two stations reach each other without a relay.
    pub fn shared_networks(&self, a: usize, b: usize) -> Vec<usize> {
        let on_air: Vec<_> = self.routes(a, b).into_iter().flat_map(|route| route.hops).collect();
        let other = &self.stations[b].networks;
        let shared = self.stations[a].networks.iter().filter(|n| other.contains(n));
        shared.copied().filter(|network| !on_air.contains(network)).collect()
    }
}

impl Chain {
    fn route(&self, from: usize, to: usize) -> Option<Self> {
        let place = |station| self.stations.iter().position(|s| *s == station);
        let (start, end) = (place(from)?, place(to)?);
        let (first, last) = (start.min(end), start.max(end));
        let mut stations = self.stations[first..=last].to_vec();
        let mut hops = self.hops[first..last].to_vec();
        if start > end {
            stations.reverse();
            hops.reverse();
        }
        (hops.len() > 1).then_some(Self { stations, hops })
    }
}

fn all_pairs(stations: usize) -> Vec<[usize; 2]> {
    (0..stations).flat_map(|b| (0..b).map(move |a| [a, b])).collect()
}

/// All stations on one network, some of them on others too.
fn one_shared_network(random: &mut Rng) -> Plan {
    let kinds = (0..random.usize(1..=3)).map(|_| draw_network(random, false)).collect();
    let mut plan = Plan::drawn("shared", random, kinds);
    // At 35 m, six stations apart, 54 Mbps still has the signal that full frames need.
    let spacing = pick(random, &[1.0, 10.0, 14.0]);
    let stations = random.usize(2..=6);
    for number in 0..stations {
        let others = (1..plan.networks.len()).filter(|_| number < 2 || chance(random, 0.5));
        let networks = std::iter::once(0).chain(others).collect();
        plan.add_station(random, networks, [number as f64 * spacing / 2.0, 0.0, 0.0]);
    }
    plan.pairs = all_pairs(stations);
    plan
}

/// A row of stations on one channel that receive only their neighbours, sometimes with a slow line
/// between the ends.
fn chain_on_air(random: &mut Rng) -> Plan {
    let stations = random.usize(3..=5);
    let line = chance(random, 0.3);
    let mut kinds = vec![NetworkKind::Wifi(draw_wifi(random, true))];
    if line {
        kinds.push(NetworkKind::Pipe(draw_pipe(random)));
    }
    let mut plan = Plan::drawn("chain on one channel", random, kinds);
    for number in 0..stations {
        let end = number == 0 || number == stations - 1;
        let networks = if line && end { vec![0, 1] } else { vec![0] };
        plan.add_station(random, networks, [number as f64 * 60.0, 0.0, 0.0]);
    }
    plan.chains = vec![Chain { stations: (0..stations).collect(), hops: vec![0; stations - 1] }];
    plan.relays = random.bool();
    plan.pairs = all_pairs(stations);
    plan
}

/// A row of stations with a network for each hop.
fn chain_of_networks(random: &mut Rng) -> Plan {
    let hops = random.usize(2..=3);
    let kinds = (0..hops).map(|_| draw_network(random, false)).collect();
    let mut plan = Plan::drawn("chain of networks", random, kinds);
    for number in 0..=hops {
        let networks = (number.saturating_sub(1)..=number).filter(|n| *n < hops).collect();
        plan.add_station(random, networks, [number as f64 * 10.0, 0.0, 0.0]);
    }
    plan.chains = vec![Chain { stations: (0..=hops).collect(), hops: (0..hops).collect() }];
    plan.relays = random.bool();
    plan.pairs = all_pairs(hops + 1);
    plan
}

/// Two stations out of range of each other with two relays between them, on one or two channels.
fn two_relays(random: &mut Rng) -> Plan {
    let channels = random.usize(1..=2);
    let kinds = (0..channels).map(|_| NetworkKind::Wifi(draw_wifi(random, true))).collect();
    let mut plan = Plan::drawn("two relays", random, kinds);
    let all: Vec<_> = (0..channels).collect();
    let channel_of = |relay| relay % channels;
    for (number, place) in [[0.0; 2], [60.0, 30.0], [60.0, -30.0], [120.0, 0.0]].iter().enumerate()
    {
        let networks = match number {
            1 | 2 => vec![channel_of(number)],
            _ => all.clone(),
        };
        plan.add_station(random, networks, [place[0], place[1], 0.0]);
    }
    let by = |relay| Chain { stations: vec![0, relay, 3], hops: vec![channel_of(relay); 2] };
    plan.chains = vec![by(1), by(2)];
    plan.relays = true;
    // The relays need not be peers of each other.
    plan.pairs = vec![[0, 1], [0, 2], [0, 3], [1, 3], [2, 3]];
    plan
}

/// Stations around an access point, some of them hidden from each other.
fn around_access_point(random: &mut Rng) -> Plan {
    let mut wifi = draw_wifi(random, true);
    wifi.access_point = Some(StationId(0));
    let mut plan = Plan::drawn("access point", random, vec![NetworkKind::Wifi(wifi)]);
    let stations = random.usize(3..=6);
    let radius = pick(random, &[10.0, 60.0]);
    plan.add_station(random, vec![0], [0.0; 3]);
    for number in 1..stations {
        let angle = number as f64 / (stations - 1) as f64 * std::f64::consts::TAU;
        let place = [angle.cos() * radius, angle.sin() * radius, 0.0];
        plan.add_station(random, vec![0], place);
    }
    plan.pairs = all_pairs(stations);
    plan
}

/// Two stations out of range of each other, and a station between them that is the peer of both.
fn hidden(random: &mut Rng) -> Plan {
    let wifi = draw_wifi(random, true);
    let mut plan = Plan::drawn("hidden", random, vec![NetworkKind::Wifi(wifi)]);
    for place in [0.0, 60.0, -60.0] {
        plan.add_station(random, vec![0], [place, 0.0, 0.0]);
    }
    plan.pairs = vec![[0, 1], [0, 2]];
    plan
}

fn draw_network(random: &mut Rng, far: bool) -> NetworkKind {
    if chance(random, 0.5) {
        NetworkKind::Wifi(draw_wifi(random, far))
    } else {
        NetworkKind::Pipe(draw_pipe(random))
    }
}

/// Draws a channel; `far` selects rates at which distant stations reach each other.
fn draw_wifi(random: &mut Rng, far: bool) -> WifiConfig {
    let phy = if chance(random, 0.8) { Phy::Ofdm } else { Phy::Dsss };
    let rates: &[u64] = match (phy, far) {
        (Phy::Ofdm, true) => &[6_000_000, 9_000_000, 12_000_000],
        (Phy::Ofdm, false) => &[6_000_000, 24_000_000, 54_000_000],
        (Phy::Dsss, _) => &[2_000_000, 5_500_000, 11_000_000],
    };
    let fixed = RateControl::Fixed(pick(random, rates));
    let lossy_air = far || chance(random, 0.4);
    WifiConfig {
        phy,
        access: pick(random, &[Access::Dcf, Access::Edca]),
        rate: if chance(random, 0.3) { RateControl::Adaptive } else { fixed },
        trial: pick(random, &[Trial::Attempt, Trial::Frame]),
        path_loss: lossy_air.then_some(PATH_LOSS),
        ..WifiConfig::default()
    }
}

fn draw_pipe(random: &mut Rng) -> PipeConfig {
    let delay = MS * pick(random, &[0, 1, 5, 30, 100]);
    PipeConfig {
        rate_bps: pick(random, &[500_000, 1_000_000, 3_000_000, 6_000_000, 20_000_000]),
        burst_bytes: pick(random, &[0, 0, 3000]),
        delay,
        jitter: delay / 4 * random.u64(0..=2),
        half_duplex: chance(random, 0.3),
        ..PipeConfig::default()
    }
}

fn draw_loss(random: &mut Rng, kind: &NetworkKind) -> Loss {
    let repaired = matches!(kind, NetworkKind::Wifi(WifiConfig { trial: Trial::Attempt, .. }));
    let most = if repaired { 0.5 } else { 0.2 };
    match random.u32(..3) {
        0 => Loss::None,
        1 => Loss::Uniform { probability: pick(random, &[0.01, 0.05, most]) },
        _ => Loss::GilbertElliott {
            enter: pick(random, &[0.005, 0.02]),
            leave: pick(random, &[0.05, 0.2]),
        },
    }
}

fn draw_config(random: &mut Rng, name: String) -> Config {
    let key = SecretKey::insecure(&name);
    Config {
        max_message: pick(random, &[250_000, 250_000, 100_000]),
        queue_bytes: pick(random, &[50_000, 300_000, 16_000_000]),
        queue_time: Duration::from_millis(pick(random, &[200, 1000, 2000])),
        reassembly_bytes: pick(random, &[100_000, 300_000, 16_000_000]),
        repair_percent: pick(random, &[10, 30, 100]),
        ..Config::new(name, key)
    }
}

/// Maximum number of copies of a message that several links carry.
pub const MAX_COPIES: u8 = 3;

/// Returns a use of links that depends on the priority, so that each policy and restriction occurs: an
/// additional draw would change all other draws.
fn link_use(priority: u8) -> LinkUse {
    LinkUse {
        policy: match priority % 4 {
            0 => LinkPolicy::Best,
            1 => LinkPolicy::Weighted,
            2 => LinkPolicy::Stripe,
            _ => LinkPolicy::Duplicate(2 + priority / 4 % 2),
        },
        only: (priority % 16 == 5).then(|| LinkSet::from_numbers([1, 2])),
        avoid: LinkSet::from_numbers((priority % 16 == 10).then_some(0)),
        over_budget: false,
    }
}

/// Returns an order of delivery that depends on the priority, so that each order occurs.
fn order(priority: u8) -> DeliveryOrder {
    let waits = [5, 50, 200, 1000].map(Duration::from_millis);
    match priority / 16 % 4 {
        1 => DeliveryOrder::Sent { wait: waits[usize::from(priority / 64)] },
        2 => DeliveryOrder::Newest,
        _ => DeliveryOrder::Arrival,
    }
}

fn draw_topic(random: &mut Rng, number: usize, from: usize, to: usize) -> TopicPlan {
    let lifespan = pick(random, &[None, None, Some(50), Some(300), Some(2000)]);
    // No other topic has this type, so that the definition must be requested.
    let type_name = format!("swarm/Type{number}");
    let priority = random.u8(..);
    let topic = OfferedTopic {
        priority,
        order: order(priority),
        keep_last: pick(random, &[1, 1, 2, 10, 1000]),
        lifespan: lifespan.map(Duration::from_millis),
        ..topic(format!("/{number}"), &type_name, "00")
    };
    let links = link_use(topic.priority);
    let definition = "x".repeat(pick(random, &[0, 500, 500, 60_000])).into();
    let fec = topic.priority.is_multiple_of(5).then_some(10 + topic.priority / 2);
    let repair = !chance(random, 0.2);
    let config = ChannelConfig { topic, definition, repair, thin: false, links, fec };
    TopicPlan { from, to, config, max_len: pick(random, &[48, 1000, 20_000, 200_000]) }
}
