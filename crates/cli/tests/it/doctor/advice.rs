// SPDX-License-Identifier: Apache-2.0
//! What doctor says to somebody who has just installed the package, and what is not a finding.

use super::scene::{Scene, texts_of};
use super::{harm_of, standard_output};
use crate::PROGRAM;
use serde_json::Value as Json;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use tautline::status::{ClockReport, SteadyReport};

/// Installs the unit as the package does, in folders that end with the enclosure.
fn install(scene: &Scene) {
    let changes = scene.place.path("etc");
    std::fs::create_dir(&changes).unwrap();
    scene.robot.run(&format!("mount -t tmpfs tmpfs {}", changes.display()));
    let folders = ["changed", "work"].map(|it| changes.join(it).display().to_string());
    let [upper, work] = &folders;
    scene.robot.run(&format!("mkdir {upper} {work}"));
    scene.robot.run(&format!(
        "mount -t overlay overlay -o lowerdir=/etc,upperdir={upper},workdir={work} /etc"
    ));
    scene.robot.run("mount -t tmpfs tmpfs /run");
    scene.robot.run("mkdir -p /etc/systemd/system /etc/tautline");
    scene.robot.run("rm -f /etc/tautline/robot.yaml");
    let unit = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/tautline.service");
    scene.robot.run(&format!("cp {} /etc/systemd/system/", unit.display()));
}

#[test]
fn an_unpaired_or_stopped_service_is_reported_with_its_start_command() {
    let scene = Scene::new();
    install(&scene);
    let tautline = |arguments: &[&str]| {
        let mut command = scene.robot.command(PROGRAM);
        let output = command.args(arguments).env_remove("XDG_RUNTIME_DIR").output().unwrap();
        (standard_output(&output), output.status.code())
    };
    let (text, code) = tautline(&["doctor"]);
    let first = "not paired yet: sudo tautline pair (there is no /etc/tautline/robot.yaml)\n";
    assert!(text.starts_with(first), "{text}");
    for words in
        ["STOPS    file: not paired yet", "> sudo tautline pair  #", "> sudo tautline pair CODE"]
    {
        assert!(text.contains(words), "{words}: {text}");
    }
    assert_eq!(code, Some(3), "{text}");
    for command in ["status", "top", "reload"] {
        let (text, code) = tautline(&[command]);
        assert!(text.contains("not paired yet: sudo tautline pair"), "{command}: {text}");
        assert!(!text.contains("tautline run"), "{command}: {text}");
        assert_eq!(code, Some(1));
    }
    let (text, code) = tautline(&["check"]);
    assert!(text.contains(first.trim()) && code == Some(1), "{text}");
    let (text, code) = tautline(&["check", "--json"]);
    assert!(serde_json::from_str::<Json>(&text).unwrap()["error"].is_string() && code == Some(1));
    // The file is there, and the service was stopped.
    let file = scene.place.path("installed.yaml");
    std::fs::write(&file, "name: base\nros1: false\nsecurity: none\n").unwrap();
    scene.robot.run(&format!("cp {} /etc/tautline/robot.yaml", file.display()));
    let (text, code) = tautline(&["check"]);
    assert!(text.contains("/etc/tautline/robot.yaml is valid") && code == Some(0), "{text}");
    for command in ["doctor", "status", "top", "reload"] {
        let (text, _) = tautline(&[command]);
        assert!(text.contains("sudo systemctl start tautline"), "{command}: {text}");
        assert!(
            !text.contains("tautline run") && !text.contains("not paired"),
            "{command}: {text}"
        );
    }
    // The program reports nothing that this user cannot know.
    scene.robot.run("chmod 750 /etc/tautline");
    let mut command = scene.robot.command("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
    let text = standard_output(&command.args([PROGRAM, "check"]).output().unwrap());
    assert_eq!(text, "this user may not read /etc/tautline/robot.yaml: sudo tautline check\n");
}

#[test]
fn a_daemon_of_another_user_is_detected() {
    let scene = Scene::new();
    let daemon = scene.place.start_as(
        "robot1",
        "robot1",
        "ros1: false\nsecurity: none\n# key: none",
        Some(&scene.robot),
    );
    let file = scene.place.path("robot1.yaml");
    let read = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    read(&file, 0o644);
    read(&scene.place.path(""), 0o755);
    let doctor = || {
        let mut command = scene.robot.command("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
        command.args([PROGRAM, "doctor"]).arg(&file);
        standard_output(&command.output().unwrap())
    };
    let text = doctor();
    let reason = "this user may not use the daemon's control socket: sudo tautline doctor";
    assert!(text.contains(reason), "{text}");
    for untrue in ["no daemon answers", "does not answer\n", "is in use by", "systemctl start"] {
        assert!(!text.contains(untrue), "{untrue}: {text}");
    }
    drop(daemon);
}

#[test]
fn a_clock_without_ntp_is_a_note_while_the_clocks_of_peers_agree() {
    let mut scene = Scene::new();
    scene.program("timedatectl", "no");
    assert_eq!(harm_of(&scene.findings(), "clock").as_deref(), Some("delays"));
    for (offset_ms, harm) in [(Some(0.4), "note"), (Some(400.0), "delays"), (None, "delays")] {
        let clock = ClockReport { offset_ms, bound_ms: 0.8, drift_ppm: None };
        scene.change_status(|it| it.peers[0].clock = Some(clock));
        assert_eq!(harm_of(&scene.findings(), "clock").as_deref(), Some(harm), "{offset_ms:?}");
    }
}

#[test]
fn losses_of_an_interruption_do_not_count_as_losses_of_the_link() {
    let mut scene = Scene::new();
    for (acked_packets, lost_packets, is_found) in
        [(500, 2, false), (10, 9, false), (500, 50, true)]
    {
        scene.change_status(|it| {
            it.links[0].loss = 0.09;
            it.links[0].steady = Some(SteadyReport { seconds: 25.0, acked_packets, lost_packets });
        });
        let texts = texts_of(&scene.findings(), "loss").join("");
        assert_eq!(texts.contains("for 25 s"), is_found, "{texts}");
    }
}

#[test]
fn a_peer_with_a_wrong_key_is_not_pinged() {
    let mut scene = Scene::new();
    let notice = "handshakes from 10.77.0.2 are for another key than that of 'robot1': the key of \
                  'robot1' in the file of the node at 10.77.0.2 is wrong, or only one of the two has \
                  'security: none'";
    scene.change_status(|it| {
        it.peers[0].state = "down".into();
        it.notices.push(notice.into());
    });
    let found = scene.findings();
    let text = texts_of(&found, "peer-down").join("");
    assert!(text.contains("see 'peer-key'") && !text.contains("ping"), "{text}");
    assert!(!text.contains("another key"), "{text}");
    let text = texts_of(&found, "peer-key").join("");
    assert!(text.contains("another key") && !text.contains("NAME.key  #"), "{text}");
}

#[test]
fn a_refused_topic_that_is_no_longer_published_is_no_finding() {
    let mut scene = Scene::new();
    let refusal =
        "'base' refuses /gone (a/B): add there, under peers.robot1: accept: { /gone: any }";
    scene.change_status(|it| it.notices.push(refusal.into()));
    assert_eq!(texts_of(&scene.findings(), "refused-there"), [""; 0]);
}
