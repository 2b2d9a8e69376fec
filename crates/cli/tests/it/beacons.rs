// SPDX-License-Identifier: Apache-2.0
//! Daemons without configured addresses of each other, in a separate network.

use crate::PROGRAM;
use tautline::keys;
use tautline_testkit::running::enclosure::Enclosure;
use tautline_testkit::running::{Daemon, Place, wait_for};

/// Two machines that are not yet connected by a cable.
struct Pair {
    place: Place,
    robot: Enclosure,
    base: Enclosure,
}

impl Pair {
    fn new() -> Self {
        let place = Place::new(PROGRAM);
        let [robot, base] = place.two_hosts();
        Self { place, robot, base }
    }

    fn joined() -> Self {
        let pair = Self::new();
        pair.robot.join(&pair.base);
        pair
    }

    fn start_robot(&self, lines: &str) -> Daemon {
        self.place.start_as("robot", "robot", lines, Some(&self.robot))
    }

    fn start_base(&self, lines: &str) -> Daemon {
        self.place.start_as("base", "base", lines, Some(&self.base))
    }

    /// Removes the IPv4 addresses; each machine keeps its link-local IPv6 address.
    fn take_ipv4_away(&self) {
        self.robot.ip("addr del 10.77.0.1/24 dev wire");
        self.base.ip("addr del 10.77.0.2/24 dev wire");
    }
}

fn wait_until_met(robot: &Daemon, base: &Daemon) {
    robot.wait_for_state("base", "up");
    base.wait_for_state("robot", "up");
    for daemon in [robot, base] {
        assert_eq!(daemon.status().links[0].radio, "wire", "paced as what it leaves by");
    }
}

/// Waits until a daemon's only link leads to an address with this prefix.
fn wait_for_remote(daemon: &Daemon, start: &str) {
    wait_for(format!("the link leads to {start}"), || {
        let remote = daemon.status().links[0].remote.clone();
        remote.starts_with(start).then_some(())
    });
}

const TO_BASE: &str = "peers: { base: {} }";
const TO_ROBOT: &str = "peers: { robot: {} }";

#[test]
fn a_node_with_beacons_is_found_over_ipv4_by_nodes_without_beacons() {
    let pair = Pair::joined();
    let v4 = "listen: 0.0.0.0:18470";
    for (of_robot, of_base) in [("true", "true"), ("true", "false"), ("false", "wire")] {
        let robot = pair.start_robot(&format!("{v4}\nbeacons: {of_robot}\n{TO_BASE}"));
        let base = pair.start_base(&format!("{v4}\nbeacons: {of_base}\n{TO_ROBOT}"));
        wait_until_met(&robot, &base);
        wait_for_remote(&base, "10.77.0.1:18470");
    }
}

#[test]
fn without_ipv4_nodes_connect_over_link_local_addresses() {
    let pair = Pair::joined();
    pair.take_ipv4_away();
    for (of_robot, of_base) in [("true", "true"), ("false", "[wire, later]")] {
        let robot = pair.start_robot(&format!("beacons: {of_robot}\n{TO_BASE}"));
        let base = pair.start_base(&format!("beacons: {of_base}\n{TO_ROBOT}"));
        wait_until_met(&robot, &base);
        wait_for_remote(&base, "[fe80::77:1%");
    }
}

#[test]
fn a_dual_stack_socket_receives_ipv4() {
    let pair = Pair::joined();
    // The node that sends beacons has no IPv6.
    let robot = pair.start_robot(&format!("listen: 0.0.0.0:18470\nbeacons: true\n{TO_BASE}"));
    let base = pair.start_base(&format!("listen: \"[::]:18470\"\n{TO_ROBOT}"));
    wait_until_met(&robot, &base);
    drop(robot);
    base.wait_for_state("robot", "down");
    // The reverse case.
    drop(base);
    let robot = pair.start_robot(&format!("listen: 0.0.0.0:18470\n{TO_BASE}"));
    let base = pair.start_base(&format!("listen: \"[::]:18470\"\nbeacons: true\n{TO_ROBOT}"));
    wait_until_met(&robot, &base);
}

#[test]
fn a_node_bound_to_one_address_is_found_by_its_beacons() {
    let pair = Pair::joined();
    let robot = pair.start_robot(&format!("listen: 10.77.0.1:18470\nbeacons: true\n{TO_BASE}"));
    assert!(robot.log().contains("'listen' names one address"), "{}", robot.log());
    let base = pair.start_base(TO_ROBOT);
    wait_until_met(&robot, &base);
}

#[test]
fn nodes_find_each_other_by_their_keys() {
    let pair = Pair::joined();
    let key = |name: &str| keys::generate(&pair.place.path(&format!("{name}.key"))).unwrap();
    let (robot_key, base_key) = (key("robot"), key("base"));
    let lines = |peer: &str| format!("beacons: true\npeers: {{ {peer} }}");
    let robot = pair.start_robot(&lines(&format!("base: {{ key: {base_key} }}")));
    let base = pair.start_base(&lines(&format!("robot: {{ key: {robot_key} }}")));
    wait_until_met(&robot, &base);
}

#[test]
fn beacons_follow_changes_of_interfaces() {
    let pair = Pair::new();
    let robot = pair.start_robot(&format!("beacons: true\n{TO_BASE}"));
    let base = pair.start_base(TO_ROBOT);
    for _ in 0..2 {
        pair.robot.join(&pair.base);
        wait_until_met(&robot, &base);
        pair.robot.ip("link delete wire");
        robot.wait_for_state("base", "down");
        base.wait_for_state("robot", "down");
    }
}

#[test]
fn a_robot_whose_address_changed_while_it_was_down_is_found_again() {
    // Once with its old address in the file, once without.
    for to_robot in ["robot: 10.77.0.1", "robot: {}"] {
        let pair = Pair::joined();
        let v4 = "listen: 0.0.0.0:18470\nbeacons: true";
        let base = pair.start_base(&format!("{v4}\npeers: {{ {to_robot} }}"));
        let robot = pair.start_robot(&format!("{v4}\n{TO_BASE}"));
        wait_until_met(&robot, &base);
        robot.kill();
        base.wait_for_state("robot", "down");
        pair.robot.ip("addr del 10.77.0.1/24 dev wire");
        pair.robot.ip("addr add 10.77.0.9/24 dev wire");
        let robot = pair.start_robot(&format!("{v4}\n{TO_BASE}"));
        wait_until_met(&robot, &base);
        wait_for_remote(&base, "10.77.0.9:18470");
    }
}
