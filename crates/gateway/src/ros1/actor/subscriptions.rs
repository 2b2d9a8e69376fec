// SPDX-License-Identifier: Apache-2.0
//! Topics read from local publishers.

use super::context::{Context, Setup};
use crate::log_limit::log_limited;
use crate::ros1::byte_budget::ByteBudget;
use crate::ros1::connection::TypeVersion;
use crate::ros1::discovery::Discovery;
use crate::ros1::master::Snapshot;
use crate::ros1::note::{Exclusion, Note, ReaderNote};
use crate::ros1::probed::{CheckResult, LocatedPublisher, ProbeResult, Query};
use crate::ros1::subscription::{
    INCOMPLETE_BYTES, MAX_PUBLISHERS, MAX_READERS, ReaderContext, Subscription,
};
use crate::{Event, Topic};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::Semaphore;

/// The local topics, and the readers of those that peers want.
pub(super) struct Subscriptions {
    discovery: Discovery,
    by_topic: BTreeMap<String, Subscription>,
    /// Limits the readers of all subscriptions.
    readers: Arc<Semaphore>,
    incomplete: Arc<ByteBudget>,
}

impl Subscriptions {
    pub fn new(setup: &Setup) -> Self {
        Self {
            discovery: Discovery::new(&setup.own.name, setup.selector.clone()),
            by_topic: BTreeMap::new(),
            readers: Arc::new(Semaphore::new(MAX_READERS)),
            incomplete: ByteBudget::new(INCOMPLETE_BYTES, setup.options.max_message),
        }
    }

    /// The topics that are read.
    pub fn iter(&self) -> impl Iterator<Item = (&String, &Subscription)> {
        self.by_topic.iter()
    }

    /// A topic as offered to the node.
    pub fn offered_topic(&self, topic: &str) -> Option<&Topic> {
        self.discovery.offered_topic(topic)
    }

    /// Reads a topic; `false` if it is read already.
    pub fn add(&mut self, context: &mut Context, topic: &str) -> bool {
        if self.by_topic.contains_key(topic) {
            return false;
        }
        self.by_topic.insert(topic.into(), Subscription::new());
        self.refresh(context, topic);
        true
    }

    /// Stops reading a topic; `false` if it was not read.
    pub fn remove(&mut self, topic: &str) -> bool {
        let Some(mut subscription) = self.by_topic.remove(topic) else { return false };
        for uri in subscription.readers.keys() {
            self.discovery.on_released(topic, uri);
        }
        subscription.end_silently();
        true
    }

    /// Ends all readers without events about their sources.
    pub fn end_silently(&mut self) {
        self.by_topic.values_mut().for_each(Subscription::end_silently);
    }

    /// Withdraws topics that may no longer leave the robot.
    pub fn reselect(&mut self, context: &mut Context) {
        self.discovery.reselect();
        self.after_discovery(context);
    }

    /// Compares the topics with the master's list; [`Self::after_discovery`] emits the changes.
    pub fn on_snapshot(&mut self, snapshot: &Snapshot) {
        self.discovery.on_snapshot(snapshot, Instant::now());
    }

    /// A publisher has been probed.
    pub fn on_probed(
        &mut self,
        context: &mut Context,
        topic: &str,
        node: &str,
        result: ProbeResult<LocatedPublisher>,
    ) {
        self.discovery.on_probed(topic, node, result, Instant::now());
        self.after_discovery(context);
    }

    /// A node has been checked.
    pub fn on_checked(&mut self, context: &mut Context, node: &str, result: CheckResult) {
        self.discovery.on_checked(node, result, Instant::now());
        self.after_discovery(context);
    }

    /// Sets the publishers of a topic, from the master or a program that claims to be the master;
    /// `false` if the topic is not read.
    pub fn set_publishers(
        &mut self,
        context: &mut Context,
        topic: &str,
        uris: Vec<String>,
    ) -> bool {
        let Some(subscription) = self.by_topic.get_mut(topic) else { return false };
        subscription.set_listed(uris);
        self.refresh(context, topic);
        true
    }

    pub fn refresh_all(&mut self, context: &mut Context) {
        let topics: Vec<String> = self.by_topic.keys().cloned().collect();
        for topic in topics {
            self.refresh(context, &topic);
        }
    }

    /// Starts readers of publishers that have none, once the topic's type is known.
    fn refresh(&mut self, context: &mut Context, topic: &str) {
        let Some(offered) = self.discovery.offered_topic(topic) else { return };
        let Some(subscription) = self.by_topic.get_mut(topic) else { return };
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
        wanted.remove(&context.setup.own.uri);
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
            .filter(|uri| **uri != context.setup.own.uri)
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
            let (serial, setup) = (context.serial(), &context.setup);
            let reader = ReaderContext {
                identity: setup.identity.clone(),
                max_message: setup.options.max_message,
                events: setup.events.clone(),
                shared: setup.shared.clone(),
                notes: context.notes.clone(),
                incomplete: self.incomplete.clone(),
            };
            subscription.start_reader(topic, &uri, serial, permit, reader);
        }
    }

    /// A reader, by its publisher's URI and its serial number, has news.
    pub fn on_reader(
        &mut self,
        context: &mut Context,
        topic: &str,
        (uri, serial): (&str, u64),
        note: ReaderNote,
    ) {
        let Some(subscription) = self.by_topic.get_mut(topic) else { return };
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
                    context.emit(Event::Refused { topic: topic.into(), reason });
                }
                self.discovery.on_released(topic, uri);
            }
        }
        self.after_discovery(context);
    }

    /// Emits the events of discovery and starts its queries.
    pub fn after_discovery(&mut self, context: &mut Context) {
        for event in self.discovery.take_events() {
            if let Event::Offered(topic) = &event {
                self.refresh(context, &topic.name);
            }
            context.emit(event);
        }
        for query in self.discovery.take_queries(Instant::now()) {
            let prober = context.prober.clone();
            context.spawn(async move {
                match query {
                    Query::Probe { topic, node, is_retry } => {
                        let result = prober.probe_publisher(&topic, &node, is_retry).await;
                        Note::ProbeResult { topic, node, result }
                    }
                    Query::Check { node, uri } => {
                        let result = prober.check(&node, uri).await;
                        Note::Checked { node, result }
                    }
                }
            });
        }
    }
}
