// SPDX-License-Identifier: Apache-2.0
//! Reception by a hostile peer: handshake responses, frames of the other node, acknowledgements.

use super::{
    ACK_EVERY, CLOCK, IDLE, Keys, MAX_HELD, MAX_RANGES, MAX_READ, Offered, Peer, Received,
    ReceivedPackets, ack,
};
use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};
use tautline_proto::crypto::cookies::MacKey;
use tautline_proto::crypto::seal::Sealer;
use tautline_proto::wire::control::{Control, Offer};
use tautline_proto::wire::cursor::Reader;
use tautline_proto::wire::frame::{Data, Frame, put_echo, put_ping};
use tautline_proto::wire::packet::{Packet, SessionHeader, full_number};

impl Peer {
    /// Receives for `time`, or until `enough` returns true.
    pub fn listen_for(
        &mut self,
        time: Duration,
        mut enough: impl FnMut(&Self) -> bool,
    ) -> io::Result<()> {
        let start = Instant::now();
        while !enough(self) && start.elapsed() < time {
            if self.listen()? == 0 {
                std::thread::sleep(IDLE);
            }
        }
        Ok(())
    }

    /// Processes and acknowledges received datagrams; returns their number.
    pub fn listen(&mut self) -> io::Result<usize> {
        let mut buffer = [0; 2048];
        let mut count = 0;
        while count < MAX_READ {
            match self.socket.recv(&mut buffer) {
                Ok(len) => self.take(&mut buffer[..len])?,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => break,
                Err(error) => return Err(error),
            }
            count += 1;
        }
        self.acknowledge()?;
        Ok(count)
    }

    fn take(&mut self, datagram: &mut [u8]) -> io::Result<()> {
        let copy = datagram.to_vec();
        match Packet::parse(&copy) {
            Ok(Packet::Response(answer)) => {
                let known = self.calls.iter().position(|it| it.session == answer.your_session);
                let Some(mut calling) = known.and_then(|at| self.calls.remove(at)) else {
                    return Ok(());
                };
                let Ok((split, _)) = calling.caller.finish(answer.noise) else { return Ok(()) };
                let (session, epoch) = (answer.session, calling.epoch);
                match Sealer::new(&split) {
                    Some(sealer) => self.start(Keys { session, sealer, epoch }),
                    None => Ok(()),
                }
            }
            Ok(Packet::CookieReply(cookie)) => {
                let now = self.clock();
                self.jar.accept(now, &MacKey::for_receiver(&self.own.other), &self.mac1, &cookie);
                Ok(())
            }
            Ok(Packet::Session(header, _)) => self.take_session(&header, datagram),
            _ => Ok(()),
        }
    }

    /// Uses the keys of a handshake; a first packet shows the other node that the response arrived.
    /// With a new epoch the session restarts; its packet numbers may continue.
    fn start(&mut self, keys: Keys) -> io::Result<()> {
        let epoch = keys.epoch;
        let before = self.keys.replace(keys).map(|keys| keys.epoch);
        if before.is_some_and(|before| before != epoch) {
            (self.control, self.relays) = (0, 0);
            self.waiting.clear();
            self.sent.clear();
            self.arrived.clear();
            self.heard = Received::default();
        }
        let mut ping = Vec::new();
        put_ping(&mut ping);
        self.send(&ping)
    }

    fn take_session(&mut self, header: &SessionHeader, datagram: &mut [u8]) -> io::Result<()> {
        let Some(keys) = &self.keys else { return Ok(()) };
        let arrived = self.arrived.entry(header.link).or_default();
        let expected = arrived.ranges.front().map_or(1, |(_, last)| last + 1);
        let number = full_number(header.number, expected);
        let Some(body) = keys.sealer.open(header.link, number, datagram) else { return Ok(()) };
        arrived.note(number);
        self.heard.packets += 1;
        let body = body[if header.relayed { 0 } else { CLOCK }..].to_vec();
        let mut reader = Reader::new(&body);
        while !reader.is_empty() {
            let Ok(frame) = Frame::parse(&mut reader) else { return Ok(()) };
            self.take_frame(&frame)?;
        }
        Ok(())
    }

    fn take_frame(&mut self, frame: &Frame<'_>) -> io::Result<()> {
        match frame {
            Frame::Challenge(token) => {
                let mut echo = Vec::new();
                put_echo(*token, &mut echo);
                self.send(&echo)?;
            }
            Frame::Ack(ack) if ack.link == 0 => {
                let within = |n: u64| ack.ranges.iter().any(|(a, b)| (*a..=*b).contains(&n));
                self.sent.retain(|sent| !within(sent.number));
            }
            Frame::Held(held) if self.heard.held.len() < MAX_HELD => self.heard.held.push(*held),
            Frame::Relay(..) => self.heard.relayed += 1,
            // Fragmented messages are definitions, which this peer does not request.
            Frame::Data(Data { channel: 0, fragment: None, .. }, bytes) => {
                if let Ok(control) = Control::parse(bytes) {
                    self.take_control(control);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn take_control(&mut self, control: Control) {
        match control {
            Control::Offer(Offer { channel, topic }) => {
                self.heard.offers.retain(|offered| offered.channel != channel);
                self.heard.offers.push(Offered { channel, topic });
            }
            Control::Withdraw { channel } => {
                self.heard.offers.retain(|offered| offered.channel != channel);
            }
            Control::Want { channel, wanted } => {
                self.heard.wanted.insert(channel, wanted);
            }
            Control::Refuse { reason, .. } => self.heard.refused.push(reason),
            Control::GetDefinition { channel } => {
                if let Some(text) = self.definition.clone() {
                    self.control(&Control::Definition { channel, text });
                }
            }
            Control::Definition { .. } | Control::Unknown(_) => {}
        }
    }

    /// Acknowledges the packets received on each link of the other node.
    fn acknowledge(&mut self) -> io::Result<()> {
        if self.acked_at.elapsed() < ACK_EVERY {
            return Ok(());
        }
        let mut frames = Vec::new();
        for (link, arrived) in self.arrived.iter_mut().filter(|(_, it)| !it.reported) {
            arrived.reported = true;
            ack(*link, arrived.ranges.iter().copied().collect()).emit(&mut frames);
        }
        if frames.is_empty() {
            return Ok(());
        }
        self.acked_at = Instant::now();
        self.send(&frames)
    }

    /// Returns the ranges of numbers received on the other node's first link, newest first.
    pub fn arrivals(&self) -> Vec<(u64, u64)> {
        let first = self.arrived.values().next();
        first.map_or(vec![], |arrived| arrived.ranges.iter().copied().collect())
    }
}

impl ReceivedPackets {
    fn note(&mut self, number: u64) {
        self.reported = false;
        match self.ranges.front_mut() {
            Some((_, last)) if number == *last + 1 => *last = number,
            Some((_, last)) if number <= *last => {}
            _ => self.ranges.push_front((number, number)),
        }
        self.ranges.truncate(MAX_RANGES);
    }
}
