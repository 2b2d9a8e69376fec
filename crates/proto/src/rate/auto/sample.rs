// SPDX-License-Identifier: Apache-2.0
//! Combines the reports of a span of time into one sample.

use super::losses::Ratio;
use crate::rate::controller::Report;
use crate::time::{Duration, Instant};

/// A queue grows if packets arrive at less than this part of the rate at which they were sent.
pub(super) const GROWING_RATIO: f64 = 0.9;

/// Minimum number of packets in a sample. On a full-duplex path, their spacing is exact to one packet.
const MIN_PACKETS: u64 = 4;

/// A measurement in progress.
#[derive(Debug, Clone, Copy)]
pub(super) struct Measurement {
    since: Instant,
    /// When the newest packet of the first report was sent.
    sent: Instant,
    /// Arrival time of the newest packet of the first report; see [`Report`].
    arrival_micros: u32,
    /// Bytes sent up to that packet.
    sent_bytes: u64,
    /// Packets sent up to that packet.
    sent_packets: u64,
    /// Sum of the delays of all packets, in seconds, without external delay.
    queueing_delay: f64,
    /// Sum of the delays of all packets, in seconds, with external delay.
    total_delay: f64,
    min_queueing_delay: f64,
    acked: f64,
    lost: f64,
    loss_runs: f64,
    marked: f64,
}

/// A completed measurement.
#[derive(Debug)]
pub(super) struct Sample {
    pub(super) since: Instant,
    /// Bytes divided by the time between their arrivals, in bits per second.
    pub(super) delivery_rate: f64,
    /// The same bytes divided by the time in which they were sent, in bits per second.
    pub(super) send_rate: f64,
    /// Average delay of the packets, without external delay.
    pub(super) queueing_delay: Duration,
    /// Average delay of the packets, with external delay.
    pub(super) total_delay: Duration,
    /// Average bytes in the queue at the bottleneck. The figure is lower if some packets were not
    /// queued: then the queue that the others met was not a standing one.
    pub(super) standing_bytes: f64,
    /// Every packet was queued behind others.
    pub(super) never_empty: bool,
    /// Bytes sent, those of lost packets included.
    pub(super) bytes: f64,
    /// The lost packets among those whose outcome became known, minus the packets that arrived after all. The
    /// number is negative if losses of earlier samples arrived after all.
    pub(super) losses: Ratio,
    pub(super) loss_runs: f64,
    /// Packets that the path marked for congestion.
    pub(super) marked: f64,
}

impl Measurement {
    pub(super) fn start(since: Instant, report: &Report) -> Self {
        let Report { arrival_micros, sent_bytes, sent_packets, .. } = *report;
        Self {
            since,
            sent: since.before(report.since_sent),
            arrival_micros,
            sent_bytes,
            sent_packets,
            queueing_delay: 0.0,
            total_delay: 0.0,
            min_queueing_delay: f64::INFINITY,
            acked: 0.0,
            lost: 0.0,
            loss_runs: 0.0,
            marked: 0.0,
        }
    }

    /// Adds a report. `total_delay` includes external delay, which the report excludes.
    pub(super) fn add(&mut self, report: &Report, total_delay: Duration) {
        let packets = report.acked_packets as f64;
        self.total_delay += total_delay.as_secs_f64() * packets;
        self.queueing_delay += report.queueing_delay.as_secs_f64() * packets;
        if packets > 0.0 {
            let min = report.min_queueing_delay.as_secs_f64();
            self.min_queueing_delay = self.min_queueing_delay.min(min);
        }
        self.acked += packets;
        self.lost += report.lost_packets as f64 - report.spurious_losses as f64;
        self.loss_runs += report.loss_runs as f64;
        self.marked += report.marked_packets as f64;
    }

    /// The delivery rate so far in bits per second; `None` before `min_span` has passed at the
    /// receiver.
    pub(super) fn delivery_rate(&self, report: &Report, min_span: Duration) -> Option<f64> {
        let span = report.arrival_micros.wrapping_sub(self.arrival_micros) as i32;
        let bytes = report.sent_bytes.checked_sub(self.sent_bytes)?;
        let enough = span > 0 && i128::from(span) >= min_span.as_micros() as i128;
        (enough && bytes > 0).then(|| bytes as f64 * 8e6 / f64::from(span))
    }

    /// The rate at which the same bytes were sent.
    pub(super) fn send_rate(&self, now: Instant, report: &Report) -> f64 {
        let span = now.before(report.since_sent).since(self.sent).as_secs_f64();
        report.sent_bytes.saturating_sub(self.sent_bytes) as f64 * 8.0 / span.max(1e-6)
    }

    /// Packets sent so far.
    pub(super) fn packets(&self, report: &Report) -> u64 {
        report.sent_packets.saturating_sub(self.sent_packets)
    }

    /// Completes the measurement; `None` while it is too short.
    pub(super) fn sample(
        &self,
        now: Instant,
        report: &Report,
        min_span: Duration,
    ) -> Option<Sample> {
        let packets = self.packets(report);
        if packets < MIN_PACKETS || self.acked == 0.0 {
            return None;
        }
        let bytes = report.sent_bytes.saturating_sub(self.sent_bytes) as f64;
        let rate = self.delivery_rate(report, min_span)?;
        let packet = bytes / packets as f64;
        let queue = rate * self.queueing_delay / self.acked / 8.0 - packet;
        Some(Sample {
            since: self.since,
            delivery_rate: rate,
            send_rate: self.send_rate(now, report),
            total_delay: Duration::from_secs_f64(self.total_delay / self.acked),
            queueing_delay: Duration::from_secs_f64(self.queueing_delay / self.acked),
            standing_bytes: queue.min(2.0 * rate * self.min_queueing_delay / 8.0),
            never_empty: rate * self.min_queueing_delay / 8.0 > packet,
            bytes,
            losses: Ratio { lost: self.lost, packets: self.acked + self.lost },
            loss_runs: self.loss_runs,
            marked: self.marked,
        })
    }
}

#[cfg(test)]
impl Sample {
    /// A sample of 20 full packets without delay that arrived as fast as they were sent.
    pub(super) fn steady(rate: f64) -> Self {
        Self {
            since: Instant::default(),
            delivery_rate: rate,
            send_rate: rate,
            queueing_delay: Duration::ZERO,
            total_delay: Duration::ZERO,
            standing_bytes: 0.0,
            never_empty: false,
            bytes: 20.0 * 1500.0,
            losses: Ratio::new(0.0, 20.0),
            loss_runs: 0.0,
            marked: 0.0,
        }
    }
}
