// SPDX-License-Identifier: Apache-2.0
//! The columns of a snapshot: what each value is, and where people and programs see it. The tables
//! of `status` and `top`, metrics, and diagnostics follow from these rows.
//!
//! Each place has an order of its own. The numbers of an order leave gaps for new columns.

mod link;

pub use link::LINKS;

/// One report of a snapshot, with its changes since an earlier snapshot where these are known.
#[derive(Debug)]
pub struct Seen<'a, Report, Rates> {
    /// The report.
    pub now: &'a Report,
    /// The changes.
    pub rates: Option<&'a Rates>,
}

/// A value with its unit, from which each place makes its own text.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// There is no such value: a link without a budget has no budget.
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
    /// A number of bytes out of another.
    PartOfBytes(u64, u64),
    /// Bits per second.
    BitRate(f64),
    /// A time in milliseconds.
    Milliseconds(f64),
    /// A fraction, 0 to 1.
    Share(f64),
    /// A value of now and one since the start; the second alone if both read the same.
    NowAndTotal(Box<Value>, Box<Value>),
}

impl Value {
    /// Returns the value that `make` makes of a number; unknown without the number.
    pub fn known<T>(number: Option<T>, make: fn(T) -> Self) -> Self {
        number.map_or(Self::Unknown, make)
    }
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
    /// The second number of characters if a text does not fit into the first.
    Either(usize, usize),
    /// Weight in the division of the remaining width.
    Flexible(usize),
}

/// A column of `top`.
#[derive(Debug, Clone, Copy)]
pub struct Cell {
    /// The heading.
    pub title: &'static str,
    /// The width on narrow terminals; none if the column fits only on wide ones.
    pub narrow: Option<Width>,
    /// The width on wide terminals.
    pub wide: Width,
    /// Whether texts end at the right edge.
    pub is_right_aligned: bool,
    /// Whether long texts are cut at their start.
    pub keeps_end: bool,
    /// Whether the column is shown only while at least one row has a value.
    pub if_any: bool,
}

impl Cell {
    const fn left(title: &'static str, width: Width) -> Self {
        let narrow = Some(width);
        let (is_right_aligned, keeps_end, if_any) = (false, false, false);
        Self { title, narrow, wide: width, is_right_aligned, keeps_end, if_any }
    }

    const fn right(title: &'static str, width: usize) -> Self {
        Self { is_right_aligned: true, ..Self::left(title, Width::Fixed(width)) }
    }

    const fn only_wide(self) -> Self {
        Self { narrow: None, ..self }
    }
}

/// One column of reports of one kind.
#[derive(Debug)]
pub struct Column<Report: 'static, Rates: 'static> {
    /// What the value is, in one line.
    pub help: &'static str,
    /// Reads the value.
    pub read: fn(&Seen<'_, Report, Rates>) -> Value,
    /// Whether people should look at the value: `top` colours it.
    pub is_wrong: fn(&Report) -> bool,
    printed: Option<(u16, &'static str)>,
    cell: Option<(u16, Cell)>,
    metric: Option<(u16, Metric)>,
    diagnosed: Option<(u16, &'static str)>,
    for_programs: Option<(u16, &'static str)>,
}

impl<Report, Rates> Column<Report, Rates> {
    const fn new(help: &'static str, read: fn(&Seen<'_, Report, Rates>) -> Value) -> Self {
        Self {
            help,
            read,
            is_wrong: |_| false,
            printed: None,
            cell: None,
            metric: None,
            diagnosed: None,
            for_programs: None,
        }
    }

    /// Adds the column to the table that `tautline status` prints.
    const fn printed(mut self, order: u16, heading: &'static str) -> Self {
        self.printed = Some((order, heading));
        self
    }

    /// Adds the column to `tautline top`.
    const fn cell(mut self, order: u16, cell: Cell) -> Self {
        self.cell = Some((order, cell));
        self
    }

    const fn alarm(mut self, is_wrong: fn(&Report) -> bool) -> Self {
        self.is_wrong = is_wrong;
        self
    }

    /// Adds a metric that only grows.
    const fn counter(mut self, order: u16, name: &'static str) -> Self {
        self.metric = Some((order, Metric::Counter(name)));
        self
    }

    /// Adds a metric that also falls.
    const fn gauge(mut self, order: u16, name: &'static str) -> Self {
        self.metric = Some((order, Metric::Gauge(name)));
        self
    }

    /// Adds the value to /diagnostics.
    const fn diagnosed(mut self, order: u16, key: &'static str) -> Self {
        self.diagnosed = Some((order, key));
        self
    }

    /// Adds the value to the topic for programs that adapt to their links.
    const fn for_programs(mut self, order: u16, key: &'static str) -> Self {
        self.for_programs = Some((order, key));
        self
    }
}

/// The columns of reports of one kind.
#[derive(Debug)]
pub struct Columns<Report: 'static, Rates: 'static>(&'static [Column<Report, Rates>]);

/// Columns in one place, each with what it is called there.
pub type Placed<Report, Rates, Name> = Vec<(&'static Column<Report, Rates>, Name)>;

impl<Report, Rates> Columns<Report, Rates> {
    /// Returns the columns of `tautline status`, with their headings.
    pub fn printed(&self) -> Placed<Report, Rates, &'static str> {
        self.in_order(|column| column.printed)
    }

    /// Returns the columns of `tautline top`.
    pub fn cells(&self) -> Placed<Report, Rates, Cell> {
        self.in_order(|column| column.cell)
    }

    /// Returns the metrics.
    pub fn metrics(&self) -> Placed<Report, Rates, Metric> {
        self.in_order(|column| column.metric)
    }

    /// Returns the values on /diagnostics, with their keys.
    pub(crate) fn diagnosed(&self) -> Placed<Report, Rates, &'static str> {
        self.in_order(|column| column.diagnosed)
    }

    /// Returns the values for programs, with their keys.
    pub(crate) fn for_programs(&self) -> Placed<Report, Rates, &'static str> {
        self.in_order(|column| column.for_programs)
    }

    fn in_order<Name: Copy>(
        &self,
        place: fn(&Column<Report, Rates>) -> Option<(u16, Name)>,
    ) -> Placed<Report, Rates, Name> {
        let mut placed: Vec<_> =
            self.0.iter().filter_map(|column| Some((column, place(column)?))).collect();
        placed.sort_by_key(|(_, (order, _))| *order);
        placed.into_iter().map(|(column, (_, name))| (column, name)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn has_distinct_orders<Report, Rates>(Columns(columns): &Columns<Report, Rates>) {
        let places: [fn(&Column<Report, Rates>) -> Option<u16>; 5] = [
            |it| Some(it.printed?.0),
            |it| Some(it.cell?.0),
            |it| Some(it.metric?.0),
            |it| Some(it.diagnosed?.0),
            |it| Some(it.for_programs?.0),
        ];
        for place in places {
            let orders: Vec<u16> = columns.iter().filter_map(place).collect();
            let distinct: BTreeSet<u16> = orders.iter().copied().collect();
            assert_eq!(distinct.len(), orders.len(), "two columns have one place: {orders:?}");
        }
    }

    #[test]
    fn no_two_columns_have_the_same_place() {
        has_distinct_orders(&LINKS);
    }
}
