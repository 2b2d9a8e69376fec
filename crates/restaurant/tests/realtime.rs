// SPDX-License-Identifier: Apache-2.0
//! The restaurant with real programs, and its robots alone. These tests are slow and need an otherwise
//! idle machine, so `cargo test` skips them and `make realtime` runs them.

use serde_json::Value;
use std::path::Path;
use std::process::Command;
use tautline_testkit::skip::report_skip;

const RESTAURANT: &str = env!("CARGO_BIN_EXE_tautline-restaurant");
/// Time limit of a run, seconds. A longer run has hung; it fails and its output is shown.
const LIMIT_S: &str = "300";
/// Maximum number of runs until the emulator is in time.
const ATTEMPTS: usize = 3;
/// Exit code of a run with a late emulator, whose figures do not count.
const NOT_IN_TIME: i32 = 4;

/// Two robots with different ROS, a browser, two cameras and one radio: all orders are served
/// without a collision, and a robot that loses its kitchen stops and continues.
#[test]
#[ignore = "real time: make realtime"]
fn two_robots_serve_tables_over_one_radio() {
    let folder = tempfile::tempdir().unwrap();
    for _ in 0..ATTEMPTS {
        let mut restaurant = Command::new("timeout");
        restaurant
            .args(["--kill-after=5", "500", RESTAURANT, "--json", "--orders", "2"])
            .args(["--only", "orders,page,faults", "--faults", "outage,revoked"])
            .arg("--output")
            .arg(folder.path());
        let output = restaurant.output().unwrap();
        let Ok(figures) = serde_json::from_slice::<Value>(&output.stdout) else {
            panic!("{}", String::from_utf8_lossy(&output.stderr));
        };
        println!("{figures:#}");
        if output.status.code() == Some(NOT_IN_TIME) {
            continue;
        }
        let verdicts = figures["verdicts"].as_array().unwrap();
        assert_eq!(verdicts.len(), 7, "three of orders, two of the page, one of each fault");
        for verdict in verdicts {
            assert_eq!(verdict["reached"], true, "{verdict}");
        }
        return;
    }
    report_skip("this machine was too busy for the emulator");
}

/// The robots alone, without a network, long enough for all common encounters.
#[test]
#[ignore = "needs ROS 1 and the restaurant's packages: make realtime"]
fn robots_serve_in_virtual_time_without_contact() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("ros/rehearsal.py");
    let mut rehearsal = Command::new("timeout");
    rehearsal.args([LIMIT_S, "/usr/bin/python3"]).arg(script).args(["11", "12"]);
    let output = rehearsal.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let last = said.lines().last().and_then(|line| serde_json::from_str::<Value>(line).ok());
    let figures = last.unwrap_or_else(|| {
        panic!("{said}{}", String::from_utf8_lossy(&output.stderr));
    });
    assert_eq!(figures["served"], 12, "{said}");
    assert_eq!(figures["collisions"], serde_json::json!([]), "{said}");
}
