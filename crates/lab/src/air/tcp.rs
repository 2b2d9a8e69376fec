// SPDX-License-Identifier: Apache-2.0
//! A scenario's TCP flows. Each is one connection of the kernel that always has more to send.
//!
//! TCP keeps bytes in order and loses none, so their content is irrelevant: message n has arrived
//! when n times its size has arrived.

use super::station::{Air, sleep_until};
use super::udp::{FIRST_PORT, Finished, READ_TIMEOUT, spawn};
use crate::rig::clock::monotonic_ns;
use crate::rig::staging::reached_by;
use crate::rig::stats::{Arrival, Samples};
use crate::rig::worker::{Stop, join};
use crate::scenario::{Congestion, Flow, Scenario};
use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with, sockopt};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use tautline_medium::Nanos;

/// Limit on connecting: a lost handshake segment is repeated after 1, 3, 7 and 15 s.
const CONNECT_PATIENCE: Duration = Duration::from_secs(20);
/// Interval at which both ends check whether the run is over.
const LOOK_PERIOD: Duration = Duration::from_millis(50);
/// Size of a receiver's buffer.
const READ_BYTES: usize = 1 << 16;

/// A running flow.
pub struct Running {
    sender: JoinHandle<Result<Vec<u64>>>,
    reader: JoinHandle<Result<Vec<u64>>>,
}

/// Opens a flow's connection immediately. The flow sends from its start (after `offset`) to the
/// scenario's end.
pub fn start(
    air: &Air,
    scenario: &Scenario,
    number: usize,
    offset: Nanos,
    stop: &Stop,
) -> Result<Running> {
    let flow = &scenario.flows[number];
    let port = FIRST_PORT + number as u16;
    let listener = air.run_inside(flow.to, || {
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    })?;
    let stream = air.run_inside(flow.from, || open_socket(flow))?;
    let to = reached_by(scenario, flow.from, flow.to).context("no path")?;
    let start = air.origin() + offset;
    let sender = Sender {
        name: flow.name.clone(),
        to: (to, port).into(),
        message: vec![0; flow.bytes as usize],
        start: start + flow.start,
        end: start + scenario.duration,
        count: flow.count.unwrap_or(u64::MAX),
    };
    let (bytes, stop) = (flow.bytes, stop.clone());
    Ok(Running {
        sender: spawn("sender", move || sender.run(stream))?,
        reader: spawn("reader", move || read(&listener, bytes, &stop))?,
    })
}

/// Returns a socket of the calling thread's station.
fn open_socket(flow: &Flow) -> Result<TcpStream> {
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    let congestion = match flow.congestion {
        Congestion::Cubic => "cubic",
        Congestion::Bbr => "bbr",
    };
    sockopt::set_tcp_congestion(&socket, congestion).with_context(|| {
        format!(
            "this kernel has no TCP congestion control '{congestion}' (as root: modprobe tcp_{congestion})"
        )
    })?;
    sockopt::set_ip_tos(&socket, flow.dscp << 2)?;
    Ok(socket.into())
}

/// The sending end.
struct Sender {
    name: String,
    to: SocketAddr,
    message: Vec<u8>,
    start: u64,
    end: u64,
    count: u64,
}

impl Sender {
    /// Sends all messages; returns the start time of each.
    fn run(&self, mut stream: TcpStream) -> Result<Vec<u64>> {
        self.connect(&stream)?;
        sleep_until(self.start, 0);
        let mut sent = Vec::new();
        while (sent.len() as u64) < self.count && monotonic_ns() < self.end {
            sent.push(monotonic_ns());
            self.write(&mut stream)?;
        }
        // The kernel still sends the bytes in its buffer.
        Ok(sent)
    }

    fn connect(&self, stream: &TcpStream) -> Result<()> {
        // The write timeout applies to connecting too (socket(7)).
        stream.set_write_timeout(Some(CONNECT_PATIENCE))?;
        rustix::net::connect(stream, &self.to)
            .with_context(|| format!("flow '{}': no connection to {}", self.name, self.to))?;
        Ok(stream.set_write_timeout(Some(LOOK_PERIOD))?)
    }

    /// Sends one message, as far as the kernel accepts it before the end.
    fn write(&self, stream: &mut TcpStream) -> Result<()> {
        let mut rest = &*self.message;
        while !rest.is_empty() && monotonic_ns() < self.end {
            match stream.write(rest) {
                Ok(taken) => rest = &rest[taken..],
                Err(error) if is_for_now(&error) => {}
                Err(error) => return Err(error).with_context(|| format!("flow '{}'", self.name)),
            }
        }
        Ok(())
    }
}

fn is_for_now(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

/// Receives until the run is stopped; returns the time at which each message was complete.
fn read(listener: &TcpListener, message_bytes: u64, stop: &AtomicBool) -> Result<Vec<u64>> {
    let Some(mut stream) = accept(listener, stop)? else { return Ok(Vec::new()) };
    stream.set_read_timeout(Some(LOOK_PERIOD))?;
    let (mut buffer, mut bytes, mut whole) = (vec![0; READ_BYTES], 0, Vec::new());
    while !stop.load(Ordering::Acquire) {
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(len) => bytes += len as u64,
            Err(error) if is_for_now(&error) => {}
            Err(error) => return Err(error).context("cannot read from a connection"),
        }
        whole.resize((bytes / message_bytes) as usize, monotonic_ns());
    }
    Ok(whole)
}

fn accept(listener: &TcpListener, stop: &AtomicBool) -> Result<Option<TcpStream>> {
    while !stop.load(Ordering::Acquire) {
        match poll(&mut [PollFd::new(listener, PollFlags::IN)], Some(&READ_TIMEOUT)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error).context("cannot wait for a connection"),
        }
        match listener.accept() {
            Ok((stream, _)) => return Ok(Some(stream)),
            Err(error) if is_for_now(&error) => {}
            Err(error) => return Err(error).context("cannot take a connection"),
        }
    }
    Ok(None)
}

impl Running {
    /// Waits for the sender and, once the run was stopped, for the reader.
    pub fn finish(self, origin: u64) -> Result<Finished> {
        let (sent, whole) = (join(self.sender)?, join(self.reader)?);
        let clock = |time: u64| time.saturating_sub(origin);
        let sent_ns: Vec<u64> = sent.into_iter().map(clock).collect();
        let both = sent_ns.iter().zip(whole).zip(0..);
        let arrivals = both.map(|((&sent_ns, whole), sequence)| Arrival {
            sequence,
            sent_ns,
            received_ns: clock(whole),
        });
        let arrivals = arrivals.collect();
        Ok(Finished { samples: Samples { sent_ns, arrivals }, refused: 0 })
    }
}
