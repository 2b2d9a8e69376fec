// SPDX-License-Identifier: Apache-2.0
//! Reports to a neighbour about the backlog of packets that it sent to be relayed.

use crate::delivery::outbox::Flow;
use crate::time::{Duration, Instant};
use crate::wire::relay::{Held, ShortName};
use std::collections::BTreeMap;

/// Delay of a report that the backlog has grown, unless another packet can carry the report
/// earlier.
const BACKLOG_REPORT_DELAY: Duration = Duration::from_millis(10);
/// Times after which a report is repeated, in case it was lost.
const BACKLOG_REPORT_REPEATS: [Duration; 2] =
    [Duration::from_millis(30), Duration::from_millis(150)];

/// The state of the reports about one flow.
#[derive(Debug, Clone, Copy, Default)]
struct BacklogReport {
    bytes: u64,
    /// Bytes in the last report.
    reported_bytes: u64,
    /// Number of times that the last report was sent.
    send_count: usize,
    /// When the next report is due.
    due: Option<Instant>,
}

impl BacklogReport {
    /// Whether the neighbour has not yet been sent a report of the present backlog.
    fn is_unreported(&self) -> bool {
        self.send_count == 0 || self.bytes != self.reported_bytes
    }

    fn set_backlog(&mut self, now: Instant, bytes: u64) {
        let pending = self.due.filter(|_| self.is_unreported());
        self.bytes = bytes;
        self.due = if self.is_unreported() {
            // The sender knows that a backlog grows, since it sent the packets. It waits for the
            // backlog to shrink.
            let due = if bytes < self.reported_bytes { now } else { now + BACKLOG_REPORT_DELAY };
            Some(pending.map_or(due, |before| before.min(due)))
        } else {
            self.repeat_at(now)
        };
    }

    fn on_reported(&mut self, now: Instant) {
        self.send_count = if self.is_unreported() { 1 } else { self.send_count + 1 };
        self.reported_bytes = self.bytes;
        self.due = self.repeat_at(now);
    }

    fn repeat_at(&self, now: Instant) -> Option<Instant> {
        let wait = BACKLOG_REPORT_REPEATS.get(self.send_count.checked_sub(1)?)?;
        Some(now + *wait)
    }
}

/// The reports to one neighbour, by flow.
#[derive(Debug, Default)]
pub(crate) struct BacklogReports(BTreeMap<Flow, BacklogReport>);

impl BacklogReports {
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Records that the backlog of a flow is now `bytes`.
    pub(crate) fn set_backlog(&mut self, now: Instant, flow: Flow, bytes: u64) {
        let report = self.0.entry(flow).or_default();
        if bytes != report.bytes || report.send_count == 0 {
            report.set_backlog(now, bytes);
        }
    }

    /// When the next report is due.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.0.values().filter_map(|report| report.due).min()
    }

    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.next_due().is_some_and(|at| at <= now)
    }

    /// The reports for a packet to the neighbour.
    pub(crate) fn take_due(&mut self, now: Instant, neighbour: ShortName) -> Vec<Held> {
        let mut taken = Vec::new();
        // A new report travels with the acknowledgement of the packets that caused it.
        let includes =
            |it: &BacklogReport| it.due.is_some_and(|at| at <= now || it.is_unreported());
        for (flow, report) in self.0.iter_mut().filter(|(_, it)| includes(it)) {
            let from = Some(flow.from).filter(|from| *from != neighbour);
            taken.push(Held { to: flow.to, bytes: report.bytes, from });
            report.on_reported(now);
        }
        self.0.retain(|_, report| report.due.is_some() || report.bytes > 0);
        taken
    }
}
