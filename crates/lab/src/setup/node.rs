// SPDX-License-Identifier: Apache-2.0
//! A running node of [`traffic`](super::traffic), which makes and records messages.

use super::traffic::{DONE, GO, READY};
use crate::rig::processes::Process;
use crate::rig::stats::Arrival;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A message that a node has received.
pub struct Received {
    /// Topic of the message.
    pub topic: String,
    /// Number and times of the message.
    pub arrival: Arrival,
}

/// The process of a node. It writes its samples when it is closed.
pub struct Node {
    process: Process,
    samples: PathBuf,
}

impl Node {
    /// Starts a node with the file and the options of the command `traffic`. `lab` is a command
    /// that runs this program.
    pub fn start(
        name: &str,
        mut lab: Command,
        file: &Path,
        options: &[String],
        folder: &Path,
    ) -> Result<Self> {
        let samples = folder.join(format!("{name}.csv"));
        lab.args(["--inside", "traffic"]).arg(file).arg(&samples).args(options);
        Ok(Self { process: Process::start_talking(name, lab, folder)?, samples })
    }

    /// Waits until the peers subscribe to the node's topics.
    pub fn await_ready(&mut self, patience: Duration) -> Result<()> {
        self.process.await_line(READY, patience).map(drop)
    }

    /// Starts a load.
    pub fn go(&mut self, seconds: f64) -> Result<()> {
        self.process.send_line(&format!("{GO} {seconds}"))
    }

    /// Waits for the end of a load; returns the number of messages of each topic since the start.
    pub fn await_done(&mut self, patience: Duration) -> Result<Vec<u64>> {
        let counts = self.process.await_line(DONE, patience)?;
        counts.split_whitespace().map(|count| count.parse().context("no count")).collect()
    }

    /// Ends the node, which then writes its samples.
    pub fn close(&mut self) -> Result<()> {
        self.process.close()
    }

    /// Returns the received messages.
    pub fn received(&self) -> Result<Vec<Received>> {
        let line = |line: &str| {
            let (topic, rest) = line.split_once(',')?;
            Some(Received { topic: topic.into(), arrival: Arrival::parse(rest)? })
        };
        lines(&self.samples, line)
    }

    /// Returns the times at which the messages of a topic were sent, ns.
    pub fn sent_times(&self, topic: &str) -> Result<Vec<u64>> {
        let line = |line: &str| {
            let fields: Vec<&str> = line.split(',').collect();
            let &[of, _, sent_ns] = &fields[..] else { return None };
            Some((of == topic, sent_ns.parse().ok()?))
        };
        let all: Vec<(bool, u64)> = lines(&self.samples.with_extension("sent"), line)?;
        Ok(all.into_iter().filter(|(wanted, _)| *wanted).map(|(_, sent_ns)| sent_ns).collect())
    }
}

fn lines<T>(file: &Path, parse: impl Fn(&str) -> Option<T>) -> Result<Vec<T>> {
    let text = std::fs::read_to_string(file)
        .with_context(|| format!("no samples in {}", file.display()))?;
    let wrong = |line| move || format!("'{line}' is no sample of {}", file.display());
    text.lines().map(|line| parse(line).with_context(wrong(line))).collect()
}
