// SPDX-License-Identifier: Apache-2.0
//! Topics read from local publishers.

use super::{Actor, Note};
use crate::Event;
use crate::ros1::subscription::{
    Foreign, MAX_PUBLISHERS, MAX_READERS, ReaderContext, ReaderNote, Subscription,
};
use crate::ros1::xmlrpc::CallError;
use crate::sparing::Sparing;
use std::time::Instant;

impl Actor {
    pub(super) fn subscribe(&mut self, topic: String) {
        if self.subscriptions.contains_key(&topic) {
            return;
        }
        let serial = self.serial();
        self.subscriptions.insert(topic.clone(), Subscription::new(serial));
        self.refresh(&topic);
        self.poll();
    }

    pub(super) fn unsubscribe(&mut self, topic: &str) {
        let Some(mut subscription) = self.subscriptions.remove(topic) else { return };
        for uri in subscription.readers.keys() {
            self.discovery.on_released(topic, uri);
        }
        subscription.silence();
        if subscription.registered || subscription.registering {
            self.unregister_subscriber(topic);
        }
    }

    pub(super) fn subscribed(
        &mut self,
        topic: &str,
        serial: u64,
        publishers: Result<Vec<String>, CallError>,
    ) {
        let Some(subscription) =
            self.subscriptions.get_mut(topic).filter(|found| found.serial == serial)
        else {
            return;
        };
        subscription.registering = false;
        match publishers {
            Ok(uris) => {
                subscription.registered = true;
                subscription.turn.accepted();
                subscription.list(uris);
                self.refresh(topic);
                // More may wait than were registered at once.
                let mut all = self.subscriptions.values();
                if all.any(|found| found.waits() && !found.turn.was_rejected()) {
                    self.poll();
                }
            }
            Err(error) => {
                subscription.turn.rejected(Instant::now());
                static SPARING: Sparing = Sparing::new();
                if let Some(left_out) = SPARING.next() {
                    tracing::warn!(topic, %error, left_out, "subscribing at the ROS master");
                }
            }
        }
    }

    pub(super) fn refresh_all(&mut self) {
        let topics: Vec<String> = self.subscriptions.keys().cloned().collect();
        for topic in topics {
            self.refresh(&topic);
        }
    }

    /// Starts readers of publishers that have none, once the topic's type is known.
    pub(super) fn refresh(&mut self, topic: &str) {
        let Some(offered) = self.discovery.offered(topic) else { return };
        let Some(subscription) = self.subscriptions.get_mut(topic) else { return };
        if (&subscription.type_name, &subscription.md5) != (&offered.type_name, &offered.type_hash)
        {
            subscription.type_name = offered.type_name.clone();
            subscription.md5 = offered.type_hash.clone();
            subscription.foreign.clear();
            for uri in std::mem::take(&mut subscription.readers).into_keys() {
                self.discovery.on_released(topic, &uri);
            }
        }
        let fitting = self.discovery.uris(topic);
        let mut wanted = &fitting | &subscription.listed;
        wanted.remove(&self.setup.own_uri);
        subscription.foreign.retain(|uri| wanted.contains(uri) && !fitting.contains(uri));
        for (uri, reader) in &subscription.readers {
            reader.set_listed(wanted.contains(uri));
            if reader.connected {
                self.discovery.on_live(topic, uri);
            }
        }
        // Those known to fit come before those of whom the master alone, or a stranger, tells.
        let new: Vec<String> = fitting
            .iter()
            .chain(wanted.difference(&fitting))
            .filter(|uri| **uri != self.setup.own_uri)
            .filter(|uri| !subscription.readers.contains_key(*uri))
            .filter(|uri| !subscription.foreign.contains(*uri))
            .take(MAX_PUBLISHERS.saturating_sub(subscription.readers.len()))
            .cloned()
            .collect();
        for uri in new {
            let Ok(place) = self.readers.clone().try_acquire_owned() else {
                static SPARING: Sparing = Sparing::new();
                if let Some(left_out) = SPARING.next() {
                    tracing::warn!(topic, left_out, "{MAX_READERS} publishers are read already");
                }
                return;
            };
            self.next_serial += 1;
            let context = ReaderContext {
                identity: self.setup.identity.clone(),
                max_message: self.setup.options.max_message,
                events: self.setup.events.clone(),
                shared: self.setup.shared.clone(),
                notes: self.notes.clone(),
                begun: self.begun.clone(),
            };
            subscription.start_reader(topic, &uri, self.next_serial, (context, place));
        }
    }

    pub(super) fn reader(&mut self, topic: &str, uri: &str, serial: u64, note: ReaderNote) {
        let Some(subscription) = self.subscriptions.get_mut(topic) else { return };
        let Some(reader) =
            subscription.readers.get_mut(uri).filter(|reader| reader.serial == serial)
        else {
            return;
        };
        match note {
            ReaderNote::Connected(found) => {
                reader.connected = true;
                self.discovery.on_connected(topic, uri, &found);
            }
            ReaderNote::Lost => {
                reader.connected = false;
                self.discovery.on_lost(topic, uri);
            }
            ReaderNote::Ended { foreign } => {
                subscription.readers.remove(uri);
                match foreign {
                    Some(Foreign::OtherType(reason)) => {
                        subscription.foreign.insert(uri.into());
                        self.emit(Event::Refused { topic: topic.into(), reason });
                    }
                    Some(Foreign::Tautline) => {
                        subscription.foreign.insert(uri.into());
                    }
                    None => {}
                }
                self.discovery.on_released(topic, uri);
            }
        }
        self.after_discovery();
    }

    /// Tells what discovery changed, and does the work it asks for.
    pub(super) fn after_discovery(&mut self) {
        for change in self.discovery.take_changes() {
            if let Event::Offered(topic) = &change {
                self.refresh(&topic.name);
            }
            self.emit(change);
        }
        for work in self.discovery.take_work(Instant::now()) {
            let inquirer = self.inquirer.clone();
            self.spawn(async move { Note::Found(inquirer.find_out(work).await) });
        }
    }
}
