// SPDX-License-Identifier: Apache-2.0
//! From a scenario to a world.

use super::control_loop::ControlLoop;
use super::flows::{Carriage, FlowPlan, Pace};
use super::net::Net;
use super::world::World;
use crate::scenario::{self, Flow, Over, Scenario};
use crate::staging::{Route, add_networks, changes, later, links, reached_by, routes};
use anyhow::{Context, Result};
use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::time::Duration;
use tautline_medium::{Medium, Nanos, NetworkId, StationId};
use tautline_proto::{Config, OfferedQos, OfferedTopic, RadioConfig, Role, SecretKey};

/// Time before the scenario's start, in which nodes meet.
pub const WARM_UP: Nanos = 2_000_000_000;
/// IP bytes of a full packet.
const PACKET_BYTES: usize = 1500;
/// Messages kept of a topic that does not say (as in the robot's file).
const KEEP_LAST: u32 = 10;
/// Bytes of a control loop's messages: a number with its name, as `std_msgs/Float64` and its
/// header are.
const LOOP_BYTES: usize = 24;

/// Builds the world of a scenario; nothing has happened in it yet.
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
        rate_bps: scenario.tautline.rate_bps,
        in_flight_bytes: scenario.tautline.in_flight as usize * PACKET_BYTES,
    };
    let mut world = World::new(net, seed, radio);
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

/// Starts nodes where Tautline is used, and joins those that talk.
fn join_all(scenario: &Scenario, world: &mut World) -> Result<()> {
    let flows = scenario.flows.iter().map(|flow| (flow.over, flow.from, flow.to));
    let loops = scenario.control_loops.iter().map(|l| (l.over, l.plant, l.controller));
    let pairs: BTreeSet<(usize, usize)> = flows
        .chain(loops)
        .filter(|(over, ..)| *over == Over::Tautline)
        .map(|(_, a, b)| (a.min(b), a.max(b)))
        .collect();
    let ends: BTreeSet<usize> = pairs.iter().flat_map(|(a, b)| [*a, *b]).collect();
    for host in ends {
        let name = scenario.stations[host].name.clone();
        world.start_node(
            StationId(host),
            Config { key: SecretKey::insecure(&name), name, ..Config::default() },
        )?;
    }
    for (a, b) in pairs {
        let [one, other] = [a, b].map(|s| (StationId(s), scenario.stations[s].name.as_str()));
        let ends: Vec<_> = links(scenario, a, b).iter().map(|link| link.ends).collect();
        world.join(one, other, &ends)?;
    }
    Ok(())
}

fn topic(name: &str, priority: u8) -> OfferedTopic {
    OfferedTopic {
        name: format!("/{name}"),
        type_name: "std_msgs/UInt8MultiArray".into(),
        type_hash: "82373f1612381bb6ee473b5cd6f5d89c".into(),
        priority,
        keep_last: KEEP_LAST,
        lifespan: None,
        qos: OfferedQos::default(),
        role: Role::Topic,
    }
}

/// The addresses by which two stations reach the other and the one.
fn addresses(scenario: &Scenario, from: usize, to: usize) -> Result<[Ipv4Addr; 2]> {
    let there = reached_by(scenario, from, to).zip(reached_by(scenario, to, from));
    there.map(|(there, back)| [there, back]).context("a flow between stations without a way")
}

fn plan(scenario: &Scenario, flow: &Flow, end: Nanos) -> Result<FlowPlan> {
    let carriage = match flow.over {
        Over::Udp => Carriage::Udp { dscp: flow.dscp },
        Over::Tautline => Carriage::Tautline(OfferedTopic {
            keep_last: flow.keep_last.unwrap_or(KEEP_LAST),
            lifespan: flow.lifespan.map(Duration::from_nanos),
            ..topic(&flow.name, flow.priority)
        }),
    };
    Ok(FlowPlan {
        name: flow.name.clone(),
        from: StationId(flow.from),
        to: StationId(flow.to),
        addresses: addresses(scenario, flow.from, flow.to)?,
        bytes: flow.bytes as usize,
        pace: match flow.pace {
            scenario::Pace::Every(period) => Pace::Every(period),
            scenario::Pace::Saturate => Pace::Saturate,
        },
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
            Over::Tautline => {
                Carriage::Tautline(OfferedTopic { keep_last: 1, ..topic(&name, plan.priority) })
            }
        };
        Ok(world.add_flow(FlowPlan {
            name,
            from: StationId(from),
            to: StationId(to),
            addresses: addresses(scenario, from, to)?,
            bytes: LOOP_BYTES,
            pace: Pace::OnDemand,
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
