// SPDX-License-Identifier: Apache-2.0
//! Restricts Cyclone DDS to this machine by a filter on each of its sockets.
//!
//! ROS 2 nodes on a shared network discover each other by multicast. Our participant serves only
//! nodes of its own robot: otherwise two robots in one domain would send each other's topics in a
//! loop. The time to live keeps our packets on this machine. The kernel drops packets of other
//! machines before Cyclone DDS can discover a participant.

use libc::{BPF_ABS, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W};
use socket2::{SockFilter, SockRef};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, RawFd};

/// Index of the interface `lo` (Linux, include/net/net_namespace.h).
const LOOPBACK_IFINDEX: u32 = 1;
/// Packet type of a multicast of this machine that is looped back (linux/if_packet.h).
const PACKET_LOOPBACK: u32 = 5;
/// Offset from which the filter loads the type of a packet (linux/filter.h).
const PACKET_TYPE: u32 = (-0x1000i32 + 4) as u32;
/// Offset from which the filter loads the index of a packet's interface (linux/filter.h).
const IFINDEX: u32 = (-0x1000i32 + 8) as u32;
const WHOLE: u32 = u32::MAX;

const fn step(code: u32, k: u32) -> SockFilter {
    SockFilter::new(code as u16, 0, 0, k)
}

/// Skips steps if the loaded value is `k`.
const fn skip_if(k: u32, steps: u8) -> SockFilter {
    SockFilter::new((BPF_JMP | BPF_JEQ | BPF_K) as u16, steps, 0, k)
}

/// Accepts packets from the loopback interface and packets looped back on another.
const THIS_MACHINE: [SockFilter; 6] = [
    step(BPF_LD | BPF_W | BPF_ABS, IFINDEX),
    skip_if(LOOPBACK_IFINDEX, 3),
    step(BPF_LD | BPF_W | BPF_ABS, PACKET_TYPE),
    skip_if(PACKET_LOOPBACK, 1),
    step(BPF_RET | BPF_K, 0),
    step(BPF_RET | BPF_K, WHOLE),
];

/// Makes a socket drop packets of other machines.
pub fn restrict_to_this_machine(socket: &impl AsFd) -> io::Result<()> {
    SockRef::from(socket).attach_filter(&THIS_MACHINE)
}

unsafe extern "C" {
    fn __real_ddsrt_bind(socket: RawFd, address: *const libc::sockaddr, length: u32) -> i32;
}

/// Binds a socket of Cyclone DDS (redirected as in `hooks`). No packet can arrive earlier.
#[unsafe(no_mangle)]
unsafe extern "C" fn __wrap_ddsrt_bind(
    socket: RawFd,
    address: *const libc::sockaddr,
    length: u32,
) -> i32 {
    const REFUSED: i32 = cyclors::DDS_RETCODE_ERROR;
    // SAFETY: Cyclone DDS owns the socket, and keeps it open during this call.
    let own = BorrowedFd::borrow_raw(socket);
    if let Err(error) = restrict_to_this_machine(&own) {
        tracing::error!(%error, "a socket of Cyclone DDS cannot be restricted to this machine");
        return REFUSED;
    }
    __real_ddsrt_bind(socket, address, length)
}

/// References the function above for the linker.
pub fn hook() -> *const () {
    __wrap_ddsrt_bind as *const ()
}
