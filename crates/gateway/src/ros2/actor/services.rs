// SPDX-License-Identifier: Apache-2.0
//! The effect of each command and each discovery on services.

use super::context::{Context, Setup};
use crate::goals;
use crate::log_limit::log_limited;
use crate::rejections::Reason;
use crate::ros2::callers::AnsweredCaller;
use crate::ros2::calls::{Call, Calls};
use crate::ros2::definitions::Definitions;
use crate::ros2::endpoint_context::EndpointContext;
use crate::ros2::endpoints::Endpoints;
use crate::ros2::names::dds_service_types;
use crate::ros2::pairing::{Caller, guid_prefix, is_cdr};
use crate::ros2::served::{EndpointGuids, ServiceServer};
use crate::ros2::service_discovery::Offer;
use crate::shared::Shared;
use crate::types::Dialect;
use crate::types::trust::service_hash;
use crate::{CallId, Event, Outcome, ResourceName, Service};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tautline_dds::Guid;

/// Interval between checks for endpoints that have not matched yet.
const MATCH_PERIOD: Duration = Duration::from_millis(10);
/// Time in which a reply waits to match its client's reader.
const REPLY_TIMEOUT: Duration = Duration::from_secs(1);
/// Time in which a reply waits for a client that first has to find the endpoints of a restarted node.
const RESTART_REPLY_TIMEOUT: Duration = Duration::from_secs(30);

/// Local services and services of peers.
pub struct Services {
    /// Offers of local services, as last reported to the node.
    offered: BTreeMap<String, Service>,
    definitions: Definitions,
    calls: Calls,
    /// Services that peers offer.
    serving: BTreeMap<String, Serving>,
    replies: Vec<Reply>,
    /// The time at which unsent replies are retried.
    retry: Option<Instant>,
}

struct Serving {
    service: Service,
    server: Option<ServiceServer>,
    refused: Option<String>,
}

/// A reply that waits to match its client's reader.
struct Reply {
    service: String,
    call: CallId,
    caller: Caller,
    response: Bytes,
    deadline: Instant,
    /// Whether an attempt to send it has failed.
    tried: bool,
}

impl Services {
    pub fn new(setup: &Setup) -> Self {
        Self {
            offered: BTreeMap::new(),
            definitions: Definitions::new(setup.options.installed.clone()),
            calls: Calls::default(),
            serving: BTreeMap::new(),
            replies: Vec::new(),
            retry: None,
        }
    }

    /// The time of the next action.
    pub fn next_wake(&self, now: Instant) -> Option<Instant> {
        let wanted = self.calls.wanted_services();
        let is_matching = wanted.iter().any(|service| self.offered.contains_key(service));
        let soon = is_matching.then_some(now + MATCH_PERIOD);
        [soon, self.retry, self.calls.next_deadline()].into_iter().flatten().min()
    }

    /// Our endpoints as servers, by service.
    pub fn servers(&self) -> impl Iterator<Item = (String, EndpointGuids)> {
        let all = self.serving.iter();
        all.filter_map(|(name, serving)| Some((name.clone(), serving.server.as_ref()?.guids())))
    }

    /// Our endpoints as clients.
    pub fn clients(&self) -> impl Iterator<Item = EndpointGuids> {
        self.calls.guids()
    }

    /// Offers or withdraws a local service, and updates the peers' service of that name.
    pub fn update(&mut self, context: &mut Context, endpoints: &Endpoints, name: &str) {
        let offer = offer_of(context, endpoints, name);
        let events = &*context.setup.endpoints.events;
        context.endpoints_changed |= self.calls.on_servers_changed(name, offer.as_ref(), events);
        self.update_serving(context, endpoints, name);
        let Some(offer) = offer else {
            context.clear_trouble(name, "servers");
            if self.offered.remove(name).is_some() {
                context.emit(Event::ServiceWithdrawn { service: name.into() });
            }
            return;
        };
        context.set_trouble(name, "servers", server_trouble(name, &offer));
        let definition = self.definitions.get(&offer.type_name);
        let computed = || service_hash(&offer.type_name, &definition, Dialect::Ros2);
        let type_hash = match offer.hash.is_empty() && !definition.is_empty() {
            // ROS 2 before Iron announces no hashes.
            true => computed().unwrap_or_default(),
            false => offer.hash,
        };
        let type_name = offer.type_name;
        let service = Service { name: name.into(), type_name, type_hash, definition };
        if self.offered.get(name) != Some(&service) {
            self.offered.insert(name.into(), service.clone());
            context.emit(Event::ServiceOffered(service));
        }
    }

    pub fn serve(&mut self, context: &mut Context, endpoints: &Endpoints, service: Service) {
        let name = service.name.clone();
        match self.serving.get_mut(&name) {
            Some(known) if known.service == service => {}
            Some(known) => {
                known.server = None;
                known.service = service;
            }
            None => {
                let new = Serving { service, server: None, refused: None };
                self.serving.insert(name.clone(), new);
            }
        }
        context.endpoints_changed = true;
        self.update_serving(context, endpoints, &name);
    }

    pub fn unserve(&mut self, context: &mut Context, name: &str) {
        context.endpoints_changed |= self.serving.remove(name).is_some();
        for kind in ["serving", "calling", "clients"] {
            context.clear_trouble(name, kind);
        }
    }

    /// Serves a service of peers, unless a local node serves it: both would get every call.
    fn update_serving(&mut self, context: &mut Context, endpoints: &Endpoints, name: &str) {
        let Some(serving) = self.serving.get(name) else { return };
        let Service { type_name, type_hash, .. } = &serving.service;
        let domain = context.setup.options.domain;
        if let Some(local) = endpoints.service_offer(name) {
            let local = local.type_name;
            let reason = format!(
                "nodes in domain {domain} serve it themselves ({local}), so that what peers serve \
                 ({type_name}) is not served here"
            );
            return self.refuse(context, name, reason);
        }
        let mut clients = String::new();
        if let Some(other) = endpoints.service_conflict(name, type_name, type_hash) {
            let reason = format!(
                "clients in domain {domain} have it as {other}, but peers serve {type_name} \
                 ({type_hash})"
            );
            if other.is_misread() {
                return self.refuse(context, name, reason);
            }
            clients = format!("{name}: {reason}");
        }
        context.set_trouble(name, "clients", clients);
        if serving.server.is_some() {
            return;
        }
        let Some(types) = dds_service_types(type_name) else {
            let reason =
                format!("'{type_name}' is no type of a service of ROS 2 (package/srv/Type)");
            return self.refuse(context, name, reason);
        };
        let server = match ServiceServer::new(&serving.service, &types, &context.setup.endpoints) {
            Ok(server) => server,
            Err(error) => return self.refuse(context, name, error.to_string()),
        };
        if let Some(serving) = self.serving.get_mut(name) {
            serving.server = Some(server);
            serving.refused = None;
        }
        context.endpoints_changed = true;
        context.clear_trouble(name, "serving");
        resume_calls(context, name);
    }

    /// Reports each reason once.
    fn refuse(&mut self, context: &mut Context, name: &str, reason: String) {
        let Some(serving) = self.serving.get_mut(name) else { return };
        context.endpoints_changed |= serving.server.take().is_some();
        if serving.refused.as_ref() == Some(&reason) {
            return;
        }
        serving.refused = Some(reason.clone());
        context.set_trouble(name, "serving", format!("{name}: {reason}"));
        context.emit(Event::Refused { topic: name.into(), reason });
    }

    pub fn call(&mut self, context: &Context, call: Call) {
        let (service, id, bytes) = (call.service.clone(), call.call, call.request.len());
        match self.calls.add(call) {
            Ok(true) => return,
            Ok(false) => {}
            Err(text) => context.emit(Event::Answered { service, call: id, outcome: Err(text) }),
        }
        context.setup.endpoints.shared.backlog.release(bytes);
    }

    /// Answers the call of a local client. If the call has failed, its client waits further, since ROS 2
    /// has no error reply; status and log have the reason. Responses about goals can express a refusal.
    pub fn answer(&mut self, context: &Context, service: String, call: CallId, outcome: Outcome) {
        let serving = self.serving.get(&service);
        let EndpointContext { callers, shared, .. } = &context.setup.endpoints;
        let found = callers.with(|it| it.answer(&service, call));
        let failed = outcome.as_ref().err();
        let text = failed.map(|reason| format!("the last call of {service} failed: {reason}"));
        if let Some(text) = &text {
            log_limited!(warn, {}, "{text}");
        }
        context.set_trouble(&service, "calling", text.unwrap_or_default());
        let backlog = &shared.backlog;
        let refusal = || {
            let type_name = &serving?.service.type_name;
            found.and(goals::refusal(&service, type_name)).filter(|it| backlog.admit(it.len()))
        };
        let Some(response) = outcome.ok().or_else(refusal) else {
            if found.is_some() {
                callers.with(|it| it.remove(&service, call));
            }
            return;
        };
        let Some(AnsweredCaller { caller, was_interrupted }) = found else {
            return backlog.release(response.len());
        };
        let patience = if was_interrupted { RESTART_REPLY_TIMEOUT } else { REPLY_TIMEOUT };
        let deadline = Instant::now() + patience;
        let reply = Reply { service, call, caller, response, deadline, tried: false };
        self.replies.push(reply);
    }

    /// Sends calls and replies whose endpoints have matched, and ends those whose time is over.
    pub fn advance(&mut self, context: &mut Context, endpoints: &Endpoints, now: Instant) {
        for service in self.calls.wanted_services() {
            let Some(offer) = offer_of(context, endpoints, &service) else { continue };
            context.endpoints_changed |=
                self.calls.send(&service, &offer, &context.setup.endpoints);
        }
        let offered = &self.offered;
        let is_served = |service: &str| offered.contains_key(service);
        self.calls.expire(now, is_served, &context.setup.endpoints);
        self.send_replies(context, now);
    }

    fn send_replies(&mut self, context: &Context, now: Instant) {
        let Self { replies, serving, retry, .. } = self;
        let EndpointContext { shared, callers, .. } = &context.setup.endpoints;
        let is_retry = retry.take_if(|at| *at <= now).is_some();
        // Looked up once for each service.
        let mut matched = BTreeMap::<String, Vec<Guid>>::new();
        replies.retain_mut(|reply| {
            if std::mem::replace(&mut reply.tried, true) && !is_retry {
                return true;
            }
            let server = serving.get(&reply.service).and_then(|serving| serving.server.as_ref());
            // A service that has ended has no waiting caller.
            let is_waiting = server.is_some_and(|server| {
                let readers = matched.entry(reply.service.clone());
                let readers = readers.or_insert_with(|| server.matched_readers());
                !reply.send(server, readers, shared, now)
            });
            if !is_waiting {
                callers.with(|it| it.remove(&reply.service, reply.call));
                shared.backlog.release(reply.response.len());
            }
            is_waiting
        });
        if replies.is_empty() {
            *retry = None;
        } else {
            retry.get_or_insert(now + MATCH_PERIOD);
        }
    }
}

/// What local servers offer of a service, if it may leave this robot.
fn offer_of(context: &Context, endpoints: &Endpoints, service: &str) -> Option<Offer> {
    endpoints.service_offer(service).filter(|_| context.selects(ResourceName::Service(service)))
}

/// Takes up calls that were pending when this node last ended.
fn resume_calls(context: &Context, service: &str) {
    let EndpointContext { callers, calls, .. } = &context.setup.endpoints;
    let number = || calls.fetch_add(1, Ordering::Relaxed);
    for (call, request) in callers.with(|it| it.resume(service, number)) {
        context.emit(Event::Interrupted { service: service.into(), call, request });
    }
}

impl Reply {
    /// Sends or rejects the reply. `false`: retry, since its client is not matched yet or too slow.
    fn send(
        &self,
        server: &ServiceServer,
        matched: &[Guid],
        shared: &Shared,
        now: Instant,
    ) -> bool {
        let has_time = now < self.deadline;
        let reject = |reason| {
            shared.rejections.add(&self.service, reason);
            true
        };
        if !is_cdr(&self.response) {
            return reject(Reason::NotCdr);
        }
        let caller = guid_prefix(&self.caller.writer);
        if !matched.iter().any(|reader| guid_prefix(reader) == caller) {
            return !has_time && reject(Reason::CallerGone);
        }
        match server.reply(&self.caller, self.response.clone()) {
            Ok(()) => true,
            Err(error) if error.full && has_time => false,
            Err(error) => {
                log_limited!(warn, {service = self.service, %error,}, "a response is not written");
                reject(Reason::NotWritten)
            }
        }
    }
}

/// Trouble with several servers or types of one service; empty if there is none.
fn server_trouble(name: &str, offer: &Offer) -> String {
    let others = match offer.other_types.as_slice() {
        [] => String::new(),
        others => format!(
            "{name} is called as {}; servers with {} are left out",
            offer.type_name,
            others.join(", ")
        ),
    };
    match offer.servers.len() {
        0 | 1 => others,
        count => format!("{count} servers of {name}: each gets every call. {others}"),
    }
}
