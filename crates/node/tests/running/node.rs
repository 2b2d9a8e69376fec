// SPDX-License-Identifier: Apache-2.0
//! A node in the process of the test, whose gateway is the test.

use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread::JoinHandle;
use tautline_gateway::{Command, Event, Events, Gateway, GatewayStatus};
use tautline_node::config::{self, Surroundings};
use tautline_node::{Handle, Node, RunError, Settings};

/// Subscribes to all topics of peers.
struct Listener(Arc<dyn Events>);

impl Gateway for Listener {
    fn handle(&self, command: Command) {
        if let Command::Advertise { topic } = command {
            self.0.emit(Event::Wanted { topic: topic.name, wanted: true });
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
    thread: JoinHandle<Result<(), RunError>>,
}

impl Running {
    /// Starts node `name`; `lines` are the rest of its file.
    pub fn start(name: &str, lines: &str) -> Self {
        let file = format!("name: {name}\nsecurity: none\nros1: false\n{lines}\n");
        let config = config::parse(&file, &Surroundings::default()).unwrap().config;
        let (sender, started) = sync_channel(1);
        // A node cannot change its thread.
        let thread = std::thread::spawn(move || {
            let node = Node::new(config).unwrap();
            sender.send((node.handle(), node.events())).unwrap();
            let gateway = Box::new(Listener(node.events()));
            node.run(gateway, &Settings::default())
        });
        let (handle, events) = started.recv().unwrap();
        Self { handle, events, thread }
    }

    /// Stops the node as SIGTERM stops the daemon.
    pub fn stop(self) {
        self.handle.shutdown();
        self.thread.join().unwrap().unwrap();
    }
}
