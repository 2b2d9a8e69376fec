// SPDX-License-Identifier: Apache-2.0
//! The traffic of robots: from their files, from snapshots of running daemons, and from the command
//! line.

use super::radios::Radios;
use super::spread::Links;
use super::team::{Team, Traffic};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use tautline::config::{Config, LinkConfig, PeerConfig, TopicExpectation, units};
use tautline::rates;
use tautline::status::{Direction, Status, TopicReport};
use tautline::treatment::TopicRule;
use tautline_gateway::pattern::Pattern;

/// Minimum time for measuring a rate, in seconds.
const MIN_SECONDS: f64 = 5.0;
/// The end of a line that asks for a rate or a size.
pub const UNKNOWN_RATE_OR_SIZE: &str = "must be known";
const EXPECT_FORM: &str = "TOPIC=RATE,SIZE or NODE:TOPIC=RATE,SIZE, such as /scan=10Hz,4kB";

/// A user's expectation of a topic on the command line.
#[derive(Debug, Clone, PartialEq)]
pub struct Expectation {
    node: Option<String>,
    topic: String,
    rate_hz: f64,
    bytes: u64,
}

impl Expectation {
    /// Parses a text such as `robot1:/scan=10Hz,4kB`; the error is for the user.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = |what: &str| format!("--expect {text}: {what}; allowed is {EXPECT_FORM}");
        let (name, values) = text.split_once('=').ok_or_else(|| wrong("no '='"))?;
        let (rate, size) = values.split_once(',').ok_or_else(|| wrong("no ',' after the rate"))?;
        let rate_hz = units::frequency(rate).filter(|it| (0.001..=1e5).contains(it));
        let (node, topic) = match name.split_once(':') {
            Some((node, topic)) => (Some(node.to_owned()), topic),
            None => (None, name),
        };
        Ok(Self {
            node,
            topic: topic.to_owned(),
            rate_hz: rate_hz.ok_or_else(|| wrong(&format!("'{rate}' is no rate")))?,
            bytes: units::bytes(size.trim())
                .ok_or_else(|| wrong(&format!("'{size}' is no size")))?,
        })
    }

    fn applies_to(&self, node: &str, topic: &str) -> bool {
        self.topic == topic && self.node.as_ref().is_none_or(|it| it == node)
    }
}

/// A robot's file and its name on the command line.
#[derive(Debug, Clone)]
pub struct RobotFile {
    /// Path, for errors.
    pub path: String,
    /// The contents.
    pub config: Config,
}

/// All sources of traffic.
#[derive(Debug, Clone, Default)]
pub struct Inputs {
    /// Robots' files.
    pub files: Vec<RobotFile>,
    /// Snapshots of daemons; two snapshots of one daemon give rates.
    pub snapshots: Vec<Status>,
    /// Expectations of the command line; they override those of files.
    pub expectations: Vec<Expectation>,
}

impl Inputs {
    /// Returns all traffic. The error lists the missing values.
    pub fn traffic(&self, radios: &Radios) -> Result<Vec<Traffic>, Vec<String>> {
        let mut missing = self.duplicate_files();
        let measured = self.measured(radios, &mut missing);
        let mut all: Vec<Traffic> = Vec::new();
        for file in &self.files {
            self.add_file(file, radios, &measured, &mut all, &mut missing);
        }
        let mut seen = BTreeSet::new();
        missing.retain(|it| seen.insert(it.clone()));
        missing.extend(self.expectations.iter().filter_map(|it| self.unused_expectation(it)));
        all.extend(measured);
        if all.is_empty() && missing.is_empty() {
            missing.push("no topics: no file has topics and peers, and no snapshot has topics that a peer wants".into());
            missing.extend(self.notes());
        }
        if missing.is_empty() { Ok(all) } else { Err(missing) }
    }

    /// Returns the delays that the snapshots measured, of all topics that arrived.
    pub fn delays(&self) -> Vec<MeasuredDelay> {
        let pairs = self.pairs();
        let arrived = pairs.iter().flat_map(|pair| {
            let topics = pair.last.topics.iter().filter(|it| it.direction == Direction::In);
            topics.filter_map(|it| delay_of(&pair.last.node, it, pair.first_report(it)))
        });
        arrived.collect()
    }

    /// Returns gaps and contradictions of the inputs.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        for file in &self.files {
            for peer in &file.config.peers {
                notes.extend(self.peer_note(file, &peer.name));
            }
            for (rule, _) in rules(&file.config) {
                let peers = receivers(&file.config, rule);
                notes.extend(peers.filter_map(|it| self.refusal(&file.config, rule, it)));
            }
        }
        notes.sort();
        notes.dedup();
        notes
    }

    fn peer_note(&self, file: &RobotFile, peer: &str) -> Option<String> {
        let name = &file.config.name;
        match self.file_of(peer) {
            // A snapshot of one end has the topics of both directions.
            None if !self.snapshots.is_empty() => None,
            None => Some(format!("no file of {peer}: what it sends is not counted")),
            Some(other) if other.config.peers.iter().any(|it| it.name == *name) => None,
            Some(other) => {
                Some(format!("{name} has {peer} as a peer, but {} has no peer {name}", other.path))
            }
        }
    }

    /// Returns a note if a receiver's file does not accept a topic.
    fn refusal(&self, config: &Config, rule: &TopicRule, to: &PeerConfig) -> Option<String> {
        let file = self.file_of(&to.name)?;
        let names = &file.config.peers.iter().find(|it| it.name == config.name)?.names;
        let pattern = &rule.pattern;
        // Under a prefix, the type of the topic decides, and files do not have types of topics.
        let is_accepted = !names.prefix.is_empty()
            || names.accept.iter().any(|it| may_overlap(&it.pattern, pattern));
        let (path, topic, name) = (&file.path, pattern.as_str(), &config.name);
        (!is_accepted)
            .then(|| format!("{path}: does not accept {topic} of {name}; it is not counted"))
    }

    fn file_of(&self, name: &str) -> Option<&RobotFile> {
        self.files.iter().find(|it| it.config.name == name)
    }

    /// Returns a note for each robot with two files: its topics would count twice.
    fn duplicate_files(&self) -> Vec<String> {
        let note = |(index, file): (usize, &RobotFile)| {
            let name = &file.config.name;
            let first = self.files[..index].iter().find(|it| it.config.name == *name)?;
            Some(format!(
                "{} and {} are both files of {name}: leave one out",
                first.path, file.path
            ))
        };
        self.files.iter().enumerate().filter_map(note).collect()
    }

    /// Returns a note if an expectation matches no topic.
    fn unused_expectation(&self, it: &Expectation) -> Option<String> {
        let names: Vec<&str> = self.files.iter().map(|file| &*file.config.name).collect();
        match &it.node {
            Some(node) if !names.contains(&&**node) => Some(format!(
                "--expect {node}:{}: no file of {node}; there are files of: {}",
                it.topic,
                names.join(", ")
            )),
            _ => {
                let has = |config: &Config| {
                    rules(config)
                        .any(|(rule, _)| it.applies_to(&config.name, rule.pattern.as_str()))
                };
                (!self.files.iter().any(|file| has(&file.config))).then(|| {
                    format!("--expect {}: no file has a topic of this name; patterns are written as in the file", it.topic)
                })
            }
        }
    }

    fn configs(&self) -> Vec<&Config> {
        self.files.iter().map(|it| &it.config).collect()
    }

    fn add_file(
        &self,
        file: &RobotFile,
        radios: &Radios,
        measured: &[Traffic],
        all: &mut Vec<Traffic>,
        missing: &mut Vec<String>,
    ) {
        let config = &file.config;
        for (rule, expected) in rules(config) {
            let name = rule.pattern.as_str();
            let told = self.expectations.iter().find(|it| it.applies_to(&config.name, name));
            let (rate, bytes) = match told {
                Some(told) => (Some(told.rate_hz), Some(told.bytes)),
                None => (expected.rate_hz, expected.bytes),
            };
            if told.is_none() && is_measured(&config.name, &rule.pattern, measured) {
                continue;
            }
            match (rate, bytes) {
                (Some(rate_hz), Some(bytes)) => {
                    let wanted = |to: &&PeerConfig| self.refusal(config, rule, to).is_none();
                    for to in receivers(config, rule).filter(wanted) {
                        match radios.links(config, rule, to, &self.configs()) {
                            Ok(links) => {
                                all.push(sent_traffic(config, rule, to, (rate_hz, bytes), links))
                            }
                            Err(unknown) => missing.push(unknown),
                        }
                    }
                }
                (rate, bytes) => missing.push(missing_values_line(
                    file,
                    expected,
                    rate.is_none(),
                    bytes.is_none(),
                )),
            }
        }
    }

    /// Returns the traffic of the snapshots. A received topic counts only without a snapshot of its
    /// sender.
    fn measured(&self, radios: &Radios, missing: &mut Vec<String>) -> Vec<Traffic> {
        let (pairs, configs) = (self.pairs(), self.configs());
        let nodes: BTreeSet<&str> = pairs.iter().map(|it| &*it.last.node).collect();
        let mut all = Vec::new();
        for pair in &pairs {
            let (node, last) = (&*pair.last.node, pair.last);
            let seconds = last.uptime_s - pair.first.map_or(0.0, |it| it.uptime_s);
            if seconds < MIN_SECONDS {
                missing.push(format!(
                    "the snapshot of {node} covers {seconds:.1} s; {MIN_SECONDS} s are the least that measures rates"
                ));
                continue;
            }
            let wanted = last.topics.iter().filter(|it| it.wanted);
            let own =
                wanted.filter(|it| it.direction == Direction::Out || !nodes.contains(&*it.peer));
            let file = configs.iter().copied().find(|it| it.name == node);
            for report in own {
                let before = pair.first_report(report);
                let Some(found) = of_report(node, report, before, seconds) else { continue };
                match radios.links_of(last, report, before, file) {
                    Ok(links) => all.push(Traffic { links, ..found }),
                    Err(unknown) => missing.push(unknown),
                }
            }
        }
        all
    }

    /// Returns the first and last snapshot of each node.
    fn pairs(&self) -> Vec<SnapshotPair<'_>> {
        let mut by_node: BTreeMap<&str, Vec<&Status>> = BTreeMap::new();
        for it in &self.snapshots {
            by_node.entry(&it.node).or_default().push(it);
        }
        by_node.into_values().filter_map(SnapshotPair::from_statuses).collect()
    }
}

/// The first and the last snapshot of a node. Without a first snapshot, counters begin at the node's start.
struct SnapshotPair<'a> {
    first: Option<&'a Status>,
    last: &'a Status,
}

impl<'a> SnapshotPair<'a> {
    fn from_statuses(mut of_node: Vec<&'a Status>) -> Option<Self> {
        of_node.sort_by(|a, b| a.uptime_s.total_cmp(&b.uptime_s));
        let last = of_node.pop()?;
        Some(Self { first: of_node.first().copied(), last })
    }

    fn first_report(&self, report: &TopicReport) -> Option<&'a TopicReport> {
        self.first?.topics.iter().find(|it| report_key(it) == report_key(report))
    }
}

/// Delays of a topic that a snapshot measured at its receiver, in milliseconds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MeasuredDelay {
    /// Name of the sender.
    pub from: String,
    /// Name of the receiver.
    pub to: String,
    /// Name of the topic at the receiver.
    pub topic: String,
    /// Messages measured.
    pub messages: u64,
    /// 99th percentile: the upper bound of its histogram bucket.
    pub p99_ms: f64,
    /// Maximum; between two snapshots, the upper bound of its histogram bucket.
    pub most_ms: f64,
    /// Maximum error of these delays; `None` until the clocks of both ends were compared.
    pub error_ms: Option<f64>,
}

impl MeasuredDelay {
    /// Whether a message was certainly later than `worst_ms`.
    pub fn exceeds(&self, worst_ms: f64) -> bool {
        // A bucket spans a quarter octave. The message was later than the lower bound of its bucket.
        self.most_ms / 2_f64.powf(0.25) - self.error_ms.unwrap_or(0.0) > worst_ms
    }
}

fn delay_of(
    node: &str,
    report: &TopicReport,
    before: Option<&TopicReport>,
) -> Option<MeasuredDelay> {
    let now = report.delay.as_ref()?;
    let before = before.and_then(|it| it.delay.as_ref());
    let buckets = rates::delays_between(before, Some(now));
    let filled = buckets.iter().filter(|(_, count)| *count > 0);
    let bound = filled.map(|(bound, _)| *bound).fold(0.0, f64::max);
    Some(MeasuredDelay {
        from: report.peer.clone(),
        to: node.to_owned(),
        topic: report.topic.clone(),
        messages: buckets.iter().map(|(_, count)| count).sum(),
        p99_ms: rates::percentile(&buckets, 0.99)?,
        // The largest delay since the start is also a bound.
        most_ms: bound.min(now.max_ms),
        error_ms: report.delay_bound_ms,
    })
}

fn report_key(report: &TopicReport) -> (&str, &str, bool) {
    (&report.topic, &report.peer, report.direction == Direction::Out)
}

fn of_report(
    node: &str,
    report: &TopicReport,
    before: Option<&TopicReport>,
    seconds: f64,
) -> Option<Traffic> {
    let messages = report.messages - before.map_or(0, |it| it.messages).min(report.messages);
    let bytes = report.bytes - before.map_or(0, |it| it.bytes).min(report.bytes);
    let (from, to) = match report.direction {
        Direction::Out => (node, &*report.peer),
        Direction::In => (&*report.peer, node),
    };
    (messages > 0).then(|| Traffic {
        from: from.to_owned(),
        to: to.to_owned(),
        via: vec![],
        topic: report.topic.clone(),
        rate_hz: messages as f64 / seconds,
        bytes: bytes / messages,
        priority: report.priority,
        lifespan: None,
        links: Links::single_radio(),
    })
}

/// Returns the topic rules with their expectations, without the actions' rules, which precede them.
fn rules(config: &Config) -> impl Iterator<Item = (&TopicRule, &TopicExpectation)> {
    let actions = config.topics.len().saturating_sub(config.expected.len());
    config.topics[actions..].iter().zip(&config.expected)
}

fn sent_traffic(
    config: &Config,
    rule: &TopicRule,
    to: &PeerConfig,
    (rate_hz, bytes): (f64, u64),
    links: Links,
) -> Traffic {
    Traffic {
        from: config.name.clone(),
        to: to.name.clone(),
        via: if to.links.is_empty() {
            to.via.first().cloned().into_iter().collect()
        } else {
            vec![]
        },
        topic: rule.pattern.as_str().to_owned(),
        rate_hz: rule.treatment.rate_hz.map_or(rate_hz, |most| rate_hz.min(most)),
        bytes,
        priority: rule.treatment.priority,
        lifespan: rule.treatment.lifespan,
        links,
    }
}

/// Returns a warning if a radio cannot carry the expected topics of the node. Peers whose links use
/// radios without a channel are ignored.
pub fn warning(config: &Config, interface: &str) -> Option<String> {
    let radios = Radios::from_files([config].into_iter()).ok()?;
    let own = config.channels.iter().position(|(name, _)| name == interface)?;
    let has_channel = |name: &String| config.channels.iter().any(|(it, _)| it == name);
    let is_known = |peer: &&PeerConfig| {
        let known =
            |it: &LinkConfig| it.interface.as_ref().map_or(config.channels.len() == 1, has_channel);
        !peer.links.is_empty() && peer.links.iter().all(known)
    };
    let known = rules(config).filter_map(|(rule, it)| Some((rule, (it.rate_hz?, it.bytes?))));
    let traffic = known.flat_map(|(rule, expected)| {
        let peers = receivers(config, rule).filter(is_known);
        let links = |peer| radios.links(config, rule, peer, &[]).ok();
        let radios = peers.filter_map(move |peer| Some((peer, links(peer)?)));
        radios
            .map(move |(peer, links)| sent_traffic(config, rule, peer, expected, links))
            .collect::<Vec<_>>()
    });
    let team = Team { traffic: traffic.collect(), radios: radios.as_slice().to_vec() };
    let load = team.loads()[own].load;
    (load >= 1.0).then(|| {
        format!(
            "the topics that this node alone sends are expected to need {:.0} % of what this radio carries; \
             `tautline plan` says what gives way, and counts those of other nodes",
            load * 100.0
        )
    })
}

fn is_measured(node: &str, pattern: &Pattern, measured: &[Traffic]) -> bool {
    measured.iter().any(|it| it.from == node && pattern.matches(&it.topic))
}

/// Returns the peers that get the topics of a rule.
fn receivers<'a>(
    config: &'a Config,
    rule: &'a TopicRule,
) -> impl Iterator<Item = &'a PeerConfig> + 'a {
    let only = &rule.treatment.links.only;
    let is_to = |it: &PeerConfig| rule.treatment.to.as_ref().is_none_or(|to| to.contains(&it.name));
    let is_offered = |it: &PeerConfig| {
        it.offer.is_empty() || it.offer.iter().any(|one| may_overlap(one, &rule.pattern))
    };
    let is_linked = move |it: &PeerConfig| {
        only.is_empty() || it.links.iter().any(|link| only.contains(&link.name))
    };
    config.peers.iter().filter(move |it| is_to(it) && is_offered(it) && is_linked(it))
}

/// Whether both patterns may match one name: `/camera/*` and `/*/image` do.
fn may_overlap(one: &Pattern, other: &Pattern) -> bool {
    let begin = |it: &'_ Pattern| it.as_str().split('*').next().unwrap_or_default().to_owned();
    let (begin_one, begin_other) = (begin(one), begin(other));
    let alike = begin_one.starts_with(&begin_other) || begin_other.starts_with(&begin_one);
    let are_patterns = !one.is_name() && !other.is_name();
    (are_patterns && alike) || one.covers(other) || other.covers(one)
}

fn missing_values_line(
    file: &RobotFile,
    expected: &TopicExpectation,
    rate: bool,
    size: bool,
) -> String {
    let what = match (rate, size) {
        (true, true) => "rate and size",
        (true, false) => "the rate",
        _ => "the size",
    };
    format!("{}: {}: {what} {UNKNOWN_RATE_OR_SIZE}", file.path, expected.pattern.as_str())
}
