// SPDX-License-Identifier: Apache-2.0
//! Senders and echoers as processes: their start, the counted time and their samples.

use super::echo::{Echo, read};
use super::load::{Contents, Load, Pairing};
use super::roscpp;
use super::scene::Scene;
use super::system::{self, Library, System};
use super::watch::Watched;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tautline_lab::rig::processes::Process;
use tautline_lab::setup::ros::{RosProgram, START_PATIENCE, utf8};

/// Time between the start command and the first message.
pub const COUNTDOWN: Duration = Duration::from_millis(500);
/// Longest wait for echoes after the last message, as in the thesis.
pub const DRAIN: Duration = Duration::from_secs(5);
/// Additional time limit for each process, on a machine with two cores.
const PATIENCE_PER_PROCESS: Duration = Duration::from_millis(700);
/// Maximum time by which publishing or writing samples may exceed its plan.
const LATENESS: Duration = Duration::from_secs(30);

/// A sender or an echoer.
struct Node {
    name: String,
    number: usize,
    process: Process,
}

/// The nodes of a run.
pub struct Nodes {
    senders: Vec<Node>,
    echoers: Vec<Node>,
    folder: PathBuf,
    has_one_lock: bool,
}

impl Nodes {
    /// Starts all nodes and waits until a message of each sender has returned from each of its
    /// echoers.
    pub fn start(scene: &Scene, system: System, load: &Load, folder: &Path) -> Result<Self> {
        let launch = Launch { scene, system, load, folder };
        let start = |role: &str| -> Result<Vec<Node>> {
            (0..load.senders).map(|number| launch.start(role, number)).collect()
        };
        let (echoers, senders) = (start("echoer")?, start("sender")?);
        let has_one_lock = system.client_library().has_one_lock();
        let mut nodes = Self { senders, echoers, folder: folder.into(), has_one_lock };
        nodes.await_first()?;
        Ok(nodes)
    }

    fn count(&self) -> usize {
        self.senders.len() + self.echoers.len()
    }

    fn patience(&self) -> Duration {
        START_PATIENCE + PATIENCE_PER_PROCESS * self.count() as u32
    }

    fn await_first(&mut self) -> Result<()> {
        let patience = self.patience();
        for node in self.echoers.iter_mut().chain(&mut self.senders) {
            node.process.await_line("ready", patience)?;
        }
        for node in &mut self.senders {
            node.process.await_line("first", patience).context("no echo came back")?;
        }
        Ok(())
    }

    /// Tells all senders to publish for `time`; the first of them begins after [`COUNTDOWN`].
    pub fn begin(&mut self, load: &Load, time: Duration) -> Result<()> {
        for node in &mut self.senders {
            let (phase_ns, period_ns) = (load.phase_ns(node.number), load.period_ns(node.number));
            let delay_ns = COUNTDOWN.as_nanos() as u64 + phase_ns;
            let line = format!("start {delay_ns} {} {period_ns}", time.as_secs_f64());
            node.process.send_line(&line)?;
        }
        Ok(())
    }

    /// Waits until all senders have published, have waited for their echoes, and have written their
    /// samples.
    pub fn finish(&mut self, time: Duration) -> Result<()> {
        for node in &mut self.senders {
            node.process.await_line("done", COUNTDOWN + time + LATENESS)?;
            node.process.send_line(&format!("drain {}", DRAIN.as_secs()))?;
        }
        for node in &mut self.senders {
            node.process.await_line("drained", DRAIN + LATENESS)?;
        }
        for node in &mut self.senders {
            node.process.await_line("written", LATENESS)?;
        }
        Ok(())
    }

    /// Returns the samples of each sender, in the order of their numbers.
    pub fn samples(&self) -> Result<Vec<Vec<Echo>>> {
        let file = |node: &Node| self.folder.join(format!("sender-{}.csv", node.number));
        self.senders.iter().map(|node| read(&file(node))).collect()
    }

    /// Returns the processes of all nodes, each with the processor time that it may use.
    pub fn watched(&self, allowed_percent: f64) -> Vec<Watched> {
        let watched = |kind: &'static str, node: &Node| Watched {
            kind,
            name: node.name.clone(),
            id: node.process.id(),
            has_one_lock: self.has_one_lock,
            allowed_percent,
        };
        let senders = self.senders.iter().map(|node| watched("sender", node));
        senders.chain(self.echoers.iter().map(|node| watched("echoer", node))).collect()
    }
}

/// The settings for starting a node.
struct Launch<'a> {
    scene: &'a Scene,
    system: System,
    load: &'a Load,
    folder: &'a Path,
}

impl Launch<'_> {
    fn start(&self, role: &str, number: usize) -> Result<Node> {
        let computer = match role {
            "sender" => self.scene.host_of_sender(number),
            _ => self.scene.host_of_echoer(number),
        };
        let program = self.scene.program(computer, self.folder);
        let process = self.launch(&program, role, number)?;
        Ok(Node { name: format!("{role} {number}"), number, process })
    }

    fn launch(&self, program: &RosProgram<'_>, role: &str, number: usize) -> Result<Process> {
        let (name, own) = (&*format!("{role}-{number}"), number.to_string());
        let others = match self.load.pairing {
            Pairing::Pairs => "own".into(),
            Pairing::EveryToEvery => list(&self.load.counterparts(0)),
        };
        let (contents, folder) = (self.load.flow(number).0, utf8(self.folder)?);
        let nodelay = self.system.has_nodelay();
        if self.system.client_library() == Library::Roscpp {
            let bytes = contents.bytes().unwrap_or(0).to_string();
            let kind = contents.kind();
            let mut arguments = vec![role.into(), own, others, folder, kind.into(), bytes];
            arguments.extend(nodelay.then(|| "nodelay".into()));
            return program.compiled(name, &roscpp::echo()?, &arguments);
        }
        let script = crate::folder("ros/echo.py");
        let library = self.system.client_library().name().to_owned();
        let mut arguments = vec![role.into(), library, own, others, folder];
        if self.system.client_library() == Library::Zenoh {
            arguments.extend(self.zenoh(role, number, contents)?);
            arguments.insert(0, utf8(&script)?);
            return program.compiled(name, &system::zenoh_python(), &arguments);
        }
        arguments.extend(contents.options()?);
        arguments.extend(nodelay.then(|| "--nodelay".into()));
        program.python(name, script, &arguments)
    }

    /// Returns the options of a zenoh node: the size of its text, and its endpoints.
    fn zenoh(&self, role: &str, number: usize, contents: &Contents) -> Result<Vec<String>> {
        let bytes = contents.bytes().context("zenoh replays no recordings")?;
        let mut options = Contents::Text(bytes).options()?;
        let endpoint = |echoer: usize| {
            let host = self.scene.host_of_echoer(echoer);
            format!("tcp/{}:{}", host.address, ZENOH_PORT + echoer)
        };
        if role == "echoer" {
            options.push(format!("--listen={}", endpoint(number)));
        } else {
            let others = self.load.counterparts(number).into_iter();
            options.extend(others.map(|echoer| format!("--connect={}", endpoint(echoer))));
        }
        Ok(options)
    }
}

/// Port of the first echoer of zenoh.
const ZENOH_PORT: usize = 7447;

/// Formats numbers for the command line of a node, separated by commas.
fn list(numbers: &[usize]) -> String {
    numbers.iter().map(usize::to_string).collect::<Vec<_>>().join(",")
}
