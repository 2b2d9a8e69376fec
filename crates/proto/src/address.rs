// SPDX-License-Identifier: Apache-2.0
//! Where packets come from and go to.

use crate::ids::PeerId;
use crate::wire::relay::ShortName;
use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// Where packets come from and go to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Place {
    /// An address.
    Udp(SocketAddr),
    /// A node that a peer passes packets on to and from.
    Relay {
        /// The peer.
        hop: PeerId,
        /// The node.
        end: ShortName,
    },
}

impl Place {
    /// What a cookie is made of.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Udp(address) => {
                let ip = match address.ip() {
                    IpAddr::V4(v4) => v4.to_ipv6_mapped(),
                    IpAddr::V6(v6) => v6,
                };
                [&ip.octets()[..], &address.port().to_le_bytes()].concat()
            }
            Self::Relay { hop, end } => [&end.0[..], &hop.0.to_le_bytes()].concat(),
        }
    }

    /// Whose fault it is if too much comes: a host, or a network of IPv6. All link-local addresses
    /// of IPv6 are in one network, which many hosts share: there each address of a link is one.
    pub fn owner(&self) -> Vec<u8> {
        let mut bytes = self.bytes();
        match self {
            Self::Udp(SocketAddr::V6(v6)) if v6.ip().is_unicast_link_local() => {
                bytes.truncate(16);
                bytes.extend(v6.scope_id().to_le_bytes());
            }
            Self::Udp(address) if address.ip().to_canonical().is_ipv6() => bytes.truncate(8),
            Self::Udp(_) => bytes.truncate(16),
            // Any end may be claimed: the relay answers for what it passes on.
            Self::Relay { hop, .. } => bytes = hop.0.to_le_bytes().to_vec(),
        }
        bytes
    }
}

impl From<SocketAddr> for Place {
    fn from(address: SocketAddr) -> Self {
        Self::Udp(address)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Udp(address) => address.fmt(f),
            Self::Relay { .. } => f.write_str("behind a relay"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_one_owner_and_so_is_a_network_of_ipv6_but_not_all_of_a_link() {
        let owner = |text: &str| Place::Udp(text.parse().unwrap()).owner();
        assert_eq!(owner("10.0.0.1:1"), owner("[::ffff:10.0.0.1]:2"));
        assert_ne!(owner("10.0.0.1:1"), owner("10.0.0.2:1"));
        assert_eq!(owner("[2001:db8::1]:1"), owner("[2001:db8::2]:2"));
        assert_eq!(owner("[fe80::1%2]:1"), owner("[fe80::1%2]:2"));
        assert_ne!(owner("[fe80::1%2]:1"), owner("[fe80::2%2]:1"));
        assert_ne!(owner("[fe80::1%2]:1"), owner("[fe80::1%3]:1"));
    }
}
