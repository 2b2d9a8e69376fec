// SPDX-License-Identifier: Apache-2.0
//! Forecasts of what each link can carry, for the choice of links ([`crate::path::select`]).

use crate::endpoint::network::Network;
use crate::ids::{LinkId, PeerId};
use crate::path::link::Link;
use crate::path::redundancy::{LinkState, Redundancy};
use crate::path::select::{Forecast, Forecasts};
use crate::time::Instant;

/// One-way delay, relative to the fastest link, that is assumed for a link before its first
/// acknowledgement (like the initial round trip in `recovery::rtt`). Heartbeats measure it within a
/// quarter of a second.
const INITIAL_DELAY: f64 = 0.1;
/// Rate assumed for a radio before its first packet, in bytes per second. It is above the rate of
/// most radios, so that the radio is tried.
const INITIAL_RATE: f64 = 50e6 / 8.0;
/// Highest loss that a forecast assumes, so that the forecast stays finite.
const MAX_LOSS: f64 = 0.9;
/// Time to detect a loss, in addition to a round trip: a few packets.
const LOSS_DETECTION_SECONDS: f64 = 5e-3;

impl Network {
    /// Takes the forecasts for the links to a peer that can carry data directly. Forecasts are made
    /// once in a round, but asked for often: by each radio for its next message, and by each packet
    /// for the messages after its first.
    pub(crate) fn take_forecasts(&mut self, now: Instant, peer: PeerId) -> Forecasts {
        let mut forecasts = std::mem::take(&mut self.peers[peer].forecasts);
        if std::mem::replace(&mut forecasts.round, self.forecast_round) != self.forecast_round {
            self.make_forecasts(now, peer, &mut forecasts.links);
        }
        debug_assert!(self.are_current(now, peer, &forecasts), "a round has one state");
        forecasts
    }

    fn make_forecasts(&self, now: Instant, peer: PeerId, forecasts: &mut Vec<Forecast>) {
        let links = &self.peers[peer].links;
        forecasts.clear();
        let usable = links.direct().filter(|link| link.carries_data());
        forecasts.extend(usable.map(|link| self.forecast(now, link)));
        let first = forecasts.iter().find_map(|it| links[it.link].one_way_micros);
        for forecast in forecasts {
            let own = links[forecast.link].one_way_micros;
            let relative = own.zip(first).map(|(own, first)| own.wrapping_sub(first) as i32);
            forecast.delay = relative.map_or(INITIAL_DELAY, |micros| f64::from(micros) * 1e-6);
        }
    }

    /// Whether `forecasts` are the same as those that would be made now.
    fn are_current(&self, now: Instant, peer: PeerId, forecasts: &Forecasts) -> bool {
        let mut made = Vec::new();
        self.make_forecasts(now, peer, &mut made);
        let unused = |it: &Forecast| Forecast { is_held_back: false, assigned_bytes: 0.0, ..*it };
        made.iter().copied().eq(forecasts.links.iter().map(unused))
    }

    fn forecast(&self, now: Instant, link: &Link) -> Forecast {
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
            repair: loss / (1.0 - loss) * (rtt.as_secs_f64() + LOSS_DETECTION_SECONDS),
            ..Forecast::new(link.id, link.number, link.radio)
        }
    }

    /// The redundancy of urgent messages that a link carries now.
    pub(crate) fn redundancy(&mut self, now: Instant, id: LinkId) -> Option<Redundancy> {
        let link = &self.peers[id];
        let rtt = link.sent_packets.rtt().smoothed().filter(|_| link.via.is_none())?;
        let repair = rtt + link.sent_packets.ack_delay();
        if link.redundancy_planner.needs_no_state() {
            self.peers[id].redundancy_planner.skip(now);
            return None;
        }
        let state = LinkState { rate: self.forecast_rate(now, link), repair };
        self.peers[id].redundancy_planner.plan_copies(now, state)
    }

    /// The rate of a link in bytes per second: that of its controller if the controller limits the
    /// link, otherwise the rate at which the driver sends.
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
