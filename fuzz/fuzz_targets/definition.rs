// SPDX-License-Identifier: Apache-2.0
#![no_main]
//! A definition of ROS 1 or ROS 2. A parsed definition has a hash, and its own text has the same
//! hash.
use tautline_gateway::types::definition::types_referenced_by;
use tautline_gateway::types::derive::{to_ros1, to_ros2};
use tautline_gateway::types::hash::type_hash;
use tautline_gateway::types::{Dialect, Schema};

libfuzzer_sys::fuzz_target!(|input: (bool, &str)| {
    let (is_ros2, text) = input;
    let dialect = if is_ros2 { Dialect::Ros2 } else { Dialect::Ros1 };
    let _ = types_referenced_by("a/A", text, dialect);
    let Ok(schema) = Schema::parse("a/A", text, dialect) else { return };
    let again = Schema::parse("a/A", &schema.to_text(), dialect).expect("its own text is read");
    assert_eq!(type_hash(&again), type_hash(&schema));
    match dialect {
        Dialect::Ros1 => drop(to_ros2(&schema).map(|other| type_hash(&other))),
        Dialect::Ros2 => drop(to_ros1(&schema).map(|other| type_hash(&other))),
    }
});
