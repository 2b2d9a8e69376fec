// SPDX-License-Identifier: Apache-2.0
//! Frames that messages other than transforms name: `frame_id` and `child_frame_id` get the prefix
//! of tf as well, so that peers find them among the transforms of this robot.
//!
//! ```text
//! forward ─▶ renaming ─▶ small: Renaming::apply ─▶ send
//!                        large: Job::Encode ─▶ codec ─▶ Done::Encoded ─▶ encoded ─▶ send
//! ```
//! The definition of a topic's type is examined once, when a message is about to be sent under a
//! prefix. A topic that has had a large message uses the codec for all later ones, so that they stay
//! in order.

use super::local::LocalTopic;
use super::remote::Told;
use super::{Outgoing, Topics};
use crate::quota::Cause;
use crate::treatment::Compression;
use std::collections::BTreeSet;
use std::sync::Arc;
use tautline_gateway::action_names::action_of;
use tautline_gateway::tf::Rules;
use tautline_gateway::tf::fields::FrameFields;
use tautline_gateway::{Command, Kept, Topic, identity};
use tautline_proto::Instant;

/// Maximum bytes of a message whose frames are renamed, or whose stamps are moved, on the data plane: that
/// takes 0.1 ms at most, or 0.8 ms if neighbouring names differ.
pub(super) const MAX_BYTES_HERE: usize = 64 << 10;

/// How frames of a message get new names.
#[derive(Debug, Clone)]
pub(crate) struct Renaming {
    fields: Arc<FrameFields>,
    rules: Arc<Rules>,
}

impl Renaming {
    /// Returns the message with the new names. If it cannot be read by its definition, it stays as
    /// it is, and the second value says why; peers check it.
    pub(crate) fn apply(&self, message: Outgoing) -> (Outgoing, Option<String>) {
        match self.fields.renamed(&message.payload, &self.rules) {
            Ok(Some(payload)) => (Outgoing { payload: payload.into(), ..message }, None),
            Ok(None) => (message, None),
            Err(error) => (message, Some(error.to_string())),
        }
    }

    /// A message with other names of frames is another publication: a subscriber that has the former
    /// one gets it as well.
    fn mark(&self, kept: &mut Kept) {
        kept.identity = identity(&(kept.identity, &self.rules.prefix, &self.rules.shared));
    }
}

/// The frames in a topic's messages.
#[derive(Debug, Default)]
pub(super) struct Frames {
    found: Found,
    /// Whether a message was large.
    has_large_messages: bool,
    told: Told,
}

#[derive(Debug, Default)]
enum Found {
    #[default]
    NotExamined,
    /// The type has none.
    Nothing,
    In(Arc<FrameFields>),
    /// No usable definition of the type is known.
    Unknown,
}

impl Frames {
    /// Returns the places of frames, if there are any. The error says for people, once, why they are
    /// unknown.
    fn of_topic(&mut self, topic: &Topic) -> Result<Option<&Arc<FrameFields>>, String> {
        let mut outcome = Ok(());
        if matches!(self.found, Found::NotExamined) {
            self.found = match FrameFields::of_topic(topic) {
                Ok(Some(fields)) => Found::In(Arc::new(fields)),
                Ok(None) => Found::Nothing,
                Err(reason) => {
                    outcome = Err(reason);
                    Found::Unknown
                }
            };
        }
        outcome.map(|()| match &self.found {
            Found::In(fields) => Some(fields),
            Found::NotExamined | Found::Nothing | Found::Unknown => None,
        })
    }
}

impl LocalTopic {
    /// Whether its messages pass through the codec.
    pub(super) fn uses_codec(&self) -> bool {
        self.treatment.compression == Compression::Zstd || self.frames.has_large_messages
    }
}

impl Topics {
    /// Returns how frames in messages of a topic get new names; `None` if they keep their names, or
    /// have none.
    pub(super) fn renaming(&mut self, now: Instant, topic: &str) -> Option<Renaming> {
        // The services of an action keep the names of frames, so its topics do as well.
        if self.tf_rules.prefix.is_empty() || action_of(topic).is_some() {
            return None;
        }
        let local = self.local.get_mut(topic)?;
        if !local.treatment.tf_prefix || local.transforms.is_some() {
            return None;
        }
        match local.frames.of_topic(&local.topic) {
            Ok(fields) => Some(Renaming { fields: fields?.clone(), rules: self.tf_rules.clone() }),
            Err(reason) => {
                let text = format!("{}: {reason}", self.names_stay(topic));
                self.notice(now, Cause::Here, &text);
                None
            }
        }
    }

    /// The definition of a topic's type may have changed.
    pub(super) fn follow_definition(&mut self, topic: &Topic) {
        let known = self.local.get_mut(&topic.name);
        if let Some(known) = known.filter(|known| known.topic.definition != topic.definition) {
            known.frames.found = Found::NotExamined;
            let untrue = self.names_stay(&topic.name);
            self.notices.retain(&Cause::Here, |text| !text.starts_with(&untrue));
        }
    }

    fn names_stay(&self, topic: &str) -> String {
        let here = self.endpoint.name();
        format!("{topic} of '{here}': frames in its messages are sent without the prefix of tf")
    }

    /// Marks a message that is kept as one with new names.
    pub(super) fn mark_renamed(&mut self, now: Instant, message: &mut Outgoing) {
        if message.origin.kept.is_none() {
            return;
        }
        let renaming = self.renaming(now, &message.topic);
        if let (Some(renaming), Some(kept)) = (renaming, &mut message.origin.kept) {
            renaming.mark(kept);
        }
    }

    /// Whether the codec gets a message with this number of bytes in which frames are renamed, and
    /// with it all later ones of its topic.
    pub(super) fn is_for_codec(&mut self, topic: &str, bytes: usize) -> bool {
        let Some(local) = self.local.get_mut(topic) else { return false };
        local.frames.has_large_messages |= bytes > MAX_BYTES_HERE;
        local.uses_codec()
    }

    /// Sends a message whose frames have their names.
    pub(super) fn send_renamed(
        &mut self,
        now: Instant,
        message: Outgoing,
        problem: Option<String>,
    ) {
        if let Some(problem) = problem {
            let local = self.local.get_mut(&message.topic);
            if local.is_some_and(|local| local.frames.told.is_due(now)) {
                let text = format!("{}: {problem}", self.names_stay(&message.topic));
                self.notice(now, Cause::Here, &text);
            }
        }
        self.send(now, message);
    }

    /// A message returns from the codec.
    pub(super) fn encoded(
        &mut self,
        now: Instant,
        message: Outgoing,
        renaming: Option<Renaming>,
        problem: Option<String>,
    ) {
        let rules = |renaming: Option<Renaming>| renaming.map(|it| Arc::as_ptr(&it.rules));
        let is_outdated = rules(renaming) != rules(self.renaming(now, &message.topic));
        // Of two messages of a publisher, the one with former names would be kept.
        if is_outdated && message.origin.kept.is_some() {
            return;
        }
        self.send_renamed(now, message, problem);
    }

    /// Returns the topics with kept messages in which frames get new names.
    pub(super) fn kept_with_new_names(&mut self, now: Instant) -> BTreeSet<String> {
        let kept = self.local.iter().filter(|(_, local)| local.keeps_messages());
        let mut names: BTreeSet<String> = kept.map(|(name, _)| name.clone()).collect();
        names.retain(|name| self.renaming(now, name).is_some());
        names
    }

    /// Reads topics again, since the frames in their kept messages have other names now.
    pub(super) fn read_again(&mut self, topics: impl IntoIterator<Item = String>) {
        for topic in topics {
            let local = self.local.get_mut(&topic).filter(|local| local.is_read());
            if let Some(local) = local {
                local.forget_latched();
                self.gateway(Command::Unsubscribe { topic: topic.clone() });
                self.gateway(Command::Subscribe { topic });
            }
        }
    }
}
