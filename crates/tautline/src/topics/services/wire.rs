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
pub(super) struct Parsed {
    pub(super) call: u64,
    pub(super) rest: Bytes,
}

pub(super) fn parse(payload: &Bytes) -> Option<Parsed> {
    let mut reader = Reader::new(payload);
    let call = reader.varint().ok()?;
    let rest = payload.slice_ref(reader.remaining());
    Some(Parsed { call, rest })
}

pub(super) fn call_message(call: CallId, request: &[u8]) -> Bytes {
    let mut message = Vec::new();
    put_varint(&mut message, call);
    message.extend_from_slice(request);
    message.into()
}

pub(super) fn answer_message(call: u64, outcome: &Outcome) -> Bytes {
    let mut head = Vec::new();
    put_varint(&mut head, call);
    let (kind, rest) = match outcome {
        Ok(response) => (DONE, &response[..]),
        Err(reason) => (FAILED, reason.as_bytes()),
    };
    head.push(kind);
    head.extend_from_slice(rest);
    head.into()
}

pub(super) fn outcome(rest: &Bytes) -> Outcome {
    match rest.first() {
        Some(&DONE) => Ok(rest.slice(1..)),
        Some(&FAILED) => {
            let reason = &rest[1..rest.len().min(MAX_REASON)];
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
