// SPDX-License-Identifier: Apache-2.0
//! Cyclone DDS's log: forwarded to our log, and to the error of the call that caused it.

use cyclors::*;
use std::cell::RefCell;
use std::ffi::{CStr, c_void};
use std::sync::{Mutex, Once, PoisonError};
use std::time::{Duration, Instant};

thread_local! {
    /// The last error logged by a call of this thread.
    static LAST_ERROR: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Redirects the log, once.
pub fn install_log_sink() {
    static ONCE: Once = Once::new();
    // SAFETY: the function is static, and its argument is null.
    ONCE.call_once(|| unsafe { dds_set_log_sink(Some(sink), std::ptr::null_mut()) });
}

/// Returns why a call of this thread failed: its logged error, or the text for its code.
pub fn reason(code: i32) -> String {
    let logged = LAST_ERROR.take();
    if !logged.is_empty() {
        return logged;
    }
    // SAFETY: every code has a static text.
    unsafe { CStr::from_ptr(dds_strretcode(code)) }.to_string_lossy().into_owned()
}

unsafe extern "C" fn sink(_: *mut c_void, data: *const dds_log_data_t) {
    let data = &*data;
    // The time and place before the message are removed.
    let line = std::slice::from_raw_parts(data.message.cast(), data.size);
    let text = String::from_utf8_lossy(line);
    let text = text.trim();
    let is_error = data.priority & (DDS_LC_FATAL | DDS_LC_ERROR) != 0;
    // An interface that is down is an outage; DDS retransmits.
    let is_outage = text.contains(SEND_FUNCTION);
    if is_error {
        LAST_ERROR.replace(text.to_owned());
    }
    if is_error && !is_outage {
        tracing::error!("Cyclone DDS: {text}");
    } else if is_error || data.priority & DDS_LC_WARNING != 0 {
        match WARNINGS.lock().unwrap_or_else(PoisonError::into_inner).admit(Instant::now()) {
            Some(0) => tracing::warn!("Cyclone DDS: {text}"),
            Some(withheld) => tracing::warn!("Cyclone DDS: {text} ({withheld} others before it)"),
            None => tracing::debug!("Cyclone DDS: {text}"),
        }
    } else {
        tracing::debug!("Cyclone DDS: {text}");
    }
}

/// The function that Cyclone DDS's log names every second while it cannot send to a network.
const SEND_FUNCTION: &str = "ddsi_udp_conn_write";
/// A program that sends malformed packets would cause ten warnings per second.
static WARNINGS: Mutex<LogLimit> = Mutex::new(LogLimit { last: None, withheld: 0 });
const WARNING_INTERVAL: Duration = Duration::from_secs(10);

/// Admits one line per [`WARNING_INTERVAL`].
struct LogLimit {
    last: Option<Instant>,
    withheld: u64,
}

impl LogLimit {
    /// Returns the number of lines withheld before this one, or `None` to withhold this one as
    /// well.
    fn admit(&mut self, now: Instant) -> Option<u64> {
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
    fn the_reason_is_the_logged_error_without_its_prefix() {
        let (line, before) = (b"1795355922.070 [0] recv: refused\n", 25);
        let mut data: dds_log_data_t = unsafe { std::mem::zeroed() };
        data.priority = DDS_LC_ERROR;
        data.message = line[before..].as_ptr().cast();
        (data.size, data.hdrsize) = (line.len() - before, before);
        unsafe { sink(std::ptr::null_mut(), &data) };
        assert_eq!(reason(DDS_RETCODE_ERROR), "refused");
        // The next call has no logged error.
        assert_ne!(reason(DDS_RETCODE_ERROR), "refused");
    }

    #[test]
    fn warnings_are_limited_and_counted() {
        let mut limit = LogLimit { last: None, withheld: 0 };
        let start = Instant::now();
        let after = |ms| start + Duration::from_millis(ms);
        let counts: Vec<_> =
            [0, 1, 9_999, 10_000, 10_001, 30_000].map(|ms| limit.admit(after(ms))).into();
        assert_eq!(counts, [Some(0), None, None, Some(2), None, Some(1)]);
    }
}
