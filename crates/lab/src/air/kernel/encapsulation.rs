// SPDX-License-Identifier: Apache-2.0
//! Encapsulation of frames between radios: VXLAN packets (RFC 7348) that never leave the air's
//! loopback interface.
//!
//! A radio is a VXLAN device. The kernel resolves neighbours on it as on any Ethernet, so ARP is
//! held like other frames. It wraps a frame into a UDP packet, still charged to the socket that
//! sent it, and sends this packet through the hook at which it is queued. (A veth pair or a TAP
//! device would take the frame off its socket immediately. A bridge device would not, but few
//! kernels can queue frames of the bridge family: CONFIG_NFT_QUEUE.)

use std::net::Ipv4Addr;

/// Index of a radio among all radios, counted station by station in the scenario's order.
pub type RadioNumber = usize;

/// Bytes of the VXLAN header, which precedes the frame in the UDP payload.
pub const HEADER_BYTES: usize = 8;
/// VXLAN's UDP port.
pub const UDP_PORT: u16 = 4789;
/// Destination of frames that radios send. It is a broadcast address: for a unicast address, the kernel
/// would pass frames from device to device (VXLAN's "local bypass"), past the hook.
pub const EVERYWHERE: Ipv4Addr = Ipv4Addr::new(127, 255, 255, 255);
/// Destination of injected frames.
pub const HERE: Ipv4Addr = Ipv4Addr::LOCALHOST;
/// Subnet of the sources of radios' frames; injected frames have other sources and are not held.
pub const RADIOS: &str = "127.1.0.0/16";
/// VXLAN's flag that a network identifier is present.
const HAS_IDENTIFIER: u8 = 8;
const UDP_HEADER_BYTES: usize = 8;
const UDP: u8 = 17;

/// Returns the VXLAN network identifier with which a radio receives.
pub fn identifier(radio: RadioNumber) -> u32 {
    radio as u32 + 1
}

/// Returns the source address of a radio's frames.
pub fn source(radio: RadioNumber) -> Ipv4Addr {
    let [_, _, high, low] = identifier(radio).to_be_bytes();
    Ipv4Addr::new(127, 1, high, low)
}

/// Returns the VXLAN header of a frame for a radio.
pub fn header(radio: RadioNumber) -> [u8; HEADER_BYTES] {
    let [_, high, middle, low] = identifier(radio).to_be_bytes();
    [HAS_IDENTIFIER, 0, 0, 0, high, middle, low, 0]
}

/// Returns the radio that sent an IP packet, and the Ethernet frame in the packet.
pub fn unwrap(packet: &[u8]) -> Option<(RadioNumber, &[u8])> {
    let header_bytes = usize::from(packet.first()? & 0xf) * 4;
    if packet.get(9) != Some(&UDP) {
        return None;
    }
    let [_, _, high, low] = *packet.get(12..16)?.first_chunk()?;
    let radio = usize::from(u16::from_be_bytes([high, low])).checked_sub(1)?;
    Some((radio, packet.get(header_bytes + UDP_HEADER_BYTES + HEADER_BYTES..)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(radio: RadioNumber, frame: &[u8]) -> Vec<u8> {
        let mut ip = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, UDP, 0, 0];
        ip.extend(source(radio).octets());
        ip.extend(EVERYWHERE.octets());
        ip.extend([0; UDP_HEADER_BYTES]);
        [&ip, &header(7)[..], frame].concat()
    }

    #[test]
    fn a_frame_comes_out_with_the_radio_that_sent_it() {
        for radio in [0, 255, 4095] {
            assert_eq!(unwrap(&packet(radio, b"frame")), Some((radio, &b"frame"[..])));
        }
        assert_eq!(source(0), Ipv4Addr::new(127, 1, 0, 1));
        assert_eq!(header(255), [8, 0, 0, 0, 0, 1, 0, 0]);
    }

    #[test]
    fn other_packets_are_refused() {
        let whole = packet(3, b"");
        for length in 0..whole.len() {
            assert_eq!(unwrap(&whole[..length]), None, "{length}");
        }
        let mut tcp = whole;
        tcp[9] = 6;
        assert_eq!(unwrap(&tcp), None);
    }
}
