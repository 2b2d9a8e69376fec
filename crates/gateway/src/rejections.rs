// SPDX-License-Identifier: Apache-2.0
//! Messages that a gateway did not take or hand on, counted by topic and reason.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Topics and reasons that are told apart; what comes after is counted under [`OTHERS`].
pub const MAX_REJECTIONS: usize = 1024;
/// Stands for all topics that are one too many; no topic's name is empty.
pub const OTHERS: &str = "";

/// Why a gateway did not take or hand on a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// From a local publisher, and larger than `max_message`.
    TooLarge,
    /// From a local publisher, in another encoding than CDR (ROS 2).
    NotCdr,
    /// From a local publisher that is not known any more, and might be a Tautline (ROS 2).
    PublisherGone,
    /// A call of a local client that is not known any more, or the answer to one.
    CallerGone,
    /// A call of a local client, beyond those that may be under way.
    TooManyCalls,
    /// An answer that DDS refused.
    NotWritten,
    /// For local subscribers, while too many waited for the gateway's thread.
    GatewayBehind,
}

impl Reason {
    /// As in status and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::TooLarge => "too_large",
            Self::NotCdr => "not_cdr",
            Self::PublisherGone => "publisher_gone",
            Self::CallerGone => "caller_gone",
            Self::TooManyCalls => "too_many_calls",
            Self::NotWritten => "not_written",
            Self::GatewayBehind => "gateway_behind",
        }
    }

    /// Whether the message was for local nodes; else it was from one.
    pub fn is_incoming(self) -> bool {
        matches!(self, Self::NotWritten | Self::GatewayBehind)
    }
}

/// Messages of one topic that were left out for one reason, since the gateway's start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejected {
    /// Local name; [`OTHERS`] stands for those that are not told apart.
    pub topic: String,
    /// Why.
    pub reason: Reason,
    /// How many.
    pub count: u64,
}

/// The counts, shared by a gateway's threads.
#[derive(Debug, Default)]
pub struct Rejections {
    counts: Mutex<BTreeMap<(String, Reason), u64>>,
}

impl Rejections {
    /// Counts a message.
    pub fn add(&self, topic: &str, reason: Reason) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (topic.to_owned(), reason);
        let fits = counts.len() < MAX_REJECTIONS || counts.contains_key(&key);
        let key = if fits { key } else { (OTHERS.into(), reason) };
        *counts.entry(key).or_default() += 1;
    }

    /// All that were counted.
    pub fn all(&self) -> Vec<Rejected> {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let each = counts.iter().map(|((topic, reason), count)| Rejected {
            topic: topic.clone(),
            reason: *reason,
            count: *count,
        });
        each.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_counted_by_topic_and_reason() {
        let rejections = Rejections::default();
        rejections.add("/map", Reason::TooLarge);
        rejections.add("/map", Reason::TooLarge);
        rejections.add("/map", Reason::NotCdr);
        let one = |reason, count| Rejected { topic: "/map".into(), reason, count };
        assert_eq!(rejections.all(), [one(Reason::TooLarge, 2), one(Reason::NotCdr, 1)]);
    }

    #[test]
    fn however_many_topics_there_are_every_message_is_counted_in_bounded_space() {
        let rejections = Rejections::default();
        for topic in 0..5 * MAX_REJECTIONS {
            rejections.add(&format!("/topic{topic}"), Reason::TooLarge);
            rejections.add("/topic0", Reason::TooLarge);
        }
        let all = rejections.all();
        assert_eq!(all.len(), MAX_REJECTIONS + 1);
        assert_eq!(all.iter().map(|it| it.count).sum::<u64>(), 10 * MAX_REJECTIONS as u64);
        let count = |name: &str| all.iter().find(|it| it.topic == name).unwrap().count;
        assert_eq!(count(OTHERS), 4 * MAX_REJECTIONS as u64);
        assert_eq!(count("/topic0"), 5 * MAX_REJECTIONS as u64 + 1);
    }
}
