// SPDX-License-Identifier: Apache-2.0
//! Each kind of difference, and what does not count as one.

use super::*;
use crate::parity::situation::Team;
use crate::parity::situation::{Side, Topic};

/// A record of one topic with publisher `P1`, and what its subscribers got.
struct Case(Record);

impl Case {
    fn new(steps: Vec<Step>) -> Self {
        let name = "/parity/plain/s1_0".into();
        let topic = Topic { name, kind: "std_msgs/String", rule: Rule::Plain, size: 0 };
        let calm = (0..steps.len()).filter(|at| matches!(steps[*at], Step::Settle)).collect();
        let situation = Situation { seed: 1, team: Team::ALL[1], topics: vec![topic], steps };
        Self(Record { calm, ..Record::new(situation) })
    }

    fn rule(mut self, rule: Rule) -> Self {
        self.0.situation.topics[0].rule = rule;
        self
    }

    fn with_trouble(mut self, settle: usize) -> Self {
        self.0.calm.retain(|at| *at != settle);
        self
    }

    /// Messages published at a step, one per second from second `n`.
    fn with_sent(mut self, step: usize, numbers: &[u32]) -> Self {
        for &n in numbers {
            let event = Event::Sent { publisher: "P1".into(), n, sum: n, t: f64::from(n) };
            self.0.plain.events.push((step, event.clone()));
            self.0.tautline.events.push((step, event));
        }
        self
    }

    fn with_received(mut self, plain: &[u32], across: &[u32]) -> Self {
        for (run, numbers) in [(&mut self.0.plain, plain), (&mut self.0.tautline, across)] {
            for &n in numbers {
                let (subscriber, publisher) = ("S1".into(), "P1".into());
                let event = Event::Got { subscriber, publisher, n, sum: n, t: f64::from(n) };
                run.events.push((0, event));
            }
        }
        self
    }

    fn kinds(&self) -> Vec<&'static str> {
        faults(&self.0).into_iter().map(|fault| fault.kind).collect()
    }
}

fn publisher(latched: bool, depth: u32) -> Publisher {
    let (id, reliable, lifespan_ms) = ("P1".into(), true, None);
    Publisher { id, topic: 0, node: 0, latched, reliable, depth, lifespan_ms }
}

fn subscriber(latched: bool, reliable: bool) -> Subscriber {
    Subscriber { id: "S1".into(), topic: 0, node: 0, latched, reliable }
}

fn publish(count: u32) -> Step {
    Step::Publish { id: "P1".into(), count, gap_ms: 0 }
}

/// Publisher and subscriber are present before the messages of step 3.
fn live(latched: bool) -> Case {
    let (publisher, subscriber) = (publisher(latched, 5), subscriber(latched, true));
    Case::new(vec![
        Step::Advertise(publisher),
        Step::Subscribe(subscriber),
        Step::Settle,
        publish(3),
        Step::Settle,
    ])
    .with_sent(3, &[1, 2, 3])
}

/// A subscriber that joins after the messages of step 2.
fn late_subscriber(latched: bool, depth: u32) -> Case {
    Case::new(vec![
        Step::Advertise(publisher(latched, depth)),
        Step::Settle,
        publish(3),
        Step::Settle,
        Step::Subscribe(subscriber(false, true)),
        Step::Settle,
    ])
    .with_sent(2, &[1, 2, 3])
}

fn late_and_latched(depth: u32) -> Case {
    let mut case = late_subscriber(true, depth);
    case.0.situation.steps[4] = Step::Subscribe(subscriber(true, true));
    case
}

#[test]
fn equal_messages_are_no_difference() {
    assert!(live(false).with_received(&[1, 2, 3], &[1, 2, 3]).kinds().is_empty());
    assert!(late_and_latched(2).with_received(&[2, 3], &[2, 3]).kinds().is_empty());
    assert!(late_subscriber(false, 10).kinds().is_empty());
}

#[test]
fn repetitions_and_order_are_distinguished() {
    assert_eq!(live(false).with_received(&[1, 2, 3], &[1, 2, 3, 2]).kinds(), ["twice"]);
    assert_eq!(live(false).with_received(&[1, 2, 3], &[1, 3, 2]).kinds(), ["out of order"]);
}

#[test]
fn a_late_subscriber_gets_only_kept_messages() {
    assert_eq!(late_subscriber(false, 10).with_received(&[], &[3]).kinds(), ["stale"]);
    assert_eq!(late_and_latched(1).with_received(&[3], &[2, 3]).kinds(), ["stale"]);
    assert_eq!(late_and_latched(2).with_received(&[2, 3], &[3]).kinds(), ["missing"]);
}

#[test]
fn only_messages_of_a_calm_time_must_arrive() {
    assert_eq!(live(false).with_received(&[1, 2, 3], &[1]).kinds(), ["missing"]);
    assert!(live(false).with_trouble(2).with_received(&[1, 2, 3], &[1]).kinds().is_empty());
    assert!(live(false).with_trouble(4).with_received(&[1, 2, 3], &[1]).kinds().is_empty());
    // The messages are kept until everything is connected again, so all of them have to arrive.
    let mut case = live(true).with_trouble(4).with_received(&[1, 2, 3], &[1]);
    case.0.situation.steps.extend([Step::Start(Side::Far), Step::Settle]);
    case.0.calm.push(6);
    assert_eq!(case.kinds(), ["missing"]);
    // They need not arrive if their publisher has left before.
    case.0.situation.steps[5] = Step::Unadvertise("P1".into());
    assert!(case.kinds().is_empty());
}

#[test]
fn best_effort_may_lose_some_but_not_all() {
    let case = |across: &[u32]| {
        let mut case = live(false).with_received(&[1, 2, 3], across);
        case.0.situation.steps[1] = Step::Subscribe(subscriber(false, false));
        case.kinds()
    };
    assert!(case(&[2]).is_empty());
    assert_eq!(case(&[]), ["missing"]);
}

#[test]
fn messages_of_an_incompatible_publisher_do_not_arrive() {
    let mut case = live(false).with_received(&[], &[1]);
    case.0.situation.steps[1] = Step::Subscribe(subscriber(true, true));
    assert_eq!(case.kinds(), ["not offered"]);
}

#[test]
fn contents_age_and_rate_are_compared() {
    let mut case = live(false).with_received(&[1, 2, 3], &[1, 2]);
    let (subscriber, publisher): (String, String) = ("S1".into(), "P1".into());
    let event = Event::Got { subscriber, publisher, n: 3, sum: 7, t: 5.0 };
    case.0.tautline.events.push((0, event));
    assert_eq!(case.kinds(), ["changed"]);
    assert_eq!(case.rule(Rule::Lifespan).kinds(), ["changed", "expired"]);
    let stream: Vec<u32> = (1..=20).collect();
    let beyond = |across: &[u32]| {
        let steps = live(false).0.situation.steps;
        Case::new(steps)
            .rule(Rule::Rate)
            .with_sent(3, &stream)
            .with_received(&stream, across)
            .kinds()
    };
    assert!(beyond(&[1, 11, 20]).is_empty());
    assert_eq!(beyond(&stream), ["beyond its rate"]);
}

/// A call between two calm moments, answered in one graph at second 1.
fn call(served: usize, answers: &[(Option<&str>, f64)]) -> Vec<&'static str> {
    let [id, service] = ["C1", "/parity/service/s1"].map(String::from);
    let mut case = Case::new(vec![Step::Settle, Step::Call { id, node: 0, service }, Step::Settle]);
    let answer = |text: Option<&str>, t| {
        let error = text.is_none().then(|| "no server".to_owned());
        (1, Event::Answer { call: "C1".into(), text: text.map(String::from), error, t })
    };
    case.0.plain.events.push(answer(Some("V1 C1"), 1.0));
    case.0.tautline.events.extend(answers.iter().map(|(text, t)| answer(*text, *t)));
    let served_once = || (1, Event::Served { server: "V1".into(), call: "C1".into(), t: 1.0 });
    case.0.tautline.events.extend(std::iter::repeat_with(served_once).take(served));
    case.kinds()
}

#[test]
fn calls_are_executed_once_and_answered_by_their_server() {
    assert!(call(1, &[(Some("V1 C1"), 1.5)]).is_empty());
    assert_eq!(call(2, &[(Some("V1 C1"), 1.5)]), ["executed twice"]);
    assert_eq!(call(1, &[(Some("V1 C9"), 1.5)]), ["wrong answer"]);
    assert_eq!(call(1, &[(Some("V0 C1"), 1.5)]), ["wrong server"]);
    assert_eq!(call(1, &[(Some("V1 C1"), 4.0)]), ["slow call"]);
    assert_eq!(call(0, &[(None, 1.5)]), ["refused call"]);
    assert_eq!(call(0, &[]), ["no answer"]);
}
