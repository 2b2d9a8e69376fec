// SPDX-License-Identifier: Apache-2.0
//! Real nodes with settings of Fast DDS under which they are not seen: they are reported.

use super::STRING;
use serde_json::json;
use std::process::{Child, Command as Process, Stdio};
use tautline_gateway::ros2::DiscoveryRange;
use tautline_testkit::ros::ros2::{installation, rclpy, runs_in_own_network, watch};
use tautline_testkit::ros::{Agent, Watched, wait_for};

/// Starts a node with this setting in place of the one that the tests use.
fn start(version: &str, range: &str, transports: &str) -> Agent {
    let mut program = rclpy(0, version, &format!("{version}_{transports}"));
    program
        .env("ROS_AUTOMATIC_DISCOVERY_RANGE", range)
        .env("FASTDDS_BUILTIN_TRANSPORTS", transports);
    Agent::start(program, tempfile::tempdir().unwrap())
}

/// Killed when dropped.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn discovery_server() -> Server {
    let folder = installation("kilted");
    let libraries = ["lib", "lib/python3.11/site-packages/ros_fastdds.libs"];
    let libraries = libraries.map(|it| folder.join(it).display().to_string()).join(":");
    let mut server = Process::new(folder.join("bin/fast-discovery-server"));
    // As `fastdds discovery` starts it.
    server.args(["42", "-i", "0", "-l", "127.0.0.1", "-p", "11811"]);
    server.stdout(Stdio::null()).env("LD_LIBRARY_PATH", libraries);
    Server(server.spawn().unwrap())
}

fn wait_for_trouble(gateway: &Watched, words: &[&str]) {
    wait_for(format!("trouble {words:?}"), || {
        let trouble = gateway.status().trouble;
        words.iter().all(|word| trouble.contains(word)).then_some(())
    });
}

#[test]
fn undiscovered_nodes_are_reported_with_a_remedy() {
    if !runs_in_own_network() {
        return;
    }
    let gateway = watch(DiscoveryRange::Machine, "neighbours");
    for version in ["kilted", "jazzy"] {
        let hidden = ["LARGE_DATA", "DEFAULTv6", "SHM"];
        let mut agents = hidden.map(|transports| start(version, "SUBNET", transports));
        let ways = ["over TCP alone", "over IPv6 alone", "in shared memory alone"];
        for ((agent, way), setting) in agents.iter_mut().zip(ways).zip(hidden) {
            let process = format!("process {}", agent.reports()[0]["pid"]);
            wait_for_trouble(&gateway, &[&process, way, setting, "UDPv4 or DEFAULT"]);
        }
    }
    let server = discovery_server();
    wait_for_trouble(&gateway, &["11811", "ROS_DISCOVERY_SERVER", "start them without it"]);
    drop(server);
    let mut seen = start("jazzy", "SUBNET", "DEFAULT");
    seen.publisher("/seen", STRING, json!({}));
    gateway.offered("/seen");
    wait_for("the end of the server", || {
        (!gateway.status().trouble.contains("11811")).then_some(())
    });
    let own = format!("process {}", seen.reports()[0]["pid"]);
    assert!(!gateway.status().trouble.contains(&own), "{}", gateway.status().trouble);
    gateway.shutdown();
}

/// In the range LOCALHOST, ROS 2 replaces the transports by those that we have.
#[test]
fn nodes_with_these_settings_are_discovered_in_the_range_localhost() {
    if !runs_in_own_network() {
        return;
    }
    let gateway = watch(DiscoveryRange::Loopback, "localhost");
    for version in ["kilted", "jazzy"] {
        for transports in ["LARGE_DATA", "DEFAULTv6", "SHM"] {
            let topic = format!("/{version}_{transports}");
            let mut agent = start(version, "LOCALHOST", transports);
            agent.publisher(&topic, STRING, json!({}));
            gateway.offered(&topic);
            gateway.subscribe(&topic);
            wait_for(format!("a message of {topic}"), || {
                agent.order(json!({"do": "send", "topic": topic, "fields": {"data": "in"}}));
                (!gateway.messages(&topic).is_empty()).then_some(())
            });
        }
    }
    assert_eq!(gateway.status().trouble, "");
    gateway.shutdown();
}
