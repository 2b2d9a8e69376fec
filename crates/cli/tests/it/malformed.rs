// SPDX-License-Identifier: Apache-2.0
//! A peer whose payloads do not match their type, and an honest peer, for real nodes: their
//! subscribers and clients continue.

use crate::PROGRAM;
use serde_json::json;
use std::time::Duration;
use tautline_gateway::observations::OBSERVATIONS;
use tautline_proto::wire::control::Control;
use tautline_proto::wire::frame::Data;
use tautline_testkit::peer::{Peer, data, message_frames, topic};
use tautline_testkit::ros::ros1;
use tautline_testkit::ros::ros1::Master;
use tautline_testkit::ros::ros2;
use tautline_testkit::ros::{Agent, bytes_of, wait_for};
use tautline_testkit::running::{Daemon, Place, free_port, hostile};

const TIMEOUT: Duration = Duration::from_secs(40);
/// More elements than any message has: 8 GB of `float32`.
const FALSE_LENGTH: u32 = 0x7fff_ffff;

/// A topic as a peer advertises it.
#[derive(Clone, Copy)]
struct Offer {
    channel: u64,
    name: &'static str,
    type_name: &'static str,
    type_hash: &'static str,
}

/// Returns two peers of a daemon, each with these topics, when all of them are read there.
fn meet(port: u16, offers: &[Offer]) -> [Peer; 2] {
    ["liar", "robot"].map(|name| {
        let mut peer = hostile::meet(name, "base", port);
        for it in offers {
            peer.offer(it.channel, topic(it.name, it.type_name, it.type_hash));
            // The types are installed at the base; an empty definition is not used.
            peer.control(&Control::Definition { channel: it.channel, text: "".into() });
        }
        let is_read =
            |peer: &Peer| offers.iter().all(|it| peer.heard.wanted.get(&it.channel) == Some(&true));
        assert!(peer.run_until(TIMEOUT, is_read).unwrap(), "{name}: {:?}", peer.heard);
        peer
    })
}

fn send(peer: &mut Peer, offer: Offer, number: u64, payload: &[u8]) {
    for frame in message_frames(data(offer.channel, number, None), payload, Data::emit) {
        peer.send(&frame).unwrap();
    }
}

/// Sends messages of the robot until one arrives.
fn arrives(
    robot: &mut Peer,
    offer: Offer,
    numbers: &mut std::ops::RangeFrom<u64>,
    payload: &[u8],
    at: (&Agent, &str),
) {
    let before = at.0.received(at.1).len();
    wait_for(format!("message of the robot on {}", at.1), || {
        let number = numbers.next().unwrap();
        send(robot, offer, number, payload);
        robot
            .run_until(Duration::from_millis(200), |_| at.0.received(at.1).len() > before)
            .unwrap();
        (at.0.received(at.1).len() > before).then_some(())
    });
}

fn wait_for_malformed(daemon: &Daemon, topic: &str, count: u64) {
    wait_for(format!("{count} malformed on {topic}"), || {
        let topics = daemon.status().topics;
        let found = topics.iter().find(|it| it.topic == topic && it.peer == "liar")?;
        (found.dropped.get("malformed") == Some(&count)).then_some(())
    });
}

/// A text with its length in front, as ROS 1 writes it.
fn ros1_string(text: &str) -> Vec<u8> {
    [&(text.len() as u32).to_le_bytes()[..], text.as_bytes()].concat()
}

/// `rosgraph_msgs/Log` that claims to have this number of topics, and has none.
fn log(topics: u32) -> Vec<u8> {
    let parts = ["/node", "text", "file", "function"].map(ros1_string).concat();
    [&[0; 12][..], &ros1_string("frame"), &[2], &parts, &[0; 4], &topics.to_le_bytes()].concat()
}

#[test]
fn a_malformed_payload_does_not_end_ros_1_subscribers() {
    let shared = Offer {
        channel: 1,
        name: "/shared",
        type_name: "std_msgs/UInt8MultiArray",
        type_hash: "82373f1612381bb6ee473b5cd6f5d89c",
    };
    let rosout = Offer {
        channel: 2,
        name: "/log",
        type_name: "rosgraph_msgs/Log",
        type_hash: "acffd30cd6b6de30f120938c17c593fb",
    };
    let (place, port, master) = (Place::new(PROGRAM), free_port(), Master::shared());
    let accept = "accept: { /shared: std_msgs/UInt8MultiArray, /log: rosgraph_msgs/Log }";
    let peer = format!("{{ {accept}, remap: {{ /log: /rosout }} }}");
    let base = place.start(
        "base",
        &format!(
            "listen: \"127.0.0.1:{port}\"\nros1: {{ master: \"{}\", host: 127.0.0.1 }}\n\
             peers: {{ liar: {peer}, robot: {peer} }}",
            master.uri
        ),
    );
    let mut rospy = ros1::start(&master.uri, "/at_base");
    rospy.subscribe("/shared", "std_msgs/UInt8MultiArray");
    // rosout, a roscpp node, publishes there what it reads on /rosout.
    rospy.subscribe("/rosout_agg", "rosgraph_msgs/Log");
    let [mut liar, mut robot] = meet(port, &[shared, rosout]);
    let good = [&[0; 8][..], &ros1_string("data")].concat();
    let mut numbers = 1..;
    arrives(&mut robot, shared, &mut numbers, &good, (&rospy, "/shared"));
    let mut at_rosout = 1..;
    arrives(&mut robot, rosout, &mut at_rosout, &log(0), (&rospy, "/rosout_agg"));
    send(&mut liar, shared, 1, &[7]);
    send(&mut liar, rosout, 1, &log(FALSE_LENGTH));
    wait_for_malformed(&base, "/shared", 1);
    wait_for_malformed(&base, "/rosout", 1);
    arrives(&mut robot, shared, &mut numbers, &good, (&rospy, "/shared"));
    arrives(&mut robot, rosout, &mut at_rosout, &log(0), (&rospy, "/rosout_agg"));
    assert!(rospy.received("/shared").iter().all(|got| bytes_of(got) == good));
    base.wait_for_notice(&["/shared: a message of 'liar' is dropped", "std_msgs/UInt8MultiArray"]);
    base.wait_for_notice(&["/rosout: a message of 'liar' is dropped", "topics[0]"]);
    assert!(base.status().unchecked.is_empty(), "{:?}", base.status().unchecked);
}

/// A string in CDR: its length, its bytes and a NUL.
fn cdr_text(text: &str) -> Vec<u8> {
    [&(text.len() as u32 + 1).to_le_bytes()[..], text.as_bytes(), &[0]].concat()
}

/// `sensor_msgs/msg/LaserScan` in CDR that claims to have this number of ranges, and has none.
fn scan(ranges: u32) -> Vec<u8> {
    // The text of four bytes ends at a multiple of four.
    let header = [&[0; 8][..], &cdr_text("abc")].concat();
    [&[0, 1, 0, 0][..], &header, &[0; 28], &ranges.to_le_bytes(), &[0; 4]].concat()
}

#[test]
fn a_malformed_payload_does_not_end_ros_2_subscribers() {
    if !ros2::runs_in_own_network() {
        return;
    }
    let hash = |name: &str| {
        let found = OBSERVATIONS.iter().find(|(it, ..)| *it == name);
        &*format!("RIHS01_{}", found.unwrap().2).leak()
    };
    let scans = Offer {
        channel: 1,
        name: "/scan",
        type_name: "sensor_msgs/msg/LaserScan",
        type_hash: hash("sensor_msgs/LaserScan"),
    };
    let texts = Offer {
        channel: 2,
        name: "/text",
        type_name: "std_msgs/msg/String",
        type_hash: ros2::STRING_HASH,
    };
    let (place, port) = (Place::new(PROGRAM), free_port());
    let kilted = ros2::installation("kilted").canonicalize().unwrap();
    let peer = "{ accept: { /text: std_msgs/msg/String, /scan: sensor_msgs/msg/LaserScan } }";
    let base = place.start(
        "base",
        &format!(
            "listen: \"127.0.0.1:{port}\"\nros1: false\n\
             ros2: {{ domain: 0, definitions: {} }}\npeers: {{ liar: {peer}, robot: {peer} }}",
            kilted.display()
        ),
    );
    let mut nodes = ["kilted", "jazzy"].map(|version| ros2::start(version, "SUBNET", version));
    for node in &mut nodes {
        node.subscriber("/scan", scans.type_name, json!({}));
        node.subscriber("/text", texts.type_name, json!({}));
    }
    let [mut liar, mut robot] = meet(port, &[scans, texts]);
    let good = [&[0, 1, 0, 0][..], &cdr_text("text")].concat();
    let (mut scans_sent, mut texts_sent) = (1.., 1..);
    let mut all_arrive = |robot: &mut Peer| {
        for node in &nodes {
            arrives(robot, scans, &mut scans_sent, &scan(0), (node, "/scan"));
            arrives(robot, texts, &mut texts_sent, &good, (node, "/text"));
        }
    };
    all_arrive(&mut robot);
    let false_length = [&good[..4], &FALSE_LENGTH.to_le_bytes(), b"x\0\0\0"].concat();
    let no_end = [&good[..4], &[2, 0, 0, 0], b"xy"].concat();
    for (number, bad) in (1..).zip([&[7][..], &good[..8], &false_length, &no_end]) {
        send(&mut liar, texts, number, bad);
    }
    send(&mut liar, scans, 1, &scan(FALSE_LENGTH));
    send(&mut liar, scans, 2, &scan(0)[..50]);
    wait_for_malformed(&base, "/text", 4);
    wait_for_malformed(&base, "/scan", 2);
    all_arrive(&mut robot);
    base.wait_for_notice(&["/scan: a message of 'liar' is dropped", "ranges: "]);
    assert!(base.status().unchecked.is_empty(), "{:?}", base.status().unchecked);
}
