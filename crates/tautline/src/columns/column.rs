// SPDX-License-Identifier: Apache-2.0
//! A column: what its value is, how it is read, and where it is shown.

use crate::status::GivenUpReport;
use std::collections::BTreeMap;

/// Minimum width in characters of a wide terminal.
pub const WIDE_TERMINAL_WIDTH: usize = 100;
/// Minimum width in characters of a terminal on which the links of topics are shown.
pub(super) const MIN_WIDTH_FOR_LINKS: usize = 180;

/// One report of a snapshot, with its changes since an earlier snapshot where these are known.
#[derive(Debug)]
pub struct ReportWithRates<'a, Report, Rates> {
    /// The report.
    pub now: &'a Report,
    /// The changes.
    pub rates: Option<&'a Rates>,
}

impl<Report, Rates> ReportWithRates<'_, Report, Rates> {
    /// Reads a number from the changes and returns it as `make` converts it; `Unknown` without the number.
    pub(super) fn change<T>(&self, read: fn(&Rates) -> Option<T>, make: fn(T) -> Value) -> Value {
        Value::if_known(self.rates.and_then(read), make)
    }
}

/// A value with its unit. Each place formats it in its own way.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// There is no such value. For example, a link has no budget unless the file sets one.
    Absent,
    /// There is a value that is not known yet.
    Unknown,
    /// A name or words; empty while unknown.
    Text(String),
    /// A network address; empty while unknown.
    Address(String),
    /// Whether something is true.
    Flag(bool),
    /// A number of things.
    Count(u64),
    /// A number of bytes.
    Bytes(u64),
    /// A part of a number of bytes, and the whole.
    PartOfBytes(u64, u64),
    /// Used bytes and allowed bytes, shown in per cent where space is short.
    UsedBytes(u64, u64),
    /// A number without a unit, or with the unit of the heading.
    Number(f64),
    /// Bits per second.
    BitRate(f64),
    /// A time in milliseconds.
    Milliseconds(f64),
    /// A fraction, 0 to 1.
    Share(f64),
    /// The current value, and the value since the start. Only the second is shown if both have the same text.
    NowAndTotal(Box<Value>, Box<Value>),
    /// Several values in one cell.
    Several(Vec<Value>),
    /// Recent drops, and the number of drops since the start by reason.
    Dropped(Option<GivenUpReport>, BTreeMap<String, u64>),
    /// The number of things that passed, and the number of drops by reason.
    Passed(u64, BTreeMap<String, u64>),
}

impl Value {
    /// Returns a number as `make` converts it; `Unknown` without the number.
    pub fn if_known<T>(number: Option<T>, make: fn(T) -> Self) -> Self {
        number.map_or(Self::Unknown, make)
    }

    /// Returns a bit rate; `Unknown` without it.
    pub(super) fn bit_rate(bps: Option<u64>) -> Self {
        Self::if_known(bps, |bps| Self::BitRate(bps as f64))
    }
}

/// How `top` colours a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    /// The colour of the rest of the row.
    Normal,
    /// Something to notice.
    Notice,
    /// A fault.
    Fault,
}

/// A metric of Prometheus.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Metric {
    /// The name of a counter.
    Counter(&'static str),
    /// The name of a gauge.
    Gauge(&'static str),
}

/// The width of a column of `top`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Width {
    /// Characters.
    Fixed(usize),
    /// The first number of characters, or the second number if a text is longer than the first.
    Either(usize, usize),
    /// Share of the remaining width, relative to the other flexible columns.
    Flexible(usize),
}

/// A column of `top`.
#[derive(Debug, Clone, Copy)]
pub struct Cell {
    /// The heading.
    pub title: &'static str,
    /// Width in characters of the narrowest terminal on which the column is shown.
    pub min_terminal_width: usize,
    /// The width on narrow terminals.
    pub narrow: Width,
    /// The width on terminals from [`WIDE_TERMINAL_WIDTH`].
    pub wide: Width,
    /// Whether texts are aligned to the right.
    pub is_right_aligned: bool,
    /// Whether long texts are cut at their start.
    pub keeps_end: bool,
    /// Whether the column is shown only while at least one row has a value.
    pub hide_if_empty: bool,
}

impl Cell {
    /// Returns a column whose texts are aligned to the left.
    pub const fn left_aligned(title: &'static str, width: Width) -> Self {
        let (is_right_aligned, keeps_end, hide_if_empty) = (false, false, false);
        Self {
            title,
            min_terminal_width: 0,
            narrow: width,
            wide: width,
            is_right_aligned,
            keeps_end,
            hide_if_empty,
        }
    }

    /// Returns a column whose texts are aligned to the right.
    pub const fn right_aligned(title: &'static str, width: usize) -> Self {
        Self { is_right_aligned: true, ..Self::left_aligned(title, Width::Fixed(width)) }
    }

    /// Limits the column to wide terminals.
    pub(super) const fn only_wide(self) -> Self {
        Self { min_terminal_width: WIDE_TERMINAL_WIDTH, ..self }
    }
}

/// One column of reports of one kind.
#[derive(Debug)]
pub struct Column<Report: 'static, Rates: 'static> {
    /// What the value is, in one line.
    pub help: &'static str,
    /// Reads the value.
    pub read: fn(&ReportWithRates<'_, Report, Rates>) -> Value,
    /// The colour of the value in `top`.
    pub tone: fn(&ReportWithRates<'_, Report, Rates>) -> Tone,
    pub(super) in_status: Option<(u16, &'static str)>,
    pub(super) cell: Option<(u16, Cell)>,
    pub(super) metric: Option<(u16, Metric)>,
    pub(super) in_diagnostics: Option<(u16, &'static str)>,
    pub(super) for_programs: Option<(u16, &'static str)>,
}

impl<Report, Rates> Column<Report, Rates> {
    pub(super) const fn new(
        help: &'static str,
        read: fn(&ReportWithRates<'_, Report, Rates>) -> Value,
    ) -> Self {
        Self {
            help,
            read,
            tone: |_| Tone::Normal,
            in_status: None,
            cell: None,
            metric: None,
            in_diagnostics: None,
            for_programs: None,
        }
    }

    /// Adds the column to the table that `tautline status` prints.
    pub(super) const fn in_status(mut self, order: u16, heading: &'static str) -> Self {
        self.in_status = Some((order, heading));
        self
    }

    /// Adds the column to `tautline top`.
    pub(super) const fn cell(mut self, order: u16, cell: Cell) -> Self {
        self.cell = Some((order, cell));
        self
    }

    pub(super) const fn tone(
        mut self,
        tone: fn(&ReportWithRates<'_, Report, Rates>) -> Tone,
    ) -> Self {
        self.tone = tone;
        self
    }

    /// Adds a metric that only grows.
    pub(super) const fn counter(mut self, order: u16, name: &'static str) -> Self {
        self.metric = Some((order, Metric::Counter(name)));
        self
    }

    /// Adds a metric that can also fall.
    pub(super) const fn gauge(mut self, order: u16, name: &'static str) -> Self {
        self.metric = Some((order, Metric::Gauge(name)));
        self
    }

    /// Adds the value to /diagnostics.
    pub(super) const fn in_diagnostics(mut self, order: u16, key: &'static str) -> Self {
        self.in_diagnostics = Some((order, key));
        self
    }

    /// Adds the value to the topic for programs that adapt to their links.
    pub(super) const fn for_programs(mut self, order: u16, key: &'static str) -> Self {
        self.for_programs = Some((order, key));
        self
    }
}

/// The columns of reports of one kind.
#[derive(Debug)]
pub struct Columns<Report: 'static, Rates: 'static>(pub(super) &'static [Column<Report, Rates>]);

/// A function that returns a column's position in one table or output, and its name there.
pub(super) type Place<Report, Rates, Name> = fn(&Column<Report, Rates>) -> Option<(u16, Name)>;

/// The columns of one table or output, each with its name there.
pub type PlacedColumns<Report, Rates, Name> = Vec<(&'static Column<Report, Rates>, Name)>;

impl<Report, Rates> Columns<Report, Rates> {
    /// Returns the columns of `tautline status`, with their headings.
    pub fn status_columns(&self) -> PlacedColumns<Report, Rates, &'static str> {
        self.in_order(|column| column.in_status)
    }

    /// Returns the columns of `tautline top`.
    pub fn cells(&self) -> PlacedColumns<Report, Rates, Cell> {
        self.in_order(|column| column.cell)
    }

    /// Returns the metrics.
    pub fn metrics(&self) -> PlacedColumns<Report, Rates, Metric> {
        self.in_order(|column| column.metric)
    }

    /// Returns the values on /diagnostics, with their keys.
    pub(crate) fn in_diagnostics(&self) -> PlacedColumns<Report, Rates, &'static str> {
        self.in_order(|column| column.in_diagnostics)
    }

    /// Returns the values for programs, with their keys.
    pub(crate) fn for_programs(&self) -> PlacedColumns<Report, Rates, &'static str> {
        self.in_order(|column| column.for_programs)
    }

    fn in_order<Name: Copy>(
        &self,
        place: Place<Report, Rates, Name>,
    ) -> PlacedColumns<Report, Rates, Name> {
        let mut placed: Vec<_> =
            self.0.iter().filter_map(|column| Some((column, place(column)?))).collect();
        placed.sort_by_key(|(_, (order, _))| *order);
        placed.into_iter().map(|(column, (_, name))| (column, name)).collect()
    }
}
