// SPDX-License-Identifier: Apache-2.0
//! The roscpp nodes, compiled on demand: Debian has only the library.

use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::Command;
use tautline_lab::rig::processes::{make_folder, run};

/// Flags of the compiler for roscpp and the messages of the nodes.
const PKG_CONFIG: [&str; 4] = ["--cflags", "--libs", "roscpp", "sensor_msgs"];
const NEEDED: &str = "roscpp nodes need the Debian packages libroscpp-dev, libsensor-msgs-dev and g++: \
                      crates/lab/setup.sh libroscpp-dev libsensor-msgs-dev";

/// Returns the compiled `ros/echo.cpp`; compiles it if it has changed.
pub fn echo() -> Result<PathBuf> {
    let lab = Path::new(env!("CARGO_MANIFEST_DIR"));
    let source = lab.join("ros/echo.cpp");
    let folder = std::path::absolute(lab.join("../../target/study-nodes"))?;
    let program = folder.join("echo");
    let changed = |file: &Path| file.metadata().and_then(|it| it.modified()).ok();
    if changed(&program).is_some_and(|made| Some(made) >= changed(&source)) {
        return Ok(program);
    }
    make_folder(&folder)?;
    let flags = run(Command::new("pkg-config").args(PKG_CONFIG)).context(NEEDED)?;
    // Another run may compile at the same time; the last run replaces the file.
    let fresh = folder.join(format!("echo-{}", std::process::id()));
    let mut compiler = Command::new("g++");
    compiler.args(["-O2", "-std=c++17", "-o"]).arg(&fresh).arg(&source);
    run(compiler.args(flags.split_whitespace())).context(NEEDED)?;
    std::fs::rename(&fresh, &program)
        .with_context(|| format!("cannot write {}", program.display()))?;
    Ok(program)
}
