// SPDX-License-Identifier: Apache-2.0
//! `tautline relay` with real keys: the relay is the built program, its members are nodes in networks that
//! only the relay joins. Needs root.

use crate::PROGRAM;
use std::fmt::Write;
use std::net::UdpSocket;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tautline::keys;
use tautline::status::{Status, TeamReport};
use tautline_proto::wire::relay::RelayHeader;
use tautline_proto::{PublicKey, SecretKey};
use tautline_testkit::peer::{Identity, Peer, data};
use tautline_testkit::running::enclosure::Enclosure;
use tautline_testkit::running::node::Running;
use tautline_testkit::running::{Daemon, Place, wait_for};

const PORT: u16 = 18470;
const SCAN: &str = "/scan";
const SCAN_BYTES: usize = 1000;
/// The keys of a relay's file that the tests set besides `teams`.
const AUDIT: &str = "audit: { file: relay.audit }";

/// A member of a team: a network of its own, and keys.
struct Member {
    name: &'static str,
    inside: Enclosure,
    /// Path of the secret key.
    key_file: String,
    public: PublicKey,
}

/// The relay's address.
const RELAY: &str = "203.0.113.2";

/// A relay and members, each joined to the internet by a cable of its own.
struct World {
    place: Place,
    _internet: Enclosure,
    inside: Enclosure,
    key: PublicKey,
    members: Vec<Member>,
}

impl World {
    /// Creates members with these names; several may have the same name.
    fn new(names: &[&'static str]) -> Self {
        let place = Place::new(PROGRAM);
        let internet = Enclosure::new(&place.hosts());
        internet.run("sysctl -qw net.ipv4.ip_forward=1");
        let inside = internet.neighbour(&place.hosts());
        internet.add_veth_pair("middle", &inside, "wan");
        internet.ip("addr add 203.0.113.1/24 dev middle");
        inside.ip(&format!("addr add {RELAY}/24 dev wan"));
        inside.ip("route add default via 203.0.113.1");
        let key = keys::generate(&place.path("relay.key")).unwrap();
        let member = |(number, name): (usize, &&'static str)| {
            let (cable, network) = (format!("to{number}"), 80 + number as u8);
            let host = internet.neighbour(&place.hosts());
            internet.join_by(&host, &cable, network);
            host.ip(&format!("route add default via 10.{network}.0.1"));
            let file = place.path(&format!("member{number}.key"));
            let public = keys::generate(&file).unwrap();
            let key_file = file.display().to_string();
            Member { name, inside: host, key_file, public }
        };
        let members = names.iter().enumerate().map(member).collect();
        Self { place, _internet: internet, inside, key, members }
    }

    /// The lines of a team of the relay's file: its members by number.
    fn team(&self, name: &str, options: &str, members: &[usize]) -> String {
        let mut lines = format!("  {name}:\n{options}    members:\n");
        for number in members {
            let Member { name, public, .. } = &self.members[*number];
            let _ = writeln!(lines, "      {name}: {public}");
        }
        lines
    }

    fn file(&self, teams: &str) -> String {
        format!("listen: \"[::]:{PORT}\"\n{AUDIT}\nteams:\n{teams}")
    }

    fn start_relay(&self, teams: &str) -> Daemon {
        self.place.start_relay("relay", &self.file(teams), Some(&self.inside))
    }

    /// Starts member `number`. Its peers are the relay and, behind the relay, the member `other`.
    fn start(&self, number: usize, other: usize) -> Running {
        let Member { name, inside, key_file, .. } = &self.members[number];
        let Member { name: other, public, .. } = &self.members[other];
        let file = format!(
            "name: {name}\nkey: {key_file}\nros1: false\nlisten: \"[::]:{PORT}\"\n\
             peers:\n  relay: {{ key: {}, address: {RELAY} }}\n\
             \x20 {other}: {{ key: {public}, via: [relay], accept: \"/**\" }}\n\
             topics: {{ {SCAN}: {{ priority: 200, keep_last: 200, to: [{other}] }} }}\n",
            self.key
        );
        Running::start_file(Some(inside), &file)
    }
}

fn team(status: &Status, name: &str) -> TeamReport {
    status.teams.iter().find(|team| team.name == name).cloned().unwrap_or_else(|| panic!("{name}"))
}

fn is_up(node: &Running, peer: &str) -> bool {
    node.status().peers.iter().any(|it| it.name == peer && it.state == "up")
}

fn wait_until_up(node: &Running, peer: &str) {
    wait_for(format!("{peer} is up"), || is_up(node, peer).then_some(()));
}

/// Publishes scans at 20 Hz, and returns the delay of each that arrives, sorted.
fn scans(from: &Running, to: &Running, count: usize) -> Vec<Duration> {
    to.arrivals();
    let mut delays = Vec::new();
    let mut begun = Instant::now();
    for number in 0..count {
        // The length identifies the message.
        from.publish_data(SCAN, SCAN_BYTES + number);
        begun += Duration::from_millis(50);
        while Instant::now() < begun {
            for (at, bytes) in to.arrivals() {
                delays.push((at, bytes));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    let first = begun - Duration::from_millis(50) * count as u32;
    let delay = |(at, bytes): (Instant, usize)| {
        let number = (bytes - 4 - SCAN_BYTES) as u32;
        at.saturating_duration_since(first + Duration::from_millis(50) * number)
    };
    let mut delays: Vec<Duration> = delays.into_iter().map(delay).collect();
    delays.sort_unstable();
    delays
}

#[test]
fn two_teams_with_the_same_names_are_separate_at_one_relay() {
    let world = World::new(&["robot", "base", "robot", "base"]);
    let teams =
        world.team("blue", "    max_rate: 20Mbps\n", &[0, 1]) + &world.team("red", "", &[2, 3]);
    let relay = world.start_relay(&teams);
    let nodes = [(0, 1), (1, 0), (2, 3), (3, 2)].map(|(node, other)| world.start(node, other));
    nodes[0].offer(SCAN);
    nodes[2].offer(SCAN);
    for (robot, base) in [(0, 1), (2, 3)] {
        let delays = scans(&nodes[robot], &nodes[base], 40);
        assert!(delays.len() >= 38, "{} of 40 scans", delays.len());
    }
    let status = relay.status();
    assert_eq!(status.gateways, []);
    for (name, max_bps) in [("blue", Some(20_000_000)), ("red", None)] {
        let team = team(&status, name);
        assert_eq!((team.members, team.up, team.max_bps), (2, 2, max_bps));
        assert!(team.forwarded_packets > 40 && team.sent_bytes > 40_000, "{team:?}");
    }
    let names: Vec<_> = status.peers.iter().map(|it| (&*it.name, &*it.state)).collect();
    let expected = ["blue/robot", "blue/base", "red/robot", "red/base"].map(|name| (name, "up"));
    assert_eq!(names, expected);
    // The links of each member show only the relay's address, and not that of the other member.
    for node in &nodes {
        let links = node.status().links;
        assert!(links.iter().all(|it| it.remote.starts_with(RELAY) || it.remote == "via relay"));
    }
    let audit = world.place.path("relay.audit");
    let came = relay.wait_for_record(&audit, "came", Some("red/base"));
    assert_eq!(came["key"], world.members[3].public.to_string());
    let [first, .., last] = nodes;
    last.stop();
    assert_eq!(relay.wait_for_record(&audit, "went", Some("red/base"))["reason"], "goodbye");
    wait_for("status counts the members", || (team(&relay.status(), "red").up == 1).then_some(()));
    first.stop();
}

#[test]
fn a_member_gets_no_response_from_another_team() {
    let world = World::new(&["robot", "base", "robot", "base"]);
    let teams = world.team("blue", "", &[0, 1]) + &world.team("red", "", &[2, 3]);
    let relay = world.start_relay(&teams);
    // The robot of blue knows the key of red's base, which even has it among its peers.
    let thief = world.start(0, 3);
    let victim = world.start(3, 0);
    wait_for("both are at the relay", || {
        let status = relay.status();
        (team(&status, "blue").up == 1 && team(&status, "red").up == 1).then_some(())
    });
    wait_for("the relay refuses its packets", || {
        let dropped = team(&relay.status(), "blue").dropped;
        dropped.get("no_route").is_some_and(|count| *count >= 3).then_some(())
    });
    assert!(!is_up(&thief, "base") && !is_up(&victim, "robot"));
    assert_eq!(team(&relay.status(), "red").forwarded_packets, 0);
    relay.wait_for_notice(&["'blue/robot'"]);
    let told = victim.status().notices;
    assert!(told.iter().all(|it| !it.contains("robot")), "{told:?}");
    thief.stop();
    victim.stop();
}

#[test]
fn a_key_of_no_team_is_refused_and_recorded() {
    let world = World::new(&["robot", "base"]);
    let relay = world.start_relay(&world.team("blue", "", &[1]));
    let stranger = world.start(0, 1);
    let key = world.members[0].public.to_string();
    relay.wait_for_notice(&["'robot'", &key]);
    let found = relay.wait_for_record(&world.place.path("relay.audit"), "handshake_refused", None);
    assert_eq!((&found["reason"], &found["key"]), (&"unknown_key".into(), &key.into()));
    assert!(!is_up(&stranger, "relay"));
    stranger.stop();
}

#[test]
fn reload_adds_and_removes_members_and_teams() {
    let world = World::new(&["robot", "base", "arm"]);
    let relay = world.start_relay(&world.team("blue", "", &[0, 1]));
    let (robot, base) = (world.start(0, 1), world.start(1, 0));
    wait_until_up(&robot, "base");
    let session = relay.status().uptime_s;
    let reload = |teams: &str| {
        world.place.write_relay("relay", &world.file(teams));
        let mut command = Command::new(PROGRAM);
        let output = command.args(["reload", "--control"]).arg(&relay.control).output().unwrap();
        let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        (output.status.success(), text)
    };
    let blue = |members: &[usize]| world.team("blue", "    max_rate: 1Mbps\n", members);
    let (done, text) = reload(&(blue(&[0, 1]) + &world.team("red", "", &[2])));
    assert!(done && text.contains("team red added"), "{text}");
    assert!(text.contains("team blue changed: max_rate none -> 1000000 bps"), "{text}");
    assert!(text.contains("peer red/arm added"), "{text}");
    let arm = world.start(2, 0);
    wait_for("the new team's member", || (team(&relay.status(), "red").up == 1).then_some(()));
    assert!(is_up(&robot, "base") && relay.status().uptime_s > session);

    // A member that moves to another team leaves its own.
    let (done, text) = reload(&(blue(&[0]) + &world.team("red", "", &[1, 2])));
    assert!(done, "{text}");
    assert!(
        text.contains("peer blue/base removed") && text.contains("peer red/base added"),
        "{text}"
    );
    wait_for("the robot has lost the base", || (!is_up(&robot, "base")).then_some(()));
    wait_for("the base is in its new team", || {
        (team(&relay.status(), "red").up == 2).then_some(())
    });

    let (done, text) = reload(&blue(&[0, 1]));
    assert!(done && text.contains("team red removed"), "{text}");
    wait_until_up(&robot, "base");
    assert_eq!(relay.status().teams.len(), 1);
    let (done, text) = reload("  blue: { members: { robot: nonsense } }\n");
    assert!(!done && text.contains("teams.blue.members.robot.key: found 'nonsense'"), "{text}");
    assert!(is_up(&robot, "base"), "after an error nothing has changed");
    world.place.write_relay("relay", "ros1: false");
    let mut command = Command::new(PROGRAM);
    let output = command.args(["reload", "--control"]).arg(&relay.control).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("the kind of the file: found a robot's"), "{text}");
    [robot, base, arm].into_iter().for_each(Running::stop);
}

/// Sends packets of 1.2 kB to be relayed to a member, without end and at the highest priority.
fn flood(peer: &mut Peer, to: &PublicKey, stop: &AtomicBool) -> u64 {
    let header = RelayHeader { hops: 8, life: None, from: None, to: Some(to.short_name()) };
    let carried = header.with_header(&[7; 1200]);
    let mut sent = 0;
    while !stop.load(Ordering::Relaxed) {
        for _ in 0..10 {
            let mut frame = Vec::new();
            data(255, peer.next_relay(), None).emit_relay(&carried, &mut frame);
            peer.send(&frame).unwrap();
            sent += 1;
        }
        // Its acknowledgements keep its link up.
        peer.run_until(Duration::from_millis(2), |_| false).unwrap();
    }
    sent
}

/// Returns the delays of one team's scans while a member of another team floods the relay, and a description
/// of the flood. The relay's only cable carries 20 Mbps.
fn scans_during_a_flood(options: &str) -> (Vec<Duration>, String) {
    let world = World::new(&["robot", "base", "robot", "base"]);
    let teams = world.team("blue", options, &[0, 1]) + &world.team("red", "", &[2, 3]);
    world.inside.run("tc qdisc add dev wan root tbf rate 20mbit burst 3000 limit 100000");
    let relay = world.start_relay(&teams);
    let [victim, robot, base] =
        [(1, 0), (2, 3), (3, 2)].map(|(node, other)| world.start(node, other));
    wait_until_up(&robot, "base");
    wait_until_up(&victim, "relay");
    // The relay has no route for handshakes of a robot that starts before its base.
    let dropped_before = team(&relay.status(), "red").dropped;
    robot.offer(SCAN);
    let hostile = &world.members[0];
    let secret: SecretKey = keys::load(std::path::Path::new(&hostile.key_file)).unwrap();
    let socket = hostile.inside.call(|| {
        let socket = UdpSocket::bind(("0.0.0.0", PORT)).unwrap();
        socket.connect((RELAY, PORT)).unwrap();
        socket
    });
    let identity = Identity { name: "robot".into(), secret, other: world.key };
    let mut peer = Peer::meet(socket, identity).unwrap();
    let stop = AtomicBool::new(false);
    let (delays, sent) = std::thread::scope(|scope| {
        let flooding = scope.spawn(|| flood(&mut peer, &world.members[1].public, &stop));
        let delays = scans(&robot, &base, 200);
        stop.store(true, Ordering::Relaxed);
        (delays, flooding.join().unwrap())
    });
    let status = relay.status();
    let blue = team(&status, "blue");
    let kb = blue.sent_bytes / 1000;
    let text = format!("{sent} packets of blue, {kb} kB forwarded, {:?}", blue.dropped);
    assert!(sent > 1000, "{text}");
    assert_eq!(team(&status, "red").dropped, dropped_before, "{status:?}");
    [victim, robot, base].into_iter().for_each(Running::stop);
    (delays, text)
}

#[test]
fn a_flood_of_one_team_does_not_drop_messages_of_another() {
    for options in ["    max_rate: 2Mbps\n", ""] {
        let (delays, text) = scans_during_a_flood(options);
        let at = |percent: usize| delays[(delays.len() * percent / 100).min(delays.len() - 1)];
        println!(
            "'{}': {} of 200 scans, p50 {:.1?}, p99 {:.1?}; {text}",
            options.trim(),
            delays.len(),
            at(50),
            at(99)
        );
        assert!(delays.len() >= 195, "{} of 200", delays.len());
    }
}

/// Prints what a relay of a hundred idle members takes.
#[test]
#[ignore = "a measurement"]
fn cost_of_a_hundred_idle_members() {
    const MEMBERS: usize = 100;
    const WATCH: Duration = Duration::from_secs(20);
    let world = World::new(&["host"]);
    let empty = world.start_relay("  blue:\n");
    let before = empty.resident_bytes();
    empty.kill();
    let files = (0..MEMBERS).map(|number| world.place.path(&format!("{number}.key")));
    let keys: Vec<_> = files.map(|it| (keys::generate(&it).unwrap(), it)).collect();
    let mut lines = "  blue:\n    members:\n".to_owned();
    for (number, (public, _)) in keys.iter().enumerate() {
        let _ = writeln!(lines, "      member{number}: {public}");
    }
    let relay = world.start_relay(&lines);
    let nodes = keys.iter().enumerate().map(|(number, (_, file))| {
        let text = format!(
            "name: member{number}\nkey: {}\nros1: false\nlisten: \"[::]:{}\"\n\
             peers: {{ relay: {{ key: {}, address: {RELAY} }} }}\n",
            file.display(),
            20_000 + number,
            world.key
        );
        Running::start_file(Some(&world.members[0].inside), &text)
    });
    let nodes: Vec<Running> = nodes.collect();
    wait_for("all members", || (team(&relay.status(), "blue").up == MEMBERS as u64).then_some(()));
    let busy = || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", relay.pid())).unwrap();
        let fields: Vec<i64> =
            stat.rsplit(')').next().unwrap().split(' ').filter_map(|it| it.parse().ok()).collect();
        // utime and stime in hundredths of a second; the state before them is no number.
        fields[10] + fields[11]
    };
    let from = busy();
    std::thread::sleep(WATCH);
    let percent = (busy() - from) as f64 / WATCH.as_secs_f64();
    println!(
        "{} kB without members, {} kB with {MEMBERS}; {percent:.1} % of a processor",
        before / 1000,
        relay.resident_bytes() / 1000
    );
    nodes.into_iter().for_each(Running::stop);
}
