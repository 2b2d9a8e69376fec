// SPDX-License-Identifier: Apache-2.0
//! The cost of a daemon with a hundred ROS 2 topics on which nothing is published.

use crate::bench::case::{self, Verdict};
use crate::bench::daemon::{Daemon, DaemonSetup};
use crate::bench::ros::{Middleware, Ros, RosProgram, START_PATIENCE};
use crate::bench::usage::watch_idle;
use crate::bench::world::{Computer, Pair};
use crate::processes::{POLL_PERIOD, Process};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::path::Path;
use std::time::{Duration, Instant};

const TOPICS: usize = 100;
/// Duration of each measurement of the daemons.
pub const WATCHED: Duration = Duration::from_secs(20);
const DISCOVERY_PATIENCE: Duration = Duration::from_secs(30);
/// Time between the discovery of the last endpoint and the measurement.
const SETTLING: Duration = Duration::from_secs(3);

/// Measures two daemons three times: alone, with publishers and subscribers on the robot, and with
/// subscribers at the base as well.
pub fn run(setup: &DaemonSetup, pair: &Pair, folder: &Path) -> Result<Vec<Verdict>> {
    std::fs::create_dir_all(folder)?;
    let mut daemons = setup.start(&pair.robot, &pair.base, folder)?;
    for daemon in &mut daemons {
        daemon.await_connected()?;
    }
    let mut verdicts = watch(&daemons, "no topics")?;
    let _on_robot = many(&pair.robot, "both", folder)?;
    await_topics(&daemons[0], |topic| topic["direction"] == "out")?;
    verdicts.extend(watch(&daemons, "100 topics on the robot, offered to the base")?);
    let _at_base = many(&pair.base, "subscribe", folder)?;
    await_topics(&daemons[0], |topic| topic["wanted"] == true)?;
    verdicts.extend(watch(&daemons, "100 topics, all subscribed at the base")?);
    for daemon in &mut daemons {
        daemon.end()?;
    }
    Ok(verdicts)
}

fn many(computer: &Computer, role: &str, folder: &Path) -> Result<Process> {
    let middleware = Middleware::own(Ros::Two);
    let program = RosProgram { computer, middleware, folder };
    let arguments = [role.into(), TOPICS.to_string()];
    let mut process = program.python(&format!("many-{role}"), "many.py", &arguments)?;
    process.await_line("ready", START_PATIENCE)?;
    Ok(process)
}

fn await_topics(daemon: &Daemon, fits: impl Fn(&Value) -> bool) -> Result<()> {
    let deadline = Instant::now() + DISCOVERY_PATIENCE;
    loop {
        let status = daemon.status()?;
        let topics = status["topics"].as_array().context("no topics in status")?;
        let many = topics.iter().filter(|topic| {
            topic["topic"].as_str().is_some_and(|name| name.starts_with("/many/")) && fits(topic)
        });
        let count = many.count();
        if count == TOPICS {
            std::thread::sleep(SETTLING);
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "{count} of {TOPICS} topics in {DISCOVERY_PATIENCE:?}");
        std::thread::sleep(POLL_PERIOD);
    }
}

fn watch(daemons: &[Daemon], what: &str) -> Result<Vec<Verdict>> {
    let mut verdicts = Vec::new();
    for (used, computer) in watch_idle(daemons, WATCHED)?.iter().zip(["robot", "base"]) {
        let what = format!("daemon idle on {computer}, {what}");
        let megabytes = used.resident_bytes as f64 / 1e6;
        let percent = Some(used.cpu_percent);
        verdicts.push(case::IDLE_CPU_PERCENT.judge(what.clone(), percent, "% of a core"));
        verdicts.push(case::IDLE_RESIDENT_MB.judge(what, Some(megabytes), "MB"));
    }
    Ok(verdicts)
}
