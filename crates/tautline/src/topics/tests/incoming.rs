// SPDX-License-Identifier: Apache-2.0
//! Tests of topics that a node accepts: their names, their types, and how long they stay.

use super::super::peers::REOFFER_GRACE;
use super::*;
use tautline_gateway::Liveliness;
use tautline_proto::{ChannelId, DeliveryOrder, OfferedQos, OfferedTopic, Role};

const ROBOT: &str = "peers: { base: 10.0.0.2 }\ntopics: { \"/**\": {} }";

/// Two robots (0, 1) that advertise everything to a base (2). `base` adds lines to the base's file.
fn world_with_two_robots(base: &str) -> World {
    let robot =
        |name| format!("name: {name}\npeers: {{ base: 10.0.0.3 }}\ntopics: {{ \"/**\": {{}} }}\n");
    let base = format!("name: base\n{base}\n");
    World::new(&[&robot("robot1"), &robot("robot2"), &base])
}

fn two_plain_robots() -> World {
    world_with_two_robots("peers: { robot1: 10.0.0.1, robot2: 10.0.0.2 }")
}

#[test]
fn names_are_mapped_and_only_accepted_topics_are_published() {
    let base = "peers:\n  robot:\n    address: 10.0.0.1\n    prefix: /robot\n    \
                remap: { /scan: /front/scan }\n    accept: [/scan, \"/camera/**\"]";
    let mut world = World::pair(ROBOT, base);
    for name in ["/scan", "/camera/image", "/odom"] {
        world.inject(0, Event::Offered(topic(name, STRING)));
    }
    let expected = ["/robot/front/scan", "/robot/camera/image"];
    assert_eq!(world.take_commands(1), expected.map(|name| format!("advertise {name} {STRING}")));
    world.wants(1, "/robot/front/scan", true);
    assert_eq!(world.take_commands(0), ["subscribe /scan"]);
    world.publishes(0, "/scan", 0, "hello");
    assert_eq!(world.take_commands(1), ["publish /robot/front/scan 0 hello"]);
}

#[test]
fn no_topic_is_published_under_the_prefix_of_another_peer() {
    let base = |of_robot1: &str, inner: &str| {
        format!(
            "peers:\n  robot1: {{ address: 10.0.0.1, prefix: /a{of_robot1}, accept: [{ACCEPT}] }}\n  \
             robot2: {{ address: 10.0.0.2, prefix: {inner}, accept: \"/**\" }}"
        )
    };
    const ACCEPT: &str = "/b/named, \"/b/*\", /other";
    let mut world = world_with_two_robots(&base(", remap: { /other: /b/y }", "/a/b"));
    for name in ["/b/x", "/bx", "/other", "/b/named"] {
        world.inject(0, Event::Offered(topic(name, STRING)));
    }
    // `accept` names /other, which the file itself renames, and /b/named.
    let taken = ["/a/b/y", "/a/b/named"].map(|name| format!("advertise {name} {STRING}"));
    assert_eq!(world.take_commands(2), taken);
    let words = ["/b/x", "would be /a/b/x", "under the prefix /a/b of 'robot2'"];
    assert!(world.has_notice(2, &words), "{:?}", world.notices(2));
    assert!(world.has_notice(0, &words), "{:?}", world.notices(0));
    world.inject(1, Event::Offered(topic("/x", STRING)));
    assert_eq!(world.take_commands(2), [format!("advertise /a/b/x {STRING}")]);
    // The second peer gets another prefix, so the first peer may use the name.
    world.inject(1, Event::Withdrawn { topic: "/x".into() });
    world.take_commands(2);
    world.reload(2, &base(", remap: { /other: /b/y }", "/c"));
    assert_eq!(world.take_commands(2), [format!("advertise /a/b/x {STRING}")]);
    assert!(!world.has_notice(2, &["/b/x"]), "{:?}", world.notices(2));
    world.wants(2, "/a/b/x", true);
    assert!(!world.has_notice(0, &["/b/x"]), "{:?}", world.notices(0));
    world.wants(2, "/a/b/x", false);
    world.reload(2, &base(", remap: { /other: /b/y }", "/a/b"));
    assert_eq!(world.take_commands(2), ["unadvertise /a/b/x"]);
}

#[test]
fn a_publication_is_alive_while_a_publisher_and_its_peer_are() {
    let mut world = World::pair(ROBOT, "peers: { robot: 10.0.0.1 }");
    let leased = |lost| {
        let liveliness =
            Liveliness { manual: false, lease: Some(std::time::Duration::from_millis(1)), lost };
        Topic { qos: Qos { liveliness, ..Qos::default() }, ..topic("/state", STRING) }
    };
    let last = |world: &World| match world.sides[1].commands.last() {
        Some(Command::Advertise { topic }) => topic.qos.liveliness,
        other => panic!("{other:?}"),
    };
    world.inject(0, Event::Offered(leased(false)));
    assert_eq!((last(&world).lost, last(&world).lease), (false, Some(crate::limits::MIN_LEASE)));
    assert!(world.has_notice(1, &["/state", "lease of 1ms", "100ms"]), "{:?}", world.notices(1));
    for lost in [true, false] {
        world.inject(0, Event::Offered(leased(lost)));
        assert_eq!(last(&world).lost, lost);
    }
    world.wants(1, "/state", true);
    let now = world.now;
    let down = tautline_proto::Event::PeerDown { peer: ONLY_PEER, said_goodbye: false };
    world.sides[1].on_remote(now, down);
    world.settle();
    assert!(last(&world).lost, "the peer is down");
    let up = tautline_proto::Event::PeerUp { peer: ONLY_PEER, new_session: false };
    world.sides[1].on_remote(now, up);
    world.settle();
    assert!(!last(&world).lost);
}

#[test]
fn type_and_definition_arrive_with_the_offer() {
    let mut world = World::pair(ROBOT, "peers: { robot: 10.0.0.1 }");
    let map = Topic { qos: latched("/map").qos, ..defined("/map", STRING, "string data # text\n") };
    world.inject(0, Event::Offered(map.clone()));
    let Some(Command::Advertise { topic }) = world.sides[1].commands.first() else {
        panic!("{:?}", world.sides[1].commands)
    };
    assert_eq!(*topic, Topic { definition: "string data\n".into(), ..map });
    assert!(world.notices(1).is_empty(), "{:?}", world.notices(1));
}

#[test]
fn a_definition_of_another_hash_is_not_used_and_is_reported_once() {
    let mut world = World::pair(ROBOT, "peers: { robot: 10.0.0.1 }");
    let honest = defined("/map", STRING, "string data\n");
    let definition = "float64 data\n".into();
    world.inject(0, Event::Offered(Topic { definition, ..honest.clone() }));
    let Some(Command::Advertise { topic }) = world.sides[1].commands.first() else {
        panic!("{:?}", world.sides[1].commands)
    };
    assert_eq!(*topic, Topic { definition: "".into(), ..honest.clone() });
    let words = ["/map of 'robot'", STRING, &honest.type_hash, "it is not used"];
    assert!(world.has_notice(1, &words), "{:?}", world.notices(1));
    world.wants(1, "/map", true);
    world.take_commands(0);
    world.publishes(0, "/map", 0, "hello");
    assert_eq!(
        world.take_commands(1).last().unwrap(),
        "publish /map 0 hello",
        "bytes pass as they are"
    );
    assert_eq!(world.notices(1).len(), 1);
}

#[test]
fn no_peer_can_remove_a_definition() {
    let mut world = two_plain_robots();
    let honest = defined("/tf", STRING, "string data\n");
    world.inject(0, Event::Offered(honest.clone()));
    world.take_commands(2);
    // Another text with the same md5, no text, or no hash.
    let commented = Topic { definition: "string data # x\n".into(), ..honest.clone() };
    let bare = Topic { definition: "".into(), ..honest.clone() };
    let nameless = Topic { type_hash: String::new(), ..bare.clone() };
    for other in [commented, bare, nameless] {
        world.inject(1, Event::Offered(other));
        assert!(world.take_commands(2).is_empty());
        assert_eq!(world.sides[2].topics.imports.publications.get("/tf").unwrap().topic, honest);
    }
}

#[test]
fn the_definitions_of_one_peer_take_a_bounded_memory() {
    let mut world = World::pair(ROBOT, "peers: { robot: 10.0.0.1 }");
    let text = |number: usize| {
        let constant = |n| format!("string C{n}={}\n", "x".repeat(1000));
        format!("uint8 n{number}\n{}", (0..1000).map(constant).collect::<String>())
    };
    for number in 0..6 {
        let topic = defined(&format!("/x{number}"), &format!("x/Y{number}"), &text(number));
        world.inject(0, Event::Offered(topic));
        world.run(10 * SECOND);
    }
    let kept =
        world.sides[1].topics.imports.catalog.iter().map(|(_, it)| it.topic.definition.len());
    let kept: usize = kept.sum();
    assert!((3 << 20..=4 << 20).contains(&kept), "{kept}");
    assert_eq!(world.take_commands(1).len(), 6, "all are published");
    assert!(world.has_notice(1, &["/x4", "is ignored", "4194304"]), "{:?}", world.notices(1));
}

#[test]
fn two_peers_may_publish_one_topic_of_one_type() {
    let mut world = two_plain_robots();
    world.inject(0, Event::Offered(topic("/tf", STRING)));
    world.inject(1, Event::Offered(topic("/tf", STRING)));
    assert_eq!(world.take_commands(2), [format!("advertise /tf {STRING}")], "once");
    world.wants(2, "/tf", true);
    assert_eq!(
        (world.take_commands(0), world.take_commands(1)),
        (vec!["subscribe /tf".into()], vec!["subscribe /tf".into()])
    );
    world.publishes(0, "/tf", 5, "one");
    world.publishes(1, "/tf", 5, "two");
    let told = world.take_commands(2);
    assert_eq!(told.len(), 2);
    assert_ne!(told[0].replace("one", ""), told[1].replace("two", ""), "publishers are told apart");
    world.inject(0, Event::Withdrawn { topic: "/tf".into() });
    assert!(world.take_commands(2).is_empty(), "one is left");
    world.inject(1, Event::Withdrawn { topic: "/tf".into() });
    assert_eq!(world.take_commands(2), ["unadvertise /tf"]);
}

#[test]
fn one_latched_publisher_of_several_peers_makes_the_topic_latched() {
    let mut world = two_plain_robots();
    world.inject(0, Event::Offered(latched("/map")));
    world.inject(1, Event::Offered(topic("/map", STRING)));
    let advertised: Vec<_> = world.sides[2].commands.clone();
    assert_eq!(advertised.len(), 2, "{advertised:?}");
    let Command::Advertise { topic } = &advertised[1] else { panic!("{advertised:?}") };
    assert!(topic.qos.transient_local);
    assert_eq!(topic.qos.all_classes().iter().count(), 2, "and volatile");
}

#[test]
fn a_conflicting_type_is_refused_at_both_ends_with_both_names() {
    let mut world = two_plain_robots();
    world.inject(0, Event::Offered(topic("/tf", STRING)));
    world.wants(2, "/tf", true);
    world.inject(1, Event::Offered(topic("/tf", "std_msgs/Header")));
    let words = ["/tf", "'base'", "'robot1'", "'robot2'", STRING, "std_msgs/Header", "hash-of-"];
    assert!(world.has_notice(2, &words), "{:?}", world.notices(2));
    assert!(world.has_notice(1, &words), "{:?}", world.notices(1));
    assert!(world.notices(0).is_empty(), "{:?}", world.notices(0));
    assert_eq!(world.take_commands(2), [format!("advertise /tf {STRING}")]);
    assert!(world.take_commands(1).is_empty(), "not read");
    world.publishes(0, "/tf", 0, "one");
    assert_eq!(world.take_commands(2), ["publish /tf 0 one"]);
    // The name is free once the first peer gives it up.
    world.inject(0, Event::Withdrawn { topic: "/tf".into() });
    assert_eq!(world.take_commands(2), ["unadvertise /tf", "advertise /tf std_msgs/Header"]);
    world.wants(2, "/tf", true);
    assert_eq!(world.take_commands(1), ["subscribe /tf"]);
}

#[test]
fn a_peer_with_a_changed_type_is_refused_while_another_publishes() {
    let mut world = two_plain_robots();
    world.inject(0, Event::Offered(topic("/tf", STRING)));
    world.inject(1, Event::Offered(topic("/tf", STRING)));
    world.wants(2, "/tf", true);
    world.take_commands(1);
    world.inject(1, Event::Offered(topic("/tf", "std_msgs/Header")));
    assert_eq!(world.take_commands(1), ["unsubscribe /tf"]);
    world.take_commands(2);
    world.publishes(1, "/tf", 0, "of another type");
    assert!(world.take_commands(2).is_empty());
    world.publishes(0, "/tf", 0, "one");
    assert_eq!(world.take_commands(2), ["publish /tf 0 one"]);
}

#[test]
fn two_topics_of_one_peer_that_get_one_name_are_not_mixed() {
    let base = "peers:\n  robot: { address: 10.0.0.1, remap: { /scan: /laser } }";
    let mut world = World::pair(ROBOT, base);
    world.inject(0, Event::Offered(topic("/scan", STRING)));
    world.inject(0, Event::Offered(topic("/laser", "std_msgs/Header")));
    assert_eq!(world.take_commands(1), [format!("advertise /laser {STRING}")]);
    assert!(
        world.has_notice(0, &["/laser", "'base'", "std_msgs/Header"]),
        "{:?}",
        world.notices(0)
    );
}

#[test]
fn a_refusal_of_the_local_middleware_reaches_the_offering_peer() {
    let mut world = two_plain_robots();
    world.inject(0, Event::Offered(topic("/tf", STRING)));
    let reason = "a local node has it as std_msgs/Header";
    world.inject(2, Event::Refused { topic: "/tf".into(), reason: reason.into() });
    let words = ["/tf", "'base'", reason];
    assert!(world.has_notice(0, &words), "{:?}", world.notices(0));
    assert!(world.has_notice(2, &words), "{:?}", world.notices(2));
    assert!(world.notices(1).is_empty());
}

/// A pair whose robot advertises `/odom` and `/scan`, and whose base subscribes to `/scan`.
fn world_with_subscriber() -> World {
    let mut world = World::pair(ROBOT, "peers: { robot: 10.0.0.1 }");
    world.inject(0, Event::Offered(topic("/odom", STRING)));
    world.inject(0, Event::Offered(topic("/scan", STRING)));
    world.wants(1, "/scan", true);
    world.take_commands(0);
    world.take_commands(1);
    world
}

#[test]
fn a_topic_that_a_restarted_peer_lacks_is_removed_later() {
    let mut world = world_with_subscriber();
    world.restart(0);
    world.run(2 * SECOND);
    assert!(world.take_commands(1).is_empty(), "it may offer it again");
    world.run(REOFFER_GRACE + 2 * SECOND);
    let mut told = world.take_commands(1);
    told.sort();
    assert_eq!(told, ["unadvertise /odom", "unadvertise /scan"]);
}

#[test]
fn a_restarted_peer_keeps_publications_under_new_channel_ids() {
    let mut world = world_with_subscriber();
    world.restart(0);
    world.run(2 * SECOND);
    // In another order, so that each number belongs to another topic.
    world.inject(0, Event::Offered(topic("/scan", STRING)));
    assert_eq!(world.take_commands(0), ["subscribe /scan"], "it is still wanted");
    world.publishes(0, "/scan", 0, "hello");
    assert_eq!(world.take_commands(1), ["publish /scan 0 hello"]);
    world.inject(0, Event::Offered(topic("/odom", STRING)));
    world.run(REOFFER_GRACE + 2 * SECOND);
    assert!(world.take_commands(1).is_empty(), "neither has left");
    // A topic that is not advertised again is given up, although another topic uses its number.
    world.restart(0);
    world.run(2 * SECOND);
    world.inject(0, Event::Offered(topic("/odom", STRING)));
    world.run(REOFFER_GRACE + 2 * SECOND);
    assert_eq!(world.take_commands(1), ["unadvertise /scan"]);
}

#[test]
fn a_restart_with_the_same_offers_is_invisible_locally() {
    let mut world = world_with_subscriber();
    world.restart(0);
    world.run(2 * SECOND);
    world.inject(0, Event::Offered(topic("/odom", STRING)));
    world.inject(0, Event::Offered(topic("/scan", STRING)));
    world.run(REOFFER_GRACE + 2 * SECOND);
    assert!(world.take_commands(1).is_empty());
    assert_eq!(world.take_commands(0), ["subscribe /scan"]);
}

#[test]
fn a_number_of_an_earlier_session_is_not_used_for_its_new_topic() {
    let base = "peers: { robot: { address: 10.0.0.1, accept: [/odom, /scan] } }";
    let mut world = World::pair(ROBOT, base);
    world.inject(0, Event::Offered(topic("/scan", STRING)));
    world.take_commands(1);
    world.restart(0);
    world.run(2 * SECOND);
    // The number of /scan now belongs to /secret, which the base does not accept. Until its
    // definition has arrived, the base does not know this.
    world.sides[0].drops_incoming = true;
    world.inject(0, Event::Offered(topic("/secret", "std_msgs/Header")));
    world.wants(1, "/scan", true);
    world.sides[0].drops_incoming = false;
    world.run(SECOND);
    assert!(world.take_commands(0).is_empty(), "nobody wants /secret");
    world.wants(1, "/scan", false);
    world.wants(1, "/scan", true);
    assert!(world.take_commands(0).is_empty(), "nobody wants /secret");
    world.inject(0, Event::Offered(topic("/scan", STRING)));
    assert!(world.notices(0).is_empty() && world.notices(1).is_empty());
}

#[test]
fn a_source_stops_reading_while_its_receiver_restarts() {
    let mut world = world_with_subscriber();
    world.restart(1);
    world.run(PAST_UNSUBSCRIBE_DELAY);
    assert_eq!(world.take_commands(0), ["unsubscribe /scan"], "/odom was not read");
    let mut told = world.take_commands(1);
    told.sort();
    assert_eq!(told, ["/odom", "/scan"].map(|name| format!("advertise {name} {STRING}")));
    world.wants(1, "/scan", true);
    assert_eq!(world.take_commands(0), ["subscribe /scan"]);
}

#[test]
fn a_restarted_receiver_causes_no_change_at_the_source() {
    let mut world = world_with_subscriber();
    world.restart(1);
    world.run(2 * SECOND);
    world.wants(1, "/scan", true);
    world.publishes(0, "/scan", 0, "on");
    assert_eq!(world.take_commands(1).last().map(String::as_str), Some("publish /scan 0 on"));
    world.run(PAST_UNSUBSCRIBE_DELAY);
    assert!(world.take_commands(0).is_empty());
}

#[test]
fn a_peer_that_was_out_of_reach_continues_as_before() {
    let mut world = world_with_subscriber();
    world.sides[0].drops_incoming = true;
    world.run(10 * SECOND);
    world.sides[0].drops_incoming = false;
    world.run(5 * SECOND);
    world.publishes(0, "/scan", 0, "hello");
    assert_eq!(world.take_commands(1), ["publish /scan 0 hello"]);
    assert!(world.take_commands(0).is_empty());
}

fn offer_event(peer: u32, channel: u64, name: &str) -> tautline_proto::Event {
    tautline_proto::Event::Offered {
        peer: PeerId(peer),
        channel: ChannelId(channel),
        topic: OfferedTopic {
            name: name.into(),
            type_name: STRING.into(),
            type_hash: "hash".into(),
            priority: 0,
            keep_last: 1,
            lifespan: None,
            qos: OfferedQos::default(),
            role: Role::Topic,
            order: DeliveryOrder::Arrival,
        },
        definition: "".into(),
    }
}

/// The topic to be examined next.
fn examined_topic(side: &mut Side) -> Option<(PeerId, Topic)> {
    match side.shared.poll_order()? {
        Order::Codec(Job::Localize { key, topic }) => Some((key.peer, topic)),
        _ => examined_topic(side),
    }
}

#[test]
fn topics_are_examined_one_per_peer_at_a_time() {
    let mut world = two_plain_robots();
    let now = world.now;
    let side = &mut world.sides[2];
    for channel in 1..4 {
        for peer in 0..2 {
            let name = format!("/of{peer}/{channel}");
            side.on_remote(now, offer_event(peer, channel, &name));
        }
    }
    let mut first = [examined_topic(side).unwrap(), examined_topic(side).unwrap()];
    first.sort_by_key(|(peer, _)| *peer);
    assert_eq!(first.each_ref().map(|(_, topic)| &*topic.name), ["/of0/1", "/of1/1"]);
    assert!(examined_topic(side).is_none());
    // The next topic follows when one is examined. All are requested again, because a request may be lost.
    let [(_, done), _] = first;
    let found = localize(&done, None, &InstalledTypes::default());
    let key = ChannelKey { peer: PeerId(0), channel: ChannelId(1) };
    let found = Box::new(found);
    side.on_codec(now, JobResult::Localized { key, peer_form: done, found });
    assert_eq!(examined_topic(side).unwrap().1.name, "/of0/2");
    assert!(examined_topic(side).is_none());
    side.sweep(now);
    let again = [examined_topic(side).unwrap().1.name, examined_topic(side).unwrap().1.name];
    assert_eq!(again, ["/of0/2", "/of1/1"]);
}

#[test]
fn unread_messages_of_an_absent_peer_wait_until_the_peer_returns() {
    let mut world = World::pair(ROBOT, "peers: { robot: 10.0.0.1 }");
    for name in ["/read", "/unread"] {
        world.inject(0, Event::Offered(topic(name, STRING)));
    }
    world.wants(1, "/read", true);
    world.take_commands(1);
    world.sides[1].drops_incoming = true;
    world.run(5 * SECOND);
    assert!(world.take_commands(1).is_empty(), "outages may be short");
    world.run(15 * SECOND);
    assert_eq!(world.take_commands(1), ["unadvertise /unread"]);
    world.sides[1].drops_incoming = false;
    world.run(5 * SECOND);
    assert_eq!(world.take_commands(1), [format!("advertise /unread {STRING}")]);
    world.publishes(0, "/read", 0, "on");
    assert_eq!(world.take_commands(1), ["publish /read 0 on"]);
}

#[test]
fn memory_for_latched_topics_of_one_peer_is_bounded() {
    let mut world = World::pair(ROBOT, "peers: { robot: 10.0.0.1 }");
    let mut maps = latched("/map");
    maps.qos.depth = u32::MAX;
    world.inject(0, Event::Offered(maps));
    world.wants(1, "/map", true);
    world.take_commands(1);
    for _ in 0..10 {
        world.publishes(0, "/map", 0, &"x".repeat(5_000_000));
        world.run(10 * SECOND);
    }
    assert_eq!(world.take_commands(1).len(), 6, "of 5 MB each");
    assert!(
        world.has_notice(1, &["/map", "'robot'", "latched", "33554432"]),
        "{:?}",
        world.notices(1)
    );
    assert_eq!(
        world.sides[1].topics.imports.publications.get("/map").unwrap().topic.qos.depth,
        1000
    );
}

#[test]
fn names_of_one_peer_are_bounded() {
    let mut world = World::pair(ROBOT, "peers: { robot: 10.0.0.1 }");
    let most = crate::limits::PUBLISHED_NAMES;
    for number in 0..most + 10 {
        let name = format!("/n{number}");
        world.inject(0, Event::Offered(topic(&name, STRING)));
        world.inject(0, Event::Withdrawn { topic: name });
    }
    world.run(60 * SECOND);
    let advertised = world.take_commands(1).iter().filter(|it| it.starts_with("advertise")).count();
    assert_eq!(advertised, most);
    assert!(world.has_notice(1, &["names of this peer were published already"]));
    world.inject(0, Event::Offered(topic("/n7", STRING)));
    assert_eq!(
        world.take_commands(1),
        [format!("advertise /n7 {STRING}")],
        "a name that was there is"
    );
}

#[test]
fn slow_subscribers_do_not_stop_other_topics_of_the_peer() {
    let mut world = World::pair(ROBOT, "peers: { robot: 10.0.0.1 }");
    for name in ["/image", "/stop"] {
        world.inject(0, Event::Offered(topic(name, STRING)));
        world.wants(1, name, true);
    }
    world.take_commands(1);
    // The recorded commands hold their messages until the test takes the commands.
    for _ in 0..20 {
        world.publishes(0, "/image", 0, &"x".repeat(5_000_000));
        world.run(10 * SECOND);
    }
    world.publishes(0, "/stop", 0, "now");
    let told = world.take_commands(1);
    assert_eq!(told.len(), 13 + 1, "13 of 5 MB each");
    assert!(told[13].starts_with("publish /stop"), "{}", told[13]);
    assert!(world.has_notice(1, &["/image", "'robot'", "slow"]), "{:?}", world.notices(1));
    world.publishes(0, "/image", 0, "x");
    assert_eq!(world.take_commands(1).len(), 1);
}

/// A thousand topics of a peer that goes down and returns.
#[test]
fn unread_messages_of_a_returning_peer_are_published_a_few_at_a_time() {
    let mut world = World::pair(ROBOT, "peers: { robot: 10.0.0.1 }");
    for number in 0..1000 {
        world.inject(0, Event::Offered(topic(&format!("/n{number}"), STRING)));
    }
    world.run(20 * SECOND);
    world.wants(1, "/n7", true);
    world.take_commands(1);
    world.sides.iter_mut().for_each(|side| side.drops_incoming = true);
    world.run(30 * SECOND);
    let count = |told: &[String], word| told.iter().filter(|it| it.starts_with(word)).count();
    assert_eq!(count(&world.take_commands(1), "unadvertise"), 999, "/n7 is read");
    world.sides.iter_mut().for_each(|side| side.drops_incoming = false);
    let mut each = Vec::new();
    while each.iter().sum::<usize>() < 999 {
        world.run(SECOND);
        each.push(count(&world.take_commands(1), "advertise"));
        assert!(each.len() < 60, "{each:?}");
    }
    assert!(each.iter().all(|it| *it <= 512) && each.iter().filter(|it| **it > 0).count() >= 3);
    world.publishes(0, "/n7", 0, "on");
    assert_eq!(world.take_commands(1), ["publish /n7 0 on"]);
}
