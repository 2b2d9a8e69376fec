// SPDX-License-Identifier: Apache-2.0
//! Access of the fuzz targets to private parsers.

use super::byte_budget::ByteBudget;
use super::connection::type_version;
use super::header::Header;
use super::publication::Publication;
use super::rpc::{read_block, read_outcome};
use super::slave::{Request, interpret};
use super::subscription::{Incoming, read_message};
use super::xmlrpc::{self, Endpoint};
use crate::{Qos, Topic};
use std::sync::{Arc, LazyLock};
use tokio::io::BufReader;
use tokio::runtime::{Builder, Runtime};

/// Maximum bytes of a message or block.
const LIMIT: usize = 4096;
/// Read buffer of a connection: short, so that parsers often see two parts.
const READ_BUFFER_BYTES: usize = 16;

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    Builder::new_current_thread().build().expect("a runtime without sockets and timers")
});

/// A TCPROS connection: a header, then messages; and blocks of service calls.
pub fn stream(bytes: &[u8]) {
    RUNTIME.block_on(async {
        let mut reader = BufReader::with_capacity(READ_BUFFER_BYTES, bytes);
        if let Ok(header) = Header::read(&mut reader).await {
            check_header(&header);
        }
        let budget = ByteBudget::new(LIMIT, LIMIT);
        while let Ok(incoming) = read_message(&mut reader, LIMIT, budget.reservation()).await {
            if let Incoming::Message(payload) = incoming {
                assert!(payload.len() <= LIMIT, "a message within the limit");
            }
        }
        let _ = read_outcome(&mut &*bytes, LIMIT, &mut budget.reservation()).await;
        if let Ok(Ok(block)) = read_block(&mut &*bytes, LIMIT, &mut budget.reservation()).await {
            assert!(block.len() <= LIMIT, "a block within the limit");
        }
    });
}

fn check_header(header: &Header) {
    let encoded = header.encode();
    let again = Header::parse(&encoded[4..]).ok();
    assert_eq!(again.as_ref(), Some(header), "a written header can be read");
    let _ = type_version(header);
    let topic = Topic {
        name: "/scan".into(),
        type_name: "sensor_msgs/LaserScan".into(),
        type_hash: "90c7ef2dc6895d81024acba2ac42f369".into(),
        definition: "".into(),
        qos: Qos::default(),
    };
    let _ = Publication::new(topic, Arc::default(), Default::default()).refusal(header);
}

/// A call of our slave API, and a response to a call of ours.
pub fn xml_rpc(bytes: &[u8]) {
    if let Ok((method, params)) = xmlrpc::parse_call(bytes)
        && let Request::Fixed(value) = interpret(&method, &params, "/tautline")
    {
        assert!(xmlrpc::parse_answer(xmlrpc::render_answer(value).as_bytes()).is_ok());
    }
    match xmlrpc::parse_answer(bytes) {
        Ok(value) => {
            let (_, _) = (xmlrpc::texts(&value), xmlrpc::pairs(&value));
            let _ = xmlrpc::unwrap_ros(value);
        }
        Err(reason) => drop(xmlrpc::render_fault(-1, &reason)),
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = Endpoint::parse(text);
    }
}
