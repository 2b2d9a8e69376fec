// SPDX-License-Identifier: Apache-2.0
//! Response times of four periodic tasks, measured and computed.

pub mod program;

use super::condition::{
    BackgroundLoad, POLICIES, Policy, last_cpu, program as command, stress_word,
};
use super::recurrence::{responses, schedule, tasks};
use super::{Context, paper};
use anyhow::Result;
use program::HYPERPERIOD_MS;
use serde::Serialize;
use std::time::Duration;
use tautline_lab::rig::output::name_in_reports;
use tautline_lab::rig::processes::Process;
use tautline_lab::rig::stats::rows;
use tautline_lab::rig::table::{self, column};

/// Priority at which the program starts; its tasks choose their own.
const START_PRIORITY: u8 = 1;
const PATIENCE: Duration = Duration::from_secs(20);
/// Number of bursts at the start whose jobs do not count.
const WARM_UP_BURSTS: u64 = 1;

/// The release times of the tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Release {
    /// All tasks together.
    Common,
    /// Each task when the previous task's first job ends, computed without interference.
    Staggered,
    /// All tasks together, without the pauses that keep them below the kernel's limit for real-time
    /// threads.
    Continuous,
}

impl Release {
    fn name(self) -> String {
        name_in_reports(self)
    }

    /// Returns the first release of each task, milliseconds.
    fn offsets_ms(self) -> Vec<u64> {
        let ends = responses(&tasks());
        match self {
            Self::Common | Self::Continuous => vec![0; ends.len()],
            Self::Staggered => {
                let previous = ends.iter().take(ends.len() - 1).map(|end| end.unwrap_or(0));
                std::iter::once(0).chain(previous).collect()
            }
        }
    }
}

/// Responses under one condition, by task.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    pub release: Release,
    pub cores: usize,
    pub policy: Policy,
    pub stressed: bool,
    pub jobs: Vec<usize>,
    /// Largest time from release to end, milliseconds; `None` if all rounds are void.
    pub max_from_release_ms: Vec<Option<f64>>,
    /// Largest time from first execution to end, milliseconds.
    pub max_from_start_ms: Vec<Option<f64>>,
    /// Median of the times from release to end.
    pub median_from_release_ms: Vec<Option<f64>>,
    /// Computed largest time from release to end, for the same releases, milliseconds.
    pub scheduled_from_release_ms: Vec<u64>,
    /// Computed largest time from first execution to end, milliseconds.
    pub scheduled_from_start_ms: Vec<u64>,
    /// Jobs that ended after their deadlines.
    pub missed: usize,
    pub busy_percent: Vec<f64>,
    pub void: Vec<String>,
    #[serde(skip)]
    samples: Vec<Job>,
}

#[derive(Debug, Clone, Copy)]
struct Job {
    task: usize,
    from_release_ms: f64,
    from_start_ms: f64,
}

impl Row {
    fn new(release: Release, cores: usize, policy: Policy, stressed: bool) -> Self {
        let longest = schedule(&tasks(), &release.offsets_ms(), cores, 4 * HYPERPERIOD_MS);
        Self {
            release,
            cores,
            policy,
            stressed,
            jobs: Vec::new(),
            max_from_release_ms: Vec::new(),
            max_from_start_ms: Vec::new(),
            median_from_release_ms: Vec::new(),
            scheduled_from_release_ms: longest.iter().map(|it| it.from_release).collect(),
            scheduled_from_start_ms: longest.iter().map(|it| it.from_start).collect(),
            missed: 0,
            busy_percent: Vec::new(),
            void: Vec::new(),
            samples: Vec::new(),
        }
    }

    /// Computes the figures of the report from the samples.
    fn summarize(&mut self) {
        let of_task = |task| self.samples.iter().filter(move |job| job.task == task);
        let tasks = 0..paper::TASK_PERIODS_MS.len();
        let max = |values: &mut dyn Iterator<Item = f64>| values.reduce(f64::max);
        self.jobs = tasks.clone().map(|task| of_task(task).count()).collect();
        self.max_from_release_ms = tasks
            .clone()
            .map(|task| max(&mut of_task(task).map(|job| job.from_release_ms)))
            .collect();
        self.max_from_start_ms = tasks
            .clone()
            .map(|task| max(&mut of_task(task).map(|job| job.from_start_ms)))
            .collect();
        self.median_from_release_ms = tasks
            .map(|task| {
                tautline_lab::rig::stats::median(of_task(task).map(|job| job.from_release_ms))
            })
            .collect();
        let late = |job: &&Job| job.from_release_ms > paper::TASK_PERIODS_MS[job.task] as f64;
        self.missed = self.samples.iter().filter(late).count();
    }
}

fn conditions(context: &Context<'_>) -> Vec<Row> {
    let mut rows = Vec::new();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    for stressed in context.stress_settings() {
        for policy in POLICIES {
            for (release, wanted) in [
                (Release::Common, 1),
                (Release::Staggered, 1),
                (Release::Continuous, 1),
                (Release::Common, 2),
                (Release::Staggered, 2),
            ] {
                // The kernel's limit applies only to real-time threads.
                let applies = policy == Policy::Fifo || release != Release::Continuous;
                let brief = (release, wanted) == (Release::Common, 1);
                let applies = applies && (!context.quick || policy == Policy::Fifo || brief);
                if applies && wanted <= cores {
                    rows.push(Row::new(release, wanted, policy, stressed));
                }
            }
        }
    }
    rows
}

fn bursts(context: &Context<'_>) -> u64 {
    if context.quick { 2 } else { 4 }
}

/// Returns the stages of this part for the progress display, each with its expected duration.
pub fn stages(context: &Context<'_>) -> Vec<(String, Duration)> {
    let one = program::duration(bursts(context), false) + Duration::from_millis(700);
    let of = |round| (format!("tasks: round {round}"), one * conditions(context).len() as u32);
    (1..=context.rounds()).map(of).collect()
}

/// Measures all conditions.
pub fn measure(context: &mut Context<'_>) -> Result<Vec<Row>> {
    let mut rows = conditions(context);
    for round in 1..=context.rounds() {
        context.progress.enter_next();
        for row in &mut rows {
            run(row, round, bursts(context), context)?;
        }
    }
    rows.iter_mut().for_each(Row::summarize);
    Ok(rows)
}

fn run(row: &mut Row, round: u64, bursts: u64, context: &Context<'_>) -> Result<()> {
    let (release, cores) = (row.release.name(), row.cores);
    let name = format!(
        "tasks-{release}-{cores}-{}-{}-{round}",
        row.policy.name(),
        stress_word(row.stressed)
    );
    let file = context.raw.join(format!("{name}.csv"));
    let offsets: Vec<String> = row.release.offsets_ms().iter().map(u64::to_string).collect();
    let continuous = row.release == Release::Continuous;
    let mut arguments = vec![
        "tasks".into(),
        format!("--offsets-ms={}", offsets.join(",")),
        format!("--bursts={bursts}"),
        format!("--output={}", file.display()),
    ];
    arguments.extend((row.policy == Policy::Fifo).then(|| "--fifo".into()));
    arguments.extend(continuous.then(|| "--continuous".into()));
    let last = last_cpu();
    let cpus = if cores == 1 { last.to_string() } else { format!("{}-{last}", last - 1) };
    let surroundings = BackgroundLoad::begin(row.stressed, &context.raw)?;
    let mut process = Process::start_talking(
        &name,
        command(row.policy, START_PRIORITY, &cpus, &arguments)?,
        &context.raw,
    )?;
    process.await_line("done", program::duration(bursts, continuous) + PATIENCE)?;
    let end = surroundings.end()?;
    row.busy_percent.push(end.busy_percent);
    match end.void {
        Some(reason) => row.void.push(reason),
        None => row.samples.extend(read(&rows::<4>(&file)?)),
    }
    Ok(())
}

/// Converts samples `task,released_ns,started_ns,ended_ns` to jobs, without those of the warm-up.
fn read(samples: &[[u64; 4]]) -> Vec<Job> {
    let first = samples.iter().map(|[_, released, ..]| *released).min().unwrap_or(0);
    let warm_up = first + WARM_UP_BURSTS * program::BURST * HYPERPERIOD_MS * 1_000_000;
    let ms = |ns: u64| ns as f64 / 1e6;
    let counted = samples.iter().filter(|[_, released, ..]| *released >= warm_up);
    counted
        .map(|&[task, released, started, ended]| Job {
            task: task as usize,
            from_release_ms: ms(ended.saturating_sub(released)),
            from_start_ms: ms(ended.saturating_sub(started)),
        })
        .collect()
}

/// Formats the measured times next to the computed ones for the same releases.
pub fn table(rows: &[Row]) -> String {
    table::markdown(
        rows,
        &[
            column("release", |row: &Row| row.release.name()),
            column("cores", |row| row.cores.to_string()),
            column("scheduler", |row| format!("SCHED_{}", row.policy.name().to_uppercase())),
            column("load", |row| stress_word(row.stressed).into()),
            column("max from release ms", |row| list(&row.max_from_release_ms)),
            column("schedule", |row| whole(&row.scheduled_from_release_ms)),
            column("max from first execution ms", |row| list(&row.max_from_start_ms)),
            column("schedule", |row| whole(&row.scheduled_from_start_ms)),
            column("missed deadlines", |row| {
                format!("{} of {}", row.missed, row.jobs.iter().sum::<usize>())
            }),
            column("", |row| if row.void.is_empty() { "" } else { "some rounds void" }.into()),
        ],
    )
}

/// Formats the computed and the published times.
pub fn theory() -> String {
    let computed: Vec<u64> = responses(&tasks()).into_iter().flatten().collect();
    let started = schedule(&tasks(), &[0; 4], 1, 2 * HYPERPERIOD_MS);
    let started: Vec<u64> = started.iter().map(|it| it.from_start).collect();
    let two = schedule(&tasks(), &[0; 4], 2, 2 * HYPERPERIOD_MS);
    let two: Vec<u64> = two.iter().map(|it| it.from_release).collect();
    let lines = [
        ("recurrence (equation 1), from release".to_owned(), whole(&computed)),
        ("schedule of a common release on one core, from first execution".into(), whole(&started)),
        ("schedule of a common release on two cores, from release".into(), whole(&two)),
        ("paper: worst case stated".into(), numbers(&paper::RESPONSES_MS)),
        (
            "paper: largest measured, ROS 2 with PREEMPT_RT".into(),
            numbers(&paper::RESPONSES_ROS2_MS),
        ),
        ("paper: largest measured, ROS 1".into(), numbers(&paper::RESPONSES_ROS1_MS)),
    ];
    table::markdown(
        &lines,
        &[
            column("source", |line: &(String, String)| line.0.clone()),
            column("ms, by task", |line| line.1.clone()),
        ],
    )
}

fn list(values: &[Option<f64>]) -> String {
    values.iter().map(|it| table::or_dash(*it, 1)).collect::<Vec<_>>().join(" / ")
}

fn whole(values: &[u64]) -> String {
    values.iter().map(u64::to_string).collect::<Vec<_>>().join(" / ")
}

fn numbers(values: &[f64]) -> String {
    values.iter().map(f64::to_string).collect::<Vec<_>>().join(" / ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn staggered_tasks_are_released_when_the_previous_one_has_ended() {
        assert_eq!(Release::Staggered.offsets_ms(), [0, 3, 8, 29]);
        assert_eq!(Release::Common.offsets_ms(), [0; 4]);
    }

    #[test]
    fn jobs_of_the_first_burst_do_not_count() {
        let ms = 1_000_000;
        let samples = [[0, 0, 1, 2 * ms], [1, 640 * ms, 641 * ms, 648 * ms]];
        let jobs = read(&samples);
        assert_eq!(jobs.len(), 1);
        assert_eq!((jobs[0].task, jobs[0].from_release_ms, jobs[0].from_start_ms), (1, 8.0, 7.0));
    }
}
