// SPDX-License-Identifier: Apache-2.0
//! The subscribers of this machine by topic. The discovery thread adds and removes them.

use super::{names, qos};
use crate::lock::lock;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use tautline_dds::{DiscoveryEvent, Guid};

/// Maximum number of tracked subscribers; further subscribers may get a message of a latched topic
/// twice.
const MAX_READERS: usize = 65_536;

#[derive(Clone, Default)]
pub struct KnownReaders(Arc<Mutex<All>>);

#[derive(Default)]
struct All {
    topics: HashMap<Guid, String>,
    /// The GUID of each subscriber, and whether it asks for kept messages.
    by_topic: HashMap<String, BTreeMap<Guid, bool>>,
}

impl KnownReaders {
    pub fn on_event(&self, event: &DiscoveryEvent) {
        let mut all = lock(&self.0);
        match event {
            DiscoveryEvent::Reader(reader)
                if !names::is_of_tautline(&reader.qos.user_data)
                    && all.topics.len() < MAX_READERS =>
            {
                all.topics.insert(reader.guid, reader.topic.clone());
                let is_late_joiner = qos::offered_qos(&reader.qos).transient_local;
                let of_topic = all.by_topic.entry(reader.topic.clone()).or_default();
                of_topic.insert(reader.guid, is_late_joiner);
            }
            DiscoveryEvent::ReaderGone { guid } => {
                let Some(topic) = all.topics.remove(guid) else { return };
                if let Some(readers) = all.by_topic.get_mut(&topic) {
                    readers.remove(guid);
                    if readers.is_empty() {
                        all.by_topic.remove(&topic);
                    }
                }
            }
            _ => {}
        }
    }

    pub fn contains(&self, reader: &Guid) -> bool {
        lock(&self.0).topics.contains_key(reader)
    }

    /// Returns the subscribers of a DDS topic, and whether each asks for kept messages.
    pub fn readers_of_topic(&self, dds_topic: &str) -> BTreeMap<Guid, bool> {
        lock(&self.0).by_topic.get(dds_topic).cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tautline_dds::{Endpoint, Qos as Dds};

    #[test]
    fn local_subscribers_are_known_until_they_leave() {
        let readers = KnownReaders::default();
        let reader = |number, user_data| {
            DiscoveryEvent::Reader(Endpoint {
                guid: [number; 16],
                topic: "rt/map".into(),
                type_name: String::new(),
                keyless: true,
                qos: Dds { user_data, ..Dds::default() },
            })
        };
        readers.on_event(&reader(1, Vec::new()));
        readers.on_event(&reader(2, Vec::new()));
        readers.on_event(&reader(3, names::endpoint_user_data("", "base").into_bytes()));
        assert_eq!(readers.readers_of_topic("rt/map"), [([1; 16], false), ([2; 16], false)].into());
        readers.on_event(&DiscoveryEvent::ReaderGone { guid: [1; 16] });
        assert_eq!(readers.readers_of_topic("rt/map"), [([2; 16], false)].into());
        readers.on_event(&DiscoveryEvent::ReaderGone { guid: [2; 16] });
        assert!(
            readers.readers_of_topic("rt/map").is_empty() && lock(&readers.0).by_topic.is_empty()
        );
    }
}
