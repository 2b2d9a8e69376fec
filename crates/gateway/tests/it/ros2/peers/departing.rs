// SPDX-License-Identifier: Apache-2.0
//! How rclpy's nodes see that our endpoints end: one by one, and all when the gateway stops.

use super::{Peer, Reach, STRING, join};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use tautline_gateway::ros2::DiscoveryRange;
use tautline_gateway::{Qos, Service};
use tautline_testkit::ros::ros2::{runs_in_own_network, string_topic};
use tautline_testkit::ros::{Agent, wait_for};

const TOPIC: &str = "/topic";
const SERVICE: &str = "/switch";
const TYPE: &str = "std_srvs/srv/SetBool";
/// The lease of a participant: after this time of silence, it counts as gone.
const LEASE: Duration = Duration::from_secs(10);

fn service() -> Service {
    Service {
        name: SERVICE.into(),
        type_name: TYPE.into(),
        type_hash: String::new(),
        definition: "bool data\n---\nbool success\nstring message\n".into(),
    }
}

fn counts(agent: &mut Agent) -> Value {
    agent.order(json!({"do": "counts", "topic": TOPIC, "service": SERVICE, "type": TYPE}))
}

/// Waits until every agent counts as many subscribers of its topic, and publishers of all.
fn wait_for_counts(agents: &mut [Agent], subscriptions: u32, publishers: u32, ready: bool) {
    for agent in agents {
        wait_for(format!("{subscriptions} subscribers, {publishers} publishers, {ready}"), || {
            let found = counts(agent);
            let as_expected = found["subscriptions"] == subscriptions
                && found["publishers"] == publishers
                && found["ready"] == ready;
            as_expected.then_some(())
        });
    }
}

#[test]
fn nodes_notice_when_our_endpoints_are_removed() {
    if !runs_in_own_network() {
        return;
    }
    let gateway = join(0, DiscoveryRange::Machine, "departing");
    let mut agents = vec![
        Peer::Kilted.start(Reach::Network, "kilted"),
        Peer::Jazzy.start(Reach::Loopback, "jazzy"),
    ];
    for agent in &mut agents {
        agent.publisher(TOPIC, STRING, json!({}));
    }
    gateway.offered(TOPIC);
    for _ in 0..2 {
        gateway.subscribe(TOPIC);
        gateway.advertise(&string_topic(TOPIC, Qos::default()));
        gateway.serve(&service());
        wait_for_counts(&mut agents, 1, 3, true);
        gateway.unsubscribe(TOPIC);
        gateway.unadvertise(TOPIC);
        gateway.unserve(SERVICE);
        wait_for_counts(&mut agents, 0, 2, false);
    }
    gateway.subscribe(TOPIC);
    gateway.advertise(&string_topic(TOPIC, Qos::default()));
    gateway.serve(&service());
    wait_for_counts(&mut agents, 1, 3, true);
    let stopping = Instant::now();
    gateway.shutdown();
    wait_for_counts(&mut agents, 0, 2, false);
    for agent in &mut agents {
        wait_for("our node's end", || {
            let nodes = counts(agent)["nodes"].to_string();
            (!nodes.contains("tautline_departing")).then_some(())
        });
    }
    let passed = stopping.elapsed();
    println!("gone after {passed:?}");
    assert!(passed < LEASE, "only the end of a lease removed our endpoints");
}
