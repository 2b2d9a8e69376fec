// SPDX-License-Identifier: Apache-2.0
//! Readers and writers of raw samples.

use crate::audience::{self, Audience, Limits};
use crate::automatic::Automatic;
use crate::hooks;
use crate::participant::{Callbacks, Listener, Participant, guid_of, listener};
use crate::raw::{self, Blob, SampleId};
use crate::{Guid, Qos, Result, check};
use bytes::Bytes;
use cyclors::*;
use std::collections::{BTreeSet, HashMap};
use std::ptr::{null, null_mut};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Metadata of a sample.
#[derive(Debug)]
pub struct SampleInfo {
    /// Nanoseconds since 1970, by the writer's clock.
    pub source_timestamp: i64,
    /// `None` if the writer has left.
    pub writer: Option<Guid>,
    /// Sequence number of the writer.
    pub seq: i64,
    /// The request that the sample answers.
    pub related: Option<SampleId>,
}

/// A topic to read or write.
#[derive(Debug, Clone, Copy)]
pub struct Specification<'a> {
    /// The DDS name (`rt/scan`).
    pub topic: &'a str,
    /// The DDS type.
    pub type_name: &'a str,
    /// The policies to request or offer.
    pub qos: &'a Qos,
}

/// Reads a topic until it is dropped.
pub struct RawReader {
    entity: dds_entity_t,
    /// The GUID of the reader.
    pub guid: Guid,
    topic: dds_entity_t,
    _l: Listener,
    _p: Arc<Participant>,
}

impl RawReader {
    /// Creates it. `on_incompatible` gets the policy and the number of refused endpoints.
    pub fn new(
        p: &Arc<Participant>,
        specification: Specification<'_>,
        on_sample: impl Fn(Bytes, &SampleInfo) + Send + Sync + 'static,
        on_incompatible: impl Fn(u32, i32) + Send + Sync + 'static,
    ) -> Result<RawReader> {
        Self::watching(p, specification, on_sample, on_incompatible, |_, _| ())
    }
    /// The same; `on_liveliness` gets how many of its writers are alive, and how many are not.
    pub fn watching(
        p: &Arc<Participant>,
        Specification { topic, type_name, qos }: Specification<'_>,
        on_sample: impl Fn(Bytes, &SampleInfo) + Send + Sync + 'static,
        on_incompatible: impl Fn(u32, i32) + Send + Sync + 'static,
        on_liveliness: impl Fn(u32, u32) + Send + Sync + 'static,
    ) -> Result<RawReader> {
        let writers = Mutex::default();
        let l = listener(Callbacks {
            data: Box::new(move |rd| unsafe { take_raw(rd, &writers, &on_sample) }),
            incompatible: Box::new(on_incompatible),
            liveliness: Box::new(on_liveliness),
        });
        let t = check("topic", raw::create_topic(p.entity, topic, type_name))?;
        let make = |qos: &Qos| unsafe { dds_create_reader(p.entity, t, qos.native().0, l.native) };
        let entity = check(
            "reader",
            match qos.miss_nothing {
                true => hooks::missing_nothing(|| make(&Qos { durability: 1, ..qos.clone() })),
                false => make(qos),
            },
        )?;
        Ok(RawReader { entity, guid: guid_of(entity), topic: t, _l: l, _p: p.clone() })
    }
    /// Matched writers, up to [`MAX_MATCHED`].
    pub fn matched(&self) -> Vec<Guid> {
        unsafe {
            let handles = matched(|to, count| dds_get_matched_publications(self.entity, to, count));
            endpoints(handles, |it| dds_get_matched_publication_data(self.entity, it))
        }
    }
}
impl Drop for RawReader {
    fn drop(&mut self) {
        unsafe {
            dds_delete(self.entity);
            dds_delete(self.topic);
        }
    }
}

/// Matched endpoints that a reader or writer reports.
pub const MAX_MATCHED: usize = 1024;

/// Handles from a function that fills an array.
fn matched(list: impl FnOnce(*mut dds_instance_handle_t, usize) -> i32) -> Vec<u64> {
    let mut handles = vec![0; MAX_MATCHED];
    let count = list(handles.as_mut_ptr(), MAX_MATCHED);
    handles.truncate(count.max(0) as usize);
    handles
}

/// GUIDs of the endpoints that still exist.
unsafe fn endpoints(
    handles: Vec<u64>,
    look_up: impl Fn(u64) -> *mut dds_builtintopic_endpoint_t,
) -> Vec<Guid> {
    handles.into_iter().filter_map(|handle| key(look_up(handle))).collect()
}

/// The GUID in a lookup's result, which is null if the endpoint has left; frees the result.
unsafe fn key(found: *mut dds_builtintopic_endpoint_t) -> Option<Guid> {
    let guid = found.as_ref()?.key.v;
    dds_builtintopic_free_endpoint(found);
    Some(guid)
}

/// Writers by the handles in samples.
type Writers = Mutex<HashMap<u64, Guid>>;
/// Writers cached by a reader; beyond them the cache is cleared.
const MAX_WRITERS: usize = 1024;

unsafe fn take_raw(reader: dds_entity_t, writers: &Writers, f: &dyn Fn(Bytes, &SampleInfo)) {
    const N: usize = 16;
    loop {
        let mut si: [dds_sample_info_t; N] = std::mem::zeroed();
        let mut sd = [null_mut::<ddsi_serdata>(); N];
        let n = dds_takecdr(reader, sd.as_mut_ptr(), N as u32, si.as_mut_ptr(), DDS_ANY_STATE);
        if n <= 0 {
            return;
        }
        for i in 0..n as usize {
            if si[i].valid_data {
                let b = raw::blob(sd[i]);
                let info = SampleInfo {
                    source_timestamp: si[i].source_timestamp,
                    writer: writer(reader, si[i].publication_handle, writers),
                    seq: b.seq,
                    related: b.related,
                };
                f(b.bytes(), &info);
            }
            ddsi_serdata_unref(sd[i]);
        }
    }
}

unsafe fn writer(reader: dds_entity_t, handle: u64, writers: &Writers) -> Option<Guid> {
    let mut writers = writers.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = writers.get(&handle) {
        return Some(*known);
    }
    let guid = key(dds_get_matched_publication_data(reader, handle))?;
    if writers.len() >= MAX_WRITERS {
        writers.clear();
    }
    writers.insert(handle, guid);
    Some(guid)
}

/// Writes a topic until it is dropped.
pub struct RawWriter {
    entity: dds_entity_t,
    /// The GUID of the writer.
    pub guid: Guid,
    topic: dds_entity_t,
    sertype: *const ddsi_sertype,
    /// Samples written so far, equal to Cyclone DDS's count.
    written: Mutex<i64>,
    automatic: Option<Automatic>,
    _l: Listener,
    _p: Arc<Participant>,
}
unsafe impl Send for RawWriter {}
unsafe impl Sync for RawWriter {}

impl RawWriter {
    /// Creates it. `on_incompatible` gets the policy and the number of refused endpoints.
    pub fn new(
        p: &Arc<Participant>,
        specification: Specification<'_>,
        on_incompatible: impl Fn(u32, i32) + Send + Sync + 'static,
    ) -> Result<RawWriter> {
        Self::with_audience(p, specification, Audience::AllBut(BTreeSet::new()), on_incompatible)
    }
    /// Creates one that sends nothing to other readers than those in `audience`.
    pub fn with_audience(
        p: &Arc<Participant>,
        Specification { topic, type_name, qos }: Specification<'_>,
        audience: Audience,
        on_incompatible: impl Fn(u32, i32) + Send + Sync + 'static,
    ) -> Result<RawWriter> {
        let incompatible = Box::new(on_incompatible);
        let l = listener(Callbacks { incompatible, ..Callbacks::default() });
        let t = check("topic", raw::create_topic(p.entity, topic, type_name))?;
        unsafe {
            let create = || dds_create_writer(p.entity, t, qos.native().0, l.native);
            let automatic = Automatic::count(qos.liveliness);
            let limits = Limits { audience, no_volatile: qos.late_joiners_only };
            let entity = check("writer", audience::within(limits, create))?;
            let mut st = null();
            check("sertype", dds_get_entity_sertype(entity, &mut st))?;
            Ok(RawWriter {
                entity,
                guid: guid_of(entity),
                topic: t,
                sertype: st,
                written: Mutex::default(),
                automatic,
                _l: l,
                _p: p.clone(),
            })
        }
    }
    /// Writes bytes with their encapsulation header; returns the sample's number.
    pub fn write(&self, bytes: Bytes, related: Option<SampleId>) -> Result<i64> {
        self.write_aged(bytes, related, Duration::ZERO)
    }
    /// Writes a sample that was published `age` ago: its lifespan counts from then.
    pub fn write_aged(
        &self,
        bytes: Bytes,
        related: Option<SampleId>,
        age: Duration,
    ) -> Result<i64> {
        let age = i64::try_from(age.as_nanos()).unwrap_or(i64::MAX);
        // Locked during the write, so that both counts have the same order.
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        unsafe {
            let mut b = Blob::new(self.sertype, ddsi_serdata_kind_SDK_DATA, bytes);
            b.related = related;
            b.writer.copy_from_slice(&self.guid[12..]);
            b.set_timestamp(dds_time().saturating_sub(age));
            check("write", dds_forwardcdr(self.entity, Blob::into_raw(b)))?;
        }
        // A refused sample has no number.
        *written += 1;
        Ok(*written)
    }
    /// Asserts the liveliness of a reliable writer that does so by topic. (Writing does so as well.
    /// Cyclone DDS asserts by a heartbeat, and aborts for a writer of best effort.)
    pub fn assert_liveliness(&self) -> Result<()> {
        check("liveliness", unsafe { dds_assert_liveliness(self.entity) }).map(drop)
    }
    /// The number of the next sample, if no other thread writes.
    pub fn next(&self) -> i64 {
        *self.written.lock().unwrap_or_else(PoisonError::into_inner) + 1
    }
    /// Matched readers, up to [`MAX_MATCHED`].
    pub fn matched(&self) -> Vec<Guid> {
        unsafe {
            let handles =
                matched(|to, count| dds_get_matched_subscriptions(self.entity, to, count));
            endpoints(handles, |it| dds_get_matched_subscription_data(self.entity, it))
        }
    }
}
impl Drop for RawWriter {
    fn drop(&mut self) {
        // Its deletion asks for the interval of assertions.
        self.automatic = None;
        unsafe {
            dds_delete(self.entity);
            dds_delete(self.topic);
        }
        audience::forget(&self.guid);
    }
}
