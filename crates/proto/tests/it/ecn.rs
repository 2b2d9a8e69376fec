// SPDX-License-Identifier: Apache-2.0
//! Explicit congestion notification between two endpoints: packets are marked and counted, and a path
//! that does not carry the field costs no message.

use tautline_proto::{Duration, Ecn, EcnUse, LinkId, LinkView, PeerId};
use tautline_testkit::net::{MS, Net, Pipe, channel, payload, topic};

const P: PeerId = PeerId(0);
const LINK: LinkId = LinkId(0);

/// Sends 200 messages over a path. `ecn` maps the ECN field of each packet to the delivered one;
/// `None` drops the packet. Returns the network.
fn run(ecn: fn(Ecn) -> Option<Ecn>) -> Net {
    let mut net = Net::pair(7, &Pipe { ecn, ..Pipe::with_rate(6_000_000) });
    let scan = net.open(0, P, channel(topic("/scan", 200)));
    for n in 0..200 {
        net.send(0, P, scan, payload(n, 1000));
        net.run(10 * MS);
    }
    net.run(Duration::from_secs(1));
    assert_eq!(net.nodes[1].received.len(), 200, "every message arrives");
    net.check_conservation(0, P, &[scan]);
    net
}

fn link(net: &Net) -> LinkView<'_> {
    net.nodes[0].endpoint.link(LINK).unwrap()
}

#[test]
fn session_packets_of_links_are_capable_and_others_are_not() {
    let net = run(Some);
    assert_eq!((link(&net).ecn, link(&net).stats.marked_packets), (EcnUse::On, 0));
    let with_messages = net.nodes[0].sent.iter().filter(|it| it.priority.is_some());
    let is_capable = with_messages.map(|it| it.ecn == Ecn::Capable).collect::<Vec<_>>();
    assert!(is_capable[10..].iter().all(|it| *it));
    let handshakes = net.nodes[0].sent.iter().filter(|it| it.datagram[0] == b'T');
    assert!(handshakes.count() > 0);
    let capable = net.nodes[0].sent.iter().filter(|it| it.ecn == Ecn::Capable);
    assert!(capable.clone().all(|it| it.datagram[0] != b'T' && it.link == Some(LINK)));
}

#[test]
fn marks_are_counted_and_lose_nothing() {
    let net = run(|ecn| Some(if ecn == Ecn::Capable { Ecn::Marked } else { ecn }));
    // The path marks everything, whatever the rate. After 3 s it counts as broken.
    let found = link(&net);
    assert!(found.stats.marked_packets > 50, "{}", found.stats.marked_packets);
    assert_eq!((found.ecn, found.stats.lost_packets), (EcnUse::Off, 0));
}

#[test]
fn a_path_that_clears_the_field_costs_nothing() {
    for ecn in [|_| Some(Ecn::NotCapable), |_| Some(Ecn::Capable1)] as [fn(_) -> _; 2] {
        let net = run(ecn);
        let found = link(&net);
        assert_eq!((found.ecn, found.stats.marked_packets), (EcnUse::Off, 0));
        assert_eq!(found.stats.lost_packets, 0);
        let capable = net.nodes[0].sent.iter().filter(|it| it.ecn == Ecn::Capable);
        assert!(capable.count() <= 8);
    }
}

#[test]
fn a_path_that_drops_capable_packets_costs_a_few() {
    let net = run(|ecn| (ecn == Ecn::NotCapable).then_some(ecn));
    let found = link(&net);
    assert_eq!(found.ecn, EcnUse::Off);
    // At most eight packets are lost in the first test, and eight in a second one, which an overdue
    // acknowledgement triggers.
    assert!(found.stats.lost_packets <= 16, "{}", found.stats.lost_packets);
}

#[test]
fn an_outage_repeats_the_ecn_test() {
    let mut net = Net::pair(8, &Pipe::with_rate(6_000_000));
    net.run(Duration::from_secs(1));
    assert_eq!(link(&net).ecn, EcnUse::On);
    for node in &mut net.nodes {
        node.pipe.cut = true;
    }
    net.run(Duration::from_secs(3));
    assert_eq!(link(&net).ecn, EcnUse::Testing);
    for node in &mut net.nodes {
        (node.pipe.cut, node.pipe.ecn) = (false, |ecn| (ecn == Ecn::NotCapable).then_some(ecn));
    }
    net.run(Duration::from_secs(10));
    assert!(link(&net).up && link(&net).ecn == EcnUse::Off, "{:?}", link(&net));
}
