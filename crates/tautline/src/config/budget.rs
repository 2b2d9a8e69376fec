// SPDX-License-Identifier: Apache-2.0
//! Data budgets of metered links as people write them: `5GB/30d`.

use super::units::{quantity, round_to_whole};
use std::fmt;
use std::time::Duration;

/// Units of data, in bytes. Providers count in powers of ten.
const DATA_UNITS: &[(&str, f64)] = &[("kB", 1e3), ("MB", 1e6), ("GB", 1e9)];
/// Units of a period, in seconds.
const PERIOD_UNITS: &[(&str, f64)] = &[("h", 3600.0), ("d", 86_400.0)];
const MIN_BYTES: u64 = 1000;
const MAX_BYTES: u64 = 1_000_000_000_000;
const MIN_SECONDS: u64 = 3600;
const MAX_SECONDS: u64 = 366 * 86_400;

/// The allowed form, for error messages and the reference.
pub const ALLOWED: &str = "an amount of data per time such as 5GB/30d or 200MB/24h: from 1kB to 1000GB (kB, MB, GB) in 1h to 366d (h, d)";
/// The form as a regular expression.
pub const PATTERN: &str = "^[0-9]+([.][0-9]*)? *(kB|MB|GB) */ *[0-9]+([.][0-9]*)? *(h|d)$";

/// The data that a link may carry in each period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// IP bytes of both directions.
    pub bytes: u64,
    /// Length of a period, in whole seconds.
    pub period: Duration,
}

impl Budget {
    /// Parses `2GB/30d`; `None` if the text has another form or is out of range.
    pub fn parse(text: &str) -> Option<Self> {
        let (data, period) = text.split_once('/')?;
        let bytes = round_to_whole(quantity(data.trim(), DATA_UNITS)?)?;
        let seconds = round_to_whole(quantity(period.trim(), PERIOD_UNITS)?)?;
        let fits = (MIN_BYTES..=MAX_BYTES).contains(&bytes)
            && (MIN_SECONDS..=MAX_SECONDS).contains(&seconds);
        fits.then_some(Self { bytes, period: Duration::from_secs(seconds) })
    }
}

/// Formats the budget as in the file.
impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_in(f, self.bytes, DATA_UNITS)?;
        f.write_str("/")?;
        write_in(f, self.period.as_secs(), PERIOD_UNITS)
    }
}

/// Writes an amount in the largest unit that divides it exactly, otherwise in the smallest unit.
fn write_in(f: &mut fmt::Formatter<'_>, amount: u64, units: &[(&str, f64)]) -> fmt::Result {
    let amount = amount as f64;
    let fitting = units.iter().rev().find(|(_, scale)| amount % scale == 0.0);
    let Some((name, scale)) = fitting.or(units.first()) else { return Ok(()) };
    write!(f, "{}{name}", amount / scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_are_read_and_written_alike() {
        let read = |text| Budget::parse(text).unwrap_or_else(|| panic!("{text} is not read"));
        let month = read("2GB/30d");
        assert_eq!((month.bytes, month.period.as_secs()), (2_000_000_000, 30 * 86_400));
        assert_eq!(read("0.5 MB / 12 h"), read("500kB/12h"));
        for text in ["2GB/30d", "1500MB/1d", "50MB/36h", "1kB/1h", "1000GB/366d", "1.5kB/1.5h"] {
            assert_eq!(read(text).to_string(), text);
        }
        assert_eq!(read("100MB/24h").to_string(), "100MB/1d");
    }

    #[test]
    fn ambiguous_or_useless_budgets_are_refused() {
        for bad in [
            "",
            "2GB",
            "/30d",
            "2GB/",
            "2/30d",
            "2GB/30",
            "2GiB/30d",
            "2Gb/30d",
            "2gb/30d",
            "0GB/30d",
            "0.9kB/1d",
            "1001GB/30d",
            "2GB/0d",
            "2GB/59min",
            "2GB/367d",
            "2GB/d",
            "-2GB/30d",
            "2GB/30d/1h",
            "2GB/month",
            "NaNGB/30d",
        ] {
            assert_eq!(Budget::parse(bad), None, "{bad}");
        }
    }
}
