// SPDX-License-Identifier: Apache-2.0
//! A limit on log lines that a peer can cause by creating topics: each place in the code writes a
//! bounded number of lines per period and then the number of lines that it left out.

use crate::lock::lock;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Maximum number of lines that one place in the code logs in each [`PERIOD`].
const MAX_LINES: u32 = 20;
const PERIOD: Duration = Duration::from_secs(30);

/// Logs at a level with fields and a message, but within the limit of this place in the code.
macro_rules! log_limited {
    ($level:ident, {$($fields:tt)*}, $($message:tt)+) => {{
        static LIMIT: $crate::log_limit::LogLimit = $crate::log_limit::LogLimit::new();
        if let Some(left_out) = LIMIT.admit() {
            tracing::$level!($($fields)* left_out, $($message)+);
        }
    }};
}
pub(crate) use log_limited;

/// The limit of one place in the code.
#[derive(Debug)]
pub(crate) struct LogLimit(Mutex<Lines>);

#[derive(Debug)]
struct Lines {
    begun: Option<Instant>,
    written: u32,
    left_out: u64,
}

impl LogLimit {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(Lines { begun: None, written: 0, left_out: 0 }))
    }

    /// The number of lines left out before this one; `None`: this one is left out as well.
    pub(crate) fn admit(&self) -> Option<u64> {
        lock(&self.0).admit(Instant::now())
    }
}

impl Lines {
    fn admit(&mut self, now: Instant) -> Option<u64> {
        if self.begun.is_none_or(|begun| now.saturating_duration_since(begun) >= PERIOD) {
            (self.begun, self.written) = (Some(now), 0);
        }
        if self.written == MAX_LINES {
            self.left_out = self.left_out.saturating_add(1);
            return None;
        }
        self.written += 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_beyond_the_limit_are_left_out_and_counted() {
        let mut lines = LogLimit::new().0.into_inner().unwrap();
        let now = Instant::now();
        let written = (0..1000).filter(|_| lines.admit(now).is_some()).count();
        assert_eq!(written as u32, MAX_LINES);
        let later = now + PERIOD;
        assert_eq!([lines.admit(later), lines.admit(later)], [Some(980), Some(0)]);
    }
}
