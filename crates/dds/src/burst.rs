// SPDX-License-Identifier: Apache-2.0
//! Pauses between the datagrams of large samples, so that a subscriber's receive buffer holds them.
//!
//! Linux's default buffer (`net.core.rmem_default`) holds three datagrams of 64 KB. Over loopback,
//! many more are sent before the subscriber's thread wakes. The others are lost, and each RTPS
//! repair needs a heartbeat and a delayed response.

use std::cell::Cell;
use std::ffi::c_void;
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

/// Maximum bytes that a thread sends without a pause: two of the largest datagrams.
const MAX_BURST_BYTES: usize = 128_000;
/// Pause after a burst: time for a subscriber to wake up and to empty its buffer.
const PAUSE: Duration = Duration::from_micros(200);

unsafe extern "C" {
    fn __real_ddsrt_sendmsg(
        socket: RawFd,
        message: *const c_void,
        flags: i32,
        sent: *mut usize,
    ) -> i32;
}

thread_local! {
    /// Bytes sent by this thread since its last pause, and the time of its last transmission.
    static SENT: Cell<(usize, Option<Instant>)> = const { Cell::new((0, None)) };
}

/// Sends a datagram of Cyclone DDS (redirected as in `hooks`), after a pause if many preceded it.
#[unsafe(no_mangle)]
unsafe extern "C" fn __wrap_ddsrt_sendmsg(
    socket: RawFd,
    message: *const c_void,
    flags: i32,
    sent: *mut usize,
) -> i32 {
    let (mut bytes, last) = SENT.get();
    if last.is_none_or(|it| it.elapsed() >= PAUSE) {
        bytes = 0;
    } else if bytes >= MAX_BURST_BYTES {
        std::thread::sleep(PAUSE);
        bytes = 0;
    }
    let mut length = 0;
    let result = __real_ddsrt_sendmsg(socket, message, flags, &mut length);
    if !sent.is_null() {
        *sent = length;
    }
    SENT.set((bytes + length, Some(Instant::now())));
    result
}

/// References the function above for the linker.
pub fn hook() -> *const () {
    __wrap_ddsrt_sendmsg as *const ()
}
