// SPDX-License-Identifier: Apache-2.0
//! Nobody but this machine: a filter on every socket of Cyclone DDS.
//!
//! ROS 2 nodes on a shared network find each other by multicast. Our participant serves its
//! own robot's nodes alone, else two robots in one domain would send each other's topics in
//! circles. What it sends stays here by its time to live; what others send it is dropped by
//! the kernel, before Cyclone DDS can discover anyone.

use libc::{BPF_ABS, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W};
use socket2::{SockFilter, SockRef};
use std::os::fd::{BorrowedFd, RawFd};

/// Number of the interface `lo` (Linux, include/net/net_namespace.h).
const LOOPBACK_IFINDEX: u32 = 1;
/// A multicast of this machine, given back to it (linux/if_packet.h).
const PACKET_LOOPBACK: u32 = 5;
/// What the filter can load beside the packet's bytes (linux/filter.h).
const PACKET_TYPE: u32 = (-0x1000i32 + 4) as u32;
const IFINDEX: u32 = (-0x1000i32 + 8) as u32;
const WHOLE: u32 = u32::MAX;

const fn step(code: u32, k: u32) -> SockFilter {
    SockFilter::new(code as u16, 0, 0, k)
}

/// Jumps over so many steps if what was loaded is `k`.
const fn jump_if(k: u32, over: u8) -> SockFilter {
    SockFilter::new((BPF_JMP | BPF_JEQ | BPF_K) as u16, over, 0, k)
}

/// Takes what came over the loopback interface or was given back on another.
const THIS_MACHINE: [SockFilter; 6] = [
    step(BPF_LD | BPF_W | BPF_ABS, IFINDEX),
    jump_if(LOOPBACK_IFINDEX, 3),
    step(BPF_LD | BPF_W | BPF_ABS, PACKET_TYPE),
    jump_if(PACKET_LOOPBACK, 1),
    step(BPF_RET | BPF_K, 0),
    step(BPF_RET | BPF_K, WHOLE),
];

unsafe extern "C" {
    fn __real_ddsrt_bind(socket: RawFd, address: *const libc::sockaddr, length: u32) -> i32;
}

/// Cyclone DDS binds a socket (led here as in `hooks`): nothing can have arrived yet.
#[unsafe(no_mangle)]
unsafe extern "C" fn __wrap_ddsrt_bind(
    socket: RawFd,
    address: *const libc::sockaddr,
    length: u32,
) -> i32 {
    const REFUSED: i32 = cyclors::DDS_RETCODE_ERROR;
    // SAFETY: Cyclone DDS owns it, and keeps it open during this call.
    let own = BorrowedFd::borrow_raw(socket);
    if let Err(error) = SockRef::from(&own).attach_filter(&THIS_MACHINE) {
        tracing::error!(%error, "a socket of Cyclone DDS cannot be kept to this machine");
        return REFUSED;
    }
    __real_ddsrt_bind(socket, address, length)
}

/// Keeps the function above where the linker finds it.
pub fn hook() -> *const () {
    __wrap_ddsrt_bind as *const ()
}
