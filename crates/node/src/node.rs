// SPDX-License-Identifier: Apache-2.0
//! A node: the data plane on its own thread, and handles to it.

use crate::audit::{Actor, Audit};
use crate::codec::{Codec, Done};
use crate::config::{Config, Show};
use crate::driver::{Driver, Settings};
use crate::limits::MAX_INPUT_BYTES;
use crate::paths::Paths;
use crate::status::{LinkReport, Status, TopicChange};
use crate::topics::may_use_parameters;
use crate::treatment::services::{ServiceRule, service_treatment};
use crate::treatment::{TopicRule, treatment};
use bytes::Bytes;
use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::Duration;
use tautline_gateway::logs;
use tautline_gateway::pattern::Pattern;
use tautline_gateway::threads::{self, End};
use tautline_gateway::{Event, Events, Gateway, Named, Selector};
use tautline_proto::PublicKey;

/// Maximum inputs queued for the data plane.
const MAX_INPUTS: usize = 4096;
/// Time that an inspection waits for the data plane.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);
/// The same for a change of many peers and topics.
const RECONFIGURE_TIMEOUT: Duration = Duration::from_secs(4);

/// The reason why a node cannot start or continue.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The port or address cannot be used.
    #[error("cannot listen on {address} (listen:): {error}{}", listen_advice(error))]
    Listen {
        /// The address and port from the configuration.
        address: std::net::SocketAddr,
        /// The error of the system.
        error: io::Error,
    },
    /// The kernel refused a basic operation.
    #[error("{what}: {error}")]
    System {
        /// The operation that was tried.
        what: &'static str,
        /// The error of the system.
        error: io::Error,
    },
    /// The node's own key cannot be used.
    #[error(transparent)]
    Key(#[from] crate::keys::KeyFileError),
    /// The names in the file do not fit the protocol.
    #[error(transparent)]
    Setup(#[from] tautline_proto::SetupError),
    /// A thread that the daemon needs has ended.
    #[error("the thread '{thread}' has {how}; the daemon stops, because it cannot work without it")]
    Thread {
        /// Its name.
        thread: String,
        /// Whether it ended by a panic, or otherwise.
        how: &'static str,
    },
}

fn listen_advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => "; is another tautline running?",
        io::ErrorKind::AddrNotAvailable => {
            "; no interface has this address now; '[::]:PORT' listens on all addresses"
        }
        _ => "",
    }
}

/// An input of the data plane other than packets.
pub(crate) enum Input {
    Local(Event),
    /// The result of a job of the codec.
    Codec(Done),
    Path {
        /// The number of the link: see [`crate::paths::Paths`].
        watch: u64,
        path: crate::paths::Path,
    },
    /// A new configuration replaces the current one.
    Reconfigure(Box<Config>, Question<Result<(), String>>),
    /// Interfaces, addresses or routes of this machine have changed.
    NetworkChanged,
    /// A notice for people.
    Notice(String),
    Status(Question<Status>),
    /// A user changed the node, or was refused.
    Changed(Actor, Result<Vec<String>, String>),
    Change(TopicChange, Actor, Question<Result<Vec<String>, String>>),
    /// Asks for all changes made by `Change`.
    TopicChanges(Question<Vec<TopicChange>>),
    WatchLinks(SyncSender<Vec<LinkReport>>, Question<Result<(), String>>),
    Shutdown,
}

impl Input {
    /// Returns the payload of a message, which counts towards [`MAX_INPUT_BYTES`].
    fn message(&self) -> Option<&Bytes> {
        match self {
            Self::Local(Event::Message { payload, .. }) => Some(payload),
            Self::Codec(done) => done.message(),
            _ => None,
        }
    }
}

/// A request to the data plane. Either it is done, or the requester learns that it is not: no
/// change is made after its requester has given up.
pub(crate) struct Question<T> {
    answer: SyncSender<T>,
    /// Set by the data plane when it starts, or by the requester when it gives up.
    taken: Arc<AtomicBool>,
}

impl<T> Question<T> {
    /// Does the request, unless the requester has given up.
    pub(crate) fn answer(self, make: impl FnOnce() -> T) {
        if !self.taken.swap(true, Ordering::AcqRel) {
            // The requester may be gone.
            let _ = self.answer.try_send(make());
        }
    }
}

/// The input of the data plane for other threads.
#[derive(Clone)]
pub(crate) struct Inlet {
    sender: SyncSender<Input>,
    pub(crate) waiting: Arc<Waiting>,
}

/// The state of the inlet's queue.
#[derive(Debug)]
pub(crate) struct Waiting {
    wake: OwnedFd,
    bytes: AtomicUsize,
    /// Messages refused because the inlet was full.
    pub(crate) refused: AtomicU64,
    closed: AtomicBool,
    /// The first thread that ended before the data plane.
    ended: OnceLock<(String, End)>,
}

impl Inlet {
    /// Starts a thread whose end ends the daemon.
    pub(crate) fn spawn(&self, name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let waiting = self.waiting.clone();
        threads::spawn(name, move |name, how| waiting.thread_ended(name, how), work).map(drop)
    }

    /// Queues an input for the data plane. A message is counted as refused if the inlet is full;
    /// any other input must not be lost: this blocks until it fits, and returns `false` if the data
    /// plane has ended.
    pub(crate) fn hand_over(&self, input: Input) -> bool {
        let Some(bytes) = input.message().map(Bytes::len) else {
            let queued = self.sender.send(input).is_ok();
            self.waiting.wake_up();
            return queued;
        };
        let before = self.waiting.bytes.fetch_add(bytes, Ordering::Relaxed);
        let is_full = before + bytes > MAX_INPUT_BYTES
            || matches!(self.sender.try_send(input), Err(TrySendError::Full(_)));
        if is_full {
            self.waiting.bytes.fetch_sub(bytes, Ordering::Relaxed);
            self.waiting.refused.fetch_add(1, Ordering::Relaxed);
        } else {
            self.waiting.wake_up();
        }
        true
    }
}

impl Waiting {
    /// Returns a descriptor that is readable when there is input.
    pub(crate) fn wake(&self) -> &OwnedFd {
        &self.wake
    }

    /// Whether the data plane has ended.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }

    /// Stops the data plane because a thread of the daemon has ended before it.
    pub(crate) fn thread_ended(&self, thread: &str, how: End) {
        if self.is_closed() {
            return;
        }
        // Only the first thread is reported.
        let _ = self.ended.set((thread.to_owned(), how));
        self.wake_up();
    }

    /// Returns the error of the thread that ended, without which the daemon cannot continue.
    pub(crate) fn failure(&self) -> Option<RunError> {
        let (thread, how) = self.ended.get()?;
        let how = match how {
            End::Panicked => "panicked",
            End::Returned => "ended",
        };
        Some(RunError::Thread { thread: thread.clone(), how })
    }

    fn wake_up(&self) {
        // This fails only if the counter is full; then the data plane is about to wake anyway.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    /// Frees the space of an input that the data plane has taken from the queue.
    pub(crate) fn taken(&self, input: &Input) {
        let bytes = input.message().map_or(0, Bytes::len);
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Events for Inlet {
    fn emit(&self, event: Event) {
        self.hand_over(Input::Local(event));
    }

    fn ended(&self, thread: &str, how: End) {
        self.waiting.thread_ended(thread, how);
    }
}

/// The rules that select topics and services to be sent, from the current configuration.
#[derive(Debug, PartialEq)]
pub(crate) struct Selection {
    topics: Vec<TopicRule>,
    services: Vec<ServiceRule>,
    /// What each peer sees, and the nodes whose parameters it may set.
    shown: Vec<(Show, Vec<Pattern>)>,
}

impl Selection {
    pub(crate) fn new(config: &Config) -> Self {
        let rights = config.peers.iter().map(|peer| (peer.show, peer.set_parameters.clone()));
        Self {
            topics: config.topics.clone(),
            services: config.services.clone(),
            shown: rights.collect(),
        }
    }

    fn selects(&self, named: Named<'_>) -> bool {
        match named {
            Named::Topic(name) => {
                let mut rights = self.shown.iter();
                treatment(&self.topics, name).is_some()
                    || (name == logs::TOPIC && rights.any(|(show, _)| show.logs))
            }
            Named::Service(name) => {
                let mut rights = self.shown.iter();
                service_treatment(&self.services, name).is_some()
                    || rights.any(|(show, set)| may_use_parameters(*show, set, name))
            }
        }
    }
}

/// A node that is set up but not running yet.
pub struct Node {
    config: Config,
    selection: Arc<RwLock<Selection>>,
    driver: Driver,
    inlet: Inlet,
}

impl Node {
    /// Opens the sockets; nothing is sent yet.
    pub fn new(config: Config) -> Result<Self, RunError> {
        let wake = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)
            .map_err(|e| RunError::System { what: "eventfd", error: e.into() })?;
        let (sender, receiver): (_, Receiver<Input>) = sync_channel(MAX_INPUTS);
        let waiting = Waiting {
            wake,
            bytes: AtomicUsize::new(0),
            refused: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            ended: OnceLock::new(),
        };
        let inlet = Inlet { sender, waiting: Arc::new(waiting) };
        let selection = Arc::new(RwLock::new(Selection::new(&config)));
        let driver = Driver::new(&config, selection.clone(), receiver, inlet.waiting.clone())?;
        Ok(Self { config, selection, driver, inlet })
    }

    /// Records later events in this audit log.
    pub fn record_in(&mut self, audit: Audit) {
        self.driver.record_in(audit);
    }

    /// Returns the public key by which peers know this node.
    pub fn key(&self) -> PublicKey {
        self.driver.key()
    }

    /// Returns the receiver of a gateway's events.
    pub fn events(&self) -> Arc<dyn Events> {
        Arc::new(self.inlet.clone())
    }

    /// Returns a selector of topics and services to be sent, which follows the current
    /// configuration.
    pub fn selector(&self) -> Selector {
        let selection = self.selection.clone();
        Arc::new(move |named| {
            selection.read().unwrap_or_else(PoisonError::into_inner).selects(named)
        })
    }

    /// Returns a handle for the command line, metrics and signals.
    pub fn handle(&self) -> Handle {
        Handle { inlet: self.inlet.clone() }
    }

    /// Runs the data plane on this thread until [`Handle::shutdown`]. The gateway is unregistered
    /// before this returns.
    pub fn run(self, gateway: Box<dyn Gateway>, settings: &Settings) -> Result<(), RunError> {
        let failed = |error| RunError::System { what: "starting a thread", error };
        let codec = Codec::start(&self.inlet, &self.config).map_err(failed)?;
        let paths = Paths::start(self.inlet.clone()).map_err(failed)?;
        self.driver.run(gateway, &codec, paths, settings)
    }
}

/// A handle to a running node.
#[derive(Clone)]
pub struct Handle {
    inlet: Inlet,
}

impl Handle {
    /// Drains the queues, sends goodbyes and ends [`Node::run`].
    pub fn shutdown(&self) {
        self.inlet.hand_over(Input::Shutdown);
    }

    /// Returns the reports of all links: the current ones, and new ones when a link comes up, goes
    /// down or changes its available rate ([`LinkReport::available_bps`]) by more than a quarter.
    /// An application can adapt its data rate to them. Reports arrive at most four times a second;
    /// a slow receiver misses some, and has the latest within a second. Fails if the node has
    /// stopped, or reports to too many applications already.
    pub fn watch_links(&self) -> Result<Receiver<Vec<LinkReport>>, String> {
        let (sender, links) = sync_channel(1);
        self.ask(|answer| Input::WatchLinks(sender, answer))??;
        Ok(links)
    }

    /// Starts a thread whose end ends [`Node::run`].
    pub fn spawn(&self, name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
        self.inlet.spawn(name, work)
    }

    /// Replaces the running configuration by `config`. Keys in which the two may not differ
    /// ([`difference`](crate::reload::difference)) are not checked. On an error nothing is changed.
    pub fn reconfigure(&self, config: Config) -> Result<(), String> {
        let input = |answer| Input::Reconfigure(Box::new(config), answer);
        self.ask_within(RECONFIGURE_TIMEOUT, input)?
    }

    /// Returns the changes to topics of the running node, which override its file.
    pub fn topic_changes(&self) -> Result<Vec<TopicChange>, String> {
        self.ask(Input::TopicChanges)
    }

    /// Records that `by` changed the running node, or why it was refused.
    pub fn record_change(&self, by: Actor, outcome: Result<Vec<String>, String>) {
        self.inlet.hand_over(Input::Changed(by, outcome));
    }

    /// Returns a snapshot of the node's state; blocks for about a second at most.
    pub fn status(&self) -> Result<Status, String> {
        self.ask(Input::Status)
    }

    /// Changes topics for `by` and returns the changed local topics. The error explains the cause
    /// and names the known topics.
    pub fn change_topic(&self, change: TopicChange, by: Actor) -> Result<Vec<String>, String> {
        self.ask(|sender| Input::Change(change, by, sender))?
    }

    /// Ends [`Node::run`] with an error: a thread that the node needs has ended.
    pub fn thread_ended(&self, thread: &str, how: End) {
        self.inlet.waiting.thread_ended(thread, how);
    }

    fn ask<T>(&self, input: impl FnOnce(Question<T>) -> Input) -> Result<T, String> {
        self.ask_within(ANSWER_TIMEOUT, input)
    }

    fn ask_within<T>(
        &self,
        timeout: Duration,
        input: impl FnOnce(Question<T>) -> Input,
    ) -> Result<T, String> {
        let (sender, answer) = sync_channel(1);
        let taken = Arc::new(AtomicBool::new(false));
        if !self.inlet.hand_over(input(Question { answer: sender, taken: taken.clone() })) {
            return Err("the node has stopped".into());
        }
        let found = answer.recv_timeout(timeout);
        let found = match found {
            // The data plane has started, and takes longer than the timeout: too late to give up.
            Err(_) if taken.swap(true, Ordering::AcqRel) => answer.recv().ok(),
            found => found.ok(),
        };
        found.ok_or_else(|| "the node does not answer".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Surroundings, parse};
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

    fn run(disturb: impl FnOnce(&Node)) -> String {
        let file = "name: a\nsecurity: none\nros1: false\nlisten: \"127.0.0.1:0\"\n";
        let file = file.replace(":0\"", &format!(":{}\"", free_port()));
        let node = Node::new(parse(&file, &Surroundings::default()).unwrap().config).unwrap();
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
    fn what_is_refused_for_lateness_is_not_done_later_and_what_was_begun_is_waited_for() {
        let done = Arc::new(AtomicU64::new(0));
        run(|node| {
            let handle = node.handle();
            let change = TopicChange { topic: "/a".into(), priority: Some(9), rate_hz: None };
            let ask = |question| Input::Change(change, Actor::Program, question);
            // The data plane does not take inputs yet.
            handle.ask_within(Duration::ZERO, ask).unwrap_err();
            let done = done.clone();
            std::thread::spawn(move || {
                // The data plane takes inputs in order: the change has been examined before.
                let changes = handle.ask_within(Duration::from_secs(60), Input::TopicChanges);
                done.store(1 + changes.unwrap().len() as u64, Ordering::Relaxed);
                handle.thread_ended("of the test", End::Returned);
            });
        });
        assert_eq!(done.load(Ordering::Relaxed), 1, "asked, and nothing was changed");
        let (sender, answer) = sync_channel::<()>(1);
        let question = Question { answer: sender, taken: Arc::new(AtomicBool::new(true)) };
        question.answer(|| panic!("who asked has given up"));
        answer.recv().unwrap_err();
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
