// SPDX-License-Identifier: Apache-2.0
//! Transmissions on the air, and their power and interference at each radio.

use crate::config::WifiConfig;
use crate::ids::{Nanos, NetworkId, StationId};
use crate::motion::{decibels, milliwatts};
use crate::scene::{POSITION_INTERVAL, Scene};

/// The kind of a transmission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The first frame of a queue; `to` is `None` for a broadcast.
    Data { queue: usize, to: Option<usize> },
    /// The ACK of a data frame.
    Ack { to: usize },
    /// Interference that is no frame.
    Noise,
}

/// One transmission as one radio receives it.
#[derive(Debug, Clone, Copy)]
pub struct Reception {
    /// Received power, milliwatts.
    pub power: f64,
    /// Maximum total power of all other signals, milliwatts; infinite if the radio itself
    /// transmitted.
    pub disturbance: f64,
    /// Whether the radio's carrier sense counts the transmission.
    pub sensed: bool,
}

/// A transmission on the air.
#[derive(Debug)]
pub struct Transmission {
    /// The transmitting radio; `None` for interference.
    pub from: Option<usize>,
    pub kind: Kind,
    pub end: Nanos,
    pub rate: usize,
    pub bytes: u32,
    /// Reception by each radio.
    pub heard: Vec<Reception>,
}

impl Transmission {
    /// Returns the ratio of signal to noise and interference at a radio, dB.
    pub fn sinr_db(&self, radio: usize, noise_mw: f64) -> f64 {
        let Reception { power, disturbance, .. } = self.heard[radio];
        decibels(power / (noise_mw + disturbance))
    }
}

/// Power of one radio's signal at all radios, as of a time.
#[derive(Debug, Clone, Default)]
struct Row {
    made_at: Option<Nanos>,
    powers: Vec<f64>,
}

/// Powers between the radios of one network. A sender's powers are computed when it sends, at most
/// once per step of motion.
#[derive(Debug)]
pub struct Powers {
    network: NetworkId,
    rows: Vec<Row>,
    version: u64,
    pub noise_mw: f64,
    sense_mw: f64,
}

impl Powers {
    pub fn new(network: NetworkId) -> Self {
        Self { network, rows: Vec::new(), version: 0, noise_mw: 0.0, sense_mw: 0.0 }
    }

    /// Clears all powers if radios or outages have changed.
    pub fn refresh(&mut self, wifi: &WifiConfig, scene: &Scene, radios: usize) {
        if self.rows.len() == radios && self.version == scene.version {
            return;
        }
        self.version = scene.version;
        self.noise_mw = milliwatts(wifi.noise_dbm);
        self.sense_mw = milliwatts(wifi.carrier_sense_dbm);
        self.rows.resize_with(radios, Row::default);
        self.rows.iter_mut().for_each(|row| row.made_at = None);
    }

    /// Updates the powers of one radio's signal.
    pub fn look_up(
        &mut self,
        now: Nanos,
        from: usize,
        wifi: &WifiConfig,
        scene: &Scene,
        stations: &[StationId],
    ) {
        let row = &mut self.rows[from];
        let fresh = |at: Nanos| !scene.moves || now < at + POSITION_INTERVAL;
        if row.made_at.is_some_and(fresh) {
            return;
        }
        row.made_at = Some(now);
        row.powers.clear();
        let (sender, on) = (stations[from], (self.network, wifi));
        row.powers.extend(stations.iter().map(|to| scene.power_mw(on, now, sender, *to)));
    }

    /// Fills in the reception of one radio's transmission by all radios, without interference yet.
    pub fn heard_from(&self, from: usize, reuse: &mut Vec<Reception>) {
        reuse.clear();
        reuse.extend(self.rows[from].powers.iter().enumerate().map(|(to, power)| {
            let power = if to == from { 0.0 } else { *power };
            self.heard(power)
        }));
    }

    pub fn heard(&self, power: f64) -> Reception {
        Reception { power, disturbance: 0.0, sensed: power > 0.0 && power >= self.sense_mw }
    }
}

/// Updates the interference between all transmissions after a new one. Transmissions that started
/// at the same time interfere as well.
pub fn update_interference(on_air: &mut [Transmission]) {
    let [others @ .., new] = on_air else { return };
    if let Some(from) = new.from {
        for other in others.iter_mut() {
            other.heard[from].disturbance = f64::INFINITY;
        }
    }
    for other in others.iter() {
        if let Some(from) = other.from {
            new.heard[from].disturbance = f64::INFINITY;
        }
    }
    for radio in 0..new.heard.len() {
        let total: f64 =
            others.iter().map(|t| t.heard[radio].power).sum::<f64>() + new.heard[radio].power;
        for transmission in others.iter_mut().chain([&mut *new]) {
            let heard = &mut transmission.heard[radio];
            heard.disturbance = heard.disturbance.max(total - heard.power);
        }
    }
}
