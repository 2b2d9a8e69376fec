// SPDX-License-Identifier: Apache-2.0
//! A topic that a program publishes, and its publishers.

use super::error::PublishError;
use super::message_type::MessageType;
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::time::{Instant, SystemTime};
use tautline_gateway::sources::SourceNumbers;
use tautline_gateway::{Event, Kept, MAX_SOURCES, Origin, Qos, Source, Topic, identity};

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
    /// Whether the kept messages must be repeated for a new subscriber.
    is_repeated: bool,
    /// Distinguishes its messages from those of other publishers and of earlier runs.
    salt: u128,
    messages: u64,
}

impl PublisherState {
    pub(super) fn new(qos: Qos) -> Self {
        let since_1970 = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        let qos = Qos { depth: qos.depth.max(1), ..qos };
        let salt = since_1970.as_nanos();
        Self { qos, kept: VecDeque::new(), is_repeated: false, salt, messages: 0 }
    }

    fn origin(&self, identity: u64, published: Instant, is_history: bool) -> Origin {
        let kept = Kept {
            identity,
            depth: self.qos.depth,
            is_repeatable: false,
            is_history,
            is_for_late_joiners: false,
        };
        Origin {
            kept: self.qos.transient_local.then_some(kept),
            best_effort: !self.qos.reliable,
            lifespan: self.qos.lifespan,
            age: published.elapsed(),
        }
    }

    /// Counts a message, and keeps it if the publisher keeps messages for late joiners.
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

    fn repeat(&mut self, topic: &str, source: Source) -> Vec<Event> {
        if !std::mem::take(&mut self.is_repeated) {
            return Vec::new();
        }
        let messages = self.kept.iter().map(|it| {
            let origin = self.origin(it.identity, it.published, true);
            message(topic, source, it.payload.clone(), origin)
        });
        messages.collect()
    }
}

fn message(topic: &str, source: Source, payload: Bytes, origin: Origin) -> Event {
    Event::Message { topic: topic.to_owned(), source, payload, origin, received: Instant::now() }
}

/// A topic that this program publishes.
pub(super) struct PublishedTopic {
    message_type: MessageType,
    publishers: BTreeMap<u32, PublisherState>,
    numbers: SourceNumbers,
    /// The topic as the data plane knows it, or will know it after the events under way.
    reported: Option<Topic>,
    /// The topic whose offer the data plane has. Messages get its type.
    announced: Option<Topic>,
    /// Publishers that have left since the last events.
    removed_publishers: Vec<Source>,
    /// Whether a peer subscribes.
    has_subscriber: bool,
}

impl PublishedTopic {
    pub(super) fn new(message_type: MessageType) -> Self {
        Self {
            message_type,
            publishers: BTreeMap::new(),
            numbers: SourceNumbers::default(),
            reported: None,
            announced: None,
            removed_publishers: Vec::new(),
            has_subscriber: false,
        }
    }

    pub(super) fn add_publisher(
        &mut self,
        topic: &str,
        message_type: MessageType,
        publisher: PublisherState,
    ) -> Result<Source, PublishError> {
        if self.publishers.is_empty() {
            self.message_type = message_type.clone();
        }
        if self.message_type != message_type {
            return Err(PublishError::OtherType {
                topic: topic.to_owned(),
                found: message_type.name().to_owned(),
                known: self.message_type.name().to_owned(),
            });
        }
        if self.publishers.len() >= MAX_SOURCES as usize {
            return Err(PublishError::TooMany(topic.to_owned()));
        }
        let source = self.numbers.take();
        self.publishers.insert(source.number, publisher);
        Ok(source)
    }

    pub(super) fn remove_publisher(&mut self, source: Source) {
        if self.publishers.remove(&source.number).is_some() {
            self.numbers.release(source);
            self.removed_publishers.push(source);
        }
    }

    pub(super) fn has_publishers(&self) -> bool {
        !self.publishers.is_empty()
    }

    /// Whether peers subscribe, and the data plane knows the current type. Before that, messages
    /// would be sent under the previous type.
    pub(super) fn is_subscribed(&self) -> bool {
        self.has_subscriber
            && self.announced.as_ref().is_some_and(|it| self.message_type.matches_topic(it))
    }

    /// Notes whether any peer subscribes. A new subscription repeats the kept messages.
    pub(super) fn set_has_subscriber(&mut self, has_subscriber: bool) {
        self.has_subscriber = has_subscriber;
        self.publishers.values_mut().for_each(|it| it.is_repeated = has_subscriber);
    }

    /// Whether a subscriber waits for kept messages.
    pub(super) fn has_repeats(&self) -> bool {
        self.has_subscriber
            && self.publishers.values().any(|it| it.is_repeated && !it.kept.is_empty())
    }

    /// Returns the kept messages for which a subscriber waits: of the publisher `source`, or of all
    /// publishers.
    pub(super) fn take_repeats(&mut self, topic: &str, source: Option<Source>) -> Vec<Event> {
        if !self.is_subscribed() {
            return Vec::new();
        }
        let chosen = |number: u32| source.is_none_or(|it| it.number == number);
        let publishers = self.publishers.iter_mut().filter(|(number, _)| chosen(**number));
        publishers.flat_map(|(number, it)| it.repeat(topic, Source::local(*number))).collect()
    }

    /// Counts and keeps a message; returns its event if a peer subscribes.
    pub(super) fn send(&mut self, topic: &str, source: Source, payload: Bytes) -> Option<Event> {
        let origin = self.publishers.get_mut(&source.number)?.add(source, &payload);
        self.is_subscribed().then(|| message(topic, source, payload, origin))
    }

    fn topic(&self, name: &str) -> Option<Topic> {
        let policies: Vec<Qos> = self.publishers.values().map(|it| it.qos).collect();
        Some(Topic { qos: Qos::combined_offer(&policies)?, ..self.message_type.topic(name) })
    }

    /// Adds the events that notify the data plane of all changes. `is_selected`: the topic may
    /// leave this node.
    pub(super) fn report_changes(
        &mut self,
        name: &str,
        is_selected: bool,
        events: &mut Vec<Event>,
    ) {
        let topic = self.topic(name).filter(|_| is_selected);
        let has_type = |it: &Topic| topic.as_ref().is_some_and(|new| is_same_type(new, it));
        if !self.reported.as_ref().is_some_and(has_type) {
            // The data plane ends the subscriptions to the topic with its previous type.
            self.has_subscriber = false;
        }
        self.announced.take_if(|it| !has_type(it) || !self.message_type.matches_topic(it));
        if topic != self.reported {
            events.push(match &topic {
                Some(topic) => Event::Offered(topic.clone()),
                None => Event::Withdrawn { topic: name.to_owned() },
            });
            self.reported = topic;
        }
        for source in std::mem::take(&mut self.removed_publishers) {
            // Another publisher may have the number by now. Its messages are not gone.
            if !self.publishers.contains_key(&source.number) {
                events.push(Event::SourceGone { topic: name.to_owned(), source });
            }
        }
    }

    /// Notes that the data plane has the events of [`Self::report_changes`].
    pub(super) fn mark_announced(&mut self) {
        self.announced = self.reported.clone();
    }
}

/// Whether the data plane continues subscriptions when `topic` is offered in place of `other`.
fn is_same_type(topic: &Topic, other: &Topic) -> bool {
    (&topic.type_name, &topic.type_hash) == (&other.type_name, &other.type_hash)
}
