// SPDX-License-Identifier: Apache-2.0
//! The entries of a file, as a reload compares and shows them.

use super::channel;
use super::model::{
    AuditConfig, Beacons, Config, Entries, Fixed, Group, LinkConfig, Member, PeerConfig, Security,
};
use super::read::{Described, Entry, Keys, Named, formatted_list};
use super::relay::table::RelayFile;
use super::setting::Reload::{Applied, Refused};
use super::table::{CallKeys, PeerKeys, Realtime, RobotFile, TopicKeys};
use std::fmt::{Debug, Display};
use std::ops::Deref;
use std::path::Path;
use tautline_gateway::action_names::{ACTION_SERVICES, ACTION_TOPICS};
use tautline_gateway::pattern::Pattern;
use tautline_proto::Marking;

impl Entries {
    /// Returns the entries of a robot's file.
    pub(super) fn from_robot_file(file: &RobotFile, config: &Config) -> Self {
        // A new key belongs in a group, or in `fixed` if its change needs a restart.
        let RobotFile {
            at: _,
            name: _,
            listen: _,
            control: _,
            metrics,
            beacons,
            diagnostics,
            audit: _,
            state: _,
            security: _,
            key: _,
            ros1: _,
            ros2: _,
            peers,
            radios,
            dscp,
            topics,
            services,
            actions,
            watchdogs,
            tf,
            limits,
            realtime: _,
        } = file;
        let peers = peers.entries().iter().zip(&config.peers);
        let is_of_topics = |key: &str| key != CallKeys::timeout.name;
        let action_topics = action_parts(actions.entries(), &ACTION_TOPICS, is_of_topics);
        let action_services = action_parts(actions.entries(), &ACTION_SERVICES, |_| true);
        let channels = radios.entries().iter().filter_map(|radio| {
            let entry = &radio.keys.channel;
            let words = channel::words(entry.value.as_ref()?);
            Some(Member::new(&radio.text, vec![(entry.key, words)]))
        });
        let groups = vec![
            group("peer", peers.map(|(named, peer)| Member::peer(named, peer))),
            Group {
                is_ordered: true,
                ..group("topic", action_topics.chain(named_entries(topics)))
            },
            Group {
                is_ordered: true,
                ..group("service", action_services.chain(named_entries(services)))
            },
            group("watchdog", named_entries(watchdogs)),
            group("expectation", topics.entries().iter().filter_map(expectation)),
            group("channel", channels),
            group("radio", named_entries(radios)),
            single_entry(dscp.key, marking(config.marking.as_ref())),
            single_entry(tf.key, section(tf)),
            single_entry(limits.key, section(limits)),
            single_entry(beacons.key, vec![(beacons.key, beacons_in_words(&config.beacons))]),
            single_entry(metrics.key, vec![(metrics.key, or_none(config.metrics))]),
            single_entry(diagnostics.key, vec![(diagnostics.key, config.diagnostics.to_string())]),
        ];
        let mut fixed = fixed_values(config);
        let refused = limits.value.iter().flat_map(|limits| limits.described(Refused));
        fixed.extend(
            refused.map(|(key, value)| fixed_value(&format!("{}.{key}", limits.key), value)),
        );
        Self { fixed, groups }
    }

    /// Returns the entries of a relay's file.
    pub(super) fn from_relay_file(file: &RelayFile, config: &Config) -> Self {
        let members = file.members().zip(&config.peers);
        let groups = vec![
            group("team", named_entries(&file.teams)),
            group("peer", members.map(|((_, named), peer)| Member::peer(named, peer))),
            single_entry(file.metrics.key, vec![(file.metrics.key, or_none(config.metrics))]),
        ];
        Self { fixed: fixed_values(config), groups }
    }
}

/// Keys of a peer that a difference lists after the peer's links.
const PATHS: [&str; 3] = [PeerKeys::via.name, PeerKeys::direct.name, PeerKeys::relay.name];

impl Member {
    fn new(name: &str, keys: Described) -> Self {
        Self { name: name.into(), identity: name.into(), keys }
    }

    /// A peer is identified by its public key: an entry with another public key is another peer,
    /// even under the same name.
    fn peer<S: Keys>(named: &Named<String, S>, peer: &PeerConfig) -> Self {
        let mut keys = vec![
            ("name", peer.name.clone()),
            ("links", formatted_list(peer.links.iter().map(link))),
            ("mtu", or_none(peer.mtu)),
        ];
        let mut described = named.keys.described(Applied);
        described.sort_by_key(|(key, _)| !PATHS.contains(key));
        keys.extend(described);
        Self { name: peer.name.clone(), identity: format!("{} {:?}", peer.key, peer.team), keys }
    }
}

fn group(what: &'static str, members: impl IntoIterator<Item = Member>) -> Group {
    Group { what, is_ordered: false, members: members.into_iter().collect() }
}

/// A group of one entry, which is a key of the whole node.
fn single_entry(what: &'static str, keys: Described) -> Group {
    group(what, [Member::new("", keys)])
}

fn section<S>(entry: &Entry<S>) -> Described
where
    S: Deref<Target: Keys>,
{
    entry.value.iter().flat_map(|section| section.described(Applied)).collect()
}

fn named_entries<N, S: Keys>(entry: &Entry<Vec<Named<N, S>>>) -> impl Iterator<Item = Member> {
    let all = entry.entries().iter();
    all.map(|named| Member::new(&named.text, named.keys.described(Applied)))
}

/// Returns the topics or services of actions. Topics of an action have only some of the keys of the action.
fn action_parts<'f>(
    actions: &'f [Named<String, CallKeys>],
    parts: &'f [&str],
    has_key: fn(&str) -> bool,
) -> impl Iterator<Item = Member> + 'f {
    let names = actions.iter().flat_map(|action| parts.iter().map(move |part| (action, part)));
    names.map(move |(action, part)| {
        let mut keys = action.keys.described(Applied);
        keys.retain(|(key, _)| has_key(key));
        Member::new(&format!("{}/_action/{part}", action.text), keys)
    })
}

/// Returns what the planner assumes about a topic, if the file says anything.
fn expectation(topic: &Named<Pattern, TopicKeys>) -> Option<Member> {
    let expect = topic.keys.expect.value.as_ref()?;
    let is_given = expect.rate.value.is_some() || expect.size.value.is_some();
    let keys = ["expect.rate", "expect.size"].into_iter().zip(expect.described(Applied));
    let keys = keys.map(|(path, (_, value))| (path, value)).collect();
    is_given.then(|| Member::new(&topic.text, keys))
}

fn marking(marking: Option<&Marking>) -> Described {
    match marking {
        None => vec![("marking", "off".into())],
        Some(marking) => vec![
            ("marking", "on".into()),
            ("priorities", format!("{:?}", marking.from)),
            ("code points", format!("{:?}", marking.dscp)),
        ],
    }
}

fn beacons_in_words(beacons: &Beacons) -> String {
    match beacons {
        Beacons::Off => "off".into(),
        Beacons::Everywhere => "on all interfaces".into(),
        Beacons::On(interfaces) => formatted_list(interfaces.clone()),
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

/// Returns the values that only a restart can change: other programs learn them at the start, or
/// threads and sockets are bound to them.
fn fixed_values(config: &Config) -> Vec<Fixed> {
    let kind = match config.teams {
        Some(_) => "a relay's, with 'teams'",
        None => "a robot's, without 'teams'",
    };
    let security = match &config.security {
        Security::Keys(file) => format!("key: {}", file.display()),
        Security::None => "security: none".into(),
    };
    let ros = match (&config.ros1, &config.ros2) {
        (Some(_), _) => "ROS 1",
        (None, Some(_)) => "ROS 2",
        (None, None) => "no ROS",
    };
    let mut all = vec![
        fixed_value("name", config.name.clone()),
        fixed_value("the kind of the file", kind.into()),
        fixed_value("listen", config.listen.to_string()),
        fixed_value("control", path(&config.control)),
        fixed_value("key or security", security),
        fixed_value("ros1 or ros2", ros.into()),
    ];
    if let Some(ros1) = &config.ros1 {
        all.push(fixed_value("ros1.master", ros1.master.clone()));
        all.push(fixed_value("ros1.host", ros1.host.clone()));
        all.push(not_shown("ros1.allow", &ros1.allow));
        all.push(fixed_value("ros1.node_name", ros1.node_name.clone()));
        all.push(not_shown("ros1.definitions", &ros1.installed));
    }
    if let Some(ros2) = &config.ros2 {
        let range = if ros2.localhost { "localhost" } else { "subnet" };
        all.push(fixed_value("ros2.domain", ros2.domain.to_string()));
        all.push(fixed_value("ros2.range", range.into()));
        all.push(fixed_value("ros2.node_name", ros2.node_name.clone()));
        all.push(not_shown("ros2.definitions", &ros2.definitions));
    }
    let Realtime { priority, cpu, lock_memory: lock } = &config.realtime;
    let (priority, cpu) = (or_none(*priority), or_none(*cpu));
    all.extend([
        fixed_value("realtime", format!("priority {priority}, cpu {cpu}, lock_memory {lock}")),
        fixed_value("audit", audit(&config.audit)),
        fixed_value("state", path(&config.state)),
    ]);
    all
}

fn fixed_value(key: &str, value: String) -> Fixed {
    Fixed { key: key.into(), compared: value.clone(), shown: value }
}

fn not_shown(key: &str, value: &impl Debug) -> Fixed {
    Fixed { key: key.into(), compared: format!("{value:?}"), shown: String::new() }
}

/// Formats the value as in the file.
fn audit(audit: &AuditConfig) -> String {
    match audit {
        AuditConfig::Off => "false".into(),
        AuditConfig::Journald => "{ to: journald }".into(),
        AuditConfig::Files { path: file, size, files } => {
            format!("{{ file: {}, size: {size}, files: {files} }}", path(file))
        }
    }
}

fn path(path: &Path) -> String {
    path.display().to_string()
}

fn or_none(value: Option<impl Display>) -> String {
    value.map_or_else(|| "none".into(), |value| value.to_string())
}
