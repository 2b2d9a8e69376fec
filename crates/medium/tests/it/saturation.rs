// SPDX-License-Identifier: Apache-2.0
//! Saturated stations share the channel as the standard's DCF specifies.

use crate::net::{IP_BYTES, Net, SECOND, fixed};

/// Rows: PHY rate in Mbps, stations, Mbps of IP, share of attempts that collide. Source: an independent
/// simulation of IEEE 802.11a DCF, slot by slot.
const REFERENCE: [(u64, usize, f64, f64); 8] = [
    (6, 1, 5.3680, 0.0),
    (6, 2, 5.1113, 0.1118),
    (6, 5, 4.6556, 0.2676),
    (6, 10, 4.2956, 0.3735),
    (54, 1, 30.3394, 0.0),
    (54, 2, 30.5838, 0.1098),
    (54, 5, 28.8161, 0.2631),
    (54, 10, 26.8383, 0.3704),
];

/// Returns Mbps of IP, and the share of attempts that failed.
fn saturate(phy_mbps: u64, stations: usize, seconds: u64, seed: u64) -> (f64, f64) {
    let mut net = Net::wifi(seed, fixed(phy_mbps), &vec![0.0; stations + 1]);
    for station in 1..=stations {
        let flow = net.flow(station, 0);
        net.saturate(flow);
    }
    net.run(seconds * SECOND);
    let stats: Vec<_> = (1..=stations).map(|station| net.stats(station)).collect();
    let acknowledged: u64 = stats.iter().map(|s| s.acknowledged).sum();
    let failed: u64 = stats.iter().map(|s| s.failed_attempts).sum();
    let attempts: u64 = stats.iter().map(|s| s.attempts).sum();
    let mbps = acknowledged as f64 * f64::from(IP_BYTES) * 8.0 / seconds as f64 / 1e6;
    (mbps, failed as f64 / attempts as f64)
}

#[test]
fn throughput_and_collisions_match_the_reference() {
    for (phy_mbps, stations, mbps, collisions) in REFERENCE {
        let seconds = if phy_mbps == 6 { 20 } else { 6 };
        let (ours, failed) = saturate(phy_mbps, stations, seconds, 1);
        let case = format!("{stations} stations at {phy_mbps} Mbps");
        assert!((ours / mbps - 1.0).abs() < 0.03, "{case}: {ours} Mbps, not {mbps}");
        assert!((failed - collisions).abs() < 0.02, "{case}: {failed} collide, not {collisions}");
    }
}
