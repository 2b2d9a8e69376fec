// SPDX-License-Identifier: Apache-2.0
//! The ROS 1 master, as a node calls it (<https://wiki.ros.org/ROS/Master_API>).

use super::door::locked;
use super::xmlrpc::{
    CALL_TIMEOUT, CallError, Connection, Endpoint, masters_answer, members, pairs, text, texts,
};
use bytes::Bytes;
use dxr::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use tokio::sync::Mutex;
use tokio::time::timeout;

/// Pause before types are asked for again after a master could not tell them: its list may be
/// longer than what is taken, and costs it time to write.
const TYPES_PAUSE: Duration = Duration::from_secs(30);

/// Nodes by topic.
pub(super) type NodesByTopic = BTreeMap<String, BTreeSet<String>>;
/// Types by topic.
pub(super) type Types = BTreeMap<String, String>;

/// What the master knows at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Snapshot {
    pub publishers: NodesByTopic,
    pub subscribers: NodesByTopic,
    /// Nodes by service; the master keeps one for each.
    pub services: NodesByTopic,
    /// Types as last registered; a topic nobody uses any more may still be in here. `None`: the
    /// master cannot tell.
    pub types: Option<Types>,
}

impl Snapshot {
    fn new(state: &Value, types: Option<&Value>) -> Self {
        let part = |index: usize| members(state).get(index).map(nodes_by_topic);
        Self {
            publishers: part(0).unwrap_or_default(),
            subscribers: part(1).unwrap_or_default(),
            services: part(2).unwrap_or_default(),
            types: types.map(|types| pairs(types).into_iter().collect()),
        }
    }
}

/// Calls one master over one connection, opened again when it broke.
pub(super) struct Master {
    endpoint: Endpoint,
    node_name: String,
    own_uri: String,
    /// Where our services are: `rosrpc://HOST:PORT`.
    own_services: String,
    connection: Mutex<Option<Connection>>,
    /// Before this types are not asked for, since they could not be told.
    no_types_until: std::sync::Mutex<Option<Instant>>,
}

impl Master {
    pub fn new(endpoint: Endpoint, node_name: &str, own_uri: &str, own_services: &str) -> Self {
        Self {
            endpoint,
            node_name: node_name.into(),
            own_uri: own_uri.into(),
            own_services: own_services.into(),
            connection: Mutex::new(None),
            no_types_until: std::sync::Mutex::new(None),
        }
    }

    pub async fn poll(&self) -> Result<Snapshot, CallError> {
        let state = self.call("getSystemState", vec![]).await?;
        let types = self.types().await;
        let snapshot = move || Snapshot::new(&state, types.as_ref());
        // Long lists take long; the gateway's thread has messages to pass on meanwhile.
        tokio::task::spawn_blocking(snapshot).await.map_err(|error| {
            let (uri, found) = (self.endpoint.uri.clone(), error.to_string());
            CallError::Answer { uri, method: "getSystemState", found }
        })
    }

    /// `None` if the master cannot tell them. It forgets none until it ends, so that what peers
    /// once published may fill more than is taken of it.
    async fn types(&self) -> Option<Value> {
        let failed_before = *locked(&self.no_types_until);
        if failed_before.is_some_and(|until| Instant::now() < until) {
            return None;
        }
        let answer = self.call("getTopicTypes", vec![]).await;
        let until = answer.is_err().then(|| Instant::now() + TYPES_PAUSE);
        *locked(&self.no_types_until) = until;
        match (&answer, failed_before) {
            (Err(error), None) => tracing::warn!(
                "the ROS master does not report the types of topics, so nodes are asked for them \
                 (retried every {} s; a list that is too long shrinks only when the master \
                 restarts): {error}",
                TYPES_PAUSE.as_secs()
            ),
            (Ok(_), Some(_)) => tracing::info!("the ROS master reports the types of topics again"),
            _ => {}
        }
        answer.ok()
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

    /// The time limit is for the answer's last byte. A long one is parsed after it: one that was
    /// given up would be parsed all the same, and beside the next.
    async fn call_over(
        &self,
        slot: &mut Option<Connection>,
        method: &'static str,
        params: Vec<Value>,
    ) -> Result<Value, CallError> {
        let body = self.exchange(slot, method, params).await?;
        masters_answer(&self.endpoint, method, body).await
    }

    async fn exchange(
        &self,
        slot: &mut Option<Connection>,
        method: &'static str,
        params: Vec<Value>,
    ) -> Result<Bytes, CallError> {
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
            let new = Connection::open_master(&self.endpoint).await?;
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
    ) -> (Connection, Result<Bytes, CallError>) {
        let mut all = vec![text(&self.node_name)];
        all.extend(params);
        let answer = connection.call_master(&self.endpoint, method, all).await;
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

#[cfg(test)]
mod tests {
    use super::super::xmlrpc::{MAX_MASTER_BYTES, parse_call, render_answer, render_fault};
    use super::*;
    use std::io::{BufRead, BufReader, Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::sync::{Arc, Mutex};

    /// A master that gives the same answers always, and the methods that it was asked.
    fn master(answer: fn(&str) -> String) -> (Master, Arc<Mutex<Vec<String>>>) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let uri = format!("http://{}/", listener.local_addr().unwrap());
        let noted: Arc<Mutex<Vec<String>>> = Arc::default();
        let notes = noted.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                // Ends with the connection.
                let _ = serve(&stream, answer, &notes);
            }
        });
        (Master::new(Endpoint::parse(&uri).unwrap(), "/us", "http://us:1/", "rosrpc://us:2"), noted)
    }

    fn serve(
        stream: &TcpStream,
        answer: fn(&str) -> String,
        notes: &Mutex<Vec<String>>,
    ) -> std::io::Result<()> {
        let mut reader = BufReader::new(stream);
        loop {
            let (mut length, mut line) = (0, String::new());
            while reader.read_line(&mut line)? > 2 {
                let lower = line.to_lowercase();
                let value = lower.strip_prefix("content-length:").map(str::trim);
                length = value.map_or(length, |digits| digits.parse().unwrap());
                line.clear();
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body)?;
            let Ok((method, _)) = parse_call(&body) else { return Ok(()) };
            notes.lock().unwrap().push(method.clone());
            let xml = answer(&method);
            write!(&mut &*stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{xml}", xml.len())?;
        }
    }

    fn success(value: Value) -> String {
        render_answer(Value::Array(vec![Value::Integer(1), text(""), value]))
    }

    fn state() -> String {
        let list = |all: Vec<Value>| Value::Array(all);
        let publishers = list(vec![list(vec![text("/scan"), list(vec![text("/laser")])])]);
        success(list(vec![publishers, list(vec![]), list(vec![])]))
    }

    /// Written without a library, which takes long for megabytes.
    fn types(length: usize) -> String {
        let short = Value::Array(vec![Value::Array(vec![text("/scan"), text("TYPE")])]);
        success(short).replacen("TYPE", &"x".repeat(length), 1)
    }

    fn run<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
    }

    #[test]
    fn a_list_of_types_that_is_too_long_is_done_without() {
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
        let times = |method| asked.iter().filter(|it| *it == method).count();
        assert_eq!(times("getTopicTypes"), 1, "not at each poll");
        assert!(times("getSystemState") >= 3);
    }

    #[test]
    fn a_state_that_is_too_large_is_told_with_both_sizes() {
        let (master, _) = master(|_| types(MAX_MASTER_BYTES));
        let error = run(master.poll()).unwrap_err();
        let length = types(MAX_MASTER_BYTES).len();
        let sizes = format!("{length} bytes; allowed: {MAX_MASTER_BYTES}");
        assert!(error.to_string().contains(&sizes), "{error}");
        assert!(matches!(error, CallError::TooLarge { .. }));
    }

    #[test]
    fn the_names_of_many_peers_are_taken() {
        let (master, _) = master(|method| match method {
            // Longer than most lists, in few parts: this is no test of speed.
            "getSystemState" => state().replacen("/scan", &format!("/{}", "x".repeat(10 << 20)), 1),
            _ => types(7),
        });
        let publishers = run(master.poll()).unwrap().publishers;
        assert_eq!(publishers.keys().map(String::len).sum::<usize>(), 1 + (10 << 20));
    }

    #[test]
    fn a_master_that_tells_no_types_is_polled_on() {
        let (master, _) = master(|method| match method {
            "getSystemState" => state(),
            _ => render_fault(1, "not here"),
        });
        assert_eq!(run(master.poll()).unwrap().types, None);
    }

    #[test]
    fn types_that_are_told_are_known() {
        let (master, _) = master(|method| match method {
            "getSystemState" => state(),
            _ => types(7),
        });
        assert_eq!(run(master.poll()).unwrap().types.unwrap()["/scan"], "xxxxxxx");
    }

    #[test]
    fn what_a_master_says_reaches_no_terminal_as_it_is() {
        let (master, _) = master(|_| {
            let refusal = "\u{202e}no\u{9b}0m way\nWARN forged".repeat(1000);
            let parts = vec![Value::Integer(0), text(&refusal), Value::Integer(0)];
            render_answer(Value::Array(parts))
        });
        let error = run(master.poll()).unwrap_err().to_string();
        assert!(error.contains("getSystemState was refused") && error.contains("\\nWARN forged"));
        assert!(!error.chars().any(|c| c.is_control() || c == '\u{202e}'), "{error}");
        assert!(error.len() < 1000);
    }
}
