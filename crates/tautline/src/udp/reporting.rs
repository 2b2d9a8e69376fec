// SPDX-License-Identifier: Apache-2.0
//! Sockets that report the arrival of each datagram.

use nix::sys::socket::{setsockopt, sockopt};
use quinn_udp::{RecvMeta, UdpSocketState};
use socket2::Socket;
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr, UdpSocket};

/// A socket that reports how each datagram arrived.
#[derive(Debug)]
pub(crate) struct ReportingSocket {
    socket: UdpSocket,
    options: UdpSocketState,
}

impl ReportingSocket {
    pub(super) fn new(socket: Socket) -> io::Result<Self> {
        // The socket reports the time of arrival, the local address and the traffic class. Datagrams that
        // came in a row are read in one call. Packets up to the interface's MTU leave with "don't fragment",
        // and larger ones are refused (EMSGSIZE), whatever ICMP reports (IP_PMTUDISC_PROBE).
        let options = UdpSocketState::new((&socket).into())?;
        Ok(Self { socket: socket.into(), options })
    }

    pub(crate) fn socket(&self) -> &UdpSocket {
        &self.socket
    }

    /// Prepares the socket for joined datagrams at a known local address, which is then not
    /// reported. Otherwise the reports would exceed the 96 bytes that quinn-udp 0.6 has for them,
    /// and the ECN field would be lost.
    pub(super) fn prepare_for_gro(&self) -> io::Result<()> {
        if self.socket.local_addr()?.is_ipv6() {
            setsockopt(&self.socket, sockopt::Ipv6RecvPacketInfo, &false)?;
        } else {
            setsockopt(&self.socket, sockopt::Ipv4PacketInfo, &false)?;
        }
        Ok(())
    }

    /// Prepares the socket for datagrams whose local address is reported. The kernel then does not
    /// join datagrams.
    pub(super) fn disable_gro(&self) {
        // A kernel without this option never joins datagrams.
        let _ = setsockopt(&self.socket, sockopt::UdpGroSegment, &false);
    }

    /// Receives datagrams with the reports of their arrival. Returns the number of buffers that
    /// hold datagrams.
    pub(super) fn receive(
        &self,
        buffers: &mut [IoSliceMut<'_>],
        arrived: &mut [RecvMeta],
    ) -> io::Result<usize> {
        self.options.recv((&self.socket).into(), buffers, arrived)
    }

    /// Sends a datagram from the address `local` of this machine. Without it, the kernel selects the address.
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
            // The machine no longer has the address `local`.
            Err(_) if local.is_some() => send(None),
            result => result,
        }
    }
}
