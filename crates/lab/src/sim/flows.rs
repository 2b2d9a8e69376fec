// SPDX-License-Identifier: Apache-2.0
//! Traffic of applications: messages on a schedule, or as fast as their socket accepts them.

use super::net::{Net, Piece, instant};
use super::plain_ros::PlainRos;
use crate::rig::staging::DATAGRAM_BYTES;
use crate::rig::stamp::{Incomplete, STAMP_BYTES, Stamp};
use crate::rig::stats::Arrival;
use crate::scenario::Pace;
use std::collections::HashMap;
use std::net::Ipv4Addr;
use tautline_medium::{Nanos, StationId};
use tautline_proto::{
    ChannelConfig, ChannelId, DeliveryOrder, Message, OfferedQos, OfferedTopic, PeerId, Received,
    Role,
};

/// Send buffer of a plain socket, as the kernel counts it (wmem_default).
const SOCKET_BYTES: u64 = 212_992;
/// Bytes that the kernel charges for a packet: its own records and buffer rounding included.
/// Measured through SIOCOUTQ: 2304 for a full packet, 768 for a small one.
const PACKET_CHARGE: [(u32, u64); 3] = [(220, 768), (700, 1280), (u32::MAX, 2304)];
/// Default `keep_last` of a topic (as in the robot's file).
pub const KEEP_LAST: u32 = 10;

/// The transport of a flow.
#[derive(Debug, Clone, PartialEq)]
pub enum Carriage {
    /// Datagrams of at most 1472 bytes, all of a message sent immediately.
    Udp {
        /// DSCP of the packets.
        dscp: u8,
    },
    /// A Tautline channel.
    Tautline(ChannelConfig),
    /// A TCP connection of plain ROS 1, by a model.
    PlainRos {
        /// The publisher's `queue_size`.
        queue: u32,
    },
}

/// The parameters of a flow.
#[derive(Debug, Clone, PartialEq)]
pub struct FlowPlan {
    /// Unique name.
    pub name: String,
    /// Publisher.
    pub from: StationId,
    /// Subscriber.
    pub to: StationId,
    /// Address of the subscriber, and of the publisher.
    pub addresses: [Ipv4Addr; 2],
    /// Bytes of each message.
    pub bytes: usize,
    /// Schedule of the messages; `None` for messages on demand.
    pub pace: Option<Pace>,
    /// Due time of the first message.
    pub start: Nanos,
    /// Time from which no message is published.
    pub end: Nanos,
    /// Number of messages; `None` for no limit before the end.
    pub count: Option<u64>,
    /// Whether the subscriber immediately returns each message; the delay is then the round trip.
    pub echo: bool,
    /// Transport.
    pub carriage: Carriage,
}

/// A running flow and its results.
pub struct Flow {
    /// Parameters.
    pub plan: FlowPlan,
    /// Time of publication of each message.
    pub sent: Vec<Nanos>,
    /// Arrivals in order, at the subscriber or (echo) back at the publisher.
    pub arrivals: Vec<Arrival>,
    /// Messages that were not accepted (no subscription yet, or a blocked writer).
    pub refused: u64,
    /// Channel to the subscriber, and the reverse channel.
    channels: [Option<(PeerId, ChannelId)>; 2],
    /// The connection of a flow of plain ROS.
    pub plain_ros: Option<PlainRos>,
    socket_bytes: u64,
    blocked: bool,
    /// The message that is only partly in the socket: its number and the next part.
    pending: Option<(u64, u32)>,
    /// Incomplete messages, by direction (whether they return) and number.
    incomplete: Incomplete<(bool, u64)>,
}

impl Flow {
    fn new(plan: FlowPlan) -> Self {
        let plain_ros = PlainRos::for_carriage(&plan.carriage);
        Self {
            plan,
            plain_ros,
            sent: Vec::new(),
            arrivals: Vec::new(),
            refused: 0,
            channels: [None, None],
            socket_bytes: 0,
            blocked: false,
            pending: None,
            incomplete: Incomplete::default(),
        }
    }

    /// Returns the due time of the next message; `None` if there is none, or the socket decides.
    pub fn next_due(&self) -> Option<Nanos> {
        let number = self.sent.len() as u64 + self.refused;
        let more = self.plan.count.is_none_or(|count| number < count);
        let after_start = match self.plan.pace {
            Some(Pace::Every(period)) => number * period,
            Some(Pace::Saturate) if number == 0 => 0,
            Some(Pace::Saturate) | None => return None,
        };
        Some(self.plan.start + after_start).filter(|at| more && *at < self.plan.end)
    }

    pub(super) fn on_arrival(&mut self, now: Nanos, sequence: u64, published: Nanos) {
        self.arrivals.push(Arrival { sequence, sent_ns: published, received_ns: now });
    }

    /// Returns the bytes of a part of a message.
    fn part_bytes(&self, part: u32) -> u32 {
        let from = part as usize * DATAGRAM_BYTES;
        (self.plan.bytes - from).min(DATAGRAM_BYTES) as u32
    }

    fn parts(&self) -> u32 {
        self.plan.bytes.div_ceil(DATAGRAM_BYTES).max(1) as u32
    }
}

fn charge(ip_bytes: u32) -> u64 {
    let fits = PACKET_CHARGE.iter().find(|(up_to, _)| ip_bytes <= *up_to);
    fits.map_or(u64::from(ip_bytes), |(_, charge)| *charge)
}

/// All flows of a run.
#[derive(Default)]
pub struct Flows {
    /// Flows in the scenario's order.
    pub all: Vec<Flow>,
    by_channel: HashMap<(StationId, PeerId, ChannelId), Direction>,
    by_topic: HashMap<(StationId, String), Direction>,
}

/// One direction of a flow.
#[derive(Debug, Clone, Copy)]
struct Direction {
    /// Number of the flow.
    flow: usize,
    /// Whether these are the messages that the subscriber returns.
    returning: bool,
}

/// Returns a topic with the default treatment.
pub fn topic(name: impl Into<String>, type_name: &str, type_hash: &str) -> OfferedTopic {
    OfferedTopic {
        name: name.into(),
        type_name: type_name.into(),
        type_hash: type_hash.into(),
        priority: 100,
        keep_last: KEEP_LAST,
        lifespan: None,
        qos: OfferedQos::default(),
        role: Role::Topic,
        order: DeliveryOrder::Arrival,
    }
}

/// Returns the channel of an echo. The numbers of links are the same at both ends.
fn echo_of(config: &ChannelConfig) -> ChannelConfig {
    let name = format!("{}/echo", config.topic.name);
    ChannelConfig { topic: OfferedTopic { name, ..config.topic.clone() }, ..config.clone() }
}

impl Flows {
    /// Adds a flow. For a flow over Tautline, `peers` are the peer numbers at publisher and
    /// subscriber.
    pub fn add(&mut self, net: &mut Net, plan: FlowPlan, peers: Option<[PeerId; 2]>) {
        let number = self.all.len();
        let mut flow = Flow::new(plan);
        if let (Carriage::Tautline(config), Some([there, back])) = (&flow.plan.carriage, peers) {
            let (from, to) = (flow.plan.from, flow.plan.to);
            flow.channels[0] = offer(net, from, there, config.clone());
            let direction = Direction { flow: number, returning: false };
            self.by_topic.insert((to, config.topic.name.clone()), direction);
            if flow.plan.echo {
                let config = echo_of(config);
                let direction = Direction { flow: number, returning: true };
                self.by_topic.insert((from, config.topic.name.clone()), direction);
                flow.channels[1] = offer(net, to, back, config);
            }
        }
        self.all.push(flow);
    }

    /// Handles an advertised topic: a host subscribes if the topic belongs to a flow.
    pub fn on_offered(
        &mut self,
        net: &mut Net,
        host: StationId,
        peer: PeerId,
        channel: ChannelId,
        topic: &OfferedTopic,
    ) {
        let Some(flow) = self.by_topic.get(&(host, topic.name.clone())) else { return };
        self.by_channel.insert((host, peer, channel), *flow);
        let now = instant(net.now());
        if let Some(endpoint) = net.endpoint(host) {
            endpoint.peer_mut(peer).want(now, channel, true);
        }
        net.drain(host);
    }

    /// Publishes a flow's next message; returns whether it was accepted.
    pub fn publish(&mut self, net: &mut Net, number: usize) -> bool {
        let flow = &mut self.all[number];
        let taken = match flow.plan.carriage {
            // The writer is blocked until the socket has accepted the last message.
            Carriage::Udp { .. } if flow.pending.is_some() => false,
            Carriage::Udp { .. } => {
                flow.pending = Some((flow.sent.len() as u64, 0));
                true
            }
            Carriage::PlainRos { .. } => {
                let (sequence, sent_ns) = (flow.sent.len() as u64, net.now());
                flow.write_plain_ros(Stamp { sequence, sent_ns });
                true
            }
            Carriage::Tautline(_) => {
                let payload = stamped_message(flow.sent.len() as u64, net.now(), flow.plan.bytes);
                send(net, flow.plan.from, flow.channels[0], payload)
            }
        };
        let flow = &mut self.all[number];
        if taken {
            flow.sent.push(net.now());
            self.fill_socket(net, number);
        } else {
            flow.refused += 1;
        }
        taken
    }

    /// Fills a flow's socket.
    pub fn fill_socket(&mut self, net: &mut Net, number: usize) {
        let Carriage::Udp { dscp } = self.all[number].plan.carriage else { return };
        loop {
            let flow = &mut self.all[number];
            let saturates = flow.plan.pace == Some(Pace::Saturate);
            let in_time = net.now() < flow.plan.end;
            let more = flow.plan.count.is_none_or(|count| (flow.sent.len() as u64) < count);
            let more = more && in_time;
            if flow.pending.is_none() && saturates && more {
                flow.pending = Some((flow.sent.len() as u64, 0));
                flow.sent.push(net.now());
            }
            let Some((sequence, part)) = flow.pending else { return };
            // A blocked writer resumes when half of the buffer is free (sock_def_write_space).
            let room = if flow.blocked { SOCKET_BYTES / 2 } else { SOCKET_BYTES };
            flow.blocked = flow.socket_bytes >= room;
            if flow.blocked {
                return;
            }
            let (parts, bytes) = (flow.parts(), flow.part_bytes(part));
            flow.pending = (part + 1 < parts).then_some((sequence, part + 1));
            flow.socket_bytes += charge(bytes + super::net::HEADER_BYTES as u32);
            let published = flow.sent[sequence as usize];
            let piece = Piece { flow: number, sequence, parts, published, returning: false };
            let (from, [there, _]) = (flow.plan.from, flow.plan.addresses);
            net.send_piece(from, there, bytes, dscp, piece);
        }
    }

    /// Handles a transmitted packet: the flow's socket has space again.
    pub fn on_transmitted(&mut self, net: &mut Net, number: usize, ip_bytes: u32) {
        self.on_dropped(number, ip_bytes);
        self.fill_socket(net, number);
    }

    /// Releases the buffer space of a packet that was dropped behind the socket. The writer resumes
    /// [later](Flows::fill_socket): a drop takes no virtual time, so immediate refills would never
    /// end.
    pub fn on_dropped(&mut self, number: usize, ip_bytes: u32) {
        let flow = &mut self.all[number];
        flow.socket_bytes = flow.socket_bytes.saturating_sub(charge(ip_bytes));
    }

    /// Handles a received part. Returns flow and number of the message that it completes.
    pub fn piece(&mut self, net: &mut Net, host: StationId, piece: Piece) -> Option<(usize, u64)> {
        let flow = &mut self.all[piece.flow];
        let key = (piece.returning, piece.sequence);
        if !flow.incomplete.completes(key, piece.parts) {
            return None;
        }
        if flow.plan.echo && !piece.returning {
            self.send_back(net, host, piece);
            return None;
        }
        flow.on_arrival(net.now(), piece.sequence, piece.published);
        Some((piece.flow, piece.sequence))
    }

    fn send_back(&self, net: &mut Net, host: StationId, piece: Piece) {
        let flow = &self.all[piece.flow];
        let Carriage::Udp { dscp } = flow.plan.carriage else { return };
        let [_, back] = flow.plan.addresses;
        for part in 0..flow.parts() {
            let answer = Piece { returning: true, ..piece };
            net.send_piece(host, back, flow.part_bytes(part), dscp, answer);
        }
    }

    /// Handles a message received over Tautline. Returns its flow and number.
    pub fn message(
        &mut self,
        net: &mut Net,
        host: StationId,
        (peer, channel): (PeerId, ChannelId),
        message: &Received,
    ) -> Option<(usize, u64)> {
        let &Direction { flow: number, returning } = self.by_channel.get(&(host, peer, channel))?;
        let flow = &mut self.all[number];
        let Stamp { sequence, sent_ns } = Stamp::read(&message.payload).unwrap_or_default();
        if flow.plan.echo && !returning {
            let channel = flow.channels[1];
            send(net, host, channel, message.payload.to_vec());
            return None;
        }
        flow.on_arrival(net.now(), sequence, sent_ns);
        Some((number, sequence))
    }

    /// Returns the channel of a flow's messages at its publisher.
    pub fn channel(&self, number: usize) -> Option<(PeerId, ChannelId)> {
        self.all[number].channels[0]
    }
}

fn offer(
    net: &mut Net,
    host: StationId,
    peer: PeerId,
    config: ChannelConfig,
) -> Option<(PeerId, ChannelId)> {
    let now = instant(net.now());
    let channel = net.endpoint(host)?.peer_mut(peer).offer(now, config).ok()?;
    net.drain(host);
    Some((peer, channel))
}

/// Sends on a channel; returns `false` if the message was not accepted.
pub fn send(
    net: &mut Net,
    host: StationId,
    channel: Option<(PeerId, ChannelId)>,
    payload: Vec<u8>,
) -> bool {
    let now = instant(net.now());
    let Some((peer, channel)) = channel else { return false };
    let message = Message {
        payload: payload.into(),
        published: now,
        source: 0,
        encoded: false,
        lifespan: None,
    };
    let taken = net
        .endpoint(host)
        .is_some_and(|endpoint| endpoint.peer_mut(peer).send(now, channel, message).is_ok());
    net.drain(host);
    taken
}

/// Returns a message of `bytes` (at least a stamp's) that starts with its number and time.
pub fn stamped_message(sequence: u64, published: Nanos, bytes: usize) -> Vec<u8> {
    let mut payload = vec![0; bytes.max(STAMP_BYTES)];
    Stamp { sequence, sent_ns: published }.write(&mut payload);
    payload
}
