// SPDX-License-Identifier: Apache-2.0
//! One path to a peer: its packet numbers, its losses, and whether it is up.

use crate::address::Place;
use crate::class::{Class, InFlight};
use crate::config::LinkConfig;
use crate::ids::{PeerId, RadioId};
use crate::path::headroom::Headroom;
use crate::path::relay_window::RelayWindow;
use crate::rate::{Controller, Report};
use crate::recovery::sent::{Outcome, SentPackets};
use crate::stats::LinkStats;
use crate::time::{Duration, Instant};
use crate::wire::frame::Ack;
use std::net::SocketAddr;

/// Least time without a packet after which a link is down: three heartbeats.
const TIMEOUT_MIN: Duration = Duration::from_millis(750);
const TIMEOUT_MAX: Duration = Duration::from_secs(5);
/// A packet that the driver has not taken for so long holds up only its own
/// link: an unresolved neighbour, not a busy radio (at 1 Mbps two full packets take 24 ms).
pub(crate) const STALL: Duration = Duration::from_millis(50);

/// The same where others send them on, who have more urgent things to send.
const RELAY_STALL: Duration = Duration::from_millis(500);

/// What left within so long counts when it is asked what is urgent.
const LATE: Duration = Duration::from_secs(1);

/// An address that a peer's packets come from, not yet shown to be its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) radio: RadioId,
    pub(crate) remote: SocketAddr,
    pub(crate) token: u64,
    pub(crate) challenges: u8,
    pub(crate) due: bool,
}

#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) peer: PeerId,
    /// The link was removed; the next one may have its place.
    pub(crate) gone: bool,
    pub(crate) radio: RadioId,
    pub(crate) config: LinkConfig,
    pub(crate) remote: Option<Place>,
    /// The peer that passes its packets on.
    pub(crate) via: Option<PeerId>,
    /// Of those, what waits there, in bytes.
    pub(crate) remote_backlog: usize,
    pub(crate) relay_window: RelayWindow,
    /// Its number in our packets to the peer.
    pub(crate) number: u8,
    pub(crate) sent_packets: SentPackets,
    pub(crate) up: bool,
    /// Packets leave and nothing comes back: it carries pings only, until one is answered.
    pub(crate) silent: bool,
    pub(crate) last_received: Option<Instant>,
    /// When something that asks for an acknowledgement was last sent.
    pub(crate) last_eliciting: Instant,
    /// How often the peer was sought by it.
    pub(crate) reconnect_attempts: u32,
    pub(crate) initiate_now: bool,
    pub(crate) ping_now: bool,
    /// Class of the last packet without messages, and the bytes of this class that leave before
    /// it has left.
    report: Option<(Class, usize)>,
    /// Where the peer's packets come from, if that is elsewhere and not yet shown to be right.
    pub(crate) candidate: Option<Candidate>,
    /// The address that `remote` was before, or is in the file.
    other: Option<Place>,
    /// The address that a beacon told of last, while it has not led to the peer.
    told: Option<Place>,
    /// Lets packets go by what the peer reports, if anything does.
    pub(crate) controller: Option<Box<dyn Controller>>,
    pub(crate) headroom: Headroom,
    /// The lowest priority of messages that left of late, and when.
    lowest: (u8, Instant),
    /// Bytes of our packets in the kernel.
    pub(crate) in_flight: InFlight,
    drained_at: Instant,
    pub(crate) stalled: bool,
    pub(crate) stats: LinkStats,
}

impl Link {
    pub(crate) fn new(peer: PeerId, radio: RadioId, number: u8, config: LinkConfig) -> Self {
        Self {
            peer,
            gone: false,
            radio,
            remote: config.remote.map(Place::Udp),
            via: None,
            remote_backlog: 0,
            relay_window: RelayWindow::default(),
            config,
            number,
            sent_packets: SentPackets::new(),
            up: false,
            silent: false,
            last_received: None,
            last_eliciting: Instant::default(),
            reconnect_attempts: 0,
            initiate_now: false,
            ping_now: false,
            report: None,
            candidate: None,
            other: None,
            told: None,
            controller: None,
            headroom: Headroom::default(),
            lowest: (u8::MAX, Instant::default()),
            in_flight: InFlight::default(),
            drained_at: Instant::default(),
            stalled: false,
            stats: LinkStats::default(),
        }
    }

    /// One that takes the number of a link that was removed, and goes on with its packet numbers.
    pub(crate) fn successor(before: &Self, radio: RadioId, config: LinkConfig) -> Self {
        let sent_packets = before.sent_packets.successor(false);
        Self { sent_packets, ..Self::new(before.peer, radio, before.number, config) }
    }

    pub(crate) fn carries_data(&self) -> bool {
        self.is_open() && !self.stalled
    }

    /// The same for one class: what stalls may be a lower one, which others' packets of higher
    /// classes keep off the air.
    pub(crate) fn carries_class(&self, class: Class) -> bool {
        self.is_open() && (!self.stalled || self.in_flight.from(class) == 0)
    }

    fn is_open(&self) -> bool {
        self.up && !self.silent && self.remote.is_some() && !self.sent_packets.is_full()
    }

    /// Bytes that count against the radio's budget.
    pub(crate) fn counted_in_flight(&self) -> InFlight {
        if self.up && !self.stalled { self.in_flight } else { InFlight::default() }
    }

    /// Whether packets come back.
    pub(crate) fn is_heard(&self) -> bool {
        self.up && !self.silent
    }

    /// How long nothing may come before the link is down, where the file does not say.
    pub(crate) fn timeout(&self) -> Duration {
        let (smoothed, variation) = self.sent_packets.rtt().known().unwrap_or_default();
        (TIMEOUT_MIN + smoothed + variation * 4).min(TIMEOUT_MAX)
    }

    /// A peer that moved may be back where the file says that it is.
    pub(crate) fn try_other_address(&mut self) {
        if self.other.is_none() {
            let configured = self.config.remote.map(Place::Udp);
            self.other = configured.filter(|_| self.remote != configured);
        }
        if self.other.is_some() {
            std::mem::swap(&mut self.remote, &mut self.other);
        }
    }

    /// Packets came from its address: no other is looked for.
    pub(crate) fn confirm_address(&mut self) {
        (self.other, self.told) = (None, None);
    }

    /// A beacon tells of an address, which may be false: the peer is looked for there, and
    /// still where the file says that it is, or where it was.
    pub(crate) fn try_address(&mut self, remote: Place) {
        if self.remote != Some(remote) {
            let replaces_told = self.told.is_some() && self.told == self.remote;
            if !replaces_told || self.other.is_none() {
                self.other = self.remote;
            }
            let configured = self.config.remote.map(Place::Udp);
            self.other = configured.filter(|it| *it != remote).or(self.other);
            (self.remote, self.told) = (Some(remote), Some(remote));
        }
    }

    /// Forgets all packet numbers, for a new session.
    pub(crate) fn reset(&mut self) {
        if let Some(controller) = &mut self.controller {
            controller.on_new_session();
        }
        self.sent_packets =
            if self.via.is_some() { SentPackets::relayed() } else { SentPackets::new() };
        self.up = false;
        self.silent = false;
        self.ping_now = false;
        self.report = None;
        self.candidate = None;
        self.headroom.forget();
        self.remote_backlog = 0;
        self.relay_window = RelayWindow::default();
    }

    /// Messages of this priority leave.
    pub(crate) fn note_priority(&mut self, now: Instant, priority: u8) {
        let (lowest, at) = self.lowest;
        if priority <= lowest || now.since(at) > LATE {
            self.lowest = (priority, now);
        }
    }

    /// Whether messages of this priority are more urgent than what left of late.
    pub(crate) fn is_urgent(&self, priority: u8) -> bool {
        priority > self.lowest.0
    }

    pub(crate) fn on_sent(&mut self, now: Instant, class: Class, ip_bytes: usize) {
        if self.in_flight.total() == 0 {
            self.drained_at = now;
        }
        self.in_flight.set(class, self.in_flight.of(class).saturating_add(ip_bytes));
        if let Some(controller) = &mut self.controller {
            controller.on_sent(now, ip_bytes, self.sent_packets.outstanding_bytes());
        }
        self.stats.sent_packets += 1;
        self.stats.sent_bytes += ip_bytes as u64;
    }

    /// Tells the controller what an acknowledgement says, if it came with the peer's `time`.
    pub(crate) fn report(&mut self, now: Instant, time: Option<u32>, ack: &Ack, outcome: &Outcome) {
        let told = self.controller.as_mut().zip(outcome.newest).zip(time);
        let Some(((controller, newest), time)) = told else { return };
        let held =
            outcome.kernel_time / u32::try_from(outcome.acked_packets).unwrap_or(u32::MAX).max(1);
        let report = Report {
            arrival_micros: time.wrapping_sub(ack.delay.as_micros() as u32),
            sent_bytes: newest.sent_bytes,
            sent_packets: newest.number,
            acked_packets: outcome.acked_packets,
            lost_packets: outcome.lost_packets,
            queueing_delay: ack.waited.saturating_sub(held),
            min_queueing_delay: ack.least_waited.saturating_sub(held),
            since_sent: newest.since_sent,
            rtt: newest.since_sent.saturating_sub(ack.delay),
            outstanding_bytes: self.sent_packets.outstanding_bytes(),
        };
        controller.on_report(now, &report);
    }

    /// A packet without messages was handed to the kernel. One that goes to a relay is dropped
    /// there when it is too old, and whether it has left may be reported late or never.
    pub(crate) fn note_report(&mut self, class: Class) {
        self.report = self.via.is_none().then(|| (class, self.in_flight.of(class)));
    }

    /// Whether a packet without messages is still in the kernel, as far as is known.
    pub(crate) fn is_reporting(&self) -> bool {
        self.report.is_some()
    }

    /// What the driver still holds of a class, as the kernel says.
    pub(crate) fn on_in_flight(&mut self, now: Instant, class: Class, bytes: usize) {
        let drained = self.in_flight.of(class).saturating_sub(bytes);
        let drains = drained > 0;
        if drains {
            self.drained_at = now;
        }
        self.in_flight.set(class, bytes);
        // Within a class, what was handed over first leaves first. A report that was followed by
        // another as soon as anything left would keep a queue of reports that never shrinks.
        if let Some((_, left)) = self.report.as_mut().filter(|(of, _)| *of == class) {
            *left = left.saturating_sub(drained).min(bytes);
        }
        self.report = self.report.filter(|(_, left)| *left > 0);
        self.sent_packets.on_in_flight(now, class, bytes);
        // With a relay something is always on the way, be it heartbeats.
        if self.in_flight.total() == 0 || drains && self.via.is_some() {
            self.stalled = false;
        }
    }

    /// When the link counts as stalled if nothing leaves until then.
    pub(crate) fn stall_at(&self) -> Option<Instant> {
        let patience = if self.via.is_some() { RELAY_STALL } else { STALL };
        (self.in_flight.total() > 0 && !self.stalled).then(|| self.drained_at + patience)
    }
}
