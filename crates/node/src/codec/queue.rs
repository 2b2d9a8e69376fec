// SPDX-License-Identifier: Apache-2.0
//! The jobs queued for the worker: one queue for each owner, served in round robin. A flood of one
//! peer delays the others by one job and takes none of their capacity.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use tautline_proto::PeerId;

/// The origin of a job: this robot (`None`) or a peer.
pub(super) type Owner = Option<PeerId>;

/// Maximum queue of one owner.
#[derive(Debug, Clone, Copy)]
pub(super) struct Share {
    pub(super) jobs: usize,
    /// Maximum bytes; a single job may be larger.
    pub(super) bytes: usize,
}

/// Queued jobs, by owner.
#[derive(Debug)]
pub(super) struct Queue<T> {
    state: Mutex<State<T>>,
    filled: Condvar,
}

#[derive(Debug)]
struct State<T> {
    owners: BTreeMap<Owner, Waiting<T>>,
    /// Owners with jobs, the next one first.
    turns: VecDeque<Owner>,
    closed: bool,
}

#[derive(Debug)]
struct Waiting<T> {
    jobs: VecDeque<(T, usize)>,
    bytes: usize,
}

impl<T> Queue<T> {
    pub(super) fn new() -> Self {
        let state = State { owners: BTreeMap::new(), turns: VecDeque::new(), closed: false };
        Self { state: Mutex::new(state), filled: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        // No code panics while it holds the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a job; returns `false` if the owner's queue is full.
    pub(super) fn push(&self, owner: Owner, share: Share, job: T, bytes: usize) -> bool {
        let mut state = self.state();
        let empty = || Waiting { jobs: VecDeque::new(), bytes: 0 };
        let waiting = state.owners.entry(owner).or_insert_with(empty);
        let fits = waiting.jobs.is_empty() || waiting.bytes.saturating_add(bytes) <= share.bytes;
        if !fits || waiting.jobs.len() >= share.jobs {
            return false;
        }
        let is_first = waiting.jobs.is_empty();
        waiting.jobs.push_back((job, bytes));
        waiting.bytes += bytes;
        if is_first {
            state.turns.push_back(owner);
        }
        self.filled.notify_one();
        true
    }

    /// Returns the next job; blocks until there is one. `None` means that the queue is closed.
    pub(super) fn pop(&self) -> Option<T> {
        let mut state = self.state();
        loop {
            if state.closed {
                return None;
            }
            if let Some(job) = state.next() {
                return Some(job);
            }
            state = self.filled.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Ends the worker; drops queued jobs.
    pub(super) fn close(&self) {
        self.state().closed = true;
        self.filled.notify_all();
    }
}

impl<T> State<T> {
    fn next(&mut self) -> Option<T> {
        let owner = self.turns.pop_front()?;
        let waiting = self.owners.get_mut(&owner)?;
        let (job, bytes) = waiting.jobs.pop_front()?;
        waiting.bytes -= bytes;
        if waiting.jobs.is_empty() {
            self.owners.remove(&owner);
        } else {
            self.turns.push_back(owner);
        }
        Some(job)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHARE: Share = Share { jobs: 3, bytes: 100 };
    const FLOOD: Owner = Some(PeerId(1));
    const OTHER: Owner = Some(PeerId(2));

    #[test]
    fn a_flood_takes_neither_room_nor_more_than_every_other_turn() {
        let queue = Queue::new();
        for job in 0..3 {
            assert!(queue.push(FLOOD, SHARE, ("flood", job), 1));
        }
        assert!(!queue.push(FLOOD, SHARE, ("flood", 3), 1), "more than its share");
        for job in 0..2 {
            assert!(queue.push(OTHER, SHARE, ("other", job), 1));
        }
        let order: Vec<_> = (0..5).map_while(|_| queue.pop()).collect();
        let expected = [("flood", 0), ("other", 0), ("flood", 1), ("other", 1), ("flood", 2)];
        assert_eq!(order, expected);
        assert!(queue.push(FLOOD, SHARE, ("flood", 4), 1), "there is room again");
    }

    #[test]
    fn bytes_are_bounded_but_for_one_job_alone() {
        let queue = Queue::new();
        assert!(queue.push(FLOOD, SHARE, 0, 1000) && !queue.push(FLOOD, SHARE, 1, 1));
        assert!(queue.push(OTHER, SHARE, 2, 100) && !queue.push(OTHER, SHARE, 3, 1));
        assert!(queue.push(None, SHARE, 4, usize::MAX));
    }

    #[test]
    fn a_closed_queue_ends_its_worker() {
        let queue = Queue::<u8>::new();
        std::thread::scope(|scope| {
            let worker = scope.spawn(|| queue.pop());
            queue.close();
            assert_eq!(worker.join().unwrap(), None);
        });
    }
}
