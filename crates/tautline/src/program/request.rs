// SPDX-License-Identifier: Apache-2.0
//! A call of a peer, until the program answers it.

use crate::inlet::{Inlet, Input};
use bytes::Bytes;
use std::fmt;
use std::time::Instant;
use tautline_gateway::{CallId, Event, Outcome};

/// The response to a request that the program dropped.
const REQUEST_DROPPED: &str = "the server did not answer the request";

/// A call of a peer. Dropping it without a response reports a failure to the caller.
pub struct Request {
    /// The bytes.
    pub payload: Bytes,
    inlet: Inlet,
    service: String,
    call: CallId,
    /// The time at which the caller gives up.
    expires: Option<Instant>,
    is_answered: bool,
}

impl Request {
    pub(super) fn new(
        inlet: Inlet,
        service: String,
        call: CallId,
        payload: Bytes,
        expires: Option<Instant>,
    ) -> Self {
        Self { payload, inlet, service, call, expires, is_answered: false }
    }

    /// Returns the time at which the caller gives up.
    pub(super) fn expires(&self) -> Option<Instant> {
        self.expires
    }

    /// Sends the response to the caller, or the reason of a failure, for a person.
    pub fn answer<T: Into<Bytes>>(mut self, outcome: Result<T, String>) {
        self.finish(outcome.map(Into::into));
    }

    /// Drops the request without an answer, because other code answers the caller.
    pub(super) fn forget(mut self) {
        self.is_answered = true;
    }

    fn finish(&mut self, outcome: Outcome) {
        if !std::mem::replace(&mut self.is_answered, true) {
            let (service, call) = (self.service.clone(), self.call);
            self.inlet.hand_over(Input::Local(Event::Answered { service, call, outcome }));
        }
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { payload, service, call, .. } = self;
        out.debug_struct("Request")
            .field("service", service)
            .field("call", call)
            .field("payload", payload)
            .finish_non_exhaustive()
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        // An expired request needs no answer, because nobody waits for it. The data plane drops
        // such requests as well, and must not wait for room in its own queue.
        if self.expires.is_some_and(|at| at <= Instant::now()) {
            return;
        }
        self.finish(Err(REQUEST_DROPPED.into()));
    }
}
