// SPDX-License-Identifier: Apache-2.0
//! Queries that take several calls: what a node publishes or serves, whether it is alive, and
//! whether a local node uses a topic with another type.

use super::connection::{ConnectError, Identity};
use super::master::{Master, Snapshot, Types};
use super::probed::{CheckResult, LocatedPublisher, ProbeResult};
use super::shown::{for_logs, name_with_type};
use super::xmlrpc::{self, CallError, MAX_LIST_BYTES, MAX_REPLY_BYTES, pairs, string_value};
use crate::Topic;
use dxr::Value;
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// Maximum number of nodes queried for their type before a topic is published.
const MAX_QUERIED: usize = 16;
/// Maximum number of concurrent queries of this kind for all topics: each response may be a whole list.
const MAX_QUERIES: usize = 16;

#[derive(Clone)]
pub(super) struct Prober {
    pub master: Arc<Master>,
    pub identity: Identity,
    pub own_uri: String,
    queries: Arc<Semaphore>,
}

/// A node that also uses a topic, as the master lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum User {
    Publisher(String),
    Subscriber(String),
}

/// The nodes other than `own_name` to query before publishing `topic`: its publishers, and its
/// subscribers where the master has another type for it or reports no types.
pub(super) fn nodes_to_query(snapshot: &Snapshot, topic: &Topic, own_name: &str) -> Vec<User> {
    let others = |nodes: Option<&BTreeSet<String>>| -> Vec<String> {
        nodes.into_iter().flatten().filter(|node| *node != own_name).cloned().collect()
    };
    let publishers = others(snapshot.publishers.get(&topic.name)).into_iter();
    let mut users: Vec<User> = publishers.map(User::Publisher).collect();
    let differs =
        |types: &Types| types.get(&topic.name).is_some_and(|name| *name != topic.type_name);
    if snapshot.types.as_ref().is_none_or(differs) {
        let subscribers = others(snapshot.subscribers.get(&topic.name)).into_iter();
        users.extend(subscribers.map(User::Subscriber));
    }
    users.truncate(MAX_QUERIED);
    users
}

impl Prober {
    pub fn new(master: Arc<Master>, identity: Identity, own_uri: String) -> Self {
        Self { master, identity, own_uri, queries: Arc::new(Semaphore::new(MAX_QUERIES)) }
    }

    /// Locates a publisher and reads the type that it publishes.
    pub async fn probe_publisher(
        &self,
        topic: &str,
        node: &str,
        is_retry: bool,
    ) -> ProbeResult<LocatedPublisher> {
        ProbeResult::run(is_retry, self.probe(topic, node)).await
    }

    async fn probe(&self, topic: &str, node: &str) -> Result<LocatedPublisher, ConnectError> {
        let uri = self.master.lookup_node(node).await?;
        if uri == self.own_uri {
            return Err(ConnectError::Tautline(self.identity.tautline_name.clone()));
        }
        let description = self.identity.probe(&uri, topic).await?;
        Ok(LocatedPublisher { uri, description })
    }

    /// Queries the node itself, at the address that the master lists or where the node was last seen.
    pub async fn check(&self, node: &str, uri: String) -> CheckResult {
        let uri = self.master.lookup_node(node).await.unwrap_or(uri);
        match self.call(&uri, "getPublications", MAX_LIST_BYTES).await {
            Ok(topics) => {
                CheckResult::Publishes { uri, topics: pairs(&topics).into_iter().collect() }
            }
            Err(error) if error.is_connection_refused() => CheckResult::Gone,
            Err(error) if error.is_response() => CheckResult::Responds,
            Err(_) => CheckResult::Silent,
        }
    }

    /// The URI of a live node that has our name.
    pub async fn namesake(&self) -> Option<String> {
        self.other_node(&self.identity.node_name).await
    }

    /// The URI of a live node of another process that has this name.
    pub async fn other_node(&self, name: &str) -> Option<String> {
        let uri = self.master.lookup_node(name).await.ok()?;
        if uri == self.own_uri {
            return None;
        }
        self.call(&uri, "getPid", MAX_REPLY_BYTES).await.is_ok().then_some(uri)
    }

    /// Whether a live node of another process may have this name. Returns `false` only after an answer of
    /// the master or a refused connection.
    pub async fn may_be_taken(&self, name: &str) -> bool {
        match self.master.lookup_node(name).await {
            Ok(uri) if uri == self.own_uri => false,
            Ok(uri) => {
                let found = self.call(&uri, "getPid", MAX_REPLY_BYTES).await;
                !found.is_err_and(|error| error.is_connection_refused())
            }
            Err(error) => !error.is_response(),
        }
    }

    /// Calls a method of a slave API whose only parameter is our name.
    async fn call(
        &self,
        uri: &str,
        method: &'static str,
        max_bytes: usize,
    ) -> Result<Value, CallError> {
        xmlrpc::call(uri, method, vec![string_value(&self.identity.node_name)], max_bytes).await
    }

    /// Describes a use of `topic` with another type, for a person.
    pub async fn conflict(&self, topic: &Topic, users: Vec<User>) -> Option<String> {
        let mut queries = JoinSet::new();
        for user in users {
            let (prober, topic) = (self.clone(), topic.clone());
            queries.spawn(async move { prober.conflict_with(&topic, user).await });
        }
        queries.join_all().await.into_iter().filter_map(Result::ok).flatten().min()
    }

    /// The conflict with one node. A node that does not respond is no conflict.
    async fn conflict_with(
        &self,
        topic: &Topic,
        user: User,
    ) -> Result<Option<String>, ConnectError> {
        // The semaphore is never closed.
        let _permit = self.queries.acquire().await;
        let theirs = match &user {
            User::Publisher(node) => {
                let uri = self.master.lookup_node(node).await?;
                let found = self.identity.probe(&uri, &topic.name).await?.version;
                if found.md5 == topic.type_hash {
                    return Ok(None);
                }
                let [node, name, md5] = [node, &found.name, &found.md5].map(|text| for_logs(text));
                format!("{node} publishes it as {name} (md5 {md5})")
            }
            User::Subscriber(node) => match self.subscribed_type(node, &topic.name).await? {
                Some(theirs) if theirs != topic.type_name && theirs != "*" => {
                    format!("{} subscribes to it as {}", for_logs(node), for_logs(&theirs))
                }
                _ => return Ok(None),
            },
        };
        let topic = name_with_type(&topic.name, &topic.type_name, &topic.type_hash);
        Ok(Some(format!("{topic} is not published at this master: {theirs}")))
    }

    async fn subscribed_type(&self, node: &str, topic: &str) -> Result<Option<String>, CallError> {
        let uri = self.master.lookup_node(node).await?;
        let topics = pairs(&self.call(&uri, "getSubscriptions", MAX_LIST_BYTES).await?);
        Ok(topics.into_iter().find(|(name, _)| name == topic).map(|(_, type_name)| type_name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Qos;
    use std::collections::BTreeMap;

    #[test]
    fn subscribers_are_queried_unless_the_master_lists_the_same_type() {
        let topic = Topic {
            name: "/scan".into(),
            type_name: "a/Scan".into(),
            type_hash: "11".into(),
            definition: "".into(),
            qos: Qos::default(),
        };
        let of = |node: &str| BTreeMap::from([("/scan".to_owned(), [node.to_owned()].into())]);
        let queried = |type_name: Option<&str>| {
            let types = type_name.map(|it| BTreeMap::from([("/scan".to_owned(), it.to_owned())]));
            let [publishers, subscribers] = ["/a", "/b"].map(of);
            nodes_to_query(
                &Snapshot { publishers, subscribers, types, ..Snapshot::default() },
                &topic,
                "/us",
            )
        };
        let [one, both] = [1, 2].map(|many| {
            [User::Publisher("/a".into()), User::Subscriber("/b".into())][..many].to_vec()
        });
        assert_eq!(queried(Some("a/Scan")), one);
        assert_eq!(queried(Some("b/Scan")), both);
        assert_eq!(queried(None), both, "the master reports no types");
    }
}
