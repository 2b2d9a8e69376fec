// SPDX-License-Identifier: Apache-2.0
//! A measured row: the offered load of a run and its echoes, computed from raw samples.

use super::echo::Echo;
use super::experiment::Experiment;
use super::limit::{Evidence, Limit};
use super::load::Pairing;
use super::scene::Medium;
use super::system::System;
use super::watch::CpuFigures;
use anyhow::{Result, ensure};
use serde::Serialize;
use std::time::Duration;
use tautline_lab::rig::stats::{middle, percentile};

/// One measured row. Formulas are fitted to such rows.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// Experiment of the run.
    pub experiment: Experiment,
    /// System that carried the messages.
    pub system: System,
    /// Link between the hosts: `wired`, `radio`, ...
    pub link: Medium,
    /// Repetition, from 1.
    pub repetition: usize,
    /// Senders, and as many echoers.
    pub senders: usize,
    /// Assignment of echoers to senders.
    pub pairing: Pairing,
    /// Hosts, half of them with senders.
    pub hosts: usize,
    /// Requested messages per second of each sender.
    pub frequency_hz: f64,
    /// Bytes of a message in ROS 1; 0 if unknown.
    pub message_bytes: usize,
    /// Contents: `text`, `scan`, ...; `robots` means scans, and commands of every second sender.
    pub contents: &'static str,
    /// Processor time that each node may use, percent of one core; `None` without a limit.
    pub cpu_share_percent: Option<u32>,
    /// Messages published in the counted time by all senders.
    pub sent: usize,
    /// Echoes of these messages that returned.
    pub echoed: usize,
    /// Echoes that did not return before the end of the wait.
    pub lost: usize,
    /// Requested messages per second of all senders together.
    pub offered_per_s: f64,
    /// Messages per second that all senders published.
    pub published_per_s: f64,
    /// Echoes of messages from the counted time, per second. Some may have returned later.
    pub echoed_per_s: f64,
    /// Echoes per second that returned within the counted time, including those of earlier
    /// messages: the rate of an overloaded system.
    pub carried_per_s: f64,
    /// Round trips; `None` if nothing returned.
    pub rtt_ms: Option<Rtt>,
    /// The 95th percentile of the round trips, in periods of the sender; for a mixed load, the
    /// largest value of a kind of messages.
    pub p95_periods: Option<f64>,
    /// Measurements of processors, link and queues.
    #[serde(flatten)]
    pub evidence: Evidence,
    /// Processor time by kind of process.
    pub cpu: Vec<CpuFigures>,
    /// Whether the load was produced and carried without a growing queue.
    pub sustained: bool,
    /// Limits that the run has reached, the machine's first; empty if the load was sustained, or
    /// held where required.
    pub limits: Vec<Limit>,
    /// Reason why the run is void.
    pub void: Option<String>,
}

/// Round trips in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Rtt {
    /// Mean.
    pub mean: f64,
    /// Median.
    pub median: f64,
    /// 95th percentile.
    pub p95: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Longest.
    pub max: f64,
}

impl Row {
    /// Whether the load was sustained in a valid run.
    pub fn is_sustained(&self) -> bool {
        self.sustained && self.void.is_none()
    }

    /// Whether the load is held: sustained, and 95 of 100 round trips of each kind of message end
    /// within one period of its sender. The same criterion applies to every system.
    pub fn is_held(&self) -> bool {
        self.is_sustained() && self.p95_periods.is_some_and(|periods| periods <= 1.0)
    }

    /// Describes why the load is not held; empty if it is.
    pub fn reason(&self) -> String {
        let limits = self.limit_words();
        match (&self.void, self.sustained) {
            (Some(void), _) => format!("void: {void}; limit: {limits}"),
            (None, false) => limits,
            (None, true) if self.is_held() => String::new(),
            (None, true) => format!("round trips longer than a period: {limits}"),
        }
    }

    /// Describes the limits in one line.
    pub fn limit_words(&self) -> String {
        let words: Vec<String> = self.limits.iter().map(Limit::words).collect();
        words.join(", ")
    }

    /// Returns the processor time of a message in one process of that kind, microseconds.
    pub fn us_per_message(&self, kind: &str) -> Option<f64> {
        self.cpu.iter().find(|it| it.kind == kind)?.us_per_message
    }
}

/// The echoes of all senders in the counted time.
#[derive(Debug, Default)]
pub struct Counted {
    echoes: Vec<Echo>,
    /// Messages published.
    pub sent: usize,
    /// Echoes that returned within the counted time, including those of earlier messages.
    pub carried: usize,
    /// Echoes that had not returned at the end of the counted time.
    pub under_way: usize,
}

impl Counted {
    /// Adds the echoes of one sender's messages. The counted time of this sender begins with message
    /// `from` and lasts for `time`; `per_message` is the number of echoes of each message.
    pub fn add(&mut self, echoes: &[Echo], from: u64, per_message: usize, time: Duration) {
        let counted = |echo: &&Echo| echo.sequence >= from;
        let before = self.echoes.len();
        self.echoes.extend(echoes.iter().filter(counted));
        self.sent += (self.echoes.len() - before) / per_message.max(1);
        let Some(start) = self.echoes[before..].iter().map(|echo| echo.sent_ns).min() else {
            return;
        };
        let end = start + time.as_nanos() as u64;
        let returned = |from, to| move |echo: &&Echo| (from..to).contains(&echo.received_ns);
        self.carried += echoes.iter().filter(returned(start, end)).count();
        let missing = |echo: &&Echo| !returned(1, end)(echo) && echo.sent_ns < end;
        self.under_way += echoes.iter().filter(missing).count();
    }

    /// Returns the number of echoes that returned.
    pub fn echoed(&self) -> usize {
        self.echoes.iter().filter(|echo| echo.received_ns > 0).count()
    }

    /// Returns the number of echoes that were expected.
    pub fn expected(&self) -> usize {
        self.echoes.len()
    }

    /// Returns the figures of the round trips.
    pub fn rtt(&self) -> Option<Rtt> {
        let all: Vec<f64> = self.echoes.iter().filter_map(|echo| echo.rtt_ms()).collect();
        if all.is_empty() {
            return None;
        }
        let of = |share| percentile(all.clone(), share);
        let mean = all.iter().sum::<f64>() / all.len() as f64;
        Some(Rtt { mean, median: middle(&all), p95: of(0.95), p99: of(0.99), max: of(1.0) })
    }

    /// Returns the median round trips of the first and of the last quarter, by time of publishing.
    pub fn quarters(&self) -> Option<[f64; 2]> {
        let first = self.echoes.iter().map(|echo| echo.sent_ns).min()?;
        let last = self.echoes.iter().map(|echo| echo.sent_ns).max()?;
        let quarter = (last - first) / 4;
        let within = |from: u64, to: u64| -> Vec<f64> {
            let chosen = self.echoes.iter().filter(|echo| (from..=to).contains(&echo.sent_ns));
            chosen.filter_map(|echo| echo.rtt_ms()).collect()
        };
        let medians = [within(first, first + quarter), within(last - quarter, last)];
        let medians = medians.map(|values| middle(&values));
        medians.iter().all(|median| median.is_finite()).then_some(medians)
    }

    /// Returns evidence with the percentages of messages that were published and echoed; `asked` is the
    /// number of messages that all senders should publish. Fails if that is zero.
    pub fn evidence(&self, asked: f64) -> Result<Evidence> {
        ensure!(asked > 0.0, "no messages were asked for");
        Ok(Evidence {
            produced_percent: 100.0 * self.sent as f64 / asked,
            echoed_percent: 100.0 * self.echoed() as f64 / self.expected().max(1) as f64,
            ..Evidence::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn echo(sequence: u64, rtt_ms: u64) -> Echo {
        let sent_ns = 1 + sequence * 10_000_000;
        let received_ns = if rtt_ms == 0 { 0 } else { sent_ns + rtt_ms * 1_000_000 };
        Echo { sequence, sent_ns, received_ns }
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn the_warm_up_is_not_counted_and_a_missing_echo_has_no_round_trip() {
        let mut counted = Counted::default();
        counted.add(&[echo(0, 90), echo(1, 2), echo(2, 4), echo(3, 0)], 1, 1, SECOND);
        assert_eq!((counted.sent, counted.echoed(), counted.expected()), (3, 2, 3));
        let rtt = counted.rtt().unwrap();
        assert_eq!((rtt.mean, rtt.median, rtt.max), (3.0, 3.0, 4.0));
        let evidence = counted.evidence(4.0).unwrap();
        assert_eq!(evidence.produced_percent, 75.0);
        assert!((evidence.echoed_percent - 200.0 / 3.0).abs() < 1e-9);
    }

    #[test]
    fn a_message_to_two_echoers_is_one_message() {
        let mut counted = Counted::default();
        counted.add(&[echo(0, 1), echo(1, 1), echo(0, 2), echo(1, 2)], 0, 2, SECOND);
        assert_eq!((counted.sent, counted.expected()), (2, 4));
    }

    #[test]
    fn late_echoes_count_for_their_message_and_are_carried_when_they_return() {
        // Messages every 10 ms; the first 50 ms are the warm-up, and the next 50 ms are counted.
        let echoes: Vec<Echo> = (0..10).map(|number| echo(number, 25)).collect();
        let mut counted = Counted::default();
        counted.add(&echoes, 5, 1, Duration::from_millis(50));
        assert_eq!((counted.sent, counted.echoed()), (5, 5));
        // Messages from 30 to 70 ms return at 55 to 95 ms.
        assert_eq!((counted.carried, counted.under_way), (5, 2));
    }

    #[test]
    fn quarters_show_a_queue_that_grows() {
        let mut counted = Counted::default();
        let echoes: Vec<Echo> = (0..100).map(|number| echo(number, 1 + number)).collect();
        counted.add(&echoes, 0, 1, SECOND);
        let [first, last] = counted.quarters().unwrap();
        assert!(first < 15.0 && last > 85.0, "{first} {last}");
    }

    #[test]
    fn a_row_of_samples_is_four_numbers() {
        assert_eq!(
            Echo::parse("3,0,17,42"),
            Some(Echo { sequence: 3, sent_ns: 17, received_ns: 42 })
        );
        assert_eq!(Echo::parse("3,0,17"), None);
        assert_eq!(Echo::parse("3,0,17,42,1"), None);
        assert_eq!(Echo::parse("3,0,x,42"), None);
    }
}
