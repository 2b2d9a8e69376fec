// SPDX-License-Identifier: Apache-2.0
#![no_main]
//! A robot's file: it is valid, or every problem has a position.
use tautline_node::config::{MAX_PROBLEMS, Surroundings, parse};

libfuzzer_sys::fuzz_target!(|text: &str| {
    if let Err(problems) = parse(text, &Surroundings::default()) {
        // A carriage return alone also ends a line of YAML.
        let lines = text.matches(['\n', '\r']).count() + 2;
        assert!(!problems.is_empty() && problems.len() <= MAX_PROBLEMS + 1);
        assert!(problems.iter().all(|problem| problem.at.line <= lines), "{problems:?}");
        problems.iter().for_each(|problem| drop(problem.to_string()));
    }
});
