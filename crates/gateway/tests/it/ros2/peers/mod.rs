// SPDX-License-Identifier: Apache-2.0
//! The gateway together with every program that it has to work with.
//!
//! No packages of Humble are available here. Debian's Cyclone DDS and Fast DDS of its time stand in
//! for it, without type hashes and with long GUIDs, and with `ROS_LOCALHOST_ONLY`, which Humble has
//! in place of discovery ranges.

mod departing;
mod domains;
mod hostile;
mod leaving;
mod meeting;
mod role;
mod times;

use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command as Process;
use std::sync::Arc;
use tautline_gateway::ros2::{DiscoveryRange, Ros2, Ros2Options};
use tautline_gateway::types::installed::InstalledTypes;
use tautline_testkit::ros::ros2::{installation, rclpy, string_message, string_topic};
use tautline_testkit::ros::{Agent, Watched, wait_for};

const STRING: &str = "std_msgs/msg/String";
/// Larger than any message of these tests.
const MAX_MESSAGE: usize = 5_000_000;
const HERE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/ros2/peers");

/// Programs that speak DDS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Peer {
    /// rclpy on Fast DDS 3.2.
    Kilted,
    /// rclpy on Fast DDS 2.14.
    Jazzy,
    /// Cyclone DDS 11.0, in Python.
    Cyclone11,
    /// Debian's Cyclone DDS 0.10, in C.
    Cyclone10,
    /// Debian's Fast DDS 2.9, in C++.
    FastDds2,
}

/// How far a program looks for others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// The default: discovery by multicast on the network.
    Network,
    /// Over loopback and without multicast.
    Loopback,
    /// By the setting of Humble, which Cyclone DDS lacks.
    LocalhostOnly,
}

/// Cyclone DDS over loopback and without multicast.
const CYCLONE_LOOPBACK: &str = "<CycloneDDS><Domain><General>\
    <Interfaces><NetworkInterface name='lo'/></Interfaces><AllowMulticast>false</AllowMulticast>\
    </General><Discovery><ParticipantIndex>auto</ParticipantIndex>\
    <Peers><Peer address='127.0.0.1'/></Peers></Discovery></Domain></CycloneDDS>";

impl Peer {
    const ALL: [Self; 5] =
        [Self::Kilted, Self::Jazzy, Self::Cyclone11, Self::Cyclone10, Self::FastDds2];

    /// Starts a program of this kind in domain 0.
    fn start(self, reach: Reach, name: &str) -> Agent {
        begin(self.program(reach, 0, name))
    }

    fn program(self, reach: Reach, domain: u32, name: &str) -> Process {
        let mut program = match self {
            Self::Kilted => rclpy(domain, "kilted", name),
            Self::Jazzy => rclpy(domain, "jazzy", name),
            Self::Cyclone11 => {
                let mut program = Process::new(installation("cyclone").join("bin/python"));
                program.arg(format!("{HERE}/cyclone.py"));
                program
            }
            Self::Cyclone10 => Process::new(compiled("cyclone10", CYCLONE10)),
            Self::FastDds2 => Process::new(compiled("fastdds2", FASTDDS2)),
        };
        match (self, reach) {
            (_, Reach::LocalhostOnly) | (Self::FastDds2, Reach::Loopback) => {
                program.env("ROS_LOCALHOST_ONLY", "1")
            }
            (Self::Kilted | Self::Jazzy, Reach::Network) => {
                program.env("ROS_AUTOMATIC_DISCOVERY_RANGE", "SUBNET")
            }
            (Self::Kilted | Self::Jazzy, Reach::Loopback) => {
                program.env("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
            }
            (_, Reach::Network) => program.env_remove("CYCLONEDDS_URI"),
            (_, Reach::Loopback) => program.env("CYCLONEDDS_URI", CYCLONE_LOOPBACK),
        };
        program.env("ROS_DOMAIN_ID", domain.to_string());
        program
    }
}

fn begin(program: Process) -> Agent {
    Agent::start(program, tempfile::tempdir().unwrap())
}

/// How agents are compiled, in a folder that has the files of this one, to `agent`.
const CYCLONE10: &str = "idlc -l c ros.idl && \
    cc -O1 -Wall -Werror -I. -o agent cyclone.c ros.c -lddsc";
const FASTDDS2: &str = "c++ -std=c++17 -O1 -Wall -Werror -o agent fastdds.cpp -lfastrtps -lfastcdr";

/// An agent, compiled once for all tests and again when the files next to this one have changed.
fn compiled(name: &str, command: &str) -> PathBuf {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-agent"));
    let changed = |path: &Path| std::fs::metadata(path).and_then(|it| it.modified()).ok();
    let files = std::fs::read_dir(HERE).unwrap().map(|entry| entry.unwrap().path());
    let latest = files.filter_map(|path| changed(&path)).max();
    if changed(&program) > latest {
        return program;
    }
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let script = format!("cp {HERE}/* . && {command}");
    let output = Process::new("sh").args(["-c", &script]).current_dir(&folder).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: make ros2 installs what it needs: {said}");
    // Another test may be running the existing program.
    std::fs::rename(folder.path().join("agent"), &program).unwrap();
    program
}

/// A gateway of node `/tautline_NAME` in a domain.
fn join(domain: u32, range: DiscoveryRange, name: &str) -> Watched {
    let options = options(domain, range, name);
    Watched::start(|events| Ros2::start(options, Arc::new(|_| true), events).unwrap())
}

fn options(domain: u32, range: DiscoveryRange, name: &str) -> Ros2Options {
    Ros2Options {
        domain,
        range,
        node_name: format!("/tautline_{name}"),
        tautline_name: name.into(),
        max_message: MAX_MESSAGE,
        installed: InstalledTypes::new(vec![installation("kilted")]),
        deliveries: None,
        goals: None,
    }
}

/// The String of this size that agents send and expect, as CDR.
fn message(size: usize) -> Vec<u8> {
    string_message(&(0..size).map(|at| char::from(b'a' + (at % 23) as u8)).collect::<String>())
}

/// The size of a [`message`] that was read.
fn size_of(topic: &str, payload: &[u8]) -> usize {
    let size = u32::from_le_bytes(payload[4..8].try_into().unwrap()) as usize - 1;
    // The last two bytes of the encapsulation may state the padding.
    let sound =
        payload[..2] == [0, 1] && super::equal_without_padding(&payload[4..], &message(size)[4..]);
    assert!(sound, "{topic}: {size} bytes came otherwise");
    size
}

/// Sizes of all messages that were read on a topic, in their order.
fn sizes_read(gateway: &Watched, topic: &str) -> Vec<usize> {
    gateway.messages(topic).iter().map(|(_, payload)| size_of(topic, payload)).collect()
}

/// What only agents of these tests do.
trait SizedTexts {
    fn send_text(&mut self, topic: &str, size: usize);

    /// Starts a subscriber that reports of each message its size, and whether it is intact.
    fn listener(&mut self, topic: &str, qos: Value);

    /// Sizes of the texts received, in their order.
    fn sizes_got(&self, topic: &str) -> Vec<usize>;
}

impl SizedTexts for Agent {
    fn send_text(&mut self, topic: &str, size: usize) {
        self.order(json!({"do": "send_large", "topic": topic, "size": size}));
    }

    fn listener(&mut self, topic: &str, qos: Value) {
        self.order(json!({
            "do": "subscribe", "topic": topic, "type": STRING, "qos": qos, "brief": true
        }));
    }

    fn sizes_got(&self, topic: &str) -> Vec<usize> {
        let size = |report: Value| {
            assert_eq!(report["sound"], true, "{report}");
            report["size"].as_u64().unwrap() as usize
        };
        self.received(topic).into_iter().map(size).collect()
    }
}

/// Sends until something is read. Before both ends have matched, messages of volatile topics are
/// lost, as ever in DDS.
fn until_read(gateway: &Watched, topic: &str, mut send: impl FnMut()) {
    wait_for(format!("message of {topic} read"), || {
        send();
        (!gateway.messages(topic).is_empty()).then_some(())
    });
}

/// Like [`until_read`], in the other direction.
fn until_got(agent: &Agent, topic: &str, mut send: impl FnMut()) {
    wait_for(format!("message of {topic} at a subscriber"), || {
        send();
        (!agent.received(topic).is_empty()).then_some(())
    });
}
