// SPDX-License-Identifier: Apache-2.0
//! Rates and losses: each sender alone on the path.

use super::{
    Laser, NODES_AROUND, Punctual, S, TCP_AROUND, TCP_BYTES, TCP_SHARE, lateness_remark, mbps,
    runs_in_time, scenario_text, tcp,
};
use crate::rig::progress::Progress;
use crate::rig::stats::{median, middle, p99};
use crate::validate::far::{LASER_BYTES, PAYLOAD_SHARE, load};
use anyhow::Result;
use serde::Serialize;
use std::fmt::Write;
use std::ops::Range;
use std::time::Duration;

const MBPS: [u64; 2] = [6, 54];
const LOSSES_PERCENT: [u64; 5] = [0, 1, 5, 10, 20];
const SENDERS: [Sender; 3] = [Sender::Cubic, Sender::Bbr, Sender::Tautline];
const SECONDS: u64 = 10;
/// Counted span; in the first second the sender still adapts.
const COUNTED: Range<u64> = S..SECONDS * S;
const BULK_BYTES: u64 = 65_536;

/// Sender on the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Sender {
    Cubic,
    Bbr,
    Tautline,
}

/// Medians of the runs of one sender on one path.
#[derive(Debug, Serialize)]
pub struct Cell {
    sender: Sender,
    mbps: u64,
    loss_percent: u64,
    /// Payload that arrived, percent of the payload that the path can carry in full packets after
    /// losses.
    goodput_percent: f64,
    goodput_percent_of_runs: Vec<f64>,
    /// p99 of the laser, with Tautline only.
    laser_p99_ms: Option<f64>,
    /// Messages of the laser that did not arrive, in all runs.
    laser_lost: usize,
    /// Lateness of the emulator by run.
    pub emulator: Vec<Punctual>,
}

impl Sender {
    const fn name(self) -> &'static str {
        match self {
            Self::Cubic => "TCP Cubic",
            Self::Bbr => "TCP BBR",
            Self::Tautline => "Tautline",
        }
    }

    fn flows(self, mbps: u64) -> String {
        match self {
            Self::Cubic => tcp("cubic", 0),
            Self::Bbr => tcp("bbr", 0),
            Self::Tautline => load(mbps, BULK_BYTES, 0),
        }
    }

    fn run(self, rate: u64, loss_percent: u64, runs: u64, progress: &Progress) -> Result<Cell> {
        let text = scenario_text(SECONDS, rate, loss_percent, &self.flows(rate));
        let (mut percents, mut lasers) = (Vec::new(), Vec::new());
        let (mut laser_lost, mut emulator) = (0, Vec::new());
        let kept = 1.0 - loss_percent as f64 / 100.0;
        for run in runs_in_time(&text, runs, progress)? {
            emulator.push(run.emulator);
            let (arrived, share) = if self == Self::Tautline {
                let laser = run.flow("laser")?;
                let Laser { delays_ms, lost } = Laser::new(laser, COUNTED);
                lasers.push(p99(delays_ms));
                laser_lost += lost;
                let bulk = mbps(run.flow("bulk")?, BULK_BYTES, COUNTED);
                (bulk + mbps(laser, LASER_BYTES, COUNTED), PAYLOAD_SHARE)
            } else {
                (mbps(run.flow("tcp")?, TCP_BYTES, COUNTED), TCP_SHARE)
            };
            percents.push(100.0 * arrived / (rate as f64 * share * kept));
        }
        Ok(Cell {
            sender: self,
            mbps: rate,
            loss_percent,
            goodput_percent: middle(&percents),
            goodput_percent_of_runs: percents,
            laser_p99_ms: median(lasers),
            laser_lost,
            emulator,
        })
    }
}

fn combinations() -> impl Iterator<Item = (u64, u64, Sender)> {
    MBPS.into_iter().flat_map(|mbps| {
        LOSSES_PERCENT
            .into_iter()
            .flat_map(move |loss| SENDERS.into_iter().map(move |sender| (mbps, loss, sender)))
    })
}

/// Returns the stages for the progress line.
pub fn stages() -> Vec<(String, Duration)> {
    let stage = |(mbps, loss, sender): (u64, u64, Sender)| {
        let around = if sender == Sender::Tautline { NODES_AROUND } else { TCP_AROUND };
        let name = format!("{} at {mbps} Mbps, {loss} % lost", sender.name());
        (name, Duration::from_secs(SECONDS) + around)
    };
    combinations().map(stage).collect()
}

/// Runs all senders.
pub fn run(runs: u64, progress: &Progress) -> Result<Vec<Cell>> {
    combinations().map(|(mbps, loss, sender)| sender.run(mbps, loss, runs, progress)).collect()
}

/// Returns the section of the page.
pub fn section(cells: &[Cell]) -> String {
    let mut text = format!(
        "## Rates and losses\n\n\
         Each sender is alone on the path for {SECONDS} s; the first second does not count. Figures are the payload that arrived, as a percentage of the payload that the link can carry in full packets after losses (of 1500 bytes, 1448 are payload with TCP, 1425 with Tautline). Laser: the 99th percentile of its delay in ms, and the messages that did not arrive, if any. The runs of TCP carry no laser scans.\n\n\
         | Mbps | loss | TCP Cubic | TCP BBR | Tautline | laser |\n|---|---|---|---|---|---|\n"
    );
    for row in cells.chunks(SENDERS.len()) {
        let _ = write!(text, "| {} | {} % |", row[0].mbps, row[0].loss_percent);
        for cell in row {
            let _ =
                write!(text, " {:.1} %{} |", cell.goodput_percent, lateness_remark(&cell.emulator));
        }
        let laser = row.iter().find_map(|cell| Some((cell.laser_p99_ms?, cell.laser_lost)));
        let _ = match laser {
            Some((p99, 0)) => writeln!(text, " {p99:.1} |"),
            Some((p99, lost)) => writeln!(text, " {p99:.1}, {lost} lost |"),
            None => writeln!(text, " - |"),
        };
    }
    text
}
