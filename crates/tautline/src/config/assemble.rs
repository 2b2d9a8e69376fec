// SPDX-License-Identifier: Apache-2.0
//! Conversion of a checked file to [`Config`]. A function returns `None` in two cases: a problem
//! has been reported already, or the option table lacks a default that this file expects. The tests
//! would detect the second case.

use super::model::{
    AuditConfig, Beacons, Config, DEFAULT_PORT, Entries, LinkConfig, PeerConfig, RadioConfig,
    Ros1Config, Ros2Config, Security, TopicExpectation,
};
use super::problem::{Position, Problem};
use super::read::{Entry, List, Named, Switch};
use super::setting::{Setting, Shape};
use super::surroundings::{SYSTEM_LOGS_FOLDER, SYSTEM_STATE_FOLDER, Surroundings};
use super::table::{
    AuditKeys, CallKeys, DscpKeys, LinkKeys, Peer, PeerKeys, Radio, RobotFile, Ros1Keys, Ros2Keys,
    TfKeys, Topic,
};
use super::value::{AuditDestination, Authentication, Compressor, Interfaces, Range, SingleValue};
use crate::treatment::peer_names::NameMap;
use crate::treatment::services::{ServiceRule, ServiceTreatment};
use crate::treatment::{Compression, LinkRule, TopicRule, Treatment};
use std::path::{Path, PathBuf};
use tautline_gateway::action_names::{ACTION_SERVICES, ACTION_TOPICS};
use tautline_gateway::pattern::Pattern;
use tautline_gateway::tf;
use tautline_gateway::types::installed::InstalledTypes;
use tautline_proto::{Marking, SecretKey};

/// Converts the whole file to a [`Config`]. Values from outside the file may be wrong; they are
/// added to `problems`.
pub fn config(
    file: &RobotFile,
    surroundings: &Surroundings,
    problems: &mut Vec<Problem>,
) -> Option<Config> {
    let name = file.name.get()?;
    let security = match file.security.get()? {
        Authentication::None => Security::None,
        Authentication::Keys => {
            let path = file.key.get().unwrap_or_else(|| format!("{name}.key"));
            Security::Keys(surroundings.folder.join(path))
        }
    };
    let ros2 = match &file.ros2.value {
        Some(keys) => Some(ros2(keys, surroundings, problems)?),
        None => None,
    };
    let ros1 = match file.ros1.value.as_ref().filter(|_| ros2.is_none() || file.ros1.is_given) {
        Some(keys) => Some(ros1(keys, surroundings, problems)?),
        None => None,
    };
    let peers = file.peers.entries().iter().map(|entry| peer(entry, &security));
    let watchdogs = file.watchdogs.entries().iter().map(|it| it.keys.values(&it.text));
    let expected = |topic: &Topic| TopicExpectation {
        pattern: topic.name.clone(),
        rate_hz: topic.keys.expect.value.as_ref().and_then(|expect| expect.rate.get()),
        bytes: topic.keys.expect.value.as_ref().and_then(|expect| expect.size.get()),
    };
    let channel = |radio: &Radio| Some((radio.text.clone(), radio.keys.channel.get()?));
    let state = || surroundings.state_folder.clone().unwrap_or(SYSTEM_STATE_FOLDER.into());
    let config = Config {
        listen: file.listen.get()?,
        control: match file.control.get() {
            Some(path) => path.into(),
            None => surroundings.control_socket(&name),
        },
        metrics: file.metrics.get(),
        beacons: beacons(&file.beacons),
        diagnostics: file.diagnostics.get()?,
        audit: audit(&file.audit, surroundings, &name)?,
        state: file.state.get().map_or_else(state, PathBuf::from),
        ros1,
        ros2,
        radios: file.radios.entries().iter().map(radio).collect::<Option<_>>()?,
        marking: match &file.dscp.value {
            Some(keys) => Some(marking(keys)?),
            None => None,
        },
        teams: None,
        peers: peers.collect::<Option<_>>()?,
        topics: topics(file)?,
        channels: file.radios.entries().iter().filter_map(channel).collect(),
        expected: file.topics.entries().iter().map(expected).collect(),
        services: services(file)?,
        watchdogs: watchdogs.collect::<Option<_>>()?,
        tf: tf(file.tf.value.as_ref()?),
        limits: file.limits.value.as_ref()?.values()?,
        realtime: file.realtime.value.as_ref()?.values()?,
        entries: Entries::default(),
        security,
        name,
    };
    let entries = Entries::from_robot_file(file, &config);
    Some(Config { entries, ..config })
}

/// A section of the file whose omitted keys get values from outside the file.
struct Outside<'a> {
    /// Start of the section.
    at: Position,
    /// Path of the section in the file.
    path: &'a str,
    problems: &'a mut Vec<Problem>,
}

impl Outside<'_> {
    fn read<T: SingleValue>(&mut self, setting: &Setting, place: &str, value: &str) -> Option<T> {
        let Shape::Single(kind) = &setting.shape else { return None };
        match kind.parse(value) {
            Ok(parsed) => T::from_value(parsed),
            Err(refusal) => {
                self.problems.push(Problem {
                    at: self.at,
                    key: format!("{}.{}", self.path, setting.name),
                    found: format!("'{value}' in {place}"),
                    allowed: refusal.allowed,
                });
                None
            }
        }
    }

    /// Returns the node's name: from the file, else from the launching program, else the default.
    fn node_name(&mut self, entry: &Entry<String>, from: &Surroundings) -> Option<String> {
        match from.node_name.as_deref().filter(|_| !entry.is_given) {
            Some(name) => self.read(&Ros1Keys::node_name, "the arguments of ROS", name),
            None => entry.get(),
        }
    }
}

fn ros2(keys: &Ros2Keys, from: &Surroundings, problems: &mut Vec<Problem>) -> Option<Ros2Config> {
    let mut outside = Outside { at: keys.at, path: "ros2", problems };
    let domain = match (keys.domain.get(), &from.ros_domain_id) {
        (Some(domain), _) => domain,
        (None, None) => 0,
        (None, Some(value)) => {
            outside.read(&Ros2Keys::domain, "the environment's ROS_DOMAIN_ID", value)?
        }
    };
    let range = match (keys.range.get(), &from.ros_discovery_range) {
        (Some(range), _) => range,
        (None, Some(value)) if value != "SYSTEM_DEFAULT" => {
            let place = "the environment's ROS_AUTOMATIC_DISCOVERY_RANGE";
            outside.read(&Ros2Keys::range, place, &value.to_lowercase())?
        }
        _ if from.ros_localhost_only.as_deref() == Some("1") => Range::Localhost,
        _ => Range::Subnet,
    };
    let node_name = outside.node_name(&keys.node_name, from)?;
    let definitions = match keys.definitions.is_given {
        true => folders(&keys.definitions),
        false => {
            let path = from.ament_prefix_path.iter().flat_map(|path| path.split(':'));
            path.filter(|folder| !folder.is_empty()).map(Into::into).collect()
        }
    };
    Some(Ros2Config { domain, localhost: range == Range::Localhost, node_name, definitions })
}

fn beacons(beacons: &Entry<List<Interfaces>>) -> Beacons {
    match beacons.entries() {
        [(_, Interfaces::All(true))] => Beacons::Everywhere,
        [] | [(_, Interfaces::All(false))] => Beacons::Off,
        interfaces => {
            let name = |(_, entry): &(_, Interfaces)| match entry {
                Interfaces::Named(name) => Some(name.clone()),
                Interfaces::All(_) => None,
            };
            Beacons::On(interfaces.iter().filter_map(name).collect())
        }
    }
}

/// Returns the audit log. Without an `audit` key, it goes only to a folder that the service manager provides.
pub(super) fn audit(
    audit: &Entry<Switch<AuditKeys>>,
    from: &Surroundings,
    name: &str,
) -> Option<AuditConfig> {
    let is_meant = audit.is_given || from.logs_folder.is_some();
    let Some(keys) = audit.value.as_ref().filter(|_| is_meant) else {
        return Some(AuditConfig::Off);
    };
    if keys.to.get()? == AuditDestination::Journald {
        return Some(AuditConfig::Journald);
    }
    let path = match keys.file.get() {
        Some(path) => from.folder.join(path),
        None => {
            let folder = from.logs_folder.as_deref().unwrap_or(Path::new(SYSTEM_LOGS_FOLDER));
            folder.join(format!("{name}.audit"))
        }
    };
    Some(AuditConfig::Files { path, size: keys.size.get()?, files: keys.files.get()? })
}

/// Returns the folders of installed types that the file names.
fn folders(definitions: &Entry<List<String>>) -> Vec<PathBuf> {
    definitions.values().into_iter().map(Into::into).collect()
}

fn ros1(keys: &Ros1Keys, from: &Surroundings, problems: &mut Vec<Problem>) -> Option<Ros1Config> {
    let mut outside = Outside { at: keys.at, path: "ros1", problems };
    let master = match keys.master.get() {
        Some(master) => master,
        None => {
            let uri = from.ros_master_uri.as_deref().unwrap_or("http://localhost:11311");
            outside.read(&Ros1Keys::master, "the environment's ROS_MASTER_URI", uri)?
        }
    };
    let (hostname, ip, machine) = (&from.ros_hostname, &from.ros_ip, &from.host_name);
    let outer = hostname.as_ref().map(|host| ("the environment's ROS_HOSTNAME", host));
    let outer = outer.or(ip.as_ref().map(|host| ("the environment's ROS_IP", host)));
    let outer = outer.or(machine.as_ref().map(|host| ("the machine's name", host)));
    let host = match (keys.host.get(), outer) {
        (Some(host), _) => host,
        (None, Some((place, host))) => outside.read(&Ros1Keys::host, place, host)?,
        (None, None) => "localhost".into(),
    };
    let list = |path: &Option<String>| path.clone().unwrap_or_default();
    let installed = match keys.definitions.is_given {
        true => InstalledTypes::new(folders(&keys.definitions)),
        false => InstalledTypes::from_ros1_paths(
            &list(&from.cmake_prefix_path),
            &list(&from.ros_package_path),
        ),
    };
    let node_name = outside.node_name(&keys.node_name, from)?;
    Some(Ros1Config { master, host, allow: keys.allow.values(), node_name, installed })
}

fn radio(radio: &Radio) -> Option<RadioConfig> {
    Some(RadioConfig {
        interface: radio.text.clone(),
        rate: radio.keys.rate.get()?,
        in_flight: radio.keys.in_flight.get()?,
    })
}

fn marking(keys: &DscpKeys) -> Option<Marking> {
    Some(Marking {
        from: [keys.best_effort_from.get()?, keys.video_from.get()?, keys.voice_from.get()?],
        dscp: [
            keys.background.get()?,
            keys.best_effort.get()?,
            keys.video.get()?,
            keys.voice.get()?,
        ],
    })
}

fn peer(peer: &Peer, security: &Security) -> Option<PeerConfig> {
    let keys = &peer.keys;
    let key = match security {
        Security::None => SecretKey::insecure(&peer.text).public(),
        Security::Keys(_) => keys.key.get()?,
    };
    let mut links: Vec<LinkConfig> = Vec::new();
    for (index, entry) in keys.links.entries().iter().enumerate() {
        links.push(link(entry, index)?);
    }
    if keys.address.value.is_some() {
        links.push(link(&keys.own_link(), 0)?);
    }
    Some(PeerConfig {
        name: peer.text.clone(),
        key,
        team: None,
        mtu: keys.mtu.get().filter(|_| links.is_empty()),
        links,
        names: name_map(keys),
        via: keys.via.values(),
        direct: keys.direct.get(),
        relay: keys.relay.get()?,
        call: keys.call.values(),
        offer: keys.offer.values(),
        show: keys.show.get().unwrap_or_default(),
        set_parameters: keys.set_parameters.values(),
        max_rate_bps: keys.max_rate.get()?,
        max_priority: keys.max_priority.get()?,
        move_stamps: keys.move_stamps.get()?,
    })
}

/// Returns the accepted names of a peer and their names on this robot.
pub(super) fn name_map(peer: &PeerKeys) -> NameMap {
    NameMap {
        prefix: peer.prefix.get().unwrap_or_default(),
        remap: peer.remap.values().into_iter().collect(),
        accept: peer.accept.entries().to_vec(),
    }
}

fn link(link: &LinkKeys, index: usize) -> Option<LinkConfig> {
    let address = link.address.get()?;
    Some(LinkConfig {
        name: link.link_name(index),
        host: address.host,
        port: address.port.unwrap_or(DEFAULT_PORT),
        interface: link.interface.get(),
        mtu: link.mtu.get(),
        metered: link.budget.value.is_some() || link.metered.is(true),
        budget: link.budget.get(),
    })
}

/// Rules of actions precede the rules under `topics`, because an action names its topics exactly.
fn topics(file: &RobotFile) -> Option<Vec<TopicRule>> {
    let mut rules = Vec::new();
    for action in file.actions.entries() {
        let ServiceTreatment { priority, to, .. } = service_treatment(&action.keys)?;
        for own in ACTION_TOPICS {
            let treatment = Treatment { priority, to: to.clone(), ..Treatment::default() };
            rules.push(TopicRule { pattern: part_of_action(action, own)?, treatment });
        }
    }
    for rule in file.topics.entries() {
        rules.push(topic(rule)?);
    }
    Some(rules)
}

fn services(file: &RobotFile) -> Option<Vec<ServiceRule>> {
    let mut rules = Vec::new();
    for action in file.actions.entries() {
        for own in ACTION_SERVICES {
            let treatment = service_treatment(&action.keys)?;
            rules.push(ServiceRule { pattern: part_of_action(action, own)?, treatment });
        }
    }
    for service in file.services.entries() {
        let treatment = service_treatment(&service.keys)?;
        rules.push(ServiceRule { pattern: service.name.clone(), treatment });
    }
    Some(rules)
}

fn part_of_action(action: &Named<String, CallKeys>, own: &str) -> Option<Pattern> {
    Pattern::new(&format!("{}/_action/{own}", action.text)).ok()
}

fn service_treatment(keys: &CallKeys) -> Option<ServiceTreatment> {
    Some(ServiceTreatment {
        priority: keys.priority.get()?,
        timeout: keys.timeout.get()?,
        to: destinations(&keys.to),
    })
}

/// Returns the peers under `to`; `None` means all peers.
fn destinations(to: &Entry<List<String>>) -> Option<Vec<String>> {
    Some(to.values()).filter(|all| !all.is_empty())
}

fn topic(topic: &Topic) -> Option<TopicRule> {
    let keys = &topic.keys;
    let treatment = Treatment {
        priority: keys.priority.get()?,
        keep_last: keys.keep_last.get(),
        when_slow: keys.when_slow.get(),
        lifespan: keys.lifespan.get(),
        rate_hz: keys.rate.get(),
        compression: match keys.compression.is(Compressor::Zstd) {
            true => Compression::Zstd,
            false => Compression::None,
        },
        tf_prefix: keys.tf_prefix.get()?,
        to: destinations(&keys.to),
        repair: keys.repair.get()?,
        fec: keys.fec.get(),
        links: LinkRule {
            choice: keys.links.get(),
            copies: keys.copies.get()?,
            only: keys.only_links.values(),
            avoid: keys.avoid_links.values(),
            over_budget: keys.over_budget.get()?,
        },
        order: keys.order.get()?,
        order_wait: keys.order_wait.get()?,
    };
    Some(TopicRule { pattern: topic.name.clone(), treatment })
}

fn tf(keys: &TfKeys) -> tf::Rules {
    tf::Rules {
        frames: keys.frames.values(),
        prefix: keys.prefix.get().unwrap_or_default(),
        shared: keys.shared.values(),
    }
}
