// SPDX-License-Identifier: Apache-2.0
//! The socket of the node, and the epoll instance for it and for the sockets of links.

use crate::error::{OpenError, SystemError};
use crate::udp::{self, ReportingSocket};
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;
use tautline_proto::{Class, Transmit};

const TAG_LISTEN: u64 = 0;
const TAG_WAKE: u64 = 1;
const TAG_LINKS: u64 = 2;
/// Maximum number of sockets of a link: one for each class, and one for a trial.
const MAX_SOCKETS: usize = Class::ALL.len() + 1;

/// The socket that receives from any address, also from strangers. Its epoll instance also serves
/// the sockets of links.
pub(super) struct Listen {
    poll: OwnedFd,
    socket: ReportingSocket,
    pub(super) address: SocketAddr,
}

/// A source that has become ready.
#[derive(Debug, Clone, Copy)]
pub(super) enum Ready {
    /// The socket of the node.
    Listen,
    /// An input was queued.
    Wake,
    /// A socket of a link: the link's index, and the socket's index in the link.
    Link(usize, usize),
}

/// Returns the epoll tag of a link's socket, from the link's index and the socket's index in the link.
pub(super) fn tag(link: usize, place: usize) -> u64 {
    TAG_LINKS + (link * MAX_SOCKETS + place) as u64
}

/// Returns the source that the [`tag`] of an event denotes.
pub(super) fn ready_source(event: &epoll::Event) -> Ready {
    match event.data.u64() {
        TAG_LISTEN => Ready::Listen,
        TAG_WAKE => Ready::Wake,
        tag => {
            let number = (tag - TAG_LINKS) as usize;
            Ready::Link(number / MAX_SOCKETS, number % MAX_SOCKETS)
        }
    }
}

fn system(what: &'static str) -> impl Fn(Errno) -> SystemError {
    move |error| SystemError { what, error: error.into() }
}

impl Listen {
    /// Opens the socket at `address`, and waits for it and for `wake`.
    pub(super) fn open(address: SocketAddr, wake: impl AsFd) -> Result<Self, OpenError> {
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(system("epoll"))?;
        let socket = udp::listen(address).map_err(|error| OpenError::Listen { address, error })?;
        let own = socket.socket().local_addr().unwrap_or(address);
        let edge = epoll::EventFlags::IN | epoll::EventFlags::ET;
        for (fd, tag) in [(socket.socket().as_fd(), TAG_LISTEN), (wake.as_fd(), TAG_WAKE)] {
            epoll::add(&poll, fd, epoll::EventData::new_u64(tag), edge).map_err(system("epoll"))?;
        }
        Ok(Self { poll, socket, address: own })
    }

    /// Returns the epoll instance at which sockets are registered.
    pub(super) fn poll(&self) -> &OwnedFd {
        &self.poll
    }

    pub(super) fn socket(&self) -> &UdpSocket {
        self.socket.socket()
    }

    pub(super) fn reporting(&self) -> &ReportingSocket {
        &self.socket
    }

    /// Sleeps until something is ready, with nanosecond resolution: at 3 Mbps, a link sends 375
    /// bytes in a millisecond.
    pub(super) fn wait(
        &self,
        timeout: Option<Duration>,
        ready: &mut Vec<epoll::Event>,
    ) -> Result<(), SystemError> {
        let timeout = timeout.map(|t| Timespec {
            tv_sec: i64::try_from(t.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(t.subsec_nanos()),
        });
        ready.clear();
        match epoll::wait(&self.poll, spare_capacity(ready), timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(system("epoll_pwait2")(error)),
        }
    }

    /// Sends a reply. An error is ignored, because a reply is not worth a second attempt.
    pub(super) fn send(&self, transmit: &Transmit) {
        let Transmit { datagram, local, remote, .. } = transmit;
        if let Err(error) = self.socket.send(datagram, *local, self.mapped_address(*remote)) {
            tracing::debug!(%error, %remote, "a reply was not sent");
        }
    }

    /// Converts an address for this socket.
    pub(super) fn mapped_address(&self, remote: SocketAddr) -> SocketAddr {
        match remote {
            SocketAddr::V4(v4) if self.address.is_ipv6() => {
                SocketAddr::new(v4.ip().to_ipv6_mapped().into(), v4.port())
            }
            _ => remote,
        }
    }
}
