// SPDX-License-Identifier: Apache-2.0
//! The order of the runs: one rung of each ladder in turn, so that changes of the machine affect
//! all systems equally.

use super::experiment::{Experiment, Ladder};
use super::row::Row;
use super::trial::{Common, Trial};
use anyhow::Result;
use clap::ValueEnum;
use std::path::Path;
use std::time::Duration;
use tautline_lab::rig::processes::word;
use tautline_lab::rig::progress::Progress;

/// Makes the runs of all ladders, experiment by experiment.
pub fn measure_all(ladders: Vec<Ladder>, common: &Common, folder: &Path) -> Result<Vec<Row>> {
    let mut measure = Measure { ladders, rows: Vec::new(), progress: Progress::new(Vec::new()) };
    for &experiment in Experiment::value_variants() {
        let folder = folder.join("raw").join(word(experiment));
        measure.climb(experiment, common, &folder)?;
    }
    measure.progress.finish();
    Ok(measure.rows)
}

struct Measure {
    ladders: Vec<Ladder>,
    rows: Vec<Row>,
    progress: Progress,
}

impl Measure {
    /// Makes the runs of an experiment, rung by rung, until no ladder continues.
    fn climb(&mut self, experiment: Experiment, common: &Common, folder: &Path) -> Result<()> {
        for rung in 0.. {
            let runs = self.runs(experiment, rung);
            if runs.is_empty() {
                break;
            }
            self.progress.replan(self.stages(experiment, rung, common.time));
            for (ladder, repetition, trial) in runs {
                self.progress.enter_next();
                self.run(ladder, rung, (&trial, repetition), common, folder)?;
            }
        }
        Ok(())
    }

    /// Makes a run, and repeats it once if it is void and targets depend on it.
    fn run(
        &mut self,
        ladder: usize,
        rung: usize,
        (trial, repetition): (&Trial, usize),
        common: &Common,
        folder: &Path,
    ) -> Result<()> {
        for attempt in ["", "-again"] {
            let name = format!("{}-{repetition}{attempt}", trial.name());
            let row = trial.run(common, repetition, &folder.join(name))?;
            self.ladders[ladder].note(rung, &row);
            let is_enough = row.void.is_none() || !self.ladders[ladder].repeats_void_runs();
            self.rows.push(row);
            if is_enough {
                break;
            }
        }
        Ok(())
    }

    /// Returns the runs of a rung in order: the first repetition of all ladders, then the second, and so on.
    /// A run has the index of its ladder, its repetition from 1, and its trial.
    fn runs(&self, experiment: Experiment, rung: usize) -> Vec<(usize, usize, Trial)> {
        let repetitions = self.ladders.iter().map(|it| it.repetitions).max().unwrap_or(0);
        let mut runs = Vec::new();
        for repetition in 1..=repetitions {
            for (number, ladder) in self.ladders.iter().enumerate() {
                let is_due = ladder.experiment == experiment && repetition <= ladder.repetitions;
                if let Some(trial) = ladder.trial(rung).filter(|_| is_due) {
                    runs.push((number, repetition, trial.clone()));
                }
            }
        }
        runs
    }

    /// Returns the remaining stages from a rung, and those of later experiments.
    fn stages(&self, from: Experiment, rung: usize, time: Duration) -> Vec<(String, Duration)> {
        let rest = Experiment::value_variants().iter().copied().skip_while(|it| *it != from);
        let first = |experiment| if experiment == from { rung } else { 0 };
        let rungs = |experiment| {
            let runs = move |rung| (rung, self.runs(experiment, rung));
            let all = (first(experiment)..).map(runs).take_while(|(_, runs)| !runs.is_empty());
            let is_likely = move |number: usize, of: usize| {
                of == first(experiment) || self.ladders[number].is_likely(of)
            };
            let likely = move |(of, runs): (usize, Vec<(usize, usize, Trial)>)| {
                runs.into_iter().filter(move |(number, ..)| is_likely(*number, of))
            };
            all.flat_map(likely)
        };
        let stage = |(_, _, trial): (usize, usize, Trial)| {
            (format!("{}: {}", word(trial.experiment), trial.name()), trial.duration(time))
        };
        rest.flat_map(rungs).map(stage).collect()
    }
}
