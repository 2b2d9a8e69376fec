// SPDX-License-Identifier: Apache-2.0
//! Tests of calls from one robot to another: each is made once, and answered or given up, whichever
//! robot restarts.

use super::*;
use tautline_gateway::Service;
use tautline_proto::ChannelId;

const SERVER: &str = "peers: { base: 10.0.0.2 }\nservices: { /switch: { timeout: 2s }, \"/arm/**\": {} }\n\
                      actions: { /go: {} }";
const CLIENT: &str = "peers: { robot: 10.0.0.1 }";

fn service(name: &str) -> Service {
    Service {
        name: name.into(),
        type_name: "std_srvs/SetBool".into(),
        type_hash: "09fb03525b03e7ea1fd3992bafd87e16".into(),
        // Without a definition, any bytes pass.
        definition: "".into(),
    }
}

fn defined_service(name: &str) -> Service {
    let definition = "bool data\n---\nbool success\nstring message\n".into();
    Service { definition, ..service(name) }
}

fn call_event(call: u64, request: &'static str) -> Event {
    Event::Called { service: "/switch".into(), call, request: request.into() }
}

fn answer_event(call: u64, outcome: Result<&'static str, &str>) -> Event {
    let outcome = outcome.map(Into::into).map_err(Into::into);
    Event::Answered { service: "/switch".into(), call, outcome }
}

/// The calls and responses among the commands to a node's gateway.
pub(super) fn commands(world: &mut World, side: usize) -> Vec<String> {
    let text = |bytes: &bytes::Bytes| String::from_utf8_lossy(bytes).into_owned();
    let line = |command: Command| match command {
        Command::Serve { service } => Some(format!("serve {} {}", service.name, service.type_name)),
        Command::Unserve { service } => Some(format!("unserve {service}")),
        Command::Call { service, call, request, time_limit, .. } => {
            Some(format!("call {service} {call} {} {time_limit:?}", text(&request)))
        }
        Command::Answer { service, call, outcome: Ok(response) } => {
            Some(format!("answer {service} {call} {}", text(&response)))
        }
        Command::Answer { service, call, outcome: Err(reason) } => {
            Some(format!("fail {service} {call} {reason}"))
        }
        _ => None,
    };
    std::mem::take(&mut world.sides[side].commands).into_iter().filter_map(line).collect()
}

fn world_with_service() -> World {
    let mut world = World::pair(SERVER, CLIENT);
    world.inject(0, Event::ServiceOffered(service("/switch")));
    assert_eq!(commands(&mut world, 1), ["serve /switch std_srvs/SetBool"]);
    world
}

#[test]
fn calls_are_forwarded_once_and_answered_in_any_order() {
    let mut world = world_with_service();
    world.inject(1, call_event(7, "first"));
    world.inject(1, call_event(8, "second"));
    let calls = commands(&mut world, 0);
    assert_eq!(calls, ["call /switch 1 first 2s", "call /switch 2 second 2s"]);
    world.inject(0, answer_event(2, Ok("to second")));
    world.inject(0, answer_event(1, Err("no such arm")));
    world.inject(0, answer_event(1, Ok("twice")));
    let answers = commands(&mut world, 1);
    assert_eq!(answers, ["answer /switch 8 to second", "fail /switch 7 no such arm"]);
    world.run(5 * SECOND);
    assert!(commands(&mut world, 0).is_empty() && commands(&mut world, 1).is_empty());
}

#[test]
fn unanswered_calls_fail_with_a_reason() {
    let mut world = world_with_service();
    world.inject(1, call_event(7, "x"));
    world.run(SECOND);
    assert!(commands(&mut world, 1).is_empty());
    world.run(2 * SECOND);
    let failed = commands(&mut world, 1);
    assert_eq!(failed, ["fail /switch 7 no response of /switch from 'robot' within 2 s"]);
    // The response is too late.
    world.inject(0, answer_event(1, Ok("done")));
    assert!(commands(&mut world, 1).is_empty());
    world.inject(1, Event::Called { service: "/other".into(), call: 9, request: "".into() });
    assert_eq!(commands(&mut world, 1), ["fail /other 9 no peer serves /other"]);
}

#[test]
fn a_server_that_leaves_fails_its_calls_and_is_found_again() {
    let mut world = world_with_service();
    world.inject(1, call_event(7, "x"));
    world.inject(0, Event::ServiceWithdrawn { service: "/switch".into() });
    assert_eq!(
        commands(&mut world, 1),
        ["fail /switch 7 the server of /switch at 'robot' has stopped", "unserve /switch"]
    );
    world.inject(0, Event::ServiceOffered(service("/switch")));
    assert_eq!(commands(&mut world, 1), ["serve /switch std_srvs/SetBool"]);
    commands(&mut world, 0);
    world.inject(1, call_event(8, "y"));
    assert_eq!(commands(&mut world, 0), ["call /switch 2 y 2s"]);
}

#[test]
fn only_configured_services_and_actions_are_offered() {
    let mut world = World::pair(SERVER, &format!("{CLIENT}\nros1: false"));
    for name in ["/secret", "/arm/lift", "/go/_action/send_goal", "/go/_action/get_result"] {
        world.inject(0, Event::ServiceOffered(service(name)));
    }
    let served = commands(&mut world, 1);
    let expected = ["/arm/lift", "/go/_action/send_goal", "/go/_action/get_result"];
    assert_eq!(served, expected.map(|name| format!("serve {name} std_srvs/SetBool")));
    world.inject(0, Event::Offered(topic("/go/_action/feedback", STRING)));
    assert_eq!(world.take_commands(1), [format!("advertise /go/_action/feedback {STRING}")]);
    // The result has no short timeout.
    let request = Event::Called { service: expected[2].into(), call: 1, request: "".into() };
    world.inject(1, request);
    world.run(600 * SECOND);
    assert!(commands(&mut world, 1).is_empty());
    let service = expected[2].into();
    world.inject(0, Event::Answered { service, call: 1, outcome: Ok("r".into()) });
    assert_eq!(commands(&mut world, 1), ["answer /go/_action/get_result 1 r"]);
}

#[test]
fn after_a_restart_old_calls_fail_and_new_calls_work() {
    let mut world = world_with_service();
    world.inject(1, call_event(7, "x"));
    commands(&mut world, 0);
    world.restart(0);
    world.inject(0, Event::ServiceOffered(service("/switch")));
    world.run(SECOND);
    assert_eq!(
        commands(&mut world, 1),
        ["fail /switch 7 'robot' has restarted", "serve /switch std_srvs/SetBool"]
    );
    world.inject(1, call_event(8, "y"));
    assert_eq!(commands(&mut world, 0), ["call /switch 1 y 2s"]);
    world.inject(0, answer_event(1, Ok("done")));
    assert_eq!(commands(&mut world, 1), ["answer /switch 8 done"]);
}

#[test]
fn a_second_server_replaces_the_first() {
    let robot = |name: &str| {
        format!("name: {name}\npeers: {{ base: 10.0.0.3 }}\nservices: {{ \"/**\": {{}} }}\n")
    };
    let base = "name: base\npeers:\n  r1: { address: 10.0.0.1, prefix: /r }\n  \
                r2: { address: 10.0.0.2, prefix: /r }\n";
    let mut world = World::new(&[&robot("r1"), &robot("r2"), base]);
    world.inject(0, Event::ServiceOffered(service("/switch")));
    world.inject(1, Event::ServiceOffered(service("/switch")));
    assert_eq!(commands(&mut world, 2)[0], "serve /r/switch std_srvs/SetBool");
    let call = |call| Event::Called { service: "/r/switch".into(), call, request: "x".into() };
    world.inject(2, call(1));
    assert_eq!(commands(&mut world, 0), ["call /switch 1 x 5s"]);
    world.inject(0, Event::ServiceWithdrawn { service: "/switch".into() });
    world.inject(2, call(2));
    assert_eq!(commands(&mut world, 1), ["call /switch 1 x 5s"]);
}

fn ros2_service() -> Service {
    Service {
        type_name: "std_srvs/srv/SetBool".into(),
        // The hash of std_srvs/srv/SetBool_Request in ROS 2.
        type_hash: "RIHS01_c62fbb99d94e1b25e8ef9e109f9581956bb1b3361a45a4e5810c36a90d29932e".into(),
        ..defined_service("/switch")
    }
}

#[test]
fn a_call_or_response_that_is_not_of_its_type_is_an_error_at_the_caller() {
    let mut world = World::pair(SERVER, CLIENT);
    world.inject(0, Event::ServiceOffered(defined_service("/switch")));
    assert_eq!(commands(&mut world, 1), ["serve /switch std_srvs/SetBool"]);
    world.inject(1, call_event(7, "\u{1}"));
    world.inject(1, call_event(8, "two"));
    assert_eq!(commands(&mut world, 0), ["call /switch 1 \u{1} 2s"]);
    let reason = "the request does not match std_srvs/SetBool: 2 bytes are left over at the end";
    assert_eq!(commands(&mut world, 1), [format!("fail /switch 8 /switch: {reason}")]);
    assert!(world.has_notice(0, &["'base' sent a malformed message: /switch", reason]));
    world.inject(0, answer_event(1, Ok("\u{1}\u{9}\0\0\0ok")));
    let told = commands(&mut world, 1);
    let reason =
        "the response does not match std_srvs/SetBool: message: 9 bytes wanted, 2 are left";
    assert_eq!(told, [format!("fail /switch 7 /switch: {reason}")]);
    assert!(world.has_notice(1, &["'robot' sent a malformed message: /switch", reason]));
    world.inject(1, call_event(9, "\u{1}"));
    world.inject(0, answer_event(3, Ok("\u{1}\u{2}\0\0\0ok")));
    assert_eq!(commands(&mut world, 1), ["answer /switch 9 \u{1}\u{2}\0\0\0ok"]);
    let malformed = [0, 1].map(|side| world.sides[side].topics.calls_malformed());
    assert_eq!(malformed, [1, 1]);
    assert!(world.sides.iter().all(|side| side.topics.unchecked().next().is_none()));
}

#[test]
fn services_without_a_definition_are_listed_as_not_checked() {
    let world = world_with_service();
    for (side, peer, words) in [(0, None, "not installed"), (1, Some(ONLY_PEER), "sent")] {
        let all: Vec<_> = world.sides[side].topics.unchecked().collect();
        assert_eq!((all.len(), all[0].peer, all[0].name), (1, peer, "/switch"));
        assert!(all[0].reason.contains(words), "{all:?}");
    }
}

#[test]
fn a_services_definition_of_another_hash_is_not_used() {
    let mut world = World::pair(&format!("ros2: true\n{SERVER}"), CLIENT);
    let definition = "float64 data\n---\nbool success\nstring message\n".into();
    world.inject(0, Event::ServiceOffered(Service { definition, ..ros2_service() }));
    assert!(commands(&mut world, 1).is_empty());
    assert!(world.has_notice(1, &["/switch", "std_srvs/srv/SetBool has the hash"]));
}

#[test]
fn a_service_of_ros_2_is_called_from_ros_1() {
    let mut world = World::pair(&format!("ros2: true\n{SERVER}"), CLIENT);
    let theirs = ros2_service();
    world.inject(0, Event::ServiceOffered(theirs));
    assert_eq!(commands(&mut world, 1), ["serve /switch std_srvs/SetBool"]);
    world.inject(1, call_event(7, "\u{1}"));
    assert_eq!(commands(&mut world, 0), ["call /switch 1 \0\u{1}\0\0\u{1} 2s"]);
    world.inject(0, answer_event(1, Ok("\0\u{1}\0\0\u{1}\0\0\0\u{3}\0\0\0ok\0")));
    assert_eq!(commands(&mut world, 1), ["answer /switch 7 \u{1}\u{2}\0\0\0ok"]);
    // A request that does not match the type reaches no server, and the caller gets an error.
    world.inject(1, call_event(8, "too long"));
    let failed = commands(&mut world, 1);
    assert!(
        failed[0].starts_with("fail /switch 8") && failed[0].contains("left over"),
        "{failed:?}"
    );
    assert!(commands(&mut world, 0).is_empty());
}

/// Returns a world in which the robot has served `services`, and has then started a new session.
/// The commands until then are discarded.
fn world_after_restart(services: &[&str]) -> World {
    let mut world = World::pair("peers: { base: 10.0.0.2 }\nservices: { \"/**\": {} }", CLIENT);
    for name in services {
        world.inject(0, Event::ServiceOffered(service(name)));
    }
    world.restart(0);
    world.run(2 * SECOND);
    commands(&mut world, 1);
    world
}

fn call_from_base(world: &mut World, name: &str, call: u64) {
    world.inject(1, Event::Called { service: name.into(), call, request: "x".into() });
}

#[test]
fn calls_and_responses_that_are_too_large_fail_with_both_sizes_and_the_key() {
    let robot =
        "peers: { base: 10.0.0.2 }\nservices: { \"/**\": {} }\nlimits: { max_message: 2kB }";
    let base = format!("{CLIENT}\nlimits: {{ max_message: 4kB }}");
    for (serving, calling) in
        [(robot.to_owned(), base.clone()), (robot.replace("2kB", "8kB"), base)]
    {
        let mut world = World::pair(&serving, &calling);
        world.inject(0, Event::ServiceOffered(service("/a")));
        world.run(SECOND);
        commands(&mut world, 1);
        let is_response = serving.contains("8kB");
        let size = if is_response { 1 } else { 3000 };
        let request = Bytes::from(vec![b'x'; size]);
        world.inject(1, Event::Called { service: "/a".into(), call: 1, request });
        world.run(SECOND);
        if is_response {
            let outcome = Ok(Bytes::from(vec![b'x'; 5000]));
            world.inject(0, Event::Answered { service: "/a".into(), call: 1, outcome });
        }
        world.run(6 * SECOND);
        let told = commands(&mut world, 1);
        let sizes =
            if is_response { ["5002", "4000", "'base'"] } else { ["3001", "2000", "'robot'"] };
        for word in sizes.into_iter().chain(["fail /a 1 ", "limits.max_message"]) {
            assert!(told[0].contains(word), "no '{word}' in {told:?}");
        }
        for side in [0, 1] {
            assert!(world.has_notice(side, &[sizes[0], sizes[1], sizes[2], "limits.max_message"]));
        }
        // The next call is served.
        call_from_base(&mut world, "/a", 2);
        let number = 1 + u64::from(is_response);
        assert_eq!(commands(&mut world, 0).last().unwrap(), &format!("call /a {number} x 5s"));
    }
}

#[test]
fn a_response_too_large_for_its_own_node_is_an_error_to_the_caller() {
    let robot =
        "peers: { base: 10.0.0.2 }\nservices: { \"/**\": {} }\nlimits: { max_message: 2kB }";
    let mut world = World::pair(robot, CLIENT);
    world.inject(0, Event::ServiceOffered(service("/a")));
    world.run(SECOND);
    call_from_base(&mut world, "/a", 1);
    commands(&mut world, 1);
    let outcome = Ok(Bytes::from(vec![b'x'; 2000]));
    world.inject(0, Event::Answered { service: "/a".into(), call: 1, outcome });
    world.run(SECOND);
    let told = commands(&mut world, 1);
    for word in ["fail /a 1 ", "2002 bytes", "2000", "limits.max_message"] {
        assert!(told[0].contains(word), "no '{word}' in {told:?}");
    }
}

#[test]
fn after_a_restart_in_another_order_each_call_reaches_its_own_service() {
    let mut world = world_after_restart(&["/a", "/b", "/c"]);
    // Each number belongs to another service now, and nobody serves /b any more.
    world.inject(0, Event::ServiceOffered(service("/c")));
    call_from_base(&mut world, "/c", 1);
    call_from_base(&mut world, "/a", 2);
    assert_eq!(commands(&mut world, 0), ["call /c 1 x 5s"], "/a is not /c");
    world.inject(0, Event::ServiceOffered(service("/a")));
    call_from_base(&mut world, "/a", 3);
    call_from_base(&mut world, "/b", 4);
    assert_eq!(commands(&mut world, 0), ["call /a 2 x 5s"], "/b is not /a");
    let told = commands(&mut world, 1);
    for line in ["fail /a 2 no peer serves /a", "fail /b 4 no peer serves /b", "unserve /b"] {
        assert!(told.iter().any(|told| told == line), "no '{line}' in {told:?}");
    }
    world.inject(0, Event::Answered { service: "/a".into(), call: 2, outcome: Ok("done".into()) });
    assert_eq!(commands(&mut world, 1), ["answer /a 3 done"]);
}

#[test]
fn a_service_continues_under_another_number_and_calls_wait_for_it() {
    let mut world = world_after_restart(&["/a", "/b"]);
    call_from_base(&mut world, "/b", 1);
    assert!(commands(&mut world, 0).is_empty(), "the robot does not serve it yet");
    world.inject(0, Event::ServiceOffered(service("/b")));
    assert_eq!(commands(&mut world, 0), ["call /b 1 x 5s"]);
    world.inject(0, Event::Answered { service: "/b".into(), call: 1, outcome: Ok("done".into()) });
    let told = commands(&mut world, 1);
    assert_eq!(told, ["unserve /a", "serve /b std_srvs/SetBool", "answer /b 1 done"]);
}

#[test]
fn a_service_that_is_found_again_long_after_a_restart_is_called_again() {
    let mut world = world_after_restart(&["/a"]);
    world.inject(0, Event::ServiceOffered(service("/a")));
    call_from_base(&mut world, "/a", 1);
    assert_eq!(commands(&mut world, 0), ["call /a 1 x 5s"]);
}

#[test]
fn call_channels_are_reused() {
    let channels = |world: &World| {
        let all = (0..100).map(ChannelId);
        all.filter(|id| world.sides[1].endpoint.peer(ONLY_PEER).channel_out(*id).is_some()).count()
    };
    let mut world = world_with_service();
    let before = channels(&world);
    let other = Service { type_hash: "other".into(), ..service("/switch") };
    world.inject(1, call_event(7, "x"));
    commands(&mut world, 0);
    for offered in [other, service("/switch"), service("/switch")] {
        world.inject(0, Event::ServiceOffered(offered));
        assert_eq!(channels(&world), before);
    }
    let told = commands(&mut world, 1);
    let gone = "fail /switch 7 the server of /switch at 'robot' has stopped";
    assert!(told.iter().any(|line| line == gone), "{told:?}");
    world.inject(1, call_event(8, "y"));
    assert_eq!(commands(&mut world, 0), ["call /switch 2 y 2s"]);
}

#[test]
fn a_topic_may_reuse_the_number_of_a_service() {
    let mut world = World::pair(
        "peers: { base: 10.0.0.2 }\nservices: { /a: {} }\ntopics: { \"/**\": {} }",
        CLIENT,
    );
    world.inject(0, Event::ServiceOffered(service("/a")));
    world.restart(0);
    world.run(2 * SECOND);
    world.inject(0, Event::Offered(topic("/scan", STRING)));
    world.wants(1, "/scan", true);
    world.take_commands(1);
    world.publishes(0, "/scan", 0, "hello");
    assert_eq!(world.take_commands(1), ["publish /scan 0 hello"]);
}

/// Returns a robot and a base. The robot's file has the keys `server` under the base; the base's
/// file has the keys `client` under the robot.
fn world_with_rights(server: &str, client: &str) -> World {
    let server = format!(
        "peers: {{ base: {{ address: 10.0.0.2{server} }} }}\n\
         services: {{ \"/**\": {{}} }}\nactions: {{ /go: {{}} }}"
    );
    let client = format!("ros1: false\npeers: {{ robot: {{ address: 10.0.0.1{client} }} }}");
    World::strict_pair(&server, &client)
}

fn missing_lines(world: &World, side: usize) -> Vec<String> {
    world.sides[side].shared.pending_requests().map(|(_, waiting)| waiting.line.clone()).collect()
}

#[test]
fn a_peer_may_call_only_configured_services() {
    let mut world = world_with_rights("", ", accept: \"/**\"");
    world.inject(0, Event::ServiceOffered(service("/switch")));
    assert_eq!(commands(&mut world, 1), ["serve /switch std_srvs/SetBool"]);
    assert_eq!(missing_lines(&world, 0), ["call: /switch"]);
    let words = ["/switch", "'base' may call it only", "peers.base: call: /switch"];
    assert!(world.has_notice(0, &words), "{:?}", world.notices(0));
    assert!(world.has_notice(1, &words), "{:?}", world.notices(1));
    world.inject(1, call_event(7, "x"));
    let failed = commands(&mut world, 1);
    assert!(failed[0].starts_with("fail /switch 7 'robot' refuses /switch"), "{failed:?}");
    assert!(commands(&mut world, 0).is_empty(), "no server hears of it");
}

#[test]
fn rights_for_an_action_use_its_name() {
    let parts = ["send_goal", "cancel_goal", "get_result"].map(|it| format!("/go/_action/{it}"));
    for accept in [", accept: /go", ", accept: { /go: std_srvs/SetBool }", ", prefix: /robot"] {
        let mut world = world_with_rights(", call: /go", accept);
        let under = if accept.contains("prefix") { "/robot" } else { "" };
        for name in &parts {
            world.inject(0, Event::ServiceOffered(service(name)));
            assert_eq!(commands(&mut world, 1), [format!("serve {under}{name} std_srvs/SetBool")]);
            let service = format!("{under}{name}");
            world.inject(1, Event::Called { service, call: 1, request: "x".into() });
            assert_eq!(commands(&mut world, 0).len(), 1, "{accept} {name}");
        }
        let feedback = topic("/go/_action/feedback", "std_srvs/SetBool_FeedbackMessage");
        world.inject(0, Event::Offered(feedback));
        let told = world.take_commands(1);
        assert!(told[0].starts_with(&format!("advertise {under}/go/_action/feedback")), "{told:?}");
        assert!(missing_lines(&world, 0).is_empty() && missing_lines(&world, 1).is_empty());
    }
    // Without rights, one missing line is reported for all three.
    let mut world = world_with_rights("", ", accept: /go");
    for name in &parts {
        world.inject(0, Event::ServiceOffered(service(name)));
    }
    assert_eq!(missing_lines(&world, 0), ["call: /go"; 3]);
    assert_eq!(world.notices(0).len(), 1);
}

#[test]
fn a_service_of_a_peer_needs_a_line() {
    let mut world = world_with_rights(", call: \"/**\"", "");
    world.inject(0, Event::ServiceOffered(service("/clear_costmaps")));
    assert!(commands(&mut world, 1).is_empty());
    let line = "accept: { /clear_costmaps: std_srvs/SetBool }";
    assert_eq!(missing_lines(&world, 1), [line]);
    let words = ["service /clear_costmaps", "'base' serves it only", line];
    assert!(world.has_notice(0, &words) && world.has_notice(1, &words), "{:?}", world.notices(1));
    for (keys, served) in [
        (", accept: /clear_costmaps", Some("serve /clear_costmaps std_srvs/SetBool")),
        (
            ", accept: { /clear_costmaps: std_srvs/srv/SetBool }",
            Some("serve /clear_costmaps std_srvs/SetBool"),
        ),
        (", accept: { /clear_costmaps: std_srvs/Empty }", None),
        (", accept: /other", None),
        (", prefix: /robot", Some("serve /robot/clear_costmaps std_srvs/SetBool")),
    ] {
        let mut world = world_with_rights(", call: \"/**\"", keys);
        world.inject(0, Event::ServiceOffered(service("/clear_costmaps")));
        assert_eq!(commands(&mut world, 1), served.into_iter().collect::<Vec<_>>(), "{keys}");
    }
}

/// Returns two bases of one robot. The first base makes more calls than it may.
fn world_with_two_bases() -> World {
    let robot = "name: robot\npeers: { a: 10.0.0.2, b: 10.0.0.3 }\nservices: { /switch: {} }\n";
    let base = |name: &str| format!("name: {name}\n{CLIENT}\n");
    let mut world = World::new(&[robot, &base("a"), &base("b")]);
    world.inject(0, Event::ServiceOffered(service("/switch")));
    commands(&mut world, 1);
    commands(&mut world, 2);
    world
}

#[test]
fn calls_of_one_peer_do_not_exclude_those_of_another() {
    use crate::limits::MAX_SERVING_PER_PEER as MOST;
    let mut world = world_with_two_bases();
    for call in 0..MOST as u64 + 10 {
        // The call bypasses the caller's own limits, because another implementation may have none.
        let now = world.now;
        let payload = [&call.to_le_bytes()[..1], b"x"].concat();
        let flood = tautline_proto::Message {
            payload: payload.into(),
            published: now,
            source: 0,
            encoded: false,
            lifespan: None,
        };
        let channel = (0..10).map(ChannelId).find(|id| {
            let found = world.sides[1].endpoint.peer(ONLY_PEER).channel_out(*id);
            found.is_some_and(|(config, ..)| config.topic.name == "/switch")
        });
        world.sides[1].endpoint.peer_mut(ONLY_PEER).send(now, channel.unwrap(), flood).unwrap();
        world.settle();
    }
    world.run(SECOND);
    assert_eq!(commands(&mut world, 0).len(), MOST);
    world.inject(2, call_event(1, "y"));
    assert_eq!(commands(&mut world, 0).len(), 1, "the other base is served");
}

#[test]
fn calls_to_one_peer_do_not_exclude_those_to_another() {
    use crate::limits::MAX_PENDING_PER_PEER as MOST;
    use crate::limits::MAX_PENDING_PER_SERVICE as OF_ONE;
    let robot = |name: &str| {
        format!("name: {name}\npeers: {{ base: 10.0.0.3 }}\nservices: {{ \"/**\": {{}} }}\n")
    };
    let base = "name: base\npeers:\n  r1: { address: 10.0.0.1, prefix: /r1 }\n  \
                r2: { address: 10.0.0.2, prefix: /r2 }\n";
    let mut world = World::new(&[&robot("r1"), &robot("r2"), base]);
    for robot in 0..2 {
        for name in ["/switch", "/door", "/lamp"] {
            world.inject(robot, Event::ServiceOffered(service(name)));
        }
    }
    let call = |name: &str, call| Event::Called { service: name.into(), call, request: "x".into() };
    let call_many = |world: &mut World, name: &str, calls: std::ops::Range<usize>| {
        for n in calls {
            let (now, side) = (world.now, &mut world.sides[2]);
            side.on_local(now, call(name, n as u64));
        }
    };
    call_many(&mut world, "/r1/switch", 0..OF_ONE);
    commands(&mut world, 2);
    world.inject(2, call("/r1/switch", 1000));
    let of_one = format!("fail /r1/switch 1000 {OF_ONE} calls of /r1/switch are under way already");
    assert_eq!(commands(&mut world, 2), [of_one]);
    call_many(&mut world, "/r1/door", OF_ONE..MOST);
    assert_eq!(commands(&mut world, 2), [""; 0], "another service of the peer has room");
    world.inject(2, call("/r1/lamp", 1001));
    let of_all = format!("fail /r1/lamp 1001 {MOST} calls to 'r1' are under way already");
    assert_eq!(commands(&mut world, 2), [of_all]);
    world.inject(2, call("/r2/switch", 1001));
    assert_eq!(commands(&mut world, 1).len(), 1);
}

#[test]
fn a_caller_waits_at_most_for_its_timeout() {
    let mut world = World::pair("peers: { base: 10.0.0.2 }", CLIENT);
    // A peer that advertises 49 days, which no file allows.
    let config = tautline_proto::ChannelConfig {
        topic: tautline_proto::OfferedTopic {
            name: "/switch".into(),
            type_name: "std_srvs/SetBool".into(),
            type_hash: "h".into(),
            priority: 100,
            keep_last: 1,
            lifespan: Some(49 * 24 * 3600 * SECOND),
            qos: tautline_proto::OfferedQos::default(),
            role: tautline_proto::Role::Answers,
            order: tautline_proto::DeliveryOrder::Arrival,
        },
        definition: "---\n".into(),
        repair: true,
        thin: false,
        fec: None,
        links: tautline_proto::LinkUse::default(),
    };
    let now = world.now;
    world.sides[0].endpoint.peer_mut(ONLY_PEER).offer(now, config).unwrap();
    world.run(SECOND);
    assert_eq!(commands(&mut world, 1), ["serve /switch std_srvs/SetBool"]);
    world.inject(1, call_event(7, "x"));
    world.run(601 * SECOND);
    assert_eq!(
        commands(&mut world, 1),
        ["fail /switch 7 no response of /switch from 'robot' within 600 s"]
    );
}

#[test]
fn calls_count_for_a_peers_rate() {
    let mut world = World::pair(
        "peers: { base: { address: 10.0.0.2, max_rate: 8kbps } }\nservices: { /switch: {} }",
        CLIENT,
    );
    world.inject(0, Event::ServiceOffered(service("/switch")));
    for call in 0..4 {
        // In a tenth of a second, the bucket gains 100 bytes.
        world.inject(1, call_event(call, "x".repeat(450).leak()));
    }
    assert_eq!(commands(&mut world, 0).len(), 2);
    assert_eq!(world.sides[0].topics.calls_over_rate(), 2);
    assert!(world.has_notice(1, &["/switch", "8 kbps", "peers.base.max_rate"]));
}
