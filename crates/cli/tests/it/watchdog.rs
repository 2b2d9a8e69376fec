// SPDX-License-Identifier: Apache-2.0
//! A robot whose commands stop arriving, with real masters, rospy nodes and two daemons.

use crate::PROGRAM;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};
use tautline_proto::wire::frame::{put_goodbye, put_ping};
use tautline_testkit::ros::ros1;
use tautline_testkit::ros::ros1::Master;
use tautline_testkit::ros::{Agent, bytes_of, free_port, wait_for};
use tautline_testkit::running;
use tautline_testkit::running::hostile::{meet, offer_command, send};
use tautline_testkit::running::{Daemon, Place};

const TWIST: &str = "geometry_msgs/Twist";
const NAME: &str = "/cmd_vel";

/// A base that drives a robot.
struct Team {
    robot: Daemon,
    base: Daemon,
    /// Node at the base.
    driver: Agent,
    /// Node on the robot.
    wheels: Agent,
    robot_port: u16,
    _masters: [Master; 2],
    place: Place,
}

impl Team {
    /// Starts a robot that is already driving; `message` is the safe message of its watchdog.
    fn start_driving(message: &str) -> Self {
        Self::start_driving_with(message, "", "")
    }

    /// Starts such a robot, with more peers of the robot and lines of its file.
    fn start_driving_with(message: &str, peers: &str, lines: &str) -> Self {
        let place = Place::new(PROGRAM);
        let masters = [(); 2].map(|()| Master::start_alone(free_port()));
        let [robot_port, base_port] = [(); 2].map(|()| running::free_port());
        let file = |listen: u16, master: &Master, lines: &str| {
            format!(
                "listen: \"127.0.0.1:{listen}\"\n\
                 ros1: {{ master: \"{}\", host: 127.0.0.1 }}\n{lines}",
                master.uri
            )
        };
        let robot = format!(
            "peers: {{ base: {{ address: \"127.0.0.1:{base_port}\", accept: {NAME} }} {peers} }}\n\
             watchdogs: {{ {NAME}: {{ after: 500ms, message: {message} }} }}\n{lines}"
        );
        let base = format!(
            "peers: {{ robot: \"127.0.0.1:{robot_port}\" }}\n\
             topics: {{ {NAME}: {{ priority: 255, keep_last: 1, lifespan: 200ms }} }}"
        );
        let robot = place.start("robot", &file(robot_port, &masters[0], &robot));
        let base = place.start("base", &file(base_port, &masters[1], &base));
        let mut wheels = ros1::start(&masters[0].uri, "/wheels");
        wheels.subscribe(NAME, TWIST);
        let mut driver = ros1::start(&masters[1].uri, "/driver");
        driver.advertise(NAME, TWIST, false);
        wait_for("a command that arrives", || {
            let command = json!({ "linear": { "x": 0.5 }, "angular": { "z": -1.0 } });
            let sent = driver.send(NAME, command);
            last_command(&wheels).filter(|got| *got == sent)
        });
        Self { robot, base, driver, wheels, robot_port, _masters: masters, place }
    }
}

/// Returns the bytes of the last command that the wheels have received.
fn last_command(wheels: &Agent) -> Option<Vec<u8>> {
    wheels.received(NAME).last().map(|report: &Value| bytes_of(report))
}

/// Waits until the wheels have received this command, as many times as the robot's daemon reports.
fn assert_safe_message_received(wheels: &Agent, robot: &Daemon, expected: &[u8]) {
    wait_for("the safe message", || last_command(wheels).filter(|got| got == expected));
    robot.wait_for_notice(&[NAME, "no message from peers for 500ms", "was published"]);
    let status = robot.status();
    let [watchdog] = &status.watchdogs[..] else { panic!("{:?}", status.watchdogs) };
    assert_eq!((&*watchdog.topic, &*watchdog.state), (NAME, "silent"));
    // Once, unless a busy machine caused an earlier timeout.
    let safe = wheels.received(NAME).iter().filter(|got| bytes_of(got) == expected).count();
    assert_eq!(safe as u64, watchdog.published);
}

#[test]
fn zeros_reach_the_wheels_when_the_driver_is_killed() {
    let Team { robot, driver, wheels, .. } = &mut Team::start_driving("{}");
    driver.signal("-KILL");
    assert_safe_message_received(wheels, robot, &[0; 48]);
}

#[test]
fn the_safe_message_reaches_the_wheels_when_the_daemon_is_killed() {
    let team = Team::start_driving("{ linear: { x: -0.1 } }");
    let creep = [&(-0.1_f64).to_le_bytes()[..], &[0; 40]].concat();
    team.base.kill();
    assert_safe_message_received(&team.wheels, &team.robot, &creep);
}

/// A guard that sets the flag when dropped.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Connects, disconnects and advertises commands that it may not send, as fast as the daemon reads.
fn misbehave(robot: &Daemon, port: u16, stop: &AtomicBool) -> u64 {
    let mut flaps = 0;
    while !stop.load(Ordering::Relaxed) {
        let mut worst = meet("worst", "robot", port);
        for round in 0..10 {
            for turn in 0..20 {
                offer_command(&mut worst, 1 + round * 20 + turn, &format!("/t{round}_{turn}"));
            }
            // When the status arrives, the daemon's loop has read the earlier packets.
            robot.status();
        }
        for _ in 0..20 {
            send(&mut worst, put_goodbye);
            send(&mut worst, put_ping);
            flaps += 1;
        }
    }
    flaps
}

/// Returns the maximum lines of the log and records that a single peer may cause in `seconds`, as
/// documented in docs/reference/audit.md.
fn bounds(seconds: f64) -> (usize, usize) {
    let lines = 2 * (20 + 1) * (1 + (seconds / 30.0) as usize);
    (lines, (120 + 16) * (1 + (seconds / 600.0) as usize))
}

#[test]
fn a_safe_message_is_reported_despite_many_other_events() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("robot.audit");
    let audit = format!("audit: {{ file: {} }}", path.display());
    let mut team = Team::start_driving_with("{}", ", worst: {}", &audit);
    let (robot, stop) = (&team.robot, AtomicBool::new(false));
    let flaps = std::thread::scope(|scope| {
        let worst = scope.spawn(|| misbehave(robot, team.robot_port, &stop));
        // The guard also stops the peer if the test fails, which would otherwise wait for it.
        let stopped = Stop(&stop);
        robot.wait_for_record(&path, "refused", Some("worst"));
        robot.wait_for_notice(&["'worst'", "publishes it only if its file allows it"]);
        // The peer's quotas are exhausted.
        wait_for("line after line", || (robot.log().matches("worst").count() > 20).then_some(()));
        team.driver.signal("-KILL");
        assert_safe_message_received(&team.wheels, robot, &[0; 48]);
        let safe = robot.wait_for_record(&path, "safe_message", None);
        assert_eq!((&safe["topic"], &safe["silence_ms"]), (&NAME.into(), &500.into()));
        assert_eq!(safe["published"], true);
        drop(stopped);
        worst.join().unwrap()
    });
    let (seconds, log) = (robot.status().uptime_s, robot.log());
    robot.terminate();
    team.robot.wait_for_end();
    let (most_lines, most_records) = bounds(seconds);
    let lines = log.lines().filter(|line| line.contains("worst")).count();
    assert!(lines <= most_lines, "{lines} lines after {flaps} flaps in {seconds} s");
    let records = team.robot.audit_records(&path);
    let of_worst = records.iter().filter(|it| it["peer"] == "worst").count();
    assert!(of_worst <= most_records, "{of_worst} records after {flaps} flaps in {seconds} s");
    let left_out = records.iter().find(|it| it["event"] == "left_out").expect("a sum");
    assert_eq!(left_out["about"], "'worst'");
    let ends = [&records[0], &records[records.len() - 1]].map(|it| it["event"].clone());
    assert_eq!(ends, ["started", "stopped"]);
    drop(team.place);
}
