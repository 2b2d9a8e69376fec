// SPDX-License-Identifier: Apache-2.0
//! Probes of the rate. On a path whose delay varies for reasons of its own, delay does not show whether
//! the rate is too high. A probe sends more for a moment: where as much more arrives, the delay is not
//! a queue of ours.

use super::measure::Sample;
use crate::time::{Duration, Instant};

/// The rate of a probe, as a multiple of the estimate.
pub(super) const GAIN: f64 = 1.25;
/// A probe finds capacity if the rate delivered grows by this part of what is sent in addition. In a
/// queue that TCP keeps full, less arrives at a share of more than an eighth.
const DELIVERED: f64 = 0.8;
/// A probe lasts this many times the deviation of the delay, which blurs the rate, within a limit.
const DEVIATIONS: u32 = 100;
const MAX_TIME: Duration = Duration::from_secs(1);
/// A delay that rises by this many deviations, and by the least rise, ends a probe.
const RISE_DEVIATIONS: u32 = 3;
const MIN_RISE: Duration = Duration::from_millis(3);
/// Time without probes after one that found nothing; doubles each time in a row.
const MIN_REST: Duration = Duration::from_secs(2);
const MAX_REST: Duration = Duration::from_secs(32);

/// A probe in progress.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Probe {
    /// When reports begin to show the higher rate, and when they have shown enough of it.
    from: Instant,
    until: Instant,
    /// The estimate before, in bits per second.
    before: f64,
    /// The queueing delay that ends it.
    max_delay: Duration,
    /// Delivered bytes, and the time of their arrival in seconds.
    bytes: f64,
    seconds: f64,
    /// Sum over the packets of the delay in seconds, and their number.
    delay: f64,
    packets: f64,
}

/// What a probe found.
#[derive(Debug, PartialEq)]
pub(super) enum Found {
    /// It goes on.
    Nothing,
    /// The path carries more, in bits per second, with this delay.
    Capacity { rate: f64, delay: Duration },
    /// It does not.
    Limit,
    /// The application sent too little.
    Inconclusive,
}

impl Probe {
    /// `delay` is the present queueing delay, and `deviation` that of it.
    pub(super) fn begin(
        now: Instant,
        estimate: f64,
        feedback_time: Duration,
        delay: Duration,
        deviation: Duration,
    ) -> Self {
        let from = now + feedback_time;
        Self {
            from,
            until: from + (feedback_time * 2).max((deviation * DEVIATIONS).min(MAX_TIME)),
            before: estimate,
            max_delay: delay + (deviation * RISE_DEVIATIONS).max(MIN_RISE),
            bytes: 0.0,
            seconds: 0.0,
            delay: 0.0,
            packets: 0.0,
        }
    }

    pub(super) fn add(&mut self, now: Instant, sample: &Sample, rate_limited: bool) -> Found {
        if sample.total_delay > self.max_delay {
            return Found::Limit;
        }
        if now < self.from {
            return Found::Nothing;
        }
        if !rate_limited {
            return Found::Inconclusive;
        }
        let delivered = 1.0 - (sample.lost / sample.packets.max(1.0)).clamp(0.0, 1.0);
        self.bytes += sample.bytes * delivered;
        self.seconds += sample.bytes * 8.0 / sample.delivery_rate;
        self.delay += sample.total_delay.as_secs_f64() * sample.packets;
        self.packets += sample.packets;
        if now < self.until {
            return Found::Nothing;
        }
        let rate = self.bytes * 8.0 / self.seconds;
        if rate < self.before * (1.0 + DELIVERED * (GAIN - 1.0)) {
            return Found::Limit;
        }
        let delay = Duration::from_secs_f64(self.delay / self.packets.max(1.0));
        Found::Capacity { rate: rate.min(self.before * GAIN), delay }
    }
}

/// When probes are due.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    next: Instant,
    rest: Duration,
}

impl Schedule {
    pub(super) fn is_due(&self, now: Instant) -> bool {
        now >= self.next
    }

    pub(super) fn on_end(&mut self, now: Instant, found: &Found) {
        self.rest = match found {
            Found::Capacity { .. } => Duration::ZERO,
            Found::Limit => (self.rest * 2).clamp(MIN_REST, MAX_REST),
            Found::Inconclusive | Found::Nothing => self.rest.max(MIN_REST),
        };
        self.next = now + self.rest;
    }
}

/// Samples over which the noise of the delivery rate is averaged, about.
const NOISE_SAMPLES: f64 = 16.0;

/// By how much delivery rates differ from sample to sample, as a fraction of the estimate. At the
/// bottleneck of a path without jitter, they are all the same.
#[derive(Debug, Default)]
pub(super) struct RateNoise {
    last: f64,
    average: f64,
}

impl RateNoise {
    pub(super) fn add(&mut self, delivered: f64) {
        let last = std::mem::replace(&mut self.last, delivered);
        if last > 0.0 {
            let difference = (delivered - last).abs() / last.max(delivered);
            self.average += (difference - self.average) / NOISE_SAMPLES;
        }
    }

    pub(super) fn get(&self) -> f64 {
        self.average
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// A sample of 10 ms.
    fn sample(rate: f64, delay_ms: u64) -> Sample {
        Sample {
            since: Instant::default(),
            delivery_rate: rate,
            queueing_delay: Duration::ZERO,
            total_delay: Duration::from_millis(delay_ms),
            standing_bytes: 0.0,
            never_empty: true,
            bytes: rate / 800.0,
            packets: 10.0,
            lost: 0.0,
            loss_rows: 0.0,
        }
    }

    /// Probes a path at 10 Mbps whose delay is 8 ms, with samples every 10 ms.
    fn probe(samples: impl Iterator<Item = Sample>, rate_limited: bool) -> Found {
        let ms = Duration::from_millis;
        let mut probe = Probe::begin(Instant(0), 10e6, ms(20), ms(8), ms(1));
        let mut found = samples.zip((1..).map(|n| Instant(n * 10 * MS)));
        found
            .find_map(|(sample, now)| {
                let found = probe.add(now, &sample, rate_limited);
                (found != Found::Nothing).then_some(found)
            })
            .unwrap()
    }

    #[test]
    fn where_more_arrives_the_delay_is_not_ours() {
        let found = probe(std::iter::repeat_with(|| sample(12.4e6, 8)), true);
        let Found::Capacity { rate, delay } = found else { panic!("{found:?}") };
        assert!((rate - 12.4e6).abs() < 1.0 && delay == Duration::from_millis(8));
    }

    #[test]
    fn a_full_path_delivers_no_more_and_its_queue_grows() {
        assert_eq!(probe(std::iter::repeat_with(|| sample(10e6, 8)), true), Found::Limit);
        assert_eq!(probe((0..).map(|n| sample(12.5e6, 8 + 2 * n)), true), Found::Limit);
    }

    #[test]
    fn a_probe_without_traffic_shows_nothing() {
        let found = probe(std::iter::repeat_with(|| sample(1e6, 8)), false);
        assert_eq!(found, Found::Inconclusive);
    }

    #[test]
    fn probes_that_find_nothing_become_rare() {
        let mut schedule = Schedule::default();
        let mut now = Instant(1);
        let mut rests = Vec::new();
        for _ in 0..6 {
            schedule.on_end(now, &Found::Limit);
            let rest = (0..100).find(|s| schedule.is_due(now + Duration::from_secs(*s))).unwrap();
            rests.push(rest);
            now = now + Duration::from_secs(rest);
        }
        assert_eq!(rests, [2, 4, 8, 16, 32, 32]);
        schedule.on_end(now, &Found::Capacity { rate: 1e6, delay: Duration::ZERO });
        assert!(schedule.is_due(now));
    }

    #[test]
    fn only_irregular_arrivals_are_noise() {
        let mut noise = RateNoise::default();
        (0..100).for_each(|_| noise.add(0.99));
        assert!(noise.get() < 0.001);
        (0..100).for_each(|n| noise.add(if n % 2 == 0 { 0.9 } else { 1.1 }));
        assert!(noise.get() > 0.15);
    }
}
