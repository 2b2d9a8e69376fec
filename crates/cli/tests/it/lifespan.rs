// SPDX-License-Identifier: Apache-2.0
//! The lifespan of each publisher, with rclpy at a robot, and rospy and rclpy at two base stations
//! behind a cut link, in a separate network.

use crate::PROGRAM;
use serde_json::json;
use std::process::Command as Process;
use tautline_testkit::ros;
use tautline_testkit::ros::Agent;
use tautline_testkit::ros::ros1;
use tautline_testkit::ros::ros1::Master;
use tautline_testkit::ros::ros2;
use tautline_testkit::running::{Place, wait_for};

const TEXT: &str = "std_msgs/String";
const ROS2_TEXT: &str = "std_msgs/msg/String";
/// `/alone`: a publisher whose messages last a second. `/live` and `/kept`: also a publisher whose messages
/// last for ever, and are live or kept. `/ruled`: a publisher whose messages last a minute, and a rule of a
/// second.
const TOPICS: [&str; 4] = ["/alone", "/live", "/kept", "/ruled"];

fn ip(arguments: &str) {
    let done = Process::new("ip").args(arguments.split(' ')).status().unwrap();
    assert!(done.success(), "ip {arguments}");
}

/// Publishes a text on each topic of an agent.
fn send(agent: &mut Agent, topics: &[&str], text: &str) {
    for topic in topics {
        agent.order(json!({"do": "send", "topic": topic, "fields": {"data": text}}));
    }
}

/// The texts that a subscriber got.
fn texts(agent: &Agent, topic: &str) -> Vec<String> {
    let got = agent.received(topic);
    got.iter().map(|it| it["fields"]["data"].as_str().unwrap().to_owned()).collect()
}

/// Sends until each subscriber has the text on each topic.
fn wait_until_all_have(bases: &[&Agent], topics: &[&str], text: &str, mut send: impl FnMut(&str)) {
    for topic in topics {
        for (index, base) in bases.iter().enumerate() {
            wait_for(format!("'{text}' on {topic} at base {index}"), || {
                send(topic);
                texts(base, topic).contains(&text.into()).then_some(())
            });
        }
    }
}

#[test]
fn messages_that_expired_during_an_outage_do_not_arrive() {
    if !ros2::runs_in_own_network() {
        return;
    }
    for host in 1..=3 {
        ip(&format!("address add 10.9.0.{host}/32 dev lo"));
    }
    let (place, master) = (Place::new(PROGRAM), Master::start_alone(ros::free_port()));
    let robot = place.start(
        "robot",
        "listen: \"10.9.0.1:7000\"\n\
         peers: { base1: \"10.9.0.2:7000\", base2: \"10.9.0.3:7000\" }\n\
         ros2: { range: localhost }\n\
         topics: { \"/ruled\": { lifespan: 1s }, \"/**\": {} }",
    );
    let peer = "peers: { robot: { address: \"10.9.0.1:7000\", accept: \"/**\" } }";
    let base1 = place.start(
        "base1",
        &format!(
            "listen: \"10.9.0.2:7000\"\n{peer}\n\
             ros1: {{ master: \"{}\", host: 127.0.0.1 }}",
            master.uri
        ),
    );
    let base2 = place.start(
        "base2",
        &format!("listen: \"10.9.0.3:7000\"\n{peer}\nros2: {{ domain: 1, range: localhost }}"),
    );
    [&base1, &base2].iter().for_each(|base| base.wait_for_state("robot", "up"));

    let mut short = ros2::start_in(0, "kilted", "LOCALHOST", "short");
    let mut lasting = ros2::start_in(0, "kilted", "LOCALHOST", "lasting");
    for topic in TOPICS {
        let lifespan = if topic == "/ruled" { 60.0 } else { 1.0 };
        short.publisher(topic, ROS2_TEXT, json!({"lifespan": lifespan}));
    }
    lasting.publisher("/live", ROS2_TEXT, json!({}));
    lasting.publisher("/kept", ROS2_TEXT, json!({"latch": true}));
    let mut rospy = ros1::start(&master.uri, "/rospy");
    let mut rclpy = ros2::start_in(1, "jazzy", "LOCALHOST", "rclpy");
    for topic in TOPICS {
        rospy.order(json!({"do": "subscribe", "topic": topic, "type": TEXT, "fields": true}));
        rclpy.order(json!({"do": "subscribe", "topic": topic, "type": ROS2_TEXT, "fields": true}));
    }
    let bases = [&rospy, &rclpy];
    wait_until_all_have(&bases, &TOPICS, "before", |topic| send(&mut short, &[topic], "before"));
    let lasts = ["/live", "/kept"];
    wait_until_all_have(&bases, &lasts, "lasting", |topic| send(&mut lasting, &[topic], "lasting"));

    ip("address del 10.9.0.1/32 dev lo");
    send(&mut short, &TOPICS, "expired");
    send(&mut lasting, &lasts, "late");
    wait_for("the end of the messages", || {
        let ended = |topic: &str, peer: &str| {
            let topics = robot.status().topics;
            let mut reports = topics.iter().filter(|it| it.topic == topic && it.peer == peer);
            reports.any(|it| it.dropped.get("expired").is_some_and(|count| *count > 0))
        };
        let all = |peer: &str| TOPICS.iter().all(|topic| ended(topic, peer));
        (all("base1") && all("base2")).then_some(())
    });
    ip("address add 10.9.0.1/32 dev lo");
    wait_until_all_have(&bases, &lasts, "late", |_| {});
    wait_until_all_have(&bases, &TOPICS, "after", |topic| send(&mut short, &[topic], "after"));
    for (base, topic) in bases.iter().flat_map(|base| TOPICS.map(|topic| (base, topic))) {
        let got = texts(base, topic);
        assert!(!got.contains(&"expired".into()), "{topic}: {got:?}");
    }
}
