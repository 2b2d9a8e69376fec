// SPDX-License-Identifier: Apache-2.0
//! Times of day as text.

use std::time::{Duration, SystemTime};

const SECONDS_PER_DAY: u64 = 86_400;

/// Formats a time as `2026-11-23T15:04:05.678Z` (RFC 3339, UTC). A time before 1970 counts as 1970.
pub fn rfc3339(time: SystemTime) -> String {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    let (days, second) = (since.as_secs() / SECONDS_PER_DAY, since.as_secs() % SECONDS_PER_DAY);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let millis = since.subsec_millis();
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

/// Returns year, month and day of the date `days` after 1970-01-01 (Hinnant, "chrono-compatible
/// low-level date algorithms", `civil_from_days`).
fn date(days: u64) -> (u64, u64, u64) {
    // Days count from 0000-03-01, so that a leap day is the last day of its year.
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected texts are the output of `date -u -d @SECONDS`.
    #[test]
    fn times_follow_the_calendar() {
        let text = |millis| rfc3339(SystemTime::UNIX_EPOCH + Duration::from_millis(millis));
        assert_eq!(text(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(text(951_782_399_999), "2000-02-28T23:59:59.999Z");
        assert_eq!(text(951_782_400_000), "2000-02-29T00:00:00.000Z");
        assert_eq!(text(951_868_800_000), "2000-03-01T00:00:00.000Z");
        assert_eq!(text(1_795_446_245_678), "2026-11-23T15:04:05.678Z");
        assert_eq!(text(4_107_542_400_001), "2100-03-01T00:00:00.001Z");
        assert_eq!(rfc3339(SystemTime::UNIX_EPOCH - Duration::from_secs(9)), text(0));
    }
}
