// SPDX-License-Identifier: Apache-2.0
//! Two homes, each behind a router that translates addresses, and a relay with a public address:
//! `robot - router - internet - router - base`, and the relay at the internet. Or one home with both.

mod sockets;

use crate::PROGRAM;
use socket2::{Domain, Protocol, Socket, Type};
use std::net::UdpSocket;
use tautline_testkit::running::Place;
use tautline_testkit::running::enclosure::Enclosure;

/// The addresses of the internet and of the relay in [`AT_RELAY`].
pub const INTERNET: &str = "203.0.113.1";
pub const RELAY: &str = "203.0.113.2";
/// The port of all nodes.
pub const NODE_PORT: u16 = 18470;
/// The cables of the internet, and the networks there: .1 is the internet, .2 the other end.
const AT_RELAY: (&str, &str) = ("middle", "203.0.113");
const HOMES: [(&str, &str); 2] = [("left", "198.51.100"), ("right", "192.0.2")];

/// Translators by the names of RFC 3489. In the words of RFC 4787, the first three have an
/// endpoint-independent mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Endpoint-independent filtering.
    FullCone,
    /// Address-dependent filtering.
    AddressRestricted,
    /// Address and port-dependent filtering: what `masquerade` of Linux does.
    PortRestricted,
    /// Address and port-dependent mapping and filtering.
    Symmetric,
}

impl Kind {
    pub const ALL: [Self; 4] =
        [Self::FullCone, Self::AddressRestricted, Self::PortRestricted, Self::Symmetric];

    /// The port outside that replaces [`NODE_PORT`]; none if the translator selects it.
    pub fn outside_port(self) -> Option<u16> {
        match self {
            Self::FullCone => Some(45001),
            Self::AddressRestricted => Some(45002),
            // Linux keeps a port that is free.
            Self::PortRestricted => Some(NODE_PORT),
            Self::Symmetric => None,
        }
    }

    /// The rules of the chain `leave` for new destinations, with this port outside for [`NODE_PORT`].
    fn mapping(self, address: &str, outside_port: Option<u16>) -> String {
        let from_node = format!("oifname wan udp sport {NODE_PORT}");
        match outside_port {
            None => {
                format!("oifname wan meta l4proto udp snat to {address}:20000-60000 fully-random")
            }
            Some(NODE_PORT) => "oifname wan masquerade".into(),
            Some(port) => {
                format!("{from_node} snat to {address}:{port}; oifname wan snat to {address}")
            }
        }
    }

    /// The condition on which packets from outside that answer nothing enter; none if they never do.
    fn entrance(self) -> Option<&'static str> {
        match self {
            Self::FullCone => Some("udp dport @ports"),
            Self::AddressRestricted => Some("ip saddr . udp dport @remotes"),
            Self::PortRestricted | Self::Symmetric => None,
        }
    }
}

/// Whether no packet of one end reaches the other: one end sends from a port that the other cannot know,
/// and the other accepts only a known port.
pub fn needs_relay(kinds: [Kind; 2]) -> bool {
    let is_strict = |kind| matches!(kind, Kind::PortRestricted | Kind::Symmetric);
    kinds.contains(&Kind::Symmetric) && kinds.into_iter().all(is_strict)
}

/// All pairs of kinds, regardless of their order.
pub fn pairs() -> impl Iterator<Item = [Kind; 2]> {
    let kinds = Kind::ALL.into_iter().enumerate();
    kinds.flat_map(|(at, first)| Kind::ALL[at..].iter().map(move |second| [first, *second]))
}

/// Creates an enclosure with a public address.
fn join(internet: &Enclosure, place: &Place, (cable, network): (&str, &str)) -> Enclosure {
    let inside = internet.neighbour(&place.hosts());
    internet.add_veth_pair(cable, &inside, "wan");
    internet.ip(&format!("addr add {network}.1/24 dev {cable}"));
    inside.ip(&format!("addr add {network}.2/24 dev wan"));
    inside.ip(&format!("route add default via {network}.1"));
    inside
}

/// A router that translates addresses for one host behind it. `kind` says which packets without an entry
/// reach this host.
pub struct Router {
    inside: Enclosure,
    kind: Kind,
    address: String,
}

impl Router {
    fn new(internet: &Enclosure, place: &Place, kind: Kind, home: (&str, &str)) -> Self {
        let inside = join(internet, place, home);
        let address = format!("{}.2", home.1);
        inside.ip("link add lan type bridge");
        inside.ip("addr add 192.168.1.1/24 dev lan");
        inside.ip("link set lan up");
        inside.run("sysctl -qw net.ipv4.ip_forward=1");
        let router = Self { inside, kind, address };
        router.translate();
        router
    }

    /// Creates the rules. Packets for the router itself end in its firewall, as in routers at home.
    /// Otherwise connection tracking would keep an entry for them, and the host behind could not use their
    /// port.
    fn translate(&self) {
        self.inside.nft(
            "table ip translator {
                set ports { type inet_service; flags dynamic,timeout; timeout 60s; size 999; }
                set remotes {
                    type ipv4_addr . inet_service; flags dynamic,timeout; timeout 60s; size 999;
                }
                chain own {
                    type filter hook input priority 0; policy drop;
                    iifname != wan accept
                    ct state established,related accept
                }
                chain enter { type nat hook prerouting priority dstnat; };
                chain leave { type nat hook postrouting priority srcnat; };
                chain left {
                    type filter hook postrouting priority srcnat + 10;
                    oifname wan meta l4proto udp update @ports { udp sport }
                    oifname wan meta l4proto udp update @remotes { ip daddr . udp sport }
                }
            }",
        );
        if self.address.starts_with(HOMES[1].1) {
            // As OpenWrt does: the sender receives "port unreachable".
            self.inside.nft("add rule ip translator own reject");
        }
        self.map(self.kind.outside_port());
        if let Some(entrance) = self.kind.entrance() {
            let port = self.kind.outside_port().unwrap();
            let rule = format!("add rule ip translator enter iifname wan {entrance}");
            self.inside.nft(&format!("{rule} udp dport {port} dnat to 192.168.1.10:{NODE_PORT}"));
            self.inside.nft(&format!("{rule} udp dport != {port} dnat to 192.168.1.10"));
        }
    }

    fn map(&self, outside_port: Option<u16>) {
        self.inside.nft("flush chain ip translator leave");
        for rule in self.kind.mapping(&self.address, outside_port).split("; ") {
            self.inside.nft(&format!("add rule ip translator leave {rule}"));
        }
    }

    /// Ends all entries of connection tracking, as a restart of the router does. The next packets get other
    /// ports outside.
    pub fn restart(&self) {
        if self.kind != Kind::Symmetric {
            assert_eq!(self.kind, Kind::PortRestricted, "others would need other rules");
            self.map(Some(46000));
        }
        // IPCTNL_MSG_CT_DELETE of NFNL_SUBSYS_CTNETLINK with NLM_F_REQUEST and NLM_F_ACK, for all entries.
        let mut message = [0; 20];
        message[..8].copy_from_slice(&[20, 0, 0, 0, 2, 1, 5, 0]);
        let answer = self.inside.call(|| {
            let protocol = Protocol::from(libc::NETLINK_NETFILTER);
            let socket = Socket::new(Domain::from(libc::AF_NETLINK), Type::RAW, Some(protocol));
            let socket = UdpSocket::from(socket.unwrap());
            let mut answer = [0xff; 64];
            assert_eq!(socket2::SockRef::from(&socket).send(&message).unwrap(), 20);
            std::io::Read::read(&mut &Socket::from(socket), &mut answer).unwrap();
            answer
        });
        assert_eq!(answer[16..20], [0; 4], "the error in NLMSG_ERROR");
    }

    /// Adds a host to the network behind the router.
    fn add_host(&self, place: &Place, port: &str, number: u8) -> Enclosure {
        let host = self.inside.neighbour(&place.hosts());
        host.add_veth_pair("lan", &self.inside, port);
        self.inside.ip(&format!("link set {port} master lan"));
        host.ip(&format!("addr add 192.168.1.{number}/24 dev lan"));
        host.ip("route add default via 192.168.1.1");
        host
    }
}

pub struct World {
    pub place: Place,
    pub internet: Enclosure,
    pub relay: Enclosure,
    /// The address by which the ends name the relay.
    pub relay_address: &'static str,
    /// The robot's router, and that of the base if it is another one.
    pub routers: Vec<Router>,
    /// Routers behind those in `routers`.
    homes: Vec<Enclosure>,
    pub robot: Enclosure,
    pub base: Enclosure,
}

impl World {
    /// Two homes, in which robot and base have the same private address.
    pub fn new(kinds: [Kind; 2]) -> Self {
        Self::with(|internet, place| {
            let [first, second] =
                [0, 1].map(|at| Router::new(internet, place, kinds[at], HOMES[at]));
            let [robot, base] = [&first, &second].map(|it| it.add_host(place, "port", 10));
            (vec![first, second], robot, base)
        })
    }

    /// Like [`Self::new`], with another router between the robot and its own: that of a carrier (CGNAT).
    pub fn with_carrier(kinds: [Kind; 2]) -> Self {
        let mut world = Self::new(kinds);
        // What was the robot becomes the router of its home.
        let home = &world.robot;
        home.run("sysctl -qw net.ipv4.ip_forward=1");
        home.nft(
            "table ip translator {
                chain own {
                    type filter hook input priority 0; policy drop;
                    iifname != lan accept
                    ct state established,related accept
                }
                chain leave {
                    type nat hook postrouting priority srcnat;
                    oifname lan masquerade
                }
            }",
        );
        let robot = home.neighbour(&world.place.hosts());
        robot.add_veth_pair("lan", home, "inside");
        home.ip("addr add 192.168.2.1/24 dev inside");
        robot.ip("addr add 192.168.2.10/24 dev lan");
        robot.ip("route add default via 192.168.2.1");
        world.homes.push(std::mem::replace(&mut world.robot, robot));
        world
    }

    /// One home, whose router drops packets from the inside to its own address.
    pub fn with_one_home(kind: Kind) -> Self {
        Self::with(|internet, place| {
            let router = Router::new(internet, place, kind, HOMES[0]);
            let hosts = [("first", 10), ("second", 20)];
            let [robot, base] = hosts.map(|(port, number)| router.add_host(place, port, number));
            (vec![router], robot, base)
        })
    }

    /// Robot and base have public addresses.
    pub fn without_translators() -> Self {
        Self::with(|internet, place| {
            let [robot, base] = HOMES.map(|home| join(internet, place, home));
            (Vec::new(), robot, base)
        })
    }

    /// Robot and base have public IPv6 addresses, and firewalls that accept answers only.
    pub fn with_firewalls() -> Self {
        let world = Self { relay_address: "2001:db8:9::2", ..Self::without_translators() };
        world.internet.run("sysctl -qw net.ipv6.conf.all.forwarding=1");
        let hosts =
            [("middle", 9, &world.relay), ("left", 1, &world.robot), ("right", 2, &world.base)];
        for (cable, network, host) in hosts {
            let address = |number| format!("2001:db8:{network}::{number}");
            world.internet.ip(&format!("addr add {}/64 dev {cable} nodad", address(1)));
            // Linux asks for the neighbour of a forwarded packet from a link-local address only.
            world.internet.ip(&format!("addr add fe80::1/64 dev {cable} nodad"));
            host.ip(&format!("addr add {}/64 dev wan nodad", address(2)));
            host.ip(&format!("-6 route add default via {}", address(1)));
        }
        for host in [&world.robot, &world.base] {
            host.nft(
                "table inet firewall {
                    chain own {
                        type filter hook input priority 0; policy drop;
                        iifname != wan accept
                        meta l4proto ipv6-icmp accept
                        ct state established,related accept
                    }
                }",
            );
        }
        world
    }

    fn with(homes: impl Fn(&Enclosure, &Place) -> (Vec<Router>, Enclosure, Enclosure)) -> Self {
        let place = Place::new(PROGRAM);
        let internet = Enclosure::new(&place.hosts());
        internet.run("sysctl -qw net.ipv4.ip_forward=1");
        internet.nft("table ip road { chain forward { type filter hook forward priority 0; }; }");
        let relay = join(&internet, &place, AT_RELAY);
        relay.nft(
            "table inet large {
                counter arrived { };
                chain arrive {
                    type filter hook input priority 0;
                    udp length > 900 counter name arrived
                }
            }",
        );
        let (routers, robot, base) = homes(&internet, &place);
        let homes = Vec::new();
        Self { place, internet, relay, relay_address: RELAY, routers, homes, robot, base }
    }

    /// Cuts the path between the homes, or mends it. Both still reach the relay.
    pub fn set_cut(&self, is_cut: bool) {
        self.internet.nft("flush chain ip road forward");
        if is_cut {
            let homes = "iifname { left, right } oifname { left, right }";
            self.internet.nft(&format!("add rule ip road forward {homes} drop"));
        }
    }

    /// Lets a router forward [`NODE_PORT`] to the host behind it.
    pub fn forward_node_port(&self, router: usize) {
        let rule = format!("iifname wan udp dport {NODE_PORT} dnat to 192.168.1.10:{NODE_PORT}");
        self.routers[router].inside.nft(&format!("insert rule ip translator enter {rule}"));
    }

    /// Packets of the size of a scan that the relay has received.
    pub fn large_packets_at_relay(&self) -> u64 {
        let text = self.relay.nft("list counter inet large arrived");
        let packets = text.split_whitespace().skip_while(|word| *word != "packets").nth(1);
        packets.unwrap().parse().unwrap()
    }
}
