// SPDX-License-Identifier: Apache-2.0
//! Connections to publishers and service servers: request, header, and whether the server may be
//! read at all.

use super::definitions::Definitions;
use super::header::{Header, HeaderError, TAUTLINE_FIELD};
use super::shown::for_logs;
use super::xmlrpc::{self, CallError, MAX_REPLY_BYTES, connect, members, string_value};
use crate::Topic;
use crate::types::definition::MAX_NAME_BYTES;
use dxr::Value;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Time limit of a server for its TCP connection and its header.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug, Clone)]
pub(super) struct Identity {
    pub node_name: String,
    pub tautline_name: String,
    pub definitions: Arc<Definitions>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct TypeVersion {
    pub name: String,
    pub md5: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Description {
    pub version: TypeVersion,
    pub definition: Arc<str>,
    pub latching: bool,
}

/// A connection to a publisher whose header has been read.
pub(super) struct OpenConnection {
    pub stream: TcpStream,
    pub found: Description,
    /// The address from which the publisher sends its messages.
    pub to: HostPort,
    /// Whether the node is one of roscpp, which may have several publishers on one connection.
    pub is_roscpp: bool,
}

impl Description {
    pub fn is_of(&self, topic: &Topic) -> bool {
        self.version.name == topic.type_name && self.version.md5 == topic.type_hash
    }
}

#[derive(Debug, Clone)]
pub(super) struct HostPort {
    pub host: String,
    pub port: u16,
}

impl std::fmt::Display for HostPort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", for_logs(&self.host), self.port)
    }
}

/// Why a server is not read.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectError {
    #[error(transparent)]
    Call(#[from] CallError),
    #[error("{0}: {1}")]
    Connect(HostPort, io::Error),
    #[error("{0}: no connection header within {time} s", time = HANDSHAKE_TIMEOUT.as_secs())]
    Timeout(HostPort),
    #[error("{0}: {1}")]
    Header(HostPort, HeaderError),
    #[error("{0} refuses: {reason}", reason = for_logs(.1))]
    Refused(HostPort, String),
    #[error("it is another Tautline node ('{}'), which is never read", for_logs(.0))]
    Tautline(String),
}

impl ConnectError {
    /// Whether nothing listens there: the process has ended, and is not merely slow.
    pub fn is_connection_refused(&self) -> bool {
        match self {
            Self::Call(error) => error.is_connection_refused(),
            Self::Connect(_, source) => source.kind() == io::ErrorKind::ConnectionRefused,
            _ => false,
        }
    }
}

impl Identity {
    /// The fields of every header of ours.
    pub fn header(&self) -> Header {
        Header::default()
            .with("callerid", &self.node_name)
            .with(TAUTLINE_FIELD, &self.tautline_name)
    }

    /// Connects to the publisher whose slave API is at `uri` and reads its header.
    pub async fn open(&self, uri: &str, topic: &str) -> Result<OpenConnection, ConnectError> {
        self.open_as(&self.node_name, uri, topic).await
    }

    /// The description of a topic by its publisher at `uri`. The probe has a name of its own: rospy
    /// would close the reader's connection if another one of the same name were opened.
    pub async fn probe(&self, uri: &str, topic: &str) -> Result<Description, ConnectError> {
        Ok(self.open_as(&self.probe_name(), uri, topic).await?.found)
    }

    /// Opens another connection to a publisher, as a late joiner. Returns also whether the header says
    /// that the publisher latches.
    pub async fn join(
        &self,
        to: &HostPort,
        topic: &str,
    ) -> Result<(TcpStream, bool), ConnectError> {
        let ours = self.subscription(&self.probe_name(), topic);
        let (stream, header) = exchange(to, &ours).await?;
        Ok((stream, header.is_set("latching")))
    }

    fn probe_name(&self) -> String {
        format!("{}_probe", self.node_name)
    }

    fn subscription(&self, caller: &str, topic: &str) -> Header {
        self.header()
            .with("callerid", caller)
            .with("topic", topic)
            .with("type", "*")
            .with("md5sum", "*")
            .with("message_definition", "")
            .with("tcp_nodelay", "1")
    }

    async fn open_as(
        &self,
        caller: &str,
        uri: &str,
        topic: &str,
    ) -> Result<OpenConnection, ConnectError> {
        let (to, is_roscpp) = self.request_topic(uri, topic).await?;
        let opened = async {
            let (stream, header) = exchange(&to, &self.subscription(caller, topic)).await?;
            let version = type_version(&header).ok_or_else(|| unknown_type_error(&to))?;
            let text = header.get("message_definition").unwrap_or_default();
            let definition = self.definitions.keep(uri, topic, &version, text).await;
            let latching = header.is_set("latching");
            Ok::<_, ConnectError>((stream, Description { version, definition, latching }))
        };
        let opened = timeout(HANDSHAKE_TIMEOUT, opened).await;
        let (stream, found) = opened.map_err(|_| ConnectError::Timeout(to.clone()))??;
        Ok(OpenConnection { stream, found, to, is_roscpp })
    }

    pub fn service_request(&self, service: &str, md5: &str, is_probe: bool) -> Header {
        let header = self.header().with("service", service).with("md5sum", md5);
        if is_probe { header.with("probe", "1") } else { header }
    }

    async fn request_topic(&self, uri: &str, topic: &str) -> Result<(HostPort, bool), CallError> {
        let protocols = Value::Array(vec![Value::Array(vec![string_value("TCPROS")])]);
        let params = vec![string_value(&self.node_name), string_value(topic), protocols];
        let called = xmlrpc::call_identified(uri, "requestTopic", params, MAX_REPLY_BYTES).await;
        let (answer, is_roscpp) = called?;
        if let [Value::String(protocol), Value::String(host), Value::Integer(port), ..] =
            members(&answer)
            && protocol == "TCPROS"
            && let Ok(port) = u16::try_from(*port)
        {
            return Ok((HostPort { host: host.clone(), port }, is_roscpp));
        }
        let found = "no TCPROS host and port".into();
        Err(CallError::Answer { uri: uri.into(), method: "requestTopic", found })
    }
}

/// Connects, sends our header and reads the server's. It is an error if the server refuses us or is
/// a Tautline node.
async fn exchange(to: &HostPort, ours: &Header) -> Result<(TcpStream, Header), ConnectError> {
    let connect_error = |source| ConnectError::Connect(to.clone(), source);
    let mut stream = connect(&to.host, to.port).await.map_err(connect_error)?;
    stream.write_all(&ours.encode()).await.map_err(connect_error)?;
    let header_error = |source| ConnectError::Header(to.clone(), source);
    let header = Header::read(&mut stream).await.map_err(header_error)?;
    if let Some(name) = header.get(TAUTLINE_FIELD) {
        return Err(ConnectError::Tautline(name.into()));
    }
    match header.get("error") {
        Some(reason) => Err(ConnectError::Refused(to.clone(), reason.into())),
        None => Ok((stream, header)),
    }
}

/// Like [`exchange`], within [`HANDSHAKE_TIMEOUT`].
pub(super) async fn open_service(
    to: &HostPort,
    ours: &Header,
) -> Result<(TcpStream, Header), ConnectError> {
    let opened = timeout(HANDSHAKE_TIMEOUT, exchange(to, ours)).await;
    opened.map_err(|_| ConnectError::Timeout(to.clone()))?
}

pub(super) fn unknown_type_error(to: &HostPort) -> ConnectError {
    let reason = "its header lacks a definite type or md5sum, or has one that is too long".into();
    ConnectError::Refused(to.clone(), reason)
}

/// The type in a server's header; `None` while the server itself does not know it.
pub(super) fn type_version(header: &Header) -> Option<TypeVersion> {
    let fits = |text: &&str| !text.is_empty() && *text != "*" && text.len() <= MAX_NAME_BYTES;
    let definite = |key| header.get(key).filter(fits);
    Some(TypeVersion { name: definite("type")?.into(), md5: definite("md5sum")?.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_publisher_without_a_definite_type_has_no_type_version() {
        let header = Header::default().with("type", "std_msgs/String").with("md5sum", "*");
        assert_eq!(type_version(&header), None);
        assert_eq!(type_version(&header.clone().with("md5sum", &"9".repeat(300))), None);
        let version = TypeVersion { name: "std_msgs/String".into(), md5: "992c".into() };
        assert_eq!(type_version(&header.with("md5sum", "992c")), Some(version));
        assert!(Header::default().with("latching", " 1").is_set("latching"));
    }
}
