// SPDX-License-Identifier: Apache-2.0
//! Liveliness: that of local publishers is reported, and that of peers' publishers is shown.

use super::STRING;
use serde_json::json;
use std::time::{Duration, Instant};
use tautline_gateway::ros2::DiscoveryRange;
use tautline_gateway::{Event, Liveliness, Qos, Topic};
use tautline_testkit::ros::ros2::{
    runs_in_own_network, start, string_message, string_topic, watch,
};
use tautline_testkit::ros::{Agent, Watched, wait_for};

/// The lease of all publishers, in seconds.
const LEASE: f64 = 1.0;

/// Topics by their policies.
const TOPICS: [&str; 4] = ["/manual", "/automatic", "/kept", "/best_effort"];

fn policies(topic: &str) -> serde_json::Value {
    match topic {
        "/manual" => json!({"lease": LEASE}),
        "/kept" => json!({"automatic": LEASE, "latch": true}),
        "/best_effort" => json!({"automatic": LEASE, "best_effort": true}),
        _ => json!({"automatic": LEASE}),
    }
}

fn topic_with_lease(name: &str, lost: bool) -> Topic {
    let lease = Some(Duration::from_secs_f64(LEASE));
    let qos = Qos {
        liveliness: Liveliness { manual: name == "/manual", lease, lost },
        transient_local: name == "/kept",
        reliable: name != "/best_effort",
        ..Qos::default()
    };
    string_topic(name, qos)
}

/// Numbers of publishers of a topic that were alive after each change.
fn alive(agent: &Agent, topic: &str) -> Vec<u64> {
    let reports = agent.reports();
    let of_topic = reports.iter().filter(|it| it["topic"] == topic && it["alive"].is_u64());
    of_topic.map(|it| it["alive"].as_u64().unwrap()).collect()
}

fn wait_for_alive(agent: &Agent, topic: &str, expected: &[u64]) {
    wait_for(format!("liveliness {expected:?} of {topic}"), || {
        (alive(agent, topic) == expected).then_some(())
    });
}

#[test]
fn the_liveliness_of_a_remote_publisher_is_reported_to_subscribers() {
    if !runs_in_own_network() {
        return;
    }
    let gateway = watch(DiscoveryRange::Machine, "alive");
    let mut agents =
        [start("kilted", "SUBNET", "alive_kilted"), start("jazzy", "LOCALHOST", "alive_jazzy")];
    let all =
        |lost| TOPICS.iter().for_each(|name| gateway.advertise(&topic_with_lease(name, lost)));
    for agent in &mut agents {
        TOPICS.iter().for_each(|name| agent.subscriber(name, STRING, policies(name)));
    }
    all(false);
    let expect = |topics: &[&str], expected: &[u64]| {
        for agent in &agents {
            topics.iter().for_each(|name| wait_for_alive(agent, name, expected));
        }
    };
    expect(&TOPICS, &[1]);
    gateway.publish("/kept", 0, string_message("kept"));
    all(true);
    expect(&TOPICS, &[1, 0]);
    // A message that was under way shows life for one lease.
    gateway.publish("/manual", 0, string_message("late"));
    expect(&TOPICS[..1], &[1, 0, 1, 0]);
    all(false);
    expect(&TOPICS[..1], &[1, 0, 1, 0, 1]);
    expect(&TOPICS[1..], &[1, 0, 1]);
    // It stays so for several leases without any message.
    let quiet = Instant::now();
    wait_for("several leases", || {
        (quiet.elapsed() > Duration::from_secs_f64(3.0 * LEASE)).then_some(())
    });
    expect(&TOPICS[..1], &[1, 0, 1, 0, 1]);
    expect(&TOPICS[1..], &[1, 0, 1]);
    let received = agents[0].received("/kept").len();
    assert_eq!(received, 1, "not again");
    let mut late = start("kilted", "SUBNET", "alive_late");
    late.subscriber("/kept", STRING, policies("/kept"));
    wait_for("what is kept", || (late.received("/kept").len() == 1).then_some(()));
    // A peer that changes its state all the time causes no more changes than the shortest lease allows.
    let begun = Instant::now();
    for changed in 0..2000 {
        gateway.advertise(&topic_with_lease("/best_effort", changed % 2 == 0));
    }
    all(true);
    wait_for("the last word", || {
        (alive(&agents[0], "/best_effort").last() == Some(&0)).then_some(())
    });
    let (changes, allowed) =
        (alive(&agents[0], "/best_effort").len(), begun.elapsed().as_millis() / 16);
    assert!(changes as u128 <= 5 + allowed, "{changes}, {allowed}");
    gateway.shutdown();
}

/// What an event says of a topic's liveliness: whether it is lost.
fn offer_of(event: &Event, name: &str) -> Option<bool> {
    match event {
        Event::Offered(topic) if topic.name == name => Some(topic.qos.liveliness.lost),
        _ => None,
    }
}

fn last_offer(gateway: &Watched, name: &str) -> Option<bool> {
    gateway.events().iter().rev().find_map(|event| offer_of(event, name))
}

fn wait_for_offer(gateway: &Watched, name: &str, lost: bool) {
    wait_for(format!("offer of {name}, lost: {lost}"), || {
        (last_offer(gateway, name) == Some(lost)).then_some(())
    });
}

#[test]
fn a_local_publisher_without_liveliness_is_reported() {
    if !runs_in_own_network() {
        return;
    }
    let gateway = watch(DiscoveryRange::Machine, "asserted");
    let mut other = start("jazzy", "SUBNET", "other");
    other.publisher("/shared", STRING, json!({"automatic": LEASE}));
    for version in ["kilted", "jazzy"] {
        let (manual, automatic) = (format!("/manual_{version}"), format!("/automatic_{version}"));
        let mut agent = start(version, "SUBNET", "asserting");
        agent.publisher(&manual, STRING, json!({"lease": LEASE}));
        agent.publisher(&automatic, STRING, json!({"automatic": LEASE}));
        agent.publisher("/shared", STRING, json!({"automatic": LEASE}));
        for name in [&manual, &automatic, "/shared"] {
            gateway.offered(name);
            gateway.subscribe(name);
        }
        // At first, nothing asserts the manual liveliness. A message asserts it; then assertions suffice
        // until they end.
        wait_for_offer(&gateway, &manual, true);
        wait_for("life by a message", || {
            agent.order(json!({"do": "send", "topic": manual, "fields": {"data": "on"}}));
            (last_offer(&gateway, &manual) == Some(false)).then_some(())
        });
        let offers =
            |name: &str| gateway.events().iter().filter(|it| offer_of(it, name).is_some()).count();
        let (before, quiet) = (offers(&manual), Instant::now());
        while quiet.elapsed() < Duration::from_secs_f64(3.0 * LEASE) {
            agent.order(json!({"do": "assert_alive", "topic": manual}));
        }
        assert_eq!(offers(&manual), before, "asserted without messages");
        wait_for_offer(&gateway, &manual, true);
        wait_for_offer(&gateway, &automatic, false);
        // Its end is reported before the participant's lease ends, which takes 20 s.
        agent.signal("-KILL");
        wait_for_offer(&gateway, &automatic, true);
        assert_eq!(last_offer(&gateway, "/shared"), Some(false), "another publisher is alive");
    }
    other.signal("-KILL");
    wait_for_offer(&gateway, "/shared", true);
    gateway.shutdown();
}
