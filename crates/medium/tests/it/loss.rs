// SPDX-License-Identifier: Apache-2.0
//! Configured loss, in addition to collisions and weak signals.

use crate::net::{Net, SECOND, fixed};
use std::collections::BTreeSet;
use tautline_medium::{Loss, Outcome, Trial, WifiConfig};

const FRAMES: u64 = 4000;

fn lossy(loss: Loss, trial: Trial) -> WifiConfig {
    WifiConfig { loss, trial, ..fixed(54) }
}

/// Sends frames one at a time; returns whether each arrived.
fn arrivals(config: WifiConfig) -> (Net, Vec<bool>) {
    let mut net = Net::wifi(1, config, &[0.0, 0.0]);
    let flow = net.flow(0, 1);
    for _ in 0..FRAMES {
        net.send(flow);
        net.drain();
    }
    let came: BTreeSet<u64> = net.numbers(flow, 1).into_iter().collect();
    (net, (0..FRAMES).map(|number| came.contains(&number)).collect())
}

fn share(outcomes: &[bool], wanted: bool) -> f64 {
    outcomes.iter().filter(|came| **came == wanted).count() as f64 / outcomes.len() as f64
}

#[test]
fn loss_of_attempts_is_repaired_by_retries() {
    let (net, came) = arrivals(lossy(Loss::Uniform { probability: 0.2 }, Trial::Attempt));
    // 0.2^8 of the frames stay lost: none of 4000.
    assert!(came.iter().all(|came| *came));
    assert!((net.failed_share(0) - 0.2).abs() < 0.02, "{}", net.failed_share(0));
}

#[test]
fn loss_of_frames_is_neither_repaired_nor_detected() {
    let (net, came) = arrivals(lossy(Loss::Uniform { probability: 0.2 }, Trial::Frame));
    assert!((share(&came, false) - 0.2).abs() < 0.03);
    assert_eq!((net.stats(0).failed_attempts, net.stats(0).acknowledged), (0, FRAMES));
    assert!(net.sent(0).iter().all(|(_, outcome)| *outcome == Outcome::Done));
}

#[test]
fn a_frame_with_all_attempts_lost_is_abandoned() {
    let (net, came) = arrivals(lossy(Loss::Uniform { probability: 1.0 }, Trial::Attempt));
    assert!(came.iter().all(|came| !came));
    assert_eq!((net.stats(0).given_up, net.stats(0).attempts), (FRAMES, 8 * FRAMES));
}

#[test]
fn bursts_have_their_length_and_share() {
    let loss = Loss::GilbertElliott { enter: 0.02, leave: 0.2 };
    let (_, came) = arrivals(lossy(loss, Trial::Frame));
    assert!((share(&came, false) - 0.02 / 0.22).abs() < 0.03, "{}", share(&came, false));
    let bursts = came.windows(2).filter(|pair| !pair[0] && pair[1]).count();
    let mean = came.iter().filter(|came| !**came).count() as f64 / bursts as f64;
    assert!((mean - 5.0).abs() < 1.5, "mean burst {mean}");
}

#[test]
fn bursts_of_attempts_outlast_retries() {
    // The mean burst is 20 attempts, so 8 successive attempts often fail. Uniform loss of the same
    // share would lose 0.5^8 of the frames.
    let loss = Loss::GilbertElliott { enter: 0.05, leave: 0.05 };
    let (_, came) = arrivals(lossy(loss, Trial::Attempt));
    let lost = share(&came, false);
    assert!(lost > 0.05 && lost < 0.5, "{lost}");
}

#[test]
fn each_directed_pair_has_its_own_bursts() {
    let loss = Loss::GilbertElliott { enter: 0.1, leave: 0.1 };
    let mut net = Net::wifi(1, lossy(loss, Trial::Attempt), &[0.0, 0.0, 0.0]);
    let (there, back) = (net.broadcasts(0), net.broadcasts(1));
    for _ in 0..FRAMES {
        for flow in [there, back] {
            net.send(flow);
            net.drain();
        }
    }
    assert!(net.now < 60 * SECOND);
    let came = |flow, to| {
        let came: BTreeSet<u64> = net.numbers(flow, to).into_iter().collect();
        (0..FRAMES).map(|number| came.contains(&number)).collect::<Vec<_>>()
    };
    let first = came(there, 1);
    for (name, second) in [("receivers", came(there, 2)), ("directions", came(back, 0))] {
        let same: Vec<bool> = first.iter().zip(&second).map(|(a, b)| a == b).collect();
        assert!((share(&same, true) - 0.5).abs() < 0.1, "{name}: {}", share(&same, true));
    }
}
