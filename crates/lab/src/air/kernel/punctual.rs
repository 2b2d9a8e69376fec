// SPDX-License-Identifier: Apache-2.0
//! Threads that are woken when they asked to be.
//!
//! The host of a virtual machine takes its processors away for milliseconds, mostly one at a
//! time: of timers on one processor of such a machine 5 % were over 400 us late, of the
//! earlier of two 0.9 % (seen once). So what must be in time is done by two [`HANDS`], each on a processor
//! of its own, of which whichever is awake does what is due.

use crate::processes::run;
use anyhow::{Context, Result};
use rustix::thread::{
    CpuSet, gettid, sched_getaffinity, sched_setaffinity, set_current_timer_slack,
};
use std::num::NonZeroU64;
use std::process::Command;

/// Threads for one task, where there are as many processors.
const HANDS: usize = 2;

/// Before whom a thread is to run (`SCHED_FIFO`); all are before ordinary threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rank {
    /// What sends and receives on the modelled radios.
    Traffic = 10,
    /// What moves them; a few percent of a core.
    Emulator = 20,
}

/// The processors for a task's hands.
pub fn processors() -> Result<Vec<usize>> {
    let allowed = sched_getaffinity(None).context("cannot tell the processors")?;
    let processors = (0..CpuSet::MAX_CPU).filter(|processor| allowed.is_set(*processor));
    Ok(processors.take(HANDS).collect())
}

/// Keeps the calling thread on a processor.
pub fn stay_on(processor: usize) -> Result<()> {
    let mut here = CpuSet::new();
    here.set(processor);
    sched_setaffinity(None, &here).context("cannot stay on a processor")
}

/// The calling thread stays on one processor until this is dropped.
pub struct Confined(CpuSet);

impl Confined {
    /// From now on.
    pub fn to(processor: usize) -> Result<Self> {
        let before = sched_getaffinity(None).context("cannot tell the processors")?;
        stay_on(processor)?;
        Ok(Self(before))
    }
}

impl Drop for Confined {
    fn drop(&mut self) {
        // It could be set before.
        let _ = sched_setaffinity(None, &self.0);
    }
}

/// Has the calling thread woken without slack and, where allowed (as root), before those of
/// lower rank. Says whether the latter was allowed.
pub fn be_punctual(rank: Rank) -> Result<bool> {
    // The default of 50 us would be most of a frame's lateness.
    set_current_timer_slack(NonZeroU64::new(1)).context("cannot set the timer slack")?;
    let thread = gettid().as_raw_nonzero().to_string();
    let priority = (rank as i32).to_string();
    Ok(run(Command::new("chrt").args(["--fifo", "--pid", &priority, &thread])).is_ok())
}
