// SPDX-License-Identifier: Apache-2.0
//! When the liveliness of publications with a lease is asserted, or ends. Pure.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Assertions within one lease: one that is late or lost does not end it.
const PER_LEASE: u32 = 3;

/// Publications whose publishers promise signs of life.
#[derive(Debug, Default)]
pub struct Assertions(BTreeMap<String, (Duration, Instant)>);

impl Assertions {
    /// Follows a publication: `lease` is that of its publishers. Its next assertion is due now.
    pub fn follow(&mut self, topic: &str, lease: Option<Duration>, now: Instant) {
        match lease {
            Some(lease) => drop(self.0.insert(topic.to_owned(), (lease, now))),
            None => drop(self.0.remove(topic)),
        }
    }

    pub fn next_due(&self) -> Option<Instant> {
        self.0.values().map(|(_, due)| *due).min()
    }

    /// Returns publications whose assertion is due, and plans the next ones.
    pub fn take_due(&mut self, now: Instant) -> Vec<String> {
        let mut taken = Vec::new();
        for (topic, (lease, due)) in &mut self.0 {
            if *due <= now {
                *due = now + *lease / PER_LEASE;
                taken.push(topic.clone());
            }
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn assertions_are_due_three_times_in_each_lease_until_the_publication_ends() {
        let (mut all, start) = (Assertions::default(), Instant::now());
        let after = |ms| start + Duration::from_millis(ms);
        all.follow("/a", Some(Duration::from_millis(300)), start);
        all.follow("/b", Some(Duration::from_secs(3)), start);
        all.follow("/c", None, start);
        assert_eq!(all.next_due(), Some(start));
        assert_eq!(all.take_due(start), ["/a", "/b"]);
        assert!(all.take_due(after(99)).is_empty());
        assert_eq!(all.next_due(), Some(after(100)));
        assert_eq!(all.take_due(after(100)), ["/a"]);
        all.follow("/a", None, after(100));
        assert_eq!(all.next_due(), Some(after(1000)));
    }
}
