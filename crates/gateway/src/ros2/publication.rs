// SPDX-License-Identifier: Apache-2.0
//! Topics published to local subscribers on behalf of peers.

use super::Context;
use super::names::{self, DdsTopic};
use super::qos;
use crate::lock::lock;
use crate::log_limit::log_limited;
use crate::{MAX_SOURCES, Source, Topic};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use tautline_dds::{DdsError, Guid, Qos as Dds, RawWriter};

/// A topic with its writers.
///
/// A volatile topic has one writer for all publishers. A transient local topic has one for each
/// publisher, since a writer keeps the last messages: with a common writer, those of one publisher
/// would replace those of another.
pub struct Publication {
    pub topic: Topic,
    dds: Dds,
    context: Context,
    drops: Arc<AtomicU64>,
    writers: Mutex<Writers>,
    /// Called after the creation of a further writer.
    on_writer: Box<dyn Fn() + Send + Sync>,
}

#[derive(Default)]
struct Writers {
    /// Created with the publication, so that subscribers see it before the first message; `None`
    /// while no publisher is alive that would assert its liveliness by its existence.
    first: Option<Arc<RawWriter>>,
    of: BTreeMap<Source, Arc<RawWriter>>,
}

impl Publication {
    pub fn new(
        topic: Topic,
        context: &Context,
        on_writer: Box<dyn Fn() + Send + Sync>,
    ) -> Result<Self, DdsError> {
        let dds = policies(&topic, context);
        let drops = context.shared.drops.count(&topic.name);
        let publication = Self {
            topic,
            dds,
            context: context.clone(),
            drops,
            writers: Mutex::default(),
            on_writer,
        };
        if !publication.topic.qos.liveliness.lost {
            publication.assert_liveliness()?;
        }
        Ok(publication)
    }

    /// Shows subscribers that a publisher is alive.
    pub fn assert_liveliness(&self) -> Result<(), DdsError> {
        let mut writers = lock(&self.writers);
        let first = self.first(&mut writers)?;
        // Cyclone DDS asserts by a heartbeat, which only reliable writers have (an assertion of
        // others aborts); those of best effort are alive with each message.
        if qos::asserts_by_topic(&self.topic.qos) && self.topic.qos.reliable {
            // A write alone may have created the others.
            let all = writers.of.values().filter(|it| it.guid != first.guid).chain([&first]);
            all.cloned().collect::<Vec<_>>().iter().try_for_each(|it| it.assert_liveliness())?;
        }
        Ok(())
    }

    /// Lets liveliness end that nobody asserts. By topic it ends with its lease, also after a
    /// late message. Cyclone DDS asserts the other kind while a writer exists; it then returns true.
    pub fn lose_liveliness(&self) -> bool {
        if qos::asserts_by_topic(&self.topic.qos) {
            return false;
        }
        let gone = std::mem::take(&mut *lock(&self.writers));
        gone.first.is_some()
    }

    fn first(&self, writers: &mut Writers) -> Result<Arc<RawWriter>, DdsError> {
        if let Some(first) = &writers.first {
            return Ok(first.clone());
        }
        let first = Arc::new(writer(&self.topic, &self.dds, &self.context)?);
        writers.first = Some(first.clone());
        (self.on_writer)();
        Ok(first)
    }

    /// Whether the publication needs no change for a new description of its topic.
    pub fn serves(&self, topic: &Topic) -> bool {
        self.topic.type_name == topic.type_name && self.dds == policies(topic, &self.context)
    }

    pub fn guids(&self) -> Vec<Guid> {
        let writers = lock(&self.writers);
        let mut guids: Vec<Guid> = writers.first.iter().map(|writer| writer.guid).collect();
        guids.extend(writers.of.values().map(|writer| writer.guid));
        guids.dedup();
        guids
    }

    /// Writes a message; counts a drop if it does not fit.
    pub fn write(&self, source: Source, payload: Bytes) {
        let written = self.writer_of(source).and_then(|to| to.write(payload, None));
        if let Err(error) = written {
            self.drops.fetch_add(1, Ordering::Relaxed);
            tracing::debug!(topic = self.topic.name, %error, "not written");
        }
    }

    fn writer_of(&self, source: Source) -> Result<Arc<RawWriter>, DdsError> {
        let mut writers = lock(&self.writers);
        let first = self.first(&mut writers)?;
        if !self.topic.qos.transient_local {
            return Ok(first);
        }
        if let Some(known) = writers.of.get(&source) {
            return Ok(known.clone());
        }
        let new = match writers.of.len() {
            0 => first,
            count if count < MAX_SOURCES as usize => {
                let new = writer(&self.topic, &self.dds, &self.context)?;
                (self.on_writer)();
                Arc::new(new)
            }
            _ => first,
        };
        writers.of.insert(source, new.clone());
        Ok(new)
    }
}

fn policies(topic: &Topic, context: &Context) -> Dds {
    let user_data = names::endpoint_user_data(&topic.type_hash, &context.tautline_name);
    qos::to_write(&topic.qos, user_data)
}

fn writer(topic: &Topic, dds: &Dds, context: &Context) -> Result<RawWriter, DdsError> {
    let (name, shared) = (topic.name.clone(), context.shared.clone());
    let incompatible = move |policy, count| {
        let text = format!(
            "{count} subscribers of {name} get nothing: they request more {} than its publisher \
             offers",
            qos::policy(policy)
        );
        log_limited!(warn, {}, "{text}");
        shared.troubles.set(&name, "publishing", text);
    };
    let topic = DdsTopic::of(&topic.name, &topic.type_name);
    RawWriter::new(&context.participant, topic.with(dds), incompatible)
}
