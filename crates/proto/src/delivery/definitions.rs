// SPDX-License-Identifier: Apache-2.0
//! Known type definitions: they need not be requested again.
//!
//! Each peer has a store of its own, since a peer's definition says nothing about the types of
//! another. The node's own store has the definitions of its application's topics.

use crate::wire::control::OfferedTopic;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Approximate memory of a table entry in addition to its text.
const ENTRY_OVERHEAD: usize = 128;

/// A type's name and hash.
type Key = (String, String);

/// A store of definitions with a limit of bytes.
#[derive(Debug)]
pub(crate) struct Definitions {
    texts: HashMap<Key, Arc<str>>,
    bytes: usize,
    max_bytes: usize,
    /// A topic was removed or changed since unused definitions were last removed.
    may_have_unused: bool,
}

fn key(topic: &OfferedTopic) -> Key {
    (topic.type_name.clone(), topic.type_hash.clone())
}

fn cost(key: &Key, text: &str) -> usize {
    key.0.len() + key.1.len() + text.len() + ENTRY_OVERHEAD
}

impl Definitions {
    pub(crate) fn new(max_bytes: usize) -> Self {
        Self { texts: HashMap::new(), bytes: 0, max_bytes, may_have_unused: false }
    }

    pub(crate) fn get(&self, topic: &OfferedTopic) -> Option<Arc<str>> {
        self.texts.get(&key(topic)).cloned()
    }

    /// Adds the definition of a topic's type unless it is known; `false` if the store is full.
    pub(crate) fn insert(&mut self, topic: &OfferedTopic, text: &Arc<str>) -> bool {
        let key = key(topic);
        if self.texts.contains_key(&key) {
            return true;
        }
        let cost = cost(&key, text);
        let fits = self.bytes + cost <= self.max_bytes;
        if fits {
            self.bytes += cost;
            self.texts.insert(key, text.clone());
        }
        fits
    }

    /// Records that a topic was removed or changed.
    pub(crate) fn topic_removed(&mut self) {
        self.may_have_unused = true;
    }

    /// Removes definitions that no topic uses.
    pub(crate) fn retain_used<'a>(&mut self, topics: impl Iterator<Item = &'a OfferedTopic>) {
        // Without this check, each definition beyond the limit would cost a pass over all topics: a
        // second in all.
        if !std::mem::take(&mut self.may_have_unused) {
            return;
        }
        let used: HashSet<Key> = topics.map(key).collect();
        self.texts.retain(|key, _| used.contains(key));
        self.bytes = self.texts.iter().map(|(key, text)| cost(key, text)).sum();
    }
}
