// SPDX-License-Identifier: Apache-2.0
//! The channel of a topic, as its treatment determines it.

use crate::treatment::{LinkChoice, OrderChoice, Treatment, WhenSlow};
use tautline_gateway::Topic;
use tautline_gateway::tf::Encoding;
use tautline_proto::wire::control::MAX_ORDER_WAIT;
use tautline_proto::{
    ChannelConfig, DeliveryOrder, LinkPolicy, LinkSet, LinkUse, OfferedQos, OfferedTopic, Role,
};

/// Returns the configuration of a topic's channel to a peer. `links` are the names and numbers of
/// the links to the peer.
pub(super) fn channel_config(
    topic: &Topic,
    treatment: &Treatment,
    links: &[(String, u8)],
) -> ChannelConfig {
    let keep_last = u32::from(treatment.keep_last(&topic.type_name));
    // Each message of a latched topic matters, and each tf message describes different frames.
    let every_message_matters =
        topic.qos.transient_local || Encoding::of_type(&topic.type_name).is_some();
    let thin =
        treatment.when_slow(&topic.type_name) == Some(WhenSlow::Thin) && !every_message_matters;
    ChannelConfig {
        topic: OfferedTopic {
            name: topic.name.clone(),
            type_name: topic.type_name.clone(),
            type_hash: topic.type_hash.clone(),
            priority: treatment.priority,
            // A message for late joiners must not be replaced in the queue by a newer one.
            keep_last: match topic.qos.transient_local {
                true => keep_last.max(topic.qos.depth),
                false => keep_last,
            },
            // The shorter lifespan applies: the rule's or the publisher's.
            lifespan: treatment.lifespan.into_iter().chain(topic.qos.lifespan).min(),
            qos: OfferedQos {
                transient_local: topic.qos.transient_local,
                depth: topic.qos.depth,
                reliable: topic.qos.reliable,
                deadline: topic.qos.deadline,
                manual_liveliness: topic.qos.liveliness.manual,
                lease: topic.qos.liveliness.lease,
                not_alive: topic.qos.liveliness.lost,
                classes: topic.qos.classes.bits(),
                keeping: topic.qos.keeping,
            },
            role: Role::Topic,
            order: order(treatment, topic.qos.transient_local, every_message_matters),
        },
        definition: topic.definition.clone(),
        repair: treatment.repair,
        thin,
        fec: treatment.fec,
        links: link_use(treatment, links),
    }
}

fn order(treatment: &Treatment, is_kept: bool, every_message_matters: bool) -> DeliveryOrder {
    match treatment.order {
        OrderChoice::Sent => DeliveryOrder::Sent { wait: treatment.order_wait },
        // Of a publisher's messages, the receiver keeps those that arrive last. These must be the
        // ones that were sent last.
        _ if is_kept => DeliveryOrder::Sent { wait: MAX_ORDER_WAIT },
        OrderChoice::Newest if !every_message_matters => DeliveryOrder::Newest,
        OrderChoice::Arrival | OrderChoice::Newest => DeliveryOrder::Arrival,
    }
}

/// Returns how a topic uses several links.
pub fn link_policy(treatment: &Treatment) -> LinkPolicy {
    match treatment.links.choice {
        None => LinkPolicy::of_priority(treatment.priority),
        Some(LinkChoice::Best) => LinkPolicy::Best,
        Some(LinkChoice::Weighted) => LinkPolicy::Weighted,
        Some(LinkChoice::Stripe) => LinkPolicy::Stripe,
        Some(LinkChoice::Duplicate) => LinkPolicy::Duplicate(treatment.links.copies),
    }
}

fn link_use(treatment: &Treatment, links: &[(String, u8)]) -> LinkUse {
    let rule = &treatment.links;
    let set = |names: &[String]| {
        let named = links.iter().filter(|(name, _)| names.contains(name));
        LinkSet::from_numbers(named.map(|(_, number)| *number))
    };
    LinkUse {
        policy: link_policy(treatment),
        only: (!rule.only.is_empty()).then(|| set(&rule.only)),
        avoid: set(&rule.avoid),
        over_budget: rule.over_budget,
    }
}
