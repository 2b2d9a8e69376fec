// SPDX-License-Identifier: Apache-2.0
//! This machine: its file, key, addresses and ROS.

use super::arguments::Arguments;
use super::folder::Folder;
use super::ros::{self, DetectedRos};
use crate::cli::Failure;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tautline::accounts::{Owner, unit_user};
use tautline::config::kind::{MAX_NODE_NAME, is_node_name};
use tautline::config::{self, Config, ConfigError, DEFAULT_PORT, Security, Surroundings};
use tautline::keys::{self, KeyFileError};
use tautline_cli::interfaces;
use tautline_cli::pairing::facts::{Facts, MAX_ADDRESSES, MAX_LISTED, TopicFact, is_name, is_type};
use tautline_cli::pairing::plan::{requested_base_topics, sort_by_usefulness};
use tautline_cli::unit;
use tautline_proto::{SecretKey, wire};

/// A file that exists.
pub struct ExistingFile {
    pub text: String,
    pub config: Config,
}

/// This machine.
pub struct LocalMachine {
    pub name: String,
    pub file: PathBuf,
    pub old: Option<ExistingFile>,
    /// The folders of the file and of its key, locked; none in a trial.
    pub folders: Vec<Arc<Folder>>,
    pub key_file: PathBuf,
    pub key: SecretKey,
    /// Whether the key has no file yet.
    pub key_is_new: bool,
    /// Owner of new files; `None`: the user of this program.
    pub owner: Option<Owner>,
    pub ros: DetectedRos,
    /// UDP port on which the daemon listens.
    pub port: u16,
    pub dry_run: bool,
}

/// Whether the file is that of the systemd unit, whose daemon does not inherit this environment.
pub fn is_unit_file(file: &Path) -> bool {
    file == Path::new(unit::FILE)
}

/// The surroundings of the daemon that will read the file.
pub fn surroundings(file: &Path) -> Surroundings {
    let own = Surroundings::current(file);
    match is_unit_file(file) {
        true => Surroundings {
            folder: own.folder,
            host_name: own.host_name,
            interfaces: own.interfaces,
            ..Surroundings::default()
        },
        false => own,
    }
}

/// The folder of a file.
fn folder_of(file: &Path) -> PathBuf {
    let folder = file.parent().filter(|it| !it.as_os_str().is_empty());
    folder.unwrap_or(Path::new(".")).to_owned()
}

impl LocalMachine {
    /// Reads the settings of this machine; writes nothing.
    pub fn read_settings(arguments: &Arguments) -> Result<Self, Failure> {
        let file = arguments.file.clone();
        let folder = folder_of(&file);
        let mut folders = Vec::new();
        if !arguments.dry_run {
            folders.push(Folder::open_locked(&folder, &folders)?);
        }
        let old = read(&file)?;
        let name = name(arguments.name.as_deref(), old.as_ref())?;
        let key_file = match old.as_ref().map(|it| &it.config.security) {
            Some(Security::Keys(path)) => path.clone(),
            Some(Security::None) => {
                return Err(Failure::new(format!(
                    "{}: found 'security: none', under which keys have no effect; remove this line \
                     first",
                    file.display()
                )));
            }
            None => folder.join(format!("{name}.key")),
        };
        let of_key = folder_of(&key_file);
        if !arguments.dry_run && of_key != folder {
            folders.push(Folder::open_locked(&of_key, &folders)?);
        }
        let user = rustix::process::geteuid();
        let of_unit = unit_user().filter(|_| is_unit_file(&file));
        let owner = of_unit.map(|it| it.owner).filter(|_| user.is_root());
        let key_owner = owner.map_or(user.as_raw(), |(user, _)| user);
        let (key, key_is_new) = match keys::load_for_user(&key_file, key_owner) {
            Ok(key) => (key, false),
            Err(KeyFileError::Missing(_)) => (keys::random_key().map_err(Failure::new)?, true),
            Err(error) => return Err(Failure::new(error)),
        };
        let config = old.as_ref().map(|it| &it.config);
        let port = config.map_or(DEFAULT_PORT, |it| it.listen.port());
        let ros = ros::find_ros(&arguments.ros, config, !is_unit_file(&file))?;
        let dry_run = arguments.dry_run;
        Ok(Self { name, file, old, folders, key_file, key, key_is_new, owner, ros, port, dry_run })
    }

    /// Returns the locked folder of one of this machine's files, and the file's name in the folder.
    pub fn place_of<'a>(&self, file: &'a Path) -> Result<(&Arc<Folder>, &'a OsStr), Failure> {
        let folder = folder_of(file);
        let held = self.folders.iter().find(|it| it.path() == folder);
        let place = held.zip(file.file_name());
        place.ok_or_else(|| Failure::new(format!("{}: names no file", file.display())))
    }

    /// Returns the facts for the other end. A base already has the facts of the `robot`.
    pub fn facts(&self, robot: Option<&Facts>) -> Facts {
        let asked = robot.map(requested_base_topics);
        let is_asked = |name: &String| asked.as_ref().is_none_or(|asked| asked.contains(name));
        let all = self.ros.graph.topics.iter();
        let usable = all.filter(|(name, it)| {
            let is_told = (robot.is_none() || it.published) && is_asked(name);
            is_told && is_name(name) && is_type(&it.type_name)
        });
        let topics = usable.map(|(name, it)| TopicFact {
            name: name.clone(),
            type_name: it.type_name.clone(),
            published: it.published,
            subscribed: it.subscribed,
        });
        let taken = robot.map_or(Vec::new(), |robot| self.topics_sent_to_others(&robot.name));
        let mut facts = Facts {
            name: self.name.clone(),
            key: self.key.public().to_string(),
            port: self.port,
            // Also addresses towards containers: a robot in a container reaches this machine at such an
            // address.
            addresses: own_addresses().iter().map(|it| it.ip).take(MAX_ADDRESSES).collect(),
            version: env!("CARGO_PKG_VERSION").into(),
            wire: wire::VERSION,
            ros: self.ros.ros.clone(),
            topics: Vec::new(),
            services: self.ros.graph.services.len(),
            left_out: 0,
            taken: taken.into_iter().filter(is_asked).take(MAX_LISTED).collect(),
            dry_run: self.dry_run,
        };
        facts.list(sort_by_usefulness(topics.collect()));
        facts
    }

    /// Returns the name of another peer of the file that has this host with the port of `facts`. Two links
    /// to one address are not valid.
    pub fn other_peer_with_host(&self, host: &str, facts: &Facts) -> Option<String> {
        let peers = self.old.iter().flat_map(|it| &it.config.peers);
        let has_it = |links: &[config::LinkConfig]| {
            links.iter().any(|it| it.host == host && it.port == facts.port)
        };
        let mut others = peers.filter(|it| it.name != facts.name && has_it(&it.links));
        others.next().map(|it| it.name.clone())
    }

    /// A name for a new robot that no peer of the file has.
    pub fn free_name(&self) -> String {
        let peers = self.old.iter().flat_map(|it| &it.config.peers).map(|it| &it.name);
        let taken: BTreeSet<&String> = peers.chain([&self.name]).collect();
        let mut names = (1..).map(|number: usize| format!("robot{number}"));
        // There are more numbers than peers.
        names.find(|name| !taken.contains(name)).unwrap_or_default()
    }

    /// Topics that the file already sends to other peers than `other`.
    fn topics_sent_to_others(&self, other: &str) -> Vec<String> {
        let rules = self.old.iter().flat_map(|it| &it.config.topics);
        let others = self.old.iter().flat_map(|it| &it.config.peers).any(|it| it.name != other);
        let is_for_others = |to: &Option<Vec<String>>| match to {
            Some(to) => to.iter().any(|peer| peer != other),
            None => others,
        };
        let taken = rules.filter(|it| it.pattern.is_name() && is_for_others(&it.treatment.to));
        taken.map(|it| it.pattern.as_str().to_owned()).collect()
    }
}

fn read(file: &Path) -> Result<Option<ExistingFile>, Failure> {
    let text = match config::read(file) {
        Ok(text) => text,
        Err(ConfigError::Unreadable { cause, .. }) if cause.kind() == ErrorKind::NotFound => {
            return Ok(None);
        }
        Err(error) => return Err(Failure::new(error)),
    };
    match config::parse(&text, &surroundings(file)) {
        Ok(checked) => Ok(Some(ExistingFile { text, config: checked.config })),
        Err(problems) => {
            let error = ConfigError::Invalid { file: file.into(), problems };
            Err(Failure::new(format!(
                "{error}\nCorrect the file first, or name another one with --file."
            )))
        }
    }
}

/// The name of this node: that of its file, the given one, or that of the machine.
fn name(given: Option<&str>, old: Option<&ExistingFile>) -> Result<String, Failure> {
    if let Some(given) = given.filter(|it| !is_node_name(it)) {
        let found = tautline_gateway::plain::plain(given, 80);
        return Err(Failure::new(format!(
            "--name: found '{found}'; allowed: 1 to {MAX_NODE_NAME} letters, digits, '_' or '-'"
        )));
    }
    match (given, old) {
        (Some(given), Some(ExistingFile { config, .. })) if config.name != given => {
            Err(Failure::new(format!(
                "--name: found '{given}', but the file has 'name: {}'; leave --name out, or change \
                 the file",
                config.name
            )))
        }
        (_, Some(ExistingFile { config, .. })) => Ok(config.name.clone()),
        (Some(given), None) => Ok(given.into()),
        (None, None) => Ok(machine_name(Surroundings::current(Path::new("")).host_name.as_deref())),
    }
}

/// A node name from the name of the machine, without its domain.
fn machine_name(host: Option<&str>) -> String {
    let host = host.unwrap_or_default().split('.').next().unwrap_or_default();
    let valid = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' };
    let name: String = host.chars().map(valid).take(MAX_NODE_NAME).collect();
    let name = name.trim_matches('-');
    if name.is_empty() { "robot".into() } else { name.into() }
}

/// An address of this machine, and how useful it is for other machines.
struct OwnAddress {
    /// Whether the address belongs to a container interface, which other machines cannot reach.
    is_container_interface: bool,
    is_off_default_route: bool,
    ip: IpAddr,
}

/// Addresses of this machine, those of the default route first, and those of containers last.
fn own_addresses() -> Vec<OwnAddress> {
    let is_global = |address: &IpAddr| match address {
        IpAddr::V4(v4) => !v4.is_loopback() && !v4.is_link_local() && !v4.is_unspecified(),
        IpAddr::V6(v6) => !v6.is_loopback() && !v6.is_unicast_link_local() && !v6.is_unspecified(),
    };
    let default = interfaces::addresses_of_default_routes();
    let interfaces = if_addrs::get_if_addrs().unwrap_or_default().into_iter();
    let own = interfaces.filter(|it| is_global(&it.ip())).map(|it| {
        let is_off_default_route = !default.contains(&it.ip());
        // A bridge with the default route leads out of the machine.
        let is_container_interface =
            is_off_default_route && interfaces::is_container_interface(&it.name);
        OwnAddress { is_container_interface, is_off_default_route, ip: it.ip() }
    });
    let mut own: Vec<OwnAddress> = own.collect();
    own.sort_by_key(|it| (it.is_container_interface, it.is_off_default_route, it.ip));
    own.dedup_by_key(|it| it.ip);
    own
}

/// Addresses of this machine that other machines may reach, the most likely first.
pub fn outside_addresses() -> Vec<IpAddr> {
    let own = own_addresses().into_iter().filter(|it| !it.is_container_interface);
    own.map(|it| it.ip).take(MAX_ADDRESSES).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_machine_becomes_a_valid_node_name() {
        for (host, expected) in [
            ("robot1", "robot1"),
            ("robot1.lab.example.org", "robot1"),
            ("größe", "gr--e"),
            ("-", "robot"),
            ("", "robot"),
        ] {
            assert_eq!(machine_name(Some(host)), expected);
        }
        assert!(is_node_name(&machine_name(Some(&"x".repeat(99)))));
    }
}
