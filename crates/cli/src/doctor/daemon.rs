// SPDX-License-Identifier: Apache-2.0
//! The robot's file, its key and its daemon.

use super::finding::{CheckFinding, CheckResult, Harm};
use super::links::OTHER_PROTOCOL;
use super::machine::Machine;
use super::robot::Robot;
use super::unit;
use crate::unit::FILE;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use tautline::config::{ConfigError, Security};

/// Maximum number of listed mistakes and warnings of the file.
const MAX_LISTED: usize = 10;
/// This program's version.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Whether the package is installed, and nothing else has been done.
pub(super) fn is_unpaired(machine: &Machine, robot: &Robot) -> bool {
    robot.file.is_none() && robot.status.is_none() && unit::installed_path(machine).is_some()
}

fn not_paired() -> CheckFinding {
    let found = CheckFinding::new(
        Harm::Stops,
        crate::unit::not_paired(Path::new(FILE)),
        "The service starts once the file exists; without a peer, nothing is carried.",
    );
    found
        .fix("sudo tautline pair  # at the base: shows a code, and waits")
        .fix("sudo tautline pair CODE  # on the robot, with that code")
}

pub(super) fn file(machine: &Machine, robot: &Robot) -> CheckResult {
    let file = robot.file_name();
    match &robot.loaded {
        None if is_unpaired(machine, robot) => CheckResult::Completed(vec![not_paired()]),
        None => CheckResult::DoesNotApply(
            "there is no file of this robot (sudo tautline pair writes one for two machines, \
             tautline init one to start from)"
                .into(),
        ),
        Some(Err(_)) if robot.is_file_unreadable() => {
            CheckResult::Skipped(super::robot::unreadable_file_note(robot))
        }
        Some(Err(ConfigError::Unreadable { cause, .. })) => {
            let found = CheckFinding::new(
                Harm::Stops,
                format!("{file} cannot be read: {cause}"),
                "Without its file, the daemon does not start.",
            );
            CheckResult::Completed(vec![
                found.fix(format!("sudo ls -l {file}  # the daemon's user must read it")),
            ])
        }
        Some(Err(error @ ConfigError::Invalid { .. })) => {
            let why = "The daemon does not start with a file that has a mistake (exit code 78).";
            let found = CheckFinding::new(Harm::Stops, error.to_string(), why);
            CheckResult::Completed(vec![
                found.fix(format!("edit {file}; then: sudo tautline check {file}")),
            ])
        }
        Some(Ok(checked)) => {
            let warnings = checked.warnings.iter().take(MAX_LISTED);
            let found = warnings.map(|it| {
                let why = "The value is valid, but probably not meant.";
                let found = CheckFinding::new(Harm::Note, format!("{file}:{it}"), why);
                found.fix(format!("edit line {} of {file}", it.at.line))
            });
            CheckResult::Completed(found.collect())
        }
    }
}

pub(super) fn key_file(machine: &Machine, robot: &Robot) -> CheckResult {
    let Some(config) = robot.config() else {
        return CheckResult::DoesNotApply("no valid file names a key".into());
    };
    let Security::Keys(path) = &config.security else {
        let found = CheckFinding::new(
            Harm::Note,
            format!("'security: none' in {}", robot.file_name()),
            "Anybody on the network can act as any node of the team.",
        );
        let file = robot.file_name();
        let folder = Path::new(&file).parent().unwrap_or(Path::new(""));
        let key = folder.join(format!("{}.key", config.name));
        let make = format!("sudo tautline keygen {}", key.display());
        return CheckResult::Completed(vec![
            found.fix(make).fix(format!("in {file}: remove the line 'security: none'")),
        ]);
    };
    let shown = path.display();
    let user = unit::daemon_user(machine, robot);
    let metadata = match std::fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let why = "Without its key, the daemon does not start.";
            let found = CheckFinding::new(Harm::Stops, format!("{shown} does not exist"), why);
            let found = found.fix(format!("sudo tautline keygen {shown}"));
            let owner = user.name.filter(|it| it != "root");
            return CheckResult::Completed(vec![match owner {
                Some(owner) => found.fix(format!("sudo chown {owner} {shown}")),
                None => found,
            }]);
        }
        Err(error) => {
            return CheckResult::Skipped(format!("{shown}: {error}: sudo tautline doctor"));
        }
    };
    let mut all = Vec::new();
    let mode = metadata.mode() & 0o777;
    if mode & 0o077 != 0 {
        let found = CheckFinding::new(
            Harm::Stops,
            format!("{shown} has permissions {mode:03o}"),
            "The daemon refuses a key that other users can read or change: they could act as this \
             robot.",
        );
        all.push(
            found
                .fix(format!("sudo chmod 600 {shown}"))
                .fix("if another user may have read it: make a new key (page \"Keys\")"),
        );
    }
    if let Some(id) = user.id.filter(|id| metadata.uid() != *id) {
        let name = user.name.unwrap_or_else(|| id.to_string());
        let found = CheckFinding::new(
            Harm::Stops,
            format!("{shown} belongs to the user with id {}", metadata.uid()),
            format!(
                "The daemon runs as {name}; it cannot read a key of another user, or refuses it."
            ),
        );
        all.push(found.fix(format!("sudo chown {name} {shown}")));
    }
    CheckResult::Completed(all)
}

pub(super) fn running(machine: &Machine, robot: &Robot) -> CheckResult {
    match (&robot.status, &robot.loaded) {
        (Some(status), _) => CheckResult::Completed(gateway_findings(status)),
        (None, None) => {
            CheckResult::DoesNotApply("no file of this robot, so that no daemon should run".into())
        }
        (None, Some(_)) if robot.is_file_unreadable() || robot.is_control_closed() => {
            CheckResult::Skipped(super::robot::missing_status_reason(robot))
        }
        (None, Some(_)) => {
            // The text up to the first line end or semicolon is the reason; the fixes follow.
            let reason = robot.status_error.split(['\n', ';']).next().unwrap_or_default();
            let found = CheckFinding::new(
                Harm::Stops,
                reason,
                "Only a running daemon carries topics. Checks of its peers could not be made.",
            );
            let found = found.fix(super::how_to_start(machine, robot));
            CheckResult::Completed(vec![match unit::is_run_by_unit(machine, robot) {
                true => found.fix("if it ends: sudo journalctl -u tautline -n 20"),
                false => found,
            }])
        }
    }
}

/// Returns findings about gateways that do not reach their ROS or do not see some nodes.
fn gateway_findings(status: &tautline::status::Status) -> Vec<CheckFinding> {
    let troubled = status.gateways.iter().filter(|it| !it.trouble.is_empty());
    let found = troubled.map(|it| {
        let harm = if it.connected { Harm::Delays } else { Harm::Stops };
        let found = format!("the daemon at {} {}: {}", it.kind, it.location, it.trouble);
        let found = CheckFinding::new(harm, found, "Topics of these nodes are not carried.");
        found.fix(match it.kind.as_str() {
            "ros1" => "see what 'ros1-master' and 'ros1-names' found",
            _ => "see what 'ros2-domain' or 'dds-...' found (page \"DDS settings\")",
        })
    });
    found.collect()
}

pub(super) fn versions(_: &Machine, robot: &Robot) -> CheckResult {
    let Some(status) = &robot.status else {
        return CheckResult::Skipped(super::robot::missing_status_reason(robot));
    };
    let mut all = Vec::new();
    if status.version != VERSION {
        let found = CheckFinding::new(
            Harm::Wastes,
            format!("the daemon has version {}, this program {VERSION}", status.version),
            "The daemon was not restarted after an upgrade, so that it lacks its corrections.",
        );
        all.push(found.fix("sudo systemctl restart tautline"));
    }
    let notices = status.notices.iter().filter(|it| it.contains(OTHER_PROTOCOL));
    all.extend(notices.map(|notice| {
        let why = "Nodes with different versions of the wire format exchange no messages.";
        let found = CheckFinding::new(Harm::Stops, notice, why);
        found.fix("install the same release of tautline on both machines, and restart both daemons")
    }));
    CheckResult::Completed(all)
}
