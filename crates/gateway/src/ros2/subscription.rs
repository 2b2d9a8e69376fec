// SPDX-License-Identifier: Apache-2.0
//! Topics read from local publishers.

use super::Context;
use super::names::{self, DdsTopic};
use super::pairing::is_cdr;
use super::qos;
use crate::lock::lock;
use crate::log_limit::log_limited;
use crate::rejections::Reason;
use crate::sources::SourceNumbers;
use crate::{Event, Source};
use bytes::Bytes;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Instant;
use tautline_dds::{DdsError, Discovery, Guid, Qos as Dds, RawReader, SampleInfo};

/// Writers of Tautline nodes on this machine, whose messages are not carried. The discovery thread
/// adds a writer before its first message can be read.
#[derive(Clone, Default)]
pub struct TautlineWriters(Arc<RwLock<HashSet<Guid>>>);

/// Such writers tracked; further ones count as local publishers.
pub const MAX_TAUTLINE_WRITERS: usize = 65_536;

impl TautlineWriters {
    pub fn on_event(&self, event: &Discovery) {
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        match event {
            Discovery::Writer(writer) if names::is_of_tautline(&writer.qos.user_data) => {
                if all.len() < MAX_TAUTLINE_WRITERS || all.contains(&writer.guid) {
                    all.insert(writer.guid);
                    return;
                }
                log_limited!(warn, {}, "too many writers of Tautline nodes on this machine");
            }
            Discovery::WriterGone { guid } => drop(all.remove(guid)),
            _ => {}
        }
    }

    pub fn contains(&self, writer: &Guid) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).contains(writer)
    }
}

pub struct Subscription {
    /// As ROS 2 has it.
    pub type_name: String,
    pub policies: Dds,
    sources: Arc<Mutex<Sources>>,
    lost: Arc<AtomicBool>,
    pub reader: RawReader,
}

/// Numbers of the publishers with messages so far.
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

impl Subscription {
    /// Starts to read `topic` with a type (as ROS 2 has it).
    pub fn new(
        topic: &str,
        type_name: &str,
        policies: Dds,
        context: &Context,
        on_liveliness: impl Fn() + Send + Sync + 'static,
    ) -> Result<Self, DdsError> {
        let sources = Arc::<Mutex<Sources>>::default();
        let receiver =
            Receiver { topic: topic.into(), sources: sources.clone(), context: context.clone() };
        let user_data = names::endpoint_user_data("", &context.tautline_name).into_bytes();
        let dds = Dds { user_data, ..policies.clone() };
        let (name, shared) = (topic.to_owned(), context.shared.clone());
        let incompatible = move |policy, _| {
            let text =
                format!("a publisher of {name} is not read: {} differs", qos::policy(policy));
            shared.troubles.set(&name, "reading", text);
        };
        let receive = move |bytes, info: &SampleInfo| receiver.receive(bytes, info);
        let lost = Arc::<AtomicBool>::default();
        let changed = lost.clone();
        let liveliness = move |alive, not_alive| {
            let is_lost = alive == 0 && not_alive > 0;
            if changed.swap(is_lost, Ordering::SeqCst) != is_lost {
                on_liveliness();
            }
        };
        let topic = DdsTopic::of(topic, type_name);
        let (participant, about) = (&context.participant, topic.with(&dds));
        let reader = RawReader::watching(participant, about, receive, incompatible, liveliness)?;
        Ok(Self { type_name: type_name.into(), policies, sources, lost, reader })
    }

    /// Whether it has publishers, and none is alive.
    pub fn is_lost(&self) -> bool {
        self.lost.load(Ordering::SeqCst)
    }

    /// Removes a publisher that has left; returns its number if no other publisher has it.
    pub fn forget(&self, writer: Guid) -> Option<Source> {
        let mut sources = lock(&self.sources);
        let source = sources.of.remove(&writer)?;
        sources.numbers.release(source).then_some(source)
    }

    /// Takes over the source numbers of another reader of the topic.
    pub fn inherit(&mut self, before: &Self) {
        std::mem::swap(&mut *lock(&self.sources), &mut *lock(&before.sources));
    }
}

/// Receives samples on Cyclone DDS's thread; does not block.
struct Receiver {
    topic: String,
    sources: Arc<Mutex<Sources>>,
    context: Context,
}

impl Receiver {
    fn receive(&self, payload: Bytes, info: &SampleInfo) {
        let received = Instant::now();
        let Some(writer) = info.writer else {
            return self.reject(Reason::PublisherGone);
        };
        if self.context.tautline_writers.contains(&writer) {
            return;
        }
        if !is_cdr(&payload) {
            return self.reject(Reason::NotCdr);
        }
        if payload.len() > self.context.max_message {
            return self.reject(Reason::TooLarge);
        }
        let source = lock(&self.sources).of(writer);
        let topic = self.topic.clone();
        self.context.events.emit(Event::Message { topic, source, payload, received });
    }

    fn reject(&self, reason: Reason) {
        self.context.shared.rejections.add(&self.topic, reason);
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
    fn writers_of_tautline_nodes_are_tracked_until_they_leave_within_a_limit() {
        let writers = TautlineWriters::default();
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
        writers.on_event(&writer(0, Vec::new()));
        assert!(!writers.contains(&guid(0)));
        for number in 1..=MAX_TAUTLINE_WRITERS + 1 {
            writers.on_event(&writer(number, ours()));
        }
        assert!(writers.contains(&guid(1)) && writers.contains(&guid(MAX_TAUTLINE_WRITERS)));
        assert!(!writers.contains(&guid(MAX_TAUTLINE_WRITERS + 1)));
        writers.on_event(&Discovery::WriterGone { guid: guid(1) });
        writers.on_event(&writer(MAX_TAUTLINE_WRITERS + 1, ours()));
        assert!(!writers.contains(&guid(1)) && writers.contains(&guid(MAX_TAUTLINE_WRITERS + 1)));
    }
}
