// SPDX-License-Identifier: Apache-2.0
//! How much later a packet may arrive than packets that were sent after it.
//!
//! In RFC 8985, section 6.2, the window is a multiple of a quarter of the least round trip, at most a whole
//! round trip, and is reset after 16 recoveries. A short path with parallel routes reorders by more than its
//! round trip, and continues to do so whatever else is lost. Therefore the window here also covers the
//! lateness of the packets that others overtook, whether they were declared lost or not. When other packets
//! were wrongly declared lost, the window grows as in the RFC.

use crate::time::Duration;

/// The longest lateness that counts: no packet is worth a longer wait.
const MAX_WINDOW: Duration = Duration::from_millis(250);
/// Least window after a late packet: the round trip divided by this (RFC 8985, section 6.2).
const RTT_DIVISOR: u32 = 4;
/// Least window after a late packet where the round trip is short: the jitter of schedulers.
const MIN_WINDOW: Duration = Duration::from_millis(1);
/// The window exceeds the lateness seen by the lateness divided by this number.
const MARGIN_DIVISOR: u32 = 8;
/// The remembered lateness decreases by one part in this many with each loss. After 22 losses without a late
/// packet, it has halved.
const LOSS_DECAY: u32 = 32;

/// The growth for late acknowledgements lasts until this many further packets were lost (RFC 8985,
/// section 6.2, which counts recoveries).
const LATE_ACK_MEMORY: u32 = 16;

/// The reorder window of a link.
#[derive(Debug, Default)]
pub(crate) struct ReorderWindow {
    /// The window that overtaken packets would have needed.
    lateness: Duration,
    /// The window that other packets wrongly declared lost would have needed. Their acknowledgement
    /// was late.
    late_ack: Duration,
    losses_since_late_ack: u32,
}

impl ReorderWindow {
    pub(crate) fn get(&self) -> Duration {
        self.lateness + self.late_ack
    }

    /// Records that a packet arrived after packets that were sent later. It needed a window of
    /// `lateness`. The remembered lateness at most doubles, since a single packet may be an
    /// exception.
    pub(crate) fn on_late(&mut self, lateness: Duration, rtt: Duration) {
        let needed = lateness + lateness / MARGIN_DIVISOR;
        let first = (rtt / RTT_DIVISOR).max(MIN_WINDOW);
        let most = (self.lateness * 2).max(first).min(MAX_WINDOW);
        self.lateness = needed.max(first).min(most).max(self.lateness);
    }

    /// Records the arrival of a packet that had been declared lost although no later packet had
    /// overtaken it.
    pub(crate) fn on_late_ack(&mut self, rtt: Duration) {
        let step = (rtt / RTT_DIVISOR).max(MIN_WINDOW);
        self.late_ack = (self.late_ack + step).min(rtt.max(step));
        self.losses_since_late_ack = 0;
    }

    /// Records that a packet was declared lost.
    pub(crate) fn on_loss(&mut self) {
        self.lateness -= self.lateness / LOSS_DECAY;
        self.losses_since_late_ack += 1;
        if self.losses_since_late_ack > LATE_ACK_MEMORY {
            self.late_ack = Duration::ZERO;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// The window after packets that were late by up to 50 ms, at a round trip of 10 ms.
    fn after_late_packets() -> ReorderWindow {
        let mut reorder = ReorderWindow::default();
        for n in 0..200 {
            reorder.on_late(MS * (n * 37 % 50), MS * 10);
        }
        reorder
    }

    #[test]
    fn the_window_covers_the_lateness_though_it_exceeds_the_round_trip() {
        let window = after_late_packets().get();
        assert!(window > MS * 46 && window < MS * 60, "{window:?}");
    }

    #[test]
    fn a_single_late_packet_opens_a_quarter_of_the_round_trip() {
        let mut reorder = ReorderWindow::default();
        reorder.on_late(MS * 200, MS * 40);
        assert_eq!(reorder.get(), MS * 10);
        reorder.on_late(MS * 200, MS * 40);
        assert_eq!(reorder.get(), MS * 20);
        reorder.on_late(MS, MS * 40);
        assert_eq!(reorder.get(), MS * 20, "the lateness differs from packet to packet");
    }

    #[test]
    fn late_packets_within_the_window_keep_it_open_although_others_are_lost() {
        let mut reorder = after_late_packets();
        for n in 0..1000 {
            reorder.on_late(MS * (n * 37 % 50), MS * 10);
            reorder.on_loss();
        }
        assert!(reorder.get() > MS * 35, "{:?}", reorder.get());
    }

    #[test]
    fn losses_close_the_window_of_a_path_that_no_longer_reorders() {
        let mut reorder = after_late_packets();
        (0..22).for_each(|_| reorder.on_loss());
        assert!(reorder.get() < MS * 30, "{:?}", reorder.get());
        (0..200).for_each(|_| reorder.on_loss());
        assert!(reorder.get() < MS, "{:?}", reorder.get());
    }

    #[test]
    fn a_late_acknowledgement_opens_the_window_until_16_packets_are_lost() {
        let mut reorder = ReorderWindow::default();
        (0..2).for_each(|_| reorder.on_late_ack(MS * 40));
        assert_eq!(reorder.get(), MS * 20);
        (0..9).for_each(|_| reorder.on_late_ack(MS * 40));
        assert_eq!(reorder.get(), MS * 40, "at most a round trip");
        (0..LATE_ACK_MEMORY).for_each(|_| reorder.on_loss());
        assert_eq!(reorder.get(), MS * 40);
        reorder.on_loss();
        assert_eq!(reorder.get(), Duration::ZERO);
    }

    #[test]
    fn the_window_is_bounded_whatever_the_peer_acknowledges() {
        let mut reorder = ReorderWindow::default();
        (0..100).for_each(|_| reorder.on_late(MS * 100_000, MS * 100_000));
        assert_eq!(reorder.get(), MAX_WINDOW);
    }
}
