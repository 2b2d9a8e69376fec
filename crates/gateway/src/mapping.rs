// SPDX-License-Identifier: Apache-2.0
//! Which topics go where, and how: pure rules from topic names to treatment.

use crate::types::definition::short_name;
use std::collections::BTreeMap;
use std::time::Duration;

/// How topics that match `pattern` are sent.
#[derive(Debug, Clone, PartialEq)]
pub struct TopicRule {
    /// Which topics.
    pub pattern: Pattern,
    /// Treatment of each.
    pub treatment: Treatment,
}

/// What a topic gets on its way out.
#[derive(Debug, Clone, PartialEq)]
pub struct Treatment {
    /// 0-255, higher first.
    pub priority: u8,
    /// How many of the newest messages are worth keeping, at least 1; see [`Self::keep_last`].
    pub keep_last: Option<u16>,
    /// What the topic does where a link cannot carry all of it; see [`Self::when_slow`].
    pub when_slow: Option<WhenSlow>,
    /// Age past which a message is worthless.
    pub lifespan: Option<Duration>,
    /// Highest rate at which messages are accepted, in hertz; the rest is left out at the source.
    pub rate_hz: Option<f64>,
    /// How the payload is compressed.
    pub compression: Compression,
    /// Peers that may have it; `None` is everyone.
    pub to: Option<Vec<String>>,
    /// Whether lost pieces are sent again while the message is useful.
    pub repair: bool,
}

impl Default for Treatment {
    fn default() -> Self {
        Self {
            priority: 100,
            keep_last: None,
            when_slow: None,
            lifespan: None,
            rate_hz: None,
            compression: Compression::None,
            to: None,
            repair: true,
        }
    }
}

impl Treatment {
    /// Least time between two messages; `None` without a highest rate.
    pub fn period(&self) -> Option<Duration> {
        let seconds = 1.0 / self.rate_hz?;
        Some(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX))
    }

    /// How a topic of this type gives way; `None`: as [`Self::keep_last`] says.
    pub fn when_slow(&self, type_name: &str) -> Option<WhenSlow> {
        let by_kind = (self.keep_last.is_none() && is_view(type_name)).then_some(WhenSlow::Latest);
        self.when_slow.or(by_kind)
    }

    /// How many of the newest messages of a topic of this type are worth keeping, at least 1.
    pub fn keep_last(&self, type_name: &str) -> u16 {
        match self.when_slow(type_name) {
            Some(WhenSlow::Latest | WhenSlow::Thin) => 1,
            Some(WhenSlow::Queue) => u16::MAX,
            None => self.keep_last.unwrap_or(KEEP_LAST),
        }
    }
}

/// How many of the newest messages are worth keeping unless something else is known.
pub const KEEP_LAST: u16 = 10;

/// What a topic does where a link cannot carry all of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhenSlow {
    /// Only the newest message waits: what is sent is as new as can be (`keep_last: 1`).
    Latest,
    /// Likewise, and a message that comes while one is being sent is left out: every n-th is
    /// sent, at once.
    Thin,
    /// All wait in order, until their lifespan or the queue's bounds end that.
    Queue,
}

impl WhenSlow {
    /// The words of the file, in the order of the values above.
    pub const WORDS: &[&str] = &["latest", "thin", "queue"];

    /// From the word in the file.
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Latest, Self::Thin, Self::Queue].into_iter().find(|it| it.word() == word)
    }

    /// As in the file.
    pub fn word(self) -> &'static str {
        Self::WORDS[self as usize]
    }
}

/// Types whose messages each show all there is to see, and take many packets: where ten wait, all
/// of them are old. Video of differences between images is not among them.
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

/// How services that match `pattern` are carried to other robots.
#[derive(Debug, Clone, PartialEq)]
pub struct ServiceRule {
    /// Which services.
    pub pattern: Pattern,
    /// Treatment of each.
    pub treatment: ServiceTreatment,
}

/// What calls of a service get on their way, and their answers.
#[derive(Debug, Clone, PartialEq)]
pub struct ServiceTreatment {
    /// 0-255, higher first.
    pub priority: u8,
    /// How long a caller waits.
    pub timeout: Duration,
    /// Peers that are offered it; `None` is everyone.
    pub to: Option<Vec<String>>,
}

/// How long a caller waits unless the file says otherwise.
pub const SERVICE_TIMEOUT: Duration = Duration::from_secs(5);
/// The result of an action is asked for when it begins, and told when it ends.
pub const RESULT_TIMEOUT: Duration = Duration::from_secs(24 * 3600);

/// The services of an action of ROS 2, below its name and `_action`.
pub const ACTION_SERVICES: [&str; 3] = ["send_goal", "cancel_goal", RESULT];
/// The topics of an action of ROS 2, below its name and `_action`.
pub const ACTION_TOPICS: [&str; 2] = ["feedback", "status"];
const RESULT: &str = "get_result";

/// How long a caller of an action's service waits: for the result, until the action ends.
pub fn action_timeout(service: &str, timeout: Duration) -> Duration {
    if service == RESULT { RESULT_TIMEOUT } else { timeout }
}

/// Whether a service is one by which the result of an action is asked for.
pub fn is_result(name: &str) -> bool {
    action_of(name).is_some() && name.ends_with(RESULT)
}

/// The treatment of service `name`: that of the first rule that matches.
pub fn service_treatment(rules: &[ServiceRule], name: &str) -> Option<ServiceTreatment> {
    rules.iter().find(|rule| rule.pattern.matches(name)).map(|rule| rule.treatment.clone())
}

/// Compression of a topic's payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compression {
    /// As it is.
    #[default]
    None,
    /// Zstandard (RFC 8878), sent raw where that is not smaller.
    Zstd,
}

/// A name, or a pattern of names, of topics or of tf frames: `*` is any run of characters
/// within one level, `**` any run across levels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern(String);

/// How names of one peer's topics become local names.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NameMap {
    /// Put before each name (`/robot1`), empty for none.
    pub prefix: String,
    /// Names that become others, before the prefix is put on.
    pub remap: BTreeMap<String, String>,
    /// Which of the peer's topics, services and actions are taken, by their names at the peer.
    pub accept: Vec<Accept>,
}

/// Topics, services or actions of a peer that the file allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accept {
    /// Which names, as the peer has them.
    pub pattern: Pattern,
    /// Which types, each as `package/Type`; empty is any.
    pub types: Vec<String>,
}

/// What `accept` says of one name and type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accepted {
    /// It is allowed.
    Yes,
    /// The name is allowed with another type.
    OtherType,
    /// No entry has the name.
    No,
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

/// Why a text is no topic name or pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Names are absolute.
    #[error("'{0}' does not start with '/'")]
    NotAbsolute(String),
    /// Something a ROS name cannot hold.
    #[error("'{name}' has '{found}'; a level of a name is letters, digits and '_'{also}")]
    Character {
        /// The whole text.
        name: String,
        /// The first character that does not fit.
        found: char,
        /// What else is allowed here.
        also: &'static str,
    },
    /// tf2 refuses names of frames that are absolute.
    #[error("'{0}' starts with '/', which names of frames do not")]
    Absolute(String),
    /// An empty level, as in `//` or a trailing `/`.
    #[error("'{0}' has an empty level")]
    EmptyLevel(String),
}

/// Checks that `name` is an absolute ROS name such as `/robot1/scan`.
pub fn check_name(name: &str) -> Result<(), NameError> {
    check(name, "", |_| false)
}

fn check(name: &str, also: &'static str, allowed: impl Fn(char) -> bool) -> Result<(), NameError> {
    match name.strip_prefix('/') {
        Some(levels) => check_levels(name, levels, also, allowed),
        None => Err(NameError::NotAbsolute(name.into())),
    }
}

fn check_levels(
    name: &str,
    levels: &str,
    also: &'static str,
    allowed: impl Fn(char) -> bool,
) -> Result<(), NameError> {
    for level in levels.split('/') {
        if level.is_empty() {
            return Err(NameError::EmptyLevel(name.into()));
        }
        let odd = level.chars().find(|&c| !(c.is_ascii_alphanumeric() || c == '_' || allowed(c)));
        if let Some(found) = odd {
            return Err(NameError::Character { name: name.into(), found, also });
        }
    }
    Ok(())
}

impl Pattern {
    /// Parses a name or pattern; a name matches only itself.
    pub fn new(text: &str) -> Result<Self, NameError> {
        check(text, ", or '*' and '**' in a pattern", |c| c == '*')?;
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

    /// The text it was made from.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is a plain name.
    pub fn is_name(&self) -> bool {
        !self.0.contains('*')
    }

    /// Whether `name` is one of those meant.
    pub fn matches(&self, name: &str) -> bool {
        glob(self.0.as_bytes(), name.as_bytes())
    }

    /// Whether `name`, or the action of ROS 2 that it is a part of, is one of those meant.
    pub fn matches_or_action(&self, name: &str) -> bool {
        self.matches(name) || action_of(name).is_some_and(|action| self.matches(action))
    }

    /// Whether this matches whatever `later` matches. Tries names in which the stars of `later`
    /// are nothing, one strange level, or two: a pattern matches all of these only by stars
    /// that reach as far.
    pub fn covers(&self, later: &Pattern) -> bool {
        const STRANGE: [(&str, &str); 3] = [("", ""), ("\u{1}", "\u{1}"), ("\u{1}", "\u{1}/\u{1}")];
        STRANGE.iter().all(|(level, levels)| {
            self.matches(&later.as_str().replace("**", levels).replace('*', level))
        })
    }
}

/// Matches `name` against `pattern` in O(pattern x name) time whatever the
/// number of stars: `reachable[i]` says that the pattern so far can consume `name[..i]`.
fn glob(pattern: &[u8], name: &[u8]) -> bool {
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

/// The treatment of `name`: that of the first rule that matches, as in a file read from the top.
pub fn treatment<'a>(rules: &'a [TopicRule], name: &str) -> Option<&'a Treatment> {
    rules.iter().find(|rule| rule.pattern.matches(name)).map(|rule| &rule.treatment)
}

impl NameMap {
    /// The local name of a peer's topic or service.
    pub fn local_name(&self, theirs: &str) -> String {
        let renamed = self.remap.get(theirs).map_or(theirs, String::as_str);
        format!("{}{renamed}", self.prefix)
    }

    /// What `accept` says of a name at the peer; `fits` tells whether what the peer has under it
    /// is of a type in the file.
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
    fn frames_have_names_of_their_own() {
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
    }

    #[test]
    fn what_is_accepted_goes_by_name_and_where_given_by_type() {
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
    fn a_pattern_is_covered_only_by_one_that_matches_all_it_matches() {
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
    fn of_images_and_point_clouds_only_the_newest_waits_unless_the_file_says_otherwise() {
        let given = |keep_last, when_slow| Treatment { keep_last, when_slow, ..Default::default() };
        let (image, scan) = ("sensor_msgs/msg/Image", "sensor_msgs/LaserScan");
        let default = given(None, None);
        assert_eq!(default.when_slow(image), Some(WhenSlow::Latest));
        assert_eq!((default.keep_last(image), default.keep_last(scan)), (1, KEEP_LAST));
        assert_eq!(default.when_slow(scan), None);
        let three = given(Some(3), None);
        assert_eq!((three.keep_last(image), three.when_slow(image)), (3, None));
        for (way, keeps) in
            [(WhenSlow::Latest, 1), (WhenSlow::Thin, 1), (WhenSlow::Queue, u16::MAX)]
        {
            let told = given(None, Some(way));
            assert_eq!((told.when_slow(image), told.keep_last(scan)), (Some(way), keeps));
            assert_eq!(WhenSlow::from_word(way.word()), Some(way));
        }
        assert_eq!(WhenSlow::from_word("never"), None);
    }
}
