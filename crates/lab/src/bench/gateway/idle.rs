// SPDX-License-Identifier: Apache-2.0
//! The cost of a daemon with a hundred ROS 2 topics on which nothing is published.

use crate::rig::processes::{Process, make_folder, wait_for};
use crate::rig::verdict::Verdict;
use crate::setup::daemon::{Daemon, DaemonSetup};
use crate::setup::ros::{Middleware, Ros, RosProgram, START_PATIENCE};
use crate::setup::usage::judge_idle;
use crate::setup::world::{Computer, Pair};
use anyhow::{Context, Result};
use serde_json::Value;
use std::path::Path;
use std::time::Duration;

const TOPICS: usize = 100;
/// Duration of each measurement of the daemons.
const WATCHED: Duration = Duration::from_secs(20);
const DISCOVERY_PATIENCE: Duration = Duration::from_secs(30);
/// Time between the discovery of the last endpoint and the measurement.
const SETTLING: Duration = Duration::from_secs(3);

/// Measures two daemons three times: alone, with publishers and subscribers on the robot, and with
/// subscribers at the base as well.
pub fn run(setup: &DaemonSetup, pair: &Pair, folder: &Path) -> Result<Vec<Verdict>> {
    make_folder(folder)?;
    let mut daemons = setup.start(pair, folder)?;
    let watch = |daemons: &[Daemon], what: &str| judge_idle(daemons, WATCHED, what);
    let mut verdicts = watch(&daemons, ", no topics")?;
    let _on_robot = many_endpoints(&pair.robot, "both", folder)?;
    await_topics(&daemons[0], |topic| topic["direction"] == "out")?;
    verdicts.extend(watch(&daemons, ", 100 topics on the robot, offered to the base")?);
    let _at_base = many_endpoints(&pair.base, "subscribe", folder)?;
    await_topics(&daemons[0], |topic| topic["wanted"] == true)?;
    verdicts.extend(watch(&daemons, ", 100 topics, all subscribed at the base")?);
    daemons.iter_mut().try_for_each(Daemon::end)?;
    Ok(verdicts)
}

fn many_endpoints(computer: &Computer, role: &str, folder: &Path) -> Result<Process> {
    let middleware = Middleware::own(Ros::Two);
    let program = RosProgram { computer, middleware, folder };
    let arguments = [role.into(), TOPICS.to_string()];
    let mut process = program.python(&format!("many-{role}"), "many.py", &arguments)?;
    process.await_line("ready", START_PATIENCE)?;
    Ok(process)
}

fn await_topics(daemon: &Daemon, fits: impl Fn(&Value) -> bool) -> Result<()> {
    let mut count = 0;
    let all = wait_for(DISCOVERY_PATIENCE, || {
        let status = daemon.status()?;
        let topics = status["topics"].as_array().context("no topics in status")?;
        let is_one = |name: &Value| name.as_str().is_some_and(|name| name.starts_with("/many/"));
        count = topics.iter().filter(|topic| is_one(&topic["topic"]) && fits(topic)).count();
        Ok((count == TOPICS).then_some(()))
    })?;
    all.with_context(|| format!("{count} of {TOPICS} topics in {DISCOVERY_PATIENCE:?}"))?;
    std::thread::sleep(SETTLING);
    Ok(())
}
