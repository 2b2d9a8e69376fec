// SPDX-License-Identifier: Apache-2.0
//! The daemon in launch files of a real roslaunch and a real ros2 launch.

use crate::PROGRAM;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use tautline_testkit::running::enclosure::Enclosure;
use tautline_testkit::running::{Place, wait_for};

const MASTER: &str = "http://127.0.0.1:11311";

/// The packages for ROS that are installed with the program.
const PACKAGES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/ros");

/// roslaunch or ros2 launch, which ends its nodes and its master when it is terminated.
struct Launched(Child);

impl Launched {
    fn end(&mut self) {
        let sent = Command::new("kill").args(["-INT", &self.0.id().to_string()]).status();
        assert!(sent.unwrap().success());
        let ended = wait_for("the end of the launch", || self.0.try_wait().unwrap());
        assert!(ended.success(), "{ended}");
    }
}

impl Launched {
    /// Starts `command` with its output in `log`.
    fn start(mut command: Command, log: &Path) -> Self {
        let output = std::fs::File::create(log).unwrap();
        let errors = output.try_clone().unwrap();
        command.stdin(Stdio::null()).stdout(output).stderr(errors);
        Self(command.spawn().unwrap())
    }

    /// Waits until the output in `log` contains `words`.
    fn wait_for_words(&mut self, log: &Path, words: &str) {
        wait_for(format!("'{words}'"), || {
            let output = std::fs::read_to_string(log).unwrap();
            assert!(self.0.try_wait().unwrap().is_none(), "{output}");
            output.contains(words).then_some(())
        });
    }
}

impl Drop for Launched {
    fn drop(&mut self) {
        if self.0.try_wait().is_ok_and(|it| it.is_none()) {
            self.end();
        }
    }
}

#[test]
fn a_daemon_in_a_launch_file_uses_the_launched_name() {
    let place = Place::new(PROGRAM);
    let hosts = place.hosts();
    let robot = Enclosure::new(&hosts);
    let lines = "listen: \"127.0.0.1:18470\"\nros1: { host: 127.0.0.1 }";
    let file = place.write("robot", "robot", lines).display().to_string();
    let named = place.write(
        "named",
        "named",
        "listen: \"127.0.0.1:18471\"\nros1: { host: 127.0.0.1, node_name: /own }",
    );
    let package = place.path("tautline");
    std::fs::create_dir(&package).unwrap();
    let manifest = "<package><name>tautline</name><version>1.0.0</version>\
                    <description>d</description><license>l</license>\
                    <maintainer email='a@b.c'>m</maintainer></package>";
    std::fs::write(package.join("package.xml"), manifest).unwrap();
    symlink(PROGRAM, package.join("tautline")).unwrap();
    let launch = place.path("robot.launch");
    let node = |name: &str, file: &str, more: &str| {
        format!(
            "<node pkg='tautline' type='tautline' name='{name}' args='run {file}' required='true'>{more}</node>"
        )
    };
    let text = format!(
        "<launch><group ns='r1'>{}</group>{}</launch>",
        node("link", &file, "<remap from='/a' to='/b'/>"),
        node("other", &named.display().to_string(), ""),
    );
    std::fs::write(&launch, text).unwrap();

    let ros = |program: &str| {
        let mut command = robot.command("env");
        command.args([
            "PATH=/usr/bin:/bin:/usr/sbin:/sbin",
            "PYTHONUNBUFFERED=1",
            "ROS_IP=127.0.0.1",
        ]);
        command.arg(format!("ROS_MASTER_URI={MASTER}"));
        for folder in ["ROS_HOME", "ROS_LOG_DIR", "ROS_PACKAGE_PATH"] {
            command.arg(format!("{folder}={}", place.path("").display()));
        }
        command.arg(program);
        command
    };
    let mut command = ros("roslaunch");
    command.arg(&launch);
    let mut launched = Launched::start(command, &place.path("roslaunch.log"));
    let told = || std::fs::read_to_string(place.path("roslaunch.log")).unwrap();
    let is_there = |name: &str| {
        let script = "import sys, xmlrpc.client; \
                      print(xmlrpc.client.ServerProxy(sys.argv[1]).lookupNode('/test', sys.argv[2])[0])";
        let output = ros("python3").args(["-c", script, MASTER, name]).output().unwrap();
        output.stdout == b"1\n"
    };
    wait_for("both daemons at the master", || {
        assert!(launched.0.try_wait().unwrap().is_none(), "{}", told());
        (is_there("/r1/link") && is_there("/own")).then_some(())
    });
    let told = told();
    for expected in [
        "arguments of ROS without effect: '/a:=/b'",
        "ros1.node_name: /own is used, although the arguments of ROS name this node /other",
    ] {
        assert!(told.contains(expected), "{told}");
    }
    launched.end();
}

/// The folder of the program, for PATH.
fn program_folder() -> &'static Path {
    Path::new(PROGRAM).parent().unwrap()
}

#[test]
fn the_package_for_ros1_starts_the_daemon_and_what_needs_it() {
    let place = Place::new(PROGRAM);
    let robot = Enclosure::new(&place.hosts());
    let lines = "listen: \"127.0.0.1:18470\"\nros1: { host: 127.0.0.1 }";
    let file = place.write("robot", "robot", lines).display().to_string();
    let control = place.path("robot.sock").display().to_string();
    let launch = place.path("all.launch");
    let text = format!(
        "<launch>
           <include file='$(find tautline)/launch/tautline.launch'>
             <arg name='file' value='{file}'/><arg name='name' value='link'/>
           </include>
           <node pkg='tautline' type='tautline' name='other' output='screen'
                 launch-prefix='$(find tautline)/when_ready --control {control}
                                sh -c &quot;tautline status --control {control}&quot;'/>
         </launch>"
    );
    std::fs::write(&launch, text).unwrap();
    let mut command = robot.command("env");
    command.arg(format!("PATH={}:/usr/bin:/bin:/usr/sbin:/sbin", program_folder().display()));
    command.args(["PYTHONUNBUFFERED=1", "ROS_IP=127.0.0.1"]);
    command.arg(format!("ROS_MASTER_URI={MASTER}"));
    for folder in ["ROS_HOME", "ROS_LOG_DIR"] {
        command.arg(format!("{folder}={}", place.path("").display()));
    }
    command.arg(format!("ROS_PACKAGE_PATH={PACKAGES}/ros1")).arg("roslaunch").arg(&launch);
    let log = place.path("roslaunch.log");
    let mut launched = Launched::start(command, &log);
    // The output of the second node, which starts once.
    launched.wait_for_words(&log, "listens on UDP 127.0.0.1:18470");
    launched.wait_for_words(&log, "process has finished cleanly");
    launched.end();
    let output = std::fs::read_to_string(&log).unwrap();
    assert!(output.contains("draining and stopping"), "{output}");
}

#[test]
fn a_program_is_not_started_if_no_daemon_answers() {
    let place = Place::new(PROGRAM);
    let mut command = Command::new(format!("{PACKAGES}/ros1/tautline/when_ready"));
    command.env("TAUTLINE", PROGRAM);
    let absent = place.path("absent.sock");
    let output =
        command.args(["--timeout", "0", "--control"]).arg(&absent).args(["echo", "hello"]).output();
    let output = output.unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "{errors}");
    assert!(errors.contains("not ready within 0 s") && errors.contains("absent.sock"), "{errors}");
    let mut command = Command::new(format!("{PACKAGES}/ros1/tautline/when_ready"));
    let output = command.args(["--timeout", "soon", "echo"]).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("found 'soon'; allowed: whole seconds"), "{errors}");
}

/// `ros2 launch` with the package for ROS 2, and the variables that it needs.
fn ros2_launch(robot: &Enclosure, place: &Place) -> Command {
    let cli = std::env::var("TAUTLINE_ROS2_CLI").unwrap_or_else(|_| {
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/ros2/cli").to_owned()
    });
    assert!(Path::new(&cli).join("bin/ros2").exists(), "run crates/lab/ros2.sh cli first: {cli}");
    let mut command = robot.command("env");
    command.arg(format!("PATH={}:/usr/bin:/bin", program_folder().display()));
    command.arg(format!("AMENT_PREFIX_PATH={PACKAGES}/ros2:{cli}"));
    command.args(["ROS_DOMAIN_ID=77", "PYTHONUNBUFFERED=1"]);
    command.arg(format!("ROS_LOG_DIR={}", place.path("").display()));
    command.arg(format!("{cli}/bin/ros2")).args(["launch"]);
    command
}

#[test]
#[ignore = "needs ros2 launch, which GitHub has but PyPI does not: crates/lab/ros2.sh cli"]
fn the_package_for_ros2_starts_the_daemon_and_what_needs_it() {
    let place = Place::new(PROGRAM);
    let robot = Enclosure::new(&place.hosts());
    let lines = "listen: \"127.0.0.1:18470\"\nros2: { domain: 77, range: localhost }";
    let file = place.write("robot", "robot", lines).display().to_string();
    let log = place.path("launch.log");
    let mut command = ros2_launch(&robot, &place);
    command.args(["tautline", "tautline.launch.py", "name:=link"]).arg(format!("file:={file}"));
    let mut launched = Launched::start(command, &log);
    launched.wait_for_words(&log, "tautline is ready");
    launched.end();
    let output = std::fs::read_to_string(&log).unwrap();
    assert!(output.contains("draining and stopping"), "{output}");

    // A launch file of a user, with what starts after the daemon.
    let own = place.path("own.launch.py");
    let control = place.path("robot.sock").display().to_string();
    let text = format!(
        "import sys\nsys.path.append('{PACKAGES}/ros2/share/tautline/python')\n\
         from launch import LaunchDescription\n\
         from launch.actions import ExecuteProcess, Shutdown\n\
         from tautline_launch import Tautline\n\
         def generate_launch_description():\n    \
             status = ExecuteProcess(cmd=['tautline', 'status', '--control', '{control}'],\n        \
                 output='screen', on_exit=[Shutdown()])\n    \
             return LaunchDescription([Tautline(file='{file}', name='link', on_ready=[status])])\n"
    );
    std::fs::write(&own, text).unwrap();
    let mut command = ros2_launch(&robot, &place);
    command.arg(&own);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("listens on UDP"), "{said}");
}

#[test]
#[ignore = "needs ros2 launch, which GitHub has but PyPI does not: crates/lab/ros2.sh cli"]
fn a_launch_of_ros2_ends_if_the_daemon_cannot_be_ready() {
    let place = Place::new(PROGRAM);
    let robot = Enclosure::new(&place.hosts());
    let file = place.write("robot", "robot", "listen: 5 o'clock").display().to_string();
    for (arguments, expected) in [
        (vec![], "the file or the key of tautline is wrong"),
        // A program that runs, and does not notify.
        (vec!["program:=yes", "ready_timeout:=0.5"], "tautline was not ready within 0.5 s"),
        (vec!["ready_timeout:=soon"], "ready_timeout: found 'soon'; allowed: seconds"),
    ] {
        let mut command = ros2_launch(&robot, &place);
        command.args(["tautline", "tautline.launch.py"]);
        let output = command.arg(format!("file:={file}")).args(arguments).output().unwrap();
        let said =
            String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(expected), "{said}");
    }
}
