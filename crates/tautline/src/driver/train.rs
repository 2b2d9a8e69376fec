// SPDX-License-Identifier: Apache-2.0
//! Trains: packets that leave in one system call.
//!
//! The protocol counts each packet as in flight when it builds it. Hence a train is never longer than what
//! the controllers allow at that moment, and a packet that the controllers hold back ends the train.

use std::mem::take;
use tautline_proto::Transmit;

/// Maximum packets of a train. Linux before 6.9 takes no more segments (UDP_MAX_SEGMENTS).
const MAX_PACKETS: usize = 64;
/// Maximum bytes of a train. The kernel first builds one IP packet of at most 65 535 bytes from it.
const MAX_BYTES: usize = 65_000;
/// Maximum number of trains per second: a train has only what the link sends within 1 ms. A queue or
/// policer on this machine takes or drops a train as one packet, and a slow link gains nothing from longer
/// trains. After an idle time, a burst that the path forwards without a queue is not paced. Its trains are
/// then not limited.
const MAX_TRAINS_PER_SECOND: u64 = 1000;

/// Packets of one link and class, in the order in which they leave. All have the length of the first, except
/// that the last may be shorter.
#[derive(Debug, Default)]
pub(super) struct Train {
    packets: Vec<Transmit>,
    bytes: usize,
    is_complete: bool,
}

impl Train {
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Whether `next` can leave with the packets so far. `rate_bps` is the pacing rate of the link,
    /// if it has one.
    pub(super) fn can_append(&self, next: &Transmit, rate_bps: Option<u64>) -> bool {
        let Some(first) = self.packets.first() else { return true };
        let route = |it: &Transmit| (it.link, it.remote, it.local, it.class, it.ecn);
        let paced = rate_bps.map_or(u64::MAX, |bps| bps / 8 / MAX_TRAINS_PER_SECOND);
        let max_bytes = paced.min(MAX_BYTES as u64) as usize;
        let has_room =
            self.packets.len() < MAX_PACKETS && self.bytes + next.datagram.len() <= max_bytes;
        let fits = next.datagram.len() <= first.datagram.len();
        !self.is_complete && has_room && fits && next.link.is_some() && route(first) == route(next)
    }

    pub(super) fn push(&mut self, next: Transmit) {
        let first = self.packets.first().map_or(next.datagram.len(), |it| it.datagram.len());
        self.is_complete = next.datagram.len() < first;
        self.bytes += next.datagram.len();
        self.packets.push(next);
    }

    /// Returns the packets, and begins the next train.
    pub(super) fn take_packets(&mut self) -> Vec<Transmit> {
        take(self).packets
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tautline_proto::{Class, Ecn, LinkId, RadioId};

    fn packet(bytes: usize) -> Transmit {
        Transmit {
            radio: RadioId(0),
            link: Some(LinkId(0)),
            remote: ([10, 0, 0, 2], 18470).into(),
            local: None,
            datagram: vec![0; bytes],
            priority: Some(20),
            class: Class::BestEffort,
            dscp: 0,
            ecn: Ecn::Capable,
        }
    }

    fn train(lengths: &[usize]) -> Train {
        let mut train = Train::default();
        for &bytes in lengths {
            assert!(train.can_append(&packet(bytes), None), "{bytes} of {lengths:?}");
            train.push(packet(bytes));
        }
        train
    }

    #[test]
    fn a_train_has_packets_of_one_length_and_a_shorter_one_ends_it() {
        assert!(!train(&[1000, 1000]).can_append(&packet(1001), None));
        assert!(!train(&[1000, 1000, 999]).can_append(&packet(999), None));
        assert_eq!(train(&[1000, 1000, 999]).take_packets().len(), 3);
        let mut next = train(&[1000, 999]);
        next.take_packets();
        assert!(next.is_empty() && next.can_append(&packet(2000), None));
    }

    #[test]
    fn packets_on_another_path_or_with_other_marks_leave_alone() {
        let other: [fn(&mut Transmit); 5] = [
            |it| it.link = Some(LinkId(1)),
            |it| it.remote.set_port(1),
            |it| it.local = Some([10, 0, 0, 1].into()),
            |it| it.class = Class::Voice,
            |it| it.ecn = Ecn::NotCapable,
        ];
        for change in other {
            let mut next = packet(1000);
            change(&mut next);
            assert!(!train(&[1000]).can_append(&next, None), "{next:?}");
        }
        let strangers = Transmit { link: None, ..packet(1000) };
        let mut alone = Train::default();
        alone.push(strangers.clone());
        assert!(
            !alone.can_append(&strangers, None),
            "the listening socket sends each to its address"
        );
    }

    #[test]
    fn on_a_slow_link_each_packet_leaves_alone() {
        let rate = |mbps: u64| Some(mbps * 1_000_000);
        assert!(!train(&[1472]).can_append(&packet(1472), rate(10)));
        assert!(train(&[1472]).can_append(&packet(1472), rate(24)));
        assert!(!train(&[1472; 8]).can_append(&packet(1472), rate(100)));
        assert!(train(&[1472; 43]).can_append(&packet(1472), rate(1000)));
    }

    #[test]
    fn the_limits_of_the_kernel_are_respected() {
        assert!(!train(&[100; MAX_PACKETS]).can_append(&packet(100), None));
        assert!(!train(&[1472; 44]).can_append(&packet(1472), None));
    }
}
