// SPDX-License-Identifier: Apache-2.0
//! Locks that ignore poisoning: no critical section here leaves its data half changed.

use std::sync::{Mutex, MutexGuard, PoisonError};

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
