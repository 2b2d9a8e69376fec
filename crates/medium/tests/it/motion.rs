// SPDX-License-Identifier: Apache-2.0
//! Moving robots, and rate adaptation.

use crate::net::{Nanos, Net, SECOND, fixed};
use tautline_medium::{Motion, PathLoss, RateControl, WifiConfig};

const LAW: PathLoss = PathLoss { at_1m_db: 40.0, exponent: 3.0, shadowing_db: 0.0 };
const DRIVE: Nanos = 20 * SECOND;

fn config(rate: RateControl) -> WifiConfig {
    WifiConfig { rate, path_loss: Some(LAW), ..WifiConfig::default() }
}

/// Simulates a robot that saturates its base while it drives from 5 m to 205 m and back.
fn drive(rate: RateControl) -> (Net, usize) {
    let place = |x| [x, 0.0, 0.0];
    let waypoints = vec![(0, place(5.0)), (DRIVE / 2, place(205.0)), (DRIVE, place(5.0))];
    let motions = vec![Motion { waypoints }, Motion::at(place(0.0))];
    let mut net = Net::moving(1, config(rate), motions);
    let flow = net.flow(0, 1);
    net.saturate(flow);
    net.run(DRIVE);
    (net, flow)
}

fn fixed_at(mbps: u64) -> RateControl {
    RateControl::Fixed(mbps * 1_000_000)
}

/// Returns the last arrival of the outward drive and the first of the return.
fn gap(mbps: u64) -> (Nanos, Nanos) {
    let (net, flow) = drive(fixed_at(mbps));
    let times: Vec<_> = net.delivered(flow, 1).into_iter().map(|(at, _)| at).collect();
    let back = times.partition_point(|at| *at < DRIVE / 2);
    (times[back - 1], times[back])
}

#[test]
fn the_fastest_rate_fails_first_and_recovers_last() {
    let ((lost_54, back_54), (lost_6, back_6)) = (gap(54), gap(6));
    assert!(lost_54 + SECOND < lost_6, "{lost_54} {lost_6}");
    assert!(back_54 > back_6 + SECOND, "{back_54} {back_6}");
    // By the law, 54 Mbps (21 dB) reaches 48 m and 6 Mbps (4 dB) 172 m. The robot starts at 5 m, at 20 m/s.
    let second = |at: Nanos| at as f64 / SECOND as f64;
    assert!((second(lost_54) - 2.1).abs() < 0.3 && (second(lost_6) - 8.4).abs() < 0.7);
}

/// Returns the Mbps delivered between two times.
fn mbps(net: &Net, flow: usize, from: Nanos, until: Nanos) -> f64 {
    let within = |(at, _): &&(Nanos, u64)| (from..until).contains(at);
    let frames = net.delivered(flow, 1).iter().filter(within).count();
    frames as f64 * f64::from(crate::net::IP_BYTES) * 8.0 / ((until - from) as f64 / 1e3)
}

#[test]
fn an_adaptive_rate_follows_the_distance() {
    let (net, flow) = drive(RateControl::Adaptive);
    let at = |second: u64| mbps(&net, flow, second * SECOND, (second + 1) * SECOND);
    assert!(at(1) > 20.0, "near: {}", at(1));
    assert!(at(7) > 1.0 && at(7) < 8.0, "far: {}", at(7));
    assert!(at(19) > 20.0, "back: {}", at(19));
}

#[test]
fn an_adaptive_rate_beats_each_fixed_rate_over_a_drive() {
    let total = |rate| {
        let (net, flow) = drive(rate);
        net.delivered(flow, 1).len()
    };
    let adaptive = total(RateControl::Adaptive);
    for mbps in [6, 9, 12, 18, 24, 36, 48, 54] {
        let fixed = total(fixed_at(mbps));
        assert!(adaptive > fixed, "{mbps} Mbps: {fixed}, adaptive {adaptive}");
    }
}

#[test]
fn an_adaptive_rate_comes_close_to_the_best_fixed_rate() {
    let total = |rate, metres| {
        let mut net = Net::wifi(1, config(rate), &[0.0, metres]);
        let flow = net.flow(0, 1);
        net.saturate(flow);
        net.run(3 * SECOND);
        net.delivered(flow, 1).len() as f64
    };
    for (metres, best, least) in [(20.0, 54, 0.95), (50.0, 36, 0.85), (70.0, 24, 0.8)] {
        let share = total(RateControl::Adaptive, metres) / total(fixed_at(best), metres);
        assert!(share > least, "at {metres} m {share} of {best} Mbps");
    }
}

#[test]
fn positions_are_as_configured_at_any_time() {
    let (net, _) = drive(fixed_at(6));
    assert_eq!(net.medium.place(net.stations[0], DRIVE / 4), [105.0, 0.0, 0.0]);
    assert_eq!(net.medium.place(net.stations[0], 2 * DRIVE), [5.0, 0.0, 0.0]);
}

#[test]
fn shadowing_is_equal_in_both_directions_and_differs_by_pair_and_seed() {
    // At the range limit of 54 Mbps, shadowing of 12 dB decides.
    let reached = |seed, from: usize, to: usize| {
        let law = PathLoss { shadowing_db: 12.0, ..LAW };
        let config = WifiConfig { path_loss: Some(law), ..fixed(54) };
        let mut net = Net::wifi(seed, config, &[0.0, 48.0]);
        let flow = net.flow(from, to);
        net.send(flow);
        net.drain();
        !net.numbers(flow, to).is_empty()
    };
    let there: Vec<bool> = (0..60).map(|seed| reached(seed, 0, 1)).collect();
    let agree = (0..60).filter(|seed| there[*seed as usize] == reached(*seed, 1, 0)).count();
    assert!(agree >= 54, "{agree}");
    let share = there.iter().filter(|reached| **reached).count();
    assert!((15..=45).contains(&share), "{share}");
}
