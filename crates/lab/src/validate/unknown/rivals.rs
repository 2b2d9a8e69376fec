// SPDX-License-Identifier: Apache-2.0
//! `auto` against the best of its rivals, link by link.

use super::{COLLAPSE, Cell, Run};
use crate::rig::stats;
use crate::rig::table::{self, Column, left, right};
use serde::Serialize;

/// Bulk counts as no worse if it is less by at most this fraction.
const BULK_MARGIN: f64 = 0.01;
/// A delay counts as no worse if it is longer by at most this many milliseconds.
const P99_MARGIN_MS: f64 = 1.0;
/// A delay also counts as no worse if it is longer by at most this fraction.
const P99_MARGIN: f64 = 0.05;
/// A rival with at least this fraction of the bulk of `auto` counts as having equal bulk.
const EQUAL_BULK: f64 = 0.95;

/// A ratio of delays, with its link and its rival.
#[derive(Debug, Clone, Serialize)]
struct Ratio {
    seed: u64,
    rival: &'static str,
    ratio: f64,
}

/// The links on which `auto` is no worse, as parts of all.
#[derive(Debug, Serialize)]
pub(super) struct Summary {
    links: usize,
    /// Bulk is no less than any rival's.
    bulk_no_worse: f64,
    /// Bulk and p99 are no worse than each rival's, however little bulk the rival carries.
    both_no_worse: f64,
    /// Bulk is no less than any rival's, and p99 no longer than that of each rival with equal bulk.
    no_worse_at_equal_bulk: f64,
    /// p99 of `auto`, divided by that of the best rival with equal bulk, on links with such a rival.
    worst: Vec<Ratio>,
    median_ratio: f64,
    collapses: usize,
    rows: Vec<Row>,
}

/// One controller over all links.
#[derive(Debug, Serialize)]
struct Row {
    controller: &'static str,
    bulk_mean: f64,
    bulk_least: f64,
    p99_median: f64,
    /// Geometric mean.
    p99_mean: f64,
    lost_mean: f64,
    /// Links on which this controller carries less than half of the bulk of the best one.
    collapses: usize,
    /// Links on which `auto` is no worse than this controller, in bulk and p99.
    auto_no_worse: usize,
    /// Links on which this controller is no worse than `auto`, in bulk and p99.
    no_worse: usize,
}

fn is_bulk_no_worse(one: &Run, other: &Run) -> bool {
    one.bulk_percent >= other.bulk_percent * (1.0 - BULK_MARGIN)
}

fn is_p99_no_worse(one: &Run, other: &Run) -> bool {
    let least = other.laser_p99_ms;
    one.laser_p99_ms <= (least + P99_MARGIN_MS).max(least * (1.0 + P99_MARGIN))
}

fn is_no_worse(one: &Run, other: &Run) -> bool {
    is_bulk_no_worse(one, other) && is_p99_no_worse(one, other)
}

impl Cell {
    fn peers(&self) -> impl Iterator<Item = &Run> {
        let auto = self.auto();
        self.rivals().filter(|it| it.bulk_percent >= EQUAL_BULK * auto.bulk_percent)
    }

    fn p99_ratio(&self) -> Option<Ratio> {
        let best = self.peers().min_by(|a, b| a.laser_p99_ms.total_cmp(&b.laser_p99_ms))?;
        Some(Ratio {
            seed: self.link.seed,
            rival: best.controller,
            ratio: self.auto().laser_p99_ms / best.laser_p99_ms.max(1e-3),
        })
    }
}

impl Summary {
    /// Returns the summary of cells that have rivals; `None` if they have none.
    pub(super) fn new(cells: &[Cell]) -> Option<Self> {
        cells.first()?.rivals().next()?;
        let part = |holds: &dyn Fn(&Cell) -> bool| {
            cells.iter().filter(|cell| holds(cell)).count() as f64 / cells.len() as f64
        };
        let bulk = |cell: &Cell| cell.rivals().all(|it| is_bulk_no_worse(cell.auto(), it));
        let mut worst: Vec<Ratio> = cells.iter().filter_map(Cell::p99_ratio).collect();
        worst.sort_by(|a, b| b.ratio.total_cmp(&a.ratio));
        let median_ratio = worst.get(worst.len() / 2).map_or(f64::NAN, |it| it.ratio);
        worst.truncate(10);
        let count = cells[0].runs.len();
        Some(Self {
            links: cells.len(),
            bulk_no_worse: part(&bulk),
            both_no_worse: part(&|cell| cell.rivals().all(|it| is_no_worse(cell.auto(), it))),
            no_worse_at_equal_bulk: part(&|cell| {
                bulk(cell) && cell.peers().all(|it| is_p99_no_worse(cell.auto(), it))
            }),
            worst,
            median_ratio,
            collapses: cells.iter().filter(|cell| cell.ratio() < COLLAPSE).count(),
            rows: (0..count).map(|index| row(cells, index)).collect(),
        })
    }

    pub(super) fn to_text(&self) -> String {
        table::format_rows(&self.rows, &columns()) + "\n" + &self.sentences().join("\n") + "\n"
    }

    /// Formats the summary as a part of a page.
    pub(super) fn markdown(&self) -> String {
        table::markdown(&self.rows, &columns()) + "\n" + &self.sentences().join("\n- ") + "\n"
    }

    fn sentences(&self) -> [String; 5] {
        let worst =
            self.worst.iter().map(|it| format!("{:.2} ({} {})", it.ratio, it.seed, it.rival));
        [
            format!("auto on {} links, against every rival:\n", self.links),
            format!("bulk no worse: {:.1} %", 100.0 * self.bulk_no_worse),
            format!(
                "bulk and p99 no worse: {:.1} %; the same, with p99 compared at equal bulk: {:.1} %",
                100.0 * self.both_no_worse,
                100.0 * self.no_worse_at_equal_bulk
            ),
            format!(
                "p99 over that of the best rival at equal bulk: median {:.2}, worst {}",
                self.median_ratio,
                worst.collect::<Vec<_>>().join(", ")
            ),
            format!("collapses: {}", self.collapses),
        ]
    }
}

fn columns() -> [Column<Row>; 9] {
    [
        left("controller", 13, |row: &Row| row.controller.into()),
        right("bulk", 7, |row| format!("{:.1} %", row.bulk_mean)),
        right("least", 6, |row| format!("{:.0} %", row.bulk_least)),
        right("p99: median", 11, |row| format!("{:.1} ms", row.p99_median)),
        right("mean", 9, |row| format!("{:.1} ms", row.p99_mean)),
        right("lost", 6, |row| format!("{:.1} %", row.lost_mean)),
        right("collapses", 9, |row| row.collapses.to_string()),
        right("auto no worse", 13, |row| row.auto_no_worse.to_string()),
        right("no worse than auto", 18, |row| row.no_worse.to_string()),
    ]
}

fn row(cells: &[Cell], index: usize) -> Row {
    let runs = || cells.iter().map(|cell| &cell.runs[index]);
    let mean = |of: fn(&Run) -> f64| runs().map(of).sum::<f64>() / cells.len() as f64;
    let best = |cell: &Cell| cell.runs.iter().map(|it| it.bulk_percent).fold(0.0, f64::max);
    let count = |holds: &dyn Fn(&Cell) -> bool| cells.iter().filter(|cell| holds(cell)).count();
    Row {
        controller: cells[0].runs[index].controller,
        bulk_mean: mean(|it| it.bulk_percent),
        bulk_least: runs().map(|it| it.bulk_percent).fold(f64::INFINITY, f64::min),
        p99_median: stats::median(runs().map(|it| it.laser_p99_ms)).unwrap_or(f64::NAN),
        p99_mean: mean(|it| it.laser_p99_ms.max(1e-3).ln()).exp(),
        lost_mean: mean(|it| it.laser_lost_percent),
        collapses: count(&|cell| cell.runs[index].bulk_percent < COLLAPSE * best(cell)),
        auto_no_worse: count(&|cell| is_no_worse(cell.auto(), &cell.runs[index])),
        no_worse: count(&|cell| is_no_worse(&cell.runs[index], cell.auto())),
    }
}
