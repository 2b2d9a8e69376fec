// SPDX-License-Identifier: Apache-2.0
//! Services of peers that this robot calls.

use super::channel::service_channel;
use super::pending::Calls;
use crate::codec::job::Job;
use crate::limits::MAX_CALL_TIMEOUT;
use crate::topics::context::Context;
use crate::topics::definitions;
use crate::topics::key::ChannelKey;
use crate::topics::peers::REOFFER_GRACE;
use crate::topics::report_limiter::ReportLimiter;
use crate::topics::rights::{OfferedType, Right};
use crate::topics::translation::Translation;
use crate::topics::unchecked::{Unchecked, missing_definition};
use crate::topics::waiting::RequestKind;
use crate::treatment::services::{RESULT_TIMEOUT, SERVICE_TIMEOUT, ServiceRule, service_treatment};
use std::collections::BTreeMap;
use std::sync::Arc;
use tautline_gateway::action_names::{ActionCall, action_call};
use tautline_gateway::types::check::{Check, ServiceChecker};
use tautline_gateway::types::translate::{LocalService as LocalForm, ServiceTranslator};
use tautline_gateway::{Command, Outcome, Service};
use tautline_proto::{ChannelId, Duration, Instant, OfferedTopic, PeerId, Role};

#[derive(Debug)]
pub(super) struct RemoteService {
    pub(super) offered_name: String,
    /// The service in the form of the peer's ROS, but under its local name.
    pub(super) peer_form: Service,
    /// The service as it is served here. It is the same if both robots use the same ROS.
    pub(super) service: Service,
    pub(super) translation: Translation<ServiceTranslator>,
    /// How responses are checked.
    pub(super) check: Check<ServiceChecker>,
    pub(super) report_limiter: ReportLimiter,
    pub(super) priority: u8,
    pub(super) timeout: Duration,
    /// Our channel of calls to the peer.
    pub(super) call_channel: Option<ChannelId>,
    /// The reason why the peer takes no calls.
    pub(super) refusal_reason: Option<String>,
    /// When a call or response was last too large for a node, and the sizes in words.
    pub(super) too_large: Option<(Instant, String)>,
    /// Time at which the peer began a new session, in which it has not advertised the service again.
    pub(super) stale_since: Option<Instant>,
}

impl RemoteService {
    fn new(offered_name: String, peer_form: Service) -> Self {
        Self {
            offered_name,
            service: peer_form.clone(),
            peer_form,
            translation: Translation::Requested,
            check: Check::Impossible,
            report_limiter: ReportLimiter::default(),
            priority: 0,
            timeout: SERVICE_TIMEOUT,
            call_channel: None,
            refusal_reason: None,
            too_large: None,
            stale_since: None,
        }
    }

    fn can_be_served(&self) -> bool {
        self.translation.is_known() && self.stale_since.is_none()
    }
}

#[derive(Debug)]
pub(crate) struct RemoteServices {
    rules: Arc<[ServiceRule]>,
    /// Services that peers advertise, by the channel of their responses.
    pub(super) services: BTreeMap<ChannelKey, RemoteService>,
    /// The peer's service that is served here, by local name.
    pub(super) served: BTreeMap<String, ChannelKey>,
    pub(super) calls: Calls,
    /// Responses of peers that were dropped because they are not of their type.
    pub(super) malformed: u64,
}

impl RemoteServices {
    pub(super) fn new(rules: Arc<[ServiceRule]>) -> Self {
        let (services, served) = (BTreeMap::new(), BTreeMap::new());
        Self { rules, services, served, calls: Calls::default(), malformed: 0 }
    }

    pub(super) fn apply_rules(&mut self, rules: Arc<[ServiceRule]>) {
        self.rules = rules;
    }

    /// Handles a peer's advertisement of a service. `definition_bytes` is the number of bytes of
    /// definitions that are kept of the peer's topics.
    pub(super) fn on_offered(
        &mut self,
        cx: &mut Context<'_>,
        key: ChannelKey,
        offered: OfferedTopic,
        definition: Arc<str>,
        definition_bytes: usize,
    ) {
        let kept = definition_bytes + self.definition_bytes(key);
        let definition = definitions::enforce_budget(cx, key, &offered.name, definition, kept);
        let accepted = cx.peers.accepted_name(key.peer, RequestKind::Serve, &offered);
        let service = accepted.as_ref().ok().map(|name| Service {
            name: name.clone(),
            type_name: offered.type_name.clone(),
            type_hash: offered.type_hash.clone(),
            definition,
        });
        let known = self.replace(cx, key, &offered.name, service.as_ref());
        if let Err(denied) = &accepted {
            cx.deny(key, RequestKind::Serve, &offered, denied);
        }
        let Some(service) = service else { return };
        let advertised = offered.lifespan.unwrap_or(SERVICE_TIMEOUT);
        let mut remote = RemoteService {
            priority: offered.priority,
            timeout: self.call_timeout(&service.name, advertised),
            refusal_reason: None,
            stale_since: None,
            ..known.unwrap_or_else(|| RemoteService::new(offered.name, service))
        };
        self.offer_calls(cx, key.peer, &mut remote);
        cx.endpoint.peer_mut(key.peer).want(cx.now, key.channel, true);
        let (is_known, service) = (remote.translation.is_known(), remote.peer_form.clone());
        self.services.insert(key, remote);
        match is_known {
            true => self.serve(cx, &service.name),
            false => cx.submit_job(Job::LocalizeService { key, service }),
        }
    }

    /// Returns the timeout of calls to a peer's service. It exceeds neither the peer's timeout nor
    /// that of this file's rule for the local name.
    fn call_timeout(&self, name: &str, theirs: Duration) -> Duration {
        if matches!(action_call(name), Some(ActionCall::GetResult | ActionCall::CancelGoal)) {
            return theirs.min(RESULT_TIMEOUT);
        }
        let own = service_treatment(&self.rules, name).map(|rule| rule.timeout);
        theirs.min(MAX_CALL_TIMEOUT).min(own.unwrap_or(MAX_CALL_TIMEOUT))
    }

    /// Advertises calls to a peer's service, on the existing channel if there already is one.
    fn offer_calls(&mut self, cx: &mut Context<'_>, peer: PeerId, remote: &mut RemoteService) {
        let theirs = Service { name: remote.offered_name.clone(), ..remote.peer_form.clone() };
        let config = service_channel(&theirs, Role::Calls, remote.priority, remote.timeout);
        remote.call_channel = cx.offer_channel(peer, remote.call_channel, config);
    }

    /// Takes the local form of a peer's service, which was requested as `peer_form`.
    pub(crate) fn on_localized(
        &mut self,
        cx: &mut Context<'_>,
        key: ChannelKey,
        peer_form: &Service,
        found: Result<LocalForm, String>,
    ) {
        let remote = self.services.get_mut(&key);
        let Some(remote) = remote.filter(|remote| remote.peer_form == *peer_form) else { return };
        match found {
            Ok(LocalForm { service, translator, check }) => {
                remote.service = service;
                remote.translation = translator.into();
                remote.check = check;
                self.serve_if_allowed(cx, key);
            }
            Err(reason) => {
                remote.translation = Translation::Impossible;
                cx.refuse(key, &peer_form.name, &reason);
            }
        }
    }

    /// Serves a service if the peer has the right to serve it. Called only after translation,
    /// because only then the local type is certain.
    fn serve_if_allowed(&mut self, cx: &mut Context<'_>, key: ChannelKey) {
        let Some(remote) = self.services.get(&key) else { return };
        let (offered, here) = (&remote.peer_form.type_name, &remote.service);
        let (name, hash) = (here.type_name.as_str(), here.type_hash.as_str());
        let found = OfferedType { offered, name, hash, is_foreign: false };
        if cx.peers.rights(key.peer).right_to_serve(&remote.offered_name, found) == Right::Granted {
            let name = here.name.clone();
            return self.serve(cx, &name);
        }
        let waiting =
            cx.pending_request(RequestKind::Serve, key.peer, &remote.offered_name, offered);
        self.remove(cx, key);
        cx.wait_for_config_line(key, waiting);
    }

    /// Removes the earlier services that an advertised service replaces. In a new session, this
    /// number may have belonged to another service, or this service may have had another number. If
    /// `service` was known, returns its state; its clients continue.
    fn replace(
        &mut self,
        cx: &mut Context<'_>,
        key: ChannelKey,
        offered_name: &str,
        service: Option<&Service>,
    ) -> Option<RemoteService> {
        let earlier = self.services.iter().filter(|(other, it)| {
            **other == key || other.peer == key.peer && it.offered_name == offered_name
        });
        let mut known = None;
        for old in earlier.map(|(old, _)| *old).collect::<Vec<_>>() {
            let same = |it: &RemoteService| {
                it.offered_name == offered_name && Some(&it.peer_form) == service
            };
            if !self.services.get(&old).is_some_and(same) {
                self.remove(cx, old);
                continue;
            }
            known = self.services.remove(&old);
            let served = self.served.values_mut();
            let pending = self.calls.pending.values_mut().map(|it| &mut it.key);
            served.chain(pending).filter(|it| **it == old).for_each(|it| *it = key);
        }
        known
    }

    /// Serves a service of this local name that a peer advertises. If there is none, stops serving
    /// the name.
    fn serve(&mut self, cx: &mut Context<'_>, name: &str) {
        let offers = self.services.iter();
        let mut offers = offers.filter(|(_, it)| it.service.name == name && it.can_be_served());
        let before = self.served.get(name).copied();
        let keep =
            before.filter(|key| self.services.get(key).is_some_and(|it| it.service.name == name));
        let chosen = keep.or_else(|| offers.next().map(|(key, _)| *key));
        match chosen {
            Some(key) => {
                let service = self.services[&key].service.clone();
                self.served.insert(name.to_owned(), key);
                cx.send_to_gateway(Command::Serve { service });
                // The peer may already have subscribed to the calls.
                self.calls.unpark(name, key);
                self.send_calls(cx, key);
            }
            None => {
                if self.served.remove(name).is_some() {
                    cx.send_to_gateway(Command::Unserve { service: name.to_owned() });
                }
            }
        }
    }

    pub(super) fn remove(&mut self, cx: &mut Context<'_>, key: ChannelKey) -> bool {
        let Some(gone) = self.services.remove(&key) else { return false };
        if let Some(calls) = gone.call_channel {
            cx.endpoint.peer_mut(key.peer).withdraw(cx.now, calls);
        }
        let peer = cx.peers.name(key.peer);
        let reason = match gone.stale_since {
            None => format!("the server of {} at '{peer}' has stopped", gone.offered_name),
            Some(_) => format!("'{peer}' has restarted"),
        };
        self.calls.park(key);
        self.fail(cx, |pending| pending.key == key, &reason);
        self.serve(cx, &gone.service.name);
        true
    }

    /// Returns the total bytes of the definitions of the peer's other services.
    pub(crate) fn definition_bytes(&self, key: ChannelKey) -> usize {
        let others = self.services.iter();
        let others = others.filter(|(other, _)| other.peer == key.peer && **other != key);
        others.map(|(_, it)| it.peer_form.definition.len() + it.service.definition.len()).sum()
    }

    /// Returns the fields of the peer's services that only one ROS has.
    pub(crate) fn one_sided_fields(&self, peer: PeerId) -> impl Iterator<Item = &String> {
        let services = self.services.range(ChannelKey::all_of(peer));
        let translators = services.filter_map(|(_, it)| it.translation.translator_ref());
        translators.flat_map(ServiceTranslator::one_sided)
    }

    /// Returns the outcome of a call to a peer. A malformed response becomes an error.
    pub(super) fn checked_outcome(
        &mut self,
        cx: &mut Context<'_>,
        key: ChannelKey,
        outcome: Outcome,
    ) -> Outcome {
        let now = cx.now;
        let response = outcome?;
        let Some(remote) = self.services.get_mut(&key) else { return Ok(response) };
        let Some(checker) = remote.check.checker() else { return Ok(response) };
        let Err(error) = checker.response.check(&response) else { return Ok(response) };
        let (name, type_name) = (&remote.service.name, &remote.service.type_name);
        let reason = format!("{name}: the response does not match {type_name}: {error}");
        let is_due = remote.report_limiter.allow(now);
        self.malformed += 1;
        if is_due {
            cx.malformed_notice(key.peer, &reason);
        }
        Err(reason)
    }

    /// Returns the peer's service whose calls are sent on a channel, and the key of the service.
    pub(super) fn service_called_on(
        &mut self,
        on: ChannelKey,
    ) -> Option<(ChannelKey, &mut RemoteService)> {
        let mut remote = self.services.iter_mut().map(|(key, service)| (*key, service));
        remote.find(|(key, it)| key.peer == on.peer && it.call_channel == Some(on.channel))
    }

    /// Ends the calls to a peer that has started a new session, because they are lost. Calls about
    /// goals are sent again.
    pub(super) fn new_session(&mut self, cx: &mut Context<'_>, peer: PeerId) {
        let now = cx.now;
        for (_, remote) in self.services.iter_mut().filter(|(key, _)| key.peer == peer) {
            remote.stale_since.get_or_insert(now);
        }
        let reason = format!("'{}' has restarted", cx.peers.name(peer));
        self.calls.queue_resend(|pending| pending.key.peer == peer);
        self.fail(cx, |pending| pending.key.peer == peer && !pending.is_repeatable(), &reason);
    }

    pub(super) fn remove_peer(&mut self, cx: &mut Context<'_>, peer: PeerId) {
        let of_peer = |key: &&ChannelKey| key.peer == peer;
        for key in self.services.keys().filter(of_peer).copied().collect::<Vec<_>>() {
            self.remove(cx, key);
        }
    }

    /// Gives up services that a peer has not advertised again in its new session.
    pub(super) fn sweep(&mut self, cx: &mut Context<'_>) {
        let now = cx.now;
        let over = |since: Option<Instant>| since.is_some_and(|at| now.since(at) > REOFFER_GRACE);
        let services = self.services.iter();
        let gone: Vec<ChannelKey> =
            services.filter(|(_, it)| over(it.stale_since)).map(|(key, _)| *key).collect();
        for key in gone {
            self.remove(cx, key);
        }
        self.retry_parked(cx);
        // The thread that examines services may have been too busy to take the request.
        let services = self.services.iter();
        let asked = services.filter(|(_, it)| matches!(it.translation, Translation::Requested));
        let again = asked.map(|(key, it)| (*key, it.peer_form.clone()));
        again.for_each(|(key, service)| cx.submit_job(Job::LocalizeService { key, service }));
    }

    /// Returns the services whose responses no shared definition checks.
    pub(super) fn unchecked(&self) -> impl Iterator<Item = Unchecked<'_>> {
        let served = self.services.iter().filter(|(_, it)| it.can_be_served());
        served.filter_map(|(key, it)| {
            let (peer, service) = (Some(key.peer), &it.service);
            let (name, type_name) = (service.name.as_str(), service.type_name.as_str());
            Some(Unchecked { peer, name, type_name, reason: missing_definition(&it.check)? })
        })
    }
}
