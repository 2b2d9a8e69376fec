// SPDX-License-Identifier: Apache-2.0
//! The services of a ROS 2 node that read and set its parameters.

use crate::config::Show;
use tautline_gateway::pattern::Pattern;

/// Services of each ROS 2 node that read its parameters (`rcl_interfaces/srv`).
const READ: [&str; 4] =
    ["describe_parameters", "get_parameters", "get_parameter_types", "list_parameters"];
/// Services of each ROS 2 node that set its parameters.
const SET: [&str; 2] = ["set_parameters", "set_parameters_atomically"];
/// Prefix of the types of these services.
pub(super) const TYPES: &str = "rcl_interfaces/srv/";

/// Whether `name` is a service for parameters of a ROS 2 node, and a peer with these rights may use
/// it.
pub(crate) fn may_use_parameters(show: Show, set: &[Pattern], name: &str) -> bool {
    let Some((node, service)) = name.rsplit_once('/') else { return false };
    let may_set = || set.iter().any(|pattern| pattern.matches(node));
    // A peer that sets a parameter also reads its present value.
    (READ.contains(&service) && (show.parameters || may_set()))
        || (SET.contains(&service) && may_set())
}
