// SPDX-License-Identifier: Apache-2.0
//! What the published controllers expect of their transport: pacing, and the packets in flight with the
//! state of the connection when each was sent. Reports do not contain this state.

use std::collections::VecDeque;
use tautline_proto::rate::{PendingPacket, Release, Report};
use tautline_proto::{Duration, Instant};

/// Bytes of a full packet, the segment size (MSS) of all rivals.
pub const MSS: f64 = 1500.0;
/// A timer that is late by no more than this time does not lower the rate (the send quantum of the BBR
/// draft).
const CATCH_UP: Duration = Duration::from_millis(1);
/// Maximum number of recorded packets: more than a link may have in flight.
const MAX_PACKETS: usize = 16_384;

/// A packet, and the state of the connection when it was sent.
#[derive(Debug, Clone, Copy)]
pub struct Sent {
    pub at: Instant,
    bytes: f64,
    /// Bytes acknowledged when it was sent.
    pub delivered: f64,
    /// Time of the last acknowledgement before it was sent.
    delivered_at: Instant,
    /// Time of sending of the newest packet that was acknowledged by then.
    first_sent_at: Instant,
    /// Bytes lost when it was sent.
    pub lost: f64,
    /// Bytes in flight, this packet included.
    pub in_flight: f64,
    /// Whether the application, and not the controller, determined when it was sent.
    pub app_limited: bool,
    /// The congestion window in bytes.
    pub window: f64,
}

/// What a report acknowledges.
#[derive(Debug, Clone, Copy)]
pub struct Acked {
    /// Bytes newly acknowledged.
    pub bytes: f64,
    /// Bytes newly lost.
    pub lost: f64,
    /// The newest packet acknowledged.
    pub newest: Sent,
    /// Bytes acknowledged since `newest` was sent.
    pub delivered: f64,
    /// Time in which these bytes were sent, or were acknowledged, whichever is longer.
    pub interval: Duration,
}

/// The packets in flight, and the pacing of further packets.
#[derive(Debug, Default)]
pub struct Flight {
    packets: VecDeque<Sent>,
    /// Bytes acknowledged since the start.
    pub delivered: f64,
    /// Bytes lost since the start.
    pub lost: f64,
    delivered_at: Instant,
    first_sent_at: Instant,
    /// The application limits the rate until this many bytes are delivered; 0 if it does not.
    app_limited_until: f64,
    /// Outstanding bytes after the last event.
    outstanding: usize,
    /// Average size of the packets in the last report.
    packet_bytes: f64,
    next: Instant,
    held_back: bool,
    /// Whether the window has held back a packet since this was last reset.
    pub window_limited: bool,
}

impl Flight {
    /// Decides when a packet may be sent, by a window in bytes and by the pacing rate.
    pub fn release(
        &mut self,
        now: Instant,
        packet: PendingPacket,
        in_flight: usize,
        window: f64,
    ) -> Release {
        if in_flight > 0 && (in_flight + packet.bytes) as f64 > window {
            (self.held_back, self.window_limited) = (true, true);
            return Release::Drained;
        }
        if now < self.next {
            self.held_back = true;
            return Release::At(self.next);
        }
        Release::Now
    }

    /// Records a packet and paces the next one at `rate` bytes per second. `in_flight` includes the
    /// packet if it will be acknowledged.
    pub fn on_sent(
        &mut self,
        now: Instant,
        bytes: usize,
        in_flight: usize,
        rate: f64,
        window: f64,
    ) {
        let gap = Duration::try_from_secs_f64(bytes as f64 / rate).unwrap_or(Duration::MAX);
        let is_late = now.since(self.next) > CATCH_UP;
        self.next = self.next.max(now.before(CATCH_UP)) + gap;
        // A packet without messages is not acknowledged.
        if std::mem::replace(&mut self.outstanding, in_flight) == in_flight {
            return;
        }
        if !std::mem::take(&mut self.held_back) && is_late && (in_flight as f64) < window {
            self.mark_app_limited(in_flight);
        }
        if in_flight <= bytes {
            (self.delivered_at, self.first_sent_at) = (now, now);
        }
        if self.packets.len() == MAX_PACKETS {
            self.packets.pop_front();
        }
        self.packets.push_back(Sent {
            at: now,
            bytes: bytes as f64,
            delivered: self.delivered,
            delivered_at: self.delivered_at,
            first_sent_at: self.first_sent_at,
            lost: self.lost,
            in_flight: in_flight as f64,
            app_limited: self.app_limited_until > 0.0,
            window,
        });
    }

    /// Marks packets as limited by the application until `in_flight` more bytes are delivered: their
    /// rates say nothing about the path.
    pub fn mark_app_limited(&mut self, in_flight: usize) {
        self.app_limited_until = self.delivered + in_flight as f64;
    }

    /// Handles a report; returns `None` if it acknowledges no recorded packet.
    pub fn on_report(&mut self, now: Instant, report: &Report) -> Option<Acked> {
        self.outstanding = report.outstanding_bytes;
        let sent_at = now.before(report.since_sent);
        let (mut newest, mut bytes, mut packets) = (None, 0.0, 0.0);
        while let Some(packet) = self.packets.front().filter(|packet| packet.at <= sent_at).copied()
        {
            self.packets.pop_front();
            bytes += packet.bytes;
            packets += 1.0;
            newest = Some(packet);
        }
        if packets > 0.0 {
            self.packet_bytes = bytes / packets;
        }
        let acked = report.acked_packets as f64 * self.packet_bytes;
        let lost = report.lost_packets as f64 * self.packet_bytes;
        self.delivered += acked;
        self.lost += lost;
        if self.delivered > self.app_limited_until {
            self.app_limited_until = 0.0;
        }
        self.delivered_at = now;
        let newest = newest?;
        let sent_for = newest.at.since(newest.first_sent_at);
        let interval = sent_for.max(now.since(newest.delivered_at));
        self.first_sent_at = newest.at;
        let delivered = self.delivered - newest.delivered;
        Some(Acked { bytes: acked, lost, newest, delivered, interval })
    }

    /// Returns the bytes in flight after the last report or packet.
    pub fn in_flight(&self) -> f64 {
        self.outstanding as f64
    }

    /// Whether the application determines when packets are sent.
    pub fn is_app_limited(&self) -> bool {
        self.app_limited_until > 0.0
    }
}

/// A windowed filter: the greatest, or the least, of recent values. Use a filter for only one of the
/// two.
#[derive(Debug, Default)]
pub struct WindowedExtreme {
    values: VecDeque<(f64, f64)>,
}

impl WindowedExtreme {
    /// Adds a value at a position, and forgets values before `from`. Returns the greatest value.
    pub fn greatest(&mut self, position: f64, value: f64, from: f64) -> f64 {
        while self.values.back().is_some_and(|(_, it)| *it <= value) {
            self.values.pop_back();
        }
        self.values.push_back((position, value));
        while self.values.len() > 1 && self.values[0].0 < from {
            self.values.pop_front();
        }
        self.values.front().map_or(value, |(_, it)| *it)
    }

    /// Like [`Self::greatest`], but returns the least value.
    pub fn least(&mut self, position: f64, value: f64, from: f64) -> f64 {
        -self.greatest(position, -value, from)
    }
}

/// Converts an instant to seconds, for filters.
pub fn seconds(at: Instant) -> f64 {
    at.0 as f64 / 1e9
}
