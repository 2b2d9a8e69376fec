// SPDX-License-Identifier: Apache-2.0
//! Additions to Cyclone DDS at calls of its internal functions. The linker redirects these calls
//! (`--wrap`, see build.rs). The wrapped functions are those of Cyclone DDS 11.0.1 (`ddsi_xmsg.c`,
//! `ddsi_endpoint.c`), which is pinned.
//!
//! - The participant of an announced endpoint. Without the participant, ROS 2's tools show our
//!   endpoints without a node.
//! - The request that a sample answers (`PID_RELATED_SAMPLE_IDENTITY`, DDS-RPC 1.0, 7.8.2, also
//!   under Fast DDS's earlier parameter ID). Without it a client accepts no reply.
//! - All samples of a volatile writer of Fast DDS since it matched our reader. Cyclone DDS starts
//!   after the first heartbeat that it receives. The first request of a client that calls as soon
//!   as it finds its server would be lost. Cyclone DDS requests earlier samples if the reader is
//!   transient local before the match. Our reader is transient local until then, and volatile
//!   afterwards.
//! - An immediate request for these samples. Cyclone DDS asks a new writer for a heartbeat, which
//!   Fast DDS sends three seconds later, so a call sent before the match took that long. Fast DDS
//!   sends its samples immediately to a reader whose first missing number is 0.

use crate::identity::SampleId;
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
const ENTITYID_PARTICIPANT: [u8; 4] = [0, 0, 1, 0xc1];
/// Kinds of submessages (RTPS 2.5, 9.4.5.1.1).
pub const INFO_TS: u8 = 0x09;
pub const ACKNACK: u8 = 0x06;
const DATA: u8 = 0x15;
const DATA_FRAG: u8 = 0x16;
/// Size of a submessage header, of a parameter header, and of a parameter list's encapsulation.
const HEADER_BYTES: usize = 4;
/// Offset of the writer's entity ID in DATA and DATA_FRAG.
const WRITER_AT: usize = 12;
/// Offset of the first unacknowledged number in ACKNACK (RTPS 2.5, 9.4.5.3).
const FIRST_MISSING_AT: usize = 12;
/// End of the first unacknowledged number in ACKNACK.
const FIRST_MISSING_END: usize = 20;
/// Vendor ID of Fast DDS (RTPS 2.5, 9.3.1.1), in the first half of its GUIDs' first word.
const FAST_DDS: u32 = 0x010f;
/// Bytes of an ACKNACK that requests no sample.
const EMPTY_ACKNACK_BYTES: usize = 28;

#[repr(C)]
pub struct Xmsg {
    _opaque: [u8; 0],
}

unsafe extern "C" {
    fn ddsi_xmsg_payload(size: *mut usize, message: *mut Xmsg) -> *mut u8;
    fn ddsi_xmsg_addpar(message: *mut Xmsg, pid: u16, length: usize) -> *mut u8;
    /// The GUID prefix of a single destination as native-endian words; `false` for several
    /// destinations.
    fn ddsi_xmsg_getdst1_prefix(message: *mut Xmsg, prefix: *mut [u32; 3]) -> bool;
    static ddsi_default_qos_reader: dds_qos_t;
    fn __real_ddsi_match_reader_with_proxy_writers(reader: *mut c_void, now: i64);
    fn __real_ddsi_xqos_mergein_missing(into: *mut dds_qos_t, from: *const dds_qos_t, which: u64);
    fn __real_ddsi_xmsg_addpar_sentinel(message: *mut Xmsg);
    fn __real_ddsi_xmsg_addpar_sentinel_ifparam(message: *mut Xmsg) -> i32;
    fn __real_ddsi_xmsg_submsg_setnext(message: *mut Xmsg, submessage: Marker);
}

/// The place of a submessage in its message.
#[repr(C)]
#[derive(Clone, Copy)]
struct Marker {
    offset: usize,
}

/// A reply to a request.
#[derive(Clone, Copy)]
pub struct Reply {
    /// Entity ID of the writer.
    pub writer: [u8; 4],
    pub request: SampleId,
}

thread_local! {
    /// The reply that this thread is sending.
    static REPLY: Cell<Option<Reply>> = const { Cell::new(None) };
}

/// Records the reply that this thread is about to send. To be called when Cyclone DDS asks for the size
/// of the sample, just before it makes the message.
pub fn set_reply(reply: Option<Reply>) {
    REPLY.set(reply);
}

thread_local! {
    /// The policies of the reader that this thread creates with earlier samples, once they are known.
    static NEW_READER_QOS: Cell<Option<*mut dds_qos_t>> = const { Cell::new(None) };
}

/// Creates a reader that receives all samples since the writer matched it. Its policies must be
/// transient local, and become volatile.
pub fn create_with_earlier_samples<T>(create: impl FnOnce() -> T) -> T {
    NEW_READER_QOS.set(Some(std::ptr::null_mut()));
    let created = create();
    NEW_READER_QOS.set(None);
    created
}

/// Adds defaults to policies, including a reader's own copy. The last call with all defaults for this
/// copy precedes the reader's match.
#[unsafe(no_mangle)]
unsafe extern "C" fn __wrap_ddsi_xqos_mergein_missing(
    into: *mut dds_qos_t,
    from: *const dds_qos_t,
    which: u64,
) {
    let merges_reader_defaults =
        std::ptr::eq(from, &raw const ddsi_default_qos_reader) && which == u64::MAX;
    if merges_reader_defaults && NEW_READER_QOS.get().is_some() {
        NEW_READER_QOS.set(Some(into));
    }
    __real_ddsi_xqos_mergein_missing(into, from, which);
}

/// Starts to match a reader.
#[unsafe(no_mangle)]
unsafe extern "C" fn __wrap_ddsi_match_reader_with_proxy_writers(reader: *mut c_void, now: i64) {
    if let Some(qos) = NEW_READER_QOS.get().filter(|qos| !qos.is_null()) {
        dds_qset_durability(qos, dds_durability_kind_DDS_DURABILITY_VOLATILE);
    }
    __real_ddsi_match_reader_with_proxy_writers(reader, now);
}

/// References the functions of this file for the linker.
pub fn hooks() -> [*const (); 6] {
    [
        __wrap_ddsi_xmsg_submsg_setnext as *const (),
        __wrap_ddsi_type_ref_proxy as *const (),
        __wrap_ddsi_match_reader_with_proxy_writers as *const (),
        __wrap_ddsi_xqos_mergein_missing as *const (),
        __wrap_ddsi_xmsg_addpar_sentinel as *const (),
        __wrap_ddsi_xmsg_addpar_sentinel_ifparam as *const (),
    ]
}

/// Processes the type information of a remote endpoint (XTypes 1.3, 7.6.3). We match by the type's
/// name, as ROS 2 does, and need no type information. Cyclone DDS would request it from Fast DDS,
/// could not read some responses, and would then ignore every endpoint of that type. Without this
/// hook, calls of later clients never arrived.
#[unsafe(no_mangle)]
unsafe extern "C" fn __wrap_ddsi_type_ref_proxy(
    _domain: *mut c_void,
    to: *mut *mut c_void,
    _description: *const c_void,
    _kind: u32,
    endpoint: *const c_void,
) -> i32 {
    // A topic, which Cyclone DDS announces separately, needs its type information.
    if endpoint.is_null() {
        return DDS_RETCODE_BAD_PARAMETER;
    }
    *to = std::ptr::null_mut();
    DDS_RETCODE_OK as i32
}

/// Ends the parameter list that announces an endpoint, topic or participant.
#[unsafe(no_mangle)]
unsafe extern "C" fn __wrap_ddsi_xmsg_addpar_sentinel(message: *mut Xmsg) {
    if let Some(owner) = missing_participant(payload(message)) {
        let to = ddsi_xmsg_addpar(message, PID_PARTICIPANT_GUID, owner.len());
        std::ptr::copy_nonoverlapping(owner.as_ptr(), to, owner.len());
    }
    __real_ddsi_xmsg_addpar_sentinel(message);
}

/// Ends the list of a sample's inline QoS, if it has any.
#[unsafe(no_mangle)]
unsafe extern "C" fn __wrap_ddsi_xmsg_addpar_sentinel_ifparam(message: *mut Xmsg) -> i32 {
    if let Some(reply) =
        REPLY.take().filter(|reply| writer_entity_id(payload(message)) == Some(reply.writer))
    {
        let value = encode_sample_id(&reply.request);
        for pid in PIDS_RELATED_SAMPLE {
            let to = ddsi_xmsg_addpar(message, pid, value.len());
            std::ptr::copy_nonoverlapping(value.as_ptr(), to, value.len());
        }
    }
    __real_ddsi_xmsg_addpar_sentinel_ifparam(message)
}

/// Ends a submessage.
#[unsafe(no_mangle)]
unsafe extern "C" fn __wrap_ddsi_xmsg_submsg_setnext(message: *mut Xmsg, submessage: Marker) {
    let mut size = 0;
    let bytes = ddsi_xmsg_payload(&mut size, message);
    let bytes = std::slice::from_raw_parts_mut(bytes, size);
    if let Some(acknowledgement) = bytes.get_mut(submessage.offset..)
        && is_first_acknowledgement(acknowledgement)
        && is_for_fast_dds(message)
    {
        acknowledgement[FIRST_MISSING_AT..FIRST_MISSING_END].fill(0);
    }
    __real_ddsi_xmsg_submsg_setnext(message, submessage);
}

/// Whether a submessage is an empty acknowledgement before the writer's first heartbeat (RTPS 2.5,
/// 8.4.2.3.4): no requests, first missing number 1, count 0.
fn is_first_acknowledgement(submessage: &[u8]) -> bool {
    let word = |number: u32| number.to_ne_bytes();
    let first_missing_is_1 = [word(0), word(1)].concat();
    submessage.len() == EMPTY_ACKNACK_BYTES
        && submessage[0] == ACKNACK
        && submessage[FIRST_MISSING_AT..FIRST_MISSING_END] == first_missing_is_1
        && submessage[FIRST_MISSING_END..].iter().all(|byte| *byte == 0)
}

unsafe fn is_for_fast_dds(message: *mut Xmsg) -> bool {
    let mut prefix = [0; 3];
    ddsi_xmsg_getdst1_prefix(message, &mut prefix) && prefix[0] >> 16 == FAST_DDS
}

unsafe fn payload<'a>(message: *mut Xmsg) -> &'a [u8] {
    let mut size = 0;
    let bytes = ddsi_xmsg_payload(&mut size, message);
    std::slice::from_raw_parts(bytes, size)
}

/// Returns the participant of the endpoint that a list announces, if it is not in the list.
fn missing_participant(list: &[u8]) -> Option<[u8; 16]> {
    let mut rest = list.get(HEADER_BYTES..)?;
    let mut endpoint = None;
    while let Some((head, more)) = rest.split_first_chunk::<HEADER_BYTES>() {
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
    owner[12..].copy_from_slice(&ENTITYID_PARTICIPANT);
    Some(owner)
}

/// Entity ID of the writer whose data the message will contain.
fn writer_entity_id(message: &[u8]) -> Option<[u8; 4]> {
    let mut rest = message;
    if *rest.first()? == INFO_TS {
        let length = u16::from_ne_bytes([*rest.get(2)?, *rest.get(3)?]);
        rest = rest.get(HEADER_BYTES + usize::from(length)..)?;
    }
    matches!(*rest.first()?, DATA | DATA_FRAG).then_some(())?;
    rest.get(WRITER_AT..)?.first_chunk().copied()
}

/// `SampleIdentity` (DDS-RPC 1.0, 7.8.2): GUID, and a number with its upper half first.
fn encode_sample_id(id: &SampleId) -> [u8; 24] {
    let mut bytes = [0; 24];
    bytes[..16].copy_from_slice(&id.writer);
    bytes[16..20].copy_from_slice(&((id.seq >> 32) as u32).to_ne_bytes());
    bytes[20..].copy_from_slice(&(id.seq as u32).to_ne_bytes());
    bytes
}
