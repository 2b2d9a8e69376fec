// SPDX-License-Identifier: Apache-2.0
//! Nodes of peers that are shown at this master. A stand-in is a further name of ours: the topics
//! and services of the peer's node are registered under it, at our own address. A topic has one
//! registration only, since a subscriber would connect to each.
//!
//! The master ends the older of two nodes with one name. A stand-in therefore never takes the name
//! of a live local node, and gives way when such a node starts.

use super::master::{NodesByName, Role, Snapshot};
use crate::description::Nodes;
use std::collections::{BTreeMap, BTreeSet};

/// A service that each node of rospy and roscpp has. A stand-in without other registrations has this
/// one, because the master lists only nodes with one.
const PRESENCE: &str = "get_loggers";

/// A registration that the master lists under one of our names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Listed {
    pub role: Role,
    pub name: String,
    pub caller: String,
}

#[derive(Debug, Default)]
pub(super) struct StandIns {
    by_peer: BTreeMap<u32, Nodes>,
    /// Stand-ins under which something is registered.
    held: BTreeSet<String>,
    publishers: BTreeMap<String, String>,
    servers: BTreeMap<String, String>,
    /// Services that only show that a stand-in is there.
    presences: BTreeSet<String>,
}

impl StandIns {
    /// Shows the nodes of a peer; returns the services whose only purpose was or is to show one.
    pub fn set(&mut self, peer: u32, nodes: Nodes) -> BTreeSet<String> {
        self.by_peer.insert(peer, nodes);
        self.by_peer.retain(|_, nodes| !nodes.is_empty());
        self.publishers.clear();
        self.servers.clear();
        let before = std::mem::take(&mut self.presences);
        for (node, shown) in self.by_peer.values().flatten() {
            for topic in &shown.publishes {
                self.publishers.entry(topic.clone()).or_insert_with(|| node.clone());
            }
            let presence = format!("{node}/{PRESENCE}");
            for service in shown.serves.iter().chain([&presence]) {
                self.servers.entry(service.clone()).or_insert_with(|| node.clone());
            }
            self.presences.insert(presence);
        }
        &before | &self.presences
    }

    /// The stand-in under which a topic or service is registered, if there is one.
    pub fn caller(&self, role: Role, name: &str) -> Option<&String> {
        match role {
            Role::Publisher => self.publishers.get(name),
            Role::Service => self.servers.get(name),
            Role::Subscriber => None,
        }
    }

    /// Whether a service shows that a stand-in is there.
    pub fn is_presence(&self, service: &str) -> bool {
        self.presences.contains(service)
    }

    /// Something is registered under this name.
    pub fn hold(&mut self, caller: &str) {
        self.held.insert(caller.to_owned());
    }

    /// These names belong to other nodes now, or nothing is registered under them.
    pub fn release(&mut self, names: &[String]) {
        self.held.retain(|name| !names.contains(name));
    }

    pub fn held(&self) -> &BTreeSet<String> {
        &self.held
    }

    /// Replaces stand-ins in a snapshot by `own`, so that discovery does not take them for local
    /// nodes; returns what the master lists under any of our names.
    pub fn merge(&self, snapshot: &mut Snapshot, own: &str) -> Vec<Listed> {
        let mut listed = Vec::new();
        let Snapshot { publishers, subscribers, services, .. } = snapshot;
        for (role, all) in Role::ALL.into_iter().zip([publishers, subscribers, services]) {
            self.merge_role(role, all, own, &mut listed);
        }
        listed
    }

    fn merge_role(&self, role: Role, all: &mut NodesByName, own: &str, listed: &mut Vec<Listed>) {
        for (name, nodes) in all {
            let is_ours = |node: &&String| *node == own || self.held.contains(*node);
            let ours: Vec<String> = nodes.iter().filter(is_ours).cloned().collect();
            for caller in ours {
                nodes.remove(&caller);
                listed.push(Listed { role, name: name.clone(), caller });
                nodes.insert(own.to_owned());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::description::Shown;

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|it| (*it).to_owned()).collect()
    }

    #[test]
    fn a_topic_has_one_stand_in_and_each_stand_in_a_service() {
        let mut stand_ins = StandIns::default();
        let shown = |topics: &[&str]| Shown { publishes: set(topics), ..Shown::default() };
        let nodes = [("/r/a", &["/r/x", "/r/y"][..]), ("/r/b", &["/r/y"])];
        let nodes = nodes.map(|(name, topics)| (name.to_owned(), shown(topics)));
        let changed = stand_ins.set(1, nodes.into());
        assert_eq!(changed, set(&["/r/a/get_loggers", "/r/b/get_loggers"]));
        let caller = |it: &StandIns, role, name: &str| it.caller(role, name).cloned();
        assert_eq!(caller(&stand_ins, Role::Publisher, "/r/y").as_deref(), Some("/r/a"));
        assert_eq!(caller(&stand_ins, Role::Service, "/r/b/get_loggers").as_deref(), Some("/r/b"));
        assert_eq!(caller(&stand_ins, Role::Publisher, "/z"), None);
        assert_eq!(stand_ins.set(1, Nodes::new()), changed);
        assert!(!stand_ins.is_presence("/r/a/get_loggers"));
    }

    #[test]
    fn only_names_that_we_hold_are_ours_in_a_snapshot() {
        let mut stand_ins = StandIns::default();
        stand_ins.hold("/r/a");
        let nodes = set(&["/r/a", "/r/b", "/us"]);
        let mut snapshot =
            Snapshot { publishers: [("/t".into(), nodes)].into(), ..Snapshot::default() };
        let listed = stand_ins.merge(&mut snapshot, "/us");
        assert_eq!(snapshot.publishers["/t"], set(&["/r/b", "/us"]));
        let callers: Vec<_> = listed.iter().map(|it| it.caller.as_str()).collect();
        assert_eq!(callers, ["/r/a", "/us"]);
        stand_ins.release(&["/r/a".into()]);
        assert!(stand_ins.held().is_empty());
    }
}
