// SPDX-License-Identifier: Apache-2.0
//! Tests of a topic that the node itself publishes, while local publishers and peers use the same name.

use super::*;

const ROBOT: &str = "peers: { base: 10.0.0.2 }\ntopics: { /diagnostics: {} }";
const BASE: &str = "peers: { robot: 10.0.0.1 }";
const NAME: &str = "/diagnostics";

fn own_topic() -> Topic {
    topic(NAME, "diagnostic_msgs/DiagnosticArray")
}

fn advertise_command() -> [String; 1] {
    [format!("advertise {NAME} diagnostic_msgs/DiagnosticArray")]
}

impl World {
    /// Publishes once, as a node does each second. Returns whether there are subscribers.
    fn publish_own(&mut self, side: usize, text: &str) -> bool {
        let side = &mut self.sides[side];
        side.with(self.now, |topics, cx| topics.publish_own_topic(cx, &own_topic()));
        let wanted = side.topics.is_own_topic_wanted(NAME);
        let payload = Bytes::copy_from_slice(text.as_bytes());
        side.with(self.now, |topics, cx| topics.send_own_message(cx, NAME, payload));
        self.run(Duration::from_millis(100));
        wanted
    }
}

#[test]
fn an_own_topic_without_a_rule_is_only_published_locally() {
    let mut world = World::pair("peers: { base: 10.0.0.2 }\ntopics: { /scan: {} }", BASE);
    assert!(!world.publish_own(0, "1"));
    assert_eq!(world.take_commands(0), advertise_command());
    world.wants(0, NAME, true);
    assert!(world.publish_own(0, "2"));
    assert_eq!(world.take_commands(0), [format!("publish {NAME} here:64 2")]);
    world.wants(0, NAME, false);
    assert!(!world.publish_own(0, "3"));
    assert!(world.take_commands(0).is_empty() && world.take_commands(1).is_empty());
}

#[test]
fn local_topics_are_never_sent() {
    let mut world = World::pair("peers: { base: 10.0.0.2 }\ntopics: { \"/**\": {} }", BASE);
    let side = &mut world.sides[0];
    side.with(world.now, |topics, cx| topics.publish_own_topic_locally(cx, &own_topic()));
    assert_eq!(world.take_commands(0), advertise_command());
    world.wants(0, NAME, true);
    let side = &mut world.sides[0];
    side.with(world.now, |topics, cx| topics.send_own_message(cx, NAME, Bytes::from_static(b"1")));
    world.run(SECOND);
    assert_eq!(world.take_commands(0), [format!("publish {NAME} here:64 1")]);
    assert!(
        world.sides[0].topics.exported_topics().is_empty() && world.take_commands(1).is_empty()
    );
}

#[test]
fn a_rule_sends_the_nodes_own_topic_along_with_local_ones() {
    let mut world = World::pair(ROBOT, BASE);
    assert!(!world.publish_own(0, "1"));
    assert_eq!(world.take_commands(1), advertise_command());
    world.wants(1, NAME, true);
    assert!(world.publish_own(0, "2"));
    assert_eq!(world.take_commands(1), [format!("publish {NAME} 64 2")]);
    world.inject(0, Event::Offered(own_topic()));
    world.publishes(0, NAME, 0, "a local node's");
    assert!(world.publish_own(0, "3"));
    let both = [format!("publish {NAME} 0 a local node's"), format!("publish {NAME} 64 3")];
    assert_eq!(world.take_commands(1), both);
    world.inject(0, Event::Withdrawn { topic: NAME.into() });
    assert!(world.publish_own(0, "4"));
    assert_eq!(world.take_commands(1), [format!("publish {NAME} 64 4")], "it continues alone");
    assert!(world.notices(0).is_empty() && world.notices(1).is_empty());
}

#[test]
fn a_base_station_reports_itself_and_its_robots() {
    let mut world = World::pair(ROBOT, BASE);
    world.publish_own(1, "base 1");
    assert_eq!(world.take_commands(1), advertise_command());
    world.wants(1, NAME, true);
    world.publish_own(0, "robot 1");
    assert!(
        world.take_commands(1).iter().all(|line| line.starts_with("advertise")),
        "it was not asked yet"
    );
    assert!(world.publish_own(0, "robot 2") && world.publish_own(1, "base 2"));
    let both = [format!("publish {NAME} 64 robot 2"), format!("publish {NAME} here:64 base 2")];
    assert_eq!(world.take_commands(1), both);
    // The robot restarts with a file that does not send the topic.
    world.sides[0].config.topics.clear();
    world.restart(0);
    world.run(10 * SECOND);
    assert!(world.take_commands(1).is_empty(), "it is published on");
    assert!(world.publish_own(1, "base 3"));
    assert_eq!(world.take_commands(1), [format!("publish {NAME} here:64 base 3")]);
}

#[test]
fn the_nodes_own_topic_is_reliable_even_if_that_of_a_peer_is_not() {
    let mut world = World::pair(ROBOT, BASE);
    let lossy = Topic { qos: Qos { reliable: false, ..Qos::default() }, ..own_topic() };
    world.inject(0, Event::Offered(lossy.clone()));
    world.publish_own(1, "base 1");
    world.inject(0, Event::Withdrawn { topic: NAME.into() });
    world.inject(0, Event::Offered(lossy));
    let is_reliable = |command: &Command| match command {
        Command::Advertise { topic } => topic.qos.reliable,
        other => panic!("{other:?}"),
    };
    let told: Vec<bool> = world.sides[1].commands.iter().map(is_reliable).collect();
    assert_eq!(told, [false, true], "as the peer has it, then as ours is");
}

#[test]
fn a_peer_with_another_type_is_refused_with_both_names() {
    let mut world = World::pair(ROBOT, BASE);
    world.publish_own(1, "base 1");
    world.take_commands(1);
    world.inject(0, Event::Offered(topic(NAME, STRING)));
    world.run(SECOND);
    assert!(world.take_commands(1).is_empty());
    for side in 0..2 {
        assert!(
            world.has_notice(side, &["'robot'", "'base'", STRING, "DiagnosticArray"]),
            "{side}"
        );
    }
}

#[test]
fn local_nodes_and_peers_keep_a_name_with_another_type() {
    let mut world = World::pair(ROBOT, BASE);
    world.inject(0, Event::Offered(topic(NAME, STRING)));
    world.wants(1, NAME, true);
    world.take_commands(1);
    assert!(!world.publish_own(0, "1"), "neither to peers of that type");
    assert!(!world.publish_own(1, "1"), "nor where they publish it");
    assert!(world.take_commands(1).is_empty());
    world.inject(0, Event::Withdrawn { topic: NAME.into() });
    assert_eq!(world.take_commands(1), [format!("unadvertise {NAME}")]);
    world.publish_own(0, "2");
    world.publish_own(1, "2");
    world.wants(1, NAME, true);
    world.take_commands(1);
    assert!(world.publish_own(0, "3"), "once they are gone, ours is there");
    assert_eq!(world.take_commands(1), [format!("publish {NAME} 64 3")]);
}
