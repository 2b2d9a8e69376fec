// SPDX-License-Identifier: Apache-2.0
//! The report of a case: a table for people and a JSON file for programs.

use super::case::{Case, Outcomes};
use super::runs::{Discarded, Runs};
use super::trial::{Outcome, Transport};
use crate::air::Punctuality;
use crate::rig::output::About;
use crate::rig::plot;
use crate::rig::stats::{Delay, Gap, Summary, upper_median};
use crate::rig::table::{self, bar, left, or_dash, right};
use crate::rig::verdict::{Conclusion, Verdict, verdict_lines};
use crate::scenario;
use crate::setup::flows::{ALL, Flow};
use crate::setup::ros::{self, Ros, ros2_packages};
use crate::setup::usage::DaemonFigures;
use crate::setup::world::{self, MTU};
use anyhow::{Context, Result};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

/// Everything known about one case after its runs.
#[derive(Serialize)]
pub struct Report {
    case: &'static str,
    /// ROS that the robots run: 1 or 2.
    ros: u8,
    #[serde(flatten)]
    about: About,
    /// Packages of the plain ROS 2 that is compared with Tautline.
    #[serde(skip_serializing_if = "Option::is_none")]
    ros2_packages: Option<String>,
    link: Link,
    rate_configured: bool,
    counted_s: f64,
    runs: usize,
    /// Number of the quoted run, the median by the laser's p99; 0 if no run counts.
    quoted_run: usize,
    /// Laser p99 of each run's first transport, ms.
    laser_p99_ms_of_runs: Vec<Option<f64>>,
    message_bytes: BTreeMap<Flow, u64>,
    transports: BTreeMap<Transport, BTreeMap<Flow, Summary>>,
    /// Percent of all cores that any program kept busy while each transport was measured.
    machine_busy_percent: BTreeMap<Transport, f64>,
    daemons: BTreeMap<String, DaemonFigures>,
    /// Lateness of the radio's emulator while each transport was measured; empty without a radio.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    emulator: BTreeMap<Transport, Punctuality>,
    /// Runs that do not count and were repeated.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    discarded: Vec<Discarded>,
    verdicts: Vec<Verdict>,
    /// Comparisons, for information: they do not affect the conclusion.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    comparisons: Vec<Verdict>,
    /// Reasons why the run is void; empty if it is valid.
    void: Vec<String>,
}

#[derive(Serialize)]
struct Link {
    /// `token-bucket` or `radio`.
    kind: &'static str,
    /// Rate at which a radio sends frames, if it has a single rate.
    rate_bps: Option<u64>,
    full_duplex: bool,
    mtu: u32,
    loss: f64,
    /// Scenario of a radio.
    #[serde(skip_serializing_if = "Option::is_none")]
    scenario: Option<&'static str>,
}

impl Link {
    fn new(link: world::Link) -> Result<Self> {
        let (kind, rate_bps, loss, scenario) = match link {
            world::Link::Wire(limits) => ("token-bucket", limits.rate_bps, limits.loss, None),
            world::Link::Radio(name) => ("radio", radio_rate(name)?, 0.0, Some(name)),
        };
        Ok(Self { kind, rate_bps, full_duplex: scenario.is_none(), mtu: MTU, loss, scenario })
    }

    fn words(&self) -> String {
        let rate = self.rate_bps.map(|rate| format!("{} Mbps ", rate as f64 / 1e6));
        let rate = rate.unwrap_or_default();
        match self.scenario {
            None => format!("{rate}token-bucket link, full duplex, {MTU}-byte MTU"),
            Some(name) => {
                format!("{rate}802.11 radio (model, {name}), half duplex, {MTU}-byte MTU")
            }
        }
    }
}

/// Returns the rate at which the stations of a scenario's first network send; `None` if it adapts.
fn radio_rate(name: &str) -> Result<Option<u64>> {
    let scenario = scenario::named(name)?;
    let rates = scenario.networks.first().map(|network| network.kind.facts().bps());
    Ok(rates.filter(|bps| bps.start() == bps.end()).map(|bps| *bps.start()))
}

/// The machine was busy if one message in a hundred was published later than this.
const LATE_MS: f64 = 5.0;
/// Percent of all cores above which other programs disturb the figures. The bench itself needs about a
/// fifth of two cores.
const BUSY_PERCENT: f64 = 50.0;

impl Report {
    /// Judges the median of the runs that count.
    pub fn new(case: &'static Case, time: Duration, runs: &Runs) -> Result<Self> {
        let p99_of_runs: Vec<Option<f64>> = runs.counted.iter().map(laser_p99).collect();
        let quoted = index_of_median(&p99_of_runs);
        let nothing = Outcomes::new();
        let outcomes = quoted.map_or(&nothing, |run| &runs.counted[run]);
        let ours = outcomes.values().next();
        let mut void = case.reasons_for_void(outcomes);
        if runs.discarded_too_many() {
            void.push(runs.words());
        }
        Ok(Self {
            case: case.name,
            ros: case.ros.number(),
            about: About::now(),
            ros2_packages: (case.ros == Ros::Two).then(ros2_packages),
            link: Link::new(case.link)?,
            rate_configured: case.rate_configured,
            counted_s: time.as_secs_f64(),
            runs: runs.counted.len(),
            quoted_run: quoted.map_or(0, |run| run + 1),
            laser_p99_ms_of_runs: p99_of_runs,
            message_bytes: ours.map(|ours| ours.message_bytes.clone()).unwrap_or_default(),
            transports: by_transport(outcomes, |outcome| Some(outcome.topics.clone())),
            machine_busy_percent: by_transport(outcomes, |o| Some(o.machine_busy_percent)),
            daemons: ours.map(|ours| ours.daemons.clone()).unwrap_or_default(),
            emulator: by_transport(outcomes, |outcome| outcome.emulator.clone()),
            discarded: runs.discarded.clone(),
            verdicts: case.verdicts(outcomes),
            comparisons: quoted.map(|_| case.comparisons(outcomes)).unwrap_or_default(),
            void,
        })
    }

    /// Draws the delays of the quoted run, whose raw samples are under `raw`.
    pub fn draw(&self, raw: &Path, picture: &Path) -> Result<()> {
        let ros = if self.ros2_packages.is_some() { "ROS 2" } else { "ROS" };
        let title = format!("Message delay through {ros} over a {}", self.link_words());
        let (raw, picture) = (ros::utf8(raw)?, ros::utf8(picture)?);
        let load = self.load_words();
        plot::draw("delays.py", &[&*raw, &picture, "--title", &title, "--subtitle", &load])
    }

    /// Returns the number of the quoted run, from 1; 0 if there is none.
    pub fn quoted_run(&self) -> usize {
        self.quoted_run
    }

    /// Returns the conclusion.
    pub fn result(&self) -> Conclusion {
        if !self.void.is_empty() { Conclusion::Void } else { Conclusion::new(&self.verdicts) }
    }

    /// Writes the report as JSON.
    pub fn write(&self, file: &Path) -> Result<()> {
        std::fs::write(file, self.json()? + "\n")
            .with_context(|| format!("cannot write {}", file.display()))
    }

    /// Returns the report as JSON.
    pub fn json(&self) -> Result<String> {
        Ok(serde_json::to_string_pretty(self)?)
    }

    /// Describes the link:
    /// `6 Mbps token-bucket link, full duplex, 1500-byte MTU, 5 % loss each way`.
    pub fn link_words(&self) -> String {
        let configured = if self.rate_configured { ", rate configured" } else { "" };
        let loss = match self.link.loss {
            0.0 => String::new(),
            loss => format!(", {} % loss each way", 100.0 * loss),
        };
        format!("{}{loss}{configured}", self.link.words())
    }

    /// Describes the load and its duration.
    pub fn load_words(&self) -> String {
        let bytes = |flow| self.message_bytes.get(&flow).copied().unwrap_or_default();
        format!(
            "laser {} B at 50 Hz and image {} B at 6.67 Hz to the base, command {} B at 50 Hz to the robot, {} s",
            bytes(Flow::Laser),
            bytes(Flow::Image),
            bytes(Flow::Command),
            self.counted_s
        )
    }

    /// Returns the table, the verdicts and the conclusion as text.
    pub fn to_text(&self) -> String {
        let mut text = format!("\n{}: {}\n", self.case, self.link_words());
        if self.runs > 0 {
            let _ = writeln!(text, "{}", self.load_words());
            let _ = match &self.ros2_packages {
                None => writeln!(text, "TCP by {}", self.about.tcp_congestion_control),
                Some(packages) => writeln!(text, "plain ROS 2: {packages}"),
            };
        }
        if self.runs > 1 {
            let _ = writeln!(
                text,
                "run {} of {}, the median by the laser's p99",
                self.quoted_run, self.runs
            );
        }
        if self.runs > 0 {
            self.put_table(&mut text);
        }
        self.put_daemons(&mut text);
        self.put_emulator(&mut text);
        self.put_busy_machine(&mut text);
        self.put_verdicts(&mut text);
        text
    }

    fn put_table(&self, text: &mut String) {
        let mut rows = Vec::new();
        for flow in ALL {
            let mut topic = flow.name();
            for (&transport, topics) in &self.transports {
                if let Some(summary) = topics.get(&flow) {
                    let topic = std::mem::take(&mut topic);
                    rows.push(Row { topic, transport, summary });
                }
            }
        }
        text.push('\n');
        *text += &table::format_rows(
            &rows,
            &[
                left("topic", 8, |row| row.topic.clone()),
                left("transport", 16, |row| row.transport.name()),
                right("sent", 6, |row| row.summary.sent.to_string()),
                right("received", 8, |row| row.summary.received.to_string()),
                right("mdr %", 7, |row| format!("{:.2}", row.summary.mdr_percent)),
                bar(),
                right("delay ms", 8, |row| row.delay(|delay| delay.mean)),
                right("p50", 8, |row| row.delay(|delay| delay.p50)),
                right("p99", 8, |row| row.delay(|delay| delay.p99)),
                right("max", 8, |row| row.delay(|delay| delay.max)),
                bar(),
                right("gap ms", 8, |row| row.gap(|gap| gap.mean)),
                right("std", 8, |row| row.gap(|gap| gap.std)),
            ],
        );
    }

    fn put_daemons(&self, text: &mut String) {
        for (name, daemon) in &self.daemons {
            let _ = writeln!(
                text,
                "tautline on {name}: {:.1} % of a core under this load, {:.1} % idle; {:.1} MB ({:.1} MB idle)",
                daemon.cpu_percent,
                daemon.idle_cpu_percent,
                daemon.resident_bytes as f64 / 1e6,
                daemon.idle_resident_bytes as f64 / 1e6
            );
        }
    }

    fn put_emulator(&self, text: &mut String) {
        for (transport, punctuality) in &self.emulator {
            let _ = writeln!(text, "emulator, {}: {punctuality}", transport.name());
        }
        for discarded in &self.discarded {
            let _ = writeln!(text, "{}", discarded.words());
        }
    }

    fn put_busy_machine(&self, text: &mut String) {
        for (transport, &percent) in &self.machine_busy_percent {
            let late = self.transports.get(transport).is_some_and(is_late);
            if percent > BUSY_PERCENT || late {
                let late = if late { " and publishers were late" } else { "" };
                let _ = writeln!(
                    text,
                    "this machine was {percent:.0} % busy{late} while {} was measured: other programs disturb the figures",
                    transport.name()
                );
            }
        }
    }

    fn put_verdicts(&self, text: &mut String) {
        text.push('\n');
        text.push_str(&verdict_lines(&self.verdicts));
        text.push_str(&comparison_lines(&self.comparisons));
        for reason in &self.void {
            let _ = writeln!(text, "VOID         {reason}");
        }
        let words = match self.result() {
            Conclusion::Reached if self.verdicts.is_empty() => "measured; there is no target",
            result => result.words(),
        };
        let _ = writeln!(text, "{}: {words}", self.case);
    }
}

/// Returns one line per comparison.
fn comparison_lines(comparisons: &[Verdict]) -> String {
    let line = |verdict: &Verdict| {
        let word = if verdict.reached { "as good" } else { "not as good" };
        let line = format!("{word:12} {}: {}", verdict.what, verdict.found_words());
        format!("{line} (the Pound paper's own radio: {})\n", verdict.target)
    };
    comparisons.iter().map(line).collect()
}

fn is_late(topics: &BTreeMap<Flow, Summary>) -> bool {
    let lateness = topics.values().filter_map(|summary| summary.publisher_late_ms);
    lateness.map(|late| late.p99).any(|p99| p99 > LATE_MS)
}

/// A row of the table: a topic over a transport.
struct Row<'a> {
    /// Name of the topic, in its first row.
    topic: String,
    transport: Transport,
    summary: &'a Summary,
}

impl Row<'_> {
    fn delay(&self, figure: fn(Delay) -> f64) -> String {
        or_dash(self.summary.delay_ms.map(figure), 2)
    }

    fn gap(&self, figure: fn(Gap) -> f64) -> String {
        or_dash(self.summary.gap_ms.map(figure), 2)
    }
}

fn laser_p99(outcomes: &Outcomes) -> Option<f64> {
    Some(outcomes.values().next()?.topics.get(&Flow::Laser)?.delay_ms?.p99)
}

/// Returns a figure of each transport that has this figure.
fn by_transport<T>(
    outcomes: &Outcomes,
    figure: impl Fn(&Outcome) -> Option<T>,
) -> BTreeMap<Transport, T> {
    let of_each = outcomes.iter().map(|(&transport, outcome)| (transport, figure(outcome)));
    of_each.filter_map(|(transport, figure)| Some((transport, figure?))).collect()
}

/// Returns the index of the median; a run without the figure counts as the worst. `None` without
/// runs.
fn index_of_median(figures: &[Option<f64>]) -> Option<usize> {
    let mut order: Vec<usize> = (0..figures.len()).collect();
    order.sort_by(|&a, &b| {
        let figure = |index: usize| figures[index].unwrap_or(f64::INFINITY);
        figure(a).total_cmp(&figure(b))
    });
    upper_median(&order)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quoted_run_is_the_median_and_a_failed_one_the_worst() {
        assert_eq!(index_of_median(&[Some(9.0), Some(3.0), Some(5.0)]), Some(2));
        assert_eq!(index_of_median(&[None, Some(3.0), Some(5.0)]), Some(2));
        assert_eq!(index_of_median(&[Some(1.0)]), Some(0));
        assert_eq!(index_of_median(&[]), None);
    }

    #[test]
    fn void_is_worse_than_not_reached() {
        assert!(
            Conclusion::Void > Conclusion::NotReached
                && Conclusion::NotReached > Conclusion::Reached
        );
    }
}
