// SPDX-License-Identifier: Apache-2.0
//! Pauses: the rate of a burst after a minute in which nothing or only a laser's scans were sent.

use super::{MBPS, parse};
use crate::rig::table::{self, column};
use crate::sim;
use crate::validate::far::{self, PAYLOAD_SHARE};
use anyhow::Result;
use serde::Serialize;
use std::time::Duration;

/// Duration of the bursts before and after the pause.
const BURST_S: u64 = 5;
const PAUSE_S: u64 = 60;
const S: u64 = 1_000_000_000;
/// Bytes of a bulk message: small, so that one second shows the rate.
const BULK_BYTES: u64 = 8_192;
/// Least rate after the pause, percent of the rate before it.
const LEAST_PERCENT: f64 = 80.0;
/// Expected duration of one run, for the progress line.
const EXPECTED: Duration = Duration::from_millis(500);

/// Messages sent during the pause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum DuringPause {
    Nothing,
    Laser,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Case {
    mbps: u64,
    meanwhile: DuringPause,
}

/// Figures of one pause, with `auto`.
#[derive(Debug, Serialize)]
pub struct Pause {
    mbps: u64,
    meanwhile: DuringPause,
    /// Payload that arrived in the last three seconds before the pause, percent of what fits.
    before_percent: f64,
    /// Payload that arrived in the first second after the pause, percent of what fits.
    after_percent: f64,
}

impl Case {
    pub(super) fn every_case() -> Vec<Self> {
        let both = [DuringPause::Nothing, DuringPause::Laser];
        MBPS.into_iter().flat_map(|mbps| both.map(|meanwhile| Self { mbps, meanwhile })).collect()
    }

    pub(super) fn stage(self) -> (String, Duration) {
        (format!("a pause at {} Mbps", self.mbps), EXPECTED)
    }

    fn scenario_text(self) -> String {
        let Self { mbps, meanwhile } = self;
        let every_us = BULK_BYTES * 8 * 10 / (mbps * 12);
        let count = BURST_S * 1_000_000 / every_us;
        let burst = |name: &str, start_s: u64| {
            format!(
                "  - {{ name: {name}, from: robot, to: base, size: {BULK_BYTES}, every: {every_us}us, count: {count}, priority: 20, keep_last: 10, start: {start_s}s }}\n"
            )
        };
        let mut flows = burst("before", 0) + &burst("after", BURST_S + PAUSE_S);
        if meanwhile == DuringPause::Laser {
            flows += &far::laser(0);
        }
        let slow = format!("rate: {mbps}Mbps, queue: 300KB");
        far::scenario(2 * BURST_S + PAUSE_S, &slow, &flows)
    }

    pub(super) fn run(self) -> Result<Pause> {
        let Self { mbps, meanwhile } = self;
        let flows = sim::samples(&parse(&self.scenario_text())?, 1)?;
        let (before, after) = (far::flow(&flows, "before")?, far::flow(&flows, "after")?);
        let [start, again] =
            [before, after].map(|flow| flow.sent_ns.first().copied().unwrap_or_default());
        let laser_mbps = if meanwhile == DuringPause::Laser { far::LASER_MBPS } else { 0.0 };
        let fits_mbps = mbps as f64 * PAYLOAD_SHARE - laser_mbps;
        let percent = |messages: usize, seconds: u64| {
            100.0 * (messages as u64 * BULK_BYTES * 8) as f64 / seconds as f64 / (fits_mbps * 1e6)
        };
        let last = start + (BURST_S - 3) * S..start + BURST_S * S;
        Ok(Pause {
            mbps,
            meanwhile,
            before_percent: percent(before.arrived_count(last), 3),
            after_percent: percent(after.arrived_count(again..again + S), 1),
        })
    }
}

/// Returns the figures that miss the target of `auto`.
pub fn missed_target(pause: &Pause) -> Option<String> {
    let &Pause { mbps, before_percent, after_percent, .. } = pause;
    let part = 100.0 * after_percent / before_percent;
    (part.is_nan() || part < LEAST_PERCENT)
        .then(|| format!("after a pause, {mbps} Mbps: {part:.0} % of before, of {LEAST_PERCENT} %"))
}

/// Returns the section of the page.
pub fn section(pauses: &[Pause]) -> String {
    let rows = table::markdown(
        pauses,
        &[
            column("Mbps", |pause: &Pause| pause.mbps.to_string()),
            column("meanwhile", |pause| match pause.meanwhile {
                DuringPause::Nothing => "nothing".into(),
                DuringPause::Laser => "laser".into(),
            }),
            column("before", |pause| format!("{:.0} %", pause.before_percent)),
            column("after", |pause| format!("{:.0} %", pause.after_percent)),
        ],
    );
    format!(
        "## Pauses\n\n\
         With `auto`: a burst of {BURST_S} s, a pause of {PAUSE_S} s in which nothing or only a laser's scans are sent, and another burst. Figures are the payload that arrived in the last three seconds before the pause and in the first second after it, as a percentage of the payload that fits.\n\n{rows}"
    )
}
