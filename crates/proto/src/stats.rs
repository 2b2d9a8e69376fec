// SPDX-License-Identifier: Apache-2.0
//! Counters. Every message accepted is queued, sent, delivered or dropped for
//! a [`DropReason`]; every packet refused has a [`RefusedPacket`].

use crate::time::Duration;

/// Counters indexed by a fieldless enum.
macro_rules! counted_reasons {
    ($(#[$doc:meta])* $name:ident, $counters:ident { $($(#[$vdoc:meta])* $variant:ident => $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[$vdoc])* $variant,)* }

        impl $name {
            /// Every one of them.
            pub const ALL: [Self; [$(Self::$variant),*].len()] = [$(Self::$variant),*];

            /// Name in statistics.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }
        }

        /// How often each happened.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub struct $counters([u64; $name::ALL.len()]);

        impl $counters {
            /// Counts one.
            pub fn add(&mut self, reason: $name) {
                self.0[reason as usize] += 1;
            }

            /// How often `reason` happened.
            pub fn get(&self, reason: $name) -> u64 {
                self.0[reason as usize]
            }

            /// Sum over all.
            pub fn total(&self) -> u64 {
                self.0.iter().sum()
            }

            /// Those that happened.
            pub fn iter(&self) -> impl Iterator<Item = ($name, u64)> + '_ {
                $name::ALL.into_iter().map(|r| (r, self.get(r))).filter(|(_, n)| *n > 0)
            }
        }
    };
}

counted_reasons! {
    /// Why a message ended without being delivered.
    DropReason, Drops {
        /// Older than its lifespan, or it would have been before it was sent while newer ones wait.
        Expired => "expired",
        /// Newer messages of its topic replaced it (`keep_last`).
        Superseded => "superseded",
        /// One before it was still being sent (`thin`).
        Thinned => "thinned",
        /// The queue was full, in bytes or in time to drain.
        Overflow => "overflow",
        /// A piece was lost and not repaired.
        Lost => "lost",
        /// The peer restarted, or the channel was withdrawn.
        PeerGone => "peer_gone",
        /// The peer does not want the channel (any more).
        Refused => "refused",
        /// Arrived after `keep_last` newer ones.
        Late => "late",
        /// Pieces stopped coming.
        Incomplete => "incomplete",
        /// Larger than allowed here.
        TooLarge => "too_large",
    }
}

counted_reasons! {
    /// Why a packet, or a frame in it, was refused.
    RefusedPacket, RefusedPackets {
        /// Not of the format.
        Malformed => "malformed",
        /// Another version of the format.
        Version => "version",
        /// No session of that number (any more).
        UnknownSession => "unknown_session",
        /// A call, answer or packet that does not hold: forged, changed, or not for us.
        Unauthentic => "unauthentic",
        /// A key that is not among the peers'.
        UnknownKey => "unknown_key",
        /// A peer's key that two nodes have, or that goes with another name.
        WrongKey => "wrong_key",
        /// More calls than are answered.
        Flood => "flood",
        /// A packet for others from who may not ask for that.
        NotRelayed => "not_relayed",
        /// A packet for a node that no way leads to now.
        NoRoute => "no_route",
        /// A packet for others that passed too many relays.
        RelayLoop => "relay_loop",
        /// A packet for others that came too late for them.
        TooOld => "too_old",
        /// Received before, or too old to tell.
        Duplicate => "duplicate",
        /// Data on a channel that was never offered.
        UnknownChannel => "unknown_channel",
        /// A receive bound was reached.
        Bound => "bound",
    }
}

/// Counters of a channel to a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OutStats {
    /// Messages accepted.
    pub accepted: u64,
    /// Their payload bytes.
    pub bytes: u64,
    /// Messages known to be complete at the peer.
    pub delivered: u64,
    /// Messages dropped, by reason.
    pub dropped: Drops,
    /// Messages of which some bytes have not been sent yet.
    pub queued: u64,
    /// Messages sent whole, outcome unknown.
    pub sent: u64,
}

impl OutStats {
    /// Adds another channel's.
    pub fn add(&mut self, other: &Self) {
        self.accepted += other.accepted;
        self.bytes += other.bytes;
        self.delivered += other.delivered;
        self.queued += other.queued;
        self.sent += other.sent;
        for (reason, count) in other.dropped.iter() {
            self.dropped.0[reason as usize] += count;
        }
    }

    /// Conservation: accepted = queued + sent + delivered + dropped.
    pub fn adds_up(&self) -> bool {
        self.accepted == self.queued + self.sent + self.delivered + self.dropped.total()
    }
}

/// Packets of others that went to a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Forwarded {
    /// Packets that it has.
    pub packets: u64,
    /// Packets dropped here, by reason.
    pub dropped: Drops,
}

/// Counters of a channel from a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct InStats {
    /// Messages handed to the application.
    pub delivered: u64,
    /// Their payload bytes.
    pub bytes: u64,
    /// Messages of which something arrived, dropped by reason.
    pub dropped: Drops,
    /// Pieces that had arrived before.
    pub duplicate_pieces: u64,
    /// Age at delivery, by the clocks of both ends once they are compared (until then with
    /// half a round trip for the way).
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
    /// Packets taken for lost.
    pub lost_packets: u64,
    /// Packets taken for lost that were acknowledged later.
    pub spurious_losses: u64,
    /// Bytes of messages sent again.
    pub repair_bytes: u64,
    /// Packets received.
    pub received_packets: u64,
    /// Bytes of IP packets received.
    pub received_bytes: u64,
    /// Packets received twice.
    pub duplicate_packets: u64,
}

/// Buckets of [`Delays`]: quarter octaves from 0.1 ms to about 100 s, and one beyond.
pub const DELAY_BUCKETS: usize = 81;
const FIRST_BOUND: Duration = Duration::from_micros(100);

/// A histogram of delays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delays {
    /// How many fell in each bucket.
    pub counts: [u64; DELAY_BUCKETS],
    /// How many there are.
    pub count: u64,
    /// Their sum.
    pub sum: Duration,
    /// The largest.
    pub max: Duration,
}

impl Default for Delays {
    fn default() -> Self {
        Self { counts: [0; DELAY_BUCKETS], count: 0, sum: Duration::ZERO, max: Duration::ZERO }
    }
}

impl Delays {
    /// Counts one.
    pub fn add(&mut self, delay: Duration) {
        let octaves = (delay.as_secs_f64() / FIRST_BOUND.as_secs_f64()).log2();
        // A float cast saturates: negative (below the first bound) becomes bucket 0.
        let bucket = ((octaves * 4.0).ceil() as usize).min(DELAY_BUCKETS - 1);
        self.counts[bucket] += 1;
        self.count += 1;
        self.sum += delay;
        self.max = self.max.max(delay);
    }

    /// Upper bound of a bucket; that of the last is infinite in truth.
    pub fn bound(bucket: usize) -> Duration {
        FIRST_BOUND.mul_f64(2f64.powf(bucket as f64 / 4.0))
    }

    /// A bound that the given share (0-1) of delays does not exceed, never above the largest.
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
