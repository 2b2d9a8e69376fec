// SPDX-License-Identifier: Apache-2.0
//! Direct paths between two nodes behind address translators that have a relay in common.
//!
//! Each of the two nodes learns from the relay at which address the relay sees it. The nodes exchange these
//! addresses end to end through the relay. Then each sends a CHALLENGE to the other at the same time: the
//! outgoing packet opens the translator for incoming ones. Without a direct path, packets continue through
//! the relay. This is a small part of RFC 8445 (ICE), with the simultaneous start of RFC 5128, section 3.3.

use crate::bucket::Bucket;
use crate::endpoint::context::Context;
use crate::endpoint::events::NoPath;
use crate::endpoint::timer::Timer;
use crate::ids::{LinkId, PeerId};
use crate::limits;
use crate::path::links::Links;
use crate::path::trial::Trial;
use crate::time::{Duration, Instant};
use crate::wire::address::Candidates;
use std::net::SocketAddr;

/// Time from the first sign of the peer through the relay to the first attempt: by then the relay has
/// reported the address at which it sees this node.
const FIRST_ATTEMPT: Duration = Duration::from_millis(300);
/// Time from the first attempt to the second. It doubles after each attempt.
const MIN_INTERVAL: Duration = Duration::from_secs(1);
/// Longest time between attempts. An attempt takes about 2 kB of IP in both directions: 9 MB in 30
/// days at this interval.
const MAX_INTERVAL: Duration = Duration::from_secs(600);
/// Time for which an answer to a CANDIDATES frame is accepted.
const ANSWER_WAIT: Duration = Duration::from_secs(5);
/// Number of challenges to each address, 100 ms apart. The ends start less than half a second
/// apart, even over a satellite.
pub(crate) const CHALLENGES: u8 = 6;
/// A notice is emitted with this attempt, which begins after 15 s.
const NOTICE_AFTER_ATTEMPTS: u32 = 5;
/// A direct path that was up for longer counts as stable. The search after its end begins with short
/// intervals again.
const STABLE_PATH_TIME: Duration = Duration::from_secs(30);
/// Time without a packet after which the address of a direct path is given up: it may be a stranger's.
const GIVE_UP_TIME: Duration = Duration::from_secs(30);

/// When a node seeks a direct path to a peer that it reaches through a relay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DirectPath {
    /// Only if an address translator is on this node's path to the relay, or on the peer's. Without a
    /// translator, a configured address would suffice, and a radio network has relays because its radios do
    /// not reach further.
    IfTranslated,
    /// Always.
    Always,
}

/// The search for a direct path to one peer.
#[derive(Debug)]
pub(crate) struct Rendezvous {
    peer: PeerId,
    /// The link to which a direct path belongs, and when to seek a direct path; `None`: never.
    link: Option<(LinkId, DirectPath)>,
    /// Attempts of this search.
    attempts: u32,
    /// Since when the direct path is up.
    up_since: Option<Instant>,
    /// The CANDIDATES frame that is to be sent.
    frame: Option<FrameKind>,
    /// The time until which an answer is accepted.
    awaited_until: Option<Instant>,
    /// Whether the peer has named addresses.
    is_answered: bool,
    /// Whether the relay sees the peer at the same IP address as this node.
    is_same_address: bool,
    /// Whether there was a direct path earlier.
    had_path: bool,
    /// When the challenges to the peer's addresses begin.
    challenges_start: Instant,
    /// Limit of CANDIDATES frames from the peer.
    received: Bucket,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FrameKind {
    Question,
    Answer,
}

impl Rendezvous {
    pub(crate) fn new() -> Self {
        Self {
            peer: PeerId(u32::MAX),
            link: None,
            attempts: 0,
            up_since: None,
            frame: None,
            awaited_until: None,
            is_answered: false,
            is_same_address: false,
            had_path: false,
            challenges_start: Instant::default(),
            received: Bucket::new(limits::CANDIDATES),
        }
    }

    /// Ends the search if it was for this link, which is removed.
    pub(crate) fn forget(&mut self, id: LinkId) {
        self.link = self.link.filter(|(link, _)| *link != id);
    }

    /// Whether a direct path is sought at all.
    pub(crate) fn is_enabled(&self) -> bool {
        self.link.is_some()
    }

    /// The link to which a direct path belongs, and when to seek a direct path.
    pub(crate) fn link(&self) -> Option<(LinkId, DirectPath)> {
        self.link
    }

    /// Whether a direct path that is found belongs to this link.
    pub(crate) fn is_for(&self, id: LinkId) -> bool {
        self.link.is_some_and(|(link, _)| link == id)
    }

    /// Whether this end does not seek a direct path by this link until it knows of an address translator.
    pub(crate) fn awaits_translator(&self, id: LinkId) -> bool {
        self.link == Some((id, DirectPath::IfTranslated))
    }

    /// When challenges to an address of the peer begin.
    pub(crate) fn challenges_start(&self, now: Instant) -> Instant {
        self.challenges_start.max(now)
    }

    pub(crate) fn has_frame(&self) -> bool {
        self.frame.is_some()
    }

    /// Takes the CANDIDATES frame that is to be sent, with these addresses.
    pub(crate) fn take_frame(&mut self, addresses: Vec<SocketAddr>) -> Option<Candidates> {
        let kind = self.frame.take()?;
        Some(Candidates { is_answer: kind == FrameKind::Answer, addresses })
    }

    /// Time from now until the next attempt.
    pub(crate) fn attempt_interval(&self) -> Duration {
        match self.attempts.checked_sub(1) {
            None => FIRST_ATTEMPT,
            Some(doublings) => (MIN_INTERVAL * (1 << doublings.min(16))).min(MAX_INTERVAL),
        }
    }

    /// Begins an attempt. If the earlier attempts found no path and a notice is due, returns the cause for
    /// the notice.
    pub(crate) fn begin_attempt(&mut self, now: Instant) -> Option<NoPath> {
        self.frame = Some(FrameKind::Question);
        self.awaited_until = Some(now + ANSWER_WAIT);
        self.attempts = self.attempts.saturating_add(1);
        let is_noticed = self.attempts == NOTICE_AFTER_ATTEMPTS && self.is_answered;
        let cause = match (self.had_path, self.is_same_address) {
            (true, _) => NoPath::Ended,
            (false, true) => NoPath::SameAddress,
            (false, false) => NoPath::Closed,
        };
        is_noticed.then_some(cause)
    }

    /// Handles addresses of the peer. Returns whether they are accepted.
    /// `one_way`: the delay of the path to the peer.
    /// `has_room`: the event queue has room for the addresses.
    pub(crate) fn accept(
        &mut self,
        now: Instant,
        frame: &Candidates,
        own: &[SocketAddr],
        (one_way, has_room): (Duration, bool),
    ) -> bool {
        let admits = match frame.is_answer {
            true => self.awaited_until.take().is_some_and(|until| now <= until),
            false => self.received.take(now),
        };
        if !admits || !has_room {
            return false;
        }
        self.is_answered = true;
        // Private addresses may be equal in two homes. Only the first address counts: it is the one
        // that a relay sees.
        let first = own.first().zip(frame.addresses.first());
        self.is_same_address = first.is_some_and(|(own, it)| own.ip() == it.ip());
        if frame.is_answer {
            self.challenges_start = now;
        } else {
            self.frame = Some(FrameKind::Answer);
            // The peer begins when it has the answer.
            self.challenges_start = now + one_way;
        }
        true
    }
}

/// The link that a direct path belongs to, among the links of the peer.
impl Rendezvous {
    /// Sets the peer of the search.
    pub(crate) fn assign_id(&mut self, peer: PeerId) {
        self.peer = peer;
    }

    /// Sets when to seek a direct path by a link. `None`: never.
    pub(crate) fn set(
        &mut self,
        cx: &mut Context,
        now: Instant,
        links: &mut Links,
        (id, when): (LinkId, Option<DirectPath>),
    ) {
        let path = when.map(|when| (id, when));
        if std::mem::replace(&mut self.link, path) == path {
            return;
        }
        links[id].trial = when.map(|_| Trial::new());
        self.restart_search(cx, now);
        self.update_trial(links);
    }

    /// Whether a direct path was found, but is down and has not been heard for long, while a relay leads to
    /// the peer.
    pub(crate) fn is_given_up(&self, now: Instant, links: &Links, id: LinkId) -> bool {
        let link = &links[id];
        let is_old = link.last_received.is_none_or(|at| now.since(at) > GIVE_UP_TIME);
        let is_lost = link.remote.is_some() && !link.up && is_old;
        self.is_for(id) && is_lost && links.relayed_link().is_some()
    }

    /// Handles a link that is no longer silent.
    pub(crate) fn on_link_heard(&self, now: Instant, links: &mut Links, id: LinkId) {
        let link = &mut links[id];
        link.stats.resume(now);
        if link.trial.is_some() {
            // Losses of the interruption do not count for the path that works now.
            link.loss = 0.0;
        }
        self.update_trial(links);
    }

    /// Handles a link that came up.
    pub(crate) fn on_link_up(
        &mut self,
        cx: &mut Context,
        now: Instant,
        links: &mut Links,
        id: LinkId,
    ) {
        if self.is_for(id) {
            (self.up_since, self.had_path) = (Some(now), true);
        } else if links[id].via.is_some() {
            self.schedule_attempt(cx, now);
        }
        self.on_link_heard(now, links, id);
    }

    /// Handles a link that went down or fell silent.
    pub(crate) fn on_link_lost(
        &mut self,
        cx: &mut Context,
        now: Instant,
        links: &mut Links,
        id: LinkId,
    ) {
        if let Some(trial) = &mut links[id].trial {
            trial.restart();
        }
        self.update_trial(links);
        if !self.is_for(id) || links[id].up {
            return;
        }
        // A path that does not last is sought less and less often.
        if self.up_since.take().is_some_and(|since| now.since(since) > STABLE_PATH_TIME) {
            self.attempts = 0;
        }
        self.schedule_attempt(cx, now);
    }

    /// Updates the trials of links, because relays may have begun or ceased to carry messages to
    /// the peer.
    fn update_trial(&self, links: &mut Links) {
        let has_relay = links.relayed_link().is_some();
        if let Some((id, _)) = self.link
            && let Some(trial) = &mut links[id].trial
        {
            trial.has_relay = has_relay;
        }
    }

    /// Begins the search for a direct path.
    pub(crate) fn restart_search(&mut self, cx: &mut Context, now: Instant) {
        self.attempts = 0;
        self.schedule_attempt(cx, now);
    }

    /// Continues to seek a direct path.
    fn schedule_attempt(&self, cx: &mut Context, now: Instant) {
        if self.link.is_some() {
            cx.timers.bring_forward(Timer::Rendezvous(self.peer), now + self.attempt_interval());
        }
    }
}
