// SPDX-License-Identifier: Apache-2.0
//! What is tried next: registrations at the master, probes and checks of nodes. Some fail for
//! ever, among them those that a peer or a local program means to fail. So those that failed wait
//! longer and longer, and have places of their own, few beside those of the others.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Attempts of one kind under way at once that did not fail before.
pub(super) const MAX_FIRST: usize = 32;
/// Attempts of one kind under way at once that failed before.
pub(super) const MAX_AGAIN: usize = 8;
/// Of either, probes of one node: one that hangs holds few places, whatever it registered.
const MAX_OF_NODE: usize = 4;
/// Pause after the first failure; each further one doubles it.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// Longest pause after a rejection by the master.
const LAST_PAUSE: Duration = Duration::from_secs(8);

/// When something is to be tried.
#[derive(Debug, Clone, Copy)]
pub(super) struct Turn {
    due: Instant,
    failures: u32,
}

impl Turn {
    pub fn new(now: Instant) -> Self {
        Self { due: now, failures: 0 }
    }

    /// Tried again after a pause.
    pub fn rejected(&mut self, now: Instant) {
        self.failed(now, LAST_PAUSE);
    }

    /// Tried again after a pause, at most the `longest`.
    pub fn failed(&mut self, now: Instant, longest: Duration) {
        let pause = FIRST_PAUSE.saturating_mul(1 << self.failures.min(8));
        self.wait_until(now + pause.min(longest));
        self.count_failure();
    }

    pub fn count_failure(&mut self) {
        self.failures = self.failures.saturating_add(1);
    }

    /// Not tried before it is due.
    pub fn wait_until(&mut self, due: Instant) {
        self.due = due;
    }

    pub fn accepted(&mut self) {
        self.failures = 0;
    }

    pub fn failures(&self) -> u32 {
        self.failures
    }

    pub fn was_rejected(&self) -> bool {
        self.failures > 0
    }

    pub fn is_due(&self, now: Instant) -> bool {
        self.due <= now
    }
}

/// Which of the `waiting` to try now, beside those `under_way`: in either group who waits for
/// longest comes first.
pub(super) fn choose<'a>(
    waiting: impl Iterator<Item = (&'a String, Turn)>,
    under_way: impl Iterator<Item = Turn>,
    now: Instant,
) -> Vec<String> {
    let waiting = waiting.map(|(name, turn)| (name, "", turn));
    let under_way = under_way.map(|turn| ("", turn));
    choose_among(waiting, under_way, now, usize::MAX).into_iter().cloned().collect()
}

/// The same for what asks nodes, whose names come second: each node has few places.
pub(super) fn choose_of_nodes<'a, K>(
    waiting: impl Iterator<Item = (K, &'a str, Turn)>,
    under_way: impl Iterator<Item = (&'a str, Turn)>,
    now: Instant,
) -> Vec<K> {
    choose_among(waiting, under_way, now, MAX_OF_NODE)
}

fn choose_among<'a, K>(
    waiting: impl Iterator<Item = (K, &'a str, Turn)>,
    under_way: impl Iterator<Item = (&'a str, Turn)>,
    now: Instant,
    most_of_node: usize,
) -> Vec<K> {
    let (trying_again, trying): (Vec<_>, Vec<_>) =
        under_way.partition(|(_, turn)| turn.was_rejected());
    if trying.len() >= MAX_FIRST && trying_again.len() >= MAX_AGAIN {
        return Vec::new();
    }
    let (again, first): (Vec<_>, Vec<_>) =
        waiting.filter(|(.., turn)| turn.is_due(now)).partition(|(.., turn)| turn.was_rejected());
    let mut chosen = Vec::new();
    for (mut group, trying, places) in
        [(first, trying, MAX_FIRST), (again, trying_again, MAX_AGAIN)]
    {
        let mut of_node: BTreeMap<&str, usize> = BTreeMap::new();
        let mut free = places.saturating_sub(trying.len());
        trying.iter().for_each(|(node, _)| *of_node.entry(node).or_default() += 1);
        group.sort_by_key(|(.., turn)| turn.due);
        for (name, node, _) in group {
            let held = of_node.entry(node).or_default();
            if free == 0 {
                break;
            }
            if *held < most_of_node {
                (*held, free) = (*held + 1, free - 1);
                chosen.push(name);
            }
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};
    use std::iter::empty;

    fn chosen(all: &BTreeMap<String, Turn>, now: Instant) -> Vec<String> {
        choose(all.iter().map(|(name, turn)| (name, *turn)), empty(), now)
    }

    #[test]
    fn what_is_rejected_for_ever_holds_up_nothing_else() {
        let now = Instant::now();
        let hostile = (0..1000).map(|n| (format!("/a/{n:04}"), Turn::new(now)));
        let mut all: BTreeMap<String, Turn> = hostile.collect();
        all.insert("/z".into(), Turn::new(now));
        let polls = (0..).map(|poll| now + Duration::from_secs(poll)).take(100);
        let mut tried = 0;
        for at in polls {
            for name in chosen(&all, at) {
                if name == "/z" {
                    assert!(at <= now + Duration::from_secs(1000 / MAX_FIRST as u64 + 1));
                    return;
                }
                tried += 1;
                all.get_mut(&name).unwrap().rejected(at);
            }
        }
        panic!("never tried beside {tried} rejected ones");
    }

    #[test]
    fn a_new_one_comes_before_all_that_were_rejected() {
        let now = Instant::now();
        let mut all: BTreeMap<String, Turn> =
            (0..1000).map(|n| (format!("/a/{n:04}"), Turn::new(now))).collect();
        all.values_mut().for_each(|turn| turn.rejected(now));
        let later = now + LAST_PAUSE;
        all.insert("/z".into(), Turn::new(later));
        let names = chosen(&all, later);
        assert_eq!((names[0].as_str(), names.len()), ("/z", 1 + MAX_AGAIN));
    }

    #[test]
    fn rejected_ones_take_turns_and_wait_longer_each_time() {
        let now = Instant::now();
        let (mut all, mut tried) = (BTreeMap::new(), BTreeSet::new());
        for n in 0..50 {
            let mut turn = Turn::new(now);
            turn.rejected(now);
            all.insert(format!("/{n:02}"), turn);
        }
        assert!(chosen(&all, now).is_empty(), "not at once");
        for second in 1..=8 {
            let at = now + Duration::from_secs(second);
            for name in chosen(&all, at) {
                all.get_mut(&name).unwrap().rejected(at);
                tried.insert(name);
            }
        }
        assert_eq!(tried.len(), 50, "each had its turn");
        let mut turn = Turn::new(now);
        (0..100).for_each(|_| turn.rejected(now));
        assert_eq!(turn.due, now + LAST_PAUSE);
    }

    #[test]
    fn one_node_holds_few_places_however_much_of_it_waits() {
        let now = Instant::now();
        let (names, turn) = ((0..1000).map(|n| n.to_string()), Turn::new(now));
        let hanging: Vec<String> = names.collect();
        let waiting = || {
            let hanging = hanging.iter().map(|name| (name.as_str(), "/hangs", turn));
            hanging.chain([("last", "/answers", turn)])
        };
        let chosen = choose_of_nodes(waiting(), std::iter::empty(), now);
        assert_eq!((chosen.len(), chosen[MAX_OF_NODE]), (MAX_OF_NODE + 1, "last"));
        let under_way = std::iter::repeat_n(("/hangs", turn), MAX_OF_NODE);
        assert_eq!(choose_of_nodes(waiting(), under_way, now), ["last"]);
    }

    #[test]
    fn places_under_way_are_counted() {
        let now = Instant::now();
        let all: BTreeMap<String, Turn> =
            (0..100).map(|n| (format!("/{n}"), Turn::new(now))).collect();
        let waiting = || all.iter().map(|(name, turn)| (name, *turn));
        let busy = || std::iter::repeat_n(Turn::new(now), 30);
        assert_eq!(choose(waiting(), busy(), now).len(), MAX_FIRST - 30);
        let mut again = Turn::new(now);
        again.rejected(now);
        let busy = std::iter::repeat_n(again, 30);
        assert_eq!(choose(waiting(), busy, now).len(), MAX_FIRST);
    }
}
