// SPDX-License-Identifier: Apache-2.0
//! What the reports of a span of time come to.

use crate::rate::Report;
use crate::time::{Duration, Instant};

/// Packets in a measurement, at least: on a full-duplex way their spacing is exact to a packet.
const LEAST_PACKETS: u64 = 4;

/// From where on a measurement runs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mark {
    since: Instant,
    arrived: u32,
    sent_bytes: u64,
    sent_packets: u64,
    /// Seconds that packets waited, summed up over them; and with what is known not to be ours.
    waited: f64,
    waited_in_all: f64,
    least_waited: f64,
    acked: f64,
    lost: f64,
}

/// What a span of reports came to.
#[derive(Debug)]
pub(super) struct Measured {
    pub(super) since: Instant,
    /// At which what was sent arrived, in bits per second.
    pub(super) rate: f64,
    /// How long packets waited on average, and with what is known not to be ours.
    pub(super) waited: Duration,
    pub(super) waited_in_all: Duration,
    /// Bytes that waited on the way on average, or less where some packets did not wait: then
    /// the others met something else than a queue that stands.
    pub(super) standing: f64,
    /// Every packet found others before it.
    pub(super) never_empty: bool,
    /// Packets of which it became known what happened, and those lost of them.
    pub(super) known: f64,
    pub(super) lost: f64,
}

impl Measured {
    /// For how long what stands keeps the way busy.
    pub(super) fn wait(&self) -> Duration {
        Duration::from_secs_f64((self.standing * 8.0 / self.rate).clamp(0.0, 1.0))
    }
}

impl Mark {
    pub(super) fn at(since: Instant, report: &Report) -> Self {
        let Report { arrived, sent_bytes, sent_packets, .. } = *report;
        Self {
            since,
            arrived,
            sent_bytes,
            sent_packets,
            waited: 0.0,
            waited_in_all: 0.0,
            least_waited: f64::INFINITY,
            acked: 0.0,
            lost: 0.0,
        }
    }

    /// `in_all`: what packets waited with what is known not to be ours.
    pub(super) fn add(&mut self, report: &Report, in_all: Duration) {
        let packets = report.acked_packets as f64;
        self.waited_in_all += in_all.as_secs_f64() * packets;
        self.waited += report.waited.as_secs_f64() * packets;
        if packets > 0.0 {
            self.least_waited = self.least_waited.min(report.least_waited.as_secs_f64());
        }
        self.acked += packets;
        self.lost += report.lost_packets as f64;
    }

    /// At which what was sent arrived so far, in bits per second, over `least` at least.
    pub(super) fn rate(&self, report: &Report, least: Duration) -> Option<f64> {
        let span = report.arrived.wrapping_sub(self.arrived) as i32;
        let bytes = report.sent_bytes.checked_sub(self.sent_bytes)?;
        let enough = span > 0 && i128::from(span) >= least.as_micros() as i128;
        (enough && bytes > 0).then(|| bytes as f64 * 8e6 / f64::from(span))
    }

    /// Packets so far.
    pub(super) fn packets(&self, report: &Report) -> u64 {
        report.sent_packets.saturating_sub(self.sent_packets)
    }

    /// `None` while it is too short.
    pub(super) fn measured(&self, report: &Report, least: Duration) -> Option<Measured> {
        let packets = self.packets(report);
        if packets < LEAST_PACKETS || self.acked == 0.0 {
            return None;
        }
        let bytes = report.sent_bytes.saturating_sub(self.sent_bytes) as f64;
        let rate = self.rate(report, least)?;
        let packet = bytes / packets as f64;
        let backlog = rate * self.waited / self.acked / 8.0 - packet;
        Some(Measured {
            since: self.since,
            rate,
            waited_in_all: Duration::from_secs_f64(self.waited_in_all / self.acked),
            waited: Duration::from_secs_f64(self.waited / self.acked),
            standing: backlog.min(2.0 * rate * self.least_waited / 8.0),
            never_empty: rate * self.least_waited / 8.0 > packet,
            known: self.acked + self.lost,
            lost: self.lost,
        })
    }
}
