// SPDX-License-Identifier: Apache-2.0
//! Topics published to local subscribers on behalf of peers.

use super::Context;
use super::names::{self, DdsTopic};
use super::qos;
use crate::lock::lock;
use crate::log_limit::log_limited;
use crate::{Class, Classes, MAX_SOURCES, Origin, Qos, Source, Topic};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tautline_dds::{DdsError, Guid, Qos as Dds, RawWriter};

/// A topic with its writers: each publisher is read by the subscribers that match its own class.
///
/// All volatile publishers of a class share a writer. A transient local publisher has its own, since
/// a writer keeps the last messages: with a common writer, those of one publisher would replace those
/// of another, and would remain when their publisher leaves.
pub struct Publication {
    pub topic: Topic,
    context: Context,
    drops: Arc<AtomicU64>,
    writers: Mutex<Writers>,
    /// Called after writers were created or deleted.
    on_change: Box<dyn Fn() + Send + Sync>,
}

#[derive(Default)]
struct Writers {
    /// The classes of the publishers.
    classes: Classes,
    /// The writer of each volatile class, and one of each transient local class for the next
    /// publisher of the class: subscribers see it before the first message.
    of_class: BTreeMap<Class, Arc<RawWriter>>,
    of_source: BTreeMap<Source, SourceWriter>,
}

/// The writer of a transient local publisher.
struct SourceWriter {
    writer: Arc<RawWriter>,
    class: Class,
    depth: u32,
}

impl Publication {
    pub fn new(
        topic: Topic,
        context: &Context,
        on_change: Box<dyn Fn() + Send + Sync>,
    ) -> Result<Self, DdsError> {
        let drops = context.shared.drops.count(&topic.name);
        let writers = Mutex::default();
        let new = Self { topic, context: context.clone(), drops, writers, on_change };
        new.set_classes(new.topic.qos.all_classes())?;
        Ok(new)
    }

    /// Whether the publication also serves a new description of its topic, after
    /// [`Self::set_classes`]. The depth of a writer is that of its publisher.
    pub fn serves(&self, topic: &Topic) -> bool {
        let policies = |topic: &Topic| {
            let class = Class { transient_local: false, reliable: true };
            self.policies(topic, class, 1)
        };
        self.topic.type_name == topic.type_name && policies(&self.topic) == policies(topic)
    }

    /// Adds and deletes writers for the classes of the publishers. Other writers continue.
    pub fn set_classes(&self, classes: Classes) -> Result<(), DdsError> {
        let mut writers = lock(&self.writers);
        if writers.classes == classes {
            return Ok(());
        }
        writers.classes = classes;
        writers.of_class.retain(|class, _| classes.contains(*class));
        let gone = writers.of_source.extract_if(.., |_, it| !classes.contains(it.class));
        let gone: Vec<_> = gone.collect();
        let added = self.add_class_writers(&mut writers);
        drop(writers);
        // Deleted without the lock, which the writing of messages needs.
        drop(gone);
        (self.on_change)();
        added
    }

    pub fn guids(&self) -> Vec<Guid> {
        let writers = lock(&self.writers);
        let of_source = writers.of_source.values().map(|it| &it.writer);
        writers.of_class.values().chain(of_source).map(|writer| writer.guid).collect()
    }

    /// Writes a message; counts a drop if it does not fit.
    pub fn write(&self, source: Source, payload: Bytes, origin: &Origin) {
        let age = if origin.kept.is_some() { origin.age } else { Duration::ZERO };
        let writer = self.writer_of(source, origin);
        let written = writer.and_then(|to| to.write_aged(payload, None, age));
        if let Err(error) = written {
            self.drops.fetch_add(1, Ordering::Relaxed);
            tracing::debug!(topic = self.topic.name, %error, "not written");
        }
    }

    /// Forgets the messages kept of a publisher, or of all.
    pub fn forget(&self, source: Option<Source>) {
        let mut writers = lock(&self.writers);
        let gone = match source {
            Some(source) => writers.of_source.remove(&source).into_iter().collect(),
            None => Vec::from_iter(std::mem::take(&mut writers.of_source).into_values()),
        };
        if gone.is_empty() {
            return;
        }
        if let Err(error) = self.add_class_writers(&mut writers) {
            tracing::warn!(topic = self.topic.name, %error, "no publisher for the next message");
        }
        drop(writers);
        drop(gone);
        (self.on_change)();
    }

    fn writer_of(&self, source: Source, origin: &Origin) -> Result<Arc<RawWriter>, DdsError> {
        let class = origin.class();
        let mut writers = lock(&self.writers);
        let Some(kept) = origin.kept else {
            writers.classes = writers.classes.with(class.into());
            self.add_class_writers(&mut writers)?;
            return Ok(writers.of_class[&class].clone());
        };
        let depth = kept.depth;
        let fits = |it: &SourceWriter| it.class == class && it.depth >= depth;
        if let Some(known) = writers.of_source.get(&source).filter(|it| fits(it)) {
            return Ok(known.writer.clone());
        }
        // Its depth is larger than was known. What the new writer does not have is missing for late
        // joiners; written again, it would reach the others twice.
        let replaced = writers.of_source.remove(&source);
        if writers.of_source.len() >= MAX_SOURCES as usize
            && let Some(shared) = writers.of_source.values().find(|it| fits(it))
        {
            return Ok(shared.writer.clone());
        }
        let waiting = writers.of_class.remove(&class);
        let writer = match waiting.filter(|_| depth <= self.topic.qos.depth) {
            Some(waiting) => waiting,
            None => Arc::new(self.writer(class, depth, writers.classes)?),
        };
        let depth = depth.max(self.topic.qos.depth);
        writers.of_source.insert(source, SourceWriter { writer: writer.clone(), class, depth });
        drop(writers);
        drop(replaced);
        (self.on_change)();
        Ok(writer)
    }

    /// Creates the missing writers of classes without a publisher of their own.
    fn add_class_writers(&self, writers: &mut Writers) -> Result<(), DdsError> {
        for class in writers.classes.iter() {
            let has_publisher = writers.of_source.values().any(|it| it.class == class);
            if !has_publisher && !writers.of_class.contains_key(&class) {
                let writer = self.writer(class, self.topic.qos.depth, writers.classes)?;
                writers.of_class.insert(class, Arc::new(writer));
                (self.on_change)();
            }
        }
        Ok(())
    }

    fn policies(&self, topic: &Topic, class: Class, depth: u32) -> Dds {
        let Class { transient_local, reliable } = class;
        let user_data = names::endpoint_user_data(&topic.type_hash, &self.context.tautline_name);
        qos::to_write(&Qos { transient_local, reliable, depth, ..topic.qos }, user_data)
    }

    fn writer(&self, class: Class, depth: u32, all: Classes) -> Result<RawWriter, DdsError> {
        let (name, shared) = (self.topic.name.clone(), self.context.shared.clone());
        let has_several_classes = all != class.into();
        let incompatible = move |policy, count| {
            // Such a subscriber may match a publisher of another class.
            if has_several_classes && qos::is_of_class(policy) {
                return;
            }
            let text = format!(
                "{count} subscribers of {name} get nothing: they request more {} than its publisher \
                 offers",
                qos::policy(policy)
            );
            log_limited!(warn, {}, "{text}");
            shared.troubles.set(&name, "publishing", text);
        };
        let dds = self.policies(&self.topic, class, depth);
        let topic = DdsTopic::of(&self.topic.name, &self.topic.type_name);
        RawWriter::new(&self.context.participant, topic.with(&dds), incompatible)
    }
}
