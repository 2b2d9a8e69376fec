// SPDX-License-Identifier: Apache-2.0
//! The first phase: load and faults of every kind.

use super::super::gate::Outage;
use super::plan::{MS, chance, pick};
use super::world::World;
use crate::rig::staging::address;
use crate::scenario::NetworkKind;
use anyhow::Result;
use std::net::SocketAddrV4;
use tautline_medium::{Interference, Nanos, NetworkId, RateControl, StationId, WifiConfig};

/// Number of messages sent; a fault may precede each.
const STEPS: usize = 150;
/// Maximum bytes sent, so that a run takes milliseconds and drains in time.
const MAX_BYTES: usize = 600_000;
/// Maximum load, as seconds of the slowest network.
const MAX_LOAD_SECONDS: u64 = 5;
/// Maximum total duration of pauses, in which only an outage lasts; limits the duration of a run.
const MAX_PAUSES: Nanos = 100_000 * MS;
/// Shortest outage; the longest is `OUTAGE_RANGE` times as long.
const OUTAGE_MIN: Nanos = 100 * MS;
const OUTAGE_RANGE: f64 = 700.0;
/// Maximum number of datagrams in one attack.
const MAX_BURST: usize = 40;
/// Maximum number of restarts in a row.
const MAX_STARTS: usize = 6;
/// Addresses of a network that no station has initially.
const SPARE: std::ops::Range<usize> = 100..120;

/// The phase with faults.
pub struct Faults<'w> {
    /// The world.
    pub world: &'w mut World,
}

impl Faults<'_> {
    /// Runs the phase; an error describes the violation.
    pub fn fault_phase(&mut self) -> Result<()> {
        self.set_losses(true);
        self.set_mishaps(true);
        let slowest = self
            .world
            .plan
            .networks
            .iter()
            .map(|it| *it.kind.facts().bps().start())
            .min()
            .unwrap_or(0);
        let mut bytes_left = MAX_BYTES.min((slowest / 8 * MAX_LOAD_SECONDS) as usize);
        for _ in 0..STEPS {
            self.disturb()?;
            self.world.lie()?;
            let topic = self.world.random.usize(..self.world.plan.topics.len());
            let len = self.world.random.usize(..=self.world.plan.topics[topic].max_len);
            if len <= bytes_left && self.world.send(topic, len).is_some() {
                bytes_left -= len;
            }
            let pause = MS * self.world.random.u64(..40);
            self.world.run(pause)?;
        }
        Ok(())
    }

    fn disturb(&mut self) -> Result<()> {
        let stations = self.world.plan.stations.len();
        let station = self.world.random.usize(..stations);
        match self.world.random.u32(..100) {
            0..6 => {
                let topic = self.world.random.usize(..self.world.plan.topics.len());
                let priority = self.world.random.u8(..);
                return self.world.set_priority(topic, priority);
            }
            6..12 => self.change_wishes(station),
            12..15 => self.world.net.medium.set_station_outage(StationId(station), true),
            15..18 => {
                let [a, b] = pick(&mut self.world.random, &self.world.plan.pairs.clone());
                self.world.net.medium.set_pair_outage(StationId(a), StationId(b), true);
            }
            18..28 => self.end_outages(),
            28..32 => self.change_rate(),
            32..35 => self.interfere(),
            35..37 => {
                let on = self.world.random.bool();
                self.set_losses(on);
            }
            37 => {
                self.world.restarts += 1;
                return self.world.start(station);
            }
            // Long enough for links to go down and for queued messages to expire.
            38..40 => {
                let pause = MS * pick(&mut self.world.random, &[1000, 3000, 12_000]);
                return self.pause(pause);
            }
            40..42 => return self.start_often(station),
            42..45 => self.change_address(),
            45..49 => return self.fail(station),
            49..53 if self.world.plan.attacked => self.attack(),
            _ => {}
        }
        Ok(())
    }

    /// Lets time pass, within the limit of the phase.
    fn pause(&mut self, span: Nanos) -> Result<()> {
        let span = span.min(MAX_PAUSES.saturating_sub(self.world.paused));
        self.world.paused += span;
        self.world.run(span)
    }

    /// Restarts a node and one of its peers repeatedly, faster than a handshake takes.
    fn start_often(&mut self, station: usize) -> Result<()> {
        let partners = self.world.partners(station);
        let both = [station, partners.first().copied().unwrap_or(station)];
        for _ in 0..self.world.random.usize(1..=MAX_STARTS) {
            let which = self.world.random.usize(..3);
            for &station in both.get(which..=which).unwrap_or(&both) {
                self.world.restarts += 1;
                self.world.start(station)?;
            }
            let pause = pick(&mut self.world.random, &[0, 1, 10, 50, 200, 400]);
            self.world.run(MS / 10 * pause)?;
        }
        Ok(())
    }

    /// Gives a station another address, as by DHCP, or another port, as by a NAT that lost its
    /// mapping.
    fn change_address(&mut self) {
        let movers = self.world.plan.movers.clone();
        let Some(&(station, network)) = self.world.random.choice(&movers) else { return };
        let (host, on) = (StationId(station), NetworkId(network));
        let Some(before) = self.world.net.address(host, on) else { return };
        let home = address(network, station);
        let stations = 0..self.world.plan.stations.len();
        // Another station may get an address that a station has left.
        let ip = match self.world.random.u32(..4) {
            0 => *before.ip(),
            1 => home,
            2 => address(network, self.world.random.usize(stations)),
            _ => address(network, self.world.random.usize(SPARE)),
        };
        let port = before.port().wrapping_add(u16::from(ip == *before.ip()));
        if ip != *before.ip() && self.world.net.is_taken(ip) {
            return;
        }
        if ip != home {
            self.world.net.mark_reused_address(ip);
        }
        self.world.moves += 1;
        self.world.net.readdress(host, on, SocketAddrV4::new(ip, port));
        // A node detects a change of its own address, but not a change by a NAT.
        if port == before.port() && self.world.random.bool() {
            self.world.announce_move(station);
        }
    }

    /// Fails a whole network, or one direction of a station on one network or on all.
    fn fail(&mut self, station: usize) -> Result<()> {
        let span = OUTAGE_MIN as f64 * OUTAGE_RANGE.powf(self.world.random.f64());
        let (span, network) =
            (span as Nanos, self.world.random.usize(..self.world.plan.networks.len()));
        let one_network = Some(NetworkId(network));
        let (network, from, to) = match self.world.random.u32(..5) {
            0 => (one_network, None, None),
            1 => (one_network, Some(StationId(station)), None),
            2 => (one_network, None, Some(StationId(station))),
            3 => (None, Some(StationId(station)), None),
            _ => (None, None, Some(StationId(station))),
        };
        let until = self.world.net.now() + span;
        self.world.outages += 1;
        if let Some(gate) = &mut self.world.net.gate {
            gate.fail(Outage { network, from, to, until });
        }
        match self.world.random.u32(..3) {
            0 => self.pause(span),
            1 => self.pause(span / 2),
            _ => Ok(()),
        }
    }

    fn attack(&mut self) {
        for _ in 0..self.world.random.usize(1..=MAX_BURST) {
            self.world.net.attack();
        }
    }

    fn change_wishes(&mut self, station: usize) {
        for topic in 0..self.world.plan.topics.len() {
            if self.world.plan.topics[topic].to == station {
                let wanted = chance(&mut self.world.random, 0.5);
                self.world.want(topic, wanted);
            }
        }
    }

    fn end_outages(&mut self) {
        let stations = self.world.plan.stations.len();
        for a in 0..stations {
            self.world.net.medium.set_station_outage(StationId(a), false);
            for b in 0..a {
                self.world.net.medium.set_pair_outage(StationId(a), StationId(b), false);
            }
        }
    }

    fn change_rate(&mut self) {
        let network = self.world.random.usize(..self.world.plan.networks.len());
        let bps = match &self.world.plan.networks[network].kind {
            NetworkKind::Wifi(WifiConfig { rate: RateControl::Fixed(_), phy, .. }) => {
                let rates = phy.rates();
                rates[self.world.random.usize(..rates.len())].bps
            }
            NetworkKind::Wifi(_) => return,
            kind => kind.facts().bps().start() / self.world.random.u64(1..=10),
        };
        self.world.net.medium.set_rate(self.world.net.now(), NetworkId(network), bps);
    }

    fn interfere(&mut self) {
        let network = self.world.random.usize(..self.world.plan.networks.len());
        let from = self.world.net.now();
        let until = from + MS * self.world.random.u64(100..3000);
        let station = self.world.random.usize(..self.world.plan.stations.len());
        let place = self.world.plan.stations[station].motion.place(from);
        let what = Interference {
            burst: MS * self.world.random.u64(1..10),
            mean_pause: MS * self.world.random.u64(1..30),
            place,
            from,
            until,
        };
        self.world.plan.rests_from = self.world.plan.rests_from.max(until);
        self.world.net.medium.interfere(from, NetworkId(network), what);
    }

    fn set_losses(&mut self, on: bool) {
        for (number, network) in self.world.plan.networks.iter().enumerate() {
            let loss = if on { network.loss } else { tautline_medium::Loss::None };
            self.world.net.medium.set_loss(NetworkId(number), loss);
        }
    }

    fn set_mishaps(&mut self, on: bool) {
        let Some(gate) = &mut self.world.net.gate else { return };
        for (number, station) in self.world.plan.stations.iter().enumerate() {
            let mishaps = if on { station.mishaps } else { Default::default() };
            gate.set(StationId(number), mishaps);
        }
    }

    /// Ends all faults; returns when no station moves and no interference is left.
    pub fn end_faults(&mut self) -> Result<()> {
        self.set_losses(false);
        self.set_mishaps(false);
        self.end_outages();
        if let Some(gate) = &mut self.world.net.gate {
            gate.end_outages();
        }
        let now = self.world.net.now();
        for network in 0..self.world.plan.networks.len() {
            let rates = self.world.plan.networks[network].kind.facts().bps();
            if rates.start() == rates.end() {
                self.world.net.medium.set_rate(now, NetworkId(network), *rates.end());
            }
        }
        let rest: Nanos = self.world.plan.rests_from.saturating_sub(now);
        self.world.run(rest)?;
        self.world.end_lies()
    }
}
