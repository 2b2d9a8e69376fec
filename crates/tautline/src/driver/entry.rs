// SPDX-License-Identifier: Apache-2.0
//! Entries of the file, as links represent them.

use crate::config::{self, PeerConfig};
use tautline_proto::{Endpoint, PeerId};

/// An entry of the file that a link represents.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum FileEntry {
    /// A link with an address.
    WithAddress(config::LinkConfig),
    /// A link without a configured address: it leads to the address from which the peer initiates
    /// the handshake, or is a direct path to a peer behind a relay.
    WithoutAddress {
        /// Largest IP packet, if the file limits it.
        mtu: Option<u16>,
    },
    /// A link through a relay.
    ThroughRelay(PeerId),
}

impl FileEntry {
    /// Returns the entries of a peer, one for each link.
    pub(super) fn of_peer(endpoint: &Endpoint, peer: &PeerConfig) -> Vec<Self> {
        let mut entries: Vec<Self> = peer.links.iter().cloned().map(Self::WithAddress).collect();
        if peer.is_caller() || peer.direct_path().is_some() {
            entries.push(Self::WithoutAddress { mtu: peer.mtu });
        }
        // The file has been checked: all relays exist.
        let named = |via: &String| endpoint.peers().find(|id| endpoint.peer(*id).name == *via);
        entries.extend(peer.via.iter().filter_map(named).map(Self::ThroughRelay));
        entries
    }

    /// Returns the largest IP packet of a link without an address, if the file limits it.
    pub(super) fn mtu_without_address(&self) -> Option<u16> {
        if let Self::WithoutAddress { mtu } = self { *mtu } else { None }
    }

    /// Whether the link costs money.
    pub(super) fn is_metered(&self) -> bool {
        matches!(self, Self::WithAddress(config) if config.metered)
    }

    /// Whether a link with this entry can take over the other entry without a new path: the two
    /// differ in the budget only.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::WithAddress(own), Self::WithAddress(other)) => {
                *own == config::LinkConfig { budget: own.budget, ..other.clone() }
            }
            _ => self == other,
        }
    }
}
