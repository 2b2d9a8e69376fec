// SPDX-License-Identifier: Apache-2.0
//! A second implementation of the wire format, written from spec/protocol.md alone: tested against
//! the vectors, and as a peer of real daemons.

use crate::PROGRAM;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use tautline::keys;
use tautline_testkit::ros;
use tautline_testkit::ros::bytes_of;
use tautline_testkit::ros::ros1;
use tautline_testkit::ros::ros1::Master;
use tautline_testkit::running::{Daemon, Place, free_port, wait_for};

const STRING: &str = "std_msgs/String";

/// Returns a program of spec/ for Debian's Python; fails the test if it cannot run.
fn program(name: &str) -> Command {
    let mut python = Command::new("/usr/bin/python3");
    let found = python.args(["-c", "import cryptography"]).output();
    assert!(
        found.is_ok_and(|found| found.status.success()),
        "spec/{name} needs: apt-get install -y --no-install-recommends python3-cryptography"
    );
    let mut command = Command::new("/usr/bin/python3");
    command.arg("-B").arg(spec().join(name)).stdin(Stdio::null());
    command
}

fn spec() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../spec")
}

/// spec/peer.py; killed when dropped.
struct Peer {
    child: Child,
    events: Arc<Mutex<Vec<Value>>>,
}

impl Drop for Peer {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the peer's last events:");
            let events = self.events.lock().unwrap();
            events.iter().rev().take(40).rev().for_each(|event| eprintln!("{event}"));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Peer {
    fn start(pair: &Pair, arguments: &[&str]) -> Self {
        let mut command = program("peer.py");
        command.args(["--name", "robot", "--seconds", "600"]);
        command.args(["--key", pair.place.path("robot.key").to_str().unwrap()]);
        command.args(["--peer", &format!("127.0.0.1:{}", pair.base_port)]);
        command.args(["--peer-key", &pair.base_key]);
        command.args(["--listen", &format!("127.0.0.1:{}", pair.robot_port)]);
        let mut child = command.args(arguments).stdout(Stdio::piped()).spawn().unwrap();
        let events = Arc::new(Mutex::new(Vec::new()));
        let (kept, lines) = (events.clone(), BufReader::new(child.stdout.take().unwrap()));
        std::thread::spawn(move || {
            for line in lines.lines().map_while(Result::ok) {
                kept.lock().unwrap().push(serde_json::from_str(&line).unwrap());
            }
        });
        Self { child, events }
    }

    /// Waits for an event of this kind that matches.
    fn wait(&self, kind: &str, fits: impl Fn(&Value) -> bool) -> Value {
        wait_for(format!("'{kind}' at the peer"), || {
            let events = self.events.lock().unwrap();
            events.iter().find(|event| event["event"] == kind && fits(event)).cloned()
        })
    }

    /// Waits for a packet from the daemon with a frame of this kind that matches.
    fn wait_for_frame(&self, kind: &str, fits: impl Fn(&Value) -> bool) {
        self.wait("got", |event| {
            let frames = event["frames"].as_array().into_iter().flatten();
            frames.clone().any(|frame| frame == kind || frame.get(kind).is_some_and(&fits))
        });
    }

    fn assert_understood_all(&self) {
        let events = self.events.lock().unwrap();
        let refused = events.iter().find(|event| event["event"] == "refused");
        assert!(refused.is_none(), "{refused:?}");
    }
}

/// The keys of the peer, called robot, and of a daemon, called base, and their ports.
struct Pair {
    place: Place,
    robot_key: String,
    base_key: String,
    robot_port: u16,
    base_port: u16,
}

impl Pair {
    fn new() -> Self {
        let place = Place::new(PROGRAM);
        let key = |name: &str| keys::generate(&place.path(name)).unwrap().to_string();
        let (robot_key, base_key) = (key("robot.key"), key("base.key"));
        Self { place, robot_key, base_key, robot_port: free_port(), base_port: free_port() }
    }

    /// `robot` contains the peer's options in addition to its key.
    fn start_base(&self, robot: &str, lines: &str) -> Daemon {
        let (port, key) = (self.base_port, &self.robot_key);
        let peers = format!("peers: {{ robot: {{ key: \"{key}\"{robot} }} }}");
        self.place.start("base", &format!("listen: \"127.0.0.1:{port}\"\n{peers}\n{lines}"))
    }
}

#[test]
fn another_implementation_agrees_with_the_vectors() {
    let run =
        program("check_vectors.py").arg("--vectors").arg(spec().join("vectors")).output().unwrap();
    let told = String::from_utf8_lossy(&run.stdout);
    let errors = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success() && told.ends_with(" 0 differences\n"), "{told}{errors}");
}

#[test]
fn another_implementation_exchanges_topics_with_a_daemon() {
    let (pair, master) = (Pair::new(), Master::start_alone(ros::free_port()));
    let lines = format!(
        "diagnostics: true\ntopics: {{ /heard: {{}} }}\n\
         ros1: {{ master: \"{}\", host: 127.0.0.1 }}",
        master.uri
    );
    let base = pair.start_base(", accept: /spoken", &lines);
    let peer = Peer::start(&pair, &[]);
    assert_eq!(peer.wait("answered", |_| true)["verdict"], "welcome");
    base.wait_for_state("robot", "up");
    peer.wait_for_frame("ping", |_| true);
    peer.wait_for_frame("ack", |ack| ack["link"] == 0 && ack["ranges"][0][1].as_u64() >= Some(1));
    peer.wait_for_frame("clock", |clock| {
        clock["least_us"].is_u64() && clock["wall_us"].is_string()
    });
    wait_for("the peer's clock, which is this machine's", || {
        let clock = base.status().peers.remove(0).clock?;
        clock.offset_ms.filter(|offset| offset.abs() <= clock.bound_ms)
    });

    // The peer's topic is subscribed and reaches rospy with its definition.
    let mut node = ros1::start(&master.uri, "/node");
    node.subscribe("/spoken", STRING);
    let control = |kind: &'static str| move |event: &Value| event["control"].get(kind).is_some();
    peer.wait("told", control("get_definition"));
    peer.wait("told", |event| event["control"]["want"] == json!({"channel": 1, "wanted": true}));
    let spoken = wait_for("what the peer says", || node.received("/spoken").first().cloned());
    assert_eq!(bytes_of(&spoken), b"\x05\0\0\0hello");

    // The peer subscribes to the advertised topic and receives its messages.
    node.advertise("/heard", STRING, false);
    let offered = peer.wait("told", |event| event["control"]["offer"]["name"] == "/heard");
    assert_eq!(offered["control"]["offer"]["type"], STRING);
    let defined = peer.wait("told", control("definition"));
    assert_eq!(defined["control"]["definition"]["text"], "string data\n");
    let heard = || {
        node.send("/heard", json!({"data": "x".repeat(4000)}));
        let events = peer.events.lock().unwrap();
        events.iter().find(|it| it["event"] == "message" && it["topic"] == "/heard").cloned()
    };
    let heard = wait_for("what the daemon says", heard);
    let expected = [&4000_u32.to_le_bytes()[..], &[b'x'; 4000]].concat();
    assert_eq!(bytes_of(&json!({"hex": heard["payload"]})), expected);

    assert!(base.status().packets_refused.is_empty(), "{:?}", base.status().packets_refused);
    assert_eq!(base.peer_state("robot"), "up");
    peer.assert_understood_all();
}

#[test]
fn another_implementation_answers_the_initiation_of_a_daemon() {
    let pair = Pair::new();
    let peer = Peer::start(&pair, &["--wait"]);
    let base = pair.start_base(&format!(", address: \"127.0.0.1:{}\"", pair.robot_port), "");
    let called = peer.wait("called", |_| true);
    assert_eq!((&called["name"], &called["key"]), (&json!("base"), &json!(pair.base_key)));
    base.wait_for_state("robot", "up");
    peer.wait_for_frame("ack", |_| true);
    assert!(base.status().packets_refused.is_empty(), "{:?}", base.status().packets_refused);
    peer.assert_understood_all();
}

#[test]
fn another_implementation_initiates_with_a_cookie_under_flood() {
    let pair = Pair::new();
    let base = pair.start_base("", "");
    let peer = Peer::start(&pair, &["--flood"]);
    peer.wait("cookie", |_| true);
    base.wait_for_state("robot", "up");
    peer.assert_understood_all();
}

#[test]
fn another_implementation_is_followed_to_a_new_address() {
    let pair = Pair::new();
    let base = pair.start_base("", "");
    let peer = Peer::start(&pair, &["--move"]);
    let moved = peer.wait("moved", |_| true);
    let address = format!("127.0.0.1:{}", moved["address"][1]);
    peer.wait_for_frame("challenge", |_| true);
    wait_for("the link leads there", || (base.status().links[0].remote == address).then_some(()));
    base.wait_for_state("robot", "up");
    assert!(base.status().packets_refused.is_empty(), "{:?}", base.status().packets_refused);
    peer.assert_understood_all();
}
