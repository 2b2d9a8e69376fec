// SPDX-License-Identifier: Apache-2.0
//! Tests of the safe message of a topic from peers that goes silent.

use super::*;
use crate::status::WatchdogReport;

const BASE: &str = "peers: { robot: 10.0.0.1 }\ntopics: { \"/**\": {} }";
/// A message of the type of [`numbers`].
const HELLO: &str = "\u{5}\0\0\0hello\u{1}";
const SHORT: Duration = Duration::from_millis(50);

/// A topic whose type has a text and a whole number.
fn numbers(name: &str) -> Topic {
    defined(name, "x/Numbers", "string a\nuint8 b\n")
}

/// Returns a robot with this watchdog for `/x`, and a base from which it reads `/x`. No message has
/// arrived yet.
fn world_with_watchdog(watchdog: &str) -> World {
    let robot = format!("peers: {{ base: 10.0.0.2 }}\nwatchdogs: {{ /x: {watchdog} }}");
    let mut world = World::pair(&robot, BASE);
    world.inject(1, Event::Offered(numbers("/x")));
    world.wants(0, "/x", true);
    assert_eq!(world.take_commands(0), ["advertise /x x/Numbers"]);
    world
}

fn hello() -> String {
    format!("publish /x 0 {HELLO}")
}

fn safe(message: &str) -> String {
    format!("publish /x here:65 {message}")
}

fn zeros() -> String {
    safe("\0\0\0\0\0")
}

fn report(world: &World) -> (String, u64) {
    let mut all = world.sides[0].topics.watchdog_reports();
    let WatchdogReport { topic, state, published } = all.next().unwrap();
    assert_eq!((&*topic, all.next()), ("/x", None));
    (state, published)
}

#[test]
fn silence_causes_one_safe_message() {
    let mut world = world_with_watchdog("1s");
    world.run(5 * SECOND);
    assert!(world.take_commands(0).is_empty(), "nothing has come yet");
    assert_eq!(report(&world), ("asleep".into(), 0));
    for _ in 0..30 {
        world.publishes(1, "/x", 0, HELLO);
    }
    assert_eq!(world.take_commands(0), vec![hello(); 30], "while messages come");
    assert_eq!(report(&world), ("armed".into(), 0));
    world.run(SECOND - Duration::from_millis(100) - SHORT);
    assert!(world.take_commands(0).is_empty());
    world.run(2 * SHORT);
    assert_eq!(world.take_commands(0), [zeros()]);
    assert_eq!(report(&world), ("silent".into(), 1));
    assert!(world.has_notice(0, &["/x", "no message from peers for 1s", "was published"]));
    world.run(60 * SECOND);
    assert!(world.take_commands(0).is_empty());
    world.publishes(1, "/x", 0, HELLO);
    world.run(60 * SECOND);
    assert_eq!(world.take_commands(0), [hello(), zeros()]);
    assert_eq!(report(&world), ("silent".into(), 2));
}

#[test]
fn a_safe_message_is_repeated_if_configured_until_messages_return() {
    let mut world = world_with_watchdog("{ after: 1s, repeat: 250ms, message: { b: 7, a: hi } }");
    world.publishes(1, "/x", 0, HELLO);
    world.run(SECOND + Duration::from_millis(800));
    let expected = safe("\u{2}\0\0\0hi\u{7}");
    let mut told = vec![hello()];
    // Safe messages at 1, 1.25, 1.5 and 1.75 s of silence, of which 0.1 s had already passed.
    told.resize(5, expected.clone());
    assert_eq!(world.take_commands(0), told);
    world.publishes(1, "/x", 0, HELLO);
    assert_eq!(world.take_commands(0).last(), Some(&hello()));
    world.run(Duration::from_millis(800));
    assert!(world.take_commands(0).is_empty());
    assert_eq!(world.notices(0).len(), 1, "{:?}", world.notices(0));
}

#[test]
fn an_absent_peer_and_old_messages_count_as_silence() {
    let robot = "peers: { base: 10.0.0.2 }\nwatchdogs: { /x: 1s }";
    let base = "peers: { robot: 10.0.0.1 }\ntopics: { /x: { lifespan: 200ms } }";
    let mut world = World::pair(robot, base);
    world.inject(1, Event::Offered(numbers("/x")));
    world.wants(0, "/x", true);
    world.publishes(1, "/x", 0, HELLO);
    world.take_commands(0);
    world.sides[0].drops_incoming = true;
    for _ in 0..20 {
        world.publishes(1, "/x", 0, "too old when it arrives");
    }
    assert_eq!(world.take_commands(0), [zeros()]);
}

#[test]
fn a_withdrawn_topic_is_published_until_its_safe_message() {
    let mut world = world_with_watchdog("1s");
    world.publishes(1, "/x", 0, HELLO);
    world.inject(1, Event::Withdrawn { topic: "/x".into() });
    world.run(3 * SECOND);
    assert_eq!(world.take_commands(0), [hello(), zeros()]);
    world.run(5 * SECOND);
    assert_eq!(world.take_commands(0), ["unadvertise /x"]);
    // The same again.
    world.inject(1, Event::Offered(numbers("/x")));
    world.wants(0, "/x", true);
    assert_eq!(world.take_commands(0), ["advertise /x x/Numbers"]);
    world.publishes(1, "/x", 0, HELLO);
    world.run(3 * SECOND);
    assert_eq!(world.take_commands(0), [hello(), zeros()]);
}

#[test]
fn a_returning_publisher_continues_the_same_publication() {
    let mut world = world_with_watchdog("1s");
    world.publishes(1, "/x", 0, HELLO);
    world.inject(1, Event::Withdrawn { topic: "/x".into() });
    world.inject(1, Event::Offered(numbers("/x")));
    world.publishes(1, "/x", 0, HELLO);
    assert_eq!(world.take_commands(0), [hello(), hello()], "wanted all the time");
}

#[test]
fn a_topic_without_messages_needs_no_safe_message() {
    let mut world = world_with_watchdog("1s");
    world.inject(1, Event::Withdrawn { topic: "/x".into() });
    assert_eq!(world.take_commands(0), ["unadvertise /x"]);
}

#[test]
fn no_safe_message_is_published_without_a_subscriber() {
    let mut world = world_with_watchdog("1s");
    world.publishes(1, "/x", 0, HELLO);
    world.wants(0, "/x", false);
    world.run(5 * SECOND);
    assert_eq!(world.take_commands(0), [hello()]);
    assert_eq!(report(&world), ("asleep".into(), 0));
    assert!(world.notices(0).is_empty());
}

#[test]
fn messages_of_one_of_two_peers_suffice() {
    let robot = "name: robot\npeers: { a: 10.0.0.2, b: 10.0.0.3 }\nwatchdogs: { /x: 1s }";
    let peer = |name| format!("name: {name}\npeers: {{ robot: 10.0.0.1 }}\ntopics: {{ /x: {{}} }}");
    let mut world = World::new(&[robot, &peer("a"), &peer("b")]);
    for side in [1, 2] {
        world.inject(side, Event::Offered(numbers("/x")));
    }
    world.wants(0, "/x", true);
    world.publishes(1, "/x", 0, HELLO);
    for _ in 0..20 {
        world.publishes(2, "/x", 0, HELLO);
    }
    assert_eq!(report(&world), ("armed".into(), 0));
    world.run(SECOND);
    assert_eq!(report(&world), ("silent".into(), 1));
}

#[test]
fn an_invalid_safe_message_is_replaced_by_zeros() {
    for (message, words) in [
        ("{ b: 256 }", "b: found '256'; allowed: a whole number from 0 to 255"),
        ("{ c: 1 }", "found the field 'c'; allowed: a, b"),
    ] {
        let mut world = world_with_watchdog(&format!("{{ after: 1s, message: {message} }}"));
        let words = ["watchdogs./x.message", "x/Numbers", words, "zero instead"];
        assert!(world.has_notice(0, &words), "{:?}", world.notices(0));
        world.publishes(1, "/x", 0, HELLO);
        world.run(SECOND);
        assert_eq!(world.take_commands(0), [hello(), zeros()]);
    }
}

#[test]
fn an_unknown_type_is_reported_when_offered_and_during_silence() {
    let mut world = World::pair("peers: { base: 10.0.0.2 }\nwatchdogs: { /x: 1s }", BASE);
    world.inject(1, Event::Offered(Topic { definition: "".into(), ..numbers("/x") }));
    world.wants(0, "/x", true);
    let words =
        ["watchdogs./x", "the safe message cannot be composed", "x/Numbers is not installed"];
    assert!(world.has_notice(0, &words), "{:?}", world.notices(0));
    world.publishes(1, "/x", 0, HELLO);
    world.run(SECOND);
    assert_eq!(world.take_commands(0), ["advertise /x x/Numbers".into(), hello()]);
    assert!(world.has_notice(0, &["/x", "no message from peers for 1s", "no safe message"]));
    assert_eq!(report(&world), ("silent".into(), 0));
}

/// A topic with the md5 of geometry_msgs/Twist and a false definition in which both parts are
/// arrays. An empty message of this type has 8 bytes.
fn false_twist() -> Topic {
    let bar = "=".repeat(80);
    let text = format!(
        "geometry_msgs/Vector3[] linear\ngeometry_msgs/Vector3[] angular\n{bar}\n\
         MSG: geometry_msgs/Vector3\nfloat64 x\nfloat64 y\nfloat64 z\n"
    );
    let topic = defined("/x", "geometry_msgs/Twist", &text);
    assert_eq!(topic.type_hash, "9f195f881246fdfa2798d1d3eebca84a", "as rosmsg md5 says");
    topic
}

#[test]
fn no_safe_message_is_made_without_a_certain_layout() {
    let robot = "peers: { base: { address: 10.0.0.2, accept: /x } }\nwatchdogs: { /x: 1s }";
    let mut world = World::pair(robot, BASE);
    world.inject(1, Event::Offered(false_twist()));
    let words =
        ["watchdogs./x", "the safe message cannot be composed", "geometry_msgs/Twist", "install"];
    assert!(world.has_notice(0, &words), "at once: {:?}", world.notices(0));
    world.wants(0, "/x", true);
    world.publishes(1, "/x", 0, &"\0".repeat(8));
    world.take_commands(0);
    world.run(2 * SECOND);
    assert!(world.take_commands(0).is_empty(), "8 bytes instead of 48");
    assert_eq!(report(&world), ("silent".into(), 0));
}

#[test]
fn a_refused_peers_definition_does_not_change_the_safe_message() {
    let robot = "name: robot\npeers: { thief: 10.0.0.2, base: { address: 10.0.0.3, accept: /x } }\n\
                 watchdogs: { /x: 1s }";
    let peer = |name| format!("name: {name}\npeers: {{ robot: 10.0.0.1 }}\ntopics: {{ /x: {{}} }}");
    let mut world = World::from_files(&[robot, &peer("thief"), &peer("base")], |_| {});
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("share/geometry_msgs/msg");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("Twist.msg"), "Vector3 linear\nVector3 angular\n").unwrap();
    std::fs::write(folder.join("Vector3.msg"), "float64 x\nfloat64 y\nfloat64 z\n").unwrap();
    world.installed = InstalledTypes::new(vec![place.path().into()]);
    world.inject(1, Event::Offered(Topic { definition: "float64 x\n".into(), ..false_twist() }));
    assert!(world.take_commands(0).is_empty(), "refused");
    world.inject(2, Event::Offered(false_twist()));
    world.wants(0, "/x", true);
    assert_eq!(world.take_commands(0), ["advertise /x geometry_msgs/Twist"]);
    world.publishes(2, "/x", 0, &"\0".repeat(48));
    world.run(2 * SECOND);
    let zeros = safe(&"\0".repeat(48));
    assert_eq!(world.take_commands(0).last(), Some(&zeros));
}

#[test]
fn a_replaced_topic_gets_its_safe_message_first() {
    let mut world = world_with_watchdog("1s");
    world.publishes(1, "/x", 0, HELLO);
    let other = defined("/x", "x/Other", "uint16 c\n");
    world.inject(1, Event::Offered(other));
    world.run(2 * SECOND);
    assert_eq!(
        world.take_commands(0),
        [hello(), safe(&"\0".repeat(5))],
        "its readers are still there"
    );
    world.run(10 * SECOND);
    assert_eq!(world.take_commands(0), ["unadvertise /x", "advertise /x x/Other"]);
}

#[test]
fn a_safe_message_that_is_made_late_is_published_at_once() {
    let mut world = world_with_watchdog("1s");
    world.publishes(1, "/x", 0, HELLO);
    let side = &mut world.sides[0];
    let (now, asked) = (world.now, numbers("/x"));
    let other = Topic { type_name: "x/Other".into(), ..asked.clone() };
    for topic in [&other, &asked] {
        side.with(now, |topics, cx| topics.imports.watchdogs.watch(cx, topic));
    }
    while side.shared.poll_order().is_some() {}
    let later = now + 2 * SECOND;
    side.handle_timeout(later);
    assert!(side.shared.poll_order().is_none());
    assert_eq!(side.topics.poll_timeout(), None, "nothing wakes the node");
    side.sweep(later);
    let order = side.shared.poll_order();
    assert!(matches!(&order, Some(Order::Codec(Job::Compose { .. }))), "asked again: {order:?}");
    let made = |topic: &Topic| {
        let composed = safe_message(topic, &vec![], &InstalledTypes::default(), 1000);
        JobResult::Composed { topic: topic.clone(), composed }
    };
    side.on_codec(later, made(&other));
    assert!(side.shared.poll_order().is_none(), "of a type that is no more");
    side.on_codec(later, made(&asked));
    assert!(matches!(side.shared.poll_order(), Some(Order::Gateway(Command::Publish { .. }))));
    side.on_codec(later, made(&asked));
    assert!(side.shared.poll_order().is_none(), "once");
}

#[test]
fn a_safe_message_is_encoded_for_the_local_ros() {
    let robot = "ros2: true\npeers: { base: 10.0.0.2 }\nwatchdogs: { /x: { after: 1s, message: { data: hi } } }";
    let mut world = World::pair(robot, BASE);
    let text = defined("/x", STRING, "string data\n");
    world.inject(1, Event::Offered(text));
    world.wants(0, "/x", true);
    world.publishes(1, "/x", 0, "\u{2}\0\0\0go");
    world.take_commands(0);
    assert_eq!(report(&world), ("armed".into(), 0));
    world.run(SECOND);
    assert_eq!(world.take_commands(0), [safe("\0\u{1}\0\0\u{3}\0\0\0hi\0")]);
}
