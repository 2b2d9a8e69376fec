// SPDX-License-Identifier: Apache-2.0
//! Calls to peers that are under way.
//!
//! Those about the goals of a ROS 2 action have their own rules:
//!
//! - A request for a result and the cancellation of one goal change nothing if the server receives
//!   them twice. They survive a restart of the peer or of its server: they are sent again.
//! - A goal is refused to its client if no response to it arrives. Its server may have accepted it all
//!   the same, so that this node then cancels it.
//! - A gateway keeps these calls over a restart of this node. Whether they were sent is unknown: the
//!   first kind is sent (again), and a goal is refused once the peer no longer starts it.
//!
//! Only between robots with ROS 2, whose requests begin with the id of the goal.

use super::wire::{call_message, is_cancel};
use crate::limits::MAX_PENDING_PER_PEER;
use crate::topics::key::ChannelKey;
use bytes::Bytes;
use std::collections::BTreeMap;
use tautline_gateway::CallId;
use tautline_gateway::action_names::{ActionCall, action_call};
use tautline_gateway::goals::About;
use tautline_proto::{Instant, PeerId};

/// Number from which calls are numbered that no client made; gateways count theirs from 0.
const OWN_CALLS: CallId = 1 << 63;

/// Whether no client made this call.
pub(super) fn is_own(call: CallId) -> bool {
    call >= OWN_CALLS
}

#[derive(Debug)]
pub(super) struct Pending {
    pub(super) service: String,
    pub(super) key: ChannelKey,
    pub(super) made: Instant,
    pub(super) due: Instant,
    /// The call, until it is sent; the peer is about to subscribe to it.
    pub(super) unsent: Option<Bytes>,
    /// Whether it has been sent.
    pub(super) sent: bool,
    /// The goals of an action that it concerns.
    pub(super) about: Option<About>,
}

impl Pending {
    pub(super) fn is_repeatable(&self) -> bool {
        matches!(self.about, Some(About::Goal(_)))
    }
}

/// The calls of this robot to services of peers.
#[derive(Debug, Default)]
pub(super) struct Calls {
    pub(super) pending: BTreeMap<CallId, Pending>,
    /// Calls about goals whose service is away; they are sent again when it returns.
    pub(super) parked: BTreeMap<CallId, Pending>,
    /// Calls so far that no client made.
    own_calls: u64,
}

impl Calls {
    /// Returns the number of a call that no client makes.
    pub(super) fn next_own(&mut self) -> CallId {
        self.own_calls += 1;
        OWN_CALLS + self.own_calls
    }

    /// Returns the time at which the next call times out.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.pending.values().chain(self.parked.values()).map(|pending| pending.due).min()
    }

    /// Removes the calls that have timed out, and returns them.
    pub(super) fn take_late(&mut self, now: Instant) -> Vec<(CallId, Pending)> {
        let is_late = |_: &CallId, it: &mut Pending| it.due <= now;
        let late = self.pending.extract_if(.., is_late);
        late.chain(self.parked.extract_if(.., is_late)).collect()
    }

    pub(super) fn pending_at(&self, peer: PeerId) -> usize {
        let others = self.pending.values().filter(|it| !is_cancel(&it.service));
        others.filter(|it| it.key.peer == peer).count()
    }

    pub(super) fn pending_of(&self, service: ChannelKey) -> usize {
        self.pending.values().filter(|it| it.key == service).count()
    }

    /// Makes calls that may be repeated ready to be sent again.
    pub(super) fn prepare_again(&mut self, which: impl Fn(&Pending) -> bool) {
        for (call, pending) in self.pending.iter_mut().filter(|(_, it)| which(it)) {
            if let Some(About::Goal(request)) = &pending.about {
                pending.unsent = Some(call_message(*call, request));
            }
        }
    }

    /// Keeps the repeatable calls of a service that has gone.
    pub(super) fn park(&mut self, key: ChannelKey) {
        self.prepare_again(|pending| pending.key == key);
        let mut room = self.room_to_park(key.peer);
        let fits = |_: &CallId, it: &mut Pending| {
            let fits = it.key == key && it.is_repeatable() && room > 0;
            room -= usize::from(fits);
            fits
        };
        self.parked.extend(self.pending.extract_if(.., fits));
    }

    pub(super) fn room_to_park(&self, peer: PeerId) -> usize {
        let kept = self.parked.values().filter(|it| it.key.peer == peer).count();
        MAX_PENDING_PER_PEER.saturating_sub(kept)
    }

    /// Keeps a request for a result that failed, to send it again: it cannot be refused.
    /// Returns another call.
    pub(super) fn park_failed(&mut self, call: CallId, mut failed: Pending) -> Option<Pending> {
        let is_result = action_call(&failed.service) == Some(ActionCall::GetResult);
        match &failed.about {
            Some(About::Goal(request)) if is_result && self.room_to_park(failed.key.peer) > 0 => {
                failed.unsent = Some(call_message(call, request));
                self.parked.insert(call, failed);
                None
            }
            _ => Some(failed),
        }
    }

    /// The peer serves a service again: its kept calls wait for the channel `key`.
    pub(super) fn unpark(&mut self, name: &str, key: ChannelKey) {
        let returning = |_: &CallId, it: &mut Pending| {
            let returns = it.key.peer == key.peer && it.service == name;
            if returns {
                it.key = key;
            }
            returns
        };
        self.pending.extend(self.parked.extract_if(.., returning));
    }
}
