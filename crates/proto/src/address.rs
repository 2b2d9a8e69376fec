// SPDX-License-Identifier: Apache-2.0
//! Addresses of packets: UDP addresses, and nodes behind a relay.

use crate::ids::PeerId;
use crate::wire::relay::ShortName;
use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// The address of a packet's sender or receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Place {
    /// A UDP address.
    Udp(SocketAddr),
    /// A node behind a relay.
    Relay {
        /// The relay.
        hop: PeerId,
        /// The node.
        end: ShortName,
    },
}

impl Place {
    /// The bytes from which a cookie is computed.
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

    /// The owner to whom limits apply: an IPv4 host, or an IPv6 /64 network. All link-local IPv6
    /// addresses share one network, so that each such address is an owner of its own on its
    /// interface.
    pub fn owner(&self) -> Vec<u8> {
        let mut bytes = self.bytes();
        match self {
            Self::Udp(SocketAddr::V6(v6)) if v6.ip().is_unicast_link_local() => {
                bytes.truncate(16);
                bytes.extend(v6.scope_id().to_le_bytes());
            }
            Self::Udp(address) if address.ip().to_canonical().is_ipv6() => bytes.truncate(8),
            Self::Udp(_) => bytes.truncate(16),
            // A relay can claim to send for any node. Therefore the limit applies to the relay.
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
    fn a_host_or_an_ipv6_network_is_one_owner_and_a_link_local_address_is_another() {
        let owner = |text: &str| Place::Udp(text.parse().unwrap()).owner();
        assert_eq!(owner("10.0.0.1:1"), owner("[::ffff:10.0.0.1]:2"));
        assert_ne!(owner("10.0.0.1:1"), owner("10.0.0.2:1"));
        assert_eq!(owner("[2001:db8::1]:1"), owner("[2001:db8::2]:2"));
        assert_eq!(owner("[fe80::1%2]:1"), owner("[fe80::1%2]:2"));
        assert_ne!(owner("[fe80::1%2]:1"), owner("[fe80::2%2]:1"));
        assert_ne!(owner("[fe80::1%2]:1"), owner("[fe80::1%3]:1"));
    }
}
