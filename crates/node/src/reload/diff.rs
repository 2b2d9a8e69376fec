// SPDX-License-Identifier: Apache-2.0
//! The difference between the running configuration and another one. Pure.

use super::changes::{Change, Changes, Detail, Kind};
use crate::config::{
    AuditConfig, Beacons, Config, Limits, LinkConfig, PeerConfig, RadioConfig, Realtime, Security,
    WatchdogConfig,
};
use std::fmt::{Debug, Display};
use tautline_gateway::mapping::{Accept, Pattern, ServiceTreatment, Treatment};
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
        listen: _,
        control: _,
        security: _,
        ros1: _,
        ros2: _,
        realtime: _,
        audit: _,
        metrics,
        beacons,
        diagnostics,
        radios,
        marking,
        peers,
        topics,
        services,
        watchdogs,
        tf,
        limits,
    } = new;
    let mut all = Vec::new();
    peers_differ(&old.peers, peers, &mut all);
    let rules = |rules: &[tautline_gateway::mapping::TopicRule]| -> Vec<_> {
        rules.iter().map(|it| (text(&it.pattern), it.treatment.clone())).collect()
    };
    named("topic", &rules(&old.topics), &rules(topics), treatment, &mut all);
    let rules = |rules: &[tautline_gateway::mapping::ServiceRule]| -> Vec<_> {
        rules.iter().map(|it| (text(&it.pattern), it.treatment.clone())).collect()
    };
    named("service", &rules(&old.services), &rules(services), calls, &mut all);
    let by_name = |all: &[WatchdogConfig]| -> Vec<_> {
        all.iter().map(|it| (it.topic.clone(), it.clone())).collect()
    };
    set("watchdog", &by_name(&old.watchdogs), &by_name(watchdogs), watchdog, &mut all);
    let by_name = |all: &[RadioConfig]| -> Vec<_> {
        all.iter().map(|it| (it.interface.clone(), it.clone())).collect()
    };
    set("radio", &by_name(&old.radios), &by_name(radios), radio, &mut all);
    single("dscp", &old.marking, marking, dscp, &mut all);
    single("tf", &old.tf, tf, transforms, &mut all);
    single("limits", &old.limits, limits, bounds, &mut all);
    single("beacons", &old.beacons, beacons, |it| vec![("beacons", shown_beacons(it))], &mut all);
    single("metrics", &old.metrics, metrics, |it| vec![("metrics", or_none(*it))], &mut all);
    let flag = |it: &bool| vec![("diagnostics", it.to_string())];
    single("diagnostics", &old.diagnostics, diagnostics, flag, &mut all);
    Ok(Changes { changes: all, kept: Vec::new() })
}

/// Returns the differences that need a restart: agreed with other programs at the start, or bound
/// to threads and sockets.
fn fixed_keys(old: &Config, new: &Config) -> Vec<String> {
    let mut found = Vec::new();
    let mut fixed = |key: &str, before: String, after: String| {
        if before == after {
            return found
                .push(format!("{key}: differs from what runs; restart the daemon for this"));
        }
        found.push(format!(
            "{key}: found {after}, running with {before}; restart the daemon for this"
        ));
    };
    if old.name != new.name {
        fixed("name", old.name.clone(), new.name.clone());
    }
    if old.listen != new.listen {
        fixed("listen", old.listen.to_string(), new.listen.to_string());
    }
    if old.control != new.control {
        fixed("control", path(&old.control), path(&new.control));
    }
    if old.security != new.security {
        let shown = |it: &Security| match it {
            Security::Keys(file) => format!("key: {}", file.display()),
            Security::None => "security: none".into(),
        };
        fixed("key or security", shown(&old.security), shown(&new.security));
    }
    if old.ros1 != new.ros1 || old.ros2 != new.ros2 {
        let shown = |config: &Config| match (&config.ros1, &config.ros2) {
            (Some(ros1), _) => format!("ROS 1 at {} as {}", ros1.master, ros1.node_name),
            (None, Some(ros2)) => format!("ROS 2 in domain {} as {}", ros2.domain, ros2.node_name),
            (None, None) => "no ROS".into(),
        };
        fixed("ros1 or ros2", shown(old), shown(new));
    }
    if old.realtime != new.realtime {
        let shown = |it: &Realtime| {
            let (priority, cpu, lock) = (or_none(it.priority), or_none(it.cpu), it.lock_memory);
            format!("priority {priority}, cpu {cpu}, lock_memory {lock}")
        };
        fixed("realtime", shown(&old.realtime), shown(&new.realtime));
    }
    if old.audit != new.audit {
        fixed("audit", audit(&old.audit), audit(&new.audit));
    }
    let bytes = |limits: &Limits| {
        [("max_message", limits.max_message), ("reassembly_bytes", limits.reassembly_bytes)]
    };
    for ((key, before), (_, after)) in bytes(&old.limits).into_iter().zip(bytes(&new.limits)) {
        if before != after {
            fixed(&format!("limits.{key}"), before.to_string(), after.to_string());
        }
    }
    found
}

/// Keys identify peers: an entry with another key is another peer, even under the same name.
fn peers_differ(old: &[PeerConfig], new: &[PeerConfig], all: &mut Vec<Change>) {
    for gone in old.iter().filter(|it| !new.iter().any(|other| other.key == it.key)) {
        all.push(change("peer", &gone.name, Kind::Removed));
    }
    for peer in new {
        match old.iter().find(|it| it.key == peer.key) {
            None => all.push(change("peer", &peer.name, Kind::Added)),
            Some(known) => changed("peer", &peer.name, (known, peer), peer_keys, all),
        }
    }
}

fn change(what: &str, name: &str, kind: Kind) -> Change {
    Change { what: what.into(), name: name.into(), kind, details: Vec::new() }
}

/// Adds the differences between two versions of one entry.
fn changed<T: PartialEq>(
    what: &str,
    name: &str,
    (old, new): (&T, &T),
    describe: impl Fn(&T) -> Described,
    all: &mut Vec<Change>,
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
    all.push(Change { details, ..change(what, name, Kind::Changed) });
}

fn single<T: PartialEq>(
    what: &str,
    old: &T,
    new: &T,
    describe: impl Fn(&T) -> Described,
    all: &mut Vec<Change>,
) {
    changed(what, "", (old, new), describe, all);
}

/// Compares entries that are independent of each other.
fn set<T: PartialEq>(
    what: &str,
    old: &[(String, T)],
    new: &[(String, T)],
    describe: impl Fn(&T) -> Described,
    all: &mut Vec<Change>,
) {
    let find = |list: &[(String, T)], name: &str| list.iter().position(|(other, _)| other == name);
    for (name, _) in old.iter().filter(|(name, _)| find(new, name).is_none()) {
        all.push(change(what, name, Kind::Removed));
    }
    for (name, entry) in new {
        match find(old, name) {
            None => all.push(change(what, name, Kind::Added)),
            Some(index) => changed(what, name, (&old[index].1, entry), &describe, all),
        }
    }
}

/// Compares entries of which the first match applies, so that their order matters as well.
fn named<T: PartialEq>(
    what: &str,
    old: &[(String, T)],
    new: &[(String, T)],
    describe: impl Fn(&T) -> Described,
    all: &mut Vec<Change>,
) {
    set(what, old, new, describe, all);
    let common = |of: &[(String, T)], other: &[(String, T)]| -> Vec<String> {
        let both = of.iter().filter(|(name, _)| other.iter().any(|(it, _)| it == name));
        both.map(|(name, _)| name.clone()).collect()
    };
    let (before, after) = (common(old, new), common(new, old));
    if before != after {
        let detail =
            Detail { key: "order".into(), before: before.join(", "), after: after.join(", ") };
        all.push(Change { details: vec![detail], ..change(what, "rules", Kind::Changed) });
    }
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

fn peer_keys(peer: &PeerConfig) -> Described {
    let names = &peer.names;
    vec![
        ("name", peer.name.clone()),
        ("links", list(peer.links.iter().map(link))),
        ("via", list(peer.via.clone())),
        ("relay", peer.relay.to_string()),
        ("prefix", if names.prefix.is_empty() { "none".into() } else { names.prefix.clone() }),
        ("remap", list(names.remap.iter().map(|(from, to)| format!("{from}: {to}")))),
        ("accept", list(names.accept.iter().map(accepted))),
        ("call", list(peer.call.iter().map(text))),
        ("offer", list(peer.offer.iter().map(text))),
        ("max_rate", format!("{} bps", peer.max_rate_bps)),
        ("max_priority", peer.max_priority.to_string()),
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
    let LinkConfig { host, port, interface, mtu } = link;
    let interface = interface.as_ref().map_or(String::new(), |it| format!(" by {it}"));
    let mtu = mtu.map_or(String::new(), |mtu| format!(" mtu {mtu}"));
    let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
    format!("{host}:{port}{interface}{mtu}")
}

fn treatment(of: &Treatment) -> Described {
    vec![
        ("priority", of.priority.to_string()),
        ("keep_last", or_none(of.keep_last)),
        ("when_slow", or_none(of.when_slow.map(tautline_gateway::mapping::WhenSlow::word))),
        ("lifespan", of.lifespan.map_or_else(|| "none".into(), |it| shown(&it))),
        ("rate", or_none(of.rate_hz.map(|hz| format!("{hz} Hz")))),
        ("compression", shown(&of.compression).to_lowercase()),
        ("to", of.to.as_ref().map_or_else(|| "all".into(), |to| list(to.clone()))),
        ("repair", of.repair.to_string()),
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
    let shown = |part: &dyn Debug| format!("{part:?}");
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
