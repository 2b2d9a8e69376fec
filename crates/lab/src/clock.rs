// SPDX-License-Identifier: Apache-2.0
//! What time it is, and how much of it was ours.

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// How often two clocks are looked at together.
const LOOKS: usize = 16;

/// CLOCK_MONOTONIC in nanoseconds: one clock for all programs of this machine, rospy ones too.
pub fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// CLOCK_REALTIME, in which the kernel stamps what it receives, less CLOCK_MONOTONIC. It
/// stays the same unless the clock is set.
pub fn real_less_monotonic_ns() -> u64 {
    let look = || {
        let (before, real, after) =
            (monotonic_ns(), clock_gettime(ClockId::Realtime), monotonic_ns());
        let real = real.tv_sec as u64 * 1_000_000_000 + real.tv_nsec as u64;
        (after - before, real - before)
    };
    // The look that was interrupted least.
    (0..LOOKS).map(|_| look()).min().map_or(0, |(_, apart)| apart)
}

/// Processor time that the calling thread has used.
pub fn cpu_of_this_thread() -> Duration {
    let used = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(used.tv_sec as u64, used.tv_nsec as u32)
}
