// SPDX-License-Identifier: Apache-2.0
//! Tests of time stamps in peers' messages, which the file may move onto this robot's clock.

use super::*;

const SCAN: &str = "a/Scan";
/// How far the robot's clock is ahead, in microseconds.
const AHEAD_US: i64 = 10_000_000;

fn scans(compression: &str) -> (Topic, String) {
    let bar = "=".repeat(80);
    let text = format!(
        "Header header\nuint8[] data\n{bar}\nMSG: std_msgs/Header\nuint32 seq\ntime stamp\n\
         string frame_id\n"
    );
    let lines = format!(
        "peers: {{ base: 10.0.0.2 }}\ntopics: {{ /scan: {{ compression: {compression} }} }}"
    );
    (defined("/scan", SCAN, &text), lines)
}

/// Encodes a message with this stamp and `bytes` of data.
fn scan([seconds, nanoseconds]: [u32; 2], bytes: usize) -> Vec<u8> {
    let header = [0, seconds, nanoseconds, 0, bytes as u32].map(u32::to_le_bytes).concat();
    [header, vec![7; bytes]].concat()
}

fn stamp(message: &[u8]) -> [u32; 2] {
    let number = |at: usize| u32::from_le_bytes(message[at..at + 4].try_into().unwrap());
    let stamp = [number(4), number(8)];
    assert!(message == scan(stamp, message.len() - 20), "the rest is the same");
    stamp
}

/// Returns the stamps that the base publishes for those that the robot sends.
fn arrived_stamps(
    topic: Topic,
    robot: &str,
    base: &str,
    sent: &[([u32; 2], usize)],
) -> Vec<[u32; 2]> {
    let mut world = World::pair(robot, base);
    for (side, ahead) in [(0, AHEAD_US), (1, 0)] {
        let wall = 1_700_000_000_000_000 + ahead;
        world.sides[side].endpoint.set_wall(world.now, wall);
    }
    world.run(5 * SECOND);
    world.inject(0, Event::Offered(topic));
    world.wants(1, "/scan", true);
    for (stamp, bytes) in sent {
        let message = message("/scan", 0, &scan(*stamp, *bytes));
        world.sides[0].on_local(world.now, message);
        world.run(SECOND);
    }
    let commands = std::mem::take(&mut world.sides[1].commands);
    let stamps = commands.iter().filter_map(|command| match command {
        Command::Publish { payload, .. } => Some(stamp(payload)),
        _ => None,
    });
    stamps.collect()
}

const SENT: [([u32; 2], usize); 4] =
    [([1010, 500], 3), ([0, 0], 3), ([2010, 7], 70_000), ([3010, 9], 3)];

#[test]
fn stamps_are_moved_by_the_offset_if_the_file_says_so() {
    for compression in ["none", "zstd"] {
        let (topic, robot) = scans(compression);
        let base = "peers: { robot: { address: 10.0.0.1, move_stamps: true } }";
        let found = arrived_stamps(topic, &robot, base, &SENT);
        let error = |found: [u32; 2], sent: [u32; 2]| {
            let ns = |stamp: [u32; 2]| i64::from(stamp[0]) * 1_000_000_000 + i64::from(stamp[1]);
            ns(sent) - ns(found) - AHEAD_US * 1000
        };
        assert_eq!(found.len(), 4, "{found:?}");
        assert_eq!(found[1], [0, 0], "no stamp");
        for number in [0, 2, 3] {
            let error = error(found[number], SENT[number].0);
            assert!(error.abs() < 5_000_000, "{error} ns");
        }
    }
}

#[test]
fn stamps_stay_by_default() {
    let (topic, robot) = scans("none");
    let found = arrived_stamps(topic, &robot, "peers: { robot: 10.0.0.1 }", &SENT);
    assert_eq!(found, SENT.map(|(stamp, _)| stamp));
}

#[test]
fn a_topic_without_a_definition_keeps_its_stamps_and_a_notice_says_so() {
    let (_, robot) = scans("none");
    let base = "peers: { robot: { address: 10.0.0.1, move_stamps: true } }";
    let mut world = World::pair(&robot, base);
    world.inject(0, Event::Offered(topic("/scan", SCAN)));
    world.wants(1, "/scan", true);
    world.publishes(0, "/scan", 0, "opaque");
    assert!(world.take_commands(1).contains(&"publish /scan 0 opaque".to_owned()));
    let words = ["/scan of 'robot'", "time stamps are not moved", "no definition of a/Scan"];
    assert!(world.has_notice(1, &words), "{:?}", world.notices(1));
}
