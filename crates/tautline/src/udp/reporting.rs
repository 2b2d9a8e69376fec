// SPDX-License-Identifier: Apache-2.0
//! Sockets that report the arrival of each datagram.

use nix::sys::socket::{setsockopt, sockopt};
use quinn_udp::{RecvMeta, UdpSocketState};
use socket2::Socket;
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr, UdpSocket};

/// A socket that reports how each datagram arrived.
#[derive(Debug)]
pub(crate) struct Reporting {
    socket: UdpSocket,
    options: UdpSocketState,
}

impl Reporting {
    pub(super) fn new(socket: Socket) -> io::Result<Self> {
        // The time of arrival, the local address and the traffic class are reported; datagrams that
        // came in a row are read in one call. Packets up to the interface's MTU leave with "don't
        // fragment", and larger ones are refused (EMSGSIZE), whatever ICMP reports (IP_PMTUDISC_PROBE).
        let options = UdpSocketState::new((&socket).into())?;
        Ok(Self { socket: socket.into(), options })
    }

    pub(crate) fn socket(&self) -> &UdpSocket {
        &self.socket
    }

    /// Prepares the socket for datagrams of which the local address is known. With it, the reports on
    /// joined datagrams exceed the 96 bytes that quinn-udp 0.6 has for them, and the ECN field is lost.
    pub(super) fn expect_trains(&self) -> io::Result<()> {
        if self.socket.local_addr()?.is_ipv6() {
            setsockopt(&self.socket, sockopt::Ipv6RecvPacketInfo, &false)?;
        } else {
            setsockopt(&self.socket, sockopt::Ipv4PacketInfo, &false)?;
        }
        Ok(())
    }

    /// Prepares the socket for datagrams of which the local address is reported, each on its own.
    pub(super) fn expect_single_datagrams(&self) {
        // A kernel without this option joins none.
        let _ = setsockopt(&self.socket, sockopt::UdpGroSegment, &false);
    }

    /// Receives datagrams and how each arrived; returns how many buffers have some.
    pub(super) fn receive(
        &self,
        buffers: &mut [IoSliceMut<'_>],
        arrived: &mut [RecvMeta],
    ) -> io::Result<usize> {
        self.options.recv((&self.socket).into(), buffers, arrived)
    }

    /// Sends a datagram from an address of this machine, which the kernel selects if none is given.
    pub(crate) fn send(
        &self,
        contents: &[u8],
        local: Option<IpAddr>,
        destination: SocketAddr,
    ) -> io::Result<()> {
        let send = |src_ip| {
            let (ecn, segment_size) = (None, None);
            let transmit = quinn_udp::Transmit { destination, ecn, contents, segment_size, src_ip };
            self.options.try_send((&self.socket).into(), &transmit)
        };
        match send(local) {
            // The machine no longer has the address.
            Err(_) if local.is_some() => send(None),
            result => result,
        }
    }
}
