// SPDX-License-Identifier: Apache-2.0
//! Which topics cross between a robot and a base, from the facts of both. Pure: both ends come to the same
//! result.
//!
//! The base gets what the robot's nodes publish. The robot gets a topic only if one of its nodes
//! subscribes to it and none publishes it; if its messages do not merely describe what a robot
//! senses; and if a node at the base publishes it, or it is a velocity command by name and type.

use super::facts::{Facts, TopicFact};
use std::collections::BTreeSet;
use tautline::treatment::is_view;
use tautline_gateway::action_names::is_action_topic;
use tautline_gateway::observations::OBSERVATIONS;
use tautline_gateway::types::definition::short_name;

/// Types of velocity commands, which a robot obeys immediately.
const VELOCITIES: [&str; 2] = ["geometry_msgs/Twist", "geometry_msgs/TwistStamped"];
/// The last level of the usual name of such commands (REP 119).
const VELOCITY_TOPIC: &str = "cmd_vel";
/// Topics about ROS and Tautline themselves, which every graph has.
const INFRASTRUCTURE_TOPICS: [&str; 7] = [
    "/rosout",
    "/rosout_agg",
    "/clock",
    "/parameter_events",
    "/diagnostics",
    "/diagnostics_agg",
    "/tautline/link",
];

/// A topic of the robot that the base gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownTopic {
    /// Name at the robot.
    pub at_robot: String,
    /// Name at the base.
    pub at_base: String,
    /// `package/Type`.
    pub type_name: String,
    /// Whether the base's file must accept it: its type is no observation.
    pub needs_accept: bool,
}

/// A topic of the base that the robot accepts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandTopic {
    /// Name at the base.
    pub at_base: String,
    /// Name at the robot.
    pub at_robot: String,
    /// `package/Type`.
    pub type_name: String,
    /// Whether a node at the base publishes it now.
    pub published: bool,
}

/// The topics that cross.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    /// From the robot to the base.
    pub shown: Vec<ShownTopic>,
    /// From the base to the robot.
    pub commands: Vec<CommandTopic>,
    /// Other topics to which nodes of the robot subscribe and that none publishes, with their types.
    pub not_accepted: Vec<(String, String)>,
}

/// The prefix of a robot's names at the base. A level of a ROS name has no `-`.
pub fn prefix(robot: &str) -> String {
    tautline_gateway::names::plain_name(&format!("/{robot}"))
}

/// Returns the topics of a robot that a plan uses, the most useful first: velocity commands, observations,
/// topics that only have subscribers, the rest.
pub fn sort_by_usefulness(mut topics: Vec<TopicFact>) -> Vec<TopicFact> {
    topics.retain(is_carried);
    topics.sort_by_cached_key(|it| {
        let type_name = short_name(&it.type_name);
        match it.published {
            false if is_velocity(&it.name, &type_name) => 0,
            true if is_observation(&type_name) => 1,
            false => 2,
            true => 3,
        }
    });
    topics
}

/// The topics of a base that a plan with this robot asks for, by name.
pub fn requested_base_topics(robot: &Facts) -> BTreeSet<String> {
    let prefix = prefix(&robot.name);
    let all = robot.topics.iter().filter(|it| may_be_command(it));
    all.flat_map(|it| [it.name.clone(), format!("{prefix}{}", it.name)]).collect()
}

fn may_be_command(topic: &TopicFact) -> bool {
    topic.subscribed && !topic.published && is_carried(topic)
}

fn is_observation(type_name: &str) -> bool {
    OBSERVATIONS.iter().any(|(known, ..)| *known == type_name)
}

/// Decides which topics cross.
pub fn plan(robot: &Facts, base: &Facts) -> Plan {
    let prefix = prefix(&robot.name);
    let mut plan = Plan::default();
    for topic in robot.topics.iter().filter(|it| it.published && is_carried(it)) {
        let type_name = short_name(&topic.type_name);
        let at_base = format!("{prefix}{}", topic.name);
        let needs_accept = !is_observation(&type_name);
        plan.shown.push(ShownTopic {
            at_robot: topic.name.clone(),
            at_base,
            type_name,
            needs_accept,
        });
    }
    let taken: BTreeSet<&str> = base.taken.iter().map(String::as_str).collect();
    for topic in robot.topics.iter().filter(|it| may_be_command(it)) {
        let type_name = short_name(&topic.type_name);
        let at_base = match taken.contains(topic.name.as_str()) {
            // The base's topic already commands another robot.
            true => format!("{prefix}{}", topic.name),
            false => topic.name.clone(),
        };
        let published = publishes(base, &at_base, &type_name);
        let at_robot = topic.name.clone();
        if !is_observation(&type_name) && (published || is_velocity(&at_robot, &type_name)) {
            plan.commands.push(CommandTopic { at_base, at_robot, type_name, published });
        } else {
            plan.not_accepted.push((at_robot, type_name));
        }
    }
    plan
}

impl Plan {
    /// The topic with which a person sees that the pairing works: a laser scan if there is one. Images
    /// and the like fill a terminal.
    pub fn first_to_watch(&self) -> Option<&ShownTopic> {
        self.shown.iter().min_by_key(|it| match it.type_name.as_str() {
            "sensor_msgs/LaserScan" => 0,
            "tf2_msgs/TFMessage" | "tf/tfMessage" => 2,
            type_name if is_view(type_name) => 3,
            _ => 1,
        })
    }
}

fn is_carried(topic: &TopicFact) -> bool {
    let is_own = INFRASTRUCTURE_TOPICS.contains(&topic.name.as_str())
        || topic.name.starts_with("/tautline/");
    !is_own && !is_action_topic(&topic.name, &topic.type_name)
}

fn publishes(base: &Facts, name: &str, type_name: &str) -> bool {
    let is_it = |it: &&TopicFact| it.name == name && short_name(&it.type_name) == type_name;
    base.topics.iter().find(is_it).is_some_and(|it| it.published)
}

fn is_velocity(name: &str, type_name: &str) -> bool {
    VELOCITIES.contains(&type_name) && name.rsplit('/').next() == Some(VELOCITY_TOPIC)
}

/// The treatment of a topic under `topics`, by its type (`package/Type`), in the syntax of the file.
pub fn treatment(name: &str, type_name: &str) -> &'static str {
    match type_name {
        _ if name == "/tf_static" => "{ priority: 150 }",
        "geometry_msgs/Twist"
        | "geometry_msgs/TwistStamped"
        | "sensor_msgs/Joy"
        | "ackermann_msgs/AckermannDrive"
        | "ackermann_msgs/AckermannDriveStamped" => {
            "{ priority: 255, keep_last: 1, lifespan: 200ms }"
        }
        _ if is_view(type_name) => "{ priority: 20, keep_last: 1, lifespan: 500ms }",
        "nav_msgs/Odometry"
        | "geometry_msgs/PoseStamped"
        | "geometry_msgs/PoseWithCovarianceStamped"
        | "sensor_msgs/NavSatFix" => "{ priority: 220, keep_last: 1 }",
        "sensor_msgs/LaserScan" | "sensor_msgs/Range" | "sensor_msgs/Imu" => "{ priority: 200 }",
        "tf2_msgs/TFMessage" | "tf/tfMessage" | "sensor_msgs/JointState" => "{ priority: 150 }",
        "nav_msgs/OccupancyGrid" | "nav_msgs/Path" => "{ priority: 60, keep_last: 1 }",
        _ => "{ priority: 100 }",
    }
}

#[cfg(test)]
mod tests {
    use super::super::facts::tests::facts;
    use super::*;

    const ROBOT: &[&str] = &[
        "/scan sensor_msgs/LaserScan ps",
        "/battery std_msgs/Float32 p",
        "/cmd_vel geometry_msgs/Twist s",
        "/goal geometry_msgs/PoseStamped s",
        "/map nav_msgs/OccupancyGrid s",
        "/rosout rosgraph_msgs/Log ps",
        "/arm/command std_msgs/Float64 s",
        "/teleop/cmd_vel geometry_msgs/Twist ps",
    ];

    #[test]
    fn topics_to_watch_begin_with_scans_and_end_with_images() {
        let all = ["/a/image sensor_msgs/Image p", "/b std_msgs/Float32 p", ROBOT[0]];
        let watched = |count| {
            let plan = plan(&facts("robot1", &all[..count]), &facts("base", &[]));
            plan.first_to_watch().map(|it| it.at_base.clone())
        };
        let expected = [None, Some("/robot1/a/image"), Some("/robot1/b"), Some("/robot1/scan")];
        for (count, expected) in expected.into_iter().enumerate() {
            assert_eq!(watched(count).as_deref(), expected, "{count} topics");
        }
    }

    fn names(plan: &Plan) -> Vec<(&str, &str)> {
        plan.commands.iter().map(|it| (&*it.at_base, &*it.at_robot)).collect()
    }

    #[test]
    fn the_base_gets_published_topics_and_the_robot_only_commands() {
        let base = ["/goal geometry_msgs/PoseStamped p", "/map nav_msgs/OccupancyGrid p"];
        let plan = plan(&facts("robot-1", ROBOT), &facts("base", &base));
        let shown: Vec<_> = plan.shown.iter().map(|it| (&*it.at_base, it.needs_accept)).collect();
        let velocity = ("/robot_1/teleop/cmd_vel", true);
        assert_eq!(shown, [("/robot_1/scan", false), ("/robot_1/battery", true), velocity]);
        assert_eq!(names(&plan), [("/cmd_vel", "/cmd_vel"), ("/goal", "/goal")]);
        assert!(!plan.commands[0].published && plan.commands[1].published);
        // The map only describes, and nothing at the base publishes the arm's command.
        let rest: Vec<_> = plan.not_accepted.iter().map(|it| &*it.0).collect();
        assert_eq!(rest, ["/map", "/arm/command"]);
    }

    #[test]
    fn the_most_useful_topics_are_first() {
        let robot = facts("robot-1", ROBOT);
        let names: Vec<_> =
            sort_by_usefulness(robot.topics.clone()).into_iter().map(|it| it.name).collect();
        let expected = ["/cmd_vel", "/scan", "/goal", "/map", "/arm/command", "/battery"];
        assert_eq!(names, [&expected[..], &["/teleop/cmd_vel"]].concat());
        let asked = requested_base_topics(&robot);
        assert!(asked.contains("/goal") && asked.contains("/robot_1/goal"), "{asked:?}");
        assert!(!asked.contains("/battery") && !asked.contains("/rosout"), "{asked:?}");
    }

    #[test]
    fn another_type_at_the_base_is_not_accepted() {
        let base = ["/arm/command std_msgs/String p", "/goal geometry_msgs/Pose p"];
        assert_eq!(
            names(&plan(&facts("r", ROBOT), &facts("base", &base))),
            [("/cmd_vel", "/cmd_vel")]
        );
        let base = ["/arm/command std_msgs/msg/Float64 p"];
        let plan = plan(&facts("r", ROBOT), &facts("base", &base));
        assert_eq!(plan.commands[1].at_robot, "/arm/command", "the same type of ROS 2");
    }

    #[test]
    fn the_command_of_another_robot_does_not_move_this_one() {
        let mut base = facts("base", &["/cmd_vel geometry_msgs/Twist p"]);
        base.taken = vec!["/cmd_vel".into()];
        let plan = plan(&facts("robot2", ROBOT), &base);
        assert_eq!(names(&plan), [("/robot2/cmd_vel", "/cmd_vel")]);
        assert!(!plan.commands[0].published);
    }
}
