// SPDX-License-Identifier: Apache-2.0
//! Tests of messages of peers that are not of their topic's type.

use super::*;

const ROBOT: &str = "peers: { base: 10.0.0.2 }\ntopics: { \"/**\": {} }";
const BASE: &str = "peers: { robot: 10.0.0.1 }";
const GOOD: &str = "\u{2}\0\0\0hi";
const BAD: &str = "\u{9}\0\0\0hi";

fn text_topic() -> Topic {
    defined("/text", STRING, "string data\n")
}

fn published_commands(count: usize) -> Vec<String> {
    vec![format!("publish /text 0 {GOOD}"); count]
}

fn malformed(world: &World, side: usize) -> u64 {
    let Side { topics, endpoint, .. } = &world.sides[side];
    let peers = endpoint.peers().flat_map(|peer| {
        endpoint.peer(peer).channels_in().map(move |channel| ChannelKey { peer, channel })
    });
    peers.filter_map(|key| topics.incoming(key)).map(|it| it.malformed).sum()
}

/// Returns a robot that publishes a text, and a base that reads it.
fn world_with_reader(robot: &str, base: &str, offered: Topic) -> World {
    let mut world = World::pair(robot, base);
    world.inject(0, Event::Offered(offered));
    world.wants(1, "/text", true);
    world.take_commands(1);
    world
}

#[test]
fn a_malformed_message_is_dropped_counted_and_rarely_logged() {
    let mut world = world_with_reader(ROBOT, BASE, text_topic());
    for _ in 0..5 {
        world.publishes(0, "/text", 0, BAD);
        world.publishes(0, "/text", 0, "x");
        world.publishes(0, "/text", 0, GOOD);
    }
    assert_eq!(world.take_commands(1), published_commands(5));
    assert_eq!(malformed(&world, 1), 10);
    let words = ["/text: a message of 'robot' is dropped", "std_msgs/String: data: 9 bytes wanted"];
    assert!(world.has_notice(1, &words), "{:?}", world.notices(1));
    assert_eq!(world.notices(1).len(), 1);
    world.run(30 * SECOND);
    world.publishes(0, "/text", 0, "x");
    assert_eq!(world.notices(1).len(), 2, "{:?}", world.notices(1));
    assert!(world.sides[1].topics.unchecked().next().is_none());
}

#[test]
fn malformed_messages_of_one_peer_do_not_affect_another() {
    let peer = |name: &str| {
        format!("name: {name}\npeers: {{ base: 10.0.0.3 }}\ntopics: {{ \"/**\": {{}} }}\n")
    };
    let base = "name: base\npeers: { liar: 10.0.0.1, robot: 10.0.0.2 }\n";
    let mut world = World::new(&[&peer("liar"), &peer("robot"), base]);
    // The lying peer is first. Its text has another layout.
    let lie = Topic { definition: "uint8 data\n".into(), ..text_topic() };
    world.inject(0, Event::Offered(lie));
    world.inject(1, Event::Offered(text_topic()));
    world.wants(2, "/text", true);
    world.take_commands(2);
    world.publishes(0, "/text", 0, "x");
    world.publishes(1, "/text", 0, GOOD);
    world.publishes(1, "/text", 0, BAD);
    let told = world.take_commands(2);
    let of_robot: Vec<_> = told.iter().filter(|it| it.starts_with("publish /text 1:")).collect();
    assert_eq!(of_robot, [&format!("publish /text 1:0 {GOOD}")], "{told:?}");
    let unchecked = world.sides[2].topics.unchecked().map(|it| it.peer).collect::<Vec<_>>();
    assert_eq!(unchecked, [Some(PeerId(0))], "its definition has another hash");
    // If the type is installed, the lying peer's messages are dropped as well.
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("share/std_msgs/msg");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("String.msg"), "string data\n").unwrap();
    world.installed = InstalledTypes::new(vec![place.path().into()]);
    world.inject(0, Event::Withdrawn { topic: "/text".into() });
    world.inject(0, Event::Offered(Topic { definition: "uint8 data\n".into(), ..text_topic() }));
    world.take_commands(2);
    world.publishes(0, "/text", 0, "x");
    world.publishes(0, "/text", 0, GOOD);
    assert_eq!(world.take_commands(2), published_commands(1));
}

#[test]
fn compressed_messages_are_checked_too() {
    let robot = "peers: { base: 10.0.0.2 }\ntopics: { \"/**\": { compression: zstd } }";
    let mut world = world_with_reader(robot, BASE, text_topic());
    world.publishes(0, "/text", 0, &"\0".repeat(5000));
    world.publishes(0, "/text", 0, GOOD);
    world.publishes(0, "/text", 0, BAD);
    assert_eq!(world.take_commands(1), published_commands(1));
    assert_eq!(malformed(&world, 1), 2);
    assert!(
        world
            .has_notice(1, &["/text: a message of 'robot' is dropped", "4996 bytes are left over"])
    );
}

#[test]
fn translated_messages_are_checked() {
    let mut world = world_with_reader(ROBOT, &format!("ros2: true\n{BASE}"), text_topic());
    world.publishes(0, "/text", 0, BAD);
    world.publishes(0, "/text", 0, GOOD);
    assert_eq!(world.take_commands(1), ["publish /text 0 \0\u{1}\0\0\u{3}\0\0\0hi\0"]);
    assert_eq!(malformed(&world, 1), 1);
}

#[test]
fn a_new_advertisement_does_not_interrupt_the_check() {
    let mut world = world_with_reader(ROBOT, BASE, text_topic());
    let side = &mut world.sides[1];
    let key = ChannelKey {
        peer: ONLY_PEER,
        channel: side.endpoint.peer(ONLY_PEER).channels_in().next().unwrap(),
    };
    let (offered, ..) = side.endpoint.peer(ONLY_PEER).channel_in(key.channel).unwrap();
    let topic = tautline_proto::OfferedTopic { priority: 7, ..offered.clone() };
    let definition = "string data\n".into();
    let again =
        tautline_proto::Event::Offered { peer: ONLY_PEER, channel: key.channel, topic, definition };
    side.on_remote(world.now, again);
    let message = |payload: &'static str| tautline_proto::Event::Message {
        peer: ONLY_PEER,
        channel: key.channel,
        message: tautline_proto::Received {
            payload: payload.into(),
            age: Duration::ZERO,
            source: 0,
            encoded: false,
        },
    };
    // The thread that reads definitions has not answered yet.
    side.on_remote(world.now, message(BAD));
    side.on_remote(world.now, message(GOOD));
    assert_eq!(world.take_commands(1), published_commands(1));
    assert_eq!(malformed(&world, 1), 1);
}

#[test]
fn malformed_messages_do_not_feed_a_watchdog() {
    let base = format!("{BASE}\nwatchdogs: {{ /text: 1s }}");
    let mut world = world_with_reader(ROBOT, &base, text_topic());
    world.publishes(0, "/text", 0, GOOD);
    for _ in 0..20 {
        world.publishes(0, "/text", 0, BAD);
    }
    assert_eq!(
        world.take_commands(1),
        [published_commands(1), vec!["publish /text here:65 \0\0\0\0".into()]].concat()
    );
}

#[test]
fn a_topic_without_a_definition_is_published_and_listed() {
    let mut world = world_with_reader(ROBOT, BASE, Topic { definition: "".into(), ..text_topic() });
    world.publishes(0, "/text", 0, BAD);
    assert_eq!(world.take_commands(1), [format!("publish /text 0 {BAD}")]);
    let all: Vec<_> = world.sides[1].topics.unchecked().collect();
    assert_eq!((all.len(), all[0].name, all[0].type_name), (1, "/text", STRING));
    assert!(all[0].reason.contains("no definition"), "{all:?}");
}
