// SPDX-License-Identifier: Apache-2.0
//! Several links to one peer, in networks of their own: links that share an interface, have different
//! MTUs, are heard in one direction only, appear late, or have used up their budget. Needs root.

use crate::PROGRAM;
use std::time::Duration;
use tautline::status::{LinkReport, TopicReport};
use tautline_testkit::running::enclosure::Enclosure;
use tautline_testkit::running::node::Running;
use tautline_testkit::running::{Place, wait_for};

const IMAGE: &str = "/image";
const COMMAND: &str = "/cmd_vel";

/// Two robots with a network each.
struct World {
    place: Place,
    robot: Enclosure,
    base: Enclosure,
}

impl World {
    fn new() -> Self {
        let place = Place::new(PROGRAM);
        let [robot, base] = place.two_hosts();
        Self { place, robot, base }
    }

    /// With cables `wifi` and `lte`, of networks 10.77.0.0 and 10.78.0.0.
    fn with_two_cables() -> Self {
        let world = Self::new();
        world.robot.join_by(&world.base, "wifi", 77);
        world.robot.join_by(&world.base, "lte", 78);
        world
    }

    /// Starts `robot` and `base` with these links to each other; `lines` are the rest of the
    /// robot's file.
    fn start(&self, to_base: &str, to_robot: &str, lines: &str) -> [Running; 2] {
        let state = self.place.path("state");
        let robot = format!(
            "listen: \"[::]:18470\"\nstate: {}\npeers: {{ base: {{ links: [{to_base}] }} }}\n{lines}",
            state.display()
        );
        let base = format!(
            "listen: \"[::]:18470\"\npeers: {{ robot: {{ accept: \"/**\", links: [{to_robot}] }} }}"
        );
        [
            Running::start_in(Some(&self.robot), "robot", &robot),
            Running::start_in(Some(&self.base), "base", &base),
        ]
    }

    /// IP bytes by a cable in both directions since [`Self::count`], as the robot's kernel counts
    /// them.
    fn counted_bytes(&self, cable: &str) -> u64 {
        let mut list = self.robot.command("iptables");
        let output = list.args(["-nvxL"]).output().unwrap().stdout;
        let text = String::from_utf8(output).unwrap();
        let of_cable = text.lines().filter(|line| line.contains(cable));
        of_cable.map(|line| line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()).sum()
    }

    fn count(&self, cable: &str) {
        for (chain, direction) in [("INPUT", "-i"), ("OUTPUT", "-o")] {
            let mut filter = self.robot.command("iptables");
            assert!(filter.args(["-A", chain, direction, cable]).status().unwrap().success());
        }
    }

    /// Starts or ends the loss of all packets to the robot by a cable. The cable stays up.
    fn deafen(&self, cable: &str, is_deaf: bool) {
        let act = if is_deaf { "-A" } else { "-D" };
        let mut filter = self.robot.command("iptables");
        let done = filter.args([act, "INPUT", "-i", cable, "-j", "DROP"]).status().unwrap();
        assert!(done.success(), "this test needs iptables");
    }
}

/// The links by `wifi` and `lte` to host 1 or 2; `more` is added to that by `lte`.
fn two_links(host: u8, more: &str) -> String {
    format!(
        "{{ name: wifi, address: 10.77.0.{host}, interface: wifi }}, \
         {{ name: lte, address: 10.78.0.{host}, interface: lte{more} }}"
    )
}

fn link(node: &Running, name: &str) -> LinkReport {
    node.status().links.into_iter().find(|it| it.name == name).unwrap()
}

fn wait_for_links(node: &Running, names: &[&str]) {
    let are_up = || names.iter().all(|name| link(node, name).up);
    wait_for(format!("{names:?} up"), || are_up().then_some(()));
}

/// Publishes messages at 50 Hz, and waits until all of them are delivered.
fn publish_and_wait(robot: &Running, topic: &str, count: u64, bytes: usize) -> TopicReport {
    let before = robot.delivered(topic);
    for _ in 0..count {
        robot.publish(topic, bytes);
        std::thread::sleep(Duration::from_millis(20));
    }
    wait_for("all messages are delivered", || {
        robot.sent(topic).filter(|it| it.delivered == before + count)
    })
}

/// Payload bytes of a topic by a link.
fn carried_bytes(topic: &TopicReport, link: &str) -> u64 {
    topic.links.as_ref().unwrap().bytes[link]
}

fn stop(nodes: [Running; 2]) {
    nodes.into_iter().for_each(Running::stop);
}

#[test]
fn two_links_over_one_interface_share_its_radio() {
    let world = World::new();
    world.robot.join(&world.base);
    world.robot.ip("addr add 10.78.0.1/24 dev wire");
    world.base.ip("addr add 10.78.0.2/24 dev wire");
    // The peer tells links apart by the addresses of both ends, of which the kernel selects ours.
    let links = |host: u8| {
        format!(
            "{{ name: four, address: 10.77.0.{host}, interface: wire }}, \
             {{ name: other, address: 10.78.0.{host}, interface: wire }}, \
             {{ name: six, address: \"[fe80::77:{host}%wire]:18470\", interface: wire }}"
        )
    };
    let topics = format!("topics: {{ {IMAGE}: {{ priority: 20, keep_last: 50 }} }}");
    let nodes = world.start(&links(2), &links(1), &topics);
    let [robot, base] = &nodes;
    [robot, base].iter().for_each(|node| wait_for_links(node, &["four", "other", "six"]));
    robot.offer(IMAGE);
    publish_and_wait(robot, IMAGE, 20, 200_000);
    let radios = robot.status().radios;
    assert_eq!(radios.iter().map(|it| &*it.radio).collect::<Vec<_>>(), ["wire"]);
    stop(nodes);
}

#[test]
fn a_striped_message_survives_the_loss_of_a_link() {
    let world = World::with_two_cables();
    for side in [&world.robot, &world.base] {
        side.ip("link set lte mtu 700");
    }
    let lines = format!(
        "topics: {{ {IMAGE}: {{ priority: 20, links: stripe, keep_last: 200 }} }}\n\
         radios: {{ wifi: {{ rate: 8Mbps }}, lte: {{ rate: 8Mbps }} }}"
    );
    let nodes = world.start(&two_links(2, ""), &two_links(1, ""), &lines);
    let robot = &nodes[0];
    wait_for_links(robot, &["wifi", "lte"]);
    assert_eq!(["wifi", "lte"].map(|it| link(robot, it).mtu), [1500, 700]);
    robot.offer(IMAGE);
    let both = publish_and_wait(robot, IMAGE, 10, 100_000);
    let [first, second] = ["wifi", "lte"].map(|it| carried_bytes(&both, it));
    assert!(first > 200_000 && second > 200_000, "{:?}", both.links);
    // Fragments that were cut for one of the links are repaired on the other.
    for cable in ["wifi", "lte"] {
        let before = robot.delivered(IMAGE);
        (0..10).for_each(|_| robot.publish(IMAGE, 100_000));
        wait_for("the first arrives", || (robot.delivered(IMAGE) > before).then_some(()));
        world.base.ip(&format!("link set {cable} down"));
        wait_for("all arrive", || (robot.delivered(IMAGE) == before + 10).then_some(()));
        world.base.ip(&format!("link set {cable} up"));
        wait_for_links(robot, &["wifi", "lte"]);
    }
    stop(nodes);
}

#[test]
fn a_one_way_link_carries_no_messages_and_is_reported() {
    let world = World::with_two_cables();
    let lines = format!("topics: {{ {IMAGE}: {{ links: best, keep_last: 50 }} }}");
    let nodes = world.start(&two_links(2, ""), &two_links(1, ""), &lines);
    let [robot, base] = &nodes;
    [robot, base].iter().for_each(|node| wait_for_links(node, &["wifi", "lte"]));
    robot.offer(IMAGE);
    // Packets of the robot arrive over this link; packets of the base do not.
    world.deafen("wifi", true);
    wait_for("the robot's link is down", || (!link(robot, "wifi").up).then_some(()));
    let state = |it: &LinkReport| (it.up, it.silent);
    wait_for("the base's link is silent", || {
        (state(&link(base, "wifi")) == (true, true)).then_some(())
    });
    let before = robot.sent(IMAGE).unwrap();
    let after = publish_and_wait(robot, IMAGE, 50, 1000);
    assert_eq!(carried_bytes(&after, "wifi"), carried_bytes(&before, "wifi"));
    assert_eq!(after.drops_by_reason(), before.drops_by_reason());
    assert!(link(base, "wifi").silent && !link(robot, "wifi").up);
    world.deafen("wifi", false);
    for node in [robot, base] {
        wait_for("it is up again", || (state(&link(node, "wifi")) == (true, false)).then_some(()));
    }
    stop(nodes);
}

#[test]
fn a_link_whose_interface_appears_later_is_used() {
    let world = World::new();
    world.robot.join_by(&world.base, "wifi", 77);
    let lines = format!("topics: {{ {IMAGE}: {{ only_links: [lte] }}, {COMMAND}: {{}} }}");
    let nodes = world.start(&two_links(2, ""), &two_links(1, ""), &lines);
    let [robot, base] = &nodes;
    wait_for_links(robot, &["wifi"]);
    robot.offer(IMAGE);
    let is_told = |it: &String| it.contains("no path to 10.78.0.2");
    wait_for("a notice", || robot.status().notices.iter().any(is_told).then_some(()));
    robot.publish(IMAGE, 1000);
    robot.offer(COMMAND);
    robot.publish(COMMAND, 100);
    wait_for("a later message of another topic", || (robot.delivered(COMMAND) == 1).then_some(()));
    assert_eq!(robot.delivered(IMAGE), 0, "it may use the other link only");
    world.robot.join_by(&world.base, "lte", 78);
    [robot, base].iter().for_each(|node| wait_for_links(node, &["wifi", "lte"]));
    wait_for("the message", || (robot.delivered(IMAGE) == 1).then_some(()));
    assert_eq!(link(robot, "lte").radio, "lte");
    stop(nodes);
}

#[test]
fn only_permitted_topics_use_a_link_with_a_spent_budget() {
    let world = World::with_two_cables();
    let topic = "priority: 20, links: stripe, only_links: [wifi, lte], keep_last: 50";
    let lines = format!(
        "topics: {{ {IMAGE}: {{ {topic} }}, {COMMAND}: {{ {topic}, over_budget: true }} }}\n\
         radios: {{ wifi: {{ rate: 8Mbps }}, lte: {{ rate: 8Mbps }} }}"
    );
    let to_base = two_links(2, ", budget: 500kB/1d");
    let mut nodes = world.start(&to_base, &two_links(1, ""), &lines);
    let robot = &nodes[0];
    wait_for_links(robot, &["wifi", "lte"]);
    [IMAGE, COMMAND].iter().for_each(|topic| robot.offer(topic));
    // The budget ends in the middle of the message.
    let image = publish_and_wait(robot, IMAGE, 1, 3_000_000);
    let used = wait_for("the budget is used up", || {
        link(robot, "lte").budget.filter(|budget| budget.spent)
    });
    assert!((400_000..500_000).contains(&carried_bytes(&image, "lte")), "{:?}", image.links);
    assert!(used.used_bytes < 540_000, "{used:?}");
    let later = publish_and_wait(robot, IMAGE, 5, 100_000);
    assert_eq!(carried_bytes(&later, "lte"), carried_bytes(&image, "lte"));
    let command = publish_and_wait(robot, COMMAND, 5, 100_000);
    assert!(carried_bytes(&command, "lte") > 100_000, "{:?}", command.links);
    let now = link(robot, "lte").budget.unwrap();
    let [restarted, base] = nodes;
    restarted.stop();
    let file = std::fs::read_to_string(world.place.path("state/robot.budgets")).unwrap();
    assert!(file.contains("\"lte\""), "{file}");
    base.stop();
    nodes = world.start(&to_base, &two_links(1, ""), &lines);
    let again = link(&nodes[0], "lte").budget.unwrap();
    assert!(again.spent && again.used_bytes >= now.used_bytes, "{again:?} after {now:?}");
    assert_eq!(again.period_ends, now.period_ends);
    stop(nodes);
}

/// `cargo test -p tautline-cli --test it several_links:: -- --ignored --nocapture`
#[test]
#[ignore = "a measurement of eight minutes, for docs/how-to/links.md"]
fn measure_an_idle_metered_link() {
    const MINUTES: u64 = 8;
    let metered = ", metered: true";
    let ends = [["", ""], [metered, ""], [metered, metered]];
    let pairs = ends.map(|[robot, base]| {
        let world = World::with_two_cables();
        let nodes = world.start(&two_links(2, robot), &two_links(1, base), "");
        wait_for_links(&nodes[0], &["wifi", "lte"]);
        (world, nodes)
    });
    std::thread::sleep(Duration::from_secs(10));
    pairs.iter().for_each(|(world, _)| world.count("lte"));
    std::thread::sleep(Duration::from_secs(MINUTES * 60));
    for ((world, nodes), ends) in pairs.into_iter().zip(["neither end", "one end", "both ends"]) {
        let bytes = world.counted_bytes("lte");
        let a_month = bytes * 30 * 24 * 60 / MINUTES / 1_000_000;
        println!("metered at {ends}: {bytes} bytes in {MINUTES} min, {a_month} MB in 30 days");
        stop(nodes);
    }
}
