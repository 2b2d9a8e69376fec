// SPDX-License-Identifier: Apache-2.0
//! stress-ng, which loads processors, memory and disks as in Park, Delgado and Choi (2020).

use crate::rig::processes::Process;
use anyhow::{Context, Result};
use std::path::Path;
use std::process::Command;

/// Memory written by each memory worker.
const MEMORY: &str = "128M";

/// Starts the load; its log and its file are in `folder`. It ends when it is dropped.
pub fn start(folder: &Path) -> Result<Process> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from).to_string();
    let mut command = Command::new("stress-ng");
    command.args(["--cpu", &cores, "--vm", "1", "--vm-bytes", MEMORY, "--io", "1"]);
    command.args(["--hdd", "1", "--hdd-bytes", "64M", "--temp-path"]).arg(folder);
    Process::start("stress-ng", command, folder).context("stress-ng (package stress-ng)")
}
