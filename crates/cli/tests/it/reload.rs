// SPDX-License-Identifier: Apache-2.0
//! Reload of a changed file into a running daemon: over the control socket, by SIGHUP, and under
//! load.

use crate::PROGRAM;
use bytes::Bytes;
use std::process::{Command, Output};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tautline::audit::Actor;
use tautline::config::{self, Config, Surroundings};
use tautline::status::TopicChange;
use tautline::{DataPlane, Handle, RunError, Settings, keys};
use tautline_cli::Origin;
use tautline_cli::control::NodeControl;
use tautline_cli::reload::Reloader;
use tautline_gateway::{
    Command as Order, Event, Events, Gateway, GatewayStatus, Qos, Source, Topic,
};
use tautline_testkit::running::{Daemon, Place, free_port, wait_for};

/// Runs `tautline reload` for a daemon.
fn reload(daemon: &Daemon, arguments: &[&str]) -> Output {
    let mut command = Command::new(PROGRAM);
    command.arg("reload").args(arguments).arg("--control").arg(&daemon.control).output().unwrap()
}

fn standard_output(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Returns the reason why a reload was refused.
fn refusal_text(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Nodes with keys, by name.
struct Team {
    place: Place,
    ports: Vec<(&'static str, u16, String)>,
}

impl Team {
    fn new(names: &[&'static str]) -> Self {
        let place = Place::new(PROGRAM);
        let member = |name: &&'static str| {
            let key = keys::generate(&place.path(&format!("{name}.key"))).unwrap();
            (*name, free_port(), key.to_string())
        };
        let ports = names.iter().map(member).collect();
        Self { place, ports }
    }

    /// Returns the rest of the file of `name`, with these peers.
    fn lines(&self, name: &str, peers: &[&str], more: &str) -> String {
        let find = |name: &str| self.ports.iter().find(|(other, ..)| *other == name).unwrap();
        let peer = |peer: &&str| {
            let (name, port, key) = find(peer);
            format!("  {name}: {{ address: \"127.0.0.1:{port}\", key: {key}, accept: \"/**\" }}\n")
        };
        let peers: String = peers.iter().map(peer).collect();
        let peers = if peers.is_empty() {
            "peers: {} # no key: of a peer\n".into()
        } else {
            format!("peers:\n{peers}")
        };
        format!("listen: 127.0.0.1:{}\n{peers}{more}", find(name).1)
    }

    fn start(&self, name: &str, peers: &[&str]) -> Daemon {
        self.place.start(name, &self.lines(name, peers, ""))
    }

    fn rewrite(&self, name: &str, peers: &[&str], more: &str) {
        self.place.write(name, name, &self.lines(name, peers, more));
    }
}

fn peers(daemon: &Daemon) -> Vec<String> {
    daemon.status().peers.into_iter().map(|peer| peer.name).collect()
}

fn new_sessions(daemon: &Daemon, peer: &str) -> usize {
    let log = daemon.log();
    let is_new = |line: &&str| {
        line.contains("peer is up") && line.contains(peer) && line.contains("new_session=true")
    };
    log.lines().filter(is_new).count()
}

#[test]
fn a_peer_is_removed_and_another_added_while_others_continue() {
    let team = Team::new(&["base", "robot", "thief", "guest"]);
    let base = team.start("base", &["robot", "thief"]);
    let others = ["robot", "thief", "guest"].map(|name| team.start(name, &["base"]));
    let [robot, thief, guest] = &others;
    for (name, daemon) in [("robot", robot), ("thief", thief)] {
        base.wait_for_state(name, "up");
        daemon.wait_for_state("base", "up");
    }
    team.rewrite("base", &["robot"], "");
    assert_eq!(standard_output(&reload(&base, &[])), "changed:\n  peer thief removed\n");
    assert_eq!(peers(&base), ["robot"], "its session ended before the answer");
    assert!(base.status().links.iter().all(|link| link.peer == "robot"));
    thief.wait_for_state("base", "down");
    base.wait_for_notice(&["'thief'", "belongs to no peer of 'base'"]);
    assert_eq!(thief.peer_state("base"), "down", "its key opens nothing");

    team.rewrite("base", &["robot", "guest"], "");
    let hup = Command::new("kill").args(["-HUP", &base.pid().to_string()]).status();
    assert!(hup.unwrap().success());
    wait_for("the guest is a peer", || peers(&base).contains(&"guest".into()).then_some(()));
    base.wait_for_state("guest", "up");
    guest.wait_for_state("base", "up");
    assert!(base.log().contains("reload: peer guest added"));

    // The thief returns to the file and gets a new session.
    team.rewrite("base", &["robot", "guest", "thief"], "");
    assert_eq!(standard_output(&reload(&base, &[])), "changed:\n  peer thief added\n");
    base.wait_for_state("thief", "up");
    thief.wait_for_state("base", "up");
    assert_eq!((base.peer_state("robot"), robot.peer_state("base")), ("up".into(), "up".into()));
    assert_eq!((new_sessions(&base, "robot"), new_sessions(robot, "base")), (1, 1));
    assert!(!robot.log().contains("peer is down"));
}

#[test]
fn a_peer_with_another_key_is_another_peer() {
    let team = Team::new(&["base", "robot", "spare"]);
    let base = team.start("base", &["robot"]);
    let robot = team.start("robot", &["base"]);
    base.wait_for_state("robot", "up");
    let spare = &team.ports[2].2;
    let lines = team.lines("base", &["robot"], "").replace(&team.ports[1].2, spare);
    team.place.write("base", "base", &lines);
    assert_eq!(
        standard_output(&reload(&base, &[])),
        "changed:\n  peer robot removed\n  peer robot added\n"
    );
    robot.wait_for_state("base", "down");
    base.wait_for_notice(&["'robot'", "peers.robot has another"]);
    assert_eq!(base.peer_state("robot"), "connecting");
}

#[test]
fn the_notice_of_a_wrong_key_ends_after_its_correction() {
    let team = Team::new(&["base", "robot", "spare"]);
    // The base does not know the robot's address: the notice names none.
    let address = format!("address: \"127.0.0.1:{}\", ", team.ports[1].1);
    let lines = team.lines("base", &["robot"], "");
    assert!(lines.contains(&address), "{lines}");
    let base = team.place.start("base", &lines.replace(&address, ""));
    let robot = team.start("robot", &["base"]);
    base.wait_for_state("robot", "up");
    let lines = team.lines("robot", &["base"], "");
    team.place.write("robot", "robot", &lines.replace(&team.ports[0].2, &team.ports[2].2));
    standard_output(&reload(&robot, &[]));
    base.wait_for_notice(&["handshakes from 127.0.0.1", "for another key"]);
    team.rewrite("robot", &["base"], "");
    standard_output(&reload(&robot, &[]));
    base.wait_for_state("robot", "up");
    wait_for("the end of the notice", || {
        let notices = base.status().notices;
        notices.iter().all(|it| !it.contains("for another key")).then_some(())
    });
}

#[test]
fn reloading_an_invalid_file_reports_the_errors_of_check() {
    let team = Team::new(&["base", "robot"]);
    let base = team.start("base", &["robot"]);
    let robot = team.start("robot", &["base"]);
    base.wait_for_state("robot", "up");
    robot.wait_for_state("base", "up");
    team.rewrite("base", &[], "topics:\n  /scan: { priorty: 3 }\n");
    let file = team.place.path("base.yaml");
    let mut check = Command::new(PROGRAM);
    let checked = check.arg("check").arg(&file).output().unwrap();
    for arguments in [&[][..], &["--dry-run"]] {
        let said = refusal_text(&reload(&base, arguments));
        let place = format!("{}:", file.display());
        assert!(said.contains(&place) && said.contains("priorty"), "{said}");
        let known = String::from_utf8_lossy(&checked.stderr).into_owned();
        assert!(known.contains(said.trim()), "{said}\n{known}");
    }
    std::fs::remove_file(&file).unwrap();
    assert!(refusal_text(&reload(&base, &[])).contains("base.yaml"));
    assert_eq!(base.peer_state("robot"), "up");
    assert_eq!(new_sessions(&base, "robot"), 1);

    // A valid file whose changes need a restart is refused as a whole as well.
    let lines = team.lines("base", &[], "realtime: { cpu: 0 }");
    let elsewhere = format!("127.0.0.1:{}", free_port());
    let lines = lines.replace(&format!("127.0.0.1:{}", team.ports[0].1), &elsewhere);
    team.place.write("base", "base", &lines);
    let said = refusal_text(&reload(&base, &[]));
    let place = format!("{}: listen: found {elsewhere}", file.display());
    assert!(said.contains(&place) && said.contains("realtime: found"), "{said}");
    assert_eq!(said.matches("restart the daemon").count(), 2, "{said}");
    assert_eq!(base.peer_state("robot"), "up");
}

#[test]
fn a_dry_run_shows_the_difference_and_changes_nothing() {
    let team = Team::new(&["base", "robot", "guest"]);
    let base = team.start("base", &["robot"]);
    assert_eq!(
        standard_output(&reload(&base, &["--dry-run"])),
        "no changes: the file matches the running configuration\n"
    );
    team.rewrite("base", &["guest"], "topics: { /scan: {} }\nmetrics: 127.0.0.1:1\n");
    let expected = "would change:\n  peer robot removed\n  peer guest added\n  topic /scan added\n  \
                    metrics changed: metrics none -> 127.0.0.1:1\n";
    for _ in 0..2 {
        assert_eq!(standard_output(&reload(&base, &["--dry-run"])), expected);
        assert_eq!(peers(&base), ["robot"]);
    }
    let json = standard_output(&reload(&base, &["--dry-run", "--json"]));
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["changes"][0]["what"], "peer");
    assert_eq!(json["changes"][0]["kind"], "removed");
    assert!(!base.log().contains("reload:"), "{}", base.log());
}

#[test]
fn the_address_of_metrics_follows_the_file() {
    let team = Team::new(&["base", "robot"]);
    let base = team.start("base", &["robot"]);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    team.rewrite("base", &[], &format!("metrics: {address}"));
    let said = refusal_text(&reload(&base, &[]));
    assert!(said.contains(&address.to_string()), "{said}");
    assert_eq!(peers(&base), ["robot"]);
    drop(taken);
    standard_output(&reload(&base, &[]));
    assert!(peers(&base).is_empty());
    assert!(std::net::TcpStream::connect(address).is_ok());
    team.rewrite("base", &[], "");
    standard_output(&reload(&base, &[]));
    assert!(std::net::TcpStream::connect(address).is_err());
}

#[test]
fn a_reload_changes_links_within_the_session() {
    let team = Team::new(&["base", "robot"]);
    let base = team.start("base", &["robot"]);
    let robot = team.start("robot", &["base"]);
    base.wait_for_state("robot", "up");
    robot.wait_for_state("base", "up");
    let port = team.ports[1].1;
    let entry = |links: &str| {
        let address = format!("address: \"127.0.0.1:{port}\"");
        team.lines("base", &["robot"], "").replace(&address, links)
    };
    let two = format!("links: [ \"127.0.0.1:{}\", \"localhost:{port}\" ]", free_port());
    let two = two.replace("[ \"", "[ { address: \"").replace("\", \"", "\" }, { address: \"");
    let two = two.replace("\" ]", "\" } ]");
    for (links, count) in [(two.as_str(), 2), ("", 1)] {
        let links =
            if links.is_empty() { format!("address: \"127.0.0.1:{port}\"") } else { links.into() };
        team.place.write("base", "base", &entry(&links));
        standard_output(&reload(&base, &[]));
        assert_eq!(base.status().links.len(), count);
        wait_for("the link that leads there is up", || {
            let links = base.status().links;
            links.iter().any(|it| it.up && it.remote.ends_with(&format!(":{port}"))).then_some(())
        });
    }
    assert_eq!((new_sessions(&base, "robot"), new_sessions(&robot, "base")), (1, 1));
}

/// Commands of a node to its gateway, and the numbers of the messages on `/steady`.
#[derive(Default)]
struct ReceivedCommands {
    orders: Vec<String>,
    steady: Vec<u64>,
}

/// Subscribes to all topics of peers.
struct Reader {
    events: Arc<dyn Events>,
    heard: Arc<Mutex<ReceivedCommands>>,
}

impl Gateway for Reader {
    fn handle(&self, order: Order) {
        let mut heard = self.heard.lock().unwrap();
        match order {
            Order::Advertise { topic } => {
                heard.orders.push(format!("advertise {}", topic.name));
                self.events.emit(Event::Wanted { topic: topic.name, wanted: true });
            }
            Order::Unadvertise { topic } => heard.orders.push(format!("unadvertise {topic}")),
            Order::Subscribe { topic } => heard.orders.push(format!("subscribe {topic}")),
            Order::Unsubscribe { topic } => heard.orders.push(format!("unsubscribe {topic}")),
            Order::Reselect => heard.orders.push("reselect".into()),
            Order::Publish { topic, payload, .. } if topic == "/steady" => {
                heard.steady.push(u64::from_le_bytes(payload[..8].try_into().unwrap()));
            }
            _ => {}
        }
    }

    fn status(&self) -> GatewayStatus {
        GatewayStatus { kind: "none", ..GatewayStatus::default() }
    }

    fn shutdown(self: Box<Self>) {}
}

struct Running {
    handle: Handle,
    events: Arc<dyn Events>,
    heard: Arc<Mutex<ReceivedCommands>>,
    thread: JoinHandle<Result<(), RunError>>,
}

fn parsed_config(name: &str, lines: &str) -> Config {
    let file = format!("name: {name}\nsecurity: none\nros1: false\n{lines}\n");
    config::parse(&file, &Surroundings::default()).unwrap_or_else(|all| panic!("{all:?}")).config
}

impl Running {
    fn start(name: &str, lines: &str) -> Self {
        let config = parsed_config(name, lines);
        let heard = Arc::<Mutex<ReceivedCommands>>::default();
        let (sender, started) = sync_channel(1);
        let kept = heard.clone();
        // A node cannot change its thread.
        let thread = std::thread::spawn(move || {
            let node = DataPlane::new(config).unwrap();
            sender.send((node.handle(), node.events())).unwrap();
            let gateway = Box::new(Reader { events: node.events(), heard: kept });
            node.run(gateway, &Settings::default())
        });
        let (handle, events) = started.recv().unwrap();
        Self { handle, events, heard, thread }
    }

    fn offer(&self, name: &str) {
        self.events.emit(Event::Offered(Topic {
            name: name.into(),
            type_name: "std_msgs/UInt64".into(),
            type_hash: "1b2a79973e8bf53d7b53acb71299cb57".into(),
            definition: "uint64 data".into(),
            qos: Qos::default(),
        }));
    }

    fn publish(&self, topic: &str, number: u64) {
        self.events.emit(Event::Message {
            topic: topic.into(),
            source: Source::local(0),
            payload: Bytes::copy_from_slice(&number.to_le_bytes()),
            origin: tautline_gateway::Origin::default(),
            received: Instant::now(),
        });
    }

    fn orders_about(&self, topic: &str) -> Vec<String> {
        let heard = self.heard.lock().unwrap();
        heard.orders.iter().filter(|it| it.ends_with(topic)).cloned().collect()
    }

    fn stop(self) {
        self.handle.shutdown();
        self.thread.join().unwrap().unwrap();
    }
}

#[test]
fn a_stream_loses_nothing_through_many_changes_at_both_ends() {
    let [robot_port, base_port] = [(); 2].map(|()| free_port());
    let robot_file = |more: &str, topics: &str, rest: &str| {
        format!(
            "listen: \"127.0.0.1:{robot_port}\"\npeers: {{ base: \"127.0.0.1:{base_port}\"{more} }}\n\
             topics: {{ /steady: {{ priority: 200 }}, /other: {{ priority: 20 }}{topics} }}\n{rest}"
        )
    };
    let base_file = |more: &str, rest: &str| {
        let all = if more.contains("accept") { "" } else { ", accept: \"/**\"" };
        format!(
            "listen: \"127.0.0.1:{base_port}\"\n\
             peers: {{ robot: {{ address: \"127.0.0.1:{robot_port}\"{more}{all} }} }}\n{rest}"
        )
    };
    let robot = Running::start("robot", &robot_file("", "", ""));
    let base = Running::start("base", &base_file("", ""));
    robot.offer("/steady");
    robot.offer("/other");
    wait_for("somebody to listen", || {
        (robot.orders_about("/steady").len() + robot.orders_about("/other").len() == 2)
            .then_some(())
    });
    let robots = [
        robot_file(", third: {}", "", ""),
        robot_file(", third: \"127.0.0.1:9\", fourth: { via: [base] }", ", /more: {}", ""),
        robot_file("", "", "limits: { queue_time: 1s, repair_budget: 0.5 }"),
        robot_file("", "", "dscp: { voice_from: 250 }\nbeacons: true"),
        robot_file(", third: {}", "", "radios: { lo: { in_flight: 4 } }"),
        robot_file("", "", "watchdogs: { /x: 1s }\ntf: { prefix: r1 }")
            .replace("priority: 20 }", "rate: 1Hz }"),
    ];
    let bases = [
        base_file(", max_rate: 100Mbps", ""),
        base_file(", remap: { /other: /renamed }", "watchdogs: { /other: 1s }"),
        base_file(", accept: [/steady]", ""),
        base_file(", relay: true, max_priority: 220", "topics: { \"/**\": {} }"),
        base_file("", ""),
    ];
    let mut number = 0;
    for round in 0..30 {
        robot.handle.reconfigure(parsed_config("robot", &robots[round % robots.len()])).unwrap();
        for step in 0..10 {
            robot.publish("/steady", number);
            robot.publish("/other", number);
            number += 1;
            std::thread::sleep(Duration::from_millis(2));
            if step == 5 {
                base.handle
                    .reconfigure(parsed_config("base", &bases[round % bases.len()]))
                    .unwrap();
            }
        }
    }
    wait_for("the last message", || {
        (base.heard.lock().unwrap().steady.last() == Some(&(number - 1))).then_some(())
    });
    assert_eq!(base.heard.lock().unwrap().steady, (0..number).collect::<Vec<_>>());
    assert_eq!(base.orders_about("/steady"), ["advertise /steady"]);
    assert_eq!(robot.orders_about("/steady"), ["subscribe /steady"]);
    assert!(base.orders_about("/renamed").contains(&"unadvertise /renamed".into()));
    assert!(robot.orders_about("reselect").len() >= 5);
    let status = robot.handle.status().unwrap();
    let dropped = status.topics.iter().filter(|it| it.topic == "/steady");
    assert!(dropped.into_iter().all(|it| it.dropped.is_empty()), "{:?}", status.topics);
    robot.stop();
    base.stop();
}

#[test]
fn an_impossible_reload_changes_nothing() {
    let robot = Running::start("robot", &format!("listen: \"127.0.0.1:{}\"", free_port()));
    let mut wrong = parsed_config("robot", "peers: { base: 10.0.0.2 }\ntopics: { /x: {} }");
    wrong.peers[0].name = "robot".into();
    let error = robot.handle.reconfigure(wrong).unwrap_err();
    assert!(error.to_string().contains("'robot' is taken"), "{error}");
    assert!(robot.handle.status().unwrap().peers.is_empty());
    robot.stop();
}

#[test]
fn a_reload_lists_settings_that_remain() {
    let place = Place::new(PROGRAM);
    let lines = format!("listen: \"127.0.0.1:{}\"\ntopics: {{ /steady: {{}} }}", free_port());
    let robot = Running::start("robot", &lines);
    let file = place.write("robot", "robot", &lines);
    let config = config::load(&file).unwrap().config;
    let origin = Origin { file, sha256: String::new(), launch: config::Launch::default() };
    let reloader = Reloader::start(origin, config, Arc::new(robot.handle.clone())).unwrap();
    assert_eq!(reloader.reload(true, Actor::Program).unwrap().kept, []);
    robot.offer("/steady");
    let change = TopicChange { topic: "/steady".into(), priority: Some(9), rate_hz: None };
    reloader.change_topic(change.clone(), Actor::Program).unwrap();
    place.write("robot", "robot", &lines.replace("{}", "{ priority: 100 }"));
    for dry_run in [true, false, false] {
        let changes = reloader.reload(dry_run, Actor::Program).unwrap();
        assert_eq!(changes.kept, std::slice::from_ref(&change));
    }
    robot.stop();
}
