// SPDX-License-Identifier: Apache-2.0
//! The bounded backlog between the node and a gateway's own thread.

use crate::{Command, Event};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Maximum number of messages that may wait for the gateway's thread; the caller counts further
/// messages as [`Reason::GatewayBehind`](crate::rejections::Reason). Other commands are never dropped.
/// One peer can send only a small part of this in a second.
pub const MAX_MESSAGES: usize = 65_536;
/// Maximum total bytes of these messages; a single larger message is admitted too. The node admits a
/// quarter of this per peer.
pub const MAX_BYTES: usize = 256 << 20;

/// Why a call fails when the backlog is full.
const FULL: &str = "too many messages or bytes are queued for ROS on this robot";

/// Numbers of waiting messages and bytes.
#[derive(Debug, Default)]
pub struct Backlog {
    messages: AtomicUsize,
    bytes: AtomicUsize,
}

impl Backlog {
    /// Counts one more message if it fits.
    pub fn admit(&self, bytes: usize) -> bool {
        let messages = self.messages.fetch_add(1, Ordering::Relaxed);
        let waiting = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let fits = messages < MAX_MESSAGES && (messages == 0 || waiting + bytes <= MAX_BYTES);
        if !fits {
            self.release(bytes);
        }
        fits
    }

    /// Counts the request or response of a command. If it does not fit, an error replaces the
    /// response; for a request, `Err` is the event that fails the call.
    pub fn admit_command(&self, command: Command) -> Result<Command, Box<Event>> {
        match command {
            Command::Call { service, call, request, .. } if !self.admit(request.len()) => {
                Err(Event::Answered { service, call, outcome: Err(FULL.into()) }.into())
            }
            Command::Answer { service, call, outcome: Ok(response) }
                if !self.admit(response.len()) =>
            {
                Ok(Command::Answer { service, call, outcome: Err(FULL.into()) })
            }
            other => Ok(other),
        }
    }

    /// Frees the space of an admitted message that has been processed.
    pub fn release(&self, bytes: usize) {
        self.messages.fetch_sub(1, Ordering::Relaxed);
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn with_a_full_backlog_requests_fail_and_responses_become_errors() {
        let backlog = Backlog::default();
        let request = bytes::Bytes::from(vec![0; MAX_BYTES]);
        let call = || Command::Call {
            service: "/x".into(),
            call: 7,
            request: request.clone(),
            time_limit: std::time::Duration::ZERO,
            peer: 0,
        };
        assert!(matches!(backlog.admit_command(call()), Ok(Command::Call { .. })));
        let failed = backlog.admit_command(call()).unwrap_err();
        assert!(matches!(*failed, Event::Answered { call: 7, outcome: Err(_), .. }), "{failed:?}");
        let outcome = Ok(request.clone());
        let answer = Command::Answer { service: "/x".into(), call: 7, outcome };
        let Ok(Command::Answer { outcome, .. }) = backlog.admit_command(answer) else { panic!() };
        assert_eq!(outcome, Err(FULL.into()));
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
