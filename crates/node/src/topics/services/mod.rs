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

use super::parameters;
use super::peers::REOFFER_GRACE;
use super::remote::Told;
use super::rights::{Right, TypeOf};
use super::waiting::{Act, Waiting};
use super::{ChannelKey, Topics, Translation};
use crate::codec::Job;
use crate::limits::MAX_CALL_TIMEOUT;
use crate::topics::Context;
use calls::{Pending, Serving};
use std::collections::BTreeMap;
use std::sync::Arc;
use tautline_gateway::mapping::{
    ActionCall, RESULT_TIMEOUT, SERVICE_TIMEOUT, ServiceTreatment, action_call, service_treatment,
};
use tautline_gateway::types::check::{Check, ServiceChecker};
use tautline_gateway::types::translate::{LocalService as LocalForm, ServiceTranslator};
use tautline_gateway::{CallId, Command, Service};
use tautline_proto::{
    ChannelConfig, ChannelId, DeliveryOrder, Duration, Instant, LinkPolicy, LinkUse, OfferedQos,
    OfferedTopic, PeerId, Role,
};

/// Calls of services for parameters, which need no rule, leave after all else.
const PRIORITY_OF_PARAMETERS: u8 = 0;
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
    /// The treatment of a local service: that of its rule, or that of a service for parameters of a
    /// node, which need no rule.
    pub(super) fn treatment_of_service(
        &self,
        cx: &Context<'_>,
        service: &Service,
    ) -> Option<ServiceTreatment> {
        let name = &service.name;
        service_treatment(&self.service_rules, name).or_else(|| {
            let is_one = service.type_name.starts_with(parameters::TYPES);
            let may_use = |peer: &PeerId| cx.peers.rights(*peer).may_use_parameters(name);
            let peers = cx.endpoint.peers().filter(|peer| is_one && may_use(peer));
            let to: Vec<String> = peers.map(|peer| cx.peers.name(peer).to_owned()).collect();
            let timeout = SERVICE_TIMEOUT;
            (!to.is_empty()).then_some(ServiceTreatment {
                priority: PRIORITY_OF_PARAMETERS,
                timeout,
                to: Some(to),
            })
        })
    }

    /// Advertises a service of this robot to the peers that its rule and their rights allow.
    pub(crate) fn service_offered(&mut self, cx: &mut Context<'_>, service: Service) {
        let Some(treatment) = self.treatment_of_service(cx, &service) else { return };
        let name = service.name.clone();
        let known = self.services.local.remove(&name);
        let mut local = LocalService {
            checker: ServiceChecker::of_own(&service),
            service,
            treatment,
            answers: known.map(|known| known.answers).unwrap_or_default(),
            told: Told::default(),
        };
        for peer in cx.endpoint.peers() {
            if !cx.peers.is_for(peer, &name, local.treatment.to.as_deref()) {
                continue;
            }
            let ServiceTreatment { priority, timeout, .. } = local.treatment;
            let config = channel(&local.service, Role::Answers, priority, timeout);
            let known = local.answers.get(&peer).copied();
            if let Some(channel) = cx.offer_channel(peer, known, config) {
                local.answers.insert(peer, channel);
            }
        }
        self.services.local.insert(name.clone(), local);
        self.open_call_channels(cx, &name);
    }

    /// Opens the channels of peers that advertised calls before the service was served here.
    fn open_call_channels(&mut self, cx: &mut Context<'_>, name: &str) {
        let mut waiting = Vec::new();
        let local = self.services.local.get(name);
        let answered = |peer: &PeerId| local.is_some_and(|it| it.answers.contains_key(peer));
        for peer in cx.endpoint.peers().filter(answered) {
            let calls = |channel: &ChannelId| {
                let found = cx.endpoint.channel_in(peer, *channel).map(|(offered, ..)| offered);
                found.is_some_and(|it| it.role == Role::Calls && it.name == name)
            };
            let known = |channel: &ChannelId| {
                let channel = *channel;
                self.services.callers.contains_key(&ChannelKey { peer, channel })
            };
            let calls = cx.endpoint.channels_in(peer).filter(|it| calls(it) && !known(it));
            waiting.extend(calls.map(|channel| ChannelKey { peer, channel }));
        }
        for key in waiting {
            self.calls_offered(cx, key, name);
        }
    }

    pub(crate) fn service_withdrawn(&mut self, cx: &mut Context<'_>, name: &str) {
        let now = cx.now;
        let Some(gone) = self.services.local.remove(name) else { return };
        for (peer, channel) in gone.answers {
            cx.endpoint.withdraw(now, peer, channel);
        }
        // The gateway still answers the calls under way; their responses are discarded.
        self.services.serving.retain(|_, serving| serving.service != name);
    }

    /// Handles a peer's advertisement of a service, or of calls to ours.
    pub(crate) fn service_channel_offered(
        &mut self,
        cx: &mut Context<'_>,
        key: ChannelKey,
        offered: OfferedTopic,
        definition: Arc<str>,
    ) {
        let now = cx.now;
        if offered.role == Role::Calls {
            return self.calls_offered(cx, key, &offered.name);
        }
        let definition = self.within_budget(cx, key, &offered.name, definition);
        let accepted = cx.peers.accepted_name(key.peer, Act::Serve, &offered);
        let service = accepted.as_ref().ok().map(|name| Service {
            name: name.clone(),
            type_name: offered.type_name.clone(),
            type_hash: offered.type_hash.clone(),
            definition,
        });
        let known = self.replace_service(cx, key, &offered.name, service.as_ref());
        if let Err(denied) = &accepted {
            cx.deny(key, Act::Serve, &offered, denied);
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
        self.offer_calls(cx, key.peer, &mut remote);
        cx.endpoint.want(now, key.peer, key.channel, true);
        let (is_known, service) = (remote.translation.is_known(), remote.foreign.clone());
        self.services.remote.insert(key, remote);
        match is_known {
            true => self.serve(cx, &service.name),
            false => cx.codec(Job::LocalizeService { key, service }),
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
    fn serve_if_allowed(&mut self, cx: &mut Context<'_>, key: ChannelKey) {
        let Some(remote) = self.services.remote.get(&key) else { return };
        let (offered, here) = (&remote.foreign.type_name, &remote.service);
        let (name, hash) = (here.type_name.as_str(), here.type_hash.as_str());
        let found = TypeOf { offered, name, hash, is_foreign: false };
        if cx.peers.rights(key.peer).serve(&remote.offered_name, found) == Right::Given {
            let name = here.name.clone();
            return self.serve(cx, &name);
        }
        let waiting = cx.waiting_to(Act::Serve, key.peer, &remote.offered_name, offered);
        self.remove_service(cx, key);
        cx.wait_for_line(key, waiting);
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
    fn offer_calls(&mut self, cx: &mut Context<'_>, peer: PeerId, remote: &mut RemoteService) {
        let theirs = Service { name: remote.offered_name.clone(), ..remote.foreign.clone() };
        let config = channel(&theirs, Role::Calls, remote.priority, remote.timeout);
        remote.calls = cx.offer_channel(peer, remote.calls, config);
    }

    /// Takes the local form of a peer's service, requested as `foreign`.
    pub(crate) fn service_localized(
        &mut self,
        cx: &mut Context<'_>,
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
                self.serve_if_allowed(cx, key);
            }
            Err(reason) => {
                remote.translation = Translation::Impossible;
                cx.refuse(key, &foreign.name, &reason);
            }
        }
    }

    /// Removes the earlier services in place of an advertised one. A new session may give this
    /// number to another service, or this service another number. Returns the state of `service` if
    /// it is known; its clients continue.
    fn replace_service(
        &mut self,
        cx: &mut Context<'_>,
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
                self.remove_service(cx, old);
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
    fn serve(&mut self, cx: &mut Context<'_>, name: &str) {
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
                cx.gateway(Command::Serve { service });
                // The peer may have subscribed to them already.
                self.services.unpark(name, key);
                self.send_calls(cx, key);
            }
            None => {
                if self.services.served.remove(name).is_some() {
                    cx.gateway(Command::Unserve { service: name.to_owned() });
                }
            }
        }
    }

    fn calls_offered(&mut self, cx: &mut Context<'_>, key: ChannelKey, name: &str) {
        let now = cx.now;
        let local = self.services.local.get(name);
        let is_served = local.is_some();
        let is_offered = local.is_some_and(|it| it.answers.contains_key(&key.peer));
        cx.waiting.remove(&key);
        if is_offered && cx.peers.rights(key.peer).may_call(name) {
            self.services.callers.insert(key, name.to_owned());
            return cx.endpoint.want(now, key.peer, key.channel, true);
        }
        // The channel may have belonged to another service.
        self.services.callers.remove(&key);
        if is_offered {
            let waiting = Waiting::to_call(name, self.type_of_service(name));
            cx.wait_for_line(key, waiting);
        } else {
            if is_served {
                cx.record_refusal(key, "the service is not advertised to this peer");
            }
            // The peer's calls stay queued: the service may return soon.
            cx.endpoint.want(now, key.peer, key.channel, false);
        }
    }

    /// Whether a refused channel belongs to a service, of calls or responses. If the peer takes no
    /// calls, callers get the reason immediately.
    pub(crate) fn calls_refused(
        &mut self,
        cx: &mut Context<'_>,
        channel: ChannelKey,
        reason: &str,
    ) -> bool {
        let now = cx.now;
        let reason = format!("'{}' refuses {reason}", cx.peers.name(channel.peer));
        if let Some((key, remote)) = self.services.called_on(channel) {
            let state = cx.endpoint.channel_out(channel.peer, channel.channel);
            // It still takes calls, except one that was too large.
            let is_wanted = state.is_some_and(|(_, wanted, _)| wanted);
            if !is_wanted {
                remote.refused = Some(reason.clone());
                self.fail(cx, |pending| pending.key == key, &reason);
            } else {
                remote.too_large = Some((now, reason.clone()));
            }
        } else if !self.services.is_answered_on(channel) {
            return false;
        }
        cx.peer_notice(channel.peer, &reason);
        true
    }

    /// Removes a channel of a service; returns whether it belonged to one.
    pub(crate) fn service_channel_withdrawn(
        &mut self,
        cx: &mut Context<'_>,
        key: ChannelKey,
    ) -> bool {
        if self.services.callers.remove(&key).is_some() {
            return true;
        }
        self.remove_service(cx, key)
    }

    fn remove_service(&mut self, cx: &mut Context<'_>, key: ChannelKey) -> bool {
        let now = cx.now;
        let Some(gone) = self.services.remote.remove(&key) else { return false };
        if let Some(calls) = gone.calls {
            cx.endpoint.withdraw(now, key.peer, calls);
        }
        let peer = cx.peers.name(key.peer);
        let reason = match gone.stale_since {
            None => format!("the server of {} at '{peer}' has stopped", gone.offered_name),
            Some(_) => format!("'{peer}' has restarted"),
        };
        self.services.park(key);
        self.fail(cx, |pending| pending.key == key, &reason);
        self.serve(cx, &gone.service.name);
        true
    }

    /// Ends the calls to and from a peer that has started a new session: they are lost. Calls about
    /// goals are sent again.
    pub(crate) fn new_session_of_services(&mut self, cx: &mut Context<'_>, peer: PeerId) {
        let now = cx.now;
        for (_, remote) in self.services.remote.iter_mut().filter(|(key, _)| key.peer == peer) {
            remote.stale_since.get_or_insert(now);
        }
        self.services.callers.retain(|key, _| key.peer != peer);
        self.services.serving.retain(|_, serving| serving.peer != peer);
        let reason = format!("'{}' has restarted", cx.peers.name(peer));
        self.services.prepare_again(|pending| pending.key.peer == peer);
        self.fail(cx, |pending| pending.key.peer == peer && !pending.is_repeatable(), &reason);
    }

    /// Gives up services that a peer has not advertised in its new session.
    pub(crate) fn sweep_services(&mut self, cx: &mut Context<'_>) {
        let now = cx.now;
        let over = |since: Option<Instant>| since.is_some_and(|at| now.since(at) > REOFFER_GRACE);
        let remote = self.services.remote.iter();
        let gone: Vec<ChannelKey> =
            remote.filter(|(_, it)| over(it.stale_since)).map(|(key, _)| *key).collect();
        for key in gone {
            self.remove_service(cx, key);
        }
        self.services.serving.retain(|_, serving| serving.due > now);
        self.retry_parked(cx);
        // The thread that examines them may have been too busy to take the request.
        let remote = self.services.remote.iter();
        let asked = remote.filter(|(_, it)| matches!(it.translation, Translation::Requested));
        let again = asked.map(|(key, it)| (*key, it.foreign.clone()));
        again.for_each(|(key, service)| cx.codec(Job::LocalizeService { key, service }));
    }
}
