// SPDX-License-Identifier: Apache-2.0
//! A node in the process of the test, whose gateway is the test.

use super::enclosure::{Enclosure, enter};
use super::wait_for;
use bytes::Bytes;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::Instant;
use tautline::config::{self, Surroundings};
use tautline::planned::Planner;
use tautline::status::{Direction, Status, TopicReport};
use tautline::{AskError, DataPlane, Handle, RunError, Settings};
use tautline_gateway::{Command, Event, Events, Gateway, GatewayStatus, Qos, Source, Topic};

/// Subscribes to all topics of peers, and records arrivals.
struct Listener {
    events: Arc<dyn Events>,
    arrivals: Sender<(Instant, usize)>,
}

impl Gateway for Listener {
    fn handle(&self, command: Command) {
        match command {
            Command::Advertise { topic } => {
                self.events.emit(Event::Wanted { topic: topic.name, wanted: true });
            }
            Command::Publish { payload, .. } => {
                // Few tests read arrivals.
                let _ = self.arrivals.send((Instant::now(), payload.len()));
            }
            _ => {}
        }
    }

    fn status(&self) -> GatewayStatus {
        GatewayStatus { kind: "none", ..GatewayStatus::default() }
    }

    fn shutdown(self: Box<Self>) {}
}

/// A running node in this process.
pub struct Running {
    pub handle: Handle,
    pub events: Arc<dyn Events>,
    arrivals: Receiver<(Instant, usize)>,
    thread: JoinHandle<Result<(), RunError>>,
}

impl Running {
    /// Starts node `name`; `lines` are the further lines of its file.
    pub fn start(name: &str, lines: &str) -> Self {
        Self::start_in(None, name, lines)
    }

    /// Starts node `name`, in the network of an enclosure if given, which requires root.
    pub fn start_in(inside: Option<&Enclosure>, name: &str, lines: &str) -> Self {
        let file = format!("name: {name}\nsecurity: none\nros1: false\n{lines}\n");
        Self::start_file(inside, &file)
    }

    /// Starts a node with this file.
    pub fn start_file(inside: Option<&Enclosure>, file: &str) -> Self {
        let network = inside.map(Enclosure::network);
        let config = config::parse(file, &Surroundings::default()).unwrap().config;
        let (sender, started) = sync_channel(1);
        let (arrived, arrivals) = channel();
        // A node cannot move to another thread.
        let thread = std::thread::spawn(move || {
            // The node's threads inherit this thread's network.
            if let Some(network) = network {
                enter(&network);
            }
            let node = DataPlane::new(config).unwrap();
            sender.send((node.handle(), node.events())).unwrap();
            let gateway = Box::new(Listener { events: node.events(), arrivals: arrived });
            let planner = Some(tautline_plan::channel_model as Planner);
            node.run(gateway, &Settings { planner, ..Settings::default() })
        });
        let (handle, events) = started.recv().unwrap();
        Self { handle, events, arrivals, thread }
    }

    /// Returns the node's report. On a busy machine the node may need several requests.
    pub fn status(&self) -> Status {
        wait_for("the node's report", || match self.handle.status() {
            Err(AskError::Busy) => None,
            answer => Some(answer.unwrap()),
        })
    }

    /// Returns the report on a topic that this node sends.
    pub fn sent(&self, topic: &str) -> Option<TopicReport> {
        let is_it = |it: &TopicReport| it.topic == topic && it.direction == Direction::Out;
        self.status().topics.into_iter().find(is_it)
    }

    /// Returns the number of a topic's messages that the peer has acknowledged.
    pub fn delivered(&self, topic: &str) -> u64 {
        self.sent(topic).unwrap().delivered
    }

    /// Advertises a topic as a local publisher, and waits for a subscriber.
    pub fn offer(&self, topic: &str) {
        self.advertise(topic, "sensor_msgs/Image");
        wait_for("a subscriber", || self.sent(topic).filter(|it| it.wanted));
    }

    /// Advertises a topic as a local publisher.
    pub fn advertise(&self, topic: &str, type_name: &str) {
        self.events.emit(Event::Offered(Topic {
            name: topic.into(),
            type_name: type_name.into(),
            type_hash: "f43a8e1b362b75baa741461b46adc7e0".into(),
            definition: "uint8[] data".into(),
            qos: Qos::default(),
        }));
    }

    /// Publishes a message of this number of bytes.
    pub fn publish(&self, topic: &str, bytes: usize) {
        self.emit(topic, vec![7; bytes]);
    }

    /// Publishes a length followed by this number of bytes, as in `uint8[]`.
    pub fn publish_data(&self, topic: &str, bytes: usize) {
        let data = [&(bytes as u32).to_le_bytes()[..], &vec![7; bytes]].concat();
        self.emit(topic, data);
    }

    fn emit(&self, topic: &str, payload: Vec<u8>) {
        self.events.emit(Event::Message {
            topic: topic.into(),
            source: Source::local(0),
            payload: Bytes::from(payload),
            origin: tautline_gateway::Origin::default(),
            received: Instant::now(),
        });
    }

    /// Waits for the next message that this node publishes; returns its time and length.
    pub fn next_arrival(&self) -> (Instant, usize) {
        self.arrivals.recv_timeout(crate::wait::DEADLINE).expect("a message")
    }

    /// Returns the messages that this node has published since the last call, each with its time
    /// and length.
    pub fn arrivals(&self) -> Vec<(Instant, usize)> {
        self.arrivals.try_iter().collect()
    }

    /// Stops the node as SIGTERM stops the daemon.
    pub fn stop(self) {
        self.handle.shutdown();
        self.thread.join().unwrap().unwrap();
    }
}
