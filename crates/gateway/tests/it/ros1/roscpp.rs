// SPDX-License-Identifier: Apache-2.0
//! Several publishers of one topic in one node of roscpp or rospy.

use super::{STRING, send_until_read};
use serde_json::json;
use std::collections::BTreeMap;
use tautline_gateway::{Event, Source};
use tautline_testkit::ros::ros1::{Master, start, start_cpp, string_message, watch};
use tautline_testkit::ros::{Agent, Watched, wait_for};

/// The messages kept for late joiners, from a gateway's events; and whether a message came twice.
fn kept_messages(gateway: &Watched, topic: &str) -> Vec<Vec<u8>> {
    let mut kept: BTreeMap<Source, Vec<u8>> = BTreeMap::new();
    for event in gateway.events() {
        match event {
            Event::Message { topic: of, source, payload, origin, .. }
                if of == topic && origin.kept.is_some() =>
            {
                kept.insert(source, payload.to_vec());
            }
            Event::SourceGone { topic: of, source } if of == topic => {
                kept.remove(&source);
            }
            _ => {}
        }
    }
    let mut kept: Vec<Vec<u8>> = kept.into_values().collect();
    kept.sort();
    kept
}

fn wait_kept(gateway: &Watched, topic: &str, texts: &[&str]) {
    let expected: Vec<Vec<u8>> = texts.iter().map(|text| string_message(text)).collect();
    wait_for(format!("{texts:?} as what is kept of {topic}"), || {
        (kept_messages(gateway, topic) == expected).then_some(())
    });
}

/// Publishes, and waits for the message at the gateway.
fn publish(node: &mut Agent, gateway: &Watched, topic: &str, name: &str, text: &str) {
    node.order_line(&format!("publish {name} {text}"));
    gateway.wait_message(topic, &string_message(text));
}

#[test]
fn each_publisher_of_a_roscpp_node_is_read_by_its_own_policy() {
    let master = Master::shared();
    let topic = "/cpplatch/x";
    let mut node = start_cpp(&master.uri, "cpplatch_node", topic);
    for line in ["latched p", "latched q", "publish p p1", "publish q q1"] {
        node.order_line(line);
    }
    let gateway = watch(&master.uri, "cpplatch");
    gateway.offered(topic);
    gateway.subscribe(topic);
    wait_kept(&gateway, topic, &["p1", "q1"]);
    publish(&mut node, &gateway, topic, "p", "p2");
    wait_kept(&gateway, topic, &["p2", "q1"]);
    node.order_line("volatile v");
    publish(&mut node, &gateway, topic, "v", "v1");
    wait_kept(&gateway, topic, &["p2", "q1"]);
    // A publisher that starts later.
    node.order_line("latched r");
    publish(&mut node, &gateway, topic, "r", "r1");
    wait_kept(&gateway, topic, &["p2", "q1", "r1"]);
    node.order_line("shutdown p");
    wait_kept(&gateway, topic, &["q1", "r1"]);
    let texts = ["p1", "q1", "p2", "v1", "r1"].map(string_message);
    // On a busy machine, the gateway may find later that a message is kept.
    let for_all = |event: Event| match event {
        Event::Message { topic: of, payload, origin, .. } if of == topic => {
            origin.kept.is_none_or(|it| !it.is_for_late_joiners).then(|| payload.to_vec())
        }
        _ => None,
    };
    let got: Vec<Vec<u8>> = gateway.events().into_iter().filter_map(for_all).collect();
    assert_eq!(got, texts, "each once, in order");
}

#[test]
fn a_latched_publisher_after_a_volatile_one_is_latched() {
    let master = Master::shared();
    let topic = "/cppmixed/x";
    let mut node = start_cpp(&master.uri, "cppmixed_node", topic);
    for line in ["volatile v", "latched p", "publish p p1"] {
        node.order_line(line);
    }
    let gateway = watch(&master.uri, "cppmixed");
    gateway.offered(topic);
    gateway.subscribe(topic);
    wait_kept(&gateway, topic, &["p1"]);
    gateway.wait("offer of a latched topic", |event| {
        matches!(event, Event::Offered(it) if it.name == topic && it.qos.transient_local)
            .then_some(())
    });
    publish(&mut node, &gateway, topic, "v", "v1");
    wait_kept(&gateway, topic, &["p1"]);
    publish(&mut node, &gateway, topic, "p", "p2");
    wait_kept(&gateway, topic, &["p2"]);
}

/// Waits for a message that becomes known as kept after it was received, for later subscribers.
fn wait_missed(gateway: &Watched, topic: &str, text: &str) {
    wait_kept(gateway, topic, &[text]);
    gateway.wait("offer of a latched topic", |event| {
        matches!(event, Event::Offered(it) if it.name == topic && it.qos.transient_local)
            .then_some(())
    });
    let of_text = |event: &Event| match event {
        Event::Message { topic: of, payload, origin, .. }
            if of == topic && *payload == string_message(text) =>
        {
            Some(origin.kept.map(|it| it.is_for_late_joiners))
        }
        _ => None,
    };
    let seen: Vec<Option<bool>> = gateway.events().iter().filter_map(of_text).collect();
    assert_eq!(seen, [None, Some(true)], "{text}");
}

#[test]
fn a_publisher_that_starts_to_latch_is_detected_when_its_node_is_quiet() {
    let master = Master::shared();
    let topic = "/cpplater/x";
    let mut node = start_cpp(&master.uri, "cpplater_node", topic);
    node.order_line("volatile v");
    let gateway = watch(&master.uri, "cpplater");
    gateway.offered(topic);
    gateway.subscribe(topic);
    wait_for("connection", || {
        node.order_line("publish v v0");
        (!gateway.messages(topic).is_empty()).then_some(())
    });
    // Enough messages that the next one is delivered without a probe of its node.
    for text in ["v1", "v2", "v3"] {
        publish(&mut node, &gateway, topic, "v", text);
    }
    node.order_line("latched p");
    publish(&mut node, &gateway, topic, "p", "p1");
    wait_missed(&gateway, topic, "p1");
    publish(&mut node, &gateway, topic, "v", "v4");
    publish(&mut node, &gateway, topic, "p", "p2");
    wait_kept(&gateway, topic, &["p2"]);
}

#[test]
fn all_publishers_of_a_rospy_node_latch_once_one_does() {
    let master = Master::shared();
    let topic = "/pylater/x";
    let mut node = start(&master.uri, "/pylater_node");
    node.advertise(topic, STRING, false);
    let gateway = watch(&master.uri, "pylater");
    gateway.offered(topic);
    gateway.subscribe(topic);
    send_until_read(&mut node, &gateway, topic, &json!({"data": "v0"}));
    let send = |node: &mut Agent, text: &str| {
        node.send(topic, json!({"data": text}));
        gateway.wait_message(topic, &string_message(text));
    };
    send(&mut node, "v1");
    node.advertise(topic, STRING, true);
    send(&mut node, "p1");
    wait_missed(&gateway, topic, "p1");
    send(&mut node, "p2");
    assert_eq!(kept_messages(&gateway, topic), [string_message("p2")], "at once");
}
