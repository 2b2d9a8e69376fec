// SPDX-License-Identifier: Apache-2.0
//! Cases that measure only the daemons: their cost when idle, and the bytes that they add to a message.

use crate::rig::output::Output;
use crate::rig::processes::Process;
use crate::rig::verdict::{Bound, Conclusion, Verdict, verdict_lines};
use crate::setup::daemon::{Daemon, DaemonSetup, Sent, link_sent, topic_sent};
use crate::setup::flows::Flow;
use crate::setup::load::Load;
use crate::setup::ros;
use crate::setup::usage::judge_idle;
use crate::setup::world::{Link, Pair};
use anyhow::{Context, Result};
use std::path::Path;
use std::time::Duration;

/// Case: daemons with a master and a peer, without messages.
pub const IDLE: &str = "idle";
/// Case: the laser's messages, each in its own packet.
pub const HEADER: &str = "header";

/// Bytes that a message of 1 KB costs in addition to its payload, UDP and IP. In each packet, 29 of
/// them are the session header, the time and the tag.
const HEADER_BYTES: Bound = Bound::AtMost(48.0);

const IDLE_TIME: Duration = Duration::from_secs(20);
const HEADER_TIME: Duration = Duration::from_secs(10);
const START_TIME: Duration = Duration::from_secs(6);
/// Bytes of the UDP and IPv4 headers.
const PACKET_BYTES: u64 = 8 + 20;

/// Two computers with a master and a daemon each. Fields are dropped in this order.
struct Scene {
    daemons: Vec<Daemon>,
    _masters: Vec<Process>,
    pair: Pair,
}

impl Scene {
    fn new(setup: &DaemonSetup, folder: &Path) -> Result<Self> {
        let pair = Pair::new(Link::UNLIMITED, 0)?;
        let masters = ros::masters(&pair, folder)?;
        Ok(Self { daemons: setup.start(&pair, folder)?, _masters: masters, pair })
    }
}

/// Counts of the packets that the robot has sent over its links, and of its laser's messages.
struct Counters {
    links: Sent,
    laser: Sent,
}

impl Counters {
    fn read(daemon: &Daemon) -> Result<Self> {
        let status = daemon.status()?;
        let links = link_sent(&status).context("no link in status")?;
        let laser = topic_sent(&status, Flow::Laser.topic()).context("no laser in status")?;
        Ok(Self { links, laser })
    }
}

/// Runs one of these cases.
pub fn run(setup: &DaemonSetup, output: &Output) -> Result<Conclusion> {
    let time = if output.case == IDLE { IDLE_TIME } else { HEADER_TIME };
    let start = ("starting two ROS masters and two daemons", START_TIME);
    let progress = output.progress(&[start, ("measuring", time)]);
    let scene = Scene::new(setup, &output.folder)?;
    progress.enter_next();
    let verdicts = match output.case {
        IDLE => judge_idle(&scene.daemons, IDLE_TIME, "")?,
        _ => header(&scene, &output.folder)?,
    };
    progress.finish();
    let words = format!("\n{}", verdict_lines(&verdicts));
    output.conclude((), verdicts, &words)
}

/// Runs the case [`HEADER`] as part of another case.
pub fn header_alone(setup: &DaemonSetup, folder: &Path) -> Result<Vec<Verdict>> {
    header(&Scene::new(setup, folder)?, folder)
}

/// Measures the bytes per message that the robot's links carried in addition to messages, UDP and
/// IP; heartbeats and reports count.
fn header(scene: &Scene, folder: &Path) -> Result<Vec<Verdict>> {
    let mut load = Load::start_with_own_masters(&[Flow::Laser], &scene.pair, folder)?;
    let before = Counters::read(&scene.daemons[0])?;
    load.publish(HEADER_TIME)?;
    load.drain(HEADER_TIME)?;
    let after = Counters::read(&scene.daemons[0])?;
    let packets = after.links.count - before.links.count;
    let payload = after.laser.bytes - before.laser.bytes;
    let bytes = after.links.bytes - before.links.bytes;
    let added = bytes as f64 - (packets * PACKET_BYTES + payload) as f64;
    let messages = after.laser.count - before.laser.count;
    let per_message = (messages > 0).then(|| added / messages as f64);
    Ok(vec![HEADER_BYTES.judge("header of a 1 KB message", per_message, "bytes")])
}
