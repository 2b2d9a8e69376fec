// SPDX-License-Identifier: Apache-2.0
//! Services that a program serves.

use super::error::ServeError;
use super::participant::Participant;
use super::queue::{Limits, Queue, Receiver};
use super::request::Request;
use std::sync::Arc;

/// Limits of the requests that wait for a program at one server. Further requests are refused.
const WAITING_REQUESTS: Limits = Limits { entries: 1024, bytes: 8 << 20 };

pub(super) fn serve(
    participant: &Arc<Participant>,
    service: &str,
    type_name: &str,
) -> Result<Receiver<Request>, ServeError> {
    let queue = Arc::new(Queue::new(WAITING_REQUESTS));
    participant.add_server(service, type_name, queue.clone())?;
    let (participant, service) = (participant.clone(), service.to_owned());
    Ok(Receiver::new(queue, move || participant.remove_server(&service)))
}
