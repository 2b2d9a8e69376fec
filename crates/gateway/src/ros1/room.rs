// SPDX-License-Identifier: Apache-2.0
//! Bytes that connections of one kind may hold together. What one of them holds counts as it
//! arrives, not as it is announced; a little is free for each, so that small requests pass
//! whatever the large ones take.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of each connection that are not counted.
pub(super) const FREE_BYTES: usize = 4096;

/// What all connections of one kind may hold.
#[derive(Debug)]
pub(super) struct Room {
    all: usize,
    taken: AtomicUsize,
}

impl Room {
    /// Of `bytes`, or enough for one message alone.
    pub fn new(bytes: usize, max_message: usize) -> Arc<Self> {
        Arc::new(Self { all: bytes.max(max_message), taken: AtomicUsize::new(0) })
    }

    /// The share of a connection that holds nothing yet.
    pub fn share(self: &Arc<Self>) -> Share {
        Share { room: self.clone(), bytes: 0 }
    }
}

/// What one connection holds; free again when dropped.
#[derive(Debug)]
pub(super) struct Share {
    room: Arc<Room>,
    bytes: usize,
}

impl Share {
    /// Takes `bytes` in all; `false`: there is no room for them.
    pub fn grow_to(&mut self, bytes: usize) -> bool {
        let more = bytes.saturating_sub(FREE_BYTES).saturating_sub(self.bytes);
        let all = self.room.all;
        let grown = |taken: usize| taken.checked_add(more).filter(|taken| *taken <= all);
        let fits =
            self.room.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, grown).is_ok();
        if fits {
            self.bytes += more;
        }
        fits || more == 0
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.room.taken.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_bounded_together_and_small_ones_always_fit() {
        let room = Room::new(10_000, 20_000);
        let (mut one, mut two) = (room.share(), room.share());
        assert!(one.grow_to(20_000) && one.grow_to(20_000 + FREE_BYTES));
        assert!(!one.grow_to(20_001 + FREE_BYTES));
        assert!(two.grow_to(FREE_BYTES) && !two.grow_to(FREE_BYTES + 1));
        drop(one);
        assert!(two.grow_to(FREE_BYTES + 1));
        drop(two);
        assert_eq!(room.taken.load(Ordering::Relaxed), 0);
    }
}
