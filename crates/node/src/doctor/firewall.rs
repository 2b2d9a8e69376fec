// SPDX-License-Identifier: Apache-2.0
//! Whether the firewall of this machine drops packets of peers.

use super::firewall_rules::{Fate, IP6TABLES, IPTABLES, Packet, Place, Ruleset};
use super::machine::{Machine, Said};
use super::robot::Robot;
use super::{Answer, Found, Harm};
use crate::GROUP_V4 as BEACONS;
use crate::config::Beacons;
use std::net::IpAddr;

/// The firewall of the kernel.
enum Rules {
    Nft(String),
    /// Of IPv4.
    Iptables(String),
    /// Of IPv6.
    Ip6tables(String),
}

impl Rules {
    /// Returns the rules that concern a packet; `None` if they are not understood.
    fn of(&self, packet: &Packet) -> Option<Ruleset> {
        let is_v4 = packet.from.is_none_or(|it| it.is_ipv4());
        match self {
            Self::Nft(text) => Ruleset::of_nft(text, packet),
            Self::Iptables(text) if is_v4 => Some(Ruleset::of_iptables(text, packet)),
            Self::Ip6tables(text) if !is_v4 => Some(Ruleset::of_iptables(text, packet)),
            Self::Iptables(_) | Self::Ip6tables(_) => Some(Ruleset::default()),
        }
    }
}

pub(super) fn examine(machine: &Machine, robot: &Robot) -> Answer {
    let rules = match rules(machine) {
        Ok(rules) => rules,
        Err(why) => return Answer::NotMade(why),
    };
    let (mut all, mut unknown) = (Vec::<(Place, String, Ruleset)>::new(), false);
    for packet in packets(machine, robot) {
        for text in &rules {
            let rules = text.of(&packet);
            match rules.as_ref().map(Ruleset::fate) {
                Some(Fate::Dropped(place)) if all.iter().any(|(it, ..)| *it == place) => {}
                Some(Fate::Dropped(place)) => {
                    let what = match packet.group {
                        Some(group) => format!("{}, sent to {group} (beacons),", packet.interface),
                        None => packet.interface.clone(),
                    };
                    all.extend(rules.map(|it| (place, what, it)));
                }
                Some(Fate::Accepted) => {}
                Some(Fate::Unknown) | None => unknown = true,
            }
        }
    }
    if all.is_empty() && unknown {
        return Answer::NotMade(
            "a rule is not understood: read them with 'nft list ruleset' (docs/how-to/firewall.md)"
                .into(),
        );
    }
    let port = robot.port();
    Answer::Made(
        all.into_iter()
            .map(|(place, interface, it)| found(port, &place, &interface, &it))
            .collect(),
    )
}

fn found(port: u16, place: &Place, interface: &str, rules: &Ruleset) -> Found {
    let Place { table, chain, rule } = place;
    let found = Found::new(
        Harm::Stops,
        format!(
            "the firewall drops UDP {port} from {interface}: table {table}, chain {chain}: {rule}"
        ),
        "No packet of a peer arrives that this robot did not ask for.",
    );
    found.fix(if rules.has_chain("ufw") {
        format!("ufw allow {port}/udp")
    } else if rules.has_table("firewalld") {
        format!("firewall-cmd --permanent --add-port={port}/udp && firewall-cmd --reload")
    } else if [IPTABLES, IP6TABLES].contains(&table.as_str()) {
        format!("{table} -I INPUT -p udp --dport {port} -j ACCEPT  # and save it: {table}-save")
    } else {
        format!(
            "nft insert rule {table} {chain} udp dport {port} accept  # and in /etc/nftables.conf"
        )
    })
}

/// Packets that peers send: by each link, or by each interface from anywhere.
fn packets(machine: &Machine, robot: &Robot) -> Vec<Packet> {
    let port = robot.port();
    let mut all: Vec<Packet> = robot
        .routes()
        .iter()
        .filter_map(|route| {
            let path = route.path.as_ref()?.as_ref().ok()?;
            let from = route.address.as_ref().ok().copied().filter(|it| !it.is_loopback())?;
            Some(Packet { interface: path.interface.clone(), from: Some(from), port, group: None })
        })
        .collect();
    if all.is_empty() {
        let interfaces = robot.interfaces(machine).into_iter();
        let anybody = IpAddr::from([192, 0, 2, 1]);
        let packet = |interface| Packet { interface, from: Some(anybody), port, group: None };
        all = interfaces.map(packet).collect();
    }
    let has_beacons = robot.config().is_some_and(|it| it.beacons != Beacons::Off);
    let groups = all.iter().filter(|it| has_beacons && it.from.is_some_and(|from| from.is_ipv4()));
    let groups = groups.map(|it| Packet { group: Some(BEACONS.into()), ..it.clone() });
    let groups: Vec<Packet> = groups.collect();
    all.extend(groups);
    all
}

/// Reads the rules; an error says why that is not possible.
fn rules(machine: &Machine) -> Result<Vec<Rules>, String> {
    if !machine.is_root() {
        return Err("needs root: sudo tautline doctor".into());
    }
    let modules = machine.read("/proc/modules").unwrap_or_default();
    let tables = machine.read("/proc/self/net/ip_tables_names").unwrap_or_default();
    let has_iptables = tables.lines().any(|it| it == "filter");
    let mut all = Vec::new();
    match machine.run("nft", &["-j", "list", "ruleset"]) {
        Said::Output(text) => {
            let (of_iptables, rest) = without_iptables(&text);
            all.push(Rules::Nft(rest));
            if of_iptables || has_iptables {
                all.extend(iptables(machine)?);
            }
        }
        Said::Missing if has_iptables => all.extend(iptables(machine)?),
        Said::Missing if modules.contains("nf_tables ") => {
            return Err("nft is not installed: apt install nftables".into());
        }
        // Without a module of the kernel there are no rules.
        Said::Missing if !modules.is_empty() => {}
        Said::Missing => return Err("nft is not installed: apt install nftables".into()),
        Said::Failed(text) => return Err(format!("nft: {}", text.trim())),
    }
    Ok(all)
}

fn iptables(machine: &Machine) -> Result<Vec<Rules>, String> {
    let ask = |program: &str| match machine.run(program, &["-S"]) {
        Said::Output(text) => Ok(text),
        Said::Missing => Err(format!("{program} is not installed: apt install iptables")),
        Said::Failed(text) => Err(format!("{program}: {}", text.trim())),
    };
    // A machine without IPv6 has no ip6tables.
    let v6 = ask("ip6tables").unwrap_or_default();
    Ok(vec![Rules::Iptables(ask("iptables")?), Rules::Ip6tables(v6)])
}

/// Separates rules that iptables made, in the table `filter` of IPv4: nft cannot show all of their
/// conditions. Returns whether there were any, and the rest.
fn without_iptables(text: &str) -> (bool, String) {
    let Ok(mut json) = serde_json::from_str::<serde_json::Value>(text) else {
        return (false, text.into());
    };
    let Some(items) = json["nftables"].as_array_mut() else { return (false, text.into()) };
    let is_of_it = |item: &serde_json::Value| {
        let part = item.get("rule").or_else(|| item.get("chain"));
        part.is_some_and(|it| {
            let family = it["family"].as_str();
            family.is_some_and(|it| ["ip", "ip6"].contains(&it)) && it["table"] == "filter"
        })
    };
    let found = items.iter().any(|it| is_of_it(it) && it.to_string().contains("\"xt\""))
        || items.iter().any(|it| is_of_it(it) && it["chain"]["name"] == "INPUT");
    if found {
        items.retain(|it| !is_of_it(it));
    }
    (found, json.to_string())
}
