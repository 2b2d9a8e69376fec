// SPDX-License-Identifier: Apache-2.0
//! Fields of accepted types that exist in only one of ROS 1 and ROS 2. Both versions of a type must be
//! installed here.

use std::collections::BTreeSet;
use tautline::config::{Config, Surroundings};
use tautline_gateway::observations::OBSERVATIONS;
use tautline_gateway::types::Dialect;
use tautline_gateway::types::installed::InstalledTypes;
use tautline_gateway::types::own::one_sided_fields;

/// Returns the fields that only one ROS has, without duplicates. The examined types are those that the file
/// accepts by name, or as observations of a peer with a prefix.
pub fn one_sided(config: &Config, surroundings: &Surroundings) -> BTreeSet<String> {
    let Some((dialect, own)) = config.ros() else { return BTreeSet::new() };
    let path = |path: &Option<String>| path.clone().unwrap_or_default();
    let (ros1, ros2) = match dialect {
        Dialect::Ros1 => {
            (own, InstalledTypes::from_prefix_path(&path(&surroundings.ament_prefix_path)))
        }
        Dialect::Ros2 => {
            let packages = path(&surroundings.ros_package_path);
            (
                InstalledTypes::from_ros1_paths(&path(&surroundings.cmake_prefix_path), &packages),
                own,
            )
        }
    };
    let names = config.peers.iter().flat_map(|peer| {
        let accepted = peer.names.accept.iter().flat_map(|it| it.types.iter().map(String::as_str));
        let with_prefix = OBSERVATIONS.iter().filter(|_| !peer.names.prefix.is_empty());
        accepted.chain(with_prefix.map(|(name, ..)| *name))
    });
    let names: BTreeSet<&str> = names.collect();
    names.into_iter().flat_map(|name| one_sided_fields(name, &ros1, &ros2)).collect()
}
