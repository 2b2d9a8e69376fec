// SPDX-License-Identifier: Apache-2.0
//! Calls about the goals of a ROS 2 action.
//!
//! - A request for a result and the cancellation of one goal change nothing if the server receives
//!   them twice. They survive a restart of the peer or of its server: they are sent again.
//! - A goal is refused to its client if no response to it arrives. Its server may have accepted it all
//!   the same, so that this node then cancels it.
//!
//! Only between robots with ROS 2, whose requests begin with the id of the goal.

use super::calls::{Pending, call_message};
use super::{ChannelKey, Services};
use crate::limits::{MAX_PENDING_PER_PEER, MAX_PENDING_PER_SERVICE};
use crate::topics::Topics;
use bytes::Bytes;
use tautline_gateway::CallId;
use tautline_gateway::mapping::{
    ActionCall, RESULT_TIMEOUT, action_call, action_of, cancel_service,
};
use tautline_proto::Instant;

/// Number from which calls are numbered that no client made; gateways count theirs from 0.
const OWN_CALLS: CallId = 1 << 63;
/// Bytes of a request's encapsulation and of the goal's id behind it (unique_identifier_msgs/UUID).
const ENCAPSULATION: usize = 4;
const ID: usize = 16;
/// Largest request that is kept to be sent again, in bytes. Those of ROS 2 have 20 and 28.
const MAX_KEPT: usize = 64;

/// The goals that a call concerns.
#[derive(Debug)]
pub(super) enum About {
    Nothing,
    /// It starts this goal. The encapsulation and the id.
    NewGoal(Bytes),
    /// It asks for the result of a goal, or cancels it: the message, to send it again.
    Goal(Bytes),
}

impl About {
    /// What call number `call` of a service concerns.
    pub(super) fn of(service: &str, call: CallId, request: &Bytes) -> Self {
        let Some(goal) = request.get(ENCAPSULATION..ENCAPSULATION + ID) else {
            return Self::Nothing;
        };
        // Sent again, a cancellation of several goals would end later ones as well.
        let is_one = goal.iter().any(|byte| *byte != 0);
        match action_call(service) {
            Some(ActionCall::SendGoal) => {
                Self::NewGoal(Bytes::copy_from_slice(&request[..ENCAPSULATION + ID]))
            }
            Some(ActionCall::CancelGoal | ActionCall::GetResult)
                if is_one && request.len() <= MAX_KEPT =>
            {
                Self::Goal(call_message(call, request))
            }
            _ => Self::Nothing,
        }
    }
}

/// Whether no client made this call.
pub(super) fn is_own(call: CallId) -> bool {
    call >= OWN_CALLS
}

impl Pending {
    pub(super) fn is_repeatable(&self) -> bool {
        matches!(self.about, About::Goal(_))
    }
}

impl Services {
    /// Makes calls that may be repeated ready to be sent again.
    pub(super) fn prepare_again(&mut self, which: impl Fn(&Pending) -> bool) {
        for pending in self.pending.values_mut().filter(|it| which(it)) {
            if let About::Goal(message) = &pending.about {
                pending.unsent = Some(message.clone());
            }
        }
    }

    /// Keeps the repeatable calls of a service that has gone.
    pub(super) fn park(&mut self, key: ChannelKey) {
        self.prepare_again(|pending| pending.key == key);
        let kept = self.parked.values().filter(|it| it.key.peer == key.peer).count();
        let mut room = MAX_PENDING_PER_PEER.saturating_sub(kept);
        let fits = |_: &CallId, it: &mut Pending| {
            let fits = it.key == key && it.is_repeatable() && room > 0;
            room -= usize::from(fits);
            fits
        };
        self.parked.extend(self.pending.extract_if(.., fits));
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
    /// Cancels a goal that its client believes to be refused: its server may have accepted it.
    pub(super) fn give_up_goal(&mut self, now: Instant, call: &Pending) {
        let (About::NewGoal(goal), true) = (&call.about, call.sent) else { return };
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
        let about = About::of(&service, number, &request);
        let unsent = Some(call_message(number, &request));
        let due = now + RESULT_TIMEOUT;
        let cancel = Pending { service, key, due, unsent, sent: false, about };
        self.services.pending.insert(number, cancel);
        self.send_calls(now, key);
    }
}
