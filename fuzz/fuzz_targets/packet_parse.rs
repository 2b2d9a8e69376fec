// SPDX-License-Identifier: Apache-2.0
#![no_main]
use tautline_proto::wire::{cursor::Reader, frame::Frame, packet::Packet};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(Packet::Session(_, frames)) = Packet::parse(bytes) {
        let mut reader = Reader::new(frames);
        while Frame::parse(&mut reader).is_ok() {}
    }
});
