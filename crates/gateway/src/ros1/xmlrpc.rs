// SPDX-License-Identifier: Apache-2.0
//! XML-RPC: values by `dxr`, HTTP by `hyper`, and the limits that keep a
//! hostile or hanging far side from costing more than it may.

use crate::plain::plain;
use bytes::Bytes;
use dxr::{FaultResponse, MethodCall, MethodResponse, Value};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Request, Uri, header};
use hyper_util::rt::TokioIo;
use quick_xml::events::Event as XmlEvent;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// How long any one call may take, from the connection to the last byte of the answer.
pub(super) const CALL_TIMEOUT: Duration = Duration::from_secs(3);
/// Longest answer taken of the master, whose list of a thousand topics is around 200 KiB.
const MAX_MASTER_BYTES: usize = 8 * 1024 * 1024;
/// Longest list of topics taken of any other node, one of many that answer at a time.
pub(super) const MAX_LIST_BYTES: usize = 512 * 1024;
/// Longest other answer taken of such a node: where it is, or its process's number.
pub(super) const MAX_REPLY_BYTES: usize = 16 * 1024;
/// Longest head of an answer.
const MAX_HEAD_BYTES: usize = 16 * 1024;
/// Longer answers are parsed beside the gateway's thread, which has messages to pass on meanwhile.
const MAX_PARSED_HERE_BYTES: usize = 64 * 1024;
/// Names of hosts that are looked up at once for nodes that say where they are; the master's is
/// looked up beside them. One that hangs keeps its place.
const MAX_LOOK_UPS: usize = 32;
/// Addresses of one name that are tried.
const MAX_ADDRESSES: usize = 8;
/// Bytes of an error's text that are kept.
const MAX_ERROR_BYTES: usize = 400;
/// Deepest nesting taken. Each ROS call needs about 20; parsers recurse, so depth costs stack.
const MAX_XML_DEPTH: usize = 64;
/// What ROS 1 masters listen on unless told otherwise.
const DEFAULT_PORT: u16 = 11311;

/// Why a call gave no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum CallError {
    #[error("'{}' is not a URI of the form http://HOST:PORT/", told(.0))]
    Uri(String),
    #[error("{}:{port}: {source}", told(host))]
    Connect { host: String, port: u16, source: io::Error },
    #[error("{}: no answer to {method} within {} s", told(uri), CALL_TIMEOUT.as_secs())]
    Timeout { uri: String, method: &'static str },
    #[error("{}: {method}: {source}", told(uri))]
    Http { uri: String, method: &'static str, source: hyper::Error },
    #[error("{}: {method}: {}", told(uri), told(found))]
    Answer { uri: String, method: &'static str, found: String },
    #[error("{}: {method} was refused: {}", told(uri), told(reason))]
    Refused { uri: String, method: &'static str, reason: String },
}

/// What others wrote, as it may stand in logs and status.
pub(super) fn told(text: &str) -> String {
    plain(text, MAX_ERROR_BYTES)
}

impl CallError {
    /// Whether nothing listens there: the process is gone, not merely slow.
    pub fn nobody_there(&self) -> bool {
        matches!(self, Self::Connect { source, .. }
            if source.kind() == io::ErrorKind::ConnectionRefused)
    }

    /// Whether it was answered, if only with a refusal.
    pub fn answered(&self) -> bool {
        matches!(self, Self::Refused { .. } | Self::Answer { .. })
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
    static LOOK_UPS: Semaphore = Semaphore::const_new(MAX_LOOK_UPS);
    let stream = match host.parse::<IpAddr>() {
        Ok(address) => TcpStream::connect((address, port)).await?,
        Err(_) => {
            let addresses = look_up((host.into(), port), &LOOK_UPS, to_addresses).await?;
            TcpStream::connect(&addresses[..]).await?
        }
    };
    tune(&stream)?;
    Ok(stream)
}

fn to_addresses(host: (String, u16)) -> io::Result<Vec<SocketAddr>> {
    Ok(host.to_socket_addrs()?.take(MAX_ADDRESSES).collect())
}

/// Nobody can end a look-up, so each keeps its place until it ends, even if nobody waits any more.
async fn look_up<T: Send + 'static>(
    host: (String, u16),
    places: &'static Semaphore,
    ask: impl FnOnce((String, u16)) -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let place = places.acquire().await.map_err(io::Error::other)?;
    let asked = tokio::task::spawn_blocking(move || {
        let _place = place;
        ask(host)
    });
    asked.await?
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

    /// Calls `method` of the master; the answer is the third part of ROS's (code, text, value).
    pub async fn call_master(
        &mut self,
        to: &Endpoint,
        method: &'static str,
        params: Vec<Value>,
    ) -> Result<Value, CallError> {
        self.call(to, method, params, MAX_MASTER_BYTES).await
    }

    async fn call(
        &mut self,
        to: &Endpoint,
        method: &'static str,
        params: Vec<Value>,
        most: usize,
    ) -> Result<Value, CallError> {
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
        let body = Limited::new(response.into_body(), most).collect().await;
        let failed = |error: Box<dyn std::error::Error + Send + Sync>| match error
            .is::<LengthLimitError>()
        {
            true => format!("the answer has more than {most} bytes"),
            false => error.to_string(),
        };
        let body = body.map_err(|error| odd(failed(error)))?.to_bytes();
        let answer = parse(body).await.map_err(odd)?;
        unwrap_ros(answer).map_err(|reason| match reason {
            RosAnswer::Refused(reason) => {
                CallError::Refused { uri: to.uri.clone(), method, reason }
            }
            RosAnswer::Odd(found) => odd(found),
        })
    }
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
        Connection::over(stream, &to).await?.call(&to, method, params, most).await
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

/// Parses an answer where that holds up nobody.
async fn parse(body: Bytes) -> Result<Value, String> {
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
    use std::io::Write;
    use std::sync::atomic::{AtomicUsize, Ordering};

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
    fn a_long_answer_is_parsed_beside_the_gateways_thread() {
        let poll = |length: usize| {
            let body = Bytes::from(render_answer(text(&"x".repeat(length))));
            let mut parsed = Box::pin(parse(body));
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            let at_once = parsed.as_mut().poll(&mut context).is_ready();
            (at_once, parsed)
        };
        run(async {
            assert!(poll(100).0);
            let (at_once, parsed) = poll(20 * MAX_PARSED_HERE_BYTES);
            assert!(!at_once);
            assert_eq!(as_text(&parsed.await.unwrap()).unwrap().len(), 20 * MAX_PARSED_HERE_BYTES);
        });
    }

    #[test]
    fn of_other_nodes_than_the_master_a_short_answer_is_taken() {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let uri = format!("http://{}/", listener.local_addr().unwrap());
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let length = MAX_MASTER_BYTES;
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
            let mut written = stream.write_all(head.as_bytes()).map(|()| 0);
            while let Ok(bytes @ ..MAX_MASTER_BYTES) = written {
                written = stream.write_all(&[b' '; 4096]).map(|()| bytes + 4096);
            }
            written.is_ok()
        });
        let error = run(call(&uri, "requestTopic", vec![], MAX_REPLY_BYTES)).unwrap_err();
        assert!(error.to_string().contains("more than 16384 bytes"), "{error}");
        assert!(!server.join().unwrap(), "the rest was not read");
    }

    #[test]
    fn look_ups_that_hang_are_few_whoever_waits_for_them() {
        static PLACES: Semaphore = Semaphore::const_new(2);
        static BEGUN: AtomicUsize = AtomicUsize::new(0);
        let (end, ends) = std::sync::mpsc::channel::<()>();
        let ends = std::sync::Arc::new(std::sync::Mutex::new(ends));
        run(async {
            for _ in 0..10 {
                let ends = ends.clone();
                let hangs = move |_| {
                    BEGUN.fetch_add(1, Ordering::Relaxed);
                    let _ = ends.lock().unwrap().recv();
                    Ok(())
                };
                let asked = look_up(("x".into(), 1), &PLACES, hangs);
                assert!(timeout(Duration::from_millis(10), asked).await.is_err());
            }
            assert!(BEGUN.load(Ordering::Relaxed) <= 2);
            drop(end);
            let asked = look_up(("x".into(), 1), &PLACES, |host| Ok(host.1));
            assert_eq!(asked.await.unwrap(), 1, "there is room again");
        });
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
