// SPDX-License-Identifier: Apache-2.0
//! Tests that need a separate process, because they measure its memory or use another network: the
//! test program runs again with only the calling test.

use std::process::{Command, Stdio};

/// Environment variable that is set in a process that runs a single test.
const RERUN_VAR: &str = "TAUTLINE_TEST_AGAIN";

/// Returns the full name of the calling test.
pub fn this_test() -> String {
    // Rust's test harness names each test's thread after the test.
    std::thread::current().name().expect("the thread of a test").to_owned()
}

/// Returns a command that runs only the calling test.
pub fn this_test_alone() -> Command {
    let mut command = Command::new(std::env::current_exe().expect("the test program"));
    add_selection(&mut command);
    command
}

/// Returns `true` in a separate process for the calling test. In any other process, runs the test
/// in such a process, panics if it fails, and returns `false`: then the caller returns.
pub fn in_own_process() -> bool {
    is_alone() || run_and_check(this_test_alone())
}

/// Like [`in_own_process`], in a separate network, which the shell script `setup` prepares.
pub fn in_own_network(setup: &str) -> bool {
    if is_alone() {
        return true;
    }
    let script = format!("{setup} && exec \"$@\"");
    let mut command = Command::new("unshare");
    command.args(["--net", "--", "sh", "-c", &script, "sh"]);
    command.arg(std::env::current_exe().expect("the test program"));
    add_selection(&mut command);
    run_and_check(command)
}

fn is_alone() -> bool {
    std::env::var_os(RERUN_VAR).is_some()
}

fn add_selection(command: &mut Command) {
    command.arg(this_test()).args(["--exact", "--include-ignored", "--nocapture"]);
}

/// Runs the test and panics if it fails. Returns `false`, the result of [`in_own_process`].
fn run_and_check(mut command: Command) -> bool {
    let output = command.env(RERUN_VAR, "1").stderr(Stdio::inherit()).output();
    let output = output.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = String::from_utf8_lossy(&output.stdout);
    println!("{said}");
    let test = this_test();
    // An unknown name would select no test and succeed.
    assert!(output.status.success() && said.contains(" 1 passed"), "{test} in its own process");
    false
}
