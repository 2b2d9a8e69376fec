// SPDX-License-Identifier: Apache-2.0
//! Reports of links to an application that embeds the node, and of drops on slow links: two nodes
//! in one process, over loopback.

use bytes::Bytes;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};
use tautline::status::{Direction, LinkReport, TopicReport};
use tautline_gateway::{Event, Qos, Source, Topic};
use tautline_testkit::running::node::Running;
use tautline_testkit::running::{free_port, wait_for};

const IMAGE: &str = "/image";
const RATE_BPS: u64 = 2_000_000;

fn image(robot: &Running) -> Option<TopicReport> {
    let topics = robot.status().topics;
    topics.into_iter().find(|it| it.topic == IMAGE && it.direction == Direction::Out)
}

fn pair(topics: &str) -> [Running; 2] {
    let [robot, base] = [(); 2].map(|()| free_port());
    let robot_file = format!(
        "listen: \"127.0.0.1:{robot}\"\npeers: {{ base: {{ address: \"127.0.0.1:{base}\", accept: \"/**\" }} }}\n\
         radios: {{ lo: {{ rate: 2Mbps }} }}\ntopics: {{ {topics} }}"
    );
    let base_file = format!(
        "listen: \"127.0.0.1:{base}\"\npeers: {{ robot: {{ address: \"127.0.0.1:{robot}\", accept: \"/**\" }} }}"
    );
    [Running::start("robot", &robot_file), Running::start("base", &base_file)]
}

/// Waits for a report in which a link matches.
fn wait_for_link(news: &Receiver<Vec<LinkReport>>, fits: impl Fn(&LinkReport) -> bool) {
    wait_for("the link", || {
        let links = news.recv_timeout(Duration::from_secs(20)).expect("it is told in time");
        links.iter().any(&fits).then_some(())
    });
}

#[test]
fn an_application_is_notified_of_links_and_their_free_capacity() {
    let [robot, base] = pair("");
    let news = robot.handle.watch_links().unwrap();
    wait_for_link(&news, |link| {
        let room = (link.available_bps, &*link.paced_by);
        link.up && link.peer == "base" && room == (Some(RATE_BPS), "rate")
    });
    base.stop();
    wait_for_link(&news, |link| !link.up && link.available_bps.is_none());
    robot.stop();
    assert!(news.recv_timeout(Duration::from_secs(20)).is_err(), "nothing more comes");
}

#[test]
fn watching_applications_are_limited() {
    let robot = Running::start("robot", &format!("listen: \"127.0.0.1:{}\"", free_port()));
    let news: Vec<_> = (0..16).map(|_| robot.handle.watch_links().unwrap()).collect();
    let refused = robot.handle.watch_links().unwrap_err();
    assert!(refused.to_string().contains("16 applications"), "{refused}");
    drop(news);
    assert!(robot.handle.watch_links().is_ok());
    robot.stop();
}

/// Publishes images of 30 KB, 4.8 Mbps, until `done`.
fn publish_until(robot: &Running, mut done: impl FnMut() -> bool) {
    let payload = Bytes::from(vec![7; 30_000]);
    let deadline = Instant::now() + Duration::from_secs(60);
    while !done() {
        assert!(Instant::now() < deadline, "in vain: {:?}", image(robot));
        robot.events.emit(Event::Message {
            topic: IMAGE.into(),
            source: Source::local(0),
            payload: payload.clone(),
            origin: tautline_gateway::Origin::default(),
            received: Instant::now(),
        });
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn excess_messages_are_dropped_by_the_rules_of_the_file_and_explained() {
    let ways = [
        ("latest", "superseded", "newer messages replaced them"),
        ("thin", "thinned", "an earlier message was still being sent"),
        ("queue", "overflow", "the queue was full"),
        ("queue, lifespan: 400ms", "expired", "they exceeded their lifespan"),
    ];
    for (way, reason, words) in ways {
        let [robot, base] = pair(&format!("{IMAGE}: {{ when_slow: {way} }}"));
        robot.events.emit(Event::Offered(Topic {
            name: IMAGE.into(),
            type_name: "sensor_msgs/Image".into(),
            type_hash: "060021388200f6f0f447d0fcd9c64743".into(),
            definition: "uint8[] data".into(),
            qos: Qos::default(),
        }));
        wait_for("somebody to listen", || image(&robot).filter(|it| it.wanted));
        let mut found = None;
        publish_until(&robot, || {
            found = image(&robot).and_then(|it| it.given_up).filter(|it| it.of >= 60);
            found.is_some()
        });
        let found = found.unwrap();
        // The link has capacity for 2 of 4.8 Mbps, and for every second image.
        assert!((0.4..0.8).contains(&found.share()), "{way}: {found:?}");
        assert!(found.reasons[reason] * 10 >= found.messages * 9, "{way}: {found:?}");
        assert!(found.why.starts_with(words), "{way}: {found:?}");
        assert!(found.why.contains("(link to base carried "), "{way}: {found:?}");
        base.stop();
        robot.stop();
    }
}
