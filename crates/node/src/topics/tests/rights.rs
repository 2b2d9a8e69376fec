// SPDX-License-Identifier: Apache-2.0
//! What a peer may do here, and what both ends are told of the rest.

use super::*;

const BASE: &str = "peers: { robot: 10.0.0.1 }\ntopics: { \"/**\": {} }";
const TWIST: &str = "geometry_msgs/Twist";
const TWIST_MD5: &str = "9f195f881246fdfa2798d1d3eebca84a";

fn advertised(name: &str, type_name: &str) -> String {
    format!("advertise {name} {type_name}")
}

/// That both ends were told of a command that was not asked for.
fn assert_both_know(world: &World, type_name: &str) {
    let words = ["/cmd_vel", type_name, "makes a robot move", "peers.base.accept"];
    assert!(world.noticed(0, &words), "{:?}", world.notices(0));
    assert!(world.noticed(1, &words), "{:?}", world.notices(1));
    assert!(world.noticed(1, &["'robot' refuses /cmd_vel"]), "{:?}", world.notices(1));
}

#[test]
fn a_command_is_refused_unless_the_file_names_it_and_all_else_is_taken() {
    let mut world = World::pair("peers: { base: 10.0.0.2 }", BASE);
    world.says(1, Event::Offered(topic("/cmd_vel", TWIST)));
    world.says(1, Event::Offered(topic("/odom", "nav_msgs/Odometry")));
    assert_eq!(world.told(0), [advertised("/odom", "nav_msgs/Odometry")]);
    assert_both_know(&world, TWIST);
    world.wants(0, "/cmd_vel", true);
    assert!(world.told(1).is_empty(), "nothing of it is read");

    for accept in ["/cmd_vel", "\"/cmd*\"", "\"/**\""] {
        let robot = format!("peers: {{ base: {{ address: 10.0.0.2, accept: {accept} }} }}");
        let mut world = World::pair(&robot, BASE);
        world.says(1, Event::Offered(topic("/cmd_vel", TWIST)));
        assert_eq!(world.told(0), [advertised("/cmd_vel", TWIST)], "{accept}");
        world.wants(0, "/cmd_vel", true);
        world.publishes(1, "/cmd_vel", 0, "go");
        assert_eq!(world.told(0), ["publish /cmd_vel 0 go"]);
        assert!(world.notices(0).is_empty() && world.notices(1).is_empty());
    }
}

#[test]
fn what_is_left_out_by_name_is_left_out_without_a_word() {
    let robot = "peers: { base: { address: 10.0.0.2, accept: /plan } }";
    let mut world = World::pair(robot, BASE);
    world.says(1, Event::Offered(topic("/cmd_vel", TWIST)));
    assert!(world.told(0).is_empty());
    assert!(world.notices(0).is_empty() && world.notices(1).is_empty());
}

#[test]
fn a_command_under_another_types_name_is_known_by_its_md5() {
    let mut world = World::pair("peers: { base: 10.0.0.2 }", BASE);
    let disguised = Topic { type_hash: TWIST_MD5.into(), ..topic("/cmd_vel", STRING) };
    world.says(1, Event::Offered(disguised));
    assert!(world.told(0).is_empty());
    assert_both_know(&world, STRING);
}

#[test]
fn a_command_of_the_other_ros_is_known_by_what_it_is_here() {
    let base = format!("ros2: true\n{BASE}");
    let mut world = World::pair("peers: { base: 10.0.0.2 }", &base);
    let bar = "=".repeat(80);
    let text = format!(
        "Vector3 linear\nVector3 angular\n{bar}\nMSG: geometry_msgs/Vector3\n\
         float64 x\nfloat64 y\nfloat64 z\n"
    );
    let bare = |name: &str| text.replace("geometry_msgs/Vector3", &format!("{name}/Vector3"));
    for (name, type_name) in [("/cmd_vel", "geometry_msgs/msg/Twist"), ("/other", "x/msg/Y")] {
        let package = type_name.split('/').next().unwrap();
        let definition = bare(package).into();
        world.says(1, Event::Offered(Topic { definition, ..topic(name, type_name) }));
    }
    assert!(world.told(0).is_empty());
    assert_both_know(&world, TWIST);
    assert!(world.noticed(1, &["/other", "x/Y", "makes a robot move"]), "{:?}", world.notices(1));
}

#[test]
fn a_topic_that_becomes_a_command_is_given_up() {
    let mut world = World::pair("peers: { base: 10.0.0.2 }", BASE);
    world.says(1, Event::Offered(topic("/cmd_vel", STRING)));
    world.wants(0, "/cmd_vel", true);
    assert_eq!(world.told(1), ["subscribe /cmd_vel"]);
    world.told(0);
    world.says(1, Event::Offered(topic("/cmd_vel", TWIST)));
    assert_eq!(world.told(0), ["unadvertise /cmd_vel"]);
    assert_eq!(world.told(1), ["unsubscribe /cmd_vel"]);
    world.publishes(1, "/cmd_vel", 0, "go");
    assert!(world.told(0).is_empty());
    assert_both_know(&world, TWIST);
}

/// A robot that takes 8 kbps of the base, two of whose topics it reads.
fn limited() -> World {
    let robot = "peers: { base: { address: 10.0.0.2, max_rate: 8kbps } }";
    let mut world = World::pair(robot, BASE);
    for name in ["/image", "/scan"] {
        world.says(1, Event::Offered(topic(name, STRING)));
        world.wants(0, name, true);
    }
    world.told(0);
    world
}

fn over_rate(world: &World, name: &str) -> u64 {
    let Side { endpoint, topics, .. } = &world.sides[0];
    let mut channels = endpoint.channels_in(ONLY_PEER);
    let of = |channel| topics.incoming(ONLY_PEER, channel).is_some_and(|(found, _)| found == name);
    let channel = channels.find(|channel| of(*channel)).unwrap();
    topics.over_rate(ONLY_PEER, channel).messages
}

#[test]
fn what_comes_faster_than_is_taken_is_dropped_counted_by_topic_and_told_once() {
    let mut world = limited();
    let text = "x".repeat(500);
    for _ in 0..4 {
        // A tenth of a second passes, in which 100 bytes come back.
        world.publishes(1, "/image", 0, &text);
    }
    assert_eq!(world.told(0).len(), 2);
    world.publishes(1, "/scan", 0, &text);
    assert_eq!((over_rate(&world, "/image"), over_rate(&world, "/scan")), (2, 1));
    let words = ["/image", "'base'", "8 kbps", "'robot'", "peers.base.max_rate"];
    assert!(world.noticed(0, &words), "{:?}", world.notices(0));
    assert!(world.noticed(1, &words), "{:?}", world.notices(1));
    assert_eq!((world.notices(0).len(), world.notices(1).len()), (1, 1), "while it lasts");

    world.run(SECOND);
    world.publishes(1, "/scan", 0, &text);
    assert_eq!(world.told(0).len(), 1, "it goes on when there is room again");
    world.run(30 * SECOND);
    for _ in 0..4 {
        world.publishes(1, "/scan", 0, &text);
    }
    let again = ["/scan", "8 kbps"];
    assert!(world.noticed(0, &again) && world.noticed(1, &again), "{:?}", world.notices(0));
}

#[test]
fn what_is_dropped_for_its_rate_is_counted_anew_in_a_new_session_only() {
    let mut world = limited();
    world.publishes(1, "/image", 0, &"x".repeat(1000));
    world.publishes(1, "/image", 0, &"x".repeat(1000));
    assert_eq!(over_rate(&world, "/image"), 1);
    let lower = Topic { qos: Qos { depth: 7, ..Qos::default() }, ..topic("/image", STRING) };
    world.says(1, Event::Offered(lower));
    assert_eq!(over_rate(&world, "/image"), 1, "the channel goes on");
    world.restart(1);
    world.run(2 * SECOND);
    world.says(1, Event::Offered(topic("/image", STRING)));
    assert_eq!(over_rate(&world, "/image"), 0);
}

#[test]
fn an_offer_above_a_peers_highest_priority_is_told() {
    let robot = "peers: { base: { address: 10.0.0.2, max_priority: 150 } }";
    let base =
        "peers: { robot: 10.0.0.1 }\ntopics: { /a: { priority: 150 }, /b: { priority: 151 } }";
    let mut world = World::pair(robot, base);
    world.says(1, Event::Offered(topic("/a", STRING)));
    assert!(world.notices(0).is_empty());
    world.says(1, Event::Offered(topic("/b", STRING)));
    let words =
        ["/b", "'base'", "priority 151", "'robot' allows it 150", "peers.base.max_priority"];
    assert!(world.noticed(0, &words), "{:?}", world.notices(0));
    assert_eq!(world.told(0).len(), 2, "both are taken");
}
