// SPDX-License-Identifier: Apache-2.0
//! A node, and a hand-made peer that completes the handshake and then sends arbitrary packets.
//! Shared with the fuzz targets.

pub mod liar;
pub mod team;

use std::net::SocketAddr;
use tautline_proto::crypto::cookies::{CookieJar, MacKey};
use tautline_proto::crypto::noise::Initiator;
use tautline_proto::crypto::seal::Sealer;
use tautline_proto::wire::control::Control;
use tautline_proto::wire::frame::{Data, Fragment};
use tautline_proto::wire::packet::{Greeting, Packet, SessionHeader, start_initiation};
use tautline_proto::{
    ChannelConfig, ChannelId, Config, Duration, Endpoint, Event, Instant, LinkConfig, OfferedTopic,
    PeerId, RadioConfig, RadioId, SecretKey,
};

pub const PEER: PeerId = PeerId(0);
const NAME: &str = "robot";
const SESSION: u32 = 7;

pub struct Attacked {
    pub endpoint: Endpoint,
    pub now: Instant,
    pub from: SocketAddr,
    /// The node's session number.
    pub session: u32,
    /// The keys for packets to the node.
    sealer: Option<Sealer>,
    /// Number of the last packet to the node.
    pub packet: u64,
    /// Number of the last control message to the node.
    pub control: u64,
    pub events: Vec<Event>,
}

pub fn topic(name: &str) -> OfferedTopic {
    OfferedTopic {
        name: name.into(),
        type_name: "std_msgs/String".into(),
        type_hash: "992ce8a1687cec8c8bd883ec73ca41d1".into(),
        priority: 100,
        keep_last: 10,
        lifespan: None,
        qos: tautline_proto::OfferedQos::default(),
        role: tautline_proto::Role::Topic,
        order: tautline_proto::DeliveryOrder::Arrival,
    }
}

pub fn data(channel: u64, number: u64, fragment: Option<Fragment>) -> Data {
    Data { channel, number, source: 0, encoded: false, age: Duration::ZERO, fragment, place: None }
}

impl Attacked {
    /// Creates a node with a session; it offers the peer a channel and subscribes to channel 1.
    pub fn new(config: Config) -> Self {
        let mut seed = 0;
        let random = move || {
            seed += 1;
            seed << 8
        };
        let mut endpoint = Endpoint::new(config, Box::new(random)).expect("a valid name");
        let radio = endpoint.add_radio(RadioConfig::default());
        let peer =
            endpoint.add_peer(NAME, SecretKey::insecure(NAME).public()).expect("a free name");
        let from = SocketAddr::from(([10, 0, 0, 1], 18470));
        let link = LinkConfig {
            remote: Some(from),
            datagram_bytes: 1472,
            header_bytes: 28,
            metered: false,
        };
        let now = Instant(1_000_000_000);
        endpoint.peer_mut(peer).add_link(now, radio, link).expect("a valid link");
        let definition = "d".repeat(20_000).into();
        let config = ChannelConfig {
            topic: topic("/out"),
            definition,
            repair: true,
            thin: false,
            fec: None,
            links: tautline_proto::LinkUse::default(),
        };
        endpoint.peer_mut(peer).offer(now, config).expect("a valid offer");
        let (session, sealer, events) = (0, None, Vec::new());
        let mut new = Self { endpoint, now, from, session, sealer, packet: 0, control: 0, events };
        new.meet();
        new.offer(1, topic("/in"));
        new.control(&Control::Definition { channel: 1, text: "string data".into() });
        new.endpoint.peer_mut(PEER).want(now, ChannelId(1), true);
        new.drain();
        new
    }

    /// Returns an initiation of the peer with session epoch `epoch`.
    pub fn call(&self, epoch: u64, drawn: u8) -> (Initiator, Vec<u8>) {
        let node = SecretKey::insecure(self.endpoint.name()).public();
        let payload = Greeting { epoch, name: NAME }.emit();
        let secret = SecretKey::insecure(NAME);
        let (caller, noise) =
            Initiator::initiate(&secret, &node, [drawn; 32], &payload).expect("good keys");
        let mut call = start_initiation(SESSION, &noise);
        CookieJar::default().append_macs(self.now, &MacKey::for_receiver(&node), &mut call);
        (caller, call)
    }

    fn meet(&mut self) {
        let (mut caller, call) = self.call(1, 1);
        self.endpoint.handle_packet(self.now, RadioId(0), self.from, &call);
        while let Some(transmit) = self.endpoint.poll_transmit(self.now) {
            if let Ok(Packet::Response(answer)) = Packet::parse(&transmit.datagram) {
                let (split, _) = caller.finish(answer.noise).expect("an answer that holds");
                (self.session, self.sealer) = (answer.session, Sealer::new(&split));
            }
        }
        self.packet(&[]);
        assert!(self.endpoint.peer(PEER).up, "the node has met its peer");
    }

    /// Delivers a datagram from the peer's address.
    pub fn inject(&mut self, datagram: &[u8]) {
        self.now = self.now + Duration::from_micros(100);
        self.endpoint.handle_packet(self.now, RadioId(0), self.from, datagram);
        self.endpoint.handle_timeout(self.now);
        self.drain();
    }

    /// Discards the node's packets; records messages and notices.
    fn drain(&mut self) {
        while let Some(transmit) = self.endpoint.poll_transmit(self.now) {
            if let Some(link) = transmit.link {
                self.endpoint.link_mut(link).handle_in_flight(self.now, transmit.class, 0);
            }
        }
        while let Some(event) = self.endpoint.poll_event() {
            if matches!(event, Event::Message { .. }) {
                self.events.push(event);
            }
        }
    }

    /// Delivers frames in a session packet with the next number.
    pub fn packet(&mut self, frames: &[u8]) {
        self.packet += 1;
        let (session, number) = (self.session, self.packet as u32);
        let header = SessionHeader { ack_soon: false, relayed: false, link: 0, session, number };
        let mut datagram = header.emit(1472);
        datagram.extend_from_slice(&((self.now.0 / 1000) as u32).to_le_bytes());
        datagram.extend_from_slice(frames);
        let sealer = self.sealer.as_ref().expect("it has met");
        sealer.seal(0, self.packet, &mut datagram).expect("a whole header");
        self.inject(&datagram);
    }

    /// Delivers bytes as a datagram, as frames of a packet, or as a control message, depending on
    /// the first byte.
    pub fn raw_or_framed(&mut self, bytes: &[u8]) {
        let Some((kind, rest)) = bytes.split_first() else { return };
        match kind % 3 {
            0 => self.inject(rest),
            1 => self.packet(rest),
            _ => {
                self.control += 1;
                self.data(&data(0, self.control, None), rest);
            }
        }
    }

    pub fn data(&mut self, data: &Data, payload: &[u8]) {
        let mut frame = Vec::new();
        data.emit(payload, &mut frame);
        self.packet(&frame);
    }

    pub fn control(&mut self, control: &Control) {
        self.control += 1;
        self.data(&data(0, self.control, None), &control.emit());
    }

    pub fn offer(&mut self, channel: u64, topic: OfferedTopic) {
        let offer = tautline_proto::wire::control::Offer { channel, topic };
        self.control(&Control::Offer(offer));
    }
}
