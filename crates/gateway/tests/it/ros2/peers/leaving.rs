// SPDX-License-Identifier: Apache-2.0
//! Peers that end without a goodbye.

use super::{Peer, Reach, STRING, SizedTexts, join, message, sizes_read, until_got, until_read};
use serde_json::json;
use std::time::Instant;
use tautline_gateway::ros2::DiscoveryRange;
use tautline_gateway::{Event, Qos};
use tautline_testkit::ros::ros2::{runs_in_own_network, string_topic};
use tautline_testkit::ros::{Agent, Watched, wait_for};

fn kill(agent: &Agent) {
    agent.signal("-KILL");
}

fn is_withdrawn(gateway: &Watched, name: &str) -> bool {
    let fits = |event: &Event| matches!(event, Event::Withdrawn { topic } if topic == name);
    gateway.events().iter().any(fits)
}

#[test]
fn offers_and_subscriptions_of_a_killed_participant_end_with_its_lease() {
    if !runs_in_own_network() {
        return;
    }
    // This range finds peers of either reach.
    let gateway = join(0, DiscoveryRange::Machine, "lease");
    let mut agents = Vec::new();
    for peer in Peer::ALL {
        for reach in [Reach::Network, Reach::Loopback] {
            let name = format!("{peer:?}_{reach:?}");
            let mut agent = peer.start(reach, &name);
            gateway.advertise(&string_topic(&format!("/to_{name}"), Qos::default()));
            agent.publisher(&format!("/from_{name}"), STRING, json!({}));
            agent.listener(&format!("/to_{name}"), json!({}));
            agents.push((agent, name));
        }
    }
    for (_, name) in &agents {
        gateway.offered(&format!("/from_{name}"));
        gateway.wait_wanted_since(0, &format!("/to_{name}"), true);
    }
    let seen = gateway.event_count();
    let start = Instant::now();
    agents.iter().for_each(|(agent, _)| kill(agent));
    let mut there: Vec<_> = agents.iter().map(|(_, name)| name).collect();
    wait_for("withdrawal of all", || {
        there.retain(|name| {
            let gone = is_withdrawn(&gateway, &format!("/from_{name}"));
            if gone {
                println!("{name} was gone after {:.1} s", start.elapsed().as_secs_f64());
            }
            !gone
        });
        there.is_empty().then_some(())
    });
    for (_, name) in &agents {
        gateway.wait_wanted_since(seen, &format!("/to_{name}"), false);
    }
}

#[test]
fn participants_that_remain_are_served_while_many_vanish() {
    if !runs_in_own_network() {
        return;
    }
    const MANY: usize = 20;
    let gateway = join(0, DiscoveryRange::Machine, "many");
    gateway.advertise(&string_topic("/to_all", Qos::default()));
    gateway.subscribe("/stays");
    let mut stays = Peer::Kilted.start(Reach::Network, "stays");
    stays.publisher("/stays", STRING, json!({}));
    stays.listener("/to_all", json!({}));
    let mut vanish = Vec::new();
    for number in 0..MANY {
        let mut agent = Peer::Cyclone10.start(Reach::Network, "");
        agent.publisher(&format!("/vanishes{number}"), STRING, json!({}));
        // Messages are under way to it when it vanishes.
        agent.listener("/to_all", json!({}));
        vanish.push(agent);
    }
    for number in 0..MANY {
        gateway.subscribe(&format!("/vanishes{number}"));
        gateway.offered(&format!("/vanishes{number}"));
    }
    until_read(&gateway, "/stays", || stays.send_text("/stays", 0));
    for agent in vanish.iter().chain([&stays]) {
        until_got(agent, "/to_all", || gateway.publish("/to_all", 0, message(0)));
    }
    vanish.iter().for_each(kill);
    let mut size = 0;
    wait_for("withdrawal of all that vanished", || {
        size += 1;
        stays.send_text("/stays", size);
        gateway.publish("/to_all", 0, message(size));
        wait_for("message from the one that stays", || {
            (sizes_read(&gateway, "/stays").last() == Some(&size)).then_some(())
        });
        wait_for("message at the one that stays", || {
            (stays.sizes_got("/to_all").last() == Some(&size)).then_some(())
        });
        let mut all = (0..MANY).map(|number| format!("/vanishes{number}"));
        all.all(|name| is_withdrawn(&gateway, &name)).then_some(())
    });
    println!("{size} messages each way until all were withdrawn");
}
