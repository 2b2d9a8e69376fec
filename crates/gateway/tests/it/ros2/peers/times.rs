// SPDX-License-Identifier: Apache-2.0
//! How long gateway and peers take to meet. A measurement, not a test:
//! `cargo test -p tautline-gateway --test it meeting_times -- --ignored --nocapture`

use super::{Peer, Reach, STRING, SizedTexts, join, message, until_read};
use serde_json::json;
use std::time::{Duration, Instant};
use tautline_gateway::Qos;
use tautline_gateway::ros2::DiscoveryRange;
use tautline_testkit::ros::Agent;
use tautline_testkit::ros::ros2::{runs_in_own_network, string_topic};

const ROUNDS: usize = 50;

fn start(peer: Peer, reach: Reach) -> Agent {
    let mut agent = peer.start(reach, "timed");
    agent.publisher("/there", STRING, json!({}));
    agent.listener("/back", json!({}));
    agent
}

/// Starts a gateway and waits for a message each way.
fn meet(peer: Peer, reach: Reach, agent: Option<&mut Agent>) -> Duration {
    let begun = Instant::now();
    let gateway = join(0, DiscoveryRange::Machine, "times");
    let mut fresh = None;
    let agent = agent.unwrap_or_else(|| fresh.insert(start(peer, reach)));
    gateway.subscribe("/there");
    gateway.advertise(&string_topic("/back", Qos::default()));
    let seen = agent.received("/back").len();
    until_read(&gateway, "/there", || agent.send_text("/there", 1));
    tautline_testkit::ros::wait_for("message back", || {
        gateway.publish("/back", 0, message(1));
        (agent.received("/back").len() > seen).then_some(())
    });
    let took = begun.elapsed();
    gateway.shutdown();
    took
}

fn print_median(what: &str, mut all: Vec<Duration>) {
    all.sort_unstable();
    let at = |share: f64| all[((all.len() - 1) as f64 * share) as usize].as_secs_f64();
    println!(
        "{what}: least {:.2}, median {:.2}, 90 % {:.2}, most {:.2} s of {}",
        at(0.0),
        at(0.5),
        at(0.9),
        at(1.0),
        all.len()
    );
}

#[test]
#[ignore = "a measurement of some minutes"]
fn meeting_times() {
    if !runs_in_own_network() {
        return;
    }
    for peer in Peer::ALL {
        for reach in [Reach::Network, Reach::Loopback] {
            let fresh = (0..ROUNDS).map(|_| meet(peer, reach, None)).collect();
            print_median(&format!("{peer:?} {reach:?}, both begin at once"), fresh);
            let mut agent = start(peer, reach);
            let there = (0..ROUNDS).map(|_| meet(peer, reach, Some(&mut agent))).collect();
            print_median(&format!("{peer:?} {reach:?}, there already"), there);
        }
    }
}
