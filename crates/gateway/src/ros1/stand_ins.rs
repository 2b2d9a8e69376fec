// SPDX-License-Identifier: Apache-2.0
//! Nodes of peers that are shown at this master. A stand-in is a further name of ours: the topics
//! and services of the peer's node are registered under it, at our own address. A topic is registered
//! under one stand-in only, since a subscriber would connect to each registration.
//!
//! The master ends the older of two nodes with one name. A stand-in therefore never takes the name of a
//! live local node, and gives up its name when such a node starts.
//!
//! Each stand-in has one more service, its mark. The mark is registered before everything else of the
//! stand-in, and unregistered last. By the mark, other daemons do not take the stand-in for a local
//! node, and the master lists it even if it has nothing else.

use super::master::{NodesByName, Role, Snapshot};
use super::shown::for_logs;
use crate::description::Nodes;
use std::collections::{BTreeMap, BTreeSet};

/// The last part of a mark's name.
const MARK: &str = "/tautline_stand_in";

/// The service that marks a node as a stand-in.
pub(super) fn mark_of(node: &str) -> String {
    format!("{node}{MARK}")
}

/// The stand-in that a service marks.
pub(super) fn marked_by(service: &str) -> Option<&str> {
    service.strip_suffix(MARK)
}

/// Whether a node is a stand-in: it has its mark.
pub(super) fn is_stand_in(snapshot: &Snapshot, node: &str) -> bool {
    snapshot.services.get(&mark_of(node)).is_some_and(|nodes| nodes.contains(node))
}

/// A registration that the master lists under one of our names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ListedRegistration {
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
    marks: BTreeSet<String>,
    /// Stand-ins whose names local nodes have.
    taken: BTreeSet<String>,
}

impl StandIns {
    /// Shows the nodes of a peer.
    pub fn set(&mut self, peer: u32, nodes: Nodes) {
        self.by_peer.insert(peer, nodes);
        self.by_peer.retain(|_, nodes| !nodes.is_empty());
        self.publishers.clear();
        self.servers.clear();
        self.marks.clear();
        for (node, shown) in self.by_peer.values().flatten() {
            for topic in &shown.publishes {
                self.publishers.entry(topic.clone()).or_insert_with(|| node.clone());
            }
            for service in &shown.serves {
                self.servers.entry(service.clone()).or_insert_with(|| node.clone());
            }
            self.marks.insert(mark_of(node));
        }
        self.taken.retain(|node| self.marks.contains(&mark_of(node)));
    }

    /// The stand-in of a topic or service, if there is one.
    pub fn node_of<'a>(&'a self, role: Role, name: &'a str) -> Option<&'a str> {
        match role {
            Role::Publisher => self.publishers.get(name).map(String::as_str),
            Role::Service if self.is_mark(name) => marked_by(name),
            Role::Service => self.servers.get(name).map(String::as_str),
            Role::Subscriber => None,
        }
    }

    /// The marks of all stand-ins.
    pub fn marks(&self) -> impl Iterator<Item = &String> {
        self.marks.iter()
    }

    /// Whether a service is the mark of a stand-in.
    pub fn is_mark(&self, service: &str) -> bool {
        self.marks.contains(service)
    }

    /// Records whether a local node has the name of a stand-in.
    pub fn set_taken(&mut self, node: &str, is_taken: bool) {
        match is_taken {
            true => self.taken.insert(node.to_owned()),
            false => self.taken.remove(node),
        };
    }

    /// The stand-ins that cannot be shown, for a person; or empty.
    pub fn trouble(&self) -> String {
        let Some(first) = self.taken.first() else { return String::new() };
        let (first, count) = (for_logs(first), self.taken.len());
        format!(
            "local nodes have the names of {count} node(s) of peers, which are not shown: {first}"
        )
    }

    /// Records that something is registered under a name.
    pub fn hold(&mut self, caller: &str) {
        self.held.insert(caller.to_owned());
    }

    /// Gives up names that belong to other nodes now, or under which nothing is registered.
    pub fn release(&mut self, names: &[String]) {
        self.held.retain(|name| !names.contains(name));
    }

    pub fn held_names(&self) -> &BTreeSet<String> {
        &self.held
    }

    /// Replaces stand-ins in a snapshot by `own`, so that discovery does not take them for local
    /// nodes; returns what the master lists under any of our names.
    pub fn merge(&self, snapshot: &mut Snapshot, own: &str) -> Vec<ListedRegistration> {
        let mut listed = Vec::new();
        let Snapshot { publishers, subscribers, services, .. } = snapshot;
        for (role, all) in Role::ALL.into_iter().zip([publishers, subscribers, services]) {
            self.merge_role(role, all, own, &mut listed);
        }
        listed
    }

    fn merge_role(
        &self,
        role: Role,
        all: &mut NodesByName,
        own: &str,
        listed: &mut Vec<ListedRegistration>,
    ) {
        for (name, nodes) in all {
            let is_ours = |node: &&String| *node == own || self.held.contains(*node);
            let ours: Vec<String> = nodes.iter().filter(is_ours).cloned().collect();
            for caller in ours {
                nodes.remove(&caller);
                listed.push(ListedRegistration { role, name: name.clone(), caller });
                nodes.insert(own.to_owned());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::description::NodeInfo;

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|it| (*it).to_owned()).collect()
    }

    #[test]
    fn each_topic_has_one_stand_in_and_each_stand_in_a_marker() {
        let mut stand_ins = StandIns::default();
        let shown = |topics: &[&str]| NodeInfo { publishes: set(topics), ..NodeInfo::default() };
        let nodes = [("/r/a", &["/r/x", "/r/y"][..]), ("/r/b", &["/r/y"])];
        let nodes = nodes.map(|(name, topics)| (name.to_owned(), shown(topics)));
        stand_ins.set(1, nodes.into());
        let marks = ["/r/a/tautline_stand_in", "/r/b/tautline_stand_in"];
        assert!(stand_ins.marks().eq(marks.iter()));
        assert_eq!(stand_ins.node_of(Role::Publisher, "/r/y"), Some("/r/a"));
        assert_eq!(stand_ins.node_of(Role::Service, marks[1]), Some("/r/b"));
        assert_eq!(stand_ins.node_of(Role::Publisher, "/z"), None);
        stand_ins.set_taken("/r/b", true);
        assert!(stand_ins.trouble().contains("1 node(s) of peers, which are not shown: /r/b"));
        stand_ins.set(1, Nodes::new());
        assert!(!stand_ins.is_mark(marks[0]) && stand_ins.trouble().is_empty());
    }

    #[test]
    fn only_registered_names_are_ours_in_a_snapshot() {
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
        assert!(stand_ins.held_names().is_empty());
    }
}
