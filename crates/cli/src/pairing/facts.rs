// SPDX-License-Identifier: Apache-2.0
//! What the two ends say about themselves, and the other sealed messages, as JSON. All of it comes
//! from another machine: [`Facts::check`] decides whether it may be used.

use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use tautline::config::MAX_TOPIC_RULES;
use tautline::config::kind::is_node_name;
use tautline_gateway::names::check_peer_name;
use tautline_proto::PublicKey;

/// Maximum number of topics that one end lists: a file has room for the rules of two robots.
pub const MAX_LISTED: usize = MAX_TOPIC_RULES / 2;
/// Maximum number of addresses that one end lists.
pub const MAX_ADDRESSES: usize = 32;
/// Maximum bytes of the name of a topic, service or type.
pub const MAX_NAME_BYTES: usize = 255;
/// Maximum bytes of other texts.
const MAX_TEXT_BYTES: usize = 400;

/// A sealed message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Message {
    /// What the sender says about itself.
    Facts(Box<Facts>),
    /// A person at the sender has not answered yet.
    Waiting,
    /// The sender agrees, and its new files are ready to be put in place.
    Ready,
    /// The base has both agreements: the robot puts its files in place.
    Commit,
    /// The sender has put its files in place.
    Written,
    /// The sender ends the pairing without writing.
    Cancel {
        /// The reason, for a person.
        reason: String,
    },
}

/// The ROS of one end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ros {
    /// ROS 1.
    Ros1 {
        /// URI of the master.
        master: String,
    },
    /// ROS 2.
    Ros2 {
        /// The domain.
        domain: u32,
    },
}

impl Ros {
    /// Describes the ROS in words.
    pub fn in_words(&self) -> String {
        match self {
            Self::Ros1 { master } => format!("ROS 1, master {master}"),
            Self::Ros2 { domain } => format!("ROS 2, domain {domain}"),
        }
    }
}

/// A topic of one end, and what the nodes there do with it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopicFact {
    /// The name.
    pub name: String,
    /// The type in the notation of the ROS of this end.
    #[serde(rename = "type")]
    pub type_name: String,
    /// Whether a node publishes it.
    pub published: bool,
    /// Whether a node subscribes to it.
    pub subscribed: bool,
}

/// What one end says about itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// Name of the node.
    pub name: String,
    /// The public key.
    pub key: String,
    /// UDP port on which its daemon listens.
    pub port: u16,
    /// The global addresses.
    pub addresses: Vec<IpAddr>,
    /// Version of Tautline.
    pub version: String,
    /// Version of the wire format of its daemon.
    pub wire: u8,
    /// The ROS; `None` if none was found.
    pub ros: Option<Ros>,
    /// Topics in its ROS; at a base, those that nodes publish and to which nodes of the robot subscribe.
    pub topics: Vec<TopicFact>,
    /// Number of services in its ROS.
    pub services: usize,
    /// Number of topics that were left out because there were too many.
    pub left_out: usize,
    /// At a base: topics that its file already sends to other peers, by name.
    pub taken: Vec<String>,
    /// Whether the sender writes nothing (`--dry-run`).
    pub dry_run: bool,
}

/// Facts that may not be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the other machine's {what} cannot be used: found {found}; allowed: {allowed}")]
pub struct InvalidFacts {
    what: &'static str,
    found: String,
    allowed: String,
}

impl Facts {
    /// Sets `topics` to the first [`MAX_LISTED`] of these, and `left_out` to the number of the others.
    pub fn list(&mut self, mut topics: Vec<TopicFact>) {
        self.left_out = topics.len().saturating_sub(MAX_LISTED);
        topics.truncate(MAX_LISTED);
        self.topics = topics;
    }

    /// Checks that the facts can be used; returns the public key.
    pub fn check(&self) -> Result<PublicKey, InvalidFacts> {
        let bad = |what, found: &str, allowed: &str| InvalidFacts {
            what,
            found: format!("'{}'", tautline_gateway::plain::plain(found, 80)),
            allowed: allowed.into(),
        };
        if !is_node_name(&self.name) {
            return Err(bad("name", &self.name, "1 to 63 letters, digits, '_' or '-'"));
        }
        let key: Option<PublicKey> = self.key.parse().ok().filter(PublicKey::is_usable);
        let key = key.ok_or_else(|| bad("public key", &self.key, "the base64 of a public key"))?;
        if self.port == 0 {
            return Err(bad("port", "0", "1 to 65535"));
        }
        let (topics, taken) = (self.topics.len(), self.taken.len());
        if topics.max(taken) > MAX_LISTED {
            let found = format!("{topics} topics, {taken} of them sent to other peers");
            return Err(bad("list", &found, &format!("{MAX_LISTED} of each")));
        }
        if self.addresses.len() > MAX_ADDRESSES {
            let found = format!("{} addresses", self.addresses.len());
            return Err(bad("list", &found, &format!("{MAX_ADDRESSES}")));
        }
        let names = self.topics.iter().map(|it| &it.name).chain(&self.taken);
        if let Some(wrong) = names.into_iter().find(|name| !is_name(name)) {
            return Err(bad("name of a topic", wrong, "an absolute ROS name"));
        }
        if let Some(wrong) = self.topics.iter().find(|it| !is_type(&it.type_name)) {
            return Err(bad("type of a topic", &wrong.type_name, "package/Type"));
        }
        let master = match &self.ros {
            Some(Ros::Ros1 { master }) => master.as_str(),
            _ => "",
        };
        if let Some(wrong) = [&*self.version, master].iter().find(|text| !is_text(text)) {
            return Err(bad("version or ROS master", wrong, "printable ASCII"));
        }
        Ok(key)
    }
}

/// Whether the files may contain a name.
pub fn is_name(name: &str) -> bool {
    name.len() <= MAX_NAME_BYTES && check_peer_name(name).is_ok()
}

/// Whether the files may contain the name of a type.
pub fn is_type(name: &str) -> bool {
    let is_part = |part: &str| {
        let letter = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        !part.is_empty() && part.bytes().all(letter)
    };
    let parts: Vec<&str> = name.split('/').collect();
    name.len() <= MAX_NAME_BYTES && matches!(parts.len(), 2 | 3) && parts.into_iter().all(is_part)
}

fn is_text(text: &str) -> bool {
    text.len() <= MAX_TEXT_BYTES && text.bytes().all(|byte| (b' '..=b'~').contains(&byte))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use tautline_proto::SecretKey;

    /// Facts of a node with topics `/name type ps`: `p` for published, `s` for subscribed.
    pub fn facts(name: &str, topics: &[&str]) -> Facts {
        let topic = |line: &&str| {
            let words: Vec<&str> = line.split(' ').collect();
            let [published, subscribed] = ['p', 's'].map(|letter| words[2].contains(letter));
            let (name, type_name) = (words[0].into(), words[1].into());
            TopicFact { name, type_name, published, subscribed }
        };
        Facts {
            name: name.into(),
            key: SecretKey::insecure(&format!("a test of {name}")).public().to_string(),
            port: 18470,
            addresses: vec!["10.0.0.1".parse().unwrap()],
            version: "0.1.0".into(),
            wire: 0,
            ros: Some(Ros::Ros1 { master: "http://localhost:11311".into() }),
            topics: topics.iter().map(topic).collect(),
            services: 1,
            left_out: 0,
            taken: Vec::new(),
            dry_run: false,
        }
    }

    #[test]
    fn facts_are_read_as_written() {
        let message = Message::Facts(Box::new(facts("robot1", &["/scan sensor_msgs/LaserScan p"])));
        let text = serde_json::to_string(&message).unwrap();
        assert_eq!(serde_json::from_str::<Message>(&text).unwrap(), message);
        assert!(text.contains(r#""type":"sensor_msgs/LaserScan""#), "{text}");
    }

    #[test]
    fn long_facts_are_truncated_to_a_frame_and_counted() {
        let mut facts = facts("robot1", &[]);
        let long = |number: usize| format!("/{number:05}{}", "x".repeat(MAX_NAME_BYTES - 6));
        let topic = |number| TopicFact {
            name: long(number),
            type_name: format!("a/{}", "x".repeat(MAX_NAME_BYTES - 2)),
            published: false,
            subscribed: false,
        };
        facts.list((0..3000).map(topic).collect());
        assert_eq!((facts.topics.len(), facts.left_out), (MAX_LISTED, 3000 - MAX_LISTED));
        facts.taken = (0..MAX_LISTED).map(long).collect();
        facts.addresses = vec!["1111::2222:3333:4444:5555".parse().unwrap(); MAX_ADDRESSES];
        facts.version = "x".repeat(MAX_TEXT_BYTES);
        facts.ros = Some(Ros::Ros1 { master: "\"".repeat(MAX_TEXT_BYTES) });
        facts.check().unwrap();
        let text = serde_json::to_string(&Message::Facts(Box::new(facts))).unwrap();
        assert!(text.len() < super::super::MAX_SEALED - 1024, "{}", text.len());
        // JSON makes these longer.
        assert!(["/\"", "/\\", "/\u{7f}", "/\n"].iter().all(|it| !is_name(it)));
    }

    #[test]
    fn facts_that_could_change_a_file_are_refused_by_name() {
        let good = facts("robot1", &["/scan sensor_msgs/msg/LaserScan p"]);
        assert_eq!(good.check().unwrap().to_string(), good.key);
        type Change = fn(&mut Facts);
        let cases: [(&str, Change); 9] = [
            ("name", |it| it.name = "robot1:\n  evil".into()),
            ("public key", |it| it.key = "AAAA".into()),
            ("public key", |it| it.key = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=".into()),
            ("port", |it| it.port = 0),
            ("name of a topic", |it| it.topics[0].name = "/scan: {}\n/x".into()),
            ("name of a topic", |it| it.taken = vec!["/**".into()]),
            ("type of a topic", |it| it.topics[0].type_name = "any }".into()),
            ("list", |it| it.taken = vec!["/a".into(); MAX_LISTED + 1]),
            ("master", |it| it.ros = Some(Ros::Ros1 { master: "a\u{1b}[2J".into() })),
        ];
        for (what, change) in cases {
            let mut bad = good.clone();
            change(&mut bad);
            let error = bad.check().unwrap_err().to_string();
            assert!(error.contains(what) && !error.contains('\n'), "{error}");
        }
    }
}
