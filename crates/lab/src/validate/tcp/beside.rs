// SPDX-License-Identifier: Apache-2.0
//! A TCP download alongside Tautline, through the same router's queue.

use super::{
    Laser, NODES_AROUND, Punctual, Run, S, TCP_BYTES, TCP_SHARE, lateness_remark, mbps,
    runs_in_time, scenario_text, tcp,
};
use crate::rig::progress::Progress;
use crate::rig::stats::{middle, p99, worst};
use crate::rig::table::{self, column, markdown_row, markdown_rule};
use crate::validate::far::{LASER_BYTES, PAYLOAD_SHARE, load};
use anyhow::Result;
use serde::Serialize;
use std::ops::Range;
use std::time::Duration;

const MBPS: u64 = 6;
const SECONDS: u64 = 20;
/// Start of the second sender.
const SECOND_S: u64 = 5;
/// Counted span, in which both senders have run for some time.
const COUNTED: Range<u64> = 10 * S..SECONDS * S;
const BULK_BYTES: u64 = 16_384;
const CONGESTIONS: [&str; 2] = ["cubic", "bbr"];
const FIRST: [First; 2] = [First::Tcp, First::Tautline];

/// The sender that starts first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum First {
    Tcp,
    Tautline,
}

/// Medians of the runs of TCP and Tautline together.
#[derive(Debug, Serialize)]
pub struct Pair {
    congestion: &'static str,
    first: First,
    /// Percent of the link that TCP gets in the counted seconds, headers of full packets included.
    tcp_percent: f64,
    /// Percent of the link that Tautline gets, counted in the same way.
    tautline_percent: f64,
    laser_p99_ms: f64,
    /// Messages of the laser that did not arrive, in all runs.
    laser_lost: usize,
    /// Lateness of the emulator by run.
    pub emulator: Vec<Punctual>,
    /// The seconds of each run.
    seconds: Vec<Vec<Second>>,
}

/// One second of a run.
#[derive(Debug, Serialize)]
struct Second {
    s: u64,
    tcp_mbps: f64,
    bulk_mbps: f64,
    /// Longest delay of the laser's messages sent in this second.
    laser_worst_ms: f64,
    /// Number of the laser's messages sent in this second that did not arrive.
    laser_lost: usize,
}

impl Second {
    fn from_run(run: &Run, s: u64) -> Result<Self> {
        let span = s * S..(s + 1) * S;
        let laser = Laser::new(run.flow("laser")?, span.clone());
        Ok(Self {
            s,
            tcp_mbps: mbps(run.flow("tcp")?, TCP_BYTES, span.clone()),
            bulk_mbps: mbps(run.flow("bulk")?, BULK_BYTES, span),
            laser_worst_ms: worst(&laser.delays_ms),
            laser_lost: laser.lost,
        })
    }

    fn words(&self) -> String {
        format!("{:.1} / {:.1} / {:.0}", self.tcp_mbps, self.bulk_mbps, self.laser_worst_ms)
    }
}

fn measure_one(
    congestion: &'static str,
    first: First,
    runs: u64,
    progress: &Progress,
) -> Result<Pair> {
    let (tcp_s, tautline_s) = if first == First::Tcp { (0, SECOND_S) } else { (SECOND_S, 0) };
    let flows = tcp(congestion, tcp_s) + &load(MBPS, BULK_BYTES, tautline_s * 1000);
    let text = scenario_text(SECONDS, MBPS, 0, &flows);
    let (mut by_tcp, mut by_tautline, mut lasers) = (Vec::new(), Vec::new(), Vec::new());
    let (mut laser_lost, mut emulator, mut seconds) = (0, Vec::new(), Vec::new());
    for run in runs_in_time(&text, runs, progress)? {
        let percent = |mbps: f64, share: f64| 100.0 * mbps / share / MBPS as f64;
        let (laser, bulk) = (run.flow("laser")?, run.flow("bulk")?);
        let ours = mbps(laser, LASER_BYTES, COUNTED) + mbps(bulk, BULK_BYTES, COUNTED);
        by_tcp.push(percent(mbps(run.flow("tcp")?, TCP_BYTES, COUNTED), TCP_SHARE));
        by_tautline.push(percent(ours, PAYLOAD_SHARE));
        let Laser { delays_ms, lost } = Laser::new(laser, COUNTED);
        lasers.push(p99(delays_ms));
        laser_lost += lost;
        emulator.push(run.emulator);
        seconds.push((0..SECONDS).map(|s| Second::from_run(&run, s)).collect::<Result<_>>()?);
    }
    Ok(Pair {
        congestion,
        first,
        tcp_percent: middle(&by_tcp),
        tautline_percent: middle(&by_tautline),
        laser_p99_ms: middle(&lasers),
        laser_lost,
        emulator,
        seconds,
    })
}

fn combinations() -> impl Iterator<Item = (&'static str, First)> {
    CONGESTIONS.into_iter().flat_map(|congestion| FIRST.map(|first| (congestion, first)))
}

/// Returns the stages for the progress line.
pub fn stages() -> Vec<(String, Duration)> {
    let time = Duration::from_secs(SECONDS) + NODES_AROUND;
    let name = |(congestion, first)| format!("TCP ({congestion}) and Tautline, {first:?} first");
    combinations().map(|it| (name(it), time)).collect()
}

/// Runs all pairs.
pub fn run(runs: u64, progress: &Progress) -> Result<Vec<Pair>> {
    combinations()
        .map(|(congestion, first)| measure_one(congestion, first, runs, progress))
        .collect()
}

/// Returns the section of the page.
pub fn section(pairs: &[Pair]) -> String {
    let rows = table::markdown(
        pairs,
        &[
            column("TCP", |pair: &Pair| pair.congestion.into()),
            column("first", |pair| pair.first.name().into()),
            column("TCP's share", |pair| format!("{:.1} %", pair.tcp_percent)),
            column("Tautline's share", |pair| {
                format!("{:.1} %{}", pair.tautline_percent, lateness_remark(&pair.emulator))
            }),
            column("laser", |pair| format!("{:.0}", pair.laser_p99_ms)),
            column("laser lost", |pair| pair.laser_lost.to_string()),
        ],
    );
    let title = |pair: &Pair| format!("{}, {} first", pair.congestion, pair.first.name());
    let titles = ["s".to_owned()].into_iter().chain(pairs.iter().map(title));
    let second = |s: usize| {
        let all = pairs.iter().filter_map(|pair| pair.seconds.first()?.get(s));
        markdown_row([s.to_string()].into_iter().chain(all.map(Second::words)))
    };
    let seconds: String = (0..SECONDS as usize).map(second).collect();
    format!(
        "## A TCP download alongside Tautline\n\n\
         Both senders share a link of {MBPS} Mbps without losses, and the router's single queue of 300 KB (400 ms). One sends from the start, the other from {SECOND_S} s on. Shares are percentages of the link in the last 10 of {SECONDS} s. Laser: the 99th percentile of its delay in ms, and its messages that did not arrive.\n\n\
         {rows}\n\
         For each second of the first run: TCP's payload in Mbps / Tautline's bulk in Mbps / the laser's longest delay in ms.\n\n{}{}{seconds}",
        markdown_row(titles),
        markdown_rule(1 + pairs.len())
    )
}

impl First {
    fn name(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Tautline => "Tautline",
        }
    }
}
