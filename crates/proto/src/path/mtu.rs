// SPDX-License-Identifier: Apache-2.0
//! The MTU of a link's path, found by probes (RFC 8899, DPLPMTUD). Routers may drop ICMP, and anybody
//! can forge it, so that only acknowledgements count. All sizes are those of IP packets, in bytes.
//!
//! A link begins with [`BASE_DATAGRAM`], which passes nearly everywhere. A probe is a PING padded to a
//! larger size. It is lost if a later packet of the usual size is acknowledged and the probe is not.
//! Rate control and the loss of the link do not count it.
//!
//! If large packets are lost and smaller ones arrive, the path may have become a *black hole* for
//! large ones. The size then falls by a step at once, and probes decide whether it stays.
//! Messages are cut into frames when a packet is built, repairs included, so that nothing of the
//! former size waits.

use crate::config::MIN_DATAGRAM;
use crate::time::{Duration, Instant};

/// Datagram size with which a link begins (BASE_PLPMTU in RFC 8899, section 5.1.2).
const BASE_DATAGRAM: usize = 1200;
/// Least MTU that IPv4 hosts expect (RFC 1122, section 3.3.2).
const SMALL_MTU: usize = 576;
/// Sizes that are tried before others: Ethernet with jumbo frames and without, PPPoE (RFC 2516),
/// WireGuard, mobile networks and tunnels, the least of IPv6 (RFC 8200).
const LIKELY: [usize; 6] = [9000, 1500, 1492, 1420, 1400, 1280];
/// Lost probes of one size after which a larger size counts as too large (MAX_PROBES in RFC 8899).
const MAX_PROBES: u8 = 3;
/// The search ends when it can gain at most this part of the size.
const PRECISION: usize = 16;
/// After this time a search begins again (PMTU_RAISE_TIMER in RFC 8899).
const SEARCH_AGAIN: Duration = Duration::from_secs(600);
/// Rounds of losses of large packets, each sent after the previous loss was known, that show a black
/// hole.
const BLACK_HOLE_ROUNDS: u8 = 3;

/// How the MTU of a path is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MtuState {
    /// Probes look for a larger one.
    Searching,
    /// It is that of the interface, or the configured one.
    Full,
    /// Larger probes do not arrive.
    Probed,
    /// Larger packets did arrive, or were the first ones, and do not arrive any more.
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

/// Losses of large packets, since none was acknowledged.
#[derive(Debug, Clone, Copy)]
struct Suspicion {
    /// The smallest of them.
    size: usize,
    /// The number of the first.
    first: u64,
    rounds: u8,
    /// Packets from this number on were sent after the last round was known.
    next_round: u64,
    /// A smaller packet sent since then was acknowledged.
    smaller_passes: bool,
}

/// A fall of the size.
#[derive(Debug, Clone, Copy)]
struct Fall {
    from: usize,
    /// The number of the first lost packet. If a large one from it on is acknowledged, the losses had
    /// another cause.
    first: u64,
    /// Probes have confirmed it, which is reported once.
    is_reported: bool,
}

/// The search for the MTU of one path, and its result.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PathMtu {
    header_bytes: usize,
    /// That of the interface, or the configured one. Nothing larger is ever sent.
    limit: usize,
    /// Packets are at most this large.
    size: usize,
    /// A packet of this size was acknowledged.
    is_confirmed: bool,
    /// The smallest size that is known not to pass, or one above the limit.
    fails: usize,
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
            fails: limit + 1,
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

    /// The path may be another.
    pub(crate) fn restart(&mut self) {
        *self = Self::new(self.limit, self.header_bytes);
    }

    /// A new session, whose packet numbers begin again, takes the same path.
    pub(crate) fn on_new_session(&mut self) {
        self.on_interruption();
        if let Some(fall) = &mut self.fall {
            fall.first = u64::MAX;
        }
    }

    /// Nothing is known about the packets in flight.
    pub(crate) fn on_interruption(&mut self) {
        (self.probe, self.suspicion) = (None, None);
    }

    /// The link is up again. Before an outage, a weak radio may lose large packets first.
    pub(crate) fn on_up(&mut self) {
        if self.fall.is_some() {
            self.search();
        }
    }

    fn search(&mut self) {
        (self.fails, self.first) = (self.limit + 1, Some(self.limit));
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

    /// The next size to try: the first one, then the likely ones, then those between; at last the
    /// present size, if no packet has shown that it passes.
    fn next_size(&self) -> Option<usize> {
        let is_open = |size: &usize| *size > self.size && *size < self.fails;
        let likely = || LIKELY.into_iter().find(is_open);
        let between = || {
            let gap = self.fails - self.size;
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

    /// A smaller packet sent after the probe was acknowledged.
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

    /// A packet of this size arrived.
    fn pass(&mut self, size: usize) {
        self.is_confirmed |= size >= self.size;
        self.size = self.size.max(size.min(self.limit));
        self.fails = self.fails.max(self.size + 1);
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
        self.fails = self.fails.min(size).max(self.size + 1);
        (self.lost_probes, self.first) = (0, None);
    }

    /// Ends the search if nothing is left to try.
    fn conclude(&mut self, now: Instant) {
        let is_over = self.next_size().is_none() && self.search_at.is_none();
        if is_over && self.size < self.limit {
            self.search_at = Some(now + SEARCH_AGAIN);
        }
    }

    /// The black hole that the last search confirmed; each only once.
    pub(crate) fn take_black_hole(&mut self) -> Option<BlackHole> {
        let passes = self.size;
        let is_over = self.search_at.is_some();
        let fall = self.fall.as_mut().filter(|fall| is_over && !fall.is_reported)?;
        fall.is_reported = true;
        Some(BlackHole { lost: fall.from, passes })
    }

    /// An ack-eliciting packet was acknowledged for the first time.
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

    /// An ack-eliciting packet was declared lost. `next` is the number of the next packet.
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

    /// The size to which one falls: one that passes where larger ones do not.
    fn step_below(&self, size: usize) -> Option<usize> {
        let steps =
            [BASE_DATAGRAM + self.header_bytes, SMALL_MTU, MIN_DATAGRAM + self.header_bytes];
        steps.into_iter().find(|step| *step < size)
    }

    /// Our own interface does not send a packet of this size. Returns whether smaller ones follow.
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
mod tests {
    use super::*;

    const HEADER: usize = 28;
    const BASE: usize = BASE_DATAGRAM + HEADER;
    const MS: u64 = 1_000_000;

    /// A path on which each packet is acknowledged, or known to be lost, at once.
    struct Path {
        mtu: PathMtu,
        passes: usize,
        number: u64,
        now: Instant,
        /// Sizes of the probes.
        probes: Vec<usize>,
    }

    impl Path {
        fn new(limit: usize, passes: usize) -> Self {
            let mtu = PathMtu::new(limit, HEADER);
            Self { mtu, passes, number: 1, now: Instant(MS), probes: Vec::new() }
        }

        /// Sends probes until none is due.
        fn probe(&mut self) {
            while let Some(size) = self.mtu.due_probe(self.now) {
                self.now = self.now + Duration::from_millis(1);
                self.mtu.on_probe_sent(self.number, size);
                assert_eq!(self.mtu.due_probe(self.now), None, "one at a time");
                self.number += 1;
                self.probes.push(size);
                assert!(self.probes.len() < 100, "{:?}", self.probes);
                if size <= self.passes {
                    self.mtu.on_probe_acked(self.now);
                } else {
                    self.mtu.on_probe_lost(self.now);
                }
            }
        }

        fn send(&mut self, size: usize) {
            let number = self.number;
            self.number += 1;
            if size <= self.passes {
                self.mtu.on_acked(number, size);
            } else {
                self.mtu.on_lost(number, self.number, size);
            }
        }

        /// Sends full packets with small ones between.
        fn send_full(&mut self, packets: usize) {
            for _ in 0..packets {
                self.send(self.mtu.size);
                self.send(100);
            }
        }

        fn found(&self) -> (usize, MtuState) {
            (self.mtu.size, self.mtu.state())
        }
    }

    #[test]
    fn the_mtu_of_the_interface_takes_one_probe() {
        for limit in [1500, 1400, 1280, 2304, 9000] {
            let mut path = Path::new(limit, 9000);
            assert_eq!(path.found(), (BASE, MtuState::Searching));
            path.probe();
            assert_eq!((path.found(), path.probes.len()), ((limit, MtuState::Full), 1));
        }
    }

    #[test]
    fn the_first_size_is_confirmed_as_well() {
        let mut path = Path::new(700, 700);
        assert_eq!(path.found(), (700, MtuState::Searching));
        path.probe();
        assert_eq!((path.found(), path.probes.len()), ((700, MtuState::Full), 1));
        // On a link without large packets, only a probe shows that it does not pass.
        let mut path = Path::new(1500, 576);
        path.probe();
        assert_eq!(path.found(), (576, MtuState::BlackHole));
        assert_eq!(path.mtu.take_black_hole(), Some(BlackHole { lost: BASE, passes: 576 }));
    }

    #[test]
    fn likely_sizes_are_found_exactly_and_others_to_a_sixteenth() {
        for passes in [1280, 1400, 1420, 1492, 1500, 1228, 1340, 1800, 2304, 4470, 8000] {
            let mut path = Path::new(9000, passes);
            path.probe();
            let (size, state) = path.found();
            let likely = LIKELY.contains(&passes);
            let least = if likely { passes } else { passes - passes / PRECISION };
            assert!((least..=passes).contains(&size), "{passes}: {size}");
            assert_eq!(state, MtuState::Probed, "{passes}");
            assert!(path.probes.len() <= 30, "{passes}: {:?}", path.probes);
        }
    }

    #[test]
    fn one_lost_probe_decides_nothing() {
        let mut path = Path::new(1500, 1500);
        for _ in 1..MAX_PROBES {
            assert_eq!(path.mtu.due_probe(path.now), Some(1500));
            path.mtu.on_probe_sent(path.number, 1500);
            path.mtu.on_probe_lost(path.now);
        }
        path.probe();
        assert_eq!(path.found(), (1500, MtuState::Full));
    }

    #[test]
    fn a_base_that_does_not_pass_falls_and_the_search_goes_on() {
        for passes in [576, 700, 1000, 300] {
            let mut path = Path::new(1500, passes);
            path.send_full(6);
            path.probe();
            let (size, state) = path.found();
            assert!(size <= passes && size > passes * 8 / 10, "{passes}: {size}");
            assert_eq!(state, MtuState::BlackHole);
        }
    }

    #[test]
    fn a_black_hole_is_left_within_three_rounds_and_reported_once() {
        let mut path = Path::new(1500, 1500);
        path.probe();
        path.passes = 1280;
        path.send_full(3);
        assert_eq!(path.found(), (BASE, MtuState::Searching));
        assert_eq!(path.mtu.take_black_hole(), None, "not confirmed");
        path.probes.clear();
        path.probe();
        assert_eq!(path.probes[0], 1500, "the former size is tried first");
        assert_eq!(path.found(), (1280, MtuState::BlackHole));
        let hole = BlackHole { lost: 1500, passes: 1280 };
        assert_eq!(path.mtu.take_black_hole(), Some(hole));
        assert_eq!(path.mtu.take_black_hole(), None);
    }

    #[test]
    fn a_false_alarm_costs_one_probe() {
        let mut path = Path::new(1500, 1500);
        path.probe();
        path.passes = 1280;
        path.send_full(3);
        path.passes = 1500;
        path.probes.clear();
        path.probe();
        assert_eq!((path.found(), path.probes.len()), ((1500, MtuState::Full), 1));
        assert_eq!(path.mtu.take_black_hole(), None);
    }

    #[test]
    fn a_late_acknowledgement_of_a_large_packet_undoes_a_fall() {
        let mut path = Path::new(1500, 1500);
        path.probe();
        let large = path.number;
        path.passes = 1280;
        path.send_full(3);
        assert_eq!(path.mtu.size, BASE);
        path.mtu.on_acked(large - 1, 1500);
        assert_eq!(path.mtu.size, BASE, "it was sent before the losses");
        path.mtu.on_acked(large, 1500);
        assert_eq!(path.found(), (1500, MtuState::Full));
    }

    #[test]
    fn losses_of_one_burst_are_one_round() {
        let mut path = Path::new(1500, 1500);
        path.probe();
        for number in 10..60 {
            path.mtu.on_lost(number, 100, 1500);
        }
        path.mtu.on_acked(70, 100);
        assert_eq!(path.mtu.size, 1500);
    }

    #[test]
    fn losses_without_smaller_packets_that_arrive_are_an_outage() {
        let mut path = Path::new(1500, 1500);
        path.probe();
        for number in 10..60 {
            path.mtu.on_lost(number, number + 1, 1500);
        }
        assert_eq!(path.mtu.size, 1500);
    }

    #[test]
    fn a_peer_that_acknowledges_only_what_came_before_is_in_an_outage_for_ever() {
        let mut path = Path::new(1500, 1500);
        path.probe();
        for number in 10..1000 {
            path.mtu.on_lost(number, number + 1, 1500);
            path.mtu.on_acked(9, 100);
        }
        assert_eq!(path.mtu.size, 1500);
    }

    #[test]
    fn a_message_that_confirms_the_last_size_ends_the_search() {
        let mut path = Path::new(1500, 1228);
        while let Some(size) = path.mtu.due_probe(path.now).filter(|size| *size > BASE) {
            path.mtu.on_probe_sent(path.number, size);
            path.mtu.on_probe_lost(path.now);
        }
        assert_eq!(path.found(), (BASE, MtuState::Searching));
        path.send(BASE);
        assert_eq!(path.mtu.due_probe(path.now), None);
        assert_eq!(path.found(), (BASE, MtuState::Probed));
        let again = path.mtu.next_search();
        path.now = path.now + Duration::from_secs(1);
        assert_eq!((path.mtu.due_probe(path.now), path.mtu.next_search()), (None, again));
    }

    #[test]
    fn losses_of_small_packets_speak_against_a_black_hole() {
        let mut path = Path::new(1500, 1500);
        path.probe();
        for number in (10..100).step_by(3) {
            path.mtu.on_lost(number, number + 1, 1500);
            path.mtu.on_lost(number + 1, number + 2, 100);
            path.mtu.on_acked(number + 2, 100);
        }
        assert_eq!(path.mtu.size, 1500);
    }

    #[test]
    fn a_stream_of_medium_packets_does_not_hide_a_black_hole() {
        let mut path = Path::new(1500, 1500);
        path.probe();
        path.passes = 1400;
        for _ in 0..3 {
            path.send(1500);
            path.send(1350);
        }
        path.probe();
        assert_eq!(path.found(), (1400, MtuState::BlackHole));
    }

    #[test]
    fn packets_that_were_sent_before_a_fall_cause_no_other() {
        let mut path = Path::new(1500, 1500);
        path.probe();
        path.passes = 1280;
        path.send_full(3);
        for number in 100..200 {
            path.mtu.on_lost(number, number + 1, 1500);
            path.mtu.on_acked(number, 100);
        }
        assert_eq!(path.mtu.size, BASE);
    }

    #[test]
    fn a_larger_path_is_found_after_ten_minutes() {
        let mut path = Path::new(1500, 1400);
        path.probe();
        path.passes = 1500;
        path.probes.clear();
        path.now = path.mtu.next_search().unwrap().before(Duration::from_nanos(1));
        path.probe();
        assert!(path.probes.is_empty());
        path.now = path.mtu.next_search().unwrap();
        path.probe();
        assert_eq!(path.found(), (1500, MtuState::Full));
        assert_eq!(path.mtu.next_search(), None);
    }

    #[test]
    fn the_interface_limits_what_any_acknowledgement_can_claim() {
        let mut path = Path::new(1400, 9000);
        path.probe();
        path.mtu.on_acked(5, 9000);
        path.mtu.on_probe_acked(path.now);
        assert_eq!(path.mtu.size, 1400);
        path.mtu.set_limit(1300, HEADER);
        assert_eq!(path.found(), (1300, MtuState::Full));
        // A probe of the former limit is still on its way.
        let mut path = Path::new(1500, 1500);
        let size = path.mtu.due_probe(path.now).unwrap();
        path.mtu.on_probe_sent(1, size);
        path.mtu.set_limit(1300, HEADER);
        path.mtu.on_probe_acked(path.now);
        assert_eq!(path.mtu.size, 1300);
    }

    #[test]
    fn a_peer_that_acknowledges_no_large_packet_gets_few_probes_and_the_least_size() {
        for passes in [MIN_DATAGRAM + HEADER, 100] {
            let mut path = Path::new(9000, passes);
            for _ in 0..1000 {
                path.send_full(1);
                path.probe();
            }
            assert_eq!(path.mtu.size, MIN_DATAGRAM + HEADER);
            assert!(path.probes.len() < 90, "{:?}", path.probes);
        }
    }

    #[test]
    fn a_size_that_the_interface_refuses_is_left_at_once() {
        let mut path = Path::new(1500, 1500);
        path.probe();
        path.mtu.on_refused(path.now, 1500);
        assert_eq!(path.found(), (BASE, MtuState::Searching));
        path.passes = 1400;
        path.probe();
        assert_eq!(path.found(), (1400, MtuState::Probed));
        assert!(!path.mtu.on_refused(path.now, MIN_DATAGRAM), "nothing smaller is built");
        assert_eq!(path.mtu.size, 1400, "handshakes and reports are never larger");
    }

    #[test]
    fn another_interface_begins_again_and_a_larger_limit_is_searched() {
        let mut path = Path::new(BASE, 1500);
        path.mtu.set_limit(1500, 48);
        assert_eq!(path.mtu.size, BASE_DATAGRAM + 48);
        let mut path = Path::new(700, 1500);
        path.mtu.set_limit(1500, HEADER);
        assert_eq!(path.found(), (BASE, MtuState::Searching));
        path.probe();
        assert_eq!(path.found(), (1500, MtuState::Full));
        path.mtu.restart();
        assert_eq!(path.mtu.size, BASE);
    }

    #[test]
    fn after_an_outage_a_fall_is_examined_again() {
        let mut path = Path::new(1500, 1500);
        path.probe();
        path.passes = 600;
        path.send_full(6);
        path.probe();
        assert_eq!(path.mtu.state(), MtuState::BlackHole);
        path.passes = 1500;
        path.mtu.on_interruption();
        path.mtu.on_up();
        path.probe();
        assert_eq!(path.found(), (1500, MtuState::Full));
    }
}
