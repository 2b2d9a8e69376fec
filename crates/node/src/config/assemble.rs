// SPDX-License-Identifier: Apache-2.0
//! Conversion of checked sections to [`Config`]. A function returns `None` only after a problem has
//! been reported, or if the option table lacks a default that this file expects, which the tests
//! would detect.

use super::Show;
use super::channel::Channel;
use super::kind::{ANY_TYPE, Kind, Value};
use super::problem::Problem;
use super::surroundings::{SYSTEM_LOGS_FOLDER, SYSTEM_STATE_FOLDER, Surroundings};
use super::table::RANGES;
use super::validate::{Named, Section};
use super::{
    AuditConfig, Beacons, Budget, Config, DEFAULT_PORT, Expected, Limits, LinkConfig, MAX_DOMAIN,
    PeerConfig, RadioConfig, Realtime, Ros1Config, Ros2Config, Security, WatchdogConfig,
};
use crate::treatment::peer_names::{Accept, NameMap};
use crate::treatment::services::{ServiceRule, ServiceTreatment};
use crate::treatment::{
    Compression, LinkChoice, LinkRule, OrderChoice, TopicRule, Treatment, WhenSlow,
};
use std::path::{Path, PathBuf};
use tautline_gateway::action_names::{ACTION_SERVICES, ACTION_TOPICS};
use tautline_gateway::pattern::Pattern;
use tautline_gateway::tf;
use tautline_gateway::types::definition::short_name;
use tautline_gateway::types::installed::Installed;
use tautline_proto::{Marking, SecretKey};

/// Converts the whole file to a [`Config`]; adds wrong values from outside the file to `problems`.
pub fn config(
    file: &Section,
    surroundings: &Surroundings,
    problems: &mut Vec<Problem>,
) -> Option<Config> {
    let name: String = file.get("name")?;
    let security = match file.text("security")? {
        "none" => Security::None,
        _ => Security::Keys(surroundings.folder.join(match file.get("key") {
            Some(path) => path,
            None => format!("{name}.key"),
        })),
    };
    let ros2 = match file.section("ros2") {
        Some(section) => Some(ros2(section, surroundings, problems)?),
        None => None,
    };
    let ros1 = match file.section("ros1").filter(|_| ros2.is_none() || file.is_given("ros1")) {
        Some(section) => Some(ros1(section, surroundings, problems)?),
        None => None,
    };
    Some(Config {
        listen: file.get("listen")?,
        control: file
            .text("control")
            .map_or_else(|| surroundings.control_socket(&name), Into::into),
        metrics: file.get("metrics"),
        beacons: beacons(file),
        diagnostics: file.get("diagnostics")?,
        audit: audit(file, surroundings, &name)?,
        state: match (file.text("state"), &surroundings.state_folder) {
            (Some(folder), _) => folder.into(),
            (None, folder) => folder.clone().unwrap_or(SYSTEM_STATE_FOLDER.into()),
        },
        ros1,
        ros2,
        radios: file.named("radios").iter().map(radio).collect::<Option<_>>()?,
        marking: match file.section("dscp") {
            Some(section) => Some(marking(section)?),
            None => None,
        },
        teams: None,
        peers: file
            .named("peers")
            .iter()
            .map(|named| peer(named, &security))
            .collect::<Option<_>>()?,
        topics: topics(file)?,
        channels: file.named("radios").iter().filter_map(channel).collect(),
        expected: file.named("topics").iter().map(expected).collect::<Option<_>>()?,
        services: services(file)?,
        watchdogs: file.named("watchdogs").iter().map(watchdog).collect::<Option<_>>()?,
        tf: tf(file.section("tf")?),
        limits: limits(file.section("limits")?)?,
        realtime: realtime(file.section("realtime")?)?,
        security,
        name,
    })
}

/// A value from outside the file, for a key that the file omits.
struct Outside<'a> {
    section: &'a Section,
    /// Path of the section in the file.
    path: &'a str,
    problems: &'a mut Vec<Problem>,
}

impl Outside<'_> {
    fn read<T: for<'v> TryFrom<&'v Value>>(
        &mut self,
        key: &str,
        kind: Kind,
        place: &str,
        value: &str,
    ) -> Option<T> {
        let read = kind.parse(value);
        if let Err(allowed) = &read {
            self.problems.push(Problem {
                at: self.section.at,
                key: format!("{}.{key}", self.path),
                found: format!("'{value}' in {place}"),
                allowed: allowed.clone(),
            });
        }
        read.ok()?.held()
    }
}

impl Outside<'_> {
    /// The file's name of this node, else the launching program's, else the default.
    fn node_name(&mut self, from: &Surroundings) -> Option<String> {
        match from.node_name.as_deref().filter(|_| !self.section.is_given("node_name")) {
            Some(name) => self.read("node_name", Kind::RosName, "the arguments of ROS", name),
            None => self.section.get("node_name"),
        }
    }
}

fn ros2(section: &Section, from: &Surroundings, problems: &mut Vec<Problem>) -> Option<Ros2Config> {
    let mut outside = Outside { section, path: "ros2", problems };
    let domain: u64 = match (section.get("domain"), &from.ros_domain_id) {
        (Some(domain), _) => domain,
        (None, None) => 0,
        (None, Some(value)) => {
            let kind = Kind::Whole(0, MAX_DOMAIN.into());
            outside.read("domain", kind, "the environment's ROS_DOMAIN_ID", value)?
        }
    };
    let range: String = match (section.get("range"), &from.ros_discovery_range) {
        (Some(range), _) => range,
        (None, Some(value)) if value != "SYSTEM_DEFAULT" => {
            let place = "the environment's ROS_AUTOMATIC_DISCOVERY_RANGE";
            outside.read("range", Kind::OneOf(RANGES), place, &value.to_lowercase())?
        }
        _ if from.ros_localhost_only.as_deref() == Some("1") => "localhost".into(),
        _ => "subnet".into(),
    };
    let node_name = outside.node_name(from)?;
    Some(Ros2Config {
        domain: domain.try_into().ok()?,
        localhost: range == "localhost",
        node_name,
        definitions: match section.is_given("definitions") {
            true => folders(section),
            false => {
                let path = from.ament_prefix_path.iter().flat_map(|path| path.split(':'));
                path.filter(|folder| !folder.is_empty()).map(Into::into).collect()
            }
        },
    })
}

fn beacons(file: &Section) -> Beacons {
    match file.list("beacons") {
        [(_, Value::Flag(true))] => Beacons::Everywhere,
        [] | [(_, Value::Flag(false))] => Beacons::Off,
        _ => Beacons::On(file.all("beacons")),
    }
}

/// Without an `audit` key, the log goes only to a folder that the service manager provides.
pub(super) fn audit(file: &Section, from: &Surroundings, name: &str) -> Option<AuditConfig> {
    let section = file.section("audit");
    let is_meant = file.is_given("audit") || from.logs_folder.is_some();
    let Some(section) = section.filter(|_| is_meant) else { return Some(AuditConfig::Off) };
    if section.text("to")? == "journald" {
        return Some(AuditConfig::Journald);
    }
    let path = match section.text("file") {
        Some(path) => from.folder.join(path),
        None => {
            let folder = from.logs_folder.as_deref().unwrap_or(Path::new(SYSTEM_LOGS_FOLDER));
            folder.join(format!("{name}.audit"))
        }
    };
    let files = section.number("files")?;
    Some(AuditConfig::Files { path, size: section.get("size")?, files })
}

/// Returns the folders of installed types that the file names.
fn folders(section: &Section) -> Vec<PathBuf> {
    section.all::<String>("definitions").into_iter().map(Into::into).collect()
}

fn ros1(section: &Section, from: &Surroundings, problems: &mut Vec<Problem>) -> Option<Ros1Config> {
    let mut outside = Outside { section, path: "ros1", problems };
    let master = match section.get("master") {
        Some(master) => master,
        None => {
            let uri = from.ros_master_uri.as_deref().unwrap_or("http://localhost:11311");
            outside.read("master", Kind::MasterUri, "the environment's ROS_MASTER_URI", uri)?
        }
    };
    let (hostname, ip, machine) = (&from.ros_hostname, &from.ros_ip, &from.host_name);
    let outer = hostname.as_ref().map(|host| ("the environment's ROS_HOSTNAME", host));
    let outer = outer.or(ip.as_ref().map(|host| ("the environment's ROS_IP", host)));
    let outer = outer.or(machine.as_ref().map(|host| ("the machine's name", host)));
    let host = match (section.get("host"), outer) {
        (Some(host), _) => host,
        (None, Some((place, host))) => outside.read("host", Kind::Host, place, host)?,
        (None, None) => "localhost".into(),
    };
    let list = |path: &Option<String>| path.clone().unwrap_or_default();
    let installed = match section.is_given("definitions") {
        true => Installed::new(folders(section)),
        false => Installed::of_ros1(&list(&from.cmake_prefix_path), &list(&from.ros_package_path)),
    };
    let (allow, node_name) = (section.all("allow"), outside.node_name(from)?);
    Some(Ros1Config { master, host, allow, node_name, installed })
}

fn radio(named: &Named) -> Option<RadioConfig> {
    Some(RadioConfig {
        interface: named.text.clone(),
        rate: named.section.get("rate")?,
        in_flight: named.section.number("in_flight")?,
    })
}

fn channel(named: &Named) -> Option<(String, Channel)> {
    Some((named.text.clone(), named.section.get("channel")?))
}

fn marking(section: &Section) -> Option<Marking> {
    Some(Marking {
        from: [
            section.number("best_effort_from")?,
            section.number("video_from")?,
            section.number("voice_from")?,
        ],
        dscp: [
            section.number("background")?,
            section.number("best_effort")?,
            section.number("video")?,
            section.number("voice")?,
        ],
    })
}

fn peer(named: &Named, security: &Security) -> Option<PeerConfig> {
    let section = &named.section;
    let key = match security {
        Security::None => SecretKey::insecure(&named.text).public(),
        Security::Keys(_) => section.get("key")?,
    };
    let mut links: Vec<LinkConfig> = Vec::new();
    for (index, entry) in section.sections("links").iter().enumerate() {
        links.push(link(entry, index)?);
    }
    if section.single("address").is_some() {
        links.push(link(section, 0)?);
    }
    Some(PeerConfig {
        name: named.text.clone(),
        key,
        team: None,
        mtu: section.number("mtu").filter(|_| links.is_empty()),
        links,
        names: names(section),
        via: section.all("via"),
        direct: section.get("direct"),
        relay: section.get("relay")?,
        call: section.all("call"),
        offer: section.all("offer"),
        show: show(&section.all("show")),
        set_parameters: section.all("set_parameters"),
        max_rate_bps: section.get("max_rate")?,
        max_priority: section.number("max_priority")?,
        move_stamps: section.get("move_stamps")?,
    })
}

fn show(words: &[String]) -> Show {
    let has = |word: &str| words.iter().any(|it| it == word);
    Show { nodes: has("nodes"), parameters: has("parameters"), logs: has("logs") }
}

/// Returns the accepted names of a peer and their names on this robot.
pub(super) fn names(peer: &Section) -> NameMap {
    NameMap {
        prefix: peer.get("prefix").unwrap_or_default(),
        remap: peer.renames("remap").iter().map(|(_, pair)| pair.clone()).collect(),
        accept: peer.typed("accept").iter().filter_map(|(_, it)| accept(it)).collect(),
    }
}

fn accept((name, types): &(Value, Vec<Value>)) -> Option<Accept> {
    let types: Vec<String> = types.iter().filter_map(Value::held).collect();
    let any = types.iter().any(|it| it == ANY_TYPE);
    let types = if any { Vec::new() } else { types.iter().map(|it| short_name(it)).collect() };
    Some(Accept { pattern: name.held()?, types })
}

fn link(section: &Section, index: usize) -> Option<LinkConfig> {
    let Some((_, Value::Endpoint(host, port))) = section.single("address") else { return None };
    let budget: Option<Budget> = section.get("budget");
    Some(LinkConfig {
        name: link_name(section, index),
        host: host.clone(),
        port: port.unwrap_or(DEFAULT_PORT),
        interface: section.get("interface"),
        mtu: section.number("mtu"),
        metered: budget.is_some() || section.get("metered").unwrap_or(false),
        budget,
    })
}

/// Returns the name of the link at this place among the links of its peer.
pub(super) fn link_name(section: &Section, index: usize) -> String {
    let named = section.text("name").or_else(|| section.text("interface"));
    named.map_or_else(|| format!("link{}", index + 1), str::to_owned)
}

/// Rules of actions precede rules of topics, because an action names its topics exactly.
fn topics(file: &Section) -> Option<Vec<TopicRule>> {
    let mut rules = Vec::new();
    for action in file.named("actions") {
        let ServiceTreatment { priority, to, .. } = calls(&action.section)?;
        for own in ACTION_TOPICS {
            let treatment = Treatment { priority, to: to.clone(), ..Treatment::default() };
            rules.push(TopicRule { pattern: part_of_action(action, own)?, treatment });
        }
    }
    for named in file.named("topics") {
        rules.push(topic(named)?);
    }
    Some(rules)
}

fn services(file: &Section) -> Option<Vec<ServiceRule>> {
    let mut rules = Vec::new();
    for action in file.named("actions") {
        for own in ACTION_SERVICES {
            let treatment = calls(&action.section)?;
            rules.push(ServiceRule { pattern: part_of_action(action, own)?, treatment });
        }
    }
    for named in file.named("services") {
        let treatment = calls(&named.section)?;
        rules.push(ServiceRule { pattern: named.name.held()?, treatment });
    }
    Some(rules)
}

fn part_of_action(action: &Named, own: &str) -> Option<Pattern> {
    Pattern::new(&format!("{}/_action/{own}", action.text)).ok()
}

fn calls(section: &Section) -> Option<ServiceTreatment> {
    Some(ServiceTreatment {
        priority: section.number("priority")?,
        timeout: section.get("timeout")?,
        to: destinations(section),
    })
}

/// Returns the peers of `to`; `None` means all peers.
fn destinations(section: &Section) -> Option<Vec<String>> {
    Some(section.all("to")).filter(|all| !all.is_empty())
}

fn topic(named: &Named) -> Option<TopicRule> {
    let section = &named.section;
    let treatment = Treatment {
        priority: section.number("priority")?,
        keep_last: section.number("keep_last"),
        when_slow: section.text("when_slow").and_then(WhenSlow::from_word),
        lifespan: section.get("lifespan"),
        rate_hz: section.get("rate"),
        compression: match section.text("compression")? {
            "zstd" => Compression::Zstd,
            _ => Compression::None,
        },
        tf_prefix: section.get("tf_prefix")?,
        to: destinations(section),
        repair: section.get("repair")?,
        fec: section.number("fec"),
        links: LinkRule {
            choice: section.text("links").and_then(LinkChoice::from_word),
            copies: section.number("copies")?,
            only: section.all("only_links"),
            avoid: section.all("avoid_links"),
            over_budget: section.get("over_budget")?,
        },
        order: section.text("order").and_then(OrderChoice::from_word)?,
        order_wait: section.get("order_wait")?,
    };
    Some(TopicRule { pattern: named.name.held()?, treatment })
}

fn expected(named: &Named) -> Option<Expected> {
    let section = named.section.section("expect");
    Some(Expected {
        pattern: named.name.held()?,
        rate_hz: section.and_then(|it| it.get("rate")),
        bytes: section.and_then(|it| it.get("size")),
    })
}

fn watchdog(named: &Named) -> Option<WatchdogConfig> {
    let section = &named.section;
    Some(WatchdogConfig {
        topic: named.text.clone(),
        after: section.get("after")?,
        message: section.fields("message").to_vec(),
        repeat: section.get("repeat"),
    })
}

fn tf(section: &Section) -> tf::Rules {
    tf::Rules {
        frames: section.all("frames"),
        prefix: section.get("prefix").unwrap_or_default(),
        shared: section.all("shared"),
    }
}

fn limits(section: &Section) -> Option<Limits> {
    Some(Limits {
        max_message: section.number("max_message")?,
        queue_bytes: section.number("queue_bytes")?,
        queue_time: section.get("queue_time")?,
        reassembly_bytes: section.number("reassembly_bytes")?,
        repair_budget: section.get("repair_budget")?,
    })
}

fn realtime(section: &Section) -> Option<Realtime> {
    Some(Realtime {
        priority: section.number("priority"),
        cpu: section.number("cpu"),
        lock_memory: section.get("lock_memory")?,
    })
}
