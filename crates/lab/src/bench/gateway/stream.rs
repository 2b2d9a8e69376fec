// SPDX-License-Identifier: Apache-2.0
//! One publisher and one subscriber, and the delay of each message between them.

use crate::rig::clock::monotonic_ns;
use crate::rig::processes::{Process, make_folder, word};
use crate::rig::stats::Samples;
use crate::setup::ends::{By, Role};
use crate::setup::load::{DRAIN_PATIENCE, FIRST_PATIENCE};
use crate::setup::ros::{self, Middleware, Ros, RosProgram, START_PATIENCE, WRITE_PATIENCE};
use crate::setup::world::Computer;
use anyhow::Result;
use std::path::Path;
use std::time::Duration;

/// Time between the start command and the start of publishing.
const COUNTDOWN: Duration = Duration::from_millis(300);
/// Maximum time by which publishing may take longer than planned.
const LATENESS: Duration = Duration::from_secs(60);

/// The library on which a publisher or subscriber is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// A program of [`crate::setup::ends`].
    Own(By),
    /// rclpy; its messages of [`Load::bytes`] bytes are those of `large` in `ros/flows.py`.
    Rclpy,
}

impl End {
    /// Returns the name in folder names.
    pub fn name(self) -> &'static str {
        match self {
            Self::Own(By::Bare) => "dds",
            Self::Own(By::Gateway) => "gateway",
            Self::Rclpy => "rclpy",
        }
    }
}

/// Size, number and rate of the messages of a stream.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// Bytes of a message as given to DDS.
    pub bytes: usize,
    /// Total number of messages.
    pub count: u64,
    /// Time between the starts of bursts; zero for as fast as possible.
    pub period: Duration,
    /// Messages published back to back.
    pub burst: u64,
    /// Messages that the publisher keeps for subscribers that lag behind; 0 for all.
    pub depth: u32,
}

/// A publisher and a subscriber on one computer.
pub struct Stream<'a> {
    /// Computer that runs both.
    pub computer: &'a Computer,
    /// Library of the publisher.
    pub from: End,
    /// Library of the subscriber.
    pub to: End,
    /// Messages to publish.
    pub load: Load,
}

impl Stream<'_> {
    /// Runs the stream; samples and logs go to `folder`, which is created.
    pub fn run(&self, folder: &Path) -> Result<Samples> {
        make_folder(folder)?;
        let [sent, received] = ["sent.csv", "received.csv"].map(|name| folder.join(name));
        let mut subscriber = self.start(self.to, Role::Subscribe, &received, folder)?;
        subscriber.await_line("ready", START_PATIENCE)?;
        let mut publisher = self.start(self.from, Role::Publish, &sent, folder)?;
        publisher.await_line("ready", START_PATIENCE)?;
        subscriber.await_line("first", FIRST_PATIENCE)?;
        let (count, start) = (self.load.count, monotonic_ns() + COUNTDOWN.as_nanos() as u64);
        publisher.send_line(&format!("start {start} {count}"))?;
        publisher.await_line("done", COUNTDOWN + self.planned_duration() + LATENESS)?;
        subscriber.send_line(&format!("expect {count} {}", DRAIN_PATIENCE.as_secs()))?;
        subscriber.await_line("done", DRAIN_PATIENCE + WRITE_PATIENCE)?;
        subscriber.await_line("written", WRITE_PATIENCE)?;
        publisher.send_line("write")?;
        publisher.await_line("written", WRITE_PATIENCE)?;
        Samples::read(&sent, &received)
    }

    fn planned_duration(&self) -> Duration {
        self.load.period * u32::try_from(self.load.count / self.load.burst).unwrap_or(u32::MAX)
    }

    fn start(&self, end: End, role: Role, output: &Path, folder: &Path) -> Result<Process> {
        match end {
            End::Own(by) => self.start_own_end(by, role, output, folder),
            End::Rclpy => self.rclpy(role, output, folder),
        }
    }

    fn start_own_end(&self, by: By, role: Role, output: &Path, folder: &Path) -> Result<Process> {
        let mut command = self.computer.command(std::env::current_exe()?);
        let (role, by) = (word(role), word(by));
        command.args(["--inside", "dds-end", &role, &by]).arg(output);
        let Load { bytes, period, burst, depth, .. } = self.load;
        command
            .arg(format!("--bytes={bytes}"))
            .arg(format!("--period-us={}", period.as_micros()))
            .arg(format!("--burst={burst}"))
            .arg(format!("--depth={depth}"));
        Process::start_talking(&role, command, folder)
    }

    fn rclpy(&self, role: Role, output: &Path, folder: &Path) -> Result<Process> {
        let middleware = Middleware::own(Ros::Two);
        let program = RosProgram { computer: self.computer, middleware, folder };
        let queue = format!("--queue={}", self.load.depth);
        let mut arguments = vec!["ros2".into(), "large".into(), ros::utf8(output)?, queue];
        let script = match role {
            Role::Publish => {
                arguments.push(format!("--period-us={}", self.load.period.as_micros()));
                "publish.py"
            }
            Role::Subscribe => "subscribe.py",
        };
        program.python(&word(role), script, &arguments)
    }
}
