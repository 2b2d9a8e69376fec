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

struct Writers {
    /// Created with the publication, so that subscribers see it before the first message.
    first: Arc<RawWriter>,
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
        let first = Arc::new(writer(&topic, &dds, context)?);
        let writers = Mutex::new(Writers { first, of: BTreeMap::new() });
        Ok(Self { topic, dds, context: context.clone(), drops, writers, on_writer })
    }

    /// Whether the publication needs no change for a new description of its topic.
    pub fn serves(&self, topic: &Topic) -> bool {
        self.topic.type_name == topic.type_name && self.dds == policies(topic, &self.context)
    }

    pub fn guids(&self) -> Vec<Guid> {
        let writers = lock(&self.writers);
        let mut guids = vec![writers.first.guid];
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
        if !self.topic.qos.transient_local {
            return Ok(writers.first.clone());
        }
        if let Some(known) = writers.of.get(&source) {
            return Ok(known.clone());
        }
        let new = match writers.of.len() {
            0 => writers.first.clone(),
            count if count < MAX_SOURCES as usize => {
                let new = writer(&self.topic, &self.dds, &self.context)?;
                (self.on_writer)();
                Arc::new(new)
            }
            _ => writers.first.clone(),
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
