// SPDX-License-Identifier: Apache-2.0
//! Whose registration at the master is tried next. The master rejects some for ever, among them
//! those that a peer means to have rejected; so the rejected ones wait longer and longer, and have
//! places of their own, few beside those of the others.

use std::time::{Duration, Instant};

/// Registrations of one kind under way at once that were not rejected before.
const MAX_FIRST: usize = 32;
/// Registrations of one kind under way at once that were rejected before.
const MAX_AGAIN: usize = 8;
/// Pause after the first rejection; each further one doubles it.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// Longest pause after a rejection.
const LAST_PAUSE: Duration = Duration::from_secs(8);

/// When one registration is to be tried.
#[derive(Debug, Clone, Copy)]
pub(super) struct Turn {
    due: Instant,
    rejections: u32,
}

impl Turn {
    pub fn new(now: Instant) -> Self {
        Self { due: now, rejections: 0 }
    }

    /// Tried again after a pause.
    pub fn rejected(&mut self, now: Instant) {
        let pause = FIRST_PAUSE.saturating_mul(1 << self.rejections.min(8));
        self.due = now + pause.min(LAST_PAUSE);
        self.rejections = self.rejections.saturating_add(1);
    }

    pub fn accepted(&mut self) {
        self.rejections = 0;
    }

    pub fn was_rejected(&self) -> bool {
        self.rejections > 0
    }
}

/// Which of the `waiting` to try now, beside those `under_way`: in either group who waits for
/// longest comes first.
pub(super) fn choose<'a>(
    waiting: impl Iterator<Item = (&'a String, Turn)>,
    under_way: impl Iterator<Item = Turn>,
    now: Instant,
) -> Vec<String> {
    let (again, first): (Vec<_>, Vec<_>) =
        waiting.filter(|(_, turn)| turn.due <= now).partition(|(_, turn)| turn.was_rejected());
    let (trying_again, trying): (Vec<_>, Vec<_>) = under_way.partition(Turn::was_rejected);
    let groups = [
        (first, MAX_FIRST.saturating_sub(trying.len())),
        (again, MAX_AGAIN.saturating_sub(trying_again.len())),
    ];
    let names = |(mut group, places): (Vec<(&'a String, Turn)>, usize)| {
        group.sort_by_key(|(_, turn)| turn.due);
        group.into_iter().take(places).map(|(name, _)| name.clone())
    };
    groups.into_iter().flat_map(names).collect()
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
