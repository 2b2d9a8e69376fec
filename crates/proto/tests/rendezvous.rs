// SPDX-License-Identifier: Apache-2.0
//! Two nodes behind address translators, which find a direct path with the help of a relay.

mod net;

use net::translator::{Filtering, Translator};
use net::*;
use tautline_proto::{DirectPath, Duration, Event, LinkId, Notice, PeerId, Rights};

const SECOND: Duration = Duration::from_secs(1);
const RELAY: usize = 1;
const PEER: PeerId = PeerId(1);

/// Mapping and filtering: full cone, address-restricted, port-restricted and symmetric, in the words of
/// RFC 3489.
const KINDS: [(Filtering, bool); 4] = [
    (Filtering::Independent, false),
    (Filtering::Address, false),
    (Filtering::AddressAndPort, false),
    (Filtering::AddressAndPort, true),
];

/// Robot (0), relay (1) and base (2), the first and the last behind translators of these kinds.
fn behind(kinds: [Option<(Filtering, bool)>; 2], when: DirectPath, pipe: &Pipe) -> Net {
    let mut net = Net::new(7);
    for name in ["robot", "relay", "base"] {
        net.add(name, defaults(), pipe.clone());
    }
    for (node, kind) in [0, 2].into_iter().zip(kinds) {
        let outside = [203, 0, 113, node as u8];
        net.nodes[node].translator =
            kind.map(|(filtering, is_symmetric)| Translator::new(outside, filtering, is_symmetric));
        let at_relay = net.meet_from_afar(RELAY, node);
        let relayed = Rights { relayed: true, max_priority: 255 };
        net.nodes[RELAY].endpoint.set_rights(at_relay, relayed);
        join(&mut net, node, 2 - node, when);
    }
    net
}

/// Gives a node the relay and, through the relay, the other node as peers.
fn join(net: &mut Net, node: usize, other: usize, when: DirectPath) {
    net.meet(node, RELAY);
    let own = net.nodes[node].address;
    net.nodes[node].endpoint.set_own_address(LinkId(0), own);
    let peer = net.meet_from_afar(node, other);
    let now = net.now;
    let endpoint = &mut net.nodes[node].endpoint;
    endpoint.add_relayed_link(now, peer, PeerId(0)).unwrap();
    endpoint.set_direct_path(now, LinkId(1), when);
}

/// Whether packets arrive by the direct link of a node.
fn is_direct(net: &Net, node: usize) -> bool {
    let link = net.nodes[node].endpoint.link(LinkId(1));
    link.up && !link.silent
}

fn are_direct(net: &Net) -> bool {
    is_direct(net, 0) && is_direct(net, 2)
}

fn runs_until_direct(net: &mut Net, limit: Duration) -> bool {
    net.run_until_done(10 * MS, limit, are_direct)
}

#[test]
fn every_pair_of_translators_that_allows_it_finds_a_direct_path() {
    for pipe in [Pipe::of(6_000_000), Pipe { delay: 300 * MS, ..Pipe::lossy(6_000_000, 0.05) }] {
        for (place, robot) in KINDS.into_iter().enumerate() {
            for base in KINDS.into_iter().skip(place) {
                let is_possible = match (robot, base) {
                    ((_, true), (_, true)) => false,
                    ((filtering, _), (_, true)) => filtering != Filtering::AddressAndPort,
                    _ => true,
                };
                let kinds = [Some(robot), Some(base)];
                let mut net = behind(kinds, DirectPath::IfTranslated, &pipe);
                let begun = net.now;
                let is_found = runs_until_direct(&mut net, 20 * SECOND);
                println!("{robot:?} {base:?}: {is_found} after {:?}", net.now.since(begun));
                assert_eq!(is_found, is_possible, "{robot:?} {base:?}");
                let notice = Notice::NoDirectPath { name: "base".into() };
                let is_noticed = net.nodes[0].events.contains(&Event::Notice(notice));
                assert_eq!(is_noticed, !is_possible, "{robot:?} {base:?}");
                assert!(net.nodes[0].endpoint.peer(PEER).up, "the relay carries on");
            }
        }
    }
}

#[test]
fn without_a_translator_the_relay_was_meant() {
    let pipe = Pipe::of(6_000_000);
    for (when, is_expected) in [(DirectPath::IfTranslated, false), (DirectPath::Always, true)] {
        let mut net = behind([None, None], when, &pipe);
        assert_eq!(runs_until_direct(&mut net, 20 * SECOND), is_expected, "{when:?}");
    }
    // One translator suffices: the other end cannot know the address.
    let mut net = behind([Some(KINDS[3]), None], DirectPath::IfTranslated, &pipe);
    assert!(runs_until_direct(&mut net, 20 * SECOND));
}

#[test]
fn each_end_learns_what_lies_between() {
    let pipe = Pipe::of(6_000_000);
    let mut net = behind([Some(KINDS[2]), None], DirectPath::IfTranslated, &pipe);
    for link in [LinkId(0), LinkId(1)] {
        let own = net.nodes[RELAY].address;
        net.nodes[RELAY].endpoint.set_own_address(link, own);
    }
    net.run(2 * SECOND);
    let seen = |node: usize, link| {
        let view = net.nodes[node].endpoint.link(link);
        (view.is_translated, view.is_peer_translated)
    };
    assert_eq!(seen(0, LinkId(0)), (Some(true), Some(false)), "robot to relay");
    assert_eq!(seen(RELAY, LinkId(0)), (Some(false), Some(true)), "relay to robot");
    assert_eq!(seen(RELAY, LinkId(1)), (Some(false), Some(false)), "relay to base");
}

#[test]
fn a_translator_that_forgets_and_a_restart_lead_to_another_direct_path() {
    let pipe = Pipe::of(6_000_000);
    let mut net = behind([Some(KINDS[2]); 2], DirectPath::IfTranslated, &pipe);
    assert!(runs_until_direct(&mut net, 5 * SECOND));
    net.nodes[0].translator.as_mut().unwrap().forget();
    assert!(net.run_until_done(10 * MS, 5 * SECOND, |net| !are_direct(net)));
    assert!(runs_until_direct(&mut net, 10 * SECOND), "after the translator forgot");
    net.restart(0, &[]);
    join(&mut net, 0, 2, DirectPath::IfTranslated);
    net.run(2 * SECOND);
    assert!(runs_until_direct(&mut net, 10 * SECOND), "after a restart");
}

#[test]
fn messages_take_the_direct_path_and_return_to_the_relay_when_it_ends() {
    let pipe = Pipe::of(6_000_000);
    let mut net = behind([Some(KINDS[2]); 2], DirectPath::IfTranslated, &pipe);
    assert!(runs_until_direct(&mut net, 5 * SECOND));
    let scan = net.open(0, PEER, channel(topic("/scan", 200)));
    let send = |net: &mut Net, numbers: std::ops::Range<u32>| {
        for number in numbers {
            net.send(0, PEER, scan, payload(number, 500));
            net.run(50 * MS);
        }
    };
    let before = net.nodes[RELAY].endpoint.forwarded(PeerId(1)).packets;
    send(&mut net, 0..20);
    let forwarded = net.nodes[RELAY].endpoint.forwarded(PeerId(1)).packets - before;
    assert!(forwarded < 10, "{forwarded} packets, heartbeats included");
    // The providers between the two drop what does not come from the relay.
    let relay = net.nodes[RELAY].address;
    net.nodes[0].only_from = Some(relay);
    net.nodes[2].only_from = Some(relay);
    send(&mut net, 20..100);
    net.run(2 * SECOND);
    let numbers: Vec<u32> =
        net.nodes[2].received.iter().map(|it| number_of(&it.3.payload)).collect();
    assert_eq!(numbers.len(), 100, "none is lost: {numbers:?}");
    assert!(!is_direct(&net, 0));
    net.nodes[0].only_from = None;
    net.nodes[2].only_from = None;
    assert!(runs_until_direct(&mut net, 60 * SECOND));
}
