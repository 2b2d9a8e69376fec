// SPDX-License-Identifier: Apache-2.0
//! A separate computer that sends forged datagrams to others, over an interface that is not their
//! radio.

use crate::rig::namespace;
use crate::rig::punctual::stay_on;
use crate::rig::worker::Worker;
use crate::setup::world::{Computer, join};
use anyhow::{Context, Result, ensure};
use rustix::net::{
    AddressFamily, SendFlags, SocketFlags, SocketType, ipproto, sendto, socket_with,
};
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Forged datagrams per second.
pub const RATE_PER_S: u32 = 50_000;
/// Interface over which the datagrams arrive.
const INTERFACE: &str = "flood0";
/// Range of the forged source addresses (RFC 2544, appendix C.2.2).
const SOURCES: &str = "198.18.0.0/15";
/// First address of [`SOURCES`].
const FIRST_SOURCE: u32 = u32::from_be_bytes([198, 18, 0, 0]);
/// Number of free bits in the addresses of [`SOURCES`].
const SOURCE_BITS: u32 = 17;
/// Largest burst after a scheduling delay of the attacker.
const MAX_BURST: u64 = 250;
const PAUSE: Duration = Duration::from_micros(100);
const PORT: u16 = 18470;
const IP_HEADER: usize = 20;
const HEADERS: usize = IP_HEADER + 8;

/// The attacker's computer.
pub struct Attacker {
    computer: Computer,
    /// Addresses of the victims on [`INTERFACE`].
    victims: Vec<Ipv4Addr>,
    /// Processor of the attacker's threads; the victims have another one.
    pub processor: usize,
}

/// Counts of a victim's kernel since it started.
#[derive(Debug, Clone, Copy)]
struct Counters {
    /// Received over [`INTERFACE`].
    received: Traffic,
    /// Sent over [`INTERFACE`].
    sent: Traffic,
    /// Datagrams dropped because their socket was full.
    overflowed: u64,
}

/// Packets and their bytes, Ethernet headers included.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Traffic {
    packets: u64,
    bytes: u64,
}

impl Attacker {
    /// Connects a new computer to each victim, as the victim's default route.
    pub fn new(victims: &[&Computer], processor: usize) -> Result<Self> {
        let computer = Computer::new("stranger", 66)?;
        // The victims' responses end here.
        computer.ip(&["route", "add", "blackhole", SOURCES])?;
        let mut addresses = Vec::new();
        for (number, victim) in (0..).zip(victims) {
            let (own, theirs) =
                (Ipv4Addr::new(10, 72, number, 1), Ipv4Addr::new(10, 72, number, 2));
            join(&victim.name, INTERFACE, &computer.name, &victim.name)?;
            for (end, interface, address) in
                [(&computer, &victim.name[..], own), (*victim, INTERFACE, theirs)]
            {
                end.ip(&["addr", "add", &format!("{address}/24"), "dev", interface])?;
                end.ip(&["link", "set", interface, "up"])?;
            }
            victim.ip(&["route", "add", "default", "via", &own.to_string()])?;
            addresses.push(theirs);
        }
        Ok(Self { computer, victims: addresses, processor })
    }

    fn port_of(&self, victim: usize) -> Result<SocketAddrV4> {
        Ok(SocketAddrV4::new(*self.victims.get(victim).context("no such victim")?, PORT))
    }

    /// Returns a socket of the attacker that is connected to the victim of that number.
    pub fn socket(&self, victim: usize) -> Result<UdpSocket> {
        let to = self.port_of(victim)?;
        namespace::enter(&self.computer.name, || {
            let socket = UdpSocket::bind("0.0.0.0:0")?;
            socket.connect(to)?;
            Ok(socket)
        })
    }

    /// Sends the datagrams to the victim of that number in a loop, until the flood is stopped.
    pub fn flood(&self, victim: usize, datagrams: &[Vec<u8>]) -> Result<Worker<()>> {
        let to = self.port_of(victim)?;
        let flags = SocketFlags::CLOEXEC;
        // With this protocol the sender writes the IP header, including the source address.
        let open = || {
            let socket =
                socket_with(AddressFamily::INET, SocketType::RAW, flags, Some(ipproto::RAW));
            socket.context("cannot forge (a raw socket needs CAP_NET_RAW)")
        };
        let socket = namespace::enter(&self.computer.name, open)?;
        let packets: Vec<Vec<u8>> = datagrams.iter().map(|it| packet(to, it)).collect();
        ensure!(!packets.is_empty(), "nothing to send");
        let processor = self.processor;
        Ok(Worker::start(move |stop| {
            stay_on(processor)?;
            send(&socket, to, packets, stop)
        }))
    }
}

/// An attack in progress.
pub struct Assault<T> {
    worker: Worker<T>,
    since: Instant,
    /// Counts of the attacked kernel when the attack started.
    before: Counters,
}

/// Counts of the attacked kernel during an attack, per second.
#[derive(Debug, Default)]
pub struct Rates {
    /// Packets from the attacker.
    pub received: f64,
    /// Bytes of these packets, Ethernet headers included.
    pub received_bytes: f64,
    /// Packets to the attacker.
    pub sent: f64,
    /// Bytes of these packets, Ethernet headers included.
    pub sent_bytes: f64,
    /// Datagrams dropped because their socket was full, percent of the packets.
    pub overflowed_percent: f64,
}

impl<T: Send + 'static> Assault<T> {
    /// Starts an attack on a computer.
    pub fn start(victim: &Computer, attack: impl FnOnce() -> Result<Worker<T>>) -> Result<Self> {
        let before = Counters::read(victim)?;
        Ok(Self { worker: attack()?, since: Instant::now(), before })
    }

    /// Ends the attack; returns its result and the rates at its victim.
    pub fn end(self, victim: &Computer) -> Result<(T, Rates)> {
        let (after, before) = (Counters::read(victim)?, self.before);
        let seconds = self.since.elapsed().as_secs_f64();
        let outcome = self.worker.stop()?;
        let per_s = |now: u64, before: u64| (now - before) as f64 / seconds;
        let received = per_s(after.received.packets, before.received.packets);
        let overflowed = per_s(after.overflowed, before.overflowed);
        let rates = Rates {
            received,
            received_bytes: per_s(after.received.bytes, before.received.bytes),
            sent: per_s(after.sent.packets, before.sent.packets),
            sent_bytes: per_s(after.sent.bytes, before.sent.bytes),
            overflowed_percent: 100.0 * overflowed / received.max(f64::MIN_POSITIVE),
        };
        Ok((outcome, rates))
    }
}

/// Returns a datagram with IP and UDP headers; the kernel completes the IP length and checksum.
fn packet(to: SocketAddrV4, datagram: &[u8]) -> Vec<u8> {
    let mut packet = vec![0; HEADERS];
    packet[0] = 0x45;
    packet[8] = 64;
    packet[9] = 17;
    packet[16..20].copy_from_slice(&to.ip().octets());
    packet[22..24].copy_from_slice(&to.port().to_be_bytes());
    let len = (datagram.len() + HEADERS - IP_HEADER) as u16;
    packet[24..26].copy_from_slice(&len.to_be_bytes());
    packet.extend_from_slice(datagram);
    packet
}

fn send(
    socket: &OwnedFd,
    to: SocketAddrV4,
    mut packets: Vec<Vec<u8>>,
    stop: &AtomicBool,
) -> Result<()> {
    let mut random = fastrand::Rng::with_seed(1);
    at_rate(RATE_PER_S, stop, |number| {
        let index = number as usize % packets.len();
        let packet = &mut packets[index];
        let source = FIRST_SOURCE | random.u32(..1 << SOURCE_BITS);
        packet[12..16].copy_from_slice(&source.to_be_bytes());
        packet[20..22].copy_from_slice(&random.u16(1024..).to_be_bytes());
        // A packet that is not sent is missing from the counts of the victim's kernel.
        let _ = sendto(socket, packet, SendFlags::empty(), &to);
        Ok(())
    })
}

/// Sends packets at a rate until `stop` is set.
pub fn at_rate(
    rate_per_s: u32,
    stop: &AtomicBool,
    mut send: impl FnMut(u64) -> Result<()>,
) -> Result<()> {
    let (start, mut sent) = (Instant::now(), 0);
    while !stop.load(Ordering::Relaxed) {
        let due = (start.elapsed().as_secs_f64() * f64::from(rate_per_s)) as u64;
        let burst = due.saturating_sub(sent).min(MAX_BURST);
        (sent..sent + burst).try_for_each(&mut send)?;
        sent += burst;
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

impl Counters {
    /// Reads the current counts of a victim.
    fn read(victim: &Computer) -> Result<Self> {
        let read = || {
            let of = |name: &str| {
                let file = format!("/proc/thread-self/net/{name}");
                std::fs::read_to_string(&file).with_context(|| format!("cannot read {file}"))
            };
            Ok((of("dev")?, of("snmp")?))
        };
        let (devices, protocols) = namespace::enter(&victim.name, read)?;
        Self::parse(&devices, &protocols).context("no counters of the kernel")
    }

    /// See proc_pid_net(5).
    fn parse(devices: &str, protocols: &str) -> Option<Self> {
        let line = devices.lines().find_map(|it| it.trim().strip_prefix(INTERFACE))?;
        let numbers = line.trim_start_matches(':').split_whitespace();
        let numbers: Vec<u64> = numbers.map(str::parse).collect::<Result<_, _>>().ok()?;
        let number = |index: usize| numbers.get(index).copied();
        let mut udp = protocols.lines().filter_map(|line| line.strip_prefix("Udp:"));
        let (names, values) = (udp.next()?, udp.next()?);
        let mut counts = names.split_whitespace().zip(values.split_whitespace());
        let (_, overflowed) = counts.find(|(name, _)| *name == "RcvbufErrors")?;
        Some(Self {
            received: Traffic { packets: number(1)?, bytes: number(0)? },
            sent: Traffic { packets: number(9)?, bytes: number(8)? },
            overflowed: overflowed.parse().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_counters_are_read() {
        let devices = "Inter-| Receive | Transmit\n face |bytes packets\n\
            flood0: 100 2 0 0 0 0 0 0 50 1 0 0 0 0 0 0\n";
        let protocols = "Udp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors\n\
            Udp: 5 0 3 7 3\n";
        let counters = Counters::parse(devices, protocols).unwrap();
        assert_eq!(counters.received, Traffic { packets: 2, bytes: 100 });
        assert_eq!(counters.sent, Traffic { packets: 1, bytes: 50 });
        assert_eq!(counters.overflowed, 3);
        assert!(Counters::parse("", protocols).is_none());
    }

    #[test]
    fn a_forged_packet_says_how_long_it_is() {
        let packet = packet("10.72.0.2:18470".parse().unwrap(), b"four");
        assert_eq!(packet.len(), HEADERS + 4);
        assert_eq!(packet[24..26], 12_u16.to_be_bytes());
    }
}
