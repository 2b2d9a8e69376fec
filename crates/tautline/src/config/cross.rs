// SPDX-License-Identifier: Apache-2.0
//! Checks that involve several keys, each of which is valid on its own.

mod budgets;
mod frames;
mod prefixes;

use super::assemble;
use super::model::{DEFAULT_PORT, MAX_PEERS, MAX_TOPIC_RULES};
use super::problem::{FILE_START, Position, Problem, Warning};
use super::read::{Entry, List, Named};
use super::surroundings::Surroundings;
use super::table::{LinkKeys, Peer, RobotFile, Topic};
use super::value::{Authentication, Interfaces};
use super::yaml::quoted_text;
use crate::treatment::peer_names::NameMap;
use crate::treatment::{LinkChoice, OrderChoice, WhenSlow};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::Ipv6Addr;
use tautline_gateway::names::check_local_name;
use tautline_gateway::pattern::Pattern;
use tautline_gateway::types::Dialect;
use tautline_proto::{PublicKey, SecretKey};

#[derive(Debug, Default)]
pub struct Findings {
    /// Errors, which prevent the use of the file.
    pub problems: Vec<Problem>,
    /// Values that are valid but probably not meant.
    pub warnings: Vec<Warning>,
}

pub fn check(file: &RobotFile, surroundings: &Surroundings) -> Findings {
    let mut findings = Findings::default();
    findings.check_counts(file);
    findings.check_ros_versions(file);
    findings.check_ros2_names(file);
    findings.check_own_name(file);
    findings.check_peer_keys(file);
    findings.check_relays(file);
    for peer in file.peers.entries() {
        findings.check_link_forms(peer);
        findings.check_direct_path(peer);
        findings.check_link_names(peer);
    }
    for topic in file.topics.entries() {
        findings.peers_without_named_links(file, topic);
        findings.keys_without_effect(topic);
        findings.queues_in_two_forms(topic);
    }
    findings.check_topic_links(file);
    findings.check_budgets(file);
    findings.addresses_used_twice(file);
    findings.link_local_addresses(file);
    findings.check_beacons(file);
    findings.check_destinations(file);
    findings.check_frames(file);
    findings.queues_too_small(file);
    findings.classes_out_of_order(file);
    findings.check_prefix_overlaps(file);
    findings.rules_that_never_match(file);
    findings.peers_without_rights(file);
    findings.services_without_callers(file);
    findings.watchdogs_without_publishers(file);
    findings.no_topics_or_peers(file);
    findings.missing_interfaces(file, surroundings);
    findings.launched_under_another_name(file, surroundings);
    findings
}

/// Returns all links of all peers. The entry of a peer may itself describe a link.
fn links(file: &RobotFile) -> impl Iterator<Item = (&Peer, LinkKeys)> {
    file.peers.entries().iter().flat_map(|peer| {
        let links = peer.keys.links.entries().iter().cloned();
        links.chain([peer.keys.own_link()]).map(move |link| (peer, link))
    })
}

/// Returns the names of the links to a peer.
fn link_names(peer: &Peer) -> Vec<String> {
    let links = peer.keys.links.entries().iter().enumerate();
    let names: Vec<String> = links.map(|(index, link)| link.link_name(index)).collect();
    match peer.keys.address.value {
        Some(_) if names.is_empty() => vec![peer.keys.own_link().link_name(0)],
        _ => names,
    }
}

/// Returns the path and the `to` of each topic, service and action.
fn destinations(file: &RobotFile) -> impl Iterator<Item = (String, &Entry<List<String>>)> {
    let topics = file.topics.entries().iter().map(|it| (it.path_of(&it.keys.to), &it.keys.to));
    let services = file.services.entries().iter().map(|it| (it.path_of(&it.keys.to), &it.keys.to));
    let actions = file.actions.entries().iter().map(|it| (it.path_of(&it.keys.to), &it.keys.to));
    topics.chain(services).chain(actions)
}

impl Findings {
    pub(super) fn add_error(
        &mut self,
        at: Position,
        key: impl Into<String>,
        found: impl Into<String>,
        allowed: impl Into<String>,
    ) {
        let (key, found, allowed) = (key.into(), found.into(), allowed.into());
        self.problems.push(Problem { at, key, found, allowed });
    }

    pub(super) fn warn(&mut self, at: Position, key: impl Into<String>, text: impl Into<String>) {
        self.warnings.push(Warning { at, key: key.into(), text: text.into() });
    }

    /// Warns of a key of a named section.
    pub(super) fn warn_of_key<N, S, T>(
        &mut self,
        named: &Named<N, S>,
        entry: &Entry<T>,
        text: impl Into<String>,
    ) {
        self.warn(entry.at, named.path_of(entry), text);
    }

    fn check_counts(&mut self, file: &RobotFile) {
        self.check_count(&file.peers, MAX_PEERS);
        self.check_count(&file.topics, MAX_TOPIC_RULES);
        self.check_count(&file.services, MAX_TOPIC_RULES);
        self.check_count(&file.actions, MAX_TOPIC_RULES);
        self.check_count(&file.watchdogs, MAX_TOPIC_RULES);
    }

    fn check_count<T>(&mut self, entry: &Entry<Vec<T>>, most: usize) {
        let count = entry.entries().len();
        if count > most {
            let found = format!("{count} entries");
            self.add_error(entry.at, entry.key, found, format!("at most {most}"));
        }
    }

    /// A daemon serves one kind of ROS; a robot with both runs two daemons.
    fn check_ros_versions(&mut self, file: &RobotFile) {
        let both = file.ros2.value.is_some() && file.ros1.value.is_some();
        if both && file.ros1.is_given {
            let allowed = "one of them; a robot with both runs a daemon for each, with its own \
                           name, port and control socket";
            self.add_error(file.ros2.at, file.ros2.key, "'ros1' as well", allowed);
        }
    }

    /// Nodes of ROS 2 cannot use all names that nodes of ROS 1 can.
    fn check_ros2_names(&mut self, file: &RobotFile) {
        let Some(ros2) = &file.ros2.value else { return };
        let peers = file.peers.entries();
        let mut found = Vec::new();
        found.extend(ros2.node_name.with_place().map(|it| (it, "ros2.node_name".to_owned())));
        for peer in peers {
            let prefix = &peer.keys.prefix;
            found.extend(prefix.with_place().map(|it| (it, peer.path_of(prefix))));
        }
        for peer in peers {
            let place = peer.path_of(&peer.keys.remap);
            let renames = peer.keys.remap.entries().iter();
            found.extend(renames.map(|(at, (from, to))| ((*at, to), format!("{place}.{from}"))));
        }
        let watchdogs = file.watchdogs.entries().iter();
        found.extend(watchdogs.map(|it| ((it.at, &it.text), file.watchdogs.key.to_owned())));
        for ((at, name), key) in found {
            if let Err(problem) = check_local_name(name, Some(Dialect::Ros2)) {
                let allowed = format!("names that nodes of ROS 2 can use ({problem})");
                self.add_error(at, key, quoted_text(name), allowed);
            }
        }
    }

    fn check_own_name(&mut self, file: &RobotFile) {
        let Some(own) = file.name.get() else { return };
        for peer in file.peers.entries().iter().filter(|peer| peer.text == own) {
            let found = format!("this node's own name {}", quoted_text(&own));
            self.add_error(peer.at, &*peer.path, found, "names of other nodes");
        }
    }

    /// Without a key in the file, anybody could act as the peer.
    fn check_peer_keys(&mut self, file: &RobotFile) {
        let secure = !file.security.is(Authentication::None);
        let mut owners: HashMap<PublicKey, &str> = HashMap::new();
        for peer in file.peers.entries() {
            let place = peer.path_of(&peer.keys.key);
            let Some((at, key)) = peer.keys.key.with_place() else {
                // A wrong key has already been reported.
                if secure && !peer.keys.key.is_given {
                    let allowed = "the peer's public key, which `tautline keygen` shows on that \
                                   robot; or 'security: none' at the top, on closed test networks";
                    self.add_error(peer.at, place, "no key", allowed);
                }
                continue;
            };
            if !secure {
                self.warn(at, place, "ignored: with 'security: none' anybody can be this peer");
            } else if *key == SecretKey::insecure(&peer.text).public() {
                let found = "the key of this name under 'security: none'";
                self.add_error(at, place, found, "a key that cannot be derived from the name");
            } else if let Some(other) = owners.insert(*key, &peer.text) {
                let found = format!("the key of {}", quoted_text(other));
                self.add_error(at, place, found, "a key that no other peer has");
            }
        }
    }

    /// A relay must be a neighbour: a peer that is reached without another relay.
    fn check_relays(&mut self, file: &RobotFile) {
        let peers = file.peers.entries();
        let is_neighbour = |peer: &Peer| {
            peer.keys.via.entries().is_empty()
                || peer.keys.address.value.is_some()
                || !peer.keys.links.entries().is_empty()
        };
        for peer in peers {
            for (at, via) in peer.keys.via.entries() {
                let mut others = peers.iter().filter(|other| other.text != peer.text);
                if !others.any(|other| other.text == *via && is_neighbour(other)) {
                    let allowed = "another peer that is reached without a relay";
                    self.add_error(*at, peer.path_of(&peer.keys.via), quoted_text(via), allowed);
                }
            }
        }
    }

    /// The keys of a link belong either to the entry of the peer or to `links`.
    fn check_link_forms(&mut self, peer: &Peer) {
        let keys = &peer.keys;
        let has_links = !keys.links.entries().is_empty();
        let has_address = keys.address.value.is_some();
        let has_relay = !keys.via.entries().is_empty();
        let is_caller = !has_links && (!has_relay || !keys.direct.is(false));
        // `mtu` also limits the path to the address from which the peer initiates the handshake.
        let mtu = keys.mtu.with_place().filter(|_| has_address || !is_caller);
        let given = [
            keys.address.with_place().map(|(at, _)| (at, keys.address.key)),
            keys.interface.with_place().map(|(at, _)| (at, keys.interface.key)),
            mtu.map(|(at, _)| (at, keys.mtu.key)),
        ];
        for (at, key) in given.into_iter().flatten() {
            let (found, allowed) = match (has_links, has_address) {
                (true, _) => ("together with 'links'", "in each of the links, or no 'links'"),
                (false, false) => ("without 'address'", "together with 'address'"),
                (false, true) => return,
            };
            let (found, allowed) = (format!("'{key}' {found}"), format!("'{key}' {allowed}"));
            self.add_error(at, format!("{}.{key}", peer.path), found, allowed);
        }
    }

    /// `direct` has an effect only for a peer that is reached through relays alone.
    fn check_direct_path(&mut self, peer: &Peer) {
        let keys = &peer.keys;
        let useless = match () {
            () if !keys.direct.is_given => return,
            () if !keys.via.is_given => "ignored without 'via'",
            () if keys.address.is_given || keys.links.is_given => {
                "ignored, because the peer has an address"
            }
            () => return,
        };
        self.warn_of_key(peer, &keys.direct, useless);
    }

    fn check_link_names(&mut self, peer: &Peer) {
        let mut names = HashSet::new();
        for (index, link) in peer.keys.links.entries().iter().enumerate() {
            let name = link.link_name(index);
            let found = format!("two links with the name {}", quoted_text(&name));
            if !names.insert(name) {
                let place = peer.path_of(&peer.keys.links);
                self.add_error(link.at, place, found, "a 'name' for each link that no other has");
            }
        }
    }

    fn check_topic_links(&mut self, file: &RobotFile) {
        let all: BTreeSet<String> = file.peers.entries().iter().flat_map(link_names).collect();
        let allowed = format!("names of links: {}", Vec::from_iter(all.clone()).join(", "));
        for topic in file.topics.entries() {
            for links in [&topic.keys.only_links, &topic.keys.avoid_links] {
                for (at, name) in links.entries().iter().filter(|(_, name)| !all.contains(name)) {
                    let found = format!("the unknown link {}", quoted_text(name));
                    self.add_error(*at, topic.path_of(links), found, allowed.as_str());
                }
            }
        }
    }

    /// A topic that names its links does not reach a peer without any of them.
    fn peers_without_named_links(&mut self, file: &RobotFile, topic: &Topic) {
        let only_links = &topic.keys.only_links;
        let (to, only) = (topic.keys.to.values(), only_links.values());
        let receives = |peer: &&Peer| to.is_empty() || to.contains(&peer.text);
        for peer in file.peers.entries().iter().filter(receives) {
            let links = link_names(peer);
            if only.is_empty() || links.iter().any(|name| only.contains(name)) {
                return;
            }
            let links = if links.is_empty() { "none".into() } else { links.join(", ") };
            let text = format!(
                "{} has none of these links, so that it does not receive the topic; its links: {links}",
                peer.text
            );
            self.warn_of_key(topic, only_links, text);
        }
    }

    /// Warns of keys of a topic that other keys make useless.
    fn keys_without_effect(&mut self, topic: &Topic) {
        let keys = &topic.keys;
        let duplicates = keys.links.is(LinkChoice::Duplicate);
        let waits = keys.order.is(OrderChoice::Sent);
        if !duplicates {
            self.warn_if_given(topic, &keys.copies, "no effect without 'links: duplicate'");
        }
        if !waits {
            self.warn_if_given(topic, &keys.order_wait, "no effect without 'order: sent'");
        }
        if waits && keys.keep_last.is(1) {
            let text = "'sent' waits for nothing with 'keep_last: 1'";
            self.warn_if_given(topic, &keys.order, text);
        }
        if duplicates {
            self.warn_if_given(topic, &keys.fec, "no parity while two links carry copies");
        }
    }

    /// Warns of a key if it is in the file.
    fn warn_if_given<T>(&mut self, topic: &Topic, entry: &Entry<T>, text: &str) {
        if entry.is_given {
            self.warn_of_key(topic, entry, text);
        }
    }

    fn addresses_used_twice(&mut self, file: &RobotFile) {
        let mut owners: HashMap<(String, u16, Option<String>), (&Peer, Position)> = HashMap::new();
        for (peer, link) in links(file) {
            let Some((at, address)) = link.address.with_place() else { continue };
            let (host, port) = (&address.host, address.port.unwrap_or(DEFAULT_PORT));
            let address = (host.to_lowercase(), port, link.interface.get());
            if let Some((other, first)) = owners.insert(address, (peer, at)) {
                let (other, line) = (quoted_text(&other.text), first.line);
                let found = format!("the address of {other} on line {line} ({host}, port {port})");
                let allowed = "an address, port and interface that no other link has";
                self.add_error(at, &*peer.path, found, allowed);
            }
        }
    }

    /// fe80::/10 exists on every interface, so an address needs its interface (RFC 4007, 6).
    fn link_local_addresses(&mut self, file: &RobotFile) {
        for (peer, link) in links(file) {
            let Some((at, address)) = link.address.with_place() else { continue };
            let host = address.host.as_str();
            let (address, zone) = host.split_once('%').map_or((host, None), |(a, z)| (a, Some(z)));
            let is_link_local = address.parse().is_ok_and(|a: Ipv6Addr| a.is_unicast_link_local());
            let wrong = match (zone, &link.interface.value) {
                (None, None) if is_link_local => "without its interface".into(),
                (Some(zone), Some(interface)) if zone != interface => {
                    format!(
                        "on {}, but 'interface' is {}",
                        quoted_text(zone),
                        quoted_text(interface)
                    )
                }
                _ => continue,
            };
            let found = format!("the address {address} {wrong}");
            let allowed = format!("one interface, such as \"{address}%wlan0\"");
            self.add_error(at, peer.path_of(&link.address), found, allowed);
        }
    }

    fn check_beacons(&mut self, file: &RobotFile) {
        let list = file.beacons.entries();
        let is_flag = |(_, entry): &(Position, Interfaces)| matches!(entry, Interfaces::All(_));
        if let Some((at, _)) = list.iter().find(|entry| list.len() > 1 && is_flag(entry)) {
            let allowed = "true, false, or names of interfaces";
            let found = "true or false together with other values";
            self.add_error(*at, file.beacons.key, found, allowed);
        }
        let off = matches!(list, [] | [(_, Interfaces::All(false))]);
        if let (false, Some((_, address))) = (off, file.listen.with_place())
            && !address.ip().is_unspecified()
        {
            let text = "this node receives no beacons, since 'listen' names one address; \
                        [::] or 0.0.0.0 receives them";
            self.warn(file.beacons.at, file.beacons.key, text);
        }
    }

    fn check_destinations(&mut self, file: &RobotFile) {
        let peers: Vec<&str> = file.peers.entries().iter().map(|peer| &*peer.text).collect();
        let allowed = if peers.is_empty() {
            "none, since there are no peers".into()
        } else {
            peers.join(", ")
        };
        for (path, to) in destinations(file) {
            for (at, name) in to.entries().iter().filter(|(_, name)| !peers.contains(&&**name)) {
                let found = format!("the unknown peer {}", quoted_text(name));
                self.add_error(*at, &*path, found, allowed.as_str());
            }
        }
    }

    /// Refuses two keys that both set how many messages are queued.
    fn queues_in_two_forms(&mut self, topic: &Topic) {
        let keep_last = &topic.keys.keep_last;
        if let (Some(choice), Some((at, count))) =
            (topic.keys.when_slow.get(), keep_last.with_place())
        {
            let word = WhenSlow::word(choice);
            let found = format!("{count} together with 'when_slow: {word}'");
            self.add_error(at, topic.path_of(keep_last), found, "one of the two keys");
        }
    }

    fn queues_too_small(&mut self, file: &RobotFile) {
        let Some(limits) = &file.limits.value else { return };
        let Some(max_message) = limits.max_message.get() else { return };
        for entry in [&limits.queue_bytes, &limits.reassembly_bytes] {
            if let Some((at, &bytes)) = entry.with_place()
                && bytes < max_message
            {
                let found = format!("{bytes} bytes, less than max_message ({max_message} bytes)");
                let path = format!("{}.{}", file.limits.key, entry.key);
                self.add_error(at, path, found, "at least max_message");
            }
        }
    }

    fn classes_out_of_order(&mut self, file: &RobotFile) {
        let Some(dscp) = &file.dscp.value else { return };
        for entries in [&dscp.best_effort_from, &dscp.video_from, &dscp.voice_from].windows(2) {
            let (lower, higher) = (entries[0], entries[1]);
            if let Some((_, least)) = lower.with_place()
                && let Some((at, from)) = higher.with_place()
                && from < least
            {
                let lower = lower.key;
                let found = format!("{from}, less than {lower} ({least})");
                let path = format!("{}.{}", file.dscp.key, higher.key);
                self.add_error(at, path, found, format!("at least {lower}"));
            }
        }
    }

    fn rules_that_never_match(&mut self, file: &RobotFile) {
        let rules = file.topics.entries();
        for (i, rule) in rules.iter().enumerate().take(MAX_TOPIC_RULES) {
            let earlier = rules[..i].iter().find(|earlier| earlier.name.covers(&rule.name));
            if let Some(earlier) = earlier {
                let text = format!(
                    "never applies, because {} on line {} comes first and covers it; move it \
                     above that line",
                    quoted_text(&earlier.text),
                    earlier.at.line
                );
                self.warn(rule.at, &*rule.path, text);
            }
        }
    }

    /// Without `accept`, only observations are accepted, and only under a prefix. A peer may be in
    /// the file only because this node relays its packets.
    fn peers_without_rights(&mut self, file: &RobotFile) {
        let has_rights = |Peer { keys, .. }: &Peer| {
            keys.prefix.is_given || keys.accept.is_given || keys.relay.is(true)
        };
        let peers = file.peers.entries().iter();
        for peer in peers.filter(|peer| has_ros(file) && !has_rights(peer)) {
            let name = &peer.text;
            let text = format!(
                "no topic and no service of '{name}' is accepted: add 'prefix: /{}' for its \
                 observations, or 'accept' with the accepted names",
                name.replace('-', "_")
            );
            self.warn(peer.at, &*peer.path, text);
        }
    }

    /// A service call can move the robot, so the peer that calls needs a line that allows it.
    fn services_without_callers(&mut self, file: &RobotFile) {
        let calls = file.peers.entries().iter().flat_map(|peer| peer.keys.call.entries());
        let calls: Vec<&Pattern> = calls.map(|(_, pattern)| pattern).collect();
        let services = file.services.entries().iter().map(|it| (it.at, &it.path, &it.text));
        let actions = file.actions.entries().iter().map(|it| (it.at, &it.path, &it.text));
        for (at, path, name) in services.chain(actions) {
            let covered =
                |own: &Pattern| calls.iter().any(|call| call.covers(own) || own.covers(call));
            if Pattern::new(name).is_ok_and(|own| !covered(&own)) {
                let name = quoted_if_pattern(name);
                let text =
                    format!("no peer may call it: add 'call: {name}' under the peers that may");
                self.warn(at, path, text);
            }
        }
    }

    /// A watchdog starts with the first message that a peer publishes on its topic. If no peer may
    /// publish on the topic, the watchdog never starts.
    fn watchdogs_without_publishers(&mut self, file: &RobotFile) {
        let peers = file.peers.entries().iter();
        let names: Vec<NameMap> = peers.map(|peer| assemble::name_map(&peer.keys)).collect();
        for watchdog in file.watchdogs.entries().iter().filter(|_| has_ros(file)) {
            let topic = &watchdog.text;
            if !names.iter().any(|of_peer| may_publish(of_peer, topic)) {
                let text = format!(
                    "no peer may publish it, so this watchdog is never armed: add \
                     'accept: {{ {topic}: TYPE }}' under the peer that publishes it"
                );
                self.warn(watchdog.at, &*watchdog.path, text);
            }
        }
    }

    fn no_topics_or_peers(&mut self, file: &RobotFile) {
        let has_services =
            !file.services.entries().is_empty() || !file.actions.entries().is_empty();
        let mut warn = |key, text| self.warn(FILE_START, key, text);
        if file.topics.entries().is_empty() && !has_services {
            warn(file.topics.key, "no topics, so this node sends nothing");
        }
        if file.peers.entries().is_empty() {
            warn(file.peers.key, "no peers, so this node connects to no other node");
        }
    }

    /// Only the name in the file is compared, because it is the same after each start and reload.
    fn launched_under_another_name(&mut self, file: &RobotFile, surroundings: &Surroundings) {
        let Some(launched) = &surroundings.node_name else { return };
        let ros1 = file.ros1.value.as_ref().map(|keys| (file.ros1.key, &keys.node_name));
        let ros2 = file.ros2.value.as_ref().map(|keys| (file.ros2.key, &keys.node_name));
        let given = [ros1, ros2].into_iter().flatten().filter(|(_, entry)| entry.is_given);
        for (section, entry) in given {
            if let Some(name) = entry.value.as_ref().filter(|name| *name != launched) {
                let text = format!(
                    "{name} is used, although the arguments of ROS name this node {launched}; \
                     without this key their name is used"
                );
                self.warn(entry.at, format!("{section}.{}", entry.key), text);
            }
        }
    }

    fn missing_interfaces(&mut self, file: &RobotFile, surroundings: &Surroundings) {
        let Some(present) = &surroundings.interfaces else { return };
        let mut named: Vec<(Position, String, String)> = Vec::new();
        for (peer, LinkKeys { interface, .. }) in links(file) {
            let path = peer.path_of(&interface);
            named.extend(interface.value.map(|name| (interface.at, path, name)));
        }
        for (at, entry) in file.beacons.entries() {
            if let Interfaces::Named(name) = entry {
                named.push((*at, file.beacons.key.into(), name.clone()));
            }
        }
        let radios = file.radios.entries().iter();
        named.extend(radios.map(|radio| (radio.at, radio.path.clone(), radio.text.clone())));
        for (at, key, interface) in named {
            if !present.contains(&interface) {
                let text = format!(
                    "this machine has no interface {} now (it has {}); it will be used when it \
                     appears",
                    quoted_text(&interface),
                    present.join(", ")
                );
                self.warn(at, key, text);
            }
        }
    }
}

fn has_ros(file: &RobotFile) -> bool {
    file.ros1.value.is_some() || file.ros2.value.is_some()
}

/// Whether a peer may publish a topic of this local name. Under a prefix, the name may be that of
/// an observation.
fn may_publish(names: &NameMap, local: &str) -> bool {
    let NameMap { prefix, remap, accept } = names;
    let Some(local) = local.strip_prefix(prefix.as_str()).filter(|it| it.starts_with('/')) else {
        return false;
    };
    let renamed = remap.iter().filter(|(_, to)| *to == local).map(|(from, _)| from.as_str());
    let unchanged = Some(local).filter(|it| !remap.contains_key(*it));
    let mut theirs = renamed.chain(unchanged);
    !prefix.is_empty()
        || theirs.any(|name| accept.iter().any(|entry| entry.pattern.matches_or_action(name)))
}

/// Quotes a name if it is a pattern: YAML gives another meaning to a star at the start of a word
/// and to words in braces.
fn quoted_if_pattern(name: &str) -> String {
    if name.contains('*') { format!("\"{name}\"") } else { name.into() }
}
