// SPDX-License-Identifier: Apache-2.0
//! Tests of a peer's rights, and of the reports of refusals at both ends.

use super::*;

const BASE: &str = "peers: { robot: 10.0.0.1 }\ntopics: { \"/**\": {} }";
const TWIST: &str = "geometry_msgs/Twist";
const TWIST_MD5: &str = "9f195f881246fdfa2798d1d3eebca84a";
const SCAN: &str = "sensor_msgs/LaserScan";
const SCAN_MD5: &str = "90c7ef2dc6895d81024acba2ac42f369";

fn advertise_command(name: &str, type_name: &str) -> String {
    format!("advertise {name} {type_name}")
}

fn topic_with_hash(name: &str, type_name: &str, hash: &str) -> Topic {
    Topic { type_hash: hash.into(), ..topic(name, type_name) }
}

fn scan(name: &str) -> Topic {
    topic_with_hash(name, SCAN, SCAN_MD5)
}

/// Returns a robot whose file has these keys under the base.
fn robot(keys: &str) -> World {
    let robot = format!("peers: {{ base: {{ address: 10.0.0.2{keys} }} }}");
    World::strict_pair(&robot, BASE)
}

/// Returns the lines that a node reports as missing.
fn missing_lines(world: &World, side: usize) -> Vec<String> {
    world.sides[side].shared.pending_requests().map(|(_, waiting)| waiting.line.clone()).collect()
}

/// Asserts that no part of a topic is accepted, and that both ends report the line to add.
fn assert_waits(world: &mut World, name: &str, line: &str) {
    assert!(world.take_commands(0).is_empty(), "{name}");
    world.wants(0, name, true);
    assert!(world.take_commands(1).is_empty(), "nothing of {name} is read");
    let words = [name, "'robot' publishes it only if its file allows it", "peers.base", line];
    assert!(world.has_notice(0, &words), "{:?}", world.notices(0));
    assert!(
        world.has_notice(0, &["add to this file, under peers.base: "]),
        "{:?}",
        world.notices(0)
    );
    assert!(world.has_notice(1, &words), "{:?}", world.notices(1));
    let there = [&format!("'robot' refuses {name}"), "add there, under peers.base: "];
    assert!(world.has_notice(1, &there), "{:?}", world.notices(1));
    assert!(missing_lines(world, 0).iter().any(|it| it == line), "{:?}", missing_lines(world, 0));
}

#[test]
fn commands_are_not_accepted_without_a_line() {
    // All topics that a review found wrongly accepted, and those for which it expected the same.
    let acting = [
        ("/move_base/goal", "move_base_msgs/MoveBaseActionGoal"),
        ("/move_base_simple/goal", "geometry_msgs/PoseStamped"),
        ("/arm/command", "std_msgs/Float64MultiArray"),
        ("/setpoint", "mavros_msgs/PositionTarget"),
        ("/emergency_stop", "std_msgs/Bool"),
        ("/clock", "rosgraph_msgs/Clock"),
        ("/jog", "control_msgs/JointJog"),
        ("/follow/goal", "control_msgs/FollowJointTrajectoryActionGoal"),
        ("/fmu/in/trajectory_setpoint", "px4_msgs/TrajectorySetpoint"),
        ("/cmd_vel", "geometry_msgs/TwistWithCovariance"),
        ("/cmd_vel2", TWIST),
    ];
    for keys in ["", ", prefix: /base"] {
        let mut world = robot(keys);
        for (name, type_name) in acting {
            world.inject(1, Event::Offered(topic(name, type_name)));
            assert_waits(&mut world, name, &format!("accept: {{ {name}: {type_name} }}"));
        }
    }
    let mut world = robot("");
    world.inject(1, Event::Offered(scan("/scan")));
    assert_waits(&mut world, "/scan", &format!("accept: {{ /scan: {SCAN} }}"));
}

#[test]
fn observations_are_accepted_under_a_prefix() {
    let mut world = robot(", prefix: /base");
    world.inject(1, Event::Offered(scan("/scan")));
    assert_eq!(world.take_commands(0), [advertise_command("/base/scan", SCAN)]);
    assert!(world.notices(0).is_empty() && missing_lines(&world, 0).is_empty());
    world.wants(0, "/base/scan", true);
    world.publishes(1, "/scan", 0, "points");
    assert_eq!(world.take_commands(0), ["publish /base/scan 0 points"]);
}

#[test]
fn an_observation_is_known_by_its_name_and_its_md5() {
    for (name, type_name, hash) in
        [("/a", SCAN, TWIST_MD5), ("/b", "x/Harmless", SCAN_MD5), ("/c", SCAN, "*")]
    {
        let mut world = robot(", prefix: /base");
        world.inject(1, Event::Offered(topic_with_hash(name, type_name, hash)));
        assert_waits(&mut world, name, &format!("accept: {{ {name}: {type_name} }}"));
    }
}

#[test]
fn a_name_cannot_leave_the_prefix() {
    let mut world = World::strict_pair(
        "peers: { base: { address: 10.0.0.2, prefix: /base } }",
        "peers: { robot: 10.0.0.1 }",
    );
    // A lying peer: its own node would not allow this.
    let config = tautline_proto::ChannelConfig {
        topic: tautline_proto::OfferedTopic {
            name: "2/scan".into(),
            type_name: SCAN.into(),
            type_hash: SCAN_MD5.into(),
            priority: 100,
            keep_last: 1,
            lifespan: None,
            qos: tautline_proto::OfferedQos::default(),
            role: tautline_proto::Role::Topic,
            order: tautline_proto::DeliveryOrder::Arrival,
        },
        definition: "float32 x\n".into(),
        repair: true,
        thin: false,
        fec: None,
        links: tautline_proto::LinkUse::default(),
    };
    let now = world.now;
    world.sides[1].endpoint.peer_mut(ONLY_PEER).offer(now, config).unwrap();
    world.run(SECOND);
    assert!(world.take_commands(0).is_empty(), "neither /base2/scan nor any other");
    assert!(world.has_notice(0, &["2/scan", "does not start with '/'"]), "{:?}", world.notices(0));
}

#[test]
fn topics_in_the_file_are_accepted_with_any_type_or_with_the_given_one() {
    for accept in [
        "/cmd_vel",
        "\"/cmd*\"",
        "\"/**\"",
        "{ /cmd_vel: geometry_msgs/Twist }",
        "{ /cmd_vel: geometry_msgs/msg/Twist }",
        "{ \"/cmd*\": [std_msgs/Bool, geometry_msgs/Twist] }",
        "{ /cmd_vel: any }",
    ] {
        let mut world = robot(&format!(", accept: {accept}"));
        world.inject(1, Event::Offered(topic_with_hash("/cmd_vel", TWIST, TWIST_MD5)));
        assert_eq!(world.take_commands(0), [advertise_command("/cmd_vel", TWIST)], "{accept}");
        world.wants(0, "/cmd_vel", true);
        world.publishes(1, "/cmd_vel", 0, "go");
        assert_eq!(world.take_commands(0), ["publish /cmd_vel 0 go"]);
        assert!(world.notices(0).is_empty() && world.notices(1).is_empty());
    }
}

#[test]
fn a_type_other_than_the_configured_one_is_refused() {
    let mut world = robot(", accept: { /cmd_vel: geometry_msgs/Twist }");
    world.inject(1, Event::Offered(topic("/cmd_vel", STRING)));
    assert_waits(&mut world, "/cmd_vel", &format!("accept: {{ /cmd_vel: {STRING} }}"));
}

#[test]
fn an_installed_type_must_have_the_same_version() {
    let folder = tempfile::tempdir().unwrap();
    let messages = folder.path().join("share/geometry_msgs/msg");
    std::fs::create_dir_all(&messages).unwrap();
    std::fs::write(messages.join("Vector3.msg"), "float64 x\nfloat64 y\nfloat64 z\n").unwrap();
    std::fs::write(messages.join("Twist.msg"), "Vector3 linear\nVector3 angular\n").unwrap();
    let file = format!(
        "ros1: {{ definitions: {:?} }}\n\
         peers: {{ base: {{ address: 10.0.0.2, accept: {{ /cmd_vel: {TWIST} }} }} }}",
        folder.path()
    );
    let mut world = World::strict_pair(&file, BASE);
    world.inject(1, Event::Offered(topic_with_hash("/cmd_vel", TWIST, TWIST_MD5)));
    assert_eq!(world.take_commands(0), [advertise_command("/cmd_vel", TWIST)]);
    let mut world = World::strict_pair(&file, BASE);
    world.inject(1, Event::Offered(topic_with_hash("/cmd_vel", TWIST, SCAN_MD5)));
    assert_waits(&mut world, "/cmd_vel", "accept: { /cmd_vel: any }");
}

#[test]
fn unaccepted_topics_are_listed_without_a_warning() {
    let mut world = robot(", accept: /plan, prefix: /base");
    world.inject(1, Event::Offered(topic("/cmd_vel", TWIST)));
    assert!(world.take_commands(0).is_empty());
    assert_eq!(missing_lines(&world, 0), ["accept: { /cmd_vel: geometry_msgs/Twist }"]);
    assert!(world.notices(0).is_empty() && world.notices(1).is_empty());
    world.inject(1, Event::Offered(scan("/scan")));
    assert_eq!(world.take_commands(0), ["advertise /base/scan sensor_msgs/LaserScan"]);
    let mut world = robot(", accept: /plan");
    world.inject(1, Event::Offered(scan("/scan")));
    assert!(world.take_commands(0).is_empty(), "there is no prefix");
}

#[test]
fn acceptance_of_the_other_ros_checks_both_type_names() {
    let base = format!("ros2: true\n{BASE}");
    let keys = "address: 10.0.0.2, prefix: /base, accept: { /other: geometry_msgs/Twist }";
    let mut world = World::strict_pair(&format!("peers: {{ base: {{ {keys} }} }}"), &base);
    let bar = "=".repeat(80);
    let text = format!(
        "Vector3 linear\nVector3 angular\n{bar}\nMSG: geometry_msgs/Vector3\n\
         float64 x\nfloat64 y\nfloat64 z\n"
    );
    let twist = |name: &str| defined(name, "geometry_msgs/msg/Twist", &text);
    world.inject(1, Event::Offered(twist("/cmd_vel")));
    assert!(world.take_commands(0).is_empty());
    world.inject(1, Event::Offered(twist("/other")));
    assert_eq!(world.take_commands(0), [advertise_command("/base/other", TWIST)]);
    world.inject(1, Event::Offered(topic("/other", "std_msgs/msg/Bool")));
    assert_eq!(world.take_commands(0), ["unadvertise /base/other"]);
}

#[test]
fn a_topic_with_a_changed_type_is_withdrawn() {
    let mut world = robot(", prefix: /base");
    world.inject(1, Event::Offered(scan("/scan")));
    world.wants(0, "/base/scan", true);
    assert_eq!(world.take_commands(1), ["subscribe /scan"]);
    world.take_commands(0);
    world.inject(1, Event::Offered(topic("/scan", TWIST)));
    assert_eq!(world.take_commands(0), ["unadvertise /base/scan"]);
    assert_eq!(world.take_commands(1), ["unsubscribe /scan"]);
    world.publishes(1, "/scan", 0, "go");
    assert_waits(&mut world, "/scan", &format!("accept: {{ /scan: {TWIST} }}"));
    world.inject(1, Event::Offered(scan("/scan")));
    assert!(missing_lines(&world, 0).is_empty(), "it is taken again");
}

#[test]
fn queues_are_bounded_and_dropped_with_their_topic_and_session() {
    let mut world = robot("");
    for n in 0..crate::limits::MAX_WAITING_PER_PEER + 10 {
        world.inject(1, Event::Offered(topic(&format!("/t{n}"), STRING)));
    }
    assert_eq!(missing_lines(&world, 0).len(), crate::limits::MAX_WAITING_PER_PEER);
    world.inject(1, Event::Withdrawn { topic: "/t0".into() });
    assert_eq!(missing_lines(&world, 0).len(), crate::limits::MAX_WAITING_PER_PEER - 1);
    world.restart(1);
    world.run(2 * SECOND);
    assert!(missing_lines(&world, 0).is_empty());
}

#[test]
fn a_type_with_invalid_characters_is_not_suggested() {
    let mut world = robot("");
    world.inject(1, Event::Offered(topic("/x", "evil/T }, relay: true\u{1b}[2J")));
    assert_eq!(missing_lines(&world, 0), ["accept: { /x: any }"]);
    let shown =
        world.sides[0].shared.pending_requests().all(|(_, it)| !it.type_name.contains('\u{1b}'));
    assert!(shown);
}

#[test]
fn a_peer_is_offered_only_the_configured_lists() {
    let base = "peers: { robot: { address: 10.0.0.1, offer: [/scan, \"/map*\"] } }\n\
                topics: { \"/**\": {} }\nservices: { \"/**\": {} }";
    let mut world =
        World::strict_pair("peers: { base: { address: 10.0.0.2, accept: \"/**\" } }", base);
    for name in ["/scan", "/odom", "/map_updates"] {
        world.inject(1, Event::Offered(topic(name, STRING)));
    }
    assert_eq!(
        world.take_commands(0),
        [advertise_command("/scan", STRING), advertise_command("/map_updates", STRING)]
    );
}

/// Returns a robot that accepts 8 kbps from the base, and reads two topics of the base.
fn world_with_rate_limit() -> World {
    let robot = "peers: { base: { address: 10.0.0.2, max_rate: 8kbps } }";
    let base = "peers: { robot: 10.0.0.1 }\n\
                topics: { /packed: { compression: zstd }, \"/**\": {} }";
    let mut world = World::pair(robot, base);
    for name in ["/image", "/scan"] {
        world.inject(1, Event::Offered(topic(name, STRING)));
        world.wants(0, name, true);
    }
    world.take_commands(0);
    world
}

fn over_rate_drops(world: &World, name: &str) -> u64 {
    let Side { topics, endpoint, .. } = &world.sides[0];
    let mut channels = endpoint.peer(ONLY_PEER).channels_in();
    let key = |channel| ChannelKey { peer: ONLY_PEER, channel };
    let of = |channel| topics.incoming(key(channel)).is_some_and(|it| it.name == name);
    let channel = channels.find(|channel| of(*channel)).unwrap();
    topics.incoming(key(channel)).unwrap().over_rate_drops.messages
}

#[test]
fn messages_above_the_rate_are_dropped_counted_by_topic_and_reported_once() {
    let mut world = world_with_rate_limit();
    let text = "x".repeat(500);
    for _ in 0..4 {
        // In a tenth of a second, the bucket gains 100 bytes.
        world.publishes(1, "/image", 0, &text);
    }
    assert_eq!(world.take_commands(0).len(), 2);
    world.publishes(1, "/scan", 0, &text);
    assert_eq!((over_rate_drops(&world, "/image"), over_rate_drops(&world, "/scan")), (2, 1));
    let words = ["/image", "'base'", "8 kbps", "'robot'", "peers.base.max_rate"];
    assert!(world.has_notice(0, &words), "{:?}", world.notices(0));
    assert!(world.has_notice(1, &words), "{:?}", world.notices(1));
    assert_eq!((world.notices(0).len(), world.notices(1).len()), (1, 1), "while it lasts");

    world.run(SECOND);
    world.publishes(1, "/scan", 0, &text);
    assert_eq!(world.take_commands(0).len(), 1, "it continues when there is room again");
    world.run(30 * SECOND);
    for _ in 0..4 {
        world.publishes(1, "/scan", 0, &text);
    }
    let again = ["/scan", "8 kbps"];
    assert!(world.has_notice(0, &again) && world.has_notice(1, &again), "{:?}", world.notices(0));
}

#[test]
fn a_compressed_message_counts_with_its_decompressed_size() {
    let mut world = world_with_rate_limit();
    world.inject(1, Event::Offered(topic("/packed", STRING)));
    world.wants(0, "/packed", true);
    world.take_commands(0);
    for _ in 0..10 {
        // 40 to 50 bytes on the radio.
        let text = zstd::bulk::compress(&[0; 900], 1).unwrap();
        assert!(text.len() < 100);
        let (now, side) = (world.now, &mut world.sides[1]);
        let message = super::super::Outgoing {
            topic: "/packed".into(),
            source: Source::local(0),
            origin: Default::default(),
            payload: text.into(),
            encoded: true,
            published: now,
        };
        side.on_codec(now, JobResult::Encoded { message, renaming: None, problem: None });
        world.settle();
    }
    assert_eq!(over_rate_drops(&world, "/packed"), 9, "one is a second's worth");
}

#[test]
fn the_count_of_rate_drops_restarts_only_with_a_new_session() {
    let mut world = world_with_rate_limit();
    world.publishes(1, "/image", 0, &"x".repeat(1000));
    world.publishes(1, "/image", 0, &"x".repeat(1000));
    assert_eq!(over_rate_drops(&world, "/image"), 1);
    let lower = Topic { qos: Qos { depth: 7, ..Qos::default() }, ..topic("/image", STRING) };
    world.inject(1, Event::Offered(lower));
    assert_eq!(over_rate_drops(&world, "/image"), 1, "the channel continues");
    world.restart(1);
    world.run(2 * SECOND);
    world.inject(1, Event::Offered(topic("/image", STRING)));
    assert_eq!(over_rate_drops(&world, "/image"), 0);
}

#[test]
fn an_offer_above_a_peers_highest_priority_is_reported() {
    let robot = "peers: { base: { address: 10.0.0.2, max_priority: 150 } }";
    let base =
        "peers: { robot: 10.0.0.1 }\ntopics: { /a: { priority: 150 }, /b: { priority: 151 } }";
    let mut world = World::pair(robot, base);
    world.inject(1, Event::Offered(topic("/a", STRING)));
    assert!(world.notices(0).is_empty());
    world.inject(1, Event::Offered(topic("/b", STRING)));
    let words =
        ["/b", "'base'", "priority 151", "'robot' allows at most 150", "peers.base.max_priority"];
    assert!(world.has_notice(0, &words), "{:?}", world.notices(0));
    assert_eq!(world.take_commands(0).len(), 2, "both are taken");
}

#[test]
fn texts_with_control_characters_are_refused() {
    let mut world = robot(", prefix: /base, accept: \"/**\"");
    let long = format!("a/{}", "b".repeat(300));
    for type_name in ["a/\u{1}B", "a/&B", &long] {
        world.inject(1, Event::Offered(topic("/x", type_name)));
        world.inject(1, Event::Withdrawn { topic: "/x".into() });
    }
    world.inject(1, Event::Offered(topic(&format!("/{}", "n".repeat(300)), STRING)));
    assert!(world.take_commands(0).is_empty());
    assert!(world.has_notice(0, &["/x", "its type has the character"]), "{:?}", world.notices(0));
    assert!(world.has_notice(0, &["its name has 301 bytes"]), "{:?}", world.notices(0));
}

#[test]
fn an_action_includes_only_topics_of_its_types() {
    let mut world = robot(", prefix: /base");
    world.inject(1, Event::Offered(topic("/a/_action/feedback", TWIST)));
    assert!(world.take_commands(0).is_empty());
}
