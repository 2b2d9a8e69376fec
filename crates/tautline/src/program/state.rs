// SPDX-License-Identifier: Apache-2.0
//! What a program publishes, subscribes to, serves and calls, and what peers do.
//!
//! The announcer notifies the data plane of a change and takes the events from
//! [`State::untold_events`]: a change of the program never waits for the data plane, nor the data
//! plane for itself.

use super::error::{PublishError, SendError, ServeError};
use super::message::Message;
use super::message_type::MessageType;
use super::queue::Queue;
use super::request::Request;
use crate::audit::Record;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Weak};
use std::time::{Instant, SystemTime};
use tautline_gateway::{
    CallId, Event, Kept, MAX_SOURCES, Named, Origin, Outcome, Qos, Selector, Service, Source,
    Topic, identity,
};

/// The response to a call of a service that this program does not serve, or not fast enough.
const NOT_SERVED: &str =
    "the program does not take the request: it is too slow, or has stopped serving";
/// The outcome of calls whose service is gone.
const GONE: &str = "the service is no longer there";

/// A name of which the data plane may have to be told.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Untold {
    Topic(String),
    Service(String),
    /// A topic of peers.
    Wanted(String),
}

/// A message that a publisher keeps for late joiners.
struct KeptMessage {
    payload: Bytes,
    identity: u64,
    published: Instant,
}

/// One publisher of a topic.
pub(super) struct PublisherState {
    qos: Qos,
    kept: VecDeque<KeptMessage>,
    /// Tells its messages from those of other publishers and of earlier runs.
    salt: u128,
    messages: u64,
}

impl PublisherState {
    pub(super) fn new(qos: Qos) -> Self {
        let since_1970 = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        let qos = Qos { depth: qos.depth.max(1), ..qos };
        Self { qos, kept: VecDeque::new(), salt: since_1970.as_nanos(), messages: 0 }
    }

    fn origin(&self, identity: u64, published: Instant, is_history: bool) -> Origin {
        let kept = Kept {
            identity,
            depth: self.qos.depth,
            is_repeatable: false,
            is_history,
            is_for_later_ones: false,
        };
        Origin {
            kept: self.qos.transient_local.then_some(kept),
            best_effort: !self.qos.reliable,
            lifespan: self.qos.lifespan,
            age: published.elapsed(),
        }
    }

    /// Counts a message; keeps it if late joiners get it.
    fn add(&mut self, source: Source, payload: &Bytes) -> Origin {
        self.messages += 1;
        let (identity, published) = (identity(&(self.salt, source, self.messages)), Instant::now());
        if self.qos.transient_local {
            if self.kept.len() >= self.qos.depth as usize {
                self.kept.pop_front();
            }
            self.kept.push_back(KeptMessage { payload: payload.clone(), identity, published });
        }
        self.origin(identity, published, false)
    }
}

/// A topic that this program publishes.
struct Published {
    message_type: MessageType,
    publishers: BTreeMap<u32, PublisherState>,
    /// What the data plane knows.
    told: Option<Topic>,
    /// Publishers that have left since.
    gone: Vec<Source>,
    /// Whether a peer subscribes.
    is_read: bool,
    /// Whether a new subscriber waits for the messages that are kept.
    is_repeated: bool,
}

impl Published {
    fn topic(&self, name: &str) -> Option<Topic> {
        let policies: Vec<Qos> = self.publishers.values().map(|it| it.qos).collect();
        Some(Topic { qos: Qos::combined(&policies)?, ..self.message_type.topic(name) })
    }

    fn repeat(&self, name: &str) -> impl Iterator<Item = Event> {
        let kept = |(number, publisher): (&u32, &PublisherState)| {
            let source = Source::here(*number);
            let messages = publisher.kept.iter().map(|it| {
                let origin = publisher.origin(it.identity, it.published, true);
                message(name, source, it.payload.clone(), origin)
            });
            messages.collect::<Vec<_>>()
        };
        self.publishers.iter().flat_map(kept).collect::<Vec<_>>().into_iter()
    }
}

fn message(topic: &str, source: Source, payload: Bytes, origin: Origin) -> Event {
    Event::Message { topic: topic.to_owned(), source, payload, origin, received: Instant::now() }
}

/// A topic of peers that may be subscribed to.
struct PeersTopic {
    topic: Topic,
    type_name: Arc<str>,
    /// Whether the data plane knows that it has subscribers.
    told: bool,
    /// The messages that are kept for late joiners, by publisher.
    kept: BTreeMap<Source, VecDeque<Message>>,
}

/// A service that this program serves.
struct Served {
    service: Service,
    told: bool,
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
    published: BTreeMap<String, Published>,
    peers_topics: BTreeMap<String, PeersTopic>,
    subscriptions: BTreeMap<String, Vec<Arc<Queue<Message>>>>,
    served: BTreeMap<String, Served>,
    peers_services: BTreeSet<String>,
    calls: BTreeMap<CallId, Call>,
    last_call: CallId,
    events: Vec<Weak<Queue<Record>>>,
    untold: BTreeSet<Untold>,
    /// Calls of peers that this program does not take.
    refused: Vec<(String, CallId)>,
    pub(super) is_closed: bool,
}

impl State {
    pub(super) fn add_publisher(
        &mut self,
        topic: &str,
        message_type: MessageType,
        publisher: PublisherState,
    ) -> Result<Source, PublishError> {
        let published = self.published.entry(topic.to_owned()).or_insert_with(|| Published {
            message_type: message_type.clone(),
            publishers: BTreeMap::new(),
            told: None,
            gone: Vec::new(),
            is_read: false,
            is_repeated: false,
        });
        if published.publishers.is_empty() {
            published.message_type = message_type.clone();
        }
        if published.message_type != message_type {
            return Err(PublishError::OtherType {
                topic: topic.to_owned(),
                found: message_type.name().to_owned(),
                known: published.message_type.name().to_owned(),
            });
        }
        let free = (0..MAX_SOURCES).find(|number| !published.publishers.contains_key(number));
        let number = free.ok_or_else(|| PublishError::TooMany(topic.to_owned()))?;
        published.publishers.insert(number, publisher);
        self.untold.insert(Untold::Topic(topic.to_owned()));
        Ok(Source::here(number))
    }

    pub(super) fn remove_publisher(&mut self, topic: &str, source: Source) {
        if let Some(published) = self.published.get_mut(topic) {
            published.publishers.remove(&source.number);
            published.gone.push(source);
            self.untold.insert(Untold::Topic(topic.to_owned()));
        }
    }

    pub(super) fn is_subscribed(&self, topic: &str) -> bool {
        self.published.get(topic).is_some_and(|it| it.is_read)
    }

    /// Counts and keeps a message; returns its event if a peer subscribes.
    pub(super) fn published(
        &mut self,
        topic: &str,
        source: Source,
        payload: Bytes,
    ) -> Result<Option<Event>, SendError> {
        if self.is_closed {
            return Err(SendError::Stopped);
        }
        let Some(published) = self.published.get_mut(topic) else { return Ok(None) };
        let Some(publisher) = published.publishers.get_mut(&source.number) else { return Ok(None) };
        let origin = publisher.add(source, &payload);
        // What is about to be repeated includes this message.
        let goes_now = published.is_read && !(published.is_repeated && origin.kept.is_some());
        Ok(goes_now.then(|| message(topic, source, payload, origin)))
    }

    /// A peer subscribes to a topic of this program, or the last one no longer does.
    pub(super) fn read(&mut self, topic: &str, is_read: bool) {
        if let Some(published) = self.published.get_mut(topic) {
            published.is_read = is_read;
            published.is_repeated = is_read;
            self.untold.insert(Untold::Topic(topic.to_owned()));
        }
    }

    /// The rules of what may leave have changed.
    pub(super) fn reselect(&mut self) {
        self.untold.extend(self.published.keys().cloned().map(Untold::Topic));
        self.untold.extend(self.served.keys().cloned().map(Untold::Service));
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
        self.untold.insert(Untold::Wanted(topic.to_owned()));
    }

    pub(super) fn remove_subscription(&mut self, topic: &str, queue: &Arc<Queue<Message>>) {
        let Some(queues) = self.subscriptions.get_mut(topic) else { return };
        queues.retain(|it| !Arc::ptr_eq(it, queue));
        if queues.is_empty() {
            self.subscriptions.remove(topic);
            self.untold.insert(Untold::Wanted(topic.to_owned()));
        }
    }

    /// Peers publish a topic.
    pub(super) fn advertised(&mut self, topic: Topic) {
        let name = topic.name.clone();
        let type_name = topic.type_name.as_str().into();
        let before = self.peers_topics.remove(&name);
        let (told, kept) = before.map_or((false, BTreeMap::new()), |it| (it.told, it.kept));
        self.peers_topics.insert(name.clone(), PeersTopic { topic, type_name, told, kept });
        self.untold.insert(Untold::Wanted(name));
    }

    /// No peer publishes the topic any more.
    pub(super) fn unadvertised(&mut self, topic: &str) {
        self.peers_topics.remove(topic);
    }

    /// A message of a peer.
    pub(super) fn arrived(&mut self, topic: &str, source: Source, payload: Bytes, origin: Origin) {
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
        if !origin.kept.is_some_and(|kept| kept.is_for_later_ones) {
            for queue in self.subscriptions.get(topic).into_iter().flatten() {
                queue.push_newest(message.clone(), message.payload.len());
            }
        }
    }

    /// Kept messages of peers are no longer valid.
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
        let told = self.served.get(name).is_some_and(|it| it.told);
        let service = Service {
            name: name.to_owned(),
            type_name: type_name.to_owned(),
            type_hash: String::new(),
            definition: "".into(),
        };
        // A repetition replaces the type.
        let requests = Some(requests);
        let told = told && self.served.get(name).is_some_and(|it| it.service == service);
        self.served.insert(name.to_owned(), Served { service, told, requests });
        self.untold.insert(Untold::Service(name.to_owned()));
        Ok(())
    }

    pub(super) fn remove_server(&mut self, name: &str) {
        if let Some(served) = self.served.get_mut(name) {
            served.requests = None;
            self.untold.insert(Untold::Service(name.to_owned()));
        }
    }

    /// Queues a call of a peer for the program.
    pub(super) fn called(&mut self, request: Request, service: String, call: CallId) {
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
            self.refused.push((service, call));
        }
    }

    /// Peers serve a service, or no longer do.
    pub(super) fn peers_serve(&mut self, service: String, is_served: bool) {
        if is_served {
            self.peers_services.insert(service);
            return;
        }
        self.peers_services.remove(&service);
        for call in self.calls.values_mut().filter(|it| it.service == service) {
            call.outcome.get_or_insert_with(|| Err(GONE.into()));
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

    pub(super) fn answered(&mut self, call: CallId, outcome: Outcome) {
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

    /// Messages that the program was too slow to take, by topic.
    pub(super) fn drops(&self) -> Vec<(String, u64)> {
        let dropped =
            |queues: &Vec<Arc<Queue<Message>>>| queues.iter().map(|it| it.dropped()).sum();
        let drops = self.subscriptions.iter().map(|(topic, it)| (topic.clone(), dropped(it)));
        drops.filter(|(_, count)| *count > 0).collect()
    }

    /// Ends all that waits.
    pub(super) fn close(&mut self) {
        self.is_closed = true;
        self.subscriptions.values().flatten().for_each(|queue| queue.close());
        self.served.values().filter_map(|it| it.requests.as_ref()).for_each(|it| it.close());
        self.events.iter().filter_map(Weak::upgrade).for_each(|queue| queue.close());
    }

    pub(super) fn has_untold(&self) -> bool {
        !self.untold.is_empty() || !self.refused.is_empty()
    }

    /// Returns the events that tell the data plane of all changes since the last call.
    pub(super) fn untold_events(&mut self, selector: &Selector) -> Vec<Event> {
        let mut events = Vec::new();
        for untold in std::mem::take(&mut self.untold) {
            match untold {
                Untold::Topic(name) => self.tell_topic(&name, selector, &mut events),
                Untold::Service(name) => self.tell_service(name, selector, &mut events),
                Untold::Wanted(topic) => {
                    let wanted = self.subscriptions.contains_key(&topic);
                    let known = self.peers_topics.get_mut(&topic);
                    if let Some(known) = known.filter(|it| it.told != wanted) {
                        known.told = wanted;
                        events.push(Event::Wanted { topic, wanted });
                    }
                }
            }
        }
        for (service, call) in std::mem::take(&mut self.refused) {
            events.push(Event::Answered { service, call, outcome: Err(NOT_SERVED.into()) });
        }
        events
    }

    fn tell_topic(&mut self, name: &str, selector: &Selector, events: &mut Vec<Event>) {
        let Some(published) = self.published.get_mut(name) else { return };
        let topic = published.topic(name).filter(|_| selector(Named::Topic(name)));
        if topic != published.told {
            events.push(match &topic {
                Some(topic) => Event::Offered(topic.clone()),
                None => Event::Withdrawn { topic: name.to_owned() },
            });
            published.told = topic;
        }
        for source in std::mem::take(&mut published.gone) {
            // Its number may have another publisher by now, whose messages are not gone.
            if !published.publishers.contains_key(&source.number) {
                events.push(Event::SourceGone { topic: name.to_owned(), source });
            }
        }
        if std::mem::take(&mut published.is_repeated) {
            events.extend(published.repeat(name));
        }
        if published.publishers.is_empty() {
            self.published.remove(name);
        }
    }

    fn tell_service(&mut self, name: String, selector: &Selector, events: &mut Vec<Event>) {
        let Some(served) = self.served.get_mut(&name) else { return };
        let is_served = served.requests.is_some() && selector(Named::Service(&name));
        let is_gone = served.requests.is_none();
        if is_served != served.told {
            served.told = is_served;
            events.push(match is_served {
                true => Event::ServiceOffered(served.service.clone()),
                false => Event::ServiceWithdrawn { service: name.clone() },
            });
        }
        if is_gone {
            self.served.remove(&name);
        }
    }
}
