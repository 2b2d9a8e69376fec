// SPDX-License-Identifier: Apache-2.0
//! Events for the application, and their queue.

use crate::address::Place;
use crate::crypto::keys::PublicKey;
use crate::delivery::inbox::Received;
use crate::ids::{ChannelId, LinkId, PeerId};
use crate::limits::{EVENT_BYTES, EVENTS};
use crate::wire::control::OfferedTopic;
use crate::wire::packet::Verdict;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

/// An event for the application. Drain events with [`crate::Endpoint::poll_event`].
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The first link to the peer came up.
    PeerUp {
        /// The peer.
        peer: PeerId,
        /// The session is new: the peer's earlier channels are gone until it offers them again.
        new_session: bool,
    },
    /// The last link to the peer went down, or it said goodbye.
    PeerDown {
        /// The peer.
        peer: PeerId,
        /// Whether the peer said goodbye. If not, packets from the peer stopped arriving.
        said_goodbye: bool,
    },
    /// A goodbye of either node ended the session: all channels of the peer are gone, and the peer
    /// is subscribed to none of ours. Follows [`Event::PeerDown`].
    PeerLeft {
        /// The peer.
        peer: PeerId,
    },
    /// A link came up.
    LinkUp {
        /// The link.
        link: LinkId,
    },
    /// A link went down.
    LinkDown {
        /// The link.
        link: LinkId,
    },
    /// The available rate of a link is known, or has changed by more than a quarter since the last
    /// report. Reported at most four times a second, for sources that can adapt their rate.
    LinkRate {
        /// The link.
        link: LinkId,
        /// The rate in bits per second of IP packets; see
        /// [`LinkView::available_bps`](crate::LinkView::available_bps).
        available_bps: Option<u64>,
    },
    /// The address of a peer has changed.
    LinkMoved {
        /// The link.
        link: LinkId,
        /// The address to which the link leads now.
        to: Place,
    },
    /// The peer may be reached directly at these addresses.
    /// [`LinkMut::try_address`](crate::LinkMut::try_address) tries them.
    Candidates {
        /// The peer.
        peer: PeerId,
        /// The link that a direct path belongs to.
        link: LinkId,
        /// The addresses: at most [`MAX_CANDIDATES`](crate::wire::address::MAX_CANDIDATES). A lying
        /// peer may name anybody's addresses.
        addresses: Vec<SocketAddr>,
    },
    /// The peer offers a topic, or changed the offer.
    Offered {
        /// The peer.
        peer: PeerId,
        /// The channel to which the application may subscribe.
        channel: ChannelId,
        /// The topic.
        topic: OfferedTopic,
        /// The definition of its type.
        definition: Arc<str>,
    },
    /// The peer closed a channel.
    Withdrawn {
        /// The peer.
        peer: PeerId,
        /// The channel.
        channel: ChannelId,
    },
    /// The peer subscribed to a channel offered to it, or ended the subscription.
    Wanted {
        /// The peer.
        peer: PeerId,
        /// The channel.
        channel: ChannelId,
        /// Whether it is subscribed.
        wanted: bool,
    },
    /// The peer refused a channel offered to it.
    Refused {
        /// The peer.
        peer: PeerId,
        /// The channel.
        channel: ChannelId,
        /// Text for the operator.
        reason: String,
    },
    /// A complete message arrived.
    Message {
        /// The sender.
        peer: PeerId,
        /// The channel.
        channel: ChannelId,
        /// The message.
        message: Received,
    },
    /// A notice for the operator.
    Notice(Notice),
}

/// Queued events, in one queue for each peer. Queues are served in round robin, so that a peer with
/// many events delays those of others by one event at a time.
#[derive(Debug, Default)]
pub(crate) struct Events {
    /// Queue 0 has the events without a peer. Queue n + 1 has those of peer n.
    queues: Vec<Queue>,
    /// Indices of the queues that are not empty, in the order of service.
    ready: VecDeque<usize>,
}

#[derive(Debug, Default)]
struct Queue {
    events: VecDeque<Event>,
    /// Payload bytes of the queued messages.
    bytes: usize,
}

fn payload_bytes(event: &Event) -> usize {
    if let Event::Message { message, .. } = event { message.payload.len() } else { 0 }
}

fn queue_index(peer: Option<PeerId>) -> usize {
    peer.map_or(0, |peer| peer.0 as usize + 1)
}

impl Events {
    pub(crate) fn push(&mut self, peer: Option<PeerId>, event: Event) {
        let queue_index = queue_index(peer);
        if self.queues.len() <= queue_index {
            self.queues.resize_with(queue_index + 1, Queue::default);
        }
        let queue = &mut self.queues[queue_index];
        if queue.events.is_empty() {
            self.ready.push_back(queue_index);
        }
        queue.bytes += payload_bytes(&event);
        queue.events.push_back(event);
    }

    /// The next event, and the peer that it concerns or that caused it.
    pub(crate) fn pop(&mut self) -> Option<(Option<PeerId>, Event)> {
        let queue_index = self.ready.pop_front()?;
        let queue = &mut self.queues[queue_index];
        let event = queue.events.pop_front()?;
        queue.bytes -= payload_bytes(&event);
        if !queue.events.is_empty() {
            self.ready.push_back(queue_index);
        }
        let peer = queue_index.checked_sub(1).map(|index| PeerId(index as u32));
        Some((peer, event))
    }

    /// Whether the queue of this peer, or of none, has space.
    pub(crate) fn has_room(&self, peer: Option<PeerId>) -> bool {
        let fits = |it: &Queue| it.events.len() < EVENTS && it.bytes < EVENT_BYTES;
        self.queues.get(queue_index(peer)).is_none_or(fits)
    }

    pub(crate) fn forget(&mut self, peer: PeerId) {
        let queue_index = queue_index(Some(peer));
        if let Some(queue) = self.queues.get_mut(queue_index) {
            *queue = Queue::default();
        }
        self.ready.retain(|other| *other != queue_index);
    }
}

/// Why there is no direct path, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NoPath {
    /// Neither end receives packets of the other.
    Closed,
    /// A relay sees both ends at the same address: the router there passes nothing from one to the other.
    SameAddress,
    /// There was a path, but it ended.
    Ended,
}

/// A notice for the operator: the configuration of the nodes is at fault.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Notice {
    /// An initiation has the static key of no peer.
    UnknownKey {
        /// The name in the initiation.
        name: String,
        /// The key.
        key: PublicKey,
        /// The address of the initiator.
        from: Place,
        /// Whether a peer has this name, with another key.
        known_name: bool,
    },
    /// Initiations are for another key than ours, or forged, while a peer is away.
    OtherKey {
        /// The peer expected at that address, if there is one.
        name: Option<String>,
        /// The address of the initiator.
        from: Place,
    },
    /// A peer has another name than this node's configuration gives it.
    OtherName {
        /// The name in the configuration.
        name: String,
        /// The name in the initiation.
        theirs: String,
        /// The address of the initiator.
        from: Place,
    },
    /// A node uses another version of the format.
    Version {
        /// The address.
        from: Place,
        /// The version.
        theirs: u8,
        /// This node's version.
        ours: u8,
    },
    /// Two nodes have the same key: a peer's, or our own.
    Twins {
        /// The peer's name in the configuration; our own name if the key is ours.
        name: String,
        /// The address of the initiator.
        from: Place,
        /// The address of the other node; `None` if it is this node.
        other: Option<Place>,
    },
    /// A peer refuses our initiations.
    TheyRefuse {
        /// The name.
        name: String,
        /// The address of the response.
        from: Place,
        /// The reason.
        verdict: Verdict,
    },
    /// A peer sends packets to be relayed without that right.
    NotRelayed {
        /// The name.
        name: String,
    },
    /// A peer sends packets to be relayed to a node that is no peer.
    UnknownEnd {
        /// The name of the neighbour that sent them.
        name: String,
    },
    /// Relayed packets travel in a loop.
    RelayLoop {
        /// The name of the neighbour that sent them.
        name: String,
    },
    /// No direct path to a peer behind a relay was found, although the peer seeks one as well.
    NoDirectPath {
        /// The name.
        name: String,
        /// Details of the cause.
        cause: NoPath,
    },
    /// Large packets on a link do not arrive, and smaller ones do.
    BlackHole {
        /// The name of the peer.
        name: String,
        /// The address to which the link leads.
        to: Place,
        /// The size of IP packets that do not arrive, in bytes.
        lost: usize,
        /// The size of IP packets that pass, in bytes.
        passes: usize,
    },
    /// A message was larger than this node allows.
    TooLarge {
        /// The name of its sender.
        peer: String,
        /// The topic.
        topic: String,
        /// The size of the message, in bytes.
        found: usize,
        /// The limit.
        allowed: usize,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Duration;

    fn wanted_event(peer: u32, channel: u64) -> Event {
        Event::Wanted { peer: PeerId(peer), channel: ChannelId(channel), wanted: true }
    }

    #[test]
    fn a_peer_with_many_events_delays_others_by_one_at_a_time() {
        let mut events = Events::default();
        (0..1000).for_each(|channel| events.push(Some(PeerId(3)), wanted_event(3, channel)));
        events.push(Some(PeerId(1)), wanted_event(1, 0));
        events.push(Some(PeerId(1)), wanted_event(1, 1));
        let first: Vec<_> = std::iter::from_fn(|| events.pop()).take(4).collect();
        let of = |peer, channel| (Some(PeerId(peer)), wanted_event(peer, channel));
        assert_eq!(first, [of(3, 0), of(1, 0), of(3, 1), of(1, 1)]);
        let rest: Vec<_> = std::iter::from_fn(|| events.pop()).collect();
        assert!(rest.iter().eq(&(2..1000).map(|channel| of(3, channel)).collect::<Vec<_>>()));
    }

    #[test]
    fn the_events_of_one_peer_are_bounded_in_number_and_bytes() {
        let mut events = Events::default();
        let (one, two) = (PeerId(1), PeerId(2));
        (0..EVENTS as u64).for_each(|channel| events.push(Some(one), wanted_event(1, channel)));
        assert!(!events.has_room(Some(one)) && events.has_room(Some(two)));
        let message = Received {
            source: 0,
            payload: vec![0; EVENT_BYTES].into(),
            encoded: false,
            age: Duration::ZERO,
        };
        events.push(Some(two), Event::Message { peer: two, channel: ChannelId(1), message });
        assert!(!events.has_room(Some(two)) && events.has_room(None));
        while events.pop().is_some() {}
        assert!(events.has_room(Some(one)) && events.has_room(Some(two)));
    }

    #[test]
    fn events_of_a_removed_peer_are_removed() {
        let mut events = Events::default();
        events.push(Some(PeerId(0)), wanted_event(0, 1));
        events.push(None, wanted_event(7, 1));
        events.forget(PeerId(0));
        events.forget(PeerId(9));
        assert_eq!(events.pop(), Some((None, wanted_event(7, 1))));
        assert_eq!(events.pop(), None);
        events.push(Some(PeerId(0)), wanted_event(0, 2));
        assert_eq!(events.pop(), Some((Some(PeerId(0)), wanted_event(0, 2))));
    }
}
