// SPDX-License-Identifier: Apache-2.0
//! Frames in messages other than transforms: `frame_id` and `child_frame_id` get the prefix of tf
//! as well, so that peers find these frames among the transforms of this robot.
//!
//! The definition of a topic's type is examined once, when a message is about to be sent under a
//! prefix. Once a topic has had a large message, all its later messages pass through the codec, so
//! that they stay in order.

use crate::topics::message::Outgoing;
use crate::topics::report_limiter::ReportLimiter;
use std::sync::Arc;
use tautline_gateway::tf::Rules;
use tautline_gateway::tf::fields::FrameFields;
use tautline_gateway::{Kept, Topic, identity};

/// Renames the frames in a message.
#[derive(Debug, Clone)]
pub(crate) struct Renaming {
    pub(super) fields: Arc<FrameFields>,
    pub(super) rules: Arc<Rules>,
}

impl Renaming {
    /// Returns the message with the new names. If its definition does not match it, returns the
    /// message unchanged with the reason; peers check the message.
    pub(crate) fn apply(&self, message: Outgoing) -> (Outgoing, Option<String>) {
        match self.fields.with_renamed_frames(&message.payload, &self.rules) {
            Ok(Some(payload)) => (Outgoing { payload: payload.into(), ..message }, None),
            Ok(None) => (message, None),
            Err(error) => (message, Some(error.to_string())),
        }
    }

    /// Gives a kept message an identity of its own under the new names: a subscriber that has the
    /// message with the former names gets it again.
    pub(super) fn renew_identity(&self, kept: &mut Kept) {
        kept.identity = identity(&(kept.identity, &self.rules.prefix, &self.rules.shared));
    }
}

/// The frames in a topic's messages.
#[derive(Debug, Default)]
pub(super) struct Frames {
    pub(super) lookup: FrameLookup,
    /// Whether a message was large.
    pub(super) has_large_messages: bool,
    pub(super) report_limiter: ReportLimiter,
}

#[derive(Debug, Default)]
pub(super) enum FrameLookup {
    #[default]
    NotExamined,
    /// The type has no fields for frames.
    Absent,
    Present(Arc<FrameFields>),
    /// No usable definition of the type is known.
    Unknown,
}

impl Frames {
    /// Returns the fields for frames; `None` if the type has none. The error, which is returned
    /// once, is a message for users that says why the fields are unknown.
    pub(super) fn find_fields(
        &mut self,
        topic: &Topic,
    ) -> Result<Option<&Arc<FrameFields>>, String> {
        let mut outcome = Ok(());
        if matches!(self.lookup, FrameLookup::NotExamined) {
            self.lookup = match FrameFields::for_topic(topic) {
                Ok(Some(fields)) => FrameLookup::Present(Arc::new(fields)),
                Ok(None) => FrameLookup::Absent,
                Err(reason) => {
                    outcome = Err(reason);
                    FrameLookup::Unknown
                }
            };
        }
        outcome.map(|()| match &self.lookup {
            FrameLookup::Present(fields) => Some(fields),
            FrameLookup::NotExamined | FrameLookup::Absent | FrameLookup::Unknown => None,
        })
    }
}
