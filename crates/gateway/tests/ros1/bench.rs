// SPDX-License-Identifier: Apache-2.0
//! Real masters and real rospy nodes for the tests, and a gateway to watch.

use serde_json::{Value, json};
use std::fmt::Debug;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStdin, Command as Process, Stdio};
use std::sync::{Arc, Condvar, Mutex, OnceLock, Weak};
use std::time::{Duration, Instant};
use tautline_gateway::ros1::{Ros1, Ros1Options};
use tautline_gateway::{Command, Event, Events, Gateway, GatewayStatus, Qos, Source, Topic};

/// How long anything may take before a test fails; ample, since machines may be busy.
pub const DEADLINE: Duration = Duration::from_secs(40);
pub const MAX_MESSAGE: usize = 1_000_000;

const PACKAGES: &str = "python3-roslaunch python3-rostopic python3-rospy python3-rosbag \
    python3-std-msgs python3-sensor-msgs python3-geometry-msgs python3-tf2-msgs";

fn ros(program: &str, master: &str, scratch: &Path) -> Process {
    let mut process = Process::new(program);
    process
        .env("PATH", "/usr/bin:/bin:/usr/sbin:/sbin")
        .env("ROS_MASTER_URI", master)
        .env("ROS_IP", "127.0.0.1")
        .env("ROS_HOME", scratch)
        .env("ROS_LOG_DIR", scratch)
        .env("PYTHONUNBUFFERED", "1")
        .stdin(Stdio::piped());
    process
}

/// Fails the test where ROS 1 is not installed.
fn require_ros() {
    static FOUND: OnceLock<bool> = OnceLock::new();
    let found = FOUND.get_or_init(|| {
        let imports = "import rospy, rosgraph, std_msgs.msg, sensor_msgs.msg, geometry_msgs.msg";
        let python = Process::new("/usr/bin/python3").args(["-c", imports]).output();
        Path::new("/usr/bin/roscore").exists() && python.is_ok_and(|out| out.status.success())
    });
    assert!(
        *found,
        "these tests need Debian's ROS 1: apt-get install -y --no-install-recommends {PACKAGES}"
    );
}

/// Waits until `found` gives something.
pub fn wait_for<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(start.elapsed() < DEADLINE, "in {DEADLINE:?} there was no {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A port that was free a moment ago.
pub fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port()
}

/// A running master; ends when dropped, and also when the test process does.
pub struct Master {
    pub uri: String,
    port: u16,
    child: Child,
    _scratch: tempfile::TempDir,
}

impl Master {
    /// The whole `roscore`, shared by the tests that run at the moment.
    pub fn shared() -> Arc<Self> {
        static SHARED: Mutex<Weak<Master>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(running) = shared.upgrade() {
            return running;
        }
        let started = Arc::new(Self::start("roscore -p", free_port()));
        *shared = Arc::downgrade(&started);
        started
    }

    /// The master alone, as roscore runs it: for tests that end it.
    pub fn alone(port: u16) -> Self {
        Self::start("rosmaster --core -p", port)
    }

    fn start(command: &str, port: u16) -> Self {
        require_ros();
        let scratch = tempfile::tempdir().unwrap();
        let uri = format!("http://127.0.0.1:{port}");
        // Ends its child when its input ends, that is, when we do.
        let script =
            format!("{command} {port} >/dev/null 2>&1 & read wait; kill $!; wait $! 2>/dev/null");
        let child = ros("/bin/sh", &uri, scratch.path()).args(["-c", &script]).spawn().unwrap();
        let master = Self { uri, port, child, _scratch: scratch };
        wait_for("answer of the master", || TcpStream::connect(("127.0.0.1", port)).ok());
        master
    }

    pub fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for Master {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// A rospy node under orders; killed when dropped.
pub struct Agent {
    child: Child,
    orders: ChildStdin,
    reports: Arc<Mutex<Vec<Value>>>,
    _scratch: tempfile::TempDir,
}

impl Agent {
    pub fn start(master_uri: &str, name: &str) -> Self {
        require_ros();
        let scratch = tempfile::tempdir().unwrap();
        // The node's tests come from a neighbouring crate.
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../gateway/tests/ros1/agent.py");
        let mut child = ros("/usr/bin/python3", master_uri, scratch.path())
            .args([script, name])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
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

    /// Gives an order and waits for the report of it.
    pub fn order(&mut self, order: Value) -> Value {
        let seen = self.reports.lock().unwrap().len();
        writeln!(self.orders, "{order}").unwrap();
        let done = order["do"].as_str().unwrap();
        wait_for(&format!("report of {order}"), || {
            let reports = self.reports.lock().unwrap();
            let found = reports[seen..].iter().find(|report| report["did"] == done).cloned();
            assert!(found.is_some() || !ended(&reports), "the agent ended upon {order}");
            found
        })
    }

    pub fn advertise(&mut self, topic: &str, type_name: &str, latch: bool) -> Value {
        self.order(json!({"do": "advertise", "topic": topic, "type": type_name, "latch": latch}))
    }

    /// Publishes a message with these fields; gives its bytes.
    pub fn send(&mut self, topic: &str, fields: Value) -> Vec<u8> {
        bytes_of(&self.order(json!({"do": "send", "topic": topic, "fields": fields})))
    }

    pub fn subscribe(&mut self, topic: &str, type_name: &str) {
        self.order(json!({"do": "subscribe", "topic": topic, "type": type_name}));
    }

    pub fn connections(&mut self, topic: &str) -> u64 {
        self.order(json!({"do": "connections", "topic": topic}))["count"].as_u64().unwrap()
    }

    /// Reports of messages received on `topic`.
    pub fn received(&self, topic: &str) -> Vec<Value> {
        let reports = self.reports.lock().unwrap();
        reports.iter().filter(|report| report["got"] == topic).cloned().collect()
    }

    /// The first report that fits.
    pub fn wait(&self, what: &str, fits: impl Fn(&Value) -> bool) -> Value {
        wait_for(what, || {
            let reports = self.reports.lock().unwrap();
            let found = reports.iter().find(|found| fits(found)).cloned();
            assert!(found.is_some() || !ended(&reports), "the agent ended before its {what}");
            found
        })
    }

    /// Leaves in peace: unregisters first.
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

/// The bytes of a message in a report.
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

/// A gateway and what it told.
pub struct Watched {
    gateway: Box<Ros1>,
    recorder: Arc<Recorder>,
}

impl Watched {
    /// A gateway of node `/NAME` that may let out topics below `/NAME/`.
    pub fn start(master_uri: &str, name: &str) -> Self {
        let prefix = format!("/{name}/");
        Self::selecting(master_uri, name, move |topic| topic.starts_with(&prefix))
    }

    pub fn selecting(
        master_uri: &str,
        name: &str,
        selector: impl Fn(&str) -> bool + Send + Sync + 'static,
    ) -> Self {
        let options = Ros1Options {
            master_uri: master_uri.into(),
            host: "127.0.0.1".into(),
            node_name: format!("/tautline_{name}"),
            tautline_name: name.into(),
            max_message: MAX_MESSAGE,
        };
        let recorder = Arc::new(Recorder::default());
        let gateway = Ros1::start(options, Arc::new(selector), recorder.clone()).unwrap();
        Self { gateway: Box::new(gateway), recorder }
    }

    pub fn subscribe(&self, topic: &str) {
        self.gateway.handle(Command::Subscribe { topic: topic.into() });
    }

    pub fn unsubscribe(&self, topic: &str) {
        self.gateway.handle(Command::Unsubscribe { topic: topic.into() });
    }

    pub fn advertise(&self, topic: &Topic) {
        self.gateway.handle(Command::Advertise { topic: topic.clone() });
    }

    pub fn unadvertise(&self, topic: &str) {
        self.gateway.handle(Command::Unadvertise { topic: topic.into() });
    }

    pub fn publish(&self, topic: &str, source: u32, payload: impl Into<bytes::Bytes>) {
        let (source, payload) = (Source(source), payload.into());
        self.gateway.handle(Command::Publish { topic: topic.into(), source, payload });
    }

    pub fn status(&self) -> GatewayStatus {
        self.gateway.status()
    }

    pub fn shutdown(self) {
        self.gateway.shutdown();
    }

    /// How many events there were, to wait for later ones.
    pub fn seen(&self) -> usize {
        self.recorder.events.lock().unwrap().len()
    }

    /// The first event that fits, counted from event number `since`.
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

    /// Messages of `name` so far.
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

    /// Waits for the message with this payload; gives its source.
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

/// `std_msgs/String` under a name.
pub fn string_topic(name: &str, latched: bool) -> Topic {
    Topic {
        name: name.into(),
        type_name: "std_msgs/String".into(),
        type_hash: "992ce8a1687cec8c8bd883ec73ca41d1".into(),
        definition: "string data\n".into(),
        qos: Qos { transient_local: latched, reliable: true },
    }
}

/// A serialized `std_msgs/String`.
pub fn string_message(text: &str) -> Vec<u8> {
    let mut bytes = u32::try_from(text.len()).unwrap().to_le_bytes().to_vec();
    bytes.extend_from_slice(text.as_bytes());
    bytes
}

/// Asserts that `text` holds each of `parts`.
pub fn assert_names(text: &str, parts: &[impl AsRef<str> + Debug]) {
    for part in parts {
        assert!(text.contains(part.as_ref()), "'{text}' does not name {part:?}");
    }
}
