// SPDX-License-Identifier: Apache-2.0
//! Tests of the comparison in virtual time: counters grow at given rates, once per second.

use super::*;
use crate::config::{self, Surroundings};

const FILE: &str =
    "name: robot\nsecurity: none\nros1: false\npeers: { base: 10.0.0.1, hub: 10.0.0.2 }\n";

fn planned_topics(lines: &str) -> PlanComparison {
    let checked = config::parse(&format!("{FILE}{lines}"), &Surroundings::default()).unwrap();
    PlanComparison::new(&checked.config, Some(model))
}

/// A channel as `tautline-plan` models it, roughly.
#[derive(Debug)]
struct Model(Channel);

fn model(channel: &Channel) -> Box<dyn ChannelModel> {
    Box::new(Model(channel.clone()))
}

impl ChannelModel for Model {
    fn round_trip(&self) -> Option<(f64, f64)> {
        let Channel::Line(line) = &self.0 else { return None };
        let full_packet = 12_000.0 / line.bps as f64;
        (!line.delay.is_zero()).then_some((2.0 * line.delay.as_secs_f64(), 2.0 * full_packet))
    }

    fn capacity_bps(&self, _ip_bytes: u32) -> f64 {
        match &self.0 {
            Channel::Wifi(wifi) => 0.89 * wifi.bps as f64,
            Channel::Line(line) => line.bps as f64,
        }
    }
}

#[test]
fn without_a_planner_only_topics_and_losses_are_compared() {
    let file = format!("{FILE}{CHANNEL}");
    let checked = config::parse(&file, &Surroundings::default()).unwrap();
    let mut planned = PlanComparison::new(&checked.config, None);
    let full = |second| ObservedCounters {
        links: on_link(50 * second, 0, None).links,
        ..on_radio(second, second, true)
    };
    assert_eq!(run(&mut planned, 0..60, full), []);
    let compared: Vec<_> = planned.reports(at(60)).iter().map(|it| it.assumption).collect();
    assert_eq!(compared, [Assumption::Loss]);
}

fn at(second: u64) -> Instant {
    Instant(0) + Duration::from_secs(second)
}

/// Calls `follow` once per second; returns each change with its second.
fn run(
    planned: &mut PlanComparison,
    seconds: std::ops::Range<u64>,
    mut observe: impl FnMut(u64) -> ObservedCounters,
) -> Vec<(u64, Change)> {
    let mut all = Vec::new();
    for second in seconds {
        let changes = planned.follow(at(second), &observe(second));
        all.extend(changes.into_iter().map(|it| (second, it)));
    }
    all
}

/// Messages of the first rule to `base`.
fn messages(messages: u64, bytes: u64) -> ObservedCounters {
    let counts = TopicCounts { messages, bytes: messages * bytes };
    ObservedCounters {
        topics: [((0, "base".into()), counts)].into(),
        ..ObservedCounters::default()
    }
}

fn link() -> LinkName {
    LinkName { peer: "base".into(), link: "wifi".into(), radio: "wlan0".into() }
}

fn on_link(acked: u64, lost: u64, round_trip_ms: Option<f64>) -> ObservedCounters {
    // The same number of packets was declared lost but acknowledged late.
    let counts = LinkCounts { acked, lost: lost * 2, late: lost, round_trip_ms };
    ObservedCounters { links: [(link(), counts)].into(), ..ObservedCounters::default() }
}

const TOPIC: &str = "topics: { /image: { expect: { rate: 15Hz, size: 40kB } } }";

#[test]
fn a_topic_that_is_too_fast_fails_once_and_holds_once_it_is_slower() {
    let mut planned = planned_topics(TOPIC);
    let mut changes = run(&mut planned, 0..100, |second| messages(22 * second, 40_000));
    let (second, failed) = changes.pop().unwrap();
    assert!(changes.is_empty());
    // The first window takes 10 s, and the verdict turns after another 20 s.
    assert_eq!(second, 30);
    let text = "not as planned: /image: 22 Hz measured, 15 Hz expected (topics./image.expect.rate)";
    assert_eq!(failed, Change { notice: text.into(), failed: true });
    let [rate, size] = &planned.reports(at(99))[..] else { panic!() };
    assert_eq!(
        (rate.assumption, rate.measured, rate.failed_for_s),
        (Assumption::Rate, Some(22.0), Some(69.0))
    );
    assert_eq!(
        (size.assumption, size.measured, size.failed_for_s),
        (Assumption::Size, Some(40_000.0), None)
    );
    let slower = |second| messages(22 * 100 + 15 * (second - 100), 40_000);
    let changes = run(&mut planned, 100..200, slower);
    let [(second, holds)] = &changes[..] else { panic!("{changes:?}") };
    assert!((120..=132).contains(second), "{second}");
    assert_eq!(holds, &Change { notice: text.into(), failed: false });
}

#[test]
fn a_burst_that_is_shorter_than_a_window_changes_nothing() {
    let mut planned = planned_topics(TOPIC);
    // 600 messages at once every minute, and 4 per second otherwise.
    let bursts = |second: u64| messages(4 * second + 600 * (second / 60), 40_000);
    assert_eq!(run(&mut planned, 0..1000, bursts), []);
}

#[test]
fn a_rate_as_planned_never_fails_whatever_its_phase() {
    for mhz in [13_u64, 100, 333, 1000, 15_000] {
        let file = format!("topics: {{ /t: {{ expect: {{ rate: {}Hz }} }} }}", mhz as f64 / 1e3);
        let mut planned = planned_topics(&file);
        assert_eq!(run(&mut planned, 0..2000, |second| messages(mhz * second / 1000, 10)), []);
    }
}

#[test]
fn a_slow_topic_is_measured_for_longer() {
    let mut planned = planned_topics("topics: { /map: { expect: { rate: 0.1Hz } } }");
    let changes = run(&mut planned, 0..1000, |second| messages(second * 3 / 20, 10));
    assert_eq!(changes.len(), 1, "0.15 Hz: {changes:?}");
    assert!(changes[0].0 >= 300);
}

#[test]
fn messages_that_are_too_large_fail_by_their_mean() {
    let mut planned = planned_topics(TOPIC);
    let changes = run(&mut planned, 0..60, |second| messages(15 * second, 50_000));
    let [(30, change)] = &changes[..] else { panic!("{changes:?}") };
    assert!(change.notice.contains("/image: messages of 50 kB measured, 40 kB expected"));
}

#[test]
fn the_rate_limit_of_a_rule_bounds_its_expectation() {
    let rule = "topics: { /image: { rate: 5Hz, expect: { rate: 15Hz } } }";
    let mut planned = planned_topics(rule);
    run(&mut planned, 0..60, |second| messages(7 * second, 1));
    let report = &planned.reports(at(60))[0];
    assert_eq!((report.expected, report.failed_for_s.is_some()), (5.0, true));
}

#[test]
fn a_topic_that_is_no_longer_sent_meets_its_plan() {
    let mut planned = planned_topics(TOPIC);
    run(&mut planned, 0..60, |second| messages(22 * second, 1));
    let changes = run(&mut planned, 60..100, |_| ObservedCounters::default());
    assert!(matches!(&changes[..], [(80, Change { failed: false, .. })]), "{changes:?}");
    assert!(planned.reports(at(99)).iter().all(|it| it.measured.is_none()));
}

#[test]
fn nothing_is_reported_without_a_plan() {
    let planned = planned_topics("topics: { /image: { priority: 20 } }");
    assert!(planned.is_empty() && planned.reports(at(0)).is_empty());
}

#[test]
fn only_the_first_rule_that_matches_plans_a_topic() {
    let rules = "topics: { /camera/info: {}, /camera/**: { expect: { rate: 5Hz } } }";
    let mut planned = planned_topics(rules);
    let names = ["/camera/info", "/camera/image", "/other"].map(str::to_owned);
    for _ in 0..2 {
        planned.find_rules(names.iter());
        assert_eq!(names.each_ref().map(|it| planned.rule_of(it)), [None, Some(1), None]);
    }
    planned.find_rules(names[..1].iter());
    assert_eq!(planned.rules.len(), 1, "names of topics that are gone are forgotten");
}

const CHANNEL: &str = "radios: { wlan0: { channel: \"wifi:6Mbps,loss=1%\" } }";

#[test]
fn a_link_that_loses_more_than_planned_fails() {
    for (lost_per_mille, fails) in [(10, false), (20, false), (30, true), (500, true)] {
        let mut planned = planned_topics(CHANNEL);
        let changes = run(&mut planned, 0..100, |second| {
            let packets = 100 * second;
            let lost = packets * lost_per_mille / 1000;
            on_link(packets - lost, lost, None)
        });
        assert_eq!(changes.len(), usize::from(fails), "{lost_per_mille}: {changes:?}");
        if lost_per_mille == 30 {
            let text = "wifi to base: 3 % of packets lost, 1 % expected (radios.wlan0.channel)";
            assert!(changes[0].1.notice.contains(text), "{changes:?}");
        }
    }
}

#[test]
fn few_packets_show_no_loss() {
    let mut planned = planned_topics(CHANNEL);
    assert_eq!(run(&mut planned, 0..100, |second| on_link(second, 3 * second, None)), []);
}

/// A peer may lose packets on purpose.
#[test]
fn a_peer_causes_no_more_changes_than_time_allows() {
    for period in 1..200 {
        let mut planned = planned_topics(CHANNEL);
        let mut counts = [0, 0];
        let changes = run(&mut planned, 0..2000, |second| {
            counts[usize::from(second / period % 2 == 0)] += 100;
            on_link(counts[0], counts[1], None)
        });
        assert!(changes.len() <= 2000 / 20, "{period}: {}", changes.len());
        assert!(period > 15 || changes.len() <= 1, "{period}: {}", changes.len());
    }
}

#[test]
fn the_notice_of_a_removed_link_is_removed() {
    let mut planned = planned_topics(CHANNEL);
    let mut changes = run(&mut planned, 0..60, |second| on_link(50 * second, 50 * second, None));
    changes.extend(run(&mut planned, 60..61, |_| ObservedCounters::default()));
    let [(_, failed), (60, gone)] = &changes[..] else { panic!("{changes:?}") };
    assert_eq!((&failed.notice, failed.failed, gone.failed), (&gone.notice, true, false));
    assert!(planned.by_link.is_empty() && planned.rows.is_empty());
}

#[test]
fn the_planned_round_trip_includes_packets() {
    let line = "radios: { wlan0: { channel: \"line:2Mbps,delay=40ms\" } }";
    for (ms, fails) in [(80.0, false), (115.0, false), (125.0, true)] {
        let mut planned = planned_topics(line);
        let changes = run(&mut planned, 0..60, |second| on_link(second, 0, Some(ms)));
        assert_eq!(changes.len(), usize::from(fails), "{ms}: {changes:?}");
    }
}

/// A radio that sends 250 packets of 1500 bytes per second, 3 Mbps.
fn on_radio(second: u64, too_slow: u64, is_busy: bool) -> ObservedCounters {
    let counts = RadioCounts {
        sent_bytes: 375_000 * second,
        sent_packets: 250 * second,
        too_slow,
        is_busy,
        ..RadioCounts::default()
    };
    ObservedCounters { radios: [("wlan0".into(), counts)].into(), ..ObservedCounters::default() }
}

#[test]
fn a_full_radio_that_carries_less_than_planned_fails() {
    let mut wifi = planned_topics(CHANNEL);
    let changes = run(&mut wifi, 0..60, |second| on_radio(second, 10 * second, true));
    let [(30, change)] = &changes[..] else { panic!("{changes:?}") };
    let text = "wlan0: full, and carries 3 Mbps, 5.34 Mbps expected; its bit rate or 'rate'";
    assert!(change.notice.contains(text), "{}", change.notice);
    // A radio that is idle at times, or that drops nothing, need not carry more.
    for (too_slow, is_busy_until) in [(0, 10), (10, 7)] {
        let mut wifi = planned_topics(CHANNEL);
        let changes = run(&mut wifi, 0..200, |second| {
            on_radio(second, too_slow * second, second % 10 < is_busy_until)
        });
        assert_eq!(changes, []);
    }
    let mut slow = planned_topics("radios: { wlan0: { channel: \"line:3Mbps\" } }");
    assert_eq!(run(&mut slow, 0..60, |second| on_radio(second, second, true)), []);
}

#[test]
fn unplanned_topics_fail_if_they_use_much_of_the_radio() {
    for (bytes, fails) in [(10_000, false), (40_000, true)] {
        let sent = |second: u64| {
            let mut observed = on_radio(second, 0, false);
            observed.radios.get_mut("wlan0").unwrap().unplanned_bytes = bytes * second;
            observed
        };
        // A file that plans no topics expects none.
        assert_eq!(run(&mut planned_topics(CHANNEL), 0..60, sent), []);
        let mut both = planned_topics(&format!("{CHANNEL}\n{TOPIC}"));
        let changes = run(&mut both, 0..60, sent);
        assert_eq!(changes.len(), usize::from(fails), "{changes:?}");
        if fails {
            let text = "wlan0: 320 kbps of topics without 'expect', 0 bps expected";
            assert!(changes[0].1.notice.contains(text), "{changes:?}");
        }
    }
}
