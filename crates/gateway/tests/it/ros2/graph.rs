// SPDX-License-Identifier: Apache-2.0
//! Nodes of the domain that appear and end, and nodes of peers in their places.

use super::STRING;
use serde_json::json;
use tautline_gateway::description::{NodeInfo, Nodes};
use tautline_gateway::ros2::DiscoveryRange;
use tautline_gateway::{Command, Event, Qos};
use tautline_testkit::ros::ros2::{runs_in_own_network, start, string_topic, watch};
use tautline_testkit::ros::{Agent, wait_for};

#[test]
fn ended_nodes_are_removed_and_stand_ins_use_their_names() {
    if !runs_in_own_network() {
        return;
    }
    let gateway = watch(DiscoveryRange::Machine, "graph");
    gateway.handle(Command::Describe { nodes: true, parameters: false });
    // Waits for a report after event `since` with the expected nodes; returns the number of events so far.
    let reported = |since: usize, expected: &[&str]| {
        gateway.wait_since(since, &format!("report of {expected:?}"), |event| match event {
            Event::Nodes(nodes) => nodes.keys().eq(expected).then_some(()),
            _ => None,
        });
        gateway.event_count()
    };
    let mut viewer = start("kilted", "LOCALHOST", "viewer");
    let mut twin = start("kilted", "LOCALHOST", "twin");
    let leaving = start("kilted", "LOCALHOST", "leaving");
    let seen = reported(0, &["/leaving", "/twin", "/viewer"]);
    leaving.leave();
    let seen = reported(seen, &["/twin", "/viewer"]);
    twin.publisher("/own", STRING, json!({}));
    gateway.wait_since(seen, "its topic", |event| match event {
        Event::Nodes(nodes) => nodes["/twin"].publishes.contains("/own").then_some(()),
        _ => None,
    });

    let seen = gateway.event_count();
    gateway.advertise(&string_topic("/image", Qos::default()));
    let shown = NodeInfo { publishes: ["/image".to_owned()].into(), ..NodeInfo::default() };
    let nodes = Nodes::from([("/twin".into(), shown), ("/remote".into(), NodeInfo::default())]);
    gateway.handle(Command::ShowNodes { peer: 0, nodes });
    let publisher = |viewer: &mut Agent, expected: &str| {
        wait_for(format!("{expected} as the publisher"), || {
            let graph = viewer.graph("/image");
            let nodes = graph["nodes"].as_array().unwrap();
            let count = |name: &str| nodes.iter().filter(|it| *it == name).count();
            let is_there = (count("/remote"), count("/twin")) == (1, 1);
            (is_there && graph["publishers"][0]["node"] == expected).then_some(())
        });
    };
    publisher(&mut viewer, "/tautline_graph");
    // SIGKILL: the lease of its participant has to end.
    drop(twin);
    let seen = reported(seen, &["/viewer"]);
    publisher(&mut viewer, "/twin");
    let _twin = start("kilted", "LOCALHOST", "twin");
    reported(seen, &["/twin", "/viewer"]);
    publisher(&mut viewer, "/tautline_graph");
    gateway.shutdown();
}
