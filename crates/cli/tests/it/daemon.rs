// SPDX-License-Identifier: Apache-2.0
//! The daemon from the outside: real processes and sockets on this machine.

use crate::PROGRAM;
use std::net::UdpSocket;
use std::process::Command;
use std::time::{Duration, Instant};
use tautline::keys;
use tautline_proto::SecretKey;
use tautline_proto::wire::VERSION;
use tautline_proto::wire::beacon::emit_beacon;
use tautline_proto::wire::packet::{Packet, SessionHeader, start_response};
use tautline_testkit::running::enclosure::Enclosure;
use tautline_testkit::running::hostile::call;
use tautline_testkit::running::{Place, free_port, wait_for};

/// Returns lines of a file: the listening address and the peers.
fn lines(listen: impl std::fmt::Display, peers: &str) -> String {
    format!("listen: \"{listen}\"\npeers: {{ {peers} }}")
}

/// Returns the same packet with another version of the format.
fn of_version(version: u8, mut packet: Vec<u8>) -> Vec<u8> {
    packet[1] = version << 4 | packet[1] & 0xf;
    packet
}

#[test]
fn two_daemons_connect_over_ipv4_and_ipv6() {
    // Listening address, and the address by which the peer reaches it.
    let families = [
        ("127.0.0.1", "127.0.0.1"),
        ("[::1]", "[::1]"),
        ("[::]", "127.0.0.1"),
        ("[::]", "[::1]"),
        ("0.0.0.0", "127.0.0.1"),
        ("[::]", "localhost"),
    ];
    for (listen, reach) in families {
        let (place, robot, base) = (Place::new(PROGRAM), free_port(), free_port());
        let to_base = format!("base: \"{reach}:{base}\"");
        let to_robot = format!("robot: \"{reach}:{robot}\"");
        let robot = place.start("robot", &lines(format!("{listen}:{robot}"), &to_base));
        let base = place.start("base", &lines(format!("{listen}:{base}"), &to_robot));
        robot.wait_for_state("base", "up");
        base.wait_for_state("robot", "up");
        let mut status = Command::new(PROGRAM);
        let output = status.args(["status", "--json", "--control"]).arg(&base.control).output();
        let json: serde_json::Value = serde_json::from_slice(&output.unwrap().stdout).unwrap();
        assert_eq!(json["peers"][0]["state"], "up", "{listen} {reach}");
        assert_eq!(json["links"][0]["up"], true);
        assert_eq!(json["links"][0]["radio"], "lo");
        assert!(base.status().notices.is_empty(), "{:?}", base.status().notices);
    }
}

#[test]
fn a_peer_without_an_address_is_answered_at_its_source_address() {
    for host in ["127.0.0.1", "[::1]"] {
        let (place, port) = (Place::new(PROGRAM), free_port());
        let base = place.start("base", &lines(format!("[::]:{port}"), "robot: {}"));
        let to_base = format!("base: \"{host}:{port}\"");
        let robot = place.start("robot", &lines(format!("[::]:{}", free_port()), &to_base));
        base.wait_for_state("robot", "up");
        robot.wait_for_state("base", "up");
        robot.kill();
        base.wait_for_state("robot", "down");
        // The robot may return at another address.
        let robot = place.start("robot", &lines(format!("[::]:{}", free_port()), &to_base));
        base.wait_for_state("robot", "up");
        robot.wait_for_state("base", "up");
    }
}

#[test]
fn an_unknown_key_is_reported_at_the_responder() {
    let (place, robot_port, base_port) = (Place::new(PROGRAM), free_port(), free_port());
    let base = place.start("base", &lines(format!("127.0.0.1:{base_port}"), ""));
    let to_base = format!("base: \"127.0.0.1:{base_port}\"");
    let robot = place.start("robot", &lines(format!("127.0.0.1:{robot_port}"), &to_base));
    let key = SecretKey::insecure("robot").public().to_string();
    base.wait_for_notice(&["'robot'", "from 127.0.0.1 with", &key, "belongs to no peer of 'base'"]);
    assert!(base.status().packets_refused["unknown_key"] > 0);
    assert_eq!(robot.peer_state("base"), "connecting", "a stranger learns nothing");
}

#[test]
fn the_later_of_two_nodes_with_one_key_stays_connected() {
    let (place, base_port) = (Place::new(PROGRAM), free_port());
    let (first_port, second_port) = (free_port(), free_port());
    let base = place.start("base", &lines(format!("127.0.0.1:{base_port}"), "robot: {}"));
    let to_base = format!("base: \"127.0.0.1:{base_port}\"");
    let begun = Instant::now();
    let first = place.start("robot", &lines(format!("127.0.0.1:{first_port}"), &to_base));
    let uptime = first.status().uptime_s;
    assert!(uptime > 0.0 && uptime <= begun.elapsed().as_secs_f64(), "{uptime}");
    base.wait_for_state("robot", "up");
    let second = lines(format!("127.0.0.1:{second_port}"), &to_base);
    let second = place.start_as("second", "robot", &second, None);
    second.wait_for_state("base", "up");
    let both = [format!("127.0.0.1:{first_port}"), format!("127.0.0.1:{second_port}")];
    base.wait_for_notice(&["two nodes", "'robot'", &both[0], &both[1], "keygen"]);
    first.wait_for_notice(&["'base'", "refuses", "another node with the same key"]);
    assert_eq!((second.peer_state("base"), base.peer_state("robot")), ("up".into(), "up".into()));
}

#[test]
fn a_node_with_our_own_key_is_reported() {
    let (place, port, other_port) = (Place::new(PROGRAM), free_port(), free_port());
    let base = place.start("base", &lines(format!("127.0.0.1:{port}"), ""));
    let far = UdpSocket::bind(("127.0.0.1", other_port)).unwrap();
    far.send_to(&call("base", "base"), ("127.0.0.1", port)).unwrap();
    base.wait_for_notice(&["two nodes use the same key", &format!("127.0.0.1:{other_port}")]);
}

#[test]
fn a_peer_from_another_address_is_accepted() {
    let (place, base_port, robot_port) = (Place::new(PROGRAM), free_port(), free_port());
    let to_robot = format!("robot: \"127.0.0.1:{}\"", free_port());
    let base = place.start("base", &lines(format!("127.0.0.1:{base_port}"), &to_robot));
    let to_base = format!("base: \"127.0.0.1:{base_port}\"");
    let robot = place.start("robot", &lines(format!("127.0.0.1:{robot_port}"), &to_base));
    base.wait_for_state("robot", "up");
    robot.wait_for_state("base", "up");
    assert_eq!(base.status().links[0].remote, format!("127.0.0.1:{robot_port}"));
}

#[test]
fn a_node_with_a_wrong_key_is_refused() {
    let (place, base_port, robot_port) = (Place::new(PROGRAM), free_port(), free_port());
    let key = |name: &str| keys::generate(&place.path(&format!("{name}.key"))).unwrap();
    let (robot_key, base_key, other_key) = (key("robot"), key("base"), key("other"));
    let to_base = format!("base: {{ address: \"127.0.0.1:{base_port}\", key: {base_key} }}");
    let robot_lines = lines(format!("127.0.0.1:{robot_port}"), &to_base);
    let to_robot = format!("robot: {{ key: {other_key} }}");
    let base = place.start("base", &lines(format!("127.0.0.1:{base_port}"), &to_robot));
    let robot = place.start("robot", &robot_lines);
    base.wait_for_notice(&["'robot'", &robot_key.to_string(), "peers.robot has another"]);
    assert_eq!(robot.peer_state("base"), "connecting");
    base.kill();
    // The robot knows another key of this base, and the base's file has no address of the robot.
    keys::generate(&place.path("base2.key")).unwrap();
    let to_robot = format!("robot: {{ key: {robot_key} }}");
    let own = format!("key: {}\n", place.path("base2.key").display());
    let port = format!("127.0.0.1:{base_port}");
    let base = place.start("base", &(own + &lines(port, &to_robot)));
    base.wait_for_notice(&["127.0.0.1", "another key than that of 'base'", "security: none"]);
    base.kill();
    let to_robot = format!("robot: {{ key: {robot_key} }}");
    let base = place.start("base", &lines(format!("127.0.0.1:{base_port}"), &to_robot));
    robot.wait_for_state("base", "up");
    base.wait_for_state("robot", "up");
    let status = base.status();
    assert_eq!((status.security.as_str(), status.key), ("keys", Some(base_key.to_string())));
}

#[test]
fn another_version_is_reported_and_gets_no_answer() {
    let (place, port) = (Place::new(PROGRAM), free_port());
    let far = UdpSocket::bind("127.0.0.1:0").unwrap();
    let robot = place.start("robot", &lines(format!("127.0.0.1:{port}"), ""));
    let newer = of_version(VERSION + 1, call("newer", "robot"));
    far.send_to(&newer, ("127.0.0.1", port)).unwrap();
    let (address, version) = (far.local_addr().unwrap(), VERSION + 1);
    let words = [address.ip().to_string(), format!("version {version}"), "'robot' has".into()];
    robot.wait_for_notice(&words.each_ref().map(String::as_str));
    assert_eq!(robot.status().packets_refused["version"], 1);
    far.set_nonblocking(true).unwrap();
    assert!(far.recv_from(&mut [0; 2000]).is_err(), "strangers learn nothing");
}

/// splitmix64 (Steele, Lea and Flood, 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn bytes(&mut self, most: usize) -> Vec<u8> {
        (0..self.below(most + 1)).map(|_| self.next() as u8).collect()
    }

    /// Returns noise, or a packet of the format with a few bytes changed, cut or added.
    fn datagram(&mut self) -> Vec<u8> {
        let mut packet = match self.below(7) {
            0 => return self.bytes(1400),
            1 => call("robot", "elsewhere"),
            2 => call(&format!("stranger{}", self.next()), "base"),
            3 => start_response(1, self.next() as u32 | 1, &[7; 57]),
            4 => of_version(self.next() as u8 & 0xf, call("other", "base")),
            5 => emit_beacon(self.next(), [[7; 8], [8; 8]].into_iter()),
            _ => {
                let (session, number) = (self.next() as u32, self.next() as u32);
                let header =
                    SessionHeader { ack_soon: true, relayed: false, link: 0, session, number };
                let mut packet = header.emit(1400);
                packet.extend(self.bytes(300));
                packet
            }
        };
        for _ in 0..self.below(4) {
            let at = self.below(packet.len());
            packet[at] = self.next() as u8;
        }
        match self.below(4) {
            0 => packet.truncate(self.below(packet.len() + 1)),
            1 => packet.extend(self.bytes(40)),
            _ => {}
        }
        packet
    }
}

#[test]
fn random_and_mutated_datagrams_are_counted_and_change_nothing_else() {
    const DATAGRAMS: u64 = 200_000;
    /// Small enough for the smallest usual receive buffer.
    const BATCH: u64 = 100;
    let (place, base_port, robot_port) = (Place::new(PROGRAM), free_port(), free_port());
    let to_base = format!("base: \"127.0.0.1:{base_port}\"");
    let to_robot = format!("robot: \"127.0.0.1:{robot_port}\"");
    let robot = place.start("robot", &lines(format!("[::]:{robot_port}"), &to_base));
    let base = place.start("base", &lines(format!("[::]:{base_port}"), &to_robot));
    base.wait_for_state("robot", "up");
    robot.wait_for_state("base", "up");
    let hostile = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut random = Random(2026);
    let refused = || base.status().packets_refused.values().sum::<u64>();
    let mut expected = refused();
    let mut before = None;
    for _ in 0..DATAGRAMS / BATCH {
        for _ in 0..BATCH {
            let datagram = random.datagram();
            hostile.send_to(&datagram, ("127.0.0.1", base_port)).unwrap();
            // Beacons of other teams are ignored without being counted.
            let passed_over = matches!(Packet::parse(&datagram), Ok(Packet::Beacon(_)));
            expected += u64::from(!passed_over);
        }
        wait_for("all are refused and counted", || (refused() >= expected).then_some(()));
        // After the first batch all code and buffers are in memory.
        before.get_or_insert_with(|| base.resident_bytes());
    }
    let grown = base.resident_bytes().saturating_sub(before.unwrap());
    assert!(grown < 10_000_000, "grown by {grown} bytes");
    assert_eq!((base.peer_state("robot"), robot.peer_state("base")), ("up".into(), "up".into()));
    assert!(base.status().notices.len() <= 50);
    let (log, uptime_s) = (base.log(), base.status().uptime_s);
    let logged = log.lines().filter(|line| line.contains("WARN")).count();
    // Per 30 s: five lines about each of eight groups of strangers, and a few about the peer and about
    // sums.
    assert!(logged <= 60 * (1 + (uptime_s / 30.0) as usize), "{logged} lines in {uptime_s} s");
}

#[test]
fn sigterm_sends_a_goodbye_and_leaves_no_files() {
    let (place, base_port, robot_port) = (Place::new(PROGRAM), free_port(), free_port());
    let to_base = format!("base: \"127.0.0.1:{base_port}\"");
    let to_robot = format!("robot: \"127.0.0.1:{robot_port}\"");
    let mut robot = place.start("robot", &lines(format!("127.0.0.1:{robot_port}"), &to_base));
    let base = place.start("base", &lines(format!("127.0.0.1:{base_port}"), &to_robot));
    base.wait_for_state("robot", "up");
    robot.wait_for_state("base", "up");
    assert!(robot.control.exists());
    robot.terminate();
    let ended = robot.wait_for_end();
    let gone = Instant::now();
    assert_eq!(ended.code(), Some(0), "{}", robot.log());
    base.wait_for_state("robot", "down");
    // Without a goodbye the peer is down only after the link timeout, most of a second after the
    // last packet.
    assert!(gone.elapsed() < Duration::from_millis(1500), "only after {:?}", gone.elapsed());
    assert!(!robot.control.exists());
}

#[test]
fn a_killed_and_restarted_daemon_connects_again() {
    let (place, base_port, robot_port) = (Place::new(PROGRAM), free_port(), free_port());
    let to_base = format!("base: \"127.0.0.1:{base_port}\"");
    let to_robot = format!("robot: \"127.0.0.1:{robot_port}\"");
    let robot_lines = lines(format!("127.0.0.1:{robot_port}"), &to_base);
    let robot = place.start("robot", &robot_lines);
    let base = place.start("base", &lines(format!("127.0.0.1:{base_port}"), &to_robot));
    base.wait_for_state("robot", "up");
    robot.kill();
    let robot = place.start("robot", &robot_lines);
    robot.wait_for_state("base", "up");
    base.wait_for_state("robot", "up");
    robot.kill();
    base.wait_for_state("robot", "down");
    let robot = place.start("robot", &robot_lines);
    robot.wait_for_state("base", "up");
    base.wait_for_state("robot", "up");
}

#[test]
fn two_daemons_connect_through_a_relay() {
    let (place, ports) = (Place::new(PROGRAM), [free_port(), free_port(), free_port()]);
    let at = |port: u16| format!("\"127.0.0.1:{port}\"");
    let [robot, relay, base] = ports;
    let listen = |port: u16| format!("127.0.0.1:{port}");
    let end = |other: &str| format!("relay: {}, {other}: {{ via: relay }}", at(relay));
    let middle = "robot: { relay: true }, base: { relay: true }";
    let middle = place.start("relay", &lines(listen(relay), middle));
    let robot = place.start("robot", &lines(listen(robot), &end("base")));
    let base = place.start("base", &lines(listen(base), &end("robot")));
    robot.wait_for_state("base", "up");
    base.wait_for_state("robot", "up");
    let status = robot.status();
    let link = status.links.iter().find(|link| link.peer == "base").unwrap();
    assert_eq!((link.remote.as_str(), link.radio.as_str()), ("via relay", "via relay"));
    let passed_on = || {
        let peers = middle.status().peers;
        peers.iter().all(|peer| peer.relayed_packets > 0).then_some(())
    };
    wait_for("both are passed on to", passed_on);
    let clock = wait_for("the clock of the relay is known", || {
        let peers = robot.status().peers;
        peers.into_iter().find(|peer| peer.name == "relay")?.clock.filter(|c| c.offset_ms.is_some())
    });
    // Both nodes run on the clock of one machine.
    assert!(clock.offset_ms.unwrap().abs() <= clock.bound_ms, "{clock:?}");
}

#[test]
fn a_port_in_use_is_a_clear_error() {
    let (place, holder) = (Place::new(PROGRAM), UdpSocket::bind("127.0.0.1:0").unwrap());
    let address = holder.local_addr().unwrap();
    let (file, control) = (place.path("robot.yaml"), place.path("robot.sock"));
    for listen in [address.to_string(), format!("[::]:{}", address.port())] {
        let lines = lines(&listen, "");
        let text = format!("name: robot\ncontrol: {}\nros1: false\n{lines}\n", control.display());
        std::fs::write(&file, text).unwrap();
        let run = Command::new(PROGRAM).arg("run").arg(&file).output();
        let (run, error) = run.map(|o| (o.status, String::from_utf8(o.stderr).unwrap())).unwrap();
        assert_eq!(run.code(), Some(1), "{error}");
        for word in [listen.as_str(), "in use", "another tautline", "listen:"] {
            assert!(error.contains(word), "{word}: {error}");
        }
        assert!(!control.exists());
    }
}

/// Two daemons without a network get an interface twice and lose it twice.
fn meet_over_an_interface_that_comes_and_goes(to_base: &str, to_robot: &str) {
    let place = Place::new(PROGRAM);
    let [robot_side, base_side] = place.two_hosts();
    let (robot, base) = (lines("[::]:18470", to_base), lines("[::]:18470", to_robot));
    let robot = place.start_as("robot", "robot", &robot, Some(&robot_side));
    let base = place.start_as("base", "base", &base, Some(&base_side));
    robot.wait_for_notice(&["no path to"]);
    assert_ne!(base.peer_state("robot"), "up");
    for _ in 0..2 {
        robot_side.join(&base_side);
        robot.wait_for_state("base", "up");
        base.wait_for_state("robot", "up");
        assert_eq!(robot.status().links[0].radio, "wire");
        robot_side.ip("link delete wire");
        robot.wait_for_state("base", "down");
        base.wait_for_state("robot", "down");
    }
}

#[test]
fn an_interface_may_come_go_and_return_while_the_daemons_run() {
    // One file names the interface; the other uses the existing route.
    let to_base = "base: { address: 10.77.0.2, interface: wire }";
    meet_over_an_interface_that_comes_and_goes(to_base, "robot: 10.77.0.1");
}

#[test]
fn an_interface_may_come_go_and_return_under_a_peer_without_address() {
    meet_over_an_interface_that_comes_and_goes("base: 10.77.0.2", "robot: {}");
}

#[test]
fn link_local_addresses_lead_to_their_interface_also_when_it_returns() {
    let to_base = "base: \"[fe80::77:2%wire]:18470\"";
    let to_robot = "robot: \"[fe80::77:1%wire]:18470\"";
    meet_over_an_interface_that_comes_and_goes(to_base, to_robot);
}

#[test]
fn a_peer_connects_once_its_name_resolves() {
    let place = Place::new(PROGRAM);
    let hosts = place.hosts();
    let inside = Enclosure::new(&hosts);
    let robot = lines("127.0.0.1:18470", "base: \"base.test:18471\"");
    let base = lines("127.0.0.1:18471", "robot: 127.0.0.1");
    let robot = place.start_as("robot", "robot", &robot, Some(&inside));
    robot.wait_for_notice(&["no path to base.test"]);
    std::fs::write(&hosts, "127.0.0.1 localhost base.test\n").unwrap();
    let base = place.start_as("base", "base", &base, Some(&inside));
    robot.wait_for_state("base", "up");
    base.wait_for_state("robot", "up");
}

/// Answers calls of a ROS master without nodes, on one connection after another.
fn serve_empty_master(listener: &std::net::TcpListener) {
    use std::io::{Read, Write};
    for client in listener.incoming() {
        let mut client = client.unwrap();
        let (mut request, mut buffer) = (String::new(), [0; 4096]);
        while !request.contains("</methodCall>") {
            match client.read(&mut buffer) {
                Ok(1..) => request += &String::from_utf8_lossy(&buffer),
                _ => break,
            }
            buffer.fill(0);
        }
        let list = |inside: &str| format!("<value><array><data>{inside}</data></array></value>");
        let empty = list("");
        let result = match request.contains("getSystemState") {
            true => list(&empty.repeat(3)),
            false => empty,
        };
        let answer = list(&format!("<value><int>1</int></value><value></value>{result}"));
        let body = format!(
            "<?xml version='1.0'?><methodResponse><params><param>{answer}</param></params>\
             </methodResponse>"
        );
        let head = format!("Content-Type: text/xml\r\nContent-Length: {}", body.len());
        let _ = write!(client, "HTTP/1.1 200 OK\r\n{head}\r\nConnection: close\r\n\r\n{body}");
    }
}

#[test]
fn the_log_reports_a_missing_master_once() {
    let place = Place::new(PROGRAM);
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let lines = format!(
        "listen: \"127.0.0.1:{}\"\nros1: {{ master: \"http://127.0.0.1:{port}\", host: 127.0.0.1 }}",
        free_port()
    );
    let daemon = place.start("robot", &lines);
    let missing = "the ROS master does not answer";
    wait_for("the warning", || daemon.log().contains(missing).then_some(()));
    // Further attempts, of which there are several in this time, must not appear in the log.
    std::thread::sleep(Duration::from_secs(3));
    let log = daemon.log();
    let warnings: Vec<&str> = log.lines().filter(|line| line.contains(missing)).collect();
    assert!(warnings.len() == 1 && warnings[0].contains(" WARN "), "{log}");
    assert!(warnings[0].contains("start roscore"), "{log}");
    let listener = std::net::TcpListener::bind(("127.0.0.1", port)).unwrap();
    std::thread::spawn(move || serve_empty_master(&listener));
    let answers = format!("the ROS master at http://127.0.0.1:{port} answers");
    wait_for(answers.clone(), || daemon.log().contains(&answers).then_some(()));
}
