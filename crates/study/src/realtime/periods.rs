// SPDX-License-Identifier: Apache-2.0
//! Jitter of four nodes with periods of 5, 10, 50 and 100 ms, running together: as plain loops, as
//! nodes of rospy and as timers of rclpy.

use super::condition::{
    BackgroundLoad, POLICIES, Policy, last_cpu, program, stress_word, value_under_stress,
};
use super::{Context, paper};
use anyhow::Result;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tautline_lab::rig::processes::Process;
use tautline_lab::rig::stats::{delay, jitters, rows};
use tautline_lab::rig::table::{self, column, or_dash};
use tautline_lab::setup::ros::{Middleware, Ros, RosProgram, START_PATIENCE};
use tautline_lab::setup::world::Computer;

const NODES: usize = paper::NODE_PERIODS_MS.len();
/// Name of the computer of all nodes.
const COMPUTER: &str = "robot";
const PATIENCE: Duration = Duration::from_secs(30);

/// Library of the nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Library {
    /// A loop of absolute sleeps, with locked memory.
    Plain,
    /// A loop with `rospy.Rate`.
    Rospy,
    /// A timer and `spin_once`.
    Rclpy,
}

/// All libraries, in the order of the tables.
const LIBRARIES: [Library; 3] = [Library::Plain, Library::Rospy, Library::Rclpy];

impl Library {
    fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain loop",
            Self::Rospy => "rospy",
            Self::Rclpy => "rclpy",
        }
    }

    /// Returns the paper's largest jitters; it has no plain loop.
    fn paper_ms(self, stressed: bool) -> Option<[f64; NODES]> {
        match self {
            Self::Plain => None,
            Self::Rospy => Some(value_under_stress(&paper::JITTER_ROS1_MS, stressed)),
            Self::Rclpy => Some(value_under_stress(&paper::JITTER_ROS2_MS, stressed)),
        }
    }
}

/// Jitter of one node: deviations of the activation interval from the period.
#[derive(Debug, Clone, Serialize)]
pub struct Node {
    pub period_ms: u64,
    pub intervals: usize,
    pub mean_ms: Option<f64>,
    pub p99_ms: Option<f64>,
    pub max_ms: Option<f64>,
    /// Largest jitter that the paper measured.
    pub paper_max_ms: Option<f64>,
    #[serde(skip)]
    samples: Vec<f64>,
}

/// Four nodes under one condition.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    #[serde(rename = "library")]
    pub client: Library,
    pub policy: Policy,
    pub stressed: bool,
    pub nodes: Vec<Node>,
    pub busy_percent: Vec<f64>,
    pub void: Vec<String>,
}

impl Row {
    fn new(client: Library, policy: Policy, stressed: bool) -> Self {
        let paper_ms = client.paper_ms(stressed);
        let node = |(index, period_ms): (usize, &u64)| Node {
            period_ms: *period_ms,
            intervals: 0,
            mean_ms: None,
            p99_ms: None,
            max_ms: None,
            paper_max_ms: paper_ms.map(|all| all[index]),
            samples: Vec::new(),
        };
        let nodes = paper::NODE_PERIODS_MS.iter().enumerate().map(node).collect();
        Self { client, policy, stressed, nodes, busy_percent: Vec::new(), void: Vec::new() }
    }
}

impl Node {
    /// Computes the figures of the report from the samples.
    fn summarize(&mut self) {
        self.intervals = self.samples.len();
        let figures = delay(self.samples.clone());
        self.mean_ms = figures.map(|it| it.mean);
        self.p99_ms = figures.map(|it| it.p99);
        self.max_ms = figures.map(|it| it.max);
    }
}

fn time(context: &Context<'_>) -> Duration {
    context.seconds(1, 8)
}

/// Returns the stages of this part for the progress display, each with its expected duration.
pub fn stages(context: &Context<'_>) -> Vec<(String, Duration)> {
    let one = (time(context) + Duration::from_secs(3)) * (2 * LIBRARIES.len() as u32);
    let of = |stressed| (format!("periods: {}", stress_word(stressed)), one);
    (0..context.rounds()).flat_map(|_| context.stress_settings().map(of)).collect()
}

/// Measures all conditions.
pub fn measure(context: &mut Context<'_>) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for stressed in context.stress_settings() {
        let of_policy =
            |policy| LIBRARIES.iter().map(move |library| Row::new(*library, policy, stressed));
        let policies = POLICIES.into_iter();
        // Quick runs omit the policy that differs least.
        let policies = policies.filter(|it| !context.quick || stressed || *it == Policy::Other);
        rows.extend(policies.flat_map(of_policy));
    }
    let computer = Computer::new(COMPUTER, 1)?;
    let _master = RosProgram::own(&computer, &context.raw).roscore()?;
    for round in 1..=context.rounds() {
        for stressed in context.stress_settings() {
            context.progress.enter_next();
            for row in rows.iter_mut().filter(|row| row.stressed == stressed) {
                run(row, round, &computer, context)?;
            }
        }
    }
    rows.iter_mut().flat_map(|row| &mut row.nodes).for_each(Node::summarize);
    Ok(rows)
}

fn run(row: &mut Row, round: u64, computer: &Computer, context: &Context<'_>) -> Result<()> {
    let launch = Launch { row, round, computer, raw: &context.raw, time: time(context) };
    // Python nodes start before the load, which would delay their start.
    let mut nodes = launch.prepare()?;
    let surroundings = BackgroundLoad::begin(row.stressed, &context.raw)?;
    let launch = Launch { row, round, computer, raw: &context.raw, time: time(context) };
    launch.start(&mut nodes)?;
    for node in &mut nodes {
        node.await_line("done", time(context) + PATIENCE)?;
    }
    let end = surroundings.end()?;
    let files: Vec<PathBuf> = (0..NODES).map(|index| launch.file(index)).collect();
    row.busy_percent.push(end.busy_percent);
    if let Some(reason) = end.void {
        row.void.push(reason);
        return Ok(());
    }
    for (node, file) in row.nodes.iter_mut().zip(files) {
        let woke: Vec<u64> = rows::<2>(&file)?.into_iter().map(|[_, woke]| woke).collect();
        node.samples.extend(jitters(&woke, node.period_ms));
    }
    Ok(())
}

/// The settings with which the four nodes of a run are started.
struct Launch<'a> {
    row: &'a Row,
    round: u64,
    computer: &'a Computer,
    raw: &'a Path,
    time: Duration,
}

impl Launch<'_> {
    fn name(&self, index: usize) -> String {
        let library = self.row.client.name().replace(' ', "-");
        format!(
            "periods-{library}-{}-{}-{}ms-{}",
            self.row.policy.name(),
            stress_word(self.row.stressed),
            paper::NODE_PERIODS_MS[index],
            self.round
        )
    }

    fn file(&self, index: usize) -> PathBuf {
        self.raw.join(format!("{}.csv", self.name(index)))
    }

    fn count(&self, index: usize) -> u64 {
        self.time.as_millis() as u64 / paper::NODE_PERIODS_MS[index] + 1
    }

    /// Starts the nodes of rospy or rclpy, and waits until all of them await the start command. Plain
    /// loops are not started.
    fn prepare(&self) -> Result<Vec<Process>> {
        let ros = match self.row.client {
            Library::Plain => return Ok(Vec::new()),
            Library::Rospy => Ros::One,
            Library::Rclpy => Ros::Two,
        };
        let mut nodes =
            (0..NODES).map(|index| self.python(ros, index)).collect::<Result<Vec<_>>>()?;
        for (index, node) in nodes.iter_mut().enumerate() {
            node.await_line("ready", START_PATIENCE)?;
            if self.row.policy == Policy::Fifo {
                node.prioritize(paper::NODE_PRIORITIES[index])?;
            }
        }
        Ok(nodes)
    }

    /// Starts the plain loops, or sends the start command to the prepared nodes.
    fn start(&self, nodes: &mut Vec<Process>) -> Result<()> {
        if self.row.client == Library::Plain {
            *nodes = (0..NODES).map(|index| self.plain(index)).collect::<Result<_>>()?;
            return Ok(());
        }
        nodes.iter_mut().try_for_each(|node| node.send_line("start"))
    }

    fn plain(&self, index: usize) -> Result<Process> {
        let arguments = [
            "sleeper".into(),
            format!("--period-us={}", paper::NODE_PERIODS_MS[index] * 1000),
            format!("--count={}", self.count(index)),
            format!("--output={}", self.file(index).display()),
        ];
        let cpus = format!("0-{}", last_cpu());
        let priority = paper::NODE_PRIORITIES[index];
        let command = program(self.row.policy, priority, &cpus, &arguments)?;
        Process::start_talking(&self.name(index), command, self.raw)
    }

    fn python(&self, ros: Ros, index: usize) -> Result<Process> {
        let node = RosProgram {
            computer: self.computer,
            middleware: Middleware::own(ros),
            folder: self.raw,
        };
        let arguments = [
            format!("ros{}", ros.number()),
            (paper::NODE_PERIODS_MS[index] * 1000).to_string(),
            self.count(index).to_string(),
            tautline_lab::setup::ros::utf8(&self.file(index))?,
        ];
        node.python(&self.name(index), crate::folder("ros/period.py"), &arguments)
    }
}

/// Formats the jitters next to those of the paper.
pub fn table(rows: &[Row]) -> String {
    table::markdown(
        rows,
        &[
            column("nodes", |row: &Row| row.client.name().into()),
            column("scheduler", |row| format!("SCHED_{}", row.policy.name().to_uppercase())),
            column("load", |row| stress_word(row.stressed).into()),
            column("mean ms", |row| list(row, |node| node.mean_ms)),
            column("p99 ms", |row| list(row, |node| node.p99_ms)),
            column("max ms", |row| list(row, |node| node.max_ms)),
            column("paper's max ms", |row| list(row, |node| node.paper_max_ms)),
            column("", |row| if row.void.is_empty() { "" } else { "some rounds void" }.into()),
        ],
    )
}

fn list(row: &Row, of: fn(&Node) -> Option<f64>) -> String {
    row.nodes.iter().map(|node| or_dash(of(node), 3)).collect::<Vec<_>>().join(" / ")
}
