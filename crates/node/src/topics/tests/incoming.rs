// SPDX-License-Identifier: Apache-2.0
//! What a node takes: under which names, of which types, and for how long.

use super::super::remote::REOFFER_GRACE;
use super::*;

const ROBOT: &str = "peers: { base: 10.0.0.2 }\ntopics: { \"/**\": {} }";

/// Two robots (0, 1) that offer everything to a base (2) with more lines in its file.
fn team(base: &str) -> World {
    let robot =
        |name| format!("name: {name}\npeers: {{ base: 10.0.0.3 }}\ntopics: {{ \"/**\": {{}} }}\n");
    let base = format!("name: base\n{base}\n");
    World::new(&[&robot("robot1"), &robot("robot2"), &base])
}

fn plain_team() -> World {
    team("peers: { robot1: 10.0.0.1, robot2: 10.0.0.2 }")
}

#[test]
fn names_are_mapped_and_only_those_accepted_are_taken() {
    let base = "peers:\n  robot:\n    address: 10.0.0.1\n    prefix: /robot\n    \
                remap: { /scan: /front/scan }\n    accept: [/scan, \"/camera/**\"]";
    let mut world = World::pair(ROBOT, base);
    for name in ["/scan", "/camera/image", "/odom"] {
        world.says(0, Event::Offered(topic(name, STRING)));
    }
    let expected = ["/robot/front/scan", "/robot/camera/image"];
    assert_eq!(world.told(1), expected.map(|name| format!("advertise {name} {STRING}")));
    world.wants(1, "/robot/front/scan", true);
    assert_eq!(world.told(0), ["subscribe /scan"]);
    world.publishes(0, "/scan", 0, "hello");
    assert_eq!(world.told(1), ["publish /robot/front/scan 0 hello"]);
}

#[test]
fn type_and_definition_arrive_with_the_offer() {
    let mut world = World::pair(ROBOT, "peers: { robot: 10.0.0.1 }");
    world.says(0, Event::Offered(latched("/map")));
    let Some(Command::Advertise { topic }) = world.sides[1].commands.first() else {
        panic!("{:?}", world.sides[1].commands)
    };
    assert_eq!(*topic, latched("/map"));
}

#[test]
fn two_peers_may_publish_one_topic_of_one_type() {
    let mut world = plain_team();
    world.says(0, Event::Offered(topic("/tf", STRING)));
    world.says(1, Event::Offered(topic("/tf", STRING)));
    assert_eq!(world.told(2), [format!("advertise /tf {STRING}")], "once");
    world.wants(2, "/tf", true);
    assert_eq!(
        (world.told(0), world.told(1)),
        (vec!["subscribe /tf".into()], vec!["subscribe /tf".into()])
    );
    world.publishes(0, "/tf", 5, "one");
    world.publishes(1, "/tf", 5, "two");
    let told = world.told(2);
    assert_eq!(told.len(), 2);
    assert_ne!(told[0].replace("one", ""), told[1].replace("two", ""), "publishers are told apart");
    world.says(0, Event::Withdrawn { topic: "/tf".into() });
    assert!(world.told(2).is_empty(), "one is left");
    world.says(1, Event::Withdrawn { topic: "/tf".into() });
    assert_eq!(world.told(2), ["unadvertise /tf"]);
}

#[test]
fn one_latched_publisher_of_several_peers_makes_the_topic_latched() {
    let mut world = plain_team();
    world.says(0, Event::Offered(latched("/map")));
    world.says(1, Event::Offered(topic("/map", STRING)));
    let advertised: Vec<_> = world.sides[2].commands.clone();
    assert_eq!(advertised.len(), 1, "{advertised:?}");
    assert!(matches!(&advertised[0], Command::Advertise { topic } if topic.qos.transient_local));
}

#[test]
fn another_type_under_a_taken_name_is_refused_at_both_ends_with_both_names() {
    let mut world = plain_team();
    world.says(0, Event::Offered(topic("/tf", STRING)));
    world.wants(2, "/tf", true);
    world.says(1, Event::Offered(topic("/tf", "std_msgs/Header")));
    let words = ["/tf", "'base'", "'robot1'", "'robot2'", STRING, "std_msgs/Header", "hash-of-"];
    assert!(world.noticed(2, &words), "{:?}", world.notices(2));
    assert!(world.noticed(1, &words), "{:?}", world.notices(1));
    assert!(world.notices(0).is_empty(), "{:?}", world.notices(0));
    assert_eq!(world.told(2), [format!("advertise /tf {STRING}")]);
    assert!(world.told(1).is_empty(), "not read");
    world.publishes(0, "/tf", 0, "one");
    assert_eq!(world.told(2), ["publish /tf 0 one"]);
    // The name is free once the first gives it up.
    world.says(0, Event::Withdrawn { topic: "/tf".into() });
    assert_eq!(world.told(2), ["unadvertise /tf", "advertise /tf std_msgs/Header"]);
    world.wants(2, "/tf", true);
    assert_eq!(world.told(1), ["subscribe /tf"]);
}

#[test]
fn a_peer_that_changes_its_type_is_refused_while_another_has_the_name() {
    let mut world = plain_team();
    world.says(0, Event::Offered(topic("/tf", STRING)));
    world.says(1, Event::Offered(topic("/tf", STRING)));
    world.wants(2, "/tf", true);
    world.told(1);
    world.says(1, Event::Offered(topic("/tf", "std_msgs/Header")));
    assert_eq!(world.told(1), ["unsubscribe /tf"]);
    world.told(2);
    world.publishes(1, "/tf", 0, "of another type");
    assert!(world.told(2).is_empty());
    world.publishes(0, "/tf", 0, "one");
    assert_eq!(world.told(2), ["publish /tf 0 one"]);
}

#[test]
fn two_topics_of_one_peer_that_get_one_name_are_not_mixed() {
    let base = "peers:\n  robot: { address: 10.0.0.1, remap: { /scan: /laser } }";
    let mut world = World::pair(ROBOT, base);
    world.says(0, Event::Offered(topic("/scan", STRING)));
    world.says(0, Event::Offered(topic("/laser", "std_msgs/Header")));
    assert_eq!(world.told(1), [format!("advertise /laser {STRING}")]);
    assert!(world.noticed(0, &["/laser", "'base'", "std_msgs/Header"]), "{:?}", world.notices(0));
}

#[test]
fn what_the_local_middleware_refuses_the_offering_side_hears() {
    let mut world = plain_team();
    world.says(0, Event::Offered(topic("/tf", STRING)));
    let reason = "a local node has it as std_msgs/Header";
    world.says(2, Event::Refused { topic: "/tf".into(), reason: reason.into() });
    let words = ["/tf", "'base'", reason];
    assert!(world.noticed(0, &words), "{:?}", world.notices(0));
    assert!(world.noticed(2, &words), "{:?}", world.notices(2));
    assert!(world.notices(1).is_empty());
}

/// A pair whose base listens to `/scan` of the robot, both of which the robot offers.
fn listening() -> World {
    let mut world = World::pair(ROBOT, "peers: { robot: 10.0.0.1 }");
    world.says(0, Event::Offered(topic("/odom", STRING)));
    world.says(0, Event::Offered(topic("/scan", STRING)));
    world.wants(1, "/scan", true);
    world.told(0);
    world.told(1);
    world
}

#[test]
fn a_peer_that_restarts_without_a_topic_loses_it_after_a_while() {
    let mut world = listening();
    world.restart(0);
    world.run(2 * SECOND);
    assert!(world.told(1).is_empty(), "it may offer it again");
    world.run(REOFFER_GRACE + 2 * SECOND);
    let mut told = world.told(1);
    told.sort();
    assert_eq!(told, ["unadvertise /odom", "unadvertise /scan"]);
}

#[test]
fn a_peer_that_restarts_goes_on_under_other_numbers_without_a_gap_in_the_advertisement() {
    let mut world = listening();
    world.restart(0);
    world.run(2 * SECOND);
    // In another order, so that each number is another topic's.
    world.says(0, Event::Offered(topic("/scan", STRING)));
    assert_eq!(world.told(0), ["subscribe /scan"], "it is still wanted");
    world.publishes(0, "/scan", 0, "hello");
    assert_eq!(world.told(1), ["unadvertise /odom", "publish /scan 0 hello"]);
    world.says(0, Event::Offered(topic("/odom", STRING)));
    world.run(REOFFER_GRACE + 2 * SECOND);
    assert_eq!(world.told(1), [format!("advertise /odom {STRING}")]);
}

#[test]
fn a_peer_that_restarts_and_offers_the_same_is_not_noticed_locally() {
    let mut world = listening();
    world.restart(0);
    world.run(2 * SECOND);
    world.says(0, Event::Offered(topic("/odom", STRING)));
    world.says(0, Event::Offered(topic("/scan", STRING)));
    world.run(REOFFER_GRACE + 2 * SECOND);
    assert!(world.told(1).is_empty());
    assert_eq!(world.told(0), ["subscribe /scan"]);
}

#[test]
fn a_number_of_an_earlier_session_is_not_used_for_its_new_topic() {
    let base = "peers: { robot: { address: 10.0.0.1, accept: [/odom, /scan] } }";
    let mut world = World::pair(ROBOT, base);
    world.says(0, Event::Offered(topic("/scan", STRING)));
    world.told(1);
    world.restart(0);
    world.run(2 * SECOND);
    // The number of /scan is that of /secret now, which the base does not accept.
    // Until its definition has arrived the base does not even know that.
    world.sides[0].deaf = true;
    world.says(0, Event::Offered(topic("/secret", "std_msgs/Header")));
    world.wants(1, "/scan", true);
    world.sides[0].deaf = false;
    world.run(SECOND);
    assert!(world.told(0).is_empty(), "nobody wants /secret");
    world.wants(1, "/scan", false);
    world.wants(1, "/scan", true);
    assert!(world.told(0).is_empty(), "nobody wants /secret");
    world.says(0, Event::Offered(topic("/scan", STRING)));
    assert!(world.notices(0).is_empty() && world.notices(1).is_empty());
}

#[test]
fn when_the_receiver_restarts_the_source_stops_reading_until_it_wants_again() {
    let mut world = listening();
    world.restart(1);
    world.run(2 * SECOND);
    assert_eq!(world.told(0), ["unsubscribe /scan"], "/odom was not read");
    let mut told = world.told(1);
    told.sort();
    assert_eq!(told, ["/odom", "/scan"].map(|name| format!("advertise {name} {STRING}")));
    world.wants(1, "/scan", true);
    assert_eq!(world.told(0), ["subscribe /scan"]);
}

#[test]
fn a_peer_that_was_out_of_reach_goes_on_as_before() {
    let mut world = listening();
    world.sides[0].deaf = true;
    world.run(10 * SECOND);
    world.sides[0].deaf = false;
    world.run(5 * SECOND);
    world.publishes(0, "/scan", 0, "hello");
    assert_eq!(world.told(1), ["publish /scan 0 hello"]);
    assert!(world.told(0).is_empty());
}
