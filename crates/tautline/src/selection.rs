// SPDX-License-Identifier: Apache-2.0
//! Which topics and services may leave this node.

use crate::config::{Config, Show};
use crate::topics::parameters::may_use_parameters;
use crate::treatment::services::{ServiceRule, service_treatment};
use crate::treatment::{TopicRule, treatment};
use tautline_gateway::pattern::Pattern;
use tautline_gateway::{ResourceName, logs};

/// The rules that select topics and services to be sent, from the current configuration.
#[derive(Debug, PartialEq)]
pub(crate) struct Selection {
    topics: Vec<TopicRule>,
    services: Vec<ServiceRule>,
    /// What each peer sees of this robot, and the nodes whose parameters the peer may set.
    shown: Vec<(Show, Vec<Pattern>)>,
}

impl Selection {
    pub(crate) fn new(config: &Config) -> Self {
        let rights = config.peers.iter().map(|peer| (peer.show, peer.set_parameters.clone()));
        Self {
            topics: config.topics.clone(),
            services: config.services.clone(),
            shown: rights.collect(),
        }
    }

    pub(crate) fn selects(&self, named: ResourceName<'_>) -> bool {
        match named {
            ResourceName::Topic(name) => {
                let mut rights = self.shown.iter();
                treatment(&self.topics, name).is_some()
                    || (name == logs::TOPIC && rights.any(|(show, _)| show.logs))
            }
            ResourceName::Service(name) => {
                let mut rights = self.shown.iter();
                service_treatment(&self.services, name).is_some()
                    || rights.any(|(show, set)| may_use_parameters(*show, set, name))
            }
        }
    }
}
