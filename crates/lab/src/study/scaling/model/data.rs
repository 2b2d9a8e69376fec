// SPDX-License-Identifier: Apache-2.0
//! Measured rows to which a formula is fitted: the thesis's, and those of `study scaling`.

use super::super::limit::ACCEPTABLE_MS;
use super::super::trial::WARM_UP;
use crate::rig::processes::read_packed;
use crate::rig::stats::median;
use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// Public summary of the thesis's raw logs, vertical scaling (github.com/sheepzez).
const VERTICAL: &str = include_str!("../../../../reference/sheepzez_vertical_scaling_summary.csv");
/// Bytes of a PR2's laser scan with the thesis's number and time (Scaling, experiments 5 to 8).
pub const SCAN_BYTES: usize = 4240;
/// Scans of the thesis's recording; each sender publishes all of them once.
const SCANS: f64 = 1195.0;
/// Time after the last message until which the thesis's senders waited, seconds.
pub const CUT_OFF_S: f64 = 5.0;
/// Pairing in which every echoer answers every sender, as `study scaling` writes it.
const EVERY_TO_EVERY: &str = "every_to_every";
/// Contents of loads with two kinds of messages, which have no size and frequency in common.
const MIXED: &str = "robots";
/// Share of the offered rate below which a row is beyond capacity.
pub const CARRIED: f64 = 0.9;

/// How long each sender publishes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Span {
    /// Until it has published that number of messages.
    Messages(f64),
    /// As long as that, of which the first seconds do not count.
    Seconds {
        /// Seconds that do not count.
        warm_up: f64,
        /// Seconds that count.
        counted: f64,
    },
}

/// One measured row.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// Pairs of a sender and an echoer.
    pub pairs: usize,
    /// Hosts, half of them with senders.
    pub hosts: usize,
    /// Messages per second asked of each pair.
    pub frequency_hz: f64,
    /// Bytes of a message.
    pub message_bytes: usize,
    /// Messages per second that all senders published.
    pub published_per_s: f64,
    /// Echoes per second that returned to all senders.
    pub echoed_per_s: f64,
    /// Mean round trip of the messages that returned, milliseconds.
    pub rtt_ms: f64,
    /// Duration of the run.
    pub span: Span,
}

impl Row {
    /// Returns the messages per second asked of all pairs.
    pub fn offered_per_s(&self) -> f64 {
        self.pairs as f64 * self.frequency_hz
    }

    /// Whether the row shows a capacity: less returned than was asked.
    pub fn is_overloaded(&self) -> bool {
        self.echoed_per_s < CARRIED * self.offered_per_s()
    }

    /// Whether the thesis would call the load acceptable.
    pub fn is_acceptable(&self) -> bool {
        self.rtt_ms <= ACCEPTABLE_MS
    }
}

/// Rows of one set-up: the same system on the same link.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Rows {
    /// What was measured.
    pub name: String,
    /// The rows.
    pub rows: Vec<Row>,
}

/// Returns the thesis's vertical scaling over Wi-Fi: on bare computers (experiment 7), and on robots
/// with batteries (experiment 8).
pub fn thesis() -> Result<[Rows; 2]> {
    let of = |experiment: &str, name: &str| -> Result<Rows> {
        Ok(Rows { name: name.into(), rows: vertical(VERTICAL, experiment)? })
    };
    Ok([of("experiment_7", "thesis, experiment 7")?, of("experiment_8", "thesis, experiment 8")?])
}

/// Fields of a comma-separated text by the titles in its first line. A quoted field may contain commas.
pub struct Table<'t> {
    titles: Vec<&'t str>,
    lines: Vec<(usize, &'t str)>,
}

/// One line of a [`Table`].
pub struct Line<'t> {
    number: usize,
    fields: BTreeMap<&'t str, &'t str>,
}

impl<'t> Table<'t> {
    /// Reads the titles.
    pub fn new(text: &'t str) -> Self {
        let mut lines = text.lines().zip(1..).map(|(line, number)| (number, line));
        let titles = lines.next().map_or(Vec::new(), |(_, line)| split(line));
        Self { titles, lines: lines.filter(|(_, line)| !line.is_empty()).collect() }
    }

    /// Returns the lines.
    pub fn lines(&self) -> impl Iterator<Item = Result<Line<'t>>> {
        self.lines.iter().map(|(number, line)| {
            let (fields, titles) = (split(line), self.titles.len());
            let found = fields.len();
            ensure!(found == titles, "line {number}: {found} fields, not {titles}: '{line}'");
            Ok(Line { number: *number, fields: self.titles.iter().copied().zip(fields).collect() })
        })
    }
}

fn split(line: &str) -> Vec<&str> {
    let mut quoted = false;
    let fields = line.split(move |c: char| {
        quoted ^= c == '"';
        c == ',' && !quoted
    });
    fields.map(|field| field.trim_matches('"')).collect()
}

impl<'t> Line<'t> {
    /// Returns the field of that title.
    pub fn text(&self, title: &str) -> Result<&'t str> {
        let found = self.fields.get(title).copied();
        found.with_context(|| format!("line {}: no column '{title}'", self.number))
    }

    /// Returns a number that is finite and not negative.
    pub fn number(&self, title: &str) -> Result<f64> {
        let text = self.text(title)?;
        let number: Option<f64> = text.parse().ok().filter(|it: &f64| it.is_finite() && *it >= 0.0);
        number.with_context(|| {
            format!("line {}: {title} is '{text}', not a number from 0 on", self.number)
        })
    }
}

fn vertical(text: &str, experiment: &str) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for line in Table::new(text).lines() {
        let line = line?;
        if !line.text("exp")?.starts_with(experiment) {
            continue;
        }
        let pairs = line.number("senders")?;
        rows.push(Row {
            pairs: pairs as usize,
            hosts: 2,
            frequency_hz: line.number("freq")?,
            message_bytes: SCAN_BYTES,
            published_per_s: pairs * line.number("send_rate")?,
            echoed_per_s: line.number("agg_recv_rate")?,
            rtt_ms: line.number("mean_thesis")?,
            span: Span::Messages(SCANS),
        });
    }
    ensure!(!rows.is_empty(), "no rows of {experiment}");
    Ok(rows)
}

/// The part of the report of `study scaling` that counts here.
#[derive(Deserialize)]
struct Report {
    counted_s: f64,
    rows: Vec<ReportRow>,
}

#[derive(Deserialize)]
struct ReportRow {
    system: String,
    link: String,
    senders: usize,
    #[serde(default)]
    pairing: String,
    hosts: usize,
    frequency_hz: f64,
    message_bytes: usize,
    #[serde(default)]
    contents: String,
    #[serde(default)]
    cpu_share_percent: Option<u32>,
    published_per_s: f64,
    echoed_per_s: f64,
    /// Echoes that returned within the counted time, if the report distinguishes them from those that
    /// returned later.
    #[serde(default)]
    carried_per_s: Option<f64>,
    rtt_ms: Option<ReportRtt>,
    #[serde(default)]
    cpu: Vec<ReportCpu>,
    #[serde(default)]
    limits: Vec<serde_json::Value>,
    #[serde(default)]
    void: Option<String>,
}

#[derive(Deserialize)]
struct ReportRtt {
    mean: f64,
}

#[derive(Deserialize)]
struct ReportCpu {
    kind: String,
    us_per_message: Option<f64>,
}

impl ReportRow {
    fn is_sustained(&self) -> bool {
        self.limits.is_empty() && self.void.is_none()
    }

    fn us_per_message(&self, kind: &str) -> Option<f64> {
        self.cpu.iter().find(|it| it.kind == kind)?.us_per_message
    }

    /// Whether both rows have the same load on the same link.
    fn is_like(&self, other: &Self) -> bool {
        let key = |it: &Self| (it.link.clone(), it.senders, it.frequency_hz.to_bits());
        key(self) == key(other) && self.message_bytes == other.message_bytes
    }

    /// Returns the name of its set. Messages of different sizes are different sets: one pair carries
    /// another number of each.
    fn name(&self) -> String {
        let share = self.cpu_share_percent.map(|percent| format!(", {percent} % of a core"));
        let share = share.unwrap_or_default();
        format!("{} over {}, {} B{share}", self.system, self.link, self.message_bytes)
    }

    /// Returns the row; `None` if nothing returned, or the size is unknown or not the same for all.
    fn row(&self, seconds: f64) -> Option<Row> {
        let echoers = if self.pairing == EVERY_TO_EVERY { self.senders } else { 1 };
        let rtt_ms = self.rtt_ms.as_ref()?.mean;
        (self.message_bytes > 0 && self.contents != MIXED).then(|| Row {
            pairs: self.senders * echoers,
            hosts: self.hosts,
            frequency_hz: self.frequency_hz,
            message_bytes: self.message_bytes,
            published_per_s: self.published_per_s * echoers as f64,
            echoed_per_s: self.carried_per_s.unwrap_or(self.echoed_per_s),
            rtt_ms,
            span: Span::Seconds { warm_up: WARM_UP.as_secs_f64(), counted: seconds },
        })
    }
}

/// Reads the rows of a `report.json` of `study scaling`, one set for each system, link, size and
/// share of the processor. Void rows and rows without an echo are left out.
pub fn read(file: &Path) -> Result<Measured> {
    let name = file.display();
    let text = read_packed(file).with_context(|| format!("cannot read {name}"))?;
    parse(&text).with_context(|| format!("{name} is not a report.json of 'study scaling'"))
}

/// What a report of `study scaling` shows.
pub struct Measured {
    /// Rows by system, link, size and share of the processor.
    pub sets: Vec<Rows>,
    /// Processor time of a daemon for a message and its echo as a share of a rospy echoer's: the median
    /// of the loads that both systems sustained. `None` without such a load.
    pub daemon_share: Option<f64>,
}

fn parse(text: &str) -> Result<Measured> {
    let report: Report = serde_json::from_str(text)?;
    let seconds = report.counted_s;
    ensure!(seconds > 0.0, "counted_s is {seconds}, not above 0");
    let mut sets = BTreeMap::<String, Vec<Row>>::new();
    for row in report.rows.iter().filter(|row| row.void.is_none()) {
        if let Some(found) = row.row(seconds) {
            sets.entry(row.name()).or_default().push(found);
        }
    }
    if sets.is_empty() {
        bail!("none of its {} rows has an echo and is not void", report.rows.len());
    }
    let sets = sets.into_iter().map(|(name, rows)| Rows { name, rows }).collect();
    Ok(Measured { sets, daemon_share: daemon_share(&report.rows) })
}

fn daemon_share(rows: &[ReportRow]) -> Option<f64> {
    let of = |system: &'static str| {
        rows.iter().filter(move |it| it.system == system && it.is_sustained())
    };
    let pairs = of("tautline").flat_map(|ours| {
        of("rospy").filter(|plain| plain.is_like(ours)).map(move |plain| [ours, plain])
    });
    median(pairs.filter_map(|[ours, plain]| {
        Some(ours.us_per_message("daemon")? / plain.us_per_message("echoer")?)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_thesis_has_48_rows_of_bare_computers_and_19_of_robots() {
        let [bare, robots] = thesis().unwrap();
        assert_eq!((bare.rows.len(), robots.rows.len()), (48, 19));
        let row = bare.rows.iter().find(|it| it.pairs == 8 && it.frequency_hz == 200.0).unwrap();
        assert!((row.echoed_per_s - 233.95).abs() < 0.01 && (row.rtt_ms - 5585.5).abs() < 0.1);
        assert!((row.published_per_s - 8.0 * 189.662).abs() < 0.1);
        assert!(row.is_overloaded() && !row.is_acceptable());
    }

    #[test]
    fn a_quoted_field_may_contain_commas_and_a_wrong_line_is_named() {
        let table = Table::new("a,b\n1,\"[2, 3]\"\n4\n");
        let mut lines = table.lines();
        assert_eq!(lines.next().unwrap().unwrap().text("b").unwrap(), "[2, 3]");
        let problem = lines.next().unwrap().err().unwrap().to_string();
        assert_eq!(problem, "line 3: 1 fields, not 2: '4'");
        let nan = Table::new("a\nnan\n").lines().next().unwrap().unwrap().number("a");
        assert_eq!(nan.err().unwrap().to_string(), "line 2: a is 'nan', not a number from 0 on");
    }

    const REPORT: &str = r#"{"counted_s": 4.0, "other": 1, "rows": [
        {"system": "rospy", "link": "radio", "senders": 2, "pairing": "every_to_every", "hosts": 4,
         "frequency_hz": 10.0, "message_bytes": 4227, "published_per_s": 20.0, "echoed_per_s": 38.0,
         "rtt_ms": {"mean": 12.5, "p95": 20.0}, "void": null},
        {"system": "rospy", "link": "radio", "senders": 1, "pairing": "pairs", "hosts": 2,
         "frequency_hz": 10.0, "message_bytes": 32, "published_per_s": 10.0, "echoed_per_s": 0.0,
         "rtt_ms": null, "void": null},
        {"system": "rospy", "link": "radio", "senders": 2, "pairing": "pairs", "hosts": 2,
         "frequency_hz": 10.0, "message_bytes": 4227, "contents": "robots", "published_per_s": 60.0,
         "echoed_per_s": 60.0, "rtt_ms": {"mean": 4.0}, "void": null},
        {"system": "rospy", "link": "wired", "senders": 1, "pairing": "pairs", "hosts": 2,
         "frequency_hz": 10.0, "message_bytes": 32, "published_per_s": 10.0, "echoed_per_s": 10.0,
         "rtt_ms": {"mean": 1.0}, "void": "busy"}]}"#;

    #[test]
    fn rows_of_a_report_count_pairs_and_leave_out_void_ones() {
        let Measured { sets, daemon_share } = parse(REPORT).unwrap();
        assert_eq!((sets.len(), daemon_share), (1, None));
        let Rows { name, rows } = &sets[0];
        assert_eq!((name.as_str(), rows.len()), ("rospy over radio, 4227 B", 1));
        assert_eq!((rows[0].pairs, rows[0].hosts, rows[0].offered_per_s()), (4, 4, 40.0));
        let span = Span::Seconds { warm_up: WARM_UP.as_secs_f64(), counted: 4.0 };
        assert_eq!((rows[0].published_per_s, rows[0].span), (40.0, span));
    }

    #[test]
    fn the_share_of_a_daemon_is_taken_from_loads_that_both_systems_sustained() {
        let row = |system: &str, hz: f64, cpu: &str, limits: &str| {
            format!(
                r#"{{"system": "{system}", "link": "wired", "senders": 1, "hosts": 2,
                "frequency_hz": {hz}, "message_bytes": 32, "published_per_s": 1.0,
                "echoed_per_s": 1.0, "rtt_ms": {{"mean": 1.0}}, "cpu": [{cpu}], "limits": [{limits}]}}"#
            )
        };
        let cpu = |kind: &str, us: f64| format!(r#"{{"kind": "{kind}", "us_per_message": {us}}}"#);
        let queue = r#"{"kind": "queue"}"#;
        let rows = [
            row("rospy", 10.0, &cpu("echoer", 100.0), ""),
            row("tautline", 10.0, &cpu("daemon", 80.0), ""),
            row("rospy", 20.0, &cpu("echoer", 100.0), queue),
            row("tautline", 20.0, &cpu("daemon", 10.0), ""),
        ];
        let text = format!(r#"{{"counted_s": 4.0, "rows": [{}]}}"#, rows.join(","));
        assert_eq!(parse(&text).unwrap().daemon_share, Some(0.8));
    }

    #[test]
    fn a_report_without_usable_rows_is_refused() {
        let problem = parse(r#"{"counted_s": 1.0, "rows": []}"#).err().unwrap().to_string();
        assert_eq!(problem, "none of its 0 rows has an echo and is not void");
    }
}
