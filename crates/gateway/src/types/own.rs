// SPDX-License-Identifier: Apache-2.0
//! Hashes of the types installed on this robot, and their fields that only one ROS has.

use super::definition::{Dialect, Schema, short_name};
use super::hash::{service_md5, type_hash};
use super::installed::InstalledTypes;
use super::service_parts::request_and_response;
use super::transcode::Transcoder;
use super::translate::renamed;

/// The hash of a message type, if it is installed and valid.
pub fn message_hash(
    type_name: &str,
    dialect: Dialect,
    installed: &InstalledTypes,
) -> Option<String> {
    let text = installed.definition(type_name, dialect).ok()?;
    Schema::parse(type_name, &text, dialect).ok().map(|schema| type_hash(&schema))
}

/// The md5 of a service type of ROS 1, if it is installed and valid. ROS 2 matches services by
/// name.
pub fn service_hash(
    type_name: &str,
    dialect: Dialect,
    installed: &InstalledTypes,
) -> Option<String> {
    if dialect == Dialect::Ros2 {
        return None;
    }
    let name = short_name(type_name);
    let text = installed.service(&name, dialect).ok()?;
    let [request, response] = request_and_response(&name, &text, dialect).ok()?;
    Some(service_md5(&request, &response))
}

/// Fields of a message or service type that only one ROS has, each as
/// [`Transcoder::one_sided`] states it. Empty unless the type is installed here for both.
pub fn one_sided_fields(
    type_name: &str,
    ros1: &InstalledTypes,
    ros2: &InstalledTypes,
) -> Vec<String> {
    let name = short_name(type_name);
    let there = renamed(&name, Dialect::Ros2);
    let message = |name: &str, dialect, installed: &InstalledTypes| {
        let text = installed.definition(name, dialect).ok()?;
        Schema::parse(name, &text, dialect).ok()
    };
    let service = |dialect, installed: &InstalledTypes| {
        request_and_response(&name, &installed.service(&name, dialect).ok()?, dialect).ok()
    };
    let fields = |ros1: &Schema, ros2: &Schema| {
        Transcoder::new(ros1, ros2).map(|it| it.one_sided().to_vec()).unwrap_or_default()
    };
    let both = message(&name, Dialect::Ros1, ros1).zip(message(&there, Dialect::Ros2, ros2));
    if let Some((ros1, ros2)) = both {
        return fields(&ros1, &ros2);
    }
    let both = service(Dialect::Ros1, ros1).zip(service(Dialect::Ros2, ros2));
    let pairs = both.into_iter().flat_map(|(ros1, ros2)| ros1.into_iter().zip(ros2));
    pairs.flat_map(|(ros1, ros2)| fields(&ros1, &ros2)).collect()
}
