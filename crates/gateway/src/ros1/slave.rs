// SPDX-License-Identifier: Apache-2.0
//! Our slave API: the XML-RPC server that masters and other nodes call
//! (<https://wiki.ros.org/ROS/Slave_API>).

use super::admission::{Admission, Admitted, SlotKind};
use super::note::{ApiCall, Note};
use super::shown::for_logs;
use super::slots::Slot;
use super::xmlrpc::{
    as_text, members, parse_call, parse_off_thread, render_answer, render_fault, string_value,
    texts,
};
use bytes::Bytes;
use dxr::Value;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::{Response, StatusCode, header};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

/// Maximum bytes of a request. The longest request in ROS lists a topic's publishers: each of a
/// thousand publishers takes about 70 bytes.
const MAX_REQUEST_BYTES: usize = 128 * 1024;
/// Time limit of a client for the head, or the body, of a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Lifetime of a connection; the current request may finish. Without it a client that reads no
/// responses would hold its slot forever.
const CONNECTION_LIFETIME: Duration = Duration::from_secs(300);
/// Read buffer of one connection, and thus the longest head of a request.
const READ_BUFFER_BYTES: usize = 16 * 1024;

#[derive(Debug, PartialEq)]
pub(super) enum Request {
    /// The actor answers.
    State(ApiCall),
    /// The answer is constant.
    Fixed(Value),
    /// The parameters do not match the method.
    WrongParams(&'static str),
    Unknown(String),
}

pub(super) async fn serve(
    listener: TcpListener,
    node_name: String,
    notes: mpsc::Sender<Note>,
    admission: Arc<Admission>,
) {
    loop {
        let Admitted { stream, peer, slot } = admission.accept(&listener, SlotKind::Api).await;
        let (node_name, notes) = (node_name.clone(), notes.clone());
        tokio::spawn(async move {
            slot.while_held(peer, serve_connection(stream, &node_name, &notes, &slot)).await
        });
    }
}

async fn serve_connection(
    stream: TcpStream,
    node_name: &str,
    notes: &mpsc::Sender<Note>,
    slot: &Slot,
) {
    // Otherwise each response may wait for the client's delayed acknowledgement.
    let _ = stream.set_nodelay(true);
    let service = hyper::service::service_fn(|request| async move {
        Ok::<_, Infallible>(respond(request, node_name, notes, slot).await)
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(REQUEST_TIMEOUT)
        .max_buf_size(READ_BUFFER_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    let served = match timeout(CONNECTION_LIFETIME, connection.as_mut()).await {
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
    request: hyper::Request<Incoming>,
    node_name: &str,
    notes: &mpsc::Sender<Note>,
    slot: &Slot,
) -> Response<Full<Bytes>> {
    let body = Limited::new(request.into_body(), MAX_REQUEST_BYTES).collect();
    let body = match timeout(REQUEST_TIMEOUT, body).await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(_)) => return empty(StatusCode::PAYLOAD_TOO_LARGE),
        Err(_) => return empty(StatusCode::REQUEST_TIMEOUT),
    };
    slot.touch();
    let name = node_name.to_owned();
    let interpreted = move |body: &[u8]| {
        let (method, params) = parse_call(body)?;
        Ok((interpret(&method, &params, &name), for_logs(&method)))
    };
    let xml = match parse_off_thread(body, interpreted).await {
        Ok((request, method)) => answer(&method, request, notes).await,
        Err(reason) => render_fault(-1, &for_logs(&reason)),
    };
    let mut response = Response::new(Full::from(xml));
    let xml_type = header::HeaderValue::from_static("text/xml");
    response.headers_mut().insert(header::CONTENT_TYPE, xml_type);
    response
}

fn empty(status: StatusCode) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = status;
    response
}

async fn answer(method: &str, request: Request, notes: &mpsc::Sender<Note>) -> String {
    let call = match request {
        Request::State(call) => call,
        Request::Fixed(value) => return render_answer(value),
        Request::WrongParams(expected) => {
            return render_answer(error(&format!("{method} takes {expected}")));
        }
        Request::Unknown(name) => {
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

pub(super) fn interpret(method: &str, params: &[Value], node_name: &str) -> Request {
    let param = |index: usize| params.get(index).and_then(as_text).map(str::to_owned);
    let list = |index: usize| params.get(index).filter(|value| matches!(value, Value::Array(_)));
    let caller = param(0).unwrap_or_default();
    match method {
        "requestTopic" => match (param(1), list(2)) {
            (Some(topic), Some(protocols)) => {
                let protocols = protocol_names(protocols);
                Request::State(ApiCall::RequestTopic { caller, topic, protocols })
            }
            _ => Request::WrongParams("(caller_id, topic, protocols)"),
        },
        "publisherUpdate" => match (param(1), list(2)) {
            (Some(topic), Some(uris)) => {
                Request::State(ApiCall::PublisherUpdate { topic, publishers: texts(uris) })
            }
            _ => Request::WrongParams("(caller_id, topic, publishers)"),
        },
        "getBusStats" => Request::State(ApiCall::BusStats),
        "getBusInfo" => Request::State(ApiCall::BusInfo),
        "getMasterUri" => Request::State(ApiCall::MasterUri),
        "getSubscriptions" => Request::State(ApiCall::Subscriptions),
        "getPublications" => Request::State(ApiCall::Publications),
        "getPid" => Request::Fixed(success("pid", process_id())),
        "getName" => Request::Fixed(success("node name", string_value(node_name))),
        "paramUpdate" => Request::Fixed(success("", Value::Integer(0))),
        "shutdown" => {
            Request::State(ApiCall::Shutdown { caller, reason: param(1).unwrap_or_default() })
        }
        other => Request::Unknown(for_logs(other)),
    }
}

fn protocol_names(protocols: &Value) -> Vec<String> {
    let name = |protocol: &Value| texts(protocol).into_iter().next();
    members(protocols).iter().filter_map(name).collect()
}

fn process_id() -> Value {
    Value::Integer(i32::try_from(std::process::id()).unwrap_or(0))
}

/// ROS's answer for success.
pub(super) fn success(message: &str, value: Value) -> Value {
    Value::Array(vec![Value::Integer(1), string_value(message), value])
}

/// ROS's answer for a valid call that fails.
pub(super) fn failure(message: &str) -> Value {
    Value::Array(vec![Value::Integer(0), string_value(message), Value::Integer(0)])
}

/// ROS's answer for an invalid call.
pub(super) fn error(message: &str) -> Value {
    Value::Array(vec![Value::Integer(-1), string_value(message), Value::Integer(0)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_interpreted() {
        let protocols = Value::Array(vec![Value::Array(vec![string_value("TCPROS")])]);
        let request = interpret(
            "requestTopic",
            &[string_value("/a"), string_value("/scan"), protocols],
            "/us",
        );
        let expected = ApiCall::RequestTopic {
            caller: "/a".into(),
            topic: "/scan".into(),
            protocols: vec!["TCPROS".into()],
        };
        assert_eq!(request, Request::State(expected));
        let request = interpret("getName", &[], "/us");
        assert_eq!(request, Request::Fixed(success("node name", string_value("/us"))));
    }

    #[test]
    fn a_list_of_a_thousand_publishers_is_accepted() {
        let uri = |number: u16| string_value(&format!("http://a-robots-computer.local:{number}/"));
        let uris = Value::Array((50_000..51_000).map(uri).collect());
        let params = vec![string_value("/master"), string_value("/topic"), uris];
        let xml = dxr::MethodCall { name: "publisherUpdate".into(), params }.to_xml().unwrap();
        // Python writes a newline after each value.
        let bytes = xml.len() + xml.matches("</value>").count();
        assert!(bytes <= MAX_REQUEST_BYTES, "{bytes}");
        let (method, params) = parse_call(xml.as_bytes()).unwrap();
        let request = interpret(&method, &params, "/us");
        let Request::State(ApiCall::PublisherUpdate { publishers, .. }) = request else { panic!() };
        assert_eq!(publishers.len(), 1000);
    }

    #[test]
    fn wrong_parameters_and_unknown_methods_are_named() {
        let request = interpret("publisherUpdate", &[string_value("/a"), Value::Integer(3)], "/us");
        assert_eq!(request, Request::WrongParams("(caller_id, topic, publishers)"));
        assert_eq!(interpret("launch", &[], "/us"), Request::Unknown("launch".into()));
    }
}
