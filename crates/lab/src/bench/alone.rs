// SPDX-License-Identifier: Apache-2.0
//! Cases about the daemons alone: their cost when idle, and the bytes that they add to a message.

use super::case::{self, Verdict};
use super::daemon::{Daemon, DaemonSetup, link_sent, topic_sent};
use super::flows::Flow;
use super::report::{About, Conclusion, tell, verdict_lines};
use super::ros::{Middleware, Ros, RosProgram};
use super::trial::Load;
use super::usage::watch_idle;
use super::world::{Link, LinkLimits, Pair};
use crate::processes::Process;
use crate::progress::Progress;
use anyhow::{Context, Result};
use serde::Serialize;
use std::path::Path;
use std::time::Duration;

/// Case: daemons with a master and a peer, without messages.
pub const IDLE: &str = "idle";
/// Case: the laser's messages, each in its own packet.
pub const HEADER: &str = "header";

const IDLE_TIME: Duration = Duration::from_secs(20);
const HEADER_TIME: Duration = Duration::from_secs(10);
const START_TIME: Duration = Duration::from_secs(6);
const UNLIMITED: Link = Link::Wire(LinkLimits { rate_bps: None, loss: 0.0 });
/// Bytes of the UDP and IPv4 headers.
const PACKET_BYTES: u64 = 8 + 20;

#[derive(Serialize)]
struct AloneReport {
    case: &'static str,
    #[serde(flatten)]
    about: About,
    verdicts: Vec<Verdict>,
}

/// Two computers with a master and a daemon each. Fields are dropped in this order.
struct Scene {
    daemons: [Daemon; 2],
    _masters: [Process; 2],
    pair: Pair,
}

impl Scene {
    fn new(setup: &DaemonSetup, folder: &Path) -> Result<Self> {
        std::fs::create_dir_all(folder)?;
        let pair = Pair::new(UNLIMITED, 0)?;
        let middleware = Middleware::own(Ros::One);
        let roscore = |computer| RosProgram { computer, middleware, folder }.roscore();
        let masters = [roscore(&pair.robot)?, roscore(&pair.base)?];
        let mut daemons = setup.start(&pair.robot, &pair.base, folder)?;
        for daemon in &mut daemons {
            daemon.await_connected()?;
        }
        Ok(Self { daemons, _masters: masters, pair })
    }
}

/// Runs one of these cases; the report goes to `folder`.
pub fn run(
    name: &'static str,
    setup: &DaemonSetup,
    folder: &Path,
    as_json: bool,
) -> Result<Conclusion> {
    let stage = |text, time| (format!("{name}: {text}"), time);
    let time = if name == IDLE { IDLE_TIME } else { HEADER_TIME };
    let progress = Progress::new(vec![
        stage("starting two ROS masters and two daemons", START_TIME),
        stage("measuring", time),
    ]);
    progress.next();
    let scene = Scene::new(setup, folder)?;
    progress.next();
    let verdicts = match name {
        IDLE => idle(&scene)?,
        _ => header(&scene, folder)?,
    };
    progress.finish();
    let report = AloneReport { case: name, about: About::now(), verdicts };
    let words = format!("\n{name}:\n{}", verdict_lines(&report.verdicts));
    tell(&report, folder, as_json, &words)?;
    Ok(Conclusion::of(&report.verdicts))
}

/// Runs the case [`HEADER`] as part of another case.
pub fn header_alone(setup: &DaemonSetup, folder: &Path) -> Result<Vec<Verdict>> {
    header(&Scene::new(setup, folder)?, folder)
}

fn idle(scene: &Scene) -> Result<Vec<Verdict>> {
    let mut verdicts = Vec::new();
    for (daemon, computer) in watch_idle(&scene.daemons, IDLE_TIME)?.iter().zip(["robot", "base"]) {
        let what = format!("daemon idle on {computer}");
        let megabytes = daemon.resident_bytes as f64 / 1e6;
        verdicts.push(case::IDLE_CPU_PERCENT.judge(
            what.clone(),
            Some(daemon.cpu_percent),
            "% of a core",
        ));
        verdicts.push(case::IDLE_RESIDENT_MB.judge(what, Some(megabytes), "MB"));
    }
    Ok(verdicts)
}

/// Measures the bytes per message that the robot's links carried in addition to messages, UDP and
/// IP; heartbeats and reports count.
fn header(scene: &Scene, folder: &Path) -> Result<Vec<Verdict>> {
    let mut load = Load::start(Middleware::own(Ros::One), &[Flow::Laser], &scene.pair, folder)?;
    let counters = || -> Result<[u64; 4]> {
        let status = scene.daemons[0].status()?;
        let (packets, bytes) = link_sent(&status).context("no link in status")?;
        let (messages, payload) =
            topic_sent(&status, Flow::Laser.topic()).context("no laser in status")?;
        Ok([packets, bytes, messages, payload])
    };
    let before = counters()?;
    load.publish(HEADER_TIME)?;
    load.drain(HEADER_TIME)?;
    let after = counters()?;
    let [packets, bytes, messages, payload] =
        std::array::from_fn(|index| after[index] - before[index]);
    let added = bytes as f64 - (packets * PACKET_BYTES) as f64 - payload as f64;
    let per_message = (messages > 0).then(|| added / messages as f64);
    Ok(vec![case::HEADER_BYTES.judge("header of a 1 KB message".into(), per_message, "bytes")])
}
