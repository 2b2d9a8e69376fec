// SPDX-License-Identifier: Apache-2.0
//! One path to a peer: its packet numbers, its losses, and whether it is up.

use crate::config::LinkConfig;
use crate::endpoint::{PeerId, RadioId};
use crate::reliable::Ledger;
use crate::stats::LinkStats;
use crate::time::{Duration, Instant};
use std::net::SocketAddr;

/// First wait for an answer to a hello; doubled up to [`HELLO_MAX`].
const HELLO_MIN: Duration = Duration::from_millis(200);
/// Longest wait between hellos.
const HELLO_MAX: Duration = Duration::from_secs(1);
/// A packet that the driver has not taken for so long holds up only its own
/// link: an unresolved neighbour, not a busy radio (at 1 Mbps two full packets take 24 ms).
pub(crate) const STALL: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) peer: PeerId,
    pub(crate) radio: RadioId,
    pub(crate) config: LinkConfig,
    pub(crate) remote: Option<SocketAddr>,
    /// Its number in our packets to the peer.
    pub(crate) number: u8,
    pub(crate) ledger: Ledger,
    pub(crate) up: bool,
    /// Packets leave and nothing comes back: it carries pings only, until one is answered.
    pub(crate) silent: bool,
    pub(crate) last_received: Option<Instant>,
    /// When something that asks for an acknowledgement was last sent.
    pub(crate) last_eliciting: Instant,
    hello_wait: Duration,
    /// A hello has to leave, whatever the timer says.
    pub(crate) hello_now: bool,
    pub(crate) ping_now: bool,
    /// Bytes of our packets in the kernel.
    pub(crate) in_flight: usize,
    drained_at: Instant,
    pub(crate) stalled: bool,
    pub(crate) stats: LinkStats,
}

impl Link {
    pub(crate) fn new(peer: PeerId, radio: RadioId, number: u8, config: LinkConfig) -> Self {
        Self {
            peer,
            radio,
            remote: config.remote,
            config,
            number,
            ledger: Ledger::new(),
            up: false,
            silent: false,
            last_received: None,
            last_eliciting: Instant::default(),
            hello_wait: HELLO_MIN,
            hello_now: false,
            ping_now: false,
            in_flight: 0,
            drained_at: Instant::default(),
            stalled: false,
            stats: LinkStats::default(),
        }
    }

    pub(crate) fn carries_data(&self) -> bool {
        self.up && !self.silent && !self.stalled && self.remote.is_some() && !self.ledger.is_full()
    }

    /// Bytes that count against the radio's budget.
    pub(crate) fn counted_in_flight(&self) -> usize {
        if self.up && !self.stalled { self.in_flight } else { 0 }
    }

    /// The wait until the next hello, longer each time.
    pub(crate) fn next_hello_wait(&mut self) -> Duration {
        let wait = self.hello_wait;
        self.hello_wait = (wait * 2).min(HELLO_MAX);
        wait
    }

    /// The next time it has to be found again, that starts with short waits.
    pub(crate) fn greet_afresh(&mut self) {
        self.hello_wait = HELLO_MIN;
    }

    /// Forgets all packet numbers, for a new session.
    pub(crate) fn reset(&mut self) {
        self.ledger = Ledger::new();
        self.up = false;
        self.silent = false;
        self.ping_now = false;
        self.greet_afresh();
    }

    pub(crate) fn on_sent(&mut self, now: Instant, ip_bytes: usize) {
        if self.in_flight == 0 {
            self.drained_at = now;
        }
        self.in_flight += ip_bytes;
        self.stats.sent_packets += 1;
        self.stats.sent_bytes += ip_bytes as u64;
    }

    /// What the driver still holds, as the kernel says.
    pub(crate) fn on_in_flight(&mut self, now: Instant, bytes: usize) {
        if bytes < self.in_flight {
            self.drained_at = now;
        }
        self.in_flight = bytes;
        self.ledger.on_in_flight(now, bytes);
        if bytes == 0 {
            self.stalled = false;
        }
    }

    /// When the link counts as stalled if nothing leaves until then.
    pub(crate) fn stall_at(&self) -> Option<Instant> {
        (self.in_flight > 0 && !self.stalled).then(|| self.drained_at + STALL)
    }
}
