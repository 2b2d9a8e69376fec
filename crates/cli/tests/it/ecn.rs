// SPDX-License-Identifier: Apache-2.0
//! Explicit congestion notification through a router of the kernel, whose netfilter polices, marks,
//! clears and drops. Needs root and nft.

use crate::PROGRAM;
use std::time::{Duration, Instant};
use tautline::status::LinkReport;
use tautline_testkit::running::Place;
use tautline_testkit::running::enclosure::Enclosure;
use tautline_testkit::running::node::Running;
use tautline_testkit::running::wait_for;

const IMAGE: &str = "/image";
/// Bytes per second that the policers let pass.
const RATE: f64 = 500_000.0;
/// Bytes that the policers let pass at once.
const BURST: f64 = 20_000.0;
const RATE_LIMIT: &str = "limit rate over 500000 bytes/second burst 20000 bytes";

/// Two nodes, and a router between them.
struct World {
    router: Enclosure,
    robot: Running,
    base: Running,
    // Fields are dropped in order, and the networks must outlive their users.
    _ends: [Enclosure; 2],
}

impl World {
    /// `rules` are those of the router for packets from the robot.
    fn new(rules: &[&str]) -> Self {
        let place = Place::new(PROGRAM);
        let hosts = place.hosts();
        let router = Enclosure::new(&hosts);
        let ends = [router.neighbour(&hosts), router.neighbour(&hosts)];
        for (end, cable, network) in [(&ends[0], "left", 77), (&ends[1], "right", 78)] {
            end.join_by(&router, cable, network);
            end.ip(&format!("route add default via 10.{network}.0.2"));
        }
        let forward = ["-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"];
        assert!(router.command("sh").args(forward).status().unwrap().success());
        nft(&router, "add table ip road");
        nft(&router, "add chain ip road forward { type filter hook forward priority 0; }");
        nft(&router, "add counter ip road passed");
        for rule in rules {
            nft(&router, &format!("add rule ip road forward iifname left {rule}"));
        }
        nft(&router, "add rule ip road forward iifname left counter name passed");
        let listen = "listen: \"[::]:18470\"";
        let to = |name: &str, host: &str, more: &str| {
            format!("{listen}\npeers: {{ {name}: {{ links: [{{ address: {host} }}]{more} }} }}")
        };
        let topics = format!("\ntopics: {{ {IMAGE}: {{ priority: 20 }} }}");
        let robot = to("base", "10.78.0.1", "") + &topics;
        let robot = Running::start_in(Some(&ends[0]), "robot", &robot);
        let accept = ", accept: \"/**\"";
        let base = Running::start_in(Some(&ends[1]), "base", &to("robot", "10.77.0.1", accept));
        robot.offer(IMAGE);
        Self { router, robot, base, _ends: ends }
    }

    /// Publishes 6 Mbps for this time; returns the bytes per second that left the router.
    fn publish(&self, time: Duration) -> f64 {
        let (begun, before) = (Instant::now(), self.passed_bytes());
        while begun.elapsed() < time {
            self.robot.publish(IMAGE, 30_000);
            std::thread::sleep(Duration::from_millis(40));
        }
        let after = self.passed_bytes();
        (after - before - BURST) / begun.elapsed().as_secs_f64()
    }

    fn passed_bytes(&self) -> f64 {
        let mut list = self.router.command("nft");
        let output =
            list.args(["list", "counter", "ip", "road", "passed"]).output().unwrap().stdout;
        let text = String::from_utf8(output).unwrap();
        let bytes = text.split_whitespace().skip_while(|word| *word != "bytes").nth(1);
        bytes.unwrap().parse().unwrap()
    }

    fn link(&self) -> LinkReport {
        self.robot.status().links.remove(0)
    }

    fn stop(self) {
        self.robot.stop();
        self.base.stop();
    }
}

/// Returns the packets that did not arrive, without those whose acknowledgements were late on a busy
/// machine.
fn lost_packets(link: &LinkReport) -> u64 {
    link.lost_packets - link.late_packets
}

fn nft(inside: &Enclosure, command: &str) {
    let done = inside.command("nft").args(command.split(' ')).output().expect("nft");
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.success(), "this test needs nft: {command}: {said}");
}

#[test]
fn a_policer_that_marks_loses_nothing_and_its_rate_is_kept() {
    let dropping = World::new(&[&format!("{RATE_LIMIT} drop")]);
    let marking = World::new(&[&format!("ip ecn != not-ect {RATE_LIMIT} ip ecn set ce")]);
    let measured = [&dropping, &marking].map(|world| {
        world.publish(Duration::from_secs(3));
        let before = world.link();
        let rate = world.publish(Duration::from_secs(10));
        let after = world.link();
        (rate, lost_packets(&after) - lost_packets(&before), after)
    });
    println!("{measured:#?}");
    let [(_, lost_of_dropped, dropped), (rate, lost_of_marked, marked)] = &measured;
    assert!(*lost_of_dropped > 0 && dropped.marked_packets == 0, "{lost_of_dropped}");
    assert_eq!((marked.ecn.as_str(), *lost_of_marked), ("on", 0));
    assert!(marked.marked_packets > 0);
    assert!((0.8 * RATE..1.02 * RATE).contains(rate), "{rate}");
    [dropping, marking].into_iter().for_each(World::stop);
}

#[test]
fn a_path_that_clears_or_drops_the_ecn_field_delivers_all() {
    for rule in ["ip ecn set not-ect", "ip ecn != not-ect drop"] {
        let world = World::new(&[rule]);
        let delivered = world.robot.delivered(IMAGE);
        world.publish(Duration::from_secs(2));
        wait_for("messages after the path was found unfit", || {
            world.robot.publish(IMAGE, 30_000);
            let is_off = world.link().ecn == "off" && world.link().up;
            (is_off && world.robot.delivered(IMAGE) > delivered + 20).then_some(())
        });
        let found = world.link();
        println!("{rule}: {found:?}");
        assert_eq!(found.marked_packets, 0);
        assert!(lost_packets(&found) <= 16, "{rule}: {found:?}");
        world.stop();
    }
}
