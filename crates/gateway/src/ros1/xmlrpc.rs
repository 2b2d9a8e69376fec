// SPDX-License-Identifier: Apache-2.0
//! XML-RPC: values by `dxr`, HTTP by `hyper`, and the limits that keep a
//! hostile or hanging far side from costing more than it may.

use super::look_ups::LookUps;
use super::shown;
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

/// How long any one call may take, from the connection to the last byte of the answer.
pub(super) const CALL_TIMEOUT: Duration = Duration::from_secs(3);
/// Longest answer taken of the master: 16 peers of 4096 published names of 255 bytes make 29 MB.
pub(super) const MAX_MASTER_BYTES: usize = 32 * 1024 * 1024;
/// Longest list of topics taken of any other node, one of many that answer at a time.
pub(super) const MAX_LIST_BYTES: usize = 512 * 1024;
/// Longest other answer taken of such a node: where it is, or its process's number.
pub(super) const MAX_REPLY_BYTES: usize = 16 * 1024;
/// Longest head of an answer.
const MAX_HEAD_BYTES: usize = 16 * 1024;
/// What is longer is parsed beside the gateway's thread, which has messages to pass on meanwhile.
const MAX_PARSED_HERE_BYTES: usize = 16 * 1024;
/// Long answers and requests of other nodes than the master that are parsed at once; further ones
/// wait. The master's wait for none.
const MAX_PARSED_AT_ONCE: usize = 2;
/// Deepest nesting taken. Each ROS call needs about 20; parsers recurse, so depth costs stack.
const MAX_XML_DEPTH: usize = 64;
/// What ROS 1 masters listen on unless told otherwise.
const DEFAULT_PORT: u16 = 11311;

/// Why a call gave no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum CallError {
    #[error("'{}' is not a URI of the form http://HOST:PORT/", shown(.0))]
    Uri(String),
    #[error("{}:{port}: {source}", shown(host))]
    Connect { host: String, port: u16, source: io::Error },
    #[error("{}: no answer to {method} within {} s", shown(uri), CALL_TIMEOUT.as_secs())]
    Timeout { uri: String, method: &'static str },
    #[error("{}: {method}: {source}", shown(uri))]
    Http { uri: String, method: &'static str, source: hyper::Error },
    #[error("{}: {method}: {}", shown(uri), shown(found))]
    Answer { uri: String, method: &'static str, found: String },
    #[error("{}: the answer to {method} is too large: {found} bytes; allowed: {most}", shown(uri))]
    TooLarge { uri: String, method: &'static str, found: String, most: usize },
    #[error("{}: {method} was refused: {}", shown(uri), shown(reason))]
    Refused { uri: String, method: &'static str, reason: String },
}

impl CallError {
    /// Whether nothing listens there: the process is gone, not merely slow.
    pub fn nobody_there(&self) -> bool {
        matches!(self, Self::Connect { source, .. }
            if source.kind() == io::ErrorKind::ConnectionRefused)
    }

    /// Whether it was answered, if only with a refusal.
    pub fn answered(&self) -> bool {
        matches!(self, Self::Refused { .. } | Self::Answer { .. } | Self::TooLarge { .. })
    }
}

/// Where an XML-RPC server is.
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

/// Opens a TCP connection without Nagle's delay and with keepalive, trying every address of `host`.
/// For the master, whose name waits for no other.
async fn connect_master(host: &str, port: u16) -> io::Result<TcpStream> {
    let stream = TcpStream::connect((host, port)).await?;
    tune(&stream)?;
    Ok(stream)
}

/// The same for any other node.
pub(super) async fn connect(host: &str, port: u16) -> io::Result<TcpStream> {
    static LOOK_UPS: LookUps = LookUps::new();
    let stream = match host.parse::<IpAddr>() {
        Ok(address) => TcpStream::connect((address, port)).await?,
        Err(_) => TcpStream::connect(&LOOK_UPS.addresses(host, port).await?[..]).await?,
    };
    tune(&stream)?;
    Ok(stream)
}

/// No Nagle delay, and a far side that vanished without a word is noticed within about two minutes.
pub(super) fn tune(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let keepalive = socket2::TcpKeepalive::new()
        .with_time(Duration::from_secs(60))
        .with_interval(Duration::from_secs(10))
        .with_retries(6);
    socket2::SockRef::from(stream).set_tcp_keepalive(&keepalive)
}

/// A connection that may carry several calls, one after the other.
pub(super) struct Connection {
    sender: SendRequest<Full<Bytes>>,
    driver: JoinHandle<()>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Connection {
    pub async fn open_master(to: &Endpoint) -> Result<Self, CallError> {
        Self::over(connect_master(&to.host, to.port).await, to).await
    }

    async fn over(stream: io::Result<TcpStream>, to: &Endpoint) -> Result<Self, CallError> {
        let failed = |source| CallError::Connect { host: to.host.clone(), port: to.port, source };
        let (sender, driver) = http1::Builder::new()
            .max_buf_size(MAX_HEAD_BYTES)
            .handshake(TokioIo::new(stream.map_err(failed)?))
            .await
            .map_err(|error| failed(io::Error::other(error)))?;
        let driver = tokio::spawn(async {
            // An error here reaches the call that waits on it.
            let _ = driver.await;
        });
        Ok(Self { sender, driver })
    }

    pub fn is_open(&self) -> bool {
        !self.sender.is_closed()
    }

    /// Calls `method` of the master; gives the answer, which [`masters_answer`] reads.
    pub async fn call_master(
        &mut self,
        to: &Endpoint,
        method: &'static str,
        params: Vec<Value>,
    ) -> Result<Bytes, CallError> {
        self.exchange(to, method, params, MAX_MASTER_BYTES).await
    }

    /// Calls `method`; gives the body of the answer.
    async fn exchange(
        &mut self,
        to: &Endpoint,
        method: &'static str,
        params: Vec<Value>,
        most: usize,
    ) -> Result<Bytes, CallError> {
        let odd = |found: String| CallError::Answer { uri: to.uri.clone(), method, found };
        let broken = |source| CallError::Http { uri: to.uri.clone(), method, source };
        let body = MethodCall { name: method.into(), params }
            .to_xml()
            .map_err(|error| odd(error.to_string()))?;
        let request = Request::post(to.path.as_str())
            .header(header::HOST, format!("{}:{}", to.host, to.port))
            .header(header::CONTENT_TYPE, "text/xml")
            .body(Full::from(body))
            .map_err(|error| odd(error.to_string()))?;
        self.sender.ready().await.map_err(broken)?;
        let response = self.sender.send_request(request).await.map_err(broken)?;
        if !response.status().is_success() {
            return Err(odd(format!("HTTP status {}", response.status())));
        }
        let too_large = |found| CallError::TooLarge { uri: to.uri.clone(), method, found, most };
        let announced = response.body().size_hint().lower();
        if announced > most as u64 {
            return Err(too_large(announced.to_string()));
        }
        match Limited::new(response.into_body(), most).collect().await {
            Ok(body) => Ok(body.to_bytes()),
            Err(error) if error.is::<LengthLimitError>() => Err(too_large(format!("over {most}"))),
            Err(error) => Err(odd(error.to_string())),
        }
    }
}

/// Reads an answer of the master; the value is the third part of ROS's (code, text, value).
pub(super) async fn masters_answer(
    to: &Endpoint,
    method: &'static str,
    body: Bytes,
) -> Result<Value, CallError> {
    value_of(parse_masters(body).await, to, method)
}

fn value_of(
    answer: Result<Value, String>,
    to: &Endpoint,
    method: &'static str,
) -> Result<Value, CallError> {
    let odd = |found| CallError::Answer { uri: to.uri.clone(), method, found };
    unwrap_ros(answer.map_err(odd)?).map_err(|reason| match reason {
        RosAnswer::Refused(reason) => CallError::Refused { uri: to.uri.clone(), method, reason },
        RosAnswer::Odd(found) => odd(found),
    })
}

/// One call of any node but the master on a connection of its own, within [`CALL_TIMEOUT`]; the
/// answer has `most` bytes.
pub(super) async fn call(
    uri: &str,
    method: &'static str,
    params: Vec<Value>,
    most: usize,
) -> Result<Value, CallError> {
    let to = Endpoint::parse(uri)?;
    let answer = async {
        let stream = connect(&to.host, to.port).await;
        let mut connection = Connection::over(stream, &to).await?;
        let body = connection.exchange(&to, method, params, most).await?;
        value_of(parse_apart(body, parse_answer).await, &to, method)
    };
    timeout(CALL_TIMEOUT, answer)
        .await
        .unwrap_or_else(|_| Err(CallError::Timeout { uri: uri.into(), method }))
}

pub(super) enum RosAnswer {
    Refused(String),
    Odd(String),
}

/// Takes ROS's (code, text, value) apart; 1 is success.
pub(super) fn unwrap_ros(answer: Value) -> Result<Value, RosAnswer> {
    let Value::Array(parts) = answer else {
        return Err(RosAnswer::Odd("the answer is not ROS's [code, text, value]".into()));
    };
    let mut parts = parts.into_iter();
    match (parts.next(), parts.next(), parts.next()) {
        (Some(Value::Integer(1)), _, value) => Ok(value.unwrap_or(Value::Integer(0))),
        (Some(Value::Integer(_)), Some(Value::String(text)), _) => Err(RosAnswer::Refused(text)),
        _ => Err(RosAnswer::Odd("the answer is not ROS's [code, text, value]".into())),
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

/// Parses what another node than the master sent where that holds up nobody.
pub(super) async fn parse_apart<T: Send + 'static>(
    body: Bytes,
    parse: impl FnOnce(&[u8]) -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    static PLACES: Semaphore = Semaphore::const_new(MAX_PARSED_AT_ONCE);
    if body.len() <= MAX_PARSED_HERE_BYTES {
        return parse(&body);
    }
    let place = PLACES.acquire().await.map_err(|error| error.to_string())?;
    // The place is kept until the work ends, even if nobody waits any more.
    let work = move || {
        let _place = place;
        parse(&body)
    };
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(error.to_string()))
}

/// The same for the master.
async fn parse_masters(body: Bytes) -> Result<Value, String> {
    if body.len() <= MAX_PARSED_HERE_BYTES {
        return parse_answer(&body);
    }
    let parsed = tokio::task::spawn_blocking(move || parse_answer(&body)).await;
    parsed.unwrap_or_else(|error| Err(error.to_string()))
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

/// Takes a request apart into method and parameters.
pub(super) fn parse_call(body: &[u8]) -> Result<(String, Vec<Value>), String> {
    let call = MethodCall::from_xml(shallow_xml(body)?)
        .map_err(|_| "the request is not an XML-RPC methodCall".to_owned())?;
    Ok((call.name.into_owned(), call.params))
}

/// The body of an answer.
pub(super) fn render_answer(value: Value) -> String {
    declared(MethodResponse { value }.to_xml())
}

/// The body of a fault.
pub(super) fn render_fault(code: i32, text: &str) -> String {
    declared(FaultResponse { fault: dxr::Fault::new(code, text.into()) }.to_xml())
}

fn declared(xml: Result<String, dxr::Error>) -> String {
    // dxr documents that its own values always render.
    format!("<?xml version=\"1.0\"?>\n{}", xml.unwrap_or_default())
}

pub(super) fn text(text: &str) -> Value {
    Value::String(text.into())
}

/// The members of an array; none if it is something else.
pub(super) fn members(value: &Value) -> &[Value] {
    if let Value::Array(members) = value { members } else { &[] }
}

pub(super) fn as_text(value: &Value) -> Option<&str> {
    if let Value::String(text) = value { Some(text) } else { None }
}

/// The texts in an array of texts, leaving out what is not.
pub(super) fn texts(value: &Value) -> Vec<String> {
    members(value).iter().filter_map(as_text).map(str::to_owned).collect()
}

/// Pairs of texts, as `[[topic, type], ...]`, leaving out what is not.
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
    fn endpoints_are_parsed_with_names_addresses_and_the_usual_port() {
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
    fn answers_as_python_and_roscpp_write_them_are_read() {
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
    fn faults_and_refusals_tell_why() {
        let fault = parse_answer(render_fault(-1, "no <such> method").as_bytes()).unwrap_err();
        assert!(fault.contains("no <such> method"), "{fault}");
        let refusal = Value::Array(vec![Value::Integer(0), text("not here"), Value::Integer(0)]);
        let answer = parse_answer(render_answer(refusal).as_bytes()).unwrap();
        assert!(matches!(unwrap_ros(answer), Err(RosAnswer::Refused(why)) if why == "not here"));
    }

    fn run<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
    }

    #[test]
    fn what_is_long_is_parsed_beside_the_gateways_thread() {
        let (thread, other) = (std::thread::current().id(), std::thread::current);
        let parse = move |body: &[u8]| Ok((other().id() == thread, body.len()));
        run(async {
            for (length, here) in [(100, true), (2 * MAX_PARSED_HERE_BYTES, false)] {
                let parsed = parse_apart(vec![b' '; length].into(), parse).await;
                assert_eq!(parsed, Ok((here, length)));
            }
        });
    }

    #[test]
    fn of_other_nodes_than_the_master_a_short_answer_is_taken() {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let uri = format!("http://{}/", listener.local_addr().unwrap());
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            // No answer comes before its question.
            let _ = stream.read(&mut [0; 4096]).unwrap();
            // Without a length, as long as the connection lasts.
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
    fn errors_hold_no_characters_that_a_terminal_obeys() {
        let odd = "a\nb\u{1b}[2J".to_owned();
        let (uri, host, method) = (odd.clone(), odd.clone(), "m");
        let errors = [
            CallError::Uri(odd.clone()),
            CallError::Connect { host, port: 1, source: io::ErrorKind::TimedOut.into() },
            CallError::Timeout { uri: uri.clone(), method },
            CallError::Answer { uri: uri.clone(), method, found: odd.clone() },
            CallError::Refused { uri, method, reason: odd },
        ];
        for error in errors.map(|error| error.to_string()) {
            assert!(error.contains("a\\nb") && !error.contains(char::is_control), "{error}");
        }
    }

    #[test]
    fn deep_nesting_is_refused_before_it_costs_stack() {
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
            // XML has no way to write control characters.
            let writable = |c: &char| !c.is_control() && !matches!(c, '\u{fffe}' | '\u{ffff}');
            let words: Vec<String> =
                words.iter().map(|word| word.chars().filter(writable).collect()).collect();
            let list = Value::Array(words.iter().map(|word| text(word)).collect());
            let xml = MethodCall { name: "m".into(), params: vec![list] }.to_xml().unwrap();
            let (name, params) = parse_call(xml.as_bytes()).unwrap();
            prop_assert_eq!(name, "m");
            prop_assert_eq!(texts(&params[0]), words);
        }
    }
}
