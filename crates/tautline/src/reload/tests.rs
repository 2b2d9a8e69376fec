// SPDX-License-Identifier: Apache-2.0
//! Tests of the difference between two files.

use super::{Changes, Kind, NeedsRestart, difference};
use crate::config::{Config, Surroundings, parse};
use tautline_proto::SecretKey;

const FILE: &str = "
name: base
ros1: false
peers:
  robot: { address: 10.0.0.1, prefix: /robot }
  thief: { address: 10.0.0.2 }
topics:
  /scan: { priority: 200 }
  /camera/**: { priority: 20 }
services:
  /set_mode: { timeout: 2s }
watchdogs:
  /cmd_vel: 500ms
radios:
  wlan0: { rate: 6Mbps }
";

fn config(file: &str) -> Config {
    let file = format!("security: none\n{file}");
    parse(&file, &Surroundings::default()).unwrap_or_else(|all| panic!("{all:?}")).config
}

/// Returns the changes after replacing one text of the file by another.
fn diff_after_replace(from: &str, to: &str) -> Result<Changes, Vec<NeedsRestart>> {
    assert!(FILE.contains(from));
    difference(&config(FILE), &config(&FILE.replace(from, to)))
}

fn change_lines(from: &str, to: &str) -> Vec<String> {
    diff_after_replace(from, to).unwrap().lines()
}

#[test]
fn an_equivalent_file_changes_nothing() {
    assert!(diff_after_replace("6Mbps", "6000kbps").unwrap().is_empty());
    assert!(diff_after_replace("peers:", "# a remark\npeers:").unwrap().is_empty());
}

#[test]
fn each_kind_of_entry_is_compared_by_its_keys() {
    let cases = [
        ("  thief: { address: 10.0.0.2 }\n", "", "peer thief removed"),
        ("peers:", "peers:\n  third: {}", "peer third added"),
        ("prefix: /robot ", "prefix: /r1 ", "peer robot changed: prefix /robot -> /r1"),
        (
            "10.0.0.2",
            "10.0.0.9",
            "peer thief changed: links [link1: 10.0.0.2:18470] -> [link1: 10.0.0.9:18470]",
        ),
        (
            "priority: 200",
            "priority: 90, rate: 5Hz",
            "topic /scan changed: priority 200 -> 90, rate none -> 5 Hz",
        ),
        ("topics:", "topics:\n  /odom: {}", "topic /odom added"),
        ("priority: 200", "priority: 200, expect: { rate: 5Hz }", "expectation /scan added"),
        ("  /scan: { priority: 200 }\n", "", "topic /scan removed"),
        ("2s", "3s", "service /set_mode changed: timeout 2s -> 3s"),
        ("500ms", "{ after: 500ms, repeat: 1s }", "watchdog /cmd_vel changed: repeat none -> 1s"),
        ("6Mbps", "back-pressure", "radio wlan0 changed: rate 6000000 bps -> back-pressure"),
        (
            "name: base",
            "name: base\nbeacons: true",
            "beacons changed: beacons off -> on all interfaces",
        ),
        (
            "name: base",
            "name: base\nmetrics: 127.0.0.1:9470",
            "metrics changed: metrics none -> 127.0.0.1:9470",
        ),
        (
            "name: base",
            "name: base\nlimits: { queue_time: 1s }",
            "limits changed: queue_time 2s -> 1s",
        ),
        ("name: base", "name: base\ntf: { frames: [map] }", "tf changed: frames none -> [map]"),
        (
            "name: base",
            "name: base\ndiagnostics: false",
            "diagnostics changed: diagnostics true -> false",
        ),
        (
            "name: base",
            "name: base\ndscp: { voice_from: 230 }",
            "dscp changed: priorities [10, 140, 210] -> [10, 140, 230]",
        ),
    ];
    for (from, to, expected) in cases {
        assert_eq!(change_lines(from, to), [expected]);
    }
}

#[test]
fn only_the_order_of_rules_matters() {
    let swapped = FILE
        .replace("/scan: { priority: 200 }", "/tmp: {}")
        .replace("/camera/**: { priority: 20 }", "/scan: { priority: 200 }")
        .replace("/tmp: {}", "/camera/**: { priority: 20 }");
    let found = difference(&config(FILE), &config(&swapped)).unwrap();
    assert_eq!(
        found.lines(),
        ["topic rules changed: order /scan, /camera/** -> /camera/**, /scan"]
    );
    let first = "  robot: { address: 10.0.0.1, prefix: /robot }\n";
    let moved = FILE.replace(first, "").replace("topics:", &format!("{first}topics:"));
    assert!(difference(&config(FILE), &config(&moved)).unwrap().is_empty());
}

#[test]
fn a_peer_is_identified_by_its_key() {
    let keys = ["a", "b", "c"].map(|name| SecretKey::insecure(name).public());
    let file = |peers: &str| {
        let file = format!("name: base\nros1: false\npeers: {{ {peers} }}");
        let surroundings = Surroundings::default();
        parse(&file, &surroundings).unwrap_or_else(|all| panic!("{all:?}")).config
    };
    let old = file(&format!("robot: {{ key: {} }}, two: {{ key: {} }}", keys[0], keys[1]));
    let new = file(&format!("robot: {{ key: {} }}, three: {{ key: {} }}", keys[2], keys[1]));
    let found = difference(&old, &new).unwrap();
    assert_eq!(
        found.lines(),
        ["peer robot removed", "peer robot added", "peer three changed: name two -> three"]
    );
    assert_eq!(found.changes[0].kind, Kind::Removed);
}

#[test]
fn only_keys_that_need_a_restart_are_reported() {
    let cases = [
        (
            "name: base",
            "name: other\nlisten: 127.0.0.1:1",
            ["name: found other; allowed while the daemon runs: base.", "listen: found"],
        ),
        (
            "name: base",
            "name: base\ncontrol: /tmp/x\nrealtime: { cpu: 0 }",
            ["control: found /tmp/x", "realtime"],
        ),
        (
            "ros1: false",
            "ros1: false\nros2: true\nlimits: { max_message: 4MB }",
            ["ros1 or ros2", "limits.max_message: found 4000000"],
        ),
    ];
    for (from, to, expected) in cases {
        let found = in_words(diff_after_replace(from, to));
        assert!(found.len() >= 2, "{found:?}");
        assert!(found.iter().all(|it| it.ends_with("restart the daemon")), "{found:?}");
        for part in expected {
            assert!(found.iter().any(|it| it.starts_with(part)), "{part}: {found:?}");
        }
    }
    let types_in =
        |it: &str| config(&FILE.replace("ros1: false", &format!("ros1: {{ definitions: {it} }}")));
    let found = in_words(difference(&types_in("/opt/a"), &types_in("/opt/b")));
    assert!(found[0].starts_with("ros1.definitions: found another value"), "{found:?}");
    let secure = |key: &str| {
        let file = format!("name: base\nros1: false\n{key}");
        parse(&file, &Surroundings::default()).unwrap_or_else(|all| panic!("{all:?}")).config
    };
    let found = in_words(difference(&secure("security: none"), &secure("key: /etc/base.key")));
    assert!(found[0].starts_with("key or security: found key: /etc/base.key"), "{found:?}");
}

fn in_words(found: Result<Changes, Vec<NeedsRestart>>) -> Vec<String> {
    found.unwrap_err().iter().map(ToString::to_string).collect()
}

#[test]
fn the_changes_are_json_that_is_read_back() {
    let changes = diff_after_replace("priority: 200", "priority: 90").unwrap();
    let text = serde_json::to_string(&changes).unwrap();
    assert!(text.contains(r#""what":"topic","name":"/scan","kind":"changed""#), "{text}");
    assert_eq!(serde_json::from_str::<Changes>(&text).unwrap(), changes);
}
