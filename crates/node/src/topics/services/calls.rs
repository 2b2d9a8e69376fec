// SPDX-License-Identifier: Apache-2.0
//! Calls under way: to peers, and from peers.

use super::goals::is_own;
use super::{RemoteService, Services};
use crate::codec::{ForeignCall, Job};
use crate::limits::{MAX_PENDING_PER_PEER, MAX_PENDING_PER_SERVICE, MAX_SERVING_PER_PEER};
use crate::notices::plain;
use crate::topics::{ChannelKey, Topics};
use bytes::Bytes;
use tautline_gateway::action_names::{ActionCall, action_call};
use tautline_gateway::goals::{About, about};
use tautline_gateway::{CallId, Command, Outcome};
use tautline_proto::wire::cursor::{Reader, put_varint};
use tautline_proto::{Instant, Message, PeerId, SendError};

const DONE: u8 = 0;
const FAILED: u8 = 1;
/// Messages queued for a peer beyond which its excess calls get no response.
const MAX_REFUSALS: usize = 256;
/// Maximum bytes of a response that are read for the reason of a failed call.
const MAX_REASON: usize = 1000;

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

#[derive(Debug)]
pub(super) struct Serving {
    pub(super) service: String,
    pub(super) peer: PeerId,
    /// The peer's number of the call.
    theirs: u64,
    pub(super) due: Instant,
}

/// A call or a response.
struct Parsed {
    call: u64,
    rest: Bytes,
}

fn parse(payload: &Bytes) -> Option<Parsed> {
    let mut reader = Reader::new(payload);
    let call = reader.varint().ok()?;
    let rest = payload.slice_ref(reader.remaining());
    Some(Parsed { call, rest })
}

pub(super) fn call_message(call: CallId, request: &[u8]) -> Bytes {
    let mut message = Vec::new();
    put_varint(&mut message, call);
    message.extend_from_slice(request);
    message.into()
}

fn answer_message(call: u64, outcome: &Outcome) -> Bytes {
    let mut head = Vec::new();
    put_varint(&mut head, call);
    let (kind, rest) = match outcome {
        Ok(response) => (DONE, &response[..]),
        Err(reason) => (FAILED, reason.as_bytes()),
    };
    head.push(kind);
    head.extend_from_slice(rest);
    head.into()
}

fn outcome(rest: &Bytes) -> Outcome {
    match rest.first() {
        Some(&DONE) => Ok(rest.slice(1..)),
        Some(&FAILED) => {
            let reason = &rest[1..rest.len().min(MAX_REASON)];
            Err(plain(&String::from_utf8_lossy(reason)))
        }
        _ => Err("the response is malformed".into()),
    }
}

fn message(now: Instant, payload: Bytes) -> Message {
    Message { payload, published: now, source: 0, encoded: false, lifespan: None }
}

fn is_cancel(service: &str) -> bool {
    action_call(service) == Some(ActionCall::CancelGoal)
}

impl Services {
    /// Returns the peer's service that this robot calls on a channel, and its key.
    pub(super) fn called_on(&mut self, on: ChannelKey) -> Option<(ChannelKey, &mut RemoteService)> {
        let mut remote = self.remote.iter_mut().map(|(key, service)| (*key, service));
        remote.find(|(key, it)| key.peer == on.peer && it.calls == Some(on.channel))
    }

    /// Whether a service of this robot sends its responses on a channel.
    pub(super) fn is_answered_on(&self, on: ChannelKey) -> bool {
        self.local.values().any(|it| it.answers.get(&on.peer) == Some(&on.channel))
    }

    fn pending_at(&self, peer: PeerId) -> usize {
        let others = self.pending.values().filter(|it| !is_cancel(&it.service));
        others.filter(|it| it.key.peer == peer).count()
    }

    pub(super) fn pending_of(&self, service: ChannelKey) -> usize {
        self.pending.values().filter(|it| it.key == service).count()
    }

    /// Whether a peer has as many calls under way as it may. Cancellations count separately, so that
    /// other calls cannot keep them out.
    fn is_full(&self, peer: PeerId, service: &str) -> bool {
        let of_peer = self.serving.values().filter(|it| it.peer == peer);
        match is_cancel(service) {
            true => of_peer.filter(|it| it.service == service).count() >= MAX_PENDING_PER_SERVICE,
            false => of_peer.filter(|it| !is_cancel(&it.service)).count() >= MAX_SERVING_PER_PEER,
        }
    }
}

impl Topics {
    /// Takes a call translated for the peer, or a response translated for the caller.
    pub(crate) fn call_translated(
        &mut self,
        now: Instant,
        service: String,
        call: CallId,
        outcome: Outcome,
        is_response: bool,
    ) {
        match outcome {
            Ok(request) if !is_response => {
                let Some(pending) = self.services.pending.get_mut(&call) else { return };
                pending.unsent = Some(call_message(call, &request));
                let key = pending.key;
                self.send_calls(now, key);
            }
            outcome => {
                self.services.pending.remove(&call);
                self.answer_caller(service, call, outcome);
            }
        }
    }

    /// Returns the outcome of a call to the local client that made it.
    fn answer_caller(&mut self, service: String, call: CallId, outcome: Outcome) {
        if !is_own(call) {
            self.gateway(Command::Answer { service, call, outcome });
        }
    }

    /// Ends calls to peers with an error.
    pub(super) fn fail(&mut self, now: Instant, which: impl Fn(&Pending) -> bool, reason: &str) {
        let ended: Vec<_> = self.services.pending.extract_if(.., |_, it| which(it)).collect();
        for (call, pending) in ended {
            self.fail_call(now, call, pending, reason.to_owned());
        }
    }

    fn fail_call(&mut self, now: Instant, call: CallId, pending: Pending, reason: String) {
        self.give_up_goal(now, &pending);
        self.answer_caller(pending.service, call, Err(reason));
    }

    /// Returns why a call to a peer's service cannot be made, or the service's key.
    fn callable(&self, service: &str) -> Result<ChannelKey, String> {
        let Some(key) = self.services.served.get(service).copied() else {
            return Err(format!("no peer serves {service}"));
        };
        if !is_cancel(service) && self.services.pending_at(key.peer) >= MAX_PENDING_PER_PEER {
            let peer = self.peer_name(key.peer);
            return Err(format!("{MAX_PENDING_PER_PEER} calls to '{peer}' are under way already"));
        }
        if self.services.pending_of(key) >= MAX_PENDING_PER_SERVICE {
            let text =
                format!("{MAX_PENDING_PER_SERVICE} calls of {service} are under way already");
            return Err(text);
        }
        self.services.remote[&key].refused.clone().map_or(Ok(key), Err)
    }

    /// Handles a call of a local client to a peer's service.
    pub(crate) fn called(&mut self, now: Instant, service: String, call: CallId, request: &Bytes) {
        let key = match self.callable(&service) {
            Ok(key) => key,
            Err(reason) => return self.answer_caller(service, call, Err(reason)),
        };
        let remote = &self.services.remote[&key];
        let due = now + remote.timeout;
        let (about, unsent) = match remote.translation.translator() {
            Some(translator) => {
                self.codec(Job::TranslateCall(ForeignCall {
                    peer: key.peer,
                    service: service.clone(),
                    call,
                    payload: request.clone(),
                    translator,
                    is_response: false,
                }));
                (None, None)
            }
            None => (about(&service, request), Some(call_message(call, request))),
        };
        self.services
            .pending
            .insert(call, Pending { service, key, made: now, due, unsent, sent: false, about });
        self.send_calls(now, key);
    }

    /// Handles a call that a local client made before a restart of this node. Its goal, if it starts
    /// one, is refused after the time in which the peer may start it.
    pub(crate) fn interrupted(
        &mut self,
        now: Instant,
        service: String,
        call: CallId,
        request: &Bytes,
    ) {
        let about = about(&service, request);
        if let Some(About::Goal(_)) = about {
            return self.called(now, service, call, request);
        }
        let restarted = || format!("'{}' has restarted", self.endpoint.name());
        let goal = about.filter(|it| matches!(it, About::NewGoal(_))).ok_or_else(restarted);
        match goal.and_then(|goal| Ok((goal, self.callable(&service)?))) {
            Ok((goal, key)) => {
                let due = now + self.services.remote[&key].timeout;
                let about = Some(goal);
                let pending =
                    Pending { service, key, made: now, due, unsent: None, sent: true, about };
                self.services.pending.insert(call, pending);
            }
            Err(reason) => self.answer_caller(service, call, Err(reason)),
        }
    }

    /// Sends the queued calls of a service; without the peer's interest they stay queued.
    pub(super) fn send_calls(&mut self, now: Instant, key: ChannelKey) {
        let Some(channel) = self.services.remote.get(&key).and_then(|it| it.calls) else { return };
        let mut failed = Vec::new();
        for (call, pending) in self.services.pending.iter_mut().filter(|(_, it)| it.key == key) {
            let Some(payload) = pending.unsent.take() else { continue };
            match self.endpoint.send(now, key.peer, channel, message(now, payload.clone())) {
                Ok(()) => pending.sent = true,
                Err(SendError::NotWanted) => pending.unsent = Some(payload),
                Err(error) => failed.push((*call, error.to_string())),
            }
        }
        for (call, reason) in failed {
            if let Some(pending) = self.services.pending.remove(&call) {
                self.fail_call(now, call, pending, reason);
            }
        }
    }

    /// Whether the channel belongs to a service. With the peer's interest, queued calls are sent.
    pub(crate) fn calls_wanted(&mut self, now: Instant, key: ChannelKey, wanted: bool) -> bool {
        let Some((key, remote)) = self.services.called_on(key) else {
            return self.services.is_answered_on(key);
        };
        if wanted {
            remote.refused = None;
            self.send_calls(now, key);
        }
        true
    }

    /// A response of a peer was too large for this node.
    pub(crate) fn response_too_large(
        &mut self,
        now: Instant,
        peer: &str,
        service: &str,
        text: &str,
    ) {
        let Some(peer) = self.endpoint.peers().find(|it| self.peer_name(*it) == peer) else {
            return;
        };
        let remote = self.services.remote.iter_mut();
        for (_, remote) in remote.filter(|(key, it)| key.peer == peer && it.offered_name == service)
        {
            remote.too_large = Some((now, text.to_owned()));
        }
    }

    /// Returns the outcome of a call from the local server to the peer.
    pub(crate) fn answered(&mut self, now: Instant, call: CallId, outcome: &Outcome) {
        let Some(Serving { service, peer, theirs, .. }) = self.services.serving.remove(&call)
        else {
            return;
        };
        let local = self.services.local.get(&service);
        let Some(&channel) = local.and_then(|it| it.answers.get(&peer)) else { return };
        let payload = answer_message(theirs, outcome);
        let Err(error) = self.endpoint.send(now, peer, channel, message(now, payload)) else {
            return;
        };
        let (here, name) = (self.endpoint.name(), self.peer_name(peer));
        let text = format!("{service}: a response from '{here}' to '{name}' was not sent: {error}");
        self.peer_notice(now, peer, &text);
        if matches!(error, SendError::TooLarge { .. }) {
            let payload = answer_message(theirs, &Err(text));
            let _ = self.endpoint.send(now, peer, channel, message(now, payload));
        }
    }

    /// Whether the message belongs to a service: a call for a local server, or a response.
    pub(crate) fn service_message(
        &mut self,
        now: Instant,
        key: ChannelKey,
        payload: &Bytes,
    ) -> bool {
        let is_call = self.services.callers.contains_key(&key);
        if !is_call && !self.services.remote.contains_key(&key) {
            return false;
        }
        if !self.within_rate(now, key, payload.len()) {
            return true;
        }
        if let Some(service) = self.services.callers.get(&key).cloned() {
            match parse(payload) {
                Some(parsed) => self.call_server(now, key.peer, service, parsed),
                None => {
                    let text = format!("a call of {service} is malformed");
                    self.peer_notice(now, key.peer, &text);
                }
            }
            return true;
        }
        if let Some(Parsed { call, rest }) = parse(payload)
            && self.services.pending.get(&call).is_some_and(|pending| pending.key == key)
            && let Some(pending) = self.services.pending.remove(&call)
        {
            let outcome = self.checked_outcome(now, key, outcome(&rest));
            self.responded(now, call, pending, outcome);
        }
        true
    }

    /// Handles the peer's response to a call.
    fn responded(&mut self, now: Instant, call: CallId, pending: Pending, outcome: Outcome) {
        let key = pending.key;
        let remote = self.services.remote.get(&key);
        let translator = remote.and_then(|it| it.translation.translator());
        match (outcome, translator) {
            (Ok(payload), Some(translator)) => self.codec(Job::TranslateCall(ForeignCall {
                peer: key.peer,
                service: pending.service,
                call,
                payload,
                translator,
                is_response: true,
            })),
            (Ok(response), None) => self.answer_caller(pending.service, call, Ok(response)),
            (Err(reason), _) => {
                let peer = self.peer_name(key.peer);
                let text = format!("{}: asked of '{peer}' again later: {reason}", pending.service);
                match self.services.park_failed(call, pending) {
                    None => self.peer_notice(now, key.peer, &text),
                    Some(pending) => self.fail_call(now, call, pending, reason),
                }
            }
        }
    }

    fn call_server(
        &mut self,
        now: Instant,
        peer: PeerId,
        service: String,
        Parsed { call: theirs, rest: request }: Parsed,
    ) {
        self.services.next_call += 1;
        let call = self.services.next_call;
        let Some(local) = self.services.local.get(&service) else { return };
        let patience = local.treatment.timeout;
        let full = self.services.is_full(peer, &service);
        let serving = Serving { service: service.clone(), peer, theirs, due: now + patience };
        self.services.serving.insert(call, serving);
        let refusal = if full {
            let here = self.endpoint.name();
            Some(format!("{MAX_SERVING_PER_PEER} calls to '{here}' are under way already"))
        } else {
            self.malformed_call(now, peer, &service, &request)
        };
        if let Some(reason) = refusal {
            if self.endpoint.peer(peer).queued_messages >= MAX_REFUSALS {
                // A peer that does not take its queued responses gets no more.
                self.services.serving.remove(&call);
                return;
            }
            return self.answered(now, call, &Err(reason));
        }
        self.gateway(Command::Call { service, call, request, patience, peer: peer.0 });
    }

    /// Returns the time at which the next call times out.
    pub(crate) fn next_call_due(&self) -> Option<Instant> {
        let Services { pending, parked, .. } = &self.services;
        pending.values().chain(parked.values()).map(|pending| pending.due).min()
    }

    pub(crate) fn fail_late_calls(&mut self, now: Instant) {
        let Services { pending, parked, .. } = &mut self.services;
        let late = pending.extract_if(.., |_, it| it.due <= now);
        let late: Vec<_> = late.chain(parked.extract_if(.., |_, it| it.due <= now)).collect();
        for (call, pending) in late {
            let (service, peer) = (&pending.service, self.peer_name(pending.key.peer));
            let remote = self.services.remote.get(&pending.key);
            let after = remote.map_or(0.0, |it| it.timeout.as_secs_f64());
            let mut reason = format!("no response of {service} from '{peer}' within {after} s");
            let too_large = remote.and_then(|it| it.too_large.as_ref());
            if let Some((_, text)) = too_large.filter(|(at, _)| *at >= pending.made) {
                reason = format!("{reason}; {text}");
            }
            self.peer_notice(now, pending.key.peer, &reason);
            self.fail_call(now, call, pending, reason);
        }
    }
}
