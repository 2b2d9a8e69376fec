// SPDX-License-Identifier: Apache-2.0
//! Real ROS 2 nodes, in a separate network namespace.

use super::{Agent, MAX_MESSAGE, Watched};
use crate::again::in_own_network;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command as Process;
use std::sync::Arc;
use tautline_gateway::ros2::{DiscoveryRange, Ros2, Ros2Options};
use tautline_gateway::types::installed::InstalledTypes;
use tautline_gateway::{Qos, ResourceName, Topic};

/// RIHS01 of std_msgs/msg/String.
pub const STRING_HASH: &str =
    "RIHS01_df668c740482bbd48fb39d76a70dfd4bd59db1288021743503259e948f6b1a18";

/// Prepares a network with an interface in addition to loopback.
const NETWORK: &str = "ip link set lo up && ip link add v0 type veth peer name v1 \
    && ip address add 10.77.0.1/24 dev v0 && ip link set v0 up && ip link set v1 up \
    && ip route add default via 10.77.0.2";

/// Returns `true` in a separate network with an interface in addition to loopback. Elsewhere, runs
/// the calling test in such a network and returns `false`.
pub fn runs_in_own_network() -> bool {
    in_own_network(NETWORK)
}

/// Returns the folder in which a version of ROS 2 or Cyclone DDS is installed.
pub fn installation(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/ros2").join(name);
    assert!(folder.join("bin/python").exists(), "{} is missing: run make ros2", folder.display());
    folder
}

/// Starts a node of this version of ROS 2, in this discovery range.
pub fn start(version: &str, range: &str, name: &str) -> Agent {
    start_in(0, version, range, name)
}

/// Like [`start`], in the given domain.
pub fn start_in(domain: u32, version: &str, range: &str, name: &str) -> Agent {
    let mut program = rclpy(domain, version, name);
    program.env("ROS_AUTOMATIC_DISCOVERY_RANGE", range);
    Agent::start(program, tempfile::tempdir().unwrap())
}

/// Returns the command that starts a node as [`start`] does; its environment must set the discovery range.
pub fn rclpy(domain: u32, version: &str, name: &str) -> Process {
    let mut program = Process::new(installation(version).join("bin/python"));
    program
        .args([concat!(env!("CARGO_MANIFEST_DIR"), "/ros/ros2/agent.py"), name])
        .env("ROS_DOMAIN_ID", domain.to_string())
        .env_remove("LD_LIBRARY_PATH")
        .env_remove("_ROS_WHEELS_BOOTSTRAP_COMPLETE")
        .env("FASTDDS_BUILTIN_TRANSPORTS", "UDPv4");
    program
}

/// Starts a program on Cyclone DDS that pairs requests and replies like rmw_cyclonedds.
pub fn start_cyclone(arguments: &[&str]) -> Agent {
    let mut program = Process::new(installation("cyclone").join("bin/python"));
    program
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/ros/ros2/cyclone.py"))
        .args(arguments)
        .env_remove("LD_LIBRARY_PATH")
        .env_remove("_ROS_WHEELS_BOOTSTRAP_COMPLETE");
    Agent::start(program, tempfile::tempdir().unwrap())
}

/// Orders for an rclpy node.
impl Agent {
    pub fn publisher(&mut self, topic: &str, type_name: &str, qos: Value) {
        self.order(json!({"do": "advertise", "topic": topic, "type": type_name, "qos": qos}));
    }

    pub fn subscriber(&mut self, topic: &str, type_name: &str, qos: Value) {
        self.order(json!({"do": "subscribe", "topic": topic, "type": type_name, "qos": qos}));
    }

    pub fn graph(&mut self, topic: &str) -> Value {
        self.order(json!({"do": "graph", "topic": topic}))
    }
}

/// Starts a gateway of node `/tautline_NAME` that may send everything.
pub fn watch(range: DiscoveryRange, name: &str) -> Watched {
    watch_selecting(range, name, |_| true)
}

/// Starts a gateway that may send the topics that `selector` allows.
pub fn watch_selecting(
    range: DiscoveryRange,
    name: &str,
    selector: impl Fn(&str) -> bool + Send + Sync + 'static,
) -> Watched {
    let selector = move |named: ResourceName<'_>| match named {
        ResourceName::Topic(name) | ResourceName::Service(name) => selector(name),
    };
    let options = options(range, name);
    Watched::start(|events| Ros2::start(options, Arc::new(selector), events).unwrap())
}

/// Starts a gateway that records in `deliveries`, across restarts, which subscribers have which messages.
pub fn watch_keeping(range: DiscoveryRange, name: &str, deliveries: &Path) -> Watched {
    let options = Ros2Options { deliveries: Some(deliveries.into()), ..options(range, name) };
    Watched::start(|events| {
        Ros2::start(options, Arc::new(|_: ResourceName<'_>| true), events).unwrap()
    })
}

fn options(range: DiscoveryRange, name: &str) -> Ros2Options {
    Ros2Options {
        domain: 0,
        range,
        node_name: format!("/tautline_{name}"),
        tautline_name: name.into(),
        max_message: MAX_MESSAGE,
        installed: InstalledTypes::new(vec![installation("kilted")]),
        deliveries: None,
        goals: None,
    }
}

/// Returns a topic of `std_msgs/msg/String`.
pub fn string_topic(name: &str, qos: Qos) -> Topic {
    Topic {
        name: name.into(),
        type_name: "std_msgs/msg/String".into(),
        type_hash: STRING_HASH.into(),
        definition: "string data\n".into(),
        qos,
    }
}

/// Returns a `std_msgs/msg/String` as CDR.
pub fn string_message(text: &str) -> Vec<u8> {
    let length = u32::try_from(text.len() + 1).unwrap().to_le_bytes();
    [&[0, 1, 0, 0], &length[..], text.as_bytes(), &[0]].concat()
}
