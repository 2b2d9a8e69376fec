// SPDX-License-Identifier: Apache-2.0
//! Interruptions of robot and base station, and the time from which their recovery counts.

use super::figures::{RecoveryStart, has_port};
use super::scene::{BASE, Circumstances, ROBOT, Scene};
use crate::rig::clock::monotonic_ns;
use crate::rig::processes::word;
use anyhow::{Context, Result, ensure};
use serde::Serialize;
use std::path::Path;
use std::time::{Duration, Instant};

/// The kernel's time between two neighbour probes where the bench sets it, ms.
const SHORT_RETRANS_MS: u32 = 50;
/// Time without packets after a link's return, as with a Wi-Fi card that rejoins, ms.
pub const REJOIN_MS: std::ops::RangeInclusive<u64> = 300..=1000;
/// Time for which an interface or a master is absent.
const AWAY: Duration = Duration::from_secs(2);
/// Time from a daemon's kill to its restart: `RestartSec` of packaging/tautline.service.
const RESTART: Duration = Duration::from_secs(1);
/// Host parts of the addresses that a robot gets in succession; addresses below and above belong to
/// other computers.
const ADDRESSES: std::ops::Range<usize> = 10..250;
/// Port at which daemons receive.
const PORT: u16 = 18470;
/// Longest wait for a restarted daemon's socket.
const SOCKET_PATIENCE: Duration = Duration::from_secs(10);
const SOCKET_POLL: Duration = Duration::from_millis(1);

/// An event that interrupts messages, or may do so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Interruption {
    /// The link carries no packets for a time; kernels probe for neighbours every 50 ms.
    Outage,
    /// Like `outage`; kernels probe every second, their default.
    OutageKernel,
    /// Like `outage-kernel`, and no packets for another 300 to 1000 ms after the return.
    Rejoin,
    /// kill -9 of the robot's daemon, which is started again after 1 s.
    RobotKilled,
    /// kill -9 of the base station's daemon, which is started again after 1 s.
    BaseKilled,
    /// The robot gets another address of the subnet; the base station's file has no address of it.
    AddressChange,
    /// The robot's interface is down for 2 s and returns with another address.
    InterfaceDown,
    /// The robot's interface is deleted, and returns after 2 s with another address.
    InterfaceDeleted,
    /// kill -9 of the base station's ROS master, which returns after 2 s, and of its node.
    MasterKilled,
}

/// Record of the interruption of one run.
#[derive(Debug)]
pub struct Cause {
    /// Start of the recovery.
    pub since: RecoveryStart,
    /// Time from which no message should arrive; `None` if nothing stops messages.
    pub silent_ns: Option<u64>,
    /// Time without packets after the return, of an [`Interruption::Rejoin`].
    pub rejoin: Option<Duration>,
    /// State of the neighbour entries of robot and base station when an outage ended.
    pub neighbours: Option<[Option<String>; 2]>,
}

/// One run of an interruption.
pub struct Turn<'a> {
    /// Number of the run, from 1.
    pub number: usize,
    /// Duration of an outage, of [`Interruption::Outage`] and its variants.
    pub outage: Duration,
    /// Time without packets after the return, of an [`Interruption::Rejoin`].
    pub rejoin: Duration,
    /// Folder of the programs that are restarted.
    pub folder: &'a Path,
}

impl Interruption {
    /// Returns the name on the command line.
    pub fn name(self) -> String {
        word(self)
    }

    /// Describes the interruption and the time from which the recovery counts.
    pub fn words(self, outage: Duration) -> String {
        // A random part of a second is added.
        let outage = format!("outage {0}-{1} s", outage.as_secs(), outage.as_secs() + 1);
        match self {
            Self::Outage => format!("{outage}, neighbours asked every 50 ms"),
            Self::OutageKernel => format!("{outage}, kernel defaults"),
            Self::Rejoin => format!("{outage}, then silent 0.3-1 s"),
            Self::RobotKilled => "robot's daemon killed, from its new socket".into(),
            Self::BaseKilled => "base's daemon killed, from its new socket".into(),
            Self::AddressChange => "robot has another address".into(),
            Self::InterfaceDown => "robot's interface 2 s down, other address".into(),
            Self::InterfaceDeleted => "robot's interface deleted 2 s, other address".into(),
            Self::MasterKilled => "base's master killed 2 s, from its answer".into(),
        }
    }

    /// Returns the target of the median; `None` if the link itself carries no packets for a time
    /// after its return.
    pub fn target_ms(self) -> Option<f64> {
        match self {
            Self::Outage => Some(300.0),
            Self::OutageKernel => Some(1200.0),
            Self::Rejoin => None,
            Self::RobotKilled | Self::BaseKilled | Self::AddressChange => Some(500.0),
            Self::InterfaceDown | Self::InterfaceDeleted => Some(500.0),
            Self::MasterKilled => Some(2000.0),
        }
    }

    /// Returns the approximate duration of one interruption, without its effect on messages.
    pub fn time(self, outage: Duration) -> Duration {
        match self {
            Self::Outage | Self::OutageKernel | Self::Rejoin => outage,
            Self::RobotKilled | Self::BaseKilled => RESTART,
            Self::AddressChange => Duration::ZERO,
            Self::InterfaceDown | Self::InterfaceDeleted | Self::MasterKilled => AWAY,
        }
    }

    /// Returns the circumstances that the interruption needs.
    pub fn circumstances(self) -> Circumstances {
        let moves = [Self::AddressChange, Self::InterfaceDown, Self::InterfaceDeleted];
        Circumstances {
            robot_is_known: !moves.contains(&self),
            retrans_ms: (self == Self::Outage).then_some(SHORT_RETRANS_MS),
        }
    }

    /// Causes the interruption. The time of a return is read before the command that causes the
    /// return, so that the command's own duration counts.
    pub fn run(self, scene: &mut Scene, turn: &Turn) -> Result<Cause> {
        match self {
            Self::Outage | Self::OutageKernel => outage(scene, turn, None),
            Self::Rejoin => outage(scene, turn, Some(turn.rejoin)),
            Self::RobotKilled => kill_daemon(scene, ROBOT, turn),
            Self::BaseKilled => kill_daemon(scene, BASE, turn),
            Self::AddressChange => change_address(scene, turn),
            Self::InterfaceDown => take_down(scene, turn),
            Self::InterfaceDeleted => delete_interface(scene, turn),
            Self::MasterKilled => kill_master(scene, turn),
        }
    }
}

impl Cause {
    fn after_silence(silent_ns: u64, since_ns: u64) -> Self {
        let since = RecoveryStart { ns: since_ns, only_new: false };
        Self { since, silent_ns: Some(silent_ns), rejoin: None, neighbours: None }
    }
}

/// Makes the switch forward nothing of the robot's port, whose cable stays connected.
fn outage(scene: &mut Scene, turn: &Turn, rejoin: Option<Duration>) -> Result<Cause> {
    scene.bridge.forward(&scene.sides[ROBOT].computer, false)?;
    let (cut, silent_ns) = (Instant::now(), monotonic_ns());
    scene.forget_neighbours()?;
    std::thread::sleep(turn.outage.saturating_sub(cut.elapsed()));
    let neighbours = Some(scene.neighbours()?);
    let since_ns = monotonic_ns();
    std::thread::sleep(rejoin.unwrap_or_default());
    scene.bridge.forward(&scene.sides[ROBOT].computer, true)?;
    Ok(Cause { rejoin, neighbours, ..Cause::after_silence(silent_ns, since_ns) })
}

fn kill_daemon(scene: &mut Scene, place: usize, turn: &Turn) -> Result<Cause> {
    // Dropping the daemon kills it with SIGKILL and waits for its end.
    scene.sides[place].daemon = None;
    let silent_ns = monotonic_ns();
    std::thread::sleep(RESTART);
    scene.restart_daemon(place, turn.folder)?;
    let since_ns = await_socket(scene, place)?;
    Ok(Cause::after_silence(silent_ns, since_ns))
}

/// Returns the time of the last check at which a daemon had no socket yet.
fn await_socket(scene: &mut Scene, place: usize) -> Result<u64> {
    let daemon = scene.sides[place].daemon.as_ref().context("no daemon")?;
    let folder = format!("/proc/{}/net", daemon.process.id());
    let deadline = Instant::now() + SOCKET_PATIENCE;
    loop {
        let before = monotonic_ns();
        let tables =
            ["udp", "udp6"].map(|name| std::fs::read_to_string(format!("{folder}/{name}")));
        if tables.into_iter().flatten().any(|table| has_port(&table, PORT)) {
            return Ok(before);
        }
        scene.check_running()?;
        ensure!(Instant::now() < deadline, "no socket on port {PORT} in {SOCKET_PATIENCE:?}");
        std::thread::sleep(SOCKET_POLL);
    }
}

/// Returns an address that the robot has not had in this scene.
fn new_address(turn: &Turn) -> String {
    format!("10.71.0.{}", ADDRESSES.start + turn.number % ADDRESSES.len())
}

/// Changes the address as a DHCP client does: adds the new one, then deletes the old one.
fn change_address(scene: &mut Scene, turn: &Turn) -> Result<Cause> {
    let robot = &mut scene.sides[ROBOT].computer;
    let old = std::mem::replace(&mut robot.address, new_address(turn));
    robot.add_address()?;
    let new = std::mem::replace(&mut robot.address, old);
    robot.delete_address()?;
    robot.address = new;
    // Until here, messages could use the old address.
    let since = RecoveryStart { ns: monotonic_ns(), only_new: true };
    Ok(Cause { since, silent_ns: None, rejoin: None, neighbours: None })
}

fn take_down(scene: &mut Scene, turn: &Turn) -> Result<Cause> {
    let robot = &mut scene.sides[ROBOT].computer;
    let interface = robot.interface.clone();
    robot.ip(&["link", "set", &interface, "down"])?;
    let silent_ns = monotonic_ns();
    robot.delete_address()?;
    robot.address = new_address(turn);
    std::thread::sleep(AWAY);
    robot.add_address()?;
    let since_ns = monotonic_ns();
    robot.ip(&["link", "set", &interface, "up"])?;
    Ok(Cause::after_silence(silent_ns, since_ns))
}

fn delete_interface(scene: &mut Scene, turn: &Turn) -> Result<Cause> {
    let robot = &mut scene.sides[ROBOT].computer;
    robot.ip(&["link", "del", &robot.interface])?;
    let silent_ns = monotonic_ns();
    robot.address = new_address(turn);
    std::thread::sleep(AWAY);
    let since_ns = monotonic_ns();
    scene.bridge.plug_in(&scene.sides[ROBOT].computer)?;
    Ok(Cause::after_silence(silent_ns, since_ns))
}

/// rospy's nodes do not register again. Therefore the base station's node is restarted, and waits
/// for the master with all its modules loaded.
fn kill_master(scene: &mut Scene, turn: &Turn) -> Result<Cause> {
    scene.sides[BASE].end = None;
    scene.sides[BASE].master = None;
    let silent_ns = monotonic_ns();
    scene.start_end(BASE, turn.folder)?;
    std::thread::sleep(AWAY);
    scene.start_master(BASE, turn.folder)?;
    let end = scene.sides[BASE].end.as_mut().context("no program")?;
    let since_ns = end.await_master()?;
    Ok(Cause::after_silence(silent_ns, since_ns))
}
