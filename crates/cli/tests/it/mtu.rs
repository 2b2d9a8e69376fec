// SPDX-License-Identifier: Apache-2.0
//! Paths with a smaller MTU than the interfaces at their ends, behind routers that do not report it. The
//! daemons find it out, and IP never fragments. Needs root and nft.

use crate::PROGRAM;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tautline_gateway::{Event, Qos, Topic};
use tautline_testkit::running::enclosure::Enclosure;
use tautline_testkit::running::node::Running;
use tautline_testkit::running::{Place, wait_for};

const SCAN: &str = "/scan";
const IMAGE: &str = "/image";
const IMAGE_BACK: &str = "/image_back";
const SCAN_BYTES: usize = 400;
const IMAGE_BYTES: usize = 30_000;
/// A number of messages larger than the number in flight when the path changes.
const ARRIVALS: u64 = 10;
/// The words of the notice about a path that drops large packets.
const NOTICE: &str = "do not arrive, and packets of";

/// The IP version of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ip {
    V4,
    V6,
}

impl Ip {
    const BOTH: [Self; 2] = [Self::V4, Self::V6];

    /// The option of `ip`.
    fn option(self) -> &'static str {
        if self == Self::V4 { "-4" } else { "-6" }
    }

    fn host(self, network: u8, host: u8) -> String {
        match self {
            Self::V4 => format!("10.{network}.0.{host}"),
            Self::V6 => format!("fd00:{network}::{host}"),
        }
    }
}

/// How the base reaches the robot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Topology {
    /// Both have the other's address, and neither router sends ICMP.
    Direct,
    /// The robot initiates the handshake, from behind a NAT, and the routers report "too big". The base's
    /// peer has these keys.
    Nat(&'static str),
}

/// Lets both routers forward.
const FORWARD: &str =
    "echo 1 > /proc/sys/net/ipv4/ip_forward; echo 1 > /proc/sys/net/ipv6/conf/all/forwarding";
/// Counts what arrives at a router, before connection tracking reassembles it.
const COUNT: &str = "add table inet road
add counter inet road fragments
add counter inet road passed
add chain inet road arrive { type filter hook prerouting priority -450; }
add rule inet road arrive ip frag-off & 0x3fff != 0 counter name fragments
add rule inet road arrive exthdr frag exists counter name fragments
add rule inet road arrive udp dport 18470 counter name passed";
/// Drops the reports of a router about packets that are too large.
const NO_REPORTS: &str = "add chain inet road reports { type filter hook output priority 0; }
add rule inet road reports icmp type destination-unreachable drop
add rule inet road reports icmpv6 type packet-too-big drop";

/// `robot -left- near -middle- far -right- base`
struct Network {
    near: Enclosure,
    far: Enclosure,
    left: Enclosure,
    right: Enclosure,
}

impl Network {
    /// All interfaces have the MTU `outer`, except those between the routers, which have the MTU `middle`.
    fn new(outer: usize, middle: usize, topology: Topology) -> Self {
        let place = Place::new(PROGRAM);
        let hosts = place.hosts();
        let near = Enclosure::new(&hosts);
        let [far, left, right] = [(); 3].map(|()| near.neighbour(&hosts));
        left.join_by(&near, "left", 81);
        near.join_by(&far, "middle", 82);
        right.join_by(&far, "right", 83);
        for (end, router, cable, network) in
            [(&left, &near, "left", 81), (&right, &far, "right", 83)]
        {
            for (enclosure, host) in [(end, 1), (router, 2)] {
                enclosure.ip(&format!("link set {cable} mtu {outer}"));
                add_ipv6(enclosure, cable, network, host);
            }
            for ip in Ip::BOTH {
                end.ip(&format!("{} route add default via {}", ip.option(), ip.host(network, 2)));
            }
        }
        for (router, host, other) in [(&near, 1, 2), (&far, 2, 1)] {
            add_ipv6(router, "middle", 82, host);
            for ip in Ip::BOTH {
                let next = ip.host(82, other);
                router.ip(&format!("{} route add default via {next}", ip.option()));
            }
            assert!(router.command("sh").args(["-c", FORWARD]).status().unwrap().success());
            router.nft(COUNT);
            if topology == Topology::Direct {
                router.nft(NO_REPORTS);
            }
        }
        if topology != Topology::Direct {
            near.nft("add table ip nat");
            near.nft("add chain ip nat out { type nat hook postrouting priority srcnat; }");
            near.nft("add rule ip nat out oifname middle masquerade");
        }
        let network = Self { near, far, left, right };
        network.set_middle(middle);
        network
    }

    fn set_middle(&self, mtu: usize) {
        for router in [&self.near, &self.far] {
            router.ip(&format!("link set middle mtu {mtu}"));
        }
    }

    /// Checks that no router saw a fragment, and that fragments of a long ping are counted.
    fn check(&self) {
        for (router, name) in [(&self.near, "near"), (&self.far, "far")] {
            assert_eq!(counter_value(router, "fragments"), 0, "{name}");
            assert!(counter_value(router, "passed") > 0, "{name}");
        }
        for (ip, bytes) in [(Ip::V4, "9500"), (Ip::V6, "9500")] {
            let (before, target) = (counter_value(&self.near, "fragments"), ip.host(81, 2));
            let ping = ["-c", "1", "-W", "1", "-s", bytes, &target];
            self.left.command("ping").args(ping).output().unwrap();
            assert!(
                counter_value(&self.near, "fragments") > before,
                "{ip:?}: fragments are counted"
            );
        }
    }
}

/// Two nodes on a network.
struct World {
    robot: Running,
    base: Running,
    // Fields are dropped in order, and the networks must outlive their users.
    network: Network,
}

impl World {
    fn new(ip: Ip, outer: usize, middle: usize, topology: Topology) -> Self {
        let network = Network::new(outer, middle, topology);
        let [file, file_of_base] = files(ip, topology);
        let robot = Running::start_in(Some(&network.left), "robot", &file);
        let base = Running::start_in(Some(&network.right), "base", &file_of_base);
        let world = Self { robot, base, network };
        let topics = [(&world.robot, SCAN), (&world.robot, IMAGE), (&world.base, IMAGE_BACK)];
        for (node, topic) in topics {
            offer(node, topic);
        }
        world
    }

    /// Publishes until [`ARRIVALS`] scans and images have arrived; returns the time that took.
    fn publish_until_arrival(&self) -> Duration {
        let (begun, topics) = (Instant::now(), [SCAN, IMAGE]);
        let wanted = topics.map(|topic| self.robot.delivered(topic) + ARRIVALS);
        wait_for("scans and images", || {
            self.robot.publish(SCAN, SCAN_BYTES);
            self.robot.publish(IMAGE, IMAGE_BYTES);
            let found = topics.map(|topic| self.robot.delivered(topic));
            (found[0] >= wanted[0] && found[1] >= wanted[1]).then_some(())
        });
        begun.elapsed()
    }

    /// Publishes in both directions until both links have this MTU and know it by this source.
    fn wait_until_mtu_known(&self, mtu: u64, known_by: &str) {
        self.wait_until_mtu_known_at(&self.robot, mtu, known_by);
        self.wait_until_mtu_known_at(&self.base, mtu, known_by);
    }

    fn wait_until_mtu_known_at(&self, node: &Running, mtu: u64, known_by: &str) {
        wait_for(format!("MTU {mtu}, {known_by}"), || {
            self.robot.publish(IMAGE, IMAGE_BYTES);
            self.base.publish(IMAGE_BACK, IMAGE_BYTES);
            let link = node.status().links.remove(0);
            (link.mtu == mtu && link.mtu_known_by == known_by).then_some(())
        });
    }

    /// Ends the nodes.
    fn stop(self) {
        self.network.check();
        self.robot.stop();
        self.base.stop();
    }
}

fn add_ipv6(enclosure: &Enclosure, cable: &str, network: u8, host: u8) {
    let address = Ip::V6.host(network, host);
    enclosure.ip(&format!("-6 addr add {address}/64 dev {cable} nodad"));
}

/// The files of robot and base.
fn files(ip: Ip, topology: Topology) -> [String; 2] {
    let file = |peer: &str, keys: &str| {
        let topics = [SCAN, IMAGE, IMAGE_BACK].map(|topic| format!("{topic}: {{}}")).join(", ");
        format!(
            "listen: \"[::]:18470\"\npeers: {{ {peer}: {{ {keys}, accept: \"/**\" }} }}\n\
             topics: {{ {topics} }}"
        )
    };
    let address = |network| format!("address: \"{}\"", ip.host(network, 1));
    let back = match topology {
        Topology::Direct => address(81),
        Topology::Nat(keys) => keys.to_owned(),
    };
    [file("base", &address(83)), file("robot", &back)]
}

/// Advertises a topic whose definition fills several packets, and waits for a subscriber.
fn offer(node: &Running, topic: &str) {
    node.events.emit(Event::Offered(Topic {
        name: topic.into(),
        type_name: "sensor_msgs/Image".into(),
        type_hash: "060021388200f6f0f447d0fcd9c64743".into(),
        definition: ("# A line of a long comment.\n".repeat(100) + "uint8[] data").into(),
        qos: Qos::default(),
    }));
    wait_for(format!("a subscriber of {topic}"), || node.sent(topic).filter(|it| it.wanted));
}

/// Packets that a router has counted.
fn counter_value(router: &Enclosure, name: &str) -> u64 {
    let list = ["list", "counter", "inet", "road", name];
    let output = router.command("nft").args(list).output().unwrap().stdout;
    let text = String::from_utf8(output).unwrap();
    let packets = text.split_whitespace().skip_while(|word| *word != "packets").nth(1);
    packets.unwrap().parse().unwrap()
}

#[test]
fn a_small_path_that_reports_nothing_carries_everything_from_the_start() {
    for (ip, mtu) in [(Ip::V4, 1280), (Ip::V6, 1280), (Ip::V4, 1400), (Ip::V6, 1400)] {
        let begun = Instant::now();
        let world = World::new(ip, 1500, mtu, Topology::Direct);
        let flows = world.publish_until_arrival();
        println!("{ip:?} {mtu}: {flows:?}, {:?} with the start", begun.elapsed());
        world.wait_until_mtu_known(mtu as u64, "probed");
        let notices = world.robot.status().notices;
        assert!(!notices.iter().any(|it| it.contains(NOTICE)), "nothing was lost: {notices:?}");
        world.stop();
    }
}

#[test]
fn the_program_reports_the_mtu_of_each_path() {
    let network = Network::new(1500, 1280, Topology::Direct);
    let place = Place::new(PROGRAM);
    let [file, file_of_base] = files(Ip::V4, Topology::Direct);
    let daemons = [
        place.start_as("robot", "robot", &file, Some(&network.left)),
        place.start_as("base", "base", &file_of_base, Some(&network.right)),
    ];
    for daemon in &daemons {
        let status = |options: &[&str]| {
            let mut program = Command::new(PROGRAM);
            program.args(["status", "--control"]).arg(&daemon.control).args(options);
            String::from_utf8(program.output().unwrap().stdout).unwrap()
        };
        wait_for("the MTU", || {
            let status: serde_json::Value = serde_json::from_str(&status(&["--json"])).ok()?;
            let link = &status["links"][0];
            (link["mtu"] == 1280 && link["mtu_known_by"] == "probed").then_some(())
        });
        let table = status(&[]);
        assert!(table.contains("1280 probed"), "{table}");
    }
    network.check();
}

#[test]
fn the_minimum_ipv4_mtu_suffices() {
    let begun = Instant::now();
    let world = World::new(Ip::V4, 1500, 576, Topology::Direct);
    let flows = world.publish_until_arrival();
    println!("576: {flows:?}, {:?} with the start", begun.elapsed());
    world.wait_until_mtu_known(576, "black hole");
    world.stop();
}

#[test]
fn a_path_that_becomes_smaller_without_a_report_continues() {
    for ip in Ip::BOTH {
        let world = World::new(ip, 1500, 1500, Topology::Direct);
        world.publish_until_arrival();
        world.wait_until_mtu_known(1500, "interface");
        world.network.set_middle(1280);
        println!("{ip:?} 1500 -> 1280: {:?}", world.publish_until_arrival());
        world.wait_until_mtu_known(1280, "black hole");
        for node in [&world.robot, &world.base] {
            let has_notice = |it: &String| it.contains(NOTICE);
            wait_for("a notice", || node.status().notices.iter().any(has_notice).then_some(()));
        }
        world.stop();
    }
}

#[test]
fn a_peer_without_an_address_gets_no_fragments() {
    let world = World::new(Ip::V4, 1500, 1280, Topology::Nat("prefix: /robot"));
    println!("NAT, 1280: {:?}", world.publish_until_arrival());
    world.wait_until_mtu_known(1280, "probed");
    world.stop();
}

#[test]
fn the_file_limits_the_packets_to_a_peer_without_an_address() {
    let world = World::new(Ip::V4, 1500, 1500, Topology::Nat("mtu: 1300"));
    world.wait_until_mtu_known_at(&world.robot, 1500, "interface");
    world.wait_until_mtu_known_at(&world.base, 1300, "configured");
    world.stop();
}

#[test]
fn jumbo_frames_are_used_where_the_whole_path_carries_them() {
    for (ip, middle, known_by) in
        [(Ip::V4, 9000, "interface"), (Ip::V6, 9000, "interface"), (Ip::V4, 1500, "probed")]
    {
        let world = World::new(ip, 9000, middle, Topology::Direct);
        world.publish_until_arrival();
        world.wait_until_mtu_known(middle as u64, known_by);
        world.stop();
    }
}

#[test]
fn messages_recover_after_the_mtu_of_an_interface_falls() {
    let world = World::new(Ip::V4, 1500, 1500, Topology::Direct);
    world.wait_until_mtu_known(1500, "interface");
    world.network.left.ip("link set left mtu 1300");
    println!("interface 1500 -> 1300: {:?}", world.publish_until_arrival());
    world.wait_until_mtu_known_at(&world.robot, 1300, "interface");
    world.network.left.ip("link set left mtu 1500");
    world.wait_until_mtu_known_at(&world.robot, 1500, "interface");
    world.stop();
}

/// Forges ICMP "fragmentation needed" about packets from the robot to the base, as anybody can who knows
/// the addresses, until it is killed. Its first line says that it has begun.
const FORGER: &str = r#"
import socket, struct
def checksum(data):
    total = sum(struct.unpack("!%dH" % (len(data) // 2), data))
    total = (total >> 16) + (total & 0xFFFF)
    return ~(total + (total >> 16)) & 0xFFFF
robot, base = (socket.inet_aton(a) for a in ("10.81.0.1", "10.83.0.1"))
inner = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 1500, 1, 0x4000, 64, 17, 0, robot, base)
inner += struct.pack("!HHHH", 18470, 18470, 1480, 0)
packet = struct.pack("!BBHHH", 3, 4, 0, 0, 68) + inner
packet = packet[:2] + struct.pack("!H", checksum(packet)) + packet[4:]
forger = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
forger.sendto(packet, ("10.81.0.1", 0))
print("begun", flush=True)
while True:
    forger.sendto(packet, ("10.81.0.1", 0))
"#;

/// Enough reports to reach the second attempt of a packet, too.
const FORGERS: usize = 4;

#[test]
fn a_flood_of_forged_reports_makes_no_packet_smaller() {
    let world = World::new(Ip::V4, 1500, 1500, Topology::Direct);
    world.publish_until_arrival();
    world.wait_until_mtu_known(1500, "interface");
    let mut forgers = [(); FORGERS].map(|()| {
        let mut forger = world.network.left.command("/usr/bin/python3");
        forger.args(["-c", FORGER]).stdout(Stdio::piped()).spawn().unwrap()
    });
    for forger in &mut forgers {
        let mut line = String::new();
        BufReader::new(forger.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "begun\n");
    }
    for _ in 0..5 {
        println!("alongside forged reports: {:?}", world.publish_until_arrival());
        assert_eq!(world.robot.status().links[0].mtu, 1500);
    }
    for mut forger in forgers {
        assert!(forger.try_wait().unwrap().is_none(), "it still forges");
        forger.kill().unwrap();
        forger.wait().unwrap();
    }
    world.stop();
}
