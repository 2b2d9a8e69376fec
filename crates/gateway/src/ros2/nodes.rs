// SPDX-License-Identifier: Apache-2.0
//! Nodes of this domain for peers, and nodes of peers in this domain. The latter are further nodes of
//! our participant, each with the endpoints that we have on behalf of the peer's node.

use super::endpoints::{Endpoints, Role};
use super::graph::{self, Node};
use super::names::{is_of_tautline, split_node_name};
use super::served::EndpointGuids;
use crate::description::{MAX_NODES, Nodes};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use tautline_dds::{DiscoveryEvent, Guid};

/// Maximum number of participants whose nodes are kept; nodes of further participants are not shown to
/// peers. A domain has ports for 120.
const MAX_PARTICIPANTS: usize = 1024;
/// Time after the start in which nodes are discovered. A report before its end would lack nodes that
/// a peer has shown since before our restart.
const DISCOVERY_GRACE: Duration = Duration::from_secs(3);
/// Least time between two reports of the nodes of this domain.
const PERIOD: Duration = Duration::from_millis(500);

/// The nodes of this domain, as their participants announce them. The writer of a message identifies
/// its participant, whatever the message says. Participants of Tautline are ignored: if two of them
/// showed one node, each would leave it to the other.
#[derive(Debug, Default)]
pub struct AnnouncedNodes {
    participants: BTreeMap<GuidPrefix, Announcer>,
    notified: bool,
}

/// The part of a GUID that all endpoints of a participant share.
type GuidPrefix = [u8; 12];

#[derive(Debug)]
struct Announcer {
    writer: Guid,
    nodes: Vec<Node>,
}

impl AnnouncedNodes {
    /// Follows the writers of the graph. Cyclone DDS reports a writer before its first message, and its
    /// end also when the lease of its participant ends. `true`: notify the actor, once for any number
    /// of changes.
    pub fn on_event(&mut self, event: &DiscoveryEvent) -> bool {
        match event {
            DiscoveryEvent::Writer(it)
                if it.topic == graph::TOPIC && !is_of_tautline(&it.qos.user_data) =>
            {
                let (participant_prefix, is_full) =
                    (guid_prefix(&it.guid), self.participants.len() >= MAX_PARTICIPANTS);
                let known = self.participants.get(&participant_prefix);
                // A participant has one writer; a later one replaces it.
                if known.map_or(!is_full, |known| known.writer != it.guid) {
                    let announcer = Announcer { writer: it.guid, nodes: Vec::new() };
                    self.participants.insert(participant_prefix, announcer);
                }
                false
            }
            DiscoveryEvent::WriterGone { guid } if self.announcer(guid).is_some() => {
                self.participants.remove(&guid_prefix(guid));
                self.mark_notified()
            }
            _ => false,
        }
    }

    /// Keeps the nodes in a message of this writer; `true`: notify the actor.
    pub fn on_message(&mut self, writer: &Guid, nodes: Vec<Node>) -> bool {
        let Some(known) = self.announcer(writer).filter(|it| it.nodes != nodes) else {
            return false;
        };
        known.nodes = nodes;
        self.mark_notified()
    }

    fn announcer(&mut self, writer: &Guid) -> Option<&mut Announcer> {
        self.participants.get_mut(&guid_prefix(writer)).filter(|it| it.writer == *writer)
    }

    fn mark_notified(&mut self) -> bool {
        !std::mem::replace(&mut self.notified, true)
    }

    /// Records that the actor has been notified.
    pub fn on_notified(&mut self) {
        self.notified = false;
    }

    /// Returns the nodes, each with those of its endpoints that exist and belong to its participant. A
    /// participant with many nodes does not displace others: every participant's first node comes before
    /// any second one.
    fn nodes(&self, topics: &Endpoints, services: &Endpoints) -> Nodes {
        let mut all = Nodes::new();
        let mut left: Vec<_> = self
            .participants
            .iter()
            .map(|(participant_prefix, it)| (participant_prefix, it.nodes.iter()))
            .collect();
        while !left.is_empty() {
            left.retain_mut(|(participant_prefix, nodes)| {
                let Some(node) = nodes.next().filter(|_| all.len() < MAX_NODES) else {
                    return false;
                };
                for guid in node.readers.iter().chain(&node.writers) {
                    let known = topics.get(guid).or_else(|| services.get(guid));
                    let Some((name, role)) =
                        known.filter(|_| guid_prefix(guid) == **participant_prefix)
                    else {
                        continue;
                    };
                    let shown = all.entry(full_name(node)).or_default();
                    match role {
                        Role::Publisher => drop(shown.publishes.insert(name.to_owned())),
                        Role::RequestReader => drop(shown.serves.insert(name.to_owned())),
                        _ => {}
                    }
                }
                true
            });
        }
        all
    }

    fn names(&self) -> BTreeSet<String> {
        self.participants.values().flat_map(|it| &it.nodes).map(full_name).collect()
    }
}

fn guid_prefix(guid: &Guid) -> GuidPrefix {
    std::array::from_fn(|byte| guid[byte])
}

fn full_name(node: &Node) -> String {
    format!("{}/{}", node.namespace.trim_end_matches('/'), node.name)
}

/// The last report of this domain, and the time of the next one.
#[derive(Debug, Default)]
pub struct Reports {
    wanted: bool,
    reported: Option<Nodes>,
    due: Option<Instant>,
}

impl Reports {
    /// Sets whether a peer wants reports from now on. `started` is the start of the gateway.
    pub fn set_wanted(&mut self, wanted: bool, started: Instant) {
        if wanted != self.wanted {
            let due = wanted.then(|| Instant::now().max(started + DISCOVERY_GRACE));
            *self = Self { wanted, reported: None, due };
        }
    }

    /// Records that nodes or endpoints may have changed.
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
        announced: &AnnouncedNodes,
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

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The nodes to announce, with the endpoints that they take from ours. Nodes with the name of a
    /// local node are left out.
    pub fn announce(&self, own: &mut OwnEndpoints, announced: &AnnouncedNodes) -> Vec<Node> {
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
    use crate::description::NodeInfo;
    use tautline_dds::{Endpoint, Qos};

    /// An endpoint of a participant.
    fn guid(participant: usize, endpoint: usize) -> Guid {
        let mut guid = [0; 16];
        guid[..8].copy_from_slice(&participant.to_be_bytes());
        guid[14..].copy_from_slice(&(endpoint as u16).to_be_bytes());
        guid
    }

    fn writer(guid: Guid, topic: &str) -> DiscoveryEvent {
        let (topic, type_name, keyless) = (topic.into(), "a::msg::dds_::B_".into(), true);
        DiscoveryEvent::Writer(Endpoint { guid, topic, type_name, keyless, qos: Qos::default() })
    }

    fn node(name: &str, writers: Vec<Guid>) -> Node {
        Node { namespace: "/r".into(), name: name.into(), writers, ..Node::default() }
    }

    /// A domain in which each participant has these nodes, each with one publisher of `/t`.
    struct Domain {
        announced: AnnouncedNodes,
        topics: Endpoints,
    }

    impl Domain {
        fn new() -> Self {
            Self { announced: AnnouncedNodes::default(), topics: Endpoints::for_topics() }
        }

        fn add(&mut self, participant: usize, names: &[String]) {
            let graph_writer = guid(participant, 0);
            self.announced.on_event(&writer(graph_writer, graph::TOPIC));
            let nodes = names.iter().zip(1..).map(|(name, number)| {
                self.topics.on_event(&writer(guid(participant, number), "rt/t"));
                node(name, vec![guid(participant, number)])
            });
            self.announced.on_message(&graph_writer, nodes.collect());
        }

        fn shown_nodes(&self) -> Nodes {
            self.announced.nodes(&self.topics, &Endpoints::for_services())
        }
    }

    #[test]
    fn ended_participants_are_removed() {
        let mut domain = Domain::new();
        for participant in 0..3 * MAX_PARTICIPANTS {
            domain.add(participant, &[format!("n{participant}")]);
            assert!(
                domain.shown_nodes().contains_key(&format!("/r/n{participant}")),
                "{participant}"
            );
            assert!(!domain.announced.names().is_empty());
            domain.announced.on_notified();
            let gone = DiscoveryEvent::WriterGone { guid: guid(participant, 0) };
            assert!(domain.announced.on_event(&gone), "the actor is notified");
            assert!(domain.announced.names().is_empty() && domain.shown_nodes().is_empty());
            // A message that is read late, and another end of the same writer.
            domain.announced.on_message(&guid(participant, 0), vec![node("late", Vec::new())]);
            assert!(!domain.announced.on_event(&gone) && domain.announced.names().is_empty());
        }
    }

    #[test]
    fn a_participant_is_listed_once_with_only_its_endpoints() {
        let mut domain = Domain::new();
        domain.add(1, &["honest".into()]);
        for number in 100..100 + 2 * MAX_PARTICIPANTS {
            let graph_writer = guid(2, number);
            domain.announced.on_event(&writer(graph_writer, graph::TOPIC));
            domain.announced.on_message(&graph_writer, vec![node("liar", vec![guid(1, 1)])]);
        }
        domain.add(3, &["later".into()]);
        assert_eq!(domain.shown_nodes().into_keys().collect::<Vec<_>>(), ["/r/honest", "/r/later"]);
        // A participant cannot take over the name of another participant's node.
        domain
            .announced
            .on_message(&guid(2, 99 + 2 * MAX_PARTICIPANTS), vec![node("honest", vec![])]);
        assert_eq!(domain.shown_nodes()["/r/honest"].publishes, ["/t".to_owned()].into());
    }

    #[test]
    fn nothing_is_reported_before_discovery() {
        let (mut reports, now) = (Reports::default(), Instant::now());
        reports.set_wanted(true, now);
        reports.on_change();
        assert_eq!(reports.next_due(), Some(now + DISCOVERY_GRACE));
        reports.set_wanted(false, now);
        reports.set_wanted(true, now - DISCOVERY_GRACE);
        assert!(reports.next_due() < Some(now + DISCOVERY_GRACE), "at once");
    }

    #[test]
    fn many_nodes_of_a_participant_do_not_exclude_others() {
        let mut domain = Domain::new();
        domain.add(1, &(0..2 * MAX_NODES).map(|number| format!("a{number}")).collect::<Vec<_>>());
        domain.add(2, &["z".into(), "y".into()]);
        let shown = domain.shown_nodes();
        assert!(shown.contains_key("/r/z") && shown.contains_key("/r/y"));
        assert_eq!(shown.len(), MAX_NODES);
        domain.add(1, &["a".into()]);
        assert_eq!(domain.shown_nodes().len(), 3, "what a message lacks is forgotten");
    }

    #[test]
    fn stand_ins_own_our_endpoints_and_avoid_names_of_local_nodes() {
        let mut stand_ins = StandIns::default();
        let shown = |topic: &str| NodeInfo {
            publishes: [topic.to_owned()].into(),
            serves: ["/r/s".to_owned()].into(),
        };
        let nodes = ["/r/a", "/r/b", "/r/c"].map(|name| (name.to_owned(), shown("/r/t")));
        stand_ins.set(1, nodes.into());
        let mut domain = Domain::new();
        domain.add(9, &["b".into()]);
        let mut own = OwnEndpoints {
            writers: [("/r/t".to_owned(), vec![[1; 16]])].into(),
            servers: [("/r/s".to_owned(), EndpointGuids { reader: [2; 16], writer: [3; 16] })]
                .into(),
        };
        let nodes = stand_ins.announce(&mut own, &domain.announced);
        let readers = vec![[2; 16]];
        let a = Node { readers, ..node("a", vec![[1; 16], [3; 16]]) };
        assert_eq!(nodes, [a, node("c", Vec::new())]);
        assert!(own.writers.is_empty() && own.servers.is_empty());
        stand_ins.set(1, Nodes::new());
        assert!(stand_ins.announce(&mut own, &domain.announced).is_empty());
    }
}
