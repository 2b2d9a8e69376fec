// SPDX-License-Identifier: Apache-2.0
//! A second gateway, or a writer of samples that no ROS 2 writes, in a process of its own. The
//! process is another run of this test program, which follows orders like the agents.

use super::{message, options, size_of};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::io::{BufRead, Write};
use std::process::Command as Process;
use std::sync::Arc;
use tautline_dds::{Participant, Qos as Dds, RawWriter, Specification};
use tautline_gateway::ros2::{DiscoveryRange, Ros2};
use tautline_gateway::{Command, Event, Events, Gateway, Qos, Source};
use tautline_testkit::again::this_test_alone;
use tautline_testkit::ros::{Agent, bytes_of};

/// The variable that names the role of a process; set only in processes that play one.
const ROLE: &str = "TAUTLINE_TEST_ROLE";
const GATEWAY: &str = "gateway";
const RAW: &str = "raw";

/// Plays the role of this process, then returns `true`; returns `false` if it has no role.
pub fn played_role() -> bool {
    match std::env::var(ROLE).as_deref() {
        Ok(GATEWAY) => gateway(),
        Ok(_) => raw(),
        Err(_) => return false,
    }
    true
}

/// A gateway of node `/tautline_other` in domain 0, for the calling test, which calls [`played_role`].
pub fn other_gateway() -> Process {
    program(GATEWAY)
}

/// A writer of any bytes in domain 0.
pub fn raw_writer() -> Process {
    program(RAW)
}

fn program(role: &str) -> Process {
    let mut program = this_test_alone();
    program.env(ROLE, role);
    program
}

/// Prints a report in one piece, on a line of its own.
fn report(what: &Value) {
    let line = format!("\n{what}\n");
    std::io::stdout().lock().write_all(line.as_bytes()).unwrap();
}

/// Carries out orders until there are no more.
fn carry_out_orders(mut carry_out: impl FnMut(&str, &str, &Value)) {
    report(&json!({"did": "start"}));
    for line in std::io::stdin().lock().lines() {
        let order: Value = serde_json::from_str(&line.unwrap()).unwrap();
        let what = order["do"].as_str().unwrap();
        carry_out(what, order["topic"].as_str().unwrap_or_default(), &order);
        report(&json!({"did": what}));
    }
}

struct ReportingEvents;

impl Events for ReportingEvents {
    fn emit(&self, event: Event) {
        report(&match event {
            Event::Offered(topic) => json!({"offered": topic.name}),
            Event::Withdrawn { topic } => json!({"withdrawn": topic}),
            Event::Message { topic, payload, .. } => {
                json!({"got": topic, "size": size_of(&topic, &payload), "sound": true})
            }
            other => json!({"event": format!("{other:?}")}),
        });
    }
}

fn gateway() {
    let options = options(0, DiscoveryRange::Machine, "other");
    let gateway = Ros2::start(options, Arc::new(|_| true), Arc::new(ReportingEvents)).unwrap();
    carry_out_orders(|what, topic, order| {
        let name = topic.to_owned();
        gateway.handle(match what {
            "subscribe" => Command::Subscribe { topic: name },
            "advertise" => Command::Advertise { topic: super::string_topic(topic, Qos::default()) },
            "publish" => {
                let size = order["size"].as_u64().unwrap() as usize;
                Command::Publish {
                    topic: name,
                    source: Source::at_peer(0, 0),
                    payload: message(size).into(),
                    origin: Default::default(),
                }
            }
            other => panic!("no order '{other}'"),
        });
    });
    Box::new(gateway).shutdown();
}

fn raw() {
    let participant = Participant::new(0, DiscoveryRange::Machine, b"enclave=/;").unwrap();
    let mut writers = HashMap::new();
    carry_out_orders(|_, topic, order| {
        let writer = writers.entry(topic.to_owned()).or_insert_with(|| {
            let qos = Dds { durability: 1, keep_all: true, ..Dds::default() };
            let type_name = order["type"].as_str().unwrap();
            let specification = Specification { topic, type_name, qos: &qos };
            RawWriter::new(&participant, specification, |_, _| ()).unwrap()
        });
        writer.write(bytes_of(order).into(), None).unwrap();
    });
}

/// Orders for processes that play a role.
pub trait Orders {
    fn gateway_order(&mut self, what: &str, topic: &str);

    fn gateway_publish(&mut self, topic: &str, size: usize);

    fn gateway_offered(&self, topic: &str) -> Value;

    fn raw_write(&mut self, topic: &str, type_name: &str, bytes: &[u8]);
}

impl Orders for Agent {
    fn gateway_order(&mut self, what: &str, topic: &str) {
        self.order(json!({"do": what, "topic": topic}));
    }

    fn gateway_publish(&mut self, topic: &str, size: usize) {
        self.order(json!({"do": "publish", "topic": topic, "size": size}));
    }

    fn gateway_offered(&self, topic: &str) -> Value {
        self.wait(&format!("offer of {topic}"), |report| report["offered"] == topic)
    }

    fn raw_write(&mut self, topic: &str, type_name: &str, bytes: &[u8]) {
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        self.order(json!({"do": "write", "topic": topic, "type": type_name, "hex": hex}));
    }
}
