// SPDX-License-Identifier: Apache-2.0
//! Quantities as people write them: `500ms`, `6Mbps`, `5Hz`, `8MB`, `30%`. The robot's file and
//! `tautline set` use them.

use std::time::Duration;

/// Units of time, in nanoseconds.
pub const TIME_UNITS: &[(&str, f64)] =
    &[("us", 1e3), ("ms", 1e6), ("s", 1e9), ("min", 60e9), ("h", 3600e9)];
/// Units of a bit rate, in bits per second.
pub const BIT_RATE_UNITS: &[(&str, f64)] =
    &[("bps", 1.0), ("kbps", 1e3), ("Mbps", 1e6), ("Gbps", 1e9)];
/// Units of frequency, in hertz; no unit means hertz.
pub const FREQUENCY_UNITS: &[(&str, f64)] = &[("", 1.0), ("Hz", 1.0), ("kHz", 1e3)];
/// Units of size, in bytes: MB is 10^6, MiB is 2^20; no unit means bytes.
pub const BYTE_UNITS: &[(&str, f64)] = &[
    ("", 1.0),
    ("B", 1.0),
    ("kB", 1e3),
    ("KB", 1e3),
    ("MB", 1e6),
    ("GB", 1e9),
    ("KiB", 1024.0),
    ("MiB", 1048576.0),
    ("GiB", 1073741824.0),
];
/// Units of a fraction; no unit means a fraction of one.
pub const SHARE_UNITS: &[(&str, f64)] = &[("", 1.0), ("%", 0.01)];

/// Parses `text` as a number times one of `units`; `None` if it is not in this form.
pub fn quantity(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let digits_end = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits_end);
    let number: f64 = number.parse().ok()?;
    let (_, scale) = units.iter().find(|(name, _)| *name == unit.trim_start())?;
    Some(number * scale).filter(|value| value.is_finite())
}

/// Parses a time such as `500ms` or `2s`; the unit is required.
pub fn duration(text: &str) -> Option<Duration> {
    let nanoseconds = quantity(text, TIME_UNITS)?;
    (nanoseconds < u64::MAX as f64).then(|| Duration::from_nanos(nanoseconds.round() as u64))
}

/// Parses a rate such as `6Mbps`, in bits per second; the unit is required.
pub fn bit_rate(text: &str) -> Option<u64> {
    round_to_whole(quantity(text, BIT_RATE_UNITS)?)
}

/// Parses a frequency such as `5Hz` or `5`, in hertz.
pub fn frequency(text: &str) -> Option<f64> {
    quantity(text, FREQUENCY_UNITS)
}

/// Parses a size such as `8MB`, `64KiB` or `1500`, in bytes.
pub fn bytes(text: &str) -> Option<u64> {
    round_to_whole(quantity(text, BYTE_UNITS)?)
}

/// Parses a fraction such as `30%` or `0.3`, without a range check.
pub fn share(text: &str) -> Option<f64> {
    quantity(text, SHARE_UNITS)
}

/// Rounds to a whole number.
pub fn round_to_whole(value: f64) -> Option<u64> {
    (value < u64::MAX as f64).then_some(value.round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everyday_quantities_are_understood() {
        assert_eq!(duration("500ms"), Some(Duration::from_millis(500)));
        assert_eq!(duration("0.5 s"), Some(Duration::from_millis(500)));
        assert_eq!(duration("2min"), Some(Duration::from_secs(120)));
        assert_eq!(bit_rate("6Mbps"), Some(6_000_000));
        assert_eq!(bit_rate("5.5Mbps"), Some(5_500_000));
        assert_eq!(frequency("5Hz"), Some(5.0));
        assert_eq!(frequency("6.67"), Some(6.67));
        assert_eq!(bytes("8MB"), Some(8_000_000));
        assert_eq!(bytes("8MiB"), Some(8 << 20));
        assert_eq!(bytes("1500"), Some(1500));
        assert_eq!(share("30%"), Some(0.3));
        assert_eq!(share("0.3"), Some(0.3));
    }

    #[test]
    fn ambiguous_quantities_are_refused() {
        assert_eq!(duration("500"), None, "milliseconds or seconds?");
        assert_eq!(bit_rate("6"), None, "bits or megabits?");
        assert_eq!(bit_rate("6MBps"), None, "bytes or bits?");
        assert_eq!(bytes("8Mb"), None, "bits or bytes?");
        for bad in ["", "ms", "-5ms", "1e9s", "..5s", "5 5s", "5sx", "NaN", "inf"] {
            assert_eq!(duration(bad), None, "{bad}");
        }
        assert_eq!(duration(&format!("{}h", "9".repeat(400))), None);
    }
}
