// SPDX-License-Identifier: Apache-2.0
//! Definitions of types that are known, so that they need not be asked for again.
//!
//! Each peer has a store of its own: what one supplies says nothing about what another means. The
//! node's own store holds what its application offers.

use crate::wire::control::OfferedTopic;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// What the table itself takes for each definition, about.
const OVERHEAD: usize = 128;

/// A type's name and hash.
type Key = (String, String);

/// Definitions within a budget.
#[derive(Debug)]
pub(crate) struct Definitions {
    texts: HashMap<Key, Arc<str>>,
    bytes: usize,
    max_bytes: usize,
    /// A topic went, or changed, since it was last looked for those that no topic uses.
    may_have_unused: bool,
}

fn key(topic: &OfferedTopic) -> Key {
    (topic.type_name.clone(), topic.type_hash.clone())
}

fn cost(key: &Key, text: &str) -> usize {
    key.0.len() + key.1.len() + text.len() + OVERHEAD
}

impl Definitions {
    pub(crate) fn new(max_bytes: usize) -> Self {
        Self { texts: HashMap::new(), bytes: 0, max_bytes, may_have_unused: false }
    }

    pub(crate) fn get(&self, topic: &OfferedTopic) -> Option<Arc<str>> {
        self.texts.get(&key(topic)).cloned()
    }

    /// Enters the definition of a topic's type, unless there is one. `false`: no room.
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

    /// A topic is not offered any more as it was.
    pub(crate) fn topic_removed(&mut self) {
        self.may_have_unused = true;
    }

    /// Forgets those that no topic uses.
    pub(crate) fn retain_used<'a>(&mut self, topics: impl Iterator<Item = &'a OfferedTopic>) {
        // A walk over all topics for each definition that finds no room would take a second.
        if !std::mem::take(&mut self.may_have_unused) {
            return;
        }
        let used: HashSet<Key> = topics.map(key).collect();
        self.texts.retain(|key, _| used.contains(key));
        self.bytes = self.texts.iter().map(|(key, text)| cost(key, text)).sum();
    }
}
