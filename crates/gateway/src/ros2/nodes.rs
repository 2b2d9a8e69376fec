// SPDX-License-Identifier: Apache-2.0
//! Nodes of this domain for peers, and nodes of peers in this domain. The latter are further nodes of
//! our participant, each with the endpoints that we have on behalf of the peer's node.

use super::endpoints::{Endpoints, Role};
use super::graph::{Node, Participant};
use super::names::split_node_name;
use super::served::EndpointGuids;
use crate::description::{Nodes, Shown};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use tautline_dds::Guid;

/// Participants whose nodes are kept; those of further ones are not shown to peers.
const MAX_PARTICIPANTS: usize = 1024;
/// Least time between two reports of the nodes of this domain.
const PERIOD: Duration = Duration::from_millis(500);

/// The nodes of this domain, as their participants announce them.
#[derive(Debug, Default)]
pub struct Announced {
    nodes: BTreeMap<Guid, Vec<Node>>,
    notified: bool,
}

impl Announced {
    /// Keeps the nodes of a message; `true`: notify the actor, once for any number of messages.
    pub fn on_message(&mut self, message: Participant) -> bool {
        let Participant { guid, nodes, .. } = message;
        if self.nodes.len() < MAX_PARTICIPANTS || self.nodes.contains_key(&guid) {
            self.nodes.insert(guid, nodes);
        }
        !std::mem::replace(&mut self.notified, true)
    }

    /// The actor has been notified.
    pub fn on_notified(&mut self) {
        self.notified = false;
    }

    /// The nodes with endpoints that exist. Tautline's endpoints are not known, so that its nodes are
    /// not among them.
    fn nodes(&self, topics: &Endpoints, services: &Endpoints) -> Nodes {
        let mut all = Nodes::new();
        for node in self.nodes.values().flatten() {
            let mut shown = Shown::default();
            let mut exists = false;
            for guid in node.readers.iter().chain(&node.writers) {
                let known = topics.get(guid).or_else(|| services.get(guid));
                exists |= known.is_some();
                match known {
                    Some((name, Role::Publisher)) => drop(shown.publishes.insert(name.to_owned())),
                    Some((name, Role::RequestReader)) => drop(shown.serves.insert(name.to_owned())),
                    _ => {}
                }
            }
            if exists {
                all.insert(full_name(node), shown);
            }
        }
        all
    }

    fn names(&self) -> BTreeSet<String> {
        self.nodes.values().flatten().map(full_name).collect()
    }
}

fn full_name(node: &Node) -> String {
    format!("{}/{}", node.namespace.trim_end_matches('/'), node.name)
}

/// What is reported of this domain, as last reported.
#[derive(Debug, Default)]
pub struct Reports {
    wanted: bool,
    reported: Option<Nodes>,
    due: Option<Instant>,
}

impl Reports {
    pub fn want(&mut self, wanted: bool) {
        if wanted != self.wanted {
            *self = Self { wanted, reported: None, due: wanted.then(Instant::now) };
        }
    }

    /// Nodes or endpoints may have changed.
    pub fn on_change(&mut self) {
        if self.wanted {
            self.due.get_or_insert_with(|| Instant::now() + PERIOD);
        }
    }

    pub fn next_due(&self) -> Option<Instant> {
        self.due
    }

    /// Returns the nodes if a report is due and they have changed.
    pub fn take(
        &mut self,
        announced: &Announced,
        topics: &Endpoints,
        services: &Endpoints,
    ) -> Option<Nodes> {
        self.due.take_if(|due| *due <= Instant::now())?;
        let nodes = announced.nodes(topics, services);
        if self.reported.as_ref() == Some(&nodes) {
            return None;
        }
        self.reported = Some(nodes.clone());
        Some(nodes)
    }
}

/// Our endpoints by the names of their topics and services.
pub struct OwnEndpoints {
    pub writers: BTreeMap<String, Vec<Guid>>,
    pub servers: BTreeMap<String, EndpointGuids>,
}

/// The nodes of peers that are shown here.
#[derive(Debug, Default)]
pub struct StandIns(BTreeMap<u32, Nodes>);

impl StandIns {
    pub fn set(&mut self, peer: u32, nodes: Nodes) {
        self.0.insert(peer, nodes);
        self.0.retain(|_, nodes| !nodes.is_empty());
    }

    /// The nodes to announce, with the endpoints that they take from ours. Nodes with the name of a
    /// local node are left out.
    pub fn announce(&self, own: &mut OwnEndpoints, announced: &Announced) -> Vec<Node> {
        let local = announced.names();
        let mut nodes = Vec::new();
        for (full, shown) in self.0.values().flatten().filter(|(name, _)| !local.contains(*name)) {
            let (namespace, name) = split_node_name(full);
            let mut node = Node { namespace, name, ..Node::default() };
            for topic in &shown.publishes {
                node.writers.extend(own.writers.remove(topic).unwrap_or_default());
            }
            for service in &shown.serves {
                if let Some(EndpointGuids { reader, writer }) = own.servers.remove(service) {
                    node.readers.push(reader);
                    node.writers.push(writer);
                }
            }
            nodes.push(node);
        }
        nodes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stand_ins_take_our_endpoints_once_and_no_name_of_a_local_node() {
        let mut stand_ins = StandIns::default();
        let shown = |topic: &str| Shown {
            publishes: [topic.to_owned()].into(),
            serves: ["/r/s".to_owned()].into(),
        };
        let nodes = ["/r/a", "/r/b", "/r/c"].map(|name| (name.to_owned(), shown("/r/t")));
        stand_ins.set(1, nodes.into());
        let mut announced = Announced::default();
        let local = Node { namespace: "/r".into(), name: "b".into(), ..Node::default() };
        let gid_bytes = super::super::graph::GidBytes::Sixteen;
        announced.on_message(Participant { guid: [9; 16], nodes: vec![local], gid_bytes });
        let mut own = OwnEndpoints {
            writers: [("/r/t".to_owned(), vec![[1; 16]])].into(),
            servers: [("/r/s".to_owned(), EndpointGuids { reader: [2; 16], writer: [3; 16] })]
                .into(),
        };
        let nodes = stand_ins.announce(&mut own, &announced);
        let a = Node {
            namespace: "/r".into(),
            name: "a".into(),
            readers: vec![[2; 16]],
            writers: vec![[1; 16], [3; 16]],
        };
        let c = Node { namespace: "/r".into(), name: "c".into(), ..Node::default() };
        assert_eq!(nodes, [a, c]);
        assert!(own.writers.is_empty() && own.servers.is_empty());
        stand_ins.set(1, Nodes::new());
        assert!(stand_ins.announce(&mut own, &announced).is_empty());
    }
}
