// SPDX-License-Identifier: Apache-2.0
//! Quality of service: the policies of DDS, and those sent to the other robot.

use super::history::MAX_DEPTH;
use crate::{Liveliness, Qos};
use std::time::Duration;
use tautline_dds::{INFINITE, Qos as Dds};

/// Messages that a writer of a volatile topic keeps for slow subscribers, at least: rmw's default.
const DEPTH: u32 = 10;
const VOLATILE: u32 = 0;
const TRANSIENT_LOCAL: u32 = 1;
const AUTOMATIC: u32 = 0;
const MANUAL_BY_TOPIC: u32 = 2;

/// The offer of a writer. DDS does not announce its depth.
pub fn offered(dds: &Dds) -> Qos {
    Qos {
        transient_local: dds.durability >= TRANSIENT_LOCAL,
        depth: 1,
        reliable: dds.reliable,
        deadline: finite(dds.deadline),
        lifespan: finite(dds.lifespan),
        liveliness: Liveliness {
            manual: dds.liveliness.kind == MANUAL_BY_TOPIC,
            lease: finite(dds.liveliness.lease),
            // Known only to the reader of the topic.
            lost: false,
        },
    }
}

/// The policies of a reader that matches each of these writers: no more than the least offer.
pub fn to_read<'a>(all: impl IntoIterator<Item = &'a Qos>) -> Dds {
    let (mut reliable, mut transient_local) = (true, true);
    for qos in all {
        reliable &= qos.reliable;
        transient_local &= qos.transient_local;
    }
    Dds {
        reliable,
        durability: if transient_local { TRANSIENT_LOCAL } else { VOLATILE },
        // The gateway takes each message at once.
        keep_all: true,
        ignore_own: true,
        ..Dds::default()
    }
}

/// Whether a writer on behalf of these publishers asserts its liveliness by topic. For automatic
/// liveliness, Cyclone DDS asserts as long as the writer exists; a transient local writer must exist
/// for its history. A subscriber that requests automatic liveliness accepts both.
pub fn asserts_by_topic(qos: &Qos) -> bool {
    qos.liveliness.manual || (qos.transient_local && qos.reliable && qos.liveliness.lease.is_some())
}

/// The policies of a writer on behalf of publishers of a peer.
pub fn to_write(qos: &Qos, user_data: String) -> Dds {
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

/// ROS 2's name of a policy by which endpoints did not match (DDS 1.4, 2.3.3).
pub fn policy(id: u32) -> &'static str {
    match id {
        2 => "durability",
        4 => "deadline",
        8 => "liveliness",
        11 => "reliability",
        23 => "data representation",
        _ => "a policy that ROS 2 does not have",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Option<Duration> = Some(Duration::from_secs(1));

    #[test]
    fn a_reader_requests_the_least_offer() {
        let strong = Qos { transient_local: true, ..Qos::default() };
        let weak = Qos { reliable: false, ..Qos::default() };
        assert!(to_read([&strong]).reliable && to_read([&strong]).durability == TRANSIENT_LOCAL);
        let both = to_read([&strong, &weak]);
        assert!(!both.reliable && both.durability == VOLATILE);
    }

    #[test]
    fn policies_survive_the_conversion_to_dds_and_back() {
        let qos = Qos {
            transient_local: true,
            depth: 3,
            reliable: false,
            deadline: SECOND,
            lifespan: SECOND,
            liveliness: Liveliness { manual: true, lease: SECOND, lost: false },
        };
        let dds = to_write(&qos, String::new());
        assert_eq!(dds.depth, 3);
        assert_eq!(Qos { depth: 3, ..offered(&dds) }, qos);
        for odd in [0, -1, i64::MIN, INFINITE] {
            assert_eq!(offered(&Dds { deadline: odd, ..Dds::default() }).deadline, None);
        }
    }
}
