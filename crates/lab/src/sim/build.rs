// SPDX-License-Identifier: Apache-2.0
//! Conversion of a scenario to a world.

use super::control_loop::ControlLoop;
use super::flows::{self, Carriage, FlowPlan, KEEP_LAST};
use super::net::Net;
use super::world::World;
use crate::rig::staging::{Route, add_networks, changes, later, links, reached_by, routes};
use crate::scenario::{self, Flow, Over, Scenario};
use anyhow::{Context, Result, bail};
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::time::Duration;
use tautline_medium::{Medium, Nanos, NetworkId, StationId};
use tautline_proto::{
    ChannelConfig, Config, LinkPolicy, LinkSet, LinkUse, Marking, OfferedTopic, RadioConfig,
    SecretKey,
};

/// Time before the scenario's start, for handshakes.
pub const WARM_UP: Nanos = 2_000_000_000;
/// IP bytes of a full packet.
const PACKET_BYTES: usize = 1500;
/// Size of a control loop's messages: a number with its name, as `std_msgs/Float64` and its header.
const LOOP_BYTES: usize = 24;

/// Builds the world of a scenario, before its start.
pub fn build(scenario: &Scenario, seed: u64) -> Result<World> {
    let mut medium = Medium::new(seed);
    add_networks(scenario, &mut medium);
    let mut net = Net::new(medium);
    for station in &scenario.stations {
        let networks: Vec<NetworkId> = station.networks.iter().map(|n| NetworkId(*n)).collect();
        net.add_host(later(&station.motion, WARM_UP), &networks, station.queue_packets);
    }
    for Route { from, to, via } in routes(scenario) {
        net.add_route(StationId(from), to, via);
    }
    let radio = RadioConfig {
        rate: scenario.tautline.rate,
        in_flight_bytes: scenario.tautline.in_flight as usize * PACKET_BYTES,
        marking: scenario.tautline.dscp.then(Marking::default),
        tuning: scenario.tautline.tuning,
    };
    let mut world = World::new(net, seed, radio);
    if scenario.tautline.fixed_at_network_rate {
        world.network_rates =
            scenario.networks.iter().map(|it| *it.kind.facts().bps().end()).collect();
    }
    join_all(scenario, &mut world)?;
    let end = WARM_UP + scenario.duration;
    for flow in &scenario.flows {
        world.add_flow(plan(scenario, flow, end)?);
    }
    for control_loop in &scenario.control_loops {
        add_loop(scenario, &mut world, control_loop)?;
    }
    for (at, change) in changes(scenario, WARM_UP) {
        world.change_at(at, change);
    }
    Ok(world)
}

/// The peers of each node.
#[derive(Default)]
struct Peers {
    /// Pairs with links to each other, the lower number first.
    joined: BTreeSet<(usize, usize)>,
    /// Pairs (node, peer) without a direct link, with the neighbour of the node that relays.
    through: BTreeMap<(usize, usize), usize>,
}

impl Peers {
    fn from_scenario(scenario: &Scenario) -> Self {
        let flows = scenario.flows.iter().map(|flow| (flow.over, flow.from, flow.to));
        let loops = scenario.control_loops.iter().map(|l| (l.over, l.plant, l.controller));
        let mut peers = Self::default();
        if scenario.is_plain_ros {
            return peers;
        }
        for (_, a, b) in flows.chain(loops).filter(|(over, ..)| *over == Over::Tautline) {
            let path = scenario.path(a, b).filter(|_| scenario.tautline.relay);
            peers.add_along(&path.unwrap_or_else(|| vec![a, b]));
        }
        peers
    }

    /// Joins neighbours, and makes both ends of the path peers of each of its stations.
    fn add_along(&mut self, path: &[usize]) {
        for hop in path.windows(2) {
            self.joined.insert((hop[0].min(hop[1]), hop[0].max(hop[1])));
        }
        let [first, .., last] = *path else { return };
        for (place, hop) in path.windows(2).enumerate() {
            if place + 2 < path.len() {
                self.through.insert((hop[0], last), hop[1]);
            }
            if place > 0 {
                self.through.insert((hop[1], first), hop[0]);
            }
        }
    }
}

/// Starts nodes at stations with flows over Tautline, and joins them.
fn join_all(scenario: &Scenario, world: &mut World) -> Result<()> {
    let Peers { joined, through } = Peers::from_scenario(scenario);
    let nodes: BTreeSet<usize> = joined.iter().flat_map(|(a, b)| [*a, *b]).collect();
    for &host in &nodes {
        let name = scenario.stations[host].name.clone();
        let key = SecretKey::insecure(&name);
        world.start_node(StationId(host), Config::new(name, key))?;
    }
    let named = |s: usize| (StationId(s), scenario.stations[s].name.as_str());
    for (a, b) in joined {
        let ends: Vec<_> = links(scenario, a, b).iter().map(|link| link.ends).collect();
        world.join(named(a), named(b), &ends)?;
    }
    for ((host, end), via) in through {
        world.meet_through(StationId(host), named(end), StationId(via))?;
    }
    for host in nodes.into_iter().filter(|_| scenario.tautline.relay) {
        world.allow_relaying(StationId(host))?;
    }
    Ok(())
}

fn channel(topic: OfferedTopic, links: LinkUse) -> ChannelConfig {
    let definition = "uint8[] data".into();
    ChannelConfig { topic, definition, repair: true, thin: false, links, fec: None }
}

fn topic(name: &str, priority: u8) -> OfferedTopic {
    let topic = flows::topic(
        format!("/{name}"),
        "std_msgs/UInt8MultiArray",
        "82373f1612381bb6ee473b5cd6f5d89c",
    );
    OfferedTopic { priority, ..topic }
}

/// Returns the address by which `from` reaches `to`, and the address of the opposite direction.
fn addresses(scenario: &Scenario, from: usize, to: usize) -> Result<[Ipv4Addr; 2]> {
    let there = reached_by(scenario, from, to).zip(reached_by(scenario, to, from));
    there.map(|(there, back)| [there, back]).context("a flow between stations without a path")
}

/// Returns how a flow uses the links, which have numbers in the order in which [`join_all`] adds
/// them.
fn link_use(scenario: &Scenario, flow: &Flow) -> LinkUse {
    let links = links(scenario, flow.from.min(flow.to), flow.from.max(flow.to));
    let on = |networks: &[usize]| {
        let numbered = (0..).zip(&links);
        let named = numbered.filter(|(_, it)| it.network.is_some_and(|it| networks.contains(&it)));
        LinkSet::from_numbers(named.map(|(number, _)| number))
    };
    LinkUse {
        policy: flow.links,
        only: (!flow.only_links.is_empty()).then(|| on(&flow.only_links)),
        avoid: on(&flow.avoid_links),
        over_budget: false,
    }
}

fn plan(scenario: &Scenario, flow: &Flow, end: Nanos) -> Result<FlowPlan> {
    let carriage = match flow.over {
        Over::Tautline if scenario.is_plain_ros => {
            Carriage::PlainRos { queue: flow.keep_last.unwrap_or(KEEP_LAST) }
        }
        Over::Udp => Carriage::Udp { dscp: flow.dscp },
        Over::Tcp => bail!("flow '{}': TCP is the kernel's own (tautline-lab air)", flow.name),
        Over::Tautline => Carriage::Tautline(ChannelConfig {
            repair: flow.repair,
            fec: flow.fec,
            ..channel(
                OfferedTopic {
                    keep_last: flow.keep_last.unwrap_or(KEEP_LAST),
                    lifespan: flow.lifespan.map(Duration::from_nanos),
                    order: flow.order,
                    ..topic(&flow.name, flow.priority)
                },
                link_use(scenario, flow),
            )
        }),
    };
    Ok(FlowPlan {
        name: flow.name.clone(),
        from: StationId(flow.from),
        to: StationId(flow.to),
        addresses: addresses(scenario, flow.from, flow.to)?,
        bytes: flow.bytes as usize,
        pace: Some(flow.pace),
        start: flow.start + WARM_UP,
        end,
        count: flow.count,
        echo: flow.echo,
        carriage,
    })
}

fn add_loop(scenario: &Scenario, world: &mut World, plan: &scenario::ControlLoop) -> Result<()> {
    let (plant, controller) = (plan.plant, plan.controller);
    let name = |s: usize| &scenario.stations[s].name;
    let mut flow = |from: usize, to: usize, what: &str| -> Result<usize> {
        let name = format!("{what} ({} to {})", name(from), name(to));
        let carriage = match plan.over {
            Over::Udp => Carriage::Udp { dscp: 0 },
            Over::Tcp => bail!("no control loop is over TCP"),
            Over::Tautline => {
                let topic = OfferedTopic { keep_last: 1, ..topic(&name, plan.priority) };
                let policy = LinkPolicy::of_priority(plan.priority);
                let links = LinkUse { policy, ..LinkUse::default() };
                Carriage::Tautline(channel(topic, links))
            }
        };
        Ok(world.add_flow(FlowPlan {
            name,
            from: StationId(from),
            to: StationId(to),
            addresses: addresses(scenario, from, to)?,
            bytes: LOOP_BYTES,
            pace: None,
            start: 0,
            end: Nanos::MAX,
            count: None,
            echo: false,
            carriage,
        }))
    };
    let flows = [flow(plant, controller, "y")?, flow(controller, plant, "u")?];
    world.add_loop(ControlLoop::new(flows, (WARM_UP, WARM_UP + scenario.duration), plan.period));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_station_of_a_route_knows_its_neighbours_and_the_ends() {
        let mut peers = Peers::default();
        peers.add_along(&[0, 2, 3, 1]);
        assert_eq!(peers.joined, BTreeSet::from([(0, 2), (2, 3), (1, 3)]));
        let through = [((0, 1), 2), ((2, 1), 3), ((3, 0), 2), ((1, 0), 3)];
        assert_eq!(peers.through, BTreeMap::from(through));
        peers.add_along(&[0, 4]);
        assert!(peers.joined.contains(&(0, 4)) && peers.through.len() == through.len());
    }
}
