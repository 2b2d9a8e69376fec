// SPDX-License-Identifier: Apache-2.0
//! Forward error correction of a channel: blocks of DATA frames, each with parity symbols
//! (RaptorQ, RFC 6330). A receiver that lacks some frames of a block recovers them from as many
//! symbols as it lacks. [`sender`] makes blocks, [`receiver`] recovers frames.

pub(crate) mod receiver;
pub(crate) mod sender;

use crate::wire::frame::Data;
use raptorq::{
    EncodingPacket, ObjectTransmissionInformation, PayloadId, SourceBlockDecoder,
    SourceBlockEncoder,
};

/// Bytes of the length field that precedes the body of a frame in its symbol.
const LENGTH_BYTES: usize = 2;

/// The symbol of a frame, without padding: the length of its body, and the body. `None` if the body
/// is too long.
fn symbol_of(data: &Data, payload: &[u8]) -> Option<Vec<u8>> {
    let mut symbol = vec![0; LENGTH_BYTES];
    data.emit_body(payload, &mut symbol);
    let len = u16::try_from(symbol.len() - LENGTH_BYTES).ok()?;
    symbol[..LENGTH_BYTES].copy_from_slice(&len.to_le_bytes());
    Some(symbol)
}

/// The body of a frame in its symbol.
fn body_of(symbol: &[u8]) -> Option<&[u8]> {
    let (len, rest) = symbol.split_first_chunk::<LENGTH_BYTES>()?;
    rest.get(..usize::from(u16::from_le_bytes(*len)))
}

/// The parameters of a block: one source block of one sub-block.
fn parameters(sources: usize, symbol_bytes: u16) -> ObjectTransmissionInformation {
    let bytes = sources as u64 * u64::from(symbol_bytes);
    ObjectTransmissionInformation::new(bytes, symbol_bytes, 1, 1, 1)
}

/// Returns the first `count` parity symbols of these source symbols. Shorter symbols are padded to
/// the longest.
fn encode(symbols: &[Vec<u8>], count: u32) -> Vec<Vec<u8>> {
    let longest = symbols.iter().map(Vec::len).max().unwrap_or_default();
    let Ok(symbol_bytes) = u16::try_from(longest) else { return Vec::new() };
    if symbol_bytes == 0 {
        return Vec::new();
    }
    let mut block = vec![0; symbols.len() * longest];
    for (place, symbol) in block.chunks_mut(longest).zip(symbols) {
        place[..symbol.len()].copy_from_slice(symbol);
    }
    let encoder = SourceBlockEncoder::new(0, &parameters(symbols.len(), symbol_bytes), &block);
    encoder.repair_packets(0, count).into_iter().map(|packet| packet.split().1).collect()
}

/// Recovers all source symbols of a block of `sources` symbols from some of them and from parity
/// symbols, each with its position. All symbols have the same length. `None` if these symbols do
/// not suffice.
fn decode<'a>(
    sources: u8,
    symbol_bytes: u16,
    symbols: impl Iterator<Item = (u8, &'a [u8])>,
    parity: impl Iterator<Item = (u8, &'a [u8])>,
) -> Option<Vec<u8>> {
    let parameters = parameters(sources.into(), symbol_bytes);
    let mut decoder = SourceBlockDecoder::new(0, &parameters, parameters.transfer_length());
    let packet = |id: u32, bytes: &[u8]| {
        let mut padded = bytes.to_vec();
        padded.resize(symbol_bytes.into(), 0);
        EncodingPacket::new(PayloadId::new(0, id), padded)
    };
    let symbols = symbols.map(|(index, bytes)| packet(index.into(), bytes));
    let first = u32::from(sources);
    let parity = parity.map(|(index, bytes)| packet(first + u32::from(index), bytes));
    decoder.decode(symbols.chain(parity))
}

/// Whether a receiver of these frames and parity symbols can recover the other frames. As many
/// symbols as the block has frames suffice in all but one in 256 cases.
fn can_recover_all(
    sources: u8,
    frames: impl Iterator<Item = u8>,
    parity: impl Iterator<Item = u8>,
) -> bool {
    let empty = |index| (index, &[0][..]);
    decode(sources, 1, frames.map(empty), parity.map(empty)).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn numbered_symbols(symbols: &[Vec<u8>]) -> impl Iterator<Item = (u8, &[u8])> {
        (0u8..).zip(symbols.iter().map(Vec::as_slice))
    }

    proptest! {
        /// For a block of n source symbols, at most 1 in 256 sets of n symbols does not suffice.
        /// With two more symbols, it is 1 in 16 million (RFC 6330, section 1).
        #[test]
        fn as_many_symbols_as_frames_and_two_more_suffice(
            symbols in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..40), 1..60),
            lost in prop::collection::vec(any::<bool>(), 60),
        ) {
            let lost = |index: u8| lost[usize::from(index)];
            let missing = (0..symbols.len() as u8).filter(|it| lost(*it)).count() as u32;
            let parity = encode(&symbols, missing + 2);
            prop_assert_eq!(parity.len() as u32, missing + 2);
            let longest = symbols.iter().map(Vec::len).max().unwrap();
            let kept = numbered_symbols(&symbols).filter(|(index, _)| !lost(*index));
            let decoded = decode(symbols.len() as u8, longest as u16, kept, numbered_symbols(&parity));
            let decoded = decoded.unwrap();
            for (found, symbol) in decoded.chunks(longest).zip(&symbols) {
                prop_assert_eq!(&found[..symbol.len()], &symbol[..]);
            }
        }
    }

    /// The frames and parity of each block in spec/vectors/fec.json. `UPDATE=1` writes the parity.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "the vectors are a file")]
    fn parity_matches_the_vectors() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../spec/vectors/fec.json");
        let text = std::fs::read_to_string(path).unwrap();
        let vectors: serde_json::Value = serde_json::from_str(&text).unwrap();
        let (hex, mut updated) = (data_encoding::HEXLOWER, text.clone());
        let blocks = vectors["blocks"].as_array().unwrap();
        for block in blocks {
            let frames = block["frames"].as_array().unwrap().iter().map(|frame| {
                let body = hex.decode(frame.as_str().unwrap().as_bytes()).unwrap();
                let (data, payload) = Data::parse_body(&body).unwrap();
                symbol_of(&data, payload).unwrap()
            });
            let parity: Vec<_> =
                encode(&frames.collect::<Vec<_>>(), 3).iter().map(|it| hex.encode(it)).collect();
            if std::env::var_os("UPDATE").is_some() {
                updated = updated.replacen("\"parity\": []", &format!("\"parity\": {parity:?}"), 1);
            } else {
                assert_eq!(block["parity"], serde_json::json!(parity), "{}", block["name"]);
            }
        }
        assert!(!blocks.is_empty());
        if updated != text {
            std::fs::write(path, updated).unwrap();
        }
    }

    #[test]
    fn too_few_symbols_do_not_suffice() {
        let symbols = vec![vec![1; 9]; 10];
        let parity = encode(&symbols, 3);
        let kept = |lost| numbered_symbols(&symbols).skip(lost);
        assert!(decode(10, 9, kept(4), numbered_symbols(&parity)).is_none());
        assert!(decode(10, 9, kept(3), numbered_symbols(&parity)).is_some());
    }
}
