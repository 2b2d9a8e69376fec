// SPDX-License-Identifier: Apache-2.0
//! The difference between the running configuration and another one. Pure.

use super::changes::{Change, Changes, Detail, Kind};
use crate::config::channel::{Channel, words};
use crate::config::{
    AuditConfig, Beacons, Config, Expected, Limits, LinkConfig, PeerConfig, RadioConfig, Security,
    TeamConfig, WatchdogConfig,
};
use crate::treatment::peer_names::Accept;
use crate::treatment::services::{ServiceRule, ServiceTreatment};
use crate::treatment::{LinkChoice, TopicRule, Treatment, WhenSlow};
use std::fmt::{Debug, Display};
use std::net::SocketAddr;
use tautline_gateway::pattern::Pattern;
use tautline_gateway::tf;
use tautline_proto::{Marking, Rate};

/// Keys of an entry, as in the file, and their values as text.
type Described = Vec<(&'static str, String)>;

/// Returns the changes that turn `old` into `new`. The error lists every difference that needs a
/// restart.
pub fn difference(old: &Config, new: &Config) -> Result<Changes, Vec<String>> {
    let fixed = fixed_keys(old, new);
    if !fixed.is_empty() {
        return Err(fixed);
    }
    // A new key of the file belongs here, or above if it needs a restart.
    let Config {
        name: _,
        teams,
        listen: _,
        control: _,
        security: _,
        ros1: _,
        ros2: _,
        realtime: _,
        audit: _,
        state: _,
        metrics,
        beacons,
        diagnostics,
        radios,
        marking,
        peers,
        topics,
        channels,
        expected,
        services,
        watchdogs,
        tf,
        limits,
    } = new;
    let mut all = Changes::default();
    let [before, after] = [&old.teams, teams].map(|all| all.clone().unwrap_or_default());
    all.entries("team", &before, &after, |it| it.name.clone(), team);
    all.peers(&old.peers, peers);
    let name = |it: &TopicRule| text(&it.pattern);
    all.rules("topic", &old.topics, topics, name, |it| treatment(&it.treatment));
    let name = |it: &ServiceRule| text(&it.pattern);
    all.rules("service", &old.services, services, name, |it| calls(&it.treatment));
    all.entries("watchdog", &old.watchdogs, watchdogs, |it| it.topic.clone(), watchdog);
    let name = |it: &Expected| text(&it.pattern);
    let [before, after] = [&old.expected, expected].map(|all| given(all));
    all.entries("expectation", &before, &after, name, expectation);
    let name = |it: &(String, Channel)| it.0.clone();
    all.entries("channel", &old.channels, channels, name, |it| vec![("channel", words(&it.1))]);
    all.entries("radio", &old.radios, radios, |it| it.interface.clone(), radio);
    all.entry("dscp", "", &old.marking, marking, dscp);
    all.entry("tf", "", &old.tf, tf, transforms);
    all.entry("limits", "", &old.limits, limits, bounds);
    let shown = |it: &Beacons| vec![("beacons", shown_beacons(it))];
    all.entry("beacons", "", &old.beacons, beacons, shown);
    let shown = |it: &Option<SocketAddr>| vec![("metrics", or_none(*it))];
    all.entry("metrics", "", &old.metrics, metrics, shown);
    let shown = |it: &bool| vec![("diagnostics", it.to_string())];
    all.entry("diagnostics", "", &old.diagnostics, diagnostics, shown);
    Ok(all)
}

/// Differences that need a restart: agreed with other programs at the start, or bound to threads
/// and sockets.
#[derive(Default)]
struct FixedKeys(Vec<String>);

fn compare_ros(found: &mut FixedKeys, old: &Config, new: &Config) {
    let ros = |it: &Config| match (&it.ros1, &it.ros2) {
        (Some(_), _) => "ROS 1",
        (None, Some(_)) => "ROS 2",
        (None, None) => "no ROS",
    };
    found.compare("ros1 or ros2", &ros(old), &ros(new), |it| (*it).to_owned());
    let not_shown = String::new;
    if let (Some(old), Some(new)) = (&old.ros1, &new.ros1) {
        found.compare("ros1.master", &old.master, &new.master, String::clone);
        found.compare("ros1.host", &old.host, &new.host, String::clone);
        found.compare("ros1.allow", &old.allow, &new.allow, |_| not_shown());
        found.compare("ros1.node_name", &old.node_name, &new.node_name, String::clone);
        found.compare("ros1.definitions", &old.installed, &new.installed, |_| not_shown());
    }
    if let (Some(old), Some(new)) = (&old.ros2, &new.ros2) {
        found.compare("ros2.domain", &old.domain, &new.domain, u32::to_string);
        found.compare("ros2.range", &old.localhost, &new.localhost, |it| {
            if *it { "localhost" } else { "subnet" }.to_owned()
        });
        found.compare("ros2.node_name", &old.node_name, &new.node_name, String::clone);
        found.compare("ros2.definitions", &old.definitions, &new.definitions, |_| not_shown());
    }
}

impl FixedKeys {
    fn compare<T: PartialEq>(&mut self, key: &str, old: &T, new: &T, shown: impl Fn(&T) -> String) {
        if old == new {
            return;
        }
        let (before, after) = (shown(old), shown(new));
        let (found, allowed) = match before == after {
            true => ("another value".into(), "the running value".into()),
            false => (after, before),
        };
        self.0.push(format!(
            "{key}: found {found}; allowed while the daemon runs: {allowed}. To apply the change, \
             restart the daemon"
        ));
    }
}

fn fixed_keys(old: &Config, new: &Config) -> Vec<String> {
    let mut found = FixedKeys::default();
    found.compare("name", &old.name, &new.name, Clone::clone);
    found.compare("the kind of the file", &old.teams.is_some(), &new.teams.is_some(), |it| {
        if *it { "a relay's, with 'teams'" } else { "a robot's, without 'teams'" }.to_owned()
    });
    found.compare("listen", &old.listen, &new.listen, ToString::to_string);
    found.compare("control", &old.control, &new.control, |it| path(it));
    found.compare("key or security", &old.security, &new.security, |it| match it {
        Security::Keys(file) => format!("key: {}", file.display()),
        Security::None => "security: none".into(),
    });
    compare_ros(&mut found, old, new);
    found.compare("realtime", &old.realtime, &new.realtime, |it| {
        let (priority, cpu, lock) = (or_none(it.priority), or_none(it.cpu), it.lock_memory);
        format!("priority {priority}, cpu {cpu}, lock_memory {lock}")
    });
    found.compare("audit", &old.audit, &new.audit, audit);
    found.compare("state", &old.state, &new.state, |it| path(it));
    for (key, bytes) in [
        ("max_message", (|it| it.max_message) as fn(&Limits) -> usize),
        ("reassembly_bytes", |it| it.reassembly_bytes),
    ] {
        let (old, new) = (bytes(&old.limits), bytes(&new.limits));
        found.compare(&format!("limits.{key}"), &old, &new, ToString::to_string);
    }
    found.0
}

fn change(what: &str, name: &str, kind: Kind) -> Change {
    Change { what: what.into(), name: name.into(), kind, details: Vec::new() }
}

impl Changes {
    /// Keys identify peers: an entry with another key is another peer, even under the same name.
    fn peers(&mut self, old: &[PeerConfig], new: &[PeerConfig]) {
        let same = |a: &PeerConfig, b: &PeerConfig| a.key == b.key && a.team == b.team;
        self.matched("peer", old, new, same, |peer| peer.name.to_string(), peer_keys);
    }

    /// Adds the differences between two versions of one entry.
    fn entry<T: PartialEq>(
        &mut self,
        what: &str,
        name: &str,
        old: &T,
        new: &T,
        describe: impl Fn(&T) -> Described,
    ) {
        if old == new {
            return;
        }
        let (before, after) = (describe(old), describe(new));
        let value = |of: &Described, key| {
            let found = of.iter().find(|(other, _)| *other == key);
            found.map_or_else(|| "none".to_owned(), |(_, value)| value.clone())
        };
        let mut keys: Vec<&str> = before.iter().chain(&after).map(|(key, _)| *key).collect();
        let mut seen = std::collections::BTreeSet::new();
        keys.retain(|key| seen.insert(*key));
        let details = keys.into_iter().map(|key| Detail {
            key: key.into(),
            before: value(&before, key),
            after: value(&after, key),
        });
        let details = details.filter(|it| it.before != it.after).collect();
        self.changes.push(Change { details, ..change(what, name, Kind::Changed) });
    }

    /// Compares entries that are independent of each other.
    fn entries<T: PartialEq>(
        &mut self,
        what: &str,
        old: &[T],
        new: &[T],
        name: impl Fn(&T) -> String,
        describe: impl Fn(&T) -> Described,
    ) {
        self.matched(what, old, new, |a, b| name(a) == name(b), &name, describe);
    }

    /// Compares lists of entries. Two entries for which `same` holds are versions of one.
    fn matched<T: PartialEq>(
        &mut self,
        what: &str,
        old: &[T],
        new: &[T],
        same: impl Fn(&T, &T) -> bool,
        name: impl Fn(&T) -> String,
        describe: impl Fn(&T) -> Described,
    ) {
        for gone in old.iter().filter(|entry| !new.iter().any(|other| same(other, entry))) {
            self.changes.push(change(what, &name(gone), Kind::Removed));
        }
        for entry in new {
            match old.iter().find(|other| same(other, entry)) {
                None => self.changes.push(change(what, &name(entry), Kind::Added)),
                Some(known) => self.entry(what, &name(entry), known, entry, &describe),
            }
        }
    }

    /// Compares entries of which the first match applies, so that their order matters as well.
    fn rules<T: PartialEq>(
        &mut self,
        what: &str,
        old: &[T],
        new: &[T],
        name: impl Fn(&T) -> String,
        describe: impl Fn(&T) -> Described,
    ) {
        self.entries(what, old, new, &name, describe);
        let common = |of: &[T], other: &[T]| -> Vec<String> {
            let other: Vec<String> = other.iter().map(&name).collect();
            of.iter().map(&name).filter(|name| other.contains(name)).collect()
        };
        let (before, after) = (common(old, new), common(new, old));
        if before != after {
            let (before, after) = (before.join(", "), after.join(", "));
            let detail = Detail { key: "order".into(), before, after };
            let changed = change(what, "rules", Kind::Changed);
            self.changes.push(Change { details: vec![detail], ..changed });
        }
    }
}

fn given(all: &[Expected]) -> Vec<Expected> {
    all.iter().filter(|it| it.rate_hz.is_some() || it.bytes.is_some()).cloned().collect()
}

fn expectation(of: &Expected) -> Described {
    let rate = of.rate_hz.map(|hz| format!("{hz}Hz"));
    vec![("expect.rate", or_none(rate)), ("expect.size", or_none(of.bytes))]
}

fn text(pattern: &Pattern) -> String {
    pattern.as_str().to_owned()
}

fn path(path: &std::path::Path) -> String {
    path.display().to_string()
}

/// Formats the value as in the file.
fn audit(of: &AuditConfig) -> String {
    match of {
        AuditConfig::Off => "false".into(),
        AuditConfig::Journald => "{ to: journald }".into(),
        AuditConfig::Files { path: file, size, files } => {
            format!("{{ file: {}, size: {size}, files: {files} }}", path(file))
        }
    }
}

fn shown(value: &impl Debug) -> String {
    format!("{value:?}")
}

fn or_none(value: Option<impl Display>) -> String {
    value.map_or_else(|| "none".into(), |value| value.to_string())
}

fn list(all: impl IntoIterator<Item = String>) -> String {
    let all: Vec<String> = all.into_iter().collect();
    if all.is_empty() { "none".into() } else { format!("[{}]", all.join(", ")) }
}

fn team(of: &TeamConfig) -> Described {
    let rate = of.max_rate_bps.map(|bps| format!("{bps} bps"));
    vec![("max_rate", or_none(rate)), ("queue_bytes", of.queue_bytes.to_string())]
}

fn peer_keys(peer: &PeerConfig) -> Described {
    let names = &peer.names;
    vec![
        ("name", peer.name.clone()),
        ("links", list(peer.links.iter().map(link))),
        ("mtu", or_none(peer.mtu)),
        ("via", list(peer.via.clone())),
        ("direct", or_none(peer.direct)),
        ("relay", peer.relay.to_string()),
        ("prefix", if names.prefix.is_empty() { "none".into() } else { names.prefix.clone() }),
        ("remap", list(names.remap.iter().map(|(from, to)| format!("{from}: {to}")))),
        ("accept", list(names.accept.iter().map(accepted))),
        ("call", list(peer.call.iter().map(text))),
        ("offer", list(peer.offer.iter().map(text))),
        ("show", list(peer.show.words().into_iter().map(str::to_owned))),
        ("set_parameters", list(peer.set_parameters.iter().map(text))),
        ("max_rate", format!("{} bps", peer.max_rate_bps)),
        ("max_priority", peer.max_priority.to_string()),
        ("move_stamps", peer.move_stamps.to_string()),
    ]
}

fn accepted(entry: &Accept) -> String {
    let types = list(entry.types.clone());
    if entry.types.is_empty() {
        text(&entry.pattern)
    } else {
        format!("{}: {types}", text(&entry.pattern))
    }
}

fn link(link: &LinkConfig) -> String {
    let LinkConfig { name, host, port, interface, mtu, metered, budget } = link;
    let interface = interface.as_ref().map_or(String::new(), |it| format!(" by {it}"));
    let mtu = mtu.map_or(String::new(), |mtu| format!(" mtu {mtu}"));
    let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
    let metered = if *metered { " metered" } else { "" };
    let budget = budget.map_or(String::new(), |it| format!(" budget {it}"));
    format!("{name}: {host}:{port}{interface}{mtu}{metered}{budget}")
}

fn treatment(of: &Treatment) -> Described {
    vec![
        ("priority", of.priority.to_string()),
        ("keep_last", or_none(of.keep_last)),
        ("when_slow", or_none(of.when_slow.map(WhenSlow::word))),
        ("lifespan", of.lifespan.map_or_else(|| "none".into(), |it| shown(&it))),
        ("rate", or_none(of.rate_hz.map(|hz| format!("{hz} Hz")))),
        ("compression", shown(&of.compression).to_lowercase()),
        ("tf_prefix", of.tf_prefix.to_string()),
        ("to", of.to.as_ref().map_or_else(|| "all".into(), |to| list(to.clone()))),
        ("repair", of.repair.to_string()),
        ("fec", of.fec.map_or_else(|| "none".into(), |percent| format!("{percent} %"))),
        ("links", of.links.choice.map_or("by priority", LinkChoice::word).to_owned()),
        ("copies", of.links.copies.to_string()),
        ("only_links", list(of.links.only.clone())),
        ("avoid_links", list(of.links.avoid.clone())),
        ("over_budget", of.links.over_budget.to_string()),
        ("order", of.order.word().to_owned()),
        ("order_wait", shown(&of.order_wait)),
    ]
}

fn calls(of: &ServiceTreatment) -> Described {
    vec![
        ("priority", of.priority.to_string()),
        ("timeout", shown(&of.timeout)),
        ("to", of.to.as_ref().map_or_else(|| "all".into(), |to| list(to.clone()))),
    ]
}

fn watchdog(of: &WatchdogConfig) -> Described {
    vec![
        ("after", shown(&of.after)),
        ("message", shown(&of.message)),
        ("repeat", of.repeat.map_or_else(|| "none".into(), |it| shown(&it))),
    ]
}

fn radio(of: &RadioConfig) -> Described {
    let rate = match of.rate {
        Rate::Fixed(bps) => format!("{bps} bps"),
        Rate::BackPressure => "back-pressure".into(),
        other => shown(&other).to_lowercase(),
    };
    vec![("rate", rate), ("in_flight", of.in_flight.to_string())]
}

fn dscp(of: &Option<Marking>) -> Described {
    match of {
        None => vec![("marking", "off".into())],
        Some(it) => vec![
            ("marking", "on".into()),
            ("priorities", shown(&it.from)),
            ("code points", shown(&it.dscp)),
        ],
    }
}

fn transforms(of: &tf::Rules) -> Described {
    vec![
        ("frames", list(of.frames.iter().map(text))),
        ("prefix", if of.prefix.is_empty() { "none".into() } else { of.prefix.clone() }),
        ("shared", list(of.shared.iter().map(text))),
    ]
}

fn bounds(of: &Limits) -> Described {
    vec![
        ("queue_bytes", of.queue_bytes.to_string()),
        ("queue_time", shown(&of.queue_time)),
        ("repair_budget", of.repair_budget.to_string()),
    ]
}

fn shown_beacons(of: &Beacons) -> String {
    match of {
        Beacons::Off => "off".into(),
        Beacons::Everywhere => "on all interfaces".into(),
        Beacons::On(interfaces) => list(interfaces.clone()),
    }
}
