// SPDX-License-Identifier: Apache-2.0
//! Topics of tests about types.

use tautline_gateway::{Qos, Topic};

/// The line between the definitions of two types.
pub const BAR: &str =
    "================================================================================";

pub fn topic(type_name: &str, type_hash: &str, definition: &str) -> Topic {
    Topic {
        name: "/x".into(),
        type_name: type_name.into(),
        type_hash: type_hash.into(),
        definition: definition.into(),
        qos: Qos::default(),
    }
}
