// SPDX-License-Identifier: Apache-2.0
//! The queue of inputs by which other threads reach the data plane.

use crate::audit::Actor;
use crate::codec::job::JobResult;
use crate::config::Config;
use crate::error::{RunError, SystemError};
use crate::limits::MAX_INPUT_BYTES;
use crate::route::Path;
use crate::status::{LinkReport, Status, TopicChange};
use bytes::Bytes;
use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tautline_gateway::threads::{self, End};
use tautline_gateway::{Event, Events};

/// Maximum number of inputs queued for the data plane.
const MAX_INPUTS: usize = 4096;

/// An input of the data plane. Packets are not inputs.
pub(crate) enum Input {
    Local(Event),
    /// The result of a job of the codec.
    Codec(JobResult),
    Path {
        /// The number under which the path is watched; see `Paths`.
        watch: u64,
        path: Path,
    },
    /// A new configuration replaces the current one.
    Reconfigure(Box<Config>, Query<Result<(), String>>),
    /// Interfaces, addresses or routes of this machine have changed.
    NetworkChanged,
    /// A notice for people.
    Notice(String),
    Status(Query<Status>),
    /// Records that a user or program changed the node, or that the change was refused.
    Changed(Actor, Result<Vec<String>, String>),
    Change(TopicChange, Actor, Query<Result<Vec<String>, String>>),
    /// Asks for all changes made by [`Input::Change`].
    TopicChanges(Query<Vec<TopicChange>>),
    WatchLinks(SyncSender<Vec<LinkReport>>, Query<Result<(), String>>),
    /// Ends the node once all messages have arrived, or after this time.
    Shutdown(Duration),
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

/// A request to the data plane. Either it is executed, or the requester learns that it is not.
/// Nothing is changed after the requester has given up.
pub(crate) struct Query<T> {
    pub(crate) answer: SyncSender<T>,
    /// Set by the data plane when it starts the request, or by the requester when it gives up.
    pub(crate) taken: Arc<AtomicBool>,
}

impl<T> Query<T> {
    /// Executes the request and sends the result, unless the requester has given up.
    pub(crate) fn answer(self, make: impl FnOnce() -> T) {
        if !self.taken.swap(true, Ordering::AcqRel) {
            // The requester may be gone.
            let _ = self.answer.try_send(make());
        }
    }
}

/// The reason why the data plane does not accept a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OfferError {
    Full,
    /// The data plane has ended.
    Ended,
}

/// The end of the queue at which other threads add inputs for the data plane.
#[derive(Clone)]
pub(crate) struct Inlet {
    sender: SyncSender<Input>,
    pub(crate) waiting: Arc<InletState>,
}

/// The state of the inlet's queue.
#[derive(Debug)]
pub(crate) struct InletState {
    wake: OwnedFd,
    bytes: AtomicUsize,
    /// Messages refused because the inlet was full.
    pub(crate) refused: AtomicU64,
    /// Messages for peers that may not have arrived; set when the data plane ends.
    pub(crate) unsettled: AtomicU64,
    closed: AtomicBool,
    /// The first thread that ended before the data plane did, and how.
    ended: OnceLock<(String, End)>,
}

impl Inlet {
    /// Returns an empty queue: the end for other threads, and the end for the data plane.
    pub(crate) fn new() -> Result<(Self, Receiver<Input>), SystemError> {
        let wake = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)
            .map_err(|error| SystemError { what: "eventfd", error: error.into() })?;
        let (sender, inputs) = sync_channel(MAX_INPUTS);
        let waiting = InletState {
            wake,
            bytes: AtomicUsize::new(0),
            refused: AtomicU64::new(0),
            unsettled: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            ended: OnceLock::new(),
        };
        Ok((Self { sender, waiting: Arc::new(waiting) }, inputs))
    }

    /// Starts a thread. When the thread ends, the daemon ends as well.
    pub(crate) fn spawn(&self, name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let waiting = self.waiting.clone();
        threads::spawn(name, move |name, how| waiting.thread_ended(name, how), work).map(drop)
    }

    /// Queues an input for the data plane. If the queue is full, a message is counted as refused.
    /// Any other input must not be lost, so this call blocks until the queue has room. Returns `false` if the
    /// data plane has ended before it took such an input.
    pub(crate) fn hand_over(&self, input: Input) -> bool {
        let Some(bytes) = input.message().map(Bytes::len) else {
            let queued = self.sender.send(input).is_ok();
            self.waiting.wake_up();
            return queued;
        };
        let _ = self.offer(input, bytes);
        true
    }

    /// Queues a message of `bytes` bytes. Counts it as refused if it does not fit.
    pub(crate) fn offer(&self, input: Input, bytes: usize) -> Result<(), OfferError> {
        let before = self.waiting.bytes.fetch_add(bytes, Ordering::Relaxed);
        let taken = match before + bytes > MAX_INPUT_BYTES {
            true => Err(OfferError::Full),
            false => self.sender.try_send(input).map_err(|error| match error {
                TrySendError::Full(_) => OfferError::Full,
                TrySendError::Disconnected(_) => OfferError::Ended,
            }),
        };
        match taken {
            Ok(()) => self.waiting.wake_up(),
            Err(error) => {
                self.waiting.bytes.fetch_sub(bytes, Ordering::Relaxed);
                let is_full = error == OfferError::Full;
                self.waiting.refused.fetch_add(u64::from(is_full), Ordering::Relaxed);
            }
        }
        taken
    }
}

impl InletState {
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

    /// Returns an error if a thread has ended that the daemon needs.
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
    pub(crate) fn on_input_taken(&self, input: &Input) {
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
