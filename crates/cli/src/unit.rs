// SPDX-License-Identifier: Apache-2.0
//! The systemd units of this machine, as far as commands must know them: their folder and their user.

use std::path::Path;
use tautline::accounts::{User, unit_user};
use tautline::config::SYSTEM_CONTROL_FOLDER;

/// Folder of the units' files and keys.
pub const FOLDER: &str = "/etc/tautline";
/// The robot's file that the unit runs.
pub const FILE: &str = "/etc/tautline/robot.yaml";
/// Folder of the control sockets of the robot's units.
pub const CONTROL_FOLDER: &str = SYSTEM_CONTROL_FOLDER;
/// The robot's unit.
pub const UNIT: &str = "tautline.service";
/// Folders of systemd units; units in an earlier folder precede units in later ones.
pub const FOLDERS: [&str; 3] =
    ["/etc/systemd/system", "/lib/systemd/system", "/usr/lib/systemd/system"];
/// Says that a machine has no peer yet, and names the command that connects it to one.
pub const NOT_PAIRED: &str = "not paired yet: sudo tautline pair";

/// Says that the robot's file is absent, and which command writes it.
pub fn not_paired(file: &Path) -> String {
    format!("{NOT_PAIRED} (there is no {})", file.display())
}

/// Says how to start a daemon on this machine.
pub fn how_to_start() -> &'static str {
    let is_installed = FOLDERS.iter().any(|folder| Path::new(folder).join(UNIT).exists());
    // The folder of the file is closed to most users. For them, it is not known whether the file exists.
    start_advice(is_installed, Path::new(FILE).try_exists().ok())
}

fn start_advice(is_installed: bool, has_file: Option<bool>) -> &'static str {
    match (is_installed, has_file) {
        (false, _) => "start one with: tautline run FILE",
        (true, Some(true)) => "start it with: sudo systemctl start tautline",
        (true, Some(false)) => {
            "this machine is not paired yet: sudo tautline pair (at the base, which shows a code), \
             then sudo tautline pair CODE (on the robot)"
        }
        (true, None) => {
            "start it with: sudo systemctl start tautline (if this machine is not paired yet: sudo \
             tautline pair)"
        }
    }
}

/// Returns the user of the units if root runs this process and a new file at this path is in the units'
/// folder. `None`: the file is for the user of this process.
pub fn new_file_owner(path: &Path) -> Option<User> {
    let is_root = rustix::process::geteuid().is_root();
    unit_user().filter(|_| is_root && is_in_folder(path))
}

/// Whether the file is in the units' folder, by whatever path it is named.
fn is_in_folder(path: &Path) -> bool {
    let folder = path.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let real = |path: &Path| path.canonicalize().ok();
    real(folder).is_some_and(|folder| Some(folder) == real(Path::new(FOLDER)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_daemon_the_error_names_the_start_command() {
        let start = "sudo systemctl start tautline";
        for (is_installed, has_file, words, absent) in [
            (false, Some(true), "tautline run FILE", "systemctl"),
            (true, Some(true), start, "pair"),
            (true, Some(false), "not paired yet: sudo tautline pair", "systemctl"),
            (true, None, start, "run FILE"),
        ] {
            let text = start_advice(is_installed, has_file);
            assert!(text.contains(words) && !text.contains(absent), "{text}");
        }
        assert!(start_advice(true, Some(false)).contains("sudo tautline pair CODE"));
        assert!(start_advice(true, None).contains(NOT_PAIRED));
    }
}
