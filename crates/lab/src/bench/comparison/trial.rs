// SPDX-License-Identifier: Apache-2.0
//! One trial: the whole load over one transport on one link.

use crate::air::Punctuality;
use crate::rig::output::name_in_reports;
use crate::rig::processes::{Process, empty_folder};
use crate::rig::progress::Progress;
use crate::rig::stats::Summary;
use crate::setup::daemon::{Daemon, DaemonSetup, NAMES, unaccounted_messages, write_statuses};
use crate::setup::flows::{ALL, Flow};
use crate::setup::load::{COUNTDOWN, Load};
use crate::setup::ros::{self, Middleware, Range, Ros, RosProgram};
use crate::setup::usage::{DaemonFigures, MachineTicks, Watch, figures, watch_idle};
use crate::setup::world::{Link, Pair};
use anyhow::Result;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// Time for which the daemons are measured before any message is sent.
const IDLE_TIME: Duration = Duration::from_secs(5);
/// The transport of the topics.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub enum Transport {
    /// Two daemons; the ROS of each robot stays on that robot.
    Tautline,
    /// One master; connections with rospy's defaults.
    Tcpros,
    /// One master; subscribers request TCP_NODELAY.
    TcprosNodelay,
    /// Fast DDS between the robots, with rclpy's defaults.
    Ros2Reliable,
    /// Fast DDS with best-effort publishers and subscribers.
    Ros2BestEffort,
}

impl Transport {
    /// Returns the name in reports and folders.
    pub fn name(self) -> String {
        name_in_reports(self)
    }

    /// Returns the ROS that the robots run with this transport; `None` if either fits.
    pub fn ros(self) -> Option<Ros> {
        match self {
            Transport::Tautline => None,
            Transport::Tcpros | Transport::TcprosNodelay => Some(Ros::One),
            Transport::Ros2Reliable | Transport::Ros2BestEffort => Some(Ros::Two),
        }
    }

    /// Returns the middleware of the publishers and subscribers of robots that run `ros`.
    pub fn middleware(self, ros: Ros, pair: &Pair) -> Middleware<'_> {
        let tcpros = |nodelay| Middleware::Ros1 { master: &pair.robot.address, nodelay };
        let dds = |reliable| Middleware::Ros2 { range: Range::Subnet, reliable };
        match self {
            Transport::Tautline => Middleware::own(ros),
            Transport::Tcpros => tcpros(false),
            Transport::TcprosNodelay => tcpros(true),
            Transport::Ros2Reliable => dds(true),
            Transport::Ros2BestEffort => dds(false),
        }
    }

    /// Starts the ROS masters of robots that run `ros`.
    pub fn masters(self, ros: Ros, pair: &Pair, folder: &Path) -> Result<Vec<Process>> {
        match (ros, self) {
            (Ros::Two, _) => Ok(Vec::new()),
            (Ros::One, Transport::Tautline) => ros::masters(pair, folder),
            (Ros::One, _) => {
                let (computer, middleware) = (&pair.robot, self.middleware(ros, pair));
                Ok(vec![RosProgram { computer, middleware, folder }.roscore()?])
            }
        }
    }
}

/// One trial.
pub struct Trial<'a> {
    /// Transport that carries the topics.
    pub transport: Transport,
    /// ROS that the robots run.
    pub ros: Ros,
    /// The link between robot and base.
    pub link: Link,
    /// Counted time.
    pub time: Duration,
    /// Setup of the daemons of [`Transport::Tautline`].
    pub daemons: &'a DaemonSetup,
}

/// Figures of a trial.
#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    /// Figures per flow.
    pub topics: BTreeMap<Flow, Summary>,
    /// Serialized size of a message.
    pub message_bytes: BTreeMap<Flow, u64>,
    /// Images that reached the callback during the counted time, per second.
    pub images_per_s: f64,
    /// Percent of all cores that any program kept busy during the counted time.
    pub machine_busy_percent: f64,
    /// CPU time and memory of each daemon; empty without daemons.
    pub daemons: BTreeMap<String, DaemonFigures>,
    /// Lateness of the radio's emulator; `None` on a wire.
    pub emulator: Option<Punctuality>,
    /// Messages accepted from ROS whose outcome the sending daemon does not know; empty without
    /// daemons.
    pub unaccounted: BTreeMap<Flow, Option<i64>>,
}

/// Result of a trial that ran to its end.
pub enum Attempt {
    /// A trial that counts, with its figures.
    Counts(Outcome),
    /// A trial that does not count because the emulator was too late. Its figures are not
    /// evaluated.
    Late(Punctuality),
}

impl Trial<'_> {
    /// Returns the stages of [`Trial::run`] and the approximate duration of each.
    pub fn stages(&self) -> Vec<(String, Duration)> {
        let name = self.transport.name();
        let stage = |text: &str, seconds| (format!("{name}: {text}"), Duration::from_secs(seconds));
        let count = format!("{name}: counting laser, image and command messages");
        let mut stages = match (self.ros, self.transport) {
            (Ros::One, Transport::Tautline) => {
                vec![stage("starting two ROS masters and two daemons", 5)]
            }
            (Ros::Two, Transport::Tautline) => vec![stage("starting two daemons", 2)],
            (Ros::One, _) => vec![stage("starting one ROS master", 3)],
            (Ros::Two, _) => vec![stage("joining two computers", 1)],
        };
        if self.transport == Transport::Tautline {
            stages.push(stage("watching the daemons idle", IDLE_TIME.as_secs()));
        }
        stages.push(stage("starting publishers and subscribers", 4));
        stages.push((count, self.time + COUNTDOWN));
        stages.push(stage("draining, writing raw samples", 1));
        stages
    }

    /// Runs the trial. Raw samples and logs go to `folder`, which is created empty. `seed` seeds
    /// the radio model.
    pub fn run(&self, folder: &Path, seed: u64, progress: &Progress) -> Result<Attempt> {
        empty_folder(folder)?;
        progress.enter_next();
        let mut pair = Pair::new(self.link, seed)?;
        if let Some(warning) = pair.warning() {
            progress.say(&format!("warning: {warning}"));
        }
        let masters = self.transport.masters(self.ros, &pair, folder)?;
        let mut daemons = match self.transport {
            Transport::Tautline => self.daemons.start(&pair, folder)?,
            _ => Vec::new(),
        };
        if !daemons.is_empty() {
            progress.enter_next();
        }
        let idle = watch_idle(&daemons, IDLE_TIME)?;
        progress.enter_next();
        let middleware = self.transport.middleware(self.ros, &pair);
        let mut load = Load::start(middleware, &ALL, &pair, folder)?;
        progress.enter_next();
        pair.count_from_now();
        let (busy, before) = (Watch::start(&daemons)?, MachineTicks::now()?);
        let first_ns = load.publish(self.time)?;
        let busy = busy.stop(&daemons)?;
        let machine_busy_percent = MachineTicks::now()?.busy_percent_since(before);
        progress.enter_next();
        load.drain(self.time)?;
        let mut emulator = pair.punctuality()?;
        let unaccounted = unaccounted_by_flow(&write_statuses(&daemons, folder)?);
        load.write()?;
        daemons.iter_mut().try_for_each(Daemon::end)?;
        drop(masters);
        if let Some(late) = emulator.take_if(|emulator| !emulator.counts) {
            return Ok(Attempt::Late(late));
        }
        let end_ns = first_ns + self.time.as_nanos() as u64;
        let images = ros::samples(folder, Flow::Image)?.arrived_count(0..end_ns + 1);
        let watched = NAMES.iter().zip(idle.iter().zip(&busy));
        Ok(Attempt::Counts(Outcome {
            topics: ros::summaries(folder, &ALL)?,
            message_bytes: load.message_bytes,
            images_per_s: images as f64 / self.time.as_secs_f64(),
            machine_busy_percent,
            daemons: watched
                .map(|(name, (idle, busy))| ((*name).into(), figures(idle, busy)))
                .collect(),
            emulator,
            unaccounted,
        }))
    }
}

/// Returns the messages without a known outcome, from the status of the sending daemon.
fn unaccounted_by_flow(statuses: &[Value]) -> BTreeMap<Flow, Option<i64>> {
    let [robot, base] = statuses else { return BTreeMap::new() };
    let side = |flow: Flow| if flow.is_from_robot() { robot } else { base };
    ALL.into_iter().map(|flow| (flow, unaccounted_messages(side(flow), flow.topic()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;

    #[test]
    fn a_transport_has_one_name_in_folders_reports_and_on_the_command_line() {
        for transport in Transport::value_variants() {
            let name = transport.name();
            assert_eq!(serde_json::to_value(transport).unwrap(), name);
            assert_eq!(transport.to_possible_value().unwrap().get_name(), name);
        }
    }
}
