// SPDX-License-Identifier: Apache-2.0
//! The load of a case by ROS programs: their start, the counted time, and their end.

use super::flows::Flow;
use super::ros::{Middleware, Ros, RosProgram, START_PATIENCE, WRITE_PATIENCE};
use super::world::Pair;
use crate::rig::clock::monotonic_ns;
use crate::rig::processes::Process;
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// Time between the start command and the start of counted publishing.
pub const COUNTDOWN: Duration = Duration::from_millis(500);
/// Longest wait for messages in transit after the last one is sent.
pub const DRAIN_PATIENCE: Duration = Duration::from_secs(5);
/// Longest wait for the first message of each topic.
pub const FIRST_PATIENCE: Duration = Duration::from_secs(30);
/// Maximum time by which publishing may end later than planned.
const LATENESS: Duration = Duration::from_secs(10);

/// Publishers and subscribers of several flows.
pub struct Load {
    publishers: Vec<(Flow, Process)>,
    subscribers: Vec<(Flow, Process)>,
    /// Serialized size of a message.
    pub message_bytes: BTreeMap<Flow, u64>,
}

impl Load {
    /// Like [`Load::start`], with ROS 1 and a master on each computer.
    pub fn start_with_own_masters(flows: &[Flow], pair: &Pair, folder: &Path) -> Result<Self> {
        Self::start(Middleware::own(Ros::One), flows, pair, folder)
    }

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
            publisher.send_line(&format!("start {start_ns} {}", flow.count(time)))?;
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
            subscriber.send_line(&format!(
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
            publisher.send_line("write")?;
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
