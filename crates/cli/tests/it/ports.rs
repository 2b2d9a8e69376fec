// SPDX-License-Identifier: Apache-2.0
//! A robot behind a router with two uplinks and address translation. The router's route moves to the
//! other uplink, and packets from the former source port keep the entry of the former uplink alive.
//! Needs root and nft.

use crate::PROGRAM;
use std::time::{Duration, Instant};
use tautline_testkit::running::enclosure::Enclosure;
use tautline_testkit::running::node::Running;
use tautline_testkit::running::{Daemon, Place, wait_for};

/// The address of the base station, which both uplinks reach.
const BASE: &str = "10.99.0.1";
const SCAN: &str = "/scan";
const NODE_PORT: u16 = 18470;
/// Longest time from the move of the route, or from a restart, until scans arrive again.
const LIMIT: Duration = Duration::from_secs(5);

fn start(inside: &Enclosure, name: &str, peer: &str) -> Running {
    let lines = format!(
        "listen: \"0.0.0.0:{NODE_PORT}\"\nbeacons: false\npeers: {{ {peer} }}\n\
         topics: {{ {SCAN}: {{ priority: 200 }} }}"
    );
    Running::start_in(Some(inside), name, &lines)
}

/// The ports of UDP sockets in an enclosure, except the node's own port.
fn other_ports(inside: &Enclosure) -> Vec<u16> {
    let table = inside.run("cat /proc/net/udp");
    let port = |line: &str| {
        let port = line.split_whitespace().nth(1).unwrap().rsplit(':').next().unwrap();
        u16::from_str_radix(port, 16).unwrap()
    };
    let mut ports: Vec<u16> = table.lines().skip(1).map(port).collect();
    assert!(ports.contains(&NODE_PORT), "the listening socket stays: {ports:?}");
    ports.retain(|it| *it != NODE_PORT);
    ports.sort_unstable();
    ports.dedup();
    ports
}

fn is_heard(node: &Running) -> bool {
    let link = &node.status().links[0];
    link.up && !link.silent
}

/// Publishes scans until one of them has arrived.
fn wait_for_scans(robot: &Running) {
    let before = robot.delivered(SCAN);
    wait_for("scans arrive", || {
        robot.publish(SCAN, 1000);
        (robot.delivered(SCAN) > before).then_some(())
    });
}

/// Publishes scans until the node notices that nothing arrives.
fn wait_for_silence(robot: &Running) {
    wait_for("the link is dead", || {
        robot.publish(SCAN, 1000);
        (!is_heard(robot)).then_some(())
    });
}

struct World {
    router: Enclosure,
    robot: Enclosure,
    base: Enclosure,
}

impl World {
    fn new(place: &Place) -> Self {
        let hosts = place.hosts();
        let router = Enclosure::new(&hosts);
        let (robot, base) = (router.neighbour(&hosts), router.neighbour(&hosts));
        router.join_by(&base, "one", 77);
        router.join_by(&base, "two", 78);
        robot.join_by(&router, "lan", 79);
        robot.ip("route add default via 10.79.0.2");
        base.ip(&format!("addr add {BASE}/32 dev lo"));
        router.run("sysctl -qw net.ipv4.ip_forward=1");
        router.run("nft add table ip nat");
        router.run("nft add chain ip nat out { type nat hook postrouting priority 100; }");
        base.run("nft add table ip providers");
        base.run("nft add chain ip providers in { type filter hook input priority 0; }");
        for (uplink, network) in [("one", 77), ("two", 78)] {
            // For `masquerade`, Linux ends the entry when the interface changes.
            let own = format!("oifname {uplink} snat to 10.{network}.0.1");
            router.run(&format!("nft add rule ip nat out {own}"));
            // A provider forwards no packet from an address of another one (BCP 38).
            let foreign = format!("iifname {uplink} ip saddr != 10.{network}.0.1 counter drop");
            base.run(&format!("nft add rule ip providers in {foreign}"));
        }
        let world = Self { router, robot, base };
        world.route(77);
        world
    }

    /// Moves the router's route to the base station to the uplink of this network.
    fn route(&self, network: u8) {
        self.router.ip(&format!("route replace {BASE} via 10.{network}.0.2"));
    }

    fn start_robot(&self) -> Running {
        let robot = start(&self.robot, "robot", &format!("base: {{ address: {BASE} }}"));
        robot.offer(SCAN);
        robot
    }

    fn start_base(&self) -> Running {
        start(&self.base, "base", "robot: { accept: \"/**\" }")
    }

    /// Packets that the providers dropped.
    fn dropped_packets(&self) -> u64 {
        let rules = self.base.run("nft list table ip providers");
        let words: Vec<&str> = rules.split_whitespace().collect();
        let counts = words.windows(2).filter(|it| it[0] == "packets");
        counts.map(|it| it[1].parse::<u64>().unwrap()).sum()
    }

    /// Publishes until scans arrive by another port than that of the dead entry. `dropped` and `begun` are
    /// the number of dropped packets and the time before the route moved.
    fn wait_for_return(&self, robot: &Running, (dropped, begun): (u64, Instant)) {
        wait_for_scans(robot);
        let took = begun.elapsed();
        println!(
            "scans again after {took:?}, {} packets dropped",
            self.dropped_packets() - dropped
        );
        assert!(self.dropped_packets() > dropped, "the entry of the former uplink was not used");
        assert!(took < LIMIT, "{took:?}");
    }
}

#[test]
fn a_link_recovers_by_another_port_from_a_dead_translator_entry() {
    let place = Place::new(PROGRAM);
    let world = World::new(&place);
    let (base, robot) = (world.start_base(), world.start_robot());
    wait_for_scans(&robot);
    assert!(other_ports(&world.robot).is_empty());
    for network in [78, 77] {
        let before = (world.dropped_packets(), Instant::now());
        world.route(network);
        wait_for_silence(&robot);
        world.wait_for_return(&robot, before);
        let remote = base.status().links[0].remote.clone();
        assert!(remote.starts_with(&format!("10.{network}.0.1:")), "{remote}");
        // The sockets of trials are closed.
        wait_for("one other port", || (other_ports(&world.robot).len() == 1).then_some(()));
    }
    robot.stop();
    base.stop();
}

#[test]
fn the_session_continues_by_the_other_port() {
    let place = Place::new(PROGRAM);
    let world = World::new(&place);
    let base = place.start_as("base", "base", "peers: { robot: {} }", Some(&world.base));
    let lines = format!("peers: {{ base: {{ address: {BASE} }} }}");
    let robot = place.start_as("robot", "robot", &lines, Some(&world.robot));
    robot.wait_for_state("base", "up");
    world.route(78);
    wait_for("the base station follows", || {
        let link = base.status().links.remove(0);
        (link.up && link.remote.starts_with("10.78.0.1:")).then_some(())
    });
    let sessions = |node: &Daemon| node.log().matches("new_session=true").count();
    assert_eq!([&robot, &base].map(sessions), [1, 1]);
    assert!(robot.log().contains("another source port is answered"));
}

#[test]
fn a_restarted_daemon_recovers_from_a_dead_translator_entry() {
    let place = Place::new(PROGRAM);
    let world = World::new(&place);
    let (base, robot) = (world.start_base(), world.start_robot());
    wait_for_scans(&robot);
    world.route(78);
    wait_for_silence(&robot);
    robot.stop();
    let before = (world.dropped_packets(), Instant::now());
    let robot = world.start_robot();
    world.wait_for_return(&robot, before);
    robot.stop();
    base.stop();
}

#[test]
fn a_link_returns_to_the_nodes_port_where_a_firewall_accepts_no_other() {
    let place = Place::new(PROGRAM);
    let world = World::new(&place);
    let (base, robot) = (world.start_base(), world.start_robot());
    wait_for_scans(&robot);
    world.route(78);
    wait_for_silence(&robot);
    wait_for_scans(&robot);
    wait_for("one other port", || (other_ports(&world.robot).len() == 1).then_some(()));
    // The entry of the node's port is right again.
    world.route(77);
    let firewall = format!("nft add rule ip providers in udp sport != {NODE_PORT} counter drop");
    world.base.run(&firewall);
    let begun = Instant::now();
    wait_for_silence(&robot);
    wait_for_scans(&robot);
    println!("scans again after {:?} by the node's port", begun.elapsed());
    wait_for("no other port", || other_ports(&world.robot).is_empty().then_some(()));
    robot.stop();
    base.stop();
}

#[test]
fn an_outage_does_not_change_ports() {
    let place = Place::new(PROGRAM);
    let [robot_side, base_side] = place.two_hosts();
    robot_side.join(&base_side);
    let base = start(&base_side, "base", "robot: { accept: \"/**\", address: 10.77.0.1 }");
    let robot = start(&robot_side, "robot", "base: { address: 10.77.0.2 }");
    robot.offer(SCAN);
    wait_for_scans(&robot);
    robot_side.run("nft add table ip outage");
    robot_side.run("nft add chain ip outage in { type filter hook input priority 0; }");
    robot_side.run("nft add chain ip outage out { type filter hook output priority 0; }");
    for _ in 0..3 {
        robot_side.run("nft add rule ip outage in drop");
        robot_side.run("nft add rule ip outage out drop");
        for side in [&robot_side, &base_side] {
            wait_for("a trial", || (other_ports(side).len() == 1).then_some(()));
        }
        robot_side.run("nft flush table ip outage");
        wait_for_scans(&robot);
        for side in [&robot_side, &base_side] {
            wait_for("no other port", || other_ports(side).is_empty().then_some(()));
        }
        assert!(is_heard(&robot) && is_heard(&base));
        assert_eq!(base.status().links[0].remote, format!("10.77.0.1:{NODE_PORT}"));
        assert_eq!(robot.status().links[0].remote, format!("10.77.0.2:{NODE_PORT}"));
    }
    robot.stop();
    base.stop();
}
