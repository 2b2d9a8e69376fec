// SPDX-License-Identifier: Apache-2.0
//! The two files of the tutorial, with real masters, rospy nodes and two daemons: which topics arrive
//! without a line in a file, which need a line, and how people learn about this line.

use crate::PROGRAM;
use serde_json::{Value, json};
use tautline_testkit::ros::ros1;
use tautline_testkit::ros::ros1::Master;
use tautline_testkit::ros::{Agent, free_port, wait_for};
use tautline_testkit::running;
use tautline_testkit::running::{Daemon, Place};

const TUTORIAL: &str = include_str!("../../../../docs/tutorial/ros1.md");

/// Returns the files in the ROS 1 tutorial: the robot's and the base's.
fn files() -> [String; 2] {
    let mut blocks = TUTORIAL.split("```yaml\n").skip(1);
    let mut next = |name: &str| {
        let file = blocks.next().unwrap().split("```").next().unwrap();
        assert!(file.starts_with(&format!("name: {name}\n")), "{file}");
        let keyless = file.lines().filter(|line| !line.trim().starts_with("key:"));
        // The last section is topics.
        keyless.skip(1).map(|line| format!("{line}\n")).collect::<String>()
    };
    [next("robot1"), next("base")]
}

/// Sends until the message arrives.
fn arrives(from: &mut Agent, to: &Agent, [here, there]: [&str; 2], message: &Value) {
    wait_for(there, || {
        from.send(here, message.clone());
        (!to.received(there).is_empty()).then_some(())
    });
}

fn line_for(daemon: &Daemon, name: &str) -> String {
    wait_for(name, || {
        let waiting = daemon.status().waiting;
        waiting.into_iter().find(|it| it.name == name).map(|it| it.line)
    })
}

#[test]
fn an_observation_is_accepted_by_default_and_a_command_is_not() {
    let place = Place::new(PROGRAM);
    let masters = [(); 2].map(|()| Master::start_alone(free_port()));
    let ports = [(); 2].map(|()| running::free_port());
    let [robot, base] = files();
    let start = |name: &str, here: usize, file: &str, more: &str| {
        let addresses = file
            .replace("address: 10.0.0.1", &format!("address: \"127.0.0.1:{}\"", ports[0]))
            .replace("address: 10.0.0.2", &format!("address: \"127.0.0.1:{}\"", ports[1]));
        let (port, uri) = (ports[here], &masters[here].uri);
        let own = format!(
            "listen: \"127.0.0.1:{port}\"\nros1: {{ master: \"{uri}\", host: 127.0.0.1 }}\n"
        );
        place.start(name, &format!("{own}{addresses}{more}"))
    };
    let robot = start("robot1", 0, &robot, "  /goal: {}\n");
    let base = start("base", 1, &base, "  /emergency_stop: {}\n");
    let mut on_robot = ros1::start(&masters[0].uri, "/on_robot");
    let mut at_base = ros1::start(&masters[1].uri, "/at_base");
    on_robot.subscribe("/cmd_vel", "geometry_msgs/Twist");
    on_robot.subscribe("/emergency_stop", "std_msgs/Bool");
    at_base.subscribe("/robot1/scan", "sensor_msgs/LaserScan");
    at_base.subscribe("/robot1/goal", "geometry_msgs/PoseStamped");
    on_robot.advertise("/scan", "sensor_msgs/LaserScan", false);
    on_robot.advertise("/goal", "geometry_msgs/PoseStamped", true);
    on_robot.send("/goal", json!({ "header": { "frame_id": "map" } }));
    at_base.advertise("/cmd_vel", "geometry_msgs/Twist", false);
    at_base.advertise("/emergency_stop", "std_msgs/Bool", true);
    at_base.send("/emergency_stop", json!({ "data": false }));

    let scan = json!({ "ranges": [1.0, 2.0] });
    arrives(&mut on_robot, &at_base, ["/scan", "/robot1/scan"], &scan);
    let command = json!({ "linear": { "x": 0.5 } });
    arrives(&mut at_base, &on_robot, ["/cmd_vel", "/cmd_vel"], &command);

    // Nothing else is accepted. The base reports the missing line; robot1's file names all topics
    // that it accepts.
    assert_eq!(line_for(&base, "/goal"), "accept: { /goal: geometry_msgs/PoseStamped }");
    base.wait_for_notice(&["/goal", "of 'robot1'", "under peers.robot1", "accept: { /goal"]);
    assert!(at_base.received("/robot1/goal").is_empty());
    assert!(on_robot.received("/emergency_stop").is_empty());
    assert!(robot.status().topics.iter().all(|topic| topic.topic != "/emergency_stop"));
}
