// SPDX-License-Identifier: Apache-2.0
//! Checks that this machine's kernel holds frames as `tautline-lab air` requires.
//!
//! Each test starts the program, or a copy of itself, in separate namespaces. Without the permission
//! to create them the test fails with the program's message.

mod cases;

use anyhow::{Result, ensure};
use serde_json::Value;
use std::collections::HashSet;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output, Stdio};
use std::time::{Duration, Instant};
use tautline_lab::rig::enclosure::{self, Inner};
use tautline_testkit::again::this_test_alone;

const LAB: &str = env!("CARGO_BIN_EXE_tautline-lab");
/// Exit code of a run with a late emulator, whose figures do not count.
const NOT_IN_TIME: i32 = 4;
/// Time after which a required event counts as missing.
const PATIENCE: Duration = Duration::from_secs(20);

/// Set in a copy of the test program inside an enclosure.
const INSIDE: &str = "TAUTLINE_TEST_INSIDE";

/// Runs a case of the calling test in an enclosure, by a copy of the test program.
fn check(case: fn() -> Result<()>) -> Result<()> {
    if std::env::var_os(INSIDE).is_some() {
        enclosure::settle()?;
        return case();
    }
    let inner = Inner::start_command(&this_test_alone(), &[(INSIDE, "1")])?;
    let ended = inner.end()?;
    ensure!(ended == ExitCode::SUCCESS, "the case failed in its enclosure");
    Ok(())
}

fn text_of_output(output: &Output) -> String {
    let both = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8_lossy(&both).into_owned()
}

/// Writes a scenario of these networks, stations and routes.
fn write_scenario(folder: &Path, text: &str) -> PathBuf {
    let file = folder.join("made.yaml");
    std::fs::write(&file, format!("about: A check of the kernel\nduration: 60s\n{text}")).unwrap();
    file
}

const ONE_PIPE: &str = "networks: { one: { pipe: { rate: 6Mbps } } }\n";

/// Pings an address three times from `s1`; returns the output and the frames that each radio sent.
fn ping(scenario: &str, address: &str) -> (String, Vec<u64>) {
    let folder = tempfile::tempdir().unwrap();
    let file = write_scenario(folder.path(), scenario);
    let mut lab = Command::new(LAB);
    lab.args(["air", "--json"]).arg(file);
    let output = lab.args(["--", &format!("s1: ping -n -c 3 -i 0.2 -W 5 {address}")]).output();
    let output = output.unwrap();
    let done = [Some(0), Some(NOT_IN_TIME)].contains(&output.status.code());
    assert!(done, "{}", text_of_output(&output));
    let figures: Value = serde_json::from_slice(&output.stdout).unwrap();
    let radios = figures["radios"].as_array().unwrap().iter();
    let frames = radios.map(|radio| radio["attempts"].as_u64().unwrap()).collect();
    (String::from_utf8_lossy(&output.stderr).into_owned(), frames)
}

#[test]
fn ping_and_arp_pass_through_the_emulator() {
    let stations = "stations: { s: { count: 2, networks: [one] } }\n";
    let (said, frames) = ping(&format!("{ONE_PIPE}{stations}"), "10.71.0.2");
    // Three requests or responses, and a frame of ARP before them.
    assert!(frames.iter().all(|count| *count >= 4), "{frames:?}: {said}");
}

#[test]
fn a_held_packet_stays_charged_to_its_socket() -> Result<()> {
    check(cases::back_pressure)
}

#[test]
fn lost_frames_do_not_arrive_and_a_broadcast_reaches_only_its_receivers() -> Result<()> {
    check(cases::verdicts)
}

#[test]
fn frames_are_known_by_radio() {
    let networks =
        "networks:\n  one: { pipe: { rate: 6Mbps } }\n  two: { pipe: { rate: 6Mbps } }\n";
    let stations = "stations: { s: { count: 2, networks: [one, two] } }\n";
    let (said, frames) = ping(&format!("{networks}{stations}"), "10.72.0.2");
    let used: Vec<usize> = (0..frames.len()).filter(|radio| frames[*radio] > 0).collect();
    assert_eq!(used, [1, 3], "{frames:?}: {said}");
}

#[test]
fn a_relay_with_one_radio_forwards() {
    let rest = "stations: { s: { count: 3, networks: [one] } }\nroutes: [ [s1, s2, s3] ]\n";
    let (said, frames) = ping(&format!("{ONE_PIPE}{rest}"), "10.71.0.3");
    assert!(said.contains("ttl=63"), "two hops: {said}");
    assert!(frames[1] >= 6, "{frames:?}: {said}");
}

#[test]
fn tcp_passes_intact_in_single_packets() -> Result<()> {
    check(cases::tcp)
}

#[test]
fn unreported_kernel_events_are_counted() -> Result<()> {
    check(cases::overrun)
}

#[test]
fn an_ordinary_user_needs_no_more_than_user_namespaces() {
    let folder = tempfile::tempdir().unwrap();
    let this = std::env::current_exe().unwrap();
    let (program, mut command) = if is_root() {
        // A folder that every user can read, unlike a build folder under /root.
        let copy = folder.path().join("air_kernel");
        std::fs::copy(this, &copy).unwrap();
        make_readable(folder.path());
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
        (copy, command)
    } else {
        (this, Command::new("env"))
    };
    let test = ["a_held_packet_stays_charged_to_its_socket", "--exact", "--nocapture"];
    let output = command.arg(program).args(test).output().unwrap();
    let said = text_of_output(&output);
    let passed = output.status.success() && said.contains(" 1 passed");
    assert!(passed || said.contains("needs its own network namespaces and got none"), "{said}");
    println!("{said}");
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").unwrap().uid() == 0
}

fn make_readable(folder: &Path) {
    let done = Command::new("chmod").args(["-R", "a+rX"]).arg(folder).status().unwrap();
    assert!(done.success());
}

#[test]
fn a_killed_emulator_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let stations = "stations: { s: { count: 2, networks: [one] } }\n";
    let scenario = write_scenario(folder.path(), &format!("{ONE_PIPE}{stations}"));
    // Process 1 is the lab. A frame is held or on the air at any time.
    let command = "s1: ping -i 0.2 10.71.0.2 > /dev/null & \
        echo $(readlink /proc/1/ns/net /proc/1/ns/mnt /proc/1/ns/pid /proc/self/ns/net); sleep 1000";
    let mut lab = Command::new(LAB);
    lab.arg("air").arg(scenario).args(["--", command]);
    let mut lab = lab.stdout(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(lab.stdout.take().unwrap()).lines().map_while(Result::ok);
    let namespaces = said.find(|line| line.contains("net:[")).expect("it did not start");
    let namespaces: HashSet<&str> = namespaces.split(' ').skip(2).collect();
    assert_eq!(
        namespaces.len(),
        4,
        "net, mnt and pid of the lab, net of a station: {namespaces:?}"
    );
    assert!(!living_in(&namespaces).is_empty());
    lab.kill().unwrap();
    lab.wait().unwrap();
    let deadline = Instant::now() + PATIENCE;
    while !living_in(&namespaces).is_empty() {
        assert!(Instant::now() < deadline, "still there: {:?}", living_in(&namespaces));
        std::thread::yield_now();
    }
}

/// Returns the processes in any of these namespaces. A namespace without processes is removed, with
/// its rules, links and queues.
fn living_in(namespaces: &HashSet<&str>) -> Vec<String> {
    let is_inside = |process: &Path| {
        ["net", "mnt", "pid"].iter().any(|kind| {
            let link = std::fs::read_link(process.join("ns").join(kind));
            link.is_ok_and(|link| namespaces.contains(link.to_str().unwrap_or_default()))
        })
    };
    let processes = std::fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    let inside = processes.filter(|process| is_inside(process));
    inside.map(|process| process.display().to_string()).collect()
}

/// roscore's children leave their group in the same manner.
#[test]
fn a_program_outside_its_group_does_not_delay_the_end() {
    let scenario =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/half-duplex-6mbps.yaml");
    let mut lab = Command::new("timeout");
    lab.arg(PATIENCE.as_secs().to_string()).args([LAB, "air", "--no-flows"]).arg(scenario);
    let output = lab.args(["--", "robot: setsid sleep 1000 & echo gone"]).output().unwrap();
    assert_ne!(output.status.code(), Some(124), "{}", text_of_output(&output));
    assert!(text_of_output(&output).contains("robot | gone"), "{}", text_of_output(&output));
}
