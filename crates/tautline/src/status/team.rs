// SPDX-License-Identifier: Apache-2.0
//! The state of a team of a relay.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A team of a relay. Its members are the peers `TEAM/MEMBER`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TeamReport {
    /// The name.
    pub name: String,
    /// Number of its members.
    pub members: u64,
    /// Number of members that are up.
    pub up: u64,
    /// The `max_rate` in bits per second.
    pub max_bps: Option<u64>,
    /// Packets of members that were forwarded and arrived.
    pub forwarded_packets: u64,
    /// IP bytes of the packets that carried the forwarded packets, repairs included.
    pub sent_bytes: u64,
    /// Bytes of the team's packets that the relay holds, queued or not yet acknowledged, with the
    /// overhead of each packet.
    pub queued_bytes: u64,
    /// The `queue_bytes`.
    pub max_queued_bytes: u64,
    /// Packets of members that were not forwarded, by reason: `team_full` (no room in the team's
    /// queue), `no_route` (for a node that is not a member, or is down), `expired`, ...
    pub dropped: BTreeMap<String, u64>,
}
