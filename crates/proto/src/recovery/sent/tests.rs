// SPDX-License-Identifier: Apache-2.0

use super::*;
use crate::delivery::MessageId;
use crate::ecn::EcnCounts;

const MS: u64 = 1_000_000;
const BE: Class = Class::BestEffort;
const ELICITING: AckRequest = AckRequest::Delayed;

fn piece(id: u64) -> Vec<Piece> {
    vec![Piece { message: MessageId(id), range: 0..1 }]
}

fn ack(ranges: &[(u64, u64)]) -> Ack {
    Ack {
        link: 0,
        delay: Duration::ZERO,
        waited: Duration::ZERO,
        least_waited: Duration::ZERO,
        ecn: EcnCounts::default(),
        ranges: ranges.to_vec(),
    }
}

fn ids(pieces: &[Piece]) -> Vec<u64> {
    pieces.iter().map(|p| p.message.0).collect()
}

fn sent_packets(packets: u64) -> SentPackets {
    let mut sent = SentPackets::new();
    for n in 1..=packets {
        assert_eq!(sent.next_number(), n);
        sent.record(Instant(n * MS), BE, piece(n), ELICITING, 100, Ecn::NotCapable);
        sent.on_in_flight(Instant(n * MS), BE, 0);
    }
    sent
}

#[test]
fn the_timer_follows_the_oldest_outstanding_packet_of_each_class() {
    let mut sent = SentPackets::new();
    let classes = [Class::Voice, BE, BE, BE, Class::Voice, BE];
    for (n, class) in (1..).zip(classes) {
        sent.record(Instant(n * MS), class, piece(n), ELICITING, 100, Ecn::NotCapable);
        sent.on_in_flight(Instant(n * MS), class, 0);
    }
    let oldest = |sent: &mut SentPackets| {
        [Class::Voice, BE].map(|class| {
            let index = sent.oldest_outstanding(class)?;
            Some(sent.first + index as u64)
        })
    };
    assert_eq!(oldest(&mut sent), [Some(1), Some(2)]);
    // Number 2 is lost and stays in the table; number 1 is forgotten.
    let outcome = sent.acknowledge(Instant(10 * MS), &ack(&[(3, 4), (1, 1)])).unwrap();
    assert_eq!((ids(&outcome.lost), sent.first), (vec![2], 2));
    assert_eq!(oldest(&mut sent), [Some(5), Some(6)]);
    sent.acknowledge(Instant(11 * MS), &ack(&[(5, 6)])).unwrap();
    assert_eq!((oldest(&mut sent), sent.timer()), ([None, None], None));
    sent.record(Instant(12 * MS), BE, piece(7), ELICITING, 100, Ecn::NotCapable);
    assert_eq!(oldest(&mut sent), [None, Some(7)]);
}

#[test]
fn a_packet_that_later_ones_overtook_is_lost_immediately() {
    let mut sent = sent_packets(4);
    let outcome = sent.acknowledge(Instant(10 * MS), &ack(&[(3, 3), (1, 1)])).unwrap();
    assert_eq!(ids(&outcome.acked), [3, 1]);
    assert_eq!(ids(&outcome.lost), [2]);
}

#[test]
fn a_late_acknowledgement_counts_and_widens_the_reorder_window() {
    let mut sent = sent_packets(4);
    sent.acknowledge(Instant(10 * MS), &ack(&[(3, 3), (1, 1)])).unwrap();
    let late = sent.acknowledge(Instant(11 * MS), &ack(&[(1, 3)])).unwrap();
    assert_eq!((ids(&late.acked), late.spurious_losses), (vec![2], 1));
    for n in 5..=6 {
        sent.record(Instant(12 * MS + n), BE, piece(n), ELICITING, 100, Ecn::NotCapable);
        sent.on_in_flight(Instant(12 * MS + n), BE, 0);
    }
    let now = sent.acknowledge(Instant(13 * MS), &ack(&[(6, 6), (1, 4)])).unwrap();
    assert!(now.lost.is_empty(), "5 may still arrive: {now:?}");
    let at = sent.timer().unwrap();
    assert_eq!(ids(&sent.on_timer(at).lost), [5]);
}

#[test]
fn a_late_packet_that_was_not_declared_lost_widens_the_reorder_window() {
    let mut sent = sent_packets(40);
    sent.acknowledge(Instant(50 * MS), &ack(&[(3, 3), (1, 1)])).unwrap();
    sent.acknowledge(Instant(51 * MS), &ack(&[(1, 3)])).unwrap();
    let before = sent.reorder.get();
    let overtaking = sent.acknowledge(Instant(60 * MS), &ack(&[(11, 11), (1, 9)])).unwrap();
    assert!(overtaking.lost.is_empty(), "the window is open: {overtaking:?}");
    let late = sent.acknowledge(Instant(75 * MS), &ack(&[(1, 11)])).unwrap();
    assert_eq!((ids(&late.acked), late.spurious_losses), (vec![10], 0));
    assert!(sent.reorder.get() > before, "{:?}, {before:?}", sent.reorder.get());
}

#[test]
fn only_losses_detected_by_a_later_packet_are_undone() {
    let mut sent = sent_packets(4);
    sent.acknowledge(Instant(10 * MS), &ack(&[(3, 3), (1, 1)])).unwrap();
    let at = sent.timer().unwrap();
    assert_eq!(ids(&sent.on_timer(at).lost), [4]);
    let late = sent.acknowledge(at, &ack(&[(1, 4)])).unwrap();
    assert_eq!((late.spurious_losses, late.reverted_losses), (2, 1));
}

#[test]
fn the_last_packet_is_lost_when_its_acknowledgement_is_overdue() {
    let mut sent = sent_packets(1);
    let at = sent.timer().unwrap();
    assert!(sent.on_timer(Instant(at.0 - 1)).lost.is_empty());
    assert_eq!(ids(&sent.on_timer(at).lost), [1]);
    assert_eq!(sent.timer(), None);
}

#[test]
fn no_acknowledgement_is_overdue_while_the_driver_holds_the_packet() {
    let mut sent = SentPackets::new();
    for n in 1..=2 {
        sent.record(Instant(0), BE, piece(n), ELICITING, 1500, Ecn::NotCapable);
    }
    sent.on_in_flight(Instant(30 * MS), BE, 1500);
    let first = sent.timer().unwrap();
    assert_eq!(ids(&sent.on_timer(first).lost), [1]);
    sent.on_in_flight(first, BE, 0);
    let second = sent.timer().unwrap();
    assert!(second > first);
    assert_eq!(ids(&sent.on_timer(second).lost), [2]);
}

#[test]
fn a_packet_that_the_driver_held_for_a_pause_does_not_change_the_round_trip() {
    let mut sent = sent_packets(1);
    sent.acknowledge(Instant(5 * MS), &ack(&[(1, 1)])).unwrap();
    let before = *sent.rtt();
    sent.record(Instant(6 * MS), BE, piece(2), ELICITING, 100, Ecn::NotCapable);
    sent.on_in_flight(Instant(906 * MS), BE, 0);
    let outcome = sent.acknowledge(Instant(910 * MS), &ack(&[(1, 2)])).unwrap();
    assert!(outcome.newest.is_some_and(|newest| newest.paused));
    assert_eq!(*sent.rtt(), before);
}

#[test]
fn an_overtaking_packet_of_the_same_class_indicates_a_loss() {
    let mut sent = SentPackets::new();
    for (n, class) in [(1, BE), (2, Class::Voice), (3, BE)] {
        sent.record(Instant(n * MS), class, piece(n), ELICITING, 1000, Ecn::NotCapable);
    }
    sent.on_in_flight(Instant(4 * MS), Class::Voice, 0);
    let outcome = sent.acknowledge(Instant(5 * MS), &ack(&[(2, 2)])).unwrap();
    assert_eq!((ids(&outcome.acked), outcome.kernel_time), (vec![2], Duration::from_millis(2)));
    assert!(outcome.lost.is_empty(), "1 is still in the kernel: {outcome:?}");
    sent.on_in_flight(Instant(6 * MS), BE, 1000);
    let in_kernel = sent.in_kernel.map(|it| it.bytes);
    assert_eq!(in_kernel, [0, 1000, 0, 0]);

    sent.record(Instant(7 * MS), Class::Voice, piece(4), ELICITING, 100, Ecn::NotCapable);
    sent.record(Instant(8 * MS), BE, piece(5), ELICITING, 1000, Ecn::NotCapable);
    for class in [BE, Class::Voice] {
        sent.on_in_flight(Instant(9 * MS), class, 0);
    }
    let outcome = sent.acknowledge(Instant(10 * MS), &ack(&[(5, 5), (1, 3)])).unwrap();
    assert_eq!(ids(&outcome.lost), [4], "a later packet of a lower class has arrived");
}

#[test]
fn an_overdue_packet_of_one_class_does_not_wait_for_another_class() {
    let mut sent = SentPackets::new();
    sent.record(Instant(0), BE, piece(1), ELICITING, 1500, Ecn::NotCapable);
    sent.record(Instant(MS), Class::Voice, piece(2), ELICITING, 100, Ecn::NotCapable);
    sent.on_in_flight(Instant(2 * MS), Class::Voice, 0);
    let at = sent.timer().unwrap();
    assert!(at < Instant(0) + MAX_KERNEL_TIME, "the first is still in the kernel");
    assert_eq!(ids(&sent.on_timer(at).lost), [2]);
}

#[test]
fn acknowledging_a_packet_that_was_never_sent_is_an_error() {
    assert!(sent_packets(2).acknowledge(Instant(MS), &ack(&[(2, 3)])).is_err());
}

#[test]
fn the_sent_packet_table_is_bounded() {
    let mut sent = SentPackets::new();
    let mut evicted = 0;
    for n in 0..MAX_SENT_PACKETS as u64 + 10 {
        evicted += sent.record(Instant(n), BE, piece(n), ELICITING, 100, Ecn::NotCapable).len();
    }
    assert_eq!((evicted, sent.packets.len()), (10, MAX_SENT_PACKETS));
}
