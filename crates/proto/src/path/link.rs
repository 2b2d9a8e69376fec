// SPDX-License-Identifier: Apache-2.0
//! One path to a peer: its packet numbers, its loss detection, and its state.

use crate::address::Place;
use crate::class::{Class, InFlight};
use crate::config::LinkConfig;
use crate::ids::{LinkId, PeerId, RadioId};
use crate::path::address_discovery::AddressDiscovery;
use crate::path::headroom::Headroom;
use crate::path::interleaving::Interleaving;
use crate::path::mtu::PathMtu;
use crate::path::redundancy::RedundancyPlanner;
use crate::path::relay_window::RelayWindow;
use crate::path::source::LocalAddress;
use crate::path::trial::Trial;
use crate::rate::{Controller, Report};
use crate::recovery::sent::{Outcome, SentPackets};
use crate::stats::LinkStats;
use crate::time::{Duration, Instant};
use crate::wire::address::MAX_CANDIDATES;
use crate::wire::frame::Ack;
use std::net::{IpAddr, SocketAddr};

/// Least time without a packet before a link is down: three heartbeats.
const TIMEOUT_MIN: Duration = Duration::from_millis(750);
const TIMEOUT_MAX: Duration = Duration::from_secs(5);
/// A link is stalled when the driver has sent none of its packets for this time. The cause is an unresolved
/// neighbour, not a busy radio: at 1 Mbps two full packets take 24 ms.
pub(crate) const STALL_TIMEOUT: Duration = Duration::from_millis(50);

/// The stall time where another link can carry the messages: a wrong suspicion then costs only
/// copies.
const ALTERNATIVE_STALL_TIMEOUT: Duration = Duration::from_millis(20);

/// The stall time of a link through a relay: the relay may have more urgent packets to send.
const RELAY_STALL_TIMEOUT: Duration = Duration::from_millis(500);

/// Time after the last challenge for which its echo counts. Over a satellite, it takes 0.6 s, and more
/// where packets are queued.
const ECHO_WAIT: Duration = Duration::from_secs(3);

/// First pause between PINGs on a silent link that are caused by overdue PINGs. It doubles with each PING, up
/// to 64 ms.
const OVERDUE_PING: Duration = Duration::from_millis(2);

/// Number of packets over which the loss is smoothed. At 5 % loss, three of them are lost.
const LOSS_PACKETS: u64 = 64;
/// Number of samples over which the one-way delay is smoothed, as the round trip is (RFC 9002, section 5.3).
const DELAY_SAMPLES: i32 = 8;

/// Packets sent within this time determine which priority is urgent.
const PRIORITY_MEMORY: Duration = Duration::from_secs(1);

/// An address of a peer that is not validated yet. The peer's packets come from this address, or the peer
/// named it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) radio: RadioId,
    pub(crate) remote: SocketAddr,
    pub(crate) token: u64,
    /// Challenges that may still be sent.
    pub(crate) challenges_left: u8,
    /// When the next challenge may be sent.
    pub(crate) due: Instant,
    /// The local address at which the packets arrive.
    pub(crate) local: Option<IpAddr>,
}

impl Candidate {
    /// Makes a candidate for an address reached by this radio. `local` is the local address at which packets
    /// from there arrive. The first challenge is due at `due`.
    pub(crate) fn new(
        (radio, remote, local): (RadioId, SocketAddr, Option<IpAddr>),
        challenges_left: u8,
        due: Instant,
    ) -> Self {
        Self { radio, remote, token: 0, challenges_left, due, local }
    }

    /// Whether the candidate is the address `remote` on this radio.
    pub(crate) fn leads_to(&self, radio: RadioId, remote: SocketAddr) -> bool {
        (self.radio, self.remote) == (radio, remote)
    }

    /// Whether a challenge is due.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.challenges_left > 0 && self.due <= now
    }

    /// When the next challenge is due. After the last challenge: when no echo is expected any more.
    pub(crate) fn timer(&self) -> Instant {
        if self.challenges_left > 0 { self.due } else { self.due + ECHO_WAIT }
    }
}

#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) id: LinkId,
    pub(crate) peer: PeerId,
    /// The link was removed. A new link may take its place.
    pub(crate) removed: bool,
    pub(crate) radio: RadioId,
    pub(crate) config: LinkConfig,
    pub(crate) remote: Option<Place>,
    /// The relay of a link through a relay; `None` for a direct link.
    pub(crate) via: Option<PeerId>,
    /// Bytes of this link's packets that the relay and the relays after it hold.
    pub(crate) remote_backlog: usize,
    pub(crate) relay_window: RelayWindow,
    /// The link number in our packets to the peer.
    pub(crate) number: u8,
    pub(crate) sent_packets: SentPackets,
    pub(crate) up: bool,
    /// Packets are sent and nothing is acknowledged: the link carries only PINGs and handshakes.
    pub(crate) silent: bool,
    pub(crate) last_received: Option<Instant>,
    /// When a packet with messages was last sent or received.
    pub(crate) last_message: Option<Instant>,
    /// When an ack-eliciting packet was last sent.
    pub(crate) last_ack_eliciting: Instant,
    /// Attempts to reach the peer since the link was last heard.
    pub(crate) reconnect_attempts: u32,
    pub(crate) initiate_now: bool,
    pub(crate) ping_now: bool,
    /// PINGs caused by overdue PINGs since the link fell silent.
    overdue_pings: u32,
    next_overdue_ping: Instant,
    /// The last packet without messages, while it is in the kernel.
    report: Option<PendingReport>,
    pub(crate) local_address: LocalAddress,
    /// Other addresses of the peer, before their validation.
    pub(crate) candidates: Vec<Candidate>,
    pub(crate) address_discovery: AddressDiscovery,
    /// The trial of a direct path that was found and not configured, in addition to a relay.
    pub(crate) trial: Option<Trial>,
    /// The former or the configured address. It is tried in turn with `remote`.
    alternate_remote: Option<Place>,
    /// The address of the last beacon, until a packet confirms an address.
    beacon_remote: Option<Place>,
    /// Paces packets by the peer's reports; `None` if the configuration does not ask for that.
    pub(crate) controller: Option<Box<dyn Controller>>,
    /// Losses and marks that no report to the controller has counted yet.
    unreported_losses: UnreportedLosses,
    pub(crate) headroom: Headroom,
    pub(crate) interleaving: Interleaving,
    /// The lowest priority of recent messages.
    lowest_priority: RecentPriority,
    /// Bytes of our packets in the kernel.
    pub(crate) in_flight: InFlight,
    drained_at: Instant,
    pub(crate) stalled: bool,
    /// The link counts as spent once `stats` counts this many bytes in both directions together.
    pub(crate) allowed_bytes: Option<u64>,
    /// Fraction of the packets that are lost, smoothed.
    pub(crate) loss: f64,
    pub(crate) redundancy_planner: RedundancyPlanner,
    /// One-way delay in microseconds modulo 2^32, smoothed. It includes the unknown offset of the
    /// clocks. The offset is the same for all links to the peer.
    pub(crate) one_way_micros: Option<u32>,
    pub(crate) stats: LinkStats,
}

/// Losses and marks that became known without a report to the controller: by a timer, or by an
/// acknowledgement without the newest packet, such as that of a late packet.
#[derive(Debug, Clone, Copy, Default)]
struct UnreportedLosses {
    lost: u64,
    loss_runs: u64,
    reverted_losses: u64,
    marked: u64,
}

impl UnreportedLosses {
    fn add(&mut self, outcome: &Outcome) {
        self.lost += outcome.lost_packets;
        self.loss_runs += outcome.loss_runs;
        self.reverted_losses += outcome.reverted_losses;
        self.marked += outcome.marked_packets;
    }
}

/// A packet without messages in the kernel.
#[derive(Debug, Clone, Copy)]
struct PendingReport {
    class: Class,
    /// Bytes of its class up to and including the packet.
    bytes_ahead: usize,
}

/// A priority and the time at which it was last sent.
#[derive(Debug, Clone, Copy)]
struct RecentPriority {
    priority: u8,
    at: Instant,
}

impl Link {
    pub(crate) fn new(
        (id, peer): (LinkId, PeerId),
        radio: RadioId,
        number: u8,
        config: LinkConfig,
    ) -> Self {
        let mut sent_packets = SentPackets::new();
        sent_packets.mtu = PathMtu::new(config.ip_bytes(), config.header_bytes);
        Self {
            id,
            peer,
            removed: false,
            radio,
            remote: config.remote.map(Place::Udp),
            via: None,
            remote_backlog: 0,
            relay_window: RelayWindow::default(),
            config,
            number,
            sent_packets,
            up: false,
            silent: false,
            last_received: None,
            last_message: None,
            last_ack_eliciting: Instant::default(),
            reconnect_attempts: 0,
            initiate_now: false,
            ping_now: false,
            overdue_pings: 0,
            next_overdue_ping: Instant::default(),
            report: None,
            local_address: LocalAddress::default(),
            candidates: Vec::new(),
            address_discovery: AddressDiscovery::default(),
            trial: None,
            alternate_remote: None,
            beacon_remote: None,
            controller: None,
            unreported_losses: UnreportedLosses::default(),
            headroom: Headroom::default(),
            interleaving: Interleaving::default(),
            lowest_priority: RecentPriority { priority: u8::MAX, at: Instant::default() },
            in_flight: InFlight::default(),
            drained_at: Instant::default(),
            stalled: false,
            allowed_bytes: None,
            loss: 0.0,
            redundancy_planner: RedundancyPlanner::default(),
            one_way_micros: None,
            stats: LinkStats::default(),
        }
    }

    /// Makes a link that takes over the number of a removed link and continues its packet numbers.
    pub(crate) fn successor(before: &Self, radio: RadioId, config: LinkConfig) -> Self {
        let link = Self::new((before.id, before.peer), radio, before.number, config);
        let mut sent_packets = before.sent_packets.successor(false);
        sent_packets.mtu = link.sent_packets.mtu;
        Self { sent_packets, ..link }
    }

    /// Changes the configuration. A larger packet size is probed first; a smaller one applies
    /// immediately.
    pub(crate) fn set_config(&mut self, config: LinkConfig) {
        self.sent_packets.mtu.set_limit(config.ip_bytes(), config.header_bytes);
        self.config = config;
    }

    /// Forgets what packets showed about the path, because the path has changed.
    pub(crate) fn forget_path(&mut self) {
        if let Some(controller) = &mut self.controller {
            controller.on_interruption();
        }
        self.sent_packets.test_ecn();
        self.sent_packets.mtu.restart();
        self.address_discovery.forget_path();
    }

    /// Adds an address of the peer, in the place of the oldest if there are too many. If the address is
    /// known, its token stays: the echo of an earlier challenge may be on its way.
    pub(crate) fn add_candidate(&mut self, now: Instant, mut candidate: Candidate) {
        let leads = |it: &Candidate| it.leads_to(candidate.radio, candidate.remote);
        let known = self.candidates.iter().position(leads);
        if let Some(known) = known.map(|place| self.candidates.remove(place)) {
            candidate.token = known.token;
            if known.challenges_left == 0 {
                candidate.due = candidate.due.max(known.due).max(now);
            }
        } else if self.candidates.len() == MAX_CANDIDATES {
            self.candidates.remove(0);
        }
        self.candidates.push(candidate);
    }

    /// Handles the peer's question at which address this node sees it. A question from an address to which
    /// the link does not lead is ignored: the peer may be about to move.
    pub(crate) fn on_observe(&mut self, from: Place, own: SocketAddr) {
        if let Place::Udp(address) = from
            && self.remote == Some(from)
        {
            self.address_discovery.on_question(address, own);
        }
    }

    /// Handles the timer of MTU probes. If a probe is not acknowledged, the acknowledgement of a PING will
    /// show whether the probe was lost. If a search is to begin again, polling for packets begins it.
    pub(crate) fn on_probe_timer(&mut self) {
        self.ping_now |= self.up && self.sent_packets.mtu.probe().is_some();
    }

    pub(crate) fn carries_data(&self) -> bool {
        self.is_open() && !self.stalled
    }

    /// Whether the link carries packets of `class`. A stall may concern only a lower class, because
    /// other stations' packets of higher classes keep its packets off the air.
    pub(crate) fn carries_class(&self, class: Class) -> bool {
        self.is_open() && (!self.stalled || self.in_flight.of_class_and_higher(class) == 0)
    }

    /// Whether a packet is overdue, and nothing has been acknowledged since.
    pub(crate) fn is_suspect(&self) -> bool {
        self.sent_packets.consecutive_overdue() > 0
    }

    /// Fraction of the next packets that is expected to be lost. Each overdue acknowledgement in a row
    /// halves the trust in the link: one may be an ordinary loss, three are an outage.
    pub(crate) fn expected_loss(&self) -> f64 {
        1.0 - (1.0 - self.loss) / f64::from(1u32 << self.sent_packets.consecutive_overdue().min(8))
    }

    /// IP bytes sent and received.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.stats.sent_bytes + self.stats.received_bytes
    }

    /// Whether the link's allowance is used up.
    pub(crate) fn is_spent(&self) -> bool {
        self.allowed_bytes.is_some_and(|allowed| self.used_bytes() >= allowed)
    }

    /// Whether packets can be sent, at least of the classes that are not stalled.
    pub(crate) fn is_open(&self) -> bool {
        let is_deferred = self.trial.is_some_and(|it| it.defers_messages());
        self.is_heard() && !is_deferred && self.remote.is_some() && !self.sent_packets.is_full()
    }

    /// Bytes that count against the radio's budget.
    pub(crate) fn counted_in_flight(&self) -> InFlight {
        if self.up && !self.stalled { self.in_flight } else { InFlight::default() }
    }

    /// Whether an overdue packet may cause a PING. On a silent link, PINGs and attempts to reach the peer
    /// become overdue as well: without a growing pause, each would cause another PING.
    pub(crate) fn may_ping_again(&mut self, now: Instant) -> bool {
        if !self.silent {
            self.overdue_pings = 0;
            return true;
        }
        let is_allowed = now >= self.next_overdue_ping;
        if is_allowed {
            self.next_overdue_ping = now + OVERDUE_PING * (1 << self.overdue_pings.min(5));
            self.overdue_pings = self.overdue_pings.saturating_add(1);
        }
        is_allowed
    }

    /// Whether packets arrive and are acknowledged.
    pub(crate) fn is_heard(&self) -> bool {
        self.up && !self.silent
    }

    /// Time without a packet after which the link is down, unless the configuration sets one.
    pub(crate) fn timeout(&self) -> Duration {
        let (smoothed, variation) =
            self.sent_packets.rtt().smoothed_and_variation().unwrap_or_default();
        (TIMEOUT_MIN + smoothed + variation * 4).min(TIMEOUT_MAX)
    }

    /// Alternates between the last and the configured address: a peer that moved may be back.
    pub(crate) fn try_alternate_address(&mut self) {
        if self.alternate_remote.is_none() {
            let configured = self.config.remote.map(Place::Udp);
            self.alternate_remote = configured.filter(|_| self.remote != configured);
        }
        if self.alternate_remote.is_some() {
            std::mem::swap(&mut self.remote, &mut self.alternate_remote);
            self.sent_packets.mtu.restart();
        }
    }

    /// Notes that a packet came from `remote`, so that no other address is tried.
    pub(crate) fn confirm_address(&mut self) {
        (self.alternate_remote, self.beacon_remote) = (None, None);
    }

    /// Tries the address of a beacon, which may be false. The configured or the last address is
    /// still tried in turn.
    pub(crate) fn try_beacon_address(&mut self, remote: Place) {
        if self.remote != Some(remote) {
            let replaces_beacon = self.beacon_remote.is_some() && self.beacon_remote == self.remote;
            if !replaces_beacon || self.alternate_remote.is_none() {
                self.alternate_remote = self.remote;
            }
            let configured = self.config.remote.map(Place::Udp);
            self.alternate_remote = configured.filter(|it| *it != remote).or(self.alternate_remote);
            (self.remote, self.beacon_remote) = (Some(remote), Some(remote));
            self.sent_packets.mtu.restart();
        }
    }

    /// Resets the link for a new session, whose packet numbers begin again.
    pub(crate) fn reset(&mut self) {
        if let Some(controller) = &mut self.controller {
            controller.on_new_session();
        }
        self.unreported_losses = UnreportedLosses::default();
        let mut mtu = self.sent_packets.mtu;
        mtu.on_new_session();
        self.sent_packets =
            if self.via.is_some() { SentPackets::relayed() } else { SentPackets::new() };
        self.sent_packets.mtu = mtu;
        self.up = false;
        self.silent = false;
        self.ping_now = false;
        self.report = None;
        self.candidates.clear();
        self.headroom.forget();
        self.interleaving = Interleaving::default();
        self.remote_backlog = 0;
        self.relay_window = RelayWindow::default();
    }

    /// Records that messages of this priority were sent.
    pub(crate) fn on_messages_sent(&mut self, now: Instant, priority: u8) {
        self.last_message = Some(now);
        self.interleaving.on_sent(now, priority);
        let RecentPriority { priority: lowest, at } = self.lowest_priority;
        if priority <= lowest || now.since(at) > PRIORITY_MEMORY {
            self.lowest_priority = RecentPriority { priority, at: now };
        }
    }

    /// Whether messages of this priority are more urgent than some of those sent recently.
    pub(crate) fn is_urgent(&self, priority: u8) -> bool {
        priority > self.lowest_priority.priority
    }

    pub(crate) fn on_sent(&mut self, now: Instant, class: Class, ip_bytes: usize) {
        if self.in_flight.total() == 0 {
            self.drained_at = now;
        }
        self.in_flight.set(class, self.in_flight.of_class(class).saturating_add(ip_bytes));
        if let Some(controller) = &mut self.controller {
            controller.on_sent(now, ip_bytes, self.sent_packets.outstanding_bytes());
        }
        self.stats.sent_packets += 1;
        self.stats.sent_bytes += ip_bytes as u64;
    }

    /// Counts packets whose outcome is known. `by_timer`: a timer determined the outcome, not an
    /// acknowledgement.
    pub(crate) fn count_losses(&mut self, outcome: &Outcome, by_timer: bool) {
        let Outcome { acked_packets: acked, lost_packets: lost, loss_runs, .. } = *outcome;
        let undone = outcome.reverted_losses;
        for (packets, is_lost) in [(acked, 0.0), (lost, 1.0)] {
            // Of a single outcome, further packets say nothing more about the present loss.
            for _ in 0..packets.min(LOSS_PACKETS) {
                self.loss += (is_lost - self.loss) / LOSS_PACKETS as f64;
            }
        }
        self.loss = (self.loss - undone as f64 / LOSS_PACKETS as f64).max(0.0);
        if let Some(trial) = &mut self.trial {
            trial.on_outcome(acked, lost, self.loss);
        }
        let fills_queue = self.controller.as_ref().is_some_and(|it| it.fills_queue());
        if !fills_queue {
            self.redundancy_planner.on_outcome(acked, lost, loss_runs);
            self.redundancy_planner.on_spurious_losses(undone);
        }
        // Overdue packets are no losses of the path: the link or the path back may be interrupted. On a
        // path with a long round trip, what a timer finds would end the controller's start at the rate
        // of the first few messages.
        if !(outcome.overdue || fills_queue && by_timer) {
            self.unreported_losses.add(outcome);
        }
    }

    /// Declares all outstanding packets lost: the link was interrupted.
    pub(crate) fn mark_all_lost(&mut self) -> Outcome {
        self.unreported_losses = UnreportedLosses::default();
        if let Some(controller) = &mut self.controller {
            controller.on_interruption();
        }
        self.sent_packets.mark_all_lost()
    }

    /// Updates the one-way delay from an acknowledgement, if the packet with the acknowledgement carried the
    /// peer's clock `time`.
    pub(crate) fn measure_delay(
        &mut self,
        now: Instant,
        time: Option<u32>,
        ack: &Ack,
        outcome: &Outcome,
    ) {
        let Some((newest, time)) = outcome.newest.zip(time) else { return };
        if newest.paused && self.one_way_micros.is_some() {
            return;
        }
        let arrival = time.wrapping_sub(ack.delay.as_micros() as u32);
        let sample = arrival.wrapping_sub(now.before(newest.since_sent).wire_micros());
        let before = self.one_way_micros.unwrap_or(sample);
        let change = sample.wrapping_sub(before) as i32 / DELAY_SAMPLES;
        self.one_way_micros = Some(before.wrapping_add(change as u32));
    }

    /// Passes an acknowledgement to the controller, if the packet with the acknowledgement carried
    /// the peer's clock `time`.
    pub(crate) fn report_to_controller(
        &mut self,
        now: Instant,
        time: Option<u32>,
        ack: &Ack,
        outcome: &Outcome,
    ) {
        let newest = outcome.newest.filter(|newest| !newest.paused);
        let inputs = self.controller.as_mut().zip(newest).zip(time);
        let Some(((controller, newest), time)) = inputs else { return };
        // The average time in our own kernel, which the peer's figures include.
        let in_kernel =
            outcome.kernel_time / u32::try_from(outcome.acked_packets).unwrap_or(u32::MAX).max(1);
        let counted = std::mem::take(&mut self.unreported_losses);
        let report = Report {
            arrival_micros: time.wrapping_sub(ack.delay.as_micros() as u32),
            sent_bytes: newest.sent_bytes,
            sent_packets: newest.number,
            acked_packets: outcome.acked_packets,
            lost_packets: counted.lost,
            loss_runs: counted.loss_runs,
            spurious_losses: counted.reverted_losses,
            marked_packets: counted.marked,
            queueing_delay: ack.waited.saturating_sub(in_kernel),
            min_queueing_delay: ack.least_waited.saturating_sub(in_kernel),
            since_sent: newest.since_sent,
            rtt: newest.since_sent.saturating_sub(ack.delay),
            outstanding_bytes: self.sent_packets.outstanding_bytes(),
        };
        controller.on_report(now, &report);
        let limits = self.headroom.limited_by_path && !controller.fills_queue();
        let rate_bps = controller.rate_bps().filter(|_| limits);
        let helps = controller.is_steady()
            && rate_bps.is_some_and(|rate| Interleaving::helps(rate, report.rtt));
        self.interleaving.on_report(now, rate_bps, helps, self.loss);
        controller.set_interleaving(self.interleaving.is_on());
    }

    /// Records that a packet without messages was handed to the kernel. A packet to a relay does
    /// not count: the relay drops it when it is old, and may never report that it was sent.
    pub(crate) fn on_report_sent(&mut self, class: Class) {
        let bytes_ahead = self.in_flight.of_class(class);
        self.report = self.via.is_none().then_some(PendingReport { class, bytes_ahead });
    }

    /// Whether a packet without messages is still in the kernel, as far as is known.
    pub(crate) fn has_pending_report(&self) -> bool {
        self.report.is_some()
    }

    /// Records that the kernel holds `bytes` of a class.
    pub(crate) fn on_in_flight(&mut self, now: Instant, class: Class, bytes: usize) {
        let drained = self.in_flight.of_class(class).saturating_sub(bytes);
        let drains = drained > 0;
        if drains {
            self.drained_at = now;
        }
        self.in_flight.set(class, bytes);
        // Within a class, the kernel sends packets in order. Without this count, any progress would
        // admit another report, and a queue of reports would never shrink.
        if let Some(report) = self.report.as_mut().filter(|report| report.class == class) {
            report.bytes_ahead = report.bytes_ahead.saturating_sub(drained).min(bytes);
        }
        self.report = self.report.filter(|report| report.bytes_ahead > 0);
        self.sent_packets.on_in_flight(now, class, bytes);
        // Through a relay something is always in flight, if only heartbeats.
        if self.in_flight.total() == 0 || drains && self.via.is_some() {
            self.stalled = false;
        }
    }

    /// The time from which the link is stalled if the driver sends none of its packets before.
    /// `has_alternative`: another link can carry its messages.
    pub(crate) fn stall_at(&self, has_alternative: bool) -> Option<Instant> {
        let timeout = match self.via {
            Some(_) => RELAY_STALL_TIMEOUT,
            None if has_alternative => ALTERNATIVE_STALL_TIMEOUT,
            None => STALL_TIMEOUT,
        };
        (self.in_flight.total() > 0 && !self.stalled).then(|| self.drained_at + timeout)
    }
}
