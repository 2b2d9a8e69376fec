// SPDX-License-Identifier: Apache-2.0
//! Where a packet came from, and how its answer returns.

use crate::address::Place;
use crate::ecn::Ecn;
use crate::ids::RadioId;
use crate::time::{Duration, Instant};
use std::net::{IpAddr, SocketAddr};

/// How a datagram arrived.
#[derive(Debug, Clone, Copy, Default)]
pub struct Arrival {
    /// Time for which the datagram has waited on this machine. The queueing delays and round trips that its
    /// sender learns exclude this time.
    pub waited: Duration,
    /// The ECN field of its IP packet.
    pub ecn: Ecn,
    /// The local address to which it was sent, if known.
    pub local: Option<IpAddr>,
}

impl Arrival {
    /// The origin of a datagram that is handled at `now`.
    pub(crate) fn origin(self, now: Instant, radio: RadioId, from: SocketAddr) -> Origin {
        let Self { waited, ecn, local } = self;
        let arrived = now.before(waited);
        let (from, relayed_age, is_metered) = (from.into(), None, false);
        Origin { radio, from, local, arrived, ecn, relayed_age, is_metered }
    }
}

/// Where a packet came from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Origin {
    pub(crate) radio: RadioId,
    pub(crate) from: Place,
    /// The local address at which it arrived, if known.
    pub(crate) local: Option<IpAddr>,
    /// When the packet arrived. It is handled later.
    pub(crate) arrived: Instant,
    pub(crate) ecn: Ecn,
    /// The age of a relayed packet, as its RELAY frame gives it.
    pub(crate) relayed_age: Option<Duration>,
    /// Other links of the radio cost money. Set only where that matters for this packet.
    pub(crate) is_metered: bool,
}

impl Origin {
    /// The origin of a packet that came through relays and by `radio`.
    pub(crate) fn relayed(now: Instant, radio: RadioId, from: Place, age: Duration) -> Self {
        let (local, ecn, relayed_age) = (None, Ecn::NotCapable, Some(age));
        Self { radio, from, local, arrived: now, ecn, relayed_age, is_metered: false }
    }

    pub(crate) fn return_path(&self) -> ReturnPath {
        let Self { radio, from: remote, local, is_metered, .. } = *self;
        ReturnPath { radio, remote, local, is_metered }
    }
}

/// How an answer returns to the sender of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReturnPath {
    pub(crate) radio: RadioId,
    pub(crate) remote: Place,
    /// The local address at which the packet arrived, if known.
    pub(crate) local: Option<IpAddr>,
    /// Other links of the radio cost money; see [`Origin`].
    pub(crate) is_metered: bool,
}
