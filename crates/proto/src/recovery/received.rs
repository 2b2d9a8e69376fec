// SPDX-License-Identifier: Apache-2.0
//! Which packets of a link arrived: the receiver's window, and when it says so.

use crate::ids::LinkId;
use crate::recovery::sent::{ACK_DELAY, ACK_SOON_DELAY};
use crate::time::{Duration, Instant};
use crate::wire::frame::{Ack, MAX_ACK_RANGES};

/// An acknowledgement through relays waits so long, within what senders allow for these.
const FAR_ACK_DELAY: Duration = Duration::from_millis(100);
/// Never more acknowledgements than one in this time, however packets are reordered.
const ACK_SPACING: Duration = Duration::from_millis(1);
/// Ranges in an acknowledgement that we send: at 20 % loss about 160 packets, three reports at 54 Mbps.
pub(crate) const ACK_RANGES: usize = MAX_ACK_RANGES;
/// Packet numbers remembered by a receiver.
const WINDOW: u64 = 1024;
/// Share of the reverse way that acknowledgements may take as their cost is estimated here; by
/// that of 802.11 at 6 Mbps, 365 us each, it is 2 %.
const ACK_SHARE: f64 = 0.0175;
/// IP bytes of a packet with one acknowledgement and nothing else.
const ACK_BYTES: f64 = 90.0;
/// What a packet costs on 802.11 beside its bytes, in seconds: preamble, contention, ACK (DCF,
/// OFDM: 160 to 230 us). On other ways that is on the safe side.
const ACK_AIRTIME: f64 = 200e-6;
/// While packets keep coming there is one acknowledgement in so long at least, in seconds.
const ACK_EVERY_MAX: f64 = 60e-3;
/// A packet that waited so much longer than was told last is told of at once.
const SURPRISE: Duration = Duration::from_millis(3);
/// Whatever was spent before: a link that falls to an eighth of its rate must not wait for it.
const ALARM_EVERY: Duration = Duration::from_millis(250);
/// So many may follow each other as fast as gaps and ends of messages ask for.
const ACK_BURST: u32 = 4;
/// Bytes from which the rate at which packets come is told.
const RUN_BYTES: usize = 4500;

/// The packets received on one link of a peer.
#[derive(Debug)]
pub(crate) struct ReceivedPackets {
    largest: u64,
    largest_at: Instant,
    /// Bit `n % WINDOW` is set if packet `n`, within the window, arrived.
    seen: [u64; (WINDOW / 64) as usize],
    due: Option<Instant>,
    /// The link by which the last one came, and acknowledgements go.
    pub(crate) via: Option<LinkId>,
    budget: Budget,
    /// Of the packets since the last acknowledgement that told their time.
    timed: u32,
    waited: Duration,
    least_waited: Duration,
    /// The average that was told last.
    told: Duration,
    /// The last packet waited far longer than that: its sender should know.
    delayed: bool,
    /// When its sender was last told at once, whatever that cost.
    alarmed: Option<Instant>,
}

impl ReceivedPackets {
    pub(crate) fn new() -> Self {
        Self {
            largest: 0,
            largest_at: Instant::default(),
            seen: [0; (WINDOW / 64) as usize],
            due: None,
            via: None,
            budget: Budget::default(),
            timed: 0,
            waited: Duration::ZERO,
            least_waited: Duration::MAX,
            told: Duration::ZERO,
            delayed: false,
            alarmed: None,
        }
    }

    /// The number expected next.
    pub(crate) fn expected(&self) -> u64 {
        self.largest.saturating_add(1)
    }

    fn mark(&mut self, number: u64, value: bool) -> bool {
        let (word, bit) = ((number % WINDOW / 64) as usize, 1u64 << (number % 64));
        let before = self.seen[word] & bit != 0;
        if value {
            self.seen[word] |= bit;
        } else {
            self.seen[word] &= !bit;
        }
        before
    }

    fn has(&self, number: u64) -> bool {
        self.seen[(number % WINDOW / 64) as usize] & (1u64 << (number % 64)) != 0
    }

    /// Whether a packet of this number would be new.
    pub(crate) fn is_new(&self, number: u64) -> bool {
        number > self.largest
            || (number != 0 && number.saturating_add(WINDOW) > self.largest && !self.has(number))
    }

    /// Enters a packet that [`Self::is_new`].
    pub(crate) fn insert(&mut self, now: Instant, number: u64) {
        if number > self.largest {
            let skipped = self.expected().max(number.saturating_sub(WINDOW - 1));
            for missing in skipped..number {
                self.mark(missing, false);
            }
            self.largest = number;
            self.largest_at = now;
        }
        self.mark(number, true);
    }

    /// A packet took so much longer than the fastest of late.
    pub(crate) fn note_wait(&mut self, waited: Duration) {
        self.delayed = waited > self.told + SURPRISE;
        self.timed = self.timed.saturating_add(1);
        self.least_waited = self.least_waited.min(waited);
        self.waited += waited;
    }

    /// Plans the acknowledgement of a packet of `ip_bytes` just entered that asks for one.
    pub(crate) fn plan_ack(&mut self, now: Instant, ip_bytes: usize, ack_soon: bool, gap: bool) {
        self.budget.on_packet(now, ip_bytes, ack_soon);
        let delay = match ack_soon {
            _ if gap || self.delayed => Duration::ZERO,
            true => ACK_SOON_DELAY,
            // Something is saved for gaps and ends of messages.
            false => self.budget.spacing() * 11 / 10,
        };
        let rare = self.alarmed.is_none_or(|at| now.since(at) > ALARM_EVERY);
        if self.delayed && rare {
            self.alarmed = Some(now);
            return self.bring_forward(now);
        }
        self.bring_forward((now + delay).max(self.budget.earliest()));
    }

    fn bring_forward(&mut self, due: Instant) {
        self.due = Some(self.due.map_or(due, |before| before.min(due)));
    }

    /// The same for a packet that came through relays: gaps are nothing unusual, each hop has
    /// repaired what it lost, and every acknowledgement takes its turn on each of them.
    pub(crate) fn plan_far_ack(&mut self, now: Instant) {
        self.due = Some(self.due.unwrap_or(now + FAR_ACK_DELAY));
    }

    /// The same for a packet with others' for this node to pass on: their maker sends no more
    /// before this one is known to have arrived, so it does not wait for its share of the air.
    pub(crate) fn plan_hop_ack(&mut self, now: Instant, ack_soon: bool, gap: bool) {
        let delay = match ack_soon {
            _ if gap => Duration::ZERO,
            true => ACK_SOON_DELAY,
            false => ACK_DELAY,
        };
        let earliest = self.budget.last.map_or(now, |last| last + ACK_SPACING);
        self.bring_forward((now + delay).max(earliest));
    }

    /// When an acknowledgement has to leave.
    pub(crate) fn ack_due(&self) -> Option<Instant> {
        self.due
    }

    /// The acknowledgement to send now, if any is planned; `alone`: the packet is for that only.
    pub(crate) fn take_ack(&mut self, now: Instant, link: u8, alone: bool) -> Option<Ack> {
        self.due.take()?;
        self.budget.on_ack(now, alone);
        let waited = std::mem::take(&mut self.waited) / std::mem::take(&mut self.timed).max(1);
        self.told = waited;
        let least_waited = std::mem::replace(&mut self.least_waited, Duration::MAX).min(waited);
        Some(Ack {
            link,
            delay: now.since(self.largest_at),
            waited,
            least_waited,
            ranges: self.ranges(),
        })
    }

    fn ranges(&self) -> Vec<(u64, u64)> {
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        let oldest = self.largest.saturating_sub(WINDOW - 1).max(1);
        for number in (oldest..=self.largest).rev().filter(|n| self.has(*n)) {
            if let Some((first, _)) = ranges.last_mut().filter(|(first, _)| *first == number + 1) {
                *first = number;
            } else if ranges.len() == ACK_RANGES {
                break;
            } else {
                ranges.push((number, number));
            }
        }
        ranges
    }
}

/// Keeps acknowledgements to a share of the air on the way back, taken to be as fast as the
/// one that packets come by.
#[derive(Debug, Default)]
struct Budget {
    /// When all acknowledgements so far are paid for.
    paid: Instant,
    last: Option<Instant>,
    /// IP bytes per second at which packets of a sender that had more to send came.
    arriving: Option<f64>,
    /// Since the first of those since the last acknowledgement: then, and bytes.
    run: Option<(Instant, usize)>,
}

impl Budget {
    fn on_packet(&mut self, now: Instant, ip_bytes: usize, ack_soon: bool) {
        match &mut self.run {
            _ if ack_soon => self.run = None,
            Some((_, bytes)) => *bytes += ip_bytes,
            none => *none = Some((now, 0)),
        }
    }

    fn spacing(&self) -> Duration {
        let cost = ACK_AIRTIME + self.arriving.map_or(0.0, |rate| ACK_BYTES / rate);
        Duration::from_secs_f64((cost / ACK_SHARE).min(ACK_EVERY_MAX))
    }

    /// The earliest time of the next.
    fn earliest(&self) -> Instant {
        let saved = self.paid.before(self.spacing() * (ACK_BURST - 1));
        self.last.map_or(saved, |last| saved.max(last + ACK_SPACING))
    }

    fn on_ack(&mut self, now: Instant, alone: bool) {
        self.last = Some(now);
        if alone {
            self.paid = self.paid.max(now) + self.spacing();
        }
        let Some((since, bytes)) = self.run.take() else { return };
        let took = now.since(since).as_secs_f64();
        if bytes >= RUN_BYTES && took > 0.0 {
            let rate = bytes as f64 / took;
            self.arriving =
                Some(self.arriving.map_or(rate, |before| before + (rate - before) / 4.0));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn arrivals_name_every_run_and_refuse_repeats() {
        let mut arrivals = ReceivedPackets::new();
        for number in [1, 2, 4, 7] {
            assert!(arrivals.is_new(number));
            arrivals.insert(Instant(number), number);
        }
        assert!(!arrivals.is_new(2) && !arrivals.is_new(0) && arrivals.is_new(3));
        assert_eq!(arrivals.ranges(), [(7, 7), (4, 4), (1, 2)]);
    }

    #[test]
    fn the_window_forgets_what_is_too_old_and_nothing_else() {
        let mut arrivals = ReceivedPackets::new();
        arrivals.insert(Instant(0), 1);
        arrivals.insert(Instant(0), 5000);
        assert!(!arrivals.is_new(1) && !arrivals.is_new(5000 - WINDOW));
        assert!(arrivals.is_new(5000 - WINDOW + 1));
        assert_eq!(arrivals.ranges(), [(5000, 5000)]);
    }

    #[test]
    fn acknowledgements_are_spaced_even_under_reordering() {
        let mut arrivals = ReceivedPackets::new();
        arrivals.insert(Instant(0), 1);
        arrivals.plan_ack(Instant(0), 100, false, true);
        assert_eq!(arrivals.ack_due(), Some(Instant(0)));
        arrivals.take_ack(Instant(0), 0, true).unwrap();
        arrivals.plan_ack(Instant(1), 100, false, true);
        assert_eq!(arrivals.ack_due(), Some(Instant(0) + ACK_SPACING));
    }

    #[test]
    fn acknowledgements_take_a_fiftieth_of_the_time_that_they_cost() {
        let mut arrivals = ReceivedPackets::new();
        let (mut now, mut number, mut sent) = (0, 0, 0);
        // A gap with every packet, at 6 Mbps.
        while now < 10_000 * MS {
            number += 2;
            arrivals.insert(Instant(now), number);
            arrivals.plan_ack(Instant(now), 1500, false, true);
            if arrivals.ack_due().is_some_and(|due| due <= Instant(now)) {
                arrivals.take_ack(Instant(now), 0, true);
                sent += 1;
            }
            now += 2 * MS;
        }
        let share = f64::from(sent) * 0.365 / 10_000.0;
        assert!((0.015..0.0205).contains(&share), "{share}");
    }
}
