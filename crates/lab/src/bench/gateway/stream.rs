// SPDX-License-Identifier: Apache-2.0
//! One publisher, one subscriber, and how long each message took between them.

use super::ends::{By, Role};
use crate::bench::ros::{Middleware, Ros, RosProgram, START_PATIENCE, WRITE_PATIENCE};
use crate::bench::world::Computer;
use crate::clock::monotonic_ns;
use crate::processes::Process;
use crate::stats::Samples;
use anyhow::{Context, Result};
use clap::ValueEnum;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Publishing starts this long after the order to.
const COUNTDOWN: Duration = Duration::from_millis(300);
/// Longest wait for the first message, and for the last after its publisher is done.
const FIRST_PATIENCE: Duration = Duration::from_secs(30);
const DRAIN_PATIENCE: Duration = Duration::from_secs(5);
/// Publishing may take this much longer than planned.
const LATENESS: Duration = Duration::from_secs(60);

/// What a publisher or subscriber is written on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// A program of this one's.
    Own(By),
    /// rclpy, whose messages of [`Stream::bytes`] bytes are those of `large` in `ros/flows.py`.
    Rclpy,
}

impl End {
    /// In names of folders.
    pub fn name(self) -> &'static str {
        match self {
            Self::Own(By::Bare) => "dds",
            Self::Own(By::Gateway) => "gateway",
            Self::Rclpy => "rclpy",
        }
    }
}

/// What is published, and how fast.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// Bytes of a message with all that DDS is given.
    pub bytes: usize,
    /// Messages in all.
    pub count: u64,
    /// Between the starts of bursts; zero is as fast as it goes.
    pub period: Duration,
    /// Messages published one after the other.
    pub burst: u64,
    /// Messages that the publisher keeps for subscribers that lag behind; 0 is all.
    pub depth: u32,
}

/// A publisher and a subscriber on one computer.
pub struct Stream<'a> {
    /// Where both run.
    pub computer: &'a Computer,
    /// What the publisher is written on.
    pub from: End,
    /// What the subscriber is written on.
    pub to: End,
    /// What is published.
    pub load: Load,
}

impl Stream<'_> {
    /// Runs it; samples and logs go to `folder`, which it makes.
    pub fn run(&self, folder: &Path) -> Result<Samples> {
        std::fs::create_dir_all(folder)?;
        let [sent, received] = ["sent.csv", "received.csv"].map(|name| folder.join(name));
        let mut subscriber = self.start(self.to, Role::Subscribe, &received, folder)?;
        subscriber.await_line("ready", START_PATIENCE)?;
        let mut publisher = self.start(self.from, Role::Publish, &sent, folder)?;
        publisher.await_line("ready", START_PATIENCE)?;
        subscriber.await_line("first", FIRST_PATIENCE)?;
        let (count, start) = (self.load.count, monotonic_ns() + COUNTDOWN.as_nanos() as u64);
        publisher.tell(&format!("start {start} {count}"))?;
        publisher.await_line("done", COUNTDOWN + self.planned() + LATENESS)?;
        subscriber.tell(&format!("expect {count} {}", DRAIN_PATIENCE.as_secs()))?;
        subscriber.await_line("done", DRAIN_PATIENCE + WRITE_PATIENCE)?;
        subscriber.await_line("written", WRITE_PATIENCE)?;
        publisher.tell("write")?;
        publisher.await_line("written", WRITE_PATIENCE)?;
        Samples::read(&sent, &received)
    }

    fn planned(&self) -> Duration {
        self.load.period * u32::try_from(self.load.count / self.load.burst).unwrap_or(u32::MAX)
    }

    fn start(&self, end: End, role: Role, output: &Path, folder: &Path) -> Result<Process> {
        match end {
            End::Own(by) => self.own(by, role, output, folder),
            End::Rclpy => self.rclpy(role, output, folder),
        }
    }

    fn own(&self, by: By, role: Role, output: &Path, folder: &Path) -> Result<Process> {
        let program = std::env::current_exe()?;
        let mut command = self.computer.command(program.to_str().context("path is not UTF-8")?);
        let (role, by) = (word(role)?, word(by)?);
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
        let output = PathBuf::from(output).into_os_string().into_string();
        let output = output.ok().context("path is not UTF-8")?;
        let mut arguments =
            vec!["ros2".into(), "large".into(), output, format!("--queue={}", self.load.depth)];
        let script = match role {
            Role::Publish => {
                arguments.push(format!("--period-us={}", self.load.period.as_micros()));
                "publish.py"
            }
            Role::Subscribe => "subscribe.py",
        };
        program.python(&word(role)?, script, &arguments)
    }
}

/// As on the command line.
fn word(value: impl ValueEnum) -> Result<String> {
    Ok(value.to_possible_value().context("a value without a name")?.get_name().to_owned())
}
