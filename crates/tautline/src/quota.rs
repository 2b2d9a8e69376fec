// SPDX-License-Identifier: Apache-2.0
//! Limits on log lines per cause and period. Each cause has a budget of its own, so one cause
//! cannot exhaust another's budget: a peer cannot exhaust the budgets of other peers, and nobody
//! can exhaust the budgets of safety notices.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;
use tautline_proto::{Duration, Instant, Place};

/// Number of budgets that all strangers share. Each stranger is assigned to one of them by its address.
pub const STRANGER_BUDGETS: u8 = 8;
/// Maximum number of local users, without root, that have budgets of their own. Further users share
/// one budget.
pub const MAX_USERS: usize = 32;
/// Maximum number of separate budgets: for peers, watchdogs and keys of a file, local users, and strangers.
pub(crate) const MAX_BUDGETS: usize = 2048;
/// Root, whose budget is never shared with other users.
const ROOT: u32 = 0;

/// The cause of a log line: the party that can trigger it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Cause {
    /// This node, its machine, and signals.
    Here,
    /// The comparison with what the file plans; publishers and peers influence what is measured.
    Plan,
    /// A local user, by user id; `None` stands for all users beyond [`MAX_USERS`].
    User(Option<u32>),
    /// The peer of this name.
    Peer(String),
    /// A key that two nodes use: the key of this peer, or our own key (`None`).
    Key(Option<String>),
    /// Senders of packets that are not peers, by the number of their budget (below [`STRANGER_BUDGETS`]).
    Stranger(u8),
    /// The watchdog of this topic.
    Safety(String),
}

impl Cause {
    /// Returns the cause for a stranger at this address. A /64 network of IPv6 counts as one
    /// stranger, except the link-local network.
    pub(crate) fn stranger(from: Place) -> Self {
        // The hash is keyed, so nobody can choose which strangers share their budget.
        static KEY: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        let budget = KEY.hash_one(from.owner()) % u64::from(STRANGER_BUDGETS);
        Self::Stranger(budget as u8)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Here => f.write_str("this node"),
            Self::Plan => f.write_str("the plan"),
            Self::User(Some(uid)) => write!(f, "user {uid}"),
            Self::User(None) => f.write_str("other users"),
            Self::Peer(name) => write!(f, "'{name}'"),
            Self::Key(None) => f.write_str("this node's key"),
            Self::Key(Some(name)) => write!(f, "the key of '{name}'"),
            Self::Stranger(_) => f.write_str("strangers"),
            Self::Safety(topic) => write!(f, "the watchdog of {topic}"),
        }
    }
}

/// The log lines that each cause may trigger in a period.
#[derive(Debug, Clone, Copy)]
pub struct Allowance {
    /// The period.
    pub period: Duration,
    /// Lines about this node, its machine, and signals; and the same number about the comparison
    /// with the plan.
    pub here: u32,
    /// Lines about each local user.
    pub user: u32,
    /// Lines about each peer.
    pub peer: u32,
    /// Lines about each key that two nodes use.
    pub key: u32,
    /// Lines for each budget that strangers share.
    pub stranger: u32,
    /// Lines about each watchdog.
    pub safety: u32,
}

impl Allowance {
    pub(crate) fn for_cause(&self, cause: &Cause) -> u32 {
        match cause {
            Cause::Here | Cause::Plan => self.here,
            Cause::User(_) => self.user,
            Cause::Peer(_) => self.peer,
            Cause::Key(_) => self.key,
            Cause::Stranger(_) => self.stranger,
            Cause::Safety(_) => self.safety,
        }
    }
}

#[derive(Debug, Default)]
struct Count {
    logged: u32,
    left_out: u64,
}

/// Counts of the lines logged in the current period.
#[derive(Debug)]
pub(crate) struct Quota {
    allowance: Allowance,
    /// Start of the current period; `None` until the time is read first.
    begun: Option<Instant>,
    counts: BTreeMap<Cause, Count>,
}

impl Quota {
    pub(crate) fn new(allowance: Allowance) -> Self {
        Self { allowance, begun: None, counts: BTreeMap::new() }
    }

    /// Whether one more line may be logged. If not, the line is counted.
    pub(crate) fn take(&mut self, cause: &Cause) -> bool {
        let cause = self.budget_of(cause);
        let most = self.allowance.for_cause(cause);
        let Count { logged, left_out } = match self.counts.get_mut(cause) {
            Some(counts) => counts,
            None => self.counts.entry(cause.clone()).or_default(),
        };
        let fits = *logged < most;
        match fits {
            true => *logged += 1,
            false => *left_out = left_out.saturating_add(1),
        }
        fits
    }

    /// Returns the cause whose budget applies. It differs from `cause` if there are too many budgets.
    fn budget_of<'a>(&self, cause: &'a Cause) -> &'a Cause {
        match cause {
            known if self.counts.contains_key(known) => known,
            // One person may have many user ids, and must not take the budgets of peers with them.
            Cause::User(Some(uid)) if *uid != ROOT && self.users() >= MAX_USERS => {
                &Cause::User(None)
            }
            // Beyond the maximum number of budgets, which no file reaches, the budget of this node applies.
            _ if self.counts.len() >= MAX_BUDGETS => &Cause::Here,
            new => new,
        }
    }

    /// Returns the number of users that have a budget, without root.
    fn users(&self) -> usize {
        let first = Cause::User(Some(ROOT + 1));
        self.counts.range(first..=Cause::User(Some(u32::MAX))).count()
    }

    /// Starts a new period if the current one is over. Returns the number of lines left out in the ended
    /// period, by cause.
    pub(crate) fn next_period(&mut self, now: Instant) -> Option<Vec<(Cause, u64)>> {
        let begun = *self.begun.get_or_insert(now);
        let is_over = now.since(begun) >= self.allowance.period;
        is_over.then(|| {
            self.begun = Some(now);
            self.end_period()
        })
    }

    /// Ends the period. Returns the number of lines left out, by cause, with one sum for all strangers.
    pub(crate) fn end_period(&mut self) -> Vec<(Cause, u64)> {
        let mut sums: Vec<(Cause, u64)> = Vec::new();
        for (cause, Count { left_out, .. }) in std::mem::take(&mut self.counts) {
            match sums.last_mut() {
                Some((Cause::Stranger(_), sum)) if matches!(cause, Cause::Stranger(_)) => {
                    *sum = sum.saturating_add(left_out);
                }
                _ => sums.push((cause, left_out)),
            }
        }
        sums.retain(|(_, left_out)| *left_out > 0);
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const TEN_SECONDS: Allowance = Allowance {
        period: Duration::from_secs(10),
        here: 4,
        user: 2,
        peer: 3,
        key: 2,
        stranger: 1,
        safety: 2,
    };

    fn at(seconds: u64) -> Instant {
        Instant(0) + Duration::from_secs(seconds)
    }

    fn peer(name: &str) -> Cause {
        Cause::Peer(name.into())
    }

    #[test]
    fn each_cause_has_its_own_quota() {
        let mut quota = Quota::new(TEN_SECONDS);
        let passed = (0..5000).filter(|_| quota.take(&peer("worst"))).count();
        assert_eq!(passed, 3);
        for budget in 0..STRANGER_BUDGETS {
            assert_eq!((0..5000).filter(|_| quota.take(&Cause::Stranger(budget))).count(), 1);
        }
        assert_eq!((0..5000).filter(|_| quota.take(&Cause::Plan)).count(), 4);
        for other in [peer("good"), Cause::Here, Cause::Safety("/a".into()), Cause::Key(None)] {
            assert!(quota.take(&other), "{other}");
        }
        // The clock of a daemon does not start at zero.
        assert_eq!(quota.next_period(at(1000)), None);
        assert_eq!(quota.next_period(at(1009)), None);
        let strangers = u64::from(STRANGER_BUDGETS) * 4999;
        let mut left_out = quota.next_period(at(1010)).unwrap();
        left_out.sort();
        let worst = (peer("worst"), 4997);
        assert_eq!(left_out, [(Cause::Plan, 4996), worst, (Cause::Stranger(0), strangers)]);
        assert!(quota.take(&peer("worst")), "a new period");
    }

    #[test]
    fn the_number_of_entries_is_bounded() {
        let mut quota = Quota::new(TEN_SECONDS);
        let passed = (0..MAX_BUDGETS + 1000).filter(|i| quota.take(&peer(&i.to_string()))).count();
        assert_eq!(passed, MAX_BUDGETS + 4);
        assert_eq!(quota.counts.len(), MAX_BUDGETS + 1);
    }

    #[test]
    fn many_uids_of_one_user_do_not_use_other_quotas() {
        let mut quota = Quota::new(TEN_SECONDS);
        let user = |uid| Cause::User(Some(uid));
        let passed = (1..100_000).filter(|uid| quota.take(&user(*uid))).count();
        assert_eq!(passed, MAX_USERS + 2);
        assert_eq!(quota.counts.len(), MAX_USERS + 1);
        assert!([user(0), peer("good"), Cause::Here].iter().all(|it| quota.take(it)));
    }

    #[test]
    fn strangers_of_one_host_share_a_quota() {
        let of = |text: &str| Cause::stranger(Place::Udp(text.parse().unwrap()));
        assert_eq!(of("10.0.0.1:1"), of("10.0.0.1:2"));
        assert_eq!(of("10.0.0.1:1"), of("[::ffff:10.0.0.1]:2"));
        assert_eq!(of("[2001:db8::1]:1"), of("[2001:db8::ffff:2]:1"));
        let budgets: BTreeSet<_> = (0..=255).map(|host| of(&format!("10.0.0.{host}:1"))).collect();
        assert_eq!(budgets.len(), usize::from(STRANGER_BUDGETS));
    }
}
