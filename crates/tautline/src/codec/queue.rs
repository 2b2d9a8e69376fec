// SPDX-License-Identifier: Apache-2.0
//! The jobs queued for the worker: one queue for each owner, served in round robin. A flood from one
//! peer delays the others by one job and takes none of their capacity.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use tautline_proto::PeerId;

/// The owner of a job: this robot (`None`) or a peer.
pub(super) type Owner = Option<PeerId>;

/// Limits of one owner's queue.
#[derive(Debug, Clone, Copy)]
pub(super) struct Capacity {
    pub(super) jobs: usize,
    /// Maximum bytes; a single job may be larger.
    pub(super) bytes: usize,
}

#[derive(Debug)]
pub(super) struct Queue<T> {
    state: Mutex<State<T>>,
    filled: Condvar,
}

#[derive(Debug)]
struct State<T> {
    owners: BTreeMap<Owner, JobsOfOwner<T>>,
    /// Owners with jobs, the next one first.
    round: VecDeque<Owner>,
    closed: bool,
}

#[derive(Debug)]
struct JobsOfOwner<T> {
    /// Each job and its bytes.
    jobs: VecDeque<(T, usize)>,
    bytes: usize,
}

impl<T> Default for JobsOfOwner<T> {
    fn default() -> Self {
        Self { jobs: VecDeque::new(), bytes: 0 }
    }
}

impl<T> Queue<T> {
    pub(super) fn new() -> Self {
        let state = State { owners: BTreeMap::new(), round: VecDeque::new(), closed: false };
        Self { state: Mutex::new(state), filled: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        // No code panics while it holds the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a job of `bytes`; returns it if the owner's queue is full.
    pub(super) fn push(
        &self,
        owner: Owner,
        capacity: Capacity,
        job: T,
        bytes: usize,
    ) -> Result<(), T> {
        let mut state = self.state();
        let queued = state.owners.entry(owner).or_default();
        let is_first = queued.jobs.is_empty();
        let fits = is_first || queued.bytes.saturating_add(bytes) <= capacity.bytes;
        if !fits || queued.jobs.len() >= capacity.jobs {
            return Err(job);
        }
        queued.jobs.push_back((job, bytes));
        queued.bytes += bytes;
        if is_first {
            state.round.push_back(owner);
        }
        self.filled.notify_one();
        Ok(())
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
        let owner = self.round.pop_front()?;
        let queued = self.owners.get_mut(&owner)?;
        let (job, bytes) = queued.jobs.pop_front()?;
        queued.bytes -= bytes;
        if queued.jobs.is_empty() {
            self.owners.remove(&owner);
        } else {
            self.round.push_back(owner);
        }
        Some(job)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAPACITY: Capacity = Capacity { jobs: 3, bytes: 100 };
    const FLOOD: Owner = Some(PeerId(1));
    const OTHER: Owner = Some(PeerId(2));

    #[test]
    fn a_flood_uses_only_its_share_of_the_codec() {
        let queue = Queue::new();
        for job in 0..3 {
            queue.push(FLOOD, CAPACITY, ("flood", job), 1).unwrap();
        }
        queue.push(FLOOD, CAPACITY, ("flood", 3), 1).unwrap_err();
        for job in 0..2 {
            queue.push(OTHER, CAPACITY, ("other", job), 1).unwrap();
        }
        let order: Vec<_> = (0..5).map_while(|_| queue.pop()).collect();
        let expected = [("flood", 0), ("other", 0), ("flood", 1), ("other", 1), ("flood", 2)];
        assert_eq!(order, expected);
        queue.push(FLOOD, CAPACITY, ("flood", 4), 1).unwrap();
    }

    #[test]
    fn bytes_are_bounded_except_for_a_single_job() {
        let queue = Queue::new();
        let push = |owner, bytes| queue.push(owner, CAPACITY, (), bytes).is_ok();
        assert!(push(FLOOD, 1000) && !push(FLOOD, 1));
        assert!(push(OTHER, 100) && !push(OTHER, 1));
        assert!(push(None, usize::MAX));
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
