// SPDX-License-Identifier: Apache-2.0
//! What time it is, and how much of it was ours.

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// CLOCK_MONOTONIC in nanoseconds: one clock for all programs of this machine, rospy ones too.
pub fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Processor time that the calling thread has used.
pub fn cpu_of_this_thread() -> Duration {
    let used = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(used.tv_sec as u64, used.tv_nsec as u32)
}
