// SPDX-License-Identifier: Apache-2.0
//! Assigns messages to one of several links to a peer.

use crate::delivery::outbox::Scope;
use crate::endpoint::transmit::{Candidate, HEADER_ESTIMATE};
use crate::endpoint::{Endpoint, Timer};
use crate::ids::{LinkId, PeerId, RadioId};
use crate::path::link::Link;
use crate::path::policy::LinkPolicy;
use crate::path::redundancy::{LinkState, Redundancy};
use crate::path::select::{Demand, Forecast, Forecasts, link_for};
use crate::rate::FULL_PACKET;
use crate::time::{Duration, Instant};

/// One-way delay of a link before its first acknowledgement, relative to the fastest one (as the
/// initial round trip in `recovery::sent`). Heartbeats measure it within a quarter of a second.
const INITIAL_DELAY: f64 = 0.1;
/// Rate of a radio before its first packet, in bytes per second: above most radios, so that it is
/// tried.
const INITIAL_RATE: f64 = 50e6 / 8.0;
/// Loss above which a link is treated as this lossy: the forecast stays finite.
const MAX_LOSS: f64 = 0.9;
/// Time to detect a loss, in addition to a round trip: a few packets.
const DETECTION: f64 = 5e-3;
/// A report leaves the link of the reported packets for one on which it arrives this much earlier, in
/// microseconds: within it, both directions of the link show in its round trip.
const REPORT_MARGIN: i32 = 5000;
/// Interval at which messages that wait for another link are assigned again: that link may be slower
/// than expected.
const REASSIGN_INTERVAL: Duration = Duration::from_millis(2);

impl Endpoint {
    /// Whether several links of a peer lead to it directly.
    fn has_choice(&self, peer: PeerId) -> bool {
        self.direct_link_ids(peer).nth(1).is_some()
    }

    /// Whether the policies of channels decide which link carries a message: there is a choice, or a
    /// link carries only some channels, because its allowance is used up.
    pub(crate) fn policies_decide(&self, peer: PeerId) -> bool {
        let links = &self.peers[peer].links;
        self.has_choice(peer) || links.iter().any(|id| self.links[*id].is_spent())
    }

    /// Sets the number of IP bytes, sent and received from now on, after which a link carries only
    /// channels with [`LinkUse::over_budget`](crate::LinkUse::over_budget), control messages,
    /// acknowledgements and heartbeats. Other messages wait for another link, as while a link is
    /// down. `None`: no limit.
    pub fn set_allowance(&mut self, id: LinkId, bytes: Option<u64>) {
        let link = &mut self.links[id];
        link.allowed_bytes = bytes.map(|bytes| link.used_bytes().saturating_add(bytes));
    }

    /// Whether the peer of a link has another one that can carry data.
    pub(crate) fn has_other_link(&self, id: LinkId) -> bool {
        let links = &self.peers[self.links[id].peer].links;
        let carries = |other: &Link| other.carries_data() && !other.is_spent();
        links.iter().any(|other| *other != id && carries(&self.links[*other]))
    }

    /// The link of a report on packets that came by this link, which is up.
    pub(crate) fn report_link_of(&self, came_by: LinkId) -> LinkId {
        // The peer may send more heartbeats by a spared link, and expects answers by it.
        let faster = || self.faster_link(came_by).unwrap_or(came_by);
        if self.is_spared(self.clock_now, came_by) { came_by } else { faster() }
    }

    /// Another link of the same peer on which reports arrive much earlier than on this one.
    fn faster_link(&self, id: LinkId) -> Option<LinkId> {
        let link = &self.links[id];
        if link.via.is_some() || !self.has_choice(link.peer) {
            return None;
        }
        let own = link.one_way_micros.filter(|_| link.carries_data() && !link.is_suspect());
        let others = self.direct_link_ids(link.peer).filter(|other| {
            let other = &self.links[*other];
            let costs_more = other.config.metered && !link.config.metered && own.is_some();
            other.carries_data() && !other.is_suspect() && !other.is_spent() && !costs_more
        });
        let delays = others.filter_map(|other| Some((other, self.links[other].one_way_micros?)));
        let after = |micros: u32, first: u32| micros.wrapping_sub(first) as i32;
        let (fastest, delay) = delays.reduce(|a, b| if after(b.1, a.1) < 0 { b } else { a })?;
        let is_much_slower = own.is_none_or(|own| after(own, delay) > REPORT_MARGIN);
        is_much_slower.then_some(fastest).filter(|fastest| *fastest != id)
    }

    fn direct_link_ids(&self, peer: PeerId) -> impl Iterator<Item = LinkId> + '_ {
        let links = self.peers[peer].links.iter().copied();
        links.filter(|id| self.links[*id].via.is_none())
    }

    /// The first message that the policies assign to a link of this radio.
    pub(crate) fn next_by_policy(
        &mut self,
        now: Instant,
        radio: RadioId,
        peer: PeerId,
        held_back: &[LinkId],
    ) -> Option<Candidate> {
        if self.peers[peer].outbox.waiting_messages() == 0 {
            return None;
        }
        let mut forecasts = self.take_forecasts(now, peer);
        for forecast in &mut forecasts.links {
            forecast.held = held_back.contains(&forecast.link);
            forecast.ahead = 0.0;
        }
        let next = self.next_by_forecasts(now, radio, peer, held_back, &mut forecasts);
        self.peers[peer].forecasts = forecasts;
        next
    }

    /// The same with these forecasts.
    fn next_by_forecasts(
        &mut self,
        now: Instant,
        radio: RadioId,
        peer: PeerId,
        held_back: &[LinkId],
        forecasts: &mut Forecasts,
    ) -> Option<Candidate> {
        let is_spent = forecasts.links.iter().all(|forecast| forecast.spent);
        if forecasts.links.is_empty() || is_spent && self.has_unspent_link(peer) {
            return self.next_without_forecast(radio, peer, held_back);
        }
        if !forecasts.links.iter().any(|forecast| forecast.radio == radio) {
            return None;
        }
        let mut waits = false;
        let mut chosen = None;
        for message in self.peers[peer].outbox.ready_messages() {
            let rest = message.rest() + HEADER_ESTIMATE;
            let mut demand = Demand {
                link_use: *message.link_use,
                rest,
                packet: rest.min(FULL_PACKET),
                draw: message.draw(),
            };
            if !message.is_copied() && matches!(demand.link_use.policy, LinkPolicy::Duplicate(_)) {
                demand.link_use.policy = LinkPolicy::Best;
            }
            let copy_bytes = |number| Some(message.bytes_on(number)).filter(|bytes| *bytes > 0);
            if let Some(link) = forecasts.assign(radio, &demand, copy_bytes) {
                let copies = forecasts.copies(&demand.link_use);
                let (order, scope) = (message.order, Scope::All);
                chosen = Some(Candidate { peer, link, order, scope, copies });
                break;
            }
            waits |= forecasts.can_carry(&demand.link_use);
        }
        if chosen.is_none() && waits {
            self.timers.bring_forward(Timer::Pace(radio), now + REASSIGN_INTERVAL);
        }
        chosen
    }

    /// Whether a link of the peer is up and not spent, in part stalled or through a relay.
    fn has_unspent_link(&self, peer: PeerId) -> bool {
        let links = self.peers[peer].links.iter().map(|id| &self.links[*id]);
        links.filter(|link| !link.is_spent()).any(Link::is_open)
    }

    /// The first message that this radio can carry while no direct link carries all classes and
    /// channels: on a link of which only lower classes are stuck, or that is spent, or through a
    /// relay.
    fn next_without_forecast(
        &self,
        radio: RadioId,
        peer: PeerId,
        held_back: &[LinkId],
    ) -> Option<Candidate> {
        let state = &self.peers[peer];
        state.outbox.ready_messages().find_map(|message| {
            let class = self.radios[radio].class(Some(message.order.priority()));
            let heard = |hop| self.is_heard(hop);
            let link_use = Some(message.link_use);
            let link = link_for(&state.links, &self.links, (radio, class), link_use, heard)?;
            let is_relayed = self.links[link].via.is_some();
            let scope = if is_relayed { Scope::Unrelayed } else { Scope::All };
            let fits = message.bytes_on(self.links[link].number) > 0
                && !(is_relayed && message.is_relayed())
                && !held_back.contains(&link);
            fits.then_some(Candidate { peer, link, order: message.order, scope, copies: 1 })
        })
    }

    /// From here on, forecasts are made anew: the state of a radio or of a link has changed.
    pub(crate) fn forget_forecasts(&mut self) {
        self.forecast_round += 1;
    }

    /// Takes the forecasts for the links to a peer that can carry data directly. They are made once
    /// in a round: each radio asks for the next message, and each packet for those after its first.
    fn take_forecasts(&mut self, now: Instant, peer: PeerId) -> Forecasts {
        let mut forecasts = std::mem::take(&mut self.peers[peer].forecasts);
        if std::mem::replace(&mut forecasts.round, self.forecast_round) != self.forecast_round {
            self.make_forecasts(now, peer, &mut forecasts.links);
        }
        debug_assert!(self.are_current(now, peer, &forecasts), "a round has one state");
        forecasts
    }

    fn make_forecasts(&self, now: Instant, peer: PeerId, forecasts: &mut Vec<Forecast>) {
        let usable = self.direct_link_ids(peer).filter(|id| self.links[*id].carries_data());
        forecasts.clear();
        forecasts.extend(usable.map(|id| self.forecast(now, id)));
        let first = forecasts.iter().find_map(|it| self.links[it.link].one_way_micros);
        for forecast in forecasts {
            let own = self.links[forecast.link].one_way_micros;
            let relative = own.zip(first).map(|(own, first)| own.wrapping_sub(first) as i32);
            forecast.delay = relative.map_or(INITIAL_DELAY, |micros| f64::from(micros) * 1e-6);
        }
    }

    /// Whether forecasts are those that would be made now.
    fn are_current(&self, now: Instant, peer: PeerId, forecasts: &Forecasts) -> bool {
        let mut made = Vec::new();
        self.make_forecasts(now, peer, &mut made);
        let unused = |it: &Forecast| Forecast { held: false, ahead: 0.0, ..*it };
        made.iter().copied().eq(forecasts.links.iter().map(unused))
    }

    fn forecast(&self, now: Instant, id: LinkId) -> Forecast {
        let link = &self.links[id];
        let radio = &self.radios[link.radio];
        let of_radio = radio.pacer.expected_start(now, self.in_flight(link.radio).total());
        let outstanding = link.sent_packets.outstanding_bytes();
        let of_link = link.controller.as_ref().map(|it| it.expected_start(now, outstanding));
        let ready = of_link.map_or(of_radio, |of_link| of_link.max(of_radio));
        let rtt = link.sent_packets.rtt().smoothed().unwrap_or_default();
        let loss = link.expected_loss().min(MAX_LOSS);
        Forecast {
            metered: link.config.metered,
            spent: link.is_spent(),
            ready: ready.since(now).as_secs_f64(),
            goodput: self.forecast_rate(now, link) * (1.0 - loss),
            repair: loss / (1.0 - loss) * (rtt.as_secs_f64() + DETECTION),
            ..Forecast::new(id, link.number, link.radio)
        }
    }

    /// The redundancy of urgent messages that a link carries now.
    pub(crate) fn redundancy(&mut self, now: Instant, id: LinkId) -> Option<Redundancy> {
        let link = &self.links[id];
        let rtt = link.sent_packets.rtt().smoothed().filter(|_| link.via.is_none())?;
        let repair = rtt + link.sent_packets.ack_delay();
        if link.redundancies.needs_no_state() {
            self.links[id].redundancies.pass(now);
            return None;
        }
        let state = LinkState { rate: self.forecast_rate(now, link), repair };
        self.links[id].redundancies.next(now, state)
    }

    /// The rate of a link in bytes per second: that of its controller where it limits the link, or
    /// the rate at which the driver sends.
    fn forecast_rate(&self, now: Instant, link: &Link) -> f64 {
        let radio = &self.radios[link.radio];
        let paced = link.controller.as_ref().and_then(|it| it.rate_bps());
        let fixed = radio.config.rate.fixed_bps();
        let bps = match (fixed, paced) {
            (Some(fixed), _) => Some(fixed),
            (None, Some(paced)) if link.headroom.limited_by_path => Some(paced),
            _ => radio.pacer.service_bps(now),
        };
        bps.map_or(INITIAL_RATE, |bps| bps as f64 / 8.0).max(1.0)
    }
}
