// SPDX-License-Identifier: Apache-2.0
//! Probes of the rate. On a path whose delay varies for reasons of its own, delay does not show whether the
//! rate is too high. A probe sends more for a moment. If as much more arrives, the delay does not come from
//! our own queue.

use super::sample::{GROWING_RATIO, Sample};
use super::tuning::Tuning;
use crate::rate::controller::FULL_PACKET;
use crate::time::{Duration, Instant, serialization_time};

/// A probe lasts this many times the deviation of the delay, divided by the additional part of the rate. The
/// deviation blurs the measured rate.
const DEVIATIONS: f64 = 25.0;
/// The longest time of a probe, unless two feedback times are longer.
const MAX_TIME: Duration = Duration::from_secs(1);
/// A probe ends when the delay has risen by this many deviations, and by at least [`MIN_RISE`].
const RISE_DEVIATIONS: u32 = 3;
/// The least rise of the delay that ends a probe.
const MIN_RISE: Duration = Duration::from_millis(3);
/// The highest rate of a probe, as a multiple of the estimate.
const MAX_GAIN: f64 = 2.0;

/// A probe in progress.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Probe {
    /// When reports begin to show the higher rate.
    from: Instant,
    /// When reports have shown the higher rate for long enough.
    until: Instant,
    /// The estimate before the probe, in bits per second.
    before: f64,
    /// The rate of the probe, as a multiple of that estimate.
    pub(super) gain: f64,
    /// The queueing delay that ends the probe.
    max_delay: Duration,
    /// Bytes that were sent.
    bytes: f64,
    /// Bytes that arrived.
    delivered: f64,
    /// The time in which the bytes were sent, in seconds.
    sent_seconds: f64,
    /// The time in which the bytes arrived, in seconds.
    seconds: f64,
    /// Sum of the delays of all packets, in seconds.
    delay: f64,
    /// Number of these packets.
    packets: f64,
}

/// What a probe found.
#[derive(Debug, PartialEq)]
pub(super) enum ProbeFinding {
    /// The path carries more: `rate`, in bits per second, with this delay.
    SpareCapacity { rate: f64, delay: Duration },
    /// The path carries no more. In a queue that a TCP keeps full, too little of the additional data arrives
    /// if our share is more than an eighth.
    Limit,
    /// The application sent too little.
    Nothing,
}

impl Probe {
    /// `delay` is the present queueing delay, and `deviation` its deviation. `successful_probes` is the number of probes
    /// in a row that found room. Each of them doubles the additional rate of the next.
    pub(super) fn begin(
        now: Instant,
        estimate: f64,
        feedback_time: Duration,
        delay: Duration,
        deviation: Duration,
        successful_probes: u32,
        tuning: &Tuning,
    ) -> Self {
        let from = now + feedback_time;
        let more =
            ((tuning.probe_gain - 1.0) * f64::from(successful_probes).exp2()).min(MAX_GAIN - 1.0);
        let blurred = deviation.mul_f64(DEVIATIONS / more).min(MAX_TIME);
        Self {
            from,
            until: from + (feedback_time * 2).max(blurred),
            before: estimate,
            gain: 1.0 + more,
            max_delay: delay + (deviation * RISE_DEVIATIONS).max(MIN_RISE),
            bytes: 0.0,
            delivered: 0.0,
            sent_seconds: 0.0,
            seconds: 0.0,
            delay: 0.0,
            packets: 0.0,
        }
    }

    /// Adds a sample. Returns the result at the end of the probe.
    pub(super) fn add(
        &mut self,
        now: Instant,
        sample: &Sample,
        limited: bool,
        tuning: &Tuning,
    ) -> Option<ProbeFinding> {
        if sample.total_delay > self.max_delay || sample.marked > 0.0 {
            return Some(ProbeFinding::Limit);
        }
        if now < self.from {
            return None;
        }
        if !limited {
            return Some(ProbeFinding::Nothing);
        }
        self.bytes += sample.bytes;
        self.delivered += sample.bytes * (1.0 - sample.losses.value());
        self.sent_seconds += sample.bytes * 8.0 / sample.send_rate;
        self.seconds += sample.bytes * 8.0 / sample.delivery_rate;
        self.delay += sample.total_delay.as_secs_f64() * sample.losses.packets;
        self.packets += sample.losses.packets;
        if now < self.until {
            return None;
        }
        let sent = self.bytes * 8.0 / self.sent_seconds;
        let rate = self.delivered * 8.0 / self.seconds;
        // The window or the application may have allowed less.
        if sent < self.before * (1.0 + (self.gain - 1.0) / 4.0) {
            return Some(ProbeFinding::Nothing);
        }
        if rate < self.before + tuning.probe_delivered * (sent - self.before) {
            return Some(ProbeFinding::Limit);
        }
        let delay = Duration::from_secs_f64(self.delay / self.packets.max(1.0));
        Some(ProbeFinding::SpareCapacity { rate: rate.min(sent), delay })
    }
}

/// The delay of a sample, if the sample shows that the delay is not our own queue: every packet was delayed,
/// more was sent than had arrived in the previous sample (at the rate `before`), and as much more arrived.
pub(super) fn spare_delay(sample: &Sample, before: f64, tuning: &Tuning) -> Option<Duration> {
    let is_more = sample.send_rate > tuning.probe_gain * before && before > 0.0;
    let arrived = sample.delivery_rate * (1.0 - sample.losses.value());
    let has_room = sample.never_empty && is_more && arrived > GROWING_RATIO * sample.send_rate;
    let packet = serialization_time(FULL_PACKET, sample.delivery_rate as u64);
    has_room.then(|| sample.total_delay.saturating_sub(packet))
}

/// Approximate number of samples over which the noise of the delivery rate is averaged.
const NOISE_SAMPLES: f64 = 16.0;
/// Two delivery rates count as different if they differ by more than this part.
const DIFFERENT: f64 = 0.1;
/// The capacity varies by itself if this share of recent samples differs from the sample before. A
/// path that became slower once shows two or three such samples. A cell that serves its modems in
/// turns shows them all the time.
const VARYING_SHARE: f64 = 0.4;

/// By how much delivery rates differ from sample to sample, as a fraction of the estimate. At the
/// bottleneck of a path without jitter, all samples are equal.
#[derive(Debug, Default)]
pub(super) struct RateNoise {
    last: f64,
    average: f64,
    /// The share of recent samples that differ from the one before.
    different: f64,
}

impl RateNoise {
    pub(super) fn add(&mut self, delivered: f64) {
        let last = std::mem::replace(&mut self.last, delivered);
        if last > 0.0 {
            let difference = (delivered - last).abs() / last.max(delivered);
            let is_different = f64::from(u8::from(difference > DIFFERENT));
            self.different += (is_different - self.different) / NOISE_SAMPLES;
            self.average += (difference - self.average) / NOISE_SAMPLES;
        }
    }

    pub(super) fn get(&self) -> f64 {
        self.average
    }

    /// Whether the capacity varies all the time, and has not changed only once.
    pub(super) fn is_lasting(&self) -> bool {
        self.different > VARYING_SHARE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Probes a path at 10 Mbps whose delay is 8 ms, with samples every 10 ms.
    fn probe(samples: impl Iterator<Item = Sample>, limited: bool) -> ProbeFinding {
        let ms = Duration::from_millis;
        let mut probe = Probe::begin(Instant(0), 10e6, ms(20), ms(8), ms(1), 0, &Tuning::default());
        let mut times = (1..).map(|n| Instant(0) + ms(10 * n));
        let tuning = Tuning::default();
        let mut samples = samples.map_while(|sample| Some((times.next()?, sample)));
        samples.find_map(|(now, sample)| probe.add(now, &sample, limited, &tuning)).unwrap()
    }

    /// A sample of packets sent and delivered at these rates, with a delay.
    fn sample(sent: f64, delivered: f64, delay_ms: u64) -> Sample {
        let total_delay = Duration::from_millis(delay_ms);
        Sample { send_rate: sent, total_delay, ..Sample::steady(delivered) }
    }

    #[test]
    fn a_delay_is_external_if_more_packets_arrive() {
        let found = probe(std::iter::repeat_with(|| sample(12.5e6, 12.4e6, 8)), true);
        let ProbeFinding::SpareCapacity { rate, delay } = found else { panic!("{found:?}") };
        assert!((rate - 12.4e6).abs() < 1.0 && delay == Duration::from_millis(8));
    }

    #[test]
    fn a_full_path_delivers_no_more_and_its_queue_grows() {
        let full = std::iter::repeat_with(|| sample(12.5e6, 10e6, 8));
        assert_eq!(probe(full, true), ProbeFinding::Limit);
        assert_eq!(
            probe((0..).map(|n| sample(12.5e6, 12.5e6, 8 + 2 * n)), true),
            ProbeFinding::Limit
        );
    }

    #[test]
    fn a_probe_without_traffic_shows_nothing() {
        for (sent, limited) in [(1e6, false), (10e6, true)] {
            let found = probe(std::iter::repeat_with(|| sample(sent, sent, 8)), limited);
            assert_eq!(found, ProbeFinding::Nothing);
        }
    }

    #[test]
    fn a_delay_with_spare_capacity_is_not_our_queue() {
        let tuning = Tuning::default();
        let delay = Duration::from_millis(40);
        let sample = |sent, rate, never_empty| Sample {
            send_rate: sent,
            total_delay: delay,
            never_empty,
            ..Sample::steady(rate)
        };
        let packet = Duration::from_micros(1200);
        let shown = |sample: &Sample, before| spare_delay(sample, before, &tuning);
        assert_eq!(shown(&sample(10e6, 10e6, true), 5e6), Some(delay - packet));
        assert_eq!(shown(&sample(10e6, 10e6, true), 0.0), None, "the first round");
        assert_eq!(shown(&sample(10e6, 10e6, true), 9e6), None, "hardly more was sent");
        assert_eq!(shown(&sample(10e6, 8e6, true), 5e6), None, "a queue grows");
        assert_eq!(shown(&sample(10e6, 10e6, false), 5e6), None, "a packet was not delayed");
    }

    #[test]
    fn a_single_change_is_no_variation() {
        let mut noise = RateNoise::default();
        (0..50).for_each(|_| noise.add(1.0));
        [0.1, 0.6, 0.9, 1.0, 1.0, 1.0].into_iter().for_each(|rate| noise.add(rate));
        assert!(!noise.is_lasting() && noise.get() > 0.05);
        (0..50).for_each(|n| noise.add(if n % 3 == 0 { 0.2 } else { 1.1 }));
        assert!(noise.is_lasting());
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
