// SPDX-License-Identifier: Apache-2.0
//! Conditions of a run: the scheduler of the measured program, and the machine's other load.

use anyhow::{Context, Result};
use serde::Serialize;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use tautline_lab::rig::processes::Process;
use tautline_lab::setup::stress;
use tautline_lab::setup::usage::MachineTicks;

/// Percentage of the time for which stress-ng must keep the cores busy; otherwise the run is void.
const STRESS_BUSY_PERCENT: f64 = 90.0;
/// Time between the start of stress-ng and the measurement.
const STRESS_WARM_UP: Duration = Duration::from_secs(1);

/// Scheduling class of the measured program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Policy {
    /// SCHED_FIFO.
    Fifo,
    /// SCHED_OTHER, the normal scheduler.
    Other,
}

/// Both classes, in the order of the tables.
pub const POLICIES: [Policy; 2] = [Policy::Fifo, Policy::Other];

impl Policy {
    /// Returns the name in tables and files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fifo => "fifo",
            Self::Other => "other",
        }
    }
}

/// Returns a command that runs one of the study's programs ([`super::program`]) on these
/// processors; `priority` is that of SCHED_FIFO.
pub fn program(policy: Policy, priority: u8, cpus: &str, arguments: &[String]) -> Result<Command> {
    let this = std::env::current_exe().context("cannot find this program's own file")?;
    let mut command = Command::new("chrt");
    match policy {
        Policy::Fifo => command.args(["--fifo", &priority.to_string()]),
        Policy::Other => command.args(["--other", "0"]),
    };
    command.args(["taskset", "--cpu-list", cpus]).arg(this);
    command.args(["--inside", "realtime-program"]).args(arguments);
    Ok(command)
}

/// Returns the processor of pinned programs: the last, since interrupts prefer the first.
pub fn last_cpu() -> usize {
    std::thread::available_parallelism().map_or(0, |count| count.get() - 1)
}

/// The machine's other load during a run.
pub struct BackgroundLoad {
    stress: Option<Process>,
    since: MachineTicks,
}

/// The measured load of the machine during a run.
#[derive(Debug, Clone, Serialize)]
pub struct MeasuredLoad {
    /// Percentage of all cores' time that any program used.
    pub busy_percent: f64,
    /// Reason why the run is void; `None` if it is valid.
    pub void: Option<String>,
}

impl BackgroundLoad {
    /// Starts the load, if `stressed`, and waits until it works.
    pub fn begin(stressed: bool, folder: &Path) -> Result<Self> {
        let mut stress = stressed.then(|| stress::start(folder)).transpose()?;
        if let Some(stress) = &mut stress {
            std::thread::sleep(STRESS_WARM_UP);
            stress.check_running()?;
        }
        Ok(Self { stress, since: MachineTicks::now()? })
    }

    /// Ends the load, and checks whether the machine produced it.
    pub fn end(self) -> Result<MeasuredLoad> {
        let busy_percent = MachineTicks::now()?.busy_percent_since(self.since);
        let Some(mut stress) = self.stress else {
            return Ok(MeasuredLoad { busy_percent, void: None });
        };
        stress.check_running()?;
        let void = (busy_percent < STRESS_BUSY_PERCENT).then(|| {
            format!(
                "stress-ng kept the cores busy for {busy_percent:.0} % of the time, wanted {STRESS_BUSY_PERCENT} %"
            )
        });
        Ok(MeasuredLoad { busy_percent, void })
    }
}

/// Returns whether `program` is installed. If not, records in `skipped` that `what` is skipped, and
/// which package to install.
pub fn installed(program: &str, package: &str, what: &str, skipped: &mut Vec<String>) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok()
        || Command::new(program).arg("--help").output().is_ok();
    if !found {
        let note = format!("skipped: {what}; '{program}' is missing (Debian package {package})");
        eprintln!("{note}");
        skipped.push(note);
    }
    found
}

/// Returns the word for a run with or without stress, for names and tables.
pub fn stress_word(stressed: bool) -> &'static str {
    if stressed { "stress" } else { "idle" }
}

/// Returns one value of a pair in `paper`: the first without stress, the second with stress.
pub fn value_under_stress<T: Copy>(pair: &[T; 2], stressed: bool) -> T {
    pair[usize::from(stressed)]
}
