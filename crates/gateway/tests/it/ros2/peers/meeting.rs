// SPDX-License-Identifier: Apache-2.0
//! Messages both ways between the gateway and each peer, in each reach that the peer has.

use super::{Peer, Reach, STRING, SizedTexts, join, message, sizes_read, until_got, until_read};
use serde_json::json;
use tautline_gateway::Qos;
use tautline_gateway::ros2::DiscoveryRange;
use tautline_testkit::ros::ros2::{STRING_HASH, runs_in_own_network, string_topic};
use tautline_testkit::ros::{Agent, Watched, wait_for};

/// Size of the message that is sent until both ends have matched; no other message has it.
const FIRST: usize = 77;
/// Sizes with every remainder modulo four, one of several datagrams, and one of many.
const SIZES: [usize; 10] = [0, 1, 2, 3, 4, 5, 1_000, 100_001, 4_000_000, 6];
const LATCHED: Qos = Qos { transient_local: true, depth: 3, reliable: true, ..QOS };
const QOS: Qos = Qos {
    transient_local: false,
    depth: 1,
    reliable: true,
    deadline: None,
    lifespan: None,
    liveliness: tautline_gateway::Liveliness { manual: false, lease: None, lost: false },
    classes: tautline_gateway::Classes::from_bits(0),
    keeping: 0,
};
const BEST_EFFORT: Qos = Qos { reliable: false, ..QOS };

fn check_discovery(peer: Peer, reach: Reach) {
    if !runs_in_own_network() {
        return;
    }
    let range =
        if reach == Reach::Network { DiscoveryRange::Machine } else { DiscoveryRange::Loopback };
    let gateway = join(0, range, "meets");
    let mut agent = peer.start(reach, "peer");
    check_offers_of_peer(&gateway, &mut agent);
    reads(&gateway, &mut agent);
    publishes(&gateway, &mut agent);
    let seen = gateway.event_count();
    agent.leave();
    for topic in ["/reliable", "/quick", "/latched"] {
        gateway.wait_withdrawn(topic);
    }
    gateway.wait_wanted_since(seen, "/to_reliable", false);
    gateway.shutdown();
}

fn check_offers_of_peer(gateway: &Watched, agent: &mut Agent) {
    let best_effort = json!({"best_effort": true});
    let latched = json!({"latch": true, "depth": 3});
    for (topic, qos) in [("/reliable", json!({})), ("/quick", best_effort), ("/latched", latched)] {
        agent.publisher(topic, STRING, qos);
    }
    // DDS does not announce the depth.
    let latched = Qos { depth: 1, ..LATCHED };
    for (topic, qos) in [("/reliable", QOS), ("/quick", BEST_EFFORT), ("/latched", latched)] {
        let offered = gateway.offered(topic);
        assert_eq!((&*offered.type_name, &*offered.type_hash), (STRING, STRING_HASH), "{topic}");
        assert_eq!(offered.qos, qos, "{topic}");
    }
}

fn reads(gateway: &Watched, agent: &mut Agent) {
    for size in [11, 12, 13, 14, 15] {
        agent.send_text("/latched", size);
    }
    for topic in ["/reliable", "/quick", "/latched"] {
        gateway.subscribe(topic);
    }
    until_read(gateway, "/reliable", || agent.send_text("/reliable", FIRST));
    let mut expected = Vec::new();
    for size in SIZES {
        agent.send_text("/reliable", size);
        expected.push(size);
        wait_for(format!("message of {size} bytes"), || {
            let mut read = sizes_read(gateway, "/reliable");
            read.retain(|size| *size != FIRST);
            (read == expected).then_some(())
        });
    }
    until_read(gateway, "/quick", || agent.send_text("/quick", 5));
    wait_for("last three messages", || {
        (sizes_read(gateway, "/latched") == [13, 14, 15]).then_some(())
    });
}

fn publishes(gateway: &Watched, agent: &mut Agent) {
    for (topic, qos) in [("/to_reliable", QOS), ("/to_quick", BEST_EFFORT), ("/kept", LATCHED)] {
        gateway.advertise(&string_topic(topic, qos));
    }
    agent.listener("/to_reliable", json!({}));
    agent.listener("/to_quick", json!({"best_effort": true}));
    gateway.wait_wanted_since(0, "/to_reliable", true);
    gateway.wait_wanted_since(0, "/to_quick", true);
    for size in [11, 12, 13, 14, 15] {
        gateway.publish("/kept", 0, message(size));
    }
    until_got(agent, "/to_reliable", || gateway.publish("/to_reliable", 0, message(FIRST)));
    let mut expected = Vec::new();
    for size in SIZES {
        gateway.publish("/to_reliable", 0, message(size));
        expected.push(size);
        wait_for(format!("message of {size} bytes at the peer"), || {
            let mut got = agent.sizes_got("/to_reliable");
            got.retain(|size| *size != FIRST);
            (got == expected).then_some(())
        });
    }
    until_got(agent, "/to_quick", || gateway.publish("/to_quick", 0, message(5)));
    // Joins late, and keeps more than it gets.
    agent.listener("/kept", json!({"latch": true, "depth": 30}));
    wait_for("last three messages at the peer", || {
        (agent.sizes_got("/kept") == [13, 14, 15]).then_some(())
    });
}

macro_rules! meetings {
    ($($test:ident: $peer:ident, $reach:ident;)*) => {$(
        #[test]
        fn $test() {
            check_discovery(Peer::$peer, Reach::$reach);
        }
    )*};
}

meetings! {
    kilted_on_its_network: Kilted, Network;
    kilted_over_loopback: Kilted, Loopback;
    kilted_with_localhost_only: Kilted, LocalhostOnly;
    jazzy_on_its_network: Jazzy, Network;
    jazzy_over_loopback: Jazzy, Loopback;
    jazzy_with_localhost_only: Jazzy, LocalhostOnly;
    cyclone_11_on_its_network: Cyclone11, Network;
    cyclone_11_over_loopback: Cyclone11, Loopback;
    cyclone_10_on_its_network: Cyclone10, Network;
    cyclone_10_over_loopback: Cyclone10, Loopback;
    fast_dds_2_on_its_network: FastDds2, Network;
    fast_dds_2_with_localhost_only: FastDds2, LocalhostOnly;
}
