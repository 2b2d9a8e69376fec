// SPDX-License-Identifier: Apache-2.0
//! What firewall rules do with a packet of a peer. Rules come as JSON of nftables (`man 5
//! libnftables-json`) or as lines of `iptables -S`. A condition that is not understood is neither true nor
//! false, and a verdict after it is unknown.

use serde_json::Value;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Deepest chain of jumps that is followed; the kernel's limit.
const MAX_JUMPS: usize = 16;
/// Name of the program for rules of IPv4. Its rules have a table of the same name here.
pub(super) const IPTABLES: &str = "iptables";
/// Name of the program for rules of IPv6. Its rules have a table of the same name here.
pub(super) const IP6TABLES: &str = "ip6tables";

/// A UDP packet that arrives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Packet {
    pub(super) interface: String,
    /// The sender, if it is known.
    pub(super) from: Option<IpAddr>,
    pub(super) port: u16,
    /// The multicast group to which it is sent; `None` for this machine's address.
    pub(super) group: Option<IpAddr>,
    /// Whether it answers a packet of this machine.
    pub(super) is_answer: bool,
}

impl Packet {
    /// The state of its connection, as conntrack names it.
    fn state(&self) -> &'static str {
        if self.is_answer { "established" } else { "new" }
    }
}

/// What a rule set does with a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fate {
    Accepted,
    /// A rule or policy at this place drops the packet.
    Dropped(Place),
    /// A rule that is not understood decides.
    Unknown,
}

/// Where a packet is dropped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    /// Family and name of the table, such as `inet filter`.
    pub(super) table: String,
    /// The chain at the hook `input` that led to the drop. A rule can be added there.
    pub(super) chain: String,
    pub(super) rule: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Verdict {
    Accept,
    Drop,
    Jump(String),
    Goto(String),
    Return,
}

#[derive(Debug, Clone)]
struct Rule {
    /// Whether the packet matches; `None` if that is not known.
    matches: Option<bool>,
    verdict: Option<Verdict>,
    words: String,
}

#[derive(Debug, Default)]
struct Chain {
    rules: Vec<Rule>,
    /// Of a chain at the hook `input`: its priority, and whether its policy is to drop.
    hook: Option<(i64, bool)>,
}

/// Chains by table (`inet filter`) and name.
#[derive(Debug, Default)]
pub(super) struct Ruleset(BTreeMap<(String, String), Chain>);

/// The result of walking a chain.
enum End {
    Verdict(Fate),
    /// The packet returns to the calling chain. `in_doubt`: a rule that is not understood may have accepted
    /// or dropped it before.
    Continues {
        in_doubt: bool,
    },
}

impl Ruleset {
    /// Reads the output of `nft -j list ruleset`, as far as it concerns this packet.
    pub(super) fn of_nft(text: &str, packet: &Packet) -> Option<Self> {
        let json: Value = serde_json::from_str(text).ok()?;
        let mut all = Self::default();
        for item in json.get("nftables")?.as_array()? {
            if let Some(chain) = item.get("chain") {
                let hook = (chain["hook"] == "input" && chain["type"] == "filter")
                    .then(|| (chain["prio"].as_i64().unwrap_or(0), chain["policy"] == "drop"));
                all.0.entry(key(chain, "name")?).or_default().hook = hook;
            } else if let Some(rule) = item.get("rule") {
                all.0.entry(key(rule, "chain")?).or_default().rules.push(nft_rule(rule, packet));
            }
        }
        Some(all)
    }

    /// Reads the output of `iptables -S`, or of `ip6tables -S` for a packet of IPv6.
    pub(super) fn of_iptables(text: &str, packet: &Packet) -> Self {
        let mut all = Self::default();
        let is_v6 = packet.from.is_some_and(|it| it.is_ipv6());
        let table = if is_v6 { IP6TABLES } else { IPTABLES }.to_owned();
        for line in text.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words.as_slice() {
                ["-P", chain, policy] => {
                    let hook = (*chain == "INPUT").then_some((0, *policy == "DROP"));
                    all.0.entry((table.clone(), (*chain).into())).or_default().hook = hook;
                }
                ["-A", chain, rest @ ..] => {
                    let rule = iptables_rule(rest, packet, line);
                    all.0.entry((table.clone(), (*chain).into())).or_default().rules.push(rule);
                }
                _ => {}
            }
        }
        all
    }

    /// Returns what happens to the packet. Each chain at the hook `input` can drop it.
    pub(super) fn fate_of_packet(&self) -> Fate {
        let mut first: Vec<_> =
            self.0.iter().filter_map(|(key, chain)| Some((chain.hook?, key, chain))).collect();
        first.sort_by_key(|((priority, _), key, _)| (*priority, (*key).clone()));
        let mut unknown = false;
        for ((_, drops), key, chain) in first {
            let fate = match self.walk(key, chain, 0) {
                End::Verdict(fate) => fate,
                End::Continues { in_doubt: true } => Fate::Unknown,
                End::Continues { in_doubt: false } if drops => Fate::Dropped(place(
                    key,
                    "its policy is to drop, and no rule accepts the packet",
                )),
                End::Continues { .. } => Fate::Accepted,
            };
            match fate {
                Fate::Dropped(it) => {
                    return Fate::Dropped(Place { chain: key.1.clone(), ..it });
                }
                Fate::Unknown => unknown = true,
                Fate::Accepted => {}
            }
        }
        if unknown { Fate::Unknown } else { Fate::Accepted }
    }

    fn walk(&self, key: &(String, String), chain: &Chain, depth: usize) -> End {
        let mut in_doubt = false;
        for rule in &chain.rules {
            let verdict = match (rule.matches, &rule.verdict) {
                (Some(false), _) | (_, None) => continue,
                (None, Some(_)) => {
                    in_doubt = true;
                    continue;
                }
                (Some(true), Some(verdict)) => verdict,
            };
            let fate = match verdict {
                Verdict::Return => return End::Continues { in_doubt },
                Verdict::Accept if in_doubt => Fate::Unknown,
                Verdict::Accept => Fate::Accepted,
                Verdict::Drop if in_doubt => Fate::Unknown,
                Verdict::Drop => Fate::Dropped(place(key, &rule.words)),
                Verdict::Jump(name) | Verdict::Goto(name) => {
                    let below = (key.0.clone(), name.clone());
                    let Some(target) = self.0.get(&below).filter(|_| depth < MAX_JUMPS) else {
                        in_doubt = true;
                        continue;
                    };
                    match self.walk(&below, target, depth + 1) {
                        End::Verdict(_) if in_doubt => Fate::Unknown,
                        End::Verdict(fate) => fate,
                        End::Continues { in_doubt: more } => {
                            in_doubt |= more;
                            if matches!(verdict, Verdict::Goto(_)) {
                                return End::Continues { in_doubt };
                            }
                            continue;
                        }
                    }
                }
            };
            return End::Verdict(fate);
        }
        End::Continues { in_doubt }
    }

    /// Whether a table has this name.
    pub(super) fn has_table(&self, name: &str) -> bool {
        self.0.keys().any(|(table, _)| table.split(' ').nth(1) == Some(name))
    }

    /// Whether the name of a chain begins with this text.
    pub(super) fn has_chain_with_prefix(&self, beginning: &str) -> bool {
        self.0.keys().any(|(_, chain)| chain.starts_with(beginning))
    }
}

fn place(key: &(String, String), rule: &str) -> Place {
    Place { table: key.0.clone(), chain: key.1.clone(), rule: rule.into() }
}

fn key(item: &Value, name: &str) -> Option<(String, String)> {
    let word = |name: &str| item[name].as_str();
    Some((format!("{} {}", word("family")?, word("table")?), word(name)?.to_owned()))
}

fn nft_rule(rule: &Value, packet: &Packet) -> Rule {
    // Rules of tables for one IP version concern only its packets.
    let version = match (rule["family"].as_str(), packet.from) {
        (Some("ip"), Some(IpAddr::V6(_))) | (Some("ip6"), Some(IpAddr::V4(_))) => Some(false),
        (Some("ip6"), None) => None,
        _ => Some(true),
    };
    let (mut matches, mut verdict) = (version, None);
    for statement in rule["expr"].as_array().into_iter().flatten() {
        let Some((name, value)) = statement.as_object().and_then(|it| it.iter().next()) else {
            continue;
        };
        let holds = match name.as_str() {
            "match" => nft_match(value, packet),
            // Below the limit, a packet matches "limit rate", and does not match "limit rate over".
            "limit" => Some(value["inv"] != true),
            "set" if value.to_string().contains("\"inv\":true") => Some(false),
            "vmap" => match nft_map(value, packet) {
                Some(found) => {
                    verdict = found;
                    Some(true)
                }
                None => None,
            },
            "xt" => None,
            _ => {
                verdict = nft_verdict(name, value).or(verdict);
                Some(true)
            }
        };
        matches = and_if_known(matches, holds);
        if name == "vmap" && holds.is_none() {
            verdict = Some(Verdict::Return);
        }
    }
    Rule { matches, verdict, words: format!("the rule {}", rule_text(rule)) }
}

/// Describes a rule by the handle and the comment that `nft -j` shows, too.
fn rule_text(rule: &Value) -> String {
    let handle = rule["handle"].as_u64().map(|it| format!(" (handle {it})")).unwrap_or_default();
    let comment = rule["comment"].as_str().map(|it| format!(" \"{it}\"")).unwrap_or_default();
    tautline_gateway::plain::plain(&format!("that drops it{handle}{comment}"), 200)
}

/// Three-valued "and"; `None` is unknown.
fn and_if_known(one: Option<bool>, other: Option<bool>) -> Option<bool> {
    match (one, other) {
        (Some(false), _) | (_, Some(false)) => Some(false),
        (Some(true), Some(true)) => Some(true),
        _ => None,
    }
}

fn nft_verdict(name: &str, value: &Value) -> Option<Verdict> {
    let target = || value["target"].as_str().map(str::to_owned);
    match name {
        "accept" => Some(Verdict::Accept),
        "drop" | "reject" => Some(Verdict::Drop),
        "return" => Some(Verdict::Return),
        "jump" => target().map(Verdict::Jump),
        "goto" => target().map(Verdict::Goto),
        _ => None,
    }
}

fn nft_match(value: &Value, packet: &Packet) -> Option<bool> {
    let holds = nft_value(&value["left"], &value["right"], packet)?;
    match value["op"].as_str()? {
        "==" | "in" => Some(holds),
        "!=" => Some(!holds),
        _ => None,
    }
}

/// Whether the property `left` of the packet is `right`, or one of several values in `right`; `None` if
/// that is not known.
fn nft_value(left: &Value, right: &Value, packet: &Packet) -> Option<bool> {
    let payload = (left["payload"]["protocol"].as_str(), left["payload"]["field"].as_str());
    match payload {
        (Some("udp" | "th"), Some("dport")) => {
            return matches_any(right, &|it| number_is(it, packet.port.into()));
        }
        (Some("tcp" | "icmp" | "icmpv6" | "igmp" | "sctp" | "dccp" | "esp" | "ah"), _) => {
            return Some(false);
        }
        (Some("ip"), Some("protocol")) | (Some("ip6"), Some("nexthdr")) => {
            return matches_any(right, &is_udp);
        }
        (Some("ip" | "ip6"), Some("saddr")) => {
            return matches_any(right, &|it| is_address(it, packet.from?));
        }
        (Some("ip" | "ip6"), Some("daddr")) => {
            return matches_any(right, &|it| is_destination(it, packet));
        }
        _ => {}
    }
    match left["meta"]["key"].as_str() {
        Some("iif" | "iifname") => {
            return matches_any(right, &|it| is_interface(it, &packet.interface));
        }
        Some("l4proto") => return matches_any(right, &is_udp),
        Some("pkttype") => {
            return matches_any(right, &|it| Some(["host", "unicast"].contains(&it.as_str()?)));
        }
        Some("nfproto") => {
            let version = packet.from.map(|it| if it.is_ipv4() { "ipv4" } else { "ipv6" });
            return matches_any(right, &|it| Some(it.as_str()? == version?));
        }
        _ => {}
    }
    if left["fib"]["result"] == "type" && left["fib"]["flags"].to_string().contains("daddr") {
        return matches_any(right, &|it| Some(it.as_str()? == kind_of_destination(packet)));
    }
    match left["ct"]["key"].as_str() {
        // No address of the packet was translated.
        Some("status") => Some(false),
        Some("state") => matches_any(right, &|it| Some(it.as_str()? == packet.state())),
        _ => None,
    }
}

/// Whether `holds` is true for `right`; if `right` is a list or a set, for one of its values.
fn matches_any(right: &Value, holds: &dyn Fn(&Value) -> Option<bool>) -> Option<bool> {
    let list = right.get("set").unwrap_or(right);
    match list.as_array() {
        Some(list) => {
            let found: Vec<Option<bool>> = list.iter().map(|it| matches_any(it, holds)).collect();
            match found.contains(&Some(true)) {
                true => Some(true),
                false if found.contains(&None) => None,
                false => Some(false),
            }
        }
        // The name of a set, whose elements are listed elsewhere.
        None if list.as_str().is_some_and(|it| it.starts_with('@')) => None,
        None => holds(list),
    }
}

fn number_is(value: &Value, number: u64) -> Option<bool> {
    match value["range"].as_array().map(Vec::as_slice) {
        Some([from, to]) => Some((from.as_u64()?..=to.as_u64()?).contains(&number)),
        _ => value.as_u64().map(|it| it == number),
    }
}

fn is_udp(value: &Value) -> Option<bool> {
    Some(value.as_str() == Some("udp") || value.as_u64() == Some(17))
}

/// The kind of the destination in the kernel's routing table.
fn kind_of_destination(packet: &Packet) -> &'static str {
    if packet.group.is_some() { "multicast" } else { "local" }
}

/// Whether the packet is sent to an address or network. For a packet to this machine, only a group or the
/// broadcast address can be excluded: the machine's addresses are not compared.
fn is_destination(value: &Value, packet: &Packet) -> Option<bool> {
    if let Some(group) = packet.group {
        return is_address(value, group);
    }
    let address = value.get("prefix").map_or(value, |it| &it["addr"]).as_str()?;
    let address: IpAddr = address.split('/').next()?.parse().ok()?;
    let is_broadcast = address == IpAddr::from([255; 4]);
    (address.is_multicast() || is_broadcast).then_some(false)
}

fn is_interface(value: &Value, interface: &str) -> Option<bool> {
    let name = value.as_str()?;
    Some(match name.strip_suffix('*') {
        Some(beginning) => interface.starts_with(beginning),
        None => name == interface,
    })
}

fn is_address(value: &Value, address: IpAddr) -> Option<bool> {
    match value.get("prefix") {
        Some(prefix) => {
            let network = format!("{}/{}", prefix["addr"].as_str()?, prefix["len"].as_u64()?);
            is_in(&network, address)
        }
        None => is_in(value.as_str()?, address),
    }
}

fn is_in(network: &str, address: IpAddr) -> Option<bool> {
    let network: tautline_gateway::networks::Network = network.parse().ok()?;
    Some(network.contains(address))
}

/// Returns the verdict of a map for this packet: `None` if it is not known, `Some(None)` if the map has
/// none.
fn nft_map(value: &Value, packet: &Packet) -> Option<Option<Verdict>> {
    let entries = value["data"].get("set").unwrap_or(&value["data"]).as_array()?;
    for entry in entries {
        let [at, verdict] = entry.as_array()?.as_slice() else { return None };
        if nft_value(&value["key"], at, packet)? {
            let (name, target) = verdict.as_object()?.iter().next()?;
            return Some(nft_verdict(name, target));
        }
    }
    Some(None)
}

fn iptables_rule(words: &[&str], packet: &Packet, line: &str) -> Rule {
    let (mut matches, mut verdict, mut negated) = (Some(true), None, false);
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().copied().unwrap_or_default();
        let holds = match *word {
            "!" => {
                negated = true;
                continue;
            }
            // Modules without a condition of their own; their options follow.
            "-m" => match value() {
                "udp" | "tcp" | "icmp" | "conntrack" | "state" | "multiport" | "comment"
                | "addrtype" => Some(true),
                "limit" => Some(true),
                _ => None,
            },
            "-p" => Some(["udp", "all"].contains(&value())),
            "-i" => is_interface(&Value::from(value().replace('+', "*")), &packet.interface),
            "-d" => is_destination(&Value::from(value()), packet),
            "--dst-type" => Some(value().eq_ignore_ascii_case(kind_of_destination(packet))),
            "-s" => packet.from.and_then(|from| is_in(value(), from)),
            "--dport" | "--dports" => Some(has_port(value(), packet.port)),
            "--ctstate" | "--state" => {
                Some(value().split(',').any(|it| it.eq_ignore_ascii_case(packet.state())))
            }
            "--comment" | "--limit" | "--limit-burst" | "--reject-with" | "--icmp-type" => {
                let _ = value();
                continue;
            }
            "-j" | "-g" => {
                verdict = match value() {
                    "ACCEPT" => Some(Verdict::Accept),
                    "DROP" | "REJECT" => Some(Verdict::Drop),
                    "RETURN" => Some(Verdict::Return),
                    "LOG" | "MARK" | "NFLOG" => None,
                    name if *word == "-g" => Some(Verdict::Goto(name.into())),
                    name => Some(Verdict::Jump(name.into())),
                };
                continue;
            }
            _ => None,
        };
        let holds = if std::mem::take(&mut negated) { holds.map(|it| !it) } else { holds };
        matches = and_if_known(matches, holds);
    }
    Rule { matches, verdict, words: format!("'{}'", tautline_gateway::plain::plain(line, 200)) }
}

/// Whether a list of ports of iptables (`80,18470:18480`) contains a port.
fn has_port(list: &str, port: u16) -> bool {
    list.split(',').any(|it| match it.split_once(':') {
        Some((from, to)) => {
            let (from, to) = (from.parse().unwrap_or(0), to.parse().unwrap_or(u16::MAX));
            (from..=to).contains(&port)
        }
        None => it.parse() == Ok(port),
    })
}

#[cfg(test)]
mod tests;
