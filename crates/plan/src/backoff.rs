// SPDX-License-Identifier: Apache-2.0
//! The backoff before an attempt: slots, and the packets that other stations send between them.

use super::contention::{CLASSES, Timing};
use super::delays::Delays;

/// Returns ln E[exp(theta B)] of the backoff B before each attempt, one entry per attempt.
pub(super) fn log_means(delays: &Delays<'_>, theta: f64) -> Vec<f64> {
    let (timing, class) = (delays.timing, delays.class);
    let windows = || timing.windows(class).take(delays.failures.len());
    let slot = theta * timing.slot;
    if delays.rivals.iter().all(|stations| *stations == 0.0) {
        return windows().map(|window| log_uniform(slot, window)).collect();
    }
    let longest = windows().last().unwrap_or(0) as usize;
    let mut slots: Vec<f64> = (0..=longest).map(|count| slot * count as f64).collect();
    for sender in (0..CLASSES).filter(|sender| delays.rivals[*sender] > 0.0) {
        // After a packet, a station waits for its own AIFS.
        let packet = timing.aifs(class) + timing.exchange(delays.rival_bytes[sender]);
        let packets = Gaps::between(timing, sender, class, delays.attempts[sender])
            .log_means(theta * packet, longest);
        for (slot, packets) in slots.iter_mut().zip(packets) {
            *slot += delays.rivals[sender] * packets;
        }
    }
    windows().map(|window| log_mean(&slots[..=window as usize])).collect()
}

/// Returns ln of the mean of e^v over the values v.
fn log_mean(values: &[f64]) -> f64 {
    let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if most == f64::INFINITY {
        return most;
    }
    let sum: f64 = values.iter().map(|it| (it - most).exp()).sum();
    most + (sum / values.len() as f64).ln()
}

/// Returns ln of the mean of e^(s n) over n from 0 to `most`.
fn log_uniform(s: f64, most: u32) -> f64 {
    let count = f64::from(most) + 1.0;
    if s.abs() < 1e-12 {
        return 0.0;
    }
    // (e^(s count) - 1) / (e^s - 1), without an overflow.
    let log_expm1 = |x: f64| if x > 30.0 { x } else { x.exp_m1().ln() };
    log_expm1(s * count) - log_expm1(s) - count.ln()
}

/// Slots between two packets of a station, as another station counts them.
struct Gaps {
    /// Fewest slots; negative if the station sends again before the other counts a slot.
    least: i64,
    most: i64,
}

impl Gaps {
    /// Returns the gaps between the packets of a station of class `sender` that sends `attempt` packets per
    /// slot, as a station of class `counter` counts them. With a longer AIFS, the latter counts fewer slots
    /// after each packet.
    fn between(timing: &Timing, sender: usize, counter: usize, attempt: f64) -> Self {
        let first = timing.first_slots();
        let least = 1 + first[sender] as i64 - first[counter] as i64;
        // One window replaces the windows of all attempts; it has their mean.
        let window = (2.0 / attempt - 2.0).round() as i64;
        Self { least, most: least + window }
    }

    /// Returns the probability of a gap of at least `slots`.
    fn gap_probability(&self, slots: usize) -> f64 {
        let longer = (self.most - slots as i64 + 1) as f64 / (self.most - self.least + 1) as f64;
        longer.clamp(0.0, 1.0)
    }

    /// Returns, for spans of 0 to `most` slots that begin at any time, ln E[exp(N x)] of the number N of
    /// packets in the span.
    ///
    /// N is a renewal process with uniform gaps.
    fn log_means(&self, x: f64, most: usize) -> Vec<f64> {
        let weight = x.exp();
        let at_once = 1.0 - (1.0 - self.gap_probability(1)) * weight;
        if at_once <= 0.0 || !weight.is_finite() {
            return vec![f64::INFINITY; most + 1];
        }
        let (least, longest) = (self.least.max(1) as usize, self.most.max(0) as usize);
        let width = (self.most - self.least + 1) as f64;
        // Entry n is the mean number of slots by which a gap exceeds n slots.
        let mut longer = vec![0.0; longest + 1];
        for slots in (0..longest).rev() {
            longer[slots] = longer[slots + 1] + self.gap_probability(slots + 1);
        }
        let mean_gap = longer[0];
        // `renewed`: E[exp(N x)] of spans that begin after a packet. `begun`: its logarithm for spans that
        // begin at any time.
        let mut renewed = PrefixSums::default();
        let mut begun = Vec::with_capacity(most + 1);
        for slots in 0..=most {
            let later = renewed.over(slots, least, longest).0 / width;
            // The first packet is equally likely in each slot up to the shortest gap, and less likely in
            // later slots.
            let (early, _) = renewed.over(slots, 1, least - 1);
            let (late, by_number) = renewed.over(slots, least, longest);
            let falling = (longest as f64 + 1.0 - slots as f64) * late + by_number;
            let some = (early + falling / width) / mean_gap;
            let none = longer.get(slots).copied().unwrap_or(0.0) / mean_gap;
            let mean = none + weight * some;
            begun.push(if mean.is_finite() { mean.ln() } else { f64::INFINITY });
            renewed.push((self.gap_probability(slots + 1) + weight * later) / at_once);
        }
        begun
    }
}

/// Running sums of a sequence, and of its values times their indices.
#[derive(Default)]
struct PrefixSums(Vec<(f64, f64)>);

impl PrefixSums {
    fn push(&mut self, value: f64) {
        let (sum, by_number) = self.0.last().copied().unwrap_or_default();
        self.0.push((sum + value, by_number + self.0.len() as f64 * value));
    }

    /// Returns the sums over the values that are `from` to `to` places before `place`.
    fn over(&self, place: usize, from: usize, to: usize) -> (f64, f64) {
        let before = |count: usize| count.checked_sub(1).map_or((0.0, 0.0), |last| self.0[last]);
        let to = to.min(place);
        if from > to {
            return (0.0, 0.0);
        }
        let (end, begin) = (before(place - from + 1), before(place - to));
        (end.0 - begin.0, end.1 - begin.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A rival always sends, with gaps of 1 to 16 slots: one packet in 8.5 slots on average.
    #[test]
    fn gaps_limit_the_packets_of_a_rival() {
        let gaps = Gaps { least: 1, most: 16 };
        let (step, slots) = (1e-6, 500);
        let mean = gaps.log_means(step, slots)[slots] / step;
        assert!((mean / (slots as f64 / 8.5) - 1.0).abs() < 0.01, "{mean}");
        // 15 packets in 15 slots: the first one with probability 1/8.5, the others with 1/16 each.
        let most = gaps.log_means(40.0, 15)[15];
        let expected = 15.0 * 40.0 - 14.0 * 16_f64.ln() - 8.5_f64.ln();
        assert!((most - expected).abs() < 0.01, "{most} instead of {expected}");
    }

    #[test]
    fn a_rival_with_a_longer_aifs_sends_less() {
        let packets = |least: i64| Gaps { least, most: least + 15 }.log_means(1.0, 100)[100];
        assert!(packets(2) < packets(1) && packets(1) < packets(0));
    }
}
