// SPDX-License-Identifier: Apache-2.0
//! Connecting to a publisher: where it is, what it publishes, and whether it
//! is one that may be read.

use super::definitions::Definitions;
use super::header::{Header, HeaderError, TAUTLINE_FIELD};
use super::shown;
use super::xmlrpc::{self, CallError, MAX_REPLY_BYTES, connect, members, text};
use crate::types::definition::MAX_NAME_BYTES;
use dxr::Value;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// How long a publisher may take for its TCP connection and its header.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// How we present ourselves in connection headers.
#[derive(Debug, Clone)]
pub(super) struct Identity {
    pub node_name: String,
    pub tautline_name: String,
    pub definitions: Arc<Definitions>,
}

/// What a publisher says of its topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Description {
    pub type_name: String,
    pub md5: String,
    pub definition: Arc<str>,
    pub latching: bool,
}

impl Description {
    pub fn same_type(&self, type_name: &str, md5: &str) -> bool {
        self.type_name == type_name && self.md5 == md5
    }
}

/// Why a publisher is not read.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectError {
    #[error(transparent)]
    Call(#[from] CallError),
    #[error("{}:{port}: {source}", shown(host))]
    Connect { host: String, port: u16, source: io::Error },
    #[error("{}:{port}: no connection header within {} s", shown(host), HANDSHAKE_TIMEOUT.as_secs())]
    Timeout { host: String, port: u16 },
    #[error("{}:{port}: {source}", shown(host))]
    Header { host: String, port: u16, source: HeaderError },
    #[error("{}:{port} refuses: {}", shown(host), shown(reason))]
    Refused { host: String, port: u16, reason: String },
    #[error("it is another Tautline node ('{}'), which is never read", shown(.0))]
    Tautline(String),
}

impl Identity {
    /// The header with which `caller` asks for a topic of any type.
    fn request(&self, caller: &str, topic: &str) -> Header {
        Header::default()
            .with("callerid", caller)
            .with("topic", topic)
            .with("type", "*")
            .with("md5sum", "*")
            .with("message_definition", "")
            .with("tcp_nodelay", "1")
            .with(TAUTLINE_FIELD, &self.tautline_name)
    }

    /// Connects to the publisher whose slave API is at `uri` and reads its header.
    pub async fn open(
        &self,
        uri: &str,
        topic: &str,
    ) -> Result<(TcpStream, Description), ConnectError> {
        self.open_as(&self.node_name, uri, topic).await
    }

    /// What the publisher at `uri` says of its topic. A name of its own keeps the reader of that
    /// topic alive: rospy closes a connection when another of the same name comes.
    pub async fn probe(&self, uri: &str, topic: &str) -> Result<Description, ConnectError> {
        let caller = format!("{}_probe", self.node_name);
        Ok(self.open_as(&caller, uri, topic).await?.1)
    }

    async fn open_as(
        &self,
        caller: &str,
        uri: &str,
        topic: &str,
    ) -> Result<(TcpStream, Description), ConnectError> {
        let (host, port) = self.request_topic(uri, topic).await?;
        let request = self.request(caller, topic);
        let opened = self.shake_hands(uri, (&host, port), topic, &request);
        match timeout(HANDSHAKE_TIMEOUT, opened).await {
            Ok(done) => done,
            Err(_) => Err(ConnectError::Timeout { host, port }),
        }
    }

    /// The header with which we ask for a service.
    pub fn service_request(&self, service: &str, md5: &str, probe: bool) -> Header {
        let header = Header::default()
            .with("callerid", &self.node_name)
            .with("service", service)
            .with("md5sum", md5)
            .with(TAUTLINE_FIELD, &self.tautline_name);
        if probe { header.with("probe", "1") } else { header }
    }

    async fn request_topic(&self, uri: &str, topic: &str) -> Result<(String, u16), CallError> {
        let protocols = Value::Array(vec![Value::Array(vec![text("TCPROS")])]);
        let params = vec![text(&self.node_name), text(topic), protocols];
        let answer = xmlrpc::call(uri, "requestTopic", params, MAX_REPLY_BYTES).await?;
        if let [Value::String(protocol), Value::String(host), Value::Integer(port), ..] =
            members(&answer)
            && protocol == "TCPROS"
            && let Ok(port) = u16::try_from(*port)
        {
            return Ok((host.clone(), port));
        }
        let found = "no TCPROS host and port".into();
        Err(CallError::Answer { uri: uri.into(), method: "requestTopic", found })
    }

    async fn shake_hands(
        &self,
        uri: &str,
        (host, port): (&str, u16),
        topic: &str,
        request: &Header,
    ) -> Result<(TcpStream, Description), ConnectError> {
        let (stream, header) = exchange(host, port, request).await?;
        let mut found = describe(&header).ok_or_else(|| indefinite(host, port))?;
        let text = header.get("message_definition").unwrap_or_default();
        let known_as = (found.type_name.as_str(), found.md5.as_str());
        found.definition = self.definitions.take((uri, topic), known_as, text).await;
        Ok((stream, found))
    }
}

/// Connects, sends our header and reads the other's, unless it is a refusal or a Tautline's.
async fn exchange(
    host: &str,
    port: u16,
    ours: &Header,
) -> Result<(TcpStream, Header), ConnectError> {
    let broken = |source| ConnectError::Connect { host: host.into(), port, source };
    let mut stream = connect(host, port).await.map_err(broken)?;
    stream.write_all(&ours.encode()).await.map_err(broken)?;
    let wrong = |source| ConnectError::Header { host: host.into(), port, source };
    let header = Header::read(&mut stream).await.map_err(wrong)?;
    if let Some(name) = header.get(TAUTLINE_FIELD) {
        return Err(ConnectError::Tautline(name.into()));
    }
    match header.get("error") {
        Some(reason) => {
            Err(ConnectError::Refused { host: host.into(), port, reason: reason.into() })
        }
        None => Ok((stream, header)),
    }
}

/// As [`exchange`], within [`HANDSHAKE_TIMEOUT`].
pub(super) async fn open_service(
    host: &str,
    port: u16,
    ours: &Header,
) -> Result<(TcpStream, Header), ConnectError> {
    let late = |_| ConnectError::Timeout { host: host.into(), port };
    timeout(HANDSHAKE_TIMEOUT, exchange(host, port, ours)).await.map_err(late)?
}

pub(super) fn indefinite(host: &str, port: u16) -> ConnectError {
    let reason = "its header lacks a definite type or md5sum, or has one that is too long".into();
    ConnectError::Refused { host: host.into(), port, reason }
}

/// Type and md5 of a service, from a probe's answer.
pub(super) fn service_type(header: &Header) -> Option<(String, String)> {
    describe(header).map(|it| (it.type_name, it.md5))
}

/// `None` where the publisher does not know its own type yet. Its definition is yet to be taken.
fn describe(header: &Header) -> Option<Description> {
    let fits = |it: &&str| !it.is_empty() && *it != "*" && it.len() <= MAX_NAME_BYTES;
    let definite = |key| header.get(key).filter(fits);
    Some(Description {
        type_name: definite("type")?.into(),
        md5: definite("md5sum")?.into(),
        definition: "".into(),
        latching: header.get("latching").is_some_and(|value| value.trim() == "1"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_publisher_without_a_definite_type_is_not_described() {
        let header = Header::default().with("type", "std_msgs/String").with("md5sum", "*");
        assert_eq!(describe(&header), None);
        assert_eq!(describe(&header.clone().with("md5sum", &"9".repeat(300))), None);
        let header = header.with("md5sum", "992c").with("latching", "1");
        let description = describe(&header).unwrap();
        assert!(description.latching && description.same_type("std_msgs/String", "992c"));
    }
}
