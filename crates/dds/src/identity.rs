// SPDX-License-Identifier: Apache-2.0
//! Identities of entities and samples.

use cyclors::{dds_entity_t, dds_get_guid, dds_guid_t};

/// The identifier of a participant, reader or writer in its domain.
pub type Guid = [u8; 16];

/// Identity of a sample: writer GUID and sequence number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SampleId {
    /// GUID of the writer.
    pub writer: [u8; 16],
    /// Sequence number of the writer, from 1.
    pub seq: i64,
}

/// Returns the GUID of one of our entities.
pub fn guid_of(entity: dds_entity_t) -> Guid {
    let mut guid = dds_guid_t { v: [0; 16] };
    unsafe { dds_get_guid(entity, &mut guid) };
    guid.v
}
