// SPDX-License-Identifier: Apache-2.0
//! Tests of messages that publishers keep for late joiners. Each subscriber gets each message once,
//! but none that its publisher no longer keeps, and none past its lifespan.

use super::*;

const PAST_UNSUBSCRIBE_DELAY: Duration = Duration::from_secs(11);
const OUTAGE: Duration = Duration::from_secs(20);

/// Returns a robot with a topic `/map` under this rule, and a base that reads it.
fn world_with_reader(rule: &str) -> World {
    let robot = format!("peers: {{ base: 10.0.0.2 }}\ntopics: {{ /map: {{ {rule} }} }}");
    let mut world = World::pair(&robot, "peers: { robot: 10.0.0.1 }");
    world.inject(0, Event::Offered(latched("/map")));
    world.wants(1, "/map", true);
    world.take_commands(0);
    world.take_commands(1);
    world
}

/// A message that a publisher repeats when it is connected.
fn repeated(source: u32, text: &str, age: Duration) -> Event {
    let mut origin = kept_origin(1, source, text.as_bytes());
    origin.age = age;
    if let Some(kept) = &mut origin.kept {
        kept.is_history = true;
        // The identity is the same, whatever number the publisher has now.
        kept.identity = tautline_gateway::identity(text);
        kept.is_repeatable = true;
    }
    message_of("/map", source, text.as_bytes(), origin)
}

fn published_commands(world: &mut World) -> Vec<String> {
    let told = world.take_commands(1).into_iter();
    told.filter_map(|it| it.strip_prefix("publish /map ").map(str::to_owned)).collect()
}

/// The only subscriber leaves. Another one joins once nothing is kept for it at the base.
fn rejoin(world: &mut World) {
    world.wants(1, "/map", false);
    world.run(PAST_UNSUBSCRIBE_DELAY);
    world.wants(1, "/map", true);
}

#[test]
fn only_a_new_session_repeats_kept_messages() {
    let mut world = world_with_reader("");
    world.inject(0, repeated(3, "one", Duration::ZERO));
    assert_eq!(published_commands(&mut world), ["3 one"]);
    world.sides.iter_mut().for_each(|side| side.drops_incoming = true);
    world.run(13 * SECOND);
    world.sides.iter_mut().for_each(|side| side.drops_incoming = false);
    world.run(OUTAGE);
    assert_eq!(world.take_commands(1), [] as [&str; 0]);
    // After a crash, kept messages may be outdated, and the publishers have other numbers.
    world.restart(0);
    world.run(2 * SECOND);
    assert_eq!(world.take_commands(1), ["forget /map 3"]);
    world.inject(0, Event::Offered(latched("/map")));
    world.run(2 * SECOND);
    world.take_commands(1);
    world.inject(0, repeated(0, "one", Duration::from_secs(40)));
    let repeated = world.sides[1].commands.iter().find_map(|command| match command {
        Command::Publish { origin, .. } => origin.kept,
        _ => None,
    });
    let repeated = repeated.expect("the gateway knows who has it");
    assert_eq!(repeated.identity, tautline_gateway::identity("one"));
    assert!(repeated.is_repeatable && repeated.is_history);
}

/// Number of messages that were accepted for the base on the topic of [`reading`].
fn accepted_count(world: &World) -> u64 {
    let channel = world.sides[0].topics.exported_topics()["/map"].channels[&ONLY_PEER];
    let endpoint = &world.sides[0].endpoint;
    endpoint.peer(ONLY_PEER).channel_out(channel).unwrap().2.accepted
}

#[test]
fn a_message_that_an_outage_interrupts_is_not_queued_again_after_it() {
    // In the longer outage, the gateway stops reading, and reads the topic again afterwards.
    for outage in [15 * SECOND, 40 * SECOND] {
        let mut world = world_with_reader("");
        world.sides.iter_mut().for_each(|side| side.drops_incoming = true);
        let mut live = repeated(0, "one", Duration::ZERO);
        if let Event::Message { origin, .. } = &mut live
            && let Some(kept) = &mut origin.kept
        {
            (kept.is_history, kept.is_repeatable) = (false, false);
        }
        world.inject(0, live);
        let before = accepted_count(&world);
        world.run(outage);
        world.sides.iter_mut().for_each(|side| side.drops_incoming = false);
        while !world.sides[0].endpoint.peer(ONLY_PEER).up {
            world.run(Duration::from_millis(1));
        }
        if outage > 30 * SECOND {
            assert!(world.take_commands(0).contains(&"subscribe /map".into()));
            world.inject(0, repeated(0, "one", outage));
        }
        world.run(SECOND);
        assert_eq!(published_commands(&mut world), ["0 one"]);
        assert_eq!(accepted_count(&world), before + 1, "a presence message alone");
    }
}

#[test]
fn the_next_subscriber_gets_kept_messages_once() {
    let mut world = world_with_reader("");
    world.inject(0, repeated(0, "one", Duration::ZERO));
    assert_eq!(published_commands(&mut world), ["0 one"]);
    world.wants(1, "/map", false);
    world.run(3 * SECOND);
    world.wants(1, "/map", true);
    world.run(SECOND);
    assert_eq!(world.take_commands(1), [] as [&str; 0], "ROS here has it");
    world.wants(1, "/map", false);
    world.run(PAST_UNSUBSCRIBE_DELAY);
    assert_eq!(world.take_commands(1), ["forget /map all"], "it may become outdated from now on");
    world.wants(1, "/map", true);
    assert_eq!(published_commands(&mut world), ["0 one"]);
}

/// A message of a publisher that is known to keep `depth` messages.
fn kept_message(source: u32, text: &str, depth: u32) -> Event {
    let mut origin = kept_origin(depth, 0, text.as_bytes());
    if let Some(kept) = &mut origin.kept {
        kept.is_repeatable = true;
    }
    message_of("/map", source, text.as_bytes(), origin)
}

fn depth_changed(source: u32, successor: u32, depth: u32) -> Event {
    let (source, successor) = (Source::local(source), Source::local(successor));
    Event::DepthChanged { topic: "/map".into(), source, successor, depth }
}

/// Publishers and texts of the published messages that are only for later subscribers.
fn late_joiner_messages(world: &World) -> Vec<(u32, Bytes)> {
    let sent = world.sides[1].commands.iter().filter_map(|command| match command {
        Command::Publish { source, payload, origin, .. } => {
            origin.kept.filter(|it| it.is_for_late_joiners)?;
            Some((source.number, payload.clone()))
        }
        _ => None,
    });
    sent.collect()
}

#[test]
fn when_a_publisher_turns_out_to_keep_more_later_subscribers_get_more() {
    let mut world = world_with_reader("");
    for text in ["one", "two", "three"] {
        world.inject(0, kept_message(0, text, 1));
    }
    assert_eq!(published_commands(&mut world), ["0 one", "0 two", "0 three"]);
    world.inject(0, depth_changed(0, 1, 2));
    let later = [(1, Bytes::from_static(b"two")), (1, Bytes::from_static(b"three"))];
    assert_eq!(late_joiner_messages(&world), later);
    assert_eq!(
        world.take_commands(1),
        ["publish /map 1 two", "publish /map 1 three", "forget /map 0"]
    );
    world.inject(0, kept_message(1, "four", 2));
    assert!(late_joiner_messages(&world).is_empty());
    assert_eq!(published_commands(&mut world), ["1 four"]);
    // If the messages are large, only the newest is repeated.
    let large = "large".repeat(20_000);
    world.inject(0, kept_message(1, &large, 2));
    published_commands(&mut world);
    world.inject(0, depth_changed(1, 0, 3));
    assert_eq!(late_joiner_messages(&world).len(), 1);
}

/// Gives the robot events that arrive while its codec is busy.
fn inject_all(world: &mut World, events: impl IntoIterator<Item = Event>) {
    let now = world.now;
    events.into_iter().for_each(|event| world.sides[0].on_local(now, event));
    world.run(SECOND);
}

#[test]
fn a_message_in_compression_is_kept_when_its_publisher_starts_to_keep_more() {
    for rule in ["", "compression: zstd"] {
        let mut world = world_with_reader(rule);
        world.inject(0, kept_message(0, "one", 1));
        let text = |source, text| kept_message(source, text, 1 + source);
        inject_all(
            &mut world,
            [text(0, "two"), text(0, "three"), depth_changed(0, 1, 2), text(1, "four")],
        );
        assert_eq!(published_commands(&mut world)[..3], ["0 one", "0 two", "0 three"]);
        rejoin(&mut world);
        assert_eq!(published_commands(&mut world), ["1 three", "1 four"]);
        // The number belongs to another publisher from now on.
        inject_all(&mut world, [text(0, "other")]);
        published_commands(&mut world);
        rejoin(&mut world);
        let mut kept = published_commands(&mut world);
        kept.sort();
        assert_eq!(kept, ["0 other", "1 four", "1 three"]);
    }
}

#[test]
fn a_message_in_compression_is_not_kept_when_its_publisher_leaves() {
    let gone = || Event::SourceGone { topic: "/map".into(), source: Source::local(0) };
    for rule in ["", "compression: zstd"] {
        let mut world = world_with_reader(rule);
        inject_all(&mut world, [kept_message(0, "one", 1), gone()]);
        assert_eq!(world.take_commands(1), ["publish /map 0 one", "forget /map 0"]);
        rejoin(&mut world);
        assert_eq!(published_commands(&mut world), [""; 0]);
        // The publisher is connected again.
        inject_all(&mut world, [kept_message(0, "two", 1), gone(), kept_message(0, "two", 1)]);
        published_commands(&mut world);
        rejoin(&mut world);
        assert_eq!(published_commands(&mut world), ["0 two"]);
    }
}

/// A message that was published before, and is known to be kept only now.
fn late_kept_message(text: &str, age: Duration) -> Event {
    let mut missed = repeated(0, text, age);
    if let Event::Message { origin, .. } = &mut missed
        && let Some(kept) = &mut origin.kept
    {
        kept.is_for_late_joiners = true;
    }
    missed
}

#[test]
fn a_message_later_recognised_as_kept_is_for_later_subscribers() {
    let mut world = world_with_reader("");
    world.inject(0, message_of("/map", 0, b"one", Origin::default()));
    assert_eq!(published_commands(&mut world), ["0 one"]);
    world.inject(0, late_kept_message("one", Duration::from_millis(1)));
    assert_eq!(late_joiner_messages(&world), [(0, Bytes::from_static(b"one"))]);
    assert_eq!(published_commands(&mut world), ["0 one"]);
    rejoin(&mut world);
    assert!(late_joiner_messages(&world).is_empty());
    assert_eq!(published_commands(&mut world), ["0 one"]);
}

#[test]
fn peers_without_a_message_get_it_when_it_is_recognised_as_kept() {
    let mut late = world_with_reader("");
    late.inject(0, late_kept_message("one", Duration::from_secs(3600)));
    assert!(late_joiner_messages(&late).is_empty(), "published before it subscribed");
    assert_eq!(published_commands(&mut late), ["0 one"]);
    let mut limited = world_with_reader("rate: 2Hz");
    for text in ["one", "two"] {
        limited.inject(0, message_of("/map", 0, text.as_bytes(), Origin::default()));
    }
    assert_eq!(published_commands(&mut limited), ["0 one"]);
    limited.inject(0, late_kept_message("two", Duration::ZERO));
    limited.run(SECOND);
    assert!(late_joiner_messages(&limited).is_empty(), "left out by the rate");
    assert_eq!(published_commands(&mut limited), ["0 two"]);
}

#[test]
fn under_a_rate_only_the_last_message_of_a_publisher_is_kept() {
    let mut world = world_with_reader("rate: 2Hz");
    for text in ["one", "two"] {
        world.inject(0, kept_message(0, text, 5));
        world.run(SECOND);
    }
    assert_eq!(published_commands(&mut world), ["0 one", "0 two"]);
    rejoin(&mut world);
    assert_eq!(published_commands(&mut world), ["0 two"]);
}

#[test]
fn under_a_rate_only_the_newest_of_repeated_messages_passes() {
    let mut world = world_with_reader("rate: 2Hz");
    for text in ["one", "two", "three"] {
        let mut message = repeated(0, text, SECOND);
        if let Event::Message { origin: Origin { kept: Some(kept), .. }, .. } = &mut message {
            kept.depth = 3;
        }
        world.sides[0].on_local(world.now, message);
    }
    world.run(Duration::from_millis(200));
    assert_eq!(published_commands(&mut world), ["0 three"]);
}

#[test]
fn the_lifespan_of_a_publisher_applies_without_one_of_its_topic() {
    let mut world = world_with_reader("");
    let lasting = |text: &str, lifespan| {
        let mut origin = kept_origin(1, 0, text.as_bytes());
        origin.lifespan = Some(lifespan);
        message_of("/map", 0, text.as_bytes(), origin)
    };
    world.inject(0, lasting("short", 2 * SECOND));
    world.inject(0, repeated(1, "long", Duration::ZERO));
    assert_eq!(published_commands(&mut world), ["0 short", "1 long"]);
    rejoin(&mut world);
    assert_eq!(published_commands(&mut world), ["1 long"]);
}

#[test]
fn the_lifespan_of_a_publisher_applies_only_to_its_messages() {
    // The publishers are volatile, or keep their messages. One rule ends no message earlier; the
    // other ends all.
    let mut left = Vec::new();
    for rule in ["keep_last: 50", "lifespan: 10min", "lifespan: 2s", "compression: zstd"] {
        let mut world = world_with_reader(rule);
        world.sides.iter_mut().for_each(|side| side.drops_incoming = true);
        let lifespans = [Some(5 * SECOND), None, Some(5 * SECOND), None];
        for (source, lifespan) in (0..).zip(lifespans) {
            let text = source.to_string();
            let origin = if source < 2 {
                Origin::default()
            } else {
                kept_origin(1, source, text.as_bytes())
            };
            let origin = Origin { lifespan, ..origin };
            world.inject(0, message_of("/map", source, text.as_bytes(), origin));
        }
        world.run(10 * SECOND);
        world.sides.iter_mut().for_each(|side| side.drops_incoming = false);
        world.run(OUTAGE);
        left.push(published_commands(&mut world).join(", "));
    }
    assert_eq!(left, ["1 1, 3 3", "1 1, 3 3", "", "1 1, 3 3"]);
}

#[test]
fn a_message_past_its_lifespan_reaches_nobody() {
    let mut world = world_with_reader("lifespan: 2s");
    world.inject(0, repeated(0, "fresh", SECOND));
    assert_eq!(published_commands(&mut world), ["0 fresh"]);
    world.inject(0, repeated(1, "old", 3 * SECOND));
    world.run(SECOND);
    assert!(published_commands(&mut world).is_empty());
    // A late joiner comes within the lifespan, then one after it.
    world.inject(0, repeated(0, "next", Duration::ZERO));
    assert_eq!(published_commands(&mut world), ["0 next"]);
    rejoin(&mut world);
    world.run(SECOND);
    assert!(published_commands(&mut world).is_empty());
}

#[test]
fn messages_of_a_publisher_that_left_are_forgotten_also_during_an_outage() {
    let mut world = world_with_reader("");
    for source in 0..3 {
        world.inject(0, repeated(source, &source.to_string(), Duration::ZERO));
    }
    world.run(PAST_UNSUBSCRIBE_DELAY);
    world.take_commands(1);
    let gone = |source| Event::SourceGone { topic: "/map".into(), source: Source::local(source) };
    world.inject(0, gone(1));
    assert_eq!(world.take_commands(1), ["forget /map 1"]);
    // The peer is given up, but the topic is still read for it.
    world.sides.iter_mut().for_each(|side| side.drops_incoming = true);
    world.run(13 * SECOND);
    world.inject(0, gone(0));
    world.sides.iter_mut().for_each(|side| side.drops_incoming = false);
    world.run(OUTAGE);
    assert_eq!(world.take_commands(1), ["forget /map 0"]);
}

#[test]
fn each_publisher_has_its_own_depth() {
    let mut world = world_with_reader("");
    world.inject(0, repeated(0, "kept", Duration::ZERO));
    world.inject(0, message("/map", 1, b"not kept"));
    let kept_of = |world: &World| {
        let sent = world.sides[1].commands.iter().filter_map(|it| match it {
            Command::Publish { origin, .. } => Some(origin.kept.is_some()),
            _ => None,
        });
        sent.collect::<Vec<_>>()
    };
    assert_eq!(kept_of(&world), [true, false]);
    published_commands(&mut world);
    rejoin(&mut world);
    assert_eq!(published_commands(&mut world), ["0 kept"]);
}

#[test]
fn the_depth_reported_by_a_peer_is_capped() {
    let mut world = world_with_reader("");
    world.inject(0, kept_message(0, "one", 3));
    world.inject(0, kept_message(0, "two", u32::MAX));
    let depths = world.sides[1].commands.iter().filter_map(|command| match command {
        Command::Publish { origin, .. } => origin.kept.map(|it| it.depth),
        _ => None,
    });
    assert_eq!(depths.collect::<Vec<_>>(), [3, crate::limits::HISTORY_DEPTH]);
}
