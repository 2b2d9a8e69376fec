// SPDX-License-Identifier: Apache-2.0
//! A share of a core for a process, by the kernel's CPU controller: cgroup v2 (`cpu.max`), or v1
//! (`cpu.cfs_quota_us`).

use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};

const ROOT: &str = "/sys/fs/cgroup";
/// The smallest quota that the kernel accepts, microseconds. A short quota resembles a slower
/// clock: a process never runs at full speed for longer than this.
const QUOTA_US: u64 = 1000;

/// Groups of processes, each with a limit. The processes have to end before the groups are dropped.
pub struct Groups {
    folder: PathBuf,
    is_v2: bool,
    made: Vec<PathBuf>,
}

impl Groups {
    /// Finds the controller; fails if the machine has none that this program may use.
    pub fn new() -> Result<Self> {
        let name = format!("tautline-lab-{}", std::process::id());
        let v2 = Path::new(ROOT).join("cgroup.controllers");
        let is_v2 = std::fs::read_to_string(v2)
            .is_ok_and(|all| all.split_whitespace().any(|controller| controller == "cpu"));
        let v1 = Path::new(ROOT).join("cpu");
        let folder = if is_v2 { Path::new(ROOT).join(name) } else { v1.join(name) };
        if !is_v2 && !v1.join("cpu.cfs_quota_us").exists() && !v1.join("tasks").exists() {
            bail!(
                "no CPU controller of cgroups at {ROOT} (neither 'cpu' in cgroup.controllers nor {}): \
                 a share of a core cannot be given on this machine",
                v1.display()
            );
        }
        let mut groups = Self { folder, is_v2, made: Vec::new() };
        groups.make(groups.folder.clone())?;
        if is_v2 {
            for place in [Path::new(ROOT), &groups.folder] {
                write(&place.join("cgroup.subtree_control"), "+cpu")?;
            }
        }
        Ok(groups)
    }

    /// Limits a process and its threads to a share of one core.
    pub fn limit(&mut self, name: &str, id: u32, percent: u32) -> Result<()> {
        let group = self.folder.join(name.replace(' ', "-"));
        self.make(group.clone())?;
        let period_us = QUOTA_US * 100 / u64::from(percent.max(1));
        if self.is_v2 {
            write(&group.join("cpu.max"), &format!("{QUOTA_US} {period_us}"))?;
        } else {
            write(&group.join("cpu.cfs_period_us"), &period_us.to_string())?;
            write(&group.join("cpu.cfs_quota_us"), &QUOTA_US.to_string())?;
        }
        write(&group.join("cgroup.procs"), &id.to_string())
    }

    fn make(&mut self, group: PathBuf) -> Result<()> {
        std::fs::create_dir(&group).with_context(|| {
            format!("cannot make the cgroup {} (it needs root)", group.display())
        })?;
        self.made.push(group);
        Ok(())
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        for group in self.made.iter().rev() {
            // A group whose processes have not been reaped yet stays, empty, until a reboot.
            let _ = std::fs::remove_dir(group);
        }
    }
}

fn write(file: &Path, value: &str) -> Result<()> {
    std::fs::write(file, value)
        .with_context(|| format!("cannot write {value} to {}", file.display()))
}
