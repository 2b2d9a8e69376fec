// SPDX-License-Identifier: Apache-2.0
//! How a robot finds the base: a query to the groups of the beacons and to the broadcast addresses
//! of all networks, on a port of its own, because the daemon holds its own port.

use super::console::Console;
use crate::cli::Failure;
use if_addrs::{IfAddr, Interface};
use rand_core::{OsRng, RngCore};
use socket2::{Domain, InterfaceIndexOrAddress, Protocol, SockRef, Socket, Type};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6, UdpSocket};
use std::time::{Duration, Instant};
use tautline::{GROUP_V4, GROUP_V6};
use tautline_cli::pairing::wire::{Answer, DATAGRAM_BYTES, NONCE_BYTES, Query};
use tautline_cli::pairing::{ANSWERS_PER_SECOND, Code, MAX_ADDRESSES, MAX_BASES, SEARCH_PORT};

/// Interval of queries.
const INTERVAL: Duration = Duration::from_millis(500);
/// Time for which a robot searches.
const SEARCH_TIMEOUT: Duration = Duration::from_secs(30);
/// Time for further answers after the first one.
const LATE_ANSWER_WINDOW: Duration = Duration::from_millis(700);
/// Interval at which the base joins the groups of new interfaces.
const JOIN_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum wait for a datagram.
const TICK: Duration = Duration::from_millis(100);

/// The socket of one address family.
fn socket(is_v6: bool, port: u16) -> io::Result<UdpSocket> {
    let domain = if is_v6 { Domain::IPV6 } else { Domain::IPV4 };
    let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
    let any: SocketAddr = match is_v6 {
        true => {
            socket.set_only_v6(true)?;
            socket.set_multicast_hops_v6(1)?;
            (Ipv6Addr::UNSPECIFIED, port).into()
        }
        false => {
            socket.set_broadcast(true)?;
            socket.set_multicast_ttl_v4(1)?;
            (Ipv4Addr::UNSPECIFIED, port).into()
        }
    };
    socket.bind(&any.into())?;
    socket.set_read_timeout(Some(TICK))?;
    Ok(socket.into())
}

fn interfaces() -> Vec<Interface> {
    let all = if_addrs::get_if_addrs().unwrap_or_default();
    all.into_iter().filter(|it| !it.is_loopback()).collect()
}

/// A base that waits for the code, with the addresses at which it answered.
#[derive(Debug)]
pub struct Base {
    pub name: String,
    pub addresses: Vec<SocketAddr>,
}

/// Asks until a base answers.
pub fn find_bases(code: Code, console: Console) -> Result<Vec<Base>, Failure> {
    let mut query = Query { selector: code.selector(), nonce: [0; NONCE_BYTES] };
    OsRng.fill_bytes(&mut query.nonce);
    // The well-known port lets one rule of a firewall cover both ends.
    let open = |is_v6| socket(is_v6, SEARCH_PORT).or_else(|_| socket(is_v6, 0));
    let sockets: Vec<(bool, UdpSocket)> =
        [false, true].into_iter().filter_map(|is_v6| Some((is_v6, open(is_v6).ok()?))).collect();
    let mut found: BTreeMap<[u8; 8], Base> = BTreeMap::new();
    let (start, mut sent, mut first) = (Instant::now(), None::<Instant>, None::<Instant>);
    while start.elapsed() < SEARCH_TIMEOUT
        && first.is_none_or(|at| at.elapsed() < LATE_ANSWER_WINDOW)
    {
        if sent.is_none_or(|at| at.elapsed() >= INTERVAL) {
            sent = Some(Instant::now());
            sockets.iter().for_each(|(is_v6, socket)| ask(socket, *is_v6, &query.emit()));
            let left = SEARCH_TIMEOUT.saturating_sub(start.elapsed()).as_secs();
            console.progress(&format!("looking for the base on the local networks, {left} s ..."));
        }
        for (_, socket) in &sockets {
            let Some((answer, from)) = receive(socket, &query) else { continue };
            first.get_or_insert_with(Instant::now);
            if !found.contains_key(&answer.instance) && found.len() >= MAX_BASES {
                continue;
            }
            let base = found
                .entry(answer.instance)
                .or_insert(Base { name: answer.name, addresses: Vec::new() });
            let address = SocketAddr::new(from.ip(), answer.port);
            let address = with_scope(address, from);
            if !base.addresses.contains(&address) && base.addresses.len() < MAX_ADDRESSES {
                base.addresses.push(address);
            }
        }
    }
    if found.is_empty() {
        return Err(Failure::new(format!(
            "no base that waits for this code answered within {} s. Nothing was written.\n\
             1. Is the code typed as the base shows it? Its first two digits select the base.\n\
             2. Does 'tautline pair' still run at the base?\n\
             3. Are both machines on one network, without a firewall that drops UDP {SEARCH_PORT} or \
             TCP 18470?\n\
             4. Where multicast does not pass, name the base: sudo tautline pair CODE --at ADDRESS",
            SEARCH_TIMEOUT.as_secs()
        )));
    }
    let mut bases: Vec<Base> = found.into_values().collect();
    bases.iter_mut().for_each(|base| base.addresses.sort_by_key(|it| preference(it.ip())));
    Ok(bases)
}

/// Returns the sort key of an address. Link-local addresses come last: the file must name their interface.
fn preference(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(v4) => u8::from(v4.is_link_local()) * 2,
        IpAddr::V6(v6) => 1 + u8::from(v6.is_unicast_link_local()),
    }
}

fn with_scope(address: SocketAddr, from: SocketAddr) -> SocketAddr {
    match (address, from) {
        (SocketAddr::V6(mut address), SocketAddr::V6(from)) => {
            address.set_scope_id(from.scope_id());
            address.into()
        }
        _ => address,
    }
}

/// Sends a query by each interface. Errors of an interface are ignored: another one may reach the base.
fn ask(socket: &UdpSocket, is_v6: bool, query: &[u8]) {
    let mut asked = BTreeSet::new();
    for interface in interfaces() {
        match (&interface.addr, interface.index, is_v6) {
            (IfAddr::V4(v4), _, false) if asked.insert(IpAddr::V4(v4.ip)) => {
                let _ = SockRef::from(socket).set_multicast_if_v4(&v4.ip);
                let _ = socket.send_to(query, SocketAddrV4::new(GROUP_V4, SEARCH_PORT));
                // Access points may filter multicast packets.
                if let Some(broadcast) = v4.broadcast {
                    let _ = socket.send_to(query, SocketAddrV4::new(broadcast, SEARCH_PORT));
                }
            }
            (IfAddr::V6(_), Some(index), true) if asked.insert(IpAddr::from([index as u16; 8])) => {
                let group = SocketAddrV6::new(GROUP_V6, SEARCH_PORT, 0, index);
                let _ = socket.send_to(query, group);
            }
            _ => {}
        }
    }
}

fn receive(socket: &UdpSocket, query: &Query) -> Option<(Answer, SocketAddr)> {
    let mut buffer = [0; DATAGRAM_BYTES + 1];
    let (length, from) = socket.recv_from(&mut buffer).ok()?;
    let answer = Answer::parse(&buffer[..length]).ok()?;
    (answer.nonce == query.nonce).then_some((answer, from))
}

/// Answers queries of robots for a base.
#[derive(Clone)]
pub struct Responder {
    pub selector: u8,
    pub instance: [u8; 8],
    pub port: u16,
    pub name: String,
}

impl Responder {
    /// Answers queries on threads until the program ends. Fails if no query can arrive.
    pub fn start(&self) -> io::Result<()> {
        let v4 = socket(false, SEARCH_PORT)?;
        let v6 = socket(true, SEARCH_PORT).ok();
        let sockets = std::iter::once((false, v4)).chain(v6.map(|socket| (true, socket)));
        for (is_v6, socket) in sockets {
            let responder = self.clone();
            let work = move || responder.serve(&socket, is_v6);
            std::thread::Builder::new().name("search".into()).spawn(work)?;
        }
        Ok(())
    }

    fn serve(&self, socket: &UdpSocket, is_v6: bool) {
        let mut joined = BTreeSet::new();
        let mut swept = None::<Instant>;
        let (mut second, mut answers) = (Instant::now(), 0);
        loop {
            if swept.is_none_or(|at| at.elapsed() >= JOIN_INTERVAL) {
                swept = Some(Instant::now());
                join_groups(socket, is_v6, &mut joined);
            }
            let mut buffer = [0; DATAGRAM_BYTES + 1];
            let Ok((length, from)) = socket.recv_from(&mut buffer) else { continue };
            if second.elapsed() >= Duration::from_secs(1) {
                (second, answers) = (Instant::now(), 0);
            }
            let Ok(query) = Query::parse(&buffer[..length]) else { continue };
            if query.selector != self.selector || answers >= ANSWERS_PER_SECOND {
                continue;
            }
            answers += 1;
            let (nonce, instance, port) = (query.nonce, self.instance, self.port);
            let answer = Answer { nonce, instance, port, name: self.name.clone() };
            let _ = socket.send_to(&answer.emit(), from);
        }
    }
}

/// Joins the groups on interfaces that have appeared.
fn join_groups(socket: &UdpSocket, is_v6: bool, joined: &mut BTreeSet<u32>) {
    let present: BTreeSet<u32> = interfaces().iter().filter_map(|it| it.index).collect();
    joined.retain(|index| present.contains(index));
    for index in present {
        if joined.contains(&index) {
            continue;
        }
        let done = match is_v6 {
            true => socket.join_multicast_v6(&GROUP_V6, index),
            false => {
                let interface = InterfaceIndexOrAddress::Index(index);
                SockRef::from(socket).join_multicast_v4_n(&GROUP_V4, &interface)
            }
        };
        if done.is_ok() {
            joined.insert(index);
        }
    }
}
