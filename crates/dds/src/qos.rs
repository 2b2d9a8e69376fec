// SPDX-License-Identifier: Apache-2.0
//! Quality of service of our endpoints and of remote ones.

use cyclors::*;
use std::ffi::c_void;
use std::ptr::null_mut;

/// No deadline, lifespan or lease.
pub const INFINITE: i64 = i64::MAX;

/// Quality of service of a reader or writer.
#[derive(Clone, Debug, PartialEq)]
pub struct Qos {
    /// `false`: best effort.
    pub reliable: bool,
    /// 0 volatile, 1 transient local, 2 transient, 3 persistent.
    pub durability: u32,
    /// `false`: keep last.
    pub keep_all: bool,
    /// The depth of keep last, which remote endpoints do not announce.
    pub depth: i32,
    /// Longest time between two samples, in nanoseconds.
    pub deadline: i64,
    /// Age at which a sample expires, in nanoseconds.
    pub lifespan: i64,
    /// How a writer asserts that it is alive.
    pub liveliness: Liveliness,
    /// `key=value;` pairs in ROS 2.
    pub user_data: Vec<u8>,
    /// 0 XCDR1, 2 XCDR2; a writer offers the first.
    pub representation: Vec<i16>,
    /// For a volatile reader: receive all samples since the writer matched the reader, not only
    /// since the reader matched the writer. Local: not announced to other endpoints.
    pub receive_since_match: bool,
    /// For a transient local writer: match only readers that ask for kept messages. A volatile
    /// reader of Fast DDS would get them as well. Local: not announced to other endpoints.
    pub late_joiners_only: bool,
    /// Match no endpoint of the same participant.
    pub ignore_own: bool,
    /// For a reliable writer, in nanoseconds: how long a write waits for space. With 0 it fails at
    /// once, but requests acknowledgements of subscribers. Announced, without effect on matching.
    pub max_blocking_time: i64,
}

/// How a writer asserts that it is alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Liveliness {
    /// 0 automatic, 1 by participant, 2 by topic.
    pub kind: u32,
    /// Longest time between two assertions, in nanoseconds.
    pub lease: i64,
}

impl Default for Liveliness {
    fn default() -> Self {
        Self { kind: 0, lease: INFINITE }
    }
}

impl Default for Qos {
    fn default() -> Self {
        Qos {
            reliable: true,
            durability: 0,
            keep_all: false,
            depth: 10,
            deadline: INFINITE,
            lifespan: INFINITE,
            liveliness: Liveliness::default(),
            user_data: vec![],
            representation: vec![0],
            receive_since_match: false,
            late_joiners_only: false,
            ignore_own: false,
            max_blocking_time: 100_000_000,
        }
    }
}

/// Freed on drop.
pub struct Native(pub *mut dds_qos_t);
impl Drop for Native {
    fn drop(&mut self) {
        unsafe { dds_delete_qos(self.0) }
    }
}

impl Qos {
    /// Converts to Cyclone DDS's form.
    pub fn native(&self) -> Native {
        unsafe {
            let native = dds_create_qos();
            dds_qset_reliability(native, self.reliable as u32, self.max_blocking_time);
            dds_qset_durability(native, self.durability);
            dds_qset_history(native, self.keep_all as u32, self.depth);
            if self.durability >= 1 {
                dds_qset_durability_service(
                    native,
                    0,
                    self.keep_all as u32,
                    self.depth.max(1),
                    -1,
                    -1,
                    -1,
                );
            }
            dds_qset_deadline(native, self.deadline);
            dds_qset_lifespan(native, self.lifespan);
            dds_qset_liveliness(native, self.liveliness.kind, self.liveliness.lease);
            dds_qset_userdata(
                native,
                self.user_data.as_ptr() as *const c_void,
                self.user_data.len(),
            );
            dds_qset_data_representation(
                native,
                self.representation.len() as u32,
                self.representation.as_ptr(),
            );
            if self.ignore_own {
                dds_qset_ignorelocal(native, dds_ignorelocal_kind_DDS_IGNORELOCAL_PARTICIPANT);
            }
            Native(native)
        }
    }
    /// Converts from Cyclone DDS's form. `native` may contain any bytes of a remote participant: nothing
    /// here may panic.
    ///
    /// # Safety
    /// `native` must be live.
    pub unsafe fn from_native(native: *const dds_qos_t) -> Qos {
        let mut qos = Qos { durability: 0, ..Default::default() };
        let (mut reliability, mut max_blocking_time) = (0u32, 0i64);
        if dds_qget_reliability(native, &mut reliability, &mut max_blocking_time) {
            qos.reliable = reliability == 1;
        }
        dds_qget_durability(native, &mut qos.durability);
        let mut history = 0u32;
        if dds_qget_history(native, &mut history, &mut qos.depth) {
            qos.keep_all = history == 1;
        }
        dds_qget_deadline(native, &mut qos.deadline);
        dds_qget_lifespan(native, &mut qos.lifespan);
        dds_qget_liveliness(native, &mut qos.liveliness.kind, &mut qos.liveliness.lease);
        qos.user_data = user_data(native);
        let (mut count, mut found) = (0u32, null_mut());
        qos.representation.clear();
        if dds_qget_data_representation(native, &mut count, &mut found) {
            qos.representation = std::slice::from_raw_parts(found, count as usize).to_vec();
            dds_free(found as *mut c_void);
        }
        qos
    }
}

/// # Safety
/// `native` must be live.
unsafe fn user_data(native: *const dds_qos_t) -> Vec<u8> {
    let (mut found, mut size) = (null_mut(), 0usize);
    if !dds_qget_userdata(native, &mut found, &mut size) || found.is_null() {
        return vec![];
    }
    let bytes = std::slice::from_raw_parts(found as *const u8, size).to_vec();
    dds_free(found);
    bytes
}
