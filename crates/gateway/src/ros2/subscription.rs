// SPDX-License-Identifier: Apache-2.0
//! Topics read from local publishers.

use super::Shared;
use super::names::{self, Meaning};
use super::pairing::is_cdr;
use super::qos;
use crate::rejections::Reason;
use crate::sources::SourceNumbers;
use crate::sparing::Sparing;
use crate::{Event, Events, Source};
use bytes::Bytes;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Instant;
use tautline_dds::{
    DdsError, Discovery, Guid, Participant, Qos as Dds, RawReader, SampleInfo, Specification,
};

/// Writers of Tautline nodes on this machine, whose messages are not carried on. Entered on
/// the thread that discovers them, before their first message can be read.
#[derive(Clone, Default)]
pub struct Marked(Arc<RwLock<HashSet<Guid>>>);

/// Such writers that are remembered; further ones are taken for local publishers.
pub const MAX_MARKED: usize = 65_536;

impl Marked {
    /// Takes in one event.
    pub fn note(&self, event: &Discovery) {
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        match event {
            Discovery::Writer(it) if names::is_of_tautline(&it.qos.user_data) => {
                if all.len() < MAX_MARKED || all.contains(&it.guid) {
                    all.insert(it.guid);
                    return;
                }
                static SPARING: Sparing = Sparing::new();
                if let Some(left_out) = SPARING.next() {
                    tracing::warn!(left_out, "too many writers of Tautline nodes on this machine");
                }
            }
            Discovery::WriterGone { guid } => drop(all.remove(guid)),
            _ => {}
        }
    }

    /// Whether a writer is a Tautline node's.
    pub fn contains(&self, writer: &Guid) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).contains(writer)
    }
}

/// A topic being read.
pub struct Subscription {
    /// As ROS 2 has it.
    pub type_name: String,
    /// What its reader asks for.
    pub asked: Dds,
    sources: Arc<Mutex<Sources>>,
    _reader: RawReader,
    /// Of the reader.
    pub guid: Guid,
}

/// Numbers of the publishers that were heard.
#[derive(Default)]
struct Sources {
    numbers: SourceNumbers,
    of: HashMap<Guid, Source>,
}

impl Sources {
    fn of(&mut self, writer: Guid) -> Source {
        let numbers = &mut self.numbers;
        *self.of.entry(writer).or_insert_with(|| numbers.take())
    }
}

/// What reading a topic takes.
pub struct Context<'a> {
    pub participant: &'a Arc<Participant>,
    pub shared: &'a Arc<Shared>,
    pub events: &'a Arc<dyn Events>,
    pub marked: &'a Marked,
    pub tautline_name: &'a str,
    pub max_message: usize,
}

impl Subscription {
    /// Starts to read `topic` of a type (as ROS 2 has it).
    pub fn new(
        topic: &str,
        type_name: &str,
        asked: Dds,
        context: &Context<'_>,
    ) -> Result<Self, DdsError> {
        let sources = Arc::<Mutex<Sources>>::default();
        let taker = Taker {
            topic: topic.into(),
            sources: sources.clone(),
            shared: context.shared.clone(),
            events: context.events.clone(),
            marked: context.marked.clone(),
            max_message: context.max_message,
        };
        let user_data = names::endpoint_user_data("", context.tautline_name).into_bytes();
        let dds = Dds { user_data, ..asked.clone() };
        let specification = Specification {
            topic: &Meaning::Topic(topic.into()).dds_name(),
            type_name: &names::dds_type(type_name).unwrap_or_default(),
            qos: &dds,
        };
        let (name, health) = (topic.to_owned(), context.shared.clone());
        let incompatible = move |policy, _| {
            let text =
                format!("a publisher of {name} is not read: {} differs", qos::policy(policy));
            health.health().set(&name, "reading", text);
        };
        let take = move |bytes, info: &SampleInfo| taker.take(bytes, info);
        let reader = RawReader::new(context.participant, specification, take, incompatible)?;
        let guid = reader.guid;
        Ok(Self { type_name: type_name.into(), asked, sources, _reader: reader, guid })
    }

    /// A publisher has left: its number, if it was heard and no other has it.
    pub fn forget(&self, writer: Guid) -> Option<Source> {
        let mut sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner);
        let source = sources.of.remove(&writer)?;
        sources.numbers.release(source).then_some(source)
    }

    /// Goes on where another reader of the topic left off.
    pub fn inherit(&mut self, before: &Self) {
        std::mem::swap(
            &mut *self.sources.lock().unwrap_or_else(PoisonError::into_inner),
            &mut *before.sources.lock().unwrap_or_else(PoisonError::into_inner),
        );
    }
}

/// Takes samples on Cyclone DDS's thread; does not wait for anything.
struct Taker {
    topic: String,
    sources: Arc<Mutex<Sources>>,
    shared: Arc<Shared>,
    events: Arc<dyn Events>,
    marked: Marked,
    max_message: usize,
}

impl Taker {
    fn take(&self, payload: Bytes, info: &SampleInfo) {
        let received = Instant::now();
        let Some(writer) = info.writer else {
            return self.reject(Reason::PublisherGone);
        };
        if self.marked.contains(&writer) {
            return;
        }
        if !is_cdr(&payload) {
            return self.reject(Reason::NotCdr);
        }
        if payload.len() > self.max_message {
            return self.reject(Reason::TooLarge);
        }
        let source = self.sources.lock().unwrap_or_else(PoisonError::into_inner).of(writer);
        let topic = self.topic.clone();
        self.events.emit(Event::Message { topic, source, payload, received });
    }

    fn reject(&self, reason: Reason) {
        self.shared.rejections.add(&self.topic, reason);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tautline_dds::Endpoint;

    fn guid(number: usize) -> Guid {
        let mut guid = Guid::default();
        guid[..8].copy_from_slice(&number.to_be_bytes());
        guid
    }

    #[test]
    fn writers_of_tautline_nodes_are_remembered_until_they_leave_up_to_a_bound() {
        let marked = Marked::default();
        let writer = |number: usize, user_data: Vec<u8>| {
            Discovery::Writer(Endpoint {
                guid: guid(number),
                topic: "rt/scan".into(),
                type_name: String::new(),
                keyless: true,
                qos: Dds { user_data, ..Dds::default() },
            })
        };
        let ours = || names::endpoint_user_data("", "base").into_bytes();
        marked.note(&writer(0, Vec::new()));
        assert!(!marked.contains(&guid(0)));
        for number in 1..=MAX_MARKED + 1 {
            marked.note(&writer(number, ours()));
        }
        assert!(marked.contains(&guid(1)) && marked.contains(&guid(MAX_MARKED)));
        assert!(!marked.contains(&guid(MAX_MARKED + 1)));
        marked.note(&Discovery::WriterGone { guid: guid(1) });
        marked.note(&writer(MAX_MARKED + 1, ours()));
        assert!(!marked.contains(&guid(1)) && marked.contains(&guid(MAX_MARKED + 1)));
    }
}
