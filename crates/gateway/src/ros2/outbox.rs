// SPDX-License-Identifier: Apache-2.0
//! Messages on their way to local subscribers: a queue for each peer, served in turn. Pure.

use std::collections::{BTreeMap, VecDeque};

/// Messages of one peer that may wait. A peer may send five thousand in a second.
pub const MAX_WAITING: usize = 8192;
/// Bytes of them, unless it is one message alone: a fourth of what may wait of all peers.
pub const MAX_BYTES: usize = crate::backlog::MAX_BYTES / 4;

/// All messages that wait.
#[derive(Debug)]
pub struct Outbox<M> {
    /// Those of which messages wait.
    peers: BTreeMap<u32, Queue<M>>,
    /// The same peers; the first has the next turn.
    turns: VecDeque<u32>,
}

#[derive(Debug)]
struct Queue<M> {
    /// With their size.
    messages: VecDeque<(usize, M)>,
    bytes: usize,
}

impl<M> Default for Outbox<M> {
    fn default() -> Self {
        Self { peers: BTreeMap::new(), turns: VecDeque::new() }
    }
}

impl<M> Outbox<M> {
    /// Takes a message of a peer in; `Err` gives it back when too much of that peer waits.
    pub fn push(&mut self, peer: u32, bytes: usize, message: M) -> Result<(), M> {
        let turns = &mut self.turns;
        let queue = self.peers.entry(peer).or_insert_with(|| {
            turns.push_back(peer);
            Queue { messages: VecDeque::new(), bytes: 0 }
        });
        let waiting = queue.messages.len();
        if waiting >= MAX_WAITING || (waiting > 0 && queue.bytes + bytes > MAX_BYTES) {
            return Err(message);
        }
        queue.bytes += bytes;
        queue.messages.push_back((bytes, message));
        Ok(())
    }

    /// The peer whose last waiting message of this kind is furthest from its turn.
    pub fn last_with(&self, is_it: impl Fn(&M) -> bool) -> Option<u32> {
        let last = |queue: &Queue<M>| queue.messages.iter().rposition(|(_, it)| is_it(it));
        let all = self.peers.iter().filter_map(|(peer, queue)| Some((last(queue)?, *peer)));
        all.max().map(|(_, peer)| peer)
    }

    /// The oldest message of the peer that has its turn.
    pub fn next(&mut self) -> Option<M> {
        let peer = self.turns.pop_front()?;
        let queue = self.peers.get_mut(&peer)?;
        let (bytes, message) = queue.messages.pop_front()?;
        queue.bytes -= bytes;
        if queue.messages.is_empty() {
            self.peers.remove(&peer);
        } else {
            self.turns.push_back(peer);
        }
        Some(message)
    }

    /// Whether no message waits.
    pub fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_take_turns_and_each_keeps_its_order() {
        let mut outbox = Outbox::default();
        let flood = (0..1000).map(|number| (1, number));
        for message in flood.chain([(2, 0), (2, 1), (3, 0)]) {
            outbox.push(message.0, 1, message).unwrap();
        }
        let all: Vec<(u32, u32)> = std::iter::from_fn(|| outbox.next()).collect();
        assert_eq!(all[..6], [(1, 0), (2, 0), (3, 0), (1, 1), (2, 1), (1, 2)]);
        assert!(all[5..].iter().map(|it| it.1).eq(2..1000));
        assert!(outbox.is_empty() && outbox.peers.is_empty());
    }

    #[test]
    fn the_last_of_a_kind_is_found_whoever_sent_it() {
        let mut outbox = Outbox::default();
        for (peer, message) in [(1, 'a'), (1, 'b'), (2, 'b'), (2, 'b'), (2, 'b'), (2, 'a')] {
            outbox.push(peer, 1, message).unwrap();
        }
        assert_eq!(outbox.last_with(|it| *it == 'a'), Some(2));
        assert_eq!(outbox.last_with(|it| *it == 'c'), None);
        outbox.push(1, 1, 'b').unwrap();
        assert_eq!(outbox.last_with(|it| *it == 'b'), Some(2));
    }

    #[test]
    fn a_peer_fills_its_own_queue_alone_in_number_and_in_bytes() {
        let mut outbox = Outbox::default();
        for number in 0..MAX_WAITING {
            outbox.push(1, 1, number).unwrap();
        }
        assert_eq!(outbox.push(1, 1, 7), Err(7));
        outbox.push(2, 2 * MAX_BYTES, 0).expect("one of any size");
        assert_eq!(outbox.push(2, 1, 8), Err(8));
        outbox.push(3, MAX_BYTES, 0).unwrap();
        while outbox.next().is_some() {}
        outbox.push(2, MAX_BYTES, 0).expect("what was taken does not count");
    }
}
