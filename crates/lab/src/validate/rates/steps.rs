// SPDX-License-Identifier: Apache-2.0
//! Steps: the rate of a link falls to an eighth and returns.

use super::parse;
use crate::rig::processes::write_packed;
use crate::rig::progress::Progress;
use crate::rig::stats::{self, Samples};
use crate::rig::table::{self, column};
use crate::rig::{parallel, plot};
use crate::sim;
use crate::validate::far::{self, LASER_MBPS, PAYLOAD_SHARE};
use anyhow::Result;
use serde::Serialize;
use std::fmt::Write;
use std::path::Path;
use std::time::Duration;
use tautline_medium::{RadioId, StationId};
use tautline_proto::rate::CONTROLS;

const SLOW_LINKS: [SlowLink; 3] = [SlowLink::Far, SlowLink::FarHalfDuplex, SlowLink::Local];
const SEEDS: u64 = 4;
const HIGH_MBPS: u64 = 24;
const LOW_MBPS: u64 = 3;
/// Times at which the rate falls, returns and falls again; and the end.
const CHANGES_S: [u64; 4] = [4, 8, 12, 16];
const S: u64 = 1_000_000_000;
/// Time after a change from which everything must be steady.
const STEADY_NS: u64 = S / 2;
const BULK_BYTES: u64 = 16_384;
/// Time between two points of the curves.
const EVERY_NS: u64 = 20_000_000;
const EXPECTED: Duration = Duration::from_millis(300);

/// Location of the slow link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SlowLink {
    Far,
    FarHalfDuplex,
    Local,
}

/// Worst figures of the steps down and up over all seeds.
#[derive(Debug, Serialize)]
pub struct Step {
    #[serde(rename = "way")]
    slow_link: SlowLink,
    controller: &'static str,
    /// Longest delay of the laser in the second after the rate falls.
    down_ms: f64,
    /// Longest delay of the laser in the second after the rate returns.
    up_ms: f64,
    /// Longest delay of the laser from half a second after the rate falls.
    steady_low_ms: f64,
    /// Longest delay of the laser from half a second after the rate returns.
    steady_high_ms: f64,
    /// Bulk from half a second after the rate falls, percent of the bulk that fits.
    low_percent: f64,
    /// Bulk from half a second after the rate returns, percent of the bulk that fits.
    high_percent: f64,
    /// Messages of the laser that never arrived.
    laser_lost: usize,
    #[serde(skip)]
    curve: Vec<Point>,
}

/// A point of the curves: time, send rate, and frames queued before the slow link.
#[derive(Debug, Serialize)]
struct Point {
    s: f64,
    mbps: Option<f64>,
    waiting: u64,
}

impl SlowLink {
    const fn name(self) -> &'static str {
        match self {
            Self::Far => "far, full duplex",
            Self::FarHalfDuplex => "far, half duplex",
            Self::Local => "local",
        }
    }

    fn scenario_text(self, controller: &str) -> String {
        let duplex = if self == Self::FarHalfDuplex { "half" } else { "full" };
        let slow = format!("rate: {HIGH_MBPS}Mbps, queue: 300KB, duplex: {duplex}");
        let [down, up, again, end] = CHANGES_S;
        let load = far::load(HIGH_MBPS, BULK_BYTES, 0);
        let stations = match self {
            Self::Local => format!(
                "about: A step\nsource: made up\nduration: {end}s\n\
                 networks:\n  slow: {{ pipe: {{ {slow}, delay: 1ms }} }}\n\
                 stations:\n  robot: {{ networks: [slow] }}\n  base: {{ networks: [slow] }}\n\
                 flows:\n{load}"
            ),
            Self::Far | Self::FarHalfDuplex => far::scenario(end, &slow, &load),
        };
        format!(
            "{stations}events:\n  \
               - {{ at: {down}s, rate: {{ network: slow, to: {LOW_MBPS}Mbps }} }}\n  \
               - {{ at: {up}s, rate: {{ network: slow, to: {HIGH_MBPS}Mbps }} }}\n  \
               - {{ at: {again}s, rate: {{ network: slow, to: {LOW_MBPS}Mbps }} }}\n\
             tautline: {{ rate: {controller} }}\n"
        )
    }

    /// Returns the radio before the slow link: the router's second radio, or the robot's only radio.
    const fn slow_radio(self) -> RadioId {
        match self {
            Self::Local => RadioId(0),
            Self::Far | Self::FarHalfDuplex => RadioId(2),
        }
    }

    fn run(self, controller: &'static str) -> Result<Step> {
        let scenario = parse(&self.scenario_text(controller))?;
        let mut step = Step {
            slow_link: self,
            controller,
            down_ms: 0.0,
            up_ms: 0.0,
            steady_low_ms: 0.0,
            steady_high_ms: 0.0,
            low_percent: f64::INFINITY,
            high_percent: f64::INFINITY,
            laser_lost: 0,
            curve: Vec::new(),
        };
        for seed in 1..=SEEDS {
            let mut curve = Vec::new();
            let flows = sim::watch(&scenario, seed, EVERY_NS, |sight| {
                let mbps = sight.rate_bps(StationId(0)).map(|bps| bps as f64 / 1e6);
                let waiting = sight.radio(self.slow_radio()).waiting;
                curve.push(Point { s: sight.at_ns as f64 / 1e9, mbps, waiting });
            })?;
            step.add(far::flow(&flows, "laser")?, far::flow(&flows, "bulk")?);
            if seed == 1 {
                step.curve = curve;
            }
        }
        Ok(step)
    }
}

impl Step {
    /// Adds the figures of one seed.
    fn add(&mut self, laser: &Samples, bulk: &Samples) {
        let [down, up, again, end] = CHANGES_S.map(|s| s * S);
        let worst = |from: u64, to: u64| stats::worst(&laser.delays(from..to));
        let share = |from: u64, to: u64, mbps: u64| {
            let bits = (bulk.arrived_count(from..to) as u64 * BULK_BYTES * 8) as f64;
            let fits = mbps as f64 * PAYLOAD_SHARE - LASER_MBPS;
            100.0 * bits / ((to - from) as f64 / 1e3) / fits
        };
        self.down_ms = self.down_ms.max(worst(down, down + S)).max(worst(again, again + S));
        self.up_ms = self.up_ms.max(worst(up, up + S));
        let low = [(down + STEADY_NS, up), (again + STEADY_NS, end)];
        for (from, to) in low {
            self.steady_low_ms = self.steady_low_ms.max(worst(from, to));
            self.low_percent = self.low_percent.min(share(from, to, LOW_MBPS));
        }
        self.steady_high_ms = self.steady_high_ms.max(worst(up + STEADY_NS, again));
        self.high_percent = self.high_percent.min(share(up + STEADY_NS, again, HIGH_MBPS));
        self.laser_lost += laser.sent_ns.len() - laser.arrivals.len();
    }
}

/// Returns the stages for the progress line.
pub fn stages() -> Vec<(String, Duration)> {
    let all = SLOW_LINKS
        .iter()
        .flat_map(|link| CONTROLS.map(|it| format!("step, {}: {}", link.name(), it.name)));
    all.map(|name| (name, EXPECTED * SEEDS as u32)).collect()
}

/// Runs all steps.
pub fn run(progress: &Progress) -> Result<Vec<Step>> {
    let all = SLOW_LINKS.into_iter().flat_map(|link| CONTROLS.map(|it| (link, it.name)));
    parallel::run(progress, all.collect(), |(link, controller)| link.run(controller))
}

/// Returns the figures that miss the targets of `auto` in the second after the rate falls: 60 ms on
/// a pipe, 150 ms where both directions share it, and no message of the laser lost.
pub fn missed_target(step: &Step) -> Option<String> {
    let most_ms = if step.slow_link == SlowLink::FarHalfDuplex { 150.0 } else { 60.0 };
    let reached = step.down_ms <= most_ms && step.laser_lost == 0;
    (step.controller == "auto" && !reached).then(|| {
        format!(
            "step down, {}: laser {:.1} ms of {most_ms} ms, {} lost",
            step.slow_link.name(),
            step.down_ms,
            step.laser_lost
        )
    })
}

/// Returns the section of the page.
pub fn section(steps: &[Step]) -> String {
    let rows = table::markdown(
        steps,
        &[
            column("slow link", |step: &Step| step.slow_link.name().into()),
            column("controller", |step| step.controller.into()),
            column("laser after the fall", |step| format!("{:.1}", step.down_ms)),
            column("after the return", |step| format!("{:.1}", step.up_ms)),
            column(format!("steady at {LOW_MBPS} Mbps"), |step| {
                format!("{:.1}", step.steady_low_ms)
            }),
            column(format!("at {HIGH_MBPS} Mbps"), |step| format!("{:.1}", step.steady_high_ms)),
            column("laser lost", |step| step.laser_lost.to_string()),
            column(format!("bulk at {LOW_MBPS} Mbps"), |step| format!("{:.0} %", step.low_percent)),
            column(format!("at {HIGH_MBPS} Mbps"), |step| format!("{:.0} %", step.high_percent)),
        ],
    );
    format!(
        "## Steps\n\n\
         The rate of the slow link falls from {HIGH_MBPS} to {LOW_MBPS} Mbps, returns, and falls again. The bulk load is always 20 % more than {HIGH_MBPS} Mbps. Figures are the worst of {SEEDS} seeds. \
         Laser: its longest delay in ms in the second after the fall, in the second after the return, and from half a second after each change. \
         Bulk: from half a second after each change, as a percentage of the bulk that fits alongside the laser.\n\n\
         {rows}\n![Rate sent, and queue before the bottleneck](steps.png)\n"
    )
}

/// Draws the curves of the first seed, and writes their points to the file `samples`.
pub fn draw(steps: &[Step], samples: &Path, picture: &Path) -> Result<()> {
    let mut rows = String::from("way,controller,s,mbps,waiting\n");
    for step in steps {
        for point in &step.curve {
            let mbps = point.mbps.map_or(String::new(), |mbps| format!("{mbps:.2}"));
            let Point { s, waiting, .. } = point;
            let _ = writeln!(
                rows,
                "\"{}\",{},{s:.2},{mbps},{waiting}",
                step.slow_link.name(),
                step.controller
            );
        }
    }
    write_packed(samples, &rows)?;
    plot::draw("steps.py", &[samples, picture])
}
