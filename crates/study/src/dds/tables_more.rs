// SPDX-License-Identifier: Apache-2.0
//! Tables of outcomes and of the parts besides latency, QoS and gateways.

use super::Figures;
use super::fairness::{Row as Fairness, SUBSCRIBERS};
use super::first::Row as First;
use super::footprint::Row as Footprint;
use super::hop::Failure;
use super::outcome::Outcome;
use super::series::Cell;
use super::stage::Place;
use super::system::{ALL, System};
use super::tables::{grid, ms, size};
use super::throughput::Row as Throughput;

/// Threads and 10^6 bytes of shared libraries of a node in 2016, from the paper's text.
const NODES_OF_2016: [(&str, &str, &str); 4] = [
    ("2016: ROS 1 node", "5", "2.26"),
    ("2016: ROS 2 node, Connext", "8", "21.18"),
    ("2016: ROS 2 node, OpenSplice", "49", "17.95"),
    ("2016: ROS 2 node, FastRTPS", "5", "5.28"),
];

/// Returns name, title and table of each part for which there are results.
pub fn blocks(figures: &Figures) -> Vec<(&'static str, &'static str, String)> {
    let mut blocks = Vec::new();
    if !figures.first.is_empty() {
        let title = "first messages lost when the publisher starts at once, and time to the first";
        blocks.push(("first", title, first(&figures.first)));
    }
    if !figures.breakdown.is_empty() {
        let title = "local: medians of the parts of the delay, ms";
        blocks.push(("breakdown", title, breakdown(&figures.breakdown)));
    }
    if !figures.fairness.is_empty() {
        let title = "five subscribers, 1 MB: median delay of each in ms, fastest first";
        blocks.push(("fairness", title, fairness(&figures.fairness)));
    }
    if !figures.throughput.is_empty() {
        let title = "throughput, 10^6 bytes per second that arrive";
        blocks.push(("throughput", title, throughput(&figures.throughput)));
    }
    if !figures.footprint.is_empty() {
        let title = "idle programs";
        blocks.push(("footprint", title, footprint(&figures.footprint)));
    }
    // Without failures, this empties the table of an earlier run in the docs.
    blocks.push(("failures", "systems that failed in these parts", failures(&figures.failures)));
    blocks
}

fn titles<const N: usize>(titles: [&str; N]) -> Vec<String> {
    titles.map(str::to_owned).into()
}

/// Returns one row per system and place: its sizes by outcome, as in Table 4 of the paper.
pub fn outcomes(cells: &[Cell]) -> String {
    let places = [Place::InProcess, Place::Local, Place::Wire, Place::Unlimited];
    let mut head = titles(["system"]);
    head.extend(places.map(|it| it.title().to_owned()));
    let of = |system, place| {
        let of: Vec<(usize, Outcome)> = cells
            .iter()
            .filter(|it| it.system == system && it.place == place)
            .map(|it| (it.bytes, it.outcome))
            .collect();
        spans(of)
    };
    let row = |system: System| {
        let cells = places.map(|place| of(system, place));
        std::iter::once(system.title().to_owned()).chain(cells).collect()
    };
    let here = |system: &System| cells.iter().any(|it| it.system == *system);
    grid(&head, ALL.into_iter().filter(here).map(row))
}

/// Returns `fine to 512K, late 1M to 4M`.
fn spans(mut of: Vec<(usize, Outcome)>) -> String {
    of.sort_unstable();
    let spans = of.chunk_by(|one, other| one.1 == other.1).map(|span| {
        let (from, to, words) = (span[0].0, span[span.len() - 1].0, span[0].1.words());
        match span.len() {
            it if it == of.len() => words.to_owned(),
            1 => format!("{words} at {}", size(from)),
            _ if from == of[0].0 => format!("{words} to {}", size(to)),
            _ => format!("{words} {} to {}", size(from), size(to)),
        }
    });
    let spans: Vec<String> = spans.collect();
    if spans.is_empty() { "–".into() } else { spans.join(", ") }
}

fn first(rows: &[First]) -> String {
    let head = titles(["system", "durability", "lost in each start", "first arrival, ms"]);
    let row = |row: &First| {
        let lost: Vec<String> = row.lost.iter().map(u64::to_string).collect();
        let until: Vec<String> = row.until_first_ms.iter().map(|it| ms(*it)).collect();
        vec![
            row.system.title().into(),
            row.durability.title().into(),
            format!("{} of {}", lost.join(", "), row.published),
            if until.is_empty() { "–".into() } else { until.join(", ") },
        ]
    };
    grid(&head, rows.iter().map(row))
}

fn breakdown(cells: &[Cell]) -> String {
    let head = titles([
        "system",
        "bytes",
        "serialize",
        "middleware",
        "deserialize",
        "rest",
        "whole delay",
    ]);
    let row = |cell: &Cell| {
        let parts = cell.parts.map_or_else(
            || vec!["–".into(); 4],
            |it| {
                vec![it.serialize_ms, it.middleware_ms, it.deserialize_ms, it.rest_ms]
                    .into_iter()
                    .map(ms)
                    .collect::<Vec<String>>()
            },
        );
        let whole = cell.delay_ms.map_or_else(|| cell.outcome.words().into(), |it| ms(it.median));
        let mut row = vec![cell.system.title().into(), size(cell.bytes)];
        row.extend(parts);
        row.push(whole);
        row
    };
    grid(&head, cells.iter().map(row))
}

fn fairness(rows: &[Fairness]) -> String {
    let mut head = titles(["system"]);
    head.extend((1..=SUBSCRIBERS).map(|it| it.to_string()));
    head.extend(titles(["last over first", "lost"]));
    let row = |row: &Fairness| {
        let mut cells = vec![row.system.title().to_owned()];
        cells.extend(row.medians_ms.iter().map(|it| ms(*it)));
        cells.resize(SUBSCRIBERS + 1, "–".into());
        cells.push(row.ratio().map_or("–".into(), |it| format!("{it:.2}")));
        cells.push(row.lost.to_string());
        cells
    };
    grid(&head, rows.iter().map(row))
}

fn throughput(rows: &[Throughput]) -> String {
    let head = titles(["system", "place", "bytes", "MB/s", "arrived"]);
    let row = |row: &Throughput| {
        vec![
            row.system.title().into(),
            row.place.title().into(),
            size(row.bytes),
            row.rate().map_or("–".into(), |it| format!("{it:.2}")),
            format!("{} of {}", row.received, row.published),
        ]
    };
    grid(&head, rows.iter().map(row))
}

fn footprint(rows: &[Footprint]) -> String {
    let head = titles([
        "program",
        "threads",
        "shared libraries",
        "their files, MB",
        "resident, MB",
        "proportional, MB",
    ]);
    let megabytes = |bytes: u64| format!("{:.1}", bytes as f64 / 1e6);
    let ours = rows.iter().map(|row| {
        vec![
            row.program.clone(),
            row.threads.to_string(),
            row.libraries.to_string(),
            megabytes(row.library_bytes),
            megabytes(row.resident_bytes),
            megabytes(row.proportional_bytes),
        ]
    });
    let theirs = NODES_OF_2016
        .map(|(program, threads, libraries)| titles([program, threads, "–", libraries, "–", "–"]));
    grid(&head, ours.chain(theirs))
}

fn failures(failures: &[Failure]) -> String {
    if failures.is_empty() {
        return "No system failed.\n".into();
    }
    let head = titles(["part", "system", "place", "error"]);
    let row = |it: &Failure| {
        // The end of a log would break the table; the report has all of it.
        let error = it.error.lines().next().unwrap_or_default();
        titles([it.part, it.system.title(), it.place.title(), error])
    };
    grid(&head, failures.iter().map(row))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbouring_sizes_of_one_outcome_are_one_span() {
        let (fine, late) = (Outcome::Fine, Outcome::DeadlineMissed);
        let mixed = vec![(256, fine), (1000, fine), (4_000_000, late)];
        assert_eq!(spans(mixed), "fine to 1K, late at 4M");
        assert_eq!(spans(vec![(256, fine), (512, fine)]), "fine");
        assert_eq!(spans(Vec::new()), "–");
    }
}
