// SPDX-License-Identifier: Apache-2.0
//! The ROS 2 gateway between real nodes, of Fast DDS and of Cyclone DDS.

mod graph;
mod liveliness;
mod neighbours;
mod peers;
mod services;

use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tautline_gateway::rejections::Reason;
use tautline_gateway::ros2::DiscoveryRange;
use tautline_gateway::types::{Dialect, Schema};
use tautline_gateway::{Event, Kept, Liveliness, Qos};
use tautline_testkit::ros::ros2::{
    STRING_HASH, runs_in_own_network, start, start_cyclone, string_message, string_topic, watch,
    watch_keeping, watch_selecting,
};
use tautline_testkit::ros::{Agent, MAX_MESSAGE, assert_names, bytes_of, wait_for};

const STRING: &str = "std_msgs/msg/String";
const SCAN: &str = "sensor_msgs/msg/LaserScan";

/// Payloads are padded to a multiple of four on their way.
pub fn equal_without_padding(one: &[u8], other: &[u8]) -> bool {
    let zeros = |it: &[u8]| it.iter().all(|byte| *byte == 0);
    let (short, long) = if one.len() < other.len() { (one, other) } else { (other, one) };
    long.starts_with(short) && long.len() - short.len() < 4 && zeros(&long[short.len()..])
}

#[test]
fn any_type_passes_in_both_directions_with_hash_definition_and_node() {
    if !runs_in_own_network() {
        return;
    }
    let gateway = watch(DiscoveryRange::Machine, "both");
    let mut agent = start("kilted", "SUBNET", "both_agent");
    agent.publisher("/scan", SCAN, json!({}));
    let topic = gateway.offered("/scan");
    assert_eq!(topic.type_name, SCAN);
    assert!(topic.type_hash.starts_with("RIHS01_"), "{}", topic.type_hash);
    Schema::parse(SCAN, &topic.definition, Dialect::Ros2).unwrap();

    gateway.subscribe("/scan");
    let fields = json!({"angle_min": 0.5, "ranges": [1.0, 2.0]});
    let sent = wait_for("message read", || {
        let sent =
            bytes_of(&agent.order(json!({"do": "send", "topic": "/scan", "fields": fields})));
        let read = gateway.messages("/scan");
        read.iter().any(|(_, payload)| equal_without_padding(payload, &sent)).then_some(sent)
    });

    let copy = tautline_gateway::Topic { name: "/copy".into(), ..topic.clone() };
    gateway.advertise(&copy);
    agent.subscriber("/copy", SCAN, json!({}));
    gateway.wait_wanted_since(0, "/copy", true);
    wait_for("message written", || {
        gateway.publish("/copy", 0, sent.clone());
        let got = agent.received("/copy");
        got.iter().any(|report| equal_without_padding(&bytes_of(report), &sent)).then_some(())
    });
    wait_for("our node in the graph", || {
        let graph = agent.graph("/copy");
        let publisher = &graph["publishers"][0];
        let shown = publisher["node"] == "/tautline_both" && publisher["type"] == SCAN;
        assert_names(&publisher["hash"].to_string(), &[&topic.type_hash]);
        let nodes = graph["nodes"].as_array().unwrap();
        (shown && nodes.contains(&json!("/tautline_both"))).then_some(())
    });
    let reader = &agent.graph("/scan")["subscribers"][0];
    assert_eq!(reader["node"], "/tautline_both");
    assert_names(&reader["hash"].to_string(), &[&topic.type_hash]);

    // What we publish is not offered back.
    assert!(!format!("{:?}", gateway.events()).contains("Offered(Topic { name: \"/copy\""));
    let seen = gateway.event_count();
    agent.order(json!({"do": "unsubscribe", "topic": "/copy"}));
    gateway.wait_wanted_since(seen, "/copy", false);
    agent.order(json!({"do": "unadvertise", "topic": "/scan"}));
    gateway.wait_withdrawn("/scan");
    gateway.shutdown();
}

#[test]
fn a_new_selector_does_not_interrupt_other_topics() {
    if !runs_in_own_network() {
        return;
    }
    let closed = Arc::new(Mutex::new("/late".to_owned()));
    let looked = closed.clone();
    let gateway = watch_selecting(DiscoveryRange::Machine, "select", move |name| {
        *looked.lock().unwrap() != name
    });
    let mut agent = start("kilted", "LOCALHOST", "select_agent");
    agent.publisher("/early", STRING, json!({}));
    agent.publisher("/late", STRING, json!({"latch": true}));
    agent.publisher("/kept", STRING, json!({}));
    gateway.offered("/early");
    gateway.offered("/kept");
    gateway.subscribe("/kept");
    "/early".clone_into(&mut closed.lock().unwrap());
    gateway.reselect();
    gateway.wait_withdrawn("/early");
    assert!(gateway.offered("/late").qos.transient_local);
    let seen = gateway.event_count();
    "".clone_into(&mut closed.lock().unwrap());
    gateway.reselect();
    gateway.wait_since(seen, "its offer again", |event| {
        matches!(event, Event::Offered(topic) if topic.name == "/early").then_some(())
    });
    let about = |event: &&Event| match event {
        Event::Offered(topic) => topic.name == "/kept",
        Event::Withdrawn { topic } => topic == "/kept",
        _ => false,
    };
    assert_eq!(gateway.events().iter().filter(about).count(), 1, "undisturbed");
    wait_for("message read", || {
        let order = json!({"do": "send", "topic": "/kept", "fields": {"data": "on"}});
        let sent = bytes_of(&agent.order(order));
        gateway
            .messages("/kept")
            .iter()
            .any(|(_, payload)| equal_without_padding(payload, &sent))
            .then_some(())
    });
    gateway.shutdown();
}

#[test]
fn quality_of_service_is_reported_and_offered_and_mismatches_are_reported() {
    if !runs_in_own_network() {
        return;
    }
    let gateway = watch(DiscoveryRange::Machine, "qos");
    let mut agent = start("kilted", "LOCALHOST", "qos_agent");
    let all = json!({
        "best_effort": true, "latch": true, "deadline": 2.0, "lifespan": 3.0, "lease": 4.0
    });
    agent.publisher("/all", STRING, all);
    let offered = gateway.offered("/all").qos;
    let expected = Qos {
        transient_local: true,
        reliable: false,
        deadline: Some(Duration::from_secs(2)),
        lifespan: Some(Duration::from_secs(3)),
        liveliness: Liveliness { manual: true, lease: Some(Duration::from_secs(4)), lost: false },
        ..Qos::default()
    };
    assert_eq!(offered, expected);
    gateway.advertise(&string_topic("/mirror", expected));
    agent.subscriber("/mirror", STRING, json!({}));
    let shown = wait_for("publisher in the graph", || {
        let graph = agent.graph("/mirror");
        // Another writer serves volatile subscribers.
        graph["publishers"].as_array()?.iter().find(|it| it["latch"] == true).cloned()
    });
    let second = 1_000_000_000u64;
    assert_eq!(
        (
            &shown["reliable"],
            &shown["latch"],
            &shown["deadline"],
            &shown["lifespan"],
            &shown["lease"]
        ),
        (&json!(false), &json!(true), &json!(2 * second), &json!(3 * second), &json!(4 * second))
    );
    // The subscriber requested reliable: ROS 2 warns it, and status reports it.
    agent.wait("event of incompatible QoS", |report| report["incompatible"] == "/mirror");
    wait_for("trouble", || gateway.status().trouble.contains("/mirror").then_some(()));
    assert_names(&gateway.status().trouble, &["subscribers of /mirror", "reliability"]);
}

#[test]
fn late_joiners_get_the_last_messages_of_each_publisher() {
    if !runs_in_own_network() {
        return;
    }
    let gateway = watch(DiscoveryRange::Machine, "late");
    let mut one = start("kilted", "SUBNET", "late_one");
    let latch = json!({"latch": true, "depth": 1});
    for (topic, text) in [("/map", "first"), ("/map", "second")] {
        if text == "first" {
            one.publisher(topic, STRING, latch.clone());
        }
        one.order(json!({"do": "send", "topic": topic, "fields": {"data": text}}));
    }
    assert_eq!(gateway.offered("/map").qos.depth, 1);
    gateway.subscribe("/map");
    wait_for("latched message", || {
        let read = gateway.messages("/map");
        read.iter()
            .any(|(_, payload)| equal_without_padding(payload, &string_message("second")))
            .then_some(())
    });
    assert_eq!(gateway.messages("/map").len(), 1, "the first one is over");

    // Three of five messages are kept, and the offered depth is three.
    one.publisher("/log", STRING, json!({"latch": true, "depth": 3}));
    for number in 0..5 {
        let fields = json!({"data": number.to_string()});
        one.order(json!({"do": "send", "topic": "/log", "fields": fields}));
    }
    gateway.wait("offer with what is kept", |event| match event {
        Event::Offered(topic) if topic.name == "/log" && topic.qos.depth == 3 => Some(()),
        _ => None,
    });

    // Each further message is counted, also where its number is no power of two.
    one.publisher("/steps", STRING, json!({"latch": true, "depth": 4}));
    gateway.offered("/steps");
    gateway.subscribe("/steps");
    for number in 1..=4 {
        one.order(json!({"do": "send", "topic": "/steps", "fields": {"data": number.to_string()}}));
        gateway.wait("offer with what is kept so far", |event| match event {
            Event::Offered(topic) if topic.name == "/steps" && topic.qos.depth == number => {
                Some(())
            }
            _ => None,
        });
    }

    // Three publishers of peers; the last two messages of each are kept.
    let kept = Qos { transient_local: true, depth: 2, ..Qos::default() };
    gateway.advertise(&string_topic("/kept", kept));
    wait_for("publication", || {
        let shown = !one.graph("/kept")["publishers"].as_array().unwrap().is_empty();
        shown.then_some(())
    });
    let mut two = start("kilted", "SUBNET", "late_two");
    two.subscriber("/kept", STRING, json!({"latch": true, "depth": 100}));
    for source in 0..3 {
        for number in 0..4 {
            gateway.publish("/kept", source, string_message(&format!("{source} {number}")));
        }
    }
    let expected: Vec<_> = (0..3).flat_map(|s| (2..4).map(move |n| format!("{s} {n}"))).collect();
    wait_for("end of writing", || {
        let got = two.received("/kept");
        let came = |it: &String| {
            got.iter().any(|one| equal_without_padding(&bytes_of(one), &string_message(it)))
        };
        expected.iter().all(came).then_some(())
    });
    one.subscriber("/kept", STRING, json!({"latch": true, "depth": 100}));
    let arrived = |report: &Value| {
        let text = expected
            .iter()
            .position(|it| equal_without_padding(&bytes_of(report), &string_message(it)));
        text.expect("no other message")
    };
    wait_for("all that was kept", || {
        let mut got: Vec<_> = one.received("/kept").iter().map(arrived).collect();
        got.sort_unstable();
        (got == (0..6).collect::<Vec<_>>()).then_some(())
    });
}

#[test]
fn a_late_detected_kept_message_reaches_transient_local_subscribers() {
    if !runs_in_own_network() {
        return;
    }
    let gateway = watch(DiscoveryRange::Machine, "found");
    let [mut late, mut volatile] = ["late", "volatile"].map(|it| start("kilted", "SUBNET", it));
    late.subscriber("/found", STRING, json!({"latch": true}));
    volatile.subscriber("/found", STRING, json!({}));
    gateway.advertise(&string_topic("/found", Qos::default()));
    wait_for("a subscriber", || {
        gateway.publish("/found", 0, string_message("zero"));
        (!volatile.received("/found").is_empty()).then_some(())
    });
    let kept = Qos { transient_local: true, ..Qos::default() };
    gateway.advertise(&string_topic("/found", kept));
    let texts = |agent: &Agent| -> Vec<String> {
        let text = |it: &Value| {
            let known = ["one", "two", "three"].into_iter();
            let mut known =
                known.filter(|text| equal_without_padding(&bytes_of(it), &string_message(text)));
            known.next().map(str::to_owned)
        };
        agent.received("/found").iter().filter_map(text).collect()
    };
    gateway.publish_recognised_as_kept("/found", string_message("one"));
    wait_for("one", || (texts(&late) == ["one"]).then_some(()));
    gateway.publish_recognised_as_kept("/found", string_message("two"));
    gateway.publish("/found", 0, string_message("three"));
    wait_for("three", || (texts(&late) == ["one", "two", "three"]).then_some(()));
    wait_for("three", || (texts(&volatile) == ["three"]).then_some(()));
}

#[test]
fn a_subscriber_discovered_late_after_a_restart_misses_nothing() {
    if !runs_in_own_network() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let deliveries = folder.path().join("robot.latched");
    let kept = Qos { transient_local: true, depth: 2, ..Qos::default() };
    let message = |identity| Kept {
        identity,
        depth: 2,
        is_repeatable: true,
        is_history: identity == 1,
        is_for_late_joiners: false,
    };
    let before = watch_keeping(DiscoveryRange::Machine, "before", &deliveries);
    let mut agent = start("kilted", "SUBNET", "late");
    agent.subscriber("/goal", STRING, json!({"latch": true, "depth": 10}));
    before.advertise(&string_topic("/goal", kept));
    wait_for("one", || {
        before.publish_kept("/goal", message(1), string_message("one"));
        (agent.received("/goal").len() == 1).then_some(())
    });
    before.shutdown();
    // While stopped, it answers no announcement.
    agent.signal("-STOP");
    let after = watch_keeping(DiscoveryRange::Machine, "after", &deliveries);
    after.advertise(&string_topic("/goal", kept));
    // Unanswered announcements cannot be observed. In this time, several are sent.
    std::thread::sleep(Duration::from_secs(1));
    after.publish_kept("/goal", message(1), string_message("one"));
    after.publish_kept("/goal", message(2), string_message("two"));
    std::thread::sleep(Duration::from_secs(1));
    agent.signal("-CONT");
    wait_for("two", || {
        let got = agent.received("/goal");
        let texts = ["one", "two"].map(string_message);
        let expected = got
            .iter()
            .map(bytes_of)
            .zip(&texts)
            .all(|(got, text)| equal_without_padding(&got, text));
        (got.len() == 2 && expected).then_some(())
    });
}

#[test]
fn a_subscriber_that_left_during_a_restart_is_forgotten() {
    if !runs_in_own_network() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let deliveries = folder.path().join("robot.latched");
    let kept = Qos { transient_local: true, ..Qos::default() };
    let message = Kept {
        identity: 1,
        depth: 1,
        is_repeatable: true,
        is_history: false,
        is_for_late_joiners: false,
    };
    let before = watch_keeping(DiscoveryRange::Machine, "before", &deliveries);
    let mut left = start("kilted", "SUBNET", "left");
    left.subscriber("/goal", STRING, json!({"latch": true}));
    before.advertise(&string_topic("/goal", kept));
    wait_for("the message", || {
        before.publish_kept("/goal", message, string_message("one"));
        (left.received("/goal").len() == 1).then_some(())
    });
    before.shutdown();
    drop(left);
    let after = watch_keeping(DiscoveryRange::Machine, "after", &deliveries);
    after.advertise(&string_topic("/goal", kept));
    let mut agent = start("kilted", "SUBNET", "agent");
    let mut publishers = move || agent.graph("/goal")["publishers"].as_array().unwrap().len();
    wait_for("the publisher", || (publishers() == 1).then_some(()));
    after.publish_kept("/goal", message, string_message("one"));
    // The subscriber may still come; it has the message.
    wait_for("a writer for it", || (publishers() == 2).then_some(()));
    wait_for("its end", || (publishers() == 1).then_some(()));
}

#[test]
fn a_new_subscriber_gets_no_samples_of_a_killed_subscriber() {
    if !runs_in_own_network() {
        return;
    }
    let gateway = watch(DiscoveryRange::Machine, "killed");
    let mut other = start("kilted", "SUBNET", "other");
    let mut killed = start("kilted", "SUBNET", "killed");
    gateway.advertise(&string_topic("/cmd", Qos::default()));
    for agent in [&mut other, &mut killed] {
        agent.subscriber("/cmd", STRING, json!({}));
        wait_for("a subscriber", || {
            gateway.publish("/cmd", 0, string_message("before"));
            (!agent.received("/cmd").is_empty()).then_some(())
        });
    }
    drop(killed);
    gateway.publish("/cmd", 0, string_message("stale"));
    let mut new = start("kilted", "SUBNET", "new");
    new.subscriber("/cmd", STRING, json!({}));
    wait_for("the new subscriber", || {
        gateway.publish("/cmd", 0, string_message("new"));
        let got = new.received("/cmd");
        got.iter()
            .any(|it| equal_without_padding(&bytes_of(it), &string_message("new")))
            .then_some(())
    });
    for text in ["before", "stale"] {
        let got = new.received("/cmd");
        assert!(
            !got.iter().any(|it| equal_without_padding(&bytes_of(it), &string_message(text))),
            "{text}"
        );
    }
}

#[test]
fn two_types_of_a_topic_are_reported_and_another_hash_is_not_published() {
    if !runs_in_own_network() {
        return;
    }
    let gateway = watch(DiscoveryRange::Loopback, "types");
    let mut agent = start("kilted", "LOCALHOST", "types_agent");
    agent.subscriber("/x", STRING, json!({}));
    agent.subscriber("/y", "std_msgs/msg/Int32", json!({}));
    // Published last: the other endpoints are known by then.
    gateway.advertise(&string_topic("/z", Qos::default()));
    agent.subscriber("/z", STRING, json!({}));
    gateway.wait_wanted_since(0, "/z", true);
    let other = format!("RIHS01_{}", "0".repeat(64));
    gateway.advertise(&tautline_gateway::Topic {
        type_hash: other.clone(),
        ..string_topic("/x", Qos::default())
    });
    assert_names(&gateway.refusal("/x"), &[STRING, STRING_HASH, &other]);
    gateway.advertise(&string_topic("/y", Qos::default()));
    assert_names(&gateway.refusal("/y"), &["std_msgs/msg/Int32", STRING]);
    assert!(agent.graph("/x")["publishers"].as_array().unwrap().is_empty());
}

#[test]
fn a_message_that_is_too_large_is_counted_with_its_topic_and_the_next_arrives() {
    if !runs_in_own_network() {
        return;
    }
    let gateway = watch(DiscoveryRange::Machine, "large");
    let mut agent = start("kilted", "SUBNET", "large_agent");
    agent.publisher("/large", STRING, json!({}));
    gateway.offered("/large");
    gateway.subscribe("/large");
    let large = json!({"do": "send_large", "topic": "/large", "size": MAX_MESSAGE});
    let rejected = wait_for("rejection", || {
        agent.order(large.clone());
        gateway.status().rejected.pop()
    });
    assert_eq!((&*rejected.topic, rejected.reason), ("/large", Reason::TooLarge));
    agent.order(json!({"do": "send", "topic": "/large", "fields": {"data": "hi"}}));
    wait_for("the next one", || {
        gateway
            .messages("/large")
            .iter()
            .any(|(_, it)| equal_without_padding(it, &string_message("hi")))
            .then_some(())
    });
    assert_eq!(gateway.messages("/large").len(), 1);
    gateway.shutdown();
}

#[test]
fn types_with_a_key_and_xcdr2_are_reported_and_not_carried() {
    if !runs_in_own_network() {
        return;
    }
    let gateway = watch(DiscoveryRange::Machine, "odd");
    let mut agent = start_cyclone(&["odd"]);
    let dds_type = "test_msgs::msg::dds_::KeyedLong_";
    let keyed = |topic: &str, reads: bool| json!({"do": "odd", "topic": topic, "dds_type": dds_type, "keyed": true, "reads": reads});
    agent.order(keyed("/keyed", false));
    agent.order(keyed("/copy", true));
    agent.order(
        json!({"do": "odd", "topic": "/new", "dds_type": "a::msg::dds_::New_", "xcdr2": true}),
    );
    gateway.subscribe("/new");
    gateway.advertise(&string_topic("/copy", Qos::default()));
    let expected = [
        "/keyed of type test_msgs/msg/KeyedLong is not sent: its type has a key (@key)",
        "subscribers of /copy with type test_msgs/msg/KeyedLong get nothing from peers",
        "a publisher of /new is not read: data representation (ROS 2 has XCDR1, not XCDR2)",
    ];
    wait_for("all troubles", || {
        let trouble = gateway.status().trouble;
        expected.iter().all(|text| trouble.contains(text)).then_some(())
    });
    assert!(!format!("{:?}", gateway.events()).contains("/keyed"));
    agent.order(json!({"do": "leave_all"}));
    wait_for("they have left", || {
        let trouble = gateway.status().trouble;
        (!trouble.contains("KeyedLong")).then_some(())
    });
    gateway.shutdown();
}
