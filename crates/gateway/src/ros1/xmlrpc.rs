// SPDX-License-Identifier: Apache-2.0
//! XML-RPC: values by `dxr`, HTTP by `hyper`, and the limits on what a hostile or hanging peer can
//! cost.

use super::resolver::Resolver;
use super::shown::for_logs;
use bytes::Bytes;
use dxr::{FaultResponse, MethodCall, MethodResponse, Value};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Body;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Request, Uri, header};
use hyper_util::rt::TokioIo;
use quick_xml::events::Event as XmlEvent;
use std::io;
use std::net::IpAddr;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Time limit of one call, from the connection to the last byte of the response.
pub(super) const CALL_TIMEOUT: Duration = Duration::from_secs(3);
/// Longest response of the master: 16 peers with 4096 published names of 255 bytes make 29 MB.
pub(super) const MAX_MASTER_BYTES: usize = 32 * 1024 * 1024;
/// Longest list of topics of any other node; many nodes may respond at a time.
pub(super) const MAX_LIST_BYTES: usize = 512 * 1024;
/// Longest other response of such a node: its address, or its process ID.
pub(super) const MAX_REPLY_BYTES: usize = 16 * 1024;
const MAX_HEAD_BYTES: usize = 16 * 1024;
/// Longer bodies are parsed outside the gateway's thread, which has messages to forward.
const MAX_INLINE_BYTES: usize = 16 * 1024;
/// Maximum number of long responses and requests of other nodes that are parsed at a time; further ones
/// wait for a slot. Messages of the master do not wait.
const MAX_PARSERS: usize = 2;
/// Maximum nesting of XML elements. A ROS call needs about 20; parsers recurse, so depth costs stack.
const MAX_XML_DEPTH: usize = 64;
/// The usual port of ROS 1 masters.
const DEFAULT_PORT: u16 = 11311;
/// Beginning of the Server field of roscpp (ros_comm, `xmlrpcpp`).
const ROSCPP_SERVER: &[u8] = b"XMLRPC++";

/// Why a call gave no result.
#[derive(Debug, thiserror::Error)]
pub(super) enum CallError {
    #[error("'{}' is not a URI of the form http://HOST:PORT/", for_logs(.0))]
    Uri(String),
    #[error("{}:{port}: {source}", for_logs(host))]
    Connect { host: String, port: u16, source: io::Error },
    #[error("{}: no answer to {method} within {} s", for_logs(uri), CALL_TIMEOUT.as_secs())]
    Timeout { uri: String, method: &'static str },
    #[error("{}: {method}: {source}", for_logs(uri))]
    Http { uri: String, method: &'static str, source: hyper::Error },
    #[error("{}: {method}: {}", for_logs(uri), for_logs(found))]
    Answer { uri: String, method: &'static str, found: String },
    #[error(
        "{}: the answer to {method} is too large: {found} bytes; allowed: {limit}",
        for_logs(uri)
    )]
    TooLarge { uri: String, method: &'static str, found: String, limit: usize },
    #[error("{}: {method} was refused: {}", for_logs(uri), for_logs(reason))]
    Refused { uri: String, method: &'static str, reason: String },
}

impl CallError {
    /// Whether nothing listens there: the process has ended, and is not merely slow.
    pub fn is_connection_refused(&self) -> bool {
        matches!(self, Self::Connect { source, .. }
            if source.kind() == io::ErrorKind::ConnectionRefused)
    }

    /// Whether there was a response, if only a refusal.
    pub fn is_response(&self) -> bool {
        matches!(self, Self::Refused { .. } | Self::Answer { .. } | Self::TooLarge { .. })
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Endpoint {
    pub uri: String,
    pub host: String,
    pub port: u16,
    path: String,
}

impl Endpoint {
    pub fn parse(text: &str) -> Result<Self, CallError> {
        let wrong = || CallError::Uri(text.into());
        let uri: Uri = text.trim().parse().map_err(|_| wrong())?;
        if uri.scheme_str() != Some("http") {
            return Err(wrong());
        }
        let port = match uri.authority().map(|all| all.as_str().rsplit_once(':')) {
            Some(Some((_, digits))) if !digits.ends_with(']') => {
                digits.parse().map_err(|_| wrong())?
            }
            _ => DEFAULT_PORT,
        };
        let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(wrong)?;
        Ok(Self {
            uri: text.trim().into(),
            host: host.trim_matches(['[', ']']).into(),
            port,
            path: uri.path().into(),
        })
    }
}

/// Opens a tuned TCP connection to any node but the master; tries every address of `host`.
pub(super) async fn connect(host: &str, port: u16) -> io::Result<TcpStream> {
    static RESOLVER: Resolver = Resolver::new();
    let stream = match host.parse::<IpAddr>() {
        Ok(address) => TcpStream::connect((address, port)).await?,
        Err(_) => TcpStream::connect(&RESOLVER.addresses(host, port).await?[..]).await?,
    };
    tune(&stream)?;
    Ok(stream)
}

/// Disables Nagle's delay. Keepalive detects a peer that vanished silently within about two minutes.
pub(super) fn tune(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let keepalive = socket2::TcpKeepalive::new()
        .with_time(Duration::from_secs(60))
        .with_interval(Duration::from_secs(10))
        .with_retries(6);
    socket2::SockRef::from(stream).set_tcp_keepalive(&keepalive)
}

/// A connection for several calls, one after the other.
pub(super) struct Connection {
    sender: SendRequest<Full<Bytes>>,
    /// Whether the last response was that of roscpp's XML-RPC server.
    is_roscpp: bool,
    driver: JoinHandle<()>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Connection {
    pub async fn open_master(to: &Endpoint) -> Result<Self, CallError> {
        // Without the resolver, so that the master's name waits for no other lookup.
        let stream = TcpStream::connect((to.host.as_str(), to.port)).await;
        Self::over_stream(stream.and_then(|stream| tune(&stream).map(|()| stream)), to).await
    }

    async fn over_stream(stream: io::Result<TcpStream>, to: &Endpoint) -> Result<Self, CallError> {
        let failed = |source| CallError::Connect { host: to.host.clone(), port: to.port, source };
        let (sender, driver) = http1::Builder::new()
            .max_buf_size(MAX_HEAD_BYTES)
            .handshake(TokioIo::new(stream.map_err(failed)?))
            .await
            .map_err(|error| failed(io::Error::other(error)))?;
        let driver = tokio::spawn(async {
            // The pending call receives the error as well.
            let _ = driver.await;
        });
        Ok(Self { sender, is_roscpp: false, driver })
    }

    pub fn is_open(&self) -> bool {
        !self.sender.is_closed()
    }

    /// Calls `method`; returns the body of the response, of at most `limit` bytes.
    pub async fn exchange(
        &mut self,
        to: &Endpoint,
        method: &'static str,
        params: Vec<Value>,
        limit: usize,
    ) -> Result<Bytes, CallError> {
        let malformed = |found: String| CallError::Answer { uri: to.uri.clone(), method, found };
        let broken = |source| CallError::Http { uri: to.uri.clone(), method, source };
        let body = MethodCall { name: method.into(), params }
            .to_xml()
            .map_err(|error| malformed(error.to_string()))?;
        let request = Request::post(to.path.as_str())
            .header(header::HOST, format!("{}:{}", to.host, to.port))
            .header(header::CONTENT_TYPE, "text/xml")
            .body(Full::from(body))
            .map_err(|error| malformed(error.to_string()))?;
        self.sender.ready().await.map_err(broken)?;
        let response = self.sender.send_request(request).await.map_err(broken)?;
        if !response.status().is_success() {
            return Err(malformed(format!("HTTP status {}", response.status())));
        }
        let too_large = |found| CallError::TooLarge { uri: to.uri.clone(), method, found, limit };
        let server = response.headers().get(header::SERVER);
        self.is_roscpp = server.is_some_and(|it| it.as_bytes().starts_with(ROSCPP_SERVER));
        let announced = response.body().size_hint().lower();
        if announced > limit as u64 {
            return Err(too_large(announced.to_string()));
        }
        match Limited::new(response.into_body(), limit).collect().await {
            Ok(body) => Ok(body.to_bytes()),
            Err(error) if error.is::<LengthLimitError>() => Err(too_large(format!("over {limit}"))),
            Err(error) => Err(malformed(error.to_string())),
        }
    }
}

/// Returns the value in a response of the master, a triple `(code, text, value)`.
pub(super) async fn master_response(
    to: &Endpoint,
    method: &'static str,
    body: Bytes,
) -> Result<Value, CallError> {
    let parsed = match body.len() <= MAX_INLINE_BYTES {
        true => parse_answer(&body),
        false => tokio::task::spawn_blocking(move || parse_answer(&body))
            .await
            .unwrap_or_else(|error| Err(error.to_string())),
    };
    value_of(parsed, to, method)
}

fn value_of(
    answer: Result<Value, String>,
    to: &Endpoint,
    method: &'static str,
) -> Result<Value, CallError> {
    let malformed = |found| CallError::Answer { uri: to.uri.clone(), method, found };
    unwrap_ros(answer.map_err(malformed)?).map_err(|error| match error {
        RosError::Refused(reason) => CallError::Refused { uri: to.uri.clone(), method, reason },
        RosError::Malformed => malformed("the answer is not ROS's [code, text, value]".to_owned()),
    })
}

/// Calls any node but the master once, on a connection of its own, within [`CALL_TIMEOUT`]. The
/// response may have `limit` bytes.
pub(super) async fn call(
    uri: &str,
    method: &'static str,
    params: Vec<Value>,
    limit: usize,
) -> Result<Value, CallError> {
    call_identified(uri, method, params, limit).await.map(|(value, _)| value)
}

/// Like [`call`]; also returns whether the node is one of roscpp.
pub(super) async fn call_identified(
    uri: &str,
    method: &'static str,
    params: Vec<Value>,
    limit: usize,
) -> Result<(Value, bool), CallError> {
    let to = Endpoint::parse(uri)?;
    let answer = async {
        let stream = connect(&to.host, to.port).await;
        let mut connection = Connection::over_stream(stream, &to).await?;
        let body = connection.exchange(&to, method, params, limit).await?;
        let value = value_of(parse_off_thread(body, parse_answer).await, &to, method)?;
        Ok((value, connection.is_roscpp))
    };
    timeout(CALL_TIMEOUT, answer)
        .await
        .unwrap_or_else(|_| Err(CallError::Timeout { uri: uri.into(), method }))
}

#[derive(Debug)]
pub(super) enum RosError {
    Refused(String),
    Malformed,
}

/// Returns the value of ROS's triple `(code, text, value)`; the code 1 means success.
pub(super) fn unwrap_ros(answer: Value) -> Result<Value, RosError> {
    let Value::Array(parts) = answer else { return Err(RosError::Malformed) };
    let mut parts = parts.into_iter();
    match (parts.next(), parts.next(), parts.next()) {
        (Some(Value::Integer(1)), _, value) => Ok(value.unwrap_or(Value::Integer(0))),
        (Some(Value::Integer(_)), Some(Value::String(text)), _) => Err(RosError::Refused(text)),
        _ => Err(RosError::Malformed),
    }
}

/// The text of `body`, if it is XML no deeper than [`MAX_XML_DEPTH`].
fn shallow_xml(body: &[u8]) -> Result<&str, String> {
    let text = std::str::from_utf8(body).map_err(|_| "not UTF-8".to_owned())?;
    let mut reader = quick_xml::Reader::from_str(text);
    let mut depth = 0usize;
    loop {
        match reader.read_event() {
            Ok(XmlEvent::Start(_)) => depth += 1,
            Ok(XmlEvent::End(_)) => depth = depth.saturating_sub(1),
            Ok(XmlEvent::Eof) => return Ok(text),
            Ok(_) => {}
            Err(error) => return Err(format!("not XML: {error}")),
        }
        if depth > MAX_XML_DEPTH {
            return Err(format!("XML nested deeper than {MAX_XML_DEPTH}"));
        }
    }
}

/// Parses a body that another node than the master sent. A long one delays no other work.
pub(super) async fn parse_off_thread<T: Send + 'static>(
    body: Bytes,
    parse: impl FnOnce(&[u8]) -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    static SLOTS: Semaphore = Semaphore::const_new(MAX_PARSERS);
    if body.len() <= MAX_INLINE_BYTES {
        return parse(&body);
    }
    let slot = SLOTS.acquire().await.map_err(|error| error.to_string())?;
    // The slot is held until the work ends, even if the caller has given up.
    let work = move || {
        let _slot = slot;
        parse(&body)
    };
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(error.to_string()))
}

pub(super) fn parse_answer(body: &[u8]) -> Result<Value, String> {
    let text = shallow_xml(body)?;
    if let Ok(response) = MethodResponse::from_xml(text) {
        return Ok(response.value);
    }
    match FaultResponse::from_xml(text) {
        Ok(response) => Err(response.fault.to_string()),
        Err(_) => Err("the answer is not XML-RPC".into()),
    }
}

pub(super) fn parse_call(body: &[u8]) -> Result<(String, Vec<Value>), String> {
    let call = MethodCall::from_xml(shallow_xml(body)?)
        .map_err(|_| "the request is not an XML-RPC methodCall".to_owned())?;
    Ok((call.name.into_owned(), call.params))
}

pub(super) fn render_answer(value: Value) -> String {
    with_declaration(MethodResponse { value }.to_xml())
}

pub(super) fn render_fault(code: i32, text: &str) -> String {
    with_declaration(FaultResponse { fault: dxr::Fault::new(code, text.into()) }.to_xml())
}

fn with_declaration(xml: Result<String, dxr::Error>) -> String {
    // dxr documents that its own values always render.
    format!("<?xml version=\"1.0\"?>\n{}", xml.unwrap_or_default())
}

pub(super) fn string_value(text: &str) -> Value {
    Value::String(text.into())
}

/// The members of an array; empty for any other value.
pub(super) fn members(value: &Value) -> &[Value] {
    if let Value::Array(members) = value { members } else { &[] }
}

pub(super) fn as_text(value: &Value) -> Option<&str> {
    if let Value::String(text) = value { Some(text) } else { None }
}

/// The texts in an array, without other members.
pub(super) fn texts(value: &Value) -> Vec<String> {
    members(value).iter().filter_map(as_text).map(str::to_owned).collect()
}

/// The pairs of texts in an array such as `[[topic, type], ...]`, without other members.
pub(super) fn pairs(value: &Value) -> Vec<(String, String)> {
    let pair = |pair: &Value| match members(pair) {
        [a, b, ..] => Some((as_text(a)?.to_owned(), as_text(b)?.to_owned())),
        _ => None,
    };
    members(value).iter().filter_map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::{Read, Write};

    #[test]
    fn endpoints_have_names_or_addresses_and_a_default_port() {
        let named = Endpoint::parse("http://robot1:4000/").unwrap();
        assert_eq!((named.host.as_str(), named.port), ("robot1", 4000));
        assert_eq!(Endpoint::parse("http://[::1]:5/").unwrap().host, "::1");
        assert_eq!(Endpoint::parse("http://robot1").unwrap().port, DEFAULT_PORT);
        for wrong in ["", "robot1", "rosrpc://a:1", "http://", "http:///x", "http://a:99999"] {
            let error = Endpoint::parse(wrong).unwrap_err().to_string();
            assert!(error.contains(&format!("'{wrong}'")), "{error}");
        }
    }

    #[test]
    fn responses_of_python_and_roscpp_are_read() {
        let python = b"<?xml version='1.0'?>\n<methodResponse>\n<params>\n<param>\n<value><array>\
            <data>\n<value><int>1</int></value>\n<value><string></string></value>\n<value><array>\
            <data>\n<value><string>a &amp; b</string></value>\n</data></array></value>\n</data>\
            </array></value>\n</param>\n</params>\n</methodResponse>\n";
        let value = unwrap_ros(parse_answer(python).unwrap()).ok().unwrap();
        assert_eq!(texts(&value), ["a & b"]);
        let roscpp = b"<?xml version=\"1.0\"?>\r\n<methodResponse><params><param>\r\n\t<value>\
            <array><data><value><i4>1</i4></value><value></value><value><array><data><value>TCPROS\
            </value><value>host</value><value><i4>4000</i4></value></data></array></value></data>\
            </array></value>\r\n</param></params></methodResponse>\r\n";
        let value = unwrap_ros(parse_answer(roscpp).unwrap()).ok().unwrap();
        assert_eq!(members(&value)[2], Value::Integer(4000));
    }

    #[test]
    fn faults_and_refusals_have_their_reasons() {
        let fault = parse_answer(render_fault(-1, "no <such> method").as_bytes()).unwrap_err();
        assert!(fault.contains("no <such> method"), "{fault}");
        let refusal =
            Value::Array(vec![Value::Integer(0), string_value("not here"), Value::Integer(0)]);
        let answer = parse_answer(render_answer(refusal).as_bytes()).unwrap();
        assert!(matches!(unwrap_ros(answer), Err(RosError::Refused(why)) if why == "not here"));
    }

    fn run<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
    }

    #[test]
    fn long_bodies_are_parsed_outside_the_gateways_thread() {
        let (thread, other) = (std::thread::current().id(), std::thread::current);
        let parse = move |body: &[u8]| Ok((other().id() == thread, body.len()));
        run(async {
            for (length, here) in [(100, true), (2 * MAX_INLINE_BYTES, false)] {
                let parsed = parse_off_thread(vec![b' '; length].into(), parse).await;
                assert_eq!(parsed, Ok((here, length)));
            }
        });
    }

    #[test]
    fn only_the_master_may_send_long_answers() {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let uri = format!("http://{}/", listener.local_addr().unwrap());
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            // No answer comes before its question.
            let _ = stream.read(&mut [0; 4096]).unwrap();
            // Without a length, the answer lasts as long as the connection.
            let head = "HTTP/1.1 200 OK\r\n\r\n";
            let mut written = stream.write_all(head.as_bytes()).map(|()| 0);
            while let Ok(bytes @ ..MAX_MASTER_BYTES) = written {
                written = stream.write_all(&[b' '; 4096]).map(|()| bytes + 4096);
            }
            written.is_ok()
        });
        let error = run(call(&uri, "requestTopic", vec![], MAX_REPLY_BYTES)).unwrap_err();
        assert!(error.to_string().contains("over 16384 bytes; allowed: 16384"), "{error}");
        assert!(!server.join().unwrap(), "the rest was not read");
    }

    #[test]
    fn errors_contain_no_control_characters() {
        let hostile = "a\nb\u{1b}[2J".to_owned();
        let (uri, host, method) = (hostile.clone(), hostile.clone(), "m");
        let errors = [
            CallError::Uri(hostile.clone()),
            CallError::Connect { host, port: 1, source: io::ErrorKind::TimedOut.into() },
            CallError::Timeout { uri: uri.clone(), method },
            CallError::Answer { uri: uri.clone(), method, found: hostile.clone() },
            CallError::Refused { uri, method, reason: hostile },
        ];
        for error in errors.map(|error| error.to_string()) {
            assert!(error.contains("a\\nb") && !error.contains(char::is_control), "{error}");
        }
    }

    #[test]
    fn deep_nesting_is_refused_before_it_uses_the_stack() {
        let deep = "<a>".repeat(200_000);
        assert!(parse_call(deep.as_bytes()).unwrap_err().contains("deeper"));
        let disguised = format!("{}{}", "<a><![CDATA[</a>]]>".repeat(100), "<b>".repeat(200_000));
        assert!(parse_call(disguised.as_bytes()).unwrap_err().contains("deeper"));
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_or_refused(bytes: Vec<u8>) {
            let _ = parse_call(&bytes);
            let _ = parse_answer(&bytes);
        }

        #[test]
        fn anything_like_xml_is_parsed_or_refused(
            tags in proptest::collection::vec(
                "</?(methodCall|methodName|params|param|value|array|data|struct|member|name)/?>\
                 |</?(int|i8|double|nil|base64|dateTime.iso8601)/?>|[&;0-9a-z ]{0,4}",
                0..40,
            )
        ) {
            let _ = parse_call(tags.concat().as_bytes());
            let _ = parse_answer(tags.concat().as_bytes());
        }

        #[test]
        fn calls_survive_the_wire(words: Vec<String>) {
            // XML cannot represent control characters.
            let writable = |c: &char| !c.is_control() && !matches!(c, '\u{fffe}' | '\u{ffff}');
            let words: Vec<String> =
                words.iter().map(|word| word.chars().filter(writable).collect()).collect();
            let list = Value::Array(words.iter().map(|word| string_value(word)).collect());
            let xml = MethodCall { name: "m".into(), params: vec![list] }.to_xml().unwrap();
            let (name, params) = parse_call(xml.as_bytes()).unwrap();
            prop_assert_eq!(name, "m");
            prop_assert_eq!(texts(&params[0]), words);
        }
    }
}
