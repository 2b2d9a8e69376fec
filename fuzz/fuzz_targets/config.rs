// SPDX-License-Identifier: Apache-2.0
#![no_main]
//! A robot's file: it is valid, or every problem has a position.
use std::path::PathBuf;
use tautline::config::{ConfigError, MAX_PROBLEMS, Surroundings, parse};

libfuzzer_sys::fuzz_target!(|text: &str| {
    if let Err(problems) = parse(text, &Surroundings::default()) {
        // A carriage return alone also ends a line of YAML.
        let lines = text.matches(['\n', '\r']).count() + 2;
        assert!(!problems.is_empty());
        assert!(problems.iter().all(|problem| problem.at.line <= lines), "{problems:?}");
        let file = PathBuf::from("robot.yaml");
        let message = ConfigError::Invalid { file, problems }.to_string();
        // What was found is quoted, so it adds no lines.
        assert!(message.lines().count() <= MAX_PROBLEMS + 1, "{message}");
        assert!(message.lines().all(|line| line.starts_with("robot.yaml:")), "{message}");
    }
});
