// SPDX-License-Identifier: Apache-2.0
//! Endpoints and samples that no correct node of ROS 2 makes, on purpose or by a fault: the gateway
//! survives them, reports them, and serves the others.

use super::role::{Orders, played_role, raw_writer};
use super::{
    Peer, Reach, STRING, SizedTexts, begin, join, message, sizes_read, until_got, until_read,
};
use serde_json::json;
use std::time::Instant;
use tautline_gateway::rejections::{Reason, Rejected};
use tautline_gateway::ros2::DiscoveryRange;
use tautline_gateway::ros2::graph::TOPIC as GRAPH;
use tautline_gateway::{Event, Qos};
use tautline_testkit::ros::ros2::{runs_in_own_network, string_topic};
use tautline_testkit::ros::{Watched, wait_for};

const DDS_STRING: &str = "std_msgs::msg::dds_::String_";

fn offers(gateway: &Watched, prefix: &str) -> usize {
    let fits =
        |event: &&Event| matches!(event, Event::Offered(topic) if topic.name.starts_with(prefix));
    gateway.events().iter().filter(fits).count()
}

/// The memory in MB and the processor time in seconds that this process uses.
fn usage() -> (u64, f64) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    let kilobytes: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    let ticks: f64 = fields[11..13].iter().map(|field| field.parse::<f64>().unwrap()).sum();
    (kilobytes / 1024, ticks / 100.0)
}

#[test]
fn ten_thousand_endpoints_are_tracked_and_the_excess_is_reported() {
    if !runs_in_own_network() {
        return;
    }
    let gateway = join(0, DiscoveryRange::Machine, "many");
    let mut node = Peer::Kilted.start(Reach::Network, "node");
    node.publisher("/node", STRING, json!({}));
    gateway.subscribe("/node");
    until_read(&gateway, "/node", || node.send_text("/node", 0));
    let mut size = 0;
    // Other nodes are served while all endpoints are discovered, and afterwards.
    let mut served = || {
        size += 1;
        node.send_text("/node", size);
        wait_for("message of another node", || {
            (sizes_read(&gateway, "/node").last() == Some(&size)).then_some(())
        });
    };
    let (before, start) = (usage(), Instant::now());
    let mut crowd: Vec<_> = (0..4).map(|_| Peer::Cyclone10.start(Reach::Loopback, "")).collect();
    for (number, agent) in crowd.iter_mut().take(2).enumerate() {
        let topic = format!("/crowd{number}/t");
        agent.order(json!({"do": "many", "topic": topic, "count": 5_000}));
    }
    wait_for("offer of 10 000 topics", || {
        served();
        (offers(&gateway, "/crowd") == 10_000).then_some(())
    });
    let after = usage();
    println!(
        "10 000 endpoints: {:.1} s, {} MB more, {:.1} s of processor time",
        start.elapsed().as_secs_f64(),
        after.0 - before.0,
        after.1 - before.1
    );
    assert!(!gateway.status().trouble.contains("too many"), "{}", gateway.status().trouble);
    for (number, agent) in crowd.iter_mut().enumerate().skip(2) {
        let topic = format!("/crowd{number}/t");
        agent.order(json!({"do": "many", "topic": topic, "count": 5_000}));
    }
    wait_for("word of those left out", || {
        served();
        gateway.status().trouble.contains("the domain has too many endpoints").then_some(())
    });
    crowd.into_iter().for_each(tautline_testkit::ros::Agent::leave);
    gateway.wait_withdrawn("/crowd0/t4999");
    served();
}

/// Encapsulations other than that of CDR: parameter lists, and XCDR2 in each of its forms.
const OTHER_KINDS: [[u8; 2]; 8] =
    [[0, 2], [0, 3], [0, 6], [0, 7], [0, 8], [0, 9], [0, 10], [0, 11]];

/// Each beginning of a message that has the size of a sample, a multiple of four.
fn truncated_messages(size: usize) -> impl Iterator<Item = Vec<u8>> {
    let whole = message(size);
    (4..whole.len()).step_by(4).map(move |length| whole[..length].to_vec())
}

#[test]
fn invalid_and_truncated_samples_are_counted_and_dropped() {
    if played_role() || !runs_in_own_network() {
        return;
    }
    let gateway = join(0, DiscoveryRange::Machine, "odd");
    gateway.subscribe("/raw");
    let (mut raw, mut mutes) = (begin(raw_writer()), Vec::new());
    // After a sample of an unknown kind, Cyclone DDS takes nothing more of its writer: an empty
    // sample, XML, and a kind that is not assigned.
    for sample in [&[][..], &[0, 4, 0, 0], &[0x12, 0x34, 0, 0]] {
        let mut mute = begin(raw_writer());
        mute.raw_write("rt/raw", DDS_STRING, sample);
        mutes.push(mute);
    }
    for kind in OTHER_KINDS {
        raw.raw_write("rt/raw", DDS_STRING, &[&kind[..], &message(9)[2..]].concat());
    }
    let passed_on: Vec<_> = truncated_messages(9).chain([message(5)]).collect();
    for sample in &passed_on {
        raw.raw_write("rt/raw", DDS_STRING, sample);
    }
    wait_for("sound message and those cut before it", || {
        let read = gateway.messages("/raw");
        (read.len() >= passed_on.len()).then_some(())
    });
    for ((_, read), written) in gateway.messages("/raw").iter().zip(&passed_on) {
        assert!(crate::ros2::equal_without_padding(read, written), "{read:?} of {written:?}");
    }
    let rejected = gateway.status().rejected;
    let (count, reason) = (OTHER_KINDS.len() as u64, Reason::NotCdr);
    assert_eq!(rejected, [Rejected { topic: "/raw".into(), reason, count }]);

    // The graph's messages are read by the gateway itself.
    for length in 0..64 {
        let greedy = [&[0, 1, 0, 0], &vec![0xff; length][..]].concat();
        raw.raw_write(GRAPH, "rmw_dds_common::msg::dds_::ParticipantEntitiesInfo_", &greedy);
    }

    // The subscriber must detect truncated content, here and at the far side.
    let mut agents: Vec<_> =
        Peer::ALL.iter().map(|peer| peer.start(Reach::Network, "cut")).collect();
    gateway.advertise(&string_topic("/cut", Qos::default()));
    for agent in &mut agents {
        agent.listener("/cut", json!({}));
        until_got(agent, "/cut", || gateway.publish("/cut", 0, message(0)));
    }
    for sample in truncated_messages(9) {
        gateway.publish("/cut", 0, sample);
    }
    for agent in &agents {
        let mut size = 100;
        wait_for("sound message after those that were cut", || {
            size += 1;
            gateway.publish("/cut", 0, message(size));
            agent.sizes_got("/cut").iter().any(|got| *got > 100).then_some(())
        });
    }
    wait_for("our node in the graph", || {
        let nodes = agents[0].graph("/cut")["nodes"].to_string();
        nodes.contains("/tautline_odd").then_some(())
    });
}

#[test]
fn invalid_ros_types_are_not_offered() {
    if !runs_in_own_network() {
        return;
    }
    let gateway = join(0, DiscoveryRange::Machine, "types");
    let mut agent = Peer::Cyclone10.start(Reach::Network, "");
    for kind in ["keyed", "unsound", "foreign"] {
        gateway.subscribe(&format!("/odd/{kind}"));
        agent.order(json!({"do": "odd", "topic": format!("/odd/{kind}"), "kind": kind}));
    }
    // Announced last: by then the others are known.
    let foreign = gateway.offered("/odd/foreign");
    assert_eq!(offers(&gateway, "/odd"), 1, "{:?}", gateway.events());
    // There is neither a hash of its writer nor a definition.
    let offered = (&*foreign.type_name, &*foreign.type_hash, &*foreign.definition);
    assert_eq!(offered, ("foreign_msgs/msg/New", "", ""));
}

#[test]
fn a_graph_with_humble_guids_gets_humble_guids() {
    if !runs_in_own_network() {
        return;
    }
    let gateway = join(0, DiscoveryRange::Machine, "old");
    gateway.advertise(&string_topic("/shown", Qos::default()));
    let mut agent = Peer::Cyclone10.start(Reach::Loopback, "");
    agent.order(json!({"do": "join_graph"}));
    agent.wait("our node with its writer", |report| {
        report["node"] == "tautline_old" && report["namespace"] == "/" && report["writers"] == 1
    });
    // Later changes are written so as well.
    gateway.advertise(&string_topic("/shown_too", Qos::default()));
    agent.wait("our node with two writers", |report| report["writers"] == 2);
}
