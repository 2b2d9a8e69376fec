// SPDX-License-Identifier: Apache-2.0
//! Threads that work until they are stopped.

use anyhow::{Context, Result, anyhow};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// A signal to stop, shared by a worker and its owner.
pub type Stop = Arc<AtomicBool>;

/// A running thread. Dropping it stops the thread without waiting.
pub struct Worker<T> {
    stop: Stop,
    thread: Option<JoinHandle<Result<T>>>,
}

impl<T: Send + 'static> Worker<T> {
    /// Starts a thread. The task ends soon after its signal is set.
    pub fn start(task: impl FnOnce(&AtomicBool) -> Result<T> + Send + 'static) -> Self {
        let stop = Stop::default();
        let stopped = stop.clone();
        Self { stop, thread: Some(std::thread::spawn(move || task(&stopped))) }
    }

    /// Stops the thread and returns its result.
    pub fn stop(mut self) -> Result<T> {
        self.stop.store(true, Ordering::Relaxed);
        join(self.thread.take().context("stopped before")?)
    }
}

impl<T> Drop for Worker<T> {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Waits for a thread and returns its result.
pub fn join<T>(thread: JoinHandle<Result<T>>) -> Result<T> {
    let name = thread.thread().name().map_or_else(String::new, |name| format!(" ({name})"));
    thread.join().map_err(|_| anyhow!("a thread{name} panicked"))?
}
