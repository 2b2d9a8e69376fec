// SPDX-License-Identifier: Apache-2.0
//! The memory that a hostile peer can make a node allocate.

use cap::Cap;
use std::alloc::System;
use tautline_proto::crypto::cookies::{CookieJar, MacKey};
use tautline_proto::crypto::noise::Initiator;
use tautline_proto::stats::RefusedPacket;
use tautline_proto::wire::control::Control;
use tautline_proto::wire::frame::{Ack, Fragment};
use tautline_proto::wire::packet::{Greeting, SessionHeader, start_initiation};
use tautline_proto::{Config, Duration, EcnCounts, Event, PublicKey, SecretKey};
use tautline_testkit::again::in_own_process;
use tautline_testkit::attacker::{Attacked, PEER, data, topic};

/// Counts for the whole process: each test runs in a process of its own.
#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

const TIMES: u64 = 20_000;
const MB: usize = 1 << 20;

fn config() -> Config {
    Config {
        max_message: 200_000,
        reassembly_bytes: 1_000_000,
        ..Config::new("node", SecretKey::insecure("node"))
    }
}

/// Runs `flood` against a node. Checks that its memory grew by no more than `bound` bytes at any
/// time, and that the node still accepts a message.
fn flood(bound: usize, mut each: impl FnMut(&mut Attacked, u64)) -> Attacked {
    let mut attacked = Attacked::new(config());
    let before = ALLOCATOR.allocated();
    let mut most = 0;
    for n in 0..TIMES {
        each(&mut attacked, n);
        most = most.max(ALLOCATOR.allocated().saturating_sub(before));
    }
    assert!(most <= bound, "{most} bytes held, {bound} allowed");
    attacked.events.clear();
    attacked.data(&data(1, 1 << 40, None), b"still there");
    let taken = attacked.events.iter().any(
        |e| matches!(e, Event::Message { message, .. } if &message.payload[..] == b"still there"),
    );
    assert!(taken, "the node takes messages after the flood");
    attacked
}

fn refused(attacked: &Attacked, reason: RefusedPacket) -> u64 {
    attacked.endpoint.refused_packets().get(reason)
}

#[test]
fn first_pieces_of_huge_messages() {
    if !in_own_process() {
        return;
    }
    flood(config().reassembly_bytes + MB, |attacked, n| {
        let huge = Fragment { total: 199_000, offset: 0 };
        attacked.data(&data(1, n + 1, Some(huge)), &[1]);
    });
}

#[test]
fn messages_above_the_limit() {
    if !in_own_process() {
        return;
    }
    flood(MB, |attacked, n| {
        let total = Fragment { total: u32::MAX, offset: u32::MAX - 1 };
        attacked.data(&data(1, n + 1, Some(total)), &[1]);
    });
}

#[test]
fn first_pieces_of_many_small_messages() {
    if !in_own_process() {
        return;
    }
    flood(MB, |attacked, n| {
        attacked.data(&data(1, n + 1, Some(Fragment { total: 2, offset: 0 })), &[1]);
    });
}

#[test]
fn pieces_of_one_byte_with_holes_between() {
    if !in_own_process() {
        return;
    }
    let total = 2 * TIMES as u32 + 1;
    let attacked = flood(MB, |attacked, n| {
        attacked.data(&data(1, 1, Some(Fragment { total, offset: 2 * n as u32 })), &[1]);
    });
    // At most 4096 ranges are tracked.
    assert_eq!(refused(&attacked, RefusedPacket::Bound), TIMES - 4096);
}

/// Makes an initiation from a node with `secret` and `name`. Strangers and nodes with a copied key
/// send such initiations.
fn initiate(node: &Attacked, secret: &SecretKey, name: &str, epoch: u64, drawn: u64) -> Vec<u8> {
    let key = SecretKey::insecure(node.endpoint.name()).public();
    let mut random = [0; 32];
    random[..8].copy_from_slice(&drawn.to_le_bytes());
    let payload = Greeting { epoch, name }.emit();
    let (_, noise) = Initiator::initiate(secret, &key, random, &payload).unwrap();
    let mut packet = start_initiation(1, &noise);
    CookieJar::default().append_macs(node.now, &MacKey::for_receiver(&key), &mut packet);
    packet
}

#[test]
fn only_session_packets_carry_our_number() {
    let attacked = Attacked::new(config());
    let bears = |session: u32| {
        let header = SessionHeader { ack_soon: false, relayed: false, link: 0, session, number: 1 };
        attacked.endpoint.has_known_session(&[header.emit(64), vec![0; 40]].concat())
    };
    assert!(bears(attacked.session));
    assert!(!bears(attacked.session ^ 1));
    assert!(!attacked.endpoint.has_known_session(&attacked.call(1, 1).1));
}

#[test]
fn calls_of_who_does_not_know_the_key() {
    if !in_own_process() {
        return;
    }
    let attacked = flood(MB, |attacked, n| {
        let mut packet = start_initiation(n as u32 + 1, &[n as u8; 130]);
        CookieJar::default().append_macs(
            attacked.now,
            &MacKey::for_receiver(&PublicKey([3; 32])),
            &mut packet,
        );
        attacked.inject(&packet);
    });
    assert_eq!(refused(&attacked, RefusedPacket::Unauthentic), TIMES);
}

#[test]
fn calls_of_unknown_keys() {
    if !in_own_process() {
        return;
    }
    let attacked = flood(MB, |attacked, n| {
        // In an unoptimised build, 20 000 handshakes would take a minute. The cookie limits admit
        // few of them.
        let stranger = SecretKey::new([n as u8; 32]);
        if n % 20 == 0 {
            let packet = initiate(attacked, &stranger, "stranger", n, n);
            attacked.inject(&packet);
        }
    });
    let unknown = refused(&attacked, RefusedPacket::UnknownKey);
    assert!(unknown > 0 && unknown + refused(&attacked, RefusedPacket::Flood) == TIMES / 20);
}

#[test]
fn initiations_of_the_peer_with_ever_new_epochs() {
    if !in_own_process() {
        return;
    }
    let attacked = flood(MB, |attacked, n| {
        if n % 20 == 0 {
            let packet = initiate(attacked, &SecretKey::insecure("robot"), "robot", n + 100, n);
            attacked.inject(&packet);
        }
    });
    assert!(refused(&attacked, RefusedPacket::Flood) > 0);
}

/// Lets time pass, so that the next control message is handled.
fn let_time_pass(attacked: &mut Attacked) {
    attacked.now = attacked.now + Duration::from_millis(6);
}

#[test]
fn offers() {
    if !in_own_process() {
        return;
    }
    let attacked = flood(32 * MB, |attacked, n| {
        let_time_pass(attacked);
        attacked.offer(n + 2, topic(&format!("/{n}{}", "x".repeat(900))));
    });
    assert_eq!(refused(&attacked, RefusedPacket::Bound), TIMES + 1 - 4096);
    assert_eq!(attacked.endpoint.peer(PEER).channels_in().count(), 4096);
}

#[test]
fn one_channel_offered_with_ever_new_types() {
    if !in_own_process() {
        return;
    }
    // There are 4 MB of definitions, and 20 000 requests for them. The replies are not
    // acknowledged.
    flood(16 * MB, |attacked, n| {
        let_time_pass(attacked);
        let mut other = topic("/in");
        other.type_hash = n.to_string();
        attacked.offer(1, other);
        attacked.control(&Control::Definition { channel: 1, text: "x".repeat(1300) });
    });
}

#[test]
fn questions_for_a_definition() {
    if !in_own_process() {
        return;
    }
    let attacked = flood(MB, |attacked, _| {
        let_time_pass(attacked);
        attacked.control(&Control::GetDefinition { channel: 1 });
    });
    assert_eq!(refused(&attacked, RefusedPacket::Bound), TIMES - 1);
}

#[test]
fn control_messages_while_the_first_is_missing() {
    if !in_own_process() {
        return;
    }
    let attacked = flood(3 * MB, |attacked, n| {
        let (number, total) = (attacked.control + 2 + n, 1 << 20);
        attacked.data(&data(0, number, Some(Fragment { total, offset: 0 })), &[6; 1000]);
    });
    assert!(refused(&attacked, RefusedPacket::Bound) >= TIMES - 2);
}

#[test]
fn publishers_on_many_channels() {
    if !in_own_process() {
        return;
    }
    let attacked = flood(24 * MB, |attacked, n| {
        let channel = n / 256 + 1;
        if n % 256 == 0 && channel > 1 {
            attacked.offer(channel, topic("/many"));
        }
        let mut piece = data(channel, 1, None);
        piece.source = (n % 256) as u32;
        attacked.data(&piece, b"x");
        attacked.events.clear();
    });
    assert_eq!(refused(&attacked, RefusedPacket::Bound), TIMES - 16_384);
}

#[test]
fn acknowledgements_of_packets_never_sent() {
    if !in_own_process() {
        return;
    }
    let attacked = flood(MB, |attacked, n| {
        let ack = Ack {
            link: 0,
            delay: Duration::ZERO,
            waited: Duration::ZERO,
            least_waited: Duration::ZERO,
            ecn: EcnCounts::default(),
            ranges: vec![(1 << 30, (1 << 30) + n)],
        };
        let mut frame = Vec::new();
        ack.emit(&mut frame);
        attacked.packet(&frame);
    });
    assert_eq!(refused(&attacked, RefusedPacket::Malformed), TIMES);
}

#[test]
fn packets_of_sessions_that_do_not_exist() {
    if !in_own_process() {
        return;
    }
    let attacked = flood(MB, |attacked, n| {
        let mut packet = vec![0x80];
        packet.extend_from_slice(&(attacked.session + 1 + n as u32).to_le_bytes());
        packet.extend_from_slice(&[7; 40]);
        attacked.inject(&packet);
    });
    assert_eq!(refused(&attacked, RefusedPacket::UnknownSession), TIMES);
}

#[test]
fn packets_of_the_session_that_are_forged() {
    if !in_own_process() {
        return;
    }
    let attacked = flood(MB, |attacked, n| {
        let mut packet = vec![0x80];
        packet.extend_from_slice(&attacked.session.to_le_bytes());
        packet.extend_from_slice(&(attacked.packet as u32 + 1 + n as u32).to_le_bytes());
        packet.extend_from_slice(&[7; 40]);
        attacked.inject(&packet);
    });
    assert_eq!(refused(&attacked, RefusedPacket::Unauthentic), TIMES);
}
