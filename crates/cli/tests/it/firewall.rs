// SPDX-License-Identifier: Apache-2.0
//! The nftables rules of docs/how-to/firewall.md, loaded on two machines connected by a wire: they
//! pass the packets that Tautline and IP need and drop all others.

use crate::PROGRAM;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use tautline_testkit::running::enclosure::Enclosure;
use tautline_testkit::running::{Place, wait_for};

const RULES: &str = include_str!("../../../../packaging/radio-firewall.nft");
/// The port of a ROS master; here another program listens on it.
const MASTER_PORT: &str = "11311";
const ROBOT: &str = "10.77.0.1";

struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Loads the rules for the wire.
fn protect(enclosure: &Enclosure, place: &Place) {
    let file = place.path("radio-firewall.nft");
    std::fs::write(&file, RULES.replace("\"wlan0\"", "\"wire\"")).unwrap();
    let loaded = enclosure.command("nft").arg("-f").arg(&file).output();
    let loaded = loaded.expect("nft is needed: make setup installs it (Debian: nftables)");
    assert!(loaded.status.success(), "{}", String::from_utf8_lossy(&loaded.stderr));
}

fn nft(enclosure: &Enclosure, words: &str) -> Command {
    let mut command = enclosure.command("nft");
    command.args(words.split(' '));
    command
}

/// Returns the packets that a counter of the rules has counted.
fn counter_value(enclosure: &Enclosure, name: &str) -> u64 {
    let list = format!("list counter inet tautline_radio {name}");
    let output = nft(enclosure, &list).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let words: Vec<&str> = text.split_whitespace().collect();
    let at = words.iter().position(|word| *word == "packets").unwrap_or_else(|| panic!("{text}"));
    words[at + 1].parse().unwrap()
}

fn python(enclosure: &Enclosure, script: &str) -> Command {
    let mut command = enclosure.command("python3");
    command.args(["-c", script]);
    command
}

fn succeeds(mut command: Command) -> bool {
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap().success()
}

fn reaches_master(from: &Enclosure) -> bool {
    let script = format!("import socket\nsocket.create_connection(('{ROBOT}', {MASTER_PORT}), 2)");
    succeeds(python(from, &script))
}

fn enclosures(hosts: &Path) -> [Enclosure; 2] {
    std::fs::write(hosts, "127.0.0.1 localhost\n").unwrap();
    let robot = Enclosure::new(hosts);
    let base = robot.neighbour(hosts);
    robot.join(&base);
    [robot, base]
}

#[test]
fn the_firewall_admits_only_peers_and_neighbour_discovery() {
    let place = Place::new(PROGRAM);
    let [robot, base] = enclosures(&place.path("hosts"));
    let listener = format!(
        "import socket, time\ns = socket.socket()\n\
         s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)\n\
         s.bind(('0.0.0.0', {MASTER_PORT}))\ns.listen(8)\ntime.sleep(1000)"
    );
    let _master = Program(python(&robot, &listener).spawn().unwrap());
    wait_for("the port of the master", || reaches_master(&base).then_some(()));
    for machine in [&robot, &base] {
        protect(machine, &place);
    }
    assert!(!reaches_master(&base), "from the radio");
    assert!(reaches_master(&robot), "from the robot itself");
    assert!(counter_value(&robot, "refused") > 0);
    let mut ping = base.command("ping");
    ping.args(["-c", "1", "-W", "5", ROBOT]);
    assert!(succeeds(ping), "ping");

    // Peers find each other by beacons and exchange packets. Tracked packets would be dropped.
    let no_tracked = "insert rule inet tautline_radio tautline ct state new,established drop";
    assert!(succeeds(nft(&robot, no_tracked)) && succeeds(nft(&base, no_tracked)));
    let lines =
        |peer: &str| format!("listen: 0.0.0.0:18470\nbeacons: true\npeers: {{ {peer}: {{}} }}");
    let daemons = [
        place.start_as("robot", "robot", &lines("base"), Some(&robot)),
        place.start_as("base", "base", &lines("robot"), Some(&base)),
    ];
    daemons[0].wait_for_state("base", "up");
    daemons[1].wait_for_state("robot", "up");
    assert_eq!(counter_value(&robot, "too_fast"), 0);
    let flood = format!(
        "import socket\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
         for n in range(40000): s.sendto(b'x' * 32, ('{ROBOT}', 18470))"
    );
    wait_for("a flood that is cut", || {
        assert!(succeeds(python(&base, &flood)));
        (counter_value(&robot, "too_fast") > 0).then_some(())
    });
    assert_eq!(daemons[0].peer_state("base"), "up");
}
