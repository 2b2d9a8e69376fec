// SPDX-License-Identifier: Apache-2.0
//! What an endpoint tells its application.

use crate::address::Place;
use crate::crypto::keys::PublicKey;
use crate::delivery::inbox::Received;
use crate::ids::{ChannelId, LinkId, PeerId};
use crate::limits::{EVENT_BYTES, EVENTS};
use crate::wire::control::OfferedTopic;
use crate::wire::packet::Verdict;
use std::collections::VecDeque;
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

/// Events that wait for the application, in one queue for each peer: one that brings about many
/// delays those of the others by one at a time.
#[derive(Debug, Default)]
pub(crate) struct Events {
    /// Place 0 for those of no peer, then one place for each peer.
    queues: Vec<Queue>,
    /// Places of the queues that are not empty, whose turn is next first.
    ready: VecDeque<usize>,
}

#[derive(Debug, Default)]
struct Queue {
    events: VecDeque<Event>,
    /// Of the messages among them.
    bytes: usize,
}

fn bytes_of(event: &Event) -> usize {
    if let Event::Message { message, .. } = event { message.payload.len() } else { 0 }
}

fn place(peer: Option<PeerId>) -> usize {
    peer.map_or(0, |peer| peer.0 as usize + 1)
}

impl Events {
    pub(crate) fn push(&mut self, peer: Option<PeerId>, event: Event) {
        let place = place(peer);
        if self.queues.len() <= place {
            self.queues.resize_with(place + 1, Queue::default);
        }
        let queue = &mut self.queues[place];
        if queue.events.is_empty() {
            self.ready.push_back(place);
        }
        queue.bytes += bytes_of(&event);
        queue.events.push_back(event);
    }

    /// The next event, and the peer that it is about or that brought it about.
    pub(crate) fn pop(&mut self) -> Option<(Option<PeerId>, Event)> {
        let place = self.ready.pop_front()?;
        let queue = &mut self.queues[place];
        let event = queue.events.pop_front()?;
        queue.bytes -= bytes_of(&event);
        if !queue.events.is_empty() {
            self.ready.push_back(place);
        }
        let peer = place.checked_sub(1).map(|index| PeerId(index as u32));
        Some((peer, event))
    }

    /// Whether more of this peer, or of none, may wait.
    pub(crate) fn has_room(&self, peer: Option<PeerId>) -> bool {
        let fits = |it: &Queue| it.events.len() < EVENTS && it.bytes < EVENT_BYTES;
        self.queues.get(place(peer)).is_none_or(fits)
    }

    pub(crate) fn forget(&mut self, peer: PeerId) {
        let place = place(Some(peer));
        if let Some(queue) = self.queues.get_mut(place) {
            *queue = Queue::default();
        }
        self.ready.retain(|other| *other != place);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Duration;

    fn wanted(peer: u32, channel: u64) -> Event {
        Event::Wanted { peer: PeerId(peer), channel: ChannelId(channel), wanted: true }
    }

    #[test]
    fn a_peer_with_many_events_delays_others_by_one_at_a_time() {
        let mut events = Events::default();
        (0..1000).for_each(|channel| events.push(Some(PeerId(3)), wanted(3, channel)));
        events.push(Some(PeerId(1)), wanted(1, 0));
        events.push(Some(PeerId(1)), wanted(1, 1));
        let first: Vec<_> = std::iter::from_fn(|| events.pop()).take(4).collect();
        let of = |peer, channel| (Some(PeerId(peer)), wanted(peer, channel));
        assert_eq!(first, [of(3, 0), of(1, 0), of(3, 1), of(1, 1)]);
        let rest: Vec<_> = std::iter::from_fn(|| events.pop()).collect();
        assert!(rest.iter().eq(&(2..1000).map(|channel| of(3, channel)).collect::<Vec<_>>()));
    }

    #[test]
    fn what_waits_of_one_peer_is_bounded_in_number_and_bytes() {
        let mut events = Events::default();
        let (one, two) = (PeerId(1), PeerId(2));
        (0..EVENTS as u64).for_each(|channel| events.push(Some(one), wanted(1, channel)));
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
    fn what_was_forgotten_takes_no_turn() {
        let mut events = Events::default();
        events.push(Some(PeerId(0)), wanted(0, 1));
        events.push(None, wanted(7, 1));
        events.forget(PeerId(0));
        events.forget(PeerId(9));
        assert_eq!(events.pop(), Some((None, wanted(7, 1))));
        assert_eq!(events.pop(), None);
        events.push(Some(PeerId(0)), wanted(0, 2));
        assert_eq!(events.pop(), Some((Some(PeerId(0)), wanted(0, 2))));
    }
}
