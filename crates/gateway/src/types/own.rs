// SPDX-License-Identifier: Apache-2.0
//! Hashes of the types installed on this robot.

use super::definition::{Dialect, Schema, short_name};
use super::hash::{service_md5, type_hash};
use super::installed::Installed;
use super::translate::parts;

/// The hash of a message type, if it is installed and valid.
pub fn message_hash(type_name: &str, dialect: Dialect, installed: &Installed) -> Option<String> {
    let text = installed.definition(type_name, dialect).ok()?;
    Schema::parse(type_name, &text, dialect).ok().map(|schema| type_hash(&schema))
}

/// The md5 of a service type of ROS 1, if it is installed and valid. ROS 2 matches services by
/// name.
pub fn service_hash(type_name: &str, dialect: Dialect, installed: &Installed) -> Option<String> {
    if dialect == Dialect::Ros2 {
        return None;
    }
    let name = short_name(type_name);
    let text = installed.service(&name, dialect).ok()?;
    let [request, response] = parts(&name, &text, dialect).ok()?;
    Some(service_md5(&request, &response))
}
