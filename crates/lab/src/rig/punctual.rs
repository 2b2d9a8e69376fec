// SPDX-License-Identifier: Apache-2.0
//! Threads with a low scheduling delay.
//!
//! The host of a virtual machine preempts its processors for milliseconds, mostly one at a time. On
//! such a machine 5 % of timers on one processor were more than 400 us late; of timers on two
//! processors, 0.9 % were late on both (measured once). Time-critical work therefore has two threads
//! ([`HANDS`]), each on a separate processor. The thread that is awake does the work that is due.

use crate::rig::processes::run;
use anyhow::{Context, Result};
use rustix::thread::{
    CpuSet, gettid, sched_getaffinity, sched_setaffinity, set_current_timer_slack,
};
use std::num::NonZeroU64;
use std::process::Command;

/// Number of threads for one task, if there are as many processors.
const HANDS: usize = 2;

/// Real-time priority of a thread (`SCHED_FIFO`); all ranks precede ordinary threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rank {
    /// Threads that send and receive on the modelled radios.
    Traffic = 10,
    /// Threads of the emulator; a few percent of a core.
    Emulator = 20,
}

/// Returns the processors for a task's threads.
pub fn processors() -> Result<Vec<usize>> {
    let allowed = sched_getaffinity(None).context("cannot tell the processors")?;
    let processors = (0..CpuSet::MAX_CPU).filter(|processor| allowed.is_set(*processor));
    Ok(processors.take(HANDS).collect())
}

/// Pins the calling thread to a processor.
pub fn stay_on(processor: usize) -> Result<()> {
    let mut here = CpuSet::new();
    here.set(processor);
    sched_setaffinity(None, &here).context("cannot stay on a processor")
}

/// Pins the calling thread to one processor until this value is dropped.
pub struct Confined(CpuSet);

impl Confined {
    /// Pins the calling thread to `processor`.
    pub fn to(processor: usize) -> Result<Self> {
        let before = sched_getaffinity(None).context("cannot tell the processors")?;
        stay_on(processor)?;
        Ok(Self(before))
    }
}

impl Drop for Confined {
    fn drop(&mut self) {
        // Cannot fail: the same set was valid before.
        let _ = sched_setaffinity(None, &self.0);
    }
}

/// Removes the calling thread's timer slack and, where permitted (as root), gives it priority over
/// lower ranks. Returns whether the priority was permitted.
pub fn be_punctual(rank: Rank) -> Result<bool> {
    // The default of 50 us would be most of a frame's delay.
    set_current_timer_slack(NonZeroU64::new(1)).context("cannot set the timer slack")?;
    let thread = gettid().as_raw_nonzero().to_string();
    let priority = (rank as i32).to_string();
    Ok(run(Command::new("chrt").args(["--fifo", "--pid", &priority, &thread])).is_ok())
}
