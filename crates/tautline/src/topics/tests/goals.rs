// SPDX-License-Identifier: Apache-2.0
//! Tests of goals of actions in outages and restarts: they are cancelled, refused or answered.

use super::services::commands;
use super::*;
use crate::limits::MAX_PENDING_PER_PEER;
use tautline_gateway::Service;

const SERVER: &str = "ros2: true\npeers: { base: { address: 10.0.0.2, max_priority: 150 } }\n\
                      services: { /slow: { timeout: 10min } }\nactions: { /go: {} }";
const CLIENT: &str = "ros2: true\npeers: { robot: { address: 10.0.0.1, max_priority: 150 } }";

const GOAL: &str = "/go/_action/send_goal";
const CANCEL: &str = "/go/_action/cancel_goal";
const RESULT: &str = "/go/_action/get_result";

/// A ROS 2 request about the goal with this id of 16 bytes.
fn request(goal: &[u8; 16], rest: &[u8]) -> Bytes {
    [&[0, 1, 0, 0], &goal[..], rest].concat().into()
}

const ONE: &[u8; 16] = b"goal-number-one!";

fn call_service(world: &mut World, service: &str, call: u64, request: Bytes) {
    world.inject(1, Event::Called { service: service.into(), call, request });
}

fn cancel_goal(world: &mut World, goal: &[u8; 16], call: u64) {
    call_service(world, CANCEL, call, request(goal, &[0; 8]));
}

fn answer_call(world: &mut World, service: &str, call: u64, response: &'static str) {
    let outcome = Ok(response.into());
    world.inject(0, Event::Answered { service: service.into(), call, outcome });
}

fn offer_services(world: &mut World) {
    for (name, type_name) in [
        (GOAL, "a/action/Go_SendGoal"),
        (CANCEL, "action_msgs/srv/CancelGoal"),
        (RESULT, "a/action/Go_GetResult"),
        ("/slow", "std_srvs/srv/Empty"),
    ] {
        world.inject(
            0,
            Event::ServiceOffered(Service {
                name: name.into(),
                type_name: type_name.into(),
                type_hash: String::new(),
                definition: "".into(),
            }),
        );
    }
}

fn world_with_action() -> World {
    let mut world = World::pair(SERVER, CLIENT);
    offer_services(&mut world);
    world.run(SECOND);
    assert_eq!(commands(&mut world, 1).len(), 4);
    world
}

fn cut_link(world: &mut World, is_cut: bool) {
    world.sides.iter_mut().for_each(|side| side.drops_incoming = is_cut);
}

/// Returns the calls that a node's gateway was ordered to make: each service with the first line of
/// the request.
fn server_calls(world: &mut World, side: usize) -> Vec<String> {
    let lines = commands(world, side).into_iter().filter(|line| line.starts_with("call "));
    lines.map(|line| line.split('\0').collect::<Vec<_>>().join("").replace('\u{1}', "")).collect()
}

#[test]
fn a_cancellation_is_kept_during_an_outage() {
    let mut world = world_with_action();
    cut_link(&mut world, true);
    world.run(SECOND);
    cancel_goal(&mut world, ONE, 7);
    world.run(20 * SECOND);
    assert!(commands(&mut world, 1).is_empty(), "it is not given up");
    cut_link(&mut world, false);
    world.run(3 * SECOND);
    assert_eq!(server_calls(&mut world, 0), [format!("call {CANCEL} 1 goal-number-one! 86400s")]);
    answer_call(&mut world, CANCEL, 1, "cancelling");
    assert_eq!(commands(&mut world, 1), [format!("answer {CANCEL} 7 cancelling")]);
}

#[test]
fn a_goal_that_is_refused_after_an_outage_never_starts() {
    let mut world = world_with_action();
    cut_link(&mut world, true);
    call_service(&mut world, GOAL, 7, request(ONE, b"far"));
    world.run(8 * SECOND);
    let failed = commands(&mut world, 1);
    assert_eq!(failed, [format!("fail {GOAL} 7 no response of {GOAL} from 'robot' within 5 s")]);
    cut_link(&mut world, false);
    world.run(3 * SECOND);
    // As far as the client's robot knows, the server may have accepted the goal.
    assert_eq!(server_calls(&mut world, 0), [format!("call {CANCEL} 1 goal-number-one! 86400s")]);
    answer_call(&mut world, CANCEL, 1, "unknown");
    world.run(SECOND);
    assert!(commands(&mut world, 1).is_empty(), "no client asked for this");
}

#[test]
fn a_goal_whose_response_is_late_is_cancelled() {
    let mut world = world_with_action();
    call_service(&mut world, GOAL, 7, request(ONE, b"far"));
    assert_eq!(server_calls(&mut world, 0), [format!("call {GOAL} 1 goal-number-one!far 5s")]);
    world.run(6 * SECOND);
    assert!(commands(&mut world, 1)[0].starts_with(&format!("fail {GOAL} 7")));
    assert_eq!(server_calls(&mut world, 0), [format!("call {CANCEL} 2 goal-number-one! 86400s")]);
    answer_call(&mut world, GOAL, 1, "accepted");
    assert!(commands(&mut world, 1).is_empty());
}

#[test]
fn after_a_restart_of_the_robot_pending_goal_calls_are_repeated() {
    let mut world = world_with_action();
    call_service(&mut world, RESULT, 1, request(ONE, b""));
    cancel_goal(&mut world, ONE, 2);
    cancel_goal(&mut world, &[0; 16], 3);
    call_service(&mut world, GOAL, 4, request(b"goal-number-two!", b"far"));
    assert_eq!(server_calls(&mut world, 0).len(), 4);
    world.restart(0);
    world.run(SECOND);
    let ended = commands(&mut world, 1);
    let restarted = |service, call| format!("fail {service} {call} 'robot' has restarted");
    // Cancelling all goals again would also end later goals.
    assert_eq!(ended, [restarted(CANCEL, 3), restarted(GOAL, 4)]);
    offer_services(&mut world);
    world.run(SECOND);
    let mut again = server_calls(&mut world, 0);
    again.iter_mut().for_each(|line| *line = line.replace(char::is_numeric, ""));
    again.sort();
    let (one, two) = ("goal-number-one!", "goal-number-two!");
    let expected = [(CANCEL, one), (CANCEL, two), (RESULT, one)]
        .map(|(it, goal)| format!("call {it}  {goal} s"));
    assert_eq!(again, expected);
    let call = |service: &str| Event::Answered {
        service: service.into(),
        call: 3,
        outcome: Ok("there".into()),
    };
    world.inject(0, call(RESULT));
    assert!(commands(&mut world, 1).iter().any(|line| *line == format!("answer {RESULT} 1 there")));
}

#[test]
fn a_result_request_is_repeated_when_its_server_returns() {
    let mut world = world_with_action();
    call_service(&mut world, RESULT, 1, request(ONE, b""));
    assert_eq!(server_calls(&mut world, 0).len(), 1);
    for name in [GOAL, CANCEL, RESULT] {
        world.inject(0, Event::ServiceWithdrawn { service: name.into() });
    }
    world.run(60 * SECOND);
    let ended = commands(&mut world, 1);
    assert_eq!(ended, [GOAL, CANCEL, RESULT].map(|name| format!("unserve {name}")));
    offer_services(&mut world);
    world.run(SECOND);
    assert_eq!(server_calls(&mut world, 0), [format!("call {RESULT} 2 goal-number-one! 86400s")]);
    answer_call(&mut world, RESULT, 2, "there");
    assert_eq!(commands(&mut world, 1).last().unwrap(), &format!("answer {RESULT} 1 there"));
}

fn interrupt_call(world: &mut World, service: &str, call: u64, request: Bytes) {
    world.inject(1, Event::Interrupted { service: service.into(), call, request });
}

#[test]
fn goal_calls_are_answered_after_the_client_robot_restarts() {
    let mut world = world_with_action();
    interrupt_call(&mut world, RESULT, 1, request(ONE, b""));
    interrupt_call(&mut world, CANCEL, 2, request(ONE, &[0; 8]));
    let first = |service, id| format!("call {service} {id} goal-number-one! 86400s");
    assert_eq!(server_calls(&mut world, 0), [first(RESULT, 1), first(CANCEL, 2)]);
    answer_call(&mut world, RESULT, 1, "there");
    answer_call(&mut world, CANCEL, 2, "cancelling");
    let answered = [format!("answer {RESULT} 1 there"), format!("answer {CANCEL} 2 cancelling")];
    assert_eq!(commands(&mut world, 1), answered);

    // A cancellation of several goals may already have been executed.
    interrupt_call(&mut world, CANCEL, 3, request(&[0; 16], &[0; 8]));
    assert_eq!(commands(&mut world, 1), [format!("fail {CANCEL} 3 'base' has restarted")]);

    // The goal is refused and cancelled once the server's robot no longer has its call.
    interrupt_call(&mut world, GOAL, 4, request(ONE, b""));
    world.run(4 * SECOND);
    assert!(commands(&mut world, 1).is_empty() && server_calls(&mut world, 0).is_empty());
    world.run(2 * SECOND);
    let failed = format!("fail {GOAL} 4 no response of {GOAL} from 'robot' within 5 s");
    assert_eq!(commands(&mut world, 1), [failed]);
    assert_eq!(server_calls(&mut world, 0), [first(CANCEL, 3)]);
}

#[test]
fn a_result_request_is_repeated_after_an_error() {
    let mut world = world_with_action();
    call_service(&mut world, RESULT, 1, request(ONE, b""));
    let outcome = Err("the server left before it answered".into());
    world.inject(0, Event::Answered { service: RESULT.into(), call: 1, outcome });
    assert!(world.has_notice(1, &[RESULT, "'robot'", "again", "the server left"]));
    world.sweep(1);
    world.run(SECOND);
    let again = [1, 2].map(|call| format!("call {RESULT} {call} goal-number-one! 86400s"));
    assert_eq!(server_calls(&mut world, 0), again);
    answer_call(&mut world, RESULT, 2, "unknown");
    assert_eq!(commands(&mut world, 1), [format!("answer {RESULT} 1 unknown")]);
}

#[test]
fn a_cancellation_precedes_other_calls() {
    let mut world = world_with_action();
    for call in 1..MAX_PENDING_PER_PEER as u64 {
        let service = if call % 2 == 0 { "/slow" } else { RESULT };
        call_service(&mut world, service, call, request(ONE, b""));
    }
    assert_eq!(server_calls(&mut world, 0).len(), MAX_PENDING_PER_PEER - 1);
    cut_link(&mut world, true);
    call_service(&mut world, "/slow", 100, Bytes::new());
    cancel_goal(&mut world, ONE, 101);
    cut_link(&mut world, false);
    world.run(2 * SECOND);
    let calls = server_calls(&mut world, 0);
    assert!(calls[0].starts_with(&format!("call {CANCEL} ")), "{calls:?}");
    assert!(calls[1].starts_with("call /slow "), "{calls:?}");
    assert!(world.notices(0).is_empty() && world.notices(1).is_empty());
}
