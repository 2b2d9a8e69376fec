// SPDX-License-Identifier: Apache-2.0
//! How long a packet takes on a channel, by the rules of 802.11's DCF and EDCA.

use super::traffic::Channel;
use tautline_medium::{Access, Category, Loss, Phy, RateControl, Trial, WifiConfig};
use tautline_proto::Class;

/// Classes of packets.
pub(super) const CLASSES: usize = Class::ALL.len();
/// Iterations after which the probabilities of attempts and of collisions agree for all classes.
const FIXED_POINT_ITERATIONS: u32 = 50;

/// Maximum number of slots after a packet that differ in the classes that may send: EDCA's AIFS are 2 to 7
/// slots.
const MAX_SLOTS: usize = 8;

/// Converts nanoseconds to seconds.
fn seconds(nanos: u64) -> f64 {
    nanos as f64 * 1e-9
}

/// The times of a channel, in seconds.
#[derive(Debug, Clone)]
pub(super) struct Timing {
    channel: Kind,
    /// A slot of the backoff.
    pub(super) slot: f64,
    /// One entry per class; equal entries without EDCA; `None` on a line.
    categories: Option<[Category; CLASSES]>,
    pub(super) retries: u32,
    /// Probability that an attempt is lost without a collision.
    attempt_loss: f64,
    /// Probability that a packet is lost after all attempts.
    pub(super) packet_loss: f64,
    /// Maximum time from the end of a packet to its arrival.
    pub(super) delay: f64,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Wifi { phy: Phy, rate: usize, header_bytes: u32 },
    Pipe { bps: u64, overhead: u32 },
}

/// Returns the long-run fraction of lost trials.
fn loss_rate(loss: Loss) -> f64 {
    match loss {
        Loss::None => 0.0,
        Loss::Uniform { probability } => probability,
        Loss::GilbertElliott { enter, leave } => enter / (enter + leave),
    }
}

impl Timing {
    pub(super) fn for_channel(channel: &Channel) -> Self {
        match channel {
            Channel::Wifi(wifi) => Self::of_wifi(wifi),
            Channel::Pipe(pipe) => Self {
                channel: Kind::Pipe { bps: pipe.rate_bps, overhead: pipe.overhead_bytes },
                slot: 0.0,
                categories: None,
                retries: 0,
                attempt_loss: 0.0,
                packet_loss: loss_rate(pipe.loss),
                delay: seconds(pipe.delay + pipe.jitter),
            },
        }
    }

    fn of_wifi(wifi: &WifiConfig) -> Self {
        let rate = match wifi.rate {
            RateControl::Fixed(bps) => wifi.phy.rate_index(bps),
            RateControl::Adaptive => None,
        };
        let rate = rate.unwrap_or(wifi.phy.rates().len() - 1);
        let lost = loss_rate(wifi.loss);
        let (attempt_loss, packet_loss) = match wifi.trial {
            Trial::Attempt => (lost, 0.0),
            Trial::Frame => (0.0, lost),
        };
        let header_bytes = wifi.access.header_bytes();
        let all = Category::for_access(wifi.phy, wifi.access);
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

    /// Whether stations draw backoffs instead of sending in the order of arrival.
    pub(super) fn contends(&self) -> bool {
        self.categories.is_some()
    }

    /// Returns the number of the queue in which a station keeps packets of a class. The queues of a station
    /// contend with each other.
    pub(super) fn queue(&self, class: usize) -> usize {
        let Some(all) = self.categories else { return 0 };
        all.iter().position(|it| *it == all[class]).unwrap_or(class)
    }

    /// Returns, by class, the first slot after a packet in which the class may send.
    pub(super) fn first_slots(&self) -> [usize; CLASSES] {
        let Some(all) = self.categories else { return [0; CLASSES] };
        let shortest = all.iter().map(|it| it.aifs).min().unwrap_or(0);
        all.map(|it| seconds(it.aifs - shortest) / self.slot)
            .map(|slots| (slots.round() as usize).min(MAX_SLOTS - 1))
    }

    pub(super) fn aifs(&self, class: usize) -> f64 {
        self.categories.map_or(0.0, |all| seconds(all[class].aifs))
    }

    /// Airtime of an acknowledged packet, without the idle time before it.
    pub(super) fn exchange(&self, ip_bytes: u32) -> f64 {
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
    pub(super) fn collision(&self, class: usize, ip_bytes: u32) -> f64 {
        match self.channel {
            Kind::Wifi { phy, rate, header_bytes } => {
                let waits = phy.eifs_extra().max(phy.ack_timeout());
                self.aifs(class) + seconds(phy.data_airtime(rate, ip_bytes, header_bytes) + waits)
            }
            Kind::Pipe { .. } => 0.0,
        }
    }

    /// Returns the contention window before each attempt, in slots minus one.
    pub(super) fn windows(&self, class: usize) -> impl Iterator<Item = u32> {
        let (least, most) = self.categories.map_or((0, 0), |all| {
            let it = all[class];
            (it.window_min, it.window_max)
        });
        let doubled = move |window: &u32| Some((window * 2 + 1).min(most));
        std::iter::successors(Some(least), doubled).take(self.retries as usize + 1)
    }

    /// Returns the probability per slot that a saturated station sends, if each of its attempts fails
    /// with probability `failure`.
    fn attempt_probability(&self, class: usize, failure: f64) -> f64 {
        let (mut sent, mut slots, mut reached) = (0.0, 0.0, 1.0);
        for window in self.windows(class) {
            sent += reached;
            slots += reached * (1.0 + f64::from(window) / 2.0);
            reached *= failure;
        }
        sent / slots
    }

    /// Returns the probability that an attempt fails, given the probability that it collides.
    pub(super) fn failure_probability(&self, collision: f64) -> f64 {
        1.0 - (1.0 - collision) * (1.0 - self.attempt_loss)
    }
}

/// Number, or mean number, of saturated stations by class.
pub(super) type Stations = [f64; CLASSES];

/// Probabilities per slot of the backoff, by class (Bianchi, 2000).
///
/// A class with a longer AIFS does not send in the first slots after a packet. The slots are
/// counted from the shortest AIFS; more classes send in later slots.
#[derive(Debug, Clone, Copy)]
pub(super) struct Contention {
    /// Probability that a station sends in a slot that its class may use.
    pub(super) attempt: [f64; CLASSES],
    stations: Stations,
    /// The first slot after a packet in which a class sends.
    first_slot: [usize; CLASSES],
}

impl Contention {
    /// Computes the contention among these stations.
    pub(super) fn new(timing: &Timing, stations: Stations) -> Self {
        let first_slot = timing.first_slots();
        let mut found = Self { attempt: [0.0; CLASSES], stations, first_slot };
        if !timing.contends() {
            return found;
        }
        for class in 0..CLASSES {
            found.attempt[class] = timing.attempt_probability(class, 0.0);
        }
        for _ in 0..FIXED_POINT_ITERATIONS {
            for class in (0..CLASSES).filter(|class| stations[*class] > 0.0) {
                let next = timing
                    .attempt_probability(class, timing.failure_probability(found.collision(class)));
                found.attempt[class] = (found.attempt[class] + next) / 2.0;
            }
        }
        found
    }

    /// Probability that nobody sends in a slot after a packet.
    fn idle(&self, slot: usize) -> f64 {
        let each = self.attempt.iter().zip(&self.stations).zip(&self.first_slot);
        each.filter(|(_, first)| **first <= slot)
            .map(|((attempt, stations), _)| (1.0 - attempt).powf(*stations))
            .product()
    }

    /// Returns the slots after a packet in which a class may send, each with its fraction of all such
    /// slots. The last entry is for all later slots.
    fn slots(&self, class: usize) -> impl Iterator<Item = (usize, f64)> {
        let last = self.first_slot.iter().copied().max().unwrap_or(0);
        let mut reached = 1.0;
        let mut visits = [0.0; MAX_SLOTS];
        for (slot, visits) in visits.iter_mut().enumerate().take(last + 1) {
            let idle = self.idle(slot);
            *visits = if slot == last { reached / (1.0 - idle).max(1e-9) } else { reached };
            reached *= idle;
        }
        let seen = self.first_slot[class]..last + 1;
        let all: f64 = visits[seen.clone()].iter().sum();
        seen.map(move |slot| (slot, visits[slot] / all))
    }

    /// Probability that nobody sends in a slot that a class uses.
    fn idle_for(&self, class: usize) -> f64 {
        self.slots(class).map(|(slot, share)| share * self.idle(slot)).sum()
    }

    /// Probability that one station of a class sends in a slot that another class uses.
    fn attempt_for(&self, class: usize, sender: usize) -> f64 {
        let slots = self.slots(class).filter(|(slot, _)| *slot >= self.first_slot[sender]);
        slots.map(|(_, share)| share * self.attempt[sender]).sum()
    }

    /// Probability that an attempt of a station of this class collides with other stations.
    pub(super) fn collision(&self, class: usize) -> f64 {
        let mut others = *self;
        others.stations[class] = (others.stations[class] - 1.0).max(0.0);
        1.0 - others.idle_for(class)
    }

    /// Returns the probability that each attempt of a packet fails if all earlier attempts failed:
    /// after a collision, both stations draw from doubled windows.
    pub(super) fn failures(&self, timing: &Timing, class: usize) -> Vec<f64> {
        let mut others = *self;
        others.stations[class] = (others.stations[class] - 1.0).max(0.0);
        let sends: [f64; CLASSES] =
            std::array::from_fn(|it| others.attempt_for(class, it) * others.stations[it]);
        let all: f64 = sends.iter().sum();
        let shares = sends.map(|it| if all > 0.0 { it / all } else { 0.0 });
        let mut rest = others;
        rest.stations.iter_mut().zip(shares).for_each(|(it, share)| *it = (*it - share).max(0.0));
        let again = |number: usize| -> f64 {
            let window = |it: usize| timing.windows(it).nth(number).unwrap_or(0);
            let collision_after_same_draw =
                |it: usize| collision_after_same_draw(window(class), window(it), self.attempt[it]);
            (0..CLASSES).map(|it| shares[it] * collision_after_same_draw(it)).sum()
        };
        let collision = |number: usize| match number {
            0 => 1.0 - others.idle_for(class),
            _ => 1.0 - rest.idle_for(class) * (1.0 - again(number)),
        };
        (0..=timing.retries as usize)
            .map(|number| timing.failure_probability(collision(number)))
            .collect()
    }

    /// Mean time per delivered packet beyond its own airtime.
    pub(super) fn access_overhead(&self, timing: &Timing, class: usize, ip_bytes: u32) -> f64 {
        let (idle, one) = (self.idle(MAX_SLOTS), self.single_sender_probability());
        if one == 0.0 {
            return 0.0;
        }
        let several = (1.0 - idle - one).max(0.0);
        let lost = one * timing.attempt_loss * timing.airtime(class, ip_bytes);
        let wasted = idle * timing.slot + several * timing.collision(class, ip_bytes) + lost;
        wasted / (one * (1.0 - timing.attempt_loss))
    }

    /// Probability that exactly one station sends.
    fn single_sender_probability(&self) -> f64 {
        let each = self.attempt.iter().zip(&self.stations);
        each.map(|(attempt, stations)| stations * attempt / (1.0 - attempt)).sum::<f64>()
            * self.idle(MAX_SLOTS)
    }
}

/// Returns the probability that two stations with the windows `own` and `other` send in the same
/// slot, if both draw at the same time, and the other station continues with `attempt` per slot.
fn collision_after_same_draw(own: u32, other: u32, attempt: f64) -> f64 {
    let (own, other) = (f64::from(own) + 1.0, f64::from(other) + 1.0);
    let shorter = own.min(other);
    // Mean number of slots before our own in which the other station may have sent first.
    let before = (shorter * (shorter - 1.0) / 2.0 + (own - shorter) * shorter) / own;
    (shorter / own + before * attempt) / other
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wifi(mbps: u64, access: Access) -> Timing {
        let rate = RateControl::Fixed(mbps * 1_000_000);
        Timing::for_channel(&Channel::Wifi(WifiConfig { rate, access, ..WifiConfig::default() }))
    }

    fn best_effort(stations: f64) -> Stations {
        let mut all = Stations::default();
        all[Class::BestEffort as usize] = stations;
        all
    }

    /// The figures are those of an independent simulation (docs/explanation/dcf.md).
    #[test]
    fn saturated_throughput_matches_a_simulation_of_dcf() {
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
            let contention = Contention::new(&timing, best_effort(stations));
            let time =
                timing.airtime(class, 1500) + contention.access_overhead(&timing, class, 1500);
            let found = 1500.0 * 8.0 / time / 1e6;
            assert!(
                (found / mbps - 1.0).abs() < 0.03,
                "{stations} stations: {found:.2} instead of {mbps}"
            );
        }
    }
}
