// SPDX-License-Identifier: Apache-2.0
//! Hidden stations, and capture of the stronger of two signals.

use crate::net::{DIFS, FRAME_6, FRAME_54, Net, SECOND, SIFS, SLOT, STEEP, fixed};
use tautline_medium::WifiConfig;

fn steep(mbps: u64) -> WifiConfig {
    WifiConfig { path_loss: Some(STEEP), ..fixed(mbps) }
}

/// Returns the share of failed attempts of two stations that saturate a station between them.
fn failed_share_at_distance(metres: f64) -> f64 {
    let mut net = Net::wifi(1, steep(6), &[0.0, metres, 2.0 * metres]);
    for station in [0, 2] {
        let flow = net.flow(station, 1);
        net.saturate(flow);
    }
    net.run(10 * SECOND);
    (net.failed_share(0) + net.failed_share(2)) / 2.0
}

#[test]
fn stations_that_do_not_hear_each_other_collide_far_more() {
    let (in_range, hidden) = (failed_share_at_distance(10.0), failed_share_at_distance(25.0));
    assert!((in_range - 0.11).abs() < 0.02, "{in_range}");
    assert!(hidden > 3.0 * in_range, "{hidden} {in_range}");
}

#[test]
fn a_data_frame_reserves_the_time_of_an_ack_that_some_cannot_hear() {
    // 1 sends to 0 and 2 to 3. 2 receives the data of 1, but not the ACK of 0, with which it would
    // interfere at 1.
    let mut net = Net::wifi(1, steep(6), &[0.0, 25.0, 50.0, 75.0]);
    for (from, to) in [(1, 0), (2, 3)] {
        let flow = net.flow(from, to);
        net.saturate(flow);
    }
    net.run(10 * SECOND);
    // Frames that start together are both captured: only ACKs are at risk.
    assert!(net.failed_share(1) < 0.02 && net.failed_share(2) < 0.02, "{}", net.failed_share(1));
    assert!(net.stats(1).acknowledged > 1000 && net.stats(2).acknowledged > 1000);
}

#[test]
fn a_received_ack_keeps_a_hidden_station_silent() {
    // Station 2 does not receive 0, but it receives the ACKs of 1 to 0, and then waits for DIFS.
    for seed in 0..50 {
        let mut net = Net::wifi(seed, steep(6), &[0.0, 25.0, 50.0, 55.0]);
        let (long, other) = (net.flow(0, 1), net.flow(2, 3));
        net.send_at(SECOND, long);
        let ack_from = SECOND + FRAME_6 + SIFS;
        net.send_at(ack_from + 1, other);
        net.drain();
        let start = net.delivered(other, 3)[0].0 - FRAME_6;
        let after = start - net.sent(long)[0].0;
        assert!(after >= DIFS && (after - DIFS).is_multiple_of(SLOT), "seed {seed}: {after}");
    }
}

#[test]
fn the_nearer_of_two_simultaneous_frames_is_received() {
    let mut net = Net::wifi(1, steep(6), &[0.0, 5.0, 20.0]);
    let (near, far) = (net.flow(1, 0), net.flow(2, 0));
    net.send_at(SECOND, near);
    net.send(far);
    net.drain();
    assert_eq!(net.delivered(near, 0), [(SECOND + FRAME_6, 0)]);
    assert!(net.delivered(far, 0)[0].0 > SECOND + 2 * FRAME_6);
    assert!(net.stats(2).failed_attempts >= 1);
}

#[test]
fn neither_of_two_equally_strong_frames_is_received() {
    let mut net = Net::wifi(1, steep(6), &[0.0, 10.0, -10.0]);
    let (one, other) = (net.flow(1, 0), net.flow(2, 0));
    net.send_at(SECOND, one);
    net.send(other);
    net.run(SECOND + FRAME_6);
    assert_eq!(net.events.len(), 0);
}

/// Returns the shortest time between two frames, if the second sender received the first from this
/// distance.
fn shortest_wait(metres: f64) -> u64 {
    let shortest = (0..200).map(|seed| {
        let once = WifiConfig { retries: 0, ..steep(54) };
        let mut net = Net::wifi(seed, once, &[0.0, 1.0, metres, metres + 1.0]);
        net.medium.set_pair_outage(net.stations[0], net.stations[1], true);
        let (heard, next) = (net.flow(0, 1), net.flow(2, 3));
        net.send_at(SECOND, heard);
        net.send_at(SECOND + FRAME_54 / 2, next);
        net.drain();
        net.delivered(next, 3)[0].0 - FRAME_54 - (SECOND + FRAME_54)
    });
    shortest.min().unwrap()
}

#[test]
fn an_unreadable_frame_is_followed_by_a_longer_wait() {
    let ack = 28_000;
    assert_eq!(shortest_wait(5.0), SIFS + ack + DIFS, "read: as long as it says");
    let slowest_ack = 44_000;
    assert_eq!(shortest_wait(25.0), SIFS + slowest_ack + DIFS, "EIFS");
}

#[test]
fn a_readable_frame_below_the_sensing_threshold_reserves_time() {
    // At 30 m the signal has -84 dBm: not sensed, but 10 dB over noise.
    let reserved = SIFS + 44_000;
    let waited = (0..200).map(|seed| {
        let mut net = Net::wifi(seed, steep(6), &[0.0, 1.0, 30.0, 31.0]);
        let (read, next) = (net.flow(0, 1), net.flow(2, 3));
        net.send_at(SECOND, read);
        let over = SECOND + FRAME_6;
        net.send_at(over + 1, next);
        net.drain();
        net.delivered(next, 3)[0].0 - FRAME_6 - over
    });
    assert_eq!(waited.min(), Some(reserved + DIFS));
}
