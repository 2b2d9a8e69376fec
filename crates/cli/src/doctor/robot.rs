// SPDX-License-Identifier: Apache-2.0
//! The robot: its file, its daemon, and the paths to its peers.

use super::machine::{Machine, interface_path};
use crate::interfaces::has_container_interface_name;
use std::collections::BTreeSet;
use std::fmt::Display;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::mpsc;
use std::time::Duration;
use tautline::config::{Checked, Config, ConfigError, DEFAULT_PORT, LinkConfig};
use tautline::paths::{self, Path};
use tautline::status::Status;

/// Maximum time for the resolution of a host name.
const RESOLUTION_TIME: Duration = Duration::from_secs(6);
/// Maximum number of examined links.
const MAX_LINKS: usize = 64;

/// The known facts about the robot.
#[derive(Debug, Default)]
pub struct Robot {
    /// The robot's file, if there is one.
    pub file: Option<PathBuf>,
    /// The contents of the file, or its mistakes.
    pub loaded: Option<Result<Checked, ConfigError>>,
    /// The state of the daemon.
    pub status: Option<Status>,
    /// Why the status is missing; empty if it is known.
    pub status_error: String,
    routes: OnceLock<Vec<Route>>,
}

/// The route to a peer.
#[derive(Debug, Clone)]
pub(super) struct Route {
    pub(super) peer: String,
    pub(super) link: LinkConfig,
    /// The address of the peer, or why its name does not resolve.
    pub(super) address: Result<IpAddr, String>,
    /// The path in the routing table; the error of the system if there is no route.
    pub(super) path: Option<Result<Path, String>>,
}

impl Robot {
    /// Returns a robot with its file, if it has one, and with its daemon's state, or the reason why there
    /// is none.
    pub fn new(
        file: Option<PathBuf>,
        mut loaded: Option<Result<Checked, ConfigError>>,
        status: Result<Status, String>,
    ) -> Self {
        if let (Some(Ok(checked)), Ok(status)) = (&mut loaded, &status) {
            take_surroundings(&mut checked.config, status);
        }
        let (status, status_error) = match status {
            Ok(status) => (Some(status), String::new()),
            Err(text) => (None, text),
        };
        Self { file, loaded, status, status_error, routes: OnceLock::new() }
    }

    /// Returns the valid file, if there is one.
    pub fn config(&self) -> Option<&Config> {
        self.loaded.as_ref()?.as_ref().ok().map(|it| &it.config)
    }

    /// Whether there is a file that this user may not read.
    pub fn is_file_unreadable(&self) -> bool {
        let Some(Err(ConfigError::Unreadable { cause, .. })) = &self.loaded else { return false };
        cause.kind() == ErrorKind::PermissionDenied && !rustix::process::geteuid().is_root()
    }

    /// Whether the daemon's control socket is closed to this user.
    pub(super) fn is_control_closed(&self) -> bool {
        // The socket or its folder is closed to this user.
        ["ermission denied", "may not read"].iter().any(|it| self.status_error.contains(it))
    }

    /// The name of the file, for lines that a person edits.
    pub(super) fn file_name(&self) -> String {
        self.file.as_ref().map_or("the robot's file".into(), |it| it.display().to_string())
    }

    /// Says how to change one key of the file. The text is no line to add, because a file may not have a
    /// key twice.
    pub(super) fn how_to_set(&self, key: &str, value: impl Display) -> String {
        how_to_set_key(&self.file_name(), key, value)
    }

    /// Whether the daemon exchanges packets with a peer.
    pub(super) fn is_up(&self, peer: &str) -> bool {
        let mut peers = self.status.iter().flat_map(|it| &it.peers);
        peers.any(|it| it.name == peer && it.state == "up")
    }

    /// The UDP port of the daemon.
    pub(super) fn port(&self) -> u16 {
        self.config().map_or(DEFAULT_PORT, |it| it.listen.port())
    }

    /// The paths to all peers with an address.
    pub(super) fn routes(&self) -> &[Route] {
        self.routes.get_or_init(|| {
            let peers = self.config().map(|it| &it.peers[..]).unwrap_or_default();
            let links = peers.iter().flat_map(|peer| peer.links.iter().map(|it| (&peer.name, it)));
            links.take(MAX_LINKS).map(|(peer, link)| route(peer, link)).collect()
        })
    }

    /// The interfaces that the file names, or that routes to peers use.
    pub(super) fn named_interfaces(&self) -> Vec<String> {
        let configured = self.config().into_iter().flat_map(|it| {
            let links = it.peers.iter().flat_map(|peer| &peer.links);
            let radios = it.radios.iter().map(|it| it.interface.clone());
            radios.chain(links.filter_map(|link| link.interface.clone())).collect::<Vec<_>>()
        });
        let routed = self.routes().iter().filter_map(|it| it.path.as_ref()?.as_ref().ok());
        let all = configured.chain(routed.map(|path| path.interface.clone()));
        let all: BTreeSet<String> = all.filter(|name| name != "lo").collect();
        all.into_iter().collect()
    }

    /// The interfaces that the file names or routes use; without any, all interfaces that may lead to
    /// peers.
    pub(super) fn interfaces(&self, machine: &Machine) -> Vec<String> {
        let named = self.named_interfaces();
        if !named.is_empty() {
            return named;
        }
        let addressed = machine.addresses().into_iter().map(|(name, _)| name);
        let is_outside = |name: &String| {
            name != "lo"
                && !has_container_interface_name(name)
                && !machine.exists(interface_path(name, "bridge"))
        };
        let all: BTreeSet<String> = addressed.filter(is_outside).collect();
        all.into_iter().collect()
    }
}

/// Says how to change one key of a file.
pub(super) fn how_to_set_key(file: &str, key: &str, value: impl Display) -> String {
    format!("in {file}: set {key} to {value}")
}

/// Takes the master and the domain from the daemon's state. If the file does not set them,
/// the daemon's environment does, which may differ from that of this shell.
fn take_surroundings(config: &mut Config, status: &Status) {
    let location = |kind: &str| {
        status.gateways.iter().find(|it| it.kind == kind).map(|it| it.location.as_str())
    };
    if let (Some(ros1), Some(master)) = (&mut config.ros1, location("ros1")) {
        ros1.master = master.into();
    }
    if let (Some(ros2), Some(location)) = (&mut config.ros2, location("ros2")) {
        let number = location.strip_prefix("domain ").and_then(|it| it.split(',').next());
        ros2.domain = number.and_then(|it| it.parse().ok()).unwrap_or(ros2.domain);
        ros2.localhost = location.ends_with("localhost");
    }
}

fn route(peer: &str, link: &LinkConfig) -> Route {
    let address = resolve(&link.host, link.port);
    let path = address.as_ref().ok().map(|it| {
        let found = paths::route(*it, link.interface.as_deref(), link.mtu);
        found.map_err(|error| error.to_string())
    });
    Route { peer: peer.into(), link: link.clone(), address: address.map(|it| it.ip()), path }
}

/// Resolves a host name on a thread of its own, since a name server that does not answer takes long.
pub(super) fn resolve(host: &str, port: u16) -> Result<SocketAddr, String> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(SocketAddr::new(address, port));
    }
    let (sender, receiver) = mpsc::channel();
    let host = host.to_owned();
    std::thread::spawn(move || {
        let found = (host.as_str(), port).to_socket_addrs().map(|mut all| all.next());
        let _ = sender.send(found);
    });
    match receiver.recv_timeout(RESOLUTION_TIME) {
        Ok(Ok(Some(address))) => Ok(address),
        Ok(Ok(None)) => Err("it has no address".into()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no answer within {} s", RESOLUTION_TIME.as_secs())),
    }
}

/// Says that this user may not read the robot's file.
pub(super) fn unreadable_file_note(robot: &Robot) -> String {
    let file = robot.file_name();
    let named = if file == crate::unit::FILE { String::new() } else { format!(" {file}") };
    format!("this user may not read {file}: sudo tautline doctor{named}")
}

/// Says why the daemon's state is not known.
pub fn missing_status_reason(robot: &Robot) -> String {
    if robot.is_file_unreadable() {
        // The file names the daemon's socket.
        unreadable_file_note(robot)
    } else if robot.is_control_closed() {
        "this user may not use the daemon's control socket: sudo tautline doctor".into()
    } else {
        "no daemon answers".into()
    }
}
