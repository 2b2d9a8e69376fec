// SPDX-License-Identifier: Apache-2.0
//! Checks that this machine's kernel holds frames as `tautline-lab air` requires.
//!
//! Each test starts the program, which creates its own namespaces. Without the permission to do so
//! the test fails with the program's message.

use std::collections::HashSet;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

const LAB: &str = env!("CARGO_BIN_EXE_tautline-lab");
/// Time after which a required event counts as missing.
const PATIENCE: Duration = Duration::from_secs(20);

fn check(case: &str) {
    let output = Command::new(LAB).args(["air-check", case]).output().unwrap();
    let said = text(&output);
    assert!(output.status.success(), "{case}: {said}");
    println!("{said}");
}

fn text(output: &Output) -> String {
    let both = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8_lossy(&both).into_owned()
}

#[test]
fn ping_and_arp_are_held_and_pass() {
    check("ping");
}

#[test]
fn a_held_packet_stays_charged_to_its_socket() {
    check("back-pressure");
}

#[test]
fn what_is_discarded_is_lost_and_a_broadcast_reaches_only_chosen_radios() {
    check("verdicts");
}

#[test]
fn frames_are_known_by_radio() {
    check("radios");
}

#[test]
fn a_relay_with_one_radio_forwards() {
    check("relay");
}

#[test]
fn tcp_passes_intact_in_single_packets() {
    check("tcp");
}

#[test]
fn what_the_kernel_could_not_report_is_counted() {
    check("overrun");
}

#[test]
fn an_ordinary_user_needs_no_more_than_user_namespaces() {
    let folder = tempfile::tempdir().unwrap();
    let (lab, mut command) = if is_root() {
        // A folder that every user can read, unlike a build folder under /root.
        let lab = folder.path().join("tautline-lab");
        std::fs::copy(LAB, &lab).unwrap();
        make_readable(folder.path());
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
        (lab, command)
    } else {
        (LAB.into(), Command::new("env"))
    };
    let output = command.arg(lab).args(["air-check", "ping"]).output().unwrap();
    let said = text(&output);
    let refused = said.contains("needs network namespaces of its own and got none");
    assert!(output.status.success() || refused, "{said}");
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
fn killed_it_leaves_nothing() {
    let mut lab =
        Command::new(LAB).args(["air-check", "stay"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(lab.stdout.take().unwrap()).lines().map_while(Result::ok);
    let namespaces = said.find(|line| line.contains("net:[")).expect("it did not start");
    let namespaces: HashSet<&str> = namespaces.split(' ').collect();
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
fn a_program_that_leaves_its_group_does_not_hold_up_the_end() {
    let scenario =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/half-duplex-6mbps.yaml");
    let mut lab = Command::new("timeout");
    lab.arg(PATIENCE.as_secs().to_string()).args([LAB, "air", "--no-flows"]).arg(scenario);
    let output = lab.args(["--", "robot: setsid sleep 1000 & echo gone"]).output().unwrap();
    assert_ne!(output.status.code(), Some(124), "{}", text(&output));
    assert!(text(&output).contains("robot | gone"), "{}", text(&output));
}
