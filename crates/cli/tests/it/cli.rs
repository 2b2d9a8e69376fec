// SPDX-License-Identifier: Apache-2.0
//! The command line from the user's side: the built program, its output and exit codes.

use crate::PROGRAM;
use crate::fake::FakeNode;
use serde_json::Value as Json;
use std::path::Path;
use std::process::{Command, Output};
use tautline_cli::control::ControlServer;

/// A folder that serves as working and runtime folder of the program, without ROS.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn file(&self, name: &str, text: &str) {
        std::fs::write(self.path().join(name), text).unwrap();
    }

    fn tautline(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command.args(arguments).current_dir(self.path()).env("XDG_RUNTIME_DIR", self.path());
        for variable in ["ROS_MASTER_URI", "ROS_HOSTNAME", "ROS_IP", "TAUTLINE_LOG"] {
            command.env_remove(variable);
        }
        command
    }

    fn daemon(&self, name: &str) -> (ControlServer, std::sync::Arc<FakeNode>) {
        let node = FakeNode::new();
        let path = self.path().join("tautline").join(format!("{name}.sock"));
        (ControlServer::start(&path, node.clone()).unwrap(), node)
    }
}

fn standard_output(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn json(output: &Output) -> Json {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("{e}: {}", standard_output(output)))
}

#[test]
fn init_writes_a_valid_file_and_never_overwrites() {
    let place = Place::new();
    let written = place.tautline(&["init"]);
    assert!(written.status.success());
    assert!(standard_output(&written).contains("tautline check robot.yaml"));
    assert!(place.tautline(&["check", "robot.yaml"]).status.success());
    place.file("robot.yaml", "name: mine\n");
    let again = place.tautline(&["init"]);
    assert_eq!(again.status.code(), Some(1));
    assert!(err(&again).contains("--force"));
    assert_eq!(std::fs::read_to_string(place.path().join("robot.yaml")).unwrap(), "name: mine\n");
    assert!(place.tautline(&["init", "--force"]).status.success());
    let printed = place.tautline(&["init", "-"]);
    assert_eq!(
        standard_output(&printed),
        std::fs::read_to_string(place.path().join("robot.yaml")).unwrap()
    );
}

#[test]
fn check_explains_a_good_file() {
    let place = Place::new();
    place.file(
        "robot.yaml",
        "name: robot1\nsecurity: none\n\
         peers: { base: { address: 10.0.0.2, prefix: /base, max_rate: 2Mbps } }\n\
         topics: { /scan: { priority: 200 } }\n\
         watchdogs: { /cmd_vel: { after: 500ms, message: { linear: { x: 0.1 } } } }\n",
    );
    let checked = place.tautline(&["check", "robot.yaml"]);
    assert!(checked.status.success(), "{}", err(&checked));
    let text = standard_output(&checked);
    assert!(text.contains("robot.yaml is valid."), "{text}");
    let row = |start: &str| {
        text.lines().find(|l| l.trim_start().starts_with(start)).unwrap_or_else(|| panic!("{text}"))
    };
    assert!(row("/scan ").contains("200"));
    assert!(row("base ").contains("10.0.0.2:18470"));
    assert!(row("base ").contains("observations, under /base, at most 2.00Mbps"), "{text}");
    let watchdog: Vec<&str> = row("/cmd_vel ").split_whitespace().collect();
    assert_eq!(watchdog, ["/cmd_vel", "500ms", "once", "with", "linear"]);
    let as_json = json(&place.tautline(&["check", "robot.yaml", "--json"]));
    assert_eq!(as_json["ok"], true);
    assert_eq!(as_json["peers"][0]["max_rate_bps"], 2_000_000);
    assert_eq!(as_json["watchdogs"][0]["message"]["linear"]["x"], "0.1");
    assert_eq!(as_json["topics"][0]["priority"], 200);
    assert_eq!(as_json["peers"][0]["links"][0]["port"], 18470);
}

#[test]
fn check_shows_the_path_of_the_audit_log() {
    let place = Place::new();
    let cases = [
        ("", "the systemd unit turns it on", serde_json::json!(null)),
        (
            "audit: { file: /x/r.audit, size: 1MB, files: 3 }\n",
            "/x/r.audit, at most 3 files of 1.00MB",
            serde_json::json!({ "to": "file", "file": "/x/r.audit", "size": 1_000_000, "files": 3 }),
        ),
        ("audit: { to: journald }\n", "-t tautline-audit", serde_json::json!({ "to": "journald" })),
    ];
    for (line, expected, as_json) in cases {
        place.file("robot.yaml", &format!("name: robot1\nsecurity: none\n{line}"));
        let text = standard_output(&place.tautline(&["check", "robot.yaml"]));
        let row = text.lines().find(|row| row.starts_with("audit ")).unwrap();
        assert!(row.contains(expected), "{row}");
        let found = json(&place.tautline(&["check", "robot.yaml", "--json"]));
        assert_eq!(found["audit"], as_json);
    }
}

const RIGHTS: &str = "name: robot1\nsecurity: none\npeers:\n  \
    base:\n    accept: { /cmd_vel: geometry_msgs/Twist, \"/plan/**\": any }\n    \
    call: [/set_mode, /navigate]\n    offer: [/scan, /navigate, /set_mode]\n    \
    max_rate: 2Mbps\n    max_priority: 200\n    relay: true\n  \
    robot2: { prefix: /robot2 }\n  robot3: {}\n\
    topics: { /scan: {}, /odom: {}, \"/camera/**\": { to: [robot2] } }\n\
    services: { /set_mode: {}, /reboot: {} }\nactions: { /navigate: {} }\n";

#[test]
fn check_shows_the_rights_of_a_peer() {
    let place = Place::new();
    place.file("robot.yaml", RIGHTS);
    let rows = |peer: &str| -> Vec<Vec<String>> {
        let shown = place.tautline(&["check", "robot.yaml", "--as", peer]);
        assert!(shown.status.success(), "{}", err(&shown));
        let text = standard_output(&shown);
        assert!(text.starts_with(&format!("Rights of '{peer}' at 'robot1'")), "{text}");
        let split = |line: &str| {
            line.split("  ").map(str::trim).filter(|it| !it.is_empty()).map(Into::into).collect()
        };
        text.lines().skip(3).map(split).collect()
    };
    let base = rows("base");
    let expected = [
        ["publish or serve here", "/cmd_vel", "/cmd_vel", "geometry_msgs/Twist"],
        ["publish or serve here", "/plan/**", "/plan/**", "any"],
        ["read", "/navigate", "/navigate", "any"],
        ["read", "/scan", "/scan", "any"],
        ["call", "/navigate", "/navigate", "any"],
        ["call", "/set_mode", "/set_mode", "any"],
    ];
    assert_eq!(base[..expected.len()], expected, "{base:?}");
    assert!(base.concat().iter().any(|it| it.contains("max_rate 2.00Mbps")), "{base:?}");
    assert!(base.concat().iter().any(|it| it.contains("max_priority 200, relay true")), "{base:?}");
    let robot2 = rows("robot2");
    assert_eq!(robot2[0][..3], ["publish here", "/**", "/robot2/**"]);
    assert_eq!(robot2[0][3], "observations");
    let senses = robot2.concat();
    let listed = senses.iter().find(|it| it.starts_with("observations: ")).unwrap();
    assert!(listed.contains("sensor_msgs/LaserScan"), "{listed}");
    assert!(robot2.iter().any(|row| row.get(1).is_some_and(|it| it == "/camera/**")), "{robot2:?}");
    assert!(robot2.iter().all(|row| row.first().is_none_or(|it| it != "call")), "{robot2:?}");
    let as_json = json(&place.tautline(&["check", "robot.yaml", "--as", "base", "--json"]));
    assert_eq!(as_json["rights"][0]["may"], "publish or serve here");
    assert_eq!(as_json["rights"][0]["types"][0], "geometry_msgs/Twist");
    assert_eq!(
        (as_json["max_rate_bps"].as_u64(), &as_json["relay"]),
        (Some(2_000_000), &true.into())
    );
    let nobody = place.tautline(&["check", "robot.yaml", "--as", "robot9"]);
    assert!(
        err(&nobody).contains("no peer 'robot9' in the file; its peers are: base, robot2, robot3")
    );
}

#[test]
fn check_names_peers_and_services_without_rights() {
    let place = Place::new();
    place.file("robot.yaml", RIGHTS);
    let text = standard_output(&place.tautline(&["check", "robot.yaml"]));
    let warnings: Vec<&str> = text.lines().filter(|line| line.starts_with("warning:")).collect();
    assert_eq!(warnings.len(), 2, "{text}");
    assert!(
        warnings[0].contains("peers.robot3: no topic and no service of 'robot3' is accepted"),
        "{text}"
    );
    assert!(warnings[0].contains("add 'prefix: /robot3'"), "{text}");
    assert!(
        warnings[1].contains("services./reboot: no peer may call it: add 'call: /reboot'"),
        "{text}"
    );
}

#[test]
fn check_lists_fields_that_only_one_ros_has_where_both_types_are_installed() {
    let place = Place::new();
    for (ros, text) in [("one", "int8 x\nint8 removed\n"), ("two", "int8 x\nint8 added\n")] {
        let folder = place.path().join(ros).join("share/a/msg");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("Mark.msg"), text).unwrap();
    }
    let [one, two] = ["one", "two"].map(|ros| place.path().join(ros));
    for ros in
        ["ros1: true".to_owned(), format!("ros2: {{ definitions: [\"{}\"] }}", two.display())]
    {
        let peers = "peers: { b: { address: b, accept: { /mark: a/Mark, /again: a/Mark } } }";
        place.file("robot.yaml", &format!("name: robot\nsecurity: none\n{ros}\n{peers}\n"));
        let check = |json: &[&str]| {
            let arguments = [&["check", "robot.yaml"], json].concat();
            let mut command = place.command(&arguments);
            command.env("CMAKE_PREFIX_PATH", &one).env("AMENT_PREFIX_PATH", &two);
            command.output().unwrap()
        };
        let text = standard_output(&check(&[]));
        let end = "\nFields of accepted types that only one ROS has\n  a/Mark.added, ROS 2 only\n  \
                   a/Mark.removed, ROS 1 only\n";
        assert!(text.ends_with(end), "{text}");
        let listed = &json(&check(&["--json"]))["one_sided"];
        assert_eq!(listed.as_array().unwrap().len(), 2, "{listed}");
    }
}

#[test]
fn check_names_file_line_key_found_and_allowed() {
    let place = Place::new();
    place.file(
        "robot.yaml",
        "name: robot1\ntopics:\n  /scan: { priority: 300 }\n  /odom: { rate: fast }\n",
    );
    let checked = place.tautline(&["check", "robot.yaml"]);
    assert_eq!(checked.status.code(), Some(1));
    let text = err(&checked);
    assert!(text.contains("robot.yaml:3:22: topics./scan.priority: found '300'; allowed: a whole number from 0 to 255"), "{text}");
    assert!(text.contains("robot.yaml:4:18: topics./odom.rate: found 'fast'"), "{text}");
    let as_json = place.tautline(&["check", "robot.yaml", "--json"]);
    assert_eq!(as_json.status.code(), Some(1));
    assert_eq!(json(&as_json)["problems"][0]["line"], 3);
}

#[test]
fn check_reports_a_key_that_is_missing_or_given_to_a_peer() {
    let place = Place::new();
    let file = |key: &str| {
        let peers = format!("peers: {{ base: {{ key: {key}, address: 10.0.0.2 }} }}");
        place.file("robot.yaml", &format!("name: robot\nros1: false\n{peers}\n"));
    };
    let other = place.tautline(&["keygen", "other.key"]);
    file(standard_output(&other).split_whitespace().last().unwrap());
    let missing = place.tautline(&["check", "robot.yaml"]);
    assert!(
        standard_output(&missing).contains("robot.yaml is valid, but cannot be run yet"),
        "{missing:?}"
    );
    let own = place.tautline(&["keygen", "robot.key"]);
    file(standard_output(&own).split_whitespace().last().unwrap());
    let given = place.tautline(&["check", "robot.yaml"]);
    let text = "robot.yaml:3:18: peers.base.key: found this node's own key; allowed: the key of \
                'base', which `tautline keygen --show FILE` prints there\n";
    assert_eq!(err(&given), text);
    let problems = json(&place.tautline(&["check", "robot.yaml", "--json"]));
    assert_eq!(problems["problems"][0]["key"], "peers.base.key");
    let run = place.tautline(&["run", "robot.yaml"]);
    assert_eq!((err(&run).as_str(), run.status.code()), (text, Some(78)));
}

#[test]
fn check_reports_the_name_of_a_missing_file() {
    let checked = Place::new().tautline(&["check", "nowhere.yaml"]);
    assert_eq!(checked.status.code(), Some(1));
    assert!(err(&checked).contains("nowhere.yaml"), "{}", err(&checked));
}

#[test]
fn run_refuses_an_invalid_file() {
    let place = Place::new();
    place.file("robot.yaml", "name: robot1\nlimits: { queue_time: 2 }\n");
    let ran = place.tautline(&["run", "robot.yaml"]);
    assert_eq!(ran.status.code(), Some(78), "{}", err(&ran));
    assert!(err(&ran).contains("robot.yaml:2:23: limits.queue_time: found '2'"), "{}", err(&ran));
    assert!(!place.path().join("tautline").exists());
    place.file("robot.yaml", "name: robot1\n");
    let ran = place.tautline(&["run", "robot.yaml", "--log", "tautline=loud"]);
    assert!(!ran.status.success() && err(&ran).contains("'tautline=loud'"), "{}", err(&ran));
}

#[test]
fn without_a_daemon_each_command_says_how_to_start_one() {
    let place = Place::new();
    for arguments in [
        &["status", "--node", "none"][..],
        &["top", "--once", "--node", "none"],
        &["set", "/scan", "priority=1", "--node", "none"],
    ] {
        let asked = place.tautline(arguments);
        assert_eq!(asked.status.code(), Some(1));
        assert!(
            err(&asked).contains("none") || err(&asked).contains("tautline run FILE"),
            "{}",
            err(&asked)
        );
    }
    let asked = place.tautline(&["status", "--control", "/nonexistent.sock"]);
    assert!(
        err(&asked).contains("/nonexistent.sock; start it with: tautline run FILE"),
        "{}",
        err(&asked)
    );
}

#[test]
fn a_single_daemon_is_found_and_shown() {
    let place = Place::new();
    let (_server, _) = place.daemon("robot1");
    let shown = place.tautline(&["status", "--node", "robot1"]);
    assert!(shown.status.success(), "{}", err(&shown));
    let text = standard_output(&shown);
    assert!(
        text.contains("sensor_msgs/LaserScan")
            && text.contains("1.20k expired")
            && text.contains("back-pressure")
            && text.contains("Watchdogs"),
        "{text}"
    );
    let waiting = text.lines().find(|line| line.contains("/goal")).unwrap();
    let words: Vec<&str> = waiting.split_whitespace().collect();
    assert_eq!(words[..3], ["base", "publish", "/goal"]);
    assert!(waiting.ends_with("accept: { /goal: geometry_msgs/PoseStamped }"), "{text}");
    let block = "under peers.base; omit unwanted lines:\n    accept:\n      \
                 /cmd_vel: geometry_msgs/Twist\n      /goal: geometry_msgs/PoseStamped\n";
    assert!(text.contains(block), "{text}");
    for line in [
        "  rejected < /base/plan: 3 gateway behind",
        "  rejected > other topics: 2 too large",
        "  /camera/front/image_color/compressed > base: 41 % of messages dropped in the last 10 s: \
         newer ones replaced them (link to base carried 5.8 Mbps; 10.6 Mbps wanted)",
    ] {
        assert!(text.lines().any(|it| it == line), "{line}\n{text}");
    }
    assert!(!text.contains('\u{1b}'), "no colours into a pipe");
    let as_json = json(&place.tautline(&["status", "--json", "--node", "robot1"]));
    assert_eq!(as_json["topics"][0]["topic"], "/scan");
}

#[test]
fn several_daemons_are_distinguished_by_name() {
    let place = Place::new();
    let _daemons = [place.daemon("robot1"), place.daemon("base")];
    let asked = place.tautline(&["status"]);
    assert_eq!(asked.status.code(), Some(1));
    assert!(
        err(&asked).contains("--node base") && err(&asked).contains("--node robot1"),
        "{}",
        err(&asked)
    );
    assert!(place.tautline(&["status", "--node", "base"]).status.success());
}

#[test]
fn set_changes_the_running_node() {
    let place = Place::new();
    let (_server, node) = place.daemon("robot1");
    let set =
        |arguments: &[&str]| place.tautline(&[&["set", "--node", "robot1"], arguments].concat());
    let changed = set(&["/scan", "priority=250", "rate=5Hz"]);
    assert_eq!(standard_output(&changed), "changed /scan\n", "{}", err(&changed));
    let (change, _) = node.changes.lock().unwrap()[0].clone();
    assert_eq!((change.priority, change.rate_hz), (Some(250), Some(5.0)));
    assert_eq!(json(&set(&["/scan", "rate=none", "--json"]))["changed"][0], "/scan");
    let unknown = set(&["/scam", "priority=1"]);
    assert_eq!(unknown.status.code(), Some(1));
    assert!(
        err(&unknown).contains("'/scam'") && err(&unknown).contains("/diagnostics"),
        "{}",
        err(&unknown)
    );
    let wrong = set(&["/scan", "priority=300"]);
    assert!(err(&wrong).contains("found 'priority=300'; allowed: priority=N"), "{}", err(&wrong));
}

#[test]
fn top_prints_once_without_a_terminal() {
    let place = Place::new();
    let (_server, _) = place.daemon("robot1");
    let live = place.tautline(&["top", "--node", "robot1"]);
    assert!(!live.status.success() && err(&live).contains("--once"), "{}", err(&live));
    let once = place.tautline(&["top", "--once", "--node", "robot1"]);
    assert!(
        standard_output(&once).contains("/camera/front/image_color/compressed"),
        "{}",
        standard_output(&once)
    );
    let line = place.tautline(&["top", "--json", "--once", "--node", "robot1"]);
    assert_eq!(json(&line)["node"], "robot1");
    assert_eq!(standard_output(&line).lines().count(), 1);
}

#[test]
fn help_has_examples() {
    let place = Place::new();
    for command in ["run", "check", "init", "status", "top", "set"] {
        let help = place.tautline(&[command, "--help"]);
        assert!(
            standard_output(&help).contains("Examples:"),
            "{command}: {}",
            standard_output(&help)
        );
    }
}
