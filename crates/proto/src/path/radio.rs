// SPDX-License-Identifier: Apache-2.0
//! A radio: the bottleneck that several links share. It paces packets and serves peers by fair
//! queuing.

use crate::class::Class;
use crate::config::{RadioConfig, Rate};
use crate::ids::{PeerId, TeamId};
use crate::path::headroom::aged_limit;
use crate::rate::{BackPressure, Controller, Fixed, Window};
use crate::time::{Duration, Instant};
use std::collections::HashMap;
use std::hash::Hash;

/// Span over which the rate of a busy radio is measured.
const RATE_SPAN: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(crate) struct Radio {
    pub(crate) config: RadioConfig,
    pub(crate) pacer: Box<dyn Controller>,
    fair_queue: FairQueue<PeerId>,
    /// Peers without a team count as one team (`None`).
    fair_teams: FairQueue<Option<TeamId>>,
    meter: Meter,
    pub(crate) sent_packets: u64,
    pub(crate) sent_bytes: u64,
}

impl Radio {
    pub(crate) fn new(config: RadioConfig) -> Self {
        let pacer = controller(&config);
        Self {
            config,
            pacer,
            fair_queue: FairQueue::default(),
            fair_teams: FairQueue::default(),
            meter: Meter::default(),
            sent_packets: 0,
            sent_bytes: 0,
        }
    }

    /// Makes this the radio of a link through a relay: it limits in-flight bytes and nothing else.
    pub(crate) fn make_relayed(&mut self, window_bytes: usize) {
        self.pacer = Box::new(Window(window_bytes));
    }

    /// The controller of a link of this radio, in addition to the radio's own.
    pub(crate) fn link_controller(&self) -> Option<Box<dyn Controller>> {
        match self.config.rate {
            Rate::Fixed(_) => None,
            Rate::PerLink(control) => (control.make)(self.config.tuning),
        }
    }

    /// The class of a packet whose messages have at most this priority; `None` without messages.
    pub(crate) fn class(&self, priority: Option<u8>) -> Class {
        let marking = self.config.marking.as_ref();
        marking.map_or(Class::BestEffort, |marking| marking.class(priority))
    }

    pub(crate) fn dscp(&self, class: Class) -> u8 {
        self.config.marking.as_ref().map_or(0, |marking| marking.dscp(class))
    }

    pub(crate) fn set_config(&mut self, config: RadioConfig) {
        self.pacer = controller(&config);
        self.config = config;
    }

    /// Forgets a removed peer, so that another peer with the same id starts without history.
    pub(crate) fn forget(&mut self, peer: PeerId) {
        self.fair_queue.finish.remove(&peer);
    }

    /// Forgets a removed team.
    pub(crate) fn forget_team(&mut self, team: TeamId) {
        self.fair_teams.finish.remove(&Some(team));
    }

    /// Records that a packet with messages was sent to a peer. The peer may belong to a team.
    pub(crate) fn on_data_sent(
        &mut self,
        now: Instant,
        (team, peer): (Option<TeamId>, PeerId),
        bytes: usize,
    ) {
        self.fair_teams.charge(team, bytes);
        self.fair_queue.charge(peer, bytes);
        self.meter.add(now, bytes);
    }

    /// Records that a packet was sent, with or without messages.
    pub(crate) fn on_sent(&mut self, now: Instant, bytes: usize, in_flight: usize) {
        self.pacer.on_sent(now, bytes, in_flight);
        self.sent_packets += 1;
        self.sent_bytes += bytes as u64;
    }

    /// Records that nothing is queued. The time from now on does not count for the radio's rate.
    pub(crate) fn on_idle(&mut self) {
        self.meter.since = None;
    }

    /// Rate while the queue was never empty, in bits per second of IP packets.
    pub(crate) fn measured_bps(&self) -> Option<u64> {
        self.meter.rate_bps
    }

    /// Records that a packet was held back. `by_path`: a link's controller held it back, not the
    /// radio.
    pub(crate) fn on_held_back(&mut self, by_path: bool) {
        self.meter.limited_by_path |= by_path;
    }

    /// The rate that the radio itself carries, as far as known, in bits per second of IP packets.
    pub(crate) fn available_bps(&self, now: Instant) -> Option<u64> {
        let MeasuredRate { bps, at } = self.meter.own_rate?;
        aged_limit(bps, now.since(at))
    }

    /// Whether a peer is to be served before another peer of the same rank.
    pub(crate) fn is_served_before(&self, peer: PeerId, other: PeerId) -> bool {
        self.fair_queue.is_before(peer, other)
    }

    /// Whether the peers of a team are to be served before those of another.
    pub(crate) fn is_team_served_before(
        &self,
        team: Option<TeamId>,
        other: Option<TeamId>,
    ) -> bool {
        self.fair_teams.is_before(team, other)
    }
}

/// The controller of a radio itself.
fn controller(config: &RadioConfig) -> Box<dyn Controller> {
    let local = BackPressure::new(config.in_flight_bytes);
    match config.rate {
        Rate::Fixed(rate_bps) => Box::new(Fixed::new(rate_bps, local)),
        Rate::PerLink(_) => Box::new(local),
    }
}

/// Fair queuing between peers, or teams, by bytes sent: start-time fair queueing (Goyal, Vin and Cheng, 1996)
/// with equal weights. Bytes stand for airtime as long as links of one radio have no rates of their own.
#[derive(Debug)]
struct FairQueue<K> {
    now: u64,
    finish: HashMap<K, u64>,
}

impl<K> Default for FairQueue<K> {
    fn default() -> Self {
        Self { now: 0, finish: HashMap::new() }
    }
}

impl<K: Copy + Ord + Hash> FairQueue<K> {
    fn start(&self, key: K) -> u64 {
        self.finish.get(&key).copied().unwrap_or(0).max(self.now)
    }

    fn charge(&mut self, key: K, bytes: usize) {
        let start = self.start(key);
        self.now = start;
        self.finish.insert(key, start + bytes as u64);
    }

    fn is_before(&self, key: K, other: K) -> bool {
        (self.start(key), key) < (self.start(other), other)
    }
}

/// Measures the rate of a radio whose queue is never empty.
#[derive(Debug, Default)]
struct Meter {
    since: Option<Instant>,
    bytes: usize,
    rate_bps: Option<u64>,
    /// A link's controller held back a packet in this span.
    limited_by_path: bool,
    /// The rate of the last span in which no link's controller held back a packet.
    own_rate: Option<MeasuredRate>,
}

/// A rate, and the time of its measurement.
#[derive(Debug, Clone, Copy)]
struct MeasuredRate {
    bps: u64,
    at: Instant,
}

impl Meter {
    fn add(&mut self, now: Instant, bytes: usize) {
        let Some(since) = self.since else {
            // The span starts when the first packet was sent; bytes count from the next one.
            (self.since, self.bytes, self.limited_by_path) = (Some(now), 0, false);
            return;
        };
        self.bytes += bytes;
        let span = now.since(since);
        if span < RATE_SPAN {
            return;
        }
        let rate = (self.bytes as f64 * 8.0 / span.as_secs_f64()) as u64;
        self.rate_bps = Some(self.rate_bps.map_or(rate, |before| (before * 3 + rate) / 4));
        if !self.limited_by_path {
            let before = self.own_rate.filter(|own| now.since(own.at) < RATE_SPAN * 5);
            let bps = before.map_or(rate, |before| (before.bps + rate) / 2);
            self.own_rate = Some(MeasuredRate { bps, at: now });
        }
        (self.since, self.bytes, self.limited_by_path) = (Some(now), 0, false);
    }
}
