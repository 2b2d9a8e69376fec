// SPDX-License-Identifier: Apache-2.0
#![no_main]
//! A ROS 1 definition, a NUL, and a message, read as ROS 1 and as ROS 2. The result of a
//! conversion to ROS 2 is unchanged by a conversion to ROS 1 and back. What can be converted passes
//! the check of its type.
use tautline_gateway::types::check::Checker;
use tautline_gateway::types::derive::to_ros2;
use tautline_gateway::types::{Dialect, Schema, Transcoder};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some(end) = bytes.iter().position(|byte| *byte == 0) else { return };
    let (text, message) = (String::from_utf8_lossy(&bytes[..end]), &bytes[end + 1..]);
    let Ok(ros1) = Schema::parse("a/A", &text, Dialect::Ros1) else { return };
    // Two fields may have one name there.
    let Ok(ros2) = to_ros2(&ros1) else { return };
    let transcoder = Transcoder::new(&ros1, &ros2).expect("its own counterpart");
    let [passes1, passes2] = [&ros1, &ros2].map(|it| Checker::new(it).check(message).is_ok());
    if let Ok(there) = transcoder.to_ros2(message) {
        assert!(passes1 && Checker::new(&ros2).check(&there).is_ok());
        assert!(there.len() <= 8 * message.len() + (1 << 16) + 4);
        let back = transcoder.to_ros1(&there).expect("what was written is read");
        assert_eq!(transcoder.to_ros2(&back).as_ref(), Ok(&there));
    }
    if let Ok(here) = transcoder.to_ros1(message) {
        assert!(passes2 && here.len() <= 8 * message.len() + (1 << 16));
    }
});
