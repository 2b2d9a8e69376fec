// SPDX-License-Identifier: Apache-2.0
//! The links of RCom's experiment over time, with the quantities of RCom's plots.

use super::{OFFERED_HZ, System, rcom};
use crate::rig::plot;
use crate::rig::processes::{make_folder, write_packed};
use crate::sim;
use anyhow::{Context, Result, ensure};
use serde::Serialize;
use std::path::Path;
use std::time::Duration;
use tautline_medium::{Nanos, StationId};
use tautline_proto::stats::LinkStats;

/// Systems that are drawn.
pub const SYSTEMS: [System; 3] = [System::Fixed, System::Aid, System::Stripe];
/// Rates of the links in the order of the scenario's networks, Mbps.
const LINKS_MBPS: [f64; 3] = [1.5, 11.0, 54.0];
/// Time that a point covers.
const BIN: Nanos = 500_000_000;

/// A link under one system, with one value for each [`BIN`].
#[derive(Debug, Clone, Serialize)]
pub struct Series {
    system: System,
    words: &'static str,
    link_mbps: f64,
    /// End of each bin, seconds since the start.
    s: Vec<f64>,
    /// Mean time between two packets sent, milliseconds; null without a packet.
    gap_ms: Vec<Option<f64>>,
    /// IP packets sent, Mbps.
    attempted_mbps: Vec<f64>,
    /// Rate of acknowledged IP packets in Mbps; each packet counts with the mean size of its bin.
    acknowledged_mbps: Vec<f64>,
    /// Packets acknowledged for each packet sent; null without a packet. Acknowledgements belong to
    /// the bin in which they arrive, so that single values may exceed 1.
    ratio: Vec<Option<f64>>,
    /// Smoothed round trip at the end of the bin, milliseconds.
    rtt_ms: Vec<Option<f64>>,
}

/// State of a link at the end of a bin.
type LinkState = (LinkStats, Option<Duration>);

/// Runs RCom's experiment, offered at the higher rate, and returns a series for each link.
pub fn run(system: System) -> Result<Vec<Series>> {
    let scenario = rcom(OFFERED_HZ[1], system)?;
    let mut seen: Vec<(Nanos, Vec<LinkState>)> = Vec::new();
    sim::watch(&scenario, 1, BIN, |sight| seen.push((sight.at_ns, sight.links(StationId(0)))))?;
    let links = LINKS_MBPS.iter().enumerate();
    links.map(|(number, mbps)| series(system, *mbps, number, &seen)).collect()
}

fn series(
    system: System,
    link_mbps: f64,
    number: usize,
    seen: &[(Nanos, Vec<LinkState>)],
) -> Result<Series> {
    let mut series = Series {
        system,
        words: system.words(),
        link_mbps,
        s: Vec::new(),
        gap_ms: Vec::new(),
        attempted_mbps: Vec::new(),
        acknowledged_mbps: Vec::new(),
        ratio: Vec::new(),
        rtt_ms: Vec::new(),
    };
    for pair in seen.windows(2) {
        let [(from, before), (to, now)] = pair else { continue };
        let (before, now) = before.get(number).zip(now.get(number)).context("a link is missing")?;
        series.add((*from, *to), before, now);
    }
    Ok(series)
}

impl Series {
    fn add(&mut self, (from, to): (Nanos, Nanos), (before, _): &LinkState, (now, rtt): &LinkState) {
        let seconds = (to - from) as f64 / 1e9;
        let sent = now.sent_packets - before.sent_packets;
        let acked = now.acked_packets - before.acked_packets;
        let attempted = (now.sent_bytes - before.sent_bytes) as f64 * 8.0 / seconds / 1e6;
        let ratio = (sent > 0).then(|| acked as f64 / sent as f64);
        self.s.push(round_to_three_digits(to as f64 / 1e9));
        self.gap_ms.push((sent > 0).then(|| round_to_three_digits(seconds * 1e3 / sent as f64)));
        self.attempted_mbps.push(round_to_three_digits(attempted));
        self.acknowledged_mbps.push(round_to_three_digits(attempted * ratio.unwrap_or(0.0)));
        self.ratio.push(ratio.map(round_to_three_digits));
        self.rtt_ms.push(rtt.map(|rtt| round_to_three_digits(rtt.as_secs_f64() * 1e3)));
    }
}

/// Rounds to three decimals, which the plot does not show.
fn round_to_three_digits(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

/// Writes the series to measured/links-series.json.gz and draws explanation/links.png, both below
/// `folder`.
pub fn write_docs(all: &[Series], folder: &Path) -> Result<()> {
    let (raw, pages) = (folder.join("measured"), folder.join("explanation"));
    make_folder(&raw)?;
    ensure!(pages.is_dir(), "{} is not a folder", pages.display());
    let lines: Result<Vec<String>, _> = all.iter().map(serde_json::to_string).collect();
    let samples = raw.join("links-series.json.gz");
    write_packed(&samples, &format!("[\n{}\n]\n", lines?.join(",\n")))?;
    plot::draw("links.py", &[samples, pages.join("links.png")])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bin_has_the_packets_between_two_readings() {
        let at = |packets: u64, acked_packets| {
            let stats = LinkStats {
                sent_packets: packets,
                sent_bytes: packets * 1500,
                acked_packets,
                ..LinkStats::default()
            };
            (stats, Some(Duration::from_micros(2500)))
        };
        let looks = [(0, at(10, 10)), (BIN, at(110, 85)), (2 * BIN, at(110, 110))];
        let looks = looks.map(|(time, link)| (time, vec![link]));
        let series = series(System::Aid, 11.0, 0, &looks).unwrap();
        assert_eq!(series.s, [0.5, 1.0]);
        assert_eq!(series.gap_ms, [Some(5.0), None]);
        assert_eq!(
            (series.attempted_mbps, series.acknowledged_mbps),
            (vec![2.4, 0.0], vec![1.8, 0.0])
        );
        assert_eq!(series.ratio, [Some(0.75), None]);
        assert_eq!(series.rtt_ms, [Some(2.5); 2]);
    }
}
