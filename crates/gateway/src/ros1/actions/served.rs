// SPDX-License-Identifier: Apache-2.0
//! A peer's action of ROS 2, served to the actionlib clients of this robot. A state machine: messages
//! of clients and answers of the peer go in, calls of ROS 2's services and messages come out.
//!
//! A goal whose outcome cannot be known any more leaves the status message, upon which actionlib's
//! clients declare it LOST: no server may send that state (actionlib_msgs/GoalStatus).

use super::messages::{self, GoalId, GoalStatus, Stamp, ros1, ros2};
use super::names::ActionNames;
use super::names::ServicePart;
use super::offered::SHUTDOWN_GRACE;
use super::outputs::{Moment, Outputs};
use crate::ros1::shown::for_logs;
use crate::types::action::{self, ActionType, Part, Uuid};
use crate::{CallId, Event, Outcome};
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

/// Maximum number of goals of one action that have not ended; further goals are rejected. Each goal
/// waits for its result in a call, and the node allows 32 calls of one service.
pub(super) const MAX_GOALS: usize = 24;
/// Maximum number of goals of one action in its status message.
const MAX_LISTED: usize = 256;
/// Maximum number of cancel messages kept for goals that have not arrived yet on another connection.
const MAX_EARLY_CANCELS: usize = 16;
/// Maximum number of pending calls of one action to the peer's services; beyond it, requests to cancel
/// all goals are dropped. Each goal has at most one call of each service.
const MAX_CALLS: usize = 4 * MAX_GOALS;
/// Time between two status messages, actionlib's default.
const STATUS_PERIOD: Duration = Duration::from_millis(200);
/// How long status messages list an ended goal, actionlib's default.
const STATUS_LIST_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause before a failed call for a result, or to cancel one goal, is repeated. These calls may be
/// repeated without a further effect.
const RETRY: Duration = Duration::from_secs(1);
/// How long requests for the result of a goal may fail before the goal is lost.
const PATIENCE: Duration = Duration::from_secs(60);

/// The state of a cancel request for one goal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Canceling {
    No,
    /// To be sent at this time, or as soon as the goal is accepted.
    Wanted(Instant),
    /// The peer has the request, or the request is on its way.
    Sent,
}

#[derive(Debug)]
struct Goal {
    uuid: Uuid,
    status: GoalStatus,
    accepted: bool,
    canceling: Canceling,
    /// Time at which the result is requested again.
    retry_at: Option<Instant>,
    /// Time since which requests for the result have failed.
    failing_since: Option<Instant>,
    ended_at: Option<Instant>,
}

#[derive(Debug)]
struct PendingCall {
    uuid: Uuid,
    part: ServicePart,
}

#[derive(Debug)]
pub(super) struct ServedAction {
    names: ActionNames,
    robot: String,
    types: ActionType,
    goals: Vec<Goal>,
    calls: BTreeMap<CallId, PendingCall>,
    early_cancels: VecDeque<(GoalId, Instant)>,
    next_status: Instant,
    /// When the topics end, once the peer's server has stopped.
    ends_at: Option<Instant>,
    seq: u32,
}

impl ServedAction {
    pub fn new(at: Moment, names: ActionNames, robot: &str, types: ActionType) -> Self {
        Self {
            names,
            robot: robot.into(),
            types,
            goals: Vec::new(),
            calls: BTreeMap::new(),
            early_cancels: VecDeque::new(),
            next_status: at.now,
            ends_at: None,
            seq: 0,
        }
    }

    pub fn start(&self, out: &mut Outputs) {
        out.advertise(action::ros1_status(self.names.status()));
        out.advertise(self.types.ros1_topic(Part::Feedback, self.names.feedback()));
        out.advertise(self.types.ros1_topic(Part::Result, self.names.result()));
        out.subscribe(self.names.goal());
        out.subscribe(self.names.cancel());
        self.emit_wanted(true, out);
    }

    /// Asks for the peer's feedback and status messages.
    pub fn emit_wanted(&self, wanted: bool, out: &mut Outputs) {
        for topic in self.names.ros2_topics() {
            out.event(Event::Wanted { topic, wanted });
        }
    }

    /// Stops the action: the peer's server has stopped, and its goals are lost.
    pub fn stop(&mut self, at: Moment, out: &mut Outputs) {
        let was_busy = self.goals.iter().any(|goal| goal.ended_at.is_none());
        self.goals.clear();
        self.calls.clear();
        self.publish_status(at, out);
        self.ends_at = Some(if was_busy { at.now + SHUTDOWN_GRACE } else { at.now });
    }

    /// Whether the topics have to end.
    pub fn has_ended(&self, at: Moment) -> bool {
        self.ends_at.is_some_and(|ends| ends <= at.now)
    }

    pub fn is_stopping(&self) -> bool {
        self.ends_at.is_some()
    }

    pub fn end(self, out: &mut Outputs) {
        for topic in [self.names.status(), self.names.feedback(), self.names.result()] {
            out.unadvertise(topic);
        }
        out.unsubscribe(self.names.goal());
        out.unsubscribe(self.names.cancel());
    }

    /// Handles the goal message of a client.
    pub fn on_goal(&mut self, at: Moment, message: &[u8], out: &mut Outputs) {
        let Ok((mut id, goal)) = messages::read_goal(message) else { return };
        if self.is_stopping() {
            return;
        }
        if id.stamp == Stamp::ZERO {
            id.stamp = at.stamp;
        }
        if id.id.is_empty() {
            id.id = format!("{}-{}.{:09}", self.names.action, at.stamp.secs, at.stamp.nanos);
        }
        // actionlib ignores a goal whose id it has.
        if self.goals.iter().any(|known| known.status.goal.id == id.id) {
            return;
        }
        let uuid = messages::goal_id_to_uuid(&self.robot, &id.id);
        let canceled = self.early_cancels.iter().position(|(early, _)| early.id == id.id);
        let canceled = canceled.and_then(|index| self.early_cancels.remove(index)).is_some();
        let status = GoalStatus { goal: id, status: ros1::PENDING, text: String::new() };
        self.goals.push(Goal {
            uuid,
            status,
            accepted: false,
            canceling: Canceling::No,
            retry_at: None,
            failing_since: None,
            ended_at: None,
        });
        let live = self.goals.iter().filter(|goal| goal.ended_at.is_none()).count();
        if self.goals.len() > MAX_LISTED
            && let Some(oldest) = self.goals.iter().position(|goal| goal.ended_at.is_some())
        {
            self.goals.remove(oldest);
        }
        let request = self.types.to_ros2(Part::Goal, uuid, goal);
        let refused = match &request {
            _ if live > MAX_GOALS => Some(format!("{MAX_GOALS} goals are under way already")),
            Err(error) => Some(format!("the goal cannot be translated: {error}")),
            Ok(_) => None,
        };
        match (request, refused) {
            _ if canceled => self.end_goal(at, uuid, ros1::RECALLED, "", None, out),
            (_, Some(reason)) => self.end_goal(at, uuid, ros1::REJECTED, &reason, None, out),
            (Ok(request), None) => {
                self.publish_status(at, out);
                self.call(uuid, ServicePart::SendGoal, request.into(), out);
            }
            (Err(_), None) => {}
        }
    }

    /// Handles the cancel message of a client: for one goal, for the goals until a time, or for all
    /// goals.
    pub fn on_cancel(&mut self, at: Moment, message: &[u8], out: &mut Outputs) {
        let Ok(cancel) = messages::read_cancel(message) else { return };
        let everything = cancel.id.is_empty() && cancel.stamp == Stamp::ZERO;
        if everything && self.calls.len() < MAX_CALLS {
            // This also cancels goals of other robots' clients, as a server of ROS 1 does.
            let request = messages::cancel_request(Uuid::default(), Stamp::ZERO);
            self.call(Uuid::default(), ServicePart::CancelGoal, request, out);
        }
        let mut is_known = cancel.id.is_empty();
        for goal in self.goals.iter_mut().filter(|goal| goal.ended_at.is_none()) {
            let id = &goal.status.goal;
            let before = cancel.stamp != Stamp::ZERO && id.stamp <= cancel.stamp;
            is_known |= id.id == cancel.id;
            if (everything || before || id.id == cancel.id) && goal.canceling == Canceling::No {
                goal.canceling = Canceling::Wanted(at.now);
            }
        }
        is_known |= self.goals.iter().any(|goal| goal.status.goal.id == cancel.id);
        if !is_known {
            self.early_cancels.push_back((cancel, at.now + STATUS_LIST_TIMEOUT));
            if self.early_cancels.len() > MAX_EARLY_CANCELS {
                self.early_cancels.pop_front();
            }
        }
        self.send_due_calls(at, out);
    }

    fn call(&mut self, uuid: Uuid, part: ServicePart, request: Bytes, out: &mut Outputs) {
        let call = out.next_call();
        self.calls.insert(call, PendingCall { uuid, part });
        let service = match part {
            ServicePart::SendGoal => self.names.send_goal(),
            ServicePart::CancelGoal => self.names.cancel_goal(),
            ServicePart::GetResult => self.names.get_result(),
        };
        out.event(Event::Called { service, call, request });
    }

    /// Sends the cancel requests and the requests for results that are due.
    fn send_due_calls(&mut self, at: Moment, out: &mut Outputs) {
        let mut calls = Vec::new();
        for goal in self.goals.iter_mut().filter(|goal| goal.ended_at.is_none() && goal.accepted) {
            if matches!(goal.canceling, Canceling::Wanted(due) if due <= at.now) {
                goal.canceling = Canceling::Sent;
                let request = messages::cancel_request(goal.uuid, Stamp::ZERO);
                calls.push((goal.uuid, ServicePart::CancelGoal, request));
            }
            if goal.retry_at.is_some_and(|due| due <= at.now) {
                goal.retry_at = None;
                let request = messages::result_request(goal.uuid);
                calls.push((goal.uuid, ServicePart::GetResult, request));
            }
        }
        for (uuid, part, request) in calls {
            self.call(uuid, part, request, out);
        }
    }

    fn live_goal(&mut self, uuid: Uuid) -> Option<&mut Goal> {
        self.goals.iter_mut().find(|goal| goal.uuid == uuid && goal.ended_at.is_none())
    }

    /// Handles the peer's answer to a call.
    pub fn on_answer(&mut self, at: Moment, call: CallId, outcome: &Outcome, out: &mut Outputs) {
        let Some(PendingCall { uuid, part }) = self.calls.remove(&call) else { return };
        match (part, outcome) {
            (ServicePart::SendGoal, Ok(response)) => self.on_goal_response(at, uuid, response, out),
            (ServicePart::SendGoal, Err(reason)) => {
                // It is unknown whether the peer has the goal. If the peer has it, the goal is
                // canceled.
                self.remove_lost_goal(at, uuid, reason, out);
                let request = messages::cancel_request(uuid, Stamp::ZERO);
                self.call(uuid, ServicePart::CancelGoal, request, out);
            }
            (ServicePart::CancelGoal, Ok(response)) => {
                let code = messages::read_cancel_response(response);
                if code == Ok(messages::cancel::ACCEPTED) {
                    self.update_goal_status(at, uuid, ros2::CANCELING, out);
                } else if let Some(goal) = self.live_goal(uuid) {
                    // The client may ask again.
                    goal.canceling = Canceling::No;
                }
            }
            (ServicePart::CancelGoal, Err(_)) => {
                if let Some(goal) = self.live_goal(uuid) {
                    goal.canceling = Canceling::Wanted(at.now + RETRY);
                }
            }
            (ServicePart::GetResult, Ok(response)) => self.on_result(at, uuid, response, out),
            (ServicePart::GetResult, Err(reason)) => {
                let Some(goal) = self.live_goal(uuid) else { return };
                let since = *goal.failing_since.get_or_insert(at.now);
                goal.retry_at = Some(at.now + RETRY);
                if at.now >= since + PATIENCE {
                    self.remove_lost_goal(at, uuid, reason, out);
                }
            }
        }
    }

    fn on_goal_response(&mut self, at: Moment, uuid: Uuid, response: &[u8], out: &mut Outputs) {
        let Some(goal) = self.live_goal(uuid) else { return };
        match messages::read_accepted(response) {
            Ok(true) => {
                (goal.accepted, goal.retry_at) = (true, Some(at.now));
                self.send_due_calls(at, out);
            }
            Ok(false) => self.end_goal(at, uuid, ros1::REJECTED, "", None, out),
            Err(error) => self.remove_lost_goal(at, uuid, &error.to_string(), out),
        }
    }

    fn on_result(&mut self, at: Moment, uuid: Uuid, response: &[u8], out: &mut Outputs) {
        let (status, result) = match self.types.result_to_ros1(response) {
            Ok(found) => found,
            Err(error) => return self.remove_lost_goal(at, uuid, &error, out),
        };
        let Some(goal) = self.live_goal(uuid) else { return };
        let was_pending = matches!(goal.status.status, ros1::PENDING | ros1::RECALLING);
        let status = match status {
            ros2::SUCCEEDED => ros1::SUCCEEDED,
            ros2::CANCELED if was_pending => ros1::RECALLED,
            ros2::CANCELED => ros1::PREEMPTED,
            ros2::ABORTED => ros1::ABORTED,
            _ => return self.remove_lost_goal(at, uuid, "its server does not know it", out),
        };
        self.end_goal(at, uuid, status, "", Some(&result), out);
    }

    /// Ends a goal, and publishes its result or a result of zeros.
    fn end_goal(
        &mut self,
        at: Moment,
        uuid: Uuid,
        status: u8,
        text: &str,
        result: Option<&[u8]>,
        out: &mut Outputs,
    ) {
        let Some(goal) = self.live_goal(uuid) else { return };
        goal.ended_at = Some(at.now);
        (goal.status.status, goal.status.text) = (status, text.into());
        let report = goal.status.clone();
        self.seq = self.seq.wrapping_add(1);
        let result = result.unwrap_or(self.types.default_result());
        let message = messages::report_message(self.seq, at.stamp, &report, result);
        out.publish(self.names.result(), message);
        self.publish_status(at, out);
    }

    /// Removes a goal whose outcome is unknown from the status message.
    fn remove_lost_goal(&mut self, at: Moment, uuid: Uuid, reason: &str, out: &mut Outputs) {
        let Some(goal) = self.live_goal(uuid) else { return };
        let id = goal.status.goal.id.clone();
        tracing::warn!(action = self.names.action, goal = for_logs(&id), reason, "goal lost");
        self.goals.retain(|goal| goal.uuid != uuid);
        self.publish_status(at, out);
    }

    /// Handles the state of a goal that the peer reports.
    fn update_goal_status(&mut self, at: Moment, uuid: Uuid, status: u8, out: &mut Outputs) {
        let Some(goal) = self.live_goal(uuid) else { return };
        let before = goal.status.status;
        goal.status.status = match (status, before) {
            (ros2::EXECUTING, ros1::PENDING) => ros1::ACTIVE,
            (ros2::CANCELING, ros1::PENDING) => ros1::RECALLING,
            (ros2::CANCELING, ros1::ACTIVE) => ros1::PREEMPTING,
            // The result shows that a goal has ended.
            _ => before,
        };
        if goal.status.status != before {
            self.publish_status(at, out);
        }
    }

    /// Handles a status message of the peer.
    pub fn on_status(&mut self, at: Moment, message: &[u8], out: &mut Outputs) {
        for goal in messages::read_states(message).unwrap_or_default() {
            self.update_goal_status(at, goal.uuid, goal.status, out);
        }
    }

    /// Feedback of the peer. A goal with feedback is being executed.
    pub fn on_feedback(&mut self, at: Moment, message: &[u8], out: &mut Outputs) {
        let Ok((uuid, feedback)) = self.types.to_ros1(Part::Feedback, message) else { return };
        self.update_goal_status(at, uuid, ros2::EXECUTING, out);
        let Some(goal) = self.live_goal(uuid) else { return };
        let status = goal.status.clone();
        self.seq = self.seq.wrapping_add(1);
        let message = messages::report_message(self.seq, at.stamp, &status, &feedback);
        out.publish(self.names.feedback(), message);
    }

    fn publish_status(&mut self, at: Moment, out: &mut Outputs) {
        self.next_status = at.now + STATUS_PERIOD;
        self.seq = self.seq.wrapping_add(1);
        let all: Vec<_> = self.goals.iter().map(|goal| goal.status.clone()).collect();
        out.publish(self.names.status(), messages::status_message(self.seq, at.stamp, &all));
    }

    pub fn next_timeout(&self) -> Option<Instant> {
        let goals = self.goals.iter().filter(|goal| goal.ended_at.is_none() && goal.accepted);
        let due = goals.flat_map(|goal| {
            let cancel = match goal.canceling {
                Canceling::Wanted(due) => Some(due),
                _ => None,
            };
            [cancel, goal.retry_at].into_iter().flatten()
        });
        due.chain([self.ends_at.unwrap_or(self.next_status)]).min()
    }

    pub fn handle_timeout(&mut self, at: Moment, out: &mut Outputs) {
        self.early_cancels.retain(|(_, forgotten)| at.now < *forgotten);
        self.goals
            .retain(|goal| goal.ended_at.is_none_or(|ended| at.now < ended + STATUS_LIST_TIMEOUT));
        self.send_due_calls(at, out);
        if self.next_status <= at.now && !self.is_stopping() {
            self.publish_status(at, out);
        }
    }
}
