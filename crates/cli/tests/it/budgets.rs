// SPDX-License-Identifier: Apache-2.0
//! Data budgets of links: a used-up budget stops all topics except those that may exceed it, and
//! the used amount survives restarts.

use crate::PROGRAM;
use std::time::Duration;
use tautline::status::{BudgetReport, Status};
use tautline_testkit::running::node::Running;
use tautline_testkit::running::{Daemon, Place, free_port, wait_for};

const IMAGE: &str = "/image";
const COMMAND: &str = "/cmd_vel";

fn budget(status: &Status) -> BudgetReport {
    let mut budgets = status.links.iter().filter_map(|link| link.budget.clone());
    budgets.next().expect("the link has a budget")
}

/// The file of `robot`, which has one link to `base` with this budget, and of `base`.
fn files(place: &Place, budget: &str) -> [String; 2] {
    let [robot, base] = [(); 2].map(|()| free_port());
    let state = place.path("state");
    let lte = format!("{{ name: lte, address: \"127.0.0.1:{base}\", budget: {budget} }}");
    [
        format!(
            "listen: \"127.0.0.1:{robot}\"\nstate: {}\npeers: {{ base: {{ links: [{lte}] }} }}\n\
             topics: {{ {IMAGE}: {{ keep_last: 2 }}, {COMMAND}: {{ over_budget: true }} }}",
            state.display()
        ),
        format!(
            "listen: \"127.0.0.1:{base}\"\n\
             peers: {{ robot: {{ address: \"127.0.0.1:{robot}\", accept: \"/**\" }} }}"
        ),
    ]
}

#[test]
fn a_spent_budget_stops_topics_without_permission() {
    let place = Place::new(PROGRAM);
    let [robot_file, base_file] = files(&place, "500kB/1d");
    let base = Running::start("base", &base_file);
    let robot = Running::start("robot", &robot_file);
    [IMAGE, COMMAND].iter().for_each(|topic| robot.offer(topic));
    wait_for("the budget is used up", || {
        robot.publish(IMAGE, 30_000);
        std::thread::sleep(Duration::from_millis(20));
        budget(&robot.status()).spent.then_some(())
    });
    let (images, commands) = (robot.delivered(IMAGE), robot.delivered(COMMAND));
    assert!((10..=17).contains(&images), "{images} images of 30 kB in 500 kB");
    for _ in 0..10 {
        robot.publish(IMAGE, 30_000);
        robot.publish(COMMAND, 50);
        std::thread::sleep(Duration::from_millis(20));
    }
    wait_for("commands arrive", || (robot.delivered(COMMAND) >= commands + 9).then_some(()));
    assert!(robot.delivered(IMAGE) <= images + 1, "one may have been on the way");
    let image = robot.sent(IMAGE).unwrap();
    // Two images of which nothing was sent, and one that was being sent.
    assert!(image.queued <= 3 && image.dropped["superseded"] >= 8, "{image:?}");
    let status = robot.status();
    let used = budget(&status);
    assert!(used.used_bytes < 560_000 && used.total_bytes == 500_000, "{used:?}");
    assert!(status.links[0].up);
    let told = |it: &String| it.contains("(500kB/1d) is used up until");
    assert!(status.notices.iter().any(told), "{:?}", status.notices);
    robot.stop();

    let robot = Running::start("robot", &robot_file);
    let again = budget(&robot.status());
    assert!(again.spent && again.used_bytes >= used.used_bytes, "{again:?} after {used:?}");
    assert_eq!(again.period_ends, used.period_ends);
    [IMAGE, COMMAND].iter().for_each(|topic| robot.offer(topic));
    wait_for("a command arrives", || {
        robot.publish(IMAGE, 30_000);
        robot.publish(COMMAND, 50);
        std::thread::sleep(Duration::from_millis(20));
        (robot.delivered(COMMAND) > 0).then_some(())
    });
    assert_eq!(robot.delivered(IMAGE), 0, "the first packet after the start follows the budget");
    robot.stop();
    base.stop();
}

fn start(place: &Place, budget: &str) -> [Daemon; 2] {
    let [robot, base] = files(place, budget);
    [place.start("robot", &robot), place.start("base", &base)]
}

#[test]
fn the_used_budget_includes_heartbeats_and_survives_a_restart() {
    let place = Place::new(PROGRAM);
    let [robot_file, base_file] = files(&place, "2kB/1d");
    let mut robot = place.start("robot", &robot_file);
    let _base = place.start("base", &base_file);
    robot.wait_for_notice(&["link 'lte' to 'base' (2kB/1d)", "is used up until"]);
    robot.wait_for_state("base", "up");
    let before = budget(&robot.status());
    robot.terminate();
    assert!(robot.wait_for_end().success());
    let file = std::fs::read_to_string(place.path("state/robot.budgets")).unwrap();
    assert!(file.contains("\"peer\": \"base\"") && file.contains("\"link\": \"lte\""), "{file}");
    let robot = place.start("robot", &robot_file);
    let after = budget(&robot.status());
    assert!(after.spent && after.used_bytes >= before.used_bytes, "{before:?} {after:?}");
    let text = std::process::Command::new(PROGRAM)
        .args(["status", "--control"])
        .arg(&robot.control)
        .output();
    let text = String::from_utf8(text.unwrap().stdout).unwrap();
    let checked =
        std::process::Command::new(PROGRAM).arg("check").arg(place.path("robot.yaml")).output();
    let checked = String::from_utf8(checked.unwrap().stdout).unwrap();
    for words in ["heartbeats alone use about 86MB/1d", ", budget 2kB/1d"] {
        assert!(checked.contains(words), "{words}: {checked}");
    }
    for words in ["Budgets of links", "lte", "/2.00kB", &after.period_ends, "used up"] {
        assert!(text.contains(words), "{words}: {text}");
    }
}

#[test]
fn a_changed_budget_applies_immediately() {
    let place = Place::new(PROGRAM);
    let [robot_file, base_file] = files(&place, "2kB/1d");
    let robot = place.start("robot", &robot_file);
    let _base = place.start("base", &base_file);
    robot.wait_for_notice(&["(2kB/1d)", "is used up"]);
    let before = robot.status();
    place.write("robot", "robot", &robot_file.replace("2kB/1d", "1GB/1d"));
    let mut reload = std::process::Command::new(PROGRAM);
    let output = reload.args(["reload", "--control"]).arg(&robot.control).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && text.contains("budget 1GB/1d"), "{output:?}");
    let after = robot.status();
    let [used, now] = [&before, &after].map(budget);
    assert!(!now.spent && now.total_bytes == 1_000_000_000, "{now:?}");
    assert!(now.used_bytes >= used.used_bytes && now.period_ends == used.period_ends);
    assert!(after.links[0].sent_packets >= before.links[0].sent_packets, "the same link");
    assert!(!after.notices.iter().any(|it| it.contains("used up")), "{:?}", after.notices);
}

#[test]
fn a_damaged_file_and_a_folder_that_cannot_be_written_have_notices() {
    let place = Place::new(PROGRAM);
    std::fs::create_dir(place.path("state")).unwrap();
    std::fs::write(place.path("state/robot.budgets"), "{ \"links\": [ {").unwrap();
    let [robot, _base] = start(&place, "1GB/1d");
    robot.wait_for_notice(&["robot.budgets", "cannot be read, and begins at 0"]);
    wait_for("a new file", || {
        let text = std::fs::read_to_string(place.path("state/robot.budgets")).unwrap();
        text.contains("\"lte\"").then_some(())
    });

    let place = Place::new(PROGRAM);
    std::fs::write(place.path("state"), "no folder").unwrap();
    let [robot, _base] = start(&place, "1GB/1d");
    robot.wait_for_notice(&["robot.budgets", "cannot be written", "Set 'state: FOLDER'"]);
    robot.wait_for_state("base", "up");
}
