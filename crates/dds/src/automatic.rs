// SPDX-License-Identifier: Apache-2.0
//! Automatic liveliness, which a participant asserts for all its writers together.
//!
//! For Fast DDS, such an assertion is a sign of life of all writers that match an automatic reader,
//! even if they assert by topic and have stopped. Cyclone DDS 11.0.1 sends one every eight seconds even
//! if no writer needs it. The linker can redirect calls of the function that returns the interval,
//! since they come from another file.

use crate::qos::{INFINITE, Liveliness};
use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The liveliness kind AUTOMATIC of DDS.
const AUTOMATIC: u32 = 0;

unsafe extern "C" {
    fn __real_ddsi_participant_get_pmd_interval(participant: *mut c_void) -> i64;
}

/// The number of our writers whose automatic liveliness has a lease.
static LEASED_WRITERS: AtomicUsize = AtomicUsize::new(0);

/// Keeps a writer counted while the guard exists.
pub struct AutomaticLivelinessGuard(());

impl AutomaticLivelinessGuard {
    /// Counts a writer with this liveliness; `None` if it needs no assertions by the participant.
    pub fn acquire(liveliness: Liveliness) -> Option<Self> {
        let Liveliness { kind, lease } = liveliness;
        (kind == AUTOMATIC && lease != INFINITE).then(|| {
            LEASED_WRITERS.fetch_add(1, Ordering::SeqCst);
            Self(())
        })
    }
}

impl Drop for AutomaticLivelinessGuard {
    fn drop(&mut self) {
        LEASED_WRITERS.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The time between two assertions of a participant.
#[unsafe(no_mangle)]
unsafe extern "C" fn __wrap_ddsi_participant_get_pmd_interval(participant: *mut c_void) -> i64 {
    match LEASED_WRITERS.load(Ordering::SeqCst) {
        0 => INFINITE,
        _ => __real_ddsi_participant_get_pmd_interval(participant),
    }
}

/// References the function of this file for the linker.
pub fn hook() -> *const () {
    __wrap_ddsi_participant_get_pmd_interval as *const ()
}
