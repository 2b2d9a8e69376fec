// SPDX-License-Identifier: Apache-2.0
//! The local names of a peer's topics and services, and which of them are accepted. Pure: no I/O.

use std::collections::BTreeMap;
use tautline_gateway::action_names::action_of;
use tautline_gateway::pattern::Pattern;
use tautline_gateway::types::definition::short_name;

/// The mapping of one peer's names to local names.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NameMap {
    /// The prefix of each local name (`/robot1`); may be empty.
    pub prefix: String,
    /// Renames, which are applied before the prefix.
    pub remap: BTreeMap<String, String>,
    /// The peer's accepted topics, services and actions, by their names at the peer.
    pub accept: Vec<Accept>,
}

/// Topics, services or actions of a peer that the configuration allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accept {
    /// The names at the peer.
    pub pattern: Pattern,
    /// The types, each as `package/Type`; empty means any type.
    pub types: Vec<String>,
}

/// The decision of `accept` about a name and a type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accepted {
    /// Name and type are accepted.
    Yes,
    /// The name is accepted, but only with another type.
    OtherType,
    /// No entry matches the name.
    No,
}

impl NameMap {
    /// Returns the local name of a peer's topic or service. A rename of a ROS 2 action also applies
    /// to its topics and services.
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

    /// Returns the decision of `accept` about a name at the peer. `fits` tests whether an allowed
    /// type fits the peer's type.
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

/// Whether the type `found` of a topic or service is the type `allowed` (`package/Type`), or
/// belongs to a part of an action of that type.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> Pattern {
        Pattern::new(text).unwrap()
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
}
