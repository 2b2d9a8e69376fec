// SPDX-License-Identifier: Apache-2.0
//! What Cyclone DDS leaves out, put in where it calls functions of its own. The linker leads those
//! calls here (`--wrap`, see build.rs); the functions behind them are as in Cyclone DDS 11.0.1
//! (`ddsi_xmsg.c`, `ddsi_endpoint.c`), which is pinned.
//!
//! - To which participant an endpoint belongs, when it is announced: without it ROS 2's tools
//!   show our endpoints as of no node.
//! - Which request a sample answers (`PID_RELATED_SAMPLE_IDENTITY`, DDS-RPC 1.0, 7.8.2, and
//!   the number Fast DDS had for it before): without it a client takes no reply.
//! - All that a volatile writer of Fast DDS has sent since it met our reader. Cyclone DDS begins
//!   with what comes after the first heartbeat that it hears, so that the first request of a
//!   client that calls as soon as it has found its server would be lost. It asks for the rest if
//!   the reader is transient local, and looks at that before it matches: our reader is so until
//!   then, and volatile from there on.

use crate::raw::SampleId;
use cyclors::{
    DDS_RETCODE_BAD_PARAMETER, DDS_RETCODE_OK, dds_durability_kind_DDS_DURABILITY_VOLATILE,
    dds_qos_t, dds_qset_durability,
};
use std::cell::Cell;
use std::ffi::c_void;

const PID_PARTICIPANT_GUID: u16 = 0x50;
const PID_ENDPOINT_GUID: u16 = 0x5a;
const PIDS_RELATED_SAMPLE: [u16; 2] = [0x0083, 0x800f];
/// Entity id of every participant (RTPS 2.5, 9.3.1.5).
const PARTICIPANT: [u8; 4] = [0, 0, 1, 0xc1];
/// Kinds of submessages (RTPS 2.5, 9.4.5.1.1).
const INFO_TS: u8 = 0x09;
const DATA: u8 = 0x15;
const DATA_FRAG: u8 = 0x16;
/// Bytes of a submessage's header, of a parameter's, and of a list's encapsulation.
const HEADER: usize = 4;
/// Of the writer's id from the start of DATA and DATA_FRAG.
const WRITER_AT: usize = 12;

#[repr(C)]
pub struct Xmsg {
    _opaque: [u8; 0],
}

unsafe extern "C" {
    fn ddsi_xmsg_payload(size: *mut usize, message: *mut Xmsg) -> *mut u8;
    fn ddsi_xmsg_addpar(message: *mut Xmsg, pid: u16, length: usize) -> *mut u8;
    static ddsi_default_qos_reader: dds_qos_t;
    fn __real_ddsi_match_reader_with_proxy_writers(reader: *mut c_void, now: i64);
    fn __real_ddsi_xqos_mergein_missing(into: *mut dds_qos_t, from: *const dds_qos_t, which: u64);
    fn __real_ddsi_xmsg_addpar_sentinel(message: *mut Xmsg);
    fn __real_ddsi_xmsg_addpar_sentinel_ifparam(message: *mut Xmsg) -> i32;
}

thread_local! {
    /// The answer being sent by this thread: entity id of its writer, and the request.
    static ANSWER: Cell<Option<([u8; 4], SampleId)>> = const { Cell::new(None) };
}

/// Called when Cyclone DDS asks for a sample's size, which it does before it makes a message
/// of it, on the same thread.
pub fn about_to_send(answer: Option<([u8; 4], SampleId)>) {
    ANSWER.set(answer);
}

thread_local! {
    /// The reader that this thread makes is to miss nothing; its quality of service, once known.
    static MAKING: Cell<Option<*mut dds_qos_t>> = const { Cell::new(None) };
}

/// Makes a reader that begins with what a writer has sent since it met it. Its quality of service
/// has to say transient local, and becomes volatile.
pub fn missing_nothing<T>(make: impl FnOnce() -> T) -> T {
    MAKING.set(Some(std::ptr::null_mut()));
    let made = make();
    MAKING.set(None);
    made
}

/// Fills up, among others, a reader's own copy of its quality of service: the last of those before
/// it is matched that take in the whole default of readers.
#[unsafe(no_mangle)]
unsafe extern "C" fn __wrap_ddsi_xqos_mergein_missing(
    into: *mut dds_qos_t,
    from: *const dds_qos_t,
    which: u64,
) {
    let of_reader = std::ptr::eq(from, &raw const ddsi_default_qos_reader) && which == u64::MAX;
    if of_reader && MAKING.get().is_some() {
        MAKING.set(Some(into));
    }
    __real_ddsi_xqos_mergein_missing(into, from, which);
}

/// Begins to match a reader.
#[unsafe(no_mangle)]
unsafe extern "C" fn __wrap_ddsi_match_reader_with_proxy_writers(reader: *mut c_void, now: i64) {
    if let Some(qos) = MAKING.get().filter(|it| !it.is_null()) {
        dds_qset_durability(qos, dds_durability_kind_DDS_DURABILITY_VOLATILE);
    }
    __real_ddsi_match_reader_with_proxy_writers(reader, now);
}

/// Keeps the functions of this file where the linker finds them.
pub fn hooks() -> [*const (); 5] {
    [
        __wrap_ddsi_type_ref_proxy as *const (),
        __wrap_ddsi_match_reader_with_proxy_writers as *const (),
        __wrap_ddsi_xqos_mergein_missing as *const (),
        __wrap_ddsi_xmsg_addpar_sentinel as *const (),
        __wrap_ddsi_xmsg_addpar_sentinel_ifparam as *const (),
    ]
}

/// Takes in the description of a remote endpoint's type (XTypes 1.3, 7.6.3). We match by the
/// type's name, as all of ROS 2, and need none. Cyclone DDS asks Fast DDS for the rest of it,
/// cannot read some answers, and from then on ignores every endpoint of that type: without
/// this, calls of clients that came later never arrived.
#[unsafe(no_mangle)]
unsafe extern "C" fn __wrap_ddsi_type_ref_proxy(
    _domain: *mut c_void,
    to: *mut *mut c_void,
    _description: *const c_void,
    _kind: u32,
    endpoint: *const c_void,
) -> i32 {
    // A topic's, which Cyclone DDS announces by themselves, is nothing without a description.
    if endpoint.is_null() {
        return DDS_RETCODE_BAD_PARAMETER;
    }
    *to = std::ptr::null_mut();
    DDS_RETCODE_OK as i32
}

/// Ends the list by which an endpoint, topic or participant is announced.
#[unsafe(no_mangle)]
unsafe extern "C" fn __wrap_ddsi_xmsg_addpar_sentinel(message: *mut Xmsg) {
    if let Some(owner) = owner_left_out(payload(message)) {
        let to = ddsi_xmsg_addpar(message, PID_PARTICIPANT_GUID, owner.len());
        std::ptr::copy_nonoverlapping(owner.as_ptr(), to, owner.len());
    }
    __real_ddsi_xmsg_addpar_sentinel(message);
}

/// Ends the list of a sample's inline QoS, if it has any.
#[unsafe(no_mangle)]
unsafe extern "C" fn __wrap_ddsi_xmsg_addpar_sentinel_ifparam(message: *mut Xmsg) -> i32 {
    if let Some((_, request)) =
        ANSWER.take().filter(|(writer, _)| writer_of(payload(message)) == Some(*writer))
    {
        let value = wire_form(&request);
        for pid in PIDS_RELATED_SAMPLE {
            let to = ddsi_xmsg_addpar(message, pid, value.len());
            std::ptr::copy_nonoverlapping(value.as_ptr(), to, value.len());
        }
    }
    __real_ddsi_xmsg_addpar_sentinel_ifparam(message)
}

unsafe fn payload<'a>(message: *mut Xmsg) -> &'a [u8] {
    let mut size = 0;
    let bytes = ddsi_xmsg_payload(&mut size, message);
    std::slice::from_raw_parts(bytes, size)
}

/// The participant of the endpoint that a list announces, if the list does not say.
fn owner_left_out(list: &[u8]) -> Option<[u8; 16]> {
    let mut rest = list.get(HEADER..)?;
    let mut endpoint = None;
    while let Some((head, more)) = rest.split_first_chunk::<HEADER>() {
        let pid = u16::from_ne_bytes([head[0], head[1]]);
        let (value, next) = more.split_at_checked(u16::from_ne_bytes([head[2], head[3]]).into())?;
        match pid {
            PID_PARTICIPANT_GUID => return None,
            PID_ENDPOINT_GUID => endpoint = value.first_chunk::<12>().copied(),
            _ => {}
        }
        rest = next;
    }
    let mut owner = [0; 16];
    owner[..12].copy_from_slice(&endpoint?);
    owner[12..].copy_from_slice(&PARTICIPANT);
    Some(owner)
}

/// Entity id of the writer whose data the message is about to hold.
fn writer_of(message: &[u8]) -> Option<[u8; 4]> {
    let mut rest = message;
    if *rest.first()? == INFO_TS {
        let length = u16::from_ne_bytes([*rest.get(2)?, *rest.get(3)?]);
        rest = rest.get(HEADER + usize::from(length)..)?;
    }
    matches!(*rest.first()?, DATA | DATA_FRAG).then_some(())?;
    rest.get(WRITER_AT..)?.first_chunk().copied()
}

/// `SampleIdentity` (DDS-RPC 1.0, 7.8.2): GUID, and a number whose upper half comes first.
fn wire_form(id: &SampleId) -> [u8; 24] {
    let mut bytes = [0; 24];
    bytes[..16].copy_from_slice(&id.writer);
    bytes[16..20].copy_from_slice(&((id.seq >> 32) as u32).to_ne_bytes());
    bytes[20..].copy_from_slice(&(id.seq as u32).to_ne_bytes());
    bytes
}
