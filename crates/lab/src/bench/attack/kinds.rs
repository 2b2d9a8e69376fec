// SPDX-License-Identifier: Apache-2.0
//! Packets of a peer that has turned against a node. Each kind fills its packets so that they are
//! as expensive to process as possible.

use crate::rig::processes::word;
use clap::ValueEnum;
use serde::Serialize;
use std::collections::VecDeque;
use std::io;
use std::time::Duration;
use tautline_proto::wire::control::Control;
use tautline_proto::wire::frame::{
    ClockReport, Data, Fragment, put_challenge, put_goodbye, put_held, put_ping,
};
use tautline_proto::wire::parity::Parity;
use tautline_proto::wire::relay::{Held, RelayHeader, ShortName};
use tautline_proto::{OfferedTopic, PublicKey, Role};
use tautline_testkit::peer::{FRAMES, Peer, ack, data, fill, random_u64, topic};

/// Topic of the attacker to which a ROS node on the victim's robot subscribes.
pub const HEARD_TOPIC: &str = "/attacked/text";
/// Service of the victim's robot that peers may call.
pub const CALLED_SERVICE: &str = "/attacked/get_loggers";

/// Longest definition that the protocol carries.
const DEFINITION_BYTES: usize = 1 << 20;
/// Largest message that a node accepts by default.
const MESSAGE_BYTES: u32 = 8_000_000;
/// Size of messages of which 256 may be incomplete at the same time.
const SMALL_MESSAGE_BYTES: u32 = 60_000;
/// Largest size to which a compressed block of one repeated byte expands (RFC 8878, 3.1.1.2.4).
const BLOCK_BYTES: u32 = 128 << 10;
/// Number of channels that a node accepts from one peer.
const CHANNELS: u64 = 4096;
/// Levels of nested packets that fit into a datagram.
const SHALLOW: u64 = 34;
/// A number of levels of nested packets that exceeds the stack of a thread.
const DEEP: u64 = 5000;
/// Number of control messages sent without waiting for acknowledgements. The victim waits for
/// retransmissions only where messages are lost.
const WINDOW: usize = 20_000;
/// Number of frames of control messages that are kept ready.
const READY: usize = 400;
/// Number of times that an initiation of one session epoch is sent before the next epoch.
const INITIATIONS_PER_EPOCH: u64 = 20;
/// Longest wait for the victim's responses that a kind needs before it starts.
const PATIENCE: Duration = Duration::from_secs(5);

/// A kind of attack packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
#[value(rename_all = "kebab-case")]
pub enum Kind {
    /// Requests for an early acknowledgement.
    Pings,
    /// Challenges, each of which requires an echo.
    Challenges,
    /// Acknowledgements of 32 ranges: true ones, and others up to the largest numbers.
    Acks,
    /// Clock reports with extreme values.
    Clocks,
    /// Relay backlog reports for every pair of nodes, alternately the largest backlog and none.
    Held,
    /// Alternately a goodbye and another packet of the session.
    Goodbyes,
    /// Handshakes, each with a new session epoch.
    Lives,
    /// Repetitions of one packet.
    Replays,
    /// Random bytes, correctly sealed.
    Garbage,
    /// 34 packets nested in each other.
    Nested,
    /// 5000 packets nested in each other, once; then pings.
    Deep,
    /// Packets to be relayed to the other robot, some with that robot's name as their sender.
    Relays,
    /// First fragments, each of a new message.
    Fragments,
    /// First fragments of messages with numbers far ahead.
    Ahead,
    /// Random parity symbols, each of which completes a block.
    Parities,
    /// Messages on channels that do not exist.
    Unknown,
    /// Messages of five bytes on a topic with a subscriber.
    Messages,
    /// Messages of 8 MB, compressed to 300 bytes, on the same topic.
    Bombs,
    /// Alternate offers and withdrawals of a topic.
    Offers,
    /// Offers of 4096 topics with names of 1000 bytes, always under new names.
    Names,
    /// Definitions of 1 MiB, each of another type.
    Definitions,
    /// Requests for the definitions of the victim's topics.
    Asks,
    /// Alternate subscriptions to the victim's topics and cancellations.
    Wants,
    /// Refusals of the victim's topics, each with another reason of 1000 bytes.
    Refusals,
    /// Alternate offers and withdrawals of a service.
    Services,
    /// Calls of a service of the victim's robot.
    Calls,
}

impl Kind {
    /// Returns the name on the command line.
    pub fn name(self) -> String {
        word(self)
    }
}

/// Sends the packets of one kind.
pub struct Barrage {
    kind: Kind,
    /// Short names of the attacker's neighbours: the victim, and the victim's other peer.
    neighbours: [ShortName; 2],
    /// Counter for numbers and names that must be new.
    count: u64,
    /// Frames made before the start.
    frames: VecDeque<Vec<u8>>,
    datagram: Vec<u8>,
}

/// Returns a topic of the attacker whose message type rospy knows.
fn text_topic(name: &str) -> OfferedTopic {
    topic(name, "std_msgs/String", "992ce8a1687cec8c8bd883ec73ca41d1")
}

/// Definition of [`text_topic`]'s type.
const TEXT_DEFINITION: &str = "string data\n";

/// Returns a name of nearly 1000 bytes.
fn long_name(number: u64) -> String {
    format!("/attacked/{number:0>960}")
}

impl Barrage {
    /// Creates a barrage against the owner of the first key.
    pub fn new(kind: Kind, neighbours: [&PublicKey; 2]) -> Self {
        let neighbours = neighbours.map(PublicKey::short_name);
        Self { kind, neighbours, count: 0, frames: VecDeque::new(), datagram: Vec::new() }
    }

    /// Agrees on or makes everything that the kind needs; returns whether the victim agreed.
    pub fn prepare(&mut self, peer: &mut Peer) -> io::Result<bool> {
        peer.definition = Some(TEXT_DEFINITION.into());
        peer.window = WINDOW;
        match self.kind {
            Kind::Replays => {
                self.datagram = peer.seal(0, false, &fill(put_ping));
                Ok(true)
            }
            Kind::Deep => {
                self.frames = peer.nest(DEEP, u8::MAX).0.into();
                Ok(true)
            }
            Kind::Parities | Kind::Messages | Kind::Bombs => {
                peer.offer(1, text_topic(HEARD_TOPIC));
                peer.run_until(PATIENCE, |peer| peer.heard.wanted.get(&1) == Some(&true))
            }
            Kind::Asks | Kind::Wants | Kind::Refusals => {
                peer.run_until(PATIENCE, |peer| !peer.heard.offers.is_empty())
            }
            Kind::Calls => self.prepare_calls(peer),
            Kind::Definitions => {
                peer.definition = None;
                Ok(true)
            }
            _ => Ok(true),
        }
    }

    fn prepare_calls(&mut self, peer: &mut Peer) -> io::Result<bool> {
        let service = |peer: &Peer| {
            let mut offers = peer.heard.offers.iter();
            offers.find(|it| it.topic.name == CALLED_SERVICE).cloned()
        };
        if !peer.run_until(PATIENCE, |peer| service(peer).is_some())? {
            return Ok(false);
        }
        let Some(answers) = service(peer) else { return Ok(false) };
        peer.control(&Control::Want { channel: answers.channel, wanted: true });
        peer.offer(1, OfferedTopic { role: Role::Calls, ..answers.topic });
        peer.run_until(PATIENCE, |peer| peer.heard.wanted.get(&1) == Some(&true))
    }

    /// Sends one packet.
    pub fn send(&mut self, peer: &mut Peer) -> io::Result<()> {
        match self.kind {
            Kind::Replays => peer.put(&self.datagram),
            Kind::Lives => self.send_initiation(peer),
            Kind::Offers
            | Kind::Names
            | Kind::Definitions
            | Kind::Asks
            | Kind::Wants
            | Kind::Refusals
            | Kind::Services => {
                while peer.backlog() < READY && self.add_control(peer) {}
                peer.send_control()
            }
            Kind::Nested => {
                let (frames, innermost) = peer.nest(SHALLOW, u8::MAX);
                peer.send(&frames.concat())?;
                peer.skip_to(innermost);
                Ok(())
            }
            _ => {
                let frames = self.packet(peer);
                peer.send(&frames)
            }
        }
    }

    fn send_initiation(&mut self, peer: &mut Peer) -> io::Result<()> {
        if self.next_number().is_multiple_of(INITIATIONS_PER_EPOCH) || self.datagram.is_empty() {
            self.datagram = peer.call_on_new_connection();
        }
        peer.put(&self.datagram)
    }

    fn next_number(&mut self) -> u64 {
        self.count += 1;
        self.count
    }

    /// Returns the frames of one packet.
    fn packet(&mut self, peer: &mut Peer) -> Vec<u8> {
        match self.kind {
            Kind::Challenges => fill(|out| put_challenge(self.next_number(), out)),
            Kind::Acks => self.acks(peer),
            Kind::Clocks => fill(|out| self.clock().emit(out)),
            Kind::Held => fill(|out| put_held(&self.backlog_report(), out)),
            Kind::Goodbyes => fill(|out| match self.next_number() % 2 {
                0 => put_ping(out),
                _ => put_goodbye(out),
            }),
            Kind::Garbage => (0..FRAMES / 8).flat_map(|_| random_u64().to_le_bytes()).collect(),
            Kind::Deep => self.frames.pop_front().unwrap_or_else(|| fill(put_ping)),
            Kind::Relays => fill(|out| self.relay(peer, out)),
            Kind::Fragments => fill(|out| self.fragment(out)),
            Kind::Ahead => {
                let next = peer.next_control();
                fill(|out| self.ahead(next, out))
            }
            Kind::Parities => fill(|out| self.parity(out)),
            Kind::Unknown => fill(|out| data(random_u64() >> 1, 1, None).emit(b"x", out)),
            Kind::Messages => {
                fill(|out| data(1, self.next_number(), None).emit(b"\x01\0\0\0x", out))
            }
            Kind::Bombs => {
                let bomb = bomb();
                fill(|out| {
                    Data { encoded: true, ..data(1, self.next_number(), None) }.emit(&bomb, out)
                })
            }
            // The byte is the number of the call; the request is empty.
            Kind::Calls => fill(|out| {
                let number = self.next_number();
                data(1, number, None).emit(&[number as u8 & 0x7f], out);
            }),
            _ => fill(put_ping),
        }
    }

    fn acks(&mut self, peer: &Peer) -> Vec<u8> {
        let newest = peer.arrivals().first().map_or(1, |(_, last)| *last);
        fill(|out| {
            let last = if self.next_number().is_multiple_of(2) { newest } else { u64::MAX - 2 };
            let numbers = (0..32).filter_map(|n| last.checked_sub(2 * n));
            ack(0, numbers.map(|number| (number, number)).collect()).emit(out);
        })
    }

    fn clock(&mut self) -> ClockReport {
        let high = self.next_number().is_multiple_of(2);
        let (least, wall) = if high { (u32::MAX, i64::MAX) } else { (0, i64::MIN) };
        ClockReport { least: Some(least), wall: Some(wall) }
    }

    fn backlog_report(&mut self) -> Held {
        let number = self.next_number();
        let bytes = if number.is_multiple_of(2) { u64::MAX } else { 0 };
        let [victim, other] = self.neighbours;
        match number / 2 % 3 {
            0 => Held { to: other, bytes, from: None },
            1 => Held { to: victim, bytes, from: Some(other) },
            _ => Held { to: other, bytes, from: Some(victim) },
        }
    }

    fn relay(&mut self, peer: &mut Peer, out: &mut Vec<u8>) {
        let to = Some(self.neighbours[1]);
        let stranger = ShortName([random_u64() as u8, 0, 0]);
        let from = match self.next_number() % 3 {
            0 => None,
            1 => to,
            _ => Some(stranger),
        };
        let payload = RelayHeader { hops: 8, life: None, from, to }.with_header(&[0; 20]);
        data(u8::MAX.into(), peer.next_relay(), None).emit_relay(&payload, out);
    }

    /// Emits the first fragment of a message to relay, which needs no subscription.
    fn fragment(&mut self, out: &mut Vec<u8>) {
        let number = self.next_number();
        let total = if number.is_multiple_of(8) { MESSAGE_BYTES } else { SMALL_MESSAGE_BYTES };
        let place = Some(Fragment { total, offset: 0 });
        data(number % 256, number, place).emit_relay(b"x", out);
    }

    fn ahead(&mut self, next: u64, out: &mut Vec<u8>) {
        let number = next + 1 + self.next_number() % 1000;
        let offset = random_u64() as u32 % DEFINITION_BYTES as u32;
        let place = Some(Fragment { total: DEFINITION_BYTES as u32, offset });
        data(0, number, place).emit(b"x", out);
    }

    /// Emits the only symbol of a block, from which the victim determines the block's frame.
    fn parity(&mut self, out: &mut Vec<u8>) {
        let number = self.next_number();
        let symbol =
            Parity { block: number, sources: 1, index: 0 }.with_header(&random_u64().to_le_bytes());
        data(1, number, None).emit_parity(&symbol, out);
    }

    /// Queues control messages; returns whether there are any.
    fn add_control(&mut self, peer: &mut Peer) -> bool {
        let number = self.next_number();
        // Channel numbers are not reused.
        let channel = number + 1;
        match self.kind {
            Kind::Offers => {
                peer.offer(channel, text_topic(&format!("/attacked/topic_{}", number % 64)));
                peer.control(&Control::Withdraw { channel });
            }
            Kind::Services => {
                let name = format!("/attacked/service_{}", number % 64);
                let empty = topic(&name, "roscpp/Empty", "d41d8cd98f00b204e9800998ecf8427e");
                peer.offer(channel, OfferedTopic { role: Role::Answers, ..empty });
                peer.control(&Control::Withdraw { channel });
            }
            Kind::Names => peer.offer(1 + number % CHANNELS, text_topic(&long_name(number))),
            Kind::Definitions => {
                let channel = 1 + number % CHANNELS;
                let type_name = format!("attacked_msgs/T{number}");
                let hash = format!("{number:032x}");
                peer.offer(channel, topic(&format!("/attacked/d{number}"), &type_name, &hash));
                let text = "#".repeat(DEFINITION_BYTES);
                peer.control(&Control::Definition { channel, text });
            }
            kind => {
                let offers = &peer.heard.offers;
                let Some(index) = number.checked_rem(offers.len() as u64) else { return false };
                let channel = offers[index as usize].channel;
                for control in channel_controls(kind, channel, number) {
                    peer.control(&control);
                }
            }
        }
        true
    }
}

/// Returns control messages about a channel of the victim.
fn channel_controls(kind: Kind, channel: u64, number: u64) -> Vec<Control> {
    match kind {
        Kind::Wants => [true, false].map(|wanted| Control::Want { channel, wanted }).into(),
        Kind::Refusals => vec![Control::Refuse { channel, reason: long_name(number) }],
        _ => vec![Control::GetDefinition { channel }],
    }
}

/// Returns 8 MB of zeros, compressed (RFC 8878): a frame that states its size, and blocks of one
/// byte each.
fn bomb() -> Vec<u8> {
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0xa0];
    frame.extend_from_slice(&MESSAGE_BYTES.to_le_bytes());
    let mut left = MESSAGE_BYTES;
    while left > 0 {
        let len = left.min(BLOCK_BYTES);
        left -= len;
        let header = len << 3 | 1 << 1 | u32::from(left == 0);
        frame.extend_from_slice(&header.to_le_bytes()[..3]);
        frame.push(0);
    }
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_blocks_of_a_bomb_are_as_long_as_its_frame_says() {
        let frame = bomb();
        assert!(frame.len() < 300, "several fit a packet");
        let blocks = frame[9..].chunks(4).map(|it| u32::from_le_bytes([it[0], it[1], it[2], 0]));
        let blocks: Vec<u32> = blocks.collect();
        assert_eq!(blocks.iter().map(|header| header >> 3).sum::<u32>(), MESSAGE_BYTES);
        let (last, others) = blocks.split_last().unwrap();
        assert!(last & 1 == 1 && others.iter().all(|header| header & 1 == 0));
    }

    #[test]
    fn names_are_long_and_differ() {
        let (one, other) = (long_name(1), long_name(2));
        assert!(one != other && (900..=1024).contains(&one.len()));
    }
}
