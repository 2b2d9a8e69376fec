// SPDX-License-Identifier: Apache-2.0
//! Tables of the report, in Markdown, which is also printed.

use super::Figures;
use super::added::Row;
use super::outcome::Outcome;
use super::reference;
use super::series::Cell;
use super::stage::Place;
use super::system::{self, System};
use anyhow::Result;
use std::collections::BTreeSet;
use tautline_lab::rig::table::{markdown_row, markdown_rule};

/// A table between the markers of the docs page.
pub struct Block {
    /// Name in the markers.
    pub name: String,
    /// Title when printed.
    pub title: String,
    /// The table.
    pub markdown: String,
}

/// Returns all tables for which there are results.
pub fn blocks(figures: &Figures) -> Result<Vec<Block>> {
    let mut blocks = Vec::new();
    for place in [Place::InProcess, Place::Local, Place::Wire, Place::Unlimited] {
        let cells: Vec<&Cell> = figures.latency.iter().filter(|it| it.place == place).collect();
        if !cells.is_empty() {
            let title = format!("{}: median delay in ms by bytes of a message", place.title());
            blocks.push(block(&format!("latency {}", place.name()), &title, medians(&cells)));
        }
    }
    if !figures.latency.is_empty() {
        let title = "local: quartiles and p99 of the delay, ms";
        blocks.push(block("spread", title, spread(&figures.latency)));
        let title = "medians of 2016 in ms, and ours over theirs";
        blocks.push(block("paper", title, against_paper(&figures.latency)?));
        let title = "sizes by outcome";
        blocks.push(block("outcomes", title, super::tables_more::outcomes(&figures.latency)));
    }
    if !figures.added.is_empty() {
        let title = "one gateway and a direct local hop, medians in ms";
        blocks.push(block("added", title, added(&figures.added)));
    }
    if !figures.qos.is_empty() {
        let title = "local: median delay in ms by QoS, and missed deadlines";
        blocks.push(block("qos", title, qos(&figures.qos)));
    }
    let more = super::tables_more::blocks(figures).into_iter();
    blocks.extend(more.map(|(name, title, markdown)| block(name, title, markdown)));
    Ok(blocks)
}

fn block(name: &str, title: &str, markdown: String) -> Block {
    Block { name: name.into(), title: title.into(), markdown }
}

/// Returns all tables as printed.
pub fn text(figures: &Figures) -> Result<String> {
    let blocks = blocks(figures)?;
    Ok(blocks.iter().map(|it| format!("\n{}\n{}", it.title, it.markdown)).collect())
}

/// Returns a table of rows and their cells.
pub fn grid(titles: &[String], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let head = markdown_row(titles.iter().cloned()) + &markdown_rule(titles.len());
    head + &rows.into_iter().map(markdown_row).collect::<String>()
}

/// Formats milliseconds with three significant digits.
pub fn ms(value: f64) -> String {
    match value {
        it if it >= 100.0 => format!("{it:.0}"),
        it if it >= 10.0 => format!("{it:.1}"),
        it if it >= 1.0 => format!("{it:.2}"),
        it => format!("{it:.3}"),
    }
}

/// Formats a size as the paper does: 64K is 64 000 bytes.
pub fn size(bytes: usize) -> String {
    match bytes {
        it if it >= 1_000_000 => format!("{}M", it / 1_000_000),
        it if it >= 1000 => format!("{}K", it / 1000),
        it => it.to_string(),
    }
}

fn sizes<'c>(cells: impl IntoIterator<Item = &'c Cell>) -> Vec<usize> {
    let sizes: BTreeSet<usize> = cells.into_iter().map(|cell| cell.bytes).collect();
    sizes.into_iter().collect()
}

fn find<'c>(cells: &[&'c Cell], system: System, bytes: usize) -> Option<&'c Cell> {
    cells.iter().copied().find(|it| it.system == system && it.bytes == bytes)
}

/// Returns the median, and the outcome unless it is fine.
fn median(cell: Option<&Cell>) -> String {
    let Some(cell) = cell else { return "–".into() };
    let median = cell.delay_ms.map(|it| ms(it.median));
    match (cell.outcome, median) {
        (Outcome::Fine, Some(median)) => median,
        (Outcome::Loss, Some(median)) => {
            let lost = cell.planned - cell.received;
            format!("{median} ({lost} of {} lost)", cell.planned)
        }
        (outcome, Some(median)) => format!("{median} ({})", outcome.words()),
        (outcome, None) => outcome.words().into(),
    }
}

fn medians(cells: &[&Cell]) -> String {
    let sizes = sizes(cells.iter().copied());
    let mut titles = vec!["system".to_owned()];
    titles.extend(sizes.iter().map(|it| size(*it)));
    let row = |system: System| {
        let cells = sizes.iter().map(|bytes| median(find(cells, system, *bytes)));
        std::iter::once(system.title().to_owned()).chain(cells).collect()
    };
    let here = |system: &System| cells.iter().any(|it| it.system == *system);
    grid(&titles, system::ALL.into_iter().filter(here).map(row))
}

fn spread(cells: &[Cell]) -> String {
    let local: Vec<&Cell> = cells.iter().filter(|it| it.place == Place::Local).collect();
    let wanted = [1000, 64_000, 1_000_000, 4_000_000];
    let titles: Vec<String> =
        std::iter::once("system".to_owned()).chain(wanted.map(size)).collect();
    let figure = |cell: Option<&Cell>| {
        let quantiles = cell.and_then(|it| it.delay_ms);
        quantiles.map_or("–".into(), |it| {
            format!("{}–{}, p99 {}", ms(it.lower_quartile), ms(it.upper_quartile), ms(it.p99))
        })
    };
    let row = |system: System| {
        let cells = wanted.map(|bytes| figure(find(&local, system, bytes)));
        std::iter::once(system.title().to_owned()).chain(cells).collect()
    };
    let here = |system: &System| local.iter().any(|it| it.system == *system);
    grid(&titles, system::ALL.into_iter().filter(here).map(row))
}

/// A case of the paper and its counterpart here.
struct Pairing {
    title: &'static str,
    case: &'static str,
    system: System,
    place: Place,
}

const PAIRINGS: [Pairing; 8] = [
    pairing("ROS 1, local", "1b_ros1_local", System::Roscpp, Place::Local),
    pairing("ROS 1, nodelet", "1c_ros1_nodelet", System::Roscpp, Place::InProcess),
    pairing("ROS 1, remote", "1a_ros1_remote", System::Roscpp, Place::Wire),
    pairing(
        "ROS 2, local (OpenSplice, reliable)",
        "2b_ros2_local_opensplice_reliable",
        System::RclpyUdp,
        Place::Local,
    ),
    pairing("ROS 2, in process", "2c_ros2_intraprocess", System::RclpyShm, Place::InProcess),
    pairing(
        "ROS 2, remote (OpenSplice, reliable)",
        "2a_ros2_remote_opensplice_reliable",
        System::RclpyUdp,
        Place::Wire,
    ),
    pairing(
        "ROS 1 to ROS 2, local (Connext, bridge)",
        "3b_ros1_to_ros2_local_connext_be",
        System::Tautline12,
        Place::Local,
    ),
    pairing(
        "ROS 1 to ROS 2, remote (Connext, bridge)",
        "3a_ros1_to_ros2_remote_connext_be",
        System::Tautline12,
        Place::Wire,
    ),
];

const fn pairing(title: &'static str, case: &'static str, system: System, place: Place) -> Pairing {
    Pairing { title, case, system, place }
}

fn against_paper(cells: &[Cell]) -> Result<String> {
    let paper = reference::all()?;
    let wanted = [256, 1000, 64_000, 256_000, 1_000_000, 4_000_000];
    let titles: Vec<String> =
        ["case of 2016", "here"].into_iter().map(str::to_owned).chain(wanted.map(size)).collect();
    let ours = |pairing: &Pairing, bytes| {
        let is = |it: &&Cell| {
            it.system == pairing.system && it.place == pairing.place && it.bytes == bytes
        };
        Some(cells.iter().find(is)?.delay_ms?.median)
    };
    let figure = |pairing: &Pairing, bytes| {
        let theirs = reference::median(&paper, pairing.case, bytes);
        match (theirs, ours(pairing, bytes)) {
            (Some(theirs), Some(ours)) => format!("{} (x {:.2})", ms(theirs), ours / theirs),
            (Some(theirs), None) => ms(theirs),
            (None, _) => "–".into(),
        }
    };
    let row = |pairing: &Pairing| {
        let here = format!("{}, {}", pairing.system.title(), pairing.place.title());
        let cells = wanted.map(|bytes| figure(pairing, bytes));
        [pairing.title.to_owned(), here].into_iter().chain(cells).collect()
    };
    Ok(grid(&titles, PAIRINGS.iter().map(row)))
}

fn added(rows: &[Row]) -> String {
    let titles = [
        "hop",
        "bytes",
        "direct",
        "gateway reads",
        "added",
        "gateway writes",
        "added",
        "in and out",
    ];
    let row = |row: &Row| {
        let name = if row.ros == 1 { "roscpp" } else { "Cyclone DDS" };
        let change =
            |hop| format!("{:+.3} ms ({:+.1} %)", row.added_ms(hop), row.added_percent(hop));
        let mut cells =
            vec![format!("ROS {}, {name}", row.ros), size(row.bytes), ms(row.median(0))];
        for hop in [1, 2] {
            cells.extend([ms(row.median(hop)), change(hop)]);
        }
        cells.push(ms(row.median(1) + row.median(2)));
        cells
    };
    grid(&titles.map(str::to_owned), rows.iter().map(row))
}

fn qos(cells: &[Cell]) -> String {
    let sizes = sizes(cells);
    let mut titles = vec!["system".to_owned(), "QoS".into()];
    titles.extend(sizes.iter().map(|it| size(*it)));
    titles.push("missed deadlines".into());
    let mut rows = Vec::new();
    for system in system::ALL {
        for (quality, _) in super::latency::qualities() {
            let of: Vec<&Cell> =
                cells.iter().filter(|it| it.system == system && it.quality == quality).collect();
            if of.is_empty() {
                continue;
            }
            let missed: u64 = of.iter().filter_map(|it| it.deadline_events).sum();
            let messages: u64 = of.iter().map(|it| it.received).sum();
            let mut row = vec![system.title().to_owned(), quality.to_owned()];
            row.extend(sizes.iter().map(|bytes| median(find(&of, system, *bytes))));
            row.push(format!("{missed} in {messages} messages"));
            rows.push(row);
        }
    }
    grid(&titles, rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_are_shown() {
        assert_eq!([0.1234, 1.234, 12.34, 123.4].map(ms), ["0.123", "1.23", "12.3", "123"]);
        assert_eq!([256, 64_000, 4_000_000].map(size), ["256", "64K", "4M"]);
    }

    #[test]
    fn every_case_of_the_paper_that_is_compared_exists() {
        let paper = reference::all().unwrap();
        for pairing in &PAIRINGS {
            assert!(paper.iter().any(|it| it.case == pairing.case), "{}", pairing.case);
        }
    }
}
