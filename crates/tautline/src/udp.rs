// SPDX-License-Identifier: Apache-2.0
//! UDP sockets. One socket receives from any address. Each link has connected sockets on the same
//! port, so that the kernel charges unsent packets to their own link. A link has one socket per
//! class of packets, because the radio's backlogs of different classes are independent.

mod charges;
mod inbox;
mod reporting;

use crate::route::Path;
use crate::sys;
use charges::{Charges, SentPackets};
pub(crate) use inbox::{Datagram, Inbox};
pub(crate) use reporting::ReportingSocket;
use rustix::event::epoll;
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsFd, OwnedFd};
use tautline_proto::Ecn;

/// Receive buffer requested from the kernel. It holds 16 ms at 2 Gbps, for times at which the
/// daemon is delayed.
pub const RECEIVE_BUFFER_BYTES: usize = 4 << 20;

/// Number of packets remembered beyond those that the kernel seems to hold, in case a charge was misjudged.
const SPARE_RECORDS: usize = 8;
/// Tolerance of a charge, in bytes: less than the kernel's charge for the smallest packet.
const CHARGE_TOLERANCE: usize = 256;

/// The error that the kernel sent only the first packets of a system call.
#[derive(Debug)]
pub(crate) struct PartialSendError {
    /// Number of packets that the kernel sent.
    pub(crate) sent: usize,
    pub(crate) error: io::Error,
}

/// Whether the kernel refused a datagram because the interface cannot send datagrams of its size.
pub(crate) fn is_too_large(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EMSGSIZE)
}

fn new_socket(local: SocketAddr, only_v6: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(local), Type::DGRAM, Some(Protocol::UDP))?;
    if local.is_ipv6() {
        socket.set_only_v6(only_v6)?;
    }
    Ok(socket)
}

fn open(local: SocketAddr, only_v6: bool, device: Option<&str>) -> io::Result<ReportingSocket> {
    let socket = new_socket(local, only_v6)?;
    // Each link has a socket of its own on the same port. SO_REUSEADDR is not used: it would let
    // any local user open a socket on the port.
    socket.set_reuse_port(true)?;
    // Best effort: the kernel limits it to net.core.rmem_max.
    let _ = socket.set_recv_buffer_size(RECEIVE_BUFFER_BYTES);
    if let Some(device) = device {
        socket.bind_device(Some(device.as_bytes()))?;
    }
    socket.bind(&local.into())?;
    ReportingSocket::new(socket)
}

/// Sets the DSCP of a socket's packets (the upper six bits, RFC 2474) and their ECN field (RFC 3168).
fn mark(socket: SockRef<'_>, is_ipv6: bool, dscp: u8, ecn: Ecn) -> io::Result<()> {
    let traffic_class = u32::from(dscp) << 2 | ecn as u32;
    match is_ipv6 {
        false => socket.set_tos_v4(traffic_class),
        true => socket.set_tclass_v6(traffic_class),
    }
}

/// Opens the socket that receives from any address. A socket at `[::]` receives IPv4 as well.
pub(crate) fn listen(local: SocketAddr) -> io::Result<ReportingSocket> {
    let only_v6 = local.ip() != Ipv6Addr::UNSPECIFIED;
    // Another daemon on the port must cause an error, although our own links' sockets share the port.
    let alone = new_socket(local, only_v6)?;
    alone.bind(&local.into())?;
    let port = alone.local_addr()?.as_socket().map_or(local.port(), |a| a.port());
    drop(alone);
    let socket = open(SocketAddr::new(local.ip(), port), only_v6, None)?;
    socket.disable_gro();
    Ok(socket)
}

/// A socket of a link, for one class. Packets from the peer may arrive at any of the link's
/// sockets; the kernel does not promise at which.
#[derive(Debug)]
pub(crate) struct LinkSocket {
    socket: ReportingSocket,
    pub(crate) path: Path,
    /// Source address of its packets.
    pub(crate) local: IpAddr,
    dscp: u8,
    /// The ECN field of its packets.
    ecn: Ecn,
    /// The last packets sent, oldest first.
    sent: VecDeque<SentPackets>,
    /// The kernel's charge for unsent packets, in bytes, when it was last read.
    charged: usize,
    charges: Charges,
    /// Whether one call may send several packets (UDP_SEGMENT).
    supports_gso: bool,
}

/// Returns the address of a socket. A link-local address gets the interface of the path.
fn scoped_address(address: IpAddr, port: u16, path: &Path) -> SocketAddr {
    match address {
        IpAddr::V6(v6) if v6.is_unicast_link_local() => {
            SocketAddrV6::new(v6, port, 0, path.index).into()
        }
        _ => SocketAddr::new(address, port),
    }
}

impl LinkSocket {
    /// Connects to `path` from the node's port. The source address is the node's address, or
    /// `source` if the node has none. Packets carry `dscp`, 0 to 63.
    pub(crate) fn connect(
        path: Path,
        (node, source): (SocketAddr, Option<IpAddr>),
        device: Option<&str>,
        dscp: u8,
    ) -> io::Result<Self> {
        let any: IpAddr = match path.remote {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let bound = !node.ip().is_unspecified() && node.is_ipv4() == path.remote.is_ipv4();
        let source = source.filter(|it| it.is_ipv4() == path.remote.is_ipv4());
        let address = if bound { node.ip() } else { source.unwrap_or(any) };
        let local = scoped_address(address, node.port(), &path);
        let socket = open(local, true, device)?;
        socket.prepare_for_gro()?;
        let ecn = Ecn::NotCapable;
        mark(socket.socket().into(), local.is_ipv6(), dscp, ecn)?;
        socket.socket().connect(path.remote)?;
        let local = socket.socket().local_addr()?.ip();
        let (sent, charged, charges, supports_gso) = (VecDeque::new(), 0, Charges::new(), true);
        Ok(Self { socket, path, local, dscp, ecn, sent, charged, charges, supports_gso })
    }

    pub(crate) fn register(&self, poll: &OwnedFd, tag: u64) -> io::Result<()> {
        let events = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::ET;
        let data = epoll::EventData::new_u64(tag);
        Ok(epoll::add(poll, self.socket.socket(), data, events)?)
    }

    /// Sends packets of one length, the last of which may be shorter, and notes the kernel's charge
    /// for them. `header_bytes` is the size of the IP and UDP headers of each packet. Returns the
    /// IP bytes that the kernel holds now.
    pub(crate) fn send(
        &mut self,
        packets: &[&[u8]],
        header_bytes: usize,
        ecn: Ecn,
    ) -> Result<usize, PartialSendError> {
        if ecn != self.ecn {
            // An error is ignored: the peer's counts show that packets lack the field.
            let _ = mark(self.socket.socket().into(), self.path.remote.is_ipv6(), self.dscp, ecn);
            self.ecn = ecn;
        }
        // Only this code sends by the socket, so a charge of zero is still zero.
        let before = if self.charged == 0 { Ok(0) } else { self.read_charged() };
        let before = before.map_err(|error| PartialSendError { sent: 0, error })?;
        let result = self.send_batch(packets);
        let sent = result.as_ref().map_or_else(|it| it.sent, |()| packets.len());
        self.charged = self.read_charged().map_err(|error| PartialSendError { sent, error })?;
        if sent > 0 {
            let bytes = packets[..sent].iter().map(|it| it.len()).sum::<usize>();
            let charge =
                self.charges.learn(bytes, self.charged.saturating_sub(before), before == 0);
            let ip_bytes = bytes + sent * header_bytes;
            self.sent.push_back(SentPackets { charge, ip_bytes, packets: sent });
        }
        result.map(|()| self.held_bytes())
    }

    fn send_batch(&mut self, packets: &[&[u8]]) -> Result<(), PartialSendError> {
        if packets.len() > 1 && self.supports_gso {
            match self.send_message(packets) {
                // The device cannot compute checksums of segments, or the kernel does not segment
                // this length.
                Err(error) if matches!(error.raw_os_error(), Some(libc::EIO | libc::EINVAL)) => {
                    self.send_individually(packets)?;
                    self.supports_gso = false;
                    return Ok(());
                }
                Err(error) if is_too_large(&error) => {}
                result => return result.map_err(|error| PartialSendError { sent: 0, error }),
            }
        }
        self.send_individually(packets)
    }

    fn send_individually(&self, packets: &[&[u8]]) -> Result<(), PartialSendError> {
        packets.iter().enumerate().try_for_each(|(sent, packet)| {
            self.send_message(&[packet]).map_err(|error| PartialSendError { sent, error })
        })
    }

    /// Returns the present MTU of the interface, in bytes.
    pub(crate) fn interface_mtu(&self) -> io::Result<usize> {
        sys::interface_mtu(self.socket.socket().as_fd(), &self.path.interface)
    }

    fn send_message(&self, packets: &[&[u8]]) -> io::Result<()> {
        match sys::send(self.socket.socket().as_fd(), packets) {
            // The error was caused by an earlier packet and reported by ICMP. This packet was not sent yet.
            Err(error)
                if error.kind() == io::ErrorKind::ConnectionRefused || is_too_large(&error) =>
            {
                sys::send(self.socket.socket().as_fd(), packets)
            }
            result => result,
        }
    }

    /// Receives datagrams of the link.
    pub(crate) fn receive(&self, inbox: &mut Inbox) -> io::Result<()> {
        inbox.receive(&self.socket)
    }

    fn read_charged(&self) -> io::Result<usize> {
        sys::charged_bytes(self.socket.socket().as_fd())
    }

    /// Returns the IP bytes that the kernel holds now.
    pub(crate) fn in_flight(&mut self) -> usize {
        if self.sent.is_empty() {
            return 0;
        }
        self.charged = self.read_charged().unwrap_or(0);
        self.held_bytes()
    }

    /// Returns the IP bytes of the newest packets that make up the kernel's charge. The count
    /// starts from the newest packet each time, so an error lasts no longer than its packet.
    fn held_bytes(&mut self) -> usize {
        let (mut covered, mut ip_bytes, mut calls) = (0, 0, 0);
        for sent in self.sent.iter().rev() {
            if covered + CHARGE_TOLERANCE >= self.charged {
                break;
            }
            ip_bytes += sent.held_bytes(self.charged - covered);
            covered += sent.charge;
            calls += 1;
        }
        let remembered = if calls == 0 { 0 } else { calls + SPARE_RECORDS };
        self.sent.drain(..self.sent.len().saturating_sub(remembered));
        ip_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::inbox::MAX_WAITED;
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::net::UdpSocket;
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    /// Receives a datagram; `None` if there is none.
    fn try_receive(socket: &ReportingSocket) -> Option<(Vec<u8>, Datagram)> {
        let mut inbox = Inbox::new();
        inbox.receive(socket).ok()?;
        let datagram = inbox.take(Duration::ZERO)?;
        Some((inbox.bytes(&datagram).to_vec(), datagram))
    }

    fn receive(socket: &ReportingSocket) -> (Vec<u8>, Datagram) {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            match try_receive(socket) {
                Some(received) => return received,
                None => assert!(Instant::now() < deadline, "nothing arrives"),
            }
        }
    }

    #[test]
    fn links_share_the_port_and_get_their_own_packets() {
        let open = listen("[::]:0".parse().unwrap()).unwrap();
        let node = open.socket().local_addr().unwrap();
        let far = UdpSocket::bind("127.0.0.1:0").unwrap();
        let remote = far.local_addr().unwrap();
        let path = crate::route::route(remote, None, None).unwrap();
        let mut link = LinkSocket::connect(path, (node, None), None, 0).unwrap();
        link.send(&[b"hello"], 28, Ecn::NotCapable).unwrap();
        let mut buffer = [0; 16];
        let (len, from) = far.recv_from(&mut buffer).unwrap();
        assert_eq!((&buffer[..len], from.port()), (&b"hello"[..], node.port()));
        far.send_to(b"back", from).unwrap();
        assert_eq!(receive(&link.socket).0, b"back");
        assert_eq!(link.in_flight(), 0, "loopback holds nothing back");
    }

    #[test]
    fn a_datagram_has_its_waiting_time() {
        let open = listen("[::]:0".parse().unwrap()).unwrap();
        let far = UdpSocket::bind("127.0.0.1:0").unwrap();
        let path = crate::route::route(far.local_addr().unwrap(), None, None).unwrap();
        let mut link =
            LinkSocket::connect(path, (open.socket().local_addr().unwrap(), None), None, 0)
                .unwrap();
        link.send(&[b"hello"], 28, Ecn::NotCapable).unwrap();
        let mut buffer = [0; 16];
        let (_, from) = far.recv_from(&mut buffer).unwrap();
        let after = |sleep| {
            far.send_to(b"back", from).unwrap();
            std::thread::sleep(sleep);
            let (bytes, datagram) = receive(&link.socket);
            assert_eq!(bytes, b"back");
            datagram.arrival.waited
        };
        // The kernel begins to stamp some time after the first socket asks for it; until then it
        // stamps what is read.
        let is_stamped = |waited: &Duration| *waited >= Duration::from_millis(2);
        let mut tries = std::iter::repeat_with(|| after(Duration::from_millis(2))).take(1000);
        let short = tries.find(is_stamped).expect("no stamp in 1000 datagrams");
        assert!(short <= MAX_WAITED, "{short:?}");
        drop(tries);
        assert_eq!(after(MAX_WAITED * 2), MAX_WAITED);
    }

    /// Receives packets and prints the byte of the IP header that holds the DSCP.
    const LISTENER: &str = "
import socket, sys
family, address, level, wanted = (
    (socket.AF_INET, '127.0.0.1', socket.IPPROTO_IP, socket.IP_RECVTOS) if sys.argv[1] == '4'
    else (socket.AF_INET6, '::1', socket.IPPROTO_IPV6, socket.IPV6_RECVTCLASS))
far = socket.socket(family, socket.SOCK_DGRAM)
far.settimeout(20)
far.setsockopt(level, wanted, 1)
far.bind((address, 0))
print(far.getsockname()[1], flush=True)
for _ in range(4):
    _, ancillary, _, sender = far.recvmsg(64, 64)
    print(ancillary[0][2][0], flush=True)
    far.sendto(b'back', sender)
";

    /// Returns the traffic classes that arrive from sockets of one link with each of `dscp`. All of
    /// the sockets together receive every answer.
    fn received_traffic_classes(family: &str, dscp: [u8; 4]) -> Vec<u8> {
        let mut listener = Command::new("python3")
            .args(["-c", LISTENER, family])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(listener.stdout.take().unwrap()).lines();
        let mut next = || lines.next().unwrap().unwrap().parse::<u16>().unwrap();
        let loopback: IpAddr =
            if family == "4" { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() };
        let path = crate::route::route(SocketAddr::new(loopback, next()), None, None).unwrap();
        let open = listen("[::]:0".parse().unwrap()).unwrap();
        let node = open.socket().local_addr().unwrap();
        let connect = |dscp| LinkSocket::connect(path.clone(), (node, None), None, dscp).unwrap();
        let mut sockets = dscp.map(connect);
        let mut got = Vec::new();
        let mut answers = 0;
        for index in 0..sockets.len() {
            let ecn = if index % 2 == 1 { Ecn::Capable } else { Ecn::NotCapable };
            sockets[index].send(&[b"hello"], 28, ecn).unwrap();
            got.push(next() as u8);
            let deadline = Instant::now() + Duration::from_secs(20);
            while answers <= index && Instant::now() < deadline {
                let came = |link: &&LinkSocket| try_receive(&link.socket).is_some();
                answers += sockets.iter().filter(came).count();
            }
        }
        assert_eq!(answers, 4);
        assert!(listener.wait().unwrap().success());
        got
    }

    #[test]
    fn packets_are_marked_and_answers_reach_a_socket_of_the_link() {
        for family in ["4", "6"] {
            assert_eq!(received_traffic_classes(family, [8, 0, 32, 48]), [32, 2, 128, 194]);
        }
    }

    #[test]
    fn the_ecn_field_of_each_datagram_is_read() {
        for (family, far) in [("4", "127.0.0.1:0"), ("6", "[::1]:0")] {
            let open = listen("[::]:0".parse().unwrap()).unwrap();
            let far = UdpSocket::bind(far).unwrap();
            let path = crate::route::route(far.local_addr().unwrap(), None, None).unwrap();
            let node = open.socket().local_addr().unwrap();
            let mut link = LinkSocket::connect(path, (node, None), None, 46).unwrap();
            let mut buffer = [0; 16];
            link.send(&[b"hello"], 28, Ecn::Capable).unwrap();
            let (_, from) = far.recv_from(&mut buffer).unwrap();
            let is_ipv6 = far.local_addr().unwrap().is_ipv6();
            for field in [Ecn::Marked, Ecn::NotCapable, Ecn::Capable, Ecn::Capable1] {
                mark((&far).into(), is_ipv6, 8, field).unwrap();
                far.send_to(b"back", from).unwrap();
                let (bytes, datagram) = receive(&link.socket);
                assert_eq!((&bytes[..], datagram.arrival.ecn), (&b"back"[..], field), "{family}");
                // Nothing is connected to this address: the open socket gets it.
                let stranger = UdpSocket::bind(SocketAddr::new(far.local_addr().unwrap().ip(), 0));
                let stranger = stranger.unwrap();
                mark((&stranger).into(), is_ipv6, 8, field).unwrap();
                stranger.send_to(b"hello", from).unwrap();
                let (bytes, datagram) = receive(&open);
                assert_eq!(bytes, b"hello");
                assert_eq!(datagram.from, stranger.local_addr().unwrap());
                assert_eq!(datagram.arrival.ecn, field, "{family}");
            }
        }
    }

    #[test]
    fn a_train_arrives_as_datagrams_of_their_lengths_with_their_marks() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let nodes = [(); 2].map(|()| listen(address.parse().unwrap()).unwrap());
            let nodes = nodes.map(|node| node.socket().local_addr().unwrap());
            let connect = |from: usize| {
                let path = crate::route::route(nodes[1 - from], None, None).unwrap();
                LinkSocket::connect(path, (nodes[from], None), None, 46).unwrap()
            };
            let [mut link, far] = [0, 1].map(connect);
            let datagrams: Vec<Vec<u8>> =
                (0..44).map(|n| vec![n; if n == 43 { 9 } else { 1400 }]).collect();
            let packets: Vec<&[u8]> = datagrams.iter().map(|it| &it[..]).collect();
            link.send(&packets, 28, Ecn::Capable).unwrap();
            let (mut inbox, mut arrived) = (Inbox::new(), Vec::new());
            let deadline = Instant::now() + Duration::from_secs(20);
            while arrived.len() < packets.len() && Instant::now() < deadline {
                let _ = far.receive(&mut inbox);
                while let Some(datagram) = inbox.take(Duration::ZERO) {
                    assert_eq!(datagram.from, nodes[0]);
                    assert_eq!(datagram.arrival.ecn, Ecn::Capable, "{address}");
                    arrived.push(inbox.bytes(&datagram).to_vec());
                }
            }
            assert_eq!(arrived, datagrams, "{address}");
        }
    }

    #[test]
    fn the_number_of_received_datagrams_adapts() {
        let limit = Duration::from_micros(200);
        let open = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let far = UdpSocket::bind("127.0.0.1:0").unwrap();
        let to = open.socket().local_addr().unwrap();
        for _ in 0..100 {
            far.send_to(b"hello", to).unwrap();
        }
        let mut inbox = Inbox::new();
        let mut received = |took| {
            inbox.receive(&open).unwrap();
            inbox.adapt(took, limit);
            std::iter::from_fn(|| inbox.take(Duration::ZERO)).count()
        };
        let counts = [2, 2, 2, 2, 1, 1, 1].map(|took| received(limit * took));
        assert_eq!(counts, [16, 8, 4, 2, 2, 4, 8]);
    }

    #[test]
    fn the_listening_socket_reports_address_and_marks() {
        for (address, peer) in
            [("[::]:0", "127.0.0.1"), ("[::]:0", "::1"), ("0.0.0.0:0", "127.0.0.1")]
        {
            let open = listen(address.parse().unwrap()).unwrap();
            let ip: IpAddr = peer.parse().unwrap();
            let port = open.socket().local_addr().unwrap().port();
            let far = UdpSocket::bind(SocketAddr::new(ip, 0)).unwrap();
            mark((&far).into(), ip.is_ipv6(), 46, Ecn::Marked).unwrap();
            far.send_to(b"hello", SocketAddr::new(ip, port)).unwrap();
            let (_, datagram) = receive(&open);
            assert_eq!((datagram.arrival.local, datagram.arrival.ecn), (Some(ip), Ecn::Marked));
        }
    }

    #[test]
    fn a_second_daemon_on_the_port_is_an_error() {
        let first = listen("[::]:0".parse().unwrap()).unwrap();
        let address = SocketAddr::new(
            Ipv6Addr::UNSPECIFIED.into(),
            first.socket().local_addr().unwrap().port(),
        );
        assert!(listen(address).is_err());
    }
}
