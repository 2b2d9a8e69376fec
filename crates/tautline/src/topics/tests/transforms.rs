// SPDX-License-Identifier: Apache-2.0
//! Tests of topics of tf: which frames are sent, under which names, and in how many messages.

use super::super::exports::STATIC_PERIOD;
use super::*;
use crate::reasons::DroppedMessage;
use crate::status::TopicChange;

const TF: &str = "tf2_msgs/TFMessage";
const BASE: &str = "peers: { robot: 10.0.0.1 }";

/// Encodes transforms, each written as `parent>child@x`, as a ROS 1 message. All have the same stamp.
fn tf(transforms: &str) -> Vec<u8> {
    let transforms: Vec<&str> = transforms.split_whitespace().collect();
    let mut bytes = (transforms.len() as u32).to_le_bytes().to_vec();
    for transform in transforms {
        let (names, x) = transform.split_once('@').unwrap();
        let (parent, child) = names.split_once('>').unwrap();
        bytes.extend([0; 12]);
        for name in [parent, child] {
            bytes.extend((name.len() as u32).to_le_bytes());
            bytes.extend(name.as_bytes());
        }
        bytes.extend(x.parse::<f64>().unwrap().to_le_bytes());
        bytes.extend([0; 48]);
    }
    bytes
}

/// Decodes the result of [`tf`] to its text.
fn read(mut bytes: &[u8]) -> String {
    let number = |bytes: &mut &[u8]| {
        let (number, rest) = bytes.split_at(4);
        *bytes = rest;
        u32::from_le_bytes(number.try_into().unwrap()) as usize
    };
    let mut words = Vec::new();
    for _ in 0..number(&mut bytes) {
        bytes = &bytes[12..];
        let [parent, child] = [(); 2].map(|()| {
            let (name, rest) = bytes.split_at(4);
            let length = u32::from_le_bytes(name.try_into().unwrap()) as usize;
            let (name, rest) = rest.split_at(length);
            bytes = rest;
            String::from_utf8(name.to_vec()).unwrap()
        });
        let x = f64::from_le_bytes(bytes[..8].try_into().unwrap());
        bytes = &bytes[56..];
        words.push(format!("{parent}>{child}@{x}"));
    }
    assert!(bytes.is_empty());
    words.join(" ")
}

/// Returns the messages published at a side on `topic` since the last call, each with its source number.
fn arrived_messages(world: &mut World, side: usize, topic: &str) -> Vec<(u32, String)> {
    world.settle();
    let published = |command: Command| match command {
        Command::Publish { topic: name, source, payload, .. } if name == topic => {
            Some((source.number, read(&payload)))
        }
        _ => None,
    };
    std::mem::take(&mut world.sides[side].commands).into_iter().filter_map(published).collect()
}

/// Publishes a message and lets no time pass.
fn publish(world: &mut World, topic: &str, source: u32, payload: &[u8]) {
    let message = world.message(0, topic, source, payload);
    world.sides[0].on_local(world.now, message);
}

/// Returns a robot that advertises a tf topic, and a base that subscribes to it.
fn world_with_tf(offered: Topic, lines: &str) -> World {
    // Both nodes use the ROS of the type.
    let ros2 = if offered.type_name.contains("/msg/") { "ros2: true\n" } else { "" };
    let robot = format!("{ros2}peers: {{ base: 10.0.0.2 }}\n{lines}");
    let mut world = World::pair(&robot, &format!("{ros2}{BASE}"));
    let name = offered.name.clone();
    world.inject(0, Event::Offered(offered));
    world.wants(1, &name, true);
    world
}

fn static_topic(name: &str) -> Topic {
    Topic { qos: Qos { transient_local: true, ..Qos::default() }, ..topic(name, TF) }
}

fn message_with(transforms: &str) -> (u32, String) {
    (0, transforms.into())
}

#[test]
fn messages_are_unchanged_by_default() {
    let mut world = world_with_tf(topic("/tf", TF), "topics: { /tf: {} }");
    for text in ["odom>base@1 odom>base@2", "/map>/odom@3"] {
        publish(&mut world, "/tf", 5, &tf(text));
        assert_eq!(arrived_messages(&mut world, 1, "/tf"), [(5, text.into())]);
    }
}

#[test]
fn selected_frames_are_sent_with_the_prefix_on_any_topic() {
    let lines = "topics: { \"/**\": {} }\n\
                 tf: { frames: [odom, \"arm/**\"], prefix: r1/, shared: map }";
    let mut world = world_with_tf(topic("/my/tf", "tf/tfMessage"), lines);
    publish(&mut world, "/my/tf", 5, &tf("/map>/odom@1 odom>base@2 base>arm/1@3 map>odom@4"));
    let expected = "map>r1/odom@1 r1/base>r1/arm/1@3 map>r1/odom@4";
    assert_eq!(arrived_messages(&mut world, 1, "/my/tf"), [(5, expected.into())]);
    publish(&mut world, "/my/tf", 5, &tf("odom>base@2"));
    assert!(arrived_messages(&mut world, 1, "/my/tf").is_empty());
    let dropped =
        &world.sides[0].topics.exported_topics()["/my/tf"].transforms.as_ref().unwrap().dropped;
    assert_eq!(dropped[&DroppedMessage::NoNamedFrame], 1);
}

#[test]
fn at_a_limited_rate_one_message_has_the_latest_of_every_frame() {
    let mut world = world_with_tf(topic("/tf", TF), "topics: { /tf: { rate: 10Hz } }");
    publish(&mut world, "/tf", 1, &tf("map>odom@0"));
    assert_eq!(
        arrived_messages(&mut world, 1, "/tf"),
        [message_with("map>odom@0")],
        "the first need not wait"
    );
    for n in 1..5 {
        publish(&mut world, "/tf", 1, &tf(&format!("map>odom@{n}")));
        publish(&mut world, "/tf", 2, &tf(&format!("odom>base@{n} base>arm@{n}")));
        world.run(Duration::from_millis(10));
    }
    assert!(arrived_messages(&mut world, 1, "/tf").is_empty());
    let due = world.sides[0].topics.poll_timeout().unwrap();
    world.run(due.since(world.now));
    assert_eq!(
        arrived_messages(&mut world, 1, "/tf"),
        [message_with("base>arm@4 odom>base@4 map>odom@4")]
    );
    let local = &world.sides[0].topics.exported_topics()["/tf"];
    assert_eq!(local.rate_limited, 7, "of nine messages, two were sent");
}

#[test]
fn unchanged_transforms_are_not_resent() {
    let mut world = world_with_tf(topic("/tf", TF), "topics: { /tf: { rate: 10Hz } }");
    publish(&mut world, "/tf", 1, &tf("map>odom@1 odom>base@1"));
    publish(&mut world, "/tf", 1, &tf("odom>base@2"));
    world.run(SECOND);
    let expected = [message_with("odom>base@1 map>odom@1"), message_with("odom>base@2")];
    assert_eq!(arrived_messages(&mut world, 1, "/tf"), expected);
    assert_eq!(world.sides[0].topics.poll_timeout(), None);
    world.run(10 * SECOND);
    assert!(arrived_messages(&mut world, 1, "/tf").is_empty());
}

#[test]
fn a_busy_tf_is_sent_at_its_rate_on_average_with_every_frame() {
    let mut world = world_with_tf(topic("/tf", TF), "topics: { /tf: { rate: 10Hz } }");
    let start = world.now;
    // Two publishers alternate. Dropping messages down to 10 Hz would drop all messages of one of them.
    for n in 0..2000u32 {
        let at = start + Duration::from_millis(5) * n;
        world.run(at.since(world.now));
        let text = if n % 2 == 0 { "map>odom@1" } else { "odom>base@2" };
        publish(&mut world, "/tf", n % 2, &tf(text));
    }
    world.run(SECOND);
    let messages = arrived_messages(&mut world, 1, "/tf");
    assert!((100..=101).contains(&messages.len()), "{} in 10 s", messages.len());
    assert!(messages[1..].iter().all(|message| *message == message_with("odom>base@2 map>odom@1")));
    let left_out = world.sides[0].topics.exported_topics()["/tf"].rate_limited as usize;
    assert_eq!(left_out + messages.len(), 2000);
}

#[test]
fn the_latest_transform_wins_among_publishers() {
    let mut world = world_with_tf(topic("/tf", TF), "topics: { /tf: { rate: 10Hz } }");
    publish(&mut world, "/tf", 0, &tf("odom>base@0"));
    for (source, text) in [(1, "map>odom@1"), (2, "map>odom@2"), (1, "map>odom@1")] {
        publish(&mut world, "/tf", source, &tf(text));
    }
    world.run(SECOND);
    assert_eq!(
        arrived_messages(&mut world, 1, "/tf"),
        [message_with("odom>base@0"), message_with("map>odom@1")]
    );
}

#[test]
fn topics_with_different_rates_are_independent() {
    let lines = "topics: { /fast/tf: { rate: 10Hz }, /slow/tf: { rate: 1Hz } }";
    let mut world = world_with_tf(topic("/fast/tf", TF), lines);
    world.inject(0, Event::Offered(topic("/slow/tf", TF)));
    world.wants(1, "/slow/tf", true);
    for text in ["map>odom@1", "map>odom@2"] {
        publish(&mut world, "/fast/tf", 0, &tf(text));
        publish(&mut world, "/slow/tf", 0, &tf(text));
    }
    world.run(Duration::from_millis(100));
    let arrivals = std::mem::take(&mut world.sides[1].commands);
    let names: Vec<String> = arrivals.iter().map(|c| describe_command(c)[..17].into()).collect();
    assert_eq!(names[2..], ["publish /fast/tf ", "publish /slow/tf ", "publish /fast/tf "]);
    world.run(SECOND);
    assert_eq!(arrived_messages(&mut world, 1, "/slow/tf"), [message_with("map>odom@2")]);
}

#[test]
fn a_removed_rate_limit_sends_pending_transforms() {
    let mut world = world_with_tf(topic("/tf", TF), "topics: { /tf: { rate: 0.01Hz } }");
    publish(&mut world, "/tf", 1, &tf("map>odom@1"));
    publish(&mut world, "/tf", 1, &tf("map>odom@2"));
    world.run(SECOND);
    assert_eq!(arrived_messages(&mut world, 1, "/tf"), [message_with("map>odom@1")]);
    let side = &mut world.sides[0];
    let change = TopicChange { topic: "/tf".into(), priority: None, rate_hz: Some(100.0) };
    side.with(world.now, |topics, cx| topics.exports.apply_treatment_change(cx, change)).unwrap();
    world.run(Duration::from_millis(1));
    assert_eq!(arrived_messages(&mut world, 1, "/tf"), [message_with("map>odom@2")]);
}

#[test]
fn static_transforms_of_all_publishers_are_one_message() {
    let robot =
        "name: robot\npeers: { base: 10.0.0.2, tower: 10.0.0.3 }\ntopics: { /tf_static: {} }";
    let base = "name: base\npeers: { robot: 10.0.0.1 }";
    let tower = "name: tower\npeers: { robot: 10.0.0.1 }";
    let mut world = World::new(&[robot, base, tower]);
    world.inject(0, Event::Offered(static_topic("/tf_static")));
    world.wants(1, "/tf_static", true);
    publish(&mut world, "/tf_static", 1, &tf("base>laser@1"));
    publish(&mut world, "/tf_static", 2, &tf("base>camera@2"));
    publish(&mut world, "/tf_static", 2, &tf("camera>lens@3"));
    world.run(STATIC_PERIOD);
    let all = "base>camera@2 base>laser@1 camera>lens@3";
    assert_eq!(
        arrived_messages(&mut world, 1, "/tf_static"),
        [message_with("base>laser@1"), message_with(all)]
    );
    world.wants(2, "/tf_static", true);
    assert_eq!(arrived_messages(&mut world, 2, "/tf_static"), [message_with(all)]);
    // The same transform again changes nothing, and is not sent.
    publish(&mut world, "/tf_static", 1, &tf("base>laser@1"));
    world.run(SECOND);
    assert!(arrived_messages(&mut world, 1, "/tf_static").is_empty());
    assert_eq!(world.sides[0].topics.exported_topics()["/tf_static"].rate_limited, 2);
}

#[test]
fn static_transforms_are_removed_with_their_publisher() {
    let mut world = world_with_tf(static_topic("/tf_static"), "topics: { /tf_static: {} }");
    publish(&mut world, "/tf_static", 0, &tf("base>laser@1"));
    publish(&mut world, "/tf_static", 1, &tf("base>camera@2"));
    world.run(SECOND);
    arrived_messages(&mut world, 1, "/tf_static");
    let gone =
        |source| Event::SourceGone { topic: "/tf_static".into(), source: Source::local(source) };
    world.inject(0, gone(0));
    world.run(SECOND);
    assert_eq!(arrived_messages(&mut world, 1, "/tf_static"), [message_with("base>camera@2")]);
    world.inject(0, gone(1));
    world.run(SECOND);
    assert_eq!(
        arrived_messages(&mut world, 1, "/tf_static"),
        [message_with("")],
        "nothing is left for latecomers"
    );
    world.inject(0, gone(1));
    world.run(SECOND);
    assert!(arrived_messages(&mut world, 1, "/tf_static").is_empty());
}

#[test]
fn kept_transforms_are_dropped_when_nobody_reads_the_topic() {
    let mut world = world_with_tf(static_topic("/tf_static"), "topics: { /tf_static: {} }");
    publish(&mut world, "/tf_static", 0, &tf("base>laser@1"));
    world.wants(1, "/tf_static", false);
    world.run(2 * PAST_UNSUBSCRIBE_DELAY);
    // The message was read before the gateway unsubscribed.
    publish(&mut world, "/tf_static", 1, &tf("base>camera@1"));
    arrived_messages(&mut world, 1, "/tf_static");
    world.wants(1, "/tf_static", true);
    publish(&mut world, "/tf_static", 0, &tf("base>sonar@2"));
    world.run(SECOND);
    assert_eq!(arrived_messages(&mut world, 1, "/tf_static"), [message_with("base>sonar@2")]);
}

#[test]
fn an_unreadable_transform_message_is_counted_and_reported() {
    let mut world = world_with_tf(topic("/tf", TF), "topics: { /tf: {} }\ntf: { prefix: r/ }");
    let good = tf("map>odom@1");
    publish(&mut world, "/tf", 0, &good[..good.len() - 1]);
    publish(&mut world, "/tf", 0, &good);
    assert_eq!(arrived_messages(&mut world, 1, "/tf"), [message_with("r/map>r/odom@1")]);
    let words = ["/tf of 'robot'", "cannot be read", "transforms[0].transform", "55 are left"];
    assert!(world.has_notice(0, &words), "{:?}", world.notices(0));
    let dropped =
        &world.sides[0].topics.exported_topics()["/tf"].transforms.as_ref().unwrap().dropped;
    assert_eq!(dropped[&DroppedMessage::Malformed], 1);
}

#[test]
fn excess_frames_are_counted_and_reported() {
    let mut world = world_with_tf(topic("/tf", TF), "topics: { /tf: { rate: 1Hz } }");
    publish(&mut world, "/tf", 0, &tf("map>odom@1"));
    let frames = |from: usize| -> String {
        (from..from + 1000).map(|n| format!("map>frame{n}@1 ")).collect()
    };
    for part in 0..5 {
        publish(&mut world, "/tf", 0, &tf(&frames(part * 1000)));
    }
    let words = ["/tf of 'robot'", "904 transforms dropped", "allowed: 4096"];
    assert!(world.has_notice(0, &words), "{:?}", world.notices(0));
    world.run(2 * SECOND);
    let messages = arrived_messages(&mut world, 1, "/tf");
    assert_eq!(messages.last().unwrap().1.split(' ').count(), 4096);
    let dropped =
        &world.sides[0].topics.exported_topics()["/tf"].transforms.as_ref().unwrap().dropped;
    assert_eq!(dropped[&DroppedMessage::NoRoom], 1);
}

#[test]
fn merged_messages_of_ros_2_are_cdr() {
    let mut world =
        world_with_tf(topic("/tf", "tf2_msgs/msg/TFMessage"), "topics: { /tf: { rate: 1Hz } }");
    publish(&mut world, "/tf", 0, &tf("map>odom@1"));
    assert!(world.has_notice(0, &["encapsulation 0x0100"]), "{:?}", world.notices(0));
    let mut one = vec![0, 1, 0, 0, 1, 0, 0, 0];
    one.extend([0; 8]);
    for name in [b"map\0", b"odo\0"] {
        one.extend([4, 0, 0, 0]);
        one.extend(name);
    }
    one.extend([0; 4 + 56]);
    publish(&mut world, "/tf", 0, &one);
    world.settle();
    let sent = std::mem::take(&mut world.sides[1].commands);
    assert!(matches!(&sent[..], [.., Command::Publish { payload, .. }] if *payload == one));
}
