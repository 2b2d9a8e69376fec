// SPDX-License-Identifier: Apache-2.0
//! Large messages over a wire without a limit, between two nodes in this process that are in networks of
//! their own. Needs root.

use crate::PROGRAM;
use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant};
use tautline::status::LinkReport;
use tautline_testkit::running::enclosure::Enclosure;
use tautline_testkit::running::node::Running;
use tautline_testkit::running::{Place, wait_for};

const TOPIC: &str = "/image";
const LISTEN: &str = "listen: \"[::]:18470\"\nbeacons: false";

/// A robot and a base station, joined by a wire.
struct World {
    robot: Running,
    base: Running,
    // Fields are dropped in order, and the networks must outlive their users.
    _ends: [Enclosure; 2],
}

impl World {
    fn new() -> Self {
        let place = Place::new(PROGRAM);
        let [robot, base] = place.two_hosts();
        robot.join(&base);
        let to = |peer: &str, host: &str, more: &str| {
            format!("{LISTEN}\npeers: {{ {peer}: {{ links: [{{ address: {host} }}]{more} }} }}")
        };
        let topics = format!("\ntopics: {{ {TOPIC}: {{ priority: 20, keep_last: 64 }} }}");
        let ends = [robot, base];
        let robot = to("base", "10.77.0.2", "") + &topics;
        let base = to("robot", "10.77.0.1", ", max_rate: 100Gbps, accept: \"/**\"");
        let robot = Running::start_in(Some(&ends[0]), "robot", &robot);
        let base = Running::start_in(Some(&ends[1]), "base", &base);
        robot.offer(TOPIC);
        Self { robot, base, _ends: ends }
    }

    /// Publishes a message and waits for its arrival; returns the time between.
    fn deliver(&self, bytes: usize) -> Duration {
        let begun = Instant::now();
        self.robot.publish_data(TOPIC, bytes);
        let (at, len) = self.base.next_arrival();
        assert_eq!(len, bytes + 4);
        at - begun
    }

    fn link(&self) -> LinkReport {
        self.robot.status().links.remove(0)
    }

    fn stop(self) {
        self.robot.stop();
        self.base.stop();
    }
}

#[test]
fn large_messages_arrive_whole_and_their_packets_keep_their_marks() {
    let world = World::new();
    for bytes in [10, 64_000, 1_000_000, 4_000_000] {
        world.deliver(bytes);
    }
    let link = wait_for("acknowledgements", || {
        let link = world.link();
        (link.acked_packets > 3000).then_some(link)
    });
    assert_eq!(link.ecn, "on", "{link:?}");
    world.stop();
}

/// Processor time of this process.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

/// Publishes so that `depth` messages are always under way; prints the rate and the processor time of
/// both nodes.
fn saturate(world: &World, bytes: usize, depth: usize) {
    const SPAN: Duration = Duration::from_secs(4);
    let (begun, cpu, mut sent, mut arrived) = (Instant::now(), processor_time(), 0, 0);
    while begun.elapsed() < SPAN {
        while sent < arrived + depth {
            world.robot.publish_data(TOPIC, bytes);
            sent += 1;
        }
        world.base.next_arrival();
        arrived += 1;
    }
    let (took, cpu) = (begun.elapsed().as_secs_f64(), (processor_time() - cpu).as_secs_f64());
    (arrived..sent).for_each(|_| {
        world.base.next_arrival();
    });
    let megabytes = (arrived * bytes) as f64 / 1e6;
    println!(
        "{bytes} bytes, {depth} under way: {:.2} Gbps, {:.2} ms of processor per MB, {:.0} % of one \
         processor",
        megabytes * 8e-3 / took,
        cpu * 1e3 / megabytes,
        cpu / took * 100.0
    );
}

/// Publishes at this interval; prints the median delay and the processor time of both nodes.
fn publish_rarely(world: &World, bytes: usize, interval: Duration) {
    const SPAN: Duration = Duration::from_secs(5);
    let count = SPAN.div_duration_f64(interval) as usize;
    let (begun, cpu) = (Instant::now(), processor_time());
    let delays = (0..count).map(|number| {
        let at = begun + interval * number as u32;
        std::thread::sleep(at.saturating_duration_since(Instant::now()));
        if bytes > 0 { world.deliver(bytes) } else { Duration::ZERO }
    });
    let mut delays: Vec<Duration> = delays.collect();
    delays.sort();
    let cpu = (processor_time() - cpu).as_secs_f64() / begun.elapsed().as_secs_f64();
    let (median, percent) = (delays[count / 2], cpu * 100.0);
    println!("{bytes} bytes each {interval:?}: median {median:?}, {percent:.2} % of one processor");
}

/// Prints figures: `cargo test --release -p tautline-cli --test it fast_links:: -- --ignored --nocapture`.
#[test]
#[ignore = "measures"]
fn delay_and_cost() {
    let world = World::new();
    for (bytes, count) in [(1000, 200), (64_000, 200), (1_000_000, 100), (4_000_000, 40)] {
        (0..10).for_each(|_| {
            world.deliver(bytes);
        });
        let mut delays: Vec<Duration> = (0..count).map(|_| world.deliver(bytes)).collect();
        delays.sort();
        let [median, p95] = [count / 2, count * 95 / 100].map(|index| delays[index]);
        println!("{bytes} bytes: median {median:?}, p95 {p95:?}");
    }
    // No messages; 6 Mbps; large messages with pauses.
    for (bytes, millis) in [(0, 100), (10_000, 13), (1_000_000, 100), (4_000_000, 250)] {
        publish_rarely(&world, bytes, Duration::from_millis(millis));
    }
    // A base station accepts 5000 messages per second from a peer. With messages of 64 KB, the wire could
    // carry more.
    saturate(&world, 128_000, 16);
    saturate(&world, 1_000_000, 4);
    println!("{:?}", world.link());
    world.stop();
}
