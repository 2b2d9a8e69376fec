// SPDX-License-Identifier: Apache-2.0
//! IP networks in the configuration file.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// The values allowed for a network.
pub const ALLOWED: &str = "an address or a network, such as 10.0.0.7, 10.0.0.0/24 or fd00::/64";

/// Addresses with the same first bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    first: IpAddr,
    prefix: u8,
}

impl Network {
    /// Whether the network contains an address; an IPv4 address may be mapped to IPv6.
    pub fn contains(&self, address: IpAddr) -> bool {
        network_address(address.to_canonical(), self.prefix) == Some(self.first)
            && address.to_canonical().is_ipv4() == self.first.is_ipv4()
    }
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (address, prefix) = text.split_once('/').map_or((text, None), |(a, p)| (a, Some(p)));
        let address = address.parse::<IpAddr>().map_err(|_| ALLOWED.to_owned())?;
        let prefix = match prefix {
            Some(prefix) => prefix.parse().map_err(|_| ALLOWED.to_owned())?,
            None if address.is_ipv4() => Ipv4Addr::BITS as u8,
            None => Ipv6Addr::BITS as u8,
        };
        let first = network_address(address, prefix).ok_or_else(|| ALLOWED.to_owned())?;
        match first == address {
            true => Ok(Self { first, prefix }),
            false => Err(format!("{ALLOWED} (the network of {text} is {first}/{prefix})")),
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.first, self.prefix)
    }
}

/// The first address of the network; `None` if the prefix is too long.
fn network_address(address: IpAddr, prefix: u8) -> Option<IpAddr> {
    let prefix = u32::from(prefix);
    match address {
        IpAddr::V4(v4) => {
            let rest = Ipv4Addr::BITS.checked_sub(prefix)?;
            let mask = u32::MAX.checked_shl(rest).unwrap_or(0);
            Some(Ipv4Addr::from_bits(v4.to_bits() & mask).into())
        }
        IpAddr::V6(v6) => {
            let rest = Ipv6Addr::BITS.checked_sub(prefix)?;
            let mask = u128::MAX.checked_shl(rest).unwrap_or(0);
            Some(Ipv6Addr::from_bits(v6.to_bits() & mask).into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contains(network: &str, address: &str) -> bool {
        network.parse::<Network>().unwrap().contains(address.parse().unwrap())
    }

    #[test]
    fn networks_contain_only_their_addresses() {
        assert!(contains("10.0.0.0/24", "10.0.0.255") && !contains("10.0.0.0/24", "10.0.1.0"));
        assert!(contains("10.0.0.7", "10.0.0.7") && !contains("10.0.0.7", "10.0.0.6"));
        assert!(contains("10.0.0.0/24", "::ffff:10.0.0.9"), "as an IPv6 socket has it");
        assert!(contains("0.0.0.0/0", "1.2.3.4") && !contains("0.0.0.0/0", "::1"));
        assert!(contains("::/0", "fe80::1") && !contains("::/0", "1.2.3.4"));
        assert!(contains("fd00::/64", "fd00::7") && !contains("fd00::/64", "fd00:0:0:1::7"));
    }

    #[test]
    fn invalid_networks_are_refused_with_the_values_allowed() {
        for wrong in ["", "robot1", "10.0.0.0/33", "fd00::/129", "10.0.0.0/-1", "10.0.0/8"] {
            let error = wrong.parse::<Network>().unwrap_err();
            assert!(error.contains("10.0.0.0/24"), "{wrong}: {error}");
        }
        let error = "10.0.0.7/24".parse::<Network>().unwrap_err();
        assert!(error.contains("is 10.0.0.0/24"), "{error}");
        assert_eq!("10.0.0.7".parse::<Network>().unwrap().to_string(), "10.0.0.7/32");
    }
}
