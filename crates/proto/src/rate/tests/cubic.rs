// SPDX-License-Identifier: Apache-2.0
//! A TCP with unlimited data, after RFC 9438: only the parts that make it cross traffic.

use super::{PATH_DELAY, Path};
use crate::time::{Duration, Instant};
use std::collections::VecDeque;

/// RFC 9438, sections 4.1 and 4.6.
const C: f64 = 0.4;
const BETA: f64 = 0.7;
const FIRST_WINDOW: f64 = 10.0;

#[derive(Debug)]
pub(super) struct Cubic {
    /// In packets.
    window: f64,
    /// Window at the last loss, and the time of that loss; slow start until then.
    max_window: f64,
    lost_at: Option<Instant>,
    /// For each packet in flight, when its acknowledgement (`true`) or its loss (`false`) is known.
    in_flight: VecDeque<(Instant, bool)>,
}

impl Default for Cubic {
    fn default() -> Self {
        Self { window: FIRST_WINDOW, max_window: 0.0, lost_at: None, in_flight: VecDeque::new() }
    }
}

impl Cubic {
    /// Sends what the window allows at `now`; returns when the bottleneck becomes idle.
    pub(super) fn run(&mut self, now: Instant, mut free_at: Instant, path: &Path) -> Instant {
        while let Some((_, arrived)) = self.in_flight.pop_front_if(|(at, _)| *at <= now) {
            self.on_outcome(now, arrived, free_at.since(now) + PATH_DELAY * 2);
        }
        while (self.in_flight.len() as f64) < self.window {
            let after = path.after(now, free_at);
            free_at = after.unwrap_or(free_at);
            self.in_flight.push_back((free_at.max(now) + PATH_DELAY * 2, after.is_some()));
        }
        free_at
    }

    fn on_outcome(&mut self, now: Instant, arrived: bool, rtt: Duration) {
        match self.lost_at {
            None if arrived => self.window += 1.0,
            Some(at) if arrived || now.since(at) <= rtt => self.grow(now.since(at) + rtt),
            _ => {
                self.max_window = self.window;
                self.window = (self.window * BETA).max(FIRST_WINDOW);
                self.lost_at = Some(now);
            }
        }
    }

    fn grow(&mut self, since: Duration) {
        let recovery_time = (self.max_window * (1.0 - BETA) / C).cbrt();
        let target = C * (since.as_secs_f64() - recovery_time).powi(3) + self.max_window;
        self.window += ((target.min(self.window * 1.5) - self.window) / self.window).max(0.0);
    }
}
