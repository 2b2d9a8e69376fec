// SPDX-License-Identifier: Apache-2.0
//! Bounded queues from the node to a program, and their ends in the program.

use super::wait::{Readable, Wait};
use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
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

/// Maximum entries and bytes of a queue. An empty queue takes a larger entry as well.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) entries: usize,
    pub(super) bytes: usize,
}

/// An entry that waits for the program.
struct Waiting<T> {
    entry: T,
    bytes: usize,
    /// The time after which nobody needs the entry.
    expires: Option<Instant>,
}

struct State<T> {
    entries: VecDeque<Waiting<T>>,
    bytes: usize,
    dropped: u64,
    is_closed: bool,
}

impl<T> State<T> {
    fn has_room(&self, bytes: usize, limits: Limits) -> bool {
        let fits = self.entries.is_empty() || self.bytes + bytes <= limits.bytes;
        fits && self.entries.len() < limits.entries
    }

    fn push(&mut self, waiting: Waiting<T>) {
        self.bytes += waiting.bytes;
        self.entries.push_back(waiting);
    }

    fn pop(&mut self) -> Option<Waiting<T>> {
        let waiting = self.entries.pop_front()?;
        self.bytes -= waiting.bytes;
        Some(waiting)
    }

    /// Whether a receiver would return immediately.
    fn is_ready(&self) -> bool {
        !self.entries.is_empty() || self.is_closed
    }

    /// Moves the entries that nobody needs any more to `expired`.
    fn expire(&mut self, expired: &mut VecDeque<Waiting<T>>) {
        let now = Instant::now();
        let is_over = |it: &Waiting<T>| it.expires.is_some_and(|at| at <= now);
        let entries = std::mem::take(&mut self.entries);
        (*expired, self.entries) = entries.into_iter().partition(is_over);
        self.bytes -= expired.iter().map(|it| it.bytes).sum::<usize>();
    }
}

/// A bounded queue. The node never waits for a program.
pub(super) struct Queue<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
    limits: Limits,
    /// Readable while a receiver would return immediately. It exists once the program has asked for
    /// the descriptor.
    readable: Readable,
}

impl<T> Queue<T> {
    pub(super) fn new(limits: Limits) -> Self {
        let state = State { entries: VecDeque::new(), bytes: 0, dropped: 0, is_closed: false };
        let readable = Readable::default();
        Self { state: Mutex::new(state), changed: Condvar::new(), limits, readable }
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an entry. While the queue is too full, its oldest entries are dropped and counted.
    pub(super) fn push_newest(&self, entry: T, bytes: usize) {
        let mut state = self.state();
        if state.is_closed {
            return;
        }
        while !state.has_room(bytes, self.limits) && state.pop().is_some() {
            state.dropped += 1;
        }
        state.push(Waiting { entry, bytes, expires: None });
        self.readable.set(true);
        self.changed.notify_one();
    }

    /// Adds an entry, unless the queue is full or closed; returns the entry if it was not added.
    /// The program does not receive it after `expires`.
    pub(super) fn push_if_room(
        &self,
        entry: T,
        bytes: usize,
        expires: Option<Instant>,
    ) -> Result<(), T> {
        // Declared before the lock, so that the entries are dropped after it is released.
        let mut expired = VecDeque::new();
        let mut state = self.state();
        state.expire(&mut expired);
        if state.is_closed || !state.has_room(bytes, self.limits) {
            return Err(entry);
        }
        state.push(Waiting { entry, bytes, expires });
        self.readable.set(true);
        self.changed.notify_one();
        Ok(())
    }

    /// Takes the oldest entry. Waits for one until the deadline; without a deadline, until the
    /// queue is closed.
    fn pop(&self, deadline: Option<Instant>) -> Result<T, RecvError> {
        // Declared before the lock, so that entries are dropped after it is released: an entry may
        // pass something to the data plane when it is dropped.
        let mut expired = Vec::new();
        let mut state = self.state();
        loop {
            while let Some(waiting) = state.pop() {
                self.readable.set(state.is_ready());
                if waiting.expires.is_none_or(|at| Instant::now() < at) {
                    return Ok(waiting.entry);
                }
                expired.push(waiting);
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

    /// Wakes the receivers that wait. Queued entries can still be taken.
    pub(super) fn close(&self) {
        let mut state = self.state();
        state.is_closed = true;
        self.readable.set(true);
        self.changed.notify_all();
    }

    pub(super) fn dropped(&self) -> u64 {
        self.state().dropped
    }

    fn descriptor(&self) -> io::Result<BorrowedFd<'_>> {
        let state = self.state();
        self.readable.descriptor(state.is_ready())
    }
}

/// The receiving end of a subscription, a server or the node's events. Dropping it ends the
/// subscription, the server or the events.
pub struct Receiver<T> {
    queue: Arc<Queue<T>>,
    on_drop: Option<Box<dyn FnOnce() + Send + Sync>>,
}

impl<T> Receiver<T> {
    /// Creates the receiving end. `on_drop` is called when it is dropped, and ends the delivery.
    pub(super) fn new(
        queue: Arc<Queue<T>>,
        on_drop: impl FnOnce() + Send + Sync + 'static,
    ) -> Self {
        Self { queue, on_drop: Some(Box::new(on_drop)) }
    }

    /// Waits for the next entry. Fails with [`RecvError::Closed`] only.
    pub fn recv(&self) -> Result<T, RecvError> {
        self.queue.pop(None)
    }

    /// Waits at most `timeout` for the next entry.
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

    /// Returns the number of entries that were dropped because this program was slow. The oldest
    /// are dropped first. A request never gives way to another: it is refused if it does not fit.
    pub fn dropped(&self) -> u64 {
        self.queue.dropped()
    }
}

impl<T> Wait for Receiver<T> {
    fn descriptor(&self) -> io::Result<BorrowedFd<'_>> {
        self.queue.descriptor()
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.queue.close();
        if let Some(on_drop) = self.on_drop.take() {
            on_drop();
        }
        // Dropping a queued request answers its caller.
        while self.queue.pop(Some(Instant::now())).is_ok() {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: Limits = Limits { entries: 2, bytes: 9 };

    #[test]
    fn a_full_queue_drops_its_oldest_entry_and_counts_it() {
        let queue = Arc::new(Queue::new(TWO));
        let receiver = Receiver::new(queue.clone(), || {});
        (1..=3).for_each(|entry| queue.push_newest(entry, 1));
        assert_eq!(queue.push_if_room(4, 1, None), Err(4));
        assert_eq!((receiver.recv(), receiver.try_recv()), (Ok(2), Ok(3)));
        assert_eq!(receiver.recv_timeout(Duration::ZERO), Err(RecvError::TimedOut));
        assert_eq!((receiver.dropped(), queue.push_if_room(5, 1, None)), (1, Ok(())));
    }

    #[test]
    fn the_bytes_of_a_queue_are_bounded_and_one_larger_entry_fits() {
        let queue = Arc::new(Queue::new(Limits { entries: 10, bytes: 5 }));
        let receiver = Receiver::new(queue.clone(), || {});
        for (entry, bytes) in [(1, 2), (2, 2), (3, 3)] {
            queue.push_newest(entry, bytes);
        }
        assert_eq!((receiver.dropped(), queue.push_if_room(4, 1, None)), (1, Err(4)));
        assert_eq!((receiver.try_recv(), queue.push_if_room(4, 1, None)), (Ok(2), Ok(())));
        queue.push_newest(5, 7);
        assert_eq!((receiver.dropped(), receiver.try_recv()), (3, Ok(5)));
        assert_eq!(queue.push_if_room(6, 7, None), Ok(()));
    }

    #[test]
    fn obsolete_entries_are_removed() {
        let queue = Arc::new(Queue::new(TWO));
        let receiver = Receiver::new(queue.clone(), || {});
        let now = Some(Instant::now());
        assert_eq!(queue.push_if_room(1, 9, now), Ok(()));
        assert_eq!((queue.push_if_room(2, 9, None), receiver.try_recv()), (Ok(()), Ok(2)));
        assert_eq!(queue.push_if_room(3, 9, now), Ok(()));
        assert_eq!(receiver.try_recv(), Err(RecvError::TimedOut));
    }

    #[test]
    fn a_closed_queue_is_emptied_first_and_wakes_its_receiver() {
        let queue = Arc::new(Queue::new(TWO));
        let receiver = Receiver::new(queue.clone(), || {});
        let waits = std::thread::spawn(move || receiver.iter().collect::<Vec<i32>>());
        queue.push_newest(1, 1);
        queue.close();
        queue.push_newest(2, 1);
        assert_eq!(waits.join().unwrap(), [1]);
    }
}
