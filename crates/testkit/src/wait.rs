// SPDX-License-Identifier: Apache-2.0
//! Waiting for conditions.

use std::fmt::Display;
use std::time::{Duration, Instant};

/// Maximum time until a condition holds; then the test fails. It is long because machines may be
/// busy.
pub const DEADLINE: Duration = Duration::from_secs(60);
/// Interval between two checks.
const PAUSE: Duration = Duration::from_millis(10);

/// Waits until `look` returns a value.
pub fn wait_for<T>(what: impl Display, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < DEADLINE, "not within {DEADLINE:?}: {what}");
        std::thread::sleep(PAUSE);
    }
}
