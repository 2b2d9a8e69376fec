// SPDX-License-Identifier: Apache-2.0
//! How the messages of a channel use several links to one peer.

use crate::time::Duration;

/// Least priority of messages that must not wait for bulk data, the limit of video in
/// [`Marking::default`](crate::Marking).
pub(crate) const URGENT: u8 = 140;

/// A message departs from the configured order of links only for a link on which it arrives at least this
/// much earlier. A smaller gain is within the jitter of timers, and changes of the link reorder messages.
pub const SWITCH_MARGIN: Duration = Duration::from_micros(500);

/// The links that carry a message. Each packet is assigned when it is sent, not when its message is
/// queued. With one usable link, all policies are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LinkPolicy {
    /// The link on which the whole message is expected to arrive first.
    #[default]
    Best,
    /// One link for each message, chosen at random with a probability proportional to the goodput
    /// of the links (as in RCom).
    Weighted,
    /// All links: the fragments of a message are divided so that they arrive at the same time.
    Stripe,
    /// Copies on this many links. The first one to arrive is delivered, and the receiver drops the
    /// others.
    Duplicate(u8),
}

impl LinkPolicy {
    /// Name in statistics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Best => "best",
            Self::Weighted => "weighted",
            Self::Stripe => "stripe",
            Self::Duplicate(_) => "duplicate",
        }
    }

    /// The policy of that name in statistics, with two copies for `duplicate`.
    pub fn from_name(name: &str) -> Option<Self> {
        let all = [Self::Best, Self::Weighted, Self::Stripe, Self::Duplicate(2)];
        all.into_iter().find(|policy| policy.as_str() == name)
    }

    /// The policy for messages of this priority. Commands are small and must not wait for the detection of a
    /// lost link: they are sent in two copies. Bulk data needs the rate of all links. For other messages the
    /// fastest link suffices. The limits are those of voice and video in
    /// [`Marking::default`](crate::Marking).
    pub fn of_priority(priority: u8) -> Self {
        match priority {
            210.. => Self::Duplicate(2),
            URGENT.. => Self::Best,
            _ => Self::Stripe,
        }
    }
}

/// A set of links to one peer, by their [numbers](crate::LinkView::number).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LinkSet(u16);

impl LinkSet {
    /// The set with the links of these numbers. Numbers from 16 up do not exist.
    pub fn from_numbers(numbers: impl IntoIterator<Item = u8>) -> Self {
        Self(numbers.into_iter().filter(|number| *number < 16).fold(0, |set, it| set | 1 << it))
    }

    /// Whether the set has no links.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether the set has the link of this number.
    pub fn contains(self, number: u8) -> bool {
        number < 16 && self.0 & 1 << number != 0
    }
}

/// How the messages of a channel use the links to the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LinkUse {
    /// The choice among the usable links.
    pub policy: LinkPolicy,
    /// If several links lead to the peer, only these carry the messages; `None`: all links may.
    pub only: Option<LinkSet>,
    /// The links that carry the messages only while no other link can.
    pub avoid: LinkSet,
    /// A link whose allowance is [spent](crate::LinkView::spent) still carries the messages.
    pub over_budget: bool,
}

impl LinkUse {
    /// Whether the link of this number may carry the messages.
    pub(crate) fn allows(&self, number: u8, spent: bool) -> bool {
        self.allows_spent(spent) && self.only.is_none_or(|only| only.contains(number))
    }

    /// Whether a link may carry the messages, depending on whether its allowance is spent.
    pub(crate) fn allows_spent(&self, spent: bool) -> bool {
        self.over_budget || !spent
    }
}
