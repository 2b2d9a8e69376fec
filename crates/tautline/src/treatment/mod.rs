// SPDX-License-Identifier: Apache-2.0
//! Rules that map the names of topics to their treatment: priority, lifespan, rate and links. Pure:
//! no I/O.

pub mod peer_names;
pub mod services;

use std::time::Duration;
use tautline_gateway::pattern::Pattern;
use tautline_gateway::types::definition::short_name;

/// The treatment of topics that match `pattern`.
#[derive(Debug, Clone, PartialEq)]
pub struct TopicRule {
    /// The topics.
    pub pattern: Pattern,
    /// The treatment of each topic.
    pub treatment: Treatment,
}

/// How a topic is sent.
#[derive(Debug, Clone, PartialEq)]
pub struct Treatment {
    /// Priority, 0-255, higher first.
    pub priority: u8,
    /// The number of newest messages that matter, at least 1; see [`Self::keep_last`].
    pub keep_last: Option<u16>,
    /// What happens if a link cannot carry all messages; see [`Self::when_slow`].
    pub when_slow: Option<WhenSlow>,
    /// Age past which a message is worthless.
    pub lifespan: Option<Duration>,
    /// Highest rate in hertz; further messages are dropped at the source.
    pub rate_hz: Option<f64>,
    /// How the payload is compressed.
    pub compression: Compression,
    /// Whether the frames that its messages name get the prefix of tf.
    pub tf_prefix: bool,
    /// Peers that may get the topic; `None` means all.
    pub to: Option<Vec<String>>,
    /// Whether lost fragments are retransmitted while the message is useful.
    pub repair: bool,
    /// Parity in percent of the packets. It recovers lost packets without a retransmission.
    pub fec: Option<u8>,
    /// How the topic uses several links to one peer.
    pub links: LinkRule,
    /// The order in which the messages of the topic are delivered.
    pub order: OrderChoice,
    /// Longest time that a message waits for earlier ones under [`OrderChoice::Sent`].
    pub order_wait: Duration,
}

/// How a topic uses several links to one peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkRule {
    /// The links that carry a message; `None` means that the priority decides.
    pub choice: Option<LinkChoice>,
    /// The number of copies for [`LinkChoice::Duplicate`].
    pub copies: u8,
    /// Names of the links that may carry the topic; empty means all links.
    pub only: Vec<String>,
    /// Names of the links that carry the topic only while no other can.
    pub avoid: Vec<String>,
    /// Whether links whose data budget is used up still carry the topic.
    pub over_budget: bool,
}

impl Default for LinkRule {
    fn default() -> Self {
        Self { choice: None, copies: 2, only: Vec::new(), avoid: Vec::new(), over_budget: false }
    }
}

/// The links that carry a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkChoice {
    /// The link on which the message is expected to arrive first.
    Best,
    /// One link at random, weighted by goodput.
    Weighted,
    /// All links, each with a part of the message.
    Stripe,
    /// Some links, each with a copy.
    Duplicate,
}

impl LinkChoice {
    /// The words in the configuration file, in the order of the variants.
    pub const WORDS: &[&str] = &["best", "weighted", "stripe", "duplicate"];

    /// Returns the choice for a word in the configuration file.
    pub fn from_word(word: &str) -> Option<Self> {
        let all = [Self::Best, Self::Weighted, Self::Stripe, Self::Duplicate];
        all.into_iter().find(|choice| choice.word() == word)
    }

    /// Returns the word in the configuration file.
    pub fn word(self) -> &'static str {
        Self::WORDS[self as usize]
    }
}

/// The order in which the messages of a publisher are delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OrderChoice {
    /// In the order of arrival.
    #[default]
    Arrival,
    /// In the order of publication, with a bounded wait for missing ones.
    Sent,
    /// In the order of arrival, but a message that is older than a delivered one is dropped.
    Newest,
}

impl OrderChoice {
    /// The words in the configuration file, in the order of the variants.
    pub const WORDS: &[&str] = &["arrival", "sent", "newest"];

    /// Returns the choice for a word in the configuration file.
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Arrival, Self::Sent, Self::Newest].into_iter().find(|order| order.word() == word)
    }

    /// Returns the word in the configuration file.
    pub fn word(self) -> &'static str {
        Self::WORDS[self as usize]
    }
}

/// The default of [`Treatment::order_wait`].
pub const ORDER_WAIT: Duration = Duration::from_millis(200);

impl Default for Treatment {
    fn default() -> Self {
        Self {
            priority: 100,
            keep_last: None,
            when_slow: None,
            lifespan: None,
            rate_hz: None,
            compression: Compression::None,
            tf_prefix: true,
            to: None,
            repair: true,
            fec: None,
            links: LinkRule::default(),
            order: OrderChoice::Arrival,
            order_wait: ORDER_WAIT,
        }
    }
}

impl Treatment {
    /// Returns the minimum time between two messages; `None` without a rate limit.
    pub fn period(&self) -> Option<Duration> {
        let seconds = 1.0 / self.rate_hz?;
        Some(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX))
    }

    /// Returns the effective choice for a topic of this type; `None` means that [`Self::keep_last`] applies.
    pub fn when_slow(&self, type_name: &str) -> Option<WhenSlow> {
        let by_kind = (self.keep_last.is_none() && is_view(type_name)).then_some(WhenSlow::Latest);
        self.when_slow.or(by_kind)
    }

    /// Returns the number of newest messages that matter for a topic of this type, at least 1.
    pub fn keep_last(&self, type_name: &str) -> u16 {
        match self.when_slow(type_name) {
            Some(WhenSlow::Latest | WhenSlow::Thin) => 1,
            Some(WhenSlow::Queue) => u16::MAX,
            None => self.keep_last.unwrap_or(KEEP_LAST),
        }
    }
}

/// The default number of newest messages that matter.
pub const KEEP_LAST: u16 = 10;

/// What happens to a topic if a link cannot carry all of its messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhenSlow {
    /// Only the newest message is queued: sent messages are as new as possible (`keep_last: 1`).
    Latest,
    /// Like `Latest`, but a message that arrives during a transmission is dropped. Every n-th
    /// message is thus sent at once.
    Thin,
    /// All messages are queued in order, within their lifespan and the limits of the queue.
    Queue,
}

impl WhenSlow {
    /// The words in the configuration file, in the order of the variants.
    pub const WORDS: &[&str] = &["latest", "thin", "queue"];

    /// Returns the choice for a word in the configuration file.
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Latest, Self::Thin, Self::Queue].into_iter().find(|choice| choice.word() == word)
    }

    /// Returns the word in the configuration file.
    pub fn word(self) -> &'static str {
        Self::WORDS[self as usize]
    }
}

/// Types whose messages are complete views and take many packets: in a queue of ten messages, all
/// would become old. Types of video that is coded as differences between images are not listed.
const VIEWS: [&str; 5] = [
    "sensor_msgs/Image",
    "sensor_msgs/CompressedImage",
    "sensor_msgs/PointCloud",
    "sensor_msgs/PointCloud2",
    "stereo_msgs/DisparityImage",
];

/// Whether messages of a type are images or point clouds, by its name in either ROS.
pub fn is_view(type_name: &str) -> bool {
    VIEWS.contains(&&*short_name(type_name))
}

/// Compression of a topic's payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compression {
    /// No compression.
    #[default]
    None,
    /// Zstandard (RFC 8878). A payload that does not become smaller is sent raw.
    Zstd,
}

/// Returns the treatment of `name`, from the first rule that matches.
pub fn treatment<'a>(rules: &'a [TopicRule], name: &str) -> Option<&'a Treatment> {
    rules.iter().find(|rule| rule.pattern.matches(name)).map(|rule| &rule.treatment)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> Pattern {
        Pattern::new(text).unwrap()
    }

    #[test]
    fn the_first_matching_rule_applies() {
        let rule = |text, priority| TopicRule {
            pattern: pattern(text),
            treatment: Treatment { priority, ..Treatment::default() },
        };
        let rules = [rule("/camera/info", 7), rule("/camera/**", 3)];
        assert_eq!(treatment(&rules, "/camera/info").unwrap().priority, 7);
        assert_eq!(treatment(&rules, "/camera/image").unwrap().priority, 3);
        assert_eq!(treatment(&rules, "/scan"), None);
    }

    #[test]
    fn by_default_only_the_newest_image_or_point_cloud_is_queued() {
        let given = |keep_last, when_slow| Treatment { keep_last, when_slow, ..Default::default() };
        let (image, scan) = ("sensor_msgs/msg/Image", "sensor_msgs/LaserScan");
        let default = given(None, None);
        assert_eq!(default.when_slow(image), Some(WhenSlow::Latest));
        assert_eq!((default.keep_last(image), default.keep_last(scan)), (1, KEEP_LAST));
        assert_eq!(default.when_slow(scan), None);
        let three = given(Some(3), None);
        assert_eq!((three.keep_last(image), three.when_slow(image)), (3, None));
        for (choice, keeps) in
            [(WhenSlow::Latest, 1), (WhenSlow::Thin, 1), (WhenSlow::Queue, u16::MAX)]
        {
            let treatment = given(None, Some(choice));
            assert_eq!(treatment.when_slow(image), Some(choice));
            assert_eq!(treatment.keep_last(scan), keeps);
            assert_eq!(WhenSlow::from_word(choice.word()), Some(choice));
        }
        assert_eq!(WhenSlow::from_word("never"), None);
    }
}
