// SPDX-License-Identifier: Apache-2.0
//! Makes Cyclone DDS treat acknowledgements of Fast DDS as acknowledgements of Cyclone DDS.
//!
//! A reliable writer keeps samples for a killed subscriber until its lease expires. When a new
//! volatile reader asks, Cyclone DDS sends all kept samples, and Fast DDS delivers them: commands
//! from before the subscriber existed. To readers of Cyclone DDS, it sends a GAP instead
//! (`ddsi_receive.c`, `gap_for_already_acked`). It recognises these readers by the datagram's header,
//! which the hook changes if the datagram contains only acknowledgements.

use crate::hooks::{ACKNACK, INFO_TS};
use cyclors::DDS_RETCODE_OK;
use std::ffi::c_void;

/// Bytes of the header of a datagram (RTPS 2.5, 9.4.4).
const HEADER_BYTES: usize = 20;
/// Byte range of the vendor ID in this header.
const VENDOR: std::ops::Range<usize> = 6..8;
const FAST_DDS: [u8; 2] = [1, 0x0f];
const CYCLONE_DDS: [u8; 2] = [1, 0x10];
/// Kind of a submessage (RTPS 2.5, 9.4.5.1.1).
const INFO_DST: u8 = 0x0e;
/// Submessages with Fast DDS's statistics, which other implementations skip (RTPS 2.5, 9.4.5.1.1).
const VENDOR_SPECIFIC: u8 = 0x80;
const LITTLE_ENDIAN: u8 = 1;

unsafe extern "C" {
    fn __real_ddsrt_recvmsg(
        socket: *const c_void,
        message: *mut libc::msghdr,
        flags: i32,
        received: *mut usize,
    ) -> i32;
}

/// Receives a datagram of Cyclone DDS (redirected as in `hooks`).
#[unsafe(no_mangle)]
unsafe extern "C" fn __wrap_ddsrt_recvmsg(
    socket: *const c_void,
    message: *mut libc::msghdr,
    flags: i32,
    received: *mut usize,
) -> i32 {
    let result = __real_ddsrt_recvmsg(socket, message, flags, received);
    let message = &*message;
    if result == DDS_RETCODE_OK as i32 && message.msg_iovlen == 1 {
        let buffer = &*message.msg_iov;
        let length = buffer.iov_len.min(*received);
        treat_as_cyclone(std::slice::from_raw_parts_mut(buffer.iov_base.cast::<u8>(), length));
    }
    result
}

fn treat_as_cyclone(datagram: &mut [u8]) {
    if datagram.get(VENDOR) == Some(&FAST_DDS) && has_only_acknowledgements(datagram) {
        datagram[VENDOR].copy_from_slice(&CYCLONE_DDS);
    }
}

fn has_only_acknowledgements(datagram: &[u8]) -> bool {
    let mut rest = datagram.get(HEADER_BYTES..).unwrap_or_default();
    let mut has_acknack = false;
    while let [kind, flags, length @ ..] = rest {
        let Some(length) = length.first_chunk().copied() else { return false };
        let length = match flags & LITTLE_ENDIAN {
            0 => u16::from_be_bytes(length),
            _ => u16::from_le_bytes(length),
        };
        if !matches!(*kind, ACKNACK | INFO_TS | INFO_DST | VENDOR_SPECIFIC..) {
            return false;
        }
        has_acknack |= *kind == ACKNACK;
        // A length of 0 means up to the end.
        rest = match length {
            0 => &[],
            length => rest.get(4 + usize::from(length)..).unwrap_or_default(),
        };
    }
    has_acknack
}

/// References the function above for the linker.
pub fn hook() -> *const () {
    __wrap_ddsrt_recvmsg as *const ()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn datagram(vendor: [u8; 2], submessages: &[(u8, &[u8])]) -> Vec<u8> {
        let mut bytes = b"RTPS\x02\x03".to_vec();
        bytes.extend(vendor);
        bytes.resize(HEADER_BYTES, 0);
        for (kind, content) in submessages {
            bytes.extend([*kind, LITTLE_ENDIAN]);
            bytes.extend((content.len() as u16).to_le_bytes());
            bytes.extend(*content);
        }
        bytes
    }

    #[test]
    fn only_fast_dds_acknacks_are_rewritten() {
        let (data, acknowledgement) = ((0x15, [0; 24].as_slice()), (ACKNACK, [0; 24].as_slice()));
        let to = (INFO_DST, [0; 12].as_slice());
        let vendor = |sender: [u8; 2], submessages: &[(u8, &[u8])]| {
            let mut bytes = datagram(sender, submessages);
            treat_as_cyclone(&mut bytes);
            [bytes[6], bytes[7]]
        };
        assert_eq!(vendor(FAST_DDS, &[to, acknowledgement]), CYCLONE_DDS);
        assert_eq!(vendor(FAST_DDS, &[to, acknowledgement, to, acknowledgement]), CYCLONE_DDS);
        assert_eq!(vendor(FAST_DDS, &[to, acknowledgement, (0x80, &[0; 56])]), CYCLONE_DDS);
        assert_eq!(vendor(FAST_DDS, &[to, data]), FAST_DDS);
        assert_eq!(vendor(FAST_DDS, &[to, acknowledgement, data]), FAST_DDS);
        assert_eq!(vendor(FAST_DDS, &[to]), FAST_DDS);
        assert_eq!(vendor([1, 1], &[acknowledgement]), [1, 1]);
    }

    #[test]
    fn truncated_datagrams_do_not_change() {
        let whole = datagram(FAST_DDS, &[(INFO_DST, &[0; 12]), (ACKNACK, &[0; 24])]);
        for length in 0..whole.len() {
            treat_as_cyclone(&mut whole[..length].to_vec());
        }
    }
}
