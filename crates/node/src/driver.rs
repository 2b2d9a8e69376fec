// SPDX-License-Identifier: Apache-2.0
//! The data plane: one thread that waits, hands one input to the protocol and
//! drains its outputs.

use crate::codec::{Codec, Job};
use crate::config::{Config, Realtime};
use crate::node::{Inlet, Input, RunError, Waiting};
use crate::paths::{self, Path, Watch};
use crate::report::Reporter;
use crate::topics::{Order, Topics};
use crate::udp::{self, LinkSocket, MAX_DATAGRAM};
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;
use tautline_gateway::{Command, Event as LocalEvent, Gateway};
use tautline_proto::{Endpoint, Instant, LinkConfig, LinkId, RadioConfig, RadioId, Transmit};

const TAG_LISTEN: u64 = 0;
const TAG_WAKE: u64 = 1;
const TAG_LINKS: u64 = 2;
/// Datagrams read from one socket before others get their turn.
const READ_BATCH: usize = 64;
/// Sockets heard of in one turn of the loop.
const MAX_READY: usize = 64;
/// Longest time that leaving may take, for what is queued to drain.
const DRAIN_TIME: Duration = Duration::from_secs(1);
/// How often topics of peers that restarted are looked through.
const SWEEP_EVERY: Duration = Duration::from_secs(1);
/// Bytes of IP and UDP headers.
const HEADER_V4: usize = 28;
const HEADER_V6: usize = 48;
/// Packet size that the in-flight budget counts in.
const FULL_PACKET: usize = 1500;
/// Smallest MTU that leaves room for a datagram of the protocol.
const DATAGRAM_UNKNOWN: usize = 1200;

/// How the data plane is run, beyond the file.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// How often to tell the service manager that the loop turns.
    pub watchdog: Option<Duration>,
}

struct Link {
    id: LinkId,
    socket: Option<LinkSocket>,
    path: Option<Path>,
    device: Option<String>,
    /// More may be waiting in the socket than was read.
    readable: bool,
}

/// The loop and all it owns.
pub(crate) struct Driver {
    origin: std::time::Instant,
    endpoint: Endpoint,
    topics: Topics,
    reporter: Reporter,
    poll: OwnedFd,
    listen: UdpSocket,
    address: SocketAddr,
    listen_readable: bool,
    links: Vec<Link>,
    radios: BTreeMap<String, RadioId>,
    radio_settings: Vec<crate::config::RadioConfig>,
    realtime: Realtime,
    inputs: Receiver<Input>,
    waiting: Arc<Waiting>,
    buffer: Vec<u8>,
    ready: Vec<epoll::Event>,
    drain_until: Option<Instant>,
}

fn system(what: &'static str) -> impl Fn(rustix::io::Errno) -> RunError {
    move |error| RunError::System { what, error: error.into() }
}

impl Driver {
    pub(crate) fn new(
        config: &Config,
        inputs: Receiver<Input>,
        waiting: Arc<Waiting>,
    ) -> Result<Self, RunError> {
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(system("epoll"))?;
        let listen = udp::listen(config.listen)
            .map_err(|error| RunError::Listen { address: config.listen, error })?;
        let address = listen.local_addr().unwrap_or(config.listen);
        let edge = epoll::EventFlags::IN | epoll::EventFlags::ET;
        for (fd, tag) in [(listen.as_fd(), TAG_LISTEN), (waiting.wake().as_fd(), TAG_WAKE)] {
            epoll::add(&poll, fd, epoll::EventData::new_u64(tag), edge)
                .map_err(system("epoll"))?;
        }
        let endpoint = Endpoint::new(protocol_config(config), Box::new(os_random))?;
        let mut driver = Self {
            origin: std::time::Instant::now(),
            endpoint,
            topics: Topics::new(config),
            reporter: Reporter::new(config, address),
            poll,
            listen,
            address,
            listen_readable: true,
            links: Vec::new(),
            radios: BTreeMap::new(),
            radio_settings: config.radios.clone(),
            realtime: config.realtime.clone(),
            inputs,
            waiting,
            buffer: vec![0; MAX_DATAGRAM],
            ready: Vec::with_capacity(MAX_READY),
            drain_until: None,
        };
        driver.add_peers(config)?;
        Ok(driver)
    }

    fn add_peers(&mut self, config: &Config) -> Result<(), RunError> {
        // Links move to their own radio as soon as the way to the peer is known.
        let unknown = self.radio("unknown");
        for peer in &config.peers {
            let id = self.endpoint.add_peer(&peer.name)?;
            let devices: Vec<Option<String>> = if peer.links.is_empty() {
                vec![None]
            } else {
                peer.links.iter().map(|l| l.interface.clone()).collect()
            };
            for device in devices {
                let datagram_bytes = DATAGRAM_UNKNOWN;
                let link = LinkConfig { remote: None, datagram_bytes, header_bytes: HEADER_V4 };
                let id = self.endpoint.add_link(self.now(), id, unknown, link)?;
                self.links.push(Link { id, socket: None, path: None, device, readable: false });
            }
        }
        Ok(())
    }

    fn now(&self) -> Instant {
        Instant(u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// The radio of an interface; by default every interface is one.
    fn radio(&mut self, interface: &str) -> RadioId {
        if let Some(&known) = self.radios.get(interface) {
            return known;
        }
        let set = self.radio_settings.iter().find(|r| r.interface == interface);
        let in_flight = set.map_or(crate::config::DEFAULT_IN_FLIGHT, |r| r.in_flight);
        let id = self.endpoint.add_radio(RadioConfig {
            rate_bps: set.and_then(|r| r.rate_bps),
            in_flight_bytes: in_flight as usize * FULL_PACKET,
        });
        self.radios.insert(interface.to_owned(), id);
        self.reporter.name_radio(id, interface);
        id
    }

    /// Runs until shut down, then unregisters the gateway.
    pub(crate) fn run(
        mut self,
        gateway: Box<dyn Gateway>,
        codec: &Codec,
        settings: &Settings,
    ) -> Result<(), RunError> {
        self.enter_real_time();
        let result = self.turn(&*gateway, codec, settings);
        gateway.shutdown();
        result
    }

    fn turn(
        &mut self,
        gateway: &dyn Gateway,
        codec: &Codec,
        settings: &Settings,
    ) -> Result<(), RunError> {
        let mut next_alive = settings.watchdog.map(|_| self.now());
        let mut next_sweep = self.now() + SWEEP_EVERY;
        loop {
            let wake_at = [next_alive, Some(next_sweep), self.drain_until].into_iter().flatten().min();
            self.wait(wake_at)?;
            self.read_sockets();
            self.take_inputs(gateway, codec);
            let now = self.now();
            self.endpoint.handle_timeout(now);
            if now >= next_sweep {
                next_sweep = now + SWEEP_EVERY;
                self.topics.sweep(now);
            }
            if let (Some(at), Some(every)) = (next_alive, settings.watchdog) {
                if now >= at {
                    crate::service::alive();
                    next_alive = Some(now + every);
                }
            }
            self.drain(gateway, codec);
            if self.finished() {
                return Ok(());
            }
        }
    }

    fn enter_real_time(&self) {
        let complain = |what: &str, error: io::Error| {
            tracing::warn!("realtime.{what}: {error}; going on without it");
        };
        if let Some(cpu) = self.realtime.cpu {
            let mut set = rustix::thread::CpuSet::new();
            set.set(cpu as usize);
            if let Err(error) = rustix::thread::sched_setaffinity(None, &set) {
                complain("cpu", error.into());
            }
        }
        if let Some(priority) = self.realtime.priority {
            if let Err(error) = crate::sys::run_in_real_time(priority) {
                complain("priority", error);
            }
        }
        if self.realtime.lock_memory {
            let all = rustix::mm::MlockAllFlags::CURRENT | rustix::mm::MlockAllFlags::FUTURE;
            if let Err(error) = rustix::mm::mlockall(all) {
                complain("lock_memory", error.into());
            }
        }
    }

    /// Sleeps until something happens, with nanoseconds: a millisecond is a third of a packet at 3 Mbps.
    fn wait(&mut self, wake_at: Option<Instant>) -> Result<(), RunError> {
        let unread = self.listen_readable || self.links.iter().any(|l| l.readable);
        let due = self.endpoint.poll_timeout().into_iter().chain(wake_at).min();
        let timeout = match due {
            _ if unread => Some(Duration::ZERO),
            Some(at) => Some(at.since(self.now())),
            None => None,
        };
        let timeout = timeout.map(|t| Timespec {
            tv_sec: i64::try_from(t.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(t.subsec_nanos()),
        });
        let mut events = std::mem::take(&mut self.ready);
        events.clear();
        match epoll::wait(&self.poll, spare_capacity(&mut events), timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(system("epoll_pwait2")(error)),
        }
        for event in &events {
            let (tag, flags) = (event.data.u64(), event.flags);
            match tag {
                TAG_LISTEN => self.listen_readable = true,
                TAG_WAKE => drop(rustix::io::read(self.waiting.wake(), &mut [0u8; 8])),
                tag => self.link_ready((tag - TAG_LINKS) as usize, flags),
            }
        }
        self.ready = events;
        Ok(())
    }

    fn link_ready(&mut self, index: usize, flags: epoll::EventFlags) {
        let now = self.now();
        let Some(link) = self.links.get_mut(index) else { return };
        let failed = epoll::EventFlags::ERR | epoll::EventFlags::HUP;
        link.readable |= flags.intersects(epoll::EventFlags::IN | failed);
        if let Some(socket) = &mut link.socket {
            self.endpoint.handle_in_flight(now, link.id, socket.in_flight());
        }
    }

    fn read_sockets(&mut self) {
        for index in 0..self.links.len() {
            if self.links[index].readable {
                self.read_link(index);
            }
        }
        if self.listen_readable {
            self.read_listen();
        }
    }

    fn read_link(&mut self, index: usize) {
        for _ in 0..READ_BATCH {
            let link = &mut self.links[index];
            let Some(socket) = &link.socket else {
                link.readable = false;
                return;
            };
            match socket.receive(&mut self.buffer) {
                Ok(len) => {
                    let now = self.now();
                    let Some(socket) = &self.links[index].socket else { return };
                    let radio = self.radios[&socket.path.interface];
                    let from = socket.path.remote;
                    self.endpoint.handle_packet(now, radio, from, &self.buffer[..len]);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    link.readable = false;
                    return;
                }
                // An ICMP error of an earlier packet; reading it cleared it.
                Err(_) => {}
            }
        }
    }

    fn read_listen(&mut self) {
        for _ in 0..READ_BATCH {
            match self.listen.recv_from(&mut self.buffer) {
                Ok((len, from)) => {
                    let from = udp::canonical(from);
                    if let Some(radio) = self.radio_towards(from) {
                        let now = self.now();
                        self.endpoint.handle_packet(now, radio, from, &self.buffer[..len]);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.listen_readable = false;
                    return;
                }
                Err(_) => {}
            }
        }
    }

    /// The radio by which answers to `from` leave.
    fn radio_towards(&mut self, from: SocketAddr) -> Option<RadioId> {
        let known = self.links.iter().find_map(|l| l.path.as_ref().filter(|p| p.remote == from));
        match known.map(|p| p.interface.clone()) {
            Some(interface) => Some(self.radio(&interface)),
            None => {
                let path = paths::route(from, None, None).ok()?;
                Some(self.radio(&path.interface))
            }
        }
    }

    fn take_inputs(&mut self, gateway: &dyn Gateway, codec: &Codec) {
        while let Ok(input) = self.inputs.try_recv() {
            let now = self.now();
            match input {
                Input::Local(event) => {
                    if let LocalEvent::Message { payload, received, .. } = &event {
                        self.waiting.taken(payload.len());
                        tracing::trace!(waited = ?received.elapsed(), "message taken");
                    }
                    self.topics.on_local(now, &mut self.endpoint, event);
                }
                Input::Encoded(message) => {
                    self.waiting.taken(message.payload.len());
                    self.topics.send(now, &mut self.endpoint, message);
                }
                Input::Decoded { topic, source, payload } => {
                    self.waiting.taken(payload.len());
                    gateway.handle(Command::Publish { topic, source, payload });
                }
                Input::Path { link, path } => self.set_path(link, path),
                Input::Status(answer) => {
                    let refused = self.waiting.refused.load(std::sync::atomic::Ordering::Relaxed);
                    let status = self.reporter.status(
                        self.origin.elapsed(),
                        &self.endpoint,
                        &self.topics,
                        gateway,
                        [refused, codec.dropped.load(std::sync::atomic::Ordering::Relaxed)],
                    );
                    let _ = answer.try_send(status);
                }
                Input::Change(change, answer) => {
                    let _ = answer.try_send(self.topics.change(now, &mut self.endpoint, change));
                }
                Input::Shutdown => {
                    self.drain_until.get_or_insert(now + DRAIN_TIME);
                }
            }
        }
    }

    /// Opens or moves the socket of a link.
    fn set_path(&mut self, index: usize, path: Path) {
        let now = self.now();
        let radio = self.radio(&path.interface);
        let header_bytes = if path.remote.is_ipv6() { HEADER_V6 } else { HEADER_V4 };
        let config = LinkConfig {
            remote: Some(path.remote),
            datagram_bytes: path.mtu.saturating_sub(header_bytes),
            header_bytes,
        };
        let id = self.links[index].id;
        if let Err(error) = self.endpoint.set_link_path(now, id, radio, config) {
            let text = format!("{} by {}: {error}", path.remote, path.interface);
            return self.topics.notice(text);
        }
        self.links[index].path = Some(path);
        self.connect(index);
    }

    fn connect(&mut self, index: usize) {
        let link = &mut self.links[index];
        let Some(path) = link.path.clone() else { return };
        let text = format!("{} by {}", path.remote, path.interface);
        let opened = LinkSocket::connect(path, self.address, link.device.as_deref());
        let opened = opened.and_then(|socket| {
            socket.register(&self.poll, TAG_LINKS + index as u64)?;
            Ok(socket)
        });
        match opened {
            Ok(socket) => {
                link.socket = Some(socket);
                link.readable = true;
            }
            Err(error) => {
                link.socket = None;
                self.topics.notice(format!("{text}: cannot open a socket: {error}"));
            }
        }
    }

    /// Hands out everything the protocol and the topics want done.
    fn drain(&mut self, gateway: &dyn Gateway, codec: &Codec) {
        self.transmit();
        loop {
            let mut idle = true;
            while let Some(event) = self.endpoint.poll_event() {
                let now = self.now();
                self.topics.on_remote(now, &mut self.endpoint, event);
                idle = false;
            }
            while let Some(order) = self.topics.poll_order() {
                match order {
                    Order::Gateway(command) => gateway.handle(command),
                    Order::Compress(message) => codec.push(Job::Compress(message)),
                    Order::Decompress { topic, source, payload } => {
                        codec.push(Job::Decompress { topic, source, payload });
                    }
                }
            }
            if idle {
                return;
            }
            self.transmit();
        }
    }

    fn transmit(&mut self) {
        loop {
            let now = self.now();
            let Some(transmit) = self.endpoint.poll_transmit(now) else { return };
            let Some(id) = transmit.link else {
                let _ = self.listen.send_to(&transmit.datagram, self.mapped(transmit.remote));
                continue;
            };
            self.send_on(now, id, &transmit);
        }
    }

    fn send_on(&mut self, now: Instant, id: LinkId, transmit: &Transmit) {
        let index = id.0 as usize;
        self.follow_caller(index, transmit.remote);
        let Some(socket) = &mut self.links[index].socket else {
            return self.endpoint.handle_in_flight(now, id, 0);
        };
        let header = if transmit.remote.is_ipv6() { HEADER_V6 } else { HEADER_V4 };
        let sent = socket.send(&transmit.datagram, transmit.datagram.len() + header);
        let in_flight = socket.in_flight();
        if let Err(error) = sent {
            tracing::debug!(%error, remote = %transmit.remote, "a packet was not sent");
        }
        self.endpoint.handle_in_flight(now, id, in_flight);
    }

    /// Connects the link of a peer without configured address to where it called from.
    fn follow_caller(&mut self, index: usize, remote: SocketAddr) {
        let link = &self.links[index];
        if link.path.as_ref().is_some_and(|p| p.remote == remote) {
            return;
        }
        let device = link.device.clone();
        match paths::route(remote, device.as_deref(), None) {
            Ok(path) => {
                self.links[index].path = Some(path);
                self.connect(index);
            }
            Err(error) => self.topics.notice(format!("{remote}: no way back: {error}")),
        }
    }

    /// An address as the listening socket takes it.
    fn mapped(&self, remote: SocketAddr) -> SocketAddr {
        match remote {
            SocketAddr::V4(v4) if self.address.is_ipv6() => {
                SocketAddr::new(v4.ip().to_ipv6_mapped().into(), v4.port())
            }
            _ => remote,
        }
    }

    fn finished(&mut self) -> bool {
        let Some(until) = self.drain_until else { return false };
        let now = self.now();
        if now < until && !self.endpoint.is_drained() {
            return false;
        }
        self.endpoint.close();
        self.transmit();
        true
    }
}

fn protocol_config(config: &Config) -> tautline_proto::Config {
    tautline_proto::Config {
        name: config.name.clone(),
        max_message: config.limits.max_message,
        queue_bytes: config.limits.queue_bytes,
        queue_time: config.limits.queue_time,
        reassembly_bytes: config.limits.reassembly_bytes,
        repair_percent: (config.limits.repair_budget * 100.0).round() as u32,
        ..tautline_proto::Config::default()
    }
}

fn os_random() -> u64 {
    let mut bytes = [0; 8];
    // Cannot fail once the system has booted; session numbers are checked for being unused.
    let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    u64::from_ne_bytes(bytes)
}

/// Starts the thread that looks after the ways to all peers.
pub(crate) fn watch_paths(config: &Config, inlet: &Inlet) -> io::Result<()> {
    let mut watches = Vec::new();
    let mut index = 0;
    for peer in &config.peers {
        for link in &peer.links {
            watches.push((index, Watch::new(link.clone())));
            index += 1;
        }
        // A peer without address has one link, which it opens itself.
        index += usize::from(peer.links.is_empty());
    }
    if watches.is_empty() {
        return Ok(());
    }
    let inlet = inlet.clone();
    let watch = move || {
        loop {
            for (link, watch) in &mut watches {
                let Some(path) = watch.check() else { continue };
                if !inlet.push(Input::Path { link: *link, path }) {
                    return;
                }
            }
            std::thread::sleep(paths::CHECK_EVERY);
        }
    };
    std::thread::Builder::new().name("paths".into()).spawn(watch)?;
    Ok(())
}
