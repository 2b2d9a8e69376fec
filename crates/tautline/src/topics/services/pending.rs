// SPDX-License-Identifier: Apache-2.0
//! Calls to peers that are under way.
//!
//! Calls about the goals of a ROS 2 action have rules of their own:
//!
//! - A request for a result and the cancellation of one goal change nothing if the server receives
//!   them twice. They survive a restart of the peer or of its server: they are sent again.
//! - If no response to a goal arrives, the client learns that the goal is refused. The server may have
//!   accepted the goal all the same, so this node cancels it.
//! - A gateway keeps these calls over a restart of this node. Whether they were sent is unknown: calls
//!   of the first kind are sent again, and a goal is refused once the peer no longer starts it.
//!
//! This holds only between robots with ROS 2, whose requests begin with the id of the goal.

use super::wire::{call_message, is_cancel};
use crate::limits::MAX_PENDING_PER_PEER;
use crate::topics::key::ChannelKey;
use bytes::Bytes;
use std::collections::BTreeMap;
use tautline_gateway::CallId;
use tautline_gateway::action_names::{ActionCall, action_call};
use tautline_gateway::goals::GoalRequest;
use tautline_proto::{Instant, PeerId};

/// First number of the calls that this node makes itself, without a client. Gateways count their
/// calls from 0.
const FIRST_OWN_CALL_ID: CallId = 1 << 63;

/// Whether this node made this call itself, without a client.
pub(super) fn is_own_call(call: CallId) -> bool {
    call >= FIRST_OWN_CALL_ID
}

#[derive(Debug)]
pub(super) struct PendingCall {
    pub(super) service: String,
    pub(super) key: ChannelKey,
    pub(super) created: Instant,
    pub(super) due: Instant,
    /// The call as a message, until it is sent. It waits for the peer to subscribe to calls.
    pub(super) unsent: Option<Bytes>,
    /// Whether it has been sent.
    pub(super) sent: bool,
    /// The goals of an action that the call concerns.
    pub(super) goal_request: Option<GoalRequest>,
}

impl PendingCall {
    pub(super) fn is_repeatable(&self) -> bool {
        matches!(self.goal_request, Some(GoalRequest::Goal(_)))
    }
}

/// The calls of this robot to services of peers.
#[derive(Debug, Default)]
pub(super) struct Calls {
    pub(super) pending: BTreeMap<CallId, PendingCall>,
    /// Calls about goals that wait because their service is gone. They are sent again when the
    /// service returns.
    pub(super) parked: BTreeMap<CallId, PendingCall>,
    /// Number of calls that this node has made itself.
    own_calls: u64,
}

impl Calls {
    /// Returns a number for a call that this node makes itself.
    pub(super) fn next_own_call_id(&mut self) -> CallId {
        self.own_calls += 1;
        FIRST_OWN_CALL_ID + self.own_calls
    }

    /// Returns the time at which the next call times out.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.pending.values().chain(self.parked.values()).map(|pending| pending.due).min()
    }

    /// Removes the calls that have timed out, and returns them.
    pub(super) fn take_expired(&mut self, now: Instant) -> Vec<(CallId, PendingCall)> {
        let is_late = |_: &CallId, it: &mut PendingCall| it.due <= now;
        let late = self.pending.extract_if(.., is_late);
        late.chain(self.parked.extract_if(.., is_late)).collect()
    }

    pub(super) fn pending_count_at(&self, peer: PeerId) -> usize {
        let others = self.pending.values().filter(|it| !is_cancel(&it.service));
        others.filter(|it| it.key.peer == peer).count()
    }

    pub(super) fn pending_count_of(&self, service: ChannelKey) -> usize {
        self.pending.values().filter(|it| it.key == service).count()
    }

    /// Prepares the selected calls to be sent again, if they may be repeated.
    pub(super) fn queue_resend(&mut self, which: impl Fn(&PendingCall) -> bool) {
        for (call, pending) in self.pending.iter_mut().filter(|(_, it)| which(it)) {
            if let Some(GoalRequest::Goal(request)) = &pending.goal_request {
                pending.unsent = Some(call_message(*call, request));
            }
        }
    }

    /// Parks the repeatable calls of a service that has gone.
    pub(super) fn park(&mut self, key: ChannelKey) {
        self.queue_resend(|pending| pending.key == key);
        let mut room = self.room_to_park(key.peer);
        let fits = |_: &CallId, it: &mut PendingCall| {
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

    /// Parks a failed request for a result, to send it again, because such a request cannot be
    /// refused. Returns `failed` if it is another call, or if too many are parked.
    pub(super) fn park_failed(
        &mut self,
        call: CallId,
        mut failed: PendingCall,
    ) -> Option<PendingCall> {
        let is_result = action_call(&failed.service) == Some(ActionCall::GetResult);
        match &failed.goal_request {
            Some(GoalRequest::Goal(request))
                if is_result && self.room_to_park(failed.key.peer) > 0 =>
            {
                failed.unsent = Some(call_message(call, request));
                self.parked.insert(call, failed);
                None
            }
            _ => Some(failed),
        }
    }

    /// Moves the parked calls of a service that the peer serves again to its channel `key`.
    pub(super) fn unpark(&mut self, name: &str, key: ChannelKey) {
        let returning = |_: &CallId, it: &mut PendingCall| {
            let returns = it.key.peer == key.peer && it.service == name;
            if returns {
                it.key = key;
            }
            returns
        };
        self.pending.extend(self.parked.extract_if(.., returning));
    }
}
