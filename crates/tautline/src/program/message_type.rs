// SPDX-License-Identifier: Apache-2.0
//! The types of messages that a program publishes.

use std::sync::Arc;
use tautline_gateway::Topic;
use tautline_gateway::types::Schema;
use tautline_gateway::types::definition::{DefinitionError, dialect_of};
use tautline_gateway::types::hash::type_hash;

/// The type of a topic's messages. Between programs, a name is enough. Peers with a ROS also need
/// the definition: their nodes compare the hash that follows from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageType {
    name: String,
    hash: String,
    definition: Arc<str>,
}

impl MessageType {
    /// Returns a type of a ROS with its definition: the text of its `.msg` file, followed by the
    /// texts of all nested types, as in a connection header of ROS 1. The form of the name shows
    /// the ROS: `std_msgs/String` is a type of ROS 1, `std_msgs/msg/String` one of ROS 2.
    pub fn of_ros(name: &str, definition: &str) -> Result<Self, DefinitionError> {
        let msg = Schema::parse(name, definition, dialect_of(name))?;
        Ok(Self { name: name.into(), hash: type_hash(&msg), definition: msg.to_text().into() })
    }

    /// Returns the name of the type.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether a topic has this type.
    pub(super) fn matches_topic(&self, topic: &Topic) -> bool {
        let Topic { type_name, type_hash, definition, .. } = topic;
        (&self.name, &self.hash, &self.definition) == (type_name, type_hash, definition)
    }

    /// Returns the topic of this name and type.
    pub(super) fn topic(&self, name: &str) -> Topic {
        Topic {
            name: name.to_owned(),
            type_name: self.name.clone(),
            type_hash: self.hash.clone(),
            definition: self.definition.clone(),
            qos: tautline_gateway::Qos::default(),
        }
    }
}

/// Returns a type without a definition, described by its name alone.
impl From<&str> for MessageType {
    fn from(name: &str) -> Self {
        Self { name: name.into(), hash: String::new(), definition: "".into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_of_a_type_follows_from_its_definition() {
        let text = MessageType::of_ros("std_msgs/String", "string data").unwrap().topic("/a");
        assert_eq!(text.type_hash, "992ce8a1687cec8c8bd883ec73ca41d1");
        let text = MessageType::of_ros("std_msgs/msg/String", "string data").unwrap().topic("/a");
        assert!(text.type_hash.starts_with("RIHS01_"), "{}", text.type_hash);
        assert!(MessageType::of_ros("std_msgs/String", "strong data").is_err());
        assert_eq!(MessageType::from("example/Text").topic("/a").type_hash, "");
    }
}
