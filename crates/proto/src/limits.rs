// SPDX-License-Identifier: Apache-2.0
//! What one peer can make a node hold or do, at most. All bounds are per peer, so that one peer
//! cannot use up what the others need. The application may set the first four lower or higher
//! ([`Config`](crate::Config)).

use crate::bucket::Allowance;

/// Public constants with their documentation, and `table()` of them: name, value and meaning.
#[macro_export]
macro_rules! limits {
    ($($(#[doc = $doc:literal])+ pub const $name:ident: $type:ty = $value:expr;)+) => {
        $($(#[doc = $doc])+ pub const $name: $type = $value;)+

        /// Each of these constants: its name, value and meaning.
        pub fn table() -> Vec<(&'static str, String, &'static str)> {
            vec![$((stringify!($name), format!("{:?}", $name), concat!($($doc),+))),+]
        }
    };
}

limits! {
    /// Bytes of messages that wait for a peer, or whose outcome is unknown (`queue_bytes`).
    pub const QUEUE_BYTES: usize = 16_000_000;
    /// Bytes of incomplete messages from a peer (`reassembly_bytes`). Messages that this node did
    /// not ask for are refused before.
    pub const REASSEMBLY_BYTES: usize = 16_000_000;
    /// Bytes of one message (`max_message`).
    pub const MESSAGE_BYTES: usize = 8_000_000;
    /// Messages that wait for a peer, or whose outcome is unknown, whatever their size.
    pub const MESSAGES: usize = 65_536;
    /// Incomplete messages from a peer.
    pub const PARTIAL_MESSAGES: usize = 256;
    /// Channels offered to a peer, and taken from one.
    pub const CHANNELS: usize = 4096;
    /// Publishers distinguished on one channel.
    pub const SOURCES_PER_CHANNEL: u32 = 256;
    /// Publishers remembered of a peer, over all its channels; each takes about 200 bytes.
    pub const SOURCES: usize = 16_384;
    /// Links of a peer.
    pub const LINKS: usize = 16;
    /// Bytes of one definition of a type.
    pub const DEFINITION_BYTES: usize = 1 << 20;
    /// Bytes of all definitions that a peer supplied; its channels beyond that have none. It is more
    /// than the node uses, which reports what it leaves out.
    pub const DEFINITIONS_BYTES: usize = 5 << 20;
    /// Control messages of a peer held for one that is missing.
    pub const CONTROL_MESSAGES_HELD: u64 = 1024;
    /// Bytes of those.
    pub const CONTROL_BYTES_HELD: usize = 2 << 20;
    /// Control messages that a peer has handled: offers, wishes, definitions and refusals. A robot of
    /// 2000 topics that starts again sends two for each. Packets with more of them are not
    /// acknowledged, so that a peer that keeps to the protocol sends them again later.
    pub const CONTROL_MESSAGES: Allowance = Allowance { burst: CHANNELS as u32, per_second: 200 };
    /// Events of a peer that wait to be handled. Packets with data that come on top are not
    /// acknowledged, so that they are sent again later.
    pub const EVENTS: usize = 1024;
    /// Bytes of the messages among them, unless it is one message alone.
    pub const EVENT_BYTES: usize = 16_000_000;
    /// Control messages that may wait for a peer while it still gets answers: an offer, a question, a
    /// definition and a wish for each channel, twice over.
    pub const CONTROL_BACKLOG: u64 = 8 * CHANNELS as u64;
    /// Packets of control messages to a peer that go before what other peers are sent; the rest goes
    /// before images of others, and after their lasers and commands. A peer that makes us answer
    /// without end, or says that nothing arrives, holds up no commands.
    pub const CONTROL_FIRST: Allowance = Allowance { burst: 256, per_second: 16 };
    /// New sessions that a peer may begin by starting again, several times in a row where it fails
    /// at start.
    pub const NEW_SESSIONS: Allowance = Allowance { burst: 16, per_second: 1 };
    /// Challenges of a peer that are echoed. Each link makes at most four in 0.4 s.
    pub const ECHOES: Allowance = Allowance { burst: 4 * LINKS as u32, per_second: 40 };
    /// Bytes of one relayed packet: jumbo frames fit.
    pub const RELAYED_PACKET_BYTES: usize = 16 << 10;
    /// Bytes that a peer may have waiting here for another, to be relayed, with
    /// `RELAYED_OVERHEAD_BYTES` for each packet. A sender that keeps to its window has at most 8 KB
    /// of each pair of nodes on the whole path, beside that.
    pub const RELAYED_BYTES: u64 = 1 << 20;
    /// Bytes that a packet waiting to be relayed counts beside its own: what is kept about it, about.
    pub const RELAYED_OVERHEAD_BYTES: u64 = 512;
    /// Pairs of nodes whose relayed packets from a peer are counted separately.
    pub const RELAYED_FLOWS: usize = 64;
}
