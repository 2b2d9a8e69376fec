// SPDX-License-Identifier: Apache-2.0
//! The examples of the library, each run in two processes.

#[allow(dead_code, reason = "its main belongs to the example")]
#[path = "../examples/greet.rs"]
mod greet;
#[path = "../examples/hello.rs"]
mod hello;

use hello::End;
use std::process::Command;
use std::time::Duration;

/// Environment variable with the arguments of the robot's process; set only there.
const ARGUMENTS: &str = "TAUTLINE_HELLO_ROBOT";
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn two_processes_exchange_a_message() {
    let folder = tempfile::tempdir().unwrap();
    let [robot, base] = End::pair(folder.path()).unwrap();
    let mut process = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "the_example_robot_greets_its_base"])
        .env(ARGUMENTS, robot.arguments().join("\n"))
        .spawn()
        .unwrap();
    let greeting = hello::base(&base);
    if greeting.is_err() {
        // The process may still wait for the base.
        let _ = process.kill();
    }
    let ended = process.wait().unwrap();
    assert_eq!(greeting.unwrap(), format!("hello from process {}", process.id()));
    assert!(ended.success());
}

/// With the environment variable, this is the robot of the test above, in its second process.
#[test]
fn the_example_robot_greets_its_base() {
    if let Ok(arguments) = std::env::var(ARGUMENTS) {
        let arguments: Vec<String> = arguments.lines().map(str::to_owned).collect();
        return hello::robot(&End::of_arguments(&arguments).unwrap(), PATIENCE).unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    let [robot, _] = End::pair(folder.path()).unwrap();
    let error = hello::robot(&robot, Duration::ZERO).unwrap_err();
    assert_eq!(error.to_string(), "nobody subscribes to /greeting");
}

/// Runs itself again as the second process.
#[test]
fn the_program_in_the_guide_exchanges_a_message() {
    const ROBOT: &str = "TAUTLINE_GREET_ROBOT";
    if std::env::var_os(ROBOT).is_some() {
        return greet::robot().unwrap();
    }
    let page = include_str!("../../../docs/how-to/library.md");
    let example = include_str!("../examples/greet.rs").split("\n\n").skip(1).collect::<Vec<_>>();
    assert!(page.contains(example.join("\n\n").trim()), "the page has the text of the example");
    let name = "the_program_in_the_guide_exchanges_a_message";
    let mut robot = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name])
        .env(ROBOT, "")
        .spawn()
        .unwrap();
    assert_eq!(greet::base().unwrap(), "hello");
    assert!(robot.wait().unwrap().success());
}
