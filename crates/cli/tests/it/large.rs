// SPDX-License-Identifier: Apache-2.0
//! A latched map that takes longer than the patience of both daemons, over a link that loses packets
//! and fails in the middle: real masters, real rospy nodes.

use crate::PROGRAM;
use serde_json::json;
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tautline::status::{Direction, TopicReport};
use tautline_testkit::ros;
use tautline_testkit::ros::ros1;
use tautline_testkit::ros::ros1::Master;
use tautline_testkit::running::{Daemon, Place, free_port, wait_for};

const STRING: &str = "std_msgs/String";
const MAP_BYTES: u64 = 700_000;
const RATE_BPS: f64 = 1e6;
/// One packet in this many is lost.
const LOSS_INTERVAL: u64 = 50;
/// Longer than a daemon queues messages for a peer that is down.
const OUTAGE: Duration = Duration::from_secs(12);

/// A link between two daemons, which loses packets.
struct Link {
    cut: Arc<AtomicBool>,
    /// The port of each daemon's peer.
    ports: [u16; 2],
}

impl Link {
    fn between_daemons(daemons: [u16; 2]) -> Self {
        let sockets = [(); 2].map(|()| Arc::new(UdpSocket::bind("127.0.0.1:0").unwrap()));
        let ports = [0, 1].map(|side| sockets[side].local_addr().unwrap().port());
        let cut = Arc::new(AtomicBool::new(false));
        for side in [0, 1] {
            let (from, to) = (sockets[side].clone(), sockets[1 - side].clone());
            let (cut, port) = (cut.clone(), daemons[1 - side]);
            std::thread::spawn(move || forward(&from, &to, port, &cut));
        }
        Self { cut, ports }
    }

    fn set_cut(&self, cut: bool) {
        self.cut.store(cut, Ordering::Relaxed);
    }
}

fn forward(from: &UdpSocket, to: &UdpSocket, port: u16, cut: &AtomicBool) {
    let mut datagram = [0; 2000];
    let mut count = 0;
    loop {
        // An ICMP error of a daemon that is not up yet.
        let Ok((len, _)) = from.recv_from(&mut datagram) else { continue };
        count += 1;
        if count % LOSS_INTERVAL != 0 && !cut.load(Ordering::Relaxed) {
            let _ = to.send_to(&datagram[..len], ("127.0.0.1", port));
        }
    }
}

fn sent_bytes(daemon: &Daemon) -> u64 {
    daemon.status().links.iter().map(|link| link.sent_bytes).sum()
}

fn map_of(daemon: &Daemon) -> Option<TopicReport> {
    let topics = daemon.status().topics;
    topics.into_iter().find(|it| it.topic == "/map" && it.direction == Direction::Out)
}

#[test]
fn a_latched_map_survives_loss_and_an_outage() {
    let (place, masters) =
        (Place::new(PROGRAM), [(); 2].map(|()| Master::start_alone(ros::free_port())));
    let ports = [(); 2].map(|()| free_port());
    let link = Link::between_daemons(ports);
    let file = |side: usize, peer: &str| {
        format!(
            "listen: \"127.0.0.1:{}\"\nros1: {{ master: \"{}\", host: 127.0.0.1 }}\n\
             peers: {{ {peer}: {{ address: \"127.0.0.1:{}\", accept: \"/**\" }} }}\n\
             radios: {{ lo: {{ rate: 1Mbps }} }}\ntopics: {{ /map: {{}} }}",
            ports[side], masters[side].uri, link.ports[side]
        )
    };
    let robot = place.start("robot", &file(0, "base"));
    let _base = place.start("base", &file(1, "robot"));
    let mut publisher = ros1::start(&masters[0].uri, "/map_server");
    let mut subscriber = ros1::start(&masters[1].uri, "/viewer");
    publisher.advertise("/map", STRING, true);
    publisher.order(json!({ "do": "send_large", "topic": "/map", "size": MAP_BYTES }));
    subscriber.order(json!({"do": "subscribe", "topic": "/map", "type": STRING, "brief": true}));

    let start = Instant::now();
    wait_for("a part of the map", || (sent_bytes(&robot) > MAP_BYTES / 3).then_some(()));
    link.set_cut(true);
    let cut = Instant::now();
    robot.wait_for_state("base", "down");
    wait_for("the outage", || (cut.elapsed() > OUTAGE).then_some(()));
    link.set_cut(false);
    let got = subscriber.wait("map", |report| report["got"] == "/map");
    println!("{:?} after its publication", start.elapsed());
    assert_eq!(got["size"], MAP_BYTES + 4);
    let report = wait_for("the end of all sending", || {
        map_of(&robot).filter(|it| it.queued == 0 && it.sent == 0)
    });
    assert_eq!(report.dropped.values().sum::<u64>(), 0, "{report:?}");
    let needed = MAP_BYTES as f64 / (1.0 - 1.0 / LOSS_INTERVAL as f64) * 1500.0 / 1400.0;
    let sent = sent_bytes(&robot);
    assert!((sent as f64) < needed * 1.25, "{sent} bytes instead of {needed}");
    assert_eq!(subscriber.received("/map").len(), 1);
    println!("{sent} bytes, {} s on the link", sent as f64 * 8.0 / RATE_BPS);
}
