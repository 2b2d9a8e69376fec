// SPDX-License-Identifier: Apache-2.0
//! Latched messages of local publishers: what a publisher repeats when it is connected again, and
//! when it was published.

use super::connection::Description;
use crate::types::definition::{Arity, BaseType};
use crate::types::{Dialect, Schema};
use crate::{Kept, Origin, identity};
use std::time::{Duration, Instant, SystemTime};

/// Time in which a publisher sends its latched message after we connect to it, even on a busy machine.
/// A message within this time is skipped if it has the content of the previous message.
const REPEATED_WITHIN: Duration = Duration::from_secs(1);
/// Time in which a publisher usually sends its latched message. A message within this time reaches
/// no volatile subscriber of ROS 2.
const HISTORY_WITHIN: Duration = Duration::from_millis(100);
/// Offset of a header's time: after the sequence number.
const STAMP_AT: usize = 4;
/// Earlier stamps (before September 2001) are simulated time, not the time of day.
const FIRST_WALL_STAMP: Duration = Duration::from_secs(1_000_000_000);

/// The known state of a connected publisher.
pub(super) struct PublisherHistory {
    uri: String,
    connected: Instant,
    /// Whether its messages begin with a `std_msgs/Header`.
    has_header: bool,
}

impl PublisherHistory {
    /// Describes a publisher that has just been connected.
    pub fn new(uri: &str, found: &Description) -> Self {
        let has_header = begins_with_header(found);
        Self { uri: uri.into(), connected: Instant::now(), has_header }
    }

    /// Identifies a message by its content and publisher. rospy gives a latched message that it
    /// repeats a new `seq`.
    pub fn identity(&self, payload: &[u8]) -> u64 {
        let content = if self.has_header { payload.get(STAMP_AT..) } else { None };
        identity(&(&self.uri, content.unwrap_or(payload)))
    }

    /// The publication of a latched message that was received now.
    pub fn origin(&self, payload: &[u8], received: Instant, wall: SystemTime) -> Origin {
        let since = received.saturating_duration_since(self.connected);
        let is_repeatable = since < REPEATED_WITHIN;
        let stamp = if self.has_header && is_repeatable { stamp(payload) } else { None };
        let age = stamp
            .and_then(|stamp| wall.duration_since(SystemTime::UNIX_EPOCH).ok()?.checked_sub(stamp));
        let identity = self.identity(payload);
        let is_history = since < HISTORY_WITHIN;
        let kept = Some(Kept { identity, depth: 1, is_repeatable, is_history, ..Kept::default() });
        Origin { kept, age: age.unwrap_or_default(), ..Origin::default() }
    }

    /// The publication of a latched message that was not known to be latched when it was received,
    /// `age` ago or earlier. Subscribers that were present then have it.
    pub fn origin_of_missed(&self, payload: &[u8], age: Duration) -> Origin {
        let kept = Kept {
            identity: self.identity(payload),
            depth: 1,
            is_repeatable: true,
            is_history: true,
            is_for_late_joiners: true,
        };
        Origin { kept: Some(kept), best_effort: false, age, lifespan: None }
    }
}

fn begins_with_header(found: &Description) -> bool {
    let parsed = Schema::parse(&found.version.name, &found.definition, Dialect::Ros1);
    parsed.is_ok_and(|schema| {
        let first = schema.root().fields.first().map(|field| (field.base, field.arity));
        matches!(first, Some((BaseType::Struct(number), Arity::One))
            if schema.structs[number].name == "std_msgs/Header")
    })
}

/// The time in the header at the beginning of a message, since 1970.
fn stamp(payload: &[u8]) -> Option<Duration> {
    let (seconds, rest) = payload.get(STAMP_AT..)?.split_first_chunk()?;
    let seconds = Duration::from_secs(u32::from_le_bytes(*seconds).into());
    let nanoseconds = Duration::from_nanos(u32::from_le_bytes(*rest.first_chunk()?).into());
    Some(seconds + nanoseconds).filter(|stamp| *stamp >= FIRST_WALL_STAMP)
}

#[cfg(test)]
mod tests {
    use super::super::connection::TypeVersion;
    use super::*;

    const POSE: &str = "Header header\nfloat64 x\n================================================================================\nMSG: std_msgs/Header\nuint32 seq\ntime stamp\nstring frame_id\n";

    fn publisher(definition: &str) -> PublisherHistory {
        let version = TypeVersion { name: "a/Pose".into(), md5: "11".into() };
        let definition = definition.into();
        PublisherHistory::new("http://a:1/", &Description { version, definition, latching: true })
    }

    fn message(seconds: u32) -> Vec<u8> {
        [[7u32, seconds, 500_000_000, 0].map(u32::to_le_bytes).concat(), vec![0; 8]].concat()
    }

    #[test]
    fn a_repeated_message_has_the_age_of_its_stamp() {
        let (it, now) = (publisher(POSE), Instant::now());
        let wall = SystemTime::UNIX_EPOCH + Duration::from_secs(2_000_000_015);
        let origin = it.origin(&message(2_000_000_000), now, wall);
        assert!(origin.kept.is_some_and(|kept| kept.is_repeatable));
        assert_eq!(origin.age, Duration::from_millis(14_500));
        let later = it.origin(&message(2_000_000_000), now + 2 * REPEATED_WITHIN, wall);
        assert!(later.kept.is_some_and(|kept| !kept.is_repeatable) && later.age.is_zero());
        assert_eq!(later.kept.map(|it| it.identity), origin.kept.map(|it| it.identity));
        for unusable in [message(12), message(3_000_000_000), vec![1, 2, 3]] {
            assert!(it.origin(&unusable, now, wall).age.is_zero(), "{unusable:?}");
        }
        let without = publisher("float64 x\n").origin(&message(2_000_000_000), now, wall);
        assert!(without.age.is_zero());
    }

    #[test]
    fn the_sequence_number_does_not_change_the_identity_of_a_message() {
        let repeated = [&8u32.to_le_bytes()[..], &message(2_000_000_000)[STAMP_AT..]].concat();
        let is_same = |publisher: PublisherHistory| {
            publisher.identity(&message(2_000_000_000)) == publisher.identity(&repeated)
        };
        assert!(is_same(publisher(POSE)));
        assert!(!is_same(publisher("float64 x\n")));
    }

    #[test]
    fn publications_differ_by_content_and_publisher() {
        let (it, now, wall) = (publisher(POSE), Instant::now(), SystemTime::now());
        let identity = |of: &PublisherHistory, content| {
            of.origin(content, now, wall).kept.map(|it| it.identity)
        };
        assert_eq!(identity(&it, b"a"), identity(&it, b"a"));
        assert_ne!(identity(&it, b"a"), identity(&it, b"b"));
        let other = PublisherHistory { uri: "http://a:2/".into(), ..publisher(POSE) };
        assert_ne!(identity(&it, b"a"), identity(&other, b"a"));
    }
}
