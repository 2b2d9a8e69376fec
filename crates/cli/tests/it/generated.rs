// SPDX-License-Identifier: Apache-2.0
//! Files generated from the option table and other tables. `UPDATE=1 cargo test -p tautline-cli --test it generated::`
//! writes them; without `UPDATE` they must match the table.

use crate::reference::{audit, limits, reasons, schema};
use serde_json::{Value as Json, json};
use std::path::Path;
use tautline_testkit::reference as configuration;

fn check(name: &str, now: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference").join(name);
    if std::env::var_os("UPDATE").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, now).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == now,
        "docs/reference/{name} is not what the code says; run this test with UPDATE=1"
    );
}

#[test]
fn the_reference_follows_the_table() {
    check("configuration.md", &configuration::markdown());
}

#[test]
fn the_page_of_bounds_follows_the_constants() {
    check("limits.md", &limits::markdown());
}

#[test]
fn the_page_of_reasons_follows_their_tables() {
    check("reasons.md", &reasons::markdown());
}

#[test]
fn the_schema_follows_the_table() {
    check("robot.schema.json", &format!("{:#}\n", schema::schema()));
}

#[test]
fn the_relays_reference_and_schema_follow_their_table() {
    check("relay.md", &configuration::relay_markdown());
    check("relay.schema.json", &format!("{:#}\n", schema::relay_schema()));
}

#[test]
fn the_relays_schema_accepts_the_same_files_as_the_relay() {
    let key = "cHVibGljIGtleSBvZiBiYXNlLCBhbiBleGFtcGxlLi4=";
    let fits =
        |file: Json| jsonschema::validator_for(&schema::relay_schema()).unwrap().is_valid(&file);
    let teams = json!({
        "blue": { "max_rate": "20Mbps", "members": { "robot": key, "base": { "key": key } } },
        "red": null,
    });
    assert!(fits(json!({ "name": "relay", "listen": 18470, "teams": teams })));
    for bad in [
        json!({ "name": "relay" }),
        json!({ "name": "relay", "teams": {}, "peers": {} }),
        json!({ "name": "relay", "teams": { "a b": {} } }),
        json!({ "name": "relay", "teams": { "a": { "max_rate": "20" } } }),
        json!({ "name": "relay", "teams": { "a": { "members": { "robot": "key" } } } }),
        json!({ "name": "relay", "teams": { "a": { "members": { "robot": {} } } } }),
    ] {
        assert!(!fits(bad.clone()), "{bad}");
    }
}

#[test]
fn the_audit_logs_reference_follows_its_events() {
    check("audit.md", &audit::markdown());
}

#[test]
fn every_record_of_a_decision_has_a_row_in_the_index() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/decisions");
    let names = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name());
    let names = names.map(|name| name.into_string().unwrap());
    let mut records: Vec<String> =
        names.filter(|name| name.starts_with(|first: char| first.is_ascii_digit())).collect();
    records.sort();
    let index = std::fs::read_to_string(folder.join("index.md")).unwrap();
    let rows = index.lines().filter(|line| line.starts_with("| [0"));
    let linked: Vec<&str> =
        rows.map(|row| row.split(['(', ')']).nth(1).unwrap_or_default()).collect();
    assert_eq!(linked, records, "docs/decisions/index.md has one row for each record, in order");
}

fn matches_schema(file: Json) -> bool {
    jsonschema::validator_for(&schema::schema()).unwrap().is_valid(&file)
}

#[test]
fn the_schema_accepts_the_same_files_as_the_daemon() {
    assert!(matches_schema(json!({ "name": "robot1" })));
    assert!(matches_schema(json!({ "name": "robot1", "beacons": true, "dscp": false })));
    assert!(matches_schema(json!({ "name": "robot1", "audit": { "to": "journald" } })));
    assert!(matches_schema(json!({ "name": "robot1", "audit": true })));
    assert!(matches_schema(json!({
        "name": "robot1", "listen": 18470, "beacons": ["wlan0"], "metrics": "127.0.0.1:9470", "ros1": false,
        "peers": { "base": "10.0.0.2", "robot4": {}, "robot5": null,
            "robot3": { "links": [{ "address": "10.0.0.3", "mtu": 1400 }], "accept": "/scan", "remap": { "/a": "/b" } } },
        "radios": { "wlan0": { "rate": "6Mbps", "in_flight": 2 } },
        "topics": { "/scan": { "priority": 200, "rate": 5, "lifespan": "500ms", "to": ["base"] }, "/camera/**": null },
        "watchdogs": { "/a": "500ms", "/b": { "after": "1s", "message": { "linear": { "x": 0.0 } } } },
        "tf": { "frames": ["base_link", "arm-1/**"], "prefix": "robot1/", "shared": "map" },
        "limits": { "max_message": "8MB", "repair_budget": "30%" },
        "dscp": { "voice": 46, "voice_from": 256 }, "realtime": null,
    })));
    assert!(matches_schema(
        json!({ "name": "r", "topics": ["/scan", { "name": "/camera/**", "rate": "5Hz" }] })
    ));
}

#[test]
fn the_schema_refuses_the_same_files_as_the_daemon() {
    for bad in [
        json!({}),
        json!({ "name": "robot 1" }),
        json!({ "name": "r", "beacons": [] }),
        json!({ "name": "r", "beacons": "wlan0/1" }),
        json!({ "name": "r", "audit": { "to": "syslog" } }),
        json!({ "name": "r", "audit": { "files": 0 } }),
        json!({ "name": "r", "nmae": "r" }),
        json!({ "name": "r", "dscp": { "voice": 64 } }),
        json!({ "name": "r", "topics": { "scan": {} } }),
        json!({ "name": "r", "topics": { "/scan": { "priority": 300 } } }),
        json!({ "name": "r", "topics": { "/scan": { "lifespan": "500" } } }),
        json!({ "name": "r", "radios": { "wlan0": { "rate": 6 } } }),
        json!({ "name": "r", "peers": { "b": { "links": [{}] } } }),
        json!({ "name": "r", "watchdogs": { "/a": { "message": {} } } }),
        json!({ "name": "r", "watchdogs": { "/a": { "after": "1s", "message": [1] } } }),
        json!({ "name": "r", "limits": { "repair_budget": 1.5 } }),
        json!({ "name": "r", "tf": { "frames": "/base_link" } }),
        json!({ "name": "r", "tf": { "prefix": "/robot1" } }),
        json!({ "name": "r", "tf": { "prefix": "robot1//" } }),
    ] {
        assert!(!matches_schema(bad.clone()), "{bad}");
    }
}

/// Collects all Rust sources below `crates/`.
fn sources(folder: &Path, all: &mut String) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, all);
        } else if path.extension().is_some_and(|it| it == "rs") {
            all.push_str(&std::fs::read_to_string(&path).unwrap());
        }
    }
}

#[test]
fn tests_named_in_the_threat_model_exist() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let page = std::fs::read_to_string(crates.join("../docs/explanation/threat-model.md")).unwrap();
    let mut code = String::new();
    sources(&crates, &mut code);
    let (_, claims) = page.split_once("## Attacks and their tests").unwrap();
    let (claims, _) = claims.split_once("\n## ").unwrap();
    let rows: Vec<_> = claims.lines().filter(|line| line.starts_with("| ")).skip(1).collect();
    assert!(rows.len() > 20, "{} rows", rows.len());
    for row in rows {
        let tests = row.rsplit(" | ").next().unwrap();
        let names: Vec<_> = tests.split('`').skip(1).step_by(2).collect();
        assert!(!names.is_empty(), "no test: {row}");
        for name in names.iter().filter(|name| **name != "hostile_peer") {
            assert!(code.contains(&format!("fn {name}(")), "no test {name}: {row}");
        }
    }
}
