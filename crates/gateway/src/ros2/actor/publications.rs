// SPDX-License-Identifier: Apache-2.0
//! Topics of peers, published to local subscribers.

use super::context::{Context, Setup};
use crate::lock::lock;
use crate::log_limit::log_limited;
use crate::ros2::endpoint_context::EndpointContext;
use crate::ros2::endpoints::Endpoints;
use crate::ros2::names;
use crate::ros2::order::Order;
use crate::ros2::publication::{Publication, REDISCOVERY};
use crate::ros2::qos;
use crate::{Event, ResourceName, Topic};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;
use tautline_dds::{DdsError, DiscoveryEvent, Guid};

/// The topics of peers that are published here. The thread that writes shares their publications.
pub struct Publications {
    by_topic: BTreeMap<String, Advertised>,
    /// Time at which subscribers from before the start that were not found again count as gone.
    rediscovery_ends: Option<Instant>,
}

/// A topic that peers publish here, and its state as last reported to the node.
struct Advertised {
    topic: Topic,
    wanted: bool,
    refused: Option<String>,
}

impl Publications {
    pub fn new(setup: &Setup) -> Self {
        let rediscovery_ends = Some(setup.endpoints.started + REDISCOVERY);
        Self { by_topic: BTreeMap::new(), rediscovery_ends }
    }

    /// Publishes a topic, or replaces its type; [`Self::update`] starts that.
    pub fn add(&mut self, topic: Topic) {
        let wanted = self.by_topic.get(&topic.name).is_some_and(|known| known.wanted);
        let advertised = Advertised { wanted, refused: None, topic };
        self.by_topic.insert(advertised.topic.name.clone(), advertised);
    }

    /// Stops publishing a topic.
    pub fn remove(&mut self, context: &mut Context, endpoints: &Endpoints, name: &str) {
        end_publication(context, name);
        context.clear_trouble(name, "refused");
        context.clear_trouble(name, "publishing");
        context.setup.endpoints.shared.drops.release(name);
        if self.by_topic.remove(name).is_some_and(|known| known.wanted) {
            context.emit(Event::Wanted { topic: name.into(), wanted: false });
        }
        self.report_keys(context, endpoints, name);
    }

    /// Time at which subscribers from before the start count as gone.
    pub fn next_due(&self) -> Option<Instant> {
        self.rediscovery_ends
    }

    /// Handles an endpoint of a topic that has appeared or left.
    pub fn on_discovered(&self, context: &Context, topic: &str, event: &DiscoveryEvent) {
        let publication = lock(&context.setup.publications).get(topic).cloned();
        match event {
            DiscoveryEvent::ReaderGone { guid } => {
                let deliveries = &context.setup.endpoints.deliveries;
                deliveries.forget(topic, u128::from_be_bytes(*guid));
                publication.iter().for_each(|it| it.on_reader_gone(*guid));
            }
            DiscoveryEvent::Reader(reader) => {
                let joins_late = qos::offered_qos(&reader.qos).transient_local;
                publication.iter().for_each(|it| it.on_reader(reader.guid, joins_late));
            }
            _ => {}
        }
    }

    /// Our writers by topic.
    pub fn guids(&self, context: &Context) -> BTreeMap<String, Vec<Guid>> {
        let publications = lock(&context.setup.publications);
        publications.iter().map(|(name, it)| (name.clone(), it.guids())).collect()
    }

    /// Publishes a topic of peers, unless local nodes use its name with another type.
    pub fn update(&mut self, context: &mut Context, endpoints: &Endpoints, name: &str) {
        let Some(advertised) = self.by_topic.get(name) else { return };
        let topic = &advertised.topic;
        let Some(dds_type) = names::dds_type(&topic.type_name) else {
            let reason = format!("'{}' is no type of ROS 2 (package/msg/Type)", topic.type_name);
            return self.refuse(context, name, reason);
        };
        let wanted = endpoints.is_wanted(name, &dds_type);
        if let Some(other) = endpoints.topic_conflict(name, &dds_type, &topic.type_hash) {
            let reason = format!(
                "nodes in domain {} have it as {other}, but peers send {} ({})",
                context.setup.options.domain, topic.type_name, topic.type_hash
            );
            if other.is_misread() {
                return self.refuse(context, name, reason);
            }
            self.report_refusal(context, name, reason);
        }
        if let Err(error) = self.publish(context, name) {
            return self.refuse(context, name, error.to_string());
        }
        let Some(advertised) = self.by_topic.get_mut(name) else { return };
        let lease = advertised.topic.qos.liveliness.lease;
        context.liveliness.follow(name, lease, Instant::now());
        if advertised.wanted != wanted {
            advertised.wanted = wanted;
            context.emit(Event::Wanted { topic: name.into(), wanted });
        }
    }

    fn publish(&self, context: &mut Context, name: &str) -> Result<(), DdsError> {
        let Some(advertised) = self.by_topic.get(name) else { return Ok(()) };
        let known = lock(&context.setup.publications).get(name).cloned();
        if let Some(known) = known.filter(|known| known.serves(&advertised.topic)) {
            return known.update_writers(&advertised.topic.qos);
        }
        let (topic, orders) = (advertised.topic.clone(), context.setup.orders.clone());
        let on_change = Box::new(move || drop(orders.send(Order::WritersChanged)));
        let publication = Arc::new(Publication::new(topic, &context.setup.endpoints, on_change)?);
        let replaced = lock(&context.setup.publications).insert(name.into(), publication);
        // Deleted without the lock, which the writing of other topics needs.
        drop(replaced);
        context.endpoints_changed = true;
        Ok(())
    }

    /// Shows publications as alive, or as lost.
    pub fn assert_liveliness(&self, context: &mut Context, now: Instant) {
        for name in context.liveliness.take_due(now) {
            let publication = lock(&context.setup.publications).get(&name).cloned();
            let (Some(publication), Some(known)) = (publication, self.by_topic.get(&name)) else {
                continue;
            };
            let shown = match known.topic.qos.liveliness.lost {
                true => publication.hide_lost(),
                false => publication.assert_liveliness(known.wanted),
            };
            if let Err(error) = shown {
                log_limited!(warn, {topic = name, %error,}, "liveliness is not asserted");
            }
        }
    }

    /// Forgets subscribers from before the start that have not come again, with the writers for them.
    pub fn end_rediscovery(&mut self, context: &Context, now: Instant) {
        if self.rediscovery_ends.take_if(|end| *end <= now).is_none() {
            return;
        }
        let EndpointContext { deliveries, readers, .. } = &context.setup.endpoints;
        let gone = deliveries.forget_unknown(|it| readers.contains(&it.to_be_bytes()));
        let publications: Vec<_> = lock(&context.setup.publications).values().cloned().collect();
        for publication in publications {
            gone.iter().for_each(|reader| publication.on_reader_gone(reader.to_be_bytes()));
        }
    }

    /// Reports local nodes whose types have a key. A topic with a key would need the definition of the
    /// key, which discovery does not announce.
    pub fn report_keys(&self, context: &Context, endpoints: &Endpoints, name: &str) {
        let is_sent = context.selects(ResourceName::Topic(name));
        let is_published = self.by_topic.contains_key(name);
        let text = endpoints.key_trouble(name, is_sent, is_published);
        let troubles = &context.setup.endpoints.shared.troubles;
        if text.is_empty() {
            troubles.clear(name, "keys");
        } else if troubles.set(name, "keys", text.clone()) {
            log_limited!(warn, {}, "{text}");
        }
    }

    fn refuse(&mut self, context: &mut Context, name: &str, reason: String) {
        end_publication(context, name);
        self.report_refusal(context, name, reason);
        if let Some(advertised) = self.by_topic.get_mut(name)
            && std::mem::take(&mut advertised.wanted)
        {
            context.emit(Event::Wanted { topic: name.into(), wanted: false });
        }
    }

    /// Reports each reason once.
    fn report_refusal(&mut self, context: &Context, name: &str, reason: String) {
        let Some(advertised) = self.by_topic.get_mut(name) else { return };
        if advertised.refused.as_ref() == Some(&reason) {
            return;
        }
        advertised.refused = Some(reason.clone());
        context.set_trouble(name, "refused", format!("{name}: {reason}"));
        context.emit(Event::Refused { topic: name.into(), reason });
    }
}

/// Deletes the writers of a topic.
fn end_publication(context: &mut Context, name: &str) {
    context.liveliness.follow(name, None, Instant::now());
    let removed = lock(&context.setup.publications).remove(name);
    context.endpoints_changed |= removed.is_some();
}
