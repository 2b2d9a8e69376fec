// SPDX-License-Identifier: Apache-2.0
//! The kinds of messages that share an outbox and an inbox.

/// The channel of control messages in DATA frames.
const CONTROL_CHANNEL: u64 = 0;

/// What a message belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Traffic {
    /// Control messages.
    Control,
    /// A topic, by the number of its channel.
    Topic(u64),
    /// Parity of the frames of a topic.
    Parity(u64),
    /// Relayed packets of a priority.
    Relayed(u8),
}

impl Traffic {
    /// The traffic of DATA frames with this channel number.
    pub(crate) fn of_data(channel: u64) -> Self {
        if channel == CONTROL_CHANNEL { Self::Control } else { Self::Topic(channel) }
    }

    /// The number of the traffic's channel in frames.
    pub(crate) fn channel(self) -> u64 {
        match self {
            Self::Control => CONTROL_CHANNEL,
            Self::Topic(channel) | Self::Parity(channel) => channel,
            Self::Relayed(priority) => priority.into(),
        }
    }
}
