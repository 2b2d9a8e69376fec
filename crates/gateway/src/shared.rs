// SPDX-License-Identifier: Apache-2.0
//! State that the threads of a gateway and its owner share.

use crate::GatewayStatus;
use crate::backlog::Backlog;
use crate::drops::Drops;
use crate::lock::lock;
use crate::log_limit::log_limited;
use crate::rejections::{Reason, Rejections};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// Maximum number of troubles that status shows; later troubles are omitted.
const MAX_TROUBLES: usize = 1024;

#[derive(Debug, Default)]
pub struct Shared {
    pub connected: AtomicBool,
    pub backlog: Backlog,
    pub drops: Drops,
    pub rejections: Rejections,
    pub troubles: Troubles,
}

impl Shared {
    /// Whether the backlog has room for a message of the topic; if not, it counts as rejected.
    pub fn admit(&self, topic: &str, bytes: usize) -> bool {
        let admitted = self.backlog.admit(bytes);
        if !admitted {
            self.rejections.add(topic, Reason::GatewayBehind);
        }
        admitted
    }

    pub fn status(&self, kind: &'static str, location: &str) -> GatewayStatus {
        GatewayStatus {
            kind,
            location: location.into(),
            connected: self.connected.load(Ordering::Relaxed),
            trouble: self.troubles.message(),
            slow_subscriber_drops: self.drops.by_topic(),
            rejected: self.rejections.counts(),
        }
    }
}

/// Troubles by topic or service (empty: the whole gateway) and kind.
#[derive(Debug, Default)]
pub struct Troubles(Mutex<BTreeMap<(String, &'static str), String>>);

impl Troubles {
    /// Sets one kind of trouble with a topic; `true`: the text is new.
    pub fn set(&self, topic: &str, kind: &'static str, text: String) -> bool {
        let mut all = lock(&self.0);
        let key = (topic.to_owned(), kind);
        let known = all.get(&key);
        if known == Some(&text) || (known.is_none() && all.len() >= MAX_TROUBLES) {
            return false;
        }
        all.insert(key, text);
        true
    }

    pub fn clear(&self, topic: &str, kind: &'static str) {
        lock(&self.0).remove(&(topic.to_owned(), kind));
    }

    /// Sets the trouble, or clears it where `text` is empty; `true`: the text is new.
    pub fn update(&self, topic: &str, kind: &'static str, text: String) -> bool {
        if text.is_empty() {
            self.clear(topic, kind);
            return false;
        }
        self.set(topic, kind, text)
    }

    /// Like [`Self::update`]; also logs a new text.
    pub fn report(&self, topic: &str, kind: &'static str, text: String) {
        if self.update(topic, kind, text.clone()) {
            log_limited!(warn, {}, "{text}");
        }
    }

    fn message(&self) -> String {
        let all: Vec<String> = lock(&self.0).values().cloned().collect();
        all.join("; ")
    }
}
