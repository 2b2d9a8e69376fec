// SPDX-License-Identifier: Apache-2.0
//! The systemd unit: its state, its user, and its limits.

use super::finding::{CheckFinding, CheckResult, Harm};
use super::machine::{Machine, ProgramOutput};
use super::processes::Process;
use super::robot::Robot;
use crate::unit::{FILE, FOLDERS, UNIT};
use std::path::Path;
use tautline::config::Config;
use tautline::limits::team_bytes;

/// Bit of CAP_SYS_NICE (linux/capability.h).
const SYS_NICE: u32 = 23;
/// Bit of CAP_IPC_LOCK (linux/capability.h).
const IPC_LOCK: u32 = 14;

/// Returns the path of the unit, if it is installed.
pub(super) fn installed_path(machine: &Machine) -> Option<String> {
    let mut paths = FOLDERS.iter().map(|folder| format!("{folder}/{UNIT}"));
    paths.find(|path| machine.exists(path))
}

/// The last value of a key in the unit and its drop-ins.
fn unit_setting(machine: &Machine, key: &str) -> Option<String> {
    let unit = machine.read(installed_path(machine)?)?;
    let mut texts = vec![unit];
    for folder in FOLDERS.iter().rev().map(|it| format!("{it}/{UNIT}.d")) {
        let names = machine.list(&folder).into_iter().filter(|it| it.ends_with(".conf"));
        texts.extend(names.filter_map(|it| machine.read(format!("{folder}/{it}"))));
    }
    let lines = texts.iter().flat_map(|text| text.lines());
    let mut values =
        lines.filter_map(|line| line.trim().strip_prefix(key)?.trim().strip_prefix('='));
    values.next_back().map(|it| it.trim().to_owned())
}

/// The user that runs the daemon, as far as it is known.
#[derive(Debug, Default)]
pub(super) struct User {
    pub(super) name: Option<String>,
    pub(super) id: Option<u32>,
}

/// Returns the user of the running daemon; without a daemon, the user of the unit if the unit runs the
/// robot's file.
pub(super) fn daemon_user(machine: &Machine, robot: &Robot) -> User {
    let accounts = machine.read("/etc/passwd").unwrap_or_default();
    let accounts: Vec<Vec<&str>> = accounts.lines().map(|line| line.split(':').collect()).collect();
    let running = answering_daemon(machine, robot);
    let user = unit_setting(machine, "User").filter(|_| is_run_by_unit(machine, robot));
    if let Some(name) = user.filter(|_| running.is_none()) {
        let entry = accounts.iter().find(|it| it.first() == Some(&name.as_str()));
        let id = entry.and_then(|it| it.get(2)?.parse().ok());
        return User { name: Some(name), id };
    }
    let id = running.map(|it| it.user);
    let entry = accounts
        .iter()
        .find(|it| it.get(2).and_then(|it| it.parse().ok()) == id.or(Some(u32::MAX)));
    User { name: entry.and_then(|it| it.first()).map(|it| (*it).to_owned()), id }
}

/// The daemon of the robot's file, if it answers and is visible.
fn answering_daemon<'a>(machine: &'a Machine, robot: &Robot) -> Option<&'a Process> {
    robot.status.as_ref()?;
    daemon_of(machine, robot)
}

/// The running daemon whose command line names the robot's file; otherwise the only running daemon.
fn daemon_of<'a>(machine: &'a Machine, robot: &Robot) -> Option<&'a Process> {
    let full = |path: &Path| path.canonicalize().ok();
    let file = robot.file.as_deref().and_then(full);
    let processes = machine.processes().iter();
    let is_running = |it: &&Process| {
        it.is_tautline() && it.shares_network == Some(true) && is_daemon(machine, it.id)
    };
    let daemons: Vec<&Process> = processes.filter(is_running).collect();
    let is_of_file = |it: &&&Process| {
        let its = machine.config_file_of(it.id).as_deref().and_then(full);
        its.is_some() && its == file
    };
    let named = daemons.iter().find(is_of_file).copied();
    named.or_else(|| daemons.first().copied().filter(|_| daemons.len() == 1))
}

/// Whether another launcher than the unit started the daemon that answers.
fn has_launcher(machine: &Machine, robot: &Robot) -> bool {
    answering_daemon(machine, robot).is_some_and(|it| {
        let groups = machine.read(format!("/proc/{}/cgroup", it.id)).unwrap_or_default();
        !groups.contains(UNIT)
    })
}

/// Whether the unit starts the daemon with the robot's file.
pub(super) fn is_run_by_unit(machine: &Machine, robot: &Robot) -> bool {
    let command = unit_setting(machine, "ExecStart").unwrap_or_default();
    let started = command.split_whitespace().next_back().map(Path::new);
    started.is_some() && started == robot.file.as_deref()
}

fn is_daemon(machine: &Machine, process: u32) -> bool {
    let line = machine.read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    line.split('\0').nth(1) == Some("run")
}

pub(super) fn state(machine: &Machine, robot: &Robot) -> CheckResult {
    let Some(path) = installed_path(machine) else {
        if robot.file.as_deref() != Some(Path::new(FILE)) || has_launcher(machine, robot) {
            return CheckResult::DoesNotApply("tautline.service is not installed".into());
        }
        let why = "The daemon does not start when the robot is switched on.";
        let found = CheckFinding::new(Harm::Note, format!("{FILE} exists, but no {UNIT}"), why);
        return CheckResult::Completed(vec![
            found.fix("install the package, or see page \"Install\", start at boot"),
        ]);
    };
    let state = match machine.run("systemctl", &["is-failed", UNIT]) {
        // `systemctl is-failed` fails for any state but 'failed'.
        ProgramOutput::Output(text) | ProgramOutput::Failed(text) => text.trim().to_owned(),
        ProgramOutput::Missing => return CheckResult::Skipped("systemctl is not installed".into()),
    };
    if state.contains("bus") || state.contains("booted") {
        return CheckResult::Skipped(format!(
            "systemctl: {}",
            state.lines().next().unwrap_or_default()
        ));
    }
    let mut all = Vec::new();
    if state == "failed" {
        let why = "systemd has stopped to restart the daemon, because it failed several times.";
        let found = CheckFinding::new(Harm::Stops, format!("{UNIT} ({path}) has failed"), why);
        all.push(
            found
                .fix("sudo journalctl -u tautline -n 20  # shows the reason")
                .fix("sudo systemctl reset-failed tautline; sudo systemctl start tautline"),
        );
    }
    let folder = format!("/etc/systemd/system/multi-user.target.wants/{UNIT}");
    let is_enabled = std::fs::symlink_metadata(machine.path(&folder)).is_ok();
    if !is_enabled && !has_launcher(machine, robot) {
        let why = "The daemon does not start when the robot is switched on.";
        let found = CheckFinding::new(Harm::Note, format!("{UNIT} ({path}) is not enabled"), why);
        all.push(found.fix("sudo systemctl enable --now tautline"));
    }
    CheckResult::Completed(all)
}

/// The limits under which the daemon runs.
struct Limits {
    /// Where they were found.
    place: String,
    may_have_priority: bool,
    may_lock: bool,
}

/// The limits of the robot's daemon; without a daemon, the limits of the unit.
fn limits(machine: &Machine, robot: &Robot) -> Option<Limits> {
    if let Some(daemon) = daemon_of(machine, robot) {
        let folder = format!("/proc/{}", daemon.id);
        let status = machine.read(format!("{folder}/status"))?;
        let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
        let effective = u64::from_str_radix(effective.trim(), 16).ok()?;
        let limits = machine.read(format!("{folder}/limits"))?;
        let is_zero = |name: &str| {
            let rest = limits.lines().find_map(|line| line.strip_prefix(name));
            rest.and_then(|it| it.split_whitespace().next()) == Some("0")
        };
        return Some(Limits {
            place: daemon.process_text(),
            may_have_priority: effective >> SYS_NICE & 1 == 1 || !is_zero("Max realtime priority"),
            // The default limit of 8 MB is too small to lock all memory of a daemon.
            may_lock: effective >> IPC_LOCK & 1 == 1
                || limits
                    .lines()
                    .any(|it| it.starts_with("Max locked memory") && it.contains("unlimited")),
        });
    }
    let path = installed_path(machine).filter(|_| is_run_by_unit(machine, robot))?;
    let capabilities = unit_setting(machine, "AmbientCapabilities").unwrap_or_default();
    let is_restricted = unit_setting(machine, "RestrictRealtime").as_deref() == Some("yes");
    let user = unit_setting(machine, "User");
    let is_root = user.as_deref().is_none_or(|it| it == "root");
    Some(Limits {
        place: path,
        may_have_priority: !is_restricted && (is_root || capabilities.contains("CAP_SYS_NICE")),
        may_lock: is_root || capabilities.contains("CAP_IPC_LOCK"),
    })
}

pub(super) fn realtime(machine: &Machine, robot: &Robot) -> CheckResult {
    let Some(config) = robot.config() else {
        return CheckResult::DoesNotApply("no valid file asks for it".into());
    };
    let Some(options) = Some(&config.realtime).filter(|it| it.priority.is_some() || it.lock_memory)
    else {
        return CheckResult::DoesNotApply("the file does not set 'realtime'".into());
    };
    let Some(limits) = limits(machine, robot) else {
        return CheckResult::Skipped("neither a daemon nor its unit shows its limits".into());
    };
    let mut missing = Vec::new();
    if options.priority.is_some() && !limits.may_have_priority {
        missing.push("'priority' (CAP_SYS_NICE, or a limit RTPRIO above 0)");
    }
    if options.lock_memory && !limits.may_lock {
        missing.push("'lock_memory' (CAP_IPC_LOCK, or an unlimited MEMLOCK)");
    }
    if missing.is_empty() {
        return CheckResult::Completed(Vec::new());
    }
    let found = CheckFinding::new(
        Harm::Delays,
        format!("{} may not use {}", limits.place, missing.join(" and ")),
        "The daemon continues without it: on a busy processor its packets wait for other programs.",
    );
    CheckResult::Completed(vec![match installed_path(machine) {
        Some(_) => found
            .fix("sudo mkdir -p /etc/systemd/system/tautline.service.d")
            .fix(
                "sudo cp /usr/share/doc/tautline/examples/drop-ins/realtime.conf \
                 /etc/systemd/system/tautline.service.d/",
            )
            .fix("sudo systemctl daemon-reload; sudo systemctl restart tautline"),
        None => found.fix("sudo setcap cap_sys_nice,cap_ipc_lock+ep /usr/bin/tautline"),
    }])
}

/// Bytes that a daemon needs if its peers reach every limit.
fn needed_memory(config: &Config) -> u64 {
    let relayed = config.peers.iter().filter(|it| it.relay).count();
    let (queue, reassembly) = (config.limits.queue_bytes, config.limits.reassembly_bytes);
    team_bytes(config.peers.len(), relayed, queue, reassembly) as u64
}

/// Parses a size of systemd, such as `1G`; `None` without a limit.
fn size(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|it: char| !it.is_ascii_digit());
    let scale = match &text[digits.len()..] {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_shl(scale)
}

pub(super) fn memory(machine: &Machine, robot: &Robot) -> CheckResult {
    let (Some(config), Some(path)) = (robot.config(), installed_path(machine)) else {
        return CheckResult::DoesNotApply("no valid file, or no unit".into());
    };
    let Some(limit) = unit_setting(machine, "MemoryMax").and_then(|it| size(&it)) else {
        return CheckResult::DoesNotApply(format!("{path} has no MemoryMax"));
    };
    let needed = needed_memory(config);
    if needed <= limit {
        return CheckResult::Completed(Vec::new());
    }
    let mebibytes = |bytes: u64| bytes.div_ceil(1 << 20);
    let found = CheckFinding::new(
        Harm::Note,
        format!(
            "MemoryMax of {path} is {} MiB; {} peers that reach every limit take {} MiB",
            mebibytes(limit),
            config.peers.len(),
            mebibytes(needed)
        ),
        "Peers that follow the protocol take little of it. If some are not trusted: systemd ends a \
         daemon that takes more, and all queued messages are lost.",
    );
    let raise =
        format!("MemoryMax={}M  # sudo systemctl edit tautline, in [Service]", mebibytes(needed));
    CheckResult::Completed(vec![found.fix(raise).fix(format!(
        "or in {}: set smaller limits.queue_bytes and limits.reassembly_bytes",
        robot.file_name()
    ))])
}
