// SPDX-License-Identifier: Apache-2.0
//! What a program publishes, subscribes to, serves and calls, and what peers do.
//!
//! The announcer notifies the data plane of a change, with the events from
//! [`State::take_unreported_events`]. A change by the program therefore never waits for the data plane, and
//! the data plane never waits for itself.

use super::error::{PublishError, SendError, ServeError};
use super::message::Message;
use super::message_type::MessageType;
use super::published::{PublishedTopic, PublisherState};
use super::queue::Queue;
use super::request::Request;
use crate::audit::Record;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Weak};
use tautline_gateway::{
    CallId, Event, Kept, Origin, Outcome, ResourceName, Selector, Service, Source, Topic,
};

/// The response to a call of a service that this program does not serve, or serves too slowly.
const NOT_SERVED: &str =
    "the program does not take the request: it is too slow, or has stopped serving";
/// The outcome of calls whose service is gone.
const SERVICE_GONE: &str = "the service is no longer there";

/// A name about which the data plane may need an event.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum UnreportedName {
    Topic(String),
    Service(String),
    /// A topic of peers to which the program may subscribe.
    Wanted(String),
}

/// A topic of peers to which the program can subscribe.
struct PeersTopic {
    topic: Topic,
    type_name: Arc<str>,
    /// Whether the data plane knows that the topic has subscribers.
    reported: bool,
    /// The messages that are kept for late joiners, by publisher.
    kept: BTreeMap<Source, VecDeque<Message>>,
}

/// A service that this program serves.
struct ServedService {
    service: Service,
    /// The service as the data plane knows it.
    reported: Option<Service>,
    /// `None` once the program has stopped serving.
    requests: Option<Arc<Queue<Request>>>,
}

/// A call of this program that is under way.
struct Call {
    service: String,
    outcome: Option<Outcome>,
}

#[derive(Default)]
pub(super) struct State {
    published: BTreeMap<String, PublishedTopic>,
    peers_topics: BTreeMap<String, PeersTopic>,
    subscriptions: BTreeMap<String, Vec<Arc<Queue<Message>>>>,
    served: BTreeMap<String, ServedService>,
    peers_services: BTreeSet<String>,
    /// Bytes of the largest message that a peer takes, for each peer that has refused one.
    message_limits: BTreeMap<String, usize>,
    calls: BTreeMap<CallId, Call>,
    last_call: CallId,
    events: Vec<Weak<Queue<Record>>>,
    unreported: BTreeSet<UnreportedName>,
    /// Topics whose events the data plane is about to get.
    announcing: Vec<String>,
    /// Calls of peers that this program does not take.
    refused_calls: Vec<(String, CallId)>,
    /// Whether messages are no longer accepted.
    pub(super) is_closing: bool,
    pub(super) is_closed: bool,
}

impl State {
    pub(super) fn add_publisher(
        &mut self,
        topic: &str,
        message_type: MessageType,
        publisher: PublisherState,
    ) -> Result<Source, PublishError> {
        let published = self.published.entry(topic.to_owned());
        let published = published.or_insert_with(|| PublishedTopic::new(message_type.clone()));
        let source = published.add_publisher(topic, message_type, publisher)?;
        self.unreported.insert(UnreportedName::Topic(topic.to_owned()));
        Ok(source)
    }

    pub(super) fn remove_publisher(&mut self, topic: &str, source: Source) {
        if let Some(published) = self.published.get_mut(topic) {
            published.remove_publisher(source);
            self.unreported.insert(UnreportedName::Topic(topic.to_owned()));
        }
    }

    pub(super) fn is_subscribed(&self, topic: &str) -> bool {
        self.published.get(topic).is_some_and(PublishedTopic::is_subscribed)
    }

    /// Counts and keeps a message. If a peer subscribes, returns its event, preceded by those
    /// earlier messages of its publisher for which a subscriber waits.
    pub(super) fn add_message(
        &mut self,
        topic: &str,
        source: Source,
        payload: Bytes,
    ) -> Result<(Vec<Event>, Option<Event>), SendError> {
        if self.is_closing || self.is_closed {
            return Err(SendError::Stopped);
        }
        let Some(published) = self.published.get_mut(topic) else { return Ok(Default::default()) };
        let repeats = published.take_repeats(topic, Some(source));
        Ok((repeats, published.send(topic, source, payload)))
    }

    /// Notes whether any peer subscribes to a topic of this program.
    pub(super) fn set_has_subscriber(&mut self, topic: &str, has_subscriber: bool) {
        if let Some(published) = self.published.get_mut(topic) {
            published.set_has_subscriber(has_subscriber);
            self.unreported.insert(UnreportedName::Topic(topic.to_owned()));
        }
    }

    /// Notes the maximum message size of a peer; `None` if no limit is known.
    pub(super) fn set_limit(&mut self, peer: String, most: Option<usize>) {
        match most {
            Some(most) => _ = self.message_limits.insert(peer, most),
            None => _ = self.message_limits.remove(&peer),
        }
    }

    /// Returns a peer that refuses messages of this size, and its maximum size.
    pub(super) fn peer_with_limit_below(&self, bytes: usize) -> Option<(String, usize)> {
        let mut peers = self.message_limits.iter();
        peers.find(|(_, most)| **most < bytes).map(|(peer, most)| (peer.clone(), *most))
    }

    /// Whether a subscriber waits for messages that the announcer is about to repeat.
    pub(super) fn has_repeats(&self) -> bool {
        self.published.values().any(PublishedTopic::has_repeats)
    }

    /// Schedules all names again, because the rules of what may leave have changed.
    pub(super) fn reselect(&mut self) {
        self.unreported.extend(self.published.keys().cloned().map(UnreportedName::Topic));
        self.unreported.extend(self.served.keys().cloned().map(UnreportedName::Service));
    }

    pub(super) fn add_subscription(&mut self, topic: &str, queue: Arc<Queue<Message>>) {
        if self.is_closed {
            return queue.close();
        }
        if let Some(known) = self.peers_topics.get(topic) {
            let kept = known.kept.values().flatten();
            kept.for_each(|message| queue.push_newest(message.clone(), message.payload.len()));
        }
        self.subscriptions.entry(topic.to_owned()).or_default().push(queue);
        self.unreported.insert(UnreportedName::Wanted(topic.to_owned()));
    }

    pub(super) fn remove_subscription(&mut self, topic: &str, queue: &Arc<Queue<Message>>) {
        let Some(queues) = self.subscriptions.get_mut(topic) else { return };
        queues.retain(|it| !Arc::ptr_eq(it, queue));
        if queues.is_empty() {
            self.subscriptions.remove(topic);
            self.unreported.insert(UnreportedName::Wanted(topic.to_owned()));
        }
    }

    /// Notes that peers publish a topic.
    pub(super) fn on_advertised(&mut self, topic: Topic) {
        let name = topic.name.clone();
        let type_name = topic.type_name.as_str().into();
        let before = self.peers_topics.remove(&name);
        let (reported, kept) = before.map_or((false, BTreeMap::new()), |it| (it.reported, it.kept));
        self.peers_topics.insert(name.clone(), PeersTopic { topic, type_name, reported, kept });
        self.unreported.insert(UnreportedName::Wanted(name));
    }

    /// Notes that no peer publishes the topic any more.
    pub(super) fn on_unadvertised(&mut self, topic: &str) {
        self.peers_topics.remove(topic);
    }

    /// Takes a message of a peer.
    pub(super) fn on_message(
        &mut self,
        topic: &str,
        source: Source,
        payload: Bytes,
        origin: Origin,
    ) {
        let Some(known) = self.peers_topics.get_mut(topic) else { return };
        let type_name = known.type_name.clone();
        let message = Message { payload, type_name, source, age: origin.age };
        if let Some(Kept { depth, .. }) = origin.kept.filter(|_| known.topic.qos.transient_local) {
            let kept = known.kept.entry(source).or_default();
            while kept.len() >= depth.max(1) as usize {
                kept.pop_front();
            }
            kept.push_back(message.clone());
        }
        if !origin.kept.is_some_and(|kept| kept.is_for_late_joiners) {
            for queue in self.subscriptions.get(topic).into_iter().flatten() {
                queue.push_newest(message.clone(), message.payload.len());
            }
        }
    }

    /// Drops kept messages of peers, which are no longer valid: of one publisher, or of all.
    pub(super) fn forget(&mut self, topic: &str, source: Option<Source>) {
        if let Some(known) = self.peers_topics.get_mut(topic) {
            known.kept.retain(|of, _| source.is_some_and(|gone| gone != *of));
        }
    }

    pub(super) fn add_server(
        &mut self,
        name: &str,
        type_name: &str,
        requests: Arc<Queue<Request>>,
    ) -> Result<(), ServeError> {
        if self.served.get(name).is_some_and(|it| it.requests.is_some()) {
            return Err(ServeError::Taken(name.to_owned()));
        }
        if self.is_closed {
            requests.close();
            return Ok(());
        }
        let service = Service {
            name: name.to_owned(),
            type_name: type_name.to_owned(),
            type_hash: String::new(),
            definition: "".into(),
        };
        let reported = self.served.remove(name).and_then(|it| it.reported);
        let requests = Some(requests);
        self.served.insert(name.to_owned(), ServedService { service, reported, requests });
        self.unreported.insert(UnreportedName::Service(name.to_owned()));
        Ok(())
    }

    pub(super) fn remove_server(&mut self, name: &str) {
        if let Some(served) = self.served.get_mut(name) {
            served.requests = None;
            self.unreported.insert(UnreportedName::Service(name.to_owned()));
        }
    }

    /// Queues a call of a peer for the program.
    pub(super) fn on_call(&mut self, request: Request, service: String, call: CallId) {
        let served = self.served.get(&service).and_then(|it| it.requests.as_ref());
        let not_taken = match served {
            Some(queue) => {
                let (bytes, expires) = (request.payload.len(), request.expires());
                queue.push_if_room(request, bytes, expires).err()
            }
            None => Some(request),
        };
        if let Some(request) = not_taken {
            request.forget();
            self.refused_calls.push((service, call));
        }
    }

    /// Notes whether peers serve a service.
    pub(super) fn set_served_by_peers(&mut self, service: String, is_served: bool) {
        if is_served {
            self.peers_services.insert(service);
            return;
        }
        self.peers_services.remove(&service);
        for call in self.calls.values_mut().filter(|it| it.service == service) {
            call.outcome.get_or_insert_with(|| Err(SERVICE_GONE.into()));
        }
    }

    pub(super) fn is_served_by_peers(&self, service: &str) -> bool {
        self.peers_services.contains(service)
    }

    pub(super) fn begin_call(&mut self, service: &str) -> CallId {
        self.last_call += 1;
        self.calls.insert(self.last_call, Call { service: service.to_owned(), outcome: None });
        self.last_call
    }

    pub(super) fn on_answer(&mut self, call: CallId, outcome: Outcome) {
        if let Some(call) = self.calls.get_mut(&call) {
            call.outcome.get_or_insert(outcome);
        }
    }

    pub(super) fn is_answered(&self, call: CallId) -> bool {
        self.calls.get(&call).is_some_and(|it| it.outcome.is_some())
    }

    pub(super) fn end_call(&mut self, call: CallId) -> Option<Outcome> {
        self.calls.remove(&call)?.outcome
    }

    pub(super) fn add_events(&mut self, queue: &Arc<Queue<Record>>) {
        self.events.retain(|it| it.strong_count() > 0);
        if self.is_closed {
            return queue.close();
        }
        self.events.push(Arc::downgrade(queue));
    }

    pub(super) fn record(&self, record: &Record) {
        for queue in self.events.iter().filter_map(Weak::upgrade) {
            queue.push_newest(record.clone(), 0);
        }
    }

    /// Returns the number of messages that the program was too slow to take, by topic.
    pub(super) fn drops(&self) -> Vec<(String, u64)> {
        let dropped =
            |queues: &Vec<Arc<Queue<Message>>>| queues.iter().map(|it| it.dropped()).sum();
        let drops = self.subscriptions.iter().map(|(topic, it)| (topic.clone(), dropped(it)));
        drops.filter(|(_, count)| *count > 0).collect()
    }

    /// Closes all queues, so that nothing waits any more.
    pub(super) fn close(&mut self) {
        self.is_closed = true;
        self.subscriptions.values().flatten().for_each(|queue| queue.close());
        self.served.values().filter_map(|it| it.requests.as_ref()).for_each(|it| it.close());
        self.events.iter().filter_map(Weak::upgrade).for_each(|queue| queue.close());
    }

    pub(super) fn has_unreported(&self) -> bool {
        !self.unreported.is_empty() || !self.refused_calls.is_empty()
    }

    /// Returns the events that tell the data plane of all changes since the last call.
    pub(super) fn take_unreported_events(&mut self, selector: &Selector) -> Vec<Event> {
        let mut events = Vec::new();
        for unreported in std::mem::take(&mut self.unreported) {
            match unreported {
                UnreportedName::Topic(name) => self.report_topic(&name, selector, &mut events),
                UnreportedName::Service(name) => self.report_service(name, selector, &mut events),
                UnreportedName::Wanted(topic) => {
                    let wanted = self.subscriptions.contains_key(&topic);
                    let known = self.peers_topics.get_mut(&topic);
                    if let Some(known) = known.filter(|it| it.reported != wanted) {
                        known.reported = wanted;
                        events.push(Event::Wanted { topic, wanted });
                    }
                }
            }
        }
        for (service, call) in std::mem::take(&mut self.refused_calls) {
            events.push(Event::Answered { service, call, outcome: Err(NOT_SERVED.into()) });
        }
        events
    }

    fn report_topic(&mut self, name: &str, selector: &Selector, events: &mut Vec<Event>) {
        let Some(published) = self.published.get_mut(name) else { return };
        published.report_changes(name, selector(ResourceName::Topic(name)), events);
        match published.has_publishers() {
            true => self.announcing.push(name.to_owned()),
            false => _ = self.published.remove(name),
        }
    }

    /// Notes that the data plane has the events of [`Self::take_unreported_events`]. Returns the events of
    /// the messages for which subscribers wait. These events, and those of [`Self::add_message`],
    /// must be passed in order, so the state stays locked meanwhile.
    pub(super) fn mark_announced(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        for name in std::mem::take(&mut self.announcing) {
            if let Some(published) = self.published.get_mut(&name) {
                published.mark_announced();
                events.extend(published.take_repeats(&name, None));
            }
        }
        events
    }

    fn report_service(&mut self, name: String, selector: &Selector, events: &mut Vec<Event>) {
        let Some(served) = self.served.get_mut(&name) else { return };
        let is_gone = served.requests.is_none();
        let is_served = !is_gone && selector(ResourceName::Service(&name));
        let service = is_served.then(|| served.service.clone());
        if service != served.reported {
            served.reported = service.clone();
            // An offer replaces an earlier offer of another type.
            events.push(match service {
                Some(service) => Event::ServiceOffered(service),
                None => Event::ServiceWithdrawn { service: name.clone() },
            });
        }
        if is_gone {
            self.served.remove(&name);
        }
    }
}
