// SPDX-License-Identifier: Apache-2.0
//! Every answer a master, a probe or a check can give, without a network.

use super::*;
use std::sync::Arc;

const URI: &str = "http://robot:1000/";

fn description(type_name: &str) -> Description {
    Description {
        type_name: type_name.into(),
        md5: format!("md5 of {type_name}"),
        definition: "".into(),
        latching: false,
    }
}

fn listing(topics: &[(&str, &str)]) -> Snapshot {
    let mut snapshot = Snapshot::default();
    for (topic, node) in topics {
        let nodes = snapshot.publishers.entry((*topic).into()).or_default();
        nodes.insert((*node).into());
    }
    snapshot
}

fn publisher(type_name: &str) -> Probed {
    Probed::Publisher { uri: URI.into(), description: description(type_name) }
}

fn publishes(uri: &str, topic: &str, type_name: &str) -> Checked {
    Checked::Publishes { uri: uri.into(), topics: [(topic.into(), type_name.into())].into() }
}

struct Bench {
    discovery: Discovery,
    now: Instant,
}

impl Bench {
    fn new() -> Self {
        let selector = Arc::new(
            |named: Named<'_>| matches!(named, Named::Topic(name) if name.starts_with("/out")),
        );
        Self { discovery: Discovery::new("/us", selector), now: Instant::now() }
    }

    /// One with /out/a offered by /n, nothing left to say or ask.
    fn with_offer() -> Self {
        let mut bench = Self::new();
        bench.snapshot(&[("/out/a", "/n")]);
        bench.discovery.take_work(bench.now);
        bench.discovery.on_probed("/out/a", "/n", publisher("T"), bench.now);
        assert_eq!(bench.changes(), ["offered /out/a T"]);
        bench
    }

    fn snapshot(&mut self, topics: &[(&str, &str)]) {
        self.discovery.on_snapshot(&listing(topics), self.now);
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
    }

    fn checks(&mut self) -> Vec<String> {
        let work = self.discovery.take_work(self.now).into_iter();
        work.filter_map(|work| if let Work::Check { node, .. } = work { Some(node) } else { None })
            .collect()
    }

    fn checked(&mut self, found: Checked) {
        self.discovery.on_checked("/n", found, self.now);
    }

    fn changes(&mut self) -> Vec<String> {
        let text = |event| match event {
            Event::Offered(topic) => format!("offered {} {}", topic.name, topic.type_name),
            Event::Withdrawn { topic } => format!("withdrawn {topic}"),
            other => format!("{other:?}"),
        };
        self.discovery.take_changes().into_iter().map(text).collect()
    }
}

#[test]
fn selected_topics_of_others_are_probed_once_and_offered() {
    let mut bench = Bench::new();
    let all = [("/out/a", "/n"), ("/out/a", "/us"), ("/out/b", "/us"), ("/private", "/n")];
    bench.snapshot(&all);
    let probe = Work::Probe { topic: "/out/a".into(), node: "/n".into(), again: false };
    assert_eq!(bench.discovery.take_work(bench.now), [probe]);
    bench.snapshot(&all);
    assert_eq!(bench.discovery.take_work(bench.now), []);
    bench.discovery.on_probed("/out/a", "/n", publisher("T"), bench.now);
    assert_eq!(bench.changes(), ["offered /out/a T"]);
    assert_eq!(bench.discovery.uris("/out/a"), [URI.to_owned()].into());
}

#[test]
fn what_may_not_leave_any_more_is_withdrawn_once_and_offered_again_when_it_may() {
    let closed = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let looked = closed.clone();
    let selector = move |_: Named<'_>| !looked.load(std::sync::atomic::Ordering::Relaxed);
    let discovery = Discovery::new("/us", Arc::new(selector));
    let mut bench = Bench { discovery, now: Instant::now() };
    let probe = |bench: &mut Bench| {
        bench.snapshot(&[("/out/a", "/n")]);
        bench.discovery.take_work(bench.now);
        bench.discovery.on_probed("/out/a", "/n", publisher("T"), bench.now);
    };
    probe(&mut bench);
    bench.discovery.reselect();
    assert_eq!(bench.changes(), ["offered /out/a T"], "nothing was closed");
    closed.store(true, std::sync::atomic::Ordering::Relaxed);
    bench.discovery.reselect();
    bench.snapshot(&[("/out/a", "/n")]);
    assert_eq!(bench.changes(), ["withdrawn /out/a"]);
    assert_eq!(bench.discovery.take_work(bench.now), []);
    closed.store(false, std::sync::atomic::Ordering::Relaxed);
    bench.discovery.reselect();
    probe(&mut bench);
    assert_eq!(bench.changes(), ["offered /out/a T"]);
}

#[test]
fn other_tautline_nodes_are_neither_offered_nor_asked_again() {
    let mut bench = Bench::new();
    bench.snapshot(&[("/out/a", "/tautline2")]);
    bench.discovery.take_work(bench.now);
    bench.discovery.on_probed("/out/a", "/tautline2", Probed::Foreign, bench.now);
    bench.pass(Duration::from_secs(3600));
    bench.snapshot(&[("/out/a", "/tautline2")]);
    assert_eq!(bench.discovery.take_work(bench.now), []);
    assert_eq!(bench.changes(), Vec::<String>::new());
    assert!(bench.discovery.uris("/out/a").is_empty());
}

#[test]
fn a_publisher_that_does_not_answer_is_probed_less_and_less_often() {
    let mut bench = Bench::new();
    let mut probes = 0;
    for _ in 0..120 {
        bench.snapshot(&[("/out/a", "/n")]);
        for _ in bench.discovery.take_work(bench.now) {
            probes += 1;
            let failed = Probed::Failed { reason: "refused".into() };
            bench.discovery.on_probed("/out/a", "/n", failed, bench.now);
        }
        bench.pass(Duration::from_secs(1));
    }
    assert!((6..12).contains(&probes), "{probes}");
}

#[test]
fn a_master_that_forgot_withdraws_nothing_while_the_publisher_answers_or_is_connected() {
    let mut bench = Bench::with_offer();
    bench.snapshot(&[]);
    assert_eq!(bench.checks(), ["/n"]);
    bench.checked(publishes(URI, "/out/a", "T"));
    bench.discovery.on_connected("/out/a", URI, &description("T"));
    bench.pass(CHECK_PERIOD);
    bench.snapshot(&[]);
    bench.checks();
    bench.checked(Checked::Gone);
    assert_eq!(bench.changes(), Vec::<String>::new());
    bench.discovery.on_lost("/out/a", URI);
    assert_eq!(bench.checks(), ["/n"], "asked at once");
    bench.checked(Checked::Gone);
    assert_eq!(bench.changes(), ["withdrawn /out/a"]);
}

#[test]
fn a_publisher_that_left_is_withdrawn_when_it_says_so() {
    let mut bench = Bench::with_offer();
    bench.snapshot(&[]);
    bench.checks();
    bench.checked(publishes(URI, "/other", "T"));
    assert_eq!(bench.changes(), ["withdrawn /out/a"]);
}

#[test]
fn silence_counts_as_gone_only_after_several_checks() {
    let mut bench = Bench::with_offer();
    for _ in 0..MAX_SILENT_CHECKS {
        assert_eq!(bench.changes(), Vec::<String>::new());
        bench.snapshot(&[("/out/a", "/n")]);
        assert_eq!(bench.checks(), ["/n"]);
        bench.checked(Checked::Silent);
        bench.pass(CHECK_PERIOD);
    }
    assert_eq!(bench.changes(), ["withdrawn /out/a"]);
}

#[test]
fn a_node_that_came_back_elsewhere_is_probed_anew_and_its_new_type_offered() {
    let mut bench = Bench::with_offer();
    bench.snapshot(&[("/out/a", "/n")]);
    bench.checks();
    bench.checked(publishes("http://robot:2000/", "/out/a", "T"));
    // With patience: what is offered must not end by one lost packet.
    let probe = Work::Probe { topic: "/out/a".into(), node: "/n".into(), again: true };
    assert!(bench.discovery.take_work(bench.now).contains(&probe));
    assert_eq!(bench.changes(), Vec::<String>::new(), "offered until that is known");
    bench.discovery.on_probed("/out/a", "/n", publisher("U"), bench.now);
    assert_eq!(bench.changes(), ["offered /out/a U"]);
}

#[test]
fn a_publisher_that_was_started_again_is_read_where_it_is_and_never_withdrawn() {
    let mut bench = Bench::with_offer();
    bench.snapshot(&[("/out/a", "/n")]);
    bench.checks();
    bench.checked(publishes("http://robot:2000/", "/out/a", "T"));
    assert_eq!(bench.discovery.uris("/out/a"), ["http://robot:2000/".to_owned()].into());
    let (uri, description) = ("http://robot:2000/".into(), description("T"));
    bench.discovery.take_work(bench.now);
    let found = Probed::Publisher { uri, description };
    bench.discovery.on_probed("/out/a", "/n", found, bench.now);
    assert_eq!(bench.changes(), Vec::<String>::new());
    assert_eq!(bench.discovery.uris("/out/a"), ["http://robot:2000/".to_owned()].into());
}

#[test]
fn of_two_types_the_one_offered_first_holds_until_its_publisher_leaves() {
    let mut bench = Bench::with_offer();
    bench.snapshot(&[("/out/a", "/n"), ("/out/a", "/b")]);
    let other =
        Probed::Publisher { uri: "http://robot:3000/".into(), description: description("U") };
    bench.discovery.on_probed("/out/a", "/b", other, bench.now);
    assert_eq!(bench.changes(), Vec::<String>::new());
    assert_eq!(bench.discovery.uris("/out/a"), [URI.to_owned()].into(), "the other is not read");
    bench.snapshot(&[("/out/a", "/b")]);
    bench.checks();
    bench.checked(Checked::Gone);
    assert_eq!(bench.changes(), ["offered /out/a U"]);
}

#[test]
fn a_change_of_latching_is_offered_again() {
    let mut bench = Bench::with_offer();
    let latching = Description { latching: true, ..description("T") };
    bench.discovery.on_connected("/out/a", URI, &latching);
    assert!(bench.discovery.offered("/out/a").unwrap().qos.transient_local);
    assert_eq!(bench.changes(), ["offered /out/a T"]);
}

#[test]
fn publishers_that_do_not_answer_hold_up_no_other() {
    let mut bench = Bench::new();
    let names: Vec<String> = (0..1000).map(|number| format!("/out/a{number:03}")).collect();
    let mut all: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "/hangs")).collect();
    all.push(("/out/z", "/n"));
    bench.snapshot(&all);
    let probe = Work::Probe { topic: "/out/z".into(), node: "/n".into(), again: false };
    assert!(bench.discovery.take_work(bench.now).contains(&probe), "another node has a place");
    // Each publisher a node of its own, and all of them failed before.
    let mut bench = Bench::new();
    let mut all: Vec<(&str, &str)> =
        names.iter().map(|name| (name.as_str(), name.as_str())).collect();
    bench.snapshot(&all);
    for _ in 0..1000 {
        for work in bench.discovery.take_work(bench.now) {
            let Work::Probe { topic, node, .. } = work else { panic!("{work:?}") };
            let failed = Probed::Failed { reason: "late".into() };
            bench.discovery.on_probed(&topic, &node, failed, bench.now);
        }
    }
    bench.pass(LAST_RETRY);
    assert_eq!(bench.discovery.take_work(bench.now).len(), turns::MAX_AGAIN);
    all.push(("/out/z", "/n"));
    bench.snapshot(&all);
    assert_eq!(bench.discovery.take_work(bench.now), [probe]);
}

#[test]
fn nodes_that_hang_hold_up_no_check_of_another() {
    let mut bench = Bench::new();
    let names: Vec<String> = (0..200).map(|number| format!("/h{number:03}")).collect();
    let mut all: Vec<(&str, &str)> = names.iter().map(|name| ("/out/a", name.as_str())).collect();
    all.push(("/out/z", "/z"));
    bench.snapshot(&all);
    for _ in 0..200 {
        for work in bench.discovery.take_work(bench.now) {
            let Work::Probe { topic, node, .. } = work else { continue };
            bench.discovery.on_probed(&topic, &node, publisher("T"), bench.now);
        }
    }
    // The master forgets those that hang; their checks never end, or in silence.
    for _ in 0..100 {
        bench.snapshot(&[("/out/z", "/z")]);
        for node in bench.checks() {
            match node.as_str() {
                "/z" => return,
                _ => bench.discovery.on_checked(&node, Checked::Silent, bench.now),
            }
        }
        bench.pass(CHECK_PERIOD);
    }
    panic!("never checked");
}

#[test]
fn what_comes_and_goes_begins_no_further_probes() {
    let mut bench = Bench::new();
    let mut begun = 0;
    for round in 0..100 {
        let names: Vec<String> = (0..100).map(|n| format!("/out/{round}_{n}")).collect();
        let all: Vec<(&str, &str)> =
            names.iter().map(|name| (name.as_str(), name.as_str())).collect();
        bench.snapshot(&all);
        begun += bench.discovery.take_work(bench.now).len();
    }
    assert_eq!(begun, turns::MAX_FIRST);
}
