// SPDX-License-Identifier: Apache-2.0
//! Time as the caller measures it: this crate reads no clock.

use core::ops::Add;
pub use core::time::Duration;

/// Nanoseconds since an origin of the caller's choice, which is fixed for the life of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Instant(pub u64);

impl Instant {
    /// Later than every event.
    pub const NEVER: Self = Self(u64::MAX);

    /// Microseconds as packets carry them: the low 32 bits, which wrap after 71 minutes.
    pub(crate) fn wire_micros(self) -> u32 {
        (self.0 / 1000) as u32
    }

    /// This instant less `duration`, but not before the origin.
    pub fn before(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// Time since `earlier`; zero if `earlier` is in the future.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    fn add(self, rhs: Duration) -> Self {
        let nanos = u64::try_from(rhs.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(nanos))
    }
}

/// Adds a sample to a smoothed mean and its variation (RFC 9002, section 5.3).
pub(crate) fn smooth(mean: &mut Duration, variation: &mut Duration, sample: Duration) {
    *variation = (*variation * 3 + mean.abs_diff(sample)) / 4;
    *mean = (*mean * 7 + sample) / 8;
}

/// Time that `bytes` take at `rate_bps`.
pub(crate) fn serialization_time(bytes: usize, rate_bps: u64) -> Duration {
    let nanos = bytes as u128 * 8 * 1_000_000_000 / u128::from(rate_bps.max(1));
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}
