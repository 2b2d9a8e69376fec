// SPDX-License-Identifier: Apache-2.0
//! A hostile peer with a valid key harms only itself. The fuzz target `hostile_peer` runs scripts of
//! the same kind without end.

use tautline_proto::SecretKey;
use tautline_proto::wire::frame::put_held;
use tautline_proto::wire::relay::Held;
use tautline_testkit::attacker;
use tautline_testkit::attacker::team::{Team, choices};
use tautline_testkit::net;
use tautline_testkit::net::Rng;

/// Scripts in the test; the fuzz target runs more.
const SCRIPTS: u64 = 40;

#[test]
fn arbitrary_packets_of_a_peer_do_not_harm_others() {
    for seed in 1..=SCRIPTS {
        let mut random = Rng(seed);
        let draw = &mut |limit: u64| random.below(limit);
        Team::new(seed.is_multiple_of(2)).play(draw, &mut || {});
    }
}

#[test]
fn a_script_is_read_from_bytes_and_ends_with_them() {
    let mut draw = choices(&[1, 2, 0, 0, 1, 0, 7]);
    assert_eq!((draw(16), draw(2), draw(1000), draw(256)), (1, 0, 256, 7));
    assert_eq!((draw(16), draw(1 << 40)), (0, 0), "zeros behind the end");
}

#[test]
fn a_peer_without_reports_does_not_delay_others() {
    let longest = Team::new(false).max_delay_with_mute_peer();
    assert!(longest < 20 * net::MS, "an honest message took {longest:?}");
}

#[test]
fn the_queue_for_a_node_behind_a_relay_is_bounded() {
    let mut attacked = attacker::Attacked::new(net::defaults());
    let far = SecretKey::insecure("far").public();
    let peer = attacked.endpoint.add_peer("far", far).expect("a free name");
    attacked
        .endpoint
        .peer_mut(peer)
        .add_relayed_link(attacked.now, attacker::PEER)
        .expect("a link");
    let mut held = Vec::new();
    put_held(&Held { to: far.short_name(), bytes: u64::MAX, from: None }, &mut held);
    for _ in 0..20 {
        attacked.packet(&held);
        attacked.now = attacked.now + 200 * net::MS;
        attacked.packet(&[]);
    }
    assert!(attacked.endpoint.peer(attacker::PEER).up);
}
