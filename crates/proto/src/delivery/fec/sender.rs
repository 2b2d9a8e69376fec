// SPDX-License-Identifier: Apache-2.0
//! Makes blocks of the frames of a channel, and follows the fate of their symbols: a frame that was
//! lost needs no repair while its block may still be recovered.

use super::{encode, symbol_of};
use crate::delivery::{MessageId, Piece};
use crate::time::{Duration, Instant};
use crate::wire::frame::{BlockPlace, Data, MAX_BLOCK};
use crate::wire::parity::Parity;
use std::collections::{BTreeMap, HashMap};

/// A block ends with a message once it has this many frames. At 10 % loss and 60 % parity, 1 in 5000
/// messages is then lost; in a block of five, 1 in 400.
const MIN_BLOCK_FRAMES: usize = 10;
/// A block ends this long after its first frame: longer than ten messages at 50 Hz.
const MAX_WAIT: Duration = Duration::from_millis(250);
/// A block waits for at most the lifespan of its messages divided by this number.
const LIFESPAN_DIVISOR: u32 = 4;
/// Bytes that a parity frame has beyond a protected frame: its header and the length of the body.
pub(crate) const PARITY_OVERHEAD: usize = 24;

/// A frame that joins a block.
pub(crate) struct JoiningFrame<'a> {
    pub(crate) data: &'a Data,
    pub(crate) payload: &'a [u8],
    pub(crate) piece: &'a Piece,
    /// Bytes from the start of this piece to the end of the message.
    pub(crate) rest: u32,
    /// The lifespan of the message.
    pub(crate) lifespan: Option<Duration>,
}

impl JoiningFrame<'_> {
    /// The longest time that the block waits for further frames.
    fn max_wait(&self) -> Duration {
        self.lifespan.map_or(MAX_WAIT, |it| MAX_WAIT.min(it / LIFESPAN_DIVISOR))
    }
}

/// A block that is complete.
pub(crate) struct CompleteBlock {
    pub(crate) channel: u64,
    pub(crate) number: u64,
    pub(crate) began: Instant,
    /// The shortest lifespan of the messages in the block.
    pub(crate) lifespan: Option<Duration>,
    symbols: Vec<Vec<u8>>,
}

impl CompleteBlock {
    /// The payloads of its PARITY frames: `percent` of the number of frames, rounded up.
    pub(crate) fn parity(&self, percent: u8) -> Vec<Vec<u8>> {
        let count = (self.symbols.len() * usize::from(percent)).div_ceil(100);
        let count = count.min(u8::MAX.into()) as u32;
        let (block, sources) = (self.number, self.symbols.len() as u8);
        let symbols = (0u8..).zip(encode(&self.symbols, count));
        symbols.map(|(index, it)| Parity { block, sources, index }.with_header(&it)).collect()
    }
}

/// The block of a channel that new frames join.
#[derive(Debug)]
struct OpenBlock {
    began: Instant,
    ends: Instant,
    /// The shortest lifespan of its messages.
    lifespan: Option<Duration>,
    /// Maximum number of frames in the block. The frames of a large message are divided evenly among blocks.
    limit: usize,
    symbols: Vec<Vec<u8>>,
}

impl OpenBlock {
    fn new(now: Instant, first: &JoiningFrame<'_>) -> Self {
        let frames = first.rest.div_ceil(first.piece.len().max(1)) as usize;
        let blocks = frames.div_ceil(MAX_BLOCK.into()).max(1);
        let limit =
            if frames < MIN_BLOCK_FRAMES { MAX_BLOCK.into() } else { frames.div_ceil(blocks) };
        let (ends, lifespan) = (now + first.max_wait(), first.lifespan);
        Self { began: now, ends, lifespan, limit, symbols: Vec::new() }
    }
}

/// The blocks of one channel.
#[derive(Debug, Default)]
struct Channel {
    /// Number of the last block that is complete.
    last: u64,
    open: Option<OpenBlock>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Unknown,
    Acked,
    Lost,
    /// Lost and already being repaired.
    Repaired,
}

/// A parity symbol. Several packets may carry parts of it.
#[derive(Debug)]
struct ParitySymbol {
    message: MessageId,
    unacked_bytes: u32,
    fate: Fate,
}

/// The symbols of a block whose fate is not decided.
#[derive(Debug, Default)]
struct Symbols {
    frames: Vec<(Piece, Fate)>,
    /// The parity of the block, once the block is complete.
    parity: Option<Vec<ParitySymbol>>,
}

impl Symbols {
    fn fates(&self) -> impl Iterator<Item = Fate> {
        let parity = self.parity.iter().flatten().map(|symbol| symbol.fate);
        self.frames.iter().map(|(_, fate)| *fate).chain(parity)
    }

    fn count(&self, fate: Fate) -> usize {
        self.fates().filter(|it| *it == fate).count()
    }

    /// Whether the peer has all frames, or can recover those that it lacks.
    fn is_recovered(&self) -> bool {
        let Some(parity) = &self.parity else { return false };
        if self.count(Fate::Acked) < self.frames.len() {
            return false;
        }
        let frames = acked_positions(self.frames.iter().map(|(_, fate)| *fate));
        let parity = acked_positions(parity.iter().map(|symbol| symbol.fate));
        let sources = self.frames.len();
        frames.len() == sources
            || super::can_recover_all(sources as u8, frames.into_iter(), parity.into_iter())
    }

    /// Whether the peer cannot recover the frames.
    fn has_failed(&self) -> bool {
        let Some(parity) = &self.parity else { return false };
        self.count(Fate::Lost) + self.count(Fate::Repaired) > parity.len()
            || self.count(Fate::Unknown) == 0 && !self.is_recovered()
    }

    fn frames_with(&self, which: impl Fn(Fate) -> bool) -> Vec<Piece> {
        let frames = self.frames.iter().filter(|(_, fate)| which(*fate));
        frames.map(|(piece, _)| piece.clone()).collect()
    }

    /// Notes the fate of a piece. A parity symbol is acknowledged once all its parts are.
    fn set_fate(&mut self, place: usize, piece: &Piece, fate: Fate) {
        let frames = self.frames.len();
        if let Some((_, known)) = self.frames.get_mut(place) {
            *known = fate;
        } else if let Some(parity) = &mut self.parity
            && let Some(symbol) = place.checked_sub(frames).and_then(|place| parity.get_mut(place))
        {
            if fate == Fate::Acked {
                symbol.unacked_bytes = symbol.unacked_bytes.saturating_sub(piece.len());
            }
            if fate != Fate::Acked || symbol.unacked_bytes == 0 {
                symbol.fate = fate;
            }
        }
    }
}

/// The positions of the symbols that were acknowledged.
fn acked_positions(fates: impl Iterator<Item = Fate>) -> Vec<u8> {
    (0u8..).zip(fates).filter(|(_, fate)| *fate == Fate::Acked).map(|(index, _)| index).collect()
}

/// What an acknowledgement decides about other pieces.
#[derive(Debug, Default)]
pub(crate) struct AckEffects {
    /// The pieces that the peer has or recovers.
    pub(crate) recovered: Vec<Piece>,
    /// The pieces to be repaired.
    pub(crate) lost: Vec<Piece>,
}

/// Channel and number of a block.
type Key = (u64, u64);

/// The blocks to one peer.
#[derive(Debug, Default)]
pub(crate) struct Blocks {
    channels: BTreeMap<u64, Channel>,
    undecided_blocks: HashMap<Key, Symbols>,
    /// The block of the piece that begins at this byte of a message, and its place in the block.
    places: HashMap<(MessageId, u32), (Key, usize)>,
}

impl Blocks {
    /// The place of the next frame of a channel.
    pub(crate) fn next_place(&self, now: Instant, channel: u64) -> BlockPlace {
        let channel = self.channels.get(&channel);
        let block = channel.map_or(0, |it| it.last) + 1;
        let open = channel.and_then(|it| it.open.as_ref());
        let (index, since) = open
            .map_or((0, Duration::ZERO), |open| (open.symbols.len() as u8, now.since(open.began)));
        BlockPlace { block, index, since }
    }

    /// Adds the frame at [`Self::next_place`]; returns the block if the frame completes it.
    pub(crate) fn join(
        &mut self,
        now: Instant,
        channel: u64,
        frame: &JoiningFrame<'_>,
    ) -> Option<CompleteBlock> {
        let symbol = symbol_of(frame.data, frame.payload)?;
        let blocks = self.channels.entry(channel).or_default();
        let key = (channel, blocks.last + 1);
        let open = blocks.open.get_or_insert_with(|| OpenBlock::new(now, frame));
        let place = (key, open.symbols.len());
        open.symbols.push(symbol);
        open.ends = open.ends.min(now + frame.max_wait());
        open.lifespan = open.lifespan.into_iter().chain(frame.lifespan).min();
        let count = open.symbols.len();
        let ends_message = frame.rest <= frame.piece.len();
        let is_complete = count >= open.limit || ends_message && count >= MIN_BLOCK_FRAMES;
        let piece = frame.piece.clone();
        self.places.insert((piece.message, piece.range.start), place);
        self.undecided_blocks.entry(key).or_default().frames.push((piece, Fate::Unknown));
        if is_complete { self.complete(channel) } else { None }
    }

    fn complete(&mut self, channel: u64) -> Option<CompleteBlock> {
        let blocks = self.channels.get_mut(&channel)?;
        let open = blocks.open.take()?;
        blocks.last += 1;
        let OpenBlock { began, lifespan, symbols, .. } = open;
        Some(CompleteBlock { channel, number: blocks.last, began, lifespan, symbols })
    }

    /// When the next block ends without further frames.
    pub(crate) fn next_end(&self) -> Option<Instant> {
        self.block_ends().min().map(|(at, _)| at)
    }

    fn block_ends(&self) -> impl Iterator<Item = (Instant, u64)> {
        self.channels.iter().filter_map(|(it, blocks)| Some((blocks.open.as_ref()?.ends, *it)))
    }

    /// Completes a block whose time has passed.
    pub(crate) fn end_due_block(&mut self, now: Instant) -> Option<CompleteBlock> {
        let (_, channel) = self.block_ends().min().filter(|(at, _)| *at <= now)?;
        self.complete(channel)
    }

    /// Records that the parity of a complete block is queued as these messages, each of `bytes`
    /// bytes.
    pub(crate) fn on_parity_queued(
        &mut self,
        block: &CompleteBlock,
        messages: Vec<MessageId>,
        bytes: u32,
    ) {
        let key = (block.channel, block.number);
        let Some(symbols) = self.undecided_blocks.get_mut(&key) else { return };
        for (place, id) in (symbols.frames.len()..).zip(&messages) {
            self.places.insert((*id, 0), (key, place));
        }
        let symbol = |message| ParitySymbol { message, unacked_bytes: bytes, fate: Fate::Unknown };
        symbols.parity = Some(messages.into_iter().map(symbol).collect());
        // All frames of the block may have been acknowledged or repaired before.
        let _ = self.lost_pieces_if_failed(key);
    }

    /// Returns the lost pieces of a block if the block has failed.
    fn lost_pieces_if_failed(&mut self, key: Key) -> Vec<Piece> {
        if !self.undecided_blocks[&key].has_failed() {
            return Vec::new();
        }
        self.remove_block(key).frames_with(|fate| fate == Fate::Lost)
    }

    /// Records that a piece was acknowledged. Returns what follows for other pieces.
    pub(crate) fn on_acked(&mut self, piece: &Piece) -> AckEffects {
        let Some(key) = self.set_fate(piece, Fate::Acked) else {
            return AckEffects::default();
        };
        if self.undecided_blocks[&key].is_recovered() {
            let recovered = self.remove_block(key).frames_with(|fate| fate != Fate::Acked);
            AckEffects { recovered, lost: Vec::new() }
        } else {
            AckEffects { recovered: Vec::new(), lost: self.lost_pieces_if_failed(key) }
        }
    }

    /// Records that a piece was lost. Returns the pieces to be repaired: none while the block may still be
    /// recovered. If the block has no parity yet, the piece is repaired immediately, since the repair arrives
    /// before the parity would.
    pub(crate) fn on_lost(&mut self, piece: &Piece) -> Vec<Piece> {
        let block = self.place(piece).and_then(|(key, _)| self.undecided_blocks.get(&key));
        if block.is_some_and(|it| it.parity.is_some())
            && let Some(key) = self.set_fate(piece, Fate::Lost)
        {
            return self.lost_pieces_if_failed(key);
        }
        self.set_fate(piece, Fate::Repaired);
        self.places.remove(&(piece.message, piece.range.start));
        vec![piece.clone()]
    }

    /// Records that a message with parity will not be sent. Returns the pieces to be repaired.
    pub(crate) fn on_parity_dropped(&mut self, parity: MessageId) -> Vec<Piece> {
        match self.places.contains_key(&(parity, 0)) {
            true => self.on_lost(&Piece { message: parity, range: 0..1 }),
            false => Vec::new(),
        }
    }

    /// The block of a piece, and the place of the piece in the block. All parts of a parity symbol
    /// have the same place.
    fn place(&self, piece: &Piece) -> Option<(Key, usize)> {
        let at = |start| self.places.get(&(piece.message, start)).copied();
        let is_parity = |(key, place): &(Key, usize)| {
            self.undecided_blocks.get(key).is_some_and(|symbols| *place >= symbols.frames.len())
        };
        at(piece.range.start).or_else(|| at(0).filter(is_parity))
    }

    /// Notes the fate of a piece, if the fate of its block is not decided yet. Returns the block.
    fn set_fate(&mut self, piece: &Piece, fate: Fate) -> Option<Key> {
        let (key, place) = self.place(piece)?;
        self.undecided_blocks.get_mut(&key)?.set_fate(place, piece, fate);
        Some(key)
    }

    /// Forgets a block: from now on, each of its pieces counts alone.
    fn remove_block(&mut self, key: Key) -> Symbols {
        let symbols = self.undecided_blocks.remove(&key).unwrap_or_default();
        for (piece, _) in &symbols.frames {
            self.places.remove(&(piece.message, piece.range.start));
        }
        for symbol in symbols.parity.iter().flatten() {
            self.places.remove(&(symbol.message, 0));
        }
        symbols
    }

    /// Gives up the parity of all blocks of a channel. Returns the pieces to be repaired.
    pub(crate) fn abandon(&mut self, channel: u64) -> Vec<Piece> {
        let keys = self.undecided_blocks.keys().copied().filter(|(it, _)| *it == channel);
        let keys: Vec<_> = keys.collect();
        let symbols = keys.into_iter().map(|key| self.remove_block(key));
        let lost = symbols.flat_map(|it| it.frames_with(|fate| fate == Fate::Lost)).collect();
        if let Some(blocks) = self.channels.get_mut(&channel)
            && blocks.open.take().is_some()
        {
            blocks.last += 1;
        }
        lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(id: u64) -> Piece {
        Piece { message: MessageId(id), range: 0..1000 }
    }

    /// Adds a message of one frame.
    fn join(blocks: &mut Blocks, now: Instant, id: u64) -> Option<CompleteBlock> {
        join_part(blocks, now, piece(id), 1000, None)
    }

    fn join_part(
        blocks: &mut Blocks,
        now: Instant,
        piece: Piece,
        rest: u32,
        lifespan: Option<Duration>,
    ) -> Option<CompleteBlock> {
        let place = Some(blocks.next_place(now, 7));
        let (number, age, fragment) = (piece.message.0, Duration::ZERO, None);
        let data = Data { channel: 7, number, source: 0, encoded: false, age, fragment, place };
        let payload = &[0; 1000];
        let frame = JoiningFrame { data: &data, payload, piece: &piece, rest, lifespan };
        blocks.join(now, 7, &frame)
    }

    /// A block of the messages 1 to 10, with the parity in the messages from 101 on.
    fn ten_messages(percent: u8) -> Blocks {
        let mut blocks = Blocks::default();
        assert!((1..10).all(|id| join(&mut blocks, Instant(id), id).is_none()));
        let block = join(&mut blocks, Instant(10), 10).unwrap();
        let parity = block.parity(percent).len() as u64;
        blocks.on_parity_queued(&block, (101..101 + parity).map(MessageId).collect(), 1000);
        blocks
    }

    #[test]
    fn a_block_of_small_messages_ends_with_the_tenth_or_in_time() {
        let mut blocks = ten_messages(25);
        assert_eq!(
            blocks.undecided_blocks[&(7, 1)].parity.as_ref().unwrap().len(),
            3,
            "rounded up"
        );
        assert_eq!(blocks.next_end(), None);
        assert!(join(&mut blocks, Instant(20), 11).is_none());
        let end = Instant(20) + MAX_WAIT;
        assert_eq!(blocks.next_end(), Some(end));
        assert!(blocks.end_due_block(Instant(20)).is_none());
        let block = blocks.end_due_block(end).unwrap();
        assert_eq!((block.number, block.symbols.len()), (2, 1));
    }

    #[test]
    fn the_shortest_lifespan_in_a_block_limits_it() {
        let mut blocks = Blocks::default();
        for (id, millis) in [(1, None), (2, Some(400)), (3, Some(800)), (4, None)] {
            let lifespan = millis.map(Duration::from_millis);
            assert!(join_part(&mut blocks, Instant(0), piece(id), 1000, lifespan).is_none());
        }
        let block = blocks.end_due_block(Instant(100_000_000)).unwrap();
        assert_eq!(block.lifespan, Some(Duration::from_millis(400)));
    }

    #[test]
    fn a_large_message_is_divided_evenly() {
        let mut blocks = Blocks::default();
        let mut sizes = Vec::new();
        for start in (0..130_000).step_by(1000) {
            let piece = Piece { message: MessageId(1), range: start..start + 1000 };
            let complete = join_part(&mut blocks, Instant(0), piece, 130_000 - start, None);
            sizes.extend(complete.map(|block| block.symbols.len()));
        }
        assert_eq!(sizes, [65, 65]);
    }

    #[test]
    fn a_lost_frame_is_not_repaired_while_its_block_may_be_recovered() {
        let mut blocks = ten_messages(20);
        assert_eq!(blocks.on_lost(&piece(3)), []);
        assert_eq!(blocks.on_lost(&piece(101)), []);
        assert_eq!(blocks.on_lost(&piece(5)), [piece(3), piece(5)], "three of twelve");
        assert_eq!(blocks.on_lost(&piece(6)), [piece(6)], "the block is decided");
        assert!(blocks.places.is_empty() && blocks.undecided_blocks.is_empty());
    }

    #[test]
    fn parity_in_parts_counts_once_all_parts_are_acknowledged() {
        let mut blocks = ten_messages(20);
        let others = [1, 2, 4, 5, 6, 7, 8, 9].map(piece);
        assert!(others.iter().all(|it| blocks.on_acked(it).recovered.is_empty()));
        let part = |id, range| Piece { message: MessageId(id), range };
        for first in [part(101, 0..900), part(102, 0..900), part(102, 900..1000)] {
            assert_eq!(blocks.on_acked(&first).recovered, [], "{first:?}");
        }
        let last = blocks.on_acked(&part(101, 900..1000));
        assert_eq!(last.recovered, [piece(3), piece(10)], "ten of twelve");
    }

    #[test]
    fn recovered_packets_count_as_acknowledged() {
        let mut blocks = ten_messages(20);
        assert_eq!(blocks.on_lost(&piece(3)), []);
        let others = [1, 2, 4, 5, 6, 7, 8, 9].map(piece);
        assert!(others.iter().all(|it| blocks.on_acked(it).recovered.is_empty()));
        assert_eq!(blocks.on_acked(&piece(101)).recovered, []);
        assert_eq!(blocks.on_acked(&piece(102)).recovered, [piece(3), piece(10)], "ten of twelve");
        assert!(blocks.places.is_empty() && blocks.undecided_blocks.is_empty());
    }

    #[test]
    fn parity_that_is_dropped_counts_as_lost() {
        let mut blocks = ten_messages(10);
        assert_eq!(blocks.on_lost(&piece(3)), []);
        assert_eq!(blocks.on_parity_dropped(MessageId(101)), [piece(3)]);
        assert_eq!(blocks.on_parity_dropped(MessageId(101)), []);
    }

    #[test]
    fn closing_a_channel_removes_its_blocks() {
        let mut blocks = ten_messages(20);
        assert!(join(&mut blocks, Instant(0), 11).is_none());
        blocks.abandon(7);
        assert!(blocks.places.is_empty() && blocks.undecided_blocks.is_empty());
        assert_eq!(blocks.next_place(Instant(0), 7).block, 3, "numbers are not used twice");
    }

    #[test]
    fn packets_lost_before_parity_exists_are_repaired_at_once() {
        let mut blocks = Blocks::default();
        assert!((1..10).all(|id| join(&mut blocks, Instant(id), id).is_none()));
        assert_eq!(blocks.on_lost(&piece(4)), [piece(4)]);
        let block = join(&mut blocks, Instant(10), 10).unwrap();
        blocks.on_parity_queued(&block, vec![MessageId(101)], 1000);
        assert_eq!(blocks.on_lost(&piece(5)), [piece(5)], "two symbols lack, and one is there");
        assert_eq!(blocks.on_lost(&piece(4)), [piece(4)], "its repair was lost");
    }

    #[test]
    fn packets_that_await_parity_are_repaired_when_their_channel_closes() {
        let mut blocks = ten_messages(20);
        assert_eq!(blocks.on_lost(&piece(4)), []);
        assert_eq!(blocks.abandon(7), [piece(4)]);
    }

    #[test]
    fn a_block_is_removed_when_all_outcomes_are_known() {
        let mut blocks = Blocks::default();
        assert!((1..10).all(|id| join(&mut blocks, Instant(id), id).is_none()));
        assert_eq!(blocks.on_lost(&piece(4)), [piece(4)]);
        let block = join(&mut blocks, Instant(10), 10).unwrap();
        blocks.on_parity_queued(&block, Vec::new(), 0);
        (1..=10).filter(|id| *id != 4).for_each(|id| drop(blocks.on_acked(&piece(id))));
        assert!(blocks.places.is_empty() && blocks.undecided_blocks.is_empty(), "{blocks:?}");
    }
}
