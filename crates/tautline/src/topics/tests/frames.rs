// SPDX-License-Identifier: Apache-2.0
//! Tests of frames in messages other than transforms: which frames get the prefix of tf, and on which thread.

use super::*;

const SCAN: &str = "a/Scan";
const BASE: &str = "peers: { robot: 10.0.0.1 }";
const PREFIX: &str = "tf: { prefix: r1/, shared: map }";

fn definition() -> String {
    let bar = "=".repeat(80);
    format!(
        "Header header\nuint8[] data\n{bar}\nMSG: std_msgs/Header\nuint32 seq\ntime stamp\n\
         string frame_id\n"
    )
}

fn scans(name: &str) -> Topic {
    defined(name, SCAN, &definition())
}

fn latched_scans(name: &str) -> Topic {
    Topic { qos: Qos { transient_local: true, ..Qos::default() }, ..scans(name) }
}

/// Encodes a message with `bytes` of data.
fn scan(frame: &str, bytes: usize) -> Vec<u8> {
    let length = |length: usize| (length as u32).to_le_bytes();
    let data = vec![7; bytes];
    [&[0; 12][..], &length(frame.len()), frame.as_bytes(), &length(bytes), &data].concat()
}

/// Decodes the result of [`scan`]: the frame, and the bytes of data.
fn read(message: &[u8]) -> (String, usize) {
    let length = |at: usize| u32::from_le_bytes(message[at..at + 4].try_into().unwrap()) as usize;
    let frame = String::from_utf8(message[16..16 + length(12)].to_vec()).unwrap();
    let bytes = length(16 + frame.len());
    assert!(message == scan(&frame, bytes));
    (frame, bytes)
}

fn frame_and_size(frame: &str, bytes: usize) -> (String, usize) {
    (frame.into(), bytes)
}

/// Returns a robot that advertises topics, and a base that subscribes to them.
fn world_with_topics(offered: &[Topic], lines: &str) -> World {
    let robot = format!("peers: {{ base: 10.0.0.2 }}\n{lines}");
    let mut world = World::pair(&robot, BASE);
    for topic in offered {
        world.inject(0, Event::Offered(topic.clone()));
        world.wants(1, &topic.name, true);
    }
    world.take_commands(1);
    world
}

/// Publishes a message at the robot, and returns the messages that the base publishes.
fn publish_and_receive(world: &mut World, topic: &str, payload: &[u8]) -> Vec<(String, usize)> {
    let message = world.message(0, topic, 0, payload);
    world.sides[0].on_local(world.now, message);
    world.run(SECOND);
    arrived_frames(world)
}

fn arrived_frames(world: &mut World) -> Vec<(String, usize)> {
    world.settle();
    let commands = std::mem::take(&mut world.sides[1].commands);
    let payload = |command| match command {
        Command::Publish { payload, .. } => Some(read(&payload)),
        _ => None,
    };
    commands.into_iter().filter_map(payload).collect()
}

#[test]
fn frame_names_get_the_prefix_by_default() {
    let topics = ["/scan", "/raw"].map(scans);
    let lines = format!("topics: {{ /scan: {{}}, /raw: {{ tf_prefix: false }} }}\n{PREFIX}");
    let mut world = world_with_topics(&topics, &lines);
    for (before, after) in [("laser", "r1/laser"), ("/laser", "r1/laser"), ("/map", "map")] {
        assert_eq!(
            publish_and_receive(&mut world, "/scan", &scan(before, 3)),
            [frame_and_size(after, 3)]
        );
        assert_eq!(
            publish_and_receive(&mut world, "/raw", &scan(before, 3)),
            [frame_and_size(before, 3)]
        );
    }
    for same in ["map", "", "r1/laser"] {
        assert_eq!(
            publish_and_receive(&mut world, "/scan", &scan(same, 3)),
            [frame_and_size(same, 3)]
        );
    }
    let mut plain = world_with_topics(&topics[..1], "topics: { /scan: {} }");
    assert_eq!(
        publish_and_receive(&mut plain, "/scan", &scan("/laser", 3)),
        [frame_and_size("/laser", 3)]
    );
    assert!(world.notices(0).is_empty() && plain.notices(0).is_empty());
}

#[test]
fn a_robot_knows_its_frames_without_the_prefix() {
    for compression in ["none", "zstd"] {
        let lines = format!("topics: {{ \"/**\": {{ compression: {compression} }} }}");
        let base =
            "peers: { robot: { address: 10.0.0.1, accept: [/scan, /old] } }\ntf: { prefix: r1/ }";
        let mut world = World::pair(&format!("peers: {{ base: 10.0.0.2 }}\n{lines}"), base);
        for topic in [scans("/scan"), topic("/old", SCAN)] {
            world.inject(0, Event::Offered(topic.clone()));
            world.wants(1, &topic.name, true);
        }
        world.take_commands(1);
        let frames =
            [("r1/map", "map"), ("/r1/map", "map"), ("r2/map", "r2/map"), ("/map", "/map")];
        for (sent, known) in frames {
            for bytes in [3, 70_000, 3] {
                let found = publish_and_receive(&mut world, "/scan", &scan(sent, bytes));
                assert_eq!(found, [frame_and_size(known, bytes)], "{compression}");
            }
        }
        let found = publish_and_receive(&mut world, "/old", &scan("r1/map", 3));
        assert_eq!(found, [frame_and_size("r1/map", 3)], "without a definition");
    }
}

#[test]
fn topics_of_actions_keep_their_names() {
    let feedback = "/drive/_action/feedback";
    let lines = format!("topics: {{ \"/**\": {{}} }}\n{PREFIX}");
    let mut world = world_with_topics(&[scans(feedback)], &lines);
    assert_eq!(
        publish_and_receive(&mut world, feedback, &scan("laser", 3)),
        [frame_and_size("laser", 3)]
    );
}

#[test]
fn a_compressed_message_has_the_new_names() {
    let lines = format!("topics: {{ /scan: {{ compression: zstd }} }}\n{PREFIX}");
    let mut world = world_with_topics(&[scans("/scan")], &lines);
    for bytes in [3, 1000] {
        assert_eq!(
            publish_and_receive(&mut world, "/scan", &scan("laser", bytes)),
            [frame_and_size("r1/laser", bytes)]
        );
    }
}

#[test]
fn messages_without_a_definition_are_unchanged_with_a_notice() {
    let unknown = topic("/scan", SCAN);
    let lines = format!("topics: {{ \"/**\": {{}} }}\n{PREFIX}");
    let mut world = world_with_topics(std::slice::from_ref(&unknown), &lines);
    for _ in 0..2 {
        assert_eq!(
            publish_and_receive(&mut world, "/scan", &scan("laser", 3)),
            [frame_and_size("laser", 3)]
        );
    }
    let words = ["/scan of 'robot'", "without the prefix of tf", "no definition of a/Scan"];
    assert!(world.has_notice(0, &words), "{:?}", world.notices(0));
    assert_eq!(world.notices(0).len(), 1);
    // The gateway finds the definition later.
    let found = Topic { type_hash: unknown.type_hash, ..scans("/scan") };
    world.inject(0, Event::Offered(found.clone()));
    assert_eq!(
        publish_and_receive(&mut world, "/scan", &scan("laser", 3)),
        [frame_and_size("laser", 3)]
    );
    assert!(world.has_notice(0, &["has the hash", "hash-of-a/Scan"]), "{:?}", world.notices(0));
    assert_eq!(world.notices(0).len(), 1, "the former notice is no longer true");
}

#[test]
fn an_unreadable_message_is_unchanged_with_a_notice() {
    let lines = format!("topics: {{ /scan: {{}} }}\n{PREFIX}");
    let mut world = world_with_topics(&[scans("/scan")], &lines);
    world.sides[0].on_local(world.now, message("/scan", 0, &[0; 13]));
    world.settle();
    let words = ["/scan of 'robot'", "without the prefix of tf", "header.frame_id: 4 bytes wanted"];
    assert!(world.has_notice(0, &words), "{:?}", world.notices(0));
    assert!(world.has_notice(1, &["/scan", "malformed"]), "the peer drops it");
    assert_eq!(
        publish_and_receive(&mut world, "/scan", &scan("laser", 3)),
        [frame_and_size("r1/laser", 3)]
    );
}

#[test]
fn the_codec_renames_large_and_all_later_messages() {
    let lines = format!("topics: {{ \"/**\": {{}} }}\n{PREFIX}");
    let strings = defined("/text", STRING, "string data\n");
    let mut world = world_with_topics(&[scans("/scan"), strings], &lines);
    let mut jobs = |topic: &str, payload: &[u8]| {
        let side = &mut world.sides[0];
        side.on_local(world.now, message(topic, 0, payload));
        let jobs = std::iter::from_fn(|| side.shared.poll_order());
        jobs.filter(|it| matches!(it, Order::Codec(_))).count()
    };
    assert_eq!(jobs("/scan", &scan("laser", 60_000)), 0);
    assert_eq!(jobs("/scan", &scan("laser", 70_000)), 1);
    assert_eq!(jobs("/scan", &scan("laser", 3)), 1, "in order");
    let text = [&70_000_u32.to_le_bytes()[..], &[b'a'; 70_000]].concat();
    assert_eq!(jobs("/text", &text), 0, "a type without frames");
    world.run(SECOND);
    world.take_commands(1);
    assert_eq!(
        publish_and_receive(&mut world, "/scan", &scan("laser", 80_000)),
        [frame_and_size("r1/laser", 80_000)]
    );
}

#[test]
fn a_kept_message_is_sent_once_under_each_name() {
    let lines = |prefix: &str| {
        format!("peers: {{ base: 10.0.0.2 }}\ntopics: {{ /scan: {{}} }}\ntf: {{ {prefix} }}")
    };
    let mut world =
        world_with_topics(&[latched_scans("/scan")], "topics: { /scan: {} }\ntf: { prefix: r1/ }");
    let again = |world: &mut World| {
        let Event::Message { origin, .. } = world.message(0, "/scan", 0, &scan("laser", 3)) else {
            panic!("no message")
        };
        let kept = origin.kept.map(|kept| Kept { is_repeatable: true, ..kept });
        let message = message_of("/scan", 0, &scan("laser", 3), Origin { kept, ..origin });
        world.sides[0].on_local(world.now, message);
        world.run(Duration::from_millis(10));
        let commands = std::mem::take(&mut world.sides[1].commands);
        let publication = |command| match command {
            Command::Publish { payload, origin, .. } => Some((read(&payload).0, origin.kept?)),
            _ => None,
        };
        commands.into_iter().filter_map(publication).collect::<Vec<_>>()
    };
    let first = again(&mut world);
    assert_eq!(first.iter().map(|it| &*it.0).collect::<Vec<_>>(), ["r1/laser"]);
    assert_eq!(again(&mut world), [], "it is a repetition");
    world.take_commands(0);

    world.reload(0, &lines("prefix: r2/"));
    assert_eq!(world.take_commands(0), ["unsubscribe /scan", "subscribe /scan"]);
    let second = again(&mut world);
    assert_eq!(second.iter().map(|it| &*it.0).collect::<Vec<_>>(), ["r2/laser"]);
    assert_ne!(first[0].1.identity, second[0].1.identity, "subscribers get it again");

    world.reload(0, &lines("prefix: r2/, frames: [odom]"));
    assert!(world.take_commands(0).is_empty(), "the names are the same");
    let off = lines("prefix: r2/").replace("/scan: {}", "/scan: { tf_prefix: false }");
    world.reload(0, &off);
    assert_eq!(world.take_commands(0), ["unsubscribe /scan", "subscribe /scan"]);
    assert_eq!(again(&mut world)[0].0, "laser");
}

#[test]
fn kept_messages_with_outdated_frame_names_are_dropped() {
    let mut world =
        world_with_topics(&[latched_scans("/scan")], "topics: { /scan: {} }\ntf: { prefix: r1/ }");
    let large = scan("laser", 70_000);
    let message = world.message(0, "/scan", 0, &large);
    world.sides[0].on_local(world.now, message);
    let orders: Vec<Order> = std::iter::from_fn(|| world.sides[0].shared.poll_order()).collect();
    let lines = "peers: { base: 10.0.0.2 }\ntopics: { /scan: {} }\ntf: { prefix: r2/ }";
    world.reload(0, lines);
    for order in orders {
        if let Order::Codec(job) = order {
            let done = Worker::new(1_000_000, None).run(job).unwrap();
            world.sides[0].on_codec(world.now, done);
        }
    }
    assert!(arrived_frames(&mut world).is_empty());
    assert_eq!(
        publish_and_receive(&mut world, "/scan", &large),
        [frame_and_size("r2/laser", 70_000)]
    );
}
