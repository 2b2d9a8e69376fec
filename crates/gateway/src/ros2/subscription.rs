// SPDX-License-Identifier: Apache-2.0
//! Topics read from local publishers.

use super::endpoint_context::EndpointContext;
use super::history::MAX_DEPTH;
use super::liveliness::{ObservedLiveliness, State};
use super::names::{self, DdsTopic};
use super::order::Order;
use super::pairing::is_cdr;
use super::qos;
use super::writers::Writer;
use crate::lock::lock;
use crate::rejections::Reason;
use crate::sources::SourceNumbers;
use crate::{Class, Classes, Event, Kept, Origin, Source, identity};
use bytes::Bytes;
use std::collections::{BTreeMap, HashMap};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};
use tautline_dds::{DdsError, Guid, Qos as Dds, RawReader, SampleInfo};

/// Depths up to this one are counted exactly if the messages have at most [`MAX_EXACT_BYTES`].
const MAX_EXACT_DEPTH: u32 = 16;
/// Maximum total bytes of a publisher's messages up to which its depth is counted exactly.
const MAX_EXACT_BYTES: usize = 64 << 10;
/// Time in which a known publisher sends the rest of a burst.
const BURST_TIME: Duration = Duration::from_millis(100);
/// Time between counts of a publisher that keeps more with each message.
const RECOUNT_PAUSE: Duration = Duration::from_millis(500);

/// A topic with one reader for each class of its publishers. A single reader with the least
/// request would miss what publishers keep for late joiners.
pub struct Subscription {
    /// The ROS 2 type name.
    pub type_name: String,
    type_hash: String,
    readers: BTreeMap<Class, RawReader>,
    publishers: Arc<Mutex<Publishers>>,
    observed: Arc<Mutex<ObservedLiveliness>>,
}

/// The publishers with messages so far, and known depths.
#[derive(Default)]
struct Publishers {
    numbers: SourceNumbers,
    known: HashMap<Guid, Publisher>,
    depths: HashMap<Guid, u32>,
}

#[derive(Clone, Copy)]
struct Publisher {
    source: Source,
    /// Messages read so far.
    messages: u32,
    bytes: usize,
    /// Sequence number of the last message. A new reader gets earlier messages again.
    last_seq: i64,
    /// Messages read when the last count began.
    counted: u32,
    /// Whether the depth is known: a count found fewer messages than had been published.
    is_depth_known: bool,
}

impl Publisher {
    fn new(source: Source) -> Self {
        Self { source, messages: 0, bytes: 0, last_seq: 0, counted: 0, is_depth_known: false }
    }

    /// When to count what the publisher keeps, if that may be more than is known. Each larger count
    /// is transmitted, so large publishers are counted at powers of two only.
    fn count_delay(&self, depth: u32) -> Option<Duration> {
        let Self { messages, bytes, is_depth_known, .. } = *self;
        if !(depth + 1..=MAX_DEPTH).contains(&messages) {
            return None;
        }
        let is_small = messages <= MAX_EXACT_DEPTH && bytes <= MAX_EXACT_BYTES;
        match messages.is_power_of_two() {
            true => Some(BURST_TIME),
            false => (is_small && !is_depth_known).then_some(RECOUNT_PAUSE),
        }
    }
}

impl Publishers {
    /// Counts a message of a writer; returns its source and depth, and when to count what the
    /// writer keeps.
    fn on_message(
        &mut self,
        writer: Guid,
        seq: i64,
        len: usize,
    ) -> (Source, u32, Option<Duration>) {
        let numbers = &mut self.numbers;
        let publisher = self.known.entry(writer).or_insert_with(|| Publisher::new(numbers.take()));
        let depth = self.depths.get(&writer).copied().unwrap_or(1);
        if seq <= publisher.last_seq {
            return (publisher.source, depth, None);
        }
        publisher.last_seq = seq;
        publisher.messages = publisher.messages.saturating_add(1);
        publisher.bytes = publisher.bytes.saturating_add(len);
        (publisher.source, depth, publisher.count_delay(depth))
    }
}

impl Subscription {
    /// A subscription without readers. `type_hash` is empty if no publisher announces it.
    pub fn new(type_name: &str, type_hash: &str) -> Self {
        Self {
            type_name: type_name.into(),
            type_hash: type_hash.into(),
            readers: BTreeMap::new(),
            publishers: Arc::default(),
            observed: Arc::default(),
        }
    }

    /// Reads `topic` from publishers of these classes, and of no others. Returns whether that is a
    /// change.
    pub fn read(
        &mut self,
        topic: &str,
        classes: Classes,
        context: &EndpointContext,
        orders: &Sender<Order>,
    ) -> Result<bool, DdsError> {
        let before = self.readers.len();
        for (class, reader) in self.readers.extract_if(.., |class, _| !classes.contains(*class)) {
            drop(reader);
            lock(&self.observed).forget(class, Instant::now());
        }
        let mut is_changed = self.readers.len() != before;
        for class in classes.iter() {
            if !self.readers.contains_key(&class) {
                let reader = self.reader(topic, class, context, orders.clone())?;
                self.readers.insert(class, reader);
                is_changed = true;
            }
        }
        Ok(is_changed)
    }

    fn reader(
        &self,
        topic: &str,
        class: Class,
        context: &EndpointContext,
        orders: Sender<Order>,
    ) -> Result<RawReader, DdsError> {
        let (name, changes, observed) = (topic.to_owned(), orders.clone(), self.observed.clone());
        let on_liveliness = move |alive, not_alive| {
            if lock(&observed).on_change(class, alive, not_alive, Instant::now()) {
                let _ = changes.send(Order::LivelinessChanged(name.clone()));
            }
        };
        let receiver = Receiver {
            topic: topic.into(),
            class,
            created: SystemTime::now(),
            publishers: self.publishers.clone(),
            context: context.clone(),
            orders,
        };
        let user_data = names::endpoint_user_data(&self.type_hash, &context.tautline_name);
        let dds = Dds { user_data: user_data.into_bytes(), ..qos::reader_policies(class) };
        let (name, shared) = (topic.to_owned(), context.shared.clone());
        let incompatible = move |policy, _| {
            // Publishers of weaker classes are read by other readers.
            if qos::is_class_policy(policy) {
                return;
            }
            let text =
                format!("a publisher of {name} is not read: {} differs", qos::policy_name(policy));
            shared.troubles.set(&name, "reading", text);
        };
        let receive = move |bytes, info: &SampleInfo| receiver.receive(bytes, info);
        let topic = DdsTopic::for_topic(topic, &self.type_name);
        let (participant, topic) = (&context.participant, topic.specification(&dds));
        RawReader::with_liveliness(participant, topic, receive, incompatible, on_liveliness)
    }

    /// Whether it has publishers that are alive.
    pub fn liveliness(&self, lease: Duration) -> State {
        lock(&self.observed).state(lease)
    }

    pub fn guids(&self) -> impl Iterator<Item = Guid> {
        self.readers.values().map(|reader| reader.guid)
    }

    /// Removes a publisher that has left; returns its source number if no other publisher shares it.
    pub fn forget(&self, writer: Guid) -> Option<Source> {
        let mut publishers = lock(&self.publishers);
        publishers.depths.remove(&writer);
        let source = publishers.known.remove(&writer)?.source;
        publishers.numbers.release(source).then_some(source)
    }

    /// Records that a count of the messages that its publishers keep begins now.
    pub fn begin_count(&self) {
        for publisher in lock(&self.publishers).known.values_mut() {
            publisher.counted = publisher.messages;
        }
    }

    /// Sets the number of messages that a publisher keeps. If the publisher is read already, `report`
    /// gets its source so far and the source of its later messages.
    pub fn set_depth(&self, writer: Guid, depth: u32, report: impl FnOnce(Source, Source)) {
        let mut publishers = lock(&self.publishers);
        let before = publishers.depths.insert(writer, depth).unwrap_or(1);
        let Publishers { numbers, known, .. } = &mut *publishers;
        let Some(publisher) = known.get_mut(&writer) else { return };
        publisher.is_depth_known |= depth < publisher.counted;
        if before == depth {
            return;
        }
        let successor = numbers.take();
        let source = std::mem::replace(&mut publisher.source, successor);
        numbers.release(source);
        // No message of the publisher comes between.
        report(source, successor);
    }
}

/// Receives samples on Cyclone DDS's thread; does not block.
struct Receiver {
    topic: String,
    class: Class,
    /// When the reader was created: older samples are repeated for it.
    created: SystemTime,
    publishers: Arc<Mutex<Publishers>>,
    context: EndpointContext,
    orders: Sender<Order>,
}

impl Receiver {
    fn receive(&self, payload: Bytes, info: &SampleInfo) {
        let received = Instant::now();
        let Some(writer) = info.writer else {
            return self.reject(Reason::PublisherGone);
        };
        // The reader also matches writers of stronger classes, which have a reader of their own.
        let lifespan = match self.context.writers.get(&writer) {
            Some(Writer::Local(class, lifespan)) if class == self.class => lifespan,
            _ => return,
        };
        if !is_cdr(&payload) {
            return self.reject(Reason::NotCdr);
        }
        if payload.len() > self.context.max_message {
            return self.refuse_too_large(payload.len());
        }
        let topic = self.topic.clone();
        // Locked until the message is reported: the publisher's source changes when its depth becomes
        // known.
        let mut publishers = lock(&self.publishers);
        let len = payload.len();
        let (source, depth, count_delay) = publishers.on_message(writer, info.seq, len);
        let origin = self.origin(writer, depth, lifespan, info);
        let is_kept = origin.kept.is_some();
        self.context.events.emit(Event::Message { topic, source, payload, origin, received });
        drop(publishers);
        if let Some(delay) = count_delay.filter(|_| is_kept) {
            // Fails only while the gateway stops.
            let _ = self.orders.send(Order::Count(self.topic.clone(), received + delay));
        }
    }

    fn origin(
        &self,
        writer: Guid,
        depth: u32,
        lifespan: Option<Duration>,
        info: &SampleInfo,
    ) -> Origin {
        let best_effort = !self.class.reliable;
        if !self.class.transient_local {
            return Origin { best_effort, lifespan, ..Origin::default() };
        }
        let published = u64::try_from(info.source_timestamp).unwrap_or(0);
        let published = SystemTime::UNIX_EPOCH + Duration::from_nanos(published);
        let is_history = published < self.created;
        let age = match is_history {
            true => published.elapsed().unwrap_or_default(),
            false => Duration::ZERO,
        };
        // The writer numbers its samples, so the identity is certain.
        let identity = identity(&(writer, info.seq));
        let kept = Kept { identity, depth, is_repeatable: true, is_history, ..Kept::default() };
        Origin { kept: Some(kept), best_effort, lifespan, age }
    }

    fn refuse_too_large(&self, bytes: usize) {
        let EndpointContext { shared, max_message, events, .. } = &self.context;
        if let Some(reason) = shared.rejections.add_too_large(&self.topic, bytes, *max_message) {
            events.emit(Event::Refused { topic: self.topic.clone(), reason });
        }
    }

    fn reject(&self, reason: Reason) {
        self.context.shared.rejections.add(&self.topic, reason);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guid(number: usize) -> Guid {
        let mut guid = Guid::default();
        guid[..8].copy_from_slice(&number.to_be_bytes());
        guid
    }

    #[test]
    fn a_publisher_beyond_its_known_depth_is_rarely_counted_again() {
        let mut publishers = Publishers::default();
        let mut counted = |writer, len| {
            let mut is_counted = |seq: &i64| publishers.on_message(writer, *seq, len).2.is_some();
            let numbers: Vec<i64> = (1..=4000).filter(&mut is_counted).collect();
            assert!(!(1..=4000).any(|seq| is_counted(&seq)), "read again");
            numbers
        };
        let powers = |from: u32, to: u32| (from..=to).map(|bit| 1 << bit).collect::<Vec<i64>>();
        assert_eq!(counted(guid(1), 100), [(2..=16).collect(), powers(5, 9)].concat());
        assert_eq!(counted(guid(2), 100_000), powers(1, 9));
        assert_eq!(counted(guid(3), 20_000), [vec![2, 3], powers(2, 9)].concat());
        publishers.depths.insert(guid(4), 100);
        let mut is_counted = |seq: &i64| publishers.on_message(guid(4), *seq, 100).2.is_some();
        assert_eq!((1..=4000).filter(&mut is_counted).collect::<Vec<i64>>(), powers(7, 9));
    }

    #[test]
    fn a_depth_is_known_when_there_were_more_messages() {
        let subscription = Subscription::new("std_msgs/msg/String", "");
        let publish =
            |seq| lock(&subscription.publishers).on_message(guid(1), seq, 100).2.map(|_| ());
        assert_eq!((1..=3).filter_map(publish).count(), 2, "the second and the third");
        subscription.begin_count();
        // Published during the count.
        assert!(publish(4).is_some());
        subscription.set_depth(guid(1), 3, |_, _| {});
        assert!(publish(5).is_some(), "it may keep five");
        subscription.begin_count();
        subscription.set_depth(guid(1), 3, |_, _| {});
        assert_eq!((6..=15).filter_map(publish).count(), 1, "the eighth");
    }
}
