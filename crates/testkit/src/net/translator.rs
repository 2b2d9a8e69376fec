// SPDX-License-Identifier: Apache-2.0
//! Address translators (NAT) in front of nodes, of the kinds of RFC 4787.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

/// Which packets from outside pass to the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Filtering {
    /// All packets to a port that was opened.
    Independent,
    /// Packets from an address to which the node has sent.
    Address,
    /// Packets from an address and port to which the node has sent.
    AddressAndPort,
}

/// A translator in front of one node.
#[derive(Debug, Clone)]
pub struct Translator {
    outside: IpAddr,
    filtering: Filtering,
    /// Whether each destination gets a different port.
    is_symmetric: bool,
    next_port: u16,
    /// The open ports, each with the destinations to which packets have left.
    opened: BTreeMap<u16, Vec<SocketAddr>>,
}

impl Translator {
    pub fn new(outside: [u8; 4], filtering: Filtering, is_symmetric: bool) -> Self {
        let (next_port, opened) = (40_000, BTreeMap::new());
        Self { outside: outside.into(), filtering, is_symmetric, next_port, opened }
    }

    pub fn owns_address(&self, address: SocketAddr) -> bool {
        self.outside == address.ip()
    }

    /// Removes all entries, as after a restart; new entries have other ports.
    pub fn forget(&mut self) {
        self.opened.clear();
    }

    /// Handles a packet to `to`; returns its outside source address.
    pub fn translate_outgoing(&mut self, to: SocketAddr) -> SocketAddr {
        let fits = |known: &[SocketAddr]| !self.is_symmetric || known.contains(&to);
        let found = self.opened.iter().find(|(_, known)| fits(known)).map(|(port, _)| *port);
        let port = found.unwrap_or(self.next_port);
        self.next_port += u16::from(found.is_none());
        let known = self.opened.entry(port).or_default();
        if !known.contains(&to) {
            known.push(to);
        }
        SocketAddr::new(self.outside, port)
    }

    /// Whether a packet from `from` to `to` passes to the node.
    pub fn admits(&self, from: SocketAddr, to: SocketAddr) -> bool {
        let passes = |known: &SocketAddr| match self.filtering {
            Filtering::Independent => true,
            Filtering::Address => known.ip() == from.ip(),
            Filtering::AddressAndPort => *known == from,
        };
        self.opened.get(&to.port()).is_some_and(|known| known.iter().any(passes))
    }
}
