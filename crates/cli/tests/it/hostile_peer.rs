// SPDX-License-Identifier: Apache-2.0
//! Peers with valid keys that attack a running daemon.

use crate::PROGRAM;
use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;
use tautline_proto::SecretKey;
use tautline_proto::crypto::cookies::MacKey;
use tautline_proto::wire::control::Control;
use tautline_proto::wire::frame::{put_goodbye, put_held, put_ping};
use tautline_proto::wire::packet::Packet;
use tautline_proto::wire::relay::{Held, RelayHeader, ShortName};
use tautline_testkit::peer::{Peer, data, topic};
use tautline_testkit::running::hostile::{self, send};
use tautline_testkit::running::{Daemon, Place, free_port, wait_for};

const BASE: &str = "base";
/// Maximum time until a condition holds.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Time without progress after which a daemon counts as stalled.
const SILENCE: Duration = Duration::from_secs(3);
/// Maximum memory that a peer may cost, in bytes.
const MAX_GROWTH_BYTES: u64 = 64_000_000;

/// Starts a daemon with these peers; returns it and its port.
fn base(place: &Place, peers: &str) -> (Daemon, u16) {
    let port = free_port();
    let lines = format!("listen: \"127.0.0.1:{port}\"\npeers: {{ {peers} }}");
    (place.start(BASE, &lines), port)
}

/// Returns the short name of a node under `security: none`.
fn short(name: &str) -> ShortName {
    SecretKey::insecure(name).public().short_name()
}

/// Returns a hand-made peer with a session to the daemon at this port.
fn meet(name: &str, port: u16) -> Peer {
    hostile::meet(name, BASE, port)
}

/// Whether a daemon runs; a dead one is a zombie until its `Daemon` is dropped.
fn is_running(daemon: &Daemon) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{}/status", daemon.pid()));
    status.is_ok_and(|status| !status.contains("State:\tZ"))
}

/// Sends queued frames until the daemon has acknowledged all of them.
fn settle(peer: &mut Peer, daemon: &Daemon) {
    let settled = peer.run_until(TIMEOUT, |it| it.is_settled() || !is_running(daemon)).unwrap();
    assert!(is_running(daemon), "the daemon has died:\n{}", daemon.log());
    assert!(settled, "not acknowledged: {} frames", peer.backlog());
}

/// Sends queued frames until all are acknowledged or the daemon stalls.
fn settle_or_stall(peer: &mut Peer, daemon: &Daemon) {
    let mut before = (0, 0);
    let mut progress = |it: &Peer| {
        let now = (it.backlog(), it.in_flight_packets());
        std::mem::replace(&mut before, now) != now
    };
    while !peer.is_settled() && is_running(daemon) {
        let going = peer.run_until(SILENCE, |it| progress(it) || it.is_settled()).unwrap();
        if !going {
            break;
        }
    }
    assert!(is_running(daemon), "the daemon has died:\n{}", daemon.log());
}

/// Returns a relayed packet for another node, with its claimed sender.
fn relayed_packet(peer: &mut Peer, from: Option<&str>, to: &str) -> Vec<u8> {
    let (from, to) = (from.map(short), Some(short(to)));
    let payload = RelayHeader { hops: 8, life: None, from, to }.with_header(&[0; 64]);
    let mut frame = Vec::new();
    data(100, peer.next_relay(), None).emit_relay(&payload, &mut frame);
    frame
}

/// Has the daemon relay a packet of alice to bob. While bob does not run, no route leads to him, and the
/// daemon refuses the packet: alice sends the next one.
fn relay_to_bob(alice: &mut Peer, bob: &mut Peer, daemon: &Daemon) {
    let before = bob.heard.relayed;
    wait_for("a packet is passed on to bob", || {
        let packet = relayed_packet(alice, None, "bob");
        alice.queue(vec![packet]);
        settle(alice, daemon);
        let wait = Duration::from_millis(200);
        bob.run_until(wait, |it| it.heard.relayed > before).unwrap().then_some(())
    });
}

#[test]
fn nested_packets_do_not_end_the_daemon_or_cost_memory() {
    let place = Place::new(PROGRAM);
    let (daemon, port) = base(&place, "mallory: {}");
    let mut mallory = meet("mallory", port);
    let before = daemon.resident_bytes();
    let (frames, _) = mallory.nest(5000, 100);
    assert!(frames.len() > 100, "they fill many datagrams");
    mallory.queue(frames);
    settle(&mut mallory, &daemon);
    let grown = daemon.resident_bytes().saturating_sub(before);
    assert!(grown < MAX_GROWTH_BYTES, "{grown} bytes");
    assert_eq!(daemon.peer_state("mallory"), "up");
}

#[test]
fn only_the_next_hop_reports_its_queue() {
    let place = Place::new(PROGRAM);
    let (daemon, port) = base(&place, "alice: { relay: true }, bob: { relay: true }, mallory: {}");
    let [mut alice, mut bob, mut mallory] = ["alice", "bob", "mallory"].map(|it| meet(it, port));
    relay_to_bob(&mut alice, &mut bob, &daemon);
    let mut lie = Vec::new();
    let held = Held { to: short("bob"), bytes: u64::MAX >> 1, from: Some(short("alice")) };
    put_held(&held, &mut lie);
    put_ping(&mut lie);
    mallory.queue(vec![lie]);
    settle(&mut mallory, &daemon);
    relay_to_bob(&mut alice, &mut bob, &daemon);
    // A relay backlog report is repeated within a fraction of a second.
    let is_lie = |held: &Held| held.bytes > 1 << 20;
    let lied = alice.run_until(SILENCE, |it| it.heard.held.iter().any(is_lie)).unwrap();
    assert!(!lied, "alice was told: {:?}", alice.heard.held.last());
}

#[test]
fn only_peers_with_the_right_use_a_relay() {
    let place = Place::new(PROGRAM);
    let (daemon, port) = base(&place, "alice: { relay: true }, bob: { relay: true }, mallory: {}");
    let [_alice, mut bob, mut mallory] = ["alice", "bob", "mallory"].map(|it| meet(it, port));
    let forged = relayed_packet(&mut mallory, Some("alice"), "bob");
    mallory.queue(vec![forged]);
    settle(&mut mallory, &daemon);
    wait_for("the packet is refused, or has been passed on", || {
        bob.run_until(Duration::from_millis(20), |it| it.heard.relayed > 0).unwrap();
        let refused = daemon.status().packets_refused;
        (bob.heard.relayed > 0 || refused.contains_key("not_relayed")).then_some(())
    });
    assert_eq!(bob.heard.relayed, 0, "mallory's packet went to bob in alice's name");
}

#[test]
fn definitions_of_one_peer_are_bounded_and_removed_with_it() {
    let place = Place::new(PROGRAM);
    let (daemon, port) = base(&place, "mallory: {}");
    let mut mallory = meet("mallory", port);
    let before = daemon.resident_bytes();
    let (mut most, mut taken) = (0, 0);
    for channel in 1..=300 {
        let (name, hash) = (format!("/topic_{channel}"), format!("{channel:032x}"));
        mallory.offer(channel, topic(&name, &format!("mallory_msgs/T{channel}"), &hash));
        mallory.control(&Control::Definition { channel, text: "#".repeat(1 << 20) });
        settle_or_stall(&mut mallory, &daemon);
        taken += usize::from(mallory.is_settled());
        most = most.max(daemon.resident_bytes().saturating_sub(before));
        if !mallory.is_settled() || most > MAX_GROWTH_BYTES {
            break;
        }
    }
    assert!(most < MAX_GROWTH_BYTES, "{most} bytes after {taken} definitions");
    assert!(taken > 0, "one definition is within any bound");
    drop(mallory);
    wait_for("what the peer had is given back", || {
        let left = daemon.resident_bytes().saturating_sub(before);
        (left < MAX_GROWTH_BYTES / 4).then_some(())
    });
}

#[test]
fn a_flapping_peer_does_not_fill_the_log() {
    let place = Place::new(PROGRAM);
    let (daemon, port) = base(&place, "mallory: {}");
    let mut mallory = meet("mallory", port);
    for number in 1..=1000 {
        send(&mut mallory, put_goodbye);
        if number % 20 == 0 {
            mallory.listen_for(Duration::from_millis(2), |_| false).unwrap();
        }
    }
    // When this advertisement is handled, all earlier packets have been handled.
    let mut alive = meet("mallory", port);
    alive.offer(1, topic("/text", "std_msgs/String", "992ce8a1687cec8c8bd883ec73ca41d1"));
    settle(&mut alive, &daemon);
    let lines = daemon.log().lines().count();
    assert!(lines < 100, "{lines} lines, the last {:?}", daemon.log().lines().last());
}

#[test]
fn one_forged_cookie_causes_one_initiation() {
    let (place, port) = (Place::new(PROGRAM), free_port());
    let far = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let there = far.local_addr().unwrap();
    let lines = format!("listen: \"127.0.0.1:{port}\"\npeers: {{ far: \"{there}\" }}");
    let daemon = place.start(BASE, &lines);
    far.set_read_timeout(Some(TIMEOUT)).unwrap();
    let mut buffer = [0; 2048];
    let (len, from) = far.recv_from(&mut buffer).expect("the daemon calls");
    let Ok(Packet::Initiation(call)) = Packet::parse(&buffer[..len]) else { panic!("not a call") };
    // Anybody who sees an initiation and knows the responder's public key can forge this cookie
    // reply.
    let proof = MacKey::for_receiver(&SecretKey::insecure("far").public());
    let cookie = proof.cookie(call.session, &call.mac1, [7; 12], &[9; 16]).unwrap();
    far.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    // Far more cookie replies than the daemon sends initiations in this time without any cookie.
    let (rounds, of_each, mut calls) = (20, 50, 0);
    for _ in 0..rounds {
        for _ in 0..of_each {
            far.send_to(&cookie, from).unwrap();
        }
        while far.recv_from(&mut buffer).is_ok() {
            calls += 1;
        }
    }
    let sent = rounds * of_each;
    assert!(calls < sent / 2, "{calls} calls after {sent} copies of one cookie");
    assert_eq!(daemon.peer_state("far"), "connecting");
}
