// SPDX-License-Identifier: Apache-2.0
//! A robot and a base that are both behind address translators, of all kinds, and reach the same relay.
//! Needs root and nft.

#[allow(dead_code)]
mod running;
mod translators;

use running::Daemon;
use running::enclosure::Enclosure;
use running::node::Running;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};
use tautline_node::status::LinkReport;
use translators::{INTERNET, Kind, NODE_PORT, RELAY, World};

/// Packets that have not arrived after this time do not arrive.
const SILENCE: Duration = Duration::from_millis(200);
const SCAN: &str = "/scan";
const SCAN_BYTES: usize = 1000;
/// Interval between two scans.
const PERIOD: Duration = Duration::from_millis(50);
/// Maximum time until a path is found. Other tests use the machine at the same time.
const PATIENCE: Duration = Duration::from_secs(30);
/// Time for which scans are watched.
const WATCH: Duration = Duration::from_secs(5);
/// Maximum time without scans after the direct path breaks: a link that hears nothing is silent earlier.
const LONGEST_GAP: Duration = Duration::from_secs(3);

fn socket(inside: &Enclosure, address: &str, port: u16) -> UdpSocket {
    let socket = inside.call(|| UdpSocket::bind((address, port)).unwrap());
    socket.set_read_timeout(Some(SILENCE)).unwrap();
    socket
}

/// Sends a packet to each of these sockets; returns the sources that they see.
fn sources(host: &UdpSocket, remotes: &[&UdpSocket]) -> Vec<SocketAddr> {
    let source = |remote: &&UdpSocket| {
        host.send_to(&[0], remote.local_addr().unwrap()).unwrap();
        remote.recv_from(&mut [0]).expect("packets leave").1
    };
    remotes.iter().map(source).collect()
}

/// Sends a packet from each of these sockets to an address; returns which of them arrive.
fn arrivals<const N: usize>(
    senders: [&UdpSocket; N],
    to: SocketAddr,
    host: &UdpSocket,
) -> [bool; N] {
    for (number, sender) in senders.iter().enumerate() {
        sender.send_to(&[number as u8], to).unwrap();
    }
    let (mut arrived, mut number) = ([false; N], [0]);
    while host.recv_from(&mut number).is_ok() {
        arrived[usize::from(number[0])] = true;
    }
    arrived
}

#[test]
fn each_kind_maps_and_filters_as_its_name_says() {
    for kind in Kind::ALL {
        let world = World::new([kind, kind]);
        let [asked, other_port] = [NODE_PORT, 7000].map(|port| socket(&world.relay, RELAY, port));
        let stranger = socket(&world.internet, INTERNET, 7000);
        let remotes = [&asked, &other_port, &stranger];
        for port in [NODE_PORT, 5000] {
            let host = socket(&world.robot, "0.0.0.0", port);
            let expected = kind.outside_port().map(|it| if port == NODE_PORT { it } else { port });
            if let Some(outside) = expected {
                let closed = SocketAddr::from(([198, 51, 100, 2], outside));
                assert_eq!(
                    arrivals(remotes, closed, &host),
                    [false; 3],
                    "{kind:?} before a packet"
                );
            }
            let seen = sources(&host, &remotes[..1])[0];
            assert!(expected.is_none_or(|it| it == seen.port()), "{kind:?}: {seen}");
            let filtered = arrivals(remotes, seen, &host);
            let may_enter = match kind {
                Kind::FullCone => [true, true, true],
                Kind::AddressRestricted => [true, true, false],
                Kind::PortRestricted | Kind::Symmetric => [true, false, false],
            };
            assert_eq!(filtered, may_enter, "{kind:?}: who was asked, another port, a stranger");
            let mapped = sources(&host, &remotes);
            assert_eq!(mapped[0], seen);
            let is_same = mapped.iter().all(|it| *it == seen);
            assert_eq!(is_same, kind != Kind::Symmetric, "{kind:?}: {mapped:?}");
            println!("{kind:?}, port {port}: seen as {mapped:?}; {filtered:?} enter");
            for (sender, source) in remotes.iter().zip(&mapped) {
                assert_eq!(arrivals([*sender], *source, &host), [true], "{kind:?}: an answer");
            }
        }
    }
}

#[test]
fn a_restart_of_a_router_gives_other_ports() {
    for kind in [Kind::PortRestricted, Kind::Symmetric] {
        let world = World::new([kind, kind]);
        let (host, relay) =
            (socket(&world.robot, "0.0.0.0", NODE_PORT), socket(&world.relay, RELAY, NODE_PORT));
        let [before, still] = [(); 2].map(|()| sources(&host, &[&relay])[0]);
        assert_eq!(before, still);
        world.routers[0].restart();
        let after = sources(&host, &[&relay])[0];
        println!("{kind:?}: {before}, then {after}");
        assert_ne!(before, after);
        assert_eq!(arrivals([&relay], before, &host), [false]);
        assert_eq!(arrivals([&relay], after, &host), [true]);
    }
}

/// Robot, base and relay. The robot sends scans to the base.
struct Team<'a> {
    world: &'a World,
    options: &'a str,
    relay: Option<Daemon>,
    robot: Running,
    base: Running,
    published: u64,
    arrived: u64,
    /// Since [`Self::watch`].
    longest_gap: Duration,
    last_arrival: Instant,
}

fn start(inside: &Enclosure, name: &str, other: &str, options: &str) -> Running {
    let lines = format!(
        "listen: \"0.0.0.0:{NODE_PORT}\"\nbeacons: false\n\
         peers:\n  relay: {{ address: {RELAY} }}\n\
         \x20 {other}: {{ via: [relay], accept: \"/**\"{options} }}\n\
         topics: {{ {SCAN}: {{ priority: 200, keep_last: 200, to: [{other}] }} }}"
    );
    Running::start_in(Some(inside), name, &lines)
}

fn start_relay(world: &World) -> Daemon {
    let lines = format!(
        "listen: \"0.0.0.0:{NODE_PORT}\"\nbeacons: false\n\
         peers: {{ robot: {{ relay: true }}, base: {{ relay: true }} }}"
    );
    world.place.start_as("relay", "relay", &lines, Some(&world.relay))
}

/// The direct link to a peer, if it is heard.
fn direct_link(node: &Running, peer: &str) -> Option<LinkReport> {
    let is_direct = |it: &LinkReport| it.peer == peer && it.remote.parse::<SocketAddr>().is_ok();
    node.status().links.into_iter().find(|it| is_direct(it) && it.up && !it.silent)
}

impl<'a> Team<'a> {
    /// Starts all three, and waits until scans arrive. `options` are keys of each end for the other.
    fn start(world: &'a World, options: &'a str) -> Self {
        let relay = Some(start_relay(world));
        let base = start(&world.base, "base", "robot", options);
        let robot = start(&world.robot, "robot", "base", options);
        let begun = Instant::now();
        robot.offer(SCAN);
        let (published, arrived, longest_gap) = (0, 0, Duration::ZERO);
        let last_arrival = Instant::now();
        let mut team = Self {
            world,
            options,
            relay,
            robot,
            base,
            published,
            arrived,
            longest_gap,
            last_arrival,
        };
        team.scan_until("the first scan", |it| it.arrived > 0);
        println!("  scans after {:.1?}", begun.elapsed());
        team
    }

    fn scan(&mut self) {
        self.robot.publish_data(SCAN, SCAN_BYTES);
        self.published += 1;
        std::thread::sleep(PERIOD);
        for (time, _) in self.base.arrivals() {
            let gap = time.saturating_duration_since(self.last_arrival);
            self.longest_gap = self.longest_gap.max(gap);
            self.last_arrival = time;
            self.arrived += 1;
        }
        self.longest_gap = self.longest_gap.max(self.last_arrival.elapsed());
    }

    /// Publishes scans until a condition holds; returns the time until then.
    fn scan_until(&mut self, what: &str, condition: impl Fn(&Self) -> bool) -> Duration {
        let begun = Instant::now();
        while !condition(self) {
            assert!(
                begun.elapsed() < PATIENCE,
                "not within {PATIENCE:?}: {what}\n{}",
                self.links()
            );
            self.scan();
        }
        begun.elapsed()
    }

    /// Publishes scans for [`WATCH`] and the time until all have arrived; returns the longest time
    /// without one.
    fn watch(&mut self) -> Duration {
        (self.longest_gap, self.last_arrival) = (Duration::ZERO, Instant::now());
        let end = Instant::now() + WATCH;
        while Instant::now() < end {
            self.scan();
        }
        let wanted = self.published;
        self.scan_until("all scans arrive", |it| it.arrived >= wanted);
        assert!(self.arrived <= self.published, "no scan arrives twice");
        self.longest_gap
    }

    /// Whether both ends hear each other directly.
    fn is_direct(&self) -> bool {
        direct_link(&self.robot, "base").is_some() && direct_link(&self.base, "robot").is_some()
    }

    fn wait_until_direct(&mut self) -> Duration {
        let took = self.scan_until("a direct link at both ends", Self::is_direct);
        println!("  direct after {took:.1?}\n{}", self.links());
        took
    }

    /// Waits until the relay receives no scans any more while they arrive.
    fn wait_until_relay_is_idle(&mut self) {
        let begun = Instant::now();
        loop {
            let (before, published) = (self.world.large_at_relay(), self.published);
            self.scan_until("forty scans", |it| it.published >= published + 40);
            let passed = self.world.large_at_relay() - before;
            if passed == 0 {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "{passed} of 40 scans pass the relay");
        }
    }

    /// The links of both ends, for messages.
    fn links(&self) -> String {
        let line = |name: &str, it: LinkReport| {
            let LinkReport { peer, remote, up, silent, sent_packets, .. } = it;
            format!(
                "    {name} to {peer} by '{remote}': {up}, silent {silent}, {sent_packets} sent\n"
            )
        };
        let ends = [("robot", &self.robot), ("base", &self.base)];
        let links = ends.map(|(name, node)| (name, node.status().links));
        links
            .into_iter()
            .flat_map(|(name, all)| all.into_iter().map(move |it| line(name, it)))
            .collect()
    }

    /// Restarts the base.
    fn restart_base(self) -> Self {
        self.base.stop();
        let base = start(&self.world.base, "base", "robot", self.options);
        Self { base, ..self }
    }

    fn stop(self) {
        self.robot.stop();
        self.base.stop();
    }
}

/// All pairs, in both orders where that may matter.
fn pairs() -> Vec<[Kind; 2]> {
    let of = |(at, first): (usize, Kind)| Kind::ALL[at..].iter().map(move |it| [first, *it]);
    Kind::ALL.into_iter().enumerate().flat_map(of).collect()
}

#[test]
fn each_pair_of_translators_finds_a_direct_path_if_there_is_one() {
    let mut table = String::new();
    for kinds in pairs() {
        let name = format!("{:?} and {:?}", kinds[0], kinds[1]);
        println!("{name}");
        let world = World::new(kinds);
        let mut team = Team::start(&world, "");
        let is_impossible =
            matches!(kinds, [Kind::PortRestricted | Kind::Symmetric, Kind::Symmetric]);
        let result = if !is_impossible {
            let took = team.wait_until_direct();
            team.wait_until_relay_is_idle();
            format!("direct after {took:.1?}")
        } else {
            let gap = team.watch();
            assert!(!team.is_direct(), "{name}: {}", team.links());
            format!("relay, longest gap {gap:.1?}")
        };
        table += &format!("{name:<38} {result}\n");
        team.stop();
    }
    println!("{table}");
}

#[test]
fn a_direct_path_outlives_the_relay_and_a_broken_one_is_replaced() {
    for kinds in [[Kind::PortRestricted; 2], [Kind::Symmetric, Kind::FullCone]] {
        println!("{kinds:?}");
        let world = World::new(kinds);
        let mut team = Team::start(&world, "");
        team.wait_until_direct();
        team.wait_until_relay_is_idle();
        team.relay.take().unwrap().kill();
        let gap = team.watch();
        println!("  without the relay: longest gap {gap:.1?}");
        assert!(gap < LONGEST_GAP && team.is_direct(), "{gap:?}\n{}", team.links());

        team.relay = Some(start_relay(&world));
        let by_relay = |it: &LinkReport| it.peer == "base" && it.remote.contains("relay") && it.up;
        team.scan_until("the relay is back", |it| it.robot.status().links.iter().any(by_relay));
        world.cut(true);
        let gap = team.watch();
        println!("  the direct path breaks: longest gap {gap:.1?}\n{}", team.links());
        assert!(gap < LONGEST_GAP && !team.is_direct(), "{gap:?}\n{}", team.links());
        world.cut(false);
        team.wait_until_direct();
        team.wait_until_relay_is_idle();
        team.stop();
    }
}

#[test]
fn a_restart_of_an_end_or_of_its_router_leads_to_a_direct_path_again() {
    for kinds in [[Kind::PortRestricted; 2], [Kind::Symmetric, Kind::FullCone]] {
        println!("{kinds:?}");
        let world = World::new(kinds);
        let mut team = Team::start(&world, "");
        team.wait_until_direct();
        let mut team = team.restart_base();
        let before = team.arrived;
        let took = team.scan_until("scans at the new base", |it| it.arrived > before);
        println!("  restart of the base: scans after {took:.1?}");
        team.wait_until_direct();
        // Scans that the former base received do not arrive again.
        team.published = team.arrived;
        let gap_without_change = team.watch();
        world.routers[0].restart();
        let gap = team.watch();
        println!("  restart of the router: longest gap {gap:.1?}, before {gap_without_change:.1?}");
        assert!(gap < LONGEST_GAP, "{gap:?}");
        team.wait_until_direct();
        team.wait_until_relay_is_idle();
        team.stop();
    }
}

#[test]
fn the_file_keeps_a_peer_on_the_relay() {
    let world = World::new([Kind::FullCone; 2]);
    let mut team = Team::start(&world, ", direct: false");
    team.watch();
    let links = team.links();
    assert!(!team.is_direct() && team.robot.status().links.len() == 2, "relay and base: {links}");
    team.stop();
}

#[test]
fn two_ends_in_one_home_are_connected() {
    let world = World::with_one_home(Kind::PortRestricted);
    let mut team = Team::start(&world, "");
    let gap = team.watch();
    println!("  longest gap {gap:.1?}\n{}", team.links());
    team.stop();
}
