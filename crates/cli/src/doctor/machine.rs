// SPDX-License-Identifier: Apache-2.0
//! The machine: its files, and what they say about its processes, each read only once.

use super::files::Files;
pub(super) use super::files::{ProgramOutput, interface_path};
use super::masters::{self, Nodes};
use super::processes::{self, Process, VisibleProcesses};
use super::settings::RosSettings;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

/// The machine that is examined.
#[derive(Debug, Default)]
pub struct Machine {
    files: Files,
    processes: OnceLock<Vec<Process>>,
    visible: OnceLock<VisibleProcesses>,
    settings: OnceLock<RosSettings>,
    owners: OnceLock<BTreeMap<u64, Process>>,
    /// The nodes of each master, or its error, by the master's address.
    masters: Mutex<BTreeMap<String, Result<Nodes, String>>>,
}

impl Deref for Machine {
    type Target = Files;

    fn deref(&self) -> &Files {
        &self.files
    }
}

impl Machine {
    /// Returns this machine; files below `planted` precede its own (`planted/proc/...`).
    pub fn new(planted: Option<PathBuf>) -> Self {
        Self { files: Files::new(planted), ..Self::default() }
    }

    /// The processes of this machine.
    pub(super) fn processes(&self) -> &[Process] {
        self.processes.get_or_init(|| processes::read_all(&self.files))
    }

    /// Returns the file of the only daemon in this network, as its command line names it.
    pub fn daemon_file(&self) -> Option<PathBuf> {
        let daemons = self.processes().iter();
        let here = daemons.filter(|it| it.is_tautline() && it.shares_network == Some(true));
        let files: BTreeSet<PathBuf> = here.filter_map(|it| self.config_file_of(it.id)).collect();
        files.first().filter(|_| files.len() == 1).cloned()
    }

    /// The file of a daemon, as its command line names it.
    pub(super) fn config_file_of(&self, daemon: u32) -> Option<PathBuf> {
        let line = self.read(format!("/proc/{daemon}/cmdline"))?;
        let mut words = line.split('\0').skip(1);
        let is_run = words.next() == Some("run");
        let folder = self.link(format!("/proc/{daemon}/cwd")).unwrap_or_default();
        let named = words.map(|word| Path::new(&folder).join(word));
        // Values of options do not end like the name of a file.
        let mut files =
            named.filter(|it| it.extension().is_some_and(|it| it == "yaml" || it == "yml"));
        files.next().filter(|it| is_run && it.is_file())
    }

    /// The programs of ROS 2 among the processes.
    pub(super) fn visible_processes(&self) -> &VisibleProcesses {
        self.visible.get_or_init(|| processes::visible_processes(&self.files, self.processes()))
    }

    /// The settings of ROS that apply on this machine.
    pub fn ros_settings(&self) -> &RosSettings {
        self.settings.get_or_init(|| {
            RosSettings::find_settings(&self.files, self.processes(), self.visible_processes())
        })
    }

    /// The owners of sockets, by inodes.
    pub(super) fn owners(&self) -> &BTreeMap<u64, Process> {
        self.owners.get_or_init(|| processes::socket_owners(&self.files, self.processes()))
    }

    /// The nodes at a master, which is asked once.
    pub(super) fn nodes_of(&self, master: &str) -> Result<Nodes, String> {
        let mut masters = self.masters.lock().unwrap_or_else(PoisonError::into_inner);
        masters.entry(master.into()).or_insert_with(|| masters::nodes_of(master)).clone()
    }
}
