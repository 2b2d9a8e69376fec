// SPDX-License-Identifier: Apache-2.0
//! The publishers of this machine. The discovery thread adds and removes them.

use super::{names, qos};
use crate::Class;
use crate::log_limit::log_limited;
use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use tautline_dds::{DiscoveryEvent, Guid};

/// The publishers of this machine. The discovery thread adds one before its first message can be
/// read.
#[derive(Clone, Default)]
pub struct KnownWriters(Arc<RwLock<HashMap<Guid, Writer>>>);

/// A publisher of this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writer {
    /// A publisher of a Tautline node. The messages are not carried.
    OfTautline,
    /// A publisher of a local node: the class and the lifespan that the publisher offers.
    Local(Class, Option<Duration>),
}

/// Maximum number of tracked writers; messages of further writers are not read.
pub const MAX_WRITERS: usize = 65_536;

impl KnownWriters {
    pub fn on_event(&self, event: &DiscoveryEvent) {
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        match event {
            DiscoveryEvent::Writer(writer) => {
                if all.len() >= MAX_WRITERS && !all.contains_key(&writer.guid) {
                    log_limited!(warn, {}, "more than {MAX_WRITERS} publishers on this machine");
                    return;
                }
                let known = match names::is_of_tautline(&writer.qos.user_data) {
                    true => Writer::OfTautline,
                    false => {
                        let offered = qos::offered_qos(&writer.qos);
                        Writer::Local(offered.class(), offered.lifespan)
                    }
                };
                all.insert(writer.guid, known);
            }
            DiscoveryEvent::WriterGone { guid } => drop(all.remove(guid)),
            _ => {}
        }
    }

    pub fn get(&self, writer: &Guid) -> Option<Writer> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(writer).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tautline_dds::{Endpoint, Qos as Dds};

    fn guid(number: usize) -> Guid {
        let mut guid = Guid::default();
        guid[..8].copy_from_slice(&number.to_be_bytes());
        guid
    }

    #[test]
    fn writers_are_tracked_until_they_leave_within_a_limit() {
        let writers = KnownWriters::default();
        let writer = |number: usize, user_data: Vec<u8>| {
            DiscoveryEvent::Writer(Endpoint {
                guid: guid(number),
                topic: "rt/scan".into(),
                type_name: String::new(),
                keyless: true,
                qos: Dds { user_data, ..Dds::default() },
            })
        };
        let ours = || names::endpoint_user_data("", "base").into_bytes();
        writers.on_event(&writer(0, Vec::new()));
        let class = Class { transient_local: false, reliable: true };
        assert_eq!(writers.get(&guid(0)), Some(Writer::Local(class, None)));
        for number in 1..=MAX_WRITERS {
            writers.on_event(&writer(number, ours()));
        }
        assert_eq!(writers.get(&guid(1)), Some(Writer::OfTautline));
        assert_eq!(writers.get(&guid(MAX_WRITERS)), None);
        writers.on_event(&DiscoveryEvent::WriterGone { guid: guid(1) });
        writers.on_event(&writer(MAX_WRITERS, ours()));
        assert!(writers.get(&guid(1)).is_none() && writers.get(&guid(MAX_WRITERS)).is_some());
    }
}
