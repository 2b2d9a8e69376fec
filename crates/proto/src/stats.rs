// SPDX-License-Identifier: Apache-2.0
//! Counters. Every accepted message is queued, sent, delivered or dropped for a [`DropReason`];
//! every refused packet has a [`RefusedPacket`].

use crate::limits;
use crate::time::{Duration, Instant};

/// Defines an enum of reasons: names in status and metrics, and meanings for the reference.
#[macro_export]
macro_rules! reasons {
    ($(#[$doc:meta])* $name:ident { $($(#[doc = $meaning:literal])+ $variant:ident => $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[doc = $meaning])+ $variant,)* }

        impl $name {
            /// All variants.
            pub const ALL: [Self; [$(Self::$variant),*].len()] = [$(Self::$variant),*];

            /// Name in statistics.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }

            /// The documentation of the variant.
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$variant => concat!($($meaning),+),)* }
            }
        }
    };
}

/// Defines reasons and an array of counters indexed by them.
macro_rules! counted_reasons {
    ($(#[$doc:meta])* $name:ident, $counters:ident { $($reasons:tt)* }) => {
        reasons! { $(#[$doc])* $name { $($reasons)* } }

        /// Counters by reason.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub struct $counters([u64; $name::ALL.len()]);

        impl $counters {
            /// Counts one event.
            pub fn add(&mut self, reason: $name) {
                self.0[reason as usize] += 1;
            }

            /// Adds other counters.
            pub fn add_all(&mut self, other: &Self) {
                self.0.iter_mut().zip(other.0).for_each(|(sum, count)| *sum += count);
            }

            /// Number of events of `reason`.
            pub fn get(&self, reason: $name) -> u64 {
                self.0[reason as usize]
            }

            /// Number of all events.
            pub fn total(&self) -> u64 {
                self.0.iter().sum()
            }

            /// The reasons that occurred, with their numbers.
            pub fn iter(&self) -> impl Iterator<Item = ($name, u64)> + '_ {
                $name::ALL.into_iter().map(|r| (r, self.get(r))).filter(|(_, n)| *n > 0)
            }
        }
    };
}

/// The end of a channel at which a message is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The sender.
    Sender,
    /// The receiver.
    Receiver,
    /// Either of them.
    Either,
}

/// Defines the drop reasons. A row has the name, the side, whether more link capacity would prevent such
/// drops, and the reason as a clause about "the messages".
macro_rules! drop_reasons {
    ($($(#[doc = $meaning:literal])+ $variant:ident => $name:literal, $side:ident, $capacity:literal, $clause:literal;)*) => {
        counted_reasons! {
            /// The reason for which a message ended undelivered.
            DropReason, Drops { $($(#[doc = $meaning])+ $variant => $name,)* }
        }

        impl DropReason {
            /// Where messages are dropped for this reason.
            pub const fn side(self) -> Side {
                match self { $(Self::$variant => Side::$side,)* }
            }

            /// Whether more link capacity would prevent such drops.
            pub const fn is_prevented_by_capacity(self) -> bool {
                match self { $(Self::$variant => $capacity,)* }
            }

            /// The reason as a clause about the messages: `they exceeded their lifespan`.
            pub const fn clause(self) -> &'static str {
                match self { $(Self::$variant => $clause,)* }
            }
        }
    };
}

drop_reasons! {
    /// Older than its lifespan, or it would be before it is sent while newer messages wait.
    Expired => "expired", Either, true, "they exceeded their lifespan";
    /// Replaced by newer messages of its source (`keep_last`).
    Superseded => "superseded", Sender, true, "newer messages replaced them";
    /// An earlier message of its source was still being sent (`when_slow: thin`).
    Thinned => "thinned", Sender, true, "an earlier message was still being sent";
    /// The queue was full, in bytes or in time to drain.
    Overflow => "overflow", Sender, true, "the queue was full";
    /// A fragment was lost and not repaired.
    Lost => "lost", Sender, false, "fragments were lost and not repaired in time";
    /// The peer restarted, or the channel was withdrawn.
    PeerGone => "peer_gone", Either, false, "the peer restarted, or the topic was withdrawn";
    /// The peer is not subscribed to the channel.
    Refused => "refused", Either, false, "the last subscriber at the peer had left";
    /// The message arrived after `keep_last` newer ones.
    Late => "late", Receiver, false, "newer messages had arrived before them";
    /// No fragments arrived any more.
    Incomplete => "incomplete", Receiver, false, "some of their fragments did not arrive";
    /// Larger than this node allows (`max_message`).
    TooLarge => "too_large", Receiver, false, "they were larger than allowed here (limits.max_message)";
}

counted_reasons! {
    /// The reason for which a packet, or a frame in it, was refused.
    RefusedPacket, RefusedPackets {
        /// The message does not follow the format.
        Malformed => "malformed",
        /// Another version of the format.
        Version => "version",
        /// No key set has this session number.
        UnknownSession => "unknown_session",
        /// Authentication failed: forged, changed, or for another node.
        Unauthentic => "unauthentic",
        /// The static key of no peer.
        UnknownKey => "unknown_key",
        /// A peer's key that two nodes have, or that comes with another name.
        WrongKey => "wrong_key",
        /// Beyond a limit of handshakes.
        Flood => "flood",
        /// A relayed packet from a node without the right to be relayed.
        NotRelayed => "not_relayed",
        /// A relayed packet for a node to which no route leads.
        NoRoute => "no_route",
        /// A relayed packet that passed too many relays.
        RelayLoop => "relay_loop",
        /// A relayed packet older than its lifespan.
        TooOld => "too_old",
        /// Received before, or too old to tell.
        Duplicate => "duplicate",
        /// Data on a channel that was not offered.
        UnknownChannel => "unknown_channel",
        /// Beyond a receive limit.
        Bound => "bound",
        /// A relayed packet for which the queue of its team has no room.
        TeamFull => "team_full",
    }
}

/// Counters of a channel to a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OutStats {
    /// Messages accepted.
    pub accepted: u64,
    /// Payload bytes of these messages.
    pub bytes: u64,
    /// Messages completely acknowledged by the peer.
    pub delivered: u64,
    /// Messages dropped, by reason.
    pub dropped: Drops,
    /// Messages with bytes that have not been sent yet.
    pub queued: u64,
    /// Messages sent completely, outcome unknown.
    pub sent: u64,
    /// Payload bytes sent, repairs and copies included, by the number of the link.
    pub link_bytes: [u64; limits::LINKS],
}

impl OutStats {
    /// Adds the counters of another channel.
    pub fn add(&mut self, other: &Self) {
        self.accepted += other.accepted;
        self.bytes += other.bytes;
        self.delivered += other.delivered;
        self.queued += other.queued;
        self.sent += other.sent;
        for (sum, bytes) in self.link_bytes.iter_mut().zip(other.link_bytes) {
            *sum += bytes;
        }
        self.dropped.add_all(&other.dropped);
    }

    /// Conservation: accepted = queued + sent + delivered + dropped.
    pub fn adds_up(&self) -> bool {
        self.accepted == self.queued + self.sent + self.delivered + self.dropped.total()
    }
}

/// Counters of relayed packets to a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Forwarded {
    /// Packets that the peer has acknowledged.
    pub packets: u64,
    /// Packets dropped here, by reason.
    pub dropped: Drops,
}

/// Counters of a channel from a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct InStats {
    /// Messages delivered to the application.
    pub delivered: u64,
    /// Payload bytes of these messages.
    pub bytes: u64,
    /// Messages of which a part arrived, dropped by reason.
    pub dropped: Drops,
    /// Complete messages that wait for earlier ones.
    pub waiting: u64,
    /// Fragments that had arrived before.
    pub duplicate_pieces: u64,
    /// Pieces of messages that were lost, and recovered from parity.
    pub recovered_pieces: u64,
    /// Age at delivery. The time on the path is measured by the clocks of both ends. Until these
    /// have been compared, half a round trip is assumed.
    pub delay: Delays,
}

/// Counters of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LinkStats {
    /// Packets sent.
    pub sent_packets: u64,
    /// Bytes of IP packets sent.
    pub sent_bytes: u64,
    /// Packets acknowledged.
    pub acked_packets: u64,
    /// Packets declared lost.
    pub lost_packets: u64,
    /// Packets declared lost that were acknowledged later.
    pub spurious_losses: u64,
    /// Packets that the path marked for congestion (ECN), by the peer's counts.
    pub marked_packets: u64,
    /// Bytes of messages sent as repairs.
    pub repair_bytes: u64,
    /// Bytes of messages sent again before a loss is known.
    pub redundant_bytes: u64,
    /// Packets received.
    pub received_packets: u64,
    /// Bytes of IP packets received.
    pub received_bytes: u64,
    /// Packets received twice.
    pub duplicate_packets: u64,
    /// The end of the last interruption: the link was down, or the peer acknowledged nothing.
    pub resumed: Option<Resumed>,
}

impl LinkStats {
    /// Packets that were lost, not counting those that arrived after all.
    pub fn lost(&self) -> u64 {
        self.lost_packets.saturating_sub(self.spurious_losses)
    }

    /// Records that an interruption has ended.
    pub(crate) fn resume(&mut self, now: Instant) {
        let (acked_packets, lost) = (self.acked_packets, self.lost());
        self.resumed = Some(Resumed { at: now, acked_packets, lost });
    }
}

/// The end of an interruption of a link, and its counters then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resumed {
    /// The time.
    pub at: Instant,
    /// Packets acknowledged until then.
    pub acked_packets: u64,
    /// Packets lost until then, without those that arrived after all.
    pub lost: u64,
}

/// Buckets of [`Delays`]: quarter octaves from 0.1 ms to about 100 s, and one beyond.
pub const DELAY_BUCKETS: usize = 81;
const FIRST_BOUND: Duration = Duration::from_micros(100);

/// A histogram of delays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delays {
    /// Delays in each bucket.
    pub counts: [u64; DELAY_BUCKETS],
    /// Number of delays.
    pub count: u64,
    /// Sum of the delays.
    pub sum: Duration,
    /// The largest delay.
    pub max: Duration,
}

impl Default for Delays {
    fn default() -> Self {
        Self { counts: [0; DELAY_BUCKETS], count: 0, sum: Duration::ZERO, max: Duration::ZERO }
    }
}

impl Delays {
    /// Adds a delay.
    pub fn add(&mut self, delay: Duration) {
        let octaves = (delay.as_secs_f64() / FIRST_BOUND.as_secs_f64()).log2();
        // A float cast saturates: a negative value (below the first bound) becomes bucket 0.
        let bucket = ((octaves * 4.0).ceil() as usize).min(DELAY_BUCKETS - 1);
        self.counts[bucket] += 1;
        self.count += 1;
        self.sum += delay;
        self.max = self.max.max(delay);
    }

    /// Upper bound of a bucket. The last bucket also counts all longer delays.
    pub fn bound(bucket: usize) -> Duration {
        FIRST_BOUND.mul_f64(2f64.powf(bucket as f64 / 4.0))
    }

    /// Returns a bound that the fraction `share` (0 to 1) of the delays does not exceed. The bound
    /// is never above the largest delay.
    pub fn quantile(&self, share: f64) -> Duration {
        let wanted = (self.count as f64 * share).ceil() as u64;
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted && seen > 0 {
                return Self::bound(bucket).min(self.max);
            }
        }
        self.max
    }
}
