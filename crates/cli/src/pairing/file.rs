// SPDX-License-Identifier: Apache-2.0
//! The text of the files that a pairing writes. Pure.

use super::exchange::Role;
use super::facts::Facts;
use super::plan::{Plan, prefix, treatment};
use std::fmt::Write;

/// Column of the comments, as in the tutorial.
const COMMENT: usize = 28;

/// What one side of a pairing needs to write its file.
pub struct FileInput<'a> {
    /// Which side.
    pub role: Role,
    /// This side's facts.
    pub own: &'a Facts,
    /// The other side's facts.
    pub other: &'a Facts,
    /// Address of the other end, with its port if that is not the default; `None`: the other end
    /// initiates the handshake.
    pub address: Option<&'a str>,
    /// The topics that cross.
    pub plan: &'a Plan,
    /// Lines about the own ROS, without line ends.
    pub ros: &'a [String],
}

/// A line under `topics`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicLine {
    /// The topic.
    pub name: String,
    /// The treatment in YAML.
    pub treatment: String,
}

impl FileInput<'_> {
    /// The lines under the name of the peer, without indentation.
    pub fn peer_lines(&self) -> Vec<String> {
        let other = &self.other.name;
        let mut lines = vec![format!("key: {}", self.other.key)];
        let more: Vec<String> = self.other_addresses();
        let more =
            if more.is_empty() { String::new() } else { format!("; others: {}", more.join(", ")) };
        match self.address {
            Some(address) => {
                let line = format!("address: {}", scalar(address));
                lines.push(commented(line, &format!("as it was reached{more}")));
            }
            None => lines.push(format!("# No address: {other} begins the connection{more}.")),
        }
        match self.role {
            Role::Base => {
                let line = format!("prefix: {}", prefix(other));
                lines.push(commented(
                    line,
                    &format!("{other}'s topics appear here under this name"),
                ));
                let accepted = self.plan.shown.iter().filter(|it| it.needs_accept);
                let accepted: Vec<_> =
                    accepted.map(|it| (it.at_robot.as_str(), it.type_name.as_str())).collect();
                let comment = "other topics under the prefix than sensor data";
                lines.extend(map("accept", comment, &accepted));
            }
            Role::Robot => {
                let commands = self.plan.commands.iter();
                let accepted: Vec<_> =
                    commands.map(|it| (it.at_base.as_str(), it.type_name.as_str())).collect();
                lines.extend(map("accept", &format!("what {other} may publish here"), &accepted));
                let renamed = self.plan.commands.iter().filter(|it| it.at_base != it.at_robot);
                let renamed: Vec<_> =
                    renamed.map(|it| (it.at_base.as_str(), it.at_robot.as_str())).collect();
                lines.extend(map("remap", "names there, and here", &renamed));
            }
        }
        lines
    }

    fn other_addresses(&self) -> Vec<String> {
        let seen = self.address.unwrap_or_default();
        let all = self.other.addresses.iter().map(ToString::to_string);
        all.filter(|address| !seen.contains(address.as_str())).take(4).collect()
    }

    /// The lines that the section `topics` needs.
    pub fn topic_lines(&self) -> Vec<TopicLine> {
        match self.role {
            Role::Robot => {
                let line = |it: &super::plan::ShownTopic| TopicLine {
                    name: it.at_robot.clone(),
                    treatment: treatment(&it.at_robot, &it.type_name).into(),
                };
                self.plan.shown.iter().map(line).collect()
            }
            Role::Base => {
                let line = |it: &super::plan::CommandTopic| {
                    let open = treatment(&it.at_robot, &it.type_name);
                    let open = open.trim_end_matches(" }");
                    let treatment = format!("{open}, to: [{}] }}", self.other.name);
                    TopicLine { name: it.at_base.clone(), treatment }
                };
                self.plan.commands.iter().map(line).collect()
            }
        }
    }

    /// A whole new file.
    pub fn new_file(&self) -> String {
        let (own, other) = (&self.own.name, &self.other.name);
        let mut text = format!(
            "# Tautline: the file of {own}, written when it was paired with {other}.\n\
             # `sudo tautline check` explains it; `man robot.yaml` has all keys.\n\
             name: {own}\n"
        );
        self.ros.iter().for_each(|line| text.extend([line, "\n"]));
        let _ = writeln!(text, "peers:\n  {other}:");
        self.peer_lines().iter().for_each(|line| text.extend(["    ", line, "\n"]));
        let lines = self.topic_lines();
        let leaves = match self.role {
            Role::Robot => "what leaves this robot; the first matching line applies",
            Role::Base => "what leaves this machine; the first matching line applies",
        };
        if lines.is_empty() {
            let example = match self.role {
                Role::Robot => "/scan: { priority: 200 }",
                Role::Base => "/cmd_vel: { priority: 255, keep_last: 1, lifespan: 200ms }",
            };
            let _ = writeln!(text, "{}\n#  {example}", commented("#topics:".into(), leaves));
        } else {
            let _ = writeln!(text, "{}", commented("topics:".into(), leaves));
        }
        for TopicLine { name, treatment } in lines {
            let _ = writeln!(text, "  {name}: {treatment}");
        }
        text
    }
}

/// A key with a map below it; nothing if the map is empty.
fn map(key: &str, comment: &str, entries: &[(&str, &str)]) -> Vec<String> {
    if entries.is_empty() {
        return Vec::new();
    }
    let lines = entries.iter().map(|(name, value)| format!("  {name}: {value}"));
    std::iter::once(commented(format!("{key}:"), comment)).chain(lines).collect()
}

fn commented(line: String, comment: &str) -> String {
    format!("{line:COMMENT$}# {comment}")
}

/// An address as a YAML scalar.
fn scalar(address: &str) -> String {
    let is_plain = !address.contains("::") && !address.starts_with('[') && !address.contains(": ");
    if is_plain { address.into() } else { format!("\"{address}\"") }
}

#[cfg(test)]
mod tests {
    use super::super::facts::tests::facts;
    use super::super::plan::plan;
    use super::*;
    use tautline::config::{self, Surroundings};

    const ROBOT: &[&str] = &[
        "/scan sensor_msgs/LaserScan p",
        "/camera-1/image sensor_msgs/Image p",
        "/battery std_msgs/Float32 p",
        "/cmd_vel geometry_msgs/Twist s",
    ];

    #[test]
    fn both_files_are_valid_and_fit_each_other() {
        let (robot, mut base) = (facts("robot1", ROBOT), facts("base", &[]));
        for taken in [vec![], vec!["/cmd_vel".to_owned()]] {
            base.taken = taken;
            let plan = plan(&robot, &base);
            let ros = ["ros1: { master: \"http://localhost:11312\" }".to_owned()];
            let end = |role, own, other, address| FileInput {
                role,
                own,
                other,
                address,
                plan: &plan,
                ros: &ros,
            };
            let ends = [
                end(Role::Robot, &robot, &base, Some("fe80::1%wlan0")),
                end(Role::Base, &base, &robot, None),
            ];
            let files = ends.map(|end| {
                let text = end.new_file();
                let checked = config::parse(&text, &Surroundings::default());
                let checked = checked.unwrap_or_else(|problems| panic!("{problems:?}\n{text}"));
                assert_eq!(checked.warnings, [], "{text}");
                checked.config
            });
            let [robot, base] = files;
            assert_eq!(robot.peers[0].links[0].host, "fe80::1%wlan0");
            assert_eq!(robot.topics.len(), 3);
            assert!(base.peers[0].is_caller() && base.peers[0].names.prefix == "/robot1");
            let [accept] = &robot.peers[0].names.accept[..] else { panic!("{robot:?}") };
            assert_eq!(accept.types, ["geometry_msgs/Twist"]);
            assert!(base.topics[0].pattern.matches(accept.pattern.as_str()));
            assert_eq!(base.topics[0].treatment.to, Some(vec!["robot1".into()]));
            let [battery] = &base.peers[0].names.accept[..] else { panic!("{base:?}") };
            assert!(battery.pattern.matches("/battery"));
        }
    }

    #[test]
    fn the_readme_matches_the_written_file() {
        let robot = [
            "/camera/image/compressed sensor_msgs/CompressedImage p",
            "/odom nav_msgs/Odometry p",
            "/scan sensor_msgs/LaserScan p",
            "/tf tf2_msgs/TFMessage p",
            "/cmd_vel geometry_msgs/Twist s",
        ];
        let (robot, mut base) = (facts("robot1", &robot), facts("base", &[]));
        base.key = "cHVibGljIGtleSBvZiBiYXNlLCBhbiBleGFtcGxlLi4=".into();
        base.addresses = vec!["10.0.0.2".parse().unwrap()];
        let end = FileInput {
            role: Role::Robot,
            own: &robot,
            other: &base,
            address: Some("10.0.0.2"),
            plan: &plan(&robot, &base),
            ros: &["# ROS 1 at http://localhost:11311.".into()],
        };
        let readme = concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md");
        let readme = std::fs::read_to_string(readme).unwrap();
        let shown = readme.split("```yaml\n").nth(1).and_then(|it| it.split("```").next());
        assert_eq!(shown, Some(&*end.new_file()));
    }

    #[test]
    fn without_topics_the_file_has_an_example() {
        let (robot, base) = (facts("robot1", &[]), facts("base", &[]));
        let plan = plan(&robot, &base);
        let end = FileInput {
            role: Role::Robot,
            own: &robot,
            other: &base,
            address: Some("10.0.0.2"),
            plan: &plan,
            ros: &[],
        };
        let text = end.new_file();
        assert!(config::parse(&text, &Surroundings::default()).is_ok(), "{text}");
        assert!(text.contains("#  /scan: { priority: 200 }"), "{text}");
    }
}
