// SPDX-License-Identifier: Apache-2.0
//! Messages of tf topics: only the configured frames are sent, names get the robot's prefix, and
//! under a rate limit transforms are merged instead of dropped. Static transforms are always
//! merged: a late joiner may get only the last message, so each message must have the transforms of
//! all publishers.

use super::topic::LocalTopic;
use crate::reasons::DroppedMessage;
use crate::topics::message::Outgoing;
use bytes::Bytes;
use std::collections::BTreeMap;
use tautline_gateway::tf::{Encoding, MAX_TRANSFORMS, Merger, Rules};
use tautline_gateway::types::transcode::TranscodeError;
use tautline_gateway::{Kept, Origin, Source, identity};
use tautline_proto::{Duration, Instant};

/// Minimum time between messages of static transforms. Publishers that start together thus share a
/// message.
pub(crate) const STATIC_PERIOD: Duration = Duration::from_millis(100);
/// A merged message belongs to the robot, not to one publisher.
const MERGED: Source = Source::local(0);

#[derive(Debug)]
pub(crate) struct Transforms {
    encoding: Encoding,
    pub(super) merger: Merger,
    /// Messages that were not sent, by reason.
    pub(crate) dropped: BTreeMap<DroppedMessage, u64>,
}

impl Transforms {
    /// Returns an empty state; `None` if the type is not a tf type.
    pub(super) fn of_type(type_name: &str) -> Option<Self> {
        let encoding = Encoding::of_type(type_name)?;
        Some(Self { encoding, merger: Merger::default(), dropped: BTreeMap::new() })
    }

    /// Drops queued transforms and those kept for late joiners.
    pub(super) fn forget(&mut self) {
        self.merger.clear();
    }

    /// Gives a publisher another number.
    pub(super) fn rename(&mut self, source: Source, successor: Source) {
        self.merger.rename(source, successor);
    }

    fn count_dropped(&mut self, reason: DroppedMessage) {
        *self.dropped.entry(reason).or_default() += 1;
    }

    fn count_unreadable(&mut self, error: &TranscodeError) -> String {
        self.count_dropped(DroppedMessage::Malformed);
        format!("a message of its publishers cannot be read: {error}")
    }

    /// Returns one message with all known transforms. With `keep`, the transforms are kept for late joiners.
    fn merged_message(&mut self, keep: bool) -> Result<Bytes, String> {
        let message = self.encoding.emit(&self.merger.latest());
        self.merger.mark_sent(keep);
        message.map(Bytes::from).map_err(|error| self.count_unreadable(&error))
    }
}

impl LocalTopic {
    /// Returns the shortest time between two merged messages; `None` if messages are not merged.
    pub(super) fn merging_period(&self, is_kept: bool) -> Option<Duration> {
        match is_kept {
            true => Some(STATIC_PERIOD),
            // Merged messages of such a topic would be kept, but messages of volatile publishers must not be.
            false if self.topic.qos.transient_local => None,
            false => self.treatment.period(),
        }
    }

    /// Returns the part of a message that is sent immediately. The other transforms are queued to
    /// be merged, or are not sent. The error is a message for users.
    pub(super) fn filter_or_merge(
        &mut self,
        rules: &Rules,
        message: Outgoing,
    ) -> Result<Option<Outgoing>, String> {
        let is_kept = message.origin.kept.is_some();
        let merges = self.merging_period(is_kept).is_some();
        if !merges && rules.change_nothing() {
            return Ok(Some(message));
        }
        let Some(transforms) = &mut self.transforms else { return Ok(Some(message)) };
        let read = transforms.encoding.parse(&message.payload);
        let leaving = rules.apply(read.map_err(|error| transforms.count_unreadable(&error))?);
        if leaving.is_empty() {
            transforms.count_dropped(DroppedMessage::NoNamedFrame);
            return Ok(None);
        }
        if !merges {
            let payload = transforms.encoding.emit(&leaving);
            let payload = payload.map_err(|error| transforms.count_unreadable(&error))?.into();
            return Ok(Some(Outgoing { payload, ..message }));
        }
        let source = if is_kept { message.source } else { MERGED };
        let waited = transforms.merger.has_news();
        let excess = transforms.merger.add(source, leaving);
        // Its transforms are in the queued message, or equal those sent last.
        self.rate_limited += u64::from(waited || !transforms.merger.has_news());
        if excess == 0 {
            return Ok(None);
        }
        transforms.count_dropped(DroppedMessage::NoRoom);
        Err(format!("{excess} transforms dropped; allowed: {MAX_TRANSFORMS} on one topic"))
    }

    /// Returns one message with the new transforms, if there are any and the rate of the topic
    /// allows it.
    pub(super) fn next_merged(&mut self, now: Instant) -> MergedMessage {
        if !self.transforms.as_ref().is_some_and(|transforms| transforms.merger.has_news()) {
            return MergedMessage::Nothing;
        }
        // The rate limit may have been removed since.
        let keep = self.topic.qos.transient_local;
        let period = self.merging_period(keep).unwrap_or(Duration::ZERO);
        if !self.take_turn(now, period) {
            return MergedMessage::Later(self.next_turn(period));
        }
        match self.transforms.as_mut().map(|transforms| transforms.merged_message(keep)) {
            Some(Ok(payload)) => {
                let kept = keep.then(|| Kept {
                    identity: identity(&payload),
                    depth: 1,
                    // A subscriber that has these transforms need not get them again.
                    is_repeatable: true,
                    ..Kept::default()
                });
                let (topic, origin) =
                    (self.topic.name.clone(), Origin { kept, ..Origin::default() });
                let (source, encoded, published) = (MERGED, false, now);
                MergedMessage::Now(Outgoing { topic, source, payload, origin, encoded, published })
            }
            Some(Err(problem)) => MergedMessage::Failed(problem),
            None => MergedMessage::Nothing,
        }
    }
}

/// The next merged message of a topic.
pub(super) enum MergedMessage {
    Nothing,
    Now(Outgoing),
    /// The rate allows the next message at this time.
    Later(Option<Instant>),
    /// The message cannot be written, for this reason.
    Failed(String),
}
