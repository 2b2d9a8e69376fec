// SPDX-License-Identifier: Apache-2.0
//! How much later a packet may arrive than packets that were sent after it.
//!
//! The window of RFC 8985, section 6.2, is a number of quarters of the least round trip, at most a
//! whole one, and it is forgotten after 16 recoveries. A short path with parallel ways reorders by
//! more than its round trip, and continues to reorder whatever else is lost. Therefore the window here
//! also covers the lateness of the packets that others overtook, whether they were declared lost or
//! not. For other losses that were wrong, it grows as in the RFC.

use crate::time::Duration;

/// The longest lateness that counts: no packet is worth a longer wait.
const MAX_WINDOW: Duration = Duration::from_millis(250);
/// Least window after a late packet, as a part of the round trip (RFC 8985, section 6.2), and at least
/// the jitter of schedulers.
const FIRST_PART: u32 = 4;
const FIRST_LEAST: Duration = Duration::from_millis(1);
/// The window is longer than the lateness seen by one part in this many.
const MARGIN_PART: u32 = 8;
/// The lateness decreases by one part in this many with each loss: by half with 22, where none is late.
const LOSS_DECAY: u32 = 32;

/// The growth for late acknowledgements lasts until this many further packets were lost (RFC 8985,
/// section 6.2, which counts recoveries).
const LATE_ACK_MEMORY: u32 = 16;

/// The reorder window of a link.
#[derive(Debug, Default)]
pub(crate) struct ReorderWindow {
    /// What packets needed that others overtook.
    lateness: Duration,
    /// What other packets needed whose loss was wrong: their acknowledgement was late.
    late_ack: Duration,
    losses_since_late_ack: u32,
}

impl ReorderWindow {
    pub(crate) fn get(&self) -> Duration {
        self.lateness + self.late_ack
    }

    /// A packet arrived after packets that were sent later; it needed a window of `lateness`. The
    /// lateness at most doubles, since a single packet may be an exception.
    pub(crate) fn on_late(&mut self, lateness: Duration, rtt: Duration) {
        let needed = lateness + lateness / MARGIN_PART;
        let first = (rtt / FIRST_PART).max(FIRST_LEAST);
        let most = (self.lateness * 2).max(first).min(MAX_WINDOW);
        self.lateness = needed.max(first).min(most).max(self.lateness);
    }

    /// A packet arrived that had been declared lost although no later one had overtaken it.
    pub(crate) fn on_late_ack(&mut self, rtt: Duration) {
        let step = (rtt / FIRST_PART).max(FIRST_LEAST);
        self.late_ack = (self.late_ack + step).min(rtt.max(step));
        self.losses_since_late_ack = 0;
    }

    /// A packet was declared lost.
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
