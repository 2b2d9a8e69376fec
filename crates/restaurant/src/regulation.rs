// SPDX-License-Identifier: Apache-2.0
//! The control loop of Tardioli, Parasuraman and Oegren (2018), figures 19 and 20: a plant on Kobuki,
//! and its controller in the kitchen.

use super::condition::Condition;
use super::stage::{Plan, Stage};
use super::team::{Controller, ROBOTS, Team, Transport};
use anyhow::{Context, Result};
use serde::Serialize;
use std::path::Path;
use std::time::Duration;
use tautline_lab::air::Punctuality;
use tautline_lab::rig::processes::word;
use tautline_lab::rig::progress::Progress;
use tautline_lab::rig::stats::median;
use tautline_lab::setup::ros::{self, START_PATIENCE, WRITE_PATIENCE};
use tautline_lab::sim::Quality;

/// Conditions of the loop: without and with the images of the paper, and with both cameras.
pub const CONDITIONS: [Condition; 3] = [Condition::Idle, Condition::Display, Condition::Cameras];
/// Steps of the set point in each condition.
pub const STEPS: u32 = 3;
/// The plant's period, as in `ros/plant.py`.
const PERIOD_NS: u64 = 20_000_000;
/// Duration of a step, as in `ros/plant.py`.
pub const STEP: Duration = Duration::from_secs(4);
const STEP_PATIENCE: Duration = Duration::from_secs(20);

/// Steps of the set point in one condition.
#[derive(Debug, Serialize)]
pub struct Steps {
    /// ROS of the robots.
    pub team: Team,
    /// The transport of the topics.
    pub transport: Transport,
    /// Location of the controller.
    pub controller: Controller,
    /// Further load during the run.
    pub condition: Condition,
    /// Control quality of each step.
    pub qualities: Vec<Quality>,
    /// Voltages of each step, one for each period.
    pub volts: Vec<Vec<f64>>,
    /// Reason why there are no steps.
    pub trouble: Option<String>,
    /// Lateness of the radio's emulator; `None` if the programs did not start.
    pub emulator: Option<Punctuality>,
}

impl Steps {
    /// Returns the largest rms deviation from the loop without a network, volts.
    pub fn worst_v(&self) -> f64 {
        self.qualities.iter().map(|it| it.deviation_v).fold(0.0, f64::max)
    }
}

/// Returns the cases. The controller is on the robot in one case only, because the radio does not affect
/// it there.
pub fn condition_cases() -> impl Iterator<Item = (Condition, Controller)> {
    let kitchen = CONDITIONS.into_iter().map(|condition| (condition, Controller::Kitchen));
    [(Condition::Idle, Controller::Local)].into_iter().chain(kitchen)
}

/// Runs the loop in each case.
pub fn run(plan: &Plan<'_>, progress: &Progress) -> Result<Vec<Steps>> {
    progress.enter_next();
    let mut stage = Stage::new(&Plan { navigate: false, cameras: false, ..*plan })?;
    let _viewer = stage.viewer(false)?;
    let mut all = Vec::new();
    for (condition, controller) in condition_cases() {
        progress.enter_next();
        all.push(run_case(&mut stage, plan, condition, controller)?);
    }
    stage.close()?;
    Ok(all)
}

fn run_case(
    stage: &mut Stage,
    plan: &Plan<'_>,
    condition: Condition,
    controller: Controller,
) -> Result<Steps> {
    let mut steps = Steps {
        team: plan.team,
        transport: plan.transport,
        controller,
        condition,
        qualities: Vec::new(),
        volts: Vec::new(),
        trouble: None,
        emulator: None,
    };
    steps.trouble = plan.failure(steps.take(stage, plan))?;
    Ok(steps)
}

impl Steps {
    /// Runs the steps, and fills in their results.
    fn take(&mut self, stage: &mut Stage, plan: &Plan<'_>) -> Result<()> {
        let name = format!("plant-{}-{}", word(self.condition), self.controller.name());
        let samples = plan.folder.join(format!("{name}.csv"));
        let namespace = format!("/{}/plant", ROBOTS[0]);
        let mut running = self.condition.start(stage, plan.folder)?;
        let arguments = [namespace.clone(), ros::utf8(&samples)?];
        let mut plant = stage.script(1, &name, "plant", &arguments)?;
        let regulator = format!("regulator-{name}");
        let computer = self.controller.computer();
        let mut regulator = stage.script(computer, &regulator, "regulator", &[namespace])?;
        plant.await_line("ready", START_PATIENCE)?;
        regulator.await_line("ready", START_PATIENCE)?;
        stage.air.count_from_now();
        for _ in 0..STEPS {
            plant.send_line("go")?;
            plant.await_line("done", STEP_PATIENCE)?;
        }
        self.emulator = Some(stage.punctuality()?);
        running.check()?;
        plant.end_input();
        plant.await_line("written", WRITE_PATIENCE)?;
        stage.check()?;
        self.volts = read(&samples)?;
        self.qualities = self.volts.iter().map(|it| Quality::new(it, PERIOD_NS)).collect();
        Ok(())
    }

    /// Returns the median time until the voltage had settled, seconds: infinity if most steps never
    /// settled, and `None` without steps.
    pub fn settled_s(&self) -> Option<f64> {
        median(self.qualities.iter().map(|it| it.settled_s.unwrap_or(f64::INFINITY)))
    }

    /// Returns how many steps settled.
    pub fn settled(&self) -> usize {
        self.qualities.iter().filter(|it| it.settled_s.is_some()).count()
    }
}

/// Returns the voltages of each step.
fn read(samples: &Path) -> Result<Vec<Vec<f64>>> {
    let text = std::fs::read_to_string(samples)
        .with_context(|| format!("no samples in {}", samples.display()))?;
    let mut steps = vec![Vec::new(); STEPS as usize];
    for line in text.lines().skip(1) {
        let broken = || format!("'{line}' in {}", samples.display());
        let mut fields = line.split(',');
        let step: usize = fields.next().and_then(|it| it.parse().ok()).with_context(broken)?;
        let volt = fields.nth(1).and_then(|it| it.parse().ok()).with_context(broken)?;
        steps.get_mut(step - 1).with_context(broken)?.push(volt);
    }
    Ok(steps)
}
