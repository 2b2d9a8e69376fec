// SPDX-License-Identifier: Apache-2.0
//! `tautline pair` among attackers and failures: the real program at both ends, a test between them.

use crate::pairing;
use crate::pairing::{FrameFate, Machine, Proxy, Sender, World};
use serde_json::json;
use std::io::{Read, Write};
use std::net::TcpStream;

const NO_ROS: &[&str] = &["--no-ros"];

/// Checks that neither end has a file. With `may_keep_key`, the base may have its new key: its COMMIT may
/// have arrived.
fn assert_no_files(world: &World, case: &str, may_keep_key: bool) {
    let files = world.base.files();
    let is_key = may_keep_key && files == ["base.key"];
    assert!(files.is_empty() || is_key, "{case}: {files:?}");
    assert!(world.robot.files().is_empty(), "{case}: {:?}", world.robot.files());
}

fn contains(all: &[u8], part: &[u8]) -> bool {
    all.windows(part.len()).any(|window| window == part)
}

#[test]
fn a_relaying_attacker_learns_nothing_from_a_pairing() {
    let world = World::new();
    let proxy = Proxy::new(&world.robot);
    let mut base = world.base.pair(NO_ROS);
    let mut robot = world.robot.pair(&[&base.code(), "--at", &proxy.at(), "--no-ros"]);
    let [from_robot, from_base] = proxy.carry(|_, _, _| FrameFate::Pass);
    assert!(base.end().success() && robot.end().success(), "{}\n{}", base.output(), robot.output());
    let key = base.event("plan")["key"].as_str().unwrap().to_owned();
    for (all, name) in [(&from_robot, "robot1"), (&from_base, "base")] {
        assert!(contains(all, name.as_bytes()), "the HELLO has the name");
        for secret in [key.as_str(), "topics", "dry_run", "10.77.0."] {
            assert!(!contains(all, secret.as_bytes()), "{secret}");
        }
    }

    // The frames of the robot once more, at the next base.
    let mut base = world.base.pair(&["--no-ros", "--no-start"]);
    base.code();
    let files = world.base.files();
    world.robot.inside.call(|| {
        let mut stream = TcpStream::connect(("10.77.0.1", 18470)).unwrap();
        stream.write_all(&from_robot).unwrap();
        let mut answer = Vec::new();
        // The base closes with bytes unread, so the kernel may end the connection by a reset.
        let _ = stream.read_to_end(&mut answer);
    });
    assert_eq!(base.event("wrong_code")["left"], 2);
    assert!(!base.has_ended() && world.base.files() == files);
}

/// Lets a frame arrive with a changed bit in the byte `at`.
fn flip_bit(frame: &[u8], at: usize) -> FrameFate {
    let mut frame = frame.to_vec();
    frame[at] ^= 1;
    FrameFate::Change(frame)
}

#[test]
fn changed_frames_end_the_pairing() {
    for (who, number) in [
        (Sender::Robot, 1),
        (Sender::Base, 1),
        (Sender::Robot, 2),
        (Sender::Base, 2),
        (Sender::Robot, 3),
        (Sender::Base, 3),
        (Sender::Robot, 4),
        (Sender::Base, 5),
    ] {
        let world = World::new();
        let proxy = Proxy::new(&world.robot);
        let mut base = world.base.pair(NO_ROS);
        let mut robot = world.robot.pair(&[&base.code(), "--at", &proxy.at(), "--no-ros"]);
        proxy.carry(|from, count, frame| match (from, count) == (who, number) {
            true => flip_bit(frame, frame.len() - 1),
            false => FrameFate::Pass,
        });
        let said = robot.failure();
        assert!(said.to_lowercase().contains("nothing was written"), "{who:?} {number}: {said}");
        // Before the proofs, the base waits for the right robot; a changed proof is a wrong code.
        if number > 2 || (who, number) == (Sender::Base, 2) {
            base.failure();
        } else {
            assert!(!base.has_ended(), "{}", base.output());
        }
        assert_no_files(&world, &format!("{who:?} {number}"), (who, number) == (Sender::Base, 5));
    }
}

/// Pairs over a connection that is cut at a frame. With `kills`, kills the robot then.
fn pair_with_cut(world: &World, who: Sender, number: usize, kills: bool) -> [pairing::Run; 2] {
    let proxy = Proxy::new(&world.robot);
    let base = world.base.pair(NO_ROS);
    let mut robot = world.robot.pair(&[&base.code(), "--at", &proxy.at(), "--no-ros"]);
    proxy.carry(|from, count, _| match (from, count) == (who, number) {
        true => FrameFate::Cut,
        false => FrameFate::Pass,
    });
    if kills {
        robot.kill("-KILL");
    }
    robot.end();
    [base, robot]
}

#[test]
fn a_robot_that_disappears_changes_neither_end() {
    for number in 1..=4 {
        let world = World::new();
        let [mut base, _robot] = pair_with_cut(&world, Sender::Robot, number, true);
        assert!(world.base.files().is_empty(), "frame {number}");
        // A killed robot cannot remove what it prepared.
        let left = world.robot.files();
        assert!(left.iter().all(|name| name.ends_with(".pairing")), "{number}: {left:?}");
        if number > 2 {
            let said = base.failure();
            assert!(said.contains("Nothing was written"), "{said}");
        }
        // The next pairing works, with the files that the killed robot left.
        let code = if number > 2 { None } else { Some(base.code()) };
        match code {
            Some(code) => {
                let mut robot = world.robot.pair(&[&*code, "--no-ros"]);
                assert!(robot.end().success() && base.end().success(), "{}", robot.output());
            }
            None => drop(world.pair_well([NO_ROS, NO_ROS])),
        }
        assert_eq!(world.robot.files(), ["robot.yaml", "robot1.key"]);
    }
}

#[test]
fn a_lost_message_changes_neither_end_unless_it_is_one_of_the_last() {
    for (who, number) in [
        (Sender::Base, 1),
        (Sender::Base, 2),
        (Sender::Base, 3),
        (Sender::Base, 4),
        (Sender::Base, 5),
    ] {
        let world = World::new();
        let [mut base, robot] = pair_with_cut(&world, who, number, false);
        let said = robot.output().to_lowercase();
        assert!(said.contains("nothing was written"), "{who:?} {number}: {said}");
        if number > 1 {
            base.failure();
        }
        assert_no_files(&world, &format!("{who:?} {number}"), number >= 4);
    }
    // The robot has written, and cannot tell whether the base has. The base keeps the key that the
    // robot's file may have.
    for (who, number, at_base) in
        [(Sender::Robot, 5, &["base.key"][..]), (Sender::Base, 6, &["base.key", "robot.yaml"])]
    {
        let world = World::new();
        let [mut base, _robot] = pair_with_cut(&world, who, number, false);
        assert_eq!(base.end().success(), number == 6, "{}", base.output());
        assert_eq!(world.base.files(), at_base);
        assert_eq!(world.robot.files(), ["robot.yaml", "robot1.key"]);
        // After another pairing, each end has the other in its file.
        world.pair_well([NO_ROS, NO_ROS]);
        for (machine, peer) in [(&world.base, "robot1"), (&world.robot, "base")] {
            assert_eq!(machine.robot_yaml().matches(&format!("  {peer}:\n")).count(), 1);
        }
    }
}

#[test]
fn silent_strangers_do_not_exclude_the_robot() {
    let world = World::new();
    let mut base = world.base.pair(NO_ROS);
    let code = base.code();
    let strangers: Vec<TcpStream> = world.robot.inside.call(|| {
        let stranger = |number: usize| {
            let mut stream = TcpStream::connect(("10.77.0.1", 18470)).unwrap();
            // Nothing; a part of a length; a long frame that does not come; no frame at all.
            let bytes: [&[u8]; 4] = [b"", b"\x40\0", b"\xff\0\0\0\x01", b"GET / HTTP/1.1\r\n\r\n"];
            // This fails for a stranger whose connection was ended for a newer one.
            let _ = stream.write_all(bytes[number % 4]);
            stream
        };
        (0..100).map(stranger).collect()
    });
    let mut robot = world.robot.pair(&[&*code, "--no-ros"]);
    assert!(robot.end().success() && base.end().success(), "{}\n{}", robot.output(), base.output());
    assert!(!base.output().contains("wrong_code"), "{}", base.output());
    drop(strangers);
}

#[test]
fn attempts_at_one_base_do_not_count_at_another() {
    let world = World::new();
    let inside = world.robot.inside.neighbour(&world.place.hosts());
    world.robot.inside.join_by(&inside, "wire2", 78);
    let folder = world.place.path("other");
    std::fs::create_dir(&folder).unwrap();
    let other = Machine { inside, folder, name: "other" };
    let mut first = world.base.pair(NO_ROS);
    let selector = |code: &str| code[..2].to_owned();
    let (mut second, code) = loop {
        let second = other.pair(NO_ROS);
        let code = second.code();
        if selector(&code) != selector(&first.code()) {
            break (second, code);
        }
    };
    let mut robot = world.robot.pair(&[&*code, "--no-ros"]);
    assert!(robot.end().success() && second.end().success(), "{}", robot.output());
    assert_eq!(robot.event("plan")["peer"], "other");
    assert!(!first.has_ended() && !first.output().contains("wrong_code"), "{}", first.output());
    assert!(
        world.robot.robot_yaml().contains("address: 10.78.0.2 "),
        "{}",
        world.robot.robot_yaml()
    );
}

#[test]
fn without_multicast_broadcasts_find_the_base_and_otherwise_its_address_does() {
    let world = World::new();
    let rule = |rule: &str| {
        let chain = "type filter hook input priority 0;";
        format!("table inet t {{\n chain c {{\n {chain}\n {rule}\n }}\n}}\n")
    };
    for machine in [&world.base, &world.robot] {
        let other = if machine.name == "base" { 1 } else { 2 };
        machine.inside.ip("addr flush dev wire");
        machine.inside.ip(&format!("addr add 10.77.0.{other}/24 brd + dev wire"));
        machine.inside.nft(&rule("meta pkttype multicast udp dport 18471 drop"));
    }
    world.pair_well([NO_ROS, NO_ROS]);
    assert!(world.base.robot_yaml().contains("address: 10.77.0.2 "), "{}", world.base.robot_yaml());
    world.base.inside.nft("flush ruleset");
    world.base.inside.nft(&rule("udp dport 18471 drop"));
    let runs = world.pair([NO_ROS, &["--at", "10.77.0.1", "--no-ros"]]);
    for mut run in runs {
        assert!(run.end().success(), "{}", run.output());
        assert_eq!(run.event("paired")["written"], json!([]), "all lines were there");
    }
}
