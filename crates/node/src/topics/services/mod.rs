// SPDX-License-Identifier: Apache-2.0
//! Services across the radio: which peer serves which service, and the calls under way.
//!
//! A service has a channel of responses from the robot with its server, and a channel of calls to
//! it from each robot that may call. Each call is a message, passed to the server once even if its
//! packets are repeated. Its caller stops waiting at the service's timeout. Calls of an action have
//! their own rules (`goals.rs`).

mod calls;
mod checked;
mod goals;
mod reload;

use super::remote::{REOFFER_GRACE, Told};
use super::rights::{Right, TypeOf};
use super::waiting::Act;
use super::{ChannelKey, Order, Topics, Translation};
use crate::codec::Job;
use crate::limits::MAX_CALL_TIMEOUT;
use crate::treatment::services::{
    RESULT_TIMEOUT, SERVICE_TIMEOUT, ServiceTreatment, service_treatment,
};
use calls::{Pending, Serving};
use std::collections::BTreeMap;
use std::sync::Arc;
use tautline_gateway::action_names::{ActionCall, action_call};
use tautline_gateway::types::check::{Check, ServiceChecker};
use tautline_gateway::types::translate::{LocalService as LocalForm, ServiceTranslator};
use tautline_gateway::{CallId, Command, Service};
use tautline_proto::{
    ChannelConfig, ChannelId, DeliveryOrder, Duration, Instant, LinkPolicy, LinkUse, OfferedQos,
    OfferedTopic, PeerId, Role,
};

/// No call or response replaces another.
const KEEP_ALL: u32 = 65_535;

#[derive(Debug, Default)]
pub(super) struct Services {
    /// Services of this robot, by local name.
    local: BTreeMap<String, LocalService>,
    /// Services that peers advertise, by the channel of their responses.
    remote: BTreeMap<ChannelKey, RemoteService>,
    /// The peer's service that is served here, by local name.
    served: BTreeMap<String, ChannelKey>,
    /// Services of this robot, by the channel on which a peer calls them.
    callers: BTreeMap<ChannelKey, String>,
    pending: BTreeMap<CallId, Pending>,
    /// Calls about goals whose service is away; they are sent again when it returns.
    parked: BTreeMap<CallId, Pending>,
    /// Calls so far that no client made.
    own_calls: u64,
    serving: BTreeMap<CallId, Serving>,
    next_call: CallId,
}

#[derive(Debug)]
struct LocalService {
    service: Service,
    treatment: ServiceTreatment,
    answers: BTreeMap<PeerId, ChannelId>,
    /// For requests of peers.
    checker: Option<ServiceChecker>,
    told: Told,
}

#[derive(Debug)]
struct RemoteService {
    offered_name: String,
    /// The service as the peer has it, but under its local name.
    foreign: Service,
    /// The service as served here; the same where both robots use the same ROS.
    service: Service,
    translation: Translation<ServiceTranslator>,
    /// How responses are checked.
    check: Check<ServiceChecker>,
    told: Told,
    priority: u8,
    timeout: Duration,
    /// Our channel of calls to the peer.
    calls: Option<ChannelId>,
    /// The reason why the peer takes no calls.
    refused: Option<String>,
    /// The last call or response that was too large for a node: when, and which sizes.
    too_large: Option<(Instant, String)>,
    /// Time since which the peer has a new session without advertising the service again.
    stale_since: Option<Instant>,
}

impl RemoteService {
    fn new(offered_name: String, foreign: Service) -> Self {
        Self {
            offered_name,
            service: foreign.clone(),
            foreign,
            translation: Translation::Requested,
            check: Check::Impossible,
            told: Told::default(),
            priority: 0,
            timeout: SERVICE_TIMEOUT,
            calls: None,
            refused: None,
            too_large: None,
            stale_since: None,
        }
    }

    fn can_be_served(&self) -> bool {
        self.translation.is_known() && self.stale_since.is_none()
    }
}

fn channel(service: &Service, role: Role, priority: u8, timeout: Duration) -> ChannelConfig {
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
            order: DeliveryOrder::Arrival,
        },
        definition: service.definition.clone(),
        repair: true,
        thin: false,
        fec: None,
        links: LinkUse { policy: LinkPolicy::of_priority(priority), ..LinkUse::default() },
    }
}

impl Topics {
    /// Advertises a service of this robot to the peers that its rule and their rights allow.
    pub(crate) fn service_offered(&mut self, now: Instant, service: Service) {
        let Some(treatment) = self.treatment_of_service(&service) else { return };
        let name = service.name.clone();
        let known = self.services.local.remove(&name);
        let mut local = LocalService {
            checker: ServiceChecker::of_own(&service),
            service,
            treatment,
            answers: known.map(|known| known.answers).unwrap_or_default(),
            told: Told::default(),
        };
        for peer in self.endpoint.peers() {
            if !self.is_for(peer, &name, local.treatment.to.as_deref()) {
                continue;
            }
            let ServiceTreatment { priority, timeout, .. } = local.treatment;
            let config = channel(&local.service, Role::Answers, priority, timeout);
            let known = local.answers.get(&peer).copied();
            if let Some(channel) = self.offer_channel(now, peer, known, config) {
                local.answers.insert(peer, channel);
            }
        }
        self.services.local.insert(name.clone(), local);
        self.open_call_channels(now, &name);
    }

    /// Opens the channels of peers that advertised calls before the service was served here.
    fn open_call_channels(&mut self, now: Instant, name: &str) {
        let mut waiting = Vec::new();
        let local = self.services.local.get(name);
        let answered = |peer: &PeerId| local.is_some_and(|it| it.answers.contains_key(peer));
        for peer in self.endpoint.peers().filter(answered) {
            let calls = |channel: &ChannelId| {
                let found = self.endpoint.channel_in(peer, *channel).map(|(offered, ..)| offered);
                found.is_some_and(|it| it.role == Role::Calls && it.name == name)
            };
            let known = |channel: &ChannelId| {
                let channel = *channel;
                self.services.callers.contains_key(&ChannelKey { peer, channel })
            };
            let calls = self.endpoint.channels_in(peer).filter(|it| calls(it) && !known(it));
            waiting.extend(calls.map(|channel| ChannelKey { peer, channel }));
        }
        for key in waiting {
            self.calls_offered(now, key, name);
        }
    }

    pub(crate) fn service_withdrawn(&mut self, now: Instant, name: &str) {
        let Some(gone) = self.services.local.remove(name) else { return };
        for (peer, channel) in gone.answers {
            self.endpoint.withdraw(now, peer, channel);
        }
        // The gateway still answers the calls under way; their responses are discarded.
        self.services.serving.retain(|_, serving| serving.service != name);
    }

    /// Handles a peer's advertisement of a service, or of calls to ours.
    pub(crate) fn service_channel_offered(
        &mut self,
        now: Instant,
        key: ChannelKey,
        offered: OfferedTopic,
        definition: Arc<str>,
    ) {
        if offered.role == Role::Calls {
            return self.calls_offered(now, key, &offered.name);
        }
        let definition = self.within_budget(now, key, &offered.name, definition);
        let accepted = self.accepted_name(key.peer, Act::Serve, &offered);
        let service = accepted.as_ref().ok().map(|name| Service {
            name: name.clone(),
            type_name: offered.type_name.clone(),
            type_hash: offered.type_hash.clone(),
            definition,
        });
        let known = self.replace_service(now, key, &offered.name, service.as_ref());
        if let Err(denied) = &accepted {
            self.deny(now, key, Act::Serve, &offered, denied);
        }
        let Some(service) = service else { return };
        let advertised = offered.lifespan.unwrap_or(SERVICE_TIMEOUT);
        let mut remote = RemoteService {
            priority: offered.priority,
            timeout: self.patience(&service.name, advertised),
            refused: None,
            stale_since: None,
            ..known.unwrap_or_else(|| RemoteService::new(offered.name, service))
        };
        self.offer_calls(now, key.peer, &mut remote);
        self.endpoint.want(now, key.peer, key.channel, true);
        let (is_known, service) = (remote.translation.is_known(), remote.foreign.clone());
        self.services.remote.insert(key, remote);
        match is_known {
            true => self.serve(now, &service.name),
            false => self.codec(Job::LocalizeService { key, service }),
        }
    }

    /// Returns the timeout of calls to a peer's service: at most that of the peer, and at most that
    /// of this file's rule for the local name.
    fn patience(&self, name: &str, theirs: Duration) -> Duration {
        if matches!(action_call(name), Some(ActionCall::GetResult | ActionCall::CancelGoal)) {
            return theirs.min(RESULT_TIMEOUT);
        }
        let own = service_treatment(&self.service_rules, name).map(|rule| rule.timeout);
        theirs.min(MAX_CALL_TIMEOUT).min(own.unwrap_or(MAX_CALL_TIMEOUT))
    }

    pub(crate) fn type_of_service(&self, name: &str) -> Option<&str> {
        self.services.local.get(name).map(|it| it.service.type_name.as_str())
    }

    /// Serves a service if the peer has the right. Its local type is certain only after
    /// translation.
    fn serve_if_allowed(&mut self, now: Instant, key: ChannelKey) {
        let Some(remote) = self.services.remote.get(&key) else { return };
        let (offered, here) = (&remote.foreign.type_name, &remote.service);
        let (name, hash) = (here.type_name.as_str(), here.type_hash.as_str());
        let found = TypeOf { offered, name, hash, is_foreign: false };
        if self.rights(key.peer).serve(&remote.offered_name, found) == Right::Given {
            let name = here.name.clone();
            return self.serve(now, &name);
        }
        let waiting = self.waiting_to(Act::Serve, key.peer, &remote.offered_name, offered);
        self.remove_service(now, key);
        self.wait_for_line(now, key, waiting);
    }

    /// Returns the bytes of definitions kept of the peer's other services.
    pub(crate) fn definition_bytes_of_services(&self, key: ChannelKey) -> usize {
        let others = self.services.remote.iter();
        let others = others.filter(|(other, _)| other.peer == key.peer && **other != key);
        others.map(|(_, it)| it.foreign.definition.len() + it.service.definition.len()).sum()
    }

    /// Returns the fields of the peer's services that only one ROS has.
    pub(crate) fn one_sided_fields_of_services(
        &self,
        peer: PeerId,
    ) -> impl Iterator<Item = &String> {
        let services = self.services.remote.range(ChannelKey::all_of(peer));
        let translators = services.filter_map(|(_, it)| it.translation.known_translator());
        translators.flat_map(ServiceTranslator::one_sided)
    }

    /// Advertises calls to a peer's service, on the existing channel if there is one.
    fn offer_calls(&mut self, now: Instant, peer: PeerId, remote: &mut RemoteService) {
        let theirs = Service { name: remote.offered_name.clone(), ..remote.foreign.clone() };
        let config = channel(&theirs, Role::Calls, remote.priority, remote.timeout);
        remote.calls = self.offer_channel(now, peer, remote.calls, config);
    }

    /// Takes the local form of a peer's service, requested as `foreign`.
    pub(crate) fn service_localized(
        &mut self,
        now: Instant,
        key: ChannelKey,
        foreign: &Service,
        found: Result<LocalForm, String>,
    ) {
        let remote = self.services.remote.get_mut(&key);
        let Some(remote) = remote.filter(|remote| remote.foreign == *foreign) else { return };
        match found {
            Ok(LocalForm { service, translator, check }) => {
                let by = |translator| Translation::By(Arc::new(translator));
                remote.service = service;
                remote.translation = translator.map_or(Translation::None, by);
                remote.check = check;
                self.serve_if_allowed(now, key);
            }
            Err(reason) => {
                remote.translation = Translation::Impossible;
                self.refuse(now, key, &foreign.name, &reason);
            }
        }
    }

    /// Removes the earlier services in place of an advertised one. A new session may give this
    /// number to another service, or this service another number. Returns the state of `service` if
    /// it is known; its clients continue.
    fn replace_service(
        &mut self,
        now: Instant,
        key: ChannelKey,
        offered_name: &str,
        service: Option<&Service>,
    ) -> Option<RemoteService> {
        let earlier = self.services.remote.iter().filter(|(other, it)| {
            **other == key || other.peer == key.peer && it.offered_name == offered_name
        });
        let mut known = None;
        for old in earlier.map(|(old, _)| *old).collect::<Vec<_>>() {
            let same = |it: &RemoteService| {
                it.offered_name == offered_name && Some(&it.foreign) == service
            };
            if !self.services.remote.get(&old).is_some_and(same) {
                self.remove_service(now, old);
                continue;
            }
            known = self.services.remote.remove(&old);
            let served = self.services.served.values_mut();
            let pending = self.services.pending.values_mut().map(|it| &mut it.key);
            served.chain(pending).filter(|it| **it == old).for_each(|it| *it = key);
        }
        known
    }

    /// Serves a service that a peer advertises under a local name, or stops serving if no peer
    /// does.
    fn serve(&mut self, now: Instant, name: &str) {
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
                // The peer may have subscribed to them already.
                self.services.unpark(name, key);
                self.send_calls(now, key);
            }
            None => {
                if self.services.served.remove(name).is_some() {
                    self.gateway(Command::Unserve { service: name.to_owned() });
                }
            }
        }
    }

    fn calls_offered(&mut self, now: Instant, key: ChannelKey, name: &str) {
        let local = self.services.local.get(name);
        let is_served = local.is_some();
        let is_offered = local.is_some_and(|it| it.answers.contains_key(&key.peer));
        self.waiting.remove(&key);
        if is_offered && self.rights(key.peer).may_call(name) {
            self.services.callers.insert(key, name.to_owned());
            return self.endpoint.want(now, key.peer, key.channel, true);
        }
        // The channel may have belonged to another service.
        self.services.callers.remove(&key);
        if is_offered {
            let waiting = self.waiting_to_call(name);
            self.wait_for_line(now, key, waiting);
        } else {
            if is_served {
                self.record_refusal(key, "the service is not advertised to this peer");
            }
            // The peer's calls stay queued: the service may return soon.
            self.endpoint.want(now, key.peer, key.channel, false);
        }
    }

    /// Whether a refused channel belongs to a service, of calls or responses. If the peer takes no
    /// calls, callers get the reason immediately.
    pub(crate) fn calls_refused(
        &mut self,
        now: Instant,
        channel: ChannelKey,
        reason: &str,
    ) -> bool {
        let reason = format!("'{}' refuses {reason}", self.peer_name(channel.peer));
        if let Some((key, remote)) = self.services.called_on(channel) {
            let state = self.endpoint.channel_out(channel.peer, channel.channel);
            // It still takes calls, except one that was too large.
            let is_wanted = state.is_some_and(|(_, wanted, _)| wanted);
            if !is_wanted {
                remote.refused = Some(reason.clone());
                self.fail(now, |pending| pending.key == key, &reason);
            } else {
                remote.too_large = Some((now, reason.clone()));
            }
        } else if !self.services.is_answered_on(channel) {
            return false;
        }
        self.peer_notice(now, channel.peer, &reason);
        true
    }

    /// Removes a channel of a service; returns whether it belonged to one.
    pub(crate) fn service_channel_withdrawn(&mut self, now: Instant, key: ChannelKey) -> bool {
        if self.services.callers.remove(&key).is_some() {
            return true;
        }
        self.remove_service(now, key)
    }

    fn remove_service(&mut self, now: Instant, key: ChannelKey) -> bool {
        let Some(gone) = self.services.remote.remove(&key) else { return false };
        if let Some(calls) = gone.calls {
            self.endpoint.withdraw(now, key.peer, calls);
        }
        let peer = self.peer_name(key.peer);
        let reason = match gone.stale_since {
            None => format!("the server of {} at '{peer}' has stopped", gone.offered_name),
            Some(_) => format!("'{peer}' has restarted"),
        };
        self.services.park(key);
        self.fail(now, |pending| pending.key == key, &reason);
        self.serve(now, &gone.service.name);
        true
    }

    /// Ends the calls to and from a peer that has started a new session: they are lost. Calls about
    /// goals are sent again.
    pub(crate) fn new_session_of_services(&mut self, now: Instant, peer: PeerId) {
        for (_, remote) in self.services.remote.iter_mut().filter(|(key, _)| key.peer == peer) {
            remote.stale_since.get_or_insert(now);
        }
        self.services.callers.retain(|key, _| key.peer != peer);
        self.services.serving.retain(|_, serving| serving.peer != peer);
        let reason = format!("'{}' has restarted", self.peer_name(peer));
        self.services.prepare_again(|pending| pending.key.peer == peer);
        self.fail(now, |pending| pending.key.peer == peer && !pending.is_repeatable(), &reason);
    }

    /// Gives up services that a peer has not advertised in its new session.
    pub(crate) fn sweep_services(&mut self, now: Instant) {
        let over = |since: Option<Instant>| since.is_some_and(|at| now.since(at) > REOFFER_GRACE);
        let remote = self.services.remote.iter();
        let gone: Vec<ChannelKey> =
            remote.filter(|(_, it)| over(it.stale_since)).map(|(key, _)| *key).collect();
        for key in gone {
            self.remove_service(now, key);
        }
        self.services.serving.retain(|_, serving| serving.due > now);
        self.retry_parked(now);
        // The thread that examines them may have been too busy to take the request.
        let remote = self.services.remote.iter();
        let asked = remote.filter(|(_, it)| matches!(it.translation, Translation::Requested));
        let again = asked.map(|(key, it)| (*key, it.foreign.clone()));
        let again = again.map(|(key, service)| Order::Codec(Job::LocalizeService { key, service }));
        self.orders.extend(again);
    }
}
