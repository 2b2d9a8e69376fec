// SPDX-License-Identifier: Apache-2.0
#![no_main]
//! Frames and datagrams of a pairing: what is parsed is emitted again as it was.
use tautline_cli::pairing::wire::{Answer, Frame, LENGTH_BYTES, Query};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let frame = Frame::parse(bytes);
    assert!(frame.is_err() || frame.is_ok_and(|it| it.emit()[LENGTH_BYTES..] == *bytes));
    let answer = Answer::parse(bytes);
    assert!(answer.is_err() || answer.is_ok_and(|it| it.emit() == bytes));
    let query = Query::parse(bytes);
    assert!(query.is_err() || query.is_ok_and(|it| it.emit() == bytes));
});
