// SPDX-License-Identifier: Apache-2.0
//! Publishers and subscribers of the domain, and the resulting offers of topics. Pure.

use super::conflict::Conflict;
use super::endpoints::{Endpoints, Role, TrackedEndpoint};
use super::names;
use crate::Qos;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of tracked endpoints; later endpoints are counted and ignored.
const MAX_ENDPOINTS: usize = 16_384;

/// The combined offer of a topic's publishers.
#[derive(Debug, Clone, PartialEq)]
pub struct Offer {
    /// The ROS 2 type name (`sensor_msgs/msg/LaserScan`).
    pub type_name: String,
    /// `RIHS01_...`; empty if none of them announces it.
    pub hash: String,
    /// The union of their offers.
    pub qos: Qos,
    /// Types of other publishers, which are not carried.
    pub other_types: Vec<String>,
}

impl Endpoints {
    pub fn for_topics() -> Self {
        Self::new(false, MAX_ENDPOINTS)
    }

    fn endpoints_of_topic(
        &self,
        topic: &str,
        role: Role,
    ) -> impl Iterator<Item = &TrackedEndpoint> {
        self.keyless_endpoints(topic, role).map(|(_, known)| known)
    }

    /// The offer of a topic. If publishers have several types, the offer has the type of most
    /// publishers.
    pub fn topic_offer(&self, topic: &str) -> Option<Offer> {
        let mut types = BTreeMap::<&str, Vec<&TrackedEndpoint>>::new();
        for writer in self.endpoints_of_topic(topic, Role::Publisher) {
            types.entry(&writer.type_name).or_default().push(writer);
        }
        let (dds_type, writers) = types
            .iter()
            .filter(|(dds_type, _)| names::ros_type(dds_type).is_some())
            .max_by_key(|(dds_type, writers)| (writers.len(), Reverse(**dds_type)))?;
        let each: Vec<Qos> = writers.iter().map(|writer| writer.qos).collect();
        let hashes = writers.iter().map(|writer| &writer.hash);
        let other_types = types.keys().filter(|other| *other != dds_type);
        Some(Offer {
            type_name: names::ros_type(dds_type)?,
            hash: hashes.max().cloned().unwrap_or_default(),
            qos: Qos::combined_offer(&each)?,
            other_types: other_types.map(|other| (*other).into()).collect(),
        })
    }

    /// Whether a topic has a subscriber of this DDS type.
    pub fn is_wanted(&self, topic: &str, dds_type: &str) -> bool {
        self.endpoints_of_topic(topic, Role::Subscriber).any(|reader| reader.type_name == dds_type)
    }

    /// Reports local publishers (of topics that may be sent) and subscribers (of topics that peers
    /// publish) whose types have a key; empty if there are none.
    pub fn key_trouble(&self, topic: &str, is_sent: bool, is_published: bool) -> String {
        let types = |role, applies: bool| {
            let keyed = self.keyed_endpoints(topic, role).filter(|_| applies);
            let name = |it: &TrackedEndpoint| {
                names::ros_type(&it.type_name).unwrap_or(it.type_name.clone())
            };
            let all: BTreeSet<String> = keyed.map(name).collect();
            all.into_iter().collect::<Vec<_>>().join(", ")
        };
        let has_key = "has a key (@key), and messages with keys are not carried";
        let of_publishers = match types(Role::Publisher, is_sent) {
            all if all.is_empty() => None,
            all => Some(format!("{topic} of type {all} is not sent: its type {has_key}")),
        };
        let of_subscribers = match types(Role::Subscriber, is_published) {
            all if all.is_empty() => None,
            all => Some(format!(
                "subscribers of {topic} with type {all} get nothing from peers: their type {has_key}"
            )),
        };
        of_publishers.into_iter().chain(of_subscribers).collect::<Vec<_>>().join("; ")
    }

    /// The worst conflict of the topic's endpoints with a publisher of this DDS type
    /// and hash.
    pub fn topic_conflict(&self, topic: &str, dds_type: &str, hash: &str) -> Option<Conflict> {
        let all = self
            .endpoints_of_topic(topic, Role::Publisher)
            .chain(self.endpoints_of_topic(topic, Role::Subscriber));
        let conflicts = all.filter_map(|other| {
            let name = names::ros_type(&other.type_name).unwrap_or_else(|| other.type_name.clone());
            Conflict::detect(name, &other.hash, other.type_name == dds_type, hash)
        });
        conflicts.max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tautline_dds::{DiscoveryEvent, Endpoint, Qos as Dds};

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

    fn topic(name: &str) -> Option<String> {
        Some(name.into())
    }

    #[test]
    fn a_topic_is_offered_while_it_has_publishers() {
        let mut domain = Endpoints::for_topics();
        let (first, second) = (endpoint(1, "rt/scan", SCAN), endpoint(2, "rt/scan", SCAN));
        assert_eq!(domain.on_event(&DiscoveryEvent::Writer(first.clone())), topic("/scan"));
        domain.on_event(&DiscoveryEvent::Writer(second.clone()));
        let offer = domain.topic_offer("/scan").unwrap();
        let publishers = domain.endpoints_of_topic("/scan", Role::Publisher).count();
        assert_eq!((offer.type_name.as_str(), publishers), ("sensor_msgs/msg/LaserScan", 2));
        let gone = |guid| DiscoveryEvent::WriterGone { guid };
        assert_eq!(domain.on_event(&gone(first.guid)), topic("/scan"));
        assert!(domain.topic_offer("/scan").is_some());
        domain.on_event(&gone(second.guid));
        assert_eq!(domain.topic_offer("/scan"), None);
        assert_eq!(domain.on_event(&gone(second.guid)), None);
    }

    #[test]
    fn publishers_of_tautline_and_of_other_kinds_of_program_are_ignored() {
        let mut domain = Endpoints::for_topics();
        let mut tautline = endpoint(1, "rt/scan", SCAN);
        tautline.qos.user_data = names::endpoint_user_data("", "base").into_bytes();
        let keyed = Endpoint { keyless: false, ..endpoint(2, "rt/scan", SCAN) };
        for other in [tautline, endpoint(3, "Square", "ShapeType")] {
            assert_eq!(domain.on_event(&DiscoveryEvent::Writer(other)), None);
        }
        assert_eq!(domain.on_event(&DiscoveryEvent::Writer(keyed.clone())), topic("/scan"));
        assert_eq!(domain.topic_offer("/scan"), None);
        let trouble = domain.key_trouble("/scan", true, false);
        assert!(trouble.starts_with("/scan of type sensor_msgs/msg/LaserScan is not sent: its"));
        assert_eq!(domain.key_trouble("/scan", false, true), "");
        domain.on_event(&DiscoveryEvent::WriterGone { guid: keyed.guid });
        domain.on_event(&DiscoveryEvent::Reader(keyed));
        assert!(!domain.is_wanted("/scan", SCAN));
        let trouble = domain.key_trouble("/scan", true, true);
        assert!(
            trouble.starts_with("subscribers of /scan with type sensor_msgs/msg/LaserScan get")
        );
        domain.on_event(&DiscoveryEvent::Writer(endpoint(4, "rt/odd", "HelloWorld")));
        assert_eq!(domain.topic_offer("/odd"), None, "no type of ROS 2");
    }

    #[test]
    fn the_more_common_type_is_offered_and_the_other_reported() {
        let mut domain = Endpoints::for_topics();
        for (number, type_name) in [(1, TEXT), (2, SCAN), (3, SCAN)] {
            domain.on_event(&DiscoveryEvent::Writer(endpoint(number, "rt/x", type_name)));
        }
        let offer = domain.topic_offer("/x").unwrap();
        assert_eq!(offer.type_name, "sensor_msgs/msg/LaserScan");
        assert_eq!(offer.other_types, [TEXT]);
        let other = Conflict::Type("std_msgs/msg/String".into());
        assert_eq!(domain.topic_conflict("/x", SCAN, ""), Some(other));
        assert_eq!(domain.topic_conflict("/y", SCAN, ""), None);
    }

    #[test]
    fn another_version_of_a_type_differs_from_a_type_with_a_longer_name() {
        let mut domain = Endpoints::for_topics();
        let longer = "std_msgs::msg::dds_::StringX_";
        domain.on_event(&DiscoveryEvent::Reader(endpoint(1, "rt/x", longer)));
        let other = Conflict::Type("std_msgs/msg/StringX".into());
        assert!(!other.is_misread());
        let hash = |digit: &str| format!("RIHS01_{}", digit.repeat(64));
        assert_eq!(domain.topic_conflict("/x", TEXT, &hash("b")), Some(other));
        for (number, digit) in [(0, "a"), (2, "b")] {
            let mut version = endpoint(number, "rt/x", TEXT);
            version.qos.user_data = format!("typehash={};", hash(digit)).into_bytes();
            domain.on_event(&DiscoveryEvent::Reader(version));
        }
        // The worst is reported, in any order of discovery.
        let version = domain.topic_conflict("/x", TEXT, &hash("b")).unwrap();
        assert!(version.is_misread());
        assert_eq!(version.to_string(), format!("std_msgs/msg/String ({})", hash("a")));
    }

    #[test]
    fn a_topic_is_wanted_by_readers_of_its_type() {
        let mut domain = Endpoints::for_topics();
        let reader = endpoint(1, "rt/scan", SCAN);
        domain.on_event(&DiscoveryEvent::Reader(reader.clone()));
        assert!(domain.is_wanted("/scan", SCAN) && !domain.is_wanted("/scan", TEXT));
        assert_eq!(domain.topic_offer("/scan"), None);
        assert_eq!(
            domain.on_event(&DiscoveryEvent::ReaderGone { guid: reader.guid }),
            topic("/scan")
        );
        assert!(!domain.is_wanted("/scan", SCAN));
    }

    #[test]
    fn ten_thousand_endpoints_are_tracked_within_a_limit() {
        let mut domain = Endpoints::for_topics();
        for number in 0..MAX_ENDPOINTS as u32 + 10 {
            let name = format!("rt/t{}", number % 1000);
            domain.on_event(&DiscoveryEvent::Writer(endpoint(number, &name, TEXT)));
        }
        assert_eq!((domain.len(), domain.left_out), (MAX_ENDPOINTS, 10));
        // A known endpoint may still change.
        assert_eq!(
            domain.on_event(&DiscoveryEvent::Writer(endpoint(1, "rt/other", TEXT))),
            topic("/other")
        );
    }
}
