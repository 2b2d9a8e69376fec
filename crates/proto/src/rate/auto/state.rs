// SPDX-License-Identifier: Apache-2.0
//! What the controller does, and the rules by which it decides. The first rule of its state that applies
//! to a sample gives the verdict.

use super::Auto;
use super::compete::Compete;
use super::dip::{Dip, DipResult};
use super::external::Drain;
use super::losses::Ratio;
use super::probe::{Probe, ProbeFinding};
use super::sample::{GROWING_RATIO, Sample};
use crate::time::{Duration, Instant, serialization_time};

/// After losses in a full queue, or marks, the new rate is this part of the rate at which packets arrived.
const LOSS_GAIN: f64 = 0.97;

/// A queueing delay of at least this many times the mean shows a queue.
const QUEUE_FACTOR: u32 = 2;
/// The path is clear while the delay is below this part of a packet's serialization time, or below the jitter
/// of schedulers. If the delay varies by less than that, a queue shows at once.
const CLEAR_PART: f64 = 0.2;
const SCHEDULING_JITTER: Duration = Duration::from_micros(500);
/// Factor of the rate in answer to marks by a queue that others fill (RFC 8511, section 3).
const MARKED_GAIN: f64 = 0.8;

/// What the controller does.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum State {
    /// Nothing is known: rate and window double until packets are queued.
    /// `delivered`: the delivery rate of the last round in bits per second, zero before the first.
    Startup { window: usize, delivered: f64 },
    /// The estimate follows the delivery rate and grows, and the pacing rate corrects the queue.
    Track,
    /// The rate is reduced for a moment, to measure the loss of the uncongested path.
    Dip(Dip),
    /// The rate is raised for a moment, to find out whether our own queue causes the delay.
    Probe(Probe),
    /// Nothing is sent for a moment, to measure the delay that others cause.
    Drain(Drain),
    /// Others fill the queue: the rate grows and falls as that of a TCP.
    Compete(Compete),
}

/// A decision.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Verdict {
    /// The estimate stays as it is.
    Hold,
    /// The window doubles, and the estimate rises to `rate`.
    Double { rate: f64 },
    /// The state becomes Track, with this estimate in bits per second.
    Track { estimate: f64 },
    /// The estimate moves towards this rate by this part of the difference.
    /// `is_unusual`: the queue is longer than jitter explains.
    Follow { rate: f64, gain: f64, is_unusual: bool },
    /// The estimate grows up to twice `capacity`, by more with each round in a row that finds the queue
    /// empty. `is_clear`: no queue is near.
    Grow { capacity: f64, is_empty: bool, is_clear: bool },
    /// The window of a TCP grows, at this round trip. `arrived`: the rate at which packets arrive.
    /// The window begins with this rate.
    Compete { arrived: f64, rtt: Duration },
    /// A queue overflowed. The estimate falls to `rate`, and `rate` limits it for a while.
    Cut { rate: f64 },
    /// A queue that others fill overflowed. Packets arrived at the rate `delivered`.
    BackOff { delivered: f64 },
    /// A dip begins. It tests these losses at this estimate.
    Dip { estimate: f64, before: Ratio },
    /// A probe begins.
    Probe,
    /// A drain begins. Our packets leave the path within `time`.
    Drain { time: Duration },
}

/// The result of a test that ended with the sample.
#[derive(Debug)]
pub(super) enum TestResult {
    Dip(DipResult),
    Probe(ProbeFinding),
}

/// The input of a rule.
pub(super) struct RuleInput<'a> {
    pub(super) auto: &'a Auto,
    pub(super) now: Instant,
    pub(super) sample: &'a Sample,
    /// Target queue in bytes.
    pub(super) target: f64,
    /// Delivery rate without excess losses.
    pub(super) capacity: f64,
    /// The controller, not the application, limited the rate.
    pub(super) limited: bool,
    /// The share of packets that were marked, if the marks call for an answer.
    pub(super) marked: Option<f64>,
    pub(super) test: Option<TestResult>,
}

/// A rule of one state.
pub(super) struct Rule {
    pub(super) state: &'static str,
    /// The condition in words.
    #[cfg_attr(not(test), expect(dead_code, reason = "a test compares it with the documentation"))]
    pub(super) when: &'static str,
    /// The verdict in words.
    #[cfg_attr(not(test), expect(dead_code, reason = "a test compares it with the documentation"))]
    pub(super) then: &'static str,
    /// The verdict, if the condition holds.
    decide: fn(&RuleInput<'_>) -> Option<Verdict>,
}

const fn rule(
    state: &'static str,
    when: &'static str,
    then: &'static str,
    decide: fn(&RuleInput<'_>) -> Option<Verdict>,
) -> Rule {
    Rule { state, when, then, decide }
}

/// The rules, in order.
pub(super) const RULES: &[Rule] = &[
    rule("Startup", "a queue of two targets stands and grows", "track the delivery rate", |v| {
        let stands = v.queue() > 2.0 && v.queue_grows();
        stands.then_some(Verdict::Track { estimate: v.capacity })
    }),
    rule("Startup", "more is lost than the baseline, behind a queue of others", "compete", |v| {
        (v.is_external() && v.suspected_losses().is_some()).then(|| v.compete())
    }),
    rule("Startup", "packets are marked", "cut to what goes unmarked", |v| v.answer_marks()),
    rule("Startup", "more is lost than the baseline", "dip", |v| v.dip()),
    rule(
        "Startup",
        "the controller limited the rate",
        "double the window, and send twice what arrives",
        |v| v.limited.then_some(Verdict::Double { rate: 2.0 * v.capacity }),
    ),
    rule("Dip", "fewer packets were lost", "cut to what arrived", |v| match v.test {
        Some(TestResult::Dip(DipResult::Congestion { arrived })) => {
            Some(Verdict::Cut { rate: LOSS_GAIN * arrived })
        }
        _ => None,
    }),
    rule("Dip", "many were lost, in another ratio", "dip to half of that", |v| match v.test {
        Some(TestResult::Dip(DipResult::Rising(before))) => {
            Some(Verdict::Dip { estimate: v.auto.estimate, before })
        }
        _ => None,
    }),
    rule("Dip", "it ended", "track as before", |v| v.test.is_some().then(|| v.track())),
    rule("Probe", "as much more arrived", "track the higher rate", |v| match v.test {
        Some(TestResult::Probe(ProbeFinding::SpareCapacity { rate, .. })) => {
            Some(Verdict::Track { estimate: rate.max(v.auto.estimate) })
        }
        _ => None,
    }),
    rule("Probe", "it ended", "track as before", |v| v.test.is_some().then(|| v.track())),
    rule(
        "Track",
        "more is lost than the baseline, or marked, behind a queue of others",
        "compete",
        |v| {
            let is_full = v.marked.is_some() || v.suspected_losses().is_some();
            (v.is_external() && is_full).then(|| v.compete())
        },
    ),
    rule("Track", "the delay stays although the rate fell", "drain", |v| {
        v.delay_persists().then(|| v.drain())
    }),
    rule("Track", "an external delay is due to be measured, and rates are steady", "drain", |v| {
        (v.limited && v.is_steady() && v.auto.external.is_old(v.now)).then(|| v.drain())
    }),
    rule("Track", "packets are marked, behind a delay", "drain", |v| {
        let delay = v.auto.lasting_delay(v.sample);
        let is_delayed = v.auto.external.may_be_cross_traffic(v.now, delay);
        (v.marked.is_some() && is_delayed).then(|| v.drain())
    }),
    rule("Track", "packets are marked", "cut to what goes unmarked", |v| v.answer_marks()),
    rule(
        "Track",
        "rates are noisy, a delay limits the estimate, and a probe is due",
        "probe",
        |v| v.may_probe().then_some(Verdict::Probe),
    ),
    rule("Track", "every packet was queued", "follow the delivery rate", |v| {
        v.sample.never_empty.then(|| v.follow())
    }),
    rule("Track", "more is lost than the baseline", "dip", |v| v.dip()),
    rule("Track", "the queue is above its target", "hold", |v| {
        (v.queue() > 1.0).then_some(Verdict::Hold)
    }),
    rule("Track", "the controller limited the rate for a round", "grow", |v| {
        v.round_passed().then(|| v.grow())
    }),
    rule("Compete", "more is lost than the baseline, or marked", "back off", |v| {
        let delivered = v.auto.estimate * (1.0 - v.sample.losses.value());
        (v.marked.is_some() || v.queue_overflowed()).then_some(Verdict::BackOff { delivered })
    }),
    rule("Compete", "a queue stands, and the last drain was long ago", "drain", |v| {
        v.download_may_have_ended().then(|| v.drain())
    }),
    rule("Compete", "the controller limited the rate", "compete", |v| {
        v.limited.then(|| v.compete())
    }),
];

/// Decides on a sample.
pub(super) fn decide(view: &RuleInput<'_>) -> Verdict {
    let state = view.auto.state.name();
    let mut rules = RULES.iter().filter(|rule| rule.state == state);
    rules.find_map(|rule| (rule.decide)(view)).unwrap_or(Verdict::Hold)
}

impl State {
    /// The window if the state is Compete.
    pub(super) fn as_compete(&self) -> Option<Compete> {
        match self {
            Self::Compete(compete) => Some(*compete),
            _ => None,
        }
    }

    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Startup { .. } => "Startup",
            Self::Track => "Track",
            Self::Dip(_) => "Dip",
            Self::Probe(_) => "Probe",
            Self::Drain(_) => "Drain",
            Self::Compete(_) => "Compete",
        }
    }
}

impl RuleInput<'_> {
    /// The standing queue, as a multiple of the target.
    pub(super) fn queue(&self) -> f64 {
        self.sample.standing_bytes / self.target
    }

    /// Whether packets arrive more slowly than they were sent.
    fn queue_grows(&self) -> bool {
        self.sample.delivery_rate < GROWING_RATIO * self.sample.send_rate
    }

    /// Whether packets arrive faster than they were sent: they had been queued.
    fn queue_shrinks(&self) -> bool {
        self.sample.send_rate < GROWING_RATIO * self.sample.delivery_rate
    }

    fn track(&self) -> Verdict {
        Verdict::Track { estimate: self.auto.estimate }
    }

    fn follow(&self) -> Verdict {
        let Self { auto, capacity, .. } = self;
        let dropped = *capacity < auto.tuning.sudden_drop * auto.estimate
            && (self.is_steady() || self.queue_grows());
        // Where capacity comes in turns, packets that were queued in a pause show afterwards what the path
        // carries.
        let returned = !self.is_steady() && *capacity > auto.estimate;
        let usual = if dropped { auto.drop_gain() } else { auto.tuning.follow_gain };
        let gain = if returned { 1.0 } else { usual };
        // If packets arrive faster than they were sent, they had been queued, or other senders made room for
        // them.
        let most = auto.estimate.max(auto.pacing_rate());
        let most = if self.is_steady() { most } else { f64::INFINITY };
        let is_unusual = self.sample.queueing_delay > auto.jitter.mean() * QUEUE_FACTOR;
        Verdict::Follow { rate: capacity.min(most), gain, is_unusual }
    }

    /// Answers marks. Behind a queue of ours, packets arrive at the rate that the path carries. Without a
    /// queue of ours, the packets that exceed some rate are marked. Reducing the rate by half of the marked
    /// share converges from either side of that rate (RFC 8257, section 3.3). The limit is remembered like
    /// that of a policer.
    fn answer_marks(&self) -> Option<Verdict> {
        let Self { auto, capacity, .. } = *self;
        let share = self.marked?;
        let is_queue = self.queue() > 0.5 || self.queue_grows();
        let unmarked = LOSS_GAIN * capacity * if is_queue { 1.0 } else { 1.0 - share / 2.0 };
        // If the application sends less, others fill the queue.
        let least = if self.limited { 0.0 } else { MARKED_GAIN * auto.estimate };
        let rate = unmarked.max(least).min(auto.estimate);
        Some(if is_queue { Verdict::Track { estimate: rate } } else { Verdict::Cut { rate } })
    }

    fn grow(&self) -> Verdict {
        let clear = self.auto.packet_time().mul_f64(CLEAR_PART).max(SCHEDULING_JITTER);
        let is_wire = self.auto.jitter.long_term_deviation() < SCHEDULING_JITTER;
        Verdict::Grow {
            capacity: self.capacity,
            is_empty: self.queue() < 0.5,
            is_clear: is_wire || self.sample.total_delay < clear,
        }
    }

    fn drain(&self) -> Verdict {
        let auto = self.auto;
        let slowest = auto.pacing_rate().min(self.sample.delivery_rate);
        let own = serialization_time(auto.outstanding_bytes, slowest as u64);
        Verdict::Drain { time: own.max(auto.external.delay() + auto.jitter.mean()) }
    }

    /// The losses, if they may be congestion.
    fn suspected_losses(&self) -> Option<Ratio> {
        let auto = self.auto;
        self.limited.then(|| auto.losses.suspected_losses(self.now, &auto.tuning)).flatten()
    }

    fn dip(&self) -> Option<Verdict> {
        let auto = self.auto;
        // In Startup the estimate is twice what was sent.
        let most = if auto.is_starting() { self.sample.delivery_rate } else { f64::INFINITY };
        let before = self.suspected_losses()?;
        Some(Verdict::Dip { estimate: auto.estimate.min(most), before })
    }

    /// Whether the delivery rate varies little: the path has no jitter.
    fn is_steady(&self) -> bool {
        !self.auto.is_noisy()
    }

    fn round_passed(&self) -> bool {
        let since = self.now.since(self.auto.times.last_growth);
        self.limited && since >= self.auto.feedback_time()
    }

    /// Whether more packets were lost than the path loses by chance. A TCP answers each loss.
    fn queue_overflowed(&self) -> bool {
        // The packets were sent after the last answer.
        let since_answer = self.sample.since.since(self.auto.times.last_backoff);
        let is_new = since_answer >= self.auto.feedback_time();
        let Ratio { lost, packets } = self.sample.losses;
        let expected = self.auto.losses.baseline() * packets;
        is_new && lost > expected + self.auto.tuning.significant * expected.sqrt()
    }

    /// The window of a TCP at the round trip that the sample shows.
    fn compete(&self) -> Verdict {
        let Sample { delivery_rate, losses, .. } = self.sample;
        let arrived = delivery_rate * (1.0 - losses.value());
        let rtt = self.auto.feedback.rtt();
        Verdict::Compete { arrived, rtt }
    }

    fn download_may_have_ended(&self) -> bool {
        let auto = self.auto;
        let least = auto.external.download_delay(&auto.tuning);
        let stands = auto.state.as_compete().is_some_and(|compete| {
            compete.is_nearly_full() && compete.delay(auto.feedback.rtt()) > least
        });
        stands && auto.external.may_have_ended(self.now)
    }

    fn is_external(&self) -> bool {
        self.auto.external.may_be_download(&self.auto.tuning)
    }

    fn probe_is_due(&self) -> bool {
        self.auto.probes.is_due(self.now) && self.sample.since >= self.auto.times.draining_until
    }

    fn delay_persists(&self) -> bool {
        let Self { auto, sample, now, .. } = self;
        let (delay, time) = (auto.lasting_delay(sample), auto.feedback_time());
        let stands = !self.queue_grows() && !self.queue_shrinks();
        stands && auto.external.has_persistent_delay(*now, delay, time)
    }

    fn may_probe(&self) -> bool {
        // A path that has become slow looks irregular, too.
        let is_limited = self.limited && self.queue() > 0.5 && !self.queue_grows();
        !self.is_steady() && is_limited && self.probe_is_due() && self.suspected_losses().is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of rules in the documentation.
    fn table() -> String {
        let row = |rule: &Rule| format!("| {} | {} | {} |\n", rule.state, rule.when, rule.then);
        let head = "| state | if | verdict |\n|---|---|---|\n";
        head.to_owned() + &RULES.iter().map(row).collect::<String>()
    }

    #[test]
    fn the_rules_in_docs_are_current() {
        let page = include_str!("../../../../../docs/explanation/rate-control.md");
        assert!(page.contains(&table()), "the page must have this table:\n{}", table());
    }
}
