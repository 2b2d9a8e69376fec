// SPDX-License-Identifier: Apache-2.0
//! The delay of packets, as a random quantity.

use super::backoff;
use super::contention::{CLASSES, Stations, Timing};
use super::queue::Queued;
use super::traffic::Packets;

/// Seconds from the last failed attempt of a packet to its retransmission, in addition to the packet's own
/// delay: the acknowledgement delay of the peer, and the detection of the loss.
const REPAIR_DELAY_S: f64 = 0.02;

/// Returns ln E[exp(N x)] of a number N whose whole part is certain, and whose fraction is the
/// probability of one more.
pub(super) fn log_number(mean: f64, x: f64) -> f64 {
    let (whole, part) = (mean.floor(), mean.fract());
    let more = if part > 0.0 { log_sum((1.0 - part).ln(), part.ln() + x) } else { 0.0 };
    // Avoid infinity times zero.
    if whole > 0.0 { whole * x + more } else { more }
}

/// Returns ln(e^a + e^b).
pub(super) fn log_sum(a: f64, b: f64) -> f64 {
    let (high, low) = (a.max(b), a.min(b));
    if low == f64::NEG_INFINITY || high == f64::INFINITY {
        high
    } else {
        high + (low - high).exp().ln_1p()
    }
}

/// The delay of a station's packets, as the logarithm of its moment generating function: the bounds of
/// sums follow from it (Chernoff, 1952).
#[derive(Debug, Clone, Copy)]
pub(super) struct Delays<'a> {
    pub(super) timing: &'a Timing,
    pub(super) class: usize,
    /// Number of other stations that always have packets to send, by class.
    pub(super) rivals: Stations,
    /// IP bytes of the packets of these stations, by class.
    pub(super) rival_bytes: [u32; CLASSES],
    /// Probability per slot that one such station sends, by class.
    pub(super) attempts: [f64; CLASSES],
    /// For each attempt that a packet may need, the probability that the attempt fails
    /// ([`Contention::failures`](super::contention::Contention::failures)).
    pub(super) failures: &'a [f64],
}

impl Delays<'_> {
    /// Returns ln E[exp(theta D)] of one packet's delay D, for each packet size; infinite without a
    /// bound.
    pub(super) fn log_means(&self, theta: f64, sizes: &[u32]) -> Vec<f64> {
        let backoffs = backoff::log_means(self, theta);
        sizes.iter().map(|bytes| self.log_mean(theta, &backoffs, *bytes)).collect()
    }

    /// Returns the value of [`Self::log_means`] for one size; `backoffs` has the value for each attempt's
    /// backoff.
    fn log_mean(&self, theta: f64, backoffs: &[f64], ip_bytes: u32) -> f64 {
        let timing = self.timing;
        let largest = self.rival_bytes.iter().copied().max().unwrap_or(0).max(ip_bytes);
        let collision = theta * timing.collision(self.class, largest);
        let own = theta * timing.airtime(self.class, ip_bytes);
        // Sum over the number of attempts; `before` is for all backoffs and for the failed attempts.
        let (mut before, mut delivered) = (0.0, f64::NEG_INFINITY);
        let mut counted: f64 = 0.0;
        let mut reached = 1.0;
        for (backoff, failure) in backoffs.iter().zip(self.failures) {
            before += backoff;
            delivered = log_sum(delivered, before + (1.0 - failure).ln() + own);
            before += failure.ln() + collision;
            counted += reached * (1.0 - failure);
            reached *= failure;
        }
        let delivered = delivered - counted.ln();
        let repair = theta * (REPAIR_DELAY_S + 2.0 * timing.delay);
        let lost = delivered + timing.packet_loss.ln() + repair;
        if delivered == f64::INFINITY || lost >= 0.0 {
            return f64::INFINITY;
        }
        delivered + (1.0 - timing.packet_loss).ln() - (-lost.exp()).ln_1p()
    }
}

/// Delays of the packets of a queue at one argument of their moment generating functions.
#[derive(Debug, Clone)]
pub(super) struct LogMeans {
    /// IP bytes of a packet, and the value of [`Delays::log_means`] for this size.
    pub(super) packets: Vec<(u32, f64)>,
}

impl LogMeans {
    pub(super) fn from_delays(delays: &Delays<'_>, theta: f64, sizes: &[u32]) -> Self {
        let values = delays.log_means(theta, sizes);
        Self { packets: sizes.iter().copied().zip(values).collect() }
    }

    /// Returns the sum for all packets of a queue.
    pub(super) fn of_queue(&self, queue: &[Queued]) -> f64 {
        let packet = |bytes: u32| {
            let known = self.packets.iter().find(|(size, _)| *size == bytes);
            known.map_or(f64::INFINITY, |(_, value)| *value)
        };
        let message = |packets: Packets| -> f64 {
            let sizes = packets.sizes().into_iter().filter(|(count, _)| *count > 0);
            sizes.map(|(count, bytes)| count as f64 * packet(bytes)).sum()
        };
        queue.iter().map(|it| it.number.log_mean(message(it.packets))).sum()
    }
}
