// SPDX-License-Identifier: Apache-2.0
//! A limit on the bytes that connections of one kind hold together. Bytes count when they arrive,
//! not when a length announces them. The first [`FREE_BYTES`] of each connection are free, so
//! that small requests pass however much the large ones hold.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Number of bytes of each connection that do not count towards the budget.
pub(super) const FREE_BYTES: usize = 4096;

/// The bytes that all connections of one kind may hold.
#[derive(Debug)]
pub(super) struct ByteBudget {
    limit: usize,
    used: AtomicUsize,
}

impl ByteBudget {
    /// A budget of `bytes`, or of one message if that is more.
    pub fn new(bytes: usize, max_message: usize) -> Arc<Self> {
        Arc::new(Self { limit: bytes.max(max_message), used: AtomicUsize::new(0) })
    }

    /// An empty reservation for one connection.
    pub fn reservation(self: &Arc<Self>) -> Reservation {
        Reservation { budget: self.clone(), bytes: 0 }
    }
}

/// The bytes of one connection; released on drop.
#[derive(Debug)]
pub(super) struct Reservation {
    budget: Arc<ByteBudget>,
    bytes: usize,
}

impl Reservation {
    /// Reserves `bytes` in total; `false`: they do not fit.
    pub fn grow_to(&mut self, bytes: usize) -> bool {
        let more = bytes.saturating_sub(FREE_BYTES).saturating_sub(self.bytes);
        let limit = self.budget.limit;
        let grown = |used: usize| used.checked_add(more).filter(|used| *used <= limit);
        let fits =
            self.budget.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, grown).is_ok();
        if fits {
            self.bytes += more;
        }
        fits || more == 0
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_of_reservations_is_bounded_and_small_ones_always_fit() {
        let budget = ByteBudget::new(10_000, 20_000);
        let (mut one, mut two) = (budget.reservation(), budget.reservation());
        assert!(one.grow_to(20_000) && one.grow_to(20_000 + FREE_BYTES));
        assert!(!one.grow_to(20_001 + FREE_BYTES));
        assert!(two.grow_to(FREE_BYTES) && !two.grow_to(FREE_BYTES + 1));
        drop(one);
        assert!(two.grow_to(FREE_BYTES + 1));
        drop(two);
        assert_eq!(budget.used.load(Ordering::Relaxed), 0);
    }
}
