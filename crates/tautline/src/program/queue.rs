// SPDX-License-Identifier: Apache-2.0
//! Bounded queues from the node to a program, and their ends in the program.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The reason why nothing was received.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RecvError {
    /// Nothing arrived in time.
    #[error("nothing arrived in time")]
    TimedOut,
    /// The node has stopped, and everything that arrived before has been received.
    #[error("the node has stopped")]
    Closed,
}

struct State<T> {
    entries: VecDeque<T>,
    dropped: u64,
    is_closed: bool,
}

/// A bounded queue. The node never waits for a program.
pub(super) struct Queue<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
    capacity: usize,
}

impl<T> Queue<T> {
    pub(super) fn new(capacity: usize) -> Self {
        let state = State { entries: VecDeque::new(), dropped: 0, is_closed: false };
        Self { state: Mutex::new(state), changed: Condvar::new(), capacity }
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an entry. If the queue is full, its oldest entry is dropped and counted.
    pub(super) fn push_newest(&self, entry: T) {
        let mut state = self.state();
        if state.is_closed {
            return;
        }
        if state.entries.len() >= self.capacity {
            state.entries.pop_front();
            state.dropped += 1;
        }
        state.entries.push_back(entry);
        self.changed.notify_one();
    }

    /// Adds an entry, unless the queue is full or closed.
    pub(super) fn push_if_room(&self, entry: T) -> Result<(), T> {
        let mut state = self.state();
        if state.is_closed || state.entries.len() >= self.capacity {
            return Err(entry);
        }
        state.entries.push_back(entry);
        self.changed.notify_one();
        Ok(())
    }

    /// Takes the oldest entry, waiting for one until the deadline; without a deadline, until the
    /// queue is closed.
    fn pop(&self, deadline: Option<Instant>) -> Result<T, RecvError> {
        let mut state = self.state();
        loop {
            if let Some(entry) = state.entries.pop_front() {
                return Ok(entry);
            }
            if state.is_closed {
                return Err(RecvError::Closed);
            }
            let Some(deadline) = deadline else {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(RecvError::TimedOut);
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Wakes those who wait; entries that are queued can still be taken.
    pub(super) fn close(&self) {
        self.state().is_closed = true;
        self.changed.notify_all();
    }

    pub(super) fn dropped(&self) -> u64 {
        self.state().dropped
    }
}

/// The receiving end of a subscription, a server or the node's events. What it receives ends when it
/// is dropped.
pub struct Receiver<T> {
    queue: Arc<Queue<T>>,
    leave: Option<Box<dyn FnOnce() + Send + Sync>>,
}

impl<T> Receiver<T> {
    /// `leave` ends the delivery.
    pub(super) fn new(queue: Arc<Queue<T>>, leave: impl FnOnce() + Send + Sync + 'static) -> Self {
        Self { queue, leave: Some(Box::new(leave)) }
    }

    /// Waits for the next entry. Fails with [`RecvError::Closed`] only.
    pub fn recv(&self) -> Result<T, RecvError> {
        self.queue.pop(None)
    }

    /// Waits at most this long for the next entry.
    pub fn recv_timeout(&self, timeout: Duration) -> Result<T, RecvError> {
        self.queue.pop(Instant::now().checked_add(timeout))
    }

    /// Returns the next entry if it has arrived.
    pub fn try_recv(&self) -> Result<T, RecvError> {
        self.queue.pop(Some(Instant::now()))
    }

    /// Returns the entries until the node stops, waiting for each.
    pub fn iter(&self) -> impl Iterator<Item = T> {
        std::iter::from_fn(|| self.recv().ok())
    }

    /// The number of entries that were dropped because this program was slow; the oldest give way.
    pub fn dropped(&self) -> u64 {
        self.queue.dropped()
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.queue.close();
        if let Some(leave) = self.leave.take() {
            leave();
        }
        // A request that nobody will take is answered by its own drop.
        while self.queue.pop(Some(Instant::now())).is_ok() {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_entry_of_a_full_queue_gives_way_and_is_counted() {
        let queue = Arc::new(Queue::new(2));
        let receiver = Receiver::new(queue.clone(), || {});
        (1..=3).for_each(|entry| queue.push_newest(entry));
        assert_eq!(queue.push_if_room(4), Err(4));
        assert_eq!((receiver.recv(), receiver.try_recv()), (Ok(2), Ok(3)));
        assert_eq!(receiver.recv_timeout(Duration::ZERO), Err(RecvError::TimedOut));
        assert_eq!((receiver.dropped(), queue.push_if_room(5)), (1, Ok(())));
    }

    #[test]
    fn a_closed_queue_is_emptied_first_and_wakes_its_receiver() {
        let queue = Arc::new(Queue::new(2));
        let receiver = Receiver::new(queue.clone(), || {});
        let waits = std::thread::spawn(move || receiver.iter().collect::<Vec<i32>>());
        queue.push_newest(1);
        queue.close();
        queue.push_newest(2);
        assert_eq!(waits.join().unwrap(), [1]);
    }
}
