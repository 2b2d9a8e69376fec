// SPDX-License-Identifier: Apache-2.0
//! The program as the node's local participant: its operations, and the commands of the data plane.

use super::error::{CallError, PublishError, SendError, ServeError};
use super::message::Message;
use super::message_type::MessageType;
use super::published::PublisherState;
use super::queue::{Limits, Queue, Receiver};
use super::request::Request;
use super::state::State;
use crate::audit::{AuditSink, Record};
use crate::inlet::{Inlet, Input, OfferError};
use bytes::Bytes;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tautline_gateway::{Command, Event, Gateway, GatewayStatus, ResourceName, Selector, Source};

/// Limits of the events of the node that wait for a program. Each event is small.
const WAITING_EVENTS: Limits = Limits { entries: 1024, bytes: usize::MAX };
/// Maximum time for which a closing node waits for the announcer, which repeats kept messages
/// within milliseconds.
const REPEATS_TIMEOUT: Duration = Duration::from_secs(1);
/// The kind of this gateway in the status.
const KIND: &str = "program";

pub(super) struct Participant {
    state: Mutex<State>,
    /// Signalled on each change of the state.
    changed: Condvar,
    inlet: Inlet,
    selector: Selector,
    max_message: usize,
}

impl Participant {
    pub(super) fn new(inlet: Inlet, selector: Selector, max_message: usize) -> Arc<Self> {
        let (state, changed) = (Mutex::default(), Condvar::new());
        Arc::new(Self { state, changed, inlet, selector, max_message })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let result = change(&mut self.state());
        self.changed.notify_all();
        result
    }

    /// Passes an event to the data plane. This may block, unless the event is a message, so the
    /// data plane never calls it.
    pub(super) fn emit(&self, event: Event) -> bool {
        self.inlet.hand_over(Input::Local(event))
    }

    /// Waits until a condition holds. Returns `false` if the deadline passes or the node stops before.
    pub(super) fn wait_until(
        &self,
        deadline: Option<Instant>,
        holds: impl Fn(&State) -> bool,
    ) -> bool {
        let mut state = self.state();
        loop {
            if holds(&state) {
                return true;
            }
            let left = deadline.map(|it| it.saturating_duration_since(Instant::now()));
            if state.is_closed || left == Some(Duration::ZERO) {
                return false;
            }
            state = match left {
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(left) => {
                    let waited = self.changed.wait_timeout(state, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    /// Waits for changes. Returns the events with which to notify the data plane, or `None` once
    /// the node has stopped.
    pub(super) fn take_unreported_events(&self) -> Option<Vec<Event>> {
        let is_open = self.wait_until(None, State::has_unreported);
        is_open.then(|| self.state().take_unreported_events(&self.selector))
    }

    /// Notes that the data plane has the events. Sends the kept messages for which subscribers wait.
    pub(super) fn mark_announced(&self) {
        self.change(|state| {
            for event in state.mark_announced() {
                self.emit(event);
            }
        });
    }

    /// Waits until the data plane has the messages for which subscribers wait. Afterwards no more
    /// messages are accepted.
    pub(super) fn stop_sending(&self, timeout: Duration) {
        let deadline = Instant::now().checked_add(timeout.min(REPEATS_TIMEOUT));
        self.wait_until(deadline, |state| !state.has_repeats());
        self.state().is_closing = true;
    }

    pub(super) fn add_publisher(
        &self,
        topic: &str,
        message_type: MessageType,
        publisher: PublisherState,
    ) -> Result<Source, PublishError> {
        if !(self.selector)(ResourceName::Topic(topic)) {
            return Err(PublishError::NoRule(topic.to_owned()));
        }
        self.change(|state| state.add_publisher(topic, message_type, publisher))
    }

    pub(super) fn remove_publisher(&self, topic: &str, source: Source) {
        self.change(|state| state.remove_publisher(topic, source));
    }

    pub(super) fn is_subscribed(&self, topic: &str) -> bool {
        self.state().is_subscribed(topic)
    }

    pub(super) fn send(
        &self,
        topic: &str,
        source: Source,
        payload: Bytes,
    ) -> Result<(), SendError> {
        let (bytes, most) = (payload.len(), self.max_message);
        if bytes > most {
            return Err(SendError::TooLarge { bytes, most });
        }
        // The lock keeps the messages of a publisher in order. The inlet never blocks on a message.
        let mut state = self.state();
        let (repeats, event) = state.add_message(topic, source, payload)?;
        for event in repeats {
            self.emit(event);
        }
        let Some(event) = event else { return Ok(()) };
        self.inlet.offer(Input::Local(event), bytes).map_err(|error| match error {
            OfferError::Full => SendError::Full,
            OfferError::Ended => SendError::Stopped,
        })?;
        match state.peer_with_limit_below(bytes) {
            Some((peer, allowed)) => Err(SendError::TooLargeAtPeer { bytes, peer, allowed, most }),
            None => Ok(()),
        }
    }

    pub(super) fn add_subscription(&self, topic: &str, queue: Arc<Queue<Message>>) {
        self.change(|state| state.add_subscription(topic, queue));
    }

    pub(super) fn remove_subscription(&self, topic: &str, queue: &Arc<Queue<Message>>) {
        self.change(|state| state.remove_subscription(topic, queue));
    }

    pub(super) fn add_server(
        &self,
        service: &str,
        type_name: &str,
        requests: Arc<Queue<Request>>,
    ) -> Result<(), ServeError> {
        if !(self.selector)(ResourceName::Service(service)) {
            return Err(ServeError::NoRule(service.to_owned()));
        }
        self.change(|state| state.add_server(service, type_name, requests))
    }

    pub(super) fn remove_server(&self, service: &str) {
        self.change(|state| state.remove_server(service));
    }

    pub(super) fn call(
        &self,
        service: &str,
        request: Bytes,
        timeout: Duration,
    ) -> Result<Bytes, CallError> {
        let deadline = Instant::now().checked_add(timeout);
        let named = || service.to_owned();
        let stopped_or = |error| if self.state().is_closed { CallError::Stopped } else { error };
        if !self.wait_until(deadline, |state| state.is_served_by_peers(service)) {
            return Err(stopped_or(CallError::NotServed { service: named(), timeout }));
        }
        let call = self.state().begin_call(service);
        let called = self.emit(Event::Called { service: named(), call, request });
        let is_answered = called && self.wait_until(deadline, |state| state.is_answered(call));
        let outcome = self.state().end_call(call);
        match outcome.filter(|_| is_answered) {
            Some(outcome) => outcome.map_err(CallError::Failed),
            None if !called => Err(CallError::Stopped),
            None => Err(stopped_or(CallError::TimedOut { service: named(), timeout })),
        }
    }

    pub(super) fn events(&self) -> Receiver<Record> {
        let queue = Arc::new(Queue::new(WAITING_EVENTS));
        self.state().add_events(&queue);
        Receiver::new(queue, || {})
    }

    fn close(&self) {
        self.change(State::close);
    }
}

impl AuditSink for Participant {
    fn take(&self, record: Record) {
        self.state().record(&record);
    }
}

/// The gateway by which the data plane reaches the participant.
pub(super) struct ProgramGateway(pub(super) Arc<Participant>);

impl Gateway for ProgramGateway {
    fn handle(&self, command: Command) {
        let Self(participant) = self;
        participant.change(|state| match command {
            Command::Subscribe { topic } => state.set_has_subscriber(&topic, true),
            Command::Unsubscribe { topic } => state.set_has_subscriber(&topic, false),
            Command::Advertise { topic } => state.on_advertised(topic),
            Command::Unadvertise { topic } => state.on_unadvertised(&topic),
            Command::Publish { topic, source, payload, origin } => {
                state.on_message(&topic, source, payload, origin);
            }
            Command::Forget { topic, source } => state.forget(&topic, source),
            Command::Serve { service } => state.set_served_by_peers(service.name, true),
            Command::Unserve { service } => state.set_served_by_peers(service, false),
            Command::Call { service, call, request, time_limit, .. } => {
                let inlet = participant.inlet.clone();
                let expires = Instant::now().checked_add(time_limit);
                let request = Request::new(inlet, service.clone(), call, request, expires);
                state.on_call(request, service, call);
            }
            Command::Answer { call, outcome, .. } => state.on_answer(call, outcome),
            Command::SetMaxMessage { peer, most } => state.set_limit(peer, most),
            Command::Reselect => state.reselect(),
            // A program has neither nodes nor parameters of ROS.
            Command::Describe { .. }
            | Command::ShowNodes { .. }
            | Command::ShowParameters { .. }
            | Command::SetParameters { .. } => {}
        });
    }

    fn status(&self) -> GatewayStatus {
        let slow_subscriber_drops = self.0.state().drops();
        GatewayStatus { kind: KIND, connected: true, slow_subscriber_drops, ..Default::default() }
    }

    fn shutdown(self: Box<Self>) {}
}

impl Drop for ProgramGateway {
    /// Closes the participant however the data plane ended, so that nothing waits for it.
    fn drop(&mut self) {
        self.0.close();
    }
}
