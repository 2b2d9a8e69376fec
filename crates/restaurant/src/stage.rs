// SPDX-License-Identifier: Apache-2.0
//! The running restaurant: the arena, the computers on the radio, and their programs.

use super::files;
use super::team::{KITCHEN, ROBOTS, Team, Transport};
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tautline_lab::air::{Air, Punctuality};
use tautline_lab::rig::enclosure::SCRATCH;
use tautline_lab::rig::processes::Process;
use tautline_lab::scenario;
use tautline_lab::setup::daemon::{Daemon, DaemonSetup};
use tautline_lab::setup::iperf::Iperf;
use tautline_lab::setup::ros::{self, Middleware, Range, Ros, RosProgram, START_PATIENCE};
use tautline_lab::setup::world::Computer;
use tautline_medium::{Outage, StationId};

/// Scenario of the radio.
const SCENARIO: &str = "restaurant";
/// Size of a camera image, as in the demo.
const CAMERA_BYTES: &str = "61400";
/// Period of camera images.
const CAMERA_PERIOD_MS: &str = "150";
/// Nodes of each robot, in starting order. The first alone runs on robots that do not navigate.
const NODES: &[&str] = &["driver", "map_server", "localisation", "navigator", "controller"];
const WORLD: &str = "world";
/// Tables of the restaurant, numbered from 1.
const TABLES: u32 = 6;
/// Size of an image to the display, as in Tardioli, Parasuraman and Oegren (2018), section 6.6.
const DISPLAY_BYTES: &str = "65536";
/// Period of these images.
const DISPLAY_PERIOD_MS: &str = "200";
/// Endings of the names of the nodes in the control loop.
const CONTROL: [&str; 2] = ["-driver", "-controller"];
/// SCHED_FIFO priority of these nodes, below that of the radio's emulator.
const CONTROL_PRIORITY: u8 = 15;
/// Stations that do not hear each other: Kobuki and the neighbour, by their order in the scenario.
const HIDDEN: [StationId; 2] = [StationId(1), StationId(3)];
/// The station that Kobuki does not hear.
const NEIGHBOUR: &str = "neighbour";
/// Rate at which this station sends.
const NEIGHBOUR_RATE: &str = "1M";

/// The settings of a stage.
#[derive(Clone, Copy)]
pub struct Plan<'a> {
    /// ROS of the robots.
    pub team: Team,
    /// The transport of the topics.
    pub transport: Transport,
    /// Whether both robots send their camera.
    pub cameras: bool,
    /// Whether robots navigate themselves; otherwise the kitchen drives them.
    pub navigate: bool,
    /// Options of the simulator.
    pub world: &'a [&'a str],
    /// Seed of the simulator and the radio.
    pub seed: u64,
    /// The daemon's program.
    pub tautline: &'a Path,
    /// Folder of logs and samples.
    pub folder: &'a Path,
}

impl Plan<'_> {
    /// Returns why programs failed. Without Tautline, a failure is a result; with Tautline, it is
    /// an error.
    pub fn failure(&self, outcome: Result<()>) -> Result<Option<String>> {
        match (outcome, self.transport) {
            (Err(error), Transport::Plain) => Ok(Some(error.to_string())),
            (outcome, _) => outcome.map(|()| None),
        }
    }
}

/// A running restaurant. Dropping it ends everything, in the order of the fields.
pub struct Stage {
    /// Daemons of the kitchen and the robots; none without Tautline.
    pub daemons: Vec<Daemon>,
    nodes: Vec<Process>,
    /// Masters by computer.
    masters: BTreeMap<usize, Process>,
    world: Process,
    /// The kitchen, and the robots in the order of [`ROBOTS`].
    pub computers: [Computer; 3],
    neighbour: Computer,
    /// The radio.
    pub air: Air,
    team: Team,
    transport: Transport,
    tautline: PathBuf,
    folder: PathBuf,
}

impl Stage {
    /// Starts all programs except those of the kitchen.
    pub fn new(plan: &Plan<'_>) -> Result<Self> {
        if plan.transport == Transport::Plain && plan.team == Team::Mixed {
            bail!("ROS 1 and ROS 2 do not speak to each other without a bridge");
        }
        let scenario = scenario::named(SCENARIO)?;
        let computer = |name| Computer::on_air(&scenario, name);
        let computers = [computer(KITCHEN)?, computer(ROBOTS[0])?, computer(ROBOTS[1])?];
        let air = Air::start(&scenario, plan.seed, 0)?;
        air.outage(Outage::between(HIDDEN[0], HIDDEN[1]), true);
        let world = start_world(plan)?;
        let mut stage = Self {
            daemons: Vec::new(),
            nodes: Vec::new(),
            masters: BTreeMap::new(),
            tautline: plan.tautline.into(),
            world,
            computers,
            neighbour: computer(NEIGHBOUR)?,
            air,
            team: plan.team,
            transport: plan.transport,
            folder: plan.folder.into(),
        };
        stage.masters = stage.start_masters()?;
        if plan.transport == Transport::Tautline {
            stage.daemons = stage.start_daemons()?;
        }
        stage.start_robots(plan)?;
        Ok(stage)
    }

    /// Starts a program of the kitchen: a script under `ros`, with its arguments after
    /// the kind of ROS.
    pub fn in_kitchen(&self, name: &str, arguments: &[String]) -> Result<Process> {
        self.script(0, name, name, arguments)
    }

    /// Kills the daemon of a robot, as a crash does.
    pub fn kill_daemon(&mut self, robot: usize) {
        drop(self.daemons.remove(robot + 1));
    }

    /// Starts the daemon of a robot again, after [`Self::kill_daemon`].
    pub fn restart_daemon(&mut self, robot: usize) -> Result<()> {
        let daemon = self.setup().run(&self.computers[robot + 1], &self.folder, &self.folder)?;
        self.daemons.insert(robot + 1, daemon);
        Ok(())
    }

    /// Kills the master of a ROS 1 robot, waits for `after`, and starts another master.
    pub fn replace_master(&mut self, robot: usize, after: Duration) -> Result<()> {
        let before = self.masters.remove(&(robot + 1)).context("the robot has no master")?;
        drop(before);
        std::thread::sleep(after);
        let master = self.program(robot + 1).rosmaster()?;
        self.masters.insert(robot + 1, master);
        Ok(())
    }

    /// Removes a robot from the kitchen's file, and makes the kitchen's daemon reload it.
    pub fn revoke(&self, robot: usize) -> Result<()> {
        let left: Vec<&Computer> =
            self.computers.iter().skip(1).filter(|it| it.name != ROBOTS[robot]).collect();
        files::write_kitchen(self.team, &left, &self.folder)?;
        self.daemons[0].reload()
    }

    /// Starts the waiter, which sends goals to each robot in the form of its ROS.
    pub fn waiter(&self) -> Result<Process> {
        let way = |(name, kind): (&str, Ros)| match kind {
            Ros::One => format!("{name}=topic"),
            Ros::Two => format!("{name}=action"),
        };
        let ways: Vec<String> = ROBOTS.into_iter().zip(self.team.robots()).map(way).collect();
        self.in_kitchen("waiter", &ways)
    }

    /// Starts guests, who order at all tables in shuffled rounds, for any robot.
    pub fn guests(&self, orders: u32, seed: u64) -> Result<Process> {
        let mut rng = fastrand::Rng::with_seed(seed);
        let turn = || {
            let mut tables: Vec<u32> = (1..=TABLES).collect();
            rng.shuffle(&mut tables);
            tables
        };
        let tables = std::iter::repeat_with(turn).flatten().take(orders as usize);
        let orders = tables.map(|table| format!("{table}:any"));
        let arguments: Vec<String> = ["guests".into()].into_iter().chain(orders).collect();
        self.in_kitchen("guests", &arguments)
    }

    /// Starts the kitchen's viewer. If `records`, it records into the folder `recording`.
    pub fn viewer(&self, records: bool) -> Result<Process> {
        let folder = if records { ros::utf8(&self.folder.join("recording"))? } else { "-".into() };
        let arguments: Vec<String> = [folder].into_iter().chain(ROBOTS.map(String::from)).collect();
        self.in_kitchen("viewer", &arguments)
    }

    /// Starts the cameras of both robots.
    pub fn cameras(&self) -> Result<Vec<Process>> {
        let camera = |(index, name): (usize, &str)| {
            let topic = format!("/{name}/camera/image/compressed");
            let arguments = [&topic, CAMERA_BYTES, CAMERA_PERIOD_MS].map(String::from);
            self.script(index + 1, &format!("{name}-camera"), "camera", &arguments)
        };
        ROBOTS.into_iter().enumerate().map(camera).collect()
    }

    /// Starts a display on Kobuki, and the kitchen's images for it.
    pub fn display(&self) -> Result<Vec<Process>> {
        let topic = format!("/{}/display/image/compressed", ROBOTS[0]);
        let camera = [&topic, DISPLAY_BYTES, DISPLAY_PERIOD_MS].map(String::from);
        Ok(vec![
            self.script(1, "display", "display", std::slice::from_ref(&topic))?,
            self.script(0, "display-camera", "camera", &camera)?,
        ])
    }

    /// Puts the controllers and the drivers of both robots under SCHED_FIFO.
    pub fn prioritize_control(&self) -> Result<()> {
        let controls = |node: &&Process| CONTROL.iter().any(|it| node.name().ends_with(it));
        self.nodes.iter().filter(controls).try_for_each(|node| node.prioritize(CONTROL_PRIORITY))
    }

    /// Starts the page's server in the kitchen, on a port of the kitchen's loopback or, as `fd:N`, on
    /// an inherited socket.
    pub fn page(&self, port: &str) -> Result<Process> {
        let library = ros::utf8(&installed()?.join("roslib.js"))?;
        let mut server = self.in_kitchen("rosbridge", &[port.into(), library])?;
        server.await_line("ready", START_PATIENCE)?;
        Ok(server)
    }

    /// Starts a sender near the kitchen that Kobuki does not hear.
    pub fn start_neighbour(&self) -> Result<Iperf> {
        Iperf::start(&self.neighbour, &self.computers[0], NEIGHBOUR_RATE, &self.folder)
    }

    /// Moves a robot to x and y, metres, with an angle in radians.
    pub fn put(&mut self, robot: &str, [x, y, theta]: [f64; 3]) -> Result<()> {
        self.world.send_line(&format!("{robot}={x},{y},{theta}"))?;
        self.world.await_line("put", START_PATIENCE).map(drop)
    }

    /// Returns the lateness of the radio's emulator; fails if the emulator has ended.
    pub fn punctuality(&self) -> Result<Punctuality> {
        if !self.air.runs() {
            bail!("the radio's emulator has ended");
        }
        Ok(self.air.look().punctuality)
    }

    /// Returns an error if a program that should run has ended.
    pub fn check(&mut self) -> Result<()> {
        self.world.check_running()?;
        self.nodes.iter_mut().try_for_each(Process::check_running)?;
        self.daemons.iter_mut().try_for_each(|daemon| daemon.process.check_running())
    }

    /// Ends the arena and the nodes, which then write their measurements.
    pub fn close(&mut self) -> Result<()> {
        self.nodes.iter_mut().try_for_each(Process::close)?;
        self.world.close()
    }

    fn kind(&self, computer: usize) -> Ros {
        let [first, second] = self.team.robots();
        [self.team.kitchen(), first, second][computer]
    }

    fn middleware(&self, computer: usize) -> Middleware<'_> {
        match (self.transport, self.kind(computer)) {
            (Transport::Tautline, kind) => Middleware::own(kind),
            (Transport::Plain, Ros::One) => {
                Middleware::Ros1 { master: &self.computers[0].address, nodelay: true }
            }
            (Transport::Plain, Ros::Two) => {
                Middleware::Ros2 { range: Range::Subnet, reliable: true }
            }
        }
    }

    fn program(&self, computer: usize) -> RosProgram<'_> {
        RosProgram {
            computer: &self.computers[computer],
            middleware: self.middleware(computer),
            folder: &self.folder,
        }
    }

    /// Starts a script under `ros` on a computer, 0 for the kitchen; its first argument is
    /// the kind of ROS.
    pub fn script(
        &self,
        computer: usize,
        name: &str,
        script: &str,
        arguments: &[String],
    ) -> Result<Process> {
        let kind = format!("ros{}", self.kind(computer).number());
        let arguments: Vec<String> = [kind].into_iter().chain(arguments.iter().cloned()).collect();
        self.program(computer).python(name, self::script(&format!("{script}.py")), &arguments)
    }

    fn start_masters(&self) -> Result<BTreeMap<usize, Process>> {
        let all = match self.transport {
            Transport::Tautline => 0..3,
            Transport::Plain => 0..1,
        };
        let with_ros1 = all.filter(|computer| self.kind(*computer) == Ros::One);
        with_ros1.map(|computer| Ok((computer, self.program(computer).rosmaster()?))).collect()
    }

    fn setup(&self) -> DaemonSetup {
        let ros = self.team.kitchen();
        DaemonSetup { program: self.tautline.clone(), ros, rate_bps: None }
    }

    fn start_daemons(&self) -> Result<Vec<Daemon>> {
        files::write(self.team, self.computers.each_ref(), &self.folder)?;
        let run = |computer| self.setup().run(computer, &self.folder, &self.folder);
        let mut daemons = self.computers.iter().map(run).collect::<Result<Vec<_>>>()?;
        daemons.iter_mut().try_for_each(Daemon::await_connected)?;
        Ok(daemons)
    }

    fn start_robots(&mut self, plan: &Plan<'_>) -> Result<()> {
        for (index, name) in ROBOTS.into_iter().enumerate() {
            let computer = index + 1;
            let nodes = if plan.navigate { NODES } else { &NODES[..1] };
            for node in nodes {
                let arguments = self.arguments(name, node)?;
                let process = self.script(computer, &format!("{name}-{node}"), node, &arguments)?;
                self.nodes.push(process);
            }
        }
        if plan.cameras {
            self.nodes.extend(self.cameras()?);
        }
        Ok(())
    }

    fn arguments(&self, robot: &str, node: &str) -> Result<Vec<String>> {
        let mut arguments = vec![robot.to_owned()];
        arguments.extend(match node {
            // The path of a socket must be short; see `SCRATCH`.
            "driver" => Some(SCRATCH.into()),
            "map_server" => Some(ros::utf8(&script("map.yaml"))?),
            "controller" => Some(ros::utf8(&self.folder.join(format!("{robot}.periods.csv")))?),
            _ => None,
        });
        Ok(arguments)
    }
}

fn start_world(plan: &Plan<'_>) -> Result<Process> {
    let script = script("world.py");
    let mut command = Command::new(installed()?.join("bin/python"));
    ros::settle(&mut command, WORLD).arg(script).arg(plan.folder).arg(SCRATCH);
    command.arg(format!("--seed={}", plan.seed)).args(plan.world);
    let mut world = Process::start_talking(WORLD, command, plan.folder)?;
    world.await_line("ready", START_PATIENCE)?;
    Ok(world)
}

/// Returns the folder of the simulator's Python and the page's library; fails if `setup.sh` has not run.
fn installed() -> Result<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/restaurant");
    if !folder.join("roslib.js").is_file() {
        bail!("no {}: install it with 'crates/restaurant/setup.sh'", folder.display());
    }
    Ok(folder)
}

/// Returns the path of a file or folder of this crate.
pub fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// Returns the path of a ROS node, or of its data.
pub fn script(name: &str) -> PathBuf {
    folder("ros").join(name)
}
