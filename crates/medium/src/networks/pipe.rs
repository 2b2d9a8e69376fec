// SPDX-License-Identifier: Apache-2.0
//! Networks without contention: a token bucket, a serial radio, a modem.

use crate::aqm::{AqmState, Fate, Head};
use crate::config::{Aqm, Loss, PipeConfig};
use crate::frame::{Frame, Outcome, Output, RadioStats};
use crate::ids::{Nanos, NetworkId, RadioId, StationId};
use crate::loss::Losses;
use crate::network::{Facts, Network};
use crate::scene::Scene;
use crate::trace::OPPORTUNITY_BYTES;
use fastrand::Rng;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::ops::RangeInclusive;

const SECOND: u128 = 1_000_000_000;

#[derive(Debug)]
struct Radio {
    id: RadioId,
    station: StationId,
    queued_bytes: u64,
    stats: RadioStats,
}

/// A frame in a sender's queue.
#[derive(Debug)]
struct Queued<P> {
    from: usize,
    since: Nanos,
    /// Whether the frame is marked; `None` until it reaches the head of the queue.
    marked: Option<bool>,
    frame: Frame<P>,
}

/// The rate limiter: one per radio, or one for all radios of a half-duplex pipe.
#[derive(Debug)]
struct Server<P> {
    queue: VecDeque<Queued<P>>,
    /// Time at which the token bucket is full if nothing more is sent.
    full_at: Nanos,
    /// Time at which the first frame may leave; with a trace, the next opportunity to send.
    departs: Option<Nanos>,
    /// With a trace: number of the next opportunity to send.
    opportunity: u64,
    /// With a trace: bytes of the first frame that have been sent already.
    sent_of_first: u64,
    manager: AqmState,
}

/// A frame in flight, ordered by arrival.
#[derive(Debug)]
struct InFlight<P> {
    at: Nanos,
    order: u64,
    from: usize,
    to: usize,
    marked: bool,
    frame: Frame<P>,
}

impl<P> PartialEq for InFlight<P> {
    fn eq(&self, other: &Self) -> bool {
        self.order == other.order
    }
}
impl<P> Eq for InFlight<P> {}
impl<P> PartialOrd for InFlight<P> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl<P> Ord for InFlight<P> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

/// A pipe; see the module.
#[derive(Debug)]
pub struct Pipe<P> {
    id: NetworkId,
    config: PipeConfig,
    radios: Vec<Radio>,
    servers: Vec<Server<P>>,
    in_flight: BinaryHeap<Reverse<InFlight<P>>>,
    order: u64,
    /// Latest arrival so far per directed pair: jitter does not reorder.
    latest: BTreeMap<(usize, usize), Nanos>,
    losses: Losses,
    random: Rng,
    busy: Nanos,
}

impl<P: Clone> Pipe<P> {
    pub fn new(id: NetworkId, config: PipeConfig, seed: u64) -> Self {
        Self {
            id,
            losses: Losses::new(config.loss),
            config,
            radios: Vec::new(),
            servers: Vec::new(),
            in_flight: BinaryHeap::new(),
            order: 0,
            latest: BTreeMap::new(),
            random: Rng::with_seed(seed),
            busy: 0,
        }
    }

    /// Keeps the progress of the first frame when the rate changes.
    fn rescale(&mut self, now: Nanos, server: usize, old: u64, new: u64) {
        let then = |at: Nanos| {
            let left = u128::from(at.saturating_sub(now)) * u128::from(old) / u128::from(new);
            now.saturating_add(Nanos::try_from(left).unwrap_or(Nanos::MAX))
        };
        let burst = self.serialization_time(self.config.burst_bytes);
        let first = self.servers[server].queue.front().map(|first| self.wire_bytes(&first.frame));
        let needed = first.map_or(0, |bytes| self.serialization_time(bytes));
        let server = &mut self.servers[server];
        server.departs = server.departs.map(then);
        server.full_at = match server.departs {
            Some(at) => at.saturating_add(burst).saturating_sub(needed),
            None => then(server.full_at),
        };
    }

    fn wire_bytes(&self, frame: &Frame<P>) -> u64 {
        u64::from(frame.bytes) + u64::from(self.config.overhead_bytes)
    }

    /// Returns the time that the rate needs for these bytes; a rate of 0 practically stops the
    /// pipe.
    fn serialization_time(&self, bytes: u64) -> Nanos {
        let time = u128::from(bytes) * 8 * SECOND / u128::from(self.config.rate_bps.max(1));
        Nanos::try_from(time).unwrap_or(Nanos::MAX)
    }

    /// Marks or drops what active queue management selects among the frames that come to the head of the
    /// queue.
    fn manage(&mut self, now: Nanos, server: usize, outputs: &mut VecDeque<Output<P>>) {
        while let Some(first) = self.servers[server].queue.front() {
            if self.config.aqm == Aqm::None || first.marked.is_some() {
                return;
            }
            // 40 of the smallest frames are more than a full frame.
            let behind = self.servers[server].queue.iter().skip(1).take(40);
            let is_followed =
                behind.map(|queued| u64::from(queued.frame.bytes)).sum::<u64>() > OPPORTUNITY_BYTES;
            let waited = now.saturating_sub(first.since);
            let head = Head { waited, is_followed, capable: first.frame.ecn_capable };
            let state = &mut self.servers[server];
            let fate = state.manager.decide(self.config.aqm, now, head);
            if fate != Fate::Drop {
                let marked = fate == Fate::Mark;
                let first = &mut state.queue[0];
                first.marked = Some(marked);
                self.radios[first.from].stats.marked += u64::from(marked);
                return;
            }
            let Some(Queued { from, frame, .. }) = state.queue.pop_front() else { return };
            let bytes = self.wire_bytes(&frame);
            let sender = &mut self.radios[from];
            sender.queued_bytes -= bytes;
            sender.stats.queue_drops += 1;
            let (radio, payload) = (sender.id, frame.payload);
            let (outcome, attempts) = (Outcome::GivenUp, 0);
            outputs.push_back(Output::Sent { at: now, radio, outcome, attempts, payload });
        }
    }

    fn schedule(&mut self, now: Nanos, server: usize, outputs: &mut VecDeque<Output<P>>) {
        self.manage(now, server, outputs);
        let Some(Queued { frame, .. }) = self.servers[server].queue.front() else {
            self.servers[server].departs = None;
            return;
        };
        if let Some(trace) = &self.config.trace {
            let server = &mut self.servers[server];
            server.opportunity = server.opportunity.max(trace.first_at_or_after(now));
            server.departs = Some(trace.at(server.opportunity));
            return;
        }
        let needed = self.serialization_time(self.wire_bytes(frame));
        let burst = self.serialization_time(self.config.burst_bytes);
        let server = &mut self.servers[server];
        server.full_at = server.full_at.max(now);
        server.departs = Some(server.full_at.saturating_add(needed).saturating_sub(burst).max(now));
    }

    /// Sends what one opportunity of the trace can carry: several short frames, or a part of one.
    fn use_opportunity(
        &mut self,
        now: Nanos,
        server: usize,
        scene: &Scene,
        outputs: &mut VecDeque<Output<P>>,
    ) {
        let mut left = OPPORTUNITY_BYTES;
        self.servers[server].opportunity += 1;
        while let Some(first) = self.servers[server].queue.front() {
            let missing = self.wire_bytes(&first.frame) - self.servers[server].sent_of_first;
            if missing > left {
                self.servers[server].sent_of_first += left;
                break;
            }
            left -= missing;
            self.servers[server].sent_of_first = 0;
            self.depart(now, server, scene, outputs);
        }
        self.schedule(now, server, outputs);
    }

    fn depart(
        &mut self,
        now: Nanos,
        server: usize,
        scene: &Scene,
        outputs: &mut VecDeque<Output<P>>,
    ) {
        let Some(queued) = self.servers[server].queue.pop_front() else { return };
        let Queued { from, marked, frame, .. } = queued;
        let bytes = self.wire_bytes(&frame);
        let time = self.serialization_time(bytes);
        let empty = now.saturating_add(self.serialization_time(self.config.burst_bytes));
        let full_at = &mut self.servers[server].full_at;
        *full_at = full_at.saturating_add(time).min(empty);
        self.busy += time;
        let sender = &mut self.radios[from];
        sender.queued_bytes -= bytes;
        sender.stats.attempts += 1;
        sender.stats.airtime += time;
        let (radio, payload) = (sender.id, frame.payload.clone());
        let (outcome, attempts) = (Outcome::Done, 1);
        outputs.push_back(Output::Sent { at: now, radio, outcome, attempts, payload });
        for to in 0..self.radios.len() {
            let is_receiver = frame.to.is_none_or(|id| id == self.radios[to].id);
            if to != from && is_receiver {
                let marked = marked.unwrap_or(false);
                self.travel(now, (from, to), frame.clone(), marked, scene);
            }
        }
        self.schedule(now, server, outputs);
    }

    fn travel(
        &mut self,
        now: Nanos,
        (from, to): (usize, usize),
        frame: Frame<P>,
        marked: bool,
        scene: &Scene,
    ) {
        let lost = self.losses.draw_loss(from, to, &mut self.random);
        let [sender, receiver] = [from, to].map(|radio| self.radios[radio].station);
        if lost || scene.are_separated(self.id, sender, receiver) {
            self.radios[from].stats.failed_attempts += 1;
            return;
        }
        let jitter = self.random.u64(0..=self.config.jitter);
        let latest = self.latest.entry((from, to)).or_default();
        *latest = (now + self.config.delay + jitter).max(*latest);
        let mut at = *latest;
        // Draw a random number only if needed, so that other configurations keep their random
        // sequence.
        let (reordering, duplicates) = (self.config.reordering, self.config.duplicates);
        if reordering.probability > 0.0 && self.random.f64() < reordering.probability {
            at += self.random.u64(0..=reordering.delay);
        }
        let is_duplicated = duplicates > 0.0 && self.random.f64() < duplicates;
        for frame in is_duplicated.then(|| frame.clone()).into_iter().chain([frame]) {
            self.order += 1;
            self.in_flight.push(Reverse(InFlight {
                at,
                order: self.order,
                from,
                to,
                marked,
                frame,
            }));
        }
    }

    fn arrive(&mut self, arrived: InFlight<P>, outputs: &mut VecDeque<Output<P>>) {
        let InFlight { at, from, to, marked, frame, .. } = arrived;
        let from = self.radios[from].id;
        let to = &mut self.radios[to];
        to.stats.received += 1;
        to.stats.received_bytes += u64::from(frame.bytes);
        let (to, payload) = (to.id, frame.payload);
        outputs.push_back(Output::Delivered { at, from, to, marked, payload });
    }
}

impl<P: Clone> Network<P> for Pipe<P> {
    fn add(&mut self, id: RadioId, station: StationId, _queue_packets: usize) -> usize {
        self.radios.push(Radio { id, station, queued_bytes: 0, stats: RadioStats::default() });
        if !self.config.half_duplex || self.servers.is_empty() {
            self.servers.push(Server {
                queue: VecDeque::new(),
                full_at: 0,
                departs: None,
                opportunity: 0,
                sent_of_first: 0,
                manager: AqmState::default(),
            });
        }
        self.radios.len() - 1
    }

    fn set_loss(&mut self, loss: Loss) {
        self.losses = Losses::new(loss);
    }

    /// Changes the rate; a trace continues.
    fn set_rate(&mut self, now: Nanos, rate_bps: u64) {
        if self.config.trace.is_some() {
            return;
        }
        let old = std::mem::replace(&mut self.config.rate_bps, rate_bps);
        for server in 0..self.servers.len() {
            self.rescale(now, server, old.max(1), rate_bps.max(1));
        }
    }

    fn stats(&self, radio: usize) -> RadioStats {
        let queued = self.servers.iter().flat_map(|server| &server.queue);
        let waiting = queued.filter(|queued| queued.from == radio).count() as u64;
        RadioStats { waiting, ..self.radios[radio].stats.clone() }
    }

    /// Returns the time that the rate was in use, summed over all radios.
    fn busy(&self, _now: Nanos) -> Nanos {
        self.busy
    }

    fn next(&self) -> Option<Nanos> {
        let departures = self.servers.iter().filter_map(|server| server.departs);
        departures.chain(self.in_flight.peek().map(|Reverse(first)| first.at)).min()
    }

    fn send(&mut self, now: Nanos, radio: usize, frame: Frame<P>) -> Result<(), Frame<P>> {
        let bytes = self.wire_bytes(&frame);
        let sender = &mut self.radios[radio];
        if sender.queued_bytes + bytes > self.config.queue_bytes && sender.queued_bytes > 0 {
            sender.stats.queue_drops += 1;
            return Err(frame);
        }
        sender.queued_bytes += bytes;
        let server = if self.config.half_duplex { 0 } else { radio };
        self.servers[server].queue.push_back(Queued {
            from: radio,
            since: now,
            marked: None,
            frame,
        });
        if self.servers[server].queue.len() == 1 {
            // The frame did not wait, so nothing is dropped.
            self.schedule(now, server, &mut VecDeque::new());
        }
        Ok(())
    }

    /// Processes everything that is due at `now`, which is [`Network::next`].
    fn step(&mut self, now: Nanos, scene: &Scene, outputs: &mut VecDeque<Output<P>>) {
        for server in 0..self.servers.len() {
            if self.servers[server].departs.is_some_and(|at| at <= now) {
                match self.config.trace {
                    Some(_) => self.use_opportunity(now, server, scene, outputs),
                    None => self.depart(now, server, scene, outputs),
                }
            }
        }
        while let Some(Reverse(first)) = self.in_flight.peek() {
            if first.at > now {
                break;
            }
            if let Some(Reverse(arrived)) = self.in_flight.pop() {
                self.arrive(arrived, outputs);
            }
        }
    }
}

impl Facts for PipeConfig {
    fn bps(&self) -> RangeInclusive<u64> {
        self.rate_bps..=self.rate_bps
    }

    fn one_way_bps(&self, bps: u64) -> u64 {
        if self.half_duplex { bps / 2 } else { bps }
    }

    fn latency(&self) -> Nanos {
        self.delay + self.jitter
    }
}
