// SPDX-License-Identifier: Apache-2.0
//! The hand-made peer of the lab's case `attack`, under `security: none`.

use crate::peer::{Identity, Peer, initiation, random_u64, topic};
use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;
use tautline_proto::crypto::cookies::{CookieJar, MacKey};
use tautline_proto::wire::control::Control;
use tautline_proto::{Instant, SecretKey};

/// Maximum time until an advertisement is acknowledged.
const ACK_TIMEOUT: Duration = Duration::from_secs(20);
/// MD5 sum of geometry_msgs/Twist.
const TWIST_MD5: &str = "9f195f881246fdfa2798d1d3eebca84a";

fn identity(name: &str, to: &str) -> Identity {
    let (secret, other) = (SecretKey::insecure(name), SecretKey::insecure(to).public());
    Identity { name: name.into(), secret, other }
}

/// Builds the handshake initiation of node `name` to node `to`, MACs included.
pub fn call(name: &str, to: &str) -> Vec<u8> {
    let own = identity(name, to);
    let (_, mut packet) = initiation(&own, 7, random_u64()).unwrap();
    CookieJar::default().append_macs(Instant(0), &MacKey::for_receiver(&own.other), &mut packet);
    packet
}

/// Completes a handshake as peer `name` with the node `to`, which listens on `port` of this machine. To
/// the node, its peer has restarted.
pub fn meet(name: &str, to: &str, port: u16) -> Peer {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    socket.connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    Peer::meet(socket, identity(name, to)).unwrap()
}

/// Sends a packet with one frame.
pub fn send(peer: &mut Peer, put: fn(&mut Vec<u8>)) {
    let mut frame = Vec::new();
    put(&mut frame);
    peer.send(&frame).unwrap();
}

/// Advertises a topic of velocity commands and sends its definition unasked. Panics unless the daemon
/// acknowledges both.
pub fn offer_command(peer: &mut Peer, channel: u64, name: &str) {
    peer.offer(channel, topic(name, "geometry_msgs/Twist", TWIST_MD5));
    let text = "geometry_msgs/Vector3 linear\ngeometry_msgs/Vector3 angular\n\
                ================================================================================\n\
                MSG: geometry_msgs/Vector3\nfloat64 x\nfloat64 y\nfloat64 z\n";
    peer.control(&Control::Definition { channel, text: text.into() });
    assert!(
        peer.run_until(ACK_TIMEOUT, |it| it.backlog() == 0).unwrap(),
        "{name} is not advertised"
    );
}
