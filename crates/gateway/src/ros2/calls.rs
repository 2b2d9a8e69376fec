// SPDX-License-Identifier: Apache-2.0
//! Calls of local servers on behalf of peers.
//!
//! A call waits until its server and we have met on both topics, since a reply to someone who
//! was not met is lost; then it is sent, once. It is over with the reply, when its server
//! leaves, or when patience ends: whoever takes it from the list tells what came of it.

use super::names::{self, Meaning};
use super::pairing::{Client as Identity, is_cdr};
use super::served::qos;
use super::servers::{Offer, Server};
use super::subscription::Context;
use crate::{CallId, Event, Events, Outcome};
use bytes::Bytes;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tautline_dds::{DdsError, Guid, RawReader, RawWriter, SampleInfo, Specification};

/// Calls of local servers that may be under way; further ones fail.
pub const MAX_CALLS: usize = 1024;

/// Requests on their way to a service's servers at a time, since ROS 2's servers keep no more that
/// they have not taken yet (depth 10, rmw's default); further ones would push those out.
const WINDOW: usize = 10;
/// After so long a request without an answer has been taken: it is one that takes its time.
const TAKEN_AFTER: Duration = Duration::from_secs(1);

/// All calls of one gateway.
#[derive(Default)]
pub struct Calls {
    waiting: Vec<Call>,
    clients: BTreeMap<String, Client>,
}

/// A call that is to be sent. Its bytes count among those that wait for ROS 2.
#[derive(Clone)]
pub struct Call {
    pub service: String,
    pub call: CallId,
    pub request: Bytes,
    pub patience: Duration,
    pub until: Instant,
}

/// Our endpoints of a service that others serve.
struct Client {
    type_name: String,
    identity: Identity,
    sent: Arc<Mutex<HashMap<i64, Sent>>>,
    replies: RawReader,
    requests: RawWriter,
}

/// A call that was sent.
struct Sent {
    call: CallId,
    patience: Duration,
    until: Instant,
    at: Instant,
    /// Readers of the servers that got it.
    servers: Vec<Guid>,
}

impl Calls {
    /// Takes a call in, unless it is known already (`false`); `Err` says why it fails.
    pub fn enter(&mut self, call: Call) -> Result<bool, String> {
        let known = self.waiting.iter().any(|it| it.call == call.call)
            || self.clients.values().any(|it| it.lock().values().any(|it| it.call == call.call));
        if known {
            return Ok(false);
        }
        if !is_cdr(&call.request) {
            return Err("the request is in an encoding other than CDR".into());
        }
        if self.under_way() >= MAX_CALLS {
            return Err(format!("more than {MAX_CALLS} calls of local servers are under way"));
        }
        self.waiting.push(call);
        Ok(true)
    }

    fn under_way(&self) -> usize {
        self.waiting.len() + self.clients.values().map(|it| it.lock().len()).sum::<usize>()
    }

    /// Names of services of which calls wait to be sent.
    pub fn wanted(&self) -> Vec<String> {
        let mut names: Vec<String> = self.waiting.iter().map(|it| it.service.clone()).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Until when the first of them has time.
    pub fn next_end(&self) -> Option<Instant> {
        let waiting = self.waiting.iter().map(|it| it.until);
        let sent =
            self.clients.values().filter_map(|it| it.lock().values().map(|it| it.until).min());
        waiting.chain(sent).min()
    }

    /// GUIDs of our readers and writers.
    pub fn guids(&self) -> impl Iterator<Item = (Guid, Guid)> {
        self.clients.values().map(|it| (it.replies.guid, it.requests.guid))
    }

    /// Who serves has changed: calls of servers that have left fail. `true` if we have fewer
    /// endpoints than before.
    pub fn servers_changed(
        &mut self,
        service: &str,
        offer: Option<&Offer>,
        events: &dyn Events,
    ) -> bool {
        let Some(client) = self.clients.get(service) else { return false };
        let offer = offer.filter(|it| it.type_name == client.type_name);
        let servers = offer.map_or(&[][..], |it| &it.servers);
        let left = || Err(format!("the server of {service} left before it answered"));
        for sent in client.take_if(|it| {
            it.servers.retain(|reader| servers.iter().any(|server| server.reader == *reader));
            it.servers.is_empty()
        }) {
            tell(events, service, sent.call, left());
        }
        offer.is_none() && self.clients.remove(service).is_some()
    }

    /// Sends what can be sent to a service's servers; `true` if we have new endpoints.
    pub fn send(&mut self, service: &str, offer: &Offer, context: &Context<'_>) -> bool {
        let new = !self.clients.contains_key(service);
        if new {
            match Client::new(service, &offer.type_name, context) {
                Ok(client) => drop(self.clients.insert(service.into(), client)),
                Err(error) => {
                    self.fail(service, &error, context);
                    return false;
                }
            }
        }
        let Some(client) = self.clients.get(service) else { return new };
        let mut room = client.room(Instant::now());
        // Who was met costs more to ask.
        let met = if room > 0 { client.met(&offer.servers) } else { Vec::new() };
        let Some(first) = met.first() else { return new };
        let goes = |it: &mut Call| {
            let goes = it.service == service && room > 0;
            room -= usize::from(goes);
            goes
        };
        let mut going: VecDeque<Call> = self.waiting.extract_if(.., goes).collect();
        while let Some(call) = going.pop_front() {
            let sent = client.send(&call, first, &met);
            if sent.as_ref().is_err_and(|error| error.full) {
                // Those behind it would have no room either.
                going.push_front(call);
                break;
            }
            context.shared.backlog.release(call.request.len());
            if let Err(error) = sent {
                tell(context.events.as_ref(), service, call.call, Err(error.to_string()));
            }
        }
        self.waiting.splice(..0, going);
        new
    }

    fn fail(&mut self, service: &str, error: &DdsError, context: &Context<'_>) {
        for call in self.waiting.extract_if(.., |it| it.service == service) {
            context.shared.backlog.release(call.request.len());
            tell(context.events.as_ref(), service, call.call, Err(error.to_string()));
        }
    }

    /// Ends what has no time any more. `served` says whether anyone serves.
    pub fn expire(&mut self, now: Instant, served: impl Fn(&str) -> bool, context: &Context<'_>) {
        let events = context.events.as_ref();
        for Call { service, call, request, patience, .. } in
            self.waiting.extract_if(.., |it| it.until <= now)
        {
            context.shared.backlog.release(request.len());
            let what = if served(&service) { "answer from" } else { "server of" };
            tell(events, &service, call, Err(too_late(what, &service, patience)));
        }
        for (service, client) in &self.clients {
            for Sent { call, patience, .. } in client.take_if(|it| it.until <= now) {
                tell(events, service, call, Err(too_late("answer from", service, patience)));
            }
        }
    }
}

fn too_late(what: &str, service: &str, patience: Duration) -> String {
    format!("no {what} {service} within {} s", patience.as_secs_f64())
}

fn tell(events: &dyn Events, service: &str, call: CallId, outcome: Outcome) {
    events.emit(Event::Answered { service: service.into(), call, outcome });
}

impl Client {
    fn new(service: &str, type_name: &str, context: &Context<'_>) -> Result<Self, DdsError> {
        let (request_type, reply_type) = names::dds_service_types(type_name).unwrap_or_default();
        let dds = qos("", context.tautline_name);
        let requests = Specification {
            topic: &Meaning::Request(service.into()).dds_name(),
            type_name: &request_type,
            qos: &dds,
        };
        let replies = Specification {
            topic: &Meaning::Reply(service.into()).dds_name(),
            type_name: &reply_type,
            ..requests
        };
        let requests = RawWriter::new(context.participant, requests, |_, _| ())?;
        let sent = Arc::<Mutex<HashMap<i64, Sent>>>::default();
        // Replies come only after the first request, when the reader's GUID is known.
        let own = Arc::<std::sync::OnceLock<Identity>>::default();
        let (identity, calls) = (own.clone(), sent.clone());
        let (name, events) = (service.to_owned(), context.events.clone());
        let max_message = context.max_message;
        let take = move |payload: Bytes, info: &SampleInfo| {
            let (Some(identity), Some(server)) = (identity.get(), info.writer) else { return };
            let Some((seq, outcome)) = identity.answered(&payload, &server, info.related) else {
                return;
            };
            // One that is over, or of another server that was faster.
            let Some(sent) = lock(&calls).remove(&seq) else { return };
            tell(events.as_ref(), &name, sent.call, limited(outcome, max_message));
        };
        let replies = RawReader::new(context.participant, replies, take, |_, _| ())?;
        let identity = Identity { reader: replies.guid, writer: requests.guid };
        // It is set nowhere else.
        let _ = own.set(identity);
        Ok(Self { type_name: type_name.into(), identity, sent, replies, requests })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<i64, Sent>> {
        lock(&self.sent)
    }

    /// Those that have met us on both topics.
    fn met(&self, servers: &[Server]) -> Vec<Server> {
        let (readers, writers) = (self.requests.matched(), self.replies.matched());
        let met = |it: &&Server| readers.contains(&it.reader) && writers.contains(&it.writer);
        servers.iter().filter(met).copied().collect()
    }

    /// How many requests may be sent.
    fn room(&self, now: Instant) -> usize {
        let on_their_way = |it: &&Sent| now < it.at + TAKEN_AFTER;
        WINDOW.saturating_sub(self.lock().values().filter(on_their_way).count())
    }

    /// Requests are written by one thread, and the reply may come at once: what is awaited is
    /// entered first.
    fn send(&self, call: &Call, first: &Server, servers: &[Server]) -> Result<(), DdsError> {
        let Call { call, request, patience, until, .. } = call.clone();
        let seq = self.requests.next();
        let (payload, related) = self.identity.request(&first.reader, seq, request);
        let servers = servers.iter().map(|it| it.reader).collect();
        let at = Instant::now();
        self.lock().insert(seq, Sent { call, patience, until, at, servers });
        let written = self.requests.write(payload, related);
        if written.is_err() {
            self.lock().remove(&seq);
        }
        written.map(drop)
    }

    fn take_if(&self, over: impl Fn(&mut Sent) -> bool) -> Vec<Sent> {
        self.lock().extract_if(|_, sent| over(sent)).map(|(_, sent)| sent).collect()
    }
}

fn lock(sent: &Mutex<HashMap<i64, Sent>>) -> MutexGuard<'_, HashMap<i64, Sent>> {
    sent.lock().unwrap_or_else(PoisonError::into_inner)
}

fn limited(outcome: Outcome, max_message: usize) -> Outcome {
    let response = outcome?;
    match response.len() {
        bytes if bytes > max_message => {
            Err(format!("the response has {bytes} bytes; allowed: {max_message}"))
        }
        _ => Ok(response),
    }
}
