// SPDX-License-Identifier: Apache-2.0
//! A robot whose commands stop coming, with real masters, rospy nodes and two daemons.

#[allow(dead_code)]
mod running;

#[allow(dead_code)]
#[path = "../../gateway/tests/ros/bench.rs"]
mod bench;
#[allow(dead_code)]
#[path = "../../gateway/tests/ros/ros1/nodes.rs"]
mod nodes;

use bench::{Agent, bytes_of, free_port, wait_for};
use nodes::Master;
use running::{Daemon, Place};
use serde_json::{Value, json};

const TWIST: &str = "geometry_msgs/Twist";
const NAME: &str = "/cmd_vel";

/// A base that drives a robot.
struct Team {
    robot: Daemon,
    base: Daemon,
    /// At the base.
    driver: Agent,
    /// On the robot.
    wheels: Agent,
    _masters: [Master; 2],
    _place: Place,
}

impl Team {
    /// The robot is driving already; `message` is what its watchdog is to say.
    fn driving(message: &str) -> Self {
        let place = Place::new();
        let masters = [(); 2].map(|()| Master::alone(free_port()));
        let [robot_port, base_port] = [(); 2].map(|()| running::free_port());
        let file = |listen: u16, master: &Master, lines: &str| {
            format!(
                "listen: \"127.0.0.1:{listen}\"\n\
                 ros1: {{ master: \"{}\", host: 127.0.0.1 }}\n{lines}",
                master.uri
            )
        };
        let robot = format!(
            "peers: {{ base: {{ address: \"127.0.0.1:{base_port}\", accept: {NAME} }} }}\n\
             watchdogs: {{ {NAME}: {{ after: 500ms, message: {message} }} }}"
        );
        let base = format!(
            "peers: {{ robot: \"127.0.0.1:{robot_port}\" }}\n\
             topics: {{ {NAME}: {{ priority: 255, keep_last: 1, lifespan: 200ms }} }}"
        );
        let robot = place.start("robot", &file(robot_port, &masters[0], &robot));
        let base = place.start("base", &file(base_port, &masters[1], &base));
        let mut wheels = nodes::start(&masters[0].uri, "/wheels");
        wheels.subscribe(NAME, TWIST);
        let mut driver = nodes::start(&masters[1].uri, "/driver");
        driver.advertise(NAME, TWIST, false);
        wait_for("a command that arrives", || {
            let command = json!({ "linear": { "x": 0.5 }, "angular": { "z": -1.0 } });
            let sent = driver.send(NAME, command);
            last(&wheels).filter(|got| *got == sent)
        });
        Self { robot, base, driver, wheels, _masters: masters, _place: place }
    }
}

/// The bytes of the last command that the wheels got.
fn last(wheels: &Agent) -> Option<Vec<u8>> {
    wheels.received(NAME).last().map(|report: &Value| bytes_of(report))
}

/// Waits until the wheels were told this, and as often as the robot's daemon says.
fn assert_told(wheels: &Agent, robot: &Daemon, expected: &[u8]) {
    wait_for("the safe message", || last(wheels).filter(|got| got == expected));
    robot.wait_for_notice(&[NAME, "nothing from peers for 500ms", "was published"]);
    let status = robot.status();
    let [watchdog] = &status.watchdogs[..] else { panic!("{:?}", status.watchdogs) };
    assert_eq!((&*watchdog.topic, &*watchdog.state), (NAME, "silent"));
    // Once, unless a busy machine was silent before.
    let safe = wheels.received(NAME).iter().filter(|got| bytes_of(got) == expected).count();
    assert_eq!(safe as u64, watchdog.published);
}

#[test]
fn when_the_driver_is_killed_the_wheels_get_zeros() {
    let Team { robot, driver, wheels, .. } = &mut Team::driving("{}");
    driver.signal("-KILL");
    assert_told(wheels, robot, &[0; 48]);
}

#[test]
fn when_the_bases_daemon_is_killed_the_wheels_get_the_safe_message() {
    let team = Team::driving("{ linear: { x: -0.1 } }");
    let creep = [&(-0.1_f64).to_le_bytes()[..], &[0; 40]].concat();
    team.base.kill();
    assert_told(&team.wheels, &team.robot, &creep);
}
