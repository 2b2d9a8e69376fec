// SPDX-License-Identifier: Apache-2.0
//! The sockets on which nodes reach us: on loopback, and on those addresses of this machine to
//! which our host name leads; on no other, since the radio's is one of them. Names and addresses
//! change while we run, so they are looked at again and again.

use super::door::{self, Door, Local};
use super::{LISTEN_BACKLOG, Note, Shared, StartError};
use super::{publication, slave};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// How often the addresses of this machine are looked at.
const CHECK_EVERY: Duration = Duration::from_secs(2);
/// How often names are resolved again.
const RESOLVE_EVERY: Duration = Duration::from_secs(30);
/// How long a name server may take; what was known before holds until then.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(5);
/// Addresses of one name that count.
const MAX_ADDRESSES: usize = 16;

/// A port that nothing else gets, on whichever address it is listened to later.
pub(super) struct Port {
    pub number: u16,
    /// Bound to all addresses, and listening on none.
    _reserved: socket2::Socket,
}

impl Port {
    pub fn reserve() -> Result<Self, StartError> {
        let all = |address: IpAddr| {
            let socket = socket(SocketAddr::new(address, 0))?;
            let bound = socket.local_addr()?.as_socket();
            let number = bound.map(|it| it.port()).ok_or(io::ErrorKind::AddrNotAvailable)?;
            Ok(Self { number, _reserved: socket })
        };
        let both = all(Ipv6Addr::UNSPECIFIED.into());
        both.or_else(|_: io::Error| all(Ipv4Addr::UNSPECIFIED.into())).map_err(StartError::Listen)
    }

    fn listen(&self, address: IpAddr, scope: u32) -> io::Result<tokio::net::TcpListener> {
        let mut address = SocketAddr::new(address, self.number);
        if let SocketAddr::V6(v6) = &mut address {
            v6.set_scope_id(scope);
        }
        let socket = socket(address)?;
        socket.listen(LISTEN_BACKLOG)?;
        tokio::net::TcpListener::from_std(socket.into())
    }
}

/// A bound one. A wildcard takes IPv4 as well.
fn socket(address: SocketAddr) -> io::Result<socket2::Socket> {
    let domain = socket2::Domain::for_address(address);
    let socket = socket2::Socket::new(domain, socket2::Type::STREAM, None)?;
    if address.is_ipv6() {
        socket.set_only_v6(!address.ip().is_unspecified())?;
    }
    // Beside the reservation, which does not listen.
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

/// All listeners.
pub(super) struct Listening {
    pub host: String,
    pub master_host: String,
    pub node_name: String,
    pub api: Port,
    pub tcpros: Port,
    pub door: Arc<Door>,
    pub shared: Arc<Shared>,
    pub notes: mpsc::Sender<Note>,
    open: BTreeMap<Local, [JoinHandle<()>; 2]>,
    resolved: Option<Instant>,
    host_addresses: Result<BTreeSet<Local>, String>,
}

impl Listening {
    pub fn new(
        [host, master_host, node_name]: [String; 3],
        [api, tcpros]: [Port; 2],
        door: Arc<Door>,
        shared: Arc<Shared>,
        notes: mpsc::Sender<Note>,
    ) -> Self {
        Self {
            host,
            master_host,
            node_name,
            api,
            tcpros,
            door,
            shared,
            notes,
            open: BTreeMap::new(),
            resolved: None,
            host_addresses: Ok(BTreeSet::new()),
        }
    }

    /// Follows names and addresses; ends only if one of the listeners does.
    pub async fn keep(mut self) {
        while self.open.values().flatten().all(|task| !task.is_finished()) {
            sleep(CHECK_EVERY).await;
            self.refresh().await;
        }
    }

    /// Listens where it has to be listened now.
    pub async fn refresh(&mut self) {
        if self.resolved.is_none_or(|at| at.elapsed() >= RESOLVE_EVERY) {
            self.resolve().await;
        }
        let own: Vec<Local> = if_addrs::get_if_addrs()
            .map(|all| all.iter().map(door::of).collect())
            .unwrap_or_default();
        let found = self.host_addresses.as_ref().map(|all| local_ones(all, &own));
        let found = found.unwrap_or_default();
        let loopback = [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()];
        let wanted: BTreeSet<Local> =
            loopback.map(|address| (address, 0)).into_iter().chain(found.iter().copied()).collect();
        self.open.retain(|local, tasks| {
            let stays = wanted.contains(local);
            if !stays {
                tasks.iter().for_each(JoinHandle::abort);
            }
            stays
        });
        let mut trouble = self.trouble(&found);
        for local in wanted {
            if let Err(error) = self.open(local)
                && found.contains(&local)
            {
                trouble = format!("listening for ROS 1 nodes on {}: {error}", local.0);
            }
        }
        self.set_trouble(trouble);
    }

    async fn resolve(&mut self) {
        self.resolved = Some(Instant::now());
        let master = addresses_of(&self.master_host).await;
        if let Ok(found) = master {
            self.door.set_master(found.into_iter().collect());
        }
        let host = addresses_of(&self.host).await;
        // While a name server is away the last addresses hold.
        if host.is_ok() || !self.host_addresses.as_ref().is_ok_and(|known| !known.is_empty()) {
            self.host_addresses = host;
        }
    }

    fn open(&mut self, local: Local) -> io::Result<()> {
        if self.open.contains_key(&local) {
            return Ok(());
        }
        let api = self.api.listen(local.0, local.1)?;
        let tcpros = self.tcpros.listen(local.0, local.1)?;
        let (door, notes) = (&self.door, &self.notes);
        let tasks = [
            tokio::spawn(slave::serve(api, self.node_name.clone(), notes.clone(), door.clone())),
            tokio::spawn(publication::accept(tcpros, notes.clone(), door.clone())),
        ];
        self.open.insert(local, tasks);
        Ok(())
    }

    /// Why other nodes cannot reach us, if so.
    fn trouble(&self, found: &BTreeSet<Local>) -> String {
        let host = &self.host;
        let consequence = "ROS nodes reach this one by loopback alone, if at all; set ros1: host: \
                           to an address of this machine";
        match &self.host_addresses {
            Err(error) => format!("ros1: host: '{host}' does not resolve ({error}): {consequence}"),
            Ok(all) if found.is_empty() => {
                let all: Vec<String> = all.iter().map(|(address, _)| address.to_string()).collect();
                let all = all.join(", ");
                format!(
                    "ros1: host: '{host}' leads to {all}, which is no address of this machine: \
                     {consequence}"
                )
            }
            Ok(_) if self.door.expects_others() && found.iter().all(|(it, _)| it.is_loopback()) => {
                format!(
                    "ros1: allow: names other machines, but host: '{host}' is loopback here, \
                     where they cannot reach this node; set host: to its address in their network"
                )
            }
            Ok(_) => String::new(),
        }
    }

    fn set_trouble(&self, trouble: String) {
        let mut health = self.shared.health();
        if health.host_trouble != trouble && !trouble.is_empty() {
            tracing::warn!("{trouble}");
        }
        health.host_trouble = trouble;
    }
}

/// Of the addresses to which a name leads, those of this machine.
fn local_ones(all: &BTreeSet<Local>, own: &[Local]) -> BTreeSet<Local> {
    let is_own = |(address, scope): &Local| {
        let same = |(other, index): &Local| other == address && (*scope == 0 || scope == index);
        address.is_loopback() || own.iter().any(same)
    };
    all.iter().filter(|local| is_own(local)).copied().collect()
}

async fn addresses_of(host: &str) -> Result<BTreeSet<Local>, String> {
    let lookup = timeout(RESOLVE_TIMEOUT, tokio::net::lookup_host((host, 0))).await;
    let found = lookup.map_err(|_| "the name server does not answer")?;
    let found = found.map_err(|error| error.to_string())?;
    Ok(found.map(door::local).take(MAX_ADDRESSES).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reserved_port_is_listened_to_on_one_address_alone() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let port = Port::reserve().unwrap();
            let reach = |address: &str| std::net::TcpStream::connect((address, port.number));
            assert!(reach("127.0.0.1").is_err());
            let listener = port.listen("127.0.0.2".parse().unwrap(), 0).unwrap();
            assert!(reach("127.0.0.2").is_ok() && reach("127.0.0.1").is_err());
            drop(listener);
            port.listen("127.0.0.2".parse().unwrap(), 0).unwrap();
        });
    }

    #[test]
    fn of_a_names_addresses_those_of_this_machine_count() {
        let of = |text: &str, scope: u32| (text.parse::<IpAddr>().unwrap(), scope);
        let own = [of("10.0.0.1", 2), of("fe80::1", 3)];
        let all = [of("10.0.0.1", 0), of("10.0.0.2", 0), of("127.0.1.1", 0), of("fe80::1", 3)];
        let found = local_ones(&all.into(), &own);
        assert_eq!(found, [of("10.0.0.1", 0), of("127.0.1.1", 0), of("fe80::1", 3)].into());
        assert!(local_ones(&[of("fe80::1", 2)].into(), &own).is_empty(), "of another interface");
    }
}
