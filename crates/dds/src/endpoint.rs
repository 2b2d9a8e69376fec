// SPDX-License-Identifier: Apache-2.0
//! Readers and writers of raw samples.

use crate::audience::{self, Audience, Limits};
use crate::automatic::AutomaticLivelinessGuard;
use crate::error::{Result, check};
use crate::hooks;
use crate::identity::{Guid, SampleId, guid_of};
use crate::participant::{Callbacks, Listener, Participant};
use crate::qos::Qos;
use crate::raw::{self, Blob};
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
    /// `None` if the writer no longer exists.
    pub writer: Option<Guid>,
    /// Sequence number of the writer.
    pub seq: i64,
    /// The request that the sample answers.
    pub related_sample: Option<SampleId>,
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

/// Reads a topic until dropped.
pub struct RawReader {
    entity: dds_entity_t,
    /// The GUID of the reader.
    pub guid: Guid,
    topic: dds_entity_t,
    _listener: Listener,
    _participant: Arc<Participant>,
}

impl RawReader {
    /// Creates a reader. `on_incompatible` gets the policy and the number of refused endpoints.
    pub fn new(
        participant: &Arc<Participant>,
        specification: Specification<'_>,
        on_sample: impl Fn(Bytes, &SampleInfo) + Send + Sync + 'static,
        on_incompatible: impl Fn(u32, i32) + Send + Sync + 'static,
    ) -> Result<RawReader> {
        Self::with_liveliness(participant, specification, on_sample, on_incompatible, |_, _| ())
    }
    /// Like [`Self::new`]; `on_liveliness` gets the numbers of matched writers that are alive and
    /// not alive.
    pub fn with_liveliness(
        participant: &Arc<Participant>,
        Specification { topic, type_name, qos }: Specification<'_>,
        on_sample: impl Fn(Bytes, &SampleInfo) + Send + Sync + 'static,
        on_incompatible: impl Fn(u32, i32) + Send + Sync + 'static,
        on_liveliness: impl Fn(u32, u32) + Send + Sync + 'static,
    ) -> Result<RawReader> {
        let writers = Mutex::default();
        let listener = Listener::new(Callbacks {
            data: Box::new(move |reader| unsafe { take_raw(reader, &writers, &on_sample) }),
            incompatible: Box::new(on_incompatible),
            liveliness: Box::new(on_liveliness),
        });
        let topic = check("topic", raw::create_topic(participant.entity, topic, type_name))?;
        let make = |qos: &Qos| unsafe {
            dds_create_reader(participant.entity, topic, qos.native().0, listener.native)
        };
        let entity = check(
            "reader",
            match qos.receive_since_match {
                true => hooks::create_with_earlier_samples(|| {
                    make(&Qos { durability: 1, ..qos.clone() })
                }),
                false => make(qos),
            },
        )?;
        Ok(RawReader {
            entity,
            guid: guid_of(entity),
            topic,
            _listener: listener,
            _participant: participant.clone(),
        })
    }
    /// Matched writers, up to [`MAX_MATCHED`].
    pub fn matched_writers(&self) -> Vec<Guid> {
        unsafe {
            let handles =
                matched_handles(|to, count| dds_get_matched_publications(self.entity, to, count));
            endpoint_guids(handles, |it| dds_get_matched_publication_data(self.entity, it))
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

/// Maximum number of matched endpoints that a reader or writer reports.
pub const MAX_MATCHED: usize = 1024;

/// Returns the instance handles that a function of Cyclone DDS writes to an array.
fn matched_handles(fill: impl FnOnce(*mut dds_instance_handle_t, usize) -> i32) -> Vec<u64> {
    let mut handles = vec![0; MAX_MATCHED];
    let count = fill(handles.as_mut_ptr(), MAX_MATCHED);
    handles.truncate(count.max(0) as usize);
    handles
}

/// Returns the GUIDs of the endpoints that still exist.
unsafe fn endpoint_guids(
    handles: Vec<u64>,
    look_up: impl Fn(u64) -> *mut dds_builtintopic_endpoint_t,
) -> Vec<Guid> {
    handles.into_iter().filter_map(|handle| take_guid(look_up(handle))).collect()
}

/// Returns the GUID in a lookup's result, which is null if the endpoint no longer exists; frees the
/// result.
unsafe fn take_guid(found: *mut dds_builtintopic_endpoint_t) -> Option<Guid> {
    let guid = found.as_ref()?.key.v;
    dds_builtintopic_free_endpoint(found);
    Some(guid)
}

/// Writer GUIDs by the publication handle in a sample's metadata.
type Writers = Mutex<HashMap<u64, Guid>>;
/// Maximum number of writers that a reader caches; a full cache is cleared.
const MAX_WRITERS: usize = 1024;

unsafe fn take_raw(
    reader: dds_entity_t,
    writers: &Writers,
    on_sample: &dyn Fn(Bytes, &SampleInfo),
) {
    const N: usize = 16;
    loop {
        let mut infos: [dds_sample_info_t; N] = std::mem::zeroed();
        let mut samples = [null_mut::<ddsi_serdata>(); N];
        let count =
            dds_takecdr(reader, samples.as_mut_ptr(), N as u32, infos.as_mut_ptr(), DDS_ANY_STATE);
        if count <= 0 {
            return;
        }
        for i in 0..count as usize {
            if infos[i].valid_data {
                let sample = raw::blob(samples[i]);
                let info = SampleInfo {
                    source_timestamp: infos[i].source_timestamp,
                    writer: writer_guid(reader, infos[i].publication_handle, writers),
                    seq: sample.seq,
                    related_sample: sample.related_sample,
                };
                on_sample(sample.bytes(), &info);
            }
            ddsi_serdata_unref(samples[i]);
        }
    }
}

unsafe fn writer_guid(reader: dds_entity_t, handle: u64, writers: &Writers) -> Option<Guid> {
    let mut writers = writers.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = writers.get(&handle) {
        return Some(*known);
    }
    let guid = take_guid(dds_get_matched_publication_data(reader, handle))?;
    if writers.len() >= MAX_WRITERS {
        writers.clear();
    }
    writers.insert(handle, guid);
    Some(guid)
}

/// Writes a topic until dropped.
pub struct RawWriter {
    entity: dds_entity_t,
    /// The GUID of the writer.
    pub guid: Guid,
    topic: dds_entity_t,
    sertype: *const ddsi_sertype,
    /// Samples written so far, equal to Cyclone DDS's count.
    written: Mutex<i64>,
    liveliness_guard: Option<AutomaticLivelinessGuard>,
    _listener: Listener,
    _participant: Arc<Participant>,
}
unsafe impl Send for RawWriter {}
unsafe impl Sync for RawWriter {}

impl RawWriter {
    /// Creates a writer. `on_incompatible` gets the policy and the number of refused endpoints.
    pub fn new(
        participant: &Arc<Participant>,
        specification: Specification<'_>,
        on_incompatible: impl Fn(u32, i32) + Send + Sync + 'static,
    ) -> Result<RawWriter> {
        Self::with_audience(
            participant,
            specification,
            Audience::AllBut(BTreeSet::new()),
            on_incompatible,
        )
    }
    /// Creates a writer that sends only to readers in `audience`.
    pub fn with_audience(
        participant: &Arc<Participant>,
        Specification { topic, type_name, qos }: Specification<'_>,
        audience: Audience,
        on_incompatible: impl Fn(u32, i32) + Send + Sync + 'static,
    ) -> Result<RawWriter> {
        let incompatible = Box::new(on_incompatible);
        let listener = Listener::new(Callbacks { incompatible, ..Callbacks::default() });
        let topic = check("topic", raw::create_topic(participant.entity, topic, type_name))?;
        unsafe {
            let create =
                || dds_create_writer(participant.entity, topic, qos.native().0, listener.native);
            let liveliness_guard = AutomaticLivelinessGuard::acquire(qos.liveliness);
            let limits = Limits { audience, excludes_volatile: qos.late_joiners_only };
            let entity = check("writer", audience::create_with_limits(limits, create))?;
            let mut sertype = null();
            check("sertype", dds_get_entity_sertype(entity, &mut sertype))?;
            Ok(RawWriter {
                entity,
                guid: guid_of(entity),
                topic,
                sertype,
                written: Mutex::default(),
                liveliness_guard,
                _listener: listener,
                _participant: participant.clone(),
            })
        }
    }
    /// Writes bytes with their encapsulation header; returns the sample's sequence number.
    pub fn write(&self, bytes: Bytes, related_sample: Option<SampleId>) -> Result<i64> {
        self.write_with_age(bytes, related_sample, Duration::ZERO)
    }
    /// Writes a sample that was published `age` ago, when its lifespan began.
    pub fn write_with_age(
        &self,
        bytes: Bytes,
        related_sample: Option<SampleId>,
        age: Duration,
    ) -> Result<i64> {
        let age = i64::try_from(age.as_nanos()).unwrap_or(i64::MAX);
        // Locked during the write, so that our count matches that of Cyclone DDS.
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        unsafe {
            let mut sample = Blob::new(self.sertype, ddsi_serdata_kind_SDK_DATA, bytes);
            sample.related_sample = related_sample;
            sample.writer.copy_from_slice(&self.guid[12..]);
            sample.set_timestamp(dds_time().saturating_sub(age));
            check("write", dds_forwardcdr(self.entity, Blob::into_raw(sample)))?;
        }
        // A refused sample uses no sequence number.
        *written += 1;
        Ok(*written)
    }
    /// Asserts the liveliness of a reliable writer whose liveliness is by topic. (Writing asserts
    /// it as well. Cyclone DDS sends a heartbeat, and aborts for a best-effort writer.)
    pub fn assert_liveliness(&self) -> Result<()> {
        check("liveliness", unsafe { dds_assert_liveliness(self.entity) }).map(drop)
    }
    /// The sequence number of the next sample, if no other thread writes.
    pub fn next_seq(&self) -> i64 {
        *self.written.lock().unwrap_or_else(PoisonError::into_inner) + 1
    }
    /// Matched readers, up to [`MAX_MATCHED`].
    pub fn matched_readers(&self) -> Vec<Guid> {
        unsafe {
            let handles =
                matched_handles(|to, count| dds_get_matched_subscriptions(self.entity, to, count));
            endpoint_guids(handles, |it| dds_get_matched_subscription_data(self.entity, it))
        }
    }
}
impl Drop for RawWriter {
    fn drop(&mut self) {
        // Dropped first, since deleting the writer reads the assertion interval.
        self.liveliness_guard = None;
        unsafe {
            dds_delete(self.entity);
            dds_delete(self.topic);
        }
        audience::remove_limits(&self.guid);
    }
}
