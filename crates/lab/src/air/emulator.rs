// SPDX-License-Identifier: Apache-2.0
//! The medium in real time: what radios send is held in the kernel until the medium
//! says that it has been on the air, and received where and when the medium says.

use super::kernel::{ETHERNET_HEADER_BYTES, HeldFrame, Plumbing, RadioNumber, mac};
use crate::clock::monotonic_ns;
use crate::figures::{NetworkFigures, RadioFigures, Usage, of_medium, radios};
use crate::scenario::Scenario;
use crate::staging::{Change, add_networks, changes, later};
use anyhow::Result;
use serde::Serialize;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;
use tautline_medium::{Frame, Medium, Nanos, Output, RadioId, RadioStats};

/// EtherType of IPv4.
const IPV4: [u8; 2] = [8, 0];
/// There is something to look at, if only whether to stop, at least so often.
const LONGEST_WAIT: Nanos = 20_000_000;
/// From a program's send to its frame's being taken here, at least: the kernel's way to the
/// queue and this thread's waking (measured: 45-75 us for nine in ten).
const INTAKE: Nanos = 50_000;
/// What a processor needs to send a frame. Frames found together came so far apart: taken at
/// one moment, those of two radios would collide where the second in fact heard the first.
/// (Without it, half of all collisions on scenarios/plain-udp.yaml were of this kind.)
const SEND_TIME: Nanos = 10_000;
/// A run counts if 99 % of what the emulator did was at most so late. Decided by this alone.
pub const COUNTS_BELOW: Duration = Duration::from_micros(400);
/// Lateness is counted in steps of this many nanoseconds.
const LATENESS_STEP: u64 = 10_000;
/// Anything later counts as this many steps.
const LATENESS_STEPS: usize = 10_000;

/// How late the emulator was.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Punctuality {
    /// Frames received or reported as sent.
    pub frames: u64,
    /// Median of lateness, microseconds, rounded up to 10.
    pub late_p50_us: u64,
    /// 99th percentile.
    pub late_p99_us: u64,
    /// Largest.
    pub late_max_us: u64,
    /// Of one core, percent, by the emulator's threads.
    pub cpu_percent: f64,
    /// Frames that the kernel could not hand over or take back.
    pub mishaps: u64,
    /// The run counts: see [`COUNTS_BELOW`].
    pub counts: bool,
}

impl fmt::Display for Punctuality {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.frames == 0 {
            return write!(f, "no frames: nothing to judge");
        }
        let limit = COUNTS_BELOW.as_micros();
        let verdict = if self.counts {
            "counts".into()
        } else {
            format!("does NOT count (p99 over {limit} us)")
        };
        write!(
            f,
            "{} frames, late by {} us (p50), {} us (p99), {} us (max), {:.1} % of a core, {} mishaps: the run {verdict}",
            self.frames,
            self.late_p50_us,
            self.late_p99_us,
            self.late_max_us,
            self.cpu_percent,
            self.mishaps
        )
    }
}

/// Lateness of all frames so far.
#[derive(Debug)]
struct Lateness {
    counts: Vec<u64>,
    frames: u64,
    max: u64,
}

impl Lateness {
    fn new() -> Self {
        Self { counts: vec![0; LATENESS_STEPS], frames: 0, max: 0 }
    }

    fn add(&mut self, nanos: u64) {
        let step = (nanos / LATENESS_STEP) as usize;
        self.counts[step.min(LATENESS_STEPS - 1)] += 1;
        self.frames += 1;
        self.max = self.max.max(nanos);
    }

    /// Microseconds that `share` of all do not exceed.
    fn quantile_us(&self, share: f64) -> u64 {
        let wanted = (share * self.frames as f64).ceil() as u64;
        let mut seen = 0;
        let step = self.counts.iter().position(|count| {
            seen += count;
            seen >= wanted
        });
        // Not beyond the largest, though that lies within its step.
        ((step.unwrap_or(0) as u64 + 1) * LATENESS_STEP).min(self.max.max(LATENESS_STEP)) / 1000
    }
}

/// See the module.
pub struct Emulator {
    medium: Medium<Arc<HeldFrame>>,
    plumbing: Plumbing,
    radios: HashMap<[u8; 6], RadioId>,
    /// Changes to come, in order of time.
    changes: VecDeque<(Nanos, Change)>,
    origin: u64,
    /// What was due until then has been done.
    handled: Nanos,
    lateness: Lateness,
    received: Vec<HeldFrame>,
    counted_since: Nanos,
    cpu: Duration,
    scenario: Scenario,
    /// When the scenario starts and, if it is that which is run, ends.
    start: Nanos,
    end: Option<Nanos>,
    /// What had been used then.
    used: [Option<Usage>; 2],
}

impl AsFd for Emulator {
    /// What to poll: readable when a frame is newly held.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.plumbing.as_fd()
    }
}

impl Emulator {
    /// An emulator whose medium and plumbing have the scenario's radios in the same order.
    /// The scenario's time starts `offset` after the emulator's.
    pub fn new(scenario: &Scenario, seed: u64, offset: Nanos, plumbing: Plumbing) -> Self {
        let mut medium = Medium::new(seed);
        add_networks(scenario, &mut medium);
        let mut radios = HashMap::new();
        for (number, station) in scenario.stations.iter().enumerate() {
            let id = medium.add_station(later(&station.motion, offset));
            for &network in &station.networks {
                let network_id = tautline_medium::NetworkId(network);
                let radio = medium.add_radio(id, network_id, station.queue_packets);
                radios.insert(mac(network as u8, number), radio);
            }
        }
        Self {
            medium,
            plumbing,
            radios,
            changes: changes(scenario, offset).into(),
            origin: monotonic_ns(),
            handled: 0,
            lateness: Lateness::new(),
            received: Vec::new(),
            counted_since: 0,
            cpu: Duration::ZERO,
            scenario: scenario.clone(),
            start: offset,
            // Without flows it is about the programs, which may run longer.
            end: (!scenario.flows.is_empty()).then_some(offset + scenario.duration),
            used: [None, None],
        }
    }

    /// What was late while programs started does not count.
    pub fn count_from_now(&mut self) {
        self.lateness = Lateness::new();
        self.cpu = Duration::ZERO;
        self.counted_since = self.now();
    }

    /// Notes processor time that was used on the emulator.
    pub fn charge(&mut self, used: Duration) {
        self.cpu += used;
    }

    /// The machine's monotonic time at which this emulator's clock was 0.
    pub fn origin(&self) -> u64 {
        self.origin
    }

    /// Nanoseconds since this emulator was made: the medium's time.
    pub fn now(&self) -> Nanos {
        monotonic_ns() - self.origin
    }

    /// Handles what has come and what is due.
    pub fn turn(&mut self) -> Result<()> {
        self.plumbing.receive(&mut self.received)?;
        let (now, frames) = (self.now(), std::mem::take(&mut self.received));
        let last = frames.len() as Nanos;
        for (frame, number) in frames.into_iter().zip(1..) {
            let ago = INTAKE + SEND_TIME * (last - number);
            let came = now.saturating_sub(ago).max(self.handled);
            // Everything until the frame came, each at its own time.
            self.handle_due(came)?;
            self.take(came, frame)?;
        }
        self.handle_due(now)
    }

    /// When the next turn is due if no frame comes before; at most [`LONGEST_WAIT`] from now.
    pub fn next(&self) -> Nanos {
        let change = self.changes.front().map(|(at, _)| *at);
        let due = self.medium.poll_timeout().into_iter().chain(change);
        due.chain([self.now() + LONGEST_WAIT]).min().unwrap_or(0)
    }

    /// What radios and networks did; shares are of the time between the scenario's start and
    /// its end, as far as they have come.
    pub fn figures(&self) -> (Vec<RadioFigures>, Vec<NetworkFigures>) {
        let [before, after] = self.used.clone();
        let now = || Usage::of(&self.scenario, &self.medium, self.handled);
        let used = (&before.unwrap_or_default(), &after.unwrap_or_else(now));
        of_medium(&self.scenario, &self.medium, used)
    }

    /// Raw counters, by radio.
    pub fn stats(&self) -> Vec<RadioStats> {
        radios(&self.scenario).map(|radio| self.medium.stats(radio)).collect()
    }

    fn note_usage(&mut self, now: Nanos) {
        for (number, at) in [Some(self.start), self.end].into_iter().enumerate() {
            if self.used[number].is_none() && at.is_some_and(|at| at <= now) {
                self.used[number] = Some(Usage::of(&self.scenario, &self.medium, now));
            }
        }
    }

    fn handle_due(&mut self, now: Nanos) -> Result<()> {
        self.handled = now;
        while let Some((at, change)) = self.changes.pop_front() {
            if at > now {
                self.changes.push_front((at, change));
                break;
            }
            self.medium.handle_timeout(at);
            change.apply(at, &mut self.medium);
        }
        self.medium.handle_timeout(now);
        self.note_usage(now);
        while let Some(output) = self.medium.poll_output() {
            let at = output.at();
            match output {
                Output::Sent { payload, .. } => self.plumbing.discard(&payload)?,
                Output::Delivered { to: RadioId(radio), payload, .. } => {
                    let radio: RadioNumber = radio;
                    self.plumbing.inject(radio, &payload.ethernet)?;
                }
            }
            let late = self.now().saturating_sub(at);
            self.lateness.add(late);
        }
        Ok(())
    }

    fn take(&mut self, now: Nanos, held: HeldFrame) -> Result<()> {
        let receiver = held.ethernet.first_chunk().and_then(|mac| self.radios.get(mac)).copied();
        if receiver.is_none() && !held.is_for_a_group() {
            return self.plumbing.discard(&held);
        }
        let radio = RadioId(held.radio);
        let (bytes, dscp) = (held.payload_bytes() as u32, dscp(&held.ethernet));
        let frame = Frame { to: receiver, bytes, dscp, payload: Arc::new(held) };
        match self.medium.send(now, radio, frame) {
            Ok(()) => Ok(()),
            Err(full) => self.plumbing.discard(&full.0.payload),
        }
    }

    /// How punctual it was since [`Emulator::count_from_now`].
    pub fn punctuality(&self) -> Punctuality {
        let troubles = self.plumbing.troubles();
        let late_p99_us = self.lateness.quantile_us(0.99);
        let elapsed = Duration::from_nanos(self.now() - self.counted_since);
        Punctuality {
            frames: self.lateness.frames,
            late_p50_us: self.lateness.quantile_us(0.5),
            late_p99_us,
            late_max_us: self.lateness.max / 1000,
            cpu_percent: 100.0 * self.cpu.as_secs_f64() / elapsed.as_secs_f64().max(1e-9),
            mishaps: troubles.unreported_frames
                + troubles.refused_verdicts
                + self.plumbing.uninjected_frames(),
            counts: u128::from(late_p99_us) <= COUNTS_BELOW.as_micros(),
        }
    }
}

/// The code point of an IPv4 packet in a frame; 0 of anything else.
fn dscp(ethernet: &[u8]) -> u8 {
    let ip = ethernet.get(12..14) == Some(&IPV4);
    let traffic_class = ethernet.get(ETHERNET_HEADER_BYTES + 1).filter(|_| ip);
    traffic_class.map_or(0, |byte| byte >> 2)
}
