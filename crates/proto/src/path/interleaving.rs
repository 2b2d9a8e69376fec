// SPDX-License-Identifier: Apache-2.0
//! Interleaving: while urgent messages are sent over a slow path, packets of other messages are cut
//! smaller, so that an urgent message waits for a shorter packet (the idea of RFC 2686).
//!
//! Interleaving applies where the bottleneck is far and its rate is steady, like that of a modem. The rates
//! with and without interleaving are compared. Where each packet has a fixed cost, as on 802.11, smaller
//! packets carry less, and interleaving is suspended.

use crate::path::policy::URGENT;
use crate::rate::FULL_PACKET;
use crate::time::{Duration, Instant, serialization_time};

/// Interleaving ends when no urgent message was sent for this time: a laser sends every 20 to 100 ms.
const URGENT_MEMORY: Duration = Duration::from_secs(1);
/// Serialization time of a packet that is cut. It limits a link to 602 such packets per second, whatever rate
/// a lying peer reports.
const PACKET_TIME: Duration = Duration::from_micros(1660);
/// Least IP bytes of a packet that is cut. About 75 bytes of headers then cost 12 % of the rate. In full
/// packets, headers cost 5 %.
const MIN_BYTES: usize = 625;
/// Cutting begins only if the cut packets are at most this large.
const BEGIN_BYTES: usize = FULL_PACKET * 2 / 3;
/// Cutting ends when cut packets would be larger than this.
const END_BYTES: usize = FULL_PACKET * 4 / 5;
/// Packets are not cut on a path whose round trip is longer than the time of this many full
/// packets. There the wait for one packet matters little, and additional headers would only cost
/// bytes.
const MAX_RTT_PACKETS: u32 = 8;
/// Time with full packets in which the controller settles, before packets are cut.
const SETTLE_TIME: Duration = Duration::from_millis(500);
/// Time after which the rate of cut packets is compared with that of full packets, or the other way
/// round.
const COMPARE_TIME: Duration = Duration::from_secs(1);
/// Time over which the rate is averaged.
const AVERAGING_TIME: Duration = Duration::from_millis(250);
/// If cut packets reach less than this part of the rate of full packets, they cost too much. The rate of a
/// steady path varies by 2 %.
const MIN_RATE_RATIO: f64 = 0.94;
/// Interleaving is suspended where a larger fraction of packets is lost. There an urgent message waits for
/// repairs rather than for a packet, and a message of more packets loses more of them.
const MAX_LOSS: f64 = 0.03;
/// Time without interleaving after losses, and after the first comparison that showed a cost. This time
/// doubles with each further comparison that shows a cost.
const MIN_SUSPENSION: Duration = Duration::from_secs(8);
/// Longest time without interleaving after such a comparison.
const MAX_SUSPENSION: Duration = Duration::from_secs(64);

/// Rates are in bits per second of IP packets.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Phase {
    /// Packets are full.
    Whole,
    /// Packets are cut. `reference` is the rate of full packets before, or the highest rate of cut
    /// packets since if that is higher.
    Cut { reference: f64 },
    /// Packets are full again, to find out whether cutting caused a fall of the rate. `cut` is the
    /// rate of the cut packets.
    Check { cut: f64 },
}

/// Decides whether packets of a link are cut, and to what size.
#[derive(Debug)]
pub(crate) struct Interleaving {
    phase: Phase,
    /// When the phase began; `None` while the rate of the path is not known.
    since: Option<Instant>,
    /// The averaged rate.
    rate: f64,
    rate_at: Instant,
    urgent_at: Option<Instant>,
    suspension: Duration,
    suspended_until: Instant,
}

impl Default for Interleaving {
    fn default() -> Self {
        Self {
            phase: Phase::Whole,
            since: None,
            rate: 0.0,
            rate_at: Instant::default(),
            urgent_at: None,
            suspension: Duration::ZERO,
            suspended_until: Instant::default(),
        }
    }
}

impl Interleaving {
    /// Whether cutting helps an urgent message much on a path of this rate in bits per second and this round
    /// trip.
    pub(crate) fn helps(rate_bps: u64, rtt: Duration) -> bool {
        rtt <= serialization_time(FULL_PACKET, rate_bps) * MAX_RTT_PACKETS
    }

    /// Records that messages of this priority were sent.
    pub(crate) fn on_sent(&mut self, now: Instant, priority: u8) {
        if priority >= URGENT {
            self.urgent_at = Some(now);
        }
    }

    /// Takes the rate of the link's controller after a report; `None` if the controller does not limit the
    /// link, or has not found the rate. `helps`: the path has a steady rate and a short round trip. `loss`:
    /// the fraction of packets that is lost.
    pub(crate) fn on_report(
        &mut self,
        now: Instant,
        rate_bps: Option<u64>,
        helps: bool,
        loss: f64,
    ) {
        if loss > MAX_LOSS {
            self.suspended_until = self.suspended_until.max(now + MIN_SUSPENSION);
            self.phase = Phase::Whole;
        }
        let Some(rate) = rate_bps.map(|it| it as f64) else {
            (self.phase, self.since) = (Phase::Whole, None);
            return;
        };
        let Some(since) = self.since else {
            (self.rate, self.rate_at, self.since) = (rate, now, Some(now));
            return;
        };
        let weight = now.since(self.rate_at).as_secs_f64() / AVERAGING_TIME.as_secs_f64();
        self.rate += weight.min(1.0) * (rate - self.rate);
        self.rate_at = now;
        let phase = self.next_phase(now, now.since(since), helps);
        if std::mem::discriminant(&phase) != std::mem::discriminant(&self.phase) {
            self.since = Some(now);
        }
        self.phase = phase;
    }

    /// The phase after the present phase, which has lasted for `age`.
    fn next_phase(&mut self, now: Instant, age: Duration, helps: bool) -> Phase {
        let is_active = self.urgent_at.is_some_and(|at| now.since(at) <= URGENT_MEMORY);
        let bytes = self.cut_bytes();
        match self.phase {
            Phase::Whole => {
                let begins = is_active && helps && bytes <= BEGIN_BYTES;
                let begins = begins && age >= SETTLE_TIME && now >= self.suspended_until;
                if begins { Phase::Cut { reference: self.rate } } else { Phase::Whole }
            }
            Phase::Cut { .. } if !is_active || bytes > END_BYTES => Phase::Whole,
            Phase::Cut { reference }
                if age >= COMPARE_TIME && self.rate < MIN_RATE_RATIO * reference =>
            {
                Phase::Check { cut: self.rate }
            }
            Phase::Cut { reference } => Phase::Cut { reference: reference.max(self.rate) },
            Phase::Check { .. } if age < COMPARE_TIME => self.phase,
            Phase::Check { cut } => {
                if cut < MIN_RATE_RATIO * self.rate {
                    self.suspension = (self.suspension * 2).clamp(MIN_SUSPENSION, MAX_SUSPENSION);
                    self.suspended_until = now + self.suspension;
                }
                Phase::Whole
            }
        }
    }

    /// IP bytes of a packet that is cut.
    fn cut_bytes(&self) -> usize {
        // A cast saturates.
        ((self.rate * PACKET_TIME.as_secs_f64() / 8.0) as usize).max(MIN_BYTES)
    }

    /// Whether packets are cut.
    pub(crate) fn is_on(&self) -> bool {
        matches!(self.phase, Phase::Cut { .. })
    }

    /// Maximum size, in IP bytes, of a packet whose first message has this priority; `None` without a limit.
    pub(crate) fn limit(&self, priority: u8) -> Option<usize> {
        (self.is_on() && priority < URGENT).then(|| self.cut_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LASER: u8 = 200;
    const BULK: u8 = 20;
    const STEP: Duration = Duration::from_millis(20);

    /// Simulates a laser, and reports of the rate that `rate` gives for cut or full packets. Returns the
    /// number of steps in which packets were cut.
    fn run(
        it: &mut Interleaving,
        now: &mut Instant,
        steps: u32,
        rate: impl Fn(bool) -> u64,
    ) -> u32 {
        (0..steps)
            .map(|_| {
                *now = *now + STEP;
                it.on_sent(*now, LASER);
                it.on_report(*now, Some(rate(it.is_on())), true, 0.01);
                u32::from(it.is_on())
            })
            .sum()
    }

    fn start() -> (Interleaving, Instant) {
        (Interleaving::default(), Instant(1_000_000_000))
    }

    #[test]
    fn packets_are_cut_as_the_rate_requires_and_within_bounds() {
        for (mbps, bytes) in [(0, Some(625)), (1, Some(625)), (4, Some(830)), (6, None)] {
            let (mut it, mut now) = start();
            assert_eq!(it.limit(BULK), None, "nothing is known yet");
            run(&mut it, &mut now, 100, |_| mbps * 1_000_000);
            assert_eq!(it.limit(BULK), bytes, "{mbps} Mbps");
            assert_eq!(it.limit(LASER), None, "urgent messages are never cut");
        }
    }

    #[test]
    fn a_lying_peer_cannot_cause_a_flood_of_small_packets() {
        let (mut it, mut now) = start();
        for rate in (0..64).map(|bit| 1 << bit).chain([0, u64::MAX]) {
            run(&mut it, &mut now, 100, |_| rate);
            let Some(bytes) = it.limit(BULK) else { continue };
            let per_second = it.rate / 8.0 / bytes as f64;
            assert!(bytes >= MIN_BYTES && per_second < 603.0, "{rate}: {bytes} {per_second}");
        }
    }

    #[test]
    fn packets_are_full_without_urgent_messages() {
        let (mut it, mut now) = start();
        run(&mut it, &mut now, 100, |_| 1_000_000);
        assert!(it.is_on());
        for _ in 0..60 {
            now = now + STEP;
            it.on_report(now, Some(1_000_000), true, 0.0);
        }
        assert!(!it.is_on());
        it.on_sent(now, BULK);
        it.on_report(now, Some(1_000_000), true, 0.0);
        assert!(!it.is_on());
    }

    #[test]
    fn packets_are_full_where_the_rate_is_unsteady_or_the_controller_does_not_limit() {
        let (mut it, mut now) = start();
        for _ in 0..100 {
            now = now + STEP;
            it.on_sent(now, LASER);
            it.on_report(now, Some(1_000_000), false, 0.0);
            assert!(!it.is_on());
        }
        run(&mut it, &mut now, 100, |_| 1_000_000);
        assert!(it.is_on());
        it.on_report(now, None, true, 0.0);
        assert!(!it.is_on());
    }

    #[test]
    fn packets_are_full_where_many_are_lost() {
        let (mut it, mut now) = start();
        run(&mut it, &mut now, 100, |_| 1_000_000);
        assert!(it.is_on());
        it.on_report(now, Some(1_000_000), true, 0.05);
        assert!(!it.is_on());
        assert_eq!(run(&mut it, &mut now, 350, |_| 1_000_000), 0, "for 8 s");
        assert!(run(&mut it, &mut now, 100, |_| 1_000_000) > 0);
    }

    #[test]
    fn a_cost_of_each_packet_is_found_and_tried_ever_less_often() {
        let (mut it, mut now) = start();
        let rate = |cut| if cut { 800_000 } else { 1_000_000 };
        let minute = |it: &mut _, now: &mut _| run(it, now, 3000, rate);
        let (first, second) = (minute(&mut it, &mut now), minute(&mut it, &mut now));
        assert!((100..250).contains(&first), "{first} of 3000");
        assert!(second <= 60, "{second} of 3000");
    }

    #[test]
    fn a_path_that_became_slower_is_not_taken_for_a_cost_of_each_packet() {
        let (mut it, mut now) = start();
        run(&mut it, &mut now, 200, |_| 2_000_000);
        assert!(it.is_on());
        let cut = run(&mut it, &mut now, 400, |_| 1_000_000);
        assert!(cut > 280, "{cut} of 400");
    }
}
