// SPDX-License-Identifier: Apache-2.0
//! Clocks of the machine, and the processor time of a thread.

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// Number of paired readings of two clocks.
const LOOKS: usize = 16;

/// Returns CLOCK_MONOTONIC in nanoseconds: one clock for all programs of this machine, rospy
/// included.
pub fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Returns CLOCK_REALTIME minus CLOCK_MONOTONIC, in nanoseconds. The kernel stamps received packets
/// with CLOCK_REALTIME. The difference is constant unless the clock is set.
pub fn real_less_monotonic_ns() -> u64 {
    let look = || {
        let (before, real, after) =
            (monotonic_ns(), clock_gettime(ClockId::Realtime), monotonic_ns());
        let real = real.tv_sec as u64 * 1_000_000_000 + real.tv_nsec as u64;
        (after - before, real - before)
    };
    // The shortest reading is the one least disturbed by preemption.
    (0..LOOKS).map(|_| look()).min().map_or(0, |(_, apart)| apart)
}

/// Returns the processor time that the calling thread has used.
pub fn cpu_of_this_thread() -> Duration {
    let used = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(used.tv_sec as u64, used.tv_nsec as u32)
}
