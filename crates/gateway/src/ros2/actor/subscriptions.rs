// SPDX-License-Identifier: Apache-2.0
//! Topics of local publishers: offered to the node, and read for it.

use super::context::{Context, Setup};
use crate::action_names::is_action_status;
use crate::ros2::definitions::Definitions;
use crate::ros2::discovery::Offer;
use crate::ros2::endpoints::Endpoints;
use crate::ros2::history::Histories;
use crate::ros2::liveliness::State;
use crate::ros2::subscription::Subscription;
use crate::types::{Dialect, Schema, hash};
use crate::{Event, ResourceName, Topic};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use tautline_dds::{DiscoveryEvent, Guid};

/// The local topics, and the readers of those that peers want.
pub struct Subscriptions {
    /// Offers of local topics, as last reported to the node.
    offered: BTreeMap<String, Topic>,
    /// The topics that the node wants; `None`: no local node publishes the topic.
    by_topic: BTreeMap<String, Option<Subscription>>,
    definitions: Definitions,
    histories: Histories,
}

impl Subscriptions {
    pub fn new(setup: &Setup) -> Self {
        Self {
            offered: BTreeMap::new(),
            by_topic: BTreeMap::new(),
            definitions: Definitions::new(setup.options.installed.clone()),
            histories: Histories::default(),
        }
    }

    /// Reads a topic as soon as it is offered; [`Self::update`] starts that.
    pub fn add(&mut self, topic: &str) {
        self.by_topic.entry(topic.into()).or_default();
    }

    /// Stops reading a topic.
    pub fn remove(&mut self, context: &mut Context, topic: &str) {
        context.endpoints_changed |= self.by_topic.remove(topic).is_some();
        context.clear_trouble(topic, "reading");
    }

    /// Starts and ends counts of kept messages. The node gets new depths; messages are not read
    /// again. Returns the topics with new depths.
    pub fn count(&mut self, context: &Context, endpoints: &Endpoints) -> BTreeSet<String> {
        let now = Instant::now();
        for topic in self.histories.topics_to_count(now) {
            match endpoints.topic_offer(&topic) {
                Some(offer) => {
                    let participant = &context.setup.endpoints.participant;
                    if let Some(Some(subscription)) = self.by_topic.get(&topic) {
                        subscription.begin_count();
                    }
                    self.histories.count(&topic, &offer.type_name, participant);
                }
                None => self.histories.forget(&topic),
            }
        }
        let topics: BTreeSet<String> = self.histories.take_ended_counts(now).into_iter().collect();
        for topic in &topics {
            let Some(Some(subscription)) = self.by_topic.get(topic) else { continue };
            for (writer, depth) in self.histories.depths(topic) {
                subscription.set_depth(writer, depth, |source, successor| {
                    context.emit(Event::DepthChanged {
                        topic: topic.clone(),
                        source,
                        successor,
                        depth,
                    });
                });
            }
        }
        topics
    }

    /// Time at which messages are counted next.
    pub fn next_due(&self) -> Option<Instant> {
        self.histories.next_due()
    }

    /// Schedules a count of the messages that the publishers of a topic keep.
    pub fn count_at(&mut self, topic: &str, due: Instant) {
        self.histories.schedule_at(topic, due);
    }

    /// The selector has changed: counts the kept messages of topics that may leave the robot now.
    pub fn reselect(&mut self, context: &Context, endpoints: &Endpoints) {
        for topic in endpoints.names() {
            let is_new =
                !self.offered.contains_key(topic) && context.selects(ResourceName::Topic(topic));
            let keeps_messages = |offer: Offer| offer.qos.transient_local;
            if is_new && endpoints.topic_offer(topic).is_some_and(keeps_messages) {
                self.histories.schedule(topic, Instant::now());
            }
        }
    }

    /// Handles an endpoint of a topic that has appeared or left.
    pub fn on_discovered(&mut self, context: &Context, topic: &str, event: &DiscoveryEvent) {
        let is_kept = matches!(event, DiscoveryEvent::Writer(it) if it.qos.durability > 0);
        if is_kept && context.selects(ResourceName::Topic(topic)) {
            self.histories.schedule(topic, Instant::now());
        }
        if let DiscoveryEvent::WriterGone { guid } = event {
            self.histories.forget_writer(topic, guid);
            let subscription = self.by_topic.get(topic).and_then(Option::as_ref);
            if let Some(source) = subscription.and_then(|it| it.forget(*guid)) {
                context.emit(Event::SourceGone { topic: topic.into(), source });
            }
        }
    }

    /// Our readers.
    pub fn guids(&self) -> impl Iterator<Item = Guid> {
        self.by_topic.values().flatten().flat_map(Subscription::guids)
    }

    /// Offers or withdraws a local topic, and updates its subscription.
    pub fn update(&mut self, context: &mut Context, endpoints: &Endpoints, name: &str) {
        let offer =
            endpoints.topic_offer(name).filter(|_| context.selects(ResourceName::Topic(name)));
        match &offer {
            Some(offer) => self.offer(context, name, offer.clone()),
            None => self.withdraw(context, name),
        }
        // The subscription comes last: its messages are of the topic as offered.
        self.read(context, name, offer.as_ref());
    }

    fn offer(&mut self, context: &mut Context, name: &str, mut offer: Offer) {
        let others = match offer.other_types.as_slice() {
            [] => String::new(),
            others => format!(
                "{name} is carried as {}; publishers with {} are left out",
                offer.type_name,
                others.join(", ")
            ),
        };
        context.set_trouble(name, "types", others);
        if offer.qos.transient_local {
            // Peers get all messages that a publisher keeps only if they know their number in advance.
            // The status topic of an action keeps one.
            let is_new = !self.offered.contains_key(name) && !is_action_status(name);
            if is_new && self.histories.is_uncounted(name) {
                return;
            }
            offer.qos.depth = self.histories.depth(name);
        }
        offer.qos.liveliness.lost = self.is_lost(context, name, offer.qos.liveliness.lease);
        let topic = self.topic(name, offer);
        if self.offered.get(name) != Some(&topic) {
            self.offered.insert(name.into(), topic.clone());
            context.emit(Event::Offered(topic));
        }
    }

    /// Whether no publisher of a local topic is alive. Without a reader, the last known state holds.
    fn is_lost(&self, context: &mut Context, name: &str, lease: Option<Duration>) -> bool {
        let Some(lease) = lease else { return false };
        let read = self.by_topic.get(name).and_then(Option::as_ref);
        match read.map_or(State::Unknown, |it| it.liveliness(lease)) {
            State::Alive => return false,
            State::LostFrom(at) if at <= Instant::now() => return true,
            State::LostFrom(at) => context.liveliness.expect_loss(name, at),
            State::Unknown => {}
        }
        self.offered.get(name).is_some_and(|known| known.qos.liveliness.lost)
    }

    fn withdraw(&mut self, context: &Context, name: &str) {
        context.clear_trouble(name, "types");
        self.histories.forget(name);
        if self.offered.remove(name).is_some() {
            context.emit(Event::Withdrawn { topic: name.into() });
        }
    }

    fn topic(&mut self, name: &str, offer: Offer) -> Topic {
        let definition = self.definitions.get(&offer.type_name);
        let type_hash = match offer.hash.is_empty() {
            false => offer.hash,
            // The type is not installed. An empty definition would be an empty type.
            true if definition.is_empty() => String::new(),
            // ROS 2 before Iron announces no hashes.
            true => Schema::parse(&offer.type_name, &definition, Dialect::Ros2)
                .map(|schema| hash::type_hash(&schema))
                .unwrap_or_default(),
        };
        Topic {
            name: name.into(),
            type_name: offer.type_name,
            type_hash,
            definition,
            qos: offer.qos,
        }
    }

    /// Reads a topic as offered, if the node wants it.
    fn read(&mut self, context: &mut Context, name: &str, offer: Option<&Offer>) {
        let Some(slot) = self.by_topic.get_mut(name) else { return };
        let Some(offer) = offer else {
            *slot = None;
            return;
        };
        if slot.as_ref().is_none_or(|before| before.type_name != offer.type_name) {
            let new = slot.insert(Subscription::new(&offer.type_name, &offer.hash));
            for (writer, depth) in self.histories.depths(name) {
                new.set_depth(writer, depth, |_, _| {});
            }
        }
        let Some(subscription) = slot else { return };
        let classes = offer.qos.all_classes();
        match subscription.read(name, classes, &context.setup.endpoints, &context.setup.orders) {
            Ok(is_changed) => context.endpoints_changed |= is_changed,
            Err(error) => {
                context.set_trouble(name, "reading", format!("{name} is not read: {error}"));
            }
        }
    }
}
