// SPDX-License-Identifier: Apache-2.0
//! Output of `tautline pair`: text for people, or JSON, one event on each line.

use crate::cli::{Failure, output};
use serde_json::Value;
use std::io::{IsTerminal, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

/// Interval at which a question checks whether it still needs an answer.
const TICK: Duration = Duration::from_millis(100);

/// Output mode of this run, and whether it asks questions.
#[derive(Debug, Clone, Copy)]
pub struct Console {
    /// JSON instead of text.
    pub json: bool,
    /// Answers every question with yes.
    pub yes: bool,
}

impl Console {
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

    /// Asks a question; `default` is the answer to an empty line. `watch` may end the wait for the
    /// answer.
    pub fn ask(
        self,
        question: &str,
        default: bool,
        mut watch: impl FnMut() -> Result<(), Failure>,
    ) -> Result<bool, Failure> {
        if self.yes {
            return Ok(true);
        }
        clear_line();
        // Input typed before the question is discarded.
        let input = std::io::stdin();
        if input.is_terminal() {
            let _ = rustix::termios::tcflush(&input, rustix::termios::QueueSelector::IFlush);
        }
        let choices = if default { "[Y/n]" } else { "[y/N]" };
        output::print(&format!("{question} {choices} "))?;
        let line = read_line()?;
        let answer = loop {
            match line.recv_timeout(TICK) {
                Ok(line) => break line,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break None,
            }
            if let Err(failure) = watch() {
                // The failure gets a line of its own.
                output::print("\n")?;
                return Err(failure);
            }
        };
        match answer.as_deref().map(str::trim) {
            Some("") => Ok(default),
            Some(answer) => Ok(["y", "yes"].contains(&answer.to_lowercase().as_str())),
            None => Err(Failure::new("no answer on standard input; --yes answers the question")),
        }
    }
}

/// Reads a line from standard input on a thread, which ends with the program if no line arrives.
/// `None`: end of input.
fn read_line() -> Result<Receiver<Option<String>>, Failure> {
    let (sender, line) = sync_channel(1);
    let work = move || {
        let mut line = String::new();
        let read = std::io::stdin().read_line(&mut line);
        let _ = sender.send(matches!(read, Ok(1..)).then_some(line));
    };
    std::thread::Builder::new().name("answer".into()).spawn(work).map_err(Failure::new)?;
    Ok(line)
}

fn clear_line() {
    if std::io::stderr().is_terminal() {
        let _ = write!(std::io::stderr(), "\r\x1b[K");
    }
}
