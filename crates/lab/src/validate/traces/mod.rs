// SPDX-License-Identifier: Apache-2.0
//! Rate controllers on cellular links, recorded and generated, against a sender that knows all
//! capacity in advance.

mod generate;
mod omniscient;

use crate::rig::processes::{make_folder, read_packed};
use crate::rig::progress::Progress;
use crate::rig::stats::{self, Samples};
use crate::rig::table::{markdown_row, markdown_rule};
use crate::rig::{docs_page, parallel, plot};
use crate::scenario::{self, NetworkKind, Scenario};
use crate::sim;
use crate::validate::OnTraces;
use crate::validate::far::{self, LASER_BYTES};
use anyhow::{Context, Result, ensure};
use omniscient::Capacity;
use serde::Serialize;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use tautline_medium::{Nanos, OPPORTUNITY_BYTES, RadioId, StationId, Trace};

/// The compared controllers; `fixed` has the mean rate of the trace configured.
const CONTROLLERS: [&str; 7] = ["auto", "bbr3", "copa", "scream2", "gcc", "cubic", "fixed"];
const S: Nanos = 1_000_000_000;
const SECONDS: u64 = 60;
/// Age past which a message is worthless.
const LIFESPAN: Nanos = 2 * S;
/// Messages published in this span count: not the first ones, and not those that may arrive after the
/// end.
const COUNTED: std::ops::Range<Nanos> = 2 * S..SECONDS * S - LIFESPAN;
const BULK_BYTES: u64 = 30_000;
/// IP, UDP and our own headers of a packet.
const HEADER_BYTES: u64 = 75;
/// Payload of a full packet.
const PAYLOAD_BYTES: u64 = OPPORTUNITY_BYTES - HEADER_BYTES;
const DELAY: Nanos = 20_000_000;
const QUEUE: &str = "300KB";
/// Target of `auto`: a delay is at most that of the omniscient sender times this, plus the margin.
const DELAY_FACTOR: f64 = 1.5;
/// Margin of that target.
const DELAY_MARGIN_MS: f64 = 5.0;
/// Target of `auto`: least bulk, percent of the bulk of the omniscient sender.
const BULK_PERCENT: f64 = 85.0;
/// Expected duration of one run, for the progress line.
const EXPECTED: Duration = Duration::from_millis(800);
/// The link in the picture, if its recording is present.
const DRAWN: &str = "ATT-LTE-driving-2016.up";
/// Time between two points of the curves in the picture.
const EVERY_NS: Nanos = S / 4;
const BASE_RADIO: RadioId = RadioId(3);

/// Seeds of the generated links.
const SEEDS: std::ops::RangeInclusive<u64> = 1..=6;

/// A link.
#[derive(Debug, Clone)]
struct Link {
    name: String,
    trace: Trace,
}

/// Figures of a sender. A message that did not arrive within its lifespan counts as delayed by the lifespan.
#[derive(Debug, Clone, Serialize)]
struct Figures {
    sender: &'static str,
    laser_mean_ms: f64,
    laser_p99_ms: f64,
    laser_lost_percent: f64,
    /// Bulk that arrived within its lifespan, percent of what the omniscient sender delivers.
    bulk_percent: f64,
    /// Whether the targets hold; every sender is measured by those of `auto`.
    laser_holds: bool,
    bulk_holds: bool,
}

/// Figures of all senders on a link; the omniscient one is the first.
#[derive(Debug, Serialize)]
struct Cell {
    link: String,
    mean_mbps: f64,
    /// The longest time without an opportunity to send.
    outage_ms: f64,
    /// Bulk that the omniscient sender delivers, percent of what is offered.
    bulk_offered_percent: f64,
    senders: Vec<Figures>,
}

/// Delays in ms of counted messages; infinite if one did not arrive within its lifespan.
struct Delays(Vec<f64>);

impl Delays {
    fn arrived_count(&self) -> usize {
        self.0.iter().filter(|it| it.is_finite()).count()
    }

    fn from_samples(samples: &Samples) -> Self {
        let within = |it: &f64| *it <= LIFESPAN as f64 / 1e6;
        let mut delays = samples.delays(COUNTED);
        delays.retain(within);
        delays.resize(samples.published_count(COUNTED), f64::INFINITY);
        Self(delays)
    }

    /// Returns the figures of a sender with these delays of laser and bulk.
    fn figures(
        &self,
        sender: &'static str,
        bulk: &Self,
        limit: Option<&Figures>,
        most: usize,
    ) -> Figures {
        let capped: Vec<f64> = self.0.iter().map(|it| it.min(LIFESPAN as f64 / 1e6)).collect();
        let count = self.0.len().max(1) as f64;
        let laser_mean_ms = capped.iter().sum::<f64>() / count;
        let laser_p99_ms = stats::p99(capped);
        let in_time = |ms: f64, least: fn(&Figures) -> f64| {
            limit.is_none_or(|limit| ms <= DELAY_FACTOR * least(limit) + DELAY_MARGIN_MS)
        };
        let bulk_percent = 100.0 * bulk.arrived_count() as f64 / most.max(1) as f64;
        Figures {
            sender,
            laser_mean_ms,
            laser_p99_ms,
            laser_lost_percent: 100.0 * (1.0 - self.arrived_count() as f64 / count),
            bulk_percent,
            laser_holds: in_time(laser_mean_ms, |it| it.laser_mean_ms)
                && in_time(laser_p99_ms, |it| it.laser_p99_ms),
            bulk_holds: bulk_percent >= BULK_PERCENT,
        }
    }
}

/// Delays of laser and bulk of the omniscient sender, for messages published as in `samples`.
fn omniscient(trace: &Trace, [laser, bulk]: [&Samples; 2]) -> [Delays; 2] {
    let mut capacity = Capacity::new(trace, sim::WARM_UP, (SECONDS + 1) * S);
    let packets = BULK_BYTES.div_ceil(PAYLOAD_BYTES);
    let bytes = [LASER_BYTES + HEADER_BYTES, BULK_BYTES + packets * HEADER_BYTES];
    [(laser, bytes[0]), (bulk, bytes[1])].map(|(samples, bytes)| {
        let delays = capacity.send(&samples.sent_ns, bytes, LIFESPAN - DELAY);
        let counted = samples.sent_ns.iter().zip(delays).filter(|(at, _)| COUNTED.contains(at));
        let ms = |it: Nanos| (it + DELAY) as f64 / 1e6;
        Delays(counted.map(|(_, delay)| delay.map_or(f64::INFINITY, ms)).collect())
    })
}

impl Link {
    fn from_seed(seed: u64) -> Result<Self> {
        let trace = generate::trace(seed).with_context(|| format!("no capacity from {seed}"))?;
        Ok(Self { name: format!("generated-{seed}"), trace })
    }

    fn from_recording(file: &Path) -> Result<Self> {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let trace = read_packed(file).and_then(|text| scenario::recording(&text));
        let trace = trace.with_context(|| format!("{} is no recorded link", file.display()))?;
        Ok(Self { name: name.trim_end_matches(".gz").into(), trace })
    }

    fn scenario(&self, controller: &str) -> Result<Scenario> {
        let mean_bps = self.trace.mean_bps();
        let rate = match controller {
            "fixed" => format!("{mean_bps}bps"),
            other => other.to_owned(),
        };
        let life = LIFESPAN / S;
        let flow = format!("from: robot, to: base, lifespan: {life}s");
        let flows = format!(
            "  - {{ name: laser, {flow}, size: {LASER_BYTES}, every: 20ms, priority: 200, keep_last: 100 }}\n  \
               - {{ name: bulk, {flow}, size: {BULK_BYTES}, every: 200ms, priority: 20, keep_last: 10, start: 5ms }}\n\
             tautline: {{ rate: {rate} }}\n"
        );
        let slow = format!("rate: {mean_bps}bps, queue: {QUEUE}, delay: {}ms", DELAY / 1_000_000);
        let mut scenario = scenario::parse_made("traces", &far::path(SECONDS, &slow, &flows))?;
        for network in scenario.networks.iter_mut().filter(|it| it.name == "slow") {
            if let NetworkKind::Pipe(pipe) = &mut network.kind {
                pipe.trace = Some(self.trace.clone());
            }
        }
        Ok(scenario)
    }

    /// Returns the longest time without an opportunity to send while messages count.
    fn outage_ms(&self) -> f64 {
        let span =
            [COUNTED.start, COUNTED.end].map(|at| self.trace.first_at_or_after(sim::WARM_UP + at));
        let gaps = (span[0]..span[1]).map(|it| self.trace.at(it + 1) - self.trace.at(it));
        gaps.max().unwrap_or_default() as f64 / 1e6
    }

    fn play(&self, controllers: &[&'static str]) -> Result<Cell> {
        let mut senders: Vec<Figures> = Vec::new();
        let (mut most, mut bulk_offered_percent) = (0, 0.0);
        for controller in controllers {
            let flows = sim::samples(&self.scenario(controller)?, 1)?;
            let both = [far::flow(&flows, "laser")?, far::flow(&flows, "bulk")?];
            if senders.is_empty() {
                let [laser, bulk] = omniscient(&self.trace, both);
                most = bulk.arrived_count();
                bulk_offered_percent = 100.0 * most as f64 / bulk.0.len().max(1) as f64;
                senders.push(laser.figures("omniscient", &bulk, None, most));
            }
            let [laser, bulk] = both.map(Delays::from_samples);
            senders.push(laser.figures(controller, &bulk, senders.first(), most));
        }
        Ok(Cell {
            link: self.name.clone(),
            mean_mbps: self.trace.mean_bps() as f64 / 1e6,
            outage_ms: self.outage_ms(),
            bulk_offered_percent,
            senders,
        })
    }
}

/// Returns the recorded links of a folder, by name; none if there is no such folder.
fn recorded_links(folder: &Path) -> Result<Vec<Link>> {
    let Ok(files) = folder.read_dir() else { return Ok(Vec::new()) };
    let paths: std::io::Result<Vec<PathBuf>> = files.map(|it| Ok(it?.path())).collect();
    let mut paths = paths.with_context(|| format!("cannot read {}", folder.display()))?;
    paths.retain(|it| it.is_file());
    paths.sort();
    paths.iter().map(|path| Link::from_recording(path)).collect()
}

/// Runs all links; exit code 3 if `auto` misses a target.
pub fn run(OnTraces { traces, written }: &OnTraces) -> Result<ExitCode> {
    let recorded = recorded_links(traces)?;
    if recorded.is_empty() {
        let folder = traces.display();
        let missing = format!("no recorded links in {folder} (--traces FOLDER)");
        ensure!(written.docs().is_none(), "{missing}, which --docs needs");
        eprintln!("{missing}: only generated ones are played");
    }
    let generated: Result<Vec<Link>> = SEEDS.map(Link::from_seed).collect();
    let links = [recorded, generated?].concat();
    let drawn = links.iter().find(|it| it.name == DRAWN).or(links.first()).cloned();
    let stage = |it: &Link| (it.name.clone(), EXPECTED * CONTROLLERS.len() as u32);
    let progress = Progress::new(links.iter().map(stage).collect());
    let cells = parallel::run(&progress, links, |link| link.play(&CONTROLLERS))?;
    progress.finish();
    let text = table(&cells);
    if let Some(docs) = written.docs() {
        docs_page::fill(docs, "unknown-links", &[("traces", text.clone())])?;
        make_folder(&docs.join("measured"))?;
        let json = serde_json::to_string_pretty(&cells)? + "\n";
        std::fs::write(docs.join("measured/traces.json"), json)?;
        drawn.iter().try_for_each(|link| link.draw(docs))?;
    }
    let holds = cells.iter().all(|cell| cell.senders[1].laser_holds && cell.senders[1].bulk_holds);
    super::conclude(&cells, written.json, &text, holds)
}

fn table(cells: &[Cell]) -> String {
    let senders = std::iter::once("omniscient").chain(CONTROLLERS);
    let titles = ["link", "mean Mbps", "longest outage"].into_iter().chain(senders);
    let head = markdown_row(titles.map(String::from)) + &markdown_rule(4 + CONTROLLERS.len());
    let held =
        |holds: fn(&Figures) -> bool| cells.iter().filter(|it| holds(&it.senders[1])).count();
    format!(
        "{head}{}\nThe targets of the laser hold for `auto` on {} of {} links, and that of bulk on {}.\n",
        cells.iter().map(row).collect::<String>(),
        held(|it| it.laser_holds),
        cells.len(),
        held(|it| it.bulk_holds)
    )
}

fn row(cell: &Cell) -> String {
    let first =
        [cell.link.clone(), format!("{:.1}", cell.mean_mbps), format!("{:.0} ms", cell.outage_ms)];
    let senders = cell.senders.iter().map(|it| match it.sender {
        "omniscient" => {
            words(it) + &format!(" ({:.0} % of what is offered)", cell.bulk_offered_percent)
        }
        _ => words(it),
    });
    markdown_row(first.into_iter().chain(senders))
}

/// Returns the figures of a cell; `!` marks a figure that misses its target.
fn words(it: &Figures) -> String {
    let missed = |holds: bool| if holds { "" } else { "!" };
    let lost = match it.laser_lost_percent {
        0.0 => String::new(),
        percent => format!(" / −{percent:.1} %"),
    };
    format!(
        "{:.0} / {:.0}{}{lost} / {:.0} %{}",
        it.laser_mean_ms,
        it.laser_p99_ms,
        missed(it.laser_holds),
        it.bulk_percent,
        missed(it.bulk_holds)
    )
}

impl Link {
    /// Draws capacity, delivered rate and laser delays with `auto` over time.
    fn draw(&self, docs: &Path) -> Result<()> {
        let mut points = Vec::new();
        let flows = sim::watch(&self.scenario("auto")?, 1, EVERY_NS, |sight| {
            points.push((sight.at_ns, sight.rate_bps(StationId(0)), sight.radio(BASE_RADIO)));
        })?;
        let laser = far::flow(&flows, "laser")?;
        let mbps = |bytes: u64| bytes as f64 * 8.0 / EVERY_NS as f64 * 1e3;
        let mut rows = String::from("s,capacity_mbps,delivered_mbps,paced_mbps,laser_ms\n");
        for pair in points.windows(2) {
            let [(from, _, before), (to, rate_bps, after)] = [&pair[0], &pair[1]];
            let [first, last] =
                [from, to].map(|at| self.trace.first_at_or_after(sim::WARM_UP + at));
            let delays = laser.delays(*from..*to);
            let _ = writeln!(
                rows,
                "{:.2},{:.3},{:.3},{},{}",
                *to as f64 / 1e9,
                mbps((last - first) * OPPORTUNITY_BYTES),
                mbps(after.received_bytes - before.received_bytes),
                rate_bps.map_or(String::new(), |bps| format!("{:.3}", bps as f64 / 1e6)),
                delays.into_iter().reduce(f64::max).map_or(String::new(), |ms| format!("{ms:.1}"))
            );
        }
        let samples = docs.join("measured/traces.csv");
        std::fs::write(&samples, rows)
            .with_context(|| format!("cannot write {}", samples.display()))?;
        let picture = docs.join("explanation/traces.png");
        plot::draw("traces.py", &[samples.as_os_str(), picture.as_os_str(), self.name.as_ref()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Repeats a generated link: the page must match the code.
    #[test]
    fn the_table_in_docs_is_current() {
        let page = Path::new(env!("CARGO_MANIFEST_DIR"));
        let page = page.join("../../docs/explanation/unknown-links.md");
        let page = std::fs::read_to_string(page).unwrap();
        let now = row(&Link::from_seed(1).unwrap().play(&CONTROLLERS[..1]).unwrap());
        let now = now.trim_end();
        assert!(page.contains(now), "{now}: tautline-lab validate traces --docs docs");
    }

    #[test]
    fn nobody_is_faster_than_the_omniscient_sender() {
        let cell = Link::from_seed(2).unwrap().play(&CONTROLLERS).unwrap();
        let least = &cell.senders[0];
        for other in &cell.senders[1..] {
            assert!(other.laser_mean_ms > least.laser_mean_ms, "{other:?} and {least:?}");
        }
    }
}
