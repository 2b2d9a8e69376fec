// SPDX-License-Identifier: Apache-2.0
//! Topics published to local subscribers.

use super::{Actor, NotAdvertised, Visitor};
use crate::ros1::header::{Header, TAUTLINE_FIELD};
use crate::ros1::publication::{self, Phase, Publication, refusal};
use crate::ros1::shown;
use crate::sparing::Sparing;
use crate::{Event, Source, Topic};
use bytes::Bytes;
use std::time::Instant;

impl Actor {
    pub(super) fn advertise(&mut self, topic: Topic) {
        let name = topic.name.clone();
        if let Some(publication) = self.publications.get_mut(&name) {
            let same = publication.topic.type_name == topic.type_name
                && publication.topic.type_hash == topic.type_hash;
            if same {
                publication.update(topic);
                return;
            }
            self.unadvertise(&name);
        }
        let drops = self.setup.shared.drops.of(&name);
        let publication = Publication::new(topic, self.serial(), drops);
        self.publications.insert(name, publication);
        self.poll();
    }

    pub(super) fn unadvertise(&mut self, topic: &str) {
        let Some(publication) = self.publications.remove(topic) else { return };
        if !publication.subscribers.is_empty() {
            self.emit(Event::Wanted { topic: topic.into(), wanted: false });
        }
        if publication.phase == Phase::Registered || publication.busy {
            self.unregister_publisher(topic);
        }
        self.setup.shared.health().conflicts.remove(topic);
        self.setup.shared.drops.leave(topic);
    }

    pub(super) fn advertised(
        &mut self,
        topic: &str,
        serial: u64,
        outcome: Result<(), NotAdvertised>,
    ) {
        let Some(publication) =
            self.publications.get_mut(topic).filter(|found| found.serial == serial)
        else {
            return;
        };
        publication.busy = false;
        match outcome {
            Ok(()) => {
                publication.phase = Phase::Registered;
                publication.cleared = true;
                publication.turn.accepted();
                self.setup.shared.health().conflicts.remove(topic);
                // More may wait than were registered at once.
                let mut all = self.publications.values();
                if all.any(|found| found.waits() && !found.turn.was_rejected()) {
                    self.poll();
                }
            }
            Err(NotAdvertised::Conflict(reason)) => {
                publication.turn.rejected(Instant::now());
                let phase = Phase::Conflict(reason.clone());
                if publication.phase != phase {
                    publication.phase = phase;
                    let mut health = self.setup.shared.health();
                    health.conflicts.insert(topic.into(), reason.clone());
                    drop(health);
                    self.emit(Event::Refused { topic: topic.into(), reason });
                }
            }
            Err(NotAdvertised::Master(error)) => {
                publication.turn.rejected(Instant::now());
                static SPARING: Sparing = Sparing::new();
                if let Some(left_out) = SPARING.next() {
                    tracing::warn!(topic, %error, left_out, "advertising at the ROS master");
                }
            }
        }
    }

    pub(super) fn publish(&mut self, topic: &str, source: Source, payload: Bytes) {
        self.setup.shared.backlog.release(payload.len());
        if let Some(publication) = self.publications.get_mut(topic) {
            publication.publish(source, payload);
        }
    }

    pub(super) fn subscriber(&mut self, visitor: Visitor, header: &Header) {
        let id = self.serial();
        let identity = self.setup.identity.clone();
        let name = header.get("topic").unwrap_or_default();
        let published = self
            .publications
            .get_mut(name)
            .filter(|found| !matches!(found.phase, Phase::Conflict(_)));
        let Some(publication) = published else {
            let name = shown(name);
            let reason = format!("{} does not publish '{name}'", identity.node_name);
            tokio::spawn(publication::refuse(visitor, reason, identity));
            return;
        };
        let caller = header.get("callerid").unwrap_or_default();
        let fit = refusal(header, &publication.topic).map_or(Ok(()), Err);
        let room = |()| publication.make_room(visitor.peer, caller, Instant::now());
        if let Err(reason) = fit.and_then(room) {
            if header.get(TAUTLINE_FIELD).is_none() && publication.tells(&reason) {
                self.emit(Event::Refused { topic: name.into(), reason: reason.clone() });
            }
            tokio::spawn(publication::refuse(visitor, reason, identity));
            return;
        }
        publication.add_subscriber(id, visitor, caller, &identity, self.notes.clone());
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
