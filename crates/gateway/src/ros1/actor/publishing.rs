// SPDX-License-Identifier: Apache-2.0
//! Topics published to local subscribers.

use super::{Actor, Admitted};
use crate::ros1::header::{Header, TAUTLINE_FIELD};
use crate::ros1::master::Role;
use crate::ros1::publication::{Publication, refuse};
use crate::ros1::shown;
use crate::{Event, Origin, Source, Topic};
use bytes::Bytes;
use std::time::Instant;

impl Actor {
    pub(super) fn advertise(&mut self, topic: Topic) {
        let name = topic.name.clone();
        if let Some(publication) = self.publications.get_mut(&name) {
            let is_same_type = publication.topic.type_name == topic.type_name
                && publication.topic.type_hash == topic.type_hash;
            if is_same_type {
                publication.update(topic);
                return;
            }
            self.unadvertise(&name);
        }
        let drops = self.setup.shared.drops.count(&name);
        self.add_registration(Role::Publisher, &name);
        self.publications.insert(name, Publication::new(topic, drops));
        self.poll();
    }

    pub(super) fn unadvertise(&mut self, topic: &str) {
        let Some(publication) = self.publications.remove(topic) else { return };
        if !publication.subscribers.is_empty() {
            self.emit(Event::Wanted { topic: topic.into(), wanted: false });
        }
        self.remove_registration(Role::Publisher, topic);
        self.setup.shared.troubles.clear(topic, "conflict");
        self.setup.shared.drops.release(topic);
    }

    pub(super) fn publish(&mut self, topic: &str, source: Source, payload: Bytes, origin: &Origin) {
        self.setup.shared.backlog.release(payload.len());
        if let Some(publication) = self.publications.get_mut(topic) {
            publication.publish(source, payload, origin);
        }
    }

    pub(super) fn forget(&mut self, topic: &str, source: Option<Source>) {
        if let Some(publication) = self.publications.get_mut(topic) {
            publication.forget(source);
        }
    }

    /// The publication of a topic, unless it is in conflict.
    pub(super) fn published(&mut self, topic: &str) -> Option<&mut Publication> {
        self.publications.get_mut(topic).filter(|found| found.conflict.is_none())
    }

    pub(super) fn add_subscriber(&mut self, connection: Admitted, header: &Header) {
        let id = self.serial();
        let (identity, notes) = (self.setup.identity.clone(), self.notes.clone());
        let name = header.get("topic").unwrap_or_default();
        let Some(publication) = self.published(name) else {
            let reason = format!("{} does not publish '{}'", identity.node_name, shown(name));
            tokio::spawn(refuse(connection, reason, identity));
            return;
        };
        let caller = header.get("callerid").unwrap_or_default();
        let admitted = match publication.refusal(header) {
            Some(reason) => Err(reason),
            None => publication.admit_subscriber(connection.peer, caller, Instant::now()),
        };
        if let Err(reason) = admitted {
            if header.get(TAUTLINE_FIELD).is_none() && publication.should_report(&reason) {
                self.emit(Event::Refused { topic: name.into(), reason: reason.clone() });
            }
            tokio::spawn(refuse(connection, reason, identity));
            return;
        }
        publication.add_subscriber(id, connection, caller, &identity, notes);
        if publication.subscribers.len() == 1 {
            self.emit(Event::Wanted { topic: name.into(), wanted: true });
        }
    }

    pub(super) fn subscriber_left(&mut self, topic: &str, id: u64) {
        let Some(publication) = self.publications.get_mut(topic) else { return };
        let left = publication.subscribers.remove(&id).is_some();
        if left && publication.subscribers.is_empty() {
            self.emit(Event::Wanted { topic: topic.into(), wanted: false });
        }
    }
}
