// SPDX-License-Identifier: Apache-2.0
//! Tests of nodes and parameters that robots show each other.

use super::super::peers::{GIVE_UP_AFTER, REOFFER_GRACE};
use super::*;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use tautline_gateway::description::{MAX_PARAMETERS, NodeInfo, Nodes, Parameters};
use tautline_proto::ChannelId;

const BASE: &str = "peers: { robot: { address: 10.0.0.1, prefix: /robot1 } }";

fn robot(rights: &str) -> String {
    format!("peers: {{ base: {{ address: 10.0.0.2{rights} }} }}")
}

fn nodes(names: &[(&str, &str)]) -> Nodes {
    let shown =
        |topic: &str| NodeInfo { publishes: [topic.to_owned()].into(), ..NodeInfo::default() };
    names.iter().map(|(name, topic)| ((*name).to_owned(), shown(topic))).collect()
}

fn parameters(all: &[(&str, Value)]) -> Parameters {
    all.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect()
}

/// Returns the last nodes and the last parameters that a node's gateway was ordered to show.
fn shown_at(world: &World, side: usize) -> (Option<Nodes>, Option<Parameters>) {
    let all = &world.sides[side].commands;
    let nodes = all.iter().rev().find_map(|it| match it {
        Command::ShowNodes { nodes, .. } => Some(nodes.clone()),
        _ => None,
    });
    let mirrored = all.iter().rev().find_map(|it| match it {
        Command::ShowParameters { parameters, .. } => Some(parameters.clone()),
        _ => None,
    });
    (nodes, mirrored.flatten())
}

/// Whether a node's gateway reports nodes, and whether it reports parameters.
fn reports_lists(world: &World, side: usize) -> (bool, bool) {
    let all = world.sides[side].commands.iter().rev();
    let last = all.filter_map(|it| match it {
        Command::Describe { nodes, parameters } => Some((*nodes, *parameters)),
        _ => None,
    });
    last.clone().next().unwrap_or_default()
}

#[test]
fn lists_are_shown_under_the_prefix_and_removed_with_the_right() {
    let mut world = World::strict_pair(&robot(", show: [nodes, parameters]"), BASE);
    assert_eq!(reports_lists(&world, 0), (true, true));
    world.inject(0, Event::Nodes(nodes(&[("/camera", "/image")])));
    world.inject(0, Event::Parameters(parameters(&[("/camera/rate", json!(2.0))])));
    let (shown, mirrored) = shown_at(&world, 1);
    assert_eq!(shown, Some(nodes(&[("/robot1/camera", "/robot1/image")])));
    assert_eq!(mirrored, Some(parameters(&[("/robot1/camera/rate", json!(2.0))])));
    world.reload(0, &robot(", show: [nodes]"));
    world.run(PAST_UNSUBSCRIBE_DELAY);
    assert_eq!(reports_lists(&world, 0), (true, false));
    assert_eq!(shown_at(&world, 1).1, None);
    world.reload(1, "peers: { robot: { address: 10.0.0.1, prefix: /other } }");
    world.run(2 * SECOND);
    let other = Some(nodes(&[("/other/camera", "/other/image")]));
    assert_eq!(shown_at(&world, 1).0, other, "the robot sends the list again");
    world.reload(1, "peers: {}");
    world.run(2 * SECOND);
    assert_eq!(shown_at(&world, 1).0, Some(Nodes::new()));
}

#[test]
fn lists_are_read_only_with_right_prefix_and_ros() {
    for (rights, base) in [
        ("", BASE),
        (", show: [logs], set_parameters: \"/**\"", BASE),
        (", show: [nodes, parameters]", "peers: { robot: 10.0.0.1 }"),
        (
            ", show: [nodes, parameters]",
            "ros1: false\npeers: { robot: { address: 10.0.0.1, prefix: /r } }",
        ),
    ] {
        let world = World::strict_pair(&robot(rights), base);
        assert_eq!(reports_lists(&world, 0), (false, false), "{rights} {base}");
    }
    // A robot with ROS 2 cannot use parameters of ROS 1, but can use nodes.
    let base = "ros1: false\nros2: {}\npeers: { robot: { address: 10.0.0.1, prefix: /r } }";
    let world = World::strict_pair(&robot(", show: [nodes, parameters]"), base);
    assert_eq!(reports_lists(&world, 0), (true, false));
}

#[test]
fn a_peer_cannot_have_names_under_the_prefix_of_another() {
    let robot = "name: robot\npeers: { base: { address: 10.0.0.2, show: [nodes, parameters] } }";
    let base = "name: base\npeers:\n  robot: { address: 10.0.0.1, prefix: /a }\n  \
                other: { address: 10.0.0.3, prefix: /a/b }";
    let other = "name: other\npeers: { base: 10.0.0.2 }";
    let mut world = World::from_files(&[robot, base, other], |_| {});
    world.inject(0, Event::Nodes(nodes(&[("/b/camera", "/image"), ("/mine", "/image")])));
    let all = [("/b/rate", json!(1)), ("/mine", json!(2)), ("/b", json!(3)), ("/bc", json!(4))];
    world.inject(0, Event::Parameters(parameters(&all)));
    let (shown, mirrored) = shown_at(&world, 1);
    assert_eq!(shown, Some(nodes(&[("/a/mine", "/a/image")])));
    assert_eq!(mirrored, Some(parameters(&[("/a/bc", json!(4)), ("/a/mine", json!(2))])));
}

#[test]
fn a_list_is_shown_once_without_names_invalid_in_ros2() {
    let base = "ros1: false\nros2: {}\npeers: { robot: { address: 10.0.0.1, prefix: /r } }";
    let mut world = World::strict_pair(&robot(", show: [nodes]"), base);
    for _ in 0..3 {
        world.inject(0, Event::Nodes(nodes(&[("/camera-1", "/x"), ("/camera", "/x")])));
    }
    let lists = world.sides[1].commands.iter();
    assert_eq!(lists.filter(|it| matches!(it, Command::ShowNodes { .. })).count(), 1);
    assert_eq!(shown_at(&world, 1).0, Some(nodes(&[("/r/camera", "/r/x")])));
}

#[test]
fn parameters_are_set_only_with_the_right() {
    let rights = ", show: [parameters], set_parameters: \"/camera/*\"";
    let mut world = World::strict_pair(&robot(rights), BASE);
    world.inject(0, Event::Parameters(parameters(&[("/camera/rate", json!(2))])));
    world.run(2 * SECOND);
    let changes =
        [("/robot1/camera/rate", json!(3)), ("/robot1/arm", json!(4)), ("/own", json!(5))];
    world.inject(1, Event::ParametersChanged { peer: 0, parameters: parameters(&changes) });
    world.run(SECOND);
    let set: Vec<_> = world.sides[0]
        .commands
        .iter()
        .filter_map(|it| match it {
            Command::SetParameters { parameters } => Some(parameters.clone()),
            _ => None,
        })
        .collect();
    assert_eq!(set, [parameters(&[("/camera/rate", json!(3))])]);
    let words = ["the parameter /arm of 'robot'", "peers.base: set_parameters: /arm"];
    assert!(world.has_notice(0, &words), "{:?}", world.notices(0));
    assert!(world.has_notice(1, &words), "{:?}", world.notices(1));
    let waiting: Vec<_> =
        world.sides[0].shared.pending_requests().map(|(_, it)| it.line.clone()).collect();
    assert_eq!(waiting, ["set_parameters: /arm"]);
    world.reload(0, &robot(", show: [parameters], set_parameters: \"/**\""));
    world.run(2 * SECOND);
    assert_eq!(world.sides[0].shared.pending_requests().count(), 0, "the line is there");
}

#[test]
fn malformed_lists_are_refused_and_the_last_valid_one_kept() {
    let mut world = World::strict_pair(&robot(", show: [parameters]"), BASE);
    let good = parameters(&[("/a", json!(1))]);
    world.inject(0, Event::Parameters(good));
    // This robot exceeds its own limits.
    let many: BTreeSet<String> = (0..=MAX_PARAMETERS).map(|it| format!("\"/p{it}\":1")).collect();
    let list = format!("{{{}}}", many.into_iter().collect::<Vec<_>>().join(","));
    let now = world.now;
    world.sides[0].with(now, |topics, cx| {
        topics.shown.on_list_changed(cx, crate::topics::shown::Kind::Parameters, list.into())
    });
    world.run(2 * SECOND);
    for side in [0, 1] {
        let words = ["/_tautline/parameters", "4097 parameters; allowed: 4096"];
        assert!(world.has_notice(side, &words), "{:?}", world.notices(side));
    }
    assert_eq!(shown_at(&world, 1).1, Some(parameters(&[("/robot1/a", json!(1))])));
}

/// Returns the number of commands to describe this robot, and of commands to show nodes of peers,
/// during `run`.
fn count_commands(world: &mut World, side: usize, run: impl FnOnce(&mut World)) -> (usize, usize) {
    world.sides[side].commands.clear();
    run(world);
    let commands = world.sides[side].commands.iter();
    let described = commands.clone().filter(|it| matches!(it, Command::Describe { .. })).count();
    (described, commands.filter(|it| matches!(it, Command::ShowNodes { .. })).count())
}

fn channel_of_nodes(world: &World, peer: PeerId, side: usize) -> ChannelId {
    let endpoint = &world.sides[side].endpoint;
    let is_one = |it: &ChannelId| {
        endpoint.peer(peer).channel_in(*it).is_some_and(|(it, ..)| it.name == "/_tautline/nodes")
    };
    endpoint.peer(peer).channels_in().find(is_one).unwrap()
}

#[test]
fn toggling_the_interest_in_a_list_causes_no_description() {
    let mut world = World::strict_pair(&robot(", show: [nodes, parameters]"), BASE);
    world.inject(0, Event::Nodes(nodes(&[("/camera", "/image")])));
    let channel = channel_of_nodes(&world, PeerId(0), 1);
    let mut received = 0;
    let (described_again, _) = count_commands(&mut world, 0, |world| {
        for number in 0..1000 {
            let now = world.now;
            let endpoint = &mut world.sides[1].endpoint;
            endpoint.peer_mut(PeerId(0)).want(now, channel, number % 2 == 1);
            world.run(Duration::from_millis(20));
            received += world.sides[1].commands.drain(..).count();
        }
    });
    assert_eq!(described_again, 0);
    assert!(received > 0, "the list that is known is sent at once");
    // Only a slower pattern causes work: once in the time that a description lasts.
    let (described_again, _) = count_commands(&mut world, 0, |world| {
        for wanted in [false, true, false, true] {
            let now = world.now;
            world.sides[1].endpoint.peer_mut(PeerId(0)).want(now, channel, wanted);
            world.run(PAST_UNSUBSCRIBE_DELAY);
        }
    });
    assert_eq!(described_again, 4);
    assert_eq!(reports_lists(&world, 0), (true, true));
}

#[test]
fn one_list_per_second_is_shown() {
    let mut world = World::strict_pair(&robot(", show: [nodes]"), BASE);
    let (_, shown) = count_commands(&mut world, 1, |world| {
        for number in 0..100 {
            world.inject(0, Event::Nodes(nodes(&[(&format!("/n{number}"), "/image")])));
        }
    });
    assert!((5..=11).contains(&shown), "{shown} in ten seconds");
    world.run(3 * SECOND);
    assert_eq!(shown_at(&world, 1).0, Some(nodes(&[("/robot1/n99", "/robot1/image")])));
}

#[test]
fn toggling_the_advertisement_of_a_list_causes_no_work() {
    let mut world = World::strict_pair(&robot(", show: [nodes]"), BASE);
    world.inject(0, Event::Nodes(nodes(&[("/camera", "/image")])));
    world.run(3 * SECOND);
    let (_, shown) = count_commands(&mut world, 1, |world| {
        for number in 0..100 {
            let rights = if number % 2 == 0 { "" } else { ", show: [nodes]" };
            world.reload(0, &robot(rights));
        }
    });
    assert_eq!(shown, 0);
    world.inject(0, Event::Nodes(nodes(&[("/arm", "/image")])));
    world.run(3 * SECOND);
    assert_eq!(shown_at(&world, 1).0, Some(nodes(&[("/robot1/arm", "/robot1/image")])));
}

#[test]
fn lists_are_shown_again_after_a_restart() {
    let mut world = World::strict_pair(&robot(", show: [nodes]"), BASE);
    let here = nodes(&[("/camera", "/image")]);
    let there = nodes(&[("/robot1/camera", "/robot1/image")]);
    world.inject(0, Event::Nodes(here.clone()));
    world.restart(1);
    world.run(3 * SECOND);
    assert_eq!(shown_at(&world, 1).0, Some(there), "a new daemon at the base");
    world.restart(0);
    world.run(SECOND);
    let (described, shown) = count_commands(&mut world, 1, |world| {
        world.run(2 * SECOND);
        assert_eq!(reports_lists(world, 0), (true, false));
        world.inject(0, Event::Nodes(here));
        world.run(REOFFER_GRACE + 2 * SECOND);
    });
    assert_eq!((described, shown), (0, 0), "a new daemon at the robot has the same list");
    world.inject(0, Event::Nodes(nodes(&[("/arm", "/image")])));
    world.run(2 * SECOND);
    assert_eq!(shown_at(&world, 1).0, Some(nodes(&[("/robot1/arm", "/robot1/image")])));

    // After the restart, a topic has the number of the list's channel.
    let file = "name: robot\nsecurity: none\ntopics: [/image]\npeers: { base: 10.0.0.2 }";
    world.sides[0].config = config::parse(file, &Surroundings::default()).unwrap().config;
    world.restart(0);
    world.inject(0, Event::Offered(topic("/image", STRING)));
    world.run(REOFFER_GRACE + 2 * SECOND);
    assert_eq!(shown_at(&world, 1).0, Some(Nodes::new()));
}

#[test]
fn a_list_is_shown_although_its_peer_exceeds_its_rate() {
    let base = "peers: { robot: { address: 10.0.0.1, prefix: /robot1, max_rate: 8kbps } }";
    let mut world = World::strict_pair(&robot(", show: [nodes]"), base);
    let names: Vec<String> = (0..100).map(|number| format!("/node_{number}")).collect();
    let many: Vec<_> = names.iter().map(|name| (name.as_str(), "/image")).collect();
    world.inject(0, Event::Nodes(nodes(&many)));
    world.inject(0, Event::Nodes(nodes(&many[1..])));
    world.run(4 * SECOND);
    assert_eq!(shown_at(&world, 1).0.map(|it| it.len()), Some(99));
}

#[test]
fn lists_are_not_read_for_a_given_up_peer_until_it_returns() {
    let mut world = World::strict_pair(&robot(", show: [nodes]"), BASE);
    for is_deaf in [true, false] {
        world.sides.iter_mut().for_each(|side| side.drops_incoming = is_deaf);
        world.run(GIVE_UP_AFTER + PAST_UNSUBSCRIBE_DELAY + 5 * SECOND);
        assert_eq!(reports_lists(&world, 0), (!is_deaf, false), "deaf: {is_deaf}");
    }
    world.inject(0, Event::Nodes(nodes(&[("/camera", "/image")])));
    assert_eq!(shown_at(&world, 1).0, Some(nodes(&[("/robot1/camera", "/robot1/image")])));
}
