// SPDX-License-Identifier: Apache-2.0
//! The ROS 1 master, as a node calls it (<https://wiki.ros.org/ROS/Master_API>).

use super::xmlrpc::{CALL_TIMEOUT, CallError, Connection, Endpoint, members, pairs, text, texts};
use dxr::Value;
use std::collections::{BTreeMap, BTreeSet};
use tokio::sync::Mutex;
use tokio::time::timeout;

/// Nodes by topic.
pub(super) type NodesByTopic = BTreeMap<String, BTreeSet<String>>;

/// What the master knows at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Snapshot {
    pub publishers: NodesByTopic,
    pub subscribers: NodesByTopic,
    /// Nodes by service; the master keeps one for each.
    pub services: NodesByTopic,
    /// Types as last registered; a topic nobody uses any more may still be in here.
    pub types: BTreeMap<String, String>,
}

/// Calls one master over one connection, opened again when it broke.
pub(super) struct Master {
    endpoint: Endpoint,
    node_name: String,
    own_uri: String,
    /// Where our services are: `rosrpc://HOST:PORT`.
    own_services: String,
    connection: Mutex<Option<Connection>>,
}

impl Master {
    pub fn new(endpoint: Endpoint, node_name: &str, own_uri: &str, own_services: &str) -> Self {
        Self {
            endpoint,
            node_name: node_name.into(),
            own_uri: own_uri.into(),
            own_services: own_services.into(),
            connection: Mutex::new(None),
        }
    }

    pub async fn poll(&self) -> Result<Snapshot, CallError> {
        let state = self.call("getSystemState", vec![]).await?;
        let types = self.call("getTopicTypes", vec![]).await?;
        let part = |index: usize| members(&state).get(index).map(nodes_by_topic);
        Ok(Snapshot {
            publishers: part(0).unwrap_or_default(),
            subscribers: part(1).unwrap_or_default(),
            services: part(2).unwrap_or_default(),
            types: pairs(&types).into_iter().collect(),
        })
    }

    /// Registers; gives the URIs of the topic's publishers.
    pub async fn register_subscriber(
        &self,
        topic: &str,
        type_name: &str,
    ) -> Result<Vec<String>, CallError> {
        let params = vec![text(topic), text(type_name), text(&self.own_uri)];
        Ok(texts(&self.call("registerSubscriber", params).await?))
    }

    pub async fn unregister_subscriber(&self, topic: &str) -> Result<(), CallError> {
        self.call("unregisterSubscriber", vec![text(topic), text(&self.own_uri)]).await.map(drop)
    }

    pub async fn register_publisher(&self, topic: &str, type_name: &str) -> Result<(), CallError> {
        let params = vec![text(topic), text(type_name), text(&self.own_uri)];
        self.call("registerPublisher", params).await.map(drop)
    }

    pub async fn unregister_publisher(&self, topic: &str) -> Result<(), CallError> {
        self.call("unregisterPublisher", vec![text(topic), text(&self.own_uri)]).await.map(drop)
    }

    pub async fn register_service(&self, service: &str) -> Result<(), CallError> {
        let params = vec![text(service), text(&self.own_services), text(&self.own_uri)];
        self.call("registerService", params).await.map(drop)
    }

    pub async fn unregister_service(&self, service: &str) -> Result<(), CallError> {
        self.call("unregisterService", vec![text(service), text(&self.own_services)])
            .await
            .map(drop)
    }

    /// Where `service` is (`rosrpc://HOST:PORT`); refused if the master does not know it.
    pub async fn lookup_service(&self, service: &str) -> Result<String, CallError> {
        let answer = self.call("lookupService", vec![text(service)]).await?;
        self.uri(answer, "lookupService", service)
    }

    /// Where `node` is; refused if the master does not know it.
    pub async fn lookup_node(&self, node: &str) -> Result<String, CallError> {
        let answer = self.call("lookupNode", vec![text(node)]).await?;
        self.uri(answer, "lookupNode", node)
    }

    fn uri(&self, answer: Value, method: &'static str, of: &str) -> Result<String, CallError> {
        let (uri, found) = (self.endpoint.uri.clone(), format!("no URI for {of}"));
        match answer {
            Value::String(found) => Ok(found),
            _ => Err(CallError::Answer { uri, method, found }),
        }
    }

    /// Takes back all that the master lists of us, and is the last to call: calls under way
    /// end before, and those that wait never begin.
    pub async fn leave(&self) -> Result<(), CallError> {
        let mut slot = self.connection.lock().await;
        let state = self.call_over(&mut slot, "getSystemState", vec![]).await?;
        for (role, method, own) in [
            (0, "unregisterPublisher", &self.own_uri),
            (1, "unregisterSubscriber", &self.own_uri),
            (2, "unregisterService", &self.own_services),
        ] {
            let nodes = members(&state).get(role).map(nodes_by_topic).unwrap_or_default();
            for (topic, _) in nodes.iter().filter(|(_, nodes)| nodes.contains(&self.node_name)) {
                let params = vec![text(topic), text(own)];
                self.call_over(&mut slot, method, params).await?;
            }
        }
        std::mem::forget(slot);
        Ok(())
    }

    async fn call(&self, method: &'static str, params: Vec<Value>) -> Result<Value, CallError> {
        self.call_over(&mut *self.connection.lock().await, method, params).await
    }

    async fn call_over(
        &self,
        slot: &mut Option<Connection>,
        method: &'static str,
        params: Vec<Value>,
    ) -> Result<Value, CallError> {
        let late = || CallError::Timeout { uri: self.endpoint.uri.clone(), method };
        if let Some(open) = slot.take().filter(Connection::is_open) {
            let (used, answer) = timeout(CALL_TIMEOUT, self.call_on(open, method, params.clone()))
                .await
                .map_err(|_| late())?;
            // A connection of an hour ago may have died with its master; a new one tells.
            if !matches!(answer, Err(CallError::Http { .. })) {
                *slot = Some(used);
                return answer;
            }
        }
        let fresh = async {
            let new = Connection::open(&self.endpoint).await?;
            Ok(self.call_on(new, method, params).await)
        };
        let (used, answer) = timeout(CALL_TIMEOUT, fresh).await.map_err(|_| late())??;
        *slot = Some(used);
        answer
    }

    async fn call_on(
        &self,
        mut connection: Connection,
        method: &'static str,
        params: Vec<Value>,
    ) -> (Connection, Result<Value, CallError>) {
        let mut all = vec![text(&self.node_name)];
        all.extend(params);
        let answer = connection.call(&self.endpoint, method, all).await;
        (connection, answer)
    }
}

fn nodes_by_topic(value: &Value) -> NodesByTopic {
    let entry = |entry: &Value| match members(entry) {
        [Value::String(topic), nodes, ..] => {
            Some((topic.clone(), texts(nodes).into_iter().collect()))
        }
        _ => None,
    };
    members(value).iter().filter_map(entry).collect()
}
