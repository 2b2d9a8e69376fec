// SPDX-License-Identifier: Apache-2.0
//! One peer: its session, its links, and the messages in both directions.
//!
//! A peer handles its own frames and timers. It sees neither other peers nor radios. Where these
//! are concerned, it asks the endpoint with a [`Request`](crate::endpoint::context::Request).

mod acknowledge;
pub(crate) mod channels;
pub(crate) mod frames;
mod heartbeat;
mod migration;
pub(crate) mod packet;
mod receive;

use crate::bucket::Bucket;
use crate::clock::Clock;
use crate::config::{Config, Rights};
use crate::crypto::keys::PublicKey;
use crate::delivery::inbox::Transit;
use crate::endpoint::backlog_reports::BacklogReports;
use crate::endpoint::context::Context;
use crate::endpoint::events::Event;
use crate::endpoint::peer::channels::Channels;
use crate::endpoint::rendezvous::Rendezvous;
use crate::endpoint::timer::Timer;
use crate::ids::{LinkId, PeerId, TeamId};
use crate::limits;
use crate::path::links::Links;
use crate::path::select::Forecasts;
use crate::recovery::received::ReceivedPackets;
use crate::session::Session;
use crate::time::{Duration, Instant};
use crate::wire::relay::ShortName;
use std::collections::BTreeMap;

/// A rekeying that did not complete is repeated after this time.
const REKEY_RETRY: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) id: PeerId,
    pub(crate) name: String,
    /// The peer was removed. A new peer may take its place.
    pub(crate) removed: bool,
    pub(crate) short_name: ShortName,
    /// The team to which the peer belongs, at a relay.
    pub(crate) team: Option<TeamId>,
    pub(crate) session: Session,
    pub(crate) links: Links,
    pub(crate) up: bool,
    pub(crate) clock: Clock,
    pub(crate) rights: Rights,
    /// Relay backlog reports to this peer.
    pub(crate) backlog_reports: BacklogReports,
    /// When idle relay routes from this peer were last removed.
    pub(crate) routes_swept_at: Option<Instant>,
    pub(crate) goodbye_now: bool,
    /// A goodbye of this peer is being handled.
    pub(crate) said_goodbye: bool,
    pub(crate) channels: Channels,
    pub(crate) forecasts: Forecasts,
    /// The received packets of each link, by the peer's link number.
    pub(crate) received_packets: BTreeMap<u8, ReceivedPackets>,
    /// Limit of packets of control messages to the peer that precede messages to other peers.
    pub(crate) control_priority_limit: Bucket,
    /// Limit of challenges of the peer that are echoed.
    echo_limit: Bucket,
    /// Limit of probes of path MTUs to the peer.
    pub(crate) mtu_probe_limit: Bucket,
    pub(crate) rendezvous: Rendezvous,
}

impl Peer {
    pub(crate) fn new(
        name: &str,
        (key, own): (PublicKey, PublicKey),
        epoch: u64,
        config: &Config,
    ) -> Self {
        Self {
            id: PeerId(u32::MAX),
            name: name.to_owned(),
            removed: false,
            short_name: key.short_name(),
            team: None,
            session: Session::new(own, key, epoch),
            links: Links::default(),
            up: false,
            clock: Clock::default(),
            rights: Rights::default(),
            backlog_reports: BacklogReports::default(),
            routes_swept_at: None,
            goodbye_now: false,
            said_goodbye: false,
            channels: Channels::new(config),
            forecasts: Forecasts::default(),
            received_packets: BTreeMap::new(),
            control_priority_limit: Bucket::new(limits::CONTROL_FIRST),
            echo_limit: Bucket::new(limits::ECHOES),
            mtu_probe_limit: Bucket::new(limits::MTU_PROBES),
            rendezvous: Rendezvous::new(),
        }
    }

    /// Gives the peer its id.
    pub(crate) fn assign_id(&mut self, id: PeerId) {
        self.id = id;
        self.rendezvous.assign_id(id);
        self.channels.assign_id(id, self.team.is_some());
    }

    /// The time that a packet was on the path. By default, that is half the smoothed round trip. A packet
    /// that was queued far away is older than that. After a time of load, half the smoothed round trip
    /// exceeds the delay of the path, and fresh messages would expire. The clocks therefore bound the time on
    /// both sides.
    fn transit(
        &mut self,
        now: Instant,
        clock: Option<u32>,
        rtt: Duration,
        relayed_age: Option<Duration>,
    ) -> Transit {
        let measured = clock.and_then(|clock| self.clock.transit(now, clock));
        let range = clock.and_then(|clock| self.clock.transit_range(now, clock));
        let (least, most) = range.unwrap_or((Duration::ZERO, Duration::MAX));
        let assumed = relayed_age.unwrap_or((rtt / 2).min(most)).max(least);
        Transit { assumed, measured: relayed_age.or(measured) }
    }
}

/// The session.
impl Peer {
    /// Handles a key set that came into use. If it begins a new session, discards the state of the
    /// earlier session.
    pub(crate) fn start_keys(&mut self, cx: &mut Context, now: Instant, new_epoch: bool) {
        if new_epoch {
            self.reset_session(cx, now);
            self.channels.open(now);
            self.up = true;
            cx.emit(self.id, Event::PeerUp { peer: self.id, new_session: true });
        }
        cx.timers.set(Timer::Rekey(self.id), self.session.rekey_at());
    }

    /// Ends the session for both nodes, after its links are down: the next session has other epochs.
    pub(crate) fn end_session(&mut self, cx: &mut Context) {
        let epoch = cx.draw_token();
        self.session.end(epoch);
        self.channels.close();
    }

    /// Gives up a direct path, until another is found.
    pub(crate) fn forget_direct_path(&mut self, cx: &mut Context, now: Instant, id: LinkId) {
        if self.rendezvous.is_for(id) {
            self.mark_down(cx, now, id);
            self.links[id].remote = None;
            self.forget_learned_address(cx, id);
        }
    }

    /// Discards all state of a session.
    pub(crate) fn reset_session(&mut self, cx: &mut Context, now: Instant) {
        self.channels.reset(cx, now);
        self.received_packets.clear();
        self.clock = Clock::default();
        self.backlog_reports.clear();
        for id in self.links.ids().to_vec() {
            self.links[id].reset();
            cx.timers.set(Timer::Loss(id), None);
            cx.timers.set(Timer::LinkTimeout(id), None);
            cx.timers.set(Timer::PathValidation(id), None);
            cx.timers.set(Timer::Reconnect(id), Some(now));
        }
    }

    /// Renews the keys before they end, and forgets those that have ended.
    pub(crate) fn on_rekey_timer(&mut self, cx: &mut Context, now: Instant) {
        self.session.expire_keys(now);
        let rekey_at = self.session.rekey_at();
        if rekey_at.is_none() {
            for id in self.links.ids().to_vec() {
                self.mark_down(cx, now, id);
            }
        } else if rekey_at.is_some_and(|at| at <= now) {
            let any = self.links.iter().find(|link| link.up).map(|link| link.id);
            if let Some(id) = any {
                self.links[id].initiate_now = true;
            }
        }
        let again = rekey_at.map(|at| at.max(now + REKEY_RETRY));
        cx.timers.set(Timer::Rekey(self.id), again);
    }
}

/// The timers of the peer itself. Its links have timers of their own.
impl Peer {
    /// Removes these timers.
    pub(crate) fn forget_timers(&self, cx: &mut Context) {
        let peer = self.id;
        let timers = [Timer::BacklogReport, Timer::Rekey, Timer::Expiry, Timer::Rendezvous];
        timers.into_iter().for_each(|timer| cx.timers.set(timer(peer), None));
        cx.timers.set(Timer::Reassembly(peer), None);
        cx.timers.set(Timer::Order(peer), None);
        (0..=u8::MAX).for_each(|number| cx.timers.set(Timer::Ack(peer, number), None));
    }

    /// Removes a link. The session continues on other links.
    pub(crate) fn forget_link(&mut self, cx: &mut Context, id: LinkId) {
        let timers =
            [Timer::Reconnect, Timer::PathValidation, Timer::Ping, Timer::LinkTimeout, Timer::Loss];
        timers.into_iter().for_each(|timer| cx.timers.set(timer(id), None));
        cx.timers.set(Timer::Stall(id), None);
        cx.timers.set(Timer::Probe(id), None);
        self.rendezvous.forget(id);
        for received in self.received_packets.values_mut().filter(|it| it.via == Some(id)) {
            received.via = None;
        }
    }
}
