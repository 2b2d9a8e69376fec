// SPDX-License-Identifier: Apache-2.0
//! Transmission by a hostile peer: sealed packets, control messages until they are acknowledged,
//! and nested packets.

use super::{
    CLOCK, FRAMES, HEADER, IDLE, PACKET_WINDOW, Peer, REPEAT_AFTER, Sent, TAG, Waiting, data,
    message_frames,
};
use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};
use tautline_proto::OfferedTopic;
use tautline_proto::wire::control::{Control, Offer};
use tautline_proto::wire::frame::{Data, put_ping};
use tautline_proto::wire::packet::SessionHeader;
use tautline_proto::wire::relay::RelayHeader;

impl Peer {
    /// Sends any datagram. The datagram is dropped if the kernel has no capacity for it.
    pub fn put(&mut self, datagram: &[u8]) -> io::Result<()> {
        match self.socket.send(datagram) {
            Ok(_) => Ok(()),
            // The port of a daemon that has ended or restarts is closed.
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::ConnectionRefused) =>
            {
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Returns a session datagram with these frames and the next packet number of a link.
    pub fn seal(&mut self, link: u8, relayed: bool, frames: &[u8]) -> Vec<u8> {
        let counter = &mut self.packets[usize::from(link & 0xf)];
        *counter += 1;
        let number = *counter;
        self.seal_as((link, number), relayed, frames)
    }

    fn seal_as(&self, (link, number): (u8, u64), relayed: bool, frames: &[u8]) -> Vec<u8> {
        let Some(keys) = &self.keys else { return Vec::new() };
        let header = SessionHeader {
            ack_soon: true,
            relayed,
            link,
            session: keys.session,
            number: number as u32,
        };
        let mut datagram = header.emit(HEADER + CLOCK + frames.len() + TAG);
        if !relayed {
            let clock = self.born.elapsed().as_micros() as u32;
            datagram.extend_from_slice(&clock.to_le_bytes());
        }
        datagram.extend_from_slice(frames);
        keys.sealer.seal(link, number, &mut datagram).expect("a whole header");
        datagram
    }

    /// Sends a packet with these frames.
    pub fn send(&mut self, frames: &[u8]) -> io::Result<()> {
        let datagram = self.seal(0, false, frames);
        self.put(&datagram)
    }

    /// Queues a control message for [`Self::send_control`].
    pub fn control(&mut self, control: &Control) {
        self.control += 1;
        self.queue(message_frames(data(0, self.control, None), &control.emit(), Data::emit));
    }

    /// Queues the frames of one message, which are retransmitted until acknowledged.
    pub fn queue(&mut self, frames: Vec<Vec<u8>>) {
        let count = frames.len();
        let waiting = (1..).zip(frames).map(|(n, frame)| Waiting { frame, ends: n == count });
        self.waiting.extend(waiting);
    }

    /// Queues an advertisement.
    pub fn offer(&mut self, channel: u64, topic: OfferedTopic) {
        self.control(&Control::Offer(Offer { channel, topic }));
    }

    /// Returns the number of queued frames of control messages.
    pub fn backlog(&self) -> usize {
        self.waiting.len()
    }

    /// Returns the number of packets of control messages in flight.
    pub fn in_flight_packets(&self) -> usize {
        self.sent.len()
    }

    /// Whether all control messages are acknowledged.
    pub fn is_settled(&self) -> bool {
        self.waiting.is_empty() && self.sent.is_empty()
    }

    /// Returns the number of the next control message.
    pub fn next_control(&self) -> u64 {
        self.control + 1
    }

    /// Sends one packet of control messages: an overdue packet again, otherwise queued frames. If
    /// the limit in flight is reached, sends the oldest packet again; if nothing is queued, sends a
    /// ping.
    pub fn send_control(&mut self) -> io::Result<()> {
        let overdue = self.sent.front().is_some_and(|it| it.at.elapsed() >= REPEAT_AFTER);
        let again = if overdue || self.is_full() { self.sent.pop_front() } else { None };
        let (frames, messages) = match again {
            Some(sent) => (sent.frames, sent.messages),
            None => self.next_control_frames(),
        };
        if frames.is_empty() {
            let mut ping = Vec::new();
            put_ping(&mut ping);
            return self.send(&ping);
        }
        self.send(&frames)?;
        let number = self.packets[0];
        self.sent.push_back(Sent { number, at: Instant::now(), messages, frames });
        Ok(())
    }

    /// Whether the limit of messages or packets in flight is reached.
    fn is_full(&self) -> bool {
        let messages: usize = self.sent.iter().map(|sent| sent.messages).sum();
        messages >= self.window || self.sent.len() >= PACKET_WINDOW
    }

    fn next_control_frames(&mut self) -> (Vec<u8>, usize) {
        let (mut frames, mut messages) = (Vec::with_capacity(FRAMES), 0);
        loop {
            let fits = |next: &&Waiting| frames.len() + next.frame.len() <= FRAMES;
            if self.waiting.front().filter(fits).is_none() {
                break;
            }
            let Some(next) = self.waiting.pop_front() else { break };
            frames.extend_from_slice(&next.frame);
            messages += usize::from(next.ends);
        }
        (frames, messages)
    }

    /// Sends queued frames and receives until `holds` returns true or the time limit ends; returns
    /// whether `holds` became true.
    pub fn run_until(
        &mut self,
        patience: Duration,
        mut holds: impl FnMut(&Self) -> bool,
    ) -> io::Result<bool> {
        let start = Instant::now();
        while !holds(self) {
            if start.elapsed() > patience {
                return Ok(false);
            }
            self.send_control()?;
            if self.listen()? == 0 && (self.waiting.is_empty() || self.is_full()) {
                std::thread::sleep(IDLE);
            }
        }
        Ok(true)
    }

    /// Returns the frames of nested packets, each relayed to the other node itself, and the number
    /// of the innermost packet. Numbers grow inwards, and start slightly ahead of the numbers of
    /// the outer datagrams, because a received-packet window rejects numbers that are far behind.
    pub fn nest(&mut self, levels: u64, priority: u8) -> (Vec<Vec<u8>>, u64) {
        let (packets, relays) = (self.packets[0] + 64 + levels / 30, self.relays);
        self.relays += levels;
        let header = RelayHeader { hops: 8, life: None, from: None, to: None };
        let mut inner = Vec::new();
        put_ping(&mut inner);
        for level in (2..=levels).rev() {
            let payload = header.with_header(&self.seal_as((0, packets + level), true, &inner));
            inner.clear();
            data(priority.into(), relays + level, None).emit_relay(&payload, &mut inner);
        }
        let payload = header.with_header(&self.seal_as((0, packets + 1), true, &inner));
        let outer = data(priority.into(), relays + 1, None);
        (message_frames(outer, &payload, Data::emit_relay), packets + levels)
    }

    /// Continues with the packet number after `number`.
    pub fn skip_to(&mut self, number: u64) {
        self.packets[0] = self.packets[0].max(number);
    }

    /// Returns the number of another packet to relay.
    pub fn next_relay(&mut self) -> u64 {
        self.relays += 1;
        self.relays
    }
}
