// SPDX-License-Identifier: Apache-2.0
#![no_main]
#[path = "../../crates/proto/tests/attacker/mod.rs"]
mod attacker;

use tautline_proto::{Config, SecretKey};

libfuzzer_sys::fuzz_target!(|pieces: Vec<&[u8]>| {
    let config = Config::new("node", SecretKey::insecure("node"));
    let mut attacked = attacker::Attacked::new(config);
    pieces.iter().for_each(|piece| attacked.raw_or_framed(piece));
});
