// SPDX-License-Identifier: Apache-2.0
//! Calls about the goals of a ROS 2 action.
//!
//! - A request for a result and the cancellation of one goal change nothing if the server receives
//!   them twice. They survive a restart of the peer or of its server: they are sent again.
//! - A goal is refused to its client if no response to it arrives. Its server may have accepted it all
//!   the same, so that this node then cancels it.
//! - A gateway keeps these calls over a restart of this node. Whether they were sent is unknown: the
//!   first kind is sent (again), and a goal is refused once the peer no longer starts it.
//!
//! Only between robots with ROS 2, whose requests begin with the id of the goal.

use super::calls::{Pending, call_message};
use super::{ChannelKey, Services};
use crate::limits::{MAX_PENDING_PER_PEER, MAX_PENDING_PER_SERVICE};
use crate::topics::Topics;
use crate::treatment::services::RESULT_TIMEOUT;
use bytes::Bytes;
use std::collections::BTreeSet;
use tautline_gateway::CallId;
use tautline_gateway::action_names::{ActionCall, action_call, action_of, cancel_service};
use tautline_gateway::goals::{About, about};
use tautline_proto::{Instant, PeerId};

/// Number from which calls are numbered that no client made; gateways count theirs from 0.
const OWN_CALLS: CallId = 1 << 63;

/// Whether no client made this call.
pub(super) fn is_own(call: CallId) -> bool {
    call >= OWN_CALLS
}

impl Pending {
    pub(super) fn is_repeatable(&self) -> bool {
        matches!(self.about, Some(About::Goal(_)))
    }
}

impl Services {
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

    fn room_to_park(&self, peer: PeerId) -> usize {
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

impl Topics {
    /// Sends the kept calls of services that peers serve.
    pub(super) fn retry_parked(&mut self, now: Instant) {
        let Services { parked, served, .. } = &self.services;
        let names: BTreeSet<&String> = parked.values().map(|it| &it.service).collect();
        let found = names.into_iter().filter_map(|name| Some((name.clone(), *served.get(name)?)));
        for (name, key) in found.collect::<Vec<_>>() {
            self.services.unpark(&name, key);
            self.send_calls(now, key);
        }
    }

    /// Cancels a goal that its client believes to be refused: its server may have accepted it.
    pub(super) fn give_up_goal(&mut self, now: Instant, call: &Pending) {
        let (Some(About::NewGoal(goal)), true) = (&call.about, call.sent) else { return };
        let Some(action) = action_of(&call.service) else { return };
        let service = cancel_service(action);
        // Also one that the peer has not advertised again yet in its new session.
        let mut remote = self.services.remote.iter();
        let found =
            remote.find(|(key, it)| key.peer == call.key.peer && it.service.name == service);
        let Some(key) = found.map(|(key, _)| *key) else { return };
        if self.services.pending_of(key) >= MAX_PENDING_PER_SERVICE {
            let text = format!("a goal of {action} that was given up is not cancelled: too many");
            return self.peer_notice(now, key.peer, &text);
        }
        self.services.own_calls += 1;
        let number = OWN_CALLS + self.services.own_calls;
        // No time: that one goal, whenever it was accepted (action_msgs/srv/CancelGoal).
        let request = Bytes::from([&goal[..], &[0; 8]].concat());
        let about = about(&service, &request);
        let unsent = Some(call_message(number, &request));
        let due = now + RESULT_TIMEOUT;
        let cancel = Pending { service, key, made: now, due, unsent, sent: false, about };
        self.services.pending.insert(number, cancel);
        self.send_calls(now, key);
    }
}
