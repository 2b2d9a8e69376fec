// SPDX-License-Identifier: Apache-2.0
//! A network in which one station forwards all frames.

use crate::net::{Net, SECOND, fixed};
use tautline_medium::{StationId, WifiConfig};

/// Returns a network whose access point is station 0.
fn with_access_point(mbps: u64) -> WifiConfig {
    WifiConfig { access_point: Some(StationId(0)), ..fixed(mbps) }
}

fn delivered(config: WifiConfig, from: usize, to: usize) -> f64 {
    let mut net = Net::wifi(1, config, &[0.0, 0.0, 0.0]);
    let flow = net.flow(from, to);
    net.saturate(flow);
    net.run(10 * SECOND);
    let numbers = net.numbers(flow, to);
    assert!(numbers.is_sorted_by(|a, b| a < b), "in order, each once");
    numbers.len() as f64
}

#[test]
fn an_access_point_halves_traffic_between_stations() {
    let direct = delivered(fixed(6), 1, 2);
    let relayed = delivered(with_access_point(6), 1, 2);
    assert!((relayed / direct - 0.48).abs() < 0.03, "{relayed} {direct}");
}

#[test]
fn traffic_with_the_access_point_is_not_halved() {
    let direct = delivered(fixed(6), 1, 0);
    for (from, to) in [(1, 0), (0, 1)] {
        let through = delivered(with_access_point(6), from, to);
        assert!((through / direct - 1.0).abs() < 0.02, "{from} to {to}: {through} {direct}");
    }
}

#[test]
fn a_forwarded_frame_names_its_sender_and_is_reported_once() {
    let mut net = Net::wifi(1, with_access_point(54), &[0.0, 0.0, 0.0]);
    let flow = net.flow(1, 2);
    net.send(flow);
    net.drain();
    let [sent, delivered] = &net.events[..] else { panic!("{:?}", net.events) };
    assert!(sent.at() < delivered.at(), "told when the access point had it");
    let tautline_medium::Output::Delivered { from, to, .. } = delivered else { panic!() };
    assert_eq!((*from, *to), (net.radios[1], net.radios[2]));
}

#[test]
fn a_broadcast_reaches_all_others_once() {
    let mut net = Net::wifi(1, with_access_point(54), &[0.0; 5]);
    let (flow, of_point) = (net.broadcasts(1), net.broadcasts(0));
    for _ in 0..20 {
        // Send one broadcast at a time: simultaneous broadcasts may collide and are not repeated.
        for flow in [flow, of_point] {
            net.send(flow);
            net.drain();
        }
    }
    let all: Vec<u64> = (0..20).collect();
    for station in [0, 2, 3, 4] {
        assert_eq!(net.numbers(flow, station), all, "station {station}");
    }
    assert_eq!(net.numbers(flow, 1), []);
    assert_eq!(net.numbers(of_point, 0), []);
    assert_eq!(net.numbers(of_point, 1), all);
}

#[test]
fn a_full_queue_at_the_access_point_is_counted_there() {
    let mut net = Net::wifi(1, with_access_point(6), &[0.0; 5]);
    for from in 1..4 {
        let flow = net.flow(from, 4);
        net.saturate(flow);
    }
    net.run(5 * SECOND);
    let (sent, came): (usize, usize) = (0..3)
        .map(|flow| (net.sent(flow).len(), net.numbers(flow, 4).len()))
        .fold((0, 0), |(a, b), (c, d)| (a + c, b + d));
    let stats = net.stats(0);
    assert!(stats.queue_drops > 100);
    let unfinished = sent - came - stats.queue_drops as usize - stats.given_up as usize;
    assert!(unfinished <= 10, "{sent} sent, {came} came, {stats:?}");
}
