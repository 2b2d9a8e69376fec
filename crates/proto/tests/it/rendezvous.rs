// SPDX-License-Identifier: Apache-2.0
//! Two nodes behind address translators find a direct path with the help of a relay.

use std::net::SocketAddr;
use tautline_proto::{
    ChannelId, DirectPath, Duration, Event, LinkConfig, LinkId, NoPath, Notice, PeerId, RadioId,
    Rights,
};
use tautline_testkit::net::translator::{Filtering, Translator};
use tautline_testkit::net::*;

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
fn net_behind_translators(
    kinds: [Option<(Filtering, bool)>; 2],
    when: DirectPath,
    pipe: &Pipe,
) -> Net {
    let mut net = Net::new(7);
    for name in ["robot", "relay", "base"] {
        net.add(name, defaults(), pipe.clone());
    }
    for (node, kind) in [0, 2].into_iter().zip(kinds) {
        let outside = [203, 0, 113, node as u8];
        net.nodes[node].translator =
            kind.map(|(filtering, is_symmetric)| Translator::new(outside, filtering, is_symmetric));
        let at_relay = net.add_peer_without_address(RELAY, node);
        let relayed = Rights { relayed: true, max_priority: 255 };
        net.nodes[RELAY].endpoint.peer_mut(at_relay).set_rights(relayed);
        join(&mut net, node, 2 - node, when);
    }
    net
}

/// Gives a node the relay and, through the relay, the other node as peers.
fn join(net: &mut Net, node: usize, other: usize, when: DirectPath) {
    net.add_peer(node, RELAY);
    let own = net.nodes[node].address;
    net.nodes[node].endpoint.link_mut(LinkId(0)).set_own_address(own);
    let peer = net.add_peer_without_address(node, other);
    let now = net.now;
    let endpoint = &mut net.nodes[node].endpoint;
    endpoint.peer_mut(peer).add_relayed_link(now, PeerId(0)).unwrap();
    endpoint.link_mut(LinkId(1)).set_direct_path(now, Some(when));
}

/// Whether packets arrive by the direct link of a node.
fn is_direct(net: &Net, node: usize) -> bool {
    let link = net.nodes[node].endpoint.link(LinkId(1)).unwrap();
    link.up && !link.silent
}

fn are_direct(net: &Net) -> bool {
    is_direct(net, 0) && is_direct(net, 2)
}

fn runs_until_direct(net: &mut Net, limit: Duration) -> bool {
    net.run_until_done(10 * MS, limit, are_direct)
}

#[test]
fn every_possible_pair_of_translators_finds_a_direct_path() {
    for pipe in
        [Pipe::with_rate(6_000_000), Pipe { delay: 300 * MS, ..Pipe::lossy(6_000_000, 0.05) }]
    {
        for (place, robot) in KINDS.into_iter().enumerate() {
            for base in KINDS.into_iter().skip(place) {
                let is_possible = match (robot, base) {
                    ((_, true), (_, true)) => false,
                    ((filtering, _), (_, true)) => filtering != Filtering::AddressAndPort,
                    _ => true,
                };
                let kinds = [Some(robot), Some(base)];
                let mut net = net_behind_translators(kinds, DirectPath::IfTranslated, &pipe);
                let begun = net.now;
                let is_found = runs_until_direct(&mut net, 20 * SECOND);
                println!("{robot:?} {base:?}: {is_found} after {:?}", net.now.since(begun));
                assert_eq!(is_found, is_possible, "{robot:?} {base:?}");
                let cause = NoPath::Closed;
                let notice = Notice::NoDirectPath { name: "base".into(), cause };
                let is_noticed = net.nodes[0].events.contains(&Event::Notice(notice));
                assert_eq!(is_noticed, !is_possible, "{robot:?} {base:?}");
                assert!(net.nodes[0].endpoint.peer(PEER).up, "the relay carries on");
            }
        }
    }
}

#[test]
fn without_a_translator_no_direct_path_is_sought() {
    let pipe = Pipe::with_rate(6_000_000);
    for (when, is_expected) in [(DirectPath::IfTranslated, false), (DirectPath::Always, true)] {
        let mut net = net_behind_translators([None, None], when, &pipe);
        assert_eq!(runs_until_direct(&mut net, 20 * SECOND), is_expected, "{when:?}");
    }
    // One translator is enough to make both ends seek a path: the other end cannot know the
    // address.
    let mut net = net_behind_translators([Some(KINDS[3]), None], DirectPath::IfTranslated, &pipe);
    assert!(runs_until_direct(&mut net, 20 * SECOND));
}

#[test]
fn each_end_learns_whether_a_translator_is_in_between() {
    let pipe = Pipe::with_rate(6_000_000);
    let mut net = net_behind_translators([Some(KINDS[2]), None], DirectPath::IfTranslated, &pipe);
    for link in [LinkId(0), LinkId(1)] {
        let own = net.nodes[RELAY].address;
        net.nodes[RELAY].endpoint.link_mut(link).set_own_address(own);
    }
    net.run(2 * SECOND);
    let seen = |node: usize, link| {
        let view = net.nodes[node].endpoint.link(link).unwrap();
        (view.is_translated, view.is_peer_translated)
    };
    assert_eq!(seen(0, LinkId(0)), (Some(true), Some(false)), "robot to relay");
    assert_eq!(seen(RELAY, LinkId(0)), (Some(false), Some(true)), "relay to robot");
    assert_eq!(seen(RELAY, LinkId(1)), (Some(false), Some(false)), "relay to base");
}

#[test]
fn a_translator_that_forgets_and_a_restart_lead_to_another_direct_path() {
    let pipe = Pipe::with_rate(6_000_000);
    let mut net = net_behind_translators([Some(KINDS[2]); 2], DirectPath::IfTranslated, &pipe);
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
    let pipe = Pipe::with_rate(6_000_000);
    let mut net = net_behind_translators([Some(KINDS[2]); 2], DirectPath::IfTranslated, &pipe);
    assert!(runs_until_direct(&mut net, 5 * SECOND));
    let scan = net.open(0, PEER, channel(topic("/scan", 200)));
    let send = |net: &mut Net, numbers: std::ops::Range<u32>| {
        for number in numbers {
            net.send(0, PEER, scan, payload(number, 500));
            net.run(50 * MS);
        }
    };
    let before = net.nodes[RELAY].endpoint.peer(PeerId(1)).forwarded().packets;
    send(&mut net, 0..20);
    let forwarded = net.nodes[RELAY].endpoint.peer(PeerId(1)).forwarded().packets - before;
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
/// Sends messages at 20 Hz for a time; returns their delays.
fn scan(net: &mut Net, scan: ChannelId, seconds: u32) -> Vec<Duration> {
    let before = net.nodes[2].received.len();
    let mut published = Vec::new();
    for number in 0..20 * seconds {
        published.push(net.now);
        net.send(0, PEER, scan, payload(number, 1000));
        net.run(50 * MS);
    }
    net.run(3 * SECOND);
    let arrived = net.nodes[2].received[before..].iter();
    let mut delays: Vec<Duration> =
        arrived.map(|it| it.0.since(published[number_of(&it.3.payload) as usize])).collect();
    delays.sort();
    delays
}

fn p99(delays: &[Duration]) -> Duration {
    delays[delays.len() * 99 / 100]
}

#[test]
fn a_direct_path_that_loses_much_does_not_replace_the_relay() {
    let pipe = Pipe { delay: 20 * MS, ..Pipe::with_rate(6_000_000) };
    let run = |loss: f64, alive: fn(u64) -> bool| {
        let mut net = net_behind_translators([Some(KINDS[2]); 2], DirectPath::IfTranslated, &pipe);
        let channel = net.open(0, PEER, channel(topic("/scan", 200)));
        let mut delays = Vec::new();
        for second in 0..60 {
            let loss = if alive(second) { loss } else { 1.0 };
            net.losses = vec![(0, 2, loss), (2, 0, loss)];
            let round = scan(&mut net, channel, 1);
            assert_eq!(round.len(), 20, "loss {loss}, round {second}");
            // The first failure of a path that was good costs the time until the path counts as
            // silent.
            if second >= 3 {
                delays.extend(round);
            }
        }
        delays.sort();
        p99(&delays)
    };
    let by_relay = run(1.0, |_| true);
    let direct = run(0.0, |_| true);
    assert!(direct < by_relay, "{direct:?}");
    for (loss, alive) in [
        (0.3, (|_| true) as fn(u64) -> bool),
        (0.6, |_| true),
        (0.8, |_| true),
        (0.0, |second| second % 3 == 0),
    ] {
        let p99 = run(loss, alive);
        println!("{loss}: p99 {p99:?}; relay {by_relay:?}, direct {direct:?}");
        assert!(p99 < by_relay * 2, "{loss}: {p99:?}, by the relay {by_relay:?}");
    }
}

#[test]
fn a_dead_direction_costs_few_packets() {
    let pipe = Pipe { delay: 20 * MS, ..Pipe::with_rate(6_000_000) };
    for dead in [(0, 2, 1.0), (2, 0, 1.0)] {
        let mut net = net_behind_translators([Some(KINDS[2]); 2], DirectPath::IfTranslated, &pipe);
        assert!(runs_until_direct(&mut net, 5 * SECOND));
        net.run(2 * SECOND);
        net.losses = vec![dead];
        for minute in 0..10 {
            net.nodes.iter_mut().for_each(|node| node.sent.clear());
            net.run(60 * SECOND);
            for node in [0, 2] {
                let per_second = net.nodes[node].sent.len() / 60;
                assert!(per_second < 60, "{dead:?}, minute {minute}, node {node}: {per_second}");
            }
        }
    }
}

#[test]
fn after_an_outage_the_relay_reports_the_new_address() {
    for seconds in [1, 2, 5, 10, 30, 200] {
        let mut net = net_behind_translators(
            [Some(KINDS[2]); 2],
            DirectPath::IfTranslated,
            &Pipe::with_rate(6_000_000),
        );
        assert!(runs_until_direct(&mut net, 5 * SECOND));
        net.nodes[0].pipe.cut = true;
        net.nodes[0].translator.as_mut().unwrap().forget();
        net.run(Duration::from_secs(seconds));
        net.nodes[0].pipe.cut = false;
        assert!(runs_until_direct(&mut net, 30 * SECOND), "after {seconds} s");
    }
}

#[test]
fn a_short_silence_does_not_end_the_search() {
    let pipe = Pipe::with_rate(6_000_000);
    for start in 0..14 {
        let mut net = net_behind_translators([Some(KINDS[2]); 2], DirectPath::IfTranslated, &pipe);
        net.losses = vec![(0, 2, 1.0), (2, 0, 1.0)];
        net.run(Duration::from_millis(1800 + start * 250));
        net.nodes[0].pipe.cut = true;
        net.run(500 * MS);
        net.nodes[0].pipe.cut = false;
        net.run(100 * SECOND);
        net.losses.clear();
        assert!(runs_until_direct(&mut net, 200 * SECOND), "start {start}");
    }
}

#[test]
fn the_address_of_a_dead_direct_path_is_removed() {
    let pipe = Pipe::with_rate(6_000_000);
    let mut net = net_behind_translators([Some(KINDS[2]); 2], DirectPath::IfTranslated, &pipe);
    assert!(runs_until_direct(&mut net, 5 * SECOND));
    net.losses = vec![(0, 2, 1.0), (2, 0, 1.0)];
    net.run(60 * SECOND);
    net.nodes[0].sent.clear();
    net.run(600 * SECOND);
    let relay = net.nodes[RELAY].address;
    let count = net.nodes[0].sent.iter().filter(|it| it.remote != relay).count();
    // Each attempt sends six challenges to two addresses, at both ends.
    assert!(count < 12 * 12, "{count} packets in 10 min");
}

#[test]
fn without_a_translator_a_beacon_is_no_direct_path_either() {
    for (when, is_expected) in [(DirectPath::IfTranslated, false), (DirectPath::Always, true)] {
        let mut net = net_behind_translators([None, None], when, &Pipe::with_rate(6_000_000));
        net.losses = vec![(0, 2, 1.0), (2, 0, 1.0)];
        net.run(2 * SECOND);
        net.run(1 * SECOND);
        // The beacon arrives before the peer was reached through the relay.
        net.restart(0, &[]);
        join(&mut net, 0, 2, when);
        net.losses.clear();
        let from = net.nodes[2].address;
        for _ in 0..20 {
            if let Some(beacon) = net.nodes[2].endpoint.beacon() {
                net.inject(0, from, &beacon);
            }
            net.run(20 * MS);
        }
        net.run(3 * SECOND);
        assert_eq!(is_direct(&net, 0), is_expected, "{when:?}");
    }
}

#[test]
fn no_direct_path_uses_a_metered_radio() {
    let mut net = net_behind_translators(
        [Some(KINDS[0]); 2],
        DirectPath::Always,
        &Pipe::with_rate(6_000_000),
    );
    let remote = Some(SocketAddr::from(([10, 0, 9, 9], 18470)));
    let config = LinkConfig { remote, datagram_bytes: DATAGRAM, header_bytes: 28, metered: true };
    let now = net.now;
    net.nodes[0].endpoint.peer_mut(PeerId(0)).add_link(now, RadioId(0), config).unwrap();
    assert!(!runs_until_direct(&mut net, 20 * SECOND));
    assert!(!is_direct(&net, 0) && !is_direct(&net, 2));
}
#[test]
fn a_direct_path_that_returns_soon_carries_messages_soon() {
    let mut net = net_behind_translators(
        [Some(KINDS[2]); 2],
        DirectPath::IfTranslated,
        &Pipe::with_rate(6_000_000),
    );
    assert!(runs_until_direct(&mut net, 5 * SECOND));
    net.run(10 * SECOND);
    net.losses = vec![(0, 2, 1.0), (2, 0, 1.0)];
    net.run(6 * SECOND);
    net.losses.clear();
    let carries = |net: &Net| {
        let link = net.nodes[0].endpoint.link(LinkId(1)).unwrap();
        link.up && !link.silent && !link.standby
    };
    assert!(net.run_until_done(10 * MS, 6 * SECOND, carries));
}
