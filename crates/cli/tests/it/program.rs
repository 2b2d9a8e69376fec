// SPDX-License-Identifier: Apache-2.0
//! A program without ROS (the library's front door), and a daemon with a real master and a rospy node.

use crate::PROGRAM;
use serde_json::json;
use std::process::Command;
use std::time::Duration;
use tautline::{CloseError, Config, MessageType, Node, RecvError};
use tautline_testkit::again::this_test;
use tautline_testkit::ros::ros1::{self, Master};
use tautline_testkit::ros::{bytes_of, free_port, wait_for};
use tautline_testkit::running::{self, Enclosure, Place};

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

/// Set in the process of a robot: the address of its base.
const BASE: &str = "TAUTLINE_TEST_BASE";
const LISTEN: &str = "TAUTLINE_TEST_LISTEN";
/// More than a link of 1 Mbps carries in the second that a daemon has for its shutdown.
const LARGE: usize = 200_000;

/// A node without keys; `lines` are the rest of its configuration.
fn open(name: &str, listen: &str, lines: &str) -> Node {
    let text =
        format!("name: {name}\nlisten: \"{listen}\"\nsecurity: none\nbeacons: false\n{lines}");
    Node::open(Config::parse(&text).unwrap()).unwrap()
}

/// Answers one call, sends its last messages and ends, without waiting for anything.
fn run_short_lived_robot(listen: &str, base: &str) {
    let lines = format!(
        "topics: {{ /last: {{}} }}\nservices: {{ /size: {{}} }}\n\
         peers: {{ base: {{ address: \"{base}\", call: [/size] }} }}"
    );
    let node = open("robot", listen, &lines);
    let server = node.serve("/size", "example/Size").unwrap();
    let publisher = node.publish("/last", "example/Text").unwrap();
    assert!(publisher.wait_for_subscriber(DEADLINE));
    let request = server.recv_timeout(DEADLINE).unwrap();
    for message in [vec![1; LARGE], vec![2; 3]] {
        publisher.send(message).unwrap();
    }
    request.answer(Ok(vec![3; LARGE]));
    drop((publisher, server));
    node.close().unwrap();
}

/// Receives what a robot in a process of its own says last; `wired` are the networks of both.
fn receive_final_messages(wired: Option<&[Enclosure; 2]>) {
    if let (Ok(listen), Ok(base)) = (std::env::var(LISTEN), std::env::var(BASE)) {
        return run_short_lived_robot(&listen, &base);
    }
    let hosts = if wired.is_some() { ["10.77.0.1", "10.77.0.2"] } else { ["127.0.0.1"; 2] };
    let [robot, base] = hosts.map(|host| format!("{host}:{}", running::free_port()));
    let lines = format!("peers: {{ robot: {{ address: \"{robot}\", accept: [/last, /size] }} }}");
    let node = match wired {
        Some([_, there]) => there.call(|| open("base", &base, &lines)),
        None => open("base", &base, &lines),
    };
    let last = node.subscribe("/last").unwrap();
    let program = std::env::current_exe().unwrap();
    let mut command = match wired {
        Some([here, _]) => here.command(program.to_str().unwrap()),
        None => Command::new(program),
    };
    command.args([&this_test(), "--exact", "--nocapture"]);
    let mut robot = command.env(LISTEN, robot).env(BASE, base).spawn().unwrap();
    let answer = node.call("/size", "", DEADLINE);
    assert_eq!(answer.map(|it| it.len()), Ok(LARGE));
    let mut lengths = [(); 2].map(|()| last.recv_timeout(DEADLINE).unwrap().payload.len());
    lengths.sort_unstable();
    assert_eq!(lengths, [3, LARGE]);
    assert!(robot.wait().unwrap().success());
}

#[test]
fn final_messages_of_a_program_arrive_over_loopback() {
    receive_final_messages(None);
}

#[test]
fn final_messages_of_a_program_arrive_over_a_slow_link() {
    receive_over_impaired_link(|robot, _| {
        robot.run("tc qdisc add dev wire root tbf rate 1mbit burst 3000 limit 30000");
    });
}

#[test]
fn final_messages_of_a_program_arrive_over_a_lossy_link() {
    receive_over_impaired_link(|_, base| {
        let rule = "meta l4proto udp numgen random mod 4 == 0 drop";
        let chain = format!("chain in {{\n type filter hook input priority 0\n {rule}\n}}");
        base.nft(&format!("table inet loss {{\n{chain}\n}}"));
    });
}

/// Hears the last words over a cable that `spoil` makes worse.
fn receive_over_impaired_link(spoil: impl FnOnce(&Enclosure, &Enclosure)) {
    if std::env::var_os(BASE).is_some() {
        return receive_final_messages(None);
    }
    let wired = Place::new(PROGRAM).two_hosts();
    wired[0].join(&wired[1]);
    spoil(&wired[0], &wired[1]);
    receive_final_messages(Some(&wired));
}

#[test]
fn a_program_that_does_not_wait_learns_that_messages_may_be_lost() {
    let [robot, base] = [(); 2].map(|()| format!("127.0.0.1:{}", running::free_port()));
    let lines = format!("topics: {{ /a: {{}} }}\npeers: {{ base: \"{base}\" }}");
    let sender = open("robot", &robot, &lines);
    let lines = format!("peers: {{ robot: {{ address: \"{robot}\", accept: [/a] }} }}");
    let receiver = open("base", &base, &lines);
    let subscription = receiver.subscribe("/a").unwrap();
    let publisher = sender.publish("/a", "example/Text").unwrap();
    assert!(publisher.wait_for_subscriber(DEADLINE));
    publisher.send(vec![0; 30_000_000]).unwrap();
    let closed = sender.close_within(Duration::ZERO);
    assert!(matches!(closed, Err(CloseError::Unsettled { messages: 1 })), "{closed:?}");
    receiver.close().unwrap();
    assert_eq!(subscription.recv(), Err(RecvError::Closed));
}
