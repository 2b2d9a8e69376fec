// SPDX-License-Identifier: Apache-2.0
//! A hand-made peer under `security: none`: it completes the handshake with a daemon according to
//! the protocol, and then sends arbitrary packets.

use std::net::UdpSocket;
use std::time::Duration;
use tautline_proto::crypto::cookies::{CookieJar, MacKey};
use tautline_proto::crypto::noise::Initiator;
use tautline_proto::crypto::seal::Sealer;
use tautline_proto::wire::control::{Control, Offer};
use tautline_proto::wire::frame::{Data, put_goodbye, put_ping};
use tautline_proto::wire::packet::{Greeting, Packet, SessionHeader, start_initiation};
use tautline_proto::{Instant, OfferedQos, OfferedTopic, Role, SecretKey};

/// Timeout of a response, after which the initiation is repeated.
const PATIENCE: Duration = Duration::from_millis(500);
const OWN_SESSION: u32 = 7;
/// MD5 sum of geometry_msgs/Twist.
const TWIST_MD5: &str = "9f195f881246fdfa2798d1d3eebca84a";

/// Returns the handshake initiation of a node without security to another node.
pub fn call(name: &str, to: &str, drawn: u64) -> (Initiator, Vec<u8>) {
    let (own, other) = (SecretKey::insecure(name), SecretKey::insecure(to).public());
    let mut random = [0; 32];
    random[..8].copy_from_slice(&drawn.to_le_bytes());
    let greeting = Greeting { epoch: drawn, name }.emit();
    let (caller, noise) = Initiator::initiate(&own, &other, random, &greeting).unwrap();
    let mut packet = start_initiation(OWN_SESSION, &noise);
    CookieJar::default().append_macs(Instant(0), &MacKey::of(&other), &mut packet);
    (caller, packet)
}

pub struct Hostile {
    socket: UdpSocket,
    session: u32,
    sealer: Sealer,
    packet: u64,
    control: u64,
}

impl Hostile {
    /// Completes the handshake with the node `to` as its peer `name`, with the session epoch
    /// `epoch`.
    pub fn meet(name: &str, to: &str, port: u16, epoch: u64) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(("127.0.0.1", port)).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut buffer = [0; 2000];
        for drawn in epoch.. {
            let (mut caller, call) = call(name, to, drawn);
            socket.send(&call).unwrap();
            while let Ok(length) = socket.recv(&mut buffer) {
                let Ok(Packet::Response(answer)) = Packet::parse(&buffer[..length]) else {
                    continue;
                };
                let Ok((split, _)) = caller.finish(answer.noise) else { continue };
                let sealer = Sealer::new(&split).unwrap();
                let session = answer.session;
                let mut met = Self { socket, session, sealer, packet: 0, control: 0 };
                met.ping();
                return met;
            }
        }
        unreachable!("it calls until it is answered")
    }

    /// Sends frames in a packet of the session with the next number.
    pub fn send(&mut self, frames: &[u8]) {
        self.packet += 1;
        let (session, number) = (self.session, self.packet as u32);
        let header = SessionHeader { ack_soon: false, relayed: false, link: 0, session, number };
        let mut datagram = header.emit(1472);
        datagram.extend_from_slice(&0u32.to_le_bytes());
        datagram.extend_from_slice(frames);
        self.sealer.seal(0, self.packet, &mut datagram).unwrap();
        // A stopped daemon receives nothing.
        let _ = self.socket.send(&datagram);
    }

    pub fn ping(&mut self) {
        let mut frame = Vec::new();
        put_ping(&mut frame);
        self.send(&frame);
    }

    pub fn goodbye(&mut self) {
        let mut frame = Vec::new();
        put_goodbye(&mut frame);
        self.send(&frame);
    }

    fn control(&mut self, control: &Control) {
        self.control += 1;
        let number = self.control;
        let data = Data {
            channel: 0,
            number,
            source: 0,
            encoded: false,
            age: Duration::ZERO,
            fragment: None,
        };
        let mut frame = Vec::new();
        data.emit(&control.emit(), &mut frame);
        self.send(&frame);
    }

    /// Advertises a command, which moves a robot; includes the definition in case the daemon asks
    /// for it.
    pub fn offer_command(&mut self, channel: u64, name: &str) {
        let topic = OfferedTopic {
            name: name.into(),
            type_name: "geometry_msgs/Twist".into(),
            type_hash: TWIST_MD5.into(),
            priority: 100,
            keep_last: 10,
            lifespan: None,
            qos: OfferedQos::default(),
            role: Role::Topic,
        };
        self.control(&Control::Offer(Offer { channel, topic }));
        let text = "geometry_msgs/Vector3 linear\ngeometry_msgs/Vector3 angular\n\
                    ================================================================================\n\
                    MSG: geometry_msgs/Vector3\nfloat64 x\nfloat64 y\nfloat64 z\n";
        self.control(&Control::Definition { channel, text: text.into() });
    }
}
