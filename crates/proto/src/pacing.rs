// SPDX-License-Identifier: Apache-2.0
//! When a radio lets the next packet go.
//!
//! A packet in the kernel's queue can no longer be overtaken, so as few as
//! possible are let in: just enough that the radio never falls idle.

use crate::config::RadioConfig;
use crate::time::{Instant, airtime};

/// Whether a packet may leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Release {
    /// Now.
    Now,
    /// Not before this time.
    At(Instant),
    /// Not before something in flight has left.
    Drained,
}

/// A policy that lets packets go, one for each radio. Pure: it is told what happens and asked.
pub trait Pacer: std::fmt::Debug + Send {
    /// Whether a packet of `bytes` may leave while `in_flight` bytes are in the kernel.
    fn release(&self, now: Instant, bytes: usize, in_flight: usize) -> Release;
    /// A packet of `bytes` left.
    fn on_sent(&mut self, now: Instant, bytes: usize);
    /// The signal that governs, for people.
    fn signal(&self) -> &'static str;
    /// Bytes that may be in the kernel at once.
    fn limit_bytes(&self) -> usize;
}

/// Local back-pressure: a socket stays charged for a packet until the driver
/// has sent it, so what is in flight shows when the radio falls idle.
#[derive(Debug)]
pub struct BackPressure {
    limit_bytes: usize,
}

/// A configured rate (Pound's gap between packets), with local back-pressure
/// still holding where the rate is set higher than the radio's.
#[derive(Debug)]
pub struct FixedRate {
    rate_bps: u64,
    next: Instant,
    local: BackPressure,
}

/// Bytes of the lower layer's header (Ethernet, 802.11 after conversion) that a configured rate counts.
const FRAME_HEADER: usize = 14;
/// Bytes the next packet may be early for, so that a late timer does not cost rate: one full packet.
const CATCH_UP_BYTES: usize = 1514;

/// The policy that `config` asks for.
pub fn pacer(config: &RadioConfig) -> Box<dyn Pacer> {
    let local = BackPressure { limit_bytes: config.in_flight_bytes };
    match config.rate_bps {
        None => Box::new(local),
        Some(rate_bps) => Box::new(FixedRate { rate_bps, next: Instant::default(), local }),
    }
}

impl Pacer for BackPressure {
    fn release(&self, _now: Instant, bytes: usize, in_flight: usize) -> Release {
        // An idle radio takes any packet, even one above its limit.
        let fits = in_flight == 0 || in_flight + bytes <= self.limit_bytes;
        if fits { Release::Now } else { Release::Drained }
    }

    fn on_sent(&mut self, _now: Instant, _bytes: usize) {}

    fn signal(&self) -> &'static str {
        "back-pressure"
    }

    fn limit_bytes(&self) -> usize {
        self.limit_bytes
    }
}

impl Pacer for FixedRate {
    fn release(&self, now: Instant, bytes: usize, in_flight: usize) -> Release {
        match self.local.release(now, bytes, in_flight) {
            Release::Now if now < self.next => Release::At(self.next),
            other => other,
        }
    }

    fn on_sent(&mut self, now: Instant, bytes: usize) {
        let catch_up = airtime(CATCH_UP_BYTES, self.rate_bps);
        let earliest = Instant(now.0.saturating_sub(catch_up.as_nanos() as u64));
        self.next = self.next.max(earliest) + airtime(bytes + FRAME_HEADER, self.rate_bps);
    }

    fn signal(&self) -> &'static str {
        "rate"
    }

    fn limit_bytes(&self) -> usize {
        self.local.limit_bytes
    }
}
