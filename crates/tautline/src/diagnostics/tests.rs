// SPDX-License-Identifier: Apache-2.0
//! Tests of the statuses of a snapshot and of their serialization.

use super::array::{DEFINITION, DiagnosticStatus, Level, MD5, TYPE_NAME};
use super::*;
use crate::config::{self, Surroundings};
use crate::status::{Direction, RejectedReport};
use tautline_gateway::types::installed::InstalledTypes;
use tautline_gateway::types::translate::translate;
use tautline_gateway::types::{Dialect, Schema, Transcoder, hash};

/// Type hash of diagnostic_msgs in ROS 2 Kilted (share/diagnostic_msgs/msg/DiagnosticArray.json).
const RIHS01: &str = "RIHS01_5a8a36efb05fb25070fa0fb3810290c0e6cd4862b54a8fb975a1ee8dc55a333e";
const STAMP: Duration = Duration::new(1_700_000_000, 500_000_000);

/// A robot without problems except for the peer 'robot2'.
fn status(uptime_s: f64) -> Status {
    let status: Status = serde_json::from_str(include_str!("../status/fixture.json")).unwrap();
    Status { uptime_s, ..status }
}

fn diagnostics(lines: &str) -> Option<Diagnostics> {
    let file = format!("name: robot1\n{lines}\n");
    Diagnostics::new(&config::parse(&file, &Surroundings::default()).unwrap().config)
}

fn status_of_part(earlier: Option<&Status>, now: &Status, part: &str) -> DiagnosticStatus {
    let all = statuses::build(earlier, now);
    let name = format!("tautline robot1: {part}");
    let mut found = all.iter().filter(|it| it.name == name);
    let told = found.next().unwrap_or_else(|| panic!("no {name} in {all:?}")).clone();
    assert!(found.next().is_none(), "{name} twice");
    told
}

fn value<'a>(status: &'a DiagnosticStatus, key: &str) -> &'a str {
    let found = status.values.iter().find(|(known, _)| known == key);
    &found.unwrap_or_else(|| panic!("no {key} in {status:?}")).1
}

#[test]
fn the_type_of_the_links_topic_exists_in_ros_1_and_ros_2() {
    let ros1 = diagnostics("ros1: true").unwrap();
    let schema = Schema::parse(TYPE_NAME, DEFINITION, Dialect::Ros1).unwrap();
    assert_eq!(ros1.arrays.topic.type_hash, hash::type_hash(&schema));
    let ros2 = diagnostics("ros2: true").unwrap();
    assert_eq!(ros2.arrays.topic.type_name, "diagnostic_msgs/msg/DiagnosticArray");
    assert_eq!(ros2.arrays.topic.type_hash, RIHS01);
    // This is the translation that a peer with ROS 1 does.
    let back =
        translate(&ros2.arrays.topic, Dialect::Ros1, &InstalledTypes::default()).unwrap().topic;
    assert_eq!((&*back.type_name, &*back.type_hash), (TYPE_NAME, MD5));
}

#[test]
fn ros_1_and_ros_2_bytes_have_the_same_content() {
    let mut ros1 = diagnostics("ros1: true").unwrap();
    let mut ros2 = diagnostics("ros2: true").unwrap();
    let schema = |it: &Diagnostics, dialect| {
        Schema::parse(&it.arrays.topic.type_name, &it.arrays.topic.definition, dialect).unwrap()
    };
    let schemas = (schema(&ros1, Dialect::Ros1), schema(&ros2, Dialect::Ros2));
    let transcoder = Transcoder::new(&schemas.0, &schemas.1).unwrap();
    assert!(transcoder.one_sided().is_empty(), "{:?}", transcoder.one_sided());
    for uptime in [10.0, 11.0] {
        let serialized = ros1.message(status(uptime), STAMP).unwrap();
        let cdr = ros2.message(status(uptime), STAMP).unwrap();
        assert_eq!(transcoder.to_ros2(&serialized).unwrap(), cdr);
        assert_eq!(transcoder.to_ros1(&cdr).unwrap(), serialized);
        assert_eq!(
            serialized[4..12],
            [1_700_000_000u32, 500_000_000].map(u32::to_le_bytes).concat()
        );
    }
}

#[test]
fn a_node_without_ros_publishes_no_diagnostics() {
    assert!(diagnostics("ros1: false").is_none());
    assert!(diagnostics("diagnostics: false").is_none());
    assert!(diagnostics("").is_some());
}

#[test]
fn every_part_is_reported_under_the_nodes_name() {
    let all = statuses::build(None, &status(10.0));
    let names: Vec<&str> = all.iter().map(|it| it.name.as_str()).collect();
    let expected = ["node", "peer base", "peer robot2", "radio wlan0", "radio eth0", "drops"];
    assert_eq!(names, expected.map(|part| format!("tautline robot1: {part}")));
    assert!(all.iter().all(|it| it.hardware_id == "robot1"), "{all:?}");
}

#[test]
fn a_peer_warns_while_it_or_a_link_of_it_is_down() {
    let mut now = status(10.0);
    let base = status_of_part(None, &now, "peer base");
    assert_eq!((base.level, &*base.message), (Level::Ok, "up"));
    assert_eq!(value(&base, "messages waiting"), "2");
    assert_eq!(value(&base, "link 1 leads"), "by wlan0 to 10.0.0.2:18470");
    assert_eq!(value(&base, "link 1 round trip (ms)"), "4.2");
    assert_eq!(value(&base, "link 1 can send (bit/s)"), "6120000");
    assert_eq!(value(&base, "link 1 paced by"), "back-pressure");
    assert_eq!(value(&base, "link 1 sends (bit/s)"), "-", "there was nothing before");
    let robot2 = status_of_part(None, &now, "peer robot2");
    assert_eq!((robot2.level, &*robot2.message), (Level::Warn, "down"));
    assert_eq!(value(&robot2, "link 1 is"), "down");
    (now.links[0].stalled, now.links[0].state) = (true, "stalled".into());
    let base = status_of_part(None, &now, "peer base");
    assert_eq!((base.level, &*base.message), (Level::Warn, "up, but 1 of 1 links are stalled"));
    assert_eq!((value(&base, "link 1 name"), value(&base, "link 1 is")), ("wlan0", "stalled"));
    (now.links[0].up, now.links[0].state) = (false, "down".into());
    let base = status_of_part(None, &now, "peer base");
    assert_eq!((base.level, &*base.message), (Level::Warn, "up, but 1 of 1 links are down"));
    now.peers[0].state = "connecting".into();
    assert_eq!(status_of_part(None, &now, "peer base").level, Level::Warn);
}

#[test]
fn rates_are_those_since_the_earlier_snapshot() {
    let (earlier, mut now) = (status(10.0), status(12.0));
    now.links[0].sent_bytes += 1000;
    now.links[0].acked_packets += 97;
    now.links[0].lost_packets += 3;
    now.radios[0].sent_bytes += 500;
    let base = status_of_part(Some(&earlier), &now, "peer base");
    assert_eq!(value(&base, "link 1 sends (bit/s)"), "4000");
    assert_eq!(value(&base, "link 1 loss (%)"), "3.0");
    let wlan0 = status_of_part(Some(&earlier), &now, "radio wlan0");
    assert_eq!((wlan0.level, &*wlan0.message), (Level::Ok, "paced by back-pressure"));
    assert_eq!(value(&wlan0, "sends (bit/s)"), "2000");
}

#[test]
fn the_links_that_carry_a_topic_are_reported_with_their_policy() {
    let (earlier, mut now) = (status(10.0), status(12.0));
    let key = "links of /camera/front/image_color/compressed";
    assert_eq!(
        value(&status_of_part(None, &now, "peer base"), key),
        "stripe: lte 25 % (metered), wlan0 75 %"
    );
    *now.topics[1].links.as_mut().unwrap().bytes.get_mut("lte").unwrap() += 1000;
    let base = status_of_part(Some(&earlier), &now, "peer base");
    assert_eq!(value(&base, key), "stripe: lte 100 % (metered), wlan0 0 %");
}

#[test]
fn drops_warn_while_they_grow_and_stay_in_the_report() {
    let earlier = status(10.0);
    let quiet = status_of_part(Some(&earlier), &status(11.0), "drops");
    assert_eq!((quiet.level, &*quiet.message), (Level::Ok, "nothing is being dropped"));
    assert_eq!(value(&quiet, "/scan > robot2: peer gone"), "12");
    assert_eq!(value(&quiet, "packets: wrong version"), "3");
    assert_eq!(status_of_part(None, &earlier, "drops").level, Level::Ok, "nobody knows since when");

    let mut now = status(11.0);
    now.topics[0].dropped.insert("expired".into(), 4);
    let one = status_of_part(Some(&earlier), &now, "drops");
    assert_eq!((one.level, &*one.message), (Level::Warn, "being dropped: /scan > base: 4 expired"));
    now.gateways[0].rejected.push(RejectedReport {
        topic: "/map".into(),
        direction: Direction::Out,
        reason: "too_large".into(),
        count: 9,
    });
    let two = status_of_part(Some(&earlier), &now, "drops");
    assert_eq!(two.message, "being dropped: /map: 9 too large, and 1 more");
    let counted = two.values.iter().find(|(key, _)| !key.ends_with("lately")).unwrap();
    assert_eq!(*counted, ("/map: too large".into(), "9".into()), "what grows comes first");
}

#[test]
fn recent_drops_of_a_topic_are_reported_with_their_reason() {
    let earlier = status(10.0);
    let mut now = status(11.0);
    *now.topics[1].dropped.get_mut("superseded").unwrap() += 8;
    let drops = status_of_part(Some(&earlier), &now, "drops");
    let words = "41 % of messages dropped in the last 10 s: newer ones replaced them \
                 (link to base carried 5.8 Mbps; 10.6 Mbps wanted)";
    let of = "/camera/front/image_color/compressed > base";
    assert_eq!(drops.message, format!("being dropped: {of}: {words}"));
    assert_eq!(value(&drops, &format!("{of} lately")), words);
    // Drops for another reason are reported as a count.
    now.topics[1].dropped.insert("expired".into(), 1300);
    let drops = status_of_part(Some(&earlier), &now, "drops");
    assert_eq!(drops.message, format!("being dropped: {of}: 96 expired, and 1 more"));
}

#[test]
fn excluded_topics_are_reported_without_a_warning() {
    let earlier = status(10.0);
    let mut now = status(11.0);
    now.topics[0].rate_limited = 1000;
    now.topics[0].dropped.insert("no_named_frame".into(), 500);
    let drops = status_of_part(Some(&earlier), &now, "drops");
    assert_eq!(drops.level, Level::Ok);
    assert_eq!(value(&drops, "/scan > base: rate limited"), "1000");
}

#[test]
fn the_node_reports_its_gateway_and_recent_events() {
    let earlier = status(10.0);
    let mut now = status(11.0);
    let well = status_of_part(Some(&earlier), &now, "node");
    assert_eq!((well.level, &*well.message), (Level::Ok, "running"));
    assert_eq!(value(&well, "ros1"), "http://localhost:11311 up");
    now.notices.push("two nodes are named 'base'".into());
    let told_new = status_of_part(Some(&earlier), &now, "node");
    assert_eq!((told_new.level, &*told_new.message), (Level::Warn, "two nodes are named 'base'"));
    assert_eq!(value(&told_new, "notice 1"), "two nodes are named 'base'");
    assert_eq!(status_of_part(Some(&now), &now, "node").level, Level::Ok, "it is no news any more");
    now.gateways[0].trouble = "/x is not published".into();
    assert_eq!(status_of_part(Some(&now), &now, "node").message, "/x is not published");
    now.gateways[0].connected = false;
    now.gateways[0].trouble = String::new();
    let absent = status_of_part(Some(&now), &now, "node");
    assert_eq!(absent.level, Level::Error);
    assert_eq!(absent.message, "ros1 at http://localhost:11311 is down");
}

#[test]
fn the_diagnostics_array_is_bounded() {
    let mut now = status(10.0);
    let (template, links) = (now.topics[0].clone(), now.topics[1].links.clone());
    now.topics = (0..1000)
        .map(|number| {
            let mut topic = template.clone();
            topic.topic = format!("/topic{number}");
            topic.dropped.insert("lost".into(), number);
            topic.links = links.clone();
            topic
        })
        .collect();
    now.notices = vec!["é".repeat(10_000); 50];
    now.gateways[0].trouble = "x".repeat(1_000_000);
    let drops = status_of_part(None, &now, "drops");
    let sum: u64 = drops.values.iter().map(|(_, count)| count.parse::<u64>().unwrap()).sum();
    let rejected: u64 = now.gateways[0].rejected.iter().map(|it| it.count).sum();
    let refused: u64 = now.packets_refused.values().sum();
    assert_eq!(sum, (0..1000).sum::<u64>() + rejected + refused, "all are counted");
    assert_eq!(value(&drops, "/topic999 > base: lost"), "999");
    let bytes = diagnostics("").unwrap().message(now, STAMP).unwrap().len();
    assert!(bytes < 20_000, "{bytes} bytes");
}

#[test]
fn drops_without_listeners_are_not_reported_as_new() {
    let mut diagnostics = diagnostics("").unwrap();
    for second in 0..2 * WINDOW {
        diagnostics.message(status(second as f64), STAMP).unwrap();
    }
    assert_eq!(diagnostics.earlier.len(), WINDOW);
    assert_eq!(diagnostics.earlier[0].uptime_s, WINDOW as f64);
    diagnostics.forget();
    assert!(diagnostics.earlier.is_empty());
}

/// All statuses of a robot with links in every state.
#[test]
fn all_statuses_of_a_robot_with_many_links() {
    let earlier: Status =
        serde_json::from_str(include_str!("../status/fixture_links.json")).unwrap();
    let mut now = earlier.clone();
    now.uptime_s += 4.0;
    for (number, link) in (1..).zip(&mut now.links) {
        link.acked_packets += 90 * number;
        link.lost_packets += 10;
        link.sent_bytes += 100_000 * number;
        link.received_bytes += 1000 * number;
    }
    let mut links =
        LinkTopic::new(&config::parse("name: robot1", &Surroundings::default()).unwrap().config)
            .unwrap();
    links.keep(Duration::from_secs(100), earlier.links.clone());
    let statuses = statuses::build(Some(&earlier), &now);
    let all = statuses.into_iter().chain(links.statuses(Duration::from_secs(104), &now.links));
    let told: String = all.map(|it| format!("{it:#?}\n")).collect();
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/src/diagnostics/golden_links.txt");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(file, &told).unwrap();
    }
    let written = std::fs::read_to_string(file).unwrap_or_default();
    assert_eq!(told, written, "UPDATE=1 accepts the new statuses");
}
