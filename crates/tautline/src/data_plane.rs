// SPDX-License-Identifier: Apache-2.0
//! The data plane of a node, and handles to it.

use crate::audit::{Actor, Audit};
use crate::codec::Codec;
use crate::config::Config;
use crate::driver::{Driver, Settings};
use crate::error::{AskError, OpenError, RunError, SystemError};
use crate::inlet::{Inlet, Input, Query};
use crate::paths::Paths;
use crate::selection::Selection;
use crate::status::{LinkReport, Status, TopicChange};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use tautline_gateway::threads::End;
use tautline_gateway::{Events, Gateway, Selector};
use tautline_proto::PublicKey;

/// Maximum time that a read-only request waits for the data plane.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum time that a change of many peers and topics waits for the data plane.
const RECONFIGURE_TIMEOUT: Duration = Duration::from_secs(4);
/// Maximum time that a shutdown waits for the queues to drain.
const DRAIN_TIME: Duration = Duration::from_secs(1);

/// The data plane of a node that is set up but not running yet.
pub struct DataPlane {
    config: Config,
    selection: Arc<RwLock<Selection>>,
    driver: Driver,
    inlet: Inlet,
}

impl DataPlane {
    /// Opens the sockets; nothing is sent yet.
    pub fn new(config: Config) -> Result<Self, OpenError> {
        let (inlet, inputs) = Inlet::new()?;
        let selection = Arc::new(RwLock::new(Selection::new(&config)));
        let driver = Driver::new(&config, selection.clone(), inputs, inlet.waiting.clone())?;
        Ok(Self { config, selection, driver, inlet })
    }

    /// Records later events in this audit log.
    pub fn record_in(&mut self, audit: Audit) {
        self.driver.record_in(audit);
    }

    /// Returns the input of the data plane.
    pub(crate) fn inlet(&self) -> Inlet {
        self.inlet.clone()
    }

    /// Returns the public key by which peers know this node.
    pub fn key(&self) -> PublicKey {
        self.driver.key()
    }

    /// Returns the receiver of a gateway's events.
    pub fn events(&self) -> Arc<dyn Events> {
        Arc::new(self.inlet.clone())
    }

    /// Returns a selector of the topics and services that may be sent. It follows the current
    /// configuration.
    pub fn selector(&self) -> Selector {
        let selection = self.selection.clone();
        Arc::new(move |named| {
            selection.read().unwrap_or_else(PoisonError::into_inner).selects(named)
        })
    }

    /// Returns a handle for the command line, metrics and signals.
    pub fn handle(&self) -> Handle {
        Handle { inlet: self.inlet.clone(), is_of_program: false }
    }

    /// Runs the data plane on this thread until [`Handle::shutdown`]. The gateway is unregistered
    /// before this returns.
    pub fn run(self, gateway: Box<dyn Gateway>, settings: &Settings) -> Result<(), RunError> {
        let failed = |error| SystemError { what: "starting a thread", error };
        let codec = Codec::start(&self.inlet, &self.config).map_err(failed)?;
        let paths = Paths::start(self.inlet.clone()).map_err(failed)?;
        self.driver.run(gateway, &codec, paths, settings)
    }
}

/// A handle to a running node.
#[derive(Clone)]
pub struct Handle {
    inlet: Inlet,
    /// Whether the node belongs to a program, and so has no ROS.
    is_of_program: bool,
}

impl Handle {
    /// Returns the handle for the node of a program. In its configurations, the keys of a ROS have
    /// no effect.
    pub(crate) fn for_program(self) -> Self {
        Self { is_of_program: true, ..self }
    }

    /// Drains the queues for at most a second, sends goodbyes and ends [`DataPlane::run`].
    pub fn shutdown(&self) {
        self.shutdown_within(DRAIN_TIME);
    }

    /// As [`Self::shutdown`], but drains for at most `timeout`. Later messages of this node are not accepted.
    pub(crate) fn shutdown_within(&self, timeout: Duration) {
        self.inlet.hand_over(Input::Shutdown(timeout));
    }

    /// Returns the number of messages for peers that may not have arrived when [`DataPlane::run`]
    /// ended.
    pub(crate) fn unsettled(&self) -> u64 {
        self.inlet.waiting.unsettled.load(Ordering::Relaxed)
    }

    /// Returns a receiver of reports of all links: the current reports, and new ones when a link
    /// comes up, goes down or changes its available rate ([`LinkReport::available_bps`]) by more
    /// than a quarter. An application can adapt its data rate to them. Reports arrive at most four
    /// times a second. A slow receiver misses some of them, but has the latest within a second.
    /// Fails if the node has stopped, or already reports to too many applications.
    pub fn watch_links(&self) -> Result<Receiver<Vec<LinkReport>>, AskError> {
        let (sender, links) = sync_channel(1);
        self.ask(|answer| Input::WatchLinks(sender, answer))?.map_err(AskError::Refused)?;
        Ok(links)
    }

    /// Starts a thread. When the thread ends, [`DataPlane::run`] ends as well.
    pub fn spawn(&self, name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
        self.inlet.spawn(name, work)
    }

    /// Replaces the running configuration by `config`. Does not check the keys that only a restart
    /// may change ([`difference`](crate::reload::difference)). On an error nothing is changed.
    pub fn reconfigure(&self, config: Config) -> Result<(), AskError> {
        let config = if self.is_of_program { config.without_ros() } else { config };
        let input = |answer| Input::Reconfigure(Box::new(config), answer);
        self.ask_within(RECONFIGURE_TIMEOUT, input)?.map_err(AskError::Refused)
    }

    /// Returns the changes to topics made on the running node, which override its file.
    pub fn topic_changes(&self) -> Result<Vec<TopicChange>, AskError> {
        self.ask(Input::TopicChanges)
    }

    /// Records that `by` changed the running node, or why the change was refused.
    pub fn record_change(&self, by: Actor, outcome: Result<Vec<String>, String>) {
        self.inlet.hand_over(Input::Changed(by, outcome));
    }

    /// Returns a snapshot of the node's state; blocks for no longer than about a second.
    pub fn status(&self) -> Result<Status, AskError> {
        self.ask(Input::Status)
    }

    /// Changes topics for `by` and returns the names of the changed local topics. The error
    /// explains the cause and names the known topics.
    pub fn change_topic(&self, change: TopicChange, by: Actor) -> Result<Vec<String>, AskError> {
        self.ask(|sender| Input::Change(change, by, sender))?.map_err(AskError::Refused)
    }

    /// Ends [`DataPlane::run`] with the error that a thread that the node needs has ended.
    pub fn thread_ended(&self, thread: &str, how: End) {
        self.inlet.waiting.thread_ended(thread, how);
    }

    fn ask<T>(&self, input: impl FnOnce(Query<T>) -> Input) -> Result<T, AskError> {
        self.ask_within(ANSWER_TIMEOUT, input)
    }

    fn ask_within<T>(
        &self,
        timeout: Duration,
        input: impl FnOnce(Query<T>) -> Input,
    ) -> Result<T, AskError> {
        let (sender, answer) = sync_channel(1);
        let taken = Arc::new(AtomicBool::new(false));
        if !self.inlet.hand_over(input(Query { answer: sender, taken: taken.clone() })) {
            return Err(AskError::Stopped);
        }
        let found = answer.recv_timeout(timeout);
        let found = match found {
            // The data plane has started the request, and takes longer than the timeout: too late to give up.
            Err(_) if taken.swap(true, Ordering::AcqRel) => answer.recv().ok(),
            found => found.ok(),
        };
        found.ok_or(AskError::Busy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Surroundings, parse};
    use std::sync::atomic::AtomicU64;
    use std::sync::mpsc::SyncSender;
    use tautline_gateway::{Command, GatewayStatus};

    /// A gateway that takes every command; it reports its shutdown.
    struct Quiet(SyncSender<()>);

    impl Gateway for Quiet {
        fn handle(&self, _: Command) {}

        fn status(&self) -> GatewayStatus {
            GatewayStatus::default()
        }

        fn shutdown(self: Box<Self>) {
            self.0.send(()).unwrap();
        }
    }

    fn run(disturb: impl FnOnce(&DataPlane)) -> String {
        let file = "name: a\nsecurity: none\nros1: false\nlisten: \"127.0.0.1:0\"\n";
        let file = file.replace(":0\"", &format!(":{}\"", free_port()));
        let node = DataPlane::new(parse(&file, &Surroundings::default()).unwrap().config).unwrap();
        disturb(&node);
        let (sender, shut_down) = sync_channel(1);
        let error = node.run(Box::new(Quiet(sender)), &Settings::default()).unwrap_err();
        shut_down.recv().unwrap();
        error.to_string()
    }

    fn free_port() -> u16 {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.local_addr().unwrap().port()
    }

    #[test]
    fn late_requests_are_refused_and_started_ones_awaited() {
        let done = Arc::new(AtomicU64::new(0));
        run(|node| {
            let handle = node.handle();
            let change = TopicChange { topic: "/a".into(), priority: Some(9), rate_hz: None };
            let ask = |question| Input::Change(change, Actor::Program, question);
            // The data plane does not take inputs yet.
            handle.ask_within(Duration::ZERO, ask).unwrap_err();
            let done = done.clone();
            std::thread::spawn(move || {
                // The data plane takes inputs in order, so it has examined the change before it
                // answers this request.
                let changes = handle.ask_within(Duration::from_secs(60), Input::TopicChanges);
                done.store(1 + changes.unwrap().len() as u64, Ordering::Relaxed);
                handle.thread_ended("of the test", End::Returned);
            });
        });
        assert_eq!(done.load(Ordering::Relaxed), 1, "asked, and nothing was changed");
        let (sender, answer) = sync_channel::<()>(1);
        let question = Query { answer: sender, taken: Arc::new(AtomicBool::new(true)) };
        question.answer(|| panic!("who asked has given up"));
        answer.recv().unwrap_err();
    }

    #[test]
    fn the_node_of_a_program_gets_no_keys_of_a_ros() {
        let (inlet, inputs) = Inlet::new().unwrap();
        let file = "name: a\nsecurity: none\nros1: true\n";
        let config = parse(file, &Surroundings::default()).unwrap().config;
        let handle = Handle { inlet, is_of_program: false };
        for (handle, has_ros) in [(handle.clone(), true), (handle.for_program(), false)] {
            let config = config.clone();
            let asks = std::thread::spawn(move || handle.reconfigure(config));
            let Ok(Input::Reconfigure(config, question)) = inputs.recv() else { panic!("another") };
            question.answer(|| Ok(()));
            asks.join().unwrap().unwrap();
            assert_eq!(config.ros().is_some(), has_ros);
        }
    }

    #[test]
    fn a_thread_that_ends_ends_the_node_with_its_name() {
        let error = run(|node| node.inlet.spawn("wild", || panic!("of the test")).unwrap());
        assert!(error.contains("'wild' has panicked"), "{error}");
        let error = run(|node| node.inlet.spawn("calm", || {}).unwrap());
        assert!(error.contains("'calm' has ended"), "{error}");
        // Gateways, the control socket and metrics report the end of their threads in this manner.
        let error = run(|node| node.events().ended("ros1", End::Panicked));
        assert!(error.contains("'ros1' has panicked"), "{error}");
        let error = run(|node| node.handle().thread_ended("control", End::Returned));
        assert!(error.contains("'control' has ended"), "{error}");
    }
}
