// SPDX-License-Identifier: Apache-2.0
//! Topics published to local subscribers on behalf of peers.

use super::Shared;
use super::names::{self, Meaning};
use super::qos;
use crate::sparing::Sparing;
use crate::{MAX_SOURCES, Source, Topic};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tautline_dds::{DdsError, Guid, Participant, Qos as Dds, RawWriter, Specification};

/// A topic with its writers.
///
/// There is one writer for all publishers of a volatile topic. Of a transient local one each
/// publisher has its own, since the last messages are kept per writer: else one publisher's
/// would push out another's.
pub struct Publication {
    /// What is published.
    pub topic: Topic,
    dds: Dds,
    tautline_name: String,
    participant: Arc<Participant>,
    shared: Arc<Shared>,
    drops: Arc<AtomicU64>,
    writers: Mutex<Writers>,
    /// Told when there is one more writer.
    on_writer: Box<dyn Fn() + Send + Sync>,
}

struct Writers {
    /// Made with the publication, so that it shows before there is a message.
    first: Arc<RawWriter>,
    of: BTreeMap<Source, Arc<RawWriter>>,
}

impl Publication {
    /// Starts.
    pub fn new(
        topic: Topic,
        tautline_name: &str,
        participant: &Arc<Participant>,
        shared: &Arc<Shared>,
        on_writer: Box<dyn Fn() + Send + Sync>,
    ) -> Result<Self, DdsError> {
        let dds =
            qos::to_write(&topic.qos, names::endpoint_user_data(&topic.type_hash, tautline_name));
        let drops = shared.drops.of(&topic.name);
        let first = writer(&topic, &dds, participant, shared)?;
        Ok(Self {
            topic,
            dds,
            tautline_name: tautline_name.into(),
            participant: participant.clone(),
            shared: shared.clone(),
            drops,
            writers: Mutex::new(Writers { first: Arc::new(first), of: BTreeMap::new() }),
            on_writer,
        })
    }

    /// Whether it serves as it is for a topic that has changed so.
    pub fn serves(&self, topic: &Topic) -> bool {
        let user_data = names::endpoint_user_data(&topic.type_hash, &self.tautline_name);
        self.topic.type_name == topic.type_name && self.dds == qos::to_write(&topic.qos, user_data)
    }

    /// GUIDs of its writers.
    pub fn guids(&self) -> Vec<Guid> {
        let writers = self.writers.lock().unwrap_or_else(PoisonError::into_inner);
        let mut guids = vec![writers.first.guid];
        guids.extend(writers.of.values().map(|writer| writer.guid));
        guids.dedup();
        guids
    }

    /// Writes a message; one that subscribers have no room for is counted.
    pub fn write(&self, source: Source, payload: Bytes) {
        let written = self.writer_of(source).and_then(|to| to.write(payload, None));
        if let Err(error) = written {
            self.drops.fetch_add(1, Ordering::Relaxed);
            tracing::debug!(topic = self.topic.name, %error, "not written");
        }
    }

    fn writer_of(&self, source: Source) -> Result<Arc<RawWriter>, DdsError> {
        let mut writers = self.writers.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.topic.qos.transient_local {
            return Ok(writers.first.clone());
        }
        if let Some(known) = writers.of.get(&source) {
            return Ok(known.clone());
        }
        let new = match writers.of.len() {
            0 => writers.first.clone(),
            count if count < MAX_SOURCES as usize => {
                let new = writer(&self.topic, &self.dds, &self.participant, &self.shared)?;
                (self.on_writer)();
                Arc::new(new)
            }
            _ => writers.first.clone(),
        };
        writers.of.insert(source, new.clone());
        Ok(new)
    }
}

fn writer(
    topic: &Topic,
    dds: &Dds,
    participant: &Arc<Participant>,
    shared: &Arc<Shared>,
) -> Result<RawWriter, DdsError> {
    let specification = Specification {
        topic: &Meaning::Topic(topic.name.clone()).dds_name(),
        type_name: &names::dds_type(&topic.type_name).unwrap_or_default(),
        qos: dds,
    };
    let (name, health) = (topic.name.clone(), shared.clone());
    let incompatible = move |policy, count| {
        let text = format!(
            "{count} subscribers of {name} get nothing: they ask for more {} than its publisher \
             offers",
            qos::policy(policy)
        );
        static SPARING: Sparing = Sparing::new();
        if let Some(left_out) = SPARING.next() {
            tracing::warn!(left_out, "{text}");
        }
        health.health().set(&name, "publishing", text);
    };
    RawWriter::new(participant, specification, incompatible)
}
