// SPDX-License-Identifier: Apache-2.0
//! Tests of topics that a node sends: which topics, to which peers, and how many messages.

use super::super::exports::MAX_CHANGES;
use super::*;
use crate::status::TopicChange;

const ROBOT: &str = "peers: { base: 10.0.0.2 }\ntopics: { \"/**\": {} }";
const BASE: &str = "peers: { robot: 10.0.0.1 }";

/// A robot that advertises `/scan` to a base.
fn world_with_scan(topics: &str) -> World {
    let mut world = World::pair(&format!("peers: {{ base: 10.0.0.2 }}\ntopics: {topics}"), BASE);
    world.inject(0, Event::Offered(topic("/scan", STRING)));
    world
}

/// A robot (0) with rules for its topics, a base (1) and a tower (2).
fn world_with_two_peers(topics: &str) -> World {
    let robot =
        format!("name: robot\npeers: {{ base: 10.0.0.2, tower: 10.0.0.3 }}\ntopics: {topics}");
    let base = "name: base\npeers: { robot: 10.0.0.1 }";
    let tower = "name: tower\npeers: { robot: 10.0.0.1 }";
    World::new(&[&robot, base, tower])
}

#[test]
fn a_topic_is_read_only_while_a_peer_wants_it() {
    let mut world = world_with_scan("{ /scan: {} }");
    assert!(world.take_commands(0).is_empty(), "nobody wants it yet");
    assert_eq!(world.take_commands(1), [format!("advertise /scan {STRING}")]);
    world.wants(1, "/scan", true);
    assert_eq!(world.take_commands(0), ["subscribe /scan"]);
    world.publishes(0, "/scan", 3, "hello");
    assert_eq!(world.take_commands(1), ["publish /scan 3 hello"]);
    world.wants(1, "/scan", false);
    world.publishes(0, "/scan", 3, "unheard");
    world.run(PAST_UNSUBSCRIBE_DELAY);
    assert_eq!(world.take_commands(0), ["unsubscribe /scan"]);
    world.publishes(0, "/scan", 3, "unheard");
    assert!(world.take_commands(1).is_empty());
}

#[test]
fn short_interests_cause_no_calls_of_the_master() {
    let mut world = world_with_scan("{ /scan: {} }");
    for round in 0..20 {
        world.wants(1, "/scan", true);
        world.publishes(0, "/scan", 3, &format!("{round}"));
        world.wants(1, "/scan", false);
        world.run(SECOND);
    }
    assert_eq!(world.take_commands(0), ["subscribe /scan"]);
    let heard = world.take_commands(1).iter().filter(|it| it.starts_with("publish")).count();
    assert_eq!(heard, 20);
}

#[test]
fn topics_without_a_rule_are_not_sent() {
    let mut world = world_with_scan("{ /scan: {} }");
    world.take_commands(1);
    world.inject(0, Event::Offered(topic("/secret", STRING)));
    assert!(world.take_commands(1).is_empty());
}

#[test]
fn a_topic_is_sent_only_to_named_peers() {
    let mut world = world_with_two_peers("{ /scan: { to: [tower] }, /odom: {} }");
    world.inject(0, Event::Offered(topic("/scan", STRING)));
    world.inject(0, Event::Offered(topic("/odom", STRING)));
    assert_eq!(world.take_commands(1), [format!("advertise /odom {STRING}")]);
    let both = [format!("advertise /scan {STRING}"), format!("advertise /odom {STRING}")];
    assert_eq!(world.take_commands(2), both);
}

#[test]
fn a_topic_is_read_until_no_peer_wants_it() {
    let mut world = world_with_two_peers("{ /scan: {} }");
    world.inject(0, Event::Offered(topic("/scan", STRING)));
    world.wants(1, "/scan", true);
    world.wants(2, "/scan", true);
    assert_eq!(world.take_commands(0), ["subscribe /scan"]);
    world.take_commands(1);
    world.take_commands(2);
    world.publishes(0, "/scan", 0, "hello");
    let hello = vec!["publish /scan 0 hello".to_owned()];
    assert_eq!((world.take_commands(1), world.take_commands(2)), (hello.clone(), hello));
    world.wants(1, "/scan", false);
    assert!(world.take_commands(0).is_empty());
    world.wants(2, "/scan", false);
    world.run(PAST_UNSUBSCRIBE_DELAY);
    assert_eq!(world.take_commands(0), ["unsubscribe /scan"]);
}

/// Number of messages that arrive in `span` under `rule` for `/scan`, published at `period`.
fn count_arrivals(rule: &str, period: Duration, jitter: Duration, span: Duration) -> usize {
    let mut world = world_with_scan(&format!("{{ /scan: {rule} }}"));
    world.wants(1, "/scan", true);
    world.take_commands(1);
    let start = world.now;
    let count = span.as_micros() / period.as_micros();
    for n in 0..count as u32 {
        // Messages are alternately late and on time.
        let shift = if n % 2 == 0 { jitter } else { Duration::ZERO };
        let at = start + period * n + shift;
        world.run(at.since(world.now));
        let side = &mut world.sides[0];
        side.on_local(at, message("/scan", 0, b"x"));
    }
    world.run(SECOND);
    let left_out = world.sides[0].topics.exported_topics()["/scan"].rate_limited as usize;
    let carried = world.take_commands(1).len();
    assert_eq!(carried + left_out, count as usize, "what is left out is counted");
    carried
}

#[test]
fn the_rate_limit_holds_on_average_whatever_the_publisher_does() {
    let ms = Duration::from_millis;
    // 10 Hz for 20 s allow 200 messages.
    for (period, jitter) in [(1, 0), (3, 0), (7, 3), (15, 0), (66, 0), (95, 0)] {
        let carried = count_arrivals("{ rate: 10Hz }", ms(period), ms(jitter), ms(20_000));
        assert!((180..=201).contains(&carried), "{carried} at a period of {period} ms");
    }
}

#[test]
fn a_publisher_at_just_the_allowed_rate_is_not_halved_by_jitter() {
    let ms = Duration::from_millis;
    assert_eq!(count_arrivals("{ rate: 10Hz }", ms(100), ms(0), ms(20_000)), 200);
    for jitter in [1, 9, 40] {
        let carried = count_arrivals("{ rate: 10Hz }", ms(100), ms(jitter), ms(20_000));
        assert!(carried >= 199, "{carried} with {jitter} ms of jitter: the first may be early");
    }
    assert_eq!(count_arrivals("{ rate: 10Hz }", ms(150), ms(0), ms(15_000)), 100, "a slower one");
}

#[test]
fn a_burst_does_not_compensate_a_pause() {
    let mut world = world_with_scan("{ /scan: { rate: 10Hz } }");
    world.wants(1, "/scan", true);
    world.publishes(0, "/scan", 0, "first");
    world.run(10 * SECOND);
    world.take_commands(1);
    for _ in 0..20 {
        let side = &mut world.sides[0];
        side.on_local(world.now, message("/scan", 0, b"x"));
    }
    world.run(SECOND);
    assert_eq!(world.take_commands(1).len(), 1);
}

#[test]
fn the_last_message_of_each_latched_publisher_reaches_a_peer_that_comes_late() {
    let mut world = world_with_two_peers("{ /map: {} }");
    world.inject(0, Event::Offered(latched("/map")));
    world.wants(1, "/map", true);
    world.publishes(0, "/map", 1, "old");
    world.publishes(0, "/map", 1, "one");
    world.publishes(0, "/map", 2, "two");
    world.publishes(0, "/map", 3, "three");
    world.inject(0, Event::SourceGone { topic: "/map".into(), source: Source::local(2) });
    // A publisher that is not latched joins, so the topic is advertised again.
    world.inject(0, Event::Offered(latched("/map")));
    world.take_commands(2);
    world.wants(2, "/map", true);
    assert_eq!(world.take_commands(2), ["publish /map 1 one", "publish /map 3 three"]);
}

#[test]
fn a_late_peer_gets_all_kept_messages_of_a_publisher() {
    let mut world = world_with_two_peers("{ /log: { keep_last: 1 } }");
    let qos = Qos { transient_local: true, depth: 3, ..Qos::default() };
    world.inject(0, Event::Offered(Topic { qos, ..topic("/log", STRING) }));
    world.wants(1, "/log", true);
    for text in ["a", "b", "c", "d"] {
        world.publishes(0, "/log", 1, text);
    }
    world.take_commands(2);
    world.wants(2, "/log", true);
    assert_eq!(
        world.take_commands(2),
        ["b", "c", "d"].map(|text| format!("publish /log 1 {text}"))
    );
}

#[test]
fn when_slow_follows_the_file_or_the_type() {
    let file = "{ /thin: { when_slow: thin }, /queue: { when_slow: queue }, /few: { keep_last: 3 }, \
                \"/**\": {} }";
    let mut world = world_with_two_peers(file);
    let image = "sensor_msgs/Image";
    let keeps = |world: &mut World, topic: Topic| {
        let name = topic.name.clone();
        world.inject(0, Event::Offered(topic));
        let side = &world.sides[0];
        let (peer, channel) =
            side.topics.exported_topics()[&name].channels.first_key_value().unwrap();
        let (config, ..) = side.endpoint.peer(*peer).channel_out(*channel).unwrap();
        (config.topic.keep_last, config.thin)
    };
    assert_eq!(keeps(&mut world, topic("/thin", image)), (1, true));
    assert_eq!(keeps(&mut world, topic("/queue", image)), (65_535, false));
    assert_eq!(keeps(&mut world, topic("/few", image)), (3, false));
    assert_eq!(keeps(&mut world, topic("/image", image)), (1, false));
    assert_eq!(keeps(&mut world, topic("/log", STRING)), (10, false));
    // Each message of these topics counts.
    assert_eq!(keeps(&mut world, latched("/thin")), (1, false));
    assert_eq!(keeps(&mut world, topic("/thin", "tf2_msgs/TFMessage")), (1, false));
}

#[test]
fn the_configured_order_is_offered_where_applicable() {
    let file = "{ /sent: { order: sent, order_wait: 50ms }, /newest: { order: newest }, \
                \"/**\": {} }";
    let mut world = world_with_two_peers(file);
    let order = |world: &mut World, topic: Topic| {
        let name = topic.name.clone();
        world.inject(0, Event::Offered(topic));
        let side = &world.sides[0];
        let (peer, channel) =
            side.topics.exported_topics()[&name].channels.first_key_value().unwrap();
        side.endpoint.peer(*peer).channel_out(*channel).unwrap().0.topic.order
    };
    let wait = std::time::Duration::from_millis(50);
    assert_eq!(
        order(&mut world, topic("/sent", STRING)),
        tautline_proto::DeliveryOrder::Sent { wait }
    );
    assert_eq!(order(&mut world, topic("/newest", STRING)), tautline_proto::DeliveryOrder::Newest);
    assert_eq!(order(&mut world, topic("/other", STRING)), tautline_proto::DeliveryOrder::Arrival);
    // The last message is kept, so it must be the one that was sent last.
    let wait = std::time::Duration::from_secs(1);
    for name in ["/newest", "/other"] {
        let latched = order(&mut world, latched(name));
        assert_eq!(latched, tautline_proto::DeliveryOrder::Sent { wait });
    }
    assert_eq!(
        order(&mut world, topic("/newest", "tf2_msgs/TFMessage")),
        tautline_proto::DeliveryOrder::Arrival
    );
}

#[test]
fn latched_messages_are_dropped_when_nobody_reads_the_topic() {
    let mut world = world_with_two_peers("{ /map: {} }");
    world.inject(0, Event::Offered(latched("/map")));
    world.wants(1, "/map", true);
    world.publishes(0, "/map", 1, "one");
    world.wants(1, "/map", false);
    world.run(2 * PAST_UNSUBSCRIBE_DELAY);
    world.take_commands(2);
    world.wants(1, "/map", true);
    world.wants(2, "/map", true);
    assert!(world.take_commands(2).is_empty(), "its publisher says it again, if it still lives");
    world.publishes(0, "/map", 1, "two");
    assert_eq!(world.take_commands(2), ["publish /map 1 two"]);
    // The same happens when the peers restart.
    world.restart(1);
    world.restart(2);
    world.run(PAST_UNSUBSCRIBE_DELAY);
    world.wants(1, "/map", true);
    world.wants(2, "/map", true);
    assert!(!world.take_commands(2).contains(&"publish /map 1 two".into()));
}

#[test]
fn a_topic_withdrawn_and_offered_again_continues() {
    let mut world = world_with_scan("{ /scan: {} }");
    world.wants(1, "/scan", true);
    world.take_commands(0);
    world.take_commands(1);
    world.inject(0, Event::Withdrawn { topic: "/scan".into() });
    assert_eq!(world.take_commands(0), ["unsubscribe /scan"]);
    assert_eq!(world.take_commands(1), ["unadvertise /scan"]);
    world.inject(0, Event::Withdrawn { topic: "/scan".into() });
    world.publishes(0, "/scan", 0, "unheard");
    assert!(world.take_commands(0).is_empty() && world.take_commands(1).is_empty());
    world.inject(0, Event::Offered(topic("/scan", STRING)));
    assert_eq!(world.take_commands(1), [format!("advertise /scan {STRING}")]);
    world.wants(1, "/scan", true);
    assert_eq!(world.take_commands(0), ["subscribe /scan"]);
}

#[test]
fn a_topic_of_another_type_is_another_topic() {
    let mut world = world_with_scan("{ /scan: {} }");
    world.wants(1, "/scan", true);
    world.take_commands(0);
    world.take_commands(1);
    // The message is queued while the base is deaf, and must not arrive as the new type.
    world.sides[1].drops_incoming = true;
    world.publishes(0, "/scan", 0, "of the old type");
    world.sides[1].drops_incoming = false;
    world.inject(0, Event::Offered(topic("/scan", "std_msgs/Header")));
    world.run(SECOND);
    assert_eq!(world.take_commands(0), ["unsubscribe /scan"]);
    assert_eq!(world.take_commands(1), ["unadvertise /scan", "advertise /scan std_msgs/Header"]);
    world.wants(1, "/scan", true);
    world.publishes(0, "/scan", 0, "of the new type");
    assert_eq!(world.take_commands(1), ["publish /scan 0 of the new type"]);
}

#[test]
fn a_message_above_the_maximum_is_named_with_both_ends() {
    let limits = "peers: { base: 10.0.0.2 }\ntopics: { /scan: {} }\nlimits: { max_message: 1kB }";
    let mut world = World::pair(limits, BASE);
    world.inject(0, Event::Offered(topic("/scan", STRING)));
    world.wants(1, "/scan", true);
    world.take_commands(1);
    world.inject(0, message("/scan", 0, &[0; 1500]));
    assert!(world.take_commands(1).is_empty());
    let words = ["/scan", "'robot'", "'base'", "1500", "1000", "limits.max_message"];
    assert!(world.has_notice(0, &words), "{:?}", world.notices(0));
}

#[test]
fn a_message_above_the_receivers_maximum_is_named_there_with_both_ends() {
    let limits = format!("{BASE}\nlimits: {{ max_message: 1kB }}");
    let mut world = World::pair(ROBOT, &limits);
    world.inject(0, Event::Offered(topic("/scan", STRING)));
    world.wants(1, "/scan", true);
    world.take_commands(1);
    world.inject(0, message("/scan", 0, &[0; 1500]));
    assert!(world.take_commands(1).is_empty());
    let words = ["/scan", "'robot'", "'base'", "1500", "1000", "limits.max_message"];
    assert!(world.has_notice(1, &words), "{:?}", world.notices(1));
}

fn change(
    world: &mut World,
    topic: &str,
    priority: Option<u8>,
    rate_hz: Option<f64>,
) -> Result<Vec<String>, String> {
    let side = &mut world.sides[0];
    let change = TopicChange { topic: topic.into(), priority, rate_hz };
    let changed =
        side.with(world.now, |topics, cx| topics.exports.apply_treatment_change(cx, change));
    world.run(Duration::from_millis(100));
    changed
}

/// Returns the priority of a topic at the sender and at the receiver, and its rate.
fn treatment(world: &World, name: &str) -> (u8, u8, Option<f64>) {
    let local = &world.sides[0].topics.exported_topics()[name];
    let channel = local.channels[&ONLY_PEER];
    let (config, _, _) = world.sides[0].endpoint.peer(ONLY_PEER).channel_out(channel).unwrap();
    let (known, _, _) = world.sides[1].endpoint.peer(ONLY_PEER).channel_in(channel).unwrap();
    (config.topic.priority, known.priority, local.treatment.rate_hz)
}

#[test]
fn priority_and_rate_change_by_pattern_on_the_running_node() {
    let mut world = World::pair(ROBOT, BASE);
    for name in ["/camera/image", "/camera/info", "/scan"] {
        world.inject(0, Event::Offered(topic(name, STRING)));
    }
    let changed = change(&mut world, "/camera/*", Some(7), None).unwrap();
    assert_eq!(changed, ["/camera/image", "/camera/info"]);
    assert_eq!(treatment(&world, "/camera/info"), (7, 7, None));
    assert_eq!(treatment(&world, "/scan"), (100, 100, None));
    change(&mut world, "/camera/*", None, Some(5.0)).unwrap();
    assert_eq!(treatment(&world, "/camera/info"), (7, 7, Some(5.0)), "the priority stays");
    change(&mut world, "/camera/info", Some(9), Some(0.0)).unwrap();
    assert_eq!(treatment(&world, "/camera/info"), (9, 9, None));
    assert_eq!(treatment(&world, "/camera/image"), (7, 7, Some(5.0)));
    world.inject(0, Event::Withdrawn { topic: "/camera/info".into() });
    world.inject(0, Event::Offered(topic("/camera/info", STRING)));
    assert_eq!(treatment(&world, "/camera/info"), (9, 9, None), "also after it was away");
}

#[test]
fn an_impossible_change_is_refused_with_the_allowed_values() {
    let mut world = World::pair(ROBOT, BASE);
    let error = change(&mut world, "/scan", Some(7), None).unwrap_err();
    assert_eq!(error, "this node sends no topics");
    world.inject(0, Event::Offered(topic("/scan", STRING)));
    world.inject(0, Event::Offered(topic("/odom", STRING)));
    let error = change(&mut world, "/scam", Some(7), None).unwrap_err();
    assert!(error.contains("'/scam'") && error.contains("/odom, /scan"), "{error}");
    assert!(change(&mut world, "scan", Some(7), None).unwrap_err().contains("'scan'"));
    for wrong in [-1.0, 1e-300, 1e300, f64::NAN, f64::INFINITY] {
        let error = change(&mut world, "/scan", None, Some(wrong)).unwrap_err();
        assert!(error.contains("100000"), "{error}");
    }
    world.publishes(0, "/scan", 0, "still alive");
}

#[test]
fn replaced_changes_are_removed_and_others_bounded() {
    let mut world = World::pair(ROBOT, BASE);
    world.inject(0, Event::Offered(topic("/scan", STRING)));
    let side = &mut world.sides[0];
    let mut set = |topic: String| {
        let change = TopicChange { topic, priority: Some(1), rate_hz: None };
        side.with(world.now, |topics, cx| topics.exports.apply_treatment_change(cx, change))
    };
    for _ in 0..2 * MAX_CHANGES {
        set("/scan".into()).unwrap();
    }
    let refused = (1..2 * MAX_CHANGES).filter(|n| set(pattern_of_scan(*n)).is_err());
    assert_eq!(refused.count(), MAX_CHANGES, "the one of /scan counts once");
    assert_eq!(world.sides[0].topics.changes().len(), MAX_CHANGES);
}

/// Returns the `n`-th of 32768 patterns that match `/scan`: zero to seven stars follow each character.
fn pattern_of_scan(n: usize) -> String {
    let stars = |place| "*".repeat(n >> (3 * place) & 7);
    "/scan".chars().enumerate().map(|(place, c)| format!("{c}{}", stars(place))).collect()
}

#[test]
fn nothing_is_read_for_a_peer_that_stays_away_until_it_is_back() {
    let mut world = world_with_scan("{ /scan: {} }");
    world.wants(1, "/scan", true);
    world.take_commands(0);
    world.sides.iter_mut().for_each(|side| side.drops_incoming = true);
    world.run(8 * SECOND);
    assert_eq!(world.take_commands(0), [""; 0], "a short outage changes nothing");
    world.run(3 * SECOND + PAST_UNSUBSCRIBE_DELAY);
    assert_eq!(world.take_commands(0), ["unsubscribe /scan"]);
    world.sides.iter_mut().for_each(|side| side.drops_incoming = false);
    world.run(4 * SECOND);
    assert_eq!(world.take_commands(0), ["subscribe /scan"]);
    world.publishes(0, "/scan", 0, "still wanted");
    world.run(SECOND);
    assert_eq!(
        world.take_commands(1).last().map(String::as_str),
        Some("publish /scan 0 still wanted")
    );
}

#[test]
fn a_rate_limit_delays_but_never_drops_the_last_latched_message() {
    let mut world = World::pair(
        "peers: { base: \"127.0.0.1\" }\ntopics: { /map: { rate: 1Hz } }",
        "peers: { robot: \"127.0.0.1\" }",
    );
    world.inject(0, Event::Offered(latched("/map")));
    world.wants(1, "/map", true);
    world.take_commands(1);
    for number in 0..30 {
        world.publishes(0, "/map", number % 2, &number.to_string());
    }
    let at_rate = world.take_commands(1);
    assert_eq!(at_rate.len(), 4, "one per second: {at_rate:?}");
    world.run(5 * SECOND);
    let last = [at_rate, world.take_commands(1)].concat().split_off(3);
    assert_eq!(last, ["publish /map 1 29", "publish /map 0 28"]);
    assert_eq!(world.sides[0].topics.exported_topics()["/map"].rate_limited, 25);
}

#[test]
fn a_topic_that_names_its_links_is_not_sent_to_a_peer_without_them() {
    let robot = "name: robot\npeers:\n  base: { links: [{ name: wifi, address: 10.0.0.2 }] }\n  \
                 tower: { links: [{ name: lte, address: 10.0.0.3 }] }\n\
                 topics: { /scan: { only_links: [wifi] } }";
    let base = "name: base\npeers: { robot: 10.0.0.1 }";
    let tower = "name: tower\npeers: { robot: 10.0.0.1 }";
    let mut world = World::new(&[robot, base, tower]);
    for (peer, link) in [(0, "wifi"), (1, "lte")] {
        world.sides[0].shared.peers.set_links(PeerId(peer), vec![(link.into(), 0)]);
    }
    world.inject(0, Event::Offered(topic("/scan", STRING)));
    assert_eq!(world.take_commands(1), [format!("advertise /scan {STRING}")]);
    assert!(world.take_commands(2).is_empty());
}
