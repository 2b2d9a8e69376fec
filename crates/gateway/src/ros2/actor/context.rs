// SPDX-License-Identifier: Apache-2.0
//! What all parts of the actor share.

use crate::ros2::endpoint_context::EndpointContext;
use crate::ros2::liveliness::Timers;
use crate::ros2::options::Ros2Options;
use crate::ros2::order::Order;
use crate::ros2::publication::SharedPublications;
use crate::{Event, ResourceName, Selector};
use std::sync::mpsc::Sender;

/// The constant part of the state.
pub struct Setup {
    pub options: Ros2Options,
    pub endpoints: EndpointContext,
    pub selector: Selector,
    pub publications: SharedPublications,
    pub orders: Sender<Order>,
}

/// The argument of all parts: who we are, and how to reach the domain, the node and the actor.
pub struct Context {
    pub setup: Setup,
    pub liveliness: Timers,
    /// Whether our endpoints differ from those that our node has in the graph.
    pub endpoints_changed: bool,
}

impl Context {
    pub fn new(setup: Setup) -> Self {
        Self { setup, liveliness: Timers::default(), endpoints_changed: false }
    }

    pub fn emit(&self, event: Event) {
        self.setup.endpoints.events.emit(event);
    }

    /// Whether a topic or service may leave this robot.
    pub fn selects(&self, name: ResourceName<'_>) -> bool {
        (self.setup.selector)(name)
    }

    /// Sets one kind of trouble with a topic, or clears it (empty).
    pub fn set_trouble(&self, topic: &str, kind: &'static str, text: String) {
        self.setup.endpoints.shared.troubles.update(topic, kind, text);
    }

    pub fn clear_trouble(&self, topic: &str, kind: &'static str) {
        self.setup.endpoints.shared.troubles.clear(topic, kind);
    }
}
