// SPDX-License-Identifier: Apache-2.0
//! Pictures, drawn by the scripts in `plot/` with Debian's matplotlib.

use super::enclosure::SCRATCH;
use super::processes::run;
use anyhow::{Context, Result};
use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

/// Runs a script of `plot/` with these arguments.
pub fn draw<A: AsRef<OsStr>>(script: &str, arguments: &[A]) -> Result<()> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("plot").join(script);
    let mut python = Command::new("/usr/bin/python3");
    python.env("PYTHONDONTWRITEBYTECODE", "1").arg(file).args(arguments);
    // Outside the enclosure matplotlib uses its own folder.
    if Path::new(SCRATCH).is_dir() {
        python.env("MPLCONFIGDIR", SCRATCH);
    }
    run(&mut python).with_context(|| format!("plot/{script} (make setup installs python3)"))?;
    Ok(())
}
