// SPDX-License-Identifier: Apache-2.0
//! Nodes of this machine that our participant cannot see, since it has only UDP over IPv4. They are
//! found by their announcements to DDS, by locks in shared memory, and by the port of a discovery
//! server; what the daemon's own environment says of them is in `settings.rs`.

mod announced;
mod settings;
mod system;

use super::{DiscoveryRange, Shared};
use announced::{AnnouncedParticipant, Transport};
use socket2::{Domain, Protocol, Socket, Type};
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Pause between two checks.
const INTERVAL: Duration = Duration::from_secs(1);
/// Time after which a participant that no longer announces itself has left, as by default in Fast DDS.
const LEASE: Duration = Duration::from_secs(20);
/// Maximum number of packets read in one check.
const MAX_PACKETS: usize = 1024;
/// Maximum number of remembered participants; further participants are not reported.
const MAX_FOUND: usize = 64;
/// Maximum number of participants named in a notice.
const MAX_NAMED: usize = 4;
/// The IPv4 group in which participants are announced (RTPS 2.5, 9.6.2.1).
const GROUP: Ipv4Addr = Ipv4Addr::new(239, 255, 0, 1);
/// The IPv6 group in which Fast DDS announces participants.
const GROUP_V6: Ipv6Addr = Ipv6Addr::new(0xff1e, 0, 0, 0, 0, 0xffff, 0xefff, 1);

/// Reports settings of the daemon's own environment that hide nodes.
pub fn check_own_settings(range: DiscoveryRange, shared: &Shared) {
    let hidden = settings::hidden_nodes_trouble(range, |name| std::env::var(name).ok());
    if !hidden.is_empty() {
        tracing::warn!("{hidden}");
        shared.troubles.set("", "settings", hidden);
    }
}

/// Reports hidden nodes in a domain until the sender of `stop` is dropped. In the discovery range
/// LOCALHOST, ROS 2 replaces the transports, so that none are hidden.
pub fn watch(domain: u32, range: DiscoveryRange, shared: &Arc<Shared>, stop: &Receiver<()>) {
    let port = system::discovery_port(domain);
    let mut sockets = Vec::new();
    if range == DiscoveryRange::Machine {
        for group in [IpAddr::V4(GROUP), IpAddr::V6(GROUP_V6)] {
            match listen(group, port) {
                Ok(socket) => sockets.push(socket),
                Err(error) => tracing::debug!(%group, %error, "announcements are not read"),
            }
        }
    }
    let mut found = HiddenParticipants::default();
    while stop.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
        for socket in &sockets {
            join_all(socket);
            found.read(socket, Instant::now());
        }
        let in_memory = match range {
            DiscoveryRange::Machine => system::shared_memory_processes(port),
            DiscoveryRange::Loopback => Vec::new(),
        };
        let text = found.trouble(Instant::now(), &in_memory, system::has_discovery_server());
        if text.is_empty() {
            shared.troubles.clear("", "neighbours");
        } else if shared.troubles.set("", "neighbours", text.clone()) {
            tracing::warn!("{text}");
        }
    }
}

/// A socket for announcements to a group by participants of this machine.
fn listen(group: IpAddr, port: u16) -> io::Result<UdpSocket> {
    let domain = if group.is_ipv4() { Domain::IPV4 } else { Domain::IPV6 };
    let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
    // All participants bind this port.
    socket.set_reuse_address(true)?;
    if group.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    tautline_dds::restrict_to_this_machine(&socket)?;
    socket.set_nonblocking(true)?;
    socket.bind(&SocketAddr::new(group, port).into())?;
    if let IpAddr::V4(group) = group {
        socket.join_multicast_v4(&group, &Ipv4Addr::LOCALHOST)?;
    }
    Ok(socket.into())
}

/// Joins the group for IPv6 on all interfaces, also those that have appeared since the last call. On
/// loopback there is no such group.
fn join_all(socket: &UdpSocket) {
    if socket.local_addr().is_ok_and(|address| address.is_ipv6()) {
        for interface in system::interfaces_v6() {
            // Fails where the group was joined before.
            let _ = socket.join_multicast_v6(&GROUP_V6, interface);
        }
    }
}

/// Hidden participants by their GUID prefix, and when each was last announced.
#[derive(Default)]
struct HiddenParticipants(BTreeMap<[u8; 12], (AnnouncedParticipant, Instant)>);

impl HiddenParticipants {
    fn read(&mut self, socket: &UdpSocket, now: Instant) {
        let mut packet = vec![0; usize::from(u16::MAX)];
        for _ in 0..MAX_PACKETS {
            let Ok((length, _)) = socket.recv_from(&mut packet) else { return };
            if let Some(it) = packet.get(..length).and_then(announced::participant) {
                self.add(it, now);
            }
        }
    }

    fn add(&mut self, it: AnnouncedParticipant, now: Instant) {
        let has_room = self.0.len() < MAX_FOUND || self.0.contains_key(&it.prefix);
        if it.transport != Transport::UdpV4 && has_room {
            self.0.insert(it.prefix, (it, now));
        }
    }

    /// Hidden participants with reason and remedy; empty if none is hidden.
    fn trouble(&mut self, now: Instant, in_memory: &[u32], has_server: bool) -> String {
        self.0.retain(|_, (_, last)| now.saturating_duration_since(*last) < LEASE);
        let of = |transport| {
            let all = self.0.values().map(|(it, _)| it);
            all.filter(|it| it.transport == transport).map(|it| it.process).collect::<Vec<_>>()
        };
        let in_memory: Vec<_> = in_memory.iter().copied().map(Some).collect();
        let kinds = [
            (of(Transport::Tcp), "over TCP", "LARGE_DATA"),
            (of(Transport::Ipv6), "over IPv6", "DEFAULTv6"),
            (in_memory, "in shared memory", "SHM"),
        ];
        let mut texts = Vec::new();
        for (processes, how, setting) in kinds.iter().filter(|(all, ..)| !all.is_empty()) {
            texts.push(format!(
                "not seen because of DDS {how} alone: {} (FASTDDS_BUILTIN_TRANSPORTS={setting} or an XML \
                 profile); set FASTDDS_BUILTIN_TRANSPORTS to UDPv4 or DEFAULT for it",
                format_processes(processes)
            ));
        }
        if has_server {
            texts.push(format!(
                "a program has UDP port {}, which is that of a discovery server of Fast DDS: nodes \
                 with ROS_DISCOVERY_SERVER are not seen: start them without it",
                system::DISCOVERY_SERVER_PORT
            ));
        }
        texts.join("; ")
    }
}

/// Names processes for a person.
fn format_processes(processes: &[Option<u32>]) -> String {
    let name = |process: &Option<u32>| match process {
        Some(number) => format!("process {number}{}", system::command(*number)),
        None => "a process".to_owned(),
    };
    let mut all: Vec<_> = processes.iter().take(MAX_NAMED).map(name).collect();
    if processes.len() > MAX_NAMED {
        all.push(format!("{} more", processes.len() - MAX_NAMED));
    }
    all.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_participants_are_reported_with_a_remedy() {
        let (mut found, now) = (HiddenParticipants::default(), Instant::now());
        let announced = |number, transport| AnnouncedParticipant {
            prefix: [number; 12],
            transport,
            process: Some(u32::MAX - u32::from(number)),
        };
        found.add(announced(1, Transport::Tcp), now);
        found.add(announced(2, Transport::UdpV4), now);
        found.add(announced(3, Transport::Ipv6), now);
        let text = found.trouble(now, &[], false);
        for words in
            ["DDS over TCP alone: process 4294967294", "LARGE_DATA", "over IPv6", "DEFAULTv6"]
        {
            assert!(text.contains(words), "{text}");
        }
        assert!(!text.contains("shared memory") && !text.contains("4294967293"), "{text}");
        assert_eq!(found.trouble(now + LEASE, &[], false), "");
        assert!(
            found
                .trouble(now, &[u32::MAX], false)
                .contains("DDS in shared memory alone: process 4294967295")
        );
        assert!(found.trouble(now, &[], true).contains("11811"));
        for number in 0..=u8::MAX {
            found.add(announced(number, Transport::Tcp), now);
        }
        assert_eq!(found.0.len(), MAX_FOUND);
        assert!(found.trouble(now, &[], false).contains("60 more"));
    }
}
