// SPDX-License-Identifier: Apache-2.0
//! Counts of messages dropped because a local subscriber was too slow, by topic.

use crate::lock::lock;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// Maximum number of counts. Beyond it, the counts of topics that are no longer published are deleted.
const MAX_KEPT: usize = 1024;

/// The counts, shared by a gateway's threads.
#[derive(Debug, Default)]
pub struct Drops(Mutex<BTreeMap<String, Arc<AtomicU64>>>);

impl Drops {
    fn counts(&self) -> MutexGuard<'_, BTreeMap<String, Arc<AtomicU64>>> {
        lock(&self.0)
    }

    /// The count of a published topic. A count that was kept continues.
    pub fn counter(&self, topic: &str) -> Arc<AtomicU64> {
        self.counts().entry(topic.to_owned()).or_default().clone()
    }

    /// Records that a topic is no longer published. A count above zero is kept in case the topic
    /// returns.
    pub fn release(&self, topic: &str) {
        let mut counts = self.counts();
        let fits = counts.len() <= MAX_KEPT;
        counts.retain(|name, count| name != topic || fits && count.load(Ordering::Relaxed) > 0);
    }

    /// Topics with dropped messages, and their counts.
    pub fn by_topic(&self) -> Vec<(String, u64)> {
        let counts = self.counts();
        let all = counts.iter().map(|(name, count)| (name.clone(), count.load(Ordering::Relaxed)));
        all.filter(|(_, count)| *count > 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_returning_topic_continues_its_count() {
        let drops = Drops::default();
        drops.counter("/scan").fetch_add(2, Ordering::Relaxed);
        drops.counter("/odom");
        assert_eq!(drops.by_topic(), [("/scan".to_owned(), 2)]);
        drops.release("/scan");
        drops.release("/odom");
        drops.counter("/scan").fetch_add(1, Ordering::Relaxed);
        assert_eq!(drops.by_topic(), [("/scan".to_owned(), 3)]);
    }

    #[test]
    fn counts_of_short_lived_topics_are_bounded() {
        let drops = Drops::default();
        for number in 0..2 * MAX_KEPT {
            let (quiet, loud) = (format!("/quiet{number}"), format!("/loud{number}"));
            drops.counter(&quiet);
            drops.counter(&loud).fetch_add(1, Ordering::Relaxed);
            drops.release(&quiet);
            drops.release(&loud);
        }
        assert_eq!(drops.by_topic().len(), MAX_KEPT);
    }
}
