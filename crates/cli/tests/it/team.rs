// SPDX-License-Identifier: Apache-2.0
//! Robots of ROS 1 and of ROS 2 in one team: real nodes of each, and a daemon each.

use crate::PROGRAM;
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use tautline_testkit::ros::ros1;
use tautline_testkit::ros::ros1::Master;
use tautline_testkit::ros::ros2;
use tautline_testkit::ros::{Agent, bytes_of, free_port, wait_for};
use tautline_testkit::running::{Daemon, Place, free_port as udp_port};

/// Returns the files of two daemons that are peers of each other.
fn files(first: &str, second: &str) -> [String; 2] {
    let ports = [(); 2].map(|()| udp_port());
    let file = |here: usize, peer: &str, lines: &str| {
        let (port, there) = (ports[here], ports[1 - here]);
        let accept = if lines.contains("accept:") { "" } else { "    accept: \"/**\"\n" };
        let address = format!("    address: \"127.0.0.1:{there}\"\n    call: \"/**\"\n");
        let peers = format!("peers:\n  {peer}:\n{address}{accept}");
        format!("listen: \"127.0.0.1:{port}\"\n{peers}{lines}\n")
    };
    [file(0, "base", first), file(1, "robot", second)]
}

/// Starts two daemons that are peers of each other.
fn pair(place: &Place, first: &str, second: &str) -> [Daemon; 2] {
    let [first, second] = files(first, second);
    [place.start("robot", &first), place.start("base", &second)]
}

fn ros2_lines(domain: u32) -> String {
    let kilted = ros2::installation("kilted").canonicalize().unwrap();
    format!("ros1: false\nros2: {{ domain: {domain}, definitions: {} }}\n", kilted.display())
}

/// Sends until the other side has received the message; returns the sent bytes and the report of
/// the arrival.
fn send_until(from: &mut Agent, to: &Agent, there: &str, order: &Value) -> (Vec<u8>, Value) {
    wait_for(format!("message on {there}"), || {
        let sent = bytes_of(&from.order(order.clone()));
        to.received(there).first().map(|report| (sent, report.clone()))
    })
}

#[test]
fn topics_are_translated_between_ros_1_and_ros_2() {
    if !ros2::runs_in_own_network() {
        return;
    }
    let place = Place::new(PROGRAM);
    let master = Master::start_alone(free_port());
    let ros1_lines = format!(
        "    accept: \"/from2/**\"\nros1: {{ master: \"{}\", host: 127.0.0.1 }}\n\
         topics: {{ \"/from1/**\": {{}} }}",
        master.uri
    );
    let ros2_lines = format!("{}topics: {{ \"/from2/**\": {{}} }}", ros2_lines(0));
    let _daemons = pair(&place, &ros1_lines, &ros2_lines);
    let mut one = ros1::start(&master.uri, "/one");
    let mut two = ros2::start("kilted", "SUBNET", "two");

    // Nested fields, a header, arrays and text: values are translated, not bytes.
    one.advertise("/from1/scan", "sensor_msgs/LaserScan", false);
    two.subscriber("/from1/scan", "sensor_msgs/msg/LaserScan", json!({}));
    let fields = json!({
        "header": { "frame_id": "laser", "stamp": { "secs": 7, "nsecs": 8 } },
        "angle_min": 0.5, "ranges": [1.0, 2.5, 4.0],
    });
    let order = json!({ "do": "send", "topic": "/from1/scan", "fields": fields });
    let (_, got) = send_until(&mut one, &two, "/from1/scan", &order);
    let expected = json!({
        "header": { "frame_id": "laser", "stamp": { "sec": 7, "nanosec": 8 } },
        "angle_min": 0.5, "ranges": [1.0, 2.5, 4.0],
    });
    two.publisher("/expected", "sensor_msgs/msg/LaserScan", json!({}));
    let expected = two.order(json!({ "do": "send", "topic": "/expected", "fields": expected }));
    assert_eq!(bytes_of(&got), bytes_of(&expected));
    let shown = &two.graph("/from1/scan")["publishers"][0];
    assert_eq!(shown["type"], "sensor_msgs/msg/LaserScan");

    two.publisher("/from2/cmd_vel", "geometry_msgs/msg/Twist", json!({}));
    one.subscribe("/from2/cmd_vel", "geometry_msgs/Twist");
    let fields = json!({ "linear": { "x": 0.25 }, "angular": { "z": -1.0 } });
    let order = json!({ "do": "send", "topic": "/from2/cmd_vel", "fields": fields });
    let (sent, got) = send_until(&mut two, &one, "/from2/cmd_vel", &order);
    // Six 64-bit numbers have the same layout in both.
    assert_eq!(bytes_of(&got), sent[4..]);
    assert_eq!(got["header"]["type"], "geometry_msgs/Twist");

    // Latched there, transient local here.
    one.advertise("/from1/map", "std_msgs/String", true);
    one.send("/from1/map", json!({ "data": "the map" }));
    let late = json!({ "latch": true });
    two.subscriber("/from1/map", "std_msgs/msg/String", late);
    two.wait("latched message", |report| report["got"] == "/from1/map");
}

#[test]
fn latched_messages_return_after_restarts_and_both_ends_report_two_types() {
    if !ros2::runs_in_own_network() {
        return;
    }
    let place = Place::new(PROGRAM);
    let master = Master::start_alone(free_port());
    let robot_lines = format!(
        "ros1: {{ master: \"{}\", host: 127.0.0.1 }}\ntopics: {{ \"/from1/**\": {{}} }}",
        master.uri
    );
    let [robot_file, base_file] = files(&robot_lines, &ros2_lines(0));
    let robot = place.start("robot", &robot_file);
    let base = place.start("base", &base_file);
    let mut one = ros1::start(&master.uri, "/one");
    one.advertise("/from1/map", "std_msgs/String", true);
    one.send("/from1/map", json!({ "data": "the map" }));
    let gets_the_map = |name: &str| {
        let mut two = ros2::start("kilted", "SUBNET", name);
        two.subscriber("/from1/map", "std_msgs/msg/String", json!({ "latch": true }));
        two.wait("latched message", |report| report["got"] == "/from1/map");
    };
    gets_the_map("first");
    base.kill();
    let base = place.start("base", &base_file);
    gets_the_map("second");
    robot.kill();
    let robot = place.start("robot", &robot_file);
    base.wait_for_state("robot", "up");
    gets_the_map("third");

    let mut two = ros2::start("kilted", "SUBNET", "two");
    two.publisher("/from1/both", "std_msgs/msg/Int32", json!({}));
    one.advertise("/from1/both", "std_msgs/Float64", false);
    for daemon in [&robot, &base] {
        daemon.wait_for_notice(&["/from1/both", "Int32", "Float64"]);
    }
}

#[test]
fn a_ros_2_watchdog_detects_the_end_of_ros_1_commands() {
    if !ros2::runs_in_own_network() {
        return;
    }
    let place = Place::new(PROGRAM);
    let master = Master::start_alone(free_port());
    let robot = format!("    accept: /cmd_vel\n{}watchdogs: {{ /cmd_vel: 500ms }}", ros2_lines(0));
    let base = format!(
        "ros1: {{ master: \"{}\", host: 127.0.0.1 }}\ntopics: {{ /cmd_vel: {{}} }}",
        master.uri
    );
    let daemons = pair(&place, &robot, &base);
    let mut driver = ros1::start(&master.uri, "/driver");
    let mut wheels = ros2::start("kilted", "SUBNET", "wheels");
    driver.advertise("/cmd_vel", "geometry_msgs/Twist", false);
    wheels.subscriber("/cmd_vel", "geometry_msgs/msg/Twist", json!({}));
    let fields = json!({ "linear": { "x": 0.25 } });
    let order = json!({ "do": "send", "topic": "/cmd_vel", "fields": fields });
    send_until(&mut driver, &wheels, "/cmd_vel", &order);
    driver.signal("-KILL");
    let zeros = [&[0, 1, 0, 0][..], &[0; 48]].concat();
    wait_for("the safe message", || {
        let last = wheels.received("/cmd_vel").last().map(bytes_of);
        last.filter(|got| *got == zeros)
    });
    daemons[0].wait_for_notice(&["/cmd_vel", "no message from peers for 500ms"]);
}

#[test]
fn two_ros_2_robots_have_separate_domains_and_names() {
    if !ros2::runs_in_own_network() {
        return;
    }
    let place = Place::new(PROGRAM);
    let first = format!("{}topics: {{ /map: {{}}, /scan: {{}} }}", ros2_lines(1));
    let second =
        format!("    prefix: /robot1\n    remap: {{ /scan: /front/scan }}\n{}", ros2_lines(2));
    let [_robot, tautline] = pair(&place, &first, &second);
    let mut robot = ros2::start_in(1, "kilted", "SUBNET", "robot_agent");
    let mut base = ros2::start_in(2, "kilted", "SUBNET", "base_agent");
    let string = "std_msgs/msg/String";
    robot.publisher("/map", string, json!({ "latch": true, "depth": 1 }));
    for text in ["old map", "new map"] {
        robot.order(json!({ "do": "send", "topic": "/map", "fields": { "data": text } }));
    }
    base.subscriber("/robot1/map", string, json!({ "latch": true }));
    let got = base.wait("the map", |report| report["got"] == "/robot1/map");
    assert!(String::from_utf8_lossy(&bytes_of(&got)).contains("new map"));

    robot.publisher("/scan", string, json!({ "best_effort": true }));
    base.subscriber("/robot1/front/scan", string, json!({ "best_effort": true }));
    let order = json!({ "do": "send", "topic": "/scan", "fields": { "data": "x" } });
    send_until(&mut robot, &base, "/robot1/front/scan", &order);
    // The graph reports a node at most ten times a second; its first message may arrive earlier.
    let shown = wait_for("the publisher's node", || {
        let shown = base.graph("/robot1/front/scan")["publishers"][0].clone();
        (shown["node"] == "/tautline").then_some(shown)
    });
    assert_eq!(shown["reliable"], false);
    let other = base.graph("/scan");
    assert!(other["publishers"].as_array().unwrap().is_empty(), "the domains are apart");

    let begun = Instant::now();
    tautline.terminate();
    wait_for("the publishers of a daemon to end with it", || {
        let graph = base.graph("/robot1/front/scan");
        graph["publishers"].as_array().unwrap().is_empty().then_some(())
    });
    let taken = begun.elapsed();
    assert!(taken < Duration::from_secs(8), "{taken:?}: only with the participant's lease of 10 s");
}

#[test]
fn late_ros_2_subscribers_get_all_static_transforms_of_ros_1() {
    if !ros2::runs_in_own_network() {
        return;
    }
    let place = Place::new(PROGRAM);
    let master = Master::start_alone(free_port());
    let robot = format!(
        "ros1: {{ master: \"{}\", host: 127.0.0.1 }}\ntopics: {{ /tf_static: {{}} }}\n\
         tf: {{ prefix: r1/, shared: map }}",
        master.uri
    );
    let daemons = pair(&place, &robot, &ros2_lines(0));
    let [mut laser, mut camera] = ["/laser", "/camera"].map(|name| ros1::start(&master.uri, name));
    for (agent, parent, child, x) in
        [(&mut laser, "base", "laser", 1.0), (&mut camera, "/map", "base", 2.0)]
    {
        agent.advertise("/tf_static", "tf2_msgs/TFMessage", true);
        let transform = json!({
            "header": { "frame_id": parent, "stamp": { "secs": 7 } },
            "child_frame_id": child,
            "transform": { "translation": { "x": x }, "rotation": { "w": 1.0 } },
        });
        agent.send("/tf_static", json!({ "transforms": [transform] }));
    }
    // The first reader creates the subscription; the second one receives the messages that the
    // base's daemon keeps.
    for _ in 0..2 {
        let output = std::process::Command::new(ros2::installation("cyclone").join("bin/python"))
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/team/tf.py"))
            .args(["/tf_static", "40", "2"])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        let log = || daemons[1].log();
        assert!(
            output.status.success(),
            "{said}{}\n{}",
            String::from_utf8_lossy(&output.stderr),
            log()
        );
        let last: Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
        let mut frames: Vec<String> =
            last.as_array().unwrap().iter().map(Value::to_string).collect();
        frames.sort();
        assert_eq!(frames, [r#"["map","r1/base",7,2.0]"#, r#"["r1/base","r1/laser",7,1.0]"#]);
    }
}

#[test]
fn a_service_of_either_ros_is_called_from_the_other() {
    if !ros2::runs_in_own_network() {
        return;
    }
    let place = Place::new(PROGRAM);
    let master = Master::start_alone(free_port());
    let robot = format!(
        "ros1: {{ master: \"{}\", host: 127.0.0.1 }}\nservices: {{ /of1/**: {{}} }}",
        master.uri
    );
    let base =
        format!("{}services: {{ /of2/set: {{}}, /of2/slow: {{ timeout: 1s }} }}", ros2_lines(0));
    let _daemons = pair(&place, &robot, &base);
    let mut one = ros1::start(&master.uri, "/one");
    let mut two = ros2::start("kilted", "SUBNET", "two");
    let (type1, type2) = ("sensor_msgs/SetCameraInfo", "sensor_msgs/srv/SetCameraInfo");
    let answer = |text: &str| json!({ "success": true, "status_message": text });
    let answered = |agent: &Agent, id: u64| {
        agent.wait(&format!("answer to call {id}"), |report| report["answered"] == id)
    };
    let response = |agent: &Agent, id: u64| {
        let report = answered(agent, id);
        assert_eq!(report["error"], Value::Null);
        bytes_of(&report)
    };

    // Field names differ in case; the echoed fields have been translated in both directions.
    two.order(json!({ "do": "serve", "service": "/of2/set", "type": type2, "fields": answer(""), "echo": true }));
    let info = json!({ "camera_info": { "width": 640, "distortion_model": "plumb_bob",
        "K": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0] } });
    one.order(json!({ "do": "call_service", "service": "/of2/set", "type": type1, "fields": info, "id": 1 }));
    let got = response(&one, 1);
    assert_eq!(got, b"\x01\x09\0\0\0plumb_bob");
    let served = two.wait("the request", |report| report["served"] == "/of2/set");
    let request = bytes_of(&served);
    assert!(request.windows(8).any(|part| part == 9f64.to_le_bytes()), "k of the request");

    one.order(
        json!({ "do": "serve", "service": "/of1/set", "type": type1, "fields": answer("done") }),
    );
    let info = json!({ "camera_info": { "width": 320, "k": [9.0, 8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0] } });
    two.order(
        json!({ "do": "call", "service": "/of1/set", "type": type2, "fields": info, "id": 2 }),
    );
    let got = response(&two, 2);
    assert!(got.windows(4).any(|part| part == b"done"), "{got:?}");

    // Without a response the caller in ROS 1 gets an error with service, peer and timeout.
    two.order(json!({ "do": "serve", "service": "/of2/slow", "type": type2, "hold": true }));
    one.order(json!({ "do": "call_service", "service": "/of2/slow", "type": type1, "fields": {}, "id": 3 }));
    let error = answered(&one, 3)["error"].to_string();
    for part in ["/of2/slow", "'base'", "within 1 s"] {
        assert!(error.contains(part), "{error}");
    }
}
