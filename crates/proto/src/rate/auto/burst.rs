// SPDX-License-Identifier: Apache-2.0
//! Bytes that may be sent back to back after an idle time. Pacing protects urgent messages from the queue
//! at the bottleneck. A burst that the bottleneck forwards within a millisecond needs no such
//! protection, and pacing would only make its message late: the estimate of an application that
//! sends little is far below the capacity. The burst therefore grows while bursts cause no queue.

use super::tuning::Tuning;
use crate::rate::controller::{FULL_PACKET, Report};
use crate::recovery::MAX_SENT_PACKETS;
use crate::time::Duration;

/// Maximum number of clear bursts that are needed before the next growth. On a path that is too slow for
/// bursts of two packets, fewer than one message in a hundred is then delayed by a test.
const MAX_NEEDED: u32 = 128;

/// Maximum size of a burst in bytes: half of the packets that the sent-packet table holds. A path on which
/// none of these is queued is faster than the sender.
const MAX_BURST: usize = MAX_SENT_PACKETS / 2 * FULL_PACKET;
/// Maximum size of a burst in bytes after an interruption, when the path may have changed: as much as a fast
/// radio sends in one frame.
const MAX_FIRST_BURST: usize = 64 * 1024;

/// The bursts of a link.
#[derive(Debug)]
pub(super) struct Bursts {
    /// Bytes of a burst, the first packet included.
    allowed: usize,
    /// Clear bursts that are needed before the next growth.
    needed_bursts: u32,
    /// Clear bursts since the last change.
    clear_bursts: u32,
    /// No burst of more than half of `allowed` was reported since it grew.
    untested: bool,
    /// A packet waits for the pacing rate or the window: the application is not idle.
    held_back: bool,
    /// The burst in progress, from the end of an idle time until all of its packets are reported.
    current: Option<Burst>,
}

/// The packets that are sent without pauses after an idle time.
#[derive(Debug, Clone, Copy)]
struct Burst {
    /// Bytes that may still be sent.
    credit: usize,
    packets: u32,
    /// The application had more to send than the credit allowed.
    exhausted: bool,
    /// Packets of the link acknowledged since the burst began.
    acked: u64,
    /// Packets of the link lost since the burst began.
    lost: u64,
    /// Packets of the link marked since the burst began.
    marked: u64,
    /// The sum of the queueing delays since the burst began.
    total_delay: Duration,
    /// The least queueing delay since the burst began.
    least_delay: Duration,
}

impl Default for Bursts {
    fn default() -> Self {
        Self {
            allowed: FULL_PACKET,
            needed_bursts: 1,
            clear_bursts: 0,
            untested: false,
            held_back: false,
            current: None,
        }
    }
}

impl Bursts {
    /// Begins a burst if the link was idle: the outcome of all packets is known, and another packet
    /// is to be sent.
    pub(super) fn on_idle(&mut self) {
        if self.held_back {
            return;
        }
        self.current = Some(Burst {
            credit: self.allowed - FULL_PACKET,
            packets: 0,
            exhausted: false,
            acked: 0,
            lost: 0,
            marked: 0,
            total_delay: Duration::ZERO,
            least_delay: Duration::MAX,
        });
    }

    /// Whether a packet after the first one may be sent immediately.
    pub(super) fn admits(&self, bytes: usize) -> bool {
        self.current.is_some_and(|burst| burst.packets > 0 && burst.credit >= bytes)
    }

    /// Whether another packet may immediately follow those of the burst.
    pub(super) fn is_open(&self) -> bool {
        self.current.is_some_and(|burst| burst.packets > 0 && burst.credit > 0)
    }

    /// Records that the pacing rate or the window held back a packet.
    pub(super) fn on_held_back(&mut self) {
        self.held_back = true;
        if let Some(burst) = &mut self.current {
            (burst.credit, burst.exhausted) = (0, true);
        }
    }

    /// Records that a packet was sent. Returns whether it is a packet that [`Self::admits`] allows.
    pub(super) fn on_sent(&mut self, bytes: usize) -> bool {
        let admitted = self.admits(bytes);
        self.held_back = false;
        if let Some(burst) = self.current.as_mut().filter(|it| admitted || it.packets == 0) {
            burst.credit -= if admitted { bytes } else { 0 };
            burst.packets += 1;
        }
        admitted
    }

    /// Adapts the size of the next burst when all packets of this burst are reported. The delays
    /// exclude external delay. `baseline`: the fraction of packets that the path loses without a
    /// queue.
    pub(super) fn on_report(&mut self, report: &Report, baseline: f64, tuning: &Tuning) {
        let Some(burst) = self.current.as_mut().filter(|it| it.packets > 0) else { return };
        burst.add(report);
        // Before the burst, the outcome of all packets was known.
        if burst.acked + burst.lost < u64::from(burst.packets) {
            if burst.is_queued(tuning) || burst.marked > 0 {
                burst.credit = 0;
            }
            return;
        }
        let burst = *burst;
        self.current = None;
        let is_lossy = burst.lost as f64 > burst.most_random_losses(baseline);
        if burst.is_queued(tuning) || is_lossy || burst.marked > 0 {
            self.shrink();
        } else {
            self.on_clear(&burst);
        }
    }

    /// Limits the next burst after an interruption: the path may be slower than before.
    pub(super) fn on_interruption(&mut self) {
        self.allowed = self.allowed.min(MAX_FIRST_BURST);
        if let Some(burst) = &mut self.current {
            burst.credit = 0;
        }
    }

    fn shrink(&mut self) {
        self.allowed = (self.allowed / 2).max(FULL_PACKET);
        self.needed_bursts = (self.needed_bursts * 2).min(MAX_NEEDED);
        (self.clear_bursts, self.untested) = (0, false);
    }

    fn on_clear(&mut self, burst: &Burst) {
        if self.untested && burst.packets as usize * FULL_PACKET > self.allowed / 2 {
            (self.needed_bursts, self.untested) = ((self.needed_bursts / 2).max(1), false);
        }
        self.clear_bursts += u32::from(burst.exhausted);
        if self.clear_bursts >= self.needed_bursts && self.allowed < MAX_BURST {
            self.allowed = (self.allowed * 2).min(MAX_BURST);
            (self.clear_bursts, self.untested) = (0, true);
        }
    }
}

impl Burst {
    fn add(&mut self, report: &Report) {
        self.acked += report.acked_packets;
        self.lost += report.lost_packets;
        self.marked += report.marked_packets;
        self.total_delay += report.queueing_delay.mul_f64(report.acked_packets as f64);
        self.least_delay = self.least_delay.min(report.min_queueing_delay);
    }

    /// The most packets of the burst that the path may lose without a queue, with a margin for
    /// chance.
    fn most_random_losses(&self, baseline: f64) -> f64 {
        let expected = baseline * f64::from(self.packets);
        expected + 2.0 * (expected * (1.0 - baseline)).sqrt()
    }

    /// Whether the packets of the burst were queued one behind the other. Then their average delay exceeds
    /// that of the least delayed packet, and the excess of the last packet is about twice the average. Small
    /// packets are also faster than large ones.
    fn is_queued(&self, tuning: &Tuning) -> bool {
        let average = self.total_delay.mul_f64(1.0 / self.acked.max(1) as f64);
        average.saturating_sub(self.least_delay).as_secs_f64() > tuning.burst_delay
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes a report of these queueing delays, in microseconds, and of these losses.
    fn report(delays_us: &[u64], lost_packets: u64) -> Report {
        let us = Duration::from_micros;
        Report {
            arrival_micros: 0,
            sent_bytes: 0,
            sent_packets: 0,
            acked_packets: delays_us.len() as u64,
            lost_packets,
            loss_runs: lost_packets,
            spurious_losses: 0,
            marked_packets: 0,
            queueing_delay: us(delays_us.iter().sum::<u64>() / delays_us.len() as u64),
            min_queueing_delay: us(delays_us.iter().copied().min().unwrap_or_default()),
            since_sent: Duration::ZERO,
            rtt: Duration::from_millis(1),
            outstanding_bytes: 0,
        }
    }

    /// Sends packets until one is held back; returns their number.
    fn send(bursts: &mut Bursts) -> usize {
        bursts.on_idle();
        assert!(!bursts.on_sent(1500), "the first packet is paced");
        let more = (0..10_000).take_while(|_| bursts.on_sent(1500)).count();
        bursts.on_held_back();
        // The next packet of the message ends the wait.
        bursts.on_sent(1500);
        1 + more
    }

    /// Makes bursts of this many packets.
    fn bursts(packets: usize) -> Bursts {
        Bursts { allowed: packets * 1500, ..Bursts::default() }
    }

    #[test]
    fn a_burst_grows_to_its_limit_while_the_path_does_not_queue_it() {
        let (mut bursts, mut sizes) = (Bursts::default(), Vec::new());
        for _ in 0..14 {
            let sent = send(&mut bursts);
            sizes.push(sent);
            bursts.on_report(&report(&vec![1000; sent], 0), 0.0, &Tuning::default());
        }
        let doubled = (0..=11).map(|n| 1 << n);
        let most = MAX_BURST / FULL_PACKET;
        assert_eq!(sizes, doubled.chain([most, most]).collect::<Vec<_>>());
        bursts.on_interruption();
        assert_eq!(send(&mut bursts), MAX_FIRST_BURST / FULL_PACKET, "the path may be another");
    }

    #[test]
    fn a_burst_that_is_queued_or_lost_is_halved() {
        for (bad, baseline, after) in [
            (report(&[0, 2000, 4000, 6000], 0), 0.0, 2),
            (report(&[0, 0, 0], 1), 0.0, 2),
            // A path that loses packets without congestion.
            (report(&[0, 0, 0], 1), 0.1, 8),
            (report(&[0], 3), 0.1, 2),
        ] {
            let mut bursts = bursts(4);
            assert_eq!(send(&mut bursts), 4);
            bursts.on_report(&bad, baseline, &Tuning::default());
            assert_eq!(send(&mut bursts), after);
        }
    }

    #[test]
    fn a_report_of_a_queue_ends_a_burst() {
        let mut bursts = bursts(64);
        bursts.on_idle();
        (0..32).for_each(|_| {
            bursts.on_sent(1500);
        });
        bursts.on_report(&report(&[0, 0, 0], 0), 0.0, &Tuning::default());
        assert!(bursts.is_open() && bursts.admits(1500));
        bursts.on_report(&report(&[1000, 2000, 3000], 0), 0.0, &Tuning::default());
        assert!(!bursts.is_open() && !bursts.admits(1500));
    }

    #[test]
    fn a_slow_path_is_tested_at_growing_intervals() {
        let mut bursts = Bursts::default();
        let tests: Vec<usize> = (0..1000)
            .filter(|_| {
                let sent = send(&mut bursts);
                let delays: Vec<u64> = (0..sent as u64).map(|n| n * 2000).collect();
                bursts.on_report(&report(&delays, 0), 0.0, &Tuning::default());
                sent > 1
            })
            .collect();
        assert!(tests.len() < 15, "{tests:?}");
        assert!(tests.windows(2).skip(8).all(|pair| pair[1] - pair[0] > 100), "{tests:?}");
    }

    #[test]
    fn a_message_within_the_burst_does_not_make_it_grow() {
        let mut bursts = bursts(8);
        bursts.on_idle();
        bursts.on_sent(1500);
        bursts.on_report(&report(&[0], 0), 0.0, &Tuning::default());
        assert_eq!(bursts.allowed, 8 * 1500);
        assert!(!bursts.admits(1), "the burst is over");
    }

    #[test]
    fn a_burst_ends_with_the_report_of_its_last_packet() {
        let mut bursts = bursts(8);
        bursts.on_idle();
        bursts.on_sent(1500);
        bursts.on_sent(1500);
        bursts.on_report(&report(&[0], 0), 0.0, &Tuning::default());
        assert!(bursts.admits(6 * 1500));
        bursts.on_report(&report(&[0], 0), 0.0, &Tuning::default());
        assert!(!bursts.admits(1));
    }
}
