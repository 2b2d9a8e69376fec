// SPDX-License-Identifier: Apache-2.0
//! The constants of the controller, in one table.

use crate::time::Duration;

/// Declares [`Tuning`] and its table from lines `name = value, "unit", "source";`.
macro_rules! tuning {
    ($($(#[doc = $doc:literal])+ $name:ident = $value:literal, $unit:literal, $source:literal;)*) => {
        /// The constants of [`super::Auto`]. A command of the laboratory halves and doubles each.
        #[derive(Debug, Clone, Copy, PartialEq)]
        pub struct Tuning {
            $($(#[doc = $doc])+ pub $name: f64,)*
        }

        impl Default for Tuning {
            fn default() -> Self {
                Self { $($name: $value,)* }
            }
        }

        impl Tuning {
            /// All constants, in the order of their declaration.
            pub const TABLE: &'static [Constant] = &[$(Constant {
                name: stringify!($name),
                meaning: concat!($($doc),+),
                unit: $unit,
                source: $source,
                get: |tuning| tuning.$name,
                set: |tuning, value| tuning.$name = value,
            },)*];
        }
    };
}

/// One constant in the table.
#[derive(Debug, Clone, Copy)]
pub struct Constant {
    /// The field of [`Tuning`].
    pub name: &'static str,
    /// The meaning of the constant.
    pub meaning: &'static str,
    /// Unit of its value.
    pub unit: &'static str,
    /// Paper, RFC or measurement.
    pub source: &'static str,
    /// Reads the constant.
    pub get: fn(&Tuning) -> f64,
    /// Sets the constant.
    pub set: fn(&mut Tuning, f64),
}

tuning! {
    /// Rate before the first sample: a report of four full packets is due within 10 ms.
    first_rate = 4.8e6, "bit/s", "measurement";
    /// Lowest estimate: a tenth of what the slowest Wi-Fi carries with several stations.
    min_rate = 200e3, "bit/s", "IEEE 802.11";
    /// Target queue at the bottleneck, so that a late timer does not leave it idle.
    target_packets = 0.5, "packets", "measurement";
    /// The same on a fast path.
    target_time = 0.75e-3, "s", "measurement";
    /// Weight of a delivery rate that was measured while every packet was queued.
    follow_gain = 0.25, "", "measurement";
    /// A delivery rate below this part of the estimate shows another path: its weight is 1.
    sudden_drop = 0.7, "", "measurement";
    /// First growth where the queue is empty; doubles with each round, up to twice the estimate.
    first_growth = 0.005, "", "measurement";
    /// Queueing delay that pauses sending, where a path is fast and without jitter.
    alarm_delay = 3e-3, "s", "measurement";
    /// Standard deviations beyond which a difference is not chance.
    significant = 2.0, "", "statistics";
    /// Approximate packets over which the recent loss ratio is averaged; lasting losses use eight times as many.
    loss_memory = 64.0, "packets", "measurement";
    /// An excess of losses over the baseline by this much is worth a dip; a lasting one by a third.
    loss_margin = 0.03, "", "measurement";
    /// Shallowest dip, as a part of the estimate.
    dip_gain = 0.8, "", "measurement";
    /// Rate of a probe, as a multiple of the estimate.
    probe_gain = 1.25, "", "BBR";
    /// A probe finds room if this fraction of the additional data arrives.
    probe_delivered = 0.8, "", "measurement";
    /// Delivery rates that differ by this part from sample to sample show a path with jitter.
    rate_noise = 0.05, "", "measurement";
    /// Shortest rest after a test that brought nothing; doubles each time in a row.
    min_rest = 2.0, "s", "measurement";
    /// Longest rest after such a test.
    max_rest = 32.0, "s", "measurement";
    /// A longer external delay may be a download's.
    download_delay = 20e-3, "s", "measurement";
    /// Least rate alongside a download, as a part of the estimate before it.
    claim = 0.25, "", "measurement";
    /// Reduction when a queue overflows that a download fills.
    backoff = 0.7, "", "RFC 9438";
    /// Average queueing delay in a burst that makes the next one shorter.
    burst_delay = 0.5e-3, "s", "measurement";
}

impl Tuning {
    /// Returns the constants with one of them multiplied by `factor`; `None` if there is no
    /// constant of this name.
    #[must_use]
    pub fn with_scaled(mut self, name: &str, factor: f64) -> Option<Self> {
        let constant = Self::TABLE.iter().find(|it| it.name == name)?;
        let value = (constant.get)(&self) * factor;
        (constant.set)(&mut self, value);
        Some(self)
    }

    pub(super) fn min_rest(&self) -> Duration {
        Duration::from_secs_f64(self.min_rest)
    }

    pub(super) fn max_rest(&self) -> Duration {
        Duration::from_secs_f64(self.max_rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_constant_can_be_scaled_by_its_name() {
        assert!(Tuning::TABLE.len() <= 25);
        for constant in Tuning::TABLE {
            let scaled = Tuning::default().with_scaled(constant.name, 2.0).unwrap();
            assert_eq!((constant.get)(&scaled), 2.0 * (constant.get)(&Tuning::default()));
            assert_ne!(scaled, Tuning::default());
        }
        assert_eq!(Tuning::default().with_scaled("speed", 2.0), None);
    }
}
