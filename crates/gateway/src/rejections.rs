// SPDX-License-Identifier: Apache-2.0
//! Counts of messages that a gateway rejected, by topic and reason.

use crate::lock::lock;
use std::collections::BTreeMap;
use std::sync::Mutex;

/// Maximum number of pairs of topic and reason that are counted separately; all other pairs are counted
/// under [`OTHERS`].
pub const MAX_REJECTIONS: usize = 1024;
/// Stands for the topics beyond [`MAX_REJECTIONS`]; no topic has an empty name.
pub const OTHERS: &str = "";

/// Why a gateway rejected a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// From a local publisher, and larger than `max_message`.
    TooLarge,
    /// From a local publisher, in another encoding than CDR (ROS 2).
    NotCdr,
    /// From a local publisher that has left and might have been a Tautline node (ROS 2).
    PublisherGone,
    /// A call of a local client that has left, or the response to one.
    CallerGone,
    /// A call of a local client beyond the limit of concurrent calls.
    TooManyCalls,
    /// A response that DDS refused.
    NotWritten,
    /// The message was for local subscribers, and the backlog of the gateway's thread was full.
    GatewayBehind,
}

impl Reason {
    /// Name of the reason in status and metrics.
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

    /// Whether the message counts as one for local nodes, or else as one from them. Of the reasons to
    /// reject a response to a local client, only [`Self::NotWritten`] counts as for local nodes.
    pub fn is_incoming(self) -> bool {
        matches!(self, Self::NotWritten | Self::GatewayBehind)
    }
}

/// Messages of one topic rejected for one reason since the gateway started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejected {
    /// Local name, or [`OTHERS`].
    pub topic: String,
    /// The reason of the rejections.
    pub reason: Reason,
    /// Number of messages.
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
        self.count(topic, reason);
    }

    /// Counts a message of `found` bytes that is larger than `max_message`. Returns a notice for a person
    /// for the 1st, 2nd, 4th, 8th ... such message, so that a stream of them causes few notices.
    pub fn add_too_large(&self, topic: &str, found: usize, allowed: usize) -> Option<String> {
        let count = self.count(topic, Reason::TooLarge);
        count.is_power_of_two().then(|| {
            format!(
                "a message of {found} bytes is larger than the maximum of {allowed} bytes and was \
                 left out ({count} so far); set limits.max_message here and at the peers"
            )
        })
    }

    fn count(&self, topic: &str, reason: Reason) -> u64 {
        let mut counts = lock(&self.counts);
        let key = (topic.to_owned(), reason);
        let fits = counts.len() < MAX_REJECTIONS || counts.contains_key(&key);
        let key = if fits { key } else { (OTHERS.into(), reason) };
        let count = counts.entry(key).or_default();
        *count += 1;
        *count
    }

    /// All counts.
    pub fn counts(&self) -> Vec<Rejected> {
        let counts = lock(&self.counts);
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
        assert_eq!(rejections.counts(), [one(Reason::TooLarge, 2), one(Reason::NotCdr, 1)]);
    }

    #[test]
    fn a_message_that_is_too_large_is_reported_with_both_sizes_and_the_key() {
        let rejections = Rejections::default();
        let texts: Vec<_> = (0..9)
            .filter_map(|_| rejections.add_too_large("/image", 10_000_000, 8_000_000))
            .collect();
        assert_eq!(texts.len(), 4, "the 1st, 2nd, 4th and 8th");
        let words = ["10000000", "8000000", "limits.max_message"];
        assert!(words.iter().all(|word| texts[0].contains(word)), "{texts:?}");
    }

    #[test]
    fn rejections_are_counted_in_bounded_memory() {
        let rejections = Rejections::default();
        for topic in 0..5 * MAX_REJECTIONS {
            rejections.add(&format!("/topic{topic}"), Reason::TooLarge);
            rejections.add("/topic0", Reason::TooLarge);
        }
        let all = rejections.counts();
        assert_eq!(all.len(), MAX_REJECTIONS + 1);
        assert_eq!(all.iter().map(|it| it.count).sum::<u64>(), 10 * MAX_REJECTIONS as u64);
        let count = |name: &str| all.iter().find(|it| it.topic == name).unwrap().count;
        assert_eq!(count(OTHERS), 4 * MAX_REJECTIONS as u64);
        assert_eq!(count("/topic0"), 5 * MAX_REJECTIONS as u64 + 1);
    }
}
