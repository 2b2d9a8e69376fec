// SPDX-License-Identifier: Apache-2.0
//! tf, and the frames that other messages name, between robots through their daemons: real masters,
//! real rospy and rclpy nodes.

use crate::PROGRAM;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use tautline::status::{Direction, TopicReport};
use tautline_testkit::ros::ros1;
use tautline_testkit::ros::ros1::Master;
use tautline_testkit::ros::ros2;
use tautline_testkit::ros::{Agent, free_port};
use tautline_testkit::running;
use tautline_testkit::running::{Daemon, Place};

const TF: &str = "tf2_msgs/TFMessage";
const MESSAGES: u64 = 300;

/// Two robots with a master and a daemon each.
struct Pair {
    masters: [Master; 2],
    daemons: [Daemon; 2],
    place: Place,
    /// The robot's file without the lines about what it sends.
    robot: String,
}

impl Pair {
    /// Starts the pair; `lines` of the file of `robot` determine what it sends.
    fn start(lines: &str) -> Self {
        let place = Place::new(PROGRAM);
        let masters = [(); 2].map(|()| Master::start_alone(free_port()));
        let ports = [(); 2].map(|()| running::free_port());
        let file = |here: usize, peer: &str, lines: &str| {
            let (uri, port, there) = (&masters[here].uri, ports[here], ports[1 - here]);
            format!(
                "listen: \"127.0.0.1:{port}\"\nros1: {{ master: \"{uri}\", host: 127.0.0.1 }}\n\
                 peers: {{ {peer}: {{ address: \"127.0.0.1:{there}\", accept: \"/**\" }} }}\n{lines}"
            )
        };
        let robot = file(0, "base", "");
        let daemons = [
            place.start("robot", &format!("{robot}{lines}")),
            place.start("base", &file(1, "robot", "")),
        ];
        Self { masters, daemons, place, robot }
    }

    /// Replaces what the robot sends.
    fn reload(&self, lines: &str) {
        self.place.write("robot", "robot", &format!("{}{lines}", self.robot));
        let mut program = std::process::Command::new(PROGRAM);
        let reloaded =
            program.arg("reload").arg("--control").arg(&self.daemons[0].control).output();
        let reloaded = reloaded.unwrap();
        assert!(reloaded.status.success(), "{}", String::from_utf8_lossy(&reloaded.stderr));
    }

    fn agent(&self, side: usize, name: &str) -> Agent {
        ros1::start(&self.masters[side].uri, name)
    }
}

/// Returns the fields of a message with these transforms in the form `parent>child@x`, stamped 7 s.
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

fn expected_transforms(transforms: &[(&str, &str, f64)]) -> BTreeMap<String, (String, f64)> {
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
fn late_subscribers_get_static_transforms_of_all_publishers() {
    let pair = Pair::start("topics: { /tf_static: {} }\ntf: { prefix: r1/, shared: map }");
    let [mut laser, mut camera] = ["/laser", "/camera"].map(|name| pair.agent(0, name));
    for (agent, transform) in [(&mut laser, "base>laser@1"), (&mut camera, "/map>base@2")] {
        agent.advertise("/tf_static", TF, true);
        agent.send("/tf_static", fields(&[transform]));
    }
    let mut early = pair.agent(1, "/early");
    subscribe(&mut early, "/tf_static");
    let both = expected_transforms(&[("r1/base", "r1/laser", 1.0), ("map", "r1/base", 2.0)]);
    wait_for(&early, "/tf_static", &both);

    let mut late = pair.agent(1, "/late");
    subscribe(&mut late, "/tf_static");
    wait_for(&late, "/tf_static", &both);
    assert_eq!(late.received("/tf_static").len(), 1, "one message has them all");

    laser.leave();
    let rest = expected_transforms(&[("map", "r1/base", 2.0)]);
    wait_for(&early, "/tf_static", &rest);
    let mut latest = pair.agent(1, "/latest");
    subscribe(&mut latest, "/tf_static");
    wait_for(&latest, "/tf_static", &rest);
    assert_eq!(latest.received("/tf_static").len(), 1);
}

#[test]
fn a_busy_tf_is_merged_and_filtered_by_frame() {
    let pair = Pair::start("topics: { /tf: { rate: 2Hz } }\ntf: { frames: [odom, base] }");
    let mut base = pair.agent(1, "/listener");
    subscribe(&mut base, "/tf");
    let [mut odometry, mut localization] =
        ["/odometry", "/localization"].map(|name| pair.agent(0, name));
    let outcome = || {
        let topics = pair.daemons[0].status().topics;
        topics.into_iter().find(|t| t.topic == "/tf" && t.direction == Direction::Out).unwrap()
    };
    let unnamed = |topic: &TopicReport| topic.dropped.get("no_named_frame").copied().unwrap_or(0);
    // The daemon's probe of a publisher is a connection as well: only an arrival shows that the daemon
    // reads the messages.
    let publishers = [(&mut odometry, "odom>base@7"), (&mut localization, "map>odom@7")];
    for (count, (agent, transform)) in (1..).zip(publishers) {
        agent.advertise("/tf", TF, false);
        let expected = read(&json!({ "fields": fields(&[transform]) }));
        running::wait_for("the daemon reads it", || {
            agent.send("/tf", fields(&[transform]));
            base.received("/tf").iter().any(|it| read(it) == expected).then_some(())
        });
        // Everything before this message is counted once this message is.
        agent.send("/tf", fields(&["base>wheel@3"]));
        running::wait_for("a drop", || (unnamed(&outcome()) == count).then_some(()));
    }
    let mut earlier = outcome();
    // Transforms that the rate holds back are sent, and counted, within half a second.
    let before = running::wait_for("no transforms wait", || {
        std::thread::sleep(Duration::from_secs(1));
        let now = outcome();
        (std::mem::replace(&mut earlier, now.clone()).messages == now.messages).then_some(now)
    });
    let many = fields(&["odom>base@1", "base>wheel@1"]);
    let many = json!({
        "do": "send", "topic": "/tf", "fields": many, "count": MESSAGES, "hz": 200,
    });
    odometry.order(many);
    localization.send("/tf", fields(&["map>odom@5"]));
    odometry.send("/tf", fields(&["odom>base@2"]));
    let latest = expected_transforms(&[("map", "odom", 5.0), ("odom", "base", 2.0)]);
    running::wait_for("the latest of each frame, and no other frame", || {
        let all: BTreeMap<_, _> = base.received("/tf").iter().flat_map(read).collect();
        (all == latest).then_some(())
    });
    odometry.send("/tf", fields(&["base>wheel@3"]));
    running::wait_for("every message is accounted for", || {
        let tf = outcome();
        let sent = tf.messages - before.messages;
        assert!(sent < MESSAGES / 2, "{sent} of {MESSAGES} were sent");
        let limited = tf.rate_limited - before.rate_limited;
        (sent + limited == MESSAGES + 2 && unnamed(&tf) == 3).then_some(())
    });
}

/// Starts the base and two robots of one kind. `ros` are the lines of each file about its ROS.
fn team(place: &Place, ros: [&str; 3]) -> [Daemon; 3] {
    let ports = [(); 3].map(|()| running::free_port());
    let robot = |number: usize| {
        let (port, base) = (ports[number], ports[0]);
        format!(
            "listen: \"127.0.0.1:{port}\"\n{}\npeers: {{ base: {{ address: \"127.0.0.1:{base}\", accept: /goal }} }}\n\
             topics: {{ /raw: {{ tf_prefix: false }}, \"/**\": {{}} }}\n\
             tf: {{ prefix: robot{number}/, shared: map }}",
            ros[number]
        )
    };
    let peer = |number: usize| {
        let renamed = ["/scan", "/odom", "/image", "/path"]
            .map(|name| format!("{name}: /robot{number}{name}"))
            .join(", ");
        format!(
            "  robot{number}: {{ address: \"127.0.0.1:{}\", remap: {{ {renamed} }}, accept: \"/**\" }}\n",
            ports[number]
        )
    };
    let base = format!(
        "listen: \"127.0.0.1:{}\"\n{}\ntopics: {{ /goal: {{}} }}\npeers:\n{}{}",
        ports[0],
        ros[0],
        peer(1),
        peer(2)
    );
    [place.start("base", &base), place.start("robot1", &robot(1)), place.start("robot2", &robot(2))]
}

fn ros1_lines(master: &Master) -> String {
    format!("ros1: {{ master: \"{}\", host: 127.0.0.1 }}", master.uri)
}

/// Returns the frame and the child frame of the first message on a topic.
fn frames_of(agent: &Agent, topic: &str) -> [Value; 2] {
    let report = agent.wait(topic, |report| report["got"] == topic);
    let fields = &report["fields"];
    [&fields["header"]["frame_id"], &fields["child_frame_id"]].map(Value::clone)
}

/// Sends until the other side has received a message.
fn send_until(from: &mut Agent, topic: &str, fields: &Value, to: &Agent, there: &str) {
    running::wait_for(there, || {
        from.order(json!({ "do": "send", "topic": topic, "fields": fields }));
        to.received(there).first().map(|_| ())
    });
}

/// Robot 1 and robot 2 get a goal in a frame of robot 1, as the base shows it. Each has its own form
/// of the type's name.
fn assert_goals_arrive(base: &mut Agent, base_type: &str, robots: [(&mut Agent, &str); 2]) {
    base.order(json!({ "do": "advertise", "topic": "/goal", "type": base_type }));
    let goal =
        json!({ "header": { "frame_id": "robot1/odom" }, "pose": { "position": { "x": 4.5 } } });
    for ((robot, type_name), known) in robots.into_iter().zip(["odom", "robot1/odom"]) {
        robot.order(
            json!({ "do": "subscribe", "topic": "/goal", "type": type_name, "fields": true }),
        );
        send_until(base, "/goal", &goal, robot, "/goal");
        assert_eq!(frames_of(robot, "/goal"), [json!(known), Value::Null]);
        let x = &robot.received("/goal")[0]["fields"]["pose"]["position"]["x"];
        assert_eq!(*x, 4.5);
    }
}

#[test]
fn a_latched_message_is_repeated_when_its_frame_name_changes() {
    let lines = |prefix: &str| format!("topics: {{ /goal: {{}} }}\ntf: {{ prefix: {prefix} }}");
    let pair = Pair::start(&lines("r1/"));
    let mut planner = pair.agent(0, "/planner");
    planner.advertise("/goal", "geometry_msgs/PoseStamped", true);
    planner.send("/goal", json!({ "header": { "frame_id": "odom" } }));
    let subscribe = |name: &str| {
        let mut agent = pair.agent(1, name);
        agent.order(json!({
            "do": "subscribe", "topic": "/goal", "type": "geometry_msgs/PoseStamped", "fields": true,
        }));
        agent
    };
    let frames = |agent: &Agent| -> Vec<String> {
        let frame = |it: &Value| it["fields"]["header"]["frame_id"].as_str().unwrap().to_owned();
        agent.received("/goal").iter().map(frame).collect()
    };
    let early = subscribe("/early");
    running::wait_for("the first name", || (frames(&early) == ["r1/odom"]).then_some(()));
    pair.reload(&lines("r2/"));
    running::wait_for("the second name", || {
        (frames(&early) == ["r1/odom", "r2/odom"]).then_some(())
    });
    let late = subscribe("/late");
    running::wait_for("the message", || (!frames(&late).is_empty()).then_some(()));
    assert_eq!(frames(&late), ["r2/odom"]);
}

#[test]
fn stamps_of_a_fast_clock_are_moved_for_either_ros() {
    if !ros2::runs_in_own_network() {
        return;
    }
    const AHEAD: u32 = 100;
    let place = Place::new(PROGRAM);
    let masters = [(); 2].map(|()| Master::start_alone(free_port()));
    let kilted = ros2::installation("kilted").canonicalize().unwrap();
    let ports = [(); 3].map(|()| running::free_port());
    let file = |number: usize, ros: &str, lines: &str| {
        let (port, robot) = (ports[number], ports[0]);
        let peer = format!("address: \"127.0.0.1:{robot}\", accept: /scan, move_stamps: true");
        let peers = if number > 0 { format!("{{ robot: {{ {peer} }} }}") } else { lines.into() };
        format!("listen: \"127.0.0.1:{port}\"\n{ros}\npeers: {peers}")
    };
    let bases = format!(
        "{{ one: \"127.0.0.1:{}\", two: \"127.0.0.1:{}\" }}\ntopics: {{ /scan: {{}} }}",
        ports[1], ports[2]
    );
    let robot =
        place.start_with_clock_ahead(AHEAD, "robot", &file(0, &ros1_lines(&masters[0]), &bases));
    let ros2_lines =
        format!("ros1: false\nros2: {{ domain: 0, definitions: {} }}", kilted.display());
    let _one = place.start("one", &file(1, &ros1_lines(&masters[1]), ""));
    let _two = place.start("two", &file(2, &ros2_lines, ""));
    for base in ["one", "two"] {
        running::wait_for("the offset of the clocks", || {
            let peer = robot.status().peers.into_iter().find(|peer| peer.name == base)?;
            peer.clock?.offset_ms.filter(|offset| offset.abs() > 1000.0 * f64::from(AHEAD) - 100.0)
        });
    }
    let mut driver = ros1::start(&masters[0].uri, "/driver");
    driver.advertise("/scan", "sensor_msgs/LaserScan", false);
    let mut viewers = [
        (ros1::start(&masters[1].uri, "/rviz"), "sensor_msgs/LaserScan", "secs"),
        (ros2::start_in(0, "kilted", "SUBNET", "rviz"), "sensor_msgs/msg/LaserScan", "sec"),
    ];
    for (viewer, type_name, second) in &mut viewers {
        viewer.order(
            json!({ "do": "subscribe", "topic": "/scan", "type": *type_name, "fields": true }),
        );
        let stamp = json!({ "secs": 1_800_000_000 + AHEAD, "nsecs": 500_000_000 });
        let scan = json!({ "header": { "frame_id": "laser", "stamp": stamp }, "ranges": [1.0] });
        send_until(&mut driver, "/scan", &scan, viewer, "/scan");
        let seconds = &viewer.received("/scan")[0]["fields"]["header"]["stamp"][*second];
        assert_eq!(*seconds, 1_800_000_000, "{type_name}");
    }
}

#[test]
fn two_robots_with_the_same_frames_are_distinguished_at_one_base() {
    let place = Place::new(PROGRAM);
    let masters = [(); 3].map(|()| Master::start_alone(free_port()));
    let lines: Vec<String> = masters.iter().map(ros1_lines).collect();
    let _daemons = team(&place, [&lines[0], &lines[1], &lines[2]]);
    let mut base = ros1::start(&masters[0].uri, "/rviz");
    subscribe(&mut base, "/tf_static");
    for number in [1, 2] {
        let mut robot = ros1::start(&masters[number].uri, "/driver");
        robot.advertise("/tf_static", TF, true);
        robot.send("/tf_static", fields(&["base>laser@1", "map>base@2"]));
        let renamed = |name: &str| format!("robot{number}{name}");
        let expected = expected_transforms(&[
            (&renamed("/base"), &renamed("/laser"), 1.0),
            ("map", &renamed("/base"), 2.0),
        ]);
        wait_for(&base, "/tf_static", &expected);

        let header = |frame: &str| json!({ "frame_id": frame, "stamp": { "secs": 7 } });
        let ranges: Vec<f64> = (0..360).map(f64::from).collect();
        let large: Vec<u8> = (0..100_000).map(|n| n as u8).collect();
        let poses: Vec<Value> = ["base", "/laser", "map", ""]
            .map(|frame| json!({ "header": header(frame), "pose": { "position": { "x": 4.5 } } }))
            .to_vec();
        for (topic, type_name, fields) in [
            (
                "/scan",
                "sensor_msgs/LaserScan",
                json!({ "header": header("laser"), "ranges": ranges }),
            ),
            (
                "/odom",
                "nav_msgs/Odometry",
                json!({ "header": header("/map"), "child_frame_id": "base" }),
            ),
            ("/image", "sensor_msgs/Image", json!({ "header": header("laser"), "data": large })),
            ("/path", "nav_msgs/Path", json!({ "header": header("map"), "poses": poses })),
            (
                "/raw",
                "sensor_msgs/LaserScan",
                json!({ "header": header("laser"), "ranges": ranges }),
            ),
        ] {
            let there =
                if topic == "/raw" { topic.into() } else { format!("/robot{number}{topic}") };
            base.order(
                json!({ "do": "subscribe", "topic": there, "type": type_name, "fields": true }),
            );
            robot.advertise(topic, type_name, false);
            send_until(&mut robot, topic, &fields, &base, &there);
        }
        let found = |name: &str| frames_of(&base, &format!("/robot{number}{name}"));
        assert_eq!(found("/scan"), [json!(renamed("/laser")), Value::Null]);
        assert_eq!(found("/odom"), [json!("map"), json!(renamed("/base"))]);
        assert_eq!(found("/image"), [json!(renamed("/laser")), Value::Null]);
        assert_eq!(frames_of(&base, "/raw"), [json!("laser"), Value::Null]);
        let path = &base.received(&format!("/robot{number}/path"))[0]["fields"]["poses"];
        let frames: Vec<&Value> =
            path.as_array().unwrap().iter().map(|pose| &pose["header"]["frame_id"]).collect();
        assert_eq!(
            frames,
            [&json!(renamed("/base")), &json!(renamed("/laser")), &json!("map"), &json!("")]
        );
        assert_eq!(path[3]["pose"]["position"]["x"], 4.5);
        let scan = &base.received(&format!("/robot{number}/scan"))[0]["fields"];
        assert_eq!(scan["ranges"].as_array().unwrap().len(), 360);
    }
    let goal = "geometry_msgs/PoseStamped";
    let [mut one, mut two] = [1, 2].map(|number| ros1::start(&masters[number].uri, "/planner"));
    assert_goals_arrive(&mut base, goal, [(&mut one, goal), (&mut two, goal)]);
}

#[test]
fn robots_of_either_ros_are_distinguished_at_a_base_of_ros_2() {
    if !ros2::runs_in_own_network() {
        return;
    }
    let place = Place::new(PROGRAM);
    let master = Master::start_alone(free_port());
    let kilted = ros2::installation("kilted").canonicalize().unwrap();
    let ros2_lines = |domain: u32| {
        format!("ros1: false\nros2: {{ domain: {domain}, definitions: {} }}", kilted.display())
    };
    let lines = [ros2_lines(0), ros1_lines(&master), ros2_lines(2)];
    let _daemons = team(&place, [&lines[0], &lines[1], &lines[2]]);
    let mut base = ros2::start_in(0, "kilted", "SUBNET", "rviz");
    let mut one = ros1::start(&master.uri, "/driver");
    let mut two = ros2::start_in(2, "kilted", "SUBNET", "driver");
    let covariance: Vec<f64> = (0..36).map(f64::from).collect();
    let odometry = json!({
        "header": { "frame_id": "odom" }, "child_frame_id": "base",
        "pose": { "pose": { "position": { "x": 4.5 } }, "covariance": covariance },
    });
    let scan = json!({ "header": { "frame_id": "laser" }, "angle_min": 0.5, "ranges": [1.0, 2.5] });
    let image = json!({ "header": { "frame_id": "camera" }, "height": 3, "encoding": "mono8",
        "step": 100_000, "data": vec![9; 100_000] });
    for (number, robot, kind) in [(1, &mut one, ""), (2, &mut two, "msg/")] {
        for (topic, package, own, fields) in [
            ("/scan", "sensor_msgs", "LaserScan", &scan),
            ("/odom", "nav_msgs", "Odometry", &odometry),
            ("/image", "sensor_msgs", "Image", &image),
        ] {
            let there = format!("/robot{number}{topic}");
            let type_name = format!("{package}/msg/{own}");
            base.order(
                json!({ "do": "subscribe", "topic": there, "type": type_name, "fields": true }),
            );
            let type_name = format!("{package}/{kind}{own}");
            robot.order(json!({ "do": "advertise", "topic": topic, "type": type_name }));
            send_until(robot, topic, fields, &base, &there);
        }
        let found = |name: &str| frames_of(&base, &format!("/robot{number}{name}"));
        let renamed = |name: &str| json!(format!("robot{number}/{name}"));
        assert_eq!(found("/scan"), [renamed("laser"), Value::Null]);
        assert_eq!(found("/odom"), [renamed("odom"), renamed("base")]);
        assert_eq!(found("/image"), [renamed("camera"), Value::Null]);
        let fields =
            |name: &str| base.received(&format!("/robot{number}{name}"))[0]["fields"].clone();
        assert_eq!(fields("/scan")["ranges"], json!([1.0, 2.5]));
        assert_eq!(fields("/odom")["pose"]["pose"]["position"]["x"], 4.5);
        assert_eq!(fields("/odom")["pose"]["covariance"], json!(covariance));
        assert_eq!(fields("/image")["step"], 100_000);
        assert_eq!(fields("/image")["data"].as_array().unwrap().len(), 100_000);
    }
    let [ros1, ros2] = ["geometry_msgs/PoseStamped", "geometry_msgs/msg/PoseStamped"];
    assert_goals_arrive(&mut base, ros2, [(&mut one, ros1), (&mut two, ros2)]);
}
