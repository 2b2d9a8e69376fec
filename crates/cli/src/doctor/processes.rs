// SPDX-License-Identifier: Apache-2.0
//! Processes, and the settings of ROS in their environment. Of an environment, only the variables
//! in [`SETTINGS`] are kept: others may be secrets.

use super::files::Files;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;

/// The variables that are read.
pub(super) const SETTINGS: &[&str] = &[
    "AMENT_PREFIX_PATH",
    "CMAKE_PREFIX_PATH",
    "CYCLONEDDS_URI",
    "FASTDDS_BUILTIN_TRANSPORTS",
    "FASTDDS_DEFAULT_PROFILES_FILE",
    "FASTRTPS_DEFAULT_PROFILES_FILE",
    "RMW_IMPLEMENTATION",
    "ROS_AUTOMATIC_DISCOVERY_RANGE",
    "ROS_DISCOVERY_SERVER",
    "ROS_DISTRO",
    "ROS_DOMAIN_ID",
    "ROS_HOSTNAME",
    "ROS_IP",
    "ROS_LOCALHOST_ONLY",
    "ROS_MASTER_URI",
    "ROS_VERSION",
];
/// Maximum characters of a value.
const MAX_VALUE: usize = 400;
/// Maximum characters of a list of folders.
const MAX_FOLDERS: usize = 16_384;
/// Maximum number of examined processes.
const MAX_PROCESSES: usize = 8192;
/// Maximum number of examined descriptors of one process.
const MAX_DESCRIPTORS: usize = 65_536;
/// Libraries that every program of ROS 2 has.
const LIBRARIES: [&str; 2] = ["librcl", "librmw"];

/// A process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) id: u32,
    /// The name of its program, at most 15 characters.
    pub(super) name: String,
    pub(super) user: u32,
    /// Whether it is in the network of this process; `None` if that is not visible.
    pub(super) shares_network: Option<bool>,
}

impl Process {
    /// Formats `process 812 (talker)`.
    pub(super) fn process_text(&self) -> String {
        format!("process {} ({})", self.id, self.name)
    }

    /// Whether it is a daemon of Tautline.
    pub(super) fn is_tautline(&self) -> bool {
        self.name == "tautline"
    }
}

/// A program of ROS 2.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RosProcess {
    pub(super) process: Process,
    /// The [`SETTINGS`] that are not empty.
    pub(super) settings: BTreeMap<&'static str, String>,
}

impl RosProcess {
    pub(super) fn setting(&self, name: &str) -> Option<&str> {
        self.settings.get(name).map(String::as_str)
    }

    pub(super) fn domain(&self) -> u32 {
        self.setting("ROS_DOMAIN_ID").and_then(|it| it.trim().parse().ok()).unwrap_or(0)
    }
}

/// The programs of ROS 2 that this user can see.
#[derive(Debug, Default)]
pub(super) struct VisibleProcesses {
    /// The programs in the network of this process.
    pub(super) in_this_network: Vec<RosProcess>,
    /// The programs in other networks, such as containers.
    pub(super) in_other_networks: Vec<RosProcess>,
    /// Number of processes of other users, whose environment this user may not read.
    pub(super) hidden: usize,
}

pub(super) fn read_all(files: &Files) -> Vec<Process> {
    let own = files.link("/proc/self/ns/net");
    let numbers = files.list("/proc").into_iter().filter_map(|it| it.parse::<u32>().ok());
    let process = |id: u32| {
        let folder = format!("/proc/{id}");
        let name = files.read(format!("{folder}/comm"))?;
        let name = tautline_gateway::plain::plain(&name, 15);
        let shares_network = match files.is_planted(format!("{folder}/comm")) {
            true => Some(true),
            false => files.link(format!("{folder}/ns/net")).map(|it| Some(it) == own),
        };
        let user = std::fs::metadata(files.path(&folder)).ok()?.uid();
        Some(Process { id, name, user, shares_network })
    };
    numbers.filter_map(process).take(MAX_PROCESSES).collect()
}

pub(super) fn visible_processes(files: &Files, processes: &[Process]) -> VisibleProcesses {
    let mut found = VisibleProcesses::default();
    for process in processes.iter().filter(|it| !it.is_tautline()) {
        let folder = format!("/proc/{}", process.id);
        let denied = |error: std::io::Error| error.kind() == ErrorKind::PermissionDenied;
        if std::fs::File::open(files.path(format!("{folder}/environ"))).is_err_and(denied) {
            found.hidden += 1;
            continue;
        }
        let maps = files.read(format!("{folder}/maps")).unwrap_or_default();
        if !LIBRARIES.iter().any(|library| maps.contains(library)) {
            continue;
        }
        let settings = settings_of(files, process.id);
        let it = RosProcess { process: process.clone(), settings };
        match process.shares_network {
            Some(false) => found.in_other_networks.push(it),
            _ => found.in_this_network.push(it),
        }
    }
    found
}

/// Maps the inodes of sockets to their owners, for all processes in this network.
pub(super) fn socket_owners(files: &Files, processes: &[Process]) -> BTreeMap<u64, Process> {
    let mut all = BTreeMap::new();
    for process in processes.iter().filter(|it| it.shares_network != Some(false)) {
        let folder = files.path(format!("/proc/{}/fd", process.id));
        let descriptors = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let links = descriptors.take(MAX_DESCRIPTORS).filter_map(|it| it.path().read_link().ok());
        let inodes = links.filter_map(|it| {
            let number = it.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?;
            number.parse::<u64>().ok()
        });
        all.extend(inodes.map(|inode| (inode, process.clone())));
    }
    all
}

/// The settings in the environment of a process; none if this user may not read it.
pub(super) fn settings_of(files: &Files, process: u32) -> BTreeMap<&'static str, String> {
    let environment = files.read(format!("/proc/{process}/environ")).unwrap_or_default();
    let entries = environment.split('\0').filter_map(|it| it.split_once('='));
    settings(entries.map(|(name, value)| (name.to_owned(), value.to_owned())))
}

/// Returns the settings among variables, without values that are empty or longer than their limit. Unusual
/// characters are replaced.
pub(super) fn settings(
    variables: impl Iterator<Item = (String, String)>,
) -> BTreeMap<&'static str, String> {
    let known = variables.filter_map(|(name, value)| {
        let known = SETTINGS.iter().find(|it| **it == name)?;
        let most = if name.ends_with("_PATH") { MAX_FOLDERS } else { MAX_VALUE };
        let is_usable = !value.is_empty() && value.len() <= most;
        is_usable.then(|| (*known, tautline_gateway::plain::plain(&value, most)))
    });
    known.collect()
}

/// Names a few processes.
pub(super) fn describe_processes<'a>(processes: impl IntoIterator<Item = &'a Process>) -> String {
    const NAMED: usize = 4;
    let all: Vec<String> = processes.into_iter().map(Process::process_text).collect();
    let more = all.len().saturating_sub(NAMED);
    let mut text = all.into_iter().take(NAMED).collect::<Vec<_>>().join(", ");
    if more > 0 {
        text += &format!(" and {more} more");
    }
    text
}
