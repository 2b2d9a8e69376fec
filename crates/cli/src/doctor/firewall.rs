// SPDX-License-Identifier: Apache-2.0
//! Whether the firewall of this machine drops packets of peers.

use super::finding::{CheckFinding, CheckResult, Harm};
use super::firewall_rules::{Fate, IP6TABLES, IPTABLES, Packet, Place, Ruleset};
use super::machine::{Machine, ProgramOutput};
use super::robot::Robot;
use std::net::IpAddr;
use tautline::GROUP_V4 as BEACONS;
use tautline::config::Beacons;

/// Rules of the kernel's firewall, as text.
enum Rules {
    Nft(String),
    /// Output of `iptables -S`: rules for IPv4.
    Iptables(String),
    /// Output of `ip6tables -S`: rules for IPv6.
    Ip6tables(String),
}

impl Rules {
    /// Returns the rules that concern a packet; `None` if they are not understood.
    fn for_packet(&self, packet: &Packet) -> Option<Ruleset> {
        let is_v4 = packet.from.is_none_or(|it| it.is_ipv4());
        match self {
            Self::Nft(text) => Ruleset::of_nft(text, packet),
            Self::Iptables(text) if is_v4 => Some(Ruleset::of_iptables(text, packet)),
            Self::Ip6tables(text) if !is_v4 => Some(Ruleset::of_iptables(text, packet)),
            Self::Iptables(_) | Self::Ip6tables(_) => Some(Ruleset::default()),
        }
    }
}

/// Alternative packets. It is enough if one of them passes the firewall.
struct Arrival {
    packets: Vec<Packet>,
    /// The harm if all of them are dropped.
    harm: Harm,
    why: &'static str,
}

const ANSWERS_ARRIVE: &str = "This robot begins the connections, so that answers of its peers arrive. A \
                              peer that begins one is not heard, for example after it was restarted.";
const NO_ANSWERS: &str = "Not even answers of the peers arrive.";
const INITIATIONS_DROPPED: &str =
    "Peers without an address here begin the connection; their packets are dropped.";
const OTHER_INTERFACES: &str = "Peers reach this machine by other interfaces alone.";
const NO_BEACONS: &str = "This robot does not hear the beacons of its peers.";

/// What the rules do with an arrival.
enum Verdict {
    Passes,
    Unknown,
    Dropped(Place, Ruleset),
}

fn verdict(rules: &[Rules], arrival: &Arrival) -> Verdict {
    let mut worst = Verdict::Unknown;
    let mut is_unknown = false;
    for packet in &arrival.packets {
        match verdict_of_rules(rules, packet) {
            Verdict::Passes => return Verdict::Passes,
            Verdict::Unknown => is_unknown = true,
            dropped => worst = dropped,
        }
    }
    if is_unknown { Verdict::Unknown } else { worst }
}

/// Returns the verdict on one packet, which has to pass all rule sets.
fn verdict_of_rules(rules: &[Rules], packet: &Packet) -> Verdict {
    let mut is_unknown = false;
    for text in rules {
        let rules = text.for_packet(packet);
        match rules.as_ref().map(Ruleset::fate_of_packet) {
            Some(Fate::Dropped(place)) => {
                return rules.map_or(Verdict::Unknown, |it| Verdict::Dropped(place, it));
            }
            Some(Fate::Accepted) => {}
            Some(Fate::Unknown) | None => is_unknown = true,
        }
    }
    if is_unknown { Verdict::Unknown } else { Verdict::Passes }
}

pub(super) fn examine(machine: &Machine, robot: &Robot) -> CheckResult {
    let rules = match rules(machine) {
        Ok(rules) => rules,
        Err(why) => return CheckResult::Skipped(why),
    };
    let mut all = Vec::<(Place, CheckFinding)>::new();
    let mut is_unknown = false;
    for group in
        [answers(robot), first_packets(robot), initiations(machine, robot), beacons(machine, robot)]
    {
        let verdicts: Vec<Verdict> = group.iter().map(|it| verdict(&rules, it)).collect();
        let one_passes = verdicts.iter().any(|it| matches!(it, Verdict::Passes));
        for (arrival, verdict) in group.iter().zip(verdicts) {
            // A peer that initiates the connection needs only one interface.
            let (harm, why) = match arrival.why == INITIATIONS_DROPPED && one_passes {
                true => (Harm::Note, OTHER_INTERFACES),
                false => (arrival.harm, arrival.why),
            };
            match verdict {
                Verdict::Passes => {}
                Verdict::Unknown => is_unknown = true,
                Verdict::Dropped(place, rules) => {
                    let found = finding_for_packet(
                        robot.port(),
                        &place,
                        &arrival.packets,
                        &rules,
                        harm,
                        why,
                    );
                    match all.iter_mut().find(|(it, _)| *it == place) {
                        Some((_, known)) if known.harm <= harm => {}
                        Some((_, known)) => *known = found,
                        None => all.push((place, found)),
                    }
                }
            }
        }
    }
    if all.is_empty() && is_unknown {
        return CheckResult::Skipped(
            "a rule is not understood: read them with 'nft list ruleset' (page \"Firewall\")"
                .into(),
        );
    }
    CheckResult::Completed(all.into_iter().map(|(_, found)| found).collect())
}

fn finding_for_packet(
    port: u16,
    place: &Place,
    packets: &[Packet],
    rules: &Ruleset,
    harm: Harm,
    why: &str,
) -> CheckFinding {
    let Place { table, chain, rule } = place;
    let source = packets.first().map_or(String::new(), |it| match it.group {
        Some(group) => format!("{}, sent to {group} (beacons),", it.interface),
        None => it.interface.clone(),
    });
    let found = CheckFinding::new(
        harm,
        format!(
            "the firewall drops UDP {port} from {source}: table {table}, chain {chain}: {rule}"
        ),
        why,
    );
    found.fix(if rules.has_chain_with_prefix("ufw") {
        format!("sudo ufw allow {port}/udp")
    } else if rules.has_table("firewalld") {
        format!("sudo firewall-cmd --permanent --add-port={port}/udp && sudo firewall-cmd --reload")
    } else if [IPTABLES, IP6TABLES].contains(&table.as_str()) {
        format!("sudo {table} -I INPUT -p udp --dport {port} -j ACCEPT  # and save it: sudo netfilter-persistent save")
    } else {
        format!(
            "sudo nft insert rule {table} {chain} udp dport {port} accept  # and in /etc/nftables.conf"
        )
    })
}

/// Returns the first packet of each peer to which this robot has a route, with the peer's name.
fn routed_packets(robot: &Robot) -> impl Iterator<Item = (&str, Packet)> {
    robot.routes().iter().filter_map(|route| {
        let path = route.path.as_ref()?.as_ref().ok()?;
        let from = route.address.as_ref().ok().copied().filter(|it| !it.is_loopback())?;
        Some((route.peer.as_str(), packet(robot, &path.interface, Some(from))))
    })
}

fn packet(robot: &Robot, interface: &str, from: Option<IpAddr>) -> Packet {
    let port = robot.port();
    Packet { interface: interface.into(), from, port, group: None, is_answer: false }
}

/// Returns the answers of peers to which this robot initiates the connection, except peers that are up:
/// their answers arrive.
fn answers(robot: &Robot) -> Vec<Arrival> {
    let arrival = |(_, packet): (&str, Packet)| Arrival {
        packets: vec![Packet { is_answer: true, ..packet }],
        harm: Harm::Stops,
        why: NO_ANSWERS,
    };
    routed_packets(robot).filter(|(peer, _)| !robot.is_up(peer)).map(arrival).collect()
}

/// Returns the first packets of all peers to which this robot has a route.
fn first_packets(robot: &Robot) -> Vec<Arrival> {
    let arrival =
        |(_, packet)| Arrival { packets: vec![packet], harm: Harm::Note, why: ANSWERS_ARRIVE };
    routed_packets(robot).map(arrival).collect()
}

/// Whether a peer that has to initiate the connection does not exchange packets with this robot.
fn lacks_initiator(robot: &Robot) -> bool {
    let peers = robot.config().map(|it| &it.peers[..]).unwrap_or_default();
    peers.iter().any(|it| it.is_caller() && !robot.is_up(&it.name))
}

/// Returns the first packets of peers whose addresses are not known, for each interface: from an address
/// outside, from neighbours in its networks, and from an unknown address.
fn initiations(machine: &Machine, robot: &Robot) -> Vec<Arrival> {
    let has_callers = robot
        .config()
        .is_none_or(|it| it.peers.is_empty() || it.peers.iter().any(|it| it.is_caller()));
    let interfaces = robot.interfaces(machine).into_iter().filter(|_| has_callers);
    let own = machine.addresses();
    let arrival = |interface: String| {
        let own = own.iter().filter(|(name, _)| *name == interface);
        let near = own.map(|(_, address)| Some(neighbour(*address)));
        let sources = [Some(IpAddr::from([192, 0, 2, 1]))].into_iter().chain(near).chain([None]);
        Arrival {
            packets: sources.map(|from| packet(robot, &interface, from)).collect(),
            harm: if lacks_initiator(robot) { Harm::Stops } else { Harm::Note },
            why: INITIATIONS_DROPPED,
        }
    };
    interfaces.map(arrival).collect()
}

/// Returns another address in the same network.
fn neighbour(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(it) => IpAddr::from((u32::from(it) ^ 1).to_be_bytes()),
        IpAddr::V6(it) => IpAddr::from((u128::from(it) ^ 1).to_be_bytes()),
    }
}

/// Returns the beacons of peers, which are sent over IPv4.
fn beacons(machine: &Machine, robot: &Robot) -> Vec<Arrival> {
    if robot.config().is_none_or(|it| it.beacons == Beacons::Off) {
        return Vec::new();
    }
    let mut all = first_packets(robot);
    if all.is_empty() {
        all = initiations(machine, robot);
    }
    for arrival in &mut all {
        arrival.packets.retain(|it| it.from.is_none_or(|from| from.is_ipv4()));
        arrival.packets.iter_mut().for_each(|it| it.group = Some(BEACONS.into()));
        arrival.why = NO_BEACONS;
    }
    all.retain(|it| !it.packets.is_empty());
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
        ProgramOutput::Output(text) => {
            let (of_iptables, rest) = without_iptables(&text);
            all.push(Rules::Nft(rest));
            if of_iptables || has_iptables {
                all.extend(iptables(machine)?);
            }
        }
        ProgramOutput::Missing if has_iptables => all.extend(iptables(machine)?),
        ProgramOutput::Missing if modules.contains("nf_tables ") => {
            return Err("nft is not installed: apt install nftables".into());
        }
        // Without a module of the kernel there are no rules.
        ProgramOutput::Missing if !modules.is_empty() => {}
        ProgramOutput::Missing => return Err("nft is not installed: apt install nftables".into()),
        ProgramOutput::Failed(text) => return Err(format!("nft: {}", text.trim())),
    }
    Ok(all)
}

fn iptables(machine: &Machine) -> Result<Vec<Rules>, String> {
    let ask = |program: &str| match machine.run(program, &["-S"]) {
        ProgramOutput::Output(text) => Ok(text),
        ProgramOutput::Missing => Err(format!("{program} is not installed: apt install iptables")),
        ProgramOutput::Failed(text) => Err(format!("{program}: {}", text.trim())),
    };
    // A machine without IPv6 has no ip6tables.
    let v6 = ask("ip6tables").unwrap_or_default();
    Ok(vec![Rules::Iptables(ask("iptables")?), Rules::Ip6tables(v6)])
}

/// Removes rules that iptables made, in the tables `filter` of IPv4 and IPv6: nft cannot show all of their
/// conditions. Returns whether there were any, and the other rules.
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
