// SPDX-License-Identifier: Apache-2.0
//! Nodes and parameters of a robot at its base station, as the command line tools of ROS show them.

use crate::PROGRAM;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command as Process;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tautline_proto::wire::control::Control;
use tautline_testkit::ros;
use tautline_testkit::ros::Agent;
use tautline_testkit::ros::ros1;
use tautline_testkit::ros::ros1::Master;
use tautline_testkit::ros::ros2;
use tautline_testkit::running::{Daemon, Place, free_port, hostile, wait_for};

const TEXT: &str = "std_msgs/String";

/// Two robots with ROS 1, the tools at the masters, and a folder for their files.
struct Ros1 {
    place: Place,
    robot_master: Master,
    base_master: Master,
    ports: [u16; 2],
}

impl Ros1 {
    fn new() -> Self {
        Self {
            place: Place::new(PROGRAM),
            robot_master: Master::start_alone(ros::free_port()),
            base_master: Master::start_alone(ros::free_port()),
            ports: [free_port(), free_port()],
        }
    }

    /// The rest of the robot's file with these lines for its peer.
    fn robot_lines(&self, rights: &str) -> String {
        format!(
            "listen: \"127.0.0.1:{}\"\nros1: {{ master: \"{}\", host: 127.0.0.1 }}\n\
             peers: {{ base: {{ address: \"127.0.0.1:{}\", {rights} }} }}\ntopics: [/image]",
            self.ports[0], self.robot_master.uri, self.ports[1]
        )
    }

    fn base_lines(&self) -> String {
        format!(
            "listen: \"127.0.0.1:{}\"\nros1: {{ master: \"{}\", host: 127.0.0.1 }}\n\
             peers: {{ robot: {{ address: \"127.0.0.1:{}\", prefix: /robot1, accept: /image }} }}",
            self.ports[1], self.base_master.uri, self.ports[0]
        )
    }

    fn start(&self, rights: &str) -> [Daemon; 2] {
        let robot = self.place.start("robot", &self.robot_lines(rights));
        let base = self.place.start("base", &self.base_lines());
        base.wait_for_state("robot", "up");
        [robot, base]
    }

    /// The output of a tool of ROS at a master.
    fn tool(&self, master: &Master, command: &str) -> String {
        tool(master, command, self.place.path("").as_path())
    }

    fn at_base(&self, command: &str) -> String {
        self.tool(&self.base_master, command)
    }

    fn wait_at_base(&self, command: &str, holds: impl Fn(&str) -> bool) -> String {
        wait_for(format!("{command} at the base"), || {
            Some(self.at_base(command)).filter(|output| holds(output))
        })
    }
}

fn tool(master: &Master, command: &str, scratch: &Path) -> String {
    let mut words = command.split(' ');
    let mut program = ros1::ros(words.next().unwrap(), &master.uri, scratch);
    let output = program.args(words).output().unwrap();
    String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
}

fn has_line(text: &str, line: &str) -> bool {
    text.lines().any(|it| it.trim() == line)
}

#[test]
fn nodes_of_a_robot_are_listed_at_the_base_with_their_topics() {
    let ros = Ros1::new();
    let mut camera = ros1::start(&ros.robot_master.uri, "/camera");
    camera.advertise("/image", TEXT, false);
    let quiet = ros1::start(&ros.robot_master.uri, "/arm/quiet");
    let mut viewer = ros1::start(&ros.base_master.uri, "/viewer");
    viewer.subscribe("/robot1/image", TEXT);
    let [_robot, mut base] = ros.start("show: [nodes]");

    ros.wait_at_base("rosnode list", |output| {
        ["/robot1/camera", "/robot1/arm/quiet"].iter().all(|it| has_line(output, it))
    });
    ros.wait_at_base("rostopic info /robot1/image", |output| {
        output.contains("* /robot1/camera (") && !output.contains("* /tautline (")
    });
    let info = ros.at_base("rosnode info /robot1/camera");
    assert!(info.contains(" * /robot1/image [std_msgs/String]"), "{info}");
    assert!(info.contains("Pid: "), "{info}");
    wait_for("a message under the name of the stand-in", || {
        camera.send("/image", json!({"data": "x"}));
        viewer.received("/robot1/image").pop()
    });
    let received = viewer.received("/robot1/image").len();
    camera.send("/image", json!({"data": "last"}));
    wait_for("the last message", || {
        (viewer.received("/robot1/image").len() > received).then_some(())
    });

    // A node that ends at the robot ends at the base, too.
    quiet.leave();
    ros.wait_at_base("rosnode list", |output| !output.contains("quiet"));
    base.terminate();
    assert!(base.wait_for_end().success());
    assert_eq!(ros.at_base("rosnode list").trim(), "/viewer");
}

#[test]
fn a_stand_in_does_not_end_or_hide_a_local_node() {
    let ros = Ros1::new();
    let mut camera = ros1::start(&ros.robot_master.uri, "/camera");
    camera.advertise("/image", TEXT, false);
    let mut local = ros1::start(&ros.base_master.uri, "/robot1/camera");
    local.advertise("/local", TEXT, false);
    let [_robot, _base] = ros.start("show: [nodes]");
    // The topic is there, under the name of the daemon.
    ros.wait_at_base("rostopic info /robot1/image", |it| it.contains("* /tautline ("));
    let other = ros1::start(&ros.robot_master.uri, "/later");
    ros.wait_at_base("rosnode list", |output| has_line(output, "/robot1/later"));
    let is_local_there = || {
        let info = ros.at_base("rosnode info /robot1/camera");
        info.contains(" * /local [") && !info.contains("/robot1/image")
    };
    assert!(is_local_there());
    // A local node that starts later has the name as well.
    let mut late = ros1::start(&ros.base_master.uri, "/robot1/later");
    late.advertise("/late", TEXT, false);
    wait_for("the local node under its name", || {
        let info = ros.at_base("rosnode info /robot1/later");
        (info.contains(" * /late [") && info.contains("Pid: ")).then_some(())
    });
    assert!(is_local_there(), "and it is still there");
    late.advertise("/later_still", TEXT, false);
    drop(other);
}

#[test]
fn parameters_of_a_robot_can_be_read_at_the_base_and_local_ones_stay() {
    let ros = Ros1::new();
    for command in [
        "rosparam set /camera/rate 2.5",
        "rosparam set /camera/size [640,480]",
        "rosparam set /camera/active true",
        "rosparam set /name camera_one",
        "rosparam set /shared robot",
    ] {
        ros.tool(&ros.robot_master, command);
    }
    ros.at_base("rosparam set /robot1/shared base");
    ros.at_base("rosparam set /own 1");
    let [robot, mut base] = ros.start("show: [parameters]");
    ros.wait_at_base("rosparam get /robot1/camera", |output| {
        ["rate: 2.5", "640", "active: true"].iter().all(|it| output.contains(it))
    });
    assert_eq!(ros.at_base("rosparam get /robot1/name").trim(), "camera_one");
    assert_eq!(ros.at_base("rosparam get /robot1/shared").trim(), "base");

    ros.tool(&ros.robot_master, "rosparam set /camera/rate 3.0");
    ros.wait_at_base("rosparam get /robot1/camera/rate", |output| output.trim() == "3.0");
    ros.tool(&ros.robot_master, "rosparam delete /camera/size");
    ros.wait_at_base("rosparam list", |output| !output.contains("/robot1/camera/size"));
    // Values set here do not reach the robot, and are reset.
    ros.at_base("rosparam set /robot1/camera/rate 9.0");
    ros.wait_at_base("rosparam get /robot1/camera/rate", |output| output.trim() == "3.0");
    assert_eq!(ros.tool(&ros.robot_master, "rosparam get /camera/rate").trim(), "3.0");

    let line = "under peers.base: set_parameters: /camera/rate";
    robot.wait_for_notice(&["'base' may set it only if", line]);
    base.wait_for_notice(&["'robot' refuses the parameter /camera/rate", "add there", line]);
    let waiting = robot.status().waiting;
    assert!(waiting.iter().any(|it| it.name == "/camera/rate"), "{waiting:?}");

    // Without the right, nothing is shown any more.
    ros.place.write("robot", "robot", &ros.robot_lines("prefix: /b"));
    let mut client = tautline_cli::control::Client::connect(&ros.place.path("robot.sock")).unwrap();
    client.reload(false, || ()).unwrap();
    ros.wait_at_base("rosparam list", |output| !output.contains("/robot1/camera"));
    ros.place.write("robot", "robot", &ros.robot_lines("show: parameters"));
    client.reload(false, || ()).unwrap();
    ros.wait_at_base("rosparam get /robot1/camera/rate", |output| output.trim() == "3.0");
    drop(robot);
    base.terminate();
    assert!(base.wait_for_end().success());
    let left = ros.at_base("rosparam list");
    assert!(has_line(&left, "/robot1/shared") && has_line(&left, "/own"), "{left}");
    assert!(!left.contains("/robot1/camera") && !left.contains("/robot1/name"), "{left}");
}

#[test]
fn logs_of_a_robot_are_among_those_of_the_base_under_its_prefix() {
    let ros = Ros1::new();
    let mut camera = ros1::start(&ros.robot_master.uri, "/camera");
    let log = "rosgraph_msgs/Log";
    camera.advertise("/rosout", log, false);
    let mut console = ros1::start(&ros.base_master.uri, "/console");
    console.order(json!({"do": "subscribe", "topic": "/rosout", "type": log, "fields": true}));
    let [_robot, _base] = ros.start("show: logs");
    let found = wait_for("a log of the robot at the base", || {
        let fields =
            json!({"name": "/camera", "level": 4, "msg": "lens cap", "topics": ["/image"]});
        camera.send("/rosout", fields);
        let logs = console.received("/rosout").into_iter().map(|it| it["fields"].clone());
        logs.rev().find(|it| it["msg"] == "lens cap")
    });
    assert_eq!(found["name"], "/robot1/camera");
    assert_eq!((&found["level"], &found["topics"]), (&json!(4), &json!(["/image"])));
    // Nobody else gets them.
    assert!(!ros.at_base("rostopic list").contains("/robot1/rosout"));
}

#[test]
fn after_a_crash_at_the_base_nodes_and_parameters_are_taken_over() {
    let ros = Ros1::new();
    ros.tool(&ros.robot_master, "rosparam set /camera/rate 2.5");
    let mut camera = ros1::start(&ros.robot_master.uri, "/camera");
    camera.advertise("/image", TEXT, false);
    let [_robot, base] = ros.start("show: [nodes, parameters]");
    ros.wait_at_base("rosparam get /robot1/camera/rate", |output| output.trim() == "2.5");
    ros.wait_at_base("rostopic info /robot1/image", |it| it.contains("* /robot1/camera ("));
    let mark = "rosparam get /robot1/tautline_copies_of";
    let before = ros.at_base(mark);
    base.kill();
    assert!(has_line(&ros.at_base("rosnode list"), "/robot1/camera"), "the master does not notice");
    let mut base = ros.place.start("base", &ros.base_lines());
    let pid = format!("Pid: {}", base.pid());
    ros.wait_at_base("rosnode info /robot1/camera", |output| output.contains(&pid));
    ros.wait_at_base("rostopic info /robot1/image", |it| {
        it.matches("* /robot1/camera (").count() == 1 && !it.contains("* /tautline (")
    });
    ros.wait_at_base(mark, |it| it.starts_with("/tautline http://127.0.0.1:") && it != before);
    ros.tool(&ros.robot_master, "rosparam set /camera/rate 3.5");
    ros.wait_at_base("rosparam get /robot1/camera/rate", |output| output.trim() == "3.5");
    base.terminate();
    assert!(base.wait_for_end().success());
    assert_eq!(ros.at_base("rosnode list").trim(), "");
    let left = ros.at_base("rosparam list");
    assert!(!left.contains("/robot1"), "{left}");
}

#[test]
fn two_pairs_of_daemons_create_no_copies_of_copies() {
    let ros = Ros1::new();
    let masters = [&ros.robot_master, &ros.base_master];
    ros.tool(masters[0], "rosparam set /rate 2.5");
    ros.tool(masters[1], "rosparam set /zoom 1");
    let _camera = ros1::start(&masters[0].uri, "/camera");
    let _viewer = ros1::start(&masters[1].uri, "/viewer");
    // Prefixes: /p1 and /p2 at the base, /q1 and /q2 at the robot.
    let daemons = [1, 2].map(|pair| {
        let ports = [free_port(), free_port()];
        let daemon = |here: usize| {
            let (name, peer) = [("robot", "base"), ("base", "robot")][here];
            let lines = format!(
                "listen: \"127.0.0.1:{}\"\n\
                 ros1: {{ master: \"{}\", host: 127.0.0.1, node_name: /{name}{pair} }}\n\
                 peers: {{ {peer}{pair}: {{ address: \"127.0.0.1:{}\", prefix: /{}{pair}, \
                 show: [nodes, parameters] }} }}",
                ports[here],
                masters[here].uri,
                ports[1 - here],
                ["q", "p"][here]
            );
            ros.place.start(&format!("{name}{pair}"), &lines)
        };
        [daemon(0), daemon(1)]
    });
    let wait_for_all = |command: &str, names: [&str; 2]| {
        for (master, prefix, name) in [(masters[1], "p", names[0]), (masters[0], "q", names[1])] {
            wait_for(format!("both copies of {name} in {command}"), || {
                let list = ros.tool(master, command);
                [1, 2]
                    .iter()
                    .all(|it| has_line(&list, &format!("/{prefix}{it}{name}")))
                    .then_some(())
            });
        }
    };
    wait_for_all("rosnode list", ["/camera", "/viewer"]);
    wait_for_all("rosparam list", ["/rate", "/zoom"]);
    // Later lists contain these parameters, and would contain copies of the copies before.
    ros.tool(masters[0], "rosparam set /later 1");
    ros.tool(masters[1], "rosparam set /later 1");
    let _more = masters.map(|master| ros1::start(&master.uri, "/later"));
    wait_for_all("rosnode list", ["/later", "/later"]);
    wait_for_all("rosparam list", ["/later", "/later"]);
    for (master, command) in
        masters.into_iter().flat_map(|master| [(master, "rosnode list"), (master, "rosparam list")])
    {
        let list = ros.tool(master, command);
        let is_prefix = |it: &&str| ["p1", "p2", "q1", "q2"].contains(it);
        let twice = |name: &&str| name.split('/').filter(is_prefix).count() > 1;
        assert_eq!(list.lines().find(twice), None, "{command}: {list}");
    }
    drop(daemons);
}

#[test]
fn parameters_of_a_robot_are_set_at_the_base_with_the_right() {
    let ros = Ros1::new();
    for command in
        ["rosparam set /camera/rate 2.5", "rosparam set /camera/gain 1", "rosparam set /x 1"]
    {
        ros.tool(&ros.robot_master, command);
    }
    let [robot, _base] = ros.start("show: [parameters], set_parameters: \"/camera/**\"");
    ros.wait_at_base("rosparam get /robot1/camera/rate", |output| output.trim() == "2.5");
    ros.at_base("rosparam set /robot1/camera/rate 9.5");
    wait_for("the new value on the robot", || {
        let found = ros.tool(&ros.robot_master, "rosparam get /camera/rate");
        (found.trim() == "9.5").then_some(())
    });
    // Another value follows at once, and that of the robot reaches the base.
    ros.at_base("rosparam set /robot1/camera/rate 8.5");
    wait_for("the next value on the robot", || {
        let found = ros.tool(&ros.robot_master, "rosparam get /camera/rate");
        (found.trim() == "8.5").then_some(())
    });
    ros.tool(&ros.robot_master, "rosparam set /camera/rate 1.5");
    ros.wait_at_base("rosparam get /robot1/camera/rate", |output| output.trim() == "1.5");
    ros.at_base("rosparam set /robot1/x 5");
    ros.wait_at_base("rosparam get /robot1/x", |output| output.trim() == "1");
    robot.wait_for_notice(&["the parameter /x of 'robot'", "set_parameters: /x"]);
    assert_eq!(ros.tool(&ros.robot_master, "rosparam get /x").trim(), "1");
}

/// Carries connections to a master; returns its address and the numbers of calls by method.
fn counting_proxy(master: &Master) -> (String, Arc<Mutex<BTreeMap<String, usize>>>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let uri = format!("http://{}", listener.local_addr().unwrap());
    let calls = Arc::<Mutex<BTreeMap<String, usize>>>::default();
    let (counts, port) = (calls.clone(), master.port());
    std::thread::spawn(move || {
        for mut client in listener.incoming().map_while(Result::ok) {
            let Ok(mut server) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) else { return };
            let (mut requests, mut to_server) =
                (client.try_clone().unwrap(), server.try_clone().unwrap());
            let counts = counts.clone();
            std::thread::spawn(move || {
                let mut bytes = [0; 1 << 16];
                while let Ok(length @ 1..) = requests.read(&mut bytes) {
                    let text = String::from_utf8_lossy(&bytes[..length]);
                    for method in text.split("<methodName>").skip(1) {
                        let method = method.split('<').next().unwrap().to_owned();
                        *counts.lock().unwrap().entry(method).or_default() += 1;
                    }
                    if to_server.write_all(&bytes[..length]).is_err() {
                        break;
                    }
                }
                let _ = to_server.shutdown(Shutdown::Write);
            });
            std::thread::spawn(move || std::io::copy(&mut server, &mut client));
        }
    });
    (uri, calls)
}

#[test]
fn a_peer_that_toggles_its_interest_causes_no_polls() {
    let (place, port) = (Place::new(PROGRAM), free_port());
    let master = Master::start_alone(ros::free_port());
    tool(&master, "rosparam set /camera/rate 2.5", place.path("").as_path());
    let (uri, calls) = counting_proxy(&master);
    let lines = format!(
        "listen: \"127.0.0.1:{port}\"\nros1: {{ master: \"{uri}\", host: 127.0.0.1 }}\n\
         peers: {{ mallory: {{ show: [nodes, parameters] }} }}"
    );
    let _robot = place.start("robot", &lines);
    let mut mallory = hostile::meet("mallory", "robot", port);
    let patience = Duration::from_secs(60);
    assert!(mallory.run_until(patience, |it| it.heard.offers.len() == 2).unwrap());
    let channels: Vec<u64> = mallory.heard.offers.iter().map(|it| it.channel).collect();
    let count = |method: &str| calls.lock().unwrap().get(method).copied().unwrap_or_default();
    let (begun, polls) = (Instant::now(), count("getSystemState"));
    for number in 0..1000 {
        for channel in &channels {
            mallory.control(&Control::Want { channel: *channel, wanted: number % 2 == 0 });
        }
        assert!(mallory.run_until(patience, |it| it.is_settled()).unwrap());
    }
    let seconds = begun.elapsed().as_secs_f64();
    let (polls, gets) = (count("getSystemState") - polls, count("getParam"));
    assert!(gets > 0 && gets as f64 <= 1.0 + seconds / 2.0, "{gets} in {seconds} s");
    // One poll each second, ten in the second after a node has started, and one for the first request of
    // each list.
    assert!(polls as f64 <= 14.0 + seconds, "{polls} in {seconds} s");
}

/// Domains of the robot and of the base.
const DOMAINS: [u32; 2] = [71, 72];

/// The rest of the files of the robot, with these lines for its peer, and of the base.
fn ros2_files(rights: &str) -> [String; 2] {
    let ports = [free_port(), free_port()];
    let file = |here: usize, peer: &str| {
        format!(
            "listen: \"127.0.0.1:{}\"\npeers: {{ {peer}, address: \"127.0.0.1:{}\" }} }}\n\
             ros2: {{ domain: {}, range: localhost, definitions: [\"{}\"] }}",
            ports[here],
            ports[1 - here],
            DOMAINS[here],
            ros2::installation("kilted").display()
        )
    };
    let robot = file(0, &format!("base: {{ {rights}"));
    [format!("{robot}\ntopics: [/image]"), file(1, "robot: { prefix: /robot1, accept: /image")]
}

/// Starts a daemon with each file.
fn start_ros2(place: &Place, [robot, base]: &[String; 2]) -> [Daemon; 2] {
    let robot = place.start("robot", robot);
    let base = place.start("base", base);
    base.wait_for_state("robot", "up");
    [robot, base]
}

/// A node of the domain that executes Python lines, whose output is JSON.
fn start_script(domain: u32, script: &str, arguments: &[&str]) -> Agent {
    let mut program = Process::new(ros2::installation("kilted").join("bin/python"));
    program
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/remote_robots").join(script))
        .args(arguments)
        .env("ROS_DOMAIN_ID", domain.to_string())
        .env("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
        .env("FASTDDS_BUILTIN_TRANSPORTS", "UDPv4")
        .env_remove("LD_LIBRARY_PATH")
        .env_remove("_ROS_WHEELS_BOOTSTRAP_COMPLETE");
    Agent::start(program, tempfile::tempdir().unwrap())
}

#[test]
fn nodes_and_parameters_of_a_ros2_robot_are_shown_at_the_base() {
    if !ros2::runs_in_own_network() {
        return;
    }
    let place = Place::new(PROGRAM);
    let _camera = start_script(DOMAINS[0], "camera.py", &["camera"]);
    let _arm = start_script(DOMAINS[0], "camera.py", &["arm"]);
    let mut viewer = start_script(DOMAINS[1], "viewer.py", &[]);
    let files = ros2_files("show: [nodes, parameters, logs], set_parameters: [/camera]");
    let [_robot, base] = start_ros2(&place, &files);
    wait_for_nodes(&mut viewer, &["/robot1/arm", "/robot1/camera", "/tautline", "/viewer"]);
    wait_for("the publishers and services of the node", || {
        let order = json!({"do": "node", "name": "camera", "namespace": "/robot1"});
        let found = viewer.order(order);
        let has =
            |kind: &str, name: &str| found[kind].as_array().unwrap().iter().any(|it| it[0] == name);
        (has("publishers", "/robot1/image") && has("services", "/robot1/camera/get_parameters"))
            .then_some(())
    });
    assert_eq!(get(&mut viewer, "/robot1/camera"), 10);
    assert_eq!(get(&mut viewer, "/robot1/arm"), 10);
    let set = |viewer: &mut Agent, node: &str| {
        let order = json!({"do": "set", "node": node, "parameter": "rate", "value": 20});
        viewer.order(order)["successful"].clone()
    };
    assert_eq!(set(&mut viewer, "/robot1/camera"), true);
    assert_eq!(get(&mut viewer, "/robot1/camera"), 20);
    assert_eq!(set(&mut viewer, "/robot1/arm"), Value::Null, "there is no such service");
    assert_eq!(get(&mut viewer, "/robot1/arm"), 10);
    wait_for("a log of the robot", || {
        let logs = viewer.order(json!({"do": "logs"}))["logs"].clone();
        logs.as_array().unwrap().contains(&json!(["robot1.camera", "focus lost"])).then_some(())
    });
    drop(base);
}

/// The nodes that a viewer sees.
fn nodes(viewer: &mut Agent) -> Vec<String> {
    let nodes = viewer.order(json!({"do": "nodes"}))["nodes"].clone();
    let mut nodes: Vec<String> = serde_json::from_value(nodes).unwrap();
    nodes.sort();
    nodes
}

/// Waits until a viewer sees these nodes, each once, and no other.
fn wait_for_nodes(viewer: &mut Agent, expected: &[&str]) {
    wait_for(format!("{expected:?}"), || (nodes(viewer) == expected).then_some(()));
}

/// The parameter `rate` of a node.
fn get(viewer: &mut Agent, node: &str) -> Value {
    viewer.order(json!({"do": "get", "node": node, "parameter": "rate"}))["value"].clone()
}

#[test]
fn ros2_nodes_and_parameters_return_after_crashes() {
    if !ros2::runs_in_own_network() {
        return;
    }
    let place = Place::new(PROGRAM);
    let _camera = start_script(DOMAINS[0], "camera.py", &["camera"]);
    let arm = start_script(DOMAINS[0], "camera.py", &["arm"]);
    let mut viewer = start_script(DOMAINS[1], "viewer.py", &[]);
    let files = ros2_files("show: [nodes, parameters]");
    let [robot, base] = start_ros2(&place, &files);
    let both = ["/robot1/arm", "/robot1/camera", "/tautline", "/viewer"];
    wait_for_nodes(&mut viewer, &both);
    robot.kill();
    let _robot = place.start("robot", &files[0]);
    base.wait_for_state("robot", "up");
    // The nodes stay listed meanwhile; their services return.
    wait_for("a parameter after a crash at the robot", || {
        assert_eq!(nodes(&mut viewer), both);
        (get(&mut viewer, "/robot1/camera") == 10).then_some(())
    });
    wait_for_nodes(&mut viewer, &both);
    base.kill();
    let base = place.start("base", &files[1]);
    base.wait_for_state("robot", "up");
    wait_for("a parameter after a crash at the base", || {
        (get(&mut viewer, "/robot1/camera") == 10).then_some(())
    });
    wait_for_nodes(&mut viewer, &both);
    // SIGKILL: its lease has to end.
    drop(arm);
    wait_for_nodes(&mut viewer, &["/robot1/camera", "/tautline", "/viewer"]);
    let _arm = start_script(DOMAINS[0], "camera.py", &["arm"]);
    wait_for_nodes(&mut viewer, &both);
    assert_eq!(get(&mut viewer, "/robot1/arm"), 10);
}

#[test]
fn two_daemons_in_one_domain_each_show_the_ros2_node() {
    if !ros2::runs_in_own_network() {
        return;
    }
    let (place, port) = (Place::new(PROGRAM), free_port());
    let _arm = start_script(DOMAINS[0], "camera.py", &["arm"]);
    let mut viewer = start_script(DOMAINS[1], "viewer.py", &[]);
    let [robot, base] = ros2_files("show: nodes");
    let peer = format!("peers: {{ other: {{ show: nodes, address: \"127.0.0.1:{port}\" }},");
    let other = base.lines().skip(1).collect::<Vec<_>>().join("\n");
    let other = format!("listen: \"127.0.0.1:{port}\"\n{other}");
    let _daemons = start_ros2(&place, &[robot.replace("peers: {", &peer), base]);
    let _other = place.start("other", &other);
    let expected = ["/robot1/arm", "/robot1/arm", "/tautline", "/tautline", "/viewer"];
    wait_for_nodes(&mut viewer, &expected);
    for _ in 0..300 {
        assert_eq!(nodes(&mut viewer), expected, "neither gives way to the other");
    }
}

#[test]
#[ignore = "needs ros2, which GitHub has but PyPI does not: crates/lab/ros2.sh cli"]
fn the_command_line_of_ros2_shows_and_sets_parameters_of_a_robot() {
    if !ros2::runs_in_own_network() {
        return;
    }
    let place = Place::new(PROGRAM);
    let _camera = start_script(DOMAINS[0], "camera.py", &["camera"]);
    let files = ros2_files("show: [nodes, parameters], set_parameters: /camera");
    let [_robot, _base] = start_ros2(&place, &files);
    let cli = std::env::var("TAUTLINE_ROS2_CLI").unwrap_or_else(|_| {
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/ros2/cli").to_owned()
    });
    let ros2 = |command: &str| {
        let mut program = Process::new(Path::new(&cli).join("bin/ros2"));
        program
            .args(command.split(' '))
            .env("ROS_DOMAIN_ID", DOMAINS[1].to_string())
            .env("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
            .env("FASTDDS_BUILTIN_TRANSPORTS", "UDPv4")
            .env_remove("LD_LIBRARY_PATH")
            .env_remove("_ROS_WHEELS_BOOTSTRAP_COMPLETE");
        let output = program.output().expect("run crates/lab/ros2.sh cli first");
        String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
    };
    let spin = "--no-daemon --spin-time 3";
    for (command, expected) in [
        (format!("node list {spin}"), "/robot1/camera\n"),
        (format!("node info {spin} /robot1/camera"), "/robot1/image: std_msgs/msg/String"),
        (format!("param list {spin} /robot1/camera"), "rate"),
        (format!("param get {spin} /robot1/camera rate"), "Integer value is: 10"),
        (format!("param set {spin} /robot1/camera rate 30"), "Set parameter successful"),
        (format!("param get {spin} /robot1/camera rate"), "Integer value is: 30"),
        (format!("param dump {spin} /robot1/camera"), "rate: 30"),
        (
            format!("topic info {spin} -v /robot1/image"),
            "Node name: camera\nNode namespace: /robot1",
        ),
    ] {
        let mut last = String::new();
        wait_for(format!("'{expected}' of ros2 {command}"), || {
            last = ros2(&command);
            if !last.contains(expected) {
                eprintln!("{command}: {last}");
            }
            last.contains(expected).then_some(())
        });
    }
}
