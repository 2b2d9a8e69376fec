// SPDX-License-Identifier: Apache-2.0
//! The experiments: ladders of loads, each for one system. A ladder ends above the system's limit.

use super::load::{Contents, Load, Pairing, THESIS_TEXT};
use super::scene::Medium;
use super::system::System;
use super::trial::Trial;
use std::time::Duration;

/// Rungs above the limit that are still measured: one shows that it was no accident.
const RUNGS_ABOVE_LIMIT: usize = 2;

/// An experiment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Experiment {
    /// One pair, small messages, the frequency up to the limit.
    Frequency,
}

/// Runs of one system with a growing load.
#[derive(Debug, Clone)]
pub struct Ladder {
    /// Experiment that it belongs to.
    pub experiment: Experiment,
    trials: Vec<Trial>,
    /// Rungs that were not sustained, from the last sustained one on.
    failed: Vec<usize>,
    stops: bool,
}

impl Experiment {
    /// All experiments, in the order in which they run.
    pub const ALL: [Self; 1] = [Self::Frequency];

    /// Returns the name on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Frequency => "frequency",
        }
    }

    /// Returns the runs.
    pub fn ladders(self, quick: bool) -> Vec<Ladder> {
        match self {
            Self::Frequency => self.frequency(quick),
        }
    }

    fn frequency(self, quick: bool) -> Vec<Ladder> {
        let hz: &[f64] = if quick { &[10.0, 200.0, 1000.0, 4000.0] } else { &FREQUENCIES };
        let load = |hz: &f64| Load::pairs(1, Contents::Text(THESIS_TEXT), *hz);
        let loads: Vec<Load> = hz.iter().map(load).collect();
        let ladder = |system| self.ladder(system, Medium::Wired, &loads);
        let quickly = [System::Rospy, System::Roscpp, System::Rclpy, System::Tautline];
        if quick { quickly.map(ladder).into() } else { ALL_SYSTEMS.map(ladder).into() }
    }

    fn ladder(self, system: System, medium: Medium, loads: &[Load]) -> Ladder {
        let trial = |load: &Load| Trial {
            experiment: self.name(),
            system,
            medium,
            hosts: 2,
            load: load.clone(),
            cpu_share_percent: None,
        };
        let trials = loads.iter().map(trial).collect();
        Ladder { experiment: self, trials, failed: Vec::new(), stops: true }
    }
}

/// Frequencies of the sweep, Hz; the thesis went from 1 Hz to 1 MHz in steps of ten.
const FREQUENCIES: [f64; 10] =
    [1.0, 10.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0, 10_000.0, 20_000.0];

const ALL_SYSTEMS: [System; 7] = [
    System::Rospy,
    System::RospyNodelay,
    System::Roscpp,
    System::RoscppNodelay,
    System::Rclpy,
    System::Tautline,
    System::TautlineRoscpp,
];

impl Ladder {
    /// Returns the system.
    pub fn system(&self) -> System {
        self.trials[0].system
    }

    /// Returns the run on a rung; `None` above the last one, and well above the limit.
    pub fn trial(&self, rung: usize) -> Option<&Trial> {
        let over = |failed: &[usize]| failed.len() >= RUNGS_ABOVE_LIMIT && !failed.contains(&rung);
        if self.stops && over(&self.failed) { None } else { self.trials.get(rung) }
    }

    /// Notes whether the load of a rung was sustained in one repetition.
    pub fn note(&mut self, rung: usize, sustained: bool) {
        if sustained {
            self.failed.clear();
        } else if !self.failed.contains(&rung) {
            self.failed.push(rung);
        }
    }

    /// Returns the stages from a rung on: their names and expected durations.
    pub fn stages(
        &self,
        from: usize,
        time: Duration,
        repetitions: usize,
    ) -> Vec<(String, Duration)> {
        let rungs = (from..).map_while(|rung| self.trial(rung));
        let stage = |trial: &Trial| {
            (format!("{}: {}", trial.experiment, trial.name()), trial.duration(time))
        };
        rungs.flat_map(|trial| vec![stage(trial); repetitions]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ladder_ends_above_the_limit_unless_a_higher_rung_was_sustained() {
        let mut ladder = Experiment::Frequency.ladders(false).remove(0);
        ladder.note(0, true);
        ladder.note(1, false);
        assert!(ladder.trial(2).is_some());
        ladder.note(2, false);
        ladder.note(2, false);
        assert!(ladder.trial(3).is_none());
        assert!(ladder.trial(2).is_some(), "repetitions of the last rung are made");
        ladder.note(2, true);
        assert!(ladder.trial(3).is_some());
    }

    #[test]
    fn experiments_have_one_name() {
        for experiment in Experiment::ALL {
            assert_eq!(crate::rig::processes::word(experiment), experiment.name());
        }
    }
}
