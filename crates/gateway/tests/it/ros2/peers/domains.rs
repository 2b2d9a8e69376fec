// SPDX-License-Identifier: Apache-2.0
//! Several domains, gateways and machines: each gateway carries only what belongs to it.

use super::role::{Orders, other_gateway, played_role};
use super::{
    Peer, Reach, STRING, SizedTexts, begin, join, message, sizes_read, until_got, until_read,
};
use serde_json::json;
use std::io::Read;
use std::process::{Child, Command as Process, Stdio};
use tautline_gateway::ros2::DiscoveryRange;
use tautline_gateway::{Event, Qos};
use tautline_testkit::ros::ros2::{runs_in_own_network, string_topic};
use tautline_testkit::ros::{Agent, Watched, wait_for};

/// Messages sent each way before the test checks that nobody else got one.
const ROUNDS: usize = 100;
/// Added to the sizes of a further sender's messages, to tell them from those of the first.
const OTHER: usize = 10_000;

fn offers(gateway: &Watched, name: &str) -> usize {
    let fits = |event: &&Event| matches!(event, Event::Offered(topic) if topic.name == name);
    gateway.events().iter().filter(fits).count()
}

fn reported_offers(agent: &Agent, name: &str) -> usize {
    agent.reports().iter().filter(|report| report["offered"] == name).count()
}

#[test]
fn domains_of_one_machine_are_separate() {
    if !runs_in_own_network() {
        return;
    }
    let mut sides: Vec<_> = [(0, Peer::Kilted, 0), (7, Peer::Jazzy, OTHER)]
        .map(|(domain, peer, base)| {
            let gateway = join(domain, DiscoveryRange::Machine, "domains");
            let mut agent = begin(peer.program(Reach::Network, domain, "node"));
            agent.publisher("/same", STRING, json!({}));
            agent.publisher(&format!("/only{domain}"), STRING, json!({}));
            gateway.offered("/same");
            gateway.offered(&format!("/only{domain}"));
            gateway.subscribe("/same");
            gateway.advertise(&string_topic("/back", Qos::default()));
            agent.listener("/back", json!({}));
            until_read(&gateway, "/same", || agent.send_text("/same", base));
            until_got(&agent, "/back", || gateway.publish("/back", 0, message(base)));
            (gateway, agent, base)
        })
        .into();
    for (gateway, agent, base) in &mut sides {
        for round in 1..=ROUNDS {
            agent.send_text("/same", *base + round);
            gateway.publish("/back", 0, message(*base + round));
        }
    }
    for (gateway, agent, base) in &sides {
        let last = *base + ROUNDS;
        wait_for("last message read", || {
            sizes_read(gateway, "/same").contains(&last).then_some(())
        });
        wait_for("last message got", || agent.sizes_got("/back").contains(&last).then_some(()));
    }
    for (gateway, agent, base) in &sides {
        let all = [sizes_read(gateway, "/same"), agent.sizes_got("/back")].concat();
        assert!(all.iter().all(|size| (*base..=*base + ROUNDS).contains(size)), "{all:?}");
    }
    assert_eq!((offers(&sides[0].0, "/only7"), offers(&sides[1].0, "/only0")), (0, 0));
}

#[test]
fn two_gateways_in_a_domain_do_not_carry_topics_of_each_other() {
    if played_role() || !runs_in_own_network() {
        return;
    }
    let gateway = join(0, DiscoveryRange::Machine, "this");
    let mut other = begin(other_gateway());
    let mut node = Peer::Kilted.start(Reach::Network, "node");
    node.publisher("/shared", STRING, json!({}));
    gateway.offered("/shared");
    other.gateway_offered("/shared");
    gateway.subscribe("/shared");
    other.gateway_order("subscribe", "/shared");
    // Each publishes a topic of its own, and one that the node publishes as well.
    for topic in ["/of_this", "/shared"] {
        gateway.advertise(&string_topic(topic, Qos::default()));
    }
    for topic in ["/of_other", "/shared"] {
        other.gateway_order("advertise", topic);
    }
    for topic in ["/of_this", "/of_other", "/shared"] {
        node.listener(topic, json!({}));
    }
    other.gateway_order("subscribe", "/of_this");
    gateway.subscribe("/of_other");
    until_got(&node, "/of_this", || gateway.publish("/of_this", 0, message(OTHER)));
    until_got(&node, "/of_other", || other.gateway_publish("/of_other", 2 * OTHER));
    until_read(&gateway, "/shared", || node.send_text("/shared", 0));
    until_got(&other, "/shared", || node.send_text("/shared", 0));
    for round in 1..=ROUNDS {
        node.send_text("/shared", round);
        for topic in ["/of_this", "/shared"] {
            gateway.publish(topic, 0, message(OTHER + round));
        }
        for topic in ["/of_other", "/shared"] {
            other.gateway_publish(topic, 2 * OTHER + round);
        }
        // Wait for each, so that the next message does not push it out of its writer's history.
        for size in [round, OTHER + round, 2 * OTHER + round] {
            wait_for("message at the node", || {
                node.sizes_got("/shared").contains(&size).then_some(())
            });
        }
    }
    wait_for("last of the node's", || {
        let all = [sizes_read(&gateway, "/shared"), other.sizes_got("/shared")];
        all.iter().all(|sizes| sizes.contains(&ROUNDS)).then_some(())
    });
    for sizes in [sizes_read(&gateway, "/shared"), other.sizes_got("/shared")] {
        assert!(sizes.iter().all(|size| *size <= ROUNDS), "a gateway's was read: {sizes:?}");
    }
    assert_eq!((offers(&gateway, "/shared"), offers(&gateway, "/of_other")), (1, 0));
    assert_eq!((reported_offers(&other, "/shared"), reported_offers(&other, "/of_this")), (1, 0));
    assert!(gateway.messages("/of_other").is_empty() && other.received("/of_this").is_empty());
}

/// Another machine on this one's network: a namespace that has the other end of its link.
struct Machine(Child);

impl Machine {
    fn start() -> Self {
        let mut program = Process::new("unshare");
        // It ends with its input, that is, when this process ends.
        program.args(["--net", "--", "sh", "-c", "echo there; exec cat"]);
        let mut child = program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0; 6]).unwrap();
        let id = child.id().to_string();
        let machine = Self(child);
        run(Process::new("ip").args(["link", "set", "v1", "netns", &id]));
        for command in [
            "ip link set lo up",
            "ip address add 10.77.0.2/24 dev v1",
            "ip link set v1 up",
            "ip route add default via 10.77.0.1",
            // Counts all datagrams except its own multicasts, which the kernel loops back.
            "iptables -t raw -A PREROUTING -i v1 -p udp ! -s 10.77.0.2",
        ] {
            let mut words = command.split(' ');
            let mut program = Process::new(words.next().unwrap());
            program.args(words);
            run(&mut machine.on(&program));
        }
        machine
    }

    /// The same program, to run on this machine.
    fn on(&self, program: &Process) -> Process {
        let mut there = Process::new("nsenter");
        there.arg(format!("--net=/proc/{}/ns/net", self.0.id())).arg("--");
        there.arg(program.get_program()).args(program.get_args());
        for (name, value) in program.get_envs() {
            match value {
                Some(value) => there.env(name, value),
                None => there.env_remove(name),
            };
        }
        there
    }

    /// Datagrams that came over the link.
    fn datagrams(&self) -> u64 {
        let mut list = Process::new("iptables");
        list.args(["-t", "raw", "-nvxL", "PREROUTING"]);
        let listed = run(&mut self.on(&list));
        let rule = listed.lines().find(|line| line.contains(" v1 ")).expect("the rule");
        rule.split_whitespace().next().unwrap().parse().unwrap()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn run(program: &mut Process) -> String {
    let output = program.output().unwrap();
    assert!(output.status.success(), "{program:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn topics_of_another_machine_in_the_domain_are_not_carried() {
    if played_role() || !runs_in_own_network() {
        return;
    }
    let machine = Machine::start();
    let gateway = join(0, DiscoveryRange::Machine, "near");
    let other = other_gateway();
    let mut far_gateway = begin(machine.on(&other));

    // So far there are only gateways, and a program that uses only loopback.
    let mut quiet = Peer::Cyclone10.start(Reach::Loopback, "quiet");
    quiet.publisher("/quiet", STRING, json!({}));
    gateway.advertise(&string_topic("/copy", Qos::default()));
    quiet.listener("/copy", json!({}));
    gateway.subscribe("/quiet");
    until_read(&gateway, "/quiet", || quiet.send_text("/quiet", 1));
    until_got(&quiet, "/copy", || gateway.publish("/copy", 0, message(1)));
    for round in 1..=ROUNDS {
        quiet.send_text("/quiet", round);
        gateway.publish("/copy", 0, message(round));
        wait_for("message read", || {
            (sizes_read(&gateway, "/quiet").contains(&round)).then_some(())
        });
        wait_for("message got", || (quiet.sizes_got("/copy").contains(&round)).then_some(()));
    }
    assert_eq!(machine.datagrams(), 0, "datagrams of the gateway crossed the link");

    let mut near = Peer::Kilted.start(Reach::Network, "near");
    let mut far = begin(machine.on(&Peer::Jazzy.program(Reach::Network, 0, "far")));
    for (agent, own) in [(&mut near, "/near"), (&mut far, "/far")] {
        agent.publisher(own, STRING, json!({}));
        agent.publisher("/both", STRING, json!({}));
        agent.listener("/both", json!({}));
        agent.listener("/copy", json!({}));
    }
    for topic in ["/near", "/both"] {
        gateway.offered(topic);
    }
    for topic in ["/far", "/both"] {
        far_gateway.gateway_offered(topic);
    }
    gateway.subscribe("/both");
    far_gateway.gateway_order("subscribe", "/both");
    until_got(&near, "/copy", || gateway.publish("/copy", 0, message(0)));
    until_read(&gateway, "/both", || near.send_text("/both", 0));
    until_got(&far_gateway, "/both", || far.send_text("/both", OTHER));
    wait_for("meeting of the two nodes", || {
        near.send_text("/both", 0);
        far.send_text("/both", OTHER);
        let matched =
            near.sizes_got("/both").contains(&OTHER) && far.sizes_got("/both").contains(&0);
        matched.then_some(())
    });
    for round in 1..=ROUNDS {
        near.send_text("/both", round);
        far.send_text("/both", OTHER + round);
        gateway.publish("/copy", 0, message(round));
        // The two nodes do hear each other.
        for agent in [&near, &far] {
            for size in [round, OTHER + round] {
                wait_for("message between nodes", || {
                    agent.sizes_got("/both").contains(&size).then_some(())
                });
            }
        }
    }
    wait_for("last of each own", || {
        let (here, there) = (sizes_read(&gateway, "/both"), far_gateway.sizes_got("/both"));
        (here.contains(&ROUNDS) && there.contains(&(OTHER + ROUNDS))).then_some(())
    });
    assert!(machine.datagrams() > 0, "the count sees what nodes send");
    assert!(sizes_read(&gateway, "/both").iter().all(|size| *size <= ROUNDS));
    assert!(far_gateway.sizes_got("/both").iter().all(|size| *size >= OTHER));
    assert_eq!((offers(&gateway, "/far"), reported_offers(&far_gateway, "/near")), (0, 0));
    assert_eq!(reported_offers(&far_gateway, "/copy"), 0);
    assert!(far.received("/copy").is_empty(), "the gateway served another machine's node");
}
