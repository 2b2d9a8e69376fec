// SPDX-License-Identifier: Apache-2.0
//! The jobs of the codec and their results.

use crate::topics::exports::frames::Renaming;
use crate::topics::imports::arrival::ArrivalChange;
use crate::topics::imports::safe::SafeMessage;
use crate::topics::key::ChannelKey;
use crate::topics::message::{Change, Outgoing};
use crate::treatment::Compression;
use bytes::Bytes;
use std::sync::Arc;
use tautline_gateway::types::check::Checker;
use tautline_gateway::types::compose::Fields;
use tautline_gateway::types::translate::{LocalForm, LocalService, ServiceTranslator, Translator};
use tautline_gateway::{CallId, Origin, Outcome, Service, Source, Topic};
use tautline_proto::{Instant, PeerId};

#[derive(Debug)]
pub(crate) enum Job {
    /// Rename frames in a message of this robot, and compress it.
    Encode(UnencodedMessage),
    /// A change of a publisher. It passes through the codec only to stay in order with messages.
    Change(Change),
    /// Decompress or translate a message for this robot's ROS.
    Decode(Incoming),
    /// Check the definition of a peer's topic and find its type in this robot's ROS.
    Localize { key: ChannelKey, topic: Topic },
    /// Check the definition of a peer's service and find its type in this robot's ROS.
    LocalizeService { key: ChannelKey, service: Service },
    /// Compose the safe message of a topic.
    Compose { topic: Topic, fields: Arc<Fields> },
    /// Translate a call or a response for the other ROS.
    TranslateCall(ForeignCall),
}

pub(crate) enum JobResult {
    Encoded {
        message: Outgoing,
        /// How the frames were to be renamed, if the job included this.
        renaming: Option<Renaming>,
        /// The reason why the frames were not renamed, if renaming failed.
        problem: Option<String>,
    },
    Changed(Change),
    Decoded(Incoming),
    /// A message from a peer cannot be read, or is not of its type.
    Unreadable {
        key: ChannelKey,
        topic: String,
        reason: String,
    },
    Localized {
        key: ChannelKey,
        peer_form: Topic,
        found: Box<Result<LocalForm, String>>,
    },
    ServiceLocalized {
        key: ChannelKey,
        peer_form: Service,
        found: Box<Result<LocalService, String>>,
    },
    Composed {
        topic: Topic,
        composed: Result<SafeMessage, String>,
    },
    CallTranslated {
        service: String,
        call: CallId,
        outcome: Outcome,
        is_response: bool,
    },
}

/// A message of this robot before it is encoded.
#[derive(Debug)]
pub(crate) struct UnencodedMessage {
    pub(crate) message: Outgoing,
    pub(crate) renaming: Option<Renaming>,
    pub(crate) compression: Compression,
}

/// A call of a service of the other ROS, or its response.
#[derive(Debug)]
pub(crate) struct ForeignCall {
    /// The peer at the other end.
    pub(crate) peer: PeerId,
    pub(crate) service: String,
    pub(crate) call: CallId,
    pub(crate) payload: Bytes,
    pub(crate) translator: Arc<ServiceTranslator>,
    pub(crate) is_response: bool,
}

/// A message to be published here after decompression and translation. A message that needs neither
/// is queued only to keep the order of its topic.
#[derive(Debug)]
pub(crate) struct Incoming {
    pub(crate) key: ChannelKey,
    pub(crate) topic: String,
    pub(crate) source: Source,
    pub(crate) payload: Bytes,
    pub(crate) origin: Origin,
    pub(crate) encoded: bool,
    pub(crate) translator: Option<Arc<Translator>>,
    /// The check of a message that is not translated.
    pub(crate) checker: Option<Arc<Checker>>,
    /// The change of the message's fields, which precedes translation.
    pub(crate) change: Option<ArrivalChange>,
    /// The time at which the lifespan ends.
    pub(crate) expires: Option<Instant>,
    /// The time at which the message had the age in `origin`.
    pub(crate) arrived: Instant,
    /// The revision of the last presence message that preceded this message.
    pub(crate) revision: u32,
}

impl Incoming {
    /// Returns the message with changed fields, if it is neither compressed nor translated.
    pub(crate) fn with_changed_fields(self) -> Self {
        match self.change.clone() {
            Some(change) => Self { payload: change.apply(self.payload), ..self },
            None => self,
        }
    }
}

impl JobResult {
    /// Returns the payload of a message.
    pub(crate) fn message(&self) -> Option<&Bytes> {
        match self {
            Self::Encoded { message: Outgoing { payload, .. }, .. }
            | Self::Decoded(Incoming { payload, .. }) => Some(payload),
            _ => None,
        }
    }
}

/// Returns the size that a compressed payload claims to have when decompressed (RFC 8878,
/// 3.1.1.4), or `max_message` if it claims none.
pub(super) fn claimed_size(payload: &[u8], max_message: usize) -> usize {
    let claimed = zstd::zstd_safe::get_frame_content_size(payload).ok().flatten();
    claimed.and_then(|n| usize::try_from(n).ok()).unwrap_or(max_message)
}

/// Returns the number of bytes for which a compressed payload is charged before it is decompressed:
/// the size that it claims, at least its own length and at most `max_message`. The codec produces
/// no more than the claimed size.
pub(crate) fn decompressed_size(payload: &[u8], max_message: usize) -> usize {
    claimed_size(payload, max_message).min(max_message).max(payload.len())
}
