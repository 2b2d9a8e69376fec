// SPDX-License-Identifier: Apache-2.0
//! Announcements of participants (RTPS 2.5, 8.5.3). Any program of this machine may send them.

/// What a participant announces of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnnouncedParticipant {
    /// The prefix of its GUIDs.
    pub prefix: [u8; 12],
    pub transport: Transport,
    /// The process, if the participant announces it, as Fast DDS does.
    pub process: Option<u32>,
}

/// How others reach a participant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// By UDP and IPv4, as we do.
    UdpV4,
    Ipv6,
    Tcp,
}

const HEADER_BYTES: usize = 20;
const DATA: u8 = 0x15;
/// Flag of DATA: a list of parameters precedes its payload.
const INLINE_QOS: u8 = 2;
/// Flag of DATA: it has a payload.
const PAYLOAD: u8 = 4;
/// The entity ID of the writer of announcements.
const ANNOUNCER: &[u8] = &[0, 1, 0, 0xc2];
/// The parameter with the address for discovery (RTPS 2.5, 9.6.3.2).
const DISCOVERY_LOCATOR: u16 = 0x32;
/// The parameter with the properties (RTPS 2.5, 9.6.3.2).
const PROPERTIES: u16 = 0x59;
const SENTINEL: u16 = 1;
/// Kinds of addresses: RTPS 2.5, 9.3.2, and Fast DDS.
const UDP_V4: u32 = 1;
const UDP_V6: u32 = 2;
const TCP: [u32; 2] = [4, 8];
/// The property by which Fast DDS names the process.
const PROCESS_PROPERTY: &[u8] = b"fastdds.physical_data.process";

/// Bytes to be read, in the order of the sender.
#[derive(Clone, Copy)]
struct ByteReader<'a> {
    rest: &'a [u8],
    little: bool,
}

impl<'a> ByteReader<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(taken)
    }

    fn u16(&mut self) -> Option<u16> {
        let bytes = self.take(2)?.try_into().ok()?;
        Some(if self.little { u16::from_le_bytes(bytes) } else { u16::from_be_bytes(bytes) })
    }

    fn u32(&mut self) -> Option<u32> {
        let bytes = self.take(4)?.try_into().ok()?;
        Some(if self.little { u32::from_le_bytes(bytes) } else { u32::from_be_bytes(bytes) })
    }

    /// A text without its final zero.
    fn read_text(&mut self) -> Option<&'a [u8]> {
        let length = self.u32()? as usize;
        let text = self.take(length)?;
        // The next value is aligned.
        self.take(length.wrapping_neg() % 4)?;
        text.strip_suffix(&[0])
    }
}

/// Reads a packet; `None` if it announces no participant.
pub fn participant(packet: &[u8]) -> Option<AnnouncedParticipant> {
    let header = packet.get(..HEADER_BYTES).filter(|header| header.starts_with(b"RTPS"))?;
    let prefix = header[8..].try_into().ok()?;
    let mut rest = &packet[HEADER_BYTES..];
    loop {
        let (kind, flags) = (*rest.first()?, *rest.get(1)?);
        let mut head = ByteReader { rest: &rest[2..], little: flags & 1 != 0 };
        let length = usize::from(head.u16()?);
        let whole = head.rest;
        // The last submessage may have the length 0, which means up to the end.
        let length = if length == 0 && kind == DATA { whole.len() } else { length };
        let body = head.take(length)?;
        if kind == DATA
            && flags & (INLINE_QOS | PAYLOAD) == PAYLOAD
            && body.get(8..12)? == ANNOUNCER
        {
            return parse_parameters(prefix, ByteReader { rest: body, little: head.little });
        }
        rest = head.rest;
    }
}

fn parse_parameters(prefix: [u8; 12], mut body: ByteReader<'_>) -> Option<AnnouncedParticipant> {
    body.take(2)?;
    let to_payload = usize::from(body.u16()?);
    body.take(to_payload)?;
    let encoding = body.take(4)?;
    body.little = encoding[1] & 1 != 0;
    let (mut kinds, mut process) = (Vec::new(), None);
    while let (Some(id), Some(length)) = (body.u16(), body.u16()) {
        if id == SENTINEL {
            break;
        }
        let mut value = ByteReader { rest: body.take(usize::from(length))?, ..body };
        match id {
            DISCOVERY_LOCATOR => kinds.push(value.u32()?),
            PROPERTIES => process = find_process_id(value),
            _ => {}
        }
    }
    let transport = match &kinds {
        kinds if kinds.contains(&UDP_V4) => Transport::UdpV4,
        kinds if kinds.contains(&UDP_V6) => Transport::Ipv6,
        kinds if kinds.iter().any(|kind| TCP.contains(kind)) => Transport::Tcp,
        _ => return None,
    };
    Some(AnnouncedParticipant { prefix, transport, process })
}

fn find_process_id(mut properties: ByteReader<'_>) -> Option<u32> {
    let count = properties.u32()?;
    for _ in 0..count {
        let (name, value) = (properties.read_text()?, properties.read_text()?);
        if name == PROCESS_PROPERTY {
            return std::str::from_utf8(value).ok()?.parse().ok();
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The announcement of rclpy of Jazzy with LARGE_DATA, as captured.
    const LARGE_DATA: &str = "\
        525450530203010f010f995be11000070000000009010800384c096be6eac72215059401000010000001\
        00c7000100c2000000000100000000030000150004000202000016000400010f000050001000010f995b\
        e110000700000000000001c10780040005000000320018000400000019aff21c00000000000000000000\
        00000a4d00013100180010000000f31c000055995b000000000000000000000000003100180004000000\
        19aff31c0000000000000000000000000a4d0001020008001400000000000000580004003f0c00006200\
        0800020000002f0000002c0010000b000000656e636c6176653d2f3b00005900c0000400000011000000\
        5041525449434950414e545f54595045000000000700000053494d504c4500001b000000666173746464\
        732e706879736963616c5f646174612e686f7374000017000000766d3a35303330373332303332333736\
        37303039323800001b000000666173746464732e706879736963616c5f646174612e7573657200000500\
        0000726f6f74000000001e000000666173746464732e706879736963616c5f646174612e70726f636573\
        7300000005000000343332310000000001000000";

    fn captured() -> Vec<u8> {
        let digits = |at| u8::from_str_radix(&LARGE_DATA[at..at + 2], 16).unwrap();
        (0..LARGE_DATA.len() / 2).map(|at| digits(2 * at)).collect()
    }

    /// Position of the first byte of the kind of the address for discovery.
    fn kind_at(packet: &[u8]) -> usize {
        packet.windows(4).position(|it| it == [0x32, 0, 0x18, 0]).unwrap() + 4
    }

    #[test]
    fn an_announcement_has_the_addresses_and_the_process_of_the_participant() {
        let mut packet = captured();
        let found = participant(&packet).unwrap();
        assert_eq!((found.transport, found.process), (Transport::Tcp, Some(4321)));
        assert_eq!(found.prefix[..2], [1, 0xf]);
        let at = kind_at(&packet);
        for (kind, transport) in [(1, Transport::UdpV4), (2, Transport::Ipv6), (8, Transport::Tcp)]
        {
            packet[at] = kind;
            assert_eq!(participant(&packet).unwrap().transport, transport);
        }
        packet[at] = 16;
        assert_eq!(participant(&packet), None, "shared memory is found by its locks");
    }

    #[test]
    fn any_bytes_are_read_without_a_panic() {
        let packet = captured();
        for length in 0..packet.len() {
            let _ = participant(&packet[..length]);
        }
        for at in 0..packet.len() {
            for value in [0, 1, 0x7f, 0x80, 0xff] {
                let mut other = packet.clone();
                other[at] = value;
                let _ = participant(&other);
            }
        }
    }
}
