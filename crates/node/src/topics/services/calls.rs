// SPDX-License-Identifier: Apache-2.0
//! Calls under way: to peers, and from peers.

use super::{RemoteService, Services};
use crate::codec::Turning;
use crate::limits::{MAX_PENDING_PER_PEER, MAX_PENDING_PER_SERVICE, MAX_SERVING_PER_PEER};
use crate::notices::plain;
use crate::topics::{Key, Order, Topics, Translation};
use bytes::{BufMut, Bytes, BytesMut};
use tautline_gateway::{CallId, Command, Outcome};
use tautline_proto::wire::cursor::{Reader, put_varint};
use tautline_proto::{Endpoint, Instant, Message, PeerId, SendError};

const DONE: u8 = 0;
const FAILED: u8 = 1;
/// Messages queued for a peer beyond which its excess calls get no response.
const MAX_REFUSALS: usize = 256;
/// Most bytes of a response that are read for the reason of a failed call.
const MAX_REASON: usize = 1000;

#[derive(Debug)]
pub(super) struct Pending {
    pub(super) service: String,
    pub(super) key: Key,
    due: Instant,
    /// The call, until it is sent; the peer is about to subscribe to it.
    unsent: Option<Bytes>,
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

fn call_message(call: CallId, request: &[u8]) -> Bytes {
    let mut head = Vec::new();
    put_varint(&mut head, call);
    let mut message = BytesMut::with_capacity(head.len() + request.len());
    message.put_slice(&head);
    message.put_slice(request);
    message.freeze()
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
        _ => Err("the answer is malformed".into()),
    }
}

fn message(now: Instant, payload: Bytes) -> Message {
    Message { payload, published: now, source: 0, encoded: false }
}

impl Services {
    fn pending_at(&self, peer: PeerId) -> usize {
        self.pending.values().filter(|it| it.key.0 == peer).count()
    }

    fn pending_of(&self, service: Key) -> usize {
        self.pending.values().filter(|it| it.key == service).count()
    }

    fn serving_of(&self, peer: PeerId) -> usize {
        self.serving.values().filter(|it| it.peer == peer).count()
    }
}

impl Topics {
    /// Takes a call translated for the peer, or a response translated for the caller.
    pub(crate) fn turned(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        service: String,
        call: CallId,
        outcome: Outcome,
        is_answer: bool,
    ) {
        match outcome {
            Ok(request) if !is_answer => {
                let Some(pending) = self.services.pending.get_mut(&call) else { return };
                pending.unsent = Some(call_message(call, &request));
                let key = pending.key;
                self.send_calls(now, endpoint, key);
            }
            outcome => {
                self.services.pending.remove(&call);
                self.gateway(Command::Answer { service, call, outcome });
            }
        }
    }

    /// Ends calls to peers with an error.
    pub(super) fn fail(&mut self, which: impl Fn(&Pending) -> bool, reason: &str) {
        let ended: Vec<_> = self.services.pending.extract_if(.., |_, it| which(it)).collect();
        for (call, pending) in ended {
            let outcome = Err(reason.to_owned());
            self.gateway(Command::Answer { service: pending.service, call, outcome });
        }
    }

    /// Handles a call of a local client to a peer's service.
    pub(in crate::topics) fn called(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        service: String,
        call: CallId,
        request: &Bytes,
    ) {
        let refused = match self.services.served.get(&service).copied() {
            None => Some(format!("no peer serves {service}")),
            Some((peer, _)) if self.services.pending_at(peer) >= MAX_PENDING_PER_PEER => {
                let peer = self.peer_name(peer);
                Some(format!("{MAX_PENDING_PER_PEER} calls to '{peer}' are under way already"))
            }
            Some(key) if self.services.pending_of(key) >= MAX_PENDING_PER_SERVICE => {
                Some(format!("{MAX_PENDING_PER_SERVICE} calls of {service} are under way already"))
            }
            Some(key) if self.services.remote[&key].refused.is_some() => {
                self.services.remote[&key].refused.clone()
            }
            Some(key) => {
                let RemoteService { timeout, translation, .. } = &self.services.remote[&key];
                let (due, translation) = (now + *timeout, translation.clone());
                let mut pending = Pending { service: service.clone(), key, due, unsent: None };
                if let Translation::By(translator) = translation {
                    let (service, payload) = (service.clone(), request.clone());
                    let is_answer = false;
                    let peer = key.0;
                    let turning = Turning { peer, service, call, payload, translator, is_answer };
                    self.orders.push_back(Order::Turn(turning));
                } else {
                    pending.unsent = Some(call_message(call, request));
                }
                self.services.pending.insert(call, pending);
                self.send_calls(now, endpoint, key);
                None
            }
        };
        if let Some(reason) = refused {
            self.gateway(Command::Answer { service, call, outcome: Err(reason) });
        }
    }

    /// Sends the queued calls of a service; without the peer's interest they stay queued.
    fn send_calls(&mut self, now: Instant, endpoint: &mut Endpoint, key: Key) {
        let Some(channel) = self.services.remote.get(&key).and_then(|it| it.calls) else { return };
        let mut failed = Vec::new();
        for (call, pending) in self.services.pending.iter_mut().filter(|(_, it)| it.key == key) {
            let Some(payload) = pending.unsent.take() else { continue };
            match endpoint.send(now, key.0, channel, message(now, payload.clone())) {
                Ok(()) => {}
                Err(SendError::NotWanted) => pending.unsent = Some(payload),
                Err(error) => failed.push((*call, error.to_string())),
            }
        }
        for (call, reason) in failed {
            if let Some(Pending { service, .. }) = self.services.pending.remove(&call) {
                self.gateway(Command::Answer { service, call, outcome: Err(reason) });
            }
        }
    }

    /// Whether the channel belongs to a service. With the peer's interest, queued calls are sent.
    pub(in crate::topics) fn calls_wanted(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        (peer, channel): Key,
        wanted: bool,
    ) -> bool {
        let mut remote = self.services.remote.iter_mut();
        let found = remote.find(|((p, _), it)| *p == peer && it.calls == Some(channel));
        let Some((&key, remote)) = found else {
            let mut local = self.services.local.values();
            return local.any(|it| it.answers.get(&peer) == Some(&channel));
        };
        if wanted {
            remote.refused = None;
            self.send_calls(now, endpoint, key);
        }
        true
    }

    /// Returns the outcome of a call from the local server to the peer.
    pub(in crate::topics) fn answered(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        call: CallId,
        outcome: &Outcome,
    ) {
        let Some(Serving { service, peer, theirs, .. }) = self.services.serving.remove(&call)
        else {
            return;
        };
        let local = self.services.local.get(&service);
        let Some(&channel) = local.and_then(|it| it.answers.get(&peer)) else { return };
        let payload = answer_message(theirs, outcome);
        if let Err(error) = endpoint.send(now, peer, channel, message(now, payload)) {
            let (here, name) = (endpoint.name(), self.peer_name(peer));
            let text =
                format!("{service}: an answer is not sent from '{here}' to '{name}': {error}");
            self.peer_notice(now, peer, &text);
        }
    }

    /// Whether the message belongs to a service: a call to be handed on, or a response.
    pub(in crate::topics) fn service_message(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        key: Key,
        payload: &Bytes,
    ) -> bool {
        let is_call = self.services.callers.contains_key(&key);
        if !is_call && !self.services.remote.contains_key(&key) {
            return false;
        }
        if !self.within_rate(now, endpoint, key, payload.len()) {
            return true;
        }
        if let Some(service) = self.services.callers.get(&key).cloned() {
            match parse(payload) {
                Some(parsed) => self.hand_on(now, endpoint, key.0, service, parsed),
                None => {
                    let text = format!("a call of {service} is malformed");
                    self.peer_notice(now, key.0, &text);
                }
            }
            return true;
        }
        let Some(remote) = self.services.remote.get(&key) else { return false };
        let translation = remote.translation.clone();
        if let Some(Parsed { call, rest }) = parse(payload)
            && self.services.pending.get(&call).is_some_and(|pending| pending.key == key)
            && let Some(Pending { service, .. }) = self.services.pending.remove(&call)
        {
            match (outcome(&rest), translation) {
                (Ok(payload), Translation::By(translator)) => {
                    let is_answer = true;
                    let peer = key.0;
                    let turning = Turning { peer, service, call, payload, translator, is_answer };
                    self.orders.push_back(Order::Turn(turning));
                }
                (outcome, _) => self.gateway(Command::Answer { service, call, outcome }),
            }
        }
        true
    }

    fn hand_on(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        peer: PeerId,
        service: String,
        Parsed { call: theirs, rest: request }: Parsed,
    ) {
        self.services.next_call += 1;
        let call = self.services.next_call;
        let Some(local) = self.services.local.get(&service) else { return };
        let patience = local.treatment.timeout;
        let full = self.services.serving_of(peer) >= MAX_SERVING_PER_PEER;
        let serving = Serving { service: service.clone(), peer, theirs, due: now + patience };
        self.services.serving.insert(call, serving);
        if full && endpoint.peer(peer).queued_messages >= MAX_REFUSALS {
            // A peer that does not take its queued responses gets no more.
            self.services.serving.remove(&call);
            return;
        }
        if full {
            let reason = format!(
                "{MAX_SERVING_PER_PEER} calls to '{}' are under way already",
                endpoint.name()
            );
            return self.answered(now, endpoint, call, &Err(reason));
        }
        self.gateway(Command::Call { service, call, request, patience });
    }

    /// Returns the time at which the next call times out.
    pub(in crate::topics) fn next_call_due(&self) -> Option<Instant> {
        self.services.pending.values().map(|pending| pending.due).min()
    }

    pub(in crate::topics) fn give_up_calls(&mut self, now: Instant) {
        let late: Vec<_> = self.services.pending.extract_if(.., |_, it| it.due <= now).collect();
        for (call, Pending { service, key, .. }) in late {
            let peer = self.peer_name(key.0);
            let after = self.services.remote.get(&key).map_or(0.0, |it| it.timeout.as_secs_f64());
            let reason = format!("no answer of {service} from '{peer}' within {after} s");
            self.peer_notice(now, key.0, &reason);
            self.gateway(Command::Answer { service, call, outcome: Err(reason) });
        }
    }
}
