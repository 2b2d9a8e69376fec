// SPDX-License-Identifier: Apache-2.0
//! Real programs on the emulated radio. These tests are slow and need an otherwise idle machine, so
//! `cargo test` skips them and `make realtime` runs them. Time-dependent results are judged only if
//! the emulator itself was in time; otherwise the test reports that it is skipped.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tautline_testkit::skip::report_skip;

const LAB: &str = env!("CARGO_BIN_EXE_tautline-lab");
/// Limit on a run, seconds: a longer one has hung; it fails and its output is shown.
const LIMIT_S: &str = "300";
/// Maximum number of attempts to get a run with the emulator in time.
const ATTEMPTS: usize = 3;
/// Exit code of a run with a late emulator, whose figures do not count.
const NOT_IN_TIME: i32 = 4;
const TOO_BUSY: &str = "this machine was too busy for the emulator";

fn scenario(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios").join(name)
}

fn air(name: &str, commands: &[&str]) -> Output {
    let mut lab = Command::new("timeout");
    lab.args(["--kill-after=5", LIMIT_S, LAB, "air", "--no-flows", "--json"])
        .arg(scenario(name))
        .arg("--")
        .args(commands);
    lab.output().unwrap()
}

/// Returns the output of a run's programs and its figures, in time or not.
fn run(name: &str, commands: &[&str]) -> (String, Value) {
    let output = air(name, commands);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let done = output.status.success() || output.status.code() == Some(NOT_IN_TIME);
    assert!(done, "{}: {said}", output.status);
    (said, serde_json::from_slice(&output.stdout).unwrap())
}

/// Like [`run`], repeated until the emulator is in time; prints a message and returns `None` if it
/// never is.
fn run_in_time(name: &str, commands: &[&str]) -> Option<String> {
    for _ in 0..ATTEMPTS {
        let (said, figures) = run(name, commands);
        if figures["emulator"]["counts"] == true {
            return Some(said);
        }
        println!("not in time: {}", figures["emulator"]);
    }
    report_skip(TOO_BUSY);
    None
}

/// The tolerances exceed those of `validate air` on an idle machine, so that only a fault fails.
#[test]
#[ignore = "real time: make realtime"]
fn virtual_time_and_real_programs_agree() {
    let output = Command::new(LAB).args(["validate", "air", "--runs", "2", "--json"]).output();
    let output = output.unwrap();
    let Ok(figures) = serde_json::from_slice::<Value>(&output.stdout) else {
        panic!("{}", String::from_utf8_lossy(&output.stderr));
    };
    if output.status.code() == Some(NOT_IN_TIME) {
        println!("discarded: {}", figures["discarded"]);
        report_skip(TOO_BUSY);
        return;
    }
    for flow in figures["flows"].as_array().unwrap() {
        println!("{flow}");
        let both = |key: &str| {
            let figure = |driver: &str| flow[driver][key].as_f64().unwrap();
            (figure("sim"), figure("air"))
        };
        let near = |(sim, air): (f64, f64), share: f64, least: f64| {
            assert!((sim - air).abs() <= (share * sim).max(least), "{sim} and {air}: {flow}");
        };
        near(both("delivered_percent"), 0.01, 0.0);
        near(both("mean_ms"), 0.1, 0.5);
        near(both("p99_ms"), 0.25, 2.0);
    }
}

/// Returns the figures of a run of the scenario's own flows that was in time.
fn figures_in_time(scenario: &Path) -> Option<Value> {
    for _ in 0..ATTEMPTS {
        let mut lab = Command::new("timeout");
        lab.args(["--kill-after=5", LIMIT_S, LAB, "air", "--json"]).arg(scenario);
        let output = lab.output().unwrap();
        let Ok(figures) = serde_json::from_slice::<Value>(&output.stdout) else {
            panic!("{}", String::from_utf8_lossy(&output.stderr));
        };
        if figures["emulator"]["counts"] == true {
            return Some(figures);
        }
        println!("not in time: {}", figures["emulator"]);
    }
    report_skip(TOO_BUSY);
    None
}

/// Returns the median of the lasers' p99 in a run of real nodes that was in time.
fn laser_p99_ms(scenario: &Path) -> Option<f64> {
    let figures = figures_in_time(scenario)?;
    let flows = figures["flows"].as_array().unwrap().iter();
    let lasers = flows.filter(|flow| flow["name"].as_str().unwrap().starts_with("laser"));
    let mut p99: Vec<f64> = lasers.map(|flow| flow["delay_ms"]["p99"].as_f64().unwrap()).collect();
    p99.sort_by(f64::total_cmp);
    Some(p99[p99.len() / 2])
}

/// Cubic and then BBR: each delivers, at most at the rate of the pipe, in packets of a size that
/// the pipe allows.
#[test]
#[ignore = "real time: make realtime"]
fn tcp_fills_a_far_pipe() {
    let text = "about: Two downloads behind a far bottleneck\nsource: made up\nduration: 10s\n\
        networks:\n  fast: { pipe: { rate: 1Gbps, queue: 10MB } }\n  slow: { pipe: { rate: 6Mbps, queue: 30KB, delay: 1ms } }\n\
        stations:\n  robot: { networks: [fast] }\n  router: { networks: [fast, slow] }\n  base: { networks: [slow] }\n\
        routes: [[robot, router, base]]\n\
        flows:\n  - { name: cubic, from: robot, to: base, size: 14480, every: saturate, over: tcp, count: 150 }\n  \
          - { name: bbr, from: robot, to: base, size: 14480, every: saturate, over: tcp, congestion: bbr, start: 5s, count: 150 }\n";
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("downloads.yaml");
    std::fs::write(&file, text).unwrap();
    let Some(figures) = figures_in_time(&file) else { return };
    let flows = figures["flows"].as_array().unwrap();
    let mut segments = 0.0;
    for flow in flows {
        println!("{flow}");
        let messages = flow["received"].as_f64().unwrap();
        assert_eq!(messages, 150.0, "{flow}");
        segments += messages * 10.0;
        // 10 full packets of 1500 bytes at 6 Mbps are 20 ms.
        let gap_ms = flow["gap_ms"]["mean"].as_f64().unwrap();
        assert!((19.5..30.0).contains(&gap_ms), "{gap_ms} ms between messages: {flow}");
    }
    let slow = &figures["radios"][2];
    assert_eq!((&slow["station"], &slow["network"]), (&"router".into(), &"slow".into()));
    let frames = slow["attempts"].as_f64().unwrap();
    assert!(frames >= segments, "{frames} frames for {segments} segments: some were too long");
}

/// The packets must have DSCP marks, and each class must be charged separately. The bound is wide,
/// so that only a fault fails: 6 and 11 ms were measured, 31 and 37 unmarked.
#[test]
#[ignore = "real time: make realtime"]
fn marked_lasers_precede_images_of_all_stations() {
    let marked = std::fs::read_to_string(scenario("five-robots.yaml")).unwrap();
    // Fewer robots than in the file: each has a node of its own here.
    let marked = marked.replace("count: 5", "count: 3").replace("duration: 30s", "duration: 15s");
    let folder = tempfile::tempdir().unwrap();
    let p99_ms = |name: &str, text: String| {
        let file = folder.path().join(name);
        std::fs::write(&file, text).unwrap();
        laser_p99_ms(&file)
    };
    let unmarked = format!("{marked}tautline: {{ dscp: false }}\n");
    let Some(unmarked) = p99_ms("unmarked.yaml", unmarked) else { return };
    let Some(marked) = p99_ms("marked.yaml", marked) else { return };
    println!("lasers' p99: marked {marked} ms, unmarked {unmarked} ms");
    assert!(marked < unmarked * 0.7, "marked {marked} ms, unmarked {unmarked} ms");
}

/// Wi-Fi fails for 10 of 30 s: real nodes lose what `keep_last` and `only_links` do not keep, and
/// nothing else. The bounds are those of virtual time.
#[test]
#[ignore = "real time: make realtime"]
fn real_nodes_continue_on_the_other_radio_while_one_is_out() {
    let Some(figures) = figures_in_time(&scenario("two-radios.yaml")) else { return };
    let flows = figures["flows"].as_array().unwrap();
    let received = |name: &str| {
        let flow = flows.iter().find(|flow| flow["name"] == name).unwrap();
        flow["received"].as_u64().unwrap()
    };
    assert_eq!(received("laser"), 1500, "all that were sent");
    assert!(received("command") >= 1490 && received("images") >= 270, "{figures}");
    assert!((195..=215).contains(&received("logs")), "by Wi-Fi alone: {figures}");
}

#[test]
#[ignore = "real time: make realtime"]
fn ping_crosses_a_relay() {
    let (said, _) = run("pound-2hops.yaml", &["robot: ping -c 5 -i 0.2 base"]);
    assert!(said.contains("5 received") && said.contains("ttl=63"), "{said}");
}

#[test]
#[ignore = "real time: make realtime"]
fn iperf3_throughput_matches_the_standard() {
    let client = "robot: sleep 1; iperf3 -c base -u -b 10M -l 1472 -t 10 -O 1 -f k";
    let Some(said) = run_in_time("half-duplex-6mbps.yaml", &["base: iperf3 -s", client]) else {
        return;
    };
    let kbps = received_kbps(&said);
    println!("iperf3 UDP: {kbps} kbps");
    // One station at 6 Mbps: 5.27 Mbps of UDP payload.
    assert!((kbps / 5270.0 - 1.0).abs() < 0.03, "{kbps} kbps: {said}");
}

#[test]
#[ignore = "real time: make realtime"]
fn iperf3_over_tcp_reaches_most_of_the_throughput() {
    let client = "robot: sleep 1; iperf3 -c base -t 10 -f k";
    let Some(said) = run_in_time("half-duplex-6mbps.yaml", &["base: iperf3 -s", client]) else {
        return;
    };
    let kbps = received_kbps(&said);
    println!("iperf3 TCP: {kbps} kbps");
    // TCP's ACKs contend for the same channel.
    assert!((3500.0..5300.0).contains(&kbps), "{kbps} kbps: {said}");
}

/// Returns the rate from the client's line about the receiver.
fn received_kbps(said: &str) -> f64 {
    let line = said.lines().find(|line| line.starts_with("robot") && line.ends_with("receiver"));
    let fields: Vec<&str> = line.expect(said).split_whitespace().collect();
    let unit = fields.iter().position(|field| *field == "Kbits/sec").expect(said);
    fields[unit - 1].parse().expect(said)
}

#[test]
#[ignore = "real time: make realtime"]
fn a_roscore_pair_communicates_over_the_radio() {
    let ros = "export PATH=/usr/bin:/bin ROS_HOME=/run/tautline-lab/ros ROS_MASTER_URI=http://10.71.0.1:11311";
    let robot = format!("{ros} ROS_IP=10.71.0.1; roscore");
    let publisher = format!(
        "{ros} ROS_IP=10.71.0.1; until rostopic list >/dev/null 2>&1; do sleep 0.5; done; \
         rostopic pub -r 10 /chatter std_msgs/String hello"
    );
    let subscriber = format!(
        "{ros} ROS_IP=10.71.0.2; until rostopic list 2>/dev/null | grep -q chatter; do sleep 0.5; done; \
         rostopic echo -n 5 /chatter"
    );
    let commands =
        [format!("robot: {robot}"), format!("robot: {publisher}"), format!("base: {subscriber}")];
    let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
    let (said, figures) = run("half-duplex-6mbps.yaml", &commands);
    let heard = said.lines().filter(|line| line.starts_with("base | data: \"hello\"")).count();
    assert_eq!(heard, 5, "{said}");
    assert!(figures["radios"][0]["attempts"].as_u64().unwrap() > 20, "{figures}");
}
