// SPDX-License-Identifier: Apache-2.0
//! Services across the radio: which peer serves what, and the calls under way.
//!
//! A service is a channel of answers from the robot that has its server, and a channel of
//! calls to it from each robot that may call. Each call is a message, handed on once however
//! often its packets are repeated; who waits for its answer stops at the service's timeout.

use super::remote::REOFFER_GRACE;
use super::{Key, Order, Topics, Translation};
use crate::codec::Turning;
use bytes::{BufMut, Bytes, BytesMut};
use std::collections::BTreeMap;
use std::sync::Arc;
use tautline_gateway::mapping::{ServiceTreatment, check_name, service_treatment};
use tautline_gateway::types::translate::{ServiceTranslator, dialect_of};
use tautline_gateway::{CallId, Command, Outcome, Service};
use tautline_proto::wire::cursor::{Reader, put_varint};
use tautline_proto::{
    ChannelConfig, ChannelId, Endpoint, Instant, Message, OfferedQos, OfferedTopic, PeerId, Role,
    SendError,
};

/// Calls under way from here, and as many to here.
const MAX_CALLS: usize = 1024;
/// None replaces another.
const KEEP_ALL: u32 = 65_535;
const DONE: u8 = 0;
const FAILED: u8 = 1;

/// All that is known of services.
#[derive(Debug, Default)]
pub(super) struct Services {
    /// Served on this robot, by local name.
    local: BTreeMap<String, LocalService>,
    /// Offered by peers, by the channel of their answers.
    remote: BTreeMap<Key, RemoteService>,
    /// Which peer's is served here, by local name.
    served: BTreeMap<String, Key>,
    /// Services of this robot, by the channel on which a peer calls them.
    callers: BTreeMap<Key, String>,
    /// Calls from here.
    pending: BTreeMap<CallId, Pending>,
    /// Calls to here.
    serving: BTreeMap<CallId, Serving>,
    next_call: CallId,
}

#[derive(Debug)]
struct LocalService {
    service: Service,
    treatment: ServiceTreatment,
    answers: BTreeMap<PeerId, ChannelId>,
}

#[derive(Debug)]
struct RemoteService {
    offered_name: String,
    /// Under its local name, otherwise as the peer has it.
    foreign: Service,
    /// As it is served here; the same where both robots have one kind of ROS.
    service: Service,
    translation: Translation<ServiceTranslator>,
    priority: u8,
    timeout: tautline_proto::Duration,
    /// Ours to the peer.
    calls: Option<ChannelId>,
    /// The peer began a new session and has not offered it again.
    stale_since: Option<Instant>,
}

impl RemoteService {
    fn can_be_served(&self) -> bool {
        self.translation.is_known() && self.stale_since.is_none()
    }
}

#[derive(Debug)]
struct Pending {
    service: String,
    key: Key,
    due: Instant,
    /// Not sent yet: the peer is about to want it.
    unsent: Option<Bytes>,
}

#[derive(Debug)]
struct Serving {
    service: String,
    peer: PeerId,
    /// The peer's number of it.
    theirs: u64,
    due: Instant,
}

/// A call, or an answer to one.
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
        Some(&FAILED) => Err(String::from_utf8_lossy(&rest[1..]).into_owned()),
        _ => Err("the answer is malformed".into()),
    }
}

fn channel(
    service: &Service,
    role: Role,
    priority: u8,
    timeout: tautline_proto::Duration,
) -> ChannelConfig {
    ChannelConfig {
        topic: OfferedTopic {
            name: service.name.clone(),
            type_name: service.type_name.clone(),
            type_hash: service.type_hash.clone(),
            priority,
            keep_last: KEEP_ALL,
            lifespan: Some(timeout),
            qos: OfferedQos::default(),
            role,
        },
        definition: service.definition.clone(),
        repair: true,
    }
}

fn message(now: Instant, payload: Bytes) -> Message {
    Message { payload, published: now, source: 0, encoded: false }
}

impl Topics {
    /// A server on this robot: its service is offered to those who may call it.
    pub(super) fn service_offered(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        service: Service,
    ) {
        let Some(treatment) = service_treatment(&self.service_rules, &service.name) else { return };
        let name = service.name.clone();
        let known = self.services.local.remove(&name);
        let mut local = LocalService {
            service,
            treatment,
            answers: known.map(|known| known.answers).unwrap_or_default(),
        };
        for peer in endpoint.peers() {
            let named = |to: &Vec<String>| to.iter().any(|name| name == self.peer_name(peer));
            if !local.treatment.to.as_ref().is_none_or(named) {
                continue;
            }
            let ServiceTreatment { priority, timeout, .. } = local.treatment;
            let config = channel(&local.service, Role::Answers, priority, timeout);
            let done = match local.answers.get(&peer) {
                Some(&known) => endpoint.change_offer(now, peer, known, config),
                None => endpoint.offer(now, peer, config).map(|channel| {
                    local.answers.insert(peer, channel);
                }),
            };
            if let Err(error) = done {
                let to = self.peer_name(peer);
                let text =
                    format!("{name} of '{}' is not offered to '{to}': {error}", endpoint.name());
                self.notice(now, text);
            }
        }
        self.services.local.insert(name, local);
    }

    pub(super) fn service_withdrawn(&mut self, now: Instant, endpoint: &mut Endpoint, name: &str) {
        let Some(gone) = self.services.local.remove(name) else { return };
        for (peer, channel) in gone.answers {
            endpoint.withdraw(now, peer, channel);
        }
        // What is under way is answered by the gateway, to nobody.
        self.services.serving.retain(|_, serving| serving.service != name);
    }

    /// A peer offers a service, or to call one of ours.
    pub(super) fn service_channel_offered(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        key: Key,
        offered: OfferedTopic,
        definition: Arc<str>,
    ) {
        if offered.role == Role::Calls {
            return self.calls_offered(now, endpoint, key, offered);
        }
        let Some(name) = self.name_maps[key.0.0 as usize].local_name(&offered.name) else { return };
        if let Err(error) = check_name(&name) {
            let (peer, here) = (self.peer_name(key.0), endpoint.name());
            let text = format!("{} of '{peer}' at '{here}': {error}", offered.name);
            endpoint.refuse(now, key.0, key.1, text.clone());
            return self.notice(now, text);
        }
        let service = Service {
            name: name.clone(),
            type_name: offered.type_name,
            type_hash: offered.type_hash,
            definition,
        };
        self.replace_service(now, endpoint, key, &offered.name);
        let earlier = self.services.remote.remove(&key);
        let same = |it: &RemoteService| it.foreign == service && it.offered_name == offered.name;
        let is_foreign = self.dialect.is_some_and(|own| dialect_of(&service.type_name) != own);
        let mut remote = RemoteService {
            calls: earlier.filter(same).and_then(|it| it.calls),
            foreign: service.clone(),
            service,
            translation: if is_foreign { Translation::Asked } else { Translation::None },
            offered_name: offered.name,
            priority: offered.priority,
            timeout: offered.lifespan.unwrap_or(tautline_gateway::mapping::SERVICE_TIMEOUT),
            stale_since: None,
        };
        if remote.calls.is_none() {
            let theirs = Service { name: remote.offered_name.clone(), ..remote.foreign.clone() };
            let config = channel(&theirs, Role::Calls, remote.priority, remote.timeout);
            remote.calls = endpoint.offer(now, key.0, config).ok();
        }
        endpoint.want(now, key.0, key.1, true);
        let service = remote.foreign.clone();
        self.services.remote.insert(key, remote);
        match is_foreign {
            true => self.orders.push_back(Order::TranslateService { key, service }),
            false => self.serve(&name),
        }
    }

    /// What a peer's service is here: `foreign` was asked about.
    pub(crate) fn service_translated(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        key: Key,
        foreign: &Service,
        found: Result<(Service, ServiceTranslator), String>,
    ) {
        let remote = self.services.remote.get_mut(&key);
        let Some(remote) = remote.filter(|remote| remote.foreign == *foreign) else { return };
        match found {
            Ok((service, translator)) => {
                remote.service = service;
                remote.translation = Translation::By(Arc::new(translator));
                self.serve(&foreign.name);
            }
            Err(reason) => {
                remote.translation = Translation::Impossible;
                let (peer, here) = (self.peer_name(key.0), endpoint.name());
                let text = format!("{} of '{peer}' at '{here}': {reason}", foreign.name);
                endpoint.refuse(now, key.0, key.1, text.clone());
                self.notice(now, text);
            }
        }
    }

    /// A call is as the peer takes it, or an answer as the caller does.
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

    /// In a new session a service may have another number.
    fn replace_service(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        key: Key,
        offered_name: &str,
    ) {
        let earlier = self.services.remote.iter();
        let earlier = earlier.filter(|(other, it)| {
            other.0 == key.0 && **other != key && it.offered_name == offered_name
        });
        for old in earlier.map(|(old, _)| *old).collect::<Vec<_>>() {
            self.remove_service(now, endpoint, old, false);
        }
    }

    /// Serves what a peer offers under a local name, if any does.
    fn serve(&mut self, name: &str) {
        let offers = self.services.remote.iter();
        let mut offers = offers.filter(|(_, it)| it.service.name == name && it.can_be_served());
        let before = self.services.served.get(name).copied();
        let keep = before
            .filter(|key| self.services.remote.get(key).is_some_and(|it| it.service.name == name));
        let chosen = keep.or_else(|| offers.next().map(|(key, _)| *key));
        match chosen {
            Some(key) => {
                let service = self.services.remote[&key].service.clone();
                self.services.served.insert(name.to_owned(), key);
                self.gateway(Command::Serve { service });
            }
            None => {
                if self.services.served.remove(name).is_some() {
                    self.gateway(Command::Unserve { service: name.to_owned() });
                }
            }
        }
    }

    fn calls_offered(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        key: Key,
        offered: OfferedTopic,
    ) {
        let local = self.services.local.get(&offered.name);
        if local.is_some_and(|it| it.answers.contains_key(&key.0)) {
            self.services.callers.insert(key, offered.name);
            endpoint.want(now, key.0, key.1, true);
        } else {
            let text = format!("{} is not served at '{}' for you", offered.name, endpoint.name());
            endpoint.refuse(now, key.0, key.1, text);
        }
    }

    /// Whether the channel was a service's.
    pub(super) fn service_channel_withdrawn(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        key: Key,
    ) -> bool {
        if self.services.callers.remove(&key).is_some() {
            return true;
        }
        self.remove_service(now, endpoint, key, true)
    }

    fn remove_service(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        key: Key,
        left: bool,
    ) -> bool {
        let Some(gone) = self.services.remote.remove(&key) else { return false };
        if let Some(calls) = gone.calls {
            endpoint.withdraw(now, key.0, calls);
        }
        let peer = self.peer_name(key.0);
        let reason = match left {
            true => format!("the server of {} at '{peer}' has left", gone.offered_name),
            false => format!("'{peer}' was restarted"),
        };
        self.fail(|pending| pending.key == key, &reason);
        if left {
            self.serve(&gone.service.name);
        }
        true
    }

    /// Ends calls from here without an answer.
    fn fail(&mut self, which: impl Fn(&Pending) -> bool, reason: &str) {
        let ended: Vec<_> = self.services.pending.extract_if(.., |_, it| which(it)).collect();
        for (call, pending) in ended {
            let outcome = Err(reason.to_owned());
            self.gateway(Command::Answer { service: pending.service, call, outcome });
        }
    }

    /// Calls to a peer that has begun a new session are lost, and so are its own.
    pub(super) fn new_session_of_services(&mut self, now: Instant, peer: PeerId) {
        for (_, remote) in self.services.remote.iter_mut().filter(|((p, _), _)| *p == peer) {
            remote.stale_since.get_or_insert(now);
        }
        self.services.callers.retain(|(p, _), _| *p != peer);
        self.services.serving.retain(|_, serving| serving.peer != peer);
        let reason = format!("'{}' was restarted", self.peer_name(peer));
        self.fail(|pending| pending.key.0 == peer, &reason);
    }

    /// Gives up services that a peer has not offered in its new session.
    pub(super) fn sweep_services(&mut self, now: Instant, endpoint: &mut Endpoint) {
        let over = |since: Option<Instant>| since.is_some_and(|at| now.since(at) > REOFFER_GRACE);
        let remote = self.services.remote.iter();
        let gone: Vec<Key> =
            remote.filter(|(_, it)| over(it.stale_since)).map(|(key, _)| *key).collect();
        for key in gone {
            self.remove_service(now, endpoint, key, true);
        }
        self.services.serving.retain(|_, serving| serving.due > now);
        // Whoever looks into it may have been too busy to take the question.
        let remote = self.services.remote.iter();
        let asked = remote.filter(|(_, it)| matches!(it.translation, Translation::Asked));
        let again = asked.map(|(key, it)| (*key, it.foreign.clone()));
        let again = again.map(|(key, service)| Order::TranslateService { key, service });
        self.orders.extend(again);
    }

    /// A local client calls a service of a peer.
    pub(super) fn called(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        service: String,
        call: CallId,
        request: &Bytes,
    ) {
        let refused = match self.services.served.get(&service).copied() {
            None => Some(format!("no peer serves {service}")),
            Some(_) if self.services.pending.len() >= MAX_CALLS => {
                Some(format!("more than {MAX_CALLS} calls are under way"))
            }
            Some(key) => {
                let RemoteService { timeout, translation, .. } = &self.services.remote[&key];
                let (due, translation) = (now + *timeout, translation.clone());
                let mut pending = Pending { service: service.clone(), key, due, unsent: None };
                if let Translation::By(translator) = translation {
                    let (service, payload) = (service.clone(), request.clone());
                    let is_answer = false;
                    let turning = Turning { service, call, payload, translator, is_answer };
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

    /// Sends the calls that wait until their service's peer wants them.
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

    /// Whether the channel is one of calls; those that waited for it are sent.
    pub(super) fn calls_wanted(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        (peer, channel): Key,
        wanted: bool,
    ) -> bool {
        let mut remote = self.services.remote.iter();
        let found = remote.find(|((p, _), it)| *p == peer && it.calls == Some(channel));
        let Some((&key, _)) = found else {
            let mut local = self.services.local.values();
            return local.any(|it| it.answers.get(&peer) == Some(&channel));
        };
        if wanted {
            self.send_calls(now, endpoint, key);
        }
        true
    }

    /// What came of a call that was handed to a local server.
    pub(super) fn answered(
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
            let (here, peer) = (endpoint.name(), self.peer_name(peer));
            let text =
                format!("{service}: an answer is not sent from '{here}' to '{peer}': {error}");
            self.notice(now, text);
        }
    }

    /// Whether the message was a service's: a call to be handed on, or the answer to one.
    pub(super) fn service_message(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        key: Key,
        payload: &Bytes,
    ) -> bool {
        if let Some(service) = self.services.callers.get(&key).cloned() {
            match parse(payload) {
                Some(parsed) => self.hand_on(now, endpoint, key.0, service, parsed),
                None => self.notice(now, format!("a call of {service} is malformed")),
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
                    let turning = Turning { service, call, payload, translator, is_answer };
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
        let full = self.services.serving.len() >= MAX_CALLS;
        let serving = Serving { service: service.clone(), peer, theirs, due: now + patience };
        self.services.serving.insert(call, serving);
        if full {
            let reason =
                format!("more than {MAX_CALLS} calls to '{}' are under way", endpoint.name());
            return self.answered(now, endpoint, call, &Err(reason));
        }
        self.gateway(Command::Call { service, call, request, patience });
    }

    /// When the next call is to be given up.
    pub(super) fn next_call_due(&self) -> Option<Instant> {
        self.services.pending.values().map(|pending| pending.due).min()
    }

    pub(super) fn give_up_calls(&mut self, now: Instant) {
        let late: Vec<_> = self.services.pending.extract_if(.., |_, it| it.due <= now).collect();
        for (call, Pending { service, key, .. }) in late {
            let peer = self.peer_name(key.0);
            let after = self.services.remote.get(&key).map_or(0.0, |it| it.timeout.as_secs_f64());
            let reason = format!("no answer of {service} from '{peer}' within {after} s");
            self.notice(now, reason.clone());
            self.gateway(Command::Answer { service, call, outcome: Err(reason) });
        }
    }
}
