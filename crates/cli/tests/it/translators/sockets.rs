// SPDX-License-Identifier: Apache-2.0
//! Plain sockets prove what the translators do, without a node.

use super::{Enclosure, INTERNET, Kind, NODE_PORT, RELAY, World, needs_relay, pairs};
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

/// Packets that have not arrived after this time do not arrive.
const SILENCE: Duration = Duration::from_millis(200);

fn socket(inside: &Enclosure, address: &str, port: u16) -> UdpSocket {
    let socket = inside.call(|| UdpSocket::bind((address, port)).unwrap());
    socket.set_read_timeout(Some(SILENCE)).unwrap();
    socket
}

/// Sends a packet to each of these sockets; returns the sources that they see.
fn sources(host: &UdpSocket, remotes: &[&UdpSocket]) -> Vec<SocketAddr> {
    let source = |remote: &&UdpSocket| {
        host.send_to(&[0], remote.local_addr().unwrap()).unwrap();
        remote.recv_from(&mut [0]).expect("packets leave").1
    };
    remotes.iter().map(source).collect()
}

/// Sends a packet from each of these sockets to an address; returns which of them arrive.
fn arrivals<const N: usize>(
    senders: [&UdpSocket; N],
    to: SocketAddr,
    host: &UdpSocket,
) -> [bool; N] {
    for (number, sender) in senders.iter().enumerate() {
        sender.send_to(&[number as u8], to).unwrap();
    }
    let (mut arrived, mut number) = ([false; N], [0]);
    while host.recv_from(&mut number).is_ok() {
        arrived[usize::from(number[0])] = true;
    }
    arrived
}

#[test]
fn each_kind_of_translator_maps_and_filters_correctly() {
    for kind in Kind::ALL {
        let world = World::new([kind, kind]);
        let [asked, other_port] = [NODE_PORT, 7000].map(|port| socket(&world.relay, RELAY, port));
        let stranger = socket(&world.internet, INTERNET, 7000);
        let remotes = [&asked, &other_port, &stranger];
        for port in [NODE_PORT, 5000] {
            let host = socket(&world.robot, "0.0.0.0", port);
            let expected = kind.outside_port().map(|it| if port == NODE_PORT { it } else { port });
            if let Some(outside) = expected {
                let closed = SocketAddr::from(([198, 51, 100, 2], outside));
                assert_eq!(
                    arrivals(remotes, closed, &host),
                    [false; 3],
                    "{kind:?} before a packet"
                );
            }
            let seen = sources(&host, &remotes[..1])[0];
            assert!(expected.is_none_or(|it| it == seen.port()), "{kind:?}: {seen}");
            let filtered = arrivals(remotes, seen, &host);
            let may_enter = match kind {
                Kind::FullCone => [true, true, true],
                Kind::AddressRestricted => [true, true, false],
                Kind::PortRestricted | Kind::Symmetric => [true, false, false],
            };
            assert_eq!(filtered, may_enter, "{kind:?}: who was asked, another port, a stranger");
            let mapped = sources(&host, &remotes);
            assert_eq!(mapped[0], seen);
            let is_same = mapped.iter().all(|it| *it == seen);
            assert_eq!(is_same, kind != Kind::Symmetric, "{kind:?}: {mapped:?}");
            println!("{kind:?}, port {port}: seen as {mapped:?}; {filtered:?} enter");
            for (sender, source) in remotes.iter().zip(&mapped) {
                assert_eq!(arrivals([*sender], *source, &host), [true], "{kind:?}: an answer");
            }
        }
    }
}

#[test]
fn a_restart_of_a_router_gives_other_ports() {
    for kind in [Kind::PortRestricted, Kind::Symmetric] {
        let world = World::new([kind, kind]);
        let (host, relay) =
            (socket(&world.robot, "0.0.0.0", NODE_PORT), socket(&world.relay, RELAY, NODE_PORT));
        let [before, still] = [(); 2].map(|()| sources(&host, &[&relay])[0]);
        assert_eq!(before, still);
        world.routers[0].restart();
        let after = sources(&host, &[&relay])[0];
        println!("{kind:?}: {before}, then {after}");
        assert_ne!(before, after);
        assert_eq!(arrivals([&relay], before, &host), [false]);
        assert_eq!(arrivals([&relay], after, &host), [true]);
    }
}

/// Whether two hosts hear each other. Each sends to the other's address as the relay sees it, and then to
/// the sources of the packets that it hears.
fn hear_each_other(hosts: [&UdpSocket; 2], relay: &UdpSocket) -> bool {
    let seen = hosts.map(|host| sources(host, &[relay])[0]);
    let (mut addresses, mut heard) = ([seen[1], seen[0]], [false; 2]);
    for _ in 0..3 {
        for (host, address) in hosts.iter().zip(addresses) {
            host.send_to(&[0], address).unwrap();
        }
        for (at, host) in hosts.iter().enumerate() {
            while let Ok((_, source)) = host.recv_from(&mut [0]) {
                (addresses[at], heard[at]) = (source, true);
            }
        }
    }
    heard == [true; 2]
}

#[test]
fn hole_punching_fails_only_with_strict_and_symmetric_translators() {
    for kinds in pairs() {
        let world = World::new(kinds);
        let relay = socket(&world.relay, RELAY, NODE_PORT);
        let hosts = [&world.robot, &world.base].map(|it| socket(it, "0.0.0.0", NODE_PORT));
        let is_direct = hear_each_other(hosts.each_ref(), &relay);
        assert_eq!(is_direct, !needs_relay(kinds), "{kinds:?}");
    }
}

#[test]
fn two_hosts_of_one_home_have_different_ports_at_the_relay() {
    let world = World::with_one_home(Kind::PortRestricted);
    let relay = socket(&world.relay, RELAY, NODE_PORT);
    let stranger = socket(&world.internet, INTERNET, NODE_PORT);
    let hosts = [&world.robot, &world.base].map(|it| socket(it, "0.0.0.0", NODE_PORT));
    let [first, second] = hosts.each_ref().map(|host| sources(host, &[&relay])[0]);
    assert_eq!(first.port(), NODE_PORT);
    assert_ne!(second.port(), NODE_PORT);
    // Linux uses a source's port outside again for other destinations.
    assert_eq!(sources(&hosts[1], &[&stranger])[0], second);
    // The router sends no packet back into the network behind it.
    assert!(!hear_each_other(hosts.each_ref(), &relay));
}
