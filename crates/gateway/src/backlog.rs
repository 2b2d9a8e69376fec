// SPDX-License-Identifier: Apache-2.0
//! Messages on their way from the node to a gateway's own thread: bounded.

use crate::{CallId, Command};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Messages that wait for the gateway's thread; further ones are to be counted as
/// [`Reason::GatewayBehind`](crate::rejections::Reason). Other commands are never dropped.
/// What one peer may send in a second is a small part of it.
pub const MAX_MESSAGES: usize = 65_536;
/// Bytes of them, unless it is one message alone: four times what the node has of one peer there.
pub const MAX_BYTES: usize = 256 << 20;

/// Why a call fails that came when so much waited.
pub const TOO_MUCH: &str = "too many messages or bytes wait for ROS here";

/// What waits.
#[derive(Debug, Default)]
pub struct Backlog {
    messages: AtomicUsize,
    bytes: AtomicUsize,
}

impl Backlog {
    /// Whether one more message may wait; if so it is counted in.
    pub fn admit(&self, bytes: usize) -> bool {
        let messages = self.messages.fetch_add(1, Ordering::Relaxed);
        let waiting = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let fits = messages < MAX_MESSAGES && (messages == 0 || waiting + bytes <= MAX_BYTES);
        if !fits {
            self.release(bytes);
        }
        fits
    }

    /// A command as it may wait. Requests and responses are counted in; of those that are too
    /// much, a response is replaced by an error, and a request fails (`Err`).
    pub fn bound(&self, command: Command) -> Result<Command, (String, CallId)> {
        match command {
            Command::Call { service, call, request, .. } if !self.admit(request.len()) => {
                Err((service, call))
            }
            Command::Answer { service, call, outcome: Ok(response) }
                if !self.admit(response.len()) =>
            {
                Ok(Command::Answer { service, call, outcome: Err(TOO_MUCH.into()) })
            }
            other => Ok(other),
        }
    }

    /// A message that was counted in has been taken.
    pub fn release(&self, bytes: usize) {
        self.messages.fetch_sub(1, Ordering::Relaxed);
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_calls_that_are_too_much_requests_fail_and_responses_become_errors() {
        let backlog = Backlog::default();
        let request = bytes::Bytes::from(vec![0; MAX_BYTES]);
        let call = || Command::Call {
            service: "/x".into(),
            call: 7,
            request: request.clone(),
            patience: std::time::Duration::ZERO,
        };
        assert!(matches!(backlog.bound(call()), Ok(Command::Call { .. })));
        assert_eq!(backlog.bound(call()).unwrap_err(), ("/x".into(), 7));
        let outcome = Ok(request.clone());
        let answer = Command::Answer { service: "/x".into(), call: 7, outcome };
        let Ok(Command::Answer { outcome, .. }) = backlog.bound(answer) else { panic!() };
        assert_eq!(outcome, Err(TOO_MUCH.into()));
        backlog.release(MAX_BYTES);
        assert!(backlog.admit(MAX_BYTES), "what was refused does not count");
    }

    #[test]
    fn waiting_messages_are_bounded_in_number_and_bytes() {
        let backlog = Backlog::default();
        assert!(backlog.admit(2 * MAX_BYTES), "one of any size");
        assert!(!backlog.admit(1));
        backlog.release(2 * MAX_BYTES);
        for _ in 0..MAX_MESSAGES {
            assert!(backlog.admit(1));
        }
        assert!(!backlog.admit(1));
    }
}
