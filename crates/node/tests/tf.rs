// SPDX-License-Identifier: Apache-2.0
//! tf from one ROS 1 robot to another through two daemons: real masters, real rospy nodes.

#[allow(dead_code)]
mod running;

#[allow(dead_code)]
#[path = "../../gateway/tests/ros/bench.rs"]
mod bench;
#[allow(dead_code)]
#[path = "../../gateway/tests/ros/ros1/nodes.rs"]
mod nodes;

use bench::{Agent, free_port};
use nodes::Master;
use running::{Daemon, Place};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use tautline_node::status::Direction;

const TF: &str = "tf2_msgs/TFMessage";
const MESSAGES: u64 = 300;

/// Two robots with a master and a daemon each.
struct Pair {
    masters: [Master; 2],
    daemons: [Daemon; 2],
    _place: Place,
}

impl Pair {
    /// Starts the pair; `lines` of the file of `robot` determine what it sends.
    fn start(lines: &str) -> Self {
        let place = Place::new();
        let masters = [(); 2].map(|()| Master::alone(free_port()));
        let ports = [(); 2].map(|()| running::free_port());
        let file = |here: usize, peer: &str, lines: &str| {
            let (uri, port, there) = (&masters[here].uri, ports[here], ports[1 - here]);
            format!(
                "listen: \"127.0.0.1:{port}\"\nros1: {{ master: \"{uri}\", host: 127.0.0.1 }}\n\
                 peers: {{ {peer}: {{ address: \"127.0.0.1:{there}\", accept: \"/**\" }} }}\n{lines}"
            )
        };
        let daemons = [
            place.start("robot", &file(0, "base", lines)),
            place.start("base", &file(1, "robot", "")),
        ];
        Self { masters, daemons, _place: place }
    }

    fn agent(&self, side: usize, name: &str) -> Agent {
        nodes::start(&self.masters[side].uri, name)
    }
}

/// Returns a message's fields: `parent>child@x`, stamped 7 s.
fn fields(transforms: &[&str]) -> Value {
    let each = transforms.iter().map(|transform| {
        let (names, x) = transform.split_once('@').unwrap();
        let (parent, child) = names.split_once('>').unwrap();
        json!({
            "header": { "frame_id": parent, "stamp": { "secs": 7 } },
            "child_frame_id": child,
            "transform": { "translation": { "x": x.parse::<f64>().unwrap() }, "rotation": { "w": 1.0 } },
        })
    });
    json!({ "transforms": each.collect::<Vec<_>>() })
}

/// Returns each child of a message with its parent and x.
fn read(report: &Value) -> BTreeMap<String, (String, f64)> {
    let transforms = report["fields"]["transforms"].as_array().unwrap();
    let each = transforms.iter().map(|it| {
        assert_eq!(it["header"]["stamp"]["secs"], 7);
        assert_eq!(it["transform"]["rotation"]["w"], 1.0);
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let x = it["transform"]["translation"]["x"].as_f64().unwrap();
        (text(&it["child_frame_id"]), (text(&it["header"]["frame_id"]), x))
    });
    let read: BTreeMap<_, _> = each.collect();
    assert_eq!(read.len(), transforms.len(), "a frame twice in one message");
    read
}

fn expected(transforms: &[(&str, &str, f64)]) -> BTreeMap<String, (String, f64)> {
    let each =
        transforms.iter().map(|(parent, child, x)| (child.to_string(), (parent.to_string(), *x)));
    each.collect()
}

fn subscribe(agent: &mut Agent, topic: &str) {
    agent.order(json!({ "do": "subscribe", "topic": topic, "type": TF, "fields": true }));
}

/// Waits for a message with these transforms.
fn wait_for(agent: &Agent, topic: &str, expected: &BTreeMap<String, (String, f64)>) {
    agent.wait(&format!("{expected:?}"), |report| {
        report["got"] == topic && read(report) == *expected
    });
}

#[test]
fn static_transforms_of_all_publishers_reach_who_comes_late_until_one_leaves() {
    let pair = Pair::start("topics: { /tf_static: {} }\ntf: { prefix: r1/, shared: map }");
    let [mut laser, mut camera] = ["/laser", "/camera"].map(|name| pair.agent(0, name));
    for (agent, transform) in [(&mut laser, "base>laser@1"), (&mut camera, "/map>base@2")] {
        agent.advertise("/tf_static", TF, true);
        agent.send("/tf_static", fields(&[transform]));
    }
    let mut early = pair.agent(1, "/early");
    subscribe(&mut early, "/tf_static");
    let both = expected(&[("r1/base", "r1/laser", 1.0), ("map", "r1/base", 2.0)]);
    wait_for(&early, "/tf_static", &both);

    let mut late = pair.agent(1, "/late");
    subscribe(&mut late, "/tf_static");
    wait_for(&late, "/tf_static", &both);
    assert_eq!(late.received("/tf_static").len(), 1, "one message has them all");

    laser.leave();
    let rest = expected(&[("map", "r1/base", 2.0)]);
    wait_for(&early, "/tf_static", &rest);
    let mut latest = pair.agent(1, "/latest");
    subscribe(&mut latest, "/tf_static");
    wait_for(&latest, "/tf_static", &rest);
    assert_eq!(latest.received("/tf_static").len(), 1);
}

#[test]
fn a_busy_tf_comes_merged_with_named_frames_alone_and_ends_with_the_latest() {
    let pair = Pair::start("topics: { /tf: { rate: 2Hz } }\ntf: { frames: [odom, base] }");
    let mut base = pair.agent(1, "/listener");
    subscribe(&mut base, "/tf");
    let [mut odometry, mut localization] =
        ["/odometry", "/localization"].map(|name| pair.agent(0, name));
    for agent in [&mut odometry, &mut localization] {
        agent.advertise("/tf", TF, false);
        running::wait_for("the daemon reads it", || (agent.connections("/tf") == 1).then_some(()));
    }
    let many = fields(&["odom>base@1", "base>wheel@1"]);
    let many = json!({
        "do": "send", "topic": "/tf", "fields": many, "count": MESSAGES, "hz": 200,
    });
    odometry.order(many);
    localization.send("/tf", fields(&["map>odom@5"]));
    odometry.send("/tf", fields(&["odom>base@2"]));
    let latest = expected(&[("map", "odom", 5.0), ("odom", "base", 2.0)]);
    running::wait_for("the latest of each frame, and no other frame", || {
        let all: BTreeMap<_, _> = base.received("/tf").iter().flat_map(read).collect();
        (all == latest).then_some(())
    });
    odometry.send("/tf", fields(&["base>wheel@3"]));
    running::wait_for("every message is accounted for", || {
        let topics = pair.daemons[0].status().topics;
        let tf = topics.iter().find(|t| t.topic == "/tf" && t.direction == Direction::Out).unwrap();
        assert!(tf.messages < MESSAGES / 2, "{} of {MESSAGES} were sent", tf.messages);
        let unnamed = tf.dropped.get("no_named_frame").copied().unwrap_or(0);
        (tf.messages + tf.rate_limited == MESSAGES + 2 && unnamed == 1).then_some(())
    });
}
