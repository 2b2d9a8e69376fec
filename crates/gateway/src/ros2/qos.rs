// SPDX-License-Identifier: Apache-2.0
//! Quality of service: the policies of DDS, and those sent to the other robot.

use super::history::MAX_DEPTH;
use crate::{Class, Classes, Liveliness, Qos};
use std::time::Duration;
use tautline_dds::{INFINITE, Qos as Dds};

/// The fewest messages that a writer of a volatile topic keeps for slow subscribers: rmw's default.
const DEPTH: u32 = 10;
const VOLATILE: u32 = 0;
const TRANSIENT_LOCAL: u32 = 1;
const AUTOMATIC: u32 = 0;
const MANUAL_BY_TOPIC: u32 = 2;
/// Numbers of policies (DDS 1.4, 2.3.3).
const DURABILITY: u32 = 2;
const RELIABILITY: u32 = 11;

/// The offer of a writer. DDS does not announce its depth.
pub fn offered_qos(dds: &Dds) -> Qos {
    Qos {
        transient_local: dds.durability >= TRANSIENT_LOCAL,
        depth: 1,
        reliable: dds.reliable,
        deadline: finite(dds.deadline),
        lifespan: finite(dds.lifespan),
        liveliness: Liveliness {
            manual: dds.liveliness.kind == MANUAL_BY_TOPIC,
            lease: finite(dds.liveliness.lease),
            // Known only to the readers of the topic.
            lost: false,
        },
        classes: Classes::default(),
        keeping: 0,
    }
}

/// The policies of a reader for publishers of a class. The reader also matches stronger classes.
pub fn reader_policies(class: Class) -> Dds {
    Dds {
        reliable: class.reliable,
        durability: if class.transient_local { TRANSIENT_LOCAL } else { VOLATILE },
        // The gateway takes each message at once.
        keep_all: true,
        ignore_own: true,
        ..Dds::default()
    }
}

/// Whether a writer on behalf of publishers of a peer asserts its liveliness by topic. Other writers are
/// alive as long as they exist: Fast DDS takes a sign of life of any of them as one of all. A writer that
/// keeps messages must stay, so it asserts by topic, which subscribers that request automatic
/// liveliness accept. Cyclone DDS cannot assert the liveliness of a best-effort writer.
pub fn asserts_by_topic(qos: &Qos) -> bool {
    let kept = qos.transient_local && qos.reliable;
    qos.liveliness.manual || (kept && qos.liveliness.lease.is_some())
}

/// The policies of a writer on behalf of publishers of a peer.
pub fn writer_policies(qos: &Qos, user_data: String) -> Dds {
    let depth = if qos.transient_local { qos.depth.max(1) } else { qos.depth.max(DEPTH) };
    Dds {
        reliable: qos.reliable,
        durability: if qos.transient_local { TRANSIENT_LOCAL } else { VOLATILE },
        depth: depth.min(MAX_DEPTH) as i32,
        deadline: nanoseconds(qos.deadline),
        lifespan: nanoseconds(qos.lifespan),
        liveliness: tautline_dds::Liveliness {
            kind: if asserts_by_topic(qos) { MANUAL_BY_TOPIC } else { AUTOMATIC },
            lease: nanoseconds(qos.liveliness.lease),
        },
        user_data: user_data.into_bytes(),
        ignore_own: true,
        late_joiners_only: qos.transient_local,
        // The writing thread serves all peers, so it does not wait for space. (With keep last, a
        // writer of Cyclone DDS 11.0.1 waits only beyond 2 GB.) Failed writes count as drops.
        max_blocking_time: 0,
        ..Dds::default()
    }
}

fn finite(nanoseconds: i64) -> Option<Duration> {
    // An infinite or invalid duration promises nothing.
    let valid = u64::try_from(nanoseconds).ok().filter(|_| nanoseconds != INFINITE);
    valid.filter(|ns| *ns > 0).map(Duration::from_nanos)
}

fn nanoseconds(duration: Option<Duration>) -> i64 {
    duration.map_or(INFINITE, |it| it.as_nanos().try_into().unwrap_or(INFINITE))
}

/// Whether endpoints of one topic may differ in this policy, so that each matches only some of the
/// others ([`Class`]).
pub fn is_class_policy(id: u32) -> bool {
    matches!(id, DURABILITY | RELIABILITY)
}

/// The name of a policy by which endpoints did not match, by its number in Cyclone DDS
/// (`dds_qos_policy_id`). ROS 2 leaves all policies at their defaults that it does not have itself.
pub fn policy_name(id: u32) -> &'static str {
    match id {
        DURABILITY => "durability",
        3 => "presentation",
        4 => "deadline",
        5 => "latency budget",
        6 => "ownership",
        8 => "liveliness",
        RELIABILITY => "reliability",
        12 => "destination order",
        24 => "type consistency",
        25 => "data representation (ROS 2 has XCDR1, not XCDR2)",
        _ => "a policy that ROS 2 does not have",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Option<Duration> = Some(Duration::from_secs(1));

    #[test]
    fn policies_survive_the_conversion_to_dds_and_back() {
        let qos = Qos {
            transient_local: true,
            depth: 3,
            reliable: false,
            deadline: SECOND,
            lifespan: SECOND,
            liveliness: Liveliness { manual: true, lease: SECOND, lost: false },
            classes: Classes::default(),
            keeping: 0,
        };
        let dds = writer_policies(&qos, String::new());
        assert_eq!(dds.depth, 3);
        assert_eq!(Qos { depth: 3, ..offered_qos(&dds) }, qos);
        for odd in [0, -1, i64::MIN, INFINITE] {
            assert_eq!(offered_qos(&Dds { deadline: odd, ..Dds::default() }).deadline, None);
        }
    }
}
