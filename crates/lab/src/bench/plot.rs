// SPDX-License-Identifier: Apache-2.0
//! The plot of delay distributions, drawn by Debian's matplotlib.

use crate::enclosure::SCRATCH;
use crate::processes::run;
use anyhow::Result;
use std::path::Path;
use std::process::Command;

/// Draws the raw samples under `raw` (one folder per transport) to `picture`.
pub fn draw(raw: &Path, picture: &Path, title: &str, subtitle: &str) -> Result<()> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("plot/delays.py");
    run(Command::new("/usr/bin/python3")
        .env("MPLCONFIGDIR", SCRATCH)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .arg(script)
        .args([raw, picture])
        .args(["--title", title, "--subtitle", subtitle]))?;
    Ok(())
}
