// SPDX-License-Identifier: Apache-2.0
//! `tautline pair` with people at both ends: what they see before the question, their answers, and what
//! the other end does meanwhile. Needs root.

use crate::pairing::{Machine, Run, World};
use tautline_testkit::running;

const NO_ROS: &[&str] = &["--no-ros"];

/// Starts `tautline pair` for a person.
fn start(machine: &Machine, more: &[&str]) -> Run {
    let arguments = [&["--name", machine.name, "--no-ros"], more].concat();
    Run::start(machine.name, machine.pair_command(&arguments))
}

/// The code in the text of a base.
fn code(base: &mut Run) -> String {
    base.wait_for("On the robot:");
    let said = base.output();
    said.split("code: ").nth(1).unwrap().split_whitespace().next().unwrap().to_owned()
}

/// Starts both ends; returns when both people are asked.
fn pair_with_questions(world: &World, more: [&[&str]; 2]) -> [Run; 2] {
    let mut base = start(&world.base, more[0]);
    let robot = start(&world.robot, &[&[&*code(&mut base)], more[1]].concat());
    let mut runs = [base, robot];
    runs.iter_mut().for_each(|run| run.wait_for("Pair with "));
    runs
}

fn assert_nothing_is_written(world: &World, case: &str) {
    for machine in [&world.base, &world.robot] {
        assert!(machine.files().is_empty(), "{case}: {:?}", machine.files());
    }
}

#[test]
fn two_confirmations_pair_both_ends() {
    let world = World::new();
    let mut base = start(&world.base, &[]);
    let code = code(&mut base);
    let hint = format!("sudo tautline pair {code} --name robot1\n");
    let said = base.output();
    assert!(said.contains(&hint) && said.contains("as /robot1/scan"), "{said}");
    let mut robot = start(&world.robot, &[&code]);
    for (run, answer) in [(&mut base, "y"), (&mut robot, "")] {
        run.wait_for("Pair with ");
        run.answer(answer);
    }
    for run in [&mut base, &mut robot] {
        assert!(run.end().success(), "{}", run.output());
    }
    assert!(world.base.files().len() == 2 && world.robot.files().len() == 2);
}

#[test]
fn a_no_at_one_end_ends_both_and_frees_the_port() {
    let world = World::new();
    for refusing in [0, 1] {
        let mut runs = pair_with_questions(&world, [&[], &[]]);
        runs[refusing].answer("n");
        for (end, run) in runs.iter_mut().enumerate() {
            let said = run.failure();
            let is_told = said.contains("the other machine says: Not paired: the answer was no");
            assert_eq!(is_told, end != refusing, "{said}");
            assert!(said.contains("Nothing was written"), "{said}");
        }
        assert_nothing_is_written(&world, &format!("end {refusing} refuses"));
    }
    // The port is free, and both ends are as before.
    world.pair_well([NO_ROS, NO_ROS]);
}

#[test]
fn a_disappearing_end_ends_the_question_at_the_other() {
    let world = World::new();
    for (vanishing, signal) in [(0, "-INT"), (1, "-INT"), (0, "-KILL"), (1, "-KILL")] {
        let mut runs = pair_with_questions(&world, [&[], &[]]);
        runs[vanishing].kill(signal);
        let said = runs[1 - vanishing].failure();
        let expected = "ended: the other machine closed the connection. Nothing was written here";
        assert!(said.contains(expected), "{said}");
        runs[vanishing].end();
        assert_nothing_is_written(&world, &format!("{signal} at end {vanishing}"));
    }
}

#[test]
fn an_end_may_disappear_after_the_agreement() {
    let world = World::new();
    for (agreeing, vanishing) in [(0, 0), (1, 1), (0, 1), (1, 0)] {
        let mut runs = pair_with_questions(&world, [&[], &[]]);
        runs[agreeing].answer("y");
        // It has prepared its files, and waits for the other person.
        let machine = [&world.base, &world.robot][agreeing];
        running::wait_for("prepared files", || (!machine.files().is_empty()).then_some(()));
        runs[vanishing].kill("-INT");
        let said = runs[1 - vanishing].failure();
        assert!(said.contains("the other machine closed the connection"), "{said}");
        runs[vanishing].end();
        assert_nothing_is_written(&world, &format!("{agreeing} agrees, {vanishing} vanishes"));
    }
}

#[test]
fn changes_of_a_file_are_shown_line_by_line() {
    let world = World::new();
    // A file of the base that has another peer.
    let key = "cHVibGljIGtleSBvZiBiYXNlLCBhbiBleGFtcGxlLi4=";
    let old = format!("name: base\nros1: false\npeers:\n  robot0:\n    key: {key}\n");
    std::fs::write(world.base.file(), &old).unwrap();
    let shown = |run: &mut Run| {
        assert!(run.end().success(), "{}", run.output());
        run.output()
    };
    let trial = |more: &[&str]| {
        let mut base = Run::start("base", world.base.pair_command(more));
        let mut robot = start(&world.robot, &[&code(&mut base), "--dry-run"]);
        [shown(&mut base), shown(&mut robot)]
    };
    let [base, robot] = trial(&[]);
    let changes = format!("changes in {}\n  +  robot1:\n  +    key: ", world.base.file().display());
    assert!(base.contains(&changes) && base.contains("--dry-run at robot1"), "{base}");
    assert!(!base.contains("robot0"), "{base}");
    let new = format!("new file {}\n  +# Tautline: ", world.robot.file().display());
    assert!(robot.contains(&new) && robot.contains("\n  +name: robot1\n"), "{robot}");
    assert_eq!(world.base.robot_yaml(), old);

    world.pair_well([&[], NO_ROS]);
    let [base, robot] = trial(&[]);
    for (said, machine) in [(&base, &world.base), (&robot, &world.robot)] {
        let expected = format!("no changes in {}\n", machine.file().display());
        assert!(said.contains(&expected) && !said.contains("\n  +"), "{said}");
    }
    // The same lines once more: none changes. A line that somebody edited does.
    let marked = world.base.robot_yaml().replace("    prefix: /robot1 ", "    prefix: /first ");
    assert!(trial(&["--replace"])[0].contains("no changes in "));
    std::fs::write(world.base.file(), &marked).unwrap();
    let [base, _] = trial(&["--replace"]);
    let lines: Vec<&str> =
        base.lines().filter(|it| it.starts_with("  -") || it.starts_with("  +")).collect();
    let [removed, added] = lines[..] else { panic!("{base}") };
    assert!(removed.starts_with("  -    prefix: /first "), "{removed}");
    assert!(added.starts_with("  +    prefix: /robot1 "), "{added}");
}

#[test]
fn without_a_master_both_ends_explain_what_to_do() {
    let world = World::new();
    let ros = "--ros1=http://127.0.0.1:1";
    let silent = |machine: &Machine, more: &[&str]| {
        let arguments = [&["--name", machine.name, "--yes", ros], more].concat();
        Run::start(machine.name, machine.pair_command(&arguments))
    };
    let mut base = silent(&world.base, &[]);
    let mut robot = silent(&world.robot, &[&code(&mut base)]);
    for run in [&mut base, &mut robot] {
        assert!(run.end().success(), "{}", run.output());
        let said = run.output();
        assert!(said.contains("press Ctrl-C, start roscore and the nodes"), "{said}");
        assert!(said.contains("No node of robot1 publishes a topic that base could get"), "{said}");
    }
}

#[test]
fn a_new_robot_is_offered_a_name_that_no_peer_has() {
    let world = World::new();
    let key = "cHVibGljIGtleSBvZiBiYXNlLCBhbiBleGFtcGxlLi4=";
    let peers = format!("  robot1:\n    key: {key}\n");
    let text = format!("name: robot2\nros1: false\npeers:\n{peers}");
    std::fs::write(world.base.file(), text).unwrap();
    let mut base = Run::start("base", world.base.pair_command(&[]));
    code(&mut base);
    base.wait_for(" --name robot3\n");
    base.wait_for("as /robot3/scan");
}
