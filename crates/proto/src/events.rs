// SPDX-License-Identifier: Apache-2.0
//! What an endpoint tells its application.

use crate::crypto::keys::PublicKey;
use crate::endpoint::{ChannelId, LinkId, PeerId};
use crate::place::Place;
use crate::receive::Received;
use crate::wire::control::OfferedTopic;
use crate::wire::packet::Verdict;
use std::sync::Arc;

/// Something the application should know. Drain with [`Endpoint::poll_event`].
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The first link to the peer came up.
    PeerUp {
        /// Which.
        peer: PeerId,
        /// The session is new: its earlier channels to us are gone until offered again.
        new_session: bool,
    },
    /// The last link to the peer went down, or it said goodbye.
    PeerDown {
        /// Which.
        peer: PeerId,
        /// It said goodbye; else it has fallen silent.
        said_goodbye: bool,
    },
    /// The session ended with a goodbye, the peer's or ours: all channels to us are gone, and
    /// none of ours is wanted. Follows [`Event::PeerDown`].
    PeerLeft {
        /// Which.
        peer: PeerId,
    },
    /// A link came up.
    LinkUp {
        /// Which.
        link: LinkId,
    },
    /// A link went down.
    LinkDown {
        /// Which.
        link: LinkId,
    },
    /// What a link has room for is known, or differs by more than a quarter from what was told
    /// last; told at most four times a second. Who makes data can make as much as fits.
    LinkRate {
        /// Which link.
        link: LinkId,
        /// What it lets go now, in bits per second of IP packets: see
        /// [`LinkView::available_bps`](crate::LinkView::available_bps).
        available_bps: Option<u64>,
    },
    /// A peer's address is another now.
    LinkMoved {
        /// Which link.
        link: LinkId,
        /// Where it leads now.
        to: Place,
    },
    /// The peer has a topic, or changed it.
    Offered {
        /// Who.
        peer: PeerId,
        /// Number to want it by.
        channel: ChannelId,
        /// What it is.
        topic: OfferedTopic,
        /// Definition of its type.
        definition: Arc<str>,
    },
    /// The peer has the topic no more.
    Withdrawn {
        /// Who.
        peer: PeerId,
        /// Its number.
        channel: ChannelId,
    },
    /// Whether the peer wants a channel offered to it.
    Wanted {
        /// Who.
        peer: PeerId,
        /// Its number.
        channel: ChannelId,
        /// Send, or stop.
        wanted: bool,
    },
    /// The peer cannot take a channel offered to it.
    Refused {
        /// Who.
        peer: PeerId,
        /// Its number.
        channel: ChannelId,
        /// For a person.
        reason: String,
    },
    /// A message arrived whole.
    Message {
        /// From whom.
        peer: PeerId,
        /// On which channel.
        channel: ChannelId,
        /// The message.
        message: Received,
    },
    /// Something a person should look at.
    Notice(Notice),
}

impl Event {
    /// The peer whose packet brought it about, where one did.
    pub fn sender(&self) -> Option<PeerId> {
        match self {
            Self::PeerUp { peer, .. }
            | Self::PeerLeft { peer }
            | Self::Offered { peer, .. }
            | Self::Withdrawn { peer, .. }
            | Self::Wanted { peer, .. }
            | Self::Refused { peer, .. }
            | Self::Message { peer, .. } => Some(*peer),
            Self::PeerDown { .. }
            | Self::LinkUp { .. }
            | Self::LinkDown { .. }
            | Self::LinkRate { .. }
            | Self::LinkMoved { .. }
            | Self::Notice(_) => None,
        }
    }
}

/// Something a person should look at: a fault in how the nodes are set up.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Notice {
    /// A node whose key is not among the peers' calls.
    UnknownKey {
        /// What it calls itself.
        name: String,
        /// Its key.
        key: PublicKey,
        /// Where it calls from.
        from: Place,
        /// Whether a peer has this name, with another key.
        known_name: bool,
    },
    /// Calls are for another key than ours, or forged, while a peer is away.
    OtherKey {
        /// The peer that is expected there; `None`: nobody in particular.
        name: Option<String>,
        /// Where they come from.
        from: Place,
    },
    /// A peer calls itself by another name than it has here.
    OtherName {
        /// Its name here.
        name: String,
        /// What it calls itself.
        theirs: String,
        /// Where it calls from.
        from: Place,
    },
    /// A node speaks another version of the format.
    Version {
        /// Where it calls from.
        from: Place,
        /// Its version.
        theirs: u8,
        /// Ours.
        ours: u8,
    },
    /// Two nodes have one key: a peer's, or our own.
    Twins {
        /// The peer's name here; our own if it is our key.
        name: String,
        /// Where the one calls from.
        from: Place,
        /// Where the other is; `None` if it is this node.
        other: Option<Place>,
    },
    /// A peer does not take our calls.
    TheyRefuse {
        /// Its name.
        name: String,
        /// Where it answers from.
        from: Place,
        /// Its reason.
        verdict: Verdict,
    },
    /// A peer sends packets for others, which it may not do here.
    NotRelayed {
        /// Its name.
        name: String,
    },
    /// A peer sends packets for a node that is no peer here.
    UnknownEnd {
        /// The name of the peer that sends them on this hop.
        name: String,
    },
    /// Packets for others pass from relay to relay in a circle.
    RelayLoop {
        /// The name of the peer that they came from.
        name: String,
    },
    /// A message was larger than allowed here.
    TooLarge {
        /// Who sent it.
        peer: String,
        /// On which topic.
        topic: String,
        /// Its size.
        found: usize,
        /// The most.
        allowed: usize,
    },
}
