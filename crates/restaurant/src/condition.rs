// SPDX-License-Identifier: Apache-2.0
//! Further load while a robot drives.

use super::stage::Stage;
use anyhow::Result;
use clap::ValueEnum;
use serde::Serialize;
use std::path::Path;
use std::time::Duration;
use tautline_lab::rig::processes::Process;
use tautline_lab::setup::iperf::Iperf;
use tautline_lab::setup::stress;

/// Duration of a burst of noise. With [`NOISE_PAUSE`], noise covers 17 % of the time.
const NOISE_BURST: Duration = Duration::from_millis(4);
/// Mean pause between two bursts of noise.
const NOISE_PAUSE: Duration = Duration::from_millis(20);

/// A further load during a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Condition {
    /// No further load.
    Idle,
    /// stress-ng loads processors, memory and disks.
    Stress,
    /// Both cameras send more than the channel carries.
    Cameras,
    /// The kitchen sends Kobuki images of 64 KiB every 200 ms.
    Display,
    /// Noise covers 17 % of the channel's time, in bursts.
    Interference,
    /// A station that the robot does not hear sends to the kitchen.
    HiddenStation,
    /// All loads except the display.
    Everything,
}

impl Condition {
    /// Whether both cameras send.
    pub fn has_cameras(self) -> bool {
        matches!(self, Self::Cameras | Self::Everything)
    }

    /// Starts the load of this condition, except for noise. The load ends when the result is dropped.
    pub fn start(self, stage: &Stage, folder: &Path) -> Result<Running> {
        let mut running = Running::default();
        if matches!(self, Self::Stress | Self::Everything) {
            running.programs.push(stress::start(folder)?);
        }
        if self.has_cameras() {
            running.programs.extend(stage.cameras()?);
        }
        if self == Self::Display {
            running.programs.extend(stage.display()?);
        }
        if matches!(self, Self::HiddenStation | Self::Everything) {
            running.neighbour = Some(stage.start_neighbour()?);
        }
        Ok(running)
    }

    /// Disturbs the radio with noise for `time`, if the condition includes interference.
    pub fn disturb(self, stage: &Stage, time: Duration) {
        if matches!(self, Self::Interference | Self::Everything) {
            stage.air.interfere(NOISE_BURST, NOISE_PAUSE, time);
        }
    }
}

/// The load of a condition; it ends when dropped.
#[derive(Default)]
pub struct Running {
    programs: Vec<Process>,
    neighbour: Option<Iperf>,
}

impl Running {
    /// Returns an error if a load has ended.
    pub fn check(&mut self) -> Result<()> {
        self.programs.iter_mut().try_for_each(Process::check_running)?;
        self.neighbour.as_mut().map_or(Ok(()), Iperf::check)
    }
}
