// SPDX-License-Identifier: Apache-2.0
//! `tautline pair` between two namespaces, with real ROS at both ends. Needs root.

use crate::PROGRAM;
use crate::pairing;
use crate::pairing::{Machine, World};
use serde_json::{Value, json};
use std::process::Command;
use tautline_testkit::ros::ros1;
use tautline_testkit::ros::ros1::Master;
use tautline_testkit::ros::{Agent, free_port};
use tautline_testkit::running;

const NO_ROS: &[&str] = &["--no-ros"];
const SCAN: &str = "sensor_msgs/LaserScan";
const TWIST: &str = "geometry_msgs/Twist";

/// A ROS 1 master and a node in the network of a machine.
fn ros1(machine: &Machine) -> (Master, Agent) {
    let start = || {
        let master = Master::start_alone(free_port());
        let agent = ros1::start(&master.uri, &format!("/of_{}", machine.name));
        (master, agent)
    };
    machine.inside.call(start)
}

/// Waits until a node has received a message, which is published again until then.
fn arrives(from: &mut Agent, at: &Agent, sent: &str, received: &str, fields: &Value) {
    running::wait_for(received, || {
        from.order(json!({ "do": "send", "topic": sent, "fields": fields }));
        (!at.received(received).is_empty()).then_some(())
    });
}

#[test]
fn two_machines_with_ros_1_are_paired_and_carry_a_scan_and_commands() {
    let world = World::new();
    let ((base_master, mut viewer), (robot_master, mut robot)) =
        (ros1(&world.base), ros1(&world.robot));
    robot.advertise("/scan", SCAN, false);
    robot.order(json!({ "do": "subscribe", "topic": "/cmd_vel", "type": TWIST }));
    let [base_ros, robot_ros] =
        [&base_master, &robot_master].map(|master| format!("--ros1={}", master.uri));
    let runs = world.pair_well([&[&base_ros], &[&robot_ros]]);
    let plan = runs[0].event("plan");
    assert_eq!(plan["shown"][0]["at_base"], "/robot1/scan", "{plan}");
    assert_eq!(plan["commands"][0]["at_robot"], "/cmd_vel", "{plan}");
    assert_eq!(plan["shown"], runs[1].event("plan")["shown"]);
    let text = world.robot.robot_yaml();
    assert!(text.contains("  /scan: { priority: 200 }\n"), "{text}");
    assert!(text.contains("address: 10.77.0.1 ") && text.contains("/cmd_vel: geometry_msgs/Twist"));
    let text = world.base.robot_yaml();
    assert!(text.contains("prefix: /robot1 ") && text.contains("to: [robot1] }"), "{text}");
    for machine in [&world.base, &world.robot] {
        let mut expected = [format!("{}.key", machine.name), "robot.yaml".into()];
        expected.sort();
        assert_eq!(machine.files(), expected);
    }

    let (base, _robot) = (world.base.run(), world.robot.run());
    base.wait_until_up("robot1");
    viewer.order(json!({ "do": "subscribe", "topic": "/robot1/scan", "type": SCAN }));
    arrives(&mut robot, &viewer, "/scan", "/robot1/scan", &json!({ "ranges": [1.0, 2.0] }));
    viewer.advertise("/cmd_vel", TWIST, false);
    arrives(&mut viewer, &robot, "/cmd_vel", "/cmd_vel", &json!({ "linear": { "x": 0.2 } }));

    // Once more, with a new topic: the running daemons take it, and what Tautline publishes is not
    // taken for a topic of the machine.
    robot.advertise("/odom", "nav_msgs/Odometry", false);
    let before = world.robot.robot_yaml();
    let runs = world.pair_well([&[], &[]]);
    let line = "  /odom: { priority: 220, keep_last: 1 }";
    assert_eq!(world.robot.robot_yaml(), format!("{before}{line}\n"));
    assert_eq!(runs[0].event("plan")["changes"], json!([]));
    assert_eq!(runs[1].event("plan")["changes"], json!([format!("+{line}")]));
    for (run, topic) in runs.iter().zip(["/robot1/scan", "/scan"]) {
        let up = run.event("up");
        assert_eq!(
            (&up["topic"], &up["next"]),
            (&json!(topic), &json!("rostopic echo /robot1/scan"))
        );
    }
}

#[test]
fn a_second_robot_obeys_a_command_topic_of_its_own() {
    let world = World::new();
    let key = "cHVibGljIGtleSBvZiBiYXNlLCBhbiBleGFtcGxlLi4=";
    let old = format!(
        "name: base\npeers:\n  robot0:\n    key: {key}\n    prefix: /robot0\ntopics:\n  /cmd_vel: {{ to: [robot0] }}\n"
    );
    let ((base_master, mut viewer), (robot_master, mut robot)) =
        (ros1(&world.base), ros1(&world.robot));
    let ros = format!("ros1: {{ master: \"{}\", host: 127.0.0.1 }}\n", base_master.uri);
    std::fs::write(world.base.file(), format!("{old}{ros}")).unwrap();
    robot.order(json!({ "do": "subscribe", "topic": "/cmd_vel", "type": TWIST }));
    let runs = world.pair_well([&[], &[&format!("--ros1={}", robot_master.uri)]]);
    assert_eq!(runs[0].event("plan")["commands"][0]["at_base"], "/robot1/cmd_vel");
    let (base, _robot) = (world.base.run(), world.robot.run());
    base.wait_until_up("robot1");
    for topic in ["/cmd_vel", "/robot1/cmd_vel"] {
        viewer.advertise(topic, TWIST, false);
    }
    viewer
        .order(json!({ "do": "send", "topic": "/cmd_vel", "fields": { "linear": { "x": 9.0 } } }));
    arrives(&mut viewer, &robot, "/robot1/cmd_vel", "/cmd_vel", &json!({ "linear": { "x": 0.5 } }));
    // 0.5, and never 9.0.
    let received = robot.received("/cmd_vel");
    assert!(received.iter().all(|it| it["hex"].as_str().unwrap().starts_with("000000000000e03f")));
}

/// Registers topics with names and types of 250 bytes at a master, a command as the last one.
const REGISTER_TOPICS_SCRIPT: &str = r#"
import sys, xmlrpc.client
master = xmlrpc.client.ServerProxy(sys.argv[1])
calls = xmlrpc.client.MultiCall(master)
for number in range(int(sys.argv[2])):
    name = "/%05d" % number + "x" * 244
    calls.registerPublisher("/many", name, "a/" + "x" * 248, "http://127.0.0.1:1/")
    calls.registerService("/many", name, "rosrpc://127.0.0.1:1", "http://127.0.0.1:1/")
calls.registerSubscriber("/many", "/z/cmd_vel", "geometry_msgs/Twist", "http://127.0.0.1:1/")
assert all(code == 1 for code, _, _ in calls())
"#;

#[test]
fn pairing_selects_the_most_useful_of_thousands_of_topics() {
    let world = World::new();
    let (master, _robot) = ros1(&world.robot);
    let mut register = world.robot.inside.command("/usr/bin/python3");
    register.args(["-c", REGISTER_TOPICS_SCRIPT, &master.uri, "2000"]);
    assert!(register.status().unwrap().success());
    let runs = world.pair_well([NO_ROS, &[&format!("--ros1={}", master.uri)]]);
    for run in &runs {
        let plan = run.event("plan");
        assert_eq!(plan["commands"][0]["at_robot"], "/z/cmd_vel", "{}", run.name);
        assert_eq!(plan["shown"].as_array().unwrap().len(), 511, "{}", run.name);
        assert_eq!(plan["left_out"], 2001 - 512, "{}", run.name);
    }
    let notes = runs[0].event("paired")["notes"].to_string();
    assert!(notes.contains("2000 services at robot1 are not opened"), "{notes}");
    let text = world.robot.robot_yaml();
    assert!(text.contains("/z/cmd_vel: geometry_msgs/Twist"), "{text}");

    let mut base = pairing::Run::start("base", world.base.pair_command(&["--no-ros", "--yes"]));
    base.wait_for("On the robot:");
    let said = base.output();
    let code = said.split("code: ").nth(1).unwrap().split_whitespace().next().unwrap();
    assert!(world.robot.pair(&[code]).end().success() && base.end().success());
    assert!(base.output().contains("1489 topics of robot1 are left out"), "{}", base.output());
}

#[test]
fn a_robot_without_ros_is_paired() {
    let world = World::new();
    let runs = world.pair_well([NO_ROS, &[]]);
    assert_eq!(runs[0].event("plan")["shown"], json!([]));
    let text = world.robot.robot_yaml();
    assert!(text.contains("# No ROS was found") && text.contains("#ros2: { domain: 0 }"), "{text}");
    let (base, robot) = (world.base.run(), world.robot.run());
    base.wait_until_up("robot1");
    robot.wait_until_up("base");
}

#[test]
fn the_robot_restores_its_files_if_the_base_cannot_write() {
    let world = World::new();
    std::fs::write(world.base.file(), "name: base\nros1: false\n").unwrap();
    let mut base = pairing::Run::start("base", world.base.pair_command(&[]));
    base.wait_for("On the robot:");
    let text = base.output();
    let code = text.split("code: ").nth(1).unwrap().split_whitespace().next().unwrap().to_owned();
    let mut robot = world.robot.pair(&[&[&*code], NO_ROS].concat());
    base.wait_for("Pair with robot1");
    // Somebody edits the file during the pairing.
    std::fs::write(world.base.file(), "name: base\n").unwrap();
    base.answer("y");
    let said = base.failure();
    assert!(said.contains("the file has changed since the pairing began"), "{said}");
    let said = robot.failure();
    assert!(said.contains("The files here are as before"), "{said}");
    assert!(world.robot.files().is_empty(), "{:?}", world.robot.files());
    assert_eq!(world.base.files(), ["robot.yaml"]);
    assert_eq!(world.base.robot_yaml(), "name: base\n");
}

#[test]
fn one_pairing_at_a_time_writes_in_a_folder() {
    let world = World::new();
    let mut base = world.base.pair(NO_ROS);
    base.code();
    let second: &[&str] = &["--no-ros", "--port", "18480"];
    let said = world.base.pair(second).failure();
    let named = format!("(process {}) uses {}", base.pid(), world.base.folder.display());
    assert!(said.contains(&named) && said.contains("Nothing was written"), "{said}");
    // A trial writes nothing, and waits for nobody.
    world.base.pair(&[second, &["--dry-run"]].concat()).code();
    // The kernel ends the lock with the process.
    base.kill("-KILL");
    base.end();
    world.base.pair(second).code();
}

#[test]
fn three_wrong_codes_end_the_pairing() {
    let world = World::new();
    let mut base = world.base.pair(NO_ROS);
    let code = base.code();
    // The same selector, so that the base answers.
    let last = if code.ends_with('1') { '2' } else { '1' };
    let wrong = format!("{}{last}", &code[..code.len() - 1]);
    for left in [2, 1, 0] {
        let said = world.robot.pair(&[&[&*wrong], NO_ROS].concat()).failure();
        let expected = ["it needs a new code", "one more try", "2 more tries"][left];
        assert!(said.contains("wrong code") && said.contains(expected), "{said}");
    }
    let said = base.failure();
    assert!(said.contains("3 wrong codes were entered, the last one at 10.77.0.2"), "{said}");
    assert!(said.contains("nothing was written"), "{said}");
    assert!(world.base.files().is_empty() && world.robot.files().is_empty());
}

#[test]
fn a_trial_writes_nothing_at_either_end() {
    let world = World::new();
    for more in [["--dry-run", "--no-ros"], ["--no-start", "--no-ros"]] {
        let other = if more[0] == "--dry-run" { "--no-start" } else { "--dry-run" };
        let runs = world.pair_well([&more, &[other, "--no-ros"]]);
        assert_eq!(
            runs.each_ref().map(|it| it.event("paired")["written"].clone()),
            [json!([]), json!([])]
        );
        assert!(world.base.files().is_empty() && world.robot.files().is_empty());
    }
}

#[test]
fn a_second_robot_extends_the_file_of_the_base() {
    let world = World::new();
    world.pair_well([NO_ROS, NO_ROS]);
    let marked = world.base.robot_yaml().replace("peers:", "peers:   # the team");
    std::fs::write(world.base.file(), &marked).unwrap();
    let mut robot2 = Machine { folder: world.place.path("robot2"), name: "robot2", ..world.robot };
    std::fs::create_dir(&robot2.folder).unwrap();
    let pair = |robot: &Machine, more: &[&str]| {
        let base = world.base.pair(&[NO_ROS, more].concat());
        let robot = robot.pair(&[&[&*base.code()], NO_ROS].concat());
        [base, robot]
    };
    for mut run in pair(&robot2, &[]) {
        assert!(run.end().success(), "{}", run.output());
        // Both robots have the same address here.
        assert!(run.name != "base" || run.output().contains("is that of peers.robot1 in the file"));
    }
    let text = world.base.robot_yaml();
    let head = marked.split("#topics").next().unwrap();
    assert!(text.starts_with(head) && text.contains("\n  robot2:\n    key: "), "{text}");
    let files = ["base.key", "robot.yaml", "robot.yaml~"];
    assert_eq!(world.base.files(), files);
    assert_eq!(std::fs::read_to_string(world.base.folder.join("robot.yaml~")).unwrap(), marked);

    // Again: nothing changes. Another key is refused without `--replace`.
    for mut run in pair(&robot2, &[]) {
        assert!(run.end().success(), "{}", run.output());
    }
    assert_eq!(world.base.robot_yaml(), text);
    robot2.folder = world.place.path("robot2-again");
    std::fs::create_dir(&robot2.folder).unwrap();
    let [mut base, mut robot] = pair(&robot2, &[]);
    let said = base.failure();
    assert!(said.contains("another key for peers.robot2") && said.contains("--replace"), "{said}");
    let said = robot.failure();
    assert!(said.contains("another key for peers.robot2"), "{said}");
    assert!(robot2.files().is_empty() && world.base.robot_yaml() == text);
    for mut run in pair(&robot2, &["--replace"]) {
        assert!(run.end().success(), "{}", run.output());
    }
    assert_ne!(world.base.robot_yaml(), text);
    assert_eq!(world.base.robot_yaml().matches("robot2:").count(), 1);
}

#[test]
fn two_robots_do_not_get_one_prefix() {
    let mut world = World::new();
    world.robot.name = "arm-1";
    world.pair_well([NO_ROS, NO_ROS]);
    let before = world.base.robot_yaml();
    let other = Machine { folder: world.place.path("other"), name: "arm_1", ..world.robot };
    std::fs::create_dir(&other.folder).unwrap();
    let mut base = world.base.pair(NO_ROS);
    let mut robot = other.pair(&[&[&*base.code()], NO_ROS].concat());
    for said in [base.failure(), robot.failure()] {
        assert!(said.contains("the names of peers.arm-1 are under /arm_1 already"), "{said}");
    }
    assert!(world.base.robot_yaml() == before && other.files().is_empty());
}

#[test]
fn lines_for_a_file_in_another_form_go_into_a_second_file() {
    let world = World::new();
    let old = "name: base\nros1: false\npeers: {}\n";
    std::fs::write(world.base.file(), old).unwrap();
    let runs = world.pair_well([&[], NO_ROS]);
    assert_eq!(world.base.robot_yaml(), old);
    assert_eq!(world.base.files(), ["base.key", "robot.yaml", "robot.yaml.new"]);
    let new = std::fs::read_to_string(world.base.folder.join("robot.yaml.new")).unwrap();
    assert!(new.contains("peers:\n  robot1:\n    key: "), "{new}");
    let notes = runs[0].event("paired")["notes"].to_string();
    assert!(notes.contains("Merge the lines of"), "{notes}");
}

#[test]
fn a_running_daemon_reads_the_file_again_and_the_robot_comes_up() {
    let world = World::new();
    world.pair_well([NO_ROS, NO_ROS]);
    let (base, robot) = (world.base.run(), world.robot.run());
    base.wait_until_up("robot1");
    robot.wait_until_up("base");
    // The base loses its peer, and is paired once more while both daemons run and hold UDP 18470.
    std::fs::write(world.base.file(), "name: base\nros1: false\n# Paired once.\n").unwrap();
    let runs = world.pair_well([&[], NO_ROS]);
    assert_eq!(runs[0].event("up")["peer"], "robot1");
    assert_eq!(runs[1].event("up")["peer"], "base");
}

#[test]
fn over_link_local_addresses_the_files_name_the_interface() {
    let world = World::new();
    for machine in [&world.base, &world.robot] {
        machine.inside.ip("-4 addr flush dev wire");
    }
    world.pair_well([NO_ROS, NO_ROS]);
    let text = world.robot.robot_yaml();
    assert!(text.contains("address: \"fe80::77:1%wire\""), "{text}");
    let (base, robot) = (world.base.run(), world.robot.run());
    base.wait_until_up("robot1");
    robot.wait_until_up("base");
}

#[test]
fn the_base_shows_its_address_towards_other_machines() {
    let world = World::new();
    let inside = &world.base.inside;
    for (link, address) in
        [("docker0 type bridge", "10.2.0.1/24"), ("far0 type veth", "10.1.0.1/24")]
    {
        let name = link.split(' ').next().unwrap();
        inside.ip(&format!("link add {link}"));
        inside.ip(&format!("addr add {address} dev {name}"));
        inside.ip(&format!("link set {name} up"));
    }
    inside.ip("route add default via 10.77.0.2");
    let base = world.base.pair(NO_ROS);
    base.code();
    let waiting = base.event("waiting");
    let shown = waiting["addresses"].as_array().unwrap();
    // The other addresses are lower numbers. The address towards containers of this machine is not shown:
    // no robot reaches it.
    let v4: Vec<&Value> = shown.iter().filter(|it| it.as_str().unwrap().contains('.')).collect();
    assert_eq!(v4, ["10.77.0.1", "10.1.0.1"], "{waiting}");
}

/// Gives a machine an /etc of its own, with the user of the unit.
fn mount_private_etc(world: &World, machine: &Machine) {
    let folder = world.place.path(&format!("etc-{}", machine.name));
    std::fs::create_dir(&folder).unwrap();
    let folder = folder.display();
    let script = format!(
        "mount -t tmpfs tmpfs {folder} && mkdir {folder}/upper {folder}/work && \
         mount -t overlay overlay -o lowerdir=/etc,upperdir={folder}/upper,workdir={folder}/work /etc && \
         echo tautline:x:64123:64123::/:/bin/false >>/etc/passwd && rm -rf /etc/tautline"
    );
    let done = machine.inside.command("sh").args(["-c", &script]).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

#[test]
fn the_files_of_the_unit_are_for_its_user() {
    let world = World::new();
    mount_private_etc(&world, &world.robot);
    for again in [false, true] {
        let base = world.base.pair(NO_ROS);
        let arguments = ["pair", &base.code(), "--yes", "--json", "--no-ros", "--name", "robot1"];
        let mut robot = pairing::Run::start("robot1", world.robot.command(&arguments));
        assert!(robot.end().success(), "{}", robot.output());
        let written = robot.event("paired")["written"].to_string();
        assert_eq!(written.contains("/etc/tautline/robot1.key"), !again, "{written}");
        assert_eq!(written == "[]", again, "{written}");
    }
    let listed = world
        .robot
        .inside
        .run("stat -c %n:%u:%a /etc/tautline/robot1.key /etc/tautline/robot.yaml");
    let expected = "/etc/tautline/robot1.key:64123:600\n/etc/tautline/robot.yaml:0:644\n";
    assert_eq!(listed, expected);
    let mut check = world.robot.inside.command("setpriv");
    check.args(["--reuid=64123", "--regid=64123", "--clear-groups"]);
    check.args([PROGRAM, "check", "/etc/tautline/robot.yaml"]);
    let checked = check.output().unwrap();
    let said = String::from_utf8(checked.stdout).unwrap();
    assert!(said.contains("robot.yaml is valid.\n"), "{said}");
}

#[test]
fn root_creates_keys_for_the_user_of_the_unit() {
    let world = World::new();
    mount_private_etc(&world, &world.robot);
    let inside = &world.robot.inside;
    inside.run("install -d -m 750 -g 64123 /etc/tautline");
    let tautline = |arguments: &[&str]| {
        let output = world.robot.command(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        (output.status.success(), said)
    };
    for name in ["robot1", "relay"] {
        let key = format!("/etc/tautline/{name}.key");
        let (made, said) = tautline(&["keygen", &key]);
        assert!(made && said.contains("belongs to tautline, the user of the systemd"), "{said}");
        assert_eq!(inside.run(&format!("stat -c %u:%g:%a {key}")), "64123:64123:600\n");
        let (shown, again) = tautline(&["keygen", "--show", &key]);
        assert!(shown && again.contains("public key: "), "{again}");
    }
    let file = world.robot.folder.join("written.yaml");
    std::fs::write(&file, "name: robot1\nros1: false\n").unwrap();
    inside.run(&format!("cp {} /etc/tautline/robot.yaml", file.display()));
    let (valid, said) = tautline(&["check", "/etc/tautline/robot.yaml"]);
    assert!(valid && said.contains("robot.yaml is valid.\n"), "{said}");
    // A key elsewhere belongs to root, and one of any other user is refused.
    let elsewhere = world.robot.folder.join("robot1.key");
    let elsewhere = elsewhere.to_str().unwrap();
    let (made, said) = tautline(&["keygen", elsewhere]);
    assert!(made && said.starts_with(&format!("wrote {elsewhere}\n")), "{said}");
    assert_eq!(inside.run(&format!("stat -c %u {elsewhere}")), "0\n");
    inside.run("chown 64124 /etc/tautline/robot1.key");
    let (_, said) = tautline(&["check", "/etc/tautline/robot.yaml"]);
    let expected = "cannot be run yet: /etc/tautline/robot1.key: found the owner with user id 64124; \
                    allowed: 64123, the user of the systemd unit, or root";
    assert!(said.contains(expected), "{said}");
}

/// Ends a daemon that the unit of a machine has started.
struct Unit(std::path::PathBuf);

impl Drop for Unit {
    fn drop(&mut self) {
        if let Ok(pid) = std::fs::read_to_string(&self.0) {
            let _ = Command::new("kill").arg(pid.trim()).status();
        }
    }
}

/// Gives a machine a /run of its own, and a `systemctl` that starts the daemon as the unit does: as
/// its user, without the environment.
fn fake_systemd(machine: &Machine) -> Unit {
    let folder = machine.folder.display();
    let script = "mount -t tmpfs tmpfs /run && mkdir -p /run/systemd/system /run/tautline && \
                  chown 64123 /run/tautline";
    let done = machine.inside.command("sh").args(["-c", script]).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let program = PROGRAM;
    let user = "setpriv --reuid=64123 --regid=64123 --clear-groups env -i PATH=/usr/bin:/bin";
    let systemctl = format!(
        "#!/bin/sh\necho \"$@\" >>{folder}/systemctl.log\n\
         [ \"$1\" = restart ] || exit 0\n\
         {user} {program} run /etc/tautline/robot.yaml >{folder}/daemon.log 2>&1 &\n\
         echo $! >{folder}/daemon.pid\n"
    );
    let path = machine.folder.join("systemctl");
    std::fs::write(&path, systemctl).unwrap();
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    Unit(machine.folder.join("daemon.pid"))
}

#[test]
fn the_unit_is_started_at_both_ends_and_the_peers_come_up() {
    let world = World::new();
    let _units = [&world.base, &world.robot].map(|machine| {
        mount_private_etc(&world, machine);
        fake_systemd(machine)
    });
    let pair = |machine: &Machine, more: &[&str]| {
        let fixed = ["pair", "--yes", "--json", "--name", machine.name, "--no-ros"];
        let mut command = machine.command(&[&fixed[..], more].concat());
        command.env("PATH", format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", machine.folder.display()));
        pairing::Run::start(machine.name, command)
    };
    let mut base = pair(&world.base, &[]);
    let mut robot = pair(&world.robot, &[&base.code()]);
    for (run, peer) in [(&mut base, "robot1"), (&mut robot, "base")] {
        assert!(run.end().success(), "{}", run.output());
        assert_eq!(run.event("up")["peer"], peer);
    }
    let calls = std::fs::read_to_string(world.base.folder.join("systemctl.log")).unwrap();
    let expected = ["cat", "enable", "restart"].map(|it| format!("{it} tautline.service\n"));
    assert_eq!(calls, expected.concat());
}

#[test]
fn a_folder_without_write_permission_is_reported_first() {
    let world = World::new();
    let file = std::path::Path::new("/proc/tautline/robot.yaml");
    let mut command = world.base.command(&["pair", "--yes", "--json", "--no-ros", "--file"]);
    command.arg(file);
    let said = pairing::Run::start("base", command).failure();
    assert!(said.contains("sudo tautline pair") && said.contains("--file robot.yaml"), "{said}");
    // A user who is not root.
    let mut command = world.base.inside.command("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    command.args([PROGRAM, "pair", "--yes", "--json", "--no-ros"]);
    let said = pairing::Run::start("base", command).failure();
    assert!(said.contains("cannot write files there"), "{said}");
    assert!(world.base.files().is_empty());
}

#[test]
fn mistakes_are_reported_with_the_allowed_values() {
    let world = World::new();
    for (arguments, expected) in [
        (&["4821-739"][..], "allowed: the eight digits"),
        (&["robot1"], "USER@ROBOT"),
        (&["--at", "10.77.0.1"], "tautline pair CODE --at HOST"),
        (&["4821-7390", "--at", "a b", "--no-ros"], "--at: found 'a b'"),
        (&["4821-7390", "--at", "10.77.0.1", "--no-ros"], "Connection refused"),
        (&["--name", "a b", "--no-ros"], "--name: found 'a b'"),
        (&["--ros2=999"], "allowed: 0 to 232"),
    ] {
        let mut command = world.robot.pair_command(arguments);
        command.args(["--yes"]);
        let said = pairing::Run::start("robot1", command).failure();
        assert!(said.contains(expected), "{arguments:?}: {said}");
    }
    let base = world.base.pair(NO_ROS);
    let mut same = world.robot.pair_command(&[&base.code(), "--yes", "--no-ros", "--name", "base"]);
    same.arg("--json");
    let said = pairing::Run::start("base", same).failure();
    assert!(said.contains("same name") && said.contains("--name"), "{said}");
    assert!(world.robot.files().is_empty());
}

#[test]
fn a_signal_leaves_nothing() {
    let world = World::new();
    let mut base = world.base.pair(NO_ROS);
    base.code();
    let running = Command::new("pgrep").args(["-P", &base.pid().to_string()]).output().unwrap();
    // nsenter has replaced itself by the program, or is its parent.
    let child = String::from_utf8(running.stdout).unwrap();
    match child.trim() {
        "" => base.kill("-INT"),
        pid => assert!(Command::new("kill").args(["-INT", pid]).status().unwrap().success()),
    }
    base.failure();
    assert!(world.base.files().is_empty());
}
