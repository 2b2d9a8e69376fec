// SPDX-License-Identifier: Apache-2.0
//! The audit log of real daemons.

use crate::PROGRAM;
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::net::UdpSocket;
use std::process::{Command, Stdio};
use tautline_proto::SecretKey;
use tautline_proto::wire::frame::put_goodbye;
use tautline_testkit::running::hostile::{call, meet, offer_command, send};
use tautline_testkit::running::{Place, free_port};

const COMMON_FIELDS: [&str; 3] = ["time", "event", "peer"];

fn tautline(arguments: &[&str]) -> (bool, String) {
    let program = PROGRAM;
    let output = Command::new(program).args(arguments).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(text).unwrap())
}

/// Checks that the reference describes every record and all its fields.
fn assert_described(records: &[Value]) {
    for record in records {
        let event = record["event"].as_str().unwrap();
        let described = tautline::audit::EVENTS.iter().find(|it| it.name == event);
        let described = described.unwrap_or_else(|| panic!("{record}"));
        for key in record.as_object().unwrap().keys() {
            let is_known = described.fields().any(|(name, _)| name == key);
            assert!(is_known || COMMON_FIELDS.contains(&&**key), "{key} of {record}");
        }
    }
}

#[test]
fn arrivals_departures_refusals_and_changes_are_recorded() {
    let (place, base_port) = (Place::new(PROGRAM), free_port());
    let path = place.path("base.audit");
    let audit = "audit: { file: base.audit }";
    let file = format!("listen: \"127.0.0.1:{base_port}\"\npeers: {{ robot: {{}} }}\n{audit}");
    let mut base = place.start("base", &file);

    let started = base.wait_for_record(&path, "started", None);
    assert_eq!((&started["node"], &started["pid"]), (&"base".into(), &base.pid().into()));
    let written = place.path("base.yaml");
    let sum = Command::new("sha256sum").arg(&written).output().unwrap().stdout;
    assert_eq!(started["sha256"], String::from_utf8(sum).unwrap()[..64]);
    assert_eq!(started["file"], written.display().to_string());

    let mut robot = meet("robot", "base", base_port);
    let came = base.wait_for_record(&path, "came", Some("robot"));
    assert_eq!(came["key"], SecretKey::insecure("robot").public().to_string());
    assert_eq!(came["session"], "new");
    assert!(came["address"].as_str().unwrap().starts_with("127.0.0.1:"), "{came}");
    offer_command(&mut robot, 1, "/cmd_vel");
    let refused = base.wait_for_record(&path, "refused", Some("robot"));
    assert_eq!((&refused["kind"], &refused["name"]), (&"topic".into(), &"/cmd_vel".into()));
    assert_eq!(refused["type"], "geometry_msgs/Twist");
    send(&mut robot, put_goodbye);
    assert_eq!(base.wait_for_record(&path, "went", Some("robot"))["reason"], "goodbye");

    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    let call = call("nobody\u{1b}[2J", "base");
    stranger.send_to(&call, ("127.0.0.1", base_port)).unwrap();
    let found = base.wait_for_record(&path, "handshake_refused", None);
    assert_eq!(
        (&found["reason"], &found["name"]),
        (&"unknown_key".into(), &"nobody\\u{1b}[2J".into())
    );
    assert_eq!(found["address"], stranger.local_addr().unwrap().to_string());

    let control = base.control.display().to_string();
    let (done, _) = tautline(&["set", "--control", &control, "/nowhere", "priority=9"]);
    assert!(!done, "without ROS there are no topics");
    let refused = base.wait_for_record(&path, "change_refused", None);
    assert!(refused["reason"].as_str().unwrap().ends_with("this node sends no topics"));
    let uid = Command::new("id").arg("-u").output().unwrap().stdout;
    let uid: u64 = String::from_utf8(uid).unwrap().trim().parse().unwrap();
    assert_eq!((&refused["by"], &refused["uid"]), (&"user".into(), &uid.into()));

    base.terminate();
    assert!(base.wait_for_end().success());
    let records = base.audit_records(&path);
    assert_eq!(records.last().unwrap()["event"], "stopped");
    assert_described(&records);
    assert_printed(&path.display().to_string(), records.len());
}

/// Checks the output of `tautline audit` for the log.
fn assert_printed(path: &str, records: usize) {
    let (done, text) = tautline(&["audit", path]);
    assert!(done && text.lines().count() == records, "{text}");
    let (_, text) =
        tautline(&["audit", path, "--peer", "robot", "--event", "went", "--event", "refused"]);
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 2, "{text}");
    assert!(lines[0].contains("  refused ") && lines[0].contains("name=/cmd_vel"), "{text}");
    assert!(lines[1].ends_with("  went               robot  reason=goodbye"), "{text}");
    let (done, text) = tautline(&["audit", path, "--event", "wnet"]);
    assert!(!done && text.contains("went"), "{text}");
}

#[test]
fn a_flood_of_strangers_does_not_exclude_peers_from_the_audit_log() {
    let (place, port) = (Place::new(PROGRAM), free_port());
    let path = place.path("base.audit");
    let file = format!(
        "listen: \"127.0.0.1:{port}\"\npeers: {{ robot: {{}} }}\naudit: {{ file: base.audit }}"
    );
    let mut base = place.start("base", &file);
    let flood = UdpSocket::bind("127.0.0.1:0").unwrap();
    // Under flood an initiation needs a cookie; the initiations before that are enough here.
    for number in 0..400 {
        let name = format!("stranger{number}");
        flood.send_to(&call(&name, "base"), ("127.0.0.1", port)).unwrap();
        base.status();
    }
    base.wait_for_record(&path, "handshake_refused", None);
    let _robot = meet("robot", "base", port);
    base.wait_for_record(&path, "came", Some("robot"));
    let (seconds, log) = (base.status().uptime_s, base.log());
    base.terminate();
    base.wait_for_end();
    let records = base.audit_records(&path);
    let refused = records.iter().filter(|it| it["event"] == "handshake_refused").count();
    assert!(refused <= 15 * (1 + (seconds / 600.0) as usize), "{refused} records");
    assert!(records.iter().any(|it| it["event"] == "left_out" && it["about"] == "strangers"));
    let lines = log.lines().filter(|line| line.contains("stranger")).count();
    assert!(lines <= 6 * (1 + (seconds / 30.0) as usize), "{lines} lines in {seconds} s");
}

#[test]
fn a_log_that_cannot_be_opened_is_a_clear_error() {
    let place = Place::new(PROGRAM);
    let (file, control) = (place.path("robot.yaml"), place.path("robot.sock"));
    let lines = "name: robot\nsecurity: none\nros1: false\naudit: { file: /proc/none/robot.audit }";
    std::fs::write(&file, format!("{lines}\ncontrol: {}\n", control.display())).unwrap();
    let (done, text) = tautline(&["run", &file.display().to_string()]);
    assert!(
        !done && text.contains("/proc/none/robot.audit") && text.contains("audit: false"),
        "{text}"
    );
}

#[test]
fn a_log_is_followed_into_the_next_file() {
    let place = Place::new(PROGRAM);
    let path = place.path("robot.audit");
    let line = |address: &str| {
        format!("{{\"time\":\"t\",\"peer\":\"p\",\"event\":\"moved\",\"address\":\"{address}\"}}\n")
    };
    std::fs::write(place.path("robot.audit.1"), line("older")).unwrap();
    let (start, end) = (line("torn"), line("torn")[20..].to_owned());
    std::fs::write(&path, line("first") + &start[..20]).unwrap();
    let program = PROGRAM;
    let mut command = Command::new(program);
    let mut reader =
        command.arg("audit").arg(&path).arg("--follow").stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(reader.stdout.take().unwrap()).lines();
    let mut next = || lines.next().unwrap().unwrap();
    assert!(next().ends_with("address=older"));
    assert!(next().ends_with("address=first"));
    let mut file = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
    file.write_all(end.as_bytes()).unwrap();
    assert_eq!(next(), "t  moved              p  address=torn");
    std::fs::rename(&path, place.path("robot.audit.2")).unwrap();
    file.write_all(line("last").as_bytes()).unwrap();
    std::fs::write(&path, line("new")).unwrap();
    assert!(next().ends_with("address=last"));
    assert!(next().ends_with("address=new"));
    reader.kill().unwrap();
    reader.wait().unwrap();
}
