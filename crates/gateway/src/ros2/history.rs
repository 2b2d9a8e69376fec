// SPDX-License-Identifier: Apache-2.0
//! The number of messages that a transient local publisher keeps. DDS does not announce it, but
//! sends a late reader exactly these messages. Therefore a temporary reader counts them.

use super::names::{self, DdsTopic};
use super::qos;
use crate::Class;
use crate::lock::lock;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};
use tautline_dds::{DdsError, Guid, Participant, Qos as Dds, RawReader, SampleInfo};

/// Time that a new publisher has to send its first messages before they are counted.
const START_GRACE: Duration = Duration::from_millis(500);
/// Time limit for the arrival of kept messages, which takes tens of milliseconds on one machine.
const ARRIVAL_TIMEOUT: Duration = Duration::from_millis(500);
/// Largest count for one publisher.
pub const MAX_DEPTH: u32 = 1000;
/// Maximum number of concurrent counts and waiting topics; the depth of further topics counts as 1.
const MAX_COUNTS: usize = 256;

/// Known depths, and scheduled and running counts, by topic.
#[derive(Default)]
pub struct Histories {
    found: BTreeMap<String, HashMap<Guid, u32>>,
    /// Time of the next count of each topic. A count that is still running at this time ends first.
    waiting: BTreeMap<String, Instant>,
    counting: BTreeMap<String, Count>,
}

struct Count {
    kept: Arc<Mutex<HashMap<Guid, u32>>>,
    until: Instant,
    _reader: RawReader,
}

impl Histories {
    /// The largest known depth of a topic's publishers, at least 1.
    pub fn depth(&self, topic: &str) -> u32 {
        let depths = self.found.get(topic).into_iter().flat_map(HashMap::values);
        depths.copied().max().unwrap_or(1)
    }

    /// The known depths of a topic's publishers.
    pub fn depths(&self, topic: &str) -> impl Iterator<Item = (Guid, u32)> {
        let depths = self.found.get(topic).into_iter().flatten();
        depths.map(|(writer, depth)| (*writer, *depth))
    }

    /// Whether messages of the topic are about to be counted for the first time.
    pub fn is_uncounted(&self, topic: &str) -> bool {
        let is_pending = self.waiting.contains_key(topic) || self.counting.contains_key(topic);
        is_pending && !self.found.contains_key(topic)
    }

    /// Schedules a count for a new transient local publisher of the topic.
    pub fn schedule(&mut self, topic: &str, now: Instant) {
        self.schedule_at(topic, now + START_GRACE);
    }

    /// Schedules a count, or makes a scheduled one earlier.
    pub fn schedule_at(&mut self, topic: &str, due: Instant) {
        if let Some(known) = self.waiting.get_mut(topic) {
            *known = due.min(*known);
        } else if self.waiting.len() < MAX_COUNTS {
            self.waiting.insert(topic.into(), due);
        }
    }

    /// Forgets a topic that has no publisher any more.
    pub fn forget(&mut self, topic: &str) {
        self.found.remove(topic);
        self.waiting.remove(topic);
        self.counting.remove(topic);
    }

    /// The time of the next count or result.
    pub fn next_due(&self) -> Option<Instant> {
        let ends = self.counting.values().map(|count| count.until);
        self.next_counts().map(|(_, due)| due).chain(ends).min()
    }

    /// Topics for which [`Histories::count`] is due.
    pub fn topics_to_count(&self, now: Instant) -> Vec<String> {
        let due = self.next_counts().filter(|(_, due)| *due <= now);
        due.map(|(topic, _)| topic.clone()).collect()
    }

    /// The scheduled counts that need not wait for a running one.
    fn next_counts(&self) -> impl Iterator<Item = (&String, Instant)> {
        let free = self.waiting.iter().filter(|(topic, _)| !self.counting.contains_key(*topic));
        free.map(|(topic, due)| (topic, *due))
    }

    /// Starts to count the messages kept by the reliable publishers of a topic. DDS sends no history
    /// with best effort.
    pub fn count(&mut self, topic: &str, type_name: &str, participant: &Arc<Participant>) {
        self.waiting.remove(topic);
        let class = Class { transient_local: true, reliable: true };
        match Count::start(topic, type_name, &qos::reader_policies(class), participant) {
            Ok(count) => drop(self.counting.insert(topic.into(), count)),
            Err(error) => {
                tracing::warn!(topic, %error, "the messages kept by its publishers are not counted");
            }
        }
    }

    /// Topics whose counts have ended.
    pub fn take_ended_counts(&mut self, now: Instant) -> Vec<String> {
        let is_over = |_: &String, count: &mut Count| count.until <= now;
        let mut topics = Vec::new();
        for (topic, count) in self.counting.extract_if(.., is_over) {
            let depths = self.found.entry(topic.clone()).or_default();
            for (writer, count) in lock(&count.kept).iter() {
                let depth = depths.entry(*writer).or_default();
                *depth = (*depth).max(*count);
            }
            topics.push(topic);
        }
        topics
    }

    /// Forgets a publisher of the topic that has left.
    pub fn forget_writer(&mut self, topic: &str, writer: &Guid) {
        if let Some(depths) = self.found.get_mut(topic) {
            depths.remove(writer);
        }
    }
}

impl Count {
    fn start(
        topic: &str,
        type_name: &str,
        policies: &Dds,
        participant: &Arc<Participant>,
    ) -> Result<Self, DdsError> {
        let kept = Arc::<Mutex<HashMap<Guid, u32>>>::default();
        let (counts, started) = (kept.clone(), now_ns());
        let count = move |_, info: &SampleInfo| {
            // Later messages are not history.
            if let (Some(writer), true) = (info.writer, info.source_timestamp < started) {
                let mut counts = lock(&counts);
                let count = counts.entry(writer).or_default();
                *count = (*count + 1).min(MAX_DEPTH);
            }
        };
        // The mark hides this reader from the subscribers that other Tautline nodes see.
        let dds =
            Dds { user_data: names::endpoint_user_data("", "").into_bytes(), ..policies.clone() };
        let topic = DdsTopic::for_topic(topic, type_name);
        let reader = RawReader::new(participant, topic.specification(&dds), count, |_, _| ())?;
        Ok(Self { kept, until: Instant::now() + ARRIVAL_TIMEOUT, _reader: reader })
    }
}

/// Nanoseconds since 1970, as in source timestamps.
fn now_ns() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}
