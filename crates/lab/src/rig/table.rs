// SPDX-License-Identifier: Apache-2.0
//! Tables for people: aligned columns on a terminal, or Markdown in a page.

use super::stats::Delay;

/// A column of a table whose rows are `R`.
pub struct Column<R> {
    title: String,
    width: usize,
    left: bool,
    cell: fn(&R) -> String,
}

/// Returns a column of numbers, aligned to the right.
pub fn right<R>(title: impl Into<String>, width: usize, cell: fn(&R) -> String) -> Column<R> {
    Column { title: title.into(), width, left: false, cell }
}

/// Returns a column of words, aligned to the left.
pub fn left<R>(title: impl Into<String>, width: usize, cell: fn(&R) -> String) -> Column<R> {
    Column { title: title.into(), width, left: true, cell }
}

/// Returns a vertical line between groups of columns.
pub fn bar<R>() -> Column<R> {
    right("|", 1, |_| "|".into())
}

/// Returns a column of a Markdown table, which has no width.
pub fn column<R>(title: impl Into<String>, cell: fn(&R) -> String) -> Column<R> {
    left(title, 0, cell)
}

impl<R> Column<R> {
    fn pad(&self, text: &str) -> String {
        let width = self.width;
        if self.left { format!("{text:width$}") } else { format!("{text:>width$}") }
    }
}

/// Formats rows below their titles for a terminal.
pub fn format_rows<R>(rows: &[R], columns: &[Column<R>]) -> String {
    let line = |cells: Vec<String>| cells.join(" ") + "\n";
    let titles = line(columns.iter().map(|column| column.pad(&column.title)).collect());
    let row = |row| line(columns.iter().map(|column| column.pad(&(column.cell)(row))).collect());
    titles + &rows.iter().map(row).collect::<String>()
}

/// Formats rows as a Markdown table.
pub fn markdown<R>(rows: &[R], columns: &[Column<R>]) -> String {
    let titles = markdown_row(columns.iter().map(|column| column.title.clone()));
    let row = |row| markdown_row(columns.iter().map(|column| (column.cell)(row)));
    titles + &markdown_rule(columns.len()) + &rows.iter().map(row).collect::<String>()
}

/// Returns the line below the titles of a Markdown table.
pub fn markdown_rule(columns: usize) -> String {
    format!("|{}\n", "---|".repeat(columns))
}

/// Returns a line of a Markdown table.
pub fn markdown_row(cells: impl IntoIterator<Item = String>) -> String {
    let cell = |cell: String| if cell.is_empty() { " |".into() } else { format!(" {cell} |") };
    format!("|{}\n", cells.into_iter().map(cell).collect::<String>())
}

/// Returns the width of a left column that holds all `names` and a title.
pub fn width<'n>(title: &str, names: impl Iterator<Item = &'n str>) -> usize {
    names.map(str::len).max().unwrap_or(0).max(title.len())
}

/// Formats a value with that number of decimals, or `-` without a value.
pub fn or_dash(value: Option<f64>, decimals: usize) -> String {
    value.map_or("-".into(), |value| format!("{value:.decimals$}"))
}

/// Formats a figure of delays with that number of decimals; NaN without delays.
pub fn figure(delay: Option<Delay>, of: fn(Delay) -> f64, decimals: usize) -> String {
    number(delay.map(of), decimals)
}

/// Formats a value with that number of decimals; NaN without a value.
pub fn number(value: Option<f64>, decimals: usize) -> String {
    format!("{:.decimals$}", value.unwrap_or(f64::NAN))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles_and_cells_are_aligned_and_longer_cells_are_not_cut() {
        let rows = [("laser", 1.25), ("a longer name", 12345.0)];
        let columns = [
            left("flow", 6, |(name, _): &(&str, f64)| (*name).into()),
            bar(),
            right("ms", 5, |(_, ms)| format!("{ms:.1}")),
        ];
        let wanted = "flow   |    ms\nlaser  |   1.2\na longer name | 12345.0\n";
        assert_eq!(format_rows(&rows, &columns), wanted);
    }

    #[test]
    fn a_markdown_table_may_have_a_column_without_title() {
        let columns = [column("n", ToString::to_string), column("", |_: &u8| "agrees".into())];
        assert_eq!(markdown(&[7_u8], &columns), "| n | |\n|---|---|\n| 7 | agrees |\n");
    }
}
