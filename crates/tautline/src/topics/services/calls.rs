// SPDX-License-Identifier: Apache-2.0
//! The calls of local clients to services of peers.

use super::pending::{PendingCall, is_own_call};
use super::remote::RemoteServices;
use super::wire::{self, ParsedMessage, call_message, is_cancel, message};
use crate::codec::job::{ForeignCall, Job};
use crate::limits::{MAX_PENDING_PER_PEER, MAX_PENDING_PER_SERVICE};
use crate::topics::context::Context;
use crate::topics::key::ChannelKey;
use crate::treatment::services::RESULT_TIMEOUT;
use bytes::Bytes;
use std::collections::BTreeSet;
use tautline_gateway::action_names::{action_of, cancel_service};
use tautline_gateway::goals::{GoalRequest, goal_request};
use tautline_gateway::{CallId, Command, Outcome};
use tautline_proto::{Instant, PeerId, SendError};

impl RemoteServices {
    /// Handles a call of a local client to a peer's service.
    pub(crate) fn on_call(
        &mut self,
        cx: &mut Context<'_>,
        service: String,
        call: CallId,
        request: &Bytes,
    ) {
        let now = cx.now;
        let key = match self.callable_channel(cx, &service) {
            Ok(key) => key,
            Err(reason) => return self.answer_caller(cx, service, call, Err(reason)),
        };
        let remote = &self.services[&key];
        let due = now + remote.timeout;
        let (goal_request, unsent) = match remote.translation.translator() {
            Some(translator) => {
                cx.submit_job(Job::TranslateCall(ForeignCall {
                    peer: key.peer,
                    service: service.clone(),
                    call,
                    payload: request.clone(),
                    translator,
                    is_response: false,
                }));
                (None, None)
            }
            None => (goal_request(&service, request), Some(call_message(call, request))),
        };
        self.calls.pending.insert(
            call,
            PendingCall { service, key, created: now, due, unsent, sent: false, goal_request },
        );
        self.send_calls(cx, key);
    }

    /// Returns the channel of a peer's service that can be called, or the reason why it cannot.
    fn callable_channel(&self, cx: &Context<'_>, service: &str) -> Result<ChannelKey, String> {
        let Some(key) = self.served.get(service).copied() else {
            return Err(format!("no peer serves {service}"));
        };
        if !is_cancel(service) && self.calls.pending_count_at(key.peer) >= MAX_PENDING_PER_PEER {
            let peer = cx.peers.name(key.peer);
            return Err(format!("{MAX_PENDING_PER_PEER} calls to '{peer}' are under way already"));
        }
        if self.calls.pending_count_of(key) >= MAX_PENDING_PER_SERVICE {
            let text =
                format!("{MAX_PENDING_PER_SERVICE} calls of {service} are under way already");
            return Err(text);
        }
        self.services[&key].refusal_reason.clone().map_or(Ok(key), Err)
    }

    /// Handles a call that a local client made before a restart of this node. If it would start a
    /// goal, the goal is refused once the peer can no longer start it.
    pub(crate) fn on_interrupted(
        &mut self,
        cx: &mut Context<'_>,
        service: String,
        call: CallId,
        request: &Bytes,
    ) {
        let now = cx.now;
        let goal_request = goal_request(&service, request);
        if let Some(GoalRequest::Goal(_)) = goal_request {
            return self.on_call(cx, service, call, request);
        }
        let restarted = || format!("'{}' has restarted", cx.endpoint.name());
        let goal =
            goal_request.filter(|it| matches!(it, GoalRequest::NewGoal(_))).ok_or_else(restarted);
        match goal.and_then(|goal| Ok((goal, self.callable_channel(cx, &service)?))) {
            Ok((goal, key)) => {
                let due = now + self.services[&key].timeout;
                let goal_request = Some(goal);
                let pending = PendingCall {
                    service,
                    key,
                    created: now,
                    due,
                    unsent: None,
                    sent: true,
                    goal_request,
                };
                self.calls.pending.insert(call, pending);
            }
            Err(reason) => self.answer_caller(cx, service, call, Err(reason)),
        }
    }

    /// Sends the queued calls of a service. If the peer does not take calls, they stay queued.
    pub(super) fn send_calls(&mut self, cx: &mut Context<'_>, key: ChannelKey) {
        let now = cx.now;
        let Some(channel) = self.services.get(&key).and_then(|it| it.call_channel) else { return };
        let mut failed = Vec::new();
        for (call, pending) in self.calls.pending.iter_mut().filter(|(_, it)| it.key == key) {
            let Some(payload) = pending.unsent.take() else { continue };
            match cx.endpoint.peer_mut(key.peer).send(now, channel, message(now, payload.clone())) {
                Ok(()) => pending.sent = true,
                Err(SendError::NotWanted) => pending.unsent = Some(payload),
                Err(error) => failed.push((*call, error.to_string())),
            }
        }
        for (call, reason) in failed {
            if let Some(pending) = self.calls.pending.remove(&call) {
                self.fail_call(cx, call, pending, reason);
            }
        }
    }

    /// Takes a translated call to a peer, or a translated response for its caller.
    pub(crate) fn on_call_translated(
        &mut self,
        cx: &mut Context<'_>,
        service: String,
        call: CallId,
        outcome: Outcome,
        is_response: bool,
    ) {
        match outcome {
            Ok(request) if !is_response => {
                let Some(pending) = self.calls.pending.get_mut(&call) else { return };
                pending.unsent = Some(call_message(call, &request));
                let key = pending.key;
                self.send_calls(cx, key);
            }
            outcome => {
                self.calls.pending.remove(&call);
                self.answer_caller(cx, service, call, outcome);
            }
        }
    }

    /// Handles the peer's response to a call.
    fn on_response(
        &mut self,
        cx: &mut Context<'_>,
        call: CallId,
        pending: PendingCall,
        outcome: Outcome,
    ) {
        let key = pending.key;
        let remote = self.services.get(&key);
        let translator = remote.and_then(|it| it.translation.translator());
        match (outcome, translator) {
            (Ok(payload), Some(translator)) => cx.submit_job(Job::TranslateCall(ForeignCall {
                peer: key.peer,
                service: pending.service,
                call,
                payload,
                translator,
                is_response: true,
            })),
            (Ok(response), None) => self.answer_caller(cx, pending.service, call, Ok(response)),
            (Err(reason), _) => {
                let peer = cx.peers.name(key.peer);
                let text = format!("{}: asked of '{peer}' again later: {reason}", pending.service);
                match self.calls.park_failed(call, pending) {
                    None => cx.peer_notice(key.peer, &text),
                    Some(pending) => self.fail_call(cx, call, pending, reason),
                }
            }
        }
    }

    /// Passes the outcome of a call to the local client that made it.
    fn answer_caller(
        &mut self,
        cx: &mut Context<'_>,
        service: String,
        call: CallId,
        outcome: Outcome,
    ) {
        if !is_own_call(call) {
            cx.send_to_gateway(Command::Answer { service, call, outcome });
        }
    }

    /// Ends the selected calls to peers with an error.
    pub(super) fn fail(
        &mut self,
        cx: &mut Context<'_>,
        which: impl Fn(&PendingCall) -> bool,
        reason: &str,
    ) {
        let ended: Vec<_> = self.calls.pending.extract_if(.., |_, it| which(it)).collect();
        for (call, pending) in ended {
            self.fail_call(cx, call, pending, reason.to_owned());
        }
    }

    fn fail_call(
        &mut self,
        cx: &mut Context<'_>,
        call: CallId,
        pending: PendingCall,
        reason: String,
    ) {
        self.give_up_goal(cx, &pending);
        self.answer_caller(cx, pending.service, call, Err(reason));
    }

    pub(crate) fn fail_expired(&mut self, cx: &mut Context<'_>) {
        let now = cx.now;
        for (call, pending) in self.calls.take_expired(now) {
            let (service, peer) = (&pending.service, cx.peers.name(pending.key.peer));
            let remote = self.services.get(&pending.key);
            let after = remote.map_or(0.0, |it| it.timeout.as_secs_f64());
            let mut reason = format!("no response of {service} from '{peer}' within {after} s");
            let too_large = remote.and_then(|it| it.too_large.as_ref());
            if let Some((_, text)) = too_large.filter(|(at, _)| *at >= pending.created) {
                reason = format!("{reason}; {text}");
            }
            cx.peer_notice(pending.key.peer, &reason);
            self.fail_call(cx, call, pending, reason);
        }
    }

    /// Cancels a goal that its client believes to be refused, because its server may have accepted it.
    pub(super) fn give_up_goal(&mut self, cx: &mut Context<'_>, call: &PendingCall) {
        let now = cx.now;
        let (Some(GoalRequest::NewGoal(goal)), true) = (&call.goal_request, call.sent) else {
            return;
        };
        let Some(action) = action_of(&call.service) else { return };
        let service = cancel_service(action);
        // This includes a service that the peer has not advertised again in its new session.
        let mut remote = self.services.iter();
        let found =
            remote.find(|(key, it)| key.peer == call.key.peer && it.service.name == service);
        let Some(key) = found.map(|(key, _)| *key) else { return };
        if self.calls.pending_count_of(key) >= MAX_PENDING_PER_SERVICE {
            let text = format!("a goal of {action} that was given up is not cancelled: too many");
            return cx.peer_notice(key.peer, &text);
        }
        let number = self.calls.next_own_call_id();
        // A zero time means: only that goal, whenever it was accepted (action_msgs/srv/CancelGoal).
        let request = Bytes::from([&goal[..], &[0; 8]].concat());
        let goal_request = goal_request(&service, &request);
        let unsent = Some(call_message(number, &request));
        let due = now + RESULT_TIMEOUT;
        let cancel =
            PendingCall { service, key, created: now, due, unsent, sent: false, goal_request };
        self.calls.pending.insert(number, cancel);
        self.send_calls(cx, key);
    }

    /// Sends the parked calls of those services that peers serve now.
    pub(super) fn retry_parked(&mut self, cx: &mut Context<'_>) {
        let parked = &self.calls.parked;
        let names: BTreeSet<&String> = parked.values().map(|it| &it.service).collect();
        let found =
            names.into_iter().filter_map(|name| Some((name.clone(), *self.served.get(name)?)));
        for (name, key) in found.collect::<Vec<_>>() {
            self.calls.unpark(&name, key);
            self.send_calls(cx, key);
        }
    }

    /// Returns the time at which the next call times out.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.calls.next_due()
    }

    /// Handles a peer's subscription to a channel of calls, or its end. If the peer subscribes,
    /// queued calls are sent. Returns whether the channel carries calls.
    pub(super) fn on_wanted(
        &mut self,
        cx: &mut Context<'_>,
        key: ChannelKey,
        wanted: bool,
    ) -> bool {
        let Some((key, remote)) = self.service_called_on(key) else { return false };
        if wanted {
            remote.refusal_reason = None;
            self.send_calls(cx, key);
        }
        true
    }

    /// Handles that a peer refuses a channel. If it takes no calls, callers get the reason
    /// immediately. Returns whether the channel carries calls.
    pub(super) fn on_refused(
        &mut self,
        cx: &mut Context<'_>,
        channel: ChannelKey,
        reason: &str,
    ) -> bool {
        let now = cx.now;
        let Some((key, remote)) = self.service_called_on(channel) else { return false };
        let state = cx.endpoint.peer(channel.peer).channel_out(channel.channel);
        // The peer still takes calls, except the one that was too large.
        if state.is_some_and(|(_, wanted, _)| wanted) {
            remote.too_large = Some((now, reason.to_owned()));
        } else {
            remote.refusal_reason = Some(reason.to_owned());
            self.fail(cx, |pending| pending.key == key, reason);
        }
        true
    }

    /// Notes that a response of a peer was too large for this node.
    pub(crate) fn on_response_too_large(
        &mut self,
        now: Instant,
        peer: PeerId,
        service: &str,
        text: &str,
    ) {
        let services = self.services.iter_mut();
        let named = services.filter(|(key, it)| key.peer == peer && it.offered_name == service);
        for (_, remote) in named {
            remote.too_large = Some((now, text.to_owned()));
        }
    }

    /// Whether a channel carries the responses of a service.
    pub(super) fn is_response_channel(&self, key: ChannelKey) -> bool {
        self.services.contains_key(&key)
    }

    /// Takes a response of a peer.
    pub(super) fn handle_response(
        &mut self,
        cx: &mut Context<'_>,
        key: ChannelKey,
        payload: &Bytes,
    ) {
        if let Some(ParsedMessage { call, body }) = wire::parse(payload)
            && self.calls.pending.get(&call).is_some_and(|pending| pending.key == key)
            && let Some(pending) = self.calls.pending.remove(&call)
        {
            let outcome = self.checked_outcome(cx, key, wire::parse_outcome(&body));
            self.on_response(cx, call, pending, outcome);
        }
    }
}
