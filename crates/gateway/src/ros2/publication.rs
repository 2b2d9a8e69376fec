// SPDX-License-Identifier: Apache-2.0
//! Topics published to local subscribers on behalf of peers.

use super::endpoint_context::EndpointContext;
use super::history::MAX_DEPTH;
use super::names::{self, DdsTopic};
use super::qos;
use super::source_writers::{Message, Policies, SelectedWriters, SourceWriters};
use crate::lock::lock;
use crate::log_limit::log_limited;
use crate::{Class, Classes, Kept, MAX_SOURCES, Origin, Qos, Source, Topic};
use bytes::Bytes;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tautline_dds::{Audience, DdsError, Guid, Qos as Dds, RawWriter};

/// Time after the start in which subscribers from before a restart are discovered. Until then,
/// undiscovered subscribers count as present: a writer for them keeps the messages that they miss.
/// Subscribers that are not discovered by then have left.
pub(super) const REDISCOVERY: Duration = Duration::from_secs(10);

/// The publications by topic.
pub type SharedPublications = Arc<Mutex<HashMap<String, Arc<Publication>>>>;

/// Maximum number of writers of the transient local publishers of a topic.
const MAX_SOURCE_WRITERS: usize = 2 * MAX_SOURCES as usize;

/// A topic with its writers: each publisher is read by the subscribers that match its own class.
///
/// All volatile publishers of a class share a writer. A transient local publisher has its own, since
/// a writer keeps the last messages: with a common writer, those of one publisher would replace those
/// of another, and would remain when their publisher leaves. Volatile subscribers get the messages of
/// transient local publishers from a volatile writer, since they must not get what is kept.
pub struct Publication {
    pub topic: Topic,
    context: EndpointContext,
    drops: Arc<AtomicU64>,
    writers: Mutex<Writers>,
    /// Called after writers were created or deleted.
    on_change: Box<dyn Fn() + Send + Sync>,
}

#[derive(Default)]
struct Writers {
    /// The classes of the publishers.
    classes: Classes,
    /// Number of publishers that keep messages.
    keeping: usize,
    /// Whether no publisher is alive. Then writers that count as alive while they exist are deleted.
    hidden: bool,
    /// Whether a volatile subscriber was found.
    has_volatile_reader: bool,
    /// The writer of each volatile class.
    volatile: BTreeMap<Class, Arc<RawWriter>>,
    /// Writers for transient local publishers without a message so far: subscribers see them before
    /// the first message.
    unassigned: Vec<(Class, Arc<RawWriter>)>,
    /// The writers of transient local publishers, oldest first.
    source_writers: BTreeMap<Source, SourceWriters<Arc<RawWriter>>>,
}

impl Writers {
    /// The classes with writers.
    fn classes_with_writers(&self) -> impl Iterator<Item = Class> {
        let hidden = self.hidden;
        self.classes.iter().filter(move |class| !hidden || class.keeps_reliably())
    }

    /// All writers with their classes.
    fn with_classes(&self) -> impl Iterator<Item = (Class, &Arc<RawWriter>)> {
        let volatile = self.volatile.iter().map(|(class, writer)| (*class, writer));
        let unassigned = self.unassigned.iter().map(|(class, writer)| (*class, writer));
        volatile
            .chain(unassigned)
            .chain(self.source_writers.values().flat_map(SourceWriters::with_classes))
    }

    /// The volatile classes that need a writer.
    fn volatile_classes(&self) -> BTreeSet<Class> {
        let all = self.classes.iter().filter(|_| !self.hidden);
        let all = all.filter(|class| self.has_volatile_reader || !class.transient_local);
        all.map(|class| Class { transient_local: false, ..class }).collect()
    }

    /// Removes publishers beyond the limit of writers, except `exempt`. Late joiners do not get the kept
    /// messages of a removed publisher.
    fn evict(&mut self, exempt: Source) -> Vec<SourceWriters<Arc<RawWriter>>> {
        let mut count: usize = self.source_writers.values().map(SourceWriters::len).sum();
        let surplus = |source: &Source, of: &mut SourceWriters<_>| {
            let is_surplus = count > MAX_SOURCE_WRITERS && *source != exempt;
            count -= if is_surplus { of.len() } else { 0 };
            is_surplus
        };
        self.source_writers.extract_if(.., surplus).map(|(_, of)| of).collect()
    }

    /// The transient local classes, each as often as it has publishers without a message so far.
    fn unassigned_classes(&self) -> Vec<Class> {
        let kept = self.classes_with_writers().filter(|class| class.transient_local);
        let mut missing = Vec::new();
        for class in kept {
            let known = self.source_writers.values().filter(|of| of.has_class(class)).count();
            // `keeping` counts the publishers of all classes; one writer of a weaker class is enough.
            let expected = if class.reliable { self.keeping.max(1) } else { 1 };
            missing.extend(std::iter::repeat_n(class, expected.saturating_sub(known)));
        }
        missing
    }
}

impl Publication {
    pub fn new(
        topic: Topic,
        context: &EndpointContext,
        on_change: Box<dyn Fn() + Send + Sync>,
    ) -> Result<Self, DdsError> {
        let drops = context.shared.drops.counter(&topic.name);
        let writers = Mutex::default();
        let new = Self { topic, context: context.clone(), drops, writers, on_change };
        let readers = context
            .readers
            .readers_of_topic(&DdsTopic::for_topic(&new.topic.name, &new.topic.type_name).name);
        let mut writers = lock(&new.writers);
        writers.has_volatile_reader = readers.values().any(|joins_late| !joins_late);
        writers.hidden = new.topic.qos.liveliness.lost && !new.topic.qos.liveliness.manual;
        drop(writers);
        new.update_writers(&new.topic.qos)?;
        Ok(new)
    }

    /// Whether the publication also serves a new description of its topic, after
    /// [`Self::update_writers`]. The depth of a writer is that of its publisher.
    pub fn serves(&self, topic: &Topic) -> bool {
        let policies = |topic: &Topic| {
            let class = Class { transient_local: false, reliable: true };
            self.policies(topic, &Policies { depth: 1, ..default_policies(topic, class) })
        };
        self.topic.type_name == topic.type_name && policies(&self.topic) == policies(topic)
    }

    /// Adds and deletes writers for the publishers of the topic. Other writers continue.
    pub fn update_writers(&self, qos: &Qos) -> Result<(), DdsError> {
        let mut writers = lock(&self.writers);
        let (classes, keeping) = (qos.all_classes(), usize::from(qos.keeping));
        if (writers.classes, writers.keeping) == (classes, keeping) {
            return Ok(());
        }
        writers.classes = classes;
        writers.keeping = keeping;
        let is_unused = |_: &Source, it: &mut SourceWriters<_>| {
            it.with_classes().all(|(class, _)| !classes.contains(class))
        };
        let gone: Vec<_> = writers.source_writers.extract_if(.., is_unused).collect();
        let changed = self.add_missing(&mut writers);
        drop(writers);
        // Deleted without the lock, which the writing of messages needs.
        drop(gone);
        changed.map(|outdated| self.drop_outdated(outdated))
    }

    /// Shows that a publisher is alive: its writers exist, and assert it if there are subscribers.
    pub fn assert_liveliness(&self, has_subscribers: bool) -> Result<(), DdsError> {
        let mut writers = lock(&self.writers);
        self.end_hiding(&mut writers)?;
        let by_topic = |class: &Class| {
            class.keeps_reliably() || (class.reliable && self.topic.qos.liveliness.manual)
        };
        let asserted =
            writers.with_classes().filter(|(class, _)| has_subscribers && by_topic(class));
        let asserted: Vec<_> = asserted.map(|(_, writer)| writer.clone()).collect();
        drop(writers);
        asserted.iter().try_for_each(|writer| writer.assert_liveliness())
    }

    fn end_hiding(&self, writers: &mut Writers) -> Result<(), DdsError> {
        if std::mem::take(&mut writers.hidden) {
            let outdated = self.add_missing(writers)?;
            self.drop_outdated(outdated);
        }
        Ok(())
    }

    /// Ends the liveliness of publishers that are not alive. Writers that assert theirs by topic lose it
    /// with the lease, also after a late message. The other writers are deleted.
    pub fn hide_lost(&self) -> Result<(), DdsError> {
        if self.topic.qos.liveliness.manual {
            return Ok(());
        }
        let mut writers = lock(&self.writers);
        if std::mem::replace(&mut writers.hidden, true) {
            return Ok(());
        }
        // Best-effort writers give late joiners no kept messages.
        let is_best_effort = |_: &Source, it: &mut SourceWriters<_>| {
            it.with_classes().all(|(class, _)| !class.reliable)
        };
        let gone: Vec<_> = writers.source_writers.extract_if(.., is_best_effort).collect();
        let changed = self.add_missing(&mut writers);
        drop(writers);
        drop(gone);
        changed.map(|outdated| self.drop_outdated(outdated))
    }

    fn drop_outdated(&self, outdated: Vec<Arc<RawWriter>>) {
        drop(outdated);
        (self.on_change)();
    }

    pub fn guids(&self) -> Vec<Guid> {
        lock(&self.writers).with_classes().map(|(_, writer)| writer.guid).collect()
    }

    /// Writes a message; counts a drop if it does not fit.
    pub fn write(&self, source: Source, payload: Bytes, origin: &Origin) {
        let written = match origin.kept {
            Some(kept) => self.write_kept(source, payload, origin, kept),
            None => self.write_volatile(origin.class(), payload),
        };
        if let Err(error) = written {
            self.drops.fetch_add(1, Ordering::Relaxed);
            tracing::debug!(topic = self.topic.name, %error, "not written");
        }
    }

    /// Forgets the messages kept of a publisher, or of all.
    pub fn forget(&self, source: Option<Source>) {
        let mut writers = lock(&self.writers);
        let gone = match source {
            Some(source) => writers.source_writers.remove(&source).into_iter().collect(),
            None => Vec::from_iter(std::mem::take(&mut writers.source_writers).into_values()),
        };
        if gone.is_empty() {
            return;
        }
        let changed = self.add_missing(&mut writers);
        drop(writers);
        drop(gone);
        self.on_writers_changed(changed);
    }

    fn on_writers_changed(&self, changed: Result<Vec<Arc<RawWriter>>, DdsError>) {
        match changed {
            Ok(outdated) => self.drop_outdated(outdated),
            Err(error) => {
                tracing::warn!(topic = self.topic.name, %error, "no publisher for some messages");
            }
        }
    }

    /// Records a new subscriber of the topic, which gets the messages that the writers keep.
    pub fn on_reader(&self, reader: Guid, joins_late: bool) {
        let mut writers = lock(&self.writers);
        if !joins_late {
            let is_first = !std::mem::replace(&mut writers.has_volatile_reader, true);
            if is_first && writers.classes.keep_messages() {
                let changed = self.add_missing(&mut writers);
                drop(writers);
                self.on_writers_changed(changed);
            }
            return;
        }
        let reader_key = [u128::from_be_bytes(reader)];
        for identity in writers.source_writers.values().flat_map(|of| of.kept_for(&reader)) {
            self.context.deliveries.add(&self.topic.name, identity, reader_key);
        }
    }

    /// Records that a subscriber of the topic has left.
    pub fn on_reader_gone(&self, reader: Guid) {
        let mut writers = lock(&self.writers);
        let ended: Vec<_> =
            writers.source_writers.values_mut().flat_map(|of| of.on_reader_gone(&reader)).collect();
        drop(writers);
        if !ended.is_empty() {
            self.drop_outdated(ended);
        }
    }

    fn write_volatile(&self, class: Class, payload: Bytes) -> Result<(), DdsError> {
        let mut writers = lock(&self.writers);
        if !writers.volatile.contains_key(&class) {
            // A message shows that its publisher is alive.
            self.end_hiding(&mut writers)?;
            writers.classes = writers.classes.with(class.into());
            let changed = self.add_missing(&mut writers)?;
            self.drop_outdated(changed);
        }
        let writer = writers.volatile.get(&class).cloned();
        drop(writers);
        let missing = || DdsError { what: "writer", reason: "is missing".into(), full: false };
        writer.ok_or_else(missing)?.write(payload, None).map(drop)
    }

    fn write_kept(
        &self,
        source: Source,
        payload: Bytes,
        origin: &Origin,
        kept: Kept,
    ) -> Result<(), DdsError> {
        let (topic, deliveries) = (&self.topic.name, &self.context.deliveries);
        let mut holders = BTreeSet::<Guid>::new();
        if kept.is_repeatable {
            let subscribers = deliveries.subscribers(topic, kept.identity);
            holders.extend(subscribers.into_iter().map(u128::to_be_bytes));
        }
        let readers = self
            .context
            .readers
            .readers_of_topic(&DdsTopic::for_topic(topic, &self.topic.type_name).name);
        let present = readers.iter().filter(|(_, joins_late)| **joins_late);
        let mut present: BTreeSet<Guid> = present.map(|(reader, _)| *reader).collect();
        if self.context.started.elapsed() < REDISCOVERY {
            let known = deliveries.all_subscribers(topic).into_iter().map(u128::to_be_bytes);
            present.extend(known.filter(|reader| !readers.contains_key(reader)));
        }
        if kept.is_for_late_joiners && kept.depth > 1 {
            // Subscribers that have any message may have a newer one. (With depth 1, none is newer.)
            let earlier_recipients = deliveries.all_subscribers(topic);
            let earlier_recipients =
                present.iter().filter(|it| earlier_recipients.contains(&u128::from_be_bytes(**it)));
            holders.extend(earlier_recipients);
        }
        let recipients = present.iter().map(|reader| u128::from_be_bytes(*reader));
        deliveries.add(topic, kept.identity, recipients);
        let class = origin.class();
        // Volatile subscribers get neither history nor a message that others already have.
        let is_new = holders.is_empty() && !kept.is_history && !kept.is_for_late_joiners;
        if is_new && readers.values().any(|joins_late| !joins_late) {
            self.write_volatile(Class { transient_local: false, ..class }, payload.clone())?;
        }
        let policies = if class.reliable {
            let lifespan = origin.lifespan_within(self.topic.qos.lifespan);
            Policies { class, depth: kept.depth.clamp(1, MAX_DEPTH), lifespan }
        } else if holders.is_empty() {
            default_policies(&self.topic, class)
        } else {
            // Best-effort writers give later subscribers no kept messages.
            return Ok(());
        };
        let Kept { identity, is_repeatable, .. } = kept;
        let (policies, holders, present) = (&policies, &holders, &present);
        let message = Message { identity, is_repeatable, policies, holders, present };
        let writers = self.writers_for(source, &message)?;
        let write =
            |it: &Arc<RawWriter>| it.write_with_age(payload.clone(), None, origin.age).map(drop);
        // If one writer fails, the readers of the other still get the message.
        writers.iter().map(write).fold(Ok(()), Result::and)
    }

    /// The writers of a transient local publisher for a message.
    fn writers_for(
        &self,
        source: Source,
        message: &Message<'_>,
    ) -> Result<Vec<Arc<RawWriter>>, DdsError> {
        let mut all = lock(&self.writers);
        let class = message.policies.class;
        if !class.keeps_reliably() {
            self.end_hiding(&mut all)?;
        }
        let is_changed = Cell::new(false);
        let Writers { classes, unassigned, source_writers, .. } = &mut *all;
        let ready = || {
            let is_default = default_policies(&self.topic, class) == *message.policies;
            let at = unassigned.iter().position(|(of, _)| is_default && *of == class)?;
            is_changed.set(true);
            Some(unassigned.remove(at).1)
        };
        let create = |policies: &Policies, audience| {
            is_changed.set(true);
            self.writer(policies, audience, *classes).map(Arc::new)
        };
        let SelectedWriters { writers, outdated } =
            source_writers.entry(source).or_default().select(message, ready, create)?;
        if is_changed.get() || !outdated.is_empty() {
            let evicted = all.evict(source);
            let unused = self.add_missing(&mut all);
            drop(all);
            drop((outdated, evicted));
            self.drop_outdated(unused?);
        }
        Ok(writers)
    }

    /// Creates the missing writers; returns those that are no longer needed.
    fn add_missing(&self, writers: &mut Writers) -> Result<Vec<Arc<RawWriter>>, DdsError> {
        let needed = writers.volatile_classes();
        let outdated = writers.volatile.extract_if(.., |class, _| !needed.contains(class));
        let mut outdated: Vec<_> = outdated.map(|(_, writer)| writer).collect();
        for class in needed {
            if !writers.volatile.contains_key(&class) {
                let writer = self.default_writer(class, writers.classes)?;
                writers.volatile.insert(class, writer);
            }
        }
        let mut spare = std::mem::take(&mut writers.unassigned);
        for class in writers.unassigned_classes() {
            let known = spare.iter().position(|(of, _)| *of == class);
            let writer = match known {
                Some(at) => spare.remove(at).1,
                None => self.default_writer(class, writers.classes)?,
            };
            writers.unassigned.push((class, writer));
        }
        outdated.extend(spare.into_iter().map(|(_, writer)| writer));
        Ok(outdated)
    }

    fn policies(&self, topic: &Topic, policies: &Policies) -> Dds {
        let Policies { class: Class { transient_local, reliable }, depth, lifespan } = *policies;
        let user_data = names::endpoint_user_data(&topic.type_hash, &self.context.tautline_name);
        let qos = Qos { transient_local, reliable, depth, lifespan, ..topic.qos };
        qos::writer_policies(&qos, user_data)
    }

    /// A writer for all subscribers that match the description of the topic.
    fn default_writer(&self, class: Class, all: Classes) -> Result<Arc<RawWriter>, DdsError> {
        let everyone = Audience::AllBut(BTreeSet::new());
        self.writer(&default_policies(&self.topic, class), everyone, all).map(Arc::new)
    }

    fn writer(
        &self,
        policies: &Policies,
        audience: Audience,
        all: Classes,
    ) -> Result<RawWriter, DdsError> {
        let (name, shared) = (self.topic.name.clone(), self.context.shared.clone());
        let has_several_classes = all != policies.class.into();
        let incompatible = move |policy, count| {
            // Such a subscriber may match a publisher of another class.
            if has_several_classes && qos::is_class_policy(policy) {
                return;
            }
            let text = format!(
                "{count} subscribers of {name} get nothing: they request more {} than its publisher \
                 offers",
                qos::policy_name(policy)
            );
            log_limited!(warn, {}, "{text}");
            shared.troubles.set(&name, "publishing", text);
        };
        let dds = self.policies(&self.topic, policies);
        let topic = DdsTopic::for_topic(&self.topic.name, &self.topic.type_name);
        let specification = topic.specification(&dds);
        RawWriter::with_audience(&self.context.participant, specification, audience, incompatible)
    }
}

/// The policies of a writer whose publisher has the policies in the description of the topic.
fn default_policies(topic: &Topic, class: Class) -> Policies {
    let Qos { depth, lifespan, .. } = topic.qos;
    Policies { class, depth: depth.clamp(1, MAX_DEPTH), lifespan }
}
