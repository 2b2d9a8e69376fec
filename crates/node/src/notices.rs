// SPDX-License-Identifier: Apache-2.0
//! What people should know: faults between nodes in words (what was found,
//! where, and what to do), logged once and kept for status. Anybody may call
//! our port, so neither the log nor memory may grow with the calls.

use std::collections::VecDeque;
use tautline_proto::{Duration, Instant, Notice, Verdict};

/// Notices kept of each cause; the oldest make room.
const MAX_KEPT: usize = 25;
/// A notice that repeats is logged again after so long, and so long [`MAX_NEW`] counts.
const PERIOD: Duration = Duration::from_secs(30);
/// Notices logged of each cause within [`PERIOD`]; more are only counted.
const MAX_NEW: usize = 20;

/// Who can bring a notice about. Each has its own room, so that strangers cannot crowd out the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// This node and its peers.
    Here,
    /// Whoever sends us packets.
    Caller,
}

/// Recent notices.
#[derive(Debug, Default)]
pub(crate) struct Notices {
    here: Room,
    callers: Room,
}

/// Notices of one cause.
#[derive(Debug, Default)]
struct Room {
    /// When each was logged last, oldest first.
    kept: VecDeque<(Instant, String)>,
    period_start: Instant,
    logged: usize,
    left_out: u64,
}

impl Notices {
    /// Logs and keeps a notice, unless it or too many others were logged a moment ago.
    pub(crate) fn add(&mut self, now: Instant, cause: Cause, text: String) {
        let room = match cause {
            Cause::Here => &mut self.here,
            Cause::Caller => &mut self.callers,
        };
        room.add(now, text);
    }

    /// Logs how many were left out; call it now and then.
    pub(crate) fn sweep(&mut self, now: Instant) {
        self.here.sweep(now);
        self.callers.sweep(now);
    }

    /// Those kept, newest last.
    pub(crate) fn texts(&self) -> Vec<String> {
        let mut all: Vec<_> = self.here.kept.iter().chain(&self.callers.kept).collect();
        all.sort_by_key(|(at, _)| *at);
        all.into_iter().map(|(_, text)| text.clone()).collect()
    }
}

impl Room {
    fn add(&mut self, now: Instant, text: String) {
        self.sweep(now);
        let known = self.kept.iter().position(|(_, kept)| *kept == text);
        if known.is_some_and(|i| now.since(self.kept[i].0) < PERIOD) {
            return;
        }
        if self.logged == MAX_NEW {
            self.left_out += 1;
            return;
        }
        self.logged += 1;
        tracing::warn!("{text}");
        if let Some(known) = known {
            self.kept.remove(known);
        } else if self.kept.len() == MAX_KEPT {
            self.kept.pop_front();
        }
        self.kept.push_back((now, text));
    }

    fn sweep(&mut self, now: Instant) {
        if now.since(self.period_start) < PERIOD {
            return;
        }
        if self.left_out > 0 {
            let (count, seconds) = (self.left_out, PERIOD.as_secs());
            tracing::warn!("{count} more notices in {seconds} s were left out of the log");
        }
        (self.period_start, self.logged, self.left_out) = (now, 0, 0);
    }
}

/// The notice for a person at the node `here`.
pub(crate) fn text(notice: &Notice, here: &str) -> String {
    match notice {
        Notice::UnknownKey { name, key, from, known_name: true } => format!(
            "the node at {from} that calls itself '{name}' has the key {key}; peers.{name} has \
             another: correct the one that is wrong (tautline keygen --show, on '{name}')"
        ),
        Notice::UnknownKey { name, key, from, known_name: false } => format!(
            "a node that calls itself '{name}' calls from {from} with the key {key}, which is no \
             peer's of '{here}'; add it under peers: if it belongs here"
        ),
        Notice::OtherKey { name, from } => {
            let who =
                name.as_ref().map_or(String::new(), |it| format!(", where '{it}' is expected"));
            format!(
                "calls come from {from}{who}, that are for another key than that of '{here}': the \
                 key of '{here}' in the file there is wrong, or only one of both has 'security: none'"
            )
        }
        Notice::UnknownEnd { name } => format!(
            "'{name}' sends packets for a node that is no peer of '{here}': add it under peers, \
             with its key and its way (address: or via:)"
        ),
        Notice::OtherName { name, theirs, from } => format!(
            "the node at {from} has the key of peer '{name}', but calls itself '{theirs}'; \
             correct the key under peers.{name}, or its name"
        ),
        Notice::Version { from, theirs, ours } => format!(
            "a node at {from} speaks protocol version {theirs}, '{here}' speaks {ours}; \
             run the same release on both"
        ),
        Notice::Twins { name, from, other: None } => format!(
            "two nodes have one key: this one, and one at {from} that calls itself '{name}'; \
             make a key for each (tautline keygen)"
        ),
        Notice::Twins { name, from, other: Some(other) } => format!(
            "two nodes have the key of '{name}': one at {other} and one at {from}; '{here}' keeps \
             the one that started last; make a key for each (tautline keygen)"
        ),
        Notice::TheyRefuse { name, from, verdict } => {
            let why = match verdict {
                Verdict::Welcome => "it takes it after all",
                Verdict::Name => "it knows this node's key under another name",
                Verdict::Twin => "another node with the same key has started since",
            };
            format!("'{name}' at {from} refuses the call of '{here}': {why}")
        }
        Notice::NotRelayed { name } => format!(
            "'{name}' sends packets for others, which '{here}' passes on only with 'relay: true' \
             under the peers that send them (peers.{name}.relay)"
        ),
        Notice::RelayLoop { name } => format!(
            "packets for others come back by '{name}' again and again: the ways of the files \
             (via:) lead in a circle"
        ),
        Notice::TooLarge { peer, topic, found, allowed } => format!(
            "{topic}: a message of {found} bytes from '{peer}' is larger than the {allowed} \
             that '{here}' allows (limits.max_message)"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant(0) + Duration::from_secs(seconds)
    }

    #[test]
    fn a_flood_of_different_notices_is_bounded_in_memory_and_log() {
        let mut notices = Notices::default();
        notices.add(at(1), Cause::Here, "ours".into());
        for caller in 0..100_000 {
            notices.add(at(2), Cause::Caller, format!("'stranger{caller}' calls"));
        }
        assert_eq!(notices.callers.logged, MAX_NEW);
        assert_eq!(notices.callers.left_out, 100_000 - MAX_NEW as u64);
        assert_eq!(notices.texts().len(), 1 + MAX_NEW);
        assert_eq!(notices.texts()[0], "ours");
        for period in 1..100 {
            for caller in 0..100 {
                let text = format!("'stranger{period}-{caller}' calls");
                notices.add(at(period * 60), Cause::Caller, text);
            }
        }
        assert_eq!(notices.callers.kept.len(), MAX_KEPT);
        let kept: usize = notices.callers.kept.capacity();
        assert!(kept < 4 * MAX_KEPT, "room for {kept} notices");
        notices.add(at(6000), Cause::Here, "ours again".into());
        assert_eq!(notices.texts().last().unwrap(), "ours again");
    }

    #[test]
    fn notices_that_take_turns_are_each_logged_once_in_a_period() {
        let mut notices = Notices::default();
        for second in 0..PERIOD.as_secs() {
            notices.add(at(second), Cause::Caller, "one".into());
            notices.add(at(second), Cause::Caller, "two".into());
        }
        assert_eq!(notices.callers.logged, 2);
        assert_eq!(notices.texts(), ["one", "two"]);
        notices.add(at(100), Cause::Caller, "one".into());
        assert_eq!(notices.texts(), ["two", "one"], "the newest is last");
    }
}
