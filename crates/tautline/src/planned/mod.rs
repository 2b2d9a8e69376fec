// SPDX-License-Identifier: Apache-2.0
//! Comparison of what a node measures with what its file plans: `topics.NAME.expect` and
//! `radios.NAME.channel`.
//!
//! Values are measured in a window of at least ten seconds. An assumption fails once all windows during
//! twice that time exceed it by more than the tolerance. It holds again once all windows during the same
//! time are clearly within it. A burst that is shorter than a window therefore changes nothing. This module
//! reads no clock.

mod verdict;
mod window;

use crate::config::{Channel, Config};
use crate::status::{Assumption, PlanReport};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use tautline_gateway::pattern::Pattern;
use tautline_proto::{Duration, Instant};
use verdict::{Judgement, Verdict, VerdictChange};
use window::{Growth, Window};

/// Window over which values are measured. For a topic, it is longer if fewer than [`WINDOW_MESSAGES`]
/// messages are expected in it.
const WINDOW: Duration = Duration::from_secs(10);
/// Maximum window of a topic.
const MAX_WINDOW: Duration = Duration::from_secs(100);
/// A topic's window is long enough for this many expected messages, up to [`MAX_WINDOW`].
const WINDOW_MESSAGES: f64 = 10.0;
/// Number of windows for which a value must exceed, or keep to, its assumption until the verdict changes.
const SUSTAINED_WINDOWS: u32 = 2;
/// An assumption fails above this multiple of the expected value.
const FAILS_ABOVE: f64 = 1.1;
/// A failed assumption holds again up to this multiple of the expected value.
const HOLDS_TO: f64 = 1.05;
/// Minimum number of packets in a window for which the loss is judged.
const MIN_PACKETS: u64 = 50;
/// Losses vary, so their tolerances are larger. This is the multiple of the expected loss above
/// which the assumption fails.
const LOSS_FAILS_ABOVE: f64 = 1.25;
/// Tolerance of a loss, as a fraction of the packets, in addition to the multiple.
const LOSS_TOLERANCE: f64 = 0.01;
/// Tolerance of a loss, in packets, in addition to the multiple and the fraction.
const LOSS_TOLERANCE_PACKETS: f64 = 2.0;
/// Tolerance of round trips in addition to the time of two full packets, for timers and a busy machine.
const ROUND_TRIP_TOLERANCE_MS: f64 = 20.0;
/// The bit rate of a full radio fails below this fraction of the planned bit rate.
const CARRIED_FAILS_BELOW: f64 = 0.8;
/// The bit rate of a full radio holds again at or above this fraction of the planned bit rate.
const CARRIED_HOLDS_FROM: f64 = 0.85;
/// Topics without expectations fail if they take more than this fraction of what a radio carries.
const UNPLANNED_FAILS_ABOVE: f64 = 0.05;
/// Topics without expectations are as planned again up to this fraction.
const UNPLANNED_HOLDS_TO: f64 = 0.04;
/// Size in IP bytes of the packets with which the capacity of a radio is calculated, for unplanned
/// topics and for an idle radio.
const FULL_PACKET: u32 = 1500;

/// What a plan expects of a channel, as far as one node can measure it. The planner is not part of
/// this crate, because it needs a model of the radio.
pub trait ChannelModel: fmt::Debug + Send + Sync {
    /// Returns the seconds of a round trip without queueing, and the seconds of two full packets;
    /// `None` if no delay is planned.
    fn round_trip(&self) -> Option<(f64, f64)>;

    /// Returns the bits per second that one station with full queues sends in IP packets of this size.
    fn capacity_bps(&self, ip_bytes: u32) -> f64;
}

/// A function that makes the model of a channel in the file.
pub type Planner = fn(&Channel) -> Box<dyn ChannelModel>;

/// A channel in the file, and its model if there is a planner.
#[derive(Debug)]
struct PlannedChannel {
    channel: Channel,
    model: Option<Box<dyn ChannelModel>>,
}

/// Counters of the node at one time.
#[derive(Debug, Clone, Default)]
pub(crate) struct ObservedCounters {
    /// Counters of topics, by the index of the rule and the peer's name.
    pub(crate) topics: BTreeMap<(usize, String), TopicCounts>,
    /// Counters of links.
    pub(crate) links: BTreeMap<LinkName, LinkCounts>,
    /// Counters of radios, by interface.
    pub(crate) radios: BTreeMap<String, RadioCounts>,
}

/// Counters since the start, summed over all topics of one rule to one peer.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct TopicCounts {
    /// Messages accepted for sending.
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
}

/// A link to a peer.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LinkName {
    pub(crate) peer: String,
    /// Name in the file; may be empty.
    pub(crate) link: String,
    /// Interface.
    pub(crate) radio: String,
}

/// Counters of a link since the start.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LinkCounts {
    pub(crate) acked: u64,
    /// Packets declared lost.
    pub(crate) lost: u64,
    /// Packets that were acknowledged after they had been declared lost.
    pub(crate) late: u64,
    /// The current smoothed round trip.
    pub(crate) round_trip_ms: Option<f64>,
}

/// Counters of a radio since the start.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RadioCounts {
    pub(crate) sent_bytes: u64,
    pub(crate) sent_packets: u64,
    pub(crate) received_bytes: u64,
    pub(crate) received_packets: u64,
    /// Payload bytes of topics without expectations, sent to peers with no other link.
    pub(crate) unplanned_bytes: u64,
    /// Messages that were dropped although a faster radio would have sent them in time.
    pub(crate) too_slow: u64,
    /// Whether messages are queued now.
    pub(crate) is_busy: bool,
}

/// A change of an assumption: it has failed, or holds again.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Change {
    /// The text of its notice.
    pub(crate) notice: String,
    /// Whether the assumption has failed. Otherwise, it holds again and the notice is no longer true.
    pub(crate) failed: bool,
}

/// The key of an assumption. Its order is the order of the report.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Topic(usize, Assumption),
    Radio(String, Assumption),
    Link(LinkName, Assumption),
}

#[derive(Debug, Clone, Copy)]
struct Reading {
    expected: f64,
    /// `None` if there was nothing to measure, which counts as planned.
    measured: Option<f64>,
    judgement: Judgement,
    sustained: Duration,
}

impl Reading {
    /// Returns the reading of a window in which nothing contradicts the plan.
    fn as_planned(expected: f64, length: Duration) -> Self {
        let sustained = length * SUSTAINED_WINDOWS;
        Self { expected, measured: None, judgement: Judgement::Holds, sustained }
    }

    /// Returns the reading of a measured value, judged by its limits.
    fn from_value(expected: f64, measured: f64, judgement: Judgement, length: Duration) -> Self {
        let sustained = length * SUSTAINED_WINDOWS;
        Self { expected, measured: Some(measured), judgement, sustained }
    }
}

#[derive(Debug, Default)]
struct AssumptionState {
    expected: f64,
    measured: Option<f64>,
    /// Whether there was a reading in this second.
    is_read: bool,
    verdict: Verdict,
    notice: Option<String>,
}

/// What the file says about the topics of a rule.
#[derive(Debug)]
struct PlannedTopic {
    pattern: Pattern,
    rate_hz: Option<f64>,
    bytes: Option<u64>,
}

impl PlannedTopic {
    fn is_planned(&self) -> bool {
        self.rate_hz.is_some() || self.bytes.is_some()
    }

    fn window(&self) -> Duration {
        let needed = self.rate_hz.map_or(0.0, |hz| WINDOW_MESSAGES / hz);
        Duration::from_secs_f64(needed.clamp(WINDOW.as_secs_f64(), MAX_WINDOW.as_secs_f64()))
    }
}

#[derive(Debug)]
struct Radio {
    window: Window<6>,
    /// Time since which messages have been queued without interruption.
    busy_since: Option<Instant>,
}

impl Default for Radio {
    fn default() -> Self {
        Self { window: Window::new(WINDOW), busy_since: None }
    }
}

/// Compares what is measured with what the file plans.
#[derive(Debug, Default)]
pub(crate) struct PlanComparison {
    topics: Vec<PlannedTopic>,
    channels: BTreeMap<String, PlannedChannel>,
    /// The index of the rule of each local topic seen so far; `None` if no rule plans it.
    rules: HashMap<String, Option<usize>>,
    by_rule: BTreeMap<(usize, String), Window<2>>,
    by_link: BTreeMap<LinkName, Window<3>>,
    by_radio: BTreeMap<String, Radio>,
    rows: BTreeMap<Key, AssumptionState>,
}

impl PlanComparison {
    /// Starts the comparison with what the file plans. Without a planner, nothing is expected of
    /// bit rates and round trips.
    pub(crate) fn new(config: &Config, planner: Option<Planner>) -> Self {
        // The rules of actions precede those of topics, and have no expectations.
        let actions = config.topics.len().saturating_sub(config.expected.len());
        let of_actions = config.topics[..actions].iter().map(|rule| PlannedTopic {
            pattern: rule.pattern.clone(),
            rate_hz: None,
            bytes: None,
        });
        let rules = config.topics[actions..].iter().zip(&config.expected);
        let of_topics = rules.map(|(rule, expected)| {
            let limit = rule.treatment.rate_hz.unwrap_or(f64::INFINITY);
            PlannedTopic {
                pattern: rule.pattern.clone(),
                rate_hz: expected.rate_hz.map(|hz| hz.min(limit)),
                bytes: expected.bytes,
            }
        });
        let channels = config.channels.iter().map(|(name, channel)| {
            let model = planner.map(|planner| planner(channel));
            (name.clone(), PlannedChannel { channel: channel.clone(), model })
        });
        Self {
            topics: of_actions.chain(of_topics).collect(),
            channels: channels.collect(),
            ..Self::default()
        }
    }

    /// Whether the file plans nothing, so that there is nothing to compare.
    pub(crate) fn is_empty(&self) -> bool {
        self.channels.is_empty() && !self.topics.iter().any(PlannedTopic::is_planned)
    }

    /// Finds and remembers the rules of local topics for [`PlanComparison::rule_of`]. Topics that
    /// are no longer listed are forgotten, because local nodes choose the names.
    pub(crate) fn find_rules<'a>(&mut self, topics: impl Iterator<Item = &'a String>) {
        let mut known = std::mem::take(&mut self.rules);
        self.rules = topics
            .map(|topic| {
                let known = known.remove_entry(topic);
                known.unwrap_or_else(|| (topic.clone(), self.find_rule(topic)))
            })
            .collect();
    }

    fn find_rule(&self, topic: &str) -> Option<usize> {
        let number = self.topics.iter().position(|it| it.pattern.matches(topic))?;
        self.topics[number].is_planned().then_some(number)
    }

    /// Returns the index of the rule of a local topic, if the rule plans it.
    pub(crate) fn rule_of(&self, topic: &str) -> Option<usize> {
        self.rules.get(topic).copied().flatten()
    }

    /// Whether the file says what channel this radio uses.
    pub(crate) fn has_channel(&self, interface: &str) -> bool {
        self.channels.contains_key(interface)
    }

    /// Evaluates the counters, and returns the assumptions that have changed; to be called once per second.
    pub(crate) fn follow(&mut self, now: Instant, observed: &ObservedCounters) -> Vec<Change> {
        self.by_rule.retain(|key, _| observed.topics.contains_key(key));
        self.by_link.retain(|key, _| observed.links.contains_key(key));
        self.by_radio.retain(|key, _| observed.radios.contains_key(key));
        let mut readings = self.topic_readings(now, observed);
        readings.extend(self.link_readings(now, observed));
        readings.extend(self.radio_readings(now, observed));
        let mut changes = self.forget(observed);
        for row in self.rows.values_mut() {
            row.is_read = false;
        }
        for (key, reading) in readings {
            changes.extend(self.judge(now, key, reading));
        }
        for row in self.rows.values_mut().filter(|it| !it.is_read) {
            row.verdict.interrupt();
        }
        changes
    }

    /// Returns all assumptions that are compared. Failed ones come first.
    pub(crate) fn reports(&self, now: Instant) -> Vec<PlanReport> {
        let mut all: Vec<PlanReport> =
            self.rows.iter().map(|(key, row)| self.report(now, key, row)).collect();
        all.sort_by_key(|it| it.failed_for_s.is_none());
        all
    }

    fn topic_readings(&mut self, now: Instant, observed: &ObservedCounters) -> Vec<(Key, Reading)> {
        let mut grown: BTreeMap<usize, Vec<Option<Growth<2>>>> = BTreeMap::new();
        for (key, counts) in &observed.topics {
            let length = self.topics[key.0].window();
            let window = self.by_rule.entry(key.clone()).or_insert_with(|| Window::new(length));
            let growth = window.add(now, [counts.messages, counts.bytes]);
            grown.entry(key.0).or_default().push(growth);
        }
        let mut readings = Vec::new();
        for (number, topic) in self.topics.iter().enumerate() {
            let peer_growths = grown.remove(&number).unwrap_or_default();
            let is_sent = !peer_growths.is_empty();
            let peer_growths: Vec<Growth<2>> = peer_growths.into_iter().flatten().collect();
            // Until the windows of new topics are full, there is no reading.
            if !is_sent || !peer_growths.is_empty() {
                readings.extend(rate(number, topic, &peer_growths));
                readings.extend(size(number, topic, &peer_growths));
            }
        }
        readings
    }

    fn link_readings(&mut self, now: Instant, observed: &ObservedCounters) -> Vec<(Key, Reading)> {
        let mut readings = Vec::new();
        for (name, counts) in &observed.links {
            let Some(PlannedChannel { channel, model }) = self.channels.get(&name.radio) else {
                continue;
            };
            let window = self.by_link.entry(name.clone()).or_insert_with(|| Window::new(WINDOW));
            let grown = window.add(now, [counts.acked, counts.lost, counts.late]);
            let loss = grown.and_then(|it| loss(channel, it.counts));
            readings.extend(loss.map(|it| (Key::Link(name.clone(), Assumption::Loss), it)));
            let measured = counts.round_trip_ms.zip(model.as_deref());
            let round_trip = measured.and_then(|(ms, model)| round_trip(model, ms));
            readings
                .extend(round_trip.map(|it| (Key::Link(name.clone(), Assumption::RoundTrip), it)));
        }
        readings
    }

    fn radio_readings(&mut self, now: Instant, observed: &ObservedCounters) -> Vec<(Key, Reading)> {
        let plans_topics = self.topics.iter().any(PlannedTopic::is_planned);
        let mut readings = Vec::new();
        for (name, counts) in &observed.radios {
            let Some(PlannedChannel { channel, model }) = self.channels.get(name) else { continue };
            let radio = self.by_radio.entry(name.clone()).or_default();
            if !counts.is_busy {
                radio.busy_since = None;
            }
            let since = counts.is_busy.then(|| *radio.busy_since.get_or_insert(now));
            let was_busy = since.is_some_and(|since| now.since(since) >= radio.window.length());
            let [received_bytes, received_packets] = match channel.is_shared() {
                true => [counts.received_bytes, counts.received_packets],
                false => [0, 0],
            };
            let grown = radio.window.add(
                now,
                [
                    counts.sent_bytes,
                    counts.sent_packets,
                    received_bytes,
                    received_packets,
                    counts.too_slow,
                    counts.unplanned_bytes,
                ],
            );
            let (Some(grown), Some(model)) = (grown, model.as_deref()) else { continue };
            let key = |assumption| Key::Radio(name.clone(), assumption);
            readings.push((key(Assumption::BitRate), reading_of_radio(model, &grown, was_busy)));
            if plans_topics {
                readings.push((key(Assumption::Unplanned), unplanned(model, &grown)));
            }
        }
        readings
    }

    /// Removes the rows of links and radios that are gone.
    fn forget(&mut self, observed: &ObservedCounters) -> Vec<Change> {
        let mut changes = Vec::new();
        self.rows.retain(|key, row| {
            let stays = match key {
                Key::Topic(..) => true,
                Key::Radio(name, _) => observed.radios.contains_key(name),
                Key::Link(name, _) => observed.links.contains_key(name),
            };
            if !stays {
                changes.extend(row.notice.take().map(|notice| Change { notice, failed: false }));
            }
            stays
        });
        changes
    }

    fn judge(&mut self, now: Instant, key: Key, reading: Reading) -> Option<Change> {
        let row = self.rows.entry(key.clone()).or_default();
        row.is_read = true;
        row.expected = reading.expected;
        // While the assumption fails, the last value stays shown if there is no new one.
        let last = row.measured.filter(|_| row.verdict.failed_at().is_some());
        row.measured = reading.measured.or(last);
        let turn = row.verdict.follow(now, reading.judgement, reading.sustained)?;
        let failed = turn == VerdictChange::Failed;
        let notice = match failed {
            false => self.rows.get_mut(&key)?.notice.take()?,
            true => {
                let report = self.report(now, &key, &self.rows[&key]);
                let notice = format!("not as planned: {} ({})", report.in_words(), report.key);
                self.rows.get_mut(&key)?.notice = Some(notice.clone());
                notice
            }
        };
        Some(Change { notice, failed })
    }

    fn report(&self, now: Instant, key: &Key, row: &AssumptionState) -> PlanReport {
        let channel = |radio: &str| format!("radios.{radio}.channel");
        let (subject, assumption, key) = match key {
            Key::Topic(number, assumption) => {
                let pattern = self.topics[*number].pattern.as_str();
                let word = if *assumption == Assumption::Size { "size" } else { "rate" };
                (pattern.to_owned(), *assumption, format!("topics.{pattern}.expect.{word}"))
            }
            Key::Radio(name, assumption) => (name.clone(), *assumption, channel(name)),
            Key::Link(name, assumption) => {
                let LinkName { peer, link, radio } = name;
                let link = if link.is_empty() { radio } else { link };
                (format!("{link} to {peer}"), *assumption, channel(radio))
            }
        };
        let failed_at = row.verdict.failed_at();
        PlanReport {
            subject,
            assumption,
            expected: row.expected,
            measured: row.measured,
            failed_for_s: failed_at.map(|at| now.since(at).as_secs_f64()),
            key,
        }
    }
}

/// Returns the reading of a rule's message rate, to the peer that gets the most messages.
fn rate(number: usize, topic: &PlannedTopic, peer_growths: &[Growth<2>]) -> Option<(Key, Reading)> {
    let (expected, length) = (topic.rate_hz?, topic.window());
    let hz = |it: &Growth<2>| it.counts[0] as f64 / it.seconds;
    let most = peer_growths.iter().max_by(|a, b| hz(a).total_cmp(&hz(b)));
    let reading = match most {
        None => Reading::as_planned(expected, length),
        Some(most) => {
            // The number of messages in a window may differ from the expected one by one message.
            let in_window = expected * most.seconds;
            let (fails_above, holds_to) =
                (in_window * FAILS_ABOVE + 1.0, in_window * HOLDS_TO + 1.0);
            let judgement = Judgement::with_limits(most.counts[0] as f64, fails_above, holds_to);
            Reading::from_value(expected, hz(most), judgement, length)
        }
    };
    Some((Key::Topic(number, Assumption::Rate), reading))
}

/// Returns the reading of a rule's mean message size, over all peers.
fn size(number: usize, topic: &PlannedTopic, peer_growths: &[Growth<2>]) -> Option<(Key, Reading)> {
    let (expected, length) = (topic.bytes? as f64, topic.window());
    let [messages, bytes] =
        [0, 1].map(|it| peer_growths.iter().map(|of| of.counts[it]).sum::<u64>());
    let reading = match messages {
        0 => Reading::as_planned(expected, length),
        messages => {
            let mean = bytes as f64 / messages as f64;
            let judgement =
                Judgement::with_limits(mean, expected * FAILS_ABOVE, expected * HOLDS_TO);
            Reading::from_value(expected, mean, judgement, length)
        }
    };
    Some((Key::Topic(number, Assumption::Size), reading))
}

/// Returns the reading of the loss among the packets whose fate became known in a window; `None` if
/// there are too few.
fn loss(channel: &Channel, [acked, lost, late]: [u64; 3]) -> Option<Reading> {
    let lost = lost.saturating_sub(late);
    let packets = acked + lost;
    if packets < MIN_PACKETS {
        return None;
    }
    let (expected, count) = (channel.loss(), packets as f64);
    let fails_above =
        count * (expected * LOSS_FAILS_ABOVE + LOSS_TOLERANCE) + LOSS_TOLERANCE_PACKETS;
    let holds_to = count * (expected + LOSS_TOLERANCE / 2.0) + LOSS_TOLERANCE_PACKETS;
    let judgement = Judgement::with_limits(lost as f64, fails_above, holds_to);
    Some(Reading::from_value(expected, lost as f64 / count, judgement, WINDOW))
}

fn round_trip(model: &dyn ChannelModel, measured_ms: f64) -> Option<Reading> {
    let (expected, packets) = model.round_trip()?;
    let [expected_ms, packets_ms] = [expected, packets].map(|seconds| seconds * 1e3);
    let fails_above = expected_ms * FAILS_ABOVE + packets_ms + ROUND_TRIP_TOLERANCE_MS;
    let holds_to = expected_ms * HOLDS_TO + packets_ms + ROUND_TRIP_TOLERANCE_MS / 2.0;
    let judgement = Judgement::with_limits(measured_ms, fails_above, holds_to);
    Some(Reading::from_value(expected_ms, measured_ms, judgement, WINDOW))
}

/// Returns the reading of a radio's bit rate. Only a full radio shows what it can carry.
fn reading_of_radio(model: &dyn ChannelModel, grown: &Growth<6>, was_busy: bool) -> Reading {
    let [sent_bytes, sent_packets, received_bytes, received_packets, too_slow, _] = grown.counts;
    let (bytes, packets) = (sent_bytes + received_bytes, sent_packets + received_packets);
    if !was_busy || too_slow == 0 || packets == 0 {
        return Reading::as_planned(model.capacity_bps(FULL_PACKET), WINDOW);
    }
    let expected = model.capacity_bps((bytes / packets).max(1) as u32);
    let bps = bytes as f64 * 8.0 / grown.seconds;
    let limit = |fraction: f64| -expected * fraction;
    let judgement =
        Judgement::with_limits(-bps, limit(CARRIED_FAILS_BELOW), limit(CARRIED_HOLDS_FROM));
    Reading::from_value(expected, bps, judgement, WINDOW)
}

fn unplanned(model: &dyn ChannelModel, grown: &Growth<6>) -> Reading {
    let [.., bytes] = grown.counts;
    let (bps, capacity) = (bytes as f64 * 8.0 / grown.seconds, model.capacity_bps(FULL_PACKET));
    let [fails_above, holds_to] =
        [UNPLANNED_FAILS_ABOVE, UNPLANNED_HOLDS_TO].map(|it| it * capacity);
    Reading::from_value(0.0, bps, Judgement::with_limits(bps, fails_above, holds_to), WINDOW)
}

#[cfg(test)]
mod tests;
