// SPDX-License-Identifier: Apache-2.0
//! Tests of a reload of a running node's file: unchanged parts continue undisturbed.

use super::*;
use tautline_gateway::Service;

const ROBOT: &str = "peers: { base: 10.0.0.2 }\ntopics: { /scan: { priority: 200 }, /odom: {} }";
const BASE: &str = "peers: { robot: 10.0.0.1 }\ntopics: { \"/**\": {} }";
const TWIST: &str = "geometry_msgs/Twist";

/// Returns a robot with topics `/scan` and `/odom`, and a base that reads them.
fn world_with_readers() -> World {
    let mut world = World::pair(ROBOT, BASE);
    for name in ["/scan", "/odom"] {
        world.inject(0, Event::Offered(topic(name, STRING)));
        world.wants(1, name, true);
    }
    assert_eq!(world.take_commands(0), ["subscribe /scan", "subscribe /odom"]);
    assert_eq!(world.take_commands(1).len(), 2);
    world
}

fn priority(world: &World, topic: &str) -> Option<u8> {
    let Side { topics, endpoint, .. } = &world.sides[0];
    let channel = topics.exported_topics().get(topic)?.channels.get(&ONLY_PEER)?;
    Some(endpoint.peer(ONLY_PEER).channel_out(*channel)?.0.topic.priority)
}

#[test]
fn an_equivalent_file_disturbs_nothing() {
    let mut world = world_with_readers();
    let before = world.now;
    world.reload(0, ROBOT);
    world.reload(1, BASE);
    assert!(world.take_commands(0).is_empty() && world.take_commands(1).is_empty());
    world.publishes(0, "/scan", 0, "on");
    assert_eq!(world.take_commands(1), ["publish /scan 0 on"]);
    assert!(world.now > before);
}

#[test]
fn changed_rules_apply_to_their_topics() {
    let mut world = world_with_readers();
    world.reload(0, &ROBOT.replace("200", "90").replace(", /odom: {}", ""));
    assert_eq!(priority(&world, "/scan"), Some(90));
    assert_eq!(priority(&world, "/odom"), None);
    assert_eq!(world.take_commands(0), ["unsubscribe /odom"]);
    assert_eq!(world.take_commands(1), ["unadvertise /odom"], "/scan continues");
    // The gateway repeats the event once the topic may be sent again.
    world.reload(0, ROBOT);
    world.inject(0, Event::Offered(topic("/odom", STRING)));
    world.wants(1, "/odom", true);
    world.publishes(0, "/odom", 0, "again");
    assert!(world.take_commands(1).contains(&"publish /odom 0 again".into()));
}

#[test]
fn a_topic_is_withdrawn_from_peers_without_the_right() {
    let mut world = world_with_readers();
    let other =
        "peers: { base: 10.0.0.2, other: {} }\ntopics: { /scan: { to: [other] }, /odom: {} }";
    // The other peer never connects.
    let text = "security: none\nname: other";
    let config = config::parse(text, &Surroundings::default()).unwrap().config;
    let absent = world.side(config);
    world.sides.push(absent);
    world.reload(0, other);
    world.run(PAST_UNSUBSCRIBE_DELAY);
    assert_eq!(world.take_commands(0), ["unsubscribe /scan"]);
    assert_eq!(world.take_commands(1), ["unadvertise /scan"]);
    world.publishes(0, "/odom", 0, "on");
    assert_eq!(world.take_commands(1), ["publish /odom 0 on"]);
}

#[test]
fn removing_a_peer_removes_only_its_topics() {
    let files = [
        "name: base\npeers: { robot: 10.0.0.2, thief: 10.0.0.3 }\ntopics: { /cmd: {} }",
        "name: robot\npeers: { base: 10.0.0.1 }\ntopics: { \"/**\": {} }",
        "name: thief\npeers: { base: 10.0.0.1 }\ntopics: { \"/**\": {} }\nservices: { \"/**\": {} }",
    ];
    let mut world = World::new(&files);
    let service = Service {
        name: "/open".into(),
        type_name: "std_srvs/SetBool".into(),
        type_hash: "h".into(),
        definition: "bool data\n---\nbool success\nstring message\n".into(),
    };
    world.inject(0, Event::Offered(topic("/cmd", STRING)));
    world.inject(1, Event::Offered(topic("/scan", STRING)));
    world.inject(2, Event::Offered(topic("/stolen", STRING)));
    world.inject(2, Event::Offered(topic("/scan", STRING)));
    world.inject(2, Event::ServiceOffered(service));
    for topic in ["/scan", "/stolen"] {
        world.wants(0, topic, true);
    }
    world.wants(2, "/cmd", true);
    world.take_commands(0);
    world.reload(0, "peers: { robot: 10.0.0.2 }\ntopics: { /cmd: {} }");
    let mut told = world.take_commands(0);
    told.sort();
    assert_eq!(told, ["Unserve { service: \"/open\" }", "unadvertise /stolen"]);
    let topics = &world.sides[0].topics;
    assert_eq!(topics.imports.catalog.len(), 1, "the robot's");
    assert!(topics.exported_topics()["/cmd"].channels.keys().all(|peer| *peer == PeerId(0)));
    world.publishes(1, "/scan", 0, "on");
    world.publishes(2, "/scan", 0, "false");
    assert_eq!(world.take_commands(0), ["publish /scan 0 on"]);
    world.run(PAST_UNSUBSCRIBE_DELAY);
    assert_eq!(world.take_commands(0), ["unsubscribe /cmd"]);
    // A new peer takes its place.
    world.reload(0, "peers: { robot: 10.0.0.2, thief: 10.0.0.3 }\ntopics: { /cmd: {} }");
    world.run(10 * SECOND);
    assert!(world.take_commands(0).contains(&format!("advertise /stolen {STRING}")));
    world.publishes(1, "/scan", 0, "still");
    assert!(world.take_commands(0).contains(&"publish /scan 0 still".into()));
}

#[test]
fn topics_with_unchanged_names_continue_after_a_reload() {
    let mut world = world_with_readers();
    let renamed = BASE.replace("10.0.0.1", "{ address: 10.0.0.1, remap: { /odom: /where } }");
    world.reload(1, &renamed);
    assert_eq!(
        world.take_commands(1),
        ["unadvertise /odom", &format!("advertise /where {STRING}")]
    );
    world.wants(1, "/where", true);
    world.publishes(0, "/odom", 0, "here");
    world.publishes(0, "/scan", 0, "on");
    assert_eq!(world.take_commands(1), ["publish /where 0 here", "publish /scan 0 on"]);
    world.take_commands(0);
    let only_scan = BASE.replace("10.0.0.1", "{ address: 10.0.0.1, accept: /scan }");
    world.reload(1, &only_scan);
    assert_eq!(world.take_commands(1), ["unadvertise /where"]);
    world.publishes(0, "/scan", 0, "on");
    assert_eq!(world.take_commands(1), ["publish /scan 0 on"]);
    world.run(PAST_UNSUBSCRIBE_DELAY);
    assert_eq!(world.take_commands(0), ["unsubscribe /odom"], "and is not even sent");
}

#[test]
fn the_right_to_command_is_granted_and_revoked() {
    let plain = "peers: { base: 10.0.0.2 }";
    let mut world = World::strict_pair(plain, BASE);
    world.inject(1, Event::Offered(topic("/cmd_vel", TWIST)));
    assert!(world.take_commands(0).is_empty());
    assert!(world.has_notice(0, &["/cmd_vel", "add to this file"]), "{:?}", world.notices(0));
    world.sweep(0);
    assert!(world.has_notice(0, &["/cmd_vel", "add to this file"]), "{:?}", world.notices(0));
    assert!(world.has_notice(1, &["'robot' refuses /cmd_vel"]), "{:?}", world.notices(1));
    world.reload(0, "peers: { base: { address: 10.0.0.2, accept: /cmd_vel } }");
    assert_eq!(world.take_commands(0), [format!("advertise /cmd_vel {TWIST}")]);
    world.wants(0, "/cmd_vel", true);
    world.sweep(0);
    assert!(world.notices(0).is_empty() && world.notices(1).is_empty(), "untrue notices");
    world.publishes(1, "/cmd_vel", 0, "go");
    assert_eq!(world.take_commands(0), ["publish /cmd_vel 0 go"]);
    world.reload(0, plain);
    world.publishes(1, "/cmd_vel", 0, "go on");
    assert_eq!(world.take_commands(0), ["unadvertise /cmd_vel"]);
    assert!(world.has_notice(1, &["'robot' refuses /cmd_vel"]));
}

#[test]
fn a_changed_rate_limit_applies_at_once() {
    let mut world = world_with_readers();
    world.reload(1, &BASE.replace("10.0.0.1", "{ address: 10.0.0.1, max_rate: 1kbps }"));
    for _ in 0..5 {
        world.publishes(0, "/scan", 0, &"x".repeat(100));
    }
    assert_eq!(world.take_commands(1).len(), 1);
    world.reload(1, BASE);
    world.publishes(0, "/scan", 0, "y");
    assert_eq!(world.take_commands(1), ["publish /scan 0 y"]);
}

#[test]
fn a_reload_adds_changes_and_removes_watchdogs() {
    let robot =
        |watchdogs: &str| format!("peers: {{ base: 10.0.0.2 }}\nwatchdogs: {{ {watchdogs} }}");
    let mut world = World::pair(&robot(""), BASE);
    let numbers = defined("/x", "x/Numbers", "string a\nuint8 b\n");
    let go = "\u{2}\0\0\0go\u{1}";
    world.inject(1, Event::Offered(numbers));
    world.wants(0, "/x", true);
    world.reload(0, &robot("/x: 10s"));
    world.publishes(1, "/x", 0, go);
    world.take_commands(0);
    // The shorter time also applies to a message that has already arrived.
    world.reload(0, &robot("/x: { after: 1s, message: { b: 7 } }"));
    world.run(2 * SECOND);
    let safe = "publish /x here:65 \0\0\0\0\u{7}";
    assert_eq!(world.take_commands(0), [safe]);
    world.publishes(1, "/x", 0, go);
    world.reload(0, &robot(""));
    world.run(5 * SECOND);
    assert_eq!(world.take_commands(0), [format!("publish /x 0 {go}")], "nobody watches any more");
    assert_eq!(world.sides[0].topics.watchdog_reports().count(), 0);
}

#[test]
fn a_reload_offers_and_withdraws_services() {
    let robot = |services: &str| format!("peers: {{ base: 10.0.0.2 }}\nservices: {{ {services} }}");
    let mut world = World::pair(&robot("/switch: {}"), "peers: { robot: 10.0.0.1 }");
    let service = Service {
        name: "/switch".into(),
        type_name: "std_srvs/SetBool".into(),
        type_hash: "h".into(),
        definition: "bool data\n---\nbool success\nstring message\n".into(),
    };
    world.inject(0, Event::ServiceOffered(service.clone()));
    assert_eq!(world.take_commands(1).len(), 1);
    world.reload(0, &robot("/switch: { timeout: 1s }"));
    world.inject(1, Event::Called { service: "/switch".into(), call: 1, request: "x".into() });
    let call = world.take_commands(0);
    assert!(call.len() == 1 && call[0].contains("time_limit: 1s"), "{call:?}");
    world.reload(0, &robot(""));
    let told = world.take_commands(1);
    assert!(told.contains(&"Unserve { service: \"/switch\" }".into()), "{told:?}");
    world.reload(0, &robot("/switch: {}"));
    world.inject(0, Event::ServiceOffered(service));
    assert!(world.take_commands(1).iter().any(|it| it.starts_with("Serve ")));
}

#[test]
fn outgoing_frames_are_read_again_when_their_rules_change() {
    let robot = "peers: { base: 10.0.0.2 }\ntopics: { \"/**\": {} }";
    let mut world = World::pair(robot, "peers: { robot: 10.0.0.1 }");
    world.inject(0, Event::Offered(topic("/tf", "tf2_msgs/TFMessage")));
    world.inject(0, Event::Offered(topic("/scan", STRING)));
    for name in ["/tf", "/scan"] {
        world.wants(1, name, true);
    }
    world.take_commands(0);
    world.reload(0, &format!("{robot}\ntf: {{ prefix: r1 }}"));
    assert_eq!(world.take_commands(0), ["unsubscribe /tf", "subscribe /tf"]);
}
