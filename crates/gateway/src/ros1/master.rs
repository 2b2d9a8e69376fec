// SPDX-License-Identifier: Apache-2.0
//! The ROS 1 master API, from a node's side (<https://wiki.ros.org/ROS/Master_API>).

use super::xmlrpc::{
    CALL_TIMEOUT, CallError, Connection, Endpoint, MAX_MASTER_BYTES, master_response, members,
    pairs, string_value, texts,
};
use crate::lock::lock;
use bytes::Bytes;
use dxr::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use tokio::sync::Mutex;
use tokio::time::timeout;

/// Pause before types are requested again after a failure. The master's list may exceed the limit, and
/// the master needs time to write it.
const TYPES_PAUSE: Duration = Duration::from_secs(30);

/// Nodes by topic or service.
pub(super) type NodesByName = BTreeMap<String, BTreeSet<String>>;
/// Types by topic.
pub(super) type Types = BTreeMap<String, String>;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Snapshot {
    pub publishers: NodesByName,
    pub subscribers: NodesByName,
    /// The master keeps one node for each service.
    pub services: NodesByName,
    /// Types as last registered, also of topics no longer in use. `None`: the master does not
    /// report them.
    pub types: Option<Types>,
}

impl Snapshot {
    fn new(state: &Value, types: Option<&Value>) -> Self {
        let [publishers, subscribers, services] = Role::ALL.map(|role| role.nodes_in_state(state));
        let types = types.map(|types| pairs(types).into_iter().collect());
        Self { publishers, subscribers, services, types }
    }

    pub fn nodes(&self, role: Role) -> &NodesByName {
        match role {
            Role::Publisher => &self.publishers,
            Role::Subscriber => &self.subscribers,
            Role::Service => &self.services,
        }
    }
}

/// What a node registers as, in the order of `getSystemState`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Publisher,
    Subscriber,
    Service,
}

impl Role {
    pub const ALL: [Self; 3] = [Self::Publisher, Self::Subscriber, Self::Service];

    fn register_method(self) -> &'static str {
        ["registerPublisher", "registerSubscriber", "registerService"][self as usize]
    }

    fn unregister_method(self) -> &'static str {
        ["unregisterPublisher", "unregisterSubscriber", "unregisterService"][self as usize]
    }

    /// The nodes that `getSystemState` lists in this role.
    fn nodes_in_state(self, state: &Value) -> NodesByName {
        let entry = |entry: &Value| match members(entry) {
            [Value::String(name), nodes, ..] => {
                Some((name.clone(), texts(nodes).into_iter().collect()))
            }
            _ => None,
        };
        let list = members(state).get(self as usize).map(members).unwrap_or_default();
        list.iter().filter_map(entry).collect()
    }
}

/// Our node as the master lists it.
#[derive(Debug, Clone)]
pub(super) struct OwnNode {
    pub name: String,
    /// Our slave API: `http://HOST:PORT/`.
    pub uri: String,
    /// Our services: `rosrpc://HOST:PORT`.
    pub service_uri: String,
}

impl OwnNode {
    fn uri(&self, role: Role) -> Value {
        string_value(if role == Role::Service { &self.service_uri } else { &self.uri })
    }
}

/// Calls one master over one connection, which is reopened when it breaks.
pub(super) struct Master {
    endpoint: Endpoint,
    own: OwnNode,
    connection: Mutex<Option<Connection>>,
    /// Types are not requested before this time.
    no_types_until: std::sync::Mutex<Option<Instant>>,
}

impl Master {
    pub fn new(endpoint: Endpoint, own: OwnNode) -> Self {
        let (connection, no_types_until) = (Mutex::new(None), std::sync::Mutex::new(None));
        Self { endpoint, own, connection, no_types_until }
    }

    pub fn own_node(&self) -> &OwnNode {
        &self.own
    }

    pub async fn poll(&self) -> Result<Snapshot, CallError> {
        let state = self.call("getSystemState", vec![]).await?;
        let types = self.topic_types().await;
        let snapshot = move || Snapshot::new(&state, types.as_ref());
        // Parsing a long list would delay the messages that the gateway's thread forwards.
        tokio::task::spawn_blocking(snapshot).await.map_err(|error| {
            let (uri, found) = (self.endpoint.uri.clone(), error.to_string());
            CallError::Answer { uri, method: "getSystemState", found }
        })
    }

    /// `None` if the master does not report them. The master forgets no type until it ends, so
    /// that names once published by peers can make its list exceed the limit.
    async fn topic_types(&self) -> Option<Value> {
        let failed_before = *lock(&self.no_types_until);
        if failed_before.is_some_and(|until| Instant::now() < until) {
            return None;
        }
        let answer = self.call("getTopicTypes", vec![]).await;
        let until = answer.is_err().then(|| Instant::now() + TYPES_PAUSE);
        *lock(&self.no_types_until) = until;
        match (&answer, failed_before) {
            (Err(error), None) => tracing::warn!(
                "the ROS master does not report the types of topics, so the gateway queries the \
                 nodes (retried every {} s; a list that is too long shrinks only when the master \
                 restarts): {error}",
                TYPES_PAUSE.as_secs()
            ),
            (Ok(_), Some(_)) => tracing::info!("the ROS master reports the types of topics again"),
            _ => {}
        }
        answer.ok()
    }

    /// Registers us under the name `caller`; returns the URIs of the topic's publishers for a subscriber.
    pub async fn register(
        &self,
        role: Role,
        name: &str,
        type_name: &str,
        caller: &str,
    ) -> Result<Vec<String>, CallError> {
        let second =
            if role == Role::Service { self.own.uri(role) } else { string_value(type_name) };
        let params = vec![string_value(name), second, string_value(&self.own.uri)];
        Ok(texts(&self.call_as(caller, role.register_method(), params).await?))
    }

    /// Removes a registration under the name `caller`.
    pub async fn unregister(&self, role: Role, name: &str, caller: &str) -> Result<(), CallError> {
        let params = vec![string_value(name), self.own.uri(role)];
        self.call_as(caller, role.unregister_method(), params).await.map(drop)
    }

    /// The parameters under a name, or `None` if there are none.
    pub async fn parameters(&self, below: &str) -> Result<Option<Value>, CallError> {
        match self.call("getParam", vec![string_value(below)]).await {
            Ok(found) => Ok(Some(found)),
            Err(CallError::Refused { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub async fn set_parameter(&self, name: &str, value: Value) -> Result<(), CallError> {
        self.call("setParam", vec![string_value(name), value]).await.map(drop)
    }

    pub async fn delete_parameter(&self, name: &str) -> Result<(), CallError> {
        match self.call("deleteParam", vec![string_value(name)]).await {
            // The parameter does not exist.
            Ok(_) | Err(CallError::Refused { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The URI of `service` (`rosrpc://HOST:PORT`); refused if the master does not know it.
    pub async fn lookup_service(&self, service: &str) -> Result<String, CallError> {
        self.lookup("lookupService", service).await
    }

    /// The URI of `node`; refused if the master does not know it.
    pub async fn lookup_node(&self, node: &str) -> Result<String, CallError> {
        self.lookup("lookupNode", node).await
    }

    async fn lookup(&self, method: &'static str, name: &str) -> Result<String, CallError> {
        match self.call(method, vec![string_value(name)]).await? {
            Value::String(uri) => Ok(uri),
            _ => {
                let (uri, found) = (self.endpoint.uri.clone(), format!("no URI for {name}"));
                Err(CallError::Answer { uri, method, found })
            }
        }
    }

    /// Removes all our registrations with the last calls to the master: pending calls end before,
    /// and waiting calls never start. `stand_ins` are our other names.
    pub async fn leave(&self, stand_ins: &BTreeSet<String>) -> Result<(), CallError> {
        let mut slot = self.connection.lock().await;
        let own = &self.own.name;
        let state = self.call_over(&mut slot, own, "getSystemState", vec![]).await?;
        for role in Role::ALL {
            for (name, nodes) in role.nodes_in_state(&state) {
                for caller in nodes.iter().filter(|it| *it == own || stand_ins.contains(*it)) {
                    let params = vec![string_value(&name), self.own.uri(role)];
                    self.call_over(&mut slot, caller, role.unregister_method(), params).await?;
                }
            }
        }
        std::mem::forget(slot);
        Ok(())
    }

    async fn call(&self, method: &'static str, params: Vec<Value>) -> Result<Value, CallError> {
        self.call_as(&self.own.name, method, params).await
    }

    async fn call_as(
        &self,
        caller: &str,
        method: &'static str,
        params: Vec<Value>,
    ) -> Result<Value, CallError> {
        self.call_over(&mut *self.connection.lock().await, caller, method, params).await
    }

    /// The time limit covers the response up to its last byte, but not its parsing: the parsing of an
    /// abandoned response would run in parallel with that of the next.
    async fn call_over(
        &self,
        slot: &mut Option<Connection>,
        caller: &str,
        method: &'static str,
        params: Vec<Value>,
    ) -> Result<Value, CallError> {
        let params = [vec![string_value(caller)], params].concat();
        let body = self.exchange(slot, method, params).await?;
        master_response(&self.endpoint, method, body).await
    }

    async fn exchange(
        &self,
        slot: &mut Option<Connection>,
        method: &'static str,
        params: Vec<Value>,
    ) -> Result<Bytes, CallError> {
        let timed_out = |_| CallError::Timeout { uri: self.endpoint.uri.clone(), method };
        if let Some(mut open) = slot.take().filter(Connection::is_open) {
            let call = open.exchange(&self.endpoint, method, params.clone(), MAX_MASTER_BYTES);
            let response = timeout(CALL_TIMEOUT, call).await.map_err(timed_out)?;
            // The old connection may have ended with its master. A new one shows whether the master is back.
            if !matches!(response, Err(CallError::Http { .. })) {
                *slot = Some(open);
                return response;
            }
        }
        let fresh = async {
            let mut new = Connection::open_master(&self.endpoint).await?;
            let response = new.exchange(&self.endpoint, method, params, MAX_MASTER_BYTES).await;
            Ok((new, response))
        };
        let (open, response) = timeout(CALL_TIMEOUT, fresh).await.map_err(timed_out)??;
        *slot = Some(open);
        response
    }
}

#[cfg(test)]
mod tests {
    use super::super::xmlrpc::{parse_call, render_answer, render_fault};
    use super::*;
    use std::io::BufReader;
    use std::net::{TcpListener, TcpStream};
    use std::sync::{Arc, Mutex};
    use tautline_testkit::http;

    fn test_node() -> OwnNode {
        let [name, uri, service_uri] = ["/us", "http://us:1/", "rosrpc://us:2"].map(String::from);
        OwnNode { name, uri, service_uri }
    }

    /// A master whose answers depend only on the method, and the methods called so far.
    fn master(answer: fn(&str) -> String) -> (Master, Arc<Mutex<Vec<String>>>) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let uri = format!("http://{}/", listener.local_addr().unwrap());
        let calls: Arc<Mutex<Vec<String>>> = Arc::default();
        let log = calls.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                // Ends with the connection.
                let _ = serve(&stream, answer, &log);
            }
        });
        (Master::new(Endpoint::parse(&uri).unwrap(), test_node()), calls)
    }

    fn serve(
        stream: &TcpStream,
        answer: fn(&str) -> String,
        log: &Mutex<Vec<String>>,
    ) -> std::io::Result<()> {
        let mut reader = BufReader::new(stream);
        while let Some(body) = http::read_request(&mut reader)? {
            let Ok((method, _)) = parse_call(&body) else { break };
            log.lock().unwrap().push(method.clone());
            http::respond(stream, &answer(&method))?;
        }
        Ok(())
    }

    fn success(value: Value) -> String {
        render_answer(Value::Array(vec![Value::Integer(1), string_value(""), value]))
    }

    fn state() -> String {
        let list = |all: Vec<Value>| Value::Array(all);
        let publishers =
            list(vec![list(vec![string_value("/scan"), list(vec![string_value("/laser")])])]);
        success(list(vec![publishers, list(vec![]), list(vec![])]))
    }

    /// A list of types, written without a library because a library takes long for megabytes.
    fn types(length: usize) -> String {
        let short =
            Value::Array(vec![Value::Array(vec![string_value("/scan"), string_value("TYPE")])]);
        success(short).replacen("TYPE", &"x".repeat(length), 1)
    }

    fn run<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
    }

    #[test]
    fn a_list_of_types_that_is_too_long_is_ignored() {
        let (master, asked) = master(|method| match method {
            "getSystemState" => state(),
            _ => types(MAX_MASTER_BYTES),
        });
        for _ in 0..3 {
            let snapshot = run(master.poll()).unwrap();
            assert!(snapshot.publishers["/scan"].contains("/laser"));
            assert_eq!(snapshot.types, None);
        }
        let asked = asked.lock().unwrap();
        let times = |method| asked.iter().filter(|name| *name == method).count();
        assert_eq!(times("getTopicTypes"), 1, "not at each poll");
        assert!(times("getSystemState") >= 3);
    }

    #[test]
    fn the_error_for_a_state_that_is_too_large_has_both_sizes() {
        let (master, _) = master(|_| types(MAX_MASTER_BYTES));
        let error = run(master.poll()).unwrap_err();
        let length = types(MAX_MASTER_BYTES).len();
        let sizes = format!("{length} bytes; allowed: {MAX_MASTER_BYTES}");
        assert!(error.to_string().contains(&sizes), "{error}");
        assert!(matches!(error, CallError::TooLarge { .. }));
    }

    #[test]
    fn the_names_of_many_peers_are_accepted() {
        let (master, _) = master(|method| match method {
            // Longer than most lists, in few parts: this is no test of speed.
            "getSystemState" => state().replacen("/scan", &format!("/{}", "x".repeat(10 << 20)), 1),
            _ => types(7),
        });
        let publishers = run(master.poll()).unwrap().publishers;
        assert_eq!(publishers.keys().map(String::len).sum::<usize>(), 1 + (10 << 20));
    }

    #[test]
    fn a_master_that_reports_no_types_is_still_polled() {
        let (master, _) = master(|method| match method {
            "getSystemState" => state(),
            _ => render_fault(1, "not here"),
        });
        assert_eq!(run(master.poll()).unwrap().types, None);
    }

    #[test]
    fn reported_types_are_known() {
        let (master, _) = master(|method| match method {
            "getSystemState" => state(),
            _ => types(7),
        });
        assert_eq!(run(master.poll()).unwrap().types.unwrap()["/scan"], "xxxxxxx");
    }

    #[test]
    fn replies_of_a_master_are_sanitised_for_terminals() {
        let (master, _) = master(|_| {
            let refusal = "\u{202e}no\u{9b}0m way\nWARN forged".repeat(1000);
            let parts = vec![Value::Integer(0), string_value(&refusal), Value::Integer(0)];
            render_answer(Value::Array(parts))
        });
        let error = run(master.poll()).unwrap_err().to_string();
        assert!(error.contains("getSystemState was refused") && error.contains("\\nWARN forged"));
        assert!(!error.chars().any(|c| c.is_control() || c == '\u{202e}'), "{error}");
        assert!(error.len() < 1000);
    }
}
