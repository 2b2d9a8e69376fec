// SPDX-License-Identifier: Apache-2.0
//! Runs of a case. A run measures all transports of the case, and is repeated if the radio's
//! emulator was late.
//!
//! Whether a run counts depends only on the emulator's own lateness, and is decided before the
//! run's figures are evaluated. No run is therefore selected by its result.

use super::case::{Case, Outcomes};
use super::trial::{Attempt, Transport, Trial};
use crate::air::Punctuality;
use crate::rig::progress::Progress;
use crate::setup::daemon::DaemonSetup;
use anyhow::{Context, Result};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// If more than one run in this many is discarded, the machine cannot measure the case. One
/// discarded run is always allowed, so that a single hitch of the machine does not end a demo.
const RUNS_PER_DISCARDED: usize = 5;

/// All runs of a case.
pub struct Runs {
    /// Runs that count.
    pub counted: Vec<Outcomes>,
    /// Runs that do not count, in the order in which they were made.
    pub discarded: Vec<Discarded>,
    /// Number of runs that must count.
    pub wanted: usize,
}

/// A run that does not count. It ended with the transport during which the emulator was late.
#[derive(Debug, Clone, Serialize)]
pub struct Discarded {
    /// Number that the run would have had, from 1.
    pub run: usize,
    /// Transport that was being measured.
    pub transport: Transport,
    /// Lateness of the emulator.
    pub emulator: Punctuality,
}

impl Runs {
    /// Whether more than one run, and more than a fifth of the wanted and discarded runs together,
    /// were discarded.
    pub fn discarded_too_many(&self) -> bool {
        let made = self.wanted + self.discarded.len();
        self.discarded.len() > 1 && self.discarded.len() * RUNS_PER_DISCARDED > made
    }

    /// Describes for people how many of the runs made were discarded.
    pub fn words(&self) -> String {
        format!(
            "{} of {} runs discarded because the emulator was late; allowed is one, or one in {RUNS_PER_DISCARDED}",
            self.discarded.len(),
            self.counted.len() + self.discarded.len()
        )
    }
}

/// Everything needed to run a case.
pub struct Setup<'a> {
    /// Case to run.
    pub case: &'static Case,
    /// Counted time of each transport.
    pub time: Duration,
    /// Transports of the case that take part; `None` for all.
    pub only: Option<&'a [Transport]>,
    /// Setup of the daemons.
    pub daemons: &'a DaemonSetup,
}

impl Setup<'_> {
    /// Runs the case until one run counts for each folder, or too many runs are discarded. The
    /// folders keep the raw samples of the runs that count.
    pub fn measure(&self, folders: &[PathBuf]) -> Result<Runs> {
        let trials = self.trials();
        let stages = |runs: usize| -> Vec<_> {
            (0..runs).flat_map(|_| trials.iter().flat_map(Trial::stages)).collect()
        };
        let progress = Progress::new(stages(folders.len()));
        let mut runs = Runs { counted: Vec::new(), discarded: Vec::new(), wanted: folders.len() };
        while let Some(folder) = folders.get(runs.counted.len()) {
            let number = runs.counted.len() + 1;
            match run(&trials, number, folder, &progress)? {
                Ok(outcomes) => runs.counted.push(outcomes),
                Err(discarded) => {
                    progress.say(&discarded.words());
                    runs.discarded.push(discarded);
                    if runs.discarded_too_many() {
                        break;
                    }
                    progress.replan(stages(runs.wanted - runs.counted.len()));
                }
            }
        }
        progress.finish();
        Ok(runs)
    }

    fn trials(&self) -> Vec<Trial<'_>> {
        let chosen = |transport: &&Transport| self.only.is_none_or(|only| only.contains(transport));
        let trial = |&transport| Trial {
            transport,
            ros: self.case.ros,
            link: self.case.link,
            time: self.time,
            daemons: self.daemons,
        };
        self.case.transports.iter().filter(chosen).map(trial).collect()
    }
}

/// Makes one run, up to the first trial that does not count. The run's number alone seeds the radio
/// model.
fn run(
    trials: &[Trial],
    number: usize,
    folder: &Path,
    progress: &Progress,
) -> Result<Result<Outcomes, Discarded>> {
    let mut outcomes = Outcomes::new();
    for trial in trials {
        let name = trial.transport.name();
        let attempt = trial.run(&folder.join(&name), number as u64, progress);
        match attempt.with_context(|| format!("{name} could not be measured"))? {
            Attempt::Counts(outcome) => outcomes.insert(trial.transport, outcome),
            Attempt::Late(emulator) => {
                let transport = trial.transport;
                return Ok(Err(Discarded { run: number, transport, emulator }));
            }
        };
    }
    Ok(Ok(outcomes))
}

impl Discarded {
    /// Describes the run in one line for people.
    pub fn words(&self) -> String {
        format!(
            "run {} discarded during {}: emulator: {}",
            self.run,
            self.transport.name(),
            self.emulator
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn late_run() -> Discarded {
        let emulator = Punctuality {
            frames: 1000,
            late_p50_us: 30,
            late_p99_us: 500,
            late_max_us: 900,
            cpu_percent: 10.0,
            mishaps: 0,
            counts: false,
        };
        Discarded { run: 1, transport: Transport::Tcpros, emulator }
    }

    #[test]
    fn one_run_may_be_discarded_or_one_in_five() {
        let too_many = |wanted, discarded| {
            let discarded = vec![late_run(); discarded];
            Runs { counted: Vec::new(), discarded, wanted }.discarded_too_many()
        };
        assert!(!too_many(1, 0) && !too_many(1, 1) && too_many(1, 2));
        assert!(!too_many(4, 1) && too_many(4, 2));
        assert!(!too_many(8, 2) && too_many(8, 3));
    }

    #[test]
    fn a_discarded_run_is_named_with_its_lateness() {
        let words = late_run().words();
        assert!(
            words.starts_with("run 1 discarded during tcpros") && words.contains("500 us (p99)")
        );
    }
}
