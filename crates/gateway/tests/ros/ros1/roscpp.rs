// SPDX-License-Identifier: Apache-2.0
//! Several publishers of one topic in one roscpp node.

use super::nodes::{Master, start_cpp, string_message, watch};
use crate::bench::{Agent, Watched, wait_for};
use std::collections::BTreeMap;
use tautline_gateway::{Event, Source};

/// What is kept for late joiners, by the events of a gateway; and whether a message came twice.
fn kept(gateway: &Watched, topic: &str) -> Vec<Vec<u8>> {
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
    wait_for(&format!("{texts:?} as what is kept of {topic}"), || {
        (kept(gateway, topic) == expected).then_some(())
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
    // One that starts later.
    node.order_line("latched r");
    publish(&mut node, &gateway, topic, "r", "r1");
    wait_kept(&gateway, topic, &["p2", "q1", "r1"]);
    node.order_line("shutdown p");
    wait_kept(&gateway, topic, &["q1", "r1"]);
    let texts = ["p1", "q1", "p2", "v1", "r1"].map(string_message);
    let got: Vec<Vec<u8>> =
        gateway.messages(topic).into_iter().map(|(_, it)| it.to_vec()).collect();
    assert_eq!(got, texts, "each once, in order");
}

#[test]
fn a_latched_publisher_beside_an_earlier_volatile_one_is_latched() {
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
