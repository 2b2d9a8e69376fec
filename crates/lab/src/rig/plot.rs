// SPDX-License-Identifier: Apache-2.0
//! Pictures, drawn by scripts with Debian's matplotlib.

use super::enclosure::SCRATCH;
use super::processes::run;
use anyhow::{Context, Result};
use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

/// Runs a script of this crate's `plot/` with these arguments.
pub fn draw<A: AsRef<OsStr>>(script: &str, arguments: &[A]) -> Result<()> {
    draw_by(&Path::new(env!("CARGO_MANIFEST_DIR")).join("plot").join(script), arguments)
}

/// Runs a script with these arguments.
pub fn draw_by<A: AsRef<OsStr>>(script: &Path, arguments: &[A]) -> Result<()> {
    let mut python = Command::new("/usr/bin/python3");
    python.env("PYTHONDONTWRITEBYTECODE", "1").arg(script).args(arguments);
    // Outside the enclosure matplotlib uses its own folder.
    if Path::new(SCRATCH).is_dir() {
        python.env("MPLCONFIGDIR", SCRATCH);
    }
    run(&mut python)
        .with_context(|| format!("{} (make setup installs python3)", script.display()))?;
    Ok(())
}
