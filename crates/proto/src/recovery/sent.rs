// SPDX-License-Identifier: Apache-2.0
//! Which packets of a link arrived: the sender's ledger.
//!
//! Losses are found as RACK does (RFC 8985): a packet is lost when one sent
//! later has arrived and the link is not known to reorder by that much; the
//! last packets before a pause, which no later packet can reveal, are taken
//! for lost when their acknowledgement is overdue. Round trips are smoothed as
//! in RFC 9002, section 5.

use crate::class::{CLASSES, Class};
use crate::delivery::Piece;
use crate::time::{Duration, Instant, smooth};
use crate::wire::frame::Ack;
use std::collections::VecDeque;

/// Packets of one link whose outcome is remembered.
const MAX_SENT: usize = 8192;
/// An acknowledgement waits at most this long for more packets to arrive, unless it was seen to
/// wait longer.
pub(crate) const ACK_DELAY: Duration = Duration::from_millis(10);
/// The same where the sender asked for a soon one: about one packet at 6 Mbps.
pub(crate) const ACK_SOON_DELAY: Duration = Duration::from_millis(2);
/// Delays of acknowledgements are forgotten by this part with each new one.
const ACK_DELAY_FADING: u32 = 16;
/// A longer one is a pause of the peer's.
const MOST_ACK_DELAY: Duration = Duration::from_millis(100);
/// A packet taken for lost is remembered so long, to learn that it was only late.
const LOST_MEMORY: Duration = Duration::from_secs(1);
/// Before the first measurement; RFC 9002 takes 333 ms for the internet, links here are one or two hops.
const INITIAL_RTT: Duration = Duration::from_millis(100);
/// Least allowance for jitter of timers and schedulers at both ends.
const GRANULARITY: Duration = Duration::from_millis(2);
/// The same through relays, where a packet may wait for more urgent ones.
const RELAY_PATIENCE: Duration = Duration::from_millis(250);
/// Reordering once seen is allowed for until so many packets were truly lost (RFC 8985, section 6.2).
const REORDER_MEMORY: u32 = 16;
/// The overdue time doubles at most this often while nothing is acknowledged.
const MAX_BACKOFF: u32 = 6;
/// After so many overdue times in a row without any acknowledgement a link counts as
/// silent: about 100 ms at 6 Mbps.
const SILENT_AFTER: u32 = 3;
/// A packet of which the driver does not tell that it left counts as gone after so long.
const MAX_HELD: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Outstanding,
    /// Or no acknowledgement was asked for.
    Acked,
    Lost,
}

#[derive(Debug)]
struct Sent {
    at: Instant,
    class: Class,
    /// When the driver had sent it: no acknowledgement is due before.
    left: Instant,
    ip_bytes: usize,
    /// IP bytes sent on the link up to this packet.
    sent_bytes: u64,
    fate: Fate,
    ack_soon: bool,
    pieces: Vec<Piece>,
}

/// What an acknowledgement or a timer changed.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) acked: Vec<Piece>,
    pub(crate) lost: Vec<Piece>,
    /// What was lost is only overdue: no later packet has arrived.
    pub(crate) overdue: bool,
    pub(crate) acked_packets: u64,
    pub(crate) lost_packets: u64,
    pub(crate) spurious_losses: u64,
    /// The packet of the largest number, if it is newly acknowledged.
    pub(crate) newest: Option<Newest>,
    /// Time that our kernel held the packets newly acknowledged, all together.
    pub(crate) held: Duration,
    /// Since the oldest of them left our kernel.
    oldest: Duration,
}

/// The newest packet that is known to have arrived.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Newest {
    pub(crate) number: u64,
    pub(crate) sent_bytes: u64,
    /// Since it left our kernel.
    pub(crate) ago: Duration,
    ack_soon: bool,
}

/// The longest of late, and at least so much.
fn fade(longest: &mut Duration, found: Duration, least: Duration) {
    let faded = *longest - *longest / ACK_DELAY_FADING;
    *longest = faded.max(found.min(MOST_ACK_DELAY)).max(least);
}

/// Smoothed round trip time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rtt {
    smoothed: Option<Duration>,
    variation: Duration,
}

impl Rtt {
    fn update(&mut self, sample: Duration) {
        match &mut self.smoothed {
            Some(smoothed) => smooth(smoothed, &mut self.variation, sample),
            None => (self.smoothed, self.variation) = (Some(sample), sample / 2),
        }
    }

    pub(crate) fn smoothed(&self) -> Option<Duration> {
        self.smoothed
    }

    /// Smoothed round trip and its variation, once measured.
    pub(crate) fn known(&self) -> Option<(Duration, Duration)> {
        Some((self.smoothed?, self.variation))
    }

    fn or_initial(&self) -> Duration {
        self.smoothed.unwrap_or(INITIAL_RTT)
    }
}

/// What the driver still holds of a class: the number of the first such packet, and their bytes.
#[derive(Debug, Clone, Copy)]
struct Held {
    from: u64,
    bytes: usize,
}

/// The last packet that is known to have arrived: its number, and when it was sent.
type LastAcked = (u64, Instant);

/// The packets sent on one link.
#[derive(Debug)]
pub(crate) struct SentPackets {
    /// Number of `packets[0]`.
    first: u64,
    packets: VecDeque<Sent>,
    /// By class: a packet held back for higher ones is no sign of those.
    outstanding: [usize; CLASSES],
    outstanding_bytes: usize,
    sent_bytes: u64,
    held: [Held; CLASSES],
    rtt: Rtt,
    /// For each class the last of its own packets and of lower ones: those of higher classes
    /// overtake.
    newest_acked: [LastAcked; CLASSES],
    reorder_window: Duration,
    true_losses_since_reorder: u32,
    backoff: u32,
    /// The longest that the peer held back acknowledgements of late; soon ones.
    ack_delay: Duration,
    soon_delay: Duration,
    /// Packets overtake each other by priority, and others repair what is lost: only time tells.
    relayed: bool,
}

impl SentPackets {
    pub(crate) fn new() -> Self {
        Self {
            first: 1,
            packets: VecDeque::new(),
            outstanding: [0; CLASSES],
            outstanding_bytes: 0,
            sent_bytes: 0,
            held: [Held { from: 1, bytes: 0 }; CLASSES],
            rtt: Rtt { smoothed: None, variation: Duration::ZERO },
            newest_acked: [LastAcked::default(); CLASSES],
            reorder_window: Duration::ZERO,
            true_losses_since_reorder: 0,
            backoff: 0,
            ack_delay: ACK_DELAY,
            soon_delay: ACK_SOON_DELAY,
            relayed: false,
        }
    }

    /// Of a link through a relay.
    pub(crate) fn relayed() -> Self {
        Self { relayed: true, ..Self::new() }
    }

    /// Of a link that takes this one's number: its packet numbers go on from here.
    pub(crate) fn successor(&self, relayed: bool) -> Self {
        let first = self.next_number();
        let held = [Held { from: first, bytes: 0 }; CLASSES];
        Self { first, held, relayed, ..Self::new() }
    }

    /// IP bytes of the packets of which nothing is known yet.
    pub(crate) fn outstanding_bytes(&self) -> usize {
        self.outstanding_bytes
    }

    pub(crate) fn rtt(&self) -> &Rtt {
        &self.rtt
    }

    /// Whether packets leave and nothing comes back.
    pub(crate) fn is_silent(&self) -> bool {
        self.backoff >= SILENT_AFTER
    }

    /// The number the next packet gets.
    pub(crate) fn next_number(&self) -> u64 {
        self.first + self.packets.len() as u64
    }

    /// Enters the packet with [`Self::next_number`]; returns pieces of the oldest where the ledger was full.
    pub(crate) fn record(
        &mut self,
        now: Instant,
        class: Class,
        pieces: Vec<Piece>,
        (eliciting, ack_soon): (bool, bool),
        ip_bytes: usize,
    ) -> Vec<Piece> {
        let fate = if eliciting { Fate::Outstanding } else { Fate::Acked };
        if eliciting {
            self.outstanding[class as usize] += 1;
            self.outstanding_bytes += ip_bytes;
        }
        self.held[class as usize].bytes += ip_bytes;
        self.sent_bytes += ip_bytes as u64;
        let (left, sent_bytes) = (now + MAX_HELD, self.sent_bytes);
        let sent = Sent { at: now, class, left, ip_bytes, sent_bytes, fate, ack_soon, pieces };
        self.packets.push_back(sent);
        if self.packets.len() <= MAX_SENT {
            return Vec::new();
        }
        match self.pop_oldest() {
            Some(oldest) if oldest.fate == Fate::Outstanding => {
                self.outstanding[oldest.class as usize] -= 1;
                self.outstanding_bytes -= oldest.ip_bytes;
                oldest.pieces
            }
            _ => Vec::new(),
        }
    }

    /// Whether one more packet would push out one whose outcome is not known. To
    /// send it again in another would push out the next, without end.
    pub(crate) fn is_full(&self) -> bool {
        let oldest = self.packets.front();
        self.packets.len() >= MAX_SENT && oldest.is_some_and(|p| p.fate == Fate::Outstanding)
    }

    fn pop_oldest(&mut self) -> Option<Sent> {
        let oldest = self.packets.pop_front()?;
        for (held, class) in self.held.iter_mut().zip(Class::ALL) {
            if held.from == self.first {
                held.from += 1;
                held.bytes -= if oldest.class == class { oldest.ip_bytes } else { 0 };
            }
        }
        self.first += 1;
        Some(oldest)
    }

    /// The driver holds `bytes` of the link's packets of a class, the last ones handed to it.
    pub(crate) fn on_in_flight(&mut self, now: Instant, class: Class, bytes: usize) {
        let held = &mut self.held[class as usize];
        for packet in self.packets.range_mut((held.from - self.first) as usize..) {
            if packet.class == class {
                if held.bytes - packet.ip_bytes < bytes {
                    return;
                }
                packet.left = packet.left.min(now);
                held.bytes -= packet.ip_bytes;
            }
            held.from += 1;
        }
    }

    /// Applies an acknowledgement; `Err` if it names packets never sent.
    pub(crate) fn acknowledge(&mut self, now: Instant, ack: &Ack) -> Result<Outcome, ()> {
        let largest = ack.ranges.first().map_or(0, |(_, last)| *last);
        if largest >= self.next_number() {
            return Err(());
        }
        let mut outcome = Outcome::default();
        for &(first, last) in &ack.ranges {
            for number in first.max(self.first)..=last {
                self.ack_one(now, number, number == largest, ack.delay, &mut outcome);
            }
        }
        if outcome.acked_packets > 0 {
            self.backoff = 0;
        }
        if let Some(newest) = outcome.newest {
            let held_back = outcome.oldest.saturating_sub(newest.ago) + ack.delay;
            fade(&mut self.ack_delay, held_back, ACK_DELAY);
            if newest.ack_soon {
                fade(&mut self.soon_delay, ack.delay, ACK_SOON_DELAY);
            }
        }
        self.find_losses(now, &mut outcome);
        self.forget_settled(now);
        Ok(outcome)
    }

    fn ack_one(
        &mut self,
        now: Instant,
        number: u64,
        newest: bool,
        delay: Duration,
        outcome: &mut Outcome,
    ) {
        let packet = &mut self.packets[(number - self.first) as usize];
        let before = std::mem::replace(&mut packet.fate, Fate::Acked);
        match before {
            Fate::Acked => return,
            Fate::Outstanding => {
                self.outstanding[packet.class as usize] -= 1;
                self.outstanding_bytes -= packet.ip_bytes;
            }
            Fate::Lost => {
                outcome.spurious_losses += 1;
                let step = (self.rtt.or_initial() / 4).max(Duration::from_millis(1));
                self.reorder_window =
                    (self.reorder_window + step).min(self.rtt.or_initial().max(step));
                self.true_losses_since_reorder = 0;
            }
        }
        outcome.acked_packets += 1;
        let left = packet.left.min(now);
        outcome.held += left.since(packet.at);
        if before == Fate::Outstanding {
            outcome.oldest = outcome.oldest.max(now.since(left));
        }
        outcome.acked.append(&mut packet.pieces);
        for newest in &mut self.newest_acked[packet.class as usize..] {
            *newest = (*newest).max((number, packet.at));
        }
        if newest {
            let (sent_bytes, ago) = (packet.sent_bytes, now.since(left));
            let ack_soon = packet.ack_soon;
            outcome.newest = Some(Newest { number, sent_bytes, ago, ack_soon });
            self.rtt.update(now.since(packet.at).saturating_sub(delay));
        }
    }

    /// Takes for lost what is overdue now.
    pub(crate) fn on_timer(&mut self, now: Instant) -> Outcome {
        let mut outcome = Outcome::default();
        self.find_losses(now, &mut outcome);
        if outcome.lost_packets == 0 {
            for index in 0..self.packets.len() {
                if self.overdue_at(&self.packets[index]).is_some_and(|at| at <= now) {
                    self.lose(index, &mut outcome);
                }
            }
            if outcome.lost_packets > 0 {
                self.backoff = (self.backoff + 1).min(MAX_BACKOFF);
                outcome.overdue = true;
            }
        }
        self.forget_settled(now);
        outcome
    }

    /// Takes everything outstanding for lost, as when the link went down.
    pub(crate) fn mark_all_lost(&mut self) -> Outcome {
        let mut outcome = Outcome::default();
        for index in 0..self.packets.len() {
            if self.packets[index].fate == Fate::Outstanding {
                self.lose(index, &mut outcome);
            }
        }
        outcome
    }

    /// When [`Self::on_timer`] has something to do.
    pub(crate) fn timer(&self) -> Option<Instant> {
        Class::ALL.into_iter().filter_map(|class| self.timer_of(class)).min()
    }

    fn timer_of(&self, class: Class) -> Option<Instant> {
        if self.outstanding[class as usize] == 0 {
            return None;
        }
        let is_due = |p: &Sent| p.class == class && p.fate == Fate::Outstanding;
        let oldest = self.packets.iter().position(is_due)?;
        let packet = &self.packets[oldest];
        let (newest_acked, _) = self.newest_acked[class as usize];
        let reordered = !self.relayed && self.first + (oldest as u64) < newest_acked;
        let overdue = self.overdue_at(packet)?;
        Some(if reordered { overdue.min(self.reorder_end(packet)) } else { overdue })
    }

    fn reorder_end(&self, packet: &Sent) -> Instant {
        packet.at + self.rtt.or_initial() + self.reorder_window
    }

    fn overdue_at(&self, packet: &Sent) -> Option<Instant> {
        if packet.fate != Fate::Outstanding {
            return None;
        }
        let ack_delay = if packet.ack_soon { self.soon_delay } else { self.ack_delay };
        let least = if self.relayed { RELAY_PATIENCE } else { GRANULARITY };
        let allowance = (self.rtt.variation * 4).max(least) + self.reorder_window;
        let wait = self.rtt.or_initial() + allowance + ack_delay;
        Some(packet.left + wait * (1 << self.backoff))
    }

    fn find_losses(&mut self, now: Instant, outcome: &mut Outcome) {
        if self.relayed {
            return;
        }
        // What the highest class looks back on includes what the others do.
        let (newest, _) = self.newest_acked[Class::Voice as usize];
        let before_newest = newest.saturating_sub(self.first) as usize;
        for index in 0..before_newest.min(self.packets.len()) {
            let packet = &self.packets[index];
            let (newest, sent_at) = self.newest_acked[packet.class as usize];
            if packet.fate != Fate::Outstanding || self.first + index as u64 >= newest {
                continue;
            }
            let overtaken = sent_at >= packet.at + self.reorder_window;
            if overtaken || now >= self.reorder_end(packet) {
                self.lose(index, outcome);
            }
        }
    }

    fn lose(&mut self, index: usize, outcome: &mut Outcome) {
        let packet = &mut self.packets[index];
        packet.fate = Fate::Lost;
        self.outstanding[packet.class as usize] -= 1;
        self.outstanding_bytes -= packet.ip_bytes;
        outcome.lost_packets += 1;
        outcome.lost.extend_from_slice(&packet.pieces);
        self.true_losses_since_reorder += 1;
        if self.true_losses_since_reorder > REORDER_MEMORY {
            self.reorder_window = Duration::ZERO;
        }
    }

    fn forget_settled(&mut self, now: Instant) {
        while let Some(front) = self.packets.front() {
            let settled = match front.fate {
                Fate::Acked => true,
                Fate::Lost => now.since(front.at) > LOST_MEMORY,
                Fate::Outstanding => false,
            };
            // The newest stays, so that `next_number` never repeats.
            if !settled || self.packets.len() == 1 {
                return;
            }
            self.pop_oldest();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delivery::MessageId;

    const MS: u64 = 1_000_000;
    const BE: Class = Class::BestEffort;
    const ELICITING: (bool, bool) = (true, false);

    fn piece(id: u64) -> Vec<Piece> {
        vec![Piece { message: MessageId(id), range: 0..1 }]
    }

    fn ack(ranges: &[(u64, u64)]) -> Ack {
        Ack {
            link: 0,
            delay: Duration::ZERO,
            waited: Duration::ZERO,
            least_waited: Duration::ZERO,
            ranges: ranges.to_vec(),
        }
    }

    fn ids(pieces: &[Piece]) -> Vec<u64> {
        pieces.iter().map(|p| p.message.0).collect()
    }

    fn ledger_of(packets: u64) -> SentPackets {
        let mut ledger = SentPackets::new();
        for n in 1..=packets {
            assert_eq!(ledger.next_number(), n);
            ledger.record(Instant(n * MS), BE, piece(n), ELICITING, 100);
            ledger.on_in_flight(Instant(n * MS), BE, 0);
        }
        ledger
    }

    #[test]
    fn a_packet_that_later_ones_overtook_is_lost_at_once() {
        let mut ledger = ledger_of(4);
        let outcome = ledger.acknowledge(Instant(10 * MS), &ack(&[(3, 3), (1, 1)])).unwrap();
        assert_eq!(ids(&outcome.acked), [3, 1]);
        assert_eq!(ids(&outcome.lost), [2]);
    }

    #[test]
    fn a_late_acknowledgement_counts_and_widens_the_window_for_reordering() {
        let mut ledger = ledger_of(4);
        ledger.acknowledge(Instant(10 * MS), &ack(&[(3, 3), (1, 1)])).unwrap();
        let late = ledger.acknowledge(Instant(11 * MS), &ack(&[(1, 3)])).unwrap();
        assert_eq!((ids(&late.acked), late.spurious_losses), (vec![2], 1));
        for n in 5..=6 {
            ledger.record(Instant(12 * MS + n), BE, piece(n), ELICITING, 100);
            ledger.on_in_flight(Instant(12 * MS + n), BE, 0);
        }
        let now = ledger.acknowledge(Instant(13 * MS), &ack(&[(6, 6), (1, 4)])).unwrap();
        assert!(now.lost.is_empty(), "5 may still arrive: {now:?}");
        let at = ledger.timer().unwrap();
        assert_eq!(ids(&ledger.on_timer(at).lost), [5]);
    }

    #[test]
    fn the_last_packet_is_lost_when_its_acknowledgement_is_overdue() {
        let mut ledger = ledger_of(1);
        let at = ledger.timer().unwrap();
        assert!(ledger.on_timer(Instant(at.0 - 1)).lost.is_empty());
        assert_eq!(ids(&ledger.on_timer(at).lost), [1]);
        assert_eq!(ledger.timer(), None);
    }

    #[test]
    fn nothing_is_overdue_while_the_driver_holds_it() {
        let mut ledger = SentPackets::new();
        for n in 1..=2 {
            ledger.record(Instant(0), BE, piece(n), ELICITING, 1500);
        }
        ledger.on_in_flight(Instant(30 * MS), BE, 1500);
        let first = ledger.timer().unwrap();
        assert_eq!(ids(&ledger.on_timer(first).lost), [1]);
        ledger.on_in_flight(first, BE, 0);
        let second = ledger.timer().unwrap();
        assert!(second > first);
        assert_eq!(ids(&ledger.on_timer(second).lost), [2]);
    }

    #[test]
    fn a_higher_class_that_overtakes_is_no_sign_of_loss_and_a_lower_one_is() {
        let mut ledger = SentPackets::new();
        for (n, class) in [(1, BE), (2, Class::Voice), (3, BE)] {
            ledger.record(Instant(n * MS), class, piece(n), ELICITING, 1000);
        }
        ledger.on_in_flight(Instant(4 * MS), Class::Voice, 0);
        let outcome = ledger.acknowledge(Instant(5 * MS), &ack(&[(2, 2)])).unwrap();
        assert_eq!((ids(&outcome.acked), outcome.held), (vec![2], Duration::from_millis(2)));
        assert!(outcome.lost.is_empty(), "1 waits in the kernel for its turn: {outcome:?}");
        ledger.on_in_flight(Instant(6 * MS), BE, 1000);
        let held = ledger.held.map(|held| held.bytes);
        assert_eq!(held, [0, 1000, 0, 0]);

        ledger.record(Instant(7 * MS), Class::Voice, piece(4), ELICITING, 100);
        ledger.record(Instant(8 * MS), BE, piece(5), ELICITING, 1000);
        for class in [BE, Class::Voice] {
            ledger.on_in_flight(Instant(9 * MS), class, 0);
        }
        let outcome = ledger.acknowledge(Instant(10 * MS), &ack(&[(5, 5), (1, 3)])).unwrap();
        assert_eq!(ids(&outcome.lost), [4], "what came later of a lower class has arrived");
    }

    #[test]
    fn what_is_overdue_of_one_class_does_not_wait_for_another() {
        let mut ledger = SentPackets::new();
        ledger.record(Instant(0), BE, piece(1), ELICITING, 1500);
        ledger.record(Instant(MS), Class::Voice, piece(2), ELICITING, 100);
        ledger.on_in_flight(Instant(2 * MS), Class::Voice, 0);
        let at = ledger.timer().unwrap();
        assert!(at < Instant(0) + MAX_HELD, "the first is still in the kernel");
        assert_eq!(ids(&ledger.on_timer(at).lost), [2]);
    }

    #[test]
    fn acknowledging_what_was_never_sent_is_an_error() {
        assert!(ledger_of(2).acknowledge(Instant(MS), &ack(&[(2, 3)])).is_err());
    }

    #[test]
    fn the_ledger_is_bounded() {
        let mut ledger = SentPackets::new();
        let mut evicted = 0;
        for n in 0..MAX_SENT as u64 + 10 {
            evicted += ledger.record(Instant(n), BE, piece(n), ELICITING, 100).len();
        }
        assert_eq!((evicted, ledger.packets.len()), (10, MAX_SENT));
    }
}
