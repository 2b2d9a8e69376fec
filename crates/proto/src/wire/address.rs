// SPDX-License-Identifier: Apache-2.0
//! UDP addresses in frames (OBSERVE, OBSERVED and CANDIDATES). With these frames, two nodes learn
//! of address translators between them, and find a direct path.

use super::WireError;
use super::cursor::Reader;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// Maximum number of addresses in one CANDIDATES frame. All of them are tried at the same time.
pub const MAX_CANDIDATES: usize = 8;
const FLAG_ANSWER: u8 = 1;

/// Addresses at which the sender of a CANDIDATES frame may be reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidates {
    /// Whether the frame answers a CANDIDATES frame of the receiver.
    pub is_answer: bool,
    /// 1 to [`MAX_CANDIDATES`] addresses.
    pub addresses: Vec<SocketAddr>,
}

impl Candidates {
    /// Reads the body.
    pub fn parse(body: &mut Reader<'_>) -> Result<Self, WireError> {
        let is_answer = body.u8()? & FLAG_ANSWER != 0;
        let mut addresses = Vec::new();
        while !body.is_empty() {
            if addresses.len() == MAX_CANDIDATES {
                return Err(WireError::Value("candidates"));
            }
            addresses.push(read_address(body)?);
        }
        if addresses.is_empty() {
            return Err(WireError::Value("candidates"));
        }
        Ok(Self { is_answer, addresses })
    }

    /// Appends the body.
    pub fn emit(&self, out: &mut Vec<u8>) {
        out.push(if self.is_answer { FLAG_ANSWER } else { 0 });
        self.addresses.iter().take(MAX_CANDIDATES).for_each(|it| put_address(*it, out));
    }
}

/// Reads an address: 16 bytes of IPv6, to which IPv4 is mapped, and a port.
pub(super) fn read_address(body: &mut Reader<'_>) -> Result<SocketAddr, WireError> {
    let ip = IpAddr::from(Ipv6Addr::from(body.array::<16>()?)).to_canonical();
    Ok(SocketAddr::new(ip, u16::from_le_bytes(body.array()?)))
}

/// Appends an address. The interface of a link-local address is left out: it has no meaning on
/// another machine.
pub(crate) fn put_address(address: SocketAddr, out: &mut Vec<u8>) {
    let ip = match address.ip() {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    out.extend_from_slice(&ip.octets());
    out.extend_from_slice(&address.port().to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_encoding() {
        for text in ["10.0.0.1:18470", "[2001:db8::1]:1", "0.0.0.0:0", "255.255.255.255:65535"] {
            let address: SocketAddr = text.parse().unwrap();
            let mut out = Vec::new();
            put_address(address, &mut out);
            assert_eq!(out.len(), 18);
            assert_eq!(read_address(&mut Reader::new(&out)), Ok(address));
        }
    }
}
