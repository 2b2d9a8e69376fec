// SPDX-License-Identifier: Apache-2.0
//! The sockets for connections of ROS nodes. They listen on loopback and on the addresses of this
//! machine to which our host name resolves. They listen on no other address, since the radio's is
//! one of them. Names and addresses change at run time, so both are checked periodically.

use super::admission::{Admission, ScopedAddress};
use super::note::Note;
use super::options::StartError;
use super::{handshake, slave};
use crate::shared::Shared;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// Interval between checks of this machine's addresses.
const CHECK_PERIOD: Duration = Duration::from_secs(2);
/// Interval between resolutions of the names.
const RESOLVE_PERIOD: Duration = Duration::from_secs(30);
/// Time limit of a resolution; the last result is used until the resolution ends.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of connections in the system's accept queue.
const LISTEN_BACKLOG: i32 = 128;
/// Maximum number of addresses of one name that are used; further addresses are ignored.
const MAX_ADDRESSES: usize = 16;

/// A port reserved for later use on any address.
pub(super) struct Port {
    pub number: u16,
    /// Bound to all addresses, and not listening.
    _reserved: socket2::Socket,
}

impl Port {
    pub fn reserve() -> Result<Self, StartError> {
        let on_all = |address: IpAddr| {
            let socket = bound_socket(SocketAddr::new(address, 0))?;
            let address = socket.local_addr()?.as_socket();
            let number = address.ok_or(io::ErrorKind::AddrNotAvailable)?.port();
            Ok(Self { number, _reserved: socket })
        };
        let both = on_all(Ipv6Addr::UNSPECIFIED.into());
        both.or_else(|_: io::Error| on_all(Ipv4Addr::UNSPECIFIED.into()))
            .map_err(StartError::Listen)
    }

    fn listen(&self, local: ScopedAddress) -> io::Result<TcpListener> {
        let mut address = SocketAddr::new(local.address, self.number);
        if let SocketAddr::V6(v6) = &mut address {
            v6.set_scope_id(local.scope);
        }
        let socket = bound_socket(address)?;
        socket.listen(LISTEN_BACKLOG)?;
        TcpListener::from_std(socket.into())
    }
}

/// A wildcard address includes IPv4.
fn bound_socket(address: SocketAddr) -> io::Result<socket2::Socket> {
    let domain = socket2::Domain::for_address(address);
    let socket = socket2::Socket::new(domain, socket2::Type::STREAM, None)?;
    if address.is_ipv6() {
        socket.set_only_v6(!address.ip().is_unspecified())?;
    }
    // The reservation has the port as well, but does not listen.
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

pub(super) struct HostNames {
    pub host: String,
    pub master_host: String,
    pub node_name: String,
}

pub(super) struct Ports {
    pub api: Port,
    pub tcpros: Port,
}

pub(super) struct Listeners {
    names: HostNames,
    ports: Ports,
    admission: Arc<Admission>,
    shared: Arc<Shared>,
    notes: mpsc::Sender<Note>,
    open: BTreeMap<ScopedAddress, [JoinHandle<()>; 2]>,
    resolved: Option<Instant>,
    host_addresses: Result<BTreeSet<ScopedAddress>, String>,
}

impl Listeners {
    pub fn new(
        names: HostNames,
        ports: Ports,
        admission: Admission,
        shared: Arc<Shared>,
        notes: mpsc::Sender<Note>,
    ) -> Self {
        Self {
            names,
            ports,
            admission: Arc::new(admission),
            shared,
            notes,
            open: BTreeMap::new(),
            resolved: None,
            host_addresses: Ok(BTreeSet::new()),
        }
    }

    /// Follows names and addresses; returns only if a listener ends.
    pub async fn run(mut self) {
        while self.open.values().flatten().all(|task| !task.is_finished()) {
            sleep(CHECK_PERIOD).await;
            self.refresh().await;
        }
    }

    /// Opens and closes listeners to match the current addresses.
    pub async fn refresh(&mut self) {
        if self.resolved.is_none_or(|at| at.elapsed() >= RESOLVE_PERIOD) {
            self.resolve().await;
        }
        let machine: Vec<ScopedAddress> = ScopedAddress::own_addresses().collect();
        let host = self.host_addresses.as_ref().map(|all| own_addresses(all, &machine));
        let host = host.unwrap_or_default();
        let loopback = [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()]
            .map(|address| ScopedAddress { address, scope: 0 });
        let wanted: BTreeSet<ScopedAddress> = loopback.into_iter().chain(host.clone()).collect();
        for (_, tasks) in self.open.extract_if(.., |local, _| !wanted.contains(local)) {
            tasks.iter().for_each(JoinHandle::abort);
        }
        let mut trouble = self.trouble(&host);
        for local in wanted {
            if let Err(error) = self.open(local)
                && host.contains(&local)
            {
                trouble = format!("listening for ROS 1 nodes on {}: {error}", local.address);
            }
        }
        self.set_trouble(trouble);
    }

    async fn resolve(&mut self) {
        self.resolved = Some(Instant::now());
        if let Ok(found) = addresses_of(&self.names.master_host).await {
            self.admission.set_master(found.into_iter().collect());
        }
        let host = addresses_of(&self.names.host).await;
        // The last addresses hold while the name server is unreachable.
        if host.is_ok() || !self.host_addresses.as_ref().is_ok_and(|known| !known.is_empty()) {
            self.host_addresses = host;
        }
    }

    fn open(&mut self, local: ScopedAddress) -> io::Result<()> {
        if self.open.contains_key(&local) {
            return Ok(());
        }
        let (api, tcpros) = (self.ports.api.listen(local)?, self.ports.tcpros.listen(local)?);
        let (admission, notes) = (&self.admission, &self.notes);
        let node_name = self.names.node_name.clone();
        let tasks = [
            tokio::spawn(slave::serve(api, node_name, notes.clone(), admission.clone())),
            tokio::spawn(handshake::accept(tcpros, notes.clone(), admission.clone())),
        ];
        self.open.insert(local, tasks);
        Ok(())
    }

    /// Why other nodes cannot reach us; empty if they can.
    fn trouble(&self, own: &BTreeSet<ScopedAddress>) -> String {
        let host = &self.names.host;
        let consequence = "ROS nodes can reach this node only over loopback, if at all; set ros1: \
                           host: to an address of this machine";
        match &self.host_addresses {
            Err(error) => format!("ros1: host: '{host}' does not resolve ({error}): {consequence}"),
            Ok(all) if own.is_empty() => {
                let all: Vec<String> = all.iter().map(|it| it.address.to_string()).collect();
                format!(
                    "ros1: host: '{host}' resolves to {}, which is no address of this machine: \
                     {consequence}",
                    all.join(", ")
                )
            }
            Ok(_)
                if self.admission.allows_others()
                    && own.iter().all(|it| it.address.is_loopback()) =>
            {
                format!(
                    "ros1: allow: names other machines, but host: '{host}' is loopback here, \
                     where they cannot reach this node; set host: to its address in their network"
                )
            }
            Ok(_) => String::new(),
        }
    }

    fn set_trouble(&self, trouble: String) {
        let troubles = &self.shared.troubles;
        if trouble.is_empty() {
            troubles.clear("", "own host");
        } else if troubles.set("", "own host", trouble.clone()) {
            tracing::warn!("{trouble}");
        }
    }
}

/// Returns those addresses that belong to this machine.
fn own_addresses(
    all: &BTreeSet<ScopedAddress>,
    machine: &[ScopedAddress],
) -> BTreeSet<ScopedAddress> {
    let is_own = |found: &ScopedAddress| {
        let is_same = |own: &ScopedAddress| {
            own.address == found.address && (found.scope == 0 || found.scope == own.scope)
        };
        found.address.is_loopback() || machine.iter().any(is_same)
    };
    all.iter().copied().filter(is_own).collect()
}

async fn addresses_of(host: &str) -> Result<BTreeSet<ScopedAddress>, String> {
    let lookup = timeout(RESOLVE_TIMEOUT, tokio::net::lookup_host((host, 0))).await;
    let found = lookup.map_err(|_| "the name server does not answer")?;
    let found = found.map_err(|error| error.to_string())?;
    Ok(found.map(ScopedAddress::of_peer).take(MAX_ADDRESSES).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reserved_port_listens_on_only_one_address() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let local = || ScopedAddress { address: "127.0.0.2".parse().unwrap(), scope: 0 };
            let port = Port::reserve().unwrap();
            let reach = |address: &str| std::net::TcpStream::connect((address, port.number));
            assert!(reach("127.0.0.1").is_err());
            let listener = port.listen(local()).unwrap();
            assert!(reach("127.0.0.2").is_ok() && reach("127.0.0.1").is_err());
            drop(listener);
            port.listen(local()).unwrap();
        });
    }

    #[test]
    fn only_addresses_of_this_machine_are_own_addresses() {
        let of = |text: &str, scope: u32| ScopedAddress { address: text.parse().unwrap(), scope };
        let own = [of("10.0.0.1", 2), of("fe80::1", 3)];
        let all = [of("10.0.0.1", 0), of("10.0.0.2", 0), of("127.0.1.1", 0), of("fe80::1", 3)];
        let found = own_addresses(&all.into(), &own);
        assert_eq!(found, [of("10.0.0.1", 0), of("127.0.1.1", 0), of("fe80::1", 3)].into());
        assert!(own_addresses(&[of("fe80::1", 2)].into(), &own).is_empty(), "of another interface");
    }
}
