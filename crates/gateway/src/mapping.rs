// SPDX-License-Identifier: Apache-2.0
//! Rules from the names of topics and services to their treatment. Pure.

pub use crate::names::{NameError, check_local_name, check_name, check_peer_name, plain_name};
use crate::names::{check, check_levels, is_of_peers};
use crate::types::definition::short_name;
use std::collections::BTreeMap;
use std::time::Duration;

/// The treatment of topics that match `pattern`.
#[derive(Debug, Clone, PartialEq)]
pub struct TopicRule {
    /// The topics.
    pub pattern: Pattern,
    /// Treatment of each.
    pub treatment: Treatment,
}

/// How a topic is sent.
#[derive(Debug, Clone, PartialEq)]
pub struct Treatment {
    /// 0-255, higher first.
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
    /// Peers that may get it; `None` is all.
    pub to: Option<Vec<String>>,
    /// Whether lost fragments are retransmitted while the message is useful.
    pub repair: bool,
    /// Parity in percent of the packets, which recovers lost ones without a retransmission.
    pub fec: Option<u8>,
    /// How it uses several links to one peer.
    pub links: LinkRule,
    /// The order in which its messages are delivered.
    pub order: OrderChoice,
    /// Longest time that a message waits for earlier ones under [`OrderChoice::Sent`].
    pub order_wait: Duration,
}

/// How a topic uses several links to one peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkRule {
    /// The links that carry a message; `None`: by priority.
    pub choice: Option<LinkChoice>,
    /// The number of copies of [`LinkChoice::Duplicate`].
    pub copies: u8,
    /// Names of the links that carry the topic; empty for all.
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
    /// The one on which it arrives first.
    Best,
    /// One at random, by goodput.
    Weighted,
    /// All, each with a part of the message.
    Stripe,
    /// Some, each with a copy.
    Duplicate,
}

impl LinkChoice {
    /// The words of the configuration file, in the order of the variants.
    pub const WORDS: &[&str] = &["best", "weighted", "stripe", "duplicate"];

    /// From the word in the configuration file.
    pub fn from_word(word: &str) -> Option<Self> {
        let all = [Self::Best, Self::Weighted, Self::Stripe, Self::Duplicate];
        all.into_iter().find(|choice| choice.word() == word)
    }

    /// The word in the configuration file.
    pub fn word(self) -> &'static str {
        Self::WORDS[self as usize]
    }
}

/// The order in which the messages of a publisher are delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OrderChoice {
    /// As they arrive.
    #[default]
    Arrival,
    /// As they were published, with a bounded wait for missing ones.
    Sent,
    /// As they arrive, but none after a newer one.
    Newest,
}

impl OrderChoice {
    /// The words of the configuration file, in the order of the variants.
    pub const WORDS: &[&str] = &["arrival", "sent", "newest"];

    /// From the word in the configuration file.
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Arrival, Self::Sent, Self::Newest].into_iter().find(|order| order.word() == word)
    }

    /// The word in the configuration file.
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
    /// Least time between two messages; `None` without a limit on the rate.
    pub fn period(&self) -> Option<Duration> {
        let seconds = 1.0 / self.rate_hz?;
        Some(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX))
    }

    /// The effective choice for a topic of this type; `None`: [`Self::keep_last`] applies.
    pub fn when_slow(&self, type_name: &str) -> Option<WhenSlow> {
        let by_kind = (self.keep_last.is_none() && is_view(type_name)).then_some(WhenSlow::Latest);
        self.when_slow.or(by_kind)
    }

    /// The number of newest messages that matter for a topic of this type, at least 1.
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
    /// As `Latest`, and a message that arrives during a transmission is dropped: every n-th
    /// message is sent at once.
    Thin,
    /// All messages are queued in order, within their lifespan and the limits of the queue.
    Queue,
}

impl WhenSlow {
    /// The words of the configuration file, in the order of the variants.
    pub const WORDS: &[&str] = &["latest", "thin", "queue"];

    /// From the word in the configuration file.
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Latest, Self::Thin, Self::Queue].into_iter().find(|choice| choice.word() == word)
    }

    /// The word in the configuration file.
    pub fn word(self) -> &'static str {
        Self::WORDS[self as usize]
    }
}

/// Types whose messages are complete views and take many packets: in a queue of ten, all are old.
/// Video with differences between images is not among them.
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

/// The treatment of services that match `pattern`.
#[derive(Debug, Clone, PartialEq)]
pub struct ServiceRule {
    /// The services.
    pub pattern: Pattern,
    /// Treatment of each.
    pub treatment: ServiceTreatment,
}

/// How calls of a service and their responses are sent.
#[derive(Debug, Clone, PartialEq)]
pub struct ServiceTreatment {
    /// 0-255, higher first.
    pub priority: u8,
    /// Time limit of a call.
    pub timeout: Duration,
    /// Peers that may call it; `None` is all.
    pub to: Option<Vec<String>>,
}

/// The default time limit of a call.
pub const SERVICE_TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit of a call for the result of an action, which lasts from its start to its end, and of a
/// call that cancels a goal.
pub const RESULT_TIMEOUT: Duration = Duration::from_secs(24 * 3600);

/// The services of an action of ROS 2, below its name and `_action`.
pub const ACTION_SERVICES: [&str; 3] = [SEND, CANCEL, RESULT];
/// The topics of an action of ROS 2, below its name and `_action`.
pub const ACTION_TOPICS: [&str; 2] = ["feedback", "status"];
const SEND: &str = "send_goal";
const CANCEL: &str = "cancel_goal";
const RESULT: &str = "get_result";

/// What a service of an action of ROS 2 does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ActionCall {
    /// Starts a goal.
    SendGoal,
    /// Cancels goals.
    CancelGoal,
    /// Returns the result of a goal when it ends.
    GetResult,
}

/// What a service does, if it is one of an action.
pub fn action_call(service: &str) -> Option<ActionCall> {
    match &service[action_of(service)?.len() + "/_action/".len()..] {
        SEND => Some(ActionCall::SendGoal),
        CANCEL => Some(ActionCall::CancelGoal),
        RESULT => Some(ActionCall::GetResult),
        _ => None,
    }
}

/// The name of the service that cancels goals of an action.
pub fn cancel_service(action: &str) -> String {
    format!("{action}/_action/{CANCEL}")
}

/// The treatment of service `name`: that of the first rule that matches. A call for a result lasts as
/// long as its goal. A call that cancels a goal also waits as long, and precedes all else.
pub fn service_treatment(rules: &[ServiceRule], name: &str) -> Option<ServiceTreatment> {
    let rule = rules.iter().find(|rule| rule.pattern.matches(name))?;
    let mut treatment = rule.treatment.clone();
    match action_call(name) {
        Some(ActionCall::GetResult) => treatment.timeout = RESULT_TIMEOUT,
        Some(ActionCall::CancelGoal) => {
            treatment.timeout = RESULT_TIMEOUT;
            treatment.priority = u8::MAX;
        }
        Some(ActionCall::SendGoal) | None => {}
    }
    Some(treatment)
}

/// Compression of a topic's payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compression {
    /// No compression.
    #[default]
    None,
    /// Zstandard (RFC 8878); sent raw if that is not larger.
    Zstd,
}

/// A name or a pattern of names of topics or tf frames. `*` matches any characters within one
/// level, `**` across levels.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Pattern(String);

/// The mapping of one peer's names to local names.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NameMap {
    /// The prefix of each name (`/robot1`), which may be empty.
    pub prefix: String,
    /// Renames, which come before the prefix.
    pub remap: BTreeMap<String, String>,
    /// The peer's accepted topics, services and actions, by their names at the peer.
    pub accept: Vec<Accept>,
}

/// Topics, services or actions of a peer that the configuration allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accept {
    /// The names at the peer.
    pub pattern: Pattern,
    /// The types, each as `package/Type`; empty: any.
    pub types: Vec<String>,
}

/// The decision of `accept` on one name and type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accepted {
    /// Name and type are accepted.
    Yes,
    /// The name is accepted with another type.
    OtherType,
    /// No entry matches the name.
    No,
}

/// Whether a topic is the status of a ROS 2 action: transient local with a depth of 1.
pub fn is_action_status(topic: &str) -> bool {
    topic.ends_with("/_action/status")
}

/// The action of ROS 2 that a topic or service is a part of.
pub fn action_of(name: &str) -> Option<&str> {
    let (action, part) = name.rsplit_once("/_action/")?;
    (ACTION_SERVICES.contains(&part) || ACTION_TOPICS.contains(&part)).then_some(action)
}

/// Whether a topic is the feedback or status of an action of ROS 2, by its name and type.
pub fn is_action_topic(name: &str, type_name: &str) -> bool {
    let fits =
        type_name == "action_msgs/msg/GoalStatusArray" || type_name.ends_with("_FeedbackMessage");
    fits && action_of(name).is_some_and(|action| {
        ACTION_TOPICS.iter().any(|part| name[action.len()..].ends_with(&format!("/{part}")))
    })
}

/// Whether a topic or service of type `found` is one of type `allowed` (`package/Type`), or a
/// part of an action of that type.
pub fn is_type(allowed: &str, name: &str, found: &str) -> bool {
    let found = short_name(found);
    if found == allowed {
        return true;
    }
    let parts = ["_SendGoal", "_GetResult", "_FeedbackMessage"];
    let own = parts.iter().any(|part| found.strip_suffix(part) == Some(allowed));
    let shared = ["action_msgs/CancelGoal", "action_msgs/GoalStatusArray"];
    action_of(name).is_some() && (own || shared.contains(&&*found))
}

impl Pattern {
    /// Parses a name or pattern; a name matches only itself.
    pub fn new(text: &str) -> Result<Self, NameError> {
        check(text, ", '-' and '.', or '*' and '**' in a pattern", |c| c == '*' || is_of_peers(c))?;
        Ok(Self(text.into()))
    }

    /// Parses the name of a tf frame (`arm/link_1`), or a pattern of such names.
    pub fn of_frames(text: &str) -> Result<Self, NameError> {
        if text.starts_with('/') {
            return Err(NameError::Absolute(text.into()));
        }
        let also = ", '-' and '.', or '*' and '**' in a pattern";
        check_levels(text, text, also, |c| matches!(c, '*' | '-' | '.'))?;
        Ok(Self(text.into()))
    }

    /// The text of the pattern.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the pattern is a plain name.
    pub fn is_name(&self) -> bool {
        !self.0.contains('*')
    }

    /// Whether the pattern matches `name`.
    pub fn matches(&self, name: &str) -> bool {
        glob(self.0.as_bytes(), name.as_bytes())
    }

    /// Whether the pattern matches `name` or the ROS 2 action that it is a part of.
    pub fn matches_or_action(&self, name: &str) -> bool {
        self.matches(name) || action_of(name).is_some_and(|action| self.matches(action))
    }

    /// Whether this pattern matches every name that `later` matches. Tests names in which the stars
    /// of `later` stand for nothing, one unusual level, or two: only stars that reach as far match
    /// all of these.
    pub fn covers(&self, later: &Pattern) -> bool {
        const SAMPLES: [(&str, &str); 3] = [("", ""), ("\u{1}", "\u{1}"), ("\u{1}", "\u{1}/\u{1}")];
        SAMPLES.iter().all(|(level, levels)| {
            self.matches(&later.as_str().replace("**", levels).replace('*', level))
        })
    }
}

/// Matches `name` against `pattern` in O(pattern x name) time for any number of stars:
/// `reachable[i]` is true if the pattern so far can match `name[..i]`.
fn glob(pattern: &[u8], name: &[u8]) -> bool {
    // The text before the first star tells most names apart at once.
    let text = pattern.iter().position(|&byte| byte == b'*').unwrap_or(pattern.len());
    let (text, pattern) = pattern.split_at(text);
    let Some(name) = name.strip_prefix(text) else { return false };
    if pattern.is_empty() {
        return name.is_empty();
    }
    let mut reachable = vec![false; name.len() + 1];
    reachable[0] = true;
    let mut rest = pattern;
    while let Some((&first, tail)) = rest.split_first() {
        if first != b'*' {
            for i in (0..name.len()).rev() {
                reachable[i + 1] = reachable[i] && name[i] == first;
            }
            reachable[0] = false;
            rest = tail;
            continue;
        }
        let across_levels = tail.first() == Some(&b'*');
        for i in 0..name.len() {
            reachable[i + 1] |= reachable[i] && (across_levels || name[i] != b'/');
        }
        rest = if across_levels { &tail[1..] } else { tail };
    }
    reachable[name.len()]
}

/// The treatment of `name`: that of the first rule that matches.
pub fn treatment<'a>(rules: &'a [TopicRule], name: &str) -> Option<&'a Treatment> {
    rules.iter().find(|rule| rule.pattern.matches(name)).map(|rule| &rule.treatment)
}

/// Whether `name` is the prefix (`/robot1`) itself or lies under it.
pub fn is_below(name: &str, prefix: &str) -> bool {
    name.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

impl NameMap {
    /// The local name of a peer's topic or service. A rename of an action of ROS 2 applies to its
    /// parts.
    pub fn local_name(&self, theirs: &str) -> String {
        let prefix = &self.prefix;
        if let Some(renamed) = self.remap.get(theirs) {
            return format!("{prefix}{renamed}");
        }
        let action = action_of(theirs);
        match action.and_then(|action| Some((action, self.remap.get(action)?))) {
            Some((action, renamed)) => format!("{prefix}{renamed}{}", &theirs[action.len()..]),
            None => format!("{prefix}{theirs}"),
        }
    }

    /// Whether the file gives this topic, service or action of the peer another name.
    pub fn renames(&self, theirs: &str) -> bool {
        let action = action_of(theirs);
        self.remap.contains_key(theirs) || action.is_some_and(|it| self.remap.contains_key(it))
    }

    /// Whether a line of `accept` names this topic or service of the peer without a star.
    pub fn is_named(&self, theirs: &str) -> bool {
        self.accept.iter().any(|entry| entry.pattern.as_str() == theirs)
    }

    /// The decision of `accept` on a name at the peer; `fits` tests an allowed type against the
    /// peer's.
    pub fn accepted(&self, theirs: &str, fits: impl Fn(&str) -> bool) -> Accepted {
        let mut found = Accepted::No;
        for entry in self.accept.iter().filter(|it| it.pattern.matches_or_action(theirs)) {
            if entry.types.is_empty() || entry.types.iter().any(|allowed| fits(allowed)) {
                return Accepted::Yes;
            }
            found = Accepted::OtherType;
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> Pattern {
        Pattern::new(text).unwrap()
    }

    #[test]
    fn a_name_matches_only_itself() {
        assert!(pattern("/scan").matches("/scan"));
        assert!(!pattern("/scan").matches("/scan2"));
        assert!(!pattern("/scan").matches("/front/scan"));
    }

    #[test]
    fn one_star_stays_within_a_level_and_two_cross_levels() {
        assert!(pattern("/*/scan").matches("/front/scan"));
        assert!(!pattern("/*/scan").matches("/a/b/scan"));
        assert!(pattern("/**/scan").matches("/a/b/scan"));
        assert!(pattern("/camera/**").matches("/camera/image/compressed"));
        assert!(!pattern("/camera/**").matches("/camera"));
        assert!(pattern("/diag*").matches("/diagnostics"));
        assert!(pattern("/**").matches("/x"));
        assert!(pattern("/camera-1/*").matches("/camera-1/image.raw"));
    }

    #[test]
    fn many_stars_do_not_take_exponential_time() {
        let hostile = format!("/{}b", "*a".repeat(60));
        assert!(!pattern(&hostile).matches(&format!("/{}", "a".repeat(5000))));
    }

    #[test]
    fn names_that_ros_would_refuse_are_refused_with_the_character() {
        assert_eq!(Pattern::new("scan"), Err(NameError::NotAbsolute("scan".into())));
        assert_eq!(check_name("/a//b"), Err(NameError::EmptyLevel("/a//b".into())));
        let found = check_name("/a b").unwrap_err().to_string();
        assert!(found.contains("' '"), "{found}");
        assert!(check_name("/a*").is_err());
    }

    #[test]
    fn names_of_frames_follow_their_own_rules() {
        let frame = |text: &str| Pattern::of_frames(text).map_err(|e| e.to_string());
        assert!(frame("arm-1/**").unwrap().matches("arm-1/link.2/tip"));
        assert!(frame("base_*").unwrap().matches("base_link"));
        assert!(!frame("base_link").unwrap().matches("robot1/base_link"));
        assert!(frame("/base_link").unwrap_err().contains("'/base_link' starts with '/'"));
        assert!(frame("").unwrap_err().contains("'' has an empty level"));
        assert!(frame("base link").unwrap_err().contains("has ' '; a level"));
    }

    #[test]
    fn the_first_rule_that_matches_counts() {
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
    fn names_are_remapped_then_prefixed() {
        let map = NameMap {
            prefix: "/robot1".into(),
            remap: [("/scan".into(), "/front/scan".into())].into(),
            accept: Vec::new(),
        };
        assert_eq!(map.local_name("/scan"), "/robot1/front/scan");
        assert_eq!(map.local_name("/tf_static"), "/robot1/tf_static");
        let map = NameMap { remap: [("/go-1".into(), "/go".into())].into(), ..map };
        assert_eq!(map.local_name("/go-1/_action/send_goal"), "/robot1/go/_action/send_goal");
        assert_eq!(map.local_name("/go-1/other"), "/robot1/go-1/other");
        assert!(map.renames("/go-1/_action/status") && !map.renames("/go"));
    }

    #[test]
    fn acceptance_depends_on_the_name_and_optionally_on_the_type() {
        let accept = |text, types: &[&str]| Accept {
            pattern: pattern(text),
            types: types.iter().map(|it| (*it).into()).collect(),
        };
        let map = NameMap {
            accept: vec![
                accept("/scan", &[]),
                accept("/cmd*", &["geometry_msgs/Twist", "geometry_msgs/TwistStamped"]),
                accept("/go", &["nav2_msgs/NavigateToPose"]),
            ],
            ..NameMap::default()
        };
        let accepted = |name, found| map.accepted(name, |allowed| is_type(allowed, name, found));
        assert_eq!(accepted("/scan", "x/Y"), Accepted::Yes);
        assert_eq!(accepted("/cmd_vel", "geometry_msgs/msg/Twist"), Accepted::Yes);
        assert_eq!(accepted("/cmd_vel", "geometry_msgs/Pose"), Accepted::OtherType);
        assert_eq!(accepted("/odom", "geometry_msgs/Twist"), Accepted::No);
        for (part, found) in [
            ("send_goal", "nav2_msgs/action/NavigateToPose_SendGoal"),
            ("get_result", "nav2_msgs/action/NavigateToPose_GetResult"),
            ("cancel_goal", "action_msgs/srv/CancelGoal"),
            ("feedback", "nav2_msgs/action/NavigateToPose_FeedbackMessage"),
            ("status", "action_msgs/msg/GoalStatusArray"),
        ] {
            let name = format!("/go/_action/{part}");
            let fits = |allowed: &str| is_type(allowed, &name, found);
            assert_eq!(map.accepted(&name, fits), Accepted::Yes, "{part}");
        }
        assert_eq!(accepted("/go/_action/feedback", "x/Y"), Accepted::OtherType);
        assert_eq!(accepted("/go/_action/other", "x/Y"), Accepted::No);
        assert_eq!(accepted("/go", "action_msgs/CancelGoal"), Accepted::OtherType);
    }

    #[test]
    fn a_pattern_covers_another_only_if_it_matches_all_of_its_names() {
        let covered = |earlier, later| pattern(earlier).covers(&pattern(later));
        assert!(covered("/scan", "/scan"));
        assert!(covered("/camera/**", "/camera/image"));
        assert!(covered("/camera/**", "/camera/*"));
        assert!(covered("/**", "/camera/**"));
        assert!(covered("/cam*", "/camera*"));
        assert!(!covered("/camera/*", "/camera/**"));
        assert!(!covered("/camera/*/*", "/camera/**"));
        assert!(!covered("/camera/image", "/camera/*"));
        assert!(!covered("/camera*", "/cam*"));
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
