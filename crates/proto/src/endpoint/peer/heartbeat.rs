// SPDX-License-Identifier: Apache-2.0
//! When a link sends heartbeats, and when it counts as up and as down.
//!
//! A metered link is *spared* while it carries no messages and another link shows that the peer is there: it
//! then sends few heartbeats. Each end decides for itself, without an agreement: an end that sends often
//! hears acknowledgements just as often.

use crate::config::METERED_HEARTBEAT;
use crate::endpoint::context::{Context, Request};
use crate::endpoint::events::Event;
use crate::endpoint::peer::Peer;
use crate::endpoint::timer::Timer;
use crate::ids::LinkId;
use crate::path::links::Links;
use crate::time::{Duration, Instant};

/// Interval of PINGs on a silent link.
const PROBE_INTERVAL: Duration = Duration::from_millis(50);
/// Interval of PINGs during the trial of a direct path.
const TRIAL_INTERVAL: Duration = Duration::from_millis(100);
/// Interval at which a link that is down sends PINGs and initiations in turn. A PING has 73
/// bytes of IP and an initiation at most 234: together 0.48 % of 1.5 Mbps. A link that works again
/// is found within 170 ms if the keys are still known, and within 340 ms if not.
const RECONNECT_INTERVAL: Duration = Duration::from_millis(170);
/// The reconnect interval for a peer that has been away for [`LONG_DOWN`].
const RECONNECT_INTERVAL_LONG_DOWN: Duration = Duration::from_millis(500);
const LONG_DOWN: Duration = Duration::from_secs(300);

/// The timers of links.
impl Links {
    /// Sets when packets of a link are overdue, when it is stalled, and when it sends a PING.
    pub(crate) fn arm(&mut self, cx: &mut Context, id: LinkId) {
        cx.timers.set(Timer::Loss(id), self[id].sent_packets.timer());
        let link = &self[id];
        cx.timers.set(Timer::Stall(id), link.stall_at(self.has_alternative(id)));
        let ping_at = link.last_ack_eliciting + self.ping_interval(cx, id);
        let ping_at = Some(ping_at).filter(|_| link.up);
        cx.timers.set(Timer::Ping(id), ping_at.filter(|_| !link.ping_now));
    }

    /// Interval of PINGs on a link that is up.
    fn ping_interval(&self, cx: &Context, id: LinkId) -> Duration {
        if self[id].trial.is_some_and(|it| it.needs_frequent_pings()) {
            return TRIAL_INTERVAL;
        }
        match (self.is_spared(cx.clock_now, id), self[id].silent) {
            (false, true) => PROBE_INTERVAL,
            (true, false) => METERED_HEARTBEAT.max(cx.config.heartbeat),
            _ => cx.config.heartbeat,
        }
    }

    /// Time without a packet after which a link is down.
    fn timeout(&self, cx: &Context, now: Instant, id: LinkId) -> Duration {
        let usual = cx.config.link_timeout.unwrap_or_else(|| self[id].timeout());
        if self.is_spared(now, id) { usual + METERED_HEARTBEAT * 3 } else { usual }
    }

    /// Makes the metered links show immediately whether they are up, because a link is no longer heard.
    pub(super) fn wake_metered_links(&mut self, cx: &mut Context, now: Instant) {
        for id in self.ids().to_vec() {
            let link = &self[id];
            if !link.config.metered || self.is_spared(now, id) {
                continue;
            }
            if link.up {
                let due = now + self.timeout(cx, now, id);
                cx.timers.bring_forward(Timer::LinkTimeout(id), due);
            }
            if !link.is_heard() {
                cx.timers.bring_forward(Timer::Reconnect(id), now);
            }
            self.arm(cx, id);
        }
    }
}

impl Peer {
    /// Marks a link as up: a packet came from the address to which the link leads.
    pub(crate) fn mark_received(
        &mut self,
        cx: &mut Context,
        now: Instant,
        id: LinkId,
        datagram_len: usize,
    ) {
        let link = &mut self.links[id];
        link.last_received = Some(now);
        if datagram_len > 0 {
            link.stats.received_packets += 1;
            link.stats.received_bytes += (datagram_len + link.config.header_bytes) as u64;
        }
        let (was_up, is_metered) = (link.up, link.config.metered);
        // The next packet must arrive within the timeout.
        let timeout = self.links.timeout(cx, now, id);
        cx.timers.set(Timer::LinkTimeout(id), Some(now + timeout));
        if was_up {
            if is_metered {
                self.links.arm(cx, id);
            }
            return;
        }
        let link = &mut self.links[id];
        link.up = true;
        link.sent_packets.mtu.on_up();
        link.confirm_address();
        link.last_ack_eliciting = now;
        // During the outage, address translators may have forgotten the mapping of this link.
        link.address_discovery.ask_again();
        link.ping_now |= link.address_discovery.needs_answer();
        self.rendezvous.on_link_up(cx, now, &mut self.links, id);
        self.links.arm(cx, id);
        let peer = self.id;
        cx.emit(peer, Event::LinkUp { link: id });
        if !std::mem::replace(&mut self.up, true) {
            cx.emit(peer, Event::PeerUp { peer, new_session: false });
        }
    }

    pub(crate) fn mark_down(&mut self, cx: &mut Context, now: Instant, id: LinkId) {
        let link = &mut self.links[id];
        if !std::mem::replace(&mut link.up, false) {
            return;
        }
        link.silent = false;
        link.headroom.forget();
        // The machine may have lost the address from which the link sends.
        link.local_address.forget();
        self.mark_all_lost(cx, now, id);
        self.links[id].sent_packets.test_ecn();
        cx.timers.set(Timer::Ping(id), None);
        cx.timers.set(Timer::LinkTimeout(id), None);
        cx.timers.set(Timer::Reconnect(id), Some(now));
        let (peer, said_goodbye) = (self.id, self.said_goodbye);
        cx.emit(peer, Event::LinkDown { link: id });
        if self.up && !self.links.iter().any(|link| link.up) {
            self.up = false;
            cx.emit(peer, Event::PeerDown { peer, said_goodbye });
        }
        if !self.links.direct().any(|link| link.up) {
            cx.push_request(Request::ForgetRoutes(peer));
        }
        self.rendezvous.on_link_lost(cx, now, &mut self.links, id);
        self.links.wake_metered_links(cx, now);
    }

    /// Handles the timeout of a link on which nothing has arrived. If the link has been spared
    /// since the timer was set, the timeout is now longer.
    pub(crate) fn on_silent_timer(&mut self, cx: &mut Context, now: Instant, id: LinkId) {
        let timeout = self.links.timeout(cx, now, id);
        let link = &self.links[id];
        let due = link.last_received.filter(|_| link.config.metered).map(|at| at + timeout);
        match due.filter(|due| *due > now) {
            None => self.mark_down(cx, now, id),
            due => cx.timers.set(Timer::LinkTimeout(id), due),
        }
    }

    /// Seeks the peer by a link that is down or silent. `has_relay`: the link's relay is heard, or the link
    /// has no relay.
    pub(crate) fn on_reconnect_timer(
        &mut self,
        cx: &mut Context,
        now: Instant,
        id: LinkId,
        has_relay: bool,
    ) {
        if self.rendezvous.is_given_up(now, &self.links, id) {
            self.forget_direct_path(cx, now, id);
        }
        let link = &mut self.links[id];
        if link.is_heard() {
            return;
        }
        // Initiations and PINGs alternate. Each kind goes to both addresses in turn.
        if !link.up && link.reconnect_attempts.is_multiple_of(2) {
            link.try_alternate_address();
        }
        let reachable = link.remote.is_some() && has_relay;
        link.reconnect_attempts = link.reconnect_attempts.wrapping_add(1);
        // While another link to the peer is heard, the keys are valid and a PING suffices.
        let heard = self.links.iter().any(|other| other.is_heard());
        let link = &mut self.links[id];
        let has_keys = self.session.keys().is_some();
        if has_keys && (heard || link.reconnect_attempts.is_multiple_of(2)) {
            link.ping_now = reachable;
        } else {
            link.initiate_now = reachable;
        }
        let away = link.last_received.is_none_or(|at| now.since(at) > LONG_DOWN);
        let started = now.0 > LONG_DOWN.as_nanos() as u64;
        let wait = if self.links.is_spared(now, id) {
            METERED_HEARTBEAT
        } else if away && started {
            RECONNECT_INTERVAL_LONG_DOWN
        } else {
            RECONNECT_INTERVAL
        };
        cx.timers.set(Timer::Reconnect(id), Some(now + wait));
    }
}
