// SPDX-License-Identifier: Apache-2.0
//! A TCP with unlimited data, after RFC 9438: only the parts that make it cross traffic.

use super::marking::Marker;
use super::{PATH_DELAY, Path};
use crate::time::{Duration, Instant};
use std::collections::VecDeque;

/// The constant C of RFC 9438, section 4.1.
const C: f64 = 0.4;
/// The factor of the window at a loss (RFC 9438, section 4.6).
const BETA: f64 = 0.7;
const FIRST_WINDOW: f64 = 10.0;
/// The least window, in packets (RFC 9438, section 4.6).
const LEAST_WINDOW: f64 = 2.0;

#[derive(Debug)]
pub(super) struct Cubic {
    /// The window in packets.
    window: f64,
    /// The window at the last loss.
    max_window: f64,
    /// The window of a Reno with the same reduction (section 4.3).
    reno_window: f64,
    /// The time of the last loss; `None` while in slow start.
    lost_at: Option<Instant>,
    /// For each packet in flight, when its acknowledgement (`true`), or its loss or mark (`false`) is known.
    in_flight: VecDeque<(Instant, bool)>,
}

impl Default for Cubic {
    fn default() -> Self {
        let (window, in_flight) = (FIRST_WINDOW, VecDeque::new());
        Self { window, max_window: 0.0, reno_window: 0.0, lost_at: None, in_flight }
    }
}

impl Cubic {
    /// Sends what the window allows at `now`; returns when the bottleneck becomes idle.
    pub(super) fn run(
        &mut self,
        now: Instant,
        mut free_at: Instant,
        path: &Path,
        marker: &mut Marker,
    ) -> Instant {
        while let Some((_, arrived)) = self.in_flight.pop_front_if(|(at, _)| *at <= now) {
            self.on_outcome(now, arrived, free_at.since(now) + PATH_DELAY * 2);
        }
        while (self.in_flight.len() as f64) < self.window {
            let after = path.after(now, free_at);
            let is_marked = marker.marks(now, free_at.since(now), path.marking);
            free_at = after.unwrap_or(free_at);
            self.in_flight
                .push_back((free_at.max(now) + PATH_DELAY * 2, after.is_some() && !is_marked));
        }
        free_at
    }

    fn on_outcome(&mut self, now: Instant, arrived: bool, rtt: Duration) {
        match self.lost_at {
            None if arrived => self.window += 1.0,
            Some(at) if arrived || now.since(at) <= rtt => self.grow(now.since(at) + rtt),
            _ => {
                self.max_window = self.window;
                self.window = (self.window * BETA).max(LEAST_WINDOW);
                self.reno_window = self.window;
                self.lost_at = Some(now);
            }
        }
    }

    fn grow(&mut self, since: Duration) {
        let recovery_time = (self.max_window * (1.0 - BETA) / C).cbrt();
        let target = C * (since.as_secs_f64() - recovery_time).powi(3) + self.max_window;
        self.window += ((target.min(self.window * 1.5) - self.window) / self.window).max(0.0);
        self.reno_window += 3.0 * (1.0 - BETA) / (1.0 + BETA) / self.window;
        self.window = self.window.max(self.reno_window);
    }
}
