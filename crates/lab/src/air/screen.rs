// SPDX-License-Identifier: Apache-2.0
//! The live view below the output of programs.

use super::emulator::COUNTS_BELOW;
use super::station::Snapshot;
use crate::rig::table::{self, left, right};
use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _};
use std::sync::{Mutex, PoisonError};
use tautline_medium::RadioStats;

/// Width of an airtime bar, in cells.
const BAR: usize = 20;
/// Maximum number of radios in the view; more do not fit on a screen.
const MAX_RADIOS: usize = 30;

/// Prints lines. On a terminal, the newest view stays below them.
#[derive(Default)]
pub struct Screen {
    view: Mutex<String>,
    quiet: bool,
    hidden: bool,
}

impl Screen {
    /// Creates a screen. A quiet screen prints programs' lines to standard error, because standard
    /// output is for JSON.
    pub fn new(quiet: bool) -> Self {
        Self { view: Mutex::default(), quiet, hidden: false }
    }

    /// Creates a screen without a view.
    pub fn hidden() -> Self {
        Self { view: Mutex::default(), quiet: true, hidden: true }
    }

    /// Prints a line above the view.
    pub fn print(&self, line: &str) {
        let view = self.view.lock().unwrap_or_else(PoisonError::into_inner);
        erase(&view);
        if self.quiet {
            eprintln!("{line}");
        } else {
            println!("{line}");
        }
        show(&view);
    }

    /// Shows a new view, on a terminal only.
    pub fn draw(&self, text: String) {
        if !self.hidden && std::io::stderr().is_terminal() {
            let mut view = self.view.lock().unwrap_or_else(PoisonError::into_inner);
            erase(&view);
            show(&text);
            *view = text;
        }
    }

    /// Removes the view.
    pub fn clear(&self) {
        let mut view = self.view.lock().unwrap_or_else(PoisonError::into_inner);
        erase(&view);
        view.clear();
    }
}

fn erase(view: &str) {
    let lines = view.lines().count();
    if lines > 0 {
        // Moves up and clears to the end of the screen.
        eprint!("\x1b[{lines}A\x1b[J");
        let _ = std::io::stderr().flush();
    }
}

fn show(view: &str) {
    eprint!("{view}");
    let _ = std::io::stderr().flush();
}

/// Activity of a radio between two snapshots.
struct Row {
    name: String,
    /// Share of the time that the radio transmitted.
    share: f64,
    waiting: u64,
    frames_per_s: f64,
    retries_per_s: f64,
    lost_per_s: f64,
}

impl Row {
    fn new(before: &Snapshot, now: &Snapshot, radio: usize) -> Self {
        let elapsed = (now.now - before.now).max(1) as f64;
        let (old, new) = (&before.stats[radio], &now.stats[radio]);
        let per_s = |of: fn(&RadioStats) -> u64| (of(new) - of(old)) as f64 * 1e9 / elapsed;
        Self {
            name: now.radios[radio].name(),
            share: (new.airtime - old.airtime) as f64 / elapsed,
            waiting: new.waiting,
            frames_per_s: per_s(|stats| stats.attempts),
            retries_per_s: per_s(|stats| stats.retries),
            lost_per_s: per_s(|stats| stats.given_up + stats.queue_drops),
        }
    }
}

/// Formats the view: the activity of each radio between two snapshots.
pub fn view(before: &Snapshot, now: &Snapshot) -> String {
    let shown = now.radios.len().min(MAX_RADIOS);
    let rows: Vec<Row> = (0..shown).map(|radio| Row::new(before, now, radio)).collect();
    let width = table::width("radio", rows.iter().map(|row| row.name.as_str()));
    let mut text = table::format_rows(
        &rows,
        &[
            left("radio", width, |row: &Row| row.name.clone()),
            left("airtime", BAR, |row| bar(row.share)),
            right("%", 6, |row| format!("{:.1}", 100.0 * row.share)),
            right("queue", 6, |row| row.waiting.to_string()),
            right("frames/s", 9, |row| format!("{:.0}", row.frames_per_s)),
            right("retries/s", 9, |row| format!("{:.0}", row.retries_per_s)),
            right("lost/s", 9, |row| format!("{:.0}", row.lost_per_s)),
        ],
    );
    if shown < now.radios.len() {
        let _ = writeln!(text, "... and {} more radios", now.radios.len() - shown);
    }
    let late = &now.punctuality;
    let _ = writeln!(
        text,
        "{:.0} s, emulator late by {} us (p50), {} us (p99, limit {}), {:.0} % of a core",
        now.now as f64 / 1e9,
        late.late_p50_us,
        late.late_p99_us,
        COUNTS_BELOW.as_micros(),
        late.cpu_percent
    );
    text
}

fn bar(share: f64) -> String {
    let full = ((share * BAR as f64).round() as usize).min(BAR);
    "█".repeat(full) + &"·".repeat(BAR - full)
}
