// SPDX-License-Identifier: Apache-2.0
//! Numbers formatted for people.

use std::collections::BTreeMap;
use std::time::Duration;
use tautline::columns::Value;
use tautline::status::GivenUpReport;

pub const UNKNOWN: &str = "-";

/// Formats `1234567.0` as `1.23M`: three significant digits.
pub fn format_si(value: f64) -> String {
    let steps = [(1e9, "G"), (1e6, "M"), (1e3, "k")];
    // From 0.9995 of a scale on, a value would be rounded up to the scale.
    match steps.into_iter().find(|(scale, _)| value >= 0.9995 * scale) {
        Some((scale, letter)) => format!("{}{letter}", three_digits(value / scale)),
        None if value.fract() == 0.0 => format!("{value:.0}"),
        None => three_digits(value),
    }
}

fn three_digits(value: f64) -> String {
    match value {
        v if v >= 99.95 => format!("{v:.0}"),
        v if v >= 9.995 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

pub fn bit_rate(bits_per_second: f64) -> String {
    format!("{}bps", format_si(bits_per_second))
}

/// Formats bytes as a part of their limit.
pub fn part_of_bytes(count: u64, limit: u64) -> String {
    format!("{}/{}", bytes(count as f64), bytes(limit as f64))
}

pub fn bytes(count: f64) -> String {
    format!("{}B", format_si(count))
}

/// Formats milliseconds without the unit.
pub fn milliseconds(value: Option<f64>) -> String {
    value.map_or(UNKNOWN.into(), three_digits)
}

/// Formats a fraction of one in per cent.
pub fn percent(fraction: Option<f64>) -> String {
    fraction.map_or(UNKNOWN.into(), |fraction| format!("{:.1}%", fraction * 100.0))
}

/// Formats a value of a column.
pub fn format_cell(value: &Value) -> String {
    match value {
        Value::Absent => String::new(),
        Value::Unknown => UNKNOWN.into(),
        Value::Text(words) | Value::Address(words) if words.is_empty() => UNKNOWN.into(),
        Value::Text(words) | Value::Address(words) => words.clone(),
        Value::Flag(is_true) => if *is_true { "yes" } else { "no" }.into(),
        Value::Count(number) => format_si(*number as f64),
        Value::Bytes(number) => bytes(*number as f64),
        Value::PartOfBytes(part, total) | Value::UsedBytes(part, total) => {
            part_of_bytes(*part, *total)
        }
        Value::Number(number) => format_si(*number),
        Value::BitRate(bps) => bit_rate(*bps),
        Value::Milliseconds(ms) => milliseconds(Some(*ms)),
        Value::Share(share) => percent(Some(*share)),
        Value::NowAndTotal(now, total) => match (format_cell(now), format_cell(total)) {
            (now, total) if now == total => total,
            (now, total) => format!("{now}/{total}"),
        },
        Value::Several(values) => values.iter().map(format_cell).collect::<Vec<_>>().join("/"),
        Value::Dropped(recent, reasons) => now_and_dropped(recent.as_ref(), reasons),
        Value::Passed(passed, reasons) => match (passed, drop_counts(reasons)) {
            (0, none) if none.is_empty() => UNKNOWN.into(),
            (passed, none) if none.is_empty() => format_si(*passed as f64),
            (passed, lost) => format!("{}, dropped {lost}", format_si(*passed as f64)),
        },
    }
}

/// Formats seconds as `3d 4h`, `2h 5min`, `5min 3s` or `3s`.
pub fn uptime(seconds: f64) -> String {
    let s = seconds.max(0.0) as u64;
    match (s / 86_400, s / 3600 % 24, s / 60 % 60, s % 60) {
        (0, 0, 0, s) => format!("{s}s"),
        (0, 0, min, s) => format!("{min}min {s}s"),
        (0, h, min, _) => format!("{h}h {min}min"),
        (d, h, ..) => format!("{d}d {h}h"),
    }
}

/// Formats a configured time in the notation of the file.
pub fn duration(duration: Duration) -> String {
    match duration.as_secs_f64() {
        s if s >= 1.0 => format!("{s}s"),
        s => format!("{}ms", (s * 1e6).round() / 1e3),
    }
}

/// Formats counts as `12 expired, 3 lost`, the largest first; empty for none.
pub fn drop_counts(reasons: &BTreeMap<String, u64>) -> String {
    let mut counts: Vec<(&String, &u64)> =
        reasons.iter().filter(|(_, count)| **count > 0).collect();
    counts.sort_by(|a, b| b.1.cmp(a.1).then(a.0.cmp(b.0)));
    let parts: Vec<String> = counts
        .iter()
        .map(|(reason, count)| {
            format!("{} {}", format_si(**count as f64), reason.replace('_', " "))
        })
        .collect();
    parts.join(", ")
}

/// Formats the fraction of recent drops with their most frequent reason, then all drops since the
/// start.
fn now_and_dropped(recent: Option<&GivenUpReport>, reasons: &BTreeMap<String, u64>) -> String {
    let since_start = drop_counts(reasons);
    let Some(recent) = recent else { return since_start };
    let most = recent.reasons.iter().max_by_key(|(_, count)| **count);
    let reason = most.map(|(reason, _)| reason.replace('_', " ")).unwrap_or_default();
    format!("now {:.0}% {reason}; {since_start}", recent.share() * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_three_digits() {
        let expected = [(0.0, "0"), (7.0, "7"), (6.667, "6.67"), (50.02, "50.0"), (999.0, "999")];
        let larger = [(999.9, "1.00k"), (1234567.0, "1.23M"), (12.345e9, "12.3G"), (99.96, "100")];
        for (value, text) in expected.into_iter().chain(larger) {
            assert_eq!(format_si(value), text);
        }
    }

    #[test]
    fn times_are_written_in_two_units() {
        assert_eq!(uptime(3.9), "3s");
        assert_eq!(uptime(303.0), "5min 3s");
        assert_eq!(uptime(7500.0), "2h 5min");
        assert_eq!(uptime(3.2 * 86_400.0), "3d 4h");
        assert_eq!(duration(Duration::from_millis(500)), "500ms");
        assert_eq!(duration(Duration::from_millis(2500)), "2.5s");
    }

    #[test]
    fn reasons_are_sorted_by_frequency() {
        let reasons = [
            ("lost".into(), 3),
            ("expired".into(), 12),
            ("peer_gone".into(), 3),
            ("late".into(), 0),
        ]
        .into();
        assert_eq!(drop_counts(&reasons), "12 expired, 3 lost, 3 peer gone");
    }
}
