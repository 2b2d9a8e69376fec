// SPDX-License-Identifier: Apache-2.0
//! UDP sockets of this machine and their owners (`man 5 proc_net`).

use super::finding::{CheckFinding, CheckResult, Harm};
use super::machine::Machine;
use super::processes::Process;
use super::robot::Robot;
use std::collections::BTreeSet;
use std::path::Path;

/// Maximum number of examined sockets.
const MAX_SOCKETS: usize = 65_536;
/// Maximum characters of a command line that are shown.
const MAX_COMMAND: usize = 200;
/// Distance from a port in use to the port that is suggested in its place.
const OTHER_PORT_DISTANCE: u16 = 1;

/// A bound UDP socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BoundSocket {
    pub(super) port: u16,
    user: u32,
    inode: u64,
}

/// The owner of a socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Owner {
    /// A daemon.
    Tautline(Process),
    Other(Process),
    /// This user may not see the owner.
    Unknown,
}

pub(super) fn bound_udp_sockets(machine: &Machine) -> Vec<BoundSocket> {
    let tables = ["/proc/self/net/udp", "/proc/self/net/udp6"];
    let texts = tables.iter().filter_map(|table| machine.read(table));
    let all: Vec<BoundSocket> = texts
        .flat_map(|text| text.lines().skip(1).filter_map(socket).collect::<Vec<_>>())
        .take(MAX_SOCKETS)
        .collect();
    all
}

fn socket(line: &str) -> Option<BoundSocket> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let (_, port) = fields.get(1)?.rsplit_once(':')?;
    Some(BoundSocket {
        port: u16::from_str_radix(port, 16).ok()?,
        user: fields.get(7)?.parse().ok()?,
        inode: fields.get(9)?.parse().ok()?,
    })
}

pub(super) fn owner(machine: &Machine, socket: &BoundSocket) -> Owner {
    let mut here = machine.processes().iter().filter(|it| it.shares_network != Some(false));
    // The user of a daemon is visible even if its sockets are not.
    let by_user = || here.find(|it| it.is_tautline() && it.user == socket.user);
    match machine.owners().get(&socket.inode).or_else(by_user) {
        Some(process) if process.is_tautline() => Owner::Tautline(process.clone()),
        Some(process) => Owner::Other(process.clone()),
        None => Owner::Unknown,
    }
}

/// Whether a daemon is not that of the robot's file. `false` if the daemon of the file answers, or may not
/// be asked.
fn is_other_daemon(machine: &Machine, robot: &Robot, process: &Process) -> bool {
    if robot.status.is_some() || robot.config().is_none() || robot.is_control_closed() {
        return false;
    }
    let full = |path: &Path| path.canonicalize().ok();
    let own = robot.file.as_deref().and_then(full);
    let its = machine.config_file_of(process.id).as_deref().and_then(full);
    own.is_none() || own != its
}

pub(super) fn port(machine: &Machine, robot: &Robot) -> CheckResult {
    let port = robot.port();
    let bound: Vec<BoundSocket> =
        bound_udp_sockets(machine).into_iter().filter(|it| it.port == port).collect();
    let owners: Vec<Owner> = bound.iter().map(|it| owner(machine, it)).collect();
    let mut others = BTreeSet::new();
    for owner in owners {
        match owner {
            Owner::Tautline(process) if is_other_daemon(machine, robot, &process) => {
                let line = machine.read(format!("/proc/{}/cmdline", process.id));
                let line = line.unwrap_or_default().replace('\0', " ");
                let line = tautline_gateway::plain::plain(&line, MAX_COMMAND);
                others.insert(format!("another daemon: process {} ({line})", process.id));
            }
            Owner::Tautline(_) => {}
            Owner::Other(process) => {
                others.insert(process.process_text());
            }
            // The daemon answers, so the socket is the daemon's.
            Owner::Unknown if robot.status.is_some() => {}
            // The socket may be the daemon's.
            Owner::Unknown if robot.is_file_unreadable() || robot.is_control_closed() => {
                return CheckResult::Skipped(super::robot::missing_status_reason(robot));
            }
            Owner::Unknown => {
                others.insert("a process of another user (sudo shows it)".to_owned());
            }
        }
    }
    let why = "The daemon cannot start, or packets of peers go to the other program.";
    let found = others.into_iter().map(|other| {
        let found = format!("UDP port {port} is in use by {other}");
        let free = port.checked_add(OTHER_PORT_DISTANCE).unwrap_or(1024);
        CheckFinding::new(Harm::Stops, found, why).fix("stop the other program").fix(format!(
            "or {}  # and the same port in 'address' at the peers",
            robot.how_to_set("listen", free)
        ))
    });
    CheckResult::Completed(found.collect())
}
