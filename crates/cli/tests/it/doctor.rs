// SPDX-License-Identifier: Apache-2.0
//! `tautline doctor` on a robot in a namespace, on which faults are planted. Needs root, nft and iptables,
//! ROS 1 of Debian, and `make ros2`.

mod advice;
mod rows;
mod scene;

use crate::PROGRAM;
use rows::ROWS;
use scene::{BASE, Scene, texts_of};
use serde_json::Value as Json;
use std::collections::BTreeSet;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Output;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tautline_cli::control::ControlServer;
use tautline_cli::doctor::CHECKS;
use tautline_testkit::running::node::Running;
use tautline_testkit::running::wait_for;

/// The checks that found harm.
fn harmful(findings: &Json) -> BTreeSet<String> {
    let all = findings["findings"].as_array().unwrap().iter();
    let harmful = all.filter(|it| ["stops", "delays"].contains(&it["harm"].as_str().unwrap()));
    harmful.map(|it| it["check"].as_str().unwrap().to_owned()).collect()
}

/// Programs in the advice of doctor that only root may use.
const ROOT_PROGRAMS: [&str; 23] = [
    "apt",
    "chmod",
    "chown",
    "cp",
    "firewall-cmd",
    "ip",
    "ip6tables",
    "iptables",
    "iw",
    "journalctl",
    "mkdir",
    "nft",
    "nmcli",
    "rfkill",
    "setcap",
    "sysctl",
    "systemctl",
    "tautline",
    "tee",
    "ufw",
    "netfilter-persistent",
    "du",
    "dhclient",
];

/// The commands of fixes that need sudo and lack it. `tautline run` needs none.
fn without_sudo(findings: &Json) -> Vec<String> {
    let all = findings["findings"].as_array().unwrap().iter();
    let fixes = all.flat_map(|it| it["fix"].as_array().unwrap()).map(|it| it.as_str().unwrap());
    let commands = fixes.flat_map(|it| {
        let command = it.split("  # ").next().unwrap();
        command.split(['|', ';', ':', '&']).map(str::trim).collect::<Vec<_>>()
    });
    let is_bare = |it: &&str| {
        let mut words = it.split(' ');
        words.next().is_some_and(|it| ROOT_PROGRAMS.contains(&it)) && words.next() != Some("run")
    };
    commands.filter(is_bare).map(|it| format!("without sudo: {it}")).collect()
}

#[test]
fn each_check_has_a_planted_fault() {
    let planted: BTreeSet<&str> = ROWS.iter().map(|row| row.check).collect();
    let checks: BTreeSet<&str> = CHECKS.iter().map(|check| check.name).collect();
    assert_eq!(planted, checks);
    assert_eq!(checks.len(), CHECKS.len(), "two checks of one name");
    assert!(ROWS.len() >= 20);
}

#[test]
fn each_planted_fault_is_found_with_its_fix_and_nothing_else() {
    let mut scene = Scene::new();
    let healthy = scene.findings();
    assert!(harmful(&healthy).is_empty(), "{healthy:#}");
    let mut problems = Vec::new();
    for row in ROWS {
        let named = texts_of(&healthy, row.check);
        let is_named = |text: &String| row.texts.iter().all(|it| text.contains(it));
        assert!(!named.iter().any(is_named), "{} is found without it: {named:?}", row.name);
    }
    for row in ROWS {
        (row.plant)(&mut scene);
        let found = scene.findings();
        let of_check = texts_of(&found, row.check);
        let is_named = |text: &String| row.texts.iter().all(|it| text.contains(it));
        if !of_check.iter().any(is_named) {
            problems
                .push(format!("{}: {:?} not in {of_check:?} of {found:#}", row.name, row.texts));
        }
        let others = harmful(&found)
            .into_iter()
            .filter(|it| it != row.check && !row.also.contains(&it.as_str()));
        problems.extend(without_sudo(&found).into_iter().map(|it| format!("{}: {it}", row.name)));
        problems
            .extend(others.map(|it| {
                format!("{}: finds {it} as well: {:?}", row.name, texts_of(&found, &it))
            }));
        scene.reset();
    }
    let healed = scene.findings();
    assert!(harmful(&healed).is_empty(), "{healed:#}");
    assert!(problems.is_empty(), "{} problems\n{}", problems.len(), problems.join("\n"));
}

fn standard_output(output: &Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    format!("{}{errors}", String::from_utf8_lossy(&output.stdout))
}

/// Real daemons at both ends, with keys and a real master.
#[test]
fn a_robot_with_a_running_daemon_is_healthy_and_its_base_can_be_tested() {
    let scene = Scene::new();
    let lines = |scene: &Scene, peer: usize, rest: &str| {
        let name = ["robot1", "base"][peer];
        format!("peers: {{ {name}: {{ key: {}{rest} }} }}", scene.keys[peer])
    };
    let to_base = lines(&scene, 1, &format!(", address: {BASE}"));
    let ros1 = "ros1: { master: http://127.0.0.1:11311, host: 127.0.0.1 }";
    let robot = format!("{ros1}\ntopics: {{ /scan: {{}} }}\n{to_base}");
    let robot = scene.place.start_as("robot1", "robot1", &robot, Some(&scene.robot));
    let base = lines(&scene, 0, "");
    let base = scene.place.start_as("base", "base", &base, Some(&scene.base));
    robot.wait_for_state("base", "up");
    let file = scene.place.path("robot1.yaml");
    let output = scene.command().arg(&file).output().unwrap();
    let text = standard_output(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    for words in ["robot1: ", "the daemon", "runs for", "ROS 1: master at", "checks passed"] {
        assert!(text.contains(words), "{words}: {text}");
    }
    // A launcher started the daemon, so its user is that of the process, and not that of the unit.
    let command = format!("ExecStart=/usr/bin/tautline run {}", file.display());
    let unit = "/etc/systemd/system/tautline.service";
    scene.plant(unit, &format!("[Service]\nUser=nobody\n{command}\n"));
    scene.plant("/etc/passwd", "root:x:0:0::/root:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n");
    scene.program("systemctl", "inactive");
    let output = scene.command().arg(&file).arg("--json").output().unwrap();
    let found: Json = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(texts_of(&found, "key-file"), [""; 0], "{found:#}");
    assert_eq!(texts_of(&found, "unit"), [""; 0], "{found:#}");
    // For another file with the same port, the daemon is another program that has the port.
    let other = scene.place.path("other.yaml");
    let lines = "name: other\nsecurity: none\nros1: false\n";
    std::fs::write(&other, format!("{lines}control: {}\n", other.with_extension("sock").display()))
        .unwrap();
    let output = scene.command().arg(&other).arg("--json").output().unwrap();
    let found: Json = serde_json::from_slice(&output.stdout).unwrap();
    let texts = texts_of(&found, "port").join("");
    assert!(texts.contains("another daemon") && texts.contains("robot1.yaml"), "{found:#}");
    // Without a file on the command line, doctor reads the file of the daemon.
    if !std::path::Path::new("/etc/tautline/robot.yaml").exists() {
        let text = standard_output(&scene.command().output().unwrap());
        assert!(text.contains("robot1.yaml; the daemon"), "{text}");
    }
    let output = scene.command().arg(&file).args(["--peer", "base", "--seconds", "5"]).output();
    let text = standard_output(&output.unwrap());
    for words in ["Peer base: up", "direct, no address translator", "MTU", "round trip", "rate:"] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let output = scene.command().arg(&file).args(["--peer", "bass"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        standard_output(&output).contains("no peer 'bass'; its peers: base"),
        "{}",
        standard_output(&output)
    );
    drop(base);
    robot.wait_for_state("base", "down");
    let output = scene.command().arg(&file).output().unwrap();
    let text = standard_output(&output);
    assert_eq!(output.status.code(), Some(3), "{text}");
    assert!(
        text.contains("peer 'base' is 'down'") && text.contains("ping -c 3 10.77.0.2"),
        "{text}"
    );
}

/// Real daemons of ROS 2: their own participants do not count as ROS of the robot.
#[test]
fn a_robot_with_ros2_is_healthy_once_a_node_runs() {
    let mut scene = Scene::new();
    let lines = "ros1: false\nros2: { domain: 3 }\nsecurity: none\n# key: none";
    let daemon = scene.place.start_as("robot2", "robot2", lines, Some(&scene.robot));
    let file = scene.place.path("robot2.yaml");
    let look = |scene: &Scene| {
        let output = scene.command().arg(&file).arg("--json").output().unwrap();
        serde_json::from_slice::<Json>(&output.stdout)
            .unwrap_or_else(|_| panic!("{}", standard_output(&output)))
    };
    let alone = look(&scene);
    assert_eq!(harmful(&alone), BTreeSet::from(["ros".to_owned()]), "{alone:#}");
    scene.rclpy(&[("ROS_DOMAIN_ID", "3")], true);
    let both = look(&scene);
    assert!(harmful(&both).is_empty(), "{both:#}");
    drop(daemon);
}

/// The harm that a check found, if it found one.
fn harm_of(findings: &Json, check: &str) -> Option<String> {
    let mut all = findings["findings"].as_array().unwrap().iter();
    let found = all.find(|it| it["check"] == check)?;
    Some(found["harm"].as_str().unwrap().to_owned())
}

#[test]
fn a_firewall_stops_only_peers_that_must_initiate() {
    let mut scene = Scene::new();
    let policy = "add table inet own\n\
         add chain inet own in { type filter hook input priority 0; policy drop; }\n\
         add rule inet own in iifname lo accept";
    let established = "add rule inet own in ct state established,related accept";
    let harm = |scene: &Scene, rules: &[&str]| {
        scene.robot.nft(&[&[policy], rules].concat().join("\n"));
        let found = harm_of(&scene.findings(), "firewall");
        scene.robot.nft("flush ruleset");
        found
    };
    let usual = scene.status.clone();
    let near = "add rule inet own in ip saddr 10.77.0.0/24 accept";
    for is_up in [true, false] {
        let mut status = usual.clone().unwrap();
        status.peers[0].state = if is_up { "up" } else { "down" }.into();
        let stops = |it: bool| Some(if it { "stops" } else { "note" }.to_owned());
        // The robot calls the base, and needs only its answers.
        scene.file = scene.usual_file(BASE);
        scene.status = Some(status);
        assert_eq!(harm(&scene, &[established]), stops(false));
        assert_eq!(harm(&scene, &[]), stops(!is_up));
        assert_eq!(harm(&scene, &[near]), None);
        // The base calls the robot, from an address that the robot does not know.
        scene.file = scene.file.replace(&format!("address: {BASE}, "), "");
        assert_eq!(harm(&scene, &[established]), stops(!is_up));
        assert_eq!(harm(&scene, &[established, near]), None);
        let other = "add rule inet own in ip saddr 10.1.0.0/24 accept";
        assert!(harm(&scene, &[established, other]).is_none());
    }
}

#[test]
fn one_broken_link_of_several_is_a_note() {
    let mut scene = Scene::new();
    scene.change_status(|it| it.peers[0].state = "down".into());
    let links = |more: &str| {
        format!("links: [{{ address: {BASE}, interface: eth99 }}{more}], prefix: /base")
    };
    let usual = scene.file.clone();
    let one = format!("address: {BASE}, prefix: /base");
    scene.file = usual.replace(&one, &links(""));
    assert_eq!(harm_of(&scene.findings(), "link-down").as_deref(), Some("stops"));
    scene.file = usual.replace(&one, &links(&format!(", {{ address: {BASE}, interface: wlan0 }}")));
    assert_eq!(harm_of(&scene.findings(), "link-down").as_deref(), Some("note"));
}

#[test]
fn an_arp_answer_of_this_machine_is_no_conflict() {
    let scene = Scene::new();
    scene.plant("/sys/class/net/eth9/address", "9c:c9:eb:00:00:09");
    scene.program("arping", "Unicast reply from 10.77.0.1 [9C:C9:EB:00:00:09]  0.7ms");
    let found = scene.findings();
    assert_eq!(harm_of(&found, "duplicate-address"), None);
    assert!(found["not_made"].to_string().contains("arp_ignore"), "{found:#}");
}

/// A link of 2 Mbps, on which images of 5 Mbps are published alongside a laser.
#[test]
fn the_test_of_a_peer_shows_the_plan_of_topics() {
    let scene = Scene::new();
    let topics = "topics: { /scan: { priority: 200, keep_last: 100 }, /image: { priority: 20 }, /quiet: {}, /goal: {} }\n\
                  peers: { base: { address: 10.77.0.2 } }";
    let robot = Running::start_in(Some(&scene.robot), "robot1", topics);
    let accept = "peers: { robot1: { address: 10.77.0.1, accept: { /scan: any, /image: any, /quiet: any, /goal: geometry_msgs/Pose } } }";
    let base = Running::start_in(Some(&scene.base), "base", accept);
    for topic in ["/scan", "/image", "/quiet"] {
        robot.offer(topic);
    }
    robot.advertise("/goal", "geometry_msgs/PoseStamped");
    wait_for("a refusal", || {
        robot.status().notices.iter().any(|it| it.contains("/goal")).then_some(())
    });
    let control = scene.place.path("node.sock");
    let _server = ControlServer::start(&control, Arc::new(robot.handle.clone())).unwrap();
    let test = |publish: &dyn Fn()| {
        let mut command = scene.command();
        command.arg("--control").arg(&control).args(["--peer", "base", "--seconds", "6", "--json"]);
        let mut child =
            command.stdout(std::process::Stdio::piped()).spawn().expect("doctor starts");
        wait_for("the end of the test", || {
            publish();
            child.try_wait().unwrap()
        });
        let found: Json =
            serde_json::from_slice(&child.wait_with_output().unwrap().stdout).unwrap();
        let refused = texts_of(&found, "refused-there").join("");
        assert!(
            refused.contains("'base' refuses /goal (") && refused.contains("sudo"),
            "{found:#}"
        );
        found["peer"].clone()
    };
    let words = |test: &Json, topic: &str| {
        let all = test["topics"].as_array().unwrap();
        let found = all.iter().find(|it| it["topic"] == topic);
        found.unwrap_or_else(|| panic!("{topic}: {test:#}"))["words"].as_str().unwrap().to_owned()
    };
    // The limit of images per second: wait_for calls every 20 ms.
    let mut next = Instant::now();
    let next = std::cell::RefCell::new(&mut next);
    let publish = |image: usize| {
        let due = **next.borrow() <= Instant::now();
        if due {
            robot.publish("/scan", 400);
            robot.publish("/image", image);
            **next.borrow_mut() = Instant::now() + Duration::from_millis(50);
        }
    };
    let idle = test(&|| publish(3000));
    assert!(words(&idle, "/scan").starts_with("arrives"), "{idle:#}");
    assert!(words(&idle, "/image").starts_with("arrives"), "{idle:#}");
    assert!(words(&idle, "/quiet").contains("nothing was published"), "{idle:#}");
    let refused = words(&idle, "/goal");
    assert!(refused.starts_with("not accepted there") && refused.contains("accept"), "{idle:#}");
    let shape = "qdisc add dev wlan0 root tbf rate 2mbit burst 6kb latency 300ms";
    scene.robot.run(&format!("tc {shape}"));
    // The rate of the link is known once it was full.
    wait_for("dropped images", || {
        publish(32_000);
        let image = robot.sent("/image").unwrap();
        image.given_up.filter(|it| it.share() > 0.3)
    });
    let full = test(&|| publish(32_000));
    assert!(words(&full, "/scan").starts_with("arrives in about"), "{full:#}");
    assert!(words(&full, "/image").contains("dropped in the last"), "{full:#}");
    let path = full["path"].to_string();
    assert!(path.contains("paced by"), "{full:#}");
    robot.stop();
    base.stop();
}

#[test]
fn skipped_checks_are_listed_with_their_requirements() {
    let scene = Scene::new();
    // The interface is no Wi-Fi. An installed iw fails for it; otherwise, no iw is found.
    std::fs::remove_file(scene.place.path("programs/iw")).unwrap();
    let found: Json = serde_json::from_slice(&scene.doctor(&["--json"]).stdout).unwrap();
    let not_made = found["not_made"].as_array().unwrap();
    let of_wifi = not_made.iter().find(|it| it["check"] == "wifi-power-save").unwrap();
    assert!(of_wifi["text"].as_str().unwrap().contains("iw"), "{of_wifi}");
    let mut command = scene.robot.command("setpriv");
    command.args(["--reuid", "65534", "--clear-groups", PROGRAM, "doctor"]);
    let text = standard_output(&command.args(["--node", "nobody"]).output().unwrap());
    let line = text.lines().find(|it| it.contains("firewall")).unwrap_or_else(|| panic!("{text}"));
    assert!(line.contains("sudo tautline doctor"), "{text}");
    assert!(text.contains("no file of this robot") || text.contains("robot.yaml"), "{text}");
    // A file that this user may not read does not count as absent.
    let file = scene.place.path("closed.yaml");
    std::fs::write(&file, &scene.file).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    let folder = scene.place.path("");
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = scene.robot.command("setpriv");
    command.args(["--reuid", "65534", "--clear-groups", PROGRAM, "doctor"]);
    let output = command.arg(&file).arg("--json").output().unwrap();
    let found: Json = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{}", standard_output(&output)));
    let how = format!("this user may not read {0}: sudo tautline doctor {0}", file.display());
    for check in [
        "file",
        "daemon",
        "key-file",
        "versions",
        "ros1-master",
        "ros2-domain",
        "realtime",
        "memory",
        "peer-route",
        "peer-down",
        "peer-key",
        "not-accepted",
    ] {
        let not_made = found["not_made"].as_array().unwrap();
        let it = not_made.iter().find(|it| it["check"] == check);
        let it = it.unwrap_or_else(|| panic!("{check}: {found:#}"));
        assert_eq!(it["text"], how, "{it}");
    }
    let mut command = scene.robot.command("setpriv");
    command.args(["--reuid", "65534", "--clear-groups", PROGRAM, "doctor"]);
    let text = standard_output(&command.arg(&file).args(["--peer", "base"]).output().unwrap());
    assert!(text.contains(&format!("not tested: {how}")), "{text}");
    assert!(!text.contains("no daemon answers") && !text.contains("start it"), "{text}");
}

#[test]
fn the_master_of_the_shell_that_called_sudo_is_found() {
    let mut scene = Scene::new();
    scene.at_base = true;
    // doctor looks for a process with the name sudo. This one is a shell that clears the environment as
    // sudo does.
    let sudo = scene.place.path("sudo");
    std::fs::copy("/bin/dash", &sudo).unwrap();
    let script = "env -i SUDO_UID=1000 PATH=/usr/bin:/bin \"$@\"; exit $?";
    let mut command = scene.base.command(sudo.to_str().unwrap());
    command.args(["-c", script, "sudo", PROGRAM, "doctor"]);
    command.args(["--node", "nobody"]).env("ROS_MASTER_URI", "http://10.77.0.1:4711");
    let text = standard_output(&command.output().unwrap());
    assert!(text.contains("no master at http://10.77.0.1:4711"), "{text}");
}

#[test]
fn doctor_checks_the_limits_of_the_daemon_with_the_file() {
    let mut scene = Scene::new();
    scene.lines("realtime: { priority: 50 }");
    let file = scene.place.path("robot1.yaml");
    let other = scene.place.path("other.yaml");
    std::fs::write(&other, "").unwrap();
    // The other daemon has a lower process number, then a higher one. In both cases, it is not the daemon
    // of the file.
    for (own, another) in [(200, 100), (100, 200)] {
        for (process, file, rights) in
            [(own, &file, "0000000000000000"), (another, &other, "ffffffffffffffff")]
        {
            let folder = format!("/proc/{process}");
            scene.plant(&format!("{folder}/comm"), "tautline");
            let line = format!("tautline\0run\0{}\0", file.display());
            scene.plant(&format!("{folder}/cmdline"), &line);
            scene.plant(&format!("{folder}/status"), &format!("CapEff:\t{rights}"));
            scene.plant(&format!("{folder}/limits"), "Max realtime priority     0    0");
        }
        let texts = texts_of(&scene.findings(), "realtime").join("");
        assert!(texts.contains(&format!("process {own} (tautline) may not use")), "{texts}");
    }
}

#[test]
fn without_a_daemon_a_peer_is_not_tested_and_a_missing_file_is_an_error() {
    let mut scene = Scene::new();
    scene.status = None;
    let text = standard_output(&scene.doctor(&["--peer", "base"]));
    for words in
        ["no daemon answers", "tautline run", "10.77.0.2, by wlan0", "3 received", "1500 bytes"]
    {
        assert!(text.contains(words), "{words}: {text}");
    }
    let output = scene.doctor(&["--peer", "bass"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        standard_output(&output).contains("no peer 'bass'; its peers: base"),
        "{}",
        standard_output(&output)
    );
    let output = scene.command().arg("/nowhere/robot.yaml").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        standard_output(&output).contains("/nowhere/robot.yaml: cannot be read"),
        "{}",
        standard_output(&output)
    );
}

#[test]
fn a_report_contains_no_secret() {
    let mut scene = Scene::new();
    let key = std::fs::read_to_string(scene.key_file()).unwrap();
    let secret = key.lines().last().unwrap().split(": ").nth(1).unwrap().to_owned();
    scene.lines("# psk: hunter2-in-a-comment");
    scene.lines(&format!("# the key of the other robot {secret}"));
    scene.lines("# ssh://me:hunter2-in-a-uri@base/");
    scene.program(
        "journalctl",
        "Nov 28 tautline[1]: running\nNov 28 sudo: WIFI_PASSWORD=hunter2-in-a-log iw connect\n\
         Nov 28 wpa[2]: --psk hunter2-as-an-argument",
    );
    let notice = format!("the key {secret} was logged by mistake");
    scene.change_status(|it| it.notices.push(notice));
    let path = scene.place.path("report.txt");
    let output = scene.doctor(&["--report", path.to_str().unwrap()]);
    let said = standard_output(&output);
    assert!(said.contains("report.txt") && said.contains("Read the file before"), "{said}");
    let text = std::fs::read_to_string(&path).unwrap();
    for secret in ["hunter2", secret.as_str(), scene.keys[1].as_str()] {
        assert!(!text.contains(secret), "{secret}: {text}");
    }
    for part in
        ["== doctor", "== versions", "== interfaces", "10.77.0.1", "== file", "name: robot1"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    for part in ["== status", "\"uptime_s\"", "== log", "tautline[1]: running", &scene.keys[1][..8]]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    // With sudo, the report belongs to the user who called sudo.
    let of_user = scene.place.path("report-of-user.txt");
    let mut command = scene.command();
    command.arg(scene.place.path("robot1.yaml")).arg("--report").arg(&of_user);
    command.env("SUDO_UID", "65534").env("SUDO_GID", "65533").output().unwrap();
    let metadata = std::fs::metadata(&of_user).unwrap();
    assert_eq!((metadata.uid(), metadata.gid(), metadata.mode() & 0o777), (65_534, 65_533, 0o600));
    // A symbolic link at the report's path is not followed.
    let link = scene.place.path("link.txt");
    std::os::unix::fs::symlink(scene.place.path("elsewhere"), &link).unwrap();
    let refused = scene.doctor(&["--report", link.to_str().unwrap()]);
    assert_eq!(refused.status.code(), Some(1), "{}", standard_output(&refused));
    assert!(!scene.place.path("elsewhere").exists());
    assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
}

/// The page of doctor shows what doctor prints; UPDATE=1 rewrites its examples.
#[test]
fn the_page_shows_what_doctor_prints() {
    let mut scene = Scene::new();
    scene.iw("on", -55, "65.0", "yes", "00");
    scene.robot.nft(
        "add table inet filter\n\
         add chain inet filter input { type filter hook input priority 0; policy drop; }\n\
         add rule inet filter input iifname lo accept\n\
         add rule inet filter input ct state established,related accept",
    );
    // With this file, the cable counts as a radio.
    scene.plant("/sys/class/net/wlan0/device/vendor", "0x8086");
    scene.change_status(|it| it.uptime_s = 3720.0);
    let first = normalized_output(&scene, &scene.doctor(&[]), "sudo tautline doctor");
    scene.reset();
    let mut later = scene.usual_status();
    scene.change_status(|it| it.topics.retain(|topic| topic.topic != "/base/plan"));
    later.uptime_s += 10.0;
    for (number, topic) in later.topics.iter_mut().enumerate() {
        topic.wanted = number != 2;
        topic.messages += [300, 150, 0][number % 3];
        topic.bytes += [300 * 4_000, 150 * 60_000, 0][number % 3];
    }
    for link in &mut later.links {
        (link.acked_packets, link.lost_packets) =
            (link.acked_packets + 9000, link.lost_packets + 90);
        (link.sent_bytes, link.available_bps) = (link.sent_bytes + 5_000_000, Some(4_500_000));
        link.path = "direct".into();
    }
    scene.later = Some(later);
    let test = scene.doctor(&["--peer", "base", "--seconds", "5"]);
    let second = normalized_output(&scene, &test, "sudo tautline doctor --peer base");
    let second = match second.split_once("\nPeer base") {
        Some((_, rest)) => format!("$ sudo tautline doctor --peer base\n...\nPeer base{rest}"),
        None => panic!("{second}"),
    };
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/how-to/doctor.md");
    let text = std::fs::read_to_string(page).unwrap();
    let mut parts: Vec<&str> = text.split("```text\n").collect();
    assert_eq!(parts.len(), 3, "the page has two examples");
    let mut new = parts.remove(0).to_owned();
    for (part, example) in parts.into_iter().zip([first, second]) {
        let rest = part.split_once("```\n").unwrap().1;
        new += &format!("```text\n{example}```\n{rest}");
    }
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(page, new).unwrap();
    } else {
        assert_eq!(text, new, "run again with UPDATE=1, and read the difference");
    }
}

/// What was printed, without what differs between machines.
fn normalized_output(scene: &Scene, output: &Output, command: &str) -> String {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    let folder = scene.place.path("robot1.yaml").parent().unwrap().display().to_string();
    let lines = text.lines().filter(|it| !it.starts_with("installed in /opt/ros"));
    let text = lines.collect::<Vec<_>>().join("\n").replace(&folder, "/etc/tautline");
    format!("$ {command}\n{text}\n").replace("robot1.yaml", "robot.yaml")
}
