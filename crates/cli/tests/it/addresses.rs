// SPDX-License-Identifier: Apache-2.0
//! A base station with two addresses on one interface. The robot names the second one, and a firewall
//! lets in nothing but answers from there. Needs root and nft.

use crate::PROGRAM;
use std::path::Path;
use tautline_testkit::running::enclosure::Enclosure;
use tautline_testkit::running::{Daemon, Place, wait_for};

/// The second address of the base station.
const SECOND_ADDRESSES: [&str; 2] = ["10.77.0.12", "fd77::12"];

struct World {
    place: Place,
    robot: Enclosure,
    base: Enclosure,
}

fn forward(router: &Enclosure) {
    let script = "echo 1 > /proc/sys/net/ipv4/ip_forward; \
                  echo 1 > /proc/sys/net/ipv6/conf/all/forwarding";
    assert!(router.command("sh").args(["-c", script]).status().unwrap().success());
}

/// Adds the addresses of IPv6, and the second addresses of the base station.
fn address(base: &Enclosure, neighbour: &Enclosure) {
    neighbour.ip("addr add fd77::1/64 dev wire nodad");
    base.ip("addr add fd77::2/64 dev wire nodad");
    base.ip("addr add 10.77.0.12/24 dev wire");
    // Deprecated addresses are never selected by the kernel.
    base.ip("addr add fd77::12/64 dev wire nodad preferred_lft 0");
}

impl World {
    /// The robot's own firewall accepts only answers.
    fn with_firewall() -> Self {
        let place = Place::new(PROGRAM);
        let hosts: &Path = &place.hosts();
        let robot = Enclosure::new(hosts);
        let base = robot.neighbour(hosts);
        robot.join(&base);
        address(&base, &robot);
        robot.nft("add table inet guard");
        robot.nft("add chain inet guard input { type filter hook input priority 0; }");
        robot.nft("add rule inet guard input ct state established accept");
        robot.nft("add rule inet guard input meta l4proto udp drop");
        Self { place, robot, base }
    }

    /// The daemons; `known` is the robot's address in the base station's file.
    fn start(&self, second: &str, known: Option<&str>) -> [Daemon; 2] {
        let listen = "listen: \"[::]:18470\"\nbeacons: false";
        let links = |address: &str| format!("links: [{{ address: \"{address}\" }}]");
        let robot = format!("{listen}\npeers: {{ base: {{ {} }} }}", links(second));
        let of_robot = known.map_or(String::new(), links);
        let base = format!("{listen}\npeers: {{ robot: {{ {of_robot} }} }}");
        [
            self.place.start_as("robot", "robot", &robot, Some(&self.robot)),
            self.place.start_as("base", "base", &base, Some(&self.base)),
        ]
    }

    /// Waits until each end is up, and stays up for longer than a link without packets does.
    fn check(&self, second: &str, known: Option<&str>) {
        let [robot, base] = self.start(second, known);
        robot.wait_for_state("base", "up");
        base.wait_for_state("robot", "up");
        let received = |daemon: &Daemon| daemon.status().links[0].received_packets;
        let before = [received(&robot), received(&base)];
        wait_for(format!("heartbeats both ways by {second}"), || {
            let counts = [received(&robot) - before[0], received(&base) - before[1]];
            counts.iter().all(|count| *count >= 12).then_some(())
        });
        assert_eq!(robot.peer_state("base"), "up");
        assert_eq!(base.peer_state("robot"), "up");
    }
}

#[test]
fn answers_leave_from_the_address_that_was_asked() {
    let world = World::with_firewall();
    for second in SECOND_ADDRESSES {
        world.check(second, None);
    }
}

#[test]
fn a_configured_peer_is_answered_from_the_address_that_was_asked() {
    let world = World::with_firewall();
    for (second, known) in SECOND_ADDRESSES.into_iter().zip(["10.77.0.1", "fd77::1"]) {
        world.check(second, Some(known));
    }
}

#[test]
fn answers_pass_an_address_translator() {
    let place = Place::new(PROGRAM);
    let hosts: &Path = &place.hosts();
    let router = Enclosure::new(hosts);
    let (robot, base) = (router.neighbour(hosts), router.neighbour(hosts));
    router.join(&base);
    address(&base, &router);
    robot.join_by(&router, "lan", 78);
    robot.ip("addr add fd78::1/64 dev lan nodad");
    router.ip("addr add fd78::2/64 dev lan nodad");
    robot.ip("route add default via 10.78.0.2");
    robot.ip("-6 route add default via fd78::2");
    forward(&router);
    router.nft("add table inet nat");
    router.nft("add chain inet nat out { type nat hook postrouting priority 100; }");
    router.nft("add rule inet nat out oifname wire masquerade");
    let world = World { place, robot, base };
    for second in SECOND_ADDRESSES {
        world.check(second, None);
    }
}
