// SPDX-License-Identifier: Apache-2.0
//! Stations on the air: the interface to a running emulator.

use super::crew::Crew;
use super::emulator::{Emulator, Punctuality};
use super::kernel::Plumbing;
use crate::rig::clock::monotonic_ns;
use crate::rig::figures::{NetworkFigures, RadioFigures};
use crate::rig::namespace::{command, enter};
use crate::rig::staging::Change;
use crate::scenario::Scenario;
use anyhow::Result;
use std::ffi::OsStr;
use std::process::Command;
use std::time::Duration;
use tautline_medium::{Interference, Nanos, NetworkId, Outage, RadioStats};

/// Counters of the radios at one time.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// Time of the snapshot, by the emulator's clock.
    pub now: Nanos,
    /// Radios in the scenario's order.
    pub radios: Vec<RadioFigures>,
    /// Networks in the scenario's order.
    pub networks: Vec<NetworkFigures>,
    /// Raw counters, by radio.
    pub stats: Vec<RadioStats>,
    /// Scheduling delay of the emulator.
    pub punctuality: Punctuality,
}

/// The air, see the module. Dropping it removes the stations.
pub struct Air {
    names: Vec<String>,
    origin: u64,
    crew: Crew,
}

impl Air {
    /// Creates the stations and starts the emulator. The scenario's time starts `offset` later.
    pub fn start(scenario: &Scenario, seed: u64, offset: Nanos) -> Result<Self> {
        Self::run(scenario, seed, offset, Plumbing::new(scenario)?)
    }

    /// Starts the emulator with stations whose frames are held already.
    pub fn run(scenario: &Scenario, seed: u64, offset: Nanos, plumbing: Plumbing) -> Result<Self> {
        let emulator = Emulator::new(scenario, seed, offset, plumbing);
        Ok(Self {
            names: scenario.stations.iter().map(|station| station.name.clone()).collect(),
            origin: emulator.origin(),
            crew: Crew::start(emulator)?,
        })
    }

    /// Returns a warning for the user if real-time priority was refused.
    pub fn warning(&self) -> Option<&str> {
        let warning = "the emulator has no real-time priority (it needs root) and may be late";
        (!self.crew.real_time).then_some(warning)
    }

    /// Returns a command that runs `program` in a station.
    pub fn command(&self, station: usize, program: impl AsRef<OsStr>) -> Command {
        command(&self.names[station], program)
    }

    /// Runs a task inside a station; sockets opened there stay there.
    pub fn run_inside<T: Send>(
        &self,
        station: usize,
        task: impl FnOnce() -> Result<T> + Send,
    ) -> Result<T> {
        enter(&self.names[station], task)
    }

    /// Returns the machine's monotonic time at which the emulator's clock was 0.
    pub fn origin(&self) -> u64 {
        self.origin
    }

    /// Discards the delays measured so far: delays while programs start do not count.
    pub fn count_from_now(&self) {
        self.crew.with(Emulator::count_from_now);
    }

    /// Begins or ends a station's outage.
    pub fn outage(&self, outage: Outage, out: bool) {
        self.crew.with(|emulator| emulator.change(Change::Outage(outage, out)));
    }

    /// Disturbs the first network from now on for that time, with noise that every station hears.
    pub fn interfere(&self, burst: Duration, mean_pause: Duration, time: Duration) {
        let [burst, mean_pause, time] = [burst, mean_pause, time].map(|it| it.as_nanos() as Nanos);
        self.crew.with(|emulator| {
            let from = emulator.now();
            let until = from + time;
            let noise = Interference { burst, mean_pause, place: [0.0; 3], from, until };
            emulator.change(Change::Interference(NetworkId(0), noise));
        });
    }

    /// Takes a snapshot.
    pub fn look(&self) -> Snapshot {
        self.crew.with(|emulator| look(emulator))
    }

    /// Returns the busy time of each network since the start, and the time up to which the busy time is
    /// counted.
    pub fn busy(&self) -> (Nanos, Vec<Nanos>) {
        self.crew.with(|emulator| emulator.busy())
    }

    /// Returns the frames that are at the radios now, including those on the air.
    pub fn waiting_frames(&self) -> u64 {
        self.crew.with(|emulator| emulator.stats().iter().map(|radio| radio.waiting).sum())
    }

    /// Returns the number of frames that the kernel could not report.
    pub fn unreported_frames(&self) -> u64 {
        self.crew.with(|emulator| emulator.unreported_frames())
    }

    /// Whether the emulator still runs; if not, [`Air::stop`] returns the reason.
    pub fn runs(&self) -> bool {
        self.crew.runs()
    }

    /// Stops the emulator and returns its last figures.
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
