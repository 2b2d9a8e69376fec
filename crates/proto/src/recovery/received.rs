// SPDX-License-Identifier: Apache-2.0
//! The received packets of a link, and the time at which to acknowledge them.

use crate::clock::LeastDifference;
use crate::ecn::{Ecn, EcnCounts};
use crate::ids::LinkId;
use crate::recovery::MAX_SENT_PACKETS;
use crate::recovery::sent::{ACK_DELAY, ACK_SOON_DELAY};
use crate::replay_window::ReplayWindow;
use crate::time::{Duration, Instant};
use crate::wire::frame::{Ack, MAX_ACK_RANGES};

/// Acknowledgement delay of packets that came through a relay, within what their senders allow.
const RELAYED_ACK_DELAY: Duration = Duration::from_millis(100);
/// Least time between two acknowledgements, however packets are reordered.
const ACK_SPACING: Duration = Duration::from_millis(1);
/// Ranges in an acknowledgement. At 20 % loss, they cover about 160 packets: those of three reports
/// at 54 Mbps.
pub(crate) const ACK_RANGES: usize = MAX_ACK_RANGES;
/// Fewest packet numbers that an acknowledgement covers, so that several acknowledgements may be
/// lost.
const MIN_ACK_SPAN: u64 = 1024;
/// Fraction of the return path that acknowledgements may take, at the cost estimated below. At
/// their cost on 802.11 at 6 Mbps, 365 us each, the fraction is 2 %.
const ACK_SHARE: f64 = 0.0175;
/// IP bytes of a packet with one acknowledgement and nothing else.
const ACK_BYTES: f64 = 90.0;
/// Cost of a packet on 802.11 in addition to its bytes, in seconds: preamble, contention, ACK (DCF, OFDM:
/// 160 to 230 us). Other paths cost less.
const ACK_AIRTIME: f64 = 200e-6;
/// Longest time between acknowledgements of a stream of packets, in seconds.
const MAX_ACK_INTERVAL: f64 = 60e-3;
/// A queueing delay beyond the last report by more than this is reported immediately.
const DELAY_JUMP: Duration = Duration::from_millis(3);
/// A report of such a jump ignores the budget at most once in this time: a link that falls to an
/// eighth of its rate must not wait for the budget.
const DELAY_JUMP_INTERVAL: Duration = Duration::from_millis(250);
/// Number of acknowledgements by which a burst may exceed the average rate of the budget.
const ACK_BURST: u32 = 4;
/// A run of packets must have at least this many bytes to measure the arrival rate.
const MIN_TRAIN_BYTES: usize = 4500;

/// The packets received on one link of a peer.
#[derive(Debug)]
pub(crate) struct ReceivedPackets {
    numbers: ReplayWindow<{ MAX_SENT_PACKETS / 64 }>,
    /// The highest number at the last acknowledgement and at the one before it.
    acknowledged: [u64; 2],
    largest_arrival: Instant,
    ecn: EcnCounts,
    due: Option<Instant>,
    /// The link on which the last packet arrived, and on which acknowledgements are sent.
    pub(crate) via: Option<LinkId>,
    budget: AckBudget,
    /// The least difference of this link alone. Another link with a shorter path says nothing about
    /// this link's queue.
    least_difference: LeastDifference,
    /// Packets with a clock since the last acknowledgement.
    timed_packets: u32,
    /// The sum of these packets' queueing delays.
    total_queueing_delay: Duration,
    /// The least of these packets' queueing delays.
    min_queueing_delay: Duration,
    /// The average queueing delay in the last acknowledgement.
    reported_delay: Duration,
    /// The queueing delay of the last packet exceeds the reported one: its sender should know.
    delay_jumped: bool,
    /// When an acknowledgement last ignored the budget because of such an excess.
    last_jump: Option<Instant>,
}

/// The reasons for which a packet may be acknowledged early.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AckTrigger {
    /// The packet asks for an early acknowledgement.
    pub(crate) ack_soon: bool,
    /// The number is not the expected one.
    pub(crate) gap: bool,
}

impl ReceivedPackets {
    pub(crate) fn new() -> Self {
        Self {
            numbers: ReplayWindow::default(),
            acknowledged: [0; 2],
            largest_arrival: Instant::default(),
            ecn: EcnCounts::default(),
            due: None,
            via: None,
            budget: AckBudget::default(),
            least_difference: LeastDifference::default(),
            timed_packets: 0,
            total_queueing_delay: Duration::ZERO,
            min_queueing_delay: Duration::MAX,
            reported_delay: Duration::ZERO,
            delay_jumped: false,
            last_jump: None,
        }
    }

    /// The number of the next packet, if no packet is lost.
    pub(crate) fn next_number(&self) -> u64 {
        self.numbers.highest().saturating_add(1)
    }

    /// Whether `number` is neither a duplicate nor too old.
    pub(crate) fn is_new(&self, number: u64) -> bool {
        number != 0 && !self.numbers.contains(number)
    }

    /// Records the number of a packet that is new, and the ECN field with which it arrived.
    pub(crate) fn insert(&mut self, now: Instant, number: u64, ecn: Ecn) {
        if number > self.numbers.highest() {
            self.largest_arrival = now;
        }
        self.numbers.insert(number);
        self.ecn.add(ecn);
    }

    /// Records the arrival of a packet that the peer sent at `time` by its clock. If later packets
    /// overtook it, its delay is not that of a queue: they would have met the queue as well.
    pub(crate) fn on_clock(&mut self, now: Instant, time: u32, overtaken: bool) {
        let delay = self.least_difference.on_packet(now, time);
        if overtaken {
            self.delay_jumped = false;
        } else {
            self.on_queueing_delay(delay);
        }
    }

    fn on_queueing_delay(&mut self, delay: Duration) {
        self.delay_jumped = delay > self.reported_delay + DELAY_JUMP;
        self.timed_packets = self.timed_packets.saturating_add(1);
        self.min_queueing_delay = self.min_queueing_delay.min(delay);
        self.total_queueing_delay += delay;
    }

    /// Plans the acknowledgement of an ack-eliciting packet of `ip_bytes`.
    pub(crate) fn plan_ack(&mut self, now: Instant, ip_bytes: usize, trigger: AckTrigger) {
        self.budget.on_packet(now, ip_bytes, trigger.ack_soon);
        let delay = if trigger.gap || self.delay_jumped {
            Duration::ZERO
        } else if trigger.ack_soon {
            ACK_SOON_DELAY
        } else {
            // Less often than the budget allows, to save a part for early acknowledgements.
            self.budget.spacing() * 11 / 10
        };
        let is_first_jump = self.last_jump.is_none_or(|at| now.since(at) > DELAY_JUMP_INTERVAL);
        if self.delay_jumped && is_first_jump {
            self.last_jump = Some(now);
            return self.bring_forward(now);
        }
        self.bring_forward((now + delay).max(self.budget.earliest()));
    }

    fn bring_forward(&mut self, due: Instant) {
        self.due = Some(self.due.map_or(due, |before| before.min(due)));
    }

    /// Plans the acknowledgement of a packet that came through relays. Gaps are usual there, each
    /// hop repairs its own losses, and the acknowledgement costs a packet on each hop.
    pub(crate) fn plan_relayed_ack(&mut self, now: Instant) {
        self.due = Some(self.due.unwrap_or(now + RELAYED_ACK_DELAY));
    }

    /// Plans the acknowledgement of a packet that carries relayed packets. The budget does not
    /// apply: the node that made these packets sends no more until it knows that they arrived.
    pub(crate) fn plan_hop_ack(&mut self, now: Instant, trigger: AckTrigger) {
        let delay = if trigger.gap {
            Duration::ZERO
        } else if trigger.ack_soon {
            ACK_SOON_DELAY
        } else {
            ACK_DELAY
        };
        let earliest = self.budget.last.map_or(now, |last| last + ACK_SPACING);
        self.bring_forward((now + delay).max(earliest));
    }

    /// When the planned acknowledgement is due.
    pub(crate) fn ack_due(&self) -> Option<Instant> {
        self.due
    }

    /// The acknowledgement to send now, if one is planned. `ack_only`: its packet carries no data.
    pub(crate) fn take_ack(&mut self, now: Instant, link: u8, ack_only: bool) -> Option<Ack> {
        self.due.take()?;
        self.budget.on_ack(now, ack_only);
        let packets = std::mem::take(&mut self.timed_packets).max(1);
        let waited = std::mem::take(&mut self.total_queueing_delay) / packets;
        self.reported_delay = waited;
        let min = std::mem::replace(&mut self.min_queueing_delay, Duration::MAX);
        let ranges = self.ranges();
        self.acknowledged = [self.numbers.highest(), self.acknowledged[0]];
        Some(Ack {
            link,
            delay: now.since(self.largest_arrival),
            waited,
            least_waited: min.min(waited),
            ecn: self.ecn,
            ranges,
        })
    }

    /// The numbers received since the acknowledgement before the last one, or more.
    fn ranges(&self) -> Vec<(u64, u64)> {
        let mut ranges = Vec::new();
        let mut last = self.numbers.highest();
        let since = (self.acknowledged[1] + 1).min(last.saturating_sub(MIN_ACK_SPAN - 1));
        let oldest = since.max(last.saturating_sub(MAX_SENT_PACKETS as u64 - 1)).max(1);
        while last >= oldest && ranges.len() < ACK_RANGES {
            let first = self.numbers.run_start(oldest, last);
            if self.numbers.contains(last) {
                ranges.push((first, last));
            }
            last = first - 1;
        }
        ranges
    }
}

/// Limits acknowledgements to a fraction of the return path, which is assumed to be as fast as the
/// path of the received packets.
#[derive(Debug, Default)]
struct AckBudget {
    /// When the budget has paid for all acknowledgements so far.
    paid: Instant,
    last: Option<Instant>,
    /// Rate at which packets arrive from a sender that has more to send, in IP bytes per second.
    arrival_rate: Option<f64>,
    train: Option<PacketTrain>,
}

/// Packets since the last acknowledgement whose sender had more to send.
#[derive(Debug, Clone, Copy)]
struct PacketTrain {
    since: Instant,
    /// IP bytes after the first packet.
    bytes: usize,
}

impl AckBudget {
    fn on_packet(&mut self, now: Instant, ip_bytes: usize, ack_soon: bool) {
        match &mut self.train {
            _ if ack_soon => self.train = None,
            Some(run) => run.bytes += ip_bytes,
            none => *none = Some(PacketTrain { since: now, bytes: 0 }),
        }
    }

    fn spacing(&self) -> Duration {
        let cost = ACK_AIRTIME + self.arrival_rate.map_or(0.0, |rate| ACK_BYTES / rate);
        Duration::from_secs_f64((cost / ACK_SHARE).min(MAX_ACK_INTERVAL))
    }

    /// The earliest time of the next acknowledgement.
    fn earliest(&self) -> Instant {
        let saved = self.paid.before(self.spacing() * (ACK_BURST - 1));
        self.last.map_or(saved, |last| saved.max(last + ACK_SPACING))
    }

    fn on_ack(&mut self, now: Instant, ack_only: bool) {
        self.last = Some(now);
        if ack_only {
            self.paid = self.paid.max(now) + self.spacing();
        }
        let Some(PacketTrain { since, bytes }) = self.train.take() else { return };
        let span = now.since(since).as_secs_f64();
        if bytes >= MIN_TRAIN_BYTES && span > 0.0 {
            let rate = bytes as f64 / span;
            self.arrival_rate =
                Some(self.arrival_rate.map_or(rate, |before| before + (rate - before) / 4.0));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const GAP: AckTrigger = AckTrigger { ack_soon: false, gap: true };

    #[test]
    fn acknowledgements_list_every_range() {
        let mut received = ReceivedPackets::new();
        for number in [1, 2, 4, 7] {
            assert!(received.is_new(number));
            received.insert(Instant(number), number, Ecn::NotCapable);
        }
        assert!(!received.is_new(2) && !received.is_new(0) && received.is_new(3));
        assert_eq!(received.ranges(), [(7, 7), (4, 4), (1, 2)]);
    }

    #[test]
    fn a_number_is_remembered_within_the_window() {
        let mut received = ReceivedPackets::new();
        let last = 3 * MAX_SENT_PACKETS as u64;
        received.insert(Instant(0), 1, Ecn::NotCapable);
        received.insert(Instant(0), last, Ecn::NotCapable);
        assert!(!received.is_new(1) && !received.is_new(2 * MAX_SENT_PACKETS as u64));
        assert!(received.is_new(2 * MAX_SENT_PACKETS as u64 + 1));
        assert_eq!(received.ranges(), [(last, last)]);
    }

    #[test]
    fn an_acknowledgement_covers_the_packets_since_the_one_before_the_last() {
        let mut received = ReceivedPackets::new();
        let mut ack_after = |numbers: std::ops::RangeInclusive<u64>| {
            numbers.for_each(|number| received.insert(Instant(0), number, Ecn::NotCapable));
            received.plan_ack(Instant(0), 100, GAP);
            received.take_ack(Instant(0), 0, true).unwrap().ranges
        };
        assert_eq!(ack_after(1..=5000), [(1, 5000)]);
        assert_eq!(ack_after(5001..=5002), [(1, 5002)]);
        assert_eq!(ack_after(5003..=5004), [(3981, 5004)]);
        assert_eq!(ack_after(5005..=20_000), [(11_809, 20_000)]);
    }

    #[test]
    fn acknowledgements_are_spaced_even_under_reordering() {
        let mut received = ReceivedPackets::new();
        received.insert(Instant(0), 1, Ecn::NotCapable);
        received.plan_ack(Instant(0), 100, GAP);
        assert_eq!(received.ack_due(), Some(Instant(0)));
        received.take_ack(Instant(0), 0, true).unwrap();
        received.plan_ack(Instant(1), 100, GAP);
        assert_eq!(received.ack_due(), Some(Instant(0) + ACK_SPACING));
    }

    #[test]
    fn the_delay_of_an_overtaken_packet_is_no_queueing_delay() {
        let mut received = ReceivedPackets::new();
        for (at_ms, clock_us, overtaken) in [(0, 0, false), (51, 1000, true), (52, 50_000, false)] {
            received.on_clock(Instant(at_ms * MS), clock_us, overtaken);
        }
        received.insert(Instant(52 * MS), 3, Ecn::NotCapable);
        received.plan_ack(Instant(52 * MS), 100, GAP);
        let ack = received.take_ack(Instant(52 * MS), 0, true).unwrap();
        assert!(ack.waited < Duration::from_millis(3), "{:?}", ack.waited);
    }

    #[test]
    fn acknowledgements_take_a_fiftieth_of_the_time() {
        let mut received = ReceivedPackets::new();
        let (mut now, mut number, mut sent) = (0, 0, 0);
        // A gap with every packet, at 6 Mbps.
        while now < 10_000 * MS {
            number += 2;
            received.insert(Instant(now), number, Ecn::NotCapable);
            received.plan_ack(Instant(now), 1500, GAP);
            if received.ack_due().is_some_and(|due| due <= Instant(now)) {
                received.take_ack(Instant(now), 0, true);
                sent += 1;
            }
            now += 2 * MS;
        }
        let share = f64::from(sent) * 0.365 / 10_000.0;
        assert!((0.015..0.0205).contains(&share), "{share}");
    }
}
