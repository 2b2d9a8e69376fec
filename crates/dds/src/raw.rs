// SPDX-License-Identifier: Apache-2.0
//! Samples of opaque CDR with any type name: a "sertype" of Cyclone DDS.
//!
//! The bytes are as on the wire, including four bytes of encapsulation. Sent samples are padded
//! with zeros to a multiple of four. The sequence number of a received sample and the request that
//! it answers (Fast DDS's correlation of replies) are read from its packet.
//!
//! The receiving half mirrors `ddsi_rmsg` and `ddsi_rdata` of Cyclone DDS 11.0.1, which `cyclors`
//! leaves opaque. Its version is pinned; compare the structures at each update.

use crate::hooks;
use crate::identity::SampleId;
use bytes::Bytes;
use cyclors::*;
use std::ffi::{CString, c_char, c_void};
use std::sync::OnceLock;

/// A sample, of which Cyclone DDS accesses only the first field.
#[repr(C)]
pub struct Blob {
    base: ddsi_serdata,
    /// Padded to a multiple of four bytes.
    payload: Bytes,
    size: u32,
    /// 0 if the sample is not from the network.
    pub seq: i64,
    /// The request that it answers.
    pub related_sample: Option<SampleId>,
    /// Entity ID of the writer, for a sent sample.
    pub writer: [u8; 4],
}

impl Blob {
    /// The payload without padding.
    pub fn bytes(&self) -> Bytes {
        self.payload.slice(..self.size as usize)
    }
    /// Transfers ownership to Cyclone DDS, which frees it by `free_sd`.
    pub fn into_raw(b: Box<Blob>) -> *mut ddsi_serdata {
        Box::into_raw(b) as *mut ddsi_serdata
    }
    /// A sample of these bytes.
    ///
    /// # Safety
    /// `sertype` must be a live sertype made by this module.
    pub unsafe fn new(
        sertype: *const ddsi_sertype,
        kind: ddsi_serdata_kind,
        payload: Bytes,
    ) -> Box<Blob> {
        let size = payload.len() as u32;
        let payload = padded(payload);
        let base = std::mem::zeroed();
        let mut b =
            Box::new(Blob { base, payload, size, seq: 0, related_sample: None, writer: [0; 4] });
        ddsi_serdata_init(&mut b.base, sertype, kind);
        b
    }
    /// Sets the source timestamp, in nanoseconds since 1970.
    pub fn set_timestamp(&mut self, ns: i64) {
        self.base.timestamp.v = ns;
    }
}

/// Pads a payload; copies only if padding is needed, which samples from DDS never need.
fn padded(payload: Bytes) -> Bytes {
    let whole = payload.len().next_multiple_of(4);
    if whole == payload.len() {
        return payload;
    }
    let mut copy = Vec::with_capacity(whole);
    copy.extend_from_slice(&payload);
    copy.resize(whole, 0);
    copy.into()
}

/// Returns the sample behind Cyclone DDS's pointer.
///
/// # Safety
/// `sd` must be a live serdata of a sertype of this module.
pub unsafe fn blob<'a>(sd: *const ddsi_serdata) -> &'a Blob {
    &*(sd as *const Blob)
}

// Structures of the receiver that cyclors does not bind (ddsi_radmin.h).
#[repr(C)]
struct RmsgChunk {
    rbuf: *mut c_void,
    next: *mut c_void,
    u: u64,
}
#[repr(C)]
struct Rmsg {
    refcount: u32,
    lastchunk: *mut c_void,
    trace: bool,
    chunk: RmsgChunk,
}
#[repr(C)]
struct Rdata {
    rmsg: *mut Rmsg,
    nextfrag: *mut Rdata,
    min: u32,
    maxp1: u32,
    submsg_zoff: u16,
    payload_zoff: u16,
}

unsafe fn packet_ptr(r: &Rdata, off: usize) -> *const u8 {
    (r.rmsg.add(1) as *const u8).add(off)
}

/// The identity of a received sample.
#[derive(Default)]
struct Identity {
    seq: i64,
    related_sample: Option<SampleId>,
}

/// Reads a sample's identity from its DATA or DATA_FRAG submessage.
unsafe fn parse_submessage(r: &Rdata) -> Identity {
    let (sub, pay) = (r.submsg_zoff as usize, r.payload_zoff as usize);
    if sub == 0 || pay < sub + 24 {
        return Identity::default();
    }
    let m = std::slice::from_raw_parts(packet_ptr(r, sub), pay - sub);
    let (id, flags) = (m[0], m[1]);
    if id != 0x15 && id != 0x16 {
        return Identity::default();
    }
    // Cyclone has byte-swapped the fixed header in place, so it is in native order.
    let u32n = |o: usize| u32::from_ne_bytes(m[o..o + 4].try_into().unwrap());
    let seq = ((u32n(16) as i64) << 32) | u32n(20) as i64;
    if flags & 2 == 0 {
        return Identity { seq, related_sample: None };
    }
    let le = flags & 1 == 1;
    let u16w = |o: usize| {
        let b = [m[o], m[o + 1]];
        if le { u16::from_le_bytes(b) } else { u16::from_be_bytes(b) }
    };
    let u32w = |o: usize| {
        let b: [u8; 4] = m[o..o + 4].try_into().unwrap();
        if le { u32::from_le_bytes(b) } else { u32::from_be_bytes(b) }
    };
    let mut o = 8 + u16::from_ne_bytes([m[6], m[7]]) as usize;
    let mut related_sample = None;
    while o + 4 <= m.len() {
        let (pid, len) = (u16w(o), u16w(o + 2) as usize);
        o += 4;
        if pid == 1 || o + len > m.len() {
            break;
        }
        if (pid == 0x0083 || pid == 0x800f) && len >= 24 {
            let seq = ((u32w(o + 16) as i64) << 32) | u32w(o + 20) as i64;
            related_sample = Some(SampleId { writer: m[o..o + 16].try_into().unwrap(), seq });
        }
        o += len;
    }
    Identity { seq, related_sample }
}

unsafe extern "C" fn from_ser(
    st: *const ddsi_sertype,
    kind: ddsi_serdata_kind,
    frags: *const ddsi_rdata,
    size: usize,
) -> *mut ddsi_serdata {
    let mut payload = Vec::with_capacity(size.next_multiple_of(4));
    let mut frag = frags as *const Rdata;
    let Identity { seq, related_sample } = parse_submessage(&*frag);
    while !frag.is_null() {
        let f = &*frag;
        let off = payload.len();
        if f.min as usize > off {
            return std::ptr::null_mut();
        }
        if f.maxp1 as usize > off {
            let end = (f.maxp1 as usize).min(size);
            let src = packet_ptr(f, f.payload_zoff as usize + off - f.min as usize);
            payload.extend_from_slice(std::slice::from_raw_parts(src, end.saturating_sub(off)));
        }
        frag = f.nextfrag;
    }
    if payload.len() != size {
        return std::ptr::null_mut();
    }
    let mut b = Blob::new(st, kind, payload.into());
    b.seq = seq;
    b.related_sample = related_sample;
    Blob::into_raw(b)
}

unsafe extern "C" fn from_ser_iov(
    st: *const ddsi_sertype,
    kind: ddsi_serdata_kind,
    n: ddsrt_msg_iovlen_t,
    iov: *const ddsrt_iovec_t,
    size: usize,
) -> *mut ddsi_serdata {
    let mut payload = Vec::with_capacity(size.next_multiple_of(4));
    for v in std::slice::from_raw_parts(iov, n) {
        payload.extend_from_slice(std::slice::from_raw_parts(v.iov_base as *const u8, v.iov_len));
    }
    payload.truncate(size);
    Blob::into_raw(Blob::new(st, kind, payload.into()))
}

unsafe extern "C" fn free_sd(sd: *mut ddsi_serdata) {
    drop(Box::from_raw(sd as *mut Blob));
}
unsafe extern "C" fn eqkey(_: *const ddsi_serdata, _: *const ddsi_serdata) -> bool {
    true
}
unsafe extern "C" fn get_size(sd: *const ddsi_serdata) -> u32 {
    let blob = blob(sd);
    let writer = blob.writer;
    hooks::set_reply(blob.related_sample.map(|request| hooks::Reply { writer, request }));
    blob.size
}
unsafe extern "C" fn to_ser(sd: *const ddsi_serdata, off: usize, sz: usize, buf: *mut c_void) {
    std::ptr::copy_nonoverlapping(blob(sd).payload[off..off + sz].as_ptr(), buf as *mut u8, sz);
}
unsafe extern "C" fn to_ser_ref(
    sd: *const ddsi_serdata,
    off: usize,
    sz: usize,
    r: *mut ddsrt_iovec_t,
) -> *mut ddsi_serdata {
    (*r).iov_base = blob(sd).payload[off..off + sz].as_ptr() as *mut c_void;
    (*r).iov_len = sz as _;
    reference(sd)
}
unsafe extern "C" fn to_ser_unref(sd: *mut ddsi_serdata, _: *const ddsrt_iovec_t) {
    ddsi_serdata_unref(sd);
}
/// ddsi_serdata_ref is an inline C function that cyclors does not export.
unsafe fn reference(sd: *const ddsi_serdata) -> *mut ddsi_serdata {
    let sd = sd as *mut ddsi_serdata;
    let refc = &*(std::ptr::addr_of!((*sd).refc) as *const std::sync::atomic::AtomicU32);
    refc.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
    sd
}
unsafe extern "C" fn to_untyped(sd: *const ddsi_serdata) -> *mut ddsi_serdata {
    let mut b = Blob::new((*sd).type_, ddsi_serdata_kind_SDK_KEY, Bytes::new());
    b.base.type_ = std::ptr::null();
    b.base.hash = (*sd).hash;
    Blob::into_raw(b)
}
unsafe extern "C" fn from_keyhash(
    _: *const ddsi_sertype,
    _: *const ddsi_keyhash,
) -> *mut ddsi_serdata {
    std::ptr::null_mut()
}
unsafe extern "C" fn get_keyhash(_: *const ddsi_serdata, k: *mut ddsi_keyhash, _: bool) {
    (*k).value = [0; 16];
}
unsafe extern "C" fn print(
    _: *const ddsi_sertype,
    _: *const ddsi_serdata,
    buf: *mut c_char,
    size: usize,
) -> usize {
    if size > 0 {
        *buf = 0;
    }
    0
}
unsafe extern "C" fn st_free(st: *mut ddsi_sertype) {
    ddsi_sertype_fini(st);
    drop(Box::from_raw(st));
}
unsafe extern "C" fn st_equal(_: *const ddsi_sertype, _: *const ddsi_sertype) -> bool {
    true
}
unsafe extern "C" fn st_hash(_: *const ddsi_sertype) -> u32 {
    0
}

struct Ops {
    sertype: ddsi_sertype_ops,
    serdata: ddsi_serdata_ops,
}
unsafe impl Send for Ops {}
unsafe impl Sync for Ops {}

fn ops() -> &'static Ops {
    static OPS: OnceLock<Ops> = OnceLock::new();
    OPS.get_or_init(|| unsafe {
        let mut t: ddsi_sertype_ops = std::mem::zeroed();
        t.version = Some(ddsi_sertype_v0);
        t.free = Some(st_free);
        t.equal = Some(st_equal);
        t.hash = Some(st_hash);
        let mut d: ddsi_serdata_ops = std::mem::zeroed();
        d.eqkey = Some(eqkey);
        d.get_size = Some(get_size);
        d.from_ser = Some(from_ser);
        d.from_ser_iov = Some(from_ser_iov);
        d.from_keyhash = Some(from_keyhash);
        d.to_ser = Some(to_ser);
        d.to_ser_ref = Some(to_ser_ref);
        d.to_ser_unref = Some(to_ser_unref);
        d.to_untyped = Some(to_untyped);
        d.free = Some(free_sd);
        d.print = Some(print);
        d.get_keyhash = Some(get_keyhash);
        Ops { sertype: t, serdata: d }
    })
}

/// A topic with any name and type name, opaque bytes and no key.
pub fn create_topic(participant: dds_entity_t, name: &str, type_name: &str) -> dds_entity_t {
    let (Ok(name), Ok(type_name)) = (CString::new(name), CString::new(type_name)) else {
        return -1;
    };
    unsafe {
        let mut st = Box::into_raw(Box::new(std::mem::zeroed::<ddsi_sertype>()));
        let flags = DDSI_SERTYPE_FLAG_TOPICKIND_NO_KEY;
        let o = ops();
        std::hint::black_box((
            hooks::hooks(),
            crate::audience::hooks(),
            crate::automatic::hook(),
            crate::local::hook(),
            crate::burst::hook(),
            crate::received::hook(),
        ));
        ddsi_sertype_init_flags(st, type_name.as_ptr(), &o.sertype, &o.serdata, flags);
        dds_create_topic_sertype(
            participant,
            name.as_ptr(),
            &mut st,
            std::ptr::null(),
            std::ptr::null(),
            std::ptr::null(),
        )
    }
}
