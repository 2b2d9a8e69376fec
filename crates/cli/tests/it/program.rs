// SPDX-License-Identifier: Apache-2.0
//! A program without ROS (the library's front door), and a daemon with a real master and a rospy node.

use crate::PROGRAM;
use serde_json::json;
use std::time::Duration;
use tautline::{Config, MessageType, Node};
use tautline_testkit::ros::ros1::{self, Master};
use tautline_testkit::ros::{bytes_of, free_port, wait_for};
use tautline_testkit::running::{self, Place};

const DEADLINE: Duration = Duration::from_secs(60);

/// A string as ROS 1 serializes it.
fn serialized(text: &str) -> Vec<u8> {
    [&(text.len() as u32).to_le_bytes(), text.as_bytes()].concat()
}

#[test]
fn a_program_exchanges_messages_with_ros_nodes_behind_a_daemon() {
    let place = Place::new(PROGRAM);
    let master = Master::start_alone(free_port());
    let [robot_port, program_port] = [(); 2].map(|()| running::free_port());
    let _robot = place.start(
        "robot",
        &format!(
            "listen: \"127.0.0.1:{robot_port}\"\n\
             ros1: {{ master: \"{}\", host: 127.0.0.1 }}\n\
             topics: {{ /answer: {{}} }}\n\
             peers: {{ program: {{ address: \"127.0.0.1:{program_port}\", accept: {{ /question: std_msgs/String }} }} }}",
            master.uri
        ),
    );
    let text = format!(
        "name: program\nlisten: \"127.0.0.1:{program_port}\"\nsecurity: none\nbeacons: false\n\
         topics: {{ /question: {{}} }}\n\
         peers: {{ robot: {{ address: \"127.0.0.1:{robot_port}\", accept: [/answer] }} }}"
    );
    let node = Node::open(Config::parse(&text).unwrap()).unwrap();
    let mut agent = ros1::start(&master.uri, "/on_robot");
    agent.subscribe("/question", "std_msgs/String");
    agent.advertise("/answer", "std_msgs/String", false);

    let answers = node.subscribe("/answer").unwrap();
    let message_type = MessageType::of_ros("std_msgs/String", "string data").unwrap();
    let questions = node.publish("/question", message_type).unwrap();
    assert!(questions.wait_for_subscriber(DEADLINE));
    wait_for("the question", || {
        questions.send(serialized("who?")).unwrap();
        agent
            .received("/question")
            .iter()
            .any(|it| bytes_of(it) == serialized("who?"))
            .then_some(())
    });
    let answer = wait_for("the answer", || {
        agent.send("/answer", json!({ "data": "me" }));
        answers.try_recv().ok()
    });
    assert_eq!(answer.payload, serialized("me"));
    assert_eq!(&*answer.type_name, "std_msgs/String");
    node.close().unwrap();
}
