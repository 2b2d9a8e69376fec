// SPDX-License-Identifier: Apache-2.0
//! Every result of the master, a probe or a check, without a network.

use super::super::connection::TypeVersion;
use super::*;
use std::sync::Arc;

const URI: &str = "http://robot:1000/";

fn description(type_name: &str) -> Description {
    Description {
        version: TypeVersion { name: type_name.into(), md5: format!("md5 of {type_name}") },
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

fn probed_publisher(uri: &str, type_name: &str) -> ProbeResult<LocatedPublisher> {
    ProbeResult::Found(LocatedPublisher { uri: uri.into(), description: description(type_name) })
}

fn publisher(type_name: &str) -> ProbeResult<LocatedPublisher> {
    probed_publisher(URI, type_name)
}

fn publishes(uri: &str, topic: &str, type_name: &str) -> CheckResult {
    CheckResult::Publishes { uri: uri.into(), topics: [(topic.into(), type_name.into())].into() }
}

struct Bench {
    discovery: Discovery,
    now: Instant,
}

impl Bench {
    fn new() -> Self {
        let selector = Arc::new(
            |named: ResourceName<'_>| matches!(named, ResourceName::Topic(name) if name.starts_with("/out")),
        );
        Self { discovery: Discovery::new("/us", selector), now: Instant::now() }
    }

    /// With /out/a offered by /n, and without pending events or queries.
    fn with_offer() -> Self {
        let mut bench = Self::new();
        bench.snapshot(&[("/out/a", "/n")]);
        bench.discovery.take_queries(bench.now);
        bench.discovery.on_probed("/out/a", "/n", publisher("T"), bench.now);
        assert_eq!(bench.events(), ["offered /out/a T"]);
        bench
    }

    fn snapshot(&mut self, topics: &[(&str, &str)]) {
        self.discovery.on_snapshot(&listing(topics), self.now);
    }

    fn advance(&mut self, time: Duration) {
        self.now += time;
    }

    fn checks(&mut self) -> Vec<String> {
        let queries = self.discovery.take_queries(self.now).into_iter();
        let node = |query| if let Query::Check { node, .. } = query { Some(node) } else { None };
        queries.filter_map(node).collect()
    }

    fn apply_check(&mut self, found: CheckResult) {
        self.discovery.on_checked("/n", found, self.now);
    }

    fn events(&mut self) -> Vec<String> {
        let text = |event| match event {
            Event::Offered(topic) => format!("offered {} {}", topic.name, topic.type_name),
            Event::Withdrawn { topic } => format!("withdrawn {topic}"),
            other => format!("{other:?}"),
        };
        self.discovery.take_events().into_iter().map(text).collect()
    }
}

#[test]
fn selected_topics_are_probed_once_and_offered() {
    let mut bench = Bench::new();
    let all = [("/out/a", "/n"), ("/out/a", "/us"), ("/out/b", "/us"), ("/private", "/n")];
    bench.snapshot(&all);
    let probe = Query::Probe { topic: "/out/a".into(), node: "/n".into(), is_retry: false };
    assert_eq!(bench.discovery.take_queries(bench.now), [probe]);
    bench.snapshot(&all);
    assert_eq!(bench.discovery.take_queries(bench.now), []);
    bench.discovery.on_probed("/out/a", "/n", publisher("T"), bench.now);
    assert_eq!(bench.events(), ["offered /out/a T"]);
    assert_eq!(bench.discovery.uris("/out/a"), [URI.to_owned()].into());
}

#[test]
fn a_topic_is_withdrawn_and_offered_again_as_the_selector_changes() {
    let closed = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let is_closed = closed.clone();
    let selector = move |_: ResourceName<'_>| !is_closed.load(std::sync::atomic::Ordering::Relaxed);
    let discovery = Discovery::new("/us", Arc::new(selector));
    let mut bench = Bench { discovery, now: Instant::now() };
    let probe = |bench: &mut Bench| {
        bench.snapshot(&[("/out/a", "/n")]);
        bench.discovery.take_queries(bench.now);
        bench.discovery.on_probed("/out/a", "/n", publisher("T"), bench.now);
    };
    probe(&mut bench);
    bench.discovery.reselect();
    assert_eq!(bench.events(), ["offered /out/a T"], "the selector was open");
    closed.store(true, std::sync::atomic::Ordering::Relaxed);
    bench.discovery.reselect();
    bench.snapshot(&[("/out/a", "/n")]);
    assert_eq!(bench.events(), ["withdrawn /out/a"]);
    assert_eq!(bench.discovery.take_queries(bench.now), []);
    closed.store(false, std::sync::atomic::Ordering::Relaxed);
    bench.discovery.reselect();
    probe(&mut bench);
    assert_eq!(bench.events(), ["offered /out/a T"]);
}

#[test]
fn other_tautline_nodes_are_neither_offered_nor_probed_again() {
    let mut bench = Bench::new();
    bench.snapshot(&[("/out/a", "/tautline2")]);
    bench.discovery.take_queries(bench.now);
    bench.discovery.on_probed("/out/a", "/tautline2", ProbeResult::Tautline, bench.now);
    bench.advance(Duration::from_secs(3600));
    bench.snapshot(&[("/out/a", "/tautline2")]);
    assert_eq!(bench.discovery.take_queries(bench.now), []);
    assert_eq!(bench.events(), Vec::<String>::new());
    assert!(bench.discovery.uris("/out/a").is_empty());
}

#[test]
fn a_silent_publisher_is_probed_at_growing_intervals() {
    let mut bench = Bench::new();
    let mut probes = 0;
    for _ in 0..120 {
        bench.snapshot(&[("/out/a", "/n")]);
        for _ in bench.discovery.take_queries(bench.now) {
            probes += 1;
            let failed = ProbeResult::Failed("refused".into());
            bench.discovery.on_probed("/out/a", "/n", failed, bench.now);
        }
        bench.advance(Duration::from_secs(1));
    }
    assert!((6..12).contains(&probes), "{probes}");
}

/// The master still lists a node that was killed. Its successor has the same name.
#[test]
fn a_node_that_ended_is_checked_at_growing_intervals() {
    let mut bench = Bench::new();
    let mut probed = Vec::new();
    for second in 0..300 {
        bench.snapshot(&[("/out/a", "/n")]);
        for _ in bench.discovery.take_queries(bench.now) {
            probed.push(second);
            let ended = ProbeResult::Ended("connection refused".into());
            bench.discovery.on_probed("/out/a", "/n", ended, bench.now);
        }
        bench.advance(Duration::from_secs(1));
    }
    let pauses: Vec<i32> = probed.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let within = |seconds: i32| probed.iter().filter(|at| **at < seconds).count();
    assert!(pauses[..within(55) - 1].iter().all(|pause| *pause <= 2), "{pauses:?}");
    assert!(pauses[within(65)..].iter().all(|pause| *pause >= 30), "{pauses:?}");
}

#[test]
fn a_master_without_registrations_withdraws_no_live_publisher() {
    let mut bench = Bench::with_offer();
    bench.snapshot(&[]);
    assert_eq!(bench.checks(), ["/n"]);
    bench.apply_check(publishes(URI, "/out/a", "T"));
    bench.discovery.on_connected("/out/a", URI, &description("T"));
    bench.advance(CHECK_PERIOD);
    bench.snapshot(&[]);
    bench.checks();
    bench.apply_check(CheckResult::Gone);
    assert_eq!(bench.events(), Vec::<String>::new());
    bench.discovery.on_lost("/out/a", URI);
    assert_eq!(bench.checks(), ["/n"], "checked at once");
    bench.apply_check(CheckResult::Gone);
    assert_eq!(bench.events(), ["withdrawn /out/a"]);
}

#[test]
fn a_topic_that_its_node_no_longer_lists_is_withdrawn() {
    let mut bench = Bench::with_offer();
    bench.snapshot(&[]);
    bench.checks();
    bench.apply_check(publishes(URI, "/other", "T"));
    assert_eq!(bench.events(), ["withdrawn /out/a"]);
}

#[test]
fn a_silent_node_is_removed_after_several_checks() {
    let mut bench = Bench::with_offer();
    for _ in 0..MAX_SILENT_CHECKS {
        assert_eq!(bench.events(), Vec::<String>::new());
        bench.snapshot(&[("/out/a", "/n")]);
        assert_eq!(bench.checks(), ["/n"]);
        bench.apply_check(CheckResult::Silent);
        bench.advance(CHECK_PERIOD);
    }
    assert_eq!(bench.events(), ["withdrawn /out/a"]);
}

#[test]
fn a_node_at_a_new_address_is_probed_and_its_new_type_offered() {
    let mut bench = Bench::with_offer();
    bench.snapshot(&[("/out/a", "/n")]);
    bench.checks();
    bench.apply_check(publishes("http://robot:2000/", "/out/a", "T"));
    // As a retry: one lost packet must not withdraw the topic.
    let probe = Query::Probe { topic: "/out/a".into(), node: "/n".into(), is_retry: true };
    assert!(bench.discovery.take_queries(bench.now).contains(&probe));
    assert_eq!(bench.events(), Vec::<String>::new(), "offered until the result");
    bench.discovery.on_probed("/out/a", "/n", publisher("U"), bench.now);
    assert_eq!(bench.events(), ["offered /out/a U"]);
}

#[test]
fn a_restarted_publisher_is_read_at_its_new_address_and_never_withdrawn() {
    let mut bench = Bench::with_offer();
    bench.snapshot(&[("/out/a", "/n")]);
    bench.checks();
    bench.apply_check(publishes("http://robot:2000/", "/out/a", "T"));
    assert_eq!(bench.discovery.uris("/out/a"), ["http://robot:2000/".to_owned()].into());
    bench.discovery.take_queries(bench.now);
    bench.discovery.on_probed(
        "/out/a",
        "/n",
        probed_publisher("http://robot:2000/", "T"),
        bench.now,
    );
    assert_eq!(bench.events(), Vec::<String>::new());
    assert_eq!(bench.discovery.uris("/out/a"), ["http://robot:2000/".to_owned()].into());
}

#[test]
fn the_first_offered_type_is_used_until_its_publisher_leaves() {
    let mut bench = Bench::with_offer();
    bench.snapshot(&[("/out/a", "/n"), ("/out/a", "/b")]);
    bench.discovery.on_probed(
        "/out/a",
        "/b",
        probed_publisher("http://robot:3000/", "U"),
        bench.now,
    );
    assert_eq!(bench.events(), Vec::<String>::new());
    assert_eq!(bench.discovery.uris("/out/a"), [URI.to_owned()].into(), "the other is not read");
    bench.snapshot(&[("/out/a", "/b")]);
    bench.checks();
    bench.apply_check(CheckResult::Gone);
    assert_eq!(bench.events(), ["offered /out/a U"]);
}

#[test]
fn the_offer_is_repeated_when_latching_changes() {
    let mut bench = Bench::with_offer();
    let latching = Description { latching: true, ..description("T") };
    bench.discovery.on_connected("/out/a", URI, &latching);
    assert!(bench.discovery.offered_topic("/out/a").unwrap().qos.transient_local);
    assert_eq!(bench.events(), ["offered /out/a T"]);
}

#[test]
fn silent_publishers_do_not_delay_others() {
    let mut bench = Bench::new();
    let names: Vec<String> = (0..1000).map(|number| format!("/out/a{number:03}")).collect();
    let mut all: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "/hangs")).collect();
    all.push(("/out/z", "/n"));
    bench.snapshot(&all);
    let probe = Query::Probe { topic: "/out/z".into(), node: "/n".into(), is_retry: false };
    assert!(bench.discovery.take_queries(bench.now).contains(&probe), "another node has a place");
    // Each publisher has a node of its own, and all probes have failed before.
    let mut bench = Bench::new();
    let mut all: Vec<(&str, &str)> =
        names.iter().map(|name| (name.as_str(), name.as_str())).collect();
    bench.snapshot(&all);
    for _ in 0..1000 {
        for query in bench.discovery.take_queries(bench.now) {
            let Query::Probe { topic, node, .. } = query else { panic!("{query:?}") };
            let failed = ProbeResult::Failed("late".into());
            bench.discovery.on_probed(&topic, &node, failed, bench.now);
        }
    }
    bench.advance(MAX_PAUSE);
    assert_eq!(bench.discovery.take_queries(bench.now).len(), backoff::MAX_RETRIES);
    all.push(("/out/z", "/n"));
    bench.snapshot(&all);
    assert_eq!(bench.discovery.take_queries(bench.now), [probe]);
}

#[test]
fn hanging_nodes_do_not_delay_checks_of_others() {
    let mut bench = Bench::new();
    let names: Vec<String> = (0..200).map(|number| format!("/h{number:03}")).collect();
    let mut all: Vec<(&str, &str)> = names.iter().map(|name| ("/out/a", name.as_str())).collect();
    all.push(("/out/z", "/z"));
    bench.snapshot(&all);
    for _ in 0..200 {
        for query in bench.discovery.take_queries(bench.now) {
            let Query::Probe { topic, node, .. } = query else { continue };
            bench.discovery.on_probed(&topic, &node, publisher("T"), bench.now);
        }
    }
    // The master does not list the hanging nodes; their checks never end, or end without a response.
    for _ in 0..100 {
        bench.snapshot(&[("/out/z", "/z")]);
        for node in bench.checks() {
            match node.as_str() {
                "/z" => return,
                _ => bench.discovery.on_checked(&node, CheckResult::Silent, bench.now),
            }
        }
        bench.advance(CHECK_PERIOD);
    }
    panic!("never checked");
}

#[test]
fn short_lived_topics_do_not_start_more_probes() {
    let mut bench = Bench::new();
    let mut begun = 0;
    for round in 0..100 {
        let names: Vec<String> = (0..100).map(|n| format!("/out/{round}_{n}")).collect();
        let all: Vec<(&str, &str)> =
            names.iter().map(|name| (name.as_str(), name.as_str())).collect();
        bench.snapshot(&all);
        begun += bench.discovery.take_queries(bench.now).len();
    }
    assert_eq!(begun, backoff::MAX_NEW);
}
