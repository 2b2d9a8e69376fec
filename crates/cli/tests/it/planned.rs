// SPDX-License-Identifier: Apache-2.0
//! The built daemon compares what it sends with what its file plans.

use crate::PROGRAM;
use std::process::Command;
use std::time::{Duration, Instant};
use tautline::status::{Assumption, PlanReport};
use tautline_proto::wire::control::Control;
use tautline_testkit::peer::Peer;
use tautline_testkit::running::hostile;
use tautline_testkit::running::node::Running;
use tautline_testkit::running::{Daemon, Place, free_port};

const TOPIC: &str = "/diagnostics";
/// Maximum time until a condition holds.
const TIMEOUT: Duration = Duration::from_secs(90);
/// Interval at which the daemon's state is read.
const PAUSE: Duration = Duration::from_millis(200);

/// The file of a robot whose ROS master does not answer: it still sends its own diagnostics.
fn file(port: u16, topics: &str) -> String {
    format!(
        "listen: \"127.0.0.1:{port}\"\npeers: {{ base: {{}} }}\n\
         ros1: {{ master: \"http://127.0.0.1:9\", host: 127.0.0.1 }}\ntopics: {{ {topics} }}"
    )
}

/// Acknowledges what the daemon sends until a condition holds.
fn acknowledge_until(peer: &mut Peer, mut holds: impl FnMut(&Peer) -> bool) {
    let mut next = Instant::now();
    let held = peer.run_until(TIMEOUT, |it| {
        let is_due = Instant::now() >= next;
        if is_due {
            next = Instant::now() + PAUSE;
        }
        is_due && holds(it)
    });
    assert!(held.unwrap(), "not in time");
}

fn size(daemon: &Daemon) -> Option<PlanReport> {
    daemon.status().plan.into_iter().find(|it| it.assumption == Assumption::Size)
}

fn tautline(daemon: &Daemon, command: &str) -> String {
    let mut program = Command::new(PROGRAM);
    let output = program.arg(command).arg("--control").arg(&daemon.control).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_failed_assumption_is_reported_once() {
    let (place, port) = (Place::new(PROGRAM), free_port());
    let planned = file(port, "/diagnostics: { expect: { rate: 2Hz, size: 100B } }");
    let robot = place.start("robot", &planned);
    let mut base = hostile::meet("base", "robot", port);
    acknowledge_until(&mut base, |it| it.heard.offers.iter().any(|it| it.topic.name == TOPIC));
    let offer = base.heard.offers.iter().find(|it| it.topic.name == TOPIC).unwrap();
    let channel = offer.channel;
    base.control(&Control::Want { channel, wanted: true });
    acknowledge_until(&mut base, |_| size(&robot).is_some_and(|it| it.failed_for_s.is_some()));

    let report = size(&robot).unwrap();
    assert_eq!((&*report.subject, report.expected), (TOPIC, 100.0));
    assert!(report.measured > Some(110.0), "{report:?}");
    let text = tautline(&robot, "status");
    let is_row =
        |it: &&str| it.contains("size") && it.contains("100 B") && it.contains("FAILS for");
    assert!(text.lines().find(is_row).is_some_and(|it| it.contains(TOPIC)), "{text}");
    let rate = text.lines().find(|it| it.contains("topics./diagnostics.expect.rate"));
    assert!(rate.is_some_and(|it| it.contains("2 Hz") && it.contains("holds")), "{text}");

    // A second reading adds no second notice.
    let seen = Instant::now();
    acknowledge_until(&mut base, |_| seen.elapsed() > Duration::from_secs(3));
    let notice = "not as planned: /diagnostics: messages of";
    assert_eq!(robot.log().matches(notice).count(), 1);
    assert_eq!(robot.status().notices.iter().filter(|it| it.starts_with(notice)).count(), 1);

    place.write("robot", "robot", &file(port, "/diagnostics: {}"));
    let changes = tautline(&robot, "reload");
    assert!(changes.contains("expectation /diagnostics removed"), "{changes}");
    let status = robot.status();
    assert!(status.plan.is_empty(), "{:?}", status.plan);
    assert!(!status.notices.iter().any(|it| it.starts_with(notice)), "{:?}", status.notices);
    assert!(!tautline(&robot, "status").contains("FAILS"));
}

/// The radio is planned as 802.11 at 6 Mbps, but its rate is 2 Mbps.
#[test]
fn slow_radios_and_unplanned_topics_are_reported() {
    let [robot, base] = [(); 2].map(|()| free_port());
    let robot_file = format!(
        "listen: \"127.0.0.1:{robot}\"\npeers: {{ base: {{ address: \"127.0.0.1:{base}\" }} }}\n\
         radios: {{ lo: {{ rate: 2Mbps, channel: \"wifi:6Mbps\" }} }}\n\
         topics: {{ /image: {{ keep_last: 1 }}, /scan: {{ expect: {{ rate: 1Hz, size: 1kB }} }} }}"
    );
    let base_file = format!(
        "listen: \"127.0.0.1:{base}\"\n\
         radios: {{ lo: {{ channel: \"line:100Mbps,delay=5ms\" }} }}\n\
         peers: {{ robot: {{ address: \"127.0.0.1:{robot}\", accept: \"/**\" }} }}"
    );
    let robot = Running::start("robot", &robot_file);
    let base = Running::start("base", &base_file);
    robot.offer("/image");
    let begun = Instant::now();
    let failed = loop {
        assert!(begun.elapsed() < TIMEOUT, "{:?}", robot.status().plan);
        // 4.8 Mbps.
        robot.publish("/image", 30_000);
        std::thread::sleep(Duration::from_millis(50));
        let plan = robot.status().plan;
        let of_radio = [Assumption::BitRate, Assumption::Unplanned];
        let has_failed =
            |it: &PlanReport| it.failed_for_s.is_some() && of_radio.contains(&it.assumption);
        let failed: Vec<PlanReport> = plan.into_iter().filter(has_failed).collect();
        if failed.len() == of_radio.len() {
            break failed;
        }
    };
    let of = |assumption| failed.iter().find(|it| it.assumption == assumption).unwrap();
    let carried = of(Assumption::BitRate);
    assert_eq!((&*carried.subject, &*carried.key), ("lo", "radios.lo.channel"));
    let measured = carried.measured.unwrap();
    assert!(measured < 2.3e6 && carried.expected > 5e6, "{carried:?}");
    let unplanned = of(Assumption::Unplanned);
    assert!(unplanned.expected == 0.0 && unplanned.measured > Some(2e5), "{unplanned:?}");
    let row = |node: &Running, assumption| {
        let found = node.status().plan.into_iter().find(|it| it.assumption == assumption);
        found.unwrap_or_else(|| panic!("{assumption:?}: {:?}", node.status().plan))
    };
    let loss = row(&robot, Assumption::Loss);
    assert!(loss.subject.ends_with(" to base") && loss.measured.is_some(), "{loss:?}");
    let round_trip = row(&base, Assumption::RoundTrip);
    assert!(round_trip.expected == 10.0 && round_trip.measured.is_some(), "{round_trip:?}");
    robot.stop();
    base.stop();
}
