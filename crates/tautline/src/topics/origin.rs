// SPDX-License-Identifier: Apache-2.0
//! The publication header: what a peer needs to know about the publisher of a message. It precedes
//! the payload (spec/protocol.md, section 7.8). A message has no header if its publisher is
//! volatile and has the reliability that its topic offers.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use std::time::Duration;
use tautline_gateway::{Kept, MAX_SOURCES, Origin};

/// Bit that is set in the source number of a payload that begins with a publication header.
const HEADER_BIT: u32 = 128;
/// The source number of presence messages.
pub(super) const PRESENCE_SOURCE: u32 = 255;
/// The bits of a source number that hold the number of a publisher at a peer.
const SOURCE_MASK: u32 = HEADER_BIT - 1;

const KEPT: u8 = 1;
const REPEATABLE: u8 = 2;
const BEST_EFFORT: u8 = 4;
const PRESENCE: u8 = 8;
const HISTORY: u8 = 16;
const FOR_LATE_JOINERS: u8 = 32;
const LIFESPAN: u8 = 64;

/// A presence message: the publishers whose messages are kept for late joiners, by number. Messages
/// of other publishers are no longer kept after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Presence {
    /// Counts the presence messages of a session, so that an older message has no effect.
    pub(super) revision: u32,
    /// Bit n stands for the publisher with number n.
    pub(super) sources: u64,
}

// Each publisher must have a bit.
const _: () = assert!(MAX_SOURCES <= u64::BITS);

/// A received payload.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Content {
    Message {
        number: u32,
        origin: Origin,
        /// The revision of the last presence message before this message; 0 if the publisher does
        /// not keep the message.
        revision: u32,
        payload: Bytes,
    },
    Presence(Presence),
}

/// Returns the source number and the payload on the wire. `has_offered_reliability`: the publisher has the
/// reliability that the offer of the topic states. `revision` is that of the last presence message.
pub(super) fn emit(
    number: u32,
    origin: &Origin,
    has_offered_reliability: bool,
    revision: u32,
    payload: &Bytes,
) -> (u32, Bytes) {
    let mut flags = if has_offered_reliability || !origin.best_effort { 0 } else { BEST_EFFORT };
    if let Some(kept) = &origin.kept {
        flags |= KEPT;
        flags |= if kept.is_repeatable { REPEATABLE } else { 0 };
        flags |= if kept.is_history { HISTORY } else { 0 };
        flags |= if kept.is_for_late_joiners { FOR_LATE_JOINERS } else { 0 };
        flags |= if origin.lifespan.is_some() { LIFESPAN } else { 0 };
    }
    if flags == 0 {
        return (number, payload.clone());
    }
    let mut out = BytesMut::with_capacity(21 + payload.len());
    out.put_u8(flags);
    if let Some(kept) = &origin.kept {
        out.put_u64_le(kept.identity);
        out.put_u32_le(kept.depth);
        out.put_u32_le(revision);
        if let Some(lifespan) = origin.lifespan {
            out.put_u32_le(u32::try_from(lifespan.as_millis()).unwrap_or(u32::MAX));
        }
    }
    out.put_slice(payload);
    (number | HEADER_BIT, out.freeze())
}

impl Presence {
    /// Whether the publisher with this number has kept messages.
    pub(super) fn has(&self, number: u32) -> bool {
        self.sources.checked_shr(number).is_some_and(|bits| bits & 1 == 1)
    }

    /// Returns the payload on the wire.
    pub(super) fn emit(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(13);
        out.put_u8(PRESENCE);
        out.put_u32_le(self.revision);
        out.put_u64_le(self.sources);
        out.freeze()
    }
}

/// Reads a message from source number `source`; `None` if its header is malformed.
/// `is_best_effort`: the topic does not offer reliable delivery.
pub(super) fn parse(source: u32, is_best_effort: bool, mut payload: Bytes) -> Option<Content> {
    let number = source & SOURCE_MASK;
    if source & HEADER_BIT == 0 {
        let origin = Origin { best_effort: is_best_effort, ..Origin::default() };
        return Some(Content::Message { number, origin, revision: 0, payload });
    }
    let flags = payload.try_get_u8().ok()?;
    if flags & PRESENCE != 0 {
        let revision = payload.try_get_u32_le().ok()?;
        let sources = payload.try_get_u64_le().ok()?;
        return Some(Content::Presence(Presence { revision, sources }));
    }
    let best_effort = is_best_effort || flags & BEST_EFFORT != 0;
    let mut origin = Origin { best_effort, ..Origin::default() };
    let mut revision = 0;
    if flags & KEPT != 0 {
        let identity = payload.try_get_u64_le().ok()?;
        let depth = payload.try_get_u32_le().ok()?.max(1);
        revision = payload.try_get_u32_le().ok()?;
        if flags & LIFESPAN != 0 {
            origin.lifespan = Some(Duration::from_millis(payload.try_get_u32_le().ok()?.into()));
        }
        origin.kept = Some(Kept {
            identity,
            depth,
            is_repeatable: flags & REPEATABLE != 0,
            is_history: flags & HISTORY != 0,
            is_for_late_joiners: flags & FOR_LATE_JOINERS != 0,
        });
    }
    Some(Content::Message { number, origin, revision, payload })
}

/// Whether a message on the wire is the message `identity` of the publisher `number`.
pub(super) fn is_kept_message(source: u32, payload: &[u8], number: u32, identity: u64) -> bool {
    let header = payload.split_first().filter(|_| source == number | HEADER_BIT);
    header.is_some_and(|(flags, rest)| {
        flags & (KEPT | PRESENCE) == KEPT && rest.first_chunk() == Some(&identity.to_le_bytes())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn messages_are_read_as_written_and_plain_ones_cost_nothing() {
        let payload = Bytes::from_static(b"scan");
        let kept = |is_repeatable: bool| {
            let is_for_late_joiners = is_repeatable;
            let is_history = is_repeatable;
            let (identity, depth) = (u64::MAX - 1, 300);
            Some(Kept { identity, depth, is_repeatable, is_history, is_for_late_joiners })
        };
        for kept in [None, kept(false), kept(true)] {
            let lifespan = kept.filter(|it| it.is_history).map(|_| Duration::from_millis(1500));
            for best_effort in [false, true] {
                let origin = Origin { kept, best_effort, lifespan, age: Duration::ZERO };
                let (source, bytes) = emit(5, &origin, false, 9, &payload);
                let is_plain = origin == Origin::default();
                assert_eq!((source == 5, bytes == payload), (is_plain, is_plain));
                let identity = kept.map_or(0, |it| it.identity);
                assert_eq!(is_kept_message(source, &bytes, 5, identity), kept.is_some());
                assert!(!is_kept_message(source, &bytes, 6, identity));
                let message = Content::Message {
                    number: 5,
                    origin,
                    revision: if origin.kept.is_some() { 9 } else { 0 },
                    payload: payload.clone(),
                };
                assert_eq!(parse(source, false, bytes), Some(message));
            }
        }
        let presence = Presence { revision: 7, sources: 1 << 63 };
        let read = parse(PRESENCE_SOURCE, false, presence.emit());
        assert_eq!(read, Some(Content::Presence(presence)));
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_read_or_refused_without_a_panic(source: u32, best_effort: bool, bytes: Vec<u8>) {
            parse(source, best_effort, bytes.into());
        }
    }
}
