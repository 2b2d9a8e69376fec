// SPDX-License-Identifier: Apache-2.0
#![no_main]
#[path = "../../crates/proto/tests/attacker/mod.rs"]
mod attacker;

libfuzzer_sys::fuzz_target!(|pieces: Vec<&[u8]>| {
    let mut attacked = attacker::Attacked::new(Default::default());
    pieces.iter().for_each(|piece| attacked.raw_or_framed(piece));
});
