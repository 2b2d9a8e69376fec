// SPDX-License-Identifier: Apache-2.0
//! The first phase: load, and everything that can go wrong.

use super::plan::{MS, chance, pick};
use super::world::World;
use crate::scenario::NetworkKind;
use tautline_medium::{Interference, Nanos, NetworkId, RateControl, StationId, WifiConfig};

/// Messages handed over, each after something may have happened.
const STEPS: usize = 150;
/// Bytes handed over at most, so that a run takes milliseconds and drains in time.
const MAX_BYTES: usize = 600_000;
/// The same, as time that the slowest network would take.
const MAX_LOAD_SECONDS: u64 = 5;

impl World {
    /// Runs the phase; `Err` says what was wrong.
    pub fn fault_phase(&mut self) -> Result<(), String> {
        self.set_losses(true);
        self.set_mishaps(true);
        let slowest = (0..self.plan.networks.len()).map(|n| self.rate_bps(n)).min().unwrap_or(0);
        let mut bytes_left = MAX_BYTES.min((slowest / 8 * MAX_LOAD_SECONDS) as usize);
        for _ in 0..STEPS {
            self.disturb()?;
            let topic = self.random.usize(..self.plan.topics.len());
            let len = self.random.usize(..=self.plan.topics[topic].max_len);
            if len <= bytes_left && self.send(topic, len).is_some() {
                bytes_left -= len;
            }
            let pause = MS * self.random.u64(..40);
            self.run(pause)?;
        }
        Ok(())
    }

    /// The rate of a network where nothing is wrong; the lowest where it adapts.
    pub fn rate_bps(&self, network: usize) -> u64 {
        match &self.plan.networks[network].kind {
            NetworkKind::Pipe(pipe) => pipe.rate_bps,
            NetworkKind::Wifi(WifiConfig { rate: RateControl::Fixed(bps), .. }) => *bps,
            NetworkKind::Wifi(wifi) => wifi.phy.rates()[0].bps,
        }
    }

    fn disturb(&mut self) -> Result<(), String> {
        let stations = self.plan.stations.len();
        let station = self.random.usize(..stations);
        match self.random.u32(..100) {
            0..6 => {
                let topic = self.random.usize(..self.plan.topics.len());
                let priority = self.random.u8(..);
                return self.set_priority(topic, priority);
            }
            6..12 => self.change_wishes(station),
            12..15 => self.net.medium.cut_off(StationId(station), true),
            15..18 => {
                let [a, b] = pick(&mut self.random, &self.plan.pairs.clone());
                self.net.medium.cut(StationId(a), StationId(b), true);
            }
            18..28 => self.end_outages(),
            28..32 => self.change_rate(),
            32..35 => self.interfere(),
            35..37 => {
                let on = self.random.bool();
                self.set_losses(on);
            }
            37 => {
                self.restarts += 1;
                return self.start(station);
            }
            // Long enough for links to go down, and for what waits to be given up.
            38..40 => {
                let pause = MS * pick(&mut self.random, &[3000, 12_000]);
                return self.run(pause);
            }
            _ => {}
        }
        Ok(())
    }

    fn change_wishes(&mut self, station: usize) {
        for topic in 0..self.plan.topics.len() {
            if self.plan.topics[topic].to == station {
                let wanted = chance(&mut self.random, 0.5);
                self.want(topic, wanted);
            }
        }
    }

    fn end_outages(&mut self) {
        let stations = self.plan.stations.len();
        for a in 0..stations {
            self.net.medium.cut_off(StationId(a), false);
            for b in 0..a {
                self.net.medium.cut(StationId(a), StationId(b), false);
            }
        }
    }

    fn change_rate(&mut self) {
        let network = self.random.usize(..self.plan.networks.len());
        let bps = match &self.plan.networks[network].kind {
            NetworkKind::Pipe(pipe) => {
                let (normal, divisor) = (pipe.rate_bps, self.random.u64(1..=10));
                normal / divisor
            }
            NetworkKind::Wifi(WifiConfig { rate: RateControl::Fixed(_), phy, .. }) => {
                let rates = phy.rates();
                rates[self.random.usize(..rates.len())].bps
            }
            NetworkKind::Wifi(_) => return,
        };
        self.net.medium.set_rate(self.net.now(), NetworkId(network), bps);
    }

    fn interfere(&mut self) {
        let network = self.random.usize(..self.plan.networks.len());
        let from = self.net.now();
        let until = from + MS * self.random.u64(100..3000);
        let station = self.random.usize(..self.plan.stations.len());
        let place = self.plan.stations[station].motion.place(from);
        let what = Interference {
            burst: MS * self.random.u64(1..10),
            mean_pause: MS * self.random.u64(1..30),
            place,
            from,
            until,
        };
        self.plan.rests_from = self.plan.rests_from.max(until);
        self.net.medium.interfere(from, NetworkId(network), what);
    }

    fn set_losses(&mut self, on: bool) {
        for (number, network) in self.plan.networks.iter().enumerate() {
            let loss = if on { network.loss } else { tautline_medium::Loss::None };
            self.net.medium.set_loss(NetworkId(number), loss);
        }
    }

    fn set_mishaps(&mut self, on: bool) {
        let Some(gate) = &mut self.net.gate else { return };
        for (number, station) in self.plan.stations.iter().enumerate() {
            let mishaps = if on { station.mishaps } else { Default::default() };
            gate.set(StationId(number), mishaps);
        }
    }

    /// Ends everything that is wrong; returns once no station moves and no noise is left.
    pub fn end_faults(&mut self) -> Result<(), String> {
        self.set_losses(false);
        self.set_mishaps(false);
        self.end_outages();
        let now = self.net.now();
        for network in 0..self.plan.networks.len() {
            let adapts = matches!(
                self.plan.networks[network].kind,
                NetworkKind::Wifi(WifiConfig { rate: RateControl::Adaptive, .. })
            );
            if !adapts {
                let bps = self.rate_bps(network);
                self.net.medium.set_rate(now, NetworkId(network), bps);
            }
        }
        let rest: Nanos = self.plan.rests_from.saturating_sub(now);
        self.run(rest)
    }
}
