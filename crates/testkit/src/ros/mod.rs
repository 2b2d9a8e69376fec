// SPDX-License-Identifier: Apache-2.0
//! Real ROS nodes that tests control, and a gateway that records events.

pub mod ros1;
pub mod ros2;

pub use crate::wait::{DEADLINE, wait_for};

use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::process::{Child, ChildStdin, Command as Process, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};
use tautline_gateway::{
    CallId, Command, Event, Events, Gateway, GatewayStatus, Kept, Origin, Outcome, Qos, Service,
    Source, Topic,
};

pub const MAX_MESSAGE: usize = 1_000_000;

/// Returns a port that was just free.
pub fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port()
}

/// A ROS node that the test controls; killed when dropped.
pub struct Agent {
    child: Child,
    orders: ChildStdin,
    reports: Arc<Mutex<Vec<Value>>>,
    _scratch: tempfile::TempDir,
}

impl Agent {
    /// Starts a program that takes orders, and waits for its first report.
    pub fn start(mut program: Process, scratch: tempfile::TempDir) -> Self {
        let mut child =
            program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("an agent");
        let reports = Arc::new(Mutex::new(Vec::new()));
        let (kept, lines) = (reports.clone(), BufReader::new(child.stdout.take().unwrap()));
        std::thread::spawn(move || {
            for line in lines.lines().map_while(Result::ok) {
                if let Ok(report) = serde_json::from_str(&line) {
                    kept.lock().unwrap().push(report);
                }
            }
            kept.lock().unwrap().push(json!({"ended": true}));
        });
        let orders = child.stdin.take().unwrap();
        let agent = Self { child, orders, reports, _scratch: scratch };
        agent.wait("start", |report| report["did"] == "start");
        agent
    }

    /// Gives an order and waits for its report.
    pub fn order(&mut self, order: Value) -> Value {
        let done = order["do"].as_str().unwrap();
        self.order_as(done, &order.to_string())
    }

    /// Gives an order as a line whose first word is the action.
    pub fn order_line(&mut self, order: &str) {
        let done = order.split(' ').next().unwrap();
        self.order_as(done, order);
    }

    fn order_as(&mut self, done: &str, order: &str) -> Value {
        let seen = self.reports.lock().unwrap().len();
        writeln!(self.orders, "{order}").unwrap();
        wait_for(format!("report of {order}"), || {
            let reports = self.reports.lock().unwrap();
            let found = reports[seen..].iter().find(|report| report["did"] == done).cloned();
            assert!(found.is_some() || !ended(&reports), "the agent ended upon {order}");
            found
        })
    }

    /// Returns all reports so far.
    pub fn reports(&self) -> Vec<Value> {
        self.reports.lock().unwrap().clone()
    }

    /// Returns reports of messages received on `topic`.
    pub fn received(&self, topic: &str) -> Vec<Value> {
        let reports = self.reports.lock().unwrap();
        reports.iter().filter(|report| report["got"] == topic).cloned().collect()
    }

    /// Returns the requests that a service received.
    pub fn served(&self, service: &str) -> Vec<Value> {
        let reports = self.reports.lock().unwrap();
        reports.iter().filter(|report| report["served"] == service).cloned().collect()
    }

    /// Returns the response to a call.
    pub fn answered(&self, id: u32) -> Vec<u8> {
        bytes_of(&self.wait(&format!("response to {id}"), |report| report["answered"] == id))
    }

    /// Waits for the first matching report.
    pub fn wait(&self, what: &str, fits: impl Fn(&Value) -> bool) -> Value {
        wait_for(what, || {
            let reports = self.reports.lock().unwrap();
            let found = reports.iter().find(|found| fits(found)).cloned();
            assert!(found.is_some() || !ended(&reports), "the agent ended before its {what}");
            found
        })
    }

    /// Ends the node after it has unregistered.
    pub fn leave(mut self) {
        self.order(json!({"do": "leave"}));
        let _ = self.child.wait();
    }

    /// Stops (or continues) the process.
    pub fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        assert!(Process::new("/bin/kill").args([signal, &pid]).status().unwrap().success());
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn ended(reports: &[Value]) -> bool {
    reports.last().is_some_and(|report| report["ended"] == true)
}

/// Returns the bytes of a message in a report.
pub fn bytes_of(report: &Value) -> Vec<u8> {
    let hex = report["hex"].as_str().unwrap();
    let digits = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    (0..hex.len()).step_by(2).map(digits).collect()
}

/// Keeps all events.
#[derive(Default)]
pub struct Recorder {
    events: Mutex<Vec<Event>>,
    more: Condvar,
}

impl Events for Recorder {
    fn emit(&self, event: Event) {
        self.events.lock().unwrap().push(event);
        self.more.notify_all();
    }
}

/// A gateway with its recorded events.
pub struct Watched {
    gateway: Box<dyn Gateway>,
    recorder: Arc<Recorder>,
    /// The QoS that publishers of advertised topics offer.
    advertised: Mutex<BTreeMap<String, Qos>>,
    /// Number of messages published so far.
    published: AtomicU64,
}

impl Watched {
    /// Starts a gateway with the function `start`, which gets the recorder of its events.
    pub fn start<G: Gateway + 'static>(start: impl FnOnce(Arc<Recorder>) -> G) -> Self {
        let recorder = Arc::new(Recorder::default());
        let gateway = Box::new(start(recorder.clone()));
        Self { gateway, recorder, advertised: Mutex::default(), published: AtomicU64::new(0) }
    }

    pub fn handle(&self, command: Command) {
        self.gateway.handle(command);
    }

    pub fn subscribe(&self, topic: &str) {
        self.gateway.handle(Command::Subscribe { topic: topic.into() });
    }

    pub fn unsubscribe(&self, topic: &str) {
        self.gateway.handle(Command::Unsubscribe { topic: topic.into() });
    }

    pub fn advertise(&self, topic: &Topic) {
        self.advertised.lock().unwrap().insert(topic.name.clone(), topic.qos);
        self.gateway.handle(Command::Advertise { topic: topic.clone() });
    }

    pub fn unadvertise(&self, topic: &str) {
        self.gateway.handle(Command::Unadvertise { topic: topic.into() });
    }

    /// Publishes a message with the QoS of its topic.
    pub fn publish(&self, topic: &str, source: u32, payload: impl Into<bytes::Bytes>) {
        let qos = self.advertised.lock().unwrap().get(topic).copied().unwrap_or_default();
        self.publish_as(qos, topic, source, payload);
    }

    pub fn publish_as(&self, qos: Qos, topic: &str, source: u32, payload: impl Into<bytes::Bytes>) {
        let (source, payload) = (Source::at_peer(0, source), payload.into());
        let identity = self.published.fetch_add(1, Ordering::Relaxed);
        let kept = Kept { identity, depth: qos.depth, ..Kept::default() };
        let origin = Origin {
            kept: qos.transient_local.then_some(kept),
            best_effort: !qos.reliable,
            lifespan: None,
            age: Duration::ZERO,
        };
        self.gateway.handle(Command::Publish { topic: topic.into(), source, payload, origin });
    }

    /// Publishes a message that a peer recognised as kept only after its publication.
    pub fn publish_recognised_as_kept(&self, topic: &str, payload: impl Into<bytes::Bytes>) {
        let kept = Kept {
            identity: self.published.fetch_add(1, Ordering::Relaxed),
            depth: 1,
            is_repeatable: true,
            is_history: true,
            is_for_late_joiners: true,
        };
        self.publish_kept(topic, kept, payload);
    }

    pub fn publish_kept(&self, topic: &str, kept: Kept, payload: impl Into<bytes::Bytes>) {
        let (source, payload) = (Source::at_peer(0, 0), payload.into());
        let origin = Origin { kept: Some(kept), ..Origin::default() };
        self.gateway.handle(Command::Publish { topic: topic.into(), source, payload, origin });
    }

    pub fn forget(&self, topic: &str, source: Option<u32>) {
        let source = source.map(|source| Source::at_peer(0, source));
        self.gateway.handle(Command::Forget { topic: topic.into(), source });
    }

    pub fn reselect(&self) {
        self.gateway.handle(Command::Reselect);
    }

    pub fn serve(&self, service: &Service) {
        self.gateway.handle(Command::Serve { service: service.clone() });
    }

    pub fn unserve(&self, service: &str) {
        self.gateway.handle(Command::Unserve { service: service.into() });
    }

    /// Starts a call with a time limit in seconds.
    pub fn call(&self, service: &str, call: CallId, request: &[u8], time_limit: u64) {
        self.gateway.handle(Command::Call {
            service: service.into(),
            call,
            request: request.to_vec().into(),
            time_limit: Duration::from_secs(time_limit),
            peer: 0,
        });
    }

    pub fn answer(&self, service: &str, call: CallId, outcome: Outcome) {
        self.gateway.handle(Command::Answer { service: service.into(), call, outcome });
    }

    pub fn service_offered_since(&self, since: usize, name: &str) -> Service {
        self.wait_since(since, &format!("offer of service {name}"), |event| match event {
            Event::ServiceOffered(service) if service.name == name => Some(service.clone()),
            _ => None,
        })
    }

    pub fn wait_service_withdrawn_since(&self, since: usize, name: &str) {
        self.wait_since(since, &format!("withdrawal of service {name}"), |event| {
            matches!(event, Event::ServiceWithdrawn { service } if service == name).then_some(())
        });
    }

    /// Waits for a call of a served service whose request begins with `expected`.
    pub fn called(&self, name: &str, expected: &[u8]) -> CallId {
        self.wait(&format!("call of {name}"), |event| match event {
            Event::Called { service, call, request }
                if service == name && request.starts_with(expected) =>
            {
                Some(*call)
            }
            _ => None,
        })
    }

    /// Waits for the outcome of our call.
    pub fn answered(&self, expected: CallId) -> Outcome {
        self.wait(&format!("outcome of call {expected}"), |event| match event {
            Event::Answered { call, outcome, .. } if *call == expected => Some(outcome.clone()),
            _ => None,
        })
    }

    /// Returns the number of outcomes of all calls.
    pub fn outcomes(&self) -> usize {
        let events = self.recorder.events.lock().unwrap();
        events.iter().filter(|event| matches!(event, Event::Answered { .. })).count()
    }

    pub fn status(&self) -> GatewayStatus {
        self.gateway.status()
    }

    pub fn shutdown(self) {
        self.gateway.shutdown();
    }

    /// Returns the number of events so far, to wait for later events.
    pub fn event_count(&self) -> usize {
        self.recorder.events.lock().unwrap().len()
    }

    /// Waits for the first matching event from event number `since`.
    pub fn wait_since<T>(&self, since: usize, what: &str, fits: impl Fn(&Event) -> Option<T>) -> T {
        let start = Instant::now();
        let mut events = self.recorder.events.lock().unwrap();
        loop {
            if let Some(found) = events[since..].iter().find_map(&fits) {
                return found;
            }
            let left = DEADLINE.checked_sub(start.elapsed()).unwrap_or_else(|| {
                panic!("no {what}; status {:?}; events {:?}", self.status(), brief(&events))
            });
            events = self.recorder.more.wait_timeout(events, left).unwrap().0;
        }
    }

    pub fn wait<T>(&self, what: &str, fits: impl Fn(&Event) -> Option<T>) -> T {
        self.wait_since(0, what, fits)
    }

    pub fn offered(&self, name: &str) -> Topic {
        self.wait(&format!("offer of {name}"), |event| match event {
            Event::Offered(topic) if topic.name == name => Some(topic.clone()),
            _ => None,
        })
    }

    pub fn wait_withdrawn(&self, name: &str) {
        self.wait(&format!("withdrawal of {name}"), |event| {
            matches!(event, Event::Withdrawn { topic } if topic == name).then_some(())
        });
    }

    pub fn wait_wanted_since(&self, since: usize, name: &str, expected: bool) {
        self.wait_since(since, &format!("Wanted {expected} of {name}"), |event| {
            matches!(event, Event::Wanted { topic, wanted } if topic == name && *wanted == expected)
                .then_some(())
        });
    }

    pub fn refusal(&self, name: &str) -> String {
        self.wait(&format!("refusal of {name}"), |event| match event {
            Event::Refused { topic, reason } if topic == name => Some(reason.clone()),
            _ => None,
        })
    }

    /// Returns the messages of `name` so far.
    pub fn messages(&self, name: &str) -> Vec<(Source, bytes::Bytes)> {
        let events = self.recorder.events.lock().unwrap();
        let message = |event: &Event| match event {
            Event::Message { topic, source, payload, .. } if topic == name => {
                Some((*source, payload.clone()))
            }
            _ => None,
        };
        events.iter().filter_map(message).collect()
    }

    /// Waits for the message with this payload; returns its source.
    pub fn wait_message(&self, name: &str, expected: &[u8]) -> Source {
        self.wait(&format!("message of {name}"), |event| match event {
            Event::Message { topic, source, payload, .. }
                if topic == name && payload[..] == *expected =>
            {
                Some(*source)
            }
            _ => None,
        })
    }

    pub fn events(&self) -> Vec<Event> {
        self.recorder.events.lock().unwrap().clone()
    }
}

fn brief(events: &[Event]) -> Vec<String> {
    let line = |event: &Event| format!("{event:?}").chars().take(200).collect();
    events.iter().map(line).collect()
}

/// Asserts that `text` contains each of `parts`.
pub fn assert_names(text: &str, parts: &[impl AsRef<str> + Debug]) {
    for part in parts {
        assert!(text.contains(part.as_ref()), "'{text}' does not name {part:?}");
    }
}
