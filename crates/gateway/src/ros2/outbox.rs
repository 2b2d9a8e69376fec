// SPDX-License-Identifier: Apache-2.0
//! Messages for local subscribers: one queue for each peer, in round robin. Pure.

use std::collections::{BTreeMap, VecDeque};

/// Maximum number of messages queued for one peer, which can send five thousand in a second.
pub const MAX_QUEUED: usize = 8192;
/// Maximum total bytes of these messages: a quarter of the limit for all peers. A single larger message
/// is queued too.
pub const MAX_BYTES: usize = crate::backlog::MAX_BYTES / 4;

#[derive(Debug)]
pub struct Outbox<M> {
    /// The peers with queued messages; `None` is this node itself.
    peers: BTreeMap<Option<u32>, Queue<M>>,
    /// The peers with messages, in the order of service.
    order: VecDeque<Option<u32>>,
}

#[derive(Debug)]
struct Queue<M> {
    messages: VecDeque<(usize, M)>,
    bytes: usize,
}

impl<M> Default for Outbox<M> {
    fn default() -> Self {
        Self { peers: BTreeMap::new(), order: VecDeque::new() }
    }
}

impl<M> Outbox<M> {
    /// Queues a message of a peer; `Err` returns it if the peer's queue is full.
    pub fn push(&mut self, peer: Option<u32>, bytes: usize, message: M) -> Result<(), M> {
        let order = &mut self.order;
        let queue = self.peers.entry(peer).or_insert_with(|| {
            order.push_back(peer);
            Queue { messages: VecDeque::new(), bytes: 0 }
        });
        let queued = queue.messages.len();
        if queued >= MAX_QUEUED || (queued > 0 && queue.bytes + bytes > MAX_BYTES) {
            return Err(message);
        }
        queue.bytes += bytes;
        queue.messages.push_back((bytes, message));
        Ok(())
    }

    /// The peer whose last matching message is furthest back in its queue.
    pub fn peer_of_last_match(&self, matches: impl Fn(&M) -> bool) -> Option<Option<u32>> {
        let last =
            |queue: &Queue<M>| queue.messages.iter().rposition(|(_, queued)| matches(queued));
        let all = self.peers.iter().filter_map(|(peer, queue)| Some((last(queue)?, *peer)));
        all.max().map(|(_, peer)| peer)
    }

    /// The oldest message of the next peer.
    pub fn next(&mut self) -> Option<M> {
        let peer = self.order.pop_front()?;
        let queue = self.peers.get_mut(&peer)?;
        let (bytes, message) = queue.messages.pop_front()?;
        queue.bytes -= bytes;
        if queue.messages.is_empty() {
            self.peers.remove(&peer);
        } else {
            self.order.push_back(peer);
        }
        Some(message)
    }

    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_take_turns_in_their_own_order() {
        let mut outbox = Outbox::default();
        let flood = (0..1000).map(|number| (1, number));
        for message in flood.chain([(2, 0), (2, 1), (3, 0)]) {
            outbox.push(Some(message.0), 1, message).unwrap();
        }
        let all: Vec<(u32, u32)> = std::iter::from_fn(|| outbox.next()).collect();
        assert_eq!(all[..6], [(1, 0), (2, 0), (3, 0), (1, 1), (2, 1), (1, 2)]);
        assert!(all[5..].iter().map(|it| it.1).eq(2..1000));
        assert!(outbox.is_empty() && outbox.peers.is_empty());
    }

    #[test]
    fn the_peer_with_the_last_matching_message_is_found() {
        let mut outbox = Outbox::default();
        for (peer, message) in [(1, 'a'), (1, 'b'), (2, 'b'), (2, 'b'), (2, 'b'), (2, 'a')] {
            outbox.push(Some(peer), 1, message).unwrap();
        }
        assert_eq!(outbox.peer_of_last_match(|it| *it == 'a'), Some(Some(2)));
        assert_eq!(outbox.peer_of_last_match(|it| *it == 'c'), None);
        outbox.push(Some(1), 1, 'b').unwrap();
        assert_eq!(outbox.peer_of_last_match(|it| *it == 'b'), Some(Some(2)));
    }

    #[test]
    fn a_peer_can_fill_only_its_own_queue() {
        let mut outbox = Outbox::default();
        for number in 0..MAX_QUEUED {
            outbox.push(Some(1), 1, number).unwrap();
        }
        assert_eq!(outbox.push(Some(1), 1, 7), Err(7));
        outbox.push(Some(2), 2 * MAX_BYTES, 0).expect("one of any size");
        assert_eq!(outbox.push(Some(2), 1, 8), Err(8));
        outbox.push(Some(3), MAX_BYTES, 0).unwrap();
        while outbox.next().is_some() {}
        outbox.push(Some(2), MAX_BYTES, 0).expect("what was taken does not count");
    }
}
