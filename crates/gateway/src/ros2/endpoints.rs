// SPDX-License-Identifier: Apache-2.0
//! Readers and writers of the domain, by the topic or service that they belong to. Pure.
//!
//! Endpoints of types with a key are tracked only to report them.
//!
//! Endpoints of Tautline, ours and those of other nodes on this machine, have a mark in their user
//! data and are ignored: what Tautline publishes, Tautline does not carry.

use super::names::{self, RosName};
use super::qos;
use crate::Qos;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use tautline_dds::{DiscoveryEvent, Guid};

/// What an endpoint does for its topic or service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Publisher,
    Subscriber,
    RequestReader,
    ReplyWriter,
    RequestWriter,
    ReplyReader,
}

#[derive(Debug)]
pub struct TrackedEndpoint {
    name: String,
    role: Role,
    /// Whether its type has a key (`@key`), with which DDS tells instances apart.
    keyed: bool,
    /// The DDS type name.
    pub type_name: String,
    /// `RIHS01_...`; empty if it is not announced.
    pub hash: String,
    pub qos: Qos,
}

/// The endpoints of topics, or those of services.
#[derive(Debug)]
pub struct Endpoints {
    for_services: bool,
    limit: usize,
    known: HashMap<Guid, TrackedEndpoint>,
    by_name: BTreeMap<String, BTreeSet<Guid>>,
    /// Endpoints ignored because of the limit.
    pub left_out: u64,
}

impl Endpoints {
    pub fn new(for_services: bool, limit: usize) -> Self {
        let (known, by_name) = (HashMap::new(), BTreeMap::new());
        Self { for_services, limit, known, by_name, left_out: 0 }
    }

    /// Processes one event; returns the topic or service that it changes.
    pub fn on_event(&mut self, event: &DiscoveryEvent) -> Option<String> {
        let (endpoint, is_writer) = match event {
            DiscoveryEvent::Writer(endpoint) => (endpoint, true),
            DiscoveryEvent::Reader(endpoint) => (endpoint, false),
            DiscoveryEvent::WriterGone { guid } | DiscoveryEvent::ReaderGone { guid } => {
                return self.remove(guid);
            }
        };
        let (name, role) = match (RosName::from_dds_name(&endpoint.topic)?, is_writer) {
            (RosName::Topic(name), true) => (name, Role::Publisher),
            (RosName::Topic(name), false) => (name, Role::Subscriber),
            (RosName::Request(name), false) => (name, Role::RequestReader),
            (RosName::Request(name), true) => (name, Role::RequestWriter),
            (RosName::Reply(name), true) => (name, Role::ReplyWriter),
            (RosName::Reply(name), false) => (name, Role::ReplyReader),
        };
        let is_of_topic = matches!(role, Role::Publisher | Role::Subscriber);
        if is_of_topic == self.for_services || names::is_of_tautline(&endpoint.qos.user_data) {
            return None;
        }
        let keyed = !endpoint.keyless;
        // Types of services have no keys in ROS 2.
        if keyed && !is_of_topic {
            return None;
        }
        if self.known.len() >= self.limit && !self.known.contains_key(&endpoint.guid) {
            self.left_out += 1;
            return None;
        }
        self.remove(&endpoint.guid);
        let known = TrackedEndpoint {
            name: name.clone(),
            role,
            keyed,
            type_name: endpoint.type_name.clone(),
            hash: names::type_hash(&endpoint.qos.user_data).unwrap_or_default().to_owned(),
            qos: qos::offered_qos(&endpoint.qos),
        };
        self.known.insert(endpoint.guid, known);
        self.by_name.entry(name.clone()).or_default().insert(endpoint.guid);
        Some(name)
    }

    fn remove(&mut self, guid: &Guid) -> Option<String> {
        let gone = self.known.remove(guid)?;
        let all = self.by_name.get_mut(&gone.name)?;
        all.remove(guid);
        if all.is_empty() {
            self.by_name.remove(&gone.name);
        }
        Some(gone.name)
    }

    /// The name of the topic or service of an endpoint, and its role.
    pub fn get(&self, guid: &Guid) -> Option<(&str, Role)> {
        self.known.get(guid).map(|known| (known.name.as_str(), known.role))
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.by_name.keys().map(String::as_str)
    }

    /// Endpoints of types without a key, which endpoints of ours can match.
    pub fn keyless_endpoints<'a>(
        &'a self,
        name: &str,
        role: Role,
    ) -> impl Iterator<Item = (&'a Guid, &'a TrackedEndpoint)> + use<'a> {
        self.in_role(name, role).filter(|(_, known)| !known.keyed)
    }

    /// Endpoints of types with a key, which no endpoint of ours matches.
    pub fn keyed_endpoints<'a>(
        &'a self,
        name: &str,
        role: Role,
    ) -> impl Iterator<Item = &'a TrackedEndpoint> + use<'a> {
        self.in_role(name, role).map(|(_, known)| known).filter(|known| known.keyed)
    }

    fn in_role<'a>(
        &'a self,
        name: &str,
        role: Role,
    ) -> impl Iterator<Item = (&'a Guid, &'a TrackedEndpoint)> + use<'a> {
        let all = self.by_name.get(name).into_iter().flatten();
        all.filter_map(|guid| Some((guid, self.known.get(guid)?)))
            .filter(move |(_, known)| known.role == role)
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.known.len()
    }
}
