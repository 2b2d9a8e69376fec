// SPDX-License-Identifier: Apache-2.0
//! A radio: what several links share as their bottleneck. Pacing and turns
//! between peers live here.

use crate::class::Class;
use crate::config::RadioConfig;
use crate::ids::PeerId;
use crate::path::headroom::faded;
use crate::rate::{Controller, Window, of_radio};
use crate::time::{Duration, Instant};
use std::collections::HashMap;

/// Span over which the rate of a busy radio is measured.
const RATE_SPAN: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(crate) struct Radio {
    pub(crate) config: RadioConfig,
    pub(crate) pacer: Box<dyn Controller>,
    fair_queue: FairQueue,
    meter: Meter,
    pub(crate) sent_packets: u64,
    pub(crate) sent_bytes: u64,
}

impl Radio {
    pub(crate) fn new(config: RadioConfig) -> Self {
        let pacer = of_radio(&config);
        Self {
            config,
            pacer,
            fair_queue: FairQueue::default(),
            meter: Meter::default(),
            sent_packets: 0,
            sent_bytes: 0,
        }
    }

    /// The radio of a link through a relay: what is on the way is bounded, and nothing else.
    pub(crate) fn make_relayed(&mut self, window_bytes: usize) {
        self.pacer = Box::new(Window(window_bytes));
    }

    /// The class of a packet with messages of this priority at most, or with none.
    pub(crate) fn class(&self, priority: Option<u8>) -> Class {
        let marking = self.config.marking.as_ref();
        marking.map_or(Class::BestEffort, |marking| marking.class(priority))
    }

    pub(crate) fn dscp(&self, class: Class) -> u8 {
        self.config.marking.as_ref().map_or(0, |marking| marking.dscp(class))
    }

    pub(crate) fn set_config(&mut self, config: RadioConfig) {
        self.pacer = of_radio(&config);
        self.config = config;
    }

    /// A peer was removed: whoever gets its number owes nothing.
    pub(crate) fn forget(&mut self, peer: PeerId) {
        self.fair_queue.finish.remove(&peer);
    }

    /// A packet with messages left for `peer`.
    pub(crate) fn on_data_sent(&mut self, now: Instant, peer: PeerId, bytes: usize) {
        self.fair_queue.charge(peer, bytes);
        self.meter.add(now, bytes);
    }

    /// Any packet left.
    pub(crate) fn on_sent(&mut self, now: Instant, bytes: usize, in_flight: usize) {
        self.pacer.on_sent(now, bytes, in_flight);
        self.sent_packets += 1;
        self.sent_bytes += bytes as u64;
    }

    /// Nothing is waiting: time from here on says nothing of the radio's rate.
    pub(crate) fn on_idle(&mut self) {
        self.meter.since = None;
    }

    /// Rate while there was always something to send, of IP bytes, in bits per second.
    pub(crate) fn measured_bps(&self) -> Option<u64> {
        self.meter.rate_bps
    }

    /// A packet was held back: `far`, for what is slow beyond the radio.
    pub(crate) fn on_held_back(&mut self, far: bool) {
        self.meter.limited_by_path |= far;
    }

    /// What the radio itself lets go, as far as it is known, in bits per second of IP packets.
    pub(crate) fn room_bps(&self, now: Instant) -> Option<u64> {
        let (bps, at) = self.meter.own?;
        faded(bps, now.since(at))
    }

    pub(crate) fn next_peer(&self, candidates: impl Iterator<Item = PeerId>) -> Option<PeerId> {
        candidates.min_by_key(|peer| (self.fair_queue.start(*peer), *peer))
    }
}

/// Turns between peers in bytes sent: start-time fair queueing (Goyal, Vin and
/// Cheng, 1996) with equal weights. On one radio bytes stand for serialization_time until
/// links have rates of their own.
#[derive(Debug, Default)]
struct FairQueue {
    now: u64,
    finish: HashMap<PeerId, u64>,
}

impl FairQueue {
    fn start(&self, peer: PeerId) -> u64 {
        self.finish.get(&peer).copied().unwrap_or(0).max(self.now)
    }

    fn charge(&mut self, peer: PeerId, bytes: usize) {
        let start = self.start(peer);
        self.now = start;
        self.finish.insert(peer, start + bytes as u64);
    }
}

#[derive(Debug, Default)]
struct Meter {
    since: Option<Instant>,
    bytes: usize,
    rate_bps: Option<u64>,
    /// In this span a packet was held back for what is slow beyond the radio.
    limited_by_path: bool,
    /// The rate of the last span in which none was, and when that ended.
    own: Option<(u64, Instant)>,
}

impl Meter {
    fn add(&mut self, now: Instant, bytes: usize) {
        let Some(since) = self.since else {
            // Bytes count from the packet after the first: the span starts when that one left.
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
            let before = self.own.filter(|(_, at)| now.since(*at) < RATE_SPAN * 5);
            self.own = Some((before.map_or(rate, |(before, _)| (before + rate) / 2), now));
        }
        (self.since, self.bytes, self.limited_by_path) = (Some(now), 0, false);
    }
}
