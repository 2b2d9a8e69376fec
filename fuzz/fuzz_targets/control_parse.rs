// SPDX-License-Identifier: Apache-2.0
#![no_main]
use tautline_proto::wire::control::Control;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(control) = Control::parse(bytes) {
        assert_eq!(Control::parse(&control.emit()), Ok(control));
    }
});
