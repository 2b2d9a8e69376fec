// SPDX-License-Identifier: Apache-2.0
//! Messages of tf topics: only the configured frames are sent, names get the robot's prefix, and
//! under a rate limit transforms are merged instead of dropped. Static transforms are always
//! merged, so that one message has those of all publishers: a late joiner may get only the last
//! one.

use super::{LocalTopic, Outgoing, Topics};
use crate::quota::Cause;
use crate::topics::Context;
use bytes::Bytes;
use std::collections::BTreeMap;
use tautline_gateway::tf::{Encoding, MAX_TRANSFORMS, Merger, Rules};
use tautline_gateway::types::transcode::TranscodeError;
use tautline_gateway::{Kept, Origin, Source, identity};
use tautline_proto::Duration;

/// Shortest time between messages of static transforms: those of publishers that start together
/// share a message.
pub(super) const STATIC_PERIOD: Duration = Duration::from_millis(100);
/// A merged message belongs to the robot, not to one publisher.
const MERGED: Source = Source::here(0);

#[derive(Debug)]
pub(crate) struct Transforms {
    encoding: Encoding,
    merger: Merger,
    /// Messages that were not sent, by reason.
    pub(crate) dropped: BTreeMap<&'static str, u64>,
}

impl Transforms {
    /// Returns `None` if the type is not a tf type.
    pub(super) fn of_type(type_name: &str) -> Option<Self> {
        let encoding = Encoding::of_type(type_name)?;
        Some(Self { encoding, merger: Merger::default(), dropped: BTreeMap::new() })
    }

    /// Forgets queued transforms and those kept for late joiners.
    pub(super) fn forget(&mut self) {
        self.merger.clear();
    }

    /// Gives a publisher another number.
    pub(super) fn rename(&mut self, source: Source, successor: Source) {
        self.merger.rename(source, successor);
    }

    fn drop_one(&mut self, reason: &'static str) {
        *self.dropped.entry(reason).or_default() += 1;
    }

    fn unreadable(&mut self, error: &TranscodeError) -> String {
        self.drop_one("malformed");
        format!("a message of its publishers cannot be read: {error}")
    }

    /// Returns one message of all known transforms; with `keep`, they are kept for late joiners.
    fn merged(&mut self, keep: bool) -> Result<Bytes, String> {
        let message = self.encoding.emit(&self.merger.latest());
        self.merger.sent(keep);
        message.map(Bytes::from).map_err(|error| self.unreadable(&error))
    }
}

impl LocalTopic {
    /// Returns the shortest time between two merged messages; `None` if messages are not merged.
    fn merging_period(&self, is_kept: bool) -> Option<Duration> {
        match is_kept {
            true => Some(STATIC_PERIOD),
            // Merged messages are kept, and those of volatile publishers must not be.
            false if self.topic.qos.transient_local => None,
            false => self.treatment.period(),
        }
    }

    /// Returns the part of a message that is sent immediately. The rest is queued to be merged, or
    /// is not sent. The error is for people.
    fn reduce(&mut self, rules: &Rules, message: Outgoing) -> Result<Option<Outgoing>, String> {
        let is_kept = message.origin.kept.is_some();
        let merges = self.merging_period(is_kept).is_some();
        if !merges && rules.change_nothing() {
            return Ok(Some(message));
        }
        let Some(transforms) = &mut self.transforms else { return Ok(Some(message)) };
        let read = transforms.encoding.parse(&message.payload);
        let leaving = rules.apply(read.map_err(|error| transforms.unreadable(&error))?);
        if leaving.is_empty() {
            transforms.drop_one("no_named_frame");
            return Ok(None);
        }
        if !merges {
            let payload = transforms.encoding.emit(&leaving);
            let payload = payload.map_err(|error| transforms.unreadable(&error))?.into();
            return Ok(Some(Outgoing { payload, ..message }));
        }
        let source = if is_kept { message.source } else { MERGED };
        let waited = transforms.merger.has_news();
        let excess = transforms.merger.add(source, leaving);
        // Its content is in the queued message already, or in the last one sent.
        self.rate_limited += u64::from(waited || !transforms.merger.has_news());
        if excess == 0 {
            return Ok(None);
        }
        transforms.drop_one("no_room");
        Err(format!("{excess} transforms dropped; allowed: {MAX_TRANSFORMS} on one topic"))
    }
}

impl Topics {
    /// Handles a message of a tf topic.
    pub(super) fn local_transforms(&mut self, cx: &mut Context<'_>, message: Outgoing) {
        let topic = message.topic.clone();
        // Messages that nobody reads any more must not be kept for the next reader.
        let local = self.local.get_mut(&topic).filter(|local| local.is_read());
        match local.map(|local| local.reduce(&self.tf_rules, message)) {
            Some(Ok(Some(message))) => return self.forward(cx, message),
            Some(Ok(None)) | None => {}
            Some(Err(trouble)) => self.trouble(cx, &topic, &trouble),
        }
        self.send_merged(cx, &topic);
    }

    /// Removes the static transforms of a publisher that has left.
    pub(super) fn transforms_gone(&mut self, cx: &mut Context<'_>, topic: &str, source: Source) {
        let local = self.local.get_mut(topic).filter(|local| local.topic.qos.transient_local);
        if let Some(transforms) = local.and_then(|local| local.transforms.as_mut()) {
            transforms.merger.remove(source);
        }
        self.send_merged(cx, topic);
    }

    /// Sends the new transforms of a topic, immediately or as soon as its rate allows.
    pub(super) fn send_merged(&mut self, cx: &mut Context<'_>, topic: &str) {
        let now = cx.now;
        let Some(local) = self.local.get_mut(topic) else { return };
        if !local.transforms.as_ref().is_some_and(|transforms| transforms.merger.has_news()) {
            return;
        }
        // The limit may have been lifted since.
        let keep = local.topic.qos.transient_local;
        let period = local.merging_period(keep).unwrap_or(Duration::ZERO);
        if !local.within(now, period) {
            let due = local.next_within(period);
            return self.hold_back_until(due);
        }
        match local.transforms.as_mut().map(|transforms| transforms.merged(keep)) {
            Some(Ok(payload)) => {
                let topic = topic.to_owned();
                let kept = keep.then(|| Kept {
                    identity: identity(&payload),
                    depth: 1,
                    // The same transforms again are no news.
                    is_repeatable: true,
                    ..Kept::default()
                });
                let origin = Origin { kept, ..Origin::default() };
                let (source, encoded, published) = (MERGED, false, now);
                let message = Outgoing { topic, source, payload, origin, encoded, published };
                self.forward(cx, message);
            }
            Some(Err(trouble)) => self.trouble(cx, topic, &trouble),
            None => {}
        }
    }

    fn trouble(&mut self, cx: &mut Context<'_>, topic: &str, trouble: &str) {
        let text = format!("{topic} of '{}': {trouble}", cx.endpoint.name());
        cx.notice(Cause::Here, &text);
    }
}
