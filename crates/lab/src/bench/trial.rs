// SPDX-License-Identifier: Apache-2.0
//! One trial: the whole load over one transport on one link.

use super::daemon::{Daemon, DaemonSetup, unaccounted};
use super::flows::{ALL, Flow};
use super::ros::{self, Middleware, Range, Ros, RosProgram, START_PATIENCE, WRITE_PATIENCE};
use super::usage::{DaemonFigures, MachineTicks, Watch, figures, watch_idle};
use super::world::{Link, Pair};
use crate::air::Punctuality;
use crate::clock::monotonic_ns;
use crate::processes::Process;
use crate::progress::Progress;
use crate::stats::Summary;
use anyhow::{Context, Result};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// Time between the start command and the start of counted publishing.
const COUNTDOWN: Duration = Duration::from_millis(500);
/// Longest wait for messages in transit after the last one is sent.
const DRAIN_PATIENCE: Duration = Duration::from_secs(5);
/// Time for which the daemons are measured before any message is sent.
const IDLE_TIME: Duration = Duration::from_secs(5);
/// Longest wait for the first message of each topic.
const FIRST_PATIENCE: Duration = Duration::from_secs(30);
/// Publishing may end this much later than planned.
const LATENESS: Duration = Duration::from_secs(10);

/// What carries the topics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub enum Transport {
    /// Two daemons; each robot's ROS stays on it.
    Tautline,
    /// One master; connections as rospy makes them.
    Tcpros,
    /// One master; subscribers ask for TCP_NODELAY.
    TcprosNodelay,
    /// Fast DDS between the robots, as rclpy sets it up.
    Ros2Reliable,
    /// The same with best-effort publishers and subscribers.
    Ros2BestEffort,
}

impl Transport {
    /// Returns the name in reports and folders.
    pub fn name(self) -> &'static str {
        match self {
            Transport::Tautline => "tautline",
            Transport::Tcpros => "tcpros",
            Transport::TcprosNodelay => "tcpros_nodelay",
            Transport::Ros2Reliable => "ros2_reliable",
            Transport::Ros2BestEffort => "ros2_best_effort",
        }
    }

    /// Returns the ROS that the robots run with this transport; `None` if either fits.
    pub fn ros(self) -> Option<Ros> {
        match self {
            Transport::Tautline => None,
            Transport::Tcpros | Transport::TcprosNodelay => Some(Ros::One),
            Transport::Ros2Reliable | Transport::Ros2BestEffort => Some(Ros::Two),
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
        if folder.exists() {
            std::fs::remove_dir_all(folder)?;
        }
        std::fs::create_dir_all(folder)?;
        progress.next();
        let mut pair = Pair::new(self.link, seed)?;
        if let Some(warning) = pair.warning() {
            progress.say(&format!("warning: {warning}"));
        }
        let masters = self.start_masters(&pair, folder)?;
        let mut daemons = match self.transport {
            Transport::Tautline => self.daemons.start(&pair.robot, &pair.base, folder)?.into(),
            _ => Vec::new(),
        };
        for daemon in &mut daemons {
            daemon.await_connected()?;
        }
        if !daemons.is_empty() {
            progress.next();
        }
        let idle = watch_idle(&daemons, IDLE_TIME)?;
        progress.next();
        let mut load = Load::start(self.middleware(&pair), &ALL, &pair, folder)?;
        progress.next();
        pair.count_from_now();
        let (busy, before) = (Watch::start(&daemons)?, MachineTicks::now()?);
        let first_ns = load.publish(self.time)?;
        let busy = busy.stop(&daemons)?;
        let machine_busy_percent = MachineTicks::now()?.busy_percent_since(before);
        progress.next();
        load.drain(self.time)?;
        let mut emulator = pair.punctuality()?;
        // Read before the publishers end, because their topics end with them.
        let unaccounted = account(&daemons, folder)?;
        load.write()?;
        for daemon in &mut daemons {
            daemon.end()?;
        }
        drop(masters);
        if let Some(late) = emulator.take_if(|emulator| !emulator.counts) {
            return Ok(Attempt::Late(late));
        }
        let mut outcome = self.outcome(folder, first_ns, load.message_bytes)?;
        for (index, name) in ["robot", "base"].iter().enumerate().take(daemons.len()) {
            outcome.daemons.insert((*name).into(), figures(&idle[index], &busy[index]));
        }
        outcome.machine_busy_percent = machine_busy_percent;
        outcome.unaccounted = unaccounted;
        outcome.emulator = emulator;
        Ok(Attempt::Counts(outcome))
    }

    /// Returns the middleware of the publishers and subscribers.
    fn middleware<'a>(&self, pair: &'a Pair) -> Middleware<'a> {
        let tcpros = |nodelay| Middleware::Ros1 { master: &pair.robot.address, nodelay };
        let dds = |reliable| Middleware::Ros2 { range: Range::Subnet, reliable };
        match self.transport {
            Transport::Tautline => Middleware::own(self.ros),
            Transport::Tcpros => tcpros(false),
            Transport::TcprosNodelay => tcpros(true),
            Transport::Ros2Reliable => dds(true),
            Transport::Ros2BestEffort => dds(false),
        }
    }

    fn start_masters(&self, pair: &Pair, folder: &Path) -> Result<Vec<Process>> {
        let computers = match (self.ros, self.transport) {
            (Ros::Two, _) => vec![],
            (Ros::One, Transport::Tautline) => vec![&pair.robot, &pair.base],
            (Ros::One, _) => vec![&pair.robot],
        };
        let middleware = self.middleware(pair);
        let start = |computer| RosProgram { computer, middleware, folder }.roscore();
        computers.into_iter().map(start).collect()
    }

    fn outcome(
        &self,
        folder: &Path,
        first_ns: u64,
        message_bytes: BTreeMap<Flow, u64>,
    ) -> Result<Outcome> {
        let mut topics = BTreeMap::new();
        let mut images = 0;
        let end_ns = first_ns + self.time.as_nanos() as u64;
        for flow in ALL {
            let samples = ros::samples(folder, flow)?;
            if flow == Flow::Image {
                images =
                    samples.arrivals.iter().filter(|arrival| arrival.received_ns <= end_ns).count();
            }
            topics.insert(flow, samples.summary(Some(flow.period())));
        }
        let images_per_s = images as f64 / self.time.as_secs_f64();
        let (machine_busy_percent, daemons, emulator, unaccounted) = Default::default();
        Ok(Outcome {
            topics,
            message_bytes,
            images_per_s,
            machine_busy_percent,
            daemons,
            emulator,
            unaccounted,
        })
    }
}

/// Publishers and subscribers of several flows.
pub struct Load {
    publishers: Vec<(Flow, Process)>,
    subscribers: Vec<(Flow, Process)>,
    message_bytes: BTreeMap<Flow, u64>,
}

impl Load {
    /// Starts all programs and waits until a message of each topic has arrived.
    pub fn start(
        middleware: Middleware<'_>,
        flows: &[Flow],
        pair: &Pair,
        folder: &Path,
    ) -> Result<Self> {
        let mut load =
            Load { publishers: vec![], subscribers: vec![], message_bytes: BTreeMap::new() };
        for &flow in flows {
            let (from, to) = if flow.is_from_robot() {
                (&pair.robot, &pair.base)
            } else {
                (&pair.base, &pair.robot)
            };
            let program = |computer| RosProgram { computer, middleware, folder };
            load.subscribers.push((flow, program(to).subscriber(flow)?));
            load.publishers.push((flow, program(from).publisher(flow)?));
        }
        for (_, process) in load.subscribers.iter_mut().chain(&mut load.publishers) {
            process.await_line("ready", START_PATIENCE)?;
        }
        for (flow, subscriber) in &mut load.subscribers {
            let bytes = subscriber.await_line("size", FIRST_PATIENCE)?;
            load.message_bytes.insert(*flow, bytes.parse().context("size of a message")?);
            subscriber.await_line("first", FIRST_PATIENCE)?;
        }
        Ok(load)
    }

    /// Makes all publishers publish for `time`; returns the start of the counted time.
    pub fn publish(&mut self, time: Duration) -> Result<u64> {
        let first_ns = self.begin(time)?;
        self.await_published(time)?;
        Ok(first_ns)
    }

    /// Makes all publishers start to publish for `time`; returns the start of the counted time.
    pub fn begin(&mut self, time: Duration) -> Result<u64> {
        let first_ns = monotonic_ns() + COUNTDOWN.as_nanos() as u64;
        for (flow, publisher) in &mut self.publishers {
            let start_ns = first_ns + flow.offset().as_nanos() as u64;
            publisher.tell(&format!("start {start_ns} {}", flow.count(time)))?;
        }
        Ok(first_ns)
    }

    /// Waits until the publishing that [`Load::begin`] started for `time` is complete.
    pub fn await_published(&mut self, time: Duration) -> Result<()> {
        for (_, publisher) in &mut self.publishers {
            publisher.await_line("done", COUNTDOWN + time + LATENESS)?;
        }
        Ok(())
    }

    /// Waits for messages in transit.
    pub fn drain(&mut self, time: Duration) -> Result<()> {
        for (flow, subscriber) in &mut self.subscribers {
            subscriber.tell(&format!(
                "expect {} {}",
                flow.count(time),
                DRAIN_PATIENCE.as_secs()
            ))?;
        }
        for (_, subscriber) in &mut self.subscribers {
            subscriber.await_line("done", DRAIN_PATIENCE + WRITE_PATIENCE)?;
        }
        Ok(())
    }

    /// Makes all programs write their raw samples.
    pub fn write(&mut self) -> Result<()> {
        for (_, publisher) in &mut self.publishers {
            publisher.tell("write")?;
        }
        for (_, process) in self.publishers.iter_mut().chain(&mut self.subscribers) {
            process.await_line("written", WRITE_PATIENCE)?;
        }
        Ok(())
    }

    /// Waits until all programs, which have written their samples, have ended and unregistered
    /// from their masters. A later unregistration would withdraw the topics that the next load
    /// publishes under the same names.
    pub fn leave(self) -> Result<()> {
        for (_, mut process) in self.publishers.into_iter().chain(self.subscribers) {
            process.close()?;
        }
        Ok(())
    }
}

/// Writes the status of both daemons to `folder`, and returns from it the messages without a known
/// outcome.
fn account(daemons: &[Daemon], folder: &Path) -> Result<BTreeMap<Flow, Option<i64>>> {
    let [robot, base] = daemons else {
        return Ok(BTreeMap::new());
    };
    let (robot, base) = (robot.status()?, base.status()?);
    for (name, status) in [("robot", &robot), ("base", &base)] {
        let file = folder.join(format!("{name}.status.json"));
        std::fs::write(file, format!("{status:#}\n"))?;
    }
    let side = |flow: Flow| if flow.is_from_robot() { &robot } else { &base };
    Ok(ALL.into_iter().map(|flow| (flow, unaccounted(side(flow), flow.topic()))).collect())
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
