// SPDX-License-Identifier: Apache-2.0
//! Inputs of the configuration from outside the file. They are gathered once, so that reading a
//! file is a pure function of the file and these inputs.

use super::launch::Launch;
use super::table::DEFAULT_NODE_NAME;
use std::path::{Path, PathBuf};

/// Environment of the process and properties of the machine.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Surroundings {
    /// Folder of the robot's file.
    pub folder: PathBuf,
    /// ROS_NAMESPACE.
    pub ros_namespace: Option<String>,
    /// Full ROS name of this node, from the program that launched it.
    pub node_name: Option<String>,
    /// ROS_MASTER_URI.
    pub ros_master_uri: Option<String>,
    /// ROS_HOSTNAME.
    pub ros_hostname: Option<String>,
    /// ROS_IP.
    pub ros_ip: Option<String>,
    /// CMAKE_PREFIX_PATH, which ROS 1 sets.
    pub cmake_prefix_path: Option<String>,
    /// ROS_PACKAGE_PATH, which ROS 1 sets as well.
    pub ros_package_path: Option<String>,
    /// ROS_DOMAIN_ID.
    pub ros_domain_id: Option<String>,
    /// ROS_AUTOMATIC_DISCOVERY_RANGE.
    pub ros_discovery_range: Option<String>,
    /// ROS_LOCALHOST_ONLY, the predecessor of ROS_AUTOMATIC_DISCOVERY_RANGE in ROS 2.
    pub ros_localhost_only: Option<String>,
    /// AMENT_PREFIX_PATH.
    pub ament_prefix_path: Option<String>,
    /// XDG_RUNTIME_DIR.
    pub runtime_folder: Option<PathBuf>,
    /// LOGS_DIRECTORY, which systemd sets; the first folder if it lists several.
    pub logs_folder: Option<PathBuf>,
    /// STATE_DIRECTORY, which systemd sets; the first folder if it lists several.
    pub state_folder: Option<PathBuf>,
    /// Name of the machine; `None` if the system reports none.
    pub host_name: Option<String>,
    /// Names of the network interfaces; `None` if unknown.
    pub interfaces: Option<Vec<String>>,
}

/// Folder of audit logs if LOGS_DIRECTORY is not set.
pub const SYSTEM_LOGS_FOLDER: &str = "/var/log/tautline";

/// Folder of the files that survive a restart, if STATE_DIRECTORY is not set.
pub const SYSTEM_STATE_FOLDER: &str = "/var/lib/tautline";

/// Folder of control sockets of robots if XDG_RUNTIME_DIR is not set.
pub const SYSTEM_CONTROL_FOLDER: &str = "/run/tautline";

/// Folder of control sockets of relays if XDG_RUNTIME_DIR is not set. A relay's systemd unit has a
/// folder of its own, so that the folder stays when a robot's unit ends.
pub const RELAY_CONTROL_FOLDER: &str = "/run/tautline-relay";

impl Surroundings {
    /// Returns the surroundings of this process, for a file at this path.
    pub fn current(file: &Path) -> Self {
        let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        Self {
            folder: file.parent().unwrap_or(Path::new("")).into(),
            ros_namespace: variable("ROS_NAMESPACE"),
            node_name: None,
            ros_master_uri: variable("ROS_MASTER_URI"),
            ros_hostname: variable("ROS_HOSTNAME"),
            ros_ip: variable("ROS_IP"),
            cmake_prefix_path: variable("CMAKE_PREFIX_PATH"),
            ros_package_path: variable("ROS_PACKAGE_PATH"),
            ros_domain_id: variable("ROS_DOMAIN_ID"),
            ros_discovery_range: variable("ROS_AUTOMATIC_DISCOVERY_RANGE"),
            ros_localhost_only: variable("ROS_LOCALHOST_ONLY"),
            ament_prefix_path: variable("AMENT_PREFIX_PATH"),
            runtime_folder: variable("XDG_RUNTIME_DIR")
                .map(PathBuf::from)
                .filter(|path| path.is_absolute()),
            logs_folder: variable("LOGS_DIRECTORY").and_then(|all| first_folder(&all)),
            state_folder: variable("STATE_DIRECTORY").and_then(|all| first_folder(&all)),
            host_name: machine_name(),
            interfaces: interfaces(),
        }
    }

    /// Returns these surroundings, overridden by what the launching program says.
    #[must_use]
    pub fn launched(self, launch: &Launch) -> Self {
        let Launch { master, hostname, ip, .. } = launch.clone();
        let is_placed = hostname.is_some() || ip.is_some();
        Self {
            node_name: launch.node_name(self.ros_namespace.as_deref(), DEFAULT_NODE_NAME),
            ros_master_uri: master.or(self.ros_master_uri),
            ros_hostname: hostname.or(self.ros_hostname.filter(|_| !is_placed)),
            ros_ip: ip.or(self.ros_ip),
            ..self
        }
    }

    /// Returns the default control socket of node `name`.
    pub fn control_socket(&self, name: &str) -> PathBuf {
        self.control_socket_in(SYSTEM_CONTROL_FOLDER, name)
    }

    /// Returns the default control socket of relay `name`.
    pub fn relay_control_socket(&self, name: &str) -> PathBuf {
        self.control_socket_in(RELAY_CONTROL_FOLDER, name)
    }

    fn control_socket_in(&self, system_folder: &str, name: &str) -> PathBuf {
        let file = format!("{name}.sock");
        match &self.runtime_folder {
            Some(folder) => folder.join("tautline").join(file),
            None => Path::new(system_folder).join(file),
        }
    }

    /// Returns the folders that are searched for control sockets, the most likely first.
    pub fn control_folders(&self) -> Vec<PathBuf> {
        let own = self.runtime_folder.iter().map(|folder| folder.join("tautline"));
        own.chain([SYSTEM_CONTROL_FOLDER, RELAY_CONTROL_FOLDER].map(PathBuf::from)).collect()
    }
}

fn first_folder(all: &str) -> Option<PathBuf> {
    all.split(':').next().map(PathBuf::from).filter(|path| path.is_absolute())
}

fn machine_name() -> Option<String> {
    let system = rustix::system::uname();
    let name = system.nodename().to_str().ok()?;
    Some(name.to_owned()).filter(|name| !name.is_empty() && name != "(none)")
}

fn interfaces() -> Option<Vec<String>> {
    let entries = std::fs::read_dir("/sys/class/net").ok()?;
    Some(entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect())
}
