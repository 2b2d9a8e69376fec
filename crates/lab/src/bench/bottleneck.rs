// SPDX-License-Identifier: Apache-2.0
//! A far bottleneck with real ROS, over Tautline and plain ROS 1: a robot, a router and a base, with
//! a policer of the kernel at the router, or a recorded capacity in the emulator.

use super::comparison::trial::Transport;
use crate::rig::clock::monotonic_ns;
use crate::rig::docs_page;
use crate::rig::output::Output;
use crate::rig::processes::{make_folder, read_packed};
use crate::rig::progress::Progress;
use crate::rig::stats::{delay, median};
use crate::rig::table::{self, Column, left, or_dash, right};
use crate::rig::verdict::{Bound, Conclusion, Verdict, verdict_lines};
use crate::scenario::{self, NetworkKind, Scenario};
use crate::setup::daemon::{Daemon, DaemonSetup, ROBOT, write_statuses};
use crate::setup::flows::Flow;
use crate::setup::load::Load;
use crate::setup::ros::{self, Ros};
use crate::setup::usage::MachineTicks;
use crate::setup::world::{FRAME_BYTES, MTU, Pair, TokenBucket};
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Name on the command line, of the data and of the table in its page.
pub const NAME: &str = "bottleneck";
/// Name of the case's data file in the documentation.
const DATA: &str = "bottleneck.json";
/// Counted seconds of a run, unless the user states them.
pub const SECONDS: u64 = 20;
const PAGE: &str = "measurements";

const RATES_MBPS: [u64; 5] = [2, 4, 10, 20, 50];
const BURSTS_KB: [u32; 4] = [8, 20, 40, 100];
const QUEUES: [u32; 2] = [2, 7];
/// Cells that are run unless the user names some: under ten minutes.
const USUAL: [&str; 8] = [
    "2Mbps-8KB-2",
    "4Mbps-20KB-7",
    "10Mbps-8KB-2",
    "10Mbps-100KB-7",
    "20Mbps-8KB-2",
    "20Mbps-40KB-2",
    "50Mbps-8KB-2",
    "50Mbps-20KB-7",
];
/// Names all cells on the command line.
const ALL: &str = "all";
const FLOWS: [Flow; 2] = [Flow::Laser, Flow::Image];
/// Payload of a full packet of Tautline.
const PAYLOAD_BYTES: f64 = 1425.0;
/// Queue of a recorded link, in full packets.
const TRACE_QUEUE: u32 = 100;
/// Messages before this time do not count: the capacity is not known yet.
const SETTLING: Duration = Duration::from_secs(4);
/// Time in which masters, daemons and programs start.
const START_TIME: Duration = Duration::from_secs(12);

/// Images that arrive, percent of those that fit.
const IMAGES: Bound = Bound::AtLeast(95.0);
/// Packets that the robot's daemon counts as lost, percent.
const LOSS: Bound = Bound::AtMost(3.0);
/// Limit of the laser's p99, in addition to the serialization time of one packet.
const LASER_P99_MS: f64 = 8.0;

/// What the case runs.
pub struct Plan<'a> {
    /// Setup of the daemons.
    pub setup: &'a DaemonSetup,
    /// Transports that take part; `None` for Tautline and TCPROS.
    pub only: Option<&'a [Transport]>,
    /// Prefixes of the names of cells, or `all`; empty for the usual cells.
    pub cells: &'a [String],
    /// Recorded capacities in the format of mahimahi, which may be compressed (.gz).
    pub traces: &'a [PathBuf],
    /// Runs of each cell over each transport.
    pub runs: u64,
    /// Counted time.
    pub time: Duration,
    /// Folder of the documentation to be updated.
    pub docs: Option<&'a Path>,
}

/// A bottleneck: a policer or a recorded link.
struct Cell {
    name: String,
    place: Place,
}

enum Place {
    Policer(TokenBucket),
    Trace(Box<Scenario>),
}

/// Figures of a run, without the messages of the time [`SETTLING`].
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Figures {
    /// Images that arrived, percent of those that fit.
    images_percent: f64,
    /// Median delay of those images.
    image_p50_ms: Option<f64>,
    laser_percent: f64,
    laser_p50_ms: Option<f64>,
    laser_p99_ms: Option<f64>,
    /// Packets that the router dropped; `None` on a recorded link.
    dropped_percent: Option<f64>,
    /// Packets that the robot's daemon counts as lost (LOSS); `None` without a daemon.
    loss_percent: Option<f64>,
    /// Like `loss_percent`, since the daemon's start.
    loss_since_start_percent: Option<f64>,
    /// The daemon's figure `CAN SEND` at the end of the run.
    can_send_mbps: Option<f64>,
    /// Lateness of the laser's publisher (p99).
    publisher_late_ms: Option<f64>,
    /// Percent of all cores that were busy. A busy machine makes the other figures unreliable.
    machine_busy_percent: f64,
    /// Lateness of the emulator of a recorded link (p99, microseconds); it should be below 400.
    emulator_late_us: Option<u64>,
}

/// The runs of each cell, by its name, over each transport.
type Measured = BTreeMap<String, BTreeMap<Transport, Vec<Figures>>>;

/// Runs the case. A run that fails is named, and counts as not measured.
pub fn run(plan: &Plan, output: &Output) -> Result<Conclusion> {
    if let Some(docs) = plan.docs {
        docs_page::check(docs, PAGE)?;
    }
    let cells = plan.chosen(&output.folder)?;
    let transports = plan.only.unwrap_or(&[Transport::Tautline, Transport::Tcpros]);
    let trials = cells.iter().flat_map(|cell| transports.iter().map(move |over| (cell, *over)));
    let trials: Vec<_> =
        trials.flat_map(|trial| (1..=plan.runs).map(move |run| (trial, run))).collect();
    let stage = |((cell, over), run): &((&Cell, Transport), u64)| {
        (format!("{NAME}: {} {} {run}", cell.name, over.name()), START_TIME + plan.time)
    };
    let progress = Progress::new(trials.iter().map(stage).collect());
    let mut measured = Measured::new();
    for ((cell, over), run) in trials {
        progress.enter_next();
        let folder = output.folder.join(&cell.name).join(format!("{}-{run}", over.name()));
        let runs = measured.entry(cell.name.clone()).or_default().entry(over).or_default();
        match plan.measure(cell, over, &folder, &progress) {
            Ok(figures) => runs.push(figures),
            Err(error) => progress.say(&format!("{} {}: {error:#}", cell.name, over.name())),
        }
    }
    progress.finish();
    let verdicts: Vec<Verdict> = cells.iter().flat_map(|cell| judge(cell, &measured)).collect();
    let words = format!(
        " laser and images from robot to base through a router; RATE-BURST-QUEUE of its policer\n{}{}{}\n",
        table::format_rows(&rows(&measured), &columns()),
        verdict_lines(&verdicts),
        output.raw_line(),
    );
    let conclusion = output.conclude(&measured, verdicts, &words)?;
    if let Some(docs) = plan.docs {
        keep(docs, &output.folder.join("report.json"), &measured)?;
    }
    Ok(conclusion)
}

/// Returns the name and the policer of all cells.
fn policers() -> impl Iterator<Item = (String, TokenBucket)> {
    let pairs = RATES_MBPS.into_iter().flat_map(|mbps| BURSTS_KB.map(|burst| (mbps, burst)));
    pairs.flat_map(|(mbps, burst)| {
        QUEUES.map(|queue| {
            let bucket = TokenBucket {
                rate_bps: mbps * 1_000_000,
                burst_bytes: burst * 1000,
                queue_bytes: queue * FRAME_BYTES,
            };
            (format!("{mbps}Mbps-{burst}KB-{queue}"), bucket)
        })
    })
}

impl Plan<'_> {
    fn chosen(&self, folder: &Path) -> Result<Vec<Cell>> {
        let names: Vec<&str> = match self.cells {
            [] if self.traces.is_empty() => USUAL.to_vec(),
            cells => cells.iter().map(String::as_str).collect(),
        };
        let is_chosen = |name: &str| names.iter().any(|it| *it == ALL || name.starts_with(it));
        if let Some(unknown) = names
            .iter()
            .find(|it| **it != ALL && !policers().any(|(name, _)| name.starts_with(**it)))
        {
            let all: Vec<String> = policers().map(|(name, _)| name).collect();
            anyhow::bail!("no cell begins with '{unknown}'; there are {}, {ALL}", all.join(", "));
        }
        let policer = |(name, bucket)| Cell { name, place: Place::Policer(bucket) };
        let mut cells: Vec<Cell> =
            policers().filter(|(name, _)| is_chosen(name)).map(policer).collect();
        for trace in self.traces {
            cells.push(Cell::from_recording(trace, folder)?);
        }
        Ok(cells)
    }

    fn measure(
        &self,
        cell: &Cell,
        over: Transport,
        folder: &Path,
        progress: &Progress,
    ) -> Result<Figures> {
        make_folder(folder)?;
        let mut pair = match &cell.place {
            Place::Policer(bucket) => Pair::behind_router(*bucket)?,
            Place::Trace(scenario) => Pair::on_air(scenario, 1)?,
        };
        if let Some(warning) = pair.warning() {
            progress.say(&format!("warning: {warning}"));
        }
        let masters = over.masters(Ros::One, &pair, folder)?;
        let mut daemons = match over {
            Transport::Tautline => self.setup.start(&pair, folder)?,
            _ => Vec::new(),
        };
        let mut load = Load::start(over.middleware(Ros::One, &pair), &FLOWS, &pair, folder)?;
        pair.count_from_now();
        let ticks = MachineTicks::now()?;
        let first = load.begin(self.time)?;
        let span = first + SETTLING.as_nanos() as u64..first + self.time.as_nanos() as u64;
        std::thread::sleep(Duration::from_nanos(span.start.saturating_sub(monotonic_ns())));
        let before = Counts::now(&daemons, &pair)?;
        load.await_published(self.time)?;
        let after = Counts::now(&daemons, &pair)?;
        let machine_busy_percent = MachineTicks::now()?.busy_percent_since(ticks);
        load.drain(self.time)?;
        write_statuses(&daemons, folder)?;
        let (origin, emulator) = (pair.origin(), pair.punctuality()?);
        load.write()?;
        daemons.iter_mut().try_for_each(Daemon::end)?;
        drop(masters);
        let bytes = |flow: Flow| load.message_bytes.get(&flow).copied().unwrap_or(0);
        Ok(Figures {
            dropped_percent: share(after.router, before.router),
            loss_percent: share(after.link, before.link),
            loss_since_start_percent: share(after.link, Some([0, 0])),
            can_send_mbps: after.can_send_mbps,
            machine_busy_percent,
            emulator_late_us: emulator.map(|it| it.late_p99_us),
            ..figures(cell, folder, FLOWS.map(bytes), span, origin.unwrap_or(0))?
        })
    }
}

/// Returns the figures of the messages that were sent within `span`; `bytes` are the sizes of
/// [`FLOWS`], and a recorded link began at `origin`.
fn figures(
    cell: &Cell,
    folder: &Path,
    bytes: [u64; 2],
    span: Range<u64>,
    origin: u64,
) -> Result<Figures> {
    let [laser, image] = FLOWS.map(|flow| ros::samples(folder, flow));
    let (laser, image) = (laser?, image?);
    let bits = bytes.map(|bytes| bytes as f64 * 8.0);
    let offered = [0, 1].map(|it: usize| bits[it] / FLOWS[it].period().as_secs_f64());
    let start = span.start.saturating_sub(origin);
    let fits = cell.fitting_bits(start, span.end - span.start, offered);
    let scans = laser.delays(span.clone());
    let laser_percent = 100.0 * scans.len() as f64 / laser.published_count(span.clone()) as f64;
    let (scans, images) = (delay(scans), delay(image.delays(span.clone())));
    let late = laser.summary(Some(Flow::Laser.period())).publisher_late_ms;
    Ok(Figures {
        images_percent: 100.0 * image.arrived_count(span) as f64 * bits[1] / fits.max(1.0),
        image_p50_ms: images.map(|it| it.p50),
        laser_percent,
        laser_p50_ms: scans.map(|it| it.p50),
        laser_p99_ms: scans.map(|it| it.p99),
        publisher_late_ms: late.map(|it| it.p99),
        ..Figures::default()
    })
}

/// Counters of the bottleneck and of the robot's only link, since their start.
struct Counts {
    /// Packets that the router sent and dropped; `None` on a recorded link.
    router: Option<[u64; 2]>,
    /// Packets that arrived and were lost, as the robot's daemon counts; `None` without a daemon.
    link: Option<[u64; 2]>,
    can_send_mbps: Option<f64>,
}

impl Counts {
    fn now(daemons: &[Daemon], pair: &Pair) -> Result<Self> {
        let router = pair.routed_packets()?;
        let Some(robot) = daemons.get(ROBOT) else {
            return Ok(Self { router, link: None, can_send_mbps: None });
        };
        let status = robot.status()?;
        let link = &status["links"][0];
        let count = |key: &str| link[key].as_u64().with_context(|| format!("no {key} in {link}"));
        Ok(Self {
            router,
            link: Some([count("acked_packets")?, count("lost_packets")?]),
            can_send_mbps: link["available_bps"].as_u64().map(|bps| bps as f64 / 1e6),
        })
    }
}

/// Returns the percent of packets lost between two counts of arrived and lost packets.
fn share(after: Option<[u64; 2]>, before: Option<[u64; 2]>) -> Option<f64> {
    let (after, before) = after.zip(before)?;
    // A packet that arrives after all no longer counts as lost.
    let [arrived, lost] = [0, 1].map(|it: usize| after[it].saturating_sub(before[it]) as f64);
    (arrived + lost > 0.0).then(|| 100.0 * lost / (arrived + lost))
}

impl Cell {
    /// Returns a recorded link with one queue for each direction. A compressed file is unpacked into
    /// `folder`.
    fn from_recording(trace: &Path, folder: &Path) -> Result<Self> {
        let name = trace.file_name().and_then(|it| it.to_str()).context("--trace: no file name")?;
        let name = name.trim_end_matches(".gz");
        let unpacked = folder.join(format!("{name}.trace"));
        std::fs::write(&unpacked, read_packed(trace)?)?;
        let text = format!(
            "about: A recorded link beyond a router\nsource: {name}\nduration: 1s\nnetworks:\n  \
               fast: {{ pipe: {{ rate: 1Gbps, queue: 10MB }} }}\n  \
               slow: {{ pipe: {{ trace: {name}.trace, queue: {} }} }}\nstations:\n  \
               robot: {{ networks: [fast] }}\n  \
               router: {{ networks: [fast, slow] }}\n  \
               base: {{ networks: [slow] }}\nroutes:\n  - [robot, router, base]\n",
            TRACE_QUEUE * MTU
        );
        let scenario = scenario::parse(name, &text, folder);
        let scenario = scenario.map_err(|problems| anyhow::anyhow!("{problems:?} in\n{text}"))?;
        Ok(Self { name: name.into(), place: Place::Trace(Box::new(scenario)) })
    }

    /// Returns the bits of images that fit in addition to the laser in `time` ns from `start` on (on a
    /// recorded link, a time of the recording). `laser` and `images` are the offered bits per second.
    fn fitting_bits(&self, start: u64, time: u64, [laser, images]: [f64; 2]) -> f64 {
        let seconds = time as f64 / 1e9;
        let packets = match &self.place {
            Place::Policer(bucket) => {
                bucket.rate_bps as f64 * seconds / 8.0 / f64::from(FRAME_BYTES)
            }
            Place::Trace(scenario) => {
                let traces = scenario.networks.iter().filter_map(|network| {
                    let NetworkKind::Pipe(pipe) = &network.kind else { return None };
                    pipe.trace.as_ref()
                });
                traces
                    .map(|it| it.first_at_or_after(start + time) - it.first_at_or_after(start))
                    .sum::<u64>() as f64
            }
        };
        (packets * PAYLOAD_BYTES * 8.0 - laser * seconds).clamp(0.0, images * seconds)
    }
}

/// Judges Tautline at a policer.
fn judge(cell: &Cell, measured: &Measured) -> Vec<Verdict> {
    let Place::Policer(bucket) = &cell.place else { return Vec::new() };
    let Some(runs) = measured.get(&cell.name).and_then(|it| it.get(&Transport::Tautline)) else {
        return Vec::new();
    };
    let what = |text: &str| format!("{}: {text}", cell.name);
    let packet_ms = f64::from(FRAME_BYTES) * 8e3 / bucket.rate_bps as f64;
    let figure = |figure: fn(&Figures) -> Option<f64>| middle(runs, figure);
    vec![
        IMAGES.judge(what("images"), figure(|it| Some(it.images_percent)), "% of what fits"),
        Bound::AtMost(packet_ms + LASER_P99_MS).judge(
            what("laser p99"),
            figure(|it| it.laser_p99_ms),
            "ms",
        ),
        LOSS.judge(what("loss"), figure(|it| it.loss_percent), "%"),
    ]
}

fn middle(runs: &[Figures], figure: impl Fn(&Figures) -> Option<f64>) -> Option<f64> {
    median(runs.iter().filter_map(figure))
}

/// Runs of a cell over a transport.
struct Row {
    cell: String,
    over: Transport,
    runs: Vec<Figures>,
}

fn rows(measured: &Measured) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for (cell, by_transport) in measured {
        for (over, runs) in by_transport {
            rows.push(Row { cell: cell.clone(), over: *over, runs: runs.clone() });
        }
    }
    let place = |row: &Row| policers().position(|(name, _)| name == row.cell);
    // Recorded links come last.
    rows.sort_by_key(|row| place(row).unwrap_or(usize::MAX));
    rows
}

fn columns() -> Vec<Column<Row>> {
    vec![
        left("bottleneck", 14, |row: &Row| row.cell.clone()),
        left("over", 8, |row| row.over.name()),
        right("images %", 8, |row| or_dash(middle(&row.runs, |it| Some(it.images_percent)), 1)),
        right("p50 ms", 7, |row| or_dash(middle(&row.runs, |it| it.image_p50_ms), 0)),
        right("laser %", 7, |row| or_dash(middle(&row.runs, |it| Some(it.laser_percent)), 1)),
        right("p50 ms", 6, |row| or_dash(middle(&row.runs, |it| it.laser_p50_ms), 1)),
        right("p99 ms", 7, |row| or_dash(middle(&row.runs, |it| it.laser_p99_ms), 1)),
        right("dropped %", 9, |row| or_dash(middle(&row.runs, |it| it.dropped_percent), 1)),
        right("LOSS %", 6, |row| or_dash(middle(&row.runs, |it| it.loss_percent), 1)),
        right("CAN SEND", 8, |row| or_dash(middle(&row.runs, |it| it.can_send_mbps), 1)),
        right("busy %", 6, |row| or_dash(middle(&row.runs, |it| Some(it.machine_busy_percent)), 0)),
    ]
}

/// Adds what was measured to the data and the table of the documentation; other cells stay.
fn keep(docs: &Path, report: &Path, measured: &Measured) -> Result<()> {
    let file = docs.join("measured").join(DATA);
    let kept = |file: &Path| -> Result<Value> { Ok(serde_json::from_str(&read_packed(file)?)?) };
    let cells = |data: &Value| -> Vec<String> {
        data["measured"].as_object().into_iter().flat_map(|it| it.keys().cloned()).collect()
    };
    let old = if file.is_file() { cells(&kept(&file)?) } else { Vec::new() };
    let parts: Vec<&str> = old.iter().chain(measured.keys()).map(String::as_str).collect();
    docs_page::keep(docs, DATA, report, &parts)?;
    let data = kept(&file)?;
    let mut all = Measured::new();
    for cell in cells(&data) {
        let runs = serde_json::from_value(data[&cell].clone());
        all.insert(cell.clone(), runs.with_context(|| format!("{cell} in {}", file.display()))?);
    }
    let table = table::markdown(&rows(&all), &columns());
    docs_page::fill(docs, PAGE, &[(NAME, table)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_a_place_for_the_table() {
        let text = include_str!("../../../../docs/explanation/measurements.md");
        docs_page::replace(text, NAME, "").unwrap();
    }

    #[test]
    fn the_default_cells_exist() {
        assert_eq!(policers().count(), 40);
        assert!(USUAL.iter().all(|usual| policers().any(|(name, _)| name == *usual)));
    }

    #[test]
    fn losses_are_differences_of_counts() {
        assert_eq!(share(Some([190, 20]), Some([100, 10])), Some(10.0));
        assert_eq!(share(Some([100, 10]), Some([100, 10])), None);
        // A packet arrived after all.
        assert_eq!(share(Some([101, 9]), Some([100, 10])), Some(0.0));
        assert_eq!(share(None, None), None);
    }

    #[test]
    fn images_get_their_offered_rate_or_the_remaining_capacity() {
        let (name, bucket) = policers().next().unwrap();
        let slow = Cell { name, place: Place::Policer(bucket) };
        let offered = [400_000.0, 3_300_000.0];
        let left = 2e6 * 1425.0 / 1514.0 - 400_000.0;
        assert!((slow.fitting_bits(0, 1_000_000_000, offered) - left).abs() < 1.0);
        let (name, bucket) = policers().last().unwrap();
        let fast = Cell { name, place: Place::Policer(bucket) };
        assert_eq!(fast.fitting_bits(0, 2_000_000_000, offered), 6_600_000.0);
    }

    #[test]
    fn the_capacity_of_a_recording_depends_on_the_time() {
        let folder = tempfile::tempdir().unwrap();
        let trace = folder.path().join("two");
        // 100 packets in the first second, none in the second one.
        let lines: String = (1..=100).map(|number| format!("{}\n", number * 10)).collect();
        std::fs::write(&trace, lines + "2000\n").unwrap();
        let cell = Cell::from_recording(&trace, folder.path()).unwrap();
        let second = 1_000_000_000;
        assert_eq!(cell.fitting_bits(1, second - 1, [0.0, 1e9]), 99.0 * 1425.0 * 8.0);
        assert_eq!(cell.fitting_bits(second + 1, second - 2, [0.0, 1e9]), 0.0);
        assert_eq!(cell.fitting_bits(1, second - 1, [0.0, 1e5]), 1e5 * 0.999_999_999);
    }
}
