// SPDX-License-Identifier: Apache-2.0
//! What a hostile peer sends: sealed packets, control messages until they are acknowledged, and
//! packets in packets.

use super::{
    CLOCK, FRAMES, HEADER, IDLE, PACKET_WINDOW, Peer, REPEAT_AFTER, Sent, TAG, Waiting, data,
    pieces,
};
use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};
use tautline_proto::OfferedTopic;
use tautline_proto::wire::control::{Control, Offer};
use tautline_proto::wire::frame::{Data, put_ping};
use tautline_proto::wire::packet::SessionHeader;
use tautline_proto::wire::relay::RelayHeader;

impl Peer {
    /// Puts any datagram on the wire. One for which the kernel has no room is dropped.
    pub fn put(&mut self, datagram: &[u8]) -> io::Result<()> {
        match self.socket.send(datagram) {
            Ok(_) => Ok(()),
            // A daemon that has ended or starts anew refuses.
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::ConnectionRefused) =>
            {
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// A datagram of the session with these frames, the next of a link of ours.
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
        keys.sealer.seal(link, number, &mut datagram);
        datagram
    }

    /// Sends a packet with these frames.
    pub fn send(&mut self, frames: &[u8]) -> io::Result<()> {
        let datagram = self.seal(0, false, frames);
        self.put(&datagram)
    }

    /// Has a control message wait for [`Self::send_control`].
    pub fn control(&mut self, control: &Control) {
        self.control += 1;
        self.queue(pieces(data(0, self.control, None), &control.emit(), Data::emit));
    }

    /// Has the frames of one message wait; they are sent until they are acknowledged.
    pub fn queue(&mut self, frames: Vec<Vec<u8>>) {
        let count = frames.len();
        let waiting = (1..).zip(frames).map(|(n, frame)| Waiting { frame, ends: n == count });
        self.waiting.extend(waiting);
    }

    /// An offer waits.
    pub fn offer(&mut self, channel: u64, topic: OfferedTopic) {
        self.control(&Control::Offer(Offer { channel, topic }));
    }

    /// Frames of control messages that wait.
    pub fn backlog(&self) -> usize {
        self.waiting.len()
    }

    /// Packets of them under way.
    pub fn under_way(&self) -> usize {
        self.sent.len()
    }

    /// Whether all control messages have arrived.
    pub fn is_settled(&self) -> bool {
        self.waiting.is_empty() && self.sent.is_empty()
    }

    /// The number that the next control message will have.
    pub fn next_control(&self) -> u64 {
        self.control + 1
    }

    /// Sends one packet of control messages: what is overdue again, else what waits. Where too
    /// much is under way the oldest is sent again. Without any it is a ping.
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

    /// Whether as much is under way as may be.
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

    /// Sends what waits and listens until `holds`, or the time is over; whether it held.
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

    /// Frames of a packet for the other node itself, which has another in it, and so on; and the
    /// number of the innermost packet, to go on from. Numbers grow inwards, and begin a little
    /// ahead of those of the datagrams that carry all: no window lets in what is far behind.
    pub fn nest(&mut self, levels: u64, priority: u8) -> (Vec<Vec<u8>>, u64) {
        let (packets, relays) = (self.packets[0] + 64 + levels / 30, self.relays);
        self.relays += levels;
        let header = RelayHeader { hops: 8, life: None, from: None, to: None };
        let mut inner = Vec::new();
        put_ping(&mut inner);
        for level in (2..=levels).rev() {
            let payload = header.before(&self.seal_as((0, packets + level), true, &inner));
            inner.clear();
            data(priority.into(), relays + level, None).emit_relay(&payload, &mut inner);
        }
        let payload = header.before(&self.seal_as((0, packets + 1), true, &inner));
        let outer = data(priority.into(), relays + 1, None);
        (pieces(outer, &payload, Data::emit_relay), packets + levels)
    }

    /// Goes on with the packet after that one.
    pub fn skip_to(&mut self, number: u64) {
        self.packets[0] = self.packets[0].max(number);
    }

    /// The number of another packet for others.
    pub fn next_relay(&mut self) -> u64 {
        self.relays += 1;
        self.relays
    }
}
