// SPDX-License-Identifier: Apache-2.0
//! The daemon as a node in a launch file of a real roslaunch.

#[allow(dead_code)]
mod running;

use running::enclosure::Enclosure;
use running::{Place, wait_for};
use std::os::unix::fs::symlink;
use std::process::{Child, Command, Stdio};

const MASTER: &str = "http://127.0.0.1:11311";

/// roslaunch, which ends its nodes and its master when it is terminated.
struct Launched(Child);

impl Launched {
    fn end(&mut self) {
        let sent = Command::new("kill").args(["-INT", &self.0.id().to_string()]).status();
        assert!(sent.unwrap().success());
        let ended = wait_for("the end of roslaunch", || self.0.try_wait().unwrap());
        assert!(ended.success(), "{ended}");
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
fn a_daemon_in_a_launch_file_has_the_name_that_the_launch_file_gives() {
    let place = Place::new();
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
    symlink(env!("CARGO_BIN_EXE_tautline"), package.join("tautline")).unwrap();
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
    let log = std::fs::File::create(place.path("roslaunch.log")).unwrap();
    let errors = log.try_clone().unwrap();
    let mut command = ros("roslaunch");
    command.arg(&launch).stdin(Stdio::null()).stdout(log).stderr(errors);
    let mut launched = Launched(command.spawn().unwrap());
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
