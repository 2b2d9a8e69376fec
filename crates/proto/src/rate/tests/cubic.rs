// SPDX-License-Identifier: Apache-2.0
//! A TCP that always has more to send, after RFC 9438: only as much of it as makes a rival.

use super::{WAY, Way};
use crate::time::{Duration, Instant};
use std::collections::VecDeque;

/// RFC 9438, sections 4.1 and 4.6.
const C: f64 = 0.4;
const BETA: f64 = 0.7;
const FIRST_WINDOW: f64 = 10.0;

#[derive(Debug)]
pub(super) struct Cubic {
    /// Packets.
    window: f64,
    /// What it was when a packet was last lost, and when that was; until then it is slow start.
    most: f64,
    lost_at: Option<Instant>,
    /// Of each packet under way, when its acknowledgement comes, or its loss is seen: `false`.
    under_way: VecDeque<(Instant, bool)>,
}

impl Default for Cubic {
    fn default() -> Self {
        Self { window: FIRST_WINDOW, most: 0.0, lost_at: None, under_way: VecDeque::new() }
    }
}

impl Cubic {
    /// Sends what it may at `now`: when the way is free after it.
    pub(super) fn run(&mut self, now: Instant, mut free_at: Instant, way: &Way) -> Instant {
        while let Some((_, arrived)) = self.under_way.pop_front_if(|(at, _)| *at <= now) {
            self.hear(now, arrived, free_at.since(now) + WAY * 2);
        }
        while (self.under_way.len() as f64) < self.window {
            let after = way.after(now, free_at);
            free_at = after.unwrap_or(free_at);
            self.under_way.push_back((free_at.max(now) + WAY * 2, after.is_some()));
        }
        free_at
    }

    fn hear(&mut self, now: Instant, arrived: bool, rtt: Duration) {
        match self.lost_at {
            None if arrived => self.window += 1.0,
            Some(at) if arrived || now.since(at) <= rtt => self.grow(now.since(at) + rtt),
            _ => {
                self.most = self.window;
                self.window = (self.window * BETA).max(FIRST_WINDOW);
                self.lost_at = Some(now);
            }
        }
    }

    fn grow(&mut self, since: Duration) {
        let back = (self.most * (1.0 - BETA) / C).cbrt();
        let aim = C * (since.as_secs_f64() - back).powi(3) + self.most;
        self.window += ((aim.min(self.window * 1.5) - self.window) / self.window).max(0.0);
    }
}
