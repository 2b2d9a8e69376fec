// SPDX-License-Identifier: Apache-2.0
//! The interface of controllers: the questions that they answer and the events that they receive.

use crate::time::{Duration, Instant};

/// IP bytes of a full packet on most networks.
pub(crate) const FULL_PACKET: usize = 1500;

/// Decision on the next packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Release {
    /// Send it now.
    Now,
    /// Ask again at this time.
    At(Instant),
    /// Ask again after an in-flight packet was sent or acknowledged.
    Drained,
}

/// The packet at the head of the send order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PendingPacket {
    /// IP bytes.
    pub bytes: usize,
    /// The packet is more urgent than some of the packets sent recently.
    pub urgent: bool,
}

/// What an acknowledgement reports about a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Report {
    /// Arrival time of the newest packet by the peer's clock, in microseconds modulo 2^32.
    pub arrival_micros: u32,
    /// IP bytes sent on the link up to and including the newest packet.
    pub sent_bytes: u64,
    /// Packets sent up to and including the newest packet.
    pub sent_packets: u64,
    /// Packets newly acknowledged.
    pub acked_packets: u64,
    /// Packets newly declared lost.
    pub lost_packets: u64,
    /// Number of runs of consecutive packets among the lost packets.
    pub loss_runs: u64,
    /// Packets declared lost before that arrived after all.
    pub spurious_losses: u64,
    /// Packets that the path marked for congestion (ECN).
    pub marked_packets: u64,
    /// Average queueing delay of the packets since the previous report: the time on the path beyond
    /// that of the fastest recent packet, without the time in our own kernel.
    pub queueing_delay: Duration,
    /// The least queueing delay of these packets.
    pub min_queueing_delay: Duration,
    /// Time since our kernel sent the newest packet.
    pub since_sent: Duration,
    /// Round trip of the newest packet, without the peer's acknowledgement delay.
    pub rtt: Duration,
    /// IP bytes sent whose outcome is unknown.
    pub outstanding_bytes: usize,
}

/// A policy that releases packets. For a radio, `in_flight` is the bytes in the kernel; for a link, the
/// outstanding bytes.
pub trait Controller: std::fmt::Debug + Send {
    /// Decides whether `packet` may be sent. The decision changes the results of [`Self::rate_bps`] and
    /// [`Self::expected_start`] only if no bytes are in flight: forecasts depend on this.
    fn release(&mut self, now: Instant, packet: PendingPacket, in_flight: usize) -> Release;
    /// Records that a packet of `bytes` was released. For a radio, `in_flight` bytes are ahead of
    /// it. For a link, `in_flight` includes the packet if it will be acknowledged.
    fn on_sent(&mut self, now: Instant, bytes: usize, in_flight: usize);
    /// Records that the driver has sent `bytes` of the in-flight bytes.
    fn on_drained(&mut self, _now: Instant, _bytes: usize) {}
    /// Prepares for a new session: packet numbers begin again.
    fn on_new_session(&mut self) {}
    /// Handles an interruption of the link, or a change of its path: the time and the losses since the last
    /// report say nothing about the path.
    fn on_interruption(&mut self) {}
    /// Takes the report of an acknowledgement.
    fn on_report(&mut self, _now: Instant, _report: &Report) {}
    /// Whether to request an early report while `in_flight` bytes are in flight.
    fn wants_report(&self, _in_flight: usize) -> bool {
        false
    }
    /// The signal that governs the rate, for the operator.
    fn signal(&self) -> &'static str;
    /// Limit of in-flight bytes.
    fn limit_bytes(&self) -> usize;
    /// The pacing rate in bits per second of IP packets; `None` for a controller without one.
    fn rate_bps(&self) -> Option<u64> {
        None
    }
    /// Whether the packets since the last idle time form a burst that may continue without pauses, because
    /// the path forwards it without a queue.
    fn is_in_burst(&self) -> bool {
        false
    }
    /// Whether the controller fills the queue of the path to find its rate, so that losses say nothing
    /// about the path.
    fn fills_queue(&self) -> bool {
        false
    }
    /// Whether the rate of the path is measured and varies little, like that of a wired link.
    fn is_steady(&self) -> bool {
        false
    }
    /// Sets whether packets are cut smaller, so that urgent messages wait less.
    fn set_interleaving(&mut self, _is_on: bool) {}
    /// When the transmission of a packet behind `in_flight` bytes is expected to begin.
    fn expected_start(&self, now: Instant, _in_flight: usize) -> Instant {
        now
    }
    /// The rate at which the driver sends, in bits per second of IP packets, once measured.
    fn service_bps(&self, _now: Instant) -> Option<u64> {
        None
    }
}

/// The time at which the next packet may be sent, after a packet that is sent at `now` and needs
/// `gap` after it. A timer that is late by at most `catch_up` costs no rate.
pub(crate) fn next_send_time(
    next: Instant,
    now: Instant,
    gap: Duration,
    catch_up: Duration,
) -> Instant {
    next.max(now.before(catch_up)) + gap
}
