// SPDX-License-Identifier: Apache-2.0
//! The order of attempts: registrations at the master, probes and checks of nodes. Some fail
//! forever, and a peer or a local program can cause that on purpose. Therefore attempts that failed
//! wait for a growing pause, and have a few slots of their own.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Maximum number of concurrent attempts of one kind without an earlier failure.
pub(super) const MAX_NEW: usize = 32;
/// Maximum number of concurrent attempts of one kind after a failure.
pub(super) const MAX_RETRIES: usize = 8;
/// Maximum number of concurrent attempts of one node, new attempts or retries: a node that hangs holds
/// few slots, whatever it registered.
const MAX_PER_NODE: usize = 4;
/// Pause after the first failure; each further one doubles it.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// Longest pause after a rejection by the master.
const MAX_PAUSE: Duration = Duration::from_secs(8);

/// Longest pause during the first [`RESTART_ATTEMPTS`] for a node whose process has ended. Such a node
/// is often started again under its name, which the master's lists do not show.
const RESTART_PAUSE: Duration = Duration::from_secs(2);
/// Number of first attempts with pauses of at most [`RESTART_PAUSE`]: they take about a minute.
const RESTART_ATTEMPTS: u32 = 30;

/// The time of the next attempt and the failures so far.
#[derive(Debug, Clone, Copy)]
pub(super) struct Backoff {
    due: Instant,
    failures: u32,
}

impl Backoff {
    pub fn new(now: Instant) -> Self {
        Self { due: now, failures: 0 }
    }

    /// Counts a rejection by the master.
    pub fn reject(&mut self, now: Instant) {
        self.fail(now, MAX_PAUSE);
    }

    /// Counts a failure; the pause that follows is at most `max_pause`.
    pub fn fail(&mut self, now: Instant, max_pause: Duration) {
        let pause = FIRST_PAUSE.saturating_mul(1 << self.failures.min(8));
        self.delay_until(now + pause.min(max_pause));
        self.count_failure();
    }

    /// Counts a failure because nothing listens there. The pause is short for about a minute, and at
    /// most `max_pause` later.
    pub fn fail_ended(&mut self, now: Instant, max_pause: Duration) {
        let may_restart = self.failures < RESTART_ATTEMPTS;
        self.fail(now, if may_restart { RESTART_PAUSE } else { max_pause });
    }

    pub fn count_failure(&mut self) {
        self.failures = self.failures.saturating_add(1);
    }

    pub fn delay_until(&mut self, due: Instant) {
        self.due = due;
    }

    pub fn succeed(&mut self) {
        self.failures = 0;
    }

    pub fn failures(&self) -> u32 {
        self.failures
    }

    pub fn has_failed(&self) -> bool {
        self.failures > 0
    }

    pub fn is_due(&self, now: Instant) -> bool {
        self.due <= now
    }
}

/// Selects the attempts to start now, given those `pending`: new ones and retries, each in the
/// order of their due times.
pub(super) fn select<'a>(
    waiting: impl Iterator<Item = (&'a String, Backoff)>,
    pending: impl Iterator<Item = Backoff>,
    now: Instant,
) -> Vec<String> {
    let waiting = waiting.map(|(name, backoff)| (name, "", backoff));
    let pending = pending.map(|backoff| ("", backoff));
    select_within(waiting, pending, now, usize::MAX).into_iter().cloned().collect()
}

/// Like [`select`], with at most [`MAX_PER_NODE`] attempts of each node. The node's name is second.
pub(super) fn select_per_node<'a, K>(
    waiting: impl Iterator<Item = (K, &'a str, Backoff)>,
    pending: impl Iterator<Item = (&'a str, Backoff)>,
    now: Instant,
) -> Vec<K> {
    select_within(waiting, pending, now, MAX_PER_NODE)
}

fn select_within<'a, K>(
    waiting: impl Iterator<Item = (K, &'a str, Backoff)>,
    pending: impl Iterator<Item = (&'a str, Backoff)>,
    now: Instant,
    max_per_node: usize,
) -> Vec<K> {
    let (pending_retries, pending_new): (Vec<_>, Vec<_>) =
        pending.partition(|(_, backoff)| backoff.has_failed());
    if pending_new.len() >= MAX_NEW && pending_retries.len() >= MAX_RETRIES {
        return Vec::new();
    }
    let (retries, new): (Vec<_>, Vec<_>) = waiting
        .filter(|(.., backoff)| backoff.is_due(now))
        .partition(|(.., backoff)| backoff.has_failed());
    let mut selected = Vec::new();
    for (mut group, pending, limit) in
        [(new, pending_new, MAX_NEW), (retries, pending_retries, MAX_RETRIES)]
    {
        let mut per_node: BTreeMap<&str, usize> = BTreeMap::new();
        let mut free = limit.saturating_sub(pending.len());
        pending.iter().for_each(|(node, _)| *per_node.entry(node).or_default() += 1);
        group.sort_by_key(|(.., backoff)| backoff.due);
        for (name, node, _) in group {
            let count = per_node.entry(node).or_default();
            if free == 0 {
                break;
            }
            if *count < max_per_node {
                (*count, free) = (*count + 1, free - 1);
                selected.push(name);
            }
        }
    }
    selected
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};
    use std::iter::empty;

    fn selected_names(all: &BTreeMap<String, Backoff>, now: Instant) -> Vec<String> {
        select(all.iter().map(|(name, backoff)| (name, *backoff)), empty(), now)
    }

    #[test]
    fn permanent_rejections_do_not_delay_other_attempts() {
        let now = Instant::now();
        let hostile = (0..1000).map(|n| (format!("/a/{n:04}"), Backoff::new(now)));
        let mut all: BTreeMap<String, Backoff> = hostile.collect();
        all.insert("/z".into(), Backoff::new(now));
        let polls = (0..).map(|poll| now + Duration::from_secs(poll)).take(100);
        let mut attempted = 0;
        for at in polls {
            for name in selected_names(&all, at) {
                if name == "/z" {
                    assert!(at <= now + Duration::from_secs(1000 / MAX_NEW as u64 + 1));
                    return;
                }
                attempted += 1;
                all.get_mut(&name).unwrap().reject(at);
            }
        }
        panic!("never attempted alongside {attempted} rejected ones");
    }

    #[test]
    fn new_attempts_precede_retries() {
        let now = Instant::now();
        let mut all: BTreeMap<String, Backoff> =
            (0..1000).map(|n| (format!("/a/{n:04}"), Backoff::new(now))).collect();
        all.values_mut().for_each(|backoff| backoff.reject(now));
        let later = now + MAX_PAUSE;
        all.insert("/z".into(), Backoff::new(later));
        let names = selected_names(&all, later);
        assert_eq!((names[0].as_str(), names.len()), ("/z", 1 + MAX_RETRIES));
    }

    #[test]
    fn retries_alternate_and_their_pauses_grow() {
        let now = Instant::now();
        let (mut all, mut attempted) = (BTreeMap::new(), BTreeSet::new());
        for n in 0..50 {
            let mut backoff = Backoff::new(now);
            backoff.reject(now);
            all.insert(format!("/{n:02}"), backoff);
        }
        assert!(selected_names(&all, now).is_empty(), "not at once");
        for second in 1..=8 {
            let at = now + Duration::from_secs(second);
            for name in selected_names(&all, at) {
                all.get_mut(&name).unwrap().reject(at);
                attempted.insert(name);
            }
        }
        assert_eq!(attempted.len(), 50, "each had its backoff");
        let mut backoff = Backoff::new(now);
        (0..100).for_each(|_| backoff.reject(now));
        assert_eq!(backoff.due, now + MAX_PAUSE);
    }

    #[test]
    fn attempts_of_one_node_are_limited() {
        let now = Instant::now();
        let (names, backoff) = ((0..1000).map(|n| n.to_string()), Backoff::new(now));
        let hanging: Vec<String> = names.collect();
        let waiting = || {
            let hanging = hanging.iter().map(|name| (name.as_str(), "/hangs", backoff));
            hanging.chain([("last", "/answers", backoff)])
        };
        let selected = select_per_node(waiting(), std::iter::empty(), now);
        assert_eq!((selected.len(), selected[MAX_PER_NODE]), (MAX_PER_NODE + 1, "last"));
        let pending = std::iter::repeat_n(("/hangs", backoff), MAX_PER_NODE);
        assert_eq!(select_per_node(waiting(), pending, now), ["last"]);
    }

    #[test]
    fn pending_attempts_count_towards_the_limits() {
        let now = Instant::now();
        let all: BTreeMap<String, Backoff> =
            (0..100).map(|n| (format!("/{n}"), Backoff::new(now))).collect();
        let waiting = || all.iter().map(|(name, backoff)| (name, *backoff));
        let pending = || std::iter::repeat_n(Backoff::new(now), 30);
        assert_eq!(select(waiting(), pending(), now).len(), MAX_NEW - 30);
        let mut again = Backoff::new(now);
        again.reject(now);
        let pending = std::iter::repeat_n(again, 30);
        assert_eq!(select(waiting(), pending, now).len(), MAX_NEW);
    }
}
