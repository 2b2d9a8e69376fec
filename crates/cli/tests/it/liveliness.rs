// SPDX-License-Identifier: Apache-2.0
//! Liveliness between two robots with rclpy: through a cut link, restarts of the daemons, and the end
//! of the publishers, in a separate network.

use crate::PROGRAM;
use serde_json::json;
use std::process::Command as Process;
use std::time::Instant;
use tautline_testkit::ros::Agent;
use tautline_testkit::ros::ros2;
use tautline_testkit::running::{Daemon, Place, wait_for};

const STRING: &str = "std_msgs/msg/String";
/// Lease of the publishers' liveliness, in seconds.
const LEASE: f64 = 0.5;
/// Topics by how their publisher asserts its liveliness.
const TOPICS: [&str; 3] = ["/automatic", "/manual", "/best_effort"];

fn ip(arguments: &str) {
    let done = Process::new("ip").args(arguments.split(' ')).status().unwrap();
    assert!(done.success(), "ip {arguments}");
}

/// Lets packets of the daemons pass or not.
fn link(verb: &str) {
    ip(&format!("address {verb} 10.9.0.2/32 dev lo"));
}

fn start(place: &Place, name: &str) -> Daemon {
    let (host, domain, peer, other) = match name {
        "robot" => (1, 0, 2, "base"),
        _ => (2, 1, 1, "robot"),
    };
    place.start(
        name,
        &format!(
            "listen: \"10.9.0.{host}:7000\"\n\
             peers: {{ {other}: {{ address: \"10.9.0.{peer}:7000\", accept: \"/**\" }} }}\n\
             ros2: {{ domain: {domain}, range: localhost }}\ntopics: {{ \"/**\": {{}} }}"
        ),
    )
}

fn profile(topic: &str) -> serde_json::Value {
    match topic {
        "/manual" => json!({"lease": LEASE}),
        "/best_effort" => json!({"automatic": LEASE, "best_effort": true}),
        _ => json!({"automatic": LEASE}),
    }
}

fn publish(robot: &mut Agent) {
    TOPICS.iter().for_each(|topic| robot.publisher(topic, STRING, profile(topic)));
}

/// For each change of the liveliness of a topic's publisher, whether the publisher was alive afterwards.
fn changes(base: &Agent, topic: &str) -> Vec<bool> {
    let reports = base.reports();
    let of_topic = reports.iter().filter(|it| it["topic"] == topic);
    of_topic.filter_map(|it| Some(it["alive"].as_u64()? > 0)).collect()
}

/// Waits until the subscriber sees that the publisher of each topic is alive or not. `publisher` asserts
/// its liveliness meanwhile.
fn wait_for_liveliness(base: &Agent, expected: bool, what: &str, publisher: &mut Agent) {
    let begun = Instant::now();
    for topic in TOPICS {
        wait_for(format!("{topic} is alive ({expected}) {what}"), || {
            let order = json!({"do": "send", "topic": "/manual", "fields": {"data": "here"}});
            publisher.order(order);
            (changes(base, topic).last() == Some(&expected)).then_some(())
        });
        println!("{topic} is alive ({expected}) {what} after {:?}", begun.elapsed());
    }
}

#[test]
fn a_subscriber_sees_the_liveliness_of_a_remote_publisher() {
    if !ros2::runs_in_own_network() {
        return;
    }
    ip("address add 10.9.0.1/32 dev lo");
    link("add");
    let place = Place::new(PROGRAM);
    let (robot, base) = (start(&place, "robot"), start(&place, "base"));
    base.wait_for_state("robot", "up");
    let mut publisher = ros2::start_in(0, "kilted", "LOCALHOST", "publisher");
    let mut subscriber = ros2::start_in(1, "jazzy", "LOCALHOST", "subscriber");
    // Subscribers come first: if rclpy discovers a publisher while it creates a subscriber, the publisher
    // may come alive before the subscriber listens for liveliness. This happens without Tautline, too.
    TOPICS.iter().for_each(|topic| subscriber.subscriber(topic, STRING, profile(topic)));
    publish(&mut publisher);

    wait_for_liveliness(&subscriber, true, "at first", &mut publisher);
    link("del");
    wait_for_liveliness(&subscriber, false, "behind a cut link", &mut publisher);
    link("add");
    wait_for_liveliness(&subscriber, true, "through it", &mut publisher);
    robot.kill();
    wait_for_liveliness(&subscriber, false, "without its daemon", &mut publisher);
    let _robot = start(&place, "robot");
    wait_for_liveliness(&subscriber, true, "with a new one", &mut publisher);
    base.kill();
    wait_for_liveliness(&subscriber, false, "without the daemon here", &mut publisher);
    let base = start(&place, "base");
    wait_for_liveliness(&subscriber, true, "with a new one here", &mut publisher);

    publisher.signal("-KILL");
    let is_lost = |topic: &&str| changes(&subscriber, topic).last() == Some(&false);
    wait_for("the loss of killed publishers", || TOPICS.iter().all(is_lost).then_some(()));
    let before = TOPICS.map(|topic| changes(&subscriber, topic).len());
    // The loss is the only change, until the lease of their participant ends after some twenty seconds.
    wait_for("the topics to be withdrawn", || {
        let topics = base.status().topics;
        (!topics.iter().any(|it| TOPICS.contains(&&*it.topic))).then_some(())
    });
    for (topic, before) in TOPICS.iter().zip(before) {
        let later = changes(&subscriber, topic).split_off(before);
        assert!(!later.contains(&true), "{topic} flaps: {later:?}");
    }
}
