// SPDX-License-Identifier: Apache-2.0
//! The time of day here and at peers. Notices appear if a clock was set, or if two clocks differ.

use super::common::Common;
use std::time::{Duration, SystemTime};

/// Minimum step of this machine's clock that causes a notice.
const CLOCK_JUMP: Duration = Duration::from_millis(100);
/// Minimum difference between two machines' clocks that causes a notice: tf needs stamps that agree
/// to within milliseconds.
const CLOCKS_APART: Duration = Duration::from_millis(100);

#[derive(Debug, Default)]
pub(super) struct Clocks {
    /// Time of day at which the node's clock read zero, in microseconds since 1970, as last measured.
    wall_origin_us: Option<i64>,
}

impl Clocks {
    /// Passes the time of day to the protocol; logs a notice if a clock was set or differs from a
    /// peer's.
    pub(super) fn check(&mut self, common: &mut Common) {
        let now = common.now();
        let since_1970 = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        let wall_us = i64::try_from(since_1970.as_micros()).unwrap_or(i64::MAX);
        common.endpoint.set_wall(now, wall_us);
        let origin_us = wall_us.saturating_sub((now.0 / 1000) as i64);
        let before = self.wall_origin_us.replace(origin_us).unwrap_or(origin_us);
        let jump = Duration::from_micros(origin_us.abs_diff(before));
        if jump >= CLOCK_JUMP {
            let direction = if origin_us > before { "forward" } else { "back" };
            let text =
                format!("this machine's clock was set {direction} by {:.1} s", jump.as_secs_f64());
            common.notice(now, &text);
        }
        for id in common.endpoint.peers() {
            let peer = common.endpoint.peer(id);
            let Some(clock) = peer.clock.filter(|_| peer.up) else { continue };
            let Some(offset_us) = clock.offset_us else { continue };
            let apart = Duration::from_micros(offset_us.unsigned_abs());
            if apart >= CLOCKS_APART + clock.bound {
                let direction = if offset_us > 0 { "ahead of" } else { "behind" };
                let text = format!(
                    "the clock of '{}' is {:.1} s {direction} this machine's: timestamps and tf of the \
                     two do not match; synchronize both clocks, for example with chrony",
                    peer.name,
                    apart.as_secs_f64()
                );
                common.shared.peer_notice(now, id, &text);
            }
        }
    }
}
