// SPDX-License-Identifier: Apache-2.0
//! Actions between ROS 1 and ROS 2, and through outages and restarts: real actionlib and rclpy
//! programs, and a daemon for each.

use crate::PROGRAM;
use serde_json::{Value, json};
use std::process::Command;
use tautline_testkit::ros::ros1;
use tautline_testkit::ros::ros1::Master;
use tautline_testkit::ros::ros2;
use tautline_testkit::ros::{Agent, free_port};
use tautline_testkit::running::{Daemon, Place, free_port as udp_port, wait_for};

/// Names of the action with a ROS 1 server: at the server, and at its clients.
const ROS1_ACTION: (&str, &str) = ("/one/fib", "/r/one/fib");
/// Names of the action with a ROS 2 server: at the server, and at its clients.
const ROS2_ACTION: (&str, &str) = ("/two/fib", "/r/two/fib");

/// Starts a daemon of each ROS. The folder of definitions of ROS 1 has only that of the goal, because
/// nobody publishes goals. Definitions of results and feedback come from the server, and definitions of
/// ROS 2 from the peer.
fn daemons(place: &Place, master: &Master) -> [Daemon; 2] {
    let ports = [(); 2].map(|()| udp_port());
    let file = |here: usize, ros: &str, peer: &str, actions: &str| {
        let (port, there) = (ports[here], ports[1 - here]);
        format!(
            "listen: \"127.0.0.1:{port}\"\n{ros}\npeers:\n  {peer}:\n    prefix: /r\n    \
             address: \"127.0.0.1:{there}\"\n    call: \"/**\"\nactions: [{actions}]\n\
             services: [/two/slow]\nstate: {}\n",
            place.path("state").display()
        )
    };
    let messages = place.path("ros1/share/test_msgs/msg");
    std::fs::create_dir_all(&messages).unwrap();
    std::fs::write(messages.join("FibonacciGoal.msg"), "int32 order\n").unwrap();
    let ros1 = format!(
        "ros1: {{ master: \"{}\", host: 127.0.0.1, definitions: {} }}",
        master.uri,
        place.path("ros1").display()
    );
    let kilted = ros2::installation("kilted").canonicalize().unwrap();
    let ros2 = format!("ros1: false\nros2: {{ definitions: {} }}", kilted.display());
    [
        place.start("robot", &file(0, &ros1, "base", "/one/fib, /one/picky")),
        place.start("base", &file(1, &ros2, "robot", "/two/fib")),
    ]
}

fn start_ros1(master: &Master) -> Agent {
    let scratch = tempfile::tempdir().unwrap();
    let mut program = ros1::ros("/usr/bin/python3", &master.uri, scratch.path());
    program.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/actions/ros1.py"));
    Agent::start(program, scratch)
}

fn start_ros2(domain: u32) -> Agent {
    let mut program = Command::new(ros2::installation("kilted").join("bin/python"));
    program
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/actions/ros2.py"))
        .env("ROS_DOMAIN_ID", domain.to_string())
        .env("FASTDDS_BUILTIN_TRANSPORTS", "UDPv4")
        .env_remove("LD_LIBRARY_PATH")
        .env_remove("_ROS_WHEELS_BOOTSTRAP_COMPLETE");
    Agent::start(program, tempfile::tempdir().unwrap())
}

/// A client's goals at one action.
struct Goals<'a> {
    agent: &'a mut Agent,
    action: &'a str,
}

impl<'a> Goals<'a> {
    /// Waits for the server.
    fn new(agent: &'a mut Agent, action: &'a str) -> Self {
        let found = agent.order(json!({ "do": "client", "name": action }));
        assert_eq!(found["found"], true, "no server of {action}");
        Self { agent, action }
    }

    fn send(&mut self, goal: u32, order: i32) {
        let action = self.action;
        self.agent.order(json!({ "do": "send", "name": action, "goal": goal, "order": order }));
    }

    fn cancel(&mut self, goal: Option<u32>) {
        let action = self.action;
        self.agent.order(json!({ "do": "cancel", "name": action, "goal": goal }));
    }

    fn wait_until_ready(&mut self, ready: bool) {
        let order = json!({ "do": "ready", "name": self.action });
        wait_for(format!("the server is ready: {ready}"), || {
            (self.agent.order(order.clone())["ready"] == ready).then_some(())
        });
    }

    fn wait(&self, what: &str, goal: u32) -> Value {
        self.agent.wait(&format!("{what} of goal {goal}"), |report| report[what] == goal)
    }

    /// The state in which a goal ended, and the number of elements of its result.
    fn end(&self, goal: u32) -> (String, usize) {
        let end = self.wait("ended", goal);
        let status = end["status"].as_str().unwrap().to_owned();
        (status, end["sequence"].as_array().map_or(0, Vec::len))
    }

    /// Checks that every number of the sequence came as feedback, in order.
    fn assert_feedback(&self, goal: u32, count: usize) {
        let reports = self.agent.reports();
        let all = reports.iter().filter(|report| report["feedback"] == goal);
        let lens: Vec<_> = all.map(|it| it["sequence"].as_array().unwrap().len()).collect();
        assert_eq!(lens, (1..=count).collect::<Vec<_>>());
    }
}

#[test]
fn an_action_of_either_ros_is_used_by_clients_of_the_other() {
    if !ros2::runs_in_own_network() {
        return;
    }
    let place = Place::new(PROGRAM);
    let master = Master::start_alone(free_port());
    let daemons = daemons(&place, &master);
    let (mut one, mut two) = (start_ros1(&master), start_ros2(0));
    one.order(json!({ "do": "serve" }));
    two.order(json!({ "do": "serve" }));

    // A server of actionlib, a client of rclpy.
    let mut goals = Goals::new(&mut two, ROS1_ACTION.1);
    goals.send(1, 4);
    assert_eq!(goals.end(1), ("SUCCEEDED".into(), 4));
    goals.send(2, 13);
    assert_eq!(goals.end(2), ("ABORTED".into(), 13));
    goals.assert_feedback(1, 4);
    goals.assert_feedback(2, 13);
    goals.send(3, 1000);
    goals.wait("feedback", 3);
    goals.cancel(Some(3));
    let canceled = goals.wait("canceled", 3);
    assert_eq!((&canceled["code"], &canceled["goals"]), (&json!(0), &json!(1)));
    assert_eq!(goals.end(3).0, "CANCELED");
    // A new goal preempts the earlier one.
    goals.send(4, 1000);
    goals.wait("feedback", 4);
    goals.send(5, 3);
    assert_eq!(goals.end(4).0, "CANCELED");
    assert_eq!(goals.end(5), ("SUCCEEDED".into(), 3));
    let mut picky = Goals::new(&mut two, "/r/one/picky");
    picky.send(6, -1);
    assert_eq!(picky.wait("changed", 6)["accepted"], false);
    picky.send(7, 1);
    assert_eq!(picky.end(7), ("SUCCEEDED".into(), 1));

    // A server of rclpy, a client of actionlib.
    let mut goals = Goals::new(&mut one, ROS2_ACTION.1);
    goals.send(11, 4);
    assert_eq!(goals.end(11), ("SUCCEEDED".into(), 4));
    goals.send(12, 13);
    assert_eq!(goals.end(12), ("ABORTED".into(), 13));
    goals.assert_feedback(11, 4);
    goals.assert_feedback(12, 13);
    goals.send(13, 1000);
    goals.wait("feedback", 13);
    goals.cancel(Some(13));
    assert_eq!(goals.end(13).0, "PREEMPTED");
    goals.send(14, -1);
    assert_eq!(goals.end(14).0, "REJECTED");
    for goal in [15, 16] {
        goals.send(goal, 1000);
        goals.wait("feedback", goal);
    }
    goals.cancel(None);
    assert_eq!([15, 16].map(|goal| goals.end(goal).0), ["PREEMPTED", "PREEMPTED"]);

    // Both servers end while goals are active.
    goals.send(17, 1000);
    goals.wait("feedback", 17);
    two.order(json!({ "do": "unserve" }));
    let goals = Goals { agent: &mut one, action: ROS2_ACTION.1 };
    assert_eq!(goals.end(17).0, "LOST");
    let mut goals = Goals { agent: &mut two, action: ROS1_ACTION.1 };
    goals.send(8, 1000);
    goals.wait("feedback", 8);
    one.signal("-KILL");
    assert_eq!(goals.end(8).0, "ABORTED");

    // A client of ROS 1 gets an error when its own daemon is killed.
    let mut one = start_ros1(&master);
    one.order(json!({ "do": "call", "name": "/r/two/slow" }));
    two.wait("the call", |report| report["called"] == "/two/slow");
    let [robot, _base] = daemons;
    robot.kill();
    one.wait("the error of the call", |report| report["failed"] == "/r/two/slow");
}

/// The robot's address, which [`cut_link`] makes unreachable.
const ROBOT: &str = "127.0.0.2";

/// Two daemons of ROS 2: the server's is "robot", in domain 1; the client's is "base", in domain 0.
struct TwoRos2 {
    place: Place,
    files: [String; 2],
}

impl TwoRos2 {
    fn new() -> Self {
        let (place, ports) = (Place::new(PROGRAM), [(); 2].map(|()| udp_port()));
        let kilted = ros2::installation("kilted").canonicalize().unwrap();
        let file = |own: &str, domain: u32, peer: &str, there: &str, more: &str| {
            format!(
                "listen: \"{own}\"\nros1: false\n\
                 ros2: {{ domain: {domain}, definitions: {} }}\nstate: {}\npeers:\n  {peer}:\n    \
                 prefix: /r\n    address: \"{there}\"\n{more}",
                kilted.display(),
                place.path("state").display(),
            )
        };
        let (robot, base) = (format!("{ROBOT}:{}", ports[0]), format!("127.0.0.1:{}", ports[1]));
        let rights = "    call: \"/**\"\nactions: [/two/fib]\n";
        let files = [file(&robot, 1, "base", &base, rights), file(&base, 0, "robot", &robot, "")];
        Self { place, files }
    }

    fn start(&self, which: usize) -> Daemon {
        self.place.start(["robot", "base"][which], &self.files[which])
    }

    /// Waits until the client's daemon keeps these pending calls, and no others.
    fn wait_for_kept(&self, mut expected: Vec<&str>) {
        expected.sort_unstable();
        wait_for(format!("{expected:?} are kept"), || {
            let text = std::fs::read_to_string(self.place.path("state/base.goals")).ok()?;
            let names = text.lines().filter_map(|line| line.split(' ').next()?.rsplit('/').next());
            let mut kept: Vec<_> = names.collect();
            kept.sort_unstable();
            (kept == expected).then_some(())
        });
    }
}

/// Cuts or mends the link to the robot.
fn cut_link(is_cut: bool) {
    let change = if is_cut { "add" } else { "del" };
    let route = ["route", change, "unreachable", ROBOT, "table", "local"];
    assert!(Command::new("ip").args(route).status().unwrap().success());
}

#[test]
fn goal_calls_survive_a_daemon_restart() {
    if !ros2::runs_in_own_network() {
        return;
    }
    let set_up = TwoRos2::new();
    let (_robot, base) = (set_up.start(0), set_up.start(1));
    let (mut server, mut client) = (start_ros2(1), start_ros2(0));
    server.order(json!({ "do": "serve" }));
    let mut goals = Goals::new(&mut client, ROS2_ACTION.1);

    // All feedback of the first goal arrives, although the daemon subscribes to feedback only when a client
    // appears.
    goals.send(10, 3);
    assert_eq!(goals.end(10), ("SUCCEEDED".into(), 3));
    goals.assert_feedback(10, 3);
    for goal in 11..14 {
        goals = Goals::new(goals.agent, ROS2_ACTION.1);
        goals.send(goal, 3);
        goals.end(goal);
        goals.assert_feedback(goal, 3);
    }
    // Goals, results and feedback are checked by the action that is installed here.
    assert!(base.status().unchecked.is_empty(), "{:?}", base.status().unchecked);

    // Killed in the middle of two goals, one of which ends before the restart.
    goals.send(1, 100);
    goals.send(2, 20);
    goals.wait("feedback", 1);
    goals.wait("feedback", 2);
    set_up.wait_for_kept(vec!["get_result"; 2]);
    base.kill();
    server.wait("the end of the short goal", |report| report["finished"] == 20);
    let base = set_up.start(1);
    assert_eq!(goals.end(2), ("SUCCEEDED".into(), 20));
    assert_eq!(goals.end(1), ("SUCCEEDED".into(), 100));

    // Killed during an outage, in which a goal was cancelled and another one sent.
    goals.send(3, 1000);
    goals.wait("feedback", 3);
    cut_link(true);
    goals.cancel(Some(3));
    goals.send(4, 44);
    set_up.wait_for_kept(vec!["get_result", "cancel_goal", "send_goal"]);
    base.kill();
    let base = set_up.start(1);
    cut_link(false);
    let canceled = goals.wait("canceled", 3);
    assert_eq!((&canceled["code"], &canceled["goals"]), (&json!(0), &json!(1)));
    assert_eq!(goals.end(3).0, "CANCELED");
    assert_eq!(goals.wait("changed", 4)["accepted"], false);

    // The server returns without the goal.
    goals.send(5, 1000);
    goals.wait("feedback", 5);
    set_up.wait_for_kept(vec!["get_result"]);
    server.order(json!({ "do": "unserve" }));
    server.order(json!({ "do": "serve" }));
    assert_eq!(goals.end(5), ("UNKNOWN".into(), 0));

    // Each goal ends exactly once.
    let ends = client.reports().into_iter().filter(|report| report.get("ended").is_some());
    let mut ends: Vec<_> = ends.map(|report| report["ended"].as_u64().unwrap()).collect();
    ends.sort_unstable();
    assert_eq!(ends, [1, 2, 3, 5, 10, 11, 12, 13]);
    let orders = server.reports().into_iter().filter(|report| report.get("executes").is_some());
    let mut orders: Vec<_> = orders.map(|report| report["order"].as_u64().unwrap()).collect();
    orders.sort_unstable();
    assert_eq!(orders, [3, 3, 3, 3, 20, 100, 1000, 1000]);

    // The client sees whether there is a server.
    let mut goals = Goals { agent: &mut client, action: ROS2_ACTION.1 };
    server.order(json!({ "do": "unserve" }));
    goals.wait_until_ready(false);
    server.order(json!({ "do": "serve" }));
    goals.wait_until_ready(true);
    base.terminate();
    goals.wait_until_ready(false);
}
