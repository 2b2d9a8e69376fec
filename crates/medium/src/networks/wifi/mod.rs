// SPDX-License-Identifier: Apache-2.0
//! One 802.11 channel: radios that contend for it, and the outcomes of their frames.
//!
//! Modelled: DCF and EDCA with one frame per channel access (no TXOP bursts, no aggregation, no
//! RTS), carrier sense and NAV, EIFS, retries, broadcast at the lowest basic rate, capture of the
//! stronger of two frames if there is path loss, hidden stations, forwarding by an access point.
//! Not modelled: beacons, association, scanning, power saving, adjacent channels.

mod access;
mod signals;

use crate::config::{Access, Interference, Loss, RateControl, Trial, WifiConfig};
use crate::frame::{Frame, Outcome, Output, RadioStats};
use crate::ids::{Nanos, NetworkId, RadioId, StationId};
use crate::loss::Losses;
use crate::network::{Facts, Network};
use crate::phy::{ACK_BYTES, MAC_BYTES};
use crate::rate::RateChoice;
use crate::scene::Scene;
pub use access::Category;
use access::{ChannelAccess, category_of};
use fastrand::Rng;
use signals::{Kind, Powers, Reception, Transmission, update_interference};
use std::collections::{BTreeMap, VecDeque};
use std::ops::RangeInclusive;

/// A receiver that is not on this network: no radio has this number.
const UNKNOWN: usize = usize::MAX;

/// A frame in a radio's queue.
#[derive(Debug)]
struct Waiting<P> {
    frame: Frame<P>,
    /// The receiver of this hop; `None` for all radios.
    to: Option<usize>,
    /// The original sender; an access point only forwards.
    origin: usize,
    /// Whether the receiver already has the frame, and only its ACK was lost.
    delivered: bool,
}

/// A radio's current attempt.
#[derive(Debug, Clone, Copy)]
struct Attempt {
    queue: usize,
    to: usize,
    rate: usize,
}

/// A scheduled ACK.
#[derive(Debug)]
struct Ack {
    at: Nanos,
    from: usize,
    to: usize,
    rate: usize,
}

#[derive(Debug)]
struct Radio<P> {
    id: RadioId,
    access: ChannelAccess<Waiting<P>>,
    queue_packets: usize,
    rates: BTreeMap<usize, RateChoice>,
    attempt: Option<Attempt>,
    stats: RadioStats,
}

/// The time at which a radio stops waiting for an ACK.
#[derive(Debug)]
struct AckTimeout {
    at: Nanos,
    radio: usize,
}

/// A data frame whose transmission has ended.
#[derive(Debug, Clone, Copy)]
struct SentData {
    from: usize,
    queue: usize,
    to: usize,
    rate: usize,
}

#[derive(Debug)]
struct Noise {
    what: Interference,
    next: Option<Nanos>,
}

/// The channel, see the module.
#[derive(Debug)]
pub struct Wifi<P> {
    config: WifiConfig,
    stations: Vec<StationId>,
    radios: Vec<Radio<P>>,
    on_air: Vec<Transmission>,
    acks: Vec<Ack>,
    timeouts: Vec<AckTimeout>,
    noises: Vec<Noise>,
    powers: Powers,
    losses: Losses,
    random: Rng,
    next: Option<Nanos>,
    spare: Vec<Vec<Reception>>,
    busy_since: Nanos,
    busy: Nanos,
}

impl<P: Clone> Wifi<P> {
    pub fn new(id: NetworkId, config: WifiConfig, seed: u64) -> Self {
        Self {
            losses: Losses::new(config.loss),
            config,
            stations: Vec::new(),
            radios: Vec::new(),
            on_air: Vec::new(),
            acks: Vec::new(),
            timeouts: Vec::new(),
            noises: Vec::new(),
            powers: Powers::new(id),
            random: Rng::with_seed(seed),
            next: None,
            spare: Vec::new(),
            busy_since: 0,
            busy: 0,
        }
    }

    fn access_point(&self) -> Option<usize> {
        let point = self.config.access_point?;
        self.stations.iter().position(|station| *station == point)
    }

    fn number(&self, id: RadioId) -> usize {
        self.radios.binary_search_by_key(&id, |radio| radio.id).unwrap_or(UNKNOWN)
    }

    fn enqueue(&mut self, now: Nanos, radio: usize, waiting: Waiting<P>) -> Result<(), Waiting<P>> {
        let queue = match self.config.access {
            Access::Dcf => 0,
            Access::Edca => category_of(waiting.frame.dscp),
        };
        let radio = &mut self.radios[radio];
        if radio.access.queues[queue].frames.len() >= radio.queue_packets {
            radio.stats.queue_drops += 1;
            return Err(waiting);
        }
        radio.access.enqueue(now, queue, waiting, &mut self.random);
        Ok(())
    }

    fn plan(&mut self) {
        let ends = self.on_air.iter().map(|t| t.end);
        let acks = self.acks.iter().map(|ack| ack.at);
        let timeouts = self.timeouts.iter().map(|timeout| timeout.at);
        let noises = self.noises.iter().filter_map(|noise| noise.next);
        let starts = self.radios.iter().filter_map(|radio| radio.access.next());
        let starts = starts.map(|start| start.at);
        self.next = ends.chain(acks).chain(timeouts).chain(noises).chain(starts).min();
    }

    fn start_acks(&mut self, now: Nanos, scene: &Scene) {
        let phy = self.config.phy;
        while let Some(index) = self.acks.iter().position(|ack| ack.at <= now) {
            let Ack { from, to, rate, .. } = self.acks.swap_remove(index);
            if self.radios[from].access.engaged {
                let at = now - phy.sifs() + phy.ack_timeout();
                self.timeouts.push(AckTimeout { at, radio: to });
                continue;
            }
            self.radios[from].access.start_ack(now, &mut self.random);
            let (end, rate) = (now + phy.ack_airtime(rate), phy.ack_rate(rate));
            let (kind, bytes) = (Kind::Ack { to }, ACK_BYTES);
            self.radios[from].stats.airtime += end - now;
            let heard = self.heard_from(now, from, scene);
            self.transmit(now, Transmission { from: Some(from), kind, end, rate, bytes, heard });
        }
    }

    fn start_noises(&mut self, now: Nanos, scene: &Scene) {
        for index in 0..self.noises.len() {
            if self.noises[index].next.is_none_or(|at| at > now) {
                continue;
            }
            let what = self.noises[index].what.clone();
            let mut heard = self.spare.pop().unwrap_or_default();
            heard.clear();
            for station in &self.stations {
                let power = scene.power_from_mw(&self.config, now, what.place, *station);
                heard.push(self.powers.heard(power));
            }
            let (from, kind, end) = (None, Kind::Noise, now + what.burst);
            self.transmit(now, Transmission { from, kind, end, rate: 0, bytes: 0, heard });
            self.noises[index].schedule(end, &mut self.random);
        }
    }

    fn start_data_frames(&mut self, now: Nanos, scene: &Scene) {
        for radio in 0..self.radios.len() {
            let start = self.radios[radio].access.next().filter(|start| start.at <= now);
            if let Some(start) = start {
                self.start_data(now, radio, start.queue, scene);
            }
        }
    }

    fn start_data(&mut self, now: Nanos, radio: usize, queue: usize, scene: &Scene) {
        let access = &mut self.radios[radio].access;
        access.start_data(now, queue, &mut self.random);
        let attempt = access.queues[queue].attempts;
        let Some(waiting) = access.queues[queue].frames.front() else { return };
        let (to, bytes) = (waiting.to, waiting.frame.bytes);
        let rate = self.rate_to(radio, to, attempt);
        let extra = self.config.access.header_bytes();
        let airtime = self.config.phy.data_airtime(rate, bytes, extra);
        let stats = &mut self.radios[radio].stats;
        stats.attempts += 1;
        stats.retries += u64::from(attempt > 0);
        stats.airtime += airtime;
        self.radios[radio].attempt = to.map(|to| Attempt { queue, to, rate });
        let (from, kind, end) = (Some(radio), Kind::Data { queue, to }, now + airtime);
        let heard = self.heard_from(now, radio, scene);
        let bytes = bytes + MAC_BYTES + extra;
        self.transmit(now, Transmission { from, kind, end, rate, bytes, heard });
    }

    fn rate_to(&mut self, radio: usize, to: Option<usize>, attempt: u32) -> usize {
        let Some(to) = to else { return 0 };
        let (phy, control) = (self.config.phy, self.config.rate);
        let choices = &mut self.radios[radio].rates;
        let choice = choices.entry(to).or_insert_with(|| RateChoice::new(phy, control));
        choice.choose(attempt, &mut self.random)
    }

    fn heard_from(&mut self, now: Nanos, from: usize, scene: &Scene) -> Vec<Reception> {
        let mut heard = self.spare.pop().unwrap_or_default();
        self.powers.look_up(now, from, &self.config, scene, &self.stations);
        self.powers.heard_from(from, &mut heard);
        heard
    }

    fn transmit(&mut self, now: Nanos, transmission: Transmission) {
        if self.on_air.is_empty() {
            self.busy_since = now;
        }
        self.on_air.push(transmission);
        update_interference(&mut self.on_air);
    }

    fn sense_start(&mut self, now: Nanos, index: usize) {
        let sensing = self.config.phy.sensing_time();
        let Transmission { heard, .. } = &self.on_air[index];
        for (radio, heard) in self.radios.iter_mut().zip(heard) {
            if heard.sensed {
                radio.access.on_signal_start(now, sensing, &mut self.random);
            }
        }
    }

    /// Ends a transmission: determines its receivers and the next actions.
    fn on_tx_end(&mut self, now: Nanos, tx: &Transmission, outputs: &mut VecDeque<Output<P>>) {
        if self.on_air.is_empty() {
            self.busy += now - self.busy_since;
        }
        let target = match tx.kind {
            Kind::Data { to, .. } => to,
            Kind::Ack { to } => Some(to),
            Kind::Noise => None,
        };
        let broadcast = matches!(tx.kind, Kind::Data { to: None, .. });
        let reserved = match tx.kind {
            Kind::Data { to: Some(_), .. } => {
                now + self.config.phy.sifs() + self.config.phy.ack_airtime(tx.rate)
            }
            _ => 0,
        };
        let mut target_read = false;
        let mut receivers = Vec::new();
        for radio in 0..self.radios.len() {
            let read = self.decodes(tx, radio);
            self.notice_end(now, radio, tx, read);
            if read && target != Some(radio) {
                self.radios[radio].access.reserve(reserved);
            }
            target_read |= read && target == Some(radio);
            if read && broadcast {
                receivers.push(radio);
            }
        }
        let Some(from) = tx.from else { return };
        match tx.kind {
            Kind::Data { queue, to: None } => {
                self.on_broadcast_end(now, from, queue, receivers, outputs);
            }
            Kind::Data { queue, to: Some(to) } => {
                let data = SentData { from, queue, to, rate: tx.rate };
                self.on_data_end(now, data, target_read, outputs);
            }
            Kind::Ack { to } => self.on_ack_end(now, from, to, target_read, outputs),
            Kind::Noise => {}
        }
    }

    fn notice_end(&mut self, now: Nanos, radio: usize, tx: &Transmission, read: bool) {
        let Reception { sensed, disturbance, .. } = tx.heard[radio];
        let access = &mut self.radios[radio].access;
        if sensed {
            access.on_signal_end(now);
        }
        // Interference is no frame, and a transmitting radio cannot receive a frame.
        let started = sensed && tx.kind != Kind::Noise && disturbance.is_finite();
        if read || started {
            access.on_frame(now, read, &mut self.random);
        }
    }

    fn decodes(&mut self, tx: &Transmission, radio: usize) -> bool {
        let Reception { power, disturbance, .. } = tx.heard[radio];
        if tx.kind == Kind::Noise || power == 0.0 {
            return false;
        }
        if self.config.path_loss.is_none() || disturbance.is_infinite() {
            return disturbance == 0.0;
        }
        let rate = &self.config.phy.rates()[tx.rate];
        let success = rate.success(tx.sinr_db(radio, self.powers.noise_mw), tx.bytes);
        self.random.f64() < success
    }

    fn on_broadcast_end(
        &mut self,
        now: Nanos,
        from: usize,
        queue: usize,
        receivers: Vec<usize>,
        outputs: &mut VecDeque<Output<P>>,
    ) {
        self.radios[from].access.release(now);
        let finished = self.radios[from].access.queues[queue].finish(&mut self.random);
        let Some(waiting) = finished else { return };
        for to in receivers {
            let lost = self.losses.draw_loss(from, to, &mut self.random);
            if !lost && to != waiting.origin {
                self.deliver(now, waiting.origin, to, &waiting.frame, outputs);
            }
        }
        self.report_sent(now, from, waiting, (Outcome::Done, 1), outputs);
    }

    fn on_data_end(
        &mut self,
        now: Nanos,
        data: SentData,
        read: bool,
        outputs: &mut VecDeque<Output<P>>,
    ) {
        let SentData { from, queue, to, rate } = data;
        let by_attempt = self.config.trial == Trial::Attempt;
        if !read || by_attempt && self.losses.draw_loss(from, to, &mut self.random) {
            let at = now + self.config.phy.ack_timeout();
            self.timeouts.push(AckTimeout { at, radio: from });
            return;
        }
        self.receive(now, from, queue, to, outputs);
        let at = now + self.config.phy.sifs();
        self.acks.push(Ack { at, from: to, to: from, rate });
    }

    /// Handles the reception of a data frame; delivers or forwards it unless it is a repetition.
    fn receive(
        &mut self,
        now: Nanos,
        from: usize,
        queue: usize,
        to: usize,
        outputs: &mut VecDeque<Output<P>>,
    ) {
        let first = self.radios[from].access.queues[queue].frames.front_mut();
        let Some(waiting) = first.filter(|waiting| !waiting.delivered) else { return };
        waiting.delivered = true;
        let (frame, origin) = (waiting.frame.clone(), waiting.origin);
        if self.config.trial == Trial::Frame && self.losses.draw_loss(from, to, &mut self.random) {
            return;
        }
        let forwards = self.access_point() == Some(to) && frame.to != Some(self.radios[to].id);
        if !forwards {
            return self.deliver(now, origin, to, &frame, outputs);
        }
        if frame.to.is_none() {
            self.deliver(now, origin, to, &frame, outputs);
        }
        let next_hop = frame.to.map(|id| self.number(id));
        let waiting = Waiting { frame, to: next_hop, origin, delivered: false };
        // If the access point's queue is full, the frame is lost and counted there.
        let _ = self.enqueue(now, to, waiting);
    }

    fn on_ack_end(
        &mut self,
        now: Nanos,
        from: usize,
        to: usize,
        read: bool,
        outputs: &mut VecDeque<Output<P>>,
    ) {
        self.radios[from].access.release(now);
        if !read {
            return self.attempt_failed(now, to, outputs);
        }
        let Some(attempt) = self.finish_attempt(now, to, true) else { return };
        self.radios[to].stats.acknowledged += 1;
        self.finish(now, to, attempt.queue, Outcome::Done, outputs);
    }

    fn attempt_failed(&mut self, now: Nanos, radio: usize, outputs: &mut VecDeque<Output<P>>) {
        let Some(Attempt { queue, .. }) = self.finish_attempt(now, radio, false) else { return };
        let state = &mut self.radios[radio];
        state.stats.failed_attempts += 1;
        let queued = &mut state.access.queues[queue];
        if queued.attempts < self.config.retries {
            return queued.retry(&mut self.random);
        }
        state.stats.given_up += 1;
        self.finish(now, radio, queue, Outcome::GivenUp, outputs);
    }

    fn finish_attempt(&mut self, now: Nanos, radio: usize, success: bool) -> Option<Attempt> {
        let radio = &mut self.radios[radio];
        let attempt = radio.attempt.take()?;
        radio.access.release(now);
        if let Some(choice) = radio.rates.get_mut(&attempt.to) {
            choice.report(now, attempt.rate, success);
        }
        Some(attempt)
    }

    fn finish(
        &mut self,
        now: Nanos,
        radio: usize,
        queue: usize,
        outcome: Outcome,
        outputs: &mut VecDeque<Output<P>>,
    ) {
        let queue = &mut self.radios[radio].access.queues[queue];
        let attempts = queue.attempts + 1;
        if let Some(waiting) = queue.finish(&mut self.random) {
            self.report_sent(now, radio, waiting, (outcome, attempts), outputs);
        }
    }

    fn deliver(
        &mut self,
        at: Nanos,
        from: usize,
        to: usize,
        frame: &Frame<P>,
        outputs: &mut VecDeque<Output<P>>,
    ) {
        let (from, to) = (self.radios[from].id, &mut self.radios[to]);
        to.stats.received += 1;
        to.stats.received_bytes += u64::from(frame.bytes);
        outputs.push_back(Output::Delivered {
            at,
            from,
            to: to.id,
            marked: false,
            payload: frame.payload.clone(),
        });
    }

    fn report_sent(
        &mut self,
        at: Nanos,
        radio: usize,
        waiting: Waiting<P>,
        (outcome, attempts): (Outcome, u32),
        outputs: &mut VecDeque<Output<P>>,
    ) {
        // The frame of another radio was reported as sent when the access point received it.
        if waiting.origin == radio {
            let (radio, payload) = (self.radios[radio].id, waiting.frame.payload);
            outputs.push_back(Output::Sent { at, radio, outcome, attempts, payload });
        }
    }
}

impl<P: Clone> Network<P> for Wifi<P> {
    /// Adds a radio; returns its number, which counts from 0.
    fn add(&mut self, id: RadioId, station: StationId, queue_packets: usize) -> usize {
        self.stations.push(station);
        for tx in &mut self.on_air {
            // It cannot receive transmissions that started before.
            tx.heard.push(Reception { power: 0.0, disturbance: 0.0, sensed: false });
        }
        self.radios.push(Radio {
            id,
            access: ChannelAccess::new(self.config.phy, self.config.access),
            queue_packets,
            rates: BTreeMap::new(),
            attempt: None,
            stats: RadioStats::default(),
        });
        self.radios.len() - 1
    }

    fn interfere(&mut self, now: Nanos, what: Interference) {
        // Bursts without length or pause would stop virtual time.
        let what = Interference { burst: what.burst.max(1), ..what };
        let mut noise = Noise { what, next: None };
        noise.schedule(now.max(noise.what.from), &mut self.random);
        self.noises.push(noise);
        self.plan();
    }

    fn set_loss(&mut self, loss: Loss) {
        self.losses = Losses::new(loss);
    }

    fn set_rate(&mut self, _now: Nanos, rate_bps: u64) {
        self.config.rate = RateControl::Fixed(rate_bps);
        for radio in &mut self.radios {
            radio.rates.clear();
        }
    }

    fn stats(&self, radio: usize) -> RadioStats {
        let radio = &self.radios[radio];
        RadioStats { waiting: radio.access.waiting() as u64, ..radio.stats.clone() }
    }

    /// Returns the time during which anything was on the air.
    fn busy(&self, now: Nanos) -> Nanos {
        let current = if self.on_air.is_empty() { 0 } else { now - self.busy_since };
        self.busy + current
    }

    /// Returns the time at which [`Network::step`] is due.
    fn next(&self) -> Option<Nanos> {
        self.next
    }

    /// Adds a frame to a radio's queue; returns it if the queue is full.
    fn send(&mut self, now: Nanos, radio: usize, frame: Frame<P>) -> Result<(), Frame<P>> {
        let point = self.access_point().filter(|point| *point != radio);
        let to = match (point, frame.to) {
            (Some(point), _) => Some(point),
            (None, to) => to.map(|to| self.number(to)),
        };
        let waiting = Waiting { frame, to, origin: radio, delivered: false };
        self.enqueue(now, radio, waiting).map_err(|waiting| waiting.frame)?;
        self.plan();
        Ok(())
    }

    /// Processes everything that is due at `now`, which is [`Network::next`].
    fn step(&mut self, now: Nanos, scene: &Scene, outputs: &mut VecDeque<Output<P>>) {
        self.powers.refresh(&self.config, scene, self.stations.len());
        while let Some(index) = self.on_air.iter().position(|t| t.end <= now) {
            let tx = self.on_air.swap_remove(index);
            self.on_tx_end(now, &tx, outputs);
            self.spare.push(tx.heard);
        }
        while let Some(index) = self.timeouts.iter().position(|timeout| timeout.at <= now) {
            let AckTimeout { radio, .. } = self.timeouts.swap_remove(index);
            self.attempt_failed(now, radio, outputs);
        }
        let first_new = self.on_air.len();
        self.start_acks(now, scene);
        self.start_noises(now, scene);
        self.start_data_frames(now, scene);
        for index in first_new..self.on_air.len() {
            self.sense_start(now, index);
        }
        self.plan();
    }
}

impl Facts for WifiConfig {
    fn bps(&self) -> RangeInclusive<u64> {
        match (self.rate, self.phy.rates()) {
            (RateControl::Fixed(bps), _) => bps..=bps,
            (RateControl::Adaptive, [lowest, .., highest]) => lowest.bps..=highest.bps,
            (RateControl::Adaptive, _) => 0..=0,
        }
    }

    fn one_way_bps(&self, bps: u64) -> u64 {
        if self.access_point.is_some() { bps / 4 } else { bps / 2 }
    }
}

impl Noise {
    fn schedule(&mut self, from: Nanos, random: &mut Rng) {
        let pause = -(1.0 - random.f64()).ln() * self.what.mean_pause as f64;
        let at = from + pause as Nanos;
        self.next = (at + self.what.burst <= self.what.until).then_some(at);
    }
}
