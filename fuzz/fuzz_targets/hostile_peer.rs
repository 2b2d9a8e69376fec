// SPDX-License-Identifier: Apache-2.0
#![no_main]
//! A peer with a valid key attacks a node with two honest peers; the bytes are the script.

use cap::Cap;
use std::alloc::System;
use tautline_testkit::attacker::team::{Team, choices};

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

/// Maximum growth of memory of three nodes and the harness after the handshakes: two queues and
/// reassemblies of 200 KB for each of six peers, and a MiB of a definition.
const MOST: usize = 24 << 20;

libfuzzer_sys::fuzz_target!(|script: &[u8]| {
    let Some((relayed, script)) = script.split_first() else { return };
    let mut team = Team::new(relayed % 2 == 1);
    let before = ALLOCATOR.allocated();
    team.play(&mut choices(script), &mut || {
        let grown = ALLOCATOR.allocated().saturating_sub(before);
        assert!(grown <= MOST, "{grown} bytes of memory more than before");
    });
});
