// SPDX-License-Identifier: Apache-2.0
//! A node: the data plane on its own thread, and handles to it.

use crate::codec::Codec;
use crate::config::Config;
use crate::control::Inspect;
use crate::driver::{Driver, Settings};
use crate::status::{LinkReport, Status, TopicChange};
use bytes::Bytes;
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;
use tautline_gateway::mapping::{service_treatment, treatment};
use tautline_gateway::types::translate::{ServiceTranslator, Translator};
use tautline_gateway::{
    CallId, Event, Events, Gateway, Named, Outcome, Selector, Service, Source, Topic,
};

/// Inputs that wait for the data plane.
const MAX_INPUTS: usize = 4096;
/// Bytes of messages that wait for the data plane; it takes them within microseconds.
const MAX_INPUT_BYTES: usize = 64 << 20;
/// How long an inspection waits for the data plane.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

/// Why a node cannot start or go on.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The port or address cannot be used.
    #[error("cannot listen on {address} (listen:): {error}{}", listen_advice(error))]
    Listen {
        /// What was asked for.
        address: std::net::SocketAddr,
        /// What the system says.
        error: std::io::Error,
    },
    /// The kernel refused something basic.
    #[error("{what}: {error}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the system says.
        error: std::io::Error,
    },
    /// The node's own key cannot be used.
    #[error(transparent)]
    Key(#[from] crate::keys::KeyFileError),
    /// The names in the file do not fit the protocol.
    #[error(transparent)]
    Setup(#[from] tautline_proto::SetupError),
    /// The gateway cannot start.
    #[error("{0}")]
    Gateway(String),
    /// The control socket cannot be opened.
    #[error(transparent)]
    Control(#[from] crate::control::ControlError),
    /// The metrics address cannot be used.
    #[error(transparent)]
    Metrics(#[from] crate::metrics::MetricsError),
}

fn listen_advice(error: &std::io::Error) -> &'static str {
    match error.kind() {
        std::io::ErrorKind::AddrInUse => "; is another tautline running?",
        std::io::ErrorKind::AddrNotAvailable => {
            "; no interface has that address now, '[::]:PORT' takes any that comes"
        }
        _ => "",
    }
}

/// What the data plane takes in beside packets.
pub(crate) enum Input {
    Local(Event),
    Encoded(crate::topics::Outgoing),
    Decoded {
        topic: String,
        source: Source,
        payload: Bytes,
    },
    Translated {
        key: crate::topics::Key,
        /// What was asked about.
        foreign: Topic,
        found: Box<Result<(Topic, Translator), String>>,
    },
    ServiceTranslated {
        key: crate::topics::Key,
        foreign: Service,
        found: Box<Result<(Service, ServiceTranslator), String>>,
    },
    /// The safe message of a topic.
    Composed {
        topic: Topic,
        made: Result<crate::topics::Safe, String>,
    },
    /// A call to be sent, or an answer to be handed to the caller.
    Turned {
        service: String,
        call: CallId,
        outcome: Outcome,
        is_answer: bool,
    },
    Path {
        link: usize,
        path: crate::paths::Path,
    },
    /// Interfaces, addresses or routes of this machine are others.
    NetworkChanged,
    /// Something a person should know.
    Notice(String),
    Status(SyncSender<Status>),
    Change(TopicChange, SyncSender<Result<Vec<String>, String>>),
    WatchLinks(SyncSender<Vec<LinkReport>>, SyncSender<Result<(), String>>),
    Shutdown,
}

/// The way into the data plane from other threads.
#[derive(Clone)]
pub(crate) struct Inlet {
    sender: SyncSender<Input>,
    pub(crate) waiting: Arc<Waiting>,
}

/// What waits in the inlet.
#[derive(Debug)]
pub(crate) struct Waiting {
    wake: OwnedFd,
    bytes: AtomicUsize,
    /// Messages that found the inlet full.
    pub(crate) refused: AtomicU64,
    /// The data plane has ended.
    closed: AtomicBool,
}

impl Inlet {
    fn wake(&self) {
        // Fails only if the counter is full, when the data plane is about to wake anyway.
        let _ = rustix::io::write(&self.waiting.wake, &1u64.to_ne_bytes());
    }

    /// Hands over what must not be lost; waits while the inlet is full.
    pub(crate) fn push(&self, input: Input) -> bool {
        let done = self.sender.send(input).is_ok();
        self.wake();
        done
    }

    /// Hands over a message of `bytes`, or counts it as refused.
    pub(crate) fn offer(&self, input: Input, bytes: usize) {
        let before = self.waiting.bytes.fetch_add(bytes, Ordering::Relaxed);
        let sent = if before + bytes > MAX_INPUT_BYTES {
            false
        } else {
            !matches!(self.sender.try_send(input), Err(TrySendError::Full(_)))
        };
        if sent {
            self.wake();
        } else {
            self.waiting.bytes.fetch_sub(bytes, Ordering::Relaxed);
            self.waiting.refused.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Waiting {
    /// Becomes readable when there is input.
    pub(crate) fn wake(&self) -> &OwnedFd {
        &self.wake
    }

    /// Whether nobody takes anything any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }

    pub(crate) fn taken(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Events for Inlet {
    fn emit(&self, event: Event) {
        match &event {
            Event::Message { payload, .. } => {
                let bytes = payload.len();
                self.offer(Input::Local(event), bytes);
            }
            _ => drop(self.push(Input::Local(event))),
        }
    }
}

/// A node that is set up but not running yet.
pub struct Node {
    config: Config,
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
        };
        let inlet = Inlet { sender, waiting: Arc::new(waiting) };
        let driver = Driver::new(&config, receiver, inlet.waiting.clone())?;
        Ok(Self { config, driver, inlet })
    }

    /// Where a gateway delivers its events.
    pub fn events(&self) -> Arc<dyn Events> {
        Arc::new(self.inlet.clone())
    }

    /// What may leave.
    pub fn selector(&self) -> Selector {
        let (topics, services) = (self.config.topics.clone(), self.config.services.clone());
        Arc::new(move |named| match named {
            Named::Topic(name) => treatment(&topics, name).is_some(),
            Named::Service(name) => service_treatment(&services, name).is_some(),
        })
    }

    /// A handle for the command line, metrics and signals.
    pub fn handle(&self) -> Handle {
        Handle { inlet: self.inlet.clone() }
    }

    /// Runs the data plane on this thread until [`Handle::shutdown`]; the
    /// gateway is unregistered before this returns.
    pub fn run(self, gateway: Box<dyn Gateway>, settings: &Settings) -> Result<(), RunError> {
        let codec = Codec::start(self.inlet.clone(), &self.config)
            .map_err(|error| RunError::System { what: "starting a thread", error })?;
        crate::paths::watch(&self.config, &self.inlet)
            .map_err(|error| RunError::System { what: "starting a thread", error })?;
        self.driver.run(gateway, &codec, settings)
    }
}

/// A handle to a running node.
#[derive(Clone)]
pub struct Handle {
    inlet: Inlet,
}

impl Handle {
    /// Drains what waits, says goodbye and ends [`Node::run`].
    pub fn shutdown(&self) {
        self.inlet.push(Input::Shutdown);
    }

    /// All links as they are now, and again whenever one comes up, goes down, or has room for
    /// another rate ([`LinkReport::available_bps`], by more than a quarter): an application can
    /// make as much data as they carry. At most four times a second; one that is slow to take
    /// them misses what was between, and has the latest within a second. Fails where the node
    /// has stopped, or tells too many applications already.
    pub fn watch_links(&self) -> Result<Receiver<Vec<LinkReport>>, String> {
        let (sender, links) = sync_channel(1);
        self.ask(|answer| Input::WatchLinks(sender, answer))??;
        Ok(links)
    }

    fn ask<T>(&self, input: impl FnOnce(SyncSender<T>) -> Input) -> Result<T, String> {
        let (sender, answer) = sync_channel(1);
        if !self.inlet.push(input(sender)) {
            return Err("the node has stopped".into());
        }
        answer.recv_timeout(ANSWER_TIMEOUT).map_err(|_| "the node does not answer".into())
    }
}

impl Inspect for Handle {
    fn status(&self) -> Result<Status, String> {
        self.ask(Input::Status)
    }

    fn change_topic(&self, change: TopicChange) -> Result<Vec<String>, String> {
        self.ask(|sender| Input::Change(change, sender))?
    }
}
