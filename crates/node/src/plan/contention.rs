// SPDX-License-Identifier: Apache-2.0
//! How long a packet takes on a channel, by the rules of 802.11's DCF and EDCA.

use super::traffic::{Channel, Packets};
use tautline_medium::{Access, Category, Loss, Phy, RateControl, Trial, WifiConfig};
use tautline_proto::Class;

/// Classes of packets.
pub(super) const CLASSES: usize = Class::ALL.len();
/// Time until a packet that was given up is sent again, beyond its own delay: the acknowledgement's
/// delay of the peer and the detection.
const REPAIR: f64 = 0.02;
/// Rounds after which attempts and collisions of all classes agree.
const ROUNDS: u32 = 50;

/// Nanoseconds of the medium as seconds.
fn seconds(nanos: u64) -> f64 {
    nanos as f64 * 1e-9
}

/// The times of a channel, in seconds.
#[derive(Debug, Clone)]
pub(super) struct Timing {
    channel: Kind,
    /// A slot of the backoff.
    pub(super) slot: f64,
    /// By class; all the same without EDCA; none on a line.
    categories: Option<[Category; CLASSES]>,
    pub(super) retries: u32,
    /// Loss of an attempt, and of a packet after all attempts.
    attempt_loss: f64,
    packet_loss: f64,
    /// From the end of a packet to its arrival, at most.
    pub(super) delay: f64,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Wifi { phy: Phy, rate: usize, header_bytes: u32 },
    Pipe { bps: u64, overhead: u32 },
}

/// The long-run fraction of trials that are lost.
fn share(loss: Loss) -> f64 {
    match loss {
        Loss::None => 0.0,
        Loss::Uniform { probability } => probability,
        Loss::GilbertElliott { enter, leave } => enter / (enter + leave),
    }
}

impl Timing {
    pub(super) fn of(channel: &Channel) -> Self {
        match channel {
            Channel::Wifi(wifi) => Self::of_wifi(wifi),
            Channel::Pipe(pipe) => Self {
                channel: Kind::Pipe { bps: pipe.rate_bps, overhead: pipe.overhead_bytes },
                slot: 0.0,
                categories: None,
                retries: 0,
                attempt_loss: 0.0,
                packet_loss: share(pipe.loss),
                delay: seconds(pipe.delay + pipe.jitter),
            },
        }
    }

    fn of_wifi(wifi: &WifiConfig) -> Self {
        let rate = match wifi.rate {
            RateControl::Fixed(bps) => wifi.phy.rate_number(bps),
            RateControl::Adaptive => None,
        };
        let rate = rate.unwrap_or(wifi.phy.rates().len() - 1);
        let lost = share(wifi.loss);
        let (attempt_loss, packet_loss) = match wifi.trial {
            Trial::Attempt => (lost, 0.0),
            Trial::Frame => (0.0, lost),
        };
        let header_bytes = wifi.access.header_bytes();
        let all = Category::all(wifi.phy, wifi.access);
        let of_class = |class: usize| if wifi.access == Access::Edca { all[class] } else { all[0] };
        Self {
            channel: Kind::Wifi { phy: wifi.phy, rate, header_bytes },
            slot: seconds(wifi.phy.slot()),
            categories: Some([0, 1, 2, 3].map(of_class)),
            retries: wifi.retries,
            attempt_loss,
            packet_loss,
            delay: 0.0,
        }
    }

    /// Whether stations draw backoffs, rather than send in the order of arrival.
    pub(super) fn contends(&self) -> bool {
        self.categories.is_some()
    }

    /// Whether packets of the classes queue separately, and contend with each other.
    pub(super) fn separates(&self, one: usize, other: usize) -> bool {
        self.categories.is_some_and(|all| all[one] != all[other])
    }

    fn aifs(&self, class: usize) -> f64 {
        self.categories.map_or(0.0, |all| seconds(all[class].aifs))
    }

    /// Airtime of an acknowledged packet, without the idle time before it.
    fn exchange(&self, ip_bytes: u32) -> f64 {
        match self.channel {
            Kind::Wifi { phy, rate, header_bytes } => seconds(
                phy.data_airtime(rate, ip_bytes, header_bytes) + phy.sifs() + phy.ack_airtime(rate),
            ),
            Kind::Pipe { bps, overhead } => f64::from(ip_bytes + overhead) * 8.0 / bps as f64,
        }
    }

    /// Airtime of an acknowledged packet, with the idle time before it.
    pub(super) fn airtime(&self, class: usize, ip_bytes: u32) -> f64 {
        self.aifs(class) + self.exchange(ip_bytes)
    }

    /// Airtime that a collision of packets of this size takes.
    fn collision(&self, class: usize, ip_bytes: u32) -> f64 {
        match self.channel {
            Kind::Wifi { phy, rate, header_bytes } => {
                let waits = phy.eifs_extra().max(phy.ack_timeout());
                self.aifs(class) + seconds(phy.data_airtime(rate, ip_bytes, header_bytes) + waits)
            }
            Kind::Pipe { .. } => 0.0,
        }
    }

    /// Slots minus one of the backoff before each attempt.
    fn windows(&self, class: usize) -> impl Iterator<Item = u32> {
        let (least, most) = self.categories.map_or((0, 0), |all| {
            let it = all[class];
            (it.window_min, it.window_max)
        });
        let doubled = move |window: &u32| Some((window * 2 + 1).min(most));
        std::iter::successors(Some(least), doubled).take(self.retries as usize + 1)
    }

    /// Probability per slot that a station that always has a packet sends, if its attempts fail with
    /// this probability.
    fn attempt(&self, class: usize, failure: f64) -> f64 {
        let (mut sent, mut slots, mut reached) = (0.0, 0.0, 1.0);
        for window in self.windows(class) {
            sent += reached;
            slots += reached * (1.0 + f64::from(window) / 2.0);
            reached *= failure;
        }
        sent / slots
    }

    /// Probability that an attempt fails.
    pub(super) fn failure(&self, collision: f64) -> f64 {
        1.0 - (1.0 - collision) * (1.0 - self.attempt_loss)
    }
}

/// Number of stations by class that always have a packet, or its mean.
pub(super) type Stations = [f64; CLASSES];

/// Probabilities per slot of the backoff, by class (Bianchi, 2000).
#[derive(Debug, Clone, Copy)]
pub(super) struct Contention {
    /// That one station sends.
    attempt: [f64; CLASSES],
    stations: Stations,
}

impl Contention {
    /// Among these stations.
    pub(super) fn of(timing: &Timing, stations: Stations) -> Self {
        let mut found = Self { attempt: [0.0; CLASSES], stations };
        if !timing.contends() {
            return found;
        }
        for class in 0..CLASSES {
            found.attempt[class] = timing.attempt(class, 0.0);
        }
        for _ in 0..ROUNDS {
            for class in 0..CLASSES {
                let next = timing.attempt(class, timing.failure(found.collision(class)));
                found.attempt[class] = (found.attempt[class] + next) / 2.0;
            }
        }
        found
    }

    /// That nobody sends.
    fn idle(&self) -> f64 {
        let each = self.attempt.iter().zip(&self.stations);
        each.map(|(attempt, stations)| (1.0 - attempt).powf(*stations)).product()
    }

    /// That an attempt of one of the stations collides with the others.
    pub(super) fn collision(&self, class: usize) -> f64 {
        let mut others = *self;
        others.stations[class] = (others.stations[class] - 1.0).max(0.0);
        1.0 - others.idle()
    }

    /// Mean time per delivered packet beyond its own airtime.
    pub(super) fn waste(&self, timing: &Timing, class: usize, ip_bytes: u32) -> f64 {
        let (idle, one) = (self.idle(), self.one());
        if one == 0.0 {
            return 0.0;
        }
        let several = (1.0 - idle - one).max(0.0);
        let lost = one * timing.attempt_loss * timing.airtime(class, ip_bytes);
        let wasted = idle * timing.slot + several * timing.collision(class, ip_bytes) + lost;
        wasted / (one * (1.0 - timing.attempt_loss))
    }

    /// That exactly one sends.
    fn one(&self) -> f64 {
        let each = self.attempt.iter().zip(&self.stations);
        each.map(|(attempt, stations)| stations * attempt / (1.0 - attempt)).sum::<f64>()
            * self.idle()
    }
}

/// Messages that a station sends.
#[derive(Debug, Clone, Copy)]
pub(super) struct Queued {
    /// Their mean number: the whole ones are certain, one more has the rest as its probability.
    pub(super) messages: f64,
    pub(super) packets: Packets,
}

/// The delay of a station's packets, as the logarithm of its moment generating function: the bounds of
/// sums follow from it (Chernoff, 1952).
#[derive(Debug, Clone, Copy)]
pub(super) struct Delays<'a> {
    pub(super) timing: &'a Timing,
    pub(super) class: usize,
    /// Other stations that always have a packet, and the IP bytes of their packets, by class.
    pub(super) rivals: Stations,
    pub(super) rival_bytes: [u32; CLASSES],
    /// Attempts of a packet, at most.
    pub(super) attempts: u32,
    /// Among them and this station.
    pub(super) contention: Contention,
}

impl Delays<'_> {
    /// ln E[exp(theta D)] of one packet's delay D, if that of a slot is `slot`; infinite where there is
    /// no bound.
    fn log_mean(&self, theta: f64, slot: f64, ip_bytes: u32) -> f64 {
        let timing = self.timing;
        let failure = timing.failure(self.contention.collision(self.class));
        let largest = self.rival_bytes.iter().copied().max().unwrap_or(0).max(ip_bytes);
        let collision = theta * timing.collision(self.class, largest);
        let own = theta * timing.airtime(self.class, ip_bytes);
        // Over the attempts: what led to this one.
        let (mut before, mut delivered) = (0.0, f64::NEG_INFINITY);
        let mut counted: f64 = 0.0;
        let mut reached = 1.0;
        for window in timing.windows(self.class).take(self.attempts as usize) {
            before += log_uniform(slot, window);
            delivered = log_sum(delivered, before + (1.0 - failure).ln() + own);
            before += failure.ln() + collision;
            counted += reached * (1.0 - failure);
            reached *= failure;
        }
        let delivered = delivered - counted.ln();
        let repair = theta * (REPAIR + 2.0 * timing.delay);
        let lost = delivered + timing.packet_loss.ln() + repair;
        if lost >= 0.0 {
            return f64::INFINITY;
        }
        delivered + (1.0 - timing.packet_loss).ln() - (-lost.exp()).ln_1p()
    }

    /// The same of a slot of the backoff: it is longer if a rival sends in it.
    fn log_slot(&self, theta: f64) -> f64 {
        let timing = self.timing;
        let rivals = Contention { stations: self.rivals, ..self.contention };
        let idle = rivals.idle();
        let mut sum = idle.ln() + theta * timing.slot;
        let all: f64 = rivals.attempt.iter().zip(&self.rivals).map(|(a, n)| a * n).sum();
        for class in 0..CLASSES {
            let sends = rivals.attempt[class] * self.rivals[class];
            if sends > 0.0 {
                // After a packet, a station waits for its own AIFS.
                let busy = timing.aifs(self.class) + timing.exchange(self.rival_bytes[class]);
                let share = (1.0 - idle) * sends / all;
                sum = log_sum(sum, share.ln() + theta * (timing.slot + busy));
            }
        }
        sum
    }

    /// The same of all packets of a queue.
    fn log_mean_of(&self, theta: f64, queue: &[Queued]) -> f64 {
        let slot = self.log_slot(theta);
        let mut known: Vec<(u32, f64)> = Vec::new();
        let mut log_mean = |bytes: u32| match known.iter().find(|it| it.0 == bytes) {
            Some((_, value)) => *value,
            None => {
                let value = self.log_mean(theta, slot, bytes);
                known.push((bytes, value));
                value
            }
        };
        let mut sum = 0.0;
        for it in queue {
            let sizes = it.packets.sizes().into_iter().filter(|(count, _)| *count > 0);
            let message: f64 = sizes.map(|(count, bytes)| count as f64 * log_mean(bytes)).sum();
            let (whole, part) = (it.messages.floor(), it.messages.fract());
            if whole > 0.0 {
                sum += whole * message;
            }
            if part > 0.0 {
                sum += log_sum((1.0 - part).ln(), part.ln() + message);
            }
        }
        sum
    }

    /// The time in which a queue is delivered but for a probability.
    pub(super) fn bound(&self, queue: &[Queued], probability: f64) -> f64 {
        let at = |log_theta: f64| {
            let theta = log_theta.exp();
            (self.log_mean_of(theta, queue) - probability.ln()) / theta
        };
        least(at, 0.0, 14.0)
    }
}

/// ln(e^a + e^b).
fn log_sum(a: f64, b: f64) -> f64 {
    let (high, low) = (a.max(b), a.min(b));
    if low == f64::NEG_INFINITY { high } else { high + (low - high).exp().ln_1p() }
}

/// ln of the mean of e^(s n) over n from 0 to `most`.
fn log_uniform(s: f64, most: u32) -> f64 {
    let count = f64::from(most) + 1.0;
    if s.abs() < 1e-12 {
        return 0.0;
    }
    // (e^(s count) - 1) / (e^s - 1), without an overflow.
    let log_expm1 = |x: f64| if x > 30.0 { x } else { x.exp_m1().ln() };
    log_expm1(s * count) - log_expm1(s) - count.ln()
}

/// The least value of a function with one minimum.
fn least(at: impl Fn(f64) -> f64, mut low: f64, mut high: f64) -> f64 {
    const GOLDEN: f64 = 0.618_033_988_749_895;
    let (mut a, mut b) = (high - GOLDEN * (high - low), low + GOLDEN * (high - low));
    let (mut at_a, mut at_b) = (at(a), at(b));
    for _ in 0..24 {
        // Infinite values lie above.
        if at_a <= at_b {
            (high, b, at_b) = (b, a, at_a);
            a = high - GOLDEN * (high - low);
            at_a = at(a);
        } else {
            (low, a, at_a) = (a, b, at_b);
            b = low + GOLDEN * (high - low);
            at_b = at(b);
        }
    }
    at_a.min(at_b)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wifi(mbps: u64, access: Access) -> Timing {
        let rate = RateControl::Fixed(mbps * 1_000_000);
        Timing::of(&Channel::Wifi(WifiConfig { rate, access, ..WifiConfig::default() }))
    }

    fn best_effort(stations: f64) -> Stations {
        let mut all = Stations::default();
        all[Class::BestEffort as usize] = stations;
        all
    }

    /// The figures are those of an independent simulation (docs/explanation/dcf.md).
    #[test]
    fn saturated_stations_carry_what_a_simulation_of_dcf_says() {
        let class = Class::BestEffort as usize;
        for (stations, mbps) in [
            (1.0, 5.37),
            (2.0, 5.14),
            (3.0, 4.94),
            (5.0, 4.66),
            (10.0, 4.27),
            (20.0, 3.89),
            (32.0, 3.64),
        ] {
            let timing = wifi(6, Access::Dcf);
            let contention = Contention::of(&timing, best_effort(stations));
            let time = timing.airtime(class, 1500) + contention.waste(&timing, class, 1500);
            let found = 1500.0 * 8.0 / time / 1e6;
            assert!(
                (found / mbps - 1.0).abs() < 0.03,
                "{stations} stations: {found:.2} instead of {mbps}"
            );
        }
    }

    fn alone(timing: &Timing, class: usize) -> Delays<'_> {
        let contention = Contention::of(timing, best_effort(1.0));
        let (rivals, rival_bytes, attempts) = (Stations::default(), [0; CLASSES], 8);
        Delays { timing, class, rivals, rival_bytes, attempts, contention }
    }

    fn packets(count: u32) -> [Queued; 1] {
        let packets = Packets { full: 0, last_bytes: 1500 };
        [Queued { messages: f64::from(count), packets }]
    }

    #[test]
    fn a_station_alone_takes_at_most_its_airtime_and_the_whole_backoff() {
        let timing = wifi(6, Access::Dcf);
        let class = Class::BestEffort as usize;
        let one = alone(&timing, class).bound(&packets(1), 1e-9);
        let [least, most] =
            [0.0, 15.0].map(|slots| timing.airtime(class, 1500) + slots * timing.slot);
        assert!((least..=most * 1.01).contains(&one), "{one} of {least} to {most}");
        let hundred = alone(&timing, class).bound(&packets(100), 1e-6);
        assert!(hundred < 100.0 * most * 0.99, "not all backoffs are the longest");
        assert!(hundred > 100.0 * (timing.airtime(class, 1500) + 7.5 * timing.slot), "{hundred}");
    }

    #[test]
    fn voice_waits_less_for_others_than_best_effort() {
        let timing = wifi(6, Access::Edca);
        let bound = |class: Class| {
            let class = class as usize;
            let mut stations = best_effort(3.0);
            let rivals = stations;
            stations[class] += 1.0;
            let contention = Contention::of(&timing, stations);
            let rival_bytes = [1500; CLASSES];
            let attempts = 8;
            Delays { timing: &timing, class, rivals, rival_bytes, attempts, contention }
                .bound(&packets(1), 1e-3)
        };
        assert!(bound(Class::Voice) * 3.0 < bound(Class::BestEffort));
    }

    #[test]
    fn a_line_delivers_in_order_without_contention() {
        let pipe = tautline_medium::PipeConfig::default();
        let timing = Timing::of(&Channel::Pipe(pipe));
        let one = alone(&timing, 1).bound(&packets(3), 1e-6);
        assert!((one / 0.006 - 1.0).abs() < 0.01, "{one}");
    }
}
