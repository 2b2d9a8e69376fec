// SPDX-License-Identifier: Apache-2.0
//! Calls of local servers on behalf of peers.
//!
//! A call waits until we have matched its server on both topics, since the reply to an unmatched
//! client is lost. Then it is sent once. It ends with the reply, when its server leaves, or when
//! its time is over: the code that removes it from the list reports its outcome.

use super::endpoint_context::EndpointContext;
use super::names::{self, DdsTopic};
use super::pairing::{Client as Identity, is_cdr};
use super::served::{EndpointGuids, service_qos};
use super::service_discovery::{Offer, Server};
use crate::lock::lock;
use crate::{CallId, Event, Events, Outcome};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};
use tautline_dds::{DdsError, Guid, RawReader, RawWriter, SampleInfo};

/// Maximum number of pending calls of local servers; further calls fail.
pub const MAX_CALLS: usize = 1024;

/// Maximum number of requests that are queued at a service's servers. Servers of ROS 2 queue ten (rmw's
/// default depth); further requests would replace those.
const MAX_QUEUED_REQUESTS: usize = 10;
/// Age from which an unanswered request no longer counts as queued: its server is working on it.
const MAX_QUEUE_TIME: Duration = Duration::from_secs(1);

#[derive(Default)]
pub struct Calls {
    waiting: Vec<Call>,
    clients: BTreeMap<String, Client>,
}

/// A call to send. Its bytes count in the backlog until it is sent.
#[derive(Clone)]
pub struct Call {
    pub service: String,
    pub call: CallId,
    pub request: Bytes,
    pub time_limit: Duration,
    pub deadline: Instant,
}

/// Our endpoints for a service of local servers.
struct Client {
    type_name: String,
    identity: Identity,
    sent: SentCalls,
    replies: RawReader,
    requests: RawWriter,
}

type SentCalls = Arc<Mutex<HashMap<i64, SentCall>>>;

struct SentCall {
    call: CallId,
    time_limit: Duration,
    deadline: Instant,
    sent_at: Instant,
    /// Readers of the servers that got the request.
    servers: Vec<Guid>,
}

impl Calls {
    /// Adds a call; `false` if it is known already. `Err` is the reason why it fails.
    pub fn add(&mut self, call: Call) -> Result<bool, String> {
        let is_known = self.waiting.iter().any(|waiting| waiting.call == call.call)
            || self
                .clients
                .values()
                .any(|it| it.lock_sent().values().any(|it| it.call == call.call));
        if is_known {
            return Ok(false);
        }
        if !is_cdr(&call.request) {
            return Err("the request is in an encoding other than CDR".into());
        }
        let sent: usize = self.clients.values().map(|client| client.lock_sent().len()).sum();
        if self.waiting.len() + sent >= MAX_CALLS {
            return Err(format!("more than {MAX_CALLS} calls of local servers are pending"));
        }
        self.waiting.push(call);
        Ok(true)
    }

    pub fn wanted_services(&self) -> BTreeSet<String> {
        self.waiting.iter().map(|call| call.service.clone()).collect()
    }

    pub fn next_deadline(&self) -> Option<Instant> {
        let waiting = self.waiting.iter().map(|call| call.deadline).min();
        let sent = self.clients.values();
        let sent =
            sent.filter_map(|it| it.lock_sent().values().map(|call| call.deadline).min()).min();
        waiting.into_iter().chain(sent).min()
    }

    pub fn guids(&self) -> impl Iterator<Item = EndpointGuids> {
        let clients = self.clients.values();
        clients.map(|it| EndpointGuids { reader: it.replies.guid, writer: it.requests.guid })
    }

    /// The servers of a service have changed: calls of servers that have left fail. `true` if
    /// endpoints of ours were deleted.
    pub fn on_servers_changed(
        &mut self,
        service: &str,
        offer: Option<&Offer>,
        events: &dyn Events,
    ) -> bool {
        let Some(client) = self.clients.get(service) else { return false };
        let offer = offer.filter(|offer| offer.type_name == client.type_name);
        let servers = offer.map_or(&[][..], |offer| &offer.servers);
        for sent in client.take_if(|sent| {
            sent.servers.retain(|reader| servers.iter().any(|server| server.reader == *reader));
            sent.servers.is_empty()
        }) {
            let outcome = Err(format!("the server of {service} left before it answered"));
            report(events, service, sent.call, outcome);
        }
        offer.is_none() && self.clients.remove(service).is_some()
    }

    /// Sends waiting calls to a service's servers; `true` if endpoints of ours were created.
    pub fn send(&mut self, service: &str, offer: &Offer, context: &EndpointContext) -> bool {
        let is_new = !self.clients.contains_key(service);
        if is_new {
            match Client::new(service, offer, context) {
                Ok(client) => drop(self.clients.insert(service.into(), client)),
                Err(error) => {
                    self.fail(service, &error, context);
                    return false;
                }
            }
        }
        let Some(client) = self.clients.get(service) else { return is_new };
        let mut free = client.free_slots(Instant::now());
        // The window comes first, since the lookup of matches costs more.
        let matched = if free > 0 { client.matched_servers(&offer.servers) } else { Vec::new() };
        let Some(first) = matched.first() else { return is_new };
        let fits = |call: &mut Call| {
            let fits = call.service == service && free > 0;
            free -= usize::from(fits);
            fits
        };
        let mut calls: VecDeque<Call> = self.waiting.extract_if(.., fits).collect();
        while let Some(call) = calls.pop_front() {
            let sent = client.send(&call, first, &matched);
            if sent.as_ref().is_err_and(|error| error.full) {
                // The writer's queue is full: the calls behind this one would not fit either.
                calls.push_front(call);
                break;
            }
            context.shared.backlog.release(call.request.len());
            if let Err(error) = sent {
                report(&*context.events, service, call.call, Err(error.to_string()));
            }
        }
        self.waiting.splice(..0, calls);
        is_new
    }

    fn fail(&mut self, service: &str, error: &DdsError, context: &EndpointContext) {
        for call in self.waiting.extract_if(.., |call| call.service == service) {
            context.shared.backlog.release(call.request.len());
            report(&*context.events, service, call.call, Err(error.to_string()));
        }
    }

    /// Ends the calls whose time is over. `is_served` says whether a service has a server.
    pub fn expire(
        &mut self,
        now: Instant,
        is_served: impl Fn(&str) -> bool,
        context: &EndpointContext,
    ) {
        for Call { service, call, request, time_limit, .. } in
            self.waiting.extract_if(.., |call| call.deadline <= now)
        {
            context.shared.backlog.release(request.len());
            let missing = if is_served(&service) { "answer from" } else { "server of" };
            let outcome = Err(timeout_reason(missing, &service, time_limit));
            report(&*context.events, &service, call, outcome);
        }
        for (service, client) in &self.clients {
            for SentCall { call, time_limit, .. } in client.take_if(|sent| sent.deadline <= now) {
                let outcome = Err(timeout_reason("answer from", service, time_limit));
                report(&*context.events, service, call, outcome);
            }
        }
    }
}

fn timeout_reason(missing: &str, service: &str, time_limit: Duration) -> String {
    format!("no {missing} {service} within {} s", time_limit.as_secs_f64())
}

fn report(events: &dyn Events, service: &str, call: CallId, outcome: Outcome) {
    events.emit(Event::Answered { service: service.into(), call, outcome });
}

impl Client {
    fn new(service: &str, offer: &Offer, context: &EndpointContext) -> Result<Self, DdsError> {
        // Offers have only valid types.
        let types = names::dds_service_types(&offer.type_name).unwrap_or_default();
        let policies = service_qos(&offer.hash, &context.tautline_name);
        let topic = DdsTopic::requests(service, &types);
        let requests =
            RawWriter::new(&context.participant, topic.specification(&policies), |_, _| ())?;
        let sent = SentCalls::default();
        // Set before the first request, and thus before any reply.
        let own = Arc::<OnceLock<Identity>>::default();
        let (identity, calls) = (own.clone(), sent.clone());
        let (name, events) = (service.to_owned(), context.events.clone());
        let max_message = context.max_message;
        let receive = move |payload: Bytes, info: &SampleInfo| {
            let (Some(identity), Some(server)) = (identity.get(), info.writer) else { return };
            let Some((seq, outcome)) = identity.match_reply(&payload, &server, info.related_sample)
            else {
                return;
            };
            // `None`: the call has ended, or another server answered first.
            let Some(sent) = lock(&calls).remove(&seq) else { return };
            report(&*events, &name, sent.call, check_response_size(outcome, max_message));
        };
        let topic = DdsTopic::replies(service, &types);
        let replies = RawReader::new(
            &context.participant,
            topic.specification(&policies),
            receive,
            |_, _| (),
        )?;
        let identity =
            *own.get_or_init(|| Identity { reader: replies.guid, writer: requests.guid });
        Ok(Self { type_name: offer.type_name.clone(), identity, sent, replies, requests })
    }

    fn lock_sent(&self) -> MutexGuard<'_, HashMap<i64, SentCall>> {
        lock(&self.sent)
    }

    /// Servers that have matched us on both topics.
    fn matched_servers(&self, servers: &[Server]) -> Vec<Server> {
        let (readers, writers) = (self.requests.matched_readers(), self.replies.matched_writers());
        let is_matched =
            |server: &&Server| readers.contains(&server.reader) && writers.contains(&server.writer);
        servers.iter().filter(is_matched).copied().collect()
    }

    /// The number of requests that may be sent now.
    fn free_slots(&self, now: Instant) -> usize {
        let is_on_its_way = |sent: &&SentCall| now < sent.sent_at + MAX_QUEUE_TIME;
        MAX_QUEUED_REQUESTS.saturating_sub(self.lock_sent().values().filter(is_on_its_way).count())
    }

    /// Sends a request. The call is recorded first, since the reply may arrive during the write. Only one
    /// thread writes requests.
    fn send(&self, call: &Call, first: &Server, servers: &[Server]) -> Result<(), DdsError> {
        let Call { call, request, time_limit, deadline, .. } = call.clone();
        let seq = self.requests.next_seq();
        let sample = self.identity.request(&first.reader, seq, request);
        let servers = servers.iter().map(|server| server.reader).collect();
        let sent_at = Instant::now();
        self.lock_sent().insert(seq, SentCall { call, time_limit, deadline, sent_at, servers });
        let written = self.requests.write(sample.payload, sample.related_sample);
        if written.is_err() {
            self.lock_sent().remove(&seq);
        }
        written.map(drop)
    }

    fn take_if(&self, is_over: impl Fn(&mut SentCall) -> bool) -> Vec<SentCall> {
        self.lock_sent().extract_if(|_, sent| is_over(sent)).map(|(_, sent)| sent).collect()
    }
}

fn check_response_size(outcome: Outcome, max_message: usize) -> Outcome {
    let response = outcome?;
    match response.len() {
        bytes if bytes > max_message => Err(format!(
            "the response has {bytes} bytes; allowed: {max_message} (limits.max_message)"
        )),
        _ => Ok(response),
    }
}
