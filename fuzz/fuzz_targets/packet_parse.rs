// SPDX-License-Identifier: Apache-2.0
#![no_main]
use tautline_proto::wire::{cursor::Reader, frame::Frame, packet::Packet, relay::RelayHeader};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = Packet::parse(bytes);
    // Parses the same bytes as the plaintext of a packet.
    let mut reader = Reader::new(bytes);
    while let Ok(frame) = Frame::parse(&mut reader) {
        if let Frame::Relay(_, payload) = frame {
            let _ = RelayHeader::parse(&mut Reader::new(payload));
        }
    }
});
