// SPDX-License-Identifier: Apache-2.0
//! Output of `tautline pair`: text for people, or JSON, one event on each line.

use crate::cli::{Failure, output};
use serde_json::Value;
use std::io::{IsTerminal, Write};

/// How this run reports.
#[derive(Debug, Clone, Copy)]
pub struct Voice {
    /// JSON instead of text.
    pub json: bool,
    /// Answers every question with yes.
    pub yes: bool,
}

impl Voice {
    /// Prints text for people.
    pub fn say(self, text: &str) -> Result<(), Failure> {
        if self.json {
            return Ok(());
        }
        clear_line();
        output::print(&format!("{}\n", text.trim_end_matches('\n')))
    }

    /// Prints an event for programs.
    pub fn event(self, value: &Value) -> Result<(), Failure> {
        if self.json { output::print(&format!("{value}\n")) } else { Ok(()) }
    }

    /// Replaces the progress line, if a person can see it.
    pub fn progress(self, text: &str) {
        if !self.json && std::io::stderr().is_terminal() {
            let _ = write!(std::io::stderr(), "\r\x1b[K{text}");
        }
    }

    /// Asks a question; `default` is the answer to an empty line.
    pub fn ask(self, question: &str, default: bool) -> Result<bool, Failure> {
        if self.yes {
            return Ok(true);
        }
        clear_line();
        let choices = if default { "[Y/n]" } else { "[y/N]" };
        output::print(&format!("{question} {choices} "))?;
        let mut line = String::new();
        let read = std::io::stdin().read_line(&mut line);
        match (read, line.trim().to_lowercase().as_str()) {
            (Ok(1..), "") => Ok(default),
            (Ok(1..), "y" | "yes") => Ok(true),
            (Ok(1..), _) => Ok(false),
            _ => Err(Failure::new("no answer on standard input; --yes answers the question")),
        }
    }
}

fn clear_line() {
    if std::io::stderr().is_terminal() {
        let _ = write!(std::io::stderr(), "\r\x1b[K");
    }
}
