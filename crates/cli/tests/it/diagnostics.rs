// SPDX-License-Identifier: Apache-2.0
//! /diagnostics and /tautline/link of real daemons, read by rospy and rclpy: a robot of ROS 2 and a
//! base station of ROS 1, in a separate network.

use crate::PROGRAM;
use serde_json::{Value, json};
use tautline_testkit::ros;
use tautline_testkit::ros::Agent;
use tautline_testkit::ros::ros1;
use tautline_testkit::ros::ros1::Master;
use tautline_testkit::ros::ros2;
use tautline_testkit::running::{Daemon, Place, free_port, wait_for};

const TOPIC: &str = "/diagnostics";
const LINK: &str = "/tautline/link";
const TYPE: &str = "diagnostic_msgs/msg/DiagnosticArray";
/// Levels of diagnostic_msgs/DiagnosticStatus.
const OK: u64 = 0;
const WARN: u64 = 1;
const ERROR: u64 = 2;
/// A robot of ROS 2 that sends `topics` to a base station of ROS 1, which sends nothing.
struct Team {
    robot: Daemon,
    base: Option<Daemon>,
    master: Master,
    _place: Place,
}

impl Team {
    fn start(topics: &str) -> Self {
        let (place, master) = (Place::new(PROGRAM), Master::start_alone(ros::free_port()));
        let [robot, base] = [(); 2].map(|()| free_port());
        let robot_file = format!(
            "listen: \"127.0.0.1:{robot}\"\npeers: {{ base: {{ address: \"127.0.0.1:{base}\", accept: \"/**\" }} }}\n\
             radios: {{ lo: {{ rate: 8Mbps }} }}\n\
             ros2: {{ range: localhost, definitions: [\"{}\"] }}\n\
             limits: {{ max_message: 20kB }}\ntopics: {{ {topics} }}",
            ros2::installation("kilted").display()
        );
        let base_file = format!(
            "listen: \"127.0.0.1:{base}\"\npeers: {{ robot: {{ address: \"127.0.0.1:{robot}\", accept: \"/**\" }} }}\n\
             ros1: {{ master: \"{}\", host: 127.0.0.1 }}",
            master.uri
        );
        let robot = place.start("robot", &robot_file);
        let base = place.start("base", &base_file);
        robot.wait_for_state("base", "up");
        Self { robot, base: Some(base), master, _place: place }
    }
}

/// Returns the latest status of this name that a node has received.
fn latest(agent: &Agent, name: &str) -> Option<Value> {
    latest_on(agent, TOPIC, name)
}

fn latest_on(agent: &Agent, topic: &str, name: &str) -> Option<Value> {
    statuses(agent, topic).into_iter().rev().find(|status| status["name"] == name)
}

/// Returns all statuses that a node has received.
fn statuses(agent: &Agent, topic: &str) -> Vec<Value> {
    let all = agent.received(topic);
    all.iter().flat_map(|it| it["fields"]["status"].as_array().unwrap()).cloned().collect()
}

fn wait_for_status(agent: &Agent, name: &str, fits: impl Fn(&Value) -> bool) -> Value {
    wait_for(name, || latest(agent, name).filter(&fits))
}

fn value<'a>(status: &'a Value, key: &str) -> &'a str {
    let all = status["values"].as_array().unwrap();
    let found = all.iter().find(|it| it["key"] == key);
    found.unwrap_or_else(|| panic!("no {key} in {status}"))["value"].as_str().unwrap()
}

#[test]
fn rclpy_and_rospy_read_diagnostics_of_links_and_drops() {
    if !ros2::runs_in_own_network() {
        return;
    }
    let mut team = Team::start("/diagnostics: {}, /map: {}");
    let mut here = ros2::start("kilted", "LOCALHOST", "listener");
    here.order(json!({"do": "subscribe", "topic": TOPIC, "type": TYPE, "fields": true}));
    let mut there = ros1::start(&team.master.uri, "/listener");
    // Any type, decoded with the definition that arrives with it.
    there.order(json!({"do": "subscribe", "topic": TOPIC, "type": "*", "fields": true}));

    let peer = wait_for_status(&here, "tautline robot: peer base", |it| it["level"] == OK);
    assert_eq!((&peer["message"], &peer["hardware_id"]), (&json!("up"), &json!("robot")));
    assert!(value(&peer, "link 1 leads").starts_with("by lo to 127.0.0.1:"), "{peer}");
    wait_for_status(&here, "tautline robot: radio lo", |it| it["level"] == OK);
    let graph = here.graph(TOPIC);
    let (told, read) = (&graph["publishers"][0], &graph["subscribers"]);
    assert_eq!((&told["node"], &told["type"]), (&json!("/tautline"), &json!(TYPE)));
    // The hash equals that of rclpy's own library.
    let own = read.as_array().unwrap().iter().find(|it| it["node"] == "/listener").unwrap();
    assert_eq!(told["hash"], own["hash"]);
    // The base station has the robot's statuses in addition to its own.
    for name in ["tautline robot: peer base", "tautline base: peer robot"] {
        let told = wait_for_status(&there, name, |it| it["level"] == OK);
        assert_eq!(told["message"], "up");
    }
    assert!(latest(&here, "tautline base: node").is_none(), "the base has no rule for it");

    // Both sides count a message that is too large for the robot's node.
    here.publisher("/map", "std_msgs/msg/String", json!({}));
    there.order(json!({"do": "subscribe", "topic": "/map", "type": "std_msgs/String"}));
    let drops = "tautline robot: drops";
    let warned = wait_for("a warning", || {
        here.order(json!({"do": "send_large", "topic": "/map", "size": 30_000}));
        latest(&here, drops).filter(|it| it["level"] == WARN)
    });
    assert!(warned["message"].as_str().unwrap().contains("/map"), "{warned}");
    for agent in [&here, &there] {
        let quiet = wait_for_status(agent, drops, |it| {
            it["level"] == OK && it["values"].to_string().contains("/map: too large")
        });
        let rejected = team.robot.status().gateways.remove(0).rejected;
        assert_eq!(rejected.len(), 1);
        assert_eq!(value(&quiet, "/map: too large"), rejected[0].count.to_string());
    }

    team.base.take().unwrap().kill();
    let peer = wait_for_status(&here, "tautline robot: peer base", |it| it["level"] == WARN);
    assert_eq!(peer["message"], "down");
}

#[test]
fn programs_of_either_ros_read_the_available_rate_of_links() {
    if !ros2::runs_in_own_network() {
        return;
    }
    // A rule that matches the topic does not send it to peers either.
    let mut team = Team::start("\"/**\": {}");
    let mut here = ros2::start("kilted", "LOCALHOST", "listener");
    here.order(json!({"do": "subscribe", "topic": LINK, "type": TYPE, "fields": true}));
    let mut there = ros1::start(&team.master.uri, "/listener");
    there.order(json!({"do": "subscribe", "topic": LINK, "type": "*", "fields": true}));

    let up = |agent: &Agent, name: &str| {
        let told = || latest_on(agent, LINK, name).filter(|it| it.to_string().contains("rtt_s"));
        let up = wait_for(name, told);
        assert_eq!((&up["level"], &up["message"]), (&json!(OK), &json!("up")), "{up}");
        assert_eq!((value(&up, "up"), value(&up, "radio")), ("true", "lo"), "{up}");
        let rtt: f64 = value(&up, "rtt_s").parse().unwrap();
        assert!(rtt > 0.0 && rtt < 1.0, "{up}");
        up
    };
    let of_robot = up(&here, "tautline robot: link 1 to base");
    assert_eq!(value(&of_robot, "peer"), "base");
    // The controller of a new link begins with a rate below the radio's.
    let name = "tautline robot: link 1 to base";
    let is_of_radio =
        |it: &Value| (value(it, "available_bps"), value(it, "paced_by")) == ("8000000", "rate");
    wait_for("the radio's rate", || latest_on(&here, LINK, name).filter(is_of_radio));
    let of_base = up(&there, "tautline base: link 1 to robot");
    assert!(value(&of_base, "available_bps").parse::<u64>().unwrap() > 1_000_000, "{of_base}");
    let rates = |agent: &Agent, name| {
        let told = latest_on(agent, LINK, name);
        told.filter(|it| it.to_string().contains("sent_bps") && it.to_string().contains("loss"))
    };
    for (agent, name) in
        [(&here, "tautline robot: link 1 to base"), (&there, "tautline base: link 1 to robot")]
    {
        let told = wait_for("rates", || rates(agent, name));
        assert!(value(&told, "sent_bps").parse::<u64>().unwrap() > 0, "{told}");
        assert!(value(&told, "loss").parse::<f64>().unwrap() < 0.5, "{told}");
        assert!(statuses(agent, LINK).iter().all(|it| it["name"] == name), "only its own");
    }
    for daemon in [&team.robot, team.base.as_ref().unwrap()] {
        assert!(daemon.status().topics.iter().all(|it| it.topic != LINK), "nothing is carried");
    }

    team.base.take().unwrap().kill();
    let name = "tautline robot: link 1 to base";
    let is_down = |it: &Value| it["level"] == ERROR;
    let down = wait_for("the link's end", || latest_on(&here, LINK, name).filter(is_down));
    assert_eq!((value(&down, "available_bps"), value(&down, "up")), ("0", "false"));
}

#[test]
fn without_listeners_or_a_rule_nothing_is_sent() {
    if !ros2::runs_in_own_network() {
        return;
    }
    let team = Team::start("/diagnostics: {}");
    let sent = |daemon: &Daemon| {
        let topics = daemon.status().topics;
        topics.iter().filter(|it| it.topic == TOPIC).map(|it| it.messages).collect::<Vec<_>>()
    };
    wait_for("the offer", || (!sent(&team.robot).is_empty()).then_some(()));
    let uptime = team.robot.status().uptime_s;
    wait_for("three seconds more", || (team.robot.status().uptime_s > uptime + 3.0).then_some(()));
    assert_eq!(sent(&team.robot), [0], "nobody listens");
    assert!(sent(team.base.as_ref().unwrap()).iter().all(|count| *count == 0));

    let mut there = ros1::start(&team.master.uri, "/listener");
    there.order(json!({"do": "subscribe", "topic": TOPIC, "type": "*", "fields": true}));
    wait_for_status(&there, "tautline base: node", |it| it["level"] == OK);
    wait_for("the robot's", || (sent(&team.robot)[0] > 0).then_some(()));
    let mut status = wait_for_status(&there, "tautline robot: node", |it| it["level"] == OK);
    assert_eq!(status["message"].take(), "running");
    let stamps: Vec<u64> = there
        .received(TOPIC)
        .iter()
        .map(|it| it["fields"]["header"]["stamp"]["secs"].as_u64().unwrap())
        .collect();
    assert!(stamps.iter().all(|secs| *secs > 1_700_000_000), "{stamps:?}");
}
