// SPDX-License-Identifier: Apache-2.0
//! Orders of guests, served by both robots.

use super::stage::{Plan, Stage};
use super::team::{Team, Transport};
use super::truth;
use anyhow::{Context, Result, ensure};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tautline_lab::air::Punctuality;
use tautline_lab::rig::clock::monotonic_ns;
use tautline_lab::rig::processes::Process;
use tautline_lab::rig::progress::Progress;
use tautline_lab::setup::ros::START_PATIENCE;

/// Maximum time without an event of the waiter.
const SILENCE: Duration = Duration::from_secs(90);

/// The results of the orders of one run.
#[derive(Debug, Serialize)]
pub struct Served {
    /// ROS of the robots.
    pub team: Team,
    /// The transport of the topics.
    pub transport: Transport,
    /// Orders that the guests gave.
    pub orders: u32,
    /// Orders that the waiter took.
    pub accepted: u32,
    /// Orders served, each once, by robot.
    pub served: BTreeMap<String, u32>,
    /// Seconds from the first order to the return of the last robot, or to the time limit.
    pub seconds: f64,
    /// Contacts, as `kobuki and wall`.
    pub collisions: Vec<String>,
    /// Messages at the kitchen, by topic.
    pub watched: BTreeMap<String, u64>,
    /// Reason why the run ended before all robots had returned.
    pub trouble: Option<String>,
    /// Lateness of the radio's emulator; `None` if the programs did not start.
    pub emulator: Option<Punctuality>,
}

impl Served {
    /// Returns the number of orders served.
    pub fn count(&self) -> u32 {
        self.served.values().sum()
    }

    /// Counts the waiter's events until all orders are served and both robots have returned. Fails if no
    /// event comes for [`SILENCE`], or at the time `end`.
    fn follow(
        &mut self,
        waiter: &mut Process,
        stage: &mut Stage,
        end: Option<Instant>,
    ) -> Result<()> {
        let mut out: BTreeMap<String, bool> = BTreeMap::new();
        loop {
            let left = end.map_or(SILENCE, |end| end.saturating_duration_since(Instant::now()));
            ensure!(!left.is_zero(), "time is up");
            let silent = || match left < SILENCE {
                true => "time is up".into(),
                false => format!("no order went on for {SILENCE:?}"),
            };
            let line = waiter.await_line("", left.min(SILENCE)).with_context(silent)?;
            stage.check()?;
            match line.split_whitespace().collect::<Vec<_>>()[..] {
                ["accepted", _] => self.accepted += 1,
                ["served", _, robot] => {
                    *self.served.entry(robot.into()).or_default() += 1;
                    out.insert(robot.into(), true);
                }
                ["home", robot] => {
                    out.insert(robot.into(), false);
                }
                _ => anyhow::bail!("the waiter said '{line}'"),
            }
            if self.count() >= self.orders && !out.values().any(|is_out| *is_out) {
                return Ok(());
            }
        }
    }

    /// Returns the number of images that the kitchen received.
    pub fn images(&self) -> u64 {
        let images = self.watched.iter().filter(|(topic, _)| topic.contains("camera"));
        images.map(|(_, count)| count).sum()
    }
}

/// Runs `orders` orders on a stage with these settings, within a time limit.
pub fn run(
    plan: &Plan<'_>,
    orders: u32,
    limit: Option<Duration>,
    progress: &Progress,
) -> Result<Served> {
    let mut served = Served {
        team: plan.team,
        transport: plan.transport,
        orders,
        accepted: 0,
        served: BTreeMap::new(),
        seconds: 0.0,
        collisions: Vec::new(),
        watched: BTreeMap::new(),
        trouble: None,
        emulator: None,
    };
    let trouble = plan.failure(serve(plan, &mut served, limit, progress))?;
    served.trouble = served.trouble.or(trouble);
    Ok(served)
}

fn serve(
    plan: &Plan<'_>,
    result: &mut Served,
    limit: Option<Duration>,
    progress: &Progress,
) -> Result<()> {
    progress.enter_next();
    let mut stage = Stage::new(plan)?;
    let mut viewer = stage.viewer(true)?;
    let mut waiter = stage.waiter()?;
    let _guests = stage.guests(result.orders, plan.seed)?;
    progress.enter_next();
    stage.air.count_from_now();
    let (begun, since) = (Instant::now(), monotonic_ns());
    let end = limit.map(|limit| begun + limit);
    let trouble = result.follow(&mut waiter, &mut stage, end).err();
    result.trouble = trouble.map(|error| error.to_string());
    result.seconds = begun.elapsed().as_secs_f64();
    result.emulator = Some(stage.punctuality()?);
    result.collisions = truth::collisions(&truth::read(plan.folder)?, since);
    result.watched = watched(&mut viewer)?;
    stage.close()
}

/// Ends the viewer; returns the number of messages that it received, by topic.
fn watched(viewer: &mut Process) -> Result<BTreeMap<String, u64>> {
    viewer.end_input();
    let counts = viewer.await_line("counts", START_PATIENCE)?;
    serde_json::from_str(&counts).with_context(|| format!("no counts: {counts}"))
}
