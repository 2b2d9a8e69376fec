// SPDX-License-Identifier: Apache-2.0
#![no_main]

use tautline_proto::{Config, SecretKey};
use tautline_testkit::attacker::Attacked;

libfuzzer_sys::fuzz_target!(|pieces: Vec<&[u8]>| {
    let config = Config::new("node", SecretKey::insecure("node"));
    let mut attacked = Attacked::new(config);
    pieces.iter().for_each(|piece| attacked.raw_or_framed(piece));
});
