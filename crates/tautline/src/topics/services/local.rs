// SPDX-License-Identifier: Apache-2.0
//! Services of this robot that peers call.

use super::channel::service_channel;
use super::wire::{ParsedMessage, is_cancel, message, response_message};
use crate::limits::{MAX_PENDING_PER_SERVICE, MAX_SERVING_PER_PEER};
use crate::topics::context::Context;
use crate::topics::key::ChannelKey;
use crate::topics::parameters;
use crate::topics::report_limiter::ReportLimiter;
use crate::topics::unchecked::Unchecked;
use crate::topics::waiting::PendingRequest;
use crate::treatment::services::{
    SERVICE_TIMEOUT, ServiceRule, ServiceTreatment, service_treatment,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tautline_gateway::types::check::ServiceChecker;
use tautline_gateway::{CallId, Command, Outcome, Service};
use tautline_proto::{ChannelId, Instant, PeerId, Role, SendError};

/// Priority of calls to parameter services, which need no rule: sent after all other messages.
const PARAMETER_PRIORITY: u8 = 0;
/// Queue length, in messages, from which refused calls of a peer get no response.
const MAX_REFUSALS: usize = 256;
/// The reason why calls of peers to a service of this robot are not checked.
const NOT_INSTALLED: &str = "passed as they are: not installed here";

#[derive(Debug)]
struct LocalService {
    service: Service,
    treatment: ServiceTreatment,
    response_channels: BTreeMap<PeerId, ChannelId>,
    /// The check of requests from peers.
    checker: Option<ServiceChecker>,
    report_limiter: ReportLimiter,
}

#[derive(Debug)]
struct ServedCall {
    service: String,
    peer: PeerId,
    /// The peer's number for the call.
    peer_call_id: u64,
    due: Instant,
}

#[derive(Debug)]
pub(crate) struct LocalServices {
    rules: Arc<[ServiceRule]>,
    /// The services, by local name.
    services: BTreeMap<String, LocalService>,
    /// Services that are no longer served. They stay until their callers have the last responses.
    departures: BTreeSet<String>,
    /// The services, by the channel on which a peer calls them.
    call_channels: BTreeMap<ChannelKey, String>,
    served_calls: BTreeMap<CallId, ServedCall>,
    next_call: CallId,
    /// Calls of peers that were dropped because they are not of their type.
    pub(super) malformed: u64,
}

impl LocalServices {
    pub(super) fn new(rules: Arc<[ServiceRule]>) -> Self {
        Self {
            rules,
            services: BTreeMap::new(),
            departures: BTreeSet::new(),
            call_channels: BTreeMap::new(),
            served_calls: BTreeMap::new(),
            next_call: 0,
            malformed: 0,
        }
    }

    /// Returns the service that a peer calls on a channel.
    pub(super) fn service_called_on(&self, key: ChannelKey) -> Option<&String> {
        self.call_channels.get(&key)
    }

    /// Ends a channel of calls. Returns whether the channel carried calls.
    pub(super) fn remove_caller(&mut self, key: ChannelKey) -> bool {
        self.call_channels.remove(&key).is_some()
    }

    /// Ends the calls of a peer.
    pub(super) fn end_calls_of(&mut self, peer: PeerId) {
        self.call_channels.retain(|key, _| key.peer != peer);
        self.served_calls.retain(|_, serving| serving.peer != peer);
    }

    pub(super) fn remove_peer(&mut self, peer: PeerId) {
        self.end_calls_of(peer);
        for local in self.services.values_mut() {
            local.response_channels.remove(&peer);
        }
    }

    /// Forgets calls whose callers no longer wait.
    pub(super) fn sweep(&mut self, now: Instant) {
        self.served_calls.retain(|_, serving| serving.due > now);
    }

    /// Returns the services whose calls no definition checks.
    pub(super) fn unchecked(&self) -> impl Iterator<Item = Unchecked<'_>> {
        let services = self.services.values();
        let unchecked =
            services.filter(|it| it.checker.is_none() && !it.response_channels.is_empty());
        unchecked.map(|it| Unchecked {
            peer: None,
            name: &it.service.name,
            type_name: &it.service.type_name,
            reason: NOT_INSTALLED,
        })
    }

    /// Returns the treatment of a local service, from its rule. Services for parameters of a node
    /// need no rule.
    pub(super) fn treatment_of(
        &self,
        cx: &Context<'_>,
        service: &Service,
    ) -> Option<ServiceTreatment> {
        let name = &service.name;
        service_treatment(&self.rules, name).or_else(|| {
            let is_one = service.type_name.starts_with(parameters::TYPES);
            let may_use = |peer: &PeerId| cx.peers.rights(*peer).may_use_parameters(name);
            let peers = cx.endpoint.peers().filter(|peer| is_one && may_use(peer));
            let to: Vec<String> = peers.map(|peer| cx.peers.name(peer).to_owned()).collect();
            let timeout = SERVICE_TIMEOUT;
            (!to.is_empty()).then_some(ServiceTreatment {
                priority: PARAMETER_PRIORITY,
                timeout,
                to: Some(to),
            })
        })
    }

    /// Advertises a service of this robot to the peers that its rule and their rights allow.
    pub(crate) fn on_offered(&mut self, cx: &mut Context<'_>, service: Service) {
        let Some(treatment) = self.treatment_of(cx, &service) else { return };
        let name = service.name.clone();
        let known = self.services.remove(&name);
        self.departures.remove(&name);
        let mut local = LocalService {
            checker: ServiceChecker::for_own_service(&service),
            service,
            treatment,
            response_channels: known.map(|known| known.response_channels).unwrap_or_default(),
            report_limiter: ReportLimiter::default(),
        };
        for peer in cx.endpoint.peers() {
            if !cx.peers.is_offered_to(peer, &name, local.treatment.to.as_deref()) {
                continue;
            }
            let ServiceTreatment { priority, timeout, .. } = local.treatment;
            let config = service_channel(&local.service, Role::Answers, priority, timeout);
            let known = local.response_channels.get(&peer).copied();
            if let Some(channel) = cx.offer_channel(peer, known, config) {
                local.response_channels.insert(peer, channel);
            }
        }
        self.services.insert(name.clone(), local);
        self.open_call_channels(cx, &name);
    }

    /// Opens the channels of peers that advertised calls before the service was served here.
    fn open_call_channels(&mut self, cx: &mut Context<'_>, name: &str) {
        let mut waiting = Vec::new();
        let local = self.services.get(name);
        let answered =
            |peer: &PeerId| local.is_some_and(|it| it.response_channels.contains_key(peer));
        for peer in cx.endpoint.peers().filter(answered) {
            let calls = |channel: &ChannelId| {
                let found =
                    cx.endpoint.peer(peer).channel_in(*channel).map(|(offered, ..)| offered);
                found.is_some_and(|it| it.role == Role::Calls && it.name == name)
            };
            let known = |channel: &ChannelId| {
                let channel = *channel;
                self.call_channels.contains_key(&ChannelKey { peer, channel })
            };
            let calls = cx.endpoint.peer(peer).channels_in().filter(|it| calls(it) && !known(it));
            waiting.extend(calls.map(|channel| ChannelKey { peer, channel }));
        }
        for key in waiting {
            self.on_calls_offered(cx, key, name);
        }
    }

    /// Handles that a service is no longer served. It is withdrawn once its callers have the last responses.
    pub(crate) fn on_withdrawn(&mut self, cx: &mut Context<'_>, name: &str) {
        if self.services.contains_key(name) {
            self.departures.insert(name.to_owned());
        }
        // The gateway still answers the calls under way; their responses are discarded.
        self.served_calls.retain(|_, serving| serving.service != name);
        self.end_departures(cx);
    }

    pub(crate) fn end_departures(&mut self, cx: &mut Context<'_>) {
        for name in self.departures.iter().cloned().collect::<Vec<_>>() {
            let response_channels = self.services.get(&name).map(|it| &it.response_channels);
            let mut response_channels = response_channels.into_iter().flatten();
            if response_channels.any(|(peer, channel)| cx.has_pending_messages(*peer, *channel)) {
                continue;
            }
            self.departures.remove(&name);
            let gone = self.services.remove(&name).map(|it| it.response_channels);
            for (peer, channel) in gone.into_iter().flatten() {
                cx.endpoint.peer_mut(peer).withdraw(cx.now, channel);
            }
        }
    }

    /// Returns the service if it is served now.
    fn active_service(&self, name: &str) -> Option<&LocalService> {
        self.services.get(name).filter(|_| !self.departures.contains(name))
    }

    pub(super) fn type_of(&self, name: &str) -> Option<&str> {
        self.active_service(name).map(|it| it.service.type_name.as_str())
    }

    pub(super) fn on_calls_offered(&mut self, cx: &mut Context<'_>, key: ChannelKey, name: &str) {
        let local = self.active_service(name);
        let is_served = local.is_some();
        let is_offered = local.is_some_and(|it| it.response_channels.contains_key(&key.peer));
        cx.pending_requests.remove(&key);
        if is_offered && cx.peers.rights(key.peer).may_call(name) {
            self.call_channels.insert(key, name.to_owned());
            return cx.endpoint.peer_mut(key.peer).want(cx.now, key.channel, true);
        }
        // The channel may have belonged to another service.
        self.call_channels.remove(&key);
        if is_offered {
            let waiting = PendingRequest::to_call(name, self.type_of(name));
            cx.wait_for_config_line(key, waiting);
        } else {
            if is_served {
                cx.record_refusal(key, "the service is not advertised to this peer");
            }
            // The peer's calls stay queued at the peer, because the service may return soon.
            cx.endpoint.peer_mut(key.peer).want(cx.now, key.channel, false);
        }
    }

    pub(super) fn call_server(
        &mut self,
        cx: &mut Context<'_>,
        peer: PeerId,
        service: String,
        ParsedMessage { call: peer_call_id, body: request }: ParsedMessage,
    ) {
        let now = cx.now;
        self.next_call += 1;
        let call = self.next_call;
        let Some(local) = self.active_service(&service) else { return };
        let time_limit = local.treatment.timeout;
        let full = self.is_at_call_limit(peer, &service);
        let serving =
            ServedCall { service: service.clone(), peer, peer_call_id, due: now + time_limit };
        self.served_calls.insert(call, serving);
        let refusal = if full {
            let here = cx.endpoint.name();
            Some(format!("{MAX_SERVING_PER_PEER} calls to '{here}' are under way already"))
        } else {
            self.check_call(cx, peer, &service, &request)
        };
        if let Some(reason) = refusal {
            if cx.endpoint.peer(peer).queued_messages >= MAX_REFUSALS {
                // A peer that does not take its queued responses gets no further ones.
                self.served_calls.remove(&call);
                return;
            }
            return self.on_answer(cx, call, &Err(reason));
        }
        cx.send_to_gateway(Command::Call { service, call, request, time_limit, peer: peer.0 });
    }

    /// Sends the outcome of a call from the local server to the peer.
    pub(crate) fn on_answer(&mut self, cx: &mut Context<'_>, call: CallId, outcome: &Outcome) {
        let now = cx.now;
        let Some(ServedCall { service, peer, peer_call_id, .. }) = self.served_calls.remove(&call)
        else {
            return;
        };
        let local = self.services.get(&service);
        let Some(&channel) = local.and_then(|it| it.response_channels.get(&peer)) else { return };
        let payload = response_message(peer_call_id, outcome);
        let Err(error) = cx.endpoint.peer_mut(peer).send(now, channel, message(now, payload))
        else {
            return;
        };
        let (here, name) = (cx.endpoint.name(), cx.peers.name(peer));
        let text = format!("{service}: a response from '{here}' to '{name}' was not sent: {error}");
        cx.peer_notice(peer, &text);
        if matches!(error, SendError::TooLarge { .. }) {
            let payload = response_message(peer_call_id, &Err(text));
            let _ = cx.endpoint.peer_mut(peer).send(now, channel, message(now, payload));
        }
    }

    /// Returns the reason if a peer's call is malformed and must not be passed to the local server.
    pub(super) fn check_call(
        &mut self,
        cx: &mut Context<'_>,
        peer: PeerId,
        service: &str,
        request: &[u8],
    ) -> Option<String> {
        let now = cx.now;
        let local = self.services.get_mut(service)?;
        let error = local.checker.as_ref()?.request.check(request).err()?;
        let type_name = &local.service.type_name;
        let reason = format!("{service}: the request does not match {type_name}: {error}");
        let is_due = local.report_limiter.allow(now);
        self.malformed += 1;
        if is_due {
            cx.malformed_notice(peer, &reason);
        }
        Some(reason)
    }

    /// Whether a peer has the maximum number of calls under way. Cancellations are counted
    /// separately, so that other calls cannot exclude them.
    fn is_at_call_limit(&self, peer: PeerId, service: &str) -> bool {
        let of_peer = self.served_calls.values().filter(|it| it.peer == peer);
        match is_cancel(service) {
            true => of_peer.filter(|it| it.service == service).count() >= MAX_PENDING_PER_SERVICE,
            false => of_peer.filter(|it| !is_cancel(&it.service)).count() >= MAX_SERVING_PER_PEER,
        }
    }

    /// Whether a service of this robot sends its responses on a channel.
    pub(super) fn is_response_channel(&self, on: ChannelKey) -> bool {
        self.services.values().any(|it| it.response_channels.get(&on.peer) == Some(&on.channel))
    }

    /// Advertises the services by the new rules.
    pub(super) fn apply_rules(&mut self, cx: &mut Context<'_>, rules: Arc<[ServiceRule]>) {
        self.rules = rules;
        let services: Vec<_> = self.services.values().map(|it| it.service.clone()).collect();
        for service in services {
            let name = service.name.clone();
            match self.treatment_of(cx, &service) {
                None => self.on_withdrawn(cx, &name),
                Some(treatment) => self.apply_rule(cx, &name, treatment),
            }
        }
    }

    fn apply_rule(&mut self, cx: &mut Context<'_>, name: &str, treatment: ServiceTreatment) {
        let Some(mut local) = self.services.remove(name) else { return };
        let ServiceTreatment { priority, timeout, .. } = treatment;
        local.treatment = treatment;
        let config = service_channel(&local.service, Role::Answers, priority, timeout);
        let mut excluded = Vec::new();
        for peer in cx.endpoint.peers() {
            let known = local.response_channels.get(&peer).copied();
            if !cx.peers.is_offered_to(peer, name, local.treatment.to.as_deref()) {
                if let Some(channel) = local.response_channels.remove(&peer) {
                    cx.endpoint.peer_mut(peer).withdraw(cx.now, channel);
                    excluded.push(peer);
                }
                continue;
            }
            let offered = known.and_then(|channel| cx.endpoint.peer(peer).channel_out(channel));
            if offered.is_some_and(|(offered, ..)| *offered == config) {
                continue;
            }
            let open = cx.offer_channel(peer, known, config.clone());
            local.response_channels.extend(open.map(|channel| (peer, channel)));
        }
        self.services.insert(name.to_owned(), local);
        self.close_call_channels(cx, name, &excluded);
        self.open_call_channels(cx, name);
    }

    fn close_call_channels(&mut self, cx: &mut Context<'_>, name: &str, peers: &[PeerId]) {
        let callers = self
            .call_channels
            .extract_if(.., |key, service| peers.contains(&key.peer) && service.as_str() == name);
        for (key, _) in callers {
            cx.endpoint.peer_mut(key.peer).want(cx.now, key.channel, false);
        }
        self.served_calls.retain(|_, it| it.service != name || !peers.contains(&it.peer));
    }
}
