// SPDX-License-Identifier: Apache-2.0
//! What Cyclone DDS logs: to our log, and into the error of the call that it was about.

use cyclors::*;
use std::cell::RefCell;
use std::ffi::{CStr, c_void};
use std::sync::Once;

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
    let line = std::slice::from_raw_parts(data.message.cast(), data.size);
    // Without the line's own time and place.
    let text = String::from_utf8_lossy(line.get(data.hdrsize..).unwrap_or(line));
    let text = text.trim();
    if data.priority & (DDS_LC_FATAL | DDS_LC_ERROR) != 0 {
        tracing::error!("Cyclone DDS: {text}");
        LAST.replace(text.to_owned());
    } else if data.priority & DDS_LC_WARNING != 0 {
        tracing::warn!("Cyclone DDS: {text}");
    } else {
        tracing::debug!("Cyclone DDS: {text}");
    }
}
