// SPDX-License-Identifier: Apache-2.0
//! Liveliness: whether local publishers are alive, and when the liveliness of publications is asserted.
//! Pure.

use crate::{Class, MIN_LEASE};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Number of assertions within one lease, so that a late or lost assertion does not end the lease.
const PER_LEASE: u32 = 3;
/// Longest time between assertions: a new subscriber may miss the first.
const MAX_INTERVAL: Duration = Duration::from_secs(1);
/// Shortest interval between checks of all publications.
const TICK: Duration = Duration::from_millis(15);

/// Whether the publishers of a topic are alive, as its readers see them.
#[derive(Debug, Default)]
pub struct ObservedLiveliness {
    /// The numbers of publishers that the reader of each class sees: alive, and not alive.
    seen: BTreeMap<Class, (u32, u32)>,
    /// Time at which the last publisher ceased to be alive.
    lost_since: Option<Instant>,
}

/// Whether a topic has publishers that are alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// No publisher is read yet.
    Unknown,
    Alive,
    /// The topic counts as lost from this time on.
    LostFrom(Instant),
}

impl ObservedLiveliness {
    /// Records the numbers of publishers that the reader of a class sees. Returns whether the state has
    /// changed.
    pub fn on_change(&mut self, class: Class, alive: u32, not_alive: u32, now: Instant) -> bool {
        let shown = |it: &Self| (it.lost_since, it.alive() > 0);
        let before = shown(self);
        self.seen.insert(class, (alive, not_alive));
        self.update(now);
        shown(self) != before
    }

    /// The reader of a class no longer exists.
    pub fn forget(&mut self, class: Class, now: Instant) {
        self.seen.remove(&class);
        self.update(now);
    }

    fn update(&mut self, now: Instant) {
        let is_lost = self.alive() == 0 && self.seen.values().any(|(_, others)| *others > 0);
        self.lost_since = is_lost.then(|| self.lost_since.unwrap_or(now));
    }

    fn alive(&self) -> u32 {
        self.seen.values().map(|(alive, _)| *alive).max().unwrap_or(0)
    }

    /// The state of publishers with this lease. A shorter lease than [`MIN_LEASE`] counts as
    /// [`MIN_LEASE`]: a publisher that misses a short one would change its state with each message.
    pub fn state(&self, lease: Duration) -> State {
        match self.lost_since {
            Some(since) => State::LostFrom(since + MIN_LEASE.saturating_sub(lease)),
            None if self.alive() > 0 => State::Alive,
            None => State::Unknown,
        }
    }
}

/// Times at which liveliness is asserted for publications, and at which local topics count as lost.
#[derive(Debug, Default)]
pub struct Timers {
    /// Publications whose publishers promise signs of life.
    asserted: BTreeMap<String, Assertion>,
    losses: BTreeMap<String, Instant>,
    fired: Option<Instant>,
}

#[derive(Debug)]
struct Assertion {
    lease: Duration,
    due: Instant,
}

impl Timers {
    /// Follows a publication whose publishers have this lease. It may have a new subscriber or be lost, so
    /// its liveliness is due again, after half of [`MIN_LEASE`]. Not at once: rclpy's subscriber exists
    /// some milliseconds before it listens for changes of liveliness, and misses earlier ones.
    pub fn follow(&mut self, topic: &str, lease: Option<Duration>, now: Instant) {
        let Some(lease) = lease else {
            self.asserted.remove(topic);
            return;
        };
        let soon = now + MIN_LEASE / 2;
        let known = self.asserted.entry(topic.to_owned());
        let known = known.or_insert(Assertion { lease, due: soon });
        known.lease = lease;
        known.due = known.due.min(soon);
    }

    /// Schedules a check of whether a local topic is lost at this time.
    pub fn expect_loss(&mut self, topic: &str, at: Instant) {
        self.losses.insert(topic.to_owned(), at);
    }

    pub fn next_due(&self) -> Option<Instant> {
        let asserted = self.asserted.values().map(|it| it.due);
        let due = asserted.chain(self.losses.values().copied()).min()?;
        Some(self.fired.map_or(due, |fired| due.max(fired + TICK)))
    }

    /// Returns publications whose liveliness is due, and plans the next times.
    pub fn take_due(&mut self, now: Instant) -> Vec<String> {
        self.fired = Some(now);
        let due = self.asserted.iter_mut().filter(|(_, it)| it.due <= now);
        let plan = |(topic, it): (&String, &mut Assertion)| {
            it.due = now + (it.lease.max(MIN_LEASE) / PER_LEASE).min(MAX_INTERVAL);
            topic.clone()
        };
        due.map(plan).collect()
    }

    /// Returns local topics whose loss counts now.
    pub fn take_losses(&mut self, now: Instant) -> impl Iterator<Item = String> {
        self.losses.extract_if(.., move |_, at| *at <= now).map(|(topic, _)| topic)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const ONE: Class = Class { transient_local: false, reliable: true };
    const OTHER: Class = Class { transient_local: true, reliable: false };

    #[test]
    fn assertions_are_due_three_times_in_each_lease_until_the_publication_ends() {
        let (mut all, start) = (Timers::default(), Instant::now());
        let after = |ms| start + ms * MS;
        all.follow("/a", Some(300 * MS), start);
        all.follow("/b", Some(30_000 * MS), start);
        all.follow("/c", None, start);
        assert_eq!(all.next_due(), Some(after(50)), "a new subscriber misses what comes at once");
        assert_eq!(all.take_due(after(50)), ["/a", "/b"]);
        assert!(all.take_due(after(130)).is_empty());
        assert_eq!(all.take_due(after(150)), ["/a"]);
        all.follow("/a", None, after(150));
        assert_eq!(all.next_due(), Some(after(1050)), "a new subscriber may have missed it");
        all.follow("/b", Some(30_000 * MS), after(300));
        assert_eq!(all.next_due(), Some(after(350)));
    }

    #[test]
    fn neither_a_short_lease_nor_many_changes_need_more_than_the_shortest_lease() {
        let start = Instant::now();
        for is_changed in [false, true] {
            let mut all = Timers::default();
            all.follow("/a", Some(MS), start);
            let mut count = 0;
            for now in (0..1000).map(|ms| start + ms * MS) {
                if is_changed {
                    all.follow("/a", Some(MS), now);
                }
                count += all.take_due(now).len();
            }
            assert!((27..=31).contains(&count), "{count} in a second");
        }
    }

    #[test]
    fn a_topic_is_lost_when_no_publisher_is_alive() {
        let (mut seen, start) = (ObservedLiveliness::default(), Instant::now());
        let second = 1000 * MS;
        assert_eq!(seen.state(second), State::Unknown);
        assert!(seen.on_change(ONE, 1, 0, start), "it may have been lost when it was last read");
        assert!(!seen.on_change(OTHER, 0, 1, start));
        assert_eq!(seen.state(second), State::Alive, "one of two");
        assert!(seen.on_change(ONE, 0, 1, start));
        assert!(!seen.on_change(OTHER, 0, 2, start + second));
        assert_eq!(seen.state(second), State::LostFrom(start));
        assert_eq!(seen.state(MS), State::LostFrom(start + 99 * MS));
        assert!(seen.on_change(OTHER, 1, 1, start + second), "back");
        seen.forget(OTHER, start + 2 * second);
        assert_eq!(seen.state(second), State::LostFrom(start + 2 * second));
        seen.on_change(ONE, 0, 0, start);
        assert_eq!(seen.state(second), State::Unknown, "all have left");
    }
}
