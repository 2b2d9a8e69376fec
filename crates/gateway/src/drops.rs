// SPDX-License-Identifier: Apache-2.0
//! Messages for local subscribers that did not keep up, counted by topic.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Topics beyond which the count of one that is not published any more is forgotten.
const MAX_KEPT: usize = 1024;

/// The counts, shared by a gateway's threads.
#[derive(Debug, Default)]
pub struct Drops(Mutex<BTreeMap<String, Arc<AtomicU64>>>);

impl Drops {
    fn counts(&self) -> MutexGuard<'_, BTreeMap<String, Arc<AtomicU64>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The count of a topic that is published; it goes on where it was kept.
    pub fn of(&self, topic: &str) -> Arc<AtomicU64> {
        self.counts().entry(topic.to_owned()).or_default().clone()
    }

    /// The topic is not published any more. Its count is kept, should it come back.
    pub fn leave(&self, topic: &str) {
        let mut counts = self.counts();
        let fits = counts.len() <= MAX_KEPT;
        counts.retain(|name, count| name != topic || fits && count.load(Ordering::Relaxed) > 0);
    }

    /// All topics of which messages were dropped, and how many.
    pub fn all(&self) -> Vec<(String, u64)> {
        let counts = self.counts();
        let all = counts.iter().map(|(name, count)| (name.clone(), count.load(Ordering::Relaxed)));
        all.filter(|(_, count)| *count > 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_goes_on_when_its_topic_comes_back() {
        let drops = Drops::default();
        drops.of("/scan").fetch_add(2, Ordering::Relaxed);
        drops.of("/odom");
        assert_eq!(drops.all(), [("/scan".to_owned(), 2)]);
        drops.leave("/scan");
        drops.leave("/odom");
        drops.of("/scan").fetch_add(1, Ordering::Relaxed);
        assert_eq!(drops.all(), [("/scan".to_owned(), 3)]);
    }

    #[test]
    fn topics_that_come_and_go_are_forgotten() {
        let drops = Drops::default();
        for number in 0..2 * MAX_KEPT {
            let (quiet, loud) = (format!("/quiet{number}"), format!("/loud{number}"));
            drops.of(&quiet);
            drops.of(&loud).fetch_add(1, Ordering::Relaxed);
            drops.leave(&quiet);
            drops.leave(&loud);
        }
        assert_eq!(drops.counts().len(), MAX_KEPT);
    }
}
