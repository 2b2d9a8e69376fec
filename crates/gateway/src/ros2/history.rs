// SPDX-License-Identifier: Apache-2.0
//! How many messages a transient local publisher keeps, which DDS does not tell: a reader that
//! joins late is given just these, so one is made to count them.

use super::names::{self, Meaning};
use super::qos;
use crate::Qos;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use tautline_dds::{DdsError, Guid, Participant, Qos as Dds, RawReader, SampleInfo, Specification};

/// What a publisher that has just come publishes at its start is waited for.
const START: Duration = Duration::from_secs(1);
/// What is kept arrives within tens of milliseconds on one machine.
const ARRIVAL: Duration = Duration::from_millis(500);
/// Most that is counted of one publisher.
pub const MAX_DEPTH: u32 = 1000;
/// Topics that are waited for or counted at once; more are taken for keeping one message.
const MAX_COUNTS: usize = 256;

/// Depths found, and counts to come and under way, by topic.
#[derive(Default)]
pub struct Histories {
    found: BTreeMap<String, u32>,
    under_way: BTreeMap<String, Stage>,
}

enum Stage {
    Waiting(Instant),
    Counting(Count),
}

struct Count {
    kept: Arc<Mutex<HashMap<Guid, u32>>>,
    until: Instant,
    _reader: RawReader,
}

impl Stage {
    fn due(&self) -> Instant {
        match self {
            Self::Waiting(due) => *due,
            Self::Counting(count) => count.until,
        }
    }
}

impl Histories {
    /// The depth of a topic's publishers as far as it is known; at least 1.
    pub fn depth(&self, topic: &str) -> u32 {
        self.found.get(topic).copied().unwrap_or(1)
    }

    /// A transient local publisher of the topic has come.
    pub fn look_at(&mut self, topic: &str, now: Instant) {
        if self.under_way.len() < MAX_COUNTS {
            self.under_way.entry(topic.into()).or_insert(Stage::Waiting(now + START));
        }
    }

    /// Nobody publishes the topic any more.
    pub fn forget(&mut self, topic: &str) {
        self.found.remove(topic);
        self.under_way.remove(topic);
    }

    /// When a topic is next to be looked at.
    pub fn next_due(&self) -> Option<Instant> {
        self.under_way.values().map(Stage::due).min()
    }

    /// Topics that are to be counted now, by [`Histories::count`].
    pub fn to_count(&self, now: Instant) -> Vec<String> {
        let waiting = self.under_way.iter();
        let waiting = waiting.filter(|(_, it)| matches!(it, Stage::Waiting(due) if *due <= now));
        waiting.map(|(topic, _)| topic.clone()).collect()
    }

    /// Begins to count what publishers that offer `each` keep.
    pub fn count(
        &mut self,
        topic: &str,
        type_name: &str,
        each: &[Qos],
        participant: &Arc<Participant>,
    ) {
        let local: Vec<Qos> = each.iter().copied().filter(|it| it.transient_local).collect();
        match Count::begin(topic, type_name, &qos::to_read(&local), participant) {
            Ok(count) => drop(self.under_way.insert(topic.into(), Stage::Counting(count))),
            Err(error) => {
                tracing::warn!(topic, %error, "what its publishers keep is not counted");
                self.under_way.remove(topic);
            }
        }
    }

    /// Topics whose counts have ended, and found more than was known.
    pub fn ended(&mut self, now: Instant) -> Vec<String> {
        let over =
            |_: &String, stage: &mut Stage| matches!(stage, Stage::Counting(it) if it.until <= now);
        let ended: Vec<_> = self.under_way.extract_if(.., over).collect();
        let mut grown = Vec::new();
        for (topic, stage) in ended {
            let Stage::Counting(count) = stage else { continue };
            let kept = count.kept.lock().unwrap_or_else(PoisonError::into_inner);
            let depth = kept.values().copied().max().unwrap_or(1);
            if depth > self.depth(&topic) {
                self.found.insert(topic.clone(), depth);
                grown.push(topic);
            }
        }
        grown
    }
}

impl Count {
    fn begin(
        topic: &str,
        type_name: &str,
        asked: &Dds,
        participant: &Arc<Participant>,
    ) -> Result<Self, DdsError> {
        let kept = Arc::<Mutex<HashMap<Guid, u32>>>::default();
        let (counts, begun) = (kept.clone(), now_ns());
        let count = move |_, info: &SampleInfo| {
            // What is published from now on is not history.
            if let (Some(writer), true) = (info.writer, info.source_timestamp < begun) {
                let mut counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
                let count = counts.entry(writer).or_default();
                *count = (*count + 1).min(MAX_DEPTH);
            }
        };
        // Marked as ours only to be left out of what others show as subscribers of their own.
        let dds =
            Dds { user_data: names::endpoint_user_data("", "").into_bytes(), ..asked.clone() };
        let specification = Specification {
            topic: &Meaning::Topic(topic.into()).dds_name(),
            type_name: &names::dds_type(type_name).unwrap_or_default(),
            qos: &dds,
        };
        let reader = RawReader::new(participant, specification, count, |_, _| ())?;
        Ok(Self { kept, until: Instant::now() + ARRIVAL, _reader: reader })
    }
}

/// As sources stamp their messages: nanoseconds since 1970.
fn now_ns() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}
