// SPDX-License-Identifier: Apache-2.0
//! `tautline pair` together with other programs: a real sshd, rclpy nodes, and the environment of
//! sudo. Needs root, sshd and ROS 2.

use crate::PROGRAM;
use crate::pairing;
use crate::pairing::{Machine, World};
use serde_json::json;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tautline_testkit::ros::Agent;
use tautline_testkit::ros::ros2;
use tautline_testkit::running;

const SSHD: &str = "/usr/sbin/sshd";
const TWIST: &str = "geometry_msgs/msg/Twist";
const SCAN: &str = "sensor_msgs/msg/LaserScan";

/// A folder of programs that precedes others in PATH.
struct Programs(PathBuf);

impl Programs {
    fn new(folder: PathBuf) -> Self {
        std::fs::create_dir(&folder).unwrap();
        Self(folder)
    }

    fn add(&self, name: &str, script: &str) {
        let path = self.0.join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    }

    fn path(&self) -> String {
        format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", self.0.display())
    }
}

/// An sshd; killed when dropped.
struct Sshd(Child);

impl Drop for Sshd {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn keys(folder: &Path) {
    for name in ["user", "host"] {
        let mut keygen = Command::new("ssh-keygen");
        keygen.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(folder.join(name));
        assert!(keygen.status().unwrap().success());
    }
}

/// Starts an sshd at the robot whose users find these programs.
fn sshd(robot: &Machine, keys: &Path, programs: &Programs) -> Sshd {
    assert!(Path::new(SSHD).exists(), "this test needs sshd: apt-get install openssh-server");
    std::fs::create_dir_all("/run/sshd").unwrap();
    let mut command = robot.inside.command(SSHD);
    command.args(["-D", "-e", "-f", "/dev/null", "-h"]).arg(keys.join("host"));
    for option in [
        format!("AuthorizedKeysFile={}", keys.join("user.pub").display()),
        format!("PidFile={}", keys.join("pid").display()),
        format!("SetEnv=PATH={}", programs.path()),
        "UsePAM=no".into(),
        "StrictModes=no".into(),
        "PermitRootLogin=prohibit-password".into(),
    ] {
        command.args(["-o", &option]);
    }
    let child = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let sshd = Sshd(child);
    let connect = || std::net::TcpStream::connect(("10.77.0.2", 22)).ok();
    running::wait_for("sshd", || robot.inside.call(connect));
    sshd
}

/// A base and a robot with an sshd.
struct Ssh {
    world: World,
    here: Programs,
    there: Programs,
    _sshd: Sshd,
}

impl Ssh {
    fn new() -> Self {
        let world = World::new();
        let place = world.place.path("ssh");
        std::fs::create_dir(&place).unwrap();
        // The user pi of the robot reads its keys and runs its programs.
        for folder in [&world.place.path(""), &place] {
            std::fs::set_permissions(folder, PermissionsExt::from_mode(0o755)).unwrap();
        }
        keys(&place);
        let (here, there) = (Programs::new(place.join("here")), Programs::new(place.join("there")));
        let options = "-F none -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null";
        let key = place.join("user");
        here.add("ssh", &format!("exec /usr/bin/ssh {options} -i {} \"$@\"", key.display()));
        let _sshd = sshd(&world.robot, &place, &there);
        Self { world, here, there, _sshd }
    }

    /// Starts the command at the base, with arguments for the robot.
    fn start(&self, target: &str, of_robot: &[&str]) -> pairing::Run {
        let fixed = ["--yes", "--name", "base", "--no-ros", "--no-start", target, "--"];
        let file = self.world.robot.file();
        let file = ["--no-start", "--file", file.to_str().unwrap()];
        let mut command = self.world.base.pair_command(&[&fixed, &file[..], of_robot].concat());
        command.env("PATH", self.here.path());
        pairing::Run::start("base", command)
    }
}

#[test]
fn one_command_at_the_base_pairs_over_ssh() {
    let ssh = Ssh::new();
    let Ssh { world, there, .. } = &ssh;
    let (program, arguments) = (PROGRAM, world.place.path("arguments"));
    let script = format!("echo \"$@\" >{}\nexec {program} \"$@\"", arguments.display());
    there.add("tautline", &script);
    let own = ["--name", "robot1", "--no-ros"];
    let mut base = ssh.start("root@10.77.0.2", &own);
    assert!(base.end().success(), "{}", base.output());
    let said = base.output();
    assert!(
        said.contains("robot: paired with base") && said.contains("paired with robot1"),
        "{said}"
    );
    assert_eq!(world.robot.files(), ["robot.yaml", "robot1.key"]);
    assert!(
        world.robot.robot_yaml().contains("address: 10.77.0.1 "),
        "{}",
        world.robot.robot_yaml()
    );
    let arguments = std::fs::read_to_string(arguments).unwrap();
    assert!(arguments.contains("--code-from-stdin") && arguments.contains("--at 10.77.0.1"));
    let is_digit_pair = |word: &str| word.len() == 9 && word.as_bytes()[4] == b'-';
    assert!(!arguments.split_whitespace().any(is_digit_pair), "no code: {arguments}");

    let said = ssh.start("stranger@10.77.0.2", &own).failure();
    assert!(said.contains("ssh could not connect"), "{said}");
    let said = ssh.start("root@10.77.0.2", &["--rso2=7"]).failure();
    assert!(said.contains("robot: error: unexpected argument '--rso2'"), "{said}");
    let said = ssh.start("root@10.77.0.2", &["--name", "$(reboot)"]).failure();
    assert!(said.contains("after --: found '$(reboot)'; allowed: "), "{said}");
    there.add("tautline", "echo broken >&2; exit 5");
    let said = ssh.start("root@10.77.0.2", &own).failure();
    assert!(said.contains("robot: broken") && said.contains("the robot's side at root@"), "{said}");
    // A message of sudo on many robots that is not a refusal.
    there.add("tautline", "echo 'sudo: unable to resolve host robot1' >&2; exit 5");
    let said = ssh.start("root@10.77.0.2", &own).failure();
    assert!(said.contains("its lines above name the cause"), "{said}");
}

#[test]
fn an_ordinary_user_of_the_robot_needs_sudo_without_a_password() {
    assert!(Path::new("/usr/bin/sudo").exists(), "this test needs sudo: make setup");
    let ssh = Ssh::new();
    let Ssh { world, there, .. } = &ssh;
    there.add("tautline", &format!("exec {} \"$@\"", PROGRAM));
    let replace = |file: &str, text: &str, mode| {
        let own = world.place.path(&file.replace('/', "_"));
        std::fs::write(&own, text).unwrap();
        std::fs::set_permissions(&own, PermissionsExt::from_mode(mode)).unwrap();
        world.robot.inside.run(&format!("mount --bind {} {file}", own.display()));
    };
    let with =
        |file: &str, line: &str| format!("{}{line}\n", std::fs::read_to_string(file).unwrap());
    replace("/etc/passwd", &with("/etc/passwd", "pi:x:4711:4711::/tmp:/bin/sh"), 0o644);
    replace("/etc/shadow", &with("/etc/shadow", "pi:*:19000:0:99999:7:::"), 0o600);
    let path = format!("Defaults secure_path=\"{}\"", there.path());
    replace("/etc/sudoers", &format!("{path}\npi ALL=(ALL) ALL\n"), 0o440);
    let own = ["--name", "robot1", "--no-ros"];
    let said = ssh.start("pi@10.77.0.2", &own).failure();
    for words in [
        "robot: sudo: a password is required",
        "pi may not use sudo there without a password",
        "tautline pair root@10.77.0.2",
        "echo 'pi ALL=(root) NOPASSWD: /usr/bin/tautline' | sudo tee",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert!(world.robot.files().is_empty() && world.base.files().is_empty());

    let tautline = there.0.join("tautline");
    replace(
        "/etc/sudoers",
        &format!("{path}\npi ALL=(root) NOPASSWD: {}\n", tautline.display()),
        0o440,
    );
    let mut base = ssh.start("pi@10.77.0.2", &own);
    assert!(base.end().success(), "{}", base.output());
    assert_eq!(world.robot.files(), ["robot.yaml", "robot1.key"]);
}

/// ssh runs a shell without the settings of ROS; the nodes have them.
#[test]
fn over_ssh_the_settings_of_running_programs_are_found() {
    let ssh = Ssh::new();
    let Ssh { world, there, .. } = &ssh;
    there.add("tautline", &format!("exec {} \"$@\"", PROGRAM));
    let mut robot = rclpy(&world.robot, 7);
    robot.publisher("/scan", SCAN, json!({}));
    let mut base = ssh.start("root@10.77.0.2", &["--name", "robot1"]);
    assert!(base.end().success(), "{}", base.output());
    let said = base.output();
    assert!(said.contains("are those of the running programs"), "{said}");
    let text = world.robot.robot_yaml();
    assert!(text.contains("domain: 7") && text.contains("  /scan: "), "{text}");
}

/// An rclpy node in the network of a machine.
fn rclpy(machine: &Machine, domain: u32) -> Agent {
    let name = format!("of_{}", machine.name);
    machine.inside.call(|| ros2::start_in(domain, "jazzy", "SUBNET", &name))
}

#[test]
fn two_machines_with_ros_2_are_paired_and_carry_a_scan_and_commands() {
    let world = World::new();
    let (mut viewer, mut robot) = (rclpy(&world.base, 8), rclpy(&world.robot, 7));
    robot.publisher("/scan", SCAN, json!({}));
    robot.subscriber("/cmd_vel", TWIST, json!({}));
    viewer.publisher("/viewer", SCAN, json!({}));
    let runs = world.pair_well([&["--ros2=8"], &["--ros2=7"]]);
    let plan = runs[0].event("plan");
    let shown: Vec<_> =
        plan["shown"].as_array().unwrap().iter().map(|it| it["at_base"].clone()).collect();
    assert!(shown.contains(&json!("/robot1/scan")), "{plan}");
    assert_eq!(plan["commands"][0]["type"], "geometry_msgs/Twist", "{plan}");
    assert!(
        world.robot.robot_yaml().contains("ros2: { domain: 7 }"),
        "{}",
        world.robot.robot_yaml()
    );

    let (base, _robot) = (world.base.run(), world.robot.run());
    base.wait_until_up("robot1");
    viewer.subscriber("/robot1/scan", SCAN, json!({}));
    viewer.publisher("/cmd_vel", TWIST, json!({}));
    let send = |from: &mut Agent, topic: &str, fields: serde_json::Value| {
        from.order(json!({ "do": "send", "topic": topic, "fields": fields }));
    };
    running::wait_for("the scan", || {
        send(&mut robot, "/scan", json!({ "ranges": [1.0] }));
        (!viewer.received("/robot1/scan").is_empty()).then_some(())
    });
    running::wait_for("the command", || {
        send(&mut viewer, "/cmd_vel", json!({ "linear": { "x": 0.2 } }));
        (!robot.received("/cmd_vel").is_empty()).then_some(())
    });
}

#[test]
fn ros_2_is_found_without_a_flag() {
    let world = World::new();
    let mut robot = rclpy(&world.robot, 0);
    robot.publisher("/scan", SCAN, json!({}));
    let runs = world.pair_well([&["--no-ros"], &[]]);
    assert_eq!(runs[0].event("plan")["shown"][0]["at_robot"], "/scan");
    assert!(
        world.robot.robot_yaml().contains("ros2: { domain: 0 }"),
        "{}",
        world.robot.robot_yaml()
    );
}

#[test]
fn the_variables_of_the_shell_that_called_sudo_are_found() {
    let world = World::new();
    // The program looks for a process with the name sudo. This one is a shell that clears the environment
    // as sudo does.
    let sudo = world.place.path("sudo");
    std::fs::copy("/bin/dash", &sudo).unwrap();
    let script = "env -i SUDO_UID=1000 PATH=/usr/bin:/bin \"$@\"; exit $?";
    let mut command = world.robot.inside.command(sudo.to_str().unwrap());
    command.args(["-c", script, "sudo", PROGRAM, "pair", "--yes"]);
    command.args(["4821-7390", "--at", "10.77.0.1"]).arg("--file").arg(world.robot.file());
    command.env("ROS_MASTER_URI", "http://127.0.0.1:4711").env("ROS_VERSION", "1");
    let said = pairing::Run::start("robot1", command).failure();
    assert!(said.contains("127.0.0.1:4711"), "{said}");
}
