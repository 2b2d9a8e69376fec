// SPDX-License-Identifier: Apache-2.0
//! The delay of packets, as a random quantity.

use super::backoff;
use super::contention::{CLASSES, Stations, Timing};
use super::queue::Queued;
use super::traffic::Packets;

/// Time until an abandoned packet is retransmitted, beyond its own delay: the peer's
/// acknowledgement delay and the detection.
const REPAIR: f64 = 0.02;

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
    /// Saturated other stations, and the IP bytes of their packets, by class.
    pub(super) rivals: Stations,
    pub(super) rival_bytes: [u32; CLASSES],
    /// Probability per slot that one of them sends, by class.
    pub(super) attempts: [f64; CLASSES],
    /// Probability that each attempt fails, of all attempts that a packet may need
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

    /// Returns the same for one size; `backoffs` are the values for the backoffs.
    fn log_mean(&self, theta: f64, backoffs: &[f64], ip_bytes: u32) -> f64 {
        let timing = self.timing;
        let largest = self.rival_bytes.iter().copied().max().unwrap_or(0).max(ip_bytes);
        let collision = theta * timing.collision(self.class, largest);
        let own = theta * timing.airtime(self.class, ip_bytes);
        // Sum over the attempts; `before` is for the earlier ones.
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
        let repair = theta * (REPAIR + 2.0 * timing.delay);
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
    /// See [`Delays::log_means`], by the IP bytes.
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
