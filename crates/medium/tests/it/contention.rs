// SPDX-License-Identifier: Apache-2.0
//! Channel access in one collision domain: IEEE 802.11-2016, clause 10.3.

use crate::net::{ACK_6, DIFS, FRAME_6, MS, Net, SECOND, SIFS, SLOT, US, fixed};
use tautline_medium::{Loss, Outcome, RadioId, Trial, WifiConfig};

#[test]
fn a_lone_frame_takes_its_airtime_and_its_ack() {
    let mut net = Net::wifi(1, fixed(6), &[0.0, 0.0]);
    let flow = net.flow(0, 1);
    assert!(net.send_at(SECOND, flow), "the air has long been idle: at once");
    net.drain();
    assert_eq!(net.delivered(flow, 1), [(SECOND + FRAME_6, 0)]);
    assert_eq!(net.sent(flow), [(SECOND + FRAME_6 + SIFS + ACK_6, Outcome::Done)]);
    assert_eq!(net.busy(), FRAME_6 + ACK_6);
    assert_eq!((net.stats(0).airtime, net.stats(1).airtime), (FRAME_6, ACK_6));
}

#[test]
fn the_next_frame_waits_difs_and_whole_slots_of_the_window() {
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..200 {
        let mut net = Net::wifi(seed, fixed(6), &[0.0, 0.0]);
        let flow = net.flow(0, 1);
        net.send_at(SECOND, flow);
        net.send(flow);
        net.drain();
        let second_start = net.delivered(flow, 1)[1].0 - FRAME_6;
        let waited = second_start - net.sent(flow)[0].0 - DIFS;
        assert_eq!(waited % SLOT, 0);
        seen.insert(waited / SLOT);
    }
    assert_eq!(seen, (0..=15).collect());
}

#[test]
fn a_frame_during_post_backoff_waits_for_the_remaining_slots() {
    for seed in 0..50 {
        let mut net = Net::wifi(seed, fixed(6), &[0.0, 0.0]);
        let flow = net.flow(0, 1);
        net.send_at(SECOND, flow);
        let exchange_over = SECOND + FRAME_6 + SIFS + ACK_6;
        let comes = exchange_over + DIFS + 5 * SLOT;
        net.send_at(comes, flow);
        net.drain();
        let start = net.delivered(flow, 1)[1].0 - FRAME_6;
        assert!(start >= comes && start <= exchange_over + DIFS + 15 * SLOT, "seed {seed}");
        assert_eq!((start - exchange_over - DIFS) % SLOT, 0);
    }
}

#[test]
fn slots_counted_before_another_frame_are_not_counted_again() {
    for seed in 0..50 {
        let mut net = Net::wifi(seed, fixed(6), &[0.0, 0.0, 0.0]);
        let (one, other) = (net.flow(0, 2), net.flow(1, 2));
        net.send_at(SECOND, one);
        net.run(SECOND + MS);
        // Both wait for the end of the first exchange, then for their slots.
        net.send(one);
        net.send(other);
        net.drain();
        let mut starts: Vec<_> = [net.delivered(one, 2), net.delivered(other, 2)].concat();
        starts.sort_unstable();
        let starts: Vec<_> = starts.iter().map(|(at, _)| at - FRAME_6).collect();
        let exchange = FRAME_6 + SIFS + ACK_6;
        let collided = net.stats(1).failed_attempts > 0;
        let first_slots = (starts[1] - starts[0] - exchange - DIFS) / SLOT;
        let second_slots = (starts[2] - starts[1] - exchange - DIFS) / SLOT;
        assert!(collided || first_slots + second_slots <= 15, "seed {seed}");
    }
}

#[test]
fn a_radio_cannot_receive_while_it_sends() {
    let mut net = Net::wifi(1, fixed(6), &[0.0, 0.0]);
    let (there, back) = (net.flow(0, 1), net.flow(1, 0));
    net.send_at(SECOND, there);
    net.send(back);
    net.drain();
    for (flow, to) in [(there, 1), (back, 0)] {
        let arrivals = net.delivered(flow, to);
        assert_eq!(arrivals.len(), 1);
        assert!(arrivals[0].0 > SECOND + 2 * FRAME_6, "not with the first attempt");
    }
    assert!(net.stats(0).failed_attempts >= 1 && net.stats(1).failed_attempts >= 1);
}

#[test]
fn stations_in_range_overlap_only_if_they_start_together() {
    let mut net = Net::wifi(1, fixed(6), &[0.0, 0.0, 0.0]);
    for station in [1, 2] {
        let flow = net.flow(station, 0);
        net.saturate(flow);
    }
    net.run(10 * SECOND);
    let airtime: u64 = (0..3).map(|station| net.stats(station).airtime).sum();
    let collisions = net.stats(1).failed_attempts;
    assert_eq!(collisions, net.stats(2).failed_attempts);
    assert!(collisions > 200);
    // Only whole frames overlap; the last frame may still be on the air.
    let overlap = airtime - net.busy();
    assert!(overlap.abs_diff(collisions * FRAME_6) <= 2 * FRAME_6, "{overlap} {collisions}");
}

/// Starts station 1 this long before the slot of station 0's second frame; returns the number of
/// failed attempts.
fn failures_with_another_start(before: u64) -> u64 {
    let prepare = || {
        let mut net = Net::wifi(1, fixed(6), &[0.0, 0.0, 0.0]);
        let (one, other) = (net.flow(0, 2), net.flow(1, 2));
        net.send_at(SECOND, one);
        net.send(one);
        (net, one, other)
    };
    let (mut rehearsal, one, _) = prepare();
    rehearsal.drain();
    let turn = rehearsal.delivered(one, 2)[1].0 - FRAME_6;
    let (mut net, _, other) = prepare();
    net.send_at(turn - before, other);
    net.drain();
    assert_eq!(net.stats(1).acknowledged, 1);
    net.stats(0).failed_attempts + net.stats(1).failed_attempts
}

#[test]
fn a_start_within_the_sensing_time_collides() {
    assert!(failures_with_another_start(3 * US) >= 2);
    assert_eq!(failures_with_another_start(5 * US), 0);
}

#[test]
fn a_frame_whose_acks_are_lost_is_given_up_by_its_sender_and_delivered_once() {
    let mut net = Net::wifi(1, fixed(6), &[0.0, 0.0]);
    let flow = net.flow(0, 1);
    net.send_at(SECOND, flow);
    net.run(SECOND + MS);
    net.medium.set_pair_outage(net.stations[0], net.stations[1], true);
    net.drain();
    assert_eq!(net.numbers(flow, 1), [0]);
    assert_eq!(net.sent(flow)[0].1, Outcome::GivenUp);
    assert_eq!((net.stats(0).given_up, net.stats(0).acknowledged), (1, 0));
}

#[test]
fn a_frame_without_ack_is_sent_eight_times() {
    let mut net = Net::wifi(1, fixed(6), &[0.0, 0.0]);
    let flow = net.flow(0, 1);
    net.medium.set_pair_outage(net.stations[0], net.stations[1], true);
    net.send_at(SECOND, flow);
    net.drain();
    let stats = net.stats(0);
    assert_eq!((stats.attempts, stats.retries, stats.failed_attempts), (8, 7, 8));
    assert_eq!((stats.given_up, stats.acknowledged), (1, 0));
    let [(at, Outcome::GivenUp)] = net.sent(flow)[..] else { panic!("{:?}", net.sent(flow)) };
    let timeout = SIFS + SLOT + 20 * US;
    let slots: u64 = [31, 63, 127, 255, 511, 1023, 1023].iter().sum();
    let least = 8 * (FRAME_6 + timeout) + 7 * DIFS;
    let took = at - SECOND;
    assert!(took >= least && took <= least + slots * SLOT, "{took}");
    assert_eq!((took - least) % SLOT, 0);
}

#[test]
fn an_abandoned_frame_resets_the_window() {
    for seed in 0..50 {
        let mut net = Net::wifi(seed, fixed(6), &[0.0, 0.0]);
        let flow = net.flow(0, 1);
        net.medium.set_pair_outage(net.stations[0], net.stations[1], true);
        net.send_at(SECOND, flow);
        net.send(flow);
        while net.sent(flow).is_empty() {
            net.run(net.medium.poll_timeout().unwrap());
        }
        net.medium.set_pair_outage(net.stations[0], net.stations[1], false);
        net.drain();
        let start = net.delivered(flow, 1)[0].0 - FRAME_6;
        assert!(start - net.sent(flow)[0].0 <= DIFS + 15 * SLOT, "seed {seed}");
    }
}

#[test]
fn a_frame_to_an_unknown_radio_reaches_none() {
    let mut net = Net::wifi(1, fixed(6), &[0.0, 0.0, 0.0]);
    let flow = net.flow(0, 1);
    net.flow_mut(flow).to = Some(RadioId(99));
    net.send_at(SECOND, flow);
    net.drain();
    assert_eq!(net.events.len(), 1);
    assert_eq!(net.sent(flow)[0].1, Outcome::GivenUp);
}

#[test]
fn a_broadcast_is_sent_once_at_the_lowest_rate() {
    let mut net = Net::wifi(1, fixed(54), &[0.0, 0.0, 0.0]);
    let flow = net.broadcasts(0);
    net.send_at(SECOND, flow);
    net.drain();
    let at = SECOND + FRAME_6;
    assert_eq!(net.sent(flow), [(at, Outcome::Done)]);
    assert_eq!((net.delivered(flow, 1), net.delivered(flow, 2)), (vec![(at, 0)], vec![(at, 0)]));
    assert_eq!(net.delivered(flow, 0), []);

    let loss = Loss::Uniform { probability: 1.0 };
    let lossy = WifiConfig { loss, trial: Trial::Attempt, ..fixed(54) };
    let mut net = Net::wifi(1, lossy, &[0.0, 0.0]);
    let flow = net.broadcasts(0);
    net.send_at(SECOND, flow);
    net.drain();
    assert_eq!(net.sent(flow).len(), 1);
    assert_eq!(net.stats(0).attempts, 1, "no one answers a broadcast, so no one repeats it");
    assert_eq!(net.delivered(flow, 1), []);
}

#[test]
fn equal_stations_get_equal_shares() {
    let mut net = Net::wifi(1, fixed(54), &[0.0; 6]);
    let flows: Vec<_> = (1..6).map(|station| net.flow(station, 0)).collect();
    flows.iter().for_each(|flow| net.saturate(*flow));
    net.run(5 * SECOND);
    let got: Vec<f64> = flows.iter().map(|flow| net.delivered(*flow, 0).len() as f64).collect();
    let (sum, squares) = (got.iter().sum::<f64>(), got.iter().map(|n| n * n).sum::<f64>());
    // Jain's fairness index.
    assert!(sum * sum / (5.0 * squares) > 0.99, "{got:?}");
}

#[test]
fn a_radio_may_join_while_others_are_on_the_air() {
    let mut net = Net::wifi(1, fixed(6), &[0.0, 0.0]);
    let flow = net.flow(0, 1);
    net.send_at(SECOND, flow);
    net.run(SECOND + MS);
    let late = net.medium.add_radio(net.stations[1], net.network, 1);
    net.drain();
    assert_eq!(net.delivered(flow, 1), [(SECOND + FRAME_6, 0)]);
    assert_eq!(net.medium.stats(late).received, 0);
}
