// SPDX-License-Identifier: Apache-2.0
//! What Cyclone DDS logs: to our log, and into the error of the call that it was about.

use cyclors::*;
use std::cell::RefCell;
use std::ffi::{CStr, c_void};
use std::sync::{Mutex, Once, PoisonError};
use std::time::{Duration, Instant};

thread_local! {
    /// What was logged last by a call of this thread.
    static LAST: RefCell<String> = const { RefCell::new(String::new()) };
}

/// From now on; once is enough.
pub fn take_over() {
    static ONCE: Once = Once::new();
    // SAFETY: the function lives as long as the program, and takes no argument of ours.
    ONCE.call_once(|| unsafe { dds_set_log_sink(Some(sink), std::ptr::null_mut()) });
}

/// Why a call of this thread failed: what was logged of it, or else what its code means.
pub fn reason(code: i32) -> String {
    let logged = LAST.take();
    if !logged.is_empty() {
        return logged;
    }
    // SAFETY: a static text for every code.
    unsafe { CStr::from_ptr(dds_strretcode(code)) }.to_string_lossy().into_owned()
}

unsafe extern "C" fn sink(_: *mut c_void, data: *const dds_log_data_t) {
    let data = &*data;
    // The line's time and place stand before it, and are not wanted.
    let line = std::slice::from_raw_parts(data.message.cast(), data.size);
    let text = String::from_utf8_lossy(line);
    let text = text.trim();
    if data.priority & (DDS_LC_FATAL | DDS_LC_ERROR) != 0 {
        tracing::error!("Cyclone DDS: {text}");
        LAST.replace(text.to_owned());
    } else if data.priority & DDS_LC_WARNING != 0 {
        match WARNINGS.lock().unwrap_or_else(PoisonError::into_inner).next(Instant::now()) {
            Some(0) => tracing::warn!("Cyclone DDS: {text}"),
            Some(withheld) => tracing::warn!("Cyclone DDS: {text} ({withheld} others before it)"),
            None => tracing::debug!("Cyclone DDS: {text}"),
        }
    } else {
        tracing::debug!("Cyclone DDS: {text}");
    }
}

/// A program whose packets are malformed would earn ten warnings a second, as long as it runs.
static WARNINGS: Mutex<Sparing> = Mutex::new(Sparing { last: None, withheld: 0 });
const WARNING_INTERVAL: Duration = Duration::from_secs(10);

/// Lets through one line in [`WARNING_INTERVAL`].
struct Sparing {
    last: Option<Instant>,
    withheld: u64,
}

impl Sparing {
    /// How many lines were withheld before this one, if this one is let through.
    fn next(&mut self, now: Instant) -> Option<u64> {
        if self.last.is_some_and(|last| now.duration_since(last) < WARNING_INTERVAL) {
            self.withheld += 1;
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.withheld))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_told_whole_and_without_what_stands_before_it() {
        let (line, before) = (b"1795355922.070 [0] recv: refused\n", 25);
        let mut data: dds_log_data_t = unsafe { std::mem::zeroed() };
        data.priority = DDS_LC_ERROR;
        data.message = line[before..].as_ptr().cast();
        (data.size, data.hdrsize) = (line.len() - before, before);
        unsafe { sink(std::ptr::null_mut(), &data) };
        assert_eq!(reason(DDS_RETCODE_ERROR), "refused");
        // It was about that call alone.
        assert_ne!(reason(DDS_RETCODE_ERROR), "refused");
    }

    #[test]
    fn warnings_come_at_intervals_and_say_how_many_did_not() {
        let mut sparing = Sparing { last: None, withheld: 0 };
        let start = Instant::now();
        let after = |ms| start + Duration::from_millis(ms);
        let told: Vec<_> =
            [0, 1, 9_999, 10_000, 10_001, 30_000].map(|ms| sparing.next(after(ms))).into();
        assert_eq!(told, [Some(0), None, None, Some(2), None, Some(1)]);
    }
}
