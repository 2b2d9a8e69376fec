// SPDX-License-Identifier: Apache-2.0
//! A scenario's plain UDP flows, by real sockets in the stations.

use super::station::{Air, sleep_until};
use crate::rig::clock::{monotonic_ns, real_less_monotonic_ns};
use crate::rig::punctual::{Rank, be_punctual, processors, stay_on};
use crate::rig::staging::{DATAGRAM_BYTES, reached_by};
use crate::rig::stamp::{Incomplete, Stamp};
use crate::rig::stats::{Arrival, Samples};
use crate::rig::worker::{Stop, join};
use crate::scenario::{Flow, Pace, Scenario};
use anyhow::{Context, Result};
use nix::sys::socket::sockopt::ReceiveTimestampns;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt};
use nix::sys::time::TimeSpec;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io::{ErrorKind, IoSliceMut};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tautline_medium::Nanos;

/// First UDP port; each flow has its own port.
pub const FIRST_PORT: u16 = 20_000;
/// Interval at which a reader checks whether the run is over.
pub const READ_TIMEOUT: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
/// Header size: sequence number, time of publication, part and number of parts.
const HEADER_BYTES: usize = 24;

/// Header of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Piece {
    message: Stamp,
    part: u32,
    parts: u32,
}

impl Piece {
    fn write(self, datagram: &mut [u8]) {
        self.message.write(datagram);
        datagram[16..20].copy_from_slice(&self.part.to_le_bytes());
        datagram[20..24].copy_from_slice(&self.parts.to_le_bytes());
    }

    fn read(datagram: &[u8]) -> Option<Self> {
        let number = |at: usize| datagram.get(at..)?.first_chunk().copied().map(u32::from_le_bytes);
        Some(Self { message: Stamp::read(datagram)?, part: number(16)?, parts: number(20)? })
    }
}

/// Pause of a writer after a datagram that the kernel rejected.
const WRITER_PAUSE: Duration = Duration::from_millis(1);
/// Interval between the first ARP requests of two flows. Simultaneous requests would collide, and
/// the kernel repeats a request only after a second.
const ASKING_GAP: Nanos = 20_000_000;
/// Sequence number of a datagram that carries no message.
const NO_MESSAGE: u64 = u64::MAX;

/// Sends messages of a fixed size to an address.
struct Sender {
    socket: Arc<UdpSocket>,
    to: SocketAddr,
    bytes: usize,
}

impl Sender {
    /// Makes the kernel resolve the receiver's link address in advance: a lost ARP request costs a
    /// second.
    fn resolve_receiver(&self) -> Result<()> {
        let mut datagram = [0; HEADER_BYTES];
        let message = Stamp { sequence: NO_MESSAGE, sent_ns: 0 };
        Piece { message, part: 0, parts: 1 }.write(&mut datagram);
        self.put(&datagram)
    }

    fn put(&self, datagram: &[u8]) -> Result<()> {
        match self.socket.send_to(datagram, self.to) {
            Ok(_) => Ok(()),
            // A full queue or an unresolved neighbour: the kernel reports the datagram as lost. An
            // immediate retry would take the processor from all other threads.
            Err(error) if is_lost(&error) => {
                std::thread::sleep(WRITER_PAUSE);
                Ok(())
            }
            Err(error) => Err(error).context("cannot send"),
        }
    }

    /// Sends one message; returns when the socket has accepted all of it.
    fn send(&self, message: Stamp) -> Result<()> {
        let parts = self.bytes.div_ceil(DATAGRAM_BYTES).max(1);
        let mut datagram = [0; DATAGRAM_BYTES];
        for part in 0..parts {
            let len = (self.bytes - part * DATAGRAM_BYTES).clamp(HEADER_BYTES, DATAGRAM_BYTES);
            let piece = Piece { message, part: part as u32, parts: parts as u32 };
            piece.write(&mut datagram);
            self.put(&datagram[..len])?;
        }
        Ok(())
    }
}

fn is_lost(error: &std::io::Error) -> bool {
    let lost = [ErrorKind::HostUnreachable, ErrorKind::NetworkUnreachable];
    lost.contains(&error.kind()) || error.raw_os_error() == Some(105)
}

/// A running flow.
pub struct Running {
    sender: JoinHandle<Result<(Vec<u64>, u64)>>,
    readers: Vec<Reader>,
}

/// Results of a flow.
#[derive(Debug)]
pub struct Finished {
    /// Samples, by the emulator's clock.
    pub samples: Samples,
    /// Messages that were due while the socket was still blocked by earlier messages.
    pub refused: u64,
}

/// Opens a flow's sockets. The flow sends from its start (after `offset`) to the scenario's end.
pub fn start(
    air: &Air,
    scenario: &Scenario,
    number: usize,
    offset: Nanos,
    stop: &Stop,
) -> Result<Running> {
    let flow = &scenario.flows[number];
    let port = FIRST_PORT + number as u16;
    let open = |station: usize, port: u16| {
        air.run_inside(station, || {
            let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port))?;
            rustix::net::sockopt::set_ip_tos(&socket, flow.dscp << 2)?;
            setsockopt(&socket, ReceiveTimestampns, &true)?;
            Ok(Arc::new(socket))
        })
    };
    let (here, there) = (open(flow.from, port)?, open(flow.to, port)?);
    let at = |from, to| -> Result<SocketAddr> {
        Ok((reached_by(scenario, from, to).context("no path")?, port).into())
    };
    let (to, back) = (at(flow.from, flow.to)?, at(flow.to, flow.from)?);
    let bytes = flow.bytes as usize;
    let mut readers = Vec::new();
    if flow.echo {
        let echo = Sender { socket: there.clone(), to: back, bytes };
        readers.push(Reader::start(there, Some(echo), stop)?);
        readers.push(Reader::start(here.clone(), None, stop)?);
    } else {
        readers.push(Reader::start(there, None, stop)?);
    }
    let sender = Sender { socket: here, to, bytes };
    let schedule = Schedule::new(flow, offset, scenario.duration, air.origin());
    let asking = monotonic_ns() + number as u64 * ASKING_GAP;
    let sender = spawn("sender", move || {
        sleep_until(asking, 0);
        sender.resolve_receiver()?;
        schedule.run(&sender)
    })?;
    Ok(Running { sender, readers })
}

/// Starts a thread with real-time priority, if permitted.
pub fn spawn<T: Send + 'static>(
    name: &str,
    task: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>> {
    let punctually = || {
        // The emulator reports a missing permission; a delay of this thread shows in the samples.
        let _ = be_punctual(Rank::Traffic);
        task()
    };
    Ok(std::thread::Builder::new().name(name.into()).spawn(punctually)?)
}

impl Running {
    /// Waits for the sender and, once the run was stopped, for the readers.
    pub fn finish(self, origin: u64) -> Result<Finished> {
        let (sent, refused) = join(self.sender)?;
        let mut arrivals = Vec::new();
        for reader in self.readers {
            // The last reader is the one at which the flow's delay is measured.
            arrivals = reader.finish()?;
        }
        let clock = |time: u64| time.saturating_sub(origin);
        for arrival in &mut arrivals {
            arrival.sent_ns = clock(arrival.sent_ns);
            arrival.received_ns = clock(arrival.received_ns);
        }
        let sent_ns = sent.into_iter().map(clock).collect();
        Ok(Finished { samples: Samples { sent_ns, arrivals }, refused })
    }
}

/// Due times of a flow's messages, by the machine's monotonic clock.
struct Schedule {
    start: u64,
    end: u64,
    pace: Pace,
    count: u64,
}

impl Schedule {
    fn new(flow: &Flow, offset: Nanos, duration: Nanos, origin: u64) -> Self {
        Self {
            start: origin + offset + flow.start,
            end: origin + offset + duration,
            pace: flow.pace,
            count: flow.count.unwrap_or(u64::MAX),
        }
    }

    /// Sends all messages; returns the time of sending of each, and the number of skipped messages.
    fn run(&self, sender: &Sender) -> Result<(Vec<u64>, u64)> {
        let (mut sent, mut refused) = (Vec::new(), 0);
        sleep_until(self.start, 0);
        while sent.len() as u64 + refused < self.count {
            if let Pace::Every(period) = self.pace {
                let due = |number: u64| self.start + number * period;
                let number = sent.len() as u64 + refused;
                if due(number) >= self.end {
                    break;
                }
                sleep_until(due(number), 0);
                if monotonic_ns() >= due(number + 1) {
                    refused += 1;
                    continue;
                }
            }
            let now = monotonic_ns();
            if now >= self.end {
                break;
            }
            sent.push(now);
            sender.send(Stamp { sequence: sent.len() as u64 - 1, sent_ns: now })?;
        }
        Ok((sent, refused))
    }
}

/// A reader of a socket's messages until the run is stopped, with two threads.
struct Reader {
    hands: Vec<JoinHandle<Result<()>>>,
    messages: Arc<Mutex<Messages>>,
}

impl Reader {
    /// Starts the threads. `echo`, if present, sends back each complete message.
    fn start(socket: Arc<UdpSocket>, echo: Option<Sender>, stop: &Stop) -> Result<Self> {
        let (messages, echo) = (Arc::<Mutex<Messages>>::default(), Arc::new(echo));
        let hand = |processor| {
            let (socket, echo) = (socket.clone(), echo.clone());
            let (messages, stop) = (messages.clone(), stop.clone());
            spawn("reader", move || {
                stay_on(processor)?;
                read(&socket, &stop, &messages, echo.as_ref().as_ref())
            })
        };
        let hands = processors()?.into_iter().map(hand).collect::<Result<_>>()?;
        Ok(Self { hands, messages })
    }

    /// Waits for the end of the run.
    fn finish(self) -> Result<Vec<Arrival>> {
        self.hands.into_iter().try_for_each(join)?;
        let mut messages = self.messages.lock().unwrap_or_else(PoisonError::into_inner);
        // Two threads may overtake each other between reading and recording.
        messages.arrivals.sort_by_key(|arrival| arrival.received_ns);
        Ok(std::mem::take(&mut messages.arrivals))
    }
}

fn read(
    socket: &UdpSocket,
    stop: &AtomicBool,
    messages: &Mutex<Messages>,
    echo: Option<&Sender>,
) -> Result<()> {
    let (mut datagram, clocks_apart) = ([0; DATAGRAM_BYTES + 1], real_less_monotonic_ns());
    while !stop.load(Ordering::Acquire) {
        // In contrast to a blocking read, this wakes both threads.
        match poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&READ_TIMEOUT)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error).context("cannot wait for datagrams"),
        }
        // An error means that the other thread was first, or that a port was not open yet.
        let Ok((len, came)) = receive(socket, &mut datagram, clocks_apart) else { continue };
        let Some(piece) = Piece::read(&datagram[..len]) else { continue };
        let whole = messages.lock().unwrap_or_else(PoisonError::into_inner).take(piece, came);
        if let Some(echo) = echo.filter(|_| whole) {
            echo.send(piece.message)?;
        }
    }
    Ok(())
}

/// Returns a datagram, if there is one, and the monotonic time at which the kernel received it for
/// the socket. The reader's scheduling delay is no property of the radio.
fn receive(
    socket: &UdpSocket,
    datagram: &mut [u8],
    clocks_apart: u64,
) -> nix::Result<(usize, u64)> {
    let (mut parts, mut control) = ([IoSliceMut::new(datagram)], nix::cmsg_space!(TimeSpec));
    let (flags, socket) = (MsgFlags::MSG_DONTWAIT, socket.as_raw_fd());
    let message = recvmsg::<()>(socket, &mut parts, Some(&mut control), flags)?;
    let came = message.cmsgs()?.find_map(|control| match control {
        ControlMessageOwned::ScmTimestampns(time) => Some(Duration::from(time)),
        _ => None,
    });
    let came = came.map_or_else(monotonic_ns, |came| came.as_nanos() as u64 - clocks_apart);
    Ok((message.bytes, came))
}

/// Messages of a flow that have arrived.
#[derive(Default)]
struct Messages {
    arrivals: Vec<Arrival>,
    /// Incomplete messages, by sequence number.
    incomplete: Incomplete<u64>,
}

impl Messages {
    /// Records a part; returns whether it completes its message.
    fn take(&mut self, piece: Piece, came: u64) -> bool {
        let Piece { message: Stamp { sequence, sent_ns }, parts, .. } = piece;
        if sequence == NO_MESSAGE {
            return false;
        }
        let whole = self.incomplete.completes(sequence, parts);
        if whole {
            self.arrivals.push(Arrival { sequence, sent_ns, received_ns: came });
        }
        whole
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_fragment_is_read_and_unknown_bytes_are_refused() {
        let message = Stamp { sequence: 7, sent_ns: 8 };
        let piece = Piece { message, part: 1, parts: 3 };
        let mut datagram = [0; 100];
        piece.write(&mut datagram);
        assert_eq!(Piece::read(&datagram), Some(piece));
        assert_eq!(Piece::read(&datagram[..HEADER_BYTES - 1]), None);
    }
}
