// SPDX-License-Identifier: Apache-2.0
//! System calls that no safe library offers. The only `unsafe` of this crate: each call passes a
//! pointer to a live local of the type that the kernel writes or reads.
#![allow(unsafe_code)]

use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, BorrowedFd};

/// Returns the bytes that the kernel has charged to a socket for packets not yet sent, its own
/// bookkeeping included (SIOCOUTQ, `man 7 socket`).
pub(crate) fn charged_bytes(socket: BorrowedFd<'_>) -> io::Result<usize> {
    let mut charged: libc::c_int = 0;
    // SAFETY: TIOCOUTQ (the same number as SIOCOUTQ) writes one int.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut charged) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(usize::try_from(charged).unwrap_or(0))
}

/// Sends the packets in one call. All packets have the length of the first, except that the last
/// may be shorter. The kernel or the network card separates them (UDP_SEGMENT, `man 7 udp`).
pub(crate) fn send(socket: BorrowedFd<'_>, packets: &[&[u8]]) -> io::Result<()> {
    let parts: Vec<IoSlice<'_>> = packets.iter().map(|packet| IoSlice::new(packet)).collect();
    let length = packets.first().map_or(0, |packet| packet.len() as u16);
    let segments = [ControlMessage::UdpGsoSegments(&length)];
    let control = if packets.len() > 1 { &segments[..] } else { &[] };
    sendmsg::<()>(socket.as_raw_fd(), &parts, control, MsgFlags::empty(), None)?;
    Ok(())
}

/// Asks the kernel about an interface; `socket` can be any socket (`man 7 netdevice`).
fn ask_interface(
    socket: BorrowedFd<'_>,
    interface: &str,
    question: libc::Ioctl,
) -> io::Result<libc::__c_anonymous_ifr_ifru> {
    let ifr_ifru = libc::__c_anonymous_ifr_ifru { ifru_mtu: 0 };
    let mut request = libc::ifreq { ifr_name: [0; libc::IFNAMSIZ], ifr_ifru };
    // The last byte stays zero and terminates the name.
    let name = request.ifr_name.iter_mut().take(libc::IFNAMSIZ - 1);
    name.zip(interface.bytes()).for_each(|(to, byte)| *to = byte as libc::c_char);
    // SAFETY: the kernel reads one ifreq and writes its answer.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), question, &raw mut request) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(request.ifr_ifru) }
}

/// Returns the MTU of an interface, in bytes (SIOCGIFMTU).
pub(crate) fn interface_mtu(socket: BorrowedFd<'_>, interface: &str) -> io::Result<usize> {
    let answer = ask_interface(socket, interface, libc::SIOCGIFMTU)?;
    // SAFETY: the call has written this member.
    Ok(usize::try_from(unsafe { answer.ifru_mtu }).unwrap_or(0))
}

/// Whether an interface is up, supports multicast and is no loopback; `socket` can be any socket
/// (SIOCGIFFLAGS).
pub(crate) fn supports_multicast(socket: BorrowedFd<'_>, interface: &str) -> io::Result<bool> {
    let answer = ask_interface(socket, interface, libc::SIOCGIFFLAGS)?;
    // SAFETY: the call has written this member.
    let flags = libc::c_int::from(unsafe { answer.ifru_flags });
    let wanted = libc::IFF_UP | libc::IFF_MULTICAST;
    Ok(flags & (wanted | libc::IFF_LOOPBACK) == wanted)
}

/// User, group and process at the other end of a Unix socket.
#[derive(Debug, Clone, Copy)]
pub struct Credentials {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// Process id.
    pub pid: u32,
}

/// Returns the user, group and process that the other end of a Unix socket had when it connected
/// (SO_PEERCRED). The process id is 0 if the process is in another PID namespace; `rustix` does not
/// support this case.
pub fn peer_credentials(socket: BorrowedFd<'_>) -> io::Result<Credentials> {
    let mut found = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    let (level, name) = (libc::SOL_SOCKET, libc::SO_PEERCRED);
    // SAFETY: the kernel writes at most `len` bytes, one ucred.
    let result = unsafe {
        libc::getsockopt(socket.as_raw_fd(), level, name, (&raw mut found).cast(), &raw mut len)
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    let pid = u32::try_from(found.pid).unwrap_or(0);
    Ok(Credentials { uid: found.uid, gid: found.gid, pid })
}

/// Puts the calling thread under SCHED_FIFO.
pub(crate) fn run_in_real_time(priority: u8) -> io::Result<()> {
    let param = libc::sched_param { sched_priority: libc::c_int::from(priority) };
    // SAFETY: reads one sched_param; 0 is the calling thread.
    let result = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const param) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Whether the kernel's clock is synchronized (`man 2 adjtimex`).
pub fn clock_is_synchronized() -> io::Result<bool> {
    // SAFETY: all fields of a timex are numbers, for which zero is valid. Without modes, the call only
    // writes.
    let mut time = unsafe { std::mem::zeroed::<libc::timex>() };
    // SAFETY: reads and writes one timex.
    let result = unsafe { libc::adjtimex(&raw mut time) };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(time.status & libc::STA_UNSYNC == 0)
    }
}
