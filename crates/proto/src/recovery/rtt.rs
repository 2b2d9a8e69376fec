// SPDX-License-Identifier: Apache-2.0
//! The smoothed round trip time of a link (RFC 9002, section 5), and its peer's acknowledgement delay.

use crate::time::{Duration, smooth};

/// Round trip before the first sample. RFC 9002 uses 333 ms for the Internet; links here are one or two hops.
const INITIAL_RTT: Duration = Duration::from_millis(100);
/// The longest acknowledgement delay decreases by one part in this many with each sample.
const ACK_DELAY_DECAY: u32 = 16;
/// A longer acknowledgement delay counts as a pause of the peer.
const MAX_ACK_DELAY: Duration = Duration::from_millis(100);

/// Updates the longest recent acknowledgement delay with a sample. The result is at least `least`.
pub(super) fn update_ack_delay(longest: &mut Duration, found: Duration, least: Duration) {
    let faded = *longest - *longest / ACK_DELAY_DECAY;
    *longest = faded.max(found.min(MAX_ACK_DELAY)).max(least);
}

/// Smoothed round trip time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Rtt {
    smoothed: Option<Duration>,
    variation: Duration,
}

impl Rtt {
    pub(super) fn update(&mut self, sample: Duration) {
        match &mut self.smoothed {
            Some(smoothed) => smooth(smoothed, &mut self.variation, sample),
            None => (self.smoothed, self.variation) = (Some(sample), sample / 2),
        }
    }

    pub(crate) fn smoothed(&self) -> Option<Duration> {
        self.smoothed
    }

    /// Smoothed round trip and its variation; `None` before the first sample.
    pub(crate) fn smoothed_and_variation(&self) -> Option<(Duration, Duration)> {
        Some((self.smoothed?, self.variation))
    }

    /// The variation; zero before the first sample.
    pub(super) fn variation(&self) -> Duration {
        self.variation
    }

    pub(super) fn smoothed_or_initial(&self) -> Duration {
        self.smoothed.unwrap_or(INITIAL_RTT)
    }
}
