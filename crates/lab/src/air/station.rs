// SPDX-License-Identifier: Apache-2.0
//! Stations on the air: an emulator at work, and what others do with it.

use super::crew::Crew;
use super::emulator::{Emulator, Punctuality};
use super::kernel::{Plumbing, RadioPlan, StationPlan};
use crate::clock::monotonic_ns;
use crate::figures::{NetworkFigures, RadioFigures};
use crate::namespace::{command, enter};
use crate::scenario::Scenario;
use crate::staging::{Route, address, routes};
use anyhow::Result;
use std::process::Command;
use std::time::Duration;
use tautline_medium::{Nanos, RadioStats};

/// Bytes of the longest IP packet on any radio.
pub const MTU: u32 = 1500;
/// Leading bits of an address that name its network.
const PREFIX: u8 = 16;

/// What the radios have done so far.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// When, by the emulator's clock.
    pub now: Nanos,
    /// In the scenario's order.
    pub radios: Vec<RadioFigures>,
    /// In the scenario's order.
    pub networks: Vec<NetworkFigures>,
    /// Raw counters, by radio.
    pub stats: Vec<RadioStats>,
    /// How late the emulator is.
    pub punctuality: Punctuality,
}

/// See the module. Dropped, the air and its stations are gone.
pub struct Air {
    names: Vec<String>,
    origin: u64,
    crew: Crew,
}

/// The name of a station's interface on its `index`th network.
pub fn interface(index: usize) -> String {
    format!("wlan{index}")
}

fn plans(scenario: &Scenario) -> Vec<StationPlan> {
    let radio = |number, index, network: usize| RadioPlan {
        network: network as u8,
        interface: interface(index),
        address: address(network, number),
        prefix: PREFIX,
        mtu: MTU,
    };
    let stations = scenario.stations.iter().enumerate();
    stations
        .map(|(number, station)| StationPlan {
            name: station.name.clone(),
            radios: station
                .networks
                .iter()
                .enumerate()
                .map(|(index, network)| radio(number, index, *network))
                .collect(),
        })
        .collect()
}

impl Air {
    /// Makes the stations and starts the emulator. The scenario's time starts `offset` later.
    pub fn start(scenario: &Scenario, seed: u64, offset: Nanos) -> Result<Self> {
        let plumbing = Plumbing::new(&plans(scenario))?;
        for Route { from, to, via } in routes(scenario) {
            plumbing.add_route(from, to, via)?;
        }
        let emulator = Emulator::new(scenario, seed, offset, plumbing);
        Ok(Self {
            names: scenario.stations.iter().map(|station| station.name.clone()).collect(),
            origin: emulator.origin(),
            crew: Crew::start(emulator)?,
        })
    }

    /// What could not be had, for a person.
    pub fn warning(&self) -> Option<&str> {
        let warning = "the emulator has no real-time priority (it needs root) and may be late";
        (!self.crew.real_time).then_some(warning)
    }

    /// `program` in a station.
    pub fn command(&self, station: usize, program: &str) -> Command {
        command(&self.names[station], program)
    }

    /// Does something inside a station; sockets opened there stay there.
    pub fn inside<T: Send>(
        &self,
        station: usize,
        task: impl FnOnce() -> Result<T> + Send,
    ) -> Result<T> {
        enter(&self.names[station], task)
    }

    /// The machine's monotonic time at which the emulator's clock was 0.
    pub fn origin(&self) -> u64 {
        self.origin
    }

    /// What was late while programs started does not count.
    pub fn count_from_now(&self) {
        self.crew.with(Emulator::count_from_now);
    }

    /// What has happened until now.
    pub fn look(&self) -> Snapshot {
        self.crew.with(|emulator| look(emulator))
    }

    /// Whether the emulator still runs; if not, [`Air::stop`] tells why.
    pub fn runs(&self) -> bool {
        self.crew.runs()
    }

    /// Ends the air and returns its last figures.
    pub fn stop(mut self) -> Result<Snapshot> {
        self.crew.stop()?;
        Ok(self.look())
    }
}

fn look(emulator: &Emulator) -> Snapshot {
    let (radios, networks) = emulator.figures();
    let stats = emulator.stats();
    let (now, punctuality) = (emulator.now(), emulator.punctuality());
    Snapshot { now, stats, radios, networks, punctuality }
}

/// Sleeps until the emulator's clock shows `at`.
pub fn sleep_until(origin: u64, at: Nanos) {
    let now = monotonic_ns();
    std::thread::sleep(Duration::from_nanos((origin + at).saturating_sub(now)));
}
