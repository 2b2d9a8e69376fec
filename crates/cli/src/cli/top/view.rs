// SPDX-License-Identifier: Apache-2.0
//! The screen of `top`: a pure function of two snapshots, the user's choices and the size.

use super::rows::{Column, Row, cut_to_width, rows};
use crate::cli::words::{self, percent};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Widget;
use tautline::columns::{
    Columns, LINKS, RADIOS, ReportWithRates, TEAMS, TOPICS, Tone, Value, WIDE_TERMINAL_WIDTH,
};
use tautline::rates::{Rates, TopicRates};
use tautline::status::{PeerReport, Status, TopicReport, up_or_down};

/// Maximum number of notices at the bottom; the newest are shown.
const MAX_NOTICES: usize = 3;
/// Minimum lines of the topics for any number of links: a blank line, the header and some rows.
const MIN_TOPIC_LINES: usize = 7;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sort {
    /// Order of the node's report.
    #[default]
    Node,
    /// Highest priority first.
    Priority,
    /// Highest bandwidth first.
    Bandwidth,
    /// Longest 99th percentile of the delay first.
    Delay,
    /// Most drops in the interval first.
    Dropped,
}

impl Sort {
    /// All orders and their names, in the order of the cycle.
    const ALL: [(Self, &str); 5] = [
        (Self::Node, "node's order"),
        (Self::Priority, "priority"),
        (Self::Bandwidth, "bandwidth"),
        (Self::Delay, "delay"),
        (Self::Dropped, "dropped"),
    ];

    pub fn next_order(self) -> Self {
        Self::ALL[(self as usize + 1) % Self::ALL.len()].0
    }

    fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }
}

/// The user's choices and the state of the connection.
#[derive(Debug, Clone, Default)]
pub struct Choices {
    pub sort: Sort,
    /// Number of topics scrolled past.
    pub scrolled: usize,
    pub paused: bool,
    pub colours: bool,
    /// Reason why no newer snapshot is available; empty without a problem.
    pub trouble: String,
    pub keys: bool,
}

pub fn draw(status: &Status, rates: &Rates, choices: &Choices, area: Rect, buffer: &mut Buffer) {
    let screen = Screen { status, rates, choices, width: area.width as usize };
    for (line, y) in screen.lines(area.height as usize).into_iter().zip(area.y..area.bottom()) {
        line.render(Rect { y, height: 1, ..area }, buffer);
    }
}

/// Returns the number of lines that show everything.
pub fn full_height(status: &Status) -> usize {
    let lines = |rows: usize| rows.max(1) + 2;
    let topics = lines(status.topics.len().max(status.teams.len())).max(MIN_TOPIC_LINES);
    let others = lines(status.radios.len()) + lines(status.links.len());
    2 + topics + others + notice_lines(status) + 1
}

fn notice_lines(status: &Status) -> usize {
    match status.notices.len().min(MAX_NOTICES) {
        0 => 0,
        shown => shown + 1,
    }
}

struct Screen<'a> {
    status: &'a Status,
    rates: &'a Rates,
    choices: &'a Choices,
    width: usize,
}

impl Screen<'_> {
    fn lines(&self, height: usize) -> Vec<Line<'static>> {
        let keys = usize::from(self.choices.keys);
        let mut spare = height.saturating_sub(2 + keys + MIN_TOPIC_LINES);
        let mut take = |wanted: usize| {
            let taken = wanted.min(spare);
            spare -= taken;
            taken
        };
        let link_lines = take(self.rates.links.len().max(1) + 2);
        let radio_lines = take(self.rates.radios.len().max(1) + 2);
        let notices = take(notice_lines(self.status));
        let mut lines = self.header();
        lines.extend(self.topics(MIN_TOPIC_LINES + spare));
        lines.extend(self.radios(radio_lines));
        lines.extend(self.links(link_lines));
        lines.extend(self.notices(notices));
        lines.truncate(height.saturating_sub(keys));
        if keys == 1 {
            lines.resize(height.saturating_sub(1), Line::default());
            lines.push(self.key_line());
        }
        lines
    }

    fn colour(&self, colour: Color) -> Style {
        if self.choices.colours { Style::new().fg(colour) } else { Style::new() }
    }

    fn alarm(&self, is_wrong: bool) -> Style {
        if is_wrong { self.colour(Color::Red).add_modifier(Modifier::BOLD) } else { Style::new() }
    }

    fn header(&self) -> Vec<Line<'static>> {
        let status = self.status;
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let about =
            format!("  tautline {}  up {}", status.version, words::uptime(status.uptime_s),);
        let mut first = vec![Span::styled(status.node.clone(), bold), Span::raw(about)];
        if status.key.is_none() {
            first.push(Span::styled("  NO SECURITY", self.alarm(true)));
        }
        if !self.choices.trouble.is_empty() {
            first.push(Span::styled(format!("  {}", self.choices.trouble), self.alarm(true)));
        } else if self.choices.paused {
            first.push(Span::styled(
                "  paused",
                self.colour(Color::Yellow).add_modifier(Modifier::BOLD),
            ));
        }
        let mut second = Vec::new();
        for gateway in &status.gateways {
            let state = match (gateway.connected, gateway.trouble.is_empty()) {
                (true, false) => format!("{}: {}", up_or_down(true), gateway.trouble),
                (false, false) => format!("down: {}", gateway.trouble),
                (is_up, true) => up_or_down(is_up).into(),
            };
            second.push(Span::styled(
                format!("{} {state}  ", gateway.kind),
                self.alarm(!gateway.connected),
            ));
        }
        let line = |clocks| {
            let peers = status.peers.iter().map(|peer| self.peer(peer, clocks));
            Line::from_iter(second.iter().cloned().chain(peers))
        };
        // Without space for both, the states have priority over the clocks.
        let with_clocks = Some(line(true)).filter(|it| it.width() <= self.width);
        vec![Line::from(first), with_clocks.unwrap_or_else(|| line(false))]
    }

    fn peer(&self, peer: &PeerReport, with_clock: bool) -> Span<'static> {
        let (name, state) = (&peer.name, &peer.state);
        let style = self.alarm(state == "down");
        let text = match peer.clock.as_ref().filter(|_| with_clock) {
            Some(clock) => {
                format!("{name} {state}, clock {} ms  ", clock.in_words())
            }
            None => format!("{name} {state}  "),
        };
        Span::styled(text, style)
    }

    /// The teams of a relay, which has no topics.
    fn teams(&self, height: usize) -> Vec<Line<'static>> {
        let teams = self.status.teams.iter().zip(&self.rates.teams);
        let teams: Vec<_> =
            teams.map(|(now, rates)| ReportWithRates { now, rates: Some(rates) }).collect();
        let shown = &teams[self.scrolled(teams.len(), height)..];
        self.reports(&TEAMS, shown, height, |_| Style::new())
    }

    /// Returns the number of rows scrolled past, at most those that leave the screen full.
    fn scrolled(&self, rows: usize, height: usize) -> usize {
        self.choices.scrolled.min(rows.saturating_sub(height.saturating_sub(2)))
    }

    fn topics(&self, height: usize) -> Vec<Line<'static>> {
        if !self.rates.teams.is_empty() {
            return self.teams(height);
        }
        let topics = self.status.topics.iter().zip(&self.rates.topics);
        let mut topics: Vec<_> =
            topics.map(|(now, rates)| ReportWithRates { now, rates: Some(rates) }).collect();
        sort(&mut topics, self.choices.sort);
        let scrolled = self.scrolled(topics.len(), height);
        let dim = Style::new().add_modifier(Modifier::DIM);
        self.reports(&TOPICS, &topics[scrolled..], height, |topic| match topic.wanted {
            true => Style::new(),
            false => dim,
        })
    }

    fn radios(&self, height: usize) -> Vec<Line<'static>> {
        let radios = self.status.radios.iter().zip(&self.rates.radios);
        let radios: Vec<_> =
            radios.map(|(now, rates)| ReportWithRates { now, rates: Some(rates) }).collect();
        self.reports(&RADIOS, &radios, height, |_| Style::new())
    }

    fn links(&self, height: usize) -> Vec<Line<'static>> {
        let links = self.status.links.iter().zip(&self.rates.links);
        let links: Vec<_> =
            links.map(|(now, rates)| ReportWithRates { now, rates: Some(rates) }).collect();
        self.reports(&LINKS, &links, height, |_| Style::new())
    }

    /// Returns reports with the columns of their table.
    fn reports<Report, Rates>(
        &self,
        columns: &Columns<Report, Rates>,
        reports: &[ReportWithRates<'_, Report, Rates>],
        height: usize,
        usual: impl Fn(&Report) -> Style,
    ) -> Vec<Line<'static>> {
        let mut shown = Vec::new();
        let mut cells: Vec<Row> = vec![Row::new(); reports.len()];
        for (column, cell) in columns.cells() {
            if self.width < cell.min_terminal_width {
                continue;
            }
            let width = if self.is_wide() { cell.wide } else { cell.narrow };
            let values: Vec<Value> = reports.iter().map(column.read).collect();
            if cell.hide_if_empty && values.iter().all(|value| *value == Value::Absent) {
                continue;
            }
            let texts: Vec<String> = values.iter().map(|value| self.format_cell(value)).collect();
            let longest = texts.iter().map(String::len).max().unwrap_or(0);
            shown.push(Column::in_width(&cell, width, longest));
            for ((text, report), row) in texts.into_iter().zip(reports).zip(&mut cells) {
                let style = match (column.tone)(report) {
                    Tone::Normal => usual(report.now),
                    Tone::Notice => self.colour(Color::Yellow),
                    Tone::Fault => self.alarm(true),
                };
                row.push(Span::styled(text, style));
            }
        }
        rows(&shown, cells, self.width, height)
    }

    /// Formats a value; unknown texts are blank.
    fn format_cell(&self, value: &Value) -> String {
        match value {
            Value::Text(text) => text.clone(),
            Value::UsedBytes(part, total) if !self.is_wide() => {
                percent(Some(*part as f64 / (*total).max(1) as f64))
            }
            value => words::format_cell(value),
        }
    }

    fn is_wide(&self) -> bool {
        self.width >= WIDE_TERMINAL_WIDTH
    }

    fn notices(&self, height: usize) -> Vec<Line<'static>> {
        let Some(space) = height.checked_sub(1) else { return Vec::new() };
        let all = &self.status.notices;
        let newest = all[all.len().saturating_sub(space)..].iter();
        let line = |notice: &String| {
            Line::from(Span::styled(cut_to_width(notice, self.width), self.colour(Color::Yellow)))
        };
        std::iter::once(Line::default()).chain(newest.map(line)).collect()
    }

    fn key_line(&self) -> Line<'static> {
        let keys =
            format!("q quit  p pause  s sort ({})  up/down scroll", self.choices.sort.name());
        Line::from(Span::styled(keys, Style::new().add_modifier(Modifier::DIM)))
    }
}

/// Sorts the largest value first; equal and unknown values keep the node's order.
fn sort(topics: &mut [ReportWithRates<'_, TopicReport, TopicRates>], by: Sort) {
    let value: fn(&TopicRates) -> f64 = match by {
        Sort::Node => return,
        Sort::Priority => |t| f64::from(t.priority),
        Sort::Bandwidth => |t| t.bps.unwrap_or(-1.0),
        Sort::Delay => |t| t.p99_ms.unwrap_or(-1.0),
        Sort::Dropped => |t| t.dropped_now as f64,
    };
    let value =
        |topic: &ReportWithRates<'_, TopicReport, TopicRates>| topic.rates.map_or(-1.0, value);
    topics.sort_by(|a, b| value(b).total_cmp(&value(a)));
}
