// SPDX-License-Identifier: Apache-2.0
//! Compares what subscribers and clients saw across Tautline with what they saw within one ROS graph.
//! `docs/reference/parity.md` lists the differences that are allowed.

use super::record::{Event, Message, Record, Run};
use super::situation::{How, KINDS_WITHOUT_HEADER, Publisher, Rule, Situation, Step, Subscriber};
use crate::setup::ros::Ros;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Lifespan of the topics and publishers that have a lifespan, seconds.
const LIFESPAN_S: f64 = 1.0;
/// Time that a busy subscriber may take to read a message that arrived in time, seconds.
const READING_S: f64 = 0.8;
/// Number of messages of a stream of one second that a topic may carry with `rate: 2Hz`, including one
/// at each end.
const RATE_COUNT: usize = 4;
/// Smallest number of messages in a best-effort burst of which one message has to arrive.
const BEST_EFFORT_BURST: usize = 3;
/// Time that a call may take longer than within one ROS graph, seconds.
const CALL_SLACK_S: f64 = 2.0;

/// A difference that is not allowed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Fault {
    /// Kind, in a word or two.
    pub kind: &'static str,
    /// Who saw what.
    pub detail: String,
}

/// Returns all faults of a record.
pub fn faults(record: &Record) -> Vec<Fault> {
    let mut faults: Vec<Fault> = record
        .failed
        .iter()
        .map(|(step, why)| Fault { kind: "not connected", detail: format!("step {step}: {why}") })
        .collect();
    for (_, subscriber) in record.situation.subscribers() {
        for publisher in record.tautline.sources(&subscriber.id) {
            if !record.situation.publishers().any(|(_, it)| it.id == publisher) {
                let detail = format!("{} got messages of {publisher}", subscriber.id);
                faults.push(Fault { kind: "unknown publisher", detail });
            }
        }
        for (_, publisher) in record.situation.publishers() {
            let pair = Pair { record, publisher, subscriber };
            faults.extend(pair.faults());
        }
    }
    faults.extend(call_faults(record));
    faults.extend(goal_faults(record));
    faults
}

/// Returns the number of messages that have to arrive across Tautline and have not.
pub fn awaited_messages(record: &Record) -> usize {
    let of_subscriber = |(_, subscriber)| {
        let missing =
            |(_, publisher)| Pair { record, publisher, subscriber }.missing_messages().len();
        record.situation.publishers().map(missing).sum::<usize>()
    };
    record.situation.subscribers().map(of_subscriber).sum()
}

/// A publisher and a subscriber.
struct Pair<'a> {
    record: &'a Record,
    publisher: &'a Publisher,
    subscriber: &'a Subscriber,
}

impl Pair<'_> {
    fn situation(&self) -> &Situation {
        &self.record.situation
    }

    fn step_of_joining(&self) -> usize {
        let mut all = self.situation().subscribers();
        all.find(|(_, it)| it.id == self.subscriber.id).map_or(0, |(at, _)| at)
    }

    /// Whether the subscriber takes kept messages of the publisher.
    fn keeps(&self) -> bool {
        let mut sharing = self.situation().publishers();
        sharing.any(|(_, it)| it.latched && self.shares_latch(it))
            && (self.situation().team.far == Ros::One || self.subscriber.latched)
    }

    /// Whether `other` is the pair's publisher or shares its latch: rospy has one latch for a topic and
    /// a node.
    fn shares_latch(&self, other: &Publisher) -> bool {
        let place = |it: &Publisher| (it.topic, it.node);
        other.id == self.publisher.id
            || self.situation().team.near == Ros::One && place(other) == place(self.publisher)
    }

    /// Whether the far computer may hold a kept message: its publisher keeps it, or the subscriber
    /// joined before the far computer could know that the publisher no longer keeps it.
    fn may_be_kept(&self, n: u32) -> bool {
        let end =
            self.step_of_overwriting(n).min(self.situation().end_of_publisher(self.publisher));
        let known = self.record.calm.iter().find(|calm| **calm >= end);
        self.keeps() && known.is_none_or(|known| self.step_of_joining() <= *known)
    }

    /// Whether every message of the publisher must reach the subscriber.
    fn is_reliable(&self) -> bool {
        self.publisher.reliable && self.subscriber.reliable
    }

    /// Returns the messages that the subscriber may get, with their steps: the messages that it got in
    /// one ROS graph. There, a ROS 1 subscriber may take the place of a ROS 2 subscriber, which gets
    /// kept messages only if it asks for them.
    fn allowed(&self) -> Vec<(usize, Message)> {
        let got = self.record.plain.received_messages(&self.subscriber.id, &self.publisher.id);
        let sent = self.record.plain.sent_messages(&self.publisher.id);
        let is_mixed =
            self.situation().team.near == Ros::One && self.situation().team.far == Ros::Two;
        let joined = self.step_of_joining();
        let with_step = got.iter().filter_map(|message| {
            let (step, _) = sent.iter().find(|(_, it)| it.n == message.n)?;
            Some((*step, *message))
        });
        with_step.filter(|(step, _)| !is_mixed || self.keeps() || *step > joined).collect()
    }

    fn faults(&self) -> Vec<Fault> {
        let got = self.record.tautline.received_messages(&self.subscriber.id, &self.publisher.id);
        let numbers: Vec<u32> = got.iter().map(|message| message.n).collect();
        let sent = self.record.tautline.sent_messages(&self.publisher.id);
        let allowed: BTreeSet<u32> = self.allowed().iter().map(|(_, it)| it.n).collect();
        let seen: BTreeSet<u32> = numbers.iter().copied().collect();
        let mut faults = Vec::new();
        let mut fault = |kind, which: Vec<u32>| {
            if !which.is_empty() {
                let (subscriber, publisher) = (&self.subscriber.id, &self.publisher.id);
                let topic = &self.situation().topics[self.publisher.topic];
                let detail = format!("{subscriber} of {publisher}: {which:?} ({})", topic.name);
                faults.push(Fault { kind, detail });
            }
        };
        let twice = |n: &u32| numbers.iter().filter(|it| *it == n).count() > 1;
        fault("twice", seen.iter().copied().filter(twice).collect());
        let first_times = first_times(&numbers);
        let behind = first_times.windows(2).filter(|pair| pair[0] > pair[1]).map(|pair| pair[1]);
        fault("out of order", behind.collect());
        let origin = |n: u32| sent.iter().find(|(_, it)| it.n == n).map(|(_, it)| it);
        let (joined, connects) =
            (self.step_of_joining(), self.situation().connects(self.publisher, self.subscriber));
        let is_earlier = |n: &u32| sent.iter().any(|(step, it)| it.n == *n && *step < joined);
        let others = seen.difference(&allowed).copied();
        let (earlier, live): (Vec<u32>, Vec<u32>) = others.partition(is_earlier);
        fault("stale", earlier.into_iter().filter(|n| !self.may_be_kept(*n)).collect());
        // In one graph, a message may have been lost.
        fault("not offered", if connects { Vec::new() } else { live });
        let is_changed = |it: &&Message| origin(it.n).is_none_or(|origin| origin.sum != it.sum);
        fault("changed", got.iter().filter(is_changed).map(|it| it.n).collect());
        if self.has_lifespan() && self.has_known_ages() {
            let is_old = |it: &&Message| {
                origin(it.n).is_some_and(|sent| it.t - sent.t > LIFESPAN_S + READING_S)
            };
            fault("expired", got.iter().filter(is_old).map(|it| it.n).collect());
        }
        fault("beyond its rate", self.beyond_rate(&sent, &seen));
        fault("missing", self.missing_messages());
        faults
    }

    fn rule(&self) -> Rule {
        self.situation().topics[self.publisher.topic].rule
    }

    fn has_lifespan(&self) -> bool {
        self.rule() == Rule::Lifespan || self.publisher.lifespan_ms.is_some()
    }

    /// Whether Tautline knows when each message was published: ROS 1 says so only in a header.
    fn has_known_ages(&self) -> bool {
        let kind = self.situation().topics[self.publisher.topic].kind;
        self.situation().team.near == Ros::Two || !KINDS_WITHOUT_HEADER.contains(&kind)
    }

    /// Returns the messages of a stream if more of them arrived than the rate of the topic allows.
    fn beyond_rate(&self, sent: &[(usize, Message)], seen: &BTreeSet<u32>) -> Vec<u32> {
        if self.rule() != Rule::Rate {
            return Vec::new();
        }
        let mut by_step: BTreeMap<usize, Vec<u32>> = BTreeMap::new();
        for (step, message) in sent.iter().filter(|(_, it)| seen.contains(&it.n)) {
            by_step.entry(*step).or_default().push(message.n);
        }
        by_step.into_values().find(|stream| stream.len() > RATE_COUNT).unwrap_or_default()
    }

    /// Returns the messages that have to arrive and have not.
    fn missing_messages(&self) -> Vec<u32> {
        let got = self.record.tautline.received_messages(&self.subscriber.id, &self.publisher.id);
        let seen: BTreeSet<u32> = got.iter().map(|it| it.n).collect();
        if !self.situation().connects(self.publisher, self.subscriber) {
            return Vec::new();
        }
        let allowed = self.allowed();
        let is_missing =
            |(step, it): &(usize, Message)| !seen.contains(&it.n) && self.must_arrive(*step, it.n);
        let missing: Vec<(usize, u32)> =
            allowed.iter().filter(|it| is_missing(it)).map(|(step, it)| (*step, it.n)).collect();
        if self.is_reliable() {
            return missing.into_iter().map(|(_, n)| n).collect();
        }
        // Best effort: a burst may lose some, not all.
        let lost_all = |step: usize| {
            let burst: Vec<u32> =
                allowed.iter().filter(|(of, _)| *of == step).map(|(_, it)| it.n).collect();
            burst.len() >= BEST_EFFORT_BURST && burst.iter().all(|n| !seen.contains(n))
        };
        missing.into_iter().filter(|(step, _)| lost_all(*step)).map(|(_, n)| n).collect()
    }

    /// Whether a message has to arrive: it was published while everything was connected, or it was kept
    /// for the subscriber at a moment when everything was connected.
    fn must_arrive(&self, sent: usize, n: u32) -> bool {
        match self.rule() {
            // Which messages of a stream pass is not determined, and the last message is kept.
            Rule::Rate => self.is_last(n) && !self.has_lifespan() && self.kept_when_calm(sent, n),
            _ if self.has_lifespan() => {
                // No volatile writer reaches the subscriber.
                let is_found_late = self.situation().team.far == Ros::Two
                    && self.subscriber.latched
                    && self.situation().latches_late(self.publisher);
                self.published_when_calm(sent) && !is_found_late
            }
            _ => {
                let may_be_asked = self.has_whole_history() || self.is_last(n);
                self.published_when_calm(sent) || may_be_asked && self.kept_when_calm(sent, n)
            }
        }
    }

    /// Whether a late joiner gets more than the last message: when Tautline learns the depth, it does not
    /// send large messages again.
    fn has_whole_history(&self) -> bool {
        self.situation().topics[self.publisher.topic].size == 0
    }

    fn is_last(&self, n: u32) -> bool {
        self.record.plain.sent_messages(&self.publisher.id).last().is_some_and(|(_, it)| it.n == n)
    }

    fn published_when_calm(&self, sent: usize) -> bool {
        self.step_of_joining() < sent && is_calm(self.record, sent)
    }

    fn kept_when_calm(&self, sent: usize, n: u32) -> bool {
        if !self.keeps() || !self.is_reliable() {
            return false;
        }
        let situation = self.situation();
        let begin = sent.max(self.step_of_joining());
        let overwritten = self.step_of_overwriting(n);
        let end = situation
            .end_of_publisher(self.publisher)
            .min(situation.end_of_subscriber(self.subscriber))
            .min(overwritten);
        self.record.calm.iter().any(|calm| (begin..end).contains(calm))
    }

    /// Returns the step at which a kept message is overwritten.
    fn step_of_overwriting(&self, n: u32) -> usize {
        let sharing = self.situation().publishers().filter(|(_, it)| self.shares_latch(it));
        let mut all: Vec<(usize, f64, bool)> = sharing
            .flat_map(|(_, it)| {
                let own = it.id == self.publisher.id;
                let sent = self.record.plain.sent_messages(&it.id);
                sent.into_iter()
                    .map(move |(step, message)| (step, message.t, own && message.n == n))
            })
            .collect();
        all.sort_by(|one, other| one.1.total_cmp(&other.1));
        let position = all.iter().position(|(.., is_it)| *is_it).unwrap_or(0);
        let depth = if self.situation().team.near == Ros::One { 1 } else { self.publisher.depth };
        let after = all.get(position + depth as usize);
        after.map_or(usize::MAX, |(step, ..)| *step)
    }
}

/// Returns the numbers without repetitions.
fn first_times(numbers: &[u32]) -> Vec<u32> {
    let mut seen = BTreeSet::new();
    numbers.iter().copied().filter(|n| seen.insert(*n)).collect()
}

/// Whether a step is between two moments when everything was connected, with nothing but messages and
/// calls between them.
fn is_calm(record: &Record, step: usize) -> bool {
    let steps = &record.situation.steps;
    let quiet = |step: &Step| {
        matches!(
            step,
            Step::Publish { .. }
                | Step::Call { .. }
                | Step::Goal { .. }
                | Step::Wait { .. }
                | Step::Daemon { how: How::Reload, .. }
        )
    };
    let before = steps[..step].iter().rposition(|step| !quiet(step));
    let after = steps[step..].iter().position(|step| !quiet(step)).map(|after| step + after);
    let calm = |at: Option<usize>| at.is_some_and(|at| record.calm.contains(&at));
    calm(before) && calm(after)
}

/// Text or error of an answer, and its time.
type Answer<'a> = (Option<&'a str>, Option<&'a str>, f64);

fn answers<'a>(run: &'a Run, id: &str) -> Vec<Answer<'a>> {
    let answer = |(_, event): &'a (usize, Event)| match event {
        Event::Answer { call, text, error, t } if call == id => {
            Some((text.as_deref(), error.as_deref(), *t))
        }
        _ => None,
    };
    run.events.iter().filter_map(answer).collect()
}

fn call_faults(record: &Record) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (at, step) in record.situation.steps.iter().enumerate() {
        let Step::Call { id, .. } = step else { continue };
        let mut fault = |kind, detail: String| {
            faults.push(Fault { kind, detail: format!("{id} at step {at}: {detail}") });
        };
        let [plain, across] = [&record.plain, &record.tautline].map(|run| answers(run, id));
        let served = |(_, event): &&(usize, Event)| matches!(event, Event::Served { call, .. } if call == id);
        let times = record.tautline.events.iter().filter(served).count();
        if times > 1 {
            fault("executed twice", format!("{times} times"));
        }
        if across.len() > 1 {
            fault("answered twice", format!("{across:?}"));
        }
        let (Some(expected), answer) = (plain.first(), across.first()) else { continue };
        match answer {
            Some((Some(text), ..)) if !text.ends_with(&format!(" {id}")) => {
                fault("wrong answer", (*text).to_owned());
            }
            // Within one graph, the answer may have been lost.
            Some((Some(text), ..))
                if is_calm(record, at) && expected.0.is_some_and(|expected| expected != *text) =>
            {
                fault("wrong server", format!("{text} instead of {expected:?}"));
            }
            // Both runs give the order at the same time.
            Some((Some(_), _, t)) if is_calm(record, at) && t - expected.2 > CALL_SLACK_S => {
                fault("slow call", format!("{:.1} s later than in one graph", t - expected.2));
            }
            Some((None, error, _)) if is_calm(record, at) && expected.0.is_some() => {
                fault("refused call", error.unwrap_or_default().to_owned());
            }
            None if is_calm(record, at) => fault("no answer", String::new()),
            _ => {}
        }
    }
    faults
}

/// How a goal ended: status, entries of the result, error.
type Ending = (Option<i8>, Option<u32>, Option<String>);

fn endings_of_call(run: &Run, id: &str) -> Vec<Ending> {
    let ending = |(_, event): &(usize, Event)| match event {
        Event::Result { goal, status, length, error, .. } if goal == id => {
            Some((*status, *length, error.clone()))
        }
        _ => None,
    };
    run.events.iter().filter_map(ending).collect()
}

fn goal_faults(record: &Record) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (at, step) in record.situation.steps.iter().enumerate() {
        let Step::Goal { id, order, cancel_after, .. } = step else { continue };
        let mut fault = |kind, detail: String| {
            faults.push(Fault { kind, detail: format!("{id} at step {at}: {detail}") });
        };
        let executed = |(_, event): &&(usize, Event)| matches!(event, Event::Executed { order: of, .. } if of == order);
        let times = record.tautline.events.iter().filter(executed).count();
        if times > 1 {
            fault("executed twice", format!("{times} times"));
        }
        let feedback = |(_, event): &(usize, Event)| match event {
            Event::Feedback { goal, length, .. } if goal == id => Some(*length),
            _ => None,
        };
        let lengths: Vec<u32> = record.tautline.events.iter().filter_map(feedback).collect();
        if lengths.windows(2).any(|pair| pair[0] >= pair[1]) {
            fault("feedback out of order", format!("{lengths:?}"));
        }
        let [plain, across] = [&record.plain, &record.tautline].map(|run| endings_of_call(run, id));
        if across.len() > 1 {
            fault("ended twice", format!("{across:?}"));
        }
        let ended = |ending: &&Ending| ending.0.is_some();
        let expected = plain.first().filter(ended).filter(|_| is_calm(record, at));
        let Some(expected) = expected else { continue };
        let Some(ending) = across.first() else {
            fault("no result", String::new());
            continue;
        };
        // A cancellation must take effect, but when it does is not determined.
        let length_differs = cancel_after.is_none() && ending.1 != expected.1;
        if ending.0 != expected.0 || length_differs {
            fault("other result", format!("{ending:?} instead of {expected:?}"));
        }
    }
    faults
}

#[cfg(test)]
mod tests;
