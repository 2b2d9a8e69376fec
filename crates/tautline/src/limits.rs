// SPDX-License-Identifier: Apache-2.0
//! Limits on the resources of this node that one peer can use. Each limit is per peer, so a peer
//! that reaches one does not affect the others.

use std::time::Duration;
use tautline_gateway::description;
use tautline_proto::Allowance;

tautline_proto::limits! {
    /// Fraction of the data plane's time that a peer's packets and their effects may take.
    pub const TIME_SHARE: f64 = 0.5;
    /// Time that a peer's packets and their effects may take at once after a pause.
    pub const TIME_BURST: Duration = Duration::from_millis(100);
    /// Bits per second of a peer's topics, calls and responses after decompression, unless the file
    /// sets `max_rate`. 1080p RGB at 20 Hz reaches this rate.
    pub const MAX_RATE: &str = "1Gbps";
    /// Published messages of a peer, or its calls and responses.
    pub const MESSAGES: Allowance = Allowance { burst: 5000, per_second: 5000 };
    /// Names under which topics of a peer are published while the daemon runs.
    pub const PUBLISHED_NAMES: usize = 4096;
    /// Bytes of the messages of a peer's latched topics that this robot's ROS keeps for late
    /// joiners.
    pub const LATCHED_BYTES: usize = 32 << 20;
    /// Bytes of a peer's messages that this robot's ROS holds: in transit to it, queued for slow
    /// subscribers, or kept for late joiners (ROS 2: until DDS has them).
    /// In addition, each topic may hold one message and the next.
    pub const HELD_BYTES: usize = 64 << 20;
    /// Bytes of all of these messages.
    pub const MAX_HELD_BYTES: usize = 128 << 20;
    /// Bytes that each topic of a peer may hold in addition, so that commands arrive while a
    /// subscriber of images is slow.
    pub const HELD_BYTES_OF_EACH_TOPIC: usize = 16 << 10;
    /// Messages of each publisher that are kept, whatever history depth the peer advertises.
    pub const HISTORY_DEPTH: u32 = 1000;
    /// Shortest lease of liveliness with which a topic of a peer is published. Publishers with a
    /// shorter one would send hundreds of packets per second to local nodes.
    pub const MIN_LEASE: Duration = tautline_gateway::MIN_LEASE;
    /// Calls of a peer that servers on this robot process at once.
    pub const MAX_SERVING_PER_PEER: usize = 64;
    /// Calls of this robot's nodes that wait for a response of one peer.
    pub const MAX_PENDING_PER_PEER: usize = 64;
    /// Calls of this robot's nodes to one service of a peer, so that a service that hangs leaves
    /// capacity for the others.
    pub const MAX_PENDING_PER_SERVICE: usize = 32;
    /// Timeout of a call to a peer, whatever the peer's file sets. The result of an action is
    /// awaited until the action ends.
    pub const MAX_CALL_TIMEOUT: Duration = Duration::from_secs(600);
    /// Nodes of a peer that are shown here, and nodes that are shown to a peer.
    pub const SHOWN_NODES: usize = description::MAX_NODES;
    /// Topics and services of all these nodes.
    pub const SHOWN_NAMES: usize = description::MAX_NAMES;
    /// Parameters of a peer with ROS 1 that are shown here, and parameters that are shown to a peer.
    pub const SHOWN_PARAMETERS: usize = description::MAX_PARAMETERS;
    /// Numbers, texts, flags and lists in the parameters that are shown here, or shown to a peer.
    pub const SHOWN_VALUES: usize = description::MAX_VALUES;
    /// Bytes of a peer's list of nodes, and of its parameters.
    pub const SHOWN_BYTES: usize = description::MAX_BYTES;
    /// Topics, services and calls of a peer that are listed as not allowed by the file.
    pub const MAX_WAITING_PER_PEER: usize = 256;
    /// Bytes of the definitions of all types of a peer's topics and services; further definitions
    /// are ignored.
    pub const DEFINITIONS_IN_USE_BYTES: usize = 4 << 20;
    /// Fields of a peer's types that only one ROS has and that `status` lists, before repetitions
    /// are removed.
    pub const MAX_ONE_SIDED: usize = 256;
    /// Messages of a peer that are queued for decompression or translation.
    pub const MAX_CODEC_JOBS_PER_PEER: usize = 1024;
    /// Bytes of these messages as they arrived; a single message may be larger.
    pub const MAX_CODEC_BYTES_PER_PEER: usize = 8 << 20;
}

/// Maximum bytes of messages queued for the data plane, which takes them within microseconds.
pub(crate) const MAX_INPUT_BYTES: usize = 64 << 20;
/// Maximum bytes of this robot's own topics that the codec may queue; more are dropped and counted.
pub(crate) const CODEC_BYTES_OF_OWN_TOPICS: usize = 64 << 20;

/// Maximum bytes of all queues of the data plane that do not belong to a peer.
pub const OWN_QUEUES_BYTES: usize = MAX_INPUT_BYTES + CODEC_BYTES_OF_OWN_TOPICS;

/// Approximate bytes of a remembered publisher.
const SOURCE_BYTES: usize = 200;
/// Approximate bytes of a queued control message with its bookkeeping. The longest text that a peer
/// can cause at will in such a message has 1024 bytes.
const CONTROL_MESSAGE_BYTES: usize = 1400;

/// Returns the parts of the memory that a peer can use: a description, and the maximum bytes.
pub fn memory_per_peer() -> [(&'static str, usize); 14] {
    use tautline_proto::limits as proto;
    [
        ("`QUEUE_BYTES`", proto::QUEUE_BYTES),
        ("`REASSEMBLY_BYTES`", proto::REASSEMBLY_BYTES),
        ("`BLOCK_BYTES`", proto::BLOCK_BYTES),
        ("`EVENT_BYTES`", proto::EVENT_BYTES),
        ("`SOURCES` of about 200 bytes", proto::SOURCES * SOURCE_BYTES),
        ("`DEFINITIONS_BYTES`", proto::DEFINITIONS_BYTES),
        ("`CONTROL_BYTES_HELD`", proto::CONTROL_BYTES_HELD),
        (
            "`CONTROL_BACKLOG` of about 1400 bytes",
            proto::CONTROL_BACKLOG as usize * CONTROL_MESSAGE_BYTES,
        ),
        ("`DEFINITIONS_IN_USE_BYTES`", DEFINITIONS_IN_USE_BYTES),
        ("`MAX_CODEC_BYTES_PER_PEER`", MAX_CODEC_BYTES_PER_PEER),
        ("`MAX_HELD_BYTES`", MAX_HELD_BYTES),
        (
            "`HELD_BYTES_OF_EACH_TOPIC` of `PUBLISHED_NAMES`",
            HELD_BYTES_OF_EACH_TOPIC * PUBLISHED_NAMES,
        ),
        ("`LATCHED_BYTES`, in DDS", LATCHED_BYTES),
        (
            "`SHOWN_BYTES` of two lists, each as it waits, as received, as shown and twice at work",
            10 * SHOWN_BYTES,
        ),
    ]
}

/// Returns the memory, in bytes, of a node whose peers reach every limit. The node relays packets
/// of `relayed` of its `peers` peers to all others. `queue` and `reassembly` are the limits of
/// queues and of incomplete messages.
pub fn team_bytes(peers: usize, relayed: usize, queue: usize, reassembly: usize) -> usize {
    use tautline_proto::limits as proto;
    let usual: usize = memory_per_peer().iter().map(|(_, bytes)| bytes).sum();
    let rest = usual - proto::QUEUE_BYTES - proto::REASSEMBLY_BYTES;
    let each = rest.saturating_add(queue).saturating_add(reassembly);
    let pairs = relayed.saturating_mul(peers.saturating_sub(1));
    let of_pairs = pairs.saturating_mul(proto::RELAYED_BYTES as usize);
    OWN_QUEUES_BYTES.saturating_add(each.saturating_mul(peers)).saturating_add(of_pairs)
}
