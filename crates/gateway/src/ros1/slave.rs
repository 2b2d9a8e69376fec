// SPDX-License-Identifier: Apache-2.0
//! Our XML-RPC server: what masters and other nodes call
//! (<https://wiki.ros.org/ROS/Slave_API>).

use super::Note;
use super::door::{Door, Place};
use super::seats::Seat;
use super::shown;
use super::xmlrpc::{as_text, parse_apart, parse_call, render_answer, render_fault, text, texts};
use bytes::Bytes;
use dxr::Value;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::{Request, Response, StatusCode, header};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{sleep, timeout};

/// Longest request taken; the longest that ROS makes lists a topic's publishers. A thousand of them
/// have about 70 bytes each.
const MAX_REQUEST_BYTES: usize = 128 * 1024;
/// Longest time to send the head, or the body, of a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// A connection that has lasted so long ends after the request under way: one whose other side
/// takes no answers would keep its place for ever.
const CONNECTION_LIFE: Duration = Duration::from_secs(300);
/// Read buffer of one connection, which also bounds the head of a request.
const READ_BUFFER_BYTES: usize = 16 * 1024;
/// Pause after the system refused to accept (out of file descriptors).
pub(super) const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A call of the slave API that needs the gateway's state to be answered.
#[derive(Debug, PartialEq)]
pub(super) enum ApiCall {
    RequestTopic { caller: String, topic: String, protocols: Vec<String> },
    PublisherUpdate { topic: String, publishers: Vec<String> },
    BusStats,
    BusInfo,
    MasterUri,
    Subscriptions,
    Publications,
    Shutdown { caller: String, reason: String },
}

/// What a request asks for.
#[derive(Debug, PartialEq)]
pub(super) enum Asked {
    /// Answered with state.
    State(ApiCall),
    /// Answered the same always.
    Fixed(Value),
    /// Parameters that do not fit the method.
    WrongParams(&'static str),
    Unknown(String),
}

/// Serves forever.
pub(super) async fn serve(
    listener: TcpListener,
    node_name: String,
    notes: mpsc::Sender<Note>,
    door: Arc<Door>,
) {
    loop {
        let Ok((stream, peer)) = listener.accept().await else {
            sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let Some(seat) = door.enter(Place::Api, peer) else { continue };
        let (node_name, notes) = (node_name.clone(), notes.clone());
        tokio::spawn(async move {
            tokio::select! {
                () = serve_connection(stream, &node_name, &notes, &seat) => {}
                () = seat.lost() => tracing::debug!(%peer, "a silent connection gives way"),
            }
        });
    }
}

async fn serve_connection(
    stream: TcpStream,
    node_name: &str,
    notes: &mpsc::Sender<Note>,
    seat: &Seat,
) {
    // Without it each answer may wait for the caller's delayed acknowledgement.
    let _ = stream.set_nodelay(true);
    let service = hyper::service::service_fn(|request| async move {
        Ok::<_, Infallible>(respond(request, node_name, notes, seat).await)
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(REQUEST_TIMEOUT)
        .max_buf_size(READ_BUFFER_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    let served = match timeout(CONNECTION_LIFE, connection.as_mut()).await {
        Ok(served) => served,
        Err(_) => {
            connection.as_mut().graceful_shutdown();
            timeout(2 * REQUEST_TIMEOUT, connection).await.unwrap_or(Ok(()))
        }
    };
    if let Err(error) = served {
        tracing::debug!(%error, "a connection to the ROS 1 slave API ended");
    }
}

async fn respond(
    request: Request<Incoming>,
    node_name: &str,
    notes: &mpsc::Sender<Note>,
    seat: &Seat,
) -> Response<Full<Bytes>> {
    let body = Limited::new(request.into_body(), MAX_REQUEST_BYTES).collect();
    let body = match timeout(REQUEST_TIMEOUT, body).await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(_)) => return plain(StatusCode::PAYLOAD_TOO_LARGE),
        Err(_) => return plain(StatusCode::REQUEST_TIMEOUT),
    };
    seat.heard();
    let name = node_name.to_owned();
    let understood = move |body: &[u8]| {
        let (method, params) = parse_call(body)?;
        let asked = understand(&method, &params, &name);
        Ok((shown(&method), asked))
    };
    let xml = match parse_apart(body, understood).await {
        Ok((method, asked)) => answer(&method, asked, notes).await,
        Err(reason) => render_fault(-1, &shown(&reason)),
    };
    let mut response = Response::new(Full::from(xml));
    let xml_type = header::HeaderValue::from_static("text/xml");
    response.headers_mut().insert(header::CONTENT_TYPE, xml_type);
    response
}

fn plain(status: StatusCode) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = status;
    response
}

async fn answer(method: &str, asked: Asked, notes: &mpsc::Sender<Note>) -> String {
    let call = match asked {
        Asked::State(call) => call,
        Asked::Fixed(value) => return render_answer(value),
        Asked::WrongParams(expected) => {
            return render_answer(error(&format!("{method} takes {expected}")));
        }
        Asked::Unknown(name) => {
            return render_fault(1, &format!("method '{name}' is not in ROS's slave API"));
        }
    };
    let (reply, answered) = oneshot::channel();
    let sent = notes.send(Note::Api(call, reply)).await;
    match (sent, answered.await) {
        (Ok(()), Ok(value)) => render_answer(value),
        _ => render_answer(error("this node is shutting down")),
    }
}

pub(super) fn understand(method: &str, params: &[Value], node_name: &str) -> Asked {
    let param = |index: usize| params.get(index).and_then(as_text).map(str::to_owned);
    let list = |index: usize| params.get(index).filter(|value| matches!(value, Value::Array(_)));
    let caller = param(0).unwrap_or_default();
    match method {
        "requestTopic" => match (param(1), list(2)) {
            (Some(topic), Some(protocols)) => {
                let protocols = protocol_names(protocols);
                Asked::State(ApiCall::RequestTopic { caller, topic, protocols })
            }
            _ => Asked::WrongParams("(caller_id, topic, protocols)"),
        },
        "publisherUpdate" => match (param(1), list(2)) {
            (Some(topic), Some(uris)) => {
                Asked::State(ApiCall::PublisherUpdate { topic, publishers: texts(uris) })
            }
            _ => Asked::WrongParams("(caller_id, topic, publishers)"),
        },
        "getBusStats" => Asked::State(ApiCall::BusStats),
        "getBusInfo" => Asked::State(ApiCall::BusInfo),
        "getMasterUri" => Asked::State(ApiCall::MasterUri),
        "getSubscriptions" => Asked::State(ApiCall::Subscriptions),
        "getPublications" => Asked::State(ApiCall::Publications),
        "getPid" => Asked::Fixed(success("pid", process_id())),
        "getName" => Asked::Fixed(success("node name", text(node_name))),
        "paramUpdate" => Asked::Fixed(success("", Value::Integer(0))),
        "shutdown" => {
            Asked::State(ApiCall::Shutdown { caller, reason: param(1).unwrap_or_default() })
        }
        other => Asked::Unknown(shown(other)),
    }
}

fn protocol_names(protocols: &Value) -> Vec<String> {
    let name = |protocol: &Value| texts(protocol).into_iter().next();
    super::xmlrpc::members(protocols).iter().filter_map(name).collect()
}

fn process_id() -> Value {
    Value::Integer(i32::try_from(std::process::id()).unwrap_or(0))
}

/// ROS's answer for a call that went well.
pub(super) fn success(message: &str, value: Value) -> Value {
    Value::Array(vec![Value::Integer(1), text(message), value])
}

/// ROS's answer for a call that is right but cannot be met.
pub(super) fn failure(message: &str) -> Value {
    Value::Array(vec![Value::Integer(0), text(message), Value::Integer(0)])
}

/// ROS's answer for a call that is wrong.
pub(super) fn error(message: &str) -> Value {
    Value::Array(vec![Value::Integer(-1), text(message), Value::Integer(0)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_understood() {
        let protocols = Value::Array(vec![Value::Array(vec![text("TCPROS")])]);
        let asked = understand("requestTopic", &[text("/a"), text("/scan"), protocols], "/us");
        let expected = ApiCall::RequestTopic {
            caller: "/a".into(),
            topic: "/scan".into(),
            protocols: vec!["TCPROS".into()],
        };
        assert_eq!(asked, Asked::State(expected));
        let asked = understand("getName", &[], "/us");
        assert_eq!(asked, Asked::Fixed(success("node name", text("/us"))));
    }

    #[test]
    fn a_list_of_a_thousand_publishers_is_taken() {
        let uri = |number: u16| text(&format!("http://a-robots-computer.local:{number}/"));
        let uris = Value::Array((50_000..51_000).map(uri).collect());
        let params = vec![text("/master"), text("/topic"), uris];
        let xml = dxr::MethodCall { name: "publisherUpdate".into(), params }.to_xml().unwrap();
        // Python puts a line's end after each value.
        let bytes = xml.len() + xml.matches("</value>").count();
        assert!(bytes <= MAX_REQUEST_BYTES, "{bytes}");
        let (method, params) = parse_call(xml.as_bytes()).unwrap();
        let asked = understand(&method, &params, "/us");
        let Asked::State(ApiCall::PublisherUpdate { publishers, .. }) = asked else { panic!() };
        assert_eq!(publishers.len(), 1000);
    }

    #[test]
    fn wrong_parameters_and_unknown_methods_are_named() {
        let asked = understand("publisherUpdate", &[text("/a"), Value::Integer(3)], "/us");
        assert_eq!(asked, Asked::WrongParams("(caller_id, topic, publishers)"));
        assert_eq!(understand("launch", &[], "/us"), Asked::Unknown("launch".into()));
    }
}
