// SPDX-License-Identifier: Apache-2.0
//! Questions that take several calls: what a node publishes, whether it lives,
//! and whether someone here uses a topic with another type.

use super::connection::{ConnectError, Identity};
use super::discovery::{Checked, Probed, Work};
use super::master::{Master, Snapshot, Types};
use super::publication::typed;
use super::shown;
use super::xmlrpc::{self, CallError, MAX_LIST_BYTES, MAX_REPLY_BYTES, pairs, text};
use crate::Topic;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Nodes asked for the type they use before a topic is published.
const MAX_ASKED: usize = 16;
/// Nodes asked for that at once, for all topics: each may answer with a whole list.
const MAX_QUESTIONS: usize = 16;

/// How long the first probe may take: who does not answer holds a place among the new for so
/// long, and waits with those that failed from then on.
const FIRST_PATIENCE: Duration = Duration::from_secs(1);
/// Why such a probe failed.
pub(super) const NOT_AT_ONCE: &str = "no answer to the first probe within 1 s";

/// What `probe` finds; `None` if it is the first one and takes too long.
pub(super) async fn patiently<T>(again: bool, probe: impl Future<Output = T>) -> Option<T> {
    match again {
        true => Some(probe.await),
        false => timeout(FIRST_PATIENCE, probe).await.ok(),
    }
}

/// Whoever asks.
#[derive(Clone)]
pub(super) struct Inquirer {
    pub master: Arc<Master>,
    pub identity: Identity,
    pub own_uri: String,
    questions: Arc<Semaphore>,
}

/// The answer to one piece of work.
pub(super) enum Found {
    Probed { topic: String, node: String, found: Probed },
    Checked { node: String, found: Checked },
}

/// A node that also uses a topic, as the master lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum User {
    Publisher(String),
    Subscriber(String),
}

/// The nodes other than `own_name` to ask before publishing `topic`: its
/// publishers; its subscribers only where the master has another type for it, or cannot tell.
pub(super) fn users(snapshot: &Snapshot, topic: &Topic, own_name: &str) -> Vec<User> {
    let others = |nodes: Option<&std::collections::BTreeSet<String>>| -> Vec<String> {
        nodes.into_iter().flatten().filter(|node| *node != own_name).cloned().collect()
    };
    let publishers = others(snapshot.publishers.get(&topic.name)).into_iter();
    let mut users: Vec<User> = publishers.map(User::Publisher).collect();
    let other = |types: &Types| types.get(&topic.name).is_some_and(|it| *it != topic.type_name);
    if snapshot.types.as_ref().is_none_or(other) {
        let subscribers = others(snapshot.subscribers.get(&topic.name)).into_iter();
        users.extend(subscribers.map(User::Subscriber));
    }
    users.truncate(MAX_ASKED);
    users
}

impl Inquirer {
    pub fn new(master: Arc<Master>, identity: Identity, own_uri: String) -> Self {
        Self { master, identity, own_uri, questions: Arc::new(Semaphore::new(MAX_QUESTIONS)) }
    }

    /// Finds out what `work` asks.
    pub async fn find_out(&self, work: Work) -> Found {
        match work {
            Work::Probe { topic, node, again } => {
                let found = patiently(again, self.probe(&topic, &node)).await;
                let found = found.unwrap_or(Probed::Failed { reason: NOT_AT_ONCE.into() });
                Found::Probed { topic, node, found }
            }
            Work::Check { node, uri } => {
                let found = self.check(&node, uri).await;
                Found::Checked { node, found }
            }
        }
    }

    async fn probe(&self, topic: &str, node: &str) -> Probed {
        let uri = match self.master.lookup_node(node).await {
            Ok(uri) if uri == self.own_uri => return Probed::Foreign,
            Ok(uri) => uri,
            Err(error) => return Probed::Failed { reason: error.to_string() },
        };
        match self.identity.probe(&uri, topic).await {
            Ok(description) => Probed::Publisher { uri, description },
            Err(ConnectError::Tautline(_)) => Probed::Foreign,
            Err(error) => Probed::Failed { reason: error.to_string() },
        }
    }

    /// Asks the node itself, where the master knows it or where it was last seen.
    async fn check(&self, node: &str, uri: String) -> Checked {
        let uri = self.master.lookup_node(node).await.unwrap_or(uri);
        let params = vec![text(&self.identity.node_name)];
        match xmlrpc::call(&uri, "getPublications", params, MAX_LIST_BYTES).await {
            Ok(topics) => Checked::Publishes { uri, topics: pairs(&topics).into_iter().collect() },
            Err(error) if error.nobody_there() => Checked::Gone,
            Err(error) if error.answered() => Checked::Answers,
            Err(_) => Checked::Silent,
        }
    }

    /// Where a live node is that goes by our name, if any.
    pub async fn namesake(&self) -> Option<String> {
        let uri = self.master.lookup_node(&self.identity.node_name).await.ok()?;
        if uri == self.own_uri {
            return None;
        }
        let params = vec![text(&self.identity.node_name)];
        let answer = xmlrpc::call(&uri, "getPid", params, MAX_REPLY_BYTES).await;
        answer.is_ok().then_some(uri)
    }

    /// Who uses `topic` with another type, for a person; nobody if `None`.
    pub async fn conflict(&self, topic: &Topic, users: Vec<User>) -> Option<String> {
        let mut asked = JoinSet::new();
        for user in users {
            let (inquirer, topic) = (self.clone(), topic.clone());
            asked.spawn(async move { inquirer.conflict_with(&topic, user).await });
        }
        let mut conflicts: Vec<String> =
            asked.join_all().await.into_iter().filter_map(Result::ok).flatten().collect();
        conflicts.sort();
        conflicts.into_iter().next()
    }

    /// A node that does not answer is no conflict.
    async fn conflict_with(
        &self,
        topic: &Topic,
        user: User,
    ) -> Result<Option<String>, ConnectError> {
        // Fails only if it were closed.
        let _asking = self.questions.acquire().await;
        let theirs = match &user {
            User::Publisher(node) => {
                let uri = self.master.lookup_node(node).await?;
                let found = self.identity.probe(&uri, &topic.name).await?;
                if found.md5 == topic.type_hash {
                    return Ok(None);
                }
                let [node, theirs, md5] = [node, &found.type_name, &found.md5].map(|it| shown(it));
                format!("{node} publishes it as {theirs} (md5 {md5})")
            }
            User::Subscriber(node) => match self.subscribed_type(node, &topic.name).await? {
                Some(theirs) if theirs != topic.type_name && theirs != "*" => {
                    format!("{} subscribes to it as {}", shown(node), shown(&theirs))
                }
                _ => return Ok(None),
            },
        };
        let topic = typed(&topic.name, &topic.type_name, &topic.type_hash);
        Ok(Some(format!("{topic} is not published at this master: {theirs}")))
    }

    async fn subscribed_type(&self, node: &str, topic: &str) -> Result<Option<String>, CallError> {
        let uri = self.master.lookup_node(node).await?;
        let params = vec![text(&self.identity.node_name)];
        let listed = xmlrpc::call(&uri, "getSubscriptions", params, MAX_LIST_BYTES).await?;
        let topics = pairs(&listed);
        Ok(topics.into_iter().find(|(name, _)| name == topic).map(|(_, type_name)| type_name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Qos;
    use std::collections::BTreeMap;

    #[test]
    fn subscribers_are_asked_unless_the_master_has_the_same_type() {
        let topic = Topic {
            name: "/scan".into(),
            type_name: "a/Scan".into(),
            type_hash: "11".into(),
            definition: "".into(),
            qos: Qos::default(),
        };
        let of = |node: &str| BTreeMap::from([("/scan".to_owned(), [node.to_owned()].into())]);
        let asked = |type_name: Option<&str>| {
            let types = type_name.map(|it| BTreeMap::from([("/scan".to_owned(), it.to_owned())]));
            let [publishers, subscribers] = ["/a", "/b"].map(of);
            users(
                &Snapshot { publishers, subscribers, types, ..Snapshot::default() },
                &topic,
                "/us",
            )
        };
        let [one, both] = [1, 2].map(|many| {
            [User::Publisher("/a".into()), User::Subscriber("/b".into())][..many].to_vec()
        });
        assert_eq!(asked(Some("a/Scan")), one);
        assert_eq!(asked(Some("b/Scan")), both);
        assert_eq!(asked(None), both, "the master cannot tell");
    }
}
