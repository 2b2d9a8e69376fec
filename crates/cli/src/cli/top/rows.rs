// SPDX-License-Identifier: Apache-2.0
//! A table as lines of exact width.

use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use tautline::columns::{self, Cell};

/// Blank columns between two cells.
const GAP: usize = 1;
const CUT: char = '…';

#[derive(Debug, Clone, Copy)]
pub struct Column {
    title: &'static str,
    width: Width,
    is_right_aligned: bool,
    keeps_end: bool,
}

#[derive(Debug, Clone, Copy)]
enum Width {
    Fixed(usize),
    /// Weight in the division of the remaining width.
    Flexible(usize),
}

impl Column {
    /// Returns a column for a cell of a table of columns. Its longest text has `longest` characters.
    pub fn in_width(cell: &Cell, width: columns::Width, longest: usize) -> Self {
        let width = match width {
            columns::Width::Either(few, many) if longest > few => Width::Fixed(many),
            columns::Width::Fixed(width) | columns::Width::Either(width, _) => Width::Fixed(width),
            columns::Width::Flexible(weight) => Width::Flexible(weight),
        };
        let Cell { title, is_right_aligned, keeps_end, .. } = *cell;
        Self { title, width, is_right_aligned, keeps_end }
    }

    fn fit_to_width(&self, text: &str, width: usize) -> String {
        let length = text.chars().count();
        let cut = if self.keeps_end && length > width && width > 0 {
            std::iter::once(CUT).chain(text.chars().skip(length + 1 - width)).collect()
        } else {
            cut_to_width(text, width)
        };
        if self.is_right_aligned { format!("{cut:>width$}") } else { format!("{cut:width$}") }
    }
}

/// Returns `text`, cut at its end if it is longer than `width` characters.
pub fn cut_to_width(text: &str, width: usize) -> String {
    match width.checked_sub(1) {
        Some(kept) if text.chars().count() > width => {
            text.chars().take(kept).chain([CUT]).collect()
        }
        Some(_) => text.into(),
        None => String::new(),
    }
}

/// The cells of a row.
pub type Row = Vec<Span<'static>>;

/// Returns a blank line, a header and `rows` in at most `height` lines of `width` characters. The
/// last line counts rows that do not fit.
pub fn rows(columns: &[Column], rows: Vec<Row>, width: usize, height: usize) -> Vec<Line<'static>> {
    let Some(space) = height.checked_sub(2) else { return Vec::new() };
    let widths = widths(columns, width);
    let title_style = Style::new().add_modifier(Modifier::BOLD | Modifier::UNDERLINED);
    let titles = columns.iter().map(|column| Span::styled(column.title, title_style)).collect();
    let mut lines = vec![Line::default(), line(columns, &widths, titles)];
    let fitting = if rows.len() > space { space.saturating_sub(1) } else { rows.len() };
    let hidden = rows.len() - fitting;
    lines.extend(rows.into_iter().take(fitting).map(|row| line(columns, &widths, row)));
    if hidden > 0 && space > 0 {
        lines.push(Line::from(format!("{CUT} {hidden} more")));
    }
    lines
}

fn widths(columns: &[Column], width: usize) -> Vec<usize> {
    let gaps = GAP * columns.len().saturating_sub(1);
    let fixed: usize =
        columns.iter().map(|c| if let Width::Fixed(w) = c.width { w } else { 0 }).sum();
    let weights: usize =
        columns.iter().map(|c| if let Width::Flexible(w) = c.width { w } else { 0 }).sum();
    let left = width.saturating_sub(gaps + fixed);
    let of = |column: &Column| match column.width {
        Width::Fixed(width) => width,
        Width::Flexible(weight) => left * weight / weights.max(1),
    };
    columns.iter().map(of).collect()
}

fn line(columns: &[Column], widths: &[usize], row: Row) -> Line<'static> {
    let mut spans = Vec::with_capacity(2 * columns.len());
    for (cell, (column, width)) in row.into_iter().zip(columns.iter().zip(widths)) {
        let style = cell.style;
        if !spans.is_empty() {
            // The gap is underlined with the titles, so that the header is one continuous line.
            let is_title = style.add_modifier.contains(Modifier::UNDERLINED);
            let gap_style = if is_title { style } else { Style::new() };
            spans.push(Span::styled(" ".repeat(GAP), gap_style));
        }
        spans.push(Span::styled(column.fit_to_width(&cell.content, *width), style));
    }
    Line::from(spans)
}

#[cfg(test)]
mod tests {
    use super::*;
    use columns::Width::Flexible;

    fn column(cell: Cell) -> Column {
        Column::in_width(&cell, cell.wide, 0)
    }

    fn contents(lines: &[Line]) -> Vec<String> {
        lines.iter().map(|line| line.spans.iter().map(|span| &*span.content).collect()).collect()
    }

    #[test]
    fn flexible_columns_share_the_remaining_width() {
        let columns = [
            column(Cell { keeps_end: true, ..Cell::left_aligned("NAME", Flexible(1)) }),
            column(Cell::right_aligned("N", 3)),
            column(Cell::left_aligned("WHY", Flexible(1))),
        ];
        let row = ["/camera/image", "5", "expired and lost"]
            .map(|t| Span::styled(t, Style::new()))
            .to_vec();
        let lines = contents(&rows(&columns, vec![row], 21, 5));
        assert_eq!(lines, ["", "NAME       N WHY     ", "…a/image   5 expired…"]);
    }

    #[test]
    fn rows_that_do_not_fit_are_counted() {
        let columns = [column(Cell::left_aligned("N", columns::Width::Fixed(6)))];
        let all: Vec<Row> =
            (0..9).map(|i| vec![Span::styled(i.to_string(), Style::new())]).collect();
        assert_eq!(
            contents(&rows(&columns, all.clone(), 6, 5)),
            ["", "N     ", "0     ", "1     ", "… 7 more"]
        );
        assert_eq!(rows(&columns, all, 6, 1), []);
    }
}
