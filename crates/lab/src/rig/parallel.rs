// SPDX-License-Identifier: Apache-2.0
//! Parallel runs in virtual time, whose results do not depend on their speed.

use crate::rig::progress::Progress;
use anyhow::{Result, anyhow};
use std::sync::Mutex;

/// Runs all items on one thread per processor, each item as a stage of the progress. Returns the
/// results in the order of `items`, or the first error.
pub fn run<T: Send, R: Send>(
    progress: &Progress,
    items: Vec<T>,
    one: impl Fn(T) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let rest = Mutex::new(items.into_iter().enumerate());
    let next = || rest.lock().ok()?.next();
    let work = || {
        let mut found = Vec::new();
        while let Some((number, item)) = next() {
            progress.enter_next();
            found.push((number, one(item)));
        }
        found
    };
    let mut all = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let joined: Result<Vec<_>, _> = workers.into_iter().map(|it| it.join()).collect();
        joined.map_err(|_| anyhow!("a run panicked"))
    })?
    .into_iter()
    .flatten()
    .collect::<Vec<_>>();
    all.sort_by_key(|(number, _)| *number);
    all.into_iter().map(|(_, found)| found).collect()
}
