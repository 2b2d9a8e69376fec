// SPDX-License-Identifier: Apache-2.0
//! Validates ECN on a link, as RFC 9000, section 13.4.2, does: a path that clears the field, drops packets
//! with it or marks everything must not be worse than a path without ECN.

use crate::ecn::{Ecn, EcnCounts, EcnUse};
use crate::time::{Duration, Instant};

/// ECN-capable packets of a test. During a test, every other ack-eliciting packet is ECN-capable.
/// The packets between them show whether the path carries anything.
const TEST_PACKETS: u64 = 8;
/// A path counts as one that drops ECN-capable packets if all such packets of the test are lost,
/// while this many of the packets between them arrive.
const MIN_OTHERS_ACKED: u64 = 4;
/// A path counts as one that marks everything, whatever the rate, after at least this many packets
/// without an unmarked one.
const ALL_MARKED_PACKETS: u64 = 64;
/// Least time without an unmarked packet before a path counts as one that marks everything. The
/// rate has halved several times by then.
const ALL_MARKED_TIME: Duration = Duration::from_secs(3);

/// ECN on the sending side of a link. The counts continue through the session.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct EcnPath {
    state: EcnUse,
    /// ECN-capable packets sent.
    sent: u64,
    /// The last counts of the peer.
    counts: EcnCounts,
    /// The largest packet number in the acknowledgement with these counts.
    largest: u64,
    /// The time at which an unmarked packet last arrived, and the count of marked packets then.
    last_unmarked: Option<(Instant, u64)>,
    test: Test,
}

/// What the packets since the beginning of the last test showed.
#[derive(Debug, Clone, Copy, Default)]
struct Test {
    /// The number of the first packet of the test.
    first: u64,
    /// Packets that the peer had counted before the test.
    counted_before: u64,
    /// ECN-capable packets sent while testing.
    capable: u64,
    /// ECN-capable packets acknowledged, also after the test.
    acked: u64,
    /// ECN-capable packets lost.
    lost: u64,
    /// Packets without ECN that were sent between the ECN-capable packets.
    others: u64,
    /// The number of the last packet without ECN.
    last_other: u64,
    /// Packets without ECN that were acknowledged.
    others_acked: u64,
}

impl EcnPath {
    pub(crate) fn state(&self) -> EcnUse {
        self.state
    }

    /// Begins a test with the next packet, because the path may have changed.
    pub(crate) fn test(&mut self, next_number: u64) {
        self.state = EcnUse::Testing;
        self.last_unmarked = None;
        self.test =
            Test { first: next_number, counted_before: self.counts.total(), ..Test::default() };
    }

    /// Returns the ECN field of the next packet, whose number is `number`, and counts the packet as
    /// sent.
    pub(crate) fn on_sent(&mut self, number: u64, eliciting: bool) -> Ecn {
        let is_capable = match self.state {
            EcnUse::Off => false,
            EcnUse::On => true,
            EcnUse::Testing => {
                let test = &mut self.test;
                let is_part = eliciting && test.capable < TEST_PACKETS;
                let is_capable = is_part && test.others > test.capable;
                if is_capable {
                    test.capable += 1;
                } else if is_part {
                    (test.others, test.last_other) = (test.others + 1, number);
                }
                is_capable
            }
        };
        self.sent += u64::from(is_capable);
        if is_capable { Ecn::Capable } else { Ecn::NotCapable }
    }

    /// Records that an ack-eliciting packet was acknowledged for the first time.
    pub(crate) fn on_acked(&mut self, number: u64, ecn: Ecn) {
        let test = &mut self.test;
        match ecn {
            _ if number < test.first => {}
            Ecn::NotCapable => test.others_acked += u64::from(number <= test.last_other),
            _ => test.acked += 1,
        }
    }

    /// Records that an ack-eliciting packet was declared lost.
    pub(crate) fn on_lost(&mut self, number: u64, ecn: Ecn, next_number: u64) {
        let test = &mut self.test;
        if self.state != EcnUse::Testing || ecn == Ecn::NotCapable || number < test.first {
            return;
        }
        test.lost += 1;
        if test.lost == TEST_PACKETS && test.acked == 0 {
            if test.others_acked >= MIN_OTHERS_ACKED {
                self.state = EcnUse::Off;
            } else {
                self.test(next_number);
            }
        }
    }

    /// Takes the counts of an acknowledgement. Returns the number of packets marked since the last counts: 0
    /// if these counts are older, or cannot be true.
    pub(crate) fn on_counts(&mut self, now: Instant, largest: u64, counts: EcnCounts) -> u64 {
        if largest <= self.largest || self.state == EcnUse::Off {
            return 0;
        }
        let before = self.counts;
        let falls = counts.capable < before.capable || counts.marked < before.marked;
        if falls || counts.total() > self.sent {
            self.state = EcnUse::Off;
            return 0;
        }
        (self.largest, self.counts) = (largest, counts);
        if self.test.acked > counts.total() - self.test.counted_before {
            self.state = EcnUse::Off;
            return 0;
        }
        if self.state == EcnUse::Testing && self.test.acked > 0 {
            self.state = EcnUse::On;
        }
        if self.marks_everything(now, before) {
            self.state = EcnUse::Off;
            return 0;
        }
        counts.marked - before.marked
    }

    fn marks_everything(&mut self, now: Instant, before: EcnCounts) -> bool {
        let marked = self.counts.marked;
        if self.counts.capable > before.capable || self.last_unmarked.is_none() {
            self.last_unmarked = Some((now, marked));
        }
        self.last_unmarked.is_some_and(|(since, then)| {
            marked - then >= ALL_MARKED_PACKETS && now.since(since) >= ALL_MARKED_TIME
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant(ms * 1_000_000)
    }

    /// Sends ack-eliciting packets over a path that returns the field with which each arrives; `None`
    /// if it is lost. Each is acknowledged, or lost, before the next.
    fn send(
        path: &mut EcnPath,
        numbers: std::ops::Range<u64>,
        mut carry: impl FnMut(Ecn) -> Option<Ecn>,
    ) -> u64 {
        let (mut counts, mut marks) = (path.counts, 0);
        for number in numbers {
            let ecn = path.on_sent(number, true);
            match carry(ecn) {
                Some(arrived) => {
                    counts.add(arrived);
                    path.on_acked(number, ecn);
                    marks += path.on_counts(at(number * 10), number, counts);
                }
                None => path.on_lost(number, ecn, number + 1),
            }
        }
        marks
    }

    #[test]
    fn a_path_that_carries_the_field_is_used_after_one_packet() {
        let mut path = EcnPath::default();
        assert_eq!(path.on_sent(1, true), Ecn::NotCapable, "the first packet arrives in any case");
        assert_eq!(path.on_sent(2, false), Ecn::NotCapable);
        assert_eq!(send(&mut path, 3..5, Some), 0);
        assert_eq!(path.state(), EcnUse::On);
        let mut number = 0;
        let marks = send(&mut path, 5..105, |_| {
            number += 1;
            Some(if number % 4 == 0 { Ecn::Marked } else { Ecn::Capable })
        });
        assert_eq!((marks, path.counts.marked, path.state()), (25, 25, EcnUse::On));
    }

    #[test]
    fn a_path_that_clears_the_field_is_not_used() {
        let mut path = EcnPath::default();
        send(&mut path, 1..5, |_| Some(Ecn::NotCapable));
        assert_eq!((path.state(), path.sent), (EcnUse::Off, 1));
        assert_eq!(path.on_sent(5, true), Ecn::NotCapable);
        path.test(6);
        send(&mut path, 6..10, Some);
        assert_eq!(path.state(), EcnUse::On, "another path");
        send(&mut path, 10..20, |_| Some(Ecn::Capable1));
        assert_eq!(path.state(), EcnUse::Off, "this path changed");
    }

    #[test]
    fn a_path_that_drops_capable_packets_is_not_used_and_costs_eight_packets() {
        let mut path = EcnPath::default();
        let mut lost = 0;
        send(&mut path, 1..100, |ecn| {
            lost += u64::from(ecn == Ecn::Capable);
            (ecn == Ecn::NotCapable).then_some(ecn)
        });
        assert_eq!((path.state(), lost), (EcnUse::Off, TEST_PACKETS));
    }

    #[test]
    fn an_outage_does_not_fail_the_ecn_test() {
        let mut path = EcnPath::default();
        send(&mut path, 1..200, |_| None);
        assert_eq!(path.state(), EcnUse::Testing);
        send(&mut path, 200..250, Some);
        assert_eq!(path.state(), EcnUse::On);
    }

    #[test]
    fn impossible_counts_end_the_use_of_ecn() {
        let counts = |capable, marked| EcnCounts { capable, marked };
        for lie in [counts(0, 0), counts(1000, 0), counts(u64::MAX, u64::MAX), counts(0, 9)] {
            let mut path = EcnPath::default();
            send(&mut path, 1..10, Some);
            assert_eq!(path.state(), EcnUse::On);
            assert_eq!((path.on_counts(at(1), 10, lie), path.state()), (0, EcnUse::Off), "{lie:?}");
        }
        let mut path = EcnPath::default();
        send(&mut path, 1..10, Some);
        assert_eq!(path.on_counts(at(1), 5, counts(0, 0)), 0, "older than the last");
        assert_eq!(path.state(), EcnUse::On);
    }

    #[test]
    fn a_path_that_marks_everything_gets_no_capable_packets() {
        let mut path = EcnPath::default();
        let mark = |ecn| Some(if ecn == Ecn::Capable { Ecn::Marked } else { ecn });
        send(&mut path, 1..250, mark);
        assert_eq!(path.state(), EcnUse::On);
        send(&mut path, 250..310, mark);
        assert_eq!(path.state(), EcnUse::Off);
    }
}
