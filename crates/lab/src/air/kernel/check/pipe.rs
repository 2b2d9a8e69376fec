// SPDX-License-Identifier: Apache-2.0
//! The simplest medium: on each network one frame after the other, at one rate.

use crate::air::kernel::punctual::{Rank, be_punctual};
use crate::air::kernel::{
    ETHERNET_HEADER_BYTES, HeldFrame, Plumbing, RadioNumber, StationPlan, Troubles, mac,
};
use crate::clock::cpu_of_this_thread;
use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Interval at which the thread checks whether to hold or to stop.
const ATTENTION: Duration = Duration::from_millis(5);
/// Offset of a UDP datagram's payload in a frame.
const UDP_PAYLOAD: usize = ETHERNET_HEADER_BYTES + 20 + 8;

/// Treatment of frames.
#[derive(Clone, Copy)]
pub struct Rules {
    /// Bits per second of each network.
    pub rate_bps: u64,
    /// Whether a unicast frame is lost.
    pub loses: fn(&HeldFrame) -> bool,
    /// Whether a radio receives group frames.
    pub hears: fn(RadioNumber) -> bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self { rate_bps: 6_000_000, loses: |_| false, hears: |_| true }
    }
}

/// Returns the payload of a UDP datagram.
pub fn udp_payload(frame: &HeldFrame) -> Option<&[u8]> {
    let ethernet = &frame.ethernet;
    let is_udp = ethernet.get(12..14) == Some(&[8, 0]) && ethernet.get(23) == Some(&17);
    ethernet.get(UDP_PAYLOAD..).filter(|_| is_udp)
}

/// Returns the number at the start of a measured datagram.
pub fn sequence(payload: &[u8]) -> Option<u64> {
    payload.first_chunk().copied().map(u64::from_be_bytes)
}

/// Counters of the pipe.
#[derive(Debug, Default, Clone)]
pub struct Tally {
    /// Frames per radio.
    pub frames: BTreeMap<RadioNumber, u64>,
    /// Number of ARP requests and replies among them.
    pub arp: u64,
    /// Frames whose source was not the radio's MAC.
    pub foreign_macs: u64,
    /// Bytes of the longest packet, without Ethernet header.
    pub longest_bytes: usize,
    /// Time of release of each numbered datagram.
    pub releases: Vec<(u64, Instant)>,
    /// Delay of each release.
    pub lateness: Vec<Duration>,
    /// Whether the thread had real-time priority.
    pub real_time: bool,
    /// Processor time of the thread, user and system.
    pub cpu: Duration,
    /// Failures of the queue.
    pub troubles: Troubles,
    /// Copies that were not injected.
    pub uninjected_frames: u64,
}

/// A pipe that runs on a thread of its own.
pub struct Pipe {
    thread: JoinHandle<Result<Tally>>,
    holds: Arc<AtomicBool>,
    stops: Arc<AtomicBool>,
}

impl Pipe {
    /// Starts to pass frames.
    pub fn start(plumbing: Plumbing, plan: &[StationPlan], rules: Rules) -> Self {
        let mut macs = Vec::new();
        let mut networks = Vec::new();
        for (number, station) in plan.iter().enumerate() {
            macs.extend(station.radios.iter().map(|radio| mac(radio.network, number)));
            networks.extend(station.radios.iter().map(|radio| radio.network));
        }
        let (holds, stops) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
        let mut work = Work {
            plumbing,
            rules,
            networks,
            macs,
            waiting: BTreeMap::new(),
            tally: Tally::default(),
            holds: Arc::clone(&holds),
            stops: Arc::clone(&stops),
        };
        let thread = std::thread::spawn(move || work.run());
        Self { thread, holds, stops }
    }

    /// Sets whether frames sent from now on stay held.
    pub fn hold(&self, holds: bool) {
        self.holds.store(holds, Ordering::Relaxed);
    }

    /// Ends the pipe and removes the stations.
    pub fn stop(self) -> Result<Tally> {
        self.stops.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

struct Work {
    plumbing: Plumbing,
    rules: Rules,
    /// Network of each radio.
    networks: Vec<u8>,
    /// MAC of each radio.
    macs: Vec<[u8; 6]>,
    waiting: BTreeMap<u8, Line>,
    tally: Tally,
    holds: Arc<AtomicBool>,
    stops: Arc<AtomicBool>,
}

/// The frames of one network; the first is on the air until `due`.
#[derive(Default)]
struct Line {
    frames: VecDeque<HeldFrame>,
    due: Option<Instant>,
}

impl Line {
    fn begin(&mut self, from: Instant, rate_bps: u64) {
        let bits = |frame: &HeldFrame| frame.ethernet.len() as u64 * 8;
        let air_time = |frame| Duration::from_nanos(bits(frame) * 1_000_000_000 / rate_bps);
        self.due = self.frames.front().map(|frame| from + air_time(frame));
    }

    /// Returns the frame whose transmission has ended, and the time of its end.
    fn take(&mut self, now: Instant, rate_bps: u64) -> Option<(HeldFrame, Instant)> {
        let due = self.due.filter(|due| *due <= now)?;
        let frame = self.frames.pop_front()?;
        self.begin(due, rate_bps);
        Some((frame, due))
    }
}

impl Work {
    fn run(&mut self) -> Result<Tally> {
        self.tally.real_time = be_punctual(Rank::Emulator)?;
        let mut frames = Vec::new();
        while !self.stops.load(Ordering::Relaxed) {
            if self.wait()? {
                self.plumbing.receive(&mut frames)?;
            }
            self.queue(&mut frames);
            if !self.holds.load(Ordering::Relaxed) {
                self.let_go()?;
            }
        }
        Ok(self.conclude())
    }

    /// Waits until a frame is due or held; returns whether one is held.
    fn wait(&self) -> Result<bool> {
        let due = self.waiting.values().filter_map(|line| line.due).min();
        let due = due.filter(|_| !self.holds.load(Ordering::Relaxed));
        let patience = due.map_or(ATTENTION, |due| due.saturating_duration_since(Instant::now()));
        let timeout = Timespec::try_from(patience.min(ATTENTION))?;
        let mut polled = [PollFd::new(&self.plumbing, PollFlags::IN)];
        match poll(&mut polled, Some(&timeout)) {
            Err(Errno::INTR) => Ok(false),
            outcome => Ok(outcome.context("cannot wait for frames")? > 0),
        }
    }

    fn queue(&mut self, frames: &mut Vec<HeldFrame>) {
        let now = Instant::now();
        for frame in frames.drain(..) {
            *self.tally.frames.entry(frame.radio).or_default() += 1;
            self.tally.arp += u64::from(frame.ethernet.get(12..14) == Some(&[8, 6]));
            let foreign = frame.ethernet.get(6..12) != Some(&self.macs[frame.radio]);
            self.tally.foreign_macs += u64::from(foreign);
            self.tally.longest_bytes = self.tally.longest_bytes.max(frame.payload_bytes());
            let line = self.waiting.entry(self.networks[frame.radio]).or_default();
            line.frames.push_back(frame);
            if line.due.is_none() {
                line.begin(now, self.rules.rate_bps);
            }
        }
    }

    fn let_go(&mut self) -> Result<()> {
        let networks: Vec<u8> = self.waiting.keys().copied().collect();
        for network in networks {
            while let Some((frame, due)) = self.next(network) {
                let now = Instant::now();
                self.tally.lateness.push(now - due);
                if let Some(number) = udp_payload(&frame).and_then(sequence) {
                    self.tally.releases.push((number, now));
                }
                self.deliver(network, &frame)?;
            }
        }
        Ok(())
    }

    fn next(&mut self, network: u8) -> Option<(HeldFrame, Instant)> {
        self.waiting.get_mut(&network)?.take(Instant::now(), self.rules.rate_bps)
    }

    fn deliver(&mut self, network: u8, frame: &HeldFrame) -> Result<()> {
        if !frame.is_for_a_group() {
            let lost = (self.rules.loses)(frame);
            return if lost { self.plumbing.discard(frame) } else { self.plumbing.release(frame) };
        }
        self.plumbing.discard(frame)?;
        for radio in 0..self.networks.len() {
            let reached = radio != frame.radio && self.networks[radio] == network;
            if reached && (self.rules.hears)(radio) {
                self.plumbing.inject(radio, &frame.ethernet)?;
            }
        }
        Ok(())
    }

    fn conclude(&mut self) -> Tally {
        self.tally.cpu = cpu_of_this_thread();
        self.tally.troubles = self.plumbing.troubles();
        self.tally.uninjected_frames = self.plumbing.uninjected_frames();
        std::mem::take(&mut self.tally)
    }
}
