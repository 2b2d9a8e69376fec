// SPDX-License-Identifier: Apache-2.0
//! Queues that mark packets instead of dropping them (ECN), and the controller in front of them.

use super::{Auto, PACKET, Path, mean, run, serialization_time};
use crate::time::{Duration, Instant};

/// What marks packets.
#[derive(Debug, Clone, Copy)]
pub(super) enum Marking {
    None,
    /// Marks packets that exceed this rate in bits per second and a burst of 20 000 bytes.
    Policer(u64),
    /// Marks packets that wait for longer than this.
    Step(Duration),
    /// RFC 8289: marks ever more often while the delay exceeds 5 ms.
    Codel,
}

const BURST: f64 = 20_000.0;
const TARGET: Duration = Duration::from_millis(5);
const INTERVAL: Duration = Duration::from_millis(100);

#[derive(Debug, Default)]
pub(super) struct Marker {
    /// Bytes in excess of the rate of a policer.
    excess: f64,
    at: Instant,
    above_until: Option<Instant>,
    next: Option<Instant>,
    count: u32,
    packets: u64,
    marked: u64,
}

impl Marker {
    /// Whether a packet is marked if it is sent now and leaves the queue after `waited`.
    pub(super) fn marks(&mut self, now: Instant, waited: Duration, marking: Marking) -> bool {
        let is_marked = match marking {
            Marking::None => false,
            Marking::Step(most) => waited > most,
            Marking::Policer(rate_bps) => {
                let paid = now.since(self.at).as_secs_f64() * rate_bps as f64 / 8.0;
                (self.excess, self.at) = ((self.excess - paid).max(0.0), now);
                let exceeds = self.excess + PACKET as f64 > BURST;
                self.excess += if exceeds { 0.0 } else { PACKET as f64 };
                exceeds
            }
            Marking::Codel => self.codel(now + waited, waited),
        };
        self.packets += 1;
        self.marked += u64::from(is_marked);
        is_marked
    }

    fn codel(&mut self, leaves: Instant, waited: Duration) -> bool {
        if waited < TARGET {
            (self.above_until, self.next) = (None, None);
            return false;
        }
        if leaves < *self.above_until.get_or_insert(leaves + INTERVAL) {
            return false;
        }
        let due = self.next.unwrap_or(leaves);
        if leaves < due {
            return false;
        }
        self.count = if self.next.is_some() { self.count + 1 } else { 1.max(self.count / 2) };
        self.next = Some(due + INTERVAL.mul_f64(1.0 / f64::from(self.count).sqrt()));
        true
    }
}

#[test]
fn a_marking_policer_is_obeyed_without_a_loss() {
    for rate_bps in [1_000_000, 4_000_000, 20_000_000] {
        let path = Path { marking: Marking::Policer(rate_bps), ..Path::new(100_000_000) };
        let seconds = run(&mut Auto::default(), &path, 30, 0..0);
        let policed = Path::new(rate_bps);
        let used = mean(&seconds[5..], &policed);
        println!("policer {rate_bps}: {used}");
        assert!((0.9..1.01).contains(&used), "{rate_bps}: {used}: {seconds:?}");
    }
}

#[test]
fn a_queue_that_marks_above_a_step_is_short_and_never_idle() {
    for rate_bps in [6_000_000, 24_000_000, 54_000_000] {
        for step_us in [1000, 2000, 5000] {
            let step = Duration::from_micros(step_us);
            let path = Path { marking: Marking::Step(step), ..Path::new(rate_bps) };
            let seconds = run(&mut Auto::default(), &path, 20, 0..0);
            let used = mean(&seconds[2..], &path);
            assert!(used > 0.9, "{rate_bps} {step_us}: {used}: {seconds:?}");
            let most = step + serialization_time(PACKET * 3, rate_bps) + Duration::from_millis(2);
            assert!(seconds[2..].iter().all(|it| it.worst_delay < most), "{seconds:?}");
        }
    }
}

#[test]
fn codel_rarely_marks_a_lone_sender() {
    let path = Path { marking: Marking::Codel, ..Path::new(24_000_000) };
    let seconds = run(&mut Auto::default(), &path, 20, 0..0);
    let plain = run(&mut Auto::default(), &Path::new(24_000_000), 20, 0..0);
    assert_eq!(mean(&seconds[1..], &path), mean(&plain[1..], &path));
}

#[test]
fn a_download_that_obeys_marks_and_auto_share_fairly() {
    for rate_bps in [24_000_000, 54_000_000, 100_000_000] {
        for from in [0, 5] {
            let marking = Marking::Codel;
            let path = Path { download: from..60, marking, ..Path::new(rate_bps) };
            let seconds = run(&mut Auto::default(), &path, 80, 0..0);
            let part = mean(&seconds[15..60], &path);
            assert!((0.35..0.65).contains(&part), "{rate_bps} {from}: {part}: {seconds:?}");
            assert!(mean(&seconds[70..], &path) > 0.9, "{rate_bps} {from}: {seconds:?}");
        }
    }
}
