// SPDX-License-Identifier: Apache-2.0
//! The computers of a team: one with everything in one ROS graph, and two with a daemon each.

use super::agents::Agents;
use super::situation::{ACTIONS, How, Side, Team};
use crate::rig::node_file::NodeFile;
use crate::rig::processes::{Process, make_folder};
use crate::setup::daemon::{Daemon, DaemonSetup, ros_lines};
use crate::setup::ros::{Ros, RosProgram, ros2_folder};
use crate::setup::world::{Computer, Pair};
use anyhow::{Context, Result};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Rules of the topics, with queues longer than every burst; a reload changes another rule.
const TOPICS: &str = "  \"/parity/lifespan/**\": { keep_last: 50, lifespan: 1s }
  \"/parity/rate/**\": { keep_last: 50, rate: 2Hz }
  \"/parity/plain/**\": { keep_last: 50 }
";

/// Everything that situations of one team need.
pub struct World {
    /// Agents in one ROS graph.
    pub plain: Agents,
    /// Agents on two computers.
    pub tautline: Agents,
    daemons: [Option<Daemon>; 2],
    computers: [Arc<Computer>; 2],
    setup: DaemonSetup,
    team: Team,
    folder: PathBuf,
    /// Starts and reloads of daemons so far.
    changes: u32,
    _masters: Vec<Process>,
}

impl World {
    /// Starts masters, daemons and agents.
    pub fn start(team: Team, program: &Path, folder: &Path) -> Result<Self> {
        make_folder(folder)?;
        let name = |kind: &str| format!("{kind}-{}", team.name());
        let plain = Arc::new(Computer::new(&name("plain"), 3)?);
        let Pair { robot, base, .. } = Pair::joined([&name("near"), &name("far")])?;
        let computers = [Arc::new(robot), Arc::new(base)];
        let places = [(&plain, team.near), (&computers[0], team.near), (&computers[1], team.far)];
        let with_master = places.into_iter().filter(|(_, ros)| *ros == Ros::One);
        let masters = with_master
            .map(|(computer, _)| RosProgram::own(computer, folder).rosmaster())
            .collect::<Result<_>>()?;
        let [near, far] = computers.clone();
        let one_graph = [(plain.clone(), team.near), (plain.clone(), team.near)];
        let mut world = Self {
            plain: Agents::new(one_graph, folder),
            tautline: Agents::new([(near, team.near), (far, team.far)], folder),
            daemons: [None, None],
            computers,
            setup: DaemonSetup { program: program.into(), ros: team.near, rate_bps: None },
            team,
            folder: folder.into(),
            changes: 0,
            _masters: masters,
        };
        for side in [Side::Near, Side::Far] {
            world.start_daemon(side)?;
        }
        world.await_connected()?;
        // The start of the agents keeps the processors busy for seconds.
        world.plain.start()?;
        world.tautline.start()?;
        Ok(world)
    }

    fn write_file(&self, side: Side) -> Result<()> {
        let [own, peer] = match side {
            Side::Near => [0, 1],
            Side::Far => [1, 0],
        };
        let ros = [self.team.near, self.team.far][own];
        let definitions = match ros {
            Ros::One => String::new(),
            Ros::Two => format!(", definitions: {}", ros2_folder().display()),
        };
        let lines = ros_lines(ros).replace(" }", &format!("{definitions} }}"));
        let actions: Vec<String> = (0..ACTIONS).map(|n| format!("/parity_action_{n}")).collect();
        let actions = match ros {
            Ros::One => String::new(),
            Ros::Two => format!("\nactions: [{}]", actions.join(", ")),
        };
        NodeFile {
            name: &self.computers[own].name,
            peers: vec![self.computers[peer].entry()],
            radios: String::new(),
            topics: format!("{TOPICS}  /other/topic{}: {{ priority: 5 }}\n", self.changes),
            rest: format!("{lines}\nservices: [\"/parity/service/**\"]{actions}"),
        }
        .write(&self.folder)?;
        Ok(())
    }

    /// Starts a daemon.
    pub fn start_daemon(&mut self, side: Side) -> Result<()> {
        self.changes += 1;
        self.write_file(side)?;
        let logs = self.folder.join(format!("daemon-{}", self.changes));
        make_folder(&logs)?;
        let computer = &self.computers[side as usize];
        self.daemons[side as usize] = Some(self.setup.run(computer, &self.folder, &logs)?);
        Ok(())
    }

    /// Ends a daemon or reloads its file.
    pub fn change_daemon(&mut self, side: Side, how: How) -> Result<()> {
        let slot = side as usize;
        if how == How::Reload {
            self.changes += 1;
            self.write_file(side)?;
            return self.daemons[slot].as_ref().context("no daemon to reload")?.reload();
        }
        let mut daemon = self.daemons[slot].take().context("no daemon to end")?;
        // Dropping the daemon kills it.
        if how == How::Terminate { daemon.end() } else { Ok(()) }
    }

    /// Waits until both daemons are connected to their ROS and to each other.
    pub fn await_connected(&mut self) -> Result<()> {
        self.daemons.iter_mut().flatten().try_for_each(Daemon::await_connected)
    }

    /// Whether the far side has asked the near daemon for a topic.
    pub fn is_wanted(&self, topic: &str) -> Result<bool> {
        let near = self.daemons[Side::Near as usize].as_ref().context("no near daemon")?;
        let status = near.status()?;
        let mut topics = status["topics"].as_array().into_iter().flatten();
        Ok(topics
            .any(|it| it["topic"] == topic && it["direction"] == "out" && it["wanted"] == true))
    }

    /// Returns the state of the daemons that run.
    pub fn statuses(&self) -> Vec<Value> {
        self.daemons.iter().flatten().filter_map(|daemon| daemon.status().ok()).collect()
    }

    /// Stops or restores everything between the computers.
    pub fn cut(&self, cut: bool) -> Result<()> {
        self.computers.iter().try_for_each(|computer| computer.mute(cut))
    }
}
