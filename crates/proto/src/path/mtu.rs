// SPDX-License-Identifier: Apache-2.0
//! The MTU of a link's path, found by probes (RFC 8899, DPLPMTUD). Routers may drop ICMP, and anybody can
//! forge it, so that only acknowledgements count. All sizes are sizes of IP packets, in bytes.
//!
//! A link begins with [`BASE_DATAGRAM`], which passes nearly everywhere. A probe is a PING padded to a larger
//! size. It is lost if a later packet of the usual size is acknowledged and the probe is not. Rate control
//! and the loss statistics of the link do not count probes.
//!
//! If large packets are lost and smaller ones arrive, the path may have become a *black hole* for
//! large ones. The size then falls by a step immediately, and probes decide whether it stays. Messages
//! are cut into frames only when a packet is built, also for repairs. No frame of the former size
//! is therefore left waiting.

use crate::config::MIN_DATAGRAM;
use crate::time::{Duration, Instant};

/// Datagram size with which a link begins (BASE_PLPMTU in RFC 8899, section 5.1.2).
const BASE_DATAGRAM: usize = 1200;
/// Least MTU that IPv4 hosts expect (RFC 1122, section 3.3.2).
const SMALL_MTU: usize = 576;
/// Sizes that are tried before others: Ethernet with jumbo frames and without, PPPoE (RFC 2516),
/// WireGuard, mobile networks and tunnels, the least of IPv6 (RFC 8200).
const COMMON_MTUS: [usize; 6] = [9000, 1500, 1492, 1420, 1400, 1280];
/// Number of lost probes of one size after which this size counts as too large (MAX_PROBES in RFC 8899).
const MAX_PROBES: u8 = 3;
/// The search ends when it can gain at most one part in this many of the size.
const PRECISION: usize = 16;
/// After this time a search begins again (PMTU_RAISE_TIMER in RFC 8899).
const RAISE_INTERVAL: Duration = Duration::from_secs(600);
/// Number of rounds with losses of large packets that show a black hole. The packets of a round are sent after
/// the losses of the previous round are known.
const BLACK_HOLE_ROUNDS: u8 = 3;

/// State of the search for the MTU of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MtuState {
    /// Probes look for a larger MTU.
    Searching,
    /// The MTU is that of the interface, or the configured one.
    Full,
    /// Larger probes do not arrive.
    Probed,
    /// Larger packets used to arrive, or the link began with them, and they do not arrive any more.
    BlackHole,
}

/// Packets above a size that used to pass do not arrive any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BlackHole {
    /// The size before.
    pub(crate) lost: usize,
    /// The size that passes.
    pub(crate) passes: usize,
}

#[derive(Debug, Clone, Copy)]
struct Probe {
    number: u64,
    size: usize,
}

/// Losses of large packets since the last acknowledgement of a large packet.
#[derive(Debug, Clone, Copy)]
struct Suspicion {
    /// The size of the smallest lost packet.
    size: usize,
    /// The number of the first lost packet.
    first: u64,
    rounds: u8,
    /// Packets from this number on were sent after the last round was known.
    next_round: u64,
    /// A smaller packet sent after the first loss was acknowledged.
    smaller_passes: bool,
}

/// A fall of the packet size.
#[derive(Debug, Clone, Copy)]
struct Fall {
    from: usize,
    /// The number of the first lost packet. If this or a later large packet is acknowledged, the losses had
    /// another cause.
    first: u64,
    /// Probes have confirmed the fall, and it was reported. It is reported once.
    is_reported: bool,
}

/// The search for the MTU of one path, and its result.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PathMtu {
    header_bytes: usize,
    /// The MTU of the interface, or the configured one. Nothing larger is ever sent.
    limit: usize,
    /// Packets are at most this large.
    size: usize,
    /// A packet of this size was acknowledged.
    is_confirmed: bool,
    /// The smallest size that is known not to pass, or the limit plus one.
    min_failed_size: usize,
    /// A size that is tried before the likely ones.
    first: Option<usize>,
    probe: Option<Probe>,
    /// Probes of the next size that were lost.
    lost_probes: u8,
    /// When the search begins again after its end.
    search_at: Option<Instant>,
    suspicion: Option<Suspicion>,
    fall: Option<Fall>,
}

impl Default for PathMtu {
    fn default() -> Self {
        Self::new(MIN_DATAGRAM, 0)
    }
}

impl PathMtu {
    /// A path on which nothing is known but the size of its first packets.
    pub(crate) fn new(limit: usize, header_bytes: usize) -> Self {
        let size = limit.min(BASE_DATAGRAM + header_bytes);
        Self {
            header_bytes,
            limit,
            size,
            is_confirmed: false,
            min_failed_size: limit + 1,
            first: Some(limit),
            probe: None,
            lost_probes: 0,
            search_at: None,
            suspicion: None,
            fall: None,
        }
    }

    /// Largest datagram payload, in bytes.
    pub(crate) fn datagram_bytes(&self) -> usize {
        self.size.saturating_sub(self.header_bytes)
    }

    pub(crate) fn state(&self) -> MtuState {
        match self.search_at {
            _ if self.size == self.limit && self.is_confirmed => MtuState::Full,
            None => MtuState::Searching,
            Some(_) if self.fall.is_some() => MtuState::BlackHole,
            Some(_) => MtuState::Probed,
        }
    }

    /// Changes the limit, as when the MTU of the interface changed.
    pub(crate) fn set_limit(&mut self, limit: usize, header_bytes: usize) {
        if header_bytes != self.header_bytes {
            *self = Self::new(limit, header_bytes);
        } else if limit != self.limit {
            // With the first path of a link the usual size becomes possible.
            let base = self.size.max(BASE_DATAGRAM + header_bytes);
            let size = if self.size == self.limit { base } else { self.size }.min(limit);
            self.is_confirmed &= size <= self.size;
            (self.size, self.limit) = (size, limit);
            self.search();
        }
    }

    /// Begins the search again, because the path may have changed.
    pub(crate) fn restart(&mut self) {
        *self = Self::new(self.limit, self.header_bytes);
    }

    /// Prepares for a new session on the same path. Packet numbers begin again.
    pub(crate) fn on_new_session(&mut self) {
        self.on_interruption();
        if let Some(fall) = &mut self.fall {
            fall.first = u64::MAX;
        }
    }

    /// Forgets the packets in flight, about which nothing is known after an interruption.
    pub(crate) fn on_interruption(&mut self) {
        (self.probe, self.suspicion) = (None, None);
    }

    /// Searches again when the link is up again: before an outage, a weak radio may have lost large
    /// packets first.
    pub(crate) fn on_up(&mut self) {
        if self.fall.is_some() {
            self.search();
        }
    }

    fn search(&mut self) {
        (self.min_failed_size, self.first) = (self.limit + 1, Some(self.limit));
        (self.lost_probes, self.search_at, self.suspicion) = (0, None, None);
    }

    /// The size of a probe that may be sent now.
    pub(crate) fn due_probe(&mut self, now: Instant) -> Option<usize> {
        if self.search_at.is_some_and(|at| at <= now) {
            self.search();
        }
        let next = self.next_size().filter(|_| self.probe.is_none() && self.search_at.is_none());
        if next.is_none() && self.probe.is_none() {
            // A message confirmed the last size to try.
            self.conclude(now);
        }
        next
    }

    /// When a search begins again.
    pub(crate) fn next_search(&self) -> Option<Instant> {
        self.search_at
    }

    pub(crate) fn on_probe_sent(&mut self, number: u64, size: usize) {
        self.probe = Some(Probe { number, size });
    }

    /// The packet number of the probe in flight.
    pub(crate) fn probe(&self) -> Option<u64> {
        self.probe.map(|probe| probe.number)
    }

    /// The next size to try: `first`, then the likely sizes, then sizes between them. Last comes
    /// the present size, if no packet has shown that it passes.
    fn next_size(&self) -> Option<usize> {
        let is_open = |size: &usize| *size > self.size && *size < self.min_failed_size;
        let likely = || COMMON_MTUS.into_iter().find(is_open);
        let between = || {
            let gap = self.min_failed_size - self.size;
            (gap > self.size / PRECISION && gap > 1).then(|| self.size + gap / 2)
        };
        let present = || (!self.is_confirmed).then_some(self.size);
        self.first.filter(is_open).or_else(likely).or_else(between).or_else(present)
    }

    pub(crate) fn on_probe_acked(&mut self, now: Instant) {
        let Some(probe) = self.probe.take() else { return };
        self.pass(probe.size);
        self.conclude(now);
    }

    /// Counts the probe as lost: a smaller packet that was sent after it was acknowledged.
    pub(crate) fn on_probe_lost(&mut self, now: Instant) {
        let Some(probe) = self.probe.take() else { return };
        // A size that is no longer of interest was tried.
        if self.next_size() == Some(probe.size) {
            self.lost_probes += 1;
            if self.lost_probes >= MAX_PROBES {
                self.fail(probe.size);
            }
        }
        self.conclude(now);
    }

    /// Records that a packet of this size arrived.
    fn pass(&mut self, size: usize) {
        self.is_confirmed |= size >= self.size;
        self.size = self.size.max(size.min(self.limit));
        self.min_failed_size = self.min_failed_size.max(self.size + 1);
        self.lost_probes = 0;
        self.fall = self.fall.filter(|fall| fall.from > self.size);
    }

    fn fail(&mut self, size: usize) {
        match self.step_below(size) {
            _ if size > self.size => {}
            Some(smaller) => {
                self.fall = Some(Fall { from: self.size, first: u64::MAX, is_reported: false });
                (self.size, self.is_confirmed) = (smaller, false);
            }
            // Nothing is left to try.
            None => self.is_confirmed = true,
        }
        self.min_failed_size = self.min_failed_size.min(size).max(self.size + 1);
        (self.lost_probes, self.first) = (0, None);
    }

    /// Ends the search if nothing is left to try.
    fn conclude(&mut self, now: Instant) {
        let is_over = self.next_size().is_none() && self.search_at.is_none();
        if is_over && self.size < self.limit {
            self.search_at = Some(now + RAISE_INTERVAL);
        }
    }

    /// Returns the black hole that the last search confirmed. Each black hole is returned once.
    pub(crate) fn take_black_hole(&mut self) -> Option<BlackHole> {
        let passes = self.size;
        let is_over = self.search_at.is_some();
        let fall = self.fall.as_mut().filter(|fall| is_over && !fall.is_reported)?;
        fall.is_reported = true;
        Some(BlackHole { lost: fall.from, passes })
    }

    /// Records that an ack-eliciting packet was acknowledged for the first time.
    pub(crate) fn on_acked(&mut self, number: u64, size: usize) {
        if let Some(suspicion) = self.suspicion.as_mut().filter(|it| number >= it.first) {
            if size >= suspicion.size {
                self.suspicion = None;
            } else {
                suspicion.smaller_passes = true;
            }
        }
        self.is_confirmed |= size == self.size;
        if size > self.size && self.fall.is_some_and(|fall| number >= fall.first) {
            self.pass(size);
        }
    }

    /// Records that an ack-eliciting packet was declared lost. `next` is the number of the next
    /// packet.
    pub(crate) fn on_lost(&mut self, number: u64, next: u64, size: usize) {
        let Some(smaller) = self.step_below(self.size) else { return };
        // A larger packet was sent before the size fell.
        let is_large = size > smaller && size <= self.size;
        match &mut self.suspicion {
            Some(it) if is_large => {
                it.size = it.size.min(size);
                if number >= it.next_round {
                    (it.rounds, it.next_round) = (it.rounds.saturating_add(1), next);
                }
            }
            // Small packets are lost as well.
            Some(it) if size <= smaller => it.rounds = it.rounds.saturating_sub(1),
            None if is_large => {
                let (rounds, smaller_passes) = (1, false);
                let first = number;
                self.suspicion =
                    Some(Suspicion { size, first, rounds, next_round: next, smaller_passes });
            }
            _ => {}
        }
        self.fall_into_black_hole(smaller);
    }

    fn fall_into_black_hole(&mut self, to: usize) {
        let is_sure = |it: &Suspicion| it.rounds >= BLACK_HOLE_ROUNDS && it.smaller_passes;
        let Some(Suspicion { first, .. }) = self.suspicion.filter(is_sure) else { return };
        self.fall = Some(Fall { from: self.size, first, is_reported: false });
        self.first = Some(self.size);
        (self.size, self.is_confirmed) = (to, false);
        (self.lost_probes, self.search_at, self.suspicion) = (0, None, None);
    }

    /// The size to which `size` falls: a size that passes on common paths where larger ones do not.
    fn step_below(&self, size: usize) -> Option<usize> {
        let steps =
            [BASE_DATAGRAM + self.header_bytes, SMALL_MTU, MIN_DATAGRAM + self.header_bytes];
        steps.into_iter().find(|step| *step < size)
    }

    /// Handles the refusal of our own interface to send a packet of this size. Returns whether
    /// smaller packets follow.
    pub(crate) fn on_refused(&mut self, now: Instant, size: usize) -> bool {
        if size <= self.size {
            let Some(smaller) = self.step_below(size) else { return false };
            (self.size, self.is_confirmed) = (smaller, false);
            (self.search_at, self.suspicion) = (None, None);
        }
        self.probe = self.probe.filter(|probe| probe.size < size);
        self.fail(size);
        self.conclude(now);
        true
    }
}

#[cfg(test)]
mod tests;
