// SPDX-License-Identifier: Apache-2.0
//! Interference from sources that are no stations.

use crate::net::{DIFS, FRAME_6, MS, Net, SECOND, fixed};
use tautline_medium::{Interference, PathLoss, WifiConfig};

const RUN: u64 = 10 * SECOND;

/// Returns the frames delivered at 6 Mbps with bursts of 2 ms and this mean pause.
fn delivered(mean_pause: Option<u64>) -> f64 {
    let mut net = Net::wifi(1, fixed(6), &[0.0, 0.0]);
    if let Some(mean_pause) = mean_pause {
        net.medium.interfere(0, net.network, bursts(2 * MS, mean_pause));
    }
    let flow = net.flow(0, 1);
    net.saturate(flow);
    net.run(RUN);
    net.delivered(flow, 1).len() as f64
}

fn bursts(burst: u64, mean_pause: u64) -> Interference {
    Interference { burst, mean_pause, place: [0.0; 3], from: 0, until: RUN }
}

#[test]
fn throughput_falls_by_at_least_the_share_of_airtime() {
    let clean = delivered(None);
    for (mean_pause, share) in [(38 * MS, 0.05), (18 * MS, 0.1), (6 * MS, 0.25)] {
        let left = delivered(Some(mean_pause)) / clean;
        assert!(left < 1.0 - share + 0.02, "{share} of the air taken, {left} left");
        assert!(left > 1.0 - 4.0 * share, "{share} of the air taken, {left} left");
    }
}

#[test]
fn interference_ends_at_its_stated_time() {
    let mut net = Net::wifi(1, fixed(6), &[0.0, 0.0]);
    let what = Interference { from: SECOND, until: 2 * SECOND, ..bursts(SECOND, 0) };
    net.medium.interfere(0, net.network, what);
    let flow = net.flow(0, 1);
    net.saturate(flow);
    net.run(3 * SECOND);
    let times: Vec<u64> = net.delivered(flow, 1).into_iter().map(|(at, _)| at).collect();
    let within = |from, until| times.iter().filter(|at| (from..until).contains(*at)).count();
    assert_eq!(within(SECOND, 2 * SECOND), 0);
    assert!(within(0, SECOND) > 400 && within(2 * SECOND, 3 * SECOND) > 400);
}

#[test]
fn distant_interference_has_no_effect() {
    let law = PathLoss { at_1m_db: 40.0, exponent: 3.0, shadowing_db: 0.0 };
    let failed = |metres| {
        let config = WifiConfig { path_loss: Some(law), ..fixed(6) };
        let mut net = Net::wifi(1, config, &[0.0, 5.0]);
        let what = Interference { place: [metres, 0.0, 0.0], ..bursts(2 * MS, 8 * MS) };
        net.medium.interfere(0, net.network, what);
        let flow = net.flow(0, 1);
        net.saturate(flow);
        net.run(2 * SECOND);
        net.failed_share(0)
    };
    assert!(failed(5.0) > 0.05);
    assert_eq!(failed(500.0), 0.0);
}

#[test]
fn bursts_without_length_or_pause_do_not_stop_time() {
    let mut net = Net::wifi(1, fixed(6), &[0.0, 0.0]);
    let what = Interference { until: 20_000, ..bursts(0, 0) };
    net.medium.interfere(0, net.network, what);
    let flow = net.flow(0, 1);
    net.send(flow);
    net.drain();
    assert_eq!(net.sent(flow).len(), 1);
}

#[test]
fn stations_wait_as_usual_after_interference() {
    let waited = (0..200).map(|seed| {
        let mut net = Net::wifi(seed, fixed(6), &[0.0, 0.0]);
        let what = Interference { from: SECOND, until: SECOND + MS, ..bursts(MS, 0) };
        net.medium.interfere(0, net.network, what);
        let flow = net.flow(0, 1);
        net.send_at(SECOND + MS / 2, flow);
        net.drain();
        net.delivered(flow, 1)[0].0 - FRAME_6 - (SECOND + MS)
    });
    assert_eq!(waited.min(), Some(DIFS));
}
