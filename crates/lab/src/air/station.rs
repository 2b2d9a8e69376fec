// SPDX-License-Identifier: Apache-2.0
//! Stations on the air: an emulator on a thread of its own, and what others do with it.

use super::emulator::{Emulator, Punctuality};
use super::kernel::punctual::be_punctual;
use super::kernel::{Plumbing, RadioPlan, StationPlan};
use crate::clock::monotonic_ns;
use crate::figures::{NetworkFigures, RadioFigures, of_medium};
use crate::namespace::{command, enter};
use crate::processes::POLL_PERIOD;
use crate::scenario::Scenario;
use crate::staging::{Route, address, routes};
use anyhow::{Context, Result, anyhow};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tautline_medium::{Nanos, RadioStats};

/// Bytes of the longest IP packet on any radio.
pub const MTU: u32 = 1500;
/// Leading bits of an address that name its network.
const PREFIX: u8 = 16;
/// How often the figures for the view are renewed.
const VIEW_PERIOD: Nanos = 250_000_000;

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

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    count_from_now: AtomicBool,
    snapshot: Mutex<Option<Snapshot>>,
    origin: AtomicU64,
}

/// See the module. Dropped, the air and its stations are gone.
pub struct Air {
    names: Vec<String>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<Result<Snapshot>>>,
    warning: Option<String>,
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
        let shared = Arc::new(Shared::default());
        let (ready, started) = sync_channel(1);
        let (theirs, plan) = (shared.clone(), scenario.clone());
        let thread = std::thread::Builder::new().name("emulator".into()).spawn(move || {
            let real_time = be_punctual();
            let emulator = Emulator::new(&plan, seed, offset, plumbing);
            theirs.origin.store(emulator.origin(), Ordering::Release);
            let _ = ready.send(real_time);
            emulate(&plan, emulator, &theirs)
        })?;
        let real_time = started.recv().context("the emulator did not start")?;
        let warning = (!real_time?).then(|| {
            "the emulator has no real-time priority (it needs root) and may be late".to_owned()
        });
        let names = scenario.stations.iter().map(|station| station.name.clone()).collect();
        Ok(Self { names, shared, thread: Some(thread), warning })
    }

    /// What could not be had, for a person.
    pub fn warning(&self) -> Option<&str> {
        self.warning.as_deref()
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
        self.shared.origin.load(Ordering::Acquire)
    }

    /// What was late while programs started does not count.
    pub fn count_from_now(&self) {
        self.shared.count_from_now.store(true, Ordering::Release);
    }

    /// The newest figures; at most a quarter of a second old.
    pub fn snapshot(&self) -> Option<Snapshot> {
        self.shared.snapshot.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Figures that include all that has happened until now; `None` if the emulator has ended.
    pub fn look(&self) -> Option<Snapshot> {
        let asked = monotonic_ns() - self.origin();
        while self.runs() {
            let newest = self.snapshot();
            if newest.as_ref().is_some_and(|snapshot| snapshot.now >= asked) {
                return newest;
            }
            std::thread::sleep(POLL_PERIOD);
        }
        None
    }

    /// Whether the emulator still runs; if not, [`Air::stop`] tells why.
    pub fn runs(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// Ends the air and returns its last figures.
    pub fn stop(mut self) -> Result<Snapshot> {
        self.shared.stop.store(true, Ordering::Release);
        let thread = self.thread.take().context("the emulator was stopped before")?;
        thread.join().map_err(|_| anyhow!("the emulator panicked"))?
    }
}

impl Drop for Air {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // Its error was not asked for.
            let _ = thread.join();
        }
    }
}

fn emulate(scenario: &Scenario, mut emulator: Emulator, shared: &Shared) -> Result<Snapshot> {
    let mut counted_since = 0;
    let mut view_at = 0;
    while !shared.stop.load(Ordering::Acquire) {
        emulator.turn()?;
        if shared.count_from_now.swap(false, Ordering::AcqRel) {
            counted_since = emulator.now();
            emulator.count_from_now();
        }
        if emulator.now() >= view_at {
            view_at = emulator.now() + VIEW_PERIOD;
            let snapshot = look(scenario, &emulator, counted_since);
            *shared.snapshot.lock().unwrap_or_else(PoisonError::into_inner) = Some(snapshot);
        }
    }
    Ok(look(scenario, &emulator, counted_since))
}

fn look(scenario: &Scenario, emulator: &Emulator, counted_since: Nanos) -> Snapshot {
    let now = emulator.now();
    let (radios, networks) = of_medium(scenario, &emulator.medium, now);
    let numbers = 0..radios.len();
    let stats = numbers.map(|n| emulator.medium.stats(tautline_medium::RadioId(n)));
    Snapshot {
        now,
        stats: stats.collect(),
        radios,
        networks,
        punctuality: emulator.punctuality(counted_since),
    }
}

/// Sleeps until the emulator's clock shows `at`.
pub fn sleep_until(origin: u64, at: Nanos) {
    let now = monotonic_ns();
    std::thread::sleep(Duration::from_nanos((origin + at).saturating_sub(now)));
}
