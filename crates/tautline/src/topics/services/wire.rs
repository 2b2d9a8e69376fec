// SPDX-License-Identifier: Apache-2.0
//! Calls and responses as messages of the protocol (spec/protocol.md).

use crate::notices::plain;
use bytes::Bytes;
use tautline_gateway::action_names::{ActionCall, action_call};
use tautline_gateway::{CallId, Outcome};
use tautline_proto::wire::cursor::{Reader, put_varint};
use tautline_proto::{Instant, Message};

const DONE: u8 = 0;
const FAILED: u8 = 1;
/// Maximum bytes of a failed call's reason that are read from a response.
const MAX_REASON: usize = 1000;

/// A call or a response.
pub(super) struct ParsedMessage {
    pub(super) call: u64,
    pub(super) body: Bytes,
}

pub(super) fn parse(payload: &Bytes) -> Option<ParsedMessage> {
    let mut reader = Reader::new(payload);
    let call = reader.varint().ok()?;
    let body = payload.slice_ref(reader.remaining());
    Some(ParsedMessage { call, body })
}

pub(super) fn call_message(call: CallId, request: &[u8]) -> Bytes {
    let mut message = Vec::new();
    put_varint(&mut message, call);
    message.extend_from_slice(request);
    message.into()
}

pub(super) fn response_message(call: u64, outcome: &Outcome) -> Bytes {
    let mut head = Vec::new();
    put_varint(&mut head, call);
    let (kind, body) = match outcome {
        Ok(response) => (DONE, &response[..]),
        Err(reason) => (FAILED, reason.as_bytes()),
    };
    head.push(kind);
    head.extend_from_slice(body);
    head.into()
}

pub(super) fn parse_outcome(body: &Bytes) -> Outcome {
    match body.first() {
        Some(&DONE) => Ok(body.slice(1..)),
        Some(&FAILED) => {
            let reason = &body[1..body.len().min(MAX_REASON)];
            Err(plain(&String::from_utf8_lossy(reason)))
        }
        _ => Err("the response is malformed".into()),
    }
}

pub(super) fn message(now: Instant, payload: Bytes) -> Message {
    Message { payload, published: now, source: 0, encoded: false, lifespan: None }
}

pub(super) fn is_cancel(service: &str) -> bool {
    action_call(service) == Some(ActionCall::CancelGoal)
}
