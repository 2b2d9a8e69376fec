// SPDX-License-Identifier: Apache-2.0
//! When a link shows the peer that it is there, and when it counts as down.
//!
//! A metered link is *spared* while it carries no messages and another link shows that the peer is
//! there: it then sends few heartbeats. Each end decides for itself, and needs no word of the other: an
//! end that sends often hears the acknowledgements as often.

use crate::config::METERED_HEARTBEAT;
use crate::endpoint::{Endpoint, Timer};
use crate::ids::{LinkId, PeerId};
use crate::time::{Duration, Instant};

/// Interval of PINGs on a silent link.
const PROBE_INTERVAL: Duration = Duration::from_millis(50);
/// Interval of PINGs during the trial of a direct path.
const TRIAL_INTERVAL: Duration = Duration::from_millis(100);
/// Time after its last message for which a link is not spared: a message per second keeps it so.
const SPARED_AFTER: Duration = Duration::from_secs(2);

impl Endpoint {
    /// Whether a link is to use as little data as possible.
    pub(crate) fn is_spared(&self, now: Instant, id: LinkId) -> bool {
        let link = &self.links[id];
        link.config.metered
            && link.last_message.is_none_or(|at| now.since(at) > SPARED_AFTER)
            && self.direct_links(link.peer).any(|it| it.is_heard() && !it.config.metered)
    }

    /// Interval of PINGs on a link that is up.
    pub(crate) fn ping_interval(&self, now: Instant, id: LinkId) -> Duration {
        if self.links[id].trial.is_some_and(|it| it.is_hurried()) {
            return TRIAL_INTERVAL;
        }
        match (self.is_spared(now, id), self.links[id].silent) {
            (false, true) => PROBE_INTERVAL,
            (true, false) => METERED_HEARTBEAT.max(self.config.heartbeat),
            _ => self.config.heartbeat,
        }
    }

    /// Time without a packet after which a link is down.
    fn link_timeout(&self, now: Instant, id: LinkId) -> Duration {
        let usual = self.config.link_timeout.unwrap_or_else(|| self.links[id].timeout());
        if self.is_spared(now, id) { usual + METERED_HEARTBEAT * 3 } else { usual }
    }

    /// Expects the next packet of a link that is up.
    pub(crate) fn await_packet(&mut self, now: Instant, id: LinkId) {
        let timeout = self.link_timeout(now, id);
        self.timers.set(Timer::Silent(id), Some(now + timeout));
    }

    /// Nothing arrived on a link for its timeout, which is longer if the link is spared since then.
    pub(crate) fn on_silent_timer(&mut self, now: Instant, id: LinkId) {
        let timeout = self.link_timeout(now, id);
        let link = &self.links[id];
        let due = link.last_received.filter(|_| link.config.metered).map(|at| at + timeout);
        match due.filter(|due| *due > now) {
            None => self.mark_down(now, id),
            due => self.timers.set(Timer::Silent(id), due),
        }
    }

    /// A link of the peer is no longer heard: the metered ones show at once whether they are up.
    pub(crate) fn rouse_metered_links(&mut self, now: Instant, peer: PeerId) {
        for id in self.peers[peer].links.clone() {
            if !self.links[id].config.metered || self.is_spared(now, id) {
                continue;
            }
            if self.links[id].up {
                let due = now + self.link_timeout(now, id);
                self.timers.bring_forward(Timer::Silent(id), due);
            }
            if !self.links[id].is_heard() {
                self.timers.bring_forward(Timer::Reconnect(id), now);
            }
            self.arm_link(id);
        }
    }
}
