// SPDX-License-Identifier: Apache-2.0
//! The channels of services.

use tautline_gateway::Service;
use tautline_proto::{
    ChannelConfig, DeliveryOrder, Duration, LinkPolicy, LinkUse, OfferedQos, OfferedTopic, Role,
};

/// Queue length with which no call or response replaces another in the queue.
const KEEP_ALL: u32 = 65_535;

/// Returns the configuration of a channel that carries the calls of a service, or its responses.
pub(super) fn service_channel(
    service: &Service,
    role: Role,
    priority: u8,
    timeout: Duration,
) -> ChannelConfig {
    ChannelConfig {
        topic: OfferedTopic {
            name: service.name.clone(),
            type_name: service.type_name.clone(),
            type_hash: service.type_hash.clone(),
            priority,
            keep_last: KEEP_ALL,
            lifespan: Some(timeout),
            qos: OfferedQos::default(),
            role,
            order: DeliveryOrder::Arrival,
        },
        definition: service.definition.clone(),
        repair: true,
        thin: false,
        fec: None,
        links: LinkUse { policy: LinkPolicy::of_priority(priority), ..LinkUse::default() },
    }
}
