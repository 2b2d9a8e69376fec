// SPDX-License-Identifier: Apache-2.0
//! Topics published to local subscribers.

use super::Actor;
use crate::deliveries::Subscriber;
use crate::ros1::admission::Admitted;
use crate::ros1::handshake::refuse;
use crate::ros1::header::{Header, TAUTLINE_FIELD};
use crate::ros1::master::Role;
use crate::ros1::note::Note;
use crate::ros1::publication::Publication;
use crate::ros1::shown::shown;
use crate::{Event, Origin, Source, Topic, identity};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tokio::time::timeout;

/// Time limit of the master to tell the address of a subscriber, which gets no latched messages
/// before.
const IDENTIFY_TIMEOUT: Duration = Duration::from_secs(2);

impl Actor {
    pub(super) fn advertise(&mut self, topic: Topic) {
        let name = topic.name.clone();
        if let Some(publication) = self.publications.get_mut(&name) {
            if publication.has_type_of(&topic) {
                publication.update(topic);
                return;
            }
            self.unadvertise(&name);
        }
        let drops = self.setup.shared.drops.count(&name);
        self.add_registration(Role::Publisher, &name);
        let mut publication = Publication::new(topic, drops, self.deliveries.clone());
        // Connections for another type close here.
        let ended = self.ended_publications.remove(&name);
        if let Some(ended) = ended.filter(|it| it.has_type_of(&publication.topic)) {
            publication.subscribers = ended.subscribers;
            self.emit(Event::Wanted { topic: name.clone(), wanted: true });
        }
        self.publications.insert(name, publication);
        self.poll();
    }

    pub(super) fn unadvertise(&mut self, topic: &str) {
        let Some(mut publication) = self.publications.remove(topic) else { return };
        if !publication.subscribers.is_empty() {
            self.emit(Event::Wanted { topic: topic.into(), wanted: false });
            publication.forget(None);
            self.ended_publications.insert(topic.into(), publication);
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
        self.identify(id, name, caller);
    }

    /// Asks the master for the address of a subscriber's process: another process may have its name
    /// later.
    fn identify(&self, id: u64, topic: &str, caller: &str) {
        let (master, caller) = (self.prober.master.clone(), caller.to_owned());
        let topic = topic.to_owned();
        self.spawn(async move {
            let uri = match timeout(IDENTIFY_TIMEOUT, master.lookup_node(&caller)).await {
                Ok(Ok(uri)) => Some(uri),
                // The master is away, or does not know it. It counts as a new process.
                Ok(Err(_)) | Err(_) => None,
            };
            let unknown = uri.is_none().then(|| (std::process::id(), id));
            let identity = identity(&(caller, uri, unknown)).into();
            Note::Identified { topic, id, identity }
        });
    }

    pub(super) fn identified(&mut self, topic: &str, id: u64, identity: Subscriber) {
        let all = [&mut self.publications, &mut self.ended_publications];
        let Some(publication) = find(all, topic) else { return };
        let Some(caller) = publication.subscribers.get(&id).map(|it| &it.caller) else { return };
        let at_start = self.subscribed_at_start.as_ref().and_then(|it| it.get(topic));
        if !at_start.is_some_and(|nodes| nodes.contains(caller)) {
            // A node that subscribed after our start has nothing of what it got before.
            self.deliveries.forget(topic, identity);
        }
        publication.identified(id, identity);
    }

    pub(super) fn subscriber_left(&mut self, topic: &str, id: u64) {
        let all = [&mut self.publications, &mut self.ended_publications];
        let Some(publication) = find(all, topic) else { return };
        let Some(left) = publication.subscribers.remove(&id) else { return };
        publication.forget_deliveries(&left);
        if publication.subscribers.is_empty() && self.ended_publications.remove(topic).is_none() {
            self.emit(Event::Wanted { topic: topic.into(), wanted: false });
        }
    }
}

/// The publication of a topic, which is in one of the maps.
fn find<'a>(
    all: [&'a mut BTreeMap<String, Publication>; 2],
    topic: &str,
) -> Option<&'a mut Publication> {
    all.into_iter().find_map(|publications| publications.get_mut(topic))
}
