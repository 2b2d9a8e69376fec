// SPDX-License-Identifier: Apache-2.0
//! The notifications to systemd. The functions read the process's environment, so a child (this
//! program again) calls them and the parent acts as systemd.

use crate::PROGRAM;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command};
use std::time::Duration;
use tautline::status::Status;
use tautline_cli::control::Client;
use tautline_cli::service;
use tautline_testkit::again::this_test_alone;
use tautline_testkit::running;

const CHILD: &str = "TAUTLINE_TEST_IS_CHILD";
const DEADLINE: Duration = Duration::from_secs(120);

#[test]
fn systemd_hears_ready_alive_reloading_and_stopping() {
    if std::env::var_os(CHILD).is_some() {
        assert_eq!(service::watchdog_interval(), Some(Duration::from_secs(5)));
        service::notify_ready();
        service::notify_alive();
        service::notify_reloading();
        service::notify_stopping();
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify");
    let systemd = UnixDatagram::bind(&path).unwrap();
    systemd.set_read_timeout(Some(DEADLINE)).unwrap();
    let child = this_test_alone()
        .env(CHILD, "1")
        .env("NOTIFY_SOCKET", &path)
        .env("WATCHDOG_USEC", "10000000")
        .env_remove("WATCHDOG_PID")
        .output()
        .unwrap();
    assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stdout));
    for expected in ["READY=1", "WATCHDOG=1", "RELOADING=1\nMONOTONIC_USEC=", "STOPPING=1"] {
        let mut message = [0; 256];
        let length = systemd.recv(&mut message).unwrap();
        let found = String::from_utf8_lossy(&message[..length]).trim_end().to_owned();
        let is_whole = !expected.ends_with('=');
        assert!(found.starts_with(expected) && (!is_whole || found == expected), "{found}");
    }
}

#[test]
fn the_daemon_may_open_as_many_files_as_the_system_allows() {
    let place = running::Place::new(PROGRAM);
    let lines = format!("listen: \"127.0.0.1:{}\"", running::free_port());
    let file = place.write("robot", "robot", &lines);
    let log = std::fs::File::create(place.path("log")).unwrap();
    let mut limited = Command::new("prlimit");
    limited.args(["--nofile=64:512", PROGRAM, "run"]).arg(file);
    let mut daemon = limited.args(["--log", "debug"]).stderr(log).spawn().unwrap();
    let socket = place.path("robot.sock");
    running::wait_for("the daemon", || Client::connect(&socket).ok());
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", daemon.id())).unwrap();
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    let open_files = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let numbers: Vec<&str> = open_files.split_whitespace().skip(3).take(2).collect();
    assert_eq!(numbers, ["512", "512"]);
    let log = std::fs::read_to_string(place.path("log")).unwrap();
    assert!(log.contains("open files: raised"), "{log}");
}

const UNIT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/tautline.service");
const PACKAGING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging");
/// Maximum exposure that `systemd-analyze security` may report; 0 is the best, 10 the worst.
const MOST_EXPOSED: f64 = 1.5;

#[test]
fn the_unit_has_a_low_exposure_score() {
    let output = Command::new("systemd-analyze")
        .args(["security", "--offline=true", UNIT])
        .output()
        .expect("systemd-analyze is needed: make setup installs it (Debian: systemd)");
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.is_empty(), "{errors}{text}");
    let last = text.lines().last().unwrap();
    let level = last.split(": ").nth(1).and_then(|rest| rest.split(' ').next());
    let level: f64 = level.unwrap().parse().unwrap();
    assert!(level <= MOST_EXPOSED, "{text}");
}

/// What systemd reads of a file of packaging/.
fn settings(name: &str) -> String {
    let text = std::fs::read_to_string(format!("{PACKAGING}/{name}")).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| format!("{line}\n")).collect()
}

#[test]
fn further_daemons_run_under_the_same_unit() {
    let unit = settings("tautline.service")
        .replace("links\n", "links (%i)\n")
        .replace("/robot.yaml", "/%i.yaml")
        .replace("tautline-again.timer", "tautline-again@%i.timer");
    assert_eq!(settings("tautline@.service"), unit);
    let timer = settings("tautline-again.timer")
        .replace("Start Tautline again", "Start Tautline (%i) again")
        .replace("Unit=tautline.service", "Unit=tautline@%i.service");
    assert_eq!(settings("tautline-again@.timer"), timer);
}

/// The daemon in separate namespaces, confined as in its unit.
struct Confined {
    child: Child,
    place: running::Place,
}

impl Drop for Confined {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Confined {
    /// Starts with this file and `more` options of unshare; returns after the daemon has reported
    /// that it is ready.
    fn start(place: running::Place, more: &str, lines: &str) -> Self {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/service/confine.py");
        let [file, log, notify] = ["robot.yaml", "log", "notify"].map(|name| place.path(name));
        let control = place.path("robot.sock");
        let text = format!("name: robot\ncontrol: {}\n{lines}\n", control.display());
        std::fs::write(&file, text).unwrap();
        let systemd = UnixDatagram::bind(&notify).unwrap();
        systemd.set_read_timeout(Some(DEADLINE)).unwrap();
        let child = Command::new("unshare")
            .args(["--user", "--map-root-user", "--mount", "--pid", "--fork", "--kill-child"])
            // In a separate network, loopback is down at first.
            .args([more, "sh", "-c", "ip link set lo up 2>/dev/null; exec \"$@\"", "sh"])
            // Debian's Python has seccomp.
            .args(["/usr/bin/python3", script, UNIT, PROGRAM, "run"])
            .arg(&file)
            .env("NOTIFY_SOCKET", &notify)
            .stderr(std::fs::File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let daemon = Self { child, place };
        let mut message = [0; 256];
        let heard = systemd.recv(&mut message);
        let length = heard.unwrap_or_else(|error| panic!("{error}\n{}", daemon.log()));
        assert_eq!(String::from_utf8_lossy(&message[..length]).trim_end(), "READY=1");
        daemon
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.place.path("log")).unwrap()
    }

    fn status(&self) -> Status {
        let client = Client::connect(&self.place.path("robot.sock"));
        client.and_then(|mut client| client.status()).unwrap()
    }

    fn assert_content(&self) {
        let log = self.log();
        assert!(!log.contains("not permitted") && !log.contains("ERROR"), "{log}");
    }
}

/// Creates a key file for the daemon; returns the public key of another node.
fn make_keys(place: &running::Place) -> String {
    let [_, key] = ["robot.key", "base.key"].map(|name| {
        let mut keygen = Command::new(PROGRAM);
        let made = keygen.arg("keygen").arg(place.path(name)).output().unwrap();
        let said = String::from_utf8(made.stdout).unwrap();
        let key = said.split_whitespace().find(|word| word.len() == 44);
        key.unwrap_or_else(|| panic!("no key: {said}")).to_owned()
    });
    key
}

#[test]
fn the_daemon_runs_within_what_its_unit_allows() {
    let place = running::Place::new(PROGRAM);
    let key = make_keys(&place);
    let (listen, metrics) = (running::free_port(), running::free_port());
    let lines = format!(
        "listen: \"127.0.0.1:{listen}\"\nmetrics: 127.0.0.1:{metrics}\n\
         beacons: true\nros1: {{ master: \"http://127.0.0.1:1\" }}\n\
         peers: {{ base: {{ address: localhost, interface: lo, key: {key} }} }}"
    );
    let daemon = Confined::start(place, "--mount", &lines);
    assert_eq!(daemon.status().node, "robot");
    let page = running::wait_for("metrics", || {
        let mut stream = TcpStream::connect(("127.0.0.1", metrics)).ok()?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").ok()?;
        let mut page = String::new();
        stream.read_to_string(&mut page).ok()?;
        Some(page)
    });
    assert!(page.contains("200 OK"), "{page}");
    // The path to the peer is found, by name and on an interface.
    running::wait_for("a path", || {
        daemon.status().links.iter().any(|link| link.radio == "lo").then_some(())
    });
    daemon.assert_content();
}

#[test]
fn the_ros_2_daemon_runs_within_what_its_unit_allows() {
    let place = running::Place::new(PROGRAM);
    let key = make_keys(&place);
    let lines = format!(
        "ros2: {{ domain: 7 }}\npeers: {{ base: {{ address: 127.0.0.1, key: {key} }} }}\n\
         topics: {{ \"/**\": {{}} }}"
    );
    let daemon = Confined::start(place, "--net", &lines);
    assert!(daemon.status().gateways[0].connected);
    daemon.assert_content();
}
