// SPDX-License-Identifier: Apache-2.0
//! Datagrams that one system call received.

use super::reporting::ReportingSocket;
use crate::route::canonical_address;
use quinn_udp::RecvMeta;
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::time::Duration;
use tautline_proto::{Arrival, Ecn};

/// Bytes of a buffer; no UDP payload is larger.
pub(super) const MAX_DATAGRAM: usize = 65_535;
/// Maximum number of buffers that one system call fills.
const MAX_BUFFERS: usize = 16;
/// Minimum number of buffers. With two, the call that receives the last datagram also shows that it
/// is the last.
const MIN_BUFFERS: usize = 2;

/// Maximum time that a datagram may wait in the socket without counting as delay of the path,
/// because the daemon was not scheduled. A longer wait shows that the daemon does not keep up. The
/// sender then has to slow down, as for any other queue.
pub(super) const MAX_WAITED: Duration = Duration::from_millis(10);

/// Buffers for received datagrams. The default has no buffers, and receives nothing.
#[derive(Default)]
pub(crate) struct Inbox {
    /// The buffers in sequence, each of [`MAX_DATAGRAM`] bytes.
    bytes: Vec<u8>,
    filled: [RecvMeta; MAX_BUFFERS],
    /// Number of buffers that hold datagrams.
    used: usize,
    /// Number of buffers that the next call gets.
    offered: usize,
    /// Whether the last call received all datagrams that were in the socket.
    pub(crate) is_socket_empty: bool,
    /// The next datagram: the index of its buffer, and its offset in the buffer.
    next: (usize, usize),
    /// When the last call returned, by the clock that stamps datagrams.
    received: Duration,
}

/// A received datagram.
#[derive(Debug, Clone)]
pub(crate) struct Datagram {
    place: Range<usize>,
    pub(crate) from: SocketAddr,
    pub(crate) arrival: Arrival,
}

impl Inbox {
    pub(crate) fn new() -> Self {
        let bytes = vec![0; MAX_BUFFERS * MAX_DATAGRAM];
        Self { bytes, offered: MAX_BUFFERS, ..Self::default() }
    }

    /// Receives the next datagrams of a socket. They replace the previous datagrams.
    pub(crate) fn receive(&mut self, from: &ReportingSocket) -> io::Result<()> {
        (self.used, self.next) = (0, (0, 0));
        let mut parts = self.bytes.chunks_exact_mut(MAX_DATAGRAM);
        let mut buffers: [IoSliceMut<'_>; MAX_BUFFERS] =
            std::array::from_fn(|_| IoSliceMut::new(parts.next().unwrap_or_default()));
        let buffers = &mut buffers[..self.offered];
        self.used = from.receive(buffers, &mut self.filled)?;
        self.is_socket_empty = self.used < self.offered;
        self.received = timestamp_clock_now();
        Ok(())
    }

    /// Adapts the number of buffers, given the time that the datagrams of the last call took. This
    /// time should not exceed `limit`. The effects of one packet may take hundreds of microseconds,
    /// and what was received cannot be put back into the socket.
    pub(crate) fn adapt(&mut self, took: Duration, limit: Duration) {
        if took > limit {
            self.offered = (self.offered / 2).max(MIN_BUFFERS);
        } else if !self.is_socket_empty {
            self.offered = (self.offered * 2).min(MAX_BUFFERS);
        }
    }

    /// Takes the next received datagram. `since_call` is the time since the call that received it.
    pub(crate) fn take(&mut self, since_call: Duration) -> Option<Datagram> {
        let (buffer, offset) = self.next;
        let meta = self.filled[..self.used].get(buffer)?;
        let end = (offset + meta.stride.max(1)).min(meta.len);
        self.next = if end == meta.len { (buffer + 1, 0) } else { (buffer, end) };
        let start = buffer * MAX_DATAGRAM;
        let arrival = Arrival {
            waited: meta.timestamp.map_or(Duration::ZERO, |it| self.waiting_time(it, since_call)),
            local: meta.dst_ip.map(|it| it.to_canonical()).filter(is_unicast),
            ecn: meta.ecn.map_or(Ecn::NotCapable, |it| Ecn::from_bits(it as u8)),
        };
        let place = start + offset..start + end;
        Some(Datagram { place, from: canonical_address(meta.addr), arrival })
    }

    /// Returns the time since a datagram's arrival. If the clock was set in this time, the value is
    /// wrong by at most [`MAX_WAITED`].
    fn waiting_time(&self, arrived: Duration, since_call: Duration) -> Duration {
        (self.received + since_call).saturating_sub(arrived).min(MAX_WAITED)
    }

    /// Returns the bytes of a datagram that the last call received.
    pub(crate) fn bytes(&self, datagram: &Datagram) -> &[u8] {
        &self.bytes[datagram.place.clone()]
    }

    /// As [`Self::bytes`], mutable, so that the datagram can be decrypted in place.
    pub(crate) fn bytes_mut(&mut self, datagram: &Datagram) -> &mut [u8] {
        &mut self.bytes[datagram.place.clone()]
    }
}

/// Whether packets can be sent from an address.
fn is_unicast(address: &IpAddr) -> bool {
    let is_broadcast = matches!(address, IpAddr::V4(v4) if v4.is_broadcast());
    !address.is_multicast() && !is_broadcast
}

/// Returns the time of the clock with which the kernel stamps datagrams.
fn timestamp_clock_now() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec as u32)
}
