// SPDX-License-Identifier: Apache-2.0
//! Goals from one kind of ROS at servers of the other: every end that a goal can have, and what a
//! client learns when the other side is gone.

use super::messages::{
    self, GoalId, GoalState, GoalStatus, Stamp, cancel, goal_id, goal_id_to_uuid, ros1, ros2,
};
use super::names::ServicePart;
use super::offered::{self, Call, OfferedAction};
use super::served::{self, ServedAction};
use super::*;
use crate::types::Schema;
use crate::types::action::Uuid;
use crate::{CallId, Outcome};
use bytes::Bytes;
use std::time::Duration;

const ROBOT: &str = "robot";
const UUID: [u8; 16] = [7; 16];
const PATIENCE: Duration = Duration::from_secs(4);
const SERVER: Source = Source::local(3);
const STAMP: Stamp = Stamp { secs: 100, nanos: 5 };

fn names() -> ActionNames {
    ActionNames::from_ros2_name("/fib/_action/status").unwrap()
}

fn types() -> ActionType {
    let texts = ["int32 order\n", "int32[] sequence\n", "int32[] sequence\n"];
    let parse = |text| Schema::parse("test_msgs/X", text, Dialect::Ros1).ok();
    ActionType::new("test_msgs/Fibonacci", Parts(texts.map(parse)), Parts::default()).unwrap()
}

/// The common start of all times of a test.
struct Clock(Instant);

impl Clock {
    fn at(&self, seconds: f64) -> Moment {
        let stamp = Stamp { secs: 1000 + seconds as u32, nanos: 0 };
        Moment { now: self.0 + Duration::from_secs_f64(seconds), stamp }
    }
}

/// What the outputs since the last call did, in words.
fn drain_outputs(out: &mut Outputs) -> Vec<String> {
    std::mem::take(&mut out.pending).into_iter().filter_map(format_output).collect()
}

fn format_output(output: Output) -> Option<String> {
    Some(match output {
        Output::Command(Command::Publish { topic, payload, .. }) => match &*topic {
            "/fib/goal" => {
                let (id, goal) = messages::read_goal(&payload).unwrap();
                format!("goal {} {goal:?}", id.id)
            }
            "/fib/cancel" => {
                let cancel = messages::read_cancel(&payload).unwrap();
                format!("cancel '{}' {}", cancel.id, cancel.stamp.secs)
            }
            "/fib/status" => {
                let all = messages::read_statuses(&payload).unwrap();
                let each = all.iter().map(|it| format!("{}={}", it.goal.id, it.status));
                format!("status {}", each.collect::<Vec<_>>().join(" "))
            }
            _ => {
                let (status, part) = messages::read_report(&payload).unwrap();
                let text = if status.text.is_empty() { "" } else { " with text" };
                format!("{topic} {}={} {part:?}{text}", status.goal.id, status.status)
            }
        },
        Output::Event(Event::Answered { service, call, outcome }) => {
            let part = service.rsplit('/').next().unwrap_or_default();
            let response = outcome.map(|bytes| match part {
                "send_goal" => format!("{}", messages::read_accepted(&bytes).unwrap()),
                "cancel_goal" => format!("{} of {}", bytes[4], bytes[8]),
                _ => format!("{:?}", types().result_to_ros1(&bytes).unwrap()),
            });
            format!("answer {call} {}", response.unwrap_or_else(|reason| reason))
        }
        Output::Event(Event::Called { service, call, request }) => {
            let part = service.rsplit('/').next().unwrap_or_default();
            format!("call {} {part} {}", call - FIRST_CALL, request.len())
        }
        Output::Event(Event::Message { topic, payload, .. }) => {
            let states = messages::read_states(&payload);
            match topic.ends_with("status") {
                true => {
                    let each = states.unwrap().into_iter();
                    let each = each.map(|it| format!("{}={}", it.uuid[0], it.status));
                    format!("states {}", each.collect::<Vec<_>>().join(" "))
                }
                false => format!("feedback {:?}", &payload[20..]),
            }
        }
        _ => return None,
    })
}

/// An actionlib server that peers call.
struct Server {
    clock: Clock,
    action: OfferedAction,
    out: Outputs,
}

impl Server {
    fn new() -> Self {
        let (clock, mut out) = (Clock(Instant::now()), Outputs::default());
        let mut action = OfferedAction::new(names(), ROBOT, types());
        action.start(&mut out);
        action.on_connected(clock.at(0.0), true, &mut out);
        out.pending.clear();
        Self { clock, action, out }
    }

    fn call(&mut self, seconds: f64, peer: u32, part: ServicePart, call: CallId, request: Bytes) {
        let call = Call { peer, part, call, request, time_limit: PATIENCE };
        self.action.on_call(self.clock.at(seconds), call, &mut self.out);
    }

    fn send(&mut self, seconds: f64, peer: u32, call: CallId, uuid: Uuid) -> Vec<String> {
        let request = types().to_ros2(Part::Goal, uuid, &5i32.to_le_bytes()).unwrap();
        self.call(seconds, peer, ServicePart::SendGoal, call, request.into());
        drain_outputs(&mut self.out)
    }

    fn cancel(&mut self, seconds: f64, call: CallId, uuid: Uuid, stamp: Stamp) -> Vec<String> {
        let request = messages::cancel_request(uuid, stamp);
        self.call(seconds, 0, ServicePart::CancelGoal, call, request);
        drain_outputs(&mut self.out)
    }

    fn ask(&mut self, seconds: f64, call: CallId, uuid: Uuid) -> Vec<String> {
        self.call(seconds, 0, ServicePart::GetResult, call, messages::result_request(uuid));
        drain_outputs(&mut self.out)
    }

    fn status(&mut self, seconds: f64, goals: &[(Uuid, u8)]) -> Vec<String> {
        let all: Vec<_> = goals.iter().map(|(uuid, status)| goal_status(*uuid, *status)).collect();
        let message = messages::status_message(1, STAMP, &all);
        self.action.on_status(self.clock.at(seconds), SERVER, &message, &mut self.out);
        drain_outputs(&mut self.out)
    }

    fn result(&mut self, seconds: f64, uuid: Uuid, status: u8) -> Vec<String> {
        let result = [1, 0, 0, 0, 9, 0, 0, 0];
        let message = messages::report_message(1, STAMP, &goal_status(uuid, status), &result);
        self.action.on_result(self.clock.at(seconds), SERVER, &message, &mut self.out);
        drain_outputs(&mut self.out)
    }

    fn pass(&mut self, seconds: f64) -> Vec<String> {
        let at = self.clock.at(seconds);
        assert!(self.action.next_timeout().is_some_and(|due| due <= at.now), "nothing is due");
        self.action.handle_timeout(at, &mut self.out);
        drain_outputs(&mut self.out)
    }
}

fn goal_status(uuid: Uuid, status: u8) -> GoalStatus {
    GoalStatus { goal: GoalId { stamp: STAMP, id: goal_id(uuid) }, status, text: String::new() }
}

const RESULT: &str = "[1, 0, 0, 0, 9, 0, 0, 0]";

#[test]
fn a_ros_2_goal_is_accepted_executed_and_gets_its_result() {
    let mut server = Server::new();
    let sent = server.send(0.0, 0, 1, UUID);
    assert_eq!(sent, [format!("goal {} [5, 0, 0, 0]", goal_id(UUID))]);
    assert!(server.status(0.1, &[(UUID, ros1::PENDING)]).is_empty(), "it may be rejected still");
    assert_eq!(server.status(0.2, &[(UUID, ros1::ACTIVE)]), ["answer 1 true"]);
    assert!(server.ask(0.3, 2, UUID).is_empty());
    assert_eq!(server.result(1.0, UUID, ros1::SUCCEEDED), [format!("answer 2 (4, {RESULT})")]);
    assert_eq!(server.ask(800.0, 3, UUID), [format!("answer 3 (4, {RESULT})")], "it is kept");
    server.status(900.0, &[]);
    server.pass(1000.0);
    assert_eq!(server.ask(1000.0, 4, UUID), ["answer 4 (0, [0, 0, 0, 0])"], "for a time");
}

#[test]
fn each_final_state_of_ros_1_has_one_in_ros_2() {
    for (status, end) in [
        (ros1::SUCCEEDED, ros2::SUCCEEDED),
        (ros1::PREEMPTED, ros2::CANCELED),
        (ros1::RECALLED, ros2::CANCELED),
        (ros1::ABORTED, ros2::ABORTED),
        // Rejected after the goal was accepted.
        (ros1::REJECTED, ros2::ABORTED),
    ] {
        let mut server = Server::new();
        server.send(0.0, 0, 1, UUID);
        server.status(0.1, &[(UUID, ros1::ACTIVE)]);
        server.ask(0.2, 2, UUID);
        assert_eq!(server.result(1.0, UUID, status), [format!("answer 2 ({end}, {RESULT})")]);
    }
}

#[test]
fn a_goal_that_stays_pending_is_accepted_and_a_rejected_goal_is_not() {
    let mut server = Server::new();
    server.send(0.0, 0, 1, UUID);
    server.status(0.1, &[(UUID, ros1::PENDING)]);
    assert_eq!(server.result(0.2, UUID, ros1::REJECTED), ["answer 1 false"]);
    server.send(1.0, 0, 2, [8; 16]);
    server.status(1.1, &[([8; 16], ros1::PENDING)]);
    assert_eq!(server.pass(2.2), ["answer 2 true"]);
    assert_eq!(server.send(3.0, 0, 3, [8; 16]), ["answer 3 false"], "it is known");
}

#[test]
fn a_goal_that_no_server_accepts_is_rejected_and_recalled() {
    let mut server = Server::new();
    server.send(0.0, 0, 1, UUID);
    let given_up = server.pass(3.1);
    assert_eq!(given_up, [format!("cancel '{}' 0", goal_id(UUID)), "answer 1 false".into()]);
    // Without a connection it is sent later, or never.
    let at = server.clock.at(4.0);
    server.action.on_connected(at, false, &mut server.out);
    assert!(server.send(4.0, 0, 2, [8; 16]).is_empty());
    assert!(server.send(6.0, 0, 3, [9; 16]).is_empty());
    assert_eq!(server.pass(7.1), ["answer 2 false"]);
    let at = server.clock.at(7.2);
    server.action.on_connected(at, true, &mut server.out);
    assert_eq!(drain_outputs(&mut server.out), [format!("goal {} [5, 0, 0, 0]", goal_id([9; 16]))]);
}

#[test]
fn the_answer_to_a_cancel_request_follows_the_server() {
    let mut server = Server::new();
    for (call, uuid) in [(1, [1; 16]), (2, [2; 16]), (3, [3; 16])] {
        server.send(0.0, 0, call, uuid);
    }
    let active = [1, 2, 3].map(|it| ([it; 16], ros1::ACTIVE));
    server.status(0.1, &active);
    let sent = server.cancel(1.0, 11, [1; 16], Stamp::ZERO);
    assert_eq!(sent, [format!("cancel '{}' 0", goal_id([1; 16]))]);
    let listed = [([1; 16], ros1::PREEMPTING), active[1], active[2]];
    assert_eq!(server.status(1.1, &listed), ["answer 11 0 of 1"]);
    // A server that continues the goal refuses; one that ends it otherwise reports that.
    server.cancel(2.0, 12, [2; 16], Stamp::ZERO);
    assert_eq!(server.pass(5.1), ["answer 12 1 of 0"]);
    server.cancel(6.0, 13, [2; 16], Stamp::ZERO);
    assert_eq!(server.result(6.1, [2; 16], ros1::SUCCEEDED), ["answer 13 3 of 0"]);
    assert_eq!(server.cancel(7.0, 14, [2; 16], Stamp::ZERO), ["answer 14 3 of 0"]);
    assert_eq!(server.cancel(7.0, 15, [99; 16], Stamp::ZERO), ["answer 15 2 of 0"]);
    // All goals, and all until a time.
    assert_eq!(server.cancel(8.0, 16, [0; 16], Stamp::ZERO)[0], "cancel '' 0");
    assert_eq!(server.status(8.1, &[([3; 16], ros1::PREEMPTED)]), ["answer 16 0 of 2"]);
    let until = server.cancel(9.0, 17, [0; 16], STAMP);
    assert_eq!(until, ["cancel '' 100", "answer 17 3 of 0"]);
}

#[test]
fn goals_missing_at_the_server_are_aborted() {
    let mut server = Server::new();
    server.send(0.0, 0, 1, UUID);
    server.status(0.1, &[(UUID, ros1::ACTIVE)]);
    server.ask(0.2, 2, UUID);
    let aborted = "answer 2 (6, [0, 0, 0, 0])";
    assert_eq!(server.status(5.0, &[]), [aborted], "a server that has restarted");

    let mut server = Server::new();
    server.send(0.0, 0, 1, UUID);
    server.status(0.1, &[(UUID, ros1::ACTIVE)]);
    server.ask(0.2, 2, UUID);
    server.action.on_source_gone(server.clock.at(1.0), SERVER);
    server.status(2.0, &[(UUID, ros1::ACTIVE)]);
    server.action.on_source_gone(server.clock.at(3.0), SERVER);
    assert_eq!(server.pass(8.1), [aborted], "its connection returned once, but not twice");

    let mut server = Server::new();
    server.send(0.0, 0, 1, UUID);
    server.send(0.0, 0, 3, [8; 16]);
    server.status(0.1, &[(UUID, ros1::ACTIVE)]);
    server.ask(0.2, 2, UUID);
    let (at, mut out) = (server.clock.at(1.0), Outputs::default());
    server.action.stop(at, &mut out);
    assert_eq!(drain_outputs(&mut out), [aborted, "answer 3 false"], "a server that has left");
}

#[test]
fn a_restarted_daemon_recognises_the_goals_of_its_server() {
    let mut server = Server::new();
    server.status(0.0, &[(UUID, ros1::ACTIVE)]);
    assert!(server.ask(1.0, 1, UUID).is_empty());
    assert_eq!(server.cancel(1.0, 2, UUID, Stamp::ZERO).len(), 1);
    let canceled = server.result(2.0, UUID, ros1::PREEMPTED);
    assert_eq!(canceled, [format!("answer 1 (5, {RESULT})"), "answer 2 0 of 1".into()]);
    assert_eq!(server.ask(3.0, 3, [9; 16]), ["answer 3 (0, [0, 0, 0, 0])"]);
}

#[test]
fn peers_get_changed_states_and_feedback_while_subscribed() {
    let mut server = Server::new();
    let report = messages::report_message(1, STAMP, &goal_status(UUID, ros1::ACTIVE), &[0; 4]);
    let at = server.clock.at(0.0);
    server.action.on_feedback(at, SERVER, &report, &mut server.out);
    assert!(drain_outputs(&mut server.out).is_empty());
    for topic in names().ros2_topics() {
        server.action.on_wanted(&topic, true, &mut server.out);
    }
    assert_eq!(drain_outputs(&mut server.out), ["states "], "the last states, as for late joiners");
    assert_eq!(server.status(0.1, &[(UUID, ros1::ACTIVE)]), ["states 7=2"]);
    assert!(server.status(0.3, &[(UUID, ros1::ACTIVE)]).is_empty());
    assert_eq!(server.status(0.5, &[(UUID, ros1::PREEMPTING)]), ["states 7=3"]);
    server.action.on_feedback(at, SERVER, &report, &mut server.out);
    assert_eq!(drain_outputs(&mut server.out), ["feedback [0, 0, 0, 0]"]);
}

#[test]
fn a_flood_from_one_peer_spares_others() {
    let mut server = Server::new();
    let uuid = |number: u64| {
        let mut uuid = [1; 16];
        uuid[..8].copy_from_slice(&number.to_le_bytes());
        uuid
    };
    let most = offered::MAX_GOALS_PER_PEER as u64;
    for number in 0..most {
        assert_eq!(server.send(0.0, 0, number, uuid(number)).len(), 1);
    }
    assert_eq!(server.send(0.0, 0, 999, uuid(999)), ["answer 999 false"]);
    assert!(server.send(0.0, 1, 1000, uuid(1000))[0].starts_with("goal"));
    server.result(1.0, uuid(3), ros1::SUCCEEDED);
    assert!(server.send(1.1, 0, 1001, uuid(1001))[0].starts_with("goal"), "an ended one goes");
    // Other bytes are an error, and no panic.
    server.call(2.0, 0, ServicePart::SendGoal, 1, Bytes::from_static(&[0, 1, 0, 0, 1]));
    server.call(2.0, 0, ServicePart::CancelGoal, 2, Bytes::new());
    server.call(2.0, 0, ServicePart::GetResult, 3, Bytes::from_static(&[9; 40]));
    assert_eq!(drain_outputs(&mut server.out).len(), 3);
    server.action.on_status(server.clock.at(2.0), SERVER, &[255; 99], &mut server.out);
    server.action.on_result(server.clock.at(2.0), SERVER, &[255; 99], &mut server.out);
}

/// A peer's server that actionlib clients use.
struct Client {
    clock: Clock,
    action: ServedAction,
    out: Outputs,
}

impl Client {
    fn new() -> Self {
        let (clock, mut out) = (Clock(Instant::now()), Outputs::default());
        let action = ServedAction::new(clock.at(0.0), names(), ROBOT, types());
        action.start(&mut out);
        out.pending.clear();
        Self { clock, action, out }
    }

    fn send(&mut self, seconds: f64, id: &str) -> Vec<String> {
        let stamp = Stamp { secs: seconds as u32 + 1, nanos: 0 };
        let goal = GoalId { stamp, id: id.into() };
        let message = messages::goal_message(1, stamp, &goal, &5i32.to_le_bytes());
        self.action.on_goal(self.clock.at(seconds), &message, &mut self.out);
        drain_outputs(&mut self.out)
    }

    fn cancel(&mut self, seconds: f64, id: &str, secs: u32) -> Vec<String> {
        let goal = GoalId { stamp: Stamp { secs, nanos: 0 }, id: id.into() };
        let message = messages::cancel_message(&goal);
        self.action.on_cancel(self.clock.at(seconds), &message, &mut self.out);
        drain_outputs(&mut self.out)
    }

    fn answer(&mut self, seconds: f64, call: CallId, outcome: Outcome) -> Vec<String> {
        let at = self.clock.at(seconds);
        self.action.on_answer(at, FIRST_CALL + call, &outcome, &mut self.out);
        drain_outputs(&mut self.out)
    }

    fn accept(&mut self, seconds: f64, call: CallId) -> Vec<String> {
        self.answer(seconds, call, Ok(messages::goal_response(true, Stamp::ZERO)))
    }

    fn status(&mut self, seconds: f64, id: &str, status: u8) -> Vec<String> {
        let state = GoalState { uuid: goal_id_to_uuid(ROBOT, id), stamp: Stamp::ZERO, status };
        let message = messages::states_message(&[state]);
        self.action.on_status(self.clock.at(seconds), &message, &mut self.out);
        drain_outputs(&mut self.out)
    }

    fn pass(&mut self, seconds: f64) -> Vec<String> {
        self.action.handle_timeout(self.clock.at(seconds), &mut self.out);
        drain_outputs(&mut self.out).into_iter().filter(|it| !it.starts_with("status")).collect()
    }
}

fn result(status: u8) -> Outcome {
    Ok(types().result_to_ros2(status, &[0; 4]).unwrap().into())
}

fn failed_outcome() -> Outcome {
    Err("'robot' has restarted".into())
}

#[test]
fn a_ros_1_goal_is_accepted_executed_and_gets_its_result() {
    let mut client = Client::new();
    assert_eq!(client.send(0.0, "a"), ["status a=0", "call 1 send_goal 24"]);
    assert!(client.send(0.1, "a").is_empty(), "the same goal again");
    assert_eq!(client.accept(0.2, 1), ["call 2 get_result 20"]);
    assert_eq!(client.status(0.3, "a", ros2::EXECUTING), ["status a=1"]);
    let feedback = types().to_ros2(Part::Feedback, goal_id_to_uuid(ROBOT, "a"), &[0; 4]).unwrap();
    client.action.on_feedback(client.clock.at(0.4), &feedback, &mut client.out);
    assert_eq!(drain_outputs(&mut client.out), ["/fib/feedback a=1 [0, 0, 0, 0]"]);
    let done = client.answer(1.0, 2, result(ros2::SUCCEEDED));
    assert_eq!(done, ["/fib/result a=3 [0, 0, 0, 0]", "status a=3"]);
    client.pass(7.0);
    assert_eq!(client.send(7.0, "b")[0], "status b=0", "the ended one is listed for a time");
}

#[test]
fn each_final_state_of_ros_2_has_one_in_ros_1() {
    for (status, executing, end) in [
        (ros2::SUCCEEDED, true, ros1::SUCCEEDED),
        (ros2::CANCELED, true, ros1::PREEMPTED),
        (ros2::CANCELED, false, ros1::RECALLED),
        (ros2::ABORTED, true, ros1::ABORTED),
    ] {
        let mut client = Client::new();
        client.send(0.0, "a");
        client.accept(0.1, 1);
        if executing {
            client.status(0.2, "a", ros2::EXECUTING);
        }
        let done = client.answer(1.0, 2, result(status));
        assert_eq!(done[0], format!("/fib/result a={end} [0, 0, 0, 0]"));
    }
    let mut client = Client::new();
    client.send(0.0, "a");
    let refused = client.answer(0.1, 1, Ok(messages::goal_response(false, Stamp::ZERO)));
    assert_eq!(refused[0], "/fib/result a=5 [0, 0, 0, 0]");
    client.send(1.0, "b");
    client.accept(1.1, 2);
    assert_eq!(client.answer(2.0, 3, result(ros2::UNKNOWN)), ["status a=5"], "b is lost");
}

#[test]
fn a_cancel_waits_for_its_goal_and_is_repeated_while_the_goal_lives() {
    let mut client = Client::new();
    client.send(0.0, "a");
    assert!(client.cancel(0.1, "a", 0).is_empty(), "the peer does not have the goal yet");
    assert_eq!(client.accept(0.2, 1), ["call 2 cancel_goal 28", "call 3 get_result 20"]);
    client.answer(5.0, 2, failed_outcome());
    assert!(client.pass(5.5).is_empty());
    assert_eq!(client.pass(6.1), ["call 4 cancel_goal 28"]);
    let accepted = messages::cancel_response(cancel::ACCEPTED, &[]);
    assert_eq!(client.answer(6.2, 4, Ok(accepted)), ["status a=7"]);
    client.answer(7.0, 3, result(ros2::CANCELED));
    assert!(client.cancel(8.0, "a", 0).is_empty(), "it has ended");
    // A cancel message that arrives before its goal, on another connection.
    client.cancel(9.0, "early", 0);
    assert_eq!(client.send(9.1, "early")[0], "/fib/result early=8 [0, 0, 0, 0]");
}

#[test]
fn a_cancel_without_id_means_all_goals_or_those_until_a_time() {
    let mut client = Client::new();
    for (seconds, id) in [(1.0, "a"), (2.0, "b")] {
        client.send(seconds, id);
    }
    client.accept(2.1, 1);
    client.accept(2.2, 2);
    assert_eq!(client.cancel(3.0, "", 2), ["call 5 cancel_goal 28"], "a");
    let all = client.cancel(4.0, "", 0);
    assert_eq!(all, ["call 6 cancel_goal 28", "call 7 cancel_goal 28"], "all there, and b");
    let refused = messages::cancel_response(cancel::REJECTED, &[]);
    client.answer(5.0, 7, Ok(refused));
    assert_eq!(client.cancel(6.0, "b", 0).len(), 1, "a refused request may be repeated");
}

#[test]
fn a_goal_with_an_unknown_outcome_is_removed_from_the_status() {
    let mut client = Client::new();
    client.send(0.0, "a");
    assert_eq!(client.answer(5.0, 1, failed_outcome()), ["status ", "call 2 cancel_goal 28"]);
    // A result is asked for again, as long as the peer may return.
    client.send(10.0, "b");
    client.accept(10.1, 3);
    client.answer(11.0, 4, failed_outcome());
    assert_eq!(client.pass(12.1), ["call 5 get_result 20"]);
    client.answer(13.0, 5, result(ros2::SUCCEEDED));
    client.send(20.0, "c");
    client.accept(20.1, 6);
    client.answer(21.0, 7, failed_outcome());
    client.pass(22.1);
    assert_eq!(client.answer(90.0, 8, failed_outcome()), ["status "]);
    // The peer's server has stopped.
    client.send(91.0, "d");
    client.action.stop(client.clock.at(92.0), &mut client.out);
    assert_eq!(drain_outputs(&mut client.out), ["status "]);
    assert!(!client.action.has_ended(client.clock.at(93.0)));
    assert!(client.action.has_ended(client.clock.at(95.0)));
    assert!(client.send(93.0, "e").is_empty());
}

#[test]
fn goals_above_the_limit_of_a_peer_are_rejected_with_a_reason() {
    let mut client = Client::new();
    for number in 0..served::MAX_GOALS {
        client.send(0.0, &number.to_string());
    }
    let refused = client.send(0.0, "last");
    assert_eq!(refused[0], "/fib/result last=5 [0, 0, 0, 0] with text");
    let at = client.clock.at(1.0);
    for wrong in [&[][..], &[255; 60]] {
        client.action.on_goal(at, wrong, &mut client.out);
        client.action.on_cancel(at, wrong, &mut client.out);
        client.action.on_status(at, wrong, &mut client.out);
        client.action.on_feedback(at, wrong, &mut client.out);
    }
    assert!(drain_outputs(&mut client.out).is_empty());
}
