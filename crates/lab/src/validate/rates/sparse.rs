// SPDX-License-Identifier: Apache-2.0
//! Messages with pauses between them, on a link that could carry far more.

use super::parse;
use crate::rig::stats::{middle, p99};
use crate::rig::table::{self, column};
use crate::sim;
use crate::validate::far;
use anyhow::Result;
use serde::Serialize;
use std::ops::Range;
use std::time::Duration;

/// Rates of the slow link.
const MBPS: [u64; 5] = [6, 24, 54, 100, 1000];
/// Payload bytes, and the time between messages in ms.
const MESSAGES: [(u64, u64); 3] = [(4_096, 100), (10_240, 50), (65_536, 100)];
/// A message is sparse where its flow needs less than this fraction of the link.
const SPARSE: f64 = 0.7;
const SECONDS: u64 = 30;
/// Judged span, in ns: without the first seconds, in which the rate is being found.
const JUDGED: Range<u64> = 5_000_000_000..60_000_000_000;
/// One-way delay of the path without a packet's serialization time, in ms.
const PATH_MS: f64 = 1.0;
/// Largest p99, as a multiple of the least delay.
const MOST: f64 = 1.5;
/// Expected duration of one run, for the progress line.
const EXPECTED: Duration = Duration::from_millis(150);

#[derive(Debug, Clone, Copy)]
pub(super) struct Case {
    mbps: u64,
    bytes: u64,
    every_ms: u64,
}

/// Figures of one flow, with `auto`. Delays are in ms.
#[derive(Debug, Serialize)]
pub struct Sparse {
    mbps: u64,
    bytes: u64,
    every_ms: u64,
    /// Delay of a message whose packets are sent at once.
    least_ms: f64,
    p50_ms: f64,
    p99_ms: f64,
    /// 99th percentile of the commands between the messages.
    command_p99_ms: f64,
}

impl Case {
    pub(super) fn every_case() -> Vec<Self> {
        let all = MBPS
            .into_iter()
            .flat_map(|mbps| MESSAGES.map(|(bytes, every_ms)| Self { mbps, bytes, every_ms }));
        all.filter(|case| case.serialization_ms() < SPARSE * case.every_ms as f64).collect()
    }

    pub(super) fn stage(self) -> (String, Duration) {
        (format!("sparse messages at {} Mbps", self.mbps), EXPECTED)
    }

    fn serialization_ms(self) -> f64 {
        self.bytes as f64 * 8.0 / far::PAYLOAD_SHARE / (self.mbps as f64 * 1e3)
    }

    fn scenario_text(self) -> String {
        let Self { mbps, bytes, every_ms } = self;
        let flows = format!(
            "  - {{ name: scan, from: robot, to: base, size: {bytes}, every: {every_ms}ms, priority: 100, keep_last: 10, start: 1000ms }}\n  \
               - {{ name: command, from: robot, to: base, size: 100, every: 21ms, priority: 250, keep_last: 1, start: 1005ms }}\n"
        );
        far::scenario(SECONDS, &format!("rate: {mbps}Mbps, queue: 300KB"), &flows)
    }

    pub(super) fn run(self) -> Result<Sparse> {
        let Self { mbps, bytes, every_ms } = self;
        let flows = sim::samples(&parse(&self.scenario_text())?, 1)?;
        let delays = |name| far::flow(&flows, name).map(|it| it.delays(JUDGED));
        let (scan, command) = (delays("scan")?, delays("command")?);
        Ok(Sparse {
            mbps,
            bytes,
            every_ms,
            least_ms: self.serialization_ms() + PATH_MS,
            p50_ms: middle(&scan),
            p99_ms: p99(scan),
            command_p99_ms: p99(command),
        })
    }
}

/// Returns the figures that miss the target of `auto`.
pub fn missed_target(sparse: &Sparse) -> Option<String> {
    let &Sparse { mbps, bytes, least_ms, p99_ms, .. } = sparse;
    let part = p99_ms / least_ms;
    (part.is_nan() || part > MOST).then(|| {
        format!("sparse messages of {bytes} bytes, {mbps} Mbps: p99 {part:.1} times the least delay, of {MOST}")
    })
}

/// Returns the section of the page.
pub fn section(rows: &[Sparse]) -> String {
    let rows = table::markdown(
        rows,
        &[
            column("Mbps", |row: &Sparse| row.mbps.to_string()),
            column("bytes", |row| row.bytes.to_string()),
            column("every", |row| format!("{} ms", row.every_ms)),
            column("least", |row| format!("{:.1}", row.least_ms)),
            column("p50", |row| format!("{:.1}", row.p50_ms)),
            column("p99", |row| format!("{:.1}", row.p99_ms)),
            column("command p99", |row| format!("{:.1}", row.command_p99_ms)),
        ],
    );
    format!(
        "## Sparse messages\n\n\
         With `auto`: one flow that needs less than {:.0} % of the link, and commands of 100 bytes every 21 ms. The first 4 s do not count. Delays in ms. Least: the delay of a message whose packets are sent at once. The target is a p99 of {MOST} times the least.\n\n{rows}",
        100.0 * SPARSE
    )
}
