// SPDX-License-Identifier: Apache-2.0
//! What happens to services upon each command and each discovery.

use super::{Actor, Setup};
use crate::rejections::Reason;
use crate::ros2::Shared;
use crate::ros2::calls::{Call, Calls};
use crate::ros2::pairing::{Caller, is_cdr, participant};
use crate::ros2::served::Served;
use crate::ros2::servers::{Offer, Servers};
use crate::ros2::subscription::{Context, Marked};
use crate::sparing::Sparing;
use crate::types::Dialect;
use crate::types::trust::service_hash;
use crate::{CallId, Event, Named, Outcome, Service};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tautline_dds::{DdsError, Discovery, Guid};

/// How often those who have not met yet are looked at.
const MEETING: Duration = Duration::from_millis(10);
/// A reply waits so long to meet its client's reader.
const REPLY_PATIENCE: Duration = Duration::from_secs(1);

/// All state of services.
#[derive(Default)]
pub struct Services {
    servers: Servers,
    /// What was told of services that others serve here.
    offered: BTreeMap<String, Service>,
    calls: Calls,
    /// Services that are to be served, and what became of them.
    serving: BTreeMap<String, Serving>,
    replies: Vec<Reply>,
    /// When replies that could not be sent are tried again.
    retry: Option<Instant>,
}

struct Serving {
    service: Service,
    served: Option<Served>,
    refused: Option<String>,
}

/// A reply that waits for its client's reader.
struct Reply {
    service: String,
    caller: Caller,
    response: Bytes,
    until: Instant,
    /// It could not be sent at once.
    tried: bool,
}

impl Services {
    /// When something has to be looked at next.
    pub fn next_wake(&self, now: Instant) -> Option<Instant> {
        let wanted = self.calls.wanted();
        let meeting = wanted.iter().any(|it| self.offered.contains_key(it));
        let soon = meeting.then_some(now + MEETING);
        [soon, self.retry, self.calls.next_end()].into_iter().flatten().min()
    }

    /// GUIDs of our readers and writers.
    pub fn guids(&self) -> impl Iterator<Item = (Guid, Guid)> {
        let served = self.serving.values().filter_map(|it| it.served.as_ref());
        served.map(Served::guids).chain(self.calls.guids())
    }

    /// Takes in one event; gives the service that it changes.
    pub fn discovered(&mut self, event: &Discovery) -> Option<String> {
        if let Discovery::WriterGone { guid } = event {
            let served = self.serving.values().filter_map(|it| it.served.as_ref());
            served.for_each(|it| it.forget(*guid));
        }
        self.servers.take(event)
    }

    /// All services of the domain.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.servers.names()
    }

    /// Endpoints that were too many.
    pub fn left_out(&self) -> u64 {
        self.servers.left_out
    }
}

impl Actor {
    pub fn context<'a>(setup: &'a Setup, marked: &'a Marked) -> Context<'a> {
        Context {
            participant: &setup.participant,
            shared: &setup.shared,
            events: &setup.events,
            marked,
            tautline_name: &setup.options.tautline_name,
            max_message: setup.options.max_message,
        }
    }

    fn offer_of(&self, service: &str) -> Option<Offer> {
        let may = (self.setup.selector)(Named::Service(service));
        self.services.servers.offer(service).filter(|_| may)
    }

    /// Tells of a service that is served here, or not any more; and serves what peers serve.
    pub fn settle_service(&mut self, name: &str) {
        let offer = self.offer_of(name);
        let events = self.setup.events.clone();
        self.redraw.changed |=
            self.services.calls.servers_changed(name, offer.as_ref(), events.as_ref());
        self.settle_serving(name);
        let Some(offer) = offer else {
            self.setup.shared.health().set(name, "servers", String::new());
            if self.services.offered.remove(name).is_some() {
                self.emit(Event::ServiceWithdrawn { service: name.into() });
            }
            return;
        };
        self.setup.shared.health().set(name, "servers", several(name, &offer));
        let definition = self.definition(&offer.type_name);
        let computed = || service_hash(&offer.type_name, &definition, Dialect::Ros2);
        let type_hash = match offer.hash.is_empty() && !definition.is_empty() {
            // ROS 2 before Iron tells no hashes.
            true => computed().unwrap_or_default(),
            false => offer.hash,
        };
        let type_name = offer.type_name;
        let service = Service { name: name.into(), type_name, type_hash, definition };
        if self.services.offered.get(name) != Some(&service) {
            self.services.offered.insert(name.into(), service.clone());
            self.emit(Event::ServiceOffered(service));
        }
    }

    pub fn serve(&mut self, service: Service) {
        let name = service.name.clone();
        match self.services.serving.get_mut(&name) {
            Some(known) if known.service == service => {}
            Some(known) => {
                known.served = None;
                known.service = service;
            }
            None => {
                let new = Serving { service, served: None, refused: None };
                self.services.serving.insert(name.clone(), new);
            }
        }
        self.redraw.changed = true;
        self.settle_serving(&name);
    }

    pub fn unserve(&mut self, name: &str) {
        self.redraw.changed |= self.services.serving.remove(name).is_some();
        let mut health = self.setup.shared.health();
        for kind in ["serving", "calling", "clients"] {
            health.set(name, kind, String::new());
        }
    }

    /// Serves what peers serve, unless nodes of this robot serve it: each would get every call.
    fn settle_serving(&mut self, name: &str) {
        let Some(serving) = self.services.serving.get_mut(name) else { return };
        let Service { type_name, type_hash, .. } = &serving.service;
        let domain = self.setup.options.domain;
        if let Some(local) = self.services.servers.offer(name) {
            let local = local.type_name;
            let reason = format!(
                "nodes in domain {domain} serve it themselves ({local}), so that what peers serve \
                 ({type_name}) is not served here"
            );
            return self.refuse_service(name, reason);
        }
        let mut clients = String::new();
        if let Some(other) = self.services.servers.conflict(name, type_name, type_hash) {
            let reason = format!(
                "clients in domain {domain} have it as {other}, but peers serve {type_name} \
                 ({type_hash})"
            );
            if other.is_misread() {
                return self.refuse_service(name, reason);
            }
            clients = format!("{name}: {reason}");
        }
        self.setup.shared.health().set(name, "clients", clients);
        if serving.served.is_some() {
            return;
        }
        let context = Self::context(&self.setup, &self.marked);
        match Served::new(&serving.service, &context) {
            Some(Ok(served)) => {
                serving.served = Some(served);
                serving.refused = None;
                self.redraw.changed = true;
                self.setup.shared.health().set(name, "serving", String::new());
            }
            Some(Err(error)) => self.refuse_service(name, error.to_string()),
            None => {
                let reason =
                    format!("'{type_name}' is no type of a service of ROS 2 (package/srv/Type)");
                self.refuse_service(name, reason);
            }
        }
    }

    /// Tells peers, once for each reason.
    fn refuse_service(&mut self, name: &str, reason: String) {
        let Some(serving) = self.services.serving.get_mut(name) else { return };
        self.redraw.changed |= serving.served.take().is_some();
        if serving.refused.as_ref() == Some(&reason) {
            return;
        }
        serving.refused = Some(reason.clone());
        self.setup.shared.health().set(name, "serving", format!("{name}: {reason}"));
        self.emit(Event::Refused { topic: name.into(), reason });
    }

    pub fn call(&mut self, call: Call) {
        let (service, id, bytes) = (call.service.clone(), call.call, call.request.len());
        match self.services.calls.enter(call) {
            Ok(true) => return,
            Ok(false) => {}
            Err(text) => self.emit(Event::Answered { service, call: id, outcome: Err(text) }),
        }
        self.setup.shared.backlog.release(bytes);
    }

    /// ROS 2 has no way to tell a client that its call failed: it waits on, and people are told.
    pub fn answer(&mut self, service: String, call: CallId, outcome: Outcome) {
        let served = self.services.serving.get(&service).and_then(|it| it.served.as_ref());
        let caller = served.and_then(|it| it.take_caller(call));
        let failed = outcome.as_ref().err();
        let text = failed.map(|why| format!("the last call of {service} failed: {why}"));
        static SPARING: Sparing = Sparing::new();
        if let Some((text, left_out)) = text.as_ref().and_then(|it| Some((it, SPARING.next()?))) {
            tracing::warn!(left_out, "{text}");
        }
        self.setup.shared.health().set(&service, "calling", text.unwrap_or_default());
        match (caller, outcome) {
            (Some(caller), Ok(response)) => {
                let until = Instant::now() + REPLY_PATIENCE;
                self.services.replies.push(Reply {
                    service,
                    caller,
                    response,
                    until,
                    tried: false,
                });
            }
            (_, outcome) => self.release(&outcome),
        }
    }

    fn release(&self, outcome: &Outcome) {
        if let Ok(response) = outcome {
            self.setup.shared.backlog.release(response.len());
        }
    }

    /// Does what is due: sends calls and replies to those who have been met, and ends what has
    /// no time any more.
    pub fn advance_services(&mut self, now: Instant) {
        for service in self.services.calls.wanted() {
            let Some(offer) = self.offer_of(&service) else { continue };
            let context = Self::context(&self.setup, &self.marked);
            self.redraw.changed |= self.services.calls.send(&service, &offer, &context);
        }
        let offered = &self.services.offered;
        let served = |service: &str| offered.contains_key(service);
        let context = Self::context(&self.setup, &self.marked);
        self.services.calls.expire(now, served, &context);
        self.send_replies(now);
    }

    fn send_replies(&mut self, now: Instant) {
        let Services { replies, serving, retry, .. } = &mut self.services;
        let shared = &self.setup.shared;
        let again = retry.take_if(|at| *at <= now).is_some();
        // Asked once for each service.
        let mut met = BTreeMap::<String, Vec<Guid>>::new();
        replies.retain_mut(|reply| {
            if std::mem::replace(&mut reply.tried, true) && !again {
                return true;
            }
            let served = serving.get(&reply.service).and_then(|it| it.served.as_ref());
            // One that is not served any more has no caller that waits.
            let waits = served.is_some_and(|it| {
                let met = met.entry(reply.service.clone()).or_insert_with(|| it.met());
                !send_reply(it, met, reply, shared, now)
            });
            if !waits {
                shared.backlog.release(reply.response.len());
            }
            waits
        });
        if replies.is_empty() {
            *retry = None;
        } else {
            retry.get_or_insert(now + MEETING);
        }
    }
}

/// `false`: it is to be tried again, since its caller was not met yet or does not keep up.
fn send_reply(served: &Served, met: &[Guid], reply: &Reply, shared: &Shared, now: Instant) -> bool {
    let has_time = now < reply.until;
    let reject = |why| {
        shared.rejections.add(&reply.service, why);
        true
    };
    if !is_cdr(&reply.response) {
        return reject(Reason::NotCdr);
    }
    let caller = participant(&reply.caller.writer);
    if !met.iter().any(|reader| participant(reader) == caller) {
        return !has_time && reject(Reason::CallerGone);
    }
    let written: Result<(), DdsError> = served.reply(&reply.caller, reply.response.clone());
    if let Err(error) = written {
        if error.full && has_time {
            return false;
        }
        static SPARING: Sparing = Sparing::new();
        if let Some(left_out) = SPARING.next() {
            tracing::warn!(service = reply.service, %error, left_out, "a response is not written");
        }
        return reject(Reason::NotWritten);
    }
    true
}

fn several(name: &str, offer: &Offer) -> String {
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
