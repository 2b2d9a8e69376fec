// SPDX-License-Identifier: Apache-2.0
//! Services that a program serves.

use super::error::ServeError;
use super::participant::Participant;
use super::queue::{Queue, Receiver};
use bytes::Bytes;
use std::fmt;
use std::sync::Arc;
use tautline_gateway::{CallId, Event, Outcome};

/// Requests that wait for a program at one server.
pub(crate) const MAX_WAITING_REQUESTS: usize = 1024;
/// The response to a request that the program dropped.
const DROPPED: &str = "the server did not answer the request";

/// A call of a peer. A request that is dropped without a response fails at its caller.
pub struct Request {
    /// The bytes.
    pub payload: Bytes,
    participant: Arc<Participant>,
    service: String,
    call: CallId,
    is_answered: bool,
}

impl Request {
    pub(super) fn new(
        participant: Arc<Participant>,
        service: String,
        call: CallId,
        payload: Bytes,
    ) -> Self {
        Self { payload, participant, service, call, is_answered: false }
    }

    /// Returns the response to the caller, or the reason of a failure, for a person.
    pub fn answer<T: Into<Bytes>>(mut self, outcome: Result<T, String>) {
        self.finish(outcome.map(Into::into));
    }

    /// Gives the request up; somebody else answers the caller.
    pub(super) fn forget(mut self) {
        self.is_answered = true;
    }

    fn finish(&mut self, outcome: Outcome) {
        if !std::mem::replace(&mut self.is_answered, true) {
            let (service, call) = (self.service.clone(), self.call);
            self.participant.emit(Event::Answered { service, call, outcome });
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
        self.finish(Err(DROPPED.into()));
    }
}

pub(super) fn serve(
    participant: &Arc<Participant>,
    service: &str,
    type_name: &str,
) -> Result<Receiver<Request>, ServeError> {
    let queue = Arc::new(Queue::new(MAX_WAITING_REQUESTS));
    participant.add_server(service, type_name, queue.clone())?;
    let (participant, service) = (participant.clone(), service.to_owned());
    Ok(Receiver::new(queue, move || participant.remove_server(&service)))
}
