// SPDX-License-Identifier: Apache-2.0
//! The medium in real time. The kernel holds each frame that a radio sends until the medium reports
//! it as transmitted. Receivers get copies where and when the medium delivers them.

use super::kernel::{ETHERNET_HEADER_BYTES, HeldFrame, Plumbing, RadioNumber, mac};
use crate::rig::clock::monotonic_ns;
use crate::rig::figures::{NetworkFigures, RadioFigures, Usage, of_medium, radios};
use crate::rig::staging::{Change, add_networks, changes, later};
use crate::scenario::Scenario;
use anyhow::Result;
use serde::Serialize;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;
use tautline_medium::{Frame, Medium, Nanos, NetworkId, Output, RadioId, RadioStats};

/// Value of the ECN field of a marked packet, and at the same time the mask of the field (RFC 3168).
const CE: u8 = 3;
/// EtherType of IPv4.
const IPV4: [u8; 2] = [8, 0];
/// Longest wait of a thread; after this time it checks whether to stop.
const LONGEST_WAIT: Nanos = 20_000_000;
/// Minimum time from a program's send to the receipt of its frame here: the kernel's path to the
/// queue and the wake-up of this thread (measured: 45-75 us for nine in ten).
const INTAKE: Nanos = 50_000;
/// Processor time to send a frame. Frames found together were sent this far apart. With equal
/// times, frames of two radios would collide although the second radio in fact heard the first.
/// (Without it, half of all collisions on scenarios/plain-udp.yaml were of this kind.)
const SEND_TIME: Nanos = 10_000;
/// A run counts if the 99th percentile of the emulator's scheduling delay does not exceed this limit.
/// No other criterion applies.
pub const COUNTS_BELOW: Duration = Duration::from_micros(400);
/// Resolution of the counted scheduling delay, nanoseconds.
const LATENESS_STEP: u64 = 10_000;
/// Number of steps; the last step also counts all longer delays.
const LATENESS_STEPS: usize = 10_000;

/// Scheduling delay of the emulator.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Punctuality {
    /// Frames delivered or reported as transmitted.
    pub frames: u64,
    /// Median scheduling delay in microseconds, rounded up to a multiple of 10.
    pub late_p50_us: u64,
    /// 99th percentile of the scheduling delay, microseconds.
    pub late_p99_us: u64,
    /// Maximum scheduling delay, microseconds.
    pub late_max_us: u64,
    /// Processor time of the emulator's threads, percent of one core.
    pub cpu_percent: f64,
    /// Frames that the kernel could not report or inject, and verdicts that it refused.
    pub mishaps: u64,
    /// Whether the run counts: see [`COUNTS_BELOW`].
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

/// Scheduling delays of all frames so far.
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

    /// Returns the microseconds that `share` of all delays do not exceed.
    fn quantile_us(&self, share: f64) -> u64 {
        let wanted = (share * self.frames as f64).ceil() as u64;
        let mut seen = 0;
        let step = self.counts.iter().position(|count| {
            seen += count;
            seen >= wanted
        });
        // The upper end of the step may lie above the maximum.
        ((step.unwrap_or(0) as u64 + 1) * LATENESS_STEP).min(self.max.max(LATENESS_STEP)) / 1000
    }
}

/// The emulator: see the module.
pub struct Emulator {
    medium: Medium<Arc<HeldFrame>>,
    plumbing: Plumbing,
    radios: HashMap<[u8; 6], RadioId>,
    /// Future changes, in order of time.
    changes: VecDeque<(Nanos, Change)>,
    origin: u64,
    /// Time up to which everything due has been done.
    handled: Nanos,
    lateness: Lateness,
    received: Vec<HeldFrame>,
    counted_since: Nanos,
    cpu: Duration,
    scenario: Scenario,
    /// Start of the scenario.
    start: Nanos,
    /// End of the scenario; `None` if the user's programs determine the length.
    end: Option<Nanos>,
    /// Usage at `start` and at `end`.
    used: [Option<Usage>; 2],
}

impl AsFd for Emulator {
    /// Returns the descriptor to poll: readable when a new frame is held.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.plumbing.as_fd()
    }
}

impl Emulator {
    /// Creates an emulator. Medium and plumbing have the scenario's radios in the same order. The
    /// scenario's time starts `offset` after the emulator's.
    pub fn new(scenario: &Scenario, seed: u64, offset: Nanos, plumbing: Plumbing) -> Self {
        let mut medium = Medium::new(seed);
        add_networks(scenario, &mut medium);
        let mut radios = HashMap::new();
        for (number, station) in scenario.stations.iter().enumerate() {
            let id = medium.add_station(later(&station.motion, offset));
            for &network in &station.networks {
                let network_id = tautline_medium::NetworkId(network);
                let radio = medium.add_radio(id, network_id, station.queue_packets);
                radios.insert(mac(network, number), radio);
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
            // Without flows, the user's programs determine the length of the run.
            end: (!scenario.flows.is_empty()).then_some(offset + scenario.duration),
            used: [None, None],
        }
    }

    /// Discards the delays measured so far: delays while programs start do not count.
    pub fn count_from_now(&mut self) {
        self.lateness = Lateness::new();
        self.cpu = Duration::ZERO;
        self.counted_since = self.now();
    }

    /// Changes the medium at once.
    pub fn change(&mut self, change: Change) {
        self.changes.push_front((self.now(), change));
    }

    /// Adds processor time that was used on the emulator.
    pub fn charge(&mut self, used: Duration) {
        self.cpu += used;
    }

    /// Returns the machine's monotonic time at which this emulator's clock was 0.
    pub fn origin(&self) -> u64 {
        self.origin
    }

    /// Returns the nanoseconds since this emulator was created: the medium's time.
    pub fn now(&self) -> Nanos {
        monotonic_ns() - self.origin
    }

    /// Handles received frames and everything that is due.
    pub fn turn(&mut self) -> Result<()> {
        self.plumbing.receive(&mut self.received)?;
        let (now, frames) = (self.now(), std::mem::take(&mut self.received));
        let last = frames.len() as Nanos;
        for (frame, number) in frames.into_iter().zip(1..) {
            let ago = INTAKE + SEND_TIME * (last - number);
            let came = now.saturating_sub(ago).max(self.handled);
            // Do all earlier work first, each part at its own time.
            self.handle_due(came)?;
            self.take(came, frame)?;
        }
        self.handle_due(now)
    }

    /// Returns the time of the next turn if no frame arrives before; at most [`LONGEST_WAIT`] from
    /// now.
    pub fn next_event(&self) -> Nanos {
        let change = self.changes.front().map(|(at, _)| *at);
        let due = self.medium.poll_timeout().into_iter().chain(change);
        due.chain([self.now() + LONGEST_WAIT]).min().unwrap_or(0)
    }

    /// Returns the figures of radios and networks. Shares refer to the time between the scenario's
    /// start and its end, or now if the end is in the future.
    pub fn figures(&self) -> (Vec<RadioFigures>, Vec<NetworkFigures>) {
        let [before, after] = self.used.clone();
        let now = || Usage::read(&self.scenario, &self.medium, self.handled);
        let used = (&before.unwrap_or_default(), &after.unwrap_or_else(now));
        of_medium(&self.scenario, &self.medium, used)
    }

    /// Returns the busy time of each network since the start, and the time up to which the busy time is
    /// counted.
    pub fn busy(&self) -> (Nanos, Vec<Nanos>) {
        let networks = 0..self.scenario.networks.len();
        let busy = |number| self.medium.busy(NetworkId(number), self.handled);
        (self.handled, networks.map(busy).collect())
    }

    /// Returns raw counters, by radio.
    pub fn stats(&self) -> Vec<RadioStats> {
        radios(&self.scenario).map(|radio| self.medium.stats(radio)).collect()
    }

    /// Returns the number of frames that the kernel could not report.
    pub fn unreported_frames(&self) -> u64 {
        self.plumbing.troubles().unreported_frames
    }

    fn note_usage(&mut self, now: Nanos) {
        for (number, at) in [Some(self.start), self.end].into_iter().enumerate() {
            if self.used[number].is_none() && at.is_some_and(|at| at <= now) {
                self.used[number] = Some(Usage::read(&self.scenario, &self.medium, now));
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
                Output::Delivered { to: RadioId(radio), payload, marked, .. } => {
                    let radio: RadioNumber = radio;
                    let ce = marked.then(|| with_ce(&payload.ethernet));
                    self.plumbing.inject(radio, ce.as_deref().unwrap_or(&payload.ethernet))?;
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
        let (bytes, traffic_class) = (held.payload_bytes() as u32, traffic_class(&held.ethernet));
        let (dscp, ecn_capable) = (traffic_class >> 2, traffic_class & CE != 0);
        let frame = Frame { to: receiver, bytes, dscp, ecn_capable, payload: Arc::new(held) };
        match self.medium.send(now, radio, frame) {
            Ok(()) => Ok(()),
            Err(full) => self.plumbing.discard(&full.0.payload),
        }
    }

    /// Returns the scheduling delay since [`Emulator::count_from_now`].
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

/// Returns DSCP and ECN field of an IPv4 packet in a frame; 0 for other frames.
fn traffic_class(ethernet: &[u8]) -> u8 {
    let ip = ethernet.get(12..14) == Some(&IPV4);
    ethernet.get(ETHERNET_HEADER_BYTES + 1).copied().filter(|_| ip).unwrap_or(0)
}

/// Returns a frame whose IPv4 packet is marked, with the checksum of its header (RFC 791).
fn with_ce(ethernet: &[u8]) -> Vec<u8> {
    let mut frame = ethernet.to_vec();
    let Some(ip) = frame.get_mut(ETHERNET_HEADER_BYTES..) else { return frame };
    let header_bytes = ip.first().map_or(0, |byte| usize::from(byte & 0xf) * 4);
    let Some(header) = ip.get_mut(..header_bytes).filter(|it| it.len() >= 20) else {
        return frame;
    };
    header[1] |= CE;
    header[10..12].fill(0);
    let words = header.chunks_exact(2).map(|it| u32::from(it[0]) << 8 | u32::from(it[1]));
    let sum = words.sum::<u32>();
    let folded = (sum & 0xffff) + (sum >> 16);
    let checksum = !(folded + (folded >> 16)) as u16;
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marked_packet_has_a_valid_checksum() {
        let mut frame = vec![0; 12];
        frame.extend(IPV4);
        // An example of RFC 791's header: 84 bytes of ICMP with ECT(0).
        let header = [
            0x45, 0x02, 0x00, 0x54, 0x00, 0x00, 0x40, 0x00, 0x40, 0x01, 0x26, 0xa5, 10, 0, 0, 1,
            10, 0, 0, 2,
        ];
        frame.extend(header);
        frame.extend([7; 64]);
        let sum = |frame: &[u8]| {
            let words =
                frame[14..34].chunks_exact(2).map(|it| u32::from(it[0]) << 8 | u32::from(it[1]));
            let sum = words.sum::<u32>();
            (sum & 0xffff) + (sum >> 16)
        };
        assert_eq!(sum(&frame), 0xffff);
        let marked = with_ce(&frame);
        assert_eq!((marked[15], sum(&marked)), (3, 0xffff));
        assert_eq!(
            (marked.len(), &marked[34..], &marked[..14]),
            (frame.len(), &frame[34..], &frame[..14])
        );
        assert_eq!((traffic_class(&frame), traffic_class(&marked)), (2, 3));
        assert_eq!(with_ce(&frame[..20]), frame[..20], "too short for a header");
    }
}
