// SPDX-License-Identifier: Apache-2.0
//! The live view below the output of programs.

use super::emulator::COUNTS_BELOW;
use super::station::Snapshot;
use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _};
use std::sync::{Mutex, PoisonError};

/// Width of an airtime bar, in cells.
const BAR: usize = 20;
/// Maximum number of radios in the view; more do not fit on a screen.
const MAX_RADIOS: usize = 30;

/// The output of lines. On a terminal the newest view stays below them.
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

/// Formats the view: the activity of each radio between two snapshots.
pub fn view(before: &Snapshot, now: &Snapshot) -> String {
    let elapsed = (now.now - before.now).max(1) as f64;
    let name = |n: usize| format!("{} on {}", now.radios[n].station, now.radios[n].network);
    let shown = now.radios.len().min(MAX_RADIOS);
    let width = (0..shown).map(|n| name(n).len()).max().unwrap_or(5).max(5);
    let mut text = format!(
        "{:width$} {:BAR$} {:>6} {:>6} {:>9} {:>9} {:>9}\n",
        "radio", "airtime", "%", "queue", "frames/s", "retries/s", "lost/s"
    );
    for number in 0..shown {
        let (old, new) = (&before.stats[number], &now.stats[number]);
        let share = (new.airtime - old.airtime) as f64 / elapsed;
        let per_s = |new: u64, old: u64| (new - old) as f64 * 1e9 / elapsed;
        let lost = |s: &tautline_medium::RadioStats| s.given_up + s.queue_drops;
        let _ = writeln!(
            text,
            "{:width$} {} {:>6.1} {:>6} {:>9.0} {:>9.0} {:>9.0}",
            name(number),
            bar(share),
            100.0 * share,
            new.waiting,
            per_s(new.attempts, old.attempts),
            per_s(new.retries, old.retries),
            per_s(lost(new), lost(old)),
        );
    }
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
