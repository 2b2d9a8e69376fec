// SPDX-License-Identifier: Apache-2.0
//! Several nodes on one 802.11 channel: how they share it, and the delay of their lasers.

use super::parse;
use crate::rig::parallel;
use crate::rig::progress::Progress;
use crate::rig::stats::{self, Samples};
use crate::rig::table::{self, column};
use crate::sim;
use anyhow::Result;
use serde::Serialize;
use std::time::Duration;
use tautline_medium::RadioId;

const STATIONS: [usize; 3] = [2, 5, 10];
const PHY_MBPS: [u64; 2] = [6, 54];
const SECONDS: u64 = 20;
const S: u64 = 1_000_000_000;
const BULK_BYTES: u64 = 1400;
const LASER_EVERY_MS: u64 = 50;
const EXPECTED: Duration = Duration::from_millis(700);

/// Protocol and load of the stations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sender {
    /// Plain UDP that always has a packet: shows 802.11's own fairness and the channel's capacity.
    Udp,
    /// Tautline without configuration, with bulk only.
    Bulk,
    /// Like `Bulk`, with a laser at each station, on DCF.
    Dcf,
    /// Like `Dcf`, on EDCA.
    Edca,
}

const SENDERS: [Sender; 4] = [Sender::Udp, Sender::Bulk, Sender::Dcf, Sender::Edca];

/// Figures of one channel.
#[derive(Debug, Serialize)]
pub struct Channel {
    stations: usize,
    phy_mbps: u64,
    sender: Sender,
    /// Jain's index of bulk over the whole time.
    jain: f64,
    /// Minimum of Jain's index of each second.
    least_jain: f64,
    /// Median of Jain's index of each second.
    median_jain: f64,
    /// IP bytes of all stations, reports included, percent of those of saturated plain UDP.
    ip_percent: f64,
    /// 99th percentile of each node's laser delay.
    laser_p99_ms: Vec<f64>,
}

fn scenario_text(stations: usize, phy_mbps: u64, sender: Sender) -> String {
    let access = if sender == Sender::Edca { "edca" } else { "dcf" };
    let flows = match sender {
        Sender::Udp => {
            "  - { name: bulk, from: robot*, to: base, size: 1472, every: saturate, over: udp }\n"
                .to_owned()
        }
        // Each station offers more than its part of the channel.
        Sender::Bulk | Sender::Dcf | Sender::Edca => {
            let every_us = BULK_BYTES * 8 * stations as u64 / phy_mbps;
            format!(
                "  - {{ name: bulk, from: robot*, to: base, size: {BULK_BYTES}, every: {every_us}us, priority: 20, keep_last: 50 }}\n"
            )
        }
    };
    let laser = match sender {
        Sender::Udp | Sender::Bulk => String::new(),
        Sender::Dcf | Sender::Edca => format!(
            "  - {{ name: laser, from: robot*, to: base, size: 1KB, every: {LASER_EVERY_MS}ms, priority: 200, keep_last: 10 }}\n"
        ),
    };
    format!(
        "about: One channel for all\nsource: made up\nduration: {SECONDS}s\n\
         networks:\n  channel: {{ wifi: {{ phy: ofdm, rate: {phy_mbps}Mbps, access: {access} }} }}\n\
         stations:\n  base: {{ networks: [channel] }}\n  robot: {{ count: {stations}, networks: [channel] }}\n\
         flows:\n{flows}{laser}"
    )
}

/// Returns the bytes per second after the first second, and the samples.
fn measure(
    stations: usize,
    phy_mbps: u64,
    sender: Sender,
) -> Result<(f64, Vec<(String, Samples)>)> {
    let (mut before, mut after) = (0, 0);
    let flows = sim::watch(&parse(&scenario_text(stations, phy_mbps, sender))?, 1, S, |sight| {
        let received = (0..=stations).map(|radio| sight.radio(RadioId(radio)).received_bytes);
        after = received.sum();
        if sight.at_ns == S {
            before = after;
        }
    })?;
    Ok(((after - before) as f64 / (SECONDS - 1) as f64, flows))
}

fn run_one(stations: usize, phy_mbps: u64, sender: Sender, saturated: f64) -> Result<Channel> {
    let (bytes, flows) = measure(stations, phy_mbps, sender)?;
    let of = |name: &str| {
        let all = flows.iter().filter(move |(it, _)| it.starts_with(name));
        all.map(|(_, samples)| samples).collect::<Vec<_>>()
    };
    let bulk = of("bulk");
    let within = |from: u64, to: u64| {
        let count = |it: &&Samples| it.arrived_count(from * S..to * S) as f64;
        jain(&bulk.iter().map(count).collect::<Vec<_>>())
    };
    let seconds: Vec<f64> = (1..SECONDS).map(|second| within(second, second + 1)).collect();
    let [least_jain, _] = stats::spread(&seconds);
    let p99 = |samples: &Samples| stats::p99(samples.delays(S..u64::MAX));
    Ok(Channel {
        stations,
        phy_mbps,
        sender,
        jain: within(1, SECONDS),
        least_jain,
        median_jain: stats::middle(&seconds),
        ip_percent: 100.0 * bytes / if sender == Sender::Udp { bytes } else { saturated },
        laser_p99_ms: of("laser").into_iter().map(p99).collect(),
    })
}

/// Returns Jain's index of fairness (Jain, Chiu and Hawe, 1984): 1 if all values are equal.
fn jain(shares: &[f64]) -> f64 {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    if squares == 0.0 { 0.0 } else { sum * sum / (shares.len() as f64 * squares) }
}

fn combinations() -> impl Iterator<Item = (usize, u64)> {
    PHY_MBPS.into_iter().flat_map(|mbps| STATIONS.map(|stations| (stations, mbps)))
}

/// Returns the stages for the progress line.
pub fn stages() -> Vec<(String, Duration)> {
    let name = |(stations, mbps)| format!("{stations} stations at {mbps} Mbps");
    combinations().map(|it| (name(it), EXPECTED * SENDERS.len() as u32)).collect()
}

/// Runs all channels.
pub fn run(progress: &Progress) -> Result<Vec<Channel>> {
    let channels = parallel::run(progress, combinations().collect(), |(stations, phy_mbps)| {
        let (saturated, _) = measure(stations, phy_mbps, Sender::Udp)?;
        let run = |sender| run_one(stations, phy_mbps, sender, saturated);
        SENDERS.into_iter().map(run).collect::<Result<Vec<_>>>()
    })?;
    Ok(channels.into_iter().flatten().collect())
}

/// Returns the figures that miss the targets without lasers: fairness 0.95 over the whole time;
/// 0.85 over each second, or that of plain UDP where it is less; 92 % of the channel's capacity.
pub fn missed_targets(channels: &[Channel]) -> Vec<String> {
    let of_udp = |it: &&Channel| it.sender == Sender::Udp;
    let missed = |channel: &Channel| {
        let same =
            |it: &&Channel| (it.stations, it.phy_mbps) == (channel.stations, channel.phy_mbps);
        let udp = channels.iter().filter(of_udp).find(same).map_or(1.0, |it| it.least_jain);
        let least = udp.min(0.85);
        let &Channel { stations, phy_mbps, jain, least_jain, ip_percent, .. } = channel;
        let reached = jain >= 0.95 && least_jain >= least && ip_percent >= 92.0;
        (!reached).then(|| {
            format!(
                "{stations} stations at {phy_mbps} Mbps: fairness {jain:.3} of 0.95, of a second {least_jain:.2} of {least:.2}, {ip_percent:.1} % of the channel of 92 %"
            )
        })
    };
    channels.iter().filter(|it| it.sender == Sender::Bulk).filter_map(missed).collect()
}

/// Returns the section of the page.
pub fn section(channels: &[Channel]) -> String {
    let rows = table::markdown(
        channels,
        &[
            column("PHY Mbps", |channel: &Channel| channel.phy_mbps.to_string()),
            column("robots", |channel| channel.stations.to_string()),
            column("sending", |channel| channel.sender.words().into()),
            column("fairness", |channel| format!("{:.3}", channel.jain)),
            column("median of seconds", |channel| format!("{:.2}", channel.median_jain)),
            column("minimum", |channel| format!("{:.2}", channel.least_jain)),
            column("sum", |channel| format!("{:.0} %", channel.ip_percent)),
            column("laser p99, each", |channel| {
                let all = channel.laser_p99_ms.iter().map(|ms| format!("{ms:.0}"));
                all.collect::<Vec<_>>().join(", ")
            }),
        ],
    );
    format!(
        "## Several nodes on one channel\n\n\
         Robots send more bulk than fits to one base on one 802.11 channel, in one collision domain. A run lasts {SECONDS} s; its first second does not count. \
         Fairness is Jain's index of bulk: over the whole time, and the median and the minimum of its values for single seconds. \
         Sum: IP bytes of all robots, reports included, as a percentage of those of the same number of stations that always have a full UDP packet. \
         Laser: the 99th percentile of delay in ms, for each robot's 1 KB every {LASER_EVERY_MS} ms at priority 200. \
         On EDCA, the class of a packet selects the access category.\n\n{rows}"
    )
}

impl Sender {
    fn words(self) -> &'static str {
        match self {
            Self::Udp => "plain UDP",
            Self::Bulk => "bulk",
            Self::Dcf => "bulk and laser",
            Self::Edca => "bulk and laser, EDCA",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fairness_is_one_for_equal_shares() {
        assert!((jain(&[3.0, 3.0, 3.0]) - 1.0).abs() < 1e-12);
        assert!((jain(&[5.0, 0.0, 0.0, 0.0]) - 0.25).abs() < 1e-12);
    }
}
