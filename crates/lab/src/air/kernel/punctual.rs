// SPDX-License-Identifier: Apache-2.0
//! A thread that is woken when it asked to be.

use crate::processes::run;
use anyhow::{Context, Result};
use rustix::thread::{gettid, set_current_timer_slack};
use std::num::NonZeroU64;
use std::process::Command;

/// Above everything that is not real time itself; the medium uses a few percent of a core.
const PRIORITY: &str = "10";

/// Has the calling thread woken without slack and, where allowed (as root), before all
/// ordinary ones (`SCHED_FIFO`). Says whether the latter was allowed.
pub fn be_punctual() -> Result<bool> {
    // The default of 50 us would be most of a frame's lateness.
    set_current_timer_slack(NonZeroU64::new(1)).context("cannot set the timer slack")?;
    let thread = gettid().as_raw_nonzero().to_string();
    Ok(run(Command::new("chrt").args(["--fifo", "--pid", PRIORITY, &thread])).is_ok())
}
