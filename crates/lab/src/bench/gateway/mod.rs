// SPDX-License-Identifier: Apache-2.0
//! The cost of the ROS 2 gateway: the same stream without it and through it, alternately.

mod idle;
mod stream;

use crate::rig::output::Output;
use crate::rig::processes::make_folder;
use crate::rig::stats::{Delay, Samples, median, middle, spread};
use crate::rig::table::{self, bar, left, right};
use crate::rig::verdict::{Bound, Conclusion, Verdict, verdict_lines};
use crate::setup::daemon::{Daemon, DaemonSetup};
use crate::setup::ends::By;
use crate::setup::flows::Flow;
use crate::setup::load::Load as RosLoad;
use crate::setup::ros::{self, Middleware, Range, ros2_packages};
use crate::setup::world::{Link, Pair};
use anyhow::{Context, Result};
use serde::Serialize;
use std::path::Path;
use std::time::Duration;
use stream::{End, Load, Stream};

/// Name on the command line.
pub const NAME: &str = "ros2-gateway";

/// Time by which each side of the gateway may increase the median delay of messages of 1 KB.
const ADDED_MS: Bound = Bound::AtMost(0.3);
/// Messages received per second, percent of those that a subscriber on the DDS library receives.
const THROUGHPUT_PERCENT: Bound = Bound::AtLeast(80.0);
const LARGE_RECEIVED: Bound = Bound::AtLeast(100.0);

/// 1 KB at 200 Hz for three seconds.
const SMALL: Load = load(1024, 600, 5);
const SMALL_ROUNDS: usize = 5;
/// Messages are published as fast as they are received: the publisher keeps all messages and waits for
/// its subscriber.
const FLOODS: [(&str, Load); 2] = [
    ("1 KB", Load { depth: 0, ..load(1024, 200_000, 0) }),
    ("64 KB", Load { depth: 0, ..load(65_536, 8_000, 0) }),
];
/// Each burst fits into the gateway's queue and into its writer's history.
const BURSTS: [(&str, Load); 2] = [
    ("1 KB", Load { burst: 1000, depth: 1000, ..load(1024, 20_000, 100) }),
    ("64 KB", Load { burst: 100, depth: 1000, ..load(65_536, 2_000, 100) }),
];
const THROUGHPUT_ROUNDS: usize = 3;
/// 4 MB at 10 Hz, with rclpy's default profile.
const LARGE: Load = load(4_000_000, 40, 100);
const LARGE_ROUNDS: usize = 3;
const WHOLE_ROUNDS: usize = 3;
const WHOLE_TIME: Duration = Duration::from_secs(6);

const BARE: End = End::Own(By::Bare);

/// Returns a load of single messages at a period. The publisher keeps ten messages, as in rclpy's
/// default profile.
const fn load(bytes: usize, count: u64, period_ms: u64) -> Load {
    Load { bytes, count, period: Duration::from_millis(period_ms), burst: 1, depth: 10 }
}

/// One figure of each round, without the gateway and through it.
#[derive(Debug, Serialize)]
struct Row {
    what: String,
    unit: &'static str,
    past: Vec<f64>,
    through: Vec<f64>,
    #[serde(skip)]
    target: Option<Target>,
}

#[derive(Serialize)]
struct Figures<'a> {
    ros2_packages: String,
    rows: &'a [Row],
}

/// The parts of a run.
struct Scene<'a> {
    pair: Pair,
    setup: &'a DaemonSetup,
    folder: &'a Path,
}

/// A figure computed from the samples of a round.
#[derive(Clone, Copy)]
struct Measure {
    name: &'static str,
    unit: &'static str,
    /// Computes the figure; the number is how many messages a burst has.
    of: fn(&Samples, u64) -> f64,
    target: Option<Target>,
}

/// A target, by the medians without the gateway and through it.
#[derive(Debug, Clone, Copy)]
enum Target {
    /// The median through the gateway minus the median without it.
    Added(Bound),
    /// The median through the gateway, percent of the median without it.
    Share(Bound),
    /// Only the median through the gateway.
    Through(Bound),
}

const P50: Measure = measure("p50", "ms", |samples, _| delay(samples, |it| it.p50));
const P99: Measure = measure("p99", "ms", |samples, _| delay(samples, |it| it.p99));
const RECEIVED: Measure = measure("received", "%", |it, _| it.summary(None).mdr_percent);
const STEADY: Measure = measure("steadily", "per s", |samples, _| steady_rate(samples));
const IN_BURSTS: Measure = measure("in bursts", "per s", burst_rate);

const fn measure(name: &'static str, unit: &'static str, of: fn(&Samples, u64) -> f64) -> Measure {
    Measure { name, unit, of, target: None }
}

impl Measure {
    const fn to_reach(self, target: Target) -> Self {
        Self { target: Some(target), ..self }
    }
}

fn delay(samples: &Samples, of: fn(Delay) -> f64) -> f64 {
    samples.summary(None).delay_ms.map_or(f64::INFINITY, of)
}

/// Returns the messages received per second, from the first to the last.
fn steady_rate(samples: &Samples) -> f64 {
    let (Some(first), Some(last)) = (samples.arrivals.first(), samples.arrivals.last()) else {
        return 0.0;
    };
    let seconds = (last.received_ns - first.received_ns) as f64 / 1e9;
    (samples.arrivals.len() - 1) as f64 / seconds
}

/// Returns the median of all bursts' messages received per second, from the time at which the
/// burst's first message is published.
fn burst_rate(samples: &Samples, burst: u64) -> f64 {
    let bursts = samples.sent_ns.len() as u64 / burst;
    let rate = |number: u64| {
        let of_burst = samples.arrivals.iter().filter(|it| it.sequence / burst == number);
        let last = of_burst.clone().map(|it| it.received_ns).max()?;
        let seconds = last.saturating_sub(samples.sent_ns[(number * burst) as usize]) as f64 / 1e9;
        Some(of_burst.count() as f64 / seconds)
    };
    median((0..bursts).map(|number| rate(number).unwrap_or(0.0))).unwrap_or(f64::NAN)
}

/// Runs the case.
pub fn run(setup: &DaemonSetup, output: &Output) -> Result<Conclusion> {
    let seconds = Duration::from_secs;
    let progress = output.progress(&[
        ("1 KB at 200 Hz, read and written", seconds(90)),
        ("as fast as possible, read and written", seconds(80)),
        ("4 MB to and from rclpy", seconds(90)),
        ("rclpy to rclpy over two daemons", seconds(75)),
        ("daemons idle", seconds(75)),
    ]);
    let (pair, folder) = (Pair::new(Link::UNLIMITED, 0)?, &*output.folder);
    let scene = Scene { pair, setup, folder };
    let mut rows = scene.measure_small()?;
    for part in [Scene::measure_throughput, Scene::measure_large, Scene::measure_whole_path] {
        progress.enter_next();
        rows.extend(part(&scene)?);
    }
    let mut verdicts: Vec<Verdict> = rows.iter().filter_map(Row::verdict).collect();
    progress.enter_next();
    verdicts.extend(idle::run(setup, &scene.pair, &folder.join("idle"))?);
    progress.finish();
    let words = format!(
        " the same stream past the gateway and through it, in turns\n{}\n{}\n{}",
        table(&rows),
        verdict_lines(&verdicts),
        output.raw_line()
    );
    let figures = Figures { ros2_packages: ros2_packages(), rows: &rows };
    output.conclude(figures, verdicts, &words)
}

impl Scene<'_> {
    fn measure_small(&self) -> Result<Vec<Row>> {
        let measures = [P50.to_reach(Target::Added(ADDED_MS)), P99, RECEIVED];
        let (read, written) = ("1 KB at 200 Hz, read", "1 KB at 200 Hz, written");
        let mut rows = self.compare(read, reading, SMALL, SMALL_ROUNDS, &measures)?;
        rows.extend(self.compare(written, writing, SMALL, SMALL_ROUNDS, &measures)?);
        Ok(rows)
    }

    fn measure_throughput(&self) -> Result<Vec<Row>> {
        let (rounds, mut rows) = (THROUGHPUT_ROUNDS, Vec::new());
        let steady = STEADY.to_reach(Target::Share(THROUGHPUT_PERCENT));
        for (size, load) in FLOODS {
            let what = format!("{size}, read");
            rows.extend(self.compare(&what, reading, load, rounds, &[steady])?);
        }
        for (size, load) in BURSTS {
            let what = format!("{size}, written");
            rows.extend(self.compare(&what, writing, load, rounds, &[IN_BURSTS, RECEIVED])?);
        }
        Ok(rows)
    }

    fn measure_large(&self) -> Result<Vec<Row>> {
        let received = RECEIVED.to_reach(Target::Through(LARGE_RECEIVED));
        let (rounds, measures) = (LARGE_ROUNDS, [received, P50, P99]);
        // Without the gateway, both ends are rclpy.
        let or_rclpy = |by| if by == By::Bare { End::Rclpy } else { End::Own(by) };
        let from_rclpy = |by| (End::Rclpy, or_rclpy(by));
        let to_rclpy = |by| (or_rclpy(by), End::Rclpy);
        let mut rows = self.compare("4 MB, read of rclpy", from_rclpy, LARGE, rounds, &measures)?;
        rows.extend(self.compare("4 MB, written to rclpy", to_rclpy, LARGE, rounds, &measures)?);
        Ok(rows)
    }

    /// Runs streams without the gateway and through it alternately.
    fn compare(
        &self,
        what: &str,
        ends: impl Fn(By) -> (End, End),
        load: Load,
        rounds: usize,
        measures: &[Measure],
    ) -> Result<Vec<Row>> {
        let stream = |by, round| {
            let (from, to) = ends(by);
            let stream = Stream { computer: &self.pair.robot, from, to, load };
            let name = format!("{what}-{}-to-{}-{round}", from.name(), to.name());
            stream.run(&self.folder.join(name.replace(", ", "-").replace(' ', "-")))
        };
        alternate(what, rounds, measures, load.burst, stream)
    }

    /// Measures the delay that users see: the laser from a robot to its base, directly and over two
    /// daemons.
    fn measure_whole_path(&self) -> Result<Vec<Row>> {
        let what = "rclpy to rclpy, 1 KB at 50 Hz";
        let laser = |by, round| self.laser(by, &self.folder.join(format!("laser-{by:?}-{round}")));
        alternate(what, WHOLE_ROUNDS, &[P50, P99], 1, laser)
    }

    fn laser(&self, by: By, folder: &Path) -> Result<Samples> {
        make_folder(folder)?;
        let (range, mut daemons) = match by {
            By::Bare => (Range::Subnet, Vec::new()),
            By::Gateway => (Range::Localhost, self.setup.start(&self.pair, folder)?),
        };
        let middleware = Middleware::Ros2 { range, reliable: true };
        let mut load = RosLoad::start(middleware, &[Flow::Laser], &self.pair, folder)?;
        load.publish(WHOLE_TIME)?;
        load.drain(WHOLE_TIME)?;
        load.write()?;
        daemons.iter_mut().try_for_each(Daemon::end)?;
        ros::samples(folder, Flow::Laser)
    }
}

/// Measures without the gateway and through it, round by round.
fn alternate(
    what: &str,
    rounds: usize,
    measures: &[Measure],
    burst: u64,
    samples: impl Fn(By, usize) -> Result<Samples>,
) -> Result<Vec<Row>> {
    let mut rows: Vec<Row> = measures.iter().map(|it| Row::new(what, it)).collect();
    for round in 1..=rounds {
        for by in [By::Bare, By::Gateway] {
            let samples = samples(by, round).with_context(|| format!("{what}, round {round}"))?;
            for (row, measure) in rows.iter_mut().zip(measures) {
                row.times(by).push((measure.of)(&samples, burst));
            }
        }
    }
    Ok(rows)
}

fn reading(by: By) -> (End, End) {
    (BARE, End::Own(by))
}

fn writing(by: By) -> (End, End) {
    (End::Own(by), BARE)
}

impl Row {
    fn new(what: &str, measure: &Measure) -> Self {
        Self {
            what: format!("{what}, {}", measure.name),
            unit: measure.unit,
            past: Vec::new(),
            through: Vec::new(),
            target: measure.target,
        }
    }

    fn times(&mut self, by: By) -> &mut Vec<f64> {
        match by {
            By::Bare => &mut self.past,
            By::Gateway => &mut self.through,
        }
    }

    fn verdict(&self) -> Option<Verdict> {
        let (past, through) = (middle(&self.past), middle(&self.through));
        let (bound, what, found, unit) = match self.target? {
            Target::Added(bound) => (bound, ", added", through - past, self.unit),
            Target::Share(bound) => {
                (bound, ", of a bare subscriber's", 100.0 * through / past, "%")
            }
            Target::Through(bound) => (bound, "", through, self.unit),
        };
        Some(bound.judge(format!("{}{what}", self.what), Some(found), unit))
    }
}

/// Returns the medians of the rounds, with minimum and maximum.
fn table(rows: &[Row]) -> String {
    table::format_rows(
        rows,
        &[
            left("", 40, |row: &Row| row.what.clone()),
            left("", 6, |row| row.unit.into()),
            bar(),
            right("past it", 10, |row| figure(middle(&row.past))),
            right("", 24, |row| least_to_most(&row.past)),
            bar(),
            right("through it", 10, |row| figure(middle(&row.through))),
            right("", 24, |row| least_to_most(&row.through)),
        ],
    )
}

fn least_to_most(values: &[f64]) -> String {
    let [least, most] = spread(values).map(figure);
    format!("({least} to {most})")
}

/// Formats a value: milliseconds need decimals, counts do not.
fn figure(value: f64) -> String {
    if value.abs() < 100.0 { format!("{value:.3}") } else { format!("{value:.0}") }
}
