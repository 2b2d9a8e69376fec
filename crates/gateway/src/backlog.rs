// SPDX-License-Identifier: Apache-2.0
//! Messages on their way from the node to a gateway's own thread: bounded.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Messages that wait for the gateway's thread; further ones are to be counted as
/// [`Reason::GatewayBehind`](crate::rejections::Reason). Other commands are never dropped.
pub const MAX_MESSAGES: usize = 4096;
/// Bytes of them, unless it is one message alone.
pub const MAX_BYTES: usize = 64 * 1024 * 1024;

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
