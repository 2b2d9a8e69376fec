// SPDX-License-Identifier: Apache-2.0
//! Checks across keys whose values are valid one by one.

mod budgets;
mod frames;
mod prefixes;

use super::kind::Value;
use super::problem::{Position, Problem, TOP, Warning};
use super::surroundings::Surroundings;
use super::validate::{Named, Section};
use super::yaml::quoted;
use super::{DEFAULT_PORT, MAX_PEERS, MAX_TOPIC_RULES, assemble};
use crate::treatment::peer_names::NameMap;
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

pub fn check(file: &Section, surroundings: &Surroundings) -> Findings {
    let mut findings = Findings::default();
    findings.counts(file);
    findings.two_kinds_of_ros(file);
    findings.names_for_ros2(file);
    findings.own_name_among_peers(file);
    findings.keys_of_peers(file);
    findings.relays(file);
    findings.links_in_two_forms(file);
    findings.direct_paths(file);
    findings.links_named_twice(file);
    findings.unknown_links(file);
    findings.peers_without_named_links(file);
    findings.keys_without_effect(file);
    findings.budgets(file);
    findings.addresses_used_twice(file);
    findings.link_local_addresses(file);
    findings.beacons(file);
    findings.destinations(file);
    findings.queues_in_two_forms(file);
    findings.frames(file);
    findings.queues_too_small(file);
    findings.classes_out_of_order(file);
    findings.prefixes_that_meet(file);
    findings.rules_that_never_match(file);
    findings.peers_without_rights(file);
    findings.services_without_callers(file);
    findings.watchdogs_without_publishers(file);
    findings.no_topics_or_peers(file);
    findings.missing_interfaces(file, surroundings);
    findings.launched_under_another_name(file, surroundings);
    findings
}

/// Returns every link of every peer, where the entry of a peer may be a link itself.
fn links(file: &Section) -> impl Iterator<Item = (&Named, &Section)> {
    file.named("peers").iter().flat_map(|peer| {
        let links = peer.section.sections("links").iter().chain([&peer.section]);
        links.map(move |link| (peer, link))
    })
}

/// Returns the names of the links to a peer.
fn link_names(peer: &Named) -> Vec<String> {
    let links = peer.section.sections("links").iter().enumerate();
    let names: Vec<String> = links.map(|(index, link)| assemble::link_name(link, index)).collect();
    match peer.section.single("address") {
        Some(_) if names.is_empty() => vec![assemble::link_name(&peer.section, 0)],
        _ => names,
    }
}

impl Findings {
    pub(super) fn wrong(
        &mut self,
        at: Position,
        key: impl Into<String>,
        found: impl Into<String>,
        allowed: impl Into<String>,
    ) {
        let (key, found, allowed) = (key.into(), found.into(), allowed.into());
        self.problems.push(Problem { at, key, found, allowed });
    }

    pub(super) fn odd(&mut self, at: Position, key: impl Into<String>, text: impl Into<String>) {
        self.warnings.push(Warning { at, key: key.into(), text: text.into() });
    }

    fn counts(&mut self, file: &Section) {
        let rules =
            ["topics", "services", "actions", "watchdogs"].map(|key| (key, MAX_TOPIC_RULES));
        for (key, most) in [("peers", MAX_PEERS)].into_iter().chain(rules) {
            let count = file.named(key).len();
            if count > most {
                let found = format!("{count} entries");
                self.wrong(file.place(key), key, found, format!("at most {most}"));
            }
        }
    }

    /// A daemon serves one kind of ROS; a robot with both runs two daemons.
    fn two_kinds_of_ros(&mut self, file: &Section) {
        let both = file.section("ros2").is_some() && file.section("ros1").is_some();
        if both && file.is_given("ros1") {
            let allowed = "one of them; a robot with both runs a daemon for each, with its own \
                           name, port and control socket";
            self.wrong(file.place("ros2"), "ros2", "'ros1' as well", allowed);
        }
    }

    /// Nodes of ROS 2 cannot use all names that nodes of ROS 1 can.
    fn names_for_ros2(&mut self, file: &Section) {
        let Some(ros2) = file.section("ros2") else { return };
        let mut names = Vec::new();
        names.extend(ros2.single("node_name").map(|it| (it, "ros2.node_name".to_owned())));
        for peer in file.named("peers") {
            let key = format!("peers.{}.prefix", peer.text);
            names.extend(peer.section.single("prefix").map(|it| (it, key)));
        }
        let mut found: Vec<_> = names
            .into_iter()
            .filter_map(|((at, value), key)| Some((at, value.held::<String>()?, key)))
            .collect();
        for peer in file.named("peers") {
            let renames = peer.section.renames("remap").iter();
            found.extend(renames.map(|(at, (from, to))| {
                (*at, to.clone(), format!("peers.{}.remap.{from}", peer.text))
            }));
        }
        let watchdogs = file.named("watchdogs").iter();
        found.extend(watchdogs.map(|it| (it.at, it.text.clone(), "watchdogs".to_owned())));
        for (at, name, key) in found {
            if let Err(problem) = check_local_name(&name, Some(Dialect::Ros2)) {
                let allowed = format!("names that nodes of ROS 2 can use ({problem})");
                self.wrong(at, key, quoted(&name), allowed);
            }
        }
    }

    fn own_name_among_peers(&mut self, file: &Section) {
        let Some(own) = file.text("name") else { return };
        for peer in file.named("peers").iter().filter(|peer| peer.text == own) {
            let found = format!("this node's own name {}", quoted(own));
            self.wrong(peer.at, format!("peers.{own}"), found, "names of other nodes");
        }
    }

    /// Without a key, anybody could be the peer.
    fn keys_of_peers(&mut self, file: &Section) {
        let secure = file.text("security") != Some("none");
        let mut owners: HashMap<PublicKey, &str> = HashMap::new();
        for peer in file.named("peers") {
            let place = format!("peers.{}.key", peer.text);
            let Some((at, Value::Key(key))) = peer.section.single("key") else {
                // A wrong key has already been reported.
                if secure && !peer.section.is_given("key") {
                    let allowed = "the peer's public key, which `tautline keygen` shows on that \
                                   robot; or 'security: none' at the top, on closed test networks";
                    self.wrong(peer.at, place, "no key", allowed);
                }
                continue;
            };
            if !secure {
                self.odd(at, place, "ignored: with 'security: none' anybody can be this peer");
            } else if *key == SecretKey::insecure(&peer.text).public() {
                let found = "the key of this name under 'security: none'";
                self.wrong(at, place, found, "a key that cannot be derived from the name");
            } else if let Some(other) = owners.insert(*key, &peer.text) {
                let found = format!("the key of {}", quoted(other));
                self.wrong(at, place, found, "a key that no other peer has");
            }
        }
    }

    /// A relay is a neighbour: it has a path that leads through no other relay.
    fn relays(&mut self, file: &Section) {
        let peers = file.named("peers");
        let is_neighbour = |peer: &Named| {
            peer.section.list("via").is_empty()
                || peer.section.single("address").is_some()
                || !peer.section.sections("links").is_empty()
        };
        for peer in peers {
            for (at, value) in peer.section.list("via") {
                let Value::Text(via) = value else { continue };
                let mut others = peers.iter().filter(|other| other.text != peer.text);
                if !others.any(|other| other.text == *via && is_neighbour(other)) {
                    let allowed = "another peer that is reached without a relay";
                    self.wrong(*at, format!("peers.{}.via", peer.text), quoted(via), allowed);
                }
            }
        }
    }

    /// The keys of a link belong either to the entry of the peer or to `links`.
    fn links_in_two_forms(&mut self, file: &Section) {
        for peer in file.named("peers") {
            let given = |key| peer.section.single(key).is_some();
            let has_links = !peer.section.sections("links").is_empty();
            let has_relay = !peer.section.list("via").is_empty();
            let is_direct = peer.section.get("direct") != Some(false);
            let is_caller = !has_links && (!has_relay || is_direct);
            for key in ["address", "interface", "mtu"].into_iter().filter(|key| given(key)) {
                let (found, allowed) = match (has_links, given("address")) {
                    (true, _) => ("together with 'links'", "in each of the links, or no 'links'"),
                    // The address from which the peer initiates the handshake has a path as well.
                    (false, false) if key == "mtu" && is_caller => continue,
                    (false, false) => ("without 'address'", "together with 'address'"),
                    (false, true) => continue,
                };
                let (found, allowed) = (format!("'{key}' {found}"), format!("'{key}' {allowed}"));
                let place = format!("peers.{}.{key}", peer.text);
                self.wrong(peer.section.place(key), place, found, allowed);
            }
        }
    }

    /// A direct path is sought to a peer that only relays lead to.
    fn direct_paths(&mut self, file: &Section) {
        for peer in file.named("peers") {
            let has = |key| peer.section.is_given(key);
            let useless = match () {
                () if !has("direct") => continue,
                () if !has("via") => "ignored without 'via'",
                () if has("address") || has("links") => "ignored, because the peer has an address",
                () => continue,
            };
            let place = format!("peers.{}.direct", peer.text);
            self.odd(peer.section.place("direct"), place, useless);
        }
    }

    fn links_named_twice(&mut self, file: &Section) {
        for peer in file.named("peers") {
            let mut names = HashSet::new();
            for (index, link) in peer.section.sections("links").iter().enumerate() {
                let name = assemble::link_name(link, index);
                let found = format!("two links with the name {}", quoted(&name));
                if !names.insert(name) {
                    let place = format!("peers.{}.links", peer.text);
                    self.wrong(link.at, place, found, "a 'name' for each link that no other has");
                }
            }
        }
    }

    fn unknown_links(&mut self, file: &Section) {
        let all: BTreeSet<String> = file.named("peers").iter().flat_map(link_names).collect();
        let allowed = format!("names of links: {}", Vec::from_iter(all.clone()).join(", "));
        for topic in file.named("topics") {
            for key in ["only_links", "avoid_links"] {
                for (at, value) in topic.section.list(key) {
                    if let Value::Text(name) = value
                        && !all.contains(name)
                    {
                        let found = format!("the unknown link {}", quoted(name));
                        let place = format!("topics.{}.{key}", topic.text);
                        self.wrong(*at, place, found, allowed.as_str());
                    }
                }
            }
        }
    }

    /// A topic that names its links does not reach a peer without any of them.
    fn peers_without_named_links(&mut self, file: &Section) {
        for topic in file.named("topics") {
            let (to, only): (Vec<String>, Vec<String>) =
                (topic.section.all("to"), topic.section.all("only_links"));
            let receives = |peer: &&Named| to.is_empty() || to.contains(&peer.text);
            for peer in file.named("peers").iter().filter(receives) {
                let links = link_names(peer);
                if only.is_empty() || links.iter().any(|name| only.contains(name)) {
                    continue;
                }
                let links = if links.is_empty() { "none".into() } else { links.join(", ") };
                let text = format!(
                    "{} has none of these links, so that it does not receive the topic; its links: {links}",
                    peer.text
                );
                let place = format!("topics.{}.only_links", topic.text);
                self.odd(topic.section.place("only_links"), place, text);
            }
        }
    }

    /// Keys of topics that others make useless.
    fn keys_without_effect(&mut self, file: &Section) {
        for topic in file.named("topics") {
            let section = &topic.section;
            let is = |key: &str, word: &str| section.text(key) == Some(word);
            let keeps_one = section.number("keep_last") == Some(1);
            let useless = [
                ("copies", !is("links", "duplicate"), "no effect without 'links: duplicate'"),
                ("order_wait", !is("order", "sent"), "no effect without 'order: sent'"),
                (
                    "order",
                    is("order", "sent") && keeps_one,
                    "'sent' waits for nothing with 'keep_last: 1'",
                ),
                ("fec", is("links", "duplicate"), "no parity while two links carry copies"),
            ];
            for (key, _, text) in useless.into_iter().filter(|it| it.1 && section.is_given(it.0)) {
                let place = format!("topics.{}.{key}", topic.text);
                self.odd(section.place(key), place, text);
            }
        }
    }

    fn addresses_used_twice(&mut self, file: &Section) {
        let mut owners: HashMap<(String, u16, Option<&str>), (&Named, Position)> = HashMap::new();
        for (peer, link) in links(file) {
            let Some((at, Value::Endpoint(host, port))) = link.single("address") else { continue };
            let port = port.unwrap_or(DEFAULT_PORT);
            let address = (host.to_lowercase(), port, link.text("interface"));
            if let Some((other, first)) = owners.insert(address, (peer, at)) {
                let (other, line) = (quoted(&other.text), first.line);
                let found = format!("the address of {other} on line {line} ({host}, port {port})");
                let allowed = "an address, port and interface that no other link has";
                self.wrong(at, format!("peers.{}", peer.text), found, allowed);
            }
        }
    }

    /// fe80::/10 exists on every interface, so an address needs its interface (RFC 4007, 6).
    fn link_local_addresses(&mut self, file: &Section) {
        for (peer, link) in links(file) {
            let Some((at, Value::Endpoint(host, _))) = link.single("address") else { continue };
            let (address, zone) =
                host.split_once('%').map_or((&**host, None), |(a, z)| (a, Some(z)));
            let is_link_local = address.parse().is_ok_and(|a: Ipv6Addr| a.is_unicast_link_local());
            let wrong = match (zone, link.text("interface")) {
                (None, None) if is_link_local => "without its interface".into(),
                (Some(zone), Some(interface)) if zone != interface => {
                    format!("on {}, but 'interface' is {}", quoted(zone), quoted(interface))
                }
                _ => continue,
            };
            let found = format!("the address {address} {wrong}");
            let allowed = format!("one interface, such as \"{address}%wlan0\"");
            self.wrong(at, format!("peers.{}.address", peer.text), found, allowed);
        }
    }

    fn beacons(&mut self, file: &Section) {
        let list = file.list("beacons");
        let is_flag = |(_, value): &(Position, Value)| matches!(value, Value::Flag(_));
        if let Some((at, _)) = list.iter().find(|entry| list.len() > 1 && is_flag(entry)) {
            let allowed = "true, false, or names of interfaces";
            self.wrong(*at, "beacons", "true or false together with other values", allowed);
        }
        let off = matches!(list, [] | [(_, Value::Flag(false))]);
        if let (false, Some((_, Value::Listen(address)))) = (off, file.single("listen"))
            && !address.ip().is_unspecified()
        {
            let text = "this node receives no beacons, since 'listen' names one address; \
                        [::] or 0.0.0.0 receives them";
            self.odd(file.place("beacons"), "beacons", text);
        }
    }

    fn destinations(&mut self, file: &Section) {
        let peers: Vec<&str> = file.named("peers").iter().map(|peer| peer.text.as_str()).collect();
        let allowed = if peers.is_empty() {
            "none, since there are no peers".into()
        } else {
            peers.join(", ")
        };
        for group in ["topics", "services", "actions"] {
            for named in file.named(group) {
                for (at, value) in named.section.list("to") {
                    if let Value::Text(name) = value
                        && !peers.contains(&name.as_str())
                    {
                        let found = format!("the unknown peer {}", quoted(name));
                        let key = format!("{group}.{}.to", named.text);
                        self.wrong(*at, key, found, allowed.as_str());
                    }
                }
            }
        }
    }

    /// Both keys set how many messages are queued.
    fn queues_in_two_forms(&mut self, file: &Section) {
        for topic in file.named("topics") {
            if let (Some(word), Some((at, Value::Whole(count)))) =
                (topic.section.text("when_slow"), topic.section.single("keep_last"))
                && topic.section.is_given("keep_last")
            {
                let found = format!("{count} together with 'when_slow: {word}'");
                let key = format!("topics.{}.keep_last", topic.text);
                self.wrong(at, key, found, "one of the two keys");
            }
        }
    }

    fn queues_too_small(&mut self, file: &Section) {
        let Some(limits) = file.section("limits") else { return };
        let Some((_, Value::Whole(max_message))) = limits.single("max_message") else { return };
        for key in ["queue_bytes", "reassembly_bytes"] {
            if let Some((at, Value::Whole(bytes))) = limits.single(key)
                && bytes < max_message
            {
                let found = format!("{bytes} bytes, less than max_message ({max_message} bytes)");
                self.wrong(at, format!("limits.{key}"), found, "at least max_message");
            }
        }
    }

    fn classes_out_of_order(&mut self, file: &Section) {
        let Some(dscp) = file.section("dscp") else { return };
        for keys in ["best_effort_from", "video_from", "voice_from"].windows(2) {
            let (lower, higher) = (keys[0], keys[1]);
            if let Some((_, Value::Whole(least))) = dscp.single(lower)
                && let Some((at, Value::Whole(from))) = dscp.single(higher)
                && from < least
            {
                let found = format!("{from}, less than {lower} ({least})");
                self.wrong(at, format!("dscp.{higher}"), found, format!("at least {lower}"));
            }
        }
    }

    fn rules_that_never_match(&mut self, file: &Section) {
        let named = file.named("topics").iter();
        let rules: Vec<(&Named, &Pattern)> =
            named.filter_map(|rule| Some((rule, as_pattern(&rule.name)?))).collect();
        for (i, (rule, pattern)) in rules.iter().enumerate().take(MAX_TOPIC_RULES) {
            let earlier = rules[..i].iter().find(|(_, earlier)| earlier.covers(pattern));
            if let Some((earlier, _)) = earlier {
                let text = format!(
                    "never applies, because {} on line {} comes first and covers it; move it \
                     above that line",
                    quoted(&earlier.text),
                    earlier.at.line
                );
                self.odd(rule.at, format!("topics.{}", rule.text), text);
            }
        }
    }

    /// Without `accept`, only observations are accepted, and only under a prefix. A peer may be in
    /// the file only because this node relays its packets.
    fn peers_without_rights(&mut self, file: &Section) {
        let has_rights = |peer: &Named| {
            peer.section.is_given("prefix")
                || peer.section.is_given("accept")
                || peer.section.get("relay") == Some(true)
        };
        for peer in file.named("peers").iter().filter(|it| has_ros(file) && !has_rights(it)) {
            let name = &peer.text;
            let text = format!(
                "no topic and no service of '{name}' is accepted: add 'prefix: /{}' for its \
                 observations, or 'accept' with the accepted names",
                name.replace('-', "_")
            );
            self.odd(peer.at, format!("peers.{name}"), text);
        }
    }

    /// A service call can move the robot, so it needs a line under the peer that calls.
    fn services_without_callers(&mut self, file: &Section) {
        let calls = file.named("peers").iter().flat_map(|peer| peer.section.list("call"));
        let calls: Vec<&Pattern> = calls.filter_map(|(_, value)| as_pattern(value)).collect();
        for group in ["services", "actions"] {
            for named in file.named(group) {
                let covered =
                    |own: &Pattern| calls.iter().any(|call| call.covers(own) || own.covers(call));
                if Pattern::new(&named.text).is_ok_and(|own| !covered(&own)) {
                    let name = quoted_if_pattern(&named.text);
                    let text =
                        format!("no peer may call it: add 'call: {name}' under the peers that may");
                    self.odd(named.at, format!("{group}.{}", named.text), text);
                }
            }
        }
    }

    /// A watchdog starts with the first message that a peer publishes on its topic. A watchdog
    /// whose topic no peer may publish would never start.
    fn watchdogs_without_publishers(&mut self, file: &Section) {
        let peers = file.named("peers");
        let names: Vec<NameMap> = peers.iter().map(|peer| assemble::names(&peer.section)).collect();
        for watchdog in file.named("watchdogs").iter().filter(|_| has_ros(file)) {
            let topic = &watchdog.text;
            if !names.iter().any(|of_peer| may_publish(of_peer, topic)) {
                let text = format!(
                    "no peer may publish it, so this watchdog is never armed: add \
                     'accept: {{ {topic}: TYPE }}' under the peer that publishes it"
                );
                self.odd(watchdog.at, format!("watchdogs.{topic}"), text);
            }
        }
    }

    fn no_topics_or_peers(&mut self, file: &Section) {
        if ["topics", "services", "actions"].iter().all(|key| file.named(key).is_empty()) {
            self.odd(TOP, "topics", "no topics, so this node sends nothing");
        }
        if file.named("peers").is_empty() {
            self.odd(TOP, "peers", "no peers, so this node connects to no other node");
        }
    }

    /// The name in the file counts, because it is the same after each start and reload.
    fn launched_under_another_name(&mut self, file: &Section, surroundings: &Surroundings) {
        let Some(launched) = &surroundings.node_name else { return };
        for key in ["ros1", "ros2"] {
            let Some(section) = file.section(key).filter(|it| it.is_given("node_name")) else {
                continue;
            };
            if let Some(name) = section.text("node_name").filter(|name| name != launched) {
                let text = format!(
                    "{name} is used, although the arguments of ROS name this node {launched}; \
                     without this key their name is used"
                );
                self.odd(section.place("node_name"), format!("{key}.node_name"), text);
            }
        }
    }

    fn missing_interfaces(&mut self, file: &Section, surroundings: &Surroundings) {
        let Some(present) = &surroundings.interfaces else { return };
        let mut named: Vec<(Position, String, &str)> = Vec::new();
        for (peer, link) in links(file) {
            if let Some((at, Value::Text(interface))) = link.single("interface") {
                named.push((at, format!("peers.{}.interface", peer.text), interface));
            }
        }
        for (at, value) in file.list("beacons") {
            if let Value::Text(interface) = value {
                named.push((*at, "beacons".into(), interface));
            }
        }
        let radios = file.named("radios").iter();
        named.extend(radios.map(|it| (it.at, format!("radios.{}", it.text), it.text.as_str())));
        for (at, key, interface) in named {
            if !present.iter().any(|name| name == interface) {
                let text = format!(
                    "this machine has no interface {} now (it has {}); it will be used when it \
                     appears",
                    quoted(interface),
                    present.join(", ")
                );
                self.odd(at, key, text);
            }
        }
    }
}

fn has_ros(file: &Section) -> bool {
    file.section("ros1").is_some() || file.section("ros2").is_some()
}

/// Whether a topic of the peer may have this name here. Under a prefix, the peer's observations
/// may.
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

fn as_pattern(value: &Value) -> Option<&Pattern> {
    match value {
        Value::Pattern(pattern) => Some(pattern),
        _ => None,
    }
}

/// Quotes a pattern, because YAML has another meaning for a star at the start of a word and for
/// words in braces.
fn quoted_if_pattern(name: &str) -> String {
    if name.contains('*') { format!("\"{name}\"") } else { name.into() }
}
