// SPDX-License-Identifier: Apache-2.0
//! The limits of one peer. Each applies per peer, so that a peer cannot exhaust what others need. The
//! application may change some of them ([`Config`](crate::Config)).

use crate::bucket::Allowance;

/// Defines public constants, and `table()` with their names, values and documentation.
#[macro_export]
macro_rules! limits {
    ($($(#[doc = $doc:literal])+ pub const $name:ident: $type:ty = $value:expr;)+) => {
        $($(#[doc = $doc])+ pub const $name: $type = $value;)+

        /// Name, value and documentation of each constant.
        pub fn table() -> Vec<(&'static str, String, &'static str)> {
            vec![$((stringify!($name), format!("{:?}", $name), concat!($($doc),+))),+]
        }
    };
}

limits! {
    /// Bytes of messages to a peer that are queued, or sent with unknown outcome (`queue_bytes`). Two
    /// of the largest messages fit: one that is being sent, and the next.
    pub const QUEUE_BYTES: usize = 2 * MESSAGE_BYTES;
    /// Bytes of incomplete messages from a peer (`reassembly_bytes`). Messages of channels without
    /// a subscription are refused earlier.
    pub const REASSEMBLY_BYTES: usize = 2 * MESSAGE_BYTES;
    /// Bytes of one message (`max_message`). An image of 3840 x 2160 pixels of four bytes fits.
    pub const MESSAGE_BYTES: usize = 32 << 20;
    /// Messages to a peer that are queued, or sent with unknown outcome, whatever their size.
    pub const MESSAGES: usize = 65_536;
    /// Blocks of frames from a peer that wait for parity (`fec`).
    pub const BLOCKS: usize = 64;
    /// Bytes of their symbols: a few large blocks.
    pub const BLOCK_BYTES: usize = 1 << 20;
    /// Bytes of one symbol; jumbo frames fit.
    pub const SYMBOL_BYTES: usize = 16 << 10;
    /// Incomplete messages from a peer.
    pub const PARTIAL_MESSAGES: usize = 256;
    /// Repairs of a message in a row of which a peer acknowledges none. After as many, over ten seconds
    /// or more, the message is dropped (`lost`).
    pub const FUTILE_REPAIRS: u16 = 256;
    /// Complete messages from a peer that wait for earlier ones (`order: sent`). Their bytes count as
    /// those of incomplete messages. Beyond either limit, the one whose wait ends first is delivered
    /// at once, with those before it.
    pub const WAITING_MESSAGES: usize = 1024;
    /// Channels offered to a peer, and accepted from one.
    pub const CHANNELS: usize = 4096;
    /// Publishers distinguished on one channel.
    pub const SOURCES_PER_CHANNEL: u32 = 256;
    /// Publishers of a peer that are remembered, over all its channels; each takes about 200 bytes.
    pub const SOURCES: usize = 16_384;
    /// Links of a peer.
    pub const LINKS: usize = 16;
    /// Bytes of one type definition.
    pub const DEFINITION_BYTES: usize = 1 << 20;
    /// Bytes of all definitions from a peer; further channels have none. The limit is above what
    /// the node uses, which reports the definitions that it omits.
    pub const DEFINITIONS_BYTES: usize = 5 << 20;
    /// Control messages of a peer that are held for a missing one.
    pub const CONTROL_MESSAGES_HELD: u64 = 1024;
    /// Bytes of these messages.
    pub const CONTROL_BYTES_HELD: usize = 2 << 20;
    /// Control messages of a peer that are handled: offers, subscriptions, definitions and
    /// refusals. A robot with 2000 topics sends two for each after a restart. Packets with further
    /// ones are not acknowledged, so that a peer repairs them later.
    pub const CONTROL_MESSAGES: Allowance = Allowance { burst: CHANNELS as u32, per_second: 200 };
    /// Queued events of a peer. Further packets with data are not acknowledged, so that the peer
    /// repairs them later. Messages that waited for earlier ones are added in any case.
    pub const EVENTS: usize = 1024;
    /// Bytes of the messages among them, unless it is a single message.
    pub const EVENT_BYTES: usize = 16_000_000;
    /// Unacknowledged control messages to a peer up to which it gets replies: an offer, a request,
    /// a definition and a subscription for each channel, twice.
    pub const CONTROL_BACKLOG: u64 = 8 * CHANNELS as u64;
    /// Packets of control messages to a peer that precede messages to other peers. Further ones
    /// precede images and follow lasers and commands. A peer that causes replies without end, or
    /// acknowledges nothing, thus delays no commands.
    pub const CONTROL_FIRST: Allowance = Allowance { burst: 256, per_second: 16 };
    /// New sessions that a peer begins by restarts, several in a row where it fails at start.
    pub const NEW_SESSIONS: Allowance = Allowance { burst: 16, per_second: 1 };
    /// Challenges of a peer that are echoed. Each link makes at most four in 0.4 s.
    pub const ECHOES: Allowance = Allowance { burst: 4 * LINKS as u32, per_second: 40 };
    /// Lists of addresses of a peer at which this node tries to reach it. Each causes at most 48 packets
    /// of 67 bytes of IP, to strangers if the peer lies.
    pub const CANDIDATES: Allowance = Allowance { burst: 4, per_second: 1 };
    /// Probes of path MTUs to a peer, which the rate of its links does not limit. A search takes one
    /// on most paths, and 16 on one of 1280 bytes behind an interface of 1500.
    pub const MTU_PROBES: Allowance = Allowance { burst: 64, per_second: 4 };
    /// Bytes of one relayed packet; jumbo frames fit.
    pub const RELAYED_PACKET_BYTES: usize = 16 << 10;
    /// Bytes of relayed packets of a peer that are queued for another peer, with
    /// `RELAYED_OVERHEAD_BYTES` for each packet. A sender that respects its window has at most 8 KB
    /// of each pair of nodes on the whole path.
    pub const RELAYED_BYTES: u64 = 1 << 20;
    /// Bytes that a queued relayed packet counts in addition to its own, for its bookkeeping.
    pub const RELAYED_OVERHEAD_BYTES: u64 = 512;
    /// Bytes of packets of a team that a relay holds, queued or not yet acknowledged, with
    /// `RELAYED_OVERHEAD_BYTES` for each packet (`queue_bytes` of a team).
    pub const TEAM_QUEUE_BYTES: u64 = 8 << 20;
    /// Pairs of nodes whose relayed packets from a peer are counted separately.
    pub const RELAYED_FLOWS: usize = 64;
}
