// SPDX-License-Identifier: Apache-2.0
//! Interfaces, addresses, and routes to peers.

use super::finding::{CheckFinding, CheckResult, Harm};
use super::machine::{Machine, ProgramOutput, interface_path};
use super::robot::{Robot, Route};
use std::net::{IpAddr, SocketAddr};
use tautline::config::Beacons;
use tautline::paths::{self, Path};

/// MTU that every path of IPv6 supports (RFC 8200, 5). Links with a smaller MTU are inefficient.
const MIN_MTU: u64 = 1280;
/// Value of rp_filter with which the kernel drops packets from an address that it would answer through
/// another interface.
const RP_FILTER_STRICT: u64 = 1;
/// Length below which a transmit queue overflows in a burst of a few messages, in packets.
const MIN_QUEUE: u64 = 16;
/// ARPHRD_ETHER of linux/if_arp.h: the type of Ethernet and Wi-Fi interfaces.
const ARPHRD_ETHER: u64 = 1;
/// USB drivers of modems and phones. They accept packets before they can send them.
const USB_NETWORKS: [&str; 6] =
    ["cdc_ether", "cdc_ncm", "cdc_mbim", "qmi_wwan", "rndis_host", "ipheth"];

const NO_ADDRESS: &str = "no valid file has a peer with an address";

fn has_links(robot: &Robot) -> bool {
    !robot.routes().is_empty()
}

/// The routes for which the routing table has a path, each with the path.
fn paths(robot: &Robot) -> impl Iterator<Item = (&Route, &Path)> {
    robot.routes().iter().filter_map(|it| Some((it, it.path.as_ref()?.as_ref().ok()?)))
}

/// Returns the place of a link's key in the file.
fn config_key(route: &Route, key: &str) -> String {
    format!("peers.{}.{key}", route.peer)
}

pub(super) fn check_peer_host_names(_: &Machine, robot: &Robot) -> CheckResult {
    if !has_links(robot) {
        return CheckResult::DoesNotApply(NO_ADDRESS.into());
    }
    let wrong = robot.routes().iter().filter_map(|it| Some((it, it.address.as_ref().err()?)));
    let found = wrong.map(|(route, error)| {
        let host = &route.link.host;
        let found = CheckFinding::new(
            Harm::Stops,
            format!("'{host}', the address of '{}', does not resolve ({error})", route.peer),
            "No packet is sent to this peer while its name does not resolve.",
        );
        found
            .fix(robot.how_to_set(&config_key(route, "address"), "ADDRESS  # as a number"))
            .fix(format!("or: echo 'ADDRESS {host}' | sudo tee -a /etc/hosts"))
    });
    CheckResult::Completed(found.collect())
}

pub(super) fn own_address(machine: &Machine, robot: &Robot) -> CheckResult {
    if !has_links(robot) {
        return CheckResult::DoesNotApply(NO_ADDRESS.into());
    }
    let own = machine.addresses();
    let port = robot.port();
    let found = robot.routes().iter().filter_map(|route| {
        let address = *route.address.as_ref().ok()?;
        let is_named_loopback = address.is_loopback() && route.link.host.parse::<IpAddr>().is_err();
        let is_own = own.iter().any(|(_, it)| *it == address) && route.link.port == port;
        (is_own || is_named_loopback).then(|| {
            let found = CheckFinding::new(
                Harm::Stops,
                format!(
                    "'{}', the address of '{}', is {address}, an address of this machine",
                    route.link.host, route.peer
                ),
                "The daemon sends the packets for this peer to itself.",
            );
            let other = "ADDRESS  # that of the other machine";
            let found = found.fix(robot.how_to_set(&config_key(route, "address"), other));
            match is_named_loopback {
                true => {
                    found.fix(format!("or remove {} from its line in /etc/hosts", route.link.host))
                }
                false => found,
            }
        })
    });
    CheckResult::Completed(found.collect())
}

pub(super) fn check_missing_route(_: &Machine, robot: &Robot) -> CheckResult {
    if !has_links(robot) {
        return CheckResult::DoesNotApply(NO_ADDRESS.into());
    }
    let wrong = robot.routes().iter().filter_map(|it| {
        let address = it.address.as_ref().ok()?;
        Some((it, address, it.path.as_ref()?.as_ref().err()?))
    });
    let found = wrong.map(|(route, address, error)| {
        let device = route.link.interface.as_deref().unwrap_or("INTERFACE");
        let by = route.link.interface.as_ref().map(|it| format!(" by {it}")).unwrap_or_default();
        let found = CheckFinding::new(
            Harm::Stops,
            format!("no route leads to {address} ('{}'){by}: {error}", route.peer),
            "Packets for this peer do not leave this machine.",
        );
        found
            .fix(format!(
                "sudo ip route add {address} dev {device}  # or 'via ROUTER dev {device}'"
            ))
            .fix(format!("or {}", robot.how_to_set(&config_key(route, "address"), "the right one")))
    });
    CheckResult::Completed(found.collect())
}

pub(super) fn costly_routes(machine: &Machine, robot: &Robot) -> CheckResult {
    if !has_links(robot) {
        return CheckResult::DoesNotApply(NO_ADDRESS.into());
    }
    let found = paths(robot).filter_map(|(route, path)| {
        let is_chosen = route.link.interface.is_some() || route.link.metered;
        let kind = costly_network_kind(machine, &path.interface).filter(|_| !is_chosen)?;
        let found = CheckFinding::new(
            Harm::Wastes,
            format!(
                "packets for '{}' ({}) leave by {}, {kind}",
                route.peer,
                path.remote.ip(),
                path.interface
            ),
            "The routing table, not the file, chose this network; each byte may cost money.",
        );
        let metered = "true  # to use it for what must arrive";
        Some(
            found
                .fix(robot.how_to_set(&config_key(route, "interface"), "wlan0  # to use another"))
                .fix(format!("or {}", robot.how_to_set(&config_key(route, "metered"), metered))),
        )
    });
    CheckResult::Completed(found.collect())
}

/// Describes an interface whose network usually costs money; `None` for other interfaces.
fn costly_network_kind(machine: &Machine, name: &str) -> Option<String> {
    let uevent = machine.read(interface_path(name, "uevent")).unwrap_or_default();
    let is_modem = uevent.lines().any(|it| it == "DEVTYPE=wwan") || name.starts_with("ppp");
    if is_modem {
        return Some("a mobile network".into());
    }
    let driver = driver(machine, name)?;
    let is_usb = USB_NETWORKS.contains(&driver.as_str());
    is_usb.then(|| format!("a modem or a phone at USB (driver {driver})"))
}

fn driver(machine: &Machine, name: &str) -> Option<String> {
    let link = machine.link(interface_path(name, "device/driver"))?;
    link.rsplit('/').next().map(str::to_owned)
}

pub(super) fn reverse_path(machine: &Machine, robot: &Robot) -> CheckResult {
    if !has_links(robot) {
        return CheckResult::DoesNotApply(NO_ADDRESS.into());
    }
    let filter = |name: &str| {
        machine.number(format!("/proc/sys/net/ipv4/conf/{name}/rp_filter")).unwrap_or(0)
    };
    let found = paths(robot).filter_map(|(route, path)| {
        let device = route.link.interface.as_deref()?;
        // The kernel uses the larger of the two.
        let is_strict = filter("all").max(filter(device)) == RP_FILTER_STRICT;
        let remote = SocketAddr::new(path.remote.ip(), path.remote.port());
        let usual = paths::route(remote, None, None).ok()?.interface;
        (remote.is_ipv4() && is_strict && usual != device).then(|| {
            let found = CheckFinding::new(
                Harm::Stops,
                format!(
                    "rp_filter of {device} is 1 (strict), and the route to '{}' ({}) leads through {usual}",
                    route.peer,
                    remote.ip()
                ),
                format!("The kernel drops packets of this peer that arrive on {device}."),
            );
            found.fix(format!("sudo sysctl -w net.ipv4.conf.{device}.rp_filter=2  # and in /etc/sysctl.d/"))
        })
    });
    CheckResult::Completed(found.collect())
}

/// States of an interface that carries nothing.
const DOWN_STATES: [&str; 2] = ["down", "lowerlayerdown"];

fn is_usable(machine: &Machine, name: &str) -> bool {
    let state = machine.read(interface_path(name, "operstate")).unwrap_or_default();
    machine.exists(interface_path(name, "flags"))
        && !DOWN_STATES.contains(&state.as_str())
        && machine.addresses().iter().any(|(it, _)| it == name)
}

/// The peers that have a link through this interface, and no usable link.
fn unreachable_peers(machine: &Machine, robot: &Robot, name: &str) -> Vec<String> {
    let device = |route: &Route| {
        let routed = route.path.as_ref().and_then(|it| it.as_ref().ok());
        route.link.interface.clone().or_else(|| routed.map(|it| it.interface.clone()))
    };
    let is_stopped = |peer: &str| {
        let mut links = robot.routes().iter().filter(|it| it.peer == peer).map(device);
        let is_through = links.clone().any(|it| it.as_deref() == Some(name));
        is_through && !links.any(|it| it.is_some_and(|it| is_usable(machine, &it)))
    };
    let peers = robot.config().map(|it| &it.peers[..]).unwrap_or_default();
    let peers = peers.iter().filter(|it| it.via.is_empty() && !robot.is_up(&it.name));
    peers.filter(|it| is_stopped(&it.name)).map(|it| format!("'{}'", it.name)).collect()
}

pub(super) fn check_interfaces_up(machine: &Machine, robot: &Robot) -> CheckResult {
    let addresses = machine.addresses();
    let mut all = Vec::new();
    if robot.interfaces(machine).is_empty() {
        let why = "Without a network, no packet leaves this machine.";
        let found = CheckFinding::new(Harm::Stops, "no interface has an IP address", why);
        let names = machine.interfaces().join(", ");
        all.push(
            found.fix(format!("connect one of the interfaces {names}; ip link; nmcli device")),
        );
    }
    for name in robot.named_interfaces() {
        let exists = machine.exists(interface_path(&name, "flags"));
        let state = machine.read(interface_path(&name, "operstate")).unwrap_or_default();
        let without = unreachable_peers(machine, robot, &name);
        let (harm, why) = match without.is_empty() {
            true => {
                (Harm::Note, format!("Links through {name} carry nothing; all peers have others."))
            }
            false => (
                Harm::Stops,
                format!(
                    "Links through {name} carry nothing, the only ones of {}.",
                    without.join(", ")
                ),
            ),
        };
        let new = |found: String| CheckFinding::new(harm, found, why.clone());
        if !exists {
            let others = machine.interfaces().join(", ");
            let file = robot.file_name();
            all.push(
                new(format!("{file} names the interface {name}, which does not exist"))
                    .fix(robot.how_to_set("this 'interface'", format!("one of {others}"))),
            );
        } else if DOWN_STATES.contains(&state.as_str()) {
            let found = new(format!("the interface {name} is {state}"));
            let found = found.fix(format!("sudo ip link set {name} up"));
            all.push(match machine.wifi_interfaces().contains(&name) {
                true => {
                    found.fix("sudo rfkill unblock wifi; sudo nmcli device wifi connect NETWORK")
                }
                false => found.fix("check the cable, and the device at its other end"),
            });
        } else if !addresses.iter().any(|(it, _)| *it == name) {
            all.push(new(format!("the interface {name} has no IP address")).fix(format!(
                "sudo ip address add ADDRESS/24 dev {name}  # or: sudo dhclient {name}"
            )));
        }
    }
    CheckResult::Completed(all)
}

pub(super) fn interface_mtu(machine: &Machine, robot: &Robot) -> CheckResult {
    let mut all = Vec::new();
    for name in robot.interfaces(machine) {
        let Some(mtu) = machine.number(interface_path(&name, "mtu")).filter(|mtu| *mtu < MIN_MTU)
        else {
            continue;
        };
        let found = CheckFinding::new(
            Harm::Wastes,
            format!("the MTU of {name} is {mtu}"),
            "Small packets spend more of the airtime on headers, and IPv6 needs 1280 bytes.",
        );
        let least = if machine.exists(interface_path(&name, "tun_flags")) { 1280 } else { 1500 };
        all.push(
            found.fix(format!(
                "sudo ip link set {name} mtu {least}  # as far as its network allows"
            )),
        );
    }
    CheckResult::Completed(all)
}

pub(super) fn back_pressure(machine: &Machine, robot: &Robot) -> CheckResult {
    let mut all = Vec::new();
    for name in robot.interfaces(machine) {
        let Some(kind) = kind_without_back_pressure(machine, &name) else { continue };
        let found = CheckFinding::new(
            Harm::Note,
            format!("{name} is {kind}, whose driver takes packets before they are sent"),
            "Reports of the peer pace these links, not the driver: urgent messages may wait for about \
             half a packet more.",
        );
        all.push(found.fix(format!(
            "nothing; or {}  # only if its rate never changes",
            robot.how_to_set(&format!("radios.{name}.rate"), "10Mbps")
        )));
    }
    CheckResult::Completed(all)
}

fn kind_without_back_pressure(machine: &Machine, name: &str) -> Option<String> {
    let uevent = machine.read(interface_path(name, "uevent")).unwrap_or_default();
    let kind = uevent.lines().find_map(|line| line.strip_prefix("DEVTYPE="));
    if machine.exists(interface_path(name, "tun_flags")) {
        return Some("a tunnel of a program (tun, tap)".into());
    }
    if kind == Some("wireguard") {
        return Some("a WireGuard tunnel".into());
    }
    if name.starts_with("ppp") || kind == Some("wwan") {
        return Some("a modem".into());
    }
    if let Some(driver) = driver(machine, name) {
        let is_usb = USB_NETWORKS.contains(&driver.as_str());
        return is_usb.then(|| format!("a modem or a phone at USB (driver {driver})"));
    }
    let links = machine.number(interface_path(name, "iflink"));
    let is_virtual = !machine.exists(interface_path(name, "device"));
    let has_pair = links != machine.number(interface_path(name, "ifindex"));
    (is_virtual && has_pair && kind.is_none()).then(|| "a virtual cable (veth)".into())
}

pub(super) fn transmit_queue(machine: &Machine, robot: &Robot) -> CheckResult {
    let mut all = Vec::new();
    for name in robot.interfaces(machine) {
        let length = machine.number(interface_path(&name, "tx_queue_len"));
        // Without a queue (0), nothing is dropped in it.
        let Some(length) = length.filter(|it| (1..MIN_QUEUE).contains(it)) else { continue };
        let found = CheckFinding::new(
            Harm::Delays,
            format!("the transmit queue of {name} holds {length} packets (txqueuelen)"),
            "A burst of a few messages and of other programs overflows it, and packets are lost.",
        );
        all.push(found.fix(format!("sudo ip link set {name} txqueuelen 1000")));
    }
    CheckResult::Completed(all)
}

pub(super) fn beacons(machine: &Machine, robot: &Robot) -> CheckResult {
    const IFF_MULTICAST: u64 = 0x1000;
    let Some(config) = robot.config() else {
        return CheckResult::DoesNotApply("no valid file".into());
    };
    let names = match &config.beacons {
        Beacons::Off => return CheckResult::DoesNotApply("the file does not set 'beacons'".into()),
        Beacons::Everywhere => machine.interfaces(),
        Beacons::On(names) => names.clone(),
    };
    let takes_groups = |name: &String| {
        let flags = machine.read(interface_path(name, "flags")).unwrap_or_default();
        let flags = u64::from_str_radix(flags.trim_start_matches("0x"), 16).unwrap_or(0);
        flags & IFF_MULTICAST != 0
    };
    if names.iter().any(takes_groups) {
        return CheckResult::Completed(Vec::new());
    }
    let listed = if names.is_empty() { "no interface".into() } else { names.join(", ") };
    let only = config.peers.iter().filter(|it| it.is_caller()).map(|it| it.name.as_str());
    let only: Vec<&str> = only.collect();
    let harm = if only.is_empty() { Harm::Wastes } else { Harm::Stops };
    let found = CheckFinding::new(
        harm,
        format!("beacons are to be sent on {listed}, where multicast is off"),
        format!("Peers without an address here are not found: {}", only.join(", ")),
    );
    let device = names.first().map_or("wlan0", String::as_str);
    CheckResult::Completed(vec![
        found
            .fix(format!("sudo ip link set {device} multicast on"))
            .fix(format!("or in {}: give each peer an 'address'", robot.file_name())),
    ])
}

pub(super) fn check_duplicate_address(machine: &Machine, robot: &Robot) -> CheckResult {
    let used = robot.interfaces(machine);
    let is_asked = |name: &String, address: &IpAddr| {
        address.is_ipv4()
            && used.contains(name)
            && machine.number(interface_path(name, "type")) == Some(ARPHRD_ETHER)
    };
    let own = machine.addresses().into_iter().filter(|(name, it)| is_asked(name, it));
    let own: Vec<_> = own.collect();
    if own.is_empty() {
        return CheckResult::DoesNotApply("no interface of a link uses ARP".into());
    }
    if !machine.is_root() {
        return CheckResult::Skipped("needs root: sudo tautline doctor".into());
    }
    let hardware: Vec<String> = machine
        .list("/sys/class/net")
        .iter()
        .filter_map(|it| Some(machine.read(interface_path(it, "address"))?.to_lowercase()))
        .collect();
    // With two interfaces in one network, the kernel answers for either (arp_ignore=0).
    let is_of_another = |line: &&str| {
        let line = line.to_lowercase();
        line.contains("reply from") && !hardware.iter().any(|it| line.contains(&format!("[{it}]")))
    };
    let (mut all, mut was_own) = (Vec::new(), None);
    for (name, address) in own {
        let shown = address.to_string();
        let text = match machine.run("arping", &["-D", "-c", "2", "-w", "2", "-I", &name, &shown]) {
            ProgramOutput::Missing => {
                return CheckResult::Skipped(
                    "arping is not installed: sudo apt install iputils-arping".into(),
                );
            }
            ProgramOutput::Output(text) | ProgramOutput::Failed(text) => text,
        };
        let Some(line) = text.lines().find(is_of_another) else {
            was_own = was_own.or(text.contains("reply from").then(|| name.clone()));
            continue;
        };
        let found = CheckFinding::new(
            Harm::Stops,
            format!(
                "another machine has {address} as well, the address of {name}: {}",
                line.trim()
            ),
            "Packets of peers reach the one or the other by chance.",
        );
        all.push(found.fix(format!(
            "give one of the two machines another address: sudo ip address replace OTHER/24 dev {name}"
        )));
    }
    // arping ends with the first reply.
    match was_own.filter(|_| all.is_empty()) {
        Some(name) => CheckResult::Skipped(format!(
            "another interface of this machine answers for {name}: sudo sysctl -w \
             net.ipv4.conf.all.arp_ignore=1 ends that"
        )),
        None => CheckResult::Completed(all),
    }
}

/// Tests the addresses of a peer without a daemon: name, route, and pings of two sizes, a line each. An
/// error lists the peers if the file has none of this name.
pub fn test_addresses(machine: &Machine, robot: &Robot, peer: &str) -> Result<Vec<String>, String> {
    if robot.is_file_unreadable() {
        return Ok(Vec::new());
    }
    let peers = robot.config().map(|it| &it.peers[..]).unwrap_or_default();
    if !peers.iter().any(|it| it.name == peer) {
        let names: Vec<&str> = peers.iter().map(|it| it.name.as_str()).collect();
        let names = if names.is_empty() { "none".into() } else { names.join(", ") };
        return Err(format!("{} has no peer '{peer}'; its peers: {names}", robot.file_name()));
    }
    let of_peer = robot.routes().iter().filter(|it| it.peer == peer);
    let lines: Vec<String> = of_peer.flat_map(|route| test_address(machine, route)).collect();
    match lines.is_empty() {
        true => Ok(vec![
            "the file has no address of it: it initiates the handshake, or relays lead to it"
                .into(),
        ]),
        false => Ok(lines),
    }
}

fn test_address(machine: &Machine, route: &Route) -> Vec<String> {
    let host = &route.link.host;
    let address = match &route.address {
        Ok(address) => address,
        Err(error) => return vec![format!("{host} does not resolve: {error}")],
    };
    let path = match &route.path {
        Some(Ok(path)) => path,
        Some(Err(error)) => return vec![format!("no route leads to {address}: {error}")],
        None => return Vec::new(),
    };
    let mut lines = vec![format!(
        "{host} is {address}, by {} with the address {}, MTU {}",
        path.interface, path.local, path.mtu
    )];
    let target = match address {
        IpAddr::V6(it) if it.is_unicast_link_local() => format!("{it}%{}", path.interface),
        it => it.to_string(),
    };
    // Bytes of the headers of IP and ICMP.
    let headers = if address.is_ipv4() { 28 } else { 48 };
    for bytes in [100, path.mtu] {
        let payload = bytes.saturating_sub(headers).to_string();
        let words = ["-c", "3", "-i", "0.2", "-W", "1", "-M", "do", "-s", &payload, &target];
        let said = match machine.run("ping", &words) {
            ProgramOutput::Output(text) | ProgramOutput::Failed(text) => text,
            ProgramOutput::Missing => {
                return [lines, vec!["ping is not installed: apt install iputils-ping".into()]]
                    .concat();
            }
        };
        let result = said.lines().filter(|it| it.contains("received") || it.starts_with("rtt"));
        let result = result.map(str::trim).collect::<Vec<_>>().join("; ");
        let result = if result.is_empty() { said.trim().to_owned() } else { result };
        lines.push(format!("ping with {bytes} bytes: {result}"));
    }
    lines
}
