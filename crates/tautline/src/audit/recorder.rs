// SPDX-License-Identifier: Apache-2.0
//! Quotas on the events that the data plane records.

use super::event::{Actor, Event, MAX_CHANGES, Text};
use super::record::Audit;
use crate::quota::{Allowance, Cause, Quota};
use std::collections::BTreeMap;
use tautline_proto::{Duration, Instant};

/// Maximum number of events recorded per period for each cause. It suffices even if a hundred
/// topics of a peer are refused. A peer that causes as many events as possible writes 6 MB a day;
/// log files of the default size hold five days of these events.
pub const RECORD_ALLOWANCE: Allowance = Allowance {
    period: Duration::from_secs(600),
    here: 200,
    user: 200,
    peer: 120,
    key: 10,
    stranger: 15,
    safety: 60,
};

/// Maximum number of events of each cause whose repetitions are counted instead of recorded.
pub const MAX_MERGED: usize = 16;

/// Records events about peers, strangers and this node; counts events that exceed a quota.
#[derive(Debug)]
pub(crate) struct Recorder {
    audit: Audit,
    quota: Quota,
    /// Events recorded in this period, each with its number of repetitions. The quota bounds the
    /// map, because only events within the quota are in it.
    merged: BTreeMap<Cause, Vec<(Event, u64)>>,
}

impl Default for Recorder {
    fn default() -> Self {
        Self::new(Audit::default())
    }
}

impl Recorder {
    pub(crate) fn new(audit: Audit) -> Self {
        Self { audit, quota: Quota::new(RECORD_ALLOWANCE), merged: BTreeMap::new() }
    }

    /// Records an event of `cause`; the record names the peer if `cause` is a peer. A repetition of
    /// an equal event is counted and does not use the quota.
    pub(crate) fn record(&mut self, cause: &Cause, event: Event) {
        let known = self.merged.get_mut(cause);
        if let Some((_, again)) = known.and_then(|all| all.iter_mut().find(|it| it.0 == event)) {
            *again = again.saturating_add(1);
            return;
        }
        if !self.quota.take(cause) {
            return;
        }
        if event.is_merged() {
            let known = self.merged.entry(cause.clone()).or_default();
            if known.len() < MAX_MERGED {
                known.push((event.clone(), 0));
            }
        }
        self.audit.record(peer_of(cause), event);
    }

    /// Records a change of the running node, or the reason why it was refused, with its author.
    pub(crate) fn record_change(&mut self, by: Actor, outcome: Result<&[String], &str>) {
        let cause = match by {
            Actor::User { uid, .. } => Cause::User(Some(uid)),
            Actor::Signal | Actor::Program => Cause::Here,
        };
        let event = match outcome {
            Ok(changes) => Event::Changed { by, changes: list_of_changes(changes) },
            Err(reason) => Event::ChangeRefused { by, reason: reason.into() },
        };
        self.record(&cause, event);
    }

    /// Records the merged and left-out events once a period is over. Must be called periodically.
    pub(crate) fn sweep(&mut self, now: Instant) {
        if let Some(left_out) = self.quota.next_period(now) {
            self.sum_up(left_out);
        }
    }

    /// Records the merged and left-out events of a period.
    fn sum_up(&mut self, left_out: Vec<(Cause, u64)>) {
        for (cause, events) in std::mem::take(&mut self.merged) {
            for (event, again) in events.into_iter().filter(|(_, again)| *again > 0) {
                self.audit.repeated(peer_of(&cause), event, again);
            }
        }
        for (cause, count) in left_out {
            let about = cause.to_string().into();
            self.audit.record(None, Event::LeftOut { about, count });
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        let left_out = self.quota.end_period();
        self.sum_up(left_out);
    }
}

fn peer_of(cause: &Cause) -> Option<&str> {
    match cause {
        Cause::Peer(name) | Cause::Key(Some(name)) => Some(name),
        _ => None,
    }
}

fn list_of_changes(changes: &[String]) -> Vec<Text> {
    let mut texts: Vec<Text> = changes.iter().take(MAX_CHANGES).map(Text::from).collect();
    if changes.len() > MAX_CHANGES {
        let more = changes.len() - MAX_CHANGES + 1;
        texts.truncate(MAX_CHANGES - 1);
        texts.push(format!("{more} more").into());
    }
    texts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::{DownReason, HandshakeFailure, Lines};
    use std::net::SocketAddr;
    use std::sync::Arc;

    /// Returns the log that `cause` writes.
    fn written_log(cause: impl FnOnce(&mut Recorder)) -> String {
        let lines = Arc::new(Lines::default());
        let mut recorder = Recorder::new(lines.audit());
        recorder.sweep(Instant(0));
        cause(&mut recorder);
        drop(recorder);
        lines.json_lines()
    }

    fn user(uid: u32) -> Actor {
        Actor::User { uid, gid: 7, pid: 1, user: None }
    }

    #[test]
    fn many_changes_of_one_user_do_not_hide_reloads() {
        let text = written_log(|recorder| {
            for _ in 0..500 {
                recorder.record_change(user(1000), Ok(&["/scan: priority=9".into()]));
            }
            recorder.record_change(user(1001), Ok(&["peer thief removed".into()]));
            recorder.record_change(user(0), Err("by root"));
            recorder.record_change(Actor::Signal, Ok(&["by a signal".into()]));
        });
        let of = |word: &str| text.lines().filter(|line| line.contains(word)).count() as u32;
        assert_eq!(of("/scan: priority=9"), RECORD_ALLOWANCE.user);
        assert_eq!((of("peer thief removed"), of("by root"), of("by a signal")), (1, 1, 1));
        assert_eq!(of("\"left_out\",\"about\":\"user 1000\",\"count\":300}"), 1, "{text}");
    }

    #[test]
    fn many_calls_of_one_host_do_not_hide_other_strangers() {
        let of = |text: String| Cause::stranger(text.parse::<SocketAddr>().unwrap().into());
        let host = of("10.0.0.1:1".into());
        // Which addresses share a quota changes with every start.
        let others = (2..255).map(|last| of(format!("10.0.0.{last}:1")));
        let other = others.into_iter().find(|other| *other != host).unwrap();
        let refused = |address: &str| Event::HandshakeRefused {
            reason: HandshakeFailure::UnknownKey,
            address: address.into(),
            name: None,
            key: None,
        };
        let text = written_log(|recorder| {
            (0..500).for_each(|port| recorder.record(&host, refused(&format!("flood {port}"))));
            recorder.record(&other, refused("seldom"));
        });
        let of = |word: &str| text.lines().filter(|line| line.contains(word)).count() as u32;
        assert_eq!((of("flood"), of("seldom")), (RECORD_ALLOWANCE.stranger, 1));
    }

    #[test]
    fn equal_events_are_merged_into_one_line_with_a_count() {
        let base = Cause::Peer("base".into());
        let refused = |name: &str| Event::Refused {
            kind: crate::audit::Kind::Call,
            name: name.into(),
            r#type: "T".into(),
            reason: "no line".into(),
        };
        let text = written_log(|recorder| {
            (0..5000).for_each(|_| recorder.record(&base, refused("/often")));
            recorder.record(&base, refused("/seldom"));
            recorder.sweep(Instant(0) + RECORD_ALLOWANCE.period);
            recorder.record(&base, refused("/often"));
        });
        let of = |word: &str| text.lines().filter(|line| line.contains(word)).count();
        assert_eq!((of("/often"), of("/seldom"), of("left_out")), (3, 1, 0), "{text}");
        let merged = text.lines().find(|line| line.contains("\"again\":4999")).unwrap();
        assert!(merged.contains("\"peer\":\"base\"") && merged.contains("/often"), "{merged}");
    }

    #[test]
    fn a_flapping_peer_uses_only_its_own_quota() {
        let worst = Cause::Peer("worst".into());
        let topic = || Text::new("/cmd_vel");
        let safe = Event::SafeMessage { topic: topic(), silence_ms: 500, published: true };
        let many: Vec<String> = (0..1000).map(|i| i.to_string()).collect();
        let text = written_log(|recorder| {
            for _ in 0..5000 {
                recorder.record(&worst, Event::Went { reason: DownReason::Goodbye });
            }
            recorder.record(&Cause::Safety("/cmd_vel".into()), safe);
            recorder.record_change(Actor::Signal, Ok(&["x".into()]));
            recorder.record_change(Actor::Signal, Ok(&many));
            recorder.sweep(Instant(0) + RECORD_ALLOWANCE.period);
            recorder.record(&worst, Event::Went { reason: DownReason::Silence });
        });
        let of = |word: &str| text.lines().filter(|line| line.contains(word)).count() as u32;
        assert_eq!(of("\"goodbye\""), RECORD_ALLOWANCE.peer);
        assert_eq!((of("safe_message"), of("\"silence\"")), (1, 1));
        assert_eq!(of("\"left_out\",\"about\":\"'worst'\",\"count\":4880}"), 1, "{text}");
        assert_eq!(of("\"98\",\"901 more\"]"), 1, "{text}");
    }
}
