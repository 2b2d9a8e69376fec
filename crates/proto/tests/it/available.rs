// SPDX-License-Identifier: Apache-2.0
//! The available rate of a link, as reported to the application.

use tautline_proto::{
    ChannelId, Duration, Event, Instant, LinkId, PeerId, RadioConfig, RadioId, Rate,
};
use tautline_testkit::net::*;

const P: PeerId = PeerId(0);
const L: LinkId = LinkId(0);
const MBPS: u64 = 1_000_000;

struct RateReport {
    at: Instant,
    bps: Option<u64>,
}

/// Sends 20 KB every 20 ms (8 Mbps) if `busy`, and returns the rates reported while it sends.
fn reports(net: &mut Net, image: ChannelId, span: Duration, busy: bool) -> Vec<RateReport> {
    let end = net.now + span;
    let mut reports = Vec::new();
    while net.now < end {
        if busy {
            net.send(0, P, image, payload(0, 20_000));
        }
        net.run(20 * MS);
        for event in net.nodes[0].events.drain(..) {
            if let Event::LinkRate { link, available_bps: bps } = event {
                assert_eq!(link, L);
                reports.push(RateReport { at: net.now, bps });
            }
        }
    }
    reports
}

fn is_about(bps: Option<u64>, expected: u64) -> bool {
    bps.is_some_and(|bps| bps.abs_diff(expected) < expected / 4)
}

fn image(net: &mut Net) -> ChannelId {
    let mut latest = topic("/image", 10);
    latest.keep_last = 1;
    net.open(0, P, channel(latest))
}

/// Checks that the reported rate is what the bottleneck carries, whether it is local or far. A
/// change is reported soon, and a steady rate seldom.
fn follows(is_far: bool, signal: &str) {
    let mut net = Net::pair(51, &Pipe { is_far, ..Pipe::with_rate(6 * MBPS) });
    let image = image(&mut net);
    reports(&mut net, image, 5000 * MS, true);
    for rate in [6, 2, 4] {
        net.nodes[0].pipe.rate_bps = rate * MBPS;
        let changing = reports(&mut net, image, 2000 * MS, true);
        let steady = reports(&mut net, image, 20_000 * MS, true);
        assert!(changing.len() <= 8 && steady.len() <= 8, "{} {}", changing.len(), steady.len());
        let link = net.nodes[0].endpoint.link(L).unwrap();
        assert!(is_about(link.available_bps, rate * MBPS), "{rate} Mbps: {link:?}");
        assert_eq!(link.signal, signal);
    }
}

#[test]
fn behind_its_own_radio_the_available_rate_is_what_the_radio_carries() {
    follows(false, "back-pressure");
}

#[test]
fn behind_a_far_bottleneck_the_available_rate_follows_reports() {
    follows(true, "reports");
}

#[test]
fn an_idle_radio_may_have_room_for_more_with_each_second() {
    let mut net = Net::pair(52, &Pipe::with_rate(MBPS));
    let image = image(&mut net);
    reports(&mut net, image, 3000 * MS, true);
    let room = |net: &Net| net.nodes[0].endpoint.link(L).unwrap().available_bps;
    assert!(is_about(room(&net), MBPS), "{:?}", room(&net));
    let growing = reports(&mut net, image, 4000 * MS, false);
    assert!(room(&net) > Some(2 * MBPS), "{:?}", room(&net));
    assert!((2..=8).contains(&growing.len()), "{}", growing.len());
    assert!(growing.windows(2).all(|two| two[0].bps < two[1].bps && two[0].at < two[1].at));
}

#[test]
fn a_configured_rate_is_the_available_rate() {
    let mut net = Net::pair(53, &Pipe::with_rate(6 * MBPS));
    let fixed = RadioConfig { rate: Rate::Fixed(2 * MBPS), ..RadioConfig::default() };
    net.nodes[0].endpoint.set_radio(RadioId(0), fixed);
    let image = image(&mut net);
    reports(&mut net, image, 3000 * MS, true);
    let link = net.nodes[0].endpoint.link(L).unwrap();
    assert!(is_about(link.available_bps, 2 * MBPS), "{link:?}");
    assert_eq!(link.signal, "rate");
}

#[test]
fn after_an_outage_the_rate_is_reported_again() {
    let mut net = Net::pair(54, &Pipe::with_rate(2 * MBPS));
    let image = image(&mut net);
    reports(&mut net, image, 3000 * MS, true);
    net.nodes.iter_mut().for_each(|node| node.pipe.cut = true);
    assert!(reports(&mut net, image, 5000 * MS, false).is_empty(), "the link is down");
    net.nodes.iter_mut().for_each(|node| node.pipe.cut = false);
    assert!(!reports(&mut net, image, 3000 * MS, false).is_empty());
}
