// SPDX-License-Identifier: Apache-2.0
//! A robot with rospy and a base station with rclpy: messages, times and names that the two ROS
//! understand differently, in a separate network.

use crate::PROGRAM;
use serde_json::{Value, json};
use tautline_testkit::ros;
use tautline_testkit::ros::Agent;
use tautline_testkit::ros::ros1;
use tautline_testkit::ros::ros1::Master;
use tautline_testkit::ros::ros2;
use tautline_testkit::running::{Daemon, Place, free_port, wait_for};

const POSE: &str = "geometry_msgs/PoseStamped";
const TEXT: &str = "std_msgs/String";
const ROS2_TEXT: &str = "std_msgs/msg/String";
const ROS2_POSE: &str = "geometry_msgs/msg/PoseStamped";

/// Bytes of text: more than a 1080p image of four bytes per pixel, and more than `max_message`.
const LARGE: usize = 10_000_000;
const TOO_LARGE: usize = 40_000_000;

/// Publishes `std_msgs/String` on two topics: a large message arrives, one that is too large is
/// reported with its topic, its size and the key, and small ones still arrive.
fn large_messages_arrive_or_are_reported(
    [image, scan]: [&str; 2],
    from: &mut Agent,
    to: &Agent,
    daemon: &Daemon,
) {
    let mut send = |topic: &str, size: usize| {
        from.order(json!({"do": "send_large", "topic": topic, "size": size}));
    };
    // ROS 1 counts the length as well.
    let got = |topic: &str, size: usize| {
        let sizes = to.received(topic);
        sizes.iter().any(|it| it["size"] == size || it["size"] == size + 4).then_some(())
    };
    wait_for(format!("10 MB on {image}"), || {
        send(image, LARGE);
        got(image, LARGE)
    });
    send(image, TOO_LARGE);
    wait_for(format!("a message on {scan}"), || {
        send(scan, 1000);
        got(scan, 1000)
    });
    daemon.wait_for_notice(&[image, "40000", "33554432", "limits.max_message"]);
    assert!(got(image, TOO_LARGE).is_none());
}

fn ros1_stamp(secs: i64, nsecs: i64) -> Value {
    json!({"header": {"stamp": {"secs": secs, "nsecs": nsecs}}})
}

fn ros2_stamp(sec: i64, nanosec: i64) -> Value {
    json!({"header": {"stamp": {"sec": sec, "nanosec": nanosec}}})
}

#[test]
fn real_nodes_exchange_times_names_and_empty_messages() {
    if !ros2::runs_in_own_network() {
        return;
    }
    let (place, master) = (Place::new(PROGRAM), Master::start_alone(ros::free_port()));
    let [robot_port, base_port] = [(); 2].map(|()| free_port());
    let robot = place.start(
        "robot",
        &format!(
            "listen: \"127.0.0.1:{robot_port}\"\n\
             peers: {{ base: {{ address: \"127.0.0.1:{base_port}\", accept: \"/**\" }} }}\n\
             ros1: {{ master: \"{}\", host: 127.0.0.1 }}\ntopics: {{ \"/**\": {{}} }}",
            master.uri
        ),
    );
    let base = place.start(
        "base",
        &format!(
            "listen: \"127.0.0.1:{base_port}\"\n\
             peers: {{ robot: {{ address: \"127.0.0.1:{robot_port}\", accept: \"/**\", \
             remap: {{ /camera-1/pose: /camera_1/pose }} }} }}\n\
             ros2: {{ range: localhost, definitions: [\"{}\"] }}\ntopics: {{ \"/**\": {{}} }}",
            ros2::installation("kilted").display()
        ),
    );
    base.wait_for_state("robot", "up");
    let mut here = ros1::start(&master.uri, "/here");
    let mut there = ros2::start("kilted", "LOCALHOST", "there");

    for (topic, type_name) in
        [("/camera-1/pose", POSE), ("/lidar/1_2v", POSE), ("/empty", "std_msgs/Empty")]
    {
        here.advertise(topic, type_name, false);
    }
    for (topic, type_name) in [("/camera_1/pose", ROS2_POSE), ("/empty", "std_msgs/msg/Empty")] {
        there.order(json!({"do": "subscribe", "topic": topic, "type": type_name, "fields": true}));
    }
    there.publisher("/back", ROS2_POSE, json!({}));
    there.publisher("/empty_back", "std_msgs/msg/Empty", json!({}));
    for (topic, type_name) in [("/back", POSE), ("/empty_back", "std_msgs/Empty")] {
        here.order(json!({"do": "subscribe", "topic": topic, "type": type_name, "fields": true}));
    }

    let line = "peers.robot: remap: { /lidar/1_2v: /lidar/n1_2v }";
    base.wait_for_notice(&["/lidar/1_2v", "no level starts with a digit", line]);
    robot.wait_for_notice(&["/lidar/1_2v", line]);

    wait_for("the empty message at rclpy", || {
        here.send("/empty", json!({}));
        there.received("/empty").pop()
    });
    wait_for("the empty message at rospy", || {
        there.order(json!({"do": "send", "topic": "/empty_back", "fields": {}}));
        here.received("/empty_back").pop()
    });

    for [topic, back] in [["/image", "/image_back"], ["/scan", "/scan_back"]] {
        here.advertise(topic, TEXT, false);
        there.order(json!({"do": "subscribe", "topic": topic, "type": ROS2_TEXT, "brief": true}));
        there.publisher(back, ROS2_TEXT, json!({}));
        here.order(json!({"do": "subscribe", "topic": back, "type": TEXT, "brief": true}));
    }
    large_messages_arrive_or_are_reported(["/image", "/scan"], &mut here, &there, &robot);
    large_messages_arrive_or_are_reported(["/image_back", "/scan_back"], &mut there, &here, &base);

    let stamps = |agent: &ros::Agent, topic: &str| -> Vec<Value> {
        let all = agent.received(topic);
        all.iter().map(|it| it["fields"]["header"]["stamp"].clone()).collect()
    };
    wait_for("a time at rclpy", || {
        here.send("/camera-1/pose", ros1_stamp(1, 4_000_000_000));
        stamps(&there, "/camera_1/pose").pop()
    });
    here.send("/camera-1/pose", ros1_stamp(3_000_000_000, 7));
    base.wait_for_notice(&["/camera_1/pose", "the time 3000000000 s + 7 ns is beyond the range"]);
    here.send("/camera-1/pose", ros1_stamp(9, 9));
    let last = json!({"sec": 9, "nanosec": 9});
    wait_for("the time after it", || {
        stamps(&there, "/camera_1/pose").pop().filter(|it| *it == last)
    });
    let normal = json!({"sec": 5, "nanosec": 0});
    let wrong = stamps(&there, "/camera_1/pose");
    assert!(wrong.iter().all(|it| *it == normal || *it == last), "{wrong:?}");

    wait_for("a time at rospy", || {
        there
            .order(json!({"do": "send", "topic": "/back", "fields": ros2_stamp(8, 1_500_000_000)}));
        stamps(&here, "/back").pop()
    });
    there.order(json!({"do": "send", "topic": "/back", "fields": ros2_stamp(-1, 0)}));
    robot.wait_for_notice(&["/back", "the time -1 s + 0 ns is beyond the range of ROS 1"]);
    let normal = json!({"secs": 9, "nsecs": 500_000_000});
    assert!(stamps(&here, "/back").iter().all(|it| *it == normal), "{:?}", stamps(&here, "/back"));
}
