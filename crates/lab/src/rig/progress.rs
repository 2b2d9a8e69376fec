// SPDX-License-Identifier: Apache-2.0
//! The current stage and the remaining time, on standard error.

use std::collections::VecDeque;
use std::io::{IsTerminal, Write};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const REDRAW_PERIOD: Duration = Duration::from_millis(500);

/// A line that is redrawn on a terminal and printed once per stage elsewhere.
#[derive(Clone)]
pub struct Progress(Arc<Mutex<State>>);

struct State {
    stage: String,
    stage_ends: Instant,
    /// Remaining stages: name and expected duration.
    rest: VecDeque<(String, Duration)>,
    finished: bool,
    /// Whether to print nothing where a line cannot be redrawn.
    quiet: bool,
}

impl Progress {
    /// Announces all stages, each with its expected duration.
    pub fn new(stages: Vec<(String, Duration)>) -> Self {
        Self::with(stages, false)
    }

    /// Like [`Progress::new`], but prints nothing unless standard error is a terminal.
    pub fn quietly(stages: Vec<(String, Duration)>) -> Self {
        Self::with(stages, true)
    }

    /// Announces the stages of a case, and enters the first.
    pub fn for_case(case: &str, stages: &[(&str, Duration)]) -> Self {
        let named = stages.iter().map(|(text, time)| (format!("{case}: {text}"), *time));
        let progress = Self::new(named.collect());
        progress.enter_next();
        progress
    }

    fn with(stages: Vec<(String, Duration)>, quiet: bool) -> Self {
        let state = State {
            stage: "starting".into(),
            stage_ends: Instant::now(),
            rest: stages.into(),
            finished: false,
            quiet,
        };
        let progress = Self(Arc::new(Mutex::new(state)));
        if std::io::stderr().is_terminal() {
            progress.redraw_in_background();
        }
        progress
    }

    /// Enters the next stage.
    pub fn enter_next(&self) {
        let Ok(mut state) = self.0.lock() else { return };
        if let Some((stage, duration)) = state.rest.pop_front() {
            state.stage = stage;
            state.stage_ends = Instant::now() + duration;
        }
        if !state.quiet && !std::io::stderr().is_terminal() {
            eprintln!("{}", state.line());
        }
    }

    /// Replaces the remaining stages by these.
    pub fn replan(&self, stages: Vec<(String, Duration)>) {
        if let Ok(mut state) = self.0.lock() {
            state.rest = stages.into();
        }
    }

    /// Prints a text above the line.
    pub fn say(&self, text: &str) {
        let clear = if std::io::stderr().is_terminal() { "\r\x1b[K" } else { "" };
        eprintln!("{clear}{text}");
    }

    /// Removes the line, before results are printed.
    pub fn finish(&self) {
        let Ok(mut state) = self.0.lock() else { return };
        state.finished = true;
        if std::io::stderr().is_terminal() {
            eprint!("\r\x1b[K");
        }
    }

    fn redraw_in_background(&self) {
        let state = self.0.clone();
        std::thread::spawn(move || {
            while let Ok(state) = state.lock()
                && !state.finished
            {
                eprint!("\r\x1b[K{}", state.line());
                let _ = std::io::stderr().flush();
                drop(state);
                std::thread::sleep(REDRAW_PERIOD);
            }
        });
    }
}

impl State {
    fn line(&self) -> String {
        let rest: Duration = self.rest.iter().map(|(_, duration)| *duration).sum();
        let left = self.stage_ends.saturating_duration_since(Instant::now()) + rest;
        format!("[{:3} s left] {}", left.as_secs_f64().ceil(), self.stage)
    }
}
