// SPDX-License-Identifier: Apache-2.0
//! Access categories: IEEE 802.11-2016, clause 10.22.2.

use crate::net::{Flow, IP_BYTES, Net, SECOND, fixed};
use tautline_medium::{Access, WifiConfig};

const VOICE: u8 = 46;
const VIDEO: u8 = 34;
const BEST_EFFORT: u8 = 0;
const BACKGROUND: u8 = 8;

fn edca() -> WifiConfig {
    WifiConfig { access: Access::Edca, ..fixed(6) }
}

/// Returns the frames delivered to station 0 from saturated senders (station, DSCP).
fn compete(config: WifiConfig, senders: &[(usize, u8)]) -> (Net, Vec<usize>) {
    let mut net = Net::wifi(1, config, &[0.0; 5]);
    let to = Some(net.radios[0]);
    let add = |&(from, dscp): &(usize, u8)| {
        let from = net.radios[from];
        let flow = net.add(Flow { from, to, bytes: IP_BYTES, dscp, ecn_capable: false });
        net.saturate(flow);
        flow
    };
    let flows: Vec<_> = senders.iter().map(add).collect();
    net.run(10 * SECOND);
    let counts = flows.iter().map(|flow| net.delivered(*flow, 0).len()).collect();
    (net, counts)
}

#[test]
fn voice_beats_background() {
    let (_, counts) = compete(edca(), &[(1, VOICE), (2, BACKGROUND)]);
    assert!(counts[0] > 20 * counts[1], "{counts:?}");
}

#[test]
fn categories_keep_their_order_between_stations() {
    let senders = [(1, VOICE), (2, VIDEO), (3, BEST_EFFORT), (4, BACKGROUND)];
    let (_, counts) = compete(edca(), &senders);
    assert!(counts.windows(2).all(|pair| pair[0] > pair[1]), "{counts:?}");
}

#[test]
fn dcf_ignores_code_points() {
    let (_, counts) = compete(fixed(6), &[(1, VOICE), (2, BACKGROUND)]);
    let ratio = counts[0] as f64 / counts[1] as f64;
    assert!((ratio - 1.0).abs() < 0.1, "{counts:?}");
}

#[test]
fn queues_of_one_radio_do_not_collide_on_the_air() {
    let senders = [(1, VOICE), (1, VIDEO), (1, BEST_EFFORT), (1, BACKGROUND)];
    let (net, counts) = compete(edca(), &senders);
    assert_eq!(net.stats(1).failed_attempts, 0);
    assert!(counts.windows(2).all(|pair| pair[0] > pair[1]), "{counts:?}");
    // The loser of an internal collision backs off with a wider window, but still sends.
    assert!(counts[2] > 0, "{counts:?}");
}

#[test]
fn code_points_share_a_queue_by_category() {
    let same = |a: u8, b: u8| {
        let mut medium = tautline_medium::Medium::new(1);
        let wifi = medium.add_network(edca());
        let radio = |medium: &mut tautline_medium::Medium<()>| {
            let station = medium.add_station(tautline_medium::Motion::at([0.0; 3]));
            medium.add_radio(station, wifi, 1)
        };
        let (from, to) = (radio(&mut medium), Some(radio(&mut medium)));
        let frame =
            |dscp| tautline_medium::Frame { to, bytes: 100, dscp, ecn_capable: false, payload: () };
        medium.send(0, from, frame(a)).unwrap();
        medium.send(0, from, frame(b)).is_err()
    };
    // EF, VOICE-ADMIT, CS6, CS7; AF41, AF31, CS4, CS5; AF21, AF11, CS2; CS1.
    let categories: [&[u8]; 4] =
        [&[46, 44, 48, 56], &[34, 26, 32, 40], &[0, 18, 10, 16], &[BACKGROUND]];
    for (number, category) in categories.iter().enumerate() {
        for dscp in *category {
            for (other, points) in categories.iter().enumerate() {
                assert_eq!(same(*dscp, points[0]), number == other, "{dscp} and {}", points[0]);
            }
        }
    }
}
