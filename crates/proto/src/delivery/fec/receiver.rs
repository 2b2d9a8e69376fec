// SPDX-License-Identifier: Apache-2.0
//! Recovers lost frames of one peer from parity symbols.

use super::{body_of, decode, symbol_of};
use crate::limits;
use crate::replay_window::ReplayWindow;
use crate::time::{Duration, Instant};
use crate::wire::frame::{BlockPlace, Data};
use crate::wire::parity::Parity;
use std::collections::{BTreeMap, HashMap};

/// A recovery is tried with up to this many symbols more than the least number. With two more, one
/// block in 16 million is not recovered (RFC 6330, section 1).
const MAX_EXTRA: usize = 2;

/// A frame that was recovered.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RecoveredFrame {
    /// The body of a DATA frame.
    body: Vec<u8>,
    /// Number of the block, and position in it.
    place: (u64, u8),
    block_age: Duration,
}

impl RecoveredFrame {
    /// Returns the frame with its present age; `None` if the sender put something else than this
    /// frame into the block.
    pub(crate) fn frame(&self, channel: u64) -> Option<(Data, &[u8])> {
        let (data, payload) = Data::parse_body(&self.body).ok()?;
        let place = data.place.filter(|place| (place.block, place.index) == self.place)?;
        let age = data.age + self.block_age.saturating_sub(place.since);
        (data.channel == channel).then_some((Data { age, ..data }, payload))
    }
}

/// The symbols of one block that have arrived.
#[derive(Debug)]
struct Block {
    /// Time of the block's first frame by our clock.
    began: Instant,
    last_symbol: Instant,
    /// Number of frames, and bytes of a parity symbol; known once a parity symbol has arrived.
    shape: Option<(u8, u16)>,
    frames: BTreeMap<u8, Vec<u8>>,
    parity: BTreeMap<u8, Vec<u8>>,
}

/// The received state of a block.
enum State {
    Waiting,
    /// The block needs no more symbols, or further symbols cannot help.
    Done(Vec<RecoveredFrame>),
}

impl Block {
    fn new(now: Instant, began: Instant) -> Self {
        let (frames, parity) = (BTreeMap::new(), BTreeMap::new());
        Self { began, last_symbol: now, shape: None, frames, parity }
    }

    fn bytes(&self) -> usize {
        self.frames.values().chain(self.parity.values()).map(Vec::len).sum()
    }

    /// Whether no symbol contradicts the others.
    fn is_sound(&self) -> bool {
        let Some((sources, bytes)) = self.shape else { return true };
        self.frames.iter().all(|(index, it)| *index < sources && it.len() <= bytes.into())
    }

    fn state(&self, number: u64, now: Instant) -> State {
        let Some((sources, bytes)) = self.shape else { return State::Waiting };
        let (needed, found) = (usize::from(sources), self.frames.len() + self.parity.len());
        if self.frames.len() == needed || !self.is_sound() {
            return State::Done(Vec::new());
        }
        if found < needed {
            return State::Waiting;
        }
        let (frames, parity) = (numbered_symbols(&self.frames), numbered_symbols(&self.parity));
        match decode(sources, bytes, frames, parity) {
            Some(decoded) => State::Done(self.missing_frames(number, &decoded, now)),
            None if found < needed + MAX_EXTRA => State::Waiting,
            None => State::Done(Vec::new()),
        }
    }

    /// Returns the frames of a decoded block that did not arrive.
    fn missing_frames(&self, number: u64, decoded: &[u8], now: Instant) -> Vec<RecoveredFrame> {
        let Some((_, bytes)) = self.shape else { return Vec::new() };
        let block_age = now.since(self.began);
        let symbols = (0u8..).zip(decoded.chunks(bytes.into()));
        let missing = symbols.filter(|(index, _)| !self.frames.contains_key(index));
        let bodies = missing.filter_map(|(index, symbol)| Some((index, body_of(symbol)?)));
        let frame = |(index, body): (u8, &[u8])| RecoveredFrame {
            body: body.to_vec(),
            place: (number, index),
            block_age,
        };
        bodies.map(frame).collect()
    }
}

fn numbered_symbols(symbols: &BTreeMap<u8, Vec<u8>>) -> impl Iterator<Item = (u8, &[u8])> {
    symbols.iter().map(|(index, symbol)| (*index, symbol.as_slice()))
}

/// Blocks of one peer in which frames may be missing.
#[derive(Debug, Default)]
pub(crate) struct Blocks {
    /// By channel and number.
    open: BTreeMap<(u64, u64), Block>,
    bytes: usize,
    /// The blocks of each channel that need no more symbols.
    done: HashMap<u64, Box<ReplayWindow>>,
}

impl Blocks {
    /// Adds a frame of a block that arrived. Returns the frames that can now be recovered. `transit` is the
    /// time of the frame on the path.
    pub(crate) fn add_frame(
        &mut self,
        now: Instant,
        transit: Duration,
        (data, payload): (&Data, &[u8]),
        place: BlockPlace,
    ) -> Vec<RecoveredFrame> {
        let Some(symbol) = symbol_of(data, payload) else { return Vec::new() };
        let began = now.before(place.since + transit);
        self.add(now, began, (data.channel, place.block), symbol.len(), |block| {
            block.frames.entry(place.index).or_insert(symbol);
        })
    }

    /// Adds a parity symbol that arrived on a channel. `age`: the time since the block began.
    pub(crate) fn add_parity(
        &mut self,
        now: Instant,
        age: Duration,
        channel: u64,
        (parity, symbol): (Parity, &[u8]),
    ) -> Vec<RecoveredFrame> {
        let Ok(bytes) = u16::try_from(symbol.len()) else { return Vec::new() };
        let shape = (parity.sources, bytes);
        self.add(now, now.before(age), (channel, parity.block), symbol.len(), |block| {
            if *block.shape.get_or_insert(shape) == shape {
                block.parity.entry(parity.index).or_insert_with(|| symbol.to_vec());
            }
        })
    }

    fn add(
        &mut self,
        now: Instant,
        began: Instant,
        key: (u64, u64),
        bytes: usize,
        insert: impl FnOnce(&mut Block),
    ) -> Vec<RecoveredFrame> {
        let is_done = self.done.get(&key.0).is_some_and(|done| done.contains(key.1));
        if is_done || bytes == 0 || bytes > limits::SYMBOL_BYTES {
            return Vec::new();
        }
        self.make_room(bytes, !self.open.contains_key(&key));
        let block = self.open.entry(key).or_insert_with(|| Block::new(now, began));
        let before = block.bytes();
        insert(block);
        // The symbol that was queued for the shortest time shows best when the block began.
        (block.began, block.last_symbol) = (block.began.max(began), now);
        self.bytes += block.bytes() - before;
        match block.state(key.1, now) {
            State::Waiting => Vec::new(),
            State::Done(recovered) => {
                self.close(key);
                recovered
            }
        }
    }

    fn close(&mut self, key: (u64, u64)) {
        self.bytes -= self.open.remove(&key).map_or(0, |block| block.bytes());
        self.done.entry(key.0).or_default().insert(key.1);
    }

    /// Gives up the blocks that have been without a symbol for longest, until the limits allow for one
    /// more symbol.
    fn make_room(&mut self, bytes: usize, begins: bool) {
        while self.bytes + bytes > limits::BLOCK_BYTES
            || begins && self.open.len() >= limits::BLOCKS
        {
            let oldest = self.open.iter().min_by_key(|(key, block)| (block.last_symbol, **key));
            let Some(oldest) = oldest.map(|(key, _)| *key) else { return };
            self.close(oldest);
        }
    }

    /// Forgets the blocks of a channel that is closed or no longer wanted.
    pub(crate) fn forget(&mut self, channel: u64) {
        let gone: Vec<_> = self.open.range((channel, 0)..=(channel, u64::MAX)).collect();
        let gone: Vec<_> = gone.into_iter().map(|(key, _)| *key).collect();
        gone.into_iter().for_each(|key| self.close(key));
        self.done.remove(&channel);
    }
}

#[cfg(test)]
mod tests {
    use super::super::encode;
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Frames of a block, ten milliseconds apart, each a message with this payload.
    fn frames(block: u64, count: u8) -> Vec<(Data, Vec<u8>)> {
        let frame = |index: u8| {
            let place = BlockPlace { block, index, since: MS * 10 * u32::from(index) };
            let (channel, number) = (7, u64::from(index) + 1);
            let (source, encoded, fragment) = (0, false, None);
            let age = MS * 2;
            let data = Data { channel, number, source, encoded, age, fragment, place: Some(place) };
            (data, vec![index; 100 + usize::from(index)])
        };
        (0..count).map(frame).collect()
    }

    fn parity(frames: &[(Data, Vec<u8>)], count: u32) -> Vec<Vec<u8>> {
        let symbols = frames.iter().map(|(data, payload)| symbol_of(data, payload).unwrap());
        encode(&symbols.collect::<Vec<_>>(), count)
    }

    fn at(ms: u64) -> Instant {
        Instant(0) + MS * 1000 + Duration::from_millis(ms)
    }

    /// Sends the frames that are not lost, and the parity after 100 ms; returns the recovered frames.
    fn receive(
        blocks: &mut Blocks,
        frames: &[(Data, Vec<u8>)],
        lost: &[u8],
        parity: &[Vec<u8>],
    ) -> Vec<RecoveredFrame> {
        let mut recovered = Vec::new();
        for (data, payload) in frames {
            let place = data.place.unwrap();
            if !lost.contains(&place.index) {
                let now = at(5) + place.since;
                recovered.extend(blocks.add_frame(now, MS * 5, (data, payload), place));
            }
        }
        let number = frames[0].0.place.unwrap().block;
        for (index, symbol) in (0..).zip(parity) {
            let header = Parity { block: number, sources: frames.len() as u8, index };
            recovered.extend(blocks.add_parity(at(105), MS * 105, 7, (header, symbol)));
        }
        recovered
    }

    #[test]
    fn lost_frames_are_recovered_with_their_age() {
        let mut blocks = Blocks::default();
        let sent = frames(1, 10);
        let recovered = receive(&mut blocks, &sent, &[2, 9], &parity(&sent, 4));
        let found: Vec<_> = recovered.iter().map(|it| it.frame(7).unwrap()).collect();
        // Frame 2 was sent 20 ms after the block began, when its message was 2 ms old.
        let ages: Vec<_> = found.iter().map(|(data, _)| data.age.as_millis()).collect();
        assert_eq!(ages, [105 - 20 + 2, 105 - 90 + 2]);
        assert!(found.iter().zip([2, 9]).all(|((_, payload), it)| *payload == sent[it].1));
        assert_eq!((blocks.open.len(), blocks.bytes), (0, 0));
        assert!(receive(&mut blocks, &sent, &[], &parity(&sent, 4)).is_empty(), "it is done");
        assert!(blocks.open.is_empty());
    }

    #[test]
    fn a_frame_of_another_channel_or_position_is_not_accepted() {
        let mut blocks = Blocks::default();
        let mut sent = frames(1, 10);
        let recovered = receive(&mut blocks, &sent, &[2], &parity(&sent, 1));
        assert!(recovered[0].frame(8).is_none());
        sent[2].0.place = sent[3].0.place;
        let other = parity(&sent, 2);
        sent.iter_mut().for_each(|(data, _)| data.place.as_mut().unwrap().block = 2);
        let recovered = receive(&mut blocks, &sent, &[2], &other);
        assert!(recovered.iter().all(|it| it.frame(7).is_none()));
    }

    #[test]
    fn contradictions_end_a_block() {
        let mut blocks = Blocks::default();
        let sent = frames(1, 10);
        for (data, payload) in &sent {
            blocks.add_frame(at(0), MS, (data, payload), data.place.unwrap());
        }
        let header = Parity { block: 1, sources: 4, index: 0 };
        assert!(blocks.add_parity(at(0), MS, 7, (header, &[1; 300])).is_empty());
        assert_eq!((blocks.open.len(), blocks.bytes), (0, 0), "more frames than it has");
        let header = Parity { block: 2, sources: 1, index: 0 };
        assert!(blocks.add_parity(at(0), MS, 7, (header, &[])).is_empty(), "an empty symbol");
        assert!(blocks.add_parity(at(0), MS, 7, (header, &vec![0; 70_000])).is_empty());
        assert!(blocks.open.is_empty());
    }

    #[test]
    fn memory_is_bounded() {
        let mut blocks = Blocks::default();
        for block in 1..3000 {
            for (data, payload) in &frames(block, 3) {
                blocks.add_frame(at(block), MS, (data, payload), data.place.unwrap());
            }
        }
        assert_eq!(blocks.open.len(), limits::BLOCKS);
        let symbol = vec![0; limits::SYMBOL_BYTES];
        for block in 3000..3500 {
            let header = Parity { block, sources: 128, index: 0 };
            blocks.add_parity(at(block), MS, 7, (header, &symbol));
            assert!(blocks.bytes <= limits::BLOCK_BYTES);
        }
        let sum: usize = blocks.open.values().map(Block::bytes).sum();
        assert_eq!(blocks.bytes, sum);
        blocks.forget(7);
        assert_eq!((blocks.open.len(), blocks.bytes), (0, 0));
    }
}
