// SPDX-License-Identifier: Apache-2.0
//! Conversion of checked sections to [`Config`]. A function returns `None` only after a problem has
//! been reported, or if the option table lacks a default that this file expects, which the tests
//! would detect.

use super::kind::{ANY_TYPE, Kind, Value};
use super::problem::Problem;
use super::surroundings::{SYSTEM_LOGS_FOLDER, Surroundings};
use super::table::RANGES;
use super::validate::{At, Named, Section};
use super::{
    AuditConfig, Beacons, Config, DEFAULT_PORT, Limits, LinkConfig, MAX_DOMAIN, PeerConfig,
    RadioConfig, Realtime, Ros1Config, Ros2Config, Security, WatchdogConfig,
};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tautline_gateway::mapping::{
    ACTION_SERVICES, ACTION_TOPICS, Accept, Compression, NameMap, Pattern, ServiceRule,
    ServiceTreatment, TopicRule, Treatment, WhenSlow, action_timeout,
};
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
    let name = text(file, "name")?;
    let security = match text(file, "security")?.as_str() {
        "none" => Security::None,
        _ => Security::Keys(surroundings.folder.join(match text(file, "key") {
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
        listen: listen(file, "listen")?,
        control: text(file, "control")
            .map_or_else(|| surroundings.control_socket(&name), Into::into),
        metrics: listen(file, "metrics"),
        beacons: beacons(file),
        diagnostics: flag(file, "diagnostics")?,
        audit: audit(file, surroundings, &name)?,
        ros1,
        ros2,
        radios: file.named("radios").iter().map(radio).collect::<Option<_>>()?,
        marking: match file.section("dscp") {
            Some(section) => Some(marking(section)?),
            None => None,
        },
        peers: file
            .named("peers")
            .iter()
            .map(|named| peer(named, &security))
            .collect::<Option<_>>()?,
        topics: topics(file)?,
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
    fn read(&mut self, key: &str, kind: Kind, place: &str, value: &str) -> Option<Value> {
        let read = kind.parse(value);
        if let Err(allowed) = &read {
            self.problems.push(Problem {
                at: self.section.at,
                key: format!("{}.{key}", self.path),
                found: format!("'{value}' in {place}"),
                allowed: allowed.clone(),
            });
        }
        read.ok()
    }

    fn text(&mut self, key: &str, kind: Kind, place: &str, value: &str) -> Option<String> {
        match self.read(key, kind, place, value)? {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }
}

fn ros2(section: &Section, from: &Surroundings, problems: &mut Vec<Problem>) -> Option<Ros2Config> {
    let mut outside = Outside { section, path: "ros2", problems };
    let domain = match (whole(section, "domain"), &from.ros_domain_id) {
        (Some(domain), _) => domain,
        (None, None) => 0,
        (None, Some(value)) => {
            let kind = Kind::Whole(0, MAX_DOMAIN.into());
            match outside.read("domain", kind, "the environment's ROS_DOMAIN_ID", value)? {
                Value::Whole(domain) => domain,
                _ => return None,
            }
        }
    };
    let range = match (text(section, "range"), &from.ros_discovery_range) {
        (Some(range), _) => range,
        (None, Some(value)) if value != "SYSTEM_DEFAULT" => {
            let place = "the environment's ROS_AUTOMATIC_DISCOVERY_RANGE";
            outside.text("range", Kind::OneOf(RANGES), place, &value.to_lowercase())?
        }
        _ if from.ros_localhost_only.as_deref() == Some("1") => "localhost".into(),
        _ => "subnet".into(),
    };
    Some(Ros2Config {
        domain: domain.try_into().ok()?,
        localhost: range == "localhost",
        node_name: text(section, "node_name")?,
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
        named => Beacons::On(texts(named)),
    }
}

/// Without an `audit` key, the log goes only to a folder that the service manager provides.
fn audit(file: &Section, from: &Surroundings, name: &str) -> Option<AuditConfig> {
    let section = file.section("audit");
    let is_meant = file.is_given("audit") || from.logs_folder.is_some();
    let Some(section) = section.filter(|_| is_meant) else { return Some(AuditConfig::Off) };
    if text(section, "to")? == "journald" {
        return Some(AuditConfig::Journald);
    }
    let path = match text(section, "file") {
        Some(path) => from.folder.join(path),
        None => {
            let folder = from.logs_folder.as_deref().unwrap_or(Path::new(SYSTEM_LOGS_FOLDER));
            folder.join(format!("{name}.audit"))
        }
    };
    let files = whole(section, "files")?.try_into().ok()?;
    Some(AuditConfig::Files { path, size: whole(section, "size")?, files })
}

/// Returns the folders of installed types that the file names.
fn folders(section: &Section) -> Vec<PathBuf> {
    texts(section.list("definitions")).into_iter().map(Into::into).collect()
}

fn ros1(section: &Section, from: &Surroundings, problems: &mut Vec<Problem>) -> Option<Ros1Config> {
    let mut outside = Outside { section, path: "ros1", problems };
    let master = match text(section, "master") {
        Some(master) => master,
        None => {
            let uri = from.ros_master_uri.as_deref().unwrap_or("http://localhost:11311");
            outside.text("master", Kind::MasterUri, "the environment's ROS_MASTER_URI", uri)?
        }
    };
    let host = match (text(section, "host"), &from.ros_hostname, &from.ros_ip, &from.host_name) {
        (Some(host), ..) => host,
        (_, Some(host), ..) => {
            outside.text("host", Kind::Host, "the environment's ROS_HOSTNAME", host)?
        }
        (_, _, Some(host), _) => {
            outside.text("host", Kind::Host, "the environment's ROS_IP", host)?
        }
        (.., Some(host)) => outside.text("host", Kind::Host, "the machine's name", host)?,
        _ => "localhost".into(),
    };
    let list = |path: &Option<String>| path.clone().unwrap_or_default();
    let installed = match section.is_given("definitions") {
        true => Installed::new(folders(section)),
        false => Installed::of_ros1(&list(&from.cmake_prefix_path), &list(&from.ros_package_path)),
    };
    let network = |(_, value): &At<Value>| match value {
        Value::Network(network) => Some(*network),
        _ => None,
    };
    let allow = section.list("allow").iter().filter_map(network).collect();
    let node_name = text(section, "node_name")?;
    Some(Ros1Config { master, host, allow, node_name, installed })
}

fn radio(named: &Named) -> Option<RadioConfig> {
    Some(RadioConfig {
        interface: named.text.clone(),
        rate: match named.section.single("rate")? {
            (_, Value::Pacing(rate)) => *rate,
            _ => return None,
        },
        in_flight: whole(&named.section, "in_flight")?.try_into().ok()?,
    })
}

fn marking(section: &Section) -> Option<Marking> {
    let dscp = |key| whole(section, key)?.try_into().ok();
    let from = |key| whole(section, key)?.try_into().ok();
    Some(Marking {
        from: [from("best_effort_from")?, from("video_from")?, from("voice_from")?],
        dscp: [dscp("background")?, dscp("best_effort")?, dscp("video")?, dscp("voice")?],
    })
}

fn peer(named: &Named, security: &Security) -> Option<PeerConfig> {
    let section = &named.section;
    let key = match (security, section.single("key")) {
        (Security::None, _) => SecretKey::insecure(&named.text).public(),
        (Security::Keys(_), Some((_, Value::Key(key)))) => *key,
        _ => return None,
    };
    let mut links: Vec<LinkConfig> =
        section.sections("links").iter().map(link).collect::<Option<_>>()?;
    if section.single("address").is_some() {
        links.push(link(section)?);
    }
    Some(PeerConfig {
        name: named.text.clone(),
        key,
        links,
        names: names(section),
        via: section.list("via").iter().filter_map(|(_, value)| name(value)).collect(),
        relay: flag(section, "relay")?,
        call: patterns(section, "call"),
        offer: patterns(section, "offer"),
        max_rate_bps: whole(section, "max_rate")?,
        max_priority: whole(section, "max_priority")?.try_into().ok()?,
    })
}

/// Returns the accepted names of a peer and their names on this robot.
pub(super) fn names(peer: &Section) -> NameMap {
    NameMap {
        prefix: text(peer, "prefix").unwrap_or_default(),
        remap: peer.renames("remap").iter().map(|(_, pair)| pair.clone()).collect(),
        accept: peer.typed("accept").iter().filter_map(|(_, it)| accept(it)).collect(),
    }
}

fn accept((name, types): &(Value, Vec<Value>)) -> Option<Accept> {
    let types: Vec<String> = types.iter().filter_map(self::name).collect();
    let any = types.iter().any(|it| it == ANY_TYPE);
    let types = if any { Vec::new() } else { types.iter().map(|it| short_name(it)).collect() };
    Some(Accept { pattern: pattern(name)?, types })
}

fn link(section: &Section) -> Option<LinkConfig> {
    let Some((_, Value::Endpoint(host, port))) = section.single("address") else {
        return None;
    };
    Some(LinkConfig {
        host: host.clone(),
        port: port.unwrap_or(DEFAULT_PORT),
        interface: text(section, "interface"),
        mtu: whole(section, "mtu").and_then(|mtu| mtu.try_into().ok()),
    })
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
            let mut treatment = calls(&action.section)?;
            treatment.timeout = action_timeout(own, treatment.timeout);
            rules.push(ServiceRule { pattern: part_of_action(action, own)?, treatment });
        }
    }
    for named in file.named("services") {
        let treatment = calls(&named.section)?;
        rules.push(ServiceRule { pattern: pattern(&named.name)?, treatment });
    }
    Some(rules)
}

fn part_of_action(action: &Named, own: &str) -> Option<Pattern> {
    Pattern::new(&format!("{}/_action/{own}", action.text)).ok()
}

fn calls(section: &Section) -> Option<ServiceTreatment> {
    Some(ServiceTreatment {
        priority: whole(section, "priority")?.try_into().ok()?,
        timeout: duration(section, "timeout")?,
        to: destinations(section),
    })
}

/// Returns the peers of `to`; `None` means all peers.
fn destinations(section: &Section) -> Option<Vec<String>> {
    Some(texts(section.list("to"))).filter(|all| !all.is_empty())
}

fn topic(named: &Named) -> Option<TopicRule> {
    let section = &named.section;
    let treatment = Treatment {
        priority: whole(section, "priority")?.try_into().ok()?,
        keep_last: whole(section, "keep_last").and_then(|count| count.try_into().ok()),
        when_slow: text(section, "when_slow").and_then(|word| WhenSlow::from_word(&word)),
        lifespan: duration(section, "lifespan"),
        rate_hz: real(section, "rate"),
        compression: match text(section, "compression")?.as_str() {
            "zstd" => Compression::Zstd,
            _ => Compression::None,
        },
        to: destinations(section),
        repair: flag(section, "repair")?,
    };
    Some(TopicRule { pattern: pattern(&named.name)?, treatment })
}

fn watchdog(named: &Named) -> Option<WatchdogConfig> {
    let section = &named.section;
    Some(WatchdogConfig {
        topic: named.text.clone(),
        after: duration(section, "after")?,
        message: section.fields("message").to_vec(),
        repeat: duration(section, "repeat"),
    })
}

fn tf(section: &Section) -> tf::Rules {
    tf::Rules {
        frames: patterns(section, "frames"),
        prefix: text(section, "prefix").unwrap_or_default(),
        shared: patterns(section, "shared"),
    }
}

fn limits(section: &Section) -> Option<Limits> {
    let bytes = |key| whole(section, key)?.try_into().ok();
    Some(Limits {
        max_message: bytes("max_message")?,
        queue_bytes: bytes("queue_bytes")?,
        queue_time: duration(section, "queue_time")?,
        reassembly_bytes: bytes("reassembly_bytes")?,
        repair_budget: real(section, "repair_budget")?,
    })
}

fn realtime(section: &Section) -> Option<Realtime> {
    Some(Realtime {
        priority: whole(section, "priority").and_then(|priority| priority.try_into().ok()),
        cpu: whole(section, "cpu").and_then(|cpu| cpu.try_into().ok()),
        lock_memory: flag(section, "lock_memory")?,
    })
}

fn text(section: &Section, key: &str) -> Option<String> {
    match section.single(key)? {
        (_, Value::Text(text)) => Some(text.clone()),
        _ => None,
    }
}

fn texts(list: &[At<Value>]) -> Vec<String> {
    let text = |(_, value): &At<Value>| match value {
        Value::Text(text) => Some(text.clone()),
        _ => None,
    };
    list.iter().filter_map(text).collect()
}

fn listen(section: &Section, key: &str) -> Option<SocketAddr> {
    match section.single(key)? {
        (_, Value::Listen(address)) => Some(*address),
        _ => None,
    }
}

fn whole(section: &Section, key: &str) -> Option<u64> {
    match section.single(key)? {
        (_, Value::Whole(number)) => Some(*number),
        _ => None,
    }
}

fn real(section: &Section, key: &str) -> Option<f64> {
    match section.single(key)? {
        (_, Value::Real(number)) => Some(*number),
        _ => None,
    }
}

fn flag(section: &Section, key: &str) -> Option<bool> {
    match section.single(key)? {
        (_, Value::Flag(flag)) => Some(*flag),
        _ => None,
    }
}

fn duration(section: &Section, key: &str) -> Option<Duration> {
    match section.single(key)? {
        (_, Value::Duration(duration)) => Some(*duration),
        _ => None,
    }
}

fn name(value: &Value) -> Option<String> {
    match value {
        Value::Text(name) => Some(name.clone()),
        _ => None,
    }
}

fn patterns(section: &Section, key: &str) -> Vec<Pattern> {
    section.list(key).iter().filter_map(|(_, value)| pattern(value)).collect()
}

fn pattern(value: &Value) -> Option<Pattern> {
    match value {
        Value::Pattern(pattern) => Some(pattern.clone()),
        _ => None,
    }
}
