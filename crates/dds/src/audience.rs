// SPDX-License-Identifier: Apache-2.0
//! Writers that exclude some readers: readers that already have their samples or get them from
//! another writer, and volatile readers. A transient local DDS writer sends its kept samples to
//! every new reader. After a restart all readers are new to it, and a volatile reader of Fast DDS
//! accepts kept samples.
//!
//! Cyclone DDS 11.0.1 matches writers and readers in `ddsi_endpoint_match.c`. The hooks record
//! which endpoints are being matched, and refuse the pair. The reader still discovers the writer
//! and waits for its samples, but gets none.

use crate::identity::Guid;
use cyclors::{dds_durability_kind_DDS_DURABILITY_VOLATILE, dds_qget_durability, dds_qos_t};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashMap};
use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// Offset of the GUID in `struct ddsi_entity_common`, after the kind.
const GUID_AT: usize = 4;

unsafe extern "C" {
    fn __real_ddsi_match_writer_with_proxy_readers(writer: *mut c_void, now: i64);
    fn __real_ddsi_match_proxy_reader_with_writers(reader: *mut c_void, now: i64);
    fn __real_ddsi_entidx_enum_next_max(it: *mut c_void, max: *const c_void) -> *mut c_void;
    fn __real_ddsi_qos_match_p(
        domain: *mut c_void,
        reader: *const c_void,
        writer: *const c_void,
        reason: *mut u32,
        reader_types: *const c_void,
        writer_types: *const c_void,
        reader_lookup: *mut bool,
        writer_lookup: *mut bool,
    ) -> bool;
}

/// The readers that a writer may match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Audience {
    /// All readers except these.
    AllBut(BTreeSet<Guid>),
    /// Only these readers.
    Only(BTreeSet<Guid>),
}

impl Audience {
    /// Whether a reader is in the audience.
    pub fn includes(&self, reader: &Guid) -> bool {
        match self {
            Self::AllBut(readers) => !readers.contains(reader),
            Self::Only(readers) => readers.contains(reader),
        }
    }
}

/// Which readers a writer must not match.
#[derive(Debug)]
pub struct Limits {
    pub audience: Audience,
    /// Volatile readers are excluded.
    pub excludes_volatile: bool,
}

impl Limits {
    fn is_unlimited(&self) -> bool {
        !self.excludes_volatile && self.audience == Audience::AllBut(BTreeSet::new())
    }
}

/// The limits of each writer, until the writer is dropped.
fn all_limits() -> MutexGuard<'static, HashMap<Guid, Limits>> {
    static LIMITS: OnceLock<Mutex<HashMap<Guid, Limits>>> = OnceLock::new();
    LIMITS.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner)
}

/// The number of writers with limits; while it is zero, the hooks do nothing.
static LIMITED_WRITERS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// The limits of the writer that this thread creates.
    static NEW_WRITER_LIMITS: RefCell<Option<Limits>> = const { RefCell::new(None) };
    /// The endpoint that this thread matches with all others.
    static MATCHING: Cell<Option<Guid>> = const { Cell::new(None) };
    /// The candidate for a match with that endpoint.
    static CANDIDATE: Cell<Option<Guid>> = const { Cell::new(None) };
}

/// Creates a writer with these limits.
pub fn create_with_limits<T>(limits: Limits, create: impl FnOnce() -> T) -> T {
    NEW_WRITER_LIMITS.replace(Some(limits));
    let created = create();
    NEW_WRITER_LIMITS.take();
    created
}

/// Removes the limits of a writer that no longer exists.
pub fn remove_limits(writer: &Guid) {
    let mut all = all_limits();
    all.remove(writer);
    LIMITED_WRITERS.store(all.len(), Ordering::SeqCst);
}

/// # Safety
/// `entity` must point to a live entity of Cyclone DDS.
unsafe fn guid_of_entity(entity: *const c_void) -> Guid {
    // Cyclone DDS keeps the parts of a GUID in native byte order.
    let words = entity.cast::<u8>().add(GUID_AT).cast::<[u32; 4]>().read_unaligned();
    let mut guid = Guid::default();
    for (bytes, word) in guid.chunks_exact_mut(4).zip(words) {
        bytes.copy_from_slice(&word.to_be_bytes());
    }
    guid
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __wrap_ddsi_match_writer_with_proxy_readers(writer: *mut c_void, now: i64) {
    let guid = guid_of_entity(writer);
    if let Some(limits) = NEW_WRITER_LIMITS.take().filter(|it| !it.is_unlimited()) {
        let mut all = all_limits();
        all.insert(guid, limits);
        LIMITED_WRITERS.store(all.len(), Ordering::SeqCst);
    }
    MATCHING.set(Some(guid));
    __real_ddsi_match_writer_with_proxy_readers(writer, now);
    MATCHING.set(None);
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __wrap_ddsi_match_proxy_reader_with_writers(reader: *mut c_void, now: i64) {
    MATCHING.set(Some(guid_of_entity(reader)));
    __real_ddsi_match_proxy_reader_with_writers(reader, now);
    MATCHING.set(None);
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __wrap_ddsi_entidx_enum_next_max(
    it: *mut c_void,
    max: *const c_void,
) -> *mut c_void {
    let entity = __real_ddsi_entidx_enum_next_max(it, max);
    CANDIDATE.set((!entity.is_null()).then(|| guid_of_entity(entity)));
    entity
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __wrap_ddsi_qos_match_p(
    domain: *mut c_void,
    reader: *const c_void,
    writer: *const c_void,
    reason: *mut u32,
    reader_types: *const c_void,
    writer_types: *const c_void,
    reader_lookup: *mut bool,
    writer_lookup: *mut bool,
) -> bool {
    let matches = __real_ddsi_qos_match_p(
        domain,
        reader,
        writer,
        reason,
        reader_types,
        writer_types,
        reader_lookup,
        writer_lookup,
    );
    if matches
        && LIMITED_WRITERS.load(Ordering::SeqCst) > 0
        && is_excluded_pair(is_volatile(reader))
    {
        // No policy is incompatible, so nothing is reported.
        if !reason.is_null() {
            *reason = 0;
        }
        return false;
    }
    matches
}

/// Whether a reader's policies are volatile.
unsafe fn is_volatile(policies: *const c_void) -> bool {
    let mut durability = 0;
    dds_qget_durability(policies.cast::<dds_qos_t>(), &mut durability);
    durability == dds_durability_kind_DDS_DURABILITY_VOLATILE
}

/// Whether the two endpoints that this thread matches are a writer and a reader beyond its limits.
fn is_excluded_pair(is_volatile: bool) -> bool {
    let (Some(one), Some(other)) = (MATCHING.get(), CANDIDATE.get()) else { return false };
    let all = all_limits();
    [(one, other), (other, one)].iter().any(|(writer, reader)| {
        all.get(writer).is_some_and(|it| {
            (it.excludes_volatile && is_volatile) || !it.audience.includes(reader)
        })
    })
}

/// References the functions of this file for the linker.
pub fn hooks() -> [*const (); 4] {
    [
        __wrap_ddsi_match_writer_with_proxy_readers as *const (),
        __wrap_ddsi_match_proxy_reader_with_writers as *const (),
        __wrap_ddsi_entidx_enum_next_max as *const (),
        __wrap_ddsi_qos_match_p as *const (),
    ]
}
