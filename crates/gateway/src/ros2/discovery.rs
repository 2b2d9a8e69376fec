// SPDX-License-Identifier: Apache-2.0
//! Who publishes and who listens in the domain, and what follows for each topic. Pure.
//!
//! Endpoints of Tautline, ours and those of other nodes on this machine, are told apart by
//! their user data and count for nothing: what Tautline publishes, Tautline does not carry.

use super::conflict::Conflict;
use super::names::{self, Meaning};
use super::qos;
use crate::Qos;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use tautline_dds::{Discovery, Endpoint, Guid};

/// Endpoints that are remembered; those found beyond it are counted and left out.
const MAX_ENDPOINTS: usize = 16_384;

/// Everyone in the domain who is not Tautline.
#[derive(Debug, Default)]
pub struct Domain {
    endpoints: HashMap<Guid, Known>,
    topics: BTreeMap<String, Topic>,
    /// Endpoints left out, over [`MAX_ENDPOINTS`].
    pub left_out: u64,
}

/// A reader or writer of a topic.
#[derive(Debug)]
struct Known {
    topic: String,
    /// As DDS has it.
    type_name: String,
    hash: String,
    qos: Qos,
}

#[derive(Debug, Default)]
struct Topic {
    writers: BTreeSet<Guid>,
    readers: BTreeSet<Guid>,
}

/// What publishers of a topic offer.
#[derive(Debug, Clone, PartialEq)]
pub struct Offer {
    /// As ROS 2 has it (`sensor_msgs/msg/LaserScan`).
    pub type_name: String,
    /// `RIHS01_...`; empty where none of them tells it.
    pub hash: String,
    /// All that any of them offers.
    pub united: Qos,
    /// What each of them offers.
    pub each: Vec<Qos>,
    /// Types of other publishers, which are not carried.
    pub other_types: Vec<String>,
}

/// What an event changed.
#[derive(Debug, PartialEq)]
pub enum Change {
    /// Nothing that matters here.
    Nothing,
    /// Who publishes the topic, or listens.
    Topic(String),
    /// One that published the topic has left.
    Gone(String, Guid),
}

impl Domain {
    /// Takes in one event.
    pub fn take(&mut self, event: Discovery) -> Change {
        match event {
            Discovery::Writer(endpoint) => self.enter(endpoint, true),
            Discovery::Reader(endpoint) => self.enter(endpoint, false),
            Discovery::WriterGone { guid } => match self.remove(guid) {
                Some(topic) => Change::Gone(topic, guid),
                None => Change::Nothing,
            },
            Discovery::ReaderGone { guid } => {
                self.remove(guid).map_or(Change::Nothing, Change::Topic)
            }
        }
    }

    fn enter(&mut self, endpoint: Endpoint, writes: bool) -> Change {
        let Some(Meaning::Topic(topic)) = Meaning::of(&endpoint.topic) else {
            return Change::Nothing;
        };
        if !names::counts(&endpoint) {
            return Change::Nothing;
        }
        if self.endpoints.len() >= MAX_ENDPOINTS && !self.endpoints.contains_key(&endpoint.guid) {
            self.left_out += 1;
            return Change::Nothing;
        }
        self.remove(endpoint.guid);
        let known = Known {
            topic: topic.clone(),
            hash: names::type_hash(&endpoint.qos.user_data).unwrap_or_default().to_owned(),
            qos: qos::offered(&endpoint.qos),
            type_name: endpoint.type_name,
        };
        self.endpoints.insert(endpoint.guid, known);
        let state = self.topics.entry(topic.clone()).or_default();
        let side = if writes { &mut state.writers } else { &mut state.readers };
        side.insert(endpoint.guid);
        Change::Topic(topic)
    }

    fn remove(&mut self, guid: Guid) -> Option<String> {
        let gone = self.endpoints.remove(&guid)?;
        let state = self.topics.get_mut(&gone.topic)?;
        state.writers.remove(&guid);
        state.readers.remove(&guid);
        if state.writers.is_empty() && state.readers.is_empty() {
            self.topics.remove(&gone.topic);
        }
        Some(gone.topic)
    }

    fn known<'a>(&'a self, guids: &'a BTreeSet<Guid>) -> impl Iterator<Item = &'a Known> {
        guids.iter().filter_map(|guid| self.endpoints.get(guid))
    }

    /// All topics that somebody publishes or listens to.
    pub fn topics(&self) -> impl Iterator<Item = &str> {
        self.topics.keys().map(String::as_str)
    }

    /// What is published on a topic. Of several types the one that most publishers have.
    pub fn offer(&self, topic: &str) -> Option<Offer> {
        let state = self.topics.get(topic)?;
        let mut types = BTreeMap::<&str, Vec<&Known>>::new();
        for writer in self.known(&state.writers) {
            types.entry(&writer.type_name).or_default().push(writer);
        }
        let named = |dds: &str| names::ros_type(dds);
        let (dds_name, writers) = types
            .iter()
            .filter(|(dds_name, _)| named(dds_name).is_some())
            .max_by_key(|(dds_name, writers)| (writers.len(), std::cmp::Reverse(**dds_name)))?;
        let each: Vec<Qos> = writers.iter().map(|writer| writer.qos).collect();
        let hashes = writers.iter().map(|writer| &writer.hash);
        Some(Offer {
            type_name: named(dds_name)?,
            hash: hashes.max().cloned().unwrap_or_default(),
            united: each.iter().copied().reduce(Qos::united)?,
            each,
            other_types: types
                .keys()
                .filter(|other| *other != dds_name)
                .map(|t| (*t).into())
                .collect(),
        })
    }

    /// Whether anyone listens to a topic of this type (as DDS has it).
    pub fn is_wanted(&self, topic: &str, dds_type: &str) -> bool {
        let state = self.topics.get(topic);
        state.is_some_and(|it| self.known(&it.readers).any(|reader| reader.type_name == dds_type))
    }

    /// What of the topic's endpoints a publisher of this type (as DDS has it) and hash would
    /// mislead or not reach.
    pub fn conflict(&self, topic: &str, dds_type: &str, hash: &str) -> Option<Conflict> {
        let state = self.topics.get(topic)?;
        let all = self.known(&state.writers).chain(self.known(&state.readers));
        let conflicts = all.filter_map(|other| {
            let name = names::ros_type(&other.type_name).unwrap_or_else(|| other.type_name.clone());
            Conflict::with(name, &other.hash, other.type_name == dds_type, hash)
        });
        conflicts.max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tautline_dds::Qos as Dds;

    const SCAN: &str = "sensor_msgs::msg::dds_::LaserScan_";
    const TEXT: &str = "std_msgs::msg::dds_::String_";

    fn endpoint(number: u32, topic: &str, type_name: &str) -> Endpoint {
        let mut guid = [0; 16];
        guid[..4].copy_from_slice(&number.to_be_bytes());
        Endpoint {
            guid,
            topic: topic.into(),
            type_name: type_name.into(),
            keyless: true,
            qos: Dds::default(),
        }
    }

    fn topic(name: &str) -> Change {
        Change::Topic(name.into())
    }

    #[test]
    fn a_topic_is_offered_from_its_first_publisher_to_its_last() {
        let mut domain = Domain::default();
        let (first, second) = (endpoint(1, "rt/scan", SCAN), endpoint(2, "rt/scan", SCAN));
        assert_eq!(domain.take(Discovery::Writer(first.clone())), topic("/scan"));
        domain.take(Discovery::Writer(second.clone()));
        let offer = domain.offer("/scan").unwrap();
        assert_eq!((offer.type_name.as_str(), offer.each.len()), ("sensor_msgs/msg/LaserScan", 2));
        let gone = |guid| Discovery::WriterGone { guid };
        assert_eq!(domain.take(gone(first.guid)), Change::Gone("/scan".into(), first.guid));
        assert!(domain.offer("/scan").is_some());
        domain.take(gone(second.guid));
        assert_eq!(domain.offer("/scan"), None);
        assert_eq!(domain.take(gone(second.guid)), Change::Nothing);
    }

    #[test]
    fn what_tautline_or_another_kind_of_program_publishes_does_not_count() {
        let mut domain = Domain::default();
        let mut marked = endpoint(1, "rt/scan", SCAN);
        marked.qos.user_data = names::endpoint_user_data("", "base").into_bytes();
        let keyed = Endpoint { keyless: false, ..endpoint(2, "rt/scan", SCAN) };
        for other in [marked, keyed, endpoint(3, "Square", "ShapeType")] {
            assert_eq!(domain.take(Discovery::Writer(other)), Change::Nothing);
        }
        assert_eq!(domain.offer("/scan"), None);
        domain.take(Discovery::Writer(endpoint(4, "rt/odd", "HelloWorld")));
        assert_eq!(domain.offer("/odd"), None, "no type of ROS 2");
    }

    #[test]
    fn of_two_types_the_commoner_is_offered_and_the_other_named() {
        let mut domain = Domain::default();
        for (number, type_name) in [(1, TEXT), (2, SCAN), (3, SCAN)] {
            domain.take(Discovery::Writer(endpoint(number, "rt/x", type_name)));
        }
        let offer = domain.offer("/x").unwrap();
        assert_eq!(offer.type_name, "sensor_msgs/msg/LaserScan");
        assert_eq!(offer.other_types, [TEXT]);
        let other = Conflict::Type("std_msgs/msg/String".into());
        assert_eq!(domain.conflict("/x", SCAN, ""), Some(other));
        assert_eq!(domain.conflict("/y", SCAN, ""), None);
    }

    #[test]
    fn another_version_of_a_type_is_told_from_a_type_whose_name_goes_on() {
        let mut domain = Domain::default();
        let longer = "std_msgs::msg::dds_::StringX_";
        domain.take(Discovery::Reader(endpoint(1, "rt/x", longer)));
        let other = Conflict::Type("std_msgs/msg/StringX".into());
        assert!(!other.is_misread());
        let hash = |digit: &str| format!("RIHS01_{}", digit.repeat(64));
        assert_eq!(domain.conflict("/x", TEXT, &hash("b")), Some(other));
        for (number, digit) in [(0, "a"), (2, "b")] {
            let mut version = endpoint(number, "rt/x", TEXT);
            version.qos.user_data = format!("typehash={};", hash(digit)).into_bytes();
            domain.take(Discovery::Reader(version));
        }
        // The worst is told, whichever was found first.
        let version = domain.conflict("/x", TEXT, &hash("b")).unwrap();
        assert!(version.is_misread());
        assert_eq!(version.to_string(), format!("std_msgs/msg/String ({})", hash("a")));
    }

    #[test]
    fn readers_of_the_type_want_a_topic() {
        let mut domain = Domain::default();
        let reader = endpoint(1, "rt/scan", SCAN);
        domain.take(Discovery::Reader(reader.clone()));
        assert!(domain.is_wanted("/scan", SCAN) && !domain.is_wanted("/scan", TEXT));
        assert_eq!(domain.offer("/scan"), None);
        assert_eq!(domain.take(Discovery::ReaderGone { guid: reader.guid }), topic("/scan"));
        assert!(!domain.is_wanted("/scan", SCAN));
    }

    #[test]
    fn ten_thousand_endpoints_are_held_and_a_bound_is_kept() {
        let mut domain = Domain::default();
        for number in 0..MAX_ENDPOINTS as u32 + 10 {
            let name = format!("rt/t{}", number % 1000);
            domain.take(Discovery::Writer(endpoint(number, &name, TEXT)));
        }
        assert_eq!((domain.endpoints.len(), domain.left_out), (MAX_ENDPOINTS, 10));
        // One that is known may change still.
        assert_eq!(domain.take(Discovery::Writer(endpoint(1, "rt/other", TEXT))), topic("/other"));
    }
}
