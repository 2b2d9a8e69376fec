// SPDX-License-Identifier: Apache-2.0
//! Raw ROS 2 messages of any type over Cyclone DDS: a participant, its discovery, and readers and
//! writers of opaque CDR.
//!
//! Callbacks run on Cyclone DDS's threads. They must not block, and must not write reliably: a full
//! cache would stop the thread that reads acknowledgements.
#![allow(unsafe_code, unsafe_op_in_unsafe_fn)]

mod audience;
mod automatic;
mod burst;
mod endpoint;
mod error;
mod hooks;
mod identity;
mod local;
mod log;
mod participant;
mod qos;
mod raw;
mod received;

pub use audience::Audience;
pub use endpoint::{MAX_MATCHED, RawReader, RawWriter, SampleInfo, Specification};
pub use error::DdsError;
pub use identity::{Guid, SampleId};
pub use local::restrict_to_this_machine;
pub use participant::{DiscoveryEvent, DiscoveryRange, Endpoint, MAX_DOMAIN, Participant};
pub use qos::{INFINITE, Liveliness, Qos};
