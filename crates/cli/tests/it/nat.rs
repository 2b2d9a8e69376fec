// SPDX-License-Identifier: Apache-2.0
//! A robot and a base that are both behind address translators, of all kinds, and reach the same relay.
//! Needs root and nft.

use crate::translators::{Kind, NODE_PORT, World, needs_relay, pairs};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tautline::status::LinkReport;
use tautline_testkit::running::enclosure::Enclosure;
use tautline_testkit::running::node::Running;
use tautline_testkit::running::{Daemon, wait_for};

const SCAN: &str = "/scan";
const SCAN_BYTES: usize = 1000;
/// Interval between two scans.
const PERIOD: Duration = Duration::from_millis(50);
/// Maximum time until a path is found. Other tests use the machine at the same time.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Time for which scans are watched.
const WATCH: Duration = Duration::from_secs(5);
/// Maximum time without scans after the direct path breaks. A link that hears nothing counts as silent
/// earlier.
const LONGEST_GAP: Duration = Duration::from_secs(3);

/// Robot, base and relay. The robot sends scans to the base.
struct Team<'a> {
    world: &'a World,
    options: &'a str,
    relay: Option<Daemon>,
    /// Time of the last event, or of the last start of an end.
    since: Instant,
    direct_since: Option<Instant>,
    robot: Running,
    base: Running,
    /// The next four values are since the start of the last [`Self::watch`].
    published: u64,
    arrived: u64,
    longest_gap: Duration,
    last_arrival: Instant,
}

fn start((inside, relay): (&Enclosure, &str), name: &str, other: &str, options: &str) -> Running {
    let lines = format!(
        "listen: \"[::]:{NODE_PORT}\"\nbeacons: false\n\
         peers:\n  relay: {{ address: \"{relay}\" }}\n\
         \x20 {other}: {{ via: [relay], accept: \"/**\"{options} }}\n\
         topics: {{ {SCAN}: {{ priority: 200, keep_last: 200, to: [{other}] }} }}"
    );
    Running::start_in(Some(inside), name, &lines)
}

fn start_relay(world: &World) -> Daemon {
    let lines = format!(
        "listen: \"[::]:{NODE_PORT}\"\nbeacons: false\n\
         peers: {{ robot: {{ relay: true }}, base: {{ relay: true }} }}"
    );
    world.place.start_as("relay", "relay", &lines, Some(&world.relay))
}

/// The direct link to a peer, if it carries messages.
fn direct_link(node: &Running, peer: &str) -> Option<LinkReport> {
    let is_direct = |it: &LinkReport| it.peer == peer && it.remote.parse::<SocketAddr>().is_ok();
    node.status().links.into_iter().find(|it| is_direct(it) && it.state == "up")
}

impl<'a> Team<'a> {
    /// Starts all three, and waits until scans arrive. `options` are keys of each end for the other.
    fn start(world: &'a World, options: &'a str) -> Self {
        let relay = Some(start_relay(world));
        let base = start((&world.base, world.relay_address), "base", "robot", options);
        let robot = start((&world.robot, world.relay_address), "robot", "base", options);
        let (since, last_arrival) = (Instant::now(), Instant::now());
        robot.offer(SCAN);
        let (published, arrived, longest_gap) = (0, 0, Duration::ZERO);
        let mut team = Self {
            world,
            options,
            relay,
            since,
            direct_since: None,
            robot,
            base,
            published,
            arrived,
            longest_gap,
            last_arrival,
        };
        team.scan_until("the first scan", |it| it.arrived > 0);
        println!("  scans after {:.1?}", since.elapsed());
        team
    }

    fn scan(&mut self) {
        self.robot.publish_data(SCAN, SCAN_BYTES);
        self.published += 1;
        std::thread::sleep(PERIOD);
        self.count_arrivals();
        let now = self.is_direct().then(Instant::now);
        self.direct_since = now.and(self.direct_since).or(now);
    }

    fn count_arrivals(&mut self) {
        for (time, _) in self.base.arrivals() {
            let gap = time.saturating_duration_since(self.last_arrival);
            self.longest_gap = self.longest_gap.max(gap);
            self.last_arrival = time;
            self.arrived += 1;
        }
        self.longest_gap = self.longest_gap.max(self.last_arrival.elapsed());
    }

    /// Publishes scans until a condition holds.
    fn scan_until(&mut self, what: &str, condition: impl Fn(&Self) -> bool) {
        let begun = Instant::now();
        while !condition(self) {
            assert!(begun.elapsed() < TIMEOUT, "not within {TIMEOUT:?}: {what}\n{}", self.links());
            self.scan();
        }
    }

    /// Publishes scans for [`WATCH`] after an event, and waits until each has arrived once; returns the
    /// longest time without one.
    fn watch(&mut self, event: impl FnOnce()) -> Duration {
        let has_outcome =
            |robot: &Running| robot.sent(SCAN).is_some_and(|it| it.queued + it.sent == 0);
        wait_for("the outcome of earlier scans", || has_outcome(&self.robot).then_some(()));
        self.count_arrivals();
        (self.published, self.arrived) = (0, 0);
        (self.longest_gap, self.last_arrival) = (Duration::ZERO, Instant::now());
        event();
        self.since = Instant::now();
        while self.since.elapsed() < WATCH {
            self.scan();
        }
        wait_for("all scans", || {
            self.count_arrivals();
            (self.arrived >= self.published).then_some(())
        });
        assert_eq!(self.arrived, self.published, "no scan arrives twice");
        self.longest_gap
    }

    /// Whether both ends hear each other directly.
    fn is_direct(&self) -> bool {
        direct_link(&self.robot, "base").is_some() && direct_link(&self.base, "robot").is_some()
    }

    /// Waits for a direct link; returns the time to it since the last start or event.
    fn wait_until_direct(&mut self) -> Duration {
        self.scan_until("a direct link at both ends", |it| it.direct_since.is_some());
        let took = self.direct_since.unwrap().saturating_duration_since(self.since);
        println!("  direct after {took:.1?}\n{}", self.links());
        took
    }

    /// Waits until the relay receives no scans any more while they arrive.
    fn wait_until_relay_is_idle(&mut self) {
        let begun = Instant::now();
        loop {
            let (before, published) = (self.world.large_packets_at_relay(), self.published);
            self.scan_until("forty scans", |it| it.published >= published + 40);
            let passed = self.world.large_packets_at_relay() - before;
            if passed == 0 {
                return;
            }
            assert!(
                begun.elapsed() < TIMEOUT,
                "{passed} of 40 scans pass the relay\n{}",
                self.links()
            );
        }
    }

    /// Describes the links of both ends, for messages of failed tests.
    fn links(&self) -> String {
        let line = |name: &str, it: LinkReport| {
            let LinkReport { peer, remote, state, path, sent_packets, .. } = it;
            format!("    {name} to {peer} by '{remote}', {path}: {state}, {sent_packets} sent\n")
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
        let base =
            start((&self.world.base, self.world.relay_address), "base", "robot", self.options);
        Self { base, since: Instant::now(), direct_since: None, ..self }
    }

    fn stop(self) {
        self.robot.stop();
        self.base.stop();
    }
}

#[test]
fn each_pair_of_translators_finds_a_direct_path_if_there_is_one() {
    let mut table = String::new();
    for kinds in pairs() {
        let name = format!("{:?} and {:?}", kinds[0], kinds[1]);
        println!("{name}");
        let world = World::new(kinds);
        let mut team = Team::start(&world, "");
        let result = if !needs_relay(kinds) {
            let took = team.wait_until_direct();
            team.wait_until_relay_is_idle();
            format!("direct after {took:.1?}")
        } else {
            let gap = team.watch(|| ());
            assert!(!team.is_direct(), "{name}: {}", team.links());
            format!("relay, longest gap {gap:.1?}")
        };
        table += &format!("{name:<42} {result}\n");
        team.stop();
    }
    println!("{table}");
}

#[test]
fn a_direct_path_works_without_the_relay() {
    for kinds in [[Kind::PortRestricted; 2], [Kind::Symmetric, Kind::FullCone]] {
        println!("{kinds:?}");
        let world = World::new(kinds);
        let mut team = Team::start(&world, "");
        team.wait_until_direct();
        team.wait_until_relay_is_idle();
        let relay = team.relay.take().unwrap();
        let gap = team.watch(|| relay.kill());
        println!("  without the relay: longest gap {gap:.1?}");
        assert!(gap < LONGEST_GAP && team.is_direct(), "{gap:?}\n{}", team.links());

        team.relay = Some(start_relay(&world));
        team.scan_until("the relay is back, and tells what it sees", |it| {
            let links = it.robot.status().links;
            let has = |peer, path, state| {
                let mut links = links.iter();
                links.any(|it| (&*it.peer, &*it.path, &*it.state) == (peer, path, state))
            };
            has("base", "relay", "standby") && has("relay", "NAT here", "up")
        });
        let gap = team.watch(|| world.set_cut(true));
        println!("  the direct path breaks: longest gap {gap:.1?}\n{}", team.links());
        assert!(gap < LONGEST_GAP && !team.is_direct(), "{gap:?}\n{}", team.links());
        world.set_cut(false);
        team.since = Instant::now();
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
        team.wait_until_direct();
        let gap_before = team.watch(|| ());
        let gap = team.watch(|| world.routers[0].restart());
        println!("  restart of the router: longest gap {gap:.1?}, before {gap_before:.1?}");
        assert!(gap < LONGEST_GAP, "{gap:?}");
        team.wait_until_direct();
        team.wait_until_relay_is_idle();
        team.stop();
    }
}

#[test]
fn the_file_decides_whether_a_direct_path_is_sought() {
    for (world, options, is_sought) in [
        (World::new([Kind::FullCone; 2]), ", direct: false", false),
        (World::without_translators(), "", false),
        (World::without_translators(), ", direct: true", true),
        (World::with_firewalls(), "", false),
        (World::with_firewalls(), ", direct: true", true),
    ] {
        let mut team = Team::start(&world, options);
        if is_sought {
            team.wait_until_direct();
            team.wait_until_relay_is_idle();
        } else {
            team.watch(|| ());
            assert!(!team.is_direct(), "{}", team.links());
        }
        team.stop();
    }
}

#[test]
fn two_nodes_in_one_home_use_local_addresses() {
    let world = World::with_one_home(Kind::PortRestricted);
    let mut team = Team::start(&world, "");
    team.wait_until_direct();
    for (node, peer) in [(&team.robot, "base"), (&team.base, "robot")] {
        let remote = direct_link(node, peer).map(|it| it.remote);
        assert!(remote.is_some_and(|it| it.starts_with("192.168.1.")), "{}", team.links());
    }
    team.stop();
}
