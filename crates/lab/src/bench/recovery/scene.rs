// SPDX-License-Identifier: Apache-2.0
//! Two computers behind a switch, each with its own ROS master, daemon and program.

use super::figures::{flowing_since, neighbour_states};
use crate::rig::clock::monotonic_ns;
use crate::rig::namespace;
use crate::rig::processes::{Process, make_folder, wait_for};
use crate::rig::stats::Arrival;
pub use crate::setup::daemon::{BASE, ROBOT};
use crate::setup::daemon::{Daemon, DaemonSetup};
use crate::setup::ros::{self, RosProgram, START_PATIENCE};
use crate::setup::world::{Bridge, Computer};
use anyhow::{Context, Result};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Topic that each side publishes and the other side subscribes to.
const TOPICS: [&str; 2] = ["/robot/scan", "/base/scan"];
/// Rule of the published topics.
const RULE: &str = "{ priority: 200, lifespan: 300ms, keep_last: 1 }";
/// Time after a cut in which messages may still arrive.
pub const LIFESPAN: Duration = Duration::from_millis(300);
/// Time for which messages must flow before an interruption.
const CALM: Duration = Duration::from_secs(1);
/// Longest wait until messages flow.
const CALM_PATIENCE: Duration = Duration::from_secs(30);

/// Known addresses, and the kernels' neighbour discovery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Circumstances {
    /// Whether the base's file has the robot's address; if not, the robot initiates the handshake.
    pub robot_is_known: bool,
    /// The kernel's time between two neighbour probes, ms; `None` leaves it at a second.
    pub retrans_ms: Option<u32>,
}

/// One computer and its programs. Fields are dropped in this order.
pub struct Side {
    /// Program that publishes, and records received messages.
    pub end: Option<End>,
    /// Daemon: a `tautline run`.
    pub daemon: Option<Daemon>,
    /// ROS 1 master.
    pub master: Option<Process>,
    /// Computer that runs the programs.
    pub computer: Computer,
}

/// A running `both_ways.py`.
pub struct End {
    process: Process,
    samples: PathBuf,
    read_bytes: u64,
    arrivals: Vec<Arrival>,
}

/// Both sides and their switch.
pub struct Scene<'a> {
    setup: &'a DaemonSetup,
    circumstances: Circumstances,
    /// Folder of the daemons' files and keys, which outlast the daemons.
    files: PathBuf,
    /// Sides, by [`ROBOT`] and [`BASE`].
    pub sides: [Side; 2],
    /// Switch between the sides.
    pub bridge: Bridge,
}

impl<'a> Scene<'a> {
    /// Starts everything; logs and samples go to `folder`.
    pub fn new(
        setup: &'a DaemonSetup,
        circumstances: Circumstances,
        folder: &Path,
    ) -> Result<Self> {
        make_folder(folder)?;
        let bridge = Bridge::new()?;
        let side = |name, number| -> Result<Side> {
            let computer = Computer::new(name, number)?;
            bridge.plug_in(&computer)?;
            Ok(Side { end: None, daemon: None, master: None, computer })
        };
        let sides = [side("robot", 1)?, side("base", 2)?];
        let files = folder.to_owned();
        let mut scene = Self { setup, circumstances, files, sides, bridge };
        for place in [ROBOT, BASE] {
            scene.settle_kernel(place)?;
            scene.start_master(place, folder)?;
        }
        for place in [ROBOT, BASE] {
            scene.start_daemon(place)?;
            scene.start_end(place, folder)?;
        }
        Ok(scene)
    }

    fn settle_kernel(&self, place: usize) -> Result<()> {
        let computer = &self.sides[place].computer;
        // As systemd sets it: the remaining address stays when the older one is deleted.
        let mut settings = vec![("conf/all/promote_secondaries".to_owned(), 1)];
        if let Some(ms) = self.circumstances.retrans_ms {
            settings.push((format!("neigh/{}/retrans_time_ms", computer.interface), ms));
        }
        namespace::enter(&computer.name, || {
            for (key, value) in settings {
                let path = format!("/proc/sys/net/ipv4/{key}");
                std::fs::write(&path, value.to_string())
                    .with_context(|| format!("cannot write {value} to {path}"))?;
            }
            Ok(())
        })
    }

    /// Starts the ROS master of one side.
    pub fn start_master(&mut self, place: usize, folder: &Path) -> Result<()> {
        let side = &mut self.sides[place];
        side.master = Some(RosProgram::own(&side.computer, folder).rosmaster()?);
        Ok(())
    }

    /// Restarts the daemon of one side.
    pub fn restart_daemon(&mut self, place: usize, logs: &Path) -> Result<()> {
        let side = &mut self.sides[place];
        side.daemon = Some(self.setup.run(&side.computer, &self.files, logs)?);
        Ok(())
    }

    fn start_daemon(&mut self, place: usize) -> Result<()> {
        let other = &self.sides[1 - place].computer;
        let is_known = place == ROBOT || self.circumstances.robot_is_known;
        let peer = if is_known { other.entry() } else { (other.name.as_str(), String::new()) };
        let topics = format!("  {}: {RULE}\n", TOPICS[place]);
        let daemon =
            self.setup.start_one(&self.sides[place].computer, peer, &topics, &self.files)?;
        self.sides[place].daemon = Some(daemon);
        Ok(())
    }

    /// Starts the program of one side.
    pub fn start_end(&mut self, place: usize, folder: &Path) -> Result<()> {
        let computer = &self.sides[place].computer;
        let samples = folder.join(format!("{}.received.csv", computer.name));
        let topics = [TOPICS[place], TOPICS[1 - place]].map(String::from);
        let arguments = [&topics[..], &[ros::utf8(&samples)?]].concat();
        let name = format!("both-ways-{}", computer.name);
        let process =
            RosProgram::own(computer, folder).python(&name, "both_ways.py", &arguments)?;
        let end = End { process, samples, read_bytes: 0, arrivals: Vec::new() };
        self.sides[place].end = Some(end);
        Ok(())
    }

    /// Returns the arrivals at one side since [`Scene::forget`].
    pub fn arrivals(&mut self, place: usize) -> Result<&[Arrival]> {
        match &mut self.sides[place].end {
            Some(end) => end.look(),
            None => Ok(&[]),
        }
    }

    /// Discards the arrivals so far.
    pub fn forget(&mut self) -> Result<()> {
        for end in self.sides.iter_mut().filter_map(|side| side.end.as_mut()) {
            end.look()?;
            end.arrivals.clear();
        }
        Ok(())
    }

    /// Waits until messages flow both ways; returns whether they do.
    pub fn await_calm(&mut self) -> Result<bool> {
        let calm = wait_for(CALM_PATIENCE, || {
            self.check_running()?;
            let mut calm = true;
            for place in [ROBOT, BASE] {
                let arrivals = self.arrivals(place)?;
                let now = monotonic_ns();
                let since = flowing_since(arrivals.iter().map(|it| it.received_ns), now);
                calm &= since.is_some_and(|since| now - since >= CALM.as_nanos() as u64);
            }
            Ok(calm.then_some(()))
        })?;
        Ok(calm.is_some())
    }

    /// Fails if a program has ended that the bench did not kill.
    pub fn check_running(&mut self) -> Result<()> {
        for side in &mut self.sides {
            let daemon = side.daemon.as_mut().map(|daemon| &mut daemon.process);
            let end = side.end.as_mut().map(|end| &mut end.process);
            for process in [daemon, end, side.master.as_mut()].into_iter().flatten() {
                process.check_running()?;
            }
        }
        Ok(())
    }

    /// Removes the neighbour entries of both kernels, as in an outage longer than their lifetime.
    pub fn forget_neighbours(&self) -> Result<()> {
        for Side { computer, .. } in &self.sides {
            computer.ip(&["neigh", "flush", "dev", &computer.interface])?;
        }
        Ok(())
    }

    /// Returns the state of each kernel's neighbour entry; `None` without an entry.
    pub fn neighbours(&self) -> Result<[Option<String>; 2]> {
        let state = |place: usize| -> Result<Option<String>> {
            let [here, other] = [place, 1 - place].map(|place| &self.sides[place].computer);
            let said = here.ip(&["neigh", "show", "dev", &here.interface])?;
            Ok(neighbour_states(&said).remove(&other.address))
        };
        Ok([state(ROBOT)?, state(BASE)?])
    }
}

impl End {
    /// Returns the time at which the program saw its master respond.
    pub fn await_master(&mut self) -> Result<u64> {
        let said = self.process.await_line("master", START_PATIENCE)?;
        said.parse().with_context(|| format!("'{said}' is no time"))
    }

    /// Reads the new complete lines.
    fn look(&mut self) -> Result<&[Arrival]> {
        if let Ok(mut file) = File::open(&self.samples) {
            let mut text = String::new();
            file.seek(SeekFrom::Start(self.read_bytes))?;
            file.read_to_string(&mut text)?;
            let whole = text.rfind('\n').map_or("", |end| &text[..=end]);
            self.read_bytes += whole.len() as u64;
            for line in whole.lines() {
                let arrival = Arrival::parse(line);
                let place = || format!("{}: '{line}' is no arrival", self.samples.display());
                self.arrivals.push(arrival.with_context(place)?);
            }
        }
        Ok(&self.arrivals)
    }
}
