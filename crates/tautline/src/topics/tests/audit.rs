// SPDX-License-Identifier: Apache-2.0
//! Tests of the records that the exchange writes to the audit log.

use super::*;
use crate::audit::{Actor, Lines, Recorder};
use crate::status::TopicChange;
use serde_json::Value;
use std::sync::Arc;

/// Makes a node record its events; returns the recorded lines.
fn record(world: &mut World, side: usize) -> Arc<Lines> {
    let lines = Arc::new(Lines::default());
    world.sides[side].shared.recorder = Recorder::new(lines.audit());
    lines
}

/// Ends the world, and returns the records as JSON values.
fn records(world: World, recorded: Arc<Lines>) -> Vec<Value> {
    drop(world);
    let text = recorded.json_lines();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

const BASE: &str = "peers: { robot: 10.0.0.1 }\ntopics: { \"/**\": {} }";

#[test]
fn changes_are_recorded_with_their_user() {
    let mut world = World::pair("peers: { base: 10.0.0.2 }\ntopics: { \"/**\": {} }", BASE);
    let recorded = record(&mut world, 0);
    for name in ["/scan", "/scan2", "/odom"] {
        world.inject(0, Event::Offered(topic(name, STRING)));
    }
    let by = Actor::User { uid: 1000, gid: 100, pid: 5, user: Some("anna".into()) };
    let now = world.now;
    let side = &mut world.sides[0];
    let change =
        |topic: &str, rate_hz| TopicChange { topic: topic.into(), priority: Some(9), rate_hz };
    let scans = change("/scan*", Some(0.0));
    side.with(now, |topics, cx| topics.change_treatment(cx, scans, by.clone())).unwrap();
    let scam = change("/scam", None);
    side.with(now, |topics, cx| topics.change_treatment(cx, scam, Actor::Signal)).unwrap_err();
    let found = records(world, recorded);
    let [done, refused] = &found[..] else { panic!("{found:?}") };
    assert_eq!(done["event"], "changed");
    let changes = ["/scan*: priority=9 rate=none", "/scan", "/scan2"];
    assert_eq!(done["changes"], serde_json::json!(changes));
    let who = ["by", "uid", "gid", "pid", "user"].map(|field| done[field].to_string());
    assert_eq!(who, ["\"user\"", "1000", "100", "5", "\"anna\""]);
    assert_eq!((&refused["event"], &refused["by"]), (&"change_refused".into(), &"signal".into()));
    assert!(refused["reason"].as_str().unwrap().starts_with("/scam: priority=9: no topic"));
}

#[test]
fn the_start_and_end_of_a_flood_are_recorded() {
    let robot = "peers: { base: { address: 10.0.0.2, max_rate: 8kbps } }";
    let mut world = World::pair(robot, BASE);
    world.inject(1, Event::Offered(topic("/scan", STRING)));
    world.wants(0, "/scan", true);
    let recorded = record(&mut world, 0);
    for _ in 0..2 {
        for _ in 0..20 {
            world.publishes(1, "/scan", 0, &"x".repeat(500));
        }
        world.run(20 * SECOND);
    }
    let found = records(world, recorded);
    let events: Vec<_> = found.iter().map(|it| it["event"].as_str().unwrap()).collect();
    let once = ["over_rate_began", "over_rate_ended"];
    assert_eq!(events, [once, once].concat());
    assert_eq!((&found[0]["topic"], &found[0]["limit_bps"]), (&"/scan".into(), &8000.into()));
    assert!(found.iter().all(|it| it["peer"] == "base"));
    let (messages, bytes) = (found[1]["messages"].as_u64(), found[1]["bytes"].as_u64());
    assert!(messages.is_some_and(|it| (10..20).contains(&it)), "{messages:?}");
    assert_eq!(bytes, messages.map(|it| it * 500));
}

#[test]
fn calls_of_services_that_are_not_for_a_peer_are_recorded() {
    let robot = "name: robot\npeers: { base: 10.0.0.2, other: 10.0.0.3 }\n\
                 services: { /switch: { to: other } }\n";
    let other = "name: other\npeers: { robot: 10.0.0.1 }\n";
    let base = format!("name: base\n{BASE}\n");
    let mut world = World::new(&[robot, &base, other]);
    let served = tautline_gateway::Service {
        name: "/switch".into(),
        type_name: "std_srvs/SetBool".into(),
        type_hash: "h".into(),
        definition: "".into(),
    };
    world.inject(0, Event::ServiceOffered(served));
    let recorded = record(&mut world, 0);
    let calls = tautline_proto::ChannelConfig {
        topic: tautline_proto::OfferedTopic {
            name: "/switch".into(),
            type_name: "std_srvs/SetBool".into(),
            type_hash: "h".into(),
            priority: 1,
            keep_last: 1,
            lifespan: None,
            qos: tautline_proto::OfferedQos::default(),
            role: tautline_proto::Role::Calls,
            order: tautline_proto::DeliveryOrder::Arrival,
        },
        definition: "".into(),
        repair: true,
        thin: false,
        fec: None,
        links: tautline_proto::LinkUse::default(),
    };
    world.sides[1].endpoint.peer_mut(ONLY_PEER).offer(world.now, calls).unwrap();
    world.run(SECOND);
    let found = records(world, recorded);
    let [refused] = &found[..] else { panic!("{found:?}") };
    assert_eq!((&refused["kind"], &refused["peer"]), (&"call".into(), &"base".into()));
    let named = (&refused["name"], &refused["type"]);
    assert_eq!(named, (&"/switch".into(), &"std_srvs/SetBool".into()));
}

#[test]
fn a_peer_that_disappears_and_returns_is_recorded() {
    let mut world = World::pair("peers: { base: 10.0.0.2 }", BASE);
    let recorded = record(&mut world, 0);
    world.sides[0].drops_incoming = true;
    world.run(5 * SECOND);
    world.sides[0].drops_incoming = false;
    world.run(5 * SECOND);
    world.restart(1);
    world.run(5 * SECOND);
    let found = records(world, recorded);
    let how =
        |it: &Value| it.get("reason").or(it.get("session")).unwrap().as_str().unwrap().to_owned();
    let words: Vec<_> =
        found.iter().map(|it| format!("{} {}", it["event"].as_str().unwrap(), how(it))).collect();
    assert_eq!(words[..2], ["went silence", "came same"]);
    assert_eq!(words.last().unwrap(), "came new");
    assert_eq!(found[1]["address"], "10.0.0.2:18470");
}
