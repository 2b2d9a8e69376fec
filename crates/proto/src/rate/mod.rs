// SPDX-License-Identifier: Apache-2.0
//! When the next packet may leave: policies that keep queues short which are not ours.
//!
//! Each radio has one for its own queue in the kernel ([`BackPressure`], or a [`Fixed`] gap on
//! top of it), and each link one for whatever is slow further away ([`Auto`], [`Rcom`],
//! or none). A packet leaves when both agree. All are pure: they are told what
//! happens and asked.

mod auto;
mod fixed;
mod local;
mod rcom;
#[cfg(test)]
mod tests;

pub use auto::Auto;
pub use fixed::Fixed;
pub use local::BackPressure;
pub(crate) use local::Window;
pub use rcom::Rcom;

use crate::config::{RadioConfig, Rate};
use crate::time::{Duration, Instant};

/// IP bytes of a full packet on most networks: the unit in which queues are thought of.
pub(crate) const FULL_PACKET: usize = 1500;

/// Whether a packet may leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Release {
    /// Now.
    Now,
    /// Not before this time.
    At(Instant),
    /// Not before something under way has left or arrived.
    Drained,
}

/// A packet that would like to leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ask {
    /// Its bytes, IP header included.
    pub bytes: usize,
    /// It is more urgent than some of what left of late.
    pub urgent: bool,
}

/// What an acknowledgement tells of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Report {
    /// When the newest packet arrived: by the peer's clock, in microseconds modulo 2^32.
    pub arrived: u32,
    /// IP bytes sent on the link up to that packet, that one included.
    pub sent_bytes: u64,
    /// Packets sent up to that one.
    pub sent_packets: u64,
    /// Packets newly known to have arrived.
    pub acked_packets: u64,
    /// Packets newly taken for lost.
    pub lost_packets: u64,
    /// How much longer than the fastest of late the packets since the report before took,
    /// on average; without the time that our own kernel held them.
    pub waited: Duration,
    /// The same of the fastest of them.
    pub least_waited: Duration,
    /// How long ago the newest packet left.
    pub ago: Duration,
    /// From when the newest packet left until this report, less the time that the peer held it back.
    pub rtt: Duration,
    /// IP bytes sent of which nothing is known yet.
    pub outstanding: usize,
}

/// A policy that lets packets go. "Under way" are, of a radio, the bytes in the kernel; of a
/// link, those of which nothing is known yet.
pub trait Controller: std::fmt::Debug + Send {
    /// Whether a packet may leave.
    fn release(&mut self, now: Instant, ask: Ask, under_way: usize) -> Release;
    /// A packet of `bytes` was let go, with so many bytes under way before it.
    fn on_sent(&mut self, now: Instant, bytes: usize, under_way: usize);
    /// The driver has sent `bytes` of those in the kernel.
    fn on_drained(&mut self, _now: Instant, _bytes: usize) {}
    /// A new session: packets are counted anew.
    fn on_new_session(&mut self) {}
    /// The peer tells what arrived.
    fn on_report(&mut self, _now: Instant, _report: &Report) {}
    /// Whether a report is wanted soon, with so many bytes under way.
    fn wants_report(&self, _under_way: usize) -> bool {
        false
    }
    /// The signal that governs, for people.
    fn signal(&self) -> &'static str;
    /// Bytes that may be under way at once.
    fn limit_bytes(&self) -> usize;
    /// The rate at which packets are let go now, in bits per second of IP packets, if it is one.
    fn rate_bps(&self) -> Option<u64> {
        None
    }
}

/// When the packet after this one may leave, which left at `now` and takes `gap`: a timer that
/// was late costs no rate, up to `catch_up`.
fn following(next: Instant, now: Instant, gap: Duration, catch_up: Duration) -> Instant {
    next.max(now.before(catch_up)) + gap
}

/// The policy of a radio.
pub(crate) fn of_radio(config: &RadioConfig) -> Box<dyn Controller> {
    let local = BackPressure::new(config.in_flight_bytes);
    match config.rate {
        Rate::Fixed(rate_bps) => Box::new(Fixed::new(rate_bps, local)),
        Rate::Auto | Rate::BackPressure | Rate::Aid | Rate::Aimd => Box::new(local),
    }
}

/// The policy of each link of a radio, beside the radio's own.
pub(crate) fn of_link(config: &RadioConfig) -> Option<Box<dyn Controller>> {
    match config.rate {
        Rate::Auto => Some(Box::new(Auto::new())),
        Rate::Aid => Some(Box::new(Rcom::aid())),
        Rate::Aimd => Some(Box::new(Rcom::aimd())),
        Rate::Fixed(_) | Rate::BackPressure => None,
    }
}
