// SPDX-License-Identifier: Apache-2.0
//! Topics read from local publishers.

use super::Actor;
use crate::Event;
use crate::log_limit::log_limited;
use crate::ros1::connection::TypeVersion;
use crate::ros1::master::Role;
use crate::ros1::note::{Exclusion, ReaderNote};
use crate::ros1::polls::TOPIC_OF_ALL_NODES;
use crate::ros1::subscription::{MAX_PUBLISHERS, MAX_READERS, ReaderContext, Subscription};
use std::time::Instant;

impl Actor {
    pub(super) fn subscribe(&mut self, topic: String) {
        if self.subscriptions.contains_key(&topic) {
            return;
        }
        self.add_registration(Role::Subscriber, &topic);
        self.subscriptions.insert(topic.clone(), Subscription::new());
        self.refresh(&topic);
        self.poll();
    }

    pub(super) fn unsubscribe(&mut self, topic: &str) {
        let Some(mut subscription) = self.subscriptions.remove(topic) else { return };
        for uri in subscription.readers.keys() {
            self.discovery.on_released(topic, uri);
        }
        subscription.end_silently();
        if topic != TOPIC_OF_ALL_NODES {
            self.remove_registration(Role::Subscriber, topic);
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
        let version =
            TypeVersion { name: offered.type_name.clone(), md5: offered.type_hash.clone() };
        if subscription.version != version {
            subscription.version = version;
            subscription.excluded.clear();
            for uri in std::mem::take(&mut subscription.readers).into_keys() {
                self.discovery.on_released(topic, &uri);
            }
        }
        let fitting = self.discovery.uris(topic);
        let mut wanted = &fitting | &subscription.listed;
        wanted.remove(&self.setup.own.uri);
        subscription.excluded.retain(|uri| wanted.contains(uri) && !fitting.contains(uri));
        for (uri, reader) in &subscription.readers {
            reader.set_listed(wanted.contains(uri));
            if reader.connected {
                self.discovery.set_connected(topic, uri);
            }
        }
        // Publishers with the type come before those that only the master, or a stranger, lists.
        let new: Vec<String> = fitting
            .iter()
            .chain(wanted.difference(&fitting))
            .filter(|uri| **uri != self.setup.own.uri)
            .filter(|uri| !subscription.readers.contains_key(*uri))
            .filter(|uri| !subscription.excluded.contains(*uri))
            .take(MAX_PUBLISHERS.saturating_sub(subscription.readers.len()))
            .cloned()
            .collect();
        for uri in new {
            let Ok(permit) = self.readers.clone().try_acquire_owned() else {
                log_limited!(warn, {topic,}, "{MAX_READERS} publishers are read already");
                return;
            };
            self.next_serial += 1;
            let context = ReaderContext {
                identity: self.setup.identity.clone(),
                max_message: self.setup.options.max_message,
                events: self.setup.events.clone(),
                shared: self.setup.shared.clone(),
                notes: self.notes.clone(),
                incomplete: self.incomplete.clone(),
            };
            subscription.start_reader(topic, &uri, self.next_serial, permit, context);
        }
    }

    pub(super) fn reader_note(&mut self, topic: &str, uri: &str, serial: u64, note: ReaderNote) {
        let Some(subscription) = self.subscriptions.get_mut(topic) else { return };
        let reader = subscription.readers.get_mut(uri).filter(|reader| reader.serial == serial);
        let Some(reader) = reader else { return };
        match note {
            ReaderNote::Connected(found) => {
                reader.connected = true;
                self.discovery.on_connected(topic, uri, &found);
            }
            ReaderNote::Lost => {
                reader.connected = false;
                self.discovery.on_lost(topic, uri);
            }
            ReaderNote::Ended(exclusion) => {
                subscription.readers.remove(uri);
                if exclusion.is_some() {
                    subscription.excluded.insert(uri.into());
                }
                if let Some(Exclusion::OtherType(reason)) = exclusion {
                    self.emit(Event::Refused { topic: topic.into(), reason });
                }
                self.discovery.on_released(topic, uri);
            }
        }
        self.after_discovery();
    }

    /// Emits the events of discovery and starts its queries.
    pub(super) fn after_discovery(&mut self) {
        for event in self.discovery.take_events() {
            if let Event::Offered(topic) = &event {
                self.refresh(&topic.name);
            }
            self.emit(event);
        }
        for query in self.discovery.take_queries(Instant::now()) {
            let prober = self.prober.clone();
            self.spawn(async move { prober.answer(query).await });
        }
    }
}
