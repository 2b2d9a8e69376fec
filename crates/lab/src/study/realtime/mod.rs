// SPDX-License-Identifier: Apache-2.0
//! TODO.

use anyhow::{Result, bail};
use std::process::ExitCode;

/// Arguments of the study.
#[derive(clap::Args)]
pub struct Arguments {}

/// Runs the study.
pub fn run(_arguments: &Arguments) -> Result<ExitCode> {
    bail!("not built yet")
}
