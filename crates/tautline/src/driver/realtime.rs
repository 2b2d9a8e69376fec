// SPDX-License-Identifier: Apache-2.0
//! Real-time options of the data-plane thread. If the system refuses an option, this is logged and
//! the option is skipped.

use crate::config::Realtime;
use std::io;

pub(super) fn enter(options: &Realtime) {
    if let Some(cpu) = options.cpu {
        let mut set = rustix::thread::CpuSet::new();
        set.set(cpu as usize);
        let pinned = rustix::thread::sched_setaffinity(None, &set);
        warn("cpu", pinned.map_err(io::Error::from));
    }
    if let Some(priority) = options.priority {
        warn("priority", crate::sys::run_in_real_time(priority));
    }
    if options.lock_memory {
        let all = rustix::mm::MlockAllFlags::CURRENT | rustix::mm::MlockAllFlags::FUTURE;
        let locked = rustix::mm::mlockall(all);
        warn("lock_memory", locked.map_err(io::Error::from));
    }
}

fn warn(what: &str, result: io::Result<()>) {
    if let Err(error) = result {
        tracing::warn!("realtime.{what}: {error}; continuing without it");
    }
}
