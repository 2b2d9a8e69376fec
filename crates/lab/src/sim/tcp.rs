// SPDX-License-Identifier: Apache-2.0
//! TCP connections in virtual time, each with data in one direction, as ROS 1 has one for each topic
//! and subscriber.
//!
//! The model follows Linux with its defaults:
//! - slow start, congestion avoidance, fast retransmit and recovery (RFC 5681, RFC 6582), and the
//!   retransmission timeout (RFC 6298);
//! - an ACK at once for every second full segment, and for a shorter segment, because the reader has then
//!   emptied the receive buffer; otherwise after 40 ms;
//! - Nagle's algorithm in Minshall's variant: a short segment waits while an earlier short one is
//!   unacknowledged;
//! - small queues: few segments of a connection are in the radio's queue at a time, so that the others
//!   wait in its socket;
//! - in front of the socket, the queue of ROS.
//!
//! Not modelled: handshakes, receive windows, selective acknowledgements, tail-loss probes, pacing, and
//! the cubic growth of the window after a loss.

use std::collections::{BTreeMap, VecDeque};
use tautline_medium::Nanos;

/// Bytes of a full segment on a link of 1500 bytes, with timestamps.
const SEGMENT_BYTES: u64 = 1448;
/// IP and TCP headers, with timestamps.
const HEADER_BYTES: u32 = 52;
/// First window, segments (RFC 6928).
const FIRST_WINDOW: f64 = 10.0;
/// Share of the window that a loss leaves (CUBIC, RFC 9438).
const AFTER_LOSS: f64 = 0.7;
/// Smallest window after a loss, segments.
const LEAST_WINDOW: f64 = 2.0;
/// Number of duplicate ACKs that show a loss.
const DUPLICATES: u32 = 3;
/// Linux: TCP_RTO_MIN, which also is the first timeout here, since the handshake has measured a round
/// trip.
const LEAST_TIMEOUT: Nanos = 200_000_000;
/// Largest number of doublings of the timeout.
const MOST_DOUBLINGS: u32 = 9;
/// Linux: TCP_DELACK_MIN.
const DELAYED_ACK: Nanos = 40_000_000;
/// Maximum number of segments of a connection in the radio's queue: two buffers (TCP small queues) of
/// two segments (the least that Linux puts into a buffer).
const MOST_QUEUED: u32 = 4;

/// A TCP packet of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// Number of the connection.
    pub connection: usize,
    /// Data or acknowledgement.
    pub part: Part,
    /// Timestamp: the time of sending, which an ACK returns.
    pub stamp: Nanos,
}

/// The content of a [`Segment`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Bytes of the stream.
    Data {
        /// Offset of the first byte.
        from: u64,
        /// Number of bytes.
        bytes: u32,
    },
    /// The offset of the next byte that the receiver expects.
    Ack(u64),
}

impl Part {
    /// Returns the length of the IP packet.
    pub fn ip_bytes(self) -> u32 {
        match self {
            Self::Data { bytes, .. } => HEADER_BYTES + bytes,
            Self::Ack(_) => HEADER_BYTES,
        }
    }
}

/// Both ends of a connection that carries messages `M`, see the module.
#[derive(Debug)]
pub struct Connection<M> {
    has_nodelay: bool,
    /// Maximum number of messages in the queue of ROS.
    ros_queue: usize,
    /// Queue of ROS: messages that have not begun, with their bytes.
    waiting: VecDeque<(M, u32)>,
    /// Messages of the stream that have not been delivered, with their ends in it.
    begun: VecDeque<(u64, M)>,
    /// End of the stream so far.
    written: u64,
    /// Next byte to be sent.
    next: u64,
    /// First unacknowledged byte.
    acked: u64,
    /// End of the last short segment.
    short_end: u64,
    /// Own segments in the radio's queue.
    queued: u32,
    /// Congestion window, segments.
    window: f64,
    /// Slow-start threshold, segments.
    threshold: f64,
    duplicates: u32,
    /// Recovery ends when this byte is acknowledged.
    recovery_end: Option<u64>,
    must_repeat: bool,
    /// Smoothed round trip and its variation.
    round_trip: Option<[Nanos; 2]>,
    doublings: u32,
    repeat_at: Option<Nanos>,
    receiver: Receiver,
    /// Messages that the queue of ROS has dropped.
    pub dropped: u64,
    /// Segments that were sent again.
    pub repeated: u64,
}

#[derive(Debug, Default)]
struct Receiver {
    /// Next expected byte.
    next: u64,
    /// Ranges of bytes received beyond `next`: start and end.
    early: BTreeMap<u64, u64>,
    acked: u64,
    stamp: Nanos,
    ack_at: Option<Nanos>,
}

impl Receiver {
    /// Adds data; returns whether an ACK is due at once.
    fn add(&mut self, now: Nanos, [from, end]: [u64; 2], stamp: Nanos) -> bool {
        let is_in_order = from <= self.next && end > self.next;
        if is_in_order {
            (self.next, self.stamp) = (end, stamp);
        } else if from > self.next {
            let known = self.early.entry(from).or_default();
            *known = end.max(*known);
        }
        let had_gap = !self.early.is_empty();
        while let Some((from, end)) = self.early.pop_first() {
            if from > self.next {
                self.early.insert(from, end);
                break;
            }
            self.next = self.next.max(end);
        }
        let is_short = end - from < SEGMENT_BYTES;
        if !is_in_order || had_gap || is_short || self.next - self.acked > SEGMENT_BYTES {
            return true;
        }
        self.ack_at.get_or_insert(now + DELAYED_ACK);
        false
    }

    fn ack(&mut self) -> (Part, Nanos) {
        (self.acked, self.ack_at) = (self.next, None);
        (Part::Ack(self.next), self.stamp)
    }
}

impl<M: Copy> Connection<M> {
    /// Creates an idle connection with that many messages in the queue of ROS (`queue_size`).
    pub fn with_queue(has_nodelay: bool, ros_queue: usize) -> Self {
        Self {
            has_nodelay,
            ros_queue,
            waiting: VecDeque::new(),
            begun: VecDeque::new(),
            written: 0,
            next: 0,
            acked: 0,
            short_end: 0,
            queued: 0,
            window: FIRST_WINDOW,
            threshold: f64::MAX,
            duplicates: 0,
            recovery_end: None,
            must_repeat: false,
            round_trip: None,
            doublings: 0,
            repeat_at: None,
            receiver: Receiver::default(),
            dropped: 0,
            repeated: 0,
        }
    }

    /// Publishes a message. If the queue of ROS is full, its oldest message is dropped.
    pub fn write(&mut self, message: M, bytes: u32) {
        self.waiting.push_back((message, bytes));
        self.fill();
        if self.waiting.len() > self.ros_queue {
            self.waiting.pop_front();
            self.dropped += 1;
        }
    }

    /// Returns the messages that have not been sent completely.
    #[cfg(test)]
    fn unsent_messages(&self) -> usize {
        self.waiting.len() + self.begun.iter().filter(|(end, _)| *end > self.next).count()
    }

    /// Moves messages into the socket, whose buffer Linux makes twice as large as the window.
    fn fill(&mut self) {
        let buffer = 2 * SEGMENT_BYTES * self.window.max(FIRST_WINDOW) as u64;
        while self.written - self.acked < buffer
            && let Some((message, bytes)) = self.waiting.pop_front()
        {
            self.written += u64::from(bytes);
            self.begun.push_back((self.written, message));
        }
    }

    /// Returns the next data to be sent now; its segment then is in the radio's queue.
    pub fn poll_data(&mut self, now: Nanos) -> Option<Part> {
        let from = if std::mem::take(&mut self.must_repeat) { self.acked } else { self.next };
        let bytes = SEGMENT_BYTES.min(self.written - from);
        let is_new = from == self.next;
        if bytes == 0 || (is_new && !self.may_send(bytes)) {
            return None;
        }
        if is_new {
            self.next += bytes;
        } else {
            self.repeated += 1;
        }
        if bytes < SEGMENT_BYTES {
            self.short_end = from + bytes;
        }
        self.queued += 1;
        let timeout = self.timeout();
        self.repeat_at.get_or_insert(now + timeout);
        Some(Part::Data { from, bytes: bytes as u32 })
    }

    fn may_send(&self, bytes: u64) -> bool {
        let inflated = if self.recovery_end.is_some() { f64::from(self.duplicates) } else { 0.0 };
        let window = ((self.window + inflated) * SEGMENT_BYTES as f64) as u64;
        let is_held = bytes < SEGMENT_BYTES && !self.has_nodelay && self.short_end > self.acked;
        self.queued < MOST_QUEUED && self.next + bytes <= self.acked + window && !is_held
    }

    /// Handles a segment that has left the radio's queue, sent or not.
    pub fn handle_left(&mut self) {
        self.queued = self.queued.saturating_sub(1);
    }

    /// Handles data at the receiver: adds the messages that it completes to `delivered`. Returns an ACK
    /// and its timestamp if one is due at once.
    pub fn handle_data(
        &mut self,
        now: Nanos,
        (from, bytes): (u64, u32),
        stamp: Nanos,
        delivered: &mut Vec<M>,
    ) -> Option<(Part, Nanos)> {
        let is_due = self.receiver.add(now, [from, from + u64::from(bytes)], stamp);
        let complete = self.begun.partition_point(|(end, _)| *end <= self.receiver.next);
        delivered.extend(self.begun.drain(..complete).map(|(_, message)| message));
        is_due.then(|| self.receiver.ack())
    }

    /// Handles an ACK at the sender.
    pub fn handle_ack(&mut self, now: Nanos, next: u64, stamp: Nanos) {
        if next > self.acked {
            self.advance(now, next, stamp);
        } else if next == self.acked && self.next > self.acked {
            self.duplicates += 1;
            if self.duplicates == DUPLICATES && self.recovery_end.is_none() {
                self.reduce();
                self.window = self.threshold;
                self.recovery_end = Some(self.next);
                self.must_repeat = true;
            }
        }
        self.fill();
    }

    fn advance(&mut self, now: Nanos, next: u64, stamp: Nanos) {
        let in_flight = (self.next - self.acked) as f64 / SEGMENT_BYTES as f64;
        let segments = (next - self.acked) as f64 / SEGMENT_BYTES as f64;
        self.acked = next;
        self.next = self.next.max(next);
        (self.duplicates, self.doublings) = (0, 0);
        self.measure(now.saturating_sub(stamp));
        match self.recovery_end {
            Some(end) if next < end => self.must_repeat = true,
            Some(_) => self.recovery_end = None,
            // A window that is not used does not grow.
            None if self.window < self.threshold && in_flight >= self.window / 2.0 => {
                self.window += segments;
            }
            None if in_flight + 1.0 >= self.window => self.window += segments / self.window,
            None => {}
        }
        let is_idle = self.next == self.acked;
        self.repeat_at = (!is_idle).then(|| now + self.timeout());
    }

    fn reduce(&mut self) {
        self.threshold = (self.window * AFTER_LOSS).max(LEAST_WINDOW);
    }

    fn measure(&mut self, sample: Nanos) {
        let [mean, variation] = self.round_trip.unwrap_or([sample, sample / 2]);
        let variation = (3 * variation + mean.abs_diff(sample)) / 4;
        self.round_trip = Some([(7 * mean + sample) / 8, variation]);
    }

    fn timeout(&self) -> Nanos {
        let [mean, variation] = self.round_trip.unwrap_or_default();
        (mean + LEAST_TIMEOUT.max(4 * variation)) << self.doublings
    }

    /// Returns the time at which [`Self::handle_timeout`] is due.
    pub fn poll_timeout(&self) -> Option<Nanos> {
        self.repeat_at.into_iter().chain(self.receiver.ack_at).min()
    }

    /// Handles due timers. Returns a delayed ACK and its timestamp.
    pub fn handle_timeout(&mut self, now: Nanos) -> Option<(Part, Nanos)> {
        if self.repeat_at.is_some_and(|at| at <= now) {
            self.reduce();
            self.window = 1.0;
            self.doublings = (self.doublings + 1).min(MOST_DOUBLINGS);
            // Everything is sent again from the first unacknowledged byte on.
            self.repeated += (self.next - self.acked).div_ceil(SEGMENT_BYTES);
            self.next = self.acked;
            self.short_end = self.acked;
            (self.recovery_end, self.duplicates, self.repeat_at) = (None, 0, None);
        }
        self.receiver.ack_at.is_some_and(|at| at <= now).then(|| self.receiver.ack())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Nanos = 1_000_000;

    /// Sends what is due over a path of 1 ms in each direction that loses data as `loses` decides by
    /// the number of the segment; returns the messages with the times of delivery.
    fn carry(
        connection: &mut Connection<u32>,
        end: Nanos,
        mut loses: impl FnMut(u64) -> bool,
    ) -> Vec<(u32, Nanos)> {
        let mut path: BTreeMap<(Nanos, u64), (Part, Nanos)> = BTreeMap::new();
        let (mut count, mut found) = (0, Vec::new());
        let mut now = 0;
        loop {
            while let Some(part) = connection.poll_data(now) {
                connection.handle_left();
                count += 1;
                if !loses(count) {
                    path.insert((now + MS, count), (part, now));
                }
            }
            let arrival = path.first_key_value().map(|((at, _), _)| *at);
            let Some(at) = arrival.into_iter().chain(connection.poll_timeout()).min() else {
                return found;
            };
            if at > end {
                return found;
            }
            now = at;
            let ack = match path.pop_first() {
                Some(((at, _), (Part::Data { from, bytes }, stamp))) if at == now => {
                    let mut delivered = Vec::new();
                    let ack = connection.handle_data(now, (from, bytes), stamp, &mut delivered);
                    found.extend(delivered.into_iter().map(|message| (message, now)));
                    ack
                }
                Some(((at, _), (Part::Ack(next), stamp))) if at == now => {
                    connection.handle_ack(now, next, stamp);
                    None
                }
                other => {
                    path.extend(other);
                    connection.handle_timeout(now)
                }
            };
            if let Some(ack) = ack {
                count += 1;
                path.insert((now + MS, count), ack);
            }
        }
    }

    #[test]
    fn messages_arrive_once_and_in_order_despite_losses() {
        for seed in 0..20 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut connection = Connection::with_queue(seed % 2 == 0, 1000);
            for message in 0..200 {
                connection.write(message, 1 + message * 37 % 6000);
            }
            let found = carry(&mut connection, 600_000 * MS, |_| random.f64() < 0.1);
            let messages: Vec<u32> = found.iter().map(|(message, _)| *message).collect();
            assert_eq!(messages, (0..200).collect::<Vec<_>>(), "seed {seed}");
            assert_eq!((connection.unsent_messages(), connection.dropped), (0, 0));
        }
    }

    #[test]
    fn a_full_queue_of_ros_drops_its_oldest_message() {
        let mut connection = Connection::with_queue(true, 1000);
        for message in 0..3000 {
            connection.write(message, 10_000);
        }
        assert!(connection.dropped > 1900, "{}", connection.dropped);
        let found = carry(&mut connection, 600_000 * MS, |_| false);
        assert_eq!(found.last().map(|(message, _)| *message), Some(2999));
        assert_eq!(found.len() as u64 + connection.dropped, 3000);
    }

    #[test]
    fn a_second_short_segment_waits_for_the_acknowledgement_of_the_first() {
        let times = |has_nodelay| {
            let mut connection = Connection::with_queue(has_nodelay, 1000);
            connection.write(1, 100);
            assert!(connection.poll_data(0).is_some());
            connection.handle_left();
            connection.write(2, 100);
            connection.poll_data(0).is_some()
        };
        assert!(!times(false) && times(true));
    }

    #[test]
    fn one_lost_segment_of_many_is_repeated_before_the_timeout_and_a_lost_last_one_after_it() {
        let time = |lost: u64| {
            let mut connection = Connection::with_queue(false, 1000);
            connection.write(1, 40 * SEGMENT_BYTES as u32);
            let found = carry(&mut connection, 5_000 * MS, |number| number == lost);
            found[0].1
        };
        let (clean, early) = (time(0), time(2));
        assert!(clean < 30 * MS && early < clean + 20 * MS, "{clean} {early}");
        let mut connection = Connection::with_queue(false, 1000);
        connection.write(1, 100);
        let found = carry(&mut connection, 5_000 * MS, |number| number == 1);
        assert_eq!(found, [(1, LEAST_TIMEOUT + MS)]);
    }

    #[test]
    fn a_single_full_segment_is_acknowledged_late_and_a_short_one_at_once() {
        let ack = |bytes| {
            let mut connection = Connection::<u32>::with_queue(false, 1000);
            connection.handle_data(0, (0, bytes), 0, &mut Vec::new())
        };
        assert_eq!(ack(SEGMENT_BYTES as u32), None);
        assert_eq!(ack(100), Some((Part::Ack(100), 0)));
    }
}
